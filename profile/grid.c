/* Which shapes and messages a search space asks for. See grid.h. */
#include "profile/grid.h"

#include "core/memory.h"
#include "sim/schedule.h" /* padding of parameters */

#include <stdlib.h>
#include <string.h>

static const int64_t smallest_message_bytes = 4096;
static const int64_t smallest_copy_bytes = 1024;       /* token ids of a small batch */
static const int64_t largest_message_bytes = 32 << 20; /* of the series of sizes */

/* Per element: read p, m, v, g and write p, m, v; the arithmetic of AdamW. */
static const double adamw_bytes = 28, adamw_flop = 14, zero_bytes = 4;

int32_t mist_grid_shards(int32_t i_shards)
{
    return 1 << i_shards;
}

const struct mist_layer_layout *mist_grid_layout(const struct mist_grid *grid,
                                                 int32_t i_micro_batch,
                                                 enum mist_layer_kind kind)
{
    return &grid->layouts[i_micro_batch * MIST_N_LAYER_KINDS + (int32_t)kind];
}

int64_t mist_grid_padded_elements(const struct mist_grid *grid, enum mist_layer_kind kind,
                                  int32_t n_ranks)
{
    return mist_schedule_padded_elements(mist_grid_layout(grid, 0, kind)->n_parameters,
                                         n_ranks);
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
    struct mist_grid_key *keys = mist_grow(grid->keys, &grid->keys_capacity,
                                           (size_t)grid->n_keys + 1, sizeof *keys);
    if (!keys)
        return -1;
    grid->keys = keys;
    keys[grid->n_keys] = *key;
    return grid->n_keys++;
}

static bool add_program(struct mist_grid *grid, const struct mist_concrete_step *steps,
                        int32_t n_steps, int32_t *key_of_step)
{
    for (int32_t i = 0; i < n_steps; i++) {
        struct mist_grid_key key = {.op = steps[i].op,
                                    .phase = steps[i].phase,
                                    .flop = steps[i].flop,
                                    .bytes = steps[i].bytes};
        key_of_step[i] = -1;
        if (steps[i].op == MIST_OP_TP_ALL_REDUCE)
            continue;
        memcpy(key.dims, steps[i].dims, (size_t)steps[i].n_dims * sizeof *key.dims);
        key_of_step[i] = add_key(grid, &key);
        if (key_of_step[i] < 0)
            return false;
    }
    return true;
}

static bool add_optimizer(struct mist_grid *grid, enum mist_layer_kind kind)
{
    for (int32_t i = 0; i < MIST_GRID_N_SHARDS; i++) {
        int32_t n = mist_grid_shards(i);
        int64_t padded = mist_grid_padded_elements(grid, kind, n);
        struct mist_grid_key adamw = {.op = MIST_OP_ADAMW,
                                      .phase = MIST_PHASE_OPTIMIZER,
                                      .dims = {padded / n},
                                      .flop = adamw_flop * (double)(padded / n),
                                      .bytes = adamw_bytes * (double)(padded / n)};
        struct mist_grid_key zero = {.op = MIST_OP_ZERO,
                                     .phase = MIST_PHASE_OPTIMIZER,
                                     .dims = {padded},
                                     .bytes = zero_bytes * (double)padded};
        grid->adamw_key[kind][i] = add_key(grid, &adamw);
        grid->zero_key[kind][i] = add_key(grid, &zero);
        if (grid->adamw_key[kind][i] < 0 || grid->zero_key[kind][i] < 0)
            return false;
    }
    return true;
}

/* --------------------------------------------------------------------------- messages */

static bool add_message(struct mist_grid *grid, enum mist_link_operation operation,
                        int32_t n_ranks, int64_t bytes)
{
    struct mist_grid_message message = {operation, n_ranks, bytes};

    for (int32_t i = 0; i < grid->n_messages; i++)
        if (grid->messages[i].operation == operation &&
            grid->messages[i].n_ranks == n_ranks &&
            grid->messages[i].bytes == message.bytes)
            return true;
    struct mist_grid_message *messages =
        mist_grow(grid->messages, &grid->messages_capacity, (size_t)grid->n_messages + 1,
                  sizeof *messages);
    if (!messages)
        return false;
    grid->messages = messages;
    messages[grid->n_messages++] = message;
    return true;
}

static bool add_series(struct mist_grid *grid, enum mist_link_operation operation,
                       int32_t n_ranks, int64_t first_bytes)
{
    for (int64_t bytes = first_bytes; bytes <= largest_message_bytes;
         bytes *= grid->config.is_quick ? 4 : 2)
        if (!add_message(grid, operation, n_ranks, bytes))
            return false;
    return true;
}

