/* What operations wait for and where they meet, while a job is read. */
#ifndef MIST_SIM_RECORDED_EDGES_H
#define MIST_SIM_RECORDED_EDGES_H

#include "sim/recorded/recorded.h"

#include <stddef.h>

struct mist_recorded_edge {
    int64_t op, waits_for;
};

struct mist_recorded_edges {          /* zero to begin with */
    struct mist_recorded_edge *items; /* owned */
    size_t n, capacity;
};

/* false: no memory. */
bool mist_recorded_edges_add(struct mist_recorded_edges *edges, int64_t op,
                             int64_t waits_for) MIST_MUST_CHECK;

/* What ops 0 .. n_ops - 1 wait for, in the order of the edges: that of op i in list from
 * offset[i] to offset[i + 1], both in the arena. An edge of an op below 0 is none. false:
 * no memory. */
bool mist_recorded_edges_sort(const struct mist_recorded_edge *edges, size_t n_edges,
                              int64_t n_ops, struct mist_arena *arena, int64_t **offset,
                              int64_t **list) MIST_MUST_CHECK;

/* Makes the dep arrays of job, in the arena, and frees the edges, whatever happens. false:
 * no memory. */
bool mist_recorded_edges_end(struct mist_recorded_edges *edges,
                             struct mist_recorded_job *job,
                             struct mist_arena *arena) MIST_MUST_CHECK;

/* Those whose keys are the same pass one message. */
struct mist_recorded_place {
    int64_t key[4], op;
};

/* Sorts the places by key and op, and numbers the meetings of job that they make. */
void mist_recorded_meet(struct mist_recorded_job *job, struct mist_recorded_place *places,
                        int64_t n);

#endif
