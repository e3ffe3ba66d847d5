/* Rows of a search in a file. See search_rows.h. */
#include "tune/search_rows.h"

#include "core/atomic_file.h"

#include <errno.h>
#include <string.h>

static enum mist_status fail(const struct mist_search_rows *rows, const char *verb,
                             struct mist_err *err)
{
    return mist_err_at(err, MIST_ERR_IO, rows->path, 0, 0, "can't %s rows: %s", verb,
                       strerror(errno ? errno : EIO));
}

enum mist_status mist_search_rows_open(struct mist_search_rows *rows, const char *path,
                                       struct mist_err *err)
{
    *rows = (struct mist_search_rows){.path = path};
    return mist_file_open_nameless(path, &rows->file, err);
}

enum mist_status mist_search_rows_add(struct mist_search_rows *rows,
                                      const struct mist_search_row *items, size_t n,
                                      struct mist_err *err)
{
    errno = 0;
    if (fwrite(items, sizeof *items, n, rows->file) != n)
        return fail(rows, "write", err);
    rows->n += (int64_t)n;
    return MIST_OK;
}

enum mist_status mist_search_rows_each(struct mist_search_rows *rows,
                                       void (*fn)(void *context,
                                                  const struct mist_search_row *row),
                                       void *context, struct mist_err *err)
{
    struct mist_search_row row;

    errno = 0;
    if (fflush(rows->file) != 0 || fseek(rows->file, 0, SEEK_SET) != 0)
        return fail(rows, "write", err);
    for (int64_t i = 0; i < rows->n; i++) {
        if (fread(&row, sizeof row, 1, rows->file) != 1)
            return fail(rows, "read", err);
        fn(context, &row);
    }
    return MIST_OK;
}

enum mist_status mist_search_rows_close(struct mist_search_rows *rows,
                                        struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    errno = 0;
    if (rows->file && fclose(rows->file) != 0)
        status = fail(rows, "write", err);
    *rows = (struct mist_search_rows){0};
    return status;
}
