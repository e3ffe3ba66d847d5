/*
 * Event engine: checks of the graph, set-up, and the explanation of deadlocks.
 *
 * The graph says what a task waits for; replaying needs the reverse (who waits for a
 * task), the members of every rendezvous and the order on every stream. All three are
 * counting sorts.
 */
#include "sim/event_internal.h"

#include <math.h>   /* isfinite */
#include <stdio.h>  /* snprintf */
#include <string.h> /* strlen */

#define N_CH MIST_N_STREAMS

/* ----------------------------------------------------------------------------- checks */

static enum mist_status check_sizes(const struct mist_event_graph *g,
                                    struct mist_err *err)
{
    if (g->n_tasks < 0 || g->n_devices < 0 || g->n_rendezvous < 0 || g->n_links < 0 ||
        g->n_interference < 0)
        return mist_err_set(err, MIST_ERR_INPUT, "event graph: a count is negative");
    if (g->n_devices > INT32_MAX / N_CH)
        return mist_err_set(err, MIST_ERR_RANGE,
                            "event graph: %d devices, at most %d fit", (int)g->n_devices,
                            INT32_MAX / N_CH);
    return MIST_OK;
}

static enum mist_status bad_index(struct mist_err *err, const char *of, int32_t i,
                                  const char *what, int32_t value, int32_t low, int32_t n)
{
    return mist_err_set(err, MIST_ERR_INPUT,
                        "event graph: %s %d has %s %d, expected %d to %d", of, (int)i,
                        what, (int)value, (int)low, (int)n - 1);
}

static enum mist_status check_tasks(const struct mist_event_graph *g,
                                    struct mist_err *err)
{
    for (int32_t i = 0; i < g->n_tasks; i++) {
        if (g->device[i] < 0 || g->device[i] >= g->n_devices)
            return bad_index(err, "task", i, "device", g->device[i], 0, g->n_devices);
        if (g->channel[i] >= N_CH)
            return bad_index(err, "task", i, "channel", g->channel[i], 0, N_CH);
        if (g->rendezvous &&
            (g->rendezvous[i] < -1 || g->rendezvous[i] >= g->n_rendezvous))
            return bad_index(err, "task", i, "rendezvous", g->rendezvous[i], -1,
                             g->n_rendezvous);
    }
    return MIST_OK;
}

static enum mist_status check_dependencies(const struct mist_event_graph *g,
                                           struct mist_err *err)
{
    if (!g->dep_offset)
        return MIST_OK;
    if (g->dep_offset[0] != 0)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "event graph: the dependency list starts at %d, expected 0",
                            (int)g->dep_offset[0]);
    for (int32_t i = 0; i < g->n_tasks; i++) /* all offsets before any use of them */
        if (g->dep_offset[i + 1] < g->dep_offset[i])
            return mist_err_set(
                err, MIST_ERR_INPUT,
                "event graph: the dependency list of task %d ends before it "
                "starts",
                (int)i);
    for (int32_t i = 0; i < g->n_tasks; i++)
        for (int32_t k = g->dep_offset[i]; k < g->dep_offset[i + 1]; k++)
            if (g->dep[k] < 0 || g->dep[k] >= g->n_tasks)
                return bad_index(err, "task", i, "dependency", g->dep[k], 0, g->n_tasks);
    return MIST_OK;
}

static enum mist_status check_classes_and_links(const struct mist_event_graph *g,
                                                struct mist_err *err)
{
    for (int32_t i = 0; g->device_interference && i < g->n_devices; i++)
        if (g->device_interference[i] < -1 ||
            g->device_interference[i] >= g->n_interference)
            return bad_index(err, "device", i, "interference class",
                             g->device_interference[i], -1, g->n_interference);
    for (int32_t i = 0; g->rendezvous_link && i < g->n_rendezvous; i++)
        if (g->rendezvous_link[i] < -1 || g->rendezvous_link[i] >= g->n_links)
            return bad_index(err, "rendezvous", i, "link", g->rendezvous_link[i], -1,
                             g->n_links);
    return MIST_OK;
}

