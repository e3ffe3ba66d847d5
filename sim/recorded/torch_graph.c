/* The graph of a rank's trace. See torch_graph.h and torch_job.h. */
#include "sim/recorded/torch_graph.h"

#include "core/memory.h"
#include "core/order.h"
#include "core/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Clocks of old profilers have whole microseconds, in starts and in durations. */
static const double CLOCK_US = 2;

/* From its launch or from the end of another, a work usually begins sooner. */
static const double LATE_US = 20;

struct ref { /* by a correlation, to an element of an array */
    int64_t correlation;
    size_t i;
};

struct stream {
    int64_t id;
    size_t first, behind; /* of works */
};

struct thread {
    int64_t id;
    int64_t last_op; /* -1: none yet */
    double last_end_us;
    double wrapper_end_us; /* of NCCL's wrapper that was entered last */
};

struct wait { /* a call that makes a stream wait for an event; -1: not said */
    double call_us, record_us;
    int64_t stream, source;
};

struct rank {
    struct mist_torch_graph *graph;
    struct mist_torch_trace *trace; /* sorted: works by stream, calls by start */
    int32_t rank;
    int64_t first_op;          /* works[i] is operation first_op + i */
    double *launch_us;         /* [n_works] */
    double *launches_us;       /* the same, sorted */
    struct ref *works, *calls; /* sorted; owned, as the others */
    struct stream *streams;
    struct thread *threads;
    struct wait *waits; /* as they were called */
    size_t n_streams, n_threads, n_waits, threads_capacity, waits_capacity;
    bool is_out_of_memory;
};

MIST_COMPARATOR(compare_works, struct mist_torch_work, stream, start_us, end_us,
                correlation)

MIST_COMPARATOR(compare_calls, struct mist_torch_call, start_us, thread, end_us,
                correlation)

MIST_COMPARATOR(compare_spans, struct mist_torch_span, start_us)

MIST_COMPARATOR(compare_syncs, struct mist_torch_sync, correlation)

MIST_COMPARATOR(compare_refs, struct ref, correlation, i)

/* ------------------------------------------------------------------------------- parts */

/* The first reference to a correlation; n: there is none, or it is -1. */
static size_t find_ref(const struct ref *refs, size_t n, int64_t correlation)
{
    MIST_BISECT(low, 0, n, i, refs[i].correlation < correlation);
    return low < n && correlation >= 0 && refs[low].correlation == correlation ? low : n;
}

static const struct mist_torch_sync *find_sync(const struct rank *at, int64_t correlation)
{
    const struct mist_torch_sync key = {.correlation = correlation};
    const struct mist_torch_trace *trace = at->trace;

    return trace->n_syncs > 0 && correlation >= 0
               ? bsearch(&key, trace->syncs, trace->n_syncs, sizeof key, compare_syncs)
               : NULL;
}

static bool launches(const struct mist_torch_call *call)
{
    return call->kind == MIST_TORCH_CALL_LAUNCH || call->kind == MIST_TORCH_CALL_COPY;
}

/* The first call with a correlation that launches, or that does not; NULL: none. */
static const struct mist_torch_call *find_call(const struct rank *at, int64_t correlation,
                                               bool that_launches)
{
    size_t n = at->trace->n_calls;

    for (size_t k = find_ref(at->calls, n, correlation);
         k < n && at->calls[k].correlation == correlation; k++) {
        const struct mist_torch_call *call = &at->trace->calls[at->calls[k].i];
        if (launches(call) == that_launches)
            return call;
    }
    return NULL;
}

static struct thread *find_thread(struct rank *at, int64_t id)
{
    for (size_t i = 0; i < at->n_threads; i++)
        if (at->threads[i].id == id)
            return &at->threads[i];
    if (MIST_APPEND(at->threads, at->threads_capacity, at->n_threads,
                    (struct thread){.id = id,
                                    .last_op = -1,
                                    .last_end_us = -INFINITY,
                                    .wrapper_end_us = -INFINITY}))
        return &at->threads[at->n_threads - 1];
    at->is_out_of_memory = true;
    return NULL;
}

static void wait_for(struct rank *at, int64_t op, int64_t waits_for)
{
    if (!mist_recorded_edges_add(&at->graph->edges, op, waits_for))
        at->is_out_of_memory = true;
}

