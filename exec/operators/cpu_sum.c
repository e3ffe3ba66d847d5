/*
 * The sum of squares behind the gradient norm, and the search for values that are not
 * finite.
 *
 * The sum does not depend on the order of its terms, and so neither on threads nor on how
 * parameters are cut into shards: every square (exact in double) is rounded to a fixed
 * grid in two bins, and what is added up are whole numbers of grid units. That is Demmel
 * and Nguyen's reproducible sum ("Fast Reproducible Floating-Point Summation", 2013) with
 * bins fixed beforehand. Adding 1.5 * 2^52 units of a bin leaves, in
 * the low bits of the double, the number of units: those bits are added as integers,
 * which needs no bound on the length for exactness. Where all of a block is small, as
 * gradients are, the fine bin holds the whole squares: same sum, half the work.
 *
 * Left out: values beyond MIST_CPU_SUM_MAX_ABS, which no gradient that is worth a step
 * has; they are counted and add nothing.
 */
#include "exec/operators/cpu_bf16_internal.h"
#include "exec/operators/cpu_internal.h"
#include "exec/operators/cpu_kernels.h"

#include <math.h> /* INFINITY, ldexp */
#include <pthread.h>

/* Elements taken at once; 2^12 squares of at most 2^50 coarse units stay below 2^63. */
enum { BLOCK = 4096, FINE_PER_COARSE_LOG2 = 36, RETRY_BLOCKS = 16 };

#define COARSE_SHIFT      0x1.8p28 /* 1.5 * 2^52 units of 2^-24 */
#define FINE_SHIFT        0x1.8p-8 /* 1.5 * 2^52 units of 2^-60 */
#define COARSE_SHIFT_BITS 0x41B8000000000000u
#define FINE_SHIFT_BITS   0x3F78000000000000u
#define SMALL_BITS        0x3D000000 /* of 2^-5, whose square is 2^50 fine units */
#define MAX_ABS_BITS      0x46000000 /* of MIST_CPU_SUM_MAX_ABS */
#define MAX_FINITE_BITS   0x7F7FFFFF /* of FLT_MAX */

/* --------------------------------------------------------------- one block of squares */

MIST_CPU_INLINE uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Negative where |x| is above; without the sign, bits compare like the absolute values,
 * and NaN is above all. */
MIST_CPU_INLINE int32_t beyond(float x, int32_t max_bits)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return max_bits - (bits & 0x7FFFFFFF);
}

/* Bits of units, to which every square adds those of the bins' shifts, and what is negative
 * when a value was out of range. */
struct units {
    uint64_t coarse_bits, fine_bits;
    int32_t above;
};

/*
 * Those of x alone. The coarse part of a square is an exact difference (Dekker's splitting),
 * and even in fine units, so that the rest rounds as the whole square would; squares are
 * exact, so fused sums have the bits of others.
 */
MIST_CPU_INLINE struct units units_of(float x, bool is_small)
{
    struct units units = {0, 0, beyond(x, is_small ? SMALL_BITS : MAX_ABS_BITS)};
    double value = (double)x, taken = 0;

    if (!is_small) {
        double shifted = fma(value, value, COARSE_SHIFT);
        units.coarse_bits = bits_of(shifted);
        taken = shifted - COARSE_SHIFT;
    }
    units.fine_bits =
        bits_of(fma(value, value, is_small ? FINE_SHIFT : FINE_SHIFT - taken));
    return units;
}

/*
 * Units of x[0 .. n), n <= BLOCK; false (sums undefined) if some |x| is out of range. Four
 * pieces go side by side, since a processor reads ahead in each of their pages, but not
 * from one page into the next: 3.0 ms became 1.8 for 28 MB (Sapphire Rapids).
 */
MIST_CPU_INLINE bool sum_units(const float *x, int64_t n, bool is_small, int64_t *coarse,
                               int64_t *fine)
{
    const int64_t piece = n / 4;
    const float *x1 = x + piece, *x2 = x1 + piece, *x3 = x2 + piece;
    uint64_t coarse_bits = 0, fine_bits = 0;
    int32_t above = 0;
#pragma omp simd reduction(+ : coarse_bits, fine_bits) reduction(| : above)
    for (int64_t i = 0; i < piece; i++) {
        struct units a = units_of(x[i], is_small), b = units_of(x1[i], is_small),
                     c = units_of(x2[i], is_small), d = units_of(x3[i], is_small);
        coarse_bits += a.coarse_bits + b.coarse_bits + c.coarse_bits + d.coarse_bits;
        fine_bits += a.fine_bits + b.fine_bits + c.fine_bits + d.fine_bits;
        above |= a.above | b.above | c.above | d.above;
    }
    for (int64_t i = 4 * piece; i < n; i++) {
        struct units a = units_of(x[i], is_small);
        coarse_bits += a.coarse_bits;
        fine_bits += a.fine_bits;
        above |= a.above;
    }
    *coarse = is_small ? 0 : (int64_t)(coarse_bits - (uint64_t)n * COARSE_SHIFT_BITS);
    *fine = (int64_t)(fine_bits - (uint64_t)n * FINE_SHIFT_BITS);
    return above >= 0;
}

MIST_CPU_CLONES static bool sum_small(const float *x, int64_t n, int64_t *coarse,
                                      int64_t *fine)
{
    return sum_units(x, n, true, coarse, fine);
}

MIST_CPU_CLONES static bool sum_any(const float *x, int64_t n, int64_t *coarse,
                                    int64_t *fine)
{
    return sum_units(x, n, false, coarse, fine);
}

