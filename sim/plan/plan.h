/*
 * A plan: how one training step is spread over a cluster, and what was predicted for it.
 *
 * Every knob of the system is here, whether today's executor runs it or not. Stages
 * partition the modules as pipeline.h says: stage 0 holds the embedding, the last virtual
 * stage is the head's. Ranks are numbered stage by stage, inside a stage as rank_mesh.h
 * says. All stages process the same samples per step: micro_batch * dp is one number for
 * the whole plan, so that global_batch = n_micro_batches * micro_batch * dp.
 *
 * A plan is one flat struct without pointers (about 45 KiB): copy it by assignment, zero
 * it with = {0}; keep it off deep stacks.
 */
#ifndef MIST_SIM_PLAN_H
#define MIST_SIM_PLAN_H

#include "core/status.h"
#include "sim/model/model.h"
#include "sim/plan/pipeline.h"

#include <stdbool.h>
#include <stdint.h>

enum { MIST_MAX_STAGES = 512, MIST_ZERO_MAX = 3 };

struct mist_job {
    int64_t global_batch; /* samples per optimizer step */
    int32_t seq_len;      /* tokens per sample */
    enum mist_dtype dtype;
    enum mist_dtype gradient_dtype; /* of parameters' gradients as they are stored and
                                       sent; fp32, or dtype's. Sums are fp32 */
    int32_t threads;      /* compute threads of a device, 1 .. 1024; 0: not said */
    bool computes_on_gpu; /* devices compute themselves: no threads of the host */
    /* Who trains (sim/model/framework.h). Plans of others can be predicted, not run: their
     * attention, and whether their backward computes it again. Ours is flash attention. */
    enum mist_framework_name framework;
    enum mist_attention attention;
    bool recomputes_attention;
    bool has_no_dropout; /* though their blocks have it */
    bool overlaps; /* communication and computation, though they take turns there; where
                      mist_plan_overlaps() */
    bool blocks_launches;  /* the host waits for every kernel (CUDA_LAUNCH_BLOCKING) */
    bool has_fp8_products; /* of blocks: their operands are cast to floats of 8 bits */
    bool has_fp16_loss;    /* losses work on logits in two bytes, not in fp32 */
    bool has_fused_loss;   /* and in two kernels, where their gradients take their place
                              (--cross-entropy-fusion-impl te) */
    bool cuts_products; /* of blocks, to gather and scatter their parts beside them, under
                              sequence parallelism (--tp-comm-overlap) */
    bool steps_apart; /* gradients are summed behind all passes, and the optimizer step is
                         in front of them, on the first stage, too (Megatron-LM without
                         --overlap-grad-reduce) */
    /* Elements of what DeepSpeed takes in one piece: of gradients on their way, and, with
     * ZeRO-3, of parameters that are updated at once (reduce_bucket_size, sub_group_size);
     * 0: what it takes unless told otherwise. */
    int64_t reduce_bucket, sub_group;
};

/* What of a stage can be offloaded. */
enum mist_offload {
    MIST_OFFLOAD_WEIGHTS,
    MIST_OFFLOAD_GRADIENTS,
    MIST_OFFLOAD_OPTIMIZER,
    MIST_OFFLOAD_ACTIVATIONS,
    MIST_N_OFFLOADS
};

struct mist_stage_plan {
    int32_t n_layers;    /* blocks of the stage, >= 1 (embedding and head come on top) */
    int32_t n_nodes;     /* device mesh: nodes x devices of each = dp * cp * tp */
    int32_t n_devices;   /* devices used on each of the nodes */
    int32_t micro_batch; /* samples per data-parallel rank and micro-batch (b) */
    int32_t dp;          /* data-parallel size */
    int32_t tp;          /* tensor-parallel size */
    /* Context-parallel size, the same in all stages; 0: 1. Its ranks have equal parts of each
     * sequence's tokens, and gather keys and values (Llama Team 2024, section 3.3.2). */
    int32_t cp;
    /* ZeRO's level: ranks that hold the same parameters (mist_stage_n_replicas()) share out
     * their optimizer state from 1 on, their gradients from 2, their weights at 3. */
    int32_t zero;
    /* Tensor-parallel ranks hold the tokens between the split operators in equal parts
     * (Korthikanti et al. 2022); needs tp > 1. */
    bool is_sequence_parallel;
    /* The first n blocks of the stage, chunk by chunk, keep only their input. */
    int32_t n_checkpointed;
    /* The next n blocks are lean: they don't keep what a pass over memory makes again from
     * what they do keep, the outputs of norms and of gelu or SwiGLU. */
    int32_t n_lean;
    union { /* fractions 0..1 kept in host memory, by enum mist_offload */
        double offload_frac[MIST_N_OFFLOADS];
        struct {
            double offload_weights, offload_gradients, offload_optimizer,
                offload_activations;
        };
    };
    /* The optimizer state in host memory is updated there, by the host's processors:
     * gradients go to it and parameters come back, the state never moves. Needs
     * offload_optimizer > 0. */
    bool updates_on_host;
};

