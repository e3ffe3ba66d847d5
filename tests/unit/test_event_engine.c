/* sim/event_engine: small graphs whose times can be checked by hand,
 * invalid graphs, deadlocks. */
#include "tests/unit/test.h"

#include "sim/event_engine.h"

#include <float.h>
#include <math.h>

/* |a - b| <= tolerance. (cmocka's own comparison is in single precision.) */
#define assert_near(a, b, tolerance) check_near(a, b, tolerance, #a, __LINE__)

#define CO MIST_STREAM_COMPUTE
#define GG MIST_STREAM_GPU_GPU
#define HD MIST_STREAM_HOST_TO_DEVICE
#define DH MIST_STREAM_DEVICE_TO_HOST

static void check_near(double a, double b, double tolerance, const char *what, int line)
{
    if (!(fabs(a - b) <= tolerance))
        fail_msg("line %d: %s is %.17g, expected %.17g", line, what, a, b);
}

/* A graph of at most 8 tasks is written down as a table;
 * dependencies are a bit mask of tasks. */
struct row {
    int32_t device;
    int channel;
    double work_s;
    unsigned deps;
    int rendezvous; /* 0: none, k: rendezvous k - 1 */
};

struct small {
    struct mist_event_graph g;
    int32_t device[8], dep_offset[9], dep[64], rendezvous[8];
    uint8_t channel[8];
    double work_s[8];
    struct mist_arena arena;
    struct mist_event_engine *engine;
    struct mist_event_result r;
    struct mist_err err;
};

static void set_up(struct small *s, int n, const struct row *rows)
{
    int n_deps = 0;

    *s = (struct small){0};
    mist_arena_init(&s->arena);
    for (int i = 0; i < n; i++) {
        s->device[i] = rows[i].device;
        s->channel[i] = (uint8_t)rows[i].channel;
        s->work_s[i] = rows[i].work_s;
        s->rendezvous[i] = rows[i].rendezvous - 1;
        for (int k = 0; k < 8; k++)
            if (rows[i].deps >> k & 1u)
                s->dep[n_deps++] = k;
        s->dep_offset[i + 1] = n_deps;
    }
    s->g = (struct mist_event_graph){.n_tasks = n,
                                     .n_devices = 3,
                                     .n_rendezvous = 4,
                                     .device = s->device,
                                     .channel = s->channel,
                                     .work_s = s->work_s,
                                     .dep_offset = s->dep_offset,
                                     .dep = s->dep,
                                     .rendezvous = s->rendezvous};
}

static enum mist_status replay(struct small *s)
{
    enum mist_status status =
        mist_event_engine_prepare(&s->engine, &s->g, &s->arena, &s->err);

    return status == MIST_OK ? mist_event_engine_run(s->engine, &s->r, &s->err) : status;
}

static void expect(struct small *s, const double (*times)[3])
{
    double makespan_s = 0.0;

    must(replay(s), &s->err);
    for (int i = 0; i < s->g.n_tasks; i++) {
        assert_near(s->r.ready_s[i], times[i][0], 1e-12);
        assert_near(s->r.start_s[i], times[i][1], 1e-12);
        assert_near(s->r.end_s[i], times[i][2], 1e-12);
        makespan_s = fmax(makespan_s, times[i][2]);
    }
    assert_near(s->r.makespan_s, makespan_s, 1e-12);
    assert_int_equal(s->r.n_events, 2 * s->g.n_tasks);
    mist_arena_fini(&s->arena);
}

static void test_chain_over_devices(void **state)
{
    struct small s;

    set_up(&s, 3, (struct row[]){{0, CO, 1, 0, 0}, {1, CO, 2, 1, 0}, {2, DH, 3, 2, 0}});
    expect(&s, (const double[][3]){{0, 0, 1}, {1, 1, 3}, {3, 3, 6}});
}

/*
 * Task 1 could run at once but task 0, with the lower index, is before it on the stream.
 */
static void test_streams_are_first_in_first_out(void **state)
{
    struct small s;

    set_up(&s, 4,
           (struct row[]){{0, CO, 1, 1u << 3, 0},
                          {0, CO, 1, 0, 0},
                          {0, GG, 1, 0, 0},
                          {1, CO, 5, 0, 0}});
    expect(&s, (const double[][3]){{5, 5, 6}, {6, 6, 7}, {0, 0, 1}, {0, 0, 5}});
}

