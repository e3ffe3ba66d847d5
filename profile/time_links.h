/*
 * Times messages between ranks and copies between the arenas, as the runtime makes them:
 * by tasks of the gpu_gpu, host_to_device and device_to_host streams.
 *
 * All ranks meet before every message, and all groups of its shape send it at once. On
 * one node, whose ranks share a clock, a message's time reaches from the moment the last
 * member of the group began to the moment a member was done (of a transfer: until the
 * receiver has it). Over several nodes, whose clocks differ, every member takes its own
 * time from when it began; a transfer goes there and back, and counts half. Either way
 * the row is the mean over members. On a GPU the ranks meet in its stream, and begin and
 * end are those of the kernels and copies of the message. Copies run on all ranks at
 * once. Consecutive messages use different memory, and on the host's processors every rank
 * computes for about a block before each, as in a run: a message whose ranks have just sent
 * another one is up to three times faster. Messages take turns in several rounds,
 * so that slow changes of the machine meet all alike, and other parts of a session can come
 * between them; those that take very long are repeated less.
 */
#ifndef MIST_PROFILE_TIME_LINKS_H
#define MIST_PROFILE_TIME_LINKS_H

#include "profile/workbench.h"

struct mist_time_links;

/* Rounds that shall take budget_s altogether. All ranks must call it. *out is to be closed
 * whatever the result, before bench. MIST_OK, MIST_ERR_MEMORY or MIST_ERR_RUN. */
MIST_MUST_CHECK enum mist_status mist_time_links_open(struct mist_workbench *bench,
                                                      double budget_s,
                                                      struct mist_time_links **out,
                                                      struct mist_err *err);
void mist_time_links_close(struct mist_time_links *at); /* NULL allowed */

/* Goes on until share (0 to 1, the same on all ranks) of the rounds are made. All ranks
 * must call it. MIST_OK, MIST_ERR_MEMORY or an error of device or communicator. */
MIST_MUST_CHECK enum mist_status mist_time_links_run(struct mist_time_links *at,
                                                     double share, struct mist_err *err);

/* estimates[grid->n_messages]: times in us, the same on all ranks, which must all call it.
 * MIST_OK, MIST_ERR_MEMORY or MIST_ERR_RUN. */
MIST_MUST_CHECK enum mist_status mist_time_links_find(const struct mist_time_links *at,
                                                      struct mist_estimate *estimates,
                                                      struct mist_err *err);

/*
 * About what a rank can send to one on another node, by a short trial before anything
 * else: for estimates of time only. All ranks must call it; 0 on one node.
 */
MIST_MUST_CHECK enum mist_status
mist_time_links_try(struct mist_comm *comm, double *bytes_per_s, struct mist_err *err);

/* Least time that mist_time_links takes when ranks of different nodes exchange
 * bytes_per_s (0: one node): what goes between nodes, each message as often as
 * it must. */
double mist_time_links_least_s(const struct mist_grid *grid, double bytes_per_s);

#endif
