/* Prices, links, runs and reports. See replay.h. */
#include "sim/replay.h"

#include "core/random.h" /* jitter */
#include "sim/event_engine.h"
#include "sim/memory_planner.h"
#include "sim/replay_graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ITERATIONS = 1000 };

/* One replay from linked graph to result. */
struct run {
    const struct mist_plan *plan;
    const struct mist_replay_options *options;
    const struct mist_replay_doubt *doubt;
    const struct mist_cost *const *costs;
    struct mist_arena arena;
    struct mist_replay_graph graph;
    struct mist_event_result events;
    double *work_s; /* [n_tasks] */
    double *busy_s; /* [n_ranks] undisturbed computation of one iteration */
    struct mist_err *err;
};

/* --------------------------------------------------------------------------- options */

static enum mist_status check_factors(const double *factors, int64_t n, const char *name,
                                      struct mist_err *err)
{
    for (int64_t i = 0; factors && i < n; i++)
        if (!(factors[i] >= 0 && isfinite(factors[i])))
            return mist_err_set(err, MIST_ERR_INPUT,
                                "%s factor %lld is %g, must be finite and >= 0", name,
                                (long long)i, factors[i]);
    return MIST_OK;
}

static int32_t n_lanes(const struct mist_replay_options *options)
{
    return options->n_lanes > 1 ? options->n_lanes : 1;
}

static enum mist_status check_options(const struct mist_plan *plan,
                                      const struct mist_replay_options *options,
                                      struct mist_err *err)
{
    int64_t n = (int64_t)plan->n_micro_batches * n_lanes(options);
    enum mist_status status =
        check_factors(options->rank_factor, mist_plan_n_ranks(plan), "rank", err);

    if (status == MIST_OK)
        status = check_factors(options->forward_factor, n, "forward", err);
    if (status == MIST_OK)
        status = check_factors(options->backward_factor, n, "backward", err);
    if (status != MIST_OK)
        return status;
    if (options->n_iterations < 0 || options->n_iterations > MAX_ITERATIONS)
        return mist_err_set(err, MIST_ERR_INPUT, "%d iterations, must be 1 to %d",
                            (int)options->n_iterations, MAX_ITERATIONS);
    if (!(options->jitter_frac >= 0 && options->jitter_frac <= 1))
        return mist_err_set(err, MIST_ERR_INPUT, "jitter is %g, must be 0 to 1",
                            options->jitter_frac);
    for (int32_t i = 0; i < plan->n_stages; i++)
        if (n_lanes(options) > 1 && n_lanes(options) % plan->stages[i].dp != 0)
            return mist_err_set(err, MIST_ERR_INPUT,
                                "stage %d: dp %d does not divide the %d lanes of the "
                                "micro-batch factors",
                                (int)i, (int)plan->stages[i].dp, (int)n_lanes(options));
    return MIST_OK;
}

/* NULL if the ranks of every stage are alike, else why they are not. */
static const char *why_not_folded(const struct mist_plan *plan,
                                  const struct mist_replay_options *options)
{
    const struct mist_stage_plan *first = &plan->stages[0];

    for (int32_t i = 1; i < plan->n_stages; i++) {
        const struct mist_stage_plan *stage = &plan->stages[i];
        if (stage->dp != first->dp || stage->tp != first->tp ||
            stage->is_sequence_parallel != first->is_sequence_parallel)
            return "stages have different dp, tp or sequence parallelism";
    }
    if (options->rank_factor)
        return "ranks have factors";
    if ((options->forward_factor || options->backward_factor) && n_lanes(options) > 1)
        return "micro-batches differ between data-parallel ranks";
    return options->jitter_frac > 0 ? "there is jitter" : NULL;
}

static int32_t n_iterations(const struct mist_replay_options *options)
{
    return options->n_iterations ? options->n_iterations : 2;
}

enum mist_status mist_replay_find_work(const struct mist_plan *plan,
                                       const struct mist_replay_options *options,
                                       struct mist_replay_work *out, struct mist_err *err)
{
    enum mist_status status = check_options(plan, options, err);
    const char *obstacle = why_not_folded(plan, options);

