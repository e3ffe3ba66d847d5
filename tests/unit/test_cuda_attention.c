/*
 * The CUDA backend's own attention against the CPU's, in both number formats: out, lse,
 * and the parts of dqkv each for itself. Also: the same bits in any order of threads and
 * blocks, later tokens without a trace in earlier ones, scores far from 0.
 */
#include "exec/cuda/kernels.h"
#include "tests/emulation/device_memory.h"
#include "tests/emulation/order.h"
#include "tests/unit/cpu_bf16_help.h"

#include <stdlib.h> /* getenv, strtoull */

static const int64_t lengths[] = {1, 7, 64, 65, 96, 130};
static const int64_t head_dims[] = {8, 20, 64, 80, 128};
static const int64_t heads[][2] = {{1, 1}, {4, 2}, {6, 1}};
/* Bounds of the kernels' sizes, and what fits no vector. */
static const struct mist_cpu_attention odd_shapes[] = {
    {1, 33, 2, 1, 1},   {2, 66, 3, 3, 3},  {1, 70, 2, 2, 32},  {1, 67, 2, 1, 33},
    {1, 100, 1, 1, 63}, {1, 65, 2, 1, 65}, {1, 34, 2, 2, 127}, {1, 33, 2, 1, 129},
    {1, 50, 1, 1, 250}, {2, 49, 2, 1, 256}};
#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

static const enum mist_dtype dtypes[] = {MIST_DTYPE_FP32, MIST_DTYPE_BF16};
static struct mist_cpu_bf16 *context; /* NULL: this processor knows the first alone */
static int n_dtypes = 1;

static int make_context(void **state)
{
    struct mist_err err = {0};

    if (mist_cpu_bf16_new(&context, 1, &err) == MIST_OK)
        n_dtypes = 2;
    else
        print_message("%s; fp32 alone\n", err.message);
    return 0;
}

static int free_context(void **state)
{
    mist_cpu_bf16_free(context);
    return 0;
}

static int64_t n_qkv_of(const struct mist_cpu_attention *a)
{
    return a->b * a->s * (a->heads + 2 * a->kv_heads) * a->head_dim;
}

static int64_t n_out_of(const struct mist_cpu_attention *a)
{
    return a->b * a->s * a->heads * a->head_dim;
}

static int64_t n_lse_of(const struct mist_cpu_attention *a)
{
    return a->b * a->heads * a->s;
}

/* ----------------------------------------------------------------------- both formats */

static size_t bytes_of(enum mist_dtype dtype, int64_t n)
{
    return (size_t)n * (dtype == MIST_DTYPE_BF16 ? sizeof(mist_bf16) : sizeof(float));
}

/* n random numbers in [-size, size] as dtype. */
static void *random_tensor(struct help *h, enum mist_dtype dtype, int64_t n, double size)
{
    if (dtype == MIST_DTYPE_BF16)
        return help_bf16_random(h, NULL, n, size);
    return help_random(h, n, size);
}

static const float *floats_of(struct help *h, enum mist_dtype dtype, const void *x,
                              int64_t n)
{
    return dtype == MIST_DTYPE_BF16 ? help_floats_of(h, x, n) : x;
}

struct tensors { /* on the host, as dtype; lse fp32 */
    void *out, *dqkv;
    float *lse;
};

static struct tensors alloc_tensors(struct help *h, enum mist_dtype dtype,
                                    const struct mist_cpu_attention *a)
{
    return (struct tensors){
        help_alloc(h, (int64_t)bytes_of(dtype, n_out_of(a))),
        help_alloc(h, (int64_t)bytes_of(dtype, n_qkv_of(a))),
        help_alloc(h, n_lse_of(a) * (int64_t)sizeof(float)),
    };
}

