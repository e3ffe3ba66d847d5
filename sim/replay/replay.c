/* Prices, links, runs and reports. See replay.h. */
#include "sim/replay/replay.h"

#include "core/memory.h" /* mist_grow */
#include "core/order.h"
#include "core/random.h" /* jitter */
#include "core/statistics.h"
#include "sim/engine/event_engine.h"
#include "sim/replay/replay_graph.h"
#include "sim/schedule/memory_planner.h"

#include <math.h>
#include <stdio.h> /* snprintf */
#include <stdlib.h>
#include <string.h>

/* Work that ranks share: what it depends on. */
struct work {
    int32_t program;
    const struct mist_cost *costs;
    const struct mist_cost_growth *growths; /* NULL: not known */
    double rank_factor, link_factor;
    int32_t i_dp;    /* where micro-batches differ between data-parallel ranks; else 0 */
    bool is_of_part; /* of options->part, but for its micro-batch */
    double *work_s;  /* [n_tasks] */
    double busy_s;   /* undisturbed computation of one iteration */
};

/* One replay from linked graph to result. */
struct run {
    const struct mist_plan *plan;
    const struct mist_replay_options *options;
    const struct mist_replay_doubt *doubt;
    const struct mist_rank_set *set;
    bool is_folded;
    struct mist_arena arena;
    struct mist_replay_graph graph;
    struct mist_event_device *devices; /* [n_ranks] */
    struct mist_event_result events;
    struct work *works; /* owned; [n_works] */
    int32_t n_works;
    int32_t *i_work; /* [n_ranks] */
    int32_t busiest; /* rank index with the most undisturbed computation */
    int32_t busiest_of[MIST_MAX_STAGES]; /* the same of each stage */
    int64_t *recorded; /* [n_ranks] place of its tasks in the times of events; -1: none */
    struct mist_err *err;
};

/* ------------------------------------------------------------------------- durations */

static bool is_even(const struct run *at, const struct work *work,
                    const struct mist_task *task, enum mist_cause cause)
{
    const struct mist_replay_part *part = at->options->part;
    bool is_meant = part && work->is_of_part && (part->causes >> cause & 1) &&
                    (part->micro_batch < 0 || part->micro_batch == task->micro_batch);

    return part && is_meant != at->options->evens_others;
}

static bool is_message(const struct mist_task *task)
{
    return mist_stream_channel(task->stream) == MIST_STREAM_GPU_GPU;
}

/* In every iteration, loads and jitter apart. */
static double task_work_s(const struct run *at, const struct work *work,
                          const struct mist_task *task)
{
    double time_s = work->costs[task->cost].time_s;

    if (task->stream == MIST_STREAM_COMPUTE && !is_even(at, work, task, MIST_CAUSE_RANKS))
        return time_s * work->rank_factor;
    if (is_message(task) && !is_even(at, work, task, MIST_CAUSE_LINKS))
        return time_s * work->link_factor;
    return time_s;
}

static enum mist_status make_work(struct run *at, struct work *work)
{
    const struct mist_schedule *schedule = at->set->programs[work->program].schedule;
    size_t n = (size_t)schedule->n_tasks + 1;

    if (!MIST_ARENA_ALLOC(&at->arena, work->work_s, n))
        return mist_err_memory(at->err, NULL);
    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        work->work_s[i] = task_work_s(at, work, &schedule->tasks[i]);
        if (schedule->tasks[i].stream == MIST_STREAM_COMPUTE)
            work->busy_s += work->work_s[i];
    }
    return MIST_OK;
}

static bool is_same_work(const struct work *a, const struct work *b)
{
    return a->program == b->program && a->costs == b->costs &&
           a->rank_factor == b->rank_factor && a->link_factor == b->link_factor &&
           a->i_dp == b->i_dp && a->is_of_part == b->is_of_part;
}

/* What a rank's work depends on. */
static struct work describe_work(const struct run *at, int32_t i_rank)
{
    const struct mist_rank *rank = &at->set->ranks[i_rank];
    const struct mist_schedule *schedule = mist_rank_schedule(at->set, i_rank);
    const struct mist_replay_options *options = at->options;
    const struct mist_replay_part *part = options->part;

