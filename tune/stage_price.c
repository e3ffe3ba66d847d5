/* Prices of stages by the closed form. See stage_price.h. */
#include "tune/stage_price.h"

#include "core/hash.h"
#include "core/memory.h"
#include "sim/closed_form/pass_replay.h"
#include "sim/closed_form/stage_model.h"
#include "sim/replay/replay.h"
#include "sim/schedule/schedule.h" /* where its step goes */

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A plan that was replayed shortly. */
struct replayed {
    uint64_t key;
    double iteration_s;
};

struct mist_stage_price {
    const struct mist_space *space;
    const struct mist_cost_model *cost_model;
    int32_t threads;
    struct mist_stage_model *model;
    pthread_mutex_t lock;              /* of what follows */
    struct mist_stage_values **values; /* owned, as their arrays; [n_values] */
    size_t n_values, capacity;
    struct replayed *replayed; /* owned; [n_replayed] */
    size_t n_replayed, replayed_capacity;
};

enum mist_status mist_stage_price_new(const struct mist_cost_model *cost_model,
                                      const struct mist_space *space, int32_t threads,
                                      struct mist_stage_price **out, struct mist_err *err)
{
    struct mist_stage_price *price = calloc(1, sizeof *price);

    if (!price)
        return mist_err_memory(err, NULL);
    price->space = space;
    price->cost_model = cost_model;
    price->threads = threads;
    enum mist_status status = mist_stage_model_new(&space->model, cost_model, &space->job,
                                                   threads, &price->model, err);
    if (status == MIST_OK && pthread_mutex_init(&price->lock, NULL) != 0) {
        mist_stage_model_free(price->model);
        status = mist_err_set(err, MIST_ERR_RUN, "a mutex could not be made");
    }
    if (status != MIST_OK) {
        free(price);
        return status;
    }
    *out = price;
    return MIST_OK;
}

void mist_stage_price_free(struct mist_stage_price *price)
{
    if (!price)
        return;
    for (size_t i = 0; i < price->n_values; i++)
        free(price->values[i]);
    free(price->values);
    free(price->replayed);
    mist_stage_model_free(price->model);
    pthread_mutex_destroy(&price->lock);
    free(price);
}

static bool is_same_shape(const struct mist_stage_shape *a,
                          const struct mist_stage_shape *b)
{
    return a->is_first == b->is_first && a->is_last == b->is_last &&
           a->is_of_first == b->is_of_first && a->micro_batch == b->micro_batch &&
           a->dp == b->dp && a->tp == b->tp && a->cp == b->cp &&
           a->n_nodes == b->n_nodes && a->n_devices == b->n_devices &&
           a->is_sequence_parallel == b->is_sequence_parallel;
}

static const struct mist_stage_values *find(const struct mist_stage_price *price,
                                            const struct mist_stage_shape *shape)
{
    for (size_t i = 0; i < price->n_values; i++)
        if (is_same_shape(&price->values[i]->shape, shape))
            return price->values[i];
    return NULL;
}

/* Prices a shape and keeps it. */
static enum mist_status add(struct mist_stage_price *price,
                            const struct mist_stage_shape *shape,
                            const struct mist_stage_values **out, struct mist_err *err)
{
    struct mist_stage_values *values = calloc(1, sizeof *values);

    enum mist_status status =
        values && MIST_RESERVE(price->values, price->capacity, price->n_values + 1)
            ? mist_stage_model_prepare(price->model, shape, values, err)
            : mist_err_memory(err, NULL);
    if (status != MIST_OK) {
        free(values);
        return status;
    }
    price->values[price->n_values++] = values;
    *out = values;
    return MIST_OK;
}

static enum mist_status price_shape(struct mist_stage_price *price,
                                    const struct mist_stage_shape *shape,
                                    const struct mist_stage_values **out,
                                    struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    pthread_mutex_lock(&price->lock);
    *out = find(price, shape);
    if (!*out)
        status = add(price, shape, out, err);
    pthread_mutex_unlock(&price->lock);
    return status;
}

