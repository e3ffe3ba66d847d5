/*
 * The CUDA recorder's plain part: the join against a quadratic reference on random
 * records, the clock against closed forms. The source is included, so that the test needs
 * no CUDA library.
 */
/* clang-format off */
#include "tests/unit/fault.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "core/random.h"
#include "exec/cuda/recorder_match.c"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t seed_of_run(void)
{
    const char *text = getenv("MIST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : 20240607;

    printf("# MIST_SEED=%" PRIu64 "\n", seed);
    return seed;
}

/* ------------------------------------------------------------- join: random and naive */

enum { N_PERIODS = 6, MAX_RECORDS = 20000 };

/* Records of all periods, and in which each comes. */
struct stream {
    struct mist_cuda_record records[MAX_RECORDS];
    int period[MAX_RECORDS];
    size_t n;
};

static void push(struct stream *stream, struct mist_cuda_record record, int period)
{
    assert_true(stream->n < MAX_RECORDS);
    stream->period[stream->n] = period;
    stream->records[stream->n++] = record;
}

static struct mist_cuda_record random_work(struct mist_random *random, uint32_t call)
{
    uint64_t start_ns =
        UINT64_C(1790000000000000000) + (uint64_t)mist_random_below(random, 1000000000);
    struct mist_cuda_record record = {
        .kind = MIST_CUDA_RECORD_WORK,
        .correlation_id = call,
        .start_ns = start_ns,
        .end_ns = start_ns + (uint64_t)mist_random_below(random, 50000)};

    if (mist_random_below(random, 20) == 0)
        record.start_ns = record.end_ns = 0;
    return record;
}

/* Its own period, or now and then the one after. */
static int random_period(struct mist_random *random, int period)
{
    return period + (period + 1 < N_PERIODS && mist_random_below(random, 15) == 0);
}

/* A call with its records: some have no id, some no work, some both twice or more. */
static void push_call(struct stream *stream, struct mist_random *random, uint32_t call,
                      int period, int64_t n_ids)
{
    int64_t id = mist_random_below(random, n_ids) << mist_random_below(random, 40);
    int64_t n_external =
        mist_random_below(random, 4) == 0 ? 0 : 1 + (mist_random_below(random, 8) == 0);
    int64_t n_work = mist_random_below(random, 4);

    push(stream,
         (struct mist_cuda_record){.kind = MIST_CUDA_RECORD_API, .correlation_id = call},
         period);
    for (int64_t i = 0; i < n_external; i++)
        push(stream,
             (struct mist_cuda_record){.kind = MIST_CUDA_RECORD_EXTERNAL,
                                       .correlation_id = call,
                                       .external_id = id},
             random_period(random, period));
    for (int64_t i = 0; i < n_work; i++)
        push(stream, random_work(random, call), random_period(random, period));
}

static void shuffle(struct stream *stream, struct mist_random *random)
{
    for (size_t i = stream->n; i > 1; i--) {
        size_t k = (size_t)mist_random_below(random, (int64_t)i);
        struct mist_cuda_record record = stream->records[k];
        int period = stream->period[k];
        stream->records[k] = stream->records[i - 1];
        stream->period[k] = stream->period[i - 1];
        stream->records[i - 1] = record;
        stream->period[i - 1] = period;
    }
}

static void fill_stream(struct stream *stream, struct mist_random *random)
{
    int64_t n_ids = 1 + mist_random_below(random, 60);
    uint32_t call = (uint32_t)mist_random_next(random); /* may wrap around */

    stream->n = 0;
    for (int period = 0; period < N_PERIODS; period++) {
        int64_t n_calls = mist_random_below(random, 120);
        for (int64_t i = 0; i < n_calls; i++) {
            call += 1 + (uint32_t)mist_random_below(random, 3) * 64;
            push_call(stream, random, call, period, n_ids);
        }
    }
    shuffle(stream, random);
}

/* The first period in which a call shows, by an id or by work. */
static int naive_home(const struct stream *stream, uint32_t call)
{
    int home = N_PERIODS;

    for (size_t i = 0; i < stream->n; i++)
        if (stream->records[i].kind != MIST_CUDA_RECORD_API &&
            stream->records[i].correlation_id == call && stream->period[i] < home)
            home = stream->period[i];
    return home;
}

/* Whether a call has an id that comes in a period; which. */
static bool naive_has_id(const struct stream *stream, uint32_t call, int period,
                         int64_t *id)
{
    for (size_t i = 0; i < stream->n; i++)
        if (stream->records[i].kind == MIST_CUDA_RECORD_EXTERNAL &&
            stream->records[i].correlation_id == call && stream->period[i] == period) {
            *id = stream->records[i].external_id;
            return true;
        }
    return false;
}

static void naive_join(struct mist_cuda_interval *intervals, size_t *n, int64_t id,
                       const struct mist_cuda_record *work)
{
    size_t k = 0;

    while (k < *n && intervals[k].id != id)
        k++;
    struct mist_cuda_interval *at = &intervals[k];
    if (k == *n)
        (*n)++, *at = (struct mist_cuda_interval){id, work->start_ns, work->end_ns, 0, 0};
    at->start_ns = work->start_ns < at->start_ns ? work->start_ns : at->start_ns;
    at->end_ns = work->end_ns > at->end_ns ? work->end_ns : at->end_ns;
    at->busy_ns += work->end_ns - work->start_ns;
    at->n_kernels++;
}

/* The intervals of one period, in no order, and what all periods lose. */
static void naive_match(const struct stream *stream, int period,
                        struct mist_cuda_interval *intervals, size_t *n,
                        struct mist_cuda_losses *losses)
{
    *n = 0;
    for (size_t i = 0; i < stream->n; i++) {
        const struct mist_cuda_record *record = &stream->records[i];
        int64_t id;
        if (record->kind != MIST_CUDA_RECORD_WORK)
            continue;
        int home = naive_home(stream, record->correlation_id);
        if (home != period)
            continue;
        if (!naive_has_id(stream, record->correlation_id, home, &id))
            losses->n_late += naive_has_id(stream, record->correlation_id, home + 1, &id);
        else if (stream->period[i] != home)
            losses->n_late++;
        else if (record->start_ns == 0)
            losses->n_untimed++;
        else
            naive_join(intervals, n, id, record);
    }
}

static void add_period(struct mist_cuda_matcher *matcher, const struct stream *stream,
                       int period)
{
    for (size_t i = 0; i < stream->n; i++)
        if (stream->period[i] == period)
            assert_int_equal(mist_cuda_matcher_add(matcher, &stream->records[i], 1, NULL),
                             MIST_OK);
}

static void check_period(const struct stream *stream, int period,
                         struct mist_cuda_matcher *matcher,
                         struct mist_cuda_losses *losses)
{
    static struct mist_cuda_interval naive[MAX_RECORDS];
    const struct mist_cuda_interval *intervals;
    size_t n, n_naive;

    add_period(matcher, stream, period);
    assert_int_equal(mist_cuda_matcher_take(matcher, &intervals, &n, NULL), MIST_OK);
    naive_match(stream, period, naive, &n_naive, losses);
    assert_int_equal(n, n_naive);
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        assert_true(i == 0 || intervals[i - 1].id < intervals[i].id);
        while (k < n_naive && naive[k].id != intervals[i].id)
            k++;
        assert_true(k < n_naive);
        assert_int_equal(intervals[i].start_ns, naive[k].start_ns);
        assert_int_equal(intervals[i].end_ns, naive[k].end_ns);
        assert_int_equal(intervals[i].busy_ns, naive[k].busy_ns);
        assert_int_equal(intervals[i].n_kernels, naive[k].n_kernels);
    }
}

