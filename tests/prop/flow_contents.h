/*
 * What the buffers of one rank hold, range by range, and who touched them: the ground
 * that schedule_flow.h stands on. Include after cmocka.h.
 */
#ifndef MIST_TESTS_PROP_FLOW_CONTENTS_H
#define MIST_TESTS_PROP_FLOW_CONTENTS_H

#include "core/memory.h"
#include "sim/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

/* What a walk over the schedule leaves out, as the executor does. */
enum walk { WALK_STEADY, WALK_FIRST, WALK_UPDATE, WALK_EVALUATE, N_WALKS };

static const char *const walk_names[N_WALKS] = {"steady iteration", "first iteration",
                                                "last update", "evaluation"};

enum content {
    NOTHING,
    WEIGHT,       /* id: slab; version 0 before the update, 1 after */
    STATE,        /* the same of the optimizer; position in this rank's part */
    GRADIENT,     /* id: slab; the masks */
    OLD_GRADIENT, /* of the iteration before */
    ACTIVATION,   /* layer: module that reads it */
    ACTIVATION_GRADIENT,
    TENSOR, /* saved or scratch; id: tensor */
    IDS,    /* tokens (id 0) and targets (1) of all micro-batches */
    TABLE,
};

struct value {
    enum content what;
    int32_t layer, id, micro_batch, version;
    uint32_t local, reduced; /* micro-batches summed on this rank, over dp ranks */
    uint32_t tp, other;      /* over tp ranks where partial, with the other tied one */
    int64_t origin;          /* position in the whole minus position in the buffer */
};

struct segment {
    int64_t from, to;
    struct value value;
};

struct access {
    int32_t task;
    bool writes;
    int64_t from, to;
};

struct cell { /* a buffer */
    struct segment *segments;
    struct access *accesses;
    size_t n_segments, segments_capacity, n_accesses, accesses_capacity;
};

struct flow {
    const struct mist_plan *plan;
    const struct mist_stage_plan *stage;
    const struct mist_schedule *schedule;
    enum walk walk;
    int32_t (*before)[MIST_N_STREAMS]; /* [n_tasks] closure of the order */
    struct cell *cells;                /* [n_buffers] */
    int32_t task;                      /* that runs */
    /* [n_modules][G][MIST_N_PROGRAM_KINDS] parts that have run */
    int32_t *n_parts_run;
    int32_t n_norms[512]; /* by module and slab */
};

enum { MAX_PIECES = 4096 };

/* ----------------------------------------------------------------------------- faults */

static inline void flow_fail(const struct flow *at, const char *what, int32_t buffer,
                             int64_t from, const struct value *found)
{
    const struct mist_task *task = &at->schedule->tasks[at->task < 0 ? 0 : at->task];

    fail_msg("%s: rank %d task %d (%s, layer %d, micro-batch %d, part %d, slab %d): %s "
             "(buffer %d role %d layer %d, byte %lld; found %d of layer %d id %d mb %d "
             "version %d, local %x reduced %x tp %x other %x, origin %lld)",
             walk_names[at->walk], (int)at->schedule->rank, (int)at->task,
             mist_task_kind_name(task->kind), (int)task->layer, (int)task->micro_batch,
             (int)task->part, (int)task->slab, what, (int)buffer,
             buffer < 0 ? -1 : (int)at->schedule->buffers[buffer].role,
             buffer < 0 ? -1 : (int)at->schedule->buffers[buffer].layer, (long long)from,
             found ? (int)found->what : -1, found ? (int)found->layer : 0,
             found ? (int)found->id : 0, found ? (int)found->micro_batch : 0,
             found ? (int)found->version : 0, found ? found->local : 0,
             found ? found->reduced : 0, found ? found->tp : 0, found ? found->other : 0,
             found ? (long long)found->origin : 0);
}

static inline void flow_require(const struct flow *at, bool holds, const char *what)
{
    if (!holds)
        flow_fail(at, what, -1, 0, NULL);
}

