/*
 * Event engine: checks of the graph, set-up, and the explanation of deadlocks.
 *
 * A program lists tasks and what each waits for. Replaying needs, for every stream, its
 * tasks in order and how far the other streams must have come before each: as streams run
 * in order, of all dependencies on one stream the last one counts. It also needs the
 * members of every group. Both are counting sorts.
 */
#include "sim/engine/event_internal.h"

#include "core/parse.h"

#include <math.h>   /* isfinite */
#include <stdio.h>  /* snprintf */
#include <string.h> /* strlen */

#define N_CH MIST_N_STREAMS

/* ----------------------------------------------------------------------------- checks */

static enum mist_status check_sizes(const struct mist_event_graph *g,
                                    struct mist_err *err)
{
    if (g->n_programs < 0 || g->n_devices < 0 || g->n_groups < 0 || g->n_iterations < 1)
        return mist_err_set(err, MIST_ERR_INPUT, "event graph: a count is too small");
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

static enum mist_status check_dependencies(const struct mist_event_program *p,
                                           struct mist_err *err)
{
    if (!p->dep_offset)
        return MIST_OK;
    if (p->dep_offset[0] != 0)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "event graph: the dependency list starts at %d, expected 0",
                            (int)p->dep_offset[0]);
    for (int32_t i = 0; i < p->n_tasks; i++) /* all offsets before any use of them */
        if (p->dep_offset[i + 1] < p->dep_offset[i])
            return mist_err_set(
                err, MIST_ERR_INPUT,
                "event graph: the dependency list of task %d ends before it "
                "starts",
                (int)i);
    for (int32_t i = 0; i < p->n_tasks; i++)
        for (int32_t k = p->dep_offset[i]; k < p->dep_offset[i + 1]; k++)
            if (p->dep[k] < 0 || p->dep[k] >= p->n_tasks)
                return bad_index(err, "task", i, "dependency", p->dep[k], 0, p->n_tasks);
    return MIST_OK;
}

static enum mist_status check_program(const struct mist_event_program *p,
                                      struct mist_err *err)
{
    for (int32_t i = 0; i < p->n_tasks; i++) {
        if (p->channel[i] >= N_CH)
            return bad_index(err, "task", i, "channel", p->channel[i], 0, N_CH);
        if (p->lane && (p->lane[i] < -1 || p->lane[i] >= p->n_lanes))
            return bad_index(err, "task", i, "lane", p->lane[i], -1, p->n_lanes);
    }
    return check_dependencies(p, err);
}

static enum mist_status check_device(const struct mist_event_graph *g, int32_t i,
                                     struct mist_err *err)
{
    const struct mist_event_device *device = &g->device[i];

    if (device->program < 0 || device->program >= g->n_programs)
        return bad_index(err, "device", i, "program", device->program, 0, g->n_programs);
    for (int32_t k = 0; k < g->program[device->program].n_lanes; k++)
        if (device->group[k] < 0 || device->group[k] >= g->n_groups)
            return bad_index(err, "device", i, "group", device->group[k], 0, g->n_groups);
    return MIST_OK;
}

static enum mist_status check_work(const struct mist_event_graph *g, int32_t i_device,
                                   struct mist_err *err)
{
    const double *work_s = g->device[i_device].work_s;

    for (int32_t i = 0; work_s && i < g->program[g->device[i_device].program].n_tasks;
         i++)
        if (!isfinite(work_s[i]) || work_s[i] < 0.0)
            return mist_err_set(
                err, MIST_ERR_INPUT,
                "event graph: task %d of device %d has %g s of work, must be finite and "
                "at least 0",
                (int)i, (int)i_device, work_s[i]);
    return MIST_OK;
}

enum mist_status event_check_values(const struct mist_event_graph *graph,
                                    struct mist_err *err)
{
    const struct mist_event_device *before = NULL; /* neighbours share most of it */
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < graph->n_devices && status == MIST_OK; i++) {
        const struct mist_event_device *device = &graph->device[i];
        if (device->interference &&
            (!before || before->interference != device->interference))
            status = mist_interference_check(device->interference, err);
        if (status == MIST_OK && (!before || before->program != device->program ||
                                  before->work_s != device->work_s))
            status = check_work(graph, i, err);
        before = device;
    }
    return status;
}

