/* Links schedules to one graph: partners, iterations. See replay_graph.h. */
#include "sim/replay_graph.h"

#include <stdio.h> /* snprintf */
#include <stdlib.h>
#include <string.h>

/* One end of a rendezvous. Equal (group, a, b, tag): the same rendezvous. */
struct end {
    enum mist_group group;
    int32_t a, b; /* PEER: sender and receiver, of an exchange the lower and the higher
                     rank; DP: stage and i_tp; TP: stage and i_dp; ALL: 0 */
    int32_t tag;
    int32_t i_rank, task;
};

char *mist_replay_task_text(const struct mist_schedule *schedule, int32_t i, char *out)
{
    const struct mist_task *task = &schedule->tasks[i];

    snprintf(out, MIST_REPLAY_TASK_TEXT, "rank %d task %d (%s, layer %d, micro-batch %d)",
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
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
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

static struct end end_of(const struct mist_schedule *schedule,
                         const struct mist_task *task)
{
    struct end end = {.group = task->group, .tag = task->tag};
    bool is_first = task->kind == MIST_TASK_TIE_GRADIENT ? schedule->rank < task->peer
                                                         : is_send(task);

    switch (task->group) {
    case MIST_GROUP_PEER:
        end.a = is_first ? schedule->rank : task->peer;
        end.b = is_first ? task->peer : schedule->rank;
        break;
    case MIST_GROUP_DP:
        end.a = schedule->i_stage;
        end.b = schedule->i_tp;
        break;
    case MIST_GROUP_TP:
        end.a = schedule->i_stage;
        end.b = schedule->i_dp;
        break;
    default:
        break;
    }
    return end;
}

static void list_ends(const struct mist_schedule *const *schedules, int32_t n_ranks,
                      struct end *ends)
{
    for (int32_t r = 0, n = 0; r < n_ranks; r++)
        for (int32_t i = 0; i < schedules[r]->n_tasks; i++) {
            if (schedules[r]->tasks[i].group == MIST_GROUP_NONE)
                continue;
            ends[n] = end_of(schedules[r], &schedules[r]->tasks[i]);
            ends[n].i_rank = r;
            ends[n++].task = i;
        }
}

/* First byte of a transfer's slice in the micro-batch of the whole stage. */
static int64_t global_slice(const struct mist_plan *plan,
                            const struct mist_schedule *schedule,
                            const struct mist_task *task)
{
    const struct mist_stage_plan *stage = &plan->stages[schedule->i_stage];
    int64_t n_rows = (int64_t)stage->micro_batch * plan->job.seq_len;
    int64_t first = schedule->i_dp * n_rows;

    if (stage->is_sequence_parallel)
        first += schedule->i_tp * (n_rows / stage->tp);
    return first * plan->model.hidden * mist_dtype_weight_bytes(plan->job.dtype) +
           (is_send(task) ? task->from_offset_bytes : task->to_offset_bytes);
}

/* Why two ends are not those of one transfer or exchange; NULL if they are. */
static const char *find_mismatch(const struct mist_plan *plan,
                                 const struct mist_schedule *first,
                                 const struct mist_task *one,
                                 const struct mist_schedule *second,
                                 const struct mist_task *two)
{
    bool is_tie = one->kind == MIST_TASK_TIE_GRADIENT;

    if (first == second || (!is_tie && is_send(one) == is_send(two)))
        return "are the same end of one transfer";
    if (is_tie != (two->kind == MIST_TASK_TIE_GRADIENT) ||
        is_gradient(one) != is_gradient(two) || one->micro_batch != two->micro_batch ||
        (!is_tie && one->layer != two->layer))
        return "have one tag but mean different transfers";
    if (one->bytes != two->bytes)
        return "differ in bytes";
    if (!is_tie && global_slice(plan, first, one) != global_slice(plan, second, two))
        return "mean different samples";
    return NULL;
}

static enum mist_status check_transfer(const struct mist_plan *plan,
                                       const struct mist_schedule *const *schedules,
                                       const struct end *ends, int32_t n,
                                       struct mist_err *err)
{
    char texts[2][MIST_REPLAY_TASK_TEXT];
    const struct mist_schedule *first = schedules[ends[0].i_rank];
    const struct mist_task *one = &first->tasks[ends[0].task];

    if (n < 2)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "%s: rank %d has no task for the other end (tag %d)",
                            mist_replay_task_text(first, ends[0].task, texts[0]),
                            (int)one->peer, (int)one->tag);
    const struct mist_schedule *second = schedules[ends[1].i_rank];
    const struct mist_task *two = &second->tasks[ends[1].task];
    const char *what = n > 2 ? "are not the only ones with their tag"
                             : find_mismatch(plan, first, one, second, two);
    if (!what)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_INPUT, "%s and %s %s (tag %d, %lld and %lld bytes)",
                        mist_replay_task_text(first, ends[0].task, texts[0]),
                        mist_replay_task_text(second, ends[1].task, texts[1]), what,
                        (int)one->tag, (long long)one->bytes, (long long)two->bytes);
}

