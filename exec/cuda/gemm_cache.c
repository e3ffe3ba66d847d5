/*
 * Plans of products: from a key to cuBLASLt's descriptors and an algorithm. See gemm.h.
 *
 * A run has a few dozen different products, so they are a list that is searched from its
 * beginning. The pointers that cuBLASLt asks for only to learn their alignment are made
 * up from the key, so that a plan fits every call with that key.
 */
#include "exec/cuda/gemm_internal.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_LOG2_ALIGNMENT = 4, ALIGNMENT_BITS = 3 };

static int32_t log2_alignment(const void *ptr)
{
    uintptr_t bits = (uintptr_t)ptr | (uintptr_t)1 << MAX_LOG2_ALIGNMENT;
    int32_t n = 0;

    for (; !(bits >> n & 1); n++)
        ;
    return n;
}

static uint32_t alignment_bytes(const struct mist_gemm_key *key, int i)
{
    return 1u << (key->alignments >> (ALIGNMENT_BITS * i) & 7);
}

struct mist_gemm_key mist_gemm_key_make(const struct mist_cuda_linear *at,
                                        enum mist_cuda_gemm_kind kind,
                                        enum mist_gemm_epilogue epilogue,
                                        const struct mist_gemm_operands *x)
{
    const void *ptrs[] = {x->a, x->b, x->d, x->vector, x->aux};
    struct mist_gemm_key key = {.kind = (int32_t)kind,
                                .dtype = (int32_t)at->dtype,
                                .epilogue = (int32_t)epilogue,
                                .rows = at->rows,
                                .n_in = at->n_in,
                                .n_out = at->n_out};

    if (kind == MIST_CUDA_GEMM_BACKWARD_WEIGHT)
        key.gradient_dtype = (int32_t)at->gradient_dtype;

    for (int i = 0; i < 5; i++)
        key.alignments |= log2_alignment(ptrs[i]) << (ALIGNMENT_BITS * i);
    return key;
}

int64_t mist_gemm_vector_bytes(const struct mist_gemm_key *key)
{
    return key->epilogue == MIST_GEMM_SUM
               ? mist_align_up(key->n_out * (int64_t)sizeof(float), 256)
               : 0;
}

static uint32_t epilogue_of(enum mist_gemm_epilogue epilogue)
{
    static const uint32_t table[MIST_N_GEMM_EPILOGUES] = {
        [MIST_GEMM_PLAIN] = CUBLASLT_EPILOGUE_DEFAULT,
        [MIST_GEMM_BIAS] = CUBLASLT_EPILOGUE_BIAS,
        [MIST_GEMM_GELU] = CUBLASLT_EPILOGUE_GELU_AUX,
        [MIST_GEMM_GELU_BIAS] = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        [MIST_GEMM_DGELU] = CUBLASLT_EPILOGUE_DGELU,
        [MIST_GEMM_SUM] = CUBLASLT_EPILOGUE_BGRADB,
    };

    return table[epilogue];
}

static bool has_vector(int32_t epilogue)
{
    return epilogue == MIST_GEMM_BIAS || epilogue == MIST_GEMM_GELU_BIAS ||
           epilogue == MIST_GEMM_SUM;
}

static bool has_aux(int32_t epilogue)
{
    return epilogue == MIST_GEMM_GELU || epilogue == MIST_GEMM_GELU_BIAS ||
           epilogue == MIST_GEMM_DGELU;
}

static cublasStatus_t describe_product(const struct mist_cuda_gemm *gemm,
                                       struct mist_gemm_plan *plan)
{
    const struct mist_gemm_key *key = &plan->key;
    cublasOperation_t op_a =
        key->kind == MIST_CUDA_GEMM_FORWARD ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t op_b =
        key->kind == MIST_CUDA_GEMM_BACKWARD_WEIGHT ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = epilogue_of((enum mist_gemm_epilogue)key->epilogue);
    const void *vector = (const void *)(uintptr_t)alignment_bytes(key, 3);
    const void *aux = (const void *)(uintptr_t)alignment_bytes(key, 4);
    int64_t aux_ld = mist_gemm_extent(key).m;
    bool vectored = has_vector(key->epilogue), auxed = has_aux(key->epilogue);
    const struct {
        bool is_set;
        cublasLtMatmulDescAttributes_t name;
        const void *value;
        size_t bytes;
    } attributes[] = {
        {true, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a},
        {true, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b},
        {true, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue},
        {vectored, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector},
        {auxed, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux},
        {auxed, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld, sizeof aux_ld},
        {gemm->n_processors > 0, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
         &gemm->n_processors, sizeof gemm->n_processors},
    };
    cublasStatus_t status =
        cublasLtMatmulDescCreate(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);

    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (status == CUBLAS_STATUS_SUCCESS && attributes[i].is_set)
            status = cublasLtMatmulDescSetAttribute(
                plan->desc, attributes[i].name, attributes[i].value, attributes[i].bytes);
    return status;
}

