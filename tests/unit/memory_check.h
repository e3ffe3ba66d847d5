/*
 * Proves the layout of a schedule's buffers right, or names the first fault.
 *
 * It shares nothing with the planner: uses are read from the tasks again, every pair of
 * buffers is compared, and "happens before" is the transitive closure of stream order and
 * dependencies. As a stream's tasks are ordered, what happens before a task on a stream
 * is a beginning of that stream, so one task number per (task, stream) is the whole
 * closure.
 */
#ifndef MIST_TESTS_MEMORY_CHECK_H
#define MIST_TESTS_MEMORY_CHECK_H

#include "sim/schedule/memory_planner.h"

#include <stdlib.h>
#include <string.h>

struct memory_checker {
    const struct mist_schedule *schedule;
    /* [n_tasks] last task of each stream that has ended when the task starts; the task
     * itself on its own stream; -1 none */
    int32_t (*before)[MIST_N_STREAMS];
    int32_t (*last_use)[MIST_N_STREAMS]; /* [n_buffers] last user on each stream; -1 */
    int32_t *first_use;                  /* [n_buffers] -1: nobody names it */
    struct mist_err *err;
};

static inline enum mist_status memory_fault(const struct memory_checker *at,
                                            int32_t buffer, const char *what)
{
    const struct mist_buffer *of = &at->schedule->buffers[buffer];

    return mist_err_set(at->err, MIST_ERR_VERIFY,
                        "rank %d: buffer %d (role %d, layer %d, micro-batch %d) %s",
                        (int)at->schedule->rank, (int)buffer, (int)of->role,
                        (int)of->layer, (int)of->micro_batch, what);
}

static inline enum mist_status memory_pair_fault(const struct memory_checker *at,
                                                 int32_t a, int32_t b, const char *what)
{
    const struct mist_buffer *buffers = at->schedule->buffers;

    return mist_err_set(
        at->err, MIST_ERR_VERIFY,
        "rank %d: buffers %d (tasks %d..%d) and %d (tasks %d..%d) share bytes and %s",
        (int)at->schedule->rank, (int)a, (int)buffers[a].first_task,
        (int)buffers[a].last_task, (int)b, (int)buffers[b].first_task,
        (int)buffers[b].last_task, what);
}

/* ---------------------------------------------------------------------------- closure */

static inline enum mist_status memory_check_deps(const struct memory_checker *at,
                                                 int32_t i_task)
{
    const struct mist_schedule *schedule = at->schedule;
    const struct mist_task *task = &schedule->tasks[i_task];
    bool is_inside = task->n_deps >= 0 && task->dep_first >= 0 &&
                     task->dep_first <= schedule->n_deps - task->n_deps;

    for (int32_t k = 0; is_inside && k < task->n_deps; k++)
        is_inside = schedule->deps[task->dep_first + k] >= 0 &&
                    schedule->deps[task->dep_first + k] < i_task;
    if (is_inside)
        return MIST_OK;
    return mist_err_set(at->err, MIST_ERR_VERIFY,
                        "rank %d: task %d has a dependency that is no earlier task",
                        (int)schedule->rank, (int)i_task);
}

static inline void memory_join(int32_t into[MIST_N_STREAMS],
                               const int32_t other[MIST_N_STREAMS])
{
    for (int k = 0; k < MIST_N_STREAMS; k++)
        into[k] = other[k] > into[k] ? other[k] : into[k];
}

static inline enum mist_status memory_close_order(struct memory_checker *at)
{
    const struct mist_schedule *schedule = at->schedule;
    int32_t newest[MIST_N_STREAMS]; /* task so far on each stream */

    memset(newest, -1, sizeof newest);
    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        enum mist_status status = memory_check_deps(at, i);
        if (status != MIST_OK)
            return status;
        memset(at->before[i], -1, sizeof at->before[i]);
        if (newest[task->stream] >= 0)
            memory_join(at->before[i], at->before[newest[task->stream]]);
        for (int32_t k = 0; k < task->n_deps; k++)
            memory_join(at->before[i], at->before[schedule->deps[task->dep_first + k]]);
        at->before[i][task->stream] = newest[task->stream] = i;
    }
    return MIST_OK;
}

/* Whether task a has ended when task b starts (or is b itself). */
static inline bool memory_is_before(const struct memory_checker *at, int32_t a, int32_t b)
{
    return at->before[b][at->schedule->tasks[a].stream] >= a;
}

/* ------------------------------------------------------------------------------- uses */

/* Reads the uses; every use but the first must come after the first. */
static inline enum mist_status memory_read_uses(struct memory_checker *at)
{
    const struct mist_schedule *schedule = at->schedule;

    for (int32_t i = 0; i < schedule->n_buffers; i++) {
        memset(at->last_use[i], -1, sizeof at->last_use[i]);
        at->first_use[i] = -1;
    }
    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        for (int k = 0; k < MIST_N_ROLES; k++) {
            int32_t buffer = schedule->tasks[i].buffers[k];
            if (buffer < 0)
                continue;
            if (buffer >= schedule->n_buffers)
                return mist_err_set(
                    at->err, MIST_ERR_VERIFY, "rank %d: task %d names buffer %d of %d",
                    (int)schedule->rank, (int)i, (int)buffer, (int)schedule->n_buffers);
            if (at->first_use[buffer] < 0)
                at->first_use[buffer] = i;
            if (!schedule->buffers[buffer].is_persistent &&
                !memory_is_before(at, at->first_use[buffer], i))
                return memory_fault(at, buffer,
                                    "is used by a task not ordered after its first");
            at->last_use[buffer][schedule->tasks[i].stream] = i;
        }
    }
    return MIST_OK;
}

