/*
 * Transfers between two ranks, and operations of all ranks for the time between
 * iterations, where they need not be fast: built out of messages, so that every wait has
 * its deadline and every sum its order.
 */
#include "exec/comm/comm_internal.h"

#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int32_t mist_comm_rank(const struct mist_comm *comm)
{
    return comm->rank;
}

int32_t mist_comm_n_ranks(const struct mist_comm *comm)
{
    return comm->n_ranks;
}

int32_t mist_comm_node(const struct mist_comm *comm)
{
    return comm->node;
}

int32_t mist_comm_n_node_ranks(const struct mist_comm *comm)
{
    return comm->n_node_ranks;
}

int32_t mist_comm_node_rank(const struct mist_comm *comm)
{
    return comm->node_rank;
}

void mist_comm_cancel(struct mist_comm *comm)
{
    atomic_store(&comm->is_cancelled, true);
}

void mist_comm_set_deadline(struct mist_comm *comm, double deadline_s)
{
    comm->deadline_s = deadline_s;
}

void mist_comm_set_pause(struct mist_comm *comm,
                         bool (*pause)(void *context, double waited_s), void *context)
{
    comm->pause = pause;
    comm->pause_context = context;
}

/* ----------------------------------------------------------------- what can go wrong */

enum mist_status mist_comm_fail_late(struct mist_comm *comm, const char *operation,
                                     const struct mist_comm_message *message, int n_late,
                                     int n, struct mist_err *err)
{
    comm->has_failed = true;
    return mist_err_set(err, MIST_ERR_RUN,
                        "%s: rank %ld has waited %g s for %s rank %ld, tag %ld, %lld "
                        "bytes (%d of %d messages are late)",
                        operation, (long)comm->rank, comm->deadline_s,
                        message->is_send ? "sending to" : "receiving from",
                        (long)message->peer, (long)message->tag,
                        (long long)message->bytes, n_late, n);
}

enum mist_status mist_comm_fail_bytes(struct mist_comm *comm, const char *operation,
                                      const struct mist_comm_message *message,
                                      int64_t bytes, struct mist_err *err)
{
    comm->has_failed = true;
    return mist_err_set(err, MIST_ERR_RUN,
                        "%s: rank %ld sent %lld bytes with tag %ld, not %lld", operation,
                        (long)message->peer, (long long)bytes, (long)message->tag,
                        (long long)message->bytes);
}

enum mist_status mist_comm_fail_again(const char *operation, struct mist_err *err)
{
    return mist_err_set(err, MIST_ERR_RUN, "%s: communication has failed before",
                        operation);
}

/* ------------------------------------------------------------------------- transfers */

/* One message of any length, in as many as it takes; at least one, so that transfers of
 * no bytes wait for the other side too. */
static enum mist_status transfer(struct mist_comm *comm, struct mist_comm_message message,
                                 const char *operation, struct mist_err *err)
{
    int lane = message.is_send ? MIST_COMM_LANE_SEND : MIST_COMM_LANE_RECEIVE;
    enum mist_status status;
    int64_t left_bytes = message.bytes;

    do {
        message.bytes = left_bytes < MIST_COMM_MAX_MESSAGE_BYTES
                            ? left_bytes
                            : MIST_COMM_MAX_MESSAGE_BYTES;
        status = mist_comm_start_message(comm, lane, operation, &message, err);
        if (status == MIST_OK)
            status = mist_comm_wait_lane(comm, lane, operation, err);
        message.ptr = (char *)message.ptr + message.bytes;
        left_bytes -= message.bytes;
    } while (left_bytes > 0 && status == MIST_OK);
    return status;
}

/* The same between two ranks, if its peer, tag and bytes are possible. */
static enum mist_status transfer_checked(struct mist_comm *comm,
                                         const struct mist_comm_message *message,
                                         const char *operation, struct mist_err *err)
{
    if (message->peer < 0 || message->peer >= comm->n_ranks ||
        message->peer == comm->rank)
        return mist_err_set(err, MIST_ERR_RANGE, "%s: rank %ld has no peer %ld of %ld",
                            operation, (long)comm->rank, (long)message->peer,
                            (long)comm->n_ranks);
    if (message->tag < 0 || message->tag > comm->max_tag || message->bytes < 0)
        return mist_err_set(err, MIST_ERR_RANGE,
                            "%s: tag %ld (0 to %ld), %lld bytes (at least 0)", operation,
                            (long)message->tag, (long)comm->max_tag,
                            (long long)message->bytes);
    return transfer(comm, *message, operation, err);
}

