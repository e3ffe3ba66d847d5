/* The nccl-tests importer against a hand-made log whose numbers are known,
 * and broken ones. */
#include "tests/unit/test.h"

#include "tests/unit/find_link.h"
#include "traces/import_nccl.h"
#include "traces/preset.h"

#include <math.h>

#include <unistd.h>

#define LOG "tests/data/nccl_all_reduce_2x4.log"

static const char RANK[] = "#  Rank  0 Group  0 Pid 1 on  a device  0 [0x07] GPU\n";
static const char ROW[] =
    "  1024  256  float  sum  -1  20.5  0.1  0.1  0  19.5  0.1  0.1  0\n";

/* Imports the log at path behind what set has, and counts the rows in *n. */
static enum mist_status import_log(struct mist_trace_set *set, const char *path,
                                   const struct mist_import_nccl *options, size_t *n,
                                   struct mist_err *err)
{
    struct mist_import_rows rows = mist_import_rows_begin(set);
    enum mist_status status = mist_import_nccl_log(&rows, path, options, err);

    *n = mist_import_rows_count(&rows);
    return status;
}

/* Imports text into set, the caller's to fini. */
static enum mist_status import_set(const char *text,
                                   const struct mist_import_nccl *options,
                                   struct mist_trace_set *set, struct mist_err *err)
{
    char path[] = "/tmp/mist_test_XXXXXX";
    int fd = mkstemp(path);
    size_t n;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    must(mist_preset_parse(set, "h100-sxm:4x8", err), err);
    enum mist_status status = import_log(set, path, options, &n, err);
    unlink(path);
    return status;
}

/* Imports text; on MIST_OK the first link is in *first. */
static enum mist_status import_text(const char *text,
                                    const struct mist_import_nccl *options,
                                    struct mist_link_row *first, struct mist_err *err)
{
    struct mist_trace_set set;
    enum mist_status status = import_set(text, options, &set, err);

    if (status == MIST_OK)
        *first = set.links[0];
    mist_trace_set_fini(&set);
    return status;
}

