/*
 * From schedules to one flat task graph: finds the partners of every transfer and
 * collective, chains iterations, and proves that the graph can run to its end.
 *
 * Ranks are indexed 0 .. n_ranks - 1 in the order of the schedules given; task i of rank
 * index r in iteration k has the flat number (k * n_tasks_once + first_task[r]) + i. So
 * the tasks of a stream stand in their order, as the event engine wants them.
 */
#ifndef MIST_SIM_REPLAY_GRAPH_H
#define MIST_SIM_REPLAY_GRAPH_H

#include "core/memory.h" /* struct mist_arena */
#include "core/status.h"
#include "sim/catalog.h"
#include "sim/plan.h"
#include "sim/replay.h" /* options */
#include "sim/replay_size.h"
#include "sim/schedule.h"

#include <stdbool.h>
#include <stdint.h>

/* Schedules of all ranks of a plan, or of one of each stage, ascending by rank. */
struct mist_rank_set {
    int32_t n_ranks;
    struct mist_schedule **schedules; /* owned */
};

/*
 * Builds what work needs: all ranks, or one of each stage. One of each stage comes first;
 * when work would take more memory than there is, it is refused then: MIST_ERR_NO_PLAN.
 * out must be zero; it is freed by mist_rank_set_fini also after a failure.
 */
MIST_MUST_CHECK enum mist_status
mist_rank_set_build(const struct mist_catalog *catalog, const struct mist_plan *plan,
                    int32_t threads, const struct mist_replay_work *work,
                    struct mist_rank_set *out, struct mist_err *err);
void mist_rank_set_fini(struct mist_rank_set *ranks);

/* Checks the options and says what they ask for. */
MIST_MUST_CHECK enum mist_status
mist_replay_find_work(const struct mist_plan *plan,
                      const struct mist_replay_options *options,
                      struct mist_replay_work *out, struct mist_err *err);

/* Arrays lie in the arena given to link; schedules are borrowed. */
struct mist_replay_graph {
    const struct mist_schedule *const *schedules; /* [n_ranks] */
    int32_t n_ranks;
    int32_t n_iterations;
    int32_t n_tasks_once; /* of all ranks in one iteration */
    int32_t n_tasks;      /* n_iterations * n_tasks_once */
    int32_t n_rendezvous_once;
    int32_t n_rendezvous;
    int32_t *first_task; /* [n_ranks + 1] in one iteration */
    int32_t *device;     /* [n_tasks] rank index */
    uint8_t *channel;    /* [n_tasks] stream */
    int32_t *dep_offset; /* [n_tasks + 1] */
    int32_t *dep;        /* [dep_offset[n_tasks]] */
    int32_t *rendezvous; /* [n_tasks] -1 none */
};

enum { MIST_REPLAY_TASK_TEXT = 96 };

/* "rank 3 task 17 (send_activation, layer 2, micro-batch 1)" in
 * out[MIST_REPLAY_TASK_TEXT]; returns out. */
char *mist_replay_task_text(const struct mist_schedule *schedule, int32_t i, char *out);

/*
 * Links the schedules of the ranks of a plan.
 *
 * schedules     [n_ranks] ascending by rank; borrowed by out.
 * is_folded     one rank stands for its stage: collectives of a stage have one member,
 *               those of the whole plan one of each stage, and every peer must be among
 *               the ranks given. Otherwise all ranks of the plan must be given.
 * out           filled on MIST_OK.
 *
 * Every transfer must have exactly one sending and one receiving end that agree in kind,
 * micro-batch, bytes and in the rows they mean; every exchange of a tied weight's
 * gradient two ends of the same bytes; every collective one member for each rank of its
 * group, agreeing in kind, layer, micro-batch and bytes. MIST_ERR_INPUT names the ranks
 * and tasks that do not; MIST_ERR_RANGE (more than 2^31 tasks or dependencies) or
 * MIST_ERR_MEMORY. O(tasks log tasks).
 */
MIST_MUST_CHECK enum mist_status
mist_replay_graph_link(const struct mist_plan *plan,
                       const struct mist_schedule *const *schedules, int32_t n_ranks,
                       bool is_folded, int32_t n_iterations, struct mist_arena *arena,
                       struct mist_replay_graph *out, struct mist_err *err);

/* Bytes that the graph of so many tasks and dependencies takes, what matching its
 * communication takes meanwhile (n_ends: tasks of groups), and what checking it does. */
double mist_replay_graph_bytes(double n_tasks, double n_deps);
double mist_replay_graph_matching_bytes(double n_ends);
double mist_replay_graph_check_bytes(double n_tasks, double n_deps, double n_rendezvous);

/*
 * Proves that every task can run: MIST_OK, or MIST_ERR_INPUT when tasks wait for one
 * another in a ring; the message walks along the ring, naming ranks and tasks. Because a
 * stream runs its tasks in order and a rendezvous starts when all of its members are
 * first in their streams, this does not depend on how long anything takes.
 * MIST_ERR_MEMORY. O(tasks + dependencies).
 */
MIST_MUST_CHECK enum mist_status
mist_replay_graph_check(const struct mist_replay_graph *graph, struct mist_arena *arena,
                        struct mist_err *err);

#endif
