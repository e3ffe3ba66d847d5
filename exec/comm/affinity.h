/*
 * Which processors a rank runs on.
 *
 * Launchers bind: mpirun puts each of one or two ranks on one core. A rank has more
 * threads at work than that: its compute team and the streams beside it; with a GPU the
 * dispatcher, CUDA's thread for functions of the host and NCCL's proxy. So ranks look
 * where they may run and, if the launcher is what narrowed all of a node's ranks below
 * what they have use for, share out what the launcher itself may use: equal, disjoint
 * shares of whole cores, neighbours by package. What others set (cpusets, taskset around
 * or behind the launcher, OMP_PROC_BIND) is never left; then a note says what is short.
 *
 * Left out: places near a GPU or a network adapter; notes about nodes other than the
 * first rank's; machines of more than MIST_MAX_PROCESSORS.
 */
#ifndef MIST_EXEC_AFFINITY_H
#define MIST_EXEC_AFFINITY_H

#include "core/status.h"
#include "exec/comm/comm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MIST_MAX_PROCESSORS = 1024 };

/* Processor p: bit p % 64 of bits[p / 64]. */
struct mist_processors {
    uint64_t bits[MIST_MAX_PROCESSORS / 64];
};

/* A rank as it was started. */
struct mist_affinity_rank {
    struct mist_processors bound;  /* where it may run; not empty */
    struct mist_processors within; /* where it could: more than bound where the launcher
                                      is what bound it */
    int32_t n_needed; /* threads that compute; fewer processors are worth a note */
    int32_t n_wanted; /* threads that work at once, >= n_needed */
};

/* What a rank gets. */
struct mist_affinity {
    struct mist_processors processors; /* where it runs */
    int32_t n_processors; /* of these, those shared with other ranks divided; >= 1 */
    bool is_widened;      /* processors is more than what it was bound to */
    bool is_short;        /* n_processors < n_needed */
};

/*
 * The decision for rank i_rank of the n ranks of a node, a function of its arguments: all
 * ranks come to the same shares. core_of: [MIST_MAX_PROCESSORS], equal for the threads of
 * a core, ascending from package to package.
 */
void mist_affinity_decide(const struct mist_affinity_rank *ranks, int32_t n,
                          int32_t i_rank, const int64_t *core_of,
                          struct mist_affinity *out);

/*
 * Looks, decides and binds the calling thread, from which later threads inherit; threads
 * that are there already (MPI's, which sleep) stay. All ranks call it.
 *
 * n_threads   of the compute stream; 0: the rank computes on a GPU.
 * keeps       leave everything as launched (--bind none), and have nothing to say.
 * note        [note_bytes]; what there is to say, "" nothing; of rank 0's node.
 * MIST_OK, MIST_ERR_MEMORY or an error of the communicator.
 */
MIST_MUST_CHECK enum mist_status mist_affinity_settle(struct mist_comm *comm,
                                                      int32_t n_threads, bool keeps,
                                                      struct mist_affinity *out,
                                                      char *note, size_t note_bytes,
                                                      struct mist_err *err);

/* The words of --bind: "auto", "none" (as launched); NULL-terminated. */
extern const char *const mist_affinity_words[];

static inline void mist_processors_add(struct mist_processors *set, int32_t i)
{
    set->bits[i / 64] |= (uint64_t)1 << (i % 64);
}

static inline bool mist_processors_has(const struct mist_processors *set, int32_t i)
{
    return set->bits[i / 64] >> (i % 64) & 1;
}

int32_t mist_processors_count(const struct mist_processors *set);

/* "0-3,8", cut to size with its terminator; returns text. */
char *mist_processors_text(const struct mist_processors *set, char *text, size_t size);

#endif
