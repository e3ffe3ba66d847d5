/*
 * What is common to all schedules: where modules lie, and the bookkeeping of
 * dependencies. The expansion itself is in schedule_build.c. See
 * schedule.h.
 */
#include "sim/schedule/schedule.h"

#include "core/memory.h" /* mist_grown */
#include "core/order.h"

#include "sim/model/framework.h"
#include "sim/schedule/memory_planner.h"

#include <stdlib.h>

enum mist_layer_kind mist_schedule_layer_kind(const struct mist_model *model,
                                              int32_t layer)
{
    if (layer == 0)
        return MIST_LAYER_EMBEDDING;
    return layer == model->n_layers + 1 ? MIST_LAYER_HEAD : MIST_LAYER_BLOCK;
}

void mist_schedule_chunk_layers(const struct mist_plan *plan, int32_t i_stage,
                                int32_t i_chunk, int32_t *first, int32_t *last)
{
    int32_t n;

    mist_plan_chunk_layers(plan, i_stage, i_chunk, first, &n);
    *last = *first + n - 1;
    if (i_stage == 0 && i_chunk == 0)
        *first = 0;
    if (i_stage == mist_plan_head_stage(plan) && i_chunk == mist_plan_n_chunks(plan) - 1)
        ++*last;
}

const struct mist_module_storage *
mist_schedule_storage(const struct mist_schedule *schedule, int32_t layer)
{
    size_t n = (size_t)schedule->n_modules;

    MIST_BISECT(low, 0, n, i, schedule->modules[i] < layer);
    return low < n && schedule->modules[low] == layer ? &schedule->storage[low] : NULL;
}

/* The first from one on; -1: there is none. */
static int32_t find_behind(const struct mist_schedule *schedule, int32_t first,
                           int32_t layer, enum mist_role role, int32_t i_slab)
{
    for (int32_t i = first; i < schedule->n_buffers; i++) {
        const struct mist_buffer *buffer = &schedule->buffers[i];
        if (buffer->is_persistent && buffer->layer == layer && buffer->role == role &&
            buffer->slab == i_slab)
            return i;
    }
    return -1;
}

int32_t mist_schedule_find_buffer(const struct mist_schedule *schedule, int32_t layer,
                                  enum mist_role role, int32_t i_slab)
{
    return find_behind(schedule, 0, layer, role, i_slab);
}

int32_t mist_schedule_find_host_copy(const struct mist_schedule *schedule, int32_t layer,
                                     enum mist_role role, int32_t i_slab)
{
    int32_t home = mist_schedule_find_buffer(schedule, layer, role, i_slab);

    return home < 0 ? -1 : find_behind(schedule, home + 1, layer, role, i_slab);
}

/* How many blocks of its stage are before a block, chunk by chunk; -1: not of the stage.
 */
static int32_t count_before(const struct mist_plan *plan, int32_t i_stage, int32_t layer)
{
    int32_t n_before = 0;

    for (int32_t c = 0; c < mist_plan_n_chunks(plan); c++) {
        int32_t first, n;
        mist_plan_chunk_layers(plan, i_stage, c, &first, &n);
        if (layer >= first && layer < first + n)
            return n_before + layer - first;
        n_before += n;
    }
    return -1;
}

bool mist_schedule_is_checkpointed(const struct mist_plan *plan, int32_t i_stage,
                                   int32_t layer)
{
    int32_t n_before = count_before(plan, i_stage, layer);

    return n_before >= 0 && n_before < plan->stages[i_stage].n_checkpointed;
}

bool mist_schedule_is_lean(const struct mist_plan *plan, int32_t i_stage, int32_t layer)
{
    const struct mist_stage_plan *stage = &plan->stages[i_stage];
    int32_t n_before = count_before(plan, i_stage, layer);

    return n_before >= stage->n_checkpointed &&
           n_before < stage->n_checkpointed + stage->n_lean;
}

struct mist_layer_shape mist_schedule_shape(const struct mist_plan *plan, int32_t i_stage,
                                            int32_t threads)
{
    const struct mist_stage_plan *stage = &plan->stages[i_stage];
    const struct mist_framework *framework = mist_framework_get(plan->job.framework);
    bool is_alone = stage->tp == 1 && plan->n_stages == 1;

    return (struct mist_layer_shape){
        .micro_batch = stage->micro_batch,
        .seq = plan->job.seq_len,
        .tp = stage->tp,
        .cp = mist_stage_cp(stage),
        .threads = threads,
        .is_sequence_parallel = stage->is_sequence_parallel,
        .splits_backward = mist_pipeline_kinds[plan->pipeline].splits_backward,
        .dtype = plan->job.dtype,
        .attention = plan->job.attention,
        .recomputes_attention = plan->job.recomputes_attention,
        .has_dropout = framework->has_dropout && !plan->job.has_no_dropout,
        .repeats_all = framework->repeats_all,
        .keeps_products = plan->job.recomputes_attention && framework->selective_frac > 0,
        .is_alone = is_alone,
        .is_eager = framework->is_eager || (framework->alone_ops && is_alone),
        .logit_bytes = mist_framework_logit_held_bytes(
            framework, stage->tp > 1, plan->job.has_fp16_loss, plan->job.has_fused_loss),
    };
}

