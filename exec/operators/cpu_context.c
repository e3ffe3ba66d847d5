/*
 * Keys and values of context-parallel ranks: out of what a rank projects and into the
 * gradient of it, from the order of ranks into that of the sequence and back. See
 * cpu_kernels.h.
 */
#include "exec/operators/cpu_bf16_internal.h"
#include "exec/operators/cpu_internal.h"

#include <string.h>

struct kv {
    const struct mist_cpu_attention *whole;
    int64_t n_tokens;     /* of a rank in a sequence */
    int64_t bytes, token; /* of keys and values of a token; of all of it */
};

static struct kv kv_of(bool is_bf16, const struct mist_cpu_attention_part *part)
{
    const struct mist_cpu_attention *whole = &part->whole;
    int64_t head_bytes = whole->head_dim * mist_cpu_element_bytes(is_bf16);

    return (struct kv){whole, whole->s / part->n, 2 * whole->kv_heads * head_bytes,
                       (whole->heads + 2 * whole->kv_heads) * head_bytes};
}

void mist_cpu_kv_pack(bool is_bf16, void *kv, const void *qkv,
                      const struct mist_cpu_attention_part *part, int n_threads)
{
    const struct kv of = kv_of(is_bf16, part);

#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < of.whole->b * of.n_tokens; i++)
        memcpy((char *)kv + i * of.bytes,
               (const char *)qkv + (i + 1) * of.token - of.bytes, (size_t)of.bytes);
}

void mist_cpu_kv_unpack(bool is_bf16, void *dqkv, const void *dkv,
                        const struct mist_cpu_attention_part *part, int n_threads)
{
    const struct kv of = kv_of(is_bf16, part);

#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < of.whole->b * of.n_tokens; i++)
        memcpy((char *)dqkv + (i + 1) * of.token - of.bytes,
               (const char *)dkv + i * of.bytes, (size_t)of.bytes);
}

/* Chunk by chunk: number t of all ranks' chunks of all sequences. */
static void move(bool is_bf16, char *to, const char *from,
                 const struct mist_cpu_attention_part *part, bool is_back, int n_threads)
{
    const struct kv of = kv_of(is_bf16, part);
    int64_t b = of.whole->b, n_chunks = 2 * part->n;

#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t t = 0; t < b * n_chunks; t++) {
        int64_t i_rank = t / 2 / b, i_sample = t / 2 % b;
        struct mist_chunks chunks = mist_chunks_of(of.whole->s, part->n, i_rank);
        int64_t in_ranks = t * chunks.length * of.bytes;
        int64_t in_order = (i_sample * of.whole->s + chunks.first[t % 2]) * of.bytes;
        memcpy(to + (is_back ? in_ranks : in_order),
               from + (is_back ? in_order : in_ranks),
               (size_t)(chunks.length * of.bytes));
    }
}

void mist_cpu_kv_order(bool is_bf16, void *kv, const void *ranks,
                       const struct mist_cpu_attention_part *part, int n_threads)
{
    move(is_bf16, kv, ranks, part, false, n_threads);
}

void mist_cpu_kv_disorder(bool is_bf16, void *ranks, const void *kv,
                          const struct mist_cpu_attention_part *part, int n_threads)
{
    move(is_bf16, ranks, kv, part, true, n_threads);
}
