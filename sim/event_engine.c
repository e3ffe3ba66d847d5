/*
 * Event engine: the replay. See event_engine.h for the rules and the idea.
 *
 * One round of the loop is one instant: (1) take every flow whose projected end is now,
 * end it, and count down what waited for its tasks; (2) start what became ready, where
 * tasks without work end at once and make further ones ready; (3) give the flows of
 * touched devices and links their new rates and re-project their ends. Flows whose rate
 * did not change keep their projection, so an undisturbed task ends at exactly start +
 * work.
 *
 * Bounds that make the fixed arrays suffice: a stream holds at most one task that is
 * ready or runs, and a flow is numbered by a stream that it holds.
 */
#include "sim/event_internal.h"

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

static void touch_link(struct mist_event_engine *e, int32_t link)
{
    if (!e->link[link].dirty) {
        e->link[link].dirty = true;
        e->dirty_link[e->n_dirty_link++] = link;
    }
}

/* ---------------------------------------------------------------------- start and end */

/* The tasks of a flow: one, or the members of its rendezvous. */
static const int32_t *flow_tasks(const struct mist_event_engine *e,
                                 const struct event_flow *flow, int32_t *n)
{
    if (flow->rendezvous < 0) {
        *n = 1;
        return &flow->task;
    }
    *n = e->member_begin[flow->rendezvous + 1] - e->member_begin[flow->rendezvous];
    return &e->member[e->member_begin[flow->rendezvous]];
}

static void enter_link(struct mist_event_engine *e, int32_t i_flow)
{
    struct event_flow *flow = &e->flow[i_flow];
    struct event_link_state *link = &e->link[flow->link];

    flow->link_prev = -1;
    flow->link_next = link->first;
    if (link->first >= 0)
        e->flow[link->first].link_prev = i_flow;
    link->first = i_flow;
    link->n_users++;
    touch_link(e, flow->link);
}

static void leave_link(struct mist_event_engine *e, const struct event_flow *flow)
{
    struct event_link_state *link = &e->link[flow->link];

    if (flow->link_prev >= 0)
        e->flow[flow->link_prev].link_next = flow->link_next;
    else
        link->first = flow->link_next;
    if (flow->link_next >= 0)
        e->flow[flow->link_next].link_prev = flow->link_prev;
    link->n_users--;
    touch_link(e, flow->link);
}

static void start_flow(struct mist_event_engine *e, int32_t task, int32_t rendezvous,
                       double work_s)
{
    int32_t i_flow = e->task[task].stream, n;
    struct event_flow *flow = &e->flow[i_flow];

    flow->left_s = work_s;
    flow->since_s = e->now_s;
    flow->slowdown = 0.0;
    flow->task = task;
    flow->rendezvous = rendezvous;
    flow->link = -1;
    if (rendezvous >= 0 && e->graph->rendezvous_link)
        flow->link = e->graph->rendezvous_link[rendezvous];
    flow->running = true;
    flow->rescan = true;
    touch_flow(e, i_flow);
    if (flow->link >= 0)
        enter_link(e, i_flow);
    const int32_t *tasks = flow_tasks(e, flow, &n);
    for (int32_t i = 0; i < n; i++) {
        int32_t stream = e->task[tasks[i]].stream;
        e->stream_flow[stream] = i_flow;
        e->stream_slowdown[stream] = 0.0;
        e->device[stream / N_CH].busy |= 1u << stream % N_CH;
        touch_device(e, stream / N_CH);
    }
}

static void count_down(struct mist_event_engine *e, int32_t task)
{
    if (--e->task[task].pending == 0)
        e->ready[e->n_ready++] = task;
}

static void end_task(struct mist_event_engine *e, int32_t i_task)
{
    const struct event_task *task = &e->task[i_task];

    e->result.end_s[i_task] = e->now_s;
    e->n_done++;
    if (task->next >= 0)
        count_down(e, task->next);
    for (int32_t k = task->succ_begin; k < task->succ_end; k++)
        count_down(e, e->succ[k]);
}

