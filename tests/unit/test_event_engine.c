/* sim/event_engine: small graphs whose times can be checked by hand,
 * invalid graphs, deadlocks. */
#include "tests/unit/test.h"

#include "sim/engine/event_engine.h"

#include <float.h>
#include <math.h>

#define CO MIST_STREAM_COMPUTE
#define GG MIST_STREAM_GPU_GPU
#define HD MIST_STREAM_HOST_TO_DEVICE
#define DH MIST_STREAM_DEVICE_TO_HOST

/* A graph of at most 8 tasks is written down as a table, device by device; dependencies
 * are a bit mask of the table's rows of the same device. */
struct row {
    int32_t device;
    int channel;
    double work_s;
    unsigned deps;
    int group; /* 0: none, k: group k - 1. Each row has a lane of its own */
};

enum { N_DEVICES = 3 };

struct small {
    struct mist_event_graph g;
    struct mist_event_program program[N_DEVICES];
    struct mist_event_device device[N_DEVICES];
    int32_t dep_offset[N_DEVICES][9], dep[N_DEVICES][64], lane[N_DEVICES][8],
        group[N_DEVICES][8];
    uint8_t channel[N_DEVICES][8];
    double work_s[N_DEVICES][8];
    int n_rows;
    struct mist_arena arena;
    struct mist_event_engine *engine;
    struct mist_event_result r;
    struct mist_err err;
};

static void set_up(struct small *s, int n, const struct row *rows)
{
    int32_t first[N_DEVICES] = {0};

    *s = (struct small){.n_rows = n};
    mist_arena_init(&s->arena);
    for (int i = n - 1; i >= 0; i--)
        first[rows[i].device] = i;
    for (int d = 0; d < N_DEVICES; d++) {
        struct mist_event_program *p = &s->program[d];
        *p = (struct mist_event_program){.channel = s->channel[d],
                                         .dep_offset = s->dep_offset[d],
                                         .dep = s->dep[d],
                                         .lane = s->lane[d]};
        s->device[d] = (struct mist_event_device){.program = d,
                                                  .work_s = s->work_s[d],
                                                  .group = s->group[d],
                                                  .is_recorded = true};
    }
    for (int i = 0; i < n; i++) {
        int d = rows[i].device, n_deps = s->dep_offset[d][s->program[d].n_tasks];
        int at = s->program[d].n_tasks++;
        s->channel[d][at] = (uint8_t)rows[i].channel;
        s->work_s[d][at] = rows[i].work_s;
        s->lane[d][at] = -1;
        if (rows[i].group) {
            s->group[d][s->program[d].n_lanes] = rows[i].group - 1;
            s->lane[d][at] = s->program[d].n_lanes++;
        }
        for (int k = 0; k < 8; k++)
            if (rows[i].deps >> k & 1u)
                s->dep[d][n_deps++] = k - first[d];
        s->dep_offset[d][at + 1] = n_deps;
    }
    s->g = (struct mist_event_graph){.n_programs = N_DEVICES,
                                     .n_devices = N_DEVICES,
                                     .n_groups = 4,
                                     .n_iterations = 1,
                                     .program = s->program,
                                     .device = s->device};
}

static void disturb(struct small *s, const struct mist_interference *factors)
{
    for (int d = 0; d < N_DEVICES; d++)
        s->device[d].interference = factors;
}

static enum mist_status replay(struct small *s)
{
    enum mist_status status =
        mist_event_engine_prepare(&s->engine, &s->g, &s->arena, &s->err);

    return status == MIST_OK ? mist_event_engine_run(s->engine, &s->r, &s->err) : status;
}

/* times: start and end of every row. */
static void expect(struct small *s, const double (*times)[2])
{
    double makespan_s = 0.0;

    must(replay(s), &s->err);
    for (int i = 0; i < s->n_rows; i++) {
        assert_near(s->r.start_s[i], times[i][0], 1e-12);
        assert_near(s->r.end_s[i], times[i][1], 1e-12);
        makespan_s = fmax(makespan_s, times[i][1]);
    }
    assert_near(s->r.makespan_s, makespan_s, 1e-12);
    assert_near(s->r.iteration_end_s[s->g.n_iterations - 1], makespan_s, 1e-12);
    assert_int_equal(s->r.n_tasks, s->g.n_iterations * s->n_rows);
    mist_arena_fini(&s->arena);
}

