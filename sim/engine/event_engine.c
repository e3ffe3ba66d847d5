/*
 * Event engine: the replay. See event_engine.h for the rules and the idea.
 *
 * One round of the loop is one instant: (1) take every flow whose projected end is now,
 * end it, and see which streams of its devices may go on; (2) start what became ready,
 * where tasks without work end at once and make further ones ready; (3) give the flows of
 * touched devices their new rates and re-project their ends. Flows whose rate did not
 * change keep their projection, so an undisturbed task ends at exactly start + work.
 *
 * Bounds that make the fixed arrays suffice: a stream holds at most one task that is
 * ready or runs, and a flow is numbered by a stream that it holds.
 */
#include "sim/engine/event_internal.h"

#include <math.h> /* isfinite */

#define N_CH  MIST_N_STREAMS
#define ARITY 4

/* ------------------------------------------------------------------------------- heap */

static void heap_put(struct mist_event_engine *e, int32_t at,
                     struct event_heap_entry entry)
{
    e->heap[at] = entry;
    e->heap_at[entry.flow] = at;
}

/* Puts entry into the hole at `at`, or wherever the order of the heap wants it. */
static void heap_settle(struct mist_event_engine *e, int32_t at,
                        struct event_heap_entry entry)
{
    const struct event_heap_entry *heap = e->heap;

    while (at > 0 && entry.end_s < heap[(at - 1) / ARITY].end_s) {
        heap_put(e, at, heap[(at - 1) / ARITY]);
        at = (at - 1) / ARITY;
    }
    for (;;) {
        int64_t child = (int64_t)at * ARITY + 1, least = child;
        if (child + ARITY <=
            e->n_heap) { /* written so that it compiles without branches */
            int64_t low = child + (heap[child + 1].end_s < heap[child].end_s);
            int64_t high = child + 2 + (heap[child + 3].end_s < heap[child + 2].end_s);
            least = heap[high].end_s < heap[low].end_s ? high : low;
        } else if (child >= e->n_heap) {
            break;
        } else {
            for (int64_t i = child + 1; i < e->n_heap; i++)
                if (heap[i].end_s < heap[least].end_s)
                    least = i;
        }
        if (heap[least].end_s >= entry.end_s)
            break;
        heap_put(e, at, heap[least]);
        at = (int32_t)least;
    }
    heap_put(e, at, entry);
}

static void heap_set(struct mist_event_engine *e, int32_t flow, double end_s)
{
    int32_t at = e->heap_at[flow];

    if (at < 0)
        at = e->n_heap++;
    heap_settle(e, at, (struct event_heap_entry){end_s, flow});
}

static void heap_remove(struct mist_event_engine *e, int32_t flow)
{
    int32_t at = e->heap_at[flow];

    if (at < 0)
        return;
    e->heap_at[flow] = -1;
    if (at != --e->n_heap)
        heap_settle(e, at, e->heap[e->n_heap]);
}

/* Fills ending[] with the flows that end first (all with the same time); they stay in the
 * heap, where they form a tree at the root. Returns their number. */
static int32_t heap_collect_first(struct mist_event_engine *e)
{
    int32_t n = 0;

    e->ending[n++] = 0; /* places first, flows below */
    for (int32_t i = 0; i < n; i++) {
        int64_t child = (int64_t)e->ending[i] * ARITY + 1;
        for (int64_t k = child; k < child + ARITY && k < e->n_heap; k++)
            if (e->heap[k].end_s == e->heap[0].end_s)
                e->ending[n++] = (int32_t)k;
    }
    for (int32_t i = 0; i < n; i++)
        e->ending[i] = e->heap[e->ending[i]].flow;
    return n;
}

/* ------------------------------------------------------------------------ dirty lists */

static void touch_flow(struct mist_event_engine *e, int32_t flow)
{
    if (!e->flow[flow].dirty) {
        e->flow[flow].dirty = true;
        e->dirty_flow[e->n_dirty_flow++] = flow;
    }
}

static void touch_device(struct mist_event_engine *e, int32_t device)
{
    if (!e->device[device].dirty) {
        e->device[device].dirty = true;
        e->dirty_device[e->n_dirty_device++] = device;
    }
}

/* --------------------------------------------------------------- progress of a device */

