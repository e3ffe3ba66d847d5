/* A made-up H100-like cluster of nodes of 8, without measured kernels. */
#ifndef MIST_TESTS_BENCH_MADE_UP_CLUSTER_H
#define MIST_TESTS_BENCH_MADE_UP_CLUSTER_H

#include "tests/bench/bench.h"

#include "traces/trace_set.h"

/* Rings: 400 GB/s between the devices of a node, 50 GB/s per device between nodes; 50
 * GB/s to the host. */
static inline double made_up_time_us(enum mist_link_operation operation, int nodes,
                                     int per_node, double bytes)
{
    double per_us = nodes > 1 ? 5e4 : 4e5, n = (double)nodes * per_node;

    if (operation == MIST_LINK_HOST_TO_DEVICE || operation == MIST_LINK_DEVICE_TO_HOST)
        return 8 + bytes / 5e4;
    if (operation == MIST_LINK_SEND_RECV)
        return 10 + bytes / per_us;
    return 10 + 2 * n +
           (operation == MIST_LINK_ALL_REDUCE ? 2 : 1) * bytes * (n - 1) / n / per_us;
}

static inline void made_up_cluster_init(struct mist_trace_set *traces, int32_t n_nodes)
{
    struct mist_err err;

    mist_trace_set_init(traces);
    snprintf(traces->cluster.name, sizeof traces->cluster.name, "bench");
    traces->cluster.backend = MIST_TRACE_DATASHEET;
    traces->cluster.nodes = n_nodes;
    traces->cluster.devices_per_node = 8;
    traces->cluster.device_memory_bytes = INT64_C(80) << 30;
    traces->cluster.host_memory_bytes_per_node = INT64_C(1) << 40;
    traces->cluster.peak_flop_per_s[MIST_TRACE_BF16] = 9e14;
    traces->cluster.peak_flop_per_s[MIST_TRACE_FP32] = 6e13;
    traces->cluster.memory_bytes_per_s = 3.3e12;
    for (int operation = 0; operation < MIST_N_LINK_OPERATIONS; operation++)
        for (int nodes = 1; nodes <= n_nodes; nodes *= 2)
            for (int per_node = 1; per_node <= 8; per_node *= 2)
                for (int k = 0; k < 3; k++) {
                    struct mist_link_row row = {
                        .operation = (enum mist_link_operation)operation,
                        .nodes = nodes,
                        .ranks_per_node = per_node,
                        .concurrent_groups = 1,
                        .bytes = k == 0   ? 1 << 12
                                 : k == 1 ? 1 << 20
                                          : 1 << 30,
                        .repetitions = 10,
                    };
                    row.time_us = made_up_time_us(row.operation, nodes, per_node,
                                                  (double)row.bytes);
                    must(mist_trace_set_add_link(traces, &row, &err), &err);
                }
}

#endif
