/*
 * Explanations: what an iteration and the peak of memory consist of, and how fast the
 * devices are.
 *
 * Time. Of each stage one rank is looked at, that with the most computation, in the last
 * iteration of a replay: from the end of the iteration before on any rank to its own end
 * on any rank, which is the iteration's time. Every instant belongs to one class, by the
 * first stream in this order that runs a task then: computation, communication, copies
 * from the host, copies to it, the host's processors. So communication and copies count
 * as far as they are exposed. Where computation stands still meanwhile (streams that take
 * turns: communication, copies, computation; Megatron-LM's transfers between stages) the
 * instant belongs to what it waits for. An instant in which no stream runs anything is bubble:
 * waiting for other ranks, those that are to come to a collective included. A running
 * task of computation belongs to its operators, in the proportions of their prices; what
 * its price has beyond these, launches, a host that is slower than the device, ranks that
 * wait for the slowest among them (skew), is a class of its own. Slowdown by other streams
 * belongs to what is slowed down.
 *
 * Memory. Of the same rank, the first task at which the most is live in an arena: which
 * buffers live then, by what is in them; kept activations by their tensors. What the arena
 * has beyond them, rounding and holes between buffers, is a part of its own, so that the
 * parts are the arena, to the byte. With what is beside the arena they are what a device of
 * the stage needs.
 *
 * FLOP are counted as mist_model_count() does; those of the hardware have what
 * recomputation multiplies on top.
 */
#ifndef MIST_SIM_EXPLAIN_H
#define MIST_SIM_EXPLAIN_H

#include "core/emit.h"
#include "core/status.h"
#include "sim/cost/cost_model.h"
#include "sim/plan/plan.h"
#include "sim/replay/replay.h"
#include "sim/schedule/schedule.h"

#include <stdint.h>

/* ------------------------------------------------------------------------------- time */

enum mist_time_class {
    MIST_TIME_PRODUCTS, /* linear layers, forward and backward */
    MIST_TIME_ATTENTION,
    MIST_TIME_ELEMENTWISE, /* norms, activations, residuals, rotary positions */
    MIST_TIME_LOSS,        /* embedding, fused head and loss */
    MIST_TIME_WAITING,     /* launches, a slow host, skew */
    MIST_TIME_RECOMPUTATION,
    MIST_TIME_OPTIMIZER,  /* its step, and other passes over gradients */
    MIST_TIME_TENSOR,     /* collectives of tensor parallelism */
    MIST_TIME_CONTEXT,    /* of context parallelism */
    MIST_TIME_GRADIENTS,  /* sums of gradients, of loss and norm */
    MIST_TIME_PARAMETERS, /* gathers of parameters */
    MIST_TIME_TRANSFERS,  /* between stages */
    MIST_TIME_COPIES_IN,  /* from the host */
    MIST_TIME_COPIES_OUT,
    MIST_TIME_HOST, /* optimizer step by the host's processors */
    MIST_TIME_BUBBLE,
    MIST_N_TIME_CLASSES
};

/* "matrix products"; static. */
const char *mist_time_class_label(enum mist_time_class time_class);

/* Of an operator that is no communication. */
enum mist_time_class mist_time_class_of_op(enum mist_op op);

/* Classes of one sort, for comparisons of plans. */
enum mist_time_group {
    MIST_TIME_GROUP_COMPUTATION,
    MIST_TIME_GROUP_RECOMPUTATION,
    MIST_TIME_GROUP_OPTIMIZER,
    MIST_TIME_GROUP_COMMUNICATION,
    MIST_TIME_GROUP_COPIES,
    MIST_TIME_GROUP_BUBBLE,
    MIST_N_TIME_GROUPS
};
const char *mist_time_group_label(enum mist_time_group group); /* "bubble" */

/*
 * Splits begin_s .. end_s of a rank's tasks.
 *
 * rows   [n_rows] its rows of a timeline: task i of the schedule is row i.
 * costs  [schedule->n_costs], as mist_cost_schedule() makes them.
 * out    seconds by class; their sum is end_s - begin_s up to rounding.
 * MIST_ERR_INPUT: an operator has no price; MIST_ERR_MEMORY. O(n log n).
 */
MIST_MUST_CHECK enum mist_status
mist_explain_time(const struct mist_plan *plan, const struct mist_cost_model *model,
                  const struct mist_schedule *schedule, const struct mist_cost *costs,
                  const struct mist_timeline_row *rows, double begin_s, double end_s,
                  double out[MIST_N_TIME_CLASSES], struct mist_err *err);

/* ----------------------------------------------------------------------------- memory */

enum mist_content {
    MIST_CONTENT_WEIGHTS,
    MIST_CONTENT_GRADIENTS,
    MIST_CONTENT_OPTIMIZER,
    MIST_CONTENT_ACTIVATIONS, /* by tensor; their gradients, too */
    MIST_CONTENT_WORKSPACES,  /* inside of a module, and of its kernels */
    MIST_CONTENT_IDS,         /* tokens, targets, constants */
    MIST_CONTENT_HOLES,       /* rounding, and room between buffers */
    MIST_N_CONTENTS
};
const char *mist_content_label(enum mist_content content);

