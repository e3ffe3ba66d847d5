/* Checks of the cluster and of rows of a trace set. See trace_set.h. */
#include "traces/trace_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* No device known does a hundredth of it: FLOP or bytes of memory in a second. */
#define RATE_MAX 1e18
/* A day: nobody waits for the mean of several such. */
#define TIME_MAX_US 86400e6
/* How much faster than cluster.json a row may be (see trace_internal.h). */
#define FLOP_RATIO_MAX  10
#define BYTES_RATIO_MAX 1000
#define CHECK_RATIO_MAX 100

static enum mist_status check_count(const char *name, int64_t value, struct mist_err *err)
{
    if (value > 0)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_INPUT,
                        "%s is %" PRId64 ", expected an integer above 0", name, value);
}

static enum mist_status check_positive(const char *name, double value,
                                       struct mist_err *err)
{
    if (isfinite(value) && value > 0)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_INPUT, "%s is %g, expected a finite number above 0",
                        name, value);
}

static enum mist_status check_not_negative(const char *name, double value,
                                           struct mist_err *err)
{
    if (isfinite(value) && value >= 0)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_INPUT,
                        "%s is %g, expected a finite number of 0 or more", name, value);
}

static enum mist_status check_at_most(const char *name, double value, double max,
                                      struct mist_err *err)
{
    if (value <= max)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_INPUT,
                        "%s is %g, beyond reason: expected at most %g", name, value, max);
}

static enum mist_status check_word(const char *name, int value, int n,
                                   struct mist_err *err)
{
    if (value >= 0 && value < n)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_INPUT, "%s is %d, expected 0 .. %d", name, value,
                        n - 1);
}

/* Bytes of a memory; a number of GiB is none. */
static enum mist_status check_memory(const char *name, int64_t bytes,
                                     struct mist_err *err)
{
    if (bytes >= 1000000)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_INPUT,
                        "%s is %" PRId64 ", which can't be meant: it counts bytes; "
                        "%" PRId64 " GiB are %" PRId64,
                        name, bytes, bytes, bytes << 30);
}

static enum mist_status check_libraries(const struct mist_cluster *cluster,
                                        struct mist_err *err)
{
    if (cluster->n_libraries < 0 || cluster->n_libraries > MIST_TRACE_MAX_LIBRARIES)
        return mist_err_set(err, MIST_ERR_INPUT, "%d libraries, expected 0 .. %d",
                            cluster->n_libraries, MIST_TRACE_MAX_LIBRARIES);
    for (int i = 0; i < cluster->n_libraries; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(cluster->libraries[i].name, cluster->libraries[j].name) == 0)
                return mist_err_set(err, MIST_ERR_INPUT, "library %s comes twice",
                                    cluster->libraries[i].name);
    return MIST_OK;
}

static enum mist_status check_peaks(const struct mist_cluster *cluster,
                                    struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    double best = 0;

    for (int i = 0; i < MIST_N_TRACE_DTYPES && status == MIST_OK; i++) {
        status = check_not_negative("peak_flop_per_s", cluster->peak_flop_per_s[i], err);
        best = fmax(best, cluster->peak_flop_per_s[i]);
    }
    if (status == MIST_OK)
        status = check_at_most("peak_flop_per_s", best, RATE_MAX, err);
    if (status == MIST_OK && best == 0)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "peak_flop_per_s has no dtype with a rate above 0");
    return status;
}

bool mist_cluster_declares_links(const struct mist_cluster *cluster)
{
    const struct mist_trace_declared *declared = &cluster->declared;

    return declared->device.bytes_per_s > 0 || declared->node.bytes_per_s > 0 ||
           declared->host.bytes_per_s > 0;
}

/* Of streams beside each other, which don't speed each other up. */
static enum mist_status check_slowdown(const char *name, double value,
                                       struct mist_err *err)
{
    if (value == 0 || (value >= 1 && value <= 100))
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_INPUT,
                        "%s is %g, expected 1 (none) to 100, or 0 (not known)", name,
                        value);
}

static enum mist_status check_limited(const char *name, double value, bool is_above_0,
                                      double max, struct mist_err *err)
{
    enum mist_status status = is_above_0 ? check_positive(name, value, err)
                                         : check_not_negative(name, value, err);

    return status == MIST_OK ? check_at_most(name, value, max, err) : status;
}

static enum mist_status check_whole(const char *name, int64_t value, bool is_above_0,
                                    bool is_memory, struct mist_err *err)
{
    enum mist_status status = is_above_0 ? check_count(name, value, err)
                                         : check_not_negative(name, (double)value, err);

    return status == MIST_OK && is_memory && value > 0 ? check_memory(name, value, err)
                                                       : status;
}

