/* The members of cluster.json. See trace_internal.h. */
#include "traces/trace_internal.h"

enum { OPTIONAL, REQUIRED };
enum { FROM_0, ABOVE_0 };

/* A member of a struct; its key is the member's name. */
#define FIELD(of, i_kind, needs, least, member)                                          \
    {                                                                                    \
        .key = #member, .kind = MIST_CLUSTER_##i_kind, .is_required = needs,             \
        .is_above_0 = least, .offset = offsetof(struct of, member),                      \
        .size = sizeof(((struct of *)0)->member)                                         \
    }
#define OBJECT(of, least, member, fields)                                                \
    {                                                                                    \
        .key = #member, .kind = MIST_CLUSTER_OBJECT, .is_above_0 = least,                \
        .offset = offsetof(struct of, member), .members = fields                         \
    }
#define OTHER(i_key)                                                                     \
    {                                                                                    \
        .key = i_key, .kind = MIST_CLUSTER_OTHER                                         \
    }
#define END OTHER(NULL)

static const struct mist_cluster_field skew[] = {
    FIELD(mist_trace_skew, DOUBLE, REQUIRED, FROM_0, alone_frac),
    FIELD(mist_trace_skew, DOUBLE, REQUIRED, FROM_0, pass_frac),
    FIELD(mist_trace_skew, DOUBLE, REQUIRED, FROM_0, step_frac),
    END,
};

static const struct mist_cluster_field curve[] = {
    FIELD(mist_trace_curve, INT, REQUIRED, ABOVE_0, processors),
    FIELD(mist_trace_curve, FRAC, REQUIRED, ABOVE_0, product_frac),
    FIELD(mist_trace_curve, FRAC, REQUIRED, ABOVE_0, memory_frac),
    FIELD(mist_trace_curve, FRAC, REQUIRED, FROM_0, residual_frac),
    FIELD(mist_trace_curve, RATE, OPTIONAL, FROM_0, host_adamw_elements_per_s),
    END,
};

static const struct mist_cluster_field link[] = {
    FIELD(mist_declared_link, RATE, REQUIRED, FROM_0, bytes_per_s),
    FIELD(mist_declared_link, TIME_US, REQUIRED, FROM_0, latency_us),
    END,
};

static const struct mist_cluster_field declared[] = {
    FIELD(mist_trace_declared, RATE, OPTIONAL, FROM_0, ring_bytes_per_s),
    FIELD(mist_trace_declared, RATE, OPTIONAL, FROM_0, host_node_bytes_per_s),
    FIELD(mist_trace_declared, INT, OPTIONAL, FROM_0, adapters),
    FIELD(mist_trace_declared, RATE, OPTIONAL, FROM_0, switch_bytes_per_s),
    FIELD(mist_trace_declared, SLOWDOWN, OPTIONAL, FROM_0, compute_slowdown),
    FIELD(mist_trace_declared, SLOWDOWN, OPTIONAL, FROM_0, message_slowdown),
    FIELD(mist_trace_declared, FRAC, REQUIRED, FROM_0, residual_frac),
    OBJECT(mist_trace_declared, ABOVE_0, device, link),
    OBJECT(mist_trace_declared, ABOVE_0, node, link),
    OBJECT(mist_trace_declared, ABOVE_0, host, link),
    END,
};

const struct mist_cluster_field mist_cluster_fields[] = {
    OTHER("format"),
    FIELD(mist_cluster, TEXT, REQUIRED, FROM_0, name),
    FIELD(mist_cluster, BACKEND, REQUIRED, FROM_0, backend),
    FIELD(mist_cluster, TEXT, OPTIONAL, FROM_0, date),
    FIELD(mist_cluster, TEXT, OPTIONAL, FROM_0, how_measured),
    FIELD(mist_cluster, INT, REQUIRED, ABOVE_0, nodes),
    FIELD(mist_cluster, INT, REQUIRED, ABOVE_0, devices_per_node),
    FIELD(mist_cluster, MEMORY, REQUIRED, ABOVE_0, device_memory_bytes),
    FIELD(mist_cluster, MEMORY, OPTIONAL, FROM_0, host_memory_bytes_per_node),
    FIELD(mist_cluster, INT, OPTIONAL, FROM_0, device_threads),
    OTHER("peak_flop_per_s"),
    FIELD(mist_cluster, RATE, REQUIRED, ABOVE_0, memory_bytes_per_s),
    FIELD(mist_cluster, TIME_US, OPTIONAL, FROM_0, launch_us),
    FIELD(mist_cluster, INT64, OPTIONAL, FROM_0, runtime_memory_bytes),
    OTHER("interruption_frac"), /* of old sets: not read */
    FIELD(mist_cluster, DOUBLE, OPTIONAL, FROM_0, drift_frac),
    OBJECT(mist_cluster, FROM_0, skew, skew),
    FIELD(mist_cluster, BOOL, OPTIONAL, FROM_0, streams_take_turns),
    FIELD(mist_cluster, TIME_US, OPTIONAL, FROM_0, probe_us),
    OTHER("libraries"),
    OTHER("rows"),
    OBJECT(mist_cluster, ABOVE_0, curve, curve),
    OBJECT(mist_cluster, FROM_0, declared, declared),
    END,
};
