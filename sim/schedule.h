/*
 * The schedule: the task graph of one rank for one training iteration, expanded from a
 * plan.
 *
 * This is the only description of the work. The executor launches these tasks, the
 * simulator prices and replays them, the planner lays out their buffers, and the closed
 * form of stage_model.h is tested against them. Tasks stand in dispatch order, which is
 * topological; tasks of one stream run in that order. Communication is dispatched in the
 * order of one logical clock that all ranks share, so that ranks which meet in order
 * can't deadlock (mist_replay_check proves it for a plan).
 *
 * The iteration (the per-layer overlap of Mist, EuroSys 2025): it begins with the
 * optimizer step on the gradients of the iteration before, taken apart by module and
 * moved into the first micro-batch's forward; parameters sharded by ZeRO are gathered
 * beside the forward of the module before; gradients are reduced beside the backward of
 * the next module of the last micro-batch. Iterations follow one another with one rule:
 * nothing of the next starts on a rank before everything of this one has ended there.
 *
 * Expanded today: dp, pp (1F1B), gradient accumulation, checkpointing, ZeRO-0 and ZeRO-1.
 * A plan with tp > 1, ZeRO-2/3 or offloading is refused by mist_schedule_supports().
 */
#ifndef MIST_SIM_SCHEDULE_H
#define MIST_SIM_SCHEDULE_H

#include "core/status.h"
#include "sim/catalog.h"
#include "sim/plan.h"
#include "traces/timeline.h" /* enum mist_task_kind, enum mist_stream */

#include <stdbool.h>
#include <stdint.h>

/* What a task does with a buffer. A task has at most one buffer per role. */
enum mist_role {
    MIST_ROLE_INPUT,     /* activation entering the module (or: what a transfer sends) */
    MIST_ROLE_OUTPUT,    /* activation leaving the module (or: what a transfer fills) */
    MIST_ROLE_SAVED,     /* saved-for-backward tensors */
    MIST_ROLE_SCRATCH,   /* program scratch and kernel workspace */
    MIST_ROLE_WEIGHTS,   /* flat parameters of the module */
    MIST_ROLE_GRADIENTS, /* flat gradients of the module */
    MIST_ROLE_STATE,     /* optimizer state (this rank's shard) */
    MIST_ROLE_GRAD_OUTPUT, /* gradient of the module's output */
    MIST_ROLE_GRAD_INPUT,  /* gradient of the module's input */
    MIST_ROLE_TOKENS,      /* input ids of all micro-batches of the iteration */
    MIST_ROLE_TARGETS,     /* ids to predict */
    MIST_ROLE_CONSTANT,    /* the RoPE table */
    MIST_N_ROLES
};

enum mist_buffer_arena { MIST_ARENA_DEVICE, MIST_ARENA_HOST, MIST_N_ARENAS };

struct mist_buffer {
    enum mist_buffer_arena arena;
    enum mist_role role; /* as its creator sees it */
    int32_t layer;       /* module number; -1 none */
    int32_t micro_batch; /* -1: lives over all micro-batches */
    bool is_persistent;  /* lives over iterations */
    int64_t size_bytes;
    int32_t first_task;   /* birth: first task that names it (0 if persistent) */
    int32_t last_task;    /* death: last task that names it (n_tasks - 1 if persistent) */
    int64_t offset_bytes; /* in its arena; set by mist_memory_plan */
};

/* Communication groups of a task. */
enum mist_group { MIST_GROUP_NONE, MIST_GROUP_DP, MIST_GROUP_TP, MIST_GROUP_PEER };

struct mist_task {
    enum mist_task_kind kind;
    enum mist_stream stream;
    int32_t layer;       /* module number 0 .. n_layers + 1; -1 none */
    int32_t micro_batch; /* -1 none */
    int32_t cost;        /* equal for tasks that cost the same; index below n_costs */
    enum mist_group group;
    int32_t peer; /* GROUP_PEER: the other rank; else -1 */
    int32_t tag;  /* transfers: number of the transfer between the two ranks; collectives:
                     number  of the collective in its group. Both sides count alike */
    int64_t bytes;              /* moved by communication and copies: the full message */
    int64_t slice_offset_bytes; /* transfers between stages of different dp: where the
                               slice starts in the buffer; 0 otherwise */
    int32_t buffers[MIST_N_ROLES]; /* indices into buffers; -1 none */
    int32_t dep_first; /* dependencies are deps[dep_first .. dep_first + n_deps - 1], all
                          earlier tasks */
    int32_t n_deps;    /* of other streams (the own stream's order is implied) */
    bool is_update; /* optimizer step or its gather: skipped in the first iteration of a
                       run, and run alone at its end */
};

struct mist_schedule {
    int32_t rank, i_stage, i_dp, i_tp;
    int32_t n_tasks, n_deps, n_buffers, n_costs;
    struct mist_task *tasks;                              /* owned */
    int32_t *deps;                                        /* owned; task indices */
    struct mist_buffer *buffers;                          /* owned */
    struct mist_layer_layout layouts[MIST_N_LAYER_KINDS]; /* of this stage's (b, tp) */
    int64_t arena_bytes[MIST_N_ARENAS];                   /* set by mist_memory_plan */
};

/* Which module kind a module number is, for a model of n_layers blocks. */
enum mist_layer_kind mist_schedule_layer_kind(const struct mist_model *model,
                                              int32_t layer);

/* First and last module number of a stage, inclusive (embedding and head counted). */
void mist_schedule_stage_layers(const struct mist_plan *plan, int32_t i_stage,
                                int32_t *first, int32_t *last);

/* Elements of a module's flat parameters,
 * padded so that dp shards are equal and 64-byte aligned. */
int64_t mist_schedule_padded_elements(int64_t n_parameters, int32_t dp);

/* True if the module is one of the blocks of its stage that keep only their input. */
bool mist_schedule_is_checkpointed(const struct mist_plan *plan, int32_t i_stage,
                                   int32_t layer);

/* MIST_OK if every knob of the plan can be expanded; otherwise MIST_ERR_INPUT naming
 * stage and knob. */
MIST_MUST_CHECK enum mist_status mist_schedule_supports(const struct mist_plan *plan,
                                                        struct mist_err *err);

/* mist_plan_load() of a plan that is also supported; what is not is refused with the line
 * and column of the knob. */
MIST_MUST_CHECK enum mist_status
mist_schedule_load_plan(const char *path, struct mist_plan *out, struct mist_err *err);

/*
 * Expands the plan (checked) for one rank and lays out its memory.
 *
 * catalog   of plan->model; borrowed during the call.
 * threads   host threads per device, for kernel workspaces.
 * out       filled on MIST_OK, to be freed with mist_schedule_free; untouched otherwise.
 * Returns MIST_OK, MIST_ERR_INPUT (not supported), MIST_ERR_RANGE, MIST_ERR_MEMORY.
 * O(tasks log tasks).
 */
MIST_MUST_CHECK enum mist_status mist_schedule_build(const struct mist_catalog *catalog,
                                                     const struct mist_plan *plan,
                                                     int32_t rank, int32_t threads,
                                                     struct mist_schedule **out,
                                                     struct mist_err *err);
void mist_schedule_free(struct mist_schedule *schedule);

/* A dependency while a schedule is being made:
 * task starts after on (earlier in dispatch order). */
struct mist_dep {
    int32_t task, on;
};

/* Replaces all dependencies. deps: [n_deps] in any order. MIST_OK or MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status mist_schedule_set_deps(struct mist_schedule *schedule,
                                                        const struct mist_dep *deps,
                                                        int32_t n_deps,
                                                        struct mist_err *err);

#endif