static void test_join_random(void **unused)
{
    static struct stream stream;
    struct mist_random random;
    int64_t n_late = 0, n_untimed = 0;

    (void)unused;
    mist_random_init(&random, seed_of_run());
    for (int round = 0; round < 40; round++) {
        struct mist_cuda_matcher matcher;
        struct mist_cuda_losses naive = {0};
        fill_stream(&stream, &random);
        mist_cuda_matcher_init(&matcher);
        for (int period = 0; period < N_PERIODS; period++)
            check_period(&stream, period, &matcher, &naive);
        assert_int_equal(matcher.losses.n_late, naive.n_late);
        assert_int_equal(matcher.losses.n_untimed, naive.n_untimed);
        n_late += naive.n_late;
        n_untimed += naive.n_untimed;
        mist_cuda_matcher_fini(&matcher);
    }
    assert_true(n_late > 0 && n_untimed > 0);
}

static struct mist_cuda_record work_at(uint32_t call, uint64_t start_ns, uint64_t end_ns)
{
    return (struct mist_cuda_record){MIST_CUDA_RECORD_WORK, call, 0, start_ns, end_ns};
}

static struct mist_cuda_record id_of(uint32_t call, int64_t id)
{
    return (struct mist_cuda_record){MIST_CUDA_RECORD_EXTERNAL, call, id, 0, 0};
}