static bool may_start(const struct event_device *device, int channel)
{
    const struct event_step *step = event_step_at(device, channel);
    bool may = true;

    for (int c = 0; c < N_CH; c++)
        may &= device->n_ended[c] >= step->need[c];
    return may;
}

/* Puts the waiting streams of a device that need not wait any longer on the stack. */
static void wake(struct mist_event_engine *e, int32_t i_device)
{
    struct event_device *device = &e->device[i_device];

    for (unsigned rest = device->waiting; rest; rest &= rest - 1) {
        int c = __builtin_ctz(rest);
        if (!may_start(device, c))
            continue;
        device->waiting &= (uint8_t) ~(1u << c);
        e->ready[e->n_ready++] = i_device * N_CH + c;
    }
}

static void begin_iteration(struct event_device *device)
{
    for (int c = 0; c < N_CH; c++)
        device->n_ended[c] = 0;
    device->left = device->waiting = (uint8_t)device->program->channels;
}

static bool is_last_iteration(const struct mist_event_engine *e,
                              const struct event_device *device)
{
    return device->iteration == e->graph->n_iterations - 1;
}

static bool is_counted(const struct mist_event_engine *e,
                       const struct event_device *device)
{
    int32_t n = e->graph->n_counted > 1 ? e->graph->n_counted : 1;

    return device->iteration >= e->graph->n_iterations - n;
}

/* The stream's step has ended; on to the next one. */
static void end_step(struct mist_event_engine *e, int32_t i_stream)
{
    struct event_device *device = &e->device[i_stream / N_CH];
    int c = i_stream % N_CH;

    if (device->recorded >= 0 && is_last_iteration(e, device))
        e->result.end_s[device->recorded + event_step_at(device, c)->task] = e->now_s;
    e->n_done++;
    device->n_ended[c]++;
    if (device->program->first[c] + device->n_ended[c] < device->program->first[c + 1])
        device->waiting |= (uint8_t)(1u << c);
    else
        device->left &= (uint8_t) ~(1u << c);
    if (device->left == 0) {
        e->result.iteration_end_s[device->iteration] = e->now_s;
        if (is_last_iteration(e, device))
            return;
        device->iteration++;
        begin_iteration(device);
    }
    wake(e, i_stream / N_CH);
}

/*
 * Adds what a stream ran from start to now to the use of its device. Time that several
 * streams share is counted when the one that started first ends: what starts later and
 * ends earlier adds nothing to it.
 */
static void count_use(struct mist_event_engine *e, int32_t i_device, int channel)
{
    const struct event_device *device = &e->device[i_device];
    double start_s = e->stream[i_device * N_CH + channel].start_s;
    double *until_s = &e->covered_until_s[i_device];

    e->use[i_device].busy_s[channel] += e->now_s - start_s;
    for (unsigned rest = device->busy; rest; rest &= rest - 1)
        if (e->stream[i_device * N_CH + __builtin_ctz(rest)].start_s < start_s)
            return;
    if (e->now_s > *until_s) {
        e->use[i_device].covered_s += e->now_s - fmax(start_s, *until_s);
        *until_s = e->now_s;
    }
}

/* ---------------------------------------------------------------------- start and end */

/* The streams of a flow: its own, or those of all members of its group. */
static const int32_t *flow_streams(const struct mist_event_engine *e,
                                   const int32_t *i_flow, int32_t *n)
{
    int32_t group = e->flow[*i_flow].group;

    if (group < 0) {
        *n = 1;
        return i_flow;
    }
    *n = e->member_begin[group + 1] - e->member_begin[group];
    return &e->member[e->member_begin[group]];
}

static void start_flow(struct mist_event_engine *e, int32_t i_flow, int32_t group,
                       double work_s)
{
    struct event_flow *flow = &e->flow[i_flow];
    int32_t n;

    flow->left_s = work_s;
    flow->since_s = e->now_s;
    flow->slowdown = 0.0;
    flow->group = group;
    flow->running = true;
    flow->rescan = true;
    touch_flow(e, i_flow);
    const int32_t *streams = flow_streams(e, &i_flow, &n);
    for (int32_t i = 0; i < n; i++) {
        struct event_stream *stream = &e->stream[streams[i]];
        stream->start_s = e->now_s;
        stream->slowdown = 0.0;
        stream->flow = i_flow;
        e->device[streams[i] / N_CH].busy |= (uint8_t)(1u << streams[i] % N_CH);
        touch_device(e, streams[i] / N_CH);
    }
}

