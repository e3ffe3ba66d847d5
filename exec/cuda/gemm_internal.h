/* What the sources of the products share: the context and its plans. Private to
 * exec/cuda/gemm*.c. */
#ifndef MIST_EXEC_CUDA_GEMM_INTERNAL_H
#define MIST_EXEC_CUDA_GEMM_INTERNAL_H

#include "exec/cuda/gemm.h"

#include <cublasLt.h>
#include <stddef.h>

/* What is fused into a product. */
enum mist_gemm_epilogue {
    MIST_GEMM_PLAIN,
    MIST_GEMM_BIAS,      /* forward: + vector */
    MIST_GEMM_GELU,      /* forward: aux = product, then GELU */
    MIST_GEMM_GELU_BIAS, /* forward: aux = product + vector, then GELU */
    MIST_GEMM_DGELU,     /* backward_input: times gelu'(aux) */
    MIST_GEMM_SUM,       /* backward_weight: vector = column sums of dy */
    MIST_N_GEMM_EPILOGUES
};

/* Two products with the same key have one plan. No padding: compared as bytes. */
struct mist_gemm_key {
    int32_t kind, dtype, gradient_dtype, epilogue;
    int32_t unused;     /* 0 */
    int32_t alignments; /* log2 of the bytes, at most 4, of a, b, d, vector, aux: 3 bits
                           each, a lowest */
    int64_t rows, n_in, n_out;
};

/* A product's operands as cuBLASLt sees them: d = op(a) op(b). */
struct mist_gemm_operands {
    const void *a, *b;
    void *d, *vector, *aux; /* vector, aux: NULL where the epilogue has none */
};

struct mist_gemm_plan {
    struct mist_gemm_key key;
    cublasLtMatmulDesc_t desc; /* NULL: known from the file, not used yet */
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
    bool is_usable; /* false: no algorithm, or slower than doing without the fusion */
    bool is_tuned;  /* timed, in this run or the one that wrote the file */
};

struct mist_cuda_gemm {
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    int64_t workspace_bytes;
    int32_t n_processors;
    char *path, *device_name; /* owned; NULL without a file */
    struct mist_gemm_plan *plans;
    size_t n_plans, plans_capacity;
    struct mist_cuda_gemm_counts counts;
    enum mist_status status; /* of the first failure */
    struct mist_err err;
};

/* Rows (columns of the vector, too), columns and inner length of op(a) op(b). */
struct mist_gemm_extent {
    int64_t m, n, k;
};

static inline struct mist_gemm_extent mist_gemm_extent(const struct mist_gemm_key *key)
{
    switch (key->kind) {
    case MIST_CUDA_GEMM_FORWARD:
        return (struct mist_gemm_extent){key->n_out, key->rows, key->n_in};
    case MIST_CUDA_GEMM_BACKWARD_INPUT:
        return (struct mist_gemm_extent){key->n_in, key->rows, key->n_out};
    default:
        return (struct mist_gemm_extent){key->n_in, key->n_out, key->rows};
    }
}

/* Bytes at the workspace's end for column sums; 0 where the epilogue has none. */
int64_t mist_gemm_vector_bytes(const struct mist_gemm_key *key);

/* The key of operands at these addresses. */
struct mist_gemm_key mist_gemm_key_make(const struct mist_cuda_linear *at,
                                        enum mist_cuda_gemm_kind kind,
                                        enum mist_gemm_epilogue epilogue,
                                        const struct mist_gemm_operands *x);

/*
 * The plan of a key, made if need be; NULL: it failed, and gemm->status says so. Valid
 * until the next call. gemm_cache.c
 */
struct mist_gemm_plan *mist_gemm_plan_find(struct mist_cuda_gemm *gemm,
                                           const struct mist_gemm_key *key);

/* The heuristics' first algorithms, at most MIST_CUDA_GEMM_MAX_CANDIDATES; 0: none. */
int mist_gemm_plan_candidates(struct mist_cuda_gemm *gemm,
                              const struct mist_gemm_plan *plan, int n_wanted,
                              cublasLtMatmulHeuristicResult_t *out);

/* An entry of a file: appends a plan without descriptors; false: out of memory. */
struct mist_gemm_plan *mist_gemm_plan_append(struct mist_cuda_gemm *gemm,
                                             const struct mist_gemm_key *key);
void mist_gemm_plans_fini(struct mist_cuda_gemm *gemm);

/* Runs a usable plan's product. False: it failed. gemm.c */
bool mist_gemm_run(struct mist_cuda_gemm *gemm, struct mist_gemm_plan *plan,
                   const struct mist_cuda_linear *at, const struct mist_gemm_operands *x);

/* Keeps the first failure: what a call of cuBLASLt said about a product. */
void mist_gemm_fail(struct mist_cuda_gemm *gemm, const struct mist_gemm_key *key,
                    const char *what, cublasStatus_t status);

/* Reads gemm->path into the plans, if it is there and of this GPU. gemm_file.c */
MIST_MUST_CHECK enum mist_status mist_gemm_file_load(struct mist_cuda_gemm *gemm,
                                                     struct mist_err *err);

#endif
