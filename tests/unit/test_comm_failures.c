/*
 * exec/comm: ranks that are late, die or send something else. Every job must end, with an
 * exit code other than 0 and a message that names who was missing.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_setattr_default_np */
#endif
#include "tests/unit/test.h"

#include "exec/comm/comm_internal.h"
#include "tests/unit/comm_job.h"

#include <signal.h>

/* --------------------------------------------------------------------- rank of a job */

/* Ends the job with the message of an expected error; the test looks at both. */
static _Noreturn void report(const struct mist_err *late)
{
    printf("%s\n", late->message);
    fflush(stdout);
    mist_comm_abort(comm, 7);
}

/* Rank 1 never opens, or never closes. */
static void run_hanging(const char *mode)
{
    const char *number = getenv("OMPI_COMM_WORLD_RANK");
    bool is_first = number && strcmp(number, "0") == 0;

    if (strcmp(mode, "no_close") == 0) {
        CHECK(mist_comm_open_deadline(&comm, 30, &err) == MIST_OK);
        mist_comm_set_deadline(comm, 0.25);
    }
    if (!is_first)
        mist_clock_sleep_s(60); /* until rank 0 ends the job */
    else if (strcmp(mode, "no_close") == 0)
        mist_comm_close(comm);
    else if (mist_comm_open_deadline(&comm, 1, &err) != MIST_OK)
        printf("%s\n", err.message);
}

/* Rank 1 dies in the middle of a loop. */
static void run_dying(double deadline_s)
{
    static float values[60000];
    int32_t all[] = {0, 1, 2};
    struct mist_comm_group *group;

    mist_comm_set_deadline(comm, deadline_s);
    CHECK(mist_comm_group(comm, all, 3, 0, &group, &err) == MIST_OK);
    CHECK(mist_comm_reserve(comm, sizeof values, 3, &err) == MIST_OK);
    for (int i = 0;; i++) {
        if (i == 200 && rank == 1)
            raise(SIGKILL);
        if (mist_comm_all_reduce(group, MIST_DTYPE_FP32, values, i % 3 ? 300 : 60000,
                                 &err) != MIST_OK)
            report(&err);
    }
}

/* Rank 1 sends too little, or nothing; rank 0 waits for it. */
static void run_late(const char *mode)
{
    char byte = 0;
    float values[4] = {0};
    int64_t counts[3] = {0};
    struct mist_comm_group *group;
    const int32_t both[] = {0, 1};
    enum mist_status status;

    CHECK(mist_comm_group(comm, both, 2, 4, &group, &err) == MIST_OK);
    CHECK(mist_comm_reserve(comm, 16, 2, &err) == MIST_OK);
    if (rank == 1) {
        if (strcmp(mode, "short_sum") == 0)
            CHECK(mist_comm_all_reduce(group, MIST_DTYPE_FP32, values, 4, &err) ==
                  MIST_ERR_RUN);
        if (strcmp(mode, "short") == 0)
            CHECK(mist_comm_send(comm, 0, 3, &byte, 1, &err) == MIST_OK);
        mist_clock_sleep_s(60); /* until rank 0 ends the job */
        return;
    }
    mist_comm_set_deadline(comm, strncmp(mode, "short", 5) == 0 ? 30 : 0.25);
    if (strcmp(mode, "cancelled") == 0)
        mist_comm_cancel(comm);
    if (strcmp(mode, "late_sum") == 0)
        status =
            mist_comm_all_reduce(group, MIST_DTYPE_BF16, (uint16_t[]){0, 0}, 2, &err);
    else if (strcmp(mode, "short_sum") == 0)
        status = mist_comm_all_reduce(group, MIST_DTYPE_FP32, values, 2, &err);
    else if (strcmp(mode, "late_integers") == 0)
        status = mist_comm_all_reduce_i64(comm, MIST_COMM_MAX, counts, 3, &err);
    else
        status = mist_comm_recv(comm, 1, 3, values, 8, &err);
    CHECK(status == MIST_ERR_RUN);
    struct mist_err after;
    status = mist_comm_recv(comm, 1, 3, values, 8, &after); /* it stays failed */
    CHECK(status == MIST_ERR_RUN && strstr(after.message, "failed before"));
    report(&err);
}

