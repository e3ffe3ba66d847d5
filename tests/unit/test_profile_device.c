/*
 * The profiler on devices with streams and a memory of their own: a made-up one, which
 * records its work or not, alone and with two ranks, and the CUDA backend on the
 * emulator. Whatever computes, a session yields the same rows. No test looks at how long
 * anything takes.
 */
#include "tests/unit/test.h"

#include "exec/operators/cpu_bf16.h"
#include "profile/profile.h"
#include "profile/time_links.h"
#include "profile/time_ops.h"
#include "tests/emulation/backend.h"
#include "tests/unit/async_device.h"
#include "tests/unit/comm_job.h"
#include "tests/unit/find_link.h"
#include "tests/unit/profile_help.h"
#include "tests/unit/scratch.h"
#include "tests/unit/tiny_models.h"

#include <limits.h>

static const struct mist_backend *cpu_backend(void)
{
    const struct mist_backend *backend;

    return mist_backend_find(MIST_BACKEND_CPU, &backend, NULL, NULL, 0, NULL) == MIST_OK
               ? backend
               : NULL;
}

/* A grid for a backend: of n_job ranks. */
static void make_grid(const struct mist_backend *backend, enum mist_family family,
                      enum mist_dtype dtype, int32_t n_job, struct mist_grid *grid)
{
    struct mist_grid_config config = {.model = mist_small_model(family, 2, 50),
                                      .seq_len = 16,
                                      .n_micro_batches = 1,
                                      .micro_batches = {2},
                                      .n_nodes = 1,
                                      .n_ranks = n_job,
                                      .n_threads = backend == cpu_backend(),
                                      .dtype = dtype,
                                      .far_bytes = 1 << 20,
                                      .is_quick = true};

    if (mist_grid_make(&config, grid, NULL) != MIST_OK)
        abort();
}

static void make_machine(const struct mist_backend *backend, struct mist_machine *machine)
{
    if (mist_machine_read(MIST_BACKEND_CPU, machine, NULL, 0, NULL) != MIST_OK)
        abort();
    if (backend == machine->backend)
        return;
    machine->backend = backend;
    machine->devices =
        (struct mist_backend_info){.n_devices = 1,
                                   .device_name = "Made-up 9000",
                                   .versions = "driver 1.2, CUDA 13.0, NCCL 2.28",
                                   .memory_bytes = (int64_t)8 << 30,
                                   .clock_hz = 2e9,
                                   .memory_bytes_per_s = 4.8e12,
                                   .n_processors = 132};
}

/* Of the next session; NULL: not wanted. */
static struct mist_op_table *session_ops;

/* A probe that a CPU does for a GPU. */
static const struct mist_probe_work small_probe = {.rows = 16,
                                                   .width = 64,
                                                   .sum_bytes = 4096,
                                                   .region_bytes = 4 * 4096,
                                                   .message_bytes = 1024,
                                                   .n_at_once = 3};

/* A session that takes as little time as it may. */
static enum mist_status run_session(struct mist_comm *job, const struct mist_grid *grid,
                                    const struct mist_backend *backend,
                                    struct mist_trace_set *traces,
                                    struct mist_profile_report *report)
{
    struct mist_machine machine;
    struct mist_profile_plan plan;
    struct mist_err why = {0};

    make_machine(backend, &machine);
    mist_trace_set_init(traces);
    enum mist_status status = mist_profile_plan(grid, &machine, 1e10, 0, &plan, &why);
    plan.n_copies = 1;
    /* the first rank's: the others, which may have taken another, repeat no more often */
    plan.ops_s = plan.links_s = plan.interference_s = mist_comm_rank(job) == 0 ? 0 : 30;
    plan.probe = small_probe;
    plan.probe_s = 0;
    /* the made-up device has no operators but those that are timed */
    bool trains = strcmp(backend->name, "cuda") == 0;
    plan.checks_s = trains && mist_comm_rank(job) == 0 ? 1e-9 : 0;
    const struct mist_profile_config config = {.grid = grid,
                                               .machine = &machine,
                                               .plan = &plan,
                                               .comm = job,
                                               .ops = session_ops};
    if (status == MIST_OK)
        status = mist_profile_run(&config, traces, report, &why);
    if (status != MIST_OK)
        fprintf(stderr, "%s\n", why.message);
    return status;
}

