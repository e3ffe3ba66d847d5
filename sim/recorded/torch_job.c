/* Traces of all ranks. See torch_job.h. */
#include "sim/recorded/torch_job.h"

#include "core/memory.h"
#include "sim/recorded/torch_graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Clocks of different hosts differ by less. */
static const double CLOCKS_US = 10e3;

struct span_us {
    double first_us, last_us;
};

struct joining {
    const char *const *paths;
    int n_paths;
    struct mist_torch_header *headers; /* [n_paths] */
    struct mist_torch_graph graph;
    struct mist_torch_texts texts;
    struct span_us first_span; /* of paths[0] */
    struct mist_err *err;
};

static enum mist_status out_of_memory(struct joining *at)
{
    return mist_err_set(at->err, MIST_ERR_MEMORY,
                        "out of memory for a graph of %zu operations", at->graph.n_ops);
}

/* -------------------------------------------------------------------------- one of all */

/* Whether the i-th trace is of the same job as the first, and of a rank of its own. */
static enum mist_status check_header(struct joining *at, int i)
{
    const struct mist_torch_header *own = &at->headers[i], *first = &at->headers[0];

    if (own->n_ranks != first->n_ranks)
        return mist_err_at(at->err, MIST_ERR_INPUT, at->paths[i], 0, 0,
                           "is of a job of %lld ranks, %s of %lld (world_size); expected "
                           "traces of one run",
                           (long long)own->n_ranks, at->paths[0],
                           (long long)first->n_ranks);
    if ((own->rank < 0) != (first->rank < 0))
        return mist_err_at(
            at->err, MIST_ERR_INPUT, at->paths[i], 0, 0,
            "%s its rank (distributedInfo), %s does not; expected traces of "
            "one run",
            own->rank < 0 ? "does not say" : "says", at->paths[0]);
    for (int k = 0; k < i && own->rank >= 0; k++)
        if (at->headers[k].rank == own->rank)
            return mist_err_at(at->err, MIST_ERR_INPUT, at->paths[i], 0, 0,
                               "is of rank %lld, as %s; expected one trace of each rank",
                               (long long)own->rank, at->paths[k]);
    return MIST_OK;
}

static enum mist_status check_ranks(struct joining *at)
{
    int64_t n_ranks = at->headers[0].n_ranks;

    for (int i = 0; i < at->n_paths; i++)
        n_ranks = at->headers[i].rank >= n_ranks ? at->headers[i].rank + 1 : n_ranks;
    for (int64_t rank = 0; rank < n_ranks && at->headers[0].rank >= 0; rank++) {
        bool is_there = false;
        for (int i = 0; i < at->n_paths; i++)
            is_there |= at->headers[i].rank == rank;
        if (!is_there)
            return mist_err_at(at->err, MIST_ERR_INPUT, at->paths[0], 0, 0,
                               "is of a job of %lld ranks, and the trace of rank %lld is "
                               "missing; expected those of all ranks, or one alone",
                               (long long)n_ranks, (long long)rank);
    }
    return MIST_OK;
}

/* Clocks that begin at another time than the first trace's. */
static void shift(struct joining *at, int i, struct mist_torch_trace *trace)
{
    double by_us = 1e-3 * (double)(at->headers[i].base_ns - at->headers[0].base_ns);

    for (size_t k = 0; k < trace->n_calls; k++) {
        trace->calls[k].start_us += by_us;
        trace->calls[k].end_us += by_us;
    }
    for (size_t k = 0; k < trace->n_works; k++) {
        trace->works[k].start_us += by_us;
        trace->works[k].end_us += by_us;
    }
    for (size_t k = 0; k < trace->n_spans; k++) {
        trace->spans[k].start_us += by_us;
        trace->spans[k].end_us += by_us;
    }
}

/* Ranks of one run were busy at the same time. */
static enum mist_status check_span(struct joining *at, int i, size_t first_op)
{
    struct span_us own = {INFINITY, -INFINITY};

    for (size_t k = first_op; k < at->graph.n_ops; k++) {
        own.first_us = fmin(own.first_us, at->graph.ops[k].start_us);
        own.last_us = fmax(own.last_us, at->graph.ops[k].end_us);
    }
    if (i == 0)
        at->first_span = own;
    double apart_us = fmax(own.first_us - at->first_span.last_us,
                           at->first_span.first_us - own.last_us);
    if (apart_us <= CLOCKS_US)
        return MIST_OK;
    return mist_err_at(at->err, MIST_ERR_INPUT, at->paths[i], 0, 0,
                       "was recorded %.3g s apart from %s; expected traces of one run",
                       1e-6 * apart_us, at->paths[0]);
}

