/* Monotonic time and sleep: the only clock of Mist, so that nothing depends on the time
 * of day. */
#ifndef MIST_CORE_CLOCK_H
#define MIST_CORE_CLOCK_H

#include <pthread.h>

/*
 * Seconds since an arbitrary moment of this boot; never goes back; resolution about 1 ns.
 */
double mist_clock_now_s(void);

/* A condition to wait on until a time of this clock; the caller's to destroy. */
void mist_clock_init_condition(pthread_cond_t *condition);

/* Waits on such a condition (mutex is held) until end_s at most: 0, or ETIMEDOUT. */
int mist_clock_wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex,
                          double end_s);

/* Sleeps at least time_s (<= 0: not at all), also across signals. */
void mist_clock_sleep_s(double time_s);

/* Between two looks at what another process does, waited_s after the first: returns at
 * once at first, then sleeps for times that grow with the time waited. */
void mist_clock_rest(double waited_s);

#endif
