/*
 * The operators of a backend: what the runtime calls inside the body of a task.
 *
 * The runtime resolves a step of the catalogue to addresses; a backend turns it into
 * kernels. On the CPU a call computes and returns; the CUDA backend launches into the
 * stream that the task was submitted to, and results that the host needs (losses, sums)
 * go to tallies, which the runtime reads when the iteration's work is done.
 */
#ifndef MIST_EXEC_OPERATORS_H
#define MIST_EXEC_OPERATORS_H

#include "core/bf16.h"
#include "core/status.h"
#include "exec/operators/cpu_kernels.h" /* what kernels are told */
#include "sim/model/catalog.h"

#include <math.h> /* sqrtf */
#include <stdbool.h>
#include <stdint.h>

struct mist_device;
struct mist_paths; /* exec/operators/paths.h */

/* One step with its addresses; everything borrowed. */
struct mist_step_args {
    const struct mist_step *step;
    const struct mist_model *model;
    void *operands[MIST_MAX_OPERANDS]; /* by MIST_ARG_*; NULL where the step has none */
    void *params[2];                   /* weight, bias; NULL none */
    void *param_gradients[2];       /* the same of the gradients; NULL in forward programs
                                 without any */
    void *workspace;                /* step->workspace_bytes */
    void *backend;                  /* from open() */
    enum mist_dtype dtype;          /* of activations and params */
    enum mist_dtype gradient_dtype; /* of param_gradients: fp32, or bf16 with dtype bf16.
                           Sums are fp32 and rounded once where they are left */
    struct mist_chunks chunks;      /* of each sample that this rank has */
    int32_t cp, i_cp;               /* context-parallel ranks, and which one this is */
    int32_t tp, i_tp;               /* tensor-parallel ranks, and which one this is */
    int32_t n_threads;
    float loss_scale; /* 1 / tokens of the whole step */
    bool only_loss;   /* linear_cross_entropy: losses alone are written, no gradient */
    bool overwrites_gradients; /* param_gradients hold nothing yet: they are written; else
                                  added to, as always by an embedding */
};

/* Columns of this rank's slice of the vocabulary (dims[1] wide) that are not padding. */
static inline int64_t mist_step_n_valid(const struct mist_step_args *at)
{
    int64_t left = at->model->vocab - at->i_tp * at->step->dims[1];

    return left < 0 ? 0 : left < at->step->dims[1] ? left : at->step->dims[1];
}

/* Of a step on packed heads. */
static inline struct mist_cpu_attention mist_step_heads(const struct mist_step_args *at)
{
    const int64_t *dims = at->step->dims;
    struct mist_cpu_attention shape = {dims[0], dims[1], dims[2], dims[3], dims[4]};

    return shape;
}

/* Of a step on keys and values of context-parallel ranks. */
static inline struct mist_cpu_attention_part
mist_step_attention_part(const struct mist_step_args *at)
{
    return (struct mist_cpu_attention_part){mist_step_heads(at), at->cp, at->i_cp};
}

/* Which norm a step is. */
static inline enum mist_cpu_norm_kind mist_step_norm_kind(const struct mist_step_args *at)
{
    bool is_rms =
        at->step->op == MIST_OP_RMS_NORM || at->step->op == MIST_OP_RESIDUAL_RMS_NORM;
    bool has_offset = mist_family_traits(at->model->family)->has_offset_norms;

    if (has_offset)
        return is_rms ? MIST_CPU_NORM_OFFSET_RMS : MIST_CPU_NORM_OFFSET_LAYER;
    return is_rms ? MIST_CPU_NORM_RMS : MIST_CPU_NORM_LAYER;
}

/* What embeddings are multiplied by, in the format of the activations: 1 in most models. */
static inline float mist_step_embedding_scale(const struct mist_step_args *at)
{
    float root = sqrtf((float)at->model->hidden);

    if (!mist_family_traits(at->model->family)->scales_embeddings)
        return 1;
    return at->dtype == MIST_DTYPE_BF16 ? mist_bf16_value(mist_bf16_round(root)) : root;
}

/* How many of its rows a linear_cross_entropy takes at once from first on: those whose
 * logits the planned workspace holds. */
static inline int64_t mist_step_loss_rows(const struct mist_step_args *at, int64_t first)
{
    int64_t row_bytes = at->step->dims[2] * mist_dtype_weight_bytes(at->dtype);
    int64_t left = at->step->dims[0] - first;
    int64_t most = at->step->workspace_bytes / row_bytes;

    return left < most ? left : most;
}

/* AdamW hyper-parameters of one optimizer step (t counts from 1). */
struct mist_adamw_args {
    float lr, beta1, beta2, epsilon, weight_decay;
    float gradient_scale; /* multiplies every gradient first: clipping */
    int32_t t;
};

/* n elements to update: params p (fp32 or bf16), moments m and v, gradients g; bf16
 * params are written from their fp32 master, which fp32 ones do not have. */