TEST(test_chain_over_streams)
{
    struct small s;

    set_up(&s, 3, (struct row[]){{0, CO, 1, 0, 0}, {0, GG, 2, 1, 0}, {0, DH, 3, 2, 0}});
    expect(&s, (const double[][2]){{0, 1}, {1, 3}, {3, 6}});
}

/*
 * Task 1 could run at once but task 0, with the lower index, is before it on the stream.
 */
TEST(test_streams_are_first_in_first_out)
{
    struct small s;

    set_up(&s, 4,
           (struct row[]){{0, CO, 1, 1u << 3, 0},
                          {0, CO, 1, 0, 0},
                          {0, GG, 1, 0, 0},
                          {0, HD, 5, 0, 0}});
    expect(&s, (const double[][2]){{5, 6}, {6, 7}, {0, 1}, {0, 5}});
}

TEST(test_diamond)
{
    struct small s;

    set_up(&s, 4,
           (struct row[]){
               {0, CO, 1, 0, 0}, {0, GG, 2, 1, 0}, {0, HD, 5, 1, 0}, {0, CO, 1, 6, 0}});
    expect(&s, (const double[][2]){{0, 1}, {1, 3}, {1, 6}, {6, 7}});
}

/* Rows of two devices in three iterations: device 0 alone would begin its second one at
 * 2, but meets device 1 every time; the stream of row 1 waits for row 0 each time anew. */
TEST(test_iterations_follow_one_another)
{
    struct small s;

    set_up(&s, 4,
           (struct row[]){{0, CO, 2, 0, 0},
                          {0, GG, 1, 1, 1},
                          {1, HD, 5, 0, 0},
                          {1, GG, 1, 1u << 2, 1}});
    s.g.n_iterations = 3;
    expect(&s, (const double[][2]){{12, 14}, {17, 18}, {12, 17}, {17, 18}});
    set_up(&s, 2, (struct row[]){{0, CO, 2, 0, 0}, {0, GG, 3, 0, 0}});
    s.g.n_iterations = 2;
    must(replay(&s), &s.err);
    assert_near(s.r.iteration_end_s[0], 3, 1e-12);
    assert_near(s.r.iteration_end_s[1], 6, 1e-12);
    assert_near(s.r.use[0].busy_s[CO], 2, 1e-12);
    assert_near(s.r.use[0].busy_s[GG], 3, 1e-12);
    assert_near(s.r.use[0].covered_s, 3, 1e-12);
    assert_near(s.r.use[1].covered_s, 0, 1e-12);
    s.g.n_iterations = 3;
    s.g.n_counted = 2;
    must(replay(&s), &s.err);
    assert_near(s.r.use[0].busy_s[CO], 4, 1e-12);
    assert_near(s.r.use[0].covered_s, 6, 1e-12);
    mist_arena_fini(&s.arena);
}

/* Ranks of one program with different work; only one is recorded. */
TEST(test_devices_share_programs)
{
    const double slow_s[] = {2, 1};
    struct small s;

    set_up(&s, 2, (struct row[]){{0, CO, 1, 0, 0}, {0, GG, 1, 1, 1}});
    s.device[1] = s.device[2] = s.device[0];
    s.device[1].work_s = slow_s;
    s.device[0].is_recorded = s.device[2].is_recorded = false;
    must(replay(&s), &s.err);
    assert_int_equal(s.r.n_tasks, 6);
    assert_near(s.r.start_s[0], 0, 1e-12);
    assert_near(s.r.end_s[0], 2, 1e-12);
    assert_near(s.r.start_s[1], 2, 1e-12);
    assert_near(s.r.end_s[1], 3, 1e-12);
    for (int d = 0; d < N_DEVICES; d++)
        assert_near(s.r.use[d].covered_s, d == 1 ? 3 : 2, 1e-12);
    mist_arena_fini(&s.arena);
}

