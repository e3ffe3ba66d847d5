/*
 * Linear layers: matrix products on oneDNN, tile by tile, and bias sums.
 *
 * An output is cut into tiles of a fixed size whatever the number of threads, each
 * product runs on one thread, and the sum over k is cut, if at all, where its shape says:
 * so bits do not depend on n_threads. In fp32 tiles of 256 x 384 cost up to 2 % against
 * one whole call (Zen 4, 97-114 GFLOP/s at GPT-2's shapes), give a second thread half of
 * what a small batch has (256 x 768), and leave the tile in the second-level cache for its
 * bias. In bf16 tiles of 256 x 768 run as fast as whole products and keep oneDNN's scratch
 * small; few rows are cut into narrower ones.
 *
 * Some tiles of bf16's products are made in a room of their thread's, which stays in the
 * cache, and copied: those narrower than their matrix, as oneDNN's faster kernel writes dense
 * outputs alone; and fresh ones in fp32, gradients of weights, which are not in the cache:
 * the kernel writes few bytes to a row before it goes to the next, and copied row by row
 * they take half the time (Sapphire Rapids, 3072 x 768 of 256 rows: 2.9 ms, not 5.7).
 */
#include "exec/device/device.h"
#include "exec/operators/cpu_bf16_internal.h"
#include "exec/operators/cpu_internal.h"

#include <dnnl.h>
#include <math.h> /* NAN */
#include <omp.h>
#include <stdio.h>  /* snprintf */
#include <string.h> /* memcpy */

enum { TILE_ROWS = MIST_CPU_BF16_TILE_ROWS, TILE_COLUMNS = MIST_CPU_BF16_TILE_COLUMNS };
enum { BIAS_ROWS = 64, BIAS_COLUMNS = 256 };

/* ----------------------------------------------------------------------------- product */

void mist_cpu_sgemm(const struct mist_cpu_product *of, const float *a, const float *b,
                    float *c)
{
    bool turns_a = mist_cpu_is_turned(of->a_strides, of->k),
         turns_b = mist_cpu_is_turned(of->b_strides, of->n);
    /* oneDNN takes its thread count from the calling task's setting. */
    int n_threads_before = omp_get_max_threads();
    if (n_threads_before != 1)
        omp_set_num_threads(1);
    dnnl_status_t status =
        dnnl_sgemm(turns_a ? 'T' : 'N', turns_b ? 'T' : 'N', of->m, of->n, of->k, 1.0f, a,
                   of->a_strides[turns_a], b, of->b_strides[turns_b],
                   of->adds ? 1.0f : 0.0f, c, of->c_stride);
    if (n_threads_before != 1)
        omp_set_num_threads(n_threads_before);
    for (int64_t i = 0; status != dnnl_success && i < of->m; i++)
        for (int64_t j = 0; j < of->n; j++)
            c[i * of->c_stride + j] = NAN;
}

/* ------------------------------------------------------------------------------- tiles */

/* One operand: its first element, and how far apart rows and columns lie. */
struct operand {
    const void *data;
    int64_t strides[2];
};

/* c [m, n], dense; elements of c_bytes. */
struct tiled {
    struct mist_cpu_bf16 *context; /* NULL: all is fp32 */
    struct operand a, b;
    void *c;
    int64_t c_bytes;
    const void *bias;   /* [n] or NULL */
    const void *addend; /* as c, which it may be; NULL: none */
    int64_t m, n, k;
};

static int64_t columns_of_tile(const struct tiled *x)
{
    return x->context && x->m > TILE_ROWS ? TILE_COLUMNS : TILE_COLUMNS / 2;
}

/* Fresh tiles of few rows may not: dense outputs would get another kernel than those that
 * are added to, and other bits. */
static bool is_made_apart(const struct tiled *x)
{
    if (x->c_bytes == sizeof(mist_bf16))
        return x->n > columns_of_tile(x);
    return x->context && !x->addend && x->m > TILE_ROWS;
}

static struct mist_cpu_product product_of(const struct tiled *x, int64_t m, int64_t n)
{
    return (struct mist_cpu_product){
        .m = m,
        .n = n,
        .k = x->k,
        .a_strides = {x->a.strides[0], x->a.strides[1]},
        .b_strides = {x->b.strides[0], x->b.strides[1]},
        .c_stride = is_made_apart(x) ? n : x->n,
        .is_float = x->c_bytes == sizeof(float),
        .adds = x->addend != NULL,
        .has_bias = x->bias != NULL,
    };
}

