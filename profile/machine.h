/* What this machine is: processor, memory, versions. */
#ifndef MIST_PROFILE_MACHINE_H
#define MIST_PROFILE_MACHINE_H

#include "core/status.h"
#include "traces/trace_set.h"

#include <stdint.h>

struct mist_machine {
    char processor[MIST_TRACE_NAME_MAX]; /* "AMD EPYC"; "cpu" when the system won't say */
    int32_t n_processors;                /* online */
    int64_t memory_bytes;                /* MemTotal */
};

/* MIST_OK or MIST_ERR_IO (/proc/meminfo is unreadable). */
MIST_MUST_CHECK enum mist_status mist_machine_read(struct mist_machine *out,
                                                   struct mist_err *err);

/* Device memory of one of n_ranks ranks of a node: its part of 80 % of the memory. */
int64_t mist_machine_device_bytes(const struct mist_machine *machine, int32_t n_ranks);

/* Memory for offloading, of all ranks together: 10 % of the machine's. */
int64_t mist_machine_host_bytes(const struct mist_machine *machine);

/* Fills name, date (UTC), nodes, memory sizes and libraries of a cluster of n_nodes such
 * machines with n_node_ranks ranks each. */
void mist_machine_describe(const struct mist_machine *machine, int32_t n_nodes,
                           int32_t n_node_ranks, struct mist_cluster *out);

#endif
