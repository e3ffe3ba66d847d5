/*
 * A schedule while it is being made. Private to
 *   schedule_build.c     passes in order, and the whole
 *   schedule_pass.c      the computation of a pass, part by part
 *   schedule_fetch.c     what a pass needs from elsewhere, and the optimizer step
 *   schedule_leave.c     what a pass leaves behind: swaps, sums over ranks, norms
 *   schedule_transfer.c  between stages
 *   schedule_builder.c   tasks, buffers, dependencies
 *
 * Functions that add something set is_out_of_memory when they fail and leave out what is
 * numbered -1, so that only the end has to look.
 */
#ifndef MIST_SIM_SCHEDULE_INTERNAL_H
#define MIST_SIM_SCHEDULE_INTERNAL_H

#include "sim/schedule/pipeline_order.h"
#include "sim/schedule/schedule.h"

/* One end of a transfer between neighbouring stages, or of the exchange of a tied
 * weight's gradient. */
struct mist_schedule_transfer {
    int32_t time;     /* logical: end of the slot that produces it */
    int32_t boundary; /* between virtual stages boundary and boundary + 1 */
    bool is_gradient, is_send, is_tie;
    int32_t micro_batch;
    int32_t peer;      /* rank */
    int64_t first_row; /* of the slice, in this rank's micro-batch */
    int64_t n_rows;
};

/* One module, one micro-batch, one direction. */
struct mist_schedule_pass {
    const struct mist_slot *slot;
    int32_t i_in_slot, n_in_slot;
    int32_t layer, i_module;
    bool completes_gradients; /* the last one of the micro-batch to touch any */
};

/* A slab of a module: where its things are. Buffers; -1 where there is none (now). */
struct mist_schedule_slab {
    int32_t home[3];       /* weights, gradients, state: persistent, on either arena */
    int32_t host[2];       /* weights, gradients in the host for an update there: the
                              home, or this rank's part of what has its home on the device */
    int32_t weights;       /* on the device, to compute with; may be the home */
    int32_t weights_ready; /* task that completed them; -1 */
    int32_t weights_pass;  /* latest pass for which they were brought; -1 */
    int32_t gradients_ready;
    int32_t gradients_begin; /* first micro-batch that the gradients at home, or the sum
                                that is brought from there, have; -1: they have none */
    int32_t written[2]; /* task that wrote weights, gradients at home, if in the host */
};

/* Gradients that are complete on this rank and wait for what follows their sum. */
struct mist_schedule_settling {
    int32_t i_module, i_slab, micro_batch;
    int32_t gradients;       /* buffer: of this micro-batch, or accumulated so far */
    int64_t gradients_first; /* element of the slab that is the first of gradients */
    int32_t sum;             /* buffer with the sum so far to add to; -1 none */
    int64_t sum_first;       /* element of the slab that is the first of sum */
    int32_t after[2];        /* tasks; -1 none */
};

/* Optimizer state on the device behind its step; buffer -1: none. */
struct mist_schedule_stepped {
    int32_t i_module, i_slab, buffer, after;
    int64_t size_bytes;
};

enum { MIST_SCHEDULE_MAX_SETTLING = 2 * MIST_MAX_SLABS };

