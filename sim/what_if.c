/* Edits of what a prediction rests on, by name. See what_if.h. */
#include "sim/what_if.h"

#include "core/hash.h"
#include "core/parse.h"
#include "sim/explain/explain.h" /* classes of operators */
#include "traces/preset.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* An edit while it is being read. */
struct edit {
    char name[96];     /* left of '=' */
    const char *value; /* right of it */
    struct mist_err *err;
};

static enum mist_status bad(const struct edit *at, const char *expected)
{
    return mist_err_set(at->err, MIST_ERR_USAGE, "what-if %s=%s: expected %s", at->name,
                        at->value, expected);
}

static bool is_factor(const char *value, double *out)
{
    return mist_parse_factor(value, out, NULL) == MIST_OK && *out > 0;
}

/* What an edit may make of a time; beyond it sums and ratios stop meaning anything. */
static bool is_time(double time_us)
{
    return time_us >= 1e-9 && time_us <= 1e15;
}

static bool is_deviation(double time_us)
{
    return time_us >= 0 && time_us <= 1e15;
}

static enum mist_status beyond(const struct edit *at)
{
    return bad(at, "an edit that leaves every time within 1e-9 .. 1e15 us");
}

/* ------------------------------------------------------------------------------ names */

static const struct {
    const char *name, *takes, *meaning;
} names[] = {
    {"kernel.NAME", "factor",
     "an operator, or products, attention, elementwise, loss, optimizer, all"},
    {"link.device", "factor or rate", "from a device to others of its node"},
    {"link.node", "factor or rate", "from a node to others, all its adapters together"},
    {"link.nic", "factor or rate", "the same, said of one adapter"},
    {"link.host", "factor or rate", "between a device and its host, each way"},
    {"link.NAME", "factor", "an operation of links.csv, or all"},
    {"device", "preset", "other devices, and their links, in as many nodes"},
    {"device.peak", "factor", "FLOP/s of a device, in all formats"},
    {"device.memory", "factor or size", "what a device has"},
    {"device.memory_rate", "factor or rate", "of a device's own memory"},
    {"node.host_memory", "factor or size", "what all devices of a node share"},
    {"launch", "factor, time or none", "launching a task"},
    {"framework.dispatch", "factor, time or none",
     "launching a kernel, by the host of another framework"},
    {"framework.optimizer", "factor, bytes or none",
     "its optimizer step: moved for a parameter"},
    {"framework.gradient", "factor, bytes or none",
     "its gradient of a micro-batch: moved for a parameter"},
    {"framework.loss", "factor, bytes or none", "its loss: moved for a logit"},
    {"interference", "none", "nothing slows down what runs beside it"},
    {"cluster.nodes", "number", "nodes that there are"},
    {"cluster.devices_per_node", "number", "devices of a node"},
    {"rank.N", "factor", "computation of one rank"},
    {"rank.N.link", "factor", "messages to and from one rank"},
};
enum { N_NAMES = sizeof names / sizeof *names };

bool mist_what_if_name(int i, const char **name, const char **takes, const char **meaning)
{
    if (i >= N_NAMES)
        return false;
    *name = names[i].name;
    *takes = names[i].takes;
    *meaning = names[i].meaning;
    return true;
}

static enum mist_status refuse_name(const struct edit *at)
{
    char list[480] = "";

    for (int i = 0; i < N_NAMES; i++)
        mist_text_add(list, sizeof list, i == N_NAMES - 1 ? " and " : ", ", "%s",
                      names[i].name);
    return mist_err_set(at->err, MIST_ERR_USAGE, "what-if %s: unknown name; there are %s",
                        at->name, list);
}

/* ----------------------------------------------------------------------------- values */

enum unit { NO_UNIT, SIZE, RATE, TIME };

/* How many times as fast, or as much as now: a factor, or what it is to be. */
static enum mist_status read_factor(const struct edit *at, enum unit unit, double now,
                                    double *out)
{
    static const char *const expected[] = {
        [NO_UNIT] = "a factor such as 2x, twice as fast",
        [SIZE] = "a factor such as 2x, twice as much, or a size such as 160GiB",
        [RATE] = "a factor such as 2x, twice as fast, or a rate such as 400Gb/s",
    };
    int64_t bytes;
    double rate;

    if (is_factor(at->value, out))
        return *out >= 1e-6 && *out <= 1e6
                   ? MIST_OK
                   : bad(at, "a factor from 0.000001x to 1000000x");
    if (unit == SIZE && mist_parse_bytes(at->value, &bytes, NULL) == MIST_OK && bytes > 0)
        *out = (double)bytes / now;
    else if (unit == RATE &&
             mist_parse_rate_bytes_per_s(at->value, &rate, NULL) == MIST_OK && rate > 0)
        *out = rate / now;
    else
        return bad(at, expected[unit]);
    if (fabs(*out - 1) < 1e-12) /* rounding of an amount that is the same */
        *out = 1;
    return MIST_OK;
}

