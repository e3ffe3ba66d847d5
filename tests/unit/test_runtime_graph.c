/*
 * exec/runtime_graph in whole runs on the CUDA backend of the emulator: what is said of
 * replaying, how often it is done, and that a capture that fails ends the run only where
 * replaying was asked for. That replays have the same bits in every plan is
 * tests/prop/test_cuda_training.c's matter.
 */
#include "tests/unit/test.h"

#if __has_include(<cuda_runtime_api.h>)

#include "tests/emulation/backend.h"
#include "tests/emulation/cudart.h"
#include "tests/unit/train_help.h"

#include <cuda_runtime_api.h>

enum { N_STEPS = 14 };

struct outcome {
    enum mist_status status;
    struct mist_err err;
    uint64_t fingerprint;
    char graphs[MIST_PATH_BYTES], note[MIST_PATH_BYTES]; /* at the end; meanwhile */
    int n_notes, n_replays;
};

static struct mist_comm *comm;
static struct mist_plan plan; /* set once by main */

static void keep_note(void *context, const char *name, const char *text)
{
    struct outcome *out = context;

    assert_string_equal(name, "graphs");
    snprintf(out->note, sizeof out->note, "%s", text);
    out->n_notes++;
}

static struct outcome train(enum mist_graphs_choice graphs, int64_t n_steps,
                            int32_t n_timed)
{
    struct outcome out = {.n_replays = -mist_emulated_n_replays()};
    const struct mist_train_log log = {.context = &out, .note = keep_note};
    struct mist_train_job job = {
        .backend = mist_emulated_backend(),
        .plan = &plan,
        .config = {.n_timed_iterations = n_timed, .graphs = graphs}};
    struct mist_train_report report;

    out.status = run_steps(comm, &job, n_steps, &log, &report, &out.err);
    out.fingerprint = report.parameters_fingerprint;
    memcpy(out.graphs, report.paths.graphs, sizeof out.graphs);
    out.n_replays += mist_emulated_n_replays();
    mist_train_report_fini(&report);
    return out;
}

static void fail_in(const char *call, int n)
{
    mist_emulated_cuda.fails = call;
    mist_emulated_cuda.fails_in = n;
    mist_emulated_cuda.fails_with = cudaErrorMemoryAllocation;
}

static void assert_says(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}

/* What is decided from the start needs no note; a capture is replayed in each step but
 * the first, and in none that is recorded or warms the recorder up. */
TEST(test_choices)
{
    struct outcome plain = train(MIST_GRAPHS_OFF, N_STEPS, 0);
    struct outcome on = train(MIST_GRAPHS_ON, N_STEPS, 0);
    struct outcome timed = train(MIST_GRAPHS_ON, N_STEPS, 4);
    struct outcome brief = train(MIST_GRAPHS_AUTO, 12, 0);

    assert_int_equal(plain.status, MIST_OK);
    assert_string_equal(plain.graphs, "not replayed: --graphs off");
    assert_string_equal(on.graphs, "replayed");
    assert_says(brief.graphs, "not replayed: too few steps");
    assert_int_equal(plain.n_notes + on.n_notes + timed.n_notes + brief.n_notes, 0);
    assert_int_equal(plain.n_replays, 0);
    assert_int_equal(on.n_replays, N_STEPS - 1);
    assert_int_equal(timed.n_replays, N_STEPS - 1 - 5);
    assert_int_equal(brief.n_replays, 0);
    assert_true(on.fingerprint == plain.fingerprint);
    assert_true(timed.fingerprint == plain.fingerprint);
}

/* Three steps each way, and then the faster one, which is said once. */
TEST(test_chosen_by_time)
{
    struct outcome plain = train(MIST_GRAPHS_OFF, N_STEPS, 0);
    struct outcome chosen = train(MIST_GRAPHS_AUTO, N_STEPS, 0);
    double percent = -1;
    bool is_replayed = sscanf(chosen.note, "replayed, %lf %% faster", &percent) == 1;

    assert_int_equal(chosen.n_notes, 1);
    assert_string_equal(chosen.note, chosen.graphs);
    assert_true(is_replayed ||
                sscanf(chosen.note, "not replayed: %lf %% slower", &percent) == 1);
    assert_true(percent >= 0);
    assert_int_equal(chosen.n_replays, is_replayed ? N_STEPS - 1 - 3 : 3);
    assert_true(chosen.fingerprint == plain.fingerprint);
}

/* The host's share of the work is not the device's to replay. */
TEST(test_updates_on_host)
{
    plan.stages[0].offload_optimizer = 1;
    plan.stages[0].updates_on_host = true;
    struct outcome plain = train(MIST_GRAPHS_OFF, N_STEPS, 0);
    struct outcome automatic = train(MIST_GRAPHS_AUTO, N_STEPS, 0);
    struct outcome on = train(MIST_GRAPHS_ON, N_STEPS, 0);
    plan.stages[0].offload_optimizer = 0;
    plan.stages[0].updates_on_host = false;
    assert_int_equal(automatic.status, MIST_OK);
    assert_string_equal(automatic.graphs, "not replayed: updates on the host");
    assert_true(automatic.fingerprint == plain.fingerprint);
    assert_int_equal(on.status, MIST_ERR_USAGE);
    assert_says(on.err.message, "updates on the host");
}

TEST(test_failing_capture)
{
    static const char *const calls[] = {"cudaStreamBeginCapture", "cudaGraphInstantiate"};
    struct outcome plain = train(MIST_GRAPHS_OFF, N_STEPS, 0);

    for (int i = 0; i < 2; i++) {
        fail_in(calls[i], 1);
        struct outcome on = train(MIST_GRAPHS_ON, N_STEPS, 0);
        assert_int_equal(on.status, MIST_ERR_MEMORY);
        assert_says(on.err.message, "a step can't be captured: ");
        assert_says(on.err.message, calls[i]);
        fail_in(calls[i], 1);
        struct outcome without = train(MIST_GRAPHS_AUTO, N_STEPS, 0);
        assert_int_equal(without.status, MIST_OK);
        assert_says(without.note, "not replayed: a step can't be captured: ");
        assert_string_equal(without.note, without.graphs);
        assert_int_equal(without.n_notes, 1);
        assert_int_equal(without.n_replays, 0);
        assert_true(without.fingerprint == plain.fingerprint);
    }
    fail_in("cudaGraphLaunch", 2); /* a true failure */
    assert_int_equal(train(MIST_GRAPHS_AUTO, N_STEPS, 0).status, MIST_ERR_MEMORY);
}

static int open_comm(void **state)
{
    return mist_comm_open(&comm, NULL) == MIST_OK ? 0 : -1;
}

static int close_comm(void **state)
{
    mist_comm_close(comm);
    return 0;
}

int main(void)
{
    plan = small_plan(2, 1, 1);
    plan.job.computes_on_gpu = true;
    return run_listed_tests(open_comm, close_comm);
}

#else

TEST_MAIN_SKIPPED("CUDA's headers are not installed")

#endif