/* Of rank 1 something is wanted, as long as others wait: */
static enum mist_status sleep_2_s(void *context, struct mist_err *why)
{
    (void)context;
    (void)why;
    if (rank == 1)
        mist_clock_sleep_s(2);
    return MIST_OK;
}

static enum mist_status stop(void *context, struct mist_err *why)
{
    (void)context;
    (void)why;
    if (rank == 1)
        raise(SIGSTOP);
    return MIST_OK;
}

static enum mist_status fill_disk(void *context, struct mist_err *why)
{
    sleep_2_s(context, why);
    return rank == 1 ? mist_err_set(why, MIST_ERR_IO, "the disk is full") : MIST_OK;
}

static enum mist_status do_nothing(void *context, struct mist_err *why)
{
    (void)context;
    (void)why;
    return MIST_OK;
}

/* Rank 1 works for longer than the deadline: it is waited for, also if it fails, which all
 * get to know. */
static void run_vigil(void)
{
    int64_t sum = 1;

    mist_comm_set_deadline(comm, 0.8);
    for (int i = 0; i < 3; i++) { /* one behind the other; quick ones, too */
        CHECK(mist_comm_work_together(comm, i == 1 ? sleep_2_s : do_nothing, NULL,
                                      &err) == MIST_OK);
        CHECK(mist_comm_agreed_rank(comm) == -1);
        CHECK(mist_comm_all_reduce_i64(comm, MIST_COMM_SUM, &sum, 1, &err) == MIST_OK);
    }
    CHECK(sum == (int64_t)n_ranks * n_ranks * n_ranks);
    CHECK(mist_comm_work_together(comm, fill_disk, NULL, &err) == MIST_ERR_IO);
    CHECK(strcmp(err.message, "the disk is full") == 0);
    CHECK(mist_comm_agreed_rank(comm) == 1);
    CHECK(mist_comm_work_together(comm, do_nothing, NULL, &err) == MIST_OK);
    CHECK(mist_comm_agreed_rank(comm) == -1);
}

/* Rank 1 is stuck in its work. */
static void run_stopped_vigil(void)
{
    mist_comm_set_deadline(comm, 0.25);
    CHECK(mist_comm_work_together(comm, stop, NULL, &err) == MIST_ERR_RUN);
    CHECK(mist_comm_agreed_rank(comm) == -1);
    report(&err);
}

/* Rank 0 gets no thread while the others wait for it: none of its next calls may be taken
 * for an answer to them. */
static void run_threadless_vigil(void)
{
    pthread_attr_t attributes;
    int64_t value = rank;

    mist_comm_set_deadline(comm, 30);
    if (rank == 0) { /* nor has anybody else a stack of this size */
        CHECK(pthread_attr_init(&attributes) == 0);
        CHECK(pthread_attr_setstacksize(&attributes, (size_t)1 << 46) == 0);
        CHECK(pthread_setattr_default_np(&attributes) == 0);
        CHECK(mist_comm_work_together(comm, do_nothing, NULL, &err) == MIST_ERR_MEMORY);
        struct mist_err after;
        mist_clock_sleep_s(0.2); /* the others have begun */
        CHECK(mist_comm_all_reduce_i64(comm, MIST_COMM_MAX, &value, 1, &after) ==
              MIST_ERR_RUN);
        report(&err);
    } else {
        CHECK(mist_comm_work_together(comm, do_nothing, NULL, &err) != MIST_OK);
    }
    mist_clock_sleep_s(60); /* until rank 0 ends the job */
}

