/*
 * The ranks of a plan, with everything that ranks have in common held once.
 *
 * What makes a rank's schedule is its stage and the slices of rows that it exchanges with
 * other stages (mist_schedule_slices). Ranks of a stage whose slices are alike run one
 * program: a schedule, with its layout, in which only the peers differ from rank to rank
 * (and offsets inside of buffers, which no replay needs). A program's tasks meet others
 * in lanes: its groups, and one lane for each peer and kind of transfer. So a rank is a
 * program and the peers of its lanes. Ranks whose program and shapes of groups on nodes
 * are the same share prices, too.
 */
#ifndef MIST_SIM_RANK_SET_H
#define MIST_SIM_RANK_SET_H

#include "core/status.h"
#include "sim/cost/cost_model.h"
#include "sim/model/catalog.h"
#include "sim/plan/plan.h"
#include "sim/replay/replay_size.h"
#include "sim/schedule/schedule.h"

#include <stdbool.h>
#include <stdint.h>

/* What tasks of a program that meet the same others have in common. */
struct mist_lane {
    enum mist_group group;
    enum mist_task_kind kind; /* GROUP_PEER: of the transfer */
    int32_t peer;             /* GROUP_PEER: of the rank the schedule is for; else -1 */
};

struct mist_rank_program {
    const struct mist_schedule *schedule;
    struct mist_schedule *owned; /* the same; NULL: borrowed */
    struct mist_lane *lanes;     /* owned; [n_lanes] in the order of their first tasks */
    int32_t *lane;               /* owned; [n_tasks] of each task, -1 none */
    int32_t n_lanes;
};

struct mist_rank {
    int32_t rank, program;                  /* stage and mesh: of the schedule */
    int32_t *peer;                          /* [n_lanes] rank at the other end; -1 none */
    const struct mist_cost *costs;          /* [n_costs]; NULL: not priced */
    const struct mist_cost_growth *growths; /* [n_costs]; NULL: forward and backward go
                                               with tokens, nothing else does */
};

struct mist_rank_set {
    int32_t n_ranks, n_programs;
    bool has_one_of_tp; /* struct mist_replay_work */
    bool is_over; /* a program is over the limit; those of later stages are not there */
    struct mist_rank *ranks; /* owned; ascending by rank: all, one of each tensor-parallel
                                group, or one of each stage */
    struct mist_rank_program *programs; /* owned; [n_programs] */
    int32_t *peers;                     /* owned; of all ranks */
    struct mist_cost **costs;           /* owned; [n_costs] prices that ranks share */
    struct mist_cost_growth **growths;  /* owned; [n_costs]; NULL: not asked for */
    int32_t n_costs;
};

/*
 * Builds what work needs: all ranks, or some that stand for others. One schedule of each stage
 * comes first; when work would take more memory than there is, it is refused then:
 * MIST_ERR_NO_PLAN. If one is over the limit of work, that is all. out must be zero; it is freed by mist_rank_set_fini also after a
 * failure.
 */
MIST_MUST_CHECK enum mist_status mist_rank_set_build(const struct mist_plan *plan,
                                                     int32_t threads,
                                                     const struct mist_replay_work *work,
                                                     struct mist_rank_set *out,
                                                     struct mist_err *err);

/* Does only as much of that as it takes to refuse work. */
MIST_MUST_CHECK enum mist_status
mist_rank_set_check_memory(const struct mist_plan *plan, int32_t threads,
                           const struct mist_replay_work *work, struct mist_err *err);

/* Fills the lanes of a program that has its schedule; they are freed with the set. */
MIST_MUST_CHECK enum mist_status
mist_rank_program_find_lanes(struct mist_rank_program *program, struct mist_err *err);

/* Sets the costs of all ranks, and their growths if has_growths. MIST_ERR_INPUT (no price),
 * MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status
mist_rank_set_price(struct mist_rank_set *ranks, const struct mist_cost_model *model,
                    const struct mist_plan *plan, bool has_growths, struct mist_err *err);

void mist_rank_set_fini(struct mist_rank_set *ranks);

/* Of all ranks together. */
size_t mist_rank_set_n_lanes(const struct mist_rank_set *ranks);

static inline const struct mist_schedule *
mist_rank_schedule(const struct mist_rank_set *ranks, int32_t i_rank)
{
    return ranks->programs[ranks->ranks[i_rank].program].schedule;
}

#endif
