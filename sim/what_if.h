/*
 * What-if: edits of the inputs of a prediction, by name.
 *
 *   kernel.NAME=0.7x      operator NAME (or all) takes 0.7 times its time
 *   link.NAME=2x          links NAME carry twice the bytes per second; NAME is an
 *                         operation of links.csv, inter_node, intra_node or all
 *   link.NAME=400Gb/s     their largest measured rate becomes this (times scale by one
 *                         factor)
 *   launch=0.5x           cost of launching a task
 *   interference=none     channels no longer slow one another down
 *   cluster.nodes=4       nodes; cluster.devices_per_node=8 likewise
 *   straggler.rank5=1.3x  rank 5 takes 1.3 times as long for every computation
 *
 * Times scale as a whole, latency included: an edit says "as if every measurement had
 * been so".
 */
#ifndef MIST_SIM_WHAT_IF_H
#define MIST_SIM_WHAT_IF_H

#include "core/status.h"
#include "traces/trace_set.h"

/*
 * Applies one edit "NAME=VALUE". traces is changed in place; rank_factor [n_ranks] holds
 * the stragglers, starts at 1. MIST_OK or MIST_ERR_USAGE (unknown name, value out of
 * range: the message lists what there is); then nothing was changed.
 */
MIST_MUST_CHECK enum mist_status mist_what_if_apply(const char *edit,
                                                    struct mist_trace_set *traces,
                                                    double *rank_factor, int n_ranks,
                                                    struct mist_err *err);

#endif
