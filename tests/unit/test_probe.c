/*
 * exec/probe: probes on one rank and, started again under mpirun, on two: all ranks time
 * equally many, find the same level, allocate nothing but room for times, and leave
 * communicator, devices and collectives as usable as they were. Then the arithmetic of
 * levels, by numbers done by hand. How long a probe takes is nobody's test.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* of __executable_start */
#endif
#include "tests/unit/test.h"

#include "exec/runtime/probe.h"
#include "tests/unit/comm_job.h"
#include "tests/unit/count_allocations.h"

#include <string.h>

/* Smaller than usual, so that it takes no time worth mentioning. */
static struct mist_probe_config small_config(enum mist_dtype dtype)
{
    struct mist_probe_config config = {.dtype = dtype,
                                       .n_threads = 1,
                                       .deadline_s = 60,
                                       .work = {.rows = 16,
                                                .width = 64,
                                                .sum_bytes = 4096,
                                                .region_bytes = 4 * 4096,
                                                .message_bytes = 1002,
                                                .n_at_once = 1}};

    CHECK(mist_backend_find(MIST_BACKEND_CPU, &config.backend, NULL, NULL, 0, &err) ==
          MIST_OK);
    return config;
}

/* The same value on all ranks? */
static bool is_shared(double value)
{
    double least = value, most = value;

    CHECK(mist_comm_all_reduce_f64(comm, MIST_COMM_MIN, &least, 1, &err) == MIST_OK);
    CHECK(mist_comm_all_reduce_f64(comm, MIST_COMM_MAX, &most, 1, &err) == MIST_OK);
    return least == value && most == value;
}

static void check_times(struct mist_samples *times_us)
{
    struct mist_probe_level level;

    CHECK(times_us->n >= MIST_PROBE_LEAST);
    CHECK(is_shared((double)times_us->n));
    for (size_t i = 0; i < times_us->n; i++)
        CHECK(times_us->values[i] > 0);
    CHECK(mist_probe_find_level(comm, times_us, &level, &err) == MIST_OK);
    CHECK(level.time_s > 0 && level.spread_frac >= 0);
    CHECK(is_shared(level.time_s) && is_shared(level.spread_frac));
}

/* Of times that are known: rank r has (r + 1) * 1, 2, 3, 4 and 50 us. */
static void check_level(void)
{
    struct mist_samples times_us = {0};
    struct mist_probe_level level;

    CHECK(mist_probe_find_level(comm, &times_us, &level, &err) == MIST_OK);
    CHECK(level.time_s == 0 && level.spread_frac == 0);
    for (int i = 0; i < 5; i++)
        CHECK(mist_samples_add(&times_us, (rank + 1) * (i == 1   ? 50
                                                        : i == 4 ? 2
                                                                 : i + 1)));
    CHECK(mist_probe_find_level(comm, &times_us, &level, &err) == MIST_OK);
    /* the middle three, of ranks in the mean; quantiles lie between neighbours */
    CHECK(fabs(level.time_s / (3e-6 * (n_ranks + 1) / 2.) - 1) < 1e-12);
    CHECK(fabs(level.spread_frac - ((4 + 0.6 * 46) / 1.4 - 1)) < 1e-12);
    mist_samples_fini(&times_us);
}

/* Sums of a run that goes on beside the probe: what they were. */
static void check_sums(struct mist_device *device, struct mist_collective_group *group)
{
    float values[2] = {1, (float)rank};

    if (!group)
        return;
    CHECK(mist_collective_all_reduce(group, MIST_DTYPE_FP32, values, 2, &err) == MIST_OK);
    CHECK(mist_device_synchronize(device, &err) == MIST_OK);
    CHECK(values[0] == (float)n_ranks &&
          values[1] == (float)(n_ranks * (n_ranks - 1)) / 2);
}

