/*
 * A seeded sample of plans from all over the space, good or not: what predictions are
 * checked against measurements on.
 *
 * Plans are spread evenly over the numbers of stages; then G, dp, the split of the
 * layers, ZeRO-1 and checkpointing (none, all, or any number of layers) are drawn. A plan
 * is taken if its planned memory holds and it was not taken before; its prediction is
 * that of the replay.
 */
#ifndef MIST_TUNE_SAMPLE_PLANS_H
#define MIST_TUNE_SAMPLE_PLANS_H

#include "tune/validate.h"

/*
 * out: [n_plans], the first *n_out filled, each plan owned by the caller (free). t and d
 * come from price (search.h). Fewer than n_plans when 100 draws per plan found no more.
 * The same seed gives the same plans. MIST_OK, or the errors of the replay.
 */
MIST_MUST_CHECK enum mist_status
mist_sample_plans(const struct mist_validate_config *config, mist_search_price *price,
                  void *price_context, uint64_t seed, size_t n_plans,
                  struct mist_validated *out, size_t *n_out, struct mist_err *err);

#endif
