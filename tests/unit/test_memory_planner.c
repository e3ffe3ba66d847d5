/*
 * The planner against a naive placement, the waits against what the check finds missing
 * without them and against what buffers would wait for anywhere else, and the check against
 * layouts with one thing wrong.
 */
#include "tests/unit/test.h"

#include "core/random.h"
#include "sim/schedule/memory_planner.h"
#include "tests/unit/memory_check.h"
#include "tests/unit/pick.h"

enum { MAX_TASKS = 60, MAX_BUFFERS = 80, MAX_DEPS = 600, N_RANDOM = 400 };

/* A schedule in the making. */
struct draft {
    struct mist_schedule schedule;
    struct mist_task tasks[MAX_TASKS];
    struct mist_buffer buffers[MAX_BUFFERS];
    struct mist_dep deps[MAX_DEPS];
    int32_t n_deps;
};

static void begin(struct draft *draft)
{
    *draft = (struct draft){0};
    draft->schedule.tasks = draft->tasks;
    draft->schedule.buffers = draft->buffers;
}

static int32_t task(struct draft *draft, enum mist_stream stream)
{
    int32_t i = draft->schedule.n_tasks++;

    draft->tasks[i] = (struct mist_task){.stream = stream, .peer = -1};
    memset(draft->tasks[i].buffers, -1, sizeof draft->tasks[i].buffers);
    return i;
}

static int32_t buffer(struct draft *draft, int64_t size_bytes)
{
    int32_t i = draft->schedule.n_buffers++;

    draft->buffers[i] = (struct mist_buffer){
        .layer = -1, .size_bytes = size_bytes, .offset_bytes = -1, .first_task = -1};
    return i;
}

static void use(struct draft *draft, int32_t i_task, int32_t id)
{
    struct mist_buffer *used = &draft->buffers[id];

    for (int k = 0; k < MIST_N_ROLES; k++) {
        if (draft->tasks[i_task].buffers[k] >= 0)
            continue;
        draft->tasks[i_task].buffers[k] = id;
        break;
    }
    used->first_task = used->first_task < 0 ? i_task : used->first_task;
    used->last_task = i_task;
}

static void depend(struct draft *draft, int32_t i_task, int32_t on)
{
    if (draft->tasks[i_task].stream != draft->tasks[on].stream)
        draft->deps[draft->n_deps++] = (struct mist_dep){i_task, on};
}

static void set_deps(struct draft *draft)
{
    assert_int_equal(
        mist_schedule_set_deps(&draft->schedule, draft->deps, draft->n_deps, NULL),
        MIST_OK);
}

static void plan_offsets(struct draft *draft, bool waits)
{
    for (int32_t i = 0; i < draft->schedule.n_buffers; i++) {
        if (!draft->buffers[i].is_persistent)
            continue;
        draft->buffers[i].first_task = 0;
        draft->buffers[i].last_task = draft->schedule.n_tasks - 1;
    }
    set_deps(draft);
    assert_int_equal(mist_memory_plan(&draft->schedule, waits, NULL), MIST_OK);
}

static void plan(struct draft *draft)
{
    plan_offsets(draft, true);
}

static void end(struct draft *draft)
{
    free(draft->schedule.deps);
}

static void assert_good(const struct draft *draft)
{
    struct mist_err err = {0};

    must(memory_check(&draft->schedule, &err), &err);
}

/* --------------------------------------------------------------------------- by hand */

/*
 * compute 0: makes A (100 bytes) and P; gpu_gpu 1: sends A; compute 2: makes B (100).
 * B may have A's bytes, but must wait for the send.
 */
static void draw_reuse(struct draft *draft)
{
    begin(draft);
    int32_t make = task(draft, MIST_STREAM_COMPUTE);
    int32_t send = task(draft, MIST_STREAM_GPU_GPU);
    int32_t again = task(draft, MIST_STREAM_COMPUTE);
    int32_t p = buffer(draft, 1), a = buffer(draft, 100), b = buffer(draft, 100);

    draft->buffers[p].is_persistent = true;
    use(draft, make, p);
    use(draft, make, a);
    use(draft, send, a);
    use(draft, again, b);
    depend(draft, send, make);
    plan(draft);
}