    return (struct work){
        .program = rank->program,
        .costs = rank->costs,
        .growths = rank->growths,
        .rank_factor = options->rank_factor ? options->rank_factor[rank->rank] : 1,
        .link_factor = options->link_factor ? options->link_factor[rank->rank] : 1,
        .i_dp = options->loads
                    ? mist_rank_mesh_at(&schedule->mesh, MIST_AXIS_DP, rank->rank)
                    : 0,
        .is_of_part = part && (part->i_stage < 0 || part->i_stage == schedule->i_stage) &&
                      (part->rank < 0 || part->rank == rank->rank),
    };
}

/* Index of a rank's work among those from first on, which may be new; -1: no memory. */
static int32_t find_work(struct run *at, int32_t i_rank, int32_t first, size_t *capacity)
{
    struct work work = describe_work(at, i_rank);

    for (int32_t i = first; i < at->n_works; i++)
        if (is_same_work(&at->works[i], &work))
            return i;
    if (!MIST_RESERVE(at->works, *capacity, at->n_works + 1) ||
        make_work(at, &work) != MIST_OK)
        return -1;
    at->works[at->n_works] = work;
    return at->n_works++;
}

/* The devices, with work that ranks of a stage share where it is the same. */
static enum mist_status make_devices(struct run *at,
                                     const struct mist_interference *interference)
{
    double busiest_s[MIST_MAX_STAGES] = {0};
    int32_t i_stage = -1, first = 0; /* first work of the stage */
    size_t capacity = 0;

    for (int32_t r = 0; r < at->set->n_ranks; r++) {
        const struct mist_rank *rank = &at->set->ranks[r];
        const struct mist_replay_options *options = at->options;
        bool is_first = mist_rank_schedule(at->set, r)->i_stage != i_stage;
        if (is_first)
            first = at->n_works;
        i_stage = mist_rank_schedule(at->set, r)->i_stage;
        int32_t i = find_work(at, r, first, &capacity);
        if (i < 0)
            return mist_err_memory(at->err, NULL);
        at->i_work[r] = i;
        at->devices[r] = (struct mist_event_device){
            .program = rank->program,
            .work_s = at->works[i].work_s,
            .group = at->graph.group + (rank->peer - at->set->peers),
            .interference = interference,
            .is_recorded = !options->skips_timeline && !options->only_stages,
        };
        if (is_first || at->works[i].busy_s > busiest_s[i_stage]) {
            at->busiest_of[i_stage] = r;
            busiest_s[i_stage] = at->works[i].busy_s;
        }
    }
    int32_t best = 0;
    for (int32_t i = 1; i < at->plan->n_stages; i++)
        best = busiest_s[i] > busiest_s[best] ? i : best;
    at->busiest = at->busiest_of[best];
    return MIST_OK;
}

/* What a micro-batch's load makes of a task's work. */
static double load_factor(const struct run *at, const struct work *work,
                          const struct mist_task *task, int32_t iteration)
{
    const struct mist_loads *loads = at->options->loads;
    double time_s = work->costs[task->cost].time_s;

    if (!loads || task->micro_batch < 0 || time_s <= 0)
        return 1;
    int32_t i_stage = at->set->programs[work->program].schedule->i_stage;
    int32_t n = at->plan->stages[i_stage].micro_batch;
    struct mist_load load =
        is_even(at, work, task, MIST_CAUSE_LENGTHS)
            ? loads->mean
            : mist_loads_of(loads, iteration, task->micro_batch, work->i_dp * n, n);
    if (!work->growths)
        return mist_task_kind_sort(task->kind) == MIST_SORT_PROGRAM ? load.tokens : 1;
    return fmax(
        0, 1 + mist_cost_grow_s(&work->growths[task->cost], load.tokens, load.squares) /
                   time_s);
}

/* One factor for all who meet, drawn anew in every iteration. */
static double jitter(const struct run *at, int32_t i_rank, int32_t task,
                     int32_t iteration)
{
    const struct mist_replay_graph *graph = &at->graph;
    int64_t meeting = mist_replay_graph_meeting(graph, i_rank, task);
    int64_t number =
        meeting < 0 ? iteration * graph->n_tasks_once + graph->first_task[i_rank] + task
                    : iteration * graph->n_meetings + meeting;
    double normal =
        mist_random_normal_at(at->options->seed, meeting >= 0, (uint64_t)number);

    return fmax(0, 1 + at->options->jitter_frac * normal);
}