/* A speed, 1 without edits. */
static enum mist_status edit_speed(const struct edit *at, enum unit unit, double now,
                                   double *speed)
{
    double factor = 1;
    enum mist_status status = read_factor(at, unit, now, &factor);

    if (status != MIST_OK)
        return status;
    if (!(*speed * factor >= 1e-9 && *speed * factor <= 1e9))
        return beyond(at);
    *speed *= factor;
    return MIST_OK;
}

static enum mist_status edit_size(const struct edit *at, int64_t *bytes)
{
    char what[256];
    double factor = 1;
    enum mist_status status = read_factor(at, SIZE, (double)*bytes, &factor);

    if (status != MIST_OK)
        return status;
    double edited = (double)*bytes * factor;
    if (!(edited < 0x1p62) || (edited < 1 << 20 && strchr(at->value, 'x')))
        return bad(at, "1 MiB to 4 EiB");
    snprintf(what, sizeof what, "what-if %s=%.60s", at->name, at->value);
    status = mist_check_memory_bytes(what, llround(edited), MIST_ERR_USAGE, at->err);
    if (status == MIST_OK)
        *bytes = llround(edited);
    return status;
}

/* A cost, in us or in bytes that are moved: what makes it faster makes it less. */
static enum mist_status edit_cost(const struct edit *at, enum unit unit, double *cost)
{
    double factor, time_s, edited;
    int64_t bytes;

    if (strcmp(at->value, "none") == 0)
        edited = 0;
    else if (is_factor(at->value, &factor))
        edited = *cost / factor;
    else if (unit == TIME && mist_parse_time_s(at->value, &time_s, NULL) == MIST_OK)
        edited = time_s * 1e6;
    else if (unit == SIZE && mist_parse_bytes(at->value, &bytes, NULL) == MIST_OK)
        edited = (double)bytes;
    else
        return bad(at, unit == TIME
                           ? "a factor such as 2x, twice as fast, a time such as 2us, or "
                             "none"
                           : "a factor such as 2x, twice as fast, bytes such as 28, or "
                             "none");
    if (!is_deviation(edited))
        return beyond(at);
    *cost = edited;
    return MIST_OK;
}

static enum mist_status edit_count(const struct edit *at, int *count)
{
    int64_t value;

    if (mist_parse_int64(at->value, &value, NULL) != MIST_OK || value < 1 ||
        value > 1000000)
        return bad(at, "a whole number from 1 to 1000000");
    *count = (int)value;
    return MIST_OK;
}

/* ---------------------------------------------------------------------------- kernels */

static bool is_kernel(enum mist_op op, const char *name)
{
    static const char *const classes[MIST_N_TIME_CLASSES] = {
        [MIST_TIME_PRODUCTS] = "products",       [MIST_TIME_ATTENTION] = "attention",
        [MIST_TIME_ELEMENTWISE] = "elementwise", [MIST_TIME_LOSS] = "loss",
        [MIST_TIME_OPTIMIZER] = "optimizer",
    };

    return !mist_op_is_communication(op) &&
           (strcmp(name, "all") == 0 || strcmp(name, mist_op_name(op)) == 0 ||
            strcmp(name, classes[mist_time_class_of_op(op)]) == 0);
}

static enum mist_status edit_kernels(const struct edit *at, const char *name,
                                     double speeds[MIST_N_OPS])
{
    double edited[MIST_N_OPS];
    bool is_found = false;

    memcpy(edited, speeds, sizeof edited);
    for (int op = 0; op < MIST_N_OPS; op++) {
        if (!is_kernel((enum mist_op)op, name))
            continue;
        enum mist_status status = edit_speed(at, NO_UNIT, 1, &edited[op]);
        if (status != MIST_OK)
            return status;
        is_found = true;
    }
    if (!is_found)
        return mist_err_set(at->err, MIST_ERR_USAGE,
                            "what-if %s: there is no operator %s; there are those of "
                            "mist-sim --list, and products, attention, elementwise, "
                            "loss, optimizer and all",
                            at->name, name);
    memcpy(speeds, edited, sizeof edited);
    return MIST_OK;
}

