/*
 * exec/runtime_times: what whole runs say of when their tasks ran, on the CPU and on the
 * CUDA backend of the emulator: only timed iterations are recorded, operators add up to
 * what was recorded, and an iteration whose recording a rank lost is left out on all.
 */
#include "tests/unit/test.h"

#include "tests/emulation/backend.h"
#include "tests/emulation/recorder.h"
#include "tests/unit/comm_job.h"
#include "tests/unit/train_help.h"

enum { N_LAYERS = 3, N_MICRO_BATCHES = 2, N_STEPS = 5, N_TIMED = 2 };

/* A run of n_steps; report is the caller's to finish. */
static enum mist_status train(struct mist_comm *job, bool is_gpu, int64_t n_steps,
                              int32_t n_timed, bool times_operators,
                              struct mist_train_report *report, struct mist_err *why)
{
    struct mist_plan plan = small_plan(N_LAYERS, N_MICRO_BATCHES, mist_comm_n_ranks(job));
    const struct mist_train_log log = {0};
    struct mist_train_job config = {.backend = mist_emulated_backend(),
                                    .plan = &plan,
                                    .config.n_timed_iterations = n_timed,
                                    .times_operators = times_operators,
                                    .config.n_threads = is_gpu ? 0 : 1};
    struct mist_backend_info info;

    plan.stages[0].n_checkpointed = 1;
    plan.job.computes_on_gpu = is_gpu;
    memset(&mist_emulated_recorded, 0, sizeof mist_emulated_recorded);
    if (!is_gpu)
        must(mist_backend_find(MIST_BACKEND_CPU, &config.backend, &info, NULL, 0, why),
             why);
    return run_steps(job, &config, n_steps, &log, report, why);
}

static void must_train(bool is_gpu, int32_t n_timed, bool times_operators,
                       struct mist_train_report *report)
{
    must(train(comm, is_gpu, N_STEPS, n_timed, times_operators, report, &err), &err);
}

static void need_emulation(void)
{
    if (!mist_emulated_backend()) {
        print_message("built without CUDA's headers\n");
        skip();
    }
}

/* Rows of the timeline and their time, of iteration i or (-1) of all. */
static long count_rows(const struct mist_timeline *timeline, int i, double *time_s)
{
    long n = 0;

    for (size_t k = 0; k < timeline->n_rows; k++) {
        const struct mist_timeline_row *row = &timeline->rows[k];
        if (i >= 0 && row->iteration != i)
            continue;
        n++;
        *time_s += row->end_s - row->start_s;
    }
    return n;
}

/* Calls of an operator in a phase, at all shapes. */
static int64_t calls_of(const struct mist_op_table *ops, const char *op,
                        const char *phase)
{
    int64_t n = 0;

    for (size_t i = 0; i < ops->n_rows; i++)
        if (strcmp(ops->rows[i].op, op) == 0 && strcmp(ops->rows[i].phase, phase) == 0)
            n += ops->rows[i].n_calls;
    return n;
}

/* Rank 1 loses an iteration: rank 0 knows, and has none of its rows. */
static int run_rank(const char *mode)
{
    struct mist_train_report report;
    double time_s = 0;

    join_job();
    if (rank == n_ranks - 1)
        mist_emulated_recorder_lose(MIST_SPANS_INCOMPLETE, 1);
    CHECK(train(comm, true, N_STEPS, N_TIMED, true, &report, &err) == MIST_OK);
    CHECK(report.losses[0] == MIST_SPANS_INCOMPLETE && report.losses[1] == 0);
    if (rank == 0) {
        CHECK(count_rows(&report.timeline, N_STEPS - 2, &time_s) == 0);
        CHECK(count_rows(&report.timeline, N_STEPS - 1, &time_s) > 0);
        CHECK(calls_of(&report.ops, "embedding", "forward") == 3 * N_MICRO_BATCHES);
    }
    mist_train_report_fini(&report);
    mist_comm_close(comm);
    return 0;
}

/* First: before this process is a job of its own. */
TEST(test_ranks)
{
    need_emulation();
    need_mpirun();
    run_good_job(2, "", "loses");
}

static int open_comm(void **state)
{
    return mist_comm_open(&comm, &err) == MIST_OK ? 0 : -1;
}

static int close_comm(void **state)
{
    mist_comm_close(comm);
    return 0;
}

