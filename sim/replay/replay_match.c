/*
 * Who meets whom: lanes that mean the same group or pair of ranks, and whether their tasks
 * match. See replay_graph.h.
 */
#include "core/order.h"
#include "sim/replay/replay_graph.h"

#include "core/memory.h" /* mist_grow */

#include <stdlib.h>

/* What passes between two ranks. */
enum way { WAY_ACTIVATION, WAY_GRADIENT, WAY_TIE, WAY_COLLECTIVE };

/* A lane of a rank. Equal (group, a, b, way): those meet. */
struct end {
    enum mist_group group;
    int32_t a, b; /* PEER: sender and receiver, of an exchange the lower and the higher
                     rank; others: the first member, and 0 */
    enum way way;
    int32_t i_rank, lane;
};

/* A task of a lane, to name what does not match. */
struct end_task {
    int32_t i_rank, task, tag, peer;
};

struct linking {
    const struct mist_plan *plan;
    const struct mist_rank_set *set;
    struct mist_replay_graph *out;
    bool is_folded;
    struct mist_err *err;
};

/* ------------------------------------------------------------------------------- ends */

static int32_t compare_pairs(const struct end *a, const struct end *b)
{
    if ((a->group == MIST_GROUP_PEER) != (b->group == MIST_GROUP_PEER))
        return a->group == MIST_GROUP_PEER ? 1 : -1; /* behind collectives */
    return MIST_COMPARE_BY(a, b, group, a, b);
}

static int compare_ends(const void *a_void, const void *b_void)
{
    const struct end *a = a_void, *b = b_void;

    int32_t order = compare_pairs(a, b);

    return order != 0 ? order : MIST_COMPARE_BY(a, b, way, i_rank, lane);
}

static enum way way_of(enum mist_task_kind kind)
{
    switch (kind) {
    case MIST_TASK_TIE_GRADIENT:
        return WAY_TIE;
    case MIST_TASK_SEND_GRADIENT:
    case MIST_TASK_RECV_GRADIENT:
        return WAY_GRADIENT;
    default:
        return WAY_ACTIVATION;
    }
}

static struct end end_of(const struct mist_rank_set *set, int32_t i_rank, int32_t i_lane)
{
    const struct mist_rank *rank = &set->ranks[i_rank];
    const struct mist_rank_program *program = &set->programs[rank->program];
    const struct mist_lane *lane = &program->lanes[i_lane];
    int32_t peer = rank->peer[i_lane];
    struct end end = {.group = lane->group, .way = WAY_COLLECTIVE};
    bool is_first = lane->kind == MIST_TASK_TIE_GRADIENT
                        ? rank->rank < peer
                        : mist_task_kind_sends(lane->kind);

    end.i_rank = i_rank;
    end.lane = i_lane;
    if (lane->group == MIST_GROUP_PEER) {
        end.way = way_of(lane->kind);
        end.a = is_first ? rank->rank : peer;
        end.b = is_first ? peer : rank->rank;
    } else {
        end.a =
            mist_rank_mesh_member(&program->schedule->mesh, lane->group, rank->rank, 0);
    }
    return end;
}

static void list_ends(const struct mist_rank_set *set, struct end *ends)
{
    for (int32_t r = 0; r < set->n_ranks; r++)
        for (int32_t k = 0; k < set->programs[set->ranks[r].program].n_lanes; k++)
            *ends++ = end_of(set, r, k);
}

/* ------------------------------------------------------------------------ tasks match */

static const struct mist_task *task_of(const struct linking *at,
                                       const struct end_task *of)
{
    return &mist_rank_schedule(at->set, of->i_rank)->tasks[of->task];
}

/* First byte of a transfer's slice in the micro-batch of the whole stage. */
static int64_t global_slice(const struct linking *at, int32_t i_rank,
                            const struct mist_task *task)
{
    const struct mist_plan *plan = at->plan;
    int64_t n,
        first = mist_schedule_first_row(plan, &mist_rank_schedule(at->set, i_rank)->mesh,
                                        at->set->ranks[i_rank].rank, &n);

    return first * mist_schedule_row_bytes(plan) + (mist_task_kind_sends(task->kind)
                                                        ? task->from_offset_bytes
                                                        : task->to_offset_bytes);
}

/* Why two ends are not those of one transfer or exchange; NULL if they are. */
static const char *find_mismatch(const struct linking *at, int32_t i_first,
                                 const struct mist_task *one, int32_t i_second,
                                 const struct mist_task *two)
{
    bool is_tie = one->kind == MIST_TASK_TIE_GRADIENT;

    if (i_first == i_second ||
        (!is_tie && mist_task_kind_sends(one->kind) == mist_task_kind_sends(two->kind)))
        return "are the same end of one transfer";
    if (way_of(one->kind) != way_of(two->kind) || one->micro_batch != two->micro_batch ||
        (!is_tie && one->layer != two->layer))
        return "have one tag but mean different transfers";
    if (one->bytes != two->bytes)
        return "differ in bytes";
    if (!is_tie && global_slice(at, i_first, one) != global_slice(at, i_second, two))
        return "mean different samples";
    return NULL;
}

