/* A machine on which every message takes the same time, for tests that want
 * any prices. */
#ifndef MIST_TESTS_FLAT_CLUSTER_H
#define MIST_TESTS_FLAT_CLUSTER_H

#include "tests/unit/test.h"

#include "traces/trace_set.h"

/* Fills traces, which the caller ends: one node, a row for each operation of links. */
static inline void flat_cluster_init(struct mist_trace_set *traces, int devices_per_node)
{
    mist_trace_set_init(traces);
    traces->cluster = (struct mist_cluster){.name = "flat",
                                            .nodes = 1,
                                            .devices_per_node = devices_per_node,
                                            .memory_bytes_per_s = 1e9,
                                            .peak_flop_per_s = {1e9}};
    for (int op = MIST_LINK_ALL_REDUCE; op <= MIST_LINK_DEVICE_TO_HOST; op++) {
        struct mist_link_row row = {.operation = (enum mist_link_operation)op,
                                    .nodes = 1,
                                    .ranks_per_node = 2,
                                    .concurrent_groups = 1,
                                    .bytes = 1024,
                                    .time_us = 1,
                                    .repetitions = 1};
        assert_int_equal(mist_trace_set_add_link(traces, &row, NULL), MIST_OK);
    }
}

#endif
