/*
 * Random plans over all knobs, small enough to look at every task of every rank: what
 * every buffer holds is followed through the schedule and each read must find what it
 * needs (schedule_flow.h), in the steady iteration, the first one, the last update and an
 * evaluation; whatever overlaps is ordered; every row crosses every boundary once;
 * neighbouring ranks and groups meet in the same order; all ranks together run to the end
 * when transfers wait for each other, and mist_replay_check agrees; the memory layout
 * passes memory_check and stays near the most that is ever live.
 *
 * MIST_PLANS: how many plans (default 250); MIST_SEED: which.
 */
#include "tests/unit/test.h"

#include "core/statistics.h"
#include "sim/replay/replay.h"
#include "sim/schedule/memory_planner.h"
#include "sim/schedule/schedule.h"
#include "tests/prop/random_plan.h"
#include "tests/prop/schedule_flow.h"
#include "tests/unit/memory_check.h"
#include "tests/unit/replay_schedules.h"
#include "tests/unit/tiny_models.h"

enum { N_PLANS = 250, MAX_RATIOS = 1 << 20 };

/* Everything about one plan, and what is being looked at. */
struct world {
    struct mist_plan plan;
    struct mist_schedule *ranks[MAX_RANKS];
    int32_t n_ranks;
};

static int64_t number_of(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

static struct mist_schedule *build(const struct mist_plan *plan, int32_t rank)
{
    struct mist_schedule *schedule = NULL;
    struct mist_err err = {0};

    if (mist_schedule_build(plan, rank, 2, &schedule, &err) != MIST_OK)
        fail_msg("rank %d: %s", (int)rank, err.message);
    return schedule;
}

/* ------------------------------------------------------------------------ the order */

/* Dependencies point backwards and cross streams, and none is on what the stream has waited
 * for already; fills before. */
static void close_order(const struct mist_schedule *schedule,
                        int32_t (*before)[MIST_N_STREAMS])
{
    int32_t newest[MIST_N_STREAMS], waited[MIST_N_STREAMS][MIST_N_STREAMS], n_deps = 0;

    memset(newest, -1, sizeof newest);
    memset(waited, -1, sizeof waited);
    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        assert_int_equal(task->dep_first, n_deps);
        n_deps += task->n_deps;
        memset(before[i], -1, sizeof before[i]);
        for (int32_t k = -1; k < task->n_deps; k++) {
            int32_t on =
                k < 0 ? newest[task->stream] : schedule->deps[task->dep_first + k];
            if (k >= 0) {
                assert_in_range(on, 0, i - 1);
                assert_int_not_equal(schedule->tasks[on].stream, task->stream);
                int32_t *latest = &waited[task->stream][schedule->tasks[on].stream];
                assert_true(on > *latest);
                *latest = on;
            }
            for (int s = 0; s < MIST_N_STREAMS && on >= 0; s++)
                if (before[on][s] > before[i][s])
                    before[i][s] = before[on][s];
        }
        before[i][task->stream] = newest[task->stream] = i;
    }
    assert_int_equal(n_deps, schedule->n_deps);
}

static bool is_transfer(const struct mist_task *task)
{
    return task->kind == MIST_TASK_SEND_ACTIVATION ||
           task->kind == MIST_TASK_RECV_ACTIVATION ||
           task->kind == MIST_TASK_SEND_GRADIENT || task->kind == MIST_TASK_RECV_GRADIENT;
}

static bool is_send(const struct mist_task *task)
{
    return task->kind == MIST_TASK_SEND_ACTIVATION ||
           task->kind == MIST_TASK_SEND_GRADIENT;
}

