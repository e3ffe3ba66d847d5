/*
 * Algorithms of products chosen by a made-up clock: which way and which algorithm, within
 * which time; and how the choices are remembered, whatever becomes of the file. On the
 * stand-in for cuBLASLt, whose algorithms tell which of them ran.
 */
#include "tests/unit/test.h"

#include "core/clock.h"
#include "exec/cuda/operators.h"
#include "exec/operators/bind.h"
#include "tests/emulation/backend.h"
#include "tests/emulation/cublaslt.h"
#include "tests/emulation/cudart.h"
#include "tests/emulation/device_memory.h"
#include "tests/unit/scratch.h"
#include "tests/unit/tiny_models.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#if __has_include(<cuda_runtime_api.h>)
#include <cublasLt.h>
#include <cuda_runtime_api.h>

enum { WORKSPACE_BYTES = 1 << 16, MEMORY_BYTES = 1 << 16 };

/* Seconds of each algorithm with an epilogue and without; every look advances
 * the time. */
struct clock {
    const double *fused_s, *plain_s;
    double now_s;
    int n_timed;
    bool naps;        /* lets other processes go on */
    const char *path; /* of the file, which nobody may lock meanwhile; NULL: not looked */
};

static const double third_s[] = {5, 4, 1, 1, 9}, second_s[] = {6, 0.5, 4, 3, 2},
                    slow_s[] = {16, 15, 14, 13, 12};

static double now(void *context)
{
    return ((struct clock *)context)->now_s;
}

