/*
 * Traces of torch.profiler as recorded jobs: random programs of several ranks are simulated
 * here, by formulas that are repeated until nothing changes, and written as traces; what is
 * read must give the same times, and with edits those of the formulas with other durations.
 * The traces of eight ranks that the reference material has must come back as recorded, and
 * edited like the longest path, found by going over the graph until nothing changes.
 */
#include "tests/unit/test.h"

#include "tests/unit/reference_path.h"
#include "tests/unit/scratch.h"

#include "core/random.h"
#include "sim/recorded/recorded_costs.h"
#include "sim/recorded/recorded_study.h"
#include "sim/recorded/recording.h"

#include <math.h>

/* ------------------------------------------------------------------------ naive ranks */

enum { MOST_RANKS = 3, MOST_ITEMS = 40, N_STREAMS = 3, FIRST_STREAM = 7 };
enum { COMPUTE, SIDE, MESSAGES }; /* streams */
enum { MATMUL, ADD, MESSAGE, SYNC };

/* The same on all ranks. */
struct item {
    int what;
    int stream;
    int waits_for; /* item of another stream; -1: none */
};

struct times {
    double think_us, call_us, gap_us, work_us; /* drawn */
    double call_start_us, call_end_us, start_us, end_us;
};

struct naive {
    int n_ranks, n_items;
    double clock_us[MOST_RANKS]; /* how far each is ahead of the first */
    bool says_all; /* events and groups are named; else there are two streams only */
    struct item items[MOST_ITEMS];
    struct times times[MOST_RANKS][MOST_ITEMS];
};

static int last_of(const struct naive *job, int stream, int before)
{
    for (int i = before - 1; i >= 0; i--)
        if (job->items[i].what != SYNC && job->items[i].stream == stream)
            return i;
    return -1;
}

static void draw(struct naive *job, struct mist_random *random)
{
    memset(job, 0, sizeof *job);
    job->n_ranks = 1 + (int)mist_random_below(random, MOST_RANKS);
    job->n_items = 1 + (int)mist_random_below(random, MOST_ITEMS);
    job->says_all = mist_random_below(random, 2);
    for (int i = 0; i < job->n_items; i++) {
        struct item *item = &job->items[i];
        item->what = (int)mist_random_below(random, i == 0 ? MESSAGE : SYNC + 1);
        item->stream = item->what == MESSAGE ? MESSAGES
                       : job->says_all       ? (int)mist_random_below(random, 2)
                                             : COMPUTE;
        int source = job->says_all ? (int)mist_random_below(random, N_STREAMS)
                                   : MESSAGES - item->stream;
        bool waits =
            item->what != SYNC && source != item->stream && mist_random_below(random, 2);
        item->waits_for = waits ? last_of(job, source, i) : -1;
        for (int r = 0; r < job->n_ranks; r++)
            job->times[r][i] = (struct times){
                .think_us = r + i > 0 ? 5 + 20 * mist_random_uniform(random) : 0,
                .call_us = 1 + 5 * mist_random_uniform(random),
                .gap_us = mist_random_uniform(random),
                .work_us = 1 + 80 * mist_random_uniform(random)};
    }
}

static bool later(double *at_us, double us)
{
    bool is_later = us > *at_us;

    if (is_later)
        *at_us = us;
    return is_later;
}