struct mist_adamw_span {
    void *p;
    float *m, *v, *master;
    const void *g;
    enum mist_dtype gradient_dtype; /* of g; that of all spans of a call */
    int64_t n;
    bool decays; /* args->weight_decay applies */
};

/*
 * What is found out about a task's numbers: memory of the device (struct mist_device
 * hands it out), all zero when an iteration begins. The sum of squares does not depend on
 * the order of adding: whole numbers of a fixed grid (struct mist_cpu_sum); fine may
 * exceed its range.
 */
struct mist_tally {
    int64_t coarse, fine;   /* units of 2^-24 and 2^-60 */
    int64_t n_nonfinite;    /* elements that are not finite or too large */
    int64_t nonfinite_mark; /* 0: none; else MIST_TALLY_MARK less the first one's index */
    double loss_sum;
};
#define MIST_TALLY_MARK INT64_MAX

static inline int64_t mist_tally_first_nonfinite(const struct mist_tally *tally)
{
    return tally->nonfinite_mark == 0 ? -1 : MIST_TALLY_MARK - tally->nonfinite_mark;
}

/* Inline for kernels' sake, too: index is not finite. */
static inline void mist_tally_note_nonfinite(struct mist_tally *tally, int64_t index)
{
    int64_t mark = MIST_TALLY_MARK - index;

    if (mark > tally->nonfinite_mark)
        tally->nonfinite_mark = mark;
}

struct mist_operators {
    const char *name; /* "cpu", "cuda" */
    /* What the kernels of one rank need besides addresses; *out may stay NULL. For one
     * thread at a time, n_threads of the compute stream (0: a device of its own). device:
     * where they run, borrowed. MIST_OK, MIST_ERR_RUN (not on this machine) or
     * MIST_ERR_MEMORY. */
    enum mist_status (*open)(struct mist_device *device, enum mist_dtype dtype,
                             int32_t n_threads, void **out, struct mist_err *err);
    void (*close)(void *backend); /* NULL allowed */
    /* Makes what a step of this kind will need (plans, algorithms), so that running it
     * allocates and compiles nothing. Streams idle; args has a step, dtype, model and
     * backend, but no addresses. NULL: nothing to make. */
    enum mist_status (*prepare)(const struct mist_step_args *args, struct mist_err *err);
    /* Finds the fastest algorithms for all that was prepared, in a few seconds, and keeps
     * them for later processes, which take them over. Streams idle; memory of the device
     * is all zeros before, and again afterwards. NULL: nothing to choose. */
    enum mist_status (*tune)(void *backend, struct mist_err *err);
    /* Who does the work: fills all but collectives. n_threads as in open(). */
    void (*describe)(const void *backend, int32_t n_threads, struct mist_paths *out);
    void (*run_step)(const struct mist_step_args *args);
    /* The numbers of the calls of adamw() that follow, up to the next of these; so that
     * what was captured has those of its time. In the same stream; NULL: adamw() takes
     * them from its arguments. */
    void (*prepare_update)(void *backend, const struct mist_adamw_args *args);
    /* AdamW on all spans, at most MIST_MAX_PARAMS; args as in prepare_update() */
    void (*adamw)(void *backend, enum mist_dtype dtype,
                  const struct mist_adamw_span *spans, int32_t n_spans,
                  const struct mist_adamw_args *args, int32_t n_threads);
    /* x = the draws, in fp32 or bf16 */
    void (*draw)(void *backend, enum mist_dtype dtype, void *x,
                 const struct mist_draw *draw, int32_t n_threads);
    /* The next four take gradients in either format. sum += x */
    void (*add)(void *backend, enum mist_dtype dtype, void *sum, const void *x, int64_t n,
                int32_t n_threads);
    void (*zero)(void *backend, enum mist_dtype dtype, void *x, int64_t n,
                 int32_t n_threads);
    /* += into coarse, fine and the nonfinite fields, as if x began at element
     * index_offset */
    void (*sum_squares)(void *backend, enum mist_dtype dtype, const void *x, int64_t n,
                        int64_t index_offset, struct mist_tally *tally,
                        int32_t n_threads);
    /* notes the first element that is NaN or infinite; n_nonfinite becomes > 0 then */
    void (*find_nonfinite)(void *backend, enum mist_dtype dtype, const void *x, int64_t n,
                           struct mist_tally *tally, int32_t n_threads);
    /* loss_sum += the sum of losses[n] */
    void (*sum_losses)(void *backend, const float *losses, int64_t n,
                       struct mist_tally *tally);
};

/* In front of adamw(), whatever the operators. */
static inline void mist_operators_prepare_update(const struct mist_operators *operators,
                                                 void *backend,
                                                 const struct mist_adamw_args *args)
{
    if (operators->prepare_update)
        operators->prepare_update(backend, args);
}

/* The CPU's operators: cpu_kernels.h behind this table. */
extern const struct mist_operators mist_operators_cpu;

#endif
