/*
 * The schedule: the task graph of one rank for one training iteration, expanded from a
 * plan.
 *
 * This is the only description of the work. The executor launches these tasks, the
 * simulator prices and replays them, the planner lays out their buffers, and the closed
 * form of stage_model.h is tested against them. Tasks stand in dispatch order, which is
 * topological; tasks of one stream run in that order. Communication is dispatched in the
 * order of one logical clock that all ranks share, so that ranks which meet in order
 * can't deadlock (mist_replay_check proves it for a plan): whatever waits, on any stream,
 * waits for what all ranks have dispatched before. Transfers between stages have streams
 * of their own, one for sends and one for receives: no sum over tensor-parallel ranks
 * waits for a stage that is late, nor does what is ready to go wait for what comes late.
 *
 * The iteration (the per-layer overlap of Mist, EuroSys 2025) is a sequence of passes:
 * one module, one micro-batch, one direction. What a pass needs from elsewhere
 * (parameters gathered over data-parallel ranks or swapped in from the host, kept
 * activations, gradients so far) is dispatched in front of the pass before it, so that it
 * moves beside that one's computation; what a pass leaves behind (activations and
 * gradients to the host, sums over ranks) moves beside the next one's. The optimizer step
 * on the gradients of the iteration before is taken apart by module and part of the first
 * micro-batch's forward. Where the host does it, on a stream of its own, the gradients
 * have left at the end of the iteration before, and only weights come. Iterations follow
 * one another with one rule: nothing of the next starts on a rank before everything of
 * this one has ended there.
 */
#ifndef MIST_SIM_SCHEDULE_H
#define MIST_SIM_SCHEDULE_H

#include "core/status.h"
#include "sim/model/catalog.h"
#include "sim/model/chunks.h"
#include "sim/model/framework.h" /* whether sums may be put off */
#include "sim/plan/plan.h"
#include "sim/plan/rank_mesh.h"
#include "sim/schedule/module_storage.h"
#include "traces/timeline.h" /* enum mist_task_kind, enum mist_stream */

#include <stdbool.h>
#include <stdint.h>

/* What a task does with a buffer. A task has at most one buffer per role. */
enum mist_role {
    MIST_ROLE_INPUT,  /* activation entering the module (or: what a transfer sends) */
    MIST_ROLE_OUTPUT, /* activation leaving the module (or: what a transfer fills) */
    MIST_ROLE_SAVED,  /* saved-for-backward tensors that stay on the device */
    MIST_ROLE_SAVED_SWAPPED, /* those that go to the host in between */
    MIST_ROLE_SAVED_REMADE,  /* those that are made again for the backward */
    MIST_ROLE_SCRATCH,       /* program scratch and kernel workspace */
    MIST_ROLE_STATE,         /* optimizer state of a slab (this rank's shard) */
    MIST_ROLE_GRAD_OUTPUT,   /* gradient of the module's output */
    MIST_ROLE_GRAD_INPUT,    /* gradient of the module's input */
    MIST_ROLE_TOKENS,        /* input ids of all micro-batches of the iteration */
    MIST_ROLE_TARGETS,       /* ids to predict */
    MIST_ROLE_CONSTANT,      /* the RoPE table */
    MIST_ROLE_TIED_WEIGHTS,  /* the embedding's slab that the head's weight is */
    MIST_ROLE_WEIGHTS,       /* + i: parameters of slab i of the module */
    MIST_ROLE_GRADIENTS = MIST_ROLE_WEIGHTS + MIST_MAX_SLABS, /* + i: their gradients */
    MIST_N_ROLES = MIST_ROLE_GRADIENTS + MIST_MAX_SLABS
};

/* The role of saved tensors by place. */
static inline enum mist_role mist_saved_role(int place)
{
    return (enum mist_role)(MIST_ROLE_SAVED + place);
}

enum mist_buffer_arena { MIST_ARENA_DEVICE, MIST_ARENA_HOST, MIST_N_ARENAS };

struct mist_buffer {
    enum mist_buffer_arena arena;
    enum mist_role role; /* as its creator sees it */
    int32_t layer;       /* module number; -1 none */
    int32_t micro_batch; /* -1: lives over all micro-batches */
    int8_t slab;         /* of parameters, gradients and state; -1 none */
    bool is_persistent;  /* lives over iterations */
    int64_t size_bytes;
    int32_t first_task;   /* birth: first task that names it (0 if persistent) */
    int32_t last_task;    /* death: last task that names it (n_tasks - 1 if persistent) */
    int64_t offset_bytes; /* in its arena; set by mist_memory_plan */
};