static enum mist_status add_trace(struct joining *at, int i,
                                  struct mist_progress *progress)
{
    struct mist_torch_trace trace;
    size_t first_op = at->graph.n_ops;
    enum mist_status status =
        mist_torch_trace_load(at->paths[i], &trace, &at->texts, progress, at->err);

    at->headers[i] = trace.header;
    if (status == MIST_OK)
        status = check_header(at, i);
    if (status == MIST_OK) {
        bool has_rank = at->n_paths > 1 && trace.header.rank >= 0;
        shift(at, i, &trace);
        if (!mist_torch_graph_add_rank(&at->graph, &trace,
                                       has_rank ? (int32_t)trace.header.rank : i))
            status = out_of_memory(at);
    }
    if (status == MIST_OK)
        status = check_span(at, i, first_op);
    mist_torch_trace_free(&trace);
    return status;
}

/* --------------------------------------------------------------------------------- all */

static void fill_op(const struct mist_torch_op *op, double first_us, int64_t i,
                    struct mist_recorded_job *job)
{
    job->ops[i] = (struct mist_recorded_op){
        .replica = op->rank, .kind = op->kind, .meeting = op->meeting};
    job->recorded.start_s[i] = 1e-6 * (op->start_us - first_us);
    job->recorded.end_s[i] = 1e-6 * (op->end_us - first_us);
}

static enum mist_status fill_job(struct joining *at, struct mist_recorded_job *job,
                                 struct mist_arena *arena)
{
    const struct mist_torch_graph *graph = &at->graph;
    double first_us = INFINITY;

    job->n_ops = (int64_t)graph->n_ops;
    job->n_stages = 1;
    job->n_replicas = at->n_paths;
    job->n_kinds = MIST_TORCH_N_KINDS;
    job->n_meetings = graph->n_meetings;
    job->n_unlaunched = graph->n_unlaunched;
    job->n_unmatched = graph->n_unmatched;
    job->clock_shift_s = 1e-6 * graph->shift_us;
    if (!mist_recorded_job_alloc(job, arena) ||
        !mist_recorded_edges_end(&at->graph.edges, job, arena))
        return out_of_memory(at);
    memcpy(job->kinds, mist_torch_kinds, sizeof mist_torch_kinds);
    for (size_t i = 0; i < graph->n_ops; i++)
        first_us = fmin(first_us, graph->ops[i].start_us);
    for (size_t i = 0; i < graph->n_ops; i++)
        fill_op(&graph->ops[i], first_us, (int64_t)i, job);
    return MIST_OK;
}

/* Ranks that pass messages, and none of them to one another, were not recorded at once. */
static enum mist_status check_meetings(struct joining *at)
{
    if (at->n_paths == 1 || at->graph.n_meetings > 0 || at->graph.n_unmatched == 0)
        return MIST_OK;
    return mist_err_at(
        at->err, MIST_ERR_INPUT, at->paths[0], 0, 0,
        "has no message that matches those of the other %d traces; expected "
        "traces of one run, of the same steps",
        at->n_paths - 1);
}

enum mist_status mist_recorded_read_torch(const char *const *paths, int n_paths,
                                          struct mist_recorded_job *job,
                                          struct mist_progress *progress,
                                          struct mist_arena *arena, struct mist_err *err)
{
    struct joining at = {.paths = paths, .n_paths = n_paths, .err = err};
    enum mist_status status = MIST_OK;

    *job = (struct mist_recorded_job){0};
    if (!MIST_CALLOC(at.headers, n_paths))
        status = out_of_memory(&at);
    for (int i = 0; i < n_paths && status == MIST_OK; i++)
        status = add_trace(&at, i, progress);
    if (status == MIST_OK && n_paths > 1)
        status = check_ranks(&at);
    if (status == MIST_OK && (!mist_torch_graph_match(&at.graph) ||
                              !mist_torch_graph_align(&at.graph, n_paths)))
        status = out_of_memory(&at);
    if (status == MIST_OK)
        status = check_meetings(&at);
    if (status == MIST_OK)
        status = fill_job(&at, job, arena);
    if (status == MIST_OK)
        status = mist_recorded_prepare(job, arena, err);
    if (status == MIST_ERR_INPUT)
        mist_err_locate(err, paths[0], 0);
    mist_torch_graph_free(&at.graph);
    mist_torch_texts_free(&at.texts);
    free(at.headers);
    return status;
}
