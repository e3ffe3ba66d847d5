/* Fingerprint and printed summary of a trace set. See trace_set.h. */
#include "core/parse.h"
#include "traces/trace_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys ---- */

void mist_trace_hash_kernel_key(struct mist_hash *hash, const struct mist_kernel_key *key)
{
    mist_hash_add_text(hash, key->op);
    mist_hash_add_int64(hash, key->dtype);
    mist_hash_add_int64(hash, key->phase);
    for (int i = 0; key->shape && i < key->shape->n_dims; i++) {
        mist_hash_add_text(hash, key->shape->dims[i].name);
        mist_hash_add_int64(hash, key->shape->dims[i].value);
    }
}

void mist_trace_hash_link_key(struct mist_hash *hash, const struct mist_link_row *row)
{
    mist_hash_add_int64(hash, row->operation);
    mist_hash_add_int64(hash, row->nodes);
    mist_hash_add_int64(hash, row->ranks_per_node);
    mist_hash_add_int64(hash, row->concurrent_groups);
    mist_hash_add_int64(hash, row->bytes);
}

void mist_trace_hash_interference_key(struct mist_hash *hash,
                                      const struct mist_interference_row *row)
{
    mist_hash_add_int64(hash, row->channels);
    mist_hash_add_int64(hash, row->nodes);
    mist_hash_add_int64(hash, row->ranks_per_node);
    for (int i = 0; i < MIST_N_CHANNELS; i++)
        mist_hash_add_double(hash, row->alone_us[i]);
}

/* ---- fingerprint ---- */

static void hash_prices(struct mist_hash *hash, const struct mist_cluster *cluster)
{
    const struct mist_trace_curve *curve = &cluster->curve;
    const struct mist_trace_declared *declared = &cluster->declared;
    const struct mist_declared_link *const links[] = {&declared->device, &declared->node,
                                                      &declared->host};

    if (curve->processors > 0) {
        mist_hash_add_text(hash, "curve");
        mist_hash_add_int64(hash, curve->processors);
        mist_hash_add_double(hash, curve->product_frac);
        mist_hash_add_double(hash, curve->memory_frac);
        mist_hash_add_double(hash, curve->residual_frac);
    }
    if (!mist_cluster_declares_links(cluster))
        return;
    mist_hash_add_text(hash, "declared");
    for (int i = 0; i < 3; i++) {
        mist_hash_add_double(hash, links[i]->bytes_per_s);
        mist_hash_add_double(hash, links[i]->latency_us);
    }
    mist_hash_add_int64(hash, declared->adapters);
    mist_hash_add_double(hash, declared->switch_bytes_per_s);
    mist_hash_add_double(hash, declared->residual_frac);
}

static uint64_t cluster_fingerprint(const struct mist_cluster *cluster)
{
    struct mist_hash hash;
    uint64_t libraries = 0;

    for (int i = 0; i < cluster->n_libraries; i++) {
        mist_hash_init(&hash);
        mist_hash_add_text(&hash, cluster->libraries[i].name);
        mist_hash_add_text(&hash, cluster->libraries[i].version);
        libraries += hash.value;
    }
    mist_hash_init(&hash);
    mist_hash_add_text(&hash, cluster->name);
    mist_hash_add_int64(&hash, cluster->backend);
    mist_hash_add_text(&hash, cluster->date);
    mist_hash_add_text(&hash, cluster->how_measured);
    mist_hash_add_int64(&hash, cluster->nodes);
    mist_hash_add_int64(&hash, cluster->devices_per_node);
    mist_hash_add_int64(&hash, cluster->device_memory_bytes);
    mist_hash_add_int64(&hash, cluster->host_memory_bytes_per_node);
    mist_hash_add_int64(&hash, cluster->device_threads);
    for (int i = 0; i < MIST_N_TRACE_DTYPES; i++)
        mist_hash_add_double(&hash, cluster->peak_flop_per_s[i]);
    mist_hash_add_double(&hash, cluster->memory_bytes_per_s);
    mist_hash_add_double(&hash, cluster->launch_us);
    mist_hash_add_int64(&hash, cluster->runtime_memory_bytes);
    if (cluster->drift_frac > 0) /* sets that don't know these keep their number */
        mist_hash_add_double(&hash, cluster->drift_frac);
    if (cluster->skew.pass_frac > 0) {
        mist_hash_add_double(&hash, cluster->skew.alone_frac);
        mist_hash_add_double(&hash, cluster->skew.pass_frac);
        mist_hash_add_double(&hash, cluster->skew.step_frac);
    }
    if (cluster->streams_take_turns)
        mist_hash_add_text(&hash, "streams_take_turns");
    if (cluster->probe_us > 0) {
        mist_hash_add_text(&hash, "probe_us"); /* a drift of that number is another set */
        mist_hash_add_double(&hash, cluster->probe_us);
    }
    hash_prices(&hash, cluster);
    return hash.value + libraries;
}

