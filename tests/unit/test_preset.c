/*
 * Presets: their text, the trace set that becomes of it, and what operators and messages
 * cost by it, against closed forms worked out by hand. Where the public tables are at hand
 * that the constants were fitted to, their residuals are taken again, by code of its own.
 */
#include "tests/unit/test.h"

#include "core/random.h"
#include "core/text_distance.h"
#include "sim/cost/cost_model.h"
#include "tests/unit/reference_path.h"
#include "tests/unit/scratch.h"
#include "traces/preset.h"

#include <math.h>

#define equals(value, expected) near_to(value, expected, 1e-9)

/* ------------------------------------------------------------------------------ text */

static void parse(const char *text, struct mist_trace_set *set)
{
    struct mist_err err = {0};

    must(mist_preset_parse(set, text, &err), &err);
    assert_int_equal(set->cluster.backend, MIST_TRACE_DATASHEET);
    assert_false(set->has_kernels);
    assert_int_equal(set->n_kernels + set->n_links, 0);
}

TEST(test_topologies)
{
    static const struct {
        const char *text;
        int nodes, devices;
    } cases[] = {
        {"h100-sxm", 1, 8},           {"h100", 1, 8},
        {"h100-sxm:4", 1, 4},         {"h100-sxm:64", 8, 8},
        {"h100-sxm:8x8", 8, 8},       {"rtx4090:1x2", 1, 2},
        {"a100-80:128x8", 128, 8},    {"l4:3x16", 3, 16},
        {"b200:2x1,nic=1Tb/s", 2, 1}, {"h100-sxm,nic=4Gb/s", 1, 8},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_trace_set set;
        parse(cases[i].text, &set);
        assert_int_equal(set.cluster.nodes, cases[i].nodes);
        assert_int_equal(set.cluster.devices_per_node, cases[i].devices);
        mist_trace_set_fini(&set);
    }
}

/* NCCL connects devices; one alone has the context. */
TEST(test_runtime_memory)
{
    static const struct {
        const char *text;
        int64_t mib;
    } cases[] = {{"a100-80:1x1", 512},
                 {"a100-80:1x2", 1536},
                 {"a100-80:2x1", 1536},
                 {"l4:1", 512}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_trace_set set;
        parse(cases[i].text, &set);
        assert_int_equal(set.cluster.runtime_memory_bytes, cases[i].mib << 20);
        mist_trace_set_fini(&set);
    }
}

/* Rates are the data sheet's, times the share that is reached. */
TEST(test_keys)
{
    struct mist_trace_set set;
    const struct mist_trace_declared *declared = &set.cluster.declared;

    parse("h100-sxm:2x4,nic=4x200Gb/s@20us,link=100GB/s@3us,pcie=10GB/s,memory=40GiB,"
          "host-memory=1TiB,host=50GB/s,memory-rate=2.4TB/s",
          &set);
    equals(declared->node.bytes_per_s, 4 * 25e9 * mist_preset_shares.adapter_frac);
    equals(declared->node.latency_us, 20);
    assert_int_equal(declared->adapters, 4);
    equals(declared->device.bytes_per_s, 78e9);
    equals(declared->device.latency_us, 3);
    equals(declared->switch_bytes_per_s, 56e9);
    equals(declared->host.bytes_per_s, 10e9 * mist_preset_shares.host_frac);
    equals(declared->host.latency_us, mist_preset_shares.host_latency_us);
    equals(declared->host_node_bytes_per_s, 50e9 * mist_preset_shares.host_frac);
    equals(set.cluster.memory_bytes_per_s, 2.4e12);
    assert_int_equal(set.cluster.device_memory_bytes, (int64_t)40 << 30);
    assert_int_equal(set.cluster.host_memory_bytes_per_node, (int64_t)1 << 40);
    mist_trace_set_fini(&set);
}

/* Products go slower under a lower limit of power, as torchao has it of H100 with 500 W
 * (0.60 of the peak) beside 700 W (0.73); nothing else does. */
TEST(test_power)
{
    struct mist_trace_set full, set;
    double before = 1;

    parse("h100-sxm", &full);
    for (int power_w = 700; power_w >= 200; power_w -= 100) {
        char text[64];
        snprintf(text, sizeof text, "h100-sxm:1x8,power=%dW", power_w);
        parse(text, &set);
        double frac = set.cluster.curve.product_frac / full.cluster.curve.product_frac;
        assert_true(frac < before || power_w == 700);
        assert_true(frac > power_w / 700.0 || power_w == 700);
        if (power_w == 500 && fabs(frac / (0.60 / 0.73) - 1) > 0.01)
            fail_msg("%.3f", frac);
        equals(set.cluster.memory_bytes_per_s, full.cluster.memory_bytes_per_s);
        equals(set.cluster.peak_flop_per_s[MIST_TRACE_BF16],
               full.cluster.peak_flop_per_s[MIST_TRACE_BF16]);
        before = frac;
        mist_trace_set_fini(&set);
    }
    mist_trace_set_fini(&full);
}

