/*
 * Timelines of random plans as recorded jobs, against the event engine: what it predicted,
 * written and read, comes back task by task, and with a rank that computes more slowly like
 * the engine's prediction of such a rank.
 *
 * Timelines of several iterations, read one at a time, against one graph of all of them,
 * which is made from every rank's own schedule by looking for what is meant.
 */
#include "tests/unit/test.h"

#include "tests/prop/made_up_machines.h"
#include "tests/prop/random_plan.h"
#include "tests/unit/scratch.h"

#include "sim/recorded/edges.h"
#include "sim/recorded/recorded_costs.h"
#include "sim/recorded/recorded_study.h"
#include "sim/replay/replay.h"
#include "sim/sim_timeline.h"

#include <math.h>

enum { N_PLANS = 60, N_ITERATIONS = 3, MOST_ROWS = 1500 };

/* Nothing disturbs anything: recorded durations know no better. */
static const struct machine calm = {"calm", 15, 1e-3, 1, 1, 1, 3e-3};

static struct mist_err err;

/* Predicts the plan and writes its timeline to path; from its first start to its last end. */
static double predict_s(const struct mist_plan *plan, const struct mist_cost_model *model,
                        const double *rank_factor, const char *path)
{
    const struct mist_replay_options options = {.n_iterations = 1,
                                                .threads = 1,
                                                .folding = MIST_REPLAY_FOLD_NEVER,
                                                .rank_factor = rank_factor};
    struct mist_replay_result result;
    double start_s, end_s;

    must(mist_replay_run(plan, model, &options, &result, &err), &err);
    must(mist_timeline_save(&result.timeline, path, true, &err), &err);
    mist_timeline_span(&result.timeline, &start_s, &end_s);
    mist_replay_result_fini(&result);
    return end_s - start_s;
}

static void near(double value, double expected, const char *what)
{
    if (fabs(value - expected) > 1e-9 * fabs(expected))
        fail_msg("%s: %.12g, expected %.12g", what, value, expected);
}

static void expect_unchanged(const struct mist_recorded_job *job,
                             struct mist_recorded_times *times, double predicted_s)
{
    assert_int_equal(job->n_contradictions, 0);
    mist_recorded_replay(job, job->gap_s, job->work_s, times);
    near(mist_recorded_span_s(job, times), predicted_s, "unchanged");
    for (int64_t i = 0; i < job->n_ops; i++)
        if (fabs(times->end_s[i] - job->recorded.end_s[i]) > 1e-9 * predicted_s)
            fail_msg("operation %" PRId64 " ends at %.12g, not at %.12g", i,
                     times->end_s[i], job->recorded.end_s[i]);
}

static void expect_straggler(const struct mist_plan *plan,
                             const struct mist_cost_model *model, int rank,
                             struct mist_recorded_job *job,
                             struct mist_recorded_times *times, const char *path)
{
    double factors[MAX_RANKS];
    char edit[64];
    int64_t n_changed = 0;

    for (int32_t i = 0; i < plan->n_stages; i++)
        if (plan->stages[i].updates_on_host)
            return; /* there a slow device does not slow down the host */
    for (int i = 0; i < MAX_RANKS; i++)
        factors[i] = i == rank ? 2.5 : 1;
    snprintf(edit, sizeof edit, "rank.%d=0.4x", rank);
    must(mist_recorded_edit(job, edit, &n_changed, &err), &err);
    mist_recorded_replay(job, job->gap_s, job->work_s, times);
    near(mist_recorded_span_s(job, times), predict_s(plan, model, factors, path), edit);
}

/* Returns whether the plan was tried. */
typedef bool try_plan(const struct mist_plan *plan, const struct mist_cost_model *model,
                      struct mist_random *random, const char *path);

/* Tries N_PLANS random plans; path: of a file for each. */
static void try_plans(uint64_t seed, try_plan *try)
{
    struct mist_plan *plan = malloc(sizeof *plan);
    struct mist_trace_set traces;
    struct mist_cost_model *model;
    struct scratch scratch;

    assert_non_null(plan);
    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "timeline.csv");
    make_machine(&traces, &calm);
    must(mist_cost_model_new(&traces, &model, &err), &err);
    for (int n = 0; n < N_PLANS; seed++) {
        struct mist_random random;
        mist_random_init(&random, seed);
        while (!draw_plan(&random, plan))
            ;
        n += try(plan, model, &random, path);
    }
    scratch_fini(&scratch);
    mist_cost_model_free(model);
    mist_trace_set_fini(&traces);
    free(plan);
}

static bool try_one_iteration(const struct mist_plan *plan,
                              const struct mist_cost_model *model,
                              struct mist_random *random, const char *path)
{
    struct mist_sim_timeline timeline;
    struct mist_recorded_job job;
    struct mist_recorded_times times;
    struct mist_arena arena;
    double predicted_s = predict_s(plan, model, NULL, path);

