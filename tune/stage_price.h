/*
 * The prices of the search by the closed form of a cluster (sim/closed_form/stage_model.h).
 *
 * The shape of a stage (role, b, dp, tp, sequence) is priced on first use and kept: the
 * same shape comes back for every number of micro-batches and every depth of the
 * pipeline.
 */
#ifndef MIST_TUNE_STAGE_PRICE_H
#define MIST_TUNE_STAGE_PRICE_H

#include "sim/cost/cost_model.h"
#include "tune/search.h"

struct mist_stage_price;

/*
 * cost_model and space are borrowed for the price's life; threads: host threads
 * per device. *out is owned by the caller (mist_stage_price_free). MIST_OK,
 * MIST_ERR_MEMORY or MIST_ERR_RUN.
 */
MIST_MUST_CHECK enum mist_status
mist_stage_price_new(const struct mist_cost_model *cost_model,
                     const struct mist_space *space, int32_t threads,
                     struct mist_stage_price **out, struct mist_err *err);
void mist_stage_price_free(struct mist_stage_price *price); /* NULL allowed */

/* A mist_search_price; context is the struct mist_stage_price. */
MIST_MUST_CHECK enum mist_status
mist_stage_price_block(void *context, const struct mist_search_kind *kind,
                       const struct mist_search_columns *block, struct mist_err *err);

/*
 * Seconds of an iteration of a plan of the space (checked), with any pipeline schedule, by
 * its passes (sim/closed_form/pass_replay.h): what the replay says within a few percent,
 * in a thousandth of its time. MIST_OK, MIST_ERR_MEMORY, or as mist_stage_price_block.
 */
MIST_MUST_CHECK enum mist_status mist_stage_price_plan(struct mist_stage_price *price,
                                                       const struct mist_plan *plan,
                                                       double *iteration_s,
                                                       struct mist_err *err);

/*
 * The same by a short replay (mist_replay_short()): hardly off, in a quarter of a replay's
 * time, and remembered by candidate (mist_validate_hash() of what the plan was made of) and
 * pipeline. Fails like that.
 */
MIST_MUST_CHECK enum mist_status
mist_stage_price_replay(struct mist_stage_price *price, const struct mist_plan *plan,
                        uint64_t candidate, double *iteration_s, struct mist_err *err);

/*
 * What the order of an automatic schedule of a plan (as above) is made for: its passes as
 * priced here, in whole microseconds. passes: [n_stages]. Nothing counts as freed by input
 * gradients. Returns as mist_stage_price_plan().
 */
MIST_MUST_CHECK enum mist_status
mist_stage_price_passes(struct mist_stage_price *price, const struct mist_plan *plan,
                        struct mist_pipeline_pass *passes, struct mist_err *err);

#endif
