/*
 * Ranks and messages over MPI, the only file that knows MPI.
 *
 * Every wait tests instead of blocking, for two reasons. A wait inside MPI spins and has
 * no end; here the ranks of a small machine have one processor each, and a rank that
 * spins takes it from its own computing thread. So a wait looks often at first and then
 * sleeps for times that grow with the time waited (mist_clock_rest()), unless the rank has
 * other work for that very thread (mist_comm_set_pause()). And a test can stop at a
 * deadline and say who is missing.
 *
 * Needs MPI_THREAD_SERIALIZED: threads that communicate at once call it in turns, under
 * one mutex, which no call keeps for long since none waits. All messages go over
 * duplicates of the world communicator, one for each space of tags, so groups need no
 * communicators of their own.
 */
#include "exec/comm/comm_internal.h"

#include "core/clock.h"
#include "core/memory.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lane {
    int n;                              /* messages under way */
    MPI_Request *requests;              /* owned; 2 n_ranks */
    MPI_Status *statuses;               /* owned; 2 n_ranks */
    struct mist_comm_message *messages; /* owned; 2 n_ranks */
};

struct mist_comm_mpi {
    MPI_Comm spaces[MIST_N_COMM_SPACES]; /* MPI_COMM_NULL when not made yet */
    MPI_Comm node;                       /* the ranks of this one */
    struct lane lanes[MIST_N_COMM_LANES];
    pthread_mutex_t mutex; /* around calls of MPI, once there may be several threads */
};

static enum mist_status fail(struct mist_comm *comm, const char *operation, int code,
                             struct mist_err *err)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown";
    int n = 0;

    if (comm)
        comm->has_failed = true;
    MPI_Error_string(code, text, &n);
    return mist_err_set(err, MIST_ERR_RUN, "%s: MPI: %s", operation, text);
}

/* Libraries answer with a line of many parts, or with several lines; the first part names
 * the library and its version. */
void mist_comm_describe(char *text, size_t size_bytes)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int n = 0;

    if (size_bytes == 0)
        return;
    if (MPI_Get_library_version(version, &n) != MPI_SUCCESS) /* needs no MPI_Init */
        version[0] = '\0';
    version[strcspn(version, ",\r\n")] = '\0';
    for (char *at = strchr(version, '\t'); at; at = strchr(at, '\t'))
        *at = ' ';
    size_t length = strlen(version) < size_bytes ? strlen(version) : size_bytes - 1;
    memcpy(text, version, length);
    text[length] = '\0';
}

/* -------------------------------------------------------------------------- messages */

enum mist_status mist_comm_start_message(struct mist_comm *comm, int i_lane,
                                         const char *operation,
                                         const struct mist_comm_message *message,
                                         struct mist_err *err)
{
    struct lane *lane = &comm->mpi->lanes[i_lane];
    MPI_Comm space = comm->mpi->spaces[message->space];
    enum mist_status status = MIST_OK;
    int code;

    if (comm->has_failed)
        return mist_comm_fail_again(operation, err);
    pthread_mutex_lock(&comm->mpi->mutex);
    if (message->is_send)
        code = MPI_Isend(message->ptr, (int)message->bytes, MPI_BYTE, message->peer,
                         message->tag, space, &lane->requests[lane->n]);
    else
        code = MPI_Irecv(message->ptr, (int)message->bytes, MPI_BYTE, message->peer,
                         message->tag, space, &lane->requests[lane->n]);
    if (code != MPI_SUCCESS)
        status = fail(comm, operation, code, err);
    else
        lane->messages[lane->n++] = *message;
    pthread_mutex_unlock(&comm->mpi->mutex);
    return status;
}