/* By hand: two calls of one span that overlap, one of none, an id without work; ids may
 * come again in the next period; memory does not grow with the number of periods. */
static void test_join_by_hand(void **unused)
{
    const struct mist_cuda_interval *intervals;
    struct mist_cuda_matcher matcher;
    size_t n, n_slots = 0;

    (void)unused;
    mist_cuda_matcher_init(&matcher);
    assert_int_equal(mist_cuda_matcher_take(&matcher, &intervals, &n, NULL), MIST_OK);
    assert_int_equal(n, 0);
    for (uint32_t period = 0; period < 100; period++) {
        uint32_t c = 10 * period;
        const struct mist_cuda_record records[] = {
            work_at(c + 1, 100, 150), id_of(c + 2, 7),          id_of(c + 1, 7),
            work_at(c + 3, 10, 900),  work_at(c + 2, 140, 200), id_of(c + 4, 8),
            id_of(c + 5, 5),          work_at(c + 5, 300, 300), {0},
        };
        assert_int_equal(mist_cuda_matcher_add(&matcher, records, 8, NULL), MIST_OK);
        assert_int_equal(mist_cuda_matcher_take(&matcher, &intervals, &n, NULL), MIST_OK);
        assert_int_equal(n, 2);
        assert_int_equal(intervals[0].id, 5);
        assert_int_equal(intervals[0].end_ns, 300);
        assert_int_equal(intervals[1].id, 7);
        assert_int_equal(intervals[1].start_ns, 100);
        assert_int_equal(intervals[1].end_ns, 200);
        assert_int_equal(intervals[1].busy_ns, 110);
        assert_int_equal(intervals[1].n_kernels, 2);
        n_slots = matcher.now.n_slots + matcher.before.n_slots;
    }
    assert_true(n_slots <= 128);
    assert_int_equal(matcher.losses.n_late, 0);
    mist_cuda_matcher_fini(&matcher);
}

/* Without memory a record is lost and said to be; a take changes nothing. */
static void test_join_faults(void **unused)
{
    long live = fault_n_live();

    (void)unused;
    for (long n = 1, has_fired = 1; has_fired; n++) {
        const struct mist_cuda_interval *intervals = NULL;
        struct mist_cuda_matcher matcher;
        size_t n_intervals = 0;
        enum mist_status status = MIST_OK;
        mist_cuda_matcher_init(&matcher);
        fault_arm(FAULT_MALLOC, n);
        for (uint32_t i = 0; i < 100 && status == MIST_OK; i++) {
            const struct mist_cuda_record records[] = {id_of(i, i), work_at(i, 5, 6)};
            status = mist_cuda_matcher_add(&matcher, records, 2, NULL);
        }
        if (status == MIST_OK)
            status = mist_cuda_matcher_take(&matcher, &intervals, &n_intervals, NULL);
        has_fired = fault_disarm();
        /* qsort() does without, if it gets none */
        if (!has_fired || n_intervals == 100)
            assert_int_equal(status, MIST_OK);
        else
            assert_int_equal(status, MIST_ERR_MEMORY);
        if (status != MIST_OK &&
            matcher.now.n_used == 100) { /* it was the take that failed: try again */
            assert_int_equal(
                mist_cuda_matcher_take(&matcher, &intervals, &n_intervals, NULL),
                MIST_OK);
            assert_int_equal(n_intervals, 100);
        }
        mist_cuda_matcher_fini(&matcher);
        assert_int_equal(fault_n_live(), live);
    }
}

