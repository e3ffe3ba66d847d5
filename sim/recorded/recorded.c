/* Replays of recorded operations. See recorded.h. */
#include "sim/recorded/recorded.h"

#include "sim/recorded/edges.h"

#include <math.h>

/* Clocks of different hosts differ by less; starts before that are mistakes in the graph. */
static const double CLOCKS_S = 10e-3;

/* ------------------------------------------------------------------------------ order */

/* What finding an order needs: who waits for an operation, and for how much it waits. */
struct ordering {
    const struct mist_recorded_job *job;
    int64_t *next_offset, *next;     /* the dependencies, turned around */
    int64_t *n_waits;                /* [n_ops] not yet done */
    int64_t *member_offset, *member; /* of meetings */
    int32_t *n_absent;               /* [n_meetings] members that are not ready yet */
    int64_t *ready;                  /* [n_ops] a stack */
    int64_t n_ready;
};

static bool begin_ordering(struct ordering *at, const struct mist_recorded_job *job,
                           struct mist_arena *arena)
{
    int64_t n_deps = job->dep_offset[job->n_ops];
    size_t n = (size_t)job->n_ops + 1;
    struct mist_recorded_edge *edges =
        mist_arena_alloc(arena, ((size_t)n_deps + n) * sizeof *edges);

    *at = (struct ordering){.job = job};
    if (!edges || !MIST_ARENA_ALLOC(arena, at->n_waits, n) ||
        !MIST_ARENA_ALLOC(arena, at->ready, n) ||
        !MIST_ARENA_ALLOC(arena, at->n_absent, (size_t)job->n_meetings + 1))
        return false;
    for (int64_t i = 0; i < job->n_ops; i++) {
        for (int64_t k = job->dep_offset[i]; k < job->dep_offset[i + 1]; k++) {
            at->n_waits[i] += job->dep[k] >= 0;
            edges[k] = (struct mist_recorded_edge){job->dep[k], i};
        }
    }
    if (!mist_recorded_edges_sort(edges, (size_t)n_deps, job->n_ops, arena,
                                  &at->next_offset, &at->next))
        return false;
    for (int64_t i = 0; i < job->n_ops; i++) {
        edges[i] = (struct mist_recorded_edge){job->ops[i].meeting, i};
        if (edges[i].op >= 0)
            at->n_absent[edges[i].op]++;
    }
    return mist_recorded_edges_sort(edges, (size_t)job->n_ops, job->n_meetings, arena,
                                    &at->member_offset, &at->member);
}

/* Operation i has ended: who waited for nothing else is ready. */
static void release(struct ordering *at, int64_t i)
{
    for (int64_t k = at->next_offset[i]; k < at->next_offset[i + 1]; k++)
        if (--at->n_waits[at->next[k]] == 0)
            at->ready[at->n_ready++] = at->next[k];
}

/* Puts whatever can run into order; how many did. */
static int64_t put_in_order(struct ordering *at, int64_t *order)
{
    int64_t n = 0;

    for (int64_t i = at->job->n_ops - 1; i >= 0; i--)
        if (at->n_waits[i] == 0)
            at->ready[at->n_ready++] = i;
    while (at->n_ready > 0) {
        int64_t i = at->ready[--at->n_ready], first = n;
        int32_t meeting = at->job->ops[i].meeting;
        if (meeting < 0)
            order[n++] = i;
        else if (--at->n_absent[meeting] == 0)
            for (int64_t k = at->member_offset[meeting];
                 k < at->member_offset[meeting + 1]; k++)
                order[n++] = at->member[k];
        for (int64_t k = first; k < n; k++)
            release(at, order[k]);
    }
    return n;
}

static enum mist_status fail_ring(const struct ordering *at, struct mist_err *err)
{
    int64_t i = 0;

    /* what waits, or is ready and waits for others to meet */
    while (at->n_waits[i] == 0 &&
           (at->job->ops[i].meeting < 0 || at->n_absent[at->job->ops[i].meeting] == 0))
        i++;
    const struct mist_recorded_op *op = &at->job->ops[i];
    return mist_err_set(err, MIST_ERR_INPUT,
                        "operations wait for one another in a ring, %s of replica %d, "
                        "stage %d in step %lld among them",
                        at->job->kinds[op->kind].name, op->replica, op->stage,
                        (long long)at->job->step);
}

/* ----------------------------------------------------------------------------- replay */

double mist_recorded_ready_s(const struct mist_recorded_job *job, int64_t i,
                             const struct mist_recorded_times *times)
{
    double latest_s = 0;

    for (int64_t k = job->dep_offset[i]; k < job->dep_offset[i + 1]; k++) {
        int64_t dep = job->dep[k];
        latest_s =
            fmax(latest_s, dep >= 0 ? times->end_s[dep] : times->before_s[-1 - dep]);
    }
    return latest_s;
}