static struct tensors run_cpu(struct help *h, enum mist_dtype dtype,
                              const struct mist_cpu_attention *a, const void *qkv,
                              const void *d_out)
{
    struct tensors r = alloc_tensors(h, dtype, a);
    if (dtype == MIST_DTYPE_BF16) {
        mist_cpu_attention_forward(
            context, r.out, r.lse, qkv, a,
            help_alloc(h,
                       (int64_t)mist_cpu_attention_forward_workspace_bytes(a, true, 1)),
            1);
        mist_cpu_attention_backward(
            context, r.dqkv, d_out, qkv, r.out, r.lse, a,
            help_alloc(h,
                       (int64_t)mist_cpu_attention_backward_workspace_bytes(a, true, 1)),
            1);
    } else {
        mist_cpu_attention_forward(
            NULL, r.out, r.lse, qkv, a,
            help_alloc(h,
                       (int64_t)mist_cpu_attention_forward_workspace_bytes(a, false, 1)),
            1);
        mist_cpu_attention_backward(
            NULL, r.dqkv, d_out, qkv, r.out, r.lse, a,
            help_alloc(h,
                       (int64_t)mist_cpu_attention_backward_workspace_bytes(a, false, 1)),
            1);
    }
    return r;
}

/* Brings a result home: guard intact, memory freed. */
static void take_home(void *host, void *device, size_t bytes)
{
    assert_true(mist_test_device_guard_is_intact(device, bytes));
    mist_test_device_download(host, device, bytes);
    mist_test_device_free(device);
}

/* An input is as it was; memory freed. */
static void drop_input(struct help *h, void *device, const void *host, size_t bytes)
{
    void *now = help_alloc(h, (int64_t)bytes);
    take_home(now, device, bytes);
    assert_memory_equal(now, host, bytes);
}

/* The backward reads the out and lse of before, or with NULL what its forward left. */
static struct tensors run_cuda(struct help *h, enum mist_dtype dtype,
                               const struct mist_cpu_attention *a, const void *qkv,
                               const void *d_out, const struct tensors *before)
{
    struct tensors r = alloc_tensors(h, dtype, a);
    size_t qkv_bytes = bytes_of(dtype, n_qkv_of(a));
    size_t out_bytes = bytes_of(dtype, n_out_of(a));
    size_t lse_bytes = (size_t)n_lse_of(a) * sizeof(float);
    void *d_qkv = mist_test_device_copy(qkv, qkv_bytes);
    void *out = mist_test_device_alloc(out_bytes),
         *lse = mist_test_device_alloc(lse_bytes);

    mist_cuda_attention_forward(NULL, dtype, out, lse, d_qkv, a);
    take_home(r.out, out, out_bytes);
    take_home(r.lse, lse, lse_bytes);
    if (before == NULL)
        before = &r;
    out = mist_test_device_copy(before->out, out_bytes);
    lse = mist_test_device_copy(before->lse, lse_bytes);
    void *slopes = mist_test_device_copy(d_out, out_bytes);
    void *dqkv = mist_test_device_alloc(qkv_bytes);
    void *workspace = mist_test_device_alloc(lse_bytes);
    mist_cuda_attention_backward(NULL, dtype, dqkv, slopes, d_qkv, out, lse, a,
                                 workspace);
    take_home(r.dqkv, dqkv, qkv_bytes);
    drop_input(h, d_qkv, qkv, qkv_bytes);
    drop_input(h, out, before->out, out_bytes);
    drop_input(h, lse, before->lse, lse_bytes);
    drop_input(h, slopes, d_out, out_bytes);
    assert_true(mist_test_device_guard_is_intact(workspace, lse_bytes));
    mist_test_device_free(workspace);
    return r;
}

/* ------------------------------------------------------------------------- comparison */

/*
 * Columns first .. first + n - 1 of rows of width: |got - expected| <= tolerance
 * |expected| in the 2-norm. Where the part is nearly nothing (dq and dk of a lone token)
 * a tenth of the whole's norm counts.
 */
static void assert_columns_close(const float *got, const float *expected, int64_t n_rows,
                                 int64_t width, int64_t first, int64_t n,
                                 double tolerance, const char *what,
                                 const struct mist_cpu_attention *a)
{
    double error2 = 0.0, part2 = 0.0, whole2 = 0.0;
    for (int64_t i = 0; i < n_rows * width; i++) {
        double x = (double)expected[i], error = (double)got[i] - x;
        bool is_in = i % width >= first && i % width < first + n;
        error2 += is_in ? error * error : 0.0;
        part2 += is_in ? x * x : 0.0;
        whole2 += x * x;
    }
    if (!(sqrt(error2) <= tolerance * fmax(sqrt(part2), 0.1 * sqrt(whole2))))
        fail_msg("%s of b %lld, s %lld, heads %lld/%lld, head_dim %lld: error %g of %g",
                 what, (long long)a->b, (long long)a->s, (long long)a->heads,
                 (long long)a->kv_heads, (long long)a->head_dim, sqrt(error2),
                 sqrt(part2));
}

