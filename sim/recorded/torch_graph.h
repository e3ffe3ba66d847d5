/*
 * Operations and what they wait for, of traces of torch.profiler: made rank by rank, then
 * matched between ranks, whose clocks are brought together. torch_job.h says the rules.
 */
#ifndef MIST_SIM_RECORDED_TORCH_GRAPH_H
#define MIST_SIM_RECORDED_TORCH_GRAPH_H

#include "sim/recorded/edges.h"
#include "sim/recorded/torch_file.h"

struct mist_torch_op {
    double start_us, end_us;
    int32_t rank;
    int32_t kind; /* enum mist_torch_kind */
    /* Of a message between ranks; < 0: the rank's stream -1 - group of them. */
    int32_t group;
    int32_t meeting; /* -1: none */
};

struct mist_torch_graph {      /* zero to begin with */
    struct mist_torch_op *ops; /* owned */
    size_t n_ops, capacity;
    struct mist_recorded_edges edges; /* owned */
    int64_t n_unlaunched;             /* on a device, without the call that launched it */
    int64_t n_unmatched;              /* messages whose other ends are not known */
    int32_t n_meetings;
    double shift_us; /* by which the clock of a rank was moved, at most */
};

/* Adds what a rank did, and sorts its trace. false: no memory. */
bool mist_torch_graph_add_rank(struct mist_torch_graph *graph,
                               struct mist_torch_trace *trace,
                               int32_t rank) MIST_MUST_CHECK;

/* Finds out which messages are one. false: no memory. */
bool mist_torch_graph_match(struct mist_torch_graph *graph) MIST_MUST_CHECK;

/* Brings the clocks of the ranks together by the ends of their messages. false: no memory. */
bool mist_torch_graph_align(struct mist_torch_graph *graph,
                            int32_t n_ranks) MIST_MUST_CHECK;

void mist_torch_graph_free(struct mist_torch_graph *graph);

#endif
