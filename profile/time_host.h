/* What a machine costs beside operators and links: launching a task, handing over from
 * stream to stream, memory traffic, and what a process needs beside its arenas. */
#ifndef MIST_PROFILE_TIME_HOST_H
#define MIST_PROFILE_TIME_HOST_H

#include "profile/workbench.h"

struct mist_host_costs {
    double launch_us;    /* per task of a stream that has work. On the host: submit, take,
                            two looks at the clock as the runtime takes them, record. On a
                            GPU: from the end of a task's work to the begin of the next,
                            with an event between */
    double hand_over_us; /* from the end of a task to the begin of one on another, idle
                            stream that waits for it */
    double memory_bytes_per_s; /* read and written by a large copy on the compute stream,
                                  all ranks at once */
    int64_t runtime_memory_bytes; /* of a rank beside the arenas, largest over the ranks:
                                     resident on the host, in use on a GPU; 0: unknown */
};

/* All ranks must call it, after operators and links have run (so that libraries have
 * their memory). The same result everywhere. MIST_OK, or an error of device or
 * communicator; MIST_ERR_IO without /proc. */
MIST_MUST_CHECK enum mist_status mist_time_host(struct mist_workbench *bench,
                                                struct mist_host_costs *out,
                                                struct mist_err *err);

/*
 * FLOP/s of this rank's linear layers now, by a short trial on a device of its own: for
 * estimates of time only. MIST_OK or an error of device or operators.
 */
MIST_MUST_CHECK enum mist_status
mist_time_host_flop_per_s(const struct mist_backend *backend, int32_t i_device,
                          enum mist_dtype dtype, int32_t n_threads, double *flop_per_s,
                          struct mist_err *err);

#endif