/* Whether both have the same rows, but for what was measured. */
static bool is_of_host(const struct mist_kernel_row *row)
{
    return strcmp(row->op, "adamw_host") == 0;
}

/* Rows that are measured on any device; those of the host are as many as AdamW's, or
 * none. */
static size_t count_common(const struct mist_trace_set *of)
{
    size_t n_host = 0, n_adamw = 0;

    for (size_t i = 0; i < of->n_kernels; i++) {
        n_host += is_of_host(&of->kernels[i]);
        n_adamw += strcmp(of->kernels[i].op, "adamw") == 0;
    }
    assert_true(n_host == 0 || n_host == n_adamw);
    return of->n_kernels - n_host;
}

static bool has_same_rows(const struct mist_trace_set *a, const struct mist_trace_set *b,
                          enum mist_trace_dtype dtype)
{
    if (count_common(a) != count_common(b) || a->n_links != b->n_links ||
        a->n_interferences != b->n_interferences)
        return false;
    for (size_t i = 0; i < a->n_kernels; i++) {
        const struct mist_kernel_row *row = &a->kernels[i];
        if (row->dtype != dtype || row->time_us <= 0 ||
            !mist_trace_set_find_kernel(b, is_of_host(row) ? "adamw" : row->op, dtype,
                                        row->phase, &row->shape))
            return false;
    }
    for (size_t i = 0; i < a->n_links; i++) {
        const struct mist_link_row *row = &a->links[i];
        if (row->time_us <= 0 ||
            !find_link(b, row->operation, row->nodes, row->ranks_per_node,
                       row->concurrent_groups, row->bytes))
            return false;
    }
    for (size_t i = 0; i < a->n_interferences; i++)
        if (a->interferences[i].channels != b->interferences[i].channels ||
            a->interferences[i].together_us <= 0)
            return false;
    return true;
}

/* ---- stopwatch ---- */

enum { N_BYTES = 1 << 20, N_SPANS = 4 };

struct copies {
    struct mist_device *device;
    struct mist_stopwatch watch;
};

static void run_copies(void *arg)
{
    struct copies *at = arg;
    char *memory = mist_device_arena(at->device, MIST_ARENA_DEVICE);
    static const enum mist_stopwatch_work works[N_SPANS] = {
        MIST_WORK_OF_DEVICE, MIST_WORK_OF_DEVICE, MIST_WORK_OF_DEVICE, MIST_WORK_OF_HOST};

    for (int i = 0; i < N_SPANS; i++) {
        mist_stopwatch_begin(&at->watch, i, works[i]);
        if (i != 1)
            mist_device_copy(at->device, memory + N_BYTES, memory, N_BYTES);
        mist_stopwatch_end(&at->watch, i);
    }
}

/* What is timed is the work, wherever it runs, in its order; on a device that records, a
 * span without work has no time and the next one reaches back beyond it. */
TEST(spans_are_of_what_ran)
{
    const struct mist_backend *const backends[] = {cpu_backend(), &async_backend,
                                                   &async_recording_backend};

    for (int k = 0; k < 3; k++) {
        struct mist_device_config config = {
            .arena_bytes = {2 * N_BYTES}, .threads = 1, .records = true};
        struct copies at;
        assert_int_equal(backends[k]->open_device(&config, &at.device, NULL), MIST_OK);
        mist_stopwatch_init(&at.watch, at.device);
        for (int turn = 0; turn < 2; turn++) {
            assert_int_equal(mist_stopwatch_reset(&at.watch, N_SPANS, NULL), MIST_OK);
            mist_device_submit(at.device, MIST_STREAM_COMPUTE, run_copies, &at);
            assert_int_equal(mist_device_synchronize(at.device, NULL), MIST_OK);
            assert_int_equal(mist_stopwatch_collect(&at.watch, NULL), MIST_OK);
            const struct mist_span *spans = at.watch.spans;
            for (int i = 0; i < N_SPANS; i++)
                assert_int_equal(spans[i].end_s > 0, i != 1 || k != 2);
            assert_true(spans[0].start_s < spans[0].end_s);
            assert_true(spans[0].end_s <= spans[2].start_s);
            assert_true(spans[2].start_s < spans[2].end_s);
            assert_true(spans[2].end_s <= spans[3].start_s);
            double own_s = mist_stopwatch_time_s(&at.watch, 2);
            double since_s = mist_stopwatch_time_since_s(&at.watch, 0, 2);
            assert_true(own_s == spans[2].end_s - spans[2].start_s);
            assert_true(since_s == (k == 2 ? spans[2].end_s - spans[0].end_s : own_s));
            assert_true(mist_stopwatch_time_since_s(&at.watch, 2, 2) == own_s);
        }
        mist_stopwatch_fini(&at.watch);
        mist_device_close(at.device);
    }
}

