/* Prices that ranks share. See rank_set.h. */
#include "sim/replay/rank_set.h"

#include "core/memory.h" /* mist_grow */

#include <stdlib.h>
#include <string.h>

/* What prices of a program depend on. */
struct key {
    int32_t program;
    struct mist_group_shape *shapes; /* owned; [n_lanes] */
};

struct pricing {
    struct mist_rank_set *set;
    const struct mist_cost_model *model;
    const struct mist_plan *plan;
    struct mist_group_shape *shapes; /* owned; of the lanes of the rank at hand */
    struct key *keys;                /* owned; [set->n_costs] */
    size_t capacity, costs_capacity, growths_capacity;
    bool has_growths;
    struct mist_err *err;
};

/* How the groups of a rank's lanes lie on nodes. What it shares with a peer is what the
 * rank before (NULL: none) shares, where those two are on the same two nodes. */
static void find_shapes(struct pricing *at, const struct mist_rank *rank,
                        const struct mist_rank *before)
{
    const struct mist_rank_program *program = &at->set->programs[rank->program];
    int32_t n = mist_cost_model_traces(at->model)->cluster.devices_per_node;
    bool is_near =
        before && before->program == rank->program && before->rank / n == rank->rank / n;

    for (int32_t k = 0; k < program->n_lanes; k++)
        if (!is_near || rank->peer[k] < 0 || rank->peer[k] / n != before->peer[k] / n)
            at->shapes[k] = mist_schedule_group_shape(
                at->plan, &program->schedule->mesh, rank->rank, program->lanes[k].group,
                program->lanes[k].kind, rank->peer[k], n);
}

static size_t shapes_bytes(const struct pricing *at, const struct mist_rank *rank)
{
    return (size_t)at->set->programs[rank->program].n_lanes * sizeof *at->shapes;
}

/* Prices of a schedule, and what of them goes with tokens; shapes: by cost. */
static enum mist_status price_schedule(const struct pricing *at,
                                       const struct mist_schedule *schedule,
                                       const struct mist_group_shape *shapes,
                                       struct mist_cost *costs,
                                       struct mist_cost_growth *growths)
{
    enum mist_status status =
        mist_cost_schedule_at(at->model, at->plan, schedule, shapes, costs, at->err);

    return status == MIST_OK && at->has_growths
               ? mist_cost_find_growth(at->model, at->plan, schedule, shapes, costs,
                                       growths, at->err)
               : status;
}

/* Room for one more rank's prices. */
static bool grow(struct pricing *at)
{
    struct mist_rank_set *set = at->set;
    int32_t n = set->n_costs + 1;

    return MIST_RESERVE(at->keys, at->capacity, n) &&
           MIST_RESERVE(set->costs, at->costs_capacity, n) &&
           (!at->has_growths || MIST_RESERVE(set->growths, at->growths_capacity, n));
}

/* Appends prices of a rank that is like none before. */
static enum mist_status price(struct pricing *at, const struct mist_rank *rank)
{
    struct mist_rank_set *set = at->set;
    const struct mist_rank_program *program = &set->programs[rank->program];
    const struct mist_schedule *schedule = program->schedule;
    size_t n = (size_t)schedule->n_costs + 1;
    struct mist_cost *costs = calloc(n, sizeof *costs);
    struct mist_cost_growth *growths = calloc(at->has_growths ? n : 1, sizeof *growths);
    struct key key = {rank->program, malloc(shapes_bytes(at, rank) + 1)};
    struct mist_group_shape *shapes = calloc(n, sizeof *shapes); /* by cost */
    enum mist_status status = MIST_OK;

    if (!grow(at) || !costs || !growths || !key.shapes || !shapes)
        status = mist_err_memory(at->err, NULL);
    for (int32_t i = 0; status == MIST_OK && i < schedule->n_tasks; i++)
        if (program->lane[i] >= 0)
            shapes[schedule->tasks[i].cost] = at->shapes[program->lane[i]];
    if (status == MIST_OK)
        status = price_schedule(at, schedule, shapes, costs, growths);
    free(shapes);
    if (status != MIST_OK || !at->has_growths) {
        free(growths);
        growths = NULL;
    }
    if (status != MIST_OK) {
        free(costs);
        free(key.shapes);
        return status;
    }
    memcpy(key.shapes, at->shapes, shapes_bytes(at, rank));
    at->keys[set->n_costs] = key;
    set->costs[set->n_costs] = costs;
    if (growths)
        set->growths[set->n_costs] = growths;
    set->n_costs++;
    return MIST_OK;
}

static enum mist_status price_all(struct pricing *at)
{
    struct mist_rank_set *set = at->set;
    int32_t i_stage = -1, first = 0; /* first key of the stage */
    enum mist_status status = MIST_OK;

    for (int32_t r = 0; r < set->n_ranks && status == MIST_OK; r++) {
        struct mist_rank *rank = &set->ranks[r];
        if (mist_rank_schedule(set, r)->i_stage != i_stage) {
            i_stage = mist_rank_schedule(set, r)->i_stage;
            first = set->n_costs;
        }
        find_shapes(at, rank, r > 0 ? rank - 1 : NULL);
        int32_t i = first;
        while (i < set->n_costs &&
               (at->keys[i].program != rank->program ||
                memcmp(at->keys[i].shapes, at->shapes, shapes_bytes(at, rank)) != 0))
            i++;
        if (i == set->n_costs)
            status = price(at, rank);
        if (status == MIST_OK)
            rank->costs = set->costs[i];
        if (status == MIST_OK && at->has_growths)
            rank->growths = set->growths[i];
    }
    return status;
}

enum mist_status mist_rank_set_price(struct mist_rank_set *ranks,
                                     const struct mist_cost_model *model,
                                     const struct mist_plan *plan, bool has_growths,
                                     struct mist_err *err)
{
    struct pricing at = {.set = ranks,
                         .model = model,
                         .plan = plan,
                         .has_growths = has_growths,
                         .err = err};
    int32_t n_lanes = 0; /* at most */

    for (int32_t i = 0; i < ranks->n_programs; i++)
        if (ranks->programs[i].n_lanes > n_lanes)
            n_lanes = ranks->programs[i].n_lanes;
    at.shapes = malloc(((size_t)n_lanes + 1) * sizeof *at.shapes);
    enum mist_status status = at.shapes ? price_all(&at) : mist_err_memory(err, NULL);
    for (int32_t i = 0; at.keys && i < ranks->n_costs; i++)
        free(at.keys[i].shapes);
    free(at.keys);
    free(at.shapes);
    return status;
}
