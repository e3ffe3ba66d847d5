/*
 * Token and position embedding, of a whole vocabulary or of a slice of it.
 *
 * A token of another slice counts as a row of zeros, which the sum over the slices fills.
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

/* The row of a token in a slice of the vocabulary; -1 if it lies in another. */
MIST_CPU_INLINE int64_t row_of_token(int32_t token, int64_t first_token, int64_t n_local)
{
    int64_t row = token - first_token;
    return row >= 0 && row < n_local ? row : -1;
}

void mist_cpu_embedding_slice_forward(float *out, const int32_t *tokens, const float *wte,
                                      const float *wpe, int64_t rows, int64_t s,
                                      int64_t h, int64_t first_token, int64_t n_local,
                                      int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        int64_t row = row_of_token(tokens[i], first_token, n_local);
        const float *position_row = wpe == NULL ? NULL : wpe + i % s * h;
        if (row >= 0 && wpe != NULL)
            add_rows(out + i * h, wte + row * h, position_row, h);
        else if (row >= 0 || wpe != NULL)
            memcpy(out + i * h, row >= 0 ? wte + row * h : position_row,
                   (size_t)h * sizeof *out);
        else
            memset(out + i * h, 0, (size_t)h * sizeof *out);
    }
}

void mist_cpu_embedding_forward(float *out, const int32_t *tokens, const float *wte,
                                const float *wpe, int64_t rows, int64_t s, int64_t h,
                                int n_threads)
{
    mist_cpu_embedding_slice_forward(out, tokens, wte, wpe, rows, s, h, 0, INT64_MAX,
                                     n_threads);
}

MIST_CPU_INLINE void add_row(float *sum, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        sum[j] += x[j];
}

/* What one backward works on. */
struct scatter {
    float *dwte, *dwpe; /* dwpe may be NULL */
    const int32_t *tokens;
    const float *d_out;
    int64_t rows, s, h;
    int64_t first_token, n_local;
};

/* The columns [column, column + n) of every token's row. */
MIST_CPU_CLONES static void scatter_columns(const struct scatter *a, int64_t column,
                                            int64_t n)
{
    for (int64_t i = 0; i < a->rows; i++) {
        const float *d = a->d_out + i * a->h + column;
        int64_t row = row_of_token(a->tokens[i], a->first_token, a->n_local);
        if (row >= 0)
            add_row(a->dwte + row * a->h + column, d, n);
        if (a->dwpe != NULL)
            add_row(a->dwpe + i % a->s * a->h + column, d, n);
    }
}

void mist_cpu_embedding_slice_backward(float *dwte, float *dwpe, const int32_t *tokens,
                                       const float *d_out, int64_t rows, int64_t s,
                                       int64_t h, int64_t first_token, int64_t n_local,
                                       int n_threads)
{
    /*
     * One thread takes whole rows at once, the order of each element's sum is the same.
     */
    const struct scatter arrays = {dwte, dwpe, tokens,      d_out,  rows,
                                   s,    h,    first_token, n_local};
    int64_t width = n_threads == 1 ? h : COLUMNS;
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t j = 0; j < h; j += width)
        scatter_columns(&arrays, j, h - j < width ? h - j : width);
}

void mist_cpu_embedding_backward(float *dwte, float *dwpe, const int32_t *tokens,
                                 const float *d_out, int64_t rows, int64_t s, int64_t h,
                                 int n_threads)
{
    mist_cpu_embedding_slice_backward(dwte, dwpe, tokens, d_out, rows, s, h, 0, INT64_MAX,
                                      n_threads);
}