    mist_arena_init(&arena);
    must(mist_sim_timeline_open(&timeline, path, plan, &job, NULL, &err), &err);
    must(mist_sim_timeline_next(&timeline, &job, &arena, &err), &err);
    assert_true(mist_recorded_times_alloc(&job, &arena, &times));
    expect_unchanged(&job, &times, predicted_s);
    expect_straggler(plan, model, pick(random, 0, mist_plan_n_ranks(plan) - 1), &job,
                     &times, path);
    mist_sim_timeline_close(&timeline);
    mist_arena_fini(&arena);
    return true;
}

TEST(test_random_plans)
{
    try_plans(test_seed(1561), try_one_iteration);
}

/* -------------------------------------------------------------------- several iterations */

/* All rows of a timeline by rank, iteration and task, with the schedules of ranks. */
struct naive {
    const struct mist_timeline_row *rows;
    int64_t n_rows;
    struct mist_schedule *schedules[MAX_RANKS];
    struct mist_recorded_job job;
    struct mist_recorded_edges edges;
};

static const struct mist_task *task_of(const struct naive *at, int64_t i)
{
    return &at->schedules[at->rows[i].rank]->tasks[at->rows[i].task];
}

static void wait_for(struct naive *at, int64_t i, int64_t waits_for)
{
    assert_true(mist_recorded_edges_add(&at->edges, i, waits_for));
}

/* What row i waits for, found among all rows of its rank before it. */
static void link_naive(struct naive *at, int64_t i)
{
    const struct mist_timeline_row *row = &at->rows[i];
    const struct mist_schedule *schedule = at->schedules[row->rank];
    const struct mist_task *task = task_of(at, i);
    int64_t on_stream = -1, last[MIST_N_STREAMS], n = 0;

    for (int s = 0; s < MIST_N_STREAMS; s++)
        last[s] = -1;
    for (int64_t k = i - 1; k >= 0 && at->rows[k].rank == row->rank; k--) {
        const struct mist_timeline_row *other = &at->rows[k];
        bool is_same = other->iteration == row->iteration;
        if (!is_same && last[other->stream] < 0)
            last[other->stream] = k;
        if (is_same && other->stream == row->stream && on_stream < 0)
            on_stream = k;
        for (int32_t d = 0; is_same && d < task->n_deps; d++)
            if (schedule->deps[task->dep_first + d] == other->task) {
                wait_for(at, i, k);
                n++;
            }
    }
    if (on_stream >= 0)
        wait_for(at, i, on_stream);
    for (int s = 0; s < MIST_N_STREAMS && n == 0 && on_stream < 0; s++)
        if (last[s] >= 0)
            wait_for(at, i, last[s]);
}

static bool meet(const struct naive *at, int64_t a, int64_t b)
{
    const struct mist_task *x = task_of(at, a), *y = task_of(at, b);
    int rank_a = at->rows[a].rank, rank_b = at->rows[b].rank;

    if (x->group == MIST_GROUP_NONE || x->group != y->group || x->tag != y->tag ||
        at->rows[a].iteration != at->rows[b].iteration)
        return false;
    if (x->group == MIST_GROUP_PEER)
        return (x->peer == rank_b && y->peer == rank_a) ||
               (rank_a == rank_b && x->peer == y->peer);
    return mist_rank_mesh_member(&at->schedules[rank_a]->mesh, x->group, rank_a, 0) ==
           mist_rank_mesh_member(&at->schedules[rank_b]->mesh, y->group, rank_b, 0);
}

static void find_meeting(struct naive *at, int64_t i)
{
    struct mist_recorded_job *job = &at->job;

    job->ops[i].meeting = -1;
    if (task_of(at, i)->group == MIST_GROUP_NONE)
        return;
    for (int64_t k = 0; k < i && job->ops[i].meeting < 0; k++)
        if (meet(at, k, i))
            job->ops[i].meeting = job->ops[k].meeting;
    if (job->ops[i].meeting < 0)
        job->ops[i].meeting = job->n_meetings++;
}

