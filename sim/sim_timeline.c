/* Our timelines as recorded jobs. See sim_timeline.h. */
#include "sim/sim_timeline.h"

#include "core/order.h"
#include "sim/recorded/edges.h"
#include "sim/schedule/schedule.h"
#include "traces/timeline.h"

#include <math.h>
#include <stdlib.h>

/* Those who meet have the same numbers. */
struct place {
    int64_t iteration, group, first_rank, second_rank, tag;
    int64_t op;
};

struct reading {
    const char *path;
    const struct mist_plan *plan;
    struct mist_timeline timeline; /* by rank, iteration, task: row i is operation i */
    struct mist_recorded_job *job;
    struct mist_recorded_edges edges;
    struct place *places; /* [n_rows] */
    int64_t n_places;
    struct mist_err *err;
};

/* One iteration of a rank. */
struct part {
    const struct mist_schedule *schedule;
    int64_t first, behind; /* of rows */
};

static int compare_rows(const void *a_, const void *b_)
{
    const struct mist_timeline_row *a = a_, *b = b_;

    if (a->rank != b->rank)
        return MIST_COMPARE(a->rank, b->rank);
    return a->iteration != b->iteration ? MIST_COMPARE(a->iteration, b->iteration)
                                        : MIST_COMPARE(a->task, b->task);
}

static int compare_places(const void *a_, const void *b_)
{
    const struct place *a = a_, *b = b_;
    const int64_t keys[][2] = {{a->iteration, b->iteration},
                               {a->group, b->group},
                               {a->first_rank, b->first_rank},
                               {a->second_rank, b->second_rank},
                               {a->tag, b->tag},
                               {a->op, b->op}};

    return mist_compare_keys(keys, sizeof keys / sizeof *keys);
}

static bool are_together(const struct place *a, const struct place *b)
{
    return a->iteration == b->iteration && a->group == b->group &&
           a->first_rank == b->first_rank && a->second_rank == b->second_rank &&
           a->tag == b->tag;
}

/* ------------------------------------------------------------------------------- graph */

static enum mist_status out_of_memory(const struct reading *at)
{
    return mist_err_memory(at->err, at->path);
}

/* Of a task in an iteration; -1: it is not there. */
static int64_t find_row(const struct reading *at, const struct part *part, int64_t task)
{
    const struct mist_timeline_row *rows = at->timeline.rows;
    size_t behind = (size_t)part->behind;

    MIST_BISECT(low, (size_t)part->first, behind, i, rows[i].task < task);
    return low < behind && rows[low].task == task ? (int64_t)low : -1;
}

static enum mist_status check_row(const struct reading *at,
                                  const struct mist_schedule *schedule,
                                  const struct mist_timeline_row *row)
{
    const struct mist_task *task =
        row->task < schedule->n_tasks ? &schedule->tasks[row->task] : NULL;

    if (task && task->kind == row->kind && task->stream == row->stream &&
        task->layer == row->layer && task->micro_batch == row->micro_batch)
        return MIST_OK;
    return mist_err_at(
        at->err, MIST_ERR_INPUT, at->path, 0, 0,
        "task %lld of rank %d is %s of layer %d, micro-batch %d, which the "
        "plan does not have there; expected a timeline of this plan",
        (long long)row->task, row->rank, mist_task_kind_name(row->kind), row->layer,
        row->micro_batch);
}

static void add_place(struct reading *at, const struct mist_schedule *schedule,
                      const struct mist_task *task, int64_t i)
{
    struct place place = {
        at->timeline.rows[i].iteration, task->group, -1, -1, task->tag, i};

    if (task->group == MIST_GROUP_NONE)
        return;
    if (task->group == MIST_GROUP_PEER) {
        bool is_low = schedule->rank < task->peer;
        place.first_rank = is_low ? schedule->rank : task->peer;
        place.second_rank = is_low ? task->peer : schedule->rank;
    } else {
        place.first_rank =
            mist_rank_mesh_member(&schedule->mesh, task->group, schedule->rank, 0);
    }
    at->places[at->n_places++] = place;
}

/* What row i waits for in its iteration, beside its stream; *n: how many. Tasks of the
 * update are left out at a run's begin, and what waits for them does not. */
