/* The table of operators. See op_table.h. */
#include "exec/operators/op_table.h"

#include "core/atomic_file.h"
#include "core/memory.h"
#include "core/parse.h" /* sizes for people */

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of a name or shape, as people see it. */
enum { HUMAN_NAME_BYTES = 44 };

void mist_op_table_init(struct mist_op_table *table)
{
    *table = (struct mist_op_table){0};
    pthread_mutex_init(&table->mutex, NULL); /* can't fail on Linux */
}

void mist_op_table_fini(struct mist_op_table *table)
{
    pthread_mutex_destroy(&table->mutex);
    free(table->rows);
    free(table->kernels);
}

/* ------------------------------------------------------------------- names of kernels */

/* The identifier that *at has, as "6kernel", which is stepped over; its length or 0. */
static size_t read_identifier(const char **at, const char **identifier)
{
    char *end;
    size_t length = isdigit((unsigned char)**at) ? strtoul(*at, &end, 10) : 0;

    if (length == 0 || strnlen(end, length) < length)
        return 0;
    *identifier = end;
    *at = end + length;
    return length;
}

/* Steps over what stands before the identifiers of a nested name: N, and S_ or St. */
static void skip_prefix(const char **at)
{
    *at += **at == 'L' || **at == 'N';
    if (**at == 'S')
        *at += strcspn(*at, "_t") + (strpbrk(*at, "_t") != NULL);
}

static bool is_anonymous(const char *identifier)
{
    return strncmp(identifier, "_GLOBAL__", 9) == 0 ||
           strncmp(identifier, "_INTERNAL_", 10) == 0;
}

void mist_op_table_kernel_name(const char *symbol, char out[MIST_KERNEL_NAME_BYTES])
{
    const char *at = symbol + 2, *identifier, *last = NULL;
    size_t size = MIST_KERNEL_NAME_BYTES, used = 0, length, last_length = 0;

    out[0] = '\0';
    if (strncmp(symbol, "_Z", 2) == 0)
        skip_prefix(&at);
    while (strncmp(symbol, "_Z", 2) == 0 && used < size &&
           (length = read_identifier(&at, &identifier)) > 0)
        if (!is_anonymous(identifier))
            used += (size_t)snprintf(out + used, size - used, "%s%.*s", used ? "::" : "",
                                     (int)length, identifier);
    if (used == 0)
        snprintf(out, size, "%s", symbol);
    if (used == 0 || used >= size || *at++ != 'I')
        return;
    bool is_nested = *at == 'N';
    skip_prefix(&at);
    while ((is_nested || !last) && (length = read_identifier(&at, &identifier)) > 0) {
        last = identifier;
        last_length = length;
    }
    if (*at == 'f' && !last)
        snprintf(out + used, size - used, "<float>");
    else if (last)
        snprintf(out + used, size - used, "<%.*s>", (int)last_length, last);
}

/* -------------------------------------------------------------------------------- add */

int32_t mist_op_table_row(struct mist_op_table *table, const struct mist_op_row *key)
{
    for (size_t i = 0; i < table->n_rows; i++)
        if (strcmp(table->rows[i].op, key->op) == 0 &&
            strcmp(table->rows[i].phase, key->phase) == 0 &&
            strcmp(table->rows[i].shape, key->shape) == 0)
            return (int32_t)i;
    struct mist_op_row row = *key;
    row.n_calls = 0;
    row.time_s = 0;
    if (MIST_APPEND(table->rows, table->rows_capacity, table->n_rows, row))
        return (int32_t)table->n_rows - 1;
    table->is_out_of_memory = true;
    return -1;
}

int32_t mist_op_table_op(struct mist_op_table *table, enum mist_op op,
                         enum mist_phase phase, const int64_t dims[MIST_MAX_DIMS],
                         double flop, double bytes)
{
    struct mist_op_row key = {.flop = flop, .bytes = bytes};

    snprintf(key.op, sizeof key.op, "%s", mist_op_name(op));
    snprintf(key.phase, sizeof key.phase, "%s", mist_phase_words[phase]);
    mist_op_shape_text(op, dims, key.shape, sizeof key.shape);
    return mist_op_table_row(table, &key);
}

