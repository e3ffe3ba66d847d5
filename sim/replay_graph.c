/* Links schedules to one graph and proves that it runs to its end. See replay_graph.h. */
#include "sim/replay_graph.h"

#include <stdio.h> /* snprintf */
#include <stdlib.h>
#include <string.h>

/* One end of a rendezvous. Equal (is_collective, a, b, tag): the same rendezvous. */
struct end {
    bool is_collective;
    int32_t a, b; /* sender and receiver; or stage and place in the tensor group */
    int32_t tag;
    int32_t i_rank, task;
};

enum { TASK_TEXT = 96 };

/* "rank 3 task 17 (send_activation of layer 2, micro-batch 1)" */
static char *task_text(const struct mist_schedule *schedule, int32_t i, char *out)
{
    const struct mist_task *task = &schedule->tasks[i];

    snprintf(out, TASK_TEXT, "rank %d task %d (%s, layer %d, micro-batch %d)",
             (int)schedule->rank, (int)i, mist_task_kind_name(task->kind),
             (int)task->layer, (int)task->micro_batch);
    return out;
}

static bool is_send(const struct mist_task *task)
{
    return task->kind == MIST_TASK_SEND_ACTIVATION ||
           task->kind == MIST_TASK_SEND_GRADIENT;
}

static bool is_gradient(const struct mist_task *task)
{
    return task->kind == MIST_TASK_SEND_GRADIENT || task->kind == MIST_TASK_RECV_GRADIENT;
}

/* --------------------------------------------------------------------------- matching */

static int32_t compare_keys(const struct end *a, const struct end *b)
{
    if (a->is_collective != b->is_collective)
        return a->is_collective ? 1 : -1;
    if (a->a != b->a)
        return a->a < b->a ? -1 : 1;
    if (a->b != b->b)
        return a->b < b->b ? -1 : 1;
    return (a->tag > b->tag) - (a->tag < b->tag);
}

static int compare_ends(const void *a_void, const void *b_void)
{
    const struct end *a = a_void, *b = b_void;
    int32_t order = compare_keys(a, b);

    if (order != 0)
        return order;
    if (a->i_rank != b->i_rank)
        return a->i_rank < b->i_rank ? -1 : 1;
    return (a->task > b->task) - (a->task < b->task);
}

static int32_t count_ends(const struct mist_schedule *const *schedules, int32_t n_ranks)
{
    int32_t n = 0;

    for (int32_t r = 0; r < n_ranks; r++)
        for (int32_t i = 0; i < schedules[r]->n_tasks; i++)
            n += schedules[r]->tasks[i].group != MIST_GROUP_NONE;
    return n;
}

static void list_ends(const struct mist_schedule *const *schedules, int32_t n_ranks,
                      struct end *ends)
{
    for (int32_t r = 0, n = 0; r < n_ranks; r++) {
        const struct mist_schedule *schedule = schedules[r];
        for (int32_t i = 0; i < schedule->n_tasks; i++) {
            const struct mist_task *task = &schedule->tasks[i];
            if (task->group == MIST_GROUP_NONE)
                continue;
            struct end *end = &ends[n++];
            *end = (struct end){task->group != MIST_GROUP_PEER,
                                schedule->i_stage,
                                task->group == MIST_GROUP_TP ? -1 - schedule->i_dp
                                                             : schedule->i_tp,
                                task->tag,
                                r,
                                i};
            if (end->is_collective)
                continue;
            end->a = is_send(task) ? schedule->rank : task->peer;
            end->b = is_send(task) ? task->peer : schedule->rank;
        }
    }
}

/* First byte of a transfer's slice in the micro-batch of all data-parallel ranks. */
static int64_t global_slice(const struct mist_schedule *schedule,
                            const struct mist_task *task)
{
    return schedule->i_dp * schedule->layouts[MIST_LAYER_BLOCK].input_bytes +
           task->slice_offset_bytes;
}

static enum mist_status check_transfer(const struct mist_schedule *const *schedules,
                                       const struct end *ends, int32_t n,
                                       struct mist_err *err)
{
    char texts[2][TASK_TEXT];
    const struct mist_schedule *first = schedules[ends[0].i_rank];
    const struct mist_task *one = &first->tasks[ends[0].task];

