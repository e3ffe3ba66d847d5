/*
 * Work that all ranks wait for, not for lost ones. See comm.h.
 *
 * Rounds of one small reduction: is any rank still at work? Every rank takes part in
 * every round, by a thread that does nothing else, so a round that isn't over within the
 * deadline means that a process is gone or stuck, however long the work takes. Between
 * rounds the threads sleep, longer the longer it has taken.
 */
#include "exec/comm/comm_internal.h"

#include "core/clock.h"
#include "core/interrupt.h"

#include <math.h>

/* The pause delays the end by 1/16 of the work at most; it is a small part of the
 * deadline, which also runs while others pause. */
static const double pause_min_s = 0.5e-3;
static const double pause_max_s = 0.25;
static const double pause_frac = 1.0 / 16;          /* of the time since begin */
static const double pause_deadline_frac = 1.0 / 16; /* at most that of the deadline */

struct vigil {
    struct mist_comm *comm;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_done;            /* by the caller; under mutex */
    enum mist_status status; /* of the thread's end */
    struct mist_err err;
};

/* Sleeps until pause_s have passed or the caller is done. */
static void pause_until(struct vigil *vigil, double pause_s, bool was_done)
{
    double end_s = mist_clock_now_s() + pause_s;
    int code = 0;

    pthread_mutex_lock(&vigil->mutex);
    while (code == 0 && vigil->is_done == was_done)
        code = mist_clock_wait_until(&vigil->changed, &vigil->mutex, end_s);
    pthread_mutex_unlock(&vigil->mutex);
}

static void *keep(void *context)
{
    struct vigil *vigil = context;
    double time_start_s = mist_clock_now_s();

    for (;;) {
        pthread_mutex_lock(&vigil->mutex);
        bool is_done = vigil->is_done;
        pthread_mutex_unlock(&vigil->mutex);
        int64_t is_any_at_work = !is_done;
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

/* Ends with the other ranks. */
static enum mist_status end(struct vigil *vigil, enum mist_status status,
                            struct mist_err *err)
{
    pthread_mutex_lock(&vigil->mutex);
    vigil->is_done = true;
    pthread_cond_signal(&vigil->changed);
    pthread_mutex_unlock(&vigil->mutex);
    pthread_join(vigil->thread, NULL);
    if (vigil->status == MIST_OK)
        return mist_comm_agree(vigil->comm, status, err);
    if (status == MIST_OK)
        *err = vigil->err;
    return status == MIST_OK ? vigil->status : status;
}

enum mist_status mist_comm_work_together(struct mist_comm *comm,
                                         enum mist_status (*work)(void *context,
                                                                  struct mist_err *err),
                                         void *context, struct mist_err *err)
{
    struct vigil vigil = {.comm = comm};

    if (comm->n_ranks == 1)
        return mist_comm_agree(comm, work(context, err), err);
    pthread_mutex_init(&vigil.mutex, NULL); /* can't fail under Linux */
    mist_clock_init_condition(&vigil.changed);
    enum mist_status status = MIST_ERR_MEMORY;
    if (mist_interrupt_start_thread(&vigil.thread, keep, &vigil) == 0) {
        status = work(context, err);
        status = end(&vigil, status, err);
    } else {
        /* The others wait for this rank's part in their rounds: nothing else that it says
         * may be taken for that. */
        comm->has_failed = true;
        comm->agreed_rank = -1;
        mist_err_set(err, status, "no thread to answer other ranks with");
    }
    pthread_cond_destroy(&vigil.changed);
    pthread_mutex_destroy(&vigil.mutex);
    return status;
}
