/* The program of a tape, as sim/symbolic/tape.c writes it and sim/symbolic/tape_eval.c runs it.
 * Not for others. */
#ifndef MIST_SIM_TAPE_INTERNAL_H
#define MIST_SIM_TAPE_INTERNAL_H

#include "sim/symbolic/tape.h"

#define TAPE_LANES_MAX 64 /* configurations per block with the widest registers */

/*
 * acc is the accumulator, saved a second one for what an operation has to wait with; A,
 * B, C are block pointers numbered by a, b, c; U is the uniform value numbered by a.
 * Binary operations come in six forms: acc op A, acc op U, A op acc, U op acc, acc op
 * saved, saved op acc.
 */
enum tape_op {
    TAPE_END,
    TAPE_LOAD,   /* acc = A */
    TAPE_LOAD_U, /* acc = U */
    TAPE_STORE,  /* A = acc */
    TAPE_SAVE,   /* saved = acc */
    TAPE_ADD,
    TAPE_ADD_U,
    TAPE_ADD_R,
    TAPE_ADD_RU,
    TAPE_ADD_S,
    TAPE_ADD_RS,
    TAPE_SUB,
    TAPE_SUB_U,
    TAPE_SUB_R,
    TAPE_SUB_RU,
    TAPE_SUB_S,
    TAPE_SUB_RS,
    TAPE_MUL,
    TAPE_MUL_U,
    TAPE_MUL_R,
    TAPE_MUL_RU,
    TAPE_MUL_S,
    TAPE_MUL_RS,
    TAPE_DIV,
    TAPE_DIV_U,
    TAPE_DIV_R,
    TAPE_DIV_RU,
    TAPE_DIV_S,
    TAPE_DIV_RS,
    TAPE_MIN,
    TAPE_MIN_U,
    TAPE_MIN_R,
    TAPE_MIN_RU,
    TAPE_MIN_S,
    TAPE_MIN_RS,
    TAPE_MAX,
    TAPE_MAX_U,
    TAPE_MAX_R,
    TAPE_MAX_RU,
    TAPE_MAX_S,
    TAPE_MAX_RS,
    TAPE_PICK_LT, /* acc = A < B ? acc : C, and so on */
    TAPE_PICK_LE,
    TAPE_SKIP_LT, /* acc = A < B ? C : acc, and so on */
    TAPE_SKIP_LE,
    TAPE_TEST_LT, /* acc = acc < A ? B : C, and so on */
    TAPE_TEST_LE,
    TAPE_TEST_GT,
    TAPE_TEST_GE,
    TAPE_N_OPS
};

struct tape_instr {
    int32_t op; /* enum tape_op */
    int32_t a;
    int32_t b;
    int32_t c;
};

/* uniform[dst] = op(uniform[arg[0]], ...), once per call. */
struct tape_scalar_instr {
    int32_t op; /* enum mist_expr_op */
    int32_t dst;
    int32_t arg[4];
};

struct tape_pair {
    int32_t from;
    int32_t to;
};

/* Instruction sets, from the one that runs everywhere to the widest. */
enum mist_tape_isa {
    MIST_TAPE_PORTABLE,
    MIST_TAPE_AVX2,
    MIST_TAPE_AVX512,
    MIST_TAPE_N_ISAS
};

/* Block pointers are numbered: columns, then outputs, then registers. */
struct mist_tape {
    enum mist_tape_isa isa;
    int32_t n_columns;
    int32_t n_outputs;
    int32_t n_registers;
    int32_t n_uniforms;
    struct tape_instr *instrs; /* ends with TAPE_END */
    size_t n_instrs;
    size_t instrs_capacity;
    struct tape_scalar_instr *prologue;
    size_t n_prologue;
    size_t prologue_capacity;
    double *constants; /* [n_uniforms] what uniforms start from */
    size_t constants_capacity;
    struct tape_pair *uniform_symbols; /* symbol index -> uniform */
    size_t n_uniform_symbols;
    size_t uniform_symbols_capacity;
    /* Uniform -> register that is filled with it once per call. */
    struct tape_pair *splats;
    size_t n_splats;
    size_t splats_capacity;
    int32_t *column_symbols; /* [n_columns] symbol index */
    size_t column_symbols_capacity;
};

/* The widest instruction set of this processor; whether it has a given one. */
enum mist_tape_isa tape_best_isa(void);
bool tape_has_isa(enum mist_tape_isa isa);

#endif