static double tell_time(void *context, mist_cuda_stream stream, void (*launch)(void *arg),
                        void *arg)
{
    struct clock *clock = context;
    int64_t n = mist_test_cublaslt.n_matmuls;

    (void)stream;
    launch(arg);
    if (mist_test_cublaslt.n_matmuls == n)
        return 1e-9; /* what was not launched would be the fastest */
    const double *times_s = mist_test_cublaslt.last_epilogue == CUBLASLT_EPILOGUE_DEFAULT
                                ? clock->plain_s
                                : clock->fused_s;
    if (clock->naps)
        mist_clock_sleep_s(2e-3);
    if (clock->path) {
        int fd = open(clock->path, O_RDONLY);
        assert_true(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
        close(fd);
    }
    clock->n_timed++;
    clock->now_s += times_s[mist_test_cublaslt.i_last_algorithm];
    return times_s[mist_test_cublaslt.i_last_algorithm];
}

struct bench {
    struct scratch scratch;
    struct mist_cuda_gemm *gemm;
    char *workspace, *memory;
    struct clock clock;
    struct mist_cuda_gemm_tuning tuning;
    struct mist_cuda_gemm_clock functions;
};

static int setup(void **state)
{
    static struct bench bench;

    memset(&bench, 0, sizeof bench);
    memset(&mist_test_cublaslt, 0, sizeof mist_test_cublaslt);
    scratch_init(&bench.scratch);
    bench.workspace = mist_test_device_alloc(WORKSPACE_BYTES);
    bench.memory = mist_test_device_alloc(MEMORY_BYTES);
    memset(bench.memory, 0, MEMORY_BYTES);
    bench.clock = (struct clock){third_s, slow_s, 0, 0, false, NULL};
    bench.functions = (struct mist_cuda_gemm_clock){&bench.clock, now, tell_time};
    bench.tuning = (struct mist_cuda_gemm_tuning){
        .path = scratch_path(&bench.scratch, "choices.csv"),
        .device_name = "NVIDIA H200",
        .memory = bench.memory,
        .memory_bytes = MEMORY_BYTES,
        .budget_s = 1e6,
        .clock = &bench.functions};
    *state = &bench;
    return 0;
}

static int teardown(void **state)
{
    struct bench *bench = *state;

    mist_cuda_gemm_close(bench->gemm);
    assert_int_equal(mist_test_cublaslt.n_alive, 0);
    assert_true(mist_test_device_guard_is_intact(bench->memory, MEMORY_BYTES));
    assert_true(mist_test_device_guard_is_intact(bench->workspace, WORKSPACE_BYTES));
    mist_test_device_free(bench->workspace);
    mist_test_device_free(bench->memory);
    scratch_visit(&bench->scratch, 1);
    assert_int_equal(rmdir(bench->scratch.folder), 0);
    return 0;
}

static struct mist_cuda_linear linear(const struct bench *bench, int64_t rows)
{
    return (struct mist_cuda_linear){.workspace = bench->workspace,
                                     .dtype = MIST_DTYPE_BF16,
                                     .rows = rows,
                                     .n_in = 24,
                                     .n_out = 24};
}

/* A new process: opens, expects n products of 16 rows, tunes. */
static void start(struct bench *bench, const enum mist_cuda_gemm_product *products, int n)
{
    struct mist_cuda_linear at = linear(bench, 16);
    struct mist_err err = {0};

    mist_cuda_gemm_close(bench->gemm);
    assert_int_equal(mist_cuda_gemm_open(WORKSPACE_BYTES, &bench->gemm, &err), MIST_OK);
    for (int i = 0; i < n; i++)
        mist_cuda_gemm_expect(bench->gemm, &at, products[i]);
    bench->clock.n_timed = 0;
    bench->clock.now_s = 0;
    if (mist_cuda_gemm_tune(bench->gemm, NULL, bench->workspace, &bench->tuning, &err) !=
        MIST_OK)
        fail_msg("%s", err.message);
}

/* The algorithm that a product runs with, in tens where it is fused. */
static int run(struct bench *bench, enum mist_cuda_gemm_product product, int64_t rows)
{
    struct mist_cuda_linear at = linear(bench, rows);
    struct mist_err err = {0};
    char *p = bench->memory;

    switch (product) {
    case MIST_CUDA_FORWARD:
    case MIST_CUDA_FORWARD_BIAS:
        mist_cuda_gemm_forward(bench->gemm, &at, p, NULL, p, p,
                               product == MIST_CUDA_FORWARD_BIAS ? p : NULL);
        break;
    case MIST_CUDA_FORWARD_GELU:
    case MIST_CUDA_FORWARD_BIAS_GELU:
        mist_cuda_gemm_forward(bench->gemm, &at, p, p, p, p,
                               product == MIST_CUDA_FORWARD_BIAS_GELU ? p : NULL);
        break;
    case MIST_CUDA_BACKWARD_INPUT:
        mist_cuda_gemm_backward_input(bench->gemm, &at, p, p, p, NULL);
        break;
    case MIST_CUDA_BACKWARD_INPUT_GELU:
        mist_cuda_gemm_backward_input(bench->gemm, &at, p, p, p, p);
        break;
    default:
        mist_cuda_gemm_backward_weight(
            bench->gemm, &at, p, product == MIST_CUDA_BACKWARD_WEIGHT_BIAS ? p : NULL, p,
            p);
    }
    must(mist_cuda_gemm_status(bench->gemm, &err), &err);
    bool is_fused = mist_test_cublaslt.last_epilogue != CUBLASLT_EPILOGUE_DEFAULT;
    return (int)mist_test_cublaslt.i_last_algorithm * (is_fused ? 10 : 1);
}

static void assert_described(const struct bench *bench, const char *part)
{
    char text[400];

    mist_cuda_gemm_describe(bench->gemm, text, sizeof text);
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static char *read_file(const struct bench *bench, char *text, size_t size)
{
    FILE *stream = fopen(bench->tuning.path, "r");

    assert_non_null(stream);
    text[fread(text, 1, size - 1, stream)] = '\0';
    fclose(stream);
    return text;
}

static int count_rows(const struct bench *bench)
{
    char text[8192];
    int n = -1; /* the header */

    for (const char *c = read_file(bench, text, sizeof text); *c; c++)
        n += *c == '\n';
    return n;
}

static const enum mist_cuda_gemm_product bias[] = {MIST_CUDA_FORWARD_BIAS};

/* ------------------------------------------------------------------------ the choices */

TEST_WITH(test_the_faster_way_is_kept, setup, teardown)
{
    static const enum mist_cuda_gemm_product fused[] = {
        MIST_CUDA_FORWARD_BIAS, MIST_CUDA_FORWARD_GELU, MIST_CUDA_BACKWARD_INPUT_GELU,
        MIST_CUDA_BACKWARD_WEIGHT_BIAS};
    struct bench *bench = *state;

    for (size_t i = 0; i < sizeof fused / sizeof *fused; i++)
        for (int way = 0; way < 2; way++) {
            bench->clock.plain_s = way ? second_s : slow_s;
            start(bench, &fused[i], 1);
            assert_int_equal(bench->clock.n_timed, 10);
            for (int k = 0; k < MEMORY_BYTES; k++) /* as it was at the start */
                if (bench->memory[k] != 0)
                    fail_msg("byte %d is left", k);
            assert_int_equal(run(bench, fused[i], 16), way ? 1 : 20);
            assert_described(bench, way ? "0 fused, 1 not fused (" : "1 fused; 1 chosen");
            if (way)
                assert_described(bench, "slower); 1 chosen by time");
            scratch_visit(&bench->scratch, 1);
            memset(bench->memory, 0, MEMORY_BYTES);
        }
}

/* A plain product, and one whose parts have two ways themselves. */
TEST_WITH(test_chains, setup, teardown)
{
    static const enum mist_cuda_gemm_product plain[] = {MIST_CUDA_BACKWARD_WEIGHT},
                                             both[] = {MIST_CUDA_FORWARD_BIAS_GELU};
    struct bench *bench = *state;

    bench->clock.plain_s = second_s;
    start(bench, plain, 1);
    assert_int_equal(bench->clock.n_timed, 5);
    assert_int_equal(run(bench, plain[0], 16), 1);
    mist_test_cublaslt.refuses = CUBLASLT_EPILOGUE_BIAS;
    start(bench, both, 1); /* fused, and a product with two kernels */
    assert_int_equal(bench->clock.n_timed, 10);
    assert_int_equal(run(bench, both[0], 16), 1);
    start(bench, both, 1);
    assert_int_equal(bench->clock.n_timed, 0);
    assert_int_equal(run(bench, both[0], 16), 1);
}

/* What does not launch is not chosen, whatever it answers. */
TEST_WITH(test_what_is_not_launched, setup, teardown)
{
    struct bench *bench = *state;

    mist_test_cublaslt.launch_refuses = CUBLASLT_EPILOGUE_BIAS;
    mist_test_cublaslt.launch_status = CUBLAS_STATUS_INTERNAL_ERROR;
    mist_test_cublaslt.n_launches_refused = 1; /* the first alone */
    start(bench, bias, 1);
    assert_int_equal(run(bench, bias[0], 16), 20);
    scratch_visit(&bench->scratch, 1);
    mist_test_cublaslt.n_launches_refused = 1000;
    start(bench, bias, 1);
    assert_int_equal(bench->clock.n_timed, 5);
    assert_int_equal(run(bench, bias[0], 16), 4);
    assert_described(bench, "(BIAS refused)");
    assert_int_equal(mist_test_cublaslt.n_launches_refused, 1000 - 5);
    start(bench, bias, 1); /* not tried again */
    assert_int_equal(bench->clock.n_timed, 0);
    assert_int_equal(run(bench, bias[0], 16), 4);
    assert_described(bench, "(BIAS refused)");
    assert_int_equal(mist_test_cublaslt.n_launches_refused, 1000 - 5);
}

/* A device that fails while products are timed is an error, and nothing is remembered. */
TEST_WITH(test_a_device_that_fails, setup, teardown)
{
    static const char *const calls[] = {"cudaMemcpyAsync", "cudaMemsetAsync",
                                        "cudaStreamSynchronize"};
    struct bench *bench = *state;
    struct mist_cuda_linear at = linear(bench, 16);
    struct mist_err err = {0};

    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        mist_cuda_gemm_close(bench->gemm);
        assert_int_equal(mist_cuda_gemm_open(WORKSPACE_BYTES, &bench->gemm, &err),
                         MIST_OK);
        mist_cuda_gemm_expect(bench->gemm, &at, MIST_CUDA_FORWARD_BIAS);
        mist_emulated_cuda.fails = calls[i];
        mist_emulated_cuda.fails_in = 1 + (i == 2); /* not that behind the first copy */
        mist_emulated_cuda.fails_with = cudaErrorIllegalAddress;
        assert_int_equal(mist_cuda_gemm_tune(bench->gemm, NULL, bench->workspace,
                                             &bench->tuning, &err),
                         MIST_ERR_RUN);
        assert_int_equal(strncmp(err.message, calls[i], strlen(calls[i])), 0);
        mist_emulated_cuda.fails = NULL;
        char text[64];
        assert_string_equal(read_file(bench, text, sizeof text), "");
    }
}

static const enum mist_cuda_gemm_product four[] = {
    MIST_CUDA_FORWARD, MIST_CUDA_FORWARD_BIAS, MIST_CUDA_BACKWARD_INPUT,
    MIST_CUDA_BACKWARD_WEIGHT};

/* Opens and tunes the four with rows that grow by their place, in budget_s. */
static void start_four(struct bench *bench, double budget_s)
{
    struct mist_err err = {0};

    mist_cuda_gemm_close(bench->gemm);
    assert_int_equal(mist_cuda_gemm_open(WORKSPACE_BYTES, &bench->gemm, &err), MIST_OK);
    for (int i = 0; i < 4; i++) {
        struct mist_cuda_linear at = linear(bench, 8 << i);

        mist_cuda_gemm_expect(bench->gemm, &at, four[i]);
    }
    bench->clock.n_timed = 0;
    bench->clock.now_s = 0;
    bench->tuning.budget_s = budget_s;
    assert_int_equal(
        mist_cuda_gemm_tune(bench->gemm, NULL, bench->workspace, &bench->tuning, &err),
        MIST_OK);
}

TEST_WITH(test_the_budget_is_kept, setup, teardown)
{
    struct bench *bench = *state;
    int found[4];

    bench->clock.fused_s = bench->clock.plain_s = slow_s;
    for (double budget_s = 1; budget_s < 400; budget_s += 13) {
        start_four(bench, budget_s);
        /* 16 s at most for the algorithm under way, of each way of the last product */
        assert_true(bench->clock.now_s <= budget_s + 2 * 16);
        assert_true(bench->clock.n_timed >= 1);
        for (int i = 0; i < 4; i++)
            found[i] = run(bench, four[i], 8 << i);
        if (budget_s == 1) { /* the largest alone, and its first algorithm */
            assert_described(bench, "; 1 chosen by time; 3 of 4 products had no time");
            assert_described(bench, "the largest backward_input rows=32;n_in=24;");
        } else if (budget_s > 380) { /* all algorithms of all */
            assert_int_equal(bench->clock.n_timed, 25);
            assert_described(bench, "; 4 chosen by time");
            assert_int_equal(found[3], 4);
        }
        start_four(bench, 1e6); /* what had no time is decided as well */
        if (bench->clock.n_timed) {
            char t[8192];
            printf("%s\n%g\n", read_file(bench, t, sizeof t), budget_s);
        }
        assert_int_equal(bench->clock.n_timed, 0);
        for (int i = 0; i < 4; i++)
            assert_int_equal(run(bench, four[i], 8 << i), found[i]);
        scratch_visit(&bench->scratch, 1);
    }
    bench->tuning.memory_bytes = 2048;
    start_four(bench, 1e6);
    assert_int_equal(bench->clock.n_timed, 0);
    assert_described(bench, "4 of 4 products had no time or memory");
}

/* --------------------------------------------------------------------------- the file */

TEST_WITH(test_choices_are_remembered, setup, teardown)
{
    struct bench *bench = *state;
    char first[8192], again[8192];

    bench->clock.plain_s = second_s;
    start(bench, bias, 1);
    assert_int_equal(count_rows(bench), 2);
    read_file(bench, first, sizeof first);
    assert_non_null(
        strstr(first, ",forward_bias,bf16,fp32,16,24,24,16,unfused,500000000,0,"));
    assert_non_null(
        strstr(first, ",forward,bf16,fp32,16,24,24,16,other,500000000,101,1,"));
    start(bench, bias, 1);
    assert_int_equal(bench->clock.n_timed, 0);
    assert_int_equal(run(bench, bias[0], 16), 1);
    assert_described(bench, "(BIAS slower); 1 chosen by time");
    assert_string_equal(read_file(bench, again, sizeof again), first);
    bench->tuning.device_name = "another, \"GPU\"";
    bench->clock.plain_s = slow_s;
    start(bench, bias, 1);
    assert_int_equal(bench->clock.n_timed, 10);
    assert_int_equal(count_rows(bench), 4);
    start(bench, bias, 1);
    assert_int_equal(run(bench, bias[0], 16), 20);
    assert_int_equal(bench->clock.n_timed, 0);
    bench->tuning.device_name = "NVIDIA H200"; /* its rows are still there */
    start(bench, bias, 1);
    assert_int_equal(run(bench, bias[0], 16), 1);
    assert_int_equal(bench->clock.n_timed, 0);
}

/* Rewrites the file with one text in the place of another. */
static void edit(const struct bench *bench, const char *from, const char *to)
{
    char text[8192], edited[8400];
    char *at = strstr(read_file(bench, text, sizeof text), from);

    assert_non_null(at);
    snprintf(edited, sizeof edited, "%.*s%s%s", (int)(at - text), text, to,
             at + strlen(from));
    scratch_write(bench->tuning.path, edited);
}

TEST_WITH(test_damaged_files_are_made_anew, setup, teardown)
{
    static const char *const damages[][2] = {
        {"product,", "produce,"},   {"forward_bias,bf16", "backward_bias,bf16"},
        {"bf16,fp32", "bf16,fp64"}, {",24,24,16,", ",24,-24,16,"},
        {"unfused", "infused"},     {",101,1,1,", ",101,1,"},
        {"gpu,", "\"gpu,"},         {"gpu,", "{"}};
    struct bench *bench = *state;
    char good[8192], text[8192];

    bench->clock.plain_s = second_s;
    start(bench, bias, 1);
    read_file(bench, good, sizeof good);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        edit(bench, damages[i][0], damages[i][1]);
        start(bench, bias, 1);
        assert_int_equal(bench->clock.n_timed, 10);
        assert_described(bench, "choices.csv is damaged and made anew: ");
        assert_string_equal(read_file(bench, text, sizeof text), good);
    }
    scratch_write(bench->tuning.path, "");
    start(bench, bias, 1);
    assert_string_equal(read_file(bench, text, sizeof text), good);
    text[strlen(text) - 9] = '\0'; /* a process that ended within a row */
    scratch_write(bench->tuning.path, text);
    start(bench, bias, 1);
    assert_string_equal(read_file(bench, text, sizeof text), good);
}

