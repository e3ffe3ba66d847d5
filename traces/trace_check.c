/* Checks of the cluster and of rows of a trace set. See trace_set.h. */
#include "traces/trace_internal.h"
#include "traces/words.h"

#include <inttypes.h>
#include <math.h>

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

static enum mist_status check_rates(const struct mist_cluster *cluster,
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
    if (status == MIST_OK)
        status = check_positive("memory_bytes_per_s", cluster->memory_bytes_per_s, err);
    if (status == MIST_OK)
        status = check_at_most("memory_bytes_per_s", cluster->memory_bytes_per_s,
                               RATE_MAX, err);
    return status;
}

bool mist_cluster_declares_links(const struct mist_cluster *cluster)
{
    const struct mist_trace_declared *declared = &cluster->declared;

    return declared->device.bytes_per_s > 0 || declared->node.bytes_per_s > 0 ||
           declared->host.bytes_per_s > 0;
}

static enum mist_status
check_link(const char *name, const struct mist_declared_link *link, struct mist_err *err)
{
    char text[64];

    snprintf(text, sizeof text, "declared.%s.bytes_per_s", name);
    enum mist_status status = check_not_negative(text, link->bytes_per_s, err);
    if (status == MIST_OK)
        status = check_at_most(text, link->bytes_per_s, RATE_MAX, err);
    snprintf(text, sizeof text, "declared.%s.latency_us", name);
    if (status == MIST_OK)
        status = check_not_negative(text, link->latency_us, err);
    return status == MIST_OK ? check_at_most(text, link->latency_us, TIME_MAX_US, err)
                             : status;
}

/* Of streams beside each other, which don't speed each other up. */
static enum mist_status check_slowdown(const char *name, double value,
                                       struct mist_err *err)
{
    if (value == 0 || (value >= 1 && value <= 100))
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_INPUT,
                        "declared.%s is %g, expected 1 (none) to 100, or 0 (not known)",
                        name, value);
}

static enum mist_status check_declared(const struct mist_trace_declared *declared,
                                       struct mist_err *err)
{
    const struct {
        const char *name;
        double bytes_per_s;
    } rates[] = {
        {"declared.ring_bytes_per_s", declared->ring_bytes_per_s},
        {"declared.host_node_bytes_per_s", declared->host_node_bytes_per_s},
        {"declared.switch_bytes_per_s", declared->switch_bytes_per_s},
    };
    enum mist_status status = check_link("device", &declared->device, err);

    if (status == MIST_OK)
        status = check_link("node", &declared->node, err);
    if (status == MIST_OK)
        status = check_link("host", &declared->host, err);
    if (status == MIST_OK && declared->node.bytes_per_s > 0)
        status = check_count("declared.adapters", declared->adapters, err);
    for (size_t i = 0; i < sizeof rates / sizeof *rates && status == MIST_OK; i++) {
        status = check_not_negative(rates[i].name, rates[i].bytes_per_s, err);
        if (status == MIST_OK)
            status = check_at_most(rates[i].name, rates[i].bytes_per_s, RATE_MAX, err);
    }
    if (status == MIST_OK)
        status = check_slowdown("compute_slowdown", declared->compute_slowdown, err);
    if (status == MIST_OK)
        status = check_slowdown("message_slowdown", declared->message_slowdown, err);
    return status == MIST_OK ? check_not_negative("declared.residual_frac",
                                                  declared->residual_frac, err)
                             : status;
}

static enum mist_status check_curve(const struct mist_trace_curve *curve,
                                    struct mist_err *err)
{
    enum mist_status status =
        check_not_negative("curve.processors", curve->processors, err);

    if (status != MIST_OK || curve->processors == 0)
        return status;
    status = check_positive("curve.product_frac", curve->product_frac, err);
    if (status == MIST_OK)
        status = check_positive("curve.memory_frac", curve->memory_frac, err);
    return status == MIST_OK
               ? check_not_negative("curve.residual_frac", curve->residual_frac, err)
               : status;
}

enum mist_status mist_cluster_check(const struct mist_cluster *cluster,
                                    struct mist_err *err)
{
    enum mist_status status =
        check_word("backend", (int)cluster->backend, MIST_N_TRACE_BACKENDS, err);

    if (status == MIST_OK && !cluster->name[0])
        status = mist_err_set(err, MIST_ERR_INPUT, "name is empty");
    if (status == MIST_OK)
        status = check_count("nodes", cluster->nodes, err);
    if (status == MIST_OK)
        status = check_count("devices_per_node", cluster->devices_per_node, err);
    if (status == MIST_OK)
        status = check_count("device_memory_bytes", cluster->device_memory_bytes, err);
    if (status == MIST_OK)
        status = check_memory("device_memory_bytes", cluster->device_memory_bytes, err);
    if (status == MIST_OK)
        status = check_not_negative("host_memory_bytes_per_node",
                                    (double)cluster->host_memory_bytes_per_node, err);
    if (status == MIST_OK && cluster->host_memory_bytes_per_node > 0)
        status = check_memory("host_memory_bytes_per_node",
                              cluster->host_memory_bytes_per_node, err);
    if (status == MIST_OK)
        status = check_not_negative("device_threads", cluster->device_threads, err);
    if (status == MIST_OK)
        status = check_not_negative("launch_us", cluster->launch_us, err);
    if (status == MIST_OK)
        status = check_at_most("launch_us", cluster->launch_us, TIME_MAX_US, err);
    if (status == MIST_OK)
        status = check_not_negative("runtime_memory_bytes",
                                    (double)cluster->runtime_memory_bytes, err);
    if (status == MIST_OK)
        status = check_not_negative("drift_frac", cluster->drift_frac, err);
    if (status == MIST_OK)
        status = check_not_negative("skew.alone_frac", cluster->skew.alone_frac, err);
    if (status == MIST_OK)
        status = check_not_negative("skew.pass_frac", cluster->skew.pass_frac, err);
    if (status == MIST_OK)
        status = check_not_negative("skew.step_frac", cluster->skew.step_frac, err);
    if (status == MIST_OK)
        status = check_not_negative("probe_us", cluster->probe_us, err);
    if (status == MIST_OK)
        status = check_at_most("probe_us", cluster->probe_us, TIME_MAX_US, err);
    if (status == MIST_OK)
        status = check_rates(cluster, err);
    if (status == MIST_OK)
        status = check_curve(&cluster->curve, err);
    if (status == MIST_OK)
        status = check_declared(&cluster->declared, err);
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

static enum mist_status check_time(const char *name, double time_us, bool may_be_0,
                                   struct mist_err *err)
{
    enum mist_status status = may_be_0 ? check_not_negative(name, time_us, err)
                                       : check_positive(name, time_us, err);

    return status == MIST_OK ? check_at_most(name, time_us, TIME_MAX_US, err) : status;
}

/* The time of one stream alone. */
static enum mist_status check_alone(const char *name, const double *time_us,
                                    const struct mist_interference_row *row,
                                    struct mist_err *err)
{
    if (row->channels >> (time_us - row->alone_us) & 1u)
        return check_time(name, *time_us, false, err);
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
        return check_time(name, *(const double *)in, false, err);
    case MIST_TRACE_SPREAD_US:
        return check_time(name, *(const double *)in, true, err);
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
