/* Our timelines as recorded jobs. See sim_timeline.h. */
#include "sim/sim_timeline.h"

#include "core/memory.h"
#include "core/order.h"
#include "sim/recorded/edges.h"
#include "traces/timeline.h"

#include <math.h>
#include <stdlib.h>

enum { RUN_BYTES = 8 << 20 /* of rows in memory; the rest is on the disk */ };

/* An iteration becomes a job. */
struct reading {
    struct mist_sim_timeline *timeline; /* row i is operation i */
    struct mist_recorded_job *job;
    int64_t *lane_last; /* [n_lanes] of the job */
    struct mist_recorded_edges edges;
    struct mist_recorded_place *places; /* [n_rows] */
    int64_t n_places;
    struct mist_err *err;
};

/* What a rank did in it. */
struct part {
    const struct mist_rank *rank;
    const struct mist_rank_program *program;
    int64_t first, behind; /* of rows */
};

MIST_COMPARATOR(compare_rows, struct mist_timeline_row, iteration, rank, task, line)

/* ------------------------------------------------------------------------------- graph */

static enum mist_status out_of_memory(const struct reading *at)
{
    return mist_err_memory(at->err, at->timeline->path);
}

/* Of a task of the rank; -1: it is not there. */
static int64_t find_row(const struct reading *at, const struct part *part, int64_t task)
{
    const struct mist_timeline_row *rows = at->timeline->rows.rows;
    size_t behind = (size_t)part->behind;

    MIST_BISECT(low, (size_t)part->first, behind, i, rows[i].task < task);
    return low < behind && rows[low].task == task ? (int64_t)low : -1;
}

static int32_t lane_of(const struct mist_timeline_row *row)
{
    return row->rank * MIST_N_STREAMS + (int32_t)row->stream;
}

/* Whether it is a task of the plan, and behind the iteration before. */
static enum mist_status check_row(const struct reading *at, const struct part *part,
                                  const struct mist_timeline_row *row)
{
    const struct mist_sim_timeline_lane *lane = &at->timeline->lanes[lane_of(row)];
    const struct mist_schedule *schedule = part->program->schedule;
    const struct mist_task *task =
        row->task < schedule->n_tasks ? &schedule->tasks[row->task] : NULL;

    if (!task || task->kind != row->kind || task->stream != row->stream ||
        task->layer != row->layer || task->micro_batch != row->micro_batch)
        return mist_err_at(
            at->err, MIST_ERR_INPUT, at->timeline->path, 0, 0,
            "task %lld of rank %d is %s of layer %d, micro-batch %d, which the "
            "plan does not have there; expected a timeline of this plan",
            (long long)row->task, row->rank, mist_task_kind_name(row->kind), row->layer,
            row->micro_batch);
    if (row->start_s < lane->end_s)
        return mist_err_at(
            at->err, MIST_ERR_INPUT, at->timeline->path, row->line, 0,
            "start_s: %.9f is before %.9f, where task %lld of an iteration "
            "before ends on the same rank and stream",
            row->start_s, lane->end_s, (long long)lane->task);
    return MIST_OK;
}

static void add_place(struct reading *at, const struct part *part, int64_t i)
{
    int64_t i_task = at->timeline->rows.rows[i].task;
    const struct mist_schedule *schedule = part->program->schedule;
    const struct mist_task *task = &schedule->tasks[i_task];
    int32_t rank = part->rank->rank, first = -1, second = -1;

    if (task->group == MIST_GROUP_NONE)
        return;
    if (task->group == MIST_GROUP_PEER) {
        int32_t peer = part->rank->peer[part->program->lane[i_task]];
        first = rank < peer ? rank : peer;
        second = rank < peer ? peer : rank;
    } else {
        first = mist_rank_mesh_member(&schedule->mesh, task->group, rank, 0);
    }
    at->places[at->n_places++] =
        (struct mist_recorded_place){{task->group, first, second, task->tag}, i};
}

/* What row i waits for in its iteration, beside its stream; *n: how many. Tasks of the
 * update are left out at a run's begin, and what waits for them does not. */
static enum mist_status add_deps(struct reading *at, const struct part *part, int64_t i,
                                 int *n)
{
    const struct mist_schedule *schedule = part->program->schedule;
    const struct mist_task *task = &schedule->tasks[at->timeline->rows.rows[i].task];

    for (int32_t k = 0; k < task->n_deps; k++) {
        int64_t waits_for = find_row(at, part, schedule->deps[task->dep_first + k]);
        if (waits_for >= 0 && !mist_recorded_edges_add(&at->edges, i, waits_for))
            return out_of_memory(at);
        *n += waits_for >= 0;
    }
    return MIST_OK;
}

