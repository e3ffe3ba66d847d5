/* Links ranks to one graph. See replay_graph.h. */
#include "sim/replay/replay_graph.h"

#include "core/memory.h" /* mist_grow */
#include "core/order.h"

#include <stdio.h> /* snprintf */
#include <stdlib.h>
#include <string.h>

char *mist_replay_task_text(const struct mist_rank_set *set, int32_t i_rank, int32_t i,
                            char *out)
{
    const struct mist_task *task = &mist_rank_schedule(set, i_rank)->tasks[i];

    snprintf(out, MIST_REPLAY_TASK_TEXT, "rank %d task %d (%s, layer %d, micro-batch %d)",
             (int)set->ranks[i_rank].rank, (int)i, mist_task_kind_name(task->kind),
             (int)task->layer, (int)task->micro_batch);
    return out;
}

MIST_COMPARATOR_OF(compare_tags, int32_t, MIST_COMPARE(*a, *b))

/* The tasks of every lane of a program, in order. */
static bool list_lanes(const struct mist_rank_program *program, struct mist_arena *arena,
                       struct mist_replay_lanes *out)
{
    const struct mist_schedule *schedule = program->schedule;
    size_t n_lanes = (size_t)program->n_lanes, n_tasks = (size_t)schedule->n_tasks;
    int32_t *n, *tags;

    if (!MIST_ARENA_ALLOC(arena, n, n_lanes + 1) ||
        !MIST_ARENA_ALLOC(arena, tags, n_tasks + 1) ||
        !MIST_ARENA_ALLOC(arena, out->first, n_lanes + 1) ||
        !MIST_ARENA_ALLOC(arena, out->task, n_tasks + 1) ||
        !MIST_ARENA_ALLOC(arena, out->place, n_tasks + 1) ||
        !MIST_ARENA_ALLOC(arena, out->repeats, n_lanes + 1))
        return false;
    for (size_t i = 0; i < n_tasks; i++)
        if (program->lane[i] >= 0)
            out->place[i] = n[program->lane[i]]++;
    for (size_t k = 0; k < n_lanes; k++)
        out->first[k + 1] = out->first[k] + n[k];
    for (size_t i = 0; i < n_tasks; i++) {
        if (program->lane[i] < 0)
            continue;
        out->task[out->first[program->lane[i]] + out->place[i]] = (int32_t)i;
        tags[out->first[program->lane[i]] + out->place[i]] = schedule->tasks[i].tag;
    }
    for (size_t k = 0; k < n_lanes; k++) {
        int32_t *mine = tags + out->first[k];
        qsort(mine, (size_t)n[k], sizeof *mine, compare_tags);
        for (int32_t i = 1; i < n[k]; i++)
            out->repeats[k] = out->repeats[k] || mine[i] == mine[i - 1];
    }
    return true;
}

/* What the event engine wants of a program. */
static bool make_program(const struct mist_rank_program *from, struct mist_arena *arena,
                         struct mist_event_program *out)
{
    const struct mist_schedule *schedule = from->schedule;
    size_t n = (size_t)schedule->n_tasks + 1;
    uint8_t *channel;
    int32_t *dep_offset, *dep;

    if (!MIST_ARENA_ALLOC(arena, channel, n) || !MIST_ARENA_ALLOC(arena, dep_offset, n) ||
        !MIST_ARENA_ALLOC(arena, dep, (size_t)schedule->n_deps + 1))
        return false;
    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        channel[i] = (uint8_t)task->stream;
        memcpy(dep + dep_offset[i], schedule->deps + task->dep_first,
               (size_t)task->n_deps * sizeof *dep);
        dep_offset[i + 1] = dep_offset[i] + task->n_deps;
    }
    *out = (struct mist_event_program){
        .n_tasks = schedule->n_tasks,
        .n_lanes = from->n_lanes,
        .channel = channel,
        .dep_offset = dep_offset,
        .dep = dep,
        .lane = from->lane,
    };
    return true;
}

enum mist_status mist_replay_graph_link(const struct mist_plan *plan,
                                        const struct mist_rank_set *set, bool is_folded,
                                        struct mist_arena *arena,
                                        struct mist_replay_graph *out,
                                        struct mist_err *err)
{
    size_t n_ends = mist_rank_set_n_lanes(set), n_programs = (size_t)set->n_programs;
    struct mist_replay_graph graph = {
        .set = set,
        .programs = mist_arena_alloc(arena, (n_programs + 1) * sizeof *graph.programs),
        .lanes = mist_arena_alloc(arena, (n_programs + 1) * sizeof *graph.lanes),
        .group = mist_arena_alloc(arena, (n_ends + 1) * sizeof *graph.group),
        .groups = mist_arena_alloc(arena, (n_ends + 1) * sizeof *graph.groups),
    };

