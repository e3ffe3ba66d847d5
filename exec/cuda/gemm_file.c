/*
 * The file of choices: a row for each product, of any GPU and version of cuBLASLt,
 *
 *     gpu,cublaslt,product,dtype,gradient_dtype,rows,n_in,n_out,alignment_bytes,
 *     choice,time_ns,algorithm,tile,split_k,...
 *     NVIDIA H200,130100,forward_bias,bf16,fp32,8192,2048,6144,16,other,301512,66,...
 *
 * choice: "first", what the heuristics of cuBLASLt offer first; "other", what the last
 * columns say, CUBLASLT_ALGO_CONFIG_*, from which the algorithm is made again (they are 0
 * elsewhere); "unfused", the product without its epilogue, which has its own row, and a
 * kernel are faster; "refused", no algorithm would launch with the epilogue. time_ns 0:
 * there was no time to find out.
 *
 * Whoever reads or writes the file holds its lock, and nobody does while he times. Rows
 * are only ever appended, and of several for a product the last one counts. A file that
 * can't be parsed is written anew.
 */
#include "exec/cuda/gemm_internal.h"

#include "core/csv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { MAX_BYTES = 4 << 20, N_SETTINGS = MIST_GEMM_N_SETTINGS };

static const char *const picks[] = {"first", "other", "unfused", "refused", NULL};
static const char *const settings[N_SETTINGS] = {
    "algorithm", "tile",   "split_k",     "reduction",    "swizzle",
    "custom",    "stages", "inner_shape", "cluster_shape"};

/* Behind "gpu" and "cublaslt", and before the settings. */
#define AT(field) offsetof(struct mist_gemm_choice, field)
static const struct column {
    const char *name;
    const char *const *words; /* NULL: a number */
    size_t offset;            /* of an int64_t of a choice */
} columns[] = {
    {"product", mist_gemm_names, AT(key.product)},
    {"dtype", mist_dtype_run_words, AT(key.dtype)},
    {"gradient_dtype", mist_dtype_run_words, AT(key.gradient_dtype)},
    {"rows", NULL, AT(key.rows)},
    {"n_in", NULL, AT(key.n_in)},
    {"n_out", NULL, AT(key.n_out)},
    {"alignment_bytes", NULL, AT(key.alignment_bytes)},
    {"choice", picks, AT(pick)},
    {"time_ns", NULL, AT(time_ns)},
};
enum { GPU, CUBLASLT, FIRST_COLUMN, N_OWN = sizeof columns / sizeof *columns };
enum { FIRST_SETTING = FIRST_COLUMN + N_OWN, N_COLUMNS = FIRST_SETTING + N_SETTINGS };

static const char *column_name(int i)
{
    return i == GPU            ? "gpu"
           : i == CUBLASLT     ? "cublaslt"
           : i < FIRST_SETTING ? columns[i - FIRST_COLUMN].name
                               : settings[i - FIRST_SETTING];
}

struct mist_gemm_file {
    FILE *stream;
    const char *device_name;  /* borrowed */
    size_t n_read;            /* choices that are in the file */
    bool is_writable, is_new; /* new: the header, too, is to be written */
};

struct mist_gemm_choice *mist_gemm_choice_add(struct mist_cuda_gemm *gemm)
{
    return MIST_APPEND(gemm->choices, gemm->choices_capacity, gemm->n_choices,
                       (struct mist_gemm_choice){0})
               ? &gemm->choices[gemm->n_choices - 1]
               : NULL;
}

const struct mist_gemm_choice *mist_gemm_choice_find(const struct mist_cuda_gemm *gemm,
                                                     const struct mist_gemm_key *key,
                                                     size_t first)
{
    for (size_t i = gemm->n_choices; i > first; i--)
        if (memcmp(&gemm->choices[i - 1].key, key, sizeof *key) == 0)
            return &gemm->choices[i - 1];
    return NULL;
}

/* ---------------------------------------------------------------------------- reading */

static enum mist_status read_row(const struct mist_csv *csv, size_t i_row,
                                 struct mist_gemm_choice *out, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (size_t i = 0; i < N_OWN && status == MIST_OK; i++) {
        int64_t *to = (int64_t *)(void *)((char *)out + columns[i].offset);
        int word = 0;

        if (columns[i].words)
            status = mist_csv_get_choice(csv, i_row, FIRST_COLUMN + i, columns[i].words,
                                         &word, err);
        *to = word;
        if (!columns[i].words)
            status =
                mist_csv_get_int64(csv, i_row, FIRST_COLUMN + i, 0, INT64_MAX, to, err);
    }
    for (size_t i = 0; i < N_SETTINGS && status == MIST_OK; i++)
        status = mist_csv_get_int64(csv, i_row, FIRST_SETTING + i, 0, UINT32_MAX,
                                    &out->settings[i], err);
    return status;
}

