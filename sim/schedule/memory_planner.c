/*
 * Lays out the buffers of a schedule. See memory_planner.h.
 *
 * Offsets: persistent buffers first, then the others size by size, each at the lowest
 * offset that is free from its first to its last task. All lifetimes are known and there
 * is only a handful of different sizes. The largest come first; where that leaves holes,
 * those that are there when nearly the most is live come before all others, which find room
 * more easily. Then everything is placed once more, a few times, until the arena is no larger
 * than what is live at once: what was on top is placed first of all, and an order is given up
 * with the buffer that is no lower than the best arena so far. Buffers of one size
 * share places, a few hundred in large schedules, and a place is asked about lifetimes in
 * order of birth, which takes one step per answer.
 *
 * Waits: tasks are walked in dispatch order over a list of segments in address order,
 * each live or free; a free segment remembers the last task of each stream that used it,
 * and the first task of a buffer waits for what its segments remember of other streams. The
 * lowest room is often the one that was left last, so a buffer that would wait moves to where
 * nobody comes in its life and it waits for less: copies and gathers run further ahead, in
 * the same arena.
 */
#include "sim/schedule/memory_planner.h"

#include "core/hash.h"
#include "core/memory.h"
#include "core/order.h"

#include <stdlib.h>
#include <string.h>

