/* Which ranks share a schedule and prices. See rank_set.h. */
#include "sim/replay/rank_set.h"

#include "core/memory.h" /* mist_grow */

#include <stdlib.h>
#include <string.h>

/* Transfers with the stage before, and with the one behind; what goes there as a gradient
 * is cut as an activation is. And the exchange of a tied weight's gradient. */
static const enum mist_task_kind transfers[] = {
    MIST_TASK_RECV_ACTIVATION, MIST_TASK_SEND_GRADIENT, MIST_TASK_RECV_GRADIENT,
    MIST_TASK_SEND_ACTIVATION, MIST_TASK_TIE_GRADIENT,
};
enum { N_TRANSFERS = sizeof transfers / sizeof *transfers };

/* All slices of a rank, one kind of transfer behind the other. */
struct slices {
    int32_t n[N_TRANSFERS];
    struct mist_slice *items; /* [sum of n] */
};

/* A program before its schedule is built. */
struct kind {
    int32_t rank;         /* the first one that has it */
    struct slices slices; /* owned */
};

struct building {
    const struct mist_plan *plan;
    const struct mist_replay_work *work;
    int32_t threads;
    struct mist_rank_set *out;
    struct kind *kinds; /* [out->n_programs] */
    size_t capacity;
    int32_t first_kind[MIST_MAX_STAGES + 1]; /* of each stage */
    struct slices scratch;                   /* room for those of any rank */
    struct mist_err *err;
};

/* ------------------------------------------------------------------------------ lanes */

static bool is_lane_of(const struct mist_lane *lane, const struct mist_task *task)
{
    return lane->group == task->group &&
           (task->group != MIST_GROUP_PEER ||
            (lane->kind == task->kind && lane->peer == task->peer));
}

enum mist_status mist_rank_program_find_lanes(struct mist_rank_program *program,
                                              struct mist_err *err)
{
    const struct mist_schedule *schedule = program->schedule;
    size_t capacity = 0;

    if (!MIST_MALLOC(program->lane, (size_t)schedule->n_tasks + 1))
        return mist_err_memory(err, NULL);
    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        int32_t k = 0;
        program->lane[i] = -1;
        if (task->group == MIST_GROUP_NONE)
            continue;
        while (k < program->n_lanes && !is_lane_of(&program->lanes[k], task))
            k++;
        program->lane[i] = k;
        if (k < program->n_lanes)
            continue;
        if (!MIST_RESERVE(program->lanes, capacity, k + 1))
            return mist_err_memory(err, NULL);
        bool is_peer = task->group == MIST_GROUP_PEER;
        program->lanes[program->n_lanes++] = (struct mist_lane){
            .group = task->group,
            .kind = is_peer ? task->kind : 0,
            .peer = is_peer ? task->peer : -1,
        };
    }
    return MIST_OK;
}

size_t mist_rank_set_n_lanes(const struct mist_rank_set *ranks)
{
    size_t n = 0;

    for (int32_t r = 0; r < ranks->n_ranks; r++)
        n += (size_t)ranks->programs[ranks->ranks[r].program].n_lanes;
    return n;
}

/* Room for the peers of all ranks. */
static enum mist_status alloc_peers(struct mist_rank_set *set, struct mist_err *err)
{
    size_t n = 0;

    if (!MIST_MALLOC(set->peers, mist_rank_set_n_lanes(set) + 1))
        return mist_err_memory(err, NULL);
    for (int32_t r = 0; r < set->n_ranks; r++) {
        set->ranks[r].peer = set->peers + n;
        n += (size_t)set->programs[set->ranks[r].program].n_lanes;
    }
    return MIST_OK;
}

/* ------------------------------------------------------------------------------ kinds */

static int32_t n_slices(const struct slices *slices)
{
    int32_t n = 0;

    for (int i = 0; i < N_TRANSFERS; i++)
        n += slices->n[i];
    return n;
}

static void list_slices(const struct mist_plan *plan, const struct mist_rank_mesh *mesh,
                        const struct mist_rank *rank, struct slices *out)
{
    int32_t n = plan->n_stages, i_stage = mesh->i_stage,
            i_head = mist_plan_head_stage(plan);
    bool wraps =
        n > 1 && mist_plan_n_chunks(plan) > 1 && mist_plan_stage_of_virtual(plan, n) == 0;
    const int32_t others[] = {(i_stage + n - 1) % n, (i_stage + 1) % n,
                              i_stage == 0 ? i_head : 0};
    bool has[] = {wraps || i_stage > 0, wraps || i_stage < n - 1,
                  plan->model.ties_embeddings && (i_stage == 0) != (i_stage == i_head)};

    memset(out->n, 0, sizeof out->n);
    for (int i = 0; i < N_TRANSFERS; i++)
        if (has[i / 2])
            out->n[i] = mist_schedule_slices(plan, mesh, rank->rank, others[i / 2],
                                             transfers[i], out->items + n_slices(out));
}

