/*
 * Adds tasks, buffers and dependencies to a schedule that is being made, and knows the
 * activations between modules. See schedule_internal.h.
 */
#include "sim/schedule/schedule_internal.h"

#include "core/memory.h" /* mist_grow */
#include "sim/model/framework.h"

#include <string.h>

int32_t mist_schedule_add_buffer(struct mist_schedule_builder *at,
                                 enum mist_buffer_arena arena, enum mist_role role,
                                 int32_t layer, int32_t micro_batch, int64_t size_bytes,
                                 bool is_persistent)
{
    struct mist_schedule *out = at->out;

    if (!MIST_RESERVE(out->buffers, at->buffers_capacity, out->n_buffers + 1) ||
        !MIST_RESERVE(at->writers, at->writers_capacity, out->n_buffers + 1)) {
        at->is_out_of_memory = true;
        return -1;
    }
    memset(at->writers[out->n_buffers], -1, sizeof *at->writers);
    out->buffers[out->n_buffers] = (struct mist_buffer){
        .arena = arena,
        .role = role,
        .layer = layer,
        .micro_batch = micro_batch,
        .slab = -1,
        .is_persistent = is_persistent,
        .size_bytes = size_bytes,
        .first_task = -1,
        .last_task = -1,
    };
    return out->n_buffers++;
}

int32_t mist_schedule_add_task(struct mist_schedule_builder *at, enum mist_task_kind kind,
                               enum mist_stream stream, int32_t layer,
                               int32_t micro_batch)
{
    struct mist_schedule *out = at->out;

    if (!MIST_RESERVE(out->tasks, at->tasks_capacity, out->n_tasks + 1)) {
        at->is_out_of_memory = true;
        return -1;
    }
    out->tasks[out->n_tasks] = (struct mist_task){
        .kind = kind,
        .stream = stream,
        .layer = layer,
        .micro_batch = micro_batch,
        .part = -1,
        .slab = -1,
        .peer = -1,
    };
    memset(out->tasks[out->n_tasks].buffers, -1, sizeof out->tasks->buffers);
    if (stream == MIST_STREAM_COMPUTE)
        at->last_compute = out->n_tasks;
    return out->n_tasks++;
}

void mist_schedule_read(struct mist_schedule_builder *at, int32_t task,
                        enum mist_role role, int32_t buffer)
{
    if (task < 0 || buffer < 0)
        return;
    struct mist_buffer *used = &at->out->buffers[buffer];
    at->out->tasks[task].buffers[role] = buffer;
    if (used->first_task < 0)
        used->first_task = task;
    used->last_task = task;
    for (int i = 0; i < MIST_N_STREAMS; i++)
        mist_schedule_depend(at, task, at->writers[buffer][i]);
}

void mist_schedule_hold(struct mist_schedule_builder *at, int32_t buffer)
{
    if (buffer >= 0 && at->out->buffers[buffer].last_task >= 0)
        at->out->buffers[buffer].last_task = at->out->n_tasks - 1;
}

void mist_schedule_wrote(struct mist_schedule_builder *at, int32_t task, int32_t buffer)
{
    if (task >= 0 && buffer >= 0)
        at->writers[buffer][at->out->tasks[task].stream] = task;
}

void mist_schedule_write(struct mist_schedule_builder *at, int32_t task,
                         enum mist_role role, int32_t buffer)
{
    mist_schedule_read(at, task, role, buffer);
    mist_schedule_wrote(at, task, buffer);
}

void mist_schedule_depend(struct mist_schedule_builder *at, int32_t task, int32_t on)
{
    if (task >= 0 && on >= 0 && !mist_waits_add(&at->waits, at->out, task, on))
        at->is_out_of_memory = true;
}

int32_t mist_schedule_add_copy(struct mist_schedule_builder *at, enum mist_task_kind kind,
                               bool to_host, int32_t layer, int32_t micro_batch,
                               int32_t from, int64_t from_offset_bytes, int32_t to,
                               int64_t to_offset_bytes, int64_t bytes)
{
    int32_t task = mist_schedule_add_task(
        at, kind, to_host ? MIST_STREAM_DEVICE_TO_HOST : MIST_STREAM_HOST_TO_DEVICE,
        layer, micro_batch);

    if (task < 0)
        return -1;
    at->out->tasks[task].bytes = bytes;
    at->out->tasks[task].from_offset_bytes = from_offset_bytes;
    at->out->tasks[task].to_offset_bytes = to_offset_bytes;
    mist_schedule_read(at, task, MIST_ROLE_INPUT, from);
    mist_schedule_write(at, task, MIST_ROLE_OUTPUT, to);
    return task;
}