/* Says which messages of a lane are missing. */
static enum mist_status fail_lane(struct mist_comm *comm, const struct lane *lane,
                                  const char *operation, struct mist_err *err)
{
    const struct mist_comm_message *first = NULL;
    int n_late = 0;

    for (int i = 0; i < lane->n; i++) {
        int is_done = 0;
        pthread_mutex_lock(&comm->mpi->mutex);
        MPI_Request_get_status(lane->requests[i], &is_done, MPI_STATUS_IGNORE);
        pthread_mutex_unlock(&comm->mpi->mutex);
        if (is_done)
            continue;
        /* A send is late because the other side does not receive: name that first. */
        if (!first || (first->is_send && !lane->messages[i].is_send))
            first = &lane->messages[i];
        n_late++;
    }
    if (!first) /* the last one came in between */
        first = &lane->messages[0];
    return mist_comm_fail_late(comm, operation, first, n_late, lane->n, err);
}

/* All are done, code says how. */
static enum mist_status check_lane(struct mist_comm *comm, struct lane *lane, int code,
                                   const char *operation, struct mist_err *err)
{
    int n = lane->n;

    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
        return fail(comm, operation, code, err);
    lane->n = 0;
    for (int i = 0; i < n; i++) {
        const struct mist_comm_message *message = &lane->messages[i];
        int n_bytes = 0;
        if (code == MPI_ERR_IN_STATUS && lane->statuses[i].MPI_ERROR != MPI_SUCCESS &&
            lane->statuses[i].MPI_ERROR != MPI_ERR_PENDING)
            return fail(comm, operation, lane->statuses[i].MPI_ERROR, err);
        if (message->is_send)
            continue;
        MPI_Get_count(&lane->statuses[i], MPI_BYTE, &n_bytes);
        if (n_bytes != message->bytes)
            return mist_comm_fail_bytes(comm, operation, message, n_bytes, err);
    }
    return MIST_OK;
}

/* One look at a lane. *is_over: all are done, or something is wrong. */
static enum mist_status look(struct mist_comm *comm, struct lane *lane,
                             const char *operation, bool *is_over, struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    int is_done = 0;

    pthread_mutex_lock(&comm->mpi->mutex);
    int code = MPI_Testall(lane->n, lane->requests, &is_done, lane->statuses);
    *is_over = is_done || code != MPI_SUCCESS;
    if (*is_over)
        status = check_lane(comm, lane, code, operation, err);
    pthread_mutex_unlock(&comm->mpi->mutex);
    return status;
}

enum mist_status mist_comm_wait_lane(struct mist_comm *comm, int i_lane,
                                     const char *operation, struct mist_err *err)
{
    struct lane *lane = &comm->mpi->lanes[i_lane];
    double time_start_s = mist_clock_now_s();

    for (;;) {
        bool is_over;
        enum mist_status status = look(comm, lane, operation, &is_over, err);
        if (is_over)
            return status;
        double waited_s = mist_clock_now_s() - time_start_s;
        if (waited_s >= comm->deadline_s)
            return fail_lane(comm, lane, operation, err);
        status = mist_comm_rest(comm, operation, waited_s, err);
        if (status != MIST_OK)
            return status;
    }
}

/* What comes in and what goes out meanwhile. */
static void make_progress(struct mist_comm *comm)
{
    int is_there;

    pthread_mutex_lock(&comm->mpi->mutex);
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
    pthread_mutex_unlock(&comm->mpi->mutex);
}

enum mist_status mist_comm_rest(struct mist_comm *comm, const char *operation,
                                double waited_s, struct mist_err *err)
{
    static const double progress_s = 1e-3;

    if (atomic_load(&comm->is_cancelled)) {
        comm->has_failed = true;
        return mist_err_set(err, MIST_ERR_RUN,
                            "%s: rank %ld gives up, since something else failed on it",
                            operation, (long)comm->rank);
    }
    if (waited_s > progress_s) /* the other may wait for what MPI has not sent yet */
        make_progress(comm);
    if (!comm->pause || !comm->pause(comm->pause_context, waited_s))
        mist_clock_rest(waited_s);
    return MIST_OK;
}

/* ------------------------------------------------------------------- opening, closing */

