/* What this machine is: processor, memory, versions, and the devices that compute. */
#ifndef MIST_PROFILE_MACHINE_H
#define MIST_PROFILE_MACHINE_H

#include "core/status.h"
#include "exec/runtime/backend.h"
#include "traces/trace_set.h"

#include <stdint.h>

struct mist_machine {
    char processor[MIST_TRACE_NAME_MAX]; /* "AMD EPYC"; "cpu" when the system won't say */
    int32_t n_processors;                /* online */
    int32_t n_rank_processors;           /* that a rank runs on */
    int64_t memory_bytes;                /* MemTotal */
    const struct mist_backend *backend;  /* what computes; static */
    struct mist_backend_info devices;    /* of backend, as this process sees them */
    int32_t n_node_devices; /* that all ranks of a node see, once that is known */
};

/*
 * Reads what is there and finds the backend of a choice; note[note_bytes] as in
 * mist_backend_find(). MIST_OK, MIST_ERR_IO (/proc/meminfo is unreadable) or MIST_ERR_RUN
 * (no such backend here).
 */
MIST_MUST_CHECK enum mist_status mist_machine_read(enum mist_backend_choice choice,
                                                   struct mist_machine *out, char *note,
                                                   size_t note_bytes,
                                                   struct mist_err *err);

/* Whether the ranks compute on devices with a memory of their own. */
bool mist_machine_has_gpus(const struct mist_machine *machine);

/* Device memory of one of n_ranks ranks of a node: its part of a GPU's memory, or of 80 %
 * of the machine's. */
int64_t mist_machine_device_bytes(const struct mist_machine *machine, int32_t n_ranks);

/* What computes: "NVIDIA H200", or the processor's name. Borrowed from machine. */
const char *mist_machine_device_name(const struct mist_machine *machine);

/* Fills name, date (UTC), nodes, memory sizes and libraries of a cluster of n_nodes such
 * machines with n_node_ranks ranks each. */
void mist_machine_describe(const struct mist_machine *machine, int32_t n_nodes,
                           int32_t n_node_ranks, struct mist_cluster *out);

#endif
