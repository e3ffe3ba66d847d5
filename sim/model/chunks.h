/*
 * Which tokens of a sequence a context-parallel rank has: of 2 n chunks of equal length number
 * i and number 2 n - 1 - i, so that under a causal mask all ranks have as many pairs of a
 * query and a key. Of one rank they are the whole sequence.
 */
#ifndef MIST_SIM_CHUNKS_H
#define MIST_SIM_CHUNKS_H

#include <stdint.h>

struct mist_chunks {
    int64_t length;   /* tokens of a chunk */
    int64_t first[2]; /* where each begins in the sequence */
};

/* seq: a multiple of 2 n where n is above 1; 0 <= i < n, n >= 1. */
static inline struct mist_chunks mist_chunks_of(int64_t seq, int64_t n, int64_t i)
{
    struct mist_chunks out;

    out.length = n == 1 ? seq : seq / (2 * n);
    out.first[0] = i * out.length;
    out.first[1] = n == 1 ? 0 : (2 * n - 1 - i) * out.length;
    return out;
}

/* Tokens of a sequence that a rank has. */
static inline int64_t mist_chunks_n_tokens(const struct mist_chunks *at)
{
    return at->first[1] > 0 ? 2 * at->length : at->length;
}

/* Those of a whole sequence. */
#define MIST_WHOLE_CHUNKS(seq) (&(const struct mist_chunks){(seq), {0, 0}})

/* Where a rank's token number k of a sequence stands in it. */
static inline int64_t mist_chunks_position(const struct mist_chunks *at, int64_t k)
{
    return k < at->length ? at->first[0] + k : at->first[1] + k - at->length;
}

#endif