static struct mist_stage_shape shape_of_kind(const struct mist_stage_price *price,
                                             const struct mist_search_kind *kind)
{
    struct mist_stage_shape shape = {
        .is_first = kind->role == MIST_SEARCH_ONLY || kind->role == MIST_SEARCH_FIRST,
        .is_last = kind->role == MIST_SEARCH_ONLY || kind->role == MIST_SEARCH_LAST,
        .micro_batch = kind->micro_batch,
        .dp = kind->shape.dp,
        .tp = kind->shape.tp,
        .cp = kind->shape.cp,
        .is_sequence_parallel = kind->shape.is_sequence_parallel,
    };

    mist_stage_mesh(mist_space_n_devices(&kind->shape), price->space->devices_per_node,
                    &shape.n_nodes, &shape.n_devices);
    return shape;
}

enum mist_status mist_stage_price_block(void *context,
                                        const struct mist_search_kind *kind,
                                        const struct mist_search_columns *block,
                                        struct mist_err *err)
{
    struct mist_stage_price *price = context;
    struct mist_stage_shape shape = shape_of_kind(price, kind);
    const struct mist_stage_values *values;
    struct mist_tape_input inputs[MIST_STAGE_N_COLUMNS] = {
        [MIST_STAGE_LAYERS] = {.column = block->n_layers},
        [MIST_STAGE_CHECKPOINTED] = {.column = block->n_checkpointed},
        [MIST_STAGE_LEAN] = {.column = block->n_lean},
        [MIST_STAGE_ZERO] = {.column = block->zero},
        [MIST_STAGE_UPDATE_ON_HOST] = {.column = block->on_host},
        [MIST_STAGE_IN_FLIGHT] = {.value = kind->in_flight},
        [MIST_STAGE_MICRO_BATCHES] = {.value = kind->n_micro_batches},
    };
    double *const outputs[MIST_STAGE_N_OUTPUTS] = {
        [MIST_STAGE_STABLE] = block->t_s,
        [MIST_STAGE_EXTRA] = block->d_s,
        [MIST_STAGE_PEAK] = block->peak_bytes,
        [MIST_STAGE_HOST] = block->host_bytes,
    };

    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        inputs[MIST_STAGE_OFFLOAD_WEIGHTS + k].column = block->offload[k];
    enum mist_status status = price_shape(price, &shape, &values, err);
    return status == MIST_OK ? mist_stage_model_eval(price->model, values, inputs,
                                                     block->n, outputs, err)
                             : status;
}

/* ----------------------------------------------------------------------- whole plans */

/* Of n blocks of a stage, which lie one behind the other, those behind so many that are among
 * the n_own of a chunk. */
static int32_t n_in_chunk(int32_t n, int32_t n_before, int32_t n_own)
{
    int32_t rest = n > n_before ? n - n_before : 0;

    return rest < n_own ? rest : n_own;
}

/* A chunk of a stage as if it were a stage: the blocks that the stage checkpoints, and then its
 * lean ones, begin in its first chunk. in_flight: activations of it. */
