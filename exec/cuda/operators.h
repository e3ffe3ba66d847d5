/*
 * The CUDA backend's operators: a step of the catalogue becomes launches into the stream
 * of the running task. See exec/operators.h.
 *
 * Products of linear layers are cuBLASLt's (gemm.h); attention in bf16 is cuDNN's where
 * it is there and has a plan for the shape within the step's workspace
 * (attention_cudnn.h); all else is a kernel of kernels.h. prepare() makes the plans of
 * attention and products, tune() finds the fastest products (tuning.h).
 *
 * What fails, fails the device; the message names the operator and its shape.
 */
#ifndef MIST_EXEC_CUDA_OPERATORS_H
#define MIST_EXEC_CUDA_OPERATORS_H

#include "exec/operators.h"

#include <stdbool.h>
#include <stdint.h>

struct mist_cuda_device;
struct mist_cuda_gemm;
struct mist_cuda_sdpa;

/* Attention of a shape that was met, and who computes it. */
struct mist_cuda_attention_choice {
    int64_t dims[5]; /* of the step: b, s, heads, kv_heads, head_dim */
    int64_t workspace_bytes;
    bool is_backward;
    bool is_cudnn;
};
enum { MIST_CUDA_MAX_ATTENTION_CHOICES = 512 };

/* What open() of mist_operators_cuda gives. Whoever has it may change the next two before
 * the first step. */
struct mist_cuda_operators {
    bool prefers_own_attention; /* never cuDNN */
    bool allows_atomics; /* the device's; cuDNN's faster backward, whose last bits change
                            from run to run */

    /* private to operators.c */
    struct mist_cuda_device *device; /* borrowed */
    struct mist_cuda_gemm *gemm;
    struct mist_cuda_sdpa *sdpa; /* NULL: no cuDNN */
    int32_t n_choices;
    struct mist_cuda_attention_choice choices[MIST_CUDA_MAX_ATTENTION_CHOICES];
};

extern const struct mist_operators mist_operators_cuda;

#endif