static enum mist_status check_graph(const struct mist_event_graph *g,
                                    struct mist_err *err)
{
    enum mist_status status = check_sizes(g, err);

    for (int32_t i = 0; i < g->n_programs && status == MIST_OK; i++)
        status = check_program(&g->program[i], err);
    for (int32_t i = 0; i < g->n_devices && status == MIST_OK; i++)
        status = check_device(g, i, err);
    return status == MIST_OK ? event_check_values(g, err) : status;
}

/* ----------------------------------------------------------------------------- set-up */

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

static int64_t n_lanes_of(const struct mist_event_graph *g)
{
    int64_t n = 0;

    for (int32_t i = 0; i < g->n_devices; i++)
        n += g->program[g->device[i].program].n_lanes;
    return n;
}

static int64_t n_recorded_of(const struct mist_event_graph *g)
{
    int64_t n = 0;

    for (int32_t i = 0; i < g->n_devices; i++)
        if (g->device[i].is_recorded)
            n += g->program[g->device[i].program].n_tasks;
    return n;
}

static bool allocate(struct mist_event_engine *e, struct mist_arena *arena)
{
    const struct mist_event_graph *g = e->graph;
    int64_t n = g->n_devices, n_streams = e->n_streams, n_recorded = n_recorded_of(g);
    bool ok = true;

    e->program = array(arena, g->n_programs, sizeof *e->program, &ok);
    e->device = array(arena, n, sizeof *e->device, &ok);
    e->stream = array(arena, n_streams, sizeof *e->stream, &ok);
    e->flow = array(arena, n_streams, sizeof *e->flow, &ok);
    e->member_begin =
        array(arena, (int64_t)g->n_groups + 1, sizeof *e->member_begin, &ok);
    e->member = array(arena, n_lanes_of(g), sizeof *e->member, &ok);
    e->n_missing = array(arena, g->n_groups, sizeof *e->n_missing, &ok);
    /* Shifted by three, so that four siblings share a cache
     * line (the arena aligns to 64). */
    e->heap = array(arena, n_streams + 3, sizeof *e->heap, &ok);
    e->heap = ok ? e->heap + 3 : NULL;
    e->heap_at = array(arena, n_streams, sizeof *e->heap_at, &ok);
    e->ready = array(arena, n_streams, sizeof *e->ready, &ok);
    e->ending = array(arena, n_streams, sizeof *e->ending, &ok);
    e->dirty_flow = array(arena, n_streams, sizeof *e->dirty_flow, &ok);
    e->dirty_device = array(arena, n, sizeof *e->dirty_device, &ok);
    e->covered_until_s = array(arena, n, sizeof *e->covered_until_s, &ok);
    e->use = array(arena, n, sizeof *e->use, &ok);
    e->result.iteration_end_s = array(arena, g->n_iterations, sizeof(double), &ok);
    e->result.start_s = array(arena, n_recorded, sizeof(double), &ok);
    e->result.end_s = array(arena, n_recorded, sizeof(double), &ok);
    for (int32_t i = 0; ok && i < g->n_programs; i++) {
        e->program[i].step =
            array(arena, g->program[i].n_tasks, sizeof *e->program[i].step, &ok);
        e->program[i].lane_channel = array(arena, g->program[i].n_lanes, 1, &ok);
    }
    return ok;
}

double mist_event_engine_bytes(double n_tasks, double n_devices, double n_lanes,
                               double n_recorded)
{
    const struct mist_event_engine *e = NULL; /* for sizes */
    size_t group = sizeof *e->member_begin + sizeof *e->n_missing + sizeof *e->member;
    size_t stream = sizeof *e->stream + sizeof *e->flow + sizeof *e->heap +
                    sizeof *e->heap_at + sizeof *e->ready + sizeof *e->ending +
                    sizeof *e->dirty_flow;
    size_t device = sizeof *e->device + sizeof *e->dirty_device +
                    sizeof *e->covered_until_s + sizeof *e->use + N_CH * stream;

    return (double)sizeof *e->program->step * n_tasks + (double)device * n_devices +
           (double)group * n_lanes + 2.0 * (double)sizeof(double) * n_recorded;
}