/* Compute 4 and gpu_gpu 3 with factors 2 and 1.5: gpu_gpu ends at 4.5, when compute has
 * done 2.25; the rest runs alone. The other device is of the class
 * without interference. */
TEST(test_overlap_with_slowdowns)
{
    struct mist_interference f;
    struct small s;

    mist_interference_init(&f);
    f.slowdown[3][CO] = 2.0;
    f.slowdown[3][GG] = 1.5;
    set_up(&s, 4,
           (struct row[]){
               {0, CO, 4, 0, 0}, {0, GG, 3, 0, 0}, {1, CO, 4, 0, 0}, {1, GG, 3, 0, 0}});
    s.device[0].interference = &f;
    expect(&s, (const double[][2]){{0, 6.25}, {0, 4.5}, {0, 4}, {0, 3}});
    assert_int_equal(s.r.n_rate_changes, 1);
}

/* The bundle solver and the engine are the same model. */
TEST(test_bundle_equals_solver)
{
    struct mist_interference f;
    struct small s;
    const double work_s[4] = {3.0, 2.5, 1.75, 4.25};

    for (int set = 0; set < MIST_N_STREAM_SETS; set++)
        for (int c = 0; c < 4; c++)
            f.slowdown[set][c] = (set & (set - 1)) ? 1.0 + 0.1 * set * (c + 1) : 1.0;
    set_up(&s, 4,
           (struct row[]){{0, CO, work_s[0], 0, 0},
                          {0, GG, work_s[1], 0, 0},
                          {0, HD, work_s[2], 0, 0},
                          {0, DH, work_s[3], 0, 0}});
    disturb(&s, &f);
    assert_int_equal(replay(&s), MIST_OK);
    assert_near(s.r.makespan_s, mist_interference_bundle_s(&f, work_s), 1e-12);
    mist_arena_fini(&s.arena);
}

/* Members are ready at 1 and 4; the work is the larger one; waiting is visible and holds
 * the stream (row 2) without slowing down compute (row 3). */
TEST(test_groups_wait)
{
    struct mist_interference f;
    struct small s;

    mist_interference_init(&f);
    f.slowdown[3][CO] = 2.0;
    set_up(&s, 6,
           (struct row[]){{0, CO, 1, 0, 0},
                          {0, GG, 1, 1u << 0, 1},
                          {0, GG, 1, 0, 0},
                          {0, CO, 3, 0, 0},
                          {1, CO, 4, 0, 0},
                          {1, GG, 2, 1u << 4, 1}});
    disturb(&s, &f);
    expect(&s, (const double[][2]){{0, 1}, {4, 6}, {6, 7}, {1, 4}, {0, 4}, {4, 6}});
}

/* The collective of devices 0 and 1 runs at the rate of device 1, where compute is busy
 * until 4. */
TEST(test_groups_take_the_slowest_rate)
{
    struct mist_interference f;
    struct small s;

    mist_interference_init(&f);
    f.slowdown[3][GG] = 2.0;
    set_up(&s, 3, (struct row[]){{0, GG, 3, 0, 1}, {1, GG, 3, 0, 1}, {1, CO, 4, 0, 0}});
    disturb(&s, &f);
    expect(&s, (const double[][2]){{0, 5}, {0, 5}, {0, 4}});
}

