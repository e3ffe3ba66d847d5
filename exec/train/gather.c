/*
 * Brings what the ranks measured to rank 0. See gather.h.
 *
 * A rank that waits in a transfer has begun it, but the transfer begins when the last of
 * its members is there: in the timeline the members of one transfer or collective get the
 * latest of their starts, which is also what the simulator means by start. The ranks of
 * one machine share a clock.
 */
#include "exec/train/gather.h"

#include "core/order.h"
#include "core/random.h"
#include "core/statistics.h"
#include "sim/schedule/memory_planner.h" /* live bytes */

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* A measured task with what identifies the transfer or collective it is part of. */
struct measured {
    struct mist_timeline_row row;
    int32_t group;
    int32_t first_rank, second_rank; /* first_rank: of the pair or the group */
    int32_t tag;
};

/* ------------------------------------------------------------------------- iterations */

/* iteration_s[i] = end of kept iteration i on the last rank - the same of i - 1, or when the
 * first rank began it after a pause, as it does the first. */
static enum mist_status gather_iterations(struct mist_comm *comm,
                                          const struct mist_runtime *runtime,
                                          const double *begin_s,
                                          struct mist_train_report *report,
                                          struct mist_err *err)
{
    int32_t n = report->n_kept, first = report->n_iterations - n;
    double start_s, end_s;

    if (n == 0)
        return MIST_OK;
    double *ends = calloc((size_t)n, 2 * sizeof *ends);
    if (!ends)
        return mist_err_memory(err, NULL);
    double *begins = ends + n;
    for (int32_t i = 0; i < n; i++) {
        mist_runtime_span(runtime, first + i, &start_s, &ends[i]);
        begins[i] = begin_s[(first + i) % n];
    }
    mist_runtime_span(runtime, first, &begins[0], &end_s);
    enum mist_status status = mist_comm_all_reduce_f64(comm, MIST_COMM_MAX, ends, n, err);
    if (status == MIST_OK)
        status = mist_comm_all_reduce_f64(comm, MIST_COMM_MIN, begins, n, err);
    if (status == MIST_OK) {
        for (int32_t i = 0; i < n; i++)
            report->iteration_s[i] = ends[i] - (begins[i] > 0 ? begins[i] : ends[i - 1]);
        int32_t n_skipped = mist_train_n_warm(n);
        memcpy(ends, report->iteration_s + n_skipped,
               (size_t)(n - n_skipped) * sizeof *ends);
        report->steady_s = mist_estimate_make(ends, (size_t)(n - n_skipped)).mean;
    }
    free(ends);
    return status;
}

/* ----------------------------------------------------------------------------- memory */

struct mist_train_memory mist_gather_memory(const struct mist_schedule *schedule,
                                            struct mist_device *device)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (struct mist_train_memory){
        .planned_bytes = schedule->arena_bytes[MIST_ARENA_DEVICE],
        .allocated_bytes = mist_device_arena_bytes(device, MIST_ARENA_DEVICE),
        .resident_bytes = (int64_t)usage.ru_maxrss * 1024,
        .used_bytes = mist_device_used_bytes(device),
    };
}

/* ------------------------------------------------------------------------- parameters */

/* The fingerprint so far, and how many threads may work on it. */
struct fingerprint {
    uint64_t sum;
    int n_threads;
};

/* Adds up what every element says of itself, so that neither order nor place matters. */
static enum mist_status add_elements(void *context, const struct mist_state_piece *piece,
                                     const void *data, struct mist_err *err)
{
    struct fingerprint *at = context;
    const struct mist_param_span *span = &piece->span;
    uint64_t stream = (uint64_t)piece->layer * MIST_MAX_PARAMS + (uint64_t)piece->i_param;
    const uint32_t *bits = data;
    uint64_t sum = 0;

    (void)err;
#pragma omp parallel for num_threads(at->n_threads) schedule(static) reduction(+ : sum)
    for (int64_t i = 0; i < span->n_runs * span->length; i++) {
        int64_t run = i / span->length;
        sum += mist_random_at(bits[i], stream,
                              (uint64_t)(span->global_first + run * span->global_stride +
                                         i % span->length));
    }
    at->sum += sum;
    return MIST_OK;
}

/* Every element of every parameter counts once, on the rank that it belongs to. */
static enum mist_status gather_parameters(struct mist_comm *comm,
                                          const struct mist_runtime *runtime,
                                          int32_t n_processors,
                                          struct mist_train_report *report,
                                          struct mist_err *err)
{
    const struct mist_state_choice all_weights = {.kind = MIST_STATE_WEIGHT,
                                                  .is_owned_only = true};
    struct fingerprint mine = {.n_threads = n_processors > 1 ? n_processors : 1};
    char *all = NULL;
    enum mist_status status =
        mist_runtime_read_state(runtime, &all_weights, add_elements, &mine, err);
    if (status == MIST_OK)
        status =
            mist_comm_gather_bytes(comm, &mine.sum, sizeof mine.sum, &all, NULL, err);
    report->parameters_fingerprint = 0;
    for (int32_t i = 0; all && i < report->n_ranks; i++) {
        uint64_t theirs;
        memcpy(&theirs, all + (size_t)i * sizeof theirs, sizeof theirs);
        report->parameters_fingerprint += theirs;
    }
    free(all);
    return status;
}

/* --------------------------------------------------------------------------- timeline */