TEST(test_refusals)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"h100-smx:8x8",
         "no preset has that name; presets, the nearest first: h100-sxm,"},
        {"a100-8", "the nearest first: a100-80, a100-40,"},
        {"zzz", "there is no such folder, and no preset"},
        {"", "expected NAME:NODESxDEVICES"},
        {"h100-sxm,", "expected NAME:NODESxDEVICES"},
        {"h100-sxm,,nic=4Gb/s", "expected NAME:NODESxDEVICES"},
        {"h100-sxm:", "expected nodes and the devices of each, such as h100-sxm:8x8"},
        {"h100-sxm:0x8", "expected nodes and the devices of each"},
        {"h100-sxm:8x", "expected nodes and the devices of each"},
        {"h100-sxm:8x8x8", "expected nodes and the devices of each"},
        {"h100-sxm:-8", "expected nodes and the devices of each"},
        {"h100-sxm:99999999999999999999", "expected nodes and the devices of each"},
        {"h100-sxm:63", "63 devices are no whole nodes of 8; 56 and 64 are"},
        {"h100-sxm:1x63", "nodes of 63 devices; a node has at most 16"},
        {"h100-sxm:8x8,nic", "expected NAME:NODESxDEVICES"},
        {"h100-sxm:8x8,nic=", "expected NAME:NODESxDEVICES"},
        {"h100-sxm:8x8,nics=8x400Gb/s", "unknown key nics; there are nic, link, pcie"},
        {"h100-sxm:8x8,nic=400", "nic=400: "},
        {"h100-sxm:8x8,nic=400Gb", "such as 400Gb/s (bits) or 25GB/s"},
        {"h100-sxm:8x8,nic=8x", "nic=: "},
        {"h100-sxm:8x8,nic=0x400Gb/s", "expected 1 to 64 adapters"},
        {"h100-sxm:8x8,nic=800x400Gb/s", "expected 1 to 64 adapters"},
        {"h100-sxm:8x8,nic=8x400b/s", "can't be meant; expected a rate of 1MB/s"},
        {"h100-sxm:8x8,nic=8x400Gb/s@5", "expected a time such as"},
        {"h100-sxm:8x8,nic=8x400Gb/s@5min", "can't be meant; expected a latency"},
        {"h100-sxm:8x8,nic=1Gb/s,nic=1Gb/s", "nic= comes twice"},
        {"h100-sxm:8x8,memory=80", "80 bytes, which can't be meant; a unit stands behind "
                                   "the number: 80GiB"},
        {"h100-sxm:8x8,host-memory=2TBit", "host-memory=2TBit: "},
        {"h100-sxm:8x8,host=100GB/s@5us",
         "expected a rate alone; nic, link and pcie have a latency"},
        {"h100-sxm:8x8,host=100", "host=100: "},
        {"h100-sxm:8x8,power=500", "power=500: expected 175W to 700W, which h100-sxm"},
        {"h100-sxm:8x8,power=0.5kW", "power=0.5kW: expected 175W"},
        {"h100-sxm:8x8,power=800W", "power=800W: expected 175W to 700W"},
        {"h100-sxm:8x8,power=5W", "power=5W: expected 175W to 700W"},
        {"h100-sxm:8x8,power=W", "power=W: expected 175W to 700W"},
        {"h100-sxm:8x8,host-adamw=1.4G", "host-adamw=1.4G: expected 0.1M/s to 1000G/s"},
        {"h100-sxm:8x8,host-adamw=1.4/s", "host-adamw=1.4/s: expected 0.1M/s"},
        {"h100-sxm:8x8,host-adamw=1.4GB/s", "host-adamw=1.4GB/s: expected 0.1M/s"},
        {"h100-sxm:8x8,host-adamw=G/s", "host-adamw=G/s: expected 0.1M/s"},
        {"h100-sxm:8x8,host-adamw=5T/s", "host-adamw=5T/s: expected 0.1M/s"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_trace_set set;
        struct mist_err err = {0};
        assert_int_equal(mist_preset_parse(&set, cases[i].text, &err), MIST_ERR_INPUT);
        if (!strstr(err.message, cases[i].says))
            fail_msg("%s: %s, expected %s", cases[i].text, err.message, cases[i].says);
        assert_int_equal(set.cluster.nodes, 0);
    }
}

TEST(test_distance)
{
    assert_int_equal(mist_text_distance("", 0, "abc", 3), 3);
    assert_int_equal(mist_text_distance("h100", 4, "h200", 4), 1);
    assert_int_equal(mist_text_distance("kitten", 6, "sitting", 7), 3);
}

/* Every preset: figures that a data sheet can have, told apart by name, with sources. */
TEST(test_table)
{
    const struct mist_preset *preset;
    int n = 0;

    for (; (preset = mist_preset_get(n)); n++) {
        struct mist_trace_set set;
        parse(preset->name, &set);
        assert_non_null(strstr(set.cluster.how_measured, "preset, nothing measured"));
        assert_non_null(strstr(set.cluster.how_measured, preset->source));
        assert_true(strlen(set.cluster.how_measured) + 1 <
                    sizeof set.cluster.how_measured);
        assert_true(preset->product_frac > 0.4 && preset->product_frac < 1);
        assert_true(preset->sustained_frac > 0.5 && preset->sustained_frac <= 1);
        assert_true(preset->power_w >= 70 && preset->power_w <= 1500);
        assert_true(strlen(preset->sustained_source) > 3);
        assert_true(set.cluster.curve.residual_frac >= 0.05);
        mist_trace_set_fini(&set);
        for (int i = 0; i < n; i++)
            assert_string_not_equal(preset->name, mist_preset_get(i)->name);
    }
    assert_true(n >= 10);
}

/* What makes prices is written, read and part of the fingerprint. */
TEST(test_saved)
{
    struct scratch scratch;
    struct mist_trace_set set, read;
    struct mist_err err = {0};

    scratch_init(&scratch);
    parse("h100-sxm:2x8,host=100GB/s,host-adamw=1.5G/s", &set);
    equals(set.cluster.curve.host_adamw_elements_per_s, 1.5e9);
    must(mist_trace_set_save(&set, scratch_path(&scratch, "set"), false, &err), &err);
    must(mist_trace_set_open(&read, scratch.path, &err), &err);
    assert_memory_equal(&set.cluster.curve, &read.cluster.curve,
                        sizeof set.cluster.curve);
    assert_memory_equal(&set.cluster.declared, &read.cluster.declared,
                        sizeof set.cluster.declared);
    uint64_t fingerprint = mist_trace_set_fingerprint(&set);
    assert_int_equal(fingerprint, mist_trace_set_fingerprint(&read));
    double *const values[] = {&read.cluster.curve.product_frac,
                              &read.cluster.curve.host_adamw_elements_per_s,
                              &read.cluster.declared.node.bytes_per_s,
                              &read.cluster.declared.ring_bytes_per_s,
                              &read.cluster.declared.host_node_bytes_per_s,
                              &read.cluster.declared.compute_slowdown,
                              &read.cluster.declared.message_slowdown,
                              &read.cluster.declared.switch_bytes_per_s};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        *values[i] *= 1.01;
        assert_int_not_equal(fingerprint, mist_trace_set_fingerprint(&read));
        *values[i] /= 1.01;
    }
    mist_trace_set_fini(&read);
    mist_trace_set_fini(&set);
    char command[256];
    snprintf(command, sizeof command, "rm -r %s", scratch.folder);
    assert_int_equal(system(command), 0);
}

/* --------------------------------------------------------------------------- messages */

/* Nodes of 8 with round figures. */
static struct mist_cluster declared_cluster(void)
{
    return (struct mist_cluster){
        .name = "round",
        .backend = MIST_TRACE_DATASHEET,
        .nodes = 16,
        .devices_per_node = 8,
        .device_memory_bytes = 1 << 30,
        .memory_bytes_per_s = 1e12,
        .peak_flop_per_s = {[MIST_TRACE_BF16] = 1e14, [MIST_TRACE_FP32] = 1e13},
        .curve = {.processors = 100,
                  .product_frac = 0.8,
                  .memory_frac = 0.5,
                  .residual_frac = 0.1},
        .declared = {.device = {100e9, 2},
                     .node = {80e9, 10},
                     .host = {20e9, 8},
                     .adapters = 4,
                     .residual_frac = 0.2},
    };
}