static bool is_same_collective(const struct mist_task *one, const struct mist_task *two)
{
    return one->tag == two->tag && one->kind == two->kind && one->layer == two->layer &&
           one->micro_batch == two->micro_batch && one->bytes == two->bytes;
}

/* Members of a lane's group that are among the ranks given. */
static int32_t group_size(const struct linking *at, const struct end *end)
{
    if (end->group == MIST_GROUP_ALL)
        return at->set->n_ranks;
    if (at->is_folded && end->group != MIST_GROUP_PEER)
        return 1;
    if (at->set->has_one_of_tp && end->group == MIST_GROUP_TP)
        return 1;
    return mist_rank_mesh_size(&mist_rank_schedule(at->set, end->i_rank)->mesh,
                               end->group);
}

/* The tasks of a lane, in order. */
static const int32_t *tasks_of(const struct linking *at, const struct end *end,
                               int32_t *n)
{
    const struct mist_replay_lanes *lanes =
        &at->out->lanes[at->set->ranks[end->i_rank].program];

    *n = lanes->first[end->lane + 1] - lanes->first[end->lane];
    return lanes->task + lanes->first[end->lane];
}

/* Whether the n-th tasks of two lanes match for all n. */
static bool lanes_match(const struct linking *at, const struct end *a,
                        const struct end *b)
{
    const struct mist_rank *ranks = at->set->ranks;
    const struct mist_task *one = mist_rank_schedule(at->set, a->i_rank)->tasks;
    const struct mist_task *two = mist_rank_schedule(at->set, b->i_rank)->tasks;
    bool is_peer = a->group == MIST_GROUP_PEER;
    int32_t n, n_other;
    const int32_t *mine = tasks_of(at, a, &n), *theirs = tasks_of(at, b, &n_other);

    if (a->i_rank == b->i_rank || n != n_other)
        return false;
    if (!is_peer && ranks[a->i_rank].program == ranks[b->i_rank].program &&
        a->lane == b->lane)
        return true; /* the same tasks */
    for (int32_t i = 0; i < n; i++) {
        const struct mist_task *x = &one[mine[i]], *y = &two[theirs[i]];
        if (is_peer ? x->tag != y->tag || find_mismatch(at, a->i_rank, x, b->i_rank, y)
                    : !is_same_collective(x, y))
            return false;
    }
    return true;
}

static bool all_match(const struct linking *at, const struct end *ends, int32_t n)
{
    const struct mist_replay_lanes *lanes =
        &at->out->lanes[at->set->ranks[ends[0].i_rank].program];

    if (n != group_size(at, ends) || lanes->repeats[ends[0].lane])
        return false;
    for (int32_t i = 1; i < n; i++)
        if (ends[i].i_rank == ends[i - 1].i_rank || !lanes_match(at, &ends[0], &ends[i]))
            return false;
    return true;
}

/* ----------------------------------------------------------------------- no match */

/* tasks: [n] of two ranks that have one tag. */
static enum mist_status check_transfer(const struct linking *at,
                                       const struct end_task *tasks, int32_t n,
                                       struct mist_err *err)
{
    char texts[2][MIST_REPLAY_TASK_TEXT];
    const struct mist_task *one = task_of(at, &tasks[0]);

    mist_replay_task_text(at->set, tasks[0].i_rank, tasks[0].task, texts[0]);
    if (n < 2)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "%s: rank %d has no task for the other end (tag %d)",
                            texts[0], (int)tasks[0].peer, (int)one->tag);
    const struct mist_task *two = task_of(at, &tasks[1]);
    const char *what =
        n > 2 ? "are not the only ones with their tag"
              : find_mismatch(at, tasks[0].i_rank, one, tasks[1].i_rank, two);
    if (!what)
        return MIST_OK;
    return mist_err_set(
        err, MIST_ERR_INPUT, "%s and %s %s (tag %d, %lld and %lld bytes)", texts[0],
        mist_replay_task_text(at->set, tasks[1].i_rank, tasks[1].task, texts[1]), what,
        (int)one->tag, (long long)one->bytes, (long long)two->bytes);
}

/* n_expected members, one for each rank of the group, all alike. */
static enum mist_status check_collective(const struct linking *at,
                                         const struct end_task *tasks, int32_t n,
                                         int32_t n_expected, struct mist_err *err)
{
    char texts[2][MIST_REPLAY_TASK_TEXT];
    const struct mist_task *one = task_of(at, &tasks[0]);

    mist_replay_task_text(at->set, tasks[0].i_rank, tasks[0].task, texts[0]);
    for (int32_t i = 1; i < n; i++) {
        const struct mist_task *two = task_of(at, &tasks[i]);
        if (tasks[i].i_rank == tasks[i - 1].i_rank || !is_same_collective(one, two))
            return mist_err_set(
                err, MIST_ERR_INPUT,
                "%s and %s have tag %d of one group but differ or are on one rank (%lld "
                "and %lld bytes)",
                texts[0],
                mist_replay_task_text(at->set, tasks[i].i_rank, tasks[i].task, texts[1]),
                (int)one->tag, (long long)one->bytes, (long long)two->bytes);
    }
    if (n != n_expected)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "%s: %d of the %d ranks of its group take part (tag %d)",
                            texts[0], (int)n, (int)n_expected, (int)one->tag);
    return MIST_OK;
}

