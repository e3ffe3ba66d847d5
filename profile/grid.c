/* Which operators a search space asks for. See grid.h. */
#include "profile/grid.h"

#include "core/hash.h"
#include "core/memory.h"
#include "profile/grid_internal.h"
#include "sim/cost/cost_model.h" /* work per element of what is no step */
#include "sim/schedule/module_storage.h"

#include <stdlib.h>
#include <string.h>

/* 1, 2, 4: data-parallel sizes whose optimizer shards are timed. */
static int32_t data_parallel_of(int32_t i_shards)
{
    return 1 << i_shards;
}

static size_t cell_of(const struct mist_grid *grid, int32_t i_variant,
                      int32_t i_micro_batch, enum mist_layer_kind kind)
{
    int32_t row = i_variant * grid->config.n_micro_batches + i_micro_batch;

    return (size_t)(row * MIST_N_LAYER_KINDS + (int32_t)kind);
}

const struct mist_layer_layout *mist_grid_layout(const struct mist_grid *grid,
                                                 int32_t i_variant, int32_t i_micro_batch,
                                                 enum mist_layer_kind kind)
{
    return &grid->layouts[cell_of(grid, i_variant, i_micro_batch, kind)];
}

const struct mist_grid_step_keys *mist_grid_keys(const struct mist_grid *grid,
                                                 int32_t i_variant, int32_t i_micro_batch,
                                                 enum mist_layer_kind kind)
{
    return &grid->step_keys[cell_of(grid, i_variant, i_micro_batch, kind)];
}

double mist_grid_block_us(const struct mist_grid *grid,
                          const struct mist_estimate *estimates)
{
    const struct mist_layer_layout *layout =
        mist_grid_layout(grid, 0, 0, MIST_LAYER_BLOCK);
    const struct mist_grid_step_keys *keys = mist_grid_keys(grid, 0, 0, MIST_LAYER_BLOCK);
    double sum_us = 0;

    for (int k = 0; k < 2; k++)
        for (int32_t i = 0; i < (k ? layout->n_backward : layout->n_forward); i++)
            sum_us += estimates[keys->of[k][i]].mean;
    return sum_us;
}

bool mist_grid_has(const struct mist_grid *grid, int32_t i_variant, int32_t i_micro_batch)
{
    const struct mist_grid_variant *variant = &grid->variants[i_variant];
    int64_t n_tokens =
        grid->config.micro_batches[i_micro_batch] * (int64_t)grid->config.seq_len;

    return !variant->is_sequence_parallel || n_tokens % variant->tp == 0;
}

int64_t mist_grid_padded_elements(const struct mist_grid *grid, enum mist_layer_kind kind,
                                  int32_t n_ranks)
{
    return mist_storage_padded_elements(mist_grid_layout(grid, 0, 0, kind)->n_parameters,
                                        n_ranks);
}

int64_t mist_grid_parameter_elements(const struct mist_grid *grid,
                                     enum mist_layer_kind kind)
{
    int64_t most = 0;

    for (int32_t i = 0; i < grid->n_variants; i++) {
        int64_t n = mist_grid_layout(grid, i, 0, kind)->n_parameters;
        most = n > most ? n : most;
    }
    for (int32_t i = 0; i < grid->n_shards; i++) {
        int64_t end = grid->shards[i].slab_first + grid->shards[i].n_whole;
        if (grid->shards[i].kind == kind && end > most)
            most = end;
    }
    return most;
}

/* --------------------------------------------------------------------------- variants */

static bool allows_tp(const struct mist_model *model, int32_t tp)
{
    return model->n_heads % tp == 0 && model->ffn % tp == 0 && model->hidden % tp == 0 &&
           (model->n_kv_heads == 1 || model->n_kv_heads % tp == 0);
}

