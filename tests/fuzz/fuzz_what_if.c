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

static void copy_rows(struct mist_trace_set *to, const struct mist_trace_set *from)
{
    to->cluster = from->cluster;
    memcpy(to->kernels, from->kernels, from->n_kernels * sizeof *from->kernels);
    memcpy(to->links, from->links, from->n_links * sizeof *from->links);
    memcpy(to->interferences, from->interferences,
           from->n_interferences * sizeof *from->interferences);
}

static bool same_rows(const struct mist_trace_set *a, const struct mist_trace_set *b)
{
    return memcmp(&a->cluster, &b->cluster, sizeof a->cluster) == 0 &&
           memcmp(a->kernels, b->kernels, a->n_kernels * sizeof *a->kernels) == 0 &&
           memcmp(a->links, b->links, a->n_links * sizeof *a->links) == 0 &&
           memcmp(a->interferences, b->interferences,
                  a->n_interferences * sizeof *a->interferences) == 0;
}

static bool is_time(double time_us)
{
    return isfinite(time_us) && time_us > 0;
}

static void check_rows(const struct mist_trace_set *set, const double *rank_factor,
                       const char *edit)
{
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
        FUZZ_CHECK(is_time(rank_factor[i]), "%s: rank %d %g", edit, i, rank_factor[i]);
}

static void apply(const char *edit, struct mist_trace_set *before, double *rank_factor)
{
    struct mist_err err = {0};
    double factors[N_RANKS];

    copy_rows(before, &edited);
    memcpy(factors, rank_factor, sizeof factors);
    enum mist_status status =
        mist_what_if_apply(edit, &edited, rank_factor, N_RANKS, &err);
    if (status == MIST_OK) {
        check_rows(&edited, rank_factor, edit);
        return;
    }
    fuzz_check_refusal(status, &err, false);
    FUZZ_CHECK(same_rows(before, &edited) &&
                   memcmp(factors, rank_factor, sizeof factors) == 0,
               "refused and still changed: %s", edit);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct mist_trace_set before;
    static bool is_loaded;
    double rank_factor[N_RANKS] = {1, 1, 1, 1};
    char *text = fuzz_text((struct fuzz_bytes){bytes, n}), *rest = text, *edit;
    struct mist_err err = {0};

    if (!is_loaded) {
        static const char folder[] = "tests/data/cli/traces";
        fuzz_must(mist_trace_set_load(&original, folder, &err), &err);
        fuzz_must(mist_trace_set_load(&edited, folder, &err), &err);
        fuzz_must(mist_trace_set_load(&before, folder, &err), &err);
        is_loaded = true;
    }
    copy_rows(&edited, &original);
    while ((edit = strtok_r(rest, "\n", &rest)))
        apply(edit, &before, rank_factor);
    free(text);
    return 0;
}

void fuzz_write_seeds(void)
{
    fuzz_seed_text("factors", "kernel.attention=0.7x\nkernel.all=2x\nlink.all=2x\n"
                              "link.inter_node=1.5x\nlaunch=0.5x");
    fuzz_seed_text("rates", "link.all_reduce=400Gb/s\nlink.intra_node=8GiB/s");
    fuzz_seed_text("others", "interference=none\ncluster.nodes=4\n"
                             "cluster.devices_per_node=8\nstraggler.rank3=1.3x");
}
