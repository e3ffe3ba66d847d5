/*
 * Proves that a graph runs to its end, by letting everything run that can. See
 * replay_graph.h.
 */
#include "sim/replay_graph.h"

#include <stdio.h> /* snprintf */

/* The walk over the graph: what has run, and what is next in each stream. */
struct walk {
    const struct mist_replay_graph *graph;
    int32_t *pending;        /* [n_tasks] dependencies that have not run, and the stream's
                                predecessor; -1 once the task itself has run */
    int32_t *previous;       /* [n_tasks] before it in its stream; -1 none */
    int32_t *follower_first; /* [n_tasks + 1] */
    int32_t *followers;      /* tasks that wait for a task */
    int32_t *member_first;   /* [n_rendezvous + 1] */
    int32_t *members;        /* tasks of a rendezvous */
    int32_t *missing;        /* [n_rendezvous] members that are not ready */
    int32_t *stack;          /* [n_tasks] tasks that run now */
    int32_t n_stack, n_done;
};

/* Tasks by the rendezvous they are in. */
static void list_members(struct walk *at)
{
    const struct mist_replay_graph *graph = at->graph;

    for (int32_t i = 0; i < graph->n_tasks; i++)
        if (graph->rendezvous[i] >= 0)
            at->member_first[graph->rendezvous[i] + 1]++;
    for (int32_t r = 0; r < graph->n_rendezvous; r++) {
        at->missing[r] = at->member_first[r + 1];
        at->member_first[r + 1] += at->member_first[r];
    }
    for (int32_t i = graph->n_tasks - 1; i >= 0; i--) {
        int32_t r = graph->rendezvous[i];
        if (r >= 0)
            at->members[at->member_first[r] + --at->missing[r]] = i;
    }
    for (int32_t r = 0; r < graph->n_rendezvous; r++)
        at->missing[r] = at->member_first[r + 1] - at->member_first[r];
}

static int32_t n_waits(const struct walk *at, int32_t i)
{
    return at->graph->dep_offset[i + 1] - at->graph->dep_offset[i] +
           (at->previous[i] >= 0);
}

/* The k-th task that task i waits for. */
static int32_t waits_for(const struct walk *at, int32_t i, int32_t k)
{
    int32_t first = at->graph->dep_offset[i];

    return first + k < at->graph->dep_offset[i + 1] ? at->graph->dep[first + k]
                                                    : at->previous[i];
}

/* Who waits for whom, both ways round. */
static void list_followers(struct walk *at)
{
    int32_t n = at->graph->n_tasks;

    for (int32_t i = 0; i < n; i++) {
        at->pending[i] = n_waits(at, i);
        for (int32_t k = 0; k < at->pending[i]; k++)
            at->follower_first[waits_for(at, i, k) + 1]++;
    }
    for (int32_t i = 0; i < n; i++)
        at->follower_first[i + 1] += at->follower_first[i];
    for (int32_t i = n - 1; i >= 0; i--) /* fills every list from its end */
        for (int32_t k = 0; k < at->pending[i]; k++)
            at->followers[--at->follower_first[waits_for(at, i, k) + 1]] = i;
    for (int32_t i = 0; i < n; i++) /* entry i + 1 now holds the start of list i */
        at->follower_first[i] = at->follower_first[i + 1];
    at->follower_first[n] = at->graph->dep_offset[n];
    for (int32_t i = 0; i < n; i++)
        at->follower_first[n] += at->previous[i] >= 0;
}

static bool alloc_walk(struct walk *at, struct mist_arena *arena)
{
    size_t n = (size_t)at->graph->n_tasks + 1, m = (size_t)at->graph->n_rendezvous + 1;
    size_t n_deps = (size_t)at->graph->dep_offset[at->graph->n_tasks];
    int32_t **arrays[] = {&at->pending,        &at->previous,  &at->stack,
                          &at->follower_first, &at->followers, &at->members,
                          &at->member_first,   &at->missing};
    size_t sizes[] = {n, n, n, n, n + n_deps, n, m, m};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        *arrays[i] = mist_arena_alloc(arena, sizes[i] * sizeof **arrays[i]);
        if (!*arrays[i])
            return false;
    }
    return true;
}

