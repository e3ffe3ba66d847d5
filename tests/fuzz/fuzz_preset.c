/*
 * traces/preset: each line is what --cluster names. What is accepted is a cluster that
 * passes its own check, without rows, and reads the same again; a refusal leaves nothing.
 */
#include "tests/fuzz/fuzz.h"
#include "traces/preset.h"

#include <math.h>

static void check_links(const struct mist_cluster *cluster, const char *text)
{
    const struct mist_trace_declared *declared = &cluster->declared;
    const struct mist_declared_link *const links[] = {&declared->device, &declared->node,
                                                      &declared->host};

    for (int i = 0; i < 3; i++)
        FUZZ_CHECK(isfinite(links[i]->bytes_per_s) && links[i]->bytes_per_s >= 0 &&
                       links[i]->latency_us >= 0 && links[i]->latency_us <= 1e6,
                   "%s: %g bytes/s, %g us", text, links[i]->bytes_per_s,
                   links[i]->latency_us);
    FUZZ_CHECK(declared->node.bytes_per_s == 0 || declared->adapters > 0, "%s", text);
}

static void check(const char *text)
{
    struct mist_trace_set set, again;
    struct mist_err err = {0};
    enum mist_status status = mist_preset_parse(&set, text, &err);

    if (status != MIST_OK) {
        fuzz_check_refusal(status, &err, false);
        FUZZ_CHECK(set.cluster.nodes == 0, "refused and still filled: %s", text);
        return;
    }
    fuzz_must(mist_cluster_check(&set.cluster, &err), &err);
    FUZZ_CHECK(set.n_kernels == 0 && set.n_links == 0 && !set.has_kernels, "%s", text);
    FUZZ_CHECK(set.cluster.devices_per_node <= MIST_PRESET_MAX_DEVICES_PER_NODE &&
                   set.cluster.nodes <= MIST_PRESET_MAX_NODES,
               "%s: %d x %d", text, set.cluster.nodes, set.cluster.devices_per_node);
    check_links(&set.cluster, text);
    fuzz_must(mist_preset_parse(&again, text, &err), &err);
    FUZZ_CHECK(mist_trace_set_fingerprint(&set) == mist_trace_set_fingerprint(&again),
               "%s", text);
    mist_trace_set_fini(&again);
    mist_trace_set_fini(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char *text = fuzz_text((struct fuzz_bytes){bytes, n}), *rest = text, *line;

    while ((line = strtok_r(rest, "\n", &rest)))
        check(line);
    free(text);
    return 0;
}

void fuzz_write_seeds(void)
{
    fuzz_seed_text("names", "h100\nh100-sxm\nrtx4090\na100-8");
    fuzz_seed_text("topologies", "h100:64\nl4:8x8\na100-80:128x8\nb200:1x16\nh100:63");
    fuzz_seed_text("keys", "h100:8x8,nic=8x400Gb/s@5us\nl4:2x8,nic=12.5GB/s,link=25GB/s\n"
                           "v100,pcie=8GiB/s@1ms,memory=16GiB,host-memory=1TiB");
}