    if (n < 2)
        return mist_err_set(
            err, MIST_ERR_INPUT, "%s: rank %d has no task for the other end (tag %d)",
            task_text(first, ends[0].task, texts[0]), (int)one->peer, (int)one->tag);
    const struct mist_schedule *second = schedules[ends[1].i_rank];
    const struct mist_task *two = &second->tasks[ends[1].task];
    const char *what = NULL;
    if (n > 2)
        what = "are not the only ones with their tag";
    else if (is_send(one) == is_send(two) || first == second)
        what = "are the same end of one transfer";
    else if (is_gradient(one) != is_gradient(two) || one->layer != two->layer ||
             one->micro_batch != two->micro_batch)
        what = "have one tag but mean different transfers";
    else if (one->bytes != two->bytes)
        what = "differ in bytes";
    else if (global_slice(first, one) != global_slice(second, two))
        what = "mean different samples";
    if (!what)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_INPUT, "%s and %s %s (tag %d, %lld and %lld bytes)",
                        task_text(first, ends[0].task, texts[0]),
                        task_text(second, ends[1].task, texts[1]), what, (int)one->tag,
                        (long long)one->bytes, (long long)two->bytes);
}

/* n_expected members, one for each rank of the group, all alike. */
static enum mist_status check_collective(const struct mist_schedule *const *schedules,
                                         const struct end *ends, int32_t n,
                                         int32_t n_expected, struct mist_err *err)
{
    char texts[2][TASK_TEXT];
    const struct mist_schedule *first = schedules[ends[0].i_rank];
    const struct mist_task *one = &first->tasks[ends[0].task];

    for (int32_t i = 1; i < n; i++) {
        const struct mist_schedule *other = schedules[ends[i].i_rank];
        const struct mist_task *task = &other->tasks[ends[i].task];
        if (ends[i].i_rank == ends[i - 1].i_rank || task->kind != one->kind ||
            task->layer != one->layer || task->bytes != one->bytes)
            return mist_err_set(err, MIST_ERR_INPUT,
                                "%s and %s have tag %d of one group but differ or are on "
                                "one rank (%lld and %lld bytes)",
                                task_text(first, ends[0].task, texts[0]),
                                task_text(other, ends[i].task, texts[1]), (int)one->tag,
                                (long long)one->bytes, (long long)task->bytes);
    }
    if (n != n_expected)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "%s: %d of the %d ranks of its group take part (tag %d)",
                            task_text(first, ends[0].task, texts[0]), (int)n,
                            (int)n_expected, (int)one->tag);
    return MIST_OK;
}

static int32_t group_size(const struct mist_plan *plan,
                          const struct mist_schedule *schedule,
                          const struct mist_task *task, bool is_folded)
{
    if (is_folded)
        return 1;
    return task->group == MIST_GROUP_TP ? plan->stages[schedule->i_stage].tp
                                        : plan->stages[schedule->i_stage].dp;
}

/* Numbers the rendezvous of one iteration in graph->rendezvous. */
static enum mist_status match(const struct mist_plan *plan, struct mist_replay_graph *out,
                              bool is_folded, struct mist_err *err)
{
    int32_t n_ends = count_ends(out->schedules, out->n_ranks);
    struct end *ends = malloc(((size_t)n_ends + 1) * sizeof *ends);
    enum mist_status status = MIST_OK;

    if (!ends)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    list_ends(out->schedules, out->n_ranks, ends);
    qsort(ends, (size_t)n_ends, sizeof *ends, compare_ends);
    for (int32_t i = 0, n; i < n_ends && status == MIST_OK; i += n) {
        const struct mist_schedule *schedule = out->schedules[ends[i].i_rank];
        for (n = 1; i + n < n_ends && compare_keys(&ends[i], &ends[i + n]) == 0; n++)
            ;
        if (ends[i].is_collective)
            status = check_collective(
                out->schedules, ends + i, n,
                group_size(plan, schedule, &schedule->tasks[ends[i].task], is_folded),
                err);
        else
            status = check_transfer(out->schedules, ends + i, n, err);
        for (int32_t k = i; k < i + n; k++)
            out->rendezvous[out->first_task[ends[k].i_rank] + ends[k].task] =
                out->n_rendezvous_once;
        out->n_rendezvous_once++;
    }
    free(ends);
    return status;
}

/* ---------------------------------------------------------------------------- linking */

/* First and last task of each stream; -1 where a stream has none. */
static void find_ends_of_streams(const struct mist_schedule *schedule,
                                 int32_t first[MIST_N_STREAMS],
                                 int32_t last[MIST_N_STREAMS])
{
    for (int i = 0; i < MIST_N_STREAMS; i++)
        first[i] = last[i] = -1;
    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        enum mist_stream stream = schedule->tasks[i].stream;
        if (first[stream] < 0)
            first[stream] = i;
        last[stream] = i;
    }
}