static void make_naive(struct naive *at, double first_s, struct mist_arena *arena)
{
    struct mist_recorded_job *job = &at->job;

    job->n_ops = at->n_rows;
    job->ops = mist_arena_alloc(arena, (size_t)at->n_rows * sizeof *job->ops);
    job->kinds = mist_arena_alloc(arena, (size_t)job->n_kinds * sizeof *job->kinds);
    assert_true(job->ops && job->kinds &&
                mist_recorded_times_alloc(job, arena, &job->recorded));
    for (int32_t i = 0; i < job->n_kinds; i++) {
        job->kinds[i].name =
            mist_task_kind_name((enum mist_task_kind)(i % MIST_N_TASK_KINDS));
        job->kinds[i].sort =
            i < MIST_N_TASK_KINDS ? MIST_RECORDED_COMPUTATION : MIST_RECORDED_MESSAGE;
    }
    for (int64_t i = 0; i < at->n_rows; i++) {
        const struct mist_timeline_row *row = &at->rows[i];
        bool computes =
            row->stream == MIST_STREAM_COMPUTE || row->stream == MIST_STREAM_HOST;
        job->ops[i].replica = row->rank;
        job->ops[i].kind = (int32_t)row->kind + (computes ? 0 : MIST_N_TASK_KINDS);
        job->recorded.start_s[i] = row->start_s - first_s;
        job->recorded.end_s[i] = row->end_s - first_s;
        link_naive(at, i);
        find_meeting(at, i);
    }
    assert_true(mist_recorded_edges_end(&at->edges, job, arena));
    for (int64_t i = 0; i < at->n_rows; i++) {
        double ready_s = 0;
        for (int64_t k = job->dep_offset[i]; k < job->dep_offset[i + 1]; k++)
            ready_s = fmax(ready_s, job->recorded.end_s[job->dep[k]]);
        if (job->ops[i].meeting >= 0)
            job->recorded.start_s[i] = fmin(job->recorded.start_s[i], ready_s);
    }
    must(mist_recorded_prepare(job, arena, &err), &err);
}

/* Sums are of as many terms in another order; all else is the same to the bit. */
static void expect_same_costs(const struct mist_recorded_costs *costs,
                              const struct mist_recorded_costs *expected)
{
    const int64_t numbers[][2] = {{costs->n_ops, expected->n_ops},
                                  {costs->n_meetings, expected->n_meetings},
                                  {costs->n_contradictions, expected->n_contradictions},
                                  {costs->n_late, expected->n_late}};
    const double times_s[][2] = {{costs->recorded_s, expected->recorded_s},
                                 {costs->replayed_s, expected->replayed_s},
                                 {costs->worst_frac, expected->worst_frac},
                                 {costs->without_launch_s, expected->without_launch_s},
                                 {costs->edited_s, expected->edited_s}};

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i][0] != numbers[i][1])
            fail_msg("number %zu: %" PRId64 ", expected %" PRId64, i, numbers[i][0],
                     numbers[i][1]);
    for (size_t i = 0; i < sizeof times_s / sizeof *times_s; i++)
        if (times_s[i][0] != times_s[i][1])
            fail_msg("time %zu: %.17g, expected %.17g", i, times_s[i][0], times_s[i][1]);
    near(costs->late_s, expected->late_s, "late");
    for (int32_t i = 0; i < costs->n_kinds; i++) {
        assert_int_equal(costs->kinds[i].n, expected->kinds[i].n);
        near(costs->kinds[i].work_s, expected->kinds[i].work_s, "work of a kind");
        if (costs->without_kind_s[i] != expected->without_kind_s[i])
            fail_msg("without kind %d: %.17g, expected %.17g", i,
                     costs->without_kind_s[i], expected->without_kind_s[i]);
    }
    for (int32_t r = 0; r < costs->n_replicas; r++) {
        const struct mist_recorded_rank *a = &costs->ranks[r], *b = &expected->ranks[r];
        assert_int_equal(a->n_ops, b->n_ops);
        assert_int_equal(a->n_last, b->n_last);
        assert_true(a->recorded_s == b->recorded_s && a->replayed_s == b->replayed_s);
        assert_true(a->computing_s == b->computing_s && a->waiting_s == b->waiting_s);
    }
}

static const char *const edits[] = {"rank.0=0.5x", "launch=3x", "kernel.forward=4x"};

enum { N_EDITS = sizeof edits / sizeof *edits };

static void find_costs(struct mist_recorded_costs *out, const struct mist_plan *plan,
                       const char *path, struct mist_arena *arena)
{
    struct mist_sim_timeline timeline;
    struct mist_recorded_job job;
    struct mist_progress progress;
    FILE *shown = tmpfile();
    char line[64] = "";

    assert_non_null(shown);
    mist_progress_init(&progress, MIST_PROGRESS_ALWAYS, true, shown, "reading");
    progress.time_shown_s = -1; /* long ago */
    must(mist_sim_timeline_open(&timeline, path, plan, &job, &progress, &err), &err);
    rewind(shown);
    assert_non_null(fgets(line, sizeof line, shown));
    if (!strstr(line, "reading ") || !strstr(line, " %"))
        fail_msg("progress: %s", line);
    assert_int_equal(fclose(shown), 0);
    must(mist_recorded_costs_begin(out, &job, edits, N_EDITS, arena, &err), &err);
    do {
        struct mist_arena part;
        mist_arena_init(&part);
        must(mist_sim_timeline_next(&timeline, &job, &part, &err), &err);
        if (job.n_ops > 0)
            must(mist_recorded_costs_add(out, &job, &err), &err);
        mist_arena_fini(&part);
    } while (job.n_ops > 0);
    must(mist_recorded_costs_end(out, &err), &err);
    mist_sim_timeline_close(&timeline);
}

