/*
 * core/csv: headers, cells, quotes, lines of errors, writing, and running out of memory.
 */
#include "tests/unit/fault.h"

#include "tests/unit/test.h"

#include "core/csv.h"
#include "tests/unit/scratch.h"

#include <float.h>
#include <math.h>

enum { COLUMN_NAME, COLUMN_TIME, COLUMN_COUNT, N_COLUMNS };

static const struct mist_csv_column columns[N_COLUMNS] = {
    [COLUMN_NAME] = {"name", MIST_CSV_REQUIRED},
    [COLUMN_TIME] = {"time_us", MIST_CSV_REQUIRED},
    [COLUMN_COUNT] = {"count", MIST_CSV_OPTIONAL},
};

static enum mist_status load(const char *text, struct mist_csv **csv,
                             struct mist_err *err)
{
    return mist_csv_load_text("t.csv", text, strlen(text), columns, N_COLUMNS, csv, err);
}

/* What a visit sees of rows: all that loading keeps. */
struct seen {
    const struct mist_csv *whole; /* NULL: not compared */
    size_t n_rows;
};

static enum mist_status see(const struct mist_csv *csv, void *context,
                            struct mist_err *err)
{
    struct seen *seen = context;

    assert_int_equal(mist_csv_n_rows(csv), 1);
    for (size_t i = 0; seen->whole && i < N_COLUMNS; i++)
        assert_string_equal(mist_csv_text(csv, 0, i),
                            mist_csv_text(seen->whole, seen->n_rows, i));
    if (seen->whole)
        assert_int_equal(mist_csv_line(csv, 0), mist_csv_line(seen->whole, seen->n_rows));
    seen->n_rows++;
    if (strcmp(mist_csv_text(csv, 0, COLUMN_NAME), "stop") == 0)
        return mist_csv_fail(csv, 0, COLUMN_NAME, err, "stopped");
    return MIST_OK;
}

/* The text as a file, row by row. */
static enum mist_status visit(const char *text, size_t n, struct seen *seen,
                              struct mist_err *err)
{
    struct scratch scratch;

    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "t.csv");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
    enum mist_status status =
        mist_csv_visit(path, columns, N_COLUMNS, see, seen, NULL, err);
    if (status != MIST_OK)
        assert_string_equal(err->path, path);
    scratch_fini(&scratch);
    return status;
}

static void expect_error(const char *text, long line, const char *part)
{
    struct mist_csv *csv;
    struct mist_err err = {0};
    struct seen seen = {0};

    assert_int_equal(visit(text, strlen(text), &seen, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, part));
    assert_int_equal(err.line, line);
    assert_int_equal(load(text, &csv, &err), MIST_ERR_INPUT);
    assert_string_equal(err.path, "t.csv");
    assert_non_null(strstr(err.message, part));
    assert_int_equal(err.line, line);
}

TEST(test_headers)
{
    expect_error("", 1, "is empty");
    expect_error("\n \n", 1, "is empty");
    expect_error("name,count\n", 1, "missing column \"time_us\"");
    expect_error("name,time_us,extra\n", 1,
                 "unknown column \"extra\", expected name, time_us");
    expect_error("name,time_us,time_us\n", 1, "\"time_us\" is there twice");
    expect_error("name,time_ms\n", 1, "\"time_ms\": expected \"time_us\" (in us)");
    expect_error("name,time\n", 1, "expected \"time_us\"");
    expect_error("name,time_us,\n", 1, "unknown column \"\"");
}

/* A line of a file that is no table ends the reading, however long it is. */
TEST(test_many_columns)
{
    char text[600];
    size_t n = (size_t)snprintf(text, sizeof text, "name,time_us");

    memset(text + n, ',', 254);
    snprintf(text + n + 254, sizeof text - n - 254, "\n");
    expect_error(text, 1, "unknown column");
    memset(text + n, ',', 255);
    snprintf(text + n + 255, sizeof text - n - 255, "\n");
    expect_error(text, 1, "more than 256 columns");
}

TEST(test_rows)
{
    expect_error("name,time_us\na,1,2\n", 2, "3 cells, expected 2");
    expect_error("name,time_us\na,1\n\nb\n", 4, "1 cells, expected 2");
    expect_error("name,time_us\na,1\n\"b,2\nc,3\nd,4\n", 3, "not closed");
    expect_error("name,time_us\na\"b\",1\n", 2, "quote");
    expect_error("name,time_us\n\"a\"b,1\n", 2, "quote");
    expect_error("name,time_us\na,1\nb,234", 3, "cut");
    expect_error("name,time_us\na,1\n\nb", 4, "cut");
    expect_error("name,time_us", 1, "cut");
}

