/* Edges of a graph. See edges.h. */
#include "sim/recorded/edges.h"

#include "core/memory.h"

#include <stdlib.h>

bool mist_recorded_edges_add(struct mist_recorded_edges *edges, int64_t op,
                             int64_t waits_for)
{
    return MIST_APPEND(edges->items, edges->capacity, edges->n,
                       (struct mist_recorded_edge){op, waits_for});
}

bool mist_recorded_edges_sort(const struct mist_recorded_edge *edges, size_t n_edges,
                              int64_t n_ops, struct mist_arena *arena, int64_t **offset,
                              int64_t **list)
{
    if (!MIST_ARENA_ALLOC(arena, *offset, (size_t)(n_ops + 2)) ||
        !MIST_ARENA_ALLOC(arena, *list, n_edges + 1))
        return false;
    for (size_t i = 0; i < n_edges; i++)
        if (edges[i].op >= 0)
            (*offset)[edges[i].op + 2]++;
    for (int64_t i = 0; i < n_ops; i++)
        (*offset)[i + 2] += (*offset)[i + 1];
    for (size_t i = 0; i < n_edges; i++)
        if (edges[i].op >= 0)
            (*list)[(*offset)[edges[i].op + 1]++] = edges[i].waits_for;
    return true;
}

bool mist_recorded_edges_end(struct mist_recorded_edges *edges,
                             struct mist_recorded_job *job, struct mist_arena *arena)
{
    int64_t *offset, *dep;
    bool is_done = mist_recorded_edges_sort(edges->items, edges->n, job->n_ops, arena,
                                            &offset, &dep);

    job->dep_offset = offset;
    job->dep = dep;
    free(edges->items);
    *edges = (struct mist_recorded_edges){0};
    return is_done;
}
