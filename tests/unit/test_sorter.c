/*
 * core/sorter: against qsort() over everything at once, with runs of any size, read more
 * than once; and without memory or a disk.
 */
#include "tests/unit/fault.h"

#include "tests/unit/test.h"

#include "core/random.h"
#include "core/sorter.h"

struct record {
    int64_t key, number; /* number: in the order of adding */
    char text[16];
};

static int compare(const void *a_, const void *b_)
{
    const struct record *a = a_, *b = b_;

    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

static struct record draw(struct mist_random *random, int64_t number, int64_t n_keys)
{
    struct record record = {mist_random_below(random, n_keys), number, ""};

    snprintf(record.text, sizeof record.text, "%04d", (int)(record.key % 10000));
    return record;
}

/* Adds n records and reads them twice, the first time not to the end. */
static enum mist_status sort(const struct record *records, int64_t n, size_t most_bytes,
                             struct record *sorted, int64_t *n_sorted)
{
    struct mist_sorter sorter;
    struct mist_err err = {0};
    enum mist_status status = MIST_OK;
    bool is_there = true;
    struct record record;

    mist_sorter_init(&sorter, sizeof *records, most_bytes, compare);
    for (int64_t i = 0; i < n && status == MIST_OK; i++)
        status = mist_sorter_add(&sorter, &records[i], &err);
    for (int pass = 0; pass < 2 && status == MIST_OK; pass++) {
        *n_sorted = 0;
        status = mist_sorter_begin(&sorter, &err);
        while (status == MIST_OK && (pass > 0 || *n_sorted <= n / 2)) {
            status = mist_sorter_next(&sorter, &record, &is_there, &err);
            if (status != MIST_OK || !is_there)
                break;
            sorted[(*n_sorted)++] = record;
        }
    }
    mist_sorter_fini(&sorter);
    return status;
}

TEST(test_random)
{
    static struct record records[3000], sorted[3000];
    struct mist_random random;
    int64_t n_sorted;

    mist_random_init(&random, test_seed(1515));
    for (int i = 0; i < 300; i++) {
        int64_t n = mist_random_below(&random, i % 3 == 0 ? 10 : 3000);
        int64_t n_keys = 1 + mist_random_below(&random, 5000);
        size_t most = 1 + (size_t)mist_random_below(&random, i % 2 ? 200 : 4000);
        for (int64_t k = 0; k < n; k++)
            records[k] = draw(&random, k, n_keys);
        assert_int_equal(sort(records, n, most * sizeof *records, sorted, &n_sorted),
                         MIST_OK);
        assert_int_equal(n_sorted, n);
        if (n == 0)
            continue;
        qsort(records, (size_t)n, sizeof *records, compare);
        for (int64_t k = 0; k < n; k++) {
            assert_int_equal(sorted[k].number, records[k].number);
            assert_string_equal(sorted[k].text, records[k].text);
        }
    }
}

TEST(test_faults)
{
    static const enum fault faults[] = {FAULT_MALLOC, FAULT_FFLUSH};
    static const enum mist_status expected[] = {MIST_ERR_MEMORY, MIST_ERR_IO};
    struct record records[20], sorted[20];
    struct mist_random random;
    int64_t n_sorted;
    long n_live = fault_n_live();

    mist_random_init(&random, 3);
    for (int64_t k = 0; k < 20; k++)
        records[k] = draw(&random, k, 100);
    for (int kind = 0; kind < 2; kind++)
        for (long n = 1;; n++) {
            fault_arm(faults[kind], n);
            enum mist_status status =
                sort(records, 20, sizeof records / 4, sorted, &n_sorted);
            bool has_fired = fault_disarm();
            assert_int_equal(fault_n_live(), n_live);
            if (!has_fired) {
                assert_int_equal(status, MIST_OK);
                assert_true(n > 4);
                break;
            }
            if (status != MIST_OK) /* the C library does without some buffers */
                assert_int_equal(status, expected[kind]);
        }
}

TEST(test_no_folder)
{
    struct record records[4] = {{1, 0, ""}, {0, 1, ""}, {1, 2, ""}, {0, 3, ""}},
                  sorted[4];
    char before[512] = "";
    const char *variable = getenv("TMPDIR");
    int64_t n_sorted;

    snprintf(before, sizeof before, "%s", variable ? variable : "");
    assert_int_equal(setenv("TMPDIR", "/nowhere/at/all", 1), 0);
    assert_int_equal(sort(records, 4, sizeof records, sorted, &n_sorted), MIST_OK);
    assert_int_equal(sorted[0].number, 1);
    assert_int_equal(sort(records, 4, sizeof *records, sorted, &n_sorted), MIST_ERR_IO);
    assert_int_equal(variable ? setenv("TMPDIR", before, 1) : unsetenv("TMPDIR"), 0);
}

TEST_MAIN(NULL, NULL)