TEST(test_log)
{
    struct mist_trace_set set;
    struct mist_import_nccl options = {0};
    struct mist_err err = {0};
    size_t n = 0;

    must(mist_preset_parse(&set, "h100-sxm:4x12", &err), &err);
    assert_int_equal(import_log(&set, LOG, &options, &n, &err), MIST_OK);
    assert_int_equal(n, 2);
    const struct mist_link_row *row =
        find_link(&set, MIST_LINK_ALL_REDUCE, 2, 4, 1, 4194304);
    assert_non_null(row);
    assert_true(row->time_us == 131.0 && row->deviation_us == 0);
    assert_int_equal(row->repetitions, 20);

    options = (struct mist_import_nccl){.in_place = true, .concurrent_groups = 3};
    assert_int_equal(import_log(&set, LOG, &options, &n, &err), MIST_OK);
    row = find_link(&set, MIST_LINK_ALL_REDUCE, 2, 4, 3, 2048);
    assert_non_null(row);
    assert_true(row->time_us == 20.25);

    /* The same rows again are duplicates. */
    assert_int_equal(import_log(&set, LOG, &options, &n, &err), MIST_ERR_INPUT);
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

/* The names and the row are as several versions print them; all have 20.5 out of place
 * and 19.5 in place. */
#define NAMES "#  size  count  type  redop  root  "
#define LEFT  "  1024  256  float  sum  -1  "

TEST(test_columns_by_name)
{
    static const struct {
        const char *names, *row;
    } cases[] = {
        {NAMES "time algbw busbw #wrong time algbw busbw #wrong\n",
         LEFT "20.5 0.1 0.1 0 19.5 0.1 0.1 0"},
        /* per-iteration report, alone, with bits compared, with a time of day */
        {NAMES "time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw busbw #wrong "
               "i_min i_max i_p99 i_cv%\n",
         LEFT "20.5 0.1 0.1 0 18 24 23 5.00 19.5 0.1 0.1 0 17 23 22 5.00"},
        {NAMES
         "time algbw busbw #wrong #bitdiff i_min i_max i_p99 i_cv% time algbw busbw "
         "#wrong #bitdiff i_min i_max i_p99 i_cv% timestamp\n",
         LEFT "20.5 0.1 0.1 0 3 18 24 23 5.00 19.5 0.1 0.1 0 3 17 23 22 5.00 2025-11-01 "
              "12:00:00"},
        {NAMES "time algbw busbw #wrong time algbw busbw #wrong timestamp\n",
         LEFT "20.5 0.1 0.1 0 19.5 0.1 0.1 0 2025-11-01 12:00:00"},
        {NAMES "time algbw busbw #wrong time algbw busbw #wrong\n",
         LEFT "20.5 0.1 0.1 0 19.5 0.1 0.1 0 2025-11-01 12:00:00"},
        {"", LEFT "20.5 0.1 0.1 0 19.5 0.1 0.1 0 2025-11-01 12:00:00"},
        /* redop without an operation is blank, and so may root be */
        {NAMES "time algbw busbw #wrong time algbw busbw #wrong\n",
         "  1024  256  float  -1  20.5 0.1 0.1 0 19.5 0.1 0.1 0"},
        {NAMES "time algbw busbw #wrong time algbw busbw #wrong\n",
         "  1024  256  float  20.5 0.1 0.1 0 19.5 0.1 0.1 0"},
        /* before 2.13: the largest deviation, up to 1e-05 for each of seven additions */
        {"#  size  count  type  redop  time algbw busbw error time algbw busbw error\n",
         "  1024  256  float  sum  20.5 0.1 0.1 7e-05 19.5 0.1 0.1 1e-07"},
        {"#  size  count  type  time algbw busbw error time algbw busbw error\n",
         "  1024  256  int8  20.5 0.1 0.1 0e+00 19.5 0.1 0.1 N/A"},
    };
    struct mist_import_nccl options = {.has_operation = true,
                                       .operation = MIST_LINK_ALL_REDUCE,
                                       .nodes = 1,
                                       .ranks_per_node = 8};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            char text[512];
            struct mist_link_row row = {0};
            struct mist_err err = {0};
            options.in_place = in_place;
            snprintf(text, sizeof text, "%s%s", cases[i].names, cases[i].row);
            if (import_text(text, &options, &row, &err) != MIST_OK)
                fail_msg("case %zu: %s", i, err.message);
            if (row.time_us != (in_place ? 19.5 : 20.5))
                fail_msg("case %zu, in place %d: %g us", i, in_place, row.time_us);
        }
}