/* Steps of every channel in order; place[i]: of task i in its channel. All places come
 * first, as a dependency may point at a later task. */
static void list_steps(const struct mist_event_program *from, struct event_program *to,
                       int32_t *place)
{
    int32_t n[N_CH] = {0};

    for (int32_t i = 0; i < from->n_tasks; i++)
        place[i] = n[from->channel[i]]++;
    for (int c = 0; c < N_CH; c++) {
        to->first[c + 1] = to->first[c] + n[c];
        to->channels |= (unsigned)(n[c] > 0) << c;
    }
    for (int32_t i = 0; i < from->n_tasks; i++) {
        struct event_step *step = &to->step[to->first[from->channel[i]] + place[i]];
        step->task = i;
        step->lane = from->lane ? from->lane[i] : -1;
        if (!from->dep_offset)
            continue;
        for (int32_t k = from->dep_offset[i]; k < from->dep_offset[i + 1]; k++) {
            int32_t *need = &step->need[from->channel[from->dep[k]]];
            if (*need <= place[from->dep[k]])
                *need = place[from->dep[k]] + 1;
        }
    }
}

static enum mist_status build_program(const struct mist_event_program *from,
                                      struct event_program *to, int32_t *place,
                                      struct mist_err *err)
{
    list_steps(from, to, place);
    memset(to->lane_channel, N_CH, (size_t)from->n_lanes);
    for (int32_t i = 0; i < from->n_tasks; i++) {
        if (!from->lane || from->lane[i] < 0)
            continue;
        uint8_t *channel = &to->lane_channel[from->lane[i]];
        if (*channel != N_CH && *channel != from->channel[i])
            return mist_err_set(err, MIST_ERR_INPUT,
                                "event graph: task %d is on channel %d, others of lane "
                                "%d are on channel %d",
                                (int)i, (int)from->channel[i], (int)from->lane[i],
                                (int)*channel);
        *channel = from->channel[i];
    }
    return MIST_OK;
}

static enum mist_status build_programs(struct mist_event_engine *e,
                                       struct mist_arena *arena, struct mist_err *err)
{
    const struct mist_event_graph *g = e->graph;
    int32_t n_most = 0;
    bool ok = true;
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < g->n_programs; i++)
        if (g->program[i].n_tasks > n_most)
            n_most = g->program[i].n_tasks;
    int32_t *place = array(arena, n_most, sizeof *place, &ok);
    if (!ok)
        return mist_err_memory(err, NULL);
    for (int32_t i = 0; i < g->n_programs && status == MIST_OK; i++)
        status = build_program(&g->program[i], &e->program[i], place, err);
    return status;
}

static void build_devices(struct mist_event_engine *e)
{
    const struct mist_event_graph *g = e->graph;
    int64_t n_recorded = 0;

    mist_interference_init(&e->undisturbed);
    for (int32_t d = 0; d < g->n_devices; d++) {
        const struct mist_event_device *from = &g->device[d];
        int32_t n_tasks = g->program[from->program].n_tasks;
        e->device[d] = (struct event_device){
            .program = &e->program[from->program],
            .group = from->group,
            .factors = from->interference ? from->interference : &e->undisturbed,
            .recorded = from->is_recorded ? n_recorded : -1,
        };
        n_recorded += from->is_recorded ? n_tasks : 0;
        e->n_tasks += (int64_t)n_tasks * g->n_iterations;
    }
    e->result.use = e->use;
}