/* -1: no memory. */
static int64_t add_op(struct rank *at, int32_t kind, double start_us, double end_us)
{
    struct mist_torch_graph *graph = at->graph;

    if (!MIST_RESERVE(graph->ops, graph->capacity, graph->n_ops + 1)) {
        at->is_out_of_memory = true;
        return -1;
    }
    graph->ops[graph->n_ops] = (struct mist_torch_op){.start_us = start_us,
                                                      .end_us = end_us,
                                                      .rank = at->rank,
                                                      .kind = kind,
                                                      .meeting = -1};
    return (int64_t)graph->n_ops++;
}

/* What an operation may have waited for: the last work of a stream that was launched before
 * an event was recorded. What ended later than the operation lets it was not waited for,
 * whatever the calls look like. */
struct sources {
    int64_t stream, but;           /* -1: any; and not this one */
    double record_us;              /* of the event */
    double earliest_us, latest_us; /* it ended between these */
};

/* Returns when the last of what op waits for ended; -INFINITY: it waits for nothing. */
static double wait_for_streams(struct rank *at, int64_t op, const struct sources *sources)
{
    double latest_us = -INFINITY;

    for (size_t s = 0; s < at->n_streams; s++) {
        const struct stream *stream = &at->streams[s];
        if (stream->id == sources->but ||
            (sources->stream >= 0 && stream->id != sources->stream))
            continue;
        /* the first that is not meant */
        MIST_BISECT(low, stream->first, stream->behind, i,
                    at->launch_us[i] < sources->record_us &&
                        at->trace->works[i].end_us <= sources->latest_us);
        if (low == stream->first ||
            at->trace->works[low - 1].end_us < sources->earliest_us)
            continue;
        wait_for(at, op, at->first_op + (int64_t)low - 1);
        latest_us = fmax(latest_us, at->trace->works[low - 1].end_us);
    }
    return latest_us;
}

/* -------------------------------------------------------------------------------- host */

/* What a call waits for or makes a stream wait for. */
static struct wait what_it_waits_for(const struct rank *at,
                                     const struct mist_torch_call *call)
{
    const struct mist_torch_sync *sync = find_sync(at, call->correlation);
    struct wait wait = {.call_us = call->start_us,
                        .record_us = call->start_us,
                        .stream = -1,
                        .source = -1};

    if (!sync)
        return wait;
    const struct mist_torch_call *record = find_call(at, sync->record_correlation, false);
    if (record)
        wait.record_us = record->start_us;
    wait.stream = sync->stream;
    wait.source = sync->source;
    if (call->kind == MIST_TORCH_CALL_SYNC && wait.source < 0)
        wait.source = sync->stream;
    return wait;
}

static void add_wait(struct rank *at, const struct mist_torch_call *call)
{
    if (!MIST_APPEND(at->waits, at->waits_capacity, at->n_waits,
                     what_it_waits_for(at, call)))
        at->is_out_of_memory = true;
}

/* Behind the one before it on its thread. */
static int64_t add_host_op(struct rank *at, struct thread *thread, int32_t kind,
                           double start_us, double end_us)
{
    int64_t op = add_op(at, kind, start_us, end_us);

    if (op >= 0 && thread->last_op >= 0)
        wait_for(at, op, thread->last_op);
    thread->last_op = op;
    thread->last_end_us = end_us;
    return op;
}

/* A call also waits for the last one of any thread that had ended: a thread goes on where
 * another has brought it. */
static int64_t last_of_others(const struct rank *at, const struct thread *thread,
                              double start_us)
{
    const struct thread *last = NULL;

    for (size_t i = 0; i < at->n_threads; i++)
        if (at->threads[i].last_op >= 0 && at->threads[i].last_end_us <= start_us &&
            (!last || at->threads[i].last_end_us > last->last_end_us))
            last = &at->threads[i];
    return last && last != thread ? last->last_op : -1;
}

/* The end of a call that blocks, behind what it waits for on the device. */
static void add_return(struct rank *at, struct thread *thread,
                       const struct mist_torch_call *call, size_t first_ref)
{
    int64_t op =
        add_host_op(at, thread, MIST_TORCH_SYNCHRONIZE, call->end_us, call->end_us);
    double latest_us = -INFINITY;

    if (op < 0)
        return;
    if (call->kind == MIST_TORCH_CALL_SYNC) {
        struct wait wait = what_it_waits_for(at, call);
        struct sources sources = {.stream = wait.source,
                                  .but = -1,
                                  .record_us = wait.record_us,
                                  .earliest_us = -INFINITY,
                                  .latest_us = call->end_us + CLOCK_US};
        latest_us = wait_for_streams(at, op, &sources);
    }
    for (size_t k = first_ref;
         k < at->trace->n_works && at->works[k].correlation == call->correlation; k++) {
        wait_for(at, op, at->first_op + (int64_t)at->works[k].i);
        latest_us = fmax(latest_us, at->trace->works[at->works[k].i].end_us);
    }
    at->graph->ops[op].start_us = fmin(call->end_us, fmax(call->start_us, latest_us));
}

