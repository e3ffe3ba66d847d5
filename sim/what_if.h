/*
 * What-if: edits of what a prediction rests on, by name.
 *
 * A factor says how many times as fast, or as much, everywhere: 2x is twice as fast, 0.5x
 * half as fast. Whose rate or size it is, a NIC's, a node's or a device's, is part of the
 * name; in place of a factor these take an amount. mist_what_if_name() has all names.
 *
 * Links scale as a whole, latency included, as if every measurement had been so. Of a
 * preset's links a rate is that of the data sheet, as in --cluster; else it is what the
 * fastest measurement reaches on its way (of rings, the bytes that pass), or is declared.
 */
#ifndef MIST_SIM_WHAT_IF_H
#define MIST_SIM_WHAT_IF_H

#include "core/status.h"
#include "sim/cost/cost_model.h"
#include "sim/model/framework.h"
#include "sim/plan/plan.h"
#include "traces/trace_set.h"

/* What is edited: the trace set in place, and what it can't say. */
struct mist_what_if {
    struct mist_trace_set *traces; /* borrowed */
    struct mist_framework framework;
    struct mist_cost_speeds speeds; /* points to it: don't copy or move */
    double *rank_factor;            /* [n_ranks] of the time of computation; borrowed */
    double *link_factor;            /* [n_ranks] of that of a rank's messages; borrowed */
    int n_ranks;                    /* 0: no plan says where ranks are */
};

/* Without edits; sets factors [2 * n_ranks], borrowed, to 1. */
void mist_what_if_init(struct mist_what_if *what_if, struct mist_trace_set *traces,
                       enum mist_framework_name framework, double *factors, int n_ranks);

/*
 * Applies one edit "NAME=VALUE". MIST_OK; MIST_ERR_USAGE (unknown name, value out of
 * range: the message lists what there is) or MIST_ERR_MEMORY; then nothing was changed.
 */
MIST_MUST_CHECK enum mist_status
mist_what_if_apply(struct mist_what_if *what_if, const char *edit, struct mist_err *err);

/* Applies edits one after the other, but device= first: further edits are of these.
 * must_change: one that leaves all as it was is MIST_ERR_USAGE. */
MIST_MUST_CHECK enum mist_status mist_what_if_apply_all(struct mist_what_if *what_if,
                                                        const char *const *edits, int n,
                                                        bool must_change,
                                                        struct mist_err *err);

/* Whether an edit is of one rank alone. */
bool mist_what_if_is_of_rank(const char *edit);

/* Number i = 0, 1, .. of the names, what they take and mean; false: there are no more. */
bool mist_what_if_name(int i, const char **name, const char **takes,
                       const char **meaning);

/* Says of an edit that can be applied that it changes nothing, and why that may be.
 * Returns MIST_ERR_USAGE. */
enum mist_status mist_what_if_fail_nothing(const char *edit, struct mist_err *err);

#endif
