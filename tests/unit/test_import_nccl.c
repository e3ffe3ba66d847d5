/* The nccl-tests importer against a hand-made log whose numbers are known,
 * and broken ones. */
#include "tests/unit/test.h"

#include "tests/unit/find_link.h"
#include "traces/import_nccl.h"

#include <unistd.h>

#define LOG "tests/data/nccl_all_reduce_2x4.log"

static const char RANK[] = "#  Rank  0 Group  0 Pid 1 on  a device  0 [0x07] GPU\n";
static const char ROW[] =
    "  1024  256  float  sum  -1  20.5  0.1  0.1  0  19.5  0.1  0.1  0\n";

/* Imports text; on MIST_OK the first link is in *first. */
static enum mist_status import_text(const char *text,
                                    const struct mist_import_nccl *options,
                                    struct mist_link_row *first, struct mist_err *err)
{
    char path[] = "/tmp/mist_test_XXXXXX";
    struct mist_trace_set set;
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    mist_trace_set_init(&set);
    enum mist_status status = mist_import_nccl_log(&set, path, options, NULL, err);
    if (status == MIST_OK)
        *first = set.links[0];
    mist_trace_set_fini(&set);
    unlink(path);
    return status;
}

TEST(test_log)
{
    struct mist_trace_set set;
    struct mist_import_nccl options = {0};
    struct mist_err err = {0};
    size_t n = 0;

    mist_trace_set_init(&set);
    assert_int_equal(mist_import_nccl_log(&set, LOG, &options, &n, &err), MIST_OK);
    assert_int_equal(n, 2);
    const struct mist_link_row *row =
        find_link(&set, MIST_LINK_ALL_REDUCE, 2, 4, 1, 4194304);
    assert_non_null(row);
    assert_true(row->time_us == 131.0 && row->deviation_us == 0);
    assert_int_equal(row->repetitions, 20);

    options = (struct mist_import_nccl){.in_place = true, .concurrent_groups = 3};
    assert_int_equal(mist_import_nccl_log(&set, LOG, &options, &n, &err), MIST_OK);
    row = find_link(&set, MIST_LINK_ALL_REDUCE, 2, 4, 3, 2048);
    assert_non_null(row);
    assert_true(row->time_us == 20.25);

    /* The same rows again are duplicates. */
    assert_int_equal(mist_import_nccl_log(&set, LOG, &options, &n, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "twice"));
    assert_int_equal(err.line, 20);
    assert_string_equal(err.path, LOG);
    mist_trace_set_fini(&set);
}

TEST(test_old_log_without_program_and_redop)
{
    char text[512];
    struct mist_import_nccl options = {.has_operation = true,
                                       .operation = MIST_LINK_ALL_GATHER};
    struct mist_link_row row = {0};
    struct mist_err err = {0};

    snprintf(text, sizeof text, "%s%s", RANK,
             "  4096  256  float  30.5  0.1  0.1  0e+00  29.5  0.1  0.1  0e+00");
    assert_int_equal(import_text(text, &options, &row, &err), MIST_OK);
    assert_int_equal(row.operation, MIST_LINK_ALL_GATHER);
    assert_int_equal(row.bytes, 4096);
    assert_true(row.time_us == 30.5);
    assert_int_equal(row.repetitions, 1);
    options = (struct mist_import_nccl){0};
    assert_int_equal(import_text(text, &options, &row, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "such as all_reduce.log says it"));
}

TEST(test_malformed)
{
    static const struct {
        const char *head, *row, *message;
        long line;
    } cases[] = {
        {"", "", "no rows", 0},
        {RANK, "# nothing here\n", "no rows", 0},
        {"", ROW, "lists no ranks", 1},
        {RANK, "  1024  256  float  sum  -1  20.5\n", "cut off", 2},
        {RANK, "  1024  256  float  sum  -1  oops  0.1  0.1  0  19.5  0.1  0.1  0\n",
         "time is no number", 2},
        {RANK, "  1024  256  float  sum  -1  0  0.1  0.1  0  19.5  0.1  0.1  0\n",
         "time_us", 2},
        {RANK, "  1024  256  float  sum  -1  20.5  0.1  0.1  7  19.5  0.1  0.1  0\n",
         "wrong results", 2},
        {RANK, "  10x24  256  float  sum  -1  20.5  0.1  0.1  0  19.5  0.1  0.1  0\n",
         "size is no integer", 2},
        {"# Collective test starting: alltoall_perf\n", ROW, "without a link operation",
         1},
        {"# Collective test starting: all_gather_perf\n", ROW, "another operation", 2},
        {"# nThread 1 nGpus 1 warmup iters: 5 iters: x\n", ROW, "iters:", 1},
    };
    const struct mist_import_nccl options = {.has_operation = true,
                                             .operation = MIST_LINK_ALL_REDUCE};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        struct mist_link_row row;
        struct mist_err err = {0};
        snprintf(text, sizeof text, "%s%s", cases[i].head, cases[i].row);
        assert_int_equal(import_text(text, &options, &row, &err), MIST_ERR_INPUT);
        if (!strstr(err.message, cases[i].message))
            fail_msg("case %zu: %s", i, err.message);
        assert_int_equal(err.line, cases[i].line);
    }
}

TEST(test_unequal_hosts)
{
    char text[1024];
    struct mist_import_nccl options = {.has_operation = true,
                                       .operation = MIST_LINK_ALL_REDUCE};
    struct mist_link_row row = {0};
    struct mist_err err = {0};

    snprintf(text, sizeof text, "%s%s%s%s", RANK, RANK,
             "#  Rank  2 Group  0 Pid 1 on  b device  0 [0x07] GPU\n", ROW);
    assert_int_equal(import_text(text, &options, &row, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "unequal"));
    options.nodes = 1;
    options.ranks_per_node = 3;
    assert_int_equal(import_text(text, &options, &row, &err), MIST_OK);
    assert_int_equal(row.ranks_per_node, 3);
    options.ranks_per_node = 0; /* no line of a rank says it either */
    assert_int_equal(import_text(ROW, &options, &row, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "ranks per node must be given"));
}

TEST(test_missing_file)
{
    struct mist_trace_set set;
    struct mist_import_nccl options = {0};
    struct mist_err err = {0};

    mist_trace_set_init(&set);
    assert_int_equal(mist_import_nccl_log(&set, "/no/such.log", &options, NULL, &err),
                     MIST_ERR_IO);
    mist_trace_set_fini(&set);
}

TEST_MAIN(NULL, NULL)
