/*
 * A barrier that waits for slow ranks and not for lost ones. See comm.h.
 *
 * Rounds of one small reduction: is any rank still at work? Every rank takes part in
 * every round, by a thread that does nothing else, so a round that isn't over within the
 * deadline means that a process is gone or stuck, however long the work takes. Between
 * rounds the threads sleep, longer the longer it has taken.
 */
#include "exec/comm/comm_internal.h"

#include "core/clock.h"

#include <math.h>
#include <stdlib.h>

/* The pause delays the end by 1/16 of the work at most; it is a small part of the
 * deadline, which also runs while others pause. */
static const double pause_min_s = 0.5e-3;
static const double pause_max_s = 0.25;
static const double pause_frac = 1.0 / 16;          /* of the time since begin */
static const double pause_deadline_frac = 1.0 / 16; /* at most that of the deadline */

struct mist_comm_vigil {
    struct mist_comm *comm;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_done, is_abandoned; /* by the caller; under mutex */
    bool has_thread;            /* else there is one rank */
    enum mist_status status;    /* of the thread's end */
    struct mist_err err;
};

/* Sleeps until pause_s have passed or the caller changes something. */
static void pause_until(struct mist_comm_vigil *vigil, double pause_s, bool was_done)
{
    double end_s = mist_clock_now_s() + pause_s;
    int code = 0;

    pthread_mutex_lock(&vigil->mutex);
    while (code == 0 && vigil->is_done == was_done && !vigil->is_abandoned)
        code = mist_clock_wait_until(&vigil->changed, &vigil->mutex, end_s);
    pthread_mutex_unlock(&vigil->mutex);
}

static void *keep(void *context)
{
    struct mist_comm_vigil *vigil = context;
    double time_start_s = mist_clock_now_s();

    for (;;) {
        pthread_mutex_lock(&vigil->mutex);
        bool is_done = vigil->is_done, is_abandoned = vigil->is_abandoned;
        pthread_mutex_unlock(&vigil->mutex);
        int64_t is_any_at_work = !is_done;
        if (is_abandoned)
            return NULL;
        vigil->status = mist_comm_all_reduce_i64(vigil->comm, MIST_COMM_MAX,
                                                 &is_any_at_work, 1, &vigil->err);
        if (vigil->status != MIST_OK || !is_any_at_work)
            return NULL;
        double pause_s = pause_frac * (mist_clock_now_s() - time_start_s);
        pause_s = fmin(fmax(pause_s, pause_min_s), pause_max_s);
        pause_until(vigil, fmin(pause_s, pause_deadline_frac * vigil->comm->deadline_s),
                    is_done);
    }
}

static void free_vigil(struct mist_comm_vigil *vigil)
{
    pthread_cond_destroy(&vigil->changed);
    pthread_mutex_destroy(&vigil->mutex);
    free(vigil);
}

/* The others wait for this rank's part in their rounds: nothing else that it says may be
 * taken for that. */
static enum mist_status refuse(struct mist_comm *comm, const char *what,
                               struct mist_err *err)
{
    comm->has_failed = comm->n_ranks > 1;
    return mist_err_set(err, MIST_ERR_MEMORY, "%s", what);
}

enum mist_status mist_comm_vigil_begin(struct mist_comm *comm,
                                       struct mist_comm_vigil **out, struct mist_err *err)
{
    struct mist_comm_vigil *vigil = calloc(1, sizeof *vigil);

    *out = vigil;
    if (!vigil)
        return refuse(comm, "out of memory", err);
    vigil->comm = comm;
    pthread_mutex_init(&vigil->mutex, NULL); /* can't fail under Linux */
    mist_clock_init_condition(&vigil->changed);
    if (comm->n_ranks == 1)
        return MIST_OK;
    vigil->has_thread = mist_comm_start_thread(&vigil->thread, keep, vigil) == 0;
    if (vigil->has_thread)
        return MIST_OK;
    free_vigil(vigil);
    *out = NULL;
    return refuse(comm, "no thread to answer other ranks with", err);
}

enum mist_status mist_comm_vigil_end(struct mist_comm_vigil *vigil, enum mist_status work,
                                     struct mist_err *err)
{
    enum mist_status status = work;

    if (vigil->has_thread) {
        if (work != MIST_OK)
            mist_comm_cancel(vigil->comm);
        pthread_mutex_lock(&vigil->mutex);
        vigil->is_done = true;
        vigil->is_abandoned = work != MIST_OK;
        pthread_cond_signal(&vigil->changed);
        pthread_mutex_unlock(&vigil->mutex);
        pthread_join(vigil->thread, NULL);
        if (work == MIST_OK && vigil->status != MIST_OK) {
            status = vigil->status;
            if (err)
                *err = vigil->err;
        }
    }
    free_vigil(vigil);
    return status;
}