/* Behind the last of those who meet order[first], or of it alone. */
static int64_t behind_meeting(const struct mist_recorded_job *job, int64_t first)
{
    int32_t meeting = job->ops[job->order[first]].meeting;
    int64_t i = first + 1;

    while (meeting >= 0 && i < job->n_ops && job->ops[job->order[i]].meeting == meeting)
        i++;
    return i;
}

static double latest_s(const struct mist_recorded_job *job, int64_t first, int64_t behind,
                       const double *start_s)
{
    double latest = start_s[job->order[first]];

    for (int64_t k = first + 1; k < behind; k++)
        latest = fmax(latest, start_s[job->order[k]]);
    return latest;
}

/* Gaps and work, from the times as they were recorded. */
static void explain(struct mist_recorded_job *job)
{
    const struct mist_recorded_times *times = &job->recorded;

    for (int64_t i = 0, behind; i < job->n_ops; i = behind) {
        behind = behind_meeting(job, i);
        double all_there_s = latest_s(job, i, behind, times->start_s);
        for (int64_t k = i; k < behind; k++) {
            int64_t op = job->order[k];
            struct mist_recorded_kind *kind = &job->kinds[job->ops[op].kind];
            double gap_s = times->start_s[op] - mist_recorded_ready_s(job, op, times);
            double work_s = times->end_s[op] - all_there_s;
            job->n_contradictions += gap_s <= -CLOCKS_S || work_s <= -CLOCKS_S;
            job->gap_s[op] = gap_s <= -CLOCKS_S ? 0 : gap_s;
            job->work_s[op] = work_s <= -CLOCKS_S ? 0 : work_s;
            kind->n++;
            kind->work_s += job->work_s[op];
        }
    }
}

void mist_recorded_replay(const struct mist_recorded_job *job, const double *gap_s,
                          const double *work_s, struct mist_recorded_times *times)
{
    for (int64_t i = 0, behind; i < job->n_ops; i = behind) {
        behind = behind_meeting(job, i);
        for (int64_t k = i; k < behind; k++) {
            int64_t op = job->order[k];
            times->start_s[op] =
                mist_recorded_ready_s(job, op, times) + (gap_s ? gap_s[op] : 0);
        }
        double all_there_s = latest_s(job, i, behind, times->start_s);
        for (int64_t k = i; k < behind; k++)
            times->end_s[job->order[k]] = all_there_s + work_s[job->order[k]];
    }
}

void mist_recorded_go_on(const struct mist_recorded_job *job,
                         struct mist_recorded_times *times)
{
    for (int32_t lane = 0; lane < job->n_lanes; lane++)
        if (job->lane_last[lane] >= 0)
            times->before_s[lane] = times->end_s[job->lane_last[lane]];
}

double mist_recorded_span_s(const struct mist_recorded_job *job,
                            const struct mist_recorded_times *times)
{
    double first_s = INFINITY, last_s = -INFINITY;

    for (int64_t i = 0; i < job->n_ops; i++) {
        first_s = fmin(first_s, times->start_s[i]);
        last_s = fmax(last_s, times->end_s[i]);
    }
    return last_s - first_s;
}

bool mist_recorded_times_alloc(const struct mist_recorded_job *job,
                               struct mist_arena *arena,
                               struct mist_recorded_times *times)
{
    size_t size = (size_t)job->n_ops * sizeof(double);

    times->start_s = mist_arena_alloc(arena, size);
    times->end_s = mist_arena_alloc(arena, size);
    times->before_s = NULL;
    return times->start_s && times->end_s;
}

bool mist_recorded_job_alloc(struct mist_recorded_job *job, struct mist_arena *arena)
{
    return MIST_ARENA_ALLOC(arena, job->kinds, job->n_kinds) &&
           MIST_ARENA_ALLOC(arena, job->ops, job->n_ops) &&
           mist_recorded_times_alloc(job, arena, &job->recorded);
}

enum mist_status mist_recorded_prepare(struct mist_recorded_job *job,
                                       struct mist_arena *arena, struct mist_err *err)
{
    struct ordering ordering;
    struct mist_arena scratch;
    size_t n = (size_t)job->n_ops + 1;
    enum mist_status status = MIST_OK;

    mist_arena_init(&scratch);
    if (!MIST_ARENA_ALLOC(arena, job->order, n) ||
        !MIST_ARENA_ALLOC(arena, job->gap_s, n) ||
        !MIST_ARENA_ALLOC(arena, job->work_s, n) ||
        !begin_ordering(&ordering, job, &scratch))
        status = mist_err_memory(err, NULL);
    else if (put_in_order(&ordering, job->order) < job->n_ops)
        status = fail_ring(&ordering, err);
    else
        explain(job);
    mist_arena_fini(&scratch);
    return status;
}