static enum mist_status init_mpi(struct mist_err *err)
{
    int is_initialized = 0, level = 0;

    MPI_Initialized(&is_initialized);
    if (is_initialized)
        return mist_err_set(err, MIST_ERR_RUN, "MPI has been started before");
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (code != MPI_SUCCESS)
        return fail(NULL, "start", code, err);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* inherited by dups */
    if (level < MPI_THREAD_SERIALIZED)
        return mist_err_set(err, MIST_ERR_RUN,
                            "this MPI can't be called from more than one thread");
    return MIST_OK;
}

/* Ranks, nodes and tags. Nodes are known by their lowest rank. */
static enum mist_status find_place(struct mist_comm *comm, struct mist_err *err)
{
    int rank = 0, n_ranks = 1, first = 0, has_max_tag = 0, *max_tag;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    int code = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank,
                                   MPI_INFO_NULL, &comm->mpi->node);
    if (code != MPI_SUCCESS)
        return fail(comm, "find nodes", code, err);
    if (!MIST_MALLOC(comm->node_ranks, n_ranks))
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %d ranks", n_ranks);
    int32_t *firsts = comm->node_ranks;
    code = MPI_Allreduce(&rank, &first, 1, MPI_INT, MPI_MIN, comm->mpi->node);
    if (code == MPI_SUCCESS)
        code =
            MPI_Allgather(&first, 1, MPI_INT32_T, firsts, 1, MPI_INT32_T, MPI_COMM_WORLD);
    if (code != MPI_SUCCESS)
        return fail(comm, "find nodes", code, err);
    for (int i = 0; i < first; i++)
        comm->node += firsts[i] == i;
    comm->n_node_ranks = 0;
    for (int i = 0; i < n_ranks; i++) {
        if (i == rank)
            comm->node_rank = comm->n_node_ranks;
        comm->node_ranks[i] = firsts[i] == first ? comm->n_node_ranks++ : -1;
    }
    comm->rank = rank;
    comm->n_ranks = n_ranks;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &max_tag, &has_max_tag);
    comm->max_tag = has_max_tag ? *max_tag : 32767; /* what MPI promises at least */
    return MIST_OK;
}

/* Memory that the ranks of this node share. Where one of them gets none, all do without. */
static enum mist_status make_window(struct mist_comm *comm, struct mist_err *err)
{
    MPI_Comm node = comm->mpi->node;
    struct mist_comm_segment own;
    struct mist_comm_segment *all = calloc((size_t)comm->n_node_ranks, sizeof *all);
    int has_all = 0, has_window;

    if (!all)
        return mist_err_memory(err, NULL);
    comm->window = mist_comm_window_new(comm, &own);
    int code = MPI_Allgather(&own, sizeof own, MPI_BYTE, all, sizeof own, MPI_BYTE, node);
    has_window = comm->window && mist_comm_window_join(comm->window, all);
    if (code == MPI_SUCCESS)
        code = MPI_Allreduce(&has_window, &has_all, 1, MPI_INT, MPI_MIN, node);
    if (!has_all || comm->n_node_ranks == 1) {
        mist_comm_window_free(comm->window);
        comm->window = NULL;
    }
    free(all);
    return code == MPI_SUCCESS ? MIST_OK : fail(comm, "share memory", code, err);
}

static enum mist_status make_lanes(struct mist_comm *comm, struct mist_err *err)
{
    size_t n = 2 * (size_t)comm->n_ranks;
    bool has_all = true;

    for (int i = 0; i < MIST_N_COMM_LANES; i++) {
        struct lane *lane = &comm->mpi->lanes[i];
        lane->requests = malloc(n * sizeof *lane->requests);
        lane->statuses = malloc(n * sizeof *lane->statuses);
        lane->messages = malloc(n * sizeof *lane->messages);
        has_all = has_all && lane->requests && lane->statuses && lane->messages;
    }
    comm->words = malloc((size_t)comm->n_ranks * MIST_COMM_MAX_WORDS * 8);
    if (!has_all || !comm->words)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %ld ranks",
                            (long)comm->n_ranks);
    for (int i = 0; i < MIST_N_COMM_SPACES; i++) {
        int code = MPI_Comm_dup(MPI_COMM_WORLD, &comm->mpi->spaces[i]);
        if (code != MPI_SUCCESS)
            return fail(comm, "start", code, err);
    }
    return MIST_OK;
}

