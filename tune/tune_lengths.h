/*
 * The best plan where sequences differ in length: not for their mean, but for what
 * iterations of them take.
 *
 * A search prices plans with full samples, and what is good with other ones may be slow with
 * these: small micro-batches on few data-parallel ranks need no padding and wait for nobody.
 * So more plans than are wanted come from the search, and as many of the same search for
 * each size of tensor parallelism alone; half of each are the best of their kind
 * (mist_validate_keep()). All are replayed with sequences that are drawn and packed, and
 * these times decide. They get the same sequences, iteration by iteration. What of a plan is
 * said of other pipeline schedules and of why it lost is with full samples.
 */
#ifndef MIST_TUNE_TUNE_LENGTHS_H
#define MIST_TUNE_TUNE_LENGTHS_H

#include "sim/replay/packing.h"
#include "tune/validate.h"

enum {
    MIST_TUNE_LENGTHS_PLANS = 2,       /* of a search, for one that is wanted */
    MIST_TUNE_LENGTHS_ITERATIONS = 33, /* the first does not count */
};

struct mist_tune_lengths {
    struct mist_lengths of;
    enum mist_packing packing;
    uint64_t seed;
    bool is_given;
};

/* What iterations of a plan hold; to be freed with mist_loads_fini after MIST_OK. */
MIST_MUST_CHECK enum mist_status
mist_tune_lengths_draw(const struct mist_tune_lengths *at, const struct mist_plan *plan,
                       struct mist_loads *out, struct mist_err *err);

/* Searches for each size of tensor parallelism that the space has several of, and adds what
 * is found to result, that of mist_validate_run(). Errors of the search. */
MIST_MUST_CHECK enum mist_status
mist_tune_lengths_search(const struct mist_validate_config *config,
                         const struct mist_search_config *search,
                         struct mist_validate_result *result, struct mist_err *err);

/* Gives the plans of a result the times of such iterations, and keeps the best n_best of
 * them. Errors of mist_replay_run(). */
MIST_MUST_CHECK enum mist_status
mist_tune_lengths_choose(const struct mist_tune_lengths *at,
                         const struct mist_validate_config *config,
                         struct mist_thread_pool *pool, size_t n_best,
                         struct mist_validate_result *result, struct mist_err *err);

#endif