static void end_flow(struct mist_event_engine *e, int32_t i_flow)
{
    struct event_flow *flow = &e->flow[i_flow];
    int32_t n;
    const int32_t *tasks = flow_tasks(e, flow, &n);

    flow->running = false;
    touch_flow(e, i_flow);
    if (flow->link >= 0)
        leave_link(e, flow);
    for (int32_t i = 0; i < n; i++) {
        int32_t stream = e->task[tasks[i]].stream;
        e->stream_flow[stream] = -1;
        e->device[stream / N_CH].busy &= ~(1u << stream % N_CH);
        touch_device(e, stream / N_CH);
        end_task(e, tasks[i]);
    }
}

static void start_rendezvous(struct mist_event_engine *e, int32_t rendezvous)
{
    int32_t begin = e->member_begin[rendezvous], end = e->member_begin[rendezvous + 1];
    double work_s = 0.0;

    for (int32_t k = begin; k < end; k++) {
        const struct event_task *task = &e->task[e->member[k]];
        e->result.start_s[e->member[k]] = e->now_s;
        if (task->work_s > work_s)
            work_s = task->work_s;
    }
    if (work_s > 0.0) {
        start_flow(e, e->member[begin], rendezvous, work_s);
        return;
    }
    for (int32_t k = begin; k < end; k++)
        end_task(e, e->member[k]);
}