/* An open quote in front of much text is found without swallowing it. */
TEST(test_open_quote_is_bounded)
{
    size_t n = 3 << 20;
    char *text = malloc(n + 1);
    struct mist_csv *csv;
    struct mist_err err;

    int n_head = sprintf(text, "name,time_us\n\"a,1\n");
    for (size_t i = (size_t)n_head; i < n; i++)
        text[i] = i % 8 == 7 ? '\n' : 'x';
    text[n - 1] = '\0'; /* an error of its own, which is not reached */
    assert_int_equal(mist_csv_load_text("t.csv", text, n, columns, N_COLUMNS, &csv, &err),
                     MIST_ERR_INPUT);
    assert_int_equal(err.line, 2);
    assert_non_null(strstr(err.message, "not closed"));
    struct seen seen = {0};
    assert_int_equal(visit(text, n, &seen, &err), MIST_ERR_INPUT);
    assert_int_equal(err.line, 2);
    assert_non_null(strstr(err.message, "not closed"));
    memset(text + 13, 'x', n - 13); /* one line */
    assert_int_equal(visit(text, n, &seen, &err), MIST_ERR_INPUT);
    assert_int_equal(err.line, 2);
    assert_int_equal(seen.n_rows, 0);
    assert_int_equal(mist_csv_load_text("t.csv", "name,ti\0me_us\n", 14, columns,
                                        N_COLUMNS, &csv, &err),
                     MIST_ERR_INPUT);
    free(text);
}

TEST(test_cells)
{
    static const char text[] = "\xef\xbb\xbftime_us , name\r\n"
                               "1.5,\"a \"\"b\"\", c\"\r\n"
                               "\r\n"
                               "2e3,\"two\nlines\"\r\n"
                               "nan,\r\n  ";
    static const char *const choices[] = {"x", "two\nlines", NULL};
    struct mist_csv *csv;
    struct mist_err err;
    double time_us = 0;
    int64_t whole = 0;
    int choice = -1;

    assert_int_equal(load(text, &csv, &err), MIST_OK);
    assert_int_equal(mist_csv_n_rows(csv), 3);
    assert_int_equal(mist_csv_line(csv, 0), 2);
    assert_int_equal(mist_csv_line(csv, 2), 6); /* row 1 spans two lines */
    assert_string_equal(mist_csv_text(csv, 0, COLUMN_NAME), "a \"b\", c");
    assert_string_equal(mist_csv_text(csv, 1, COLUMN_NAME), "two\nlines");
    assert_string_equal(mist_csv_text(csv, 2, COLUMN_NAME), "");
    assert_string_equal(mist_csv_text(csv, 0, COLUMN_COUNT), "");
    assert_int_equal(
        mist_csv_get_double(csv, 1, COLUMN_TIME, 0, INFINITY, &time_us, &err), MIST_OK);
    assert_true(time_us == 2000);
    assert_int_equal(mist_csv_get_double(csv, 1, COLUMN_TIME, 0, 10, &time_us, &err),
                     MIST_ERR_INPUT);
    assert_int_equal(err.line, 4);
    assert_string_equal(err.message, "time_us: 2000 is not within 0 .. 10");
    assert_int_equal(
        mist_csv_get_double(csv, 1, COLUMN_TIME, 3000, DBL_MAX, &time_us, &err),
        MIST_ERR_INPUT);
    assert_string_equal(err.message, "time_us: 2000 is below 3000");
    assert_int_equal(mist_csv_get_double(csv, 2, COLUMN_TIME, 0, 10, &time_us, &err),
                     MIST_ERR_INPUT);
    assert_int_equal(err.line, 6); /* row 1 spans two lines */
    assert_int_equal(mist_csv_get_int64(csv, 0, COLUMN_TIME, 0, 9, &whole, &err),
                     MIST_ERR_INPUT);
    assert_int_equal(mist_csv_get_int64(csv, 0, COLUMN_COUNT, 0, 9, &whole, &err),
                     MIST_ERR_INPUT);
    assert_int_equal(mist_csv_get_choice(csv, 1, COLUMN_NAME, choices, &choice, &err),
                     MIST_OK);
    assert_int_equal(choice, 1);
    assert_int_equal(mist_csv_get_choice(csv, 0, COLUMN_NAME, choices, &choice, &err),
                     MIST_ERR_INPUT);
    mist_csv_free(csv);
    assert_int_equal(load("name,time_us\r", &csv, &err), MIST_OK);
    assert_int_equal(mist_csv_n_rows(csv), 0);
    mist_csv_free(csv);
}