static void make_variants(struct mist_grid *grid)
{
    int32_t n_tps = 1;

    grid->variants[grid->n_variants++] = (struct mist_grid_variant){1, false};
    for (int32_t tp = 2; tp <= grid->config.n_ranks && n_tps < MIST_GRID_MAX_TPS;
         tp *= 2) {
        if (!allows_tp(&grid->config.model, tp))
            continue;
        n_tps++;
        for (int k = 0; k < 2; k++)
            grid->variants[grid->n_variants++] = (struct mist_grid_variant){tp, k == 1};
    }
}

static enum mist_status make_layouts(struct mist_grid *grid, struct mist_err *err)
{
    const struct mist_grid_config *config = &grid->config;

    for (int32_t v = 0; v < grid->n_variants; v++)
        for (int32_t i = 0; i < config->n_micro_batches; i++)
            for (int k = 0; k < MIST_N_LAYER_KINDS; k++) {
                enum mist_layer_kind kind = (enum mist_layer_kind)k;
                bool is_whole = !mist_grid_has(grid, v, i); /* parameters are the same */
                struct mist_layer_shape shape = {
                    .micro_batch = config->micro_batches[i],
                    .seq = config->seq_len,
                    .tp = grid->variants[v].tp,
                    .threads = config->n_threads,
                    .is_sequence_parallel =
                        grid->variants[v].is_sequence_parallel && !is_whole,
                    .splits_backward = false,
                    .dtype = config->dtype,
                };
                struct mist_layer_layout *out = &grid->layouts[cell_of(grid, v, i, kind)];
                enum mist_status status =
                    mist_layer_layout_make(&config->model, kind, shape, out, err);
                if (status != MIST_OK)
                    return status;
                if (is_whole)
                    out->n_forward = out->n_backward = out->n_remake = 0;
            }
    return MIST_OK;
}

/* ------------------------------------------------------------------------------- keys */

