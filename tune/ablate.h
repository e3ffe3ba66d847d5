/*
 * What each group of the space is worth: the best plan as the groups are added one by one,
 * in the order of enum mist_space_group.
 */
#ifndef MIST_TUNE_ABLATE_H
#define MIST_TUNE_ABLATE_H

#include "core/emit.h"
#include "tune/plan_label.h"
#include "tune/validate.h"

struct mist_ablation_row {
    enum mist_space_group added;
    bool fits;          /* a plan does; else the next four say nothing */
    double iteration_s; /* of the best, by replay */
    double error_s;
    int64_t peak_bytes;
    char label[MIST_PLAN_LABEL_BYTES];
    double search_s; /* with replays */
};

struct mist_ablation {
    int n_rows;
    struct mist_ablation_row rows[MIST_N_SPACE_GROUPS];
    bool was_stopped; /* by search->is_over: the last row is the best so far */
};

/* Searches with the first group of config->space, the first two, and so on, all within its
 * bounds. Arguments and errors as of mist_validate_run(), but that it is no error when
 * nothing fits. */
MIST_MUST_CHECK enum mist_status mist_ablate(const struct mist_validate_config *config,
                                             const struct mist_search_config *search,
                                             struct mist_ablation *out,
                                             struct mist_err *err);

/* Adds a list of the rows. JSON has no times of searches: the same input is to give the
 * same document. */
void mist_ablation_emit(struct mist_emit *emit, enum mist_emit_kind kind,
                        const struct mist_ablation *ablation);

#endif