/* ------------------------------------------------------------------------------ links */

/* What is declared of ways: between devices of a node, between nodes, to the host. */
enum way { DEVICE, NODE, HOST, N_WAYS };
static const char *const way_names[] = {"device", "node", "host", NULL};

static enum way way_of(const struct mist_link_row *row)
{
    bool is_copy = row->operation == MIST_LINK_HOST_TO_DEVICE ||
                   row->operation == MIST_LINK_DEVICE_TO_HOST;

    return is_copy ? HOST : row->nodes > 1 ? NODE : DEVICE;
}

static bool is_link(const struct mist_link_row *row, const char *name)
{
    return strcmp(name, "all") == 0 || strcmp(name, way_names[way_of(row)]) == 0 ||
           strcmp(name, mist_link_operation_words[row->operation]) == 0;
}

/* What is declared of a way of this name, to be edited as rows are; NULL: nothing. */
static struct mist_declared_link *declared_link(struct mist_trace_declared *declared,
                                                enum way way, const char *name)
{
    struct mist_declared_link *const links[] = {&declared->device, &declared->node,
                                                &declared->host};
    bool is_copy =
        strcmp(name, mist_link_operation_words[MIST_LINK_HOST_TO_DEVICE]) == 0 ||
        strcmp(name, mist_link_operation_words[MIST_LINK_DEVICE_TO_HOST]) == 0;
    bool is_meant = strcmp(name, "all") == 0 || strcmp(name, way_names[way]) == 0 ||
                    (way == HOST && is_copy);

    return is_meant && links[way]->bytes_per_s > 0 ? links[way] : NULL;
}

/* Bytes per second that pass along a row's way: in a ring of n ranks (n-1)/n of a message
 * leave each node, or device, and twice that where it is summed. */
static double row_rate(const struct mist_link_row *row)
{
    double n = (double)row->nodes * row->ranks_per_node;
    double passed = row->operation == MIST_LINK_ALL_REDUCE ? 2 * (n - 1) / n
                    : row->operation == MIST_LINK_ALL_GATHER ||
                            row->operation == MIST_LINK_REDUCE_SCATTER
                        ? (n - 1) / n
                        : 1;
    double groups = row->nodes > 1 ? row->concurrent_groups : 1;

    return passed * groups * (double)row->bytes / (row->time_us * 1e-6);
}

/* What is reached of the rate in a preset's data sheet; 1 of what is no preset's. */
static double reached_frac(const struct mist_cluster *cluster, enum way way)
{
    const struct mist_preset *preset;
    int i = 0;

    if (cluster->backend != MIST_TRACE_DATASHEET)
        return 1;
    while ((preset = mist_preset_get(i)) && strcmp(preset->name, cluster->name) != 0)
        i++;
    return !preset         ? 1
           : way == DEVICE ? mist_preset_wirings[preset->wiring].link_frac
           : way == NODE   ? mist_preset_shares.adapter_frac
                           : mist_preset_shares.host_frac;
}

/* The rate that a way has now, 0: it has none. */
static double way_rate(struct mist_trace_set *traces, enum way way)
{
    const struct mist_declared_link *declared =
        declared_link(&traces->cluster.declared, way, way_names[way]);
    double best = 0;

    for (size_t i = 0; i < traces->n_links; i++)
        if (way_of(&traces->links[i]) == way)
            best = fmax(best, row_rate(&traces->links[i]));
    return best > 0   ? best
           : declared ? declared->bytes_per_s / reached_frac(&traces->cluster, way)
                      : 0;
}

/* Rates of declared links times a factor, within what can be computed with. */
static bool scale_declared(struct mist_trace_declared *declared, const char *name,
                           double factor, bool is_done)
{
    for (enum way way = 0; way < N_WAYS; way++) {
        struct mist_declared_link *link = declared_link(declared, way, name);
        if (!link)
            continue;
        if (!is_time(link->bytes_per_s * factor * 1e-3) ||
            !is_deviation(link->latency_us / factor))
            return false;
        if (!is_done)
            continue;
        link->bytes_per_s *= factor;
        link->latency_us /= factor;
        if (way == DEVICE) {
            declared->ring_bytes_per_s *= factor;
            declared->switch_bytes_per_s *= factor;
        }
        if (way == HOST)
            declared->host_node_bytes_per_s *= factor;
    }
    return true;
}

