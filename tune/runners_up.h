/*
 * The plans behind the best one, the fastest of each kind (plan_label.h) as far as there are
 * kinds, and why they lost: which part of the iteration (sim/explain) is longer, or how much
 * memory is missing.
 */
#ifndef MIST_TUNE_RUNNERS_UP_H
#define MIST_TUNE_RUNNERS_UP_H

#include "core/emit.h"
#include "sim/explain/explain.h"
#include "tune/validate.h"

enum { MIST_N_RUNNERS_UP = 3, MIST_EXCESS_BYTES = 80 };

struct mist_runners_up {
    size_t n; /* explained plans: the best one, then those */
    struct mist_explanation of[1 + MIST_N_RUNNERS_UP]; /* owned */
};

/* Replays and explains the best plan and those behind it. out must be zero; it is freed by
 * mist_runners_up_fini also after a failure. Errors of mist_explain_plan(). */
MIST_MUST_CHECK enum mist_status
mist_runners_up_explain(const struct mist_validate_config *config,
                        const struct mist_validate_result *result,
                        struct mist_runners_up *out, struct mist_err *err);
void mist_runners_up_fini(struct mist_runners_up *runners_up);

/*
 * Adds a list of them, and of the fastest plan that does not hold, if it is faster by the
 * closed form than the best one with its schedule: its time is that of the best by replay, as
 * much shorter. Without explanations only how much slower they are.
 */
void mist_runners_up_emit(struct mist_emit *emit, const struct mist_trace_set *traces,
                          const struct mist_validate_config *config,
                          const struct mist_validate_result *result,
                          const struct mist_runners_up *runners_up);

/* Why a plan does not hold: "1.00 GiB over the host memory of a node". */
const char *mist_runners_up_excess(const struct mist_validate_config *config,
                                   const struct mist_validated *dropped,
                                   char text[MIST_EXCESS_BYTES]);

#endif