    if (n_ends > INT32_MAX)
        return mist_err_set(err, MIST_ERR_RANGE, "%d ranks meet in more than 2^31 places",
                            (int)set->n_ranks);
    if (!graph.programs || !graph.lanes || !graph.group || !graph.groups)
        return mist_err_memory(err, NULL);
    for (size_t i = 0; i < n_programs; i++)
        if (!list_lanes(&set->programs[i], arena, &graph.lanes[i]) ||
            !make_program(&set->programs[i], arena, &graph.programs[i]))
            return mist_err_memory(err, NULL);
    for (int32_t r = 0; r < set->n_ranks; r++)
        graph.n_tasks_once += mist_rank_schedule(set, r)->n_tasks;
    enum mist_status status = mist_replay_graph_match(plan, is_folded, &graph, err);
    if (status == MIST_OK)
        *out = graph;
    return status;
}

double mist_replay_graph_bytes(double n_tasks, double n_deps, double n_lanes)
{
    const struct mist_replay_graph *graph = NULL; /* for sizes */
    size_t task = sizeof *graph->programs->channel + sizeof *graph->programs->dep_offset +
                  sizeof *graph->lanes->task + sizeof *graph->lanes->place +
                  sizeof(int32_t); /* tags */

    return (double)task * n_tasks + (double)sizeof *graph->programs->dep * n_deps +
           (double)(sizeof *graph->group + sizeof *graph->groups) * n_lanes;
}

/* -------------------------------------------------------------------------- meetings */

struct meeting {
    int32_t tag, group, place;
};

MIST_COMPARATOR(compare_meetings, struct meeting, tag)

/* The tasks of the lane of a group's first member. */
static const int32_t *group_tasks(const struct mist_replay_graph *graph, int32_t group,
                                  int32_t *n)
{
    const struct mist_replay_group *of = &graph->groups[group];
    const struct mist_replay_lanes *lanes =
        &graph->lanes[graph->set->ranks[of->i_rank].program];

    *n = lanes->first[of->lane + 1] - lanes->first[of->lane];
    return lanes->task + lanes->first[of->lane];
}

/* Groups of a pair take numbers together, by tag. */
static bool number_pair(struct mist_replay_graph *graph, int32_t first, int32_t end,
                        int64_t *n_numbered)
{
    struct meeting *meetings = NULL;
    size_t n_meetings = 0, capacity = 0;

    for (int32_t g = first; g < end; g++) {
        int32_t n;
        const int32_t *tasks = group_tasks(graph, g, &n);
        const struct mist_schedule *schedule =
            mist_rank_schedule(graph->set, graph->groups[g].i_rank);
        if (!MIST_RESERVE(meetings, capacity, n_meetings + (size_t)n + 1)) {
            free(meetings);
            return false;
        }
        for (int32_t k = 0; k < n; k++)
            meetings[n_meetings++] =
                (struct meeting){schedule->tasks[tasks[k]].tag, g, k};
    }
    if (n_meetings > 0)
        qsort(meetings, n_meetings, sizeof *meetings, compare_meetings);
    for (size_t i = 0; i < n_meetings; i++)
        graph->meeting[graph->first_meeting[meetings[i].group] + meetings[i].place] =
            (*n_numbered)++;
    free(meetings);
    return true;
}

enum mist_status mist_replay_graph_number(struct mist_replay_graph *graph,
                                          struct mist_arena *arena, struct mist_err *err)
{
    const struct mist_rank_set *set = graph->set;
    size_t n_ranks = (size_t)set->n_ranks, n_groups = (size_t)graph->n_groups;
    int64_t n_numbered = 0;

    if (!MIST_ARENA_ALLOC(arena, graph->first_task, n_ranks + 1) ||
        !MIST_ARENA_ALLOC(arena, graph->first_meeting, n_groups + 1))
        return mist_err_memory(err, NULL);
    for (int32_t r = 0; r < set->n_ranks; r++)
        graph->first_task[r + 1] =
            graph->first_task[r] + mist_rank_schedule(set, r)->n_tasks;
    for (int32_t g = 0, n; g < graph->n_groups; g++) {
        group_tasks(graph, g, &n);
        graph->first_meeting[g + 1] = graph->first_meeting[g] + n;
    }
    graph->n_meetings = graph->first_meeting[graph->n_groups];
    if (!MIST_ARENA_ALLOC(arena, graph->meeting, (size_t)graph->n_meetings + 1))
        return mist_err_memory(err, NULL);
    for (int32_t g = 0, end; g < graph->n_groups; g = end) {
        for (end = g + 1;
             end < graph->n_groups && graph->groups[end].pair == graph->groups[g].pair;
             end++)
            ;
        if (!number_pair(graph, g, end, &n_numbered))
            return mist_err_memory(err, NULL);
    }
    return MIST_OK;
}

int64_t mist_replay_graph_meeting(const struct mist_replay_graph *graph, int32_t i_rank,
                                  int32_t task)
{
    const struct mist_rank *rank = &graph->set->ranks[i_rank];
    int32_t lane = graph->set->programs[rank->program].lane[task];

    if (lane < 0)
        return -1;
    int32_t group = graph->group[rank->peer - graph->set->peers + lane];
    return graph
        ->meeting[graph->first_meeting[group] + graph->lanes[rank->program].place[task]];
}