static bool relax(struct naive *job, int r, int i)
{
    const struct item *item = &job->items[i];
    struct times *times = job->times[r], *own = &times[i];
    double free_us = i > 0 ? times[i - 1].call_end_us : 0, latest_us;
    bool is_changed = later(&own->call_start_us, free_us + own->think_us);

    if (item->what == SYNC) {
        latest_us = own->call_start_us;
        for (int s = 0; s < N_STREAMS; s++)
            if (last_of(job, s, i) >= 0)
                latest_us = fmax(latest_us, times[last_of(job, s, i)].end_us);
        return is_changed | later(&own->call_end_us, latest_us + own->call_us);
    }
    int before = last_of(job, item->stream, i);
    is_changed |= later(&own->call_end_us, own->call_start_us + own->call_us);
    latest_us = fmax(own->call_end_us, before >= 0 ? times[before].end_us : 0);
    if (item->waits_for >= 0)
        latest_us = fmax(latest_us, times[item->waits_for].end_us);
    is_changed |= later(&own->start_us, latest_us + own->gap_us);
    latest_us = own->start_us;
    for (int k = 0; k < job->n_ranks && item->what == MESSAGE; k++)
        latest_us = fmax(latest_us, job->times[k][i].start_us);
    return is_changed | later(&own->end_us, latest_us + own->work_us);
}

/* How long it takes, all ranks together. */
static double simulate(struct naive *job)
{
    bool is_changed = true;
    double last_us = 0;

    for (int r = 0; r < job->n_ranks; r++)
        for (int i = 0; i < job->n_items; i++) {
            struct times *own = &job->times[r][i];
            own->call_start_us = own->call_end_us = own->start_us = own->end_us = 0;
        }
    while (is_changed) {
        is_changed = false;
        for (int r = 0; r < job->n_ranks; r++)
            for (int i = 0; i < job->n_items; i++)
                is_changed |= relax(job, r, i);
    }
    for (int r = 0; r < job->n_ranks; r++)
        for (int i = 0; i < job->n_items; i++)
            last_us = fmax(last_us,
                           fmax(job->times[r][i].call_end_us, job->times[r][i].end_us));
    return last_us;
}

/* ------------------------------------------------------------------------------ traces */

#define BEGIN_US 1e6

static double begin_us; /* of the rank whose events are written */
static bool times_are_texts;

static void write_event(FILE *file, const char *category, const char *name, int tid,
                        double start_us, double end_us)
{
    double duration_us = end_us - start_us;
    bool is_call = strcmp(category, "cuda_runtime") == 0;
    const char *quote = times_are_texts ? "\"" : "";

    fprintf(
        file,
        ",\n{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": 1, \"tid\": %d, "
        "\"ts\": %s%.17g%s",
        category, name, tid, quote, begin_us + start_us, quote);
    if (duration_us != 0 || !is_call || !times_are_texts) /* left out: it took no time */
        fprintf(file, ", \"dur\": %s%.17g%s", quote, duration_us, quote);
}

static void write_call(FILE *file, const char *name, int correlation, double start_us,
                       double end_us)
{
    write_event(file, "cuda_runtime", name, 99, start_us, end_us);
    fprintf(file, ", \"args\": {\"correlation\": %d}}", correlation);
}

/* The stream is made to wait, shortly before the launch. */
static void write_wait(FILE *file, const struct naive *job, int r, int i)
{
    const struct item *item = &job->items[i];
    double us = job->times[r][i].call_start_us;

    write_call(file, "cudaEventRecord", 1000 + i, us - 3, us - 3);
    write_call(file, "cudaStreamWaitEvent", 2000 + i, us - 2, us - 2);
    if (!job->says_all)
        return;
    write_event(file, "cuda_sync", "Stream Wait Event", 7, us - 2, us - 2);
    fprintf(file,
            ", \"args\": {\"correlation\": %d, \"stream\": %d, \"wait_on_stream\": %d, "
            "\"wait_on_cuda_event_record_corr_id\": %d}}",
            2000 + i, FIRST_STREAM + item->stream,
            FIRST_STREAM + job->items[item->waits_for].stream, 1000 + i);
}

