/* Orders of things by several keys, for qsort and searches. */
#ifndef MIST_CORE_ORDER_H
#define MIST_CORE_ORDER_H

#include <stddef.h>
#include <stdint.h>

/* < 0, 0 or > 0 as a is less than b, equal or more. */
#define MIST_COMPARE(a, b) (((a) > (b)) - ((a) < (b)))

/*
 * Bisection: declares low, the first place of [first, behind) of which is_before does not
 * hold; behind: it holds of all. is_before speaks of place i, and holds of all places before
 * one that it holds of:
 *
 *     MIST_BISECT(low, 0, n, i, items[i].key < key);
 */
#define MIST_BISECT(low, first, behind, i, is_before)                                    \
    size_t low = (first);                                                                \
    for (size_t i, low##_high = (behind); low < low##_high;) {                           \
        i = low + (low##_high - low) / 2;                                                \
        if (is_before)                                                                   \
            low = i + 1;                                                                 \
        else                                                                             \
            low##_high = i;                                                              \
    }

/* keys: [n] pairs, a's and b's. < 0, 0 or > 0 as the first pair that differs says. */
static inline int mist_compare_keys(const int64_t (*keys)[2], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

#endif