static void assert_tensors_close(struct help *h, enum mist_dtype dtype,
                                 const struct mist_cpu_attention *a,
                                 const struct tensors *got,
                                 const struct tensors *expected)
{
    double tolerance = dtype == MIST_DTYPE_BF16 ? 4e-3 : 1e-5;
    int64_t d = a->head_dim, q = a->heads * d, kv = a->kv_heads * d, n = a->b * a->s;
    const float *out = floats_of(h, dtype, got->out, n * q);
    const float *dqkv = floats_of(h, dtype, got->dqkv, n * (q + 2 * kv));
    const float *cpu_out = floats_of(h, dtype, expected->out, n * q);
    const float *cpu_dqkv = floats_of(h, dtype, expected->dqkv, n * (q + 2 * kv));
    assert_columns_close(out, cpu_out, n, q, 0, q, tolerance, "out", a);
    assert_columns_close(got->lse, expected->lse, n * a->heads, 1, 0, 1, 1e-5, "lse", a);
    int64_t width = q + 2 * kv;
    assert_columns_close(dqkv, cpu_dqkv, n, width, 0, q, tolerance, "dq", a);
    assert_columns_close(dqkv, cpu_dqkv, n, width, q, kv, tolerance, "dk", a);
    assert_columns_close(dqkv, cpu_dqkv, n, width, q + kv, kv, tolerance, "dv", a);
}

static void assert_same_bits(enum mist_dtype dtype, const struct mist_cpu_attention *a,
                             const struct tensors *one, const struct tensors *other)
{
    assert_memory_equal(one->out, other->out, bytes_of(dtype, n_out_of(a)));
    assert_memory_equal(one->lse, other->lse, (size_t)n_lse_of(a) * sizeof(float));
    assert_memory_equal(one->dqkv, other->dqkv, bytes_of(dtype, n_qkv_of(a)));
}

static void check_shape(struct help *h, enum mist_dtype dtype,
                        const struct mist_cpu_attention *a)
{
    const void *qkv = random_tensor(h, dtype, n_qkv_of(a), 2.0);
    const void *d_out = random_tensor(h, dtype, n_out_of(a), 1.0);
    struct tensors cpu = run_cpu(h, dtype, a, qkv, d_out);
    struct tensors cuda = run_cuda(h, dtype, a, qkv, d_out, &cpu);
    assert_tensors_close(h, dtype, a, &cuda, &cpu);
}

/* ------------------------------------------------------------------------------ tests */

/* Every length with every head_dim; groups of heads and b take turns. */
TEST_WITH(test_shapes, help_setup, help_teardown)
{
    struct help *h = *state;
    int turn = 0;
    for (int i = 0; i < COUNT(lengths); i++)
        for (int j = 0; j < COUNT(head_dims); j++)
            for (int k = 0; k < n_dtypes; k++, turn++) {
                const int64_t *n_heads = heads[(i + j + 2 * k) % COUNT(heads)];
                struct mist_cpu_attention a = {1 + turn % 5 % 2, lengths[i], n_heads[0],
                                               n_heads[1], head_dims[j]};
                check_shape(h, dtypes[k], &a);
            }
}

TEST_WITH(test_odd_shapes, help_setup, help_teardown)
{
    struct help *h = *state;
    for (int i = 0; i < COUNT(odd_shapes); i++)
        for (int k = 0; k < n_dtypes; k++)
            check_shape(h, dtypes[k], &odd_shapes[i]);
}