static enum mist_status scale_links(const struct edit *at, const char *name,
                                    double factor, struct mist_trace_set *traces)
{
    struct mist_trace_declared *declared = &traces->cluster.declared;
    bool is_found = false;

    for (enum way way = 0; way < N_WAYS; way++)
        is_found = is_found || declared_link(declared, way, name);
    for (size_t i = 0; i < traces->n_links; i++) {
        const struct mist_link_row *row = &traces->links[i];
        if (!is_link(row, name))
            continue;
        is_found = true;
        if (!is_time(row->time_us / factor) || !is_deviation(row->deviation_us / factor))
            return beyond(at);
    }
    if (!is_found)
        return mist_err_set(at->err, MIST_ERR_USAGE,
                            "what-if %s: the trace set has no link %s; of device, node, "
                            "nic, host, all and the operations of links.csv there are "
                            "those that were measured or declared (mist-sim --list "
                            "--cluster has them)",
                            at->name, name);
    if (!scale_declared(declared, name, factor, false))
        return beyond(at);
    (void)scale_declared(declared, name, factor, true);
    for (size_t i = 0; i < traces->n_links; i++)
        if (is_link(&traces->links[i], name)) {
            traces->links[i].time_us /= factor;
            traces->links[i].deviation_us /= factor;
        }
    return MIST_OK;
}

static enum mist_status edit_links(const struct edit *at, const char *name,
                                   struct mist_trace_set *traces)
{
    int adapters = traces->cluster.declared.adapters;
    bool is_nic = strcmp(name, "nic") == 0;
    double factor = 1, now = 0;

    name = is_nic ? "node" : name;
    int way = mist_word_find(way_names, name);
    if (is_nic && adapters < 1 && !is_factor(at->value, &factor))
        return mist_err_set(at->err, MIST_ERR_USAGE,
                            "what-if %s: the trace set does not say how many adapters a "
                            "node has; link.node is the rate of all of them",
                            at->name);
    if (way >= 0)
        now = way_rate(traces, (enum way)way) / (is_nic && adapters > 0 ? adapters : 1);
    enum mist_status status = read_factor(at, now > 0 ? RATE : NO_UNIT, now, &factor);
    return status == MIST_OK ? scale_links(at, name, factor, traces) : status;
}

/* ---------------------------------------------------------------------------- devices */

static enum mist_status edit_host_memory(const struct edit *at, int64_t *bytes)
{
    if (*bytes <= 0)
        return mist_err_set(at->err, MIST_ERR_USAGE,
                            "what-if %s: the trace set knows no host memory", at->name);
    return edit_size(at, bytes);
}

/* Of nodes or of their devices. */
static enum mist_status edit_number(const struct edit *at, struct mist_cluster *cluster,
                                    int *count)
{
    int64_t was_bytes = mist_preset_runtime_bytes(cluster);
    enum mist_status status = edit_count(at, count);

    if (cluster->backend == MIST_TRACE_DATASHEET)
        cluster->runtime_memory_bytes += mist_preset_runtime_bytes(cluster) - was_bytes;
    return status;
}

/* The set of a preset's device in the nodes that there are; what was measured between
 * these stays. */
static enum mist_status edit_device(const struct edit *at, struct mist_trace_set *traces)
{
    const struct mist_cluster *was = &traces->cluster;
    struct mist_trace_set edited;
    struct mist_err why = {0};

    if (!at->value[0] || strpbrk(at->value, ":,=/"))
        return bad(at, "the name of a preset, such as h200 (mist-sim --presets)");
    enum mist_status status = mist_preset_parse(&edited, at->value, &why);
    if (status != MIST_OK)
        return mist_err_set(at->err, MIST_ERR_USAGE, "what-if %s=%.60s: %.300s", at->name,
                            at->value, why.message);
    struct mist_cluster *cluster = &edited.cluster;
    cluster->nodes = was->nodes;
    cluster->devices_per_node = was->devices_per_node;
    cluster->runtime_memory_bytes = mist_preset_runtime_bytes(cluster);
    cluster->host_memory_bytes_per_node = was->host_memory_bytes_per_node;
    cluster->declared.node = was->declared.node;
    cluster->declared.adapters = was->declared.adapters;
    for (size_t i = 0; i < traces->n_links && status == MIST_OK; i++)
        if (way_of(&traces->links[i]) == NODE)
            status = mist_trace_set_add_link(&edited, &traces->links[i], at->err);
    if (status != MIST_OK) {
        mist_trace_set_fini(&edited);
        return status;
    }
    mist_trace_set_fini(traces);
    *traces = edited;
    return MIST_OK;
}

