/*
 * Lays out the buffers of a schedule. See memory_planner.h.
 *
 * An arena is a list of segments in address order, each live or free; a free segment
 * remembers the last task of each stream that used it. A new buffer takes the smallest
 * run of free segments that holds it (the lowest of equals) or grows the arena at its
 * end, and its first task waits for what the segments remember of other streams.
 */
#include "sim/memory_planner.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

struct segment {
    int64_t offset, size;
    int32_t buffer; /* -1: free */
    int32_t
        last[MIST_N_STREAMS]; /* free: last task of each stream that used it; -1 none */
};

struct arena {
    struct segment *segments; /* by offset, without gaps */
    int32_t n_segments;
    size_t capacity;
};

struct planner {
    struct mist_schedule *schedule;
    struct arena arenas[MIST_N_ARENAS];
    int32_t (*last_use)[MIST_N_STREAMS]; /* [n_buffers] last task of each stream that
                                            names it */
    int32_t *born, *dying; /* [n_buffers] buffer ids by first and by last task */
    struct mist_dep *deps;
    size_t deps_capacity;
    int32_t n_deps;
};

static const int32_t nobody[MIST_N_STREAMS] = {-1, -1, -1, -1};

/* -------------------------------------------------------------------------- segments */

static bool insert_segment(struct arena *arena, int32_t at, struct segment segment)
{
    void *grown = mist_grow(arena->segments, &arena->capacity,
                            (size_t)arena->n_segments + 1, sizeof *arena->segments);

    if (!grown)
        return false;
    arena->segments = grown;
    memmove(arena->segments + at + 1, arena->segments + at,
            (size_t)(arena->n_segments - at) * sizeof *arena->segments);
    arena->segments[at] = segment;
    arena->n_segments++;
    return true;
}

static void remove_segments(struct arena *arena, int32_t at, int32_t n)
{
    memmove(arena->segments + at, arena->segments + at + n,
            (size_t)(arena->n_segments - at - n) * sizeof *arena->segments);
    arena->n_segments -= n;
}

/* Finds the best run of free segments; *n is 0 and the result the end when none holds
 * size. */
static int32_t best_run(const struct arena *arena, int64_t size, int32_t *n)
{
    int32_t best = arena->n_segments;
    int64_t best_size = INT64_MAX;

    *n = 0;
    for (int32_t i = 0; i < arena->n_segments;) {
        int32_t first = i;
        int64_t run = 0;
        while (i < arena->n_segments && arena->segments[i].buffer < 0)
            run += arena->segments[i++].size;
        if (run >= size && run < best_size) {
            best = first;
            best_size = run;
            *n = i - first;
        }
        i += first == i;
    }
    return best;
}

/* Free segments at the end of the arena: what growing it can start from. */
static int32_t free_tail(const struct arena *arena, int64_t *size)
{
    int32_t first = arena->n_segments;

    *size = 0;
    while (first > 0 && arena->segments[first - 1].buffer < 0)
        *size += arena->segments[--first].size;
    return first;
}

static int64_t arena_end(const struct arena *arena)
{
    if (arena->n_segments == 0)
        return 0;
    return arena->segments[arena->n_segments - 1].offset +
           arena->segments[arena->n_segments - 1].size;
}

/* ---------------------------------------------------------------------------- placing */

static void remember_latest(int32_t last[MIST_N_STREAMS],
                            const int32_t other[MIST_N_STREAMS])
{
    for (int i = 0; i < MIST_N_STREAMS; i++)
        last[i] = other[i] > last[i] ? other[i] : last[i];
}

/* The task must wait for the latest task of each other stream in last. */
static bool add_waits(struct planner *at, int32_t task,
                      const int32_t last[MIST_N_STREAMS])
{
    const struct mist_schedule *schedule = at->schedule;
    enum mist_stream own = schedule->tasks[task].stream;

    for (int i = 0; i < MIST_N_STREAMS; i++) {
        if (last[i] < 0 || i == (int)own)
            continue;
        void *grown = mist_grow(at->deps, &at->deps_capacity, (size_t)at->n_deps + 1,
                                sizeof *at->deps);
        if (!grown)
            return false;
        at->deps = grown;
        at->deps[at->n_deps++] = (struct mist_dep){task, last[i]};
    }
    return true;
}

