/* What an arena holds when it holds most. See explain.h. */
#include "core/memory.h" /* mist_grow */
#include "sim/explain/explain.h"
#include "sim/model/framework.h"
#include "sim/schedule/memory_planner.h"

#include <stdlib.h>
#include <string.h>

const char *mist_content_label(enum mist_content content)
{
    static const char *const labels[MIST_N_CONTENTS] = {
        "weights",    "gradients",         "optimizer state",   "activations",
        "workspaces", "ids and constants", "rounding and holes"};

    return labels[content];
}

static const struct mist_stage_plan *stage_of(const struct mist_plan *plan, int32_t rank)
{
    int32_t i = 0;

    while (i + 1 < plan->n_stages && mist_plan_first_rank(plan, i + 1) <= rank)
        i++;
    return &plan->stages[i];
}

/* Of gradients on their way to other ranks; pipelines have none. Where sums are fp32, ZeRO-1
 * is another program (runtime/bf16_optimizer.py), which sends them from where they are. */
static int64_t bucket_bytes(const struct mist_plan *plan,
                            const struct mist_framework *framework,
                            const struct mist_stage_plan *stage)
{
    int32_t zero = stage->zero;
    int64_t n = plan->job.reduce_bucket > 0 ? plan->job.reduce_bucket
                                            : framework->bucket_elements;
    bool is_there = plan->n_stages == 1 &&
                    zero >= (plan->job.gradient_dtype == MIST_DTYPE_FP32 ? 2 : 1);
    int64_t n_buckets = !is_there ? 0 : zero < 3 && plan->job.overlaps ? 2 : 1;

    return n_buckets * n * mist_dtype_weight_bytes(plan->job.dtype);
}

/* What an optimizer step asks for in one piece, when activations have left theirs. */
static int64_t flat_bytes(const struct mist_plan *plan,
                          const struct mist_framework *framework,
                          const struct mist_stage_plan *stage, int64_t n_parameters)
{
    int64_t n_at_once =
        plan->job.sub_group > 0 ? plan->job.sub_group : framework->sub_group_elements;
    int64_t n = (int64_t)((1 - stage->offload_optimizer) * (double)n_parameters) /
                mist_stage_n_replicas(stage);

    if (stage->zero == 0 || plan->job.gradient_dtype == MIST_DTYPE_FP32)
        return 0;
    if (stage->zero == 3 && n_at_once > 0 && n > n_at_once)
        n = n_at_once;
    return framework->flat_bytes * n;
}

/* PyTorch's allocator frees what it caches where there is no memory for a new block
 * (c10/cuda/CUDACachingAllocator.cpp): runs fit that would hold more elsewhere. */
struct mist_beside_arena mist_beside_arena_find(const struct mist_plan *plan,
                                                const struct mist_cluster *cluster,
                                                const struct mist_replay_stage *stage)
{
    enum mist_framework_name name = plan->job.framework;
    const struct mist_framework *framework = mist_framework_get(name);
    const struct mist_stage_plan *of = stage_of(plan, stage->rank);
    int64_t of_each = mist_framework_kept_bytes(name, plan->job.dtype,
                                                plan->job.gradient_dtype, of->zero >= 2);
    int64_t kept = stage->n_parameters * of_each + bucket_bytes(plan, framework, of);
    int64_t all = stage->arena_bytes[MIST_ARENA_DEVICE] + kept;
    int64_t usual = (int64_t)(framework->held_frac * (double)all) +
                    flat_bytes(plan, framework, of, stage->n_parameters);
    int64_t runtime =
        cluster->backend == MIST_TRACE_CPU ? 0 : cluster->runtime_memory_bytes;
    int64_t room = cluster->device_memory_bytes - all - runtime;

    return (struct mist_beside_arena){
        .kept_bytes = kept,
        .held_bytes = usual < room ? usual
                      : room > 0   ? room
                                   : 0,
        .lost_bytes = (int64_t)(framework->fragmentation_frac * (double)all),
        .runtime_bytes = runtime,
    };
}

int64_t mist_beside_arena_least(const struct mist_beside_arena *beside)
{
    return beside->kept_bytes + beside->lost_bytes;
}

void mist_explained_memory_fini(struct mist_explained_memory *memory)
{
    free(memory->parts);
    *memory = (struct mist_explained_memory){0};
}

/* Adds bytes to a part, a new one behind those of its content if need be. */
static bool add(struct mist_explained_memory *out, enum mist_content content,
                const char *tensor, int64_t bytes)
{
    int32_t i = 0;

    if (bytes == 0)
        return true;
    while (i < out->n_parts && out->parts[i].content <= content) {
        struct mist_memory_part *part = &out->parts[i++];
        if (part->content == content && strcmp(part->tensor, tensor) == 0) {
            part->bytes += bytes;
            return true;
        }
    }
    if (!MIST_RESERVE(out->parts, out->capacity, out->n_parts + 1))
        return false;
    memmove(out->parts + i + 1, out->parts + i,
            (size_t)(out->n_parts++ - i) * sizeof *out->parts);
    out->parts[i] = (struct mist_memory_part){content, tensor, bytes};
    return true;
}