TEST(test_refused_columns)
{
    static const struct {
        const char *names, *row, *message;
        long line;
    } cases[] = {
        {NAMES "cputime algbw busbw #wrong cputime algbw busbw #wrong\n", "", "cputime",
         2},
        {NAMES "time algbw busbw #wrong time algbw busbw #wrong\n",
         LEFT "20.5 0.1 0.1 0 19.5 0.1 0.1", "cut off", 3},
        {NAMES "time algbw busbw #wrong time algbw busbw #wrong timestamp\n",
         LEFT "20.5 0.1 0.1 0 19.5 0.1 0.1 0 2025-11-01 12:0", "more cells", 3},
        {"#  size  count  type  root  time algbw busbw #wrong time algbw busbw #wrong\n",
         "  1024  256  float  -1  20.5 0.1 0.1 0 19.5 0.1 0.1", "cut off", 3},
        {NAMES "time algbw busbw #wrong time algbw busbw #wrong\n",
         LEFT "20.5 0.1 0.1 0 18 19.5 0.1 0.1 0 17", "more cells than the table's", 3},
        {"", LEFT "20.5 0.1 0.1 0 18 24 19.5 0.1 0.1 0 17 23", "expected the table", 2},
        {NAMES "time algbw busbw #wrong time algbw busbw #wrong\n",
         LEFT "20.5 0.1 0.1 1e-07 19.5 0.1 0.1 0", "#wrong is not 0", 3},
        {"#  size  count  type  redop  time algbw busbw error time algbw busbw error\n",
         "  1024  256  float  sum  20.5 0.1 0.1 8e-05 19.5 0.1 0.1 0e+00",
         "error is 8e-05, expected at most 7e-05 for float on 8 ranks", 3},
        {"#  size  count  type  redop  time algbw busbw error time algbw busbw error\n",
         "  1024  256  int32  sum  20.5 0.1 0.1 1e+00 19.5 0.1 0.1 0e+00",
         "expected at most 0e+00 for int32", 3},
        {"#  size  count  type  redop  time algbw busbw error time algbw busbw error\n",
         "  1024  256  float  sum  20.5 0.1 0.1 -1e-07 19.5 0.1 0.1 0e+00", "error is -1",
         3},
        {"#  size  count  type  redop  root  time  algbw  busbw\n", "", "does not name",
         2},
        {"#  bytes  N  type  op  time  algbw  busbw  res  time  algbw  busbw  res\n", "",
         "NCCL 1", 2},
    };
    const struct mist_import_nccl options = {.has_operation = true,
                                             .operation = MIST_LINK_ALL_REDUCE,
                                             .nodes = 1,
                                             .ranks_per_node = 8};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        struct mist_link_row row;
        struct mist_err err = {0};
        snprintf(text, sizeof text, "%s%s%s", RANK, cases[i].names, cases[i].row);
        assert_int_equal(import_text(text, &options, &row, &err), MIST_ERR_INPUT);
        if (!strstr(err.message, cases[i].message))
            fail_msg("case %zu: %s", i, err.message);
        assert_int_equal(err.line, cases[i].line);
    }
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
    assert_non_null(strstr(err.message, "expected a line"));
}

/* Runs of the ranks that a case lists, "HOST GROUP" in the order of the ranks. */
TEST(test_split_runs)
{
    static const struct {
        const char *ranks[9];
        int nodes, ranks_per_node, concurrent_groups; /* 0: refused */
        const char *message;
    } cases[] = {
        {{"a 0", "a 0", "b 0", "b 0"}, 2, 2, 1, NULL},
        {{"a 0", "a 1", "b 0", "b 1"}, 2, 1, 2, NULL}, /* MOD 2 */
        {{"a 0", "a 0", "b 1", "b 1"}, 1, 2, 1, NULL}, /* DIV 2 */
        {{"a 0", "a 0", "a 8", "a 8", "b 16", "b 16", "b 24", "b 24"}, 1, 2, 2, NULL},
        {{"a 0", "b 0", "c 1", "d 1", "a 2", "b 2", "c 3", "d 3"}, 2, 1, 2, NULL},
        {{"a 0", "a 0", "b 0", "b 1"}, 0, 0, 0, "unequal numbers of ranks"},
        {{"a 0", "a 0", "a 1"}, 0, 0, 0, "groups of unequal shape"},
        {{"a 0", "b 0", "a 1"}, 0, 0, 0, "groups of unequal shape"},
        {{"a 0", "b 0", "b 1", "c 1"}, 0, 0, 0, "share only some of their hosts"},
        {{"b 0", "c 0", "a 1", "b 1"}, 0, 0, 0, "share only some of their hosts"},
        {{"a 0", "b 0", "c 1", "d 1", "a 2", "c 2"}, 0, 0, 0, "share only some"},
        {{"a 0", "a 0", "b 1", "b 1", "a 2", "a 2"}, 0, 0, 0, "numbers of groups"},
        {{"a one"}, 0, 0, 0, "Group is not followed by an integer"},
    };
    const struct mist_import_nccl options = {.has_operation = true,
                                             .operation = MIST_LINK_ALL_REDUCE};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2048];
        struct mist_link_row row = {0};
        struct mist_err err = {0};
        int used = 0;
        for (int k = 0; cases[i].ranks[k]; k++) {
            const char *rank = cases[i].ranks[k];
            used += snprintf(text + used, sizeof text - (size_t)used,
                             "#  Rank %2d Group %2s Pid 1 on %.1s device  0 [0x07] GPU\n",
                             k, rank + 2, rank);
        }
        snprintf(text + used, sizeof text - (size_t)used, "%s", ROW);
        enum mist_status status = import_text(text, &options, &row, &err);
        if (status != (cases[i].message ? MIST_ERR_INPUT : MIST_OK) ||
            (cases[i].message && !strstr(err.message, cases[i].message)))
            fail_msg("case %zu: status %d, %s", i, (int)status, err.message);
        if (row.nodes != cases[i].nodes ||
            row.ranks_per_node != cases[i].ranks_per_node ||
            row.concurrent_groups != cases[i].concurrent_groups)
            fail_msg("case %zu: %d x %d, %d groups", i, row.nodes, row.ranks_per_node,
                     row.concurrent_groups);
    }
}