static struct measured measure(const struct mist_schedule *schedule,
                               const struct mist_timeline_row *row)
{
    const struct mist_task *task = &schedule->tasks[row->task];
    struct measured at = {*row, (int32_t)task->group, -1, -1, task->tag};

    if (task->group == MIST_GROUP_PEER) {
        bool is_low = schedule->rank < task->peer;
        at.first_rank = is_low ? schedule->rank : task->peer;
        at.second_rank = is_low ? task->peer : schedule->rank;
    } else if (task->group != MIST_GROUP_NONE) {
        at.first_rank =
            mist_rank_mesh_member(&schedule->mesh, task->group, schedule->rank, 0);
    }
    return at;
}

/* Members of one transfer or collective stand together. */
MIST_COMPARATOR(compare_measured, struct measured, row.iteration, group, first_rank,
                second_rank, tag, row.rank, row.task)

static bool are_together(const struct measured *a, const struct measured *b)
{
    return a->row.iteration == b->row.iteration && a->group == b->group &&
           a->first_rank == b->first_rank && a->second_rank == b->second_rank &&
           a->tag == b->tag;
}

/*
 * The members of each transfer start when the last of them is there (but end no earlier).
 */
static void align_starts(struct measured *at, int64_t n)
{
    for (int64_t i = 0, end; i < n; i = end) {
        double latest_s = at[i].row.start_s;
        for (end = i + 1; end < n && are_together(&at[i], &at[end]); end++)
            latest_s = at[end].row.start_s > latest_s ? at[end].row.start_s : latest_s;
        if (at[i].group == MIST_GROUP_NONE)
            end = i + 1;
        else
            for (int64_t k = i; k < end; k++)
                at[k].row.start_s =
                    latest_s < at[k].row.end_s ? latest_s : at[k].row.end_s;
    }
}

MIST_COMPARATOR(compare_rows, struct measured, row.iteration, row.rank, row.task)

/* All ranks' tasks, starts aligned, time 0 at the earliest start. */
static enum mist_status merge(struct measured *at, int64_t n, struct mist_timeline *out,
                              struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    if (n == 0)
        return MIST_OK;
    qsort(at, (size_t)n, sizeof *at, compare_measured);
    align_starts(at, n);
    qsort(at, (size_t)n, sizeof *at, compare_rows);
    double origin_s = at[0].row.start_s;
    for (int64_t i = 1; i < n; i++)
        origin_s = at[i].row.start_s < origin_s ? at[i].row.start_s : origin_s;
    for (int64_t i = 0; i < n && status == MIST_OK; i++) {
        at[i].row.start_s -= origin_s;
        at[i].row.end_s -= origin_s;
        status = mist_timeline_add(out, &at[i].row, err);
    }
    return status;
}

static enum mist_status
gather_timeline(struct mist_comm *comm, const struct mist_train_job *job,
                const struct mist_schedule *schedule, const struct mist_runtime *runtime,
                struct mist_train_report *report, struct mist_err *err)
{
    struct mist_timeline mine;
    struct measured *sent = NULL;
    char *all = NULL;
    int64_t *live = calloc((size_t)schedule->n_tasks + 1, sizeof *live);
    int64_t *sizes = calloc((size_t)report->n_ranks, sizeof *sizes);

    mist_timeline_init(&mine);
    enum mist_status status = mist_err_memory(err, NULL);
    if (!live || !sizes)
        goto out;
    mist_memory_live(schedule, MIST_ARENA_DEVICE, live);
    mist_runtime_losses(runtime, report->losses);
    if (job->config.n_timed_iterations >
        0) /* what one rank has not, the timeline has not */
        status = mist_comm_all_reduce_i64(comm, MIST_COMM_MAX, report->losses,
                                          job->config.n_timed_iterations, err);
    else
        status = MIST_OK;
    if (status == MIST_OK)
        status = mist_runtime_timeline(runtime, report->losses, live, &mine, err);
    if (status == MIST_OK && job->times_operators)
        status = mist_op_table_gather(&report->ops, comm, err);
    if (status != MIST_OK)
        goto out;
    sent = calloc(mine.n_rows + 1, sizeof *sent);
    if (!sent) {
        status = mist_err_memory(err, NULL);
        goto out;
    }
    for (size_t i = 0; i < mine.n_rows; i++)
        sent[i] = measure(schedule, &mine.rows[i]);
    status = mist_comm_gather_bytes(comm, sent, (int64_t)(mine.n_rows * sizeof *sent),
                                    &all, sizes, err);
    if (status == MIST_OK && all) {
        int64_t n_bytes = 0;
        for (int32_t i = 0; i < report->n_ranks; i++)
            n_bytes += sizes[i];
        status =
            merge((struct measured *)(void *)all,
                  n_bytes / (int64_t)sizeof(struct measured), &report->timeline, err);
    }
out:
    mist_timeline_fini(&mine);
    free(sent);
    free(all);
    free(live);
    free(sizes);
    return status;
}

enum mist_status mist_gather_report(struct mist_comm *comm,
                                    const struct mist_train_job *job,
                                    const struct mist_schedule *schedule,
                                    const struct mist_runtime *runtime,
                                    const double *begin_s, struct mist_device *device,
                                    struct mist_train_report *report,
                                    struct mist_err *err)
{
    enum mist_status status = gather_iterations(comm, runtime, begin_s, report, err);

    struct mist_train_memory memory = mist_gather_memory(schedule, device);

    if (status == MIST_OK)
        status = mist_comm_share_bytes(comm, &memory, sizeof memory, report->memory, err);
    if (status == MIST_OK)
        status = gather_parameters(comm, runtime, job->config.n_processors, report, err);
    if (status == MIST_OK)
        status = gather_timeline(comm, job, schedule, runtime, report, err);
    return status;
}
