/*
 * sim/what_if: each line is an edit. What is accepted leaves times and factors that are
 * finite and above 0; what is refused changes nothing.
 */
#include "sim/what_if.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>

enum { N_RANKS = 4 };

/* A measured set as it was read, and the one that is edited. */
static struct mist_trace_set original, edited;

/* Presets have no rows, and no memory for them. */
static void copy(void *to, const void *from, size_t n_bytes)
{
    if (n_bytes > 0)
        memcpy(to, from, n_bytes);
}

static bool is_same(const void *a, const void *b, size_t n_bytes)
{
    return n_bytes == 0 || memcmp(a, b, n_bytes) == 0;
}

/* to has room for the rows of original. */
static void copy_rows(struct mist_trace_set *to, const struct mist_trace_set *from)
{
    to->cluster = from->cluster;
    to->n_kernels = from->n_kernels;
    to->n_links = from->n_links;
    to->n_interferences = from->n_interferences;
    copy(to->kernels, from->kernels, from->n_kernels * sizeof *from->kernels);
    copy(to->links, from->links, from->n_links * sizeof *from->links);
    copy(to->interferences, from->interferences,
         from->n_interferences * sizeof *from->interferences);
}

static bool same_rows(const struct mist_trace_set *a, const struct mist_trace_set *b)
{
    return a->n_kernels == b->n_kernels && a->n_links == b->n_links &&
           a->n_interferences == b->n_interferences &&
           memcmp(&a->cluster, &b->cluster, sizeof a->cluster) == 0 &&
           is_same(a->kernels, b->kernels, a->n_kernels * sizeof *a->kernels) &&
           is_same(a->links, b->links, a->n_links * sizeof *a->links) &&
           is_same(a->interferences, b->interferences,
                   a->n_interferences * sizeof *a->interferences);
}

static bool is_time(double time_us)
{
    return isfinite(time_us) && time_us > 0;
}

static void check_rows(const struct mist_trace_set *set,
                       const struct mist_what_if *what_if, const char *edit)
{
    const struct mist_cost_speeds *speeds = &what_if->speeds;

    for (int op = 0; op < MIST_N_OPS; op++)
        FUZZ_CHECK(is_time(speeds->kernel[op]), "%s: %g", edit, speeds->kernel[op]);
    FUZZ_CHECK(is_time(speeds->peak) && is_time(speeds->memory_rate) &&
                   what_if->framework.dispatch_us >= 0 &&
                   what_if->framework.logit_bytes >= 0,
               "%s: %g %g %g", edit, speeds->peak, speeds->memory_rate,
               what_if->framework.dispatch_us);
    FUZZ_CHECK(set->cluster.device_memory_bytes > 0, "%s", edit);
    for (size_t i = 0; i < set->n_kernels; i++)
        FUZZ_CHECK(is_time(set->kernels[i].time_us) &&
                       isfinite(set->kernels[i].deviation_us),
                   "%s: %g us", edit, set->kernels[i].time_us);
    for (size_t i = 0; i < set->n_links; i++)
        FUZZ_CHECK(is_time(set->links[i].time_us) && isfinite(set->links[i].deviation_us),
                   "%s: %g us", edit, set->links[i].time_us);
    for (size_t i = 0; i < set->n_interferences; i++)
        FUZZ_CHECK(is_time(set->interferences[i].together_us), "%s: %g us", edit,
                   set->interferences[i].together_us);
    FUZZ_CHECK(isfinite(set->cluster.launch_us) && set->cluster.launch_us >= 0,
               "%s: %g us", edit, set->cluster.launch_us);
    FUZZ_CHECK(set->cluster.nodes > 0 && set->cluster.devices_per_node > 0, "%s", edit);
    for (int i = 0; i < N_RANKS; i++)
        FUZZ_CHECK(is_time(what_if->rank_factor[i]) && is_time(what_if->link_factor[i]),
                   "%s: rank %d %g %g", edit, i, what_if->rank_factor[i],
                   what_if->link_factor[i]);
}

static void apply(const char *edit, struct mist_trace_set *before,
                  struct mist_what_if *what_if)
{
    struct mist_err err = {0};
    struct mist_cost_speeds speeds = what_if->speeds;
    double factors[2 * N_RANKS];

    copy_rows(before, &edited);
    memcpy(factors, what_if->rank_factor, sizeof factors); /* and of links */
    enum mist_status status = mist_what_if_apply(what_if, edit, &err);
    if (status == MIST_OK) {
        check_rows(&edited, what_if, edit);
        return;
    }
    fuzz_check_refusal(status, &err, false);
    FUZZ_CHECK(same_rows(before, &edited) &&
                   memcmp(factors, what_if->rank_factor, sizeof factors) == 0 &&
                   memcmp(&speeds, &what_if->speeds, sizeof speeds) == 0,
               "refused and still changed: %s", edit);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct mist_trace_set before;
    static bool is_loaded;
    double factors[2 * N_RANKS];
    struct mist_what_if what_if;
    char *text = fuzz_text((struct fuzz_bytes){bytes, n}), *rest = text, *edit;
    struct mist_err err = {0};

    if (!is_loaded) {
        static const char folder[] = "tests/data/cli/traces";
        fuzz_must(mist_trace_set_load(&original, folder, &err), &err);
        fuzz_must(mist_trace_set_load(&edited, folder, &err), &err);
        fuzz_must(mist_trace_set_load(&before, folder, &err), &err);
        is_loaded = true;
    }
    if (edited.n_kernels < original.n_kernels) { /* other devices */
        mist_trace_set_fini(&edited);
        fuzz_must(mist_trace_set_load(&edited, "tests/data/cli/traces", &err), &err);
    }
    copy_rows(&edited, &original);
    mist_what_if_init(&what_if, &edited, MIST_FRAMEWORK_MEGATRON, factors, N_RANKS);
    while ((edit = strtok_r(rest, "\n", &rest)))
        apply(edit, &before, &what_if);
    free(text);
    return 0;
}

void fuzz_write_seeds(void)
{
    fuzz_seed_text("factors", "kernel.attention=0.7x\nkernel.all=2x\nlink.all=2x\n"
                              "link.inter_node=1.5x\nlaunch=0.5x");
    fuzz_seed_text("rates", "link.device=400Gb/s\nlink.host=8GiB/s\nlink.nic=2x\n"
                            "device.memory_rate=2TB/s\ndevice.memory=80GiB\n"
                            "launch=none\nframework.dispatch=5us\nframework.loss=60");
    fuzz_seed_text("others", "interference=none\ncluster.nodes=4\n"
                             "cluster.devices_per_node=8\nrank.3=1.3x\n"
                             "device=h200\ndevice.peak=2x");
}
