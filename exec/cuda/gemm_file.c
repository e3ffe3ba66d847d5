/*
 * The file of choices: a row for each product, of any GPU and version of cuBLASLt,
 *
 *     gpu,cublaslt,product,dtype,gradient_dtype,rows,n_in,n_out,alignment_bytes,
 *     processors,choice,time_us,algorithm,tile,split_k,...
 *     NVIDIA H200,130100,forward_bias,bf16,fp32,8192,2048,6144,16,0,other,301.5,66,...
 *
 * choice: "first", what the heuristics of cuBLASLt offer first; "other", what the last
 * columns say, CUBLASLT_ALGO_CONFIG_*, from which the algorithm is made again (they are 0
 * elsewhere); "unfused", the product without its epilogue, which has its own row, and a
 * kernel are faster. time_us 0: there was no time to find out.
 *
 * Whoever uses the file holds its lock, so ranks that start together make their choices
 * one after the other, and the later ones find those of the first. Rows are only ever
 * appended, and of several for a product the last one counts. A file that can't be parsed
 * is written anew.
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

enum { MAX_BYTES = 4 << 20 };

enum column {
    GPU,
    CUBLASLT,
    PRODUCT,
    DTYPE,
    GRADIENT_DTYPE,
    ROWS,
    N_IN,
    N_OUT,
    ALIGNMENT,
    PROCESSORS,
    CHOICE,
    TIME,
    SETTINGS,
    N_COLUMNS = SETTINGS + MIST_GEMM_N_SETTINGS
};
static const struct mist_csv_column columns[N_COLUMNS] = {
    {"gpu", MIST_CSV_REQUIRED},
    {"cublaslt", MIST_CSV_REQUIRED},
    {"product", MIST_CSV_REQUIRED},
    {"dtype", MIST_CSV_REQUIRED},
    {"gradient_dtype", MIST_CSV_REQUIRED},
    {"rows", MIST_CSV_REQUIRED},
    {"n_in", MIST_CSV_REQUIRED},
    {"n_out", MIST_CSV_REQUIRED},
    {"alignment_bytes", MIST_CSV_REQUIRED},
    {"processors", MIST_CSV_REQUIRED},
    {"choice", MIST_CSV_REQUIRED},
    {"time_us", MIST_CSV_REQUIRED},
    {"algorithm", MIST_CSV_REQUIRED},
    {"tile", MIST_CSV_REQUIRED},
    {"split_k", MIST_CSV_REQUIRED},
    {"reduction", MIST_CSV_REQUIRED},
    {"swizzle", MIST_CSV_REQUIRED},
    {"custom", MIST_CSV_REQUIRED},
    {"stages", MIST_CSV_REQUIRED},
    {"inner_shape", MIST_CSV_REQUIRED},
    {"cluster_shape", MIST_CSV_REQUIRED},
};

static const char *const picks[MIST_N_GEMM_PICKS + 1] = {"first", "other", "unfused",
                                                         NULL};

struct mist_gemm_file {
    FILE *stream;
    const char *device_name;  /* borrowed */
    size_t n_read;            /* choices that are in the file */
    bool is_writable, is_new; /* new: the header, too, is to be written */
};

struct mist_gemm_choice *mist_gemm_choice_add(struct mist_cuda_gemm *gemm)
{
    struct mist_gemm_choice *choices = mist_grow(gemm->choices, &gemm->choices_capacity,
                                                 gemm->n_choices + 1, sizeof *choices);

    if (!choices)
        return NULL;
    gemm->choices = choices;
    choices[gemm->n_choices] = (struct mist_gemm_choice){0};
    return &choices[gemm->n_choices++];
}

/* ---------------------------------------------------------------------------- reading */

static enum mist_status read_row(const struct mist_csv *csv, size_t i_row,
                                 struct mist_gemm_choice *out, struct mist_err *err)
{
    static const char *const dtypes[] = {"fp32", "bf16", NULL};
    const char *products[MIST_CUDA_N_GEMM_PRODUCTS + 1] = {0};
    int64_t values[N_COLUMNS] = {0};
    int product = 0, dtype = 0, gradient_dtype = 0, pick = 0;
    double time_us = 0;
    enum mist_status status;

