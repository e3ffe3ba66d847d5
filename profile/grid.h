/*
 * The profile grid: what has to be timed so that every plan of a search space can be
 * priced from measured rows.
 *
 * It follows from the operator catalogue: the steps of embedding, block and head at every
 * micro-batch size and tensor-parallel size give the kernel shapes (a split backward has
 * the same steps as a whole one), the slabs of the modules' parameters the optimizer's
 * sizes and the gradient messages, the activations the messages of tensor parallelism and
 * the transfers between stages. The same shape met in several places is one entry.
 *
 * Groups of ranks: a shape is nodes x ranks on each of them, and how many such groups
 * touch the same node at once, as cost_schedule.c prices them. On one node a group has
 * consecutive ranks (tensor parallelism); over several nodes its ranks on a node stand as
 * far apart as there are groups (data parallelism). All groups of a shape that fit run
 * together.
 *
 * Pure: no clock, no device.
 */
#ifndef MIST_PROFILE_GRID_H
#define MIST_PROFILE_GRID_H

#include "core/statistics.h"
#include "core/status.h"
#include "exec/device/device.h" /* enum mist_attention_choice */
#include "sim/model/catalog.h"
#include "sim/model/model.h"
#include "sim/plan/rank_mesh.h" /* struct mist_group_shape */
#include "traces/trace_set.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    MIST_GRID_MAX_MICRO_BATCHES = 16,
    MIST_GRID_MAX_TPS = 8,
    MIST_GRID_MAX_VARIANTS = 2 * MIST_GRID_MAX_TPS - 1, /* each tp > 1 in two ways */
    MIST_GRID_N_SHARDS = 3, /* optimizer states whole, halved, quartered */
};

struct mist_grid_config {
    struct mist_model model;
    int32_t seq_len;
    int32_t n_micro_batches;
    int32_t micro_batches[MIST_GRID_MAX_MICRO_BATCHES]; /* ascending, none twice */
    int32_t n_nodes;
    int32_t n_ranks;       /* of all nodes, which have equally many */
    int32_t n_threads;     /* of one rank's compute stream; 0: a device of its own */
    enum mist_dtype dtype; /* of weights and activations */
    int64_t far_bytes;     /* so much is beyond the last cache; 0: 64 MiB */
    bool allows_atomics;   /* see struct mist_device_config */
    enum mist_attention_choice attention;
    bool is_quick; /* message sizes in steps of 4 instead of 2, fewer group sizes */
    double time_s; /* to take, about; more or fewer repetitions; 0: as is usual */
};

/* How the modules are cut: variant 0 is not at all. */
struct mist_grid_variant {
    int32_t tp;
    bool is_sequence_parallel;
};

/* One operator, phase and shape: one row of kernels.csv. */
struct mist_grid_key {
    enum mist_op op;
    enum mist_phase phase;
    int64_t dims[MIST_MAX_DIMS]; /* unused ones 0 */
    double flop, bytes;
};

/* A slab of a module's parameters, and this shard of it: what the optimizer works on. */
struct mist_grid_shard {
    enum mist_layer_kind kind;
    int32_t i_variant; /* whose parameters it is of */
    int32_t n_shards;
    int64_t slab_first; /* element of the layout's flat array */
    int64_t n_whole, n; /* padded elements of the slab and of a shard */
    int32_t adamw_key, zero_key;
    int32_t host_key; /* AdamW on the host beside a device of its own; else -1 */
    int32_t norm_key[2], add_key[2]; /* of the shard, of the slab */
};

/* One message: one row of links.csv. */
struct mist_grid_message {
    enum mist_link_operation operation;
    int32_t i_shape;       /* the first shape is that of copies: one rank */
    int64_t bytes;         /* the full message; of collectives a multiple of 4 n_ranks */
    enum mist_dtype dtype; /* of sums: activations' or, as of gradients, fp32 */
    bool is_exchange;      /* what all ranks tell each other at the end of an iteration */
};

enum { MIST_GRID_EXCHANGE_BYTES = 64 }; /* as the schedule's task has it */

