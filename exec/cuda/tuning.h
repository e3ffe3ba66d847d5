/*
 * Where the algorithms are kept that were found fastest for a GPU: a file of the user's
 * cache folder, read by every run and written by mist-profile, which times them.
 *
 * MIST_CUDA_ALGORITHMS names another file; empty: none is read or written, and cuBLASLt's
 * own first choices do. Other algorithms give other last bits.
 */
#ifndef MIST_EXEC_CUDA_TUNING_H
#define MIST_EXEC_CUDA_TUNING_H

#include "exec/cuda/gemm.h"
#include "exec/operators.h"

#include <stdbool.h>

/* $XDG_CACHE_HOME/mist/cublaslt-nvidia-h200.json, of the GPU's name, into path; false:
 * there is no such place, or none is wanted. */
bool mist_cuda_tuning_path(const char *device_name, char *path, size_t path_bytes);

/* The folder of a path, made if it is not there. */
MIST_MUST_CHECK enum mist_status mist_cuda_tuning_make_folder(const char *path,
                                                              struct mist_err *err);

/*
 * The fastest algorithms of a step's products (linear layers and the loss; those with
 * GELU take cuBLASLt's first choice), timed on memory of its own that is allocated and
 * freed again. MIST_OK, MIST_ERR_MEMORY or MIST_ERR_RUN.
 */
MIST_MUST_CHECK enum mist_status mist_cuda_tuning_run(struct mist_cuda_gemm *gemm,
                                                      const struct mist_step_args *args,
                                                      const struct mist_cuda_linear *at,
                                                      struct mist_err *err);

#endif
