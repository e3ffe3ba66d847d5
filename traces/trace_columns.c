/* The tables of trace sets, column by column. See trace_internal.h. */
#include "core/csv.h"
#include "traces/trace_internal.h"

#include <float.h>
#include <limits.h>
#include <string.h>

#define KERNEL(kind, member) MIST_TRACE_##kind, offsetof(struct mist_kernel_row, member)
#define LINK(kind, member)   MIST_TRACE_##kind, offsetof(struct mist_link_row, member)
#define BESIDE(kind, member)                                                             \
    MIST_TRACE_##kind, offsetof(struct mist_interference_row, member)
#define CHECK(kind, member) MIST_TRACE_##kind, offsetof(struct mist_check_row, member)

static const struct mist_trace_column kernels[] = {
    {"op", KERNEL(OP, op), NULL},
    {"dtype", KERNEL(WORD, dtype), mist_trace_dtype_words},
    {"phase", KERNEL(WORD, phase), mist_phase_words},
    {"shape", KERNEL(SHAPE, shape), NULL},
    {"time_us", KERNEL(TIME_US, time_us), NULL},
    {"deviation_us", KERNEL(SPREAD_US, deviation_us), NULL},
    {"repetitions", KERNEL(INT64, repetitions), NULL},
    {"flop", KERNEL(AMOUNT, flop), NULL},
    {"bytes", KERNEL(AMOUNT, bytes), NULL},
};

static const struct mist_trace_column links[] = {
    {"operation", LINK(WORD, operation), mist_link_operation_words},
    {"nodes", LINK(INT, nodes), NULL},
    {"ranks_per_node", LINK(INT, ranks_per_node), NULL},
    {"concurrent_groups", LINK(INT, concurrent_groups), NULL},
    {"bytes", LINK(INT64, bytes), NULL},
    {"time_us", LINK(TIME_US, time_us), NULL},
    {"deviation_us", LINK(SPREAD_US, deviation_us), NULL},
    {"repetitions", LINK(INT64, repetitions), NULL},
};

static const struct mist_trace_column interferences[] = {
    {"channels", BESIDE(CHANNELS, channels), NULL},
    {"nodes", BESIDE(INT, nodes), NULL},
    {"ranks_per_node", BESIDE(INT, ranks_per_node), NULL},
    {"compute_us", BESIDE(ALONE_US, alone_us[MIST_STREAM_COMPUTE]), NULL},
    {"gpu_gpu_us", BESIDE(ALONE_US, alone_us[MIST_STREAM_GPU_GPU]), NULL},
    {"host_to_device_us", BESIDE(ALONE_US, alone_us[MIST_STREAM_HOST_TO_DEVICE]), NULL},
    {"device_to_host_us", BESIDE(ALONE_US, alone_us[MIST_STREAM_DEVICE_TO_HOST]), NULL},
    {"together_us", BESIDE(TIME_US, together_us), NULL},
    {"deviation_us", BESIDE(SPREAD_US, deviation_us), NULL},
    {"repetitions", BESIDE(INT64, repetitions), NULL},
};

static const struct mist_trace_column checks[] = {
    {"mechanism", CHECK(WORD, mechanism), mist_mechanism_words},
    {"predicted_us", CHECK(TIME_US, predicted_us), NULL},
    {"bar_us", CHECK(SPREAD_US, bar_us), NULL},
    {"measured_us", CHECK(TIME_US, measured_us), NULL},
    {"deviation_us", CHECK(SPREAD_US, deviation_us), NULL},
    {"repetitions", CHECK(INT64, repetitions), NULL},
};

#define COLUMNS(columns) columns, sizeof(columns) / sizeof *(columns)
const struct mist_trace_form mist_trace_forms[MIST_N_TRACE_TABLES] = {
    [MIST_TRACE_TABLE_KERNELS] = {"kernel", COLUMNS(kernels), 4},
    [MIST_TRACE_TABLE_LINKS] = {"link", COLUMNS(links), 5},
    [MIST_TRACE_TABLE_INTERFERENCE] = {"interference", COLUMNS(interferences), 7},
    [MIST_TRACE_TABLE_CHECKS] = {"check", COLUMNS(checks), 1},
};

enum mist_status mist_trace_cell_read(const struct mist_trace_column *column,
                                      const struct mist_csv *csv, size_t i_row,
                                      size_t i_column, void *row, struct mist_err *err)
{
    const char *text = mist_csv_text(csv, i_row, i_column);
    void *out = (char *)row + column->offset;
    enum mist_status status = MIST_OK;
    int64_t whole = 0;

    switch (column->kind) {
    case MIST_TRACE_OP:
        if (!mist_words_is_name(text, MIST_TRACE_NAME_MAX))
            return mist_csv_fail(csv, i_row, i_column, err,
                                 "'%.63s', expected a name of a-z, 0-9 and _", text);
        memcpy(out, text, strlen(text) + 1);
        break;
    case MIST_TRACE_WORD:
        return mist_csv_get_choice(csv, i_row, i_column, column->words, out, err);
    case MIST_TRACE_SHAPE:
        return mist_csv_locate(csv, i_row, mist_shape_parse(text, out, err), err);
    case MIST_TRACE_CHANNELS:
        if (!mist_channels_from_text(text, out))
            return mist_csv_fail(csv, i_row, i_column, err,
                                 "'%.80s', expected names joined by + in the order "
                                 "compute, gpu_gpu, host_to_device, device_to_host",
                                 text);
        break;
    case MIST_TRACE_INT:
        status = mist_csv_get_int64(csv, i_row, i_column, 1, INT_MAX, &whole, err);
        *(int *)out = (int)whole;
        break;
    case MIST_TRACE_INT64:
        return mist_csv_get_int64(csv, i_row, i_column, 1, INT64_MAX, out, err);
    case MIST_TRACE_TIME_US:
    case MIST_TRACE_SPREAD_US:
    case MIST_TRACE_ALONE_US:
    case MIST_TRACE_AMOUNT:
        return mist_csv_get_double(csv, i_row, i_column, 0, DBL_MAX, out, err);
    }
    return status;
}