    if (status != MIST_OK)
        return status;
    if (obstacle && options->folding == MIST_REPLAY_FOLD_ALWAYS)
        return mist_err_set(err, MIST_ERR_INPUT, "the replay can't be folded: %s",
                            obstacle);
    if (!obstacle && options->folding == MIST_REPLAY_FOLD_NEVER)
        obstacle = "it is asked for unfolded";
    *out = (struct mist_replay_work){
        .n_iterations = n_iterations(options),
        .has_timeline = !options->skips_timeline,
        .why_all = obstacle,
    };
    return MIST_OK;
}

/* ------------------------------------------------------------------------- durations */

/* Mean of a micro-batch's factors over the lanes of a rank. */
static double lane_factor(const struct run *at, const struct mist_schedule *schedule,
                          const double *factors, int32_t micro_batch)
{
    int32_t n = n_lanes(at->options), n_mine = n;

    if (!factors || micro_batch < 0)
        return 1;
    const double *mine = factors + (size_t)micro_batch * (size_t)n;
    if (n > 1) {
        n_mine = n / at->plan->stages[schedule->i_stage].dp;
        mine += (size_t)schedule->i_dp * (size_t)n_mine;
    }
    double sum = 0;
    for (int32_t i = 0; i < n_mine; i++)
        sum += mine[i];
    return sum / n_mine;
}

static double task_work_s(const struct run *at, const struct mist_schedule *schedule,
                          const struct mist_task *task, double time_s)
{
    const struct mist_replay_options *options = at->options;

    if (task->stream != MIST_STREAM_COMPUTE)
        return time_s;
    if (options->rank_factor)
        time_s *= options->rank_factor[schedule->rank];
    if (task->kind == MIST_TASK_FORWARD || task->kind == MIST_TASK_RECOMPUTE)
        return time_s *
               lane_factor(at, schedule, options->forward_factor, task->micro_batch);
    if (task->kind == MIST_TASK_BACKWARD || task->kind == MIST_TASK_BACKWARD_INPUT ||
        task->kind == MIST_TASK_BACKWARD_WEIGHT)
        return time_s *
               lane_factor(at, schedule, options->backward_factor, task->micro_batch);
    return time_s; /* over parameters, whatever the tokens */
}

/* One factor for all members of a rendezvous, drawn anew in every iteration. */
static double jitter(const struct run *at, int32_t flat)
{
    int32_t meets = at->graph.rendezvous[flat];
    double normal = meets < 0
                        ? mist_random_normal_at(at->options->seed, 0, (uint64_t)flat)
                        : mist_random_normal_at(at->options->seed, 1, (uint64_t)meets);

    return fmax(0, 1 + at->options->jitter_frac * normal);
}

static void fill_work(struct run *at)
{
    const struct mist_replay_graph *graph = &at->graph;

    for (int32_t r = 0; r < graph->n_ranks; r++) {
        const struct mist_schedule *schedule = graph->schedules[r];
        for (int32_t i = 0; i < schedule->n_tasks; i++) {
            const struct mist_task *task = &schedule->tasks[i];
            double time_s =
                task_work_s(at, schedule, task, at->costs[r][task->cost].time_s);
            if (task->stream == MIST_STREAM_COMPUTE)
                at->busy_s[r] += time_s;
            for (int32_t k = 0; k < graph->n_iterations; k++) {
                int32_t flat = k * graph->n_tasks_once + graph->first_task[r] + i;
                at->work_s[flat] = time_s;
                if (at->options->jitter_frac > 0)
                    at->work_s[flat] *= jitter(at, flat);
            }
        }
    }
}

