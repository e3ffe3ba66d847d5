/* Costs of recorded jobs. See recorded_costs.h. */
#include "sim/recorded/recorded_costs.h"

#include "sim/recorded/recorded_study.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double LATE_S = 50e-6; /* launches take a tenth */

static const struct mist_recorded_span none = {INFINITY, -INFINITY};

/* A part, and the arrays of one replay of it. */
struct adding {
    struct mist_recorded_costs *costs;
    struct mist_recorded_job *job;
    double *work_s;
    struct mist_recorded_times times;
};

static void include(struct mist_recorded_span *span, double start_s, double end_s)
{
    span->first_s = fmin(span->first_s, start_s);
    span->last_s = fmax(span->last_s, end_s);
}

static double length_s(const struct mist_recorded_span *span)
{
    return span->last_s - span->first_s;
}

/* From the first start to the last end of all, and of each rank. */
static void find_spans(struct adding *at, bool is_replayed)
{
    const struct mist_recorded_job *job = at->job;
    const struct mist_recorded_times *times = is_replayed ? &at->times : &job->recorded;

    for (int64_t i = 0; i < job->n_ops; i++) {
        struct mist_recorded_rank *rank = &at->costs->ranks[job->ops[i].replica];
        include(is_replayed ? &rank->replayed : &rank->recorded, times->start_s[i],
                times->end_s[i]);
        if (!is_replayed)
            include(&at->costs->recorded, times->start_s[i], times->end_s[i]);
    }
}

/* Who came last to each message, and how long the others waited. */
static bool find_waiting(const struct adding *at)
{
    const struct mist_recorded_job *job = at->job;
    const double *start_s = job->recorded.start_s;
    size_t n = (size_t)job->n_meetings + 1;
    int64_t *last = malloc(n * sizeof *last);

    if (!last)
        return false;
    for (size_t k = 0; k < n; k++)
        last[k] = -1;
    for (int64_t i = 0; i < job->n_ops; i++) {
        int32_t meeting = job->ops[i].meeting;
        if (meeting >= 0 && (last[meeting] < 0 || start_s[i] > start_s[last[meeting]]))
            last[meeting] = i;
    }
    for (int64_t i = 0; i < job->n_ops; i++)
        if (job->ops[i].meeting >= 0) {
            int64_t i_last = last[job->ops[i].meeting];
            struct mist_recorded_rank *rank = &at->costs->ranks[job->ops[i].replica];
            rank->waiting_s += start_s[i_last] - start_s[i];
            rank->n_last += i_last == i;
        }
    free(last);
    return true;
}

static void add_up(const struct adding *at)
{
    const struct mist_recorded_job *job = at->job;
    struct mist_recorded_costs *costs = at->costs;

    costs->n_ops += job->n_ops;
    costs->n_meetings += job->n_meetings;
    costs->n_contradictions += job->n_contradictions;
    costs->n_unlaunched += job->n_unlaunched;
    costs->n_unmatched += job->n_unmatched;
    costs->clock_shift_s = fmax(costs->clock_shift_s, job->clock_shift_s);
    for (int64_t i = 0; i < job->n_ops; i++) {
        enum mist_recorded_sort sort = job->kinds[job->ops[i].kind].sort;
        costs->ranks[job->ops[i].replica].n_ops++;
        if (sort == MIST_RECORDED_COMPUTATION)
            costs->ranks[job->ops[i].replica].computing_s += job->work_s[i];
        if (sort != MIST_RECORDED_CALL && job->gap_s[i] >= LATE_S) {
            costs->n_late++;
            costs->late_s += job->gap_s[i];
        }
    }
}

/* One of the replays goes on. */
static void replay(struct adding *at, const double *gap_s, const double *work_s,
                   struct mist_recorded_replayed *to)
{
    const struct mist_recorded_job *job = at->job;

    at->times.before_s = to->before_s;
    mist_recorded_replay(job, gap_s, work_s, &at->times);
    mist_recorded_go_on(job, &at->times);
    for (int64_t i = 0; i < job->n_ops; i++)
        include(&to->span, at->times.start_s[i], at->times.end_s[i]);
}

/* With operations of a kind (-1: all calls, and gaps) that take no time. */
static void replay_without(struct adding *at, int32_t kind,
                           struct mist_recorded_replayed *to)
{
    const struct mist_recorded_job *job = at->job;

    for (int64_t i = 0; i < job->n_ops; i++) {
        bool is_meant = kind < 0 ? job->kinds[job->ops[i].kind].sort == MIST_RECORDED_CALL
                                 : job->ops[i].kind == kind;
        at->work_s[i] = is_meant ? 0 : job->work_s[i];
    }
    replay(at, kind < 0 ? NULL : job->gap_s, at->work_s, to);
}

/* Until there is an operation of a kind, without it is unchanged. */
static void add_kinds(struct adding *at)
{
    struct mist_recorded_costs *costs = at->costs;
    size_t n_bytes = (size_t)costs->n_lanes * sizeof(double);

    for (int32_t i = 0; i < costs->n_kinds; i++) {
        const struct mist_recorded_kind *kind = &at->job->kinds[i];
        struct mist_recorded_replayed *to = &costs->without_kind[i];
        if (costs->kinds[i].n == 0) {
            to->span = costs->unchanged.span;
            if (n_bytes > 0)
                memcpy(to->before_s, costs->unchanged.before_s, n_bytes);
        }
        costs->kinds[i].name = kind->name;
        costs->kinds[i].sort = kind->sort;
        costs->kinds[i].n += kind->n;
        costs->kinds[i].work_s += kind->work_s;
        if (costs->kinds[i].n > 0)
            replay_without(at, i, to);
    }
}