static struct mist_cost_model *model_of(const struct mist_trace_set *set)
{
    struct mist_cost_model *model = NULL;
    struct mist_err err = {0};

    must(mist_cost_model_new(set, &model, &err), &err);
    return model;
}

static struct mist_cost link_price(const struct mist_cost_model *model,
                                   enum mist_link_operation operation, int nodes,
                                   int ranks, int groups, int64_t bytes)
{
    struct mist_cost cost;
    struct mist_err err = {0};

    must(mist_cost_link(model, operation, (struct mist_group_shape){nodes, ranks, groups},
                        bytes, &cost, &err),
         &err);
    equals(cost.preset_s, cost.time_s);
    equals(cost.extrapolated_s, cost.time_s);
    return cost;
}

/* But over PCIe. */
static struct mist_cost link_cost(const struct mist_cost_model *model,
                                  enum mist_link_operation operation, int nodes,
                                  int ranks, int groups, int64_t bytes)
{
    struct mist_cost cost = link_price(model, operation, nodes, ranks, groups, bytes);

    equals(cost.doubt_s, 0.2 * cost.time_s);
    return cost;
}

TEST(test_links_by_hand)
{
    const double start_s = 15e-6; /* of a collective */
    static const struct {
        enum mist_link_operation operation;
        int nodes, ranks, groups;
        double latency_s, moved, bytes_per_s; /* moved: share of the message */
    } cases[] = {
        /* rings of 8 at 100 GB/s, 2 us a step; an all-reduce as a tree of the same steps */
        {MIST_LINK_ALL_GATHER, 1, 8, 1, 7 * 2e-6, 7.0 / 8, 100e9},
        {MIST_LINK_REDUCE_SCATTER, 1, 8, 1, 7 * 2e-6, 7.0 / 8, 100e9},
        {MIST_LINK_ALL_REDUCE, 1, 8, 1, 14 * 2e-6, 14.0 / 8, 100e9},
        {MIST_LINK_ALL_REDUCE, 1, 2, 4, 2 * 2e-6, 1, 100e9}, /* groups don't share */
        /* between nodes: 4 adapters of 20 GB/s; one rank of 8 goes with half of one and
         * has it alone; 8 such groups share four */
        {MIST_LINK_ALL_GATHER, 4, 1, 1, 3 * 10e-6, 3.0 / 4, 20e9},
        {MIST_LINK_ALL_GATHER, 4, 1, 8, 3 * 10e-6, 3.0 / 4, 10e9},
        {MIST_LINK_ALL_GATHER, 4, 4, 1, 3 * 10e-6 + 12 * 2e-6, 15.0 / 16, 40e9},
        {MIST_LINK_ALL_GATHER, 2, 8, 1, 10e-6 + 14 * 2e-6, 15.0 / 16, 80e9},
        /* ring: 2 (15 * 10) us, tree: 2 * 4 * 10 us */
        {MIST_LINK_ALL_REDUCE, 16, 1, 1, 80e-6, 30.0 / 16, 20e9},
        /* ring: 2 (10 + 2 * 2) us; tree: 2 (2 + 10) us */
        {MIST_LINK_ALL_REDUCE, 2, 2, 1, 24e-6, 1.5, 20e9},
    };
    struct mist_trace_set set;

    mist_trace_set_init(&set);
    set.cluster = declared_cluster();
    struct mist_cost_model *model = model_of(&set);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int64_t bytes = 1000; bytes < 2000000000; bytes *= 1000)
            equals(link_cost(model, cases[i].operation, cases[i].nodes, cases[i].ranks,
                             cases[i].groups, bytes)
                       .time_s,
                   start_s + cases[i].latency_s +
                       cases[i].moved * (double)bytes / cases[i].bytes_per_s);
    equals(link_cost(model, MIST_LINK_SEND_RECV, 1, 2, 1, 1000000).time_s,
           2e-6 + 1e6 / 100e9);
    equals(link_cost(model, MIST_LINK_SEND_RECV, 2, 1, 1, 1000000).time_s,
           10e-6 + 1e6 / 20e9);
    equals(link_cost(model, MIST_LINK_HOST_TO_DEVICE, 1, 1, 1, 1000000).time_s,
           8e-6 + 1e6 / 20e9);
    mist_cost_model_free(model);
    /* a switch that sums takes the message once, and 2 (n-1)/n of it go between nodes */
    set.cluster.declared.switch_bytes_per_s = 60e9;
    model = model_of(&set);
    equals(link_cost(model, MIST_LINK_ALL_REDUCE, 1, 8, 1, 6000000).time_s,
           start_s + 28e-6 + 6e6 / 60e9);
    equals(link_cost(model, MIST_LINK_ALL_REDUCE, 4, 8, 1, 6000000).time_s,
           start_s + 2 * (7 * 2e-6 + 2 * 10e-6) + 1.5 * 6e6 / 80e9);
    equals(link_cost(model, MIST_LINK_ALL_GATHER, 1, 8, 1, 6000000).time_s,
           start_s + 14e-6 + 6e6 * 7 / 8 / 100e9); /* nothing to sum */
    mist_cost_model_free(model);
    /* two devices of 6 GB/s to the host bring no more to an adapter of 20 GB/s, however few
     * a node has; eight bring 48 to four */
    set.cluster.declared.switch_bytes_per_s = 0;
    set.cluster.declared.host.bytes_per_s = 6e9;
    for (int per_node = 2; per_node <= 8; per_node *= 4) {
        set.cluster.devices_per_node = per_node;
        model = model_of(&set);
        equals(link_cost(model, MIST_LINK_ALL_GATHER, 4, 2, 1, 6000000).time_s,
               start_s + 3 * 10e-6 + 4 * 2e-6 + 6e6 * 7 / 8 / 12e9);
        mist_cost_model_free(model);
    }
    model = model_of(&set);
    equals(link_cost(model, MIST_LINK_ALL_GATHER, 2, 8, 1, 6000000).time_s,
           start_s + 10e-6 + 14 * 2e-6 + 6e6 * 15 / 16 / 48e9);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* More bytes, more nodes, more ranks of a node, more groups at once: never faster. */