static enum mist_status run_events(struct run *at,
                                   const struct mist_interference *interference)
{
    const struct mist_replay_graph *graph = &at->graph;
    struct mist_event_engine *engine;
    struct mist_event_graph events = {
        .n_tasks = graph->n_tasks,
        .n_devices = graph->n_ranks,
        .n_rendezvous = graph->n_rendezvous,
        .n_interference = interference ? 1 : 0,
        .device = graph->device,
        .channel = graph->channel,
        .work_s = at->work_s,
        .dep_offset = graph->dep_offset,
        .dep = graph->dep,
        .rendezvous = graph->rendezvous,
        .interference = interference,
    };
    enum mist_status status =
        mist_event_engine_prepare(&engine, &events, &at->arena, at->err);

    return status == MIST_OK ? mist_event_engine_run(engine, &at->events, at->err)
                             : status;
}

/* --------------------------------------------------------------------------- results */

static double end_of_iteration(const struct run *at, int32_t k)
{
    double end_s = 0;
    int32_t n = at->graph.n_tasks_once;

    for (int32_t i = k * n; i < (k + 1) * n; i++)
        end_s = fmax(end_s, at->events.end_s[i]);
    return end_s;
}

struct interval {
    double start_s, end_s;
    bool is_compute;
};

static int compare_intervals(const void *a_void, const void *b_void)
{
    const struct interval *a = a_void, *b = b_void;

    if (a->start_s != b->start_s)
        return a->start_s < b->start_s ? -1 : 1;
    return (a->end_s > b->end_s) - (a->end_s < b->end_s);
}

/* Length of the union of intervals sorted by start. */
static double union_s(const struct interval *intervals, int32_t n)
{
    double length_s = 0, until_s = 0;

    for (int32_t i = 0; i < n; i++) {
        double from_s =
            i == 0 ? intervals[i].start_s : fmax(intervals[i].start_s, until_s);
        if (i == 0 || intervals[i].end_s > until_s) {
            length_s += intervals[i].end_s - from_s;
            until_s = intervals[i].end_s;
        }
    }
    return length_s;
}

/* Length of what at least two intervals sorted by start share. */
static double shared_s(const struct interval *intervals, int32_t n)
{
    double length_s = 0, until_s = -INFINITY, shared_until_s = -INFINITY;

    for (int32_t i = 0; i < n; i++) {
        double from_s = fmax(intervals[i].start_s, shared_until_s);
        double to_s = fmin(intervals[i].end_s, until_s);
        length_s += fmax(0, to_s - from_s);
        shared_until_s = fmax(shared_until_s, to_s);
        until_s = fmax(until_s, intervals[i].end_s);
    }
    return length_s;
}

/* Tasks of a rank in the last iteration, sorted by start. intervals: room for them. */
static void list_intervals(const struct run *at, int32_t i_rank,
                           struct interval *intervals)
{
    const struct mist_schedule *schedule = at->graph.schedules[i_rank];
    int32_t base = (at->graph.n_iterations - 1) * at->graph.n_tasks_once +
                   at->graph.first_task[i_rank];

    for (int32_t i = 0; i < schedule->n_tasks; i++)
        intervals[i] =
            (struct interval){at->events.start_s[base + i], at->events.end_s[base + i],
                              schedule->tasks[i].stream == MIST_STREAM_COMPUTE};
    qsort(intervals, (size_t)schedule->n_tasks, sizeof *intervals, compare_intervals);
}

/* Time in which more than one stream of a rank is busy. */
static enum mist_status find_shared(const struct run *at, int32_t i_rank, double *out_s)
{
    int32_t n = at->graph.schedules[i_rank]->n_tasks;
    struct interval *intervals = malloc(((size_t)n + 1) * sizeof *intervals);

    if (!intervals)
        return mist_err_set(at->err, MIST_ERR_MEMORY, "out of memory");
    list_intervals(at, i_rank, intervals);
    *out_s = shared_s(intervals, n);
    free(intervals);
    return MIST_OK;
}

/* Half width and extrapolated share, from what the busiest rank does. */
static enum mist_status find_error(const struct run *at, struct mist_replay_result *out)
{
    int32_t busiest = 0;

