/*
 * Jobs without a plan: what mist-sim's options and the arguments of a framework say becomes
 * a plan whose stages are all alike (sim/framework_args), on all devices of the cluster
 * unless --dp says fewer.
 */
#ifndef MIST_SIM_SIM_JOB_H
#define MIST_SIM_SIM_JOB_H

#include "core/emit.h"
#include "core/message.h"
#include "sim/plan/plan.h"

struct mist_sim_job_options {
    const char *model, *from_args;
    /* 0: not said */
    int64_t tp, cp, pp, dp, micro_batch, global_batch, seq_len, zero, n_chunks;
    int dtype, gradient_dtype; /* 0: not said, else 1 + enum mist_dtype */
    bool is_sequence_parallel, has_no_dropout, has_fp8_products;
    /* Of the options that plans have, too. */
    enum mist_framework_name framework;
    int attention, recompute; /* 0: not said, else 1 + enum mist_attention,
                                 enum mist_args_recompute */
};

/* Whether an option says that there is no plan. */
bool mist_sim_job_is_given(const struct mist_sim_job_options *options);

/*
 * The plan of a job for a cluster (a trace set or a preset). Says what of the arguments
 * can't change the price: all of them (names_all), or as many as stand in a line. Errors:
 * those of the model, the trace set and the arguments; MIST_ERR_USAGE: options that are
 * missing.
 */
MIST_MUST_CHECK enum mist_status
mist_sim_job_make(const struct mist_sim_job_options *options, const char *cluster_path,
                  bool names_all, const struct mist_messages *messages,
                  struct mist_plan *out, struct mist_err *err);

/*
 * Writes a plan as the arguments of its framework, and says what these leave to the reader.
 * path NULL: only looks whether that can be done. node_devices: of the cluster.
 */
MIST_MUST_CHECK enum mist_status mist_sim_job_export(const struct mist_plan *plan,
                                                     int32_t node_devices,
                                                     const char *path, bool overwrites,
                                                     const struct mist_messages *messages,
                                                     struct mist_err *err);

/* All arguments of a framework, and what becomes of them: one list, "arguments". */
void mist_sim_job_list(struct mist_emit *emit, enum mist_framework_name framework);

#endif