void mist_op_table_add_calls(struct mist_op_table *table, int32_t row, int64_t n_calls,
                             double time_s)
{
    if (row < 0)
        return;
    pthread_mutex_lock(&table->mutex);
    table->rows[row].n_calls += n_calls;
    table->rows[row].time_s += time_s;
    pthread_mutex_unlock(&table->mutex);
}

/* The kernel of a row with that short name, made if there is none; NULL: no memory. */
static struct mist_op_kernel *find_kernel(struct mist_op_table *table, int32_t row,
                                          const char *name, const char *from)
{
    for (size_t i = 0; i < table->n_kernels; i++)
        if (table->kernels[i].i_row == row && strcmp(table->kernels[i].name, name) == 0)
            return &table->kernels[i];
    struct mist_op_kernel kernel = {.i_row = row, .from = from};
    snprintf(kernel.name, sizeof kernel.name, "%s", name);
    if (MIST_APPEND(table->kernels, table->kernels_capacity, table->n_kernels, kernel))
        return &table->kernels[table->n_kernels - 1];
    table->is_out_of_memory = true;
    return NULL;
}

void mist_op_table_add_kernel(struct mist_op_table *table, int32_t row, const char *name,
                              double time_s)
{
    char text[MIST_KERNEL_NAME_BYTES];
    struct mist_op_kernel *kernel = NULL;

    if (row < 0)
        return;
    pthread_mutex_lock(&table->mutex);
    for (size_t i = 0; i < table->n_kernels && !kernel; i++)
        if (table->kernels[i].from == name && table->kernels[i].i_row == row)
            kernel = &table->kernels[i];
    if (!kernel) {
        mist_op_table_kernel_name(name, text);
        kernel = find_kernel(table, row, text, name);
    }
    if (kernel) {
        kernel->n_launches++;
        kernel->time_s += time_s;
    }
    pthread_mutex_unlock(&table->mutex);
}

/* ----------------------------------------------------------------------------- gather */

/* What another rank has: rows[n_rows], kernels[n_kernels] of them. */
static void merge(struct mist_op_table *table, const struct mist_op_row *rows,
                  int64_t n_rows, const struct mist_op_kernel *kernels, int64_t n_kernels)
{
    for (int64_t i = 0; i < n_rows; i++)
        mist_op_table_add_calls(table, mist_op_table_row(table, &rows[i]),
                                rows[i].n_calls, rows[i].time_s);
    for (int64_t i = 0; i < n_kernels; i++) {
        int32_t row = mist_op_table_row(table, &rows[kernels[i].i_row]);
        struct mist_op_kernel *kernel =
            row < 0 ? NULL : find_kernel(table, row, kernels[i].name, NULL);
        if (!kernel)
            continue;
        kernel->n_launches += kernels[i].n_launches;
        kernel->time_s += kernels[i].time_s;
    }
}

enum mist_status mist_op_table_gather(struct mist_op_table *table, struct mist_comm *comm,
                                      struct mist_err *err)
{
    int32_t n_ranks = mist_comm_n_ranks(comm);
    int64_t *sizes = calloc((size_t)n_ranks, 2 * sizeof *sizes);
    char *rows = NULL, *kernels = NULL;
    int64_t i_row = 0, i_kernel = 0;
    enum mist_status status = MIST_ERR_MEMORY;