/* What row i of a rank waits for: what is before it on its stream, what it names, or else
 * what came last on all streams before. */
static enum mist_status link_row(struct reading *at, const struct part *part, int64_t i)
{
    int32_t lane = lane_of(&at->timeline->rows.rows[i]);
    int64_t last = at->lane_last[lane];
    int n_deps = last >= 0;
    enum mist_status status = MIST_OK;

    if (n_deps > 0 && !mist_recorded_edges_add(&at->edges, i, last))
        return out_of_memory(at);
    status = add_deps(at, part, i, &n_deps);
    for (int32_t s = 0; s < MIST_N_STREAMS && n_deps == 0 && status == MIST_OK; s++) {
        int32_t before = part->rank->rank * MIST_N_STREAMS + s;
        if (at->timeline->lanes[before].task >= 0 &&
            !mist_recorded_edges_add(&at->edges, i, -1 - before))
            status = out_of_memory(at);
    }
    at->lane_last[lane] = i;
    return status;
}

static enum mist_status lacks_task(const struct reading *at, const struct part *part,
                                   int64_t task)
{
    const struct mist_schedule *schedule = part->program->schedule;

    return mist_err_at(
        at->err, MIST_ERR_INPUT, at->timeline->path, 0, 0,
        "iteration %d of rank %d has no task %lld (%s), expected all tasks",
        (int)at->job->step, (int)part->rank->rank, (long long)task,
        mist_task_kind_name(schedule->tasks[task].kind));
}

/* Whether all tasks of the rank are there, or, as where a run begins, all but the update's.
 * Its rows are tasks of the plan. */
static enum mist_status check_whole(const struct reading *at, const struct part *part)
{
    const struct mist_timeline_row *rows = at->timeline->rows.rows;
    const struct mist_schedule *schedule = part->program->schedule;
    int64_t i = part->first, lost_update = -1;
    bool has_update = false;

    for (int32_t task = 0; task < schedule->n_tasks; task++) {
        bool is_there = i < part->behind && rows[i].task == task;
        bool is_update = schedule->tasks[task].is_update;
        if (!is_there && !is_update)
            return lacks_task(at, part, task);
        if (!is_there && lost_update < 0)
            lost_update = task;
        has_update = has_update || (is_there && is_update);
        i += is_there;
    }
    return has_update && lost_update >= 0 ? lacks_task(at, part, lost_update) : MIST_OK;
}

/* Whether the ranks between two that are there are not in this timeline at all. */
static enum mist_status check_between(const struct reading *at, int32_t first,
                                      int32_t behind)
{
    for (int32_t rank = first; rank < behind; rank++)
        if (at->timeline->has_rank[rank])
            return mist_err_at(at->err, MIST_ERR_INPUT, at->timeline->path, 0, 0,
                               "iteration %d has no task of rank %d, expected those of "
                               "all ranks",
                               (int)at->job->step, (int)rank);
    return MIST_OK;
}

/* All rows of one rank, from the first on; *behind them. */
static enum mist_status link_rank(struct reading *at, int64_t first, int64_t *behind)
{
    const struct mist_timeline_row *rows = at->timeline->rows.rows;
    const struct mist_rank_set *ranks = &at->timeline->ranks;
    const struct mist_rank *rank = &ranks->ranks[rows[first].rank];
    struct part part = {rank, &ranks->programs[rank->program], first, first};
    enum mist_status status =
        check_between(at, first > 0 ? rows[first - 1].rank + 1 : 0, rank->rank);

    while (part.behind < at->job->n_ops && rows[part.behind].rank == rank->rank)
        part.behind++;
    for (int64_t i = first; i < part.behind && status == MIST_OK; i++)
        status = check_row(at, &part, &rows[i]);
    if (status == MIST_OK)
        status = check_whole(at, &part);
    for (int64_t i = first; i < part.behind && status == MIST_OK; i++) {
        status = link_row(at, &part, i);
        add_place(at, &part, i);
    }
    for (int64_t i = first; i < part.behind; i++) {
        struct mist_sim_timeline_lane *lane = &at->timeline->lanes[lane_of(&rows[i])];
        if (rows[i].end_s >= lane->end_s)
            *lane = (struct mist_sim_timeline_lane){rows[i].end_s, rows[i].task};
    }
    *behind = part.behind;
    return status;
}

static bool alloc_job(struct reading *at, struct mist_arena *arena)
{
    struct mist_recorded_job *job = at->job;

    if (!mist_recorded_job_alloc(job, arena) ||
        !MIST_ARENA_ALLOC(arena, at->lane_last, job->n_lanes) ||
        !MIST_MALLOC(at->places, job->n_ops))
        return false;
    job->lane_last = at->lane_last;
    return true;
}

