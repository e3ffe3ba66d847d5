/* Edges of a graph. See edges.h. */
#include "sim/recorded/edges.h"

#include <stdlib.h>

bool mist_recorded_edges_add(struct mist_recorded_edges *edges, int64_t op,
                             int64_t waits_for)
{
    struct mist_recorded_edge *grown =
        mist_grow(edges->items, &edges->capacity, edges->n + 1, sizeof *grown);

    if (!grown)
        return false;
    edges->items = grown;
    grown[edges->n++] = (struct mist_recorded_edge){op, waits_for};
    return true;
}

bool mist_recorded_edges_end(struct mist_recorded_edges *edges,
                             struct mist_recorded_job *job, struct mist_arena *arena)
{
    int64_t *offset = mist_arena_alloc(arena, (size_t)(job->n_ops + 2) * sizeof *offset);
    int64_t *dep = mist_arena_alloc(arena, (edges->n + 1) * sizeof *dep);

    for (size_t i = 0; offset && dep && i < edges->n; i++)
        offset[edges->items[i].op + 2]++;
    for (int64_t i = 0; offset && dep && i < job->n_ops; i++)
        offset[i + 2] += offset[i + 1];
    for (size_t i = 0; offset && dep && i < edges->n; i++)
        dep[offset[edges->items[i].op + 1]++] = edges->items[i].waits_for;
    job->dep_offset = offset;
    job->dep = dep;
    free(edges->items);
    *edges = (struct mist_recorded_edges){0};
    return offset && dep;
}