static enum mist_status price_chunk(struct mist_stage_price *price,
                                    const struct mist_plan *plan, int32_t i_virtual,
                                    int32_t in_flight, struct mist_pass_times *out,
                                    struct mist_err *err)
{
    int32_t i_stage = mist_plan_stage_of_virtual(plan, i_virtual);
    int32_t n_chunks = mist_plan_n_chunks(plan);
    const struct mist_stage_plan *stage = &plan->stages[i_stage];
    int32_t n_own = stage->n_layers / n_chunks;
    int32_t n_before = i_virtual / plan->n_stages * n_own;
    int32_t n_checkpointed = n_in_chunk(stage->n_checkpointed, n_before, n_own);
    int32_t n_thin = n_in_chunk(stage->n_checkpointed + stage->n_lean, n_before, n_own);
    struct mist_stage_shape shape = {
        .is_first = i_virtual == 0,
        .is_last = i_virtual == n_chunks * plan->n_stages - 1,
        .is_of_first = i_virtual > 0 && i_stage == 0,
        .micro_batch = stage->micro_batch,
        .dp = stage->dp,
        .tp = stage->tp,
        .cp = stage->cp,
        .n_nodes = stage->n_nodes,
        .n_devices = stage->n_devices,
        .is_sequence_parallel = stage->is_sequence_parallel,
    };
    double knobs[MIST_STAGE_N_COLUMNS] = {
        [MIST_STAGE_LAYERS] = n_own,
        [MIST_STAGE_CHECKPOINTED] = n_checkpointed,
        [MIST_STAGE_LEAN] = n_thin - n_checkpointed,
        [MIST_STAGE_ZERO] = stage->zero,
        [MIST_STAGE_UPDATE_ON_HOST] = stage->updates_on_host,
        [MIST_STAGE_IN_FLIGHT] = in_flight,
        [MIST_STAGE_MICRO_BATCHES] = plan->n_micro_batches,
    };
    struct mist_tape_input columns[MIST_STAGE_N_COLUMNS];
    const struct mist_stage_values *values;
    double *const outputs[MIST_STAGE_N_OUTPUTS] = {
        [MIST_STAGE_FORWARDS] = &out->forward_s,
        [MIST_STAGE_BACKWARDS] = &out->backward_s,
        [MIST_STAGE_BACKWARDS_INPUT] = &out->input_s,
        [MIST_STAGE_BACKWARDS_WEIGHT] = &out->weight_s,
        [MIST_STAGE_FIRST] = &out->held_s,
        [MIST_STAGE_FIRST_UNHELD] = &out->first_s,
        [MIST_STAGE_ON_HOST] = &out->host_s,
        [MIST_STAGE_LAST] = &out->last_s,
        [MIST_STAGE_LAST_WEIGHT] = &out->last_weight_s,
        [MIST_STAGE_LEFT] = &out->left_s,
        [MIST_STAGE_BEHIND] = &out->behind_s,
        [MIST_STAGE_BRINGS_FORWARD] = &out->brings_s[MIST_SLOT_FORWARD],
        [MIST_STAGE_BRINGS_BACKWARD] = &out->brings_s[MIST_SLOT_BACKWARD],
        [MIST_STAGE_BRINGS_WEIGHT] = &out->brings_s[MIST_SLOT_BACKWARD_WEIGHT],
        [MIST_STAGE_SUMS_FORWARD] = &out->sums_s[MIST_SLOT_FORWARD],
        [MIST_STAGE_SUMS_BACKWARD] = &out->sums_s[MIST_SLOT_BACKWARD],
        [MIST_STAGE_SUMS_INPUT] = &out->sums_s[MIST_SLOT_BACKWARD_INPUT],
        [MIST_STAGE_WAITS_BACKWARD] = &out->waits_s[MIST_SLOT_BACKWARD],
        [MIST_STAGE_WAITS_INPUT] = &out->waits_s[MIST_SLOT_BACKWARD_INPUT],
    };
    enum mist_status status = price_shape(price, &shape, &values, err);

    if (status != MIST_OK)
        return status;
    memcpy(&knobs[MIST_STAGE_OFFLOAD_WEIGHTS], stage->offload_frac,
           sizeof stage->offload_frac);
    for (int i = 0; i < MIST_STAGE_N_COLUMNS; i++)
        columns[i] = (struct mist_tape_input){NULL, knobs[i]};
    mist_stage_model_sends(values, &out->send_forward_s, &out->send_backward_s);
    out->exchange_s = mist_stage_model_exchange_s(values);
    out->n_layers = n_own;
    out->is_ahead = mist_schedule_steps_in_front(&plan->job, i_stage);
    status = mist_stage_model_eval(price->model, values, columns, 1, outputs, err);
    out->held_s += out->forward_s;
    out->brings_s[MIST_SLOT_BACKWARD_INPUT] = out->brings_s[MIST_SLOT_BACKWARD];
    return status;
}

