/*
 * What mist-sim says of iterations that are not alike: how long they are, what they hold, and
 * what slows them down.
 */
#ifndef MIST_SIM_SIM_UNEVEN_H
#define MIST_SIM_SIM_UNEVEN_H

#include "core/emit.h"
#include "sim/replay/replay.h"
#include "sim/replay/replay_causes.h"

/* Quantiles of the iterations, if several count. */
void mist_sim_uneven_add_iterations(struct mist_emit *emit,
                                    const struct mist_replay_result *result);

/* What of a job's tokens an iteration holds. */
void mist_sim_uneven_add_loads(struct mist_emit *emit, const struct mist_loads *loads);

/* A list of the causes; n_most: as many, 0: all. */
void mist_sim_uneven_add_causes(struct mist_emit *emit,
                                const struct mist_replay_causes *causes, size_t n_most);

#endif