static cudaDataType_t type_of(int32_t dtype)
{
    return dtype == MIST_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* Rows, columns and leading dimension of what lies in memory, as columns. */
static cublasStatus_t describe_operands(struct mist_gemm_plan *plan)
{
    const struct mist_gemm_key *key = &plan->key;
    bool is_forward = key->kind == MIST_CUDA_GEMM_FORWARD;
    bool is_weight = key->kind == MIST_CUDA_GEMM_BACKWARD_WEIGHT;
    cudaDataType_t in = type_of(key->dtype);
    cudaDataType_t out = is_weight ? type_of(key->gradient_dtype) : in;
    struct mist_gemm_extent e = mist_gemm_extent(key);
    int64_t a_columns = is_weight ? key->rows : key->n_out;
    int64_t b_rows = is_forward ? key->n_in : key->n_out;
    cublasStatus_t status = cublasLtMatrixLayoutCreate(&plan->a, in, (uint64_t)key->n_in,
                                                       (uint64_t)a_columns, key->n_in);

    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatrixLayoutCreate(&plan->b, in, (uint64_t)b_rows,
                                            (uint64_t)key->rows, b_rows);
    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            cublasLtMatrixLayoutCreate(&plan->d, out, (uint64_t)e.m, (uint64_t)e.n, e.m);
    return status;
}

static cublasStatus_t set_preference(struct mist_cuda_gemm *gemm,
                                     const struct mist_gemm_key *key)
{
    static const cublasLtMatmulPreferenceAttributes_t names[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
    };
    uint64_t bytes = (uint64_t)(gemm->workspace_bytes - mist_gemm_vector_bytes(key));
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(
        gemm->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);

    for (int i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; i++) {
        uint32_t alignment = alignment_bytes(key, i < 2 ? i : 2); /* c is d */
        status = cublasLtMatmulPreferenceSetAttribute(gemm->preference, names[i],
                                                      &alignment, sizeof alignment);
    }
    return status;
}

int mist_gemm_plan_candidates(struct mist_cuda_gemm *gemm,
                              const struct mist_gemm_plan *plan, int n_wanted,
                              cublasLtMatmulHeuristicResult_t *out)
{
    int n = 0, n_usable = 0;

    if (mist_gemm_vector_bytes(&plan->key) > gemm->workspace_bytes ||
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

/* Whether an algorithm from a file can run this product here. */
static bool is_still_usable(const struct mist_cuda_gemm *gemm,
                            const struct mist_gemm_plan *plan)
{
    int64_t limit = gemm->workspace_bytes - mist_gemm_vector_bytes(&plan->key);
    cublasLtMatmulHeuristicResult_t result = {0};

    return limit >= 0 &&
           cublasLtMatmulAlgoCheck(gemm->handle, plan->desc, plan->a, plan->b, plan->d,
                                   plan->d, &plan->algo,
                                   &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= (size_t)limit;
}

static void choose_algorithm(struct mist_cuda_gemm *gemm, struct mist_gemm_plan *plan)
{
    cublasLtMatmulHeuristicResult_t first = {0};

    if (plan->is_tuned && (!plan->is_usable || is_still_usable(gemm, plan)))
        return;
    plan->is_tuned = false;
    plan->is_usable = mist_gemm_plan_candidates(gemm, plan, 1, &first) > 0;
    plan->algo = first.algo;
}

struct mist_gemm_plan *mist_gemm_plan_append(struct mist_cuda_gemm *gemm,
                                             const struct mist_gemm_key *key)
{
    struct mist_gemm_plan *plans =
        mist_grow(gemm->plans, &gemm->plans_capacity, gemm->n_plans + 1, sizeof *plans);

    if (!plans)
        return NULL;
    gemm->plans = plans;
    plans[gemm->n_plans] = (struct mist_gemm_plan){.key = *key};
    return &plans[gemm->n_plans++];
}

struct mist_gemm_plan *mist_gemm_plan_find(struct mist_cuda_gemm *gemm,
                                           const struct mist_gemm_key *key)
{
    struct mist_gemm_plan *plan = gemm->plans;
    struct mist_gemm_plan *end = plan ? plan + gemm->n_plans : NULL;
    cublasStatus_t status;

    for (; plan < end; plan++)
        if (memcmp(&plan->key, key, sizeof *key) == 0)
            break;
    if (plan < end && plan->desc) {
        gemm->counts.n_hits++;
        return plan;
    }
    if (plan == end && !(plan = mist_gemm_plan_append(gemm, key))) {
        mist_gemm_fail(gemm, key, "the list of products", CUBLAS_STATUS_ALLOC_FAILED);
        return NULL;
    }
    gemm->counts.n_plans++;
    status = describe_product(gemm, plan);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_operands(plan);
    if (status != CUBLAS_STATUS_SUCCESS) {
        mist_gemm_fail(gemm, key, "its descriptors", status);
        return NULL;
    }
    choose_algorithm(gemm, plan);
    return plan;
}

void mist_gemm_plans_fini(struct mist_cuda_gemm *gemm)
{
    for (size_t i = 0; i < gemm->n_plans; i++) {
        struct mist_gemm_plan *plan = &gemm->plans[i];
        cublasLtMatrixLayout_t layouts[] = {plan->a, plan->b, plan->d};

        for (int j = 0; j < 3; j++)
            if (layouts[j])
                cublasLtMatrixLayoutDestroy(layouts[j]);
        if (plan->desc)
            cublasLtMatmulDescDestroy(plan->desc);
    }
    free(gemm->plans);
}
