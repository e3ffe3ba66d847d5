/* Monotonic time and sleep: the only clock of Mist, so that nothing depends on the time
 * of day. */
#ifndef MIST_CORE_CLOCK_H
#define MIST_CORE_CLOCK_H

/*
 * Seconds since an arbitrary moment of this boot; never goes back; resolution about 1 ns.
 */
double mist_clock_now_s(void);

/* Sleeps at least time_s (<= 0: not at all), also across signals. */
void mist_clock_sleep_s(double time_s);

#endif
