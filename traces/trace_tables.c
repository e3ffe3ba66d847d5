/*
 * The tables of a trace set as CSV. See trace_set.h and, for the formats,
 * traces/README.md.
 */
#include "core/csv.h"
#include "traces/trace_internal.h"

#include <inttypes.h>

#define MAX_COLUMNS 16

/* A row of any table. */
union row {
    struct mist_kernel_row kernel;
    struct mist_link_row link;
    struct mist_interference_row interference;
    struct mist_check_row check;
};

/* Adds a row that somebody wrote into a file. */
static enum mist_status add_row(enum mist_trace_table table, const union row *row,
                                struct mist_trace_set *set, struct mist_err *err)
{
    const struct mist_cluster *cluster = &set->cluster;
    enum mist_status status = MIST_OK;

    switch (table) {
    case MIST_TRACE_TABLE_KERNELS:
        status = mist_trace_set_add_kernel(set, &row->kernel, err);
        return status ? status : mist_trace_judge_kernel(&row->kernel, cluster, err);
    case MIST_TRACE_TABLE_LINKS:
        status = mist_trace_set_add_link(set, &row->link, err);
        return status ? status : mist_trace_judge_link(&row->link, cluster, err);
    case MIST_TRACE_TABLE_INTERFERENCE:
        return mist_trace_set_add_interference(set, &row->interference, err);
    case MIST_TRACE_TABLE_CHECKS:
        return mist_trace_set_add_check(set, &row->check, err);
    case MIST_N_TRACE_TABLES:
        break;
    }
    return status;
}

static enum mist_status read_row(enum mist_trace_table table, const struct mist_csv *csv,
                                 size_t i, struct mist_trace_set *set,
                                 struct mist_err *err)
{
    const struct mist_trace_form *form = &mist_trace_forms[table];
    union row row = {0};
    enum mist_status status = MIST_OK;

    for (size_t k = 0; k < form->n_columns && status == MIST_OK; k++)
        status = mist_trace_cell_read(&form->columns[k], csv, i, k, &row, err);
    if (status != MIST_OK)
        return status;
    if (table == MIST_TRACE_TABLE_KERNELS)
        row.kernel.line = mist_csv_line(csv, i);
    return mist_csv_locate(csv, i, add_row(table, &row, set, err), err);
}

/* A table whose end was lost between two rows looks whole but for their number. */
static enum mist_status check_n_rows(const struct mist_csv *csv, int64_t n_expected,
                                     struct mist_err *err)
{
    size_t n = mist_csv_n_rows(csv);

    if (n_expected < 0 || n == (size_t)n_expected)
        return MIST_OK;
    return mist_err_at(err, MIST_ERR_INPUT, mist_csv_path(csv),
                       n > 0 ? mist_csv_line(csv, n - 1) : 1, 0,
                       "the file ends after %zu rows, expected %" PRId64
                       " as \"rows\" of cluster.json says: was it cut? After an edit by "
                       "hand put %zu there, or leave \"rows\" out",
                       n, n_expected, n);
}

enum mist_status mist_trace_table_load(enum mist_trace_table table, const char *path,
                                       int64_t n_rows, struct mist_trace_set *set,
                                       struct mist_err *err)
{
    const struct mist_trace_form *form = &mist_trace_forms[table];
    struct mist_csv_column columns[MAX_COLUMNS];
    struct mist_csv *csv = NULL;

    for (size_t i = 0; i < form->n_columns; i++)
        columns[i] = (struct mist_csv_column){form->columns[i].name, MIST_CSV_REQUIRED};
    enum mist_status status = mist_csv_load(path, columns, form->n_columns, &csv, err);

    for (size_t i = 0; status == MIST_OK && i < mist_csv_n_rows(csv); i++)
        status = read_row(table, csv, i, set, err);
    if (status == MIST_OK)
        status = check_n_rows(csv, n_rows, err);
    mist_csv_free(csv);
    return status;
}

const void *mist_trace_table_row(enum mist_trace_table table,
                                 const struct mist_trace_set *set, size_t i)
{
    switch (table) {
    case MIST_TRACE_TABLE_KERNELS:
        return &set->kernels[i];
    case MIST_TRACE_TABLE_LINKS:
        return &set->links[i];
    case MIST_TRACE_TABLE_INTERFERENCE:
        return &set->interferences[i];
    case MIST_TRACE_TABLE_CHECKS:
        return &set->checks[i];
    case MIST_N_TRACE_TABLES:
        break;
    }
    return NULL;
}

size_t mist_trace_table_n_rows(enum mist_trace_table table,
                               const struct mist_trace_set *set)
{
    const size_t n_rows[MIST_N_TRACE_TABLES] = {
        [MIST_TRACE_TABLE_KERNELS] = set->n_kernels,
        [MIST_TRACE_TABLE_LINKS] = set->n_links,
        [MIST_TRACE_TABLE_INTERFERENCE] = set->n_interferences,
        [MIST_TRACE_TABLE_CHECKS] = set->n_checks,
    };

    return n_rows[table];
}

enum mist_status mist_trace_table_save(enum mist_trace_table table, const char *path,
                                       const struct mist_trace_set *set, bool overwrite,
                                       struct mist_err *err)
{
    const struct mist_trace_form *form = &mist_trace_forms[table];
    struct mist_csv_writer writer = {0};
    const char *names[MAX_COLUMNS];

    for (size_t i = 0; i < form->n_columns; i++)
        names[i] = form->columns[i].name;
    enum mist_status status =
        mist_csv_writer_open(&writer, path, overwrite, names, form->n_columns, err);
    if (status != MIST_OK)
        return status;
    for (size_t i = 0; i < mist_trace_table_n_rows(table, set); i++) {
        for (size_t k = 0; k < form->n_columns; k++)
            mist_trace_cell_write(&form->columns[k], &writer,
                                  mist_trace_table_row(table, set, i));
        mist_csv_end_row(&writer);
    }
    return mist_csv_writer_commit(&writer, err);
}