struct mist_chunks mist_schedule_chunks(const struct mist_plan *plan,
                                        const struct mist_schedule *schedule)
{
    return mist_chunks_of(plan->job.seq_len,
                          mist_stage_cp(&plan->stages[schedule->i_stage]),
                          schedule->at[MIST_AXIS_CP]);
}

int64_t mist_schedule_n_parameters(const struct mist_schedule *schedule,
                                   const struct mist_plan *plan)
{
    bool shares_tied = mist_plan_head_stage(plan) == 0;
    int64_t n = 0;

    for (int32_t i = 0; i < schedule->n_modules; i++) {
        const struct mist_layer_layout *layout =
            &schedule
                 ->layouts[mist_schedule_layer_kind(&plan->model, schedule->modules[i])];
        for (int32_t k = 0; k < layout->n_params; k++)
            if (!layout->params[k].is_tied || !shares_tied)
                n += layout->params[k].n_elements;
    }
    return n;
}

void mist_schedule_free(struct mist_schedule *schedule)
{
    if (!schedule)
        return;
    free(schedule->modules);
    free(schedule->storage);
    free(schedule->tasks);
    free(schedule->deps);
    free(schedule->buffers);
    free(schedule);
}

double mist_schedule_bytes(const struct mist_schedule *schedule)
{
    return (double)sizeof *schedule +
           (double)(sizeof *schedule->modules + sizeof *schedule->storage) *
               schedule->n_modules +
           (double)sizeof *schedule->tasks * schedule->n_tasks +
           (double)sizeof *schedule->deps * schedule->n_deps +
           (double)sizeof *schedule->buffers * schedule->n_buffers;
}

double mist_schedule_building_bytes(const struct mist_schedule *schedule)
{
    double grown = mist_grown(schedule->n_tasks) * (double)sizeof *schedule->tasks +
                   mist_grown(schedule->n_deps) * (double)sizeof(struct mist_dep) +
                   mist_grown(schedule->n_buffers) * (double)sizeof *schedule->buffers;
    double kept = (double)sizeof *schedule->tasks * schedule->n_tasks +
                  (double)sizeof *schedule->buffers * schedule->n_buffers;

    return grown - kept + mist_memory_plan_bytes(schedule);
}

void mist_waits_init(struct mist_waits *waits)
{
    *waits = (struct mist_waits){0};
    for (int i = 0; i < MIST_N_STREAMS; i++)
        for (int k = 0; k < MIST_N_STREAMS; k++)
            waits->latest[i][k] = i == k ? INT32_MAX : -1;
}

void mist_waits_fini(struct mist_waits *waits)
{
    free(waits->deps);
    waits->deps = NULL;
}

bool mist_waits_add(struct mist_waits *waits, const struct mist_schedule *schedule,
                    int32_t task, int32_t on)
{
    int32_t *latest =
        &waits->latest[schedule->tasks[task].stream][schedule->tasks[on].stream];

    if (on <= *latest)
        return true;
    *latest = on;
    for (int32_t i = waits->n; i-- > 0 && waits->deps[i].task == task;)
        if (schedule->tasks[waits->deps[i].on].stream == schedule->tasks[on].stream) {
            waits->deps[i].on = on;
            return true;
        }
    return MIST_APPEND(waits->deps, waits->capacity, waits->n,
                       (struct mist_dep){task, on});
}

/* Counts, then places: task i's dependencies keep the order in which they were added. */
enum mist_status mist_schedule_set_deps(struct mist_schedule *schedule,
                                        const struct mist_dep *deps, int32_t n_deps,
                                        struct mist_err *err)
{
    int32_t *sorted = malloc(((size_t)n_deps + 1) * sizeof *sorted);

    if (!sorted)
        return mist_err_memory(err, NULL);
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        schedule->tasks[i].n_deps = 0;
    for (int32_t i = 0; i < n_deps; i++)
        schedule->tasks[deps[i].task].n_deps++;
    for (int32_t i = 0, first = 0; i < schedule->n_tasks; i++) {
        schedule->tasks[i].dep_first = first;
        first += schedule->tasks[i].n_deps;
        schedule->tasks[i].n_deps = 0;
    }
    for (int32_t i = 0; i < n_deps; i++) {
        struct mist_task *task = &schedule->tasks[deps[i].task];
        sorted[task->dep_first + task->n_deps++] = deps[i].on;
    }
    free(schedule->deps);
    schedule->deps = sorted;
    schedule->n_deps = n_deps;
    return MIST_OK;
}
