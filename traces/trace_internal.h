/* What the files of trace sets share among themselves. Private to traces/. */
#ifndef MIST_TRACES_TRACE_INTERNAL_H
#define MIST_TRACES_TRACE_INTERNAL_H

#include "core/hash.h"
#include "traces/trace_set.h"

/* MIST_OK or MIST_ERR_INPUT with a message that begins with the column's name. */
MIST_MUST_CHECK enum mist_status
mist_trace_check_kernel(const struct mist_kernel_row *row, struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_trace_check_link(const struct mist_link_row *row,
                                                       struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_trace_check_interference(const struct mist_interference_row *row,
                              struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_trace_check_check(const struct mist_check_row *row,
                                                        struct mist_err *err);

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

/* The key of a kernel, or of a group of kernels when shape is NULL. */
struct mist_kernel_key {
    const char *op;
    enum mist_trace_dtype dtype;
    enum mist_trace_phase phase;
    const struct mist_shape *shape;
};

/* Add the key columns of a row to hash; shape's dims are left out when it is NULL. */
void mist_trace_hash_kernel_key(struct mist_hash *hash,
                                const struct mist_kernel_key *key);
void mist_trace_hash_link_key(struct mist_hash *hash, const struct mist_link_row *row);
void mist_trace_hash_interference_key(struct mist_hash *hash,
                                      const struct mist_interference_row *row);

/* The words of an enum as the NULL-terminated list that the readers take. */
#define MIST_TRACE_MAX_WORDS 8
#define MIST_TRACE_FILL_WORDS(words, n, name_of, type)                                   \
    do {                                                                                 \
        for (int i_word = 0; i_word < (n); i_word++)                                     \
            (words)[i_word] = name_of((type)i_word);                                     \
        (words)[n] = NULL;                                                               \
    } while (0)

/* The tables of a trace set. */
enum mist_trace_table {
    MIST_TRACE_TABLE_KERNELS,
    MIST_TRACE_TABLE_LINKS,
    MIST_TRACE_TABLE_INTERFERENCE,
    MIST_TRACE_TABLE_CHECKS,
    MIST_N_TRACE_TABLES
};

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