static enum mist_status start_mpi(struct mist_comm *comm, struct mist_err *err)
{
    struct mist_comm_watchdog *watchdog = mist_comm_watch("start", comm->deadline_s);
    enum mist_status status;

    if (!watchdog)
        return mist_err_set(err, MIST_ERR_MEMORY, "no memory or thread for a deadline");
    if (!MIST_CALLOC(comm->mpi, 1)) {
        mist_comm_unwatch(watchdog);
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a communicator");
    }
    pthread_mutex_init(&comm->mpi->mutex, NULL); /* can't fail under Linux */
    for (int i = 0; i < MIST_N_COMM_SPACES; i++)
        comm->mpi->spaces[i] = MPI_COMM_NULL;
    status = init_mpi(err);
    if (status == MIST_OK)
        status = find_place(comm, err);
    if (status == MIST_OK)
        status = make_window(comm, err);
    if (status == MIST_OK)
        status = make_lanes(comm, err);
    mist_comm_unwatch(watchdog);
    if (status != MIST_OK)
        comm->has_failed = true; /* the others are somewhere else */
    return status;
}

enum mist_status mist_comm_open_deadline(struct mist_comm **out, double deadline_s,
                                         struct mist_err *err)
{
    struct mist_comm *comm = calloc(1, sizeof *comm);

    *out = NULL;
    if (!comm)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a communicator");
    *comm = (struct mist_comm){.n_ranks = 1,
                               .n_node_ranks = 1,
                               .max_tag = INT32_MAX,
                               .agreed_rank = -1,
                               .deadline_s = deadline_s};
    if (mist_comm_launched_rank()) {
        enum mist_status status = start_mpi(comm, err);
        if (status != MIST_OK) {
            mist_comm_close(comm);
            return status;
        }
    }
    *out = comm;
    return MIST_OK;
}

enum mist_status mist_comm_open(struct mist_comm **out, struct mist_err *err)
{
    return mist_comm_open_deadline(out, 120.0, err);
}

/* Without memory for a watchdog it ends without one. */
static void close_mpi(struct mist_comm *comm)
{
    struct mist_comm_mpi *mpi = comm->mpi;
    struct mist_comm_watchdog *watchdog = mist_comm_watch("end", comm->deadline_s);

    for (int i = 0; i < MIST_N_COMM_SPACES; i++)
        MPI_Comm_free(&mpi->spaces[i]);
    MPI_Comm_free(&mpi->node);
    for (int i = 0; i < MIST_N_COMM_LANES; i++) {
        free(mpi->lanes[i].requests);
        free(mpi->lanes[i].statuses);
        free(mpi->lanes[i].messages);
    }
    pthread_mutex_destroy(&mpi->mutex);
    free(mpi);
    MPI_Finalize();
    mist_comm_unwatch(watchdog);
}

void mist_comm_close(struct mist_comm *comm)
{
    if (!comm)
        return;
    if (comm->mpi && !comm->has_failed)
        close_mpi(comm);
    for (struct mist_comm_group *group = comm->groups, *next; group; group = next) {
        next = group->next;
        free(group);
    }
    if (!comm->has_failed) { /* else messages may be under way into this memory */
        free(comm->workspace);
        free(comm->words);
    }
    mist_comm_window_free(comm->window);
    free(comm->node_ranks);
    free(comm);
}

_Noreturn void mist_comm_abort(struct mist_comm *comm, int code)
{
    if (comm && comm->mpi)
        MPI_Abort(MPI_COMM_WORLD, code);
    _exit(code);
}