    for (int i = 0; i < MIST_CUDA_N_GEMM_PRODUCTS; i++)
        products[i] = mist_gemm_kinds[i].name;
    status = mist_csv_get_choice(csv, i_row, PRODUCT, products, &product, err);
    if (status == MIST_OK)
        status = mist_csv_get_choice(csv, i_row, DTYPE, dtypes, &dtype, err);
    if (status == MIST_OK)
        status =
            mist_csv_get_choice(csv, i_row, GRADIENT_DTYPE, dtypes, &gradient_dtype, err);
    if (status == MIST_OK)
        status = mist_csv_get_choice(csv, i_row, CHOICE, picks, &pick, err);
    if (status == MIST_OK)
        status = mist_csv_get_double(csv, i_row, TIME, 0, 1e12, &time_us, err);
    for (size_t i = ROWS; i < N_COLUMNS && status == MIST_OK; i++)
        if (i != CHOICE && i != TIME)
            status = mist_csv_get_int64(csv, i_row, i, 0, UINT32_MAX, &values[i], err);
    *out = (struct mist_gemm_choice){.key = {.product = product,
                                             .dtype = dtype,
                                             .gradient_dtype = gradient_dtype,
                                             .rows = values[ROWS],
                                             .n_in = values[N_IN],
                                             .n_out = values[N_OUT],
                                             .alignment_bytes = values[ALIGNMENT],
                                             .n_processors = values[PROCESSORS]},
                                     .pick = (enum mist_gemm_pick)pick,
                                     .time_s = time_us * 1e-6};
    memcpy(out->settings, &values[SETTINGS], sizeof out->settings);
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
            status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    }
    return status;
}

static void read_file(struct mist_gemm_file *file, struct mist_cuda_gemm *gemm,
                      const char *path)
{
    struct mist_csv *csv = NULL;
    struct mist_err err = {0};
    char *text = malloc(MAX_BYTES);
    size_t n = text ? fread(text, 1, MAX_BYTES, file->stream) : 0;

    gemm->n_choices = 0;
    file->is_new = n == 0;
    if (n > 0 &&
        (mist_csv_load_text(path, text, n, columns, N_COLUMNS, &csv, &err) != MIST_OK ||
         read_rows(gemm, file->device_name, csv, &err) != MIST_OK)) {
        snprintf(gemm->note, sizeof gemm->note, "%.120s is damaged and made anew: %.100s",
                 path, err.message);
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
    const struct mist_gemm_key *key = &choice->key;

    mist_csv_write_cell(device_name, out);
    fprintf(out, ",%zu,%s,%s,%s", cublasLtGetVersion(),
            mist_gemm_kinds[key->product].name,
            mist_dtype_name((enum mist_dtype)key->dtype),
            mist_dtype_name((enum mist_dtype)key->gradient_dtype));
    fprintf(out, ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%s,%.2f",
            key->rows, key->n_in, key->n_out, key->alignment_bytes, key->n_processors,
            picks[choice->pick], choice->time_s * 1e6);
    for (int i = 0; i < MIST_GEMM_N_SETTINGS; i++)
        fprintf(out, ",%" PRId64, choice->settings[i]);
    fputc('\n', out);
}

void mist_gemm_file_close(struct mist_gemm_file *file, struct mist_cuda_gemm *gemm)
{
    bool writes = file->is_writable && gemm->n_choices > file->n_read;

    if (writes && file->is_new) {
        rewind(file->stream);
        writes = ftruncate(fileno(file->stream), 0) == 0;
        for (int i = 0; i < N_COLUMNS && writes; i++)
            fprintf(file->stream, "%s%c", columns[i].name,
                    i + 1 < N_COLUMNS ? ',' : '\n');
    }
    if (writes && fseek(file->stream, 0, SEEK_END) == 0)
        for (size_t i = file->n_read; i < gemm->n_choices; i++)
            write_row(file->stream, file->device_name, &gemm->choices[i]);
    bool has_failed = ferror(file->stream);
    if (fclose(file->stream) != 0 || has_failed) /* lets others have it, too */
        snprintf(gemm->note, sizeof gemm->note, "choices can't be written: %s",
                 strerror(errno));
    free(file);
}
