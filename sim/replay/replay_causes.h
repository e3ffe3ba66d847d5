/*
 * What slows uneven iterations down: one cause after the other is replaced by what would be
 * even, as studies of production traces do (Lin et al. 2025, "Understanding Stragglers in
 * Large Model Training Using What-if Analysis", 3; sim/recorded does so with recorded jobs).
 *
 * A job is even when every sample holds the mean of all loads, ranks and links are as fast
 * as priced, and nothing jitters (struct mist_replay_options). Of each cause is said
 *   alone_frac  the even job with the cause as it is, over the even job
 *   without_s   the job as it is, with the cause even
 * They differ where causes hide behind one another. Causes are each sort alone; of all sorts
 * together each stage; the speed and the links of each rank where they are not as priced;
 * and the load of each micro-batch, by its number.
 */
#ifndef MIST_SIM_REPLAY_CAUSES_H
#define MIST_SIM_REPLAY_CAUSES_H

#include "core/progress.h"
#include "sim/replay/replay.h"

struct mist_replay_cause {
    struct mist_replay_part part;
    double alone_frac, without_s;
};

struct mist_replay_causes {
    double iteration_s, even_s;
    struct mist_replay_cause *causes; /* owned; [n] the one that saves most first */
    size_t n;
};

/*
 * Replays the plan with options once for itself, once even, and twice for each cause. part
 * of options is not looked at; nor is there a timeline. progress (NULL: none) is told of
 * each replay. out is to be freed with
 * mist_replay_causes_fini after MIST_OK. Errors of mist_replay_run(), and MIST_ERR_USAGE:
 * everything is even.
 */
MIST_MUST_CHECK enum mist_status mist_replay_find_causes(
    const struct mist_plan *plan, const struct mist_cost_model *cost_model,
    const struct mist_replay_options *options, struct mist_progress *progress,
    struct mist_replay_causes *out, struct mist_err *err);
void mist_replay_causes_fini(struct mist_replay_causes *causes);

/* "lengths", "stage 2", "speed of rank 5", ... in text[size]; returns text. */
char *mist_replay_cause_text(const struct mist_replay_part *part, char *text,
                             size_t size);

#endif