static void test_diamond(void **state)
{
    struct small s;

    set_up(&s, 4,
           (struct row[]){
               {0, CO, 1, 0, 0}, {1, CO, 2, 1, 0}, {2, CO, 5, 1, 0}, {0, CO, 1, 6, 0}});
    expect(&s, (const double[][3]){{0, 0, 1}, {1, 1, 3}, {1, 1, 6}, {6, 6, 7}});
}

/* Compute 4 and gpu_gpu 3 with factors 2 and 1.5: gpu_gpu ends at 4.5, when compute has
 * done 2.25; the rest runs alone. The other device is of the class
 * without interference. */
static void test_overlap_with_slowdowns(void **state)
{
    struct mist_interference f;
    struct small s;

    mist_interference_init(&f);
    f.slowdown[3][CO] = 2.0;
    f.slowdown[3][GG] = 1.5;
    set_up(&s, 4,
           (struct row[]){
               {0, CO, 4, 0, 0}, {0, GG, 3, 0, 0}, {1, CO, 4, 0, 0}, {1, GG, 3, 0, 0}});
    s.g.n_interference = 1;
    s.g.interference = &f;
    s.g.device_interference = (int32_t[]){0, -1, 0};
    expect(&s, (const double[][3]){{0, 0, 6.25}, {0, 0, 4.5}, {0, 0, 4}, {0, 0, 3}});
    assert_int_equal(s.r.n_rate_changes, 1);
}

/* The bundle solver and the engine are the same model. */
static void test_bundle_equals_solver(void **state)
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
    s.g.n_interference = 1;
    s.g.interference = &f;
    assert_int_equal(replay(&s), MIST_OK);
    assert_near(s.r.makespan_s, mist_interference_bundle_s(&f, work_s), 1e-12);
    mist_arena_fini(&s.arena);
}

/* Members are ready at 1 and 4; the work is the larger one; waiting is visible and holds
 * the stream (task 4) without slowing down compute (task 5). */
static void test_rendezvous_waits(void **state)
{
    struct mist_interference f;
    struct small s;

    mist_interference_init(&f);
    f.slowdown[3][CO] = 2.0;
    set_up(&s, 6,
           (struct row[]){{0, CO, 1, 0, 0},
                          {1, CO, 4, 0, 0},
                          {0, GG, 1, 1u << 0, 1},
                          {1, GG, 2, 1u << 1, 1},
                          {0, GG, 1, 0, 0},
                          {0, CO, 3, 0, 0}});
    s.g.n_interference = 1;
    s.g.interference = &f;
    expect(&s, (const double[][3]){
                   {0, 0, 1}, {0, 0, 4}, {1, 4, 6}, {4, 4, 6}, {6, 6, 7}, {1, 1, 4}});
}

/* The collective of devices 0 and 1 runs at the rate of device 1, where compute is busy
 * until 4. */
static void test_rendezvous_takes_the_slowest_rate(void **state)
{
    struct mist_interference f;
    struct small s;

    mist_interference_init(&f);
    f.slowdown[3][GG] = 2.0;
    set_up(&s, 3, (struct row[]){{0, GG, 3, 0, 1}, {1, GG, 3, 0, 1}, {1, CO, 4, 0, 0}});
    s.g.n_interference = 1;
    s.g.interference = &f;
    expect(&s, (const double[][3]){{0, 0, 5}, {0, 0, 5}, {0, 0, 4}});
}

/* Two transfers of 2 s and 3 s on one link at 0.6 of the rate each: the first ends at 2 /
 * 0.6, the second has 1 s left. A table of one entry, or none, keeps the total of one
 * user. */