/* products[i_edge][j_edge]: of whole tiles and of those at the lower and right edge. */
static bool find_products(const struct tiled *x, size_t products[2][2])
{
    int64_t columns = columns_of_tile(x);
    for (int i = 0; x->context && i < 2; i++)
        for (int j = 0; j < 2; j++) {
            int64_t m = i == 0 ? TILE_ROWS : x->m % TILE_ROWS;
            int64_t n = j == 0 ? columns : x->n % columns;
            const struct mist_cpu_product product = product_of(x, m, n);
            bool occurs = m > 0 && m <= x->m && n > 0 && n <= x->n;
            if (occurs &&
                !mist_cpu_bf16_find_product(x->context, &product, &products[i][j]))
                return false;
        }
    return true;
}

static void copy_rows(char *to, int64_t to_bytes, const char *from, int64_t from_bytes,
                      int64_t n_rows, size_t n_bytes)
{
    for (int64_t i = 0; i < n_rows; i++)
        memcpy(to + i * to_bytes, from + i * from_bytes, n_bytes);
}

/* The product of a tile of m x n; made: where it goes. */
static bool multiply_tile(const struct tiled *x, size_t i_product, int64_t m, int64_t n,
                          int64_t i, int64_t j, void *made)
{
    int64_t a = i * x->a.strides[0], b = j * x->b.strides[1];
    if (x->context)
        return mist_cpu_bf16_execute(x->context, i_product, omp_get_thread_num(),
                                     (const mist_bf16 *)x->a.data + a,
                                     (const mist_bf16 *)x->b.data + b, made,
                                     x->bias ? (const mist_bf16 *)x->bias + j : NULL);
    const struct mist_cpu_product product = product_of(x, m, n);
    float room[(TILE_ROWS + TILE_COLUMNS / 2) * MIST_CPU_PACKED_K];
    mist_cpu_multiply_packed(&product, false, (const float *)x->a.data + a,
                             (const float *)x->b.data + b, made,
                             x->bias ? (const float *)x->bias + j : NULL, room);
    mist_device_give_turn();
    return true;
}

/* The tile from row i and column j on; products as find_products(). */
static bool make_tile(const struct tiled *x, size_t products[2][2], int64_t i, int64_t j)
{
    bool is_apart = is_made_apart(x);
    int64_t columns = columns_of_tile(x);
    int64_t m = mist_cpu_min(x->m - i, TILE_ROWS), n = mist_cpu_min(x->n - j, columns);
    int64_t row_bytes = x->n * x->c_bytes, first = (i * x->n + j) * x->c_bytes,
            n_bytes = n * x->c_bytes;
    char *c = (char *)x->c + first, *made = c;

    if (is_apart)
        made = mist_cpu_bf16_tile(x->context, omp_get_thread_num());
    if (x->addend && (is_apart || x->addend != x->c))
        copy_rows(made, is_apart ? n_bytes : row_bytes, (const char *)x->addend + first,
                  row_bytes, m, (size_t)n_bytes);
    bool did = multiply_tile(x, products[m < TILE_ROWS][n < columns], m, n, i, j, made);
    if (is_apart)
        copy_rows(c, row_bytes, made, n_bytes, m, (size_t)n_bytes);
    return did;
}

static bool make_tiles(const struct tiled *x, int n_threads)
{
    size_t products[2][2] = {{0}};
    int64_t columns = columns_of_tile(x), n_rows = mist_cpu_n_chunks(x->m, TILE_ROWS);
    int64_t n_tiles = n_rows * mist_cpu_n_chunks(x->n, columns);
    bool is_ok = find_products(x, products);

    if (!is_ok)
        return false;
#pragma omp parallel num_threads(n_threads) reduction(&& : is_ok)
    {
        omp_set_num_threads(1); /* of this task: oneDNN starts no threads within */
#pragma omp for schedule(dynamic, 1)
        for (int64_t t = 0; t < n_tiles; t++) {
            bool did =
                make_tile(x, products, t % n_rows * TILE_ROWS, t / n_rows * columns);
            is_ok = is_ok && did;
        }
    }
    return is_ok;
}