#define RUN                                                                              \
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 warmup iters: 5 iters: 20 agg iters: 1\n"
#define RANK_A "#  Rank  0 Group  0 Pid 1 on  a device  0 [0x07] GPU\n"
#define RANK_B "#  Rank  1 Group  0 Pid 1 on  b device  0 [0x07] GPU\n"
#define NAMED  "# Collective test starting: "

/* Several runs in one file: each has its own program, ranks and columns. What comes twice is
 * measured twice: 20.5 and 24.5 us are 22.5 +- 2. */
TEST(test_several_runs)
{
    static const char text[] = NAMED
        "all_reduce_perf_mpi\n" RUN RANK_A RANK_A
        "a:52:52 [0] NCCL INFO Using network IB\n"
        "3f2a9bc01d52:52:52 [0] NCCL INFO Channel 00/24 : 0 1 2 3\n"
        "  1024  256  float  sum  -1  20.5  0.1  0.1  0  19.5  0.1  0.1  0\n"
        "  1024  512  half  sum  -1  24.5  0.1  0.1  0  19.5  0.1  0.1  0\n" NAMED
        "all_gather_perf_mpi\n" RUN RANK_A RANK_B
        "#  size  count  type  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
        "  1024  256  float  30.5  0.1  0.1  0  29.5  0.1  0.1  0\n" NAMED
        "all_reduce_perf_mpi\n" RUN RANK_A RANK_A RANK_A
        "  1024  256  float  sum  -1  40.5  0.1  0.1  0  39.5  0.1  0.1  0\n";
    struct mist_import_nccl options = {0};
    struct mist_trace_set set;
    struct mist_err err = {0};

    must(import_set(text, &options, &set, &err), &err);
    assert_int_equal(set.n_links, 3);
    const struct mist_link_row *row =
        find_link(&set, MIST_LINK_ALL_REDUCE, 1, 2, 1, 1024);
    assert_non_null(row);
    assert_true(fabs(row->time_us - 22.5) < 1e-9 && fabs(row->deviation_us - 2) < 1e-9);
    assert_int_equal(row->repetitions, 40);
    row = find_link(&set, MIST_LINK_ALL_GATHER, 2, 1, 1, 1024);
    assert_true(row && row->time_us == 30.5);
    row = find_link(&set, MIST_LINK_ALL_REDUCE, 1, 3, 1, 1024);
    assert_true(row && row->time_us == 40.5);
    mist_trace_set_fini(&set);

    /* who ran is not known of the second, nor are the ranks of one that doesn't list them */
    static const struct {
        const char *text, *message;
        long line;
    } cases[] = {
        {RUN RANK_A RANK_A RUN, "of a program that the log does not name", 4},
        {NAMED "all_reduce_perf\n" RUN RANK_A NAMED "all_reduce_perf\n" RUN
               "  1024  256  float  sum  -1  40.5  0.1  0.1  0  39.5  0.1  0.1  0\n",
         "the log lists no ranks", 6},
        {NAMED "all_reduce_perfect\n", "without a link operation", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        err = (struct mist_err){0};
        assert_int_equal(import_set(cases[i].text, &options, &set, &err), MIST_ERR_INPUT);
        if (!strstr(err.message, cases[i].message) || err.line != cases[i].line)
            fail_msg("case %zu: line %ld: %s", i, err.line, err.message);
        mist_trace_set_fini(&set);
    }
}

/* What launchers put before the lines of rank 0, and say themselves, changes nothing. */
TEST(test_tags)
{
    static const char *const lines[] = {
        "# Collective test starting: all_reduce_perf\n",
        RUN,
        RANK_A,
        RANK_B,
        "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n",
        "  1024  256  float  sum  -1  20.5  0.1  0.1  0  19.5  0.1  0.1  0\n"};
    static const char *const tags[] = {
        "", "0:", "0: ", " 0: ", "[1,0]<stdout>:", "[0] ", "node-1: ", "[pod/a-0/main] "};

    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        const struct mist_import_nccl options = {0};
        struct mist_trace_set set;
        struct mist_err err = {0};
        char text[2048] = "srun: job 7 queued\n1: 2 warnings\n[1,1]<stdout>: 3\n";
        for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
            strcat(text, tags[i]);
            strcat(text, lines[k]);
            strcat(text, "1: 2 warnings\na:52:52 [0] NCCL INFO Trees # 1/-1\n");
        }
        if (import_set(text, &options, &set, &err) != MIST_OK)
            fail_msg("'%s': line %ld: %s", tags[i], err.line, err.message);
        const struct mist_link_row *row =
            find_link(&set, MIST_LINK_ALL_REDUCE, 2, 1, 1, 1024);
        if (!row || row->time_us != 20.5 || row->repetitions != 20 || set.n_links != 1)
            fail_msg("'%s': %zu rows", tags[i], set.n_links);
        mist_trace_set_fini(&set);
    }
}