/* Dependencies of one rank in one iteration, appended at *n_deps. */
static void link_rank(struct mist_replay_graph *out, int32_t i_rank, int32_t iteration,
                      int32_t *n_deps)
{
    const struct mist_schedule *schedule = out->schedules[i_rank];
    int32_t base = iteration * out->n_tasks_once + out->first_task[i_rank];
    int32_t first[MIST_N_STREAMS], last[MIST_N_STREAMS];

    find_ends_of_streams(schedule, first, last);
    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        int32_t meets = out->rendezvous[out->first_task[i_rank] + i];
        out->device[base + i] = i_rank;
        out->channel[base + i] = (uint8_t)task->stream;
        out->rendezvous[base + i] = meets < 0 || iteration == 0
                                        ? meets
                                        : meets + iteration * out->n_rendezvous_once;
        out->dep_offset[base + i] = *n_deps;
        for (int32_t k = 0; k < task->n_deps; k++)
            out->dep[(*n_deps)++] = base + schedule->deps[task->dep_first + k];
        if (iteration == 0 || first[task->stream] != i)
            continue;
        for (int k = 0; k < MIST_N_STREAMS; k++)
            if (last[k] >= 0 && k != (int)task->stream)
                out->dep[(*n_deps)++] = base - out->n_tasks_once + last[k];
    }
}

/* Sizes of the arrays; false when they pass 31 bits. */
static bool count(struct mist_replay_graph *out, int64_t *n_deps)
{
    int64_t n_tasks = 0;

    *n_deps = 0;
    for (int32_t r = 0; r < out->n_ranks; r++) {
        out->first_task[r] = (int32_t)n_tasks;
        n_tasks += out->schedules[r]->n_tasks;
        *n_deps += out->schedules[r]->n_deps + MIST_N_STREAMS * (MIST_N_STREAMS - 1);
        if (n_tasks > INT32_MAX)
            return false;
    }
    out->first_task[out->n_ranks] = (int32_t)n_tasks;
    out->n_tasks_once = (int32_t)n_tasks;
    *n_deps *= out->n_iterations;
    return n_tasks * out->n_iterations < INT32_MAX && *n_deps < INT32_MAX;
}

enum mist_status mist_replay_graph_link(const struct mist_plan *plan,
                                        const struct mist_schedule *const *schedules,
                                        int32_t n_ranks, bool is_folded,
                                        int32_t n_iterations, struct mist_arena *arena,
                                        struct mist_replay_graph *out,
                                        struct mist_err *err)
{
    struct mist_replay_graph graph = {
        .schedules = schedules,
        .n_ranks = n_ranks,
        .n_iterations = n_iterations,
        .first_task =
            mist_arena_alloc(arena, ((size_t)n_ranks + 1) * sizeof *graph.first_task),
    };
    int64_t n_deps;
    int32_t n_linked = 0;

    if (!graph.first_task)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    if (!count(&graph, &n_deps))
        return mist_err_set(err, MIST_ERR_RANGE,
                            "%d iterations of %d ranks have more than 2^31 tasks or "
                            "dependencies",
                            (int)n_iterations, (int)n_ranks);
    graph.n_tasks = graph.n_tasks_once * n_iterations;
    size_t n = (size_t)graph.n_tasks + 1;
    graph.device = mist_arena_alloc(arena, n * sizeof *graph.device);
    graph.channel = mist_arena_alloc(arena, n * sizeof *graph.channel);
    graph.dep_offset = mist_arena_alloc(arena, n * sizeof *graph.dep_offset);
    graph.dep = mist_arena_alloc(arena, ((size_t)n_deps + 1) * sizeof *graph.dep);
    graph.rendezvous = mist_arena_alloc(arena, n * sizeof *graph.rendezvous);
    if (!graph.device || !graph.channel || !graph.dep_offset || !graph.dep ||
        !graph.rendezvous)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    memset(graph.rendezvous, -1, n * sizeof *graph.rendezvous);
    enum mist_status status = match(plan, &graph, is_folded, err);
    if (status != MIST_OK)
        return status;
    graph.n_rendezvous = graph.n_rendezvous_once * n_iterations;
    for (int32_t k = 0; k < n_iterations; k++)
        for (int32_t r = 0; r < n_ranks; r++)
            link_rank(&graph, r, k, &n_linked);
    graph.dep_offset[graph.n_tasks] = n_linked;
    *out = graph;
    return MIST_OK;
}

/* --------------------------------------------------------------------------- checking */

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
    char text[400] = "", one[TASK_TEXT];
    int32_t i = 0, n_steps = 0, same_rank_steps = 0;

    while (at->pending[i] < 0)
        i++;
    for (int32_t k = 0; k < graph->n_tasks; k++) /* long enough: now i is in the ring */
        i = blocker(at, i);
    while (graph->device[blocker(at, i)] == graph->device[i] && same_rank_steps++ < 100)
        i = blocker(at, i); /* the last task of a rank before the ring leaves it */
    int32_t start = i;
    for (size_t used = 0; used + TASK_TEXT + 20 < sizeof text;) {
        int32_t r = graph->device[i], next = blocker(at, i);
        int32_t task = i % graph->n_tasks_once - graph->first_task[r];
        if (used == 0 || graph->device[next] != r || i == start)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                     used ? " waits for " : "",
                                     task_text(graph->schedules[r], task, one));
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