/* Iterations of a plan as a run has them: no two alike, none of the update's tasks in the
 * first, and rows in no order. */
static void make_iterations(const struct naive *at, struct mist_random *random,
                            const struct mist_timeline *once, struct mist_timeline *out)
{
    double start_s, end_s;

    mist_timeline_init(out);
    mist_timeline_span(once, &start_s, &end_s);
    for (int k = 0; k < N_ITERATIONS; k++)
        for (size_t i = 0; i < once->n_rows; i++) {
            struct mist_timeline_row row = once->rows[i];
            const struct mist_task *task = &at->schedules[row.rank]->tasks[row.task];
            double long_s = row.end_s - row.start_s, later_s = k * 1.01 * (end_s + 1e-6);
            row.iteration = 3 + 2 * k;
            row.start_s += later_s + 0.3 * long_s * mist_random_uniform(random);
            row.end_s += later_s - 0.3 * long_s * mist_random_uniform(random);
            if (k > 0 || !task->is_update)
                must(mist_timeline_add(out, &row, &err), &err);
        }
    for (size_t i = out->n_rows; i > 1; i--) {
        size_t k = (size_t)mist_random_below(random, (int64_t)i);
        struct mist_timeline_row row = out->rows[k];
        out->rows[k] = out->rows[i - 1];
        out->rows[i - 1] = row;
    }
}

static int compare_rows(const void *a_, const void *b_)
{
    const struct mist_timeline_row *a = a_, *b = b_;

    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->iteration != b->iteration)
        return a->iteration < b->iteration ? -1 : 1;
    return (a->task > b->task) - (a->task < b->task);
}

/* false: the plan is too large to look at all pairs of its tasks. */
static bool try_iterations(const struct mist_plan *plan,
                           const struct mist_cost_model *model,
                           struct mist_random *random, const char *path)
{
    const struct mist_replay_options options = {
        .n_iterations = 2,
        .threads = 1,
        .folding = pick(random, 0, 1) ? MIST_REPLAY_FOLD_NEVER : MIST_REPLAY_FOLD_AUTO};
    struct mist_recorded_costs costs, expected;
    struct mist_replay_result result;
    struct mist_timeline timeline;
    struct mist_arena arena;
    struct naive naive = {0};
    double first_s, last_s;
    int64_t n_edited = 0;

    must(mist_replay_run(plan, model, &options, &result, &err), &err);
    if (result.timeline.n_rows > MOST_ROWS) {
        mist_replay_result_fini(&result);
        return false;
    }
    mist_arena_init(&arena);
    naive.job.n_replicas = mist_plan_n_ranks(plan);
    naive.job.n_stages = 1;
    naive.job.n_kinds = 2 * MIST_N_TASK_KINDS;
    for (int32_t r = 0; r < naive.job.n_replicas; r++)
        must(mist_schedule_build(plan, r, mist_plan_n_threads(plan), &naive.schedules[r],
                                 &err),
             &err);
    make_iterations(&naive, random, &result.timeline, &timeline);
    must(mist_timeline_save(&timeline, path, true, &err), &err);
    find_costs(&costs, plan, path, &arena);
    qsort(timeline.rows, timeline.n_rows, sizeof *timeline.rows, compare_rows);
    naive.rows = timeline.rows;
    naive.n_rows = (int64_t)timeline.n_rows;
    mist_timeline_span(&timeline, &first_s, &last_s);
    make_naive(&naive, first_s, &arena);
    must(mist_recorded_costs_begin(&expected, &naive.job, NULL, 0, &arena, &err), &err);
    must(mist_recorded_costs_add(&expected, &naive.job, &err), &err);
    must(mist_recorded_costs_end(&expected, &err), &err);
    for (int i = 0; i < N_EDITS; i++)
        must(mist_recorded_edit(&naive.job, edits[i], &n_edited, &err), &err);
    struct mist_recorded_times times;
    assert_true(mist_recorded_times_alloc(&naive.job, &arena, &times));
    mist_recorded_replay(&naive.job, naive.job.gap_s, naive.job.work_s, &times);
    expected.edited_s = mist_recorded_span_s(&naive.job, &times);
    expect_same_costs(&costs, &expected);
    for (int32_t r = 0; r < naive.job.n_replicas; r++)
        mist_schedule_free(naive.schedules[r]);
    mist_timeline_fini(&timeline);
    mist_replay_result_fini(&result);
    mist_arena_fini(&arena);
    return true;
}

TEST(test_iterations)
{
    try_plans(test_seed(2027), try_iterations);
}

TEST_MAIN(NULL, NULL)