/* Each rank sends to the next one: between nodes one message in each direction, within a node
 * of 8 as many as 4 pairs exchange. */
TEST(test_sendrecv)
{
    static const struct {
        int nodes, ranks;                  /* that ran */
        int of_nodes, of_ranks, of_groups; /* that the row is of */
    } cases[] = {{1, 2, 1, 2, 1}, {1, 8, 1, 2, 4}, {4, 8, 2, 1, 1}, {2, 1, 2, 1, 1}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct mist_import_nccl options = {.has_operation = true,
                                                 .operation = MIST_LINK_SEND_RECV,
                                                 .nodes = cases[i].nodes,
                                                 .ranks_per_node = cases[i].ranks};
        struct mist_link_row row = {0};
        struct mist_err err = {0};
        must(import_text(ROW, &options, &row, &err), &err);
        if (row.nodes != cases[i].of_nodes || row.ranks_per_node != cases[i].of_ranks ||
            row.concurrent_groups != cases[i].of_groups)
            fail_msg("case %zu: %d x %d, %d groups", i, row.nodes, row.ranks_per_node,
                     row.concurrent_groups);
    }
}

/* What can't be of this cluster, and a time that can't be true. */
TEST(test_other_cluster)
{
    struct mist_import_nccl options = {.has_operation = true,
                                       .operation = MIST_LINK_ALL_REDUCE,
                                       .nodes = 1,
                                       .ranks_per_node = 16};
    struct mist_link_row row = {0};
    struct mist_err err = {0};

    assert_int_equal(import_text(ROW, &options, &row, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "1 x 16 ranks on a node, the cluster has 8"));
    options.ranks_per_node = 8;
    assert_int_equal(
        import_text("  8589934592  256  float  sum  -1  1.5  0.1  0.1  0  1.5  "
                    "0.1  0.1  0\n",
                    &options, &row, &err),
        MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "beyond reason"));
    assert_int_equal(err.line, 1);
}

TEST(test_missing_file)
{
    struct mist_trace_set set;
    struct mist_import_nccl options = {0};
    struct mist_err err = {0};
    size_t n;

    mist_trace_set_init(&set);
    assert_int_equal(import_log(&set, "/no/such.log", &options, &n, &err), MIST_ERR_IO);
    mist_trace_set_fini(&set);
}

TEST_MAIN(NULL, NULL)