/* Streams and groups that a kind belongs to. */
static void check_kind(const struct mist_plan *plan, const struct mist_schedule *schedule,
                       const struct mist_task *task)
{
    const struct mist_stage_plan *stage = &plan->stages[schedule->i_stage];

    switch (task->group) {
    case MIST_GROUP_NONE:
        assert_int_not_equal(mist_stream_channel(task->stream), MIST_STREAM_GPU_GPU);
        break;
    case MIST_GROUP_DP:
        assert_true(stage->dp > 1 || stage->cp > 1);
        break;
    case MIST_GROUP_CP:
        assert_true(stage->cp > 1);
        break;
    case MIST_GROUP_TP:
        assert_true(stage->tp > 1);
        break;
    case MIST_GROUP_ALL:
        assert_true(mist_plan_n_ranks(plan) > 1);
        break;
    case MIST_GROUP_PEER:
        assert_in_range(task->peer, 0, mist_plan_n_ranks(plan) - 1);
        assert_int_not_equal(task->peer, schedule->rank);
        break;
    }
    if (task->group != MIST_GROUP_NONE) {
        assert_int_equal(task->stream, !is_transfer(task) ? MIST_STREAM_GPU_GPU
                                       : is_send(task)    ? MIST_STREAM_SEND
                                                          : MIST_STREAM_RECEIVE);
        assert_true(task->bytes > 0);
    }
    if (task->group != MIST_GROUP_PEER)
        assert_int_equal(task->peer, -1);
}

/* ------------------------------------------------------------------------- transfers */

/* Rows of the whole micro-batch that a rank holds between modules. */
static void rows_of(const struct mist_plan *plan, const struct mist_schedule *schedule,
                    int64_t *first, int64_t *n)
{
    const struct mist_stage_plan *stage = &plan->stages[schedule->i_stage];

    *n =
        (int64_t)stage->micro_batch * plan->job.seq_len / (stage->cp > 1 ? stage->cp : 1);
    *first = schedule->at[MIST_AXIS_DP] * *n;
    if (stage->is_sequence_parallel) {
        *n /= stage->tp;
        *first += schedule->at[MIST_AXIS_TP] * *n;
    }
}

/* The task's partner on the other rank: the n-th of a pair's sends is the n-th of its
 * receives, of the same tag, bytes, micro-batch and rows. */
static void check_pair(const struct world *at, int32_t from, int32_t to)
{
    const struct mist_schedule *a = at->ranks[from], *b = at->ranks[to];
    int64_t row_bytes = (int64_t)4 * at->plan.model.hidden, first_a, first_b, n;
    int32_t k = 0;

    rows_of(&at->plan, a, &first_a, &n);
    rows_of(&at->plan, b, &first_b, &n);
    for (int32_t i = 0; i < a->n_tasks; i++) {
        const struct mist_task *send = &a->tasks[i];
        if (!is_transfer(send) || !is_send(send) || send->peer != to)
            continue;
        while (k < b->n_tasks && !(is_transfer(&b->tasks[k]) && !is_send(&b->tasks[k]) &&
                                   b->tasks[k].peer == from))
            k++;
        assert_true(k < b->n_tasks);
        const struct mist_task *receive = &b->tasks[k++];
        assert_int_equal(send->kind + 1, receive->kind);
        assert_int_equal(send->layer, receive->layer);
        assert_int_equal(send->micro_batch, receive->micro_batch);
        assert_int_equal(send->tag, receive->tag);
        assert_int_equal(send->bytes, receive->bytes);
        assert_int_equal(first_a * row_bytes + send->from_offset_bytes,
                         first_b * row_bytes + receive->to_offset_bytes);
    }
    for (; k < b->n_tasks; k++)
        assert_false(is_transfer(&b->tasks[k]) && !is_send(&b->tasks[k]) &&
                     b->tasks[k].peer == from);
}

