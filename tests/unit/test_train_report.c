/*
 * exec/train: what the report of a run tells when the run is longer than what is kept of
 * it: the last steps in their order, the first loss, and where its lists begin.
 */
#include "tests/unit/test.h"

#include "exec/train/train_log.h"
#include "tests/unit/train_help.h"

#include <math.h>

enum { N_STEPS = 8 };

static struct mist_comm *comm;
static const struct mist_train_log no_log = {0};

/* A run of N_STEPS; report is the caller's to finish. */
static void train(struct mist_plan *plan, struct mist_train_job *job, int32_t n_kept,
                  struct mist_train_report *report)
{
    struct mist_backend_info info;
    struct mist_err err;

    *plan = small_plan(1, 1, 1);
    *job = (struct mist_train_job){.plan = plan,
                                   .config.n_threads = 1,
                                   .n_kept = n_kept,
                                   .config.n_timed_iterations = 2};
    must(mist_backend_find(MIST_BACKEND_CPU, &job->backend, &info, NULL, 0, &err), &err);
    must(run_steps(comm, job, N_STEPS, &no_log, report, &err), &err);
}

/* The report as JSON. */
static void print(const struct mist_train_report *report,
                  const struct mist_train_job *job, char *text, size_t size)
{
    struct mist_train_logger logger = {.job = job, .flop_per_token = 1};
    struct mist_err err;
    FILE *stream = tmpfile();

    assert_non_null(stream);
    must(mist_train_report_print(report, job, &logger, NULL, true, stream, &err), &err);
    rewind(stream);
    text[fread(text, 1, size - 1, stream)] = '\0';
    fclose(stream);
}

TEST(test_kept_steps)
{
    static const int32_t kept[] = {1, 3, 4, 7, N_STEPS, 100};
    struct mist_train_report whole, part;
    struct mist_train_job job;
    struct mist_plan plan;
    struct mist_err err;
    static char text[20000];

    must(mist_comm_open(&comm, &err), &err);
    train(&plan, &job, 0, &whole);
    assert_int_equal(whole.n_kept, N_STEPS);
    for (size_t k = 0; k < sizeof kept / sizeof *kept; k++) {
        int32_t n = kept[k] < N_STEPS ? kept[k] : N_STEPS;
        train(&plan, &job, kept[k], &part);
        assert_true(part.n_iterations == N_STEPS && part.n_kept == n);
        assert_true(part.first.step == 1 && part.first.loss == whole.first.loss);
        for (int32_t i = 0; i < n; i++) {
            const struct mist_train_step *step = mist_train_report_step(&part, i);
            const struct mist_train_step *same =
                mist_train_report_step(&whole, N_STEPS - n + i);
            assert_int_equal(step->step, N_STEPS - n + i + 1);
            assert_true(step->loss == same->loss &&
                        step->gradient_norm == same->gradient_norm);
            assert_true(part.iteration_s[i] > 0 && part.iteration_s[i] < 60);
        }
        assert_true(part.steady_s > 0);
        assert_true(part.timeline.n_rows > 0 &&
                    part.timeline.n_rows == whole.timeline.n_rows);
        print(&part, &job, text, sizeof text);
        assert_int_equal(strstr(text, "\"lists_first_step\"") != NULL, n < N_STEPS);
        mist_train_report_fini(&part);
    }
    mist_train_report_fini(&whole);
    mist_comm_close(comm);
}

TEST_MAIN(NULL, NULL)
