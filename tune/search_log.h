/*
 * The search log: one CSV row per configuration that was priced without offloading, and
 * per offloaded one that came onto a frontier, with what became of it.
 *
 *   role, in_flight, micro_batches, micro_batch, dp, tp, sequence_parallel, layers,
 *   checkpointed_layers, lean_layers, zero, offload_weights_frac, offload_gradients_frac,
 *   offload_optimizer_frac, offload_activations_frac, update_on, stable_s, extra_s,
 * peak_bytes, host_bytes, on_frontier, chosen, why
 *
 * Times are seconds by the closed form (0 where there is no price), peak_bytes and
 * host_bytes the device and the host arena of a rank by the closed form. on_frontier and
 * chosen are 0 or 1; chosen: the best plan runs it. why is empty for what was chosen,
 * else it says why not.
 *
 * The second table is for `mist-plot pareto`: per stage of the best plan the frontier it
 * was chosen from (its number of layers, its shape), as stage, t_s, d_s, chosen.
 */
#ifndef MIST_TUNE_SEARCH_LOG_H
#define MIST_TUNE_SEARCH_LOG_H

#include "tune/search_rows.h"

/*
 * rows: of one search with limit_bytes; best: the plan that won, or NULL. The file
 * appears whole or not at all. MIST_ERR_USAGE (path exists, force is false), MIST_ERR_IO,
 * MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_search_log_save(struct mist_search_rows *rows,
                                                      int64_t limit_bytes,
                                                      const struct mist_plan *best,
                                                      const char *path, bool force,
                                                      struct mist_err *err);

/* The same rows, those of the frontiers of best alone. */
MIST_MUST_CHECK enum mist_status
mist_search_log_save_pareto(struct mist_search_rows *rows, const struct mist_plan *best,
                            const char *path, bool force, struct mist_err *err);

#endif
