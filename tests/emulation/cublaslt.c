/*
 * A stand-in for the functions of cuBLASLt that the products of linear layers use: on
 * memory of the host, one element after the other, sums in double, in the order of the
 * emulated stream.
 *
 * It is stricter than the library where that finds mistakes: shapes, pointers and
 * alignments that don't fit what the algorithm was chosen for are errors, and the whole
 * workspace that a product was given is overwritten. The functions are declared by
 * NVIDIA's header; without it this file is empty. Left out: batches, matrices that are
 * not in columns, scale types other than fp32.
 */
#include "tests/emulation/cublaslt.h"

#include "tests/emulation/streams.h"

#if __has_include(<cublasLt.h>)

#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct mist_test_cublaslt mist_test_cublaslt;

struct desc {
    cublasOperation_t op_a, op_b;
    uint32_t epilogue;
    char *vector, *aux;
    int64_t aux_ld;
};

struct layout {
    cudaDataType_t type;
    int64_t rows, columns, ld;
};

struct preference {
    uint64_t workspace_bytes;
    uint32_t schemes;
    uint32_t alignments[4]; /* a, b, c, d */
};

/* An algorithm is its settings, by CUBLASLT_ALGO_CONFIG_*; they lie in
 * cublasLtMatmulAlgo_t. The i-th has the id FIRST_ID + i, the tile and the stages i, and
 * as its custom option the alignment that it counts on. */
enum { N_SETTINGS = 9, FIRST_ID = 100, SPOILED_BYTES = 1 << 16 };
struct algo {
    int32_t settings[N_SETTINGS];
};

/* Counts a fallible call; true: it is to fail. */
static bool fails(void)
{
    mist_test_cublaslt.n_calls++;
    return mist_test_cublaslt.fail_at > 0 && --mist_test_cublaslt.fail_at == 0;
}

