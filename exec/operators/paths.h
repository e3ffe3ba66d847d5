/*
 * Which way a run's work goes, in words for people: what computes attention and matrix
 * products, and what carries messages between ranks. Said once, so that nobody has to
 * guess why a run is slow.
 */
#ifndef MIST_EXEC_PATHS_H
#define MIST_EXEC_PATHS_H

#include "core/status.h"
#include "exec/comm/collectives.h"
#include "exec/comm/comm.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { MIST_PATH_BYTES = 256 };

struct mist_paths {
    char attention[MIST_PATH_BYTES]; /* "cuDNN 9.19.0, deterministic backward" */
    char products[MIST_PATH_BYTES];
    char collectives[MIST_PATH_BYTES];
    int64_t n_fallbacks; /* products so far that a slower way made than was planned */
    char graphs[MIST_PATH_BYTES]; /* "replayed, 3.1 % faster"; "": the device can't */
};

/* Fills out->collectives. is_alone: no other rank computes on this rank's device
 * i_device. */
void mist_paths_describe_collectives(const struct mist_collectives *at,
                                     const struct mist_comm *comm, int32_t i_device,
                                     bool is_alone, struct mist_paths *out);

/* Of all[n_ranks] together: a text that all ranks have, or those that differ with their
 * ranks in front ("rank 0: ...; ranks 1-3: ...", cut where it is too long), and the sum
 * of fall-backs. */
void mist_paths_join(const struct mist_paths *all, int32_t n_ranks,
                     struct mist_paths *out);

/* The same of mine of every rank. All ranks call it; out is filled on rank 0 alone.
 * MIST_OK, MIST_ERR_MEMORY or MIST_ERR_RUN. */
MIST_MUST_CHECK enum mist_status mist_paths_gather(struct mist_comm *comm,
                                                   const struct mist_paths *mine,
                                                   struct mist_paths *out,
                                                   struct mist_err *err);

/* A line for each, as "graphs      replayed". */
void mist_paths_print_one(const char *name, const char *text, FILE *stream);
void mist_paths_print(const struct mist_paths *paths, FILE *stream);

#endif