static enum mist_status collect_overlapping(struct mist_device *device, mist_span_fn *fn,
                                            void *context, enum mist_span_loss *loss,
                                            struct mist_err *why)
{
    static const struct mist_span_work works[] = {
        {0, "long", 1, 5}, {0, "inside", 2, 3}, {2, "first", 6, 7}, {2, "next", 6.5, 8}};

    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
        fn(context, &works[i]);
    *loss = MIST_SPANS_WHOLE;
    return MIST_OK;
}

/* What a span launched may overlap: the last to begin is not always the last to end. */
TEST(spans_cover_all_of_their_work)
{
    struct mist_device_config config = {.threads = 1, .records = true};
    struct mist_device *device;
    struct mist_stopwatch watch;

    assert_int_equal(async_recording_backend.open_device(&config, &device, NULL),
                     MIST_OK);
    const struct mist_device_ops *const own = device->ops;
    struct mist_device_ops ops = *own;
    ops.collect_spans = collect_overlapping;
    device->ops = &ops;
    mist_stopwatch_init(&watch, device);
    assert_int_equal(mist_stopwatch_reset(&watch, 3, NULL), MIST_OK);
    assert_int_equal(mist_stopwatch_collect(&watch, NULL), MIST_OK);
    assert_true(watch.spans[0].start_s == 1 && watch.spans[0].end_s == 5);
    assert_true(mist_stopwatch_time_s(&watch, 1) == 0);
    assert_true(watch.spans[2].start_s == 6 && watch.spans[2].end_s == 8);
    mist_stopwatch_fini(&watch);
    device->ops = own;
    mist_device_close(device);
}

/* ---- workbench ---- */

static struct mist_bench_place place_of(const struct mist_backend *backend)
{
    return (struct mist_bench_place){
        .backend = backend, .is_alone = true, .n_sharing = 1};
}

static char *read_back(struct mist_device *device, const void *from, int64_t bytes)
{
    char *out = malloc((size_t)bytes);

    assert_non_null(out);
    assert_int_equal(mist_device_read(device, out, from, bytes, NULL), MIST_OK);
    return out;
}