/* Kinds come twice: what computes, and what moves data. */
static void fill_job(struct reading *at)
{
    struct mist_recorded_job *job = at->job;
    double first_s = at->timeline->first_s;

    for (int kind = 0; kind < MIST_N_TASK_KINDS; kind++) {
        const char *name = mist_task_kind_name((enum mist_task_kind)kind);
        job->kinds[kind] = (struct mist_recorded_kind){.name = name};
        job->kinds[MIST_N_TASK_KINDS + kind] =
            (struct mist_recorded_kind){.name = name, .sort = MIST_RECORDED_MESSAGE};
    }
    for (int32_t lane = 0; lane < job->n_lanes; lane++)
        at->lane_last[lane] = -1;
    for (int64_t i = 0; i < job->n_ops; i++) {
        const struct mist_timeline_row *row = &at->timeline->rows.rows[i];
        bool computes =
            row->stream == MIST_STREAM_COMPUTE || row->stream == MIST_STREAM_HOST;
        job->ops[i] = (struct mist_recorded_op){
            .replica = row->rank,
            .kind = (int32_t)row->kind + (computes ? 0 : MIST_N_TASK_KINDS),
            .meeting = -1};
        job->recorded.start_s[i] = row->start_s - first_s;
        job->recorded.end_s[i] = row->end_s - first_s;
    }
    job->recorded.before_s = at->timeline->before_s;
}

/* Members of a meeting are there as soon as they have nothing else to do. */
static void move_starts(struct mist_recorded_job *job)
{
    double *start_s = job->recorded.start_s;

    for (int64_t i = 0; i < job->n_ops; i++)
        if (job->ops[i].meeting >= 0)
            start_s[i] = fmin(start_s[i], mist_recorded_ready_s(job, i, &job->recorded));
}

/* The graph of the rows, which are then gone. */
static enum mist_status link_all(struct reading *at, struct mist_arena *arena)
{
    struct mist_recorded_job *job = at->job;
    enum mist_status status = MIST_OK;

    if (!alloc_job(at, arena))
        return out_of_memory(at);
    fill_job(at);
    for (int64_t i = 0; i < job->n_ops && status == MIST_OK;)
        status = link_rank(at, i, &i);
    if (status == MIST_OK)
        status = check_between(at, at->timeline->rows.rows[job->n_ops - 1].rank + 1,
                               job->n_replicas);
    mist_timeline_fini(&at->timeline->rows);
    if (status == MIST_OK && !mist_recorded_edges_end(&at->edges, job, arena))
        status = out_of_memory(at);
    if (status == MIST_OK) {
        mist_recorded_meet(job, at->places, at->n_places);
        move_starts(job);
    }
    return status;
}

/* ----------------------------------------------------------------------------- reading */

/* What iterations have in common, and the number of rows that were read of this one. */
static struct mist_recorded_job begin_job(const struct mist_sim_timeline *timeline)
{
    return (struct mist_recorded_job){.n_replicas = timeline->ranks.n_ranks,
                                      .n_stages = 1,
                                      .n_kinds = 2 * MIST_N_TASK_KINDS,
                                      .n_lanes = timeline->n_lanes,
                                      .n_ops = (int64_t)timeline->rows.n_rows};
}

/* The rows of the next iteration; none: there are no more. */
static enum mist_status read_iteration(struct mist_sim_timeline *timeline,
                                       struct mist_err *err)
{
    struct mist_timeline *rows = &timeline->rows;
    enum mist_status status = MIST_OK;

    while (status == MIST_OK && timeline->has_next &&
           (rows->n_rows == 0 || timeline->next.iteration == rows->rows[0].iteration)) {
        status = mist_timeline_add(rows, &timeline->next, err);
        if (status == MIST_OK)
            status = mist_sorter_next(&timeline->sorter, &timeline->next,
                                      &timeline->has_next, err);
    }
    return status == MIST_OK ? mist_timeline_check(rows, timeline->path, err) : status;
}

enum mist_status mist_sim_timeline_next(struct mist_sim_timeline *timeline,
                                        struct mist_recorded_job *job,
                                        struct mist_arena *arena, struct mist_err *err)
{
    struct reading at = {.timeline = timeline, .job = job, .err = err};
    enum mist_status status = read_iteration(timeline, err);