/* Of another version of cuBLASLt, or of algorithms that this one does not have. */
TEST_WITH(test_outdated_rows_do_not_count, setup, teardown)
{
    struct bench *bench = *state;

    start(bench, bias, 1);
    for (int row = 0; row < 2; row++)
        edit(bench, "H200,1", "H200,2");
    start(bench, bias, 1);
    assert_int_equal(bench->clock.n_timed, 10);
    scratch_visit(&bench->scratch, 1);
    start(bench, bias, 1);
    edit(bench, ",102,2,", ",999,2,");
    start(bench, bias, 1);
    assert_int_equal(bench->clock.n_timed, 6); /* the plain way is known */
    assert_int_equal(run(bench, bias[0], 16), 20);
    start(bench, bias, 1); /* of two rows the last counts */
    assert_int_equal(bench->clock.n_timed, 0);
    assert_int_equal(run(bench, bias[0], 16), 20);
}

/* Nothing is timed that can't be remembered, and nothing fails. */
TEST_WITH(test_unusable_places, setup, teardown)
{
    struct bench *bench = *state;
    const char *const paths[] = {NULL, "/proc/no/such/folder/choices.csv",
                                 bench->scratch.folder};
    static const char *const notes[] = {"; 0 chosen by time", "choices.csv: No such file",
                                        ": Is a directory"};

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        bench->tuning.path = paths[i];
        start(bench, bias, 1);
        assert_int_equal(bench->clock.n_timed, 0);
        assert_int_equal(run(bench, bias[0], 16), 0);
        assert_int_equal(mist_test_cublaslt.last_epilogue, CUBLASLT_EPILOGUE_BIAS);
        assert_described(bench, notes[i]);
    }
}