/* The hash of one row: a word that tells the tables apart, the key, the measurement. */
static uint64_t kernel_fingerprint(const struct mist_kernel_row *row)
{
    struct mist_kernel_key key = {row->op, row->dtype, row->phase, &row->shape};
    struct mist_hash hash;

    mist_hash_init(&hash);
    mist_hash_add_text(&hash, "kernel");
    mist_trace_hash_kernel_key(&hash, &key);
    mist_hash_add_double(&hash, row->time_us);
    mist_hash_add_double(&hash, row->deviation_us);
    mist_hash_add_int64(&hash, row->repetitions);
    mist_hash_add_double(&hash, row->flop);
    mist_hash_add_double(&hash, row->bytes);
    return hash.value;
}

static uint64_t check_fingerprint(const struct mist_check_row *row)
{
    struct mist_hash hash;

    mist_hash_init(&hash);
    mist_hash_add_text(&hash, "check");
    mist_hash_add_int64(&hash, row->mechanism);
    mist_hash_add_double(&hash, row->predicted_us);
    mist_hash_add_double(&hash, row->bar_us);
    mist_hash_add_double(&hash, row->measured_us);
    mist_hash_add_double(&hash, row->deviation_us);
    mist_hash_add_int64(&hash, row->repetitions);
    return hash.value;
}

uint64_t mist_trace_set_fingerprint(const struct mist_trace_set *set)
{
    uint64_t sum = cluster_fingerprint(&set->cluster) + set->has_kernels;
    struct mist_hash hash;

    for (size_t i = 0; i < set->n_kernels; i++)
        sum += kernel_fingerprint(&set->kernels[i]);
    for (size_t i = 0; i < set->n_links; i++) {
        mist_hash_init(&hash);
        mist_hash_add_text(&hash, "link");
        mist_trace_hash_link_key(&hash, &set->links[i]);
        mist_hash_add_double(&hash, set->links[i].time_us);
        mist_hash_add_double(&hash, set->links[i].deviation_us);
        mist_hash_add_int64(&hash, set->links[i].repetitions);
        sum += hash.value;
    }
    for (size_t i = 0; i < set->n_interferences; i++) {
        mist_hash_init(&hash);
        mist_hash_add_text(&hash, "interference");
        mist_trace_hash_interference_key(&hash, &set->interferences[i]);
        mist_hash_add_double(&hash, set->interferences[i].together_us);
        mist_hash_add_double(&hash, set->interferences[i].deviation_us);
        mist_hash_add_int64(&hash, set->interferences[i].repetitions);
        sum += hash.value;
    }
    for (size_t i = 0; i < set->n_checks; i++)
        sum += check_fingerprint(&set->checks[i]);
    return sum;
}

/* ---- summary ---- */

static void print_machine(const struct mist_cluster *cluster, FILE *stream)
{
    char a[MIST_FORMAT_BYTES], b[MIST_FORMAT_BYTES];

    fprintf(stream, "cluster      %s (%s%s%s)\n", cluster->name,
            mist_trace_backend_name(cluster->backend), cluster->date[0] ? ", " : "",
            cluster->date);
    fprintf(stream, "devices      %d node%s x %d\n", cluster->nodes,
            cluster->nodes == 1 ? "" : "s", cluster->devices_per_node);
    fprintf(stream, "memory       %s a device, %s a node on the host\n",
            mist_format_bytes(a, sizeof a, cluster->device_memory_bytes),
            mist_format_bytes(b, sizeof b, cluster->host_memory_bytes_per_node));
    fprintf(stream, "peak         ");
    for (int i = 0; i < MIST_N_TRACE_DTYPES; i++)
        if (cluster->peak_flop_per_s[i] > 0)
            fprintf(stream, "%s %sFLOP/s, ",
                    mist_trace_dtype_name((enum mist_trace_dtype)i),
                    mist_format_count(a, sizeof a, cluster->peak_flop_per_s[i]));
    fprintf(stream, "memory %sB/s\n",
            mist_format_count(a, sizeof a, cluster->memory_bytes_per_s));
    if (cluster->drift_frac > 0)
        fprintf(stream, "drift        %.2g %% of the time\n", 100 * cluster->drift_frac);
    if (cluster->skew.pass_frac > 0)
        fprintf(stream,
                "skew         %.2g %% alone, %.2g %% of passes, %.2g %% of steps\n",
                100 * cluster->skew.alone_frac, 100 * cluster->skew.pass_frac,
                100 * cluster->skew.step_frac);
    if (cluster->streams_take_turns)
        fprintf(stream, "streams      of a device take turns on one thread\n");
    if (cluster->probe_us > 0)
        fprintf(stream, "probe        %s\n",
                mist_format_time_s(a, sizeof a, cluster->probe_us * 1e-6));
    for (int i = 0; i < cluster->n_libraries; i++)
        fprintf(stream, "%-12s %s %s\n", i ? "" : "libraries", cluster->libraries[i].name,
                cluster->libraries[i].version);
}

