/* Edits of the inputs of a prediction, by name. See what_if.h. */
#include "sim/what_if.h"

#include "core/parse.h"

#include <stdlib.h>
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

/* --------------------------------------------------------------------- kernels, links */

static enum mist_status edit_kernels(const struct edit *at, const char *op,
                                     struct mist_trace_set *traces)
{
    double factor;
    int64_t n_found = 0;
    bool is_all = strcmp(op, "all") == 0;

    for (size_t i = 0; i < traces->n_kernels; i++)
        n_found += is_all || strcmp(traces->kernels[i].op, op) == 0;
    if (n_found == 0)
        return mist_err_set(at->err, MIST_ERR_USAGE,
                            "what-if %s: the trace set has no operator %s (see the "
                            "column op of kernels.csv, or use kernel.all)",
                            at->name, op);
    if (!is_factor(at->value, &factor))
        return bad(at, "a factor of its time such as 0.7x");
    for (size_t i = 0; i < traces->n_kernels; i++) {
        const struct mist_kernel_row *row = &traces->kernels[i];
        if ((is_all || strcmp(row->op, op) == 0) &&
            (!is_time(row->time_us * factor) ||
             !is_deviation(row->deviation_us * factor)))
            return beyond(at);
    }
    for (size_t i = 0; i < traces->n_kernels; i++)
        if (is_all || strcmp(traces->kernels[i].op, op) == 0) {
            traces->kernels[i].time_us *= factor;
            traces->kernels[i].deviation_us *= factor;
        }
    return MIST_OK;
}

static bool is_link(const struct mist_link_row *row, const char *name)
{
    bool is_copy = row->operation == MIST_LINK_HOST_TO_DEVICE ||
                   row->operation == MIST_LINK_DEVICE_TO_HOST;

    if (strcmp(name, "all") == 0)
        return true;
    if (strcmp(name, "inter_node") == 0)
        return row->nodes > 1;
    if (strcmp(name, "intra_node") == 0)
        return row->nodes == 1 && !is_copy;
    return strcmp(mist_link_operation_name(row->operation), name) == 0;
}

/* What is declared of a link of this name, to be edited as rows are; NULL: nothing. */
static struct mist_declared_link *declared_link(struct mist_trace_declared *declared,
                                                int i, const char *name)
{
    static const char *const names[] = {"intra_node", "inter_node", "host"};
    struct mist_declared_link *const links[] = {&declared->device, &declared->node,
                                                &declared->host};
    bool is_copy =
        strcmp(name, mist_link_operation_name(MIST_LINK_HOST_TO_DEVICE)) == 0 ||
        strcmp(name, mist_link_operation_name(MIST_LINK_DEVICE_TO_HOST)) == 0;
    bool is_meant =
        strcmp(name, "all") == 0 || strcmp(name, names[i]) == 0 || (i == 2 && is_copy);

    return is_meant && links[i]->bytes_per_s > 0 ? links[i] : NULL;
}

/* Rates of declared links times a factor, within what can be computed with. */
static bool scale_declared(struct mist_trace_declared *declared, const char *name,
                           double factor, bool is_done)
{
    for (int i = 0; i < 3; i++) {
        struct mist_declared_link *link = declared_link(declared, i, name);
        if (!link)
            continue;
        if (!is_time(link->bytes_per_s * factor * 1e-3) ||
            !is_deviation(link->latency_us / factor))
            return false;
        if (!is_done)
            continue;
        link->bytes_per_s *= factor;
        link->latency_us /= factor;
        if (i == 0) {
            declared->ring_bytes_per_s *= factor;
            declared->switch_bytes_per_s *= factor;
        }
        if (i == 2)
            declared->host_node_bytes_per_s *= factor;
    }
    return true;
}

static enum mist_status edit_links(const struct edit *at, const char *name,
                                   struct mist_trace_set *traces)
{
    struct mist_trace_declared *declared = &traces->cluster.declared;
    double factor, rate, best = 0;
    int64_t n_found = 0;

