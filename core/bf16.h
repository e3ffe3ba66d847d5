/*
 * bf16: the upper half of an fp32. Inlined in any case, so that a loop of these has the
 * instructions that its function is compiled for.
 */
#ifndef MIST_CORE_BF16_H
#define MIST_CORE_BF16_H

#include <math.h> /* isnan */
#include <stdint.h>
#include <string.h>

typedef uint16_t mist_bf16;

static inline __attribute__((always_inline)) float mist_bf16_value(mist_bf16 x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To nearest, ties to even: half a unit less one, plus one where the last kept bit is
 * odd. A NaN would be carried into infinity or zero: it keeps its upper half,
 * made quiet. Comparing floats, and shifting last, is what compilers turn into few vector
 * instructions. */
static inline __attribute__((always_inline)) mist_bf16 mist_bf16_round(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
    return (mist_bf16)((isnan(x) ? bits | 0x400000u : rounded) >> 16);
}

#endif
