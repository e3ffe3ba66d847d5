/* One candidate: as a plan, its memory, its replay. See validate.h. */
#include "tune/validate.h"

#include "core/hash.h"
#include "core/parse.h"          /* mist_format_bytes */
#include "sim/explain/explain.h" /* mist_beside_arena_find */
#include "sim/replay/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What passes may take longer than the replay: nearly none of the random plans of
 * tests/prop/test_stage_model.c do. */
#define PASSES_ERROR_FRAC 0.3

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

static void make_stage(const struct mist_space *space,
                       const struct mist_search_choice *choice,
                       struct mist_stage_plan *out)
{
    const struct mist_search_knobs *knobs = &choice->knobs;

    *out = (struct mist_stage_plan){
        .n_layers = choice->n_layers,
        .micro_batch = choice->micro_batch,
        .dp = choice->shape.dp,
        .tp = choice->shape.tp,
        .cp = choice->shape.cp,
        .is_sequence_parallel = choice->shape.is_sequence_parallel,
        .zero = knobs->zero,
        .n_checkpointed = knobs->n_checkpointed,
        .n_lean = knobs->n_lean,
        .updates_on_host = knobs->updates_on_host,
    };
    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        out->offload_frac[k] = knobs->offload[k] / (double)MIST_RATIO_ONE;
    mist_stage_mesh(mist_space_n_devices(&choice->shape), space->devices_per_node,
                    &out->n_nodes, &out->n_devices);
}

struct mist_search_choice mist_validate_choice(const struct mist_stage_plan *stage)
{
    struct mist_search_choice choice = {
        .shape = {stage->dp, stage->tp, stage->is_sequence_parallel, stage->cp},
        .n_layers = stage->n_layers,
        .micro_batch = stage->micro_batch,
        .knobs = {.n_checkpointed = stage->n_checkpointed,
                  .n_lean = stage->n_lean,
                  .zero = stage->zero,
                  .updates_on_host = stage->updates_on_host},
    };

    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        choice.knobs.offload[k] = (int8_t)lround(stage->offload_frac[k] * MIST_RATIO_ONE);
    return choice;
}

/* The chunks that a schedule is tried with: some fixed number, or 2 to 4 unless more are
 * asked for. */
static struct mist_knob_range chunks_of(const struct mist_space *space,
                                        enum mist_pipeline_schedule pipeline)
{
    int32_t n = mist_pipeline_kinds[pipeline].n_chunks;
    struct mist_knob_range range = mist_space_range(space, MIST_KNOB_CHUNKS);

    if (n > 0)
        return (struct mist_knob_range){n, n};
    return (struct mist_knob_range){range.min > 2 ? range.min : 2,
                                    range.min > 4 ? range.min : 4};
}

bool mist_validate_next_pipeline(const struct mist_space *space, struct mist_plan *plan)
{
    const enum mist_pipeline_schedule now = plan->pipeline;
    const int32_t n_chunks = mist_plan_n_chunks(plan);

    for (int i = (int)now; i < MIST_N_PIPELINES; i++) {
        enum mist_pipeline_schedule pipeline = (enum mist_pipeline_schedule)i;
        struct mist_knob_range chunks = chunks_of(space, pipeline);
        for (int32_t n = pipeline == now ? n_chunks + 1 : chunks.min; n <= chunks.max;
             n++)
            if (mist_validate_set_pipeline(plan, pipeline, n) &&
                mist_bounds_allow(&space->bounds, plan))
                return true;
    }
    return false;
}

void mist_validate_set_allowed_pipeline(const struct mist_space *space,
                                        struct mist_plan *plan)
{
    if (!mist_bounds_allow(&space->bounds, plan))
        (void)mist_validate_next_pipeline(space, plan);
}

uint64_t mist_validate_hash(const struct mist_search_candidate *candidate)
{
    struct mist_hash hash;

    mist_hash_init(&hash);
    mist_hash_add_int64(&hash, candidate->n_micro_batches);
    for (int32_t i = 0; i < candidate->n_stages; i++) {
        const struct mist_search_choice *stage = &candidate->stages[i];
        MIST_HASH_INT64(&hash, stage->n_layers, stage->knobs.n_checkpointed,
                        stage->knobs.n_lean, stage->knobs.zero, stage->shape.dp,
                        stage->shape.tp, stage->shape.is_sequence_parallel,
                        stage->shape.cp);
        for (int k = 0; k < MIST_N_OFFLOADS; k++)
            mist_hash_add_int64(&hash, stage->knobs.offload[k]);
        mist_hash_add_int64(&hash, stage->knobs.updates_on_host);
    }
    return hash.value;
}

