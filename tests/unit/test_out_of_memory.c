/*
 * What reads, schedules, places and chooses, with each call for memory failing in turn:
 * the status says so, nothing is lost, and with memory it works.
 */
#include "tests/unit/fault.h"
#include "tests/unit/test.h"

#include "exec/huggingface/hf_names.h"
#include "plots/plot.h"
#include "sim/cost/cost_model.h"
#include "sim/schedule/memory_planner.h"
#include "sim/schedule/pipeline_order.h"
#include "sim/schedule/schedule.h"
#include "tests/unit/memory_check.h"
#include "tests/unit/plan_passes.h"
#include "tests/unit/scratch.h"
#include "traces/chrome_trace.h"
#include "traces/import_nccl.h"
#include "traces/preset.h"
#include "traces/timeline.h"
#include "traces/trace_set.h"
#include "tune/inter_stage.h"
#include "tune/inter_stage_glpk.h"

#include <math.h>
#include <sys/stat.h>

#define DATA "tests/data/cli/"

/* What the work is about; made with memory. */
static struct {
    struct mist_timeline timeline;
    struct mist_trace_set traces;
    struct mist_model llama;
    struct mist_plan plan;
    FILE *nowhere;
    struct scratch scratch;
    double outcome; /* a number that tells what an attempt has found */
} world;

/* Does the work, notes the outcome and undoes the work. Jansson, libcsv and libc may get
 * along with less memory than they asked for; GLPK keeps what it has until it fails. */
typedef enum mist_status attempt_function(struct mist_err *err);

struct attempt {
    attempt_function *run;
    int n_least; /* calls for memory that the work makes at the least */
    enum { STRICT, GETS_ALONG, KEEPS_SOME, WRITES } kind;
};

/* Of libc's own call within fopen() and of GLPK's, the message alone says it. */
static bool is_about_memory(enum mist_status status, const struct mist_err *err)
{
    return (status == MIST_ERR_MEMORY || status == MIST_ERR_IO ||
            status == MIST_ERR_RUN) &&
           strstr(err->message, "memory") != NULL;
}

/* The file is there as a whole or is not, and nothing lies beside it. */
static void look_at_file(enum mist_status status)
{
    struct stat info = {0};

    assert_int_equal(scratch_count(&world.scratch), status == MIST_OK);
    if (status == MIST_OK) {
        assert_int_equal(stat(world.scratch.path, &info), 0);
        assert_int_equal(remove(world.scratch.path), 0);
    }
    world.outcome = (double)info.st_size;
}

static enum mist_status run(const struct attempt *attempt, bool *has_fired,
                            struct mist_err *err)
{
    enum mist_status status = attempt->run(err);

    *has_fired = fault_disarm();
    if (attempt->kind == WRITES)
        look_at_file(status);
    return status;
}

static void starve(const struct attempt *attempt)
{
    struct mist_err err;
    bool has_fired;
    int n_failed = 0;

    must(run(attempt, &has_fired, &err), &err);
    double expected = world.outcome;
    for (long n = 1;; n++) {
        long n_live = fault_n_live();
        err = (struct mist_err){0};
        fault_arm(FAULT_MALLOC, n);
        enum mist_status status = run(attempt, &has_fired, &err);
        if (attempt->kind != KEEPS_SOME)
            assert_int_equal(fault_n_live(), n_live);
        if (status == MIST_OK)
            assert_true(world.outcome == expected);
        if (!has_fired)
            break;
        if (status == MIST_OK ? attempt->kind != GETS_ALONG && attempt->kind != WRITES
                              : !is_about_memory(status, &err))
            fail_msg("call %ld: status %d, %s", n, status, err.message);
        n_failed += status != MIST_OK;
    }
    must(run(attempt, &has_fired, &err), &err);
    assert_true(n_failed >= attempt->n_least);
}

/* ---------------------------------------------------------------------------- readers */

static enum mist_status load_trace_set(struct mist_err *err)
{
    struct mist_trace_set set;
    enum mist_status status = mist_trace_set_load(&set, DATA "traces", err);

    if (status == MIST_OK) {
        world.outcome = (double)mist_trace_set_fingerprint(&set);
        mist_trace_set_fini(&set);
    }
    return status;
}

static enum mist_status import_nccl(struct mist_err *err)
{
    struct mist_import_nccl options = {0};
    struct mist_trace_set set;
    enum mist_status status = mist_preset_parse(&set, "h100-sxm:2x8", err);
    struct mist_import_rows rows = mist_import_rows_begin(&set);

    if (status == MIST_OK)
        status = mist_import_nccl_log(&rows, "tests/data/nccl_all_reduce_2x4.log",
                                      &options, err);
    world.outcome = (double)mist_import_rows_count(&rows);
    mist_trace_set_fini(&set);
    return status;
}

static enum mist_status load_timeline(struct mist_err *err)
{
    struct mist_timeline timeline;
    enum mist_status status = mist_timeline_load(&timeline, DATA "timeline.csv", err);

    if (status == MIST_OK) {
        world.outcome = (double)timeline.n_rows;
        mist_timeline_fini(&timeline);
    }
    return status;
}

