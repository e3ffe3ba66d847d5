/*
 * Private to the communicator: the messages that comm_mpi.c moves and out of which
 * comm_collective.c, comm_sum.c and comm_control.c build everything else. Only comm_mpi.c
 * knows MPI.
 */
#ifndef MIST_EXEC_COMM_INTERNAL_H
#define MIST_EXEC_COMM_INTERNAL_H

#include "exec/comm/comm.h"

#include <pthread.h>
#include <stdatomic.h>

/* Tags of different spaces never meet. */
enum mist_comm_space {
    MIST_COMM_SPACE_TRANSFER,
    MIST_COMM_SPACE_GROUP,
    MIST_COMM_SPACE_CONTROL,
    MIST_N_COMM_SPACES
};

/* Messages are waited for together with the others of their lane: of sums, one piece in
 * each of two; of transfers, which are under way beside all else. */
enum {
    MIST_N_COMM_SUM_LANES = 2,
    MIST_COMM_LANE_SEND = MIST_N_COMM_SUM_LANES,
    MIST_COMM_LANE_RECEIVE,
    MIST_N_COMM_LANES
};

static inline int64_t mist_comm_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* One message is at most this long; longer ones are cut by the caller. */
#define MIST_COMM_MAX_MESSAGE_BYTES ((int64_t)1 << 28)

/* What the small reductions of all ranks take at once. */
enum { MIST_COMM_MAX_WORDS = 256 };

struct mist_comm_mpi;    /* what MPI needs */
struct mist_comm_window; /* what ranks of one node need */

struct mist_comm {
    int32_t rank, n_ranks;
    int32_t node, node_rank, n_node_ranks;
    int32_t max_tag;
    int32_t agreed_rank; /* mist_comm_agreed_rank() */
    double deadline_s;
    bool (*pause)(void *context, double waited_s); /* NULL: nothing to do in a wait */
    void *pause_context;
    atomic_bool is_cancelled;  /* set from any thread; ends the waits */
    atomic_bool has_failed;    /* messages may be under way: nothing more is possible */
    struct mist_comm_mpi *mpi; /* owned; NULL: a job of one rank */
    int32_t *node_ranks; /* owned; [n_ranks]: node_rank of each; -1: on another node */
    struct mist_comm_window *window; /* owned; NULL: messages have to do */
    char *workspace;                 /* owned; workspace_bytes */
    int64_t workspace_bytes;
    char *words; /* owned; [n_ranks, MIST_COMM_MAX_WORDS] of 8 bytes; NULL for one rank */
    struct mist_comm_group *groups; /* owned; a list */
};

struct mist_comm_group {
    struct mist_comm *comm;
    struct mist_comm_group *next;
    enum mist_comm_space space;
    int32_t tag;
    bool is_on_node;      /* all members share a window */
    int32_t n, index;     /* members; which of them this rank is */
    const char **parts;   /* [n]; behind this struct: what each brings to a sum */
    const int32_t *ranks; /* [n]; behind this struct */
};

/* One message; the memory at ptr must stay until its lane has been waited for. */
struct mist_comm_message {
    enum mist_comm_space space;
    bool is_send;
    int32_t peer, tag;
    void *ptr; /* only read if is_send */
    int64_t bytes;
};

/*
 * Starts a message; a lane holds 2 n_ranks of them. wait ends when all of the lane are
 * done, and empties it. operation, a word such as "all_reduce", is for the message of an
 * error. Both return MIST_OK or MIST_ERR_RUN, after which comm has failed.
 */