void mist_validate_set_cluster(const struct mist_validate_config *config,
                               struct mist_plan *plan)
{
    const char *trace_set = config->trace_set ? config->trace_set : "";

    plan->fingerprint =
        mist_plan_fingerprint(&plan->model, &plan->job, config->fingerprint);
    plan->device_memory_bytes = config->device_memory_bytes;
    if (strlen(trace_set) < sizeof plan->trace_set)
        memcpy(plan->trace_set, trace_set, strlen(trace_set));
}

void mist_validate_make_plan(const struct mist_validate_config *config,
                             const struct mist_search_candidate *candidate,
                             struct mist_plan *out)
{
    const struct mist_space *space = config->space;

    *out = (struct mist_plan){
        .model = space->model,
        .job = space->job,
        .pipeline = MIST_PIPELINE_1F1B,
        .n_micro_batches = candidate->n_micro_batches,
        .n_stages = candidate->n_stages,
    };
    mist_validate_set_cluster(config, out);
    for (int32_t i = 0; i < candidate->n_stages; i++) {
        const struct mist_search_choice *choice = &candidate->stages[i];
        make_stage(space, choice, &out->stages[i]);
        out->predicted.stable_s[i] = choice->t_s;
        out->predicted.extra_s[i] = choice->d_s;
    }
    mist_validate_set_allowed_pipeline(space, out);
}

bool mist_validate_set_pipeline(struct mist_plan *plan,
                                enum mist_pipeline_schedule pipeline, int32_t n_chunks)
{
    const struct mist_pipeline_kind *kind = &mist_pipeline_kinds[pipeline];
    bool is_open = kind->n_chunks == 0;
    int32_t n = is_open ? n_chunks : kind->n_chunks;
    bool can =
        (plan->n_stages > 1 || pipeline == MIST_PIPELINE_1F1B) &&
        (!is_open || n_chunks > 1) &&
        (!kind->groups_micro_batches || plan->n_micro_batches % plan->n_stages == 0);

    for (int32_t i = 0; i < plan->n_stages && can; i++)
        can = plan->stages[i].n_layers % n == 0;
    if (!can)
        return false;
    plan->pipeline = pipeline;
    plan->n_chunks = is_open ? n_chunks : 0;
    for (int32_t i = 0; i < plan->n_stages; i++)
        plan->passes[i] = kind->n_kept_per_stage > 0
                              ? (struct mist_pipeline_pass){1, 1, 1, 0, 0}
                              : (struct mist_pipeline_pass){0};
    return true;
}

/* Makes the order of an automatic schedule for the plan's own prices. */
static enum mist_status time_passes(const struct mist_validate_config *config,
                                    struct mist_plan *plan, struct mist_err *err)
{
    if (mist_pipeline_kinds[plan->pipeline].n_kept_per_stage == 0 || !config->price)
        return MIST_OK;
    return mist_stage_price_passes(config->price, plan, plan->passes, err);
}

static enum mist_status price_passes(const struct mist_validate_config *config,
                                     struct mist_plan *plan, double *time_s,
                                     struct mist_err *err)
{
    enum mist_status status = time_passes(config, plan, err);

    return status == MIST_OK ? mist_stage_price_plan(config->price, plan, time_s, err)
                             : status;
}

/* The largest sum of host arenas over the nodes; ranks fill one node after the other. */
static int64_t find_host_bytes(const struct mist_validate_config *config,
                               const struct mist_plan *plan,
                               const struct mist_replay_stage *stages)
{
    int32_t per_node = config->space->devices_per_node, rank = 0;
    int64_t most = 0, sum = 0;

    for (int32_t i = 0; i < plan->n_stages; i++)
        for (int32_t k = 0; k < mist_stage_n_ranks(&plan->stages[i]); k++, rank++) {
            sum = rank % per_node == 0 ? 0 : sum;
            sum += stages[i].arena_bytes[MIST_ARENA_HOST];
            most = sum > most ? sum : most;
        }
    return most;
}

