/* What all ranks of a session must have in common before it begins. All ranks call each,
 * and get the same answer. */
#ifndef MIST_PROFILE_RANKS_H
#define MIST_PROFILE_RANKS_H

#include "core/status.h"
#include "exec/comm/comm.h"

#include <stdbool.h>
#include <stdint.h>

/* Ranks must stand node by node, equally many on each, as plans number them. MIST_OK,
 * MIST_ERR_USAGE or an error of the communicator. */
MIST_MUST_CHECK enum mist_status
mist_ranks_check_nodes(struct mist_comm *comm, int32_t *n_nodes, struct mist_err *err);

/* All must compute on the same kind of device. MIST_OK, MIST_ERR_USAGE or an error of the
 * communicator. */
MIST_MUST_CHECK enum mist_status
mist_ranks_check_devices(struct mist_comm *comm, bool has_gpu, struct mist_err *err);

#endif