/* Gives a buffer its place; false when out of memory. Sizes are checked by the caller. */
static bool place(struct planner *at, int32_t id)
{
    struct mist_buffer *buffer = &at->schedule->buffers[id];
    struct arena *arena = &at->arenas[buffer->arena];
    int64_t size = mist_align_up(buffer->size_bytes, ALIGNMENT), run = 0;
    struct segment rest = {.buffer = -1};
    int32_t last[MIST_N_STREAMS], n, first = best_run(arena, size, &n);

    memcpy(last, nobody, sizeof last);
    if (n == 0) {
        first = free_tail(arena, &run);
        n = arena->n_segments - first;
        run = 0;
    }
    buffer->offset_bytes =
        first < arena->n_segments ? arena->segments[first].offset : arena_end(arena);
    int32_t n_taken = 0;
    while (n_taken < n && run < size) {
        const struct segment *taken = &arena->segments[first + n_taken++];
        remember_latest(last, taken->last);
        run += taken->size;
        rest = *taken;
    }
    remove_segments(arena, first, n_taken);
    struct segment mine = {buffer->offset_bytes, size, id, {-1, -1, -1, -1}};
    if (!insert_segment(arena, first, mine))
        return false;
    if (run > size) {
        rest.offset = buffer->offset_bytes + size;
        rest.size = run - size;
        if (!insert_segment(arena, first + 1, rest))
            return false;
    }
    return buffer->is_persistent || add_waits(at, buffer->first_task, last);
}

static void release(struct planner *at, int32_t id)
{
    const struct mist_buffer *buffer = &at->schedule->buffers[id];
    struct arena *arena = &at->arenas[buffer->arena];
    int32_t low = 0, high = arena->n_segments;

    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (arena->segments[middle].offset <= buffer->offset_bytes)
            low = middle;
        else
            high = middle;
    }
    struct segment *segment = &arena->segments[low];
    segment->buffer = -1;
    memcpy(segment->last, at->last_use[id], sizeof segment->last);
    /* neighbours with the same history become one */
    for (int32_t i = low; i >= low - 1 && i >= 0; i--) {
        if (i + 1 >= arena->n_segments)
            continue;
        struct segment *a = &arena->segments[i], *b = a + 1;
        if (a->buffer < 0 && b->buffer < 0 && !memcmp(a->last, b->last, sizeof a->last)) {
            a->size += b->size;
            remove_segments(arena, i + 1, 1);
        }
    }
}

/* ------------------------------------------------------------------------------ public
 */

static void note_uses(struct planner *at)
{
    const struct mist_schedule *schedule = at->schedule;

    for (int32_t i = 0; i < schedule->n_buffers; i++)
        memcpy(at->last_use[i], nobody, sizeof nobody);
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        for (int k = 0; k < MIST_N_ROLES; k++)
            if (schedule->tasks[i].buffers[k] >= 0)
                at->last_use[schedule->tasks[i].buffers[k]][schedule->tasks[i].stream] =
                    i;
}

/* Buffer ids by first (or last) task, equals by id: counting sort. */
static bool sort_by_task(const struct mist_schedule *schedule, bool by_last, int32_t *out)
{
    int32_t *first = calloc((size_t)schedule->n_tasks + 1, sizeof *first);

    if (!first)
        return false;
    for (int32_t i = 0; i < schedule->n_buffers; i++) {
        const struct mist_buffer *buffer = &schedule->buffers[i];
        first[(by_last ? buffer->last_task : buffer->first_task) + 1]++;
    }
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        first[i + 1] += first[i];
    for (int32_t i = 0; i < schedule->n_buffers; i++) {
        const struct mist_buffer *buffer = &schedule->buffers[i];
        out[first[by_last ? buffer->last_task : buffer->first_task]++] = i;
    }
    free(first);
    return true;
}

static bool place_all(struct planner *at)
{
    const struct mist_schedule *schedule = at->schedule;
    int32_t next_born = 0, next_dying = 0, n = schedule->n_buffers;

    for (int32_t i = 0; i < n; i++)
        if (schedule->buffers[i].is_persistent && !place(at, i))
            return false;
    for (int32_t task = 0; task < schedule->n_tasks; task++) {
        for (; next_born < n && schedule->buffers[at->born[next_born]].first_task == task;
             next_born++)
            if (!schedule->buffers[at->born[next_born]].is_persistent &&
                !place(at, at->born[next_born]))
                return false;
        for (;
             next_dying < n && schedule->buffers[at->dying[next_dying]].last_task == task;
             next_dying++)
            if (!schedule->buffers[at->dying[next_dying]].is_persistent)
                release(at, at->dying[next_dying]);
    }
    return true;
}