/* Whether a plan, its arenas planned, keeps to the constraints. */
static bool keeps_to_constraints(const struct mist_constraints *constraints,
                                 const struct mist_plan *plan)
{
    struct mist_search_choice stages[MIST_MAX_STAGES];

    if (!constraints || constraints->n == 0)
        return true;
    for (int32_t i = 0; i < plan->n_stages; i++) {
        stages[i] = mist_validate_choice(&plan->stages[i]);
        stages[i].peak_bytes = plan->predicted.peak_bytes[i];
    }
    return mist_constraints_hold(constraints, plan->n_micro_batches, plan->n_stages,
                                 stages);
}

static void judge_memory(const struct mist_validate_config *config,
                         const int64_t *closed_bytes,
                         const struct mist_replay_stage *stages,
                         struct mist_validated *out)
{
    int64_t most_bytes = -1;

    out->host_bytes = find_host_bytes(config, out->plan, stages);
    for (int32_t i = 0; i < out->plan->n_stages; i++) {
        int64_t planned = stages[i].arena_bytes[MIST_ARENA_DEVICE];
        int64_t closed = closed_bytes ? closed_bytes[i] : planned;
        const struct mist_beside_arena beside = mist_beside_arena_find(
            out->plan, mist_cost_model_cluster(config->cost_model), &stages[i]);
        int64_t bytes = planned + mist_beside_arena_least(&beside);
        if (bytes > most_bytes) {
            most_bytes = bytes;
            out->planned_bytes = planned;
            out->beside_bytes = bytes - planned;
            out->closed_bytes = closed;
            out->i_stage = i;
        }
        out->plan->predicted.peak_bytes[i] = planned;
    }
    out->holds = most_bytes <= config->limit_bytes &&
                 out->host_bytes <= config->host_limit_bytes &&
                 mist_bounds_allow(&config->space->bounds, out->plan) &&
                 keeps_to_constraints(config->constraints, out->plan);
}

/* Of the trace set, if the plan has as many ranks and threads as were measured. */
static double find_probe_s(const struct mist_validate_config *config,
                           const struct mist_plan *plan)
{
    const struct mist_cluster *cluster =
        &mist_cost_model_traces(config->cost_model)->cluster;
    int64_t n_measured = (int64_t)cluster->nodes * cluster->devices_per_node;
    bool is_alike = mist_plan_n_ranks(plan) == n_measured &&
                    config->threads == cluster->device_threads;

    return is_alike ? cluster->probe_us * 1e-6 : 0;
}

/* The time of a plan that holds. */
static enum mist_status replay_plan(const struct mist_validate_config *config,
                                    struct mist_replay_built *built,
                                    struct mist_validated *plan, struct mist_err *err)
{
    struct mist_prediction *predicted = &plan->plan->predicted;
    struct mist_replay_result replay;
    enum mist_status status =
        mist_replay_run_built(built, config->cost_model, NULL, &replay, err);

    if (status != MIST_OK)
        return status;
    mist_replay_predict(&replay, &mist_cost_model_traces(config->cost_model)->cluster,
                        predicted);
    predicted->probe_s = find_probe_s(config, plan->plan);
    mist_replay_result_fini(&replay);
    plan->pipelines[plan->plan->pipeline] =
        (struct mist_validated_pipeline){MIST_TRIED_REPLAYED, predicted->iteration_s};
    return MIST_OK;
}

/* As mist_validate_plan(); of a plan over limit_bytes (0: none) no more than that is
 * found. */
static enum mist_status validate_plan(const struct mist_validate_config *config,
                                      const int64_t *closed_bytes, int64_t limit_bytes,
                                      struct mist_validated *plan, struct mist_err *err)
{
    struct mist_replay_options options = {
        .threads = config->threads, .limit_bytes = limit_bytes, .skips_timeline = true};
    struct mist_replay_stage stages[MIST_MAX_STAGES];
    struct mist_replay_built *built = NULL;
    enum mist_status status = mist_plan_check(plan->plan, err);