/* Kept activations of a module, which are one buffer for each place. */
static bool add_saved(struct mist_explained_memory *out, const struct mist_plan *plan,
                      const struct mist_schedule *schedule,
                      const struct mist_buffer *buffer)
{
    const struct mist_layer_layout *layout =
        &schedule->layouts[mist_schedule_layer_kind(&plan->model, buffer->layer)];
    const struct mist_module_storage *storage =
        mist_schedule_storage(schedule, buffer->layer);
    bool fits = true;

    for (int32_t i = 0; i < layout->n_tensors && fits; i++) {
        const struct mist_tensor *tensor = &layout->tensors[i];
        if (tensor->tensor_class == MIST_TENSOR_SAVED &&
            mist_saved_role(storage->saved_place[i]) == buffer->role)
            fits = add(out, MIST_CONTENT_ACTIVATIONS, tensor->name, tensor->bytes);
    }
    return fits;
}

/* Whether what the backward of a module left in its workspace is kept for that of its
 * weights, which comes later. */
static bool waits_for_weights(const struct mist_schedule *schedule,
                              const struct mist_buffer *buffer)
{
    bool has_input = false;

    for (int32_t i = buffer->first_task; i <= buffer->last_task; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        if (task->layer != buffer->layer || task->micro_batch != buffer->micro_batch)
            continue;
        if (has_input && task->kind == MIST_TASK_BACKWARD_WEIGHT)
            return true;
        has_input = has_input || task->kind == MIST_TASK_BACKWARD_INPUT;
    }
    return false;
}

static bool add_buffer(struct mist_explained_memory *out, const struct mist_plan *plan,
                       const struct mist_schedule *schedule,
                       const struct mist_buffer *buffer)
{
    int64_t bytes = buffer->size_bytes;

    switch (buffer->role) {
    case MIST_ROLE_SAVED:
    case MIST_ROLE_SAVED_SWAPPED:
    case MIST_ROLE_SAVED_REMADE:
        return add_saved(out, plan, schedule, buffer);
    case MIST_ROLE_INPUT:
    case MIST_ROLE_OUTPUT:
        return add(out, MIST_CONTENT_ACTIVATIONS, "x between modules", bytes);
    case MIST_ROLE_GRAD_OUTPUT:
    case MIST_ROLE_GRAD_INPUT:
        return add(out, MIST_CONTENT_ACTIVATIONS, "d_x between modules", bytes);
    case MIST_ROLE_SCRATCH:
        return waits_for_weights(schedule, buffer)
                   ? add(out, MIST_CONTENT_ACTIVATIONS, "for gradients of weights", bytes)
                   : add(out, MIST_CONTENT_WORKSPACES, "", bytes);
    case MIST_ROLE_STATE:
        return add(out, MIST_CONTENT_OPTIMIZER, "", bytes);
    case MIST_ROLE_TOKENS:
    case MIST_ROLE_TARGETS:
    case MIST_ROLE_CONSTANT:
        return add(out, MIST_CONTENT_IDS, "", bytes);
    default:
        return add(out,
                   buffer->role >= MIST_ROLE_GRADIENTS ? MIST_CONTENT_GRADIENTS
                                                       : MIST_CONTENT_WEIGHTS,
                   "", bytes);
    }
}

/* The first task at which most is live; -1: out of memory. */
static int32_t find_peak(const struct mist_schedule *schedule,
                         enum mist_buffer_arena arena)
{
    int64_t *live = malloc(((size_t)schedule->n_tasks + 1) * sizeof *live);
    int32_t peak = 0;

    if (!live)
        return -1;
    mist_memory_live(schedule, arena, live);
    for (int32_t i = 1; i < schedule->n_tasks; i++)
        if (live[i] > live[peak])
            peak = i;
    free(live);
    return peak;
}

enum mist_status mist_explain_memory(const struct mist_plan *plan,
                                     const struct mist_schedule *schedule,
                                     enum mist_buffer_arena arena,
                                     struct mist_explained_memory *out,
                                     struct mist_err *err)
{
    struct mist_explained_memory memory = {.arena_bytes = schedule->arena_bytes[arena]};
    int32_t peak = find_peak(schedule, arena);
    int64_t rest = memory.arena_bytes;
    bool fits = peak >= 0;

    for (int32_t i = 0; i < schedule->n_buffers && fits; i++) {
        const struct mist_buffer *buffer = &schedule->buffers[i];
        if (buffer->arena == arena && buffer->first_task <= peak &&
            buffer->last_task >= peak)
            fits = add_buffer(&memory, plan, schedule, buffer);
    }
    for (int32_t i = 0; i < memory.n_parts; i++)
        rest -= memory.parts[i].bytes;
    if (!fits || !add(&memory, MIST_CONTENT_HOLES, "", rest)) {
        mist_explained_memory_fini(&memory);
        return mist_err_memory(err, NULL);
    }
    *out = memory;
    return MIST_OK;
}