/* Index of each step's key, in forward and backward; -1: no kernel (communication). */
struct mist_grid_step_keys {
    int32_t of[2][MIST_MAX_STEPS];
};

struct mist_grid {
    struct mist_grid_config config;
    int32_t n_variants;
    struct mist_grid_variant variants[MIST_GRID_MAX_VARIANTS];
    struct mist_layer_layout *layouts; /* owned; [n_variants][n_micro_batches][kinds] */
    struct mist_grid_step_keys *step_keys; /* owned; as layouts */
    struct mist_grid_key *keys;            /* owned */
    struct mist_grid_shard *shards;        /* owned */
    struct mist_group_shape *shapes;       /* owned */
    struct mist_grid_message *messages;    /* owned */
    int32_t n_keys, n_shards, n_shapes, n_messages;
    size_t keys_capacity, shards_capacity, shapes_capacity, messages_capacity;
};

/*
 * Fills out, to be freed by mist_grid_fini whatever the result. Variants are
 * tensor-parallel sizes of 1 and the powers of two up to n_ranks that divide heads, kv
 * heads (or there is one), ffn and hidden, without and with sequence parallelism.
 * MIST_OK, MIST_ERR_RANGE (a size does not fit), MIST_ERR_INPUT (the sequence is longer
 * than the model's, nodes with unequal numbers of ranks) or MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_grid_make(const struct mist_grid_config *config,
                                                struct mist_grid *out,
                                                struct mist_err *err);
void mist_grid_fini(struct mist_grid *grid);

/* Whether a variant exists at a micro-batch (sequence parallelism cuts its tokens into
 * equal parts); else its layouts have no steps. */
bool mist_grid_has(const struct mist_grid *grid, int32_t i_variant,
                   int32_t i_micro_batch);

const struct mist_layer_layout *mist_grid_layout(const struct mist_grid *grid,
                                                 int32_t i_variant, int32_t i_micro_batch,
                                                 enum mist_layer_kind kind);

/* Keys of the layout's steps. */
const struct mist_grid_step_keys *mist_grid_keys(const struct mist_grid *grid,
                                                 int32_t i_variant, int32_t i_micro_batch,
                                                 enum mist_layer_kind kind);

/* A block's forward and backward; estimates: of all keys. */
double mist_grid_block_us(const struct mist_grid *grid,
                          const struct mist_estimate *estimates);

/* Elements of the flat arrays of parameters and gradients of a module that hold every
 * variant and every padding. */
int64_t mist_grid_parameter_elements(const struct mist_grid *grid,
                                     enum mist_layer_kind kind);

/* Elements of a module's parameters as a whole, padded for n_ranks shards. */
int64_t mist_grid_padded_elements(const struct mist_grid *grid, enum mist_layer_kind kind,
                                  int32_t n_ranks);

/* Number of ranks of one group. */
int32_t mist_grid_group_ranks(const struct mist_group_shape *shape);

/* The members of the group that a rank is in, in their order; returns how many, 0 when
 * the rank is in none. out: [mist_grid_group_ranks()]. */
int32_t mist_grid_members(const struct mist_grid_config *config,
                          const struct mist_group_shape *shape, int32_t rank,
                          int32_t *out);

/* Largest message of the grid over groups, and over copies. */
int64_t mist_grid_largest_bytes(const struct mist_grid *grid, bool is_copy);

/* FLOP of one pass: embedding, n_blocks blocks and head, forward and backward. */
double mist_grid_pass_flop(const struct mist_grid *grid, int32_t i_variant,
                           int32_t i_micro_batch, int32_t n_blocks);

/* Passes of a micro-batch that follow one another: as many as the largest has of its size.
 * The first finds weights where other shapes left them, as that of an iteration does. */
int32_t mist_grid_n_passes(const struct mist_grid *grid, int32_t i_micro_batch);

/* A number for what is measured: equal grids have equal ones. */
uint64_t mist_grid_fingerprint(const struct mist_grid *grid);

#endif