static double uneven_factor(const void *context, int32_t i_rank, int32_t i_task,
                            int32_t iteration)
{
    const struct run *at = context;
    const struct work *work = &at->works[at->i_work[i_rank]];
    const struct mist_task *task = &mist_rank_schedule(at->set, i_rank)->tasks[i_task];
    double factor = load_factor(at, work, task, iteration);

    return at->options->jitter_frac > 0 && !is_even(at, work, task, MIST_CAUSE_JITTER)
               ? factor * jitter(at, i_rank, i_task, iteration)
               : factor;
}

static void name_task(const void *context, int32_t i_rank, int32_t task, char *text,
                      size_t size)
{
    const struct run *at = context;
    char whole[MIST_REPLAY_TASK_TEXT];

    snprintf(text, size, "%s", mist_replay_task_text(at->set, i_rank, task, whole));
}

static enum mist_status run_events(struct run *at,
                                   const struct mist_interference *interference)
{
    struct mist_event_engine *engine;
    struct mist_event_graph events = {
        .n_programs = at->set->n_programs,
        .n_devices = at->set->n_ranks,
        .n_groups = at->graph.n_groups,
        .n_iterations = mist_replay_n_iterations(at->options),
        .n_counted = mist_replay_n_counted(at->options),
        .program = at->graph.programs,
        .device = at->devices,
        .factor = mist_replay_is_uneven(at->options) ? uneven_factor : NULL,
        .name_task = name_task,
        .context = at,
    };
    enum mist_status status = MIST_OK;

    if (at->options->jitter_frac > 0)
        status = mist_replay_graph_number(&at->graph, &at->arena, at->err);
    if (status == MIST_OK)
        status = make_devices(at, interference);
    if (status != MIST_OK)
        return status;
    at->devices[at->busiest].is_recorded = true;
    for (int32_t i = 0; i < at->plan->n_stages && !at->options->skips_timeline; i++)
        at->devices[at->busiest_of[i]].is_recorded = true;
    for (int64_t r = 0, n = 0; r < at->set->n_ranks; r++) {
        at->recorded[r] = at->devices[r].is_recorded ? n : -1;
        n += at->devices[r].is_recorded ? mist_rank_schedule(at->set, (int32_t)r)->n_tasks
                                        : 0;
    }
    status = mist_event_engine_prepare(&engine, &events, &at->arena, at->err);
    return status == MIST_OK ? mist_event_engine_run(engine, &at->events, at->err)
                             : status;
}

/* --------------------------------------------------------------------------- results */

struct interval {
    double start_s, end_s;
};

MIST_COMPARATOR(compare_intervals, struct interval, start_s, end_s)

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

/* Time in which more than one stream of a rank whose times are recorded is busy. */
static enum mist_status find_shared(const struct run *at, int32_t i_rank, double *out_s)
{
    int32_t n = mist_rank_schedule(at->set, i_rank)->n_tasks;
    const double *start_s = at->events.start_s + at->recorded[i_rank];
    const double *end_s = at->events.end_s + at->recorded[i_rank];
    struct interval *intervals = malloc(((size_t)n + 1) * sizeof *intervals);

    if (!intervals)
        return mist_err_memory(at->err, NULL);
    for (int32_t i = 0; i < n; i++)
        intervals[i] = (struct interval){start_s[i], end_s[i]};
    qsort(intervals, (size_t)n, sizeof *intervals, compare_intervals);
    *out_s = shared_s(intervals, n);
    free(intervals);
    return MIST_OK;
}

/* How far the mean of so few uneven iterations may be from that of all: its deviation. */
static double sampling_s(const struct mist_replay_result *result)
{
    double squares = 0, n = result->n_iterations;

    for (int32_t i = 0; i < result->n_iterations; i++)
        squares += (result->iterations_s[i] - result->iteration_s) *
                   (result->iterations_s[i] - result->iteration_s);
    return n > 1 ? sqrt(squares / (n - 1) / n) : 0;
}

/* Half width and extrapolated share, from what the busiest rank does. */
static enum mist_status find_error(const struct run *at, struct mist_replay_result *out)
{
    const struct mist_schedule *schedule = mist_rank_schedule(at->set, at->busiest);
    double mixed_s = 0;
    enum mist_status status = find_shared(at, at->busiest, &mixed_s);