enum mist_status mist_comm_send(struct mist_comm *comm, int32_t peer, int32_t tag,
                                const void *ptr, int64_t bytes, struct mist_err *err)
{
    struct mist_comm_message message = {.space = MIST_COMM_SPACE_TRANSFER,
                                        .is_send = true,
                                        .peer = peer,
                                        .tag = tag,
                                        .ptr = (void *)(uintptr_t)ptr,
                                        .bytes = bytes};
    return transfer_checked(comm, &message, "send", err);
}

enum mist_status mist_comm_recv(struct mist_comm *comm, int32_t peer, int32_t tag,
                                void *ptr, int64_t bytes, struct mist_err *err)
{
    struct mist_comm_message message = {.space = MIST_COMM_SPACE_TRANSFER,
                                        .peer = peer,
                                        .tag = tag,
                                        .ptr = ptr,
                                        .bytes = bytes};
    return transfer_checked(comm, &message, "recv", err);
}

/* --------------------------------------------------------------------------- control */

static enum mist_status control(struct mist_comm *comm, bool is_send, int32_t peer,
                                void *ptr, int64_t bytes, const char *operation,
                                struct mist_err *err)
{
    struct mist_comm_message message = {.space = MIST_COMM_SPACE_CONTROL,
                                        .is_send = is_send,
                                        .peer = peer,
                                        .ptr = ptr,
                                        .bytes = bytes};

    return transfer(comm, message, operation, err);
}

/* A message each way at once, to one rank and from another. */
static enum mist_status swap(struct mist_comm *comm, int64_t to, const void *sent,
                             int64_t from, void *got, int64_t bytes,
                             const char *operation, struct mist_err *err)
{
    struct mist_comm_message message = {.space = MIST_COMM_SPACE_CONTROL,
                                        .peer = (int32_t)(from % comm->n_ranks),
                                        .ptr = got,
                                        .bytes = bytes};
    enum mist_status status = mist_comm_start_message(comm, 0, operation, &message, err);

    message.is_send = true;
    message.peer = (int32_t)(to % comm->n_ranks);
    message.ptr = (void *)(uintptr_t)sent;
    if (status == MIST_OK)
        status = mist_comm_start_message(comm, 0, operation, &message, err);
    return status == MIST_OK ? mist_comm_wait_lane(comm, 0, operation, err) : status;
}

/*
 * Dissemination (Hensgen, Finkel, Manber 1988): in round k everybody hears of 2^k more.
 */
enum mist_status mist_comm_barrier(struct mist_comm *comm, struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    int64_t n = comm->n_ranks;

    for (int64_t step = 1; step < n && status == MIST_OK; step *= 2)
        status = swap(comm, comm->rank + step, NULL, comm->rank + n - step, NULL, 0,
                      "barrier", err);
    return status;
}

/* ------------------------------------------------------------------ small reductions */

/*
 * Brings n words (of 8 bytes; at most MIST_COMM_MAX_WORDS) of every rank to every other:
 * words_of() then gives those of a rank. In round k everybody has those of 2^k ranks from
 * itself on and gives them to the one that far before it (Bruck et al. 1997): fewest
 * rounds, and nobody waits for a root. Eight words, one call behind the other, measured
 * like the figures in comm_mpi.c: 0.3 to 1.4 us for 2 ranks; where 4 share the two
 * processors 5 to 55 us, and where 8 do 20 to 500, mostly the wait for one's turn.
 */
static enum mist_status share_words(struct mist_comm *comm, const void *mine, int32_t n,
                                    const char *operation, struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    int64_t n_ranks = comm->n_ranks, own_bytes = n * (int64_t)8;

    memcpy(comm->words, mine, (size_t)own_bytes);
    for (int64_t step = 1; step < n_ranks && status == MIST_OK; step *= 2) {
        int64_t count = step < n_ranks - step ? step : n_ranks - step;
        status = swap(comm, comm->rank + n_ranks - step, comm->words, comm->rank + step,
                      comm->words + step * own_bytes, count * own_bytes, operation, err);
    }
    return status;
}

