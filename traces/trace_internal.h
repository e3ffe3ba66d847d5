/* What the files of trace sets share among themselves. Private to traces/. */
#ifndef MIST_TRACES_TRACE_INTERNAL_H
#define MIST_TRACES_TRACE_INTERNAL_H

#include "core/hash.h"
#include "core/json_fields.h"
#include "traces/trace_set.h"

/* The tables of a trace set. */
enum mist_trace_table {
    MIST_TRACE_TABLE_KERNELS,
    MIST_TRACE_TABLE_LINKS,
    MIST_TRACE_TABLE_INTERFERENCE,
    MIST_TRACE_TABLE_CHECKS,
    MIST_N_TRACE_TABLES
};

/* Their columns: what reading, writing, checks and fingerprints go by. */
enum mist_trace_kind {
    MIST_TRACE_OP,        /* char[MIST_TRACE_NAME_MAX]: [a-z][a-z0-9_]* */
    MIST_TRACE_WORD,      /* an enum by its words */
    MIST_TRACE_SHAPE,     /* struct mist_shape */
    MIST_TRACE_CHANNELS,  /* unsigned: a mask of streams, two or more */
    MIST_TRACE_INT,       /* int > 0 */
    MIST_TRACE_INT64,     /* int64_t > 0 */
    MIST_TRACE_TIME_US,   /* double > 0, up to a day */
    MIST_TRACE_SPREAD_US, /* double >= 0, up to a day */
    MIST_TRACE_ALONE_US,  /* TIME_US if channels name the column's stream, else 0 */
    MIST_TRACE_AMOUNT,    /* double >= 0 */
};

struct mist_trace_column {
    const char *name;
    enum mist_trace_kind kind;
    size_t offset;            /* of the member in the table's rows */
    const char *const *words; /* of MIST_TRACE_WORD, NULL-terminated */
};

struct mist_trace_form {
    const char *name;                        /* tells the rows of tables apart */
    const struct mist_trace_column *columns; /* in the order of writing */
    size_t n_columns;
    size_t n_key; /* the first of them: no two rows have the same */
};
extern const struct mist_trace_form mist_trace_forms[MIST_N_TRACE_TABLES];

/* One cell to and from its member of a row. */
struct mist_csv;
struct mist_csv_writer;
MIST_MUST_CHECK enum mist_status
mist_trace_cell_read(const struct mist_trace_column *column, const struct mist_csv *csv,
                     size_t i_row, size_t i_column, void *row, struct mist_err *err);
void mist_trace_cell_write(const struct mist_trace_column *column,
                           struct mist_csv_writer *writer, const void *row);

/* FNV-1a of the first n columns of a row, and whether they are those of another one. */
uint64_t mist_trace_row_hash(enum mist_trace_table table, size_t n, const void *row);
bool mist_trace_row_has(enum mist_trace_table table, size_t n, const void *row,
                        const void *key);

/* MIST_OK or MIST_ERR_INPUT with a message that begins with the column's name. */
MIST_MUST_CHECK enum mist_status
mist_trace_check_row(enum mist_trace_table table, const void *row, struct mist_err *err);

/*
 * Whether a row (checked) that somebody wrote into a file can be true on this cluster: an
 * operator at most 10 times as fast as the highest peak of cluster.json (fp32 may run as
 * tf32), 1000 times its memory (caches); a message likewise; channels together at least a
 * tenth of the longest alone; runs within 100 of what was predicted. Another unit in a
 * column is off by 1000 and found by one of these or by the longest time, a day. MIST_OK
 * or MIST_ERR_INPUT.
 */
MIST_MUST_CHECK enum mist_status
mist_trace_judge_kernel(const struct mist_kernel_row *row,
                        const struct mist_cluster *cluster, struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_trace_judge_link(const struct mist_link_row *row,
                                                       const struct mist_cluster *cluster,
                                                       struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_trace_judge_interference(const struct mist_interference_row *row,
                              struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_trace_judge_check(const struct mist_check_row *row,
                                                        struct mist_err *err);

/* struct mist_cluster, in the order of writing, and what checks know of its numbers. */
enum {
    MIST_CLUSTER_MEMORY = 1, /* bytes: fewer than a million are meant otherwise */
    MIST_CLUSTER_RATE,       /* per second: up to what a device can do */
    MIST_CLUSTER_TIME_US,    /* up to a day */
    MIST_CLUSTER_SLOWDOWN,   /* 1 to 100, or 0 */
};
extern const struct mist_json_field mist_cluster_fields[];

/* [a-z][a-z0-9_]* with fewer than max characters: names of operators and dimensions. */
static inline bool mist_words_is_name(const char *name, size_t max)
{
    size_t n = 0;

    for (; name[n]; n++) {
        bool is_letter = name[n] >= 'a' && name[n] <= 'z';
        bool is_other = (name[n] >= '0' && name[n] <= '9') || name[n] == '_';
        if (n + 1 >= max || !(is_letter || (n > 0 && is_other)))
            return false;
    }
    return n > 0;
}

/* The files of a folder, as mist_trace_set_file_name() counts them: the tables by their
 * number, then the cluster. */
#define MIST_TRACE_FILE_CLUSTER MIST_N_TRACE_TABLES
#define MIST_N_TRACE_FILES      (MIST_N_TRACE_TABLES + 1)
#define MIST_TRACE_PATH_BYTES   4096

/* folder/name of a file. MIST_OK or MIST_ERR_IO: too long. */
MIST_MUST_CHECK enum mist_status mist_trace_file_path(const char *folder, int file,
                                                      char path[MIST_TRACE_PATH_BYTES],
                                                      struct mist_err *err);

/* Adds the rows of the table at path to set, which has its cluster and is to be discarded
 * after a failure. n_rows: as many must be there; -1: any number. */
MIST_MUST_CHECK enum mist_status mist_trace_table_load(enum mist_trace_table table,
                                                       const char *path, int64_t n_rows,
                                                       struct mist_trace_set *set,
                                                       struct mist_err *err);

/* A row of one table of set. */
const void *mist_trace_table_row(enum mist_trace_table table,
                                 const struct mist_trace_set *set, size_t i);

/* Rows of one table of set. */
size_t mist_trace_table_n_rows(enum mist_trace_table table,
                               const struct mist_trace_set *set);

/* Writes one table of set, also one without rows. */
MIST_MUST_CHECK enum mist_status mist_trace_table_save(enum mist_trace_table table,
                                                       const char *path,
                                                       const struct mist_trace_set *set,
                                                       bool overwrite,
                                                       struct mist_err *err);

#endif