/* Members of a group run the same collectives in the same order. */
static void check_collectives(const struct mist_schedule *a,
                              const struct mist_schedule *b, enum mist_group group)
{
    int32_t i = 0, k = 0, n = 0;

    for (;; i++, k++) {
        while (i < a->n_tasks && a->tasks[i].group != group)
            i++;
        while (k < b->n_tasks && b->tasks[k].group != group)
            k++;
        assert_int_equal(i < a->n_tasks, k < b->n_tasks);
        if (i >= a->n_tasks)
            return;
        assert_int_equal(a->tasks[i].kind, b->tasks[k].kind);
        assert_int_equal(a->tasks[i].layer, b->tasks[k].layer);
        assert_int_equal(a->tasks[i].slab, b->tasks[k].slab);
        assert_int_equal(a->tasks[i].part, b->tasks[k].part);
        assert_int_equal(a->tasks[i].program, b->tasks[k].program);
        assert_int_equal(a->tasks[i].micro_batch, b->tasks[k].micro_batch);
        assert_int_equal(a->tasks[i].bytes, b->tasks[k].bytes);
        assert_int_equal(a->tasks[i].tag, n);
        assert_int_equal(b->tasks[k].tag, n++);
    }
}

static bool is_member(const struct mist_schedule *a, const struct mist_schedule *b,
                      const struct mist_task *task)
{
    switch (task->group) {
    case MIST_GROUP_DP:
        return a->i_stage == b->i_stage && a->at[MIST_AXIS_TP] == b->at[MIST_AXIS_TP];
    case MIST_GROUP_TP:
        return a->i_stage == b->i_stage && a->at[MIST_AXIS_DP] == b->at[MIST_AXIS_DP] &&
               a->at[MIST_AXIS_CP] == b->at[MIST_AXIS_CP];
    case MIST_GROUP_CP:
        return a->i_stage == b->i_stage && a->at[MIST_AXIS_DP] == b->at[MIST_AXIS_DP] &&
               a->at[MIST_AXIS_TP] == b->at[MIST_AXIS_TP];
    case MIST_GROUP_ALL:
        return true;
    case MIST_GROUP_PEER:
        return b->rank == task->peer || a == b;
    default:
        return a == b;
    }
}

/* ------------------------------------------------------------------------ no deadlock */

/* What works on the tasks of a rank, each in their order. */
enum worker {
    EACH_STREAM,
    EACH_CHANNEL, /* transfers and collectives together: where a device can do no more */
    ONE_FOR_ALL,  /* a dispatcher that waits for each, as it may where ranks first meet */
    N_WORKERS
};

struct play {
    struct world *at;
    enum worker worker;
    bool *done[MAX_RANKS];
    int32_t head[MAX_RANKS][MIST_N_STREAMS]; /* next task of each worker; n_tasks: none */
};

static int worker_of(const struct play *play, enum mist_stream stream)
{
    return play->worker == EACH_STREAM    ? (int)stream
           : play->worker == EACH_CHANNEL ? (int)mist_stream_channel(stream)
                                          : 0;
}

/* Of those who meet in a task: sends meet receives. */
static int worker_of_others(const struct play *play, const struct mist_task *task)
{
    return worker_of(play, !is_transfer(task) ? task->stream
                           : is_send(task)    ? MIST_STREAM_RECEIVE
                                              : MIST_STREAM_SEND);
}

static void skip_to_stream(struct play *play, int32_t rank, int stream)
{
    const struct mist_schedule *schedule = play->at->ranks[rank];
    int32_t *i = &play->head[rank][stream];

    while (*i < schedule->n_tasks &&
           worker_of(play, schedule->tasks[*i].stream) != stream)
        ++*i;
}

/* The task at the head of a stream if nothing on its own rank holds it; -1 otherwise. */
static int32_t ready(const struct play *play, int32_t rank, int stream)
{
    const struct mist_schedule *schedule = play->at->ranks[rank];
    int32_t i = play->head[rank][stream];

    if (i >= schedule->n_tasks)
        return -1;
    for (int32_t k = 0; k < schedule->tasks[i].n_deps; k++)
        if (!play->done[rank][schedule->deps[schedule->tasks[i].dep_first + k]])
            return -1;
    return i;
}

