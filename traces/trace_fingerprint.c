/* Fingerprint of a trace set. See trace_set.h. */
#include "core/hash.h"
#include "traces/trace_internal.h"

static void hash_prices(struct mist_hash *hash, const struct mist_cluster *cluster)
{
    const struct mist_trace_curve *curve = &cluster->curve;
    const struct mist_trace_declared *declared = &cluster->declared;
    const struct mist_declared_link *const links[] = {&declared->device, &declared->node,
                                                      &declared->host};

    if (curve->processors > 0) {
        mist_hash_add_text(hash, "curve");
        mist_hash_add_int64(hash, curve->processors);
        MIST_HASH_DOUBLE(hash, curve->product_frac, curve->memory_frac,
                         curve->residual_frac);
        if (curve->host_adamw_elements_per_s > 0)
            mist_hash_add_double(hash, curve->host_adamw_elements_per_s);
    }
    if (!mist_cluster_declares_links(cluster))
        return;
    mist_hash_add_text(hash, "declared");
    for (int i = 0; i < 3; i++) {
        MIST_HASH_DOUBLE(hash, links[i]->bytes_per_s, links[i]->latency_us);
    }
    if (declared->ring_bytes_per_s > 0) /* sets that don't say these keep their number */
        mist_hash_add_double(hash, declared->ring_bytes_per_s);
    if (declared->host_node_bytes_per_s > 0)
        mist_hash_add_double(hash, declared->host_node_bytes_per_s);
    if (declared->compute_slowdown > 0 || declared->message_slowdown > 0) {
        MIST_HASH_DOUBLE(hash, declared->compute_slowdown, declared->message_slowdown);
    }
    mist_hash_add_int64(hash, declared->adapters);
    MIST_HASH_DOUBLE(hash, declared->switch_bytes_per_s, declared->residual_frac);
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
    MIST_HASH_INT64(&hash, cluster->nodes, cluster->devices_per_node,
                    cluster->device_memory_bytes, cluster->host_memory_bytes_per_node,
                    cluster->device_threads);
    for (int i = 0; i < MIST_N_TRACE_DTYPES; i++)
        mist_hash_add_double(&hash, cluster->peak_flop_per_s[i]);
    mist_hash_add_double(&hash, cluster->memory_bytes_per_s);
    mist_hash_add_double(&hash, cluster->launch_us);
    mist_hash_add_int64(&hash, cluster->runtime_memory_bytes);
    if (cluster->drift_frac > 0) /* sets that don't know these keep their number */
        mist_hash_add_double(&hash, cluster->drift_frac);
    if (cluster->skew.pass_frac > 0) {
        MIST_HASH_DOUBLE(&hash, cluster->skew.alone_frac, cluster->skew.pass_frac,
                         cluster->skew.step_frac);
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

uint64_t mist_trace_set_fingerprint(const struct mist_trace_set *set)
{
    uint64_t sum = cluster_fingerprint(&set->cluster) + set->has_kernels;

    for (enum mist_trace_table table = 0; table < MIST_N_TRACE_TABLES; table++)
        for (size_t i = 0; i < mist_trace_table_n_rows(table, set); i++)
            sum += mist_trace_row_hash(table, mist_trace_forms[table].n_columns,
                                       mist_trace_table_row(table, set, i));
    return sum;
}