    *job = begin_job(timeline);
    if (status != MIST_OK || job->n_ops == 0)
        return status;
    job->step = timeline->rows.rows[0].iteration;
    status = link_all(&at, arena);
    free(at.places);
    free(at.edges.items);
    if (status == MIST_OK)
        status = mist_recorded_prepare(job, arena, err);
    if (status == MIST_OK)
        mist_recorded_go_on(job, &job->recorded);
    mist_err_locate(err, timeline->path, 0);
    return status;
}

/* ----------------------------------------------------------------------------- opening */

static enum mist_status add_row(const struct mist_timeline_row *row, void *context,
                                struct mist_err *err)
{
    struct mist_sim_timeline *timeline = context;
    bool is_strange = row->rank >= mist_plan_n_ranks(timeline->plan);

    if (is_strange && (timeline->strange_rank < 0 || row->rank < timeline->strange_rank))
        timeline->strange_rank = row->rank;
    if (!is_strange)
        timeline->has_rank[row->rank] = true;
    timeline->n_ops++;
    timeline->first_s = fmin(timeline->first_s, row->start_s);
    return mist_sorter_add(&timeline->sorter, row, err);
}

/* Every rank is there, or one of each stage. */
static enum mist_status check_ranks(const struct mist_sim_timeline *timeline,
                                    struct mist_err *err)
{
    int32_t n_ranks = mist_plan_n_ranks(timeline->plan);
    int32_t n_seen = 0, n_stages = 0, expected = 0;

    if (timeline->strange_rank >= 0)
        return mist_err_at(err, MIST_ERR_INPUT, timeline->path, 0, 0,
                           "has rank %d, the plan %d ranks; expected a timeline of "
                           "this plan",
                           timeline->strange_rank, n_ranks);
    for (int32_t rank = 0; rank < n_ranks; rank++)
        if (timeline->has_rank[rank]) {
            n_seen++;
            n_stages += mist_plan_stage_of(timeline->plan, rank) == n_stages;
            expected += expected == rank;
        }
    if (n_seen == n_ranks || (n_seen == n_stages && n_stages == timeline->plan->n_stages))
        return MIST_OK;
    return mist_err_at(err, MIST_ERR_INPUT, timeline->path, 0, 0,
                       "has no task of rank %d; expected all %d ranks, or one of each "
                       "stage",
                       expected, n_ranks);
}

static bool alloc_lanes(struct mist_sim_timeline *timeline)
{
    size_t n_ranks = (size_t)mist_plan_n_ranks(timeline->plan);
    size_t n_lanes = n_ranks * MIST_N_STREAMS;

    timeline->n_lanes = (int32_t)n_lanes;
    if (!MIST_CALLOC(timeline->has_rank, n_ranks) ||
        !MIST_CALLOC(timeline->before_s, n_lanes) ||
        !MIST_CALLOC(timeline->lanes, n_lanes))
        return false;
    for (size_t i = 0; i < n_lanes; i++)
        timeline->lanes[i].task = -1;
    return true;
}

enum mist_status mist_sim_timeline_open(struct mist_sim_timeline *timeline,
                                        const char *path, const struct mist_plan *plan,
                                        struct mist_recorded_job *job,
                                        struct mist_progress *progress,
                                        struct mist_err *err)
{
    const struct mist_replay_work work = {.is_check = true};
    enum mist_status status = MIST_OK;

    *timeline = (struct mist_sim_timeline){
        .path = path, .plan = plan, .strange_rank = -1, .first_s = INFINITY};
    mist_sorter_init(&timeline->sorter, sizeof(struct mist_timeline_row), RUN_BYTES,
                     compare_rows);
    if (!alloc_lanes(timeline))
        status = mist_err_memory(err, path);
    if (status == MIST_OK)
        status = mist_timeline_visit(path, add_row, timeline, progress, err);
    if (status == MIST_OK)
        status = check_ranks(timeline, err);
    if (status == MIST_OK)
        status = mist_rank_set_build(plan, mist_plan_n_threads(plan), &work,
                                     &timeline->ranks, err);
    if (status == MIST_OK)
        status = mist_sorter_begin(&timeline->sorter, err);
    if (status == MIST_OK)
        status = mist_sorter_next(&timeline->sorter, &timeline->next, &timeline->has_next,
                                  err);
    if (status == MIST_OK)
        *job = begin_job(timeline);
    else
        mist_sim_timeline_close(timeline);
    return status;
}

void mist_sim_timeline_close(struct mist_sim_timeline *timeline)
{
    mist_rank_set_fini(&timeline->ranks);
    mist_sorter_fini(&timeline->sorter);
    mist_timeline_fini(&timeline->rows);
    free(timeline->has_rank);
    free(timeline->before_s);
    free(timeline->lanes);
    *timeline = (struct mist_sim_timeline){0};
}
