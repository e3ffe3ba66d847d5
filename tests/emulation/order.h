/*
 * In which order the emulator runs blocks, and the threads of a block between barriers.
 *
 * A kernel whose result depends on the order has a race: a test runs it in two orders and
 * compares bits. At first the order is what the environment's MIST_EMULATION_ORDER says:
 * forward (the default), reverse, or a number, the seed of a shuffle. On a GPU, which has
 * its own order, setting one does nothing.
 */
#ifndef MIST_TESTS_EMULATION_ORDER_H
#define MIST_TESTS_EMULATION_ORDER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum mist_emulation_order {
    MIST_EMULATION_FORWARD,
    MIST_EMULATION_REVERSE,
    MIST_EMULATION_SHUFFLED, /* anew for every block, from a seed */
};

#ifdef MIST_TEST_ON_GPU
static inline void mist_emulation_set_order(enum mist_emulation_order order,
                                            uint64_t seed)
{
    (void)order;
    (void)seed;
}
#else
/* For all launches from now on; seed counts for the shuffle only. */
void mist_emulation_set_order(enum mist_emulation_order order, uint64_t seed);
#endif

#ifdef __cplusplus
}
#endif

#endif
