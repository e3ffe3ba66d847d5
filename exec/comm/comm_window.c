/*
 * What ranks of one node give each other through memory that all of them see. See
 * comm_internal.h.
 *
 * Every rank has a segment that the others map, too: memory without a name in any file
 * system, so nothing limits it as /dev/shm is limited, and nothing is left of a rank that
 * is killed. The others find it among the files that its process has open.
 *
 * A rank copies what the members of a group are to get into a slot of its segment and
 * posts to each of them where it lies; they read it in place when they come to it, and
 * then say that they have. Counters per pair of ranks do all of it: who posts counts up,
 * who has read counts up behind. Only who wants to fill a slot again waits for its last
 * readers, and with two slots nobody does: who gets a member's post knows that this member
 * is done with everything before the last one.
 */
#define _GNU_SOURCE /* memfd_create */
#include "exec/comm/comm_internal.h"

#include "core/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_SLOTS = 2, LINE_BYTES = 64 };

/* Larger parts are as fast as messages; these stay in the second-level cache. */
#define SLOT_BYTES ((int64_t)512 << 10)

/* What a rank tells another one; each line has one writer. */
struct pair {
    _Alignas(LINE_BYTES) _Atomic uint64_t n_posted;
    struct {
        int64_t offset_bytes, bytes; /* in the poster's segment */
    } posts[N_SLOTS];
    _Alignas(LINE_BYTES) _Atomic uint64_t n_read; /* of what the other has posted */
};

struct mist_comm_window {
    char **segments;    /* [ranks of the node]; each: a pair for every rank, then slots */
    uint64_t *n_posted; /* [ranks of the node]: by this rank to each */
    uint64_t *slot_posted; /* [N_SLOTS, ranks of the node]: the same behind each slot */
    int32_t *ranks;        /* [ranks of the node]: of the job */
    int32_t n;             /* ranks of the node */
    int fd;                /* of the own segment */
    int i_slot;            /* the one that was filled last */
};

static size_t segment_bytes(int32_t n)
{
    return (size_t)(n * (int64_t)sizeof(struct pair) + N_SLOTS * SLOT_BYTES);
}

/* What rank "from" of the node tells rank "to". */
static struct pair *pair_of(const struct mist_comm *comm, int32_t from, int32_t to)
{
    return (struct pair *)(void *)comm->window->segments[from] + to;
}

static char *slot_of(const struct mist_comm *comm, int i_slot)
{
    return (char *)pair_of(comm, comm->node_rank, comm->n_node_ranks) +
           i_slot * SLOT_BYTES;
}

static char *map_segment(int fd, int32_t n)
{
    void *map = mmap(NULL, segment_bytes(n), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return map == MAP_FAILED ? NULL : map;
}

/* The arrays lie behind the struct. */
struct mist_comm_window *mist_comm_window_new(const struct mist_comm *comm,
                                              struct mist_comm_segment *out)
{
    size_t n = (size_t)comm->n_node_ranks;
    struct mist_comm_window *window =
        calloc(1, sizeof *window + n * (sizeof *window->segments +
                                        (N_SLOTS + 1) * sizeof *window->n_posted +
                                        sizeof *window->ranks));
    struct stat info;

    *out = (struct mist_comm_segment){0};
    if (!window)
        return NULL;
    window->segments = (char **)(void *)(window + 1);
    window->n_posted = (uint64_t *)(void *)(window->segments + n);
    window->slot_posted = window->n_posted + n;
    window->ranks = (int32_t *)(void *)(window->slot_posted + N_SLOTS * n);
    window->n = comm->n_node_ranks;
    for (int32_t rank = 0; rank < comm->n_ranks; rank++)
        if (comm->node_ranks[rank] >= 0)
            window->ranks[comm->node_ranks[rank]] = rank;
    window->fd = memfd_create("mist", MFD_CLOEXEC);
    if (window->fd >= 0 && ftruncate(window->fd, (off_t)segment_bytes(window->n)) == 0)
        window->segments[comm->node_rank] = map_segment(window->fd, window->n);
    if (!window->segments[comm->node_rank] || fstat(window->fd, &info) != 0) {
        mist_comm_window_free(window);
        return NULL;
    }
    memset(window->segments[comm->node_rank], 0,
           segment_bytes(window->n)); /* its pages */
    *out = (struct mist_comm_segment){getpid(), window->fd, (int64_t)info.st_dev,
                                      (int64_t)info.st_ino};
    return window;
}

/* A process that can't be seen from here may have the number of another. */
static char *join_segment(const struct mist_comm_segment *segment, int32_t n)
{
    char path[64], *map = NULL;
    struct stat info;

    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)segment->process,
             (long long)segment->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &info) == 0 && (int64_t)info.st_dev == segment->device &&
        (int64_t)info.st_ino == segment->inode)
        map = map_segment(fd, n);
    if (fd >= 0)
        close(fd);
    return map;
}

bool mist_comm_window_join(struct mist_comm_window *window,
                           const struct mist_comm_segment *segments)
{
    bool has_all = true;

    for (int32_t i = 0; i < window->n && has_all; i++) {
        if (!window->segments[i] && segments[i].process > 0)
            window->segments[i] = join_segment(&segments[i], window->n);
        has_all = window->segments[i] != NULL;
    }
    return has_all;
}