/* Each process finds another algorithm fastest; all run with what the first one chose. */
TEST_WITH(test_processes_agree, setup, teardown)
{
    enum { N = 5 };
    struct bench *bench = *state;
    pid_t children[N];
    int chosen = -1;

    for (int i = 0; i < N; i++) {
        fflush(NULL);
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            double own_s[] = {9, 9, 9, 9, 9};

            own_s[i] = 1;
            bench->clock.fused_s = own_s;
            bench->clock.naps = true;
            start(bench, four, 4);
            _exit(run(bench, bias[0], 16) / 10);
        }
    }
    for (int i = 0; i < N; i++) {
        int status;

        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) < N);
        chosen = chosen < 0 ? WEXITSTATUS(status) : chosen;
        assert_int_equal(WEXITSTATUS(status), chosen);
    }
    assert_int_equal(count_rows(bench), 4);
    start(bench, four, 4);
    assert_int_equal(bench->clock.n_timed, 0);
}

/* Many stages that start together would else wait for one another, up to the deadline. */
TEST_WITH(test_nobody_waits_for_times, setup, teardown)
{
    struct bench *bench = *state;

    bench->clock.path = bench->tuning.path;
    start(bench, four, 4);
    assert_true(bench->clock.n_timed > 0);
}

/* Choices of products of its own are kept beside those that another one added meanwhile,
 * and of a product that both have the other's, whichever way each found faster. */