    for (size_t i = 0; i < traces->n_links; i++) {
        const struct mist_link_row *row = &traces->links[i];
        double row_rate = (double)row->bytes / (row->time_us * 1e-6);
        if (!is_link(row, name))
            continue;
        n_found++;
        best = row_rate > best ? row_rate : best;
    }
    for (int i = 0; i < 3; i++) {
        const struct mist_declared_link *link = declared_link(declared, i, name);
        n_found += link != NULL;
        best = link && link->bytes_per_s > best ? link->bytes_per_s : best;
    }
    if (n_found == 0)
        return mist_err_set(at->err, MIST_ERR_USAGE,
                            "what-if %s: the trace set has no link %s (expected "
                            "inter_node, intra_node, all or an operation of links.csv "
                            "that was measured)",
                            at->name, name);
    if (!is_factor(at->value, &factor)) {
        if (mist_parse_rate_bytes_per_s(at->value, &rate, NULL) != MIST_OK || rate <= 0)
            return bad(at, "a factor of its rate such as 2x, or a rate such as 400Gb/s");
        factor = rate / best;
    }
    for (size_t i = 0; i < traces->n_links; i++) {
        const struct mist_link_row *row = &traces->links[i];
        if (is_link(row, name) && (!is_time(row->time_us / factor) ||
                                   !is_deviation(row->deviation_us / factor)))
            return beyond(at);
    }
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

/* --------------------------------------------------------------------------- the rest */

static enum mist_status edit_launch(const struct edit *at, struct mist_trace_set *traces)
{
    double factor;

    if (!is_factor(at->value, &factor))
        return bad(at, "a factor such as 0.5x");
    if (!is_deviation(traces->cluster.launch_us * factor)) /* may be 0 */
        return beyond(at);
    traces->cluster.launch_us *= factor;
    return MIST_OK;
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

static enum mist_status edit_count(const struct edit *at, int *count)
{
    int64_t value;

    if (mist_parse_int64(at->value, &value, NULL) != MIST_OK || value < 1 ||
        value > 1000000)
        return bad(at, "a whole number from 1 to 1000000");
    *count = (int)value;
    return MIST_OK;
}

static enum mist_status edit_straggler(const struct edit *at, const char *rank,
                                       double *rank_factor, int n_ranks)
{
    int64_t i;
    double factor;

    if (mist_parse_int64(rank, &i, NULL) != MIST_OK || i < 0 || i >= n_ranks)
        return mist_err_set(at->err, MIST_ERR_USAGE,
                            "what-if %s: no such rank; the plan has ranks 0 to %d",
                            at->name, n_ranks - 1);
    if (!is_factor(at->value, &factor))
        return bad(at, "a factor such as 1.3x");
    if (!is_time(rank_factor[i] * factor))
        return beyond(at);
    rank_factor[i] *= factor;
    return MIST_OK;
}

enum mist_status mist_what_if_apply(const char *edit, struct mist_trace_set *traces,
                                    double *rank_factor, int n_ranks,
                                    struct mist_err *err)
{
    const char *equals = strchr(edit, '=');
    struct edit at = {.err = err};

    if (!equals || equals == edit || (size_t)(equals - edit) >= sizeof at.name)
        return mist_err_set(
            err, MIST_ERR_USAGE,
            "what-if %s: expected NAME=VALUE, such as kernel.attention=0.7x", edit);
    memcpy(at.name, edit, (size_t)(equals - edit));
    at.value = equals + 1;
    if (strncmp(at.name, "kernel.", 7) == 0)
        return edit_kernels(&at, at.name + 7, traces);
    if (strncmp(at.name, "link.", 5) == 0)
        return edit_links(&at, at.name + 5, traces);
    if (strncmp(at.name, "straggler.rank", 14) == 0)
        return edit_straggler(&at, at.name + 14, rank_factor, n_ranks);
    if (strcmp(at.name, "launch") == 0)
        return edit_launch(&at, traces);
    if (strcmp(at.name, "interference") == 0)
        return edit_interference(&at, traces);
    if (strcmp(at.name, "cluster.nodes") == 0)
        return edit_count(&at, &traces->cluster.nodes);
    if (strcmp(at.name, "cluster.devices_per_node") == 0)
        return edit_count(&at, &traces->cluster.devices_per_node);
    return mist_err_set(
        err, MIST_ERR_USAGE,
        "what-if %s: unknown name; there are kernel.OP, link.NAME, launch, "
        "interference, cluster.nodes, cluster.devices_per_node and "
        "straggler.rankN",
        at.name);
}
