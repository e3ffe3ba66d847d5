/* Looks for a measured message in a trace set. */
#ifndef MIST_TESTS_FIND_LINK_H
#define MIST_TESTS_FIND_LINK_H

#include "traces/trace_set.h"

/* NULL: there is none. */
static inline const struct mist_link_row *find_link(const struct mist_trace_set *set,
                                                    enum mist_link_operation operation,
                                                    int nodes, int ranks_per_node,
                                                    int concurrent_groups, int64_t bytes)
{
    for (size_t i = 0; i < set->n_links; i++) {
        const struct mist_link_row *row = &set->links[i];
        if (row->operation == operation && row->nodes == nodes &&
            row->ranks_per_node == ranks_per_node &&
            row->concurrent_groups == concurrent_groups && row->bytes == bytes)
            return row;
    }
    return NULL;
}

#endif