TEST(test_reuse_waits)
{
    struct draft draft;
    int64_t live[3];

    draw_reuse(&draft);
    assert_int_equal(draft.buffers[0].offset_bytes, 0);
    assert_int_equal(draft.buffers[1].offset_bytes, 256);
    assert_int_equal(draft.buffers[2].offset_bytes, 256);
    assert_int_equal(draft.schedule.arena_bytes[MIST_ARENA_DEVICE], 512);
    assert_int_equal(draft.schedule.n_deps, 2);
    assert_int_equal(draft.tasks[2].n_deps, 1);
    assert_int_equal(draft.schedule.deps[draft.tasks[2].dep_first], 1);
    assert_good(&draft);
    mist_memory_live(&draft.schedule, MIST_ARENA_DEVICE, live);
    for (int i = 0; i < 3; i++)
        assert_int_equal(live[i], 512);
    /* where nobody waits for room, the same offsets */
    set_deps(&draft);
    assert_int_equal(mist_memory_plan(&draft.schedule, false, NULL), MIST_OK);
    assert_int_equal(draft.buffers[2].offset_bytes, 256);
    assert_int_equal(draft.schedule.n_deps, 1);
    end(&draft);
}

/* Arenas don't mix. */
TEST(test_two_arenas)
{
    struct draft draft;

    begin(&draft);
    int32_t only = task(&draft, MIST_STREAM_COMPUTE);
    int32_t device = buffer(&draft, 10), host = buffer(&draft, 500);
    draft.buffers[host].arena = MIST_ARENA_HOST;
    use(&draft, only, device);
    use(&draft, only, host);
    plan(&draft);
    assert_int_equal(draft.buffers[device].offset_bytes, 0);
    assert_int_equal(draft.buffers[host].offset_bytes, 0);
    assert_int_equal(draft.schedule.arena_bytes[MIST_ARENA_DEVICE], 256);
    assert_int_equal(draft.schedule.arena_bytes[MIST_ARENA_HOST], 512);
    assert_good(&draft);
    end(&draft);
}

TEST(test_too_large)
{
    struct draft draft;
    struct mist_err err;

    begin(&draft);
    int32_t only = task(&draft, MIST_STREAM_COMPUTE);
    use(&draft, only, buffer(&draft, INT64_MAX / 3));
    use(&draft, only, buffer(&draft, INT64_MAX / 3));
    set_deps(&draft);
    assert_int_equal(mist_memory_plan(&draft.schedule, true, &err), MIST_ERR_RANGE);
    end(&draft);
}

/* ------------------------------------------------------------------- the check checks */

static void assert_bad(struct draft *draft, const char *word)
{
    struct mist_err err = {0};

    assert_int_equal(memory_check(&draft->schedule, &err), MIST_ERR_VERIFY);
    if (!strstr(err.message, word))
        fail_msg("'%s' is not about '%s'", err.message, word);
    end(draft);
}

TEST(test_check_fails)
{
    struct draft draft;

    draw_reuse(&draft); /* the wait is missing */
    draft.n_deps = 1;
    set_deps(&draft);
    assert_bad(&draft, "does not wait");

    draw_reuse(&draft); /* the send does not wait for what makes its data */
    draft.n_deps = 0;
    set_deps(&draft);
    assert_bad(&draft, "not ordered after its first");

    draw_reuse(&draft); /* onto the persistent one */
    draft.buffers[2].offset_bytes = 0;
    assert_bad(&draft, "live at the same time");

    draw_reuse(&draft);
    draft.buffers[2].offset_bytes = 256 + 64;
    draft.schedule.arena_bytes[MIST_ARENA_DEVICE] += 256;
    assert_bad(&draft, "aligned");

    draw_reuse(&draft);
    draft.schedule.arena_bytes[MIST_ARENA_DEVICE] = 256 + 99;
    assert_bad(&draft, "end of its arena");

    draw_reuse(&draft);
    draft.buffers[1].last_task = 0;
    assert_bad(&draft, "lifetime");

    draw_reuse(&draft);
    draft.buffers[2].arena = (enum mist_buffer_arena)7;
    assert_bad(&draft, "arena");

    draw_reuse(&draft); /* a dependency on the future */
    draft.schedule.deps[0] = 2;
    assert_bad(&draft, "earlier");

    draw_reuse(&draft);
    draft.tasks[1].buffers[3] = 3;
    assert_bad(&draft, "buffer 3");

    draw_reuse(&draft);
    draft.tasks[2].buffers[0] = -1;
    assert_bad(&draft, "no task");
}

