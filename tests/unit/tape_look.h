/* What the program of a tape looks like, and tapes of other instruction sets than the widest. */
#ifndef MIST_TESTS_UNIT_TAPE_LOOK_H
#define MIST_TESTS_UNIT_TAPE_LOOK_H

#include "sim/symbolic/tape_internal.h"

struct tape_look {
    int32_t n_arithmetic; /* instructions that compute */
    int32_t n_loads;      /* plain loads of the accumulator */
    int32_t n_stores;
};

static inline struct tape_look tape_look(const struct mist_tape *tape)
{
    struct tape_look look = {0};

    for (size_t i = 0; i < tape->n_instrs; i++) {
        int32_t op = tape->instrs[i].op;
        look.n_loads += op == TAPE_LOAD || op == TAPE_LOAD_U;
        look.n_stores += op == TAPE_STORE;
        look.n_arithmetic += op > TAPE_SAVE;
    }
    return look;
}

/* Chooses an instruction set; false (nothing changed) when this processor lacks it. */
static inline bool tape_set_isa(struct mist_tape *tape, enum mist_tape_isa isa)
{
    if (!tape_has_isa(isa))
        return false;
    tape->isa = isa;
    return true;
}

#endif
