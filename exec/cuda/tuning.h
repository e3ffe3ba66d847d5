/*
 * Which products steps have, and where the algorithms are kept that were found fastest
 * for them: a file of the user's cache folder, which every process reads and adds to
 * (gemm_file.c has its format).
 *
 * MIST_CUDA_ALGORITHMS names another file; empty: none is read or written, nothing is
 * timed, and cuBLASLt's own first choices do. Other algorithms give other last bits.
 */
#ifndef MIST_EXEC_CUDA_TUNING_H
#define MIST_EXEC_CUDA_TUNING_H

#include "exec/cuda/gemm.h"
#include "exec/operators/operators.h"

#include <stdbool.h>

struct mist_cuda_device;

/* $XDG_CACHE_HOME/mist/cublaslt.csv into path; false: there is no such place, or none is
 * wanted. */
bool mist_cuda_tuning_path(char *path, size_t path_bytes);

/* Announces the products of a step, at its shape. */
void mist_cuda_tuning_expect(struct mist_cuda_gemm *gemm,
                             const struct mist_step_args *args,
                             const struct mist_cuda_linear *at);

/* mist_cuda_gemm_tune() with that file, on the device's arena, whose contents
 * are lost. */
MIST_MUST_CHECK enum mist_status mist_cuda_tuning_run(struct mist_cuda_gemm *gemm,
                                                      struct mist_cuda_device *device,
                                                      struct mist_err *err);

#endif