    if (status != MIST_OK)
        return status;
    int64_t *n = calloc((size_t)schedule->n_costs + 1, sizeof *n);
    if (!n)
        return mist_err_memory(at->err, NULL);
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        n[schedule->tasks[i].cost]++;
    struct mist_cost sum = {0};
    for (int32_t c = 0; c < schedule->n_costs; c++) {
        struct mist_cost cost = at->set->ranks[at->busiest].costs[c];
        mist_cost_scale(&cost, (double)n[c]);
        mist_cost_add(&sum, &cost);
    }
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        mist_cost_add(&out->prices[schedule->tasks[i].kind],
                      &at->set->ranks[at->busiest].costs[schedule->tasks[i].cost]);
    double mixing_s = at->doubt->residual_frac * mixed_s;
    double drift_s = at->doubt->drift_frac * out->iteration_s;
    double missed_s = at->doubt->checks_frac * out->iteration_s;
    double share = sum.time_s > 0 ? 1 / sum.time_s : 0;
    double statistical_s = sum.deviation_s * share * out->iteration_s;
    double preset_s = sum.doubt_s * share * out->iteration_s;
    free(n);
    out->error_s = 2 * hypot(preset_s, hypot(hypot(statistical_s, drift_s),
                                             hypot(mixing_s, missed_s)));
    out->error_s = fmax(out->error_s, at->doubt->least_frac * out->iteration_s);
    out->error_s = hypot(out->error_s, 2 * sampling_s(out));
    out->extrapolated_frac = sum.extrapolated_s * share;
    return MIST_OK;
}

/* What one rank did in an iteration; its memory is its program's. */
static void describe_rank(const struct run *at, int32_t i_rank, double iteration_s,
                          struct mist_replay_stage *out)
{
    const struct mist_event_use *use = &at->events.use[i_rank];
    double n = mist_replay_n_counted(at->options);

    *out = (struct mist_replay_stage){
        .rank = at->set->ranks[i_rank].rank,
        .compute_s = use->busy_s[MIST_STREAM_COMPUTE] / n,
    };
    out->exposed_s = fmax(0, use->covered_s / n - out->compute_s);
    out->bubble_s = fmax(0, iteration_s - out->compute_s - out->exposed_s);
}

/* Adds a rank's rows of the last iteration; live: of its program. */
static enum mist_status add_rows(const struct run *at, int32_t i_rank, double origin_s,
                                 const int64_t *live, struct mist_timeline *timeline)
{
    const struct mist_schedule *schedule = mist_rank_schedule(at->set, i_rank);
    const double *start_s = at->events.start_s + at->recorded[i_rank];
    const double *end_s = at->events.end_s + at->recorded[i_rank];
    const struct mist_stage_plan *stage = &at->plan->stages[schedule->i_stage];
    int n_ranks = at->is_folded ? (int)mist_stage_n_ranks(stage) : 1;
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < schedule->n_tasks && status == MIST_OK; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        struct mist_timeline_row row = {
            .rank = at->set->ranks[i_rank].rank,
            .stream = task->stream,
            .kind = task->kind,
            .layer = task->layer,
            .micro_batch = task->micro_batch,
            .iteration = mist_replay_n_iterations(at->options) - 1,
            .task = i,
            .start_s = start_s[i] - origin_s,
            .end_s = end_s[i] - origin_s,
            .bytes = task->bytes,
            .device_live_bytes = live[i],
            .n_ranks = n_ranks,
        };
        status = mist_timeline_add(timeline, &row, at->err);
    }
    return status;
}

/* The earliest start in the last iteration, of ranks recorded. */
static double first_start_s(const struct run *at)
{
    double first_s = INFINITY;

    for (int32_t r = 0; r < at->set->n_ranks; r++)
        for (int64_t i = 0;
             at->recorded[r] >= 0 && i < mist_rank_schedule(at->set, r)->n_tasks; i++)
            first_s = fmin(first_s, at->events.start_s[at->recorded[r] + i]);
    return first_s;
}

/* Timeline of the ranks recorded; those of one program come behind each other. */
static enum mist_status add_timeline(const struct run *at, double origin_s,
                                     struct mist_timeline *timeline)
{
    int64_t *live = NULL;
    enum mist_status status = MIST_OK;

