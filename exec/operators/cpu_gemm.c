/*
 * Linear layers: matrix products on oneDNN's dnnl_sgemm (in v2 and v3 alike), and bias
 * sums.
 *
 * An output is cut into tiles of a fixed size whatever the number of threads, each
 * product runs on one thread, and the sum over k is never cut: so bits do not depend on
 * n_threads. Tiles of 256 x 384 cost up to 2 % against one whole call (Zen 4, 97-114
 * GFLOP/s at GPT-2's shapes), give a second thread half of what a small batch has (256 x
 * 768), and leave the tile in the second-level cache for its bias.
 */
#include "exec/device/device.h"
#include "exec/operators/cpu_bf16_internal.h"
#include "exec/operators/cpu_internal.h"

#include <dnnl.h>
#include <math.h> /* NAN */
#include <omp.h>
#include <stdio.h>  /* snprintf */
#include <string.h> /* memcpy */

enum { TILE_ROWS = 256, TILE_COLUMNS = 384 };
enum { BIAS_ROWS = 64, BIAS_COLUMNS = 256 };

void mist_cpu_sgemm(int64_t m, int64_t n, int64_t k, float alpha,
                    struct mist_cpu_operand a, struct mist_cpu_operand b, float beta,
                    float *c, int64_t c_stride)
{
    /* oneDNN takes its thread count from the calling task's setting. */
    int n_threads_before = omp_get_max_threads();
    if (n_threads_before != 1)
        omp_set_num_threads(1);
    dnnl_status_t status =
        dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, alpha,
                   a.data, a.stride, b.data, b.stride, beta, c, c_stride);
    if (n_threads_before != 1)
        omp_set_num_threads(n_threads_before);
    if (status == dnnl_success)
        return;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            c[i * c_stride + j] = NAN;
}

MIST_CPU_CLONES static void add_bias(float *y, const float *bias, int64_t rows,
                                     int64_t columns, int64_t stride)
{
    for (int64_t i = 0; i < rows; i++) {
        float *row = y + i * stride;
#pragma omp simd
        for (int64_t j = 0; j < columns; j++)
            row[j] += bias[j];
    }
}

/* c[m, n] (dense) = op(a) op(b) + addend (NULL: none; may be c) + bias, tile by tile. */
static void tiled_product(float *c, struct mist_cpu_operand a, struct mist_cpu_operand b,
                          const float *addend, const float *bias, int64_t m, int64_t n,
                          int64_t k, int n_threads)
{
    int64_t n_tile_rows = mist_cpu_n_chunks(m, TILE_ROWS);
    int64_t n_tiles = n_tile_rows * mist_cpu_n_chunks(n, TILE_COLUMNS);
#pragma omp parallel for num_threads(n_threads) schedule(dynamic, 1)
    for (int64_t t = 0; t < n_tiles; t++) {
        int64_t i = t % n_tile_rows * TILE_ROWS, j = t / n_tile_rows * TILE_COLUMNS;
        int64_t rows = mist_cpu_min(m - i, TILE_ROWS),
                columns = mist_cpu_min(n - j, TILE_COLUMNS);
        struct mist_cpu_operand ta = a, tb = b;
        ta.data += a.transposed ? i : i * a.stride;
        tb.data += b.transposed ? j * b.stride : j;
        for (int64_t l = i; addend != NULL && addend != c && l < i + rows; l++)
            memcpy(c + l * n + j, addend + l * n + j, (size_t)columns * sizeof *c);
        mist_cpu_sgemm(rows, columns, k, 1.0f, ta, tb, addend != NULL ? 1.0f : 0.0f,
                       c + i * n + j, n);
        if (bias != NULL)
            add_bias(c + i * n + j, bias + j, rows, columns, n);
        mist_device_give_turn();
    }
}

void mist_cpu_linear_forward(float *y, const float *x, const float *weight,
                             const float *bias, const float *residual, int64_t rows,
                             int64_t n_in, int64_t n_out, int n_threads)
{
    struct mist_cpu_operand a = {x, n_in, false}, b = {weight, n_in, true};
    tiled_product(y, a, b, residual, bias, rows, n_out, n_in, n_threads);
}

void mist_cpu_linear_backward_input(float *dx, const float *dy, const float *weight,
                                    const float *residual, int64_t rows, int64_t n_in,
                                    int64_t n_out, int n_threads)
{
    struct mist_cpu_operand a = {dy, n_out, false}, b = {weight, n_in, false};
    tiled_product(dx, a, b, residual, NULL, rows, n_in, n_out, n_threads);
}

MIST_CPU_CLONES static void add_to(float *sum, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        sum[j] += x[j];
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
            add_to(block, mist_cpu_from(is_bf16, room, dy, i * stride + first, columns),
                   columns);
        add_to(total, block, columns);
    }
    mist_cpu_leave_gradients(dbias, first, total, columns, how);
}

void mist_cpu_sum_columns(bool is_bf16, void *dbias, const void *dy, int64_t rows,
                          int64_t n, int n_threads, int how)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t j = 0; j < n; j += BIAS_COLUMNS)
        sum_columns(is_bf16, dbias, dy, j, rows, mist_cpu_min(n - j, BIAS_COLUMNS), n,
                    how);
}

void mist_cpu_linear_backward_weight(float *dweight, float *dbias, const float *dy,
                                     const float *x, int64_t rows, int64_t n_in,
                                     int64_t n_out, int n_threads, int how)
{
    struct mist_cpu_operand a = {dy, n_out, true}, b = {x, n_in, false};
    tiled_product(dweight, a, b, how & MIST_CPU_OVERWRITES ? NULL : dweight, NULL, n_out,
                  n_in, rows, n_threads);
    if (dbias != NULL)
        mist_cpu_sum_columns(false, dbias, dy, rows, n_out, n_threads, how);
}

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