enum mist_status event_check_values(const struct mist_event_graph *graph,
                                    struct mist_err *err)
{
    for (int32_t i = 0; i < graph->n_interference; i++) {
        enum mist_status status = mist_interference_check(&graph->interference[i], err);
        if (status != MIST_OK)
            return status;
    }
    for (int32_t i = 0; i < graph->n_links; i++) {
        const struct mist_event_link *link = &graph->link[i];
        if (link->n_share < 0)
            return mist_err_set(err, MIST_ERR_INPUT,
                                "event graph: link %d has a sharing table of %d entries",
                                (int)i, (int)link->n_share);
        for (int32_t k = 1; k <= link->n_share; k++) {
            double share = link->share_frac[k];
            if (!(share > 0.0 && share <= 1.0) || (k == 1 && share < 1.0))
                return mist_err_set(
                    err, MIST_ERR_INPUT,
                    "event graph: link %d gives each of %d users %g of its "
                    "rate, expected %s",
                    (int)i, (int)k, share, k == 1 ? "1" : "above 0 to 1");
        }
    }
    return MIST_OK;
}

static enum mist_status check_graph(const struct mist_event_graph *g,
                                    struct mist_err *err)
{
    enum mist_status status = check_sizes(g, err);

    if (status == MIST_OK)
        status = check_tasks(g, err);
    if (status == MIST_OK)
        status = check_dependencies(g, err);
    if (status == MIST_OK)
        status = check_classes_and_links(g, err);
    return status == MIST_OK ? event_check_values(g, err) : status;
}

/* ----------------------------------------------------------------------------- set-up */

static int32_t n_dependencies(const struct mist_event_graph *g)
{
    return g->dep_offset ? g->dep_offset[g->n_tasks] : 0;
}

/* n elements (at least one, so that NULL always means out of memory), zeroed. */
static void *array(struct mist_arena *arena, int64_t n, size_t element_bytes, bool *ok)
{
    int64_t size;
    void *chunk = NULL;

    if (*ok && mist_size_mul(n > 0 ? n : 1, (int64_t)element_bytes, &size))
        chunk = mist_arena_alloc(arena, (size_t)size);
    *ok = chunk != NULL;
    return chunk;
}

static bool allocate(struct mist_event_engine *e, struct mist_arena *arena)
{
    const struct mist_event_graph *g = e->graph;
    int64_t n = g->n_tasks, n_streams = e->n_streams;
    bool ok = true;

    e->task = array(arena, n, sizeof *e->task, &ok);
    e->succ = array(arena, n_dependencies(g), sizeof *e->succ, &ok);
    e->member_begin =
        array(arena, (int64_t)g->n_rendezvous + 1, sizeof *e->member_begin, &ok);
    e->member = array(arena, g->rendezvous ? n : 0, sizeof *e->member, &ok);
    e->n_missing = array(arena, g->n_rendezvous, sizeof *e->n_missing, &ok);
    e->device = array(arena, g->n_devices, sizeof *e->device, &ok);
    e->stream_slowdown = array(arena, n_streams, sizeof *e->stream_slowdown, &ok);
    e->stream_flow = array(arena, n_streams, sizeof *e->stream_flow, &ok);
    e->stream_last = array(arena, n_streams, sizeof *e->stream_last, &ok);
    e->flow = array(arena, n_streams, sizeof *e->flow, &ok);
    e->link = array(arena, g->n_links, sizeof *e->link, &ok);
    /* Shifted by three, so that four siblings share a cache
     * line (the arena aligns to 64). */
    e->heap = array(arena, n_streams + 3, sizeof *e->heap, &ok);
    e->heap = ok ? e->heap + 3 : NULL;
    e->heap_at = array(arena, n_streams, sizeof *e->heap_at, &ok);
    e->ready = array(arena, n_streams, sizeof *e->ready, &ok);
    e->ending = array(arena, n_streams, sizeof *e->ending, &ok);
    e->dirty_flow = array(arena, n_streams, sizeof *e->dirty_flow, &ok);
    e->dirty_device = array(arena, g->n_devices, sizeof *e->dirty_device, &ok);
    e->dirty_link = array(arena, g->n_links, sizeof *e->dirty_link, &ok);
    e->result.ready_s = array(arena, n, sizeof(double), &ok);
    e->result.start_s = array(arena, n, sizeof(double), &ok);
    e->result.end_s = array(arena, n, sizeof(double), &ok);
    return ok;
}