void mist_comm_window_free(struct mist_comm_window *window)
{
    if (!window)
        return;
    for (int32_t i = 0; i < window->n; i++)
        if (window->segments[i])
            munmap(window->segments[i], segment_bytes(window->n));
    if (window->fd >= 0)
        close(window->fd);
    free(window);
}

bool mist_comm_window_holds(const struct mist_comm_group *group, int64_t bytes)
{
    return group->is_on_node && bytes <= SLOT_BYTES;
}

static int32_t node_rank_of(const struct mist_comm_group *group, int32_t member)
{
    return group->comm->node_ranks[group->ranks[member]];
}

/* Waits until a counter of the peer is there; message is what is late else. */
static enum mist_status wait_for(struct mist_comm *comm, const _Atomic uint64_t *counter,
                                 uint64_t target, const struct mist_comm_message *message,
                                 const char *operation, struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    double time_start_s = -1;

    while (status == MIST_OK &&
           atomic_load_explicit(counter, memory_order_acquire) < target) {
        if (time_start_s < 0)
            time_start_s = mist_clock_now_s();
        double waited_s = mist_clock_now_s() - time_start_s;
        status = waited_s < comm->deadline_s
                     ? mist_comm_rest(comm, operation, waited_s, err)
                     : mist_comm_fail_late(comm, operation, message, 1, 1, err);
    }
    return status;
}

/* The next slot, when all that had to read what is in it have done so. */
static enum mist_status claim_slot(const struct mist_comm_group *group,
                                   const struct mist_comm_exchange *exchange, char **slot,
                                   struct mist_err *err)
{
    struct mist_comm *comm = group->comm;
    struct mist_comm_window *window = comm->window;
    enum mist_status status = MIST_OK;

    window->i_slot = (window->i_slot + 1) % N_SLOTS;
    const uint64_t *posted = window->slot_posted + window->i_slot * comm->n_node_ranks;
    for (int32_t peer = 0; peer < comm->n_node_ranks && status == MIST_OK; peer++) {
        struct mist_comm_message message = {.is_send = true,
                                            .peer = window->ranks[peer],
                                            .tag = group->tag,
                                            .bytes = exchange->bytes};
        if (posted[peer] > 0)
            status = wait_for(comm, &pair_of(comm, peer, comm->node_rank)->n_read,
                              posted[peer], &message, exchange->operation, err);
    }
    *slot = slot_of(comm, window->i_slot);
    return status;
}

static void post(struct mist_comm *comm, int32_t peer, const char *at, int64_t bytes)
{
    struct mist_comm_window *window = comm->window;
    struct pair *pair = pair_of(comm, comm->node_rank, peer);
    uint64_t number = window->n_posted[peer]++;

    pair->posts[number % N_SLOTS].offset_bytes = at - window->segments[comm->node_rank];
    pair->posts[number % N_SLOTS].bytes = bytes;
    window->slot_posted[window->i_slot * comm->n_node_ranks + peer] = number + 1;
    atomic_store_explicit(&pair->n_posted, number + 1, memory_order_release);
}

enum mist_status mist_comm_window_give(const struct mist_comm_group *group,
                                       const struct mist_comm_exchange *exchange,
                                       struct mist_err *err)
{
    char *slot;

    if (group->comm->has_failed)
        return mist_comm_fail_again(exchange->operation, err);
    enum mist_status status = claim_slot(group, exchange, &slot, err);
    for (int32_t k = 1; k < group->n && status == MIST_OK; k++) {
        int32_t to = (group->index + k) % group->n;
        if (k == 1 || exchange->send_step_bytes > 0) {
            slot += k == 1 ? 0 : exchange->bytes;
            memcpy(slot, exchange->send + to * exchange->send_step_bytes,
                   (size_t)exchange->bytes);
        }
        post(group->comm, node_rank_of(group, to), slot, exchange->bytes);
    }
    return status;
}

enum mist_status mist_comm_window_look(const struct mist_comm_group *group,
                                       const struct mist_comm_exchange *exchange,
                                       int32_t member, const char **out,
                                       struct mist_err *err)
{
    struct mist_comm *comm = group->comm;
    int32_t peer = node_rank_of(group, member);
    const struct pair *theirs = pair_of(comm, peer, comm->node_rank);
    uint64_t number = atomic_load(&pair_of(comm, comm->node_rank, peer)->n_read);
    struct mist_comm_message message = {
        .peer = group->ranks[member], .tag = group->tag, .bytes = exchange->bytes};
    enum mist_status status =
        wait_for(comm, &theirs->n_posted, number + 1, &message, exchange->operation, err);

    if (status != MIST_OK)
        return status;
    *out = comm->window->segments[peer] + theirs->posts[number % N_SLOTS].offset_bytes;
    return theirs->posts[number % N_SLOTS].bytes == exchange->bytes
               ? MIST_OK
               : mist_comm_fail_bytes(comm, exchange->operation, &message,
                                      theirs->posts[number % N_SLOTS].bytes, err);
}

void mist_comm_window_end(const struct mist_comm_group *group)
{
    const struct mist_comm *comm = group->comm;

    for (int32_t i = 0; i < group->n; i++) {
        struct pair *pair = pair_of(comm, comm->node_rank, node_rank_of(group, i));
        if (i != group->index)
            atomic_fetch_add_explicit(&pair->n_read, 1, memory_order_release);
    }
}
