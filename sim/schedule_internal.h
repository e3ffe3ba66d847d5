/*
 * A schedule while it is being made. Private to schedule_build.c (what is done when),
 * schedule_builder.c (tasks, buffers, dependencies) and schedule_transfer.c (between
 * stages).
 *
 * Functions that add something set is_out_of_memory when they fail and leave out what is
 * numbered -1, so that only the end has to look.
 */
#ifndef MIST_SIM_SCHEDULE_INTERNAL_H
#define MIST_SIM_SCHEDULE_INTERNAL_H

#include "sim/pipeline_order.h"
#include "sim/schedule.h"

/* One end of a transfer between neighbouring stages. */
struct mist_schedule_transfer {
    int32_t time;     /* logical: end of the slot that produces it */
    int32_t boundary; /* between stages boundary and boundary + 1 */
    bool is_gradient, is_send;
    int32_t micro_batch;
    int32_t peer;           /* rank */
    int64_t offset_samples; /* of the slice, in this rank's micro-batch */
    int64_t n_samples;
};

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
    int32_t first, last;   /* modules of the stage */
    int32_t n_layers;      /* last - first + 1 */
    int32_t n_collectives; /* so far, in the data-parallel group */
    int32_t load_task;     /* task that loads the batch */
    /* buffers, -1 where there is none (yet); G micro-batches */
    int32_t *weights, *gradients, *state; /* [n_layers] */
    int32_t *boundary, *grad;             /* [n_layers + 1][G] */
    int32_t *saved;                       /* [n_layers][G] */
    int32_t tokens, targets, constant;
    /* tasks, -1 where there is none; [2]: of activations, of gradients */
    int32_t *gather_task; /* [n_layers] completes the parameters */
    int32_t *produced_by; /* [2][G] last receive of a micro-batch */
    int32_t *made_by;     /* [2][G] compute task that makes what the stage sends */
};

/* Appends a buffer of the device arena that nothing uses yet; its number or -1. */
int32_t mist_schedule_add_buffer(struct mist_schedule_builder *at, enum mist_role role,
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

/* The index of a (stage-local layer, micro-batch) pair. */
size_t mist_schedule_cell(const struct mist_schedule_builder *at, int32_t layer,
                          int32_t micro_batch);

/* Buffer of the activation entering a module (= leaving the one before), and of its
 * gradient; made on first use. */
int32_t mist_schedule_activation(struct mist_schedule_builder *at, int32_t layer,
                                 int32_t micro_batch);
int32_t mist_schedule_activation_gradient(struct mist_schedule_builder *at, int32_t layer,
                                          int32_t micro_batch);

/* Lists this rank's ends of all transfers in the order of dispatch. */
void mist_schedule_list_transfers(struct mist_schedule_builder *at);

/* Dispatches the transfers with a logical time before the given one. */
void mist_schedule_add_transfers_before(struct mist_schedule_builder *at, int32_t time);

#endif
