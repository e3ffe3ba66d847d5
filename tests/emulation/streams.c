/* See streams.h. A stream is a list of works; a wait names a stream and how many works of
 * that one must have been done. In a graph works are in the order of the capture, and
 * each names up to two before it: the last of its stream, and the one of an event. */
#include "tests/emulation/streams.h"

#include "core/clock.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { WORK_RUN, WORK_HOST, WORK_RECORD, WORK_WAIT, WORK_NOTHING };

struct work {
    struct work *next;
    enum kind kind;
    void (*fn)(void *);
    void *arg;                  /* of WORK_HOST; the others have a copy behind this */
    struct CUevent_st *event;   /* of WORK_RECORD */
    struct CUstream_st *stream; /* of WORK_WAIT */
    uint64_t n_works;           /* of WORK_WAIT */
    struct work *before[2];     /* in a graph; NULL: none */
    struct work *previous;      /* in a graph: the one captured before */
    uint64_t visit;             /* of a graph, the latest that came here */
    max_align_t copy[];
};

struct CUstream_st {
    struct CUstream_st *next; /* the one made before */
    struct work *first, **last;
    uint64_t n_queued, n_done; /* ever */
    bool is_running;
    int priority; /* nobody here minds it */
    bool is_capturing;
    struct work *captured; /* the last, while it does; NULL: none */
};

struct CUevent_st {
    struct CUstream_st *stream; /* of the latest record; NULL: none */
    uint64_t n_works;           /* of that stream, the record being the last */
    struct work *captured;      /* the record, if that was captured */
    uint64_t graph;             /* number of the one it is in; 0: none */
    double time_s;
};

struct CUgraph_st {
    uint64_t number;            /* from 1 */
    struct work *first, *last;  /* in the order of the capture */
    struct CUstream_st *origin; /* where the capture began */
    enum mist_emulated_misuse misuse;
    int n_owners;
    uint64_t n_visits;
};

static struct {
    bool has_order;
    enum mist_emulated_order order;
    struct CUstream_st *streams; /* newest first */
    int n_streams, n_events, n_graphs;
    struct CUgraph_st *capture; /* the running one; NULL: none */
    uint64_t n_captures;        /* ever */
} all;
static _Thread_local bool runs_host; /* a function of the host, in this thread */

void (*mist_emulated_watch)(const char *what);

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);

    if (!memory) {
        fprintf(stderr, "emulation: out of memory\n");
        abort();
    }
    return memory;
}

static enum mist_emulated_order order_now(void)
{
    const char *text = getenv("MIST_EMULATION_STREAMS");

    if (!all.has_order) {
        all.has_order = true;
        if (text && strcmp(text, "lazy") == 0)
            all.order = MIST_EMULATED_LAZY;
        else if (text && strcmp(text, "lazy-forward") == 0)
            all.order = MIST_EMULATED_LAZY_FORWARD;
    }
    return all.order;
}

void mist_emulated_stream_enter(const char *call)
{
    if (!runs_host)
        return;
    fprintf(stderr, "emulation: a function of the host in a stream calls %s\n", call);
    abort();
}

/* -------------------------------------------------------------------------- running */

static void run_until(struct CUstream_st *stream, uint64_t n_works);

static void run_work(struct work *work)
{
    switch (work->kind) {
    case WORK_RUN:
        work->fn(work->copy);
        break;
    case WORK_HOST:
        runs_host = true;
        work->fn(work->arg);
        runs_host = false;
        break;
    case WORK_RECORD:
        work->event->time_s = mist_clock_now_s();
        break;
    case WORK_WAIT:
        run_until(work->stream, work->n_works);
        break;
    case WORK_NOTHING:
        break;
    }
}

/* A stream waits only for what was queued before its wait, so this comes to an end. */
static void run_until(struct CUstream_st *stream, uint64_t n_works)
{
    while (stream->n_done < n_works) {
        struct work *work = stream->first;
        if (stream->is_running) {
            fprintf(stderr, "emulation: work in a stream waits for its own stream\n");
            abort();
        }
        stream->is_running = true;
        run_work(work);
        stream->is_running = false;
        stream->first = work->next;
        if (!stream->first)
            stream->last = &stream->first;
        stream->n_done++;
        free(work);
    }
}

/* Into the running capture, behind what its stream has and, if any, another work. */
static void capture(struct CUstream_st *stream, struct work *work, struct work *other)
{
    work->before[0] = stream->captured;
    work->before[1] = other;
    work->previous = all.capture->last;
    if (work->previous)
        work->previous->next = work;
    else
        all.capture->first = work;
    all.capture->last = stream->captured = work;
}