static int64_t aligned_size(const struct mist_buffer *buffer)
{
    return mist_align_up(buffer->size_bytes, MIST_BUFFER_ALIGNMENT);
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

/* ---------------------------------------------------------------------------- offsets */

enum {
    MOST_TRIES = 32,      /* orders for one arena */
    NEARLY_ALL = 32,      /* at most one part of these less */
    MOST_PLACED = 1 << 16 /* buffers, before another order is tried */
};

/* A buffer to place. */
struct piece {
    int64_t size, offset;
    int32_t first_task, last_task;
    int32_t next; /* piece that has the same place after this one; -1 none */
    int32_t id;
    bool is_full;  /* lives when nearly the most is live */
    bool is_first; /* in the list of those that come first of all */
};

/* A place where buffers of one size follow one another; places may overlap. */
struct place {
    int64_t start, end;
    int32_t head, tail; /* its first and its last piece */
    int32_t i_size;     /* which size shares it, in order of birth; -1 none */
    int32_t next; /* earliest piece that may outlive the birth of one to come; -1 none */
    int32_t next_born, next_dies; /* its first and last task; -1: past all */
};

/* Pieces of one size, full or not. */
struct size {
    int64_t bytes;
    bool is_full;
    int32_t first, n;
};

struct placer {
    struct mist_schedule *schedule;
    struct piece *pieces; /* [n_pieces] full ones first, by size, then by birth */
    struct piece *other;  /* room for as many */
    struct place *places; /* [n_places] by start */
    struct size *sizes;   /* [n_sizes] in the order of their pieces */
    int32_t *first;       /* [n_first] pieces that are placed before all others */
    int32_t n_pieces, n_places, n_sizes, n_first;
    int32_t i_size;   /* that is being placed; -1: those that come first */
    int64_t n_placed; /* pieces, in all orders */
    int64_t *live;    /* [n_tasks] room */
};

/* Goes on to a piece of the place, or behind all of them. */
static void set_next(const struct placer *at, struct place *place, int32_t next)
{
    place->next = next;
    place->next_born = next < 0 ? INT32_MAX : at->pieces[next].first_task;
    place->next_dies = next < 0 ? INT32_MAX : at->pieces[next].last_task;
}

/* Whether somebody has the place during the piece's life. Pieces of one size come in
 * order of birth, so that the place's next one only moves forward. */
static bool is_taken(const struct placer *at, struct place *place,
                     const struct piece *piece)
{
    while (place->next_dies < piece->first_task)
        set_next(at, place, at->pieces[place->next].next);
    return place->next_born <= piece->last_task;
}

/* Lowest offset from base on where the piece meets nobody. */
static int64_t lowest_offset(struct placer *at, const struct piece *piece, int64_t base)
{
    int64_t offset = base;

    for (int32_t i = 0; i < at->n_places; i++) {
        struct place *place = &at->places[i];
        if (place->start >= offset + piece->size)
            break;
        if (place->end > offset && is_taken(at, place, piece))
            offset = place->end;
    }
    return offset;
}

/* Puts piece i behind the others of its place, which is new or has been found free. */
static void settle(struct placer *at, int32_t i, int64_t offset)
{
    const struct piece *piece = &at->pieces[i];

    MIST_BISECT(k, 0, (size_t)at->n_places, m, at->places[m].start <= offset);
    struct place *place = at->places + k; /* the first that starts behind it */
    for (size_t j = k; j-- > 0 && at->places[j].start == offset;)
        if (at->i_size >= 0 && at->places[j].i_size == at->i_size)
            place = &at->places[j];
    if (place == at->places + k) {
        memmove(place + 1, place, ((size_t)at->n_places++ - k) * sizeof *place);
        *place = (struct place){.start = offset,
                                .end = offset + piece->size,
                                .head = i,
                                .i_size = at->i_size};
    } else {
        at->pieces[place->tail].next = i;
    }
    place->tail = i;
    set_next(at, place, i); /* those before are dead by then */
}

/* The size of a piece, which is listed if it is new. */
static struct size *find_size(struct placer *at, const struct piece *piece)
{
    MIST_BISECT(k, 0, (size_t)at->n_sizes, i,
                at->sizes[i].is_full != piece->is_full
                    ? at->sizes[i].is_full
                    : at->sizes[i].bytes > piece->size);
    struct size *size = at->sizes + k, *end = at->sizes + at->n_sizes;
    if (size == end || size->is_full != piece->is_full || size->bytes != piece->size) {
        memmove(size + 1, size, (size_t)(end - size) * sizeof *size);
        *size = (struct size){.bytes = piece->size, .is_full = piece->is_full};
        at->n_sizes++;
    }
    return size;
}

/* Size by size; those of one keep their order. */
static void sort_pieces(struct placer *at)
{
    struct piece *sorted = at->other;

    at->n_sizes = 0;
    for (int32_t i = 0; i < at->n_pieces; i++)
        find_size(at, &at->pieces[i])->n++;
    for (int32_t k = 0, n = 0; k < at->n_sizes; k++) {
        at->sizes[k].first = n;
        n += at->sizes[k].n;
        at->sizes[k].n = 0;
    }
    for (int32_t i = 0; i < at->n_pieces; i++) {
        struct size *size = find_size(at, &at->pieces[i]);
        sorted[size->first + size->n++] = at->pieces[i];
    }
    at->other = at->pieces;
    at->pieces = sorted;
}

/* The arena's buffers that come and go, size by size. born: all ids, by birth. */
static void list_pieces(struct placer *at, enum mist_buffer_arena arena,
                        const int32_t *born)
{
    const struct mist_schedule *schedule = at->schedule;

    at->n_pieces = at->n_first = 0;
    for (int32_t i = 0; i < schedule->n_buffers; i++) {
        const struct mist_buffer *buffer = &schedule->buffers[born[i]];
        if (buffer->arena == arena && !buffer->is_persistent)
            at->pieces[at->n_pieces++] = (struct piece){.size = aligned_size(buffer),
                                                        .first_task = buffer->first_task,
                                                        .last_task = buffer->last_task,
                                                        .id = born[i]};
    }
    sort_pieces(at);
}

/* From now on places are asked about lifetimes from the beginning. */
static void rewind_places(struct placer *at)
{
    for (int32_t k = 0; k < at->n_places; k++)
        set_next(at, &at->places[k], at->places[k].head);
}

/* Places a piece. Raises the end of the arena, where it is above: *top is the piece then. */
static void place_piece(struct placer *at, int32_t i, int64_t base, int64_t *end,
                        int32_t *top)
{
    struct piece *piece = &at->pieces[i];

    at->n_placed++;
    piece->next = -1;
    piece->offset = lowest_offset(at, piece, base);
    settle(at, i, piece->offset);
    if (piece->offset + piece->size <= *end)
        return;
    *end = piece->offset + piece->size;
    *top = i;
}

/* Places all pieces, or those up to the first that ends at limit or above, which is *top then.
 * Returns the end of the arena. */
static int64_t place_pieces(struct placer *at, int64_t base, int64_t limit, int32_t *top)
{
    int64_t end = base;

    at->n_places = *top = 0;
    at->i_size = -1;
    for (int32_t k = 0; k < at->n_first && end < limit; k++) {
        rewind_places(at);
        place_piece(at, at->first[k], base, &end, top);
    }
    for (at->i_size = 0; at->i_size < at->n_sizes && end < limit; at->i_size++) {
        rewind_places(at);
        const struct size *size = &at->sizes[at->i_size];
        for (int32_t i = size->first; i < size->first + size->n && end < limit; i++)
            if (!at->pieces[i].is_first)
                place_piece(at, i, base, &end, top);
    }
    return end;
}

/* The buffers that last, one behind the other. */
static int64_t place_persistent(struct mist_schedule *schedule,
                                enum mist_buffer_arena arena)
{
    int64_t end = 0;

    for (int32_t i = 0; i < schedule->n_buffers; i++) {
        struct mist_buffer *buffer = &schedule->buffers[i];
        if (buffer->arena != arena || !buffer->is_persistent)
            continue;
        buffer->offset_bytes = end;
        end += aligned_size(buffer);
    }
    return end;
}

/* The most that is live at once. */
static int64_t most_live(const struct placer *at, enum mist_buffer_arena arena)
{
    int64_t most = 0;

    mist_memory_live(at->schedule, arena, at->live);
    for (int32_t i = 0; i < at->schedule->n_tasks; i++)
        most = at->live[i] > most ? at->live[i] : most;
    return most;
}

/* Those that are there when nearly the most is live have a place first. Bytes that are live
 * become the number of such tasks so far. */
static void put_full_first(struct placer *at, int64_t most)
{
    int64_t n = 0;

    for (int32_t i = 0; i < at->schedule->n_tasks; i++) {
        n += at->live[i] >= most - most / NEARLY_ALL;
        at->live[i] = n;
    }
    for (int32_t i = 0; i < at->n_pieces; i++) {
        struct piece *piece = &at->pieces[i];
        int64_t before = piece->first_task > 0 ? at->live[piece->first_task - 1] : 0;
        piece->is_full = at->live[piece->last_task] > before;
    }
    sort_pieces(at);
}

/* A piece comes first of all. */
static void put_first(struct placer *at, int32_t piece)
{
    for (int32_t k = 0; k < at->n_first; k++)
        if (at->first[k] == piece)
            memmove(at->first + k, at->first + k + 1,
                    (size_t)(--at->n_first - k) * sizeof *at->first);
    memmove(at->first + 1, at->first, (size_t)at->n_first++ * sizeof *at->first);
    at->first[0] = piece;
    at->pieces[piece].is_first = true;
}

/* Whether these pieces have come first before; notes them as the n-th. */
static bool is_tried(const struct placer *at, uint64_t *tried, int32_t n)
{
    struct mist_hash hash;

    mist_hash_init(&hash);
    for (int32_t i = 0; i < at->n_first; i++)
        mist_hash_add_int64(&hash, at->first[i]);
    mist_hash_add_int64(&hash, n > 0); /* full ones are before others */
    tried[n] = hash.value;
    for (int32_t i = 0; i < n; i++)
        if (tried[i] == hash.value)
            return true;
    return false;
}

static void place_arena(struct placer *at, enum mist_buffer_arena arena,
                        const int32_t *born)
{
    struct mist_schedule *schedule = at->schedule;
    int64_t base = place_persistent(schedule, arena), least = most_live(at, arena);
    int64_t *best = &schedule->arena_bytes[arena];
    uint64_t tried[MOST_TRIES];
    int32_t top;

    list_pieces(at, arena, born);
    at->n_placed = 0;
    *best = INT64_MAX;
    for (int32_t i = 0; i < MOST_TRIES && at->n_placed <= MOST_PLACED && least < *best &&
                        !is_tried(at, tried, i);
         i++) {
        int64_t end = place_pieces(at, base, *best, &top);
        for (int32_t k = 0; k < at->n_pieces && end < *best; k++)
            schedule->buffers[at->pieces[k].id].offset_bytes = at->pieces[k].offset;
        *best = end < *best ? end : *best;
        if (i == 0)
            put_full_first(at, least);
        else if (at->n_pieces > 0)
            put_first(at, top);
    }
}

double mist_memory_plan_bytes(const struct mist_schedule *schedule)
{
    size_t buffer = 2 * sizeof(struct piece) + sizeof(struct place) +
                    sizeof(struct size) + 2 * sizeof(int32_t);

    return (double)buffer * schedule->n_buffers +
           (double)sizeof(int64_t) * schedule->n_tasks;
}

/* Sets all offsets and the sizes of the arenas; false when out of memory. born: all ids, by
 * birth. */
static bool place_all(struct mist_schedule *schedule, const int32_t *born)
{
    size_t n = (size_t)schedule->n_buffers + 1;
    struct placer at = {.schedule = schedule};
    bool fits = MIST_MALLOC(at.pieces, n) && MIST_MALLOC(at.other, n) &&
                MIST_MALLOC(at.places, n) && MIST_MALLOC(at.sizes, n) &&
                MIST_MALLOC(at.first, n) && MIST_MALLOC(at.live, schedule->n_tasks + 1);

    for (int i = 0; i < MIST_N_ARENAS && fits; i++)
        place_arena(&at, (enum mist_buffer_arena)i, born);
    free(at.pieces);
    free(at.other);
    free(at.places);
    free(at.sizes);
    free(at.first);
    free(at.live);
    return fits;
}

/* ------------------------------------------------------------------------------ waits */

enum { MOST_BORN = 1024 }; /* in the life of a buffer that may move */

struct segment {
    int64_t offset, size;
    int32_t buffer;               /* -1: free */
    int32_t last[MIST_N_STREAMS]; /* free: last task of each stream on it; -1 none */
};

struct arena {
    struct segment *segments; /* by offset, without gaps */
    int32_t n_segments;
    size_t capacity;
};

/* The bytes of a buffer. */
struct life {
    int64_t start, end;
};

struct planner {
    struct mist_schedule *schedule;
    struct life lives[MOST_BORN]; /* [n_lives] of those that are born while one lives */
    int32_t n_lives;
    struct arena arenas[MIST_N_ARENAS];
    int32_t (*last_use)[MIST_N_STREAMS]; /* [n_buffers] last task of each stream that
                                            names it */
    int32_t *born, *dying;   /* [n_buffers] buffer ids by first and by last task */
    struct mist_waits waits; /* of the tasks so far */
};

/* clang-format off */
#define NOBODY {-1, -1, -1, -1, -1, -1, -1, -1}
/* clang-format on */
static const int32_t nobody[MIST_N_STREAMS] = NOBODY;

/* Puts n segments in the place of n_old; false when out of memory, never when they are no
 * more. */
static bool replace_segments(struct arena *arena, int32_t at, int32_t n_old,
                             const struct segment *segments, int32_t n)
{
    int32_t n_behind = arena->n_segments - at - n_old;

    if (!MIST_RESERVE(arena->segments, arena->capacity, arena->n_segments - n_old + n))
        return false;
    struct segment *to = arena->segments + at;
    if (n != n_old)
        memmove(to + n, to + n_old, (size_t)n_behind * sizeof *to);
    for (int32_t i = 0; i < n; i++)
        to[i] = segments[i];
    arena->n_segments += n - n_old;
    return true;
}

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
    for (int i = 0; i < MIST_N_STREAMS; i++)
        if (last[i] >= 0 && !mist_waits_add(&at->waits, at->schedule, task, last[i]))
            return false;
    return true;
}