static void end_flow(struct mist_event_engine *e, int32_t i_flow)
{
    int32_t n;
    const int32_t *streams = flow_streams(e, &i_flow, &n);

    e->flow[i_flow].running = false;
    touch_flow(e, i_flow);
    for (int32_t i = 0; i < n; i++) {
        int32_t i_device = streams[i] / N_CH;
        struct event_device *device = &e->device[i_device];
        e->stream[streams[i]].flow = -1;
        device->busy &= (uint8_t) ~(1u << streams[i] % N_CH);
        touch_device(e, i_device);
        if (is_counted(e, device))
            count_use(e, i_device, streams[i] % N_CH);
        end_step(e, streams[i]);
    }
}

/* Work of the step that a stream starts now. */
static double start_step(struct mist_event_engine *e, int32_t i_stream)
{
    const struct event_device *device = &e->device[i_stream / N_CH];
    int32_t task = event_step_at(device, i_stream % N_CH)->task;
    double work_s = device->work_s ? device->work_s[task] : 0.0;

    if (e->graph->factor)
        work_s *=
            e->graph->factor(e->graph->context, i_stream / N_CH, task, device->iteration);
    if (device->recorded >= 0 && is_last_iteration(e, device))
        e->result.start_s[device->recorded + task] = e->now_s;
    return work_s;
}

static void start_group(struct mist_event_engine *e, int32_t group)
{
    int32_t begin = e->member_begin[group], end = e->member_begin[group + 1];
    double work_s = 0.0;

    e->n_missing[group] = end - begin; /* of the next meeting */
    for (int32_t k = begin; k < end; k++) {
        double mine_s = start_step(e, e->member[k]);
        if (mine_s > work_s)
            work_s = mine_s;
    }
    if (work_s > 0.0) {
        start_flow(e, e->member[begin], group, work_s);
        return;
    }
    for (int32_t k = begin; k < end; k++)
        end_step(e, e->member[k]);
}

static void start_ready_steps(struct mist_event_engine *e)
{
    while (e->n_ready > 0) {
        int32_t i_stream = e->ready[--e->n_ready];
        const struct event_device *device = &e->device[i_stream / N_CH];
        int32_t lane = event_step_at(device, i_stream % N_CH)->lane;
        if (lane >= 0) {
            if (--e->n_missing[device->group[lane]] == 0)
                start_group(e, device->group[lane]);
            continue;
        }
        double work_s = start_step(e, i_stream);
        if (work_s > 0.0)
            start_flow(e, i_stream, -1, work_s);
        else
            end_step(e, i_stream);
    }
}

/* ------------------------------------------------------------------------------ rates */

/*
 * One member of a flow goes from slowdown old (0: it just started) to new, which differs.
 */
static void change_member(struct mist_event_engine *e, int32_t i_flow, double old,
                          double new)
{
    struct event_flow *flow = &e->flow[i_flow];

    if (flow->rescan)
        return; /* is found anew, and is in the dirty list */
    if (new > flow->worst) {
        flow->worst = new;
        flow->n_worst = 1;
        touch_flow(e, i_flow);
    } else if (new == flow->worst) {
        flow->n_worst++;
    } else if (old == flow->worst && --flow->n_worst == 0) {
        flow->rescan = true;
        touch_flow(e, i_flow);
    }
}

static void update_device(struct mist_event_engine *e, int32_t i_device)
{
    struct event_device *device = &e->device[i_device];

    device->dirty = false;
    for (unsigned rest = device->busy; rest; rest &= rest - 1) {
        int c = __builtin_ctz(rest);
        struct event_stream *stream = &e->stream[i_device * N_CH + c];
        double old = stream->slowdown;
        double slowdown =
            mist_interference_of(device->factors, device->busy, (enum mist_stream)c);
        if (old == slowdown)
            continue;
        stream->slowdown = slowdown;
        change_member(e, stream->flow, old, slowdown);
    }
}

