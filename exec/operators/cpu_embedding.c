/*
 * Token and position embedding, of a whole vocabulary or of a slice of it.
 *
 * A token of another slice counts as a row of zeros, which the sum over the slices fills.
 * The backward scatters rows that may collide (a token occurs many times), so threads
 * share out columns, not tokens, and every element is summed in token order.
 */
#include "exec/operators/cpu_bf16_internal.h"
#include "exec/operators/cpu_internal.h"

enum { COLUMNS = 64, PIECE = 2048 };

/* The arguments of both directions; see cpu_kernels.h. */
struct embedding {
    bool is_bf16;
    const int32_t *tokens;
    int64_t rows, s, h;
    int64_t first_token, n_local;
};

/* The row of token i in the slice of the vocabulary; -1: it lies in another. */
static int64_t row_of(const struct embedding *of, int64_t i)
{
    int64_t row = of->tokens[i] - of->first_token;

    return row >= 0 && row < of->n_local ? row : -1;
}

void mist_cpu_embedding_slice_forward(bool is_bf16, void *out, const int32_t *tokens,
                                      const void *wte, const void *wpe, int64_t rows,
                                      int64_t s, int64_t h, int64_t first_token,
                                      int64_t n_local, int n_threads)
{
    const struct embedding of = {is_bf16, tokens, rows, s, h, first_token, n_local};
    int64_t h_bytes = h * mist_cpu_element_bytes(is_bf16);

#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        int64_t row = row_of(&of, i);
        char *to = (char *)out + i * h_bytes;
        const char *token_row = row < 0 ? NULL : (const char *)wte + row * h_bytes;
        const char *position_row =
            wpe == NULL ? NULL : (const char *)wpe + i % s * h_bytes;
        if (token_row != NULL && position_row != NULL)
            mist_cpu_add_chunk(is_bf16, to, token_row, position_row, h);
        else if (token_row != NULL || position_row != NULL)
            memcpy(to, token_row != NULL ? token_row : position_row, (size_t)h_bytes);
        else
            memset(to, 0, (size_t)h_bytes);
    }
}

/* sum += x */
MIST_CPU_CLONES static void add_bf16_to(float *sum, const mist_bf16 *x, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        sum[j] += mist_bf16_value(x[j]);
}

/* The columns [column, column + n) of every token's row. */
static void scatter_columns(const struct embedding *of, float *dwte, float *dwpe,
                            const void *d_out, int64_t column, int64_t n)
{
    for (int64_t i = 0; i < of->rows; i++) {
        int64_t at = i * of->h + column, row = row_of(of, i);
        float *sums[] = {row < 0 ? NULL : dwte + row * of->h + column,
                         dwpe == NULL ? NULL : dwpe + i % of->s * of->h + column};
        for (int k = 0; k < 2; k++)
            if (sums[k] && of->is_bf16)
                add_bf16_to(sums[k], (const mist_bf16 *)d_out + at, n);
            else if (sums[k])
                mist_cpu_add_chunk(false, sums[k], sums[k], (const float *)d_out + at, n);
    }
}

/* sum[0 .. h) += the rows of d_out in bf16, summed in fp32 piece by piece: those of
 * positions i, i + step, ..., or of them those that have token i's (is_token). */
static void add_positions(const struct embedding *of, mist_bf16 *sum,
                          const mist_bf16 *d_out, int64_t i, int64_t step, bool is_token)
{
    for (int64_t j = 0; j < of->h; j += PIECE) {
        float total[PIECE];
        int64_t n = mist_cpu_min(PIECE, of->h - j);
        mist_cpu_bf16_to_float(total, sum + j, n);
        for (int64_t k = i; k < of->rows; k += step)
            if (!is_token || of->tokens[k] == of->tokens[i])
                add_bf16_to(total, d_out + k * of->h + j, n);
        mist_cpu_bf16_from_float(sum + j, total, n);
    }
}

static bool occurs_before(const int32_t *tokens, int64_t i)
{
    for (int64_t k = 0; k < i; k++)
        if (tokens[k] == tokens[i])
            return true;
    return false;
}

/* Where gradients are bf16, all rows of a token are added up before they are rounded:
 * threads share out the tokens, by the first place of each. */
static void scatter_bf16(const struct embedding *of, mist_bf16 *dwte, mist_bf16 *dwpe,
                         const mist_bf16 *d_out, int n_threads)
{
#pragma omp parallel num_threads(n_threads)
    {
#pragma omp for schedule(dynamic, 16) nowait
        for (int64_t i = 0; i < of->rows; i++) {
            int64_t row = row_of(of, i);
            if (row >= 0 && !occurs_before(of->tokens, i))
                add_positions(of, dwte + row * of->h, d_out, i, 1, true);
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < of->s; i++)
            if (dwpe != NULL && i < of->rows)
                add_positions(of, dwpe + i * of->h, d_out, i, of->s, false);
    }
}

void mist_cpu_embedding_slice_backward(bool is_bf16, void *dwte, void *dwpe,
                                       const int32_t *tokens, const void *d_out,
                                       int64_t rows, int64_t s, int64_t h,
                                       int64_t first_token, int64_t n_local,
                                       int n_threads, int how)
{
    const struct embedding of = {is_bf16, tokens, rows, s, h, first_token, n_local};
    /* One thread takes whole rows at once, the order of each element's sum is the same. */
    int64_t width = n_threads == 1 ? h : COLUMNS;

    if (how & MIST_CPU_BF16_GRADIENTS) {
        scatter_bf16(&of, dwte, dwpe, d_out, n_threads);
        return;
    }
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t j = 0; j < h; j += width)
        scatter_columns(&of, dwte, dwpe, d_out, j, mist_cpu_min(width, h - j));
}
