/*
 * bf16: linear layers as tiles of products.
 *
 * As in cpu_gemm.c an output is cut into tiles of a fixed size, each product runs on one
 * thread, and the sum over k is never cut: so bits do not depend on n_threads. Tiles of
 * 256 x 768 run as fast as whole products and keep oneDNN's scratch small. Few rows are
 * cut into narrower ones, so that a small batch of GPT-2 (256 x 768) has two.
 *
 * oneDNN's faster kernel writes dense outputs alone. A tile of bf16 that is narrower than
 * its matrix is made in a room of its thread's, which stays in the cache, and copied.
 */
#include "exec/operators/cpu_bf16_internal.h"

#include <omp.h>

enum { TILE_ROWS = MIST_CPU_BF16_TILE_ROWS, TILE_COLUMNS = MIST_CPU_BF16_TILE_COLUMNS };

/* One operand: its first element, and how far apart rows and columns lie. */
struct operand {
    const mist_bf16 *data;
    int64_t row_stride, column_stride;
};

/* c [m, n], dense; elements of c_bytes. */
struct tiled {
    struct operand a, b;
    void *c;
    int64_t c_bytes;
    const mist_bf16 *bias; /* [n] or NULL */
    const void *addend;    /* as c, which it may be; NULL: none */
    int64_t m, n, k;
};

static int64_t columns_of_tile(const struct tiled *x)
{
    return x->m > TILE_ROWS ? TILE_COLUMNS : TILE_COLUMNS / 2;
}

static bool is_made_apart(const struct tiled *x)
{
    return x->c_bytes == sizeof(mist_bf16) && x->n > columns_of_tile(x);
}