/* -------------------------------------------------------------------------- at random */

/* Tasks on all streams, buffers of a few sizes with short and long lives. */
static void draw(struct mist_random *random, struct draft *draft)
{
    static const int sizes[] = {1, 256, 257, 800, 800, 4000, 20000};
    int32_t n_tasks = pick(random, 1, MAX_TASKS), n = pick(random, 1, MAX_BUFFERS);

    begin(draft);
    for (int32_t i = 0; i < n_tasks; i++)
        task(draft, (enum mist_stream)pick(random, 0, MIST_N_STREAMS - 1));
    for (int32_t i = 0; i < n; i++) {
        int32_t id = buffer(draft, sizes[pick(random, 0, 6)]);
        int32_t first = pick(random, 0, n_tasks - 1), last = first;
        bool is_used = false;
        draft->buffers[id].is_persistent = pick(random, 0, 15) == 0;
        draft->buffers[id].arena = (enum mist_buffer_arena)(pick(random, 0, 7) == 0);
        for (int k = pick(random, 1, 3); k > 0 && last < n_tasks; k--) {
            if (draft->tasks[last].buffers[MIST_N_ROLES - 1] < 0) {
                use(draft, last, id);
                if (is_used)
                    depend(draft, last, draft->buffers[id].first_task);
                is_used = true;
            }
            last += pick(random, 1, pick(random, 0, 3) ? 3 : 30);
        }
        draft->schedule.n_buffers -= !is_used;
    }
}

static bool share_bytes(const struct mist_buffer *a, const struct mist_buffer *b)
{
    return a->arena == b->arena && a->first_task <= b->last_task &&
           b->first_task <= a->last_task &&
           a->offset_bytes < b->offset_bytes + b->size_bytes &&
           b->offset_bytes < a->offset_bytes + a->size_bytes;
}

/* Whether buffer a is placed before b: persistent ones in their order, then by size. */
static bool is_earlier(const struct draft *draft, int32_t a, int32_t b)
{
    const struct mist_buffer *x = &draft->buffers[a], *y = &draft->buffers[b];
    int64_t x_size = (x->size_bytes + 255) / 256, y_size = (y->size_bytes + 255) / 256;

    if (x->is_persistent != y->is_persistent)
        return x->is_persistent;
    if (!x->is_persistent && x_size != y_size)
        return x_size > y_size;
    if (!x->is_persistent && x->first_task != y->first_task)
        return x->first_task < y->first_task;
    return a < b;
}

/*
 * Offsets by the rule alone: the lowest multiple of 256 that will do, given those placed
 * before. Returns the end of the device's arena.
 */