/* Context-parallel ranks, 1 or more; and all that hold the same parameters, which sum their
 * gradients and share out what ZeRO cuts: data-parallel ones times these. */
static inline int32_t mist_stage_cp(const struct mist_stage_plan *stage)
{
    return stage->cp > 1 ? stage->cp : 1;
}
static inline int32_t mist_stage_n_replicas(const struct mist_stage_plan *stage)
{
    return stage->dp * mist_stage_cp(stage);
}

/* The mesh of n devices: whole nodes where they fill some, else part of one. */
static inline void mist_stage_mesh(int32_t n, int32_t devices_per_node, int32_t *n_nodes,
                                   int32_t *n_devices)
{
    bool is_whole_nodes = n > devices_per_node && n % devices_per_node == 0;

    *n_nodes = is_whole_nodes ? n / devices_per_node : 1;
    *n_devices = is_whole_nodes ? devices_per_node : n;
}

/* What the tuner or the simulator said; all 0 when nothing was predicted yet. */
struct mist_prediction {
    double iteration_s;
    double error_s;           /* half width of the error bar of iteration_s */
    double extrapolated_frac; /* share of the time that rests on extrapolation */
    double probe_s; /* a probe (exec/runtime/probe.h) when the cluster was measured, on
                                 as many ranks with as many threads; 0: unknown */
    /* Of the time, what a rank computes alone (sim/replay/replay.h), where ranks share a
     * machine's processors and memory: there the machine's level matters less. Else 0. */
    double alone_frac;
    int64_t peak_bytes[MIST_MAX_STAGES]; /* device arena of a rank of each stage */
    double stable_s[MIST_MAX_STAGES];    /* t of each stage: a stable micro-batch */
    double extra_s[MIST_MAX_STAGES];     /* d of each stage; may be negative */
};

/* What an iteration takes on a machine at that level (exec/runtime/probe.h; 1: as when it was
 * profiled) over what was predicted: what is computed alone takes as long at any. */
static inline double mist_prediction_longer(const struct mist_prediction *predicted,
                                            double level)
{
    return 1 + (level - 1) * (1 - predicted->alone_frac);
}

/* Of the times that an automatic schedule is made for: half a minute. */
enum { MIST_PLAN_MAX_PASS_US = 30000000 };

struct mist_plan {
    struct mist_model model;
    struct mist_job job;
    char trace_set[256];         /* what it was tuned for; "" when unknown */
    uint64_t fingerprint;        /* of model, job and trace set; 0 when unknown */
    int64_t device_memory_bytes; /* limit the plan was made for; 0 = none */
    enum mist_pipeline_schedule pipeline;
    /* Model chunks per stage of the interleaved pipeline; 0: those of the schedule. */
    int32_t n_chunks;
    /* Gradients are summed over data-parallel ranks after every micro-batch, not once per
     * step. ZeRO-2 and ZeRO-3 imply it for a stage, but not for a tied weight that another
     * stage has, too: its gradient adds up whole. With it all ZeRO levels add in the same
     * order. */
    bool reduces_each_micro_batch;
    int32_t n_micro_batches; /* gradient accumulation steps G */
    int32_t n_stages;
    struct mist_stage_plan stages[MIST_MAX_STAGES];
    /* Of automatic schedules; else 0. */
    struct mist_pipeline_pass passes[MIST_MAX_STAGES];
    struct mist_prediction predicted;
};

/* Derived quantities; the plan must have passed mist_plan_check(). */

/* Compute threads of a rank where nothing else is asked for: none on a GPU, else what the
 * job says, else 1. */
int32_t mist_plan_n_threads(const struct mist_plan *plan);