static void multiply(const struct tiled *x, int n_threads)
{
    if (x->m > 0 && x->n > 0 && !make_tiles(x, n_threads))
        memset(x->c, 0xFF, (size_t)(x->m * x->n * x->c_bytes)); /* NaN in both types */
}

/* ----------------------------------------------------------------------------- linear */

void mist_cpu_linear_forward(struct mist_cpu_bf16 *context, void *y, const void *x,
                             const void *weight, const void *bias, const void *residual,
                             int64_t rows, int64_t n_in, int64_t n_out, int n_threads)
{
    const struct tiled product = {.context = context,
                                  .a = {x, {n_in, 1}},
                                  .b = {weight, {1, n_in}},
                                  .c = y,
                                  .c_bytes = mist_cpu_element_bytes(context != NULL),
                                  .bias = bias,
                                  .addend = residual,
                                  .m = rows,
                                  .n = n_out,
                                  .k = n_in};
    multiply(&product, n_threads);
}

void mist_cpu_linear_backward_input(struct mist_cpu_bf16 *context, void *dx,
                                    const void *dy, const void *weight,
                                    const void *residual, int64_t rows, int64_t n_in,
                                    int64_t n_out, int n_threads)
{
    const struct tiled product = {.context = context,
                                  .a = {dy, {n_out, 1}},
                                  .b = {weight, {n_in, 1}},
                                  .c = dx,
                                  .c_bytes = mist_cpu_element_bytes(context != NULL),
                                  .addend = residual,
                                  .m = rows,
                                  .n = n_in,
                                  .k = n_out};
    multiply(&product, n_threads);
}

/* dbias[first .. first + columns) += those column sums of dy, in blocks of BIAS_ROWS
 * rows; columns <= BIAS_COLUMNS. */
static void sum_columns(bool is_bf16, void *dbias, const void *dy, int64_t first,
                        int64_t rows, int64_t columns, int64_t stride, int how)
{
    float total[BIAS_COLUMNS] = {0}, room[BIAS_COLUMNS];

    for (int64_t begin = 0; begin < rows; begin += BIAS_ROWS) {
        float block[BIAS_COLUMNS] = {0};
        for (int64_t i = begin; i < mist_cpu_min(begin + BIAS_ROWS, rows); i++)
            mist_cpu_add_chunk(
                false, block, block,
                mist_cpu_from(is_bf16, room, dy, i * stride + first, columns), columns);
        mist_cpu_add_chunk(false, total, total, block, columns);
    }
    mist_cpu_leave_gradients(dbias, first, total, columns, how);
}

void mist_cpu_linear_backward_weight(struct mist_cpu_bf16 *context, void *dweight,
                                     void *dbias, const void *dy, const void *x,
                                     int64_t rows, int64_t n_in, int64_t n_out,
                                     int n_threads, int how)
{
    const struct tiled product = {
        .context = context,
        .a = {dy, {1, n_out}},
        .b = {x, {n_in, 1}},
        .c = dweight,
        .c_bytes = mist_cpu_element_bytes(how & MIST_CPU_BF16_GRADIENTS),
        .addend = how & MIST_CPU_OVERWRITES ? NULL : dweight,
        .m = n_out,
        .n = n_in,
        .k = rows};
    if (rows > 0)
        multiply(&product, n_threads);
    else if (!product.addend)
        memset(dweight, 0, (size_t)(n_out * n_in * product.c_bytes));
    if (dbias == NULL)
        return;
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t j = 0; j < n_out; j += BIAS_COLUMNS)
        sum_columns(context != NULL, dbias, dy, j, rows,
                    mist_cpu_min(n_out - j, BIAS_COLUMNS), n_out, how);
}

/* ---------------------------------------------------------------------------- report */

static const char *instruction_set(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return "AVX-512";
    if (__builtin_cpu_supports("avx2"))
        return "AVX2";
    return "SSE2";
#else
    return "generic";
#endif
}

void mist_cpu_describe(char *text, size_t size_bytes, int n_threads)
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(text, size_bytes, "oneDNN %d.%d.%d, %s, %d of %d OpenMP threads",
             version->major, version->minor, version->patch, instruction_set(), n_threads,
             omp_get_max_threads());
}
