/*
 * Token and position embedding.
 *
 * The backward scatters rows that may collide (a token occurs many times), so threads
 * share out columns, not tokens, and every element is summed in token order.
 */
#include "exec/cpu_internal.h"
#include "exec/cpu_kernels.h"

enum { COLUMNS = 64 };

MIST_CPU_CLONES static void add_rows(float *out, const float *a, const float *b,
                                     int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        out[j] = a[j] + b[j];
}

void mist_cpu_embedding_forward(float *out, const int32_t *tokens, const float *wte,
                                const float *wpe, int64_t rows, int64_t s, int64_t h,
                                int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        const float *token_row = wte + tokens[i] * h;
        if (wpe == NULL)
            memcpy(out + i * h, token_row, (size_t)h * sizeof *out);
        else
            add_rows(out + i * h, token_row, wpe + i % s * h, h);
    }
}

/* The columns [0, n) of every token's row; the arrays start at the first column. */
MIST_CPU_CLONES static void scatter_columns(float *dwte, float *dwpe,
                                            const int32_t *tokens, const float *d_out,
                                            int64_t rows, int64_t s, int64_t h, int64_t n)
{
    for (int64_t i = 0; i < rows; i++) {
        const float *d = d_out + i * h;
        float *token_row = dwte + tokens[i] * h;
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            token_row[j] += d[j];
        if (dwpe == NULL)
            continue;
        float *position_row = dwpe + i % s * h;
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            position_row[j] += d[j];
    }
}

void mist_cpu_embedding_backward(float *dwte, float *dwpe, const int32_t *tokens,
                                 const float *d_out, int64_t rows, int64_t s, int64_t h,
                                 int n_threads)
{
    /*
     * One thread takes whole rows at once, the order of each element's sum is the same.
     */
    int64_t width = n_threads == 1 ? h : COLUMNS;
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t j = 0; j < h; j += width)
        scatter_columns(dwte + j, dwpe == NULL ? NULL : dwpe + j, tokens, d_out + j, rows,
                        s, h, h - j < width ? h - j : width);
}