static int run_rank(const char *mode)
{
    if (strncmp(mode, "no_", 3) == 0) {
        run_hanging(mode);
        return 0;
    }
    join_job();
    if (strcmp(mode, "kill") == 0)
        run_dying(50);
    else if (strcmp(mode, "kill_unseen") == 0)
        run_dying(0.5);
    else if (strcmp(mode, "vigil") == 0)
        run_vigil();
    else if (strcmp(mode, "vigil_threadless") == 0)
        run_threadless_vigil();
    else if (strcmp(mode, "vigil_stopped") == 0)
        run_stopped_vigil();
    else
        run_late(mode);
    mist_comm_close(comm);
    return 0;
}

/* -------------------------------------------------------------------------- the tests */

TEST(test_late)
{
    struct job_end end;
    static const struct {
        const char *mode, *message;
    } cases[] = {
        {"late", "recv: rank 0 has waited 0.25 s for receiving from rank 1, tag 3, 8 "
                 "bytes (1 of 1 messages are late)\n"},
        {"late_sum", "all_reduce: rank 0 has waited 0.25 s for receiving from rank 1, "
                     "tag 4, 4 bytes"},
        {"late_integers", "all_reduce_i64: rank 0 has waited 0.25 s for receiving from "
                          "rank 1, tag 0, 24 bytes"},
        {"cancelled", "recv: rank 0 gives up, since something else failed on it\n"},
        {"short_sum", "all_reduce: rank 1 sent 16 bytes with tag 4, not 8\n"},
        {"short", "recv: rank 1 sent 1 bytes with tag 3, not 8\n"},
    };

    need_mpirun();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_job(2, "", cases[i].mode, &end);
        assert_int_equal(end.code, 7);
        assert_ptr_equal(strstr(end.output, cases[i].message), end.output);
    }
}

/* Nothing returns from MPI_Init or MPI_Finalize then. */
TEST(test_no_start)
{
    struct job_end end;

    need_mpirun();
    run_job(2, "", "no_open", &end);
    assert_int_equal(end.code, 1);
    assert_non_null(strstr(end.errors, "mist: start: rank 0 on "));
    assert_non_null(strstr(end.errors, " has waited 1 s for all ranks to do the same\n"));
    run_job(2, "", "no_close", &end);
    assert_int_equal(end.code, 1);
    assert_non_null(strstr(end.errors, "mist: end: rank 0 on "));
}

/* The launcher ends the job and says who died. */
TEST(test_killed)
{
    struct job_end end;
    double time_start_s = mist_clock_now_s();

    need_mpirun();
    run_job(3, "", "kill", &end);
    assert_int_equal(end.code, 128 + SIGKILL);
    assert_non_null(strstr(end.errors, "rank 1"));
    assert_non_null(strstr(end.errors, "signal 9"));
    assert_true(mist_clock_now_s() - time_start_s < 30); /* what is promised */
}

/* A launcher that takes no notice: the others do, and end the job. */
TEST(test_killed_unseen)
{
    struct job_end end;

    need_mpirun();
    run_job(3, "--mca orte_abort_on_non_zero_status 0", "kill_unseen", &end);
    assert_int_not_equal(end.code, 0);
    assert_int_not_equal(end.code, 124); /* it hung */
    assert_non_null(strstr(end.output, "all_reduce: rank "));
    assert_non_null(
        strstr(end.output, " has waited 0.5 s for receiving from rank 1, tag 0, "));
}

/* The deadline is for ranks that are gone, not for slow ones. */
TEST(test_vigil)
{
    struct job_end end;

    need_mpirun();
    run_good_job(3, "", "vigil");
    run_job(2, "", "vigil_stopped", &end);
    assert_int_equal(end.code, 7);
    assert_non_null(strstr(end.output, "all_reduce_i64: rank 0 has waited 0.25 s for "));
    run_job(2, "", "vigil_threadless", &end);
    assert_int_equal(end.code, 7);
    assert_string_equal(end.output, "no thread to answer other ranks with\n");
}

JOB_MAIN
