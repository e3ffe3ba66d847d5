/*
 * Compiled expressions: a set of outputs as one flat program, evaluated over many
 * configurations.
 *
 * The program is for an accumulator machine. A block of 64 configurations (fewer where
 * registers are narrower) runs through it at a time; the accumulator, one double per
 * configuration of the block, is eight vector registers of the processor and stays there
 * from one instruction to the next, so that a chain of operations reads one operand per
 * operation and writes nothing. Only what is used again goes to memory, to a few blocks
 * that stay in the first-level cache. Operations on symbols that are uniform (one value
 * for the whole call) are done once per call. The program text is the same for every
 * processor; AVX-512, AVX2 or plain C is chosen when the tape is compiled, in one binary.
 *
 * Results are bit for bit those of mist_expr_apply() from node to node, except for which
 * NaN it is: the same operations in the same order, each rounded once, no fused
 * multiply-add.
 */
#ifndef MIST_SIM_TAPE_H
#define MIST_SIM_TAPE_H

#include "core/status.h"
#include "sim/symbolic/expr.h" /* what is compiled */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mist_tape;

/* One symbol's values for one call. */
struct mist_tape_input {
    const double *column; /* [n] borrowed; NULL: value holds for all */
    double value;
};

/*
 * Compiles n_outputs expressions of a pool.
 *
 * is_uniform  by symbol index: symbols that have one value per call.
 *             NULL: none.
 * out         the new tape on MIST_OK, owned by the caller (mist_tape_free); untouched
 *             otherwise.
 *
 * The tape does not need the pool any more. Returns MIST_ERR_MEMORY, or the pool's own
 * status when one of the expressions is MIST_EXPR_ERROR. O(nodes of the pool).
 */
enum mist_status mist_tape_compile(const struct mist_expr_pool *pool,
                                   const mist_expr *outputs, int32_t n_outputs,
                                   const bool *is_uniform, struct mist_tape **out,
                                   struct mist_err *err) MIST_MUST_CHECK;

void mist_tape_free(struct mist_tape *tape); /* NULL allowed */

/*
 * Bytes of scratch memory that a call needs: one piece per thread, aligned to 64 bytes,
 * reused from call to call, contents of no meaning in between.
 */
size_t mist_tape_scratch_bytes(const struct mist_tape *tape);

/*
 * Evaluates the outputs at n configurations.
 *
 * rows     [n] which ones, as rising places in columns and outputs; NULL: 0 .. n - 1.
 *          Where they are behind one another nothing is copied.
 * inputs   [symbols of the pool at compile time] by symbol index. A symbol that is
 *          uniform in the tape must have column NULL. Symbols that no output uses are not
 *          looked at.
 * outputs  [n_outputs] of [n] doubles each (as far as rows go), not overlapping columns or each other; NULL:
 *          not wanted.
 * scratch  mist_tape_scratch_bytes(), aligned to 64 bytes.
 *
 * Cannot fail and does not allocate. Threads may share the tape, not the scratch.
 */
void mist_tape_eval(const struct mist_tape *tape, const struct mist_tape_input *inputs,
                    const int32_t *rows, size_t n, double *const *outputs, void *scratch);

#endif
