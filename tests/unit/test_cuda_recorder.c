/*
 * The CUDA recorder's plain part: the join against a quadratic reference on random
 * records, names, bounds, and the clock against closed forms. The source is included, so
 * that the test needs no CUDA library.
 */
#include "tests/unit/fault.h"
#include "tests/unit/test.h"

#include "core/random.h"
#include "exec/cuda/recorder_match.c"

#define NS0 UINT64_C(1795270089955996324) /* a time of day */
#define MS  UINT64_C(1000000)

/* ------------------------------------------------------------- join: random and naive */

/* A period begins 40 ms after the one before ended; works are given in any order. */
enum { MAX_RECORDS = 2000, GAP_MS = 40 };

struct given {
    struct mist_cuda_mark marks[MAX_RECORDS];
    struct mist_cuda_work works[MAX_RECORDS];
    size_t n_marks, n_works;
};

static struct mist_cuda_work random_work(struct mist_random *random, uint32_t call)
{
    /* within the period, in the gap before it, or before that */
    int64_t when = mist_random_below(random, 40);
    uint64_t start_ns = when == 0   ? NS0 - 100 * MS
                        : when == 1 ? NS0 - GAP_MS / 2 * MS
                                    : NS0 + (uint64_t)mist_random_below(random, 1 << 20);
    struct mist_cuda_work work = {.call = call,
                                  .start_ns = start_ns,
                                  .end_ns = start_ns +
                                            (uint64_t)mist_random_below(random, 50000),
                                  .name = (uint16_t)mist_random_below(random, 5)};

    if (when == 2)
        work.start_ns = work.end_ns = 0;
    if (when == 3)
        work.end_ns = work.start_ns - 1;
    return work;
}

/* Calls with no id or several, with no work or several. */
static void fill(struct given *given, struct mist_random *random)
{
    int64_t n_calls = mist_random_below(random, 400),
            n_ids = 1 + mist_random_below(random, 60);
    uint32_t call = (uint32_t)mist_random_next(random); /* may wrap around */

    given->n_marks = given->n_works = 0;
    for (int64_t i = 0; i < n_calls; i++) {
        int64_t id = mist_random_below(random, n_ids) << mist_random_below(random, 40);
        int64_t n_works = mist_random_below(random, 4);
        call += 1 + (uint32_t)mist_random_below(random, 3) * 64;
        for (int64_t k = mist_random_below(random, 8); k > 0 && k < 7; k -= 5)
            given->marks[given->n_marks++] = (struct mist_cuda_mark){id + k, call};
        for (int64_t k = 0; k < n_works; k++)
            given->works[given->n_works++] = random_work(random, call);
    }
}

/* Every work once, in random order, and the marks before, between and behind. */
static void add_all(struct mist_cuda_records *records, struct given *given,
                    struct mist_random *random)
{
    static const char *const names[] = {"a", "b", "ab", "", NULL};
    size_t n_marks = given->n_marks, n_works = given->n_works;

    while (n_marks + n_works > 0) {
        size_t k = (size_t)mist_random_below(random, (int64_t)(n_marks + n_works));
        if (k < n_marks) {
            struct mist_cuda_mark mark = given->marks[k];
            given->marks[k] = given->marks[--n_marks];
            given->marks[n_marks] = mark;
            mist_cuda_records_add_mark(records, mark.call, mark.id);
        } else {
            struct mist_cuda_work work = given->works[k - n_marks];
            given->works[k - n_marks] = given->works[--n_works];
            given->works[n_works] = work;
            mist_cuda_records_add_work(records, work.call, names[work.name],
                                       work.start_ns, work.end_ns);
        }
    }
}

