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
#include "exec/operators/cpu_internal.h"
#include "exec/operators/cpu_kernels.h"

#include <math.h> /* logf */

enum { PIECE = MIST_CPU_LOSS_PIECE };

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

MIST_CPU_CLONES static float max_logits_clones(const float *row, int64_t n)
{
    return mist_cpu_max(row, n);
}

float mist_cpu_max_logits(const float *row, int64_t n)
{
    return max_logits_clones(row, n);
}

MIST_CPU_CLONES static void scale_logits(float *row, float factor, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        row[j] *= factor;
}

void mist_cpu_cross_entropy(float *logits, float *losses, const int32_t *targets,
                            int64_t rows, int64_t vocab, int64_t n_valid_vocab,
                            float scale, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        float *row = logits + i * vocab;
        float max = mist_cpu_max_logits(row, n_valid_vocab),
              target_logit = row[targets[i]];
        float sum = exp_logits(row, max, n_valid_vocab);
        losses[i] = logf(sum) + (max - target_logit);
        scale_logits(row, scale / sum, n_valid_vocab);
        row[targets[i]] -= scale;
        for (int64_t j = n_valid_vocab; j < vocab; j++)
            row[j] = 0.0f;
    }
}

/* ---------------------------------------------------------- a slice of the vocabulary */

/* The sum of exp(row - max) over pieces in order, without touching row. */
MIST_CPU_CLONES static float sum_exp_logits_clones(const float *row, float max, int64_t n)
{
    float sum = 0.0f, e[PIECE];
    for (int64_t begin = 0; begin < n; begin += PIECE) {
        const float *x = row + begin;
        int64_t length = n - begin < PIECE ? n - begin : PIECE;
#pragma omp simd
        for (int64_t j = 0; j < length; j++)
            e[j] = mist_cpu_exp(x[j] - max);
        sum += mist_cpu_sum(e, length);
    }
    return sum;
}

float mist_cpu_sum_exp_logits(const float *row, float max, int64_t n)
{
    return sum_exp_logits_clones(row, max, n);
}

MIST_CPU_CLONES static void scaled_exp_logits_clones(float *row, float max, float factor,
                                                     int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        row[j] = mist_cpu_exp(row[j] - max) * factor;
}

void mist_cpu_scaled_exp_logits(float *row, float max, float factor, int64_t n)
{
    scaled_exp_logits_clones(row, max, factor, n);
}

void mist_cpu_cross_entropy_stats(float *stats, const float *logits,
                                  const int32_t *targets, int64_t rows, int64_t n_local,
                                  int64_t n_valid_local, int64_t first_token,
                                  int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        const float *row = logits + i * n_local;
        int64_t target = targets[i] - first_token;
        float max =
            n_valid_local > 0 ? mist_cpu_max_logits(row, n_valid_local) : -INFINITY;
        stats[3 * i] = max;
        stats[3 * i + 1] = mist_cpu_sum_exp_logits(row, max, n_valid_local);
        stats[3 * i + 2] = target >= 0 && target < n_valid_local ? row[target] : 0.0f;
    }
}

void mist_cpu_combine_cross_entropy_stats(float combined[3], const float *all_stats,
                                          int64_t i_row, int64_t rows, int64_t tp)
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

void mist_cpu_cross_entropy_parallel(float *logits, float *losses, const int32_t *targets,
                                     const float *all_stats, int64_t rows,
                                     int64_t n_local, int64_t n_valid_local,
                                     int64_t first_token, int64_t tp, float scale,
                                     int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        float *row = logits + i * n_local, combined[3];
        int64_t target = targets[i] - first_token;
        mist_cpu_combine_cross_entropy_stats(combined, all_stats, i, rows, tp);
        losses[i] = logf(combined[1]) + (combined[0] - combined[2]);
        mist_cpu_scaled_exp_logits(row, combined[0], scale / combined[1], n_valid_local);
        if (target >= 0 && target < n_valid_local)
            row[target] -= scale;
        for (int64_t j = n_valid_local; j < n_local; j++)
            row[j] = 0.0f;
    }
}
