/* One candidate: as a plan, its memory, its replay. See validate.h. */
#include "tune/validate.h"

#include "core/parse.h" /* mist_format_bytes */
#include "sim/replay.h"
#include "tune/stage_price.h" /* mist_stage_price_mesh */

#include <stdlib.h>
#include <string.h>

enum mist_status mist_validate_limit(const struct mist_cluster *cluster,
                                     int64_t device_memory_bytes, int64_t *limit_bytes,
                                     struct mist_err *err)
{
    char memory[MIST_FORMAT_BYTES], runtime[MIST_FORMAT_BYTES];
    int64_t taken =
        cluster->backend == MIST_TRACE_CPU ? 0 : cluster->runtime_memory_bytes;

    *limit_bytes = INT64_MAX;
    if (device_memory_bytes == 0)
        return MIST_OK;
    if (device_memory_bytes <= taken)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "of %s of device memory the runtime takes %s",
                            mist_format_bytes(memory, sizeof memory, device_memory_bytes),
                            mist_format_bytes(runtime, sizeof runtime, taken));
    *limit_bytes = device_memory_bytes - taken;
    return MIST_OK;
}

void mist_validate_make_plan(const struct mist_validate_config *config,
                             const struct mist_search_candidate *candidate,
                             struct mist_plan *out)
{
    const struct mist_space *space = config->space;
    const char *trace_set = config->trace_set ? config->trace_set : "";

    *out = (struct mist_plan){
        .model = space->model,
        .job = space->job,
        .fingerprint =
            mist_plan_fingerprint(&space->model, &space->job, config->fingerprint),
        .device_memory_bytes = config->device_memory_bytes,
        .pipeline = MIST_PIPELINE_1F1B,
        .n_micro_batches = space->cases[candidate->i_case].n_micro_batches,
        .n_stages = candidate->n_stages,
    };
    if (strlen(trace_set) < sizeof out->trace_set)
        memcpy(out->trace_set, trace_set, strlen(trace_set));
    for (int32_t i = 0; i < candidate->n_stages; i++) {
        const struct mist_search_choice *choice = &candidate->stages[i];
        out->stages[i] = (struct mist_stage_plan){
            .n_layers = choice->n_layers,
            .micro_batch = choice->micro_batch,
            .dp = choice->dp,
            .tp = 1,
            .shards_optimizer = choice->zero > 0,
            .n_checkpointed = choice->n_checkpointed,
        };
        mist_stage_price_mesh(space, choice->dp, &out->stages[i].n_nodes,
                              &out->stages[i].n_devices);
        out->predicted.stable_s[i] = choice->t_s;
        out->predicted.extra_s[i] = choice->d_s;
    }
}

static void judge_memory(const struct mist_validate_config *config,
                         const int64_t *closed_bytes,
                         const int64_t (*arena_bytes)[MIST_N_ARENAS],
                         struct mist_validated *out)
{
    out->planned_bytes = -1;
    out->optimism_bytes = INT64_MIN;
    for (int32_t i = 0; i < out->plan->n_stages; i++) {
        int64_t planned = arena_bytes[i][MIST_ARENA_DEVICE];
        int64_t closed = closed_bytes ? closed_bytes[i] : planned;
        if (planned > out->planned_bytes) {
            out->planned_bytes = planned;
            out->closed_bytes = closed;
            out->i_stage = i;
        }
        if (planned - closed > out->optimism_bytes)
            out->optimism_bytes = planned - closed;
        out->plan->predicted.peak_bytes[i] = planned;
    }
    out->holds = out->planned_bytes <= config->limit_bytes;
}

enum mist_status mist_validate_plan(const struct mist_validate_config *config,
                                    const int64_t *closed_bytes,
                                    struct mist_validated *plan, struct mist_err *err)
{
    struct mist_replay_options options = {.threads = config->threads,
                                          .skips_timeline = true};
    struct mist_prediction *predicted = &plan->plan->predicted;
    struct mist_replay_result replay;
    int64_t(*arena_bytes)[MIST_N_ARENAS] =
        calloc((size_t)plan->plan->n_stages, sizeof *arena_bytes);

    if (!arena_bytes)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    enum mist_status status = mist_plan_check(plan->plan, err);
    if (status == MIST_OK)
        status = mist_replay_memory(config->catalog, plan->plan, config->threads,
                                    arena_bytes, err);
    if (status == MIST_OK)
        judge_memory(config, closed_bytes, (const int64_t(*)[MIST_N_ARENAS])arena_bytes,
                     plan);
    free(arena_bytes);
    if (status != MIST_OK || !plan->holds)
        return status;
    status = mist_replay_run(config->catalog, plan->plan, config->cost_model, &options,
                             &replay, err);
    if (status != MIST_OK)
        return status;
    predicted->iteration_s = replay.iteration_s;
    predicted->error_s = replay.error_s;
    predicted->extrapolated_frac = replay.extrapolated_frac;
    mist_replay_result_fini(&replay);
    return MIST_OK;
}
