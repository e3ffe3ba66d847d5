/*
 * A seeded sample of plans from all over the space, good or not: what predictions are
 * checked against measurements on.
 *
 * Every plan has a theme, one after the other as far as the space has them: no
 * optimisation, checkpointing, ZeRO-1, ZeRO-2, ZeRO-3, each of the four offloads, all of
 * them, tensor parallelism, sequence parallelism, the zero-bubble ones and the interleaved
 * pipeline, and everything at random. What the theme does not fix is drawn: G, the number
 * of stages (spread evenly), shapes, the split of the layers, and, in one plan of three,
 * every other knob. A plan is taken if its planned memory holds and it was not taken
 * before; its prediction is that of the replay. The closed form has no part in it.
 */
#ifndef MIST_TUNE_SAMPLE_PLANS_H
#define MIST_TUNE_SAMPLE_PLANS_H

#include "tune/validate.h"

/*
 * out: [n_plans], the first *n_out filled, each plan owned by the caller (free); t and d
 * of their stages and closed_s are 0. Fewer than n_plans when 100 draws per plan found no
 * more. The same seed gives the same plans. MIST_OK, or the errors of the replay.
 */
MIST_MUST_CHECK enum mist_status
mist_sample_plans(const struct mist_validate_config *config, uint64_t seed,
                  size_t n_plans, struct mist_validated *out, size_t *n_out,
                  struct mist_err *err);

#endif
