/*
 * Token and position embedding, of a whole vocabulary or of a slice of it.
 *
 * A token of another slice counts as a row of zeros, which the sum over the slices fills.
 * The backward scatters rows that may collide (a token occurs many times), so threads
 * share out columns, not tokens, and every element is summed in token order.
 */
#include "exec/operators/cpu_internal.h"
#include "exec/operators/cpu_kernels.h"

enum { COLUMNS = 64 };

/* ---------------------------------------------------------------- any number format */

int64_t mist_cpu_embedding_row(const struct mist_cpu_embedding *of, int64_t i)
{
    int64_t row = of->tokens[i] - of->first_token;

    return row >= 0 && row < of->n_local ? row : -1;
}

void mist_cpu_embed(const struct mist_cpu_embedding *of, void *out, const void *wte,
                    const void *wpe, int n_threads)
{
    int64_t h_bytes = of->h * of->format->element_bytes;

#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < of->rows; i++) {
        int64_t row = mist_cpu_embedding_row(of, i);
        char *to = (char *)out + i * h_bytes;
        const char *token_row = row < 0 ? NULL : (const char *)wte + row * h_bytes;
        const char *position_row =
            wpe == NULL ? NULL : (const char *)wpe + i % of->s * h_bytes;
        if (token_row != NULL && position_row != NULL)
            of->format->add_rows(to, token_row, position_row, of->h);
        else if (token_row != NULL || position_row != NULL)
            memcpy(to, token_row != NULL ? token_row : position_row, (size_t)h_bytes);
        else
            memset(to, 0, (size_t)h_bytes);
    }
}

/* The columns [column, column + n) of every token's row. */
static void scatter_columns(const struct mist_cpu_embedding *of, float *dwte, float *dwpe,
                            const char *d_out, int64_t column, int64_t n)
{
    for (int64_t i = 0; i < of->rows; i++) {
        const char *d = d_out + (i * of->h + column) * of->format->element_bytes;
        int64_t row = mist_cpu_embedding_row(of, i);
        if (row >= 0)
            of->format->add_to(dwte + row * of->h + column, d, n);
        if (dwpe != NULL)
            of->format->add_to(dwpe + i % of->s * of->h + column, d, n);
    }
}

void mist_cpu_embed_backward(const struct mist_cpu_embedding *of, float *dwte,
                             float *dwpe, const void *d_out, int n_threads)
{
    /*
     * One thread takes whole rows at once, the order of each element's sum is the same.
     */
    int64_t width = n_threads == 1 ? of->h : COLUMNS;

#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t j = 0; j < of->h; j += width)
        scatter_columns(of, dwte, dwpe, d_out, j, of->h - j < width ? of->h - j : width);
}

/* ------------------------------------------------------------------------------ fp32 */

MIST_CPU_CLONES static void add_rows(void *out, const void *a, const void *b, int64_t n)
{
    const float *x = a, *y = b;
    float *to = out;

#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        to[j] = x[j] + y[j];
}

MIST_CPU_CLONES static void add_float_to(float *sum, const void *x, int64_t n)
{
    const float *d = x;

#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        sum[j] += d[j];
}

static const struct mist_cpu_embedding_format fp32 = {sizeof(float), add_rows,
                                                      add_float_to};

void mist_cpu_embedding_slice_forward(float *out, const int32_t *tokens, const float *wte,
                                      const float *wpe, int64_t rows, int64_t s,
                                      int64_t h, int64_t first_token, int64_t n_local,
                                      int n_threads)
{
    const struct mist_cpu_embedding of = {&fp32, tokens,      rows,   s,
                                          h,     first_token, n_local};

    mist_cpu_embed(&of, out, wte, wpe, n_threads);
}

void mist_cpu_embedding_slice_backward(float *dwte, float *dwpe, const int32_t *tokens,
                                       const float *d_out, int64_t rows, int64_t s,
                                       int64_t h, int64_t first_token, int64_t n_local,
                                       int n_threads, int how)
{
    const struct mist_cpu_embedding of = {&fp32, tokens,      rows,   s,
                                          h,     first_token, n_local};

    (void)how;
    mist_cpu_embed_backward(&of, dwte, dwpe, d_out, n_threads);
}

void mist_cpu_embedding_forward(float *out, const int32_t *tokens, const float *wte,
                                const float *wpe, int64_t rows, int64_t s, int64_t h,
                                int n_threads)
{
    mist_cpu_embedding_slice_forward(out, tokens, wte, wpe, rows, s, h, 0, INT64_MAX,
                                     n_threads);
}

void mist_cpu_embedding_backward(float *dwte, float *dwpe, const int32_t *tokens,
                                 const float *d_out, int64_t rows, int64_t s, int64_t h,
                                 int n_threads)
{
    mist_cpu_embedding_slice_backward(dwte, dwpe, tokens, d_out, rows, s, h, 0, INT64_MAX,
                                      n_threads, 0);
}
