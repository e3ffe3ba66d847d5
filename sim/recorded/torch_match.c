/* Which messages of several ranks are one. See torch_graph.h and torch_job.h. */
#include "sim/recorded/torch_graph.h"

#include "core/order.h"

#include <math.h>
#include <stdlib.h>

/* Those who pass a message are all there for a while, by clocks that differ by less. */
static const double CLOCKS_US = 10e3;

struct message {
    int32_t group, kind, rank;
    double start_us, end_us;
    size_t op;
};

MIST_COMPARATOR(compare_messages, struct message, group, kind, rank, start_us, op)

/* Whether n messages of one group and kind are those of n_ranks ranks, as many of each, that
 * are there at once. Of transfers in a larger group nothing says between which two. */
static bool are_matched(const struct message *messages, size_t n, size_t n_ranks)
{
    size_t n_each = n / n_ranks;

    if (n_ranks < 2 || n % n_ranks != 0 ||
        (messages->kind == MIST_TORCH_SEND_RECV && n_ranks > 2))
        return false;
    for (size_t i = 0; i < n; i++)
        if (messages[i].rank != messages[i - i % n_each].rank)
            return false;
    for (size_t i = 0; i < n_each; i++) {
        double latest_us = -INFINITY, earliest_us = INFINITY;
        for (size_t k = i; k < n; k += n_each) {
            latest_us = fmax(latest_us, messages[k].start_us);
            earliest_us = fmin(earliest_us, messages[k].end_us);
        }
        if (latest_us > earliest_us + CLOCKS_US)
            return false;
    }
    return true;
}

static size_t collect(const struct mist_torch_graph *graph, struct message *messages)
{
    size_t n = 0;

    for (size_t i = 0; i < graph->n_ops; i++) {
        const struct mist_torch_op *op = &graph->ops[i];
        if (mist_torch_kind_is_between_ranks(op->kind))
            messages[n++] = (struct message){op->group,    op->kind,   op->rank,
                                             op->start_us, op->end_us, i};
    }
    return n;
}

bool mist_torch_graph_match(struct mist_torch_graph *graph)
{
    struct message *messages = malloc((graph->n_ops + 1) * sizeof *messages);

    if (!messages)
        return false;
    size_t n_all = collect(graph, messages);
    if (n_all > 0)
        qsort(messages, n_all, sizeof *messages, compare_messages);
    for (size_t i = 0, n; i < n_all; i += n) {
        const struct message *first = &messages[i];
        size_t n_ranks = 1;
        for (n = 1; i + n < n_all && first[n].group == first->group &&
                    first[n].kind == first->kind;
             n++)
            n_ranks += first[n].rank != first[n - 1].rank;
        if (!are_matched(first, n, n_ranks)) {
            graph->n_unmatched += (int64_t)n;
            continue;
        }
        for (size_t k = 0; k < n; k++)
            graph->ops[first[k].op].meeting =
                graph->n_meetings + (int32_t)(k % (n / n_ranks));
        graph->n_meetings += (int32_t)(n / n_ranks);
    }
    free(messages);
    return true;
}
