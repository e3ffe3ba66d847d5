/*
 * Cross-entropy of logits, turned into its gradient in place, one row per task.
 *
 * Three passes over a row that the second-level cache holds up to a vocabulary of about
 * 200,000: maximum; exp and its sum, in pieces that stay in the first-level cache;
 * scaling.
 */
#include "exec/cpu_internal.h"
#include "exec/cpu_kernels.h"

#include <math.h> /* logf */

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
        float max = max_logits(row, n_valid_vocab), target_logit = row[targets[i]];
        float sum = exp_logits(row, max, n_valid_vocab);
        losses[i] = logf(sum) + (max - target_logit);
        scale_logits(row, scale / sum, n_valid_vocab);
        row[targets[i]] -= scale;
        for (int64_t j = n_valid_vocab; j < vocab; j++)
            row[j] = 0.0f;
    }
}
