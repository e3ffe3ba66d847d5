/* Orders of things by several keys, for qsort and searches. */
#ifndef MIST_CORE_ORDER_H
#define MIST_CORE_ORDER_H

#include <stddef.h>

/* < 0, 0 or > 0 as a is less than b, equal or more. */
#define MIST_COMPARE(a, b) (((a) > (b)) - ((a) < (b)))

/* The same, or `then` where they are equal. */
#define MIST_COMPARE_OR(a, b, then) ((a) != (b) ? MIST_COMPARE(a, b) : (then))

/*
 * The same of two structs by the first of up to 10 members that differs:
 *
 *     return MIST_COMPARE_BY(a, b, rank, shape.dp, start_s);
 */
#define MIST_COMPARE_BY(a, b, ...)                                                       \
    MIST_BY_N_(__VA_ARGS__, MIST_BY_10_, MIST_BY_9_, MIST_BY_8_, MIST_BY_7_, MIST_BY_6_, \
               MIST_BY_5_, MIST_BY_4_, MIST_BY_3_, MIST_BY_2_, MIST_BY_1_, 0)            \
    (a, b, __VA_ARGS__)
#define MIST_BY_N_(m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, by, ...) by
#define MIST_BY_1_(a, b, m)                                          MIST_COMPARE((a)->m, (b)->m)
#define MIST_BY_THEN_(a, b, m, then)                                                     \
    ((a)->m != (b)->m ? MIST_COMPARE((a)->m, (b)->m) : (then))
#define MIST_BY_2_(a, b, m, ...)  MIST_BY_THEN_(a, b, m, MIST_BY_1_(a, b, __VA_ARGS__))
#define MIST_BY_3_(a, b, m, ...)  MIST_BY_THEN_(a, b, m, MIST_BY_2_(a, b, __VA_ARGS__))
#define MIST_BY_4_(a, b, m, ...)  MIST_BY_THEN_(a, b, m, MIST_BY_3_(a, b, __VA_ARGS__))
#define MIST_BY_5_(a, b, m, ...)  MIST_BY_THEN_(a, b, m, MIST_BY_4_(a, b, __VA_ARGS__))
#define MIST_BY_6_(a, b, m, ...)  MIST_BY_THEN_(a, b, m, MIST_BY_5_(a, b, __VA_ARGS__))
#define MIST_BY_7_(a, b, m, ...)  MIST_BY_THEN_(a, b, m, MIST_BY_6_(a, b, __VA_ARGS__))
#define MIST_BY_8_(a, b, m, ...)  MIST_BY_THEN_(a, b, m, MIST_BY_7_(a, b, __VA_ARGS__))
#define MIST_BY_9_(a, b, m, ...)  MIST_BY_THEN_(a, b, m, MIST_BY_8_(a, b, __VA_ARGS__))
#define MIST_BY_10_(a, b, m, ...) MIST_BY_THEN_(a, b, m, MIST_BY_9_(a, b, __VA_ARGS__))

/*
 * Defines what qsort orders an array with, a and b pointing to two elements: by an expression,
 * or of structs by up to 10 members.
 *
 *     MIST_COMPARATOR_OF(compare_numbers, int32_t, MIST_COMPARE(*a, *b))
 *     MIST_COMPARATOR(compare_tasks, struct task, rank, shape.dp, start_s)
 */
#define MIST_COMPARATOR_OF(name, type, ...)                                              \
    static int name(const void *a_, const void *b_)                                      \
    {                                                                                    \
        const type *a = a_;                                                              \
        const type *b = b_;                                                              \
                                                                                         \
        return __VA_ARGS__;                                                              \
    }
#define MIST_COMPARATOR(name, type, ...)                                                 \
    MIST_COMPARATOR_OF(name, type, MIST_COMPARE_BY(a, b, __VA_ARGS__))

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

#endif