static void test_links_are_shared(void **state)
{
    const double share[] = {0, 1.0, 0.6};
    struct small s;

    for (int n_share = 0; n_share <= 2; n_share++) {
        double rate = n_share == 2 ? 0.6 : 0.5;
        struct mist_event_link link = {share, n_share};
        set_up(&s, 3,
               (struct row[]){{0, GG, 2, 0, 1}, {1, GG, 3, 0, 2}, {2, GG, 3, 0, 3}});
        s.g.n_links = 1;
        s.g.link = &link;
        s.g.rendezvous_link = (int32_t[]){0, 0, -1, -1};
        expect(&s,
               (const double[][3]){{0, 0, 2 / rate}, {0, 0, 2 / rate + 1}, {0, 0, 3}});
    }
}

static void test_tasks_without_work(void **state)
{
    struct mist_interference f;
    struct small s;

    mist_interference_init(&f);
    f.slowdown[3][CO] = f.slowdown[3][GG] = 2.0;
    set_up(&s, 7,
           (struct row[]){{0, GG, 0, 0, 0},       /* does not disturb task 2 */
                          {0, GG, 0, 1u << 0, 1}, /* a rendezvous without work */
                          {0, CO, 2, 0, 0},
                          {1, GG, 0, 1u << 2, 1},
                          {1, CO, 0, 1u << 3, 0},
                          {1, CO, 0, 0, 0},
                          {2, CO, 1, 1u << 5, 0}});
    s.g.n_interference = 1;
    s.g.interference = &f;
    expect(
        &s,
        (const double[][3]){
            {0, 0, 0}, {0, 2, 2}, {0, 0, 2}, {2, 2, 2}, {2, 2, 2}, {2, 2, 2}, {2, 2, 3}});
    set_up(&s, 0, NULL);
    expect(&s, (const double[][3]){{0, 0, 0}}); /* not looked at */
}

static void expect_deadlock(struct small *s, int n_stuck, const char *a, const char *b)
{
    char begin[64];

    snprintf(begin, sizeof begin, "deadlock: %d of %d tasks", n_stuck, (int)s->g.n_tasks);
    assert_int_equal(replay(s), MIST_ERR_INPUT);
    if (strncmp(s->err.message, begin, strlen(begin)) || !strstr(s->err.message, a) ||
        !strstr(s->err.message, b))
        fail_msg("unexpected message: %s", s->err.message);
    mist_arena_fini(&s->arena);
}

static void test_deadlocks_are_explained(void **state)
{
    struct small s;

    /* A cycle of dependencies; task 3 only hangs on it, task 2 runs. */
    set_up(&s, 4,
           (struct row[]){{0, CO, 1, 1u << 1, 0},
                          {1, CO, 1, 1u << 0, 0},
                          {2, CO, 1, 0, 0},
                          {2, GG, 1, 1, 0}});
    expect_deadlock(&s, 3, "task 0 (device 0, compute) waits by dependency for task 1",
                    "task 1 (device 1, compute) waits by dependency for task 0");
    set_up(&s, 1, (struct row[]){{0, CO, 1, 1u << 0, 0}});
    expect_deadlock(&s, 1, "task 0 (device 0, compute) waits by dependency for task 0",
                    "");
    /* Two collectives in opposite order on two devices. */
    set_up(&s, 4,
           (struct row[]){
               {0, GG, 1, 0, 1}, {0, GG, 1, 0, 2}, {1, GG, 1, 0, 2}, {1, GG, 1, 0, 1}});
    expect_deadlock(&s, 4,
                    "task 0 (device 0, gpu_gpu) waits at its rendezvous for task 3",
                    "task 3 (device 1, gpu_gpu) waits by stream order for task 2");
    /* Two members of one rendezvous on one stream. */
    set_up(&s, 2, (struct row[]){{0, GG, 1, 0, 1}, {0, GG, 1, 0, 1}});
    expect_deadlock(&s, 2, "waits at its rendezvous for task 1",
                    "by stream order for task 0");
    /* A dependency against the order of the stream. */
    set_up(&s, 2, (struct row[]){{0, CO, 1, 1u << 1, 0}, {0, CO, 1, 0, 0}});
    expect_deadlock(&s, 2, "task 0 (device 0, compute) waits by dependency for task 1",
                    "by stream order");
}

static void expect_invalid(struct small *s, const char *part)
{
    assert_int_equal(replay(s), MIST_ERR_INPUT);
    if (!strstr(s->err.message, part))
        fail_msg("unexpected message: %s", s->err.message);
    mist_arena_fini(&s->arena);
}

