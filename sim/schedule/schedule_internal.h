/*
 * A schedule while it is being made. Private to
 *   schedule_build.c     passes in order, and the whole
 *   schedule_pass.c      the computation of a pass, part by part
 *   schedule_piece.c     work on parameters, declared, and its tasks
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
#include "sim/schedule/schedule_piece.h"

/* One end of a transfer between neighbouring stages, or of the exchange of a tied
 * weight's gradient. */
struct mist_schedule_transfer {
    struct mist_pipeline_transfer of; /* a tie's boundary is behind all others */
    bool is_send, is_tie;
    bool is_upstream;  /* this rank's stage is the first of the two */
    int32_t peer;      /* rank */
    int64_t first_row; /* of the slice, in this rank's micro-batch */
    int64_t n_rows;
};

/* One module, one micro-batch, one direction. */
struct mist_schedule_pass {
    const struct mist_slot *slot;
    int32_t i_in_slot;
    int32_t layer, i_module;
    bool completes_gradients; /* the last one of the micro-batch to touch any */
};

/* Where elements of a slab are. */
struct mist_schedule_place {
    int32_t buffer; /* -1: nowhere (now) */
    int64_t first;  /* element of the slab that is the buffer's first */
};

/* A slab of a module: where its things are. */
struct mist_schedule_slab {
    struct mist_schedule_place home[MIST_N_QUANTITIES];
    struct mist_schedule_place host[MIST_N_QUANTITIES]; /* for an update there */
    struct mist_schedule_place weights; /* on the device, to compute with */
    int32_t weights_pass;               /* latest pass for which they were brought; -1 */
    int32_t gradients_begin; /* first micro-batch that the gradients at home, or the sum
                                that is brought from there, have; -1: they have none */
    /* micro-batch with which their sum is complete, whose squares are still to be added;
     * -1: none */
    int32_t summed;
};

/* A slab that pieces are run on (schedule_piece.h). */
struct mist_schedule_work {
    int32_t i_module, i_slab, micro_batch;
    uint32_t conditions;
    bool is_forward; /* weights are brought for a forward */
    int32_t held;    /* buffer that keeps its room until the work settles; -1 none */
    struct mist_schedule_place places[MIST_N_QUANTITIES][MIST_N_PLACES];
};

enum { MIST_SCHEDULE_MAX_SETTLING = 2 * MIST_MAX_SLABS };

