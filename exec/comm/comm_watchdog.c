/*
 * A deadline for starting and ending MPI.
 *
 * MPI_Init and MPI_Finalize wait for all ranks, can't be tested and don't return when one
 * of them never comes. Nothing inside this process can end such a call but the end of
 * the process; so while one is under way a second thread sleeps, and if the deadline
 * comes first it says so and exits. It calls no function of MPI.
 */
#include "exec/comm/comm_internal.h"

#include "core/clock.h"
#include "core/interrupt.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mist_comm_watchdog {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool has_ended; /* what is watched; under mutex */
    const char *operation;
    double deadline_s;
};

const char *mist_comm_launched_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return getenv(names[i]);
    return NULL;
}

FILE *mist_comm_launched_stdout(void)
{
    const char *rank = mist_comm_launched_rank();

    return !rank || strcmp(rank, "0") == 0 ? stdout : NULL;
}

/* Only the process's end helps: this thread can't free the other from MPI. */
static _Noreturn void end_process(const struct mist_comm_watchdog *watchdog)
{
    const char *rank = mist_comm_launched_rank();
    struct mist_err late = {0};
    char host[256] = "?";

    gethostname(host, sizeof host - 1);
    mist_err_set(&late, MIST_ERR_RUN,
                 "%s: rank %s on %.200s has waited %g s for all ranks to do the same",
                 watchdog->operation, rank ? rank : "?", host, watchdog->deadline_s);
    mist_err_print(&late, "mist", stderr);
    _exit(mist_exit_code(MIST_ERR_RUN));
}

static void *watch(void *context)
{
    struct mist_comm_watchdog *watchdog = context;
    double end_s = mist_clock_now_s() + watchdog->deadline_s;
    int code = 0;

    pthread_mutex_lock(&watchdog->mutex);
    while (!watchdog->has_ended && code != ETIMEDOUT)
        code = mist_clock_wait_until(&watchdog->ended, &watchdog->mutex, end_s);
    if (!watchdog->has_ended)
        end_process(watchdog); /* holding the mutex: who is watched can't go on now */
    pthread_mutex_unlock(&watchdog->mutex);
    return NULL;
}

static void free_watchdog(struct mist_comm_watchdog *watchdog)
{
    pthread_cond_destroy(&watchdog->ended);
    pthread_mutex_destroy(&watchdog->mutex);
    free(watchdog);
}

struct mist_comm_watchdog *mist_comm_watch(const char *operation, double deadline_s)
{
    struct mist_comm_watchdog *watchdog = calloc(1, sizeof *watchdog);

    if (!watchdog)
        return NULL;
    watchdog->operation = operation;
    watchdog->deadline_s = fmin(deadline_s, 1e9); /* fits a time_t of 32 bits */
    pthread_mutex_init(&watchdog->mutex, NULL);   /* can't fail under Linux */
    mist_clock_init_condition(&watchdog->ended);
    if (mist_interrupt_start_thread(&watchdog->thread, watch, watchdog) == 0)
        return watchdog;
    free_watchdog(watchdog);
    return NULL;
}

void mist_comm_unwatch(struct mist_comm_watchdog *watchdog)
{
    if (!watchdog)
        return;
    pthread_mutex_lock(&watchdog->mutex);
    watchdog->has_ended = true;
    pthread_cond_signal(&watchdog->ended);
    pthread_mutex_unlock(&watchdog->mutex);
    pthread_join(watchdog->thread, NULL);
    free_watchdog(watchdog);
}