static const void *words_of(const struct mist_comm *comm, int32_t rank, int32_t n)
{
    return comm->words + (rank - comm->rank + comm->n_ranks) % comm->n_ranks * (n * 8);
}

static double reduce_f64(enum mist_comm_reduction reduction, double a, double b)
{
    if (reduction == MIST_COMM_SUM)
        return a + b;
    if (isnan(a) || isnan(b))
        return NAN;
    return (reduction == MIST_COMM_MAX) == (a > b) ? a : b;
}

/* *a becomes the reduction of it and b; false: it does not fit. */
static bool reduce_i64(enum mist_comm_reduction reduction, int64_t *a, int64_t b)
{
    if (reduction == MIST_COMM_SUM)
        return !__builtin_add_overflow(*a, b, a);
    if ((reduction == MIST_COMM_MAX) == (b > *a))
        *a = b;
    return true;
}

union word {
    double f64;
    int64_t i64;
};

/* values[n] are f64 or i64. All ranks see the same words, so all find the same sum too
 * large. */
static enum mist_status reduce_words(struct mist_comm *comm,
                                     enum mist_comm_reduction reduction,
                                     union word *values, int32_t n, bool is_f64,
                                     struct mist_err *err)
{
    const char *operation = is_f64 ? "all_reduce_f64" : "all_reduce_i64";
    enum mist_status status = MIST_OK;

    if (comm->n_ranks == 1)
        return MIST_OK;
    for (int32_t begin = 0; begin < n; begin += MIST_COMM_MAX_WORDS) {
        int32_t count = n - begin < MIST_COMM_MAX_WORDS ? n - begin : MIST_COMM_MAX_WORDS;
        status = share_words(comm, values + begin, count, operation, err);
        if (status != MIST_OK)
            break;
        memcpy(values + begin, words_of(comm, 0, count), (size_t)count * sizeof *values);
        for (int32_t rank = 1; rank < comm->n_ranks; rank++) {
            const union word *others = words_of(comm, rank, count);
            for (int32_t i = 0; i < count; i++) {
                union word *value = &values[begin + i];
                if (is_f64)
                    value->f64 = reduce_f64(reduction, value->f64, others[i].f64);
                else if (!reduce_i64(reduction, &value->i64, others[i].i64))
                    return mist_err_set(err, MIST_ERR_RANGE,
                                        "%s: the sum of value %ld up to rank %ld does "
                                        "not fit 63 bits",
                                        operation, (long)(begin + i), (long)rank);
            }
        }
    }
    return status;
}

enum mist_status mist_comm_all_reduce_f64(struct mist_comm *comm,
                                          enum mist_comm_reduction reduction,
                                          double *values, int32_t n, struct mist_err *err)
{
    return reduce_words(comm, reduction, (union word *)values, n, true, err);
}

enum mist_status mist_comm_all_reduce_i64(struct mist_comm *comm,
                                          enum mist_comm_reduction reduction,
                                          int64_t *values, int32_t n,
                                          struct mist_err *err)
{
    return reduce_words(comm, reduction, (union word *)values, n, false, err);
}

/* ------------------------------------------------------------------- bytes to and fro */

/* A binomial tree; place is the rank counted from root. */
enum mist_status mist_comm_broadcast_bytes(struct mist_comm *comm, int32_t root,
                                           void *bytes, int64_t n_bytes,
                                           struct mist_err *err)
{
    static const char operation[] = "broadcast";
    enum mist_status status = MIST_OK;
    int64_t n = comm->n_ranks, step = 1;
    int64_t place = (comm->rank + n - root) % n;

    while (step < n && (place & step) == 0)
        step *= 2;
    if (place != 0) {
        int32_t from = (int32_t)((place - step + root) % n);
        status = control(comm, false, from, bytes, n_bytes, operation, err);
    }
    for (step /= 2; step > 0 && status == MIST_OK; step /= 2) {
        int32_t to = (int32_t)((place + step + root) % n);
        if (place + step < n)
            status = control(comm, true, to, bytes, n_bytes, operation, err);
    }
    return status;
}