static enum mist_status check_fields(const char *prefix,
                                     const struct mist_json_field *fields,
                                     const void *base, struct mist_err *err);

static enum mist_status check_field(const char *name, const struct mist_json_field *f,
                                    const void *base, struct mist_err *err)
{
    bool is_above_0 = f->limits & MIST_FIELD_ABOVE_0;
    double max = f->check == MIST_CLUSTER_RATE      ? RATE_MAX
                 : f->check == MIST_CLUSTER_TIME_US ? TIME_MAX_US
                                                    : INFINITY;

    switch (f->type) {
    case MIST_FIELD_WHOLE:
        return check_whole(name, mist_json_field_whole(f, base), is_above_0,
                           f->check == MIST_CLUSTER_MEMORY, err);
    case MIST_FIELD_NUMBER:
        return f->check == MIST_CLUSTER_SLOWDOWN
                   ? check_slowdown(name, mist_json_field_double(f, base), err)
                   : check_limited(name, mist_json_field_double(f, base), is_above_0, max,
                                   err);
    case MIST_FIELD_OBJECT:
        return f->is_left_out && mist_json_field_is_none(f, base)
                   ? MIST_OK
                   : check_fields(name, f->members, (const char *)base + f->offset, err);
    default:
        return MIST_OK;
    }
}

/* The members of a struct; prefix: the object's name. */
static enum mist_status check_fields(const char *prefix,
                                     const struct mist_json_field *fields,
                                     const void *base, struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    char name[80];

    for (; fields->key && status == MIST_OK; fields++) {
        snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", fields->key);
        status = check_field(name, fields, base, err);
    }
    return status;
}

enum mist_status mist_cluster_check(const struct mist_cluster *cluster,
                                    struct mist_err *err)
{
    enum mist_status status =
        check_word("backend", (int)cluster->backend, MIST_N_TRACE_BACKENDS, err);

    if (status == MIST_OK && !cluster->name[0])
        status = mist_err_set(err, MIST_ERR_INPUT, "name is empty");
    if (status == MIST_OK)
        status = check_fields("", mist_cluster_fields, cluster, err);
    if (status == MIST_OK)
        status = check_peaks(cluster, err);
    if (status == MIST_OK && cluster->declared.node.bytes_per_s > 0)
        status = check_count("declared.adapters", cluster->declared.adapters, err);
    return status == MIST_OK ? check_libraries(cluster, err) : status;
}

/* A shape that was built by hand must read back from its own text. */
static enum mist_status check_shape(const struct mist_shape *shape, struct mist_err *err)
{
    if (shape->n_dims < 1 || shape->n_dims > MIST_SHAPE_MAX_DIMS)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "shape has %d dimensions, expected 1 .. %d", shape->n_dims,
                            MIST_SHAPE_MAX_DIMS);
    for (int i = 0; i < shape->n_dims; i++) {
        const char *name = shape->dims[i].name;
        if (!memchr(name, '\0', MIST_SHAPE_NAME_BYTES) ||
            !mist_words_is_name(name, MIST_SHAPE_NAME_BYTES))
            return mist_err_set(err, MIST_ERR_INPUT, "shape has an invalid name");
        if (shape->dims[i].value <= 0)
            return mist_err_set(err, MIST_ERR_INPUT,
                                "shape has %s=%" PRId64 ", expected an integer above 0",
                                name, shape->dims[i].value);
        for (int j = 0; j < i; j++)
            if (strcmp(name, shape->dims[j].name) == 0)
                return mist_err_set(err, MIST_ERR_INPUT, "shape has %s twice", name);
    }
    return MIST_OK;
}

static enum mist_status check_op(const char *name, const char *op, struct mist_err *err)
{
    if (memchr(op, '\0', MIST_TRACE_NAME_MAX) &&
        mist_words_is_name(op, MIST_TRACE_NAME_MAX))
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_INPUT,
                        "%s is '%.63s', expected a name of a-z, 0-9 and _", name, op);
}

static enum mist_status check_channels(const char *name, unsigned channels,
                                       struct mist_err *err)
{
    int n = 0;

    for (int i = 0; i < MIST_N_CHANNELS; i++)
        n += (channels >> i & 1u) != 0;
    if (n >= 2 && !(channels >> MIST_N_CHANNELS))
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_INPUT, "%s must name two streams or more", name);
}

