/*
 * Three made-up machines, as trace sets: two whose channels disturb one another mildly
 * and one where they share the cores. Included behind cmocka.h.
 */
#ifndef MIST_TESTS_PROP_MADE_UP_MACHINES_H
#define MIST_TESTS_PROP_MADE_UP_MACHINES_H

#include "sim/cost/cost_model.h"
#include "sim/cost/interference.h"
#include "traces/trace_set.h"

#include <stdio.h> /* snprintf */

/* A machine, as its trace set tells. */
struct machine {
    const char *name;
    double alpha_us, us_per_byte;                  /* of a link */
    double slow_compute, slow_transfer, slow_copy; /* beside another channel */
    double us_per_element;                         /* of AdamW on the host */
};

static const struct machine machines[] = {
    {"mild interference, fast links", 15, 1e-4, 1.05, 1.3, 1.1, 3e-3},
    {"mild interference, slow links", 30, 2e-3, 1.15, 1.2, 1.2, 5e-4},
    {"heavy interference, slow links", 30, 2e-3, 2.0, 2.0, 1.8, 1e-2},
};

enum { N_MACHINES = sizeof machines / sizeof *machines };

static void add_links(struct mist_trace_set *set, const struct machine *machine)
{
    static const enum mist_link_operation operations[] = {
        MIST_LINK_ALL_REDUCE, MIST_LINK_ALL_GATHER,     MIST_LINK_REDUCE_SCATTER,
        MIST_LINK_SEND_RECV,  MIST_LINK_HOST_TO_DEVICE, MIST_LINK_DEVICE_TO_HOST};

    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        for (int ranks = 1; ranks <= 4; ranks *= 2)
            for (int64_t bytes = 1024; bytes <= (int64_t)1 << 30; bytes *= 8) {
                double rounds = operations[i] == MIST_LINK_ALL_REDUCE ? 2. : 1.;
                double share = operations[i] <= MIST_LINK_REDUCE_SCATTER
                                   ? (double)(ranks - 1) / ranks
                                   : 1.;
                struct mist_link_row row = {
                    .operation = operations[i],
                    .nodes = 1,
                    .ranks_per_node = ranks,
                    .concurrent_groups = 1,
                    .bytes = bytes,
                    .time_us = rounds * (machine->alpha_us +
                                         share * (double)bytes * machine->us_per_byte),
                    .repetitions = 10,
                };
                assert_int_equal(mist_trace_set_add_link(set, &row, NULL), MIST_OK);
            }
}

/* What bundles of two channels take; the cost model finds the factors back. */
static void add_interference(struct mist_trace_set *set, const struct machine *machine)
{
    const double slow[MIST_N_CHANNELS] = {machine->slow_compute, machine->slow_transfer,
                                          machine->slow_copy, machine->slow_copy};
    struct mist_interference truth;

    mist_interference_init(&truth);
    for (int a = 0; a < MIST_N_CHANNELS; a++)
        for (int b = a + 1; b < MIST_N_CHANNELS; b++) {
            unsigned channels = 1u << a | 1u << b;
            truth.slowdown[channels][a] = slow[a];
            truth.slowdown[channels][b] = slow[b];
            for (int i = 1; i <= 12; i++) {
                struct mist_interference_row row = {
                    .channels = channels,
                    .nodes = 1,
                    .ranks_per_node = 2,
                    .repetitions = 10,
                };
                row.alone_us[a] = 1000;
                row.alone_us[b] = 160. * i;
                row.together_us = mist_interference_bundle_s(&truth, row.alone_us);
                assert_int_equal(mist_trace_set_add_interference(set, &row, NULL),
                                 MIST_OK);
            }
        }
}

/* AdamW on the host, a third as fast as on the device and faster. */
static void add_host(struct mist_trace_set *set, const struct machine *machine)
{
    for (int dtype = 0; dtype < 2; dtype++)
        for (int64_t n = 1024; n <= (int64_t)1 << 30; n *= 8) {
            struct mist_kernel_row row = {
                .op = "adamw_host",
                .dtype = dtype ? MIST_TRACE_BF16 : MIST_TRACE_FP32,
                .phase = MIST_PHASE_OPTIMIZER,
                .time_us = 5 + (double)n * machine->us_per_element,
                .repetitions = 10,
            };
            char shape[32];
            snprintf(shape, sizeof shape, "elements=%lld", (long long)n);
            assert_int_equal(mist_shape_parse(shape, &row.shape, NULL), MIST_OK);
            assert_int_equal(mist_trace_set_add_kernel(set, &row, NULL), MIST_OK);
        }
}

static void make_machine(struct mist_trace_set *set, const struct machine *machine)
{
    mist_trace_set_init(set);
    set->cluster = (struct mist_cluster){
        .name = "made up",
        .backend = MIST_TRACE_DATASHEET,
        .nodes = 1,
        .devices_per_node = 64,
        .device_memory_bytes = (int64_t)1 << 36,
        .host_memory_bytes_per_node = (int64_t)1 << 38,
        .peak_flop_per_s = {[MIST_TRACE_FP32] = 2e11, [MIST_TRACE_BF16] = 4e11},
        .memory_bytes_per_s = 3e10,
        .launch_us = 3,
    };
    add_links(set, machine);
    add_interference(set, machine);
    add_host(set, machine);
}

/* What things cost on a machine; its trace set is the caller's to keep. */
static inline struct mist_cost_model *open_machine(struct mist_trace_set *set,
                                                   const struct machine *machine)
{
    struct mist_cost_model *costs;
    struct mist_err err;

    make_machine(set, machine);
    must(mist_cost_model_new(set, &costs, &err), &err);
    return costs;
}

static inline void close_machine(struct mist_trace_set *set,
                                 struct mist_cost_model *costs)
{
    mist_cost_model_free(costs);
    mist_trace_set_fini(set);
}

#endif
