/*
 * The matrix products of linear layers, in cuBLASLt. See gemm.h.
 *
 * Every call tries the fused product first; what cuBLASLt refuses is marked, and the
 * product without its epilogue runs, which may have one itself, and then a kernel.
 */
#include "exec/cuda/gemm.h"

#include "exec/cuda/gemm_internal.h"

#include <stdio.h>
#include <stdlib.h>

const char *const mist_gemm_names[MIST_CUDA_N_GEMM_PRODUCTS + 1] = {
    "forward",        "forward_bias",        "forward_gelu",    "forward_bias_gelu",
    "backward_input", "backward_input_gelu", "backward_weight", "backward_weight_bias"};

#define T CUBLAS_OP_T
#define N CUBLAS_OP_N
const struct mist_gemm_kind mist_gemm_kinds[MIST_CUDA_N_GEMM_PRODUCTS] = {
    [MIST_CUDA_FORWARD] = {.op_a = T, .op_b = N, .epilogue = CUBLASLT_EPILOGUE_DEFAULT},
    [MIST_CUDA_FORWARD_BIAS] = {T, N, CUBLASLT_EPILOGUE_BIAS, "BIAS", MIST_CUDA_FORWARD,
                                .has_vector = true},
    [MIST_CUDA_FORWARD_GELU] = {T, N, CUBLASLT_EPILOGUE_GELU_AUX, "GELU_AUX",
                                MIST_CUDA_FORWARD, .has_aux = true},
    [MIST_CUDA_FORWARD_BIAS_GELU] = {T, N, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                     "GELU_AUX_BIAS", MIST_CUDA_FORWARD_BIAS, true, true},
    [MIST_CUDA_BACKWARD_INPUT] = {.op_a = N,
                                  .op_b = N,
                                  .epilogue = CUBLASLT_EPILOGUE_DEFAULT},
    [MIST_CUDA_BACKWARD_INPUT_GELU] = {N, N, CUBLASLT_EPILOGUE_DGELU, "DGELU",
                                       MIST_CUDA_BACKWARD_INPUT, .has_aux = true},
    [MIST_CUDA_BACKWARD_WEIGHT] = {.op_a = N,
                                   .op_b = T,
                                   .epilogue = CUBLASLT_EPILOGUE_DEFAULT},
    [MIST_CUDA_BACKWARD_WEIGHT_BIAS] = {N, T, CUBLASLT_EPILOGUE_BGRADB, "BGRADB",
                                        MIST_CUDA_BACKWARD_WEIGHT, .has_vector = true},
};
#undef T
#undef N

/* --------------------------------------------------------------------------- lifetime */

static enum mist_status open_library(struct mist_cuda_gemm *gemm, struct mist_err *err)
{
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE; /* sums have one order */
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

enum mist_status mist_cuda_gemm_open(int64_t workspace_bytes, struct mist_cuda_gemm **out,
                                     struct mist_err *err)
{
    struct mist_cuda_gemm *gemm = calloc(1, sizeof *gemm);
    enum mist_status status;

    *out = NULL;
    if (!gemm)
        return mist_err_set(err, MIST_ERR_MEMORY,
                            "no memory for the products of linear layers");
    mist_arena_init(&gemm->arena);
    gemm->workspace_bytes = workspace_bytes;
    status = open_library(gemm, err);
    if (status == MIST_OK)
        *out = gemm;
    else
        mist_cuda_gemm_close(gemm);
    return status;
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
    mist_arena_fini(&gemm->arena);
    free(gemm->choices);
    free(gemm);
}

enum mist_status mist_cuda_gemm_status(const struct mist_cuda_gemm *gemm,
                                       struct mist_err *err)
{
    if (gemm->status != MIST_OK && err)
        *err = gemm->err;
    return gemm->status;
}

void mist_gemm_fail(struct mist_cuda_gemm *gemm, const struct mist_gemm_key *key,
                    const char *what, cublasStatus_t status)
{
    if (gemm->status != MIST_OK)
        return;
    gemm->status = mist_err_set(
        &gemm->err, status == CUBLAS_STATUS_ALLOC_FAILED ? MIST_ERR_MEMORY : MIST_ERR_RUN,
        "cuBLASLt, %s of a %s linear layer, rows=%lld;n_in=%lld;n_out=%lld: %s: %s",
        mist_gemm_names[key->product], mist_dtype_words[key->dtype], (long long)key->rows,
        (long long)key->n_in, (long long)key->n_out, what, cublasLtGetStatusName(status));
}

/* ------------------------------------------------------------------- what was decided */

struct mist_cuda_gemm_counts mist_cuda_gemm_counts(const struct mist_cuda_gemm *gemm)
{
    struct mist_cuda_gemm_counts out = {.n_fallbacks = gemm->n_fallbacks};