static void start_another(struct bench *bench)
{
    if (fork() == 0) {
        bench->clock = (struct clock){slow_s, second_s, 0, 0, false, NULL};
        bench->tuning.clock =
            &(struct mist_cuda_gemm_clock){&bench->clock, now, tell_time};
        start(bench, bias, 1);
        _exit(0);
    }
    wait(NULL);
}

static double tell_time_late(void *context, mist_cuda_stream stream,
                             void (*launch)(void *arg), void *arg)
{
    struct bench *bench =
        (struct bench *)(void *)((char *)context - offsetof(struct bench, clock));

    if (bench->clock.n_timed == 0)
        start_another(bench);
    return tell_time(context, stream, launch, arg);
}

TEST_WITH(test_what_was_added_meanwhile_counts, setup, teardown)
{
    struct bench *bench = *state;

    bench->functions.time = tell_time_late;
    start(bench, four, 4);
    assert_true(bench->clock.n_timed > 0);
    assert_int_equal(run(bench, bias[0], 16), 1); /* the other's: not fused */
    assert_int_equal(run(bench, MIST_CUDA_BACKWARD_INPUT, 16), 4);
    assert_int_equal(count_rows(bench), 4);
    bench->functions.time = tell_time;
    start(bench, four, 4);
    assert_int_equal(bench->clock.n_timed, 0);
    assert_int_equal(run(bench, bias[0], 16), 1);
    assert_int_equal(run(bench, MIST_CUDA_BACKWARD_INPUT, 16), 4);
}