/* What is written is read back, whatever the texts. */
TEST(test_round_trip)
{
    static const char *const names[] = {"name", "time_us", "count"};
    static const char *const texts[] = {"", "a", "a,b", "\"", " a ", "\n", "é\r\n", "'"};
    static const double times[] = {0.1, 1e-300, 3, 1.0 / 3, -0.0, 1e22, 5e-324, 1e15};
    struct scratch scratch;
    struct mist_csv_writer writer;
    struct mist_csv *csv;
    struct mist_err err;

    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "a.csv");
    assert_int_equal(mist_csv_writer_open(&writer, path, false, names, 3, &err), MIST_OK);
    for (int i = 0; i < 8; i++) {
        mist_csv_add_text(&writer, texts[i]);
        mist_csv_add_double(&writer, times[i]);
        mist_csv_add_int64(&writer, INT64_MIN + i);
        mist_csv_end_row(&writer);
    }
    assert_int_equal(mist_csv_writer_commit(&writer, &err), MIST_OK);
    assert_int_equal(mist_csv_load(path, columns, N_COLUMNS, &csv, &err), MIST_OK);
    assert_int_equal(mist_csv_n_rows(csv), 8);
    for (size_t i = 0; i < 8; i++) {
        double time_us = 1;
        int64_t count = 0;
        assert_string_equal(mist_csv_text(csv, i, COLUMN_NAME), texts[i]);
        if (times[i] == 0 || times[i] > 1e-307) {
            assert_int_equal(mist_csv_get_double(csv, i, COLUMN_TIME, -INFINITY, INFINITY,
                                                 &time_us, &err),
                             MIST_OK);
            assert_true(time_us == times[i]);
        }
        assert_int_equal(
            mist_csv_get_int64(csv, i, COLUMN_COUNT, INT64_MIN, INT64_MAX, &count, &err),
            MIST_OK);
        assert_true(count == INT64_MIN + (int64_t)i);
    }
    int64_t one = 0;
    assert_int_equal(mist_csv_get_int64(csv, 0, COLUMN_COUNT, 1, 1, &one, &err),
                     MIST_ERR_INPUT);
    assert_string_equal(err.message, "count: -9223372036854775808, expected 1");
    mist_csv_free(csv);
    assert_int_equal(mist_csv_writer_open(&writer, path, true, names, 1, &err), MIST_OK);
    mist_csv_add_double(&writer, (double)NAN);
    mist_csv_end_row(&writer);
    assert_int_equal(mist_csv_writer_commit(&writer, &err), MIST_ERR_RANGE);
    assert_int_equal(scratch_count(&scratch), 1);
    scratch_fini(&scratch);
}

/* Row by row is as at once, wherever a piece of the file ends. */
TEST(test_visit)
{
    enum { N_BYTES = 900000 };
    char *text = malloc(N_BYTES + 1);
    struct mist_csv *csv;
    struct mist_err err = {0};

    int n = sprintf(text, "\xef\xbb\xbfname,time_us\n");
    for (int i = 0; n < N_BYTES - 100; i++)
        n += sprintf(text + n, i % 7 ? "%d,\"x%0*d\"\r\n" : "\n\"%d\n\"\"\",%0*d\n", i,
                     1 + i % 40, i);
    assert_int_equal(load(text, &csv, &err), MIST_OK);
    struct seen seen = {.whole = csv};
    must(visit(text, (size_t)n, &seen, &err), &err);
    assert_int_equal(seen.n_rows, mist_csv_n_rows(csv));
    mist_csv_free(csv);

    seen = (struct seen){0};
    const char *stops = "name,time_us\na,1\nstop,2\nb\n";
    assert_int_equal(visit(stops, strlen(stops), &seen, &err), MIST_ERR_INPUT);
    assert_string_equal(err.message, "name: stopped");
    assert_int_equal(err.line, 3);
    assert_int_equal(seen.n_rows, 2);
    free(text);
}

TEST(test_faults)
{
    static const char text[] = "name,time_us\na,1\nb,2\nc,3\nd,4\ne,5\nf,6\ng,7\nh,8\n";
    struct mist_csv *csv;
    struct mist_err err;
    long n_live = fault_n_live();

    for (long n = 1; n < 1000; n++) {
        fault_arm(FAULT_MALLOC, n);
        enum mist_status status = load(text, &csv, &err);
        bool has_fired = fault_disarm();
        if (status == MIST_OK) { /* also when libcsv gets along with less memory */
            assert_int_equal(mist_csv_n_rows(csv), 8);
            assert_string_equal(mist_csv_text(csv, 7, COLUMN_NAME), "h");
            mist_csv_free(csv);
        } else {
            assert_int_equal(status, MIST_ERR_MEMORY);
        }
        assert_int_equal(fault_n_live(), n_live);
        if (!has_fired) {
            assert_int_equal(status, MIST_OK);
            assert_true(n > 8);
            break;
        }
    }
}

TEST_MAIN(NULL, NULL)