/* The segment that holds the byte at offset. */
static int32_t find_segment(const struct arena *arena, int64_t offset)
{
    MIST_BISECT(behind, 1, (size_t)arena->n_segments, i,
                arena->segments[i].offset <= offset);
    return (int32_t)behind - 1;
}

/* The latest task of other streams on a segment that a task which waits for these so far would
 * have to wait for; -1: none. INT32_MAX: somebody has it. */
static int32_t new_wait(const struct segment *segment, const int32_t *waited)
{
    int32_t wait = -1;

    if (segment->buffer >= 0)
        return INT32_MAX;
    for (int k = 0; k < MIST_N_STREAMS; k++) {
        int32_t last = segment->last[k] > waited[k] ? segment->last[k] : -1;
        wait = last > wait ? last : wait;
    }
    return wait;
}

/* Segments in a row that have room for a buffer. */
struct room {
    int32_t first, end; /* no segment: there is none */
    int32_t wait;       /* the latest task that the buffer's first would wait for */
};

/* The next from a segment on of that size, where the wait is before limit. */
static struct room find_room(const struct arena *arena, int32_t first, int64_t size,
                             const int32_t *waited, int32_t limit)
{
    struct room room = {first, first, -1};

    for (int32_t i = first; i < arena->n_segments; i++) {
        const struct segment *last = &arena->segments[i];
        int32_t wait = new_wait(last, waited);
        room.wait = wait > room.wait ? wait : room.wait;
        if (wait >= limit)
            room = (struct room){i + 1, i + 1, -1};
        else if (last->offset + last->size - arena->segments[room.first].offset >= size)
            return (struct room){room.first, i + 1, room.wait};
    }
    return (struct room){0};
}