static void start_ready_tasks(struct mist_event_engine *e)
{
    while (e->n_ready > 0) {
        int32_t i_task = e->ready[--e->n_ready];
        const struct event_task *task = &e->task[i_task];
        e->result.ready_s[i_task] = e->now_s;
        if (task->rendezvous >= 0) {
            if (--e->n_missing[task->rendezvous] == 0)
                start_rendezvous(e, task->rendezvous);
            continue;
        }
        e->result.start_s[i_task] = e->now_s;
        if (task->work_s > 0.0)
            start_flow(e, i_task, -1, task->work_s);
        else
            end_task(e, i_task);
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
    for (int c = 0; c < N_CH; c++) {
        int32_t stream = i_device * N_CH + c;
        double old = e->stream_slowdown[stream];
        if (!(device->busy >> c & 1u))
            continue;
        double slowdown =
            mist_interference_of(device->factors, device->busy, (enum mist_stream)c);
        if (old == slowdown)
            continue;
        e->stream_slowdown[stream] = slowdown;
        change_member(e, e->stream_flow[stream], old, slowdown);
    }
}

static void update_link(struct mist_event_engine *e, int32_t i_link)
{
    e->link[i_link].dirty = false;
    for (int32_t i = e->link[i_link].first; i >= 0; i = e->flow[i].link_next)
        touch_flow(e, i);
}

static void find_worst(const struct mist_event_engine *e, struct event_flow *flow)
{
    int32_t n;
    const int32_t *tasks = flow_tasks(e, flow, &n);

    flow->rescan = false;
    flow->worst = 0.0;
    for (int32_t i = 0; i < n; i++) {
        double slowdown = e->stream_slowdown[e->task[tasks[i]].stream];
        if (slowdown > flow->worst) {
            flow->worst = slowdown;
            flow->n_worst = 0;
        }
        flow->n_worst += slowdown == flow->worst;
    }
}

/* What one of k users of a link gets of its rate. */
static double share_of(const struct mist_event_link *link, int32_t k)
{
    if (k <= 1)
        return 1.0;
    if (link->n_share == 0)
        return 1.0 / k;
    if (k <= link->n_share)
        return link->share_frac[k];
    return link->share_frac[link->n_share] * link->n_share / k;
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
        find_worst(e, flow);
    double slowdown = flow->worst;
    if (flow->link >= 0)
        slowdown /= share_of(&e->graph->link[flow->link], e->link[flow->link].n_users);
    if (slowdown == flow->slowdown)
        return;
    if (flow->slowdown > 0.0) {
        double left_s = flow->left_s - (e->now_s - flow->since_s) / flow->slowdown;
        flow->left_s = left_s > 0.0 ? left_s : 0.0;
        flow->since_s = e->now_s;
        e->result.n_rate_changes++;
    }
    flow->slowdown = slowdown;
    heap_set(e, i_flow, e->now_s + flow->left_s * slowdown);
}

static void update_rates(struct mist_event_engine *e)
{
    for (int32_t i = 0; i < e->n_dirty_device; i++)
        update_device(e, e->dirty_device[i]);
    for (int32_t i = 0; i < e->n_dirty_link; i++)
        update_link(e, e->dirty_link[i]);
    for (int32_t i = 0; i < e->n_dirty_flow; i++)
        update_flow(e, e->dirty_flow[i]);
    e->n_dirty_device = e->n_dirty_link = e->n_dirty_flow = 0;
}

/* -------------------------------------------------------------------------------- run */

/*
 * Brings the per-run state back to the beginning; a deadlock may have left it anywhere.
 */
static void reset_state(struct mist_event_engine *e)
{
    const struct mist_event_graph *g = e->graph;

    for (int32_t s = 0; s < e->n_streams; s++) {
        e->stream_flow[s] = e->stream_last[s] = e->heap_at[s] = -1;
        e->flow[s] = (struct event_flow){.rendezvous = -1, .link = -1};
    }
    for (int32_t d = 0; d < g->n_devices; d++) {
        e->device[d].busy = 0;
        e->device[d].dirty = false;
    }
    for (int32_t i = 0; i < g->n_links; i++)
        e->link[i] = (struct event_link_state){.first = -1};
    for (int32_t r = 0; r < g->n_rendezvous; r++)
        e->n_missing[r] = e->member_begin[r + 1] - e->member_begin[r];
    e->n_heap = e->n_ready = e->n_done = 0;
    e->n_dirty_device = e->n_dirty_link = e->n_dirty_flow = 0;
    e->now_s = 0.0;
    e->result.makespan_s = 0.0;
    e->result.n_events = e->result.n_rate_changes = e->result.n_instants = 0;
}

/* Copies the work into the tasks, counts what they wait for;
 * the ready ones go on the stack. */
static enum mist_status reset_tasks(struct mist_event_engine *e, struct mist_err *err)
{
    const struct mist_event_graph *g = e->graph;

    for (int32_t i = 0; i < e->n_tasks; i++) {
        struct event_task *task = &e->task[i];
        if (!isfinite(g->work_s[i]) || g->work_s[i] < 0.0)
            return mist_err_set(
                err, MIST_ERR_INPUT,
                "event graph: task %d has %g s of work, must be finite and "
                "at least 0",
                (int)i, g->work_s[i]);
        task->work_s = g->work_s[i];
        task->pending = e->stream_last[task->stream] >= 0;
        if (g->dep_offset)
            task->pending += g->dep_offset[i + 1] - g->dep_offset[i];
        e->stream_last[task->stream] = i;
        e->result.ready_s[i] = e->result.start_s[i] = e->result.end_s[i] = -1.0;
        if (task->pending == 0)
            e->ready[e->n_ready++] = i;
    }
    return MIST_OK;
}

static void replay(struct mist_event_engine *e)
{
    start_ready_tasks(e);
    update_rates(e);
    while (e->n_heap > 0) {
        int32_t n = heap_collect_first(e);
        e->now_s = e->heap[0].end_s;
        for (int32_t i = 0; i < n; i++)
            end_flow(e, e->ending[i]);
        start_ready_tasks(e);
        update_rates(e);
        e->result.n_instants++;
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
    status = reset_tasks(engine, err);
    if (status != MIST_OK)
        return status;
    replay(engine);
    if (engine->n_done < engine->n_tasks)
        return event_explain_deadlock(engine, err);
    if (!isfinite(engine->now_s))
        return mist_err_set(err, MIST_ERR_RANGE,
                            "event graph: the times are too long to add up");
    engine->result.makespan_s = engine->now_s;
    engine->result.n_events = 2 * (int64_t)engine->n_tasks;
    *result = engine->result;
    return MIST_OK;
}