/* Whether everybody whom the task meets is there too; sends don't end before that. */
static bool meets(const struct play *play, int32_t rank, const struct mist_task *task)
{
    const struct world *at = play->at;

    for (int32_t other = 0; other < at->n_ranks; other++) {
        if (other == rank || !is_member(at->ranks[rank], at->ranks[other], task))
            continue;
        int32_t i = ready(play, other, worker_of_others(play, task));
        if (i < 0)
            return false;
        const struct mist_task *theirs = &at->ranks[other]->tasks[i];
        if (theirs->group != task->group || theirs->tag != task->tag ||
            (task->group == MIST_GROUP_PEER && theirs->peer != rank))
            return false;
    }
    return true;
}

static void finish(struct play *play, int32_t rank, int stream)
{
    int32_t i = play->head[rank][stream]++;

    play->done[rank][i] = true;
    skip_to_stream(play, rank, stream);
}

/* Ends what can end; a transfer or collective ends on all its ranks at once. */
static int32_t sweep(struct play *play)
{
    int32_t n = 0;

    for (int32_t rank = 0; rank < play->at->n_ranks; rank++) {
        for (int stream = 0; stream < MIST_N_STREAMS; stream++) {
            int32_t i = ready(play, rank, stream);
            if (i < 0)
                continue;
            const struct mist_schedule *mine = play->at->ranks[rank];
            const struct mist_task *task = &mine->tasks[i];
            if (task->group != MIST_GROUP_NONE && !meets(play, rank, task))
                continue;
            for (int32_t k = 0; k < play->at->n_ranks; k++)
                if (is_member(mine, play->at->ranks[k], task)) {
                    finish(play, k, k == rank ? stream : worker_of_others(play, task));
                    n++;
                }
        }
    }
    return n;
}

static void check_no_deadlock(struct world *at, enum worker worker)
{
    struct play play = {.at = at, .worker = worker};
    int32_t n_left = 0, n_done = 1;

    for (int32_t rank = 0; rank < at->n_ranks; rank++) {
        play.done[rank] = calloc((size_t)at->ranks[rank]->n_tasks, sizeof(bool));
        assert_non_null(play.done[rank]);
        for (int stream = 0; stream < MIST_N_STREAMS; stream++)
            skip_to_stream(&play, rank, stream);
        n_left += at->ranks[rank]->n_tasks;
    }
    for (; n_left > 0 && n_done > 0; n_left -= n_done)
        n_done = sweep(&play);
    assert_int_equal(n_left, 0);
    for (int32_t rank = 0; rank < at->n_ranks; rank++)
        free(play.done[rank]);
}

/* ------------------------------------------------------------------- memory, identity */

/* arena / most that is live at once; live counted buffer by buffer. */
static double check_memory(const struct mist_schedule *schedule)
{
    int64_t *live = malloc((size_t)schedule->n_tasks * sizeof *live), most = 0;
    struct mist_err err = {0};

    assert_non_null(live);
    must(memory_check(schedule, &err), &err);
    mist_memory_live(schedule, MIST_ARENA_DEVICE, live);
    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        int64_t sum = 0;
        for (int32_t k = 0; k < schedule->n_buffers; k++) {
            const struct mist_buffer *buffer = &schedule->buffers[k];
            if (buffer->arena == MIST_ARENA_DEVICE && buffer->first_task <= i &&
                i <= buffer->last_task)
                sum += (buffer->size_bytes + 255) / 256 * 256;
        }
        assert_int_equal(live[i], sum);
        most = sum > most ? sum : most;
    }
    free(live);
    assert_true(schedule->arena_bytes[MIST_ARENA_DEVICE] >= most);
    return (double)schedule->arena_bytes[MIST_ARENA_DEVICE] / (double)most;
}