int32_t mist_plan_n_ranks(const struct mist_plan *plan);

/* Tokens of a micro-batch that a rank of a stage has. */
int64_t mist_plan_rank_tokens(const struct mist_plan *plan, int32_t i_stage);

/* First rank of a stage; i_stage = n_stages gives the number of ranks. */
int32_t mist_plan_first_rank(const struct mist_plan *plan, int32_t i_stage);

/* Model chunks of every stage, >= 1. */
int32_t mist_plan_n_chunks(const struct mist_plan *plan);

/* Whether communication of the job's framework overlaps: as the job says, but in Megatron-LM's
 * pipelines only where they are interleaved, and not at all in DeepSpeed's. */
bool mist_plan_overlaps(const struct mist_plan *plan);

/* The stage that holds a virtual stage; the head's is that of the last one. */
int32_t mist_plan_stage_of_virtual(const struct mist_plan *plan, int32_t i_virtual);
int32_t mist_plan_head_stage(const struct mist_plan *plan);

/*
 * Blocks of a chunk: *n of them from *first on, numbered from 1. The model's blocks
 * follow the order of virtual stages, and each stage has as many in every chunk. The
 * embedding is in chunk 0 of stage 0, the head in the last chunk of its stage.
 * O(n_stages).
 */
void mist_plan_chunk_layers(const struct mist_plan *plan, int32_t i_stage,
                            int32_t i_chunk, int32_t *first, int32_t *n);

/* Stage of a rank, 0 <= rank < mist_plan_n_ranks(); its place there: rank_mesh.h.
 * O(n_stages). */
int32_t mist_plan_stage_of(const struct mist_plan *plan, int32_t rank);

/*
 * Fingerprint of what a plan was made for: every dimension of the model (not its name),
 * the job, and the fingerprint of the trace set (0: unknown). The same on every machine.
 */
uint64_t mist_plan_fingerprint(const struct mist_model *model, const struct mist_job *job,
                               uint64_t trace_set_fingerprint);

/*
 * Checks every relation between the knobs; the message names the stage, the value and the
 * bound. Checked: the model; layers of the stages sum to n_layers; global_batch =
 * n_micro_batches * micro_batch * dp in every stage; mesh = dp * cp * tp; cp is the same in
 * all stages, and twice as much divides seq_len; tp divides heads,
 * ffn, hidden and kv heads (but one kv head is copied to all ranks; the vocabulary need
 * not divide); sequence parallelism has tp > 1 and tp divides the tokens of a
 * micro-batch of a rank; the pipeline has the chunks that its schedule takes, two stages or more if
 * it has two chunks or more, chunks that divide every stage's layers and, interleaved,
 * stages that divide n_micro_batches; passes are there where the schedule is automatic, and
 * only there; where two stages hold a tied weight they have the
 * same dp and tp; zero is 0 to 3; n_checkpointed and n_lean are not negative and
 * n_layers at most together; fractions are within 0..1; an update on the host has optimizer state there; seq_len fits learned
 * positions; gradients are bf16 or fp16 only where the rest is; numbers of ranks and of tokens of
 * a micro-batch fit 31 bits; predictions are finite and not negative. Whether a cluster
 * has the devices and the memory is not the plan's to know.
 *
 * Returns MIST_OK, MIST_ERR_INPUT or (numbers that do not fit) MIST_ERR_RANGE.
 * O(n_stages).
 */
MIST_MUST_CHECK enum mist_status mist_plan_check(const struct mist_plan *plan,
                                                 struct mist_err *err);

/* Whether we can run it: MIST_OK, or MIST_ERR_INPUT where it is another framework's or in
 * fp16, or its model has what the executor does not compute. path: of the plan, for the
 * message. */
MIST_MUST_CHECK enum mist_status mist_plan_check_ours(const struct mist_plan *plan,
                                                      const char *path,
                                                      struct mist_err *err);

/* Where a plan is wrong, as plan.json calls it. */
struct mist_plan_fault {
    const char *section; /* "model", "job", "stages", "pipeline", "chunks", ... */
    int32_t i_stage;     /* of "stages"; -1: none */
    const char *key;     /* in the section; NULL: the section itself */
};

/* mist_plan_check() that also says where; fault is filled when the check fails. */
MIST_MUST_CHECK enum mist_status mist_plan_find_fault(const struct mist_plan *plan,
                                                      struct mist_plan_fault *fault,
                                                      struct mist_err *err);