/* Probes of one configuration, twice, beside a device and collectives of somebody else. */
static void run_probes(const struct mist_probe_config *config)
{
    const struct mist_device_config other = {.arena_bytes = {4096, 0}, .threads = 1};
    const int32_t ranks[] = {0, 1};
    struct mist_device *device;
    struct mist_collectives *collectives;
    struct mist_collective_group *group = NULL;
    struct mist_probe *probe;
    struct mist_samples times_us = {0};

    CHECK(mist_device_open_cpu(&other, &device, &err) == MIST_OK);
    CHECK(mist_collectives_open_host(comm, NULL, &collectives, &err) == MIST_OK);
    if (n_ranks > 1)
        CHECK(mist_collectives_group(collectives, ranks, 2, 0, 4096, &group, &err) ==
              MIST_OK);
    check_sums(device, group);
    CHECK(mist_probe_open(comm, config, &probe, &err) == MIST_OK);
    CHECK(mist_probe_run(probe, rank == 0 ? 0.01 : 1e9, &times_us, &err) == MIST_OK);
    check_times(&times_us);
    check_sums(device, group);
    times_us.n = 0; /* the room stays */
    n_calls = 0;
    is_counting = true;
    CHECK(mist_probe_run(probe, 0.01, &times_us, &err) == MIST_OK);
    is_counting = false;
    CHECK(n_calls == 0);
    check_times(&times_us);
    size_t before = times_us.n;
    CHECK(mist_probe_run(probe, 0, &times_us, &err) == MIST_OK);
    CHECK(times_us.n == before + MIST_PROBE_LEAST);
    mist_samples_fini(&times_us);
    mist_probe_close(probe);
    check_sums(device, group);
    mist_collectives_close(collectives);
    mist_device_close(device);
}

/* All that a rank does. */
static void run_rank(void)
{
    struct mist_probe_config config = small_config(MIST_DTYPE_FP32);

    check_level();
    run_probes(&config);
    config.work.n_at_once = 3;
    run_probes(&config);
    config = small_config(MIST_DTYPE_BF16);
    config.n_threads = 2;
    run_probes(&config);
    config.work = mist_probe_usual_work(config.n_threads);
    run_probes(&config);
}

/* -------------------------------------------------------------------------- the tests */

TEST(probes_run_on_one_rank)
{
    join_job();
    run_rank();
    mist_comm_close(comm);
}

TEST(probes_run_on_two_ranks)
{
    need_mpirun();
    run_good_job(2, "", "probe");
}

TEST(counts_fill_the_time)
{
    assert_int_equal(mist_probe_count(0.5, 0.01), 50);
    assert_int_equal(mist_probe_count(0.5, 0.2), MIST_PROBE_LEAST);
    assert_int_equal(mist_probe_count(0, 0.01), MIST_PROBE_LEAST);
    assert_int_equal(mist_probe_count(0.5, 0),
                     MIST_PROBE_LEAST);                   /* a clock that stands */
    assert_int_equal(mist_probe_count(1e12, 1e-6), 1000); /* as much as there is room */
}

static struct mist_probe_verdict judge(double measured_s, double probe_measured_s,
                                       double probe_predicted_s, double predicted_s,
                                       double alone_frac)
{
    const struct mist_prediction predicted = {.iteration_s = predicted_s,
                                              .alone_frac = alone_frac};

    return mist_probe_judge(measured_s, probe_measured_s, probe_predicted_s, &predicted);
}

TEST(verdicts_are_relative_to_the_probes)
{
    /* profiled at 10 ms; an iteration of 2 s among probes of 10.5 ms: 5 % slower */
    struct mist_probe_verdict at = judge(2.0, 0.0105, 0.010, 2.0, 0);

    assert_true(fabs(at.level - 1.05) < 1e-12);
    assert_true(fabs(at.predicted_s - 2.1) < 1e-12);
    assert_true(fabs(at.prediction_error_frac - 0.05) < 1e-12);
    /* of which a rank computed alone for 1.5 s */
    at = judge(2.0, 0.0105, 0.010, 2.0, 0.75);
    assert_true(fabs(at.level - 1.05) < 1e-12);
    assert_true(fabs(at.longer - 1.0125) < 1e-12);
    assert_true(fabs(at.predicted_s - 2.025) < 1e-12);
    /* a machine that is as fast: the plain error */
    at = judge(2.0, 0.010, 0.010, 1.9, 0);
    assert_true(fabs(at.level - 1) < 1e-15);
    assert_true(fabs(at.prediction_error_frac + 0.05) < 1e-12);
    /* a probe was not predicted, or none has run */
    at = judge(2.0, 0.010, 0, 1.9, 0);
    assert_true(at.level == 0 && at.predicted_s == 0 && at.prediction_error_frac == 0);
    at = judge(2.0, 0, 0.010, 1.9, 0);
    assert_true(at.level == 0 && at.predicted_s == 0 && at.prediction_error_frac == 0);
    /* nor an iteration */
    at = judge(2.0, 0.010, 0.020, 0, 0);
    assert_true(fabs(at.level - 0.5) < 1e-12);
    assert_true(at.predicted_s == 0 && at.prediction_error_frac == 0);
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 3) {
        join_job();
        run_rank();
        mist_comm_close(comm);
        return 0;
    }
    return run_listed_tests(NULL, NULL);
}