/* One line per op, dtype and phase, in the order in which they first come. */
static void print_kernels(const struct mist_trace_set *set, FILE *stream)
{
    fprintf(stream, "kernels      %zu rows%s\n", set->n_kernels,
            set->has_kernels ? "" : " (no kernels.csv: priced by the peak rates)");
    for (size_t i = 0; i < set->n_kernels; i++) {
        const struct mist_kernel_row *first = &set->kernels[i], *row;
        char a[MIST_FORMAT_BYTES], b[MIST_FORMAT_BYTES];
        double min_us = first->time_us, max_us = min_us;
        size_t n = 0;
        if (mist_trace_set_first_kernel(set, first->op, first->dtype, first->phase) !=
            first)
            continue;
        for (row = first; row; row = mist_trace_set_next_kernel(set, row)) {
            min_us = row->time_us < min_us ? row->time_us : min_us;
            max_us = row->time_us > max_us ? row->time_us : max_us;
            n++;
        }
        fprintf(stream, "  %-24s %-5s %-15s %5zu shapes, %s .. %s\n", first->op,
                mist_trace_dtype_name(first->dtype), mist_trace_phase_name(first->phase),
                n, mist_format_time_s(a, sizeof a, min_us * 1e-6),
                mist_format_time_s(b, sizeof b, max_us * 1e-6));
    }
}

static bool same_group(const struct mist_link_row *a, const struct mist_link_row *b)
{
    return a->operation == b->operation && a->nodes == b->nodes &&
           a->ranks_per_node == b->ranks_per_node &&
           a->concurrent_groups == b->concurrent_groups;
}

/* By group, then size, then the time to break ties. */
static int compare_links(const void *a_any, const void *b_any)
{
    const struct mist_link_row *a = a_any, *b = b_any;

    if (a->operation != b->operation)
        return a->operation < b->operation ? -1 : 1;
    if (a->nodes != b->nodes)
        return a->nodes < b->nodes ? -1 : 1;
    if (a->ranks_per_node != b->ranks_per_node)
        return a->ranks_per_node < b->ranks_per_node ? -1 : 1;
    if (a->concurrent_groups != b->concurrent_groups)
        return a->concurrent_groups < b->concurrent_groups ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* One line per operation and group, in their order. */
static void print_links(const struct mist_trace_set *set, FILE *stream)
{
    struct mist_link_row *sorted = malloc((set->n_links + 1) * sizeof *sorted);

    fprintf(stream, "links        %zu rows\n", set->n_links);
    if (!sorted) /* the summary is for people; the count must do */
        return;
    if (set->n_links) /* memcpy from NULL is undefined even for no bytes */
        memcpy(sorted, set->links, set->n_links * sizeof *sorted);
    qsort(sorted, set->n_links, sizeof *sorted, compare_links);
    for (size_t i = 0, end; i < set->n_links; i = end) {
        char a[MIST_FORMAT_BYTES], b[MIST_FORMAT_BYTES];
        for (end = i + 1; end < set->n_links && same_group(&sorted[i], &sorted[end]);)
            end++;
        fprintf(stream, "  %-15s %3d x %-3d x %d groups %5zu sizes, %s .. %s\n",
                mist_link_operation_name(sorted[i].operation), sorted[i].nodes,
                sorted[i].ranks_per_node, sorted[i].concurrent_groups, end - i,
                mist_format_bytes(a, sizeof a, sorted[i].bytes),
                mist_format_bytes(b, sizeof b, sorted[end - 1].bytes));
    }
    free(sorted);
}

static void print_interferences(const struct mist_trace_set *set, FILE *stream)
{
    fprintf(stream, "interference %zu rows\n", set->n_interferences);
    for (unsigned channels = 1; channels < 1u << MIST_N_CHANNELS; channels++) {
        char text[MIST_CHANNELS_TEXT_MAX];
        size_t n = 0;
        for (size_t i = 0; i < set->n_interferences; i++)
            n += set->interferences[i].channels == channels;
        mist_channels_to_text(channels, text);
        if (n)
            fprintf(stream, "  %-54s %5zu\n", text, n);
    }
}

static void print_checks(const struct mist_trace_set *set, FILE *stream)
{
    if (set->n_checks)
        fprintf(stream, "checks       %zu rows\n", set->n_checks);
    for (size_t i = 0; i < set->n_checks; i++) {
        const struct mist_check_row *row = &set->checks[i];
        char predicted[MIST_FORMAT_BYTES], measured[MIST_FORMAT_BYTES];
        fprintf(stream, "  %-24s %s predicted, %s measured, %+.1f %%\n",
                mist_mechanism_name(row->mechanism),
                mist_format_time_s(predicted, sizeof predicted, row->predicted_us * 1e-6),
                mist_format_time_s(measured, sizeof measured, row->measured_us * 1e-6),
                100 * (row->predicted_us / row->measured_us - 1));
    }
}

void mist_trace_set_print_summary(const struct mist_trace_set *set, FILE *stream)
{
    print_machine(&set->cluster, stream);
    print_kernels(set, stream);
    print_links(set, stream);
    print_interferences(set, stream);
    print_checks(set, stream);
    fprintf(stream, "fingerprint  %016" PRIx64 "\n", mist_trace_set_fingerprint(set));
}
