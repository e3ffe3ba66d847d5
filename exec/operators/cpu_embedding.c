/*
 * Token and position embedding, of a whole vocabulary or of a slice of it.
 *
 * A token of another slice counts as a row of zeros, which the sum over the slices fills.
 * The backward adds up all rows of a token, in order, before it adds them to what there is:
 * a tied head's gradient there and one that is added later give the same bits. Lists of
 * rows by token lead from each to the next one. Threads share out the tokens, by the first
 * place of each.
 */
#include "exec/operators/cpu_bf16_internal.h"
#include "exec/operators/cpu_internal.h"

enum { PIECE = 2048 };

/* The arguments of both directions; see cpu_kernels.h. */
struct embedding {
    bool is_bf16;
    const int32_t *tokens;
    int64_t rows, s, h; /* s: tokens of a sequence that are there */
    int64_t first_token, n_local;
};

/* Rows by the remainder of their token, ascending, in the caller's workspace. */
struct lists {
    int32_t *first; /* [rows] by remainder; -1: none */
    int32_t *next;  /* [rows] by row; -1: no more */
};

/* The row of token i in the slice of the vocabulary; -1: it lies in another. */
static int64_t row_of(const struct embedding *of, int64_t i)
{
    int64_t row = of->tokens[i] - of->first_token;

    return row >= 0 && row < of->n_local ? row : -1;
}

void mist_cpu_embedding_slice_forward(bool is_bf16, void *out, const int32_t *tokens,
                                      const void *wte, const void *wpe, int64_t rows,
                                      const struct mist_chunks *chunks, int64_t h,
                                      int64_t first_token, int64_t n_local, int n_threads)
{
    int64_t s = mist_chunks_n_tokens(chunks);
    const struct embedding of = {is_bf16, tokens, rows, s, h, first_token, n_local};
    int64_t h_bytes = h * mist_cpu_element_bytes(is_bf16);

#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        int64_t row = row_of(&of, i);
        char *to = (char *)out + i * h_bytes;
        const char *token_row = row < 0 ? NULL : (const char *)wte + row * h_bytes;
        const char *position_row =
            wpe == NULL
                ? NULL
                : (const char *)wpe + mist_chunks_position(chunks, i % s) * h_bytes;
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

/* sum[0 .. n) += total, rounded before where gradients are. */
static void add_total(bool is_rounded, void *sum, const float *total, int64_t n)
{
    mist_bf16 rounded[PIECE];

    if (is_rounded)
        mist_cpu_bf16_from_float(rounded, total, n);
    mist_cpu_add_chunk(is_rounded, sum, sum, is_rounded ? rounded : (const void *)total,
                       n);
}

/* sum[0 .. h) += the sum of rows of d_out: i and those behind it of the same token, or,
 * without lists, of the same position. */
static void add_rows(const struct embedding *of, const struct lists *lists,
                     bool is_rounded, char *sum, const void *d_out, int64_t i)
{
    int64_t sum_bytes = mist_cpu_element_bytes(is_rounded);

    for (int64_t j = 0; j < of->h; j += PIECE) {
        float total[PIECE] = {0};
        int64_t n = mist_cpu_min(PIECE, of->h - j);
        for (int64_t k = i; k >= 0 && k < of->rows;
             k = lists ? lists->next[k] : k + of->s) {
            int64_t at = k * of->h + j;
            if (lists && of->tokens[k] != of->tokens[i])
                continue;
            if (of->is_bf16)
                add_bf16_to(total, (const mist_bf16 *)d_out + at, n);
            else
                mist_cpu_add_chunk(false, total, total, (const float *)d_out + at, n);
        }
        add_total(is_rounded, sum + j * sum_bytes, total, n);
    }
}

size_t mist_cpu_embedding_slice_backward_workspace_bytes(int64_t rows)
{
    return 2 * (size_t)rows * sizeof(int32_t);
}

static struct lists make_lists(const struct embedding *of, void *workspace)
{
    struct lists lists = {workspace, (int32_t *)workspace + of->rows};

    for (int64_t i = 0; i < of->rows; i++)
        lists.first[i] = -1;
    for (int64_t i = of->rows - 1; i >= 0; i--) {
        int32_t *first = &lists.first[of->tokens[i] % of->rows];
        lists.next[i] = *first;
        *first = (int32_t)i;
    }
    return lists;
}

static bool is_first(const struct embedding *of, const struct lists *lists, int64_t i)
{
    int64_t k = lists->first[of->tokens[i] % of->rows];

    while (of->tokens[k] != of->tokens[i])
        k = lists->next[k];
    return k == i;
}

void mist_cpu_embedding_slice_backward(bool is_bf16, void *dwte, void *dwpe,
                                       const int32_t *tokens, const void *d_out,
                                       int64_t rows, const struct mist_chunks *chunks,
                                       int64_t h, int64_t first_token, int64_t n_local,
                                       void *workspace, int n_threads, int how)
{
    int64_t s = mist_chunks_n_tokens(chunks);
    const struct embedding of = {is_bf16, tokens, rows, s, h, first_token, n_local};
    const struct lists lists = make_lists(&of, workspace);
    bool is_rounded = how & MIST_CPU_BF16_GRADIENTS;
    int64_t row_bytes = h * mist_cpu_element_bytes(is_rounded);

#pragma omp parallel num_threads(n_threads)
    {
#pragma omp for schedule(dynamic, 16) nowait
        for (int64_t i = 0; i < rows; i++) {
            int64_t row = row_of(&of, i);
            if (row >= 0 && is_first(&of, &lists, i))
                add_rows(&of, &lists, is_rounded, (char *)dwte + row * row_bytes, d_out,
                         i);
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < s; i++)
            if (dwpe != NULL && i < rows)
                add_rows(&of, NULL, is_rounded,
                         (char *)dwpe + mist_chunks_position(chunks, i) * row_bytes,
                         d_out, i);
    }
}