struct mist_schedule_builder {
    const struct mist_plan *plan;
    const struct mist_stage_plan *stage;
    struct mist_schedule *out;
    struct mist_pipeline_order order;
    struct mist_err *err;
    bool is_out_of_memory;
    size_t tasks_capacity, buffers_capacity, deps_capacity, transfers_capacity;
    struct mist_dep *deps;
    int32_t n_deps;
    struct mist_schedule_transfer *transfers; /* in the order of dispatch */
    int32_t n_transfers, next_transfer;
    struct mist_schedule_pass *passes; /* of the iteration, in order */
    int32_t n_passes;
    int32_t n_chunks;
    int32_t *chunk_first, *chunk_last; /* [n_chunks] modules */
    int32_t *chunk_base;               /* [n_chunks] first boundary number */
    int32_t n_boundaries;              /* of all chunks: modules + chunks */
    int32_t n_collectives[2];          /* so far, in the dp and the tp group */
    int32_t load_task;                 /* task that loads the batch */
    int32_t last_compute;              /* task; -1 none */
    int32_t unawaited; /* communication of the last pass that no computation waited for */
    /* what is known of slabs [n_modules * MIST_MAX_SLABS] */
    struct mist_schedule_slab *slabs;
    int32_t *fresh; /* [n_modules * MIST_MAX_SLABS][G] gradients that are not at home */
    int32_t *is_touched; /* the same: -1 until a computation has written them */
    /* by boundary and micro-batch: [n_boundaries][G] */
    int32_t *activation, *gradient;
    int32_t *input_host, *input_out, *input_ready; /* the module's input in the host; its
                                                      swaps out and in */
    /* by module and micro-batch: [n_modules][G] */
    int32_t *saved, *swapped, *swapped_host, *swapped_out, *swapped_ready, *deferred;
    int32_t *backward_pass; /* the first backward, index into passes */
    int32_t *gradient_task; /* computation that completed the gradients */
    int32_t tokens, targets, constant;
    int32_t *produced_by; /* [2][n_chunks][G] last receive; 0 activations, 1 gradients */
    int32_t *made_by;     /* [2][n_chunks][G] computation that makes what is sent */
    struct mist_schedule_settling settling[MIST_SCHEDULE_MAX_SETTLING];
    int32_t n_settling;
    int32_t swapping_pass; /* whose kept activations are still to be swapped out; -1 */
    int32_t swapping_after[2];
    struct mist_schedule_stepped stepped; /* optimizer state still to be swapped out */
};

/* ----------------------------------------------------------------- schedule_builder.c */

/* Appends a buffer that nothing uses yet; its number or -1. */
int32_t mist_schedule_add_buffer(struct mist_schedule_builder *at,
                                 enum mist_buffer_arena arena, enum mist_role role,
                                 int32_t layer, int32_t micro_batch, int64_t size_bytes,
                                 bool is_persistent);

/* Appends a task and returns its index; -1 when out of memory. */
int32_t mist_schedule_add_task(struct mist_schedule_builder *at, enum mist_task_kind kind,
                               enum mist_stream stream, int32_t layer,
                               int32_t micro_batch);

/* The task uses the buffer in this role; either may be -1. */
void mist_schedule_use(struct mist_schedule_builder *at, int32_t task,
                       enum mist_role role, int32_t buffer);

/* The task starts after on, an earlier one; either may be -1. */
void mist_schedule_depend(struct mist_schedule_builder *at, int32_t task, int32_t on);

/* A copy of bytes between two buffers, on the stream of its direction (to_host: device to
 * host), after another task. */
int32_t mist_schedule_add_copy(struct mist_schedule_builder *at, enum mist_task_kind kind,
                               bool to_host, int32_t layer, int32_t micro_batch,
                               int32_t from, int64_t from_offset_bytes, int32_t to,
                               int64_t to_offset_bytes, int64_t bytes, int32_t after);

/* A collective of the stage's data-parallel or tensor-parallel group. */
int32_t mist_schedule_add_collective(struct mist_schedule_builder *at,
                                     enum mist_task_kind kind, enum mist_group group,
                                     int32_t layer, int32_t micro_batch, int64_t bytes,
                                     int32_t after);

enum mist_layer_kind mist_schedule_kind_of(const struct mist_schedule_builder *at,
                                           int32_t layer);
const struct mist_layer_layout *
mist_schedule_layout_of(const struct mist_schedule_builder *at, int32_t layer);
int32_t mist_schedule_module_of(const struct mist_schedule_builder *at, int32_t layer);
enum mist_program_kind mist_schedule_slot_program(enum mist_slot_kind kind);
int64_t mist_schedule_gradient_bytes(const struct mist_schedule_builder *at,
                                     int64_t elements);
const struct mist_slab *mist_schedule_plan_slab(const struct mist_schedule_builder *at,
                                                int32_t i_module, int32_t i_slab);
struct mist_schedule_slab *mist_schedule_slab_of(const struct mist_schedule_builder *at,
                                                 int32_t i_module, int32_t i_slab);

/* Index of a (module, micro-batch) pair. */
size_t mist_schedule_cell(const struct mist_schedule_builder *at, int32_t i_module,
                          int32_t micro_batch);