    for (int32_t r = 0, program = -1; r < at->set->n_ranks && status == MIST_OK; r++) {
        const struct mist_schedule *schedule = mist_rank_schedule(at->set, r);
        if (at->recorded[r] < 0)
            continue;
        if (at->set->ranks[r].program != program) {
            free(live);
            if (!MIST_MALLOC(live, (size_t)schedule->n_tasks + 1))
                return mist_err_memory(at->err, NULL);
            mist_memory_live(schedule, MIST_ARENA_DEVICE, live);
        }
        program = at->set->ranks[r].program;
        status = add_rows(at, r, origin_s, live, timeline);
    }
    free(live);
    return status;
}

/* Memory of a rank. */
static enum mist_status find_memory(const struct run *at, int32_t i_rank,
                                    struct mist_replay_stage *out)
{
    const struct mist_schedule *schedule = mist_rank_schedule(at->set, i_rank);
    int64_t *live = malloc(((size_t)schedule->n_tasks + 1) * sizeof *live);

    if (!live)
        return mist_err_memory(at->err, NULL);
    mist_memory_live(schedule, MIST_ARENA_DEVICE, live);
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        out->peak_bytes = live[i] > out->peak_bytes ? live[i] : out->peak_bytes;
    memcpy(out->arena_bytes, schedule->arena_bytes, sizeof out->arena_bytes);
    out->n_parameters = mist_schedule_n_parameters(schedule, at->plan);
    free(live);
    return MIST_OK;
}

double mist_replay_alone_frac(const struct mist_plan *plan,
                              const struct mist_replay_stage *stages, double iteration_s)
{
    double busy_s = 0;
    int32_t n = mist_plan_n_ranks(plan);

    for (int32_t i = 0; i < plan->n_stages; i++)
        busy_s += (stages[i].compute_s + stages[i].exposed_s) *
                  (double)mist_stage_n_ranks(&plan->stages[i]);
    if (n == 1 || iteration_s <= 0)
        return 0;
    return fmin(1, fmax(0, 1 - (busy_s / iteration_s - 1) / (n - 1)));
}

void mist_replay_predict(const struct mist_replay_result *result,
                         const struct mist_cluster *cluster,
                         struct mist_prediction *predicted)
{
    predicted->iteration_s = result->iteration_s;
    predicted->error_s = result->error_s;
    predicted->extrapolated_frac = result->extrapolated_frac;
    predicted->alone_frac = cluster->backend == MIST_TRACE_CPU ? result->alone_frac : 0;
}

/* Of each stage the rank with the most computation. */
static enum mist_status describe_stages(const struct run *at,
                                        struct mist_replay_result *out)
{
    int32_t best_rank[MIST_MAX_STAGES];
    enum mist_status status = MIST_OK;

    for (int32_t r = 0; r < at->set->n_ranks; r++) {
        int32_t i_stage = mist_rank_schedule(at->set, r)->i_stage;
        struct mist_replay_stage stage, *best = &out->stages[i_stage];
        describe_rank(at, r, out->iteration_s, &stage);
        if (best->rank >= 0 && stage.compute_s <= best->compute_s)
            continue;
        *best = stage;
        best_rank[i_stage] = r;
    }
    for (int32_t i = 0; i < out->n_stages && status == MIST_OK; i++)
        status = find_memory(at, best_rank[i], &out->stages[i]);
    return status;
}

/* The iterations that count, and their mean. */
static enum mist_status find_iterations(const struct run *at,
                                        struct mist_replay_result *out)
{
    int32_t n = mist_replay_n_iterations(at->options);
    const double *end_s = at->events.iteration_end_s;

    out->n_iterations = mist_replay_n_counted(at->options);
    if (!MIST_CALLOC(out->iterations_s, out->n_iterations))
        return mist_err_memory(at->err, NULL);
    for (int32_t i = 0; i < out->n_iterations; i++) {
        int32_t k = n - out->n_iterations + i;
        out->iterations_s[i] = end_s[k] - (k > 0 ? end_s[k - 1] : 0);
        out->iteration_s += out->iterations_s[i];
    }
    out->iteration_s /= out->n_iterations;
    out->last_s = out->iterations_s[out->n_iterations - 1];
    mist_sort_doubles(out->iterations_s, (size_t)out->n_iterations);
    return MIST_OK;
}

