/*
 * Brings the clocks of ranks together. See torch_graph.h.
 *
 * A message ends at the same time for all who pass it. So a rank's clock is off by the median,
 * over its messages, of how much earlier they ended for a rank whose clock is right: first
 * for those who share messages with the first rank, then for those who share some with them.
 */
#include "sim/recorded/torch_graph.h"

#include "core/memory.h"
#include "core/order.h"

#include <math.h>
#include <stdlib.h>

/* Ends of one message differ by less on one host, so that clocks are left as they are. */
static const double LEAST_US = 100;

struct member { /* of a message */
    int32_t meeting, rank;
    double end_us;
};

struct sample { /* of how much a rank's clock is behind */
    int32_t rank;
    double by_us;
};

struct aligning {
    struct member *members; /* by meeting */
    struct sample *samples; /* as many */
    size_t n_members, n_samples;
    double *shift_us; /* [n_ranks] NAN: not known yet */
};

MIST_COMPARATOR(compare_members, struct member, meeting, rank)

MIST_COMPARATOR(compare_samples, struct sample, rank, by_us)

/* Compares members whose clock is not known with the first one whose clock is. */
static void take_samples(struct aligning *at)
{
    at->n_samples = 0;
    for (size_t i = 0, behind; i < at->n_members; i = behind) {
        double right_us = NAN;
        for (behind = i; behind < at->n_members &&
                         at->members[behind].meeting == at->members[i].meeting;
             behind++)
            if (isnan(right_us))
                right_us =
                    at->members[behind].end_us + at->shift_us[at->members[behind].rank];
        for (size_t k = i; k < behind && !isnan(right_us); k++)
            if (isnan(at->shift_us[at->members[k].rank]))
                at->samples[at->n_samples++] = (struct sample){
                    at->members[k].rank, right_us - at->members[k].end_us};
    }
}

static void find_shifts(struct aligning *at)
{
    for (take_samples(at); at->n_samples > 0; take_samples(at)) {
        qsort(at->samples, at->n_samples, sizeof *at->samples, compare_samples);
        for (size_t i = 0, n; i < at->n_samples; i += n) {
            int32_t rank = at->samples[i].rank;
            for (n = 1; i + n < at->n_samples && at->samples[i + n].rank == rank; n++)
                ;
            double by_us = at->samples[i + n / 2].by_us;
            at->shift_us[rank] = fabs(by_us) < LEAST_US ? 0 : by_us;
        }
    }
}

static void shift(struct mist_torch_graph *graph, const double *shift_us)
{
    for (size_t i = 0; i < graph->n_ops; i++) {
        double by_us = shift_us[graph->ops[i].rank];
        if (isnan(by_us))
            continue;
        graph->ops[i].start_us += by_us;
        graph->ops[i].end_us += by_us;
        graph->shift_us = fmax(graph->shift_us, fabs(by_us));
    }
}

bool mist_torch_graph_align(struct mist_torch_graph *graph, int32_t n_ranks)
{
    struct aligning at = {0};
    size_t n = graph->n_ops + 1;

    bool has_memory = MIST_MALLOC(at.members, n) && MIST_MALLOC(at.samples, n) &&
                      MIST_MALLOC(at.shift_us, n_ranks);
    for (int32_t r = 0; has_memory && r < n_ranks; r++)
        at.shift_us[r] = r == 0 ? 0 : NAN;
    for (size_t i = 0; has_memory && i < graph->n_ops; i++)
        if (graph->ops[i].meeting >= 0)
            at.members[at.n_members++] = (struct member){
                graph->ops[i].meeting, graph->ops[i].rank, graph->ops[i].end_us};
    if (has_memory && at.n_members > 0) {
        qsort(at.members, at.n_members, sizeof *at.members, compare_members);
        find_shifts(&at);
        shift(graph, at.shift_us);
    }
    free(at.members);
    free(at.samples);
    free(at.shift_us);
    return has_memory;
}