/* Index of (activation entering a module of a chunk, micro-batch); layer may be one
 * behind the chunk's last. */
size_t mist_schedule_boundary(const struct mist_schedule_builder *at, int32_t chunk,
                              int32_t layer, int32_t micro_batch);

/* Buffer of the activation entering a module (= leaving the one before), and of its
 * gradient; made on first use. */
int32_t mist_schedule_activation(struct mist_schedule_builder *at, int32_t chunk,
                                 int32_t layer, int32_t micro_batch);
int32_t mist_schedule_activation_gradient(struct mist_schedule_builder *at, int32_t chunk,
                                          int32_t layer, int32_t micro_batch);

/* Whether the stage cuts its optimizer state, gradients, weights over its ranks. */
bool mist_schedule_shards(const struct mist_schedule_builder *at, bool flag);
int64_t mist_schedule_shard_elements(const struct mist_schedule_builder *at,
                                     const struct mist_slab *slab);

/* Whether gradients are summed over data-parallel ranks after every micro-batch. */
bool mist_schedule_reduces_each(const struct mist_schedule_builder *at);

/* Whether the first and the last stage hold a tied weight each. */
bool mist_schedule_has_tied_stages(const struct mist_plan *plan);

/* ------------------------------------------------------------------- schedule_fetch.c */

/* Homes of all slabs, ids, the constant; before anything else. */
void mist_schedule_add_persistent(struct mist_schedule_builder *at);

/* The optimizer step of all modules at once, for stages that pause before their first
 * pass; and whether this stage takes it apart instead. */
bool mist_schedule_interleaves_update(const struct mist_schedule_builder *at);
void mist_schedule_add_all_updates(struct mist_schedule_builder *at);

/* Swaps out the optimizer state of the latest step, if that is still to be done. */
void mist_schedule_swap_out_state(struct mist_schedule_builder *at);

/* Everything a pass needs from elsewhere but the gradients so far ... */
void mist_schedule_fetch(struct mist_schedule_builder *at, int32_t i_pass);
/* ... and those. */
void mist_schedule_fetch_gradients(struct mist_schedule_builder *at, int32_t i_pass);

/* -------------------------------------------------------------------- schedule_pass.c */

/* Slabs, as bits, whose parameters and whose gradients a program (a pass: all its
 * programs) reads or writes. */
void mist_schedule_program_slabs(const struct mist_schedule_builder *at, int32_t i_module,
                                 enum mist_program_kind program, uint32_t *weights,
                                 uint32_t *gradients);
void mist_schedule_pass_slabs(const struct mist_schedule_builder *at,
                              const struct mist_schedule_pass *pass, uint32_t *weights,
                              uint32_t *gradients);

/* Buffer of a slab's gradients during a micro-batch. */
int32_t mist_schedule_gradients(const struct mist_schedule_builder *at, int32_t i_module,
                                int32_t i_slab, int32_t micro_batch);

void mist_schedule_compute(struct mist_schedule_builder *at, int32_t i_pass);

/* ------------------------------------------------------------------- schedule_leave.c */

/* Swaps out what an earlier forward keeps, if that is still to be done. */
void mist_schedule_swap_out(struct mist_schedule_builder *at);

/* Swaps and sums behind a pass; what has to compute on the sums is put off ... */
void mist_schedule_leave(struct mist_schedule_builder *at, int32_t i_pass);
/* ... until here: the n oldest (-1: all). */
void mist_schedule_settle(struct mist_schedule_builder *at, int32_t n);

/* Sums behind the last pass of stages that do not take them apart. */
void mist_schedule_reduce_rest(struct mist_schedule_builder *at);

/* The tied weight's gradient has been exchanged in a micro-batch: its sum over ranks. */
void mist_schedule_leave_tied(struct mist_schedule_builder *at, int32_t micro_batch,
                              int32_t after);

/* --------------------------------------------------------------------
 * schedule_transfer.c */

/* Lists this rank's ends of all transfers in the order of dispatch. */
void mist_schedule_list_transfers(struct mist_schedule_builder *at);

/* Dispatches the transfers with a logical time below numerator / denominator. */
void mist_schedule_add_transfers_before(struct mist_schedule_builder *at,
                                        int64_t numerator, int64_t denominator);

#endif