struct mist_memory_part {
    enum mist_content content;
    const char *tensor; /* of the catalogue; static; "": all of it */
    int64_t bytes;
};

struct mist_explained_memory {
    struct mist_memory_part *parts; /* owned; by content, then as they were met */
    int32_t n_parts;
    size_t capacity;
    int64_t arena_bytes; /* sum of the parts */
};

/* What an arena holds at its peak. out is to be freed by mist_explained_memory_fini after
 * MIST_OK. MIST_ERR_MEMORY. O(buffers + tasks). */
MIST_MUST_CHECK enum mist_status mist_explain_memory(const struct mist_plan *plan,
                                                     const struct mist_schedule *schedule,
                                                     enum mist_buffer_arena arena,
                                                     struct mist_explained_memory *out,
                                                     struct mist_err *err);
void mist_explained_memory_fini(struct mist_explained_memory *memory);

/* What a device of a stage needs beside its arena. */
struct mist_beside_arena {
    int64_t kept_bytes;    /* what its framework keeps of the iteration or the micro-batch
                              before, and has for gradients on their way */
    int64_t held_bytes;    /* what an allocator holds beyond that and the arena: usually a
                              part of both, and what is asked for in one piece, but no more
                              than there is room for */
    int64_t lost_bytes;    /* of a usual allocator: less makes it run out of memory */
    int64_t runtime_bytes; /* what every process takes */
};
struct mist_beside_arena mist_beside_arena_find(const struct mist_plan *plan,
                                                const struct mist_cluster *cluster,
                                                const struct mist_replay_stage *stage);

/* Of these what a framework can't do without, but for the runtime: what is kept and lost. A
 * plan that has no room for so much may run out of memory, as mist-sim says. 0 of ours;
 * grows with the stage's arena and parameters. */
int64_t mist_beside_arena_least(const struct mist_beside_arena *beside);

/* ------------------------------------------------------------------------ explanation */

struct mist_explained_stage {
    int32_t rank;
    double time_s[MIST_N_TIME_CLASSES];
    struct mist_explained_memory memory[MIST_N_ARENAS];
    struct mist_beside_arena beside;
};

struct mist_explanation {
    double iteration_s;
    bool has_equal_ranks; /* all ranks of a stage take the same time */
    int32_t n_stages;
    struct mist_explained_stage *stages; /* owned; [n_stages] */
    double mean_s[MIST_N_TIME_CLASSES];  /* of the stages, by their ranks */
};

/*
 * Explains a replay of a plan, which has a timeline, of all ranks or with
 * only_stages. threads: as in the replay's options. out is to be freed by
 * mist_explanation_fini after MIST_OK. Errors as mist_schedule_build() and
 * mist_cost_schedule().
 */
MIST_MUST_CHECK enum mist_status
mist_explain(const struct mist_plan *plan, const struct mist_cost_model *model,
             int32_t threads, const struct mist_replay_result *replay,
             struct mist_explanation *out, struct mist_err *err);

/* Replays a plan, too. */
MIST_MUST_CHECK enum mist_status
mist_explain_plan(const struct mist_plan *plan, const struct mist_cost_model *model,
                  int32_t threads, struct mist_explanation *out, struct mist_err *err);
void mist_explanation_fini(struct mist_explanation *explanation);

/* Mean seconds by group. */
void mist_explanation_groups(const struct mist_explanation *explanation,
                             double out[MIST_N_TIME_GROUPS]);

/* ------------------------------------------------------------------------------ speed */

struct mist_speed {
    int64_t n_parameters; /* of the model */
    double tokens_per_s, tokens_per_s_per_device;
    double flop_per_s_per_device; /* of the model */
    double model_frac;            /* of the devices' peak; 0: the peak is not known */
    double hardware_frac;         /* with recomputation */
};

/* loads: of the iterations, whose padding is no work of the model; NULL: samples are full.
 * MIST_OK or MIST_ERR_RANGE. */
MIST_MUST_CHECK enum mist_status
mist_speed_find(const struct mist_plan *plan, const struct mist_cluster *cluster,
                const struct mist_loads *loads, double iteration_s,
                struct mist_speed *out, struct mist_err *err);

/* Product FLOP that all ranks of a plan compute again in an iteration. */
MIST_MUST_CHECK enum mist_status mist_recomputed_flop(const struct mist_plan *plan,
                                                      double *out, struct mist_err *err);

/* ------------------------------------------------------------------------------ report */

/* Adds the figures; has_all: not only those by which one decides. */
void mist_speed_emit(struct mist_emit *emit, const struct mist_speed *speed,
                     bool has_all);

/*
 * Adds an explanation. For people: mean time of all devices, or of the stages' busiest where
 * devices of a stage differ, and memory of the stage with the largest arena; for machines: all
 * stages, in CSV in one list.
 */
void mist_explanation_emit(struct mist_emit *emit, enum mist_emit_kind kind,
                           const struct mist_explanation *explanation);

#endif
