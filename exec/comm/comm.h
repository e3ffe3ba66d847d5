/*
 * Communication between ranks: collectives and transfers over MPI, deterministic and with
 * a deadline on every wait.
 *
 * Sums are always taken in rank order (((x0 + x1) + x2) + ...) by the one rank that owns
 * the element, so a result has the same bits whatever the timing, and an all-reduce has
 * the same bits as a reduce-scatter followed by an all-gather. They are built on
 * point-to-point messages: in a group every rank sends every other rank the piece that
 * one owns, which moves as many bytes as a ring does. What is small goes through memory
 * that the ranks of a node share, without messages, and with the same bits.
 *
 * Threads: one at a time may send, one at a time receive, and one at a time do all else
 * with a communicator; the three don't wait for one another. In a run those are the
 * workers of the send, receive and gpu_gpu streams; while the streams are idle the main
 * thread may use it for the control operations below. Calls of MPI take turns
 * (MPI_THREAD_SERIALIZED).
 *
 * Errors: MIST_ERR_RUN names the operation, the peer, the tag and the bytes, also when a
 * deadline expires. After one, messages may still be under way: a communicator that
 * failed refuses every further operation, and the job should end with mist_comm_abort().
 * That a rank died is told by the launcher, which ends the job and names it (mpirun:
 * within seconds); where it doesn't, the others find out by their deadlines.
 *
 * Left out: all-to-all, communication with groups one is not in.
 */
#ifndef MIST_EXEC_COMM_H
#define MIST_EXEC_COMM_H

#include "core/status.h"
#include "sim/model/model.h" /* enum mist_dtype */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct mist_comm;       /* all ranks of the job */
struct mist_comm_group; /* some of them, in an order of their own */

/* The rank, before MPI can be asked: what a launcher of Open MPI, of PMIx or of PMI (srun,
 * hydra) says; NULL: there is none. */
const char *mist_comm_launched_rank(void);

/* Likewise: stdout, but NULL on all ranks except the first, for what is printed once. */
FILE *mist_comm_launched_stdout(void);

/*
 * Under mpirun or srun (known by their environment variables) this initialises MPI, which
 * works once per process; otherwise it is a job of one rank for which every operation is
 * trivial and MPI is never started. *out is owned by the caller (mist_comm_close). All
 * ranks must call it. MIST_OK, MIST_ERR_MEMORY or MIST_ERR_RUN.
 */
MIST_MUST_CHECK enum mist_status mist_comm_open(struct mist_comm **out,
                                                struct mist_err *err);

/*
 * The same with a deadline (> 0) of the caller's choice (mist_comm_open(): 120 s), which
 * is also the one of every later wait. Starting MPI, and ending it in mist_comm_close(),
 * waits for all ranks inside MPI, where nothing but the end of the process can stop it:
 * that is what happens when the deadline comes before the last rank, with one line on
 * stderr and the exit code of MIST_ERR_RUN.
 */
MIST_MUST_CHECK enum mist_status
mist_comm_open_deadline(struct mist_comm **out, double deadline_s, struct mist_err *err);

/* Frees comm and its groups and finalises MPI; all ranks must call it, within the
 * deadline. After a failure MPI is left as it is, since finalising could hang. NULL
 * allowed. */
void mist_comm_close(struct mist_comm *comm);

/* Ends all ranks of the job at once with an exit code. Does not return. */
_Noreturn void mist_comm_abort(struct mist_comm *comm, int code);

int32_t mist_comm_rank(const struct mist_comm *comm);    /* 0 .. n_ranks-1 */
int32_t mist_comm_n_ranks(const struct mist_comm *comm); /* >= 1 */

/* Which node (numbered by their lowest rank), how many ranks run on this one, and which
 * of them this is (0 ..). */
int32_t mist_comm_node(const struct mist_comm *comm);
int32_t mist_comm_n_node_ranks(const struct mist_comm *comm);
int32_t mist_comm_node_rank(const struct mist_comm *comm);

/* Which MPI library this is and of what version, such as "Open MPI v4.1.4", into
 * text[size_bytes]. Needs no communicator; any thread. */
void mist_comm_describe(char *text, size_t size_bytes);

