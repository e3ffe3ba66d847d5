/* Random whole numbers. */
#ifndef MIST_TESTS_UNIT_PICK_H
#define MIST_TESTS_UNIT_PICK_H

#include "core/random.h"

/* From low to high, ends included. */
static inline int pick(struct mist_random *random, int low, int high)
{
    return low + (int)mist_random_below(random, high - low + 1);
}

#endif
