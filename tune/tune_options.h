/*
 * What mist-tune is told: its options, and which of them contradict one another.
 */
#ifndef MIST_TUNE_TUNE_OPTIONS_H
#define MIST_TUNE_TUNE_OPTIONS_H

#include "core/options.h"
#include "core/status.h"
#include "sim/plan/plan.h"

/* Which point of --sweep is the best. */
enum mist_tune_objective { MIST_OBJECTIVE_TIME, MIST_OBJECTIVE_COST };

struct mist_tune_options {
    struct mist_common_options common;
    const char *model, *cluster, *log, *pareto, *plans, *launch, *export, *lengths,
        *retune;
    const struct mist_plan *plan; /* of retune, loaded; NULL: none */
    struct mist_option_list what_if, space, fixed, limited, sweep, prices, constraints;
    bool is_uniform, is_thorough;
    int64_t global_batch, seq_len, device_memory_bytes, n_ranks, n_nodes,
        n_devices_per_node, n_threads, n_top, n_points, n_samples, n_verified,
        n_iterations;
    double glpk_time_s, verify_limit_s, n_tokens, budget, slower_frac;
    int solver, dtype, gradient_dtype, target; /* enum mist_framework_name */
    int objective;                             /* enum mist_tune_objective */
    int packing;                               /* enum mist_packing */
    bool explains, ablates;
};

extern const struct mist_tool mist_tune_tool;

/*
 * Lets a plan's job, devices and cluster be those of the options, as far as none was given.
 * plan: that of --retune; borrowed. MIST_ERR_USAGE: it names no trace set.
 */
MIST_MUST_CHECK enum mist_status
mist_tune_options_take_plan(struct mist_tune_options *options,
                            const struct mist_positionals *given,
                            const struct mist_plan *plan, struct mist_err *err);

/* MIST_ERR_USAGE: options that do not go together. */
MIST_MUST_CHECK enum mist_status
mist_tune_options_check(const struct mist_tune_options *options, struct mist_err *err);

#endif