double mist_replay_graph_check_bytes(double n_tasks, double n_deps, double n_rendezvous)
{
    return (double)sizeof(int32_t) * (6 * n_tasks + n_deps + 2 * n_rendezvous);
}

static void find_previous(struct walk *at, int32_t *last)
{
    const struct mist_replay_graph *graph = at->graph;

    for (int32_t i = 0; i < MIST_N_STREAMS * graph->n_ranks; i++)
        last[i] = -1;
    for (int32_t i = 0; i < graph->n_tasks; i++) {
        int32_t *mine = &last[MIST_N_STREAMS * graph->device[i] + graph->channel[i]];
        at->previous[i] = *mine;
        *mine = i;
    }
}

/* A task waits for nothing more: it runs, or its rendezvous when it was the last. */
static void become_ready(struct walk *at, int32_t i)
{
    int32_t r = at->graph->rendezvous[i];

    if (r < 0) {
        at->stack[at->n_stack++] = i;
        return;
    }
    if (--at->missing[r] > 0)
        return;
    for (int32_t k = at->member_first[r]; k < at->member_first[r + 1]; k++)
        at->stack[at->n_stack++] = at->members[k];
}

static void walk_all(struct walk *at)
{
    for (int32_t i = 0; i < at->graph->n_tasks; i++)
        if (n_waits(at, i) == 0)
            become_ready(at, i);
    while (at->n_stack > 0) {
        int32_t done = at->stack[--at->n_stack];
        at->pending[done] = -1;
        at->n_done++;
        for (int32_t k = at->follower_first[done]; k < at->follower_first[done + 1]; k++)
            if (--at->pending[at->followers[k]] == 0)
                become_ready(at, at->followers[k]);
    }
}

/* A task that has not run and that task i waits for; i itself has not run. */
static int32_t blocker(const struct walk *at, int32_t i)
{
    for (int32_t k = 0; k < n_waits(at, i); k++)
        if (at->pending[waits_for(at, i, k)] >= 0)
            return waits_for(at, i, k);
    int32_t r = at->graph->rendezvous[i];
    for (int32_t k = at->member_first[r]; k < at->member_first[r + 1]; k++)
        if (at->pending[at->members[k]] > 0)
            return at->members[k];
    return i; /* not reached: a task that waits for nothing has run */
}

static enum mist_status report_ring(const struct walk *at, struct mist_err *err)
{
    const struct mist_replay_graph *graph = at->graph;
    char text[400] = "", one[MIST_REPLAY_TASK_TEXT];
    int32_t i = 0, n_steps = 0, same_rank_steps = 0;

    while (at->pending[i] < 0)
        i++;
    for (int32_t k = 0; k < graph->n_tasks; k++) /* long enough: now i is in the ring */
        i = blocker(at, i);
    while (graph->device[blocker(at, i)] == graph->device[i] && same_rank_steps++ < 100)
        i = blocker(at, i); /* the last task of a rank before the ring leaves it */
    int32_t start = i;
    for (size_t used = 0; used + MIST_REPLAY_TASK_TEXT + 20 < sizeof text;) {
        int32_t r = graph->device[i], next = blocker(at, i);
        int32_t task = i % graph->n_tasks_once - graph->first_task[r];
        if (used == 0 || graph->device[next] != r || i == start)
            used += (size_t)snprintf(
                text + used, sizeof text - used, "%s%s", used ? " waits for " : "",
                mist_replay_task_text(graph->schedules[r], task, one));
        if (i == start && n_steps++ > 0)
            break;
        i = next;
    }
    return mist_err_set(err, MIST_ERR_INPUT, "deadlock, %d of %d tasks never run: %s",
                        (int)(graph->n_tasks - at->n_done), (int)graph->n_tasks, text);
}

enum mist_status mist_replay_graph_check(const struct mist_replay_graph *graph,
                                         struct mist_arena *arena, struct mist_err *err)
{
    struct walk at = {.graph = graph};
    int32_t *last = mist_arena_alloc(arena, ((size_t)graph->n_ranks + 1) *
                                                MIST_N_STREAMS * sizeof *last);

    if (!last || !alloc_walk(&at, arena))
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    find_previous(&at, last);
    list_members(&at);
    list_followers(&at);
    walk_all(&at);
    return at.n_done == graph->n_tasks ? MIST_OK : report_ring(&at, err);
}
