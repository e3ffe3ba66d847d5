/* What runtime.c and runtime_task.c share. */
#ifndef MIST_EXEC_RUNTIME_INTERNAL_H
#define MIST_EXEC_RUNTIME_INTERNAL_H

#include "exec/runtime.h"

struct mist_task_body {
    struct mist_runtime *runtime;
    int32_t i_task;
};

struct mist_task_time {
    double start_s, end_s; /* 0 while the task has not run */
};

struct mist_runtime {
    const struct mist_plan *plan;
    const struct mist_schedule *schedule;
    struct mist_device *device;
    struct mist_comm *comm;
    const struct mist_operators *operators;
    struct mist_train_config config;
    struct mist_comm_group *group; /* data-parallel; NULL for one rank */
    float loss_scale;              /* 1 / tokens of a step */
    int32_t n_iterations, n_done;
    struct mist_task_body *bodies; /* [n_tasks] */
    bool *is_awaited;              /* [n_tasks] somebody on another stream waits for it */
    double *loss_sums;             /* [n_micro_batches] of the running iteration */
    struct mist_task_time *spans;  /* [n_iterations] */
    struct mist_task_time *times;  /* [n_timed_iterations + 1][n_tasks] */
    struct mist_task_time *current_times; /* row of the running iteration */
    const int32_t *tokens, *targets;      /* of the running iteration; borrowed */
};

/* Address of a buffer in its arena. */
char *mist_runtime_address(const struct mist_runtime *runtime, int32_t buffer);

/* The body of a task: arg is its struct mist_task_body. Runs on the task's stream. */
void mist_runtime_run_task(void *arg);

/* Initial parameters of a module: a function of seed, layer and element alone.
 * out: [n_parameters]. */
void mist_runtime_fill_parameters(const struct mist_model *model,
                                  const struct mist_layer_layout *layout, int32_t layer,
                                  uint64_t seed, float *out);

#endif
