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
 *
 * Whatever time decides, ratios of offloading in eighths have to gain more than
 * MIST_ALIKE_EIGHTHS_FRAC over a plan that does without; of the searches of validate.h one
 * has none.
 */
#ifndef MIST_TUNE_ALIKE_H
#define MIST_TUNE_ALIKE_H

#include "traces/trace_set.h"
#include "tune/validate.h"

/* What ratios in eighths have to gain. */
#define MIST_ALIKE_EIGHTHS_FRAC 0.01

/* How many words the plan's label has: what it does beyond computing on one device. */
int mist_alike_n_techniques(const struct mist_plan *plan);

/* How many of the four ratios are no halves or quarters, in some stage. */
int mist_alike_n_eighths(const struct mist_plan *plan);

/* Half width of the bar of the difference of two predicted plans (checked), >= 0. */
double mist_alike_bar_s(const struct mist_trace_set *traces, const struct mist_plan *a,
                        const struct mist_plan *b);

/*
 * plans: [n >= 1], the fastest first. Moves the one that is chosen to the front; the others
 * keep their order. First it is the one with the fewest techniques of those that can't be
 * told from the fastest, or take no more than slower_frac longer; these are counted, the
 * fastest included, and returned. Then, of these and of what takes no more than
 * MIST_ALIKE_EIGHTHS_FRAC longer, it is the one with the fewest ratios in eighths, but with
 * no more techniques where these count: with checks or a slower_frac. Of several it is the
 * fastest.
 */
size_t mist_alike_prefer(const struct mist_trace_set *traces, double slower_frac,
                         struct mist_validated *plans, size_t n);

/* The place of the plan that would be chosen without checks. plans: as above. */
size_t mist_alike_simplest(const struct mist_validated *plans, size_t n,
                           double slower_frac);

#endif