static enum mist_status load_plan(struct mist_err *err)
{
    struct mist_plan plan;
    enum mist_status status = mist_plan_load(DATA "plan2.json", &plan, err);

    if (status == MIST_OK)
        world.outcome = (double)plan.n_micro_batches;
    return status;
}

static enum mist_status load_config(struct mist_err *err)
{
    struct mist_model model;
    enum mist_status status =
        mist_model_load_config("tests/data/configs/llama3-8b.json", &model, err);

    if (status == MIST_OK)
        world.outcome = (double)model.ffn;
    return status;
}

static enum mist_status check_config(struct mist_err *err)
{
    struct mist_hf_config config;

    return mist_hf_check_config("tests/data/configs/llama-7b", &world.llama, &config,
                                err);
}

/* ---------------------------------------------------------------------------- writers */

static enum mist_status save_plan(struct mist_err *err)
{
    return mist_plan_save(&world.plan, world.scratch.path, false, err);
}

static enum mist_status save_timeline(struct mist_err *err)
{
    return mist_timeline_save(&world.timeline, world.scratch.path, false, err);
}

static enum mist_status save_chrome(struct mist_err *err)
{
    return mist_chrome_trace_save(&world.timeline, world.scratch.path, false, err);
}

/* -------------------------------------------------------------------------- pictures */

static enum mist_status draw_table(const char *kind, const char *path,
                                   struct mist_err *err)
{
    struct mist_plot_options options = {0};

    return mist_plot_write_table(world.nowhere, mist_plot_find_kind(kind), path, &options,
                                 MIST_PLOT_SVG, err);
}

static enum mist_status draw_compare(struct mist_err *err)
{
    return draw_table("compare", DATA "compare.csv", err);
}

static enum mist_status draw_pareto(struct mist_err *err)
{
    return draw_table("pareto", DATA "pareto.csv", err);
}

static enum mist_status draw_links(struct mist_err *err)
{
    return draw_table("links", DATA "links_fit.csv", err);
}

static enum mist_status draw_timeline(struct mist_err *err)
{
    static const char *const kinds[] = {"timeline", "memory"};
    struct mist_plot_input input = {&world.timeline, "run"};
    struct mist_plot_options options = {.n_text_columns = 80};
    enum mist_status status = MIST_OK;

    for (int i = 0; i < 2 && status == MIST_OK; i++)
        status = mist_plot_write_timelines(world.nowhere, mist_plot_find_kind(kinds[i]),
                                           &input, 1, &options, MIST_PLOT_SVG, err);
    return status == MIST_OK
               ? mist_plot_print_gantt(world.nowhere, &input, 1, &options, err)
               : status;
}

/* -------------------------------------------------------------------------- schedules */

static enum mist_status build_schedules(struct mist_err *err)
{
    static const enum mist_pipeline_schedule kinds[] = {
        MIST_PIPELINE_1F1B,  MIST_PIPELINE_INTERLEAVED, MIST_PIPELINE_ZB_H1,
        MIST_PIPELINE_ZB_H2, MIST_PIPELINE_ZB_V,        MIST_PIPELINE_ZB_1P};
    struct mist_plan plan = world.plan;
    enum mist_status status = MIST_OK;
    double outcome = 0;

    for (int i = 0; i < 12 && status == MIST_OK; i++) {
        struct mist_schedule *schedule = NULL;
        plan.pipeline = kinds[i / 2];
        set_plan_passes(&plan);
        plan.n_chunks = plan.pipeline == MIST_PIPELINE_INTERLEAVED ? 2 : 0;
        status = mist_schedule_build(&plan, i % 2, 2, &schedule, err);
        if (status == MIST_OK)
            status = memory_check(schedule, err);
        if (status == MIST_OK)
            outcome += (double)(schedule->arena_bytes[0] + schedule->n_tasks);
        mist_schedule_free(schedule);
    }
    world.outcome = outcome;
    return status;
}

static enum mist_status order_pipeline(struct mist_err *err)
{
    static const struct mist_pipeline_pass passes[4] = {
        {3, 3, 2, 1, 0}, {3, 3, 2, 1, 0}, {3, 3, 2, 1, 0}, {3, 3, 2, 1, 0}};
    struct mist_pipeline_order order;
    enum mist_status status =
        mist_pipeline_order_init(&order, MIST_PIPELINE_ZB_2P, 4, 1, 8, passes, err);

    world.outcome = order.n_slots;
    mist_pipeline_order_fini(&order);
    return status;
}

static enum mist_status model_costs(struct mist_err *err)
{
    struct mist_cost_model *model = NULL;
    enum mist_status status = mist_cost_model_new(&world.traces, &model, err);

    mist_cost_model_free(model);
    return status;
}

/* ------------------------------------------------------------------------ inter-stage */

enum { N_OPTIONS = 40 };

static struct mist_inter_stage_problem make_problem(void)
{
    static struct mist_stage_option rows[3][N_OPTIONS];
    static const struct mist_stage_option *options[] = {rows[0], rows[1], rows[2]};
    static const size_t n_options[] = {N_OPTIONS, N_OPTIONS, N_OPTIONS};