static void write_item(FILE *file, const struct naive *job, int r, int i)
{
    static const char *const names[] = {"ampere_fp16_s16816gemm_tn",
                                        "void at::vectorized_elementwise_kernel<4>",
                                        "ncclDevKernel_AllReduce_Sum_f16_RING_LL"};
    const struct item *item = &job->items[i];
    const struct times *own = &job->times[r][i];

    if (item->waits_for >= 0)
        write_wait(file, job, r, i);
    write_call(file, item->what == SYNC ? "cudaDeviceSynchronize" : "cudaLaunchKernel",
               3000 + i, own->call_start_us, own->call_end_us);
    if (item->what == SYNC)
        return;
    if (item->what == MESSAGE) { /* what the wrapper waits for is its own business */
        double us = (own->call_start_us + own->call_end_us) / 2;
        write_event(file, "user_annotation", "nccl:all_reduce", 99, own->call_start_us,
                    own->call_end_us);
        fputs(", \"args\": {}}", file);
        write_call(file, "cudaStreamWaitEvent", 4000 + i, us, us);
    }
    write_event(file, "kernel", names[item->what], FIRST_STREAM + item->stream,
                own->start_us, own->end_us);
    fprintf(file, ", \"args\": {\"correlation\": %d, \"stream\": %d%s}}", 3000 + i,
            FIRST_STREAM + item->stream,
            item->what == MESSAGE && job->says_all
                ? ", \"Process Group Name\": \"tp\", \"Process Group Ranks\": \"[0, 1]\""
                : "");
}

static void write_traces(const struct naive *job, struct scratch *scratch)
{
    for (int r = 0; r < job->n_ranks; r++) {
        char name[32];
        snprintf(name, sizeof name, "rank%d.json", 9 - r); /* not in their order */
        FILE *file = fopen(scratch_path(scratch, name), "w");
        assert_non_null(file);
        begin_us = BEGIN_US + job->clock_us[r];
        times_are_texts = r % 2 == 1;
        fprintf(file,
                "{\n\"schemaVersion\": 1,\n\"distributedInfo\": {\"rank\": %d, "
                "\"world_size\": %d},\n\"traceEvents\": [\n{\"ph\": \"M\"}",
                r, job->n_ranks);
        for (int i = job->n_items - 1; i >= 0; i--)
            write_item(file, job, r, i);
        fputs("\n],\n\"traceName\": \"x\"}\n", file);
        assert_int_equal(fclose(file), 0);
    }
}

static void read_traces(const char *names, struct mist_recorded_job *job,
                        struct mist_arena *arena)
{
    struct mist_operations table;
    struct mist_err err = {0};

    mist_arena_init(arena);
    must(mist_recorded_read(&names, 1, &table, job, NULL, arena, &err), &err);
}

/* The job as edited, in us. */
static double edited_us(const char *names, const char *edit)
{
    struct mist_recorded_job job;
    struct mist_recorded_times times;
    struct mist_arena arena;
    struct mist_err err = {0};
    int64_t n_changed = 0;

    read_traces(names, &job, &arena);
    assert_true(mist_recorded_times_alloc(&job, &arena, &times));
    must(mist_recorded_edit(&job, edit, &n_changed, &err), &err);
    mist_recorded_replay(&job, job.gap_s, job.work_s, &times);
    double edited_s = mist_recorded_span_s(&job, &times);
    mist_arena_fini(&arena);
    return 1e6 * edited_s;
}

/* ------------------------------------------------------------------------------- tests */

static void near(double value, double expected, const char *what)
{
    if (fabs(value - expected) > 1e-6 * (1 + fabs(expected)))
        fail_msg("%s: %.12g, expected %.12g", what, value, expected);
}

/* The naive job with some durations times a factor: of items of a kind, of a rank (-1: all),
 * or of everything that is no work. */
static double naive_us(const struct naive *drawn, int what, int rank, double factor)
{
    struct naive job = *drawn;

    for (int r = 0; r < job.n_ranks; r++)
        for (int i = 0; i < job.n_items; i++) {
            struct times *own = &job.times[r][i];
            bool is_meant = job.items[i].what == what && (rank < 0 || rank == r);
            own->work_us *= is_meant ? factor : 1;
            if (what < 0) {
                own->think_us *= factor;
                own->call_us *= factor;
                own->gap_us *= factor;
            }
        }
    return simulate(&job);
}

