/*
 * What mist-sim prints: a replayed iteration, with its stages and what prices rest on if
 * all is asked for, and what was predicted beside what was measured. For people, as CSV or as JSON (core/emit.h); failures of
 * memory are kept by emit.
 */
#ifndef MIST_SIM_SIM_REPORT_H
#define MIST_SIM_SIM_REPORT_H

#include "core/emit.h"
#include "sim/compare.h"
#include "sim/explain/explain.h"
#include "sim/plan/plan.h"
#include "sim/replay/replay.h"
#include "traces/trace_set.h"

/* loads: those of --lengths, NULL: none. has_all: not only what one decides by. */
void mist_sim_report_add_result(struct mist_emit *emit, const struct mist_plan *plan,
                                const struct mist_cluster *cluster,
                                const struct mist_replay_result *result,
                                const struct mist_loads *loads,
                                const struct mist_speed *speed, bool has_all);

/* What a device of a stage needs: what a framework keeps beside the arena, what its
 * allocator holds beyond both, and what every process takes, are on top. */
int64_t mist_sim_report_device_bytes(const struct mist_plan *plan,
                                     const struct mist_cluster *cluster,
                                     const struct mist_replay_result *result,
                                     int32_t i_stage);

/* The same of the fullest stage. */
int64_t mist_sim_report_needed_bytes(const struct mist_plan *plan,
                                     const struct mist_cluster *cluster,
                                     const struct mist_replay_result *result);

/* Host memory is one for all ranks of a node, which are placed in order: that of the node
 * that needs most, the first of these, and how many nodes need more than there is. */
struct mist_sim_host_need {
    int64_t bytes;
    int32_t i_node, n_short;
};
struct mist_sim_host_need
mist_sim_report_host_need(const struct mist_plan *plan,
                          const struct mist_cluster *cluster,
                          const struct mist_replay_result *result);

/* error_s: half width of the error bar of the predicted iteration. */
void mist_sim_report_add_comparison(struct mist_emit *emit, const struct mist_plan *plan,
                                    const struct mist_compare_side *predicted,
                                    const struct mist_compare_side *measured,
                                    double error_s);

/* Tasks by kind and rank, as sorted; for people the first of them. */
void mist_sim_report_add_differences(struct mist_emit *emit,
                                     const struct mist_compare_difference *differences,
                                     size_t n, enum mist_emit_kind kind);

/* All presets with the figures they consist of and where these are from. */
void mist_sim_report_add_presets(struct mist_emit *emit);

#endif