double mist_event_engine_bytes(double n_tasks, double n_deps, double n_rendezvous,
                               double n_devices)
{
    const struct mist_event_engine *e = NULL; /* for sizes */
    size_t task = sizeof *e->task + sizeof *e->member + 3 * sizeof(double);
    size_t rendezvous = sizeof *e->member_begin + sizeof *e->n_missing;
    size_t stream = sizeof *e->stream_slowdown + sizeof *e->stream_flow +
                    sizeof *e->stream_last + sizeof *e->flow + sizeof *e->heap +
                    sizeof *e->heap_at + sizeof *e->ready + sizeof *e->ending +
                    sizeof *e->dirty_flow;
    size_t device = sizeof *e->device + sizeof *e->dirty_device + N_CH * stream;

    return (double)task * n_tasks + (double)sizeof *e->succ * n_deps +
           (double)rendezvous * n_rendezvous + (double)device * n_devices;
}

static void build_streams(struct mist_event_engine *e)
{
    const struct mist_event_graph *g = e->graph;

    for (int32_t s = 0; s < e->n_streams; s++)
        e->stream_last[s] = -1;
    for (int32_t i = 0; i < e->n_tasks; i++) {
        struct event_task *task = &e->task[i];
        task->stream = g->device[i] * N_CH + g->channel[i];
        task->rendezvous = g->rendezvous ? g->rendezvous[i] : -1;
        task->next = -1;
        if (e->stream_last[task->stream] >= 0)
            e->task[e->stream_last[task->stream]].next = i;
        e->stream_last[task->stream] = i;
    }
}

static void build_successors(struct mist_event_engine *e)
{
    const struct mist_event_graph *g = e->graph;
    int32_t n_deps = n_dependencies(g), begin = 0;

    for (int32_t k = 0; k < n_deps; k++)
        e->task[g->dep[k]].succ_end++; /* a count for now */
    for (int32_t i = 0; i < e->n_tasks; i++) {
        struct event_task *task = &e->task[i];
        int32_t count = task->succ_end;
        task->succ_begin = task->succ_end = begin;
        begin += count;
    }
    for (int32_t i = 0; n_deps && i < e->n_tasks; i++)
        for (int32_t k = g->dep_offset[i]; k < g->dep_offset[i + 1]; k++)
            e->succ[e->task[g->dep[k]].succ_end++] = i;
}

static void build_members(struct mist_event_engine *e)
{
    const struct mist_event_graph *g = e->graph;

    if (!g->rendezvous)
        return;
    for (int32_t i = 0; i < e->n_tasks; i++)
        if (g->rendezvous[i] >= 0)
            e->member_begin[g->rendezvous[i] + 1]++;
    for (int32_t r = 0; r < g->n_rendezvous; r++)
        e->member_begin[r + 1] += e->member_begin[r];
    for (int32_t i = 0; i < e->n_tasks; i++) {
        int32_t r = g->rendezvous[i];
        if (r >= 0)
            e->member[e->member_begin[r] + e->n_missing[r]++] =
                i; /* set anew by every run */
    }
}

static void build_devices(struct mist_event_engine *e)
{
    const struct mist_event_graph *g = e->graph;

    mist_interference_init(&e->undisturbed);
    for (int32_t d = 0; d < g->n_devices; d++) {
        int32_t class = g->device_interference ? g->device_interference[d] : 0;
        bool none = class < 0 || g->n_interference == 0;
        const struct mist_interference *factors =
            none ? &e->undisturbed : &g->interference[class];
        e->device[d].factors = factors;
    }
}

