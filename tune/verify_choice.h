/*
 * The choice among plans that were run.
 *
 * All plans are run once in every round, one after the other, so that what makes the
 * machine slower for a while is in the times of all of them; what makes it slower for a
 * shorter while probes tell (mist-exec --probe), so times are brought to the mean level of
 * all runs first. Plans are therefore compared round by round: the difference of two plans is the median of the rounds' differences,
 * and its spread half of what lies between the least and the largest.
 *
 * Fastest is the plan with the least median time. Chosen is the first plan, in the order
 * of prediction, whose difference to the fastest is within the spread of that difference:
 * where measurement can't tell plans apart, prediction does.
 */
#ifndef MIST_TUNE_VERIFY_CHOICE_H
#define MIST_TUNE_VERIFY_CHOICE_H

#include "sim/plan/plan.h"

#include <stdbool.h>
#include <stddef.h>

enum { MIST_VERIFY_ROUNDS = 3 };

/* A plan that was run, or could not be. */
struct mist_verified {
    const struct mist_plan *plan;       /* borrowed */
    int n_rounds;                       /* it was run in */
    double times_s[MIST_VERIFY_ROUNDS]; /* [n_rounds] of an iteration */
    double levels[MIST_VERIFY_ROUNDS];  /* of the machine then; 0: not known */
    double measured_s; /* median over the rounds that all plans were run in; NaN: none */
    double spread_s;   /* half of what lies between the least and the largest of them */
    char failure[320]; /* why it could not be run; "": it could */
};

struct mist_verify_choice {
    size_t i_chosen, i_fastest;
    int n_rounds; /* that all plans were run in; 0: chosen by prediction alone */
    /* Against whom: the fastest where that was not chosen, else the first in the order of
     * prediction; i_chosen where they are the same. */
    size_t i_other;
    double ahead_s,
        ahead_spread_s; /* time of other minus time of chosen; NaN: no other */
};

/*
 * plans: [n], in the order of prediction; measured_s and spread_s are filled, times_s and
 * levels brought to one level where all are known. Plans with a failure are left out. False: there is no other plan (out is untouched).
 */
bool mist_verify_choose(struct mist_verified *plans, size_t n,
                        struct mist_verify_choice *out);

#endif