/* Gradients and parameters of every module for groups of n_ranks. */
static bool add_collectives(struct mist_grid *grid, int32_t n_ranks)
{
    static const enum mist_link_operation operations[] = {
        MIST_LINK_ALL_REDUCE, MIST_LINK_ALL_GATHER, MIST_LINK_REDUCE_SCATTER};

    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++)
            if (!add_message(grid, operations[i], n_ranks,
                             4 * mist_grid_padded_elements(
                                     grid, (enum mist_layer_kind)kind, n_ranks)))
                return false;
        if (!add_series(grid, operations[i], n_ranks, smallest_message_bytes))
            return false;
    }
    return true;
}

static bool add_messages(struct mist_grid *grid)
{
    const struct mist_grid_config *config = &grid->config;

    for (int32_t n = 2; n <= config->n_ranks; n *= 2)
        if (!add_collectives(grid, n))
            return false;
    if (config->n_ranks > 1) {
        for (int32_t i = 0; i < config->n_micro_batches; i++)
            if (!add_message(grid, MIST_LINK_SEND_RECV, 2,
                             mist_grid_layout(grid, i, MIST_LAYER_BLOCK)->input_bytes))
                return false;
        if (!add_series(grid, MIST_LINK_SEND_RECV, 2, smallest_message_bytes))
            return false;
    }
    return add_series(grid, MIST_LINK_HOST_TO_DEVICE, 1, smallest_copy_bytes) &&
           add_series(grid, MIST_LINK_DEVICE_TO_HOST, 1, smallest_copy_bytes);
}

/* ----------------------------------------------------------------------------- public */

static enum mist_status make_layouts(const struct mist_catalog *catalog,
                                     struct mist_grid *grid, struct mist_err *err)
{
    const struct mist_grid_config *config = &grid->config;

    for (int32_t i = 0; i < config->n_micro_batches; i++)
        for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++) {
            struct mist_layer_shape shape = {config->micro_batches[i], config->seq_len, 1,
                                             config->n_threads};
            enum mist_status status = mist_layer_layout_make(
                catalog, (enum mist_layer_kind)kind, shape,
                &grid->layouts[i * MIST_N_LAYER_KINDS + kind], err);
            if (status != MIST_OK)
                return status;
        }
    return MIST_OK;
}

enum mist_status mist_grid_make(const struct mist_catalog *catalog,
                                const struct mist_grid_config *config,
                                struct mist_grid *out, struct mist_err *err)
{
    bool fits = true;

    *out = (struct mist_grid){.config = *config};
    if (config->model.max_seq > 0 && config->seq_len > config->model.max_seq)
        return mist_err_set(
            err, MIST_ERR_INPUT, "sequences of %d tokens, but model %s has %d positions",
            (int)config->seq_len, config->model.name, (int)config->model.max_seq);
    out->layouts = calloc((size_t)config->n_micro_batches * MIST_N_LAYER_KINDS,
                          sizeof *out->layouts);
    if (!out->layouts)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    enum mist_status status = make_layouts(catalog, out, err);
    if (status != MIST_OK)
        return status;
    for (int32_t i = 0; i < config->n_micro_batches && fits; i++)
        for (int kind = 0; kind < MIST_N_LAYER_KINDS && fits; kind++) {
            const struct mist_layer_layout *layout =
                mist_grid_layout(out, i, (enum mist_layer_kind)kind);
            fits = add_program(out, layout->forward, layout->n_forward,
                               out->key_of_step[i][kind][0]) &&
                   add_program(out, layout->backward, layout->n_backward,
                               out->key_of_step[i][kind][1]);
        }
    for (int kind = 0; kind < MIST_N_LAYER_KINDS && fits; kind++)
        fits = add_optimizer(out, (enum mist_layer_kind)kind);
    if (!fits || !add_messages(out))
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    return MIST_OK;
}

void mist_grid_fini(struct mist_grid *grid)
{
    free(grid->layouts);
    free(grid->keys);
    free(grid->messages);
    *grid = (struct mist_grid){0};
}

int64_t mist_grid_largest_bytes(const struct mist_grid *grid, bool is_copy)
{
    int64_t largest = 0;

    for (int32_t i = 0; i < grid->n_messages; i++)
        if ((grid->messages[i].n_ranks == 1) == is_copy &&
            grid->messages[i].bytes > largest)
            largest = grid->messages[i].bytes;
    return largest;
}

static double program_flop(const struct mist_concrete_step *steps, int32_t n_steps)
{
    double flop = 0;

    for (int32_t i = 0; i < n_steps; i++)
        flop += steps[i].flop;
    return flop;
}

double mist_grid_pass_flop(const struct mist_grid *grid, int32_t i_micro_batch,
                           int32_t n_blocks)
{
    double flop = 0;

    for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++) {
        const struct mist_layer_layout *layout =
            mist_grid_layout(grid, i_micro_batch, (enum mist_layer_kind)kind);
        flop += (kind == MIST_LAYER_BLOCK ? n_blocks : 1) *
                (program_flop(layout->forward, layout->n_forward) +
                 program_flop(layout->backward, layout->n_backward));
    }
    return flop;
}
