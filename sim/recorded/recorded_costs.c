/* Costs of recorded jobs. See recorded_costs.h. */
#include "sim/recorded/recorded_costs.h"

#include <math.h>
#include <stdlib.h>

static const double LATE_S = 50e-6; /* launches take a tenth */

struct finding {
    const struct mist_recorded_job *job;
    struct mist_recorded_costs *out;
    double *work_s; /* of one replay, as the times */
    struct mist_recorded_times times;
};

/* From the first start to the last end of each rank, whose operations lie side by side. */
static void find_spans(const struct finding *at, const struct mist_recorded_times *times,
                       bool is_replayed)
{
    const struct mist_recorded_job *job = at->job;

    for (int64_t i = 0; i < job->n_ops;) {
        struct mist_recorded_rank *rank = &at->out->ranks[job->ops[i].replica];
        double first_s = INFINITY, last_s = -INFINITY;
        for (int32_t r = job->ops[i].replica; i < job->n_ops && job->ops[i].replica == r;
             i++) {
            first_s = fmin(first_s, times->start_s[i]);
            last_s = fmax(last_s, times->end_s[i]);
        }
        *(is_replayed ? &rank->replayed_s : &rank->recorded_s) = last_s - first_s;
    }
}

/* Who came last to each message, and how long the others waited. */
static bool find_waiting(const struct finding *at)
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
            struct mist_recorded_rank *rank = &at->out->ranks[job->ops[i].replica];
            rank->waiting_s += start_s[i_last] - start_s[i];
            rank->n_last += i_last == i;
        }
    free(last);
    return true;
}

static void add_up(const struct finding *at)
{
    const struct mist_recorded_job *job = at->job;

    for (int64_t i = 0; i < job->n_ops; i++) {
        enum mist_recorded_sort sort = job->kinds[job->ops[i].kind].sort;
        at->out->ranks[job->ops[i].replica].n_ops++;
        if (sort == MIST_RECORDED_COMPUTATION)
            at->out->ranks[job->ops[i].replica].computing_s += job->work_s[i];
        if (sort != MIST_RECORDED_CALL && job->gap_s[i] >= LATE_S) {
            at->out->n_late++;
            at->out->late_s += job->gap_s[i];
        }
    }
}

/* The job where the operations of a kind (-1: all calls, and gaps) take no time. */
static double without_s(struct finding *at, int32_t kind)
{
    const struct mist_recorded_job *job = at->job;

    for (int64_t i = 0; i < job->n_ops; i++) {
        bool is_meant = kind < 0 ? job->kinds[job->ops[i].kind].sort == MIST_RECORDED_CALL
                                 : job->ops[i].kind == kind;
        at->work_s[i] = is_meant ? 0 : job->work_s[i];
    }
    mist_recorded_replay(job, kind < 0 ? NULL : job->gap_s, at->work_s, &at->times);
    return mist_recorded_span_s(job, &at->times);
}

static bool find(struct finding *at)
{
    const struct mist_recorded_job *job = at->job;
    struct mist_recorded_costs *out = at->out;

    out->recorded_s = mist_recorded_span_s(job, &job->recorded);
    mist_recorded_replay(job, job->gap_s, job->work_s, &at->times);
    out->replayed_s = mist_recorded_span_s(job, &at->times);
    find_spans(at, &job->recorded, false);
    find_spans(at, &at->times, true);
    for (int32_t r = 0; r < job->n_replicas; r++)
        if (out->ranks[r].recorded_s > 0)
            out->worst_frac =
                fmax(out->worst_frac,
                     fabs(out->ranks[r].replayed_s / out->ranks[r].recorded_s - 1));
    add_up(at);
    out->without_launch_s = without_s(at, -1);
    for (int32_t kind = 0; kind < job->n_kinds; kind++)
        out->without_kind_s[kind] =
            job->kinds[kind].n > 0 ? without_s(at, kind) : out->replayed_s;
    return find_waiting(at);
}

enum mist_status mist_recorded_find_costs(const struct mist_recorded_job *job,
                                          struct mist_recorded_costs *out,
                                          struct mist_arena *arena, struct mist_err *err)
{
    struct finding at = {.job = job, .out = out};

    *out = (struct mist_recorded_costs){0};
    out->ranks = mist_arena_alloc(arena, (size_t)job->n_replicas * sizeof *out->ranks);
    out->without_kind_s =
        mist_arena_alloc(arena, (size_t)job->n_kinds * sizeof *out->without_kind_s);
    at.work_s = mist_arena_alloc(arena, (size_t)job->n_ops * sizeof *at.work_s);
    if (!out->ranks || !out->without_kind_s || !at.work_s ||
        !mist_recorded_times_alloc(job, arena, &at.times) || !find(&at))
        return mist_err_memory(err, NULL);
    return MIST_OK;
}