int32_t mist_schedule_add_collective(struct mist_schedule_builder *at,
                                     enum mist_task_kind kind, enum mist_group group,
                                     int32_t layer, int32_t micro_batch, int64_t bytes)
{
    const struct mist_plan *plan = at->plan;
    bool is_apart = group == MIST_GROUP_DP && plan->stages[at->out->i_stage].tp > 1 &&
                    mist_framework_get(plan->job.framework)->separates_groups;
    int32_t task = mist_schedule_add_task(
        at, kind, is_apart ? MIST_STREAM_SHARDS : MIST_STREAM_GPU_GPU, layer,
        micro_batch);

    if (task < 0)
        return -1;
    at->out->tasks[task].group = group;
    at->out->tasks[task].tag = at->n_collectives[group]++;
    at->out->tasks[task].bytes = bytes;
    mist_schedule_depend(at, task, at->collectives_behind);
    return task;
}

/* --------------------------------------------------------------------------- look-up */

enum mist_layer_kind mist_schedule_kind_of(const struct mist_schedule_builder *at,
                                           int32_t layer)
{
    return mist_schedule_layer_kind(&at->plan->model, layer);
}

enum mist_program_kind mist_schedule_slot_program(enum mist_slot_kind kind)
{
    static const enum mist_program_kind programs[] = {
        [MIST_SLOT_FORWARD] = MIST_PROGRAM_FORWARD,
        [MIST_SLOT_BACKWARD] = MIST_PROGRAM_BACKWARD,
        [MIST_SLOT_BACKWARD_INPUT] = MIST_PROGRAM_BACKWARD_INPUT,
        [MIST_SLOT_BACKWARD_WEIGHT] = MIST_PROGRAM_BACKWARD_WEIGHT,
    };

    return programs[kind];
}

int64_t mist_schedule_gradient_bytes(const struct mist_schedule_builder *at,
                                     int64_t elements)
{
    return elements * mist_dtype_gradient_bytes(at->plan->job.gradient_dtype);
}

const struct mist_slab *mist_schedule_plan_slab(const struct mist_schedule_builder *at,
                                                int32_t i_module, int32_t i_slab)
{
    return &at->out->storage[i_module].slabs[i_slab];
}

const struct mist_layer_layout *
mist_schedule_layout_of(const struct mist_schedule_builder *at, int32_t layer)
{
    return &at->out->layouts[mist_schedule_kind_of(at, layer)];
}

int32_t mist_schedule_module_of(const struct mist_schedule_builder *at, int32_t layer)
{
    for (int32_t c = 0, before = 0; c < at->n_chunks; c++) {
        if (layer >= at->chunk_first[c] && layer <= at->chunk_last[c])
            return before + layer - at->chunk_first[c];
        before += at->chunk_last[c] - at->chunk_first[c] + 1;
    }
    return -1;
}

struct mist_schedule_slab *mist_schedule_slab_of(const struct mist_schedule_builder *at,
                                                 int32_t i_module, int32_t i_slab)
{
    return &at->slabs[i_module * MIST_MAX_SLABS + i_slab];
}

size_t mist_schedule_cell(const struct mist_schedule_builder *at, int32_t i_module,
                          int32_t micro_batch)
{
    return (size_t)i_module * (size_t)at->plan->n_micro_batches + (size_t)micro_batch;
}

size_t mist_schedule_boundary(const struct mist_schedule_builder *at, int32_t chunk,
                              int32_t layer, int32_t micro_batch)
{
    return mist_schedule_cell(at, at->chunk_base[chunk] + layer - at->chunk_first[chunk],
                              micro_batch);
}

int32_t mist_schedule_activation(struct mist_schedule_builder *at, int32_t chunk,
                                 int32_t layer, int32_t micro_batch)
{
    int32_t *id = &at->activation[mist_schedule_boundary(at, chunk, layer, micro_batch)];

    if (*id < 0)
        *id = mist_schedule_add_buffer(
            at, MIST_ARENA_DEVICE, MIST_ROLE_OUTPUT, layer - 1, micro_batch,
            at->out->layouts[MIST_LAYER_BLOCK].input_bytes, false);
    return *id;
}

int32_t mist_schedule_activation_gradient(struct mist_schedule_builder *at, int32_t chunk,
                                          int32_t layer, int32_t micro_batch)
{
    int32_t *id = &at->gradient[mist_schedule_boundary(at, chunk, layer, micro_batch)];

    if (*id < 0)
        *id = mist_schedule_add_buffer(
            at, MIST_ARENA_DEVICE, MIST_ROLE_GRAD_INPUT, layer, micro_batch,
            at->out->layouts[MIST_LAYER_BLOCK].input_bytes, false);
    return *id;
}

bool mist_schedule_shards(const struct mist_schedule_builder *at, bool flag)
{
    return flag && mist_stage_n_replicas(at->stage) > 1;
}

bool mist_schedule_has_tied_stages(const struct mist_plan *plan)
{
    return plan->model.ties_embeddings && mist_plan_head_stage(plan) > 0;
}

bool mist_schedule_reduces_each(const struct mist_schedule_builder *at)
{
    return mist_piece_stage_conditions(at->plan, at->out->i_stage) & MIST_IF_SUMS_EACH;
}