/* What another framework adds (sim/model/framework.h). */
static enum mist_status edit_framework(const struct edit *at, const char *name,
                                       struct mist_what_if *what_if)
{
    struct mist_framework *framework = &what_if->framework;
    const struct {
        const char *name;
        enum unit unit;
        double *cost;
    } costs[] = {
        {"dispatch", TIME, &framework->dispatch_us},
        {"optimizer", SIZE, &framework->optimizer_bytes},
        {"gradient", SIZE, &framework->accumulate_bytes},
        {"loss", SIZE, &framework->logit_bytes},
    };

    if (!framework->ops)
        return mist_err_set(at->err, MIST_ERR_USAGE,
                            "what-if %s: the plan is of no other framework; launch is "
                            "what a task of ours costs",
                            at->name);
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
        if (strcmp(name, costs[i].name) == 0) {
            enum mist_status status = edit_cost(at, costs[i].unit, costs[i].cost);

            if (status == MIST_OK)
                what_if->speeds.framework = framework;
            return status;
        }
    return refuse_name(at);
}

static enum mist_status edit_interference(const struct edit *at,
                                          struct mist_trace_set *traces)
{
    if (strcmp(at->value, "none") != 0)
        return bad(at, "none");
    for (size_t i = 0; i < traces->n_interferences; i++) {
        struct mist_interference_row *row = &traces->interferences[i];
        row->together_us = 0;
        for (int k = 0; k < MIST_N_CHANNELS; k++)
            if (row->alone_us[k] > row->together_us)
                row->together_us = row->alone_us[k];
    }
    traces->cluster.declared.compute_slowdown = 0;
    traces->cluster.declared.message_slowdown = 0;
    return MIST_OK;
}

/* rank: "N", or "N.link". */
static enum mist_status edit_rank(const struct edit *at, const char *rank,
                                  struct mist_what_if *what_if)
{
    size_t n = strcspn(rank, ".");
    bool is_link = strcmp(rank + n, ".link") == 0;
    char number[32];
    int64_t i;

    if (rank[n] && !is_link)
        return refuse_name(at);
    if (what_if->n_ranks == 0)
        return mist_err_set(at->err, MIST_ERR_USAGE,
                            "what-if %s: what a rank does is a plan's to say; mist-sim "
                            "replays one with it",
                            at->name);
    snprintf(number, sizeof number, "%.*s", (int)n, rank);
    if (n >= sizeof number || mist_parse_int64(number, &i, NULL) != MIST_OK || i < 0 ||
        i >= what_if->n_ranks)
        return mist_err_set(at->err, MIST_ERR_USAGE,
                            "what-if %s: no such rank; the plan has ranks 0 to %d",
                            at->name, what_if->n_ranks - 1);
    double *factor = is_link ? &what_if->link_factor[i] : &what_if->rank_factor[i];
    double speed = 1 / *factor;
    enum mist_status status = edit_speed(at, NO_UNIT, 1, &speed);
    if (status == MIST_OK)
        *factor = 1 / speed;
    return status;
}

/* ------------------------------------------------------------------------------- edits */

static enum mist_status apply(const struct edit *at, struct mist_what_if *what_if)
{
    struct mist_trace_set *traces = what_if->traces;
    struct mist_cluster *cluster = &traces->cluster;
    const char *name = at->name, *rest;

    if (mist_text_begins(name, "kernel.", &rest))
        return edit_kernels(at, rest, what_if->speeds.kernel);
    if (mist_text_begins(name, "link.", &rest))
        return edit_links(at, rest, traces);
    if (mist_text_begins(name, "rank.", &rest))
        return edit_rank(at, rest, what_if);
    if (strcmp(name, "device") == 0)
        return edit_device(at, traces);
    if (strcmp(name, "device.peak") == 0)
        return edit_speed(at, NO_UNIT, 1, &what_if->speeds.peak);
    if (strcmp(name, "device.memory") == 0)
        return edit_size(at, &cluster->device_memory_bytes);
    if (strcmp(name, "device.memory_rate") == 0)
        return edit_speed(at, RATE,
                          cluster->memory_bytes_per_s * what_if->speeds.memory_rate,
                          &what_if->speeds.memory_rate);
    if (strcmp(name, "node.host_memory") == 0)
        return edit_host_memory(at, &cluster->host_memory_bytes_per_node);
    if (strcmp(name, "launch") == 0)
        return edit_cost(at, TIME, &cluster->launch_us);
    if (mist_text_begins(name, "framework.", &rest))
        return edit_framework(at, rest, what_if);
    if (strcmp(name, "interference") == 0)
        return edit_interference(at, traces);
    if (strcmp(name, "cluster.nodes") == 0)
        return edit_number(at, cluster, &cluster->nodes);
    if (strcmp(name, "cluster.devices_per_node") == 0)
        return edit_number(at, cluster, &cluster->devices_per_node);
    return refuse_name(at);
}

