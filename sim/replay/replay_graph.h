/*
 * From ranks to a graph for the event engine: who meets whom in which lane, checked.
 *
 * Every program becomes one of the engine, every rank a device, and the lanes of ranks
 * that meet become one group. That the n-th task of each member means the same as the
 * n-th of all others is checked once for each pair of programs, but for what depends on
 * the rank.
 */
#ifndef MIST_SIM_REPLAY_GRAPH_H
#define MIST_SIM_REPLAY_GRAPH_H

#include "core/memory.h" /* struct mist_arena */
#include "core/status.h"
#include "sim/engine/event_engine.h"
#include "sim/plan/plan.h"
#include "sim/replay/rank_set.h"
#include "sim/replay/replay.h" /* options */

#include <stdbool.h>
#include <stdint.h>

static inline int32_t mist_replay_n_iterations(const struct mist_replay_options *options)
{
    return options->n_iterations ? options->n_iterations : 2;
}

/* Whether iterations differ from one another. */
static inline bool mist_replay_is_uneven(const struct mist_replay_options *options)
{
    return options->loads || options->jitter_frac > 0;
}

/* Iterations that the result is of. */
static inline int32_t mist_replay_n_counted(const struct mist_replay_options *options)
{
    int32_t n = mist_replay_n_iterations(options);

    return mist_replay_is_uneven(options) && n > 1 ? n - 1 : 1;
}

/* Micro-batches over which a pipeline's pace is measured. */
int32_t mist_replay_n_in_step(const struct mist_plan *plan);

/* MIST_OK, or MIST_ERR_INPUT: what is out of range or does not fit the plan. */
MIST_MUST_CHECK enum mist_status
mist_replay_check_options(const struct mist_plan *plan,
                          const struct mist_replay_options *options,
                          struct mist_err *err);

/* Checks the options and says what they ask for. */
MIST_MUST_CHECK enum mist_status
mist_replay_find_work(const struct mist_plan *plan,
                      const struct mist_replay_options *options,
                      struct mist_replay_work *out, struct mist_err *err);

/*
 * mist_replay_run() of ranks that are built and priced: all of the plan, or (is_folded) one
 * of each stage. interference NULL: none; doubt NULL: all 0.
 */
MIST_MUST_CHECK enum mist_status
mist_replay_run_ranks(const struct mist_plan *plan, const struct mist_rank_set *ranks,
                      bool is_folded, const struct mist_interference *interference,
                      const struct mist_replay_doubt *doubt,
                      const struct mist_replay_options *options,
                      struct mist_replay_result *out, struct mist_err *err);

/* mist_replay_check() of all ranks of the plan. */
MIST_MUST_CHECK enum mist_status
mist_replay_check_ranks(const struct mist_plan *plan, const struct mist_rank_set *ranks,
                        struct mist_err *err);

/* Of one program. */
struct mist_replay_lanes {
    int32_t *first; /* [n_lanes + 1] */
    int32_t *task;  /* [first[n_lanes]] the tasks of lane k from first[k] on, in order */
    int32_t *place; /* [n_tasks] of a task in its lane */
    bool *repeats;  /* [n_lanes] a tag comes twice */
};

/* Those who meet: one lane of each member. Groups of the same two ranks (transfers of
 * several kinds) are a pair and stand together. */
struct mist_replay_group {
    int32_t pair;         /* equal: the same two ranks */
    int32_t i_rank, lane; /* of the first member */
};

/* Arrays lie in the arena given; the ranks are borrowed. */
struct mist_replay_graph {
    const struct mist_rank_set *set;
    struct mist_event_program *programs; /* [set->n_programs] */
    struct mist_replay_lanes *lanes;     /* [set->n_programs] */
    int32_t *group;                      /* of each lane of each rank, as set->peers */
    struct mist_replay_group *groups;    /* [n_groups] */
    int32_t n_groups;
    int64_t n_tasks_once; /* of all ranks in one iteration */
    /* from mist_replay_graph_number() */
    int64_t n_meetings;     /* of all groups in one iteration */
    int64_t *first_task;    /* [n_ranks + 1] number of a rank's first task */
    int64_t *first_meeting; /* [n_groups + 1] */
    int64_t *meeting;       /* [n_meetings] number of the meetings of group g from
                               first_meeting[g] on */
};

enum { MIST_REPLAY_TASK_TEXT = 96 };

/* "rank 3 task 17 (send_activation, layer 2, micro-batch 1)" in
 * out[MIST_REPLAY_TASK_TEXT]; returns out. */
char *mist_replay_task_text(const struct mist_rank_set *set, int32_t i_rank, int32_t i,
                            char *out);

/*
 * Links the ranks of a plan.
 *
 * set         borrowed by out.
 * is_folded   one rank stands for its stage: collectives of a stage have one member,
 *             those of the whole plan one of each stage, and every peer must be among the
 *             ranks given. Otherwise all ranks of the plan must be given.
 * out         filled on MIST_OK.
 *
 * Every transfer must have exactly one sending and one receiving end that agree in kind,
 * micro-batch, bytes and in the rows they mean; every exchange of a tied weight's
 * gradient two ends of the same bytes; every collective one member for each rank of its
 * group, agreeing in kind, layer, micro-batch and bytes; all in the same order.
 * MIST_ERR_INPUT names the ranks and tasks that do not; MIST_ERR_RANGE or
 * MIST_ERR_MEMORY. O(tasks of programs + ranks * micro-batches, log).
 */
MIST_MUST_CHECK enum mist_status
mist_replay_graph_link(const struct mist_plan *plan, const struct mist_rank_set *set,
                       bool is_folded, struct mist_arena *arena,
                       struct mist_replay_graph *out, struct mist_err *err);

/* The part of it that numbers the groups and checks that their members match; the lanes of
 * the programs are there. */
MIST_MUST_CHECK enum mist_status mist_replay_graph_match(const struct mist_plan *plan,
                                                         bool is_folded,
                                                         struct mist_replay_graph *graph,
                                                         struct mist_err *err);

/* Bytes that the graph takes (n_tasks, n_deps: of all programs; n_lanes: of all ranks),
 * and what matching its lanes takes meanwhile. */
double mist_replay_graph_bytes(double n_tasks, double n_deps, double n_lanes);
double mist_replay_graph_matching_bytes(double n_lanes);

/* Numbers the tasks of all ranks, rank by rank, and what they meet for: collectives
 * before transfers, by stage, place in the stage, or rank, and tag. MIST_OK or
 * MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status mist_replay_graph_number(struct mist_replay_graph *graph,
                                                          struct mist_arena *arena,
                                                          struct mist_err *err);

/* Number of what a task meets others for; -1: nothing. */
int64_t mist_replay_graph_meeting(const struct mist_replay_graph *graph, int32_t i_rank,
                                  int32_t task);

#endif
