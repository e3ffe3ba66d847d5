/*
 * The ranks that a log of nccl-tests lists, by host and group, and the shape of the groups.
 *
 * A run may be split (NCCL_TESTS_SPLIT, NCCL_TESTS_SPLIT_MASK): its ranks form several
 * groups, which all communicate at the same time. Ranks of old versions, which name no
 * group, are all in group 0.
 */
#ifndef MIST_TRACES_IMPORT_NCCL_RANKS_H
#define MIST_TRACES_IMPORT_NCCL_RANKS_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

/* Zero-initialise; mist_import_nccl_ranks_fini() frees. */
struct mist_import_nccl_ranks {
    const char **hosts; /* [n_hosts] distinct names, borrowed from the log's text */
    size_t n_hosts, hosts_capacity;
    struct mist_import_nccl_place {
        int64_t group;
        size_t i_host;
        int n_ranks; /* of this group on this host */
    } * places;      /* [n_places] */
    size_t n_places, places_capacity;
};

/* What all groups have in common. */
struct mist_import_nccl_shape {
    int nodes;             /* of one group */
    int ranks_per_node;    /* of one group */
    int concurrent_groups; /* on the same nodes, itself included */
};

/* Counts a rank. host is borrowed. MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status
mist_import_nccl_ranks_add(struct mist_import_nccl_ranks *ranks, const char *host,
                           int64_t group, struct mist_err *err);

/*
 * The shape of the groups; the places are sorted by it.
 *
 * MIST_ERR_INPUT with a message without a place: no rank; groups that differ in shape, have
 * unequal numbers of ranks on their hosts, or share only some of their hosts with others.
 * MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status
mist_import_nccl_ranks_shape(struct mist_import_nccl_ranks *ranks,
                             struct mist_import_nccl_shape *out, struct mist_err *err);

void mist_import_nccl_ranks_fini(struct mist_import_nccl_ranks *ranks);

#endif
