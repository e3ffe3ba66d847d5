/* Fingerprint of a trace set. See trace_set.h. */
#include "traces/trace_internal.h"

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
    if (declared->ring_bytes_per_s > 0) /* sets that don't say these keep their number */
        mist_hash_add_double(hash, declared->ring_bytes_per_s);
    if (declared->host_node_bytes_per_s > 0)
        mist_hash_add_double(hash, declared->host_node_bytes_per_s);
    if (declared->compute_slowdown > 0 || declared->message_slowdown > 0) {
        mist_hash_add_double(hash, declared->compute_slowdown);
        mist_hash_add_double(hash, declared->message_slowdown);
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