static void check_same_task(const struct mist_task *a, const struct mist_task *b)
{
    assert_true(
        a->kind == b->kind && a->stream == b->stream && a->layer == b->layer &&
        a->micro_batch == b->micro_batch && a->cost == b->cost &&
        a->program == b->program && a->part == b->part && a->slab == b->slab &&
        a->zeroes == b->zeroes && a->overwrites == b->overwrites &&
        a->group == b->group && a->peer == b->peer && a->tag == b->tag &&
        a->bytes == b->bytes && a->from_offset_bytes == b->from_offset_bytes &&
        a->to_offset_bytes == b->to_offset_bytes && a->n_elements == b->n_elements &&
        a->n_zeroed_elements == b->n_zeroed_elements && a->dep_first == b->dep_first &&
        a->n_deps == b->n_deps && a->is_update == b->is_update &&
        a->feeds_update == b->feeds_update && a->is_forward == b->is_forward);
    assert_memory_equal(a->buffers, b->buffers, sizeof a->buffers);
}

static void check_same_buffer(const struct mist_buffer *a, const struct mist_buffer *b)
{
    assert_true(a->arena == b->arena && a->role == b->role && a->layer == b->layer &&
                a->micro_batch == b->micro_batch &&
                a->is_persistent == b->is_persistent && a->size_bytes == b->size_bytes &&
                a->first_task == b->first_task && a->last_task == b->last_task &&
                a->offset_bytes == b->offset_bytes);
}

/* Field by field: the bytes between fields mean nothing. */
static void check_same(const struct mist_schedule *a, const struct mist_schedule *b)
{
    assert_int_equal(a->n_tasks, b->n_tasks);
    assert_int_equal(a->n_deps, b->n_deps);
    assert_int_equal(a->n_buffers, b->n_buffers);
    assert_int_equal(a->n_costs, b->n_costs);
    assert_memory_equal(a->deps, b->deps, (size_t)a->n_deps * sizeof *a->deps);
    assert_memory_equal(a->arena_bytes, b->arena_bytes, sizeof a->arena_bytes);
    for (int32_t i = 0; i < a->n_tasks; i++)
        check_same_task(&a->tasks[i], &b->tasks[i]);
    for (int32_t i = 0; i < a->n_buffers; i++)
        check_same_buffer(&a->buffers[i], &b->buffers[i]);
}

/* Tasks with one cost number cost the same, and numbers are used without gaps. */
static void check_costs(const struct mist_plan *plan,
                        const struct mist_schedule *schedule)
{
    for (int32_t cost = 0; cost < schedule->n_costs; cost++) {
        const struct mist_task *first = NULL;
        for (int32_t i = 0; i < schedule->n_tasks; i++) {
            const struct mist_task *task = &schedule->tasks[i];
            assert_in_range(task->cost, 0, schedule->n_costs - 1);
            if (task->cost != cost)
                continue;
            first = first ? first : task;
            assert_int_equal(task->kind, first->kind);
            assert_int_equal(task->bytes, first->bytes);
            assert_int_equal(task->program, first->program);
            assert_int_equal(task->part, first->part);
            assert_int_equal(task->n_elements, first->n_elements);
            assert_int_equal(task->n_zeroed_elements, first->n_zeroed_elements);
            if (task->layer >= 0)
                assert_int_equal(mist_schedule_layer_kind(&plan->model, task->layer),
                                 mist_schedule_layer_kind(&plan->model, first->layer));
        }
        assert_non_null(first);
    }
}

/* ------------------------------------------------------------------------------ tests */

static double check_rank(const struct world *at, int32_t rank)
{
    const struct mist_schedule *schedule = at->ranks[rank];
    int32_t(*before)[MIST_N_STREAMS] = malloc((size_t)schedule->n_tasks * sizeof *before);

    assert_non_null(before);
    close_order(schedule, before);
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        check_kind(&at->plan, schedule, &schedule->tasks[i]);
    for (int walk = 0; walk < N_WALKS; walk++)
        check_flow(&at->plan, schedule, before, (enum walk)walk);
    free(before);
    check_costs(&at->plan, schedule);
    if (rank == 0) {
        struct mist_schedule *again = build(&at->plan, rank);
        check_same(schedule, again);
        mist_schedule_free(again);
    }
    return check_memory(schedule);
}

