/*
 * Mechanisms: what plans do beyond computing, and how far predictions of each were off
 * when short plans were run after profiling (checks.csv of the trace set).
 *
 * A check i has r_i = predicted_i / measured_i - 1, of which its own error bar, two
 * deviations wide, explains s_i = bar_i / (2 predicted_i). One run says little about a
 * mechanism: by luck it may be right. So its square counts as much as the mean square of
 * all checks, v_i = (r_i^2 + mean r^2) / 2, and of it only what the bar does not explain,
 * v_i - s_i^2 if that is above 0: the rest is in the bar of every plan already. Of
 * several mechanisms of a plan the one that is known worst counts; one that was not
 * checked, and plain computing, is as uncertain as the mean of all.
 */
#ifndef MIST_SIM_MECHANISM_H
#define MIST_SIM_MECHANISM_H

#include "sim/plan/plan.h"
#include "traces/trace_set.h"

/* Of a plan (checked), as a bit mask over enum mist_mechanism; never 0. O(stages). */
unsigned mist_plan_mechanisms(const struct mist_plan *plan);

/* r of a check. */
double mist_check_error_frac(const struct mist_check_row *check);

/* Deviation, relative to the iteration, that checks add to a plan of these mechanisms;
 * 0 without checks. */
double mist_mechanism_doubt_frac(const struct mist_trace_set *traces,
                                 unsigned mechanisms);

#endif