TEST(test_tasks_without_work)
{
    struct mist_interference f;
    struct small s;

    mist_interference_init(&f);
    f.slowdown[3][CO] = f.slowdown[3][GG] = 2.0;
    set_up(&s, 7,
           (struct row[]){{0, GG, 0, 0, 0},       /* does not disturb row 2 */
                          {0, GG, 0, 1u << 0, 1}, /* a meeting without work */
                          {0, CO, 2, 0, 0},
                          {1, CO, 2, 0, 0},
                          {1, GG, 0, 1u << 3, 1},
                          {1, CO, 0, 1u << 4, 0},
                          {1, CO, 1, 0, 0}});
    disturb(&s, &f);
    expect(&s,
           (const double[][2]){{0, 0}, {2, 2}, {0, 2}, {0, 2}, {2, 2}, {2, 2}, {2, 3}});
    set_up(&s, 0, NULL);
    expect(&s, (const double[][2]){{0, 0}}); /* not looked at */
    set_up(&s, 1, (struct row[]){{0, CO, 1, 0, 0}});
    s.device[0].work_s = NULL;
    expect(&s, (const double[][2]){{0, 0}});
}

/* Ten times the work in the second iteration. */
static double tenfold(const void *context, int32_t device, int32_t task,
                      int32_t iteration)
{
    return iteration ? *(const double *)context : 1;
}

TEST(test_factors)
{
    const double ten = 10;
    struct small s;

    set_up(&s, 2, (struct row[]){{0, CO, 1, 0, 1}, {1, CO, 2, 0, 1}});
    s.g.n_iterations = 2;
    s.g.factor = tenfold;
    s.g.context = &ten;
    expect(&s, (const double[][2]){{2, 22}, {2, 22}});
}

static void name_task(const void *context, int32_t device, int32_t task, char *text,
                      size_t size)
{
    snprintf(text, size, "%s %d.%d", (const char *)context, (int)device, (int)task);
}

static void expect_deadlock(struct small *s, int n_stuck, const char *ring)
{
    char message[256];

    snprintf(message, sizeof message, "deadlock: %d of %d tasks can never run: %s",
             n_stuck, s->n_rows, ring);
    assert_int_equal(replay(s), MIST_ERR_INPUT);
    assert_string_equal(s->err.message, message);
    mist_arena_fini(&s->arena);
}

TEST(test_deadlocks_are_explained)
{
    struct small s;

    /* A ring of dependencies; row 2 only hangs on it, row 3 runs. */
    const struct row ring[] = {
        {0, CO, 1, 1u << 1, 0}, {0, GG, 1, 1, 0}, {0, HD, 1, 1, 0}, {2, CO, 1, 0, 0}};
    set_up(&s, 4, ring);
    expect_deadlock(&s, 3,
                    "task 0 (device 0, compute) waits for task 1 (device 0, gpu_gpu) "
                    "waits for task 0 (device 0, compute)");
    set_up(&s, 4, ring);
    s.g.name_task = name_task;
    s.g.context = "task";
    expect_deadlock(&s, 3, "task 0.0 waits for task 0.1 waits for task 0.0");
    set_up(&s, 1, (struct row[]){{0, CO, 1, 1u << 0, 0}});
    expect_deadlock(&s, 1,
                    "task 0 (device 0, compute) waits for task 0 (device 0, compute)");
    /* Two collectives in opposite order on two devices. */
    set_up(&s, 4,
           (struct row[]){
               {0, GG, 1, 0, 1}, {0, GG, 1, 0, 2}, {1, GG, 1, 0, 2}, {1, GG, 1, 0, 1}});
    expect_deadlock(&s, 4,
                    "task 0 (device 0, gpu_gpu) waits for task 0 (device 1, gpu_gpu) "
                    "waits for task 0 (device 0, gpu_gpu)");
    /* Two members of one group on one stream. */
    set_up(&s, 2, (struct row[]){{0, GG, 1, 0, 1}, {0, GG, 1, 0, 1}});
    expect_deadlock(&s, 2,
                    "task 0 (device 0, gpu_gpu) waits for task 0 (device 0, gpu_gpu)");
    /* A dependency against the order of the stream. */
    set_up(&s, 2, (struct row[]){{0, CO, 1, 1u << 1, 0}, {0, CO, 1, 0, 0}});
    expect_deadlock(&s, 2,
                    "task 0 (device 0, compute) waits for task 0 (device 0, compute)");
    /* One that comes to fewer meetings than the other. */
    set_up(&s, 3, (struct row[]){{0, GG, 1, 0, 1}, {1, GG, 1, 0, 1}, {1, GG, 1, 0, 0}});
    s.lane[1][1] = 0;
    expect_deadlock(&s, 1,
                    "the end of device 0, gpu_gpu waits for the end of device 0, "
                    "gpu_gpu");
}