enum mist_status mist_event_engine_prepare(struct mist_event_engine **out,
                                           const struct mist_event_graph *graph,
                                           struct mist_arena *arena, struct mist_err *err)
{
    enum mist_status status = check_graph(graph, err);

    if (status != MIST_OK)
        return status;
    struct mist_event_engine *e = mist_arena_alloc(arena, sizeof *e);
    if (e) {
        e->graph = graph;
        e->n_tasks = graph->n_tasks;
        e->n_streams = graph->n_devices * N_CH;
    }
    if (!e || !allocate(e, arena))
        return mist_err_set(err, MIST_ERR_MEMORY,
                            "out of memory for %d tasks on %d devices",
                            (int)graph->n_tasks, (int)graph->n_devices);
    build_streams(e);
    build_successors(e);
    build_members(e);
    build_devices(e);
    *out = e;
    return MIST_OK;
}

/* -------------------------------------------------------------------------- deadlocks */

static bool has_ended(const struct mist_event_engine *e, int32_t task)
{
    return e->result.end_s[task] >= 0.0;
}

/* One unended task that a stuck task waits for, and why; stream_last[] holds the first
 * unended task of every stream. */
static int32_t waits_for(const struct mist_event_engine *e, int32_t task,
                         const char **why)
{
    const struct mist_event_graph *g = e->graph;
    int32_t r = e->task[task].rendezvous;

    if (e->task[task].pending == 0 && r >= 0) {
        *why = "at its rendezvous";
        for (int32_t k = e->member_begin[r]; k < e->member_begin[r + 1]; k++)
            if (e->task[e->member[k]].pending > 0)
                return e->member[k];
    }
    *why = "by dependency";
    for (int32_t k = g->dep_offset ? g->dep_offset[task] : 0;
         g->dep_offset && k < g->dep_offset[task + 1]; k++)
        if (!has_ended(e, g->dep[k]))
            return g->dep[k];
    *why = "by stream order";
    return e->stream_last[e->task[task].stream];
}

/*
 * Brent's search: a task on the cycle that the walk from the first stuck task runs into.
 */
static int32_t find_cycle(const struct mist_event_engine *e, int32_t start)
{
    const char *why;
    int32_t slow = start, fast = waits_for(e, start, &why);
    int64_t power = 1, length = 1;

    while (slow != fast) {
        if (power == length) {
            slow = fast;
            power *= 2;
            length = 0;
        }
        fast = waits_for(e, fast, &why);
        length++;
    }
    return slow;
}

enum mist_status event_explain_deadlock(struct mist_event_engine *engine,
                                        struct mist_err *err)
{
    char text[384] = "";
    size_t used = 0;
    int32_t first = 0;

    for (int32_t i = engine->n_tasks - 1; i >= 0; i--)
        if (!has_ended(engine, i))
            engine->stream_last[engine->task[i].stream] = i;
    while (first < engine->n_tasks - 1 && has_ended(engine, first))
        first++;
    int32_t at = find_cycle(engine, first), begin = at;
    for (int hop = 0; hop < 5 && used < sizeof text; hop++) {
        const char *why;
        int32_t next = waits_for(engine, at, &why), stream = engine->task[at].stream;
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%stask %d (device %d, %s) waits %s for task %d",
                                 hop ? "; " : "", (int)at, (int)(stream / N_CH),
                                 mist_stream_name((enum mist_stream)(stream % N_CH)), why,
                                 (int)next);
        at = next;
        if (at == begin)
            break;
    }
    return mist_err_set(err, MIST_ERR_INPUT,
                        "deadlock: %d of %d tasks can never run: %s%s",
                        (int)(engine->n_tasks - engine->n_done), (int)engine->n_tasks,
                        text, at == begin ? "" : "; ...");
}
