/*
 * What each group of the space is worth: the best plan as the groups are added one by one,
 * in the order of enum mist_space_group. As no space loses a plan by more groups, what was
 * found with fewer counts where a search misses it.
 *
 * Beside another framework the way begins at the best plan that it can express, priced as it
 * runs plans (target.h). The same plan priced as we run it is next, then the best that it can
 * express, with our prices and our memory, then all our plans with the groups of knobs that
 * it has, then the others one by one. So what its kernels cost, and then what its memory
 * costs, is apart from what plans gain.
 */
#ifndef MIST_TUNE_ABLATE_H
#define MIST_TUNE_ABLATE_H

#include "core/emit.h"
#include "core/message.h"
#include "tune/plan_label.h"
#include "tune/validate.h"

struct mist_ablation_row {
    const char *added;  /* a group's name, or what else is new */
    bool fits;          /* a plan does; else what follows says nothing */
    double iteration_s; /* of the best, by replay */
    double error_s;
    double taken_s; /* of the plan that such a search takes: simpler, if hardly slower
                     * (alike.h); NAN: it found none */
    int64_t peak_bytes;
    char label[MIST_PLAN_LABEL_BYTES];
    double search_s; /* with replays */
};

struct mist_ablation {
    int n_rows;
    struct mist_ablation_row rows[MIST_N_SPACE_GROUPS + 3];
    bool was_stopped; /* by search->is_over: the last row is the best so far */
};

/* Searches with the first group of config->space, the first two, and so on, all within its
 * bounds. traces: of config->cost_model. framework: beside it; ours: beside none. Arguments
 * and errors as of mist_validate_run(), but that is_over is set, and that out is filled with
 * MIST_ERR_NO_PLAN, too, which means that nothing fits in any row; the message is of the last. */
MIST_MUST_CHECK enum mist_status
mist_ablate(const struct mist_validate_config *config,
            const struct mist_search_config *search, const struct mist_trace_set *traces,
            enum mist_framework_name framework, const struct mist_messages *messages,
            struct mist_ablation *out, struct mist_err *err);

/* Adds a list of the rows. JSON has no times of searches: the same input is to give the
 * same document. */
void mist_ablation_emit(struct mist_emit *emit, enum mist_emit_kind kind,
                        const struct mist_ablation *ablation);

#endif