/* Lists the bytes of those that are born into the arena in the life of a buffer; false where
 * they are many. */
static bool list_lives(struct planner *at, int32_t i_born)
{
    const struct mist_buffer *buffers = at->schedule->buffers;
    const struct mist_buffer *of = &buffers[at->born[i_born]];

    at->n_lives = 0;
    for (int32_t k = i_born + 1; k < at->schedule->n_buffers; k++) {
        const struct mist_buffer *other = &buffers[at->born[k]];
        if (other->first_task > of->last_task)
            return true;
        if (k - i_born > MOST_BORN)
            return false;
        if (other->arena == of->arena)
            at->lives[at->n_lives++] = (struct life){
                other->offset_bytes, other->offset_bytes + aligned_size(other)};
    }
    return true;
}

static bool meets_life(const struct planner *at, int64_t start, int64_t end)
{
    for (int32_t i = 0; i < at->n_lives; i++)
        if (at->lives[i].start < end && at->lives[i].end > start)
            return true;
    return false;
}

/* Moves a buffer that would wait to where it waits for less. What comes from a neighbour does
 * not: as early as it can it would only slow down the computation before, out of step. */
static void spread(struct planner *at, int32_t i_born)
{
    struct mist_buffer *buffer = &at->schedule->buffers[at->born[i_born]];
    enum mist_stream stream = at->schedule->tasks[buffer->first_task].stream;
    const int32_t *waited = at->waits.latest[stream];
    const struct arena *arena = &at->arenas[buffer->arena];
    const struct segment *segments = arena->segments;
    int64_t size = aligned_size(buffer), end = buffer->offset_bytes + size;
    int32_t least = -1;
    bool is_listed = false;

    if (buffer->is_persistent || stream == MIST_STREAM_RECEIVE)
        return;
    for (int32_t i = find_segment(arena, buffer->offset_bytes);
         i < arena->n_segments && segments[i].offset < end; i++) {
        int32_t wait = new_wait(&segments[i], waited);
        least = wait > least ? wait : least;
    }
    for (int32_t i = 0; least >= 0;) {
        struct room room = find_room(arena, i, size, waited, least);
        if (room.end == 0 || (!is_listed && !list_lives(at, i_born)))
            return;
        const struct segment *last = &segments[room.end - 1];
        is_listed = true;
        i = room.first + 1;
        if (meets_life(at, segments[room.first].offset, last->offset + last->size))
            continue;
        least = room.wait;
        buffer->offset_bytes = segments[room.first].offset;
    }
}