static bool is_same_key(const struct mist_grid_key *a, const struct mist_grid_key *b)
{
    return a->op == b->op && a->phase == b->phase &&
           memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

/* Index of the key, added when it is new; -1: out of memory. */
static int32_t add_key(struct mist_grid *grid, const struct mist_grid_key *key)
{
    for (int32_t i = 0; i < grid->n_keys; i++)
        if (is_same_key(&grid->keys[i], key))
            return i;
    if (!MIST_RESERVE(grid->keys, grid->keys_capacity, grid->n_keys + 1))
        return -1;
    grid->keys[grid->n_keys] = *key;
    return grid->n_keys++;
}

static bool add_program(struct mist_grid *grid, const struct mist_step *steps,
                        int32_t n_steps, int32_t *key_of_step)
{
    for (int32_t i = 0; i < n_steps; i++) {
        struct mist_grid_key key = {.op = steps[i].op,
                                    .phase = steps[i].phase,
                                    .flop = (double)steps[i].flop,
                                    .bytes = (double)steps[i].bytes};
        key_of_step[i] = -1;
        if (mist_op_is_communication(steps[i].op))
            continue;
        memcpy(key.dims, steps[i].dims, (size_t)steps[i].n_dims * sizeof *key.dims);
        key_of_step[i] = add_key(grid, &key);
        if (key_of_step[i] < 0)
            return false;
    }
    return true;
}

static bool add_programs(struct mist_grid *grid)
{
    size_t n = cell_of(grid, grid->n_variants, 0, MIST_LAYER_EMBEDDING);

    for (size_t i = 0; i < n; i++) {
        const struct mist_layer_layout *layout = &grid->layouts[i];
        if (!add_program(grid, layout->forward, mist_layer_layout_n_steps(layout, false),
                         grid->step_keys[i].of[0]) ||
            !add_program(grid, layout->backward, mist_layer_layout_n_steps(layout, true),
                         grid->step_keys[i].of[1]))
            return false;
    }
    return true;
}

/* -------------------------------------------------------------------------- optimizer */

void mist_grid_store(const struct mist_grid *grid, int32_t i_variant,
                     enum mist_layer_kind kind, int32_t dp, struct mist_plan *plan,
                     struct mist_module_storage *out)
{
    const struct mist_model *model = &grid->config.model;
    int32_t module = kind == MIST_LAYER_EMBEDDING ? 0
                     : kind == MIST_LAYER_BLOCK   ? 1
                                                  : model->n_layers + 1;

    *plan = (struct mist_plan){.model = *model, .n_micro_batches = 1, .n_stages = 1};
    plan->job.dtype = grid->config.dtype;
    plan->stages[0] = (struct mist_stage_plan){
        .n_layers = model->n_layers,
        .n_nodes = 1,
        .n_devices = dp,
        .micro_batch = 1,
        .dp = dp,
        .tp = grid->variants[i_variant].tp,
    };
    mist_storage_make(plan, 0, mist_grid_layout(grid, i_variant, 0, MIST_LAYER_EMBEDDING),
                      &module, 1, out);
}

static int32_t add_gradient_key(struct mist_grid *grid, enum mist_op op, int64_t elements)
{
    struct mist_work work = mist_op_gradient_work(op, elements);
    struct mist_grid_key key = {.op = op,
                                .phase = mist_op_gradient_phase(op),
                                .dims = {elements},
                                .flop = (double)work.flop,
                                .bytes = (double)work.bytes};

    return add_key(grid, &key);
}

static bool add_shard(struct mist_grid *grid, struct mist_grid_shard shard)
{
    if (!MIST_RESERVE(grid->shards, grid->shards_capacity, grid->n_shards + 1))
        return false;
    shard.adamw_key = add_gradient_key(grid, MIST_OP_ADAMW, shard.n);
    shard.host_key = -1;
    if (grid->config.n_threads == 0) /* on a CPU it is the same as the other */
        shard.host_key = add_gradient_key(grid, MIST_OP_ADAMW_HOST, shard.n);
    shard.zero_key = add_gradient_key(grid, MIST_OP_ZERO, shard.n_whole);
    for (int k = 0; k < 2; k++) {
        int64_t n = k ? shard.n_whole : shard.n;
        shard.norm_key[k] = add_gradient_key(grid, MIST_OP_GRADIENT_NORM, n);
        shard.add_key[k] = add_gradient_key(grid, MIST_OP_RESIDUAL, n);
    }
    grid->shards[grid->n_shards++] = shard;
    return shard.adamw_key >= 0 && shard.zero_key >= 0 &&
           (shard.host_key >= 0 || grid->config.n_threads > 0) &&
           shard.norm_key[0] >= 0 && shard.norm_key[1] >= 0 && shard.add_key[0] >= 0 &&
           shard.add_key[1] >= 0;
}

/* Every slab of a module, where it begins in the flat array of the layout. */
static bool add_slabs(struct mist_grid *grid, int32_t i_variant,
                      enum mist_layer_kind kind, int32_t n_shards, struct mist_plan *plan)
{
    const struct mist_layer_layout *layout = mist_grid_layout(grid, i_variant, 0, kind);
    struct mist_module_storage storage;

    mist_grid_store(grid, i_variant, kind, n_shards, plan, &storage);
    for (int32_t s = 0; s < storage.n_slabs; s++) {
        struct mist_grid_shard shard = {
            .kind = kind,
            .i_variant = i_variant,
            .n_shards = n_shards,
            .n_whole = storage.slabs[s].n_elements,
            .n = storage.slabs[s].n_elements / n_shards,
        };
        for (int32_t i = layout->n_params - 1; i >= 0; i--)
            if (storage.param_slab[i] == s)
                shard.slab_first = layout->params[i].offset;
        if (!add_shard(grid, shard))
            return false;
    }
    return true;
}

static bool add_optimizer(struct mist_grid *grid, struct mist_plan *plan)
{
    for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++)
        for (int32_t v = 0; v < grid->n_variants; v++)
            for (int32_t i = 0; i < MIST_GRID_N_SHARDS; i++)
                if (!grid->variants[v].is_sequence_parallel && /* has the same */
                    !add_slabs(grid, v, (enum mist_layer_kind)kind, data_parallel_of(i),
                               plan))
                    return false;
    return true;
}

