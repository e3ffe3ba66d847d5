/*
 * What is common to all schedules: which plans can be expanded, where modules lie, and
 * the bookkeeping of dependencies. The expansion itself is in schedule_build.c. See
 * schedule.h.
 */
#include "sim/schedule.h"

#include "core/memory.h" /* mist_align_up */

#include <stdlib.h>

enum mist_layer_kind mist_schedule_layer_kind(const struct mist_model *model,
                                              int32_t layer)
{
    if (layer == 0)
        return MIST_LAYER_EMBEDDING;
    return layer == model->n_layers + 1 ? MIST_LAYER_HEAD : MIST_LAYER_BLOCK;
}

void mist_schedule_stage_layers(const struct mist_plan *plan, int32_t i_stage,
                                int32_t *first, int32_t *last)
{
    int32_t first_block = mist_plan_first_layer(plan, i_stage);

    *first = i_stage == 0 ? 0 : first_block;
    *last = first_block + plan->stages[i_stage].n_layers - 1 +
            (i_stage == plan->n_stages - 1 ? 1 : 0);
}

int64_t mist_schedule_padded_elements(int64_t n_parameters, int32_t dp)
{
    int64_t shard = (n_parameters + dp - 1) / dp;

    return mist_align_up(shard, 16) * dp;
}

bool mist_schedule_is_checkpointed(const struct mist_plan *plan, int32_t i_stage,
                                   int32_t layer)
{
    int32_t first_block = mist_plan_first_layer(plan, i_stage);

    return layer >= first_block &&
           layer < first_block + plan->stages[i_stage].n_checkpointed;
}

/* NULL if the schedule can express the stage, otherwise the knob that it can't; *key: how
 * plan.json calls it. */
static const char *unsupported_knob(const struct mist_stage_plan *stage, const char **key)
{
    const struct {
        const char *key, *name;
        bool is_used;
    } knobs[] = {
        {"tp", "tensor parallelism (tp > 1)", stage->tp > 1},
        {"zero", "ZeRO-2 and ZeRO-3 (zero > 1)",
         stage->shards_weights || stage->shards_gradients},
        {"offload_weights_frac", "offloading (offload ratios > 0)",
         stage->offload_weights > 0},
        {"offload_gradients_frac", "offloading (offload ratios > 0)",
         stage->offload_gradients > 0},
        {"offload_optimizer_frac", "offloading (offload ratios > 0)",
         stage->offload_optimizer > 0},
        {"offload_activations_frac", "offloading (offload ratios > 0)",
         stage->offload_activations > 0},
    };

    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++) {
        *key = knobs[i].key;
        if (knobs[i].is_used)
            return knobs[i].name;
    }
    return NULL;
}

/* mist_schedule_supports() that also says where. */
static enum mist_status find_unsupported(const struct mist_plan *plan,
                                         struct mist_plan_fault *fault,
                                         struct mist_err *err)
{
    *fault = (struct mist_plan_fault){"job", -1, "dtype"};
    if (plan->job.dtype != MIST_DTYPE_FP32)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "dtype %s can't be scheduled yet; fp32 can",
                            mist_dtype_name(plan->job.dtype));
    for (int32_t i = 0; i < plan->n_stages; i++) {
        *fault = (struct mist_plan_fault){"stages", i, NULL};
        const char *knob = unsupported_knob(&plan->stages[i], &fault->key);
        if (knob)
            return mist_err_set(err, MIST_ERR_INPUT,
                                "stage %d: %s can't be scheduled yet; data and pipeline "
                                "parallelism, checkpointing and ZeRO-1 can",
                                (int)i, knob);
    }
    return MIST_OK;
}

enum mist_status mist_schedule_supports(const struct mist_plan *plan,
                                        struct mist_err *err)
{
    struct mist_plan_fault fault;

    return find_unsupported(plan, &fault, err);
}

enum mist_status mist_schedule_load_plan(const char *path, struct mist_plan *out,
                                         struct mist_err *err)
{
    return mist_plan_load_checked(path, find_unsupported, out, err);
}

void mist_schedule_free(struct mist_schedule *schedule)
{
    if (!schedule)
        return;
    free(schedule->tasks);
    free(schedule->deps);
    free(schedule->buffers);
    free(schedule);
}

/* Counts, then places: task i's dependencies keep the order in which they were added. */
enum mist_status mist_schedule_set_deps(struct mist_schedule *schedule,
                                        const struct mist_dep *deps, int32_t n_deps,
                                        struct mist_err *err)
{
    int32_t *sorted = malloc(((size_t)n_deps + 1) * sizeof *sorted);

    if (!sorted)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
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