/* ----------------------------------------------------------------------------- ranges */

static inline bool same_value(const struct value *a, const struct value *b)
{
    return a->what == b->what && a->layer == b->layer && a->id == b->id &&
           a->micro_batch == b->micro_batch && a->version == b->version &&
           a->local == b->local && a->reduced == b->reduced && a->tp == b->tp &&
           a->other == b->other && a->origin == b->origin;
}

/* Notes an access of the running task and demands its order with earlier ones. */
static inline void flow_touch(struct flow *at, int32_t buffer, int64_t from, int64_t to,
                              bool writes)
{
    struct cell *cell = &at->cells[buffer];
    size_t n = 0;
    const struct mist_task *tasks = at->schedule->tasks;
    enum mist_stream stream = tasks[at->task].stream;
    bool is_kept = true;

    if (from < 0 || to > at->schedule->buffers[buffer].size_bytes || from >= to)
        flow_fail(at, "reaches outside the buffer", buffer, from, NULL);
    for (size_t i = 0; i < cell->n_accesses; i++) {
        struct access old = cell->accesses[i];
        bool overlaps = old.from < to && from < old.to;
        bool is_before = at->before[at->task][tasks[old.task].stream] >= old.task;
        if (overlaps && (writes || old.writes) && old.task != at->task && !is_before) {
            struct value other = {.id = old.task};
            flow_fail(at, "is not ordered with another access (task: id)", buffer, from,
                      &other);
        }
        bool is_covered = from <= old.from && old.to <= to && is_before;
        if (is_covered && (writes || (!old.writes && tasks[old.task].stream == stream)))
            continue; /* whoever comes after this one comes after that one */
        if (old.task == at->task && old.from <= from && to <= old.to &&
            (old.writes || !writes))
            is_kept = false;
        cell->accesses[n++] = old;
    }
    cell->n_accesses = n;
    if (!is_kept)
        return;
    bool has_room = MIST_RESERVE(cell->accesses, cell->accesses_capacity, n + 1);
    assert_true(has_room);
    cell->accesses[cell->n_accesses++] = (struct access){at->task, writes, from, to};
}

/* Segments of a range, cut to it, gaps as NOTHING; returns how many. */
static inline int flow_collect(const struct flow *at, int32_t buffer, int64_t from,
                               int64_t to, struct segment *out)
{
    const struct cell *cell = &at->cells[buffer];
    int n = 0;
    int64_t next = from;

    for (size_t i = 0; i < cell->n_segments && next < to; i++) {
        struct segment s = cell->segments[i];
        if (s.to <= next)
            continue;
        if (s.from >= to)
            break;
        assert_true(n + 2 < MAX_PIECES);
        if (s.from > next)
            out[n++] = (struct segment){next, s.from, {.what = NOTHING}};
        s.from = s.from > next ? s.from : next;
        s.to = s.to < to ? s.to : to;
        next = s.to;
        out[n++] = s;
    }
    if (next < to)
        out[n++] = (struct segment){next, to, {.what = NOTHING}};
    return n;
}

static inline void flow_put(struct flow *at, int32_t buffer, int64_t from, int64_t to,
                            struct value value)
{
    struct cell *cell = &at->cells[buffer];
    static struct segment old[MAX_PIECES];
    size_t n_old = cell->n_segments, n = 0;
    bool is_placed = false;