/* When the busiest rank starts the first forward of a micro-batch. */
static double forward_start_s(const struct run *at, int32_t micro_batch)
{
    const struct mist_schedule *schedule = mist_rank_schedule(at->set, at->busiest);
    int32_t i = 0;

    while (i < schedule->n_tasks && (schedule->tasks[i].micro_batch != micro_batch ||
                                     schedule->tasks[i].part != 0 ||
                                     schedule->tasks[i].program != MIST_PROGRAM_FORWARD))
        i++;
    return at->events.start_s[at->recorded[at->busiest] + i];
}

static double find_pace(const struct run *at)
{
    const struct mist_plan *plan = at->plan;
    int32_t n = mist_replay_n_in_step(plan), last = plan->n_micro_batches - 1;

    n = n < last ? n : last;
    return n > 0 ? (forward_start_s(at, last) - forward_start_s(at, last - n)) / n : 0;
}

static enum mist_status describe(const struct run *at, struct mist_replay_result *out)
{
    out->n_tasks = at->events.n_tasks;
    enum mist_status status = find_iterations(at, out);
    if (status == MIST_OK && at->options->only_times)
        out->pace_s = find_pace(at);
    if (status != MIST_OK || at->options->only_times)
        return status;
    out->n_stages = at->plan->n_stages;
    if (!MIST_CALLOC(out->stages, out->n_stages))
        return mist_err_memory(at->err, NULL);
    for (int32_t i = 0; i < out->n_stages; i++)
        out->stages[i].rank = -1;
    status = find_error(at, out);
    if (status == MIST_OK)
        status = describe_stages(at, out);
    if (status == MIST_OK)
        out->alone_frac = mist_replay_alone_frac(at->plan, out->stages, out->iteration_s);
    if (status != MIST_OK || at->options->skips_timeline)
        return status;
    double origin_s = first_start_s(at);
    int32_t n = mist_replay_n_iterations(at->options);
    out->begin_s = (n > 1 ? at->events.iteration_end_s[n - 2] : 0) - origin_s;
    return add_timeline(at, origin_s, &out->timeline);
}

void mist_replay_result_fini(struct mist_replay_result *result)
{
    mist_timeline_fini(&result->timeline);
    free(result->stages);
    free(result->iterations_s);
    *result = (struct mist_replay_result){0};
}

enum mist_status mist_replay_run_ranks(const struct mist_plan *plan,
                                       const struct mist_rank_set *ranks, bool is_folded,
                                       const struct mist_interference *interference,
                                       const struct mist_replay_doubt *doubt,
                                       const struct mist_replay_options *options,
                                       struct mist_replay_result *out,
                                       struct mist_err *err)
{
    static const struct mist_replay_options defaults = {0};
    static const struct mist_replay_doubt no_doubt = {0};
    size_t n_ranks = (size_t)ranks->n_ranks;
    struct run at = {
        .plan = plan,
        .options = options ? options : &defaults,
        .doubt = doubt ? doubt : &no_doubt,
        .set = ranks,
        .is_folded = is_folded,
        .err = err,
    };
    struct mist_replay_result result = {.is_folded = is_folded};
    enum mist_status status = mist_replay_check_options(plan, at.options, err);

    if (status != MIST_OK)
        return status;
    mist_timeline_init(&result.timeline);
    mist_arena_init(&at.arena);
    status = mist_replay_graph_link(plan, ranks, is_folded, &at.arena, &at.graph, err);
    if (status != MIST_OK)
        goto out;
    status = MIST_ARENA_ALLOC(&at.arena, at.devices, n_ranks + 1) &&
                     MIST_ARENA_ALLOC(&at.arena, at.recorded, n_ranks + 1) &&
                     MIST_ARENA_ALLOC(&at.arena, at.i_work, n_ranks + 1)
                 ? run_events(&at, interference)
                 : mist_err_memory(err, NULL);
    if (status == MIST_OK)
        status = describe(&at, &result);
out:
    free(at.works);
    mist_arena_fini(&at.arena);
    if (status == MIST_OK)
        *out = result;
    else
        mist_replay_result_fini(&result);
    return status;
}