/* The stage is filled as on the CPU, bit for bit; bf16 is that, rounded. */
TEST(stages_are_filled_alike)
{
    assert_int_equal(mist_comm_open(&comm, NULL), MIST_OK);
    for (int k = 0; k < 2; k++) {
        bool is_bf16 = k == 1;
        struct mist_bench_place places[2] = {place_of(cpu_backend()),
                                             place_of(&async_recording_backend)};
        struct mist_grid grids[2];
        struct mist_workbench benches[2];
        for (int i = 0; i < 2; i++) {
            make_grid(places[i].backend, MIST_FAMILY_LLAMA,
                      i == 1 && is_bf16 ? MIST_DTYPE_BF16 : MIST_DTYPE_FP32, 1,
                      &grids[i]);
            assert_int_equal(
                mist_workbench_open(&grids[i], 3, comm, &places[i], &benches[i], NULL),
                MIST_OK);
        }
        for (int32_t i = 0; i < 5; i++) {
            int64_t n = benches[0].modules[i].n_elements;
            char *plain =
                read_back(benches[0].device, benches[0].modules[i].weights, 4 * n);
            char *other = read_back(benches[1].device, benches[1].modules[i].weights,
                                    (is_bf16 ? 2 : 4) * n);
            mist_bf16 *rounded = malloc((size_t)n * sizeof *rounded);
            assert_non_null(rounded);
            mist_cpu_bf16_from_float(rounded, (const float *)(const void *)plain, n);
            assert_memory_equal(other, is_bf16 ? (char *)rounded : plain,
                                (size_t)((is_bf16 ? 2 : 4) * n));
            free(plain);
            free(other);
            free(rounded);
        }
        int64_t block_bytes = (is_bf16 ? 2 : 4) * benches[1].modules[1].n_elements;
        char *blocks[2];
        for (int i = 0; i < 2; i++)
            blocks[i] = read_back(benches[1].device,
                                  benches[1].modules[1 + 2 * i].weights, block_bytes);
        assert_memory_equal(blocks[0], blocks[1], (size_t)block_bytes); /* 1st and last */
        char *tokens[2];
        for (int i = 0; i < 2; i++)
            tokens[i] = read_back(benches[i].device, benches[i].tokens, 4 * 2 * 16);
        assert_memory_equal(tokens[0], tokens[1], 4 * 2 * 16);
        for (int i = 0; i < 2; i++) {
            free(blocks[i]);
            free(tokens[i]);
            mist_workbench_close(&benches[i]);
            mist_grid_fini(&grids[i]);
        }
    }
    mist_comm_close(comm);
}

/* In bf16 AdamW's masters are zero, and so would be the weights it writes: those of the
 * stage must stay, or the operators would be timed with numbers that are none. */
TEST(weights_stay_ordinary)
{
    struct mist_bench_place place = place_of(&async_recording_backend);
    struct mist_grid grid;
    struct mist_workbench bench;

    assert_int_equal(mist_comm_open(&comm, NULL), MIST_OK);
    make_grid(place.backend, MIST_FAMILY_GPT, MIST_DTYPE_BF16, 2, &grid);
    struct mist_estimate *steps = calloc((size_t)grid.n_keys, sizeof *steps);
    assert_int_equal(mist_workbench_open(&grid, 2, comm, &place, &bench, NULL), MIST_OK);
    int64_t bytes = 2 * bench.modules[1].n_elements;
    char *before = read_back(bench.device, bench.modules[1].weights, bytes);
    time_all_ops(&bench, steps);
    char *after = read_back(bench.device, bench.modules[1].weights, bytes);
    assert_memory_equal(before, after, (size_t)bytes);
    for (int32_t i = 0; i < grid.n_keys; i++)
        assert_true(steps[i].n > 0);
    char *activations = read_back(bench.device, bench.boundary[2], 2 * 2 * 16 * 32);
    float *values = malloc(sizeof(float) * 2 * 16 * 32);
    assert_non_null(values);
    mist_cpu_bf16_to_float(values, (const mist_bf16 *)(const void *)activations,
                           2 * 16 * 32);
    double sum = 0;
    for (int i = 0; i < 2 * 16 * 32; i++)
        sum += fabs((double)values[i]);
    assert_true(isfinite(sum) && sum > 1e-3);
    free(values);
    free(activations);
    free(before);
    free(after);
    free(steps);
    mist_workbench_close(&bench);
    mist_grid_fini(&grid);
    mist_comm_close(comm);
}

/* Products are timed with the algorithms that a run would choose, also with --quick. */
TEST(quick_sessions_choose_products)
{
    const struct mist_backend *backend = mist_emulated_backend();
    struct mist_bench_place place = place_of(backend);
    struct scratch scratch;
    struct mist_grid grid;
    struct mist_workbench bench;
    char line[256];

    if (!backend)
        skip();
    scratch_init(&scratch);
    setenv("MIST_CUDA_ALGORITHMS", scratch_path(&scratch, "choices.csv"), 1);
    assert_int_equal(mist_comm_open(&comm, NULL), MIST_OK);
    make_grid(backend, MIST_FAMILY_LLAMA, MIST_DTYPE_FP32, 1, &grid);
    assert_true(grid.config.is_quick);
    assert_int_equal(mist_workbench_open(&grid, 1, comm, &place, &bench, NULL), MIST_OK);
    mist_workbench_close(&bench);
    mist_grid_fini(&grid);
    mist_comm_close(comm);
    FILE *choices = fopen(scratch.path, "r");
    assert_non_null(choices);
    int n = 0;
    while (fgets(line, sizeof line, choices))
        n += strncmp(line, "emulated,", 9) == 0;
    fclose(choices);
    assert_true(n >= 12); /* four layers, forward and backward */
    setenv("MIST_CUDA_ALGORITHMS", "", 1);
    scratch_visit(&scratch, 1);
    assert_int_equal(rmdir(scratch.folder), 0);
}

