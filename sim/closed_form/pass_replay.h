/*
 * A pipeline by its passes: whole forwards and backwards of stages in the order of any
 * schedule (pipeline_order.h), each as long as the closed form says. Between the formula
 * over stages, which knows the slowest one and sums, and the replay of every task.
 *
 * A slot starts when the one before it on its stage has ended and what it needs from a
 * neighbour has come. What a stage sends goes one by one, and what it receives, in the
 * order that all ranks share (schedule_transfer.c). Where a stage computes meanwhile,
 * both take longer. The first forward of a stage takes the optimizer step on,
 * or begins after it, and waits for the steps on the host, which run from the beginning on,
 * chunk by chunk; sums over ranks make the last backward longer, or follow it, beside what its
 * stage does next; those that a later stage puts off come behind its last transfer, beside the
 * second parts of backwards that are left. Weights that leave the device, or are cut over ranks,
 * come again where a chunk does not turn round. While a stage waits for a gradient, what its blocks
 * keep in the host comes back.
 */
#ifndef MIST_SIM_PASS_REPLAY_H
#define MIST_SIM_PASS_REPLAY_H

#include "core/status.h"
#include "sim/cost/interference.h"
#include "sim/schedule/pipeline_order.h"

#include <stdbool.h>

/* A chunk of a stage, all in seconds. */
struct mist_pass_times {
    double forward_s, backward_s;
    double input_s, weight_s;               /* the two parts of a split backward */
    double send_forward_s, send_backward_s; /* to the next, the previous virtual stage */
    double first_s;        /* of the optimizer step, but for waiting for the host */
    double host_s, held_s; /* the host's part; from its beginning on to the end of the
                              first forward, at least */
    double last_s, last_weight_s; /* of sums, in the last backward, whole or split */
    double left_s;                /* of sums that the last backward leaves */
    double behind_s;              /* behind all transfers of the stage */
    double exchange_s;            /* among all stages, behind all; of the first chunk */
    double brings_s[MIST_N_SLOT_KINDS]; /* of weights that come in the slot before, by its
                                           kind, unless they are there */
    double sums_s
        [MIST_N_SLOT_KINDS]; /* beside sums that the slot before has left, in forward_s */
    double
        waits_s[MIST_N_SLOT_KINDS]; /* of backward_s, input_s, for what blocks keep in the
                                          host: comes while the stage has nothing to do */
    int32_t n_layers;               /* blocks, >= 1 */
    bool is_ahead; /* the step is in front of all forwards, whenever their inputs come */
};

/*
 * Seconds of an iteration.
 *
 * order         of the schedule.
 * interference  what computation and communication do to one another.
 * times         [n_chunks * n_stages] by virtual stage.
 * MIST_OK or MIST_ERR_MEMORY. O(slots log slots).
 */
MIST_MUST_CHECK enum mist_status mist_pass_replay(
    const struct mist_pipeline_order *order, const struct mist_interference *interference,
    const struct mist_pass_times *times, double *iteration_s, struct mist_err *err);

#endif