/* A lane without tasks makes nobody wait. */
static void build_members(struct mist_event_engine *e)
{
    const struct mist_event_graph *g = e->graph;

    for (int pass = 0; pass < 2; pass++) {
        for (int32_t d = 0; d < g->n_devices; d++) {
            const struct event_device *device = &e->device[d];
            for (int32_t k = 0; k < g->program[g->device[d].program].n_lanes; k++) {
                int32_t group = device->group[k];
                uint8_t channel = device->program->lane_channel[k];
                if (channel == N_CH)
                    continue;
                if (pass == 0)
                    e->member_begin[group + 1]++;
                else
                    e->member[e->member_begin[group] + e->n_missing[group]++] =
                        d * N_CH + channel; /* n_missing: set anew by every run */
            }
        }
        for (int32_t i = 0; pass == 0 && i < g->n_groups; i++)
            e->member_begin[i + 1] += e->member_begin[i];
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
        e->n_streams = graph->n_devices * N_CH;
    }
    if (!e || !allocate(e, arena))
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %d devices",
                            (int)graph->n_devices);
    status = build_programs(e, arena, err);
    if (status != MIST_OK)
        return status;
    build_devices(e);
    build_members(e);
    *out = e;
    return MIST_OK;
}

/* -------------------------------------------------------------------------- deadlocks */

/* A stream that the next step of a stuck stream waits for. */
static int32_t waits_for(const struct mist_event_engine *e, int32_t i_stream)
{
    int32_t i_device = i_stream / N_CH;
    const struct event_device *device = &e->device[i_device];
    int channel = i_stream % N_CH;

    if (device->left == 0) /* it has ended: its group meets more often than it does */
        return i_stream;
    if (!(device->left >> channel & 1u)) /* for the iteration of its device to end */
        return i_device * N_CH + __builtin_ctz(device->left);
    const struct event_step *step = event_step_at(device, channel);
    for (int c = 0; c < N_CH; c++)
        if (device->n_ended[c] < step->need[c])
            return i_device * N_CH + c;
    int32_t group = device->group[step->lane];
    for (int32_t k = e->member_begin[group]; k < e->member_begin[group + 1]; k++) {
        const struct event_device *other = &e->device[e->member[k] / N_CH];
        int c = e->member[k] % N_CH;
        if (!(other->left >> c & 1u) || other->waiting >> c & 1u)
            return e->member[k];
        const struct event_step *at = event_step_at(other, c);
        if (at->lane < 0 || other->group[at->lane] != group)
            return e->member[k];
    }
    return i_stream; /* not reached: all members are ready */
}

static void name_stream(const struct mist_event_engine *e, int32_t i_stream, char *text,
                        size_t size)
{
    const struct mist_event_graph *g = e->graph;
    const struct event_device *device = &e->device[i_stream / N_CH];
    int channel = i_stream % N_CH;
    const char *stream = mist_stream_name((enum mist_stream)channel);

    if (!(device->left >> channel & 1u))
        snprintf(text, size, "the end of device %d, %s", (int)(i_stream / N_CH), stream);
    else if (g->name_task)
        g->name_task(g->context, i_stream / N_CH, event_step_at(device, channel)->task,
                     text, size);
    else
        snprintf(text, size, "task %d (device %d, %s)",
                 (int)event_step_at(device, channel)->task, (int)(i_stream / N_CH),
                 stream);
}

/* A stream in the ring that waiting runs into: after as many steps as there are streams
 * the walk is in it. */
static int32_t find_ring(const struct mist_event_engine *e)
{
    int32_t at = 0;

    while (e->device[at / N_CH].left == 0) /* some device has not ended */
        at += N_CH;
    at += __builtin_ctz(e->device[at / N_CH].left);
    for (int32_t i = 0; i < e->n_streams; i++)
        at = waits_for(e, at);
    return at;
}

enum mist_status event_explain_deadlock(const struct mist_event_engine *engine,
                                        struct mist_err *err)
{
    char text[400] = "", one[96];
    int32_t at = find_ring(engine), begin = at;

    for (int hop = 0; hop < 8 && strlen(text) + sizeof one + 16 < sizeof text; hop++) {
        name_stream(engine, at, one, sizeof one);
        mist_text_add(text, sizeof text, " waits for ", "%s", one);
        if (hop && at == begin)
            break;
        at = waits_for(engine, at);
    }
    return mist_err_set(
        err, MIST_ERR_INPUT, "deadlock: %lld of %lld tasks can never run: %s",
        (long long)(engine->n_tasks - engine->n_done), (long long)engine->n_tasks, text);
}