/* ---- links ---- */

TEST(copies_move_bytes_between_the_arenas)
{
    static const enum mist_link_operation operations[] = {MIST_LINK_HOST_TO_DEVICE,
                                                          MIST_LINK_DEVICE_TO_HOST};

    assert_int_equal(mist_comm_open(&comm, NULL), MIST_OK);
    for (int k = 0; k < 4; k++) {
        struct mist_bench_place place =
            place_of(k < 2 ? &async_backend : &async_recording_backend);
        struct mist_grid grid;
        struct mist_workbench bench;
        struct mist_estimate estimate;
        make_grid(place.backend, MIST_FAMILY_GPT, MIST_DTYPE_FP32, 1, &grid);
        for (int32_t i = 0; i < grid.n_messages; i++)
            if (grid.messages[i].operation == operations[k % 2])
                grid.messages[0] = grid.messages[i];
        grid.n_messages = 1;
        assert_int_equal(mist_workbench_open(&grid, 1, comm, &place, &bench, NULL),
                         MIST_OK);
        char *from = k % 2 ? bench.message : bench.host;
        char *to = k % 2 ? bench.host : bench.message;
        int64_t n = grid.messages[0].bytes;
        char *bytes = malloc((size_t)n);
        assert_non_null(bytes);
        memset(bytes, 0x5a, (size_t)n);
        for (int64_t at = 0; at + n <= bench.host_bytes; at += n)
            assert_int_equal(mist_device_write(bench.device, from + at, bytes, n, NULL),
                             MIST_OK);
        time_all_links(&bench, &estimate);
        assert_true(estimate.n > 0 && estimate.mean > 0);
        char *came = read_back(bench.device, to, n);
        assert_memory_equal(came, bytes, (size_t)n);
        free(came);
        free(bytes);
        mist_workbench_close(&bench);
        mist_grid_fini(&grid);
    }
    mist_comm_close(comm);
}

/* ---- sessions ---- */

static bool has_library(const struct mist_cluster *cluster, const char *name,
                        const char *version)
{
    for (int i = 0; i < cluster->n_libraries; i++)
        if (strcmp(cluster->libraries[i].name, name) == 0)
            return strcmp(cluster->libraries[i].version, version) == 0;
    return false;
}

static void check_cluster(const struct mist_cluster *cluster, bool records,
                          enum mist_trace_dtype dtype)
{
    assert_string_equal(cluster->name, "Made-up 9000");
    assert_int_equal(cluster->backend, MIST_TRACE_CUDA);
    assert_int_equal(cluster->device_threads, 0);
    assert_int_equal(cluster->devices_per_node, 1);
    assert_true(cluster->device_memory_bytes == (int64_t)8 << 30);
    assert_true(has_library(cluster, "driver", "1.2"));
    assert_true(has_library(cluster, "CUDA", "13.0"));
    assert_true(has_library(cluster, "NCCL", "2.28"));
    assert_true(cluster->launch_us >= 0 && cluster->memory_bytes_per_s > 0);
    for (int i = 0; i < MIST_N_TRACE_DTYPES; i++)
        assert_int_equal(cluster->peak_flop_per_s[i] > 0, i == (int)dtype);
    assert_int_equal(cluster->runtime_memory_bytes, records ? 12345 : 0);
    assert_non_null(strstr(cluster->how_measured, "132 processors at 2.00 GHz"));
}

