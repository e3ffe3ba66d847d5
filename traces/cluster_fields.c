/* The members of cluster.json. See trace_internal.h. */
#include "traces/trace_internal.h"

#define FIELD    MIST_JSON_FIELD
#define OPTIONAL .is_optional = true
#define FROM_0   .limits = MIST_FIELD_FROM_0
#define ABOVE_0  .limits = MIST_FIELD_ABOVE_0
#define BOOL     .type = MIST_FIELD_BOOL
#define TEXT     .type = MIST_FIELD_CHARS
#define WHOLE    .type = MIST_FIELD_WHOLE
#define NUMBER   .type = MIST_FIELD_NUMBER
#define MEMORY   WHOLE, .check = MIST_CLUSTER_MEMORY
#define RATE     NUMBER, .check = MIST_CLUSTER_RATE
#define TIME_US  NUMBER, .check = MIST_CLUSTER_TIME_US
#define SLOWDOWN NUMBER, .check = MIST_CLUSTER_SLOWDOWN
#define BACKEND  .type = MIST_FIELD_WORD, .words = mist_trace_backend_words
/* There when its first member isn't 0, or always. */
#define OBJECT(fields) .type = MIST_FIELD_OBJECT, .members = fields, .is_left_out = true
#define ALWAYS(fields) .type = MIST_FIELD_OBJECT, .members = fields, OPTIONAL
#define OTHER(i_key)                                                                     \
    {                                                                                    \
        .key = i_key, .type = MIST_FIELD_OTHER                                           \
    }
#define END OTHER(NULL)

static const struct mist_json_field skew[] = {
    FIELD(mist_trace_skew, alone_frac, NUMBER, FROM_0),
    FIELD(mist_trace_skew, pass_frac, NUMBER, FROM_0),
    FIELD(mist_trace_skew, step_frac, NUMBER, FROM_0),
    END,
};

/* Shares of a rate, up to 1. */
#define FRAC_FROM_0  NUMBER, .limits = MIST_FIELD_FROM_0 | MIST_FIELD_TO_1
#define FRAC_ABOVE_0 NUMBER, .limits = MIST_FIELD_ABOVE_0 | MIST_FIELD_TO_1

static const struct mist_json_field curve[] = {
    FIELD(mist_trace_curve, processors, WHOLE, ABOVE_0),
    FIELD(mist_trace_curve, product_frac, FRAC_ABOVE_0),
    FIELD(mist_trace_curve, memory_frac, FRAC_ABOVE_0),
    FIELD(mist_trace_curve, residual_frac, FRAC_FROM_0),
    FIELD(mist_trace_curve, host_adamw_elements_per_s, RATE, FROM_0, OPTIONAL),
    END,
};

static const struct mist_json_field link[] = {
    FIELD(mist_declared_link, bytes_per_s, RATE, FROM_0),
    FIELD(mist_declared_link, latency_us, TIME_US, FROM_0),
    END,
};

static const struct mist_json_field declared[] = {
    FIELD(mist_trace_declared, ring_bytes_per_s, RATE, FROM_0, OPTIONAL),
    FIELD(mist_trace_declared, host_node_bytes_per_s, RATE, FROM_0, OPTIONAL),
    FIELD(mist_trace_declared, adapters, WHOLE, FROM_0, OPTIONAL),
    FIELD(mist_trace_declared, switch_bytes_per_s, RATE, FROM_0, OPTIONAL),
    FIELD(mist_trace_declared, compute_slowdown, SLOWDOWN, FROM_0, OPTIONAL),
    FIELD(mist_trace_declared, message_slowdown, SLOWDOWN, FROM_0, OPTIONAL),
    FIELD(mist_trace_declared, residual_frac, FRAC_FROM_0),
    FIELD(mist_trace_declared, device, OBJECT(link)),
    FIELD(mist_trace_declared, node, OBJECT(link)),
    FIELD(mist_trace_declared, host, OBJECT(link)),
    END,
};

const struct mist_json_field mist_cluster_fields[] = {
    OTHER("format"),
    FIELD(mist_cluster, name, TEXT),
    FIELD(mist_cluster, backend, BACKEND),
    FIELD(mist_cluster, date, TEXT, OPTIONAL),
    FIELD(mist_cluster, how_measured, TEXT, OPTIONAL),
    FIELD(mist_cluster, nodes, WHOLE, ABOVE_0),
    FIELD(mist_cluster, devices_per_node, WHOLE, ABOVE_0),
    FIELD(mist_cluster, device_memory_bytes, MEMORY, ABOVE_0),
    FIELD(mist_cluster, host_memory_bytes_per_node, MEMORY, FROM_0, OPTIONAL),
    FIELD(mist_cluster, device_threads, WHOLE, FROM_0, OPTIONAL),
    OTHER("peak_flop_per_s"),
    FIELD(mist_cluster, memory_bytes_per_s, RATE, ABOVE_0),
    FIELD(mist_cluster, launch_us, TIME_US, FROM_0, OPTIONAL),
    FIELD(mist_cluster, runtime_memory_bytes, WHOLE, FROM_0, OPTIONAL),
    OTHER("interruption_frac"), /* of old sets: not read */
    FIELD(mist_cluster, drift_frac, NUMBER, FROM_0, OPTIONAL),
    FIELD(mist_cluster, skew, ALWAYS(skew)),
    FIELD(mist_cluster, streams_take_turns, BOOL, OPTIONAL),
    FIELD(mist_cluster, probe_us, TIME_US, FROM_0, OPTIONAL),
    OTHER("libraries"),
    OTHER("rows"),
    FIELD(mist_cluster, curve, OBJECT(curve)),
    FIELD(mist_cluster, declared, ALWAYS(declared)),
    END,
};