struct mist_schedule_builder {
    const struct mist_plan *plan;
    const struct mist_stage_plan *stage;
    struct mist_schedule *out;
    struct mist_pipeline_order order;
    struct mist_err *err;
    bool is_out_of_memory;
    size_t tasks_capacity, buffers_capacity, transfers_capacity;
    struct mist_waits waits;
    int32_t (*writers)[MIST_N_STREAMS]; /* [n_buffers] last task of each stream that wrote
                                           it; -1 */
    size_t writers_capacity;
    struct mist_schedule_transfer *transfers; /* in the order of dispatch */
    int32_t n_transfers, next_transfer;
    struct mist_schedule_pass *passes; /* of the iteration, in order */
    int32_t n_passes;
    int32_t n_chunks;
    int32_t *chunk_first, *chunk_last;     /* [n_chunks] modules */
    int32_t *chunk_base;                   /* [n_chunks] first boundary number */
    int32_t n_boundaries;                  /* of all chunks; one chunk's last is the next
                                              one's first where that follows at once */
    int32_t n_collectives[MIST_GROUP_ALL]; /* so far, by group of the stage */
    int32_t last_compute, last_transfer;   /* task; -1 none */
    int32_t collectives_behind; /* task that they wait for from now on; -1 none */
    /* what is known of slabs [n_modules * MIST_MAX_SLABS] */
    struct mist_schedule_slab *slabs;
    int32_t *fresh; /* [n_modules * MIST_MAX_SLABS][G] gradients that are not at home */
    int32_t *is_touched; /* the same: -1 until a computation has written them */
    /* by boundary and micro-batch: [n_boundaries][G] */
    int32_t *activation, *gradient;
    int32_t *input_host; /* the module's input in the host */
    /* by module and micro-batch: [n_modules][G] */
    int32_t *saved[MIST_N_SAVED_PLACES], *swapped_host, *deferred;
    int32_t *backward_pass; /* the first backward, index into passes */
    int32_t tokens, targets, constant;
    struct mist_schedule_work settling[MIST_SCHEDULE_MAX_SETTLING]; /* gradients that
                                           wait for what follows their sum */
    int32_t n_settling;
    int32_t swapping_pass; /* whose kept activations are still to be swapped out; -1 */
    struct mist_schedule_work stepped; /* the latest step, behind which there is still
                                          something to do; i_module -1: none */
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

/*
 * The task reads the buffer in this role (either may be -1), or writes it, or both: it
 * starts after those who wrote it before, on every stream. So tasks wait for what they
 * use, and nothing says so twice. Nobody waits for readers: a buffer is not filled again
 * with something else while there are any.
 */
void mist_schedule_read(struct mist_schedule_builder *at, int32_t task,
                        enum mist_role role, int32_t buffer);
void mist_schedule_write(struct mist_schedule_builder *at, int32_t task,
                         enum mist_role role, int32_t buffer);
/* The second half of writing alone: later users wait for the task. */
void mist_schedule_wrote(struct mist_schedule_builder *at, int32_t task, int32_t buffer);

/* Keeps the room of a buffer until the latest task, which does not wait for that. */
void mist_schedule_hold(struct mist_schedule_builder *at, int32_t buffer);

/* The task starts after on, an earlier one, unless its stream has waited for that
 * already; either may be -1. */
void mist_schedule_depend(struct mist_schedule_builder *at, int32_t task, int32_t on);

/* A copy of bytes between two buffers, on the stream of its direction (to_host: device to
 * host). */
int32_t mist_schedule_add_copy(struct mist_schedule_builder *at, enum mist_task_kind kind,
                               bool to_host, int32_t layer, int32_t micro_batch,
                               int32_t from, int64_t from_offset_bytes, int32_t to,
                               int64_t to_offset_bytes, int64_t bytes);

/* A collective of a group of the stage. */
int32_t mist_schedule_add_collective(struct mist_schedule_builder *at,
                                     enum mist_task_kind kind, enum mist_group group,
                                     int32_t layer, int32_t micro_batch, int64_t bytes);

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

/* Whether gradients are summed over data-parallel ranks after every micro-batch. */
bool mist_schedule_reduces_each(const struct mist_schedule_builder *at);

/* Whether two stages hold a tied weight each, the first and that of the head. */
bool mist_schedule_has_tied_stages(const struct mist_plan *plan);

/* ------------------------------------------------------------------- schedule_piece.c */

/* A slab as it is: its gradients at home, its weights where they were last brought.
 * micro_batch: gives the conditions; -1 none. */
struct mist_schedule_work mist_schedule_work_on(const struct mist_schedule_builder *at,
                                                int32_t i_module, int32_t i_slab,
                                                int32_t micro_batch);

/* Adds the pieces of a moment whose conditions hold; places that they bring are new in
 * work. */
void mist_schedule_add_pieces(struct mist_schedule_builder *at, enum mist_moment moment,
                              struct mist_schedule_work *work);

/* How many elements of a slab an extent has here, and which is the first. */
int64_t mist_schedule_elements(const struct mist_schedule_builder *at,
                               const struct mist_slab *slab, enum mist_quantity quantity,
                               enum mist_extent extent, int64_t *first);
int64_t mist_schedule_quantity_bytes(const struct mist_schedule_builder *at,
                                     enum mist_quantity quantity, int64_t n_elements);
enum mist_role mist_schedule_quantity_role(enum mist_quantity quantity, int32_t i_slab);

/* ------------------------------------------------------------------- schedule_fetch.c */

/* Homes of all slabs, ids, the constant; before anything else. */
void mist_schedule_add_persistent(struct mist_schedule_builder *at);

/* The optimizer step of all modules at once, in front of all passes. */
void mist_schedule_add_all_updates(struct mist_schedule_builder *at);

/* Swaps out the optimizer state of the latest step, if that is still to be done. */
void mist_schedule_swap_out_state(struct mist_schedule_builder *at);

/* Everything a pass needs from elsewhere but the gradients so far ... */
void mist_schedule_fetch(struct mist_schedule_builder *at, int32_t i_pass);
/* ... and those. */
void mist_schedule_fetch_gradients(struct mist_schedule_builder *at, int32_t i_pass);

/* -------------------------------------------------------------------- schedule_pass.c */

/* Slabs, as bits, whose parameters and whose gradients a pass reads or writes. */
void mist_schedule_pass_slabs(const struct mist_schedule_builder *at,
                              const struct mist_schedule_pass *pass, uint32_t *weights,
                              uint32_t *gradients);

/* Number (in slabs) of the slab in whose rooms the gradients of a slab are. */
int32_t mist_schedule_gradient_slab(const struct mist_schedule_builder *at,
                                    int32_t i_module, int32_t i_slab);

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

/* Sums that were put off until behind the last pass, or are still to settle. */
void mist_schedule_reduce_rest(struct mist_schedule_builder *at);

/* The tied weight's gradient has been exchanged in a micro-batch: its sum over ranks. */
void mist_schedule_leave_tied(struct mist_schedule_builder *at, int32_t micro_batch);

/* --------------------------------------------------------------------
 * schedule_transfer.c */

/* Lists this rank's ends of all transfers in the order of dispatch. */
void mist_schedule_list_transfers(struct mist_schedule_builder *at);

/* Dispatches the transfers that are due in a slot, so that receives run ahead; and the
 * exchanges of a tied weight's gradient that are due before it, as sums over ranks wait
 * behind them. NULL: all that are left. */
void mist_schedule_add_due_transfers(struct mist_schedule_builder *at,
                                     const struct mist_slot *slot);

#endif
