/*
 * bf16: cross-entropy, whole and over slices of the vocabulary, in pieces that are
 * converted on the stack. Pieces are those of the fp32 kernel, so that losses have its
 * bits.
 */
#include "exec/operators/cpu_bf16_internal.h"

#include <math.h> /* INFINITY, logf */

enum { PIECE = MIST_CPU_LOSS_PIECE };

static int64_t piece_length(int64_t begin, int64_t n)
{
    return n - begin < PIECE ? n - begin : PIECE;
}

/* Maximum, sum of exp(l - maximum), and the logit of target (0: not in this row). */
static void row_stats(float stats[3], const mist_bf16 *row, int64_t n, int64_t target)
{
    float piece[PIECE], max = -INFINITY, sum = 0.0f;
    for (int64_t j = 0; j < n; j += PIECE) {
        mist_cpu_bf16_load(piece, row + j, piece_length(j, n));
        float piece_max = mist_cpu_max_logits(piece, piece_length(j, n));
        max = piece_max > max ? piece_max : max;
    }
    for (int64_t j = 0; j < n; j += PIECE) {
        mist_cpu_bf16_load(piece, row + j, piece_length(j, n));
        sum += mist_cpu_sum_exp_logits(piece, max, piece_length(j, n));
    }
    stats[0] = max;
    stats[1] = sum;
    stats[2] = target >= 0 && target < n ? mist_cpu_bf16_value(row[target]) : 0.0f;
}

/* row[0 .. n) = exp(row - max) * scale / sum, less scale at the target, rounded once. */
static void row_gradient(mist_bf16 *row, const float stats[3], int64_t n, int64_t target,
                         float scale)
{
    float piece[PIECE], factor = scale / stats[1];
    for (int64_t j = 0; j < n; j += PIECE) {
        int64_t length = piece_length(j, n);
        mist_cpu_bf16_load(piece, row + j, length);
        mist_cpu_scaled_exp_logits(piece, stats[0], factor, length);
        if (target >= j && target < j + length)
            piece[target - j] -= scale;
        mist_cpu_bf16_store(row + j, piece, length);
    }
}

void mist_cpu_bf16_cross_entropy_stats(float *stats, const mist_bf16 *logits,
                                       const int32_t *targets, int64_t rows,
                                       int64_t n_local, int64_t n_valid_local,
                                       int64_t first_token, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        row_stats(stats + 3 * i, logits + i * n_local, n_valid_local,
                  targets[i] - first_token);
}

/* What follows once a row's statistics are known. */
static float finish_row(mist_bf16 *row, const float stats[3], int64_t n, int64_t n_valid,
                        int64_t target, float scale)
{
    row_gradient(row, stats, n_valid, target, scale);
    memset(row + n_valid, 0, (size_t)(n - n_valid) * sizeof *row);
    return logf(stats[1]) + (stats[0] - stats[2]);
}

void mist_cpu_bf16_cross_entropy_parallel(mist_bf16 *logits, float *losses,
                                          const int32_t *targets, const float *all_stats,
                                          int64_t rows, int64_t n_local,
                                          int64_t n_valid_local, int64_t first_token,
                                          int64_t tp, float scale, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        float stats[3];
        mist_cpu_combine_cross_entropy_stats(stats, all_stats, i, rows, tp);
        losses[i] = finish_row(logits + i * n_local, stats, n_local, n_valid_local,
                               targets[i] - first_token, scale);
    }
}

void mist_cpu_bf16_cross_entropy(mist_bf16 *logits, float *losses, const int32_t *targets,
                                 int64_t rows, int64_t vocab, int64_t n_valid_vocab,
                                 float scale, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        float stats[3];
        row_stats(stats, logits + i * vocab, n_valid_vocab, targets[i]);
        losses[i] = finish_row(logits + i * vocab, stats, vocab, n_valid_vocab,
                               targets[i], scale);
    }
}