struct mist_task {
    enum mist_task_kind kind;
    enum mist_stream stream;
    int32_t layer;                  /* module number 0 .. n_layers + 1; -1 none */
    int32_t micro_batch;            /* -1 none */
    enum mist_program_kind program; /* computation, and communication inside a module */
    int8_t part;                    /* of the program; -1: the task is no part of one */
    int8_t slab;        /* of updates, reductions and swaps of parameters; -1 none */
    uint8_t overwrites; /* bit i: gradients of slab i are overwritten, not added to */
    uint8_t zeroes;     /* bit i: gradients of slab i are set to zero first; of those that
                           are overwritten the padding alone */
    int32_t cost;       /* equal for tasks that cost the same; index below n_costs */
    enum mist_group group; /* of communication */
    int32_t peer;          /* GROUP_PEER: the other rank; else -1 */
    int32_t tag; /* transfers: number of the transfer between the two ranks; collectives:
                    number of the collective in its group. Both sides count alike */
    int64_t bytes; /* moved by communication and copies: the full message */
    /* Of what is sent or copied, in the buffer of ROLE_INPUT. */
    int64_t from_offset_bytes;
    int64_t to_offset_bytes;   /* of what is received or copied, in that of ROLE_OUTPUT */
    int64_t n_elements;        /* the optimizer's shard, what is accumulated or normed */
    int64_t n_zeroed_elements; /* of gradients, before the rest of the work */
    int32_t buffers[MIST_N_ROLES]; /* indices into buffers; -1 none */
    int32_t dep_first; /* dependencies are deps[dep_first .. dep_first + n_deps - 1], all
                          earlier tasks */
    int32_t n_deps;    /* of other streams (the own stream's order is implied) */
    bool is_update;    /* part of the optimizer step: skipped in the first iteration of a
                          run,    and run alone (with what feeds it) at its end */
    bool feeds_update; /* brings parameters that the update reads */
    bool is_forward;   /* needed to compute the loss alone */
};

struct mist_schedule {
    int32_t rank, i_stage;
    int32_t at[MIST_N_AXES]; /* the rank's place on each axis of its stage's mesh */
    int32_t i_replica;       /* and among those that hold the same parameters */
    struct mist_rank_mesh mesh;
    int32_t n_tasks, n_deps, n_buffers, n_costs;
    int32_t n_modules;                   /* of this rank */
    int32_t *modules;                    /* owned; module numbers, ascending */
    struct mist_module_storage *storage; /* owned; [n_modules] */
    struct mist_task *tasks;             /* owned */
    int32_t *deps;                       /* owned; task indices */
    struct mist_buffer *buffers;         /* owned */
    struct mist_layer_layout layouts[MIST_N_LAYER_KINDS]; /* of this stage's (b, tp) */
    int64_t arena_bytes[MIST_N_ARENAS];                   /* set by mist_memory_plan */
};

/* What all ranks tell one another at the end of an iteration: loss, norm, finiteness. */
enum { MIST_NORM_EXCHANGE_BYTES = 64 };

/* Which module kind a module number is, for a model of n_layers blocks. */
enum mist_layer_kind mist_schedule_layer_kind(const struct mist_model *model,
                                              int32_t layer);

/*
 * Where the optimizer step goes, and the sums of gradients over ranks, of all schedules.
 * A later stage of ours pauses: it waits for its first input, and when its last gradient has
 * left, for the stages before it. There the whole step comes in front of all passes, and the
 * sums behind them, where they stand in nobody's way; but gradients that leave the device
 * are summed before they do, and with ZeRO-2 after each micro-batch. The first stage has
 * no pause: both are taken apart by module, and run beside its first forward and its last
 * backward.
 *
 * Others call their optimizer once, and with it the norm of all gradients, on every stage.
 * Megatron-LM sums all gradients behind the passes, or on every stage as soon as those of a
 * module are complete (--overlap-grad-reduce), of an interleaved pipeline chunk by chunk
 * (core/pipeline_parallel/schedules.py, grad_sync_func).
 */
static inline bool mist_schedule_steps_in_front(const struct mist_job *job,
                                                int32_t i_stage)
{
    return i_stage > 0 || job->framework != MIST_FRAMEWORK_OURS;
}

static inline bool mist_schedule_sums_behind(const struct mist_job *job, int32_t i_stage)
{
    return mist_framework_get(job->framework)->can_step_apart ? job->steps_apart
                                                              : i_stage > 0;
}

/* First and last module number of a chunk of a stage, inclusive (embedding and head
 * counted). */
void mist_schedule_chunk_layers(const struct mist_plan *plan, int32_t i_stage,
                                int32_t i_chunk, int32_t *first, int32_t *last);

/* Where a module's parameters and kept activations lie on this rank; NULL: not here.
 * O(log(modules)). */
const struct mist_module_storage *
mist_schedule_storage(const struct mist_schedule *schedule, int32_t layer);

/* Parameters of the modules on a device, ZeRO or not; a tied weight that one stage has at both
 * ends counts once. */
int64_t mist_schedule_n_parameters(const struct mist_schedule *schedule,
                                   const struct mist_plan *plan);

/* True if the module is one of the blocks of its stage that keep only their input. */
bool mist_schedule_is_checkpointed(const struct mist_plan *plan, int32_t i_stage,
                                   int32_t layer);
/* True if it is one of those behind them that are lean. */
bool mist_schedule_is_lean(const struct mist_plan *plan, int32_t i_stage, int32_t layer);

/* Persistent buffer that holds a slab of a module on this rank (its weights, gradients or
 * state: role), on either arena; -1 none. */