/* n_expected members, one for each rank of the group, all alike. */
static enum mist_status check_collective(const struct mist_schedule *const *schedules,
                                         const struct end *ends, int32_t n,
                                         int32_t n_expected, struct mist_err *err)
{
    char texts[2][MIST_REPLAY_TASK_TEXT];
    const struct mist_schedule *first = schedules[ends[0].i_rank];
    const struct mist_task *one = &first->tasks[ends[0].task];

    for (int32_t i = 1; i < n; i++) {
        const struct mist_schedule *other = schedules[ends[i].i_rank];
        const struct mist_task *task = &other->tasks[ends[i].task];
        if (ends[i].i_rank == ends[i - 1].i_rank || task->kind != one->kind ||
            task->layer != one->layer || task->micro_batch != one->micro_batch ||
            task->bytes != one->bytes)
            return mist_err_set(err, MIST_ERR_INPUT,
                                "%s and %s have tag %d of one group but differ or are on "
                                "one rank (%lld and %lld bytes)",
                                mist_replay_task_text(first, ends[0].task, texts[0]),
                                mist_replay_task_text(other, ends[i].task, texts[1]),
                                (int)one->tag, (long long)one->bytes,
                                (long long)task->bytes);
    }
    if (n != n_expected)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "%s: %d of the %d ranks of its group take part (tag %d)",
                            mist_replay_task_text(first, ends[0].task, texts[0]), (int)n,
                            (int)n_expected, (int)one->tag);
    return MIST_OK;
}

/* Members of a task's group that are among the ranks given. */
static int32_t group_size(const struct mist_plan *plan,
                          const struct mist_replay_graph *graph,
                          const struct mist_schedule *schedule,
                          const struct mist_task *task, bool is_folded)
{
    if (task->group == MIST_GROUP_ALL)
        return graph->n_ranks;
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
        if (ends[i].group == MIST_GROUP_PEER)
            status = check_transfer(plan, out->schedules, ends + i, n, err);
        else
            status =
                check_collective(out->schedules, ends + i, n,
                                 group_size(plan, out, schedule,
                                            &schedule->tasks[ends[i].task], is_folded),
                                 err);
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

double mist_replay_graph_bytes(double n_tasks, double n_deps)
{
    const struct mist_replay_graph *graph = NULL; /* for sizes */
    size_t task = sizeof *graph->device + sizeof *graph->channel +
                  sizeof *graph->dep_offset + sizeof *graph->rendezvous;

    return (double)task * n_tasks + (double)sizeof *graph->dep * n_deps;
}

/* qsort() sorts a copy. */
double mist_replay_graph_matching_bytes(double n_ends)
{
    return 2.0 * (double)sizeof(struct end) * n_ends;
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