MIST_MUST_CHECK enum mist_status
mist_comm_start_message(struct mist_comm *comm, int lane, const char *operation,
                        const struct mist_comm_message *message, struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_comm_wait_lane(struct mist_comm *comm, int lane,
                                                     const char *operation,
                                                     struct mist_err *err);

/* Between two looks for something of another rank: other work of this rank, or rest.
 * MIST_OK: look again; MIST_ERR_RUN: it was cancelled, comm has failed. */
MIST_MUST_CHECK enum mist_status mist_comm_rest(struct mist_comm *comm,
                                                const char *operation, double waited_s,
                                                struct mist_err *err);

/* Make comm fail, return MIST_ERR_RUN: n_late of n messages are, such as this one; a
 * message came with other bytes. And what a comm that has failed answers. */
enum mist_status mist_comm_fail_late(struct mist_comm *comm, const char *operation,
                                     const struct mist_comm_message *message, int n_late,
                                     int n, struct mist_err *err);
enum mist_status mist_comm_fail_bytes(struct mist_comm *comm, const char *operation,
                                      const struct mist_comm_message *message,
                                      int64_t bytes, struct mist_err *err);
enum mist_status mist_comm_fail_again(const char *operation, struct mist_err *err);

/* One piece that every member of a group sends to and gets from every other. */
struct mist_comm_exchange {
    const char *operation;
    char *send;              /* what member 0 gets */
    int64_t send_step_bytes; /* to what the next member gets; 0: all get the same */
    char *recv;              /* where member 0's goes */
    int64_t recv_step_bytes; /* to where the next member's goes */
    bool has_no_gap;         /* recv has no place for this rank's own */
    int64_t bytes;           /* of the piece */
};

/* Starts the messages of an exchange in an empty lane; and a whole all_gather in place,
 * under the name of another operation. comm_collective.c */
MIST_MUST_CHECK enum mist_status
mist_comm_start_exchange(const struct mist_comm_group *group, int lane,
                         const struct mist_comm_exchange *exchange, struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_comm_gather_shards(const struct mist_comm_group *group, char *buffer,
                        int64_t shard_bytes, const char *operation, struct mist_err *err);

/*
 * The same exchange through memory that the ranks of a node share: what a rank gives lies
 * in its segment until all have read it there. comm_window.c
 *
 * new                 makes the own segment, which *out tells the others. NULL, and *out
 *                     zeroed: it can't be had.
 * join                maps those of all ranks of the node, segments[n_node_ranks]; false:
 *                     not all can be had, and the window is of no use. After it has
 *                     worked on all of them the window may be used.
 * free                NULL allowed.
 * holds               whether a group can exchange so many bytes, all that a rank gives.
 * give                copies what the members get from exchange->send; returns when that
 *                     may be used again.
 * look                waits for what a member gives; *out is exchange->bytes of its
 *                     memory, to be read until end. Once for every other member.
 * end                 the other members may give something else.
 *
 * give and look return MIST_OK or MIST_ERR_RUN, after which comm has failed.
 */
struct mist_comm_segment {
    int64_t process, fd; /* which has it open, and as which file */
    int64_t device, inode;
};
struct mist_comm_window *mist_comm_window_new(const struct mist_comm *comm,
                                              struct mist_comm_segment *out);
bool mist_comm_window_join(struct mist_comm_window *window,
                           const struct mist_comm_segment *segments);
void mist_comm_window_free(struct mist_comm_window *window);
bool mist_comm_window_holds(const struct mist_comm_group *group, int64_t bytes);
MIST_MUST_CHECK enum mist_status
mist_comm_window_give(const struct mist_comm_group *group,
                      const struct mist_comm_exchange *exchange, struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_comm_window_look(const struct mist_comm_group *group,
                      const struct mist_comm_exchange *exchange, int32_t member,
                      const char **out, struct mist_err *err);
void mist_comm_window_end(const struct mist_comm_group *group);

/*
 * Until unwatch, which frees it (NULL allowed), the operation has deadline_s; then the
 * process ends, with a line on stderr. NULL: out of memory or threads. comm_watchdog.c
 */
struct mist_comm_watchdog;
struct mist_comm_watchdog *mist_comm_watch(const char *operation, double deadline_s);
void mist_comm_unwatch(struct mist_comm_watchdog *watchdog);

#endif
