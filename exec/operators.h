/*
 * The operators of a backend: what the runtime calls inside the body of a task.
 *
 * The runtime resolves a step of the catalogue to addresses; a backend turns it into
 * kernels. On the CPU a call computes and returns; a CUDA backend launches into the
 * stream that the task was submitted to.
 */
#ifndef MIST_EXEC_OPERATORS_H
#define MIST_EXEC_OPERATORS_H

#include "sim/catalog.h"

#include <stdint.h>

/* One step with its addresses; everything borrowed. */
struct mist_step_args {
    const struct mist_concrete_step *step;
    const struct mist_model *model;
    void *operands[MIST_MAX_OPERANDS]; /* by MIST_ARG_*; NULL where the step has none */
    void *params[2];                   /* weight, bias; NULL none */
    float *param_gradients[2]; /* the same of the gradients; NULL in forward programs
                                  without any */
    void *workspace;           /* step->workspace_bytes */
    void *backend;             /* from open() */
    enum mist_dtype dtype;     /* of activations and params */
    int32_t seq;               /* tokens per sample */
    int32_t tp, i_tp;          /* tensor-parallel ranks, and which one this is */
    int32_t n_threads;
    float loss_scale; /* 1 / tokens of the whole step */
};

/* AdamW hyper-parameters of one optimizer step (t counts from 1). */
struct mist_adamw_args {
    float lr, beta1, beta2, epsilon, weight_decay;
    float gradient_scale; /* multiplies every gradient first: clipping */
    int32_t t;
};

/* A sum of squares that does not depend on the order of adding: whole numbers of a fixed
 * grid (exec/cpu_kernels.h). */
struct mist_square_sum {
    int64_t coarse, fine;    /* units of 2^-24 and 2^-60 */
    int64_t n_nonfinite;     /* elements that are not finite or too large */
    int64_t first_nonfinite; /* index of the first of them; -1 none */
};

struct mist_operators {
    const char *name; /* "cpu" */
    /* What the kernels of one rank need besides addresses; *out may stay NULL. For one
     * thread at a time, n_threads of the compute stream. MIST_OK, MIST_ERR_RUN (not on
     * this machine) or MIST_ERR_MEMORY. */
    enum mist_status (*open)(enum mist_dtype dtype, int32_t n_threads, void **out,
                             struct mist_err *err);
    void (*close)(void *backend); /* NULL allowed */
    void (*run_step)(const struct mist_step_args *args);
    /* AdamW on n elements: params p, moments m and v, gradients g; bf16 params are
     * written from their fp32 master, which fp32 ones do not have */
    void (*adamw)(enum mist_dtype dtype, void *p, float *m, float *v, float *master,
                  const float *g, int64_t n, const struct mist_adamw_args *args,
                  int32_t n_threads);
    void (*add)(float *sum, const float *x, int64_t n, int32_t n_threads); /* sum += x */
    void (*sum_squares)(const float *x, int64_t n, struct mist_square_sum *out,
                        int32_t n_threads);
    double (*square_sum_value)(int64_t coarse, int64_t fine);
    /* index of the first element that is NaN or infinite; -1 none */
    int64_t (*find_nonfinite)(const float *x, int64_t n, int32_t n_threads);
    void (*zero)(float *x, int64_t n, int32_t n_threads);
    void (*copy)(void *to, const void *from, int64_t size_bytes);
    /* fills the RoPE table [seq, head_dim] */
    void (*fill_rope)(float *table, int32_t seq, int32_t head_dim, double theta);
};

/* The CPU's operators: cpu_kernels.h behind this table. */
extern const struct mist_operators mist_operators_cpu;

#endif
