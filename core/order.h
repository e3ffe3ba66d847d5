/* Orders of things by several keys, for qsort and searches. */
#ifndef MIST_CORE_ORDER_H
#define MIST_CORE_ORDER_H

#include <stddef.h>
#include <stdint.h>

/* keys: [n] pairs, a's and b's. < 0, 0 or > 0 as the first pair that differs says. */
static inline int mist_compare_keys(const int64_t (*keys)[2], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

#endif