static void enqueue(struct CUstream_st *stream, struct work *work)
{
    if (stream->is_capturing) {
        capture(stream, work, NULL);
        return;
    }
    *stream->last = work;
    stream->last = &work->next;
    stream->n_queued++;
    if (order_now() == MIST_EMULATED_AT_ONCE)
        run_until(stream, stream->n_queued);
}

void mist_emulated_stream_run(struct CUstream_st *stream, void (*fn)(void *),
                              const void *arg, size_t arg_bytes)
{
    struct work *work = allocate(sizeof *work + arg_bytes);

    mist_emulated_stream_enter("a launch");
    work->kind = WORK_RUN;
    work->fn = fn;
    if (arg_bytes > 0)
        memcpy(work->copy, arg, arg_bytes);
    if (stream) {
        enqueue(stream, work);
        return;
    }
    run_work(work);
    free(work);
}

void mist_emulated_stream_run_host(struct CUstream_st *stream, void (*fn)(void *),
                                   void *arg)
{
    struct work *work = allocate(sizeof *work);

    work->kind = WORK_HOST;
    work->fn = fn;
    work->arg = arg;
    enqueue(stream, work);
}

static void run_others_first(void)
{
    if (order_now() == MIST_EMULATED_LAZY)
        mist_emulated_streams_synchronize();
}

void mist_emulated_streams_set(enum mist_emulated_order order)
{
    mist_emulated_streams_synchronize();
    all.has_order = true;
    all.order = order;
}

/* -------------------------------------------------------------------------- streams */

struct CUstream_st *mist_emulated_stream_new(int priority)
{
    struct CUstream_st *stream = allocate(sizeof *stream);

    stream->priority = priority;
    stream->last = &stream->first;
    stream->next = all.streams;
    all.streams = stream;
    all.n_streams++;
    return stream;
}

int mist_emulated_stream_priority(const struct CUstream_st *stream)
{
    return stream->priority;
}

void mist_emulated_stream_free(struct CUstream_st *stream)
{
    struct CUstream_st **at = &all.streams;

    /* Others may have to wait for works of this one. */
    mist_emulated_streams_synchronize();
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    all.n_streams--;
    free(stream);
}

enum mist_emulated_misuse mist_emulated_stream_synchronize(struct CUstream_st *stream)
{
    if (stream && stream->is_capturing)
        return all.capture->misuse = MIST_EMULATED_NOT_WHILE_CAPTURING;
    run_others_first();
    if (stream)
        run_until(stream, stream->n_queued);
    return MIST_EMULATED_FINE;
}

void mist_emulated_streams_synchronize(void)
{
    for (struct CUstream_st *stream = all.streams; stream; stream = stream->next)
        run_until(stream, stream->n_queued);
}

int mist_emulated_streams_count(void)
{
    return all.n_streams;
}

/* --------------------------------------------------------------------------- events */

struct CUevent_st *mist_emulated_event_new(void)
{
    all.n_events++;
    return allocate(sizeof(struct CUevent_st));
}

void mist_emulated_event_free(struct CUevent_st *event)
{
    if (!mist_emulated_event_is_done(event))
        mist_emulated_streams_synchronize();
    all.n_events--;
    free(event);
}

void mist_emulated_event_record(struct CUevent_st *event, struct CUstream_st *stream)
{
    struct work *work;

    event->graph = 0;
    if (!stream) { /* nothing is ever queued there */
        event->stream = NULL;
        event->time_s = mist_clock_now_s();
        return;
    }
    work = allocate(sizeof *work);
    if (stream->is_capturing) {
        work->kind = WORK_NOTHING;
        capture(stream, work, NULL);
        event->captured = work;
        event->graph = all.capture->number;
        return;
    }
    work->kind = WORK_RECORD;
    work->event = event;
    event->stream = stream;
    event->n_works = stream->n_queued + 1;
    enqueue(stream, work);
}

/* A stream that waits for a captured event takes part in the capture from then on. */
enum mist_emulated_misuse mist_emulated_event_wait(struct CUevent_st *event,
                                                   struct CUstream_st *stream)
{
    if (stream && all.capture && event->graph == all.capture->number) {
        struct work *join = allocate(sizeof *join);
        join->kind = WORK_NOTHING;
        stream->is_capturing = true;
        capture(stream, join, event->captured);
        return MIST_EMULATED_FINE;
    }
    if (stream && stream->is_capturing)
        return all.capture->misuse = MIST_EMULATED_OUTSIDE_EVENT;
    if (event->graph)
        return MIST_EMULATED_CAPTURED_EVENT;
    if (!event->stream || event->stream == stream || !stream)
        return MIST_EMULATED_FINE;
    struct work *work = allocate(sizeof *work);
    work->kind = WORK_WAIT;
    work->stream = event->stream;
    work->n_works = event->n_works;
    enqueue(stream, work);
    return MIST_EMULATED_FINE;
}

