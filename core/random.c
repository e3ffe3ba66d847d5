/* Seeded random numbers. See random.h. */
#include "core/random.h"

#include "core/random_draw.h"

#include <math.h>

static uint64_t rotate_left(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

void mist_random_init(struct mist_random *random, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += MIST_DRAW_GOLDEN;
        random->state[i] = mist_draw_mix(seed);
    }
}

uint64_t mist_random_next(struct mist_random *random)
{
    uint64_t *s = random->state;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double mist_random_uniform(struct mist_random *random)
{
    return mist_draw_uniform(mist_random_next(random));
}

int64_t mist_random_below(struct mist_random *random, int64_t n)
{
    uint64_t bound = (uint64_t)n;
    uint64_t rejected =
        (0 - bound) % bound; /* 2^64 mod n: what would make low values likelier */
    uint64_t bits;

    do
        bits = mist_random_next(random);
    while (bits < rejected);
    return (int64_t)(bits % bound);
}

uint64_t mist_random_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    return mist_draw_bits(mist_draw_key(seed, stream), index);
}

double mist_random_uniform_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    return mist_draw_uniform(mist_random_at(seed, stream, index));
}

double mist_random_normal_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    struct mist_draw_polar polar = mist_draw_polar_at(mist_draw_key(seed, stream), index);

    return sqrt(polar.square) * polar.cosine;
}