static enum mist_status add_deps(struct reading *at, const struct part *part, int64_t i,
                                 int *n)
{
    const struct mist_schedule *schedule = part->schedule;
    const struct mist_task *task = &schedule->tasks[at->timeline.rows[i].task];

    for (int32_t k = 0; k < task->n_deps; k++) {
        int32_t dep = schedule->deps[task->dep_first + k];
        int64_t waits_for = find_row(at, part, dep);
        if (waits_for >= 0 && !mist_recorded_edges_add(&at->edges, i, waits_for))
            return out_of_memory(at);
        if (waits_for < 0 && !schedule->tasks[dep].is_update &&
            !schedule->tasks[dep].feeds_update)
            return mist_err_at(at->err, MIST_ERR_INPUT, at->path, 0, 0,
                               "iteration %d of rank %d has no task %d (%s), for which "
                               "its task %lld waits; expected all tasks",
                               at->timeline.rows[i].iteration, schedule->rank, dep,
                               mist_task_kind_name(schedule->tasks[dep].kind),
                               (long long)at->timeline.rows[i].task);
        *n += waits_for >= 0;
    }
    return MIST_OK;
}

/* before: the last row of each stream in the iteration before, -1 none; becomes that of this
 * iteration. */
static enum mist_status link_iteration(struct reading *at, const struct part *part,
                                       int64_t before[MIST_N_STREAMS])
{
    int64_t last[MIST_N_STREAMS];
    enum mist_status status = MIST_OK;

    for (int s = 0; s < MIST_N_STREAMS; s++)
        last[s] = -1;
    for (int64_t i = part->first; i < part->behind && status == MIST_OK; i++) {
        const struct mist_timeline_row *row = &at->timeline.rows[i];
        int n_deps = last[row->stream] >= 0;
        status = check_row(at, part->schedule, row);
        if (status == MIST_OK && n_deps > 0 &&
            !mist_recorded_edges_add(&at->edges, i, last[row->stream]))
            status = out_of_memory(at);
        if (status == MIST_OK)
            status = add_deps(at, part, i, &n_deps);
        for (int s = 0; s < MIST_N_STREAMS && n_deps == 0 && status == MIST_OK; s++)
            if (before[s] >= 0 && !mist_recorded_edges_add(&at->edges, i, before[s]))
                status = out_of_memory(at);
        if (status == MIST_OK)
            add_place(at, part->schedule, &part->schedule->tasks[row->task], i);
        last[row->stream] = i;
    }
    for (int s = 0; s < MIST_N_STREAMS; s++)
        before[s] = last[s] >= 0 ? last[s] : before[s];
    return status;
}

/* All rows of one rank, from the first on; *behind them. */
static enum mist_status link_rank(struct reading *at, int64_t first, int64_t *behind)
{
    const struct mist_timeline_row *rows = at->timeline.rows;
    int64_t n_rows = (int64_t)at->timeline.n_rows, before[MIST_N_STREAMS];
    struct mist_schedule *schedule = NULL;
    enum mist_status status = mist_schedule_build(
        at->plan, rows[first].rank, mist_plan_n_threads(at->plan), &schedule, at->err);

    for (int s = 0; s < MIST_N_STREAMS; s++)
        before[s] = -1;
    *behind = first;
    while (status == MIST_OK && *behind < n_rows &&
           rows[*behind].rank == rows[first].rank) {
        struct part part = {.schedule = schedule, .first = *behind, .behind = *behind};
        while (part.behind < n_rows && rows[part.behind].rank == rows[first].rank &&
               rows[part.behind].iteration == rows[part.first].iteration)
            part.behind++;
        status = link_iteration(at, &part, before);
        *behind = part.behind;
    }
    mist_schedule_free(schedule);
    return status;
}

/* ----------------------------------------------------------------------------- reading */

/* Every rank is there, or one of each stage. */
static enum mist_status check_ranks(const struct reading *at)
{
    const struct mist_timeline_row *rows = at->timeline.rows;
    int32_t n_ranks = mist_plan_n_ranks(at->plan), n_seen = 0, n_stages = 0, expected = 0;

    for (size_t i = 0; i < at->timeline.n_rows; i++) {
        if (rows[i].rank >= n_ranks)
            return mist_err_at(at->err, MIST_ERR_INPUT, at->path, 0, 0,
                               "has rank %d, the plan %d ranks; expected a timeline of "
                               "this plan",
                               rows[i].rank, n_ranks);
        if (i > 0 && rows[i].rank == rows[i - 1].rank)
            continue;
        n_seen++;
        n_stages += mist_plan_stage_of(at->plan, rows[i].rank) == n_stages;
        expected += expected == rows[i].rank;
    }
    if (n_seen == n_ranks || (n_seen == n_stages && n_stages == at->plan->n_stages))
        return MIST_OK;
    return mist_err_at(at->err, MIST_ERR_INPUT, at->path, 0, 0,
                       "has no task of rank %d; expected all %d ranks, or one of each "
                       "stage",
                       expected, n_ranks);
}