    for (const struct mist_gemm_plan *plan = gemm->plans; plan; plan = plan->next) {
        bool is_plain = !mist_gemm_kinds[plan->key.product].epilogue_name;

        if (!plan->is_asked)
            continue;
        out.n_products++;
        out.n_plain += is_plain;
        out.n_fused += !is_plain && plan->way == MIST_GEMM_FUSED;
        out.n_refused += !is_plain && plan->way == MIST_GEMM_REFUSED;
        out.n_slower += plan->way == MIST_GEMM_SLOWER;
        out.n_timed += plan->is_timed;
    }
    return out;
}

static bool has_product(const struct mist_cuda_gemm *gemm, int product,
                        enum mist_gemm_way way)
{
    const struct mist_gemm_plan *plan = gemm->plans;

    while (plan && !(plan->is_asked && plan->key.product == product && plan->way == way))
        plan = plan->next;
    return plan;
}

void mist_cuda_gemm_describe(const struct mist_cuda_gemm *gemm, char *text, size_t size)
{
    struct mist_cuda_gemm_counts counts = mist_cuda_gemm_counts(gemm);
    long version = (long)cublasLtGetVersion();
    FILE *out = size > 0 ? fmemopen(text, size, "w") : NULL;
    const char *between = " (";

    if (size > 0)
        text[0] = text[size - 1] = '\0';
    if (!out)
        return;
    fprintf(out, "cuBLASLt %ld.%ld.%ld: %lld products, %lld plain, %lld fused",
            version / 10000, version / 100 % 100, version % 100,
            (long long)counts.n_products, (long long)counts.n_plain,
            (long long)counts.n_fused);
    if (counts.n_refused + counts.n_slower > 0)
        fprintf(out, ", %lld not fused", (long long)(counts.n_refused + counts.n_slower));
    for (int i = 0; i < 2 * MIST_CUDA_N_GEMM_PRODUCTS; i++) {
        const char *name = mist_gemm_kinds[i / 2].epilogue_name;

        if (!name ||
            !has_product(gemm, i / 2, i % 2 ? MIST_GEMM_SLOWER : MIST_GEMM_REFUSED))
            continue;
        fprintf(out, "%s%s %s", between, name, i % 2 ? "slower" : "refused");
        between = ", ";
    }
    fprintf(out, "%s; %lld chosen by time%s%s", *between == ',' ? ")" : "",
            (long long)counts.n_timed, *gemm->note ? "; " : "", gemm->note);
    (void)fclose(out); /* cut off where text ends */
}

/* -------------------------------------------------------------------------- launching */

static void *sums_in_workspace(const struct mist_cuda_gemm *gemm,
                               const struct mist_gemm_key *key,
                               const struct mist_cuda_linear *at)
{
    return (char *)at->workspace + gemm->workspace_bytes - mist_gemm_sums_bytes(key);
}

cublasStatus_t mist_gemm_launch(const struct mist_cuda_gemm *gemm,
                                const struct mist_gemm_plan *plan,
                                const struct mist_cuda_linear *at,
                                const struct mist_gemm_operands *x)
{
    int64_t sums_bytes = mist_gemm_sums_bytes(&plan->key);
    bool has_gradient = mist_gemm_kinds[plan->key.product].op_b == CUBLAS_OP_T;
    bool adds_sums = sums_bytes > 0 && !at->overwrites;
    bool adds = has_gradient ? !at->overwrites : at->residual != NULL;
    const void *c = !has_gradient && adds ? at->residual : x->d;
    const float one = 1, beta = adds ? 1 : 0;
    const void *vector = adds_sums ? sums_in_workspace(gemm, &plan->key, at) : x->vector;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    if (mist_gemm_kinds[plan->key.product].has_vector)
        status = cublasLtMatmulDescSetAttribute(
            plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector);
    if (status == CUBLAS_STATUS_SUCCESS && mist_gemm_kinds[plan->key.product].has_aux)
        status = cublasLtMatmulDescSetAttribute(plan->desc,
                                                CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                                &x->aux, sizeof x->aux);
    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            cublasLtMatmul(gemm->handle, plan->desc, &one, x->a, plan->a, x->b, plan->b,
                           &beta, c, plan->d, x->d, plan->d, &plan->algo, at->workspace,
                           (size_t)(gemm->workspace_bytes - sums_bytes), at->stream);
    if (status == CUBLAS_STATUS_SUCCESS && adds_sums)
        mist_cuda_add(at->stream, at->gradient_dtype, x->vector, x->vector, vector,
                      at->n_out);
    return status;
}

struct mist_gemm_operands mist_gemm_inner(enum mist_cuda_gemm_product product,
                                          const struct mist_gemm_operands *x)
{
    const struct mist_gemm_kind *inner = &mist_gemm_kinds[mist_gemm_kinds[product].inner];
    bool is_forward = inner->op_a == CUBLAS_OP_T;

    return (struct mist_gemm_operands){.a = x->a,
                                       .b = x->b,
                                       .d = x->aux && is_forward ? x->aux : x->d,
                                       .vector = inner->has_vector ? x->vector : NULL};
}

void mist_gemm_finish(enum mist_cuda_gemm_product product,
                      const struct mist_cuda_linear *at,
                      const struct mist_gemm_operands *x)
{
    switch (product) {
    case MIST_CUDA_FORWARD_BIAS:
        mist_cuda_add_bias(at->stream, at->dtype, x->d, x->vector, at->rows, at->n_out);
        break;
    case MIST_CUDA_FORWARD_GELU:
    case MIST_CUDA_FORWARD_BIAS_GELU:
        mist_cuda_activation_forward(at->stream, at->dtype, MIST_ACTIVATION_GELU, x->d,
                                     x->aux, at->rows * at->n_out);
        break;
    case MIST_CUDA_BACKWARD_INPUT_GELU:
        mist_cuda_activation_backward(at->stream, at->dtype, MIST_ACTIVATION_GELU, x->d,
                                      x->d, x->aux, at->rows * at->n_in);
        break;
    default:
        mist_cuda_column_sum(at->stream, at->dtype, at->gradient_dtype, x->vector, x->b,
                             at->rows, at->n_out, at->overwrites);
    }
}

/* See the head of gemm.h. */
static bool is_refusal(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED ||
           status == CUBLAS_STATUS_INVALID_VALUE || status == CUBLAS_STATUS_ARCH_MISMATCH;
}

static bool run(struct mist_cuda_gemm *gemm, const struct mist_cuda_linear *at,
                enum mist_cuda_gemm_product product, const struct mist_gemm_operands *x,
                bool is_asked)
{
    const struct mist_gemm_kind *kind = &mist_gemm_kinds[product];
    struct mist_gemm_key key = mist_gemm_key_make(at, product, x);
    struct mist_gemm_plan *plan =
        gemm->status == MIST_OK ? mist_gemm_plan_find(gemm, &key) : NULL;
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;

    if (!plan)
        return false;
    plan->is_asked |= is_asked;
    if (plan->way == MIST_GEMM_FUSED) {
        status = mist_gemm_launch(gemm, plan, at, x);
        if (status == CUBLAS_STATUS_SUCCESS)
            return true;
    }
    if (!kind->epilogue_name || !is_refusal(status)) {
        mist_gemm_fail(gemm, &key,
                       plan->way == MIST_GEMM_FUSED ? "the product" : "no algorithm",
                       status);
        return false;
    }
    if (plan->way == MIST_GEMM_FUSED)
        plan->way = MIST_GEMM_REFUSED;
    struct mist_gemm_operands inner = mist_gemm_inner(product, x);
    gemm->n_fallbacks += is_asked && plan->way == MIST_GEMM_REFUSED;
    if (!run(gemm, at, kind->inner, &inner, false))
        return false;
    mist_gemm_finish(product, at, x);
    return true;
}

/* ----------------------------------------------------------------------- the products */

void mist_cuda_gemm_expect(struct mist_cuda_gemm *gemm, const struct mist_cuda_linear *at,
                           enum mist_cuda_gemm_product product)
{
    struct mist_gemm_key key = mist_gemm_key_make(at, product, NULL);
    struct mist_gemm_plan *plan =
        gemm->status == MIST_OK ? mist_gemm_plan_find(gemm, &key) : NULL;