/* The backward after its own forward, in three orders. */
TEST_WITH(test_orders, help_setup, help_teardown)
{
    struct help *h = *state;
    const struct mist_cpu_attention shapes[] = {
        {2, 66, 4, 2, 20}, {1, 130, 2, 1, 64}, {1, 70, 2, 1, 128}, {1, 40, 2, 2, 256}};
    for (int i = 0; i < COUNT(shapes); i++)
        for (int k = 0; k < n_dtypes; k++) {
            const struct mist_cpu_attention *a = &shapes[i];
            enum mist_dtype dtype = dtypes[k];
            const void *qkv = random_tensor(h, dtype, n_qkv_of(a), 2.0);
            const void *d_out = random_tensor(h, dtype, n_out_of(a), 1.0);
            struct tensors cpu = run_cpu(h, dtype, a, qkv, d_out);
            mist_emulation_set_order(MIST_EMULATION_FORWARD, 0);
            struct tensors one = run_cuda(h, dtype, a, qkv, d_out, NULL);
            mist_emulation_set_order(MIST_EMULATION_REVERSE, 0);
            struct tensors two = run_cuda(h, dtype, a, qkv, d_out, NULL);
            mist_emulation_set_order(MIST_EMULATION_SHUFFLED, h->seed);
            struct tensors three = run_cuda(h, dtype, a, qkv, d_out, NULL);
            mist_emulation_set_order(MIST_EMULATION_FORWARD, 0);
            assert_tensors_close(h, dtype, a, &one, &cpu);
            assert_same_bits(dtype, a, &one, &two);
            assert_same_bits(dtype, a, &one, &three);
        }
}

/* Other numbers from token 70 on, from 128 on (tiles ahead, never touched) none at all:
 * out and lse of the tokens before 70 keep their bits. */
TEST_WITH(test_causality, help_setup, help_teardown)
{
    struct help *h = *state;
    const struct mist_cpu_attention a = {1, 130, 4, 2, 80};
    int64_t token = (a.heads + 2 * a.kv_heads) * a.head_dim, n_before = 70;
    float *qkv = help_random(h, n_qkv_of(&a), 2.0);
    float *d_out = help_random(h, n_out_of(&a), 1.0);
    float *other = help_random(h, n_qkv_of(&a), 20.0);
    memcpy(other, qkv, (size_t)(n_before * token) * sizeof *qkv);
    for (int64_t i = 128 * token; i < n_qkv_of(&a); i++)
        other[i] = NAN;
    struct tensors one = run_cuda(h, MIST_DTYPE_FP32, &a, qkv, d_out, NULL);
    struct tensors two = run_cuda(h, MIST_DTYPE_FP32, &a, other, d_out, NULL);
    help_assert_same_bits(one.out, two.out, n_before * a.heads * a.head_dim);
    for (int64_t i = 0; i < a.heads; i++)
        help_assert_same_bits(one.lse + i * a.s, two.lse + i * a.s, n_before);
    assert_memory_not_equal(one.out, two.out, bytes_of(MIST_DTYPE_FP32, n_out_of(&a)));
}

/* Scores of thousands, at which exp of a score alone would overflow. */
TEST_WITH(test_large_scores, help_setup, help_teardown)
{
    struct help *h = *state;
    const struct mist_cpu_attention a = {1, 100, 2, 1, 64};
    for (int k = 0; k < n_dtypes; k++) {
        const void *qkv = random_tensor(h, dtypes[k], n_qkv_of(&a), 40.0);
        const void *d_out = random_tensor(h, dtypes[k], n_out_of(&a), 1.0);
        struct tensors cpu = run_cpu(h, dtypes[k], &a, qkv, d_out);
        struct tensors cuda = run_cuda(h, dtypes[k], &a, qkv, d_out, &cpu);
        const float *out = floats_of(h, dtypes[k], cuda.out, n_out_of(&a));
        const float *cpu_out = floats_of(h, dtypes[k], cpu.out, n_out_of(&a));
        const float *dqkv = floats_of(h, dtypes[k], cuda.dqkv, n_qkv_of(&a));
        assert_columns_close(out, cpu_out, n_out_of(&a), 1, 0, 1, 1e-3, "out", &a);
        assert_columns_close(cuda.lse, cpu.lse, n_lse_of(&a), 1, 0, 1, 1e-5, "lse", &a);
        for (int64_t i = 0; i < n_qkv_of(&a); i++)
            assert_true(isfinite(dqkv[i]));
    }
}

/* b = 0 launches nothing. */
TEST_WITH(test_nothing, help_setup, help_teardown)
{
    const struct mist_cpu_attention shape = {0, 8, 2, 1, 16};

    mist_cuda_attention_forward(NULL, MIST_DTYPE_FP32, NULL, NULL, NULL, &shape);
    mist_cuda_attention_backward(NULL, MIST_DTYPE_BF16, NULL, NULL, NULL, NULL, NULL,
                                 &shape, NULL);
    mist_test_device_synchronize();
}

TEST_MAIN(make_context, free_context)