/*
 * The buffer by itself: inside its arena, aligned, and its lifetime is that of its uses.
 */
static inline enum mist_status memory_check_buffer(const struct memory_checker *at,
                                                   int32_t i)
{
    const struct mist_schedule *schedule = at->schedule;
    const struct mist_buffer *buffer = &schedule->buffers[i];
    int32_t first = at->first_use[i], last = -1;

    if (at->first_use[i] < 0)
        return memory_fault(at, i, "is used by no task");
    if ((unsigned)buffer->arena >= MIST_N_ARENAS)
        return memory_fault(at, i, "is in no arena");
    if (buffer->size_bytes < 1 || buffer->offset_bytes < 0 ||
        buffer->offset_bytes % 256 != 0)
        return memory_fault(at, i, "is empty or not aligned");
    if (buffer->size_bytes > schedule->arena_bytes[buffer->arena] ||
        buffer->offset_bytes > schedule->arena_bytes[buffer->arena] - buffer->size_bytes)
        return memory_fault(at, i, "passes the end of its arena");
    for (int k = 0; k < MIST_N_STREAMS; k++)
        last = at->last_use[i][k] > last ? at->last_use[i][k] : last;
    if (buffer->is_persistent) {
        first = 0;
        last = schedule->n_tasks - 1;
    }
    /* gradients keep their room while a sum over ranks reads them, weights that a step has
     * written until the next one has its own */
    bool may_last = buffer->role >= MIST_ROLE_WEIGHTS && buffer->last_task >= last;
    if (buffer->first_task != first || (buffer->last_task != last && !may_last))
        return memory_fault(at, i, "has a lifetime that is not that of its uses");
    return MIST_OK;
}

/* ------------------------------------------------------------------------------ pairs */

static inline bool memory_share_bytes(const struct mist_buffer *a,
                                      const struct mist_buffer *b)
{
    return a->arena == b->arena && a->offset_bytes < b->offset_bytes + b->size_bytes &&
           b->offset_bytes < a->offset_bytes + a->size_bytes;
}

static inline enum mist_status memory_check_pair(const struct memory_checker *at,
                                                 int32_t a, int32_t b)
{
    const struct mist_buffer *buffers = at->schedule->buffers;

    if (!memory_share_bytes(&buffers[a], &buffers[b]))
        return MIST_OK;
    if (buffers[a].first_task > buffers[b].first_task) {
        int32_t swapped = a;
        a = b;
        b = swapped;
    }
    if (buffers[a].last_task >= buffers[b].first_task)
        return memory_pair_fault(at, a, b, "live at the same time");
    for (int k = 0; k < MIST_N_STREAMS; k++)
        if (at->last_use[a][k] >= 0 &&
            !memory_is_before(at, at->last_use[a][k], buffers[b].first_task))
            return memory_pair_fault(at, a, b, "the second does not wait for the first");
    return MIST_OK;
}

static inline enum mist_status memory_check_all(struct memory_checker *at)
{
    enum mist_status status = memory_close_order(at);

    if (status == MIST_OK)
        status = memory_read_uses(at);
    for (int32_t i = 0; i < at->schedule->n_buffers && status == MIST_OK; i++)
        status = memory_check_buffer(at, i);
    for (int32_t i = 0; i < at->schedule->n_buffers; i++)
        for (int32_t k = 0; k < i && status == MIST_OK; k++)
            status = memory_check_pair(at, k, i);
    return status;
}

/*
 * Checks a layout: dependencies point backwards; buffers are inside their arena,
 * 256-aligned and live exactly as long as they are used; every user comes after the
 * first; buffers that share bytes don't live at the same time, and all users of the
 * earlier one come before the first of the later, by stream order and dependencies.
 * MIST_OK, MIST_ERR_VERIFY naming the buffers, or MIST_ERR_MEMORY.
 * O(buffers^2 + tasks * streams).
 */
static inline enum mist_status memory_check(const struct mist_schedule *schedule,
                                            struct mist_err *err)
{
    size_t n_tasks = (size_t)schedule->n_tasks + 1, n = (size_t)schedule->n_buffers + 1;
    struct memory_checker at = {
        .schedule = schedule,
        .before = malloc(n_tasks * sizeof *at.before),
        .last_use = malloc(n * sizeof *at.last_use),
        .first_use = malloc(n * sizeof *at.first_use),
        .err = err,
    };
    enum mist_status status = MIST_ERR_MEMORY;

    if (at.before && at.last_use && at.first_use)
        status = memory_check_all(&at);
    else
        mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    free(at.before);
    free(at.last_use);
    free(at.first_use);
    return status;
}

#endif