static bool has(const struct naive *job, int what)
{
    for (int i = 0; i < job->n_items; i++)
        if (job->items[i].what == what)
            return true;
    return false;
}

static void check_costs(const char *names, const struct naive *naive, double us)
{
    struct mist_recorded_job job;
    struct mist_recorded_costs costs;
    struct mist_arena arena;
    struct mist_err err = {0};

    read_traces(names, &job, &arena);
    must(mist_recorded_costs_begin(&costs, &job, NULL, 0, &arena, &err), &err);
    must(mist_recorded_costs_add(&costs, &job, &err), &err);
    must(mist_recorded_costs_end(&costs, &err), &err);
    near(1e6 * costs.recorded_s, us, "recorded");
    near(1e6 * costs.replayed_s, us, "unchanged");
    near(1e6 * costs.without_launch_s, naive_us(naive, -1, -1, 0), "without launches");
    assert_int_equal(job.n_replicas, naive->n_ranks);
    assert_int_equal(job.n_contradictions + job.n_unlaunched + costs.n_late, 0);
    if (naive->n_ranks > 1)
        assert_int_equal(job.n_unmatched, 0);
    mist_arena_fini(&arena);
}

TEST(test_random_ranks)
{
    static struct naive job;
    struct mist_random random;
    struct scratch scratch;

    mist_random_init(&random, test_seed(1515));
    for (int i = 0; i < 200; i++) {
        scratch_init(&scratch);
        draw(&job, &random);
        double us = simulate(&job);
        write_traces(&job, &scratch);
        check_costs(scratch.folder, &job, us);
        near(edited_us(scratch.folder, "launch=none"), naive_us(&job, -1, -1, 0),
             "no launch");
        near(edited_us(scratch.folder, "launch=2x"), naive_us(&job, -1, -1, 0.5),
             "half a launch");
        if (has(&job, MATMUL)) {
            near(edited_us(scratch.folder, "kernel.matmul=2x"),
                 naive_us(&job, MATMUL, -1, 0.5), "matmul");
            if (!has(&job, ADD))
                near(edited_us(scratch.folder, "rank.0=0.25x"),
                     naive_us(&job, MATMUL, 0, 4), "straggler");
        }
        if (has(&job, MESSAGE))
            near(edited_us(scratch.folder, "link.all_reduce=0.25x"),
                 naive_us(&job, MESSAGE, -1, 4), "link");
        scratch_fini(&scratch);
    }
}

/* Where messages end for all at once, it does not matter that clocks differ. */
TEST(test_clocks)
{
    static struct naive job;
    struct mist_random random;
    struct scratch scratch;

    mist_random_init(&random, test_seed(1515));
    for (int i = 0; i < 50; i++) {
        scratch_init(&scratch);
        do {
            draw(&job, &random);
        } while (!has(&job, MESSAGE) || job.n_ranks == 1);
        for (int r = 1; r < job.n_ranks; r++) {
            job.clock_us[r] =
                (r == 1 ? 1 : -1) * (100 + 4000 * mist_random_uniform(&random));
            for (int k = 0; k < job.n_items; k++)
                if (job.items[k].what == MESSAGE)
                    job.times[r][k].work_us = job.times[0][k].work_us;
        }
        double us = simulate(&job);
        write_traces(&job, &scratch);
        check_costs(scratch.folder, &job, us);
        near(edited_us(scratch.folder, "launch=2x"), naive_us(&job, -1, -1, 0.5),
             "half a launch");
        scratch_fini(&scratch);
    }
}

/* -------------------------------------------------------------------------- refusals */

#define HEAD(rank, n)                                                                    \
    "{\"distributedInfo\": {\"rank\": " #rank ", \"world_size\": " #n                    \
    "},\n\"traceEvents\": [\n"