void mist_trace_cell_write(const struct mist_trace_column *column,
                           struct mist_csv_writer *writer, const void *row)
{
    const void *in = (const char *)row + column->offset;
    char channels[MIST_CHANNELS_TEXT_MAX], shape[MIST_SHAPE_TEXT_MAX];

    switch (column->kind) {
    case MIST_TRACE_OP:
        mist_csv_add_text(writer, in);
        break;
    case MIST_TRACE_WORD:
        mist_csv_add_text(writer, column->words[*(const int *)in]);
        break;
    case MIST_TRACE_SHAPE:
        mist_shape_format(in, shape);
        mist_csv_add_text(writer, shape);
        break;
    case MIST_TRACE_CHANNELS:
        mist_channels_to_text(*(const unsigned *)in, channels);
        mist_csv_add_text(writer, channels);
        break;
    case MIST_TRACE_INT:
        mist_csv_add_int64(writer, *(const int *)in);
        break;
    case MIST_TRACE_INT64:
        mist_csv_add_int64(writer, *(const int64_t *)in);
        break;
    case MIST_TRACE_TIME_US:
    case MIST_TRACE_SPREAD_US:
    case MIST_TRACE_ALONE_US:
    case MIST_TRACE_AMOUNT:
        mist_csv_add_double(writer, *(const double *)in);
    }
}

static void hash_shape(struct mist_hash *hash, const struct mist_shape *shape)
{
    for (int i = 0; i < shape->n_dims; i++) {
        mist_hash_add_text(hash, shape->dims[i].name);
        mist_hash_add_int64(hash, shape->dims[i].value);
    }
}

static void hash_cell(const struct mist_trace_column *column, const void *row,
                      struct mist_hash *hash)
{
    const void *in = (const char *)row + column->offset;

    switch (column->kind) {
    case MIST_TRACE_OP:
        mist_hash_add_text(hash, in);
        break;
    case MIST_TRACE_SHAPE:
        hash_shape(hash, in);
        break;
    case MIST_TRACE_CHANNELS:
        mist_hash_add_int64(hash, *(const unsigned *)in);
        break;
    case MIST_TRACE_WORD:
    case MIST_TRACE_INT:
        mist_hash_add_int64(hash, *(const int *)in);
        break;
    case MIST_TRACE_INT64:
        mist_hash_add_int64(hash, *(const int64_t *)in);
        break;
    case MIST_TRACE_TIME_US:
    case MIST_TRACE_SPREAD_US:
    case MIST_TRACE_ALONE_US:
    case MIST_TRACE_AMOUNT:
        mist_hash_add_double(hash, *(const double *)in);
    }
}

static bool shapes_are_same(const struct mist_shape *a, const struct mist_shape *b)
{
    bool is_same = a->n_dims == b->n_dims;

    for (int i = 0; is_same && i < a->n_dims; i++)
        is_same = a->dims[i].value == b->dims[i].value &&
                  strcmp(a->dims[i].name, b->dims[i].name) == 0;
    return is_same;
}

static bool cells_are_same(const struct mist_trace_column *column, const void *row,
                           const void *other)
{
    const void *a = (const char *)row + column->offset;
    const void *b = (const char *)other + column->offset;

    switch (column->kind) {
    case MIST_TRACE_OP:
        return strcmp(a, b) == 0;
    case MIST_TRACE_SHAPE:
        return shapes_are_same(a, b);
    case MIST_TRACE_CHANNELS:
    case MIST_TRACE_WORD:
    case MIST_TRACE_INT:
        return *(const int *)a == *(const int *)b;
    case MIST_TRACE_INT64:
        return *(const int64_t *)a == *(const int64_t *)b;
    case MIST_TRACE_TIME_US:
    case MIST_TRACE_SPREAD_US:
    case MIST_TRACE_ALONE_US:
    case MIST_TRACE_AMOUNT:
        break;
    }
    return *(const double *)a == *(const double *)b;
}

bool mist_trace_row_has(enum mist_trace_table table, size_t n, const void *row,
                        const void *key)
{
    bool has = true;

    for (size_t i = 0; i < n && has; i++)
        has = cells_are_same(&mist_trace_forms[table].columns[i], row, key);
    return has;
}

uint64_t mist_trace_row_hash(enum mist_trace_table table, size_t n, const void *row)
{
    const struct mist_trace_form *form = &mist_trace_forms[table];
    struct mist_hash hash;

    mist_hash_init(&hash);
    mist_hash_add_text(&hash, form->name);
    for (size_t i = 0; i < n; i++)
        hash_cell(&form->columns[i], row, &hash);
    return hash.value;
}