/* The time of one stream alone. */
static enum mist_status check_alone(const char *name, const double *time_us,
                                    const struct mist_interference_row *row,
                                    struct mist_err *err)
{
    if (row->channels >> (time_us - row->alone_us) & 1u)
        return check_limited(name, *time_us, true, TIME_MAX_US, err);
    return *time_us == 0
               ? MIST_OK
               : mist_err_set(err, MIST_ERR_INPUT,
                              "%s is %g, expected 0 as channels does not name it", name,
                              *time_us);
}

static int n_words(const char *const *words)
{
    int n = 0;

    while (words[n])
        n++;
    return n;
}

static enum mist_status check_cell(const struct mist_trace_column *column,
                                   const void *row, struct mist_err *err)
{
    const void *in = (const char *)row + column->offset;
    const char *name = column->name;

    switch (column->kind) {
    case MIST_TRACE_OP:
        return check_op(name, in, err);
    case MIST_TRACE_WORD:
        return check_word(name, *(const int *)in, n_words(column->words), err);
    case MIST_TRACE_SHAPE:
        return check_shape(in, err);
    case MIST_TRACE_CHANNELS:
        return check_channels(name, *(const unsigned *)in, err);
    case MIST_TRACE_INT:
        return check_count(name, *(const int *)in, err);
    case MIST_TRACE_INT64:
        return check_count(name, *(const int64_t *)in, err);
    case MIST_TRACE_TIME_US:
        return check_limited(name, *(const double *)in, true, TIME_MAX_US, err);
    case MIST_TRACE_SPREAD_US:
        return check_limited(name, *(const double *)in, false, TIME_MAX_US, err);
    case MIST_TRACE_ALONE_US:
        return check_alone(name, in, row, err);
    case MIST_TRACE_AMOUNT:
        return check_not_negative(name, *(const double *)in, err);
    }
    return MIST_OK;
}

enum mist_status mist_trace_check_row(enum mist_trace_table table, const void *row,
                                      struct mist_err *err)
{
    const struct mist_trace_form *form = &mist_trace_forms[table];
    enum mist_status status = MIST_OK;

    for (size_t i = 0; i < form->n_columns && status == MIST_OK; i++)
        status = check_cell(&form->columns[i], row, err);
    return status;
}

/* ---- what can be true ---- */

/* amount ("flop") in time_us at up to ratio_max times the rate of cluster.json. */
static enum mist_status judge_rate(const char *amount_name, double amount, double time_us,
                                   const char *rate_name, double rate, int ratio_max,
                                   struct mist_err *err)
{
    double per_s = amount / (time_us * 1e-6);

    if (per_s <= ratio_max * rate)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_INPUT,
                        "time_us is %g, beyond reason: %s is %g, which makes %.3g per "
                        "second, over %d times the %s of cluster.json, %.3g",
                        time_us, amount_name, amount, per_s, ratio_max, rate_name, rate);
}

enum mist_status mist_trace_judge_kernel(const struct mist_kernel_row *row,
                                         const struct mist_cluster *cluster,
                                         struct mist_err *err)
{
    double best = 0;

    for (int i = 0; i < MIST_N_TRACE_DTYPES; i++)
        best = fmax(best, cluster->peak_flop_per_s[i]);
    enum mist_status status =
        judge_rate("flop", row->flop, row->time_us, "highest peak_flop_per_s", best,
                   FLOP_RATIO_MAX, err);
    if (status == MIST_OK)
        status = judge_rate("bytes", row->bytes, row->time_us, "memory_bytes_per_s",
                            cluster->memory_bytes_per_s, BYTES_RATIO_MAX, err);
    return status;
}

enum mist_status mist_trace_judge_link(const struct mist_link_row *row,
                                       const struct mist_cluster *cluster,
                                       struct mist_err *err)
{
    return judge_rate("bytes", (double)row->bytes, row->time_us, "memory_bytes_per_s",
                      cluster->memory_bytes_per_s, BYTES_RATIO_MAX, err);
}

enum mist_status mist_trace_judge_interference(const struct mist_interference_row *row,
                                               struct mist_err *err)
{
    double longest_us = 0;

    for (int i = 0; i < MIST_N_CHANNELS; i++)
        longest_us = fmax(longest_us, row->alone_us[i]);
    if (row->together_us >= 0.1 * longest_us)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_INPUT,
                        "together_us is %g, beyond reason: one of them takes %g alone",
                        row->together_us, longest_us);
}

enum mist_status mist_trace_judge_check(const struct mist_check_row *row,
                                        struct mist_err *err)
{
    double ratio = row->predicted_us / row->measured_us;

    if (ratio <= CHECK_RATIO_MAX && ratio >= 1.0 / CHECK_RATIO_MAX)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_INPUT,
                        "measured_us is %g, beyond reason: predicted_us is %g",
                        row->measured_us, row->predicted_us);
}