    for (int32_t r = 1; r < at->graph.n_ranks; r++)
        if (at->busy_s[r] > at->busy_s[busiest])
            busiest = r;
    const struct mist_schedule *schedule = at->graph.schedules[busiest];
    double mixed_s = 0;
    enum mist_status status = find_shared(at, busiest, &mixed_s);
    if (status != MIST_OK)
        return status;
    int64_t *n = calloc((size_t)schedule->n_costs + 1, sizeof *n);
    if (!n)
        return mist_err_set(at->err, MIST_ERR_MEMORY, "out of memory");
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        n[schedule->tasks[i].cost]++;
    double squares = 0, extrapolated_s = 0, total_s = 0;
    for (int32_t c = 0; c < schedule->n_costs; c++) {
        const struct mist_cost *cost = &at->costs[busiest][c];
        double deviation_s = (double)n[c] * cost->deviation_s;
        squares += deviation_s * deviation_s;
        extrapolated_s += (double)n[c] * cost->extrapolated_s;
        total_s += (double)n[c] * cost->time_s;
    }
    double mixing_s = at->doubt->residual_frac * mixed_s;
    double drift_s = at->doubt->drift_frac * out->iteration_s;
    double missed_s = at->doubt->checks_frac * out->iteration_s;
    double statistical_s = total_s > 0 ? sqrt(squares) / total_s * out->iteration_s : 0;
    free(n);
    out->error_s = 2 * hypot(hypot(statistical_s, drift_s), hypot(mixing_s, missed_s));
    out->extrapolated_frac = total_s > 0 ? extrapolated_s / total_s : 0;
    return MIST_OK;
}

/* What one rank did in the last iteration. intervals: room for its tasks. */
static void describe_rank(const struct run *at, int32_t i_rank, double iteration_s,
                          struct interval *intervals, struct mist_replay_stage *out)
{
    const struct mist_schedule *schedule = at->graph.schedules[i_rank];

    list_intervals(at, i_rank, intervals);
    *out = (struct mist_replay_stage){.rank = schedule->rank};
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        if (intervals[i].is_compute)
            out->compute_s += intervals[i].end_s - intervals[i].start_s;
    out->exposed_s = fmax(0, union_s(intervals, schedule->n_tasks) - out->compute_s);
    out->bubble_s = fmax(0, iteration_s - out->compute_s - out->exposed_s);
}

/* Adds a rank's rows of the last iteration; live: room for its tasks. */
static enum mist_status add_rows(const struct run *at, int32_t i_rank, double origin_s,
                                 const int64_t *live, struct mist_timeline *timeline)
{
    const struct mist_schedule *schedule = at->graph.schedules[i_rank];
    int32_t last = at->graph.n_iterations - 1;
    int32_t base = last * at->graph.n_tasks_once + at->graph.first_task[i_rank];
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < schedule->n_tasks && status == MIST_OK; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        struct mist_timeline_row row = {
            .rank = schedule->rank,
            .stream = task->stream,
            .kind = task->kind,
            .layer = task->layer,
            .micro_batch = task->micro_batch,
            .iteration = last,
            .task = i,
            .start_s = at->events.start_s[base + i] - origin_s,
            .end_s = at->events.end_s[base + i] - origin_s,
            .bytes = task->bytes,
            .device_live_bytes = live[i],
        };
        status = mist_timeline_add(timeline, &row, at->err);
    }
    return status;
}

/* Stages and timeline. */
static enum mist_status describe_ranks(const struct run *at,
                                       struct mist_replay_result *out)
{
    const struct mist_replay_graph *graph = &at->graph;
    size_t n_most = 1;
    double origin_s = INFINITY;
    enum mist_status status = MIST_OK;