/* A launch ends where the call returns, or where what it launched starts if that is
 * earlier. */
static void add_call(struct rank *at, struct thread *thread,
                     const struct mist_torch_call *call)
{
    const struct mist_torch_work *works = at->trace->works;
    size_t n_works = at->trace->n_works;
    size_t first = find_ref(at->works, n_works, call->correlation);
    bool is_sync = call->kind == MIST_TORCH_CALL_SYNC;
    double end_us = is_sync ? call->start_us : call->end_us, works_end_us = -INFINITY;

    if (!is_sync && (!launches(call) || first == n_works))
        return;
    for (size_t k = first; k < n_works && at->works[k].correlation == call->correlation;
         k++) {
        end_us = fmin(end_us, works[at->works[k].i].start_us);
        works_end_us = fmax(works_end_us, works[at->works[k].i].end_us);
    }
    int64_t other = last_of_others(at, thread, call->start_us);
    int64_t op =
        add_host_op(at, thread, is_sync ? MIST_TORCH_SYNCHRONIZE : MIST_TORCH_LAUNCH,
                    call->start_us, fmax(call->start_us, end_us));
    if (other >= 0)
        wait_for(at, op, other);
    for (size_t k = first; k < n_works && at->works[k].correlation == call->correlation;
         k++)
        wait_for(at, at->first_op + (int64_t)at->works[k].i, op);
    if (is_sync || (call->kind == MIST_TORCH_CALL_COPY && works_end_us <= call->end_us))
        add_return(at, thread, call, first);
}

static void add_calls(struct rank *at)
{
    const struct mist_torch_trace *trace = at->trace;
    size_t i_span = 0;

    for (size_t i = 0; i < trace->n_calls && !at->is_out_of_memory; i++) {
        const struct mist_torch_call *call = &trace->calls[i];
        for (; i_span < trace->n_spans && trace->spans[i_span].start_us <= call->start_us;
             i_span++) {
            const struct mist_torch_span *span = &trace->spans[i_span];
            struct thread *wrapped = find_thread(at, span->thread);
            if (wrapped)
                wrapped->wrapper_end_us = fmax(wrapped->wrapper_end_us, span->end_us);
        }
        struct thread *thread = find_thread(at, call->thread);
        if (!thread)
            return;
        if (call->kind != MIST_TORCH_CALL_WAIT)
            add_call(at, thread, call);
        else if (call->start_us >= thread->wrapper_end_us)
            add_wait(at, call);
    }
}

/* ------------------------------------------------------------------------------ device */

/* The first wait that was called behind a time. */
static size_t first_wait(const struct rank *at, double behind_us)
{
    MIST_BISECT(low, 0, at->n_waits, i, at->waits[i].call_us <= behind_us);
    return low;
}

/* Whether work i was launched at the first launch behind a time. */
static bool is_launched_next(const struct rank *at, size_t i, double behind_us)
{
    MIST_BISECT(low, 0, at->trace->n_works, k, at->launches_us[k] <= behind_us);
    return low < at->trace->n_works && at->launches_us[low] == at->launch_us[i];
}

/*
 * What the stream of work i was made to wait for since its work before was launched. A wait
 * that does not say for which stream is for that of the next launch, or for one that began
 * late and right behind what may have been waited for. The last such wait covers those
 * before.
 */
static void wait_for_events(struct rank *at, const struct stream *stream, size_t i)
{
    const struct mist_torch_work *works = at->trace->works;
    double before_us = i > stream->first ? at->launch_us[i - 1] : -INFINITY;
    double free_us = fmax(at->launch_us[i], i > stream->first ? works[i - 1].end_us : 0);
    size_t first = first_wait(at, before_us), k = first_wait(at, at->launch_us[i]);
    bool has_any = false;

    while (k-- > first) {
        const struct wait *wait = &at->waits[k];
        struct sources sources = {.stream = wait->source,
                                  .but = stream->id,
                                  .record_us = wait->record_us,
                                  .earliest_us = -INFINITY,
                                  .latest_us = works[i].start_us + CLOCK_US};
        bool is_any = wait->stream < 0;
        if (is_any ? has_any : wait->stream != stream->id)
            continue;
        has_any |= is_any;
        if (is_any && !is_launched_next(at, i, wait->call_us)) {
            sources.earliest_us = works[i].start_us - LATE_US;
            if (free_us >= sources.earliest_us)
                continue;
        }
        wait_for_streams(at, at->first_op + (int64_t)i, &sources);
    }
}