    if (status == MIST_OK)
        status = time_passes(config, plan->plan, err);
    if (status == MIST_OK)
        status = mist_replay_build(plan->plan, &options, &built, err);
    if (status == MIST_OK) {
        mist_replay_built_stages(built, stages);
        judge_memory(config, closed_bytes, stages, plan);
    }
    if (status == MIST_OK && plan->holds)
        status = replay_plan(config, built, plan, err);
    mist_replay_built_free(built);
    return status;
}

enum mist_status mist_validate_plan(const struct mist_validate_config *config,
                                    const int64_t *closed_bytes,
                                    struct mist_validated *plan, struct mist_err *err)
{
    return validate_plan(config, closed_bytes, 0, plan, err);
}

/* The plan with another schedule; *best becomes that if it is faster. */
static enum mist_status replay_pipeline(const struct mist_validate_config *config,
                                        struct mist_plan *plan,
                                        struct mist_validated *best, struct mist_err *err)
{
    struct mist_validated other = *best;
    struct mist_validated_pipeline *tried = &best->pipelines[plan->pipeline];
    double time_s;

    other.plan = plan;
    enum mist_status status =
        validate_plan(config, NULL, config->limit_bytes, &other, err);
    if (status != MIST_OK)
        return status;
    if (!other.holds && tried->tried < MIST_TRIED_OVER_LIMIT)
        tried->tried = MIST_TRIED_OVER_LIMIT;
    if (!other.holds)
        return MIST_OK;
    time_s = plan->predicted.iteration_s;
    if (tried->tried != MIST_TRIED_REPLAYED || time_s < tried->time_s)
        *tried = (struct mist_validated_pipeline){MIST_TRIED_REPLAYED, time_s};
    if (time_s < best->plan->predicted.iteration_s) {
        *best->plan = *plan;
        best->planned_bytes = other.planned_bytes;
        best->beside_bytes = other.beside_bytes;
        best->host_bytes = other.host_bytes;
        best->i_stage = other.i_stage;
    }
    return MIST_OK;
}

/* By its passes first. */
static enum mist_status try_pipeline(const struct mist_validate_config *config,
                                     double best_s, struct mist_plan *plan,
                                     struct mist_validated *best, struct mist_err *err)
{
    struct mist_validated_pipeline *tried = &best->pipelines[plan->pipeline];
    double time_s = 0;
    enum mist_status status = price_passes(config, plan, &time_s, err);

    if (status != MIST_OK)
        return status;
    if (time_s <= (1 + PASSES_ERROR_FRAC) * best_s)
        return replay_pipeline(config, plan, best, err);
    if (tried->tried < MIST_TRIED_PRICED ||
        (tried->tried == MIST_TRIED_PRICED && time_s < tried->time_s))
        *tried = (struct mist_validated_pipeline){MIST_TRIED_PRICED, time_s};
    return MIST_OK;
}

enum mist_status mist_validate_pipelines(const struct mist_validate_config *config,
                                         double best_s, struct mist_validated *best,
                                         struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    if (best->plan->n_stages == 1 || !mist_space_has(config->space, MIST_SPACE_SCHEDULE))
        return MIST_OK;
    for (int i = 0; i < MIST_N_PIPELINES; i++)
        if (best->pipelines[i].tried == MIST_TRIED_NOT && i != MIST_PIPELINE_1F1B)
            best->pipelines[i].tried = MIST_TRIED_IMPOSSIBLE;
    struct mist_plan *plan = malloc(sizeof *plan);
    if (!plan)
        return mist_err_memory(err, NULL);
    *plan = *best->plan;
    bool is_more = mist_validate_set_pipeline(plan, MIST_PIPELINE_1F1B, 0);
    while (is_more && status == MIST_OK &&
           mist_validate_next_pipeline(config->space, plan))
        status = try_pipeline(config, best_s, plan, best, err);
    free(plan);
    return status;
}

enum mist_status mist_validate_price_pipelines(const struct mist_validate_config *config,
                                               struct mist_plan *plan, double *least_s,
                                               struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    while (status == MIST_OK && mist_validate_next_pipeline(config->space, plan)) {
        double time_s;
        status = price_passes(config, plan, &time_s, err);
        if (status == MIST_OK && time_s < *least_s)
            *least_s = time_s;
    }
    return status;
}