static void find_worst(const struct mist_event_engine *e, int32_t i_flow)
{
    struct event_flow *flow = &e->flow[i_flow];
    int32_t n;
    const int32_t *streams = flow_streams(e, &i_flow, &n);

    flow->rescan = false;
    flow->worst = 0.0;
    for (int32_t i = 0; i < n; i++) {
        double slowdown = e->stream[streams[i]].slowdown;
        if (slowdown > flow->worst) {
            flow->worst = slowdown;
            flow->n_worst = 0;
        }
        flow->n_worst += slowdown == flow->worst;
    }
}

static void update_flow(struct mist_event_engine *e, int32_t i_flow)
{
    struct event_flow *flow = &e->flow[i_flow];

    flow->dirty = false;
    if (!flow->running) {
        heap_remove(e, i_flow);
        return;
    }
    if (flow->rescan)
        find_worst(e, i_flow);
    if (flow->worst == flow->slowdown)
        return;
    if (flow->slowdown > 0.0) {
        double left_s = flow->left_s - (e->now_s - flow->since_s) / flow->slowdown;
        flow->left_s = left_s > 0.0 ? left_s : 0.0;
        flow->since_s = e->now_s;
        e->result.n_rate_changes++;
    }
    flow->slowdown = flow->worst;
    heap_set(e, i_flow, e->now_s + flow->left_s * flow->slowdown);
}

static void update_rates(struct mist_event_engine *e)
{
    for (int32_t i = 0; i < e->n_dirty_device; i++)
        update_device(e, e->dirty_device[i]);
    for (int32_t i = 0; i < e->n_dirty_flow; i++)
        update_flow(e, e->dirty_flow[i]);
    e->n_dirty_device = e->n_dirty_flow = 0;
}

/* -------------------------------------------------------------------------------- run */

/*
 * Brings the per-run state back to the beginning; a deadlock may have left it anywhere.
 */
static void reset_state(struct mist_event_engine *e)
{
    const struct mist_event_graph *g = e->graph;

    for (int32_t s = 0; s < e->n_streams; s++) {
        e->stream[s] = (struct event_stream){.flow = -1};
        e->flow[s] = (struct event_flow){.group = -1};
        e->heap_at[s] = -1;
    }
    for (int32_t i = 0; i < g->n_groups; i++)
        e->n_missing[i] = e->member_begin[i + 1] - e->member_begin[i];
    for (int32_t i = 0; i < g->n_iterations; i++)
        e->result.iteration_end_s[i] = 0.0;
    e->n_heap = e->n_ready = e->n_dirty_device = e->n_dirty_flow = 0;
    e->n_done = 0;
    e->now_s = 0.0;
    e->result.n_rate_changes = 0;
}

/* The first streams go on the stack. */
static void reset_devices(struct mist_event_engine *e)
{
    for (int32_t d = 0; d < e->graph->n_devices; d++) {
        struct event_device *device = &e->device[d];
        device->work_s = e->graph->device[d].work_s;
        device->iteration = 0;
        device->busy = 0;
        device->dirty = false;
        begin_iteration(device);
        e->use[d] = (struct mist_event_use){0};
        e->covered_until_s[d] = 0.0;
        wake(e, d);
    }
}

static void replay(struct mist_event_engine *e)
{
    start_ready_steps(e);
    update_rates(e);
    while (e->n_heap > 0) {
        int32_t n = heap_collect_first(e);
        e->now_s = e->heap[0].end_s;
        for (int32_t i = 0; i < n; i++)
            end_flow(e, e->ending[i]);
        start_ready_steps(e);
        update_rates(e);
    }
}

enum mist_status mist_event_engine_run(struct mist_event_engine *engine,
                                       struct mist_event_result *result,
                                       struct mist_err *err)
{
    enum mist_status status = event_check_values(engine->graph, err);

    if (status != MIST_OK)
        return status;
    reset_state(engine);
    reset_devices(engine);
    replay(engine);
    if (engine->n_done < engine->n_tasks)
        return event_explain_deadlock(engine, err);
    if (!isfinite(engine->now_s))
        return mist_err_set(err, MIST_ERR_RANGE,
                            "event graph: the times are too long to add up");
    engine->result.makespan_s = engine->now_s;
    engine->result.n_tasks = engine->n_tasks;
    *result = engine->result;
    return MIST_OK;
}