    for (int i = 0; i < 3; i++)
        for (int k = 0; k < N_OPTIONS; k++)
            rows[i][k] =
                (struct mist_stage_option){.n_layers = 1 + k % 5,
                                           .n_devices = 1 << k % 3,
                                           .t_s = 1 + k % 5 + 0.01 * (k * 7 % 40),
                                           .d_s = 0.3 * (i + k % 4)};
    return (struct mist_inter_stage_problem){3, 9, 8, 16, options, n_options, NULL, 0};
}

static const struct mist_inter_stage_term terms[] = {{0, 1, 1.0}, {1, 2, 1.0}};
static const struct mist_inter_stage_row row = {"a row", -INFINITY, 1, 2, terms};

static enum mist_status choose_stages(struct mist_err *err)
{
    struct mist_inter_stage_problem problem = make_problem();
    struct mist_inter_stage_config config = {.n_best = 6};
    struct mist_inter_stage_result result = {0};
    enum mist_status status;
    double outcome = 0;

    problem.rows = &row;
    problem.n_rows = 1;
    status = mist_inter_stage_solve(&problem, &config, &result, err);
    for (size_t k = 0; status == MIST_OK && k < result.n_solutions; k++)
        outcome += result.solutions[k].time_s;
    if (status == MIST_OK)
        mist_inter_stage_result_fini(&result);
    world.outcome = outcome;
    return status;
}

static enum mist_status choose_by_glpk(struct mist_err *err)
{
    struct mist_inter_stage_problem problem = make_problem();
    static const size_t few[] = {6, 6, 6}; /* GLPK allocates in every node of its tree */
    struct mist_inter_stage_glpk_config config = {60, INFINITY};
    struct mist_inter_stage_glpk_result result = {0};
    int32_t i_option[3];

    problem.rows = &row;
    problem.n_rows = 1;
    problem.n_options = few;
    problem.n_devices = MIST_INTER_STAGE_ANY_DEVICES;
    enum mist_status status =
        mist_inter_stage_solve_glpk(&problem, &config, i_option, &result, err);

    if (status == MIST_OK)
        assert_int_equal(result.outcome, MIST_INTER_STAGE_OPTIMAL);
    world.outcome = result.time_s;
    return status;
}

/* ------------------------------------------------------------------------------- main */

static void test_attempt(void **state)
{
    starve(*state);
}

static int begin(void **state)
{
    struct mist_err err;

    scratch_init(&world.scratch);
    scratch_path(&world.scratch, "saved");
    world.nowhere = fopen("/dev/null", "w");
    assert_non_null(world.nowhere);
    setvbuf(world.nowhere, NULL, _IONBF, 0);
    must(mist_timeline_load(&world.timeline, DATA "timeline.csv", &err), &err);
    must(mist_trace_set_load(&world.traces, DATA "traces", &err), &err);
    must(mist_model_load_config("tests/data/configs/llama-7b/config.json", &world.llama,
                                &err),
         &err);
    must(mist_plan_load(DATA "plan2.json", &world.plan, &err), &err);
    for (int32_t i = 0; i < world.plan.n_stages; i++) {
        struct mist_stage_plan *stage = &world.plan.stages[i];
        stage->offload_weights = stage->offload_gradients = 0.5;
        stage->offload_optimizer = stage->offload_activations = 0.5;
        stage->n_checkpointed = 1;
    }
    must(mist_plan_check(&world.plan, &err), &err);
    return 0;
}

static int end(void **state)
{
    mist_trace_set_fini(&world.traces);
    mist_timeline_fini(&world.timeline);
    scratch_fini(&world.scratch);
    return fclose(world.nowhere);
}

#define ATTEMPT(function, n_least, kind)                                                 \
    {                                                                                    \
        .name = #function, .test_func = test_attempt, .initial_state = &(struct attempt) \
        {                                                                                \
            function, n_least, kind                                                      \
        }                                                                                \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ATTEMPT(load_trace_set, 20, GETS_ALONG), ATTEMPT(import_nccl, 4, GETS_ALONG),
        ATTEMPT(load_timeline, 8, GETS_ALONG),   ATTEMPT(load_plan, 20, GETS_ALONG),
        ATTEMPT(load_config, 20, GETS_ALONG),    ATTEMPT(check_config, 20, GETS_ALONG),
        ATTEMPT(draw_compare, 8, GETS_ALONG),    ATTEMPT(draw_pareto, 8, GETS_ALONG),
        ATTEMPT(draw_links, 8, GETS_ALONG),      ATTEMPT(draw_timeline, 3, STRICT),
        ATTEMPT(save_plan, 20, WRITES),          ATTEMPT(save_timeline, 3, WRITES),
        ATTEMPT(save_chrome, 3, WRITES),         ATTEMPT(build_schedules, 60, GETS_ALONG),
        ATTEMPT(order_pipeline, 3, STRICT),      ATTEMPT(model_costs, 3, STRICT),
        ATTEMPT(choose_stages, 6, GETS_ALONG),   ATTEMPT(choose_by_glpk, 10, KEEPS_SOME),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
