/*
 * Adds tasks, buffers and dependencies to a schedule that is being made, and knows the
 * activations between modules. See schedule_internal.h.
 */
#include "sim/schedule_internal.h"

#include "core/memory.h" /* mist_grow */

#include <string.h>

int32_t mist_schedule_add_buffer(struct mist_schedule_builder *at, enum mist_role role,
                                 int32_t layer, int32_t micro_batch, int64_t size_bytes,
                                 bool is_persistent)
{
    struct mist_schedule *out = at->out;
    void *grown = mist_grow(out->buffers, &at->buffers_capacity,
                            (size_t)out->n_buffers + 1, sizeof *out->buffers);

    if (!grown) {
        at->is_out_of_memory = true;
        return -1;
    }
    out->buffers = grown;
    out->buffers[out->n_buffers] = (struct mist_buffer){
        .arena = MIST_ARENA_DEVICE,
        .role = role,
        .layer = layer,
        .micro_batch = micro_batch,
        .is_persistent = is_persistent,
        .size_bytes = size_bytes,
        .first_task = -1,
        .last_task = -1,
    };
    return out->n_buffers++;
}

/* Appends a task and returns its index; -1 when out of memory. */
int32_t mist_schedule_add_task(struct mist_schedule_builder *at, enum mist_task_kind kind,
                               enum mist_stream stream, int32_t layer,
                               int32_t micro_batch)
{
    struct mist_schedule *out = at->out;
    void *grown = mist_grow(out->tasks, &at->tasks_capacity, (size_t)out->n_tasks + 1,
                            sizeof *out->tasks);

    if (!grown) {
        at->is_out_of_memory = true;
        return -1;
    }
    out->tasks = grown;
    out->tasks[out->n_tasks] = (struct mist_task){
        .kind = kind,
        .stream = stream,
        .layer = layer,
        .micro_batch = micro_batch,
        .peer = -1,
    };
    memset(out->tasks[out->n_tasks].buffers, -1, sizeof out->tasks->buffers);
    return out->n_tasks++;
}

void mist_schedule_use(struct mist_schedule_builder *at, int32_t task,
                       enum mist_role role, int32_t buffer)
{
    if (task < 0 || buffer < 0)
        return;
    struct mist_buffer *used = &at->out->buffers[buffer];
    at->out->tasks[task].buffers[role] = buffer;
    if (used->first_task < 0)
        used->first_task = task;
    used->last_task = task;
}

void mist_schedule_depend(struct mist_schedule_builder *at, int32_t task, int32_t on)
{
    if (task < 0 || on < 0 || at->out->tasks[task].stream == at->out->tasks[on].stream)
        return;
    void *grown =
        mist_grow(at->deps, &at->deps_capacity, (size_t)at->n_deps + 1, sizeof *at->deps);
    if (!grown) {
        at->is_out_of_memory = true;
        return;
    }
    at->deps = grown;
    at->deps[at->n_deps++] = (struct mist_dep){task, on};
}

/* The index of a (stage-local layer, micro-batch) pair. */
size_t mist_schedule_cell(const struct mist_schedule_builder *at, int32_t layer,
                          int32_t micro_batch)
{
    return (size_t)(layer - at->first) * (size_t)at->plan->n_micro_batches +
           (size_t)micro_batch;
}

/* Activation entering a module (= leaving the one before) and its gradient;
 * made on first use. */
int32_t mist_schedule_activation(struct mist_schedule_builder *at, int32_t layer,
                                 int32_t micro_batch)
{
    int32_t *id = &at->boundary[mist_schedule_cell(at, layer, micro_batch)];

    if (*id < 0)
        *id = mist_schedule_add_buffer(at, MIST_ROLE_OUTPUT, layer - 1, micro_batch,
                                       at->out->layouts[MIST_LAYER_BLOCK].input_bytes,
                                       false);
    return *id;
}

int32_t mist_schedule_activation_gradient(struct mist_schedule_builder *at, int32_t layer,
                                          int32_t micro_batch)
{
    int32_t *id = &at->grad[mist_schedule_cell(at, layer, micro_batch)];

    if (*id < 0)
        *id = mist_schedule_add_buffer(at, MIST_ROLE_GRAD_INPUT, layer, micro_batch,
                                       at->out->layouts[MIST_LAYER_BLOCK].input_bytes,
                                       false);
    return *id;
}