/* What is left of a work; false: nothing. */
static bool naive_join(const struct given *given, struct mist_cuda_work *work,
                       int64_t *n_lost)
{
    bool has_times = work->start_ns > 0 && work->end_ns >= work->start_ns;

    if (work->start_ns > 0 && work->start_ns < NS0 - MS) {
        *n_lost += work->start_ns < NS0 - (GAP_MS + 1) * MS;
        return false;
    }
    work->id = -1;
    for (size_t i = 0; i < given->n_marks; i++)
        if (given->marks[i].call == work->call && given->marks[i].id > work->id)
            work->id = given->marks[i].id;
    *n_lost += work->id >= 0 && !has_times;
    return work->id >= 0 && has_times;
}

static void check_join(struct mist_cuda_records *records, const struct given *given,
                       size_t n)
{
    static const char *const names[] = {"a", "b", "ab", "", "unnamed kernel"};
    bool is_taken[MAX_RECORDS] = {false};
    int64_t n_lost = 0;
    size_t n_naive = 0;

    for (size_t i = 1; i < n; i++) {
        const struct mist_cuda_work *a = &records->works[i - 1], *b = a + 1;
        assert_true(a->id < b->id || (a->id == b->id && a->start_ns <= b->start_ns));
    }
    for (size_t i = 0; i < given->n_works; i++) {
        struct mist_cuda_work work = given->works[i];
        size_t k = 0;
        if (!naive_join(given, &work, &n_lost))
            continue;
        n_naive++;
        for (; k < n; k++) {
            const struct mist_cuda_work *at = &records->works[k];
            if (!is_taken[k] && at->id == work.id && at->start_ns == work.start_ns &&
                at->end_ns == work.end_ns && at->call == work.call &&
                strcmp(records->names[at->name], names[work.name]) == 0)
                break;
        }
        assert_true(k < n);
        is_taken[k] = true;
    }
    assert_int_equal(n, n_naive);
    assert_int_equal(records->n_lost, n_lost);
    assert_false(records->has_no_room);
}

TEST(test_join_random)
{
    static struct given given;
    struct mist_cuda_records records = {0};
    struct mist_random random;
    int64_t n_lost = 0, n_joined = 0;

    mist_random_init(&random, test_seed(20240607));
    mist_cuda_records_clear(&records);
    for (int period = 0; period < 100; period++) {
        fill(&given, &random);
        mist_cuda_records_begin(&records, NS0 - GAP_MS * MS, NS0);
        add_all(&records, &given, &random);
        size_t n = mist_cuda_records_join(&records);
        check_join(&records, &given, n);
        n_joined += (int64_t)n;
        n_lost += records.n_lost;
    }
    assert_true(n_joined > 1000 && n_lost > 100);
    assert_true(records.works_capacity <= 2 * MAX_RECORDS); /* not by period */
    assert_int_equal(records.n_names, 1 + 5);
    mist_cuda_records_clear(&records);
}

/* ----------------------------------------------------------------------------- bounds */

/* Launches beyond the most are not kept, and that is told until the next period. */
TEST(test_most_launches)
{
    struct mist_cuda_records records = {0};

    mist_cuda_records_clear(&records);
    assert_int_equal(records.max_launches, MIST_CUDA_MAX_LAUNCHES);
    records.max_launches = 100;
    for (int is_too_many = 0; is_too_many < 2; is_too_many++) {
        mist_cuda_records_begin(&records, 0, NS0);
        for (uint32_t i = 0; i < 100u + (uint32_t)is_too_many; i++) {
            mist_cuda_records_add_mark(&records, i, i);
            mist_cuda_records_add_work(&records, i, "k", NS0 + i, NS0 + i);
        }
        assert_int_equal(records.has_no_room, is_too_many);
        assert_int_equal(mist_cuda_records_join(&records), 100);
        assert_true(records.works_capacity <= 128 && records.marks_capacity <= 128);
    }
    mist_cuda_records_clear(&records);
}

