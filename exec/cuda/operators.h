/*
 * The CUDA backend's operators: a step of the catalogue becomes launches into the stream
 * of the running task. See exec/operators/operators.h.
 *
 * Products of linear layers are cuBLASLt's (gemm.h); attention in bf16 is cuDNN's
 * (attention_cudnn.h) unless the device was opened for the own kernels; all else is a
 * kernel of kernels.h. prepare() makes the plans of attention and products, and fails
 * where cuDNN has none within the step's workspace; tune() finds the fastest products
 * (tuning.h).
 *
 * What fails, fails the device; the message names the operator and its shape.
 */
#ifndef MIST_EXEC_CUDA_OPERATORS_H
#define MIST_EXEC_CUDA_OPERATORS_H

#include "exec/operators/operators.h"

extern const struct mist_operators mist_operators_cuda;

#endif