/* Ends the wait that is under way, and every later one, with MIST_ERR_RUN: something else
 * failed on this rank, and what others wait for will not come. From any thread. */
void mist_comm_cancel(struct mist_comm *comm);

/* How long any one wait may take before it fails; > 0. */
void mist_comm_set_deadline(struct mist_comm *comm, double deadline_s);

/*
 * What the rank does while one of its messages is waited for: pause(context) does some of
 * its other work and returns true, or false if there is none; called from the waiting
 * thread, between looks, waited_s after the first. NULL (as after opening): there is none.
 */
void mist_comm_set_pause(struct mist_comm *comm,
                         bool (*pause)(void *context, double waited_s), void *context);

/* --------------------------------------------------------------------------- groups */

/*
 * Makes a group of the n given ranks, all different, this one among them; element i of a
 * sum belongs to ranks[i / (elements / n)], sums go in the order of ranks[]. All members
 * must give the same list and the same tag_space, a number >= 0 that no other group with
 * a common pair of members uses. ranks is copied. *out is owned by comm. Local: nothing
 * is sent. MIST_OK, MIST_ERR_MEMORY, MIST_ERR_RANGE (tag_space too large) or
 * MIST_ERR_INPUT (not a valid list).
 */
MIST_MUST_CHECK enum mist_status
mist_comm_group(struct mist_comm *comm, const int32_t *ranks, int32_t n,
                int32_t tag_space, struct mist_comm_group **out, struct mist_err *err);
int32_t mist_comm_group_size(const struct mist_comm_group *group);
int32_t mist_comm_group_index(const struct mist_comm_group *group); /* of this rank */

/*
 * Memory for messages on their way in, for sums of up to max_message_bytes (the whole
 * buffer, not the shard) in groups of up to max_group_size. It is bounded however large
 * the message is: sums go in pieces. reserve() allocates that much, and must be called
 * before the first sum in a group of more than one rank, not during a step. Calling it
 * again only grows it. MIST_OK or MIST_ERR_MEMORY.
 */
int64_t mist_comm_workspace_bytes(int64_t max_message_bytes, int32_t max_group_size);
MIST_MUST_CHECK enum mist_status mist_comm_reserve(struct mist_comm *comm,
                                                   int64_t max_message_bytes,
                                                   int32_t max_group_size,
                                                   struct mist_err *err);

/*
 * Collectives: every member calls the same ones in the same order with the same sizes.
 * n elements (a multiple of the group's size; the caller pads); shard i is
 * buffer[i * n / size .. (i + 1) * n / size - 1]. They allocate nothing and return when
 * buffer may be used again. Elements are fp32, or bf16 as uint16_t (the upper half of an
 * fp32): these are added up in fp32 and rounded once, at the end, to the nearest, ties to
 * even. Groups with common members may be used in turn, in the same order on all of them.
 * MIST_OK, MIST_ERR_RANGE (n does not divide, nothing reserved) or MIST_ERR_RUN.
 */

/* buffer[n]: afterwards the sum over the members, everywhere. */
MIST_MUST_CHECK enum mist_status mist_comm_all_reduce(struct mist_comm_group *group,
                                                      enum mist_dtype dtype, void *buffer,
                                                      int64_t n, struct mist_err *err);

/* whole[n], shard[n / size]: the own shard's sum goes to shard, which is either that
 * shard of whole or apart from it; the rest of whole is unchanged. */
MIST_MUST_CHECK enum mist_status
mist_comm_reduce_scatter(struct mist_comm_group *group, enum mist_dtype dtype,
                         const void *whole, void *shard, int64_t n, struct mist_err *err);

/* whole[size * shard_bytes]: every member gives shard[shard_bytes], which is either its
 * place in whole or apart from it, and gets the others. */
MIST_MUST_CHECK enum mist_status mist_comm_all_gather(struct mist_comm_group *group,
                                                      const void *shard, void *whole,
                                                      int64_t shard_bytes,
                                                      struct mist_err *err);

/* ------------------------------------------------------------------------- transfers */

/*
 * A message of exactly bytes (>= 0; both sides must say the same) between two different
 * ranks. send returns when ptr may be used again, which may be before or after the other
 * side receives; messages with the same tag (>= 0) between two ranks arrive in order.
 * MIST_OK, MIST_ERR_RANGE (no such peer or tag) or MIST_ERR_RUN.
 */