TEST(sessions_have_the_same_rows_on_any_device)
{
    static const struct mist_backend *const backends[] = {&async_backend,
                                                          &async_recording_backend};
    struct mist_profile_report report;
    struct mist_trace_set plain, other;
    struct mist_grid grid;

    assert_int_equal(mist_comm_open(&comm, NULL), MIST_OK);
    make_grid(cpu_backend(), MIST_FAMILY_GPT, MIST_DTYPE_FP32, 1, &grid);
    assert_int_equal(run_session(comm, &grid, cpu_backend(), &plain, &report), MIST_OK);
    mist_grid_fini(&grid);
    for (int k = 0; k < 4; k++) {
        enum mist_dtype dtype = k < 2 ? MIST_DTYPE_FP32 : MIST_DTYPE_BF16;
        enum mist_trace_dtype word = k < 2 ? MIST_TRACE_FP32 : MIST_TRACE_BF16;
        make_grid(backends[k % 2], MIST_FAMILY_GPT, dtype, 1, &grid);
        assert_int_equal(run_session(comm, &grid, backends[k % 2], &other, &report),
                         MIST_OK);
        assert_int_equal(other.n_kernels, grid.n_keys);
        assert_int_equal(other.n_links, grid.n_messages);
        if (dtype == MIST_DTYPE_FP32)
            assert_true(has_same_rows(&other, &plain, word));
        else
            assert_true(has_same_rows(&other, &other, word));
        check_cluster(&other.cluster, k % 2 == 1, word);
        mist_trace_set_fini(&other);
        mist_grid_fini(&grid);
    }
    mist_trace_set_fini(&plain);
    mist_comm_close(comm);
}

/* Every operator that was timed is in the table as often as it was, with its one kernel
 * ("async", or the emulator's). */
static bool is_table_of(const struct mist_op_table *ops,
                        const struct mist_trace_set *traces)
{
    int64_t n_launches = 0, n_calls = 0, n_repetitions = 0;
    size_t n_on_host = 0; /* which has no kernels */
    double kernels_s = 0, calls_s = 0;

    for (size_t i = 0; i < ops->n_kernels; i++) {
        n_launches += ops->kernels[i].n_launches;
        kernels_s += ops->kernels[i].time_s;
    }
    for (size_t i = 0; i < ops->n_rows; i++) {
        bool is_on_host = strcmp(ops->rows[i].op, "adamw_host") == 0;
        n_on_host += is_on_host && ops->rows[i].n_calls > 0;
        n_calls += is_on_host ? 0 : ops->rows[i].n_calls;
        calls_s += is_on_host ? 0 : ops->rows[i].time_s;
    }
    for (size_t i = 0; i < traces->n_kernels; i++)
        if (strcmp(traces->kernels[i].op, "adamw_host") != 0)
            n_repetitions += traces->kernels[i].repetitions;
    return ops->n_rows == traces->n_kernels &&
           ops->n_kernels + n_on_host == traces->n_kernels && n_launches == n_calls &&
           n_calls >= n_repetitions && kernels_s > 0 && kernels_s <= calls_s * 1.000001;
}

/* What a rank loses is done again; what is lost again and again ends the session. */
TEST(lost_runs_are_repeated)
{
    struct mist_profile_report report;
    struct mist_trace_set traces;
    struct mist_op_table ops;
    struct mist_grid grid;
    int n_collects[2];

    assert_int_equal(mist_comm_open(&comm, NULL), MIST_OK);
    make_grid(&async_recording_backend, MIST_FAMILY_GPT, MIST_DTYPE_FP32, 1, &grid);
    for (int n_lost = 0; n_lost <= 3; n_lost += 3) {
        mist_op_table_init(&ops);
        session_ops = &ops;
        async_n_losses = n_lost;
        async_n_collects = 0;
        assert_int_equal(
            run_session(comm, &grid, &async_recording_backend, &traces, &report),
            MIST_OK);
        assert_int_equal(report.n_repeated, n_lost);
        assert_int_equal(traces.n_kernels, grid.n_keys);
        assert_true(is_table_of(&ops, &traces));
        mist_trace_set_fini(&traces);
        mist_op_table_fini(&ops);
        n_collects[n_lost > 0] = async_n_collects;
    }
    print_message("# %d collects, %d with losses\n", n_collects[0], n_collects[1]);
    session_ops = NULL;
    async_n_losses = INT_MAX;
    async_n_collects = 0;
    assert_int_equal(run_session(comm, &grid, &async_recording_backend, &traces, &report),
                     MIST_ERR_RUN);
    assert_int_equal(async_n_collects, 4);
    async_n_losses = 0;
    mist_trace_set_fini(&traces);
    mist_grid_fini(&grid);
    mist_comm_close(comm);
}

