/*
 * Plans of products: from a key to cuBLASLt's descriptors and an algorithm. See gemm.h.
 *
 * A run has a few dozen different products, so they are a list that is searched from its
 * beginning. The pointers that cuBLASLt asks for only to learn their alignment are made
 * up from the key, so that a plan fits every call with that key.
 */
#include "exec/cuda/gemm_internal.h"

#include <string.h>

struct mist_gemm_key mist_gemm_key_make(const struct mist_cuda_linear *at,
                                        enum mist_cuda_gemm_product product,
                                        const struct mist_gemm_operands *x)
{
    const struct mist_gemm_kind *kind = &mist_gemm_kinds[product];
    bool has_gradient = kind->op_b == CUBLAS_OP_T;
    uintptr_t bits = MIST_GEMM_ALIGNMENT;

    if (x)
        bits |= (uintptr_t)x->a | (uintptr_t)x->b | (uintptr_t)x->d | (uintptr_t)x->aux |
                (uintptr_t)at->residual;
    if (x && (!has_gradient || at->overwrites)) /* else in the workspace */
        bits |= (uintptr_t)x->vector;
    return (struct mist_gemm_key){.product = product,
                                  .dtype = at->dtype,
                                  .gradient_dtype =
                                      has_gradient ? at->gradient_dtype : MIST_DTYPE_FP32,
                                  .rows = at->rows,
                                  .n_in = at->n_in,
                                  .n_out = at->n_out,
                                  .alignment_bytes = (int64_t)(bits & (~bits + 1))};
}

int64_t mist_gemm_sums_bytes(const struct mist_gemm_key *key)
{
    return key->product == MIST_CUDA_BACKWARD_WEIGHT_BIAS
               ? mist_align_up(key->n_out * (int64_t)sizeof(float), 256)
               : 0;
}

/* ------------------------------------------------------------------------ descriptors */

static bool is_weight(const struct mist_gemm_key *key)
{
    return mist_gemm_kinds[key->product].op_b == CUBLAS_OP_T;
}

static bool is_forward(const struct mist_gemm_key *key)
{
    return mist_gemm_kinds[key->product].op_a == CUBLAS_OP_T;
}

