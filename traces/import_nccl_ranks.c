/* Ranks of a log of nccl-tests. See import_nccl_ranks.h. */
#include "traces/import_nccl_ranks.h"

#include "core/memory.h"
#include "core/order.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The place of a host's name, which becomes the last one if it is new. Ranks come host by
 * host, so the search begins with the last. */
static bool find_host(struct mist_import_nccl_ranks *ranks, const char *host, size_t *out)
{
    for (size_t i = ranks->n_hosts; i-- > 0;)
        if (strcmp(ranks->hosts[i], host) == 0) {
            *out = i;
            return true;
        }
    if (!MIST_RESERVE(ranks->hosts, ranks->hosts_capacity, ranks->n_hosts + 1))
        return false;
    *out = ranks->n_hosts;
    ranks->hosts[ranks->n_hosts++] = host;
    return true;
}

enum mist_status mist_import_nccl_ranks_add(struct mist_import_nccl_ranks *ranks,
                                            const char *host, int64_t group,
                                            struct mist_err *err)
{
    size_t i_host;

    if (!find_host(ranks, host, &i_host) ||
        !MIST_RESERVE(ranks->places, ranks->places_capacity, ranks->n_places + 1))
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for the log's ranks");
    for (size_t i = ranks->n_places; i-- > 0;)
        if (ranks->places[i].i_host == i_host && ranks->places[i].group == group) {
            ranks->places[i].n_ranks++;
            return MIST_OK;
        }
    ranks->places[ranks->n_places++] = (struct mist_import_nccl_place){group, i_host, 1};
    return MIST_OK;
}

MIST_COMPARATOR(by_group_and_host, struct mist_import_nccl_place, group, i_host)

/* The groups on a host. */
struct guests {
    size_t first; /* place of the first group that is on it */
    int n;        /* 0: none yet */
};

/*
 * Counts the group of n places from `begin` at its hosts. Groups share all of their hosts
 * or none: as they have equally many, it is enough that the same group was the first at
 * all of them, or none was.
 */
static bool count_group(const struct mist_import_nccl_place *places, size_t begin,
                        size_t n, struct guests *guests)
{
    const struct guests *at_first = &guests[places[begin].i_host];
    bool is_first = at_first->n == 0;
    size_t first = at_first->first;

    for (size_t i = begin; i < begin + n; i++) {
        struct guests *at = &guests[places[i].i_host];
        if (is_first ? at->n > 0 : at->n == 0 || at->first != first)
            return false;
        if (is_first)
            at->first = begin;
        at->n++;
    }
    return true;
}

/* What is wrong with the groups, NULL: nothing, and *out is filled. guests [n_hosts] are
 * zeroed. */
static const char *compare_groups(const struct mist_import_nccl_ranks *ranks,
                                  struct guests *guests,
                                  struct mist_import_nccl_shape *out)
{
    const struct mist_import_nccl_place *places = ranks->places;
    size_t n_first = 0, n;

    while (n_first < ranks->n_places && places[n_first].group == places[0].group)
        n_first++;
    for (size_t begin = 0; begin < ranks->n_places; begin += n) {
        for (n = 0; begin + n < ranks->n_places &&
                    places[begin + n].group == places[begin].group;
             n++)
            if (places[begin + n].n_ranks != places[begin].n_ranks)
                return "the hosts have unequal numbers of ranks, expected equal ones";
        if (n != n_first || places[begin].n_ranks != places[0].n_ranks)
            return "the run was split into groups of unequal shape, expected as many "
                   "hosts and ranks on each in all";
        if (!count_group(places, begin, n, guests))
            return "the run was split into groups that share only some of their hosts, "
                   "expected all or none";
    }
    for (size_t i = 0; i < ranks->n_hosts; i++)
        if (guests[i].n != guests[0].n)
            return "the run was split into unequal numbers of groups on its hosts, "
                   "expected equal ones";
    *out = (struct mist_import_nccl_shape){(int)n_first, places[0].n_ranks, guests[0].n};
    return NULL;
}

enum mist_status mist_import_nccl_ranks_shape(struct mist_import_nccl_ranks *ranks,
                                              struct mist_import_nccl_shape *out,
                                              struct mist_err *err)
{
    if (ranks->n_places == 0)
        return mist_err_set(
            err, MIST_ERR_INPUT,
            "the log lists no ranks, expected a line \"# Rank 0 Group 0 Pid .. "
            "on HOST device ..\" of each before the table");
    struct guests *guests = calloc(ranks->n_hosts, sizeof *guests);
    if (!guests)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for the log's ranks");
    qsort(ranks->places, ranks->n_places, sizeof *ranks->places, by_group_and_host);
    const char *wrong = compare_groups(ranks, guests, out);
    free(guests);
    return wrong ? mist_err_set(err, MIST_ERR_INPUT, "%s", wrong) : MIST_OK;
}

void mist_import_nccl_ranks_fini(struct mist_import_nccl_ranks *ranks)
{
    free(ranks->hosts);
    free(ranks->places);
    *ranks = (struct mist_import_nccl_ranks){0};
}