enum mist_status mist_comm_agree(struct mist_comm *comm, enum mist_status status,
                                 struct mist_err *err)
{
    struct {
        enum mist_status status;
        struct mist_err err;
    } verdict = {.status = status};
    int64_t first = status == MIST_OK ? comm->n_ranks : comm->rank;
    struct mist_err why;

    comm->agreed_rank = -1;
    enum mist_status lost =
        mist_comm_all_reduce_i64(comm, MIST_COMM_MIN, &first, 1, &why);
    if (status != MIST_OK)
        verdict.err = *err;
    if (lost == MIST_OK && first < comm->n_ranks)
        lost = mist_comm_broadcast_bytes(comm, (int32_t)first, &verdict, sizeof verdict,
                                         &why);
    if (lost == MIST_OK && verdict.status != MIST_OK) {
        comm->agreed_rank = (int32_t)first;
        *err = verdict.err;
    }
    if (lost == MIST_OK)
        return verdict.status;
    if (status == MIST_OK)
        *err = why;
    return status == MIST_OK ? lost : status;
}

int32_t mist_comm_agreed_rank(const struct mist_comm *comm)
{
    return comm->agreed_rank;
}

/* sizes[n_ranks]: of this rank's bytes and of what the others bring. */
static enum mist_status collect_bytes(struct mist_comm *comm, const void *bytes,
                                      int64_t *sizes, char **all, struct mist_err *err)
{
    static const char operation[] = "gather";
    enum mist_status status = MIST_OK;
    int64_t total = sizes[0], place = sizes[0];

    for (int32_t rank = 1; rank < comm->n_ranks; rank++) {
        status = control(comm, false, rank, &sizes[rank], sizeof *sizes, operation, err);
        if (status != MIST_OK)
            return status;
        if (!mist_size_add(total, sizes[rank], &total))
            return mist_err_set(err, MIST_ERR_RANGE, "gather: too many bytes");
    }
    char *text = malloc((size_t)total + 1);
    if (!text)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory to gather %lld bytes",
                            (long long)total);
    if (sizes[0] > 0)
        memcpy(text, bytes, (size_t)sizes[0]);
    for (int32_t rank = 1; rank < comm->n_ranks && status == MIST_OK; rank++) {
        status = control(comm, false, rank, text + place, sizes[rank], operation, err);
        place += sizes[rank];
    }
    if (status != MIST_OK)
        return status; /* a message may still arrive in text: not freed */
    text[total] = '\0';
    *all = text;
    return MIST_OK;
}

enum mist_status mist_comm_gather_bytes(struct mist_comm *comm, const void *bytes,
                                        int64_t n_bytes, char **all, int64_t *sizes,
                                        struct mist_err *err)
{
    enum mist_status status;

    *all = NULL;
    if (comm->rank == 0) {
        int64_t *own = malloc((size_t)comm->n_ranks * sizeof *own);
        if (!own)
            return mist_err_set(err, MIST_ERR_MEMORY, "out of memory to gather bytes");
        own[0] = n_bytes;
        status = collect_bytes(comm, bytes, own, all, err);
        if (sizes && status == MIST_OK)
            memcpy(sizes, own, (size_t)comm->n_ranks * sizeof *own);
        free(own);
        return status;
    }
    status = control(comm, true, 0, &n_bytes, sizeof n_bytes, "gather", err);
    if (status == MIST_OK)
        status = control(comm, true, 0, (void *)(uintptr_t)bytes, n_bytes, "gather", err);
    return status;
}

enum mist_status mist_comm_share_bytes(struct mist_comm *comm, const void *own,
                                       int64_t n_bytes, void *all, struct mist_err *err)
{
    char *gathered;
    enum mist_status status =
        mist_comm_gather_bytes(comm, own, n_bytes, &gathered, NULL, err);

    if (gathered)
        memcpy(all, gathered, (size_t)(comm->n_ranks * n_bytes));
    free(gathered);
    return status == MIST_OK
               ? mist_comm_broadcast_bytes(comm, 0, all, comm->n_ranks * n_bytes, err)
               : status;
}
