/*
 * Timelines of random plans as recorded jobs, against the event engine: what it predicted,
 * written and read, comes back task by task, and with a rank that computes more slowly like
 * the engine's prediction of such a rank.
 */
#include "tests/unit/test.h"

#include "tests/prop/made_up_machines.h"
#include "tests/prop/random_plan.h"
#include "tests/unit/scratch.h"

#include "sim/recorded/recorded_study.h"
#include "sim/replay/replay.h"
#include "sim/sim_timeline.h"

#include <math.h>

enum { N_PLANS = 60 };

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

static void test_random_plans(void **state)
{
    struct mist_plan *plan = malloc(sizeof *plan);
    struct mist_trace_set traces;
    struct mist_cost_model *model;
    struct scratch scratch;
    uint64_t seed = test_seed(1561);

    assert_non_null(plan);
    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "timeline.csv");
    make_machine(&traces, &calm);
    must(mist_cost_model_new(&traces, &model, &err), &err);
    for (int i = 0; i < N_PLANS; i++) {
        struct mist_recorded_job job;
        struct mist_recorded_times times;
        struct mist_arena arena;
        struct mist_random random;
        mist_random_init(&random, seed + (uint64_t)i);
        while (!draw_plan(&random, plan))
            ;
        double predicted_s = predict_s(plan, model, NULL, path);
        mist_arena_init(&arena);
        must(mist_sim_timeline_read(path, plan, &job, &arena, &err), &err);
        assert_true(mist_recorded_times_alloc(&job, &arena, &times));
        expect_unchanged(&job, &times, predicted_s);
        expect_straggler(plan, model, pick(&random, 0, mist_plan_n_ranks(plan) - 1), &job,
                         &times, path);
        mist_arena_fini(&arena);
    }
    scratch_fini(&scratch);
    mist_cost_model_free(model);
    mist_trace_set_fini(&traces);
    free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_plans)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
