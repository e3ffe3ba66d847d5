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
 * else it says why not. The rows are those of one search; what the best plan runs and another
 * search found has a row behind them.
 *
 * The second table is for `mist-plot pareto`: per stage of the best plan all that it could
 * choose from (with its number of layers and its mesh, within the limits), and what was
 * chosen, as stage, t_s, d_s, chosen. That need not be on the frontier, as the closed form
 * puts plans on it and the replay chooses.
 */
#ifndef MIST_TUNE_SEARCH_LOG_H
#define MIST_TUNE_SEARCH_LOG_H

#include "tune/search_rows.h"

/*
 * rows: of one search; search: how that was searched, within limits that plans have to keep
 * to; best: the plan that won. The file appears whole or not at all. MIST_ERR_USAGE (path
 * exists, force is false), MIST_ERR_IO, MIST_ERR_MEMORY; errors of the price function.
 */
MIST_MUST_CHECK enum mist_status mist_search_log_save(
    struct mist_search_rows *rows, const struct mist_search_config *search,
    const struct mist_plan *best, const char *path, bool force, struct mist_err *err);

/* The second table, as above. */
MIST_MUST_CHECK enum mist_status mist_search_log_save_pareto(
    const struct mist_space *space, const struct mist_search_config *search,
    const struct mist_plan *best, const char *path, bool force, struct mist_err *err);

#endif
