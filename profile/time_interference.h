/*
 * Times channels running together: computing, messages and copies, each alone and in all
 * sets of two, three and four, started at the same moment.
 *
 * What the channels do is what they do in a run: compute goes step by step through blocks
 * forward and backward; gpu_gpu all-reduces pieces of a block's gradients among all ranks
 * (or gathers or reduce-scatters them, or exchanges them between neighbours); the copies
 * move pieces between the arenas. Each
 * does about the same time of work alone, or one of them the double: these ratios let
 * the factors of a set be told apart. All ranks do it together, in step.
 *
 * Rounds go through every channel alone and every mixture, so that slow changes of the
 * machine cancel in the quotient of the two. They can be run some at a time, with other
 * parts of a session between them.
 *
 * On a GPU the channels' work is in their streams before an event lets all of them go,
 * and a mixture reaches from the first channel's begin to the last one's end.
 */
#ifndef MIST_PROFILE_TIME_INTERFERENCE_H
#define MIST_PROFILE_TIME_INTERFERENCE_H

#include "core/message.h"
#include "profile/workbench.h"

enum { MIST_MIXTURES_MAX = 80 };

/* What gpu_gpu does in a mixture. */
enum mist_mixture_message {
    MIST_MIXTURE_REDUCE,
    MIST_MIXTURE_EXCHANGE,
    MIST_MIXTURE_GATHER,
    MIST_MIXTURE_SCATTER, /* sums, too */
    MIST_N_MIXTURE_MESSAGES
};

/* One mixture: a row of interference.csv. */
struct mist_mixture {
    unsigned channels;                 /* bit mask over enum mist_stream */
    enum mist_mixture_message message; /* of gpu_gpu, if that is one of them */
    int32_t ratio[MIST_N_CHANNELS];    /* 1 or 2 times the base time; 0: idle */
    double alone_us[MIST_N_CHANNELS];  /* measured; 0: idle */
    struct mist_estimate together;     /* us */
};

/*
 * The mixtures of a machine (pure): pairs at 1:1, 1:2 and 2:1, larger sets at all equal
 * and each of them doubled. Without a second rank none has gpu_gpu. Gathers and
 * reduce-scatters are mixed with compute only, with is_quick the exchange, too. Returns
 * their number.
 */
int32_t mist_mixtures_make(int32_t n_ranks, bool is_quick,
                           struct mist_mixture out[MIST_MIXTURES_MAX]);

/*
 * Adds a row for each mixture. One that was disturbed beyond reason, so that readers of the
 * trace set would refuse it, is left out and said (messages NULL: nothing is). MIST_OK,
 * MIST_ERR_INPUT or MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status
mist_mixtures_add_rows(const struct mist_mixture *mixtures, int32_t n,
                       const struct mist_grid_config *config,
                       const struct mist_messages *messages,
                       struct mist_trace_set *traces, struct mist_err *err);

struct mist_time_interference;

/* Rounds of mixtures[n] (borrowed) that shall take budget_s altogether. *out is to be
 * closed whatever the result, before bench. MIST_OK or MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status
mist_time_interference_open(struct mist_workbench *bench, double budget_s,
                            const struct mist_mixture *mixtures, int32_t n,
                            struct mist_time_interference **out, struct mist_err *err);
void mist_time_interference_close(struct mist_time_interference *at); /* NULL allowed */

/*
 * Goes on until share (0 to 1, the same on all ranks) of the budget is gone. steps: what
 * every key of the grid takes, the same everywhere (mist_time_ops_run); the first time it
 * says how much work the channels get. All ranks must call it. MIST_OK, MIST_ERR_MEMORY or
 * an error of device or communicator.
 */
MIST_MUST_CHECK enum mist_status
mist_time_interference_run(struct mist_time_interference *at,
                           const struct mist_estimate *steps, double share,
                           struct mist_err *err);

/* Fills alone_us and together of mixtures (those of open), the same on all ranks; n_rounds
 * says how many were made. All ranks must call it. MIST_OK, MIST_ERR_MEMORY or MIST_ERR_RUN. */
MIST_MUST_CHECK enum mist_status
mist_time_interference_find(struct mist_time_interference *at,
                            struct mist_mixture *mixtures, int32_t *n_rounds,
                            struct mist_err *err);

#endif