static int32_t to_us(double seconds)
{
    double us = round(seconds * 1e6);

    return us < 1 ? 1 : us > MIST_PLAN_MAX_PASS_US ? MIST_PLAN_MAX_PASS_US : (int32_t)us;
}

enum mist_status mist_stage_price_passes(struct mist_stage_price *price,
                                         const struct mist_plan *plan,
                                         struct mist_pipeline_pass *passes,
                                         struct mist_err *err)
{
    int32_t p = plan->n_stages, g = plan->n_micro_batches;
    int32_t kept = p * mist_pipeline_kinds[plan->pipeline].n_kept_per_stage;
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < p && status == MIST_OK; i++) {
        struct mist_pass_times times;
        status = price_chunk(price, plan, i, kept < g ? kept : g, &times, err);
        if (status == MIST_OK)
            passes[i] = (struct mist_pipeline_pass){
                .forward_us = to_us(times.forward_s),
                .input_us = to_us(times.input_s),
                .weight_us = to_us(times.weight_s),
                .transfer_us = to_us(fmax(times.send_forward_s, times.send_backward_s)),
            };
    }
    return status;
}

enum mist_status mist_stage_price_plan(struct mist_stage_price *price,
                                       const struct mist_plan *plan, double *iteration_s,
                                       struct mist_err *err)
{
    int32_t n_chunks = mist_plan_n_chunks(plan), n = n_chunks * plan->n_stages;
    struct mist_pass_times *times = calloc((size_t)n, sizeof *times);
    struct mist_pipeline_order order = {0};
    enum mist_status status =
        times ? mist_pipeline_order_init(&order, plan->pipeline, plan->n_stages, n_chunks,
                                         plan->n_micro_batches, plan->passes, err)
              : mist_err_memory(err, NULL);

    for (int32_t i = 0; i < n && status == MIST_OK; i++)
        status = price_chunk(
            price, plan, i,
            mist_pipeline_in_flight(&order, mist_plan_stage_of_virtual(plan, i)),
            &times[i], err);
    if (status == MIST_OK)
        status = mist_pass_replay(&order, mist_cost_model_interference(price->cost_model),
                                  times, iteration_s, err);
    mist_pipeline_order_fini(&order);
    free(times);
    return status;
}

static bool is_replayed(struct mist_stage_price *price, uint64_t key, double *iteration_s)
{
    size_t i = 0;

    pthread_mutex_lock(&price->lock);
    while (i < price->n_replayed && price->replayed[i].key != key)
        i++;
    bool is_there = i < price->n_replayed;
    if (is_there)
        *iteration_s = price->replayed[i].iteration_s;
    pthread_mutex_unlock(&price->lock);
    return is_there;
}

static enum mist_status remember(struct mist_stage_price *price, uint64_t key,
                                 double iteration_s, struct mist_err *err)
{
    pthread_mutex_lock(&price->lock);
    bool has_room = MIST_APPEND(price->replayed, price->replayed_capacity,
                                price->n_replayed, (struct replayed){key, iteration_s});
    pthread_mutex_unlock(&price->lock);
    return has_room ? MIST_OK : mist_err_memory(err, NULL);
}

enum mist_status mist_stage_price_replay(struct mist_stage_price *price,
                                         const struct mist_plan *plan, uint64_t candidate,
                                         double *iteration_s, struct mist_err *err)
{
    struct mist_hash hash;

    mist_hash_init(&hash);
    MIST_HASH_INT64(&hash, (int64_t)candidate, plan->pipeline, plan->n_chunks);
    const uint64_t key = hash.value;

    if (is_replayed(price, key, iteration_s))
        return MIST_OK;
    enum mist_status status =
        mist_replay_short(plan, price->cost_model, price->threads, iteration_s, err);
    return status == MIST_OK ? remember(price, key, *iteration_s, err) : status;
}
