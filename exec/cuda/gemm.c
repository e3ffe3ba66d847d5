/*
 * The matrix products of linear layers, in cuBLASLt. See gemm.h.
 *
 * Every function asks for the fused product first; where cuBLASLt has no algorithm for it
 * (the plan is not usable), it runs a simpler product and a kernel.
 */
#include "exec/cuda/gemm.h"

#include "exec/cuda/gemm_internal.h"

#include <stdlib.h>
#include <string.h>

static char *copy_text(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = malloc(n);

    return copy ? memcpy(copy, text, n) : NULL;
}

static enum mist_status open_library(struct mist_cuda_gemm *gemm, bool splits_sums,
                                     struct mist_err *err)
{
    /* Of the schemes, this one alone keeps partial sums in fp32. */
    uint32_t schemes = splits_sums ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                   : CUBLASLT_REDUCTION_SCHEME_NONE;
    cublasStatus_t status = cublasLtCreate(&gemm->handle);

    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceCreate(&gemm->preference);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(
            gemm->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
            sizeof schemes);
    if (status == CUBLAS_STATUS_SUCCESS)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_RUN, "cuBLASLt can't be used: %s",
                        cublasLtGetStatusName(status));
}

enum mist_status mist_cuda_gemm_open(const struct mist_cuda_gemm_config *config,
                                     struct mist_cuda_gemm **out, struct mist_err *err)
{
    struct mist_cuda_gemm *gemm = calloc(1, sizeof *gemm);
    enum mist_status status = MIST_ERR_MEMORY;

    *out = NULL;
    if (!gemm)
        goto out;
    gemm->workspace_bytes = config->workspace_bytes;
    gemm->n_processors = config->n_processors;
    if (config->path) {
        gemm->path = copy_text(config->path);
        gemm->device_name = copy_text(config->device_name);
        if (!gemm->path || !gemm->device_name)
            goto out;
    }
    status = open_library(gemm, config->splits_sums, err);
    if (status == MIST_OK && gemm->path)
        status = mist_gemm_file_load(gemm, err);
out:
    if (status == MIST_OK) {
        *out = gemm;
        return status;
    }
    mist_cuda_gemm_close(gemm);
    return status == MIST_ERR_MEMORY
               ? mist_err_set(err, status, "no memory for the products of linear layers")
               : status;
}

void mist_cuda_gemm_close(struct mist_cuda_gemm *gemm)
{
    if (!gemm)
        return;
    mist_gemm_plans_fini(gemm);
    if (gemm->preference)
        cublasLtMatmulPreferenceDestroy(gemm->preference);
    if (gemm->handle)
        cublasLtDestroy(gemm->handle);
    free(gemm->path);
    free(gemm->device_name);
    free(gemm);
}

enum mist_status mist_cuda_gemm_status(const struct mist_cuda_gemm *gemm,
                                       struct mist_err *err)
{
    if (gemm->status != MIST_OK && err)
        *err = gemm->err;
    return gemm->status;
}

struct mist_cuda_gemm_counts mist_cuda_gemm_counts(const struct mist_cuda_gemm *gemm)
{
    return gemm->counts;
}

void mist_gemm_fail(struct mist_cuda_gemm *gemm, const struct mist_gemm_key *key,
                    const char *what, cublasStatus_t status)
{
    static const char *const kinds[] = {"forward", "backward_input", "backward_weight"};

    if (gemm->status != MIST_OK)
        return;
    gemm->status = mist_err_set(
        &gemm->err, status == CUBLAS_STATUS_ALLOC_FAILED ? MIST_ERR_MEMORY : MIST_ERR_RUN,
        "cuBLASLt, %s of a %s linear layer, rows=%lld;n_in=%lld;n_out=%lld: %s: %s",
        kinds[key->kind], mist_dtype_name((enum mist_dtype)key->dtype),
        (long long)key->rows, (long long)key->n_in, (long long)key->n_out, what,
        cublasLtGetStatusName(status));
}

bool mist_gemm_run(struct mist_cuda_gemm *gemm, struct mist_gemm_plan *plan,
                   const struct mist_cuda_linear *at, const struct mist_gemm_operands *x)
{
    bool adds = plan->key.kind == MIST_CUDA_GEMM_BACKWARD_WEIGHT && !at->overwrites;
    const float one = 1, beta = adds ? 1 : 0;
    int64_t bytes = gemm->workspace_bytes - mist_gemm_vector_bytes(&plan->key);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    if (x->vector)
        status = cublasLtMatmulDescSetAttribute(
            plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &x->vector, sizeof x->vector);
    if (status == CUBLAS_STATUS_SUCCESS && x->aux)
        status = cublasLtMatmulDescSetAttribute(plan->desc,
                                                CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                                &x->aux, sizeof x->aux);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmul(gemm->handle, plan->desc, &one, x->a, plan->a, x->b,
                                plan->b, &beta, x->d, plan->d, x->d, plan->d, &plan->algo,
                                at->workspace, (size_t)bytes, at->stream);
    if (status != CUBLAS_STATUS_SUCCESS)
        mist_gemm_fail(gemm, &plan->key, "the product", status);
    return status == CUBLAS_STATUS_SUCCESS;
}

