/*
 * Which plans predictions can't tell apart, and the simplest of them.
 *
 * Two plans of one machine share most of what their error bars are made of: its drift,
 * and what checks (sim/plan/mechanism.h) say of mechanisms that both use. What may still make
 * the faster one the slower one is what is left of either bar, and the doubt about the
 * mechanisms that only one of them uses:
 *   bar = 2 sqrt(own_a^2 + own_b^2 + (doubt_frac(A xor B) * time of the faster)^2),
 *   own^2 = (error / 2)^2 - (drift_frac^2 + doubt_frac(own mechanisms)^2) time^2.
 * A trace set without checks says nothing of the last: then time alone decides.
 */
#ifndef MIST_TUNE_ALIKE_H
#define MIST_TUNE_ALIKE_H

#include "traces/trace_set.h"
#include "tune/validate.h"

/* How many words the plan's label has: what it does beyond computing on one device. */
int mist_alike_n_techniques(const struct mist_plan *plan);

/* Half width of the bar of the difference of two predicted plans (checked), >= 0. */
double mist_alike_bar_s(const struct mist_trace_set *traces, const struct mist_plan *a,
                        const struct mist_plan *b);

/*
 * plans: [n >= 1], the fastest first. Moves the one with the fewest techniques of those
 * that can't be told from the fastest, or take no more than slower_frac longer, to the
 * front (of several the fastest); the others keep their order. Returns how many of these
 * there are, the fastest included; without checks and with slower_frac 0 it is alone.
 */
size_t mist_alike_prefer(const struct mist_trace_set *traces, double slower_frac,
                         struct mist_validated *plans, size_t n);

/* The place of the plan with the fewest techniques among those that take no more than
 * slower_frac longer than the first, the fastest [n >= 1]; of several the fastest. */
size_t mist_alike_simplest(const struct mist_validated *plans, size_t n,
                           double slower_frac);

#endif
