/*
 * XXH64. Source: Collet, "xxHash fast digest algorithm", specification 0.1.1; names of
 * the steps as there.
 */
#include "exec/checkpoint/checkpoint_internal.h"

#include <string.h>

#define PRIME_1 UINT64_C(0x9E3779B185EBCA87)
#define PRIME_2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define PRIME_3 UINT64_C(0x165667B19E3779F9)
#define PRIME_4 UINT64_C(0x85EBCA77C2B2AE63)
#define PRIME_5 UINT64_C(0x27D4EB2F165667C5)

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static uint64_t load_64(const unsigned char *p)
{
    uint64_t value;

    memcpy(&value, p, sizeof value);
    return value;
}

static uint64_t load_32(const unsigned char *p)
{
    uint32_t value;

    memcpy(&value, p, sizeof value);
    return value;
}

static uint64_t round_64(uint64_t lane, uint64_t input)
{
    return rotate(lane + input * PRIME_2, 31) * PRIME_1;
}

static uint64_t merge_round(uint64_t sum, uint64_t lane)
{
    return (sum ^ round_64(0, lane)) * PRIME_1 + PRIME_4;
}

/* Whole stripes of 32 bytes: four lanes that do not wait for one another. */
static uint64_t sum_stripes(const unsigned char *p, size_t n, uint64_t seed)
{
    uint64_t a = seed + PRIME_1 + PRIME_2, b = seed + PRIME_2, c = seed,
             d = seed - PRIME_1;

    for (; n >= 32; n -= 32, p += 32) {
        a = round_64(a, load_64(p));
        b = round_64(b, load_64(p + 8));
        c = round_64(c, load_64(p + 16));
        d = round_64(d, load_64(p + 24));
    }
    uint64_t sum = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
    return merge_round(merge_round(merge_round(merge_round(sum, a), b), c), d);
}

uint64_t mist_checkpoint_sum(const void *bytes, size_t n, uint64_t seed)
{
    const unsigned char *p = bytes, *end = p + n;
    uint64_t sum = n >= 32 ? sum_stripes(p, n, seed) : seed + PRIME_5;

    p += n & ~(size_t)31;
    sum += n;
    for (; end - p >= 8; p += 8)
        sum = rotate(sum ^ round_64(0, load_64(p)), 27) * PRIME_1 + PRIME_4;
    if (end - p >= 4) {
        sum = rotate(sum ^ load_32(p) * PRIME_1, 23) * PRIME_2 + PRIME_3;
        p += 4;
    }
    for (; p < end; p++)
        sum = rotate(sum ^ *p * PRIME_5, 11) * PRIME_1;
    sum = (sum ^ sum >> 33) * PRIME_2;
    sum = (sum ^ sum >> 29) * PRIME_3;
    return sum ^ sum >> 32;
}