static bool are_alike(const struct slices *a, const struct slices *b)
{
    if (memcmp(a->n, b->n, sizeof a->n) != 0)
        return false;
    for (int32_t i = 0; i < n_slices(a); i++)
        if (a->items[i].first_row != b->items[i].first_row ||
            a->items[i].n_rows != b->items[i].n_rows)
            return false;
    return true;
}

/* Finds a rank's kind among those of its stage, or adds it. */
static enum mist_status classify(struct building *at, const struct mist_rank_mesh *mesh,
                                 struct mist_rank *rank)
{
    struct mist_rank_set *out = at->out;

    list_slices(at->plan, mesh, rank, &at->scratch);
    for (int32_t i = at->first_kind[mesh->i_stage]; i < out->n_programs; i++)
        if (are_alike(&at->kinds[i].slices, &at->scratch)) {
            rank->program = i;
            return MIST_OK;
        }
    if (!MIST_RESERVE(at->kinds, at->capacity, out->n_programs + 1))
        return mist_err_memory(at->err, NULL);
    struct kind kind = {rank->rank, at->scratch};
    size_t size = ((size_t)n_slices(&at->scratch) + 1) * sizeof *kind.slices.items;
    kind.slices.items = malloc(size);
    if (!kind.slices.items)
        return mist_err_memory(at->err, NULL);
    memcpy(kind.slices.items, at->scratch.items, size - sizeof *kind.slices.items);
    rank->program = out->n_programs;
    at->kinds[out->n_programs++] = kind;
    return MIST_OK;
}

/* The ranks and their kinds. */
static enum mist_status list_ranks(struct building *at)
{
    const struct mist_plan *plan = at->plan;
    struct mist_rank_set *out = at->out;
    size_t n_all = (size_t)mist_plan_n_ranks(plan), n_replayed = 0;
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < plan->n_stages; i++)
        n_replayed += (size_t)mist_replay_work_n_ranks(plan, i, at->work);
    out->has_one_of_tp = at->work->has_one_of_tp;
    out->ranks = calloc(n_replayed, sizeof *out->ranks);
    /* both neighbours', both ways; with two stages they are one; and a tied weight's */
    at->scratch.items = malloc((4 * n_all + 2) * sizeof *at->scratch.items);
    if (!out->ranks || !at->scratch.items)
        return mist_err_memory(at->err, NULL);
    for (int32_t i = 0; i < plan->n_stages && status == MIST_OK; i++) {
        const struct mist_rank_mesh mesh = mist_rank_mesh_make(plan, i);
        int32_t step = out->has_one_of_tp ? plan->stages[i].tp : 1; /* the fastest axis */
        int64_t n = mist_replay_work_n_ranks(plan, i, at->work);
        at->first_kind[i] = out->n_programs;
        for (int32_t k = 0; k < n && status == MIST_OK; k++) {
            struct mist_rank *rank = &out->ranks[out->n_ranks++];
            rank->rank = mesh.first_rank + k * step;
            status = classify(at, &mesh, rank);
        }
    }
    at->first_kind[plan->n_stages] = out->n_programs;
    return status;
}

/* -------------------------------------------------------------------------- schedules */

static enum mist_status build_program(struct building *at, int32_t i)
{
    struct mist_rank_program *program = &at->out->programs[i];
    enum mist_status status = mist_schedule_build(at->plan, at->kinds[i].rank,
                                                  at->threads, &program->owned, at->err);

    program->schedule = program->owned;
    return status == MIST_OK ? mist_rank_program_find_lanes(program, at->err) : status;
}

static bool is_over(const struct building *at, const struct mist_rank_program *program)
{
    return at->work->limit_bytes > 0 &&
           program->schedule->arena_bytes[MIST_ARENA_DEVICE] > at->work->limit_bytes;
}

/* One program of each stage; refuses work that takes more memory than there is. */
static enum mist_status build_first(struct building *at)
{
    struct mist_replay_stage_size stages[MIST_MAX_STAGES];
    enum mist_status status = list_ranks(at);