    for (int32_t r = 0; r < graph->n_ranks; r++)
        if ((size_t)graph->schedules[r]->n_tasks > n_most)
            n_most = (size_t)graph->schedules[r]->n_tasks;
    for (int32_t i = graph->n_tasks - graph->n_tasks_once; i < graph->n_tasks; i++)
        origin_s = fmin(origin_s, at->events.start_s[i]);
    struct interval *intervals = malloc(n_most * sizeof *intervals);
    int64_t *live = malloc(n_most * sizeof *live);
    if (!intervals || !live)
        status = mist_err_set(at->err, MIST_ERR_MEMORY, "out of memory");
    for (int32_t r = 0; r < graph->n_ranks && status == MIST_OK; r++) {
        const struct mist_schedule *schedule = graph->schedules[r];
        struct mist_replay_stage stage, *best = &out->stages[schedule->i_stage];
        describe_rank(at, r, out->iteration_s, intervals, &stage);
        mist_memory_live(schedule, MIST_ARENA_DEVICE, live);
        for (int32_t i = 0; i < schedule->n_tasks; i++)
            stage.peak_bytes = live[i] > stage.peak_bytes ? live[i] : stage.peak_bytes;
        memcpy(stage.arena_bytes, schedule->arena_bytes, sizeof stage.arena_bytes);
        if (best->rank < 0 || stage.compute_s > best->compute_s)
            *best = stage;
        if (!at->options->skips_timeline)
            status = add_rows(at, r, origin_s, live, &out->timeline);
    }
    free(intervals);
    free(live);
    return status;
}

static enum mist_status describe(const struct run *at, struct mist_replay_result *out)
{
    int32_t n = at->graph.n_iterations;

    out->n_tasks = at->graph.n_tasks;
    out->n_stages = at->plan->n_stages;
    out->stages = calloc((size_t)out->n_stages, sizeof *out->stages);
    if (!out->stages)
        return mist_err_set(at->err, MIST_ERR_MEMORY, "out of memory");
    for (int32_t i = 0; i < out->n_stages; i++)
        out->stages[i].rank = -1;
    out->iteration_s =
        end_of_iteration(at, n - 1) - (n > 1 ? end_of_iteration(at, n - 2) : 0);
    enum mist_status status = find_error(at, out);
    return status == MIST_OK ? describe_ranks(at, out) : status;
}

void mist_replay_result_fini(struct mist_replay_result *result)
{
    mist_timeline_fini(&result->timeline);
    free(result->stages);
    *result = (struct mist_replay_result){0};
}

enum mist_status mist_replay_run_schedules(
    const struct mist_plan *plan, const struct mist_schedule *const *schedules,
    const struct mist_cost *const *costs, int32_t n_ranks, bool is_folded,
    const struct mist_interference *interference, const struct mist_replay_doubt *doubt,
    const struct mist_replay_options *options, struct mist_replay_result *out,
    struct mist_err *err)
{
    static const struct mist_replay_options defaults = {0};
    static const struct mist_replay_doubt no_doubt = {0};
    struct run at = {
        .plan = plan,
        .options = options ? options : &defaults,
        .doubt = doubt ? doubt : &no_doubt,
        .costs = costs,
        .err = err,
    };
    struct mist_replay_result result = {.is_folded = is_folded};
    enum mist_status status = check_options(plan, at.options, err);

    if (status != MIST_OK)
        return status;
    mist_timeline_init(&result.timeline);
    mist_arena_init(&at.arena);
    status = mist_replay_graph_link(plan, schedules, n_ranks, is_folded,
                                    n_iterations(at.options), &at.arena, &at.graph, err);
    if (status != MIST_OK)
        goto out;
    at.work_s =
        mist_arena_alloc(&at.arena, ((size_t)at.graph.n_tasks + 1) * sizeof *at.work_s);
    at.busy_s = mist_arena_alloc(&at.arena, ((size_t)n_ranks + 1) * sizeof *at.busy_s);
    if (!at.work_s || !at.busy_s) {
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
        goto out;
    }
    fill_work(&at);
    status = run_events(&at, interference);
    if (status == MIST_OK)
        status = describe(&at, &result);
out:
    mist_arena_fini(&at.arena);
    if (status == MIST_OK)
        *out = result;
    else
        mist_replay_result_fini(&result);
    return status;
}