MIST_MUST_CHECK enum mist_status mist_comm_send(struct mist_comm *comm, int32_t peer,
                                                int32_t tag, const void *ptr,
                                                int64_t bytes, struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_comm_recv(struct mist_comm *comm, int32_t peer,
                                                int32_t tag, void *ptr, int64_t bytes,
                                                struct mist_err *err);

/* --------------------------------------------------------- control, all ranks at once */

enum mist_comm_reduction { MIST_COMM_SUM, MIST_COMM_MAX, MIST_COMM_MIN };

MIST_MUST_CHECK enum mist_status mist_comm_barrier(struct mist_comm *comm,
                                                   struct mist_err *err);

/*
 * Runs work(context), which leaves comm alone, on every rank, and returns on all when it has
 * ended everywhere: as mist_comm_agree() does, of what came of it. It may take a rank longer
 * than the deadline: a disk that flushes, another job to wait for. A thread of its own
 * answers the other ranks meanwhile, so the deadline tells a rank that is gone from one
 * that is slow; one that works forever is waited for forever. MIST_ERR_MEMORY, also for want
 * of a thread: nothing was run, and comm has failed, too.
 */
MIST_MUST_CHECK enum mist_status
mist_comm_work_together(struct mist_comm *comm,
                        enum mist_status (*work)(void *context, struct mist_err *err),
                        void *context, struct mist_err *err);

/*
 * values[n]: afterwards, on every rank, the sum in rank order or the extreme over all
 * ranks. f64: not a number if one of them is. i64: exact; MIST_ERR_RANGE on all ranks
 * alike, which then may go on, if a sum does not fit on the way (values then hold
 * anything). Neither allocates. Made for few values: every rank sends its own to all, in
 * log2(ranks) rounds. MIST_OK, MIST_ERR_RANGE or MIST_ERR_RUN.
 */
MIST_MUST_CHECK enum mist_status
mist_comm_all_reduce_f64(struct mist_comm *comm, enum mist_comm_reduction reduction,
                         double *values, int32_t n, struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_comm_all_reduce_i64(struct mist_comm *comm, enum mist_comm_reduction reduction,
                         int64_t *values, int32_t n, struct mist_err *err);

/*
 * Brings n_bytes (own size per rank, >= 0) of every rank to rank 0. There *all, malloc'd
 * and owned by the caller, holds them one behind the other in rank order, with a '\0'
 * behind the last, and sizes[n_ranks], unless NULL, their sizes. On other ranks *all is
 * NULL, and sizes is untouched. MIST_OK, MIST_ERR_MEMORY, MIST_ERR_RUN.
 */
MIST_MUST_CHECK enum mist_status
mist_comm_gather_bytes(struct mist_comm *comm, const void *bytes, int64_t n_bytes,
                       char **all, int64_t *sizes, struct mist_err *err);

/* own[n_bytes], the same size everywhere: afterwards those of every rank are in
 * all[n_ranks * n_bytes] on every rank. MIST_OK, MIST_ERR_MEMORY, MIST_ERR_RUN. */
MIST_MUST_CHECK enum mist_status mist_comm_share_bytes(struct mist_comm *comm,
                                                       const void *own, int64_t n_bytes,
                                                       void *all, struct mist_err *err);

/* bytes[n_bytes] of rank root, to every rank; n_bytes the same everywhere. MIST_OK,
 * MIST_ERR_RUN. */
MIST_MUST_CHECK enum mist_status mist_comm_broadcast_bytes(struct mist_comm *comm,
                                                           int32_t root, void *bytes,
                                                           int64_t n_bytes,
                                                           struct mist_err *err);

/* Every rank gets the status, and the message, of the first rank that failed; if not all
 * could be told MIST_ERR_RUN, but where a rank failed itself. */
MIST_MUST_CHECK enum mist_status
mist_comm_agree(struct mist_comm *comm, enum mist_status status, struct mist_err *err);

/* The rank whose failure the last agreement was about, of which all ranks know; -1: none
 * was, or not all know. */
int32_t mist_comm_agreed_rank(const struct mist_comm *comm);

#endif