static void expect_invalid(struct small *s, const char *part)
{
    assert_int_equal(replay(s), MIST_ERR_INPUT);
    if (!strstr(s->err.message, part))
        fail_msg("unexpected message: %s", s->err.message);
    mist_arena_fini(&s->arena);
}

TEST(test_invalid_graphs_are_refused)
{
    const struct row rows[] = {{0, CO, 1, 0, 0}, {0, CO, 1, 1, 1}};
    struct mist_interference f;
    struct small s;

    set_up(&s, 2, rows);
    s.device[1].program = 3;
    expect_invalid(&s, "device 1 has program 3, expected 0 to 2");
    set_up(&s, 2, rows);
    s.channel[0][0] = MIST_N_STREAMS;
    expect_invalid(&s, "task 0 has channel 8");
    set_up(&s, 2, rows);
    s.lane[0][1] = 1;
    expect_invalid(&s, "task 1 has lane 1, expected -1 to 0");
    set_up(&s, 2, rows);
    s.group[0][0] = 4;
    expect_invalid(&s, "device 0 has group 4, expected 0 to 3");
    set_up(&s, 2, rows);
    s.lane[0][0] = 0;
    s.channel[0][0] = GG;
    expect_invalid(&s, "task 1 is on channel 0, others of lane 0 are on channel 1");
    set_up(&s, 2, rows);
    s.dep[0][0] = -1;
    expect_invalid(&s, "task 1 has dependency -1");
    set_up(&s, 2, rows);
    s.dep_offset[0][1] = 2;
    expect_invalid(&s, "dependency list of task 1");
    set_up(&s, 2, rows);
    s.dep_offset[0][0] = 1;
    expect_invalid(&s, "dependency list starts at 1");
    set_up(&s, 2, rows);
    s.g.n_iterations = 0;
    expect_invalid(&s, "a count is too small");
    for (int i = 0; i < 3; i++) {
        set_up(&s, 2, rows);
        s.work_s[0][1] = (double[]){-1.0, NAN, INFINITY}[i];
        expect_invalid(&s, "task 1 of device 0 has");
    }
    set_up(&s, 2, rows);
    mist_interference_init(&f);
    f.slowdown[3][0] = 0.5;
    disturb(&s, &f);
    expect_invalid(&s, "slowdown of compute");
    set_up(&s, 2, rows);
    s.work_s[0][0] = s.work_s[0][1] = DBL_MAX;
    assert_int_equal(replay(&s), MIST_ERR_RANGE);
    mist_arena_fini(&s.arena);
}

/* A prepared engine runs again with other work, also after a failed run,
 * and repeats its bits. */
TEST(test_runs_again)
{
    struct small s;

    set_up(&s, 3,
           (struct row[]){{0, CO, 0.1, 0, 0}, {0, CO, 0.2, 0, 1}, {1, CO, 0.7, 0, 1}});
    assert_int_equal(replay(&s), MIST_OK);
    double first_s = s.r.makespan_s;
    assert_near(first_s, 0.8, 1e-15);
    s.work_s[0][0] = -1.0;
    assert_int_equal(mist_event_engine_run(s.engine, &s.r, &s.err), MIST_ERR_INPUT);
    s.work_s[0][0] = 5.0;
    assert_int_equal(mist_event_engine_run(s.engine, &s.r, &s.err), MIST_OK);
    assert_near(s.r.makespan_s, 5.7, 1e-15);
    s.work_s[0][0] = 0.1;
    assert_int_equal(mist_event_engine_run(s.engine, &s.r, &s.err), MIST_OK);
    assert_memory_equal(&s.r.makespan_s, &first_s, sizeof first_s);
    mist_arena_fini(&s.arena);
}

TEST_MAIN(NULL, NULL)