/* Tries the short way where it worked before (is_small); remembers whether it did. */
static bool sum_block(const float *x, int64_t n, bool *is_small, int64_t *coarse,
                      int64_t *fine)
{
    *is_small = *is_small && sum_small(x, n, coarse, fine);
    return *is_small || sum_any(x, n, coarse, fine);
}

/* ------------------------------------------------------------------------- whole sums */

/* Moves whole coarse units out of fine; what reaches the limit stays there. */
static void normalise(struct mist_cpu_sum *sum)
{
    int64_t unit = (int64_t)1 << FINE_PER_COARSE_LOG2;
    int64_t rest = sum->fine % unit;
    rest += rest < 0 ? unit : 0;
    sum->coarse += (sum->fine - rest) / unit;
    sum->fine = rest;
    if (sum->coarse >= MIST_CPU_SUM_MAX_COARSE) {
        sum->coarse = MIST_CPU_SUM_MAX_COARSE;
        sum->fine = 0;
    }
}

void mist_cpu_sum_clear(struct mist_cpu_sum *sum)
{
    *sum = (struct mist_cpu_sum){0, 0, 0, -1};
}

void mist_cpu_sum_add(struct mist_cpu_sum *sum, const struct mist_cpu_sum *other,
                      int64_t offset)
{
    sum->coarse += other->coarse;
    sum->fine += other->fine;
    normalise(sum);
    sum->n_nonfinite += other->n_nonfinite;
    int64_t first = other->first_nonfinite + offset;
    if (other->first_nonfinite >= 0 &&
        (sum->first_nonfinite < 0 || first < sum->first_nonfinite))
        sum->first_nonfinite = first;
}

double mist_cpu_sum_value(int64_t coarse, int64_t fine)
{
    struct mist_cpu_sum sum = {coarse, fine, 0, -1};
    normalise(&sum);
    if (sum.coarse == MIST_CPU_SUM_MAX_COARSE)
        return INFINITY;
    return ldexp((double)sum.coarse, -24) + ldexp((double)sum.fine, -60);
}

/* A block in which something is out of range: counts it and adds the rest. */
static void sum_outliers(const float *x, int64_t n, struct mist_cpu_sum *out)
{
    float rest[BLOCK];
    for (int64_t i = 0; i < n; i++) {
        bool is_inside = x[i] >= -MIST_CPU_SUM_MAX_ABS && x[i] <= MIST_CPU_SUM_MAX_ABS;
        rest[i] = is_inside ? x[i] : 0.0f;
        out->n_nonfinite += !is_inside;
        if (!is_inside && out->first_nonfinite < 0)
            out->first_nonfinite = i;
    }
    sum_any(rest, n, &out->coarse, &out->fine);
}

void mist_cpu_sum_squares_exact(bool is_bf16, const void *x, int64_t n,
                                struct mist_cpu_sum *out, int n_threads)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of this sum alone */

    mist_cpu_sum_clear(out);
#pragma omp parallel num_threads(n_threads)
    {
        struct mist_cpu_sum mine;
        bool is_small = true;
        mist_cpu_sum_clear(&mine);
#pragma omp for schedule(static) nowait
        for (int64_t i = 0; i < n; i += BLOCK) {
            struct mist_cpu_sum block;
            float wide[BLOCK];
            int64_t length = mist_cpu_min(BLOCK, n - i);
            const float *from = mist_cpu_from(is_bf16, wide, x, i, length);
            mist_cpu_sum_clear(&block);
            is_small = is_small || i / BLOCK % RETRY_BLOCKS == 0;
            if (!sum_block(from, length, &is_small, &block.coarse, &block.fine))
                sum_outliers(from, length, &block);
            mist_cpu_sum_add(&mine, &block, i);
        }
        pthread_mutex_lock(&mutex);
        mist_cpu_sum_add(out, &mine, 0);
        pthread_mutex_unlock(&mutex);
    }
}

/* ---------------------------------------------------------------------- finite or not */

/* In four pieces, as sum_units(). */
MIST_CPU_CLONES static bool block_is_finite(const float *x, int64_t n)
{
    const int64_t piece = n / 4;
    const float *x1 = x + piece, *x2 = x1 + piece, *x3 = x2 + piece;
    int32_t above = 0;
#pragma omp simd reduction(| : above)
    for (int64_t i = 0; i < piece; i++)
        above |= beyond(x[i], MAX_FINITE_BITS) | beyond(x1[i], MAX_FINITE_BITS) |
                 beyond(x2[i], MAX_FINITE_BITS) | beyond(x3[i], MAX_FINITE_BITS);
    for (int64_t i = 4 * piece; i < n; i++)
        above |= beyond(x[i], MAX_FINITE_BITS);
    return above >= 0;
}

int64_t mist_cpu_find_nonfinite(bool is_bf16, const void *x, int64_t n, int n_threads)
{
    int64_t first = INT64_MAX;
#pragma omp parallel for num_threads(n_threads) schedule(static) reduction(min : first)
    for (int64_t i = 0; i < n; i += BLOCK) {
        float wide[BLOCK];
        int64_t length = mist_cpu_min(BLOCK, n - i);
        if (i > first)
            continue;
        const float *from = mist_cpu_from(is_bf16, wide, x, i, length);
        if (block_is_finite(from, length))
            continue;
        int64_t at = 0;
        while (isfinite(from[at]))
            at++;
        first = i + at;
    }
    return first == INT64_MAX ? -1 : first;
}