bool mist_emulated_event_is_done(const struct CUevent_st *event)
{
    return !event->stream || event->stream->n_done >= event->n_works;
}

enum mist_emulated_misuse mist_emulated_event_synchronize(struct CUevent_st *event)
{
    if (event->graph) {
        if (all.capture && event->graph == all.capture->number)
            all.capture->misuse = MIST_EMULATED_NOT_WHILE_CAPTURING;
        return MIST_EMULATED_CAPTURED_EVENT;
    }
    if (mist_emulated_event_is_done(event))
        return MIST_EMULATED_FINE;
    run_others_first();
    run_until(event->stream, event->n_works);
    return MIST_EMULATED_FINE;
}

double mist_emulated_event_time_s(const struct CUevent_st *event)
{
    return event->time_s;
}

int mist_emulated_events_count(void)
{
    return all.n_events;
}

/* --------------------------------------------------------------------------- graphs */

bool mist_emulated_streams_capture(void)
{
    return all.capture != NULL;
}

enum mist_emulated_misuse mist_emulated_capture_begin(struct CUstream_st *stream)
{
    if (all.capture || !stream)
        return MIST_EMULATED_UNMATCHED;
    all.capture = allocate(sizeof *all.capture);
    all.capture->number = ++all.n_captures;
    all.capture->origin = stream;
    all.capture->n_owners = 1;
    all.n_graphs++;
    stream->is_capturing = true;
    return MIST_EMULATED_FINE;
}

/* Goes to a work through all that is before it, and runs what no visit of this number has
 * run; or goes only. */
static void visit(struct work *work, uint64_t number, int first, bool runs)
{
    if (!work || work->visit == number)
        return;
    work->visit = number;
    visit(work->before[first], number, first, runs);
    visit(work->before[1 - first], number, first, runs);
    if (runs)
        run_work(work);
}

enum mist_emulated_misuse mist_emulated_capture_end(struct CUstream_st *stream,
                                                    struct CUgraph_st **out)
{
    struct CUgraph_st *graph = all.capture;

    *out = NULL;
    if (!graph || graph->origin != stream)
        return MIST_EMULATED_UNMATCHED;
    enum mist_emulated_misuse misuse = graph->misuse == MIST_EMULATED_FINE
                                           ? MIST_EMULATED_FINE
                                           : MIST_EMULATED_INVALIDATED;
    visit(stream->captured, ++graph->n_visits, 0, false);
    for (struct CUstream_st *at = all.streams; at; at = at->next) {
        if (misuse == MIST_EMULATED_FINE && at->captured &&
            at->captured->visit != graph->n_visits)
            misuse = MIST_EMULATED_UNJOINED;
        at->is_capturing = false;
        at->captured = NULL;
    }
    all.capture = NULL;
    if (misuse == MIST_EMULATED_FINE)
        *out = graph;
    else
        mist_emulated_graph_free(graph);
    return misuse;
}

static void run_graph(void *arg)
{
    struct CUgraph_st *graph = *(struct CUgraph_st **)arg;
    uint64_t number = ++graph->n_visits;

    if (order_now() == MIST_EMULATED_AT_ONCE) {
        for (struct work *work = graph->first; work; work = work->next)
            run_work(work);
        return;
    }
    /* the last first: what an event orders before what a stream does, or the reverse */
    for (struct work *work = graph->last; work; work = work->previous)
        visit(work, number, order_now() == MIST_EMULATED_LAZY, true);
}

void mist_emulated_graph_run(struct CUgraph_st *graph, struct CUstream_st *stream)
{
    mist_emulated_stream_run(stream, run_graph, &graph, sizeof graph);
}

void mist_emulated_graph_hold(struct CUgraph_st *graph)
{
    graph->n_owners++;
}

void mist_emulated_graph_free(struct CUgraph_st *graph)
{
    struct work *previous;

    if (--graph->n_owners > 0)
        return;
    for (struct work *work = graph->last; work; work = previous) {
        previous = work->previous;
        free(work);
    }
    all.n_graphs--;
    free(graph);
}

int mist_emulated_graphs_count(void)
{
    return all.n_graphs;
}