#define KERNEL(name, ts)                                                                 \
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"" name "\", \"ts\": " #ts          \
    ", \"dur\": 5, \"args\": {\"stream\": 7, \"correlation\": 1}}"
#define END "\n]}\n"

TEST(test_refusals)
{
#define A HEAD(0, 2) KERNEL("ncclDevKernel_AllReduce", 10) END
    static const struct {
        const char *texts[2], *says;
        int i_file; /* that is named; -1: the folder */
        long line;
    } cases[] = {
        {{A, "{\"traceEvents\": 3}"}, "is no list of events", 1, 1},
        {{A, "{\"schemaVersion\": 1}"}, "has no \"traceEvents\"", 1, 0},
        {{A, HEAD(1, 2) "{\"ph\": \"X\", \"cat\""}, "was cut", 1, 3},
        {{A, HEAD(1, 2) KERNEL("k", 9)}, "was cut", 1, 3},
        {{A, HEAD(1, 2) KERNEL("k", 9) ",\n{\"ph\": X}" END}, "", 1, 4},
        {{A, "{\"distributedInfo\": {\"rank\": }, \"traceEvents\": [" END}, "", 1, 1},
        {{A, HEAD(1, 2) KERNEL("k", -9) END}, "ts", 1, 3},
        {{A, HEAD(1, 2) KERNEL("k", "now") END},
         "ts: expected a time in us, found",
         1,
         3},
        {{A, HEAD(1, 2) END}, "has nothing that ran on a device", 1, 0},
        {{A, HEAD(1, 4) KERNEL("k", 9) END}, "is of a job of 4 ranks", 1, 0},
        {{A, A}, "is of rank 0, as", 1, 0},
        {{HEAD(0, 3) KERNEL("k", 9) END, HEAD(2, 3) KERNEL("k", 9) END},
         "rank 1 is missing",
         0,
         0},
        {{A, HEAD(1, 2) KERNEL("ncclDevKernel_AllReduce", 5000010) END},
         "was recorded 5 s apart",
         1,
         0},
        {{A, HEAD(1, 2) KERNEL("ncclDevKernel_AllGather", 11) END},
         "no message that matches",
         0,
         0},
        {{A,
          HEAD(1, 2) KERNEL("k", 12) ",\n" KERNEL("ncclDevKernel_AllReduce", 30010) END},
         "no message that matches",
         0,
         0},
        {{A, "{\"traceEvents\": [" KERNEL("k", 9) END}, "is of a job of 0 ranks", 1, 0},
        {{NULL, NULL}, "has no traces", -1, 0},
    };
    struct scratch scratch;
    struct mist_recorded_job job;
    struct mist_arena arena;

    mist_arena_init(&arena);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const char *const names[] = {"a.json", "b.json"};
        struct mist_err err = {0};
        scratch_init(&scratch);
        for (int k = 0; k < 2 && cases[i].texts[k]; k++)
            scratch_write(scratch_path(&scratch, names[k]), cases[i].texts[k]);
        const char *path = cases[i].i_file < 0
                               ? scratch.folder
                               : scratch_path(&scratch, names[cases[i].i_file]);
        const char *folder = scratch.folder;
        struct mist_operations table;
        enum mist_status status =
            mist_recorded_read(&folder, 1, &table, &job, NULL, &arena, &err);
        if (status != MIST_ERR_INPUT || !strstr(err.message, cases[i].says) ||
            err.line != cases[i].line || strcmp(err.path, path) != 0)
            fail_msg("%zu: %d, %s:%ld: %s", i, (int)status, err.path, err.line,
                     err.message);
        scratch_fini(&scratch);
    }
    mist_arena_fini(&arena);
}

/* --------------------------------------------------------------- a real job, 8 ranks */