    if (status != MIST_OK)
        return status;
    if (!MIST_CALLOC(at->out->programs, at->out->n_programs))
        return mist_err_memory(at->err, NULL);
    for (int32_t i = 0; i < at->plan->n_stages && status == MIST_OK && !at->out->is_over;
         i++) {
        int32_t first = at->first_kind[i];
        status = build_program(at, first);
        if (status != MIST_OK)
            return status;
        at->out->is_over = is_over(at, &at->out->programs[first]);
        stages[i] = (struct mist_replay_stage_size){
            .schedule = at->out->programs[first].schedule,
            .n_lanes = at->out->programs[first].n_lanes,
            .n_programs = at->first_kind[i + 1] - first,
        };
    }
    if (status != MIST_OK || at->out->is_over)
        return status;
    return mist_replay_size_check(mist_replay_size_bytes(at->plan, stages, at->work),
                                  at->plan, at->work, at->err);
}

/* Whether transfers of the two kinds between two ranks are cut alike. */
static bool is_alike(enum mist_task_kind a, enum mist_task_kind b)
{
    return mist_task_kind_sends(a) == mist_task_kind_sends(b) &&
           (a == MIST_TASK_TIE_GRADIENT) == (b == MIST_TASK_TIE_GRADIENT);
}

/* The rank of the same slice that a lane's peer is of the kind's first rank. */
static int32_t peer_of(const struct building *at, const struct mist_rank *rank,
                       const struct mist_lane *lane)
{
    const struct kind *kind = &at->kinds[rank->program];

    if (lane->group != MIST_GROUP_PEER)
        return -1;
    for (int32_t i = 0, first = 0; i < N_TRANSFERS; first += kind->slices.n[i++])
        for (int32_t k = 0; k < kind->slices.n[i]; k++)
            if (kind->slices.items[first + k].peer == lane->peer &&
                is_alike(transfers[i], lane->kind))
                return at->scratch.items[first + k].peer;
    return -1; /* not reached: a schedule has no other peers */
}

static enum mist_status build(struct building *at)
{
    struct mist_rank_set *out = at->out;
    enum mist_status status = build_first(at);

    if (out->is_over)
        return status;
    for (int32_t i = 0; i < out->n_programs && status == MIST_OK; i++)
        if (!out->programs[i].schedule)
            status = build_program(at, i);
    if (status == MIST_OK)
        status = alloc_peers(out, at->err);
    if (status != MIST_OK)
        return status;
    for (int32_t r = 0; r < out->n_ranks; r++) {
        const struct mist_rank *rank = &out->ranks[r];
        const struct mist_rank_program *program = &out->programs[rank->program];
        list_slices(at->plan, &program->schedule->mesh, rank, &at->scratch);
        for (int32_t k = 0; k < program->n_lanes; k++)
            rank->peer[k] = peer_of(at, rank, &program->lanes[k]);
    }
    return MIST_OK;
}

static void building_fini(struct building *at)
{
    for (int32_t i = 0; at->kinds && i < at->out->n_programs; i++)
        free(at->kinds[i].slices.items);
    free(at->kinds);
    free(at->scratch.items);
}

/* As far as step goes. */
static enum mist_status build_by(enum mist_status (*step)(struct building *),
                                 const struct mist_plan *plan, int32_t threads,
                                 const struct mist_replay_work *work,
                                 struct mist_rank_set *out, struct mist_err *err)
{
    struct building at = {
        .plan = plan,
        .work = work,
        .threads = threads,
        .out = out,
        .err = err,
    };
    enum mist_status status = step(&at);

    building_fini(&at);
    return status;
}

enum mist_status mist_rank_set_build(const struct mist_plan *plan, int32_t threads,
                                     const struct mist_replay_work *work,
                                     struct mist_rank_set *out, struct mist_err *err)
{
    return build_by(build, plan, threads, work, out, err);
}

enum mist_status mist_rank_set_check_memory(const struct mist_plan *plan, int32_t threads,
                                            const struct mist_replay_work *work,
                                            struct mist_err *err)
{
    struct mist_rank_set set = {0};
    enum mist_status status = build_by(build_first, plan, threads, work, &set, err);

    mist_rank_set_fini(&set);
    return status;
}

void mist_rank_set_fini(struct mist_rank_set *ranks)
{
    for (int32_t i = 0; ranks->programs && i < ranks->n_programs; i++) {
        mist_schedule_free(ranks->programs[i].owned);
        free(ranks->programs[i].lanes);
        free(ranks->programs[i].lane);
    }
    for (int32_t i = 0; i < ranks->n_costs; i++)
        free(ranks->costs[i]);
    for (int32_t i = 0; ranks->growths && i < ranks->n_costs; i++)
        free(ranks->growths[i]);
    free(ranks->costs);
    free(ranks->growths);
    free(ranks->programs);
    free(ranks->ranks);
    free(ranks->peers);
    *ranks = (struct mist_rank_set){0};
}