/* ----------------------------------------------------------------------------- public */

static enum mist_status check(const struct mist_grid_config *config, struct mist_err *err)
{
    if (config->model.max_seq > 0 && config->seq_len > config->model.max_seq)
        return mist_err_set(
            err, MIST_ERR_INPUT, "sequences of %d tokens, but model %s has %d positions",
            (int)config->seq_len, config->model.name, (int)config->model.max_seq);
    if (config->n_nodes < 1 || config->n_ranks % config->n_nodes != 0)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "%d ranks on %d nodes: every node must have equally many",
                            (int)config->n_ranks, (int)config->n_nodes);
    return MIST_OK;
}

enum mist_status mist_grid_make(const struct mist_grid_config *config,
                                struct mist_grid *out, struct mist_err *err)
{
    *out = (struct mist_grid){.config = *config};
    enum mist_status status = check(config, err);
    if (status != MIST_OK)
        return status;
    make_variants(out);
    size_t n = cell_of(out, out->n_variants, 0, MIST_LAYER_EMBEDDING);
    struct mist_plan *plan = malloc(sizeof *plan);
    if (!plan || !MIST_CALLOC(out->layouts, n) || !MIST_CALLOC(out->step_keys, n))
        status = mist_err_memory(err, NULL);
    if (status == MIST_OK)
        status = make_layouts(out, err);
    if (status == MIST_OK && (!add_programs(out) || !add_optimizer(out, plan) ||
                              !mist_grid_add_messages(out, plan)))
        status = mist_err_memory(err, NULL);
    free(plan);
    return status;
}

void mist_grid_fini(struct mist_grid *grid)
{
    free(grid->layouts);
    free(grid->step_keys);
    free(grid->keys);
    free(grid->shards);
    free(grid->shapes);
    free(grid->messages);
    *grid = (struct mist_grid){0};
}

double mist_grid_pass_flop(const struct mist_grid *grid, int32_t i_variant,
                           int32_t i_micro_batch, int32_t n_blocks)
{
    double flop = 0;

    for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++) {
        const struct mist_layer_layout *layout =
            mist_grid_layout(grid, i_variant, i_micro_batch, (enum mist_layer_kind)kind);
        flop +=
            (kind == MIST_LAYER_BLOCK ? n_blocks : 1) * mist_layer_layout_flop(layout);
    }
    return flop;
}

int32_t mist_grid_n_passes(const struct mist_grid *grid, int32_t i_micro_batch)
{
    const int32_t *sizes = grid->config.micro_batches;

    return sizes[grid->config.n_micro_batches - 1] / sizes[i_micro_batch];
}

uint64_t mist_grid_fingerprint(const struct mist_grid *grid)
{
    struct mist_hash hash;

    mist_hash_init(&hash);
    MIST_HASH_INT64(&hash, grid->config.n_nodes, grid->config.n_ranks,
                    grid->config.n_threads, grid->config.dtype, grid->config.is_quick,
                    grid->config.allows_atomics, grid->config.attention,
                    grid->config.model.n_layers);
    for (int32_t i = 0; i < grid->n_keys; i++) {
        mist_hash_add_text(&hash, mist_op_name(grid->keys[i].op));
        mist_hash_add_text(&hash, mist_phase_words[grid->keys[i].phase]);
        for (int k = 0; k < MIST_MAX_DIMS; k++)
            mist_hash_add_int64(&hash, grid->keys[i].dims[k]);
    }
    for (int32_t i = 0; i < grid->n_messages; i++) {
        const struct mist_group_shape *shape = &grid->shapes[grid->messages[i].i_shape];
        mist_hash_add_text(&hash, mist_link_operation_words[grid->messages[i].operation]);
        MIST_HASH_INT64(&hash, shape->nodes, shape->ranks_per_node,
                        shape->concurrent_groups, grid->messages[i].bytes);
    }
    return hash.value;
}
