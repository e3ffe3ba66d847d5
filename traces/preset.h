/*
 * Clusters by name, for machines that nobody has profiled:
 *
 *     h100-sxm:8x8,nic=8x400Gb/s
 *
 * A preset is data, in preset_table.c: what data sheets say of a device and of the node it
 * usually stands in. It becomes an ordinary trace set without rows, so that all who read
 * trace sets read it: operators are priced by its curve, messages by its declared links
 * (struct mist_trace_curve and mist_trace_declared), and rows that are measured or
 * imported later replace these prices one by one.
 *
 *     CLUSTER = NAME [":" [NODES "x"] DEVICES] {"," KEY "=" VALUE}
 *
 *     :64, :8x8            devices in all, in whole nodes, or nodes and devices of each;
 *                          without: one usual node
 *     nic=8x400Gb/s@5us    network adapters of a node, their rate (1x where no number
 *                          stands in front), latency of a step
 *     link=300GB/s@4us     between devices of a node: rate of one device one way
 *     pcie=25GB/s@10us     between a device and its host, one way
 *     host=100GB/s         between all devices of a node and the host, one way
 *     memory=40GiB         of a device
 *     memory-rate=2.4TB/s  of a device's own memory
 *     power=500W           that a device may draw, if less than its data sheet says
 *     host-memory=1TiB     of a node
 *     host-adamw=1.4G/s    parameters that its processors update, which no preset knows
 *
 * Rates are those of data sheets; of what is reached, preset_table.h knows a share.
 */
#ifndef MIST_TRACES_PRESET_H
#define MIST_TRACES_PRESET_H

#include "traces/preset_table.h"
#include "traces/trace_set.h"

#include <stdbool.h>
#include <stddef.h>

#define MIST_PRESET_MAX_DEVICES_PER_NODE 16
#define MIST_PRESET_MAX_NODES            131072

/*
 * Makes the set that a text describes. set is initialised by this call whatever the
 * result, and empty unless MIST_OK. MIST_ERR_INPUT: an unknown name (the message names
 * the nearest first), a topology that can't be, a malformed or repeated key.
 */
MIST_MUST_CHECK enum mist_status
mist_preset_parse(struct mist_trace_set *set, const char *text, struct mist_err *err);

/* What a process takes on a preset's device: NCCL has no buffers where there is one device. */
int64_t mist_preset_runtime_bytes(const struct mist_cluster *cluster);

/*
 * Opens what --cluster names: a folder (a path with a '/', or a directory that is there)
 * or a preset. Like mist_trace_set_load() and mist_preset_parse().
 */
MIST_MUST_CHECK enum mist_status
mist_trace_set_open(struct mist_trace_set *set, const char *name, struct mist_err *err);

/* A preset's name for other nodes or devices of each: "h100-sxm:2x8,memory=40GiB" of
 * "h100-sxm,memory=40GiB". False: it does not fit into size bytes. */
MIST_MUST_CHECK bool mist_preset_resized_name(char *out, size_t size, const char *name,
                                              int nodes, int devices_per_node);

/* Whether name is a folder for mist_trace_set_open(). */
bool mist_trace_set_is_folder(const char *name);

#endif