/* ------------------------------------------------------------------------ its place, and
 * what is tuned */

TEST(test_path)
{
    char path[256], small[8];

    unsetenv("MIST_CUDA_ALGORITHMS");
    setenv("HOME", "/home/me", 1);
    unsetenv("XDG_CACHE_HOME");
    assert_true(mist_cuda_tuning_path(path, sizeof path));
    assert_string_equal(path, "/home/me/.cache/mist/cublaslt.csv");
    setenv("XDG_CACHE_HOME", "/cache", 1);
    assert_true(mist_cuda_tuning_path(path, sizeof path));
    assert_string_equal(path, "/cache/mist/cublaslt.csv");
    assert_false(mist_cuda_tuning_path(small, sizeof small));
    setenv("MIST_CUDA_ALGORITHMS", "here.csv", 1);
    assert_true(mist_cuda_tuning_path(path, sizeof path));
    assert_string_equal(path, "here.csv");
    setenv("MIST_CUDA_ALGORITHMS", "", 1);
    assert_false(mist_cuda_tuning_path(path, sizeof path));
    unsetenv("MIST_CUDA_ALGORITHMS");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_false(mist_cuda_tuning_path(path, sizeof path));
}

/* Prepares all of a model, as tools do. */
static void prepare(void)
{
    const struct mist_backend *backend = mist_emulated_backend();
    struct mist_device_config config = {.arena_bytes = {1 << 22, 0},
                                        .attention = MIST_ATTENTION_OWN};
    struct mist_model model = mist_tiny_model(MIST_FAMILY_GPT, 2);
    static struct mist_layer_layout layouts[MIST_N_LAYER_KINDS];
    struct mist_device *device;
    struct mist_err err = {0};
    void *operators;

    model.has_bias = true;
    model.ffn = 40; /* of whole units, so that GELU is fused */
    for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++)
        assert_int_equal(
            mist_layer_layout_make(
                &model, (enum mist_layer_kind)kind,
                (struct mist_layer_shape){
                    .micro_batch = 1, .seq = 16, .tp = 1, .dtype = MIST_DTYPE_BF16},
                &layouts[kind], &err),
            MIST_OK);
    assert_int_equal(backend->open_device(&config, &device, &err), MIST_OK);
    assert_int_equal(
        backend->operators->open(device, MIST_DTYPE_BF16, 0, &operators, &err), MIST_OK);
    assert_int_equal(mist_binding_prepare(layouts, MIST_N_LAYER_KINDS, 0, &model,
                                          MIST_DTYPE_FP32, backend->operators, operators,
                                          &err),
                     MIST_OK);
    const char *arena = mist_device_arena(device, MIST_ARENA_DEVICE);
    for (int64_t i = 0; i < 1 << 22; i++)
        if (arena[i] != 0)
            fail_msg("byte %d of the arena is left", (int)i);
    backend->operators->close(operators);
    mist_device_close(device);
}