    if (!sizes || table->is_out_of_memory) {
        mist_err_set(err, MIST_ERR_MEMORY, "out of memory for the operators' times");
        goto out;
    }
    status = mist_comm_gather_bytes(comm, table->rows,
                                    (int64_t)(table->n_rows * sizeof *table->rows), &rows,
                                    sizes, err);
    if (status == MIST_OK)
        status = mist_comm_gather_bytes(
            comm, table->kernels, (int64_t)(table->n_kernels * sizeof *table->kernels),
            &kernels, sizes + n_ranks, err);
    for (int32_t i = 0; i < n_ranks && status == MIST_OK && kernels; i++) {
        int64_t n_rows = sizes[i] / (int64_t)sizeof *table->rows;
        int64_t n_kernels = sizes[n_ranks + i] / (int64_t)sizeof *table->kernels;
        if (i > 0)
            merge(table, (const struct mist_op_row *)(void *)rows + i_row, n_rows,
                  (const struct mist_op_kernel *)(void *)kernels + i_kernel, n_kernels);
        i_row += n_rows;
        i_kernel += n_kernels;
    }
    if (status == MIST_OK && table->is_out_of_memory)
        status = mist_err_memory(err, NULL);
out:
    free(sizes);
    free(rows);
    free(kernels);
    return status;
}

/* ------------------------------------------------------------------------------ print */

/* Operator, phase and "4096x768x3072" for people; of a message its size. */
static void human_name(const struct mist_op_row *row, char *out, size_t size)
{
    char bytes[MIST_FORMAT_BYTES];
    bool is_first = true;

    snprintf(out, size, "%s%s%s ", row->op, row->phase[0] ? " " : "", row->phase);
    if (strncmp(row->shape, "bytes=", 6) == 0) {
        mist_format_bytes(bytes, sizeof bytes, strtoll(row->shape + 6, NULL, 10));
        mist_text_add(out, size, "", "%s", bytes);
        return;
    }
    for (const char *at = row->shape; (at = strchr(at, '=')); is_first = false)
        mist_text_add(out, size, is_first ? "" : "x", "%.*s", (int)strcspn(at + 1, ";"),
                      at + 1),
            at++;
}

/* Indented; a long name without its middle. */
static void human_kernel(const char *name, char *out, size_t size)
{
    int length = (int)strlen(name), tail = HUMAN_NAME_BYTES / 3;

    if (length <= HUMAN_NAME_BYTES)
        snprintf(out, size, "  %s", name);
    else
        snprintf(out, size, "  %.*s..%s", HUMAN_NAME_BYTES - tail - 2, name,
                 name + length - tail);
}

/* A line of the table: of an operator, or of a kernel, which has no rates. */
struct line {
    const struct mist_op_row *row;
    const struct mist_op_kernel *kernel; /* NULL: of the operator */
    double share_frac;                   /* of all operators, of the operator */
};

/* Every document has the same numbers under the same keys. */
static void emit_line(struct mist_emit *emit, bool is_human, const struct line *line,
                      const struct mist_op_peak *peak)
{
    const struct mist_op_row *row = line->row;
    int64_t n = line->kernel ? line->kernel->n_launches : row->n_calls;
    double time_s = line->kernel ? line->kernel->time_s : row->time_s;
    double scale = line->kernel || !(row->time_s > 0) ? NAN : (double)n / row->time_s;
    double flop_per_s = row->flop > 0 ? scale * row->flop : NAN;
    double bytes_per_s = row->bytes > 0 ? scale * row->bytes : NAN;
    double of_flop = peak->flop_per_s > 0 ? flop_per_s / peak->flop_per_s : NAN;
    double of_bytes =
        peak->bytes_per_s > 0 && !row->is_link ? bytes_per_s / peak->bytes_per_s : NAN;
    char name[256];

    mist_emit_object_begin(emit, NULL, NULL);
    if (is_human) {
        if (line->kernel)
            human_kernel(line->kernel->name, name, sizeof name);
        else
            human_name(row, name, sizeof name);
        mist_emit_text(emit, "operator", NULL, name);
    } else {
        mist_emit_text(emit, "operator", NULL, row->op);
        mist_emit_text(emit, "phase", NULL, row->phase);
        mist_emit_text(emit, "shape", NULL, row->shape);
        mist_emit_text(emit, "kernel", NULL, line->kernel ? line->kernel->name : NULL);
    }
    mist_emit_int64(emit, "calls", NULL, n, MIST_HUMAN_NUMBER);
    if (!is_human)
        mist_emit_double(emit, "total_us", NULL, 1e6 * time_s, MIST_HUMAN_TIME_US);
    mist_emit_double(emit, "mean_us", "mean", 1e6 * time_s / (double)n,
                     MIST_HUMAN_TIME_US);
    mist_emit_double(emit, "share_frac", "share", line->share_frac, MIST_HUMAN_FRAC);
    if (is_human && line->kernel) { /* blanks */
        for (int i = 0; i < 3; i++)
            mist_emit_text(emit,
                           i == 0   ? "flop_per_s"
                           : i == 1 ? "bytes_per_s"
                                    : "peak_frac",
                           NULL, "");
    } else {
        mist_emit_double(emit, "flop_per_s", "rate", flop_per_s, MIST_HUMAN_FLOP_PER_S);
        mist_emit_double(emit, "bytes_per_s", "memory", bytes_per_s,
                         MIST_HUMAN_BYTES_PER_S);
        mist_emit_double(emit, "peak_frac", "of peak", fmax(of_flop, of_bytes),
                         MIST_HUMAN_FRAC);
    }
    mist_emit_object_end(emit);
}

