/* Edges of a graph. See edges.h. */
#include "sim/recorded/edges.h"

#include "core/memory.h"
#include "core/order.h"

#include <stdlib.h>
#include <string.h>

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

MIST_COMPARATOR(compare_places, struct mist_recorded_place, key[0], key[1], key[2],
                key[3], op)

void mist_recorded_meet(struct mist_recorded_job *job, struct mist_recorded_place *places,
                        int64_t n)
{
    if (n > 0)
        qsort(places, (size_t)n, sizeof *places, compare_places);
    for (int64_t i = 0; i < n; i++) {
        job->n_meetings +=
            i == 0 || memcmp(places[i - 1].key, places[i].key, sizeof places[i].key) != 0;
        job->ops[places[i].op].meeting = job->n_meetings - 1;
    }
}
