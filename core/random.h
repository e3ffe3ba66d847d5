/*
 * Seeded random numbers that are the same on every machine and for every number of
 * threads.
 *
 * Sequences: xoshiro256** (Blackman, Vigna 2018), its state filled by splitmix64.
 * Stateless draws: two rounds of splitmix64's mixer over (seed, stream, index), so that
 * element 12345 of a tensor gets the same value whichever rank or shard computes it. Not
 * for cryptography.
 */
#ifndef MIST_CORE_RANDOM_H
#define MIST_CORE_RANDOM_H

#include <stdint.h>

struct mist_random {
    uint64_t state[4]; /* never all zero */
};

void mist_random_init(struct mist_random *random, uint64_t seed);
uint64_t mist_random_next(struct mist_random *random);  /* 64 random bits */
double mist_random_uniform(struct mist_random *random); /* [0, 1), 53 bits */
int64_t mist_random_below(struct mist_random *random,
                          int64_t n); /* 0 .. n-1 for n >= 1 */

uint64_t mist_random_at(uint64_t seed, uint64_t stream, uint64_t index); /* 64 bits */
double mist_random_uniform_at(uint64_t seed, uint64_t stream,
                              uint64_t index); /* [0, 1) */
double mist_random_normal_at(uint64_t seed, uint64_t stream,
                             uint64_t index); /* N(0, 1) */

#endif