/* Two ranks that share a device: their messages go through memory of the host. */
static int run_rank(const char *mode)
{
    const struct mist_backend *backend =
        strcmp(mode, "plain") == 0 ? &async_backend : &async_recording_backend;
    bool loses = strcmp(mode, "loses") == 0;
    struct mist_profile_report report;
    struct mist_trace_set traces;
    struct mist_op_table ops;
    struct mist_grid grid;

    join_job();
    make_grid(backend, MIST_FAMILY_GPT, MIST_DTYPE_FP32, n_ranks, &grid);
    mist_op_table_init(&ops);
    session_ops = &ops;
    async_n_losses = loses && rank == 1 ? 3 : 0; /* rank 0 repeats, too */
    CHECK(run_session(comm, &grid, backend, &traces, &report) == MIST_OK);
    CHECK(report.n_repeated == (loses ? 3 : 0));
    if (rank == 0 && strcmp(mode, "plain") != 0)
        CHECK(is_table_of(&ops, &traces));
    mist_op_table_fini(&ops);
    if (rank == 0) {
        CHECK(traces.n_kernels == (size_t)grid.n_keys);
        CHECK(traces.n_links == (size_t)grid.n_messages);
        CHECK(traces.n_interferences == 48);
        CHECK(has_same_rows(&traces, &traces, MIST_TRACE_FP32));
        CHECK(traces.cluster.device_memory_bytes == (int64_t)4 << 30);
    }
    mist_trace_set_fini(&traces);
    mist_grid_fini(&grid);
    mist_comm_close(comm);
    return 0;
}

TEST(ranks_may_share_a_device)
{
    need_mpirun();
    run_good_job(2, "", "records");
    run_good_job(2, "", "loses");
    run_good_job(2, "", "plain");
}

/* CUDA's own operators and device, as far as an emulator goes. */
TEST(cuda_has_the_same_rows)
{
    const struct mist_backend *backend = mist_emulated_backend();
    struct mist_profile_report report;
    struct mist_trace_set plain, other;
    struct mist_op_table ops;
    struct mist_grid grid;

    if (!backend || !getenv("MIST_SLOW")) {
        print_message(backend ? "takes 10 s: only with MIST_SLOW=1\n"
                              : "built without CUDA's headers\n");
        skip();
    }
    assert_int_equal(mist_comm_open(&comm, NULL), MIST_OK);
    make_grid(cpu_backend(), MIST_FAMILY_LLAMA, MIST_DTYPE_FP32, 1, &grid);
    assert_int_equal(run_session(comm, &grid, cpu_backend(), &plain, &report), MIST_OK);
    mist_grid_fini(&grid);
    make_grid(backend, MIST_FAMILY_LLAMA, MIST_DTYPE_FP32, 1, &grid);
    mist_op_table_init(&ops);
    session_ops = &ops;
    assert_int_equal(run_session(comm, &grid, backend, &other, &report), MIST_OK);
    assert_true(has_same_rows(&other, &plain, MIST_TRACE_FP32));
    assert_true(is_table_of(&ops, &other));
    session_ops = NULL;
    mist_op_table_fini(&ops);
    mist_trace_set_fini(&other);
    mist_trace_set_fini(&plain);
    mist_grid_fini(&grid);
    mist_comm_close(comm);
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return run_rank(argv[1]);
    program = argv[0];
    setenv("MIST_EMULATION_STREAMS", "lazy", 1); /* what is held waits for its release */
    return run_listed_tests(NULL, NULL);
}
