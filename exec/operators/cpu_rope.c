/* Rotary position embedding. */
#include "exec/operators/cpu_bf16_internal.h"
#include "exec/operators/cpu_internal.h"

#include <math.h> /* cos, sin */

void mist_cpu_rope_fill(float *table, const struct mist_chunks *chunks,
                        const struct mist_model *model)
{
    int64_t head_dim = model->head_dim, half = head_dim / 2;
    int64_t s = mist_chunks_n_tokens(chunks);

    for (int64_t j = 0; j < half; j++) {
        double frequency = mist_model_rope_frequency(model, (int32_t)j);
        for (int64_t i = 0; i < s; i++) {
            double position = (double)mist_chunks_position(chunks, i);
            table[i * head_dim + j] = (float)cos(position * frequency);
            table[i * head_dim + half + j] = (float)sin(position * frequency);
        }
    }
}

/* Turns n_heads consecutive heads of one token; direction -1 turns back. */
MIST_CPU_CLONES static void rotate_heads(float *x, const float *table, int64_t n_heads,
                                         int64_t half, float direction)
{
    const float *cosine = table, *sine = table + half;
    for (int64_t i = 0; i < n_heads; i++) {
        float *lo = x + i * 2 * half, *hi = lo + half;
#pragma omp simd
        for (int64_t j = 0; j < half; j++) {
            float a = lo[j], b = hi[j], c = cosine[j], d = direction * sine[j];
            lo[j] = a * c - b * d;
            hi[j] = b * c + a * d;
        }
    }
}

MIST_CPU_CLONES static void rotate_bf16_heads(mist_bf16 *x, const float *table,
                                              int64_t n_heads, int64_t half,
                                              float direction)
{
    const float *cosine = table, *sine = table + half;
    for (int64_t i = 0; i < n_heads; i++) {
        mist_bf16 *lo = x + i * 2 * half, *hi = lo + half;
#pragma omp simd
        for (int64_t j = 0; j < half; j++) {
            float a = mist_bf16_value(lo[j]), b = mist_bf16_value(hi[j]);
            float c = cosine[j], d = direction * sine[j];
            lo[j] = mist_bf16_round(a * c - b * d);
            hi[j] = mist_bf16_round(b * c + a * d);
        }
    }
}

void mist_cpu_rope(bool is_bf16, void *qkv, const float *table,
                   const struct mist_cpu_attention *shape, bool is_backward,
                   int n_threads)
{
    float direction = is_backward ? -1.0f : 1.0f;
    int64_t n_tokens = shape->b * shape->s, half = shape->head_dim / 2;
    int64_t n_heads = shape->heads + shape->kv_heads;
    int64_t token = (n_heads + shape->kv_heads) * shape->head_dim;

#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n_tokens; i++) {
        const float *turns = table + i % shape->s * shape->head_dim;
        if (is_bf16)
            rotate_bf16_heads((mist_bf16 *)qkv + i * token, turns, n_heads, half,
                              direction);
        else
            rotate_heads((float *)qkv + i * token, turns, n_heads, half, direction);
    }
}