/* Nothing is recorded that is not asked for: a span a task, in timed iterations. */
TEST_WITH(test_only_what_is_asked_for, open_comm, NULL)
{
    struct mist_train_report report;
    double time_s = 0;

    need_emulation();
    must_train(true, 0, false, &report);
    assert_int_equal(mist_emulated_recorded.n_begins, 0);
    assert_int_equal(report.timeline.n_rows, 0);
    mist_train_report_fini(&report);
    must_train(true, N_TIMED, false, &report);
    long n_rows = count_rows(&report.timeline, -1, &time_s);
    assert_int_equal(mist_emulated_recorded.n_begins, n_rows);
    assert_int_equal(count_rows(&report.timeline, N_STEPS - 1, &time_s), n_rows / 2);
    assert_int_equal(count_rows(&report.timeline, N_STEPS - 2, &time_s), n_rows / 2);
    assert_int_equal(report.ops.n_rows, 0);
    mist_train_report_fini(&report);
}

/* By the model: one block's forward is done twice. */
static void check_calls(const struct mist_op_table *ops)
{
    int64_t n = N_TIMED * N_MICRO_BATCHES;

    assert_int_equal(calls_of(ops, "embedding", "forward"), n);
    assert_int_equal(calls_of(ops, "attention", "forward"), n * (N_LAYERS + 1));
    assert_int_equal(calls_of(ops, "attention", "backward_input"), n * N_LAYERS);
    assert_int_equal(calls_of(ops, "linear_cross_entropy", "forward"), n);
    assert_int_equal(calls_of(ops, "linear_bias", "backward_weight"), 4 * n * N_LAYERS);
    assert_int_equal(calls_of(ops, "load_batch", ""), N_TIMED);
    assert_true(calls_of(ops, "optimizer", "") >= N_TIMED * (N_LAYERS + 2));
}

TEST(test_operators)
{
    for (int is_gpu = 0; is_gpu < 2; is_gpu++) {
        struct mist_train_report report;
        double tasks_s = 0, ops_s = 0, kernels_s = 0;
        int64_t n_launches = 0;
        if (is_gpu)
            need_emulation();
        must_train(is_gpu, N_TIMED, true, &report);
        count_rows(&report.timeline, -1, &tasks_s);
        for (size_t i = 0; i < report.ops.n_rows; i++)
            ops_s += report.ops.rows[i].time_s;
        for (size_t i = 0; i < report.ops.n_kernels; i++) {
            kernels_s += report.ops.kernels[i].time_s;
            n_launches += report.ops.kernels[i].n_launches;
        }
        check_calls(&report.ops);
        /* on the CPU looks at the clock are the ends of one and the begin of the next; a
         * recorder tells what it was told to record */
        double expected_s = is_gpu ? mist_emulated_recorded.busy_s : tasks_s;
        assert_true(fabs(ops_s - expected_s) < 1e-9 + 1e-9 * expected_s);
        assert_true(ops_s <= tasks_s * 1.000001);
        assert_true(fabs(kernels_s - (is_gpu ? ops_s : 0)) < 1e-9);
        assert_int_equal(n_launches, is_gpu ? mist_emulated_recorded.n_works : 0);
        mist_train_report_fini(&report);
    }
}

/* The first timed iteration is lost, or all of them are; the run goes on. */
TEST(test_losses)
{
    struct mist_train_report report;
    double time_s = 0;

    need_emulation();
    for (int n_lost = 1; n_lost <= N_TIMED; n_lost++) {
        mist_emulated_recorder_lose(MIST_SPANS_CLOCK_SET, n_lost);
        must_train(true, N_TIMED, true, &report);
        for (int i = 0; i < N_TIMED; i++) {
            long n = count_rows(&report.timeline, N_STEPS - N_TIMED + i, &time_s);
            assert_int_equal(report.losses[i],
                             i < n_lost ? MIST_SPANS_CLOCK_SET : MIST_SPANS_WHOLE);
            assert_int_equal(n > 0, i >= n_lost);
        }
        assert_int_equal(calls_of(&report.ops, "embedding", "forward"),
                         N_MICRO_BATCHES * (N_TIMED - n_lost));
        assert_true(report.steps[N_STEPS - 1].loss > 0);
        mist_train_report_fini(&report);
    }
}

/* Times that would take all memory are refused, and how to help that is said. */
TEST_WITH(test_too_many, NULL, close_comm)
{
    struct mist_train_report report;
    struct mist_err why = {0};

    assert_int_equal(train(comm, false, 3000000, 3000000, false, &report, &why),
                     MIST_ERR_RANGE);
    assert_non_null(strstr(why.message, "--timed-iterations 3000000"));
    mist_train_report_fini(&report);
}

JOB_MAIN