/* products[i_edge][j_edge]: of whole tiles and of those at the lower and right edge. */
static bool find_products(struct mist_cpu_bf16 *context, const struct tiled *x,
                          size_t products[2][2])
{
    int64_t columns = columns_of_tile(x);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            int64_t m = i == 0 ? TILE_ROWS : x->m % TILE_ROWS;
            int64_t n = j == 0 ? columns : x->n % columns;
            const struct mist_cpu_bf16_shape shape = {
                .m = m,
                .n = n,
                .k = x->k,
                .a_strides = {x->a.row_stride, x->a.column_stride},
                .b_strides = {x->b.row_stride, x->b.column_stride},
                .c_stride = is_made_apart(x) ? n : x->n,
                .is_float = x->c_bytes == sizeof(float),
                .adds = x->addend != NULL,
                .has_bias = x->bias != NULL,
            };
            bool occurs = m > 0 && m <= x->m && n > 0 && n <= x->n;
            if (occurs && !mist_cpu_bf16_find_product(context, &shape, &products[i][j]))
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

/* The tile from row i and column j on, as thread t; products as find_products(). */
static bool multiply_tile(struct mist_cpu_bf16 *context, const struct tiled *x,
                          size_t products[2][2], int64_t i, int64_t j, int t)
{
    bool is_apart = is_made_apart(x);
    int64_t columns = columns_of_tile(x);
    int64_t m = mist_cpu_min(x->m - i, TILE_ROWS), n = mist_cpu_min(x->n - j, columns);
    int64_t row_bytes = x->n * x->c_bytes, first = (i * x->n + j) * x->c_bytes,
            n_bytes = n * x->c_bytes;
    char *c = (char *)x->c + first, *made = is_apart ? mist_cpu_bf16_tile(context, t) : c;
    if (x->addend != NULL && (is_apart || x->addend != x->c))
        copy_rows(made, is_apart ? n_bytes : row_bytes, (const char *)x->addend + first,
                  row_bytes, m, (size_t)n_bytes);
    bool did = mist_cpu_bf16_execute(
        context, products[m < TILE_ROWS][n < columns], t, x->a.data + i * x->a.row_stride,
        x->b.data + j * x->b.column_stride, made, x->bias == NULL ? NULL : x->bias + j);
    if (is_apart)
        copy_rows(c, row_bytes, made, n_bytes, m, (size_t)n_bytes);
    return did;
}

static bool multiply_tiles(struct mist_cpu_bf16 *context, const struct tiled *x,
                           int n_threads)
{
    size_t products[2][2];
    int64_t columns = columns_of_tile(x), n_rows = mist_cpu_n_chunks(x->m, TILE_ROWS);
    int64_t n_tiles = n_rows * mist_cpu_n_chunks(x->n, columns);
    bool is_ok = find_products(context, x, products);
    if (!is_ok)
        return false;
#pragma omp parallel num_threads(n_threads) reduction(&& : is_ok)
    {
        omp_set_num_threads(1); /* of this task: oneDNN starts no threads within */
#pragma omp for schedule(dynamic, 1)
        for (int64_t t = 0; t < n_tiles; t++) {
            bool did = multiply_tile(context, x, products, t % n_rows * TILE_ROWS,
                                     t / n_rows * columns, omp_get_thread_num());
            is_ok = is_ok && did;
        }
    }
    return is_ok;
}

static void multiply(struct mist_cpu_bf16 *context, const struct tiled *x, int n_threads)
{
    if (x->m == 0 || x->n == 0)
        return;
    if (!multiply_tiles(context, x, n_threads))
        memset(x->c, 0xFF, (size_t)(x->m * x->n * x->c_bytes)); /* NaN in both types */
}

/* ----------------------------------------------------------------------------- linear */

void mist_cpu_bf16_linear_forward(struct mist_cpu_bf16 *context, mist_bf16 *y,
                                  const mist_bf16 *x, const mist_bf16 *weight,
                                  const mist_bf16 *bias, const mist_bf16 *residual,
                                  int64_t rows, int64_t n_in, int64_t n_out,
                                  int n_threads)
{
    const struct tiled product = {.a = {x, n_in, 1},
                                  .b = {weight, 1, n_in},
                                  .c = y,
                                  .c_bytes = sizeof *y,
                                  .bias = bias,
                                  .addend = residual,
                                  .m = rows,
                                  .n = n_out,
                                  .k = n_in};
    multiply(context, &product, n_threads);
}

void mist_cpu_bf16_linear_backward_input(struct mist_cpu_bf16 *context, mist_bf16 *dx,
                                         const mist_bf16 *dy, const mist_bf16 *weight,
                                         const mist_bf16 *residual, int64_t rows,
                                         int64_t n_in, int64_t n_out, int n_threads)
{
    const struct tiled product = {.a = {dy, n_out, 1},
                                  .b = {weight, n_in, 1},
                                  .c = dx,
                                  .c_bytes = sizeof *dx,
                                  .addend = residual,
                                  .m = rows,
                                  .n = n_in,
                                  .k = n_out};
    multiply(context, &product, n_threads);
}

void mist_cpu_bf16_linear_backward_weight(struct mist_cpu_bf16 *context, void *dweight,
                                          void *dbias, const mist_bf16 *dy,
                                          const mist_bf16 *x, int64_t rows, int64_t n_in,
                                          int64_t n_out, int n_threads, int how)
{
    bool is_bf16 = how & MIST_CPU_BF16_GRADIENTS;
    const struct tiled product = {.a = {dy, 1, n_out},
                                  .b = {x, n_in, 1},
                                  .c = dweight,
                                  .c_bytes = is_bf16 ? sizeof(mist_bf16) : sizeof(float),
                                  .addend = how & MIST_CPU_OVERWRITES ? NULL : dweight,
                                  .m = n_out,
                                  .n = n_in,
                                  .k = rows};
    if (rows > 0)
        multiply(context, &product, n_threads);
    else if (!product.addend)
        memset(dweight, 0, (size_t)(n_out * n_in * product.c_bytes));
    if (dbias != NULL)
        mist_cpu_sum_columns(true, dbias, dy, rows, n_out, n_threads, how);
}