/* False: there is no such algorithm (gemm->status is MIST_OK), or it failed. */
static bool try_product(struct mist_cuda_gemm *gemm, const struct mist_cuda_linear *at,
                        enum mist_cuda_gemm_kind kind, enum mist_gemm_epilogue epilogue,
                        const struct mist_gemm_operands *x)
{
    struct mist_gemm_key key = mist_gemm_key_make(at, kind, epilogue, x);
    struct mist_gemm_plan *plan;

    if (gemm->status != MIST_OK)
        return false;
    plan = mist_gemm_plan_find(gemm, &key);
    return plan && plan->is_usable && mist_gemm_run(gemm, plan, at, x);
}

static bool run_product(struct mist_cuda_gemm *gemm, const struct mist_cuda_linear *at,
                        enum mist_cuda_gemm_kind kind, enum mist_gemm_epilogue epilogue,
                        const struct mist_gemm_operands *x)
{
    struct mist_gemm_key key = mist_gemm_key_make(at, kind, epilogue, x);

    if (try_product(gemm, at, kind, epilogue, x))
        return true;
    mist_gemm_fail(gemm, &key, "no algorithm", CUBLAS_STATUS_NOT_SUPPORTED);
    return false;
}

/* Whether to go on without the fused product, and counts that. */
static bool falls_back(struct mist_cuda_gemm *gemm)
{
    if (gemm->status != MIST_OK)
        return false;
    gemm->counts.n_fallbacks++;
    return true;
}

/* n_out numbers at the workspace's end, for column sums. */
static void *sums_in_workspace(const struct mist_cuda_gemm *gemm,
                               const struct mist_cuda_linear *at)
{
    struct mist_gemm_key key =
        mist_gemm_key_make(at, MIST_CUDA_GEMM_BACKWARD_WEIGHT, MIST_GEMM_SUM,
                           &(struct mist_gemm_operands){0});
    int64_t bytes = mist_gemm_vector_bytes(&key);

    if (bytes > gemm->workspace_bytes)
        return at->workspace; /* the plan will not be usable */
    return (char *)at->workspace + gemm->workspace_bytes - bytes;
}

void mist_cuda_gemm_forward(struct mist_cuda_gemm *gemm,
                            const struct mist_cuda_linear *at, void *y, const void *x,
                            const void *weight, const void *bias)
{
    struct mist_gemm_operands operands = {weight, x, y, (void *)bias, NULL};

    run_product(gemm, at, MIST_CUDA_GEMM_FORWARD, bias ? MIST_GEMM_BIAS : MIST_GEMM_PLAIN,
                &operands);
}

void mist_cuda_gemm_forward_gelu(struct mist_cuda_gemm *gemm,
                                 const struct mist_cuda_linear *at, void *y, void *before,
                                 const void *x, const void *weight, const void *bias)
{
    struct mist_gemm_operands operands = {weight, x, y, (void *)bias, before};

    if (try_product(gemm, at, MIST_CUDA_GEMM_FORWARD,
                    bias ? MIST_GEMM_GELU_BIAS : MIST_GEMM_GELU, &operands) ||
        !falls_back(gemm))
        return;
    mist_cuda_gemm_forward(gemm, at, before, x, weight, bias);
    if (gemm->status == MIST_OK)
        mist_cuda_gelu_forward(at->stream, at->dtype, y, before, at->rows * at->n_out);
}

void mist_cuda_gemm_backward_input(struct mist_cuda_gemm *gemm,
                                   const struct mist_cuda_linear *at, void *dx,
                                   const void *dy, const void *weight)
{
    struct mist_gemm_operands operands = {weight, dy, dx, NULL, NULL};

    run_product(gemm, at, MIST_CUDA_GEMM_BACKWARD_INPUT, MIST_GEMM_PLAIN, &operands);
}

void mist_cuda_gemm_backward_input_gelu(struct mist_cuda_gemm *gemm,
                                        const struct mist_cuda_linear *at, void *dx,
                                        const void *dy, const void *weight,
                                        const void *before)
{
    struct mist_gemm_operands operands = {weight, dy, dx, NULL, (void *)before};

    if (try_product(gemm, at, MIST_CUDA_GEMM_BACKWARD_INPUT, MIST_GEMM_DGELU,
                    &operands) ||
        !falls_back(gemm))
        return;
    mist_cuda_gemm_backward_input(gemm, at, dx, dy, weight);
    if (gemm->status == MIST_OK)
        mist_cuda_gelu_backward(at->stream, at->dtype, dx, dx, before,
                                at->rows * at->n_in);
}

void mist_cuda_gemm_backward_weight(struct mist_cuda_gemm *gemm,
                                    const struct mist_cuda_linear *at, void *dweight,
                                    void *dbias, const void *dy, const void *x)
{
    enum mist_cuda_gemm_kind kind = MIST_CUDA_GEMM_BACKWARD_WEIGHT;
    struct mist_gemm_operands operands = {x, dy, dweight, NULL, NULL};

    if (dbias) {
        struct mist_gemm_operands with_sums = operands;

        with_sums.vector = at->overwrites ? dbias : sums_in_workspace(gemm, at);
        if (try_product(gemm, at, kind, MIST_GEMM_SUM, &with_sums)) {
            if (!at->overwrites)
                mist_cuda_add(at->stream, at->gradient_dtype, dbias, dbias,
                              with_sums.vector, at->n_out);
            return;
        }
        if (!falls_back(gemm))
            return;
    }
    if (run_product(gemm, at, kind, MIST_GEMM_PLAIN, &operands) && dbias)
        mist_cuda_column_sum(at->stream, at->dtype, at->gradient_dtype, dbias, dy,
                             at->rows, at->n_out, at->overwrites);
}
