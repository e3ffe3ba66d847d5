/* Monotonic time and sleep. See clock.h. */
#include "core/clock.h"

#include <errno.h>
#include <math.h>
#include <time.h>

double mist_clock_now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void mist_clock_init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes); /* these can't fail under Linux */
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

int mist_clock_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex, double end_s)
{
    double whole_s = floor(end_s);
    struct timespec end = {.tv_sec = (time_t)whole_s,
                           .tv_nsec = (long)(1e9 * (end_s - whole_s))};

    return pthread_cond_timedwait(condition, mutex, &end);
}

void mist_clock_sleep_s(double time_s)
{
    if (!(time_s > 0))
        return;
    double whole_s = floor(fmin(time_s, 1e9));
    struct timespec left = {.tv_sec = (time_t)whole_s,
                            .tv_nsec = (long)fmin(1e9 * (time_s - whole_s), 999999999.0)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}
