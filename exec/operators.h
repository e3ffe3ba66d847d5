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
    float *params[2];                  /* weight, bias; NULL none */
    float *param_gradients[2]; /* the same of the gradients; NULL in forward programs
                                  without any */
    void *workspace;           /* step->workspace_bytes */
    int32_t seq;               /* tokens per sample */
    int32_t n_threads;
    float loss_scale; /* 1 / tokens of the whole step */
};

/* AdamW hyper-parameters of one optimizer step (t counts from 1). */
struct mist_adamw_args {
    float lr, beta1, beta2, epsilon, weight_decay;
    int32_t t;
};

struct mist_operators {
    const char *name; /* "cpu" */
    void (*run_step)(const struct mist_step_args *args);
    /* AdamW on n elements: params p, moments m and v, gradients g */
    void (*adamw)(float *p, float *m, float *v, const float *g, int64_t n,
                  const struct mist_adamw_args *args, int32_t n_threads);
    void (*zero)(float *x, int64_t n, int32_t n_threads);
    void (*copy)(void *to, const void *from, int64_t size_bytes);
    /* fills the RoPE table [seq, head_dim] */
    void (*fill_rope)(float *table, int32_t seq, int32_t head_dim, double theta);
};

/* The CPU's operators: cpu_kernels.h behind this table. */
extern const struct mist_operators mist_operators_cpu;

#endif