/*
 * plan.json, strict: "format": 1 first, units in keys, unknown or duplicate keys are
 * errors with line and column. The model's dimensions are embedded, so a plan stands
 * alone.
 *
 *   {"format": 1,
 *    "model": {"name", "family", "n_layers", "hidden", "n_heads", "n_kv_heads",
 *              "head_dim", "ffn", "vocab", "max_seq", "has_bias", "ties_embeddings",
 *              "norm_epsilon", "rope_theta", "rope_scaling", "rope_factor",
 *              "rope_low_frequency_factor", "rope_high_frequency_factor",
 *              "rope_original_positions", "rotary_dim", "window", "exact_gelu",
 *              "unsupported"},
 *    "job": {"global_batch", "seq_len", "dtype", "gradient_dtype", "threads", "gpu",
 *            "framework", "attention", "recompute_attention", "no_dropout", "overlap",
 *            "launch_blocking", "fp8", "fp16_loss", "fused_loss", "tp_overlap", "steps_apart",
 *            "reduce_bucket", "sub_group"},
 *    "cluster": {"trace_set", "fingerprint": 16 hexadecimal digits,
 *                "device_memory_bytes"},
 *    "pipeline": "1f1b", "interleaved", "zb_h1", "zb_h2", "zb_v", "zb_1p" or "zb_2p",
 *    "chunks": chunks per stage of an interleaved pipeline,
 *    "reduces_each_micro_batch": true or false,
 *    "n_micro_batches": G,
 *    "stages": [{"layers", "mesh_nodes", "mesh_devices", "micro_batch", "dp", "tp", "cp",
 *                "zero": 0..3, "sequence_parallel", "checkpointed_layers",
 *                "lean_layers", "offload_weights_frac", "offload_gradients_frac",
 *                "offload_optimizer_frac", "offload_activations_frac",
 *                "update_on": "device" or "host"}, ...],
 *    "passes": [{"forward_us", "input_gradient_us", "weight_gradient_us", "transfer_us",
 *                "freed_frac"}, ...],
 *    "predicted": {"iteration_s", "error_s", "extrapolated_frac", "probe_s",
 *                  "alone_frac", "stages": [{"peak_bytes", "stable_s", "extra_s"}, ...]}}
 *
 * Every key is required but the model's behind "rope_theta" (left out when "default", 0,
 * false or empty), "predicted" (left out when all of it is 0), "threads" (left out when
 * 0), "gradient_dtype" (left out when fp32), "chunks" (left out when 0 or 1), "passes" (of
 * zb_1p and zb_2p alone, one for each stage), "probe_s" and "alone_frac" (left out when 0), "framework"
 * ("ours"), "attention" ("flash"), "gpu", "recompute_attention", "no_dropout", "overlap",
 * "launch_blocking", "fp8", "fp16_loss", "fused_loss", "tp_overlap", "steps_apart", "reduces_each_micro_batch" and "sequence_parallel" (left out when
 * false), "reduce_bucket" and "sub_group" (0), the stages' "cp" (1), "lean_layers" and four offload fractions (0) and "update_on" (left
 * out when "device"). What was saved loads as the same plan, bit by bit, but that one chunk
 * and one context-parallel rank load as 0; entries of arrays beyond n_stages load as 0. A relative trace_set is a path
 * from the file's folder; load makes it one from the current folder, save the reverse
 * (a preset, or what is not there, stays as it is).
 *
 * load   calls check; out is filled on MIST_OK, untouched otherwise. MIST_ERR_IO,
 *        MIST_ERR_MEMORY, MIST_ERR_INPUT or MIST_ERR_RANGE; err has path and, for the
 *        last two, line and column of what is to blame.
 * save   calls check; the file appears whole or not at all. MIST_ERR_USAGE: path exists
 *        and overwrites is false; MIST_ERR_IO; MIST_ERR_MEMORY; MIST_ERR_INPUT or
 *        MIST_ERR_RANGE: the plan is invalid.
 */
MIST_MUST_CHECK enum mist_status mist_plan_load(const char *path, struct mist_plan *out,
                                                struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_plan_save(const struct mist_plan *plan,
                                                const char *path, bool overwrites,
                                                struct mist_err *err);

#endif