static void test_invalid_graphs_are_refused(void **state)
{
    const struct row rows[] = {{0, CO, 1, 0, 0}, {0, CO, 1, 1, 1}};
    const double share[] = {0, 1, 1.5};
    struct mist_interference f;
    struct mist_event_link link = {share, 2};
    struct small s;

    set_up(&s, 2, rows);
    s.device[1] = 3;
    expect_invalid(&s, "task 1 has device 3, expected 0 to 2");
    set_up(&s, 2, rows);
    s.channel[0] = 5;
    expect_invalid(&s, "task 0 has channel 5");
    set_up(&s, 2, rows);
    s.rendezvous[1] = 4;
    expect_invalid(&s, "task 1 has rendezvous 4, expected -1 to 3");
    set_up(&s, 2, rows);
    s.dep[0] = -1;
    expect_invalid(&s, "task 1 has dependency -1");
    set_up(&s, 2, rows);
    s.dep_offset[1] = 2;
    expect_invalid(&s, "dependency list of task 1");
    set_up(&s, 2, rows);
    s.dep_offset[0] = 1;
    expect_invalid(&s, "dependency list starts at 1");
    for (int i = 0; i < 3; i++) {
        set_up(&s, 2, rows);
        s.work_s[1] = (double[]){-1.0, NAN, INFINITY}[i];
        expect_invalid(&s, "task 1 has");
    }
    set_up(&s, 2, rows);
    mist_interference_init(&f);
    f.slowdown[3][0] = 0.5;
    s.g.interference = &f;
    s.g.n_interference = 1;
    expect_invalid(&s, "slowdown of compute");
    set_up(&s, 2, rows);
    s.g.link = &link;
    s.g.n_links = 1;
    expect_invalid(&s, "link 0 gives each of 2 users 1.5");
    set_up(&s, 2, rows);
    s.g.rendezvous_link = (int32_t[]){0, -1, -1, -1};
    expect_invalid(&s, "rendezvous 0 has link 0");
    set_up(&s, 2, rows);
    s.work_s[0] = s.work_s[1] = DBL_MAX;
    assert_int_equal(replay(&s), MIST_ERR_RANGE);
    mist_arena_fini(&s.arena);
}

/* A prepared engine runs again with other work, also after a failed run,
 * and repeats its bits. */
static void test_runs_again(void **state)
{
    struct small s;

    set_up(&s, 3,
           (struct row[]){{0, CO, 0.1, 0, 0}, {0, CO, 0.2, 0, 1}, {1, CO, 0.7, 0, 1}});
    assert_int_equal(replay(&s), MIST_OK);
    double first_s = s.r.makespan_s;
    assert_near(first_s, 0.8, 1e-15);
    s.work_s[0] = -1.0;
    assert_int_equal(mist_event_engine_run(s.engine, &s.r, &s.err), MIST_ERR_INPUT);
    s.work_s[0] = 5.0;
    assert_int_equal(mist_event_engine_run(s.engine, &s.r, &s.err), MIST_OK);
    assert_near(s.r.makespan_s, 5.7, 1e-15);
    s.work_s[0] = 0.1;
    assert_int_equal(mist_event_engine_run(s.engine, &s.r, &s.err), MIST_OK);
    assert_memory_equal(&s.r.makespan_s, &first_s, sizeof first_s);
    mist_arena_fini(&s.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_over_devices),
        cmocka_unit_test(test_streams_are_first_in_first_out),
        cmocka_unit_test(test_diamond),
        cmocka_unit_test(test_overlap_with_slowdowns),
        cmocka_unit_test(test_bundle_equals_solver),
        cmocka_unit_test(test_rendezvous_waits),
        cmocka_unit_test(test_rendezvous_takes_the_slowest_rate),
        cmocka_unit_test(test_links_are_shared),
        cmocka_unit_test(test_tasks_without_work),
        cmocka_unit_test(test_deadlocks_are_explained),
        cmocka_unit_test(test_invalid_graphs_are_refused),
        cmocka_unit_test(test_runs_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