static void link_works(struct rank *at)
{
    for (size_t s = 0; s < at->n_streams && !at->is_out_of_memory; s++)
        for (size_t i = at->streams[s].first; i < at->streams[s].behind; i++) {
            if (i > at->streams[s].first)
                wait_for(at, at->first_op + (int64_t)i, at->first_op + (int64_t)i - 1);
            wait_for_events(at, &at->streams[s], i);
        }
}

/* Operations of what ran on the device, its streams, and when it was launched. */
static void add_works(struct rank *at)
{
    const struct mist_torch_trace *trace = at->trace;
    struct stream *stream = NULL;
    int32_t n_groups = 0;   /* of ranks that are not named, each with its stream */
    bool has_group = false; /* the stream */

    for (size_t i = 0; i < trace->n_works && !at->is_out_of_memory; i++) {
        const struct mist_torch_work *work = &trace->works[i];
        const struct mist_torch_call *call = find_call(at, work->correlation, true);
        if (!stream || stream->id != work->stream) {
            stream = &at->streams[at->n_streams++];
            *stream = (struct stream){.id = work->stream, .first = i};
            has_group = false;
        }
        stream->behind = i + 1;
        at->launch_us[i] = call ? call->start_us : work->start_us;
        at->graph->n_unlaunched += !call;
        int64_t op = add_op(at, work->kind, work->start_us, work->end_us);
        if (op < 0 || !mist_torch_kind_is_between_ranks(work->kind))
            continue;
        n_groups += work->group < 0 && !has_group;
        has_group |= work->group < 0;
        at->graph->ops[op].group = work->group < 0 ? -n_groups : work->group;
    }
}

/* ------------------------------------------------------------------------------- ranks */

static void sort(void *items, size_t n, size_t bytes,
                 int (*compare)(const void *, const void *))
{
    if (n > 0)
        qsort(items, n, bytes, compare);
}

static bool begin_rank(struct rank *at)
{
    struct mist_torch_trace *trace = at->trace;

    sort(trace->works, trace->n_works, sizeof *trace->works, compare_works);
    sort(trace->calls, trace->n_calls, sizeof *trace->calls, compare_calls);
    sort(trace->spans, trace->n_spans, sizeof *trace->spans, compare_spans);
    sort(trace->syncs, trace->n_syncs, sizeof *trace->syncs, compare_syncs);
    if (!MIST_MALLOC(at->launch_us, trace->n_works + 1) ||
        !MIST_MALLOC(at->launches_us, trace->n_works + 1) ||
        !MIST_MALLOC(at->works, trace->n_works + 1) ||
        !MIST_MALLOC(at->calls, trace->n_calls + 1) ||
        !MIST_MALLOC(at->streams, trace->n_works + 1))
        return false;
    for (size_t i = 0; i < trace->n_works; i++)
        at->works[i] = (struct ref){trace->works[i].correlation, i};
    for (size_t i = 0; i < trace->n_calls; i++)
        at->calls[i] = (struct ref){trace->calls[i].correlation, i};
    sort(at->works, trace->n_works, sizeof *at->works, compare_refs);
    sort(at->calls, trace->n_calls, sizeof *at->calls, compare_refs);
    return true;
}

static void sort_launches(struct rank *at)
{
    size_t n = at->trace->n_works;

    memcpy(at->launches_us, at->launch_us, n * sizeof *at->launches_us);
    mist_sort_doubles(at->launches_us, n);
}

bool mist_torch_graph_add_rank(struct mist_torch_graph *graph,
                               struct mist_torch_trace *trace, int32_t rank)
{
    struct rank at = {
        .graph = graph, .trace = trace, .rank = rank, .first_op = (int64_t)graph->n_ops};

    at.is_out_of_memory = !begin_rank(&at);
    if (!at.is_out_of_memory)
        add_works(&at);
    if (!at.is_out_of_memory)
        sort_launches(&at);
    if (!at.is_out_of_memory)
        add_calls(&at);
    if (!at.is_out_of_memory)
        link_works(&at);
    free(at.launch_us);
    free(at.launches_us);
    free(at.works);
    free(at.calls);
    free(at.streams);
    free(at.threads);
    free(at.waits);
    return !at.is_out_of_memory;
}

void mist_torch_graph_free(struct mist_torch_graph *graph)
{
    free(graph->ops);
    free(graph->edges.items);
    *graph = (struct mist_torch_graph){0};
}