MIST_COMPARATOR(compare_tasks, struct end_task, tag, i_rank, task)

/*
 * Why the lanes of one group, or of one pair of ranks, do not match, tag by tag. Where all
 * tasks have partners, they come in different orders: then each of two streams waits at
 * one task for the other's later one.
 */
static enum mist_status explain(const struct linking *at, const struct end *ends,
                                int32_t n_ends)
{
    struct end_task *tasks = NULL;
    enum mist_status status = MIST_OK;
    int32_t n_tasks = 0;
    size_t capacity = 0;

    for (int32_t i = 0; i < n_ends && status == MIST_OK; i++) {
        int32_t n;
        const int32_t *mine = tasks_of(at, &ends[i], &n);
        if (!MIST_RESERVE(tasks, capacity, n_tasks + n + 1))
            status = mist_err_memory(at->err, NULL);
        for (int32_t k = 0; k < n && status == MIST_OK; k++)
            tasks[n_tasks++] = (struct end_task){
                .i_rank = ends[i].i_rank,
                .task = mine[k],
                .tag = mist_rank_schedule(at->set, ends[i].i_rank)->tasks[mine[k]].tag,
                .peer = at->set->ranks[ends[i].i_rank].peer[ends[i].lane],
            };
    }
    if (n_tasks > 0)
        qsort(tasks, (size_t)n_tasks, sizeof *tasks, compare_tasks);
    for (int32_t i = 0, n; i < n_tasks && status == MIST_OK; i += n) {
        for (n = 1; i + n < n_tasks && tasks[i + n].tag == tasks[i].tag; n++)
            ;
        status = ends[0].group == MIST_GROUP_PEER
                     ? check_transfer(at, tasks + i, n, at->err)
                     : check_collective(at, tasks + i, n, group_size(at, ends), at->err);
    }
    if (status == MIST_OK) {
        char text[MIST_REPLAY_TASK_TEXT];
        status = mist_err_set(
            at->err, MIST_ERR_INPUT,
            "deadlock: %s and its partners do not meet in the same order",
            mist_replay_task_text(at->set, tasks[0].i_rank, tasks[0].task, text));
    }
    free(tasks);
    return status;
}

/* --------------------------------------------------------------------------- matching */

static int32_t place_of(const struct mist_rank_set *set, const struct end *end)
{
    return (int32_t)(set->ranks[end->i_rank].peer - set->peers) + end->lane;
}

/* Numbers the groups and checks that all of their members match. */
static enum mist_status match(struct linking *at, struct end *ends, int32_t n_ends)
{
    struct mist_replay_graph *out = at->out;
    enum mist_status status = MIST_OK;

    for (int32_t i = 0, n_pair; i < n_ends && status == MIST_OK; i += n_pair) {
        bool match = true;
        n_pair = 0;
        while (i + n_pair < n_ends && compare_pairs(&ends[i], &ends[i + n_pair]) == 0) {
            const struct end *first = &ends[i + n_pair];
            int32_t n = 0;
            for (; i + n_pair + n < n_ends && first[n].way == first[0].way &&
                   compare_pairs(first, first + n) == 0;
                 n++)
                out->group[place_of(at->set, &first[n])] = out->n_groups;
            out->groups[out->n_groups++] = (struct mist_replay_group){
                .pair = i,
                .i_rank = first->i_rank,
                .lane = first->lane,
            };
            match = match && all_match(at, first, n);
            n_pair += n;
        }
        if (!match)
            status = explain(at, ends + i, n_pair);
    }
    return status;
}

enum mist_status mist_replay_graph_match(const struct mist_plan *plan, bool is_folded,
                                         struct mist_replay_graph *graph,
                                         struct mist_err *err)
{
    struct linking at = {.plan = plan,
                         .set = graph->set,
                         .out = graph,
                         .is_folded = is_folded,
                         .err = err};
    size_t n_ends = mist_rank_set_n_lanes(graph->set);
    struct end *ends = malloc((n_ends + 1) * sizeof *ends);

    if (!ends)
        return mist_err_memory(err, NULL);
    list_ends(graph->set, ends);
    qsort(ends, n_ends, sizeof *ends, compare_ends);
    enum mist_status status = match(&at, ends, (int32_t)n_ends);
    free(ends);
    return status;
}

/* qsort() sorts a copy. */
double mist_replay_graph_matching_bytes(double n_lanes)
{
    return 2.0 * (double)sizeof(struct end) * n_lanes;
}
