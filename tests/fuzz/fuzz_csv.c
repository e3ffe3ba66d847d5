/* core/csv: a table that is read is written and read as the same table. */
#include "core/csv.h"
#include "tests/fuzz/fuzz.h"

static const struct mist_csv_column columns[] = {
    {"name", MIST_CSV_REQUIRED},
    {"time_us", MIST_CSV_REQUIRED},
    {"bytes", MIST_CSV_OPTIONAL},
    {"phase", MIST_CSV_OPTIONAL},
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

/* Typed cells are in their range, or refused with their line. */
static void look(const struct mist_csv *csv, size_t row, size_t column)
{
    static const char *const words[] = {"forward", "backward", NULL};
    struct mist_err err = {0};
    int64_t whole = -77;
    double real = -77;
    int word = -77;

    enum mist_status status = mist_csv_get_int64(csv, row, column, 1, 100, &whole, &err);
    if (status == MIST_OK)
        FUZZ_CHECK(whole >= 1 && whole <= 100, "%lld", (long long)whole);
    else
        FUZZ_CHECK(whole == -77 && err.line > 0, "%lld", (long long)whole);
    status = mist_csv_get_double(csv, row, column, 0, 1e9, &real, &err);
    if (status == MIST_OK)
        FUZZ_CHECK(real >= 0 && real <= 1e9, "%g", real);
    else
        fuzz_check_refusal(status, &err, true);
    status = mist_csv_get_choice(csv, row, column, words, &word, &err);
    if (status == MIST_OK)
        FUZZ_CHECK(word == 0 || word == 1, "%d", word);
    else
        fuzz_check_refusal(status, &err, true);
}

static void write_table(const struct mist_csv *csv, const char *path, size_t n_columns)
{
    const char *names[N_COLUMNS];
    struct mist_csv_writer writer;
    struct mist_err err = {0};

    for (size_t i = 0; i < n_columns; i++)
        names[i] = columns[i].name;
    fuzz_must(mist_csv_writer_open(&writer, path, true, names, n_columns, &err), &err);
    for (size_t row = 0; row < mist_csv_n_rows(csv); row++) {
        for (size_t i = 0; i < n_columns; i++)
            mist_csv_add_text(&writer, mist_csv_text(csv, row, i));
        mist_csv_end_row(&writer);
    }
    fuzz_must(mist_csv_writer_commit(&writer, &err), &err);
}

static void check_round_trip(const struct mist_csv *csv, size_t n_columns)
{
    char path[FUZZ_PATH_BYTES];
    struct mist_csv *again = NULL;
    struct mist_err err = {0};

    write_table(csv, fuzz_path(path, "out.csv"), n_columns);
    fuzz_must(mist_csv_load(path, columns, n_columns, &again, &err), &err);
    FUZZ_CHECK(mist_csv_n_rows(again) == mist_csv_n_rows(csv), "%zu rows, then %zu",
               mist_csv_n_rows(csv), mist_csv_n_rows(again));
    for (size_t row = 0; row < mist_csv_n_rows(csv); row++)
        for (size_t i = 0; i < n_columns; i++) {
            const char *a = mist_csv_text(csv, row, i), *b = mist_csv_text(again, row, i);
            FUZZ_CHECK(strcmp(a, b) == 0, "row %zu: '%s', then '%s'", row, a, b);
        }
    mist_csv_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct fuzz_bytes input = {bytes, n};
    size_t n_columns = 2 + fuzz_take(&input) % 3;
    struct mist_csv *csv = NULL;
    struct mist_err err = {0};
    enum mist_status status = mist_csv_load_text("in.csv", (const char *)input.bytes,
                                                 input.n, columns, n_columns, &csv, &err);

    if (status != MIST_OK) {
        fuzz_check_refusal(status, &err, true);
        FUZZ_CHECK(!csv, "a table in spite of: %s", err.message);
        return 0;
    }
    for (size_t row = 0; row < mist_csv_n_rows(csv); row++)
        for (size_t i = 0; i < n_columns; i++)
            look(csv, row, i);
    check_round_trip(csv, n_columns);
    mist_csv_free(csv);
    return 0;
}

void fuzz_write_seeds(void)
{
    fuzz_seed_text("two", "0name,time_us\na,1.5\nb,2e3\n");
    fuzz_seed_text("order", "1bytes,time_us,name\r\n4096,3,x\r\n,0.5,y\r\n");
    fuzz_seed_text("quotes", "2name,time_us,bytes,phase\n\"a,\"\"b\"\"\",1,2,forward\n"
                             "\" c \n d\", 7 ,\"\", backward \n");
    fuzz_seed_text("mark", "0\xef\xbb\xbfname,time_us\n\n# ,1\n");
    fuzz_seed_text("unit", "0name,time_ms\na,1\n");
}