    assert_true(n_old + 3 < MAX_PIECES);
    if (n_old > 0)
        memcpy(old, cell->segments, n_old * sizeof *old);
    bool has_room = MIST_RESERVE(cell->segments, cell->segments_capacity, n_old + 3);
    assert_true(has_room);
    for (size_t i = 0; i <= n_old; i++) {
        struct segment pieces[3];
        int n_pieces = 0;
        if (!is_placed && (i == n_old || old[i].to > from)) {
            if (i < n_old && old[i].from < from)
                pieces[n_pieces++] = (struct segment){old[i].from, from, old[i].value};
            pieces[n_pieces++] = (struct segment){from, to, value};
            is_placed = true;
        }
        if (i < n_old && old[i].to <= from)
            pieces[n_pieces++] = old[i];
        else if (i < n_old && old[i].to > to)
            pieces[n_pieces++] = (struct segment){old[i].from > to ? old[i].from : to,
                                                  old[i].to, old[i].value};
        for (int k = 0; k < n_pieces; k++) {
            struct segment *last = n > 0 ? &cell->segments[n - 1] : NULL;
            if (last && last->to == pieces[k].from &&
                same_value(&last->value, &pieces[k].value))
                last->to = pieces[k].to;
            else
                cell->segments[n++] = pieces[k];
        }
    }
    cell->n_segments = n;
}

/* All of the range must hold this value. */
static inline void flow_expect(struct flow *at, int32_t buffer, int64_t from, int64_t to,
                               struct value value, const char *what)
{
    static struct segment pieces[MAX_PIECES];
    int n = flow_collect(at, buffer, from, to, pieces);

    for (int i = 0; i < n; i++)
        if (!same_value(&pieces[i].value, &value))
            flow_fail(at, what, buffer, pieces[i].from, &pieces[i].value);
}

static inline void flow_read(struct flow *at, int32_t buffer, int64_t from, int64_t to,
                             struct value value, const char *what)
{
    if (buffer < 0)
        flow_fail(at, what, buffer, from, NULL);
    flow_touch(at, buffer, from, to, false);
    flow_expect(at, buffer, from, to, value, what);
}

static inline void flow_write(struct flow *at, int32_t buffer, int64_t from, int64_t to,
                              struct value value)
{
    flow_require(at, buffer >= 0, "writes to no buffer");
    flow_touch(at, buffer, from, to, true);
    flow_put(at, buffer, from, to, value);
}

/* ------------------------------------------------------------------------- parameters */

static inline const struct mist_module_storage *flow_storage(const struct flow *at,
                                                             int32_t layer, int32_t *m)
{
    for (int32_t i = 0; i < at->schedule->n_modules; i++)
        if (at->schedule->modules[i] == layer) {
            *m = i;
            return &at->schedule->storage[i];
        }
    fail_msg("layer %d is not on rank %d", (int)layer, (int)at->schedule->rank);
    return NULL;
}

static inline const struct mist_layer_layout *flow_layout(const struct flow *at,
                                                          int32_t layer)
{
    return &at->schedule->layouts[mist_schedule_layer_kind(&at->plan->model, layer)];
}

static inline uint32_t flow_all(const struct flow *at)
{
    return (uint32_t)((1u << at->plan->n_micro_batches) - 1);
}

static inline bool flow_is_tied(const struct flow *at, int32_t layer, int32_t i_param)
{
    const struct mist_layer_layout *layout = flow_layout(at, layer);

    return at->plan->model.ties_embeddings &&
           (layout->params[i_param].is_tied ||
            (layer == 0 && strcmp(layout->params[i_param].name, "wte") == 0));
}

/* The slab is cut over data-parallel ranks for what the flag says. */
static inline bool flow_cuts(const struct flow *at, bool flag)
{
    return flag && mist_stage_n_replicas(at->stage) > 1;
}

static inline int64_t flow_shard(const struct flow *at, const struct mist_slab *slab)
{
    return slab->n_elements / mist_stage_n_replicas(at->stage) * 4;
}

/* Where byte 0 of a buffer of weights or gradients lies in its slab: whole slabs at 0,
 * shards at this rank's. */
static inline int64_t flow_origin(const struct flow *at, const struct mist_slab *slab,
                                  int32_t buffer)
{
    int64_t size = at->schedule->buffers[buffer].size_bytes;

    if (size == slab->n_elements * 4)
        return 0;
    flow_require(at, size == flow_shard(at, slab), "a buffer is neither slab nor shard");
    return at->schedule->i_replica * flow_shard(at, slab);
}

