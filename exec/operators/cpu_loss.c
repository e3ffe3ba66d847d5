/*
 * Cross-entropy of logits, turned into its gradient in place, one row per task.
 *
 * Three passes over a row that the second-level cache holds up to a vocabulary of about
 * 200,000: maximum; exp and its sum, in pieces that stay in the first-level cache;
 * scaling. Where the vocabulary is cut over ranks the second pass cannot keep its
 * exponentials, since the maximum of the other slices is still unknown; the last one
 * takes them again (Shoeybi et al. 2019, section 3, communicate the same three numbers
 * per row).
 */
#include "exec/operators/cpu_bf16_internal.h"
#include "exec/operators/cpu_internal.h"

#include <math.h> /* INFINITY, logf */

enum { PIECE = 2048 };

/* row[0 .. n) = exp(row - max); returns the sum, over pieces in order. */
MIST_CPU_CLONES static float exp_logits(float *row, float max, int64_t n)
{
    float sum = 0.0f;
    for (int64_t begin = 0; begin < n; begin += PIECE) {
        float *x = row + begin;
        int64_t length = n - begin < PIECE ? n - begin : PIECE;
#pragma omp simd
        for (int64_t j = 0; j < length; j++)
            x[j] = mist_cpu_exp(x[j] - max);
        sum += mist_cpu_sum(x, length);
    }
    return sum;
}

MIST_CPU_CLONES static float max_logits(const float *row, int64_t n)
{
    return mist_cpu_max(row, n);
}

/* The sum of exp(x - max) of a piece, without touching it. */
MIST_CPU_CLONES static float sum_exp_logits(const float *x, float max, int64_t n)
{
    float e[PIECE];
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        e[j] = mist_cpu_exp(x[j] - max);
    return mist_cpu_sum(e, n);
}

MIST_CPU_CLONES static void scaled_exp_logits(float *out, const float *x, float max,
                                              float factor, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        out[j] = mist_cpu_exp(x[j] - max) * factor;
}

/* ------------------------------------------------------------------ a row, by pieces */

/* Maximum, sum of exp(l - maximum), and the logit of target (0: not in this row). */
static void row_stats(bool is_bf16, float stats[3], const void *logits, int64_t first,
                      int64_t n, int64_t target)
{
    float room[PIECE], max = -INFINITY, sum = 0.0f;

    for (int64_t j = 0; j < n; j += PIECE) {
        int64_t length = mist_cpu_min(PIECE, n - j);
        float piece_max =
            max_logits(mist_cpu_from(is_bf16, room, logits, first + j, length), length);
        max = piece_max > max ? piece_max : max;
    }
    for (int64_t j = 0; j < n; j += PIECE) {
        int64_t length = mist_cpu_min(PIECE, n - j);
        sum += sum_exp_logits(mist_cpu_from(is_bf16, room, logits, first + j, length),
                              max, length);
    }
    stats[0] = max;
    stats[1] = sum;
    stats[2] = 0.0f;
    if (target >= 0 && target < n)
        stats[2] = *mist_cpu_from(is_bf16, room, logits, first + target, 1);
}

/* The first n_valid of n logits become exp(row - max) * scale / sum, less scale at the
 * target, the others 0. Returns the loss. */
static float finish_row(bool is_bf16, void *logits, int64_t first, const float stats[3],
                        int64_t n, int64_t n_valid, int64_t target, float scale)
{
    int64_t size = mist_cpu_element_bytes(is_bf16);
    float room[PIECE], factor = scale / stats[1];

    for (int64_t j = 0; j < n_valid; j += PIECE) {
        int64_t length = mist_cpu_min(PIECE, n_valid - j);
        float *to = mist_cpu_to(is_bf16, room, logits, first + j);
        scaled_exp_logits(to, mist_cpu_from(is_bf16, room, logits, first + j, length),
                          stats[0], factor, length);
        if (target >= j && target < j + length)
            to[target - j] -= scale;
        mist_cpu_done(is_bf16, logits, first + j, to, length);
    }
    memset((char *)logits + (first + n_valid) * size, 0, (size_t)((n - n_valid) * size));
    return logf(stats[1]) + (stats[0] - stats[2]);
}

/* In fp32 a row keeps its exponentials. */
static float finish_float_row(float *row, int64_t n, int64_t n_valid, int64_t target,
                              float scale)
{
    float max = max_logits(row, n_valid), target_logit = target < 0 ? 0 : row[target];
    float sum = exp_logits(row, max, n_valid);

    mist_cpu_scale_chunk(row, scale / sum, n_valid);
    if (target >= 0)
        row[target] -= scale;
    memset(row + n_valid, 0, (size_t)(n - n_valid) * sizeof *row);
    return logf(sum) + (max - target_logit);
}

/* A row without target takes no part: no gradient, no loss. */
static float slope_of(int32_t target, float scale)
{
    return target < 0 ? 0.0f : scale;
}

static float loss_of(int32_t target, float loss)
{
    return target < 0 ? 0.0f : loss;
}

void mist_cpu_cross_entropy(bool is_bf16, void *logits, float *losses,
                            const int32_t *targets, int64_t rows, int64_t vocab,
                            int64_t n_valid_vocab, float scale, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        float stats[3], loss, slope = slope_of(targets[i], scale);
        if (is_bf16) {
            row_stats(is_bf16, stats, logits, i * vocab, n_valid_vocab, targets[i]);
            loss = finish_row(is_bf16, logits, i * vocab, stats, vocab, n_valid_vocab,
                              targets[i], slope);
        } else {
            loss = finish_float_row((float *)logits + i * vocab, vocab, n_valid_vocab,
                                    targets[i], slope);
        }
        losses[i] = loss_of(targets[i], loss);
    }
}

/* ---------------------------------------------------------- a slice of the vocabulary */

void mist_cpu_cross_entropy_stats(bool is_bf16, float *stats, const void *logits,
                                  const int32_t *targets, int64_t rows, int64_t n_local,
                                  int64_t n_valid_local, int64_t first_token,
                                  int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        row_stats(is_bf16, stats + 3 * i, logits, i * n_local, n_valid_local,
                  targets[i] - first_token);
}

/* Maximum, sum and target logit of a row of all_stats [tp, rows, 3], slices in order. */
static void combine_stats(float combined[3], const float *all_stats, int64_t i_row,
                          int64_t rows, int64_t tp)
{
    float max = -INFINITY, sum = 0.0f, target_logit = 0.0f;
    for (int64_t t = 0; t < tp; t++) {
        const float *slice = all_stats + (t * rows + i_row) * 3;
        max = slice[0] > max ? slice[0] : max;
    }
    for (int64_t t = 0; t < tp; t++) {
        const float *slice = all_stats + (t * rows + i_row) * 3;
        sum += slice[1] * mist_cpu_exp(slice[0] - max);
        target_logit += slice[2];
    }
    combined[0] = max;
    combined[1] = sum;
    combined[2] = target_logit;
}

void mist_cpu_cross_entropy_parallel(bool is_bf16, void *logits, float *losses,
                                     const int32_t *targets, const float *all_stats,
                                     int64_t rows, int64_t n_local, int64_t n_valid_local,
                                     int64_t first_token, int64_t tp, float scale,
                                     int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        float stats[3];
        combine_stats(stats, all_stats, i, rows, tp);
        float loss =
            finish_row(is_bf16, logits, i * n_local, stats, n_local, n_valid_local,
                       (int64_t)targets[i] - first_token, slope_of(targets[i], scale));
        losses[i] = loss_of(targets[i], loss);
    }
}