/* ------------------------------------------------------------------------------ clock */

#define NS0 UINT64_C(1795270089955996324) /* a time of day */

static void test_clock(void **unused)
{
    struct mist_cuda_clock clock;
    struct mist_err err = {0};

    (void)unused;
    /* the steady clock gains 50 millionths: 100.005 s in 100 s */
    struct mist_cuda_clock_pair a = {NS0, 4000.25};
    struct mist_cuda_clock_pair b = {NS0 + UINT64_C(100000000000), 4100.255};
    assert_int_equal(mist_cuda_clock_through(&a, &b, &clock, &err), MIST_OK);
    assert_true(fabs(mist_cuda_clock_at(&clock, a.cupti_ns) - a.clock_s) < 1e-11);
    assert_true(fabs(mist_cuda_clock_at(&clock, b.cupti_ns) - b.clock_s) < 1e-11);
    for (int i = -2; i <= 102; i++) { /* a little outside, too */
        uint64_t at_ns = NS0 + (uint64_t)(INT64_C(1000000000) * i);
        double expected_s = 4000.25 + i * 1.00005;
        assert_true(fabs(mist_cuda_clock_at(&clock, at_ns) - expected_s) < 1e-11);
        /* single nanoseconds survive */
        double step_s = mist_cuda_clock_at(&clock, at_ns + 3) - expected_s;
        assert_true(fabs(step_s - 3e-9) < 2e-12 + 1e-11);
    }
    struct mist_cuda_span span = mist_cuda_clock_span(
        &clock, &(struct mist_cuda_interval){42, NS0 + 1000000000, NS0 + 3000000000,
                                             1500000000, 3});
    assert_int_equal(span.id, 42);
    assert_int_equal(span.n_kernels, 3);
    assert_true(fabs(span.start_s - 4001.25005) < 1e-11);
    assert_true(fabs(span.end_s - 4003.25015) < 1e-11);
    assert_true(fabs(span.busy_s - 1.500075) < 1e-11);
}

static void test_clock_limits(void **unused)
{
    struct mist_cuda_clock clock;
    struct mist_err err = {0};
    struct mist_cuda_clock_pair a = {NS0, 4000};

    (void)unused;
    /* readings 1 ms apart that are 1 us off: slope 1 through the later one */
    struct mist_cuda_clock_pair b = {NS0 + 1001000, 4000.001};
    assert_int_equal(mist_cuda_clock_through(&a, &b, &clock, &err), MIST_OK);
    assert_true(fabs(mist_cuda_clock_at(&clock, NS0 + 501000) - 4000.0005) < 1e-11);
    /* one and the same reading */
    assert_int_equal(mist_cuda_clock_through(&a, &a, &clock, &err), MIST_OK);
    assert_true(fabs(mist_cuda_clock_at(&clock, NS0 - 5) - (4000 - 5e-9)) < 1e-11);
    /* the time of day was set by an hour, forth and back, and by 20 ms */
    const double jumps_s[] = {3600, -3600, 0.02, -0.02};
    for (size_t i = 0; i < sizeof jumps_s / sizeof *jumps_s; i++) {
        b = (struct mist_cuda_clock_pair){
            NS0 + (uint64_t)(int64_t)(1e9 * (5 + jumps_s[i])), 4005};
        assert_int_equal(mist_cuda_clock_through(&a, &b, &clock, &err), MIST_ERR_RUN);
        assert_non_null(strstr(err.message, "time of day"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join_random),  cmocka_unit_test(test_join_by_hand),
        cmocka_unit_test(test_join_faults),  cmocka_unit_test(test_clock),
        cmocka_unit_test(test_clock_limits),
    };

    return cmocka_run_group_tests_name("cuda_recorder", tests, NULL, NULL);
}
