/*
 * A plan: how one training step is spread over a cluster, and what was predicted for it.
 *
 * Every knob of the system is here, whether today's executor runs it or not. Stages partition the
 * modules in order: stage 0 holds the embedding, the last stage the head. Ranks are numbered stage by
 * stage; inside a stage rank = first_rank + i_dp * tp + i_tp. All stages process the same samples per
 * step: micro_batch * dp is one number for the whole plan, so that
 * global_batch = n_micro_batches * micro_batch * dp.
 */
#ifndef MIST_SIM_PLAN_H
#define MIST_SIM_PLAN_H

#include "core/status.h"
#include "sim/model.h"

#include <stdbool.h>
#include <stdint.h>

enum mist_pipeline_schedule { MIST_PIPELINE_1F1B };

enum { MIST_MAX_STAGES = 512 };

struct mist_job {
    int64_t global_batch; /* samples per optimizer step */
    int32_t seq_len;      /* tokens per sample */
    enum mist_dtype dtype;
};

struct mist_stage_plan {
    int32_t n_layers;          /* blocks of the stage, >= 1 (the embedding and head come on top) */
    int32_t n_nodes;           /* device mesh: nodes x devices of each; n_nodes * n_devices = dp * tp */
    int32_t n_devices;         /* devices used on each of the nodes */
    int32_t micro_batch;       /* samples per data-parallel rank and micro-batch (b) */
    int32_t dp;                /* data-parallel size */
    int32_t tp;                /* tensor-parallel size */
    bool shards_optimizer;     /* ZeRO-1 */
    bool shards_gradients;     /* ZeRO-2; implies shards_optimizer */
    bool shards_weights;       /* ZeRO-3; implies shards_gradients */
    int32_t n_checkpointed;    /* the first n blocks of the stage keep only their input */
    double offload_weights;    /* fractions 0..1 kept in host memory */
    double offload_gradients;
    double offload_optimizer;
    double offload_activations;
};

/* What the tuner or the simulator said; all 0 when nothing was predicted yet. */
struct mist_prediction {
    double iteration_s;
    double error_s;            /* half width of the error bar of iteration_s */
    double extrapolated_frac;  /* share of the time that rests on extrapolation */
    int64_t peak_bytes[MIST_MAX_STAGES]; /* device arena of a rank of each stage */
    double stable_s[MIST_MAX_STAGES];    /* t of each stage */
    double extra_s[MIST_MAX_STAGES];     /* d of each stage */
};

struct mist_plan {
    struct mist_model model;
    struct mist_job job;
    char trace_set[256];       /* folder the plan was tuned for; "" when unknown */
    uint64_t fingerprint;      /* of model, job and trace set */
    int64_t device_memory_bytes; /* limit the plan was made for; 0 = none */
    enum mist_pipeline_schedule pipeline;
    int32_t n_micro_batches;   /* gradient accumulation steps G */
    int32_t n_stages;
    struct mist_stage_plan stages[MIST_MAX_STAGES];
    struct mist_prediction predicted;
};

/* Derived quantities; the plan must have passed mist_plan_check(). */
int32_t mist_plan_n_ranks(const struct mist_plan *plan);
int32_t mist_plan_first_rank(const struct mist_plan *plan, int32_t i_stage);
int32_t mist_plan_first_layer(const struct mist_plan *plan, int32_t i_stage); /* block number, from 1 */
/* Stage of a rank and its place in it; each out pointer may be NULL. */
void mist_plan_locate_rank(const struct mist_plan *plan, int32_t rank, int32_t *i_stage, int32_t *i_dp,
                           int32_t *i_tp);

/* Checks every relation between the knobs; the message names the stage, the value and the bound. */
MIST_MUST_CHECK enum mist_status mist_plan_check(const struct mist_plan *plan, struct mist_err *err);

/*
 * plan.json, strict: "format": 1 first, units in keys, unknown or duplicate keys are errors with line
 * and column. The model's dimensions are embedded, so a plan stands alone. load calls check.
 */
MIST_MUST_CHECK enum mist_status mist_plan_load(const char *path, struct mist_plan *out,
                                                struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_plan_save(const struct mist_plan *plan, const char *path,
                                                bool overwrites, struct mist_err *err);

#endif