bool mist_what_if_is_of_rank(const char *edit)
{
    return mist_text_begins(edit, "rank.", &edit);
}

void mist_what_if_init(struct mist_what_if *what_if, struct mist_trace_set *traces,
                       enum mist_framework_name framework, double *factors, int n_ranks)
{
    *what_if = (struct mist_what_if){.traces = traces,
                                     .framework = *mist_framework_get(framework),
                                     .rank_factor = factors,
                                     .link_factor = factors + n_ranks,
                                     .n_ranks = n_ranks};
    mist_cost_speeds_init(&what_if->speeds);
    for (int i = 0; i < 2 * n_ranks; i++)
        factors[i] = 1;
}

enum mist_status mist_what_if_apply(struct mist_what_if *what_if, const char *edit,
                                    struct mist_err *err)
{
    const char *equals = strchr(edit, '=');
    struct edit at = {.err = err};

    if (!equals || equals == edit || (size_t)(equals - edit) >= sizeof at.name)
        return mist_err_set(
            err, MIST_ERR_USAGE,
            "what-if %s: expected NAME=VALUE, such as kernel.attention=2x", edit);
    memcpy(at.name, edit, (size_t)(equals - edit));
    at.value = equals + 1;
    return apply(&at, what_if);
}

/* Of all that edits change, but for ranks. */
static uint64_t fingerprint(const struct mist_what_if *what_if)
{
    const struct mist_framework *framework = &what_if->framework;
    const struct mist_cost_speeds *speeds = &what_if->speeds;
    struct mist_hash hash;

    mist_hash_init(&hash);
    mist_hash_add_int64(&hash, (int64_t)mist_trace_set_fingerprint(what_if->traces));
    MIST_HASH_DOUBLE(&hash, speeds->peak, speeds->memory_rate, framework->dispatch_us,
                     framework->optimizer_bytes, framework->accumulate_bytes,
                     framework->logit_bytes);
    mist_hash_add_doubles(&hash, speeds->kernel, MIST_N_OPS);
    return hash.value;
}

enum mist_status mist_what_if_apply_all(struct mist_what_if *what_if,
                                        const char *const *edits, int n, bool must_change,
                                        struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    const char *rest;

    for (int is_first = 1; is_first >= 0; is_first--)
        for (int i = 0; i < n && status == MIST_OK; i++) {
            if (mist_text_begins(edits[i], "device=", &rest) != (is_first == 1))
                continue;
            uint64_t before = must_change ? fingerprint(what_if) : 0;
            status = mist_what_if_apply(what_if, edits[i], err);
            if (status == MIST_OK && must_change && fingerprint(what_if) == before)
                status = mist_what_if_fail_nothing(edits[i], err);
        }
    return status;
}

static const char *why_nothing(const char *edit)
{
    static const struct {
        const char *prefix, *why;
    } reasons[] = {
        {"kernel.", "the plan runs no such operator"},
        {"link.", "the plan sends nothing that way, or that is how fast it is"},
        {"device=", "the cluster has these devices"},
        {"device.peak=", "no price of the plan rests on the peak"},
        {"device.memory_rate=", "no price of the plan rests on the rate of memory"},
        {"launch=", "launches cost nothing here"},
        {"framework.", "the host is not what the plan waits for, or no such work is"},
        {"interference=", "nothing of the plan slows anything else down"},
        {"cluster.", "there are so many, or the plan keeps its ranks and where they are; "
                     "mist-tune plans for other nodes, --cluster has them"},
    };
    const char *value = strchr(edit, '='), *rest;
    double factor;

    if (value && is_factor(value + 1, &factor) && factor == 1)
        return "1x is as fast, or as much, as it is";
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (mist_text_begins(edit, reasons[i].prefix, &rest))
            return reasons[i].why;
    return "it is so already";
}

enum mist_status mist_what_if_fail_nothing(const char *edit, struct mist_err *err)
{
    return mist_err_set(err, MIST_ERR_USAGE, "what-if %.200s changes nothing: %s", edit,
                        why_nothing(edit));
}