/* Operators by time, kernels of one operator together, by time. */
static int compare_lines(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    double times[2] = {x->row->time_s, y->row->time_s};

    if (x->row == y->row && (!x->kernel || !y->kernel))
        return (x->kernel != NULL) - (y->kernel != NULL);
    if (x->row == y->row) {
        times[0] = x->kernel->time_s;
        times[1] = y->kernel->time_s;
    }
    if (times[0] != times[1])
        return times[0] < times[1] ? 1 : -1;
    return x->row != y->row ? (x->row > y->row) - (x->row < y->row)
                            : (x->kernel > y->kernel) - (x->kernel < y->kernel);
}

enum mist_status mist_op_table_emit(const struct mist_op_table *table,
                                    const struct mist_op_peak *peak, const char *title,
                                    struct mist_emit *emit, enum mist_emit_kind kind,
                                    struct mist_err *err)
{
    struct line *lines = calloc(table->n_rows + table->n_kernels + 1, sizeof *lines);
    double total_s = 0;
    size_t n = 0;

    if (!lines)
        return mist_err_memory(err, NULL);
    for (size_t i = 0; i < table->n_rows; i++)
        total_s += table->rows[i].time_s;
    for (size_t i = 0; i < table->n_rows; i++)
        if (table->rows[i].n_calls > 0)
            lines[n++] =
                (struct line){&table->rows[i], NULL, table->rows[i].time_s / total_s};
    for (size_t i = 0; i < table->n_kernels; i++) {
        const struct mist_op_kernel *kernel = &table->kernels[i];
        const struct mist_op_row *row = &table->rows[kernel->i_row];
        lines[n++] = (struct line){row, kernel, kernel->time_s / row->time_s};
    }
    qsort(lines, n, sizeof *lines, compare_lines);
    mist_emit_list_begin(emit, "operators", title);
    for (size_t i = 0; i < n; i++)
        emit_line(emit, kind == MIST_EMIT_TABLE, &lines[i], peak);
    mist_emit_list_end(emit);
    free(lines);
    return MIST_OK;
}

enum mist_status mist_op_table_save(const struct mist_op_table *table,
                                    const struct mist_op_peak *peak, const char *path,
                                    bool force, struct mist_err *err)
{
    struct mist_atomic_file file;
    struct mist_emit *emit = NULL;
    enum mist_status status = mist_atomic_file_open(&file, path, force, err);

    if (status != MIST_OK)
        return status;
    status = mist_emit_begin(&emit, MIST_EMIT_CSV, file.stream, err);
    if (status == MIST_OK)
        status = mist_op_table_emit(table, peak, NULL, emit, MIST_EMIT_CSV, err);
    if (status == MIST_OK)
        status = mist_emit_end(&emit, err);
    if (status == MIST_OK)
        return mist_atomic_file_commit(&file, err);
    mist_emit_free(emit);
    mist_atomic_file_abort(&file);
    return status;
}