/* The rank's part of a slab in the optimizer step, in bytes of the slab. */
static inline void flow_part(const struct flow *at, const struct mist_slab *slab,
                             int64_t *from, int64_t *to)
{
    bool is_cut = flow_cuts(at, at->stage->zero >= 1);

    *from = is_cut ? at->schedule->i_replica * flow_shard(at, slab) : 0;
    *to = is_cut ? *from + flow_shard(at, slab) : slab->n_elements * 4;
}

/* Calls for the elements of a slab that are parameters: [from, to) in bytes of it. */
struct param_range {
    int32_t i_param;
    int64_t from, to;
    bool is_partial;
};

static inline int flow_params(const struct flow *at, int32_t layer, int32_t i_slab,
                              struct param_range *out)
{
    int32_t m = 0;
    const struct mist_module_storage *storage = flow_storage(at, layer, &m);
    const struct mist_layer_layout *layout = flow_layout(at, layer);
    int n = 0;

    for (int32_t p = 0; p < layout->n_params; p++) {
        if (storage->param_slab[p] != i_slab)
            continue;
        int64_t first = storage->param_offset[p] * 4;
        int64_t end = first + layout->params[p].n_elements * 4;
        int64_t from = first + layout->params[p].partial_first * 4;
        int64_t to = from + layout->params[p].partial_elements * 4;
        if (at->stage->tp == 1)
            from = to = first;
        if (from > first)
            out[n++] = (struct param_range){p, first, from, false};
        if (to > from)
            out[n++] = (struct param_range){p, from, to, true};
        if (end > to)
            out[n++] = (struct param_range){p, to, end, false};
    }
    return n;
}

/* Gradients of a slab, as far as [from, to) of it reaches, are complete: summed over
 * everything that the plan says. buffer_origin: slab byte of the buffer's byte 0. */
static inline void flow_expect_final(struct flow *at, int32_t layer, int32_t i_slab,
                                     int32_t buffer, int64_t from, int64_t to)
{
    static struct segment pieces[MAX_PIECES];
    struct param_range ranges[3 * MIST_MAX_PARAMS];
    int32_t m = 0;
    const struct mist_slab *slab = &flow_storage(at, layer, &m)->slabs[i_slab];
    int64_t origin;
    int n = flow_params(at, layer, i_slab, ranges);

    (void)slab;
    /* the values know where they are */
    if (at->cells[buffer].n_segments == 0)
        flow_fail(at, "gradients are not there", buffer, 0, NULL);
    int64_t size = at->schedule->buffers[buffer].size_bytes;
    origin = size == to - from ? from : flow_origin(at, slab, buffer);
    for (int i = 0; i < n; i++) {
        int64_t a = ranges[i].from > from ? ranges[i].from : from;
        int64_t b = ranges[i].to < to ? ranges[i].to : to;
        if (a >= b)
            continue;
        bool is_tied = flow_is_tied(at, layer, ranges[i].i_param);
        struct value final = {
            .what = GRADIENT,
            .layer = layer,
            .id = i_slab,
            .local = mist_stage_n_replicas(at->stage) > 1 ? 0 : flow_all(at),
            .reduced = mist_stage_n_replicas(at->stage) > 1 ? flow_all(at) : 0,
            .tp = ranges[i].is_partial ? flow_all(at) : 0,
            .other = is_tied ? flow_all(at) : 0,
            .origin = origin,
        };
        int k = flow_collect(at, buffer, a - origin, b - origin, pieces);
        for (int q = 0; q < k; q++)
            if (!same_value(&pieces[q].value, &final))
                flow_fail(at, "the gradient is not complete", buffer, pieces[q].from,
                          &pieces[q].value);
    }
}

#endif