/* Takes a buffer's bytes out of the free segments there; false when out of memory. */
static bool occupy(struct planner *at, int32_t id)
{
    const struct mist_buffer *buffer = &at->schedule->buffers[id];
    struct arena *arena = &at->arenas[buffer->arena];
    int64_t start = buffer->offset_bytes, end = start + aligned_size(buffer);
    int32_t last[MIST_N_STREAMS], n = 0, first = find_segment(arena, start);
    struct segment before = arena->segments[first], after = before;

    memcpy(last, nobody, sizeof last);
    for (; first + n < arena->n_segments && arena->segments[first + n].offset < end;
         n++) {
        after = arena->segments[first + n];
        remember_latest(last, after.last);
    }
    before.size = start - before.offset;
    after.size = after.offset + after.size - end;
    after.offset = end;
    const struct segment parts[] = {before, {start, end - start, id, {0}}, after};
    int32_t n_before = before.size > 0, n_after = after.size > 0;
    if (!replace_segments(arena, first, n, parts + !n_before, n_before + 1 + n_after))
        return false;
    return buffer->is_persistent || add_waits(at, buffer->first_task, last);
}

static void release(struct planner *at, int32_t id)
{
    const struct mist_buffer *buffer = &at->schedule->buffers[id];
    struct arena *arena = &at->arenas[buffer->arena];
    int32_t low = find_segment(arena, buffer->offset_bytes);
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
            (void)replace_segments(arena, i + 1, 1, NULL, 0);
        }
    }
}

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

