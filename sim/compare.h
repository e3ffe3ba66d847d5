/*
 * Predicted beside measured: two timelines of the same plan, compared stage by stage, by
 * kind of task, and task by task.
 */
#ifndef MIST_SIM_COMPARE_H
#define MIST_SIM_COMPARE_H

#include "core/status.h"
#include "sim/plan/plan.h"
#include "traces/timeline.h"

/* One timeline's view of a stage, per iteration, mean over its ranks and iterations. */
struct mist_compare_stage {
    double compute_s;       /* compute stream running */
    double communication_s; /* gpu_gpu, send or receive running */
    int64_t peak_bytes;     /* largest device_live_bytes */
};

/* All tasks of one kind on compute or communication streams, per iteration of the whole
 * plan's ranks. */
struct mist_compare_kind {
    int64_t n_tasks; /* 0: none in this timeline */
    double mean_s;   /* mean duration of a task */
};

struct mist_compare_side {
    double iteration_s; /* distance of the ends of iterations, median; of one: its span */
    int n_iterations;
    struct mist_compare_stage stages[MIST_MAX_STAGES];
    struct mist_compare_kind kinds[MIST_N_TASK_KINDS];
};

/*
 * Reduces a checked timeline of the plan (all ranks, or one per stage). MIST_OK,
 * MIST_ERR_INPUT when the timeline has a rank or a layer that the plan has not,
 * MIST_ERR_MEMORY. O(n log n).
 */
MIST_MUST_CHECK enum mist_status mist_compare_reduce(const struct mist_plan *plan,
                                                     const struct mist_timeline *timeline,
                                                     struct mist_compare_side *out,
                                                     struct mist_err *err);

/*
 * Whether a measured timeline lost rows: each of its ranks has in each iteration the last
 * task that the stage has in predicted, a timeline of the same plan. (Updates at a run's
 * begin leave holes in front of it.) MIST_OK, MIST_ERR_INPUT naming the rank, or
 * MIST_ERR_MEMORY. Both are checked and of the plan's ranks.
 */
MIST_MUST_CHECK enum mist_status
mist_compare_check_whole(const struct mist_plan *plan,
                         const struct mist_timeline *predicted,
                         const struct mist_timeline *measured, struct mist_err *err);

/* What tasks of one kind on one rank took, per iteration. */
struct mist_compare_difference {
    int32_t stage, rank;
    enum mist_task_kind kind;
    int64_t n_tasks;                /* measured, in all iterations */
    double predicted_s, measured_s; /* the same tasks; where predicted lacks the rank, of
                                        the one of its stage that it has */
};

/*
 * Compares a measured timeline with predicted, a replay of the plan: both checked and of
 * the plan's ranks. out [n] is to be freed; the largest difference comes first.
 * MIST_ERR_INPUT: it is of another plan, number of ranks, model or job, with the first
 * task that says so; MIST_ERR_MEMORY. O(n log n).
 */
MIST_MUST_CHECK enum mist_status
mist_compare_tasks(const struct mist_plan *plan, const struct mist_timeline *predicted,
                   const struct mist_timeline *measured, int n_iterations,
                   struct mist_compare_difference **out, size_t *n, struct mist_err *err);

#endif
