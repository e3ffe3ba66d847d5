/* What runtime.c, runtime_task.c and runtime_times.c share. */
#ifndef MIST_EXEC_RUNTIME_INTERNAL_H
#define MIST_EXEC_RUNTIME_INTERNAL_H

#include "exec/runtime/runtime.h"

#include <stdatomic.h>

struct mist_task_body {
    struct mist_runtime *runtime;
    int32_t i_task;
    int32_t row;    /* of config.ops: what the task works on, by looks at the clock */
    double since_s; /* since when */
};

struct mist_task_time {
    double start_s, end_s; /* 0 while the task has not run */
};

/* Which tasks of the schedule a walk runs. */
enum mist_walk { MIST_WALK_ITERATION, MIST_WALK_UPDATE, MIST_WALK_EVALUATION };

/* Iterations of each way that are timed before one of them is chosen. */
enum { MIST_GRAPH_SAMPLES = 3 };

/* Replaying of iterations: runtime_graph.c. */
struct mist_runtime_graph {
    bool is_possible, is_captured;
    bool replays;                    /* steady iterations, from now on */
    bool is_chosen;                  /* for good */
    const int32_t *tokens, *targets; /* that the captured copies take */
    int32_t n_timed[2];              /* plain ones, replayed ones */
    double times_s[2][MIST_GRAPH_SAMPLES];
    char text[MIST_PATH_BYTES]; /* for people; "": the device can't */
};

struct mist_runtime {
    const struct mist_plan *plan;
    const struct mist_schedule *schedule;
    struct mist_device *device;
    struct mist_comm *comm;
    struct mist_collectives *collectives;
    const struct mist_operators *operators;
    struct mist_train_config config;
    void *backend;          /* of the operators */
    int32_t n_host_threads; /* of updates on the host */
    /* of collectives, by enum mist_group (PEER: the ends of a tied weight); NULL: none */
    struct mist_collective_group *groups[MIST_GROUP_ALL];
    float loss_scale; /* 1 / tokens of a step */
    int32_t n_iterations, n_done, n_spans;
    struct mist_adamw_args update; /* of the gradients of the latest iteration */
    bool skips_update, has_update;
    bool stops; /* this rank wants all to */
    enum mist_walk walk;
    struct mist_task_body *bodies; /* [n_tasks] */
    bool *is_awaited;              /* [n_tasks] somebody on another stream waits for it */
    double loss_sum;               /* of all ranks, after the exchange */
    int64_t exchanged[4]; /* squares, faults and ranks that stop, of all, after it */
    atomic_int n_faults;  /* things not finite on this rank */
    char where[200];      /* the first of them */
    struct mist_task_time *spans;         /* [n_spans]: iteration i at i % n_spans */
    struct mist_task_time *times;         /* [n_timed_iterations + 1][n_tasks] */
    struct mist_task_time *current_times; /* row of the running iteration */
    enum mist_span_loss *losses;          /* [n_timed_iterations] */
    /* rows of config.ops: of tasks [n_tasks], and of the steps of their programs */
    int32_t *task_rows, step_rows[MIST_N_LAYER_KINDS][2][MIST_MAX_STEPS];
    int64_t last_span;               /* whose work came last */
    const int32_t *tokens, *targets; /* of the running iteration; borrowed */
    struct mist_runtime_graph graph;
};

/* Submits the tasks of the walk, in order. */
MIST_MUST_CHECK enum mist_status mist_runtime_dispatch(struct mist_runtime *runtime,
                                                       struct mist_err *err);

/* ------------------------------------------- runtime_graph.c: iterations, replayed */

/* MIST_OK, or MIST_ERR_USAGE: they are to be, and can't. */
MIST_MUST_CHECK enum mist_status mist_runtime_prepare_graph(struct mist_runtime *runtime,
                                                            struct mist_err *err);

/* Whether a walk that applies an update launches what all such walks do:
 * mist_runtime_walk_steady() then runs it, and waits for it. */
bool mist_runtime_is_steady(const struct mist_runtime *runtime);
MIST_MUST_CHECK enum mist_status mist_runtime_walk_steady(struct mist_runtime *runtime,
                                                          struct mist_err *err);

/* Address of a buffer in its arena. */
char *mist_runtime_address(const struct mist_runtime *runtime, int32_t buffer);

/* ---------------------------------------------------- runtime_times.c: when tasks ran */

/* Room for the times, and the rows of config.ops. MIST_OK, MIST_ERR_RANGE (too many) or
 * MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status mist_runtime_prepare_times(struct mist_runtime *runtime,
                                                            struct mist_err *err);
void mist_runtime_free_times(struct mist_runtime *runtime);

/* A walk that is iteration i_iteration (n_iterations: none) begins and ends, streams
 * idle. */
MIST_MUST_CHECK enum mist_status mist_runtime_begin_times(struct mist_runtime *runtime,
                                                          int32_t i_iteration,
                                                          struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_runtime_end_times(struct mist_runtime *runtime,
                                                        struct mist_err *err);

/* On the task's stream: it begins and ends; between, it works on step i_step of its
 * program from here on, or beside its steps (-1). */
void mist_runtime_begin_task(struct mist_task_body *body);
void mist_runtime_enter_step(struct mist_task_body *body, int32_t i_step);
void mist_runtime_end_task(struct mist_task_body *body);

/* ------------------------------------------------------------------------------------ */

/* The body of a task: arg is its struct mist_task_body. Runs on the task's stream. */
void mist_runtime_run_task(void *arg);

/* Losses, squares and faults of this rank, whose results have been fetched, become those
 * of all; the last task of an iteration, or called when a walk has none. */
MIST_MUST_CHECK enum mist_status mist_runtime_exchange(struct mist_runtime *runtime,
                                                       struct mist_err *err);

#endif
