/*
 * Messages by the rate and the latency that are declared of their way. See
 * mist_cost_declared() in cost_internal.h.
 *
 * n nodes with r ranks each make a group of N = n r ranks; a ring moves (N-1)/N of a
 * gathered or scattered message through every rank, an all-reduce twice that:
 *
 *   rate      the slower of a device's link (r > 1; in rings the rate that it has while it
 *             receives, too, which is less through the host's bridges, and of two ranks
 *             that of sends, as a device's links may go to many others) and, between
 *             nodes, of the adapters that the group has: as many of a node's as go with r
 *             of its devices, one at least, all groups together no more than there are,
 *             and no more than the group's devices of a node bring to them
 *   latency   START and a step to the next rank for each of N-1 (all-reduce: twice),
 *             n-1 of them to another node; an all-reduce may take the tree instead, of
 *             2 (r-1) steps inside of a node and 2 log2(n) between nodes
 *
 * (what NCCL's tuning model says, with one protocol.) Where a switch sums, and may, the
 * ranks of a node send their message to it once, and only 2 (n-1)/n of it goes between
 * nodes.
 * Transfers take a step. Groups of a node that run at once don't share its links, but
 * copies between devices and host do: all devices of a node are taken to copy at once. Left
 * out: short messages, which NCCL sends in another way, 2 to 4 times as fast.
 */
#include "sim/cost/cost_internal.h"

#include <math.h>

/* Of a collective, until its first byte leaves. */
#define START_S 15e-6

/* A group that messages go through, with the rates it has. */
struct way {
    double nodes, ranks_per_node, ranks;
    double device_bytes_per_s; /* INFINITY: none is used */
    double node_bytes_per_s;
    double device_s, node_s; /* latency of a step */
    double switch_bytes_per_s;
};

static double node_rate(const struct mist_cluster *cluster, struct mist_group_shape group)
{
    const struct mist_trace_declared *declared = &cluster->declared;
    double share = (double)group.ranks_per_node / cluster->devices_per_node;

    share = fmax(share, 1.0 / declared->adapters);
    share = fmin(share, 1.0 / group.concurrent_groups);
    double rate = declared->node.bytes_per_s * share;
    double brought = group.ranks_per_node * declared->host.bytes_per_s;
    return brought > 0 ? fmin(rate, brought) : rate;
}

/* False: a part of the way is not declared. */
static bool find_way(const struct mist_cluster *cluster,
                     enum mist_link_operation operation, struct mist_group_shape group,
                     struct way *out)
{
    const struct mist_trace_declared *declared = &cluster->declared;
    bool is_inside = group.ranks_per_node > 1, is_between = group.nodes > 1;
    bool is_ring = operation != MIST_LINK_SEND_RECV && declared->ring_bytes_per_s > 0;
    double rate = is_ring ? declared->ring_bytes_per_s : declared->device.bytes_per_s;

    if (group.ranks_per_node == 2) /* a ring that is a pair */
        rate = fmin(rate, declared->device.bytes_per_s);

    *out = (struct way){
        .nodes = group.nodes,
        .ranks_per_node = group.ranks_per_node,
        .ranks = (double)group.nodes * group.ranks_per_node,
        .device_bytes_per_s = is_inside ? rate : INFINITY,
        .node_bytes_per_s = INFINITY,
        .device_s = declared->device.latency_us * 1e-6,
        .node_s = declared->node.latency_us * 1e-6,
        .switch_bytes_per_s = is_inside ? declared->switch_bytes_per_s : 0,
    };
    if (is_between && declared->node.bytes_per_s > 0)
        out->node_bytes_per_s = node_rate(cluster, group);
    return (!is_inside || declared->device.bytes_per_s > 0) &&
           (!is_between || declared->node.bytes_per_s > 0);
}

/* Steps of one way around the ring. */
static double ring_s(const struct way *way)
{
    return (way->nodes - 1) * way->node_s + (way->ranks - way->nodes) * way->device_s;
}

static double all_reduce_s(const struct way *way, double bytes)
{
    double tree_s = 2 * ((way->ranks_per_node - 1) * way->device_s +
                         ceil(log2(way->nodes)) * way->node_s);
    double moved = 2 * (way->ranks - 1) / way->ranks * bytes;
    double moving_s = moved / fmin(way->device_bytes_per_s, way->node_bytes_per_s);

    if (way->switch_bytes_per_s > 0)
        moving_s = fmin(moving_s, fmax(bytes / way->switch_bytes_per_s,
                                       2 * (way->nodes - 1) / way->nodes * bytes /
                                           way->node_bytes_per_s));
    return START_S + fmin(2 * ring_s(way), tree_s) + moving_s;
}

/* Of a device, while all of its node copy. */
static double copy_s(const struct mist_cluster *cluster, double bytes)
{
    const struct mist_trace_declared *declared = &cluster->declared;
    double share = declared->host_node_bytes_per_s / cluster->devices_per_node;
    double rate =
        share > 0 ? fmin(share, declared->host.bytes_per_s) : declared->host.bytes_per_s;

    return declared->host.latency_us * 1e-6 + bytes / rate;
}

static double message_s(const struct way *way, enum mist_link_operation operation,
                        double bytes)
{
    double rate = fmin(way->device_bytes_per_s, way->node_bytes_per_s);

    if (operation == MIST_LINK_ALL_REDUCE)
        return all_reduce_s(way, bytes);
    if (operation == MIST_LINK_SEND_RECV)
        return (way->nodes > 1 ? way->node_s : way->device_s) + bytes / rate;
    return START_S + ring_s(way) + (way->ranks - 1) / way->ranks * bytes / rate;
}

bool mist_cost_declared(const struct mist_cluster *cluster,
                        enum mist_link_operation operation, struct mist_group_shape group,
                        int64_t bytes, bool in_rings, struct mist_cost *out)
{
    const struct mist_declared_link *host = &cluster->declared.host;
    bool is_copy =
        operation == MIST_LINK_HOST_TO_DEVICE || operation == MIST_LINK_DEVICE_TO_HOST;
    struct way way;
    double time_s;

    if (is_copy && host->bytes_per_s <= 0)
        return false;
    if (!is_copy && !find_way(cluster, operation, group, &way))
        return false;
    if (in_rings)
        way.switch_bytes_per_s = 0;
    time_s = is_copy ? copy_s(cluster, (double)bytes)
                     : message_s(&way, operation, (double)bytes);
    *out = (struct mist_cost){.time_s = time_s,
                              .extrapolated_s = time_s,
                              .preset_s = time_s,
                              .doubt_s = cluster->declared.residual_frac * time_s};
    return true;
}