/* The dependencies that a task has apart from reuse. */
static bool add_deps(struct planner *at, int32_t task)
{
    const struct mist_task *of = &at->schedule->tasks[task];

    for (int32_t k = 0; k < of->n_deps; k++)
        if (!mist_waits_add(&at->waits, at->schedule, task,
                            at->schedule->deps[of->dep_first + k]))
            return false;
    return true;
}

/* Walks the tasks: a new buffer waits for the last users of those that had its bytes. */
static bool order_reuse(struct planner *at)
{
    const struct mist_schedule *schedule = at->schedule;
    int32_t next_born = 0, next_dying = 0, n = schedule->n_buffers;

    if (!MIST_MALLOC(at->last_use, (size_t)n + 1) ||
        !MIST_MALLOC(at->dying, (size_t)n + 1) ||
        !sort_by_task(schedule, true, at->dying))
        return false;
    note_uses(at);
    for (int i = 0; i < MIST_N_ARENAS; i++) {
        struct segment all = {0, schedule->arena_bytes[i], -1, NOBODY};
        if (!replace_segments(&at->arenas[i], 0, 0, &all, 1))
            return false;
    }
    mist_waits_init(&at->waits);
    for (int32_t task = 0; task < schedule->n_tasks; task++) {
        if (!add_deps(at, task))
            return false;
        for (; next_born < n && schedule->buffers[at->born[next_born]].first_task == task;
             next_born++) {
            spread(at, next_born);
            if (!occupy(at, at->born[next_born]))
                return false;
        }
        for (;
             next_dying < n && schedule->buffers[at->dying[next_dying]].last_task == task;
             next_dying++)
            release(at, at->dying[next_dying]);
    }
    return true;
}

/* ----------------------------------------------------------------------------- public */

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

enum mist_status mist_memory_plan(struct mist_schedule *schedule, bool waits,
                                  struct mist_err *err)
{
    enum mist_status status = check_sizes(schedule, err);
    struct planner at = {.schedule = schedule};

    if (status == MIST_OK &&
        !(MIST_MALLOC(at.born, (size_t)schedule->n_buffers + 1) &&
          sort_by_task(schedule, false, at.born) && place_all(schedule, at.born)))
        status = mist_err_memory(err, NULL);
    if (status == MIST_OK && waits)
        status = order_reuse(&at)
                     ? mist_schedule_set_deps(schedule, at.waits.deps, at.waits.n, err)
                     : mist_err_memory(err, NULL);
    for (int i = 0; i < MIST_N_ARENAS; i++)
        free(at.arenas[i].segments);
    free(at.last_use);
    free(at.born);
    free(at.dying);
    mist_waits_fini(&at.waits);
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
        int64_t size = aligned_size(buffer);
        live_bytes[buffer->first_task] += size;
        if (buffer->last_task + 1 < schedule->n_tasks)
            live_bytes[buffer->last_task + 1] -= size;
    }
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        live_bytes[i] = live += live_bytes[i];
}
