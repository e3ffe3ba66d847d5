/*
 * Draws by number, inline: what mist_random_at() and mist_random_normal_at() compute, for
 * loops that draw many, on any device.
 *
 * The normal distribution is Box and Muller's (1958), with one of its two values. Its
 * logarithm and cosine are evaluated here, by their power series, in operations that IEEE
 * 754 rounds correctly and of which none is contracted, so that every processor, library
 * and compiler gives the same bits; they are right to about 2 units in the last place.
 * Before including this, a .cu source defines the four operations and MIST_DRAW_INLINE.
 */
#ifndef MIST_CORE_RANDOM_DRAW_H
#define MIST_CORE_RANDOM_DRAW_H

#include <stdint.h>
#include <string.h>

#ifndef MIST_DRAW_INLINE
#define MIST_DRAW_INLINE    static inline __attribute__((always_inline))
#define MIST_DRAW_ADD(a, b) ((a) + (b))
#define MIST_DRAW_MUL(a, b) ((a) * (b))
#define MIST_DRAW_DIV(a, b) ((a) / (b))
#endif

#define MIST_DRAW_GOLDEN UINT64_C(0x9e3779b97f4a7c15)

/* The output function of splitmix64 (Steele, Lea, Flood 2014). */
MIST_DRAW_INLINE uint64_t mist_draw_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* What the draws of a seed and a stream have in common. */
MIST_DRAW_INLINE uint64_t mist_draw_key(uint64_t seed, uint64_t stream)
{
    return mist_draw_mix(mist_draw_mix(seed + MIST_DRAW_GOLDEN) +
                         MIST_DRAW_GOLDEN * (stream + 1));
}

MIST_DRAW_INLINE uint64_t mist_draw_bits(uint64_t key, uint64_t index)
{
    return mist_draw_mix(mist_draw_mix(key + MIST_DRAW_GOLDEN * (index + 1)));
}

/* [0, 1): the upper 53 bits, in two halves, since those convert several at a time. */
MIST_DRAW_INLINE double mist_draw_uniform(uint64_t bits)
{
    int32_t high = (int32_t)(bits >> 38), low = (int32_t)(bits >> 11 & 0x7ffffff);

    return MIST_DRAW_ADD(MIST_DRAW_MUL((double)high, 0x1p-26),
                         MIST_DRAW_MUL((double)low, 0x1p-53));
}

/* a + b x */
MIST_DRAW_INLINE double mist_draw_horner(double a, double b, double x)
{
    return MIST_DRAW_ADD(a, MIST_DRAW_MUL(b, x));
}

/* ln x for 0 < x <= 1, normal: with x = m 2^e, m from sqrt(1/2) to sqrt(2), it is
 * e ln 2 + 2 atanh s, s = (m - 1) / (m + 1). */
MIST_DRAW_INLINE double mist_draw_log(double x)
{
    const uint64_t root_half = UINT64_C(0x3fe6a09e667f3bcd), one = (uint64_t)1023 << 52;
    const double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;
    uint64_t bits;
    double m, p = 1.0 / 19;

    memcpy(&bits, &x, sizeof bits);
    bits += one - root_half;
    double e = (double)((int32_t)(bits >> 52) - 1023);
    bits = (bits & ((UINT64_C(1) << 52) - 1)) + root_half;
    memcpy(&m, &bits, sizeof m);
    double s = MIST_DRAW_DIV(MIST_DRAW_ADD(m, -1.0), MIST_DRAW_ADD(m, 1.0));
    double twice = MIST_DRAW_ADD(s, s), z = MIST_DRAW_MUL(s, s);
    p = mist_draw_horner(1.0 / 17, p, z);
    p = mist_draw_horner(1.0 / 15, p, z);
    p = mist_draw_horner(1.0 / 13, p, z);
    p = mist_draw_horner(1.0 / 11, p, z);
    p = mist_draw_horner(1.0 / 9, p, z);
    p = mist_draw_horner(1.0 / 7, p, z);
    p = mist_draw_horner(1.0 / 5, p, z);
    p = mist_draw_horner(1.0 / 3, p, z);
    p = MIST_DRAW_MUL(MIST_DRAW_MUL(twice, z), p);
    p = MIST_DRAW_ADD(twice, mist_draw_horner(p, ln2_low, e)); /* the smallest first */
    return mist_draw_horner(p, ln2_high, e);                   /* e ln2_high is exact */
}

/* cos(2 pi u) = sin(2 pi t) for 0 <= u < 1, t = |u - 1/2| - 1/4 */
MIST_DRAW_INLINE double mist_draw_cos_turn(double u)
{
    const double tau = 6.283185307179586476925286766559;
    double half = MIST_DRAW_ADD(u, -0.5), p = 1.0 / 51090942171709440000.0; /* 1 / 21! */
    double x = MIST_DRAW_MUL(tau, MIST_DRAW_ADD(half < 0 ? -half : half, -0.25));
    double z = MIST_DRAW_MUL(x, x);

    p = mist_draw_horner(-1.0 / 121645100408832000.0, p, z);
    p = mist_draw_horner(1.0 / 355687428096000.0, p, z);
    p = mist_draw_horner(-1.0 / 1307674368000.0, p, z);
    p = mist_draw_horner(1.0 / 6227020800.0, p, z);
    p = mist_draw_horner(-1.0 / 39916800.0, p, z);
    p = mist_draw_horner(1.0 / 362880.0, p, z);
    p = mist_draw_horner(-1.0 / 5040.0, p, z);
    p = mist_draw_horner(1.0 / 120.0, p, z);
    p = mist_draw_horner(-1.0 / 6.0, p, z);
    return mist_draw_horner(x, MIST_DRAW_MUL(x, z), p);
}

/* A normal draw is sqrt(square) * cosine; the root is the caller's. */
struct mist_draw_polar {
    double square, cosine;
};

/* Of one number, element index of a tensor: from two draws of 64 bits. 1 less the first is
 * in (0, 1], so the logarithm is finite. */
MIST_DRAW_INLINE struct mist_draw_polar mist_draw_polar_at(uint64_t key, uint64_t index)
{
    uint64_t bits = mist_draw_bits(key, index);
    double x = MIST_DRAW_ADD(1.0, -mist_draw_uniform(bits));
    struct mist_draw_polar polar;

    polar.square = MIST_DRAW_MUL(-2.0, mist_draw_log(x));
    polar.cosine =
        mist_draw_cos_turn(mist_draw_uniform(mist_draw_mix(bits + MIST_DRAW_GOLDEN)));
    return polar;
}

#endif