int32_t mist_schedule_find_buffer(const struct mist_schedule *schedule, int32_t layer,
                                  enum mist_role role, int32_t i_slab);

/* The same of what an update on the host has there of weights or gradients that have
 * their home on the device; -1 none. */
int32_t mist_schedule_find_host_copy(const struct mist_schedule *schedule, int32_t layer,
                                     enum mist_role role, int32_t i_slab);

/* Shape of the modules of a stage, for mist_layer_layout_make(). */
struct mist_layer_shape mist_schedule_shape(const struct mist_plan *plan, int32_t i_stage,
                                            int32_t threads);

/*
 * Expands the plan (checked) for one rank and lays out its memory.
 *
 * threads   host threads per device, for kernel workspaces.
 * out       filled on MIST_OK, to be freed with mist_schedule_free; untouched otherwise.
 * Returns MIST_OK, MIST_ERR_INPUT, MIST_ERR_RANGE, MIST_ERR_MEMORY, or MIST_ERR_NO_PLAN:
 * it would take more memory than this machine has. O(tasks log tasks).
 */
MIST_MUST_CHECK enum mist_status mist_schedule_build(const struct mist_plan *plan,
                                                     int32_t rank, int32_t threads,
                                                     struct mist_schedule **out,
                                                     struct mist_err *err);
void mist_schedule_free(struct mist_schedule *schedule);

/* Rows of every micro-batch that a rank exchanges with one of a neighbouring stage. */
struct mist_slice {
    int32_t peer;      /* rank */
    int64_t first_row; /* in the rank's own micro-batch */
    int64_t n_rows;
};

/*
 * What a rank of the stage of mesh sends to stage i_other, or receives from it: kind is
 * one of the four transfers between stages (of the exchange of a tied weight's gradient:
 * the peer alone). out: ascending by peer, room for all ranks of the other stage. Returns
 * the number of slices. Ranks of a stage whose slices are alike but for the peers have
 * schedules that are alike but for the peers and for offsets inside of buffers.
 */
int32_t mist_schedule_slices(const struct mist_plan *plan,
                             const struct mist_rank_mesh *mesh, int32_t rank,
                             int32_t i_other, enum mist_task_kind kind,
                             struct mist_slice *out);

/* The tokens of each sequence that the rank has. */
struct mist_chunks mist_schedule_chunks(const struct mist_plan *plan,
                                        const struct mist_schedule *schedule);

/* Bytes of a row that crosses a boundary between stages. */
int64_t mist_schedule_row_bytes(const struct mist_plan *plan);

/* A part of a program of a module as a task: what its price depends on. */
struct mist_task mist_schedule_part_task(const struct mist_layer_layout *layout,
                                         enum mist_program_kind program, int32_t part,
                                         int32_t layer);

/* Which of the rows of its whole stage's micro-batch, of those that ranks with its
 * context-parallel place have, are a rank's: n from this one on. */
int64_t mist_schedule_first_row(const struct mist_plan *plan,
                                const struct mist_rank_mesh *mesh, int32_t rank,
                                int64_t *n);

/*
 * How a group of a rank of the stage of mesh lies on nodes of per_node devices. kind, peer:
 * of MIST_GROUP_PEER. Two ranks on two nodes share links with all who exchange over the
 * same boundary at once. As a rank does so with one other at a time, the ranks count of a
 * node, or those elsewhere where these are fewer; of the two nodes, the one with more.
 */
struct mist_group_shape mist_schedule_group_shape(const struct mist_plan *plan,
                                                  const struct mist_rank_mesh *mesh,
                                                  int32_t rank, enum mist_group group,
                                                  enum mist_task_kind kind, int32_t peer,
                                                  int32_t per_node);

/* Host memory that a schedule takes, and how much more while it is built. */
double mist_schedule_bytes(const struct mist_schedule *schedule);
double mist_schedule_building_bytes(const struct mist_schedule *schedule);

/* A dependency while a schedule is being made:
 * task starts after on (earlier in dispatch order). */
struct mist_dep {
    int32_t task, on;
};

/* The dependencies that tasks need, without those that their streams have waited for before. */
struct mist_waits {
    struct mist_dep *deps; /* [n] owned */
    size_t capacity;
    int32_t n;
    /* the latest task of the second stream for which the first has waited; -1: none,
     * INT32_MAX: its own */
    int32_t latest[MIST_N_STREAMS][MIST_N_STREAMS];
};

void mist_waits_init(struct mist_waits *waits);
void mist_waits_fini(struct mist_waits *waits);

/* The task starts after on, an earlier one, unless its stream has waited for that already.
 * False: out of memory. */
MIST_MUST_CHECK bool mist_waits_add(struct mist_waits *waits,
                                    const struct mist_schedule *schedule, int32_t task,
                                    int32_t on);

/* Replaces all dependencies. deps: [n_deps] in any order. MIST_OK or MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status mist_schedule_set_deps(struct mist_schedule *schedule,
                                                        const struct mist_dep *deps,
                                                        int32_t n_deps,
                                                        struct mist_err *err);

#endif