/* The existing dependencies, to which waits for reuse are added. */
static bool copy_deps(struct planner *at)
{
    const struct mist_schedule *schedule = at->schedule;

    at->deps = mist_grow(NULL, &at->deps_capacity, (size_t)schedule->n_deps + 1,
                         sizeof *at->deps);
    if (!at->deps)
        return false;
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        for (int32_t k = 0; k < schedule->tasks[i].n_deps; k++)
            at->deps[at->n_deps++] =
                (struct mist_dep){i, schedule->deps[schedule->tasks[i].dep_first + k]};
    return true;
}

/* Of several dependencies of a task on one stream only the latest matters. */
static int32_t keep_latest(const struct mist_schedule *schedule, struct mist_dep *deps,
                           int32_t n_deps, int32_t (*latest)[MIST_N_STREAMS])
{
    int32_t n = 0;

    for (int32_t i = 0; i < schedule->n_tasks; i++)
        memcpy(latest[i], nobody, sizeof nobody);
    for (int32_t i = 0; i < n_deps; i++) {
        int32_t *last = &latest[deps[i].task][schedule->tasks[deps[i].on].stream];
        *last = deps[i].on > *last ? deps[i].on : *last;
    }
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        for (int k = 0; k < MIST_N_STREAMS; k++)
            if (latest[i][k] >= 0)
                deps[n++] = (struct mist_dep){i, latest[i][k]};
    return n;
}

static enum mist_status check_sizes(const struct mist_schedule *schedule,
                                    struct mist_err *err)
{
    int64_t total = 0;

    for (int32_t i = 0; i < schedule->n_buffers; i++)
        if (!mist_size_add(total, schedule->buffers[i].size_bytes, &total) ||
            total > INT64_MAX / 2)
            return mist_err_set(err, MIST_ERR_RANGE,
                                "the buffers of rank %d do not fit in 62 bits",
                                (int)schedule->rank);
    return MIST_OK;
}

enum mist_status mist_memory_plan(struct mist_schedule *schedule, struct mist_err *err)
{
    enum mist_status status = check_sizes(schedule, err);
    size_t n = (size_t)schedule->n_buffers + 1, n_tasks = (size_t)schedule->n_tasks + 1;
    struct planner at = {.schedule = schedule};
    int32_t(*latest)[MIST_N_STREAMS] = malloc(n_tasks * sizeof *latest);

    if (status != MIST_OK)
        goto out;
    status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    at.last_use = malloc(n * sizeof *at.last_use);
    at.born = malloc(n * sizeof *at.born);
    at.dying = malloc(n * sizeof *at.dying);
    if (!latest || !at.last_use || !at.born || !at.dying || !copy_deps(&at))
        goto out;
    note_uses(&at);
    if (!sort_by_task(schedule, false, at.born) ||
        !sort_by_task(schedule, true, at.dying) || !place_all(&at))
        goto out;
    for (int i = 0; i < MIST_N_ARENAS; i++)
        schedule->arena_bytes[i] = arena_end(&at.arenas[i]);
    at.n_deps = keep_latest(schedule, at.deps, at.n_deps, latest);
    status = mist_schedule_set_deps(schedule, at.deps, at.n_deps, err);
out:
    for (int i = 0; i < MIST_N_ARENAS; i++)
        free(at.arenas[i].segments);
    free(at.last_use);
    free(at.born);
    free(at.dying);
    free(at.deps);
    free(latest);
    return status;
}

void mist_memory_live(const struct mist_schedule *schedule, enum mist_buffer_arena arena,
                      int64_t *live_bytes)
{
    int64_t live = 0;

    memset(live_bytes, 0, (size_t)schedule->n_tasks * sizeof *live_bytes);
    for (int32_t i = 0; i < schedule->n_buffers; i++) {
        const struct mist_buffer *buffer = &schedule->buffers[i];
        if (buffer->arena != arena)
            continue;
        int64_t size = mist_align_up(buffer->size_bytes, ALIGNMENT);
        live_bytes[buffer->first_task] += size;
        if (buffer->last_task + 1 < schedule->n_tasks)
            live_bytes[buffer->last_task + 1] -= size;
    }
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        live_bytes[i] = live += live_bytes[i];
}
