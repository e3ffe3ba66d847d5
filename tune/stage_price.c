/* Prices of stages by the closed form. See stage_price.h. */
#include "tune/stage_price.h"

#include "sim/closed_form/stage_model.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct mist_stage_price {
    const struct mist_space *space;
    struct mist_stage_model *model;
    pthread_mutex_t lock;              /* of what follows */
    struct mist_stage_values **values; /* owned, as their arrays; [n_values] */
    size_t n_values, capacity;
};

void mist_stage_price_mesh(const struct mist_space *space, int32_t n, int32_t *n_nodes,
                           int32_t *n_devices)
{
    int32_t per_node = space->devices_per_node;
    bool is_whole_nodes = n > per_node && n % per_node == 0;

    *n_nodes = is_whole_nodes ? n / per_node : 1;
    *n_devices = is_whole_nodes ? per_node : n;
}

enum mist_status mist_stage_price_new(const struct mist_cost_model *cost_model,
                                      const struct mist_space *space, int32_t threads,
                                      struct mist_stage_price **out, struct mist_err *err)
{
    struct mist_stage_price *price = calloc(1, sizeof *price);

    if (!price)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    price->space = space;
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
    mist_stage_model_free(price->model);
    pthread_mutex_destroy(&price->lock);
    free(price);
}

static bool is_same_shape(const struct mist_stage_shape *a,
                          const struct mist_stage_shape *b)
{
    return a->is_first == b->is_first && a->is_last == b->is_last &&
           a->micro_batch == b->micro_batch && a->dp == b->dp && a->tp == b->tp &&
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
    void *grown = mist_grow(price->values, &price->capacity, price->n_values + 1,
                            sizeof *price->values);
    struct mist_stage_values *values = calloc(1, sizeof *values);

    if (grown)
        price->values = grown;
    enum mist_status status =
        grown && values ? mist_stage_model_prepare(price->model, shape, values, err)
                        : mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    if (status != MIST_OK) {
        free(values);
        return status;
    }
    price->values[price->n_values++] = values;
    *out = values;
    return MIST_OK;
}

static enum mist_status price_shape(struct mist_stage_price *price,
                                    const struct mist_search_kind *kind,
                                    const struct mist_stage_values **out,
                                    struct mist_err *err)
{
    struct mist_stage_shape shape = {
        .is_first = kind->role == MIST_SEARCH_ONLY || kind->role == MIST_SEARCH_FIRST,
        .is_last = kind->role == MIST_SEARCH_ONLY || kind->role == MIST_SEARCH_LAST,
        .micro_batch = kind->micro_batch,
        .dp = kind->shape.dp,
        .tp = kind->shape.tp,
        .is_sequence_parallel = kind->shape.is_sequence_parallel,
    };
    enum mist_status status = MIST_OK;

    mist_stage_price_mesh(price->space, mist_space_n_devices(&kind->shape),
                          &shape.n_nodes, &shape.n_devices);
    pthread_mutex_lock(&price->lock);
    *out = find(price, &shape);
    if (!*out)
        status = add(price, &shape, out, err);
    pthread_mutex_unlock(&price->lock);
    return status;
}

/* scratch: as the model wants it. */
static void eval(const struct mist_stage_price *price,
                 const struct mist_stage_values *values,
                 const struct mist_search_kind *kind,
                 const struct mist_search_block *block, void *scratch)
{
    struct mist_tape_input inputs[MIST_STAGE_N_COLUMNS] = {
        [MIST_STAGE_LAYERS] = {.column = block->n_layers},
        [MIST_STAGE_CHECKPOINTED] = {.column = block->n_checkpointed},
        [MIST_STAGE_ZERO] = {.column = block->zero},
        [MIST_STAGE_IN_FLIGHT] = {.value = kind->in_flight},
        [MIST_STAGE_MICRO_BATCHES] = {.value = kind->n_micro_batches},
    };

    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        inputs[MIST_STAGE_OFFLOAD_WEIGHTS + k].column = block->offload[k];
    inputs[MIST_STAGE_UPDATE_ON_HOST].column = block->on_host;
    mist_stage_model_eval(price->model, values, inputs, block->n, block->t_s, block->d_s,
                          block->peak_bytes, block->host_bytes, scratch);
}

enum mist_status mist_stage_price_block(void *context,
                                        const struct mist_search_kind *kind,
                                        const struct mist_search_block *block,
                                        struct mist_err *err)
{
    struct mist_stage_price *price = context;
    const struct mist_stage_values *values;
    size_t size = mist_stage_model_scratch_bytes(price->model) + 64;
    enum mist_status status = price_shape(price, kind, &values, err);

    if (status != MIST_OK)
        return status;
    void *scratch = aligned_alloc(64, size / 64 * 64);
    if (scratch)
        eval(price, values, kind, block, scratch);
    else
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    free(scratch);
    return status;
}