static int32_t check_plan(struct world *at, double *ratios)
{
    struct mist_err err = {0};

    at->n_ranks = mist_plan_n_ranks(&at->plan);
    for (int32_t rank = 0; rank < at->n_ranks; rank++)
        at->ranks[rank] = build(&at->plan, rank);
    for (int32_t rank = 0; rank < at->n_ranks; rank++) {
        const struct mist_schedule *mine = at->ranks[rank];
        ratios[rank] = check_rank(at, rank);
        for (int32_t other = 0; other < at->n_ranks; other++) {
            const struct mist_schedule *theirs = at->ranks[other];
            check_pair(at, rank, other);
            if (mine->i_stage == theirs->i_stage &&
                mine->at[MIST_AXIS_TP] == theirs->at[MIST_AXIS_TP])
                check_collectives(mine, theirs, MIST_GROUP_DP);
            if (mine->i_stage == theirs->i_stage &&
                mine->at[MIST_AXIS_DP] == theirs->at[MIST_AXIS_DP] &&
                mine->at[MIST_AXIS_CP] == theirs->at[MIST_AXIS_CP])
                check_collectives(mine, theirs, MIST_GROUP_TP);
            if (mine->i_stage == theirs->i_stage &&
                mine->at[MIST_AXIS_DP] == theirs->at[MIST_AXIS_DP] &&
                mine->at[MIST_AXIS_TP] == theirs->at[MIST_AXIS_TP])
                check_collectives(mine, theirs, MIST_GROUP_CP);
            check_collectives(mine, theirs, MIST_GROUP_ALL);
        }
    }
    must(check_schedules(&at->plan, at->ranks, at->n_ranks, &err), &err);
    for (int worker = 0; worker < N_WORKERS; worker++)
        check_no_deadlock(at, (enum worker)worker);
    for (int32_t rank = 0; rank < at->n_ranks; rank++)
        mist_schedule_free(at->ranks[rank]);
    return at->n_ranks;
}

/* Persistent bytes of a rank's parameters, gradients and optimizer state. */
static int64_t kept_bytes(const struct mist_schedule *schedule)
{
    int64_t sum = 0;

    for (int32_t i = 0; i < schedule->n_buffers; i++)
        if (schedule->buffers[i].slab >= 0)
            sum += schedule->buffers[i].size_bytes;
    return sum;
}

/* Gradients in bf16: 16 bytes for each parameter instead of 18, and half the bytes to
 * sum over ranks. */
TEST(test_gradient_bytes)
{
    static struct mist_plan plan;

    plan = (struct mist_plan){
        .job = {.global_batch = 4, .seq_len = 32}, .n_micro_batches = 1, .n_stages = 1};
    assert_int_equal(mist_model_load_preset("gpt3-demo", &plan.model, NULL), MIST_OK);
    plan.job.dtype = MIST_DTYPE_BF16;
    plan.stages[0] = mist_tiny_stage(plan.model.n_layers, 2, 2, 1);
    plan.stages[0].offload_gradients = 0.5;
    for (int i = 0; i < 2; i++) {
        int64_t n_elements = 0, n_reduced = 0, element_bytes = i ? 2 : 4;
        plan.job.gradient_dtype = i ? MIST_DTYPE_BF16 : MIST_DTYPE_FP32;
        struct mist_schedule *schedule = build(&plan, 0);
        for (int32_t m = 0; m < schedule->n_modules; m++)
            for (int32_t s = 0; s < schedule->storage[m].n_slabs; s++)
                n_elements += schedule->storage[m].slabs[s].n_elements;
        for (int32_t t = 0; t < schedule->n_tasks; t++)
            if (schedule->tasks[t].kind == MIST_TASK_REDUCE_GRADIENT)
                n_reduced += schedule->tasks[t].bytes / element_bytes;
        assert_int_equal(kept_bytes(schedule), (14 + element_bytes) * n_elements);
        assert_int_equal(n_reduced, n_elements);
        mist_schedule_free(schedule);
    }
}

