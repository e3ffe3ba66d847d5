/*
 * What every micro-batch holds when sequences differ in length: its load.
 *
 * A plan's iteration has room for global_batch samples of seq_len tokens. How sequences
 * (lengths.h, drawn one after the other) fill them is a rule:
 *   none       each is a sample, of as many tokens as it has
 *   pad        likewise, and as long as the longest of its micro-batch on a rank; where
 *              stages differ in dp, on the ranks that hold the same samples everywhere
 *   first-fit  several make a sample. An iteration takes what fits its tokens together;
 *              each goes to the first sample with room for it
 *   sorted     the same, the longest first
 * What is packed first-fit or sorted and finds no room comes first in the next iteration.
 * Sequences that are longer than a sample are cut to it. Samples go to micro-batches, and in
 * these to data-parallel ranks, in order.
 *
 * Attention is within sequences, so it goes with the sum of the squares of their lengths;
 * all else with tokens. A sample of seq_len tokens in one sequence, as plans are priced,
 * counts 1 of each.
 */
#ifndef MIST_SIM_PACKING_H
#define MIST_SIM_PACKING_H

#include "core/status.h"
#include "sim/plan/plan.h"
#include "sim/replay/lengths.h"

#include <stdint.h>

enum mist_packing {
    MIST_PACKING_NONE,
    MIST_PACKING_PAD,
    MIST_PACKING_FIRST_FIT,
    MIST_PACKING_SORTED,
    MIST_N_PACKINGS
};

extern const char *const mist_packing_names[MIST_N_PACKINGS + 1]; /* NULL-terminated */

/* Tokens, and squares of the lengths of sequences. */
struct mist_load {
    double tokens, squares;
};

/* Of several iterations in a row. */
struct mist_loads {
    int32_t n_iterations, n_micro_batches;
    int32_t n_samples; /* of a micro-batch, on all its ranks */
    int32_t seq_len;   /* tokens of a full sample */
    /* Owned; [n_iterations][n_micro_batches][n_samples + 1] of the samples of a micro-
     * batch before this one. */
    struct mist_load *sums;
    struct mist_load mean;      /* of a sample; a full one counts 1 */
    int64_t n_sequences, n_cut; /* of all iterations */
    struct mist_load packed;    /* by all of them together, padding left out */
};

/* Draws and packs. out is to be freed with mist_loads_fini after MIST_OK. MIST_ERR_MEMORY.
 * O((sequences) log(samples)). */
MIST_MUST_CHECK enum mist_status
mist_loads_make(const struct mist_plan *plan, const struct mist_lengths *lengths,
                enum mist_packing packing, uint64_t seed, int32_t n_iterations,
                struct mist_loads *out, struct mist_err *err);
void mist_loads_fini(struct mist_loads *loads);

/* Mean of n samples of a micro-batch; full ones count 1. Sums are whole numbers, so that
 * it is exact. */
static inline struct mist_load mist_loads_of(const struct mist_loads *loads,
                                             int32_t iteration, int32_t micro_batch,
                                             int32_t first, int32_t n)
{
    int64_t i = (int64_t)iteration * loads->n_micro_batches + micro_batch;
    const struct mist_load *sums = loads->sums + i * (loads->n_samples + 1) + first;
    double length = loads->seq_len;

    return (struct mist_load){
        (sums[n].tokens - sums[0].tokens) / (n * length),
        (sums[n].squares - sums[0].squares) / (n * length * length),
    };
}

#endif