TEST(test_links_are_monotone)
{
    struct mist_random random;
    struct mist_trace_set set;

    mist_random_init(&random, test_seed(13));
    mist_trace_set_init(&set);
    set.cluster = declared_cluster();
    struct mist_cost_model *model = model_of(&set);
    for (int i = 0; i < 20000; i++) {
        enum mist_link_operation operation =
            (enum mist_link_operation)mist_random_below(&random, MIST_LINK_SEND_RECV);
        int nodes = 1 + (int)mist_random_below(&random, 16);
        int groups = 1 + (int)mist_random_below(&random, 8);
        int64_t bytes = 1 + (int64_t)mist_random_below(&random, 1 << 30);
        double time_s = link_cost(model, operation, nodes, 2, groups, bytes).time_s;
        double slack = 1 - 1e-12;
        assert_true(link_cost(model, operation, nodes, 2, groups, bytes + 4096).time_s >=
                    time_s * slack);
        assert_true(link_cost(model, operation, nodes + 1, 2, groups, bytes).time_s >=
                    time_s * slack);
        assert_true(link_cost(model, operation, nodes, 2, groups + 1, bytes).time_s >=
                    time_s * slack);
    }
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Copies of a device have its own way until all of its node fill what they share. */
TEST(test_copies_share_the_host)
{
    struct mist_trace_set set;

    mist_trace_set_init(&set);
    set.cluster = declared_cluster();
    for (int devices = 1; devices <= 8; devices *= 2)
        for (double together = 0; together <= 200e9; together += 40e9) {
            set.cluster.devices_per_node = devices;
            set.cluster.declared.host_node_bytes_per_s = together;
            struct mist_cost_model *model = model_of(&set);
            double rate =
                together > 0 && together < devices * 20e9 ? together / devices : 20e9;
            equals(link_cost(model, MIST_LINK_HOST_TO_DEVICE, 1, 1, 1, 1000000000).time_s,
                   8e-6 + 1e9 / rate);
            mist_cost_model_free(model);
        }
    mist_trace_set_fini(&set);
}

/* Within a node rings have a rate of their own; sends, and groups across nodes of one
 * device each, don't. */
TEST(test_rings)
{
    const double bytes = 1 << 28;
    struct mist_trace_set set;

    mist_trace_set_init(&set);
    set.cluster = declared_cluster();
    for (int i = 0; i < 2; i++) {
        double rate = i ? 50e9 : 100e9;
        set.cluster.declared.ring_bytes_per_s = i ? rate : 0;
        struct mist_cost_model *model = model_of(&set);
        equals(link_cost(model, MIST_LINK_ALL_GATHER, 1, 8, 1, 1 << 28).time_s,
               15e-6 + 7 * 2e-6 + 7.0 / 8 * bytes / rate);
        equals(link_cost(model, MIST_LINK_ALL_REDUCE, 1, 2, 1, 1 << 28).time_s,
               15e-6 + 2 * 2e-6 + bytes / rate);
        equals(link_cost(model, MIST_LINK_SEND_RECV, 1, 2, 1, 1 << 28).time_s,
               2e-6 + bytes / 100e9);
        equals(link_cost(model, MIST_LINK_ALL_GATHER, 2, 1, 1, 1 << 28).time_s,
               15e-6 + 10e-6 + 0.5 * bytes / 20e9);
        mist_cost_model_free(model);
    }
    mist_trace_set_fini(&set);
    /* two V100 share one of six links, as Aceso measured (21.3 GB/s), eight have all */
    parse("v100", &set);
    struct mist_cost_model *mesh = model_of(&set);
    for (int ranks = 2; ranks <= 8; ranks *= 4)
        equals(link_cost(mesh, MIST_LINK_ALL_GATHER, 1, ranks, 1, 1 << 28).time_s,
               15e-6 + (ranks - 1) * 5e-6 +
                   (ranks - 1.0) / ranks * bytes / (ranks == 2 ? 21e9 : 117e9));
    mist_cost_model_free(mesh);
    mist_trace_set_fini(&set);
    parse("l4:1x8,link=10GB/s", &set);
    equals(set.cluster.declared.device.bytes_per_s,
           10e9 * mist_preset_wirings[MIST_WIRING_PCIE].link_frac);
    equals(set.cluster.declared.ring_bytes_per_s,
           10e9 * mist_preset_wirings[MIST_WIRING_PCIE].ring_frac);
    mist_trace_set_fini(&set);
}

/* Declared slowdowns hold while computing and messages go on; rows come before them. */
TEST(test_declared_slowdowns)
{
    const double together[MIST_N_CHANNELS] = {[MIST_STREAM_COMPUTE] = 3,
                                              [MIST_STREAM_GPU_GPU] = 1,
                                              [MIST_STREAM_HOST_TO_DEVICE] = 0.5};
    struct mist_interference_row row = {.channels = 1u << MIST_STREAM_COMPUTE |
                                                    1u << MIST_STREAM_GPU_GPU,
                                        .nodes = 1,
                                        .ranks_per_node = 2,
                                        .alone_us = {30, 10},
                                        .together_us = 30,
                                        .repetitions = 1};
    struct mist_trace_set set;

    mist_trace_set_init(&set);
    set.cluster = declared_cluster();
    for (int i = 0; i < 3; i++) {
        set.cluster.declared.compute_slowdown = i > 0 ? 1.5 : 0;
        set.cluster.declared.message_slowdown = i > 0 ? 1.25 : 0;
        for (int k = 0; i == 2 && k < 2; k++) { /* it takes two rows to fit a pair */
            row.alone_us[0] = row.together_us = 30 * (k + 1);
            assert_int_equal(mist_trace_set_add_interference(&set, &row, NULL), MIST_OK);
        }
        struct mist_cost_model *model = model_of(&set);
        /* 1.25 s beside messages, in which computing gets 1.25 / 1.5 done */
        equals(mist_interference_bundle_s(mist_cost_model_interference(model), together),
               i == 1 ? 1.25 + 3 - 1.25 / 1.5 : 3);
        mist_cost_model_free(model);
    }
    mist_trace_set_fini(&set);
}

/* Rows come before what is declared; rows within a node say nothing of other nodes. */
TEST(test_rows_come_first)
{
    struct mist_trace_set set;
    struct mist_err err = {0};
    struct mist_cost cost;
    struct mist_link_row row = {.operation = MIST_LINK_ALL_REDUCE,
                                .nodes = 1,
                                .ranks_per_node = 8,
                                .concurrent_groups = 1,
                                .bytes = 1000000,
                                .time_us = 77,
                                .repetitions = 1};

    mist_trace_set_init(&set);
    set.cluster = declared_cluster();
    must(mist_trace_set_add_link(&set, &row, &err), &err);
    struct mist_cost_model *model = model_of(&set);
    must(mist_cost_link(model, MIST_LINK_ALL_REDUCE, (struct mist_group_shape){1, 8, 1},
                        1000000, &cost, &err),
         &err);
    equals(cost.time_s, 77e-6);
    equals(cost.preset_s + 1, 1);
    must(mist_cost_link(model, MIST_LINK_ALL_REDUCE, (struct mist_group_shape){1, 4, 1},
                        1000000, &cost, &err),
         &err);
    equals(cost.borrowed_s, cost.time_s);
    equals(cost.time_s, 77e-6 * 42 / 60.5); /* us as declared: 15 + 6 * 2 + 15 */
    cost = link_cost(model, MIST_LINK_ALL_REDUCE, 2, 8, 1, 1000000);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* A row of other groups goes by the links that a group has: four pairs of a node don't share
 * them, one rank of each node has an eighth of the adapters. */
TEST(test_rows_of_other_groups)
{
    static const struct {
        struct mist_group_shape measured, asked;
        double measured_s, asked_s; /* as declared: start, steps, bytes over a rate */
    } cases[] = {
        {{1, 8, 1},
         {1, 2, 4},
         15e-6 + 14 * 2e-6 + 17.5e8 / 1e11,
         15e-6 + 2 * 2e-6 + 1e9 / 1e11},
        {{4, 8, 1},
         {4, 1, 8},
         15e-6 + 14 * 2e-6 + 4 * 10e-6 + 31.0 / 16 * 1e9 / 8e10,
         15e-6 + 4 * 10e-6 + 1.5e9 / 1e10},
        {{4, 1, 8},
         {4, 8, 1},
         15e-6 + 4 * 10e-6 + 1.5e9 / 1e10,
         15e-6 + 14 * 2e-6 + 4 * 10e-6 + 31.0 / 16 * 1e9 / 8e10},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_trace_set set;
        struct mist_err err = {0};
        struct mist_cost cost;
        struct mist_link_row row = {.operation = MIST_LINK_ALL_REDUCE,
                                    .nodes = cases[i].measured.nodes,
                                    .ranks_per_node = cases[i].measured.ranks_per_node,
                                    .concurrent_groups =
                                        cases[i].measured.concurrent_groups,
                                    .bytes = 1000000000,
                                    .time_us = 30000,
                                    .repetitions = 1};
        mist_trace_set_init(&set);
        set.cluster = declared_cluster();
        must(mist_trace_set_add_link(&set, &row, &err), &err);
        struct mist_cost_model *model = model_of(&set);
        must(mist_cost_link(model, MIST_LINK_ALL_REDUCE, cases[i].asked, 1000000000,
                            &cost, &err),
             &err);
        equals(cost.time_s, 30e-3 * cases[i].asked_s / cases[i].measured_s);
        equals(cost.borrowed_s, cost.time_s);
        equals(cost.extrapolated_s, cost.time_s);
        equals(cost.doubt_s, 0.2 * cost.time_s);
        mist_cost_model_free(model);
        mist_trace_set_fini(&set);
    }
}

/* A link that is three times as slow as declared in one operation is so in the others that
 * go the same way; what a switch sums says nothing of what it doesn't. */
TEST(test_rows_of_other_operations)
{
    static const struct {
        enum mist_link_operation measured, asked;
        struct mist_group_shape group;
        double switch_bytes_per_s, factor; /* of what is declared */
    } cases[] = {
        {MIST_LINK_ALL_REDUCE, MIST_LINK_ALL_GATHER, {4, 8, 1}, 0, 3},
        {MIST_LINK_ALL_REDUCE, MIST_LINK_REDUCE_SCATTER, {1, 8, 1}, 0, 3},
        {MIST_LINK_ALL_GATHER, MIST_LINK_ALL_REDUCE, {4, 1, 8}, 0, 3},
        {MIST_LINK_ALL_GATHER, MIST_LINK_REDUCE_SCATTER, {1, 8, 1}, 6e10, 3},
        {MIST_LINK_HOST_TO_DEVICE, MIST_LINK_DEVICE_TO_HOST, {1, 1, 1}, 0, 3},
        {MIST_LINK_ALL_REDUCE, MIST_LINK_ALL_GATHER, {1, 8, 1}, 6e10, 1},
        {MIST_LINK_ALL_GATHER, MIST_LINK_ALL_REDUCE, {1, 8, 1}, 6e10, 1},
        {MIST_LINK_ALL_REDUCE, MIST_LINK_SEND_RECV, {2, 1, 1}, 0, 1},
    };
    const int64_t bytes = 100000000;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_trace_set set;
        struct mist_err err = {0};
        struct mist_cost cost, measured, asked;
        mist_trace_set_init(&set);
        set.cluster = declared_cluster();
        set.cluster.declared.switch_bytes_per_s = cases[i].switch_bytes_per_s;
        struct mist_cost_model *model = model_of(&set);
        measured = link_cost(model, cases[i].measured, cases[i].group.nodes,
                             cases[i].group.ranks_per_node,
                             cases[i].group.concurrent_groups, bytes);
        asked = link_cost(model, cases[i].asked, cases[i].group.nodes,
                          cases[i].group.ranks_per_node, cases[i].group.concurrent_groups,
                          bytes);
        mist_cost_model_free(model);
        struct mist_link_row row = {.operation = cases[i].measured,
                                    .nodes = cases[i].group.nodes,
                                    .ranks_per_node = cases[i].group.ranks_per_node,
                                    .concurrent_groups = cases[i].group.concurrent_groups,
                                    .bytes = bytes,
                                    .time_us = 3e6 * measured.time_s,
                                    .repetitions = 1};
        must(mist_trace_set_add_link(&set, &row, &err), &err);
        model = model_of(&set);
        must(mist_cost_link(model, cases[i].asked, cases[i].group, bytes, &cost, &err),
             &err);
        if (fabs(cost.time_s / asked.time_s / cases[i].factor - 1) > 1e-9)
            fail_msg("case %zu: %g times what is declared", i,
                     cost.time_s / asked.time_s);
        equals(cost.borrowed_s + 1, 1 + (cases[i].factor > 1 ? cost.time_s : 0));
        equals(cost.doubt_s, 0.2 * cost.time_s);
        mist_cost_model_free(model);
        mist_trace_set_fini(&set);
    }
}

/* Far outside of the sizes what is declared counts: one large size says nothing of latency,
 * two that differ by chance nothing of the latency or the rate. */
TEST(test_far_from_rows)
{
    /* all-reduce of 8: 43 us and 17.5 us a megabyte are declared */
    static const struct {
        int64_t bytes[2], asked;
        double times_us[2], expected_us;
    } cases[] = {
        {{1000000000}, 1000000, {20000}, 60.5 * 20000 / 17543},
        {{1000000000, 2000000000}, 1000000, {20000, 36000}, 60.5 * 20000 / 17543},
        {{1000000000, 2000000000}, 8000000000, {20000, 38000}, 140043.0 * 38000 / 35043},
        {{1000}, 1000000000, {20}, 20 + 17500},
        {{8, 16}, 1000000000, {35.5, 35.4}, 35.4 + 17500},
        {{8, 16}, 1000000000, {35.4, 36.5}, 36.5 + 17500},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_trace_set set;
        struct mist_err err = {0};
        struct mist_cost cost;
        mist_trace_set_init(&set);
        set.cluster = declared_cluster();
        for (int k = 0; k < 2 && cases[i].bytes[k] > 0; k++) {
            struct mist_link_row row = {.operation = MIST_LINK_ALL_REDUCE,
                                        .nodes = 1,
                                        .ranks_per_node = 8,
                                        .concurrent_groups = 1,
                                        .bytes = cases[i].bytes[k],
                                        .time_us = cases[i].times_us[k],
                                        .repetitions = 1};
            must(mist_trace_set_add_link(&set, &row, &err), &err);
        }
        struct mist_cost_model *model = model_of(&set);
        must(mist_cost_link(model, MIST_LINK_ALL_REDUCE,
                            (struct mist_group_shape){1, 8, 1}, cases[i].asked, &cost,
                            &err),
             &err);
        if (fabs(cost.time_s * 1e6 / cases[i].expected_us - 1) > 0.01)
            fail_msg("case %zu: %g us, expected %g", i, cost.time_s * 1e6,
                     cases[i].expected_us);
        equals(cost.extrapolated_s, cost.time_s);
        equals(cost.preset_s + 1, 1);
        equals(cost.doubt_s, 0.2 * cost.time_s);
        mist_cost_model_free(model);
        mist_trace_set_fini(&set);
    }
}

/* What is not declared is an error that says what to write. */
TEST(test_missing_links)
{
    static const struct {
        enum mist_link_operation operation;
        int nodes, ranks;
        const char *says;
    } cases[] = {
        {MIST_LINK_ALL_REDUCE, 2, 8, "rtx4090:2x8,nic=8x400Gb/s"},
        {MIST_LINK_SEND_RECV, 2, 1, "rtx4090:2x8,nic=8x400Gb/s"},
    };
    struct mist_trace_set set;

    parse("rtx4090:2x8", &set);
    struct mist_cost_model *model = model_of(&set);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_cost cost;
        struct mist_err err = {0};
        assert_int_equal(
            mist_cost_link(model, cases[i].operation,
                           (struct mist_group_shape){cases[i].nodes, cases[i].ranks, 1},
                           1, &cost, &err),
            MIST_ERR_INPUT);
        if (!strstr(err.message, cases[i].says))
            fail_msg("%s", err.message);
    }
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* -------------------------------------------------------------------------- operators */

static struct mist_cost linear_cost_in(const struct mist_cost_model *model,
                                       enum mist_dtype dtype, enum mist_phase phase,
                                       int64_t rows, int64_t n_in, int64_t n_out)
{
    int64_t dims[MIST_MAX_DIMS] = {rows, n_in, n_out};
    double m = (double)rows, k = (double)n_in, n = (double)n_out;
    struct mist_cost cost;
    struct mist_err err = {0};

    must(mist_cost_op(model, MIST_OP_LINEAR, phase, dtype, dims, 2 * m * k * n,
                      2 * (m * k + k * n + m * n), &cost, &err),
         &err);
    equals(cost.preset_s, cost.time_s);
    equals(cost.doubt_s, model ? 0.1 * cost.time_s : 0);
    return cost;
}

static struct mist_cost linear_cost(const struct mist_cost_model *model,
                                    enum mist_phase phase, int64_t rows, int64_t n_in,
                                    int64_t n_out)
{
    return linear_cost_in(model, MIST_DTYPE_BF16, phase, rows, n_in, n_out);
}

TEST(test_products_by_hand)
{
    const double start_s = 5e-6, peak = 0.8 * 1e14;
    struct mist_trace_set set;

    mist_trace_set_init(&set);
    set.cluster = declared_cluster();
    struct mist_cost_model *model = model_of(&set);
    /* 10 x 10 tiles of 256 x 128 are one full wave of 100 processors */
    equals(linear_cost(model, MIST_PHASE_FORWARD, 2560, 4096, 1280).time_s,
           start_s + 2.0 * 2560 * 1280 * (4096 + 40) / peak);
    /* the gradient of the input swaps n_in and n_out, that of the weight sums over rows */
    equals(linear_cost(model, MIST_PHASE_BACKWARD_INPUT, 2560, 1280, 4096).time_s,
           start_s + 2.0 * 2560 * 1280 * (4096 + 40) / peak);
    equals(linear_cost(model, MIST_PHASE_BACKWARD_WEIGHT, 4096, 2560, 1280).time_s,
           start_s + 2.0 * 2560 * 1280 * (4096 + 40) / peak);
    /* one column more: 20 x 11 tiles of 128 x 128 are 2.2 waves of half the size, the last
     * counted half of what it leaves: 2.6, at 0.97 of the rate, which is faster than a
     * second wave of large tiles */
    equals(linear_cost(model, MIST_PHASE_FORWARD, 2560, 4096, 1280 + 128).time_s,
           start_s + 2.6 / 2 / 0.97 * 2.0 * 2560 * 1280 * (4096 + 40) / peak);
    /* a number of columns that eight does not divide halves the rate, an odd one leaves
     * 0.35; their tiles are those of 1280 */
    equals(linear_cost(model, MIST_PHASE_FORWARD, 2560, 4096, 1278).time_s,
           start_s + 2 * 2.0 * 2560 * 1280 * (4096 + 40) / peak);
    equals(linear_cost(model, MIST_PHASE_FORWARD, 2560, 4096, 1279).time_s,
           start_s + 2.0 * 2560 * 1280 * (4096 + 40) / 0.35 / peak);
    equals(linear_cost(model, MIST_PHASE_FORWARD, 2560, 4092, 1280).time_s,
           start_s + 2 * 2.0 * 2560 * 1280 * (4092 + 40) / peak);
    /* an odd number of rows does not, in no phase: they lie 16 bytes apart anyway */
    equals(linear_cost(model, MIST_PHASE_FORWARD, 2559, 4096, 1280).time_s,
           start_s + 2.0 * 2560 * 1280 * (4096 + 40) / peak);
    equals(linear_cost(model, MIST_PHASE_BACKWARD_INPUT, 2559, 1280, 4096).time_s,
           start_s + 2.0 * 2560 * 1280 * (4096 + 40) / peak);
    equals(linear_cost(model, MIST_PHASE_BACKWARD_WEIGHT, 4095, 2560, 1280).time_s,
           start_s + 2.0 * 2560 * 1280 * (4095 + 40) / peak);
    /* in fp32 16 bytes are four columns */
    equals(linear_cost_in(model, MIST_DTYPE_FP32, MIST_PHASE_FORWARD, 2560, 4092, 1280)
               .time_s,
           start_s + 10 * 2.0 * 2560 * 1280 * (4092 + 40) / peak);
    /* one row: memory, at half of its rate */
    equals(linear_cost(model, MIST_PHASE_FORWARD, 8, 8192, 8192).time_s,
           start_s + 2.0 * (2 * 8 * 8192 + 8192.0 * 8192) / 0.5e12);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Products so small that they only start say nothing of large ones, whose time stays within
 * what the small ones differ from the curve by. */
TEST(test_small_rows_and_large_products)
{
    static const double times_us[] = {5.2, 6.3, 7};
    const int64_t dims[MIST_MAX_DIMS] = {2560, 4096, 1280};
    const double flop = 2.0 * 2560 * 4096 * 1280;
    const double by_curve_s = 5e-6 + 2.0 * 2560 * 1280 * (4096 + 40) / (0.8 * 1e14);

    for (int n = 1; n <= 3; n++) {
        struct mist_trace_set set;
        struct mist_cost cost;
        struct mist_err err = {0};
        mist_trace_set_init(&set);
        set.cluster = declared_cluster();
        for (int i = 0; i < n; i++) {
            int64_t size = 64 << i;
            struct mist_kernel_row row = {
                .op = "linear",
                .dtype = MIST_TRACE_BF16,
                .phase = MIST_PHASE_FORWARD,
                .shape = {3, {{"rows", size}, {"n_in", size}, {"n_out", size}}},
                .time_us = times_us[i],
                .repetitions = 9,
                .flop = 2.0 * (double)(size * size * size),
                .bytes = 6.0 * (double)(size * size)};
            must(mist_trace_set_add_kernel(&set, &row, &err), &err);
        }
        struct mist_cost_model *model = model_of(&set);
        must(mist_cost_op(model, MIST_OP_LINEAR, MIST_PHASE_FORWARD, MIST_DTYPE_BF16,
                          dims, flop, 0, &cost, &err),
             &err);
        if (cost.time_s < 0.8 * by_curve_s || cost.time_s > 1.3 * by_curve_s)
            fail_msg("%d rows: %g s, by the curve %g", n, cost.time_s, by_curve_s);
        equals(cost.extrapolated_s, cost.time_s);
        mist_cost_model_free(model);
        mist_trace_set_fini(&set);
    }
}

TEST(test_other_operators_by_hand)
{
    int64_t norm[MIST_MAX_DIMS] = {4096, 4096},
            attention[MIST_MAX_DIMS] = {2, 2000, 8, 8, 128};
    struct mist_trace_set set;
    struct mist_cost cost;
    struct mist_err err = {0};

    mist_trace_set_init(&set);
    set.cluster = declared_cluster();
    struct mist_cost_model *model = model_of(&set);
    must(mist_cost_op(model, MIST_OP_RMS_NORM, MIST_PHASE_FORWARD, MIST_DTYPE_BF16, norm,
                      1e6, 1e9, &cost, &err),
         &err);
    equals(cost.time_s, 5e-6 + 1e9 / 0.5e12);
    must(mist_cost_op(model, MIST_OP_ATTENTION, MIST_PHASE_FORWARD, MIST_DTYPE_BF16,
                      attention, 1e12, 1e6, &cost, &err),
         &err);
    equals(cost.time_s, 5e-6 + 1e12 / (0.72 * 1e14) * 1.25); /* 1 + 500 / 2000 */
    must(mist_cost_op(model, MIST_OP_ATTENTION, MIST_PHASE_BACKWARD_INPUT,
                      MIST_DTYPE_BF16, attention, 1e12, 1e6, &cost, &err),
         &err);
    equals(cost.time_s, 5e-6 + 1e12 / (0.60 * 1e14) * 1.25);
    mist_cost_model_free(model);
    set.cluster.curve.product_frac = 0.5; /* it is no faster than large products */
    model = model_of(&set);
    must(mist_cost_op(model, MIST_OP_ATTENTION, MIST_PHASE_FORWARD, MIST_DTYPE_BF16,
                      attention, 1e12, 1e6, &cost, &err),
         &err);
    equals(cost.time_s, 5e-6 + 1e12 / (0.5 * 1e14) * 1.25);
    mist_cost_model_free(model);
    /* without a curve nothing is known but the roofline, and the doubt is half of it */
    set.cluster.curve = (struct mist_trace_curve){0};
    model = model_of(&set);
    must(mist_cost_op(model, MIST_OP_RMS_NORM, MIST_PHASE_FORWARD, MIST_DTYPE_BF16, norm,
                      1e6, 1e9, &cost, &err),
         &err);
    equals(cost.time_s, 1e-3);
    equals(cost.doubt_s, 0.5e-3);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* A larger product of whole 16 bytes is never faster. */
TEST(test_products_are_monotone)
{
    static const enum mist_phase phases[] = {
        MIST_PHASE_FORWARD, MIST_PHASE_BACKWARD_INPUT, MIST_PHASE_BACKWARD_WEIGHT};
    struct mist_random random;
    struct mist_trace_set set;

    mist_random_init(&random, test_seed(14));
    parse("a100-80", &set);
    set.cluster.curve.residual_frac = 0.1;
    struct mist_cost_model *model = model_of(&set);
    for (int i = 0; i < 20000; i++) {
        int64_t dims[3];
        for (int k = 0; k < 3; k++)
            dims[k] = 8 * (1 + (int64_t)mist_random_below(&random, 2048));
        enum mist_phase phase = phases[mist_random_below(&random, 3)];
        double time_s = linear_cost(model, phase, dims[0], dims[1], dims[2]).time_s;
        dims[mist_random_below(&random, 3)] +=
            8 * (1 + (int64_t)mist_random_below(&random, 64));
        assert_true(linear_cost(model, phase, dims[0], dims[1], dims[2]).time_s >=
                    time_s * (1 - 1e-12));
    }
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* ------------------------------------------------------------------------- residuals */

/* The products of Vidur's table on one device, each by itself: the root mean square of
 * log(price / time) over those of 128 rows and more. */
static double product_residual(const char *gpu, const char *preset, int *n)
{
    FILE *file = open_reference("kernels/gemm_a100_h100_a40.csv");
    struct mist_trace_set set;
    char line[512];
    double sum = 0;

    if (!file)
        skip();
    parse(preset, &set);
    for (int i = 0; mist_preset_get(i); i++)
        if (strcmp(mist_preset_get(i)->name, preset) == 0)
            set.cluster.curve.product_frac = mist_preset_get(i)->product_frac;
    struct mist_cost_model *model = model_of(&set);
    *n = 0;
    while (fgets(line, sizeof line, file)) {
        char name[16];
        long long m, n_out, k;
        double ms;
        if (sscanf(line, "%15[^,],%*[^,],%*[^,],%*[^,],%lld,%lld,%lld,%lf", name, &m,
                   &n_out, &k, &ms) != 5 ||
            strcmp(name, gpu) != 0 || m < 128)
            continue;
        int64_t dims[MIST_MAX_DIMS] = {m, k, n_out};
        struct mist_cost cost;
        must(mist_cost_op(model, MIST_OP_LINEAR, MIST_PHASE_FORWARD, MIST_DTYPE_BF16,
                          dims, 2.0 * (double)(m * n_out * k),
                          2.0 * (double)(m * n_out + m * k + n_out * k), &cost, NULL),
             &(struct mist_err){.message = "no price"});
        sum += pow(log(cost.time_s / (ms * 1e-3)), 2);
        ++*n;
    }
    fclose(file);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
    return sqrt(sum / *n);
}

TEST(test_product_residuals)
{
    static const char *const devices[][2] = {{"a100", "a100-80"}, {"h100", "h100-sxm"}};

    for (int i = 0; i < 2; i++) {
        int n;
        double residual = product_residual(devices[i][0], devices[i][1], &n);
        print_message("products on %s: %d, residual %.3f\n", devices[i][0], n, residual);
        assert_true(n > 500);
        assert_true(residual < 1.05 * mist_preset_shares.curve_residual_frac);
        assert_true(residual > 0.01); /* something was compared */
    }
}

/* One table of nccl-tests, its messages of 16 MiB and more. */
static double link_residual(const char *name, const char *preset,
                            enum mist_link_operation operation, int nodes, int *n)
{
    FILE *file = open_reference(name);
    struct mist_trace_set set;
    char line[512];
    double sum = 0, bytes, time_us;

    if (!file)
        skip();
    parse(preset, &set);
    struct mist_cost_model *model = model_of(&set);
    *n = 0;
    while (fgets(line, sizeof line, file)) {
        struct mist_cost cost;
        struct mist_err err = {0};
        if (sscanf(line, "%lf,%*[^,],%*[^,],%*[^,],%lf", &bytes, &time_us) != 2 &&
            sscanf(line, "%lf,,%*[^,],%*[^,],%lf", &bytes, &time_us) != 2 &&
            sscanf(line, "%lf,%lf", &bytes, &time_us) != 2)
            continue;
        if (bytes < (1 << 24))
            continue;
        must(mist_cost_link(model, operation, (struct mist_group_shape){nodes, 8, 1},
                            (int64_t)bytes, &cost, &err),
             &err);
        sum += pow(log(cost.time_s / (time_us * 1e-6)), 2);
        ++*n;
    }
    fclose(file);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
    return sqrt(sum / *n);
}

TEST(test_link_residuals)
{
    static const struct {
        const char *name, *preset;
        enum mist_link_operation operation;
        int nodes;
    } tables[] = {
        {"links/h100_dgx_8gpu_allreduce.csv", "h100-sxm", MIST_LINK_ALL_REDUCE, 1},
        {"links/h100_simumax_8gpu_all_gather.csv", "h100-sxm", MIST_LINK_ALL_GATHER, 1},
        {"links/h100_simumax_8gpu_reduce_scatter.csv", "h100-sxm",
         MIST_LINK_REDUCE_SCATTER, 1},
        {"links/h100_oci_2x8_allreduce.csv", "h100-sxm:2x8", MIST_LINK_ALL_REDUCE, 2},
        {"links/h200_8gpu_allreduce_stas00.csv", "h200-sxm", MIST_LINK_ALL_REDUCE, 1},
        {"links/b200_8gpu_allreduce_stas00.csv", "b200-sxm", MIST_LINK_ALL_REDUCE, 1},
        {"links/b200_4x8gpu_allreduce_efa_stas00.csv", "b200-sxm:4x8",
         MIST_LINK_ALL_REDUCE, 4},
    };

    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        int n;
        double residual = link_residual(tables[i].name, tables[i].preset,
                                        tables[i].operation, tables[i].nodes, &n);
        print_message("%s: %d, residual %.3f\n", tables[i].name, n, residual);
        assert_true(n >= 5);
        /* the last one's adapters (EFA) start ten times as slowly as InfiniBand's */
        if (i + 1 < sizeof tables / sizeof *tables)
            assert_true(residual <
                        1.05 * mist_preset_wirings[MIST_WIRING_NVLINK].residual_frac);
        assert_true(residual > 0.001);
    }
}

/* All-reduces over PCIe that others measured, which no share was fitted to: 4 A100 PCIe in two
 * sockets (0x18 .. 0xaf; nccl-tests, 128 MiB), and 8 RTX 5090 through host memory, whose
 * links are twice as fast as RTX 4090's (NVIDIA/nccl, issue 1639: 28 GB/s from 1 GiB on).
 * By P2P of another driver 4 RTX 4090 reach 25.3 GB/s. */
TEST(test_pcie_reports)
{
    static const struct {
        const char *preset;
        int ranks;
        int64_t bytes;
        double bus_bytes_per_s, frac;
    } reports[] = {{"l4:1x4", 4, 1 << 27, 5.2e9, 0.1},
                   {"rtx4090:1x8,link=63GB/s", 8, 1 << 30, 28e9, 0.1},
                   {"rtx4090:1x4", 4, 1 << 30, 25.3e9, 0.45}};

    for (size_t i = 0; i < sizeof reports / sizeof *reports; i++) {
        int n = reports[i].ranks;
        struct mist_trace_set set;
        parse(reports[i].preset, &set);
        struct mist_cost_model *model = model_of(&set);
        struct mist_cost cost =
            link_price(model, MIST_LINK_ALL_REDUCE, 1, n, 1, reports[i].bytes);
        double bus = 2 * (n - 1.0) / n * (double)reports[i].bytes / cost.time_s;
        print_message("%s: %.1f GB/s, %.1f were measured\n", reports[i].preset,
                      bus * 1e-9, reports[i].bus_bytes_per_s * 1e-9);
        assert_true(fabs(bus / reports[i].bus_bytes_per_s - 1) < reports[i].frac);
        equals(cost.doubt_s, 0.4 * cost.time_s);
        mist_cost_model_free(model);
        mist_trace_set_fini(&set);
    }
}

TEST_MAIN(NULL, NULL)
