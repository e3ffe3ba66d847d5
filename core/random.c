/* Seeded random numbers. See random.h. */
#include "core/random.h"

#include <math.h>

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)
#define TAU    6.283185307179586476925286766559

/* The output function of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t rotate_left(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

static double to_uniform(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

/* Box-Muller with one of its two values; u1 in (0, 1] keeps the logarithm finite. */
static double to_normal(uint64_t bits_1, uint64_t bits_2)
{
    return sqrt(-2 * log(1 - to_uniform(bits_1))) * cos(TAU * to_uniform(bits_2));
}

void mist_random_init(struct mist_random *random, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += GOLDEN;
        random->state[i] = mix(seed);
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
    return to_uniform(mist_random_next(random));
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

double mist_random_normal(struct mist_random *random)
{
    uint64_t bits = mist_random_next(random);

    return to_normal(bits, mist_random_next(random));
}

uint64_t mist_random_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint64_t key = mix(mix(seed + GOLDEN) + GOLDEN * (stream + 1));

    return mix(mix(key + GOLDEN * (index + 1)));
}

double mist_random_uniform_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    return to_uniform(mist_random_at(seed, stream, index));
}

double mist_random_normal_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint64_t bits = mist_random_at(seed, stream, index);

    return to_normal(bits, mix(bits + GOLDEN));
}