static cudaDataType_t type_of(int64_t dtype)
{
    return dtype == MIST_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* Of d. */
static cudaDataType_t result_type(const struct mist_gemm_key *key)
{
    return type_of(is_weight(key) ? key->gradient_dtype : key->dtype);
}

static int64_t result_rows(const struct mist_gemm_key *key)
{
    return is_forward(key) ? key->n_out : key->n_in;
}

static cublasStatus_t describe_product(struct mist_gemm_plan *plan)
{
    const struct mist_gemm_kind *kind = &mist_gemm_kinds[plan->key.product];
    const void *aligned = (const void *)(uintptr_t)plan->key.alignment_bytes;
    int64_t aux_ld = result_rows(&plan->key);
    const struct {
        bool is_set;
        cublasLtMatmulDescAttributes_t name;
        const void *value;
        size_t bytes;
    } attributes[] = {
        {true, CUBLASLT_MATMUL_DESC_TRANSA, &kind->op_a, sizeof kind->op_a},
        {true, CUBLASLT_MATMUL_DESC_TRANSB, &kind->op_b, sizeof kind->op_b},
        {true, CUBLASLT_MATMUL_DESC_EPILOGUE, &kind->epilogue, sizeof kind->epilogue},
        {kind->has_vector, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &aligned, sizeof aligned},
        {kind->has_aux, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aligned,
         sizeof aligned},
        {kind->has_aux, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld, sizeof aux_ld},
    };
    cublasStatus_t status =
        cublasLtMatmulDescCreate(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);

    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (status == CUBLAS_STATUS_SUCCESS && attributes[i].is_set)
            status = cublasLtMatmulDescSetAttribute(
                plan->desc, attributes[i].name, attributes[i].value, attributes[i].bytes);
    return status;
}

/* Rows, columns and leading dimension of what lies in memory, as columns. */
static cublasStatus_t describe_operands(struct mist_gemm_plan *plan)
{
    const struct mist_gemm_key *key = &plan->key;
    cudaDataType_t in = type_of(key->dtype);
    int64_t m = result_rows(key), n = is_weight(key) ? key->n_out : key->rows;
    int64_t a_columns = is_weight(key) ? key->rows : key->n_out;
    int64_t b_rows = is_forward(key) ? key->n_in : key->n_out;
    cublasStatus_t status = cublasLtMatrixLayoutCreate(&plan->a, in, (uint64_t)key->n_in,
                                                       (uint64_t)a_columns, key->n_in);

    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutCreate(&plan->b, in, (uint64_t)b_rows,
                                            (uint64_t)key->rows, b_rows);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutCreate(&plan->d, result_type(key), (uint64_t)m,
                                            (uint64_t)n, m);
    return status;
}

/* ------------------------------------------------------------------------- algorithms */

static cublasStatus_t set_preference(struct mist_cuda_gemm *gemm,
                                     const struct mist_gemm_key *key)
{
    static const cublasLtMatmulPreferenceAttributes_t names[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    };
    uint64_t bytes = (uint64_t)(gemm->workspace_bytes - mist_gemm_sums_bytes(key));
    uint32_t alignment = (uint32_t)key->alignment_bytes;
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(
        gemm->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);

    for (int i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; i++)
        status = cublasLtMatmulPreferenceSetAttribute(gemm->preference, names[i],
                                                      &alignment, sizeof alignment);
    return status;
}

int mist_gemm_plan_candidates(struct mist_cuda_gemm *gemm,
                              const struct mist_gemm_plan *plan, int n_wanted,
                              cublasLtMatmulHeuristicResult_t *out)
{
    int n = 0, n_usable = 0;

    if (mist_gemm_sums_bytes(&plan->key) > gemm->workspace_bytes ||
        set_preference(gemm, &plan->key) != CUBLAS_STATUS_SUCCESS ||
        cublasLtMatmulAlgoGetHeuristic(gemm->handle, plan->desc, plan->a, plan->b,
                                       plan->d, plan->d, gemm->preference, n_wanted, out,
                                       &n) != CUBLAS_STATUS_SUCCESS)
        return 0; /* how a combination that does not exist is answered, too */
    for (int i = 0; i < n; i++)
        if (out[i].state == CUBLAS_STATUS_SUCCESS)
            out[n_usable++] = out[i];
    return n_usable;
}

/* By CUBLASLT_ALGO_CONFIG_*, which count from 0; the first is given at the beginning. */
static const size_t setting_bytes[MIST_GEMM_N_SETTINGS] = {4, 4, 4, 4, 4, 4, 4, 2, 2};

bool mist_gemm_settings_get(const cublasLtMatmulAlgo_t *algo, int64_t *settings)
{
    for (int i = 0; i < MIST_GEMM_N_SETTINGS; i++) {
        uint32_t value = 0; /* little endian, as CUDA's hosts are */
        size_t n = 0;

        if (cublasLtMatmulAlgoConfigGetAttribute(
                algo, (cublasLtMatmulAlgoConfigAttributes_t)i, &value, setting_bytes[i],
                &n) != CUBLAS_STATUS_SUCCESS)
            return false;
        settings[i] = value;
    }
    return true;
}

bool mist_gemm_settings_apply(const struct mist_cuda_gemm *gemm,
                              const struct mist_gemm_plan *plan, const int64_t *settings,
                              cublasLtMatmulAlgo_t *out)
{
    cudaDataType_t in = type_of(plan->key.dtype), result = result_type(&plan->key);
    int64_t limit = gemm->workspace_bytes - mist_gemm_sums_bytes(&plan->key);
    cublasLtMatmulHeuristicResult_t found = {0};
    cublasStatus_t status = cublasLtMatmulAlgoInit(
        gemm->handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, in, in, result, result,
        (int)settings[CUBLASLT_ALGO_CONFIG_ID], out);

    for (int i = 1; i < MIST_GEMM_N_SETTINGS && status == CUBLAS_STATUS_SUCCESS; i++) {
        uint32_t value = (uint32_t)settings[i];

        status = cublasLtMatmulAlgoConfigSetAttribute(
            out, (cublasLtMatmulAlgoConfigAttributes_t)i, &value, setting_bytes[i]);
    }
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulAlgoCheck(gemm->handle, plan->desc, plan->a, plan->b,
                                         plan->d, plan->d, out, &found);
    return status == CUBLAS_STATUS_SUCCESS && (int64_t)found.workspaceSize <= limit;
}

void mist_gemm_plan_decide(struct mist_cuda_gemm *gemm, struct mist_gemm_plan *plan)
{
    const struct mist_gemm_choice *choice = mist_gemm_choice_find(gemm, &plan->key, 0);
    cublasLtMatmulHeuristicResult_t first = {0};
    cublasLtMatmulAlgo_t algo;

    plan->way = mist_gemm_plan_candidates(gemm, plan, 1, &first) > 0 ? MIST_GEMM_FUSED
                                                                     : MIST_GEMM_REFUSED;
    plan->algo = first.algo;
    plan->is_decided = plan->is_timed = false;
    if (!choice || (choice->pick == MIST_GEMM_FIRST && plan->way != MIST_GEMM_FUSED) ||
        (choice->pick == MIST_GEMM_OTHER &&
         !mist_gemm_settings_apply(gemm, plan, choice->settings, &algo)))
        return;
    plan->way = choice->pick == MIST_GEMM_UNFUSED      ? MIST_GEMM_SLOWER
                : choice->pick == MIST_GEMM_UNLAUNCHED ? MIST_GEMM_REFUSED
                                                       : MIST_GEMM_FUSED;
    if (choice->pick == MIST_GEMM_OTHER)
        plan->algo = algo;
    plan->is_decided = true;
    plan->is_timed = choice->time_ns > 0;
}

/* ------------------------------------------------------------------------------ plans */

struct mist_gemm_plan *mist_gemm_plan_find(struct mist_cuda_gemm *gemm,
                                           const struct mist_gemm_key *key)
{
    struct mist_gemm_plan *plan = gemm->plans;
    cublasStatus_t status;

    while (plan && memcmp(&plan->key, key, sizeof *key) != 0)
        plan = plan->next;
    if (plan)
        return plan;
    plan = mist_arena_alloc(&gemm->arena, sizeof *plan);
    if (!plan) {
        mist_gemm_fail(gemm, key, "the list of products", CUBLAS_STATUS_ALLOC_FAILED);
        return NULL;
    }
    *plan = (struct mist_gemm_plan){.next = gemm->plans, .key = *key};
    gemm->plans = plan;
    status = describe_product(plan);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_operands(plan);
    if (status != CUBLAS_STATUS_SUCCESS) {
        mist_gemm_fail(gemm, key, "its descriptors", status);
        return NULL;
    }
    mist_gemm_plan_decide(gemm, plan);
    return plan;
}

void mist_gemm_plans_fini(struct mist_cuda_gemm *gemm)
{
    for (struct mist_gemm_plan *plan = gemm->plans; plan; plan = plan->next) {
        cublasLtMatrixLayout_t layouts[] = {plan->a, plan->b, plan->d};

        for (int j = 0; j < 3; j++)
            if (layouts[j])
                cublasLtMatrixLayoutDestroy(layouts[j]);
        if (plan->desc)
            cublasLtMatmulDescDestroy(plan->desc);
    }
}