/* Of this GPU and version. */
static enum mist_status read_rows(struct mist_cuda_gemm *gemm, const char *device_name,
                                  const struct mist_csv *csv, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (size_t i = 0; i < mist_csv_n_rows(csv) && status == MIST_OK; i++) {
        struct mist_gemm_choice choice, *to;
        int64_t version = 0;

        status = mist_csv_get_int64(csv, i, CUBLASLT, 0, INT64_MAX, &version, err);
        if (status != MIST_OK || version != (int64_t)cublasLtGetVersion() ||
            strcmp(mist_csv_text(csv, i, GPU), device_name) != 0)
            continue;
        status = read_row(csv, i, &choice, err);
        to = status == MIST_OK ? mist_gemm_choice_add(gemm) : NULL;
        if (to)
            *to = choice;
        else if (status == MIST_OK)
            status = mist_err_memory(err, NULL);
    }
    return status;
}

static void read_file(struct mist_gemm_file *file, struct mist_cuda_gemm *gemm,
                      const char *path)
{
    struct mist_csv_column names[N_COLUMNS] = {{0}};
    struct mist_csv *csv = NULL;
    struct mist_err err = {0};
    char *text = malloc(MAX_BYTES);
    size_t n = text ? fread(text, 1, MAX_BYTES, file->stream) : 0;

    for (int i = 0; i < N_COLUMNS; i++)
        names[i].name = column_name(i);
    gemm->n_choices = 0;
    file->is_new = n == 0;
    if (n > 0 &&
        (mist_csv_load_text(path, text, n, names, N_COLUMNS, &csv, &err) != MIST_OK ||
         read_rows(gemm, file->device_name, csv, &err) != MIST_OK)) {
        if (!gemm->note[0]) /* the second look sees no more */
            snprintf(gemm->note, sizeof gemm->note,
                     "%.120s is damaged and made anew: %.100s", path, err.message);
        file->is_new = true;
        gemm->n_choices = 0;
    }
    file->is_writable &= text != NULL;
    file->n_read = gemm->n_choices;
    mist_csv_free(csv);
    free(text);
}

struct mist_gemm_file *mist_gemm_file_open(struct mist_cuda_gemm *gemm, const char *path,
                                           const char *device_name)
{
    struct mist_gemm_file *file = calloc(1, sizeof *file);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666), reason = errno;
    bool is_writable = fd >= 0;

    if (fd < 0)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    if (file && fd >= 0 && flock(fd, is_writable ? LOCK_EX : LOCK_SH) != 0)
        reason = errno;
    else if (file && fd >= 0)
        file->stream = fdopen(fd, is_writable ? "r+" : "r");
    if (!is_writable || !file || !file->stream)
        snprintf(gemm->note, sizeof gemm->note, "%.150s: %s", path, strerror(reason));
    if (!file || !file->stream) {
        if (fd >= 0)
            close(fd);
        free(file);
        return NULL;
    }
    file->device_name = device_name;
    file->is_writable = is_writable;
    read_file(file, gemm, path);
    return file;
}

bool mist_gemm_file_is_writable(const struct mist_gemm_file *file)
{
    return file->is_writable;
}

/* ---------------------------------------------------------------------------- writing */

static void write_row(FILE *out, const char *device_name,
                      const struct mist_gemm_choice *choice)
{
    mist_csv_write_cell(device_name, out);
    fprintf(out, ",%zu", cublasLtGetVersion());
    for (size_t i = 0; i < N_OWN; i++) {
        const void *at = (const char *)choice + columns[i].offset;
        int64_t value = *(const int64_t *)at;

        if (columns[i].words)
            fprintf(out, ",%s", columns[i].words[value]);
        else
            fprintf(out, ",%" PRId64, value);
    }
    for (int i = 0; i < N_SETTINGS; i++)
        fprintf(out, ",%" PRId64, choice->settings[i]);
    fputc('\n', out);
}

void mist_gemm_file_close(struct mist_gemm_file *file, struct mist_cuda_gemm *gemm)
{
    bool writes = file->is_writable && gemm->n_choices > file->n_read, has_failed = false;

    if (writes && file->is_new) {
        rewind(file->stream);
        has_failed = ftruncate(fileno(file->stream), 0) != 0;
        for (int i = 0; i < N_COLUMNS; i++)
            fprintf(file->stream, "%s%c", column_name(i), i + 1 < N_COLUMNS ? ',' : '\n');
    }
    if (writes && fseek(file->stream, 0, SEEK_END) == 0)
        for (size_t i = file->n_read; i < gemm->n_choices; i++)
            write_row(file->stream, file->device_name, &gemm->choices[i]);
    has_failed |= ferror(file->stream) != 0;
    if (fclose(file->stream) != 0 || has_failed) /* lets others have it, too */
        snprintf(gemm->note, sizeof gemm->note, "choices can't be written: %s",
                 strerror(errno));
    free(file);
}