static bool alloc_job(struct mist_recorded_job *job, struct mist_arena *arena)
{
    size_t n = (size_t)job->n_ops;

    job->kinds = mist_arena_alloc(arena, (size_t)job->n_kinds * sizeof *job->kinds);
    job->ops = mist_arena_alloc(arena, n * sizeof *job->ops);
    return job->kinds && job->ops &&
           mist_recorded_times_alloc(job, arena, &job->recorded);
}

/* Kinds come twice: what computes, and what moves data. */
static void fill_job(struct reading *at)
{
    struct mist_recorded_job *job = at->job;
    double first_s, last_s;

    mist_timeline_span(&at->timeline, &first_s, &last_s);
    for (int kind = 0; kind < MIST_N_TASK_KINDS; kind++) {
        const char *name = mist_task_kind_name((enum mist_task_kind)kind);
        job->kinds[kind] = (struct mist_recorded_kind){.name = name};
        job->kinds[MIST_N_TASK_KINDS + kind] =
            (struct mist_recorded_kind){.name = name, .sort = MIST_RECORDED_MESSAGE};
    }
    for (int64_t i = 0; i < job->n_ops; i++) {
        const struct mist_timeline_row *row = &at->timeline.rows[i];
        bool computes =
            row->stream == MIST_STREAM_COMPUTE || row->stream == MIST_STREAM_HOST;
        job->ops[i] = (struct mist_recorded_op){
            .replica = row->rank,
            .kind = (int32_t)row->kind + (computes ? 0 : MIST_N_TASK_KINDS),
            .meeting = -1};
        job->recorded.start_s[i] = row->start_s - first_s;
        job->recorded.end_s[i] = row->end_s - first_s;
    }
}

static void find_meetings(struct reading *at)
{
    struct mist_recorded_job *job = at->job;

    if (at->n_places > 0)
        qsort(at->places, (size_t)at->n_places, sizeof *at->places, compare_places);
    for (int64_t i = 0; i < at->n_places; i++) {
        job->n_meetings += i == 0 || !are_together(&at->places[i - 1], &at->places[i]);
        job->ops[at->places[i].op].meeting = job->n_meetings - 1;
    }
}

/* Members of a meeting are there as soon as they have nothing else to do. */
static void move_starts(struct mist_recorded_job *job)
{
    for (int64_t i = 0; i < job->n_ops; i++) {
        double free_s = 0;
        if (job->ops[i].meeting < 0)
            continue;
        for (int64_t k = job->dep_offset[i]; k < job->dep_offset[i + 1]; k++)
            free_s = fmax(free_s, job->recorded.end_s[job->dep[k]]);
        job->recorded.start_s[i] = fmin(job->recorded.start_s[i], free_s);
    }
}

static enum mist_status make_job(struct reading *at, struct mist_arena *arena)
{
    struct mist_recorded_job *job = at->job;
    enum mist_status status = MIST_OK;

    job->n_ops = (int64_t)at->timeline.n_rows;
    job->n_stages = 1;
    job->n_replicas = mist_plan_n_ranks(at->plan);
    job->n_kinds = 2 * MIST_N_TASK_KINDS;
    at->places = malloc(at->timeline.n_rows * sizeof *at->places);
    if (!at->places || !alloc_job(job, arena))
        return out_of_memory(at);
    fill_job(at);
    for (int64_t i = 0; i < job->n_ops && status == MIST_OK;)
        status = link_rank(at, i, &i);
    if (status == MIST_OK && !mist_recorded_edges_end(&at->edges, job, arena))
        status = out_of_memory(at);
    if (status != MIST_OK)
        return status;
    find_meetings(at);
    move_starts(job);
    return mist_recorded_prepare(job, arena, at->err);
}

enum mist_status mist_sim_timeline_read(const char *path, const struct mist_plan *plan,
                                        struct mist_recorded_job *job,
                                        struct mist_arena *arena, struct mist_err *err)
{
    struct reading at = {.path = path, .plan = plan, .job = job, .err = err};
    enum mist_status status = mist_timeline_load(&at.timeline, path, err);

    *job = (struct mist_recorded_job){0};
    if (status == MIST_OK) {
        qsort(at.timeline.rows, at.timeline.n_rows, sizeof *at.timeline.rows,
              compare_rows);
        status = check_ranks(&at);
    }
    if (status == MIST_OK)
        status = make_job(&at, arena);
    if (status == MIST_ERR_INPUT)
        mist_err_locate(err, path, 0);
    free(at.places);
    free(at.edges.items);
    mist_timeline_fini(&at.timeline);
    return status;
}