static enum mist_status add_edited(struct adding *at, struct mist_err *err)
{
    struct mist_recorded_costs *costs = at->costs;
    struct mist_recorded_job *job = at->job;

    for (int i = 0; i < costs->n_edits; i++) {
        enum mist_status status =
            mist_recorded_edit(job, costs->edits[i], &costs->n_edited[i], err);
        if (status != MIST_OK)
            return status;
    }
    if (costs->n_edits > 0)
        replay(at, job->gap_s, job->work_s, &costs->edited);
    return MIST_OK;
}

enum mist_status mist_recorded_costs_add(struct mist_recorded_costs *costs,
                                         struct mist_recorded_job *job,
                                         struct mist_err *err)
{
    struct adding at = {.costs = costs, .job = job};
    struct mist_arena arena;
    enum mist_status status = MIST_ERR_MEMORY;

    mist_arena_init(&arena);
    at.work_s = mist_arena_alloc(&arena, (size_t)job->n_ops * sizeof *at.work_s);
    if (at.work_s && mist_recorded_times_alloc(job, &arena, &at.times) &&
        find_waiting(&at)) {
        add_up(&at);
        find_spans(&at, false);
        add_kinds(&at);
        replay_without(&at, -1, &costs->without_launch);
        replay(&at, job->gap_s, job->work_s, &costs->unchanged);
        find_spans(&at, true);
        status = add_edited(&at, err);
    } else {
        mist_err_memory(err, NULL);
    }
    mist_arena_fini(&arena);
    return status;
}

static bool alloc_replayed(struct mist_recorded_replayed *out, int32_t n_lanes,
                           struct mist_arena *arena)
{
    *out = (struct mist_recorded_replayed){
        none, mist_arena_alloc(arena, (size_t)n_lanes * sizeof(double))};
    return out->before_s;
}

enum mist_status mist_recorded_costs_begin(struct mist_recorded_costs *costs,
                                           const struct mist_recorded_job *job,
                                           const char *const *edits, int n_edits,
                                           struct mist_arena *arena, struct mist_err *err)
{
    int32_t n_lanes = job->n_lanes;
    size_t n_replicas = (size_t)job->n_replicas, n_kinds = (size_t)job->n_kinds;

    assert(n_edits <= MIST_OPTION_LIST_MAX);
    *costs = (struct mist_recorded_costs){
        .n_replicas = job->n_replicas,
        .n_kinds = job->n_kinds,
        .n_lanes = n_lanes,
        .ranks = mist_arena_alloc(arena, n_replicas * sizeof *costs->ranks),
        .kinds = mist_arena_alloc(arena, n_kinds * sizeof *costs->kinds),
        .without_kind_s =
            mist_arena_alloc(arena, n_kinds * sizeof *costs->without_kind_s),
        .without_kind = mist_arena_alloc(arena, n_kinds * sizeof *costs->without_kind),
        .edits = edits,
        .n_edits = n_edits,
        .recorded = none};
    bool is_done = costs->ranks && costs->kinds && costs->without_kind_s &&
                   costs->without_kind &&
                   alloc_replayed(&costs->unchanged, n_lanes, arena) &&
                   alloc_replayed(&costs->without_launch, n_lanes, arena) &&
                   alloc_replayed(&costs->edited, n_lanes, arena);
    for (size_t i = 0; i < n_kinds && is_done; i++)
        is_done = alloc_replayed(&costs->without_kind[i], n_lanes, arena);
    for (size_t r = 0; r < n_replicas && is_done; r++)
        costs->ranks[r].recorded = costs->ranks[r].replayed = none;
    return is_done ? MIST_OK : mist_err_memory(err, NULL);
}

enum mist_status mist_recorded_costs_end(struct mist_recorded_costs *costs,
                                         struct mist_err *err)
{
    costs->recorded_s = length_s(&costs->recorded);
    costs->replayed_s = length_s(&costs->unchanged.span);
    costs->without_launch_s = length_s(&costs->without_launch.span);
    costs->edited_s = length_s(&costs->edited.span);
    for (int32_t i = 0; i < costs->n_kinds; i++)
        costs->without_kind_s[i] = costs->kinds[i].n > 0
                                       ? length_s(&costs->without_kind[i].span)
                                       : costs->replayed_s;
    for (int32_t r = 0; r < costs->n_replicas; r++) {
        struct mist_recorded_rank *rank = &costs->ranks[r];
        if (rank->n_ops == 0)
            continue;
        rank->recorded_s = length_s(&rank->recorded);
        rank->replayed_s = length_s(&rank->replayed);
        if (rank->recorded_s > 0)
            costs->worst_frac =
                fmax(costs->worst_frac, fabs(rank->replayed_s / rank->recorded_s - 1));
    }
    for (int i = 0; i < costs->n_edits; i++) {
        enum mist_status status = mist_recorded_check_edit(
            costs->edits[i], costs->n_edited[i], costs->n_replicas, err);
        if (status != MIST_OK)
            return status;
    }
    return MIST_OK;
}