static cublasStatus_t create(void **out, const void *initial, size_t bytes)
{
    *out = NULL;
    if (fails())
        return CUBLAS_STATUS_ALLOC_FAILED;
    *out = malloc(bytes);
    if (!*out)
        return CUBLAS_STATUS_ALLOC_FAILED;
    memcpy(*out, initial, bytes);
    mist_test_cublaslt.n_alive++;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t destroy(void *object)
{
    free(object);
    mist_test_cublaslt.n_alive--;
    return CUBLAS_STATUS_SUCCESS;
}

/* ------------------------------------------------------------------------ life cycles */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    void *object;
    cublasStatus_t status = create(&object, &(int){0}, sizeof(int));

    *handle = object;
    return status;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return destroy(handle);
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
           : status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                                   : "CUBLAS_STATUS_OF_AN_ERROR";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale_type)
{
    struct desc desc = {CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
                        NULL,        NULL,        0};
    void *object;
    cublasStatus_t status;

    *out = NULL;
    if (compute != CUBLAS_COMPUTE_32F || scale_type != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    status = create(&object, &desc, sizeof desc);
    *out = object;
    return status;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    return destroy(desc);
}

static cublasStatus_t set(void *to, size_t to_bytes, const void *from, size_t bytes)
{
    if (!from || bytes != to_bytes || fails())
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t object,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes)
{
    struct desc *desc = (void *)object;

    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&desc->op_a, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&desc->op_b, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&desc->epilogue, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&desc->vector, sizeof desc->vector, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return set(&desc->aux, sizeof desc->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return set(&desc->aux_ld, sizeof desc->aux_ld, value, bytes);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out,
                                          cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t ld)
{
    struct layout layout = {type, (int64_t)rows, (int64_t)columns, ld};
    void *object;
    cublasStatus_t status;

    *out = NULL;
    if (type != CUDA_R_32F && type != CUDA_R_16BF)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    status = create(&object, &layout, sizeof layout);
    *out = object;
    return status;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return destroy(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    struct preference preference = {
        0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};
    void *object;
    cublasStatus_t status = create(&object, &preference, sizeof preference);

    *out = object;
    return status;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return destroy(preference);
}

cublasStatus_t
cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t object,
                                     cublasLtMatmulPreferenceAttributes_t name,
                                     const void *value, size_t bytes)
{
    struct preference *preference = (void *)object;

    switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&preference->workspace_bytes, 8, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(&preference->schemes, 4, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return set(&preference->alignments[0], 4, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return set(&preference->alignments[1], 4, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return set(&preference->alignments[2], 4, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(&preference->alignments[3], 4, value, bytes);
    default:
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

/* ------------------------------------------------------------------------ the product */

struct problem {
    const struct desc *desc;
    struct layout a, b, d;
    int64_t m, n, k;
};

static bool has_vector(uint32_t epilogue)
{
    return (epilogue & CUBLASLT_EPILOGUE_BIAS) || epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

static bool has_aux(uint32_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
           epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
           epilogue == CUBLASLT_EPILOGUE_DGELU;
}

static bool is_whole(const struct layout *layout)
{
    return layout->rows > 0 && layout->columns > 0 && layout->ld >= layout->rows;
}

/* Shapes and types that fit one another; c is d. */
static cublasStatus_t pose(struct problem *p, cublasLtMatmulDesc_t desc,
                           cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                           cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d)
{
    p->desc = (const void *)desc;
    memcpy(&p->a, a, sizeof p->a);
    memcpy(&p->b, b, sizeof p->b);
    memcpy(&p->d, d, sizeof p->d);
    bool a_is_plain = p->desc->op_a == CUBLAS_OP_N;
    bool b_is_plain = p->desc->op_b == CUBLAS_OP_N;
    p->m = a_is_plain ? p->a.rows : p->a.columns;
    p->k = a_is_plain ? p->a.columns : p->a.rows;
    p->n = b_is_plain ? p->b.columns : p->b.rows;
    if (c != d || !is_whole(&p->a) || !is_whole(&p->b) || !is_whole(&p->d) ||
        (b_is_plain ? p->b.rows : p->b.columns) != p->k || p->d.rows != p->m ||
        p->d.columns != p->n || (has_vector(p->desc->epilogue) && !p->desc->vector) ||
        (has_aux(p->desc->epilogue) &&
         (!p->desc->aux || p->desc->aux_ld < p->m || p->desc->aux_ld % 8 != 0)))
        return CUBLAS_STATUS_INVALID_VALUE;
    return p->a.type != p->b.type || (p->a.type == CUDA_R_32F && p->d.type != CUDA_R_32F)
               ? CUBLAS_STATUS_NOT_SUPPORTED
               : CUBLAS_STATUS_SUCCESS;
}

static int32_t alignment_of(const void *ptr) /* at most 128; of NULL, too */
{
    uintptr_t bits = (uintptr_t)ptr | 128;

    return (int32_t)(bits & (~bits + 1));
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

cublasStatus_t
cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                               cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                               cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                               cublasLtMatmulPreference_t wanted, int n_wanted,
                               cublasLtMatmulHeuristicResult_t out[], int *n_out)
{
    const struct preference *preference = (const void *)wanted;
    struct problem p;
    cublasStatus_t status = pose(&p, desc, a, b, c, d);

    (void)handle;
    *n_out = 0;
    mist_test_cublaslt.n_heuristics++;
    mist_test_cublaslt.last_schemes = preference->schemes;
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (fails() || p.desc->epilogue == mist_test_cublaslt.refuses ||
        (mist_test_cublaslt.refuses_fusion &&
         p.desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    int32_t alignment = smaller(alignment_of(p.desc->vector), alignment_of(p.desc->aux));
    for (int i = 0; i < 4; i++)
        alignment = smaller(alignment, (int32_t)preference->alignments[i]);
    for (int i = 0; i < n_wanted && i < MIST_TEST_CUBLASLT_N_ALGORITHMS; i++) {
        struct algo algo = {{FIRST_ID + i, i, 1, 0, 0, alignment, i, 0, 0}};

        if ((uint64_t)i * 1024 > preference->workspace_bytes)
            break;
        memset(&out[i], 0, sizeof out[i]);
        memcpy(out[i].algo.data, &algo, sizeof algo);
        out[i].workspaceSize = (size_t)i * 1024;
        out[i].state = CUBLAS_STATUS_SUCCESS;
        ++*n_out;
    }
    return *n_out > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle,
                                      cublasComputeType_t compute,
                                      cudaDataType_t scale_type, cudaDataType_t a,
                                      cudaDataType_t b, cudaDataType_t c,
                                      cudaDataType_t d, int id, cublasLtMatmulAlgo_t *out)
{
    struct algo algo = {{id, 0, 1}};

    (void)handle;
    if (fails() || compute != CUBLAS_COMPUTE_32F || scale_type != CUDA_R_32F || a != b ||
        c != d)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    memcpy(out->data, &algo, sizeof algo);
    return CUBLAS_STATUS_SUCCESS;
}

static size_t setting_bytes(cublasLtMatmulAlgoConfigAttributes_t name)
{
    return name >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ? 2 : 4;
}

cublasStatus_t
cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algo,
                                     cublasLtMatmulAlgoConfigAttributes_t name,
                                     const void *value, size_t bytes)
{
    if (name == CUBLASLT_ALGO_CONFIG_ID)
        return CUBLAS_STATUS_INVALID_VALUE;
    return set((int32_t *)(void *)algo + name, setting_bytes(name), value, bytes);
}

cublasStatus_t
cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                     cublasLtMatmulAlgoConfigAttributes_t name,
                                     void *value, size_t bytes, size_t *n_written)
{
    *n_written = bytes;
    return bytes == setting_bytes(name)
               ? set(value, bytes, (const int32_t *)(const void *)algo + name, bytes)
               : CUBLAS_STATUS_INVALID_VALUE;
}

/* The workspace that it needs; negative: there is no such algorithm. */
static int64_t algo_workspace(const struct algo *algo)
{
    const int32_t *settings = algo->settings;
    int32_t i = settings[CUBLASLT_ALGO_CONFIG_ID] - FIRST_ID;

    return i >= 0 && i < MIST_TEST_CUBLASLT_N_ALGORITHMS &&
                   settings[CUBLASLT_ALGO_CONFIG_TILE_ID] == i &&
                   settings[CUBLASLT_ALGO_CONFIG_STAGES_ID] == i &&
                   settings[CUBLASLT_ALGO_CONFIG_SPLITK_NUM] == 1
               ? i * (int64_t)1024
               : -1;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *chosen,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    struct problem p;
    struct algo algo;
    cublasStatus_t status = pose(&p, desc, a, b, c, d);

    (void)handle;
    memcpy(&algo, chosen->data, sizeof algo);
    if (status != CUBLAS_STATUS_SUCCESS || fails() || algo_workspace(&algo) < 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    result->workspaceSize = (size_t)algo_workspace(&algo);
    return CUBLAS_STATUS_SUCCESS;
}

static double load(const void *from, cudaDataType_t type, int64_t i)
{
    uint32_t bits;
    uint16_t half;
    float x;

    if (type == CUDA_R_32F) {
        memcpy(&x, (const char *)from + i * 4, 4);
        return (double)x;
    }
    memcpy(&half, (const char *)from + i * 2, 2);
    bits = (uint32_t)half << 16;
    memcpy(&x, &bits, 4);
    return (double)x;
}

static void store(void *to, cudaDataType_t type, int64_t i, double value)
{
    float x = (float)value;
    uint32_t bits;
    uint16_t half;

    if (type == CUDA_R_32F) {
        memcpy((char *)to + i * 4, &x, 4);
        return;
    }
    memcpy(&bits, &x, 4);
    half = (uint16_t)(x != x ? 0x7FC0 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    memcpy((char *)to + i * 2, &half, 2);
}

static int64_t place(const struct layout *layout, int64_t row, int64_t column)
{
    return row + column * layout->ld;
}

/* A row or a column: values that are step apart. */
struct vector {
    const void *values;
    cudaDataType_t type;
    int64_t begin, step;
};

/* Row i of op(A) and column j of op(B). */
static struct vector row_of_a(const struct problem *p, const void *a, int64_t i)
{
    bool is_plain = p->desc->op_a == CUBLAS_OP_N;

    return (struct vector){a, p->a.type, is_plain ? i : i * p->a.ld,
                           is_plain ? p->a.ld : 1};
}

static struct vector column_of_b(const struct problem *p, const void *b, int64_t j)
{
    bool is_plain = p->desc->op_b == CUBLAS_OP_N;

    return (struct vector){b, p->b.type, is_plain ? j * p->b.ld : j,
                           is_plain ? 1 : p->b.ld};
}

static double dot(const struct vector *a, const struct vector *b, int64_t n)
{
    const float *a32 = a->values, *b32 = b->values;
    double sum = 0;

    if (a->type == CUDA_R_32F && b->type == CUDA_R_32F) /* many of these: no calls */
        for (int64_t l = 0; l < n; l++)
            sum +=
                (double)a32[a->begin + l * a->step] * (double)b32[b->begin + l * b->step];
    else
        for (int64_t l = 0; l < n; l++)
            sum += load(a->values, a->type, a->begin + l * a->step) *
                   load(b->values, b->type, b->begin + l * b->step);
    return sum;
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));

    return 0.5 * (1 + t) +
           0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

/* What an epilogue makes of element i, j before it is stored. */
static double finish(const struct problem *p, double value, int64_t i, int64_t j)
{
    const struct desc *desc = p->desc;
    uint32_t epilogue = desc->epilogue;
    int64_t i_aux = i + j * desc->aux_ld;

    if (epilogue == CUBLASLT_EPILOGUE_BGRADB)
        return value;
    if (epilogue & CUBLASLT_EPILOGUE_BIAS)
        value += load(desc->vector, p->d.type, i);
    if (epilogue & CUBLASLT_EPILOGUE_GELU) {
        store(desc->aux, p->d.type, i_aux, value);
        return gelu(value);
    }
    if (has_aux(epilogue))
        return value * gelu_slope(load(desc->aux, p->d.type, i_aux));
    return value;
}

/* Column sums that an epilogue leaves in the vector. */
static void sum_gradients(const struct problem *p, const void *b)
{
    for (int64_t i = 0; i < p->n && p->desc->epilogue == CUBLASLT_EPILOGUE_BGRADB; i++) {
        struct vector column = column_of_b(p, b, i);
        double sum = 0;

        for (int64_t l = 0; l < p->k; l++)
            sum += load(b, column.type, column.begin + l * column.step);
        store(p->desc->vector, p->d.type, i, sum);
    }
}

/* A product that was launched: all that the caller may change or free afterwards. */
struct launch {
    struct problem p;
    struct desc desc;
    double alpha, beta;
    const void *a, *b, *c;
    void *d, *workspace;
    size_t workspace_bytes;
};

static void multiply(void *arg)
{
    struct launch *at = arg;
    struct problem *p = &at->p;
    size_t end_bytes =
        at->workspace_bytes < SPOILED_BYTES ? at->workspace_bytes : SPOILED_BYTES;

    p->desc = &at->desc;
    for (int64_t j = 0; j < p->n; j++)
        for (int64_t i = 0; i < p->m; i++) {
            struct vector a = row_of_a(p, at->a, i), b = column_of_b(p, at->b, j);
            double sum = at->alpha * dot(&a, &b, p->k);

            if (at->beta != 0)
                sum += at->beta * load(at->c, p->d.type, place(&p->d, i, j));
            store(at->d, p->d.type, place(&p->d, i, j), finish(p, sum, i, j));
        }
    sum_gradients(p, at->b);
    /* it may have been in use until the last result: both ends tell, all of it
     * takes long */
    memset(at->workspace, 0xFF, end_bytes);
    memset((char *)at->workspace + at->workspace_bytes - end_bytes, 0xFF, end_bytes);
}

/* The product in words: what is fused into it, and what it adds to. */
static void tell(const struct launch *at)
{
    static const struct {
        uint32_t epilogue;
        const char *name;
    } names[] = {
        {CUBLASLT_EPILOGUE_DEFAULT, ""},
        {CUBLASLT_EPILOGUE_BIAS, " BIAS"},
        {CUBLASLT_EPILOGUE_GELU_AUX, " GELU_AUX"},
        {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, " GELU_AUX_BIAS"},
        {CUBLASLT_EPILOGUE_DGELU, " DGELU"},
        {CUBLASLT_EPILOGUE_DGELU_BGRAD, " DGELU_BGRAD"},
        {CUBLASLT_EPILOGUE_BGRADB, " BGRADB"},
    };
    const char *name = " ?", *adds = "";
    char text[64];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].epilogue == at->desc.epilogue)
            name = names[i].name;
    if (at->beta != 0)
        adds = at->c == at->d ? " +=" : " + C";
    snprintf(text, sizeof text, "cublasLtMatmul%s%s", name, adds);
    mist_emulated_watch(text);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                              const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *chosen, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    struct launch at = {.alpha = load(alpha, CUDA_R_32F, 0),
                        .beta = load(beta, CUDA_R_32F, 0),
                        .a = a,
                        .b = b,
                        .c = c,
                        .d = d,
                        .workspace = workspace,
                        .workspace_bytes = workspace_bytes};
    struct algo algo;
    cublasStatus_t status = pose(&at.p, desc, a_layout, b_layout, c_layout, d_layout);

    (void)handle;
    memcpy(&algo, chosen->data, sizeof algo);
    memcpy(&at.desc, desc, sizeof at.desc);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (at.desc.epilogue == mist_test_cublaslt.launch_refuses &&
        mist_test_cublaslt.n_launches_refused > 0) {
        mist_test_cublaslt.n_launches_refused--;
        return (cublasStatus_t)mist_test_cublaslt.launch_status;
    }
    const void *const pointers[] = {a, b, c, d, at.desc.vector, at.desc.aux};
    for (int i = 0; i < 6; i++)
        if ((i < 4 && !pointers[i]) ||
            alignment_of(pointers[i]) < algo.settings[CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION])
            return CUBLAS_STATUS_EXECUTION_FAILED;
    if (fails() || algo_workspace(&algo) < 0 ||
        workspace_bytes < (size_t)algo_workspace(&algo))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    mist_test_cublaslt.n_matmuls++;
    mist_test_cublaslt.i_last_algorithm = algo_workspace(&algo) / 1024;
    mist_test_cublaslt.last_epilogue = at.desc.epilogue;
    if (mist_emulated_watch)
        tell(&at);
    else
        mist_emulated_stream_run(stream, multiply, &at, sizeof at);
    return CUBLAS_STATUS_SUCCESS;
}

#endif