/* A name is kept once, cut where it is endless; beyond the most all are one. */
TEST(test_names)
{
    struct mist_cuda_records records = {0};
    char name[2 * MIST_CUDA_MAX_NAME_BYTES];

    mist_cuda_records_clear(&records);
    mist_cuda_records_begin(&records, 0, NS0);
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (uint32_t i = 0; i < 3 * MIST_CUDA_MAX_NAMES; i++) {
        if (i > 0)
            snprintf(name, sizeof name, "kernel %u", (unsigned)(i % 2000));
        mist_cuda_records_add_mark(&records, i, i);
        mist_cuda_records_add_work(&records, i, name, NS0, NS0);
    }
    assert_int_equal(mist_cuda_records_join(&records), 3 * MIST_CUDA_MAX_NAMES);
    assert_int_equal(records.n_names, MIST_CUDA_MAX_NAMES + 1);
    assert_int_equal(strlen(records.names[1]), MIST_CUDA_MAX_NAME_BYTES - 1);
    for (uint32_t i = 1; i < 3 * MIST_CUDA_MAX_NAMES; i++) {
        uint32_t k = records.works[i].name;
        snprintf(name, sizeof name, "kernel %u", (unsigned)(i % 2000));
        if (i % 2000 < MIST_CUDA_MAX_NAMES && (i < 2000 || i % 2000 > 0))
            assert_string_equal(records.names[k], name);
        else
            assert_int_equal(k, 0);
    }
    assert_false(records.has_no_room);
    mist_cuda_records_clear(&records);
}

/* Without memory something is missing, and said to be, but for a name. */
TEST(test_faults)
{
    long live = fault_n_live();

    for (long n = 1, has_fired = 1; has_fired; n++) {
        struct mist_cuda_records records = {0};
        bool is_named = true;
        mist_cuda_records_clear(&records);
        mist_cuda_records_begin(&records, 0, NS0);
        fault_arm(FAULT_MALLOC, n);
        for (uint32_t i = 0; i < 100; i++) {
            mist_cuda_records_add_mark(&records, i, i);
            mist_cuda_records_add_work(&records, i, i % 2 ? "odd" : "even", NS0, NS0);
        }
        has_fired = fault_disarm();
        size_t n_joined = mist_cuda_records_join(&records);
        for (size_t i = 0; i < n_joined; i++)
            is_named = is_named && records.works[i].name > 0;
        assert_int_equal(!is_named || records.has_no_room, has_fired);
        assert_true(records.has_no_room ? n_joined < 100 : n_joined == 100);
        mist_cuda_records_clear(&records);
        assert_int_equal(fault_n_live(), live);
    }
}

/* ------------------------------------------------------------------------------ clock */

TEST(test_clock)
{
    struct mist_cuda_clock clock;

    /* the steady clock gains 50 millionths: 100.005 s in 100 s */
    struct mist_cuda_clock_pair a = {NS0, 4000.25};
    struct mist_cuda_clock_pair b = {NS0 + UINT64_C(100000000000), 4100.255};
    assert_true(mist_cuda_clock_through(&a, &b, &clock));
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
}

TEST(test_clock_limits)
{
    struct mist_cuda_clock clock;
    struct mist_cuda_clock_pair a = {NS0, 4000};

    /* readings 1 ms apart that are 1 us off: slope 1 through the later one */
    struct mist_cuda_clock_pair b = {NS0 + 1001000, 4000.001};
    assert_true(mist_cuda_clock_through(&a, &b, &clock));
    assert_true(fabs(mist_cuda_clock_at(&clock, NS0 + 501000) - 4000.0005) < 1e-11);
    /* one and the same reading */
    assert_true(mist_cuda_clock_through(&a, &a, &clock));
    assert_true(fabs(mist_cuda_clock_at(&clock, NS0 - 5) - (4000 - 5e-9)) < 1e-11);
    /* the time of day was set by an hour, forth and back, and by 20 ms */
    const double jumps_s[] = {3600, -3600, 0.02, -0.02};
    for (size_t i = 0; i < sizeof jumps_s / sizeof *jumps_s; i++) {
        b = (struct mist_cuda_clock_pair){
            NS0 + (uint64_t)(int64_t)(1e9 * (5 + jumps_s[i])), 4005};
        assert_false(mist_cuda_clock_through(&a, &b, &clock));
    }
}

TEST_MAIN(NULL, NULL)