    if (plan)
        plan->is_asked = true;
}

void mist_cuda_gemm_forward(struct mist_cuda_gemm *gemm,
                            const struct mist_cuda_linear *at, void *y, void *before,
                            const void *x, const void *weight, const void *bias)
{
    bool is_apart = before && at->activation != MIST_ACTIVATION_GELU;
    bool is_fused = before && !is_apart;
    struct mist_gemm_operands operands = {weight, x, is_apart ? before : y, (void *)bias,
                                          is_fused ? before : NULL};
    bool is_done =
        run(gemm, at,
            is_fused ? (bias ? MIST_CUDA_FORWARD_BIAS_GELU : MIST_CUDA_FORWARD_GELU)
            : bias   ? MIST_CUDA_FORWARD_BIAS
                     : MIST_CUDA_FORWARD,
            &operands, true);

    if (is_done && is_apart)
        mist_cuda_activation_forward(at->stream, at->dtype, at->activation, y, before,
                                     at->rows * at->n_out);
}

void mist_cuda_gemm_backward_input(struct mist_cuda_gemm *gemm,
                                   const struct mist_cuda_linear *at, void *dx,
                                   const void *dy, const void *weight, const void *before)
{
    bool is_apart = before && at->activation != MIST_ACTIVATION_GELU;
    bool is_fused = before && !is_apart;
    struct mist_gemm_operands operands = {weight, dy, dx, NULL,
                                          is_fused ? (void *)before : NULL};
    bool is_done =
        run(gemm, at, is_fused ? MIST_CUDA_BACKWARD_INPUT_GELU : MIST_CUDA_BACKWARD_INPUT,
            &operands, true);

    if (is_done && is_apart)
        mist_cuda_activation_backward(at->stream, at->dtype, at->activation, dx, dx,
                                      before, at->rows * at->n_in);
}

void mist_cuda_gemm_backward_weight(struct mist_cuda_gemm *gemm,
                                    const struct mist_cuda_linear *at, void *dweight,
                                    void *dbias, const void *dy, const void *x)
{
    struct mist_gemm_operands operands = {x, dy, dweight, dbias, NULL};

    run(gemm, at, dbias ? MIST_CUDA_BACKWARD_WEIGHT_BIAS : MIST_CUDA_BACKWARD_WEIGHT,
        &operands, true);
}
