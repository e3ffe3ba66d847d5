/*
 * The profile grid: what has to be timed so that every plan of a search space can be
 * priced from measured rows.
 *
 * It follows from the operator catalogue: the steps of embedding, block and head at every
 * micro-batch size give the kernel shapes, the modules' parameters give the optimizer's
 * sizes and the gradient messages, the boundary activations the transfers between stages.
 * The same shape met in several places is one entry.
 *
 * Pure: no clock, no device. Left out: tensor parallelism (tp is 1), groups over several
 * nodes.
 */
#ifndef MIST_PROFILE_GRID_H
#define MIST_PROFILE_GRID_H

#include "core/status.h"
#include "sim/catalog.h"
#include "sim/model.h"
#include "traces/trace_set.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    MIST_GRID_MAX_MICRO_BATCHES = 16,
    MIST_GRID_N_SHARDS = 3, /* optimizer states whole, halved, quartered */
};

/* 1, 2, 4: data-parallel sizes whose optimizer shards are timed. */
int32_t mist_grid_shards(int32_t i_shards);

struct mist_grid_config {
    struct mist_model model;
    int32_t seq_len;
    int32_t n_micro_batches;
    int32_t micro_batches[MIST_GRID_MAX_MICRO_BATCHES]; /* ascending, none twice */
    int32_t n_ranks;
    int32_t n_threads; /* of one rank's compute stream */
    bool is_quick;     /* message sizes in steps of 4 instead of 2 */
};

/* One operator, phase and shape: one row of kernels.csv. */
struct mist_grid_key {
    enum mist_op op;
    enum mist_phase phase;
    int64_t dims[MIST_MAX_DIMS]; /* unused ones 0 */
    double flop, bytes;
};

/* One message: one row of links.csv. */
struct mist_grid_message {
    enum mist_link_operation operation;
    int32_t n_ranks; /* of the group; 1 for copies */
    int64_t bytes;   /* the full message; of collectives a multiple of 4 n_ranks */
};

struct mist_grid {
    struct mist_grid_config config;
    struct mist_layer_layout *layouts;  /* owned; [n_micro_batches][MIST_N_LAYER_KINDS] */
    struct mist_grid_key *keys;         /* owned */
    struct mist_grid_message *messages; /* owned */
    int32_t n_keys, n_messages;
    size_t keys_capacity, messages_capacity;
    /* Index of each step's key; -1: no kernel (communication). Programs: 0 forward, 1
     * backward. */
    int32_t key_of_step[MIST_GRID_MAX_MICRO_BATCHES][MIST_N_LAYER_KINDS][2]
                       [MIST_MAX_STEPS];
    int32_t adamw_key[MIST_N_LAYER_KINDS][MIST_GRID_N_SHARDS];
    int32_t zero_key[MIST_N_LAYER_KINDS][MIST_GRID_N_SHARDS];
};

/*
 * Fills out, to be freed by mist_grid_fini whatever the result. catalog is borrowed
 * during the call and belongs to config->model. MIST_OK, MIST_ERR_RANGE (a size does not
 * fit), MIST_ERR_INPUT (the sequence is longer than the model's) or MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_grid_make(const struct mist_catalog *catalog,
                                                const struct mist_grid_config *config,
                                                struct mist_grid *out,
                                                struct mist_err *err);
void mist_grid_fini(struct mist_grid *grid);

const struct mist_layer_layout *mist_grid_layout(const struct mist_grid *grid,
                                                 int32_t i_micro_batch,
                                                 enum mist_layer_kind kind);

/* Elements of a module's parameters, padded as the schedule pads them for a number of
 * data-parallel ranks. */
int64_t mist_grid_padded_elements(const struct mist_grid *grid, enum mist_layer_kind kind,
                                  int32_t n_ranks);

/* Largest message of the grid over groups, and over copies. */
int64_t mist_grid_largest_bytes(const struct mist_grid *grid, bool is_copy);

/* FLOP of one pass: embedding, n_blocks blocks and head, forward and backward. */
double mist_grid_pass_flop(const struct mist_grid *grid, int32_t i_micro_batch,
                           int32_t n_blocks);

#endif