static int64_t place_naively(const struct draft *draft, struct mist_buffer *out)
{
    int32_t order[MAX_BUFFERS], n = draft->schedule.n_buffers;
    int64_t end = 0;

    for (int32_t i = 0; i < n; i++) {
        int32_t k = i;
        for (; k > 0 && is_earlier(draft, i, order[k - 1]); k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (int32_t i = 0; i < n; i++) {
        struct mist_buffer *placed = &out[order[i]];
        *placed = draft->buffers[order[i]];
        bool is_free = false;
        for (placed->offset_bytes = 0; !is_free; placed->offset_bytes += 256) {
            is_free = true;
            for (int32_t k = 0; k < i && is_free; k++)
                is_free = !share_bytes(placed, &out[order[k]]);
        }
        placed->offset_bytes -= 256;
        int64_t top = placed->offset_bytes + (placed->size_bytes + 255) / 256 * 256;
        if (placed->arena == MIST_ARENA_DEVICE && top > end)
            end = top;
    }
    return end;
}

/* Not above the plain rule anywhere, and that rule's offsets where it leaves no hole.
 * Returns how much is above what is live at once. */
static double check_offsets(const struct draft *draft)
{
    const struct mist_schedule *schedule = &draft->schedule;
    struct mist_buffer naive[MAX_BUFFERS];
    int64_t arena = schedule->arena_bytes[MIST_ARENA_DEVICE], most = 0;
    int64_t end = place_naively(draft, naive), live[MAX_TASKS];

    mist_memory_live(schedule, MIST_ARENA_DEVICE, live);
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        most = live[i] > most ? live[i] : most;
    assert_true(most <= arena && arena <= end);
    for (int32_t i = 0; i < schedule->n_buffers && end == most; i++)
        if (naive[i].arena == MIST_ARENA_DEVICE)
            assert_int_equal(schedule->buffers[i].offset_bytes, naive[i].offset_bytes);
    return most > 0 ? (double)arena / (double)most - 1 : 0;
}

enum { MAX_CELLS = MAX_BUFFERS * 79 }; /* of 256 bytes */

/* An arena at a task: who was last in each cell, and how far streams have waited. */
struct cells {
    const struct draft *draft;
    int32_t owner[MIST_N_ARENAS][MAX_CELLS]; /* buffer; -1 nobody yet */
    bool is_closed[MAX_CELLS]; /* to the buffer that is born: others come in its life */
    int32_t waited[MIST_N_STREAMS][MIST_N_STREAMS];
};

static int32_t n_cells(const struct mist_buffer *buffer)
{
    return (int32_t)((buffer->size_bytes + 255) / 256);
}

static int32_t first_cell(const struct mist_buffer *buffer)
{
    return (int32_t)(buffer->offset_bytes / 256);
}

/* The last task of a stream that names a buffer; -1 none does. */
static int32_t last_use(const struct draft *draft, int32_t id, int stream)
{
    for (int32_t i = draft->schedule.n_tasks - 1; i >= 0; i--)
        for (int k = 0; k < MIST_N_ROLES && (int)draft->tasks[i].stream == stream; k++)
            if (draft->tasks[i].buffers[k] == id)
                return i;
    return -1;
}

/* The latest task of another stream that a buffer's first one must wait for in a cell and
 * none before it on its stream has; INT32_MAX: others are there in its life. */
static int32_t wait_in(const struct cells *at, int32_t id, int32_t cell)
{
    const struct mist_buffer *buffers = at->draft->buffers;
    int32_t task = buffers[id].first_task, wait = -1;
    int32_t owner = at->owner[buffers[id].arena][cell];
    int own = (int)at->draft->tasks[task].stream;

    if (at->is_closed[cell] || (owner >= 0 && buffers[owner].last_task >= task))
        return INT32_MAX;
    for (int k = 0; k < MIST_N_STREAMS && owner >= 0; k++) {
        int32_t last = k == own ? -1 : last_use(at->draft, owner, k);
        wait = last > at->waited[own][k] && last > wait ? last : wait;
    }
    return wait;
}

/* Of a buffer in each place the latest, from there on. */
static void list_waits(struct cells *at, int32_t id, const int64_t *planned, int32_t *out)
{
    const struct mist_buffer *buffer = &at->draft->buffers[id];
    int32_t waits[MAX_CELLS] = {0}, n = n_cells(buffer);

    memset(at->is_closed, 0, sizeof at->is_closed);
    for (int32_t i = 0; i < at->draft->schedule.n_buffers; i++) {
        const struct mist_buffer *other = &at->draft->buffers[i];
        bool comes = other->first_task > buffer->first_task ||
                     (other->first_task == buffer->first_task && i > id);
        if (comes && other->first_task <= buffer->last_task &&
            other->arena == buffer->arena && !other->is_persistent)
            for (int32_t k = 0; k < n_cells(other); k++)
                at->is_closed[planned[i] / 256 + k] = true;
    }
    int32_t end = (int32_t)(at->draft->schedule.arena_bytes[buffer->arena] / 256);
    for (int32_t i = 0; i < end; i++)
        waits[i] = wait_in(at, id, i);
    for (int32_t i = 0; i + n <= end; i++) {
        out[i] = -1;
        for (int32_t k = i; k < i + n; k++)
            out[i] = waits[k] > out[i] ? waits[k] : out[i];
    }
}

/* A buffer is born where it is. */
static void be_born(struct cells *at, int32_t id)
{
    const struct mist_buffer *buffer = &at->draft->buffers[id];
    int own = (int)at->draft->tasks[buffer->first_task].stream;

    for (int32_t i = first_cell(buffer); i < first_cell(buffer) + n_cells(buffer); i++) {
        int32_t *owner = &at->owner[buffer->arena][i];
        for (int k = 0; k < MIST_N_STREAMS && *owner >= 0 && !buffer->is_persistent;
             k++) {
            int32_t last = last_use(at->draft, *owner, k);
            if (k != own && last > at->waited[own][k])
                at->waited[own][k] = last;
        }
        *owner = id;
    }
}

/*
 * No buffer waits for more than where it was planned, by the rule alone, given those before
 * it and where those to come are planned; what is received stays there. *n_waits: others
 * that would wait; *n_least: that do for the least that any place gives.
 */
static void check_waits(const struct draft *draft, const int64_t *planned, int *n_waits,
                        int *n_least)
{
    static struct cells at;
    static int32_t waits[MAX_CELLS];

    at.draft = draft;
    memset(at.owner, -1, sizeof at.owner);
    memset(at.waited, -1, sizeof at.waited);
    for (int32_t task = 0; task < draft->schedule.n_tasks; task++) {
        int own = (int)draft->tasks[task].stream;
        for (int32_t i = 0; i < draft->n_deps; i++) {
            int32_t on = draft->deps[i].on;
            int32_t *waited = &at.waited[own][draft->tasks[on].stream];
            if (draft->deps[i].task == task)
                *waited = on > *waited ? on : *waited;
        }
        for (int32_t id = 0; id < draft->schedule.n_buffers; id++) {
            const struct mist_buffer *buffer = &draft->buffers[id];
            if (buffer->first_task != task)
                continue;
            if (!buffer->is_persistent) {
                list_waits(&at, id, planned, waits);
                int32_t least = INT32_MAX, n = n_cells(buffer);
                int64_t end = draft->schedule.arena_bytes[buffer->arena] / 256;
                for (int32_t i = 0; i + n <= end; i++)
                    least = waits[i] < least ? waits[i] : least;
                int32_t wait = waits[first_cell(buffer)];
                int32_t before = waits[planned[id] / 256];
                assert_true(before < INT32_MAX && wait <= before);
                bool may_move = own != MIST_STREAM_RECEIVE;
                assert_true(may_move || buffer->offset_bytes == planned[id]);
                *n_waits += may_move && before >= 0;
                *n_least += may_move && before >= 0 && wait == least;
            }
            be_born(&at, id);
        }
    }
}

TEST(test_random)
{
    static struct draft draft;
    struct mist_random random;
    double worst_frac = 0;
    int n_needed = 0, n_holes = 0, n_waits = 0, n_least = 0;

    mist_random_init(&random, test_seed(20253));
    for (int i = 0; i < N_RANDOM; i++) {
        int64_t planned[MAX_BUFFERS], arena_bytes[MIST_N_ARENAS];
        draw(&random, &draft);
        plan_offsets(&draft, false);
        double frac = check_offsets(&draft);
        for (int32_t k = 0; k < draft.schedule.n_buffers; k++)
            planned[k] = draft.buffers[k].offset_bytes;
        memcpy(arena_bytes, draft.schedule.arena_bytes, sizeof arena_bytes);
        plan(&draft);
        assert_good(&draft);
        assert_memory_equal(arena_bytes, draft.schedule.arena_bytes, sizeof arena_bytes);
        check_waits(&draft, planned, &n_waits, &n_least);
        n_holes += frac > 0;
        worst_frac = frac > worst_frac ? frac : worst_frac;
        set_deps(&draft); /* without the waits of reuse */
        n_needed += memory_check(&draft.schedule, NULL) != MIST_OK;
        end(&draft);
    }
    printf("# %d of %d layouts need waits; %d are larger than what is live, by %.3f at "
           "worst\n",
           n_needed, N_RANDOM, n_holes, worst_frac);
    printf("# %d of %d buffers that would wait do for the least\n", n_least, n_waits);
    assert_true(n_least > n_waits * 9 / 10);
    assert_true(n_needed > N_RANDOM / 2);
    assert_true(n_holes < N_RANDOM / 10);
}

TEST_MAIN(NULL, NULL)
