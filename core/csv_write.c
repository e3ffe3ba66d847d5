/* Writing CSV. See csv.h. */
#include "core/csv.h"
#include "core/parse.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool needs_quotes(const char *text)
{
    size_t n = strlen(text);

    return strpbrk(text, ",\"\r\n") ||
           (n > 0 && (strchr(" \t", text[0]) || strchr(" \t", text[n - 1])));
}

void mist_csv_write_cell(const char *text, FILE *stream)
{
    if (!needs_quotes(text)) {
        fputs(text, stream);
        return;
    }
    fputc('"', stream);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', stream);
        fputc(*text, stream);
    }
    fputc('"', stream);
}

void mist_csv_add_text(struct mist_csv_writer *writer, const char *text)
{
    assert(writer->i_column < writer->n_columns);
    if (writer->i_column++ > 0)
        fputc(',', writer->file.stream);
    mist_csv_write_cell(text, writer->file.stream);
}

void mist_csv_add_int64(struct mist_csv_writer *writer, int64_t value)
{
    char text[MIST_FORMAT_BYTES];

    snprintf(text, sizeof text, "%" PRId64, value);
    mist_csv_add_text(writer, text);
}

void mist_csv_add_double(struct mist_csv_writer *writer, double value)
{
    char text[MIST_FORMAT_BYTES];

    mist_csv_add_text(writer, mist_format_double(text, sizeof text, value));
    if (!isfinite(value) && !writer->status)
        writer->status = mist_err_at(
            &writer->err, MIST_ERR_RANGE, writer->file.path, 0, 0,
            "column %zu: %g is no number that a table can hold", writer->i_column, value);
}

void mist_csv_end_row(struct mist_csv_writer *writer)
{
    assert(writer->i_column == writer->n_columns);
    fputc('\n', writer->file.stream);
    writer->i_column = 0;
}

enum mist_status mist_csv_writer_open(struct mist_csv_writer *writer, const char *path,
                                      bool force, const char *const *names,
                                      size_t n_columns, struct mist_err *err)
{
    *writer = (struct mist_csv_writer){.n_columns = n_columns};
    enum mist_status status = mist_atomic_file_open(&writer->file, path, force, err);
    if (status)
        return status;
    for (size_t i = 0; i < n_columns; i++)
        mist_csv_add_text(writer, names[i]);
    mist_csv_end_row(writer);
    return MIST_OK;
}

enum mist_status mist_csv_writer_commit(struct mist_csv_writer *writer,
                                        struct mist_err *err)
{
    if (!writer->status)
        return mist_atomic_file_commit(&writer->file, err);
    mist_atomic_file_abort(&writer->file);
    if (err)
        *err = writer->err;
    return writer->status;
}

void mist_csv_writer_abort(struct mist_csv_writer *writer)
{
    mist_atomic_file_abort(&writer->file);
}