/* Whether a computation names a buffer. */
static bool is_computed_with(const struct mist_schedule *schedule, int32_t buffer)
{
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        for (int r = 0; r < MIST_N_ROLES; r++)
            if (schedule->tasks[i].stream == MIST_STREAM_COMPUTE &&
                schedule->tasks[i].buffers[r] == buffer)
                return true;
    return false;
}

/* With everything in the host: no weights come in vain, not even where a module's forward
 * follows its backward; and no computation waits until the gradients of the pass before it
 * have left. */
TEST(test_copies_overlap)
{
    static struct mist_plan plan;

    plan = (struct mist_plan){
        .job = {.global_batch = 8, .seq_len = 32}, .n_micro_batches = 8, .n_stages = 2};
    assert_int_equal(mist_model_load_preset("gpt3-demo", &plan.model, NULL), MIST_OK);
    for (int i = 0; i < 2; i++) {
        plan.stages[i] = mist_tiny_stage(plan.model.n_layers / 2, 1, 1, 1);
        plan.stages[i].offload_weights = 1;
        plan.stages[i].offload_gradients = 1;
    }
    for (int i = 0; i < 2; i++) {
        struct mist_schedule *schedule = build(&plan, i);
        const struct mist_task *before = NULL; /* computation */
        for (int32_t t = 0; t < schedule->n_tasks; t++) {
            const struct mist_task *task = &schedule->tasks[t];
            if (task->kind == MIST_TASK_SWAP_IN_WEIGHT)
                assert_true(is_computed_with(schedule, task->buffers[MIST_ROLE_OUTPUT]));
            for (int32_t k = 0;
                 k < task->n_deps && before && task->stream == MIST_STREAM_COMPUTE; k++) {
                const struct mist_task *on =
                    &schedule->tasks[schedule->deps[task->dep_first + k]];
                assert_false(on->kind == MIST_TASK_SWAP_OUT_GRADIENT &&
                             on->layer == before->layer &&
                             on->micro_batch == before->micro_batch);
            }
            before = task->stream == MIST_STREAM_COMPUTE ? task : before;
        }
        mist_schedule_free(schedule);
    }
}

TEST(test_random_plans)
{
    static struct world world;
    static double ratios[MAX_RATIOS];
    struct mist_random random;
    uint64_t seed = test_seed(20252);
    int64_t n_plans = number_of("MIST_PLANS", N_PLANS);
    int32_t n = 0;

    for (int64_t i = 0; i < n_plans && n + MAX_RANKS < MAX_RATIOS; i++) {
        mist_random_init(&random, seed + (uint64_t)i); /* plan i alone: seed + i */
        while (!draw_plan(&random, &world.plan))
            ;
        if (getenv("MIST_PLANS")) {
            printf("# plan of seed %" PRIu64 "\n", seed + (uint64_t)i);
            print_plan(&world.plan);
            fflush(stdout);
        }
        n += check_plan(&world, ratios + n);
    }
    assert_true(n > 0);
    mist_sort_doubles(ratios, (size_t)n);
    printf("# %d ranks of %d plans: arena / most live: median %.4f, 95 %% %.4f, worst "
           "%.4f\n",
           /* cppcheck-suppress negativeIndex ; n > 0 */
           (int)n, (int)n_plans, ratios[n / 2], ratios[n * 19 / 20], ratios[n - 1]);
    /* what fragmentation costs: 12,000 plans had 1.05 and 1.28 */
    assert_true(ratios[n / 2] < 1.01 && ratios[n * 19 / 20] < 1.1);
    assert_true(ratios[n - 1] < 1.35);
}

TEST_MAIN(NULL, NULL)
