/* Prices that ranks share. See rank_set.h. */
#include "sim/replay/rank_set.h"

#include "core/memory.h" /* mist_grow */

#include <stdlib.h>
#include <string.h>

/* What prices of a program depend on. */
struct key {
    int32_t program;
    struct mist_cost_groups groups;
    bool *crosses; /* owned; [n_lanes] the peer is on another node */
};

struct pricing {
    struct mist_rank_set *set;
    const struct mist_cost_model *model;
    const struct mist_plan *plan;
    struct mist_cost_group all, *dp,
        *tp;          /* of the stage at hand: [tp], [dp]; nodes 0: unknown */
    struct key *keys; /* [set->n_costs] */
    size_t capacity, costs_capacity;
    struct mist_err *err;
};

static bool is_same_group(struct mist_cost_group a, struct mist_cost_group b)
{
    return a.nodes == b.nodes && a.ranks_per_node == b.ranks_per_node &&
           a.concurrent_groups == b.concurrent_groups;
}

static bool has_key(const struct pricing *at, const struct mist_rank *rank,
                    const struct mist_cost_groups *groups, const struct key *key)
{
    if (key->program != rank->program || !is_same_group(key->groups.dp, groups->dp) ||
        !is_same_group(key->groups.tp, groups->tp))
        return false;
    for (int32_t k = 0; k < at->set->programs[rank->program].n_lanes; k++)
        if (key->crosses[k] !=
            mist_cost_crosses_nodes(at->model, rank->rank, rank->peer[k]))
            return false;
    return true;
}

/* Appends prices of a rank that is like none before. */
static enum mist_status price(struct pricing *at, const struct mist_rank *rank,
                              const struct mist_cost_groups *groups)
{
    struct mist_rank_set *set = at->set;
    const struct mist_rank_program *program = &set->programs[rank->program];
    size_t n = (size_t)set->n_costs, n_tasks = (size_t)program->schedule->n_tasks;
    struct key *keys = mist_grow(at->keys, &at->capacity, n + 1, sizeof *keys);
    if (keys)
        at->keys = keys;
    struct mist_cost **costs =
        mist_grow(set->costs, &at->costs_capacity, n + 1, sizeof *costs);
    if (costs)
        set->costs = costs;
    struct mist_cost *mine = calloc((size_t)program->schedule->n_costs + 1, sizeof *mine);
    struct key key = {rank->program, *groups,
                      calloc((size_t)program->n_lanes + 1, sizeof(bool))};
    bool *crosses = calloc(n_tasks + 1, sizeof *crosses); /* by task */
    enum mist_status status = MIST_OK;

    if (!keys || !costs || !mine || !key.crosses || !crosses)
        status = mist_err_set(at->err, MIST_ERR_MEMORY, "out of memory");
    for (int32_t k = 0; status == MIST_OK && k < program->n_lanes; k++)
        key.crosses[k] = mist_cost_crosses_nodes(at->model, rank->rank, rank->peer[k]);
    for (size_t i = 0; status == MIST_OK && i < n_tasks; i++)
        crosses[i] = program->lane[i] >= 0 && key.crosses[program->lane[i]];
    if (status == MIST_OK)
        status = mist_cost_schedule_at(at->model, at->plan, program->schedule, groups,
                                       crosses, mine, at->err);
    free(crosses);
    if (status != MIST_OK) {
        free(mine);
        free(key.crosses);
        return status;
    }
    keys[n] = key;
    costs[n] = mine;
    set->n_costs++;
    return MIST_OK;
}

/* Forgets the group shapes of the stage before. */
static enum mist_status begin_stage(struct pricing *at, int32_t i_stage)
{
    free(at->dp);
    free(at->tp);
    at->dp = calloc((size_t)at->plan->stages[i_stage].tp, sizeof *at->dp);
    at->tp = calloc((size_t)at->plan->stages[i_stage].dp, sizeof *at->tp);
    return at->dp && at->tp ? MIST_OK
                            : mist_err_set(at->err, MIST_ERR_MEMORY, "out of memory");
}

/* A group of one rank has no tasks and so no shape. */
static struct mist_cost_groups groups_of(struct pricing *at, int32_t i_stage,
                                         const struct mist_rank *rank)
{
    struct mist_cost_group *dp = &at->dp[rank->i_tp], *tp = &at->tp[rank->i_dp];

    if (dp->nodes == 0 && at->plan->stages[i_stage].dp > 1)
        *dp = mist_cost_dp_group(at->model, at->plan, i_stage, rank->i_tp);
    if (tp->nodes == 0 && at->plan->stages[i_stage].tp > 1)
        *tp = mist_cost_tp_group(at->model, at->plan, i_stage, rank->i_dp);
    return (struct mist_cost_groups){*dp, *tp, at->all};
}

static enum mist_status price_all(struct pricing *at)
{
    struct mist_rank_set *set = at->set;
    int32_t i_stage = -1, first = 0; /* first key of the stage */
    enum mist_status status = MIST_OK;

    for (int32_t r = 0; r < set->n_ranks && status == MIST_OK; r++) {
        struct mist_rank *rank = &set->ranks[r];
        if (set->programs[rank->program].schedule->i_stage != i_stage) {
            i_stage = set->programs[rank->program].schedule->i_stage;
            first = set->n_costs;
            status = begin_stage(at, i_stage);
            if (status != MIST_OK)
                break;
        }
        const struct mist_cost_groups groups = groups_of(at, i_stage, rank);
        int32_t i = first;
        while (i < set->n_costs && !has_key(at, rank, &groups, &at->keys[i]))
            i++;
        if (i == set->n_costs)
            status = price(at, rank, &groups);
        if (status == MIST_OK)
            rank->costs = set->costs[i];
    }
    return status;
}

enum mist_status mist_rank_set_price(struct mist_rank_set *ranks,
                                     const struct mist_cost_model *model,
                                     const struct mist_plan *plan, struct mist_err *err)
{
    struct pricing at = {
        .set = ranks,
        .model = model,
        .plan = plan,
        .all = mist_cost_all_group(model, plan),
        .err = err,
    };
    enum mist_status status = price_all(&at);

    for (int32_t i = 0; at.keys && i < ranks->n_costs; i++)
        free(at.keys[i].crosses);
    free(at.keys);
    free(at.dp);
    free(at.tp);
    return status;
}