TEST_WITH(test_all_of_a_model_is_tuned, setup, teardown)
{
    static const char *const products[] = {
        ",forward_bias,",       ",forward_bias_gelu,",    ",backward_input,",
        ",backward_input_gelu", ",backward_weight_bias,", ",forward,",
        ",backward_weight,"};
    struct bench *bench = *state;
    char first[16384], again[16384], command[600], path[256];

    if (!mist_emulated_backend())
        skip();
    snprintf(path, sizeof path, "%s/new/folder/choices.csv", bench->scratch.folder);
    bench->tuning.path = path;
    setenv("MIST_CUDA_ALGORITHMS", path, 1);
    prepare();
    read_file(bench, first, sizeof first);
    assert_non_null(strstr(first, "emulated"));
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        if (!strstr(first, products[i]))
            fail_msg("%s is not in %s", products[i], first);
    prepare(); /* from the file */
    assert_string_equal(read_file(bench, again, sizeof again), first);
    unsetenv("MIST_CUDA_ALGORITHMS");
    snprintf(command, sizeof command, "rm -r '%s/new'", bench->scratch.folder);
    assert_int_equal(system(command), 0);
}

TEST_MAIN(NULL, NULL)

#else

TEST_MAIN_SKIPPED("CUDA's headers are not installed")

#endif
