/*
 * Times messages between ranks and copies between the arenas, as the runtime makes them:
 * by tasks of the gpu_gpu, host_to_device and device_to_host streams.
 *
 * All ranks meet before every message; its time reaches from the moment the last member
 * began to the moment a member was done, averaged over the members (of a transfer: until
 * the receiver has it). The ranks are on one node and share its clock. Copies run on all
 * ranks at once. Consecutive messages use different memory. Messages take turns in
 * several rounds, so that slow changes of the machine meet all alike.
 *
 * Left out: several nodes; several groups at once.
 */
#ifndef MIST_PROFILE_TIME_LINKS_H
#define MIST_PROFILE_TIME_LINKS_H

#include "profile/workbench.h"

/*
 * estimates[grid->n_messages]: times in us, the same on all ranks. groups[k] is the group
 * of the first 2^(k+1) ranks, NULL on ranks outside it. All ranks must call it. MIST_OK,
 * MIST_ERR_MEMORY or an error of device or communicator.
 */
MIST_MUST_CHECK enum mist_status
mist_time_links(struct mist_workbench *bench, struct mist_comm_group *const *groups,
                double budget_s, struct mist_estimate *estimates, struct mist_err *err);

#endif
