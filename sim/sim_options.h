/*
 * What mist-sim is told: its options, and how they change a plan.
 */
#ifndef MIST_SIM_SIM_OPTIONS_H
#define MIST_SIM_SIM_OPTIONS_H

#include "core/options.h"
#include "sim/plan/plan.h"
#include "sim/sim_job.h"

struct mist_sim_options {
    struct mist_common_options common;
    struct mist_option_list what_if, sweep, replay;
    struct mist_sim_job_options job; /* without a plan */
    const char *cluster, *compare, *chrome, *save_plan, *export, *lengths;
    int64_t n_iterations, n_threads;
    double jitter_frac;
    bool is_unfolded, lists_presets, lists_words, explains, finds_sensitivity, retunes,
        finds_causes;
    int framework, attention, recompute; /* choices; 0: what the plan says */
    int packing;                         /* enum mist_packing */
};

extern const struct mist_tool mist_sim_tool;

/* Lets plan be of the framework, with the attention and the recomputation, that the options
 * say. MIST_ERR_INPUT: then it is no plan. */
enum mist_status mist_sim_choose_framework(const struct mist_sim_options *options,
                                           struct mist_plan *plan,
                                           struct mist_err *err) MIST_MUST_CHECK;

#endif