/* The longest path, by going over the graph until nothing changes. */
static double longest_path_s(const struct mist_recorded_job *job)
{
    double *start_s = calloc((size_t)job->n_ops, sizeof *start_s);
    double *end_s = calloc((size_t)job->n_ops, sizeof *end_s);
    double *all_there_s = malloc(((size_t)job->n_meetings + 1) * sizeof *all_there_s);
    double first_s = INFINITY, last_s = -INFINITY;
    bool is_changed = true;

    assert_true(start_s && end_s && all_there_s);
    while (is_changed) {
        is_changed = false;
        for (int32_t m = 0; m < job->n_meetings; m++)
            all_there_s[m] = -INFINITY;
        for (int64_t i = 0; i < job->n_ops; i++) {
            double ready_s = 0;
            for (int64_t k = job->dep_offset[i]; k < job->dep_offset[i + 1]; k++)
                ready_s = fmax(ready_s, end_s[job->dep[k]]);
            start_s[i] = ready_s + job->gap_s[i];
            if (job->ops[i].meeting >= 0)
                all_there_s[job->ops[i].meeting] =
                    fmax(all_there_s[job->ops[i].meeting], start_s[i]);
        }
        for (int64_t i = 0; i < job->n_ops; i++) {
            int32_t m = job->ops[i].meeting;
            double new_s = (m >= 0 ? all_there_s[m] : start_s[i]) + job->work_s[i];
            is_changed |= new_s != end_s[i];
            end_s[i] = new_s;
        }
    }
    for (int64_t i = 0; i < job->n_ops; i++) {
        first_s = fmin(first_s, start_s[i]);
        last_s = fmax(last_s, end_s[i]);
    }
    free(start_s);
    free(end_s);
    free(all_there_s);
    return last_s - first_s;
}

/* The folder of the traces; false: the reference material is not there. */
TEST(test_eight_ranks)
{
    static const char *const edits[] = {"launch=none",      "kernel.all=2x",
                                        "kernel.matmul=2x", "link.all=0.5x",
                                        "launch=4x",        "rank.3=0.75x"};
    struct mist_recorded_job job;
    struct mist_recorded_costs costs;
    struct mist_recorded_times times;
    struct mist_arena arena;
    struct mist_err err = {0};
    char path[REFERENCE_PATH_BYTES];

    if (!find_reference("kineto_tp8", path))
        skip();
    read_traces(path, &job, &arena);
    must(mist_recorded_costs_begin(&costs, &job, NULL, 0, &arena, &err), &err);
    must(mist_recorded_costs_add(&costs, &job, &err), &err);
    must(mist_recorded_costs_end(&costs, &err), &err);
    assert_int_equal(job.n_replicas, 8);
    assert_int_equal(job.n_contradictions + job.n_unlaunched + job.n_unmatched, 0);
    assert_true(fabs(costs.replayed_s / costs.recorded_s - 1) <= 0.001);
    assert_true(costs.worst_frac <= 0.005);
    size_t n_bytes = (size_t)job.n_ops * sizeof(double);
    double *gap_s = malloc(n_bytes), *work_s = malloc(n_bytes);
    assert_true(gap_s && work_s && mist_recorded_times_alloc(&job, &arena, &times));
    print_message("recorded %.6f s, replayed %.6f s, worst rank %.4f %%\n",
                  costs.recorded_s, costs.replayed_s, 100 * costs.worst_frac);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        memcpy(gap_s, job.gap_s, n_bytes);
        memcpy(work_s, job.work_s, n_bytes);
        int64_t n_changed = 0;
        must(mist_recorded_edit(&job, edits[i], &n_changed, &err), &err);
        mist_recorded_replay(&job, job.gap_s, job.work_s, &times);
        double us = 1e6 * mist_recorded_span_s(&job, &times);
        near(us, 1e6 * longest_path_s(&job), edits[i]);
        print_message("%s: %.1f us\n", edits[i], us);
        memcpy(job.gap_s, gap_s, n_bytes);
        memcpy(job.work_s, work_s, n_bytes);
    }
    free(gap_s);
    free(work_s);
    mist_arena_fini(&arena);
}

TEST_MAIN(NULL, NULL)
