/*
 * Random plans, small enough to look at every task of every rank: each piece of work is
 * there exactly once and names what it needs; whoever writes a buffer is ordered with
 * everybody else who names it; neighbouring ranks send and receive the same bytes, every
 * sample once; all ranks together run to the end when transfers wait for each other; the
 * memory layout passes mist_memory_check and stays near the most that is ever live.
 */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "core/random.h"
#include "sim/memory_planner.h"
#include "sim/schedule.h"
#include "tests/unit/tiny_models.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PLANS = 300, MAX_RANKS = 16, MAX_RATIOS = N_PLANS * MAX_RANKS };

/* Everything about one plan, and what is being looked at. */
struct world {
    struct mist_plan plan;
    struct mist_schedule *ranks[MAX_RANKS];
    int32_t n_ranks;
    const struct mist_schedule *schedule; /* the rank that is looked at */
    int32_t (*before)[MIST_N_STREAMS];    /* of that rank: the closure of its order */
};

static uint64_t get_seed(void)
{
    const char *text = getenv("MIST_SEED");
    return text ? strtoull(text, NULL, 10) : 20252;
}

static int pick(struct mist_random *random, int low, int high)
{
    return low + (int)mist_random_below(random, high - low + 1);
}

/* ---------------------------------------------------------------------------- plans */

/* dp and micro_batch of every stage divide the samples of a micro-batch differently. */
static void draw_plan(struct mist_random *random, struct mist_plan *plan)
{
    static const int samples_of[] = {1, 2, 4, 4, 6, 8};
    int n_samples = samples_of[pick(random, 0, 5)], n_layers = 0;
    bool same_dp = pick(random, 0, 3) == 0;
    struct mist_err err = {0};

    *plan = (struct mist_plan){.n_stages = pick(random, 1, 4),
                               .n_micro_batches = pick(random, 1, 8)};
    for (int i = 0; i < plan->n_stages; i++) {
        struct mist_stage_plan *stage = &plan->stages[i];
        int dp = same_dp && i > 0 ? plan->stages[0].dp : pick(random, 1, 4);
        while (n_samples % dp != 0)
            dp--;
        *stage = (struct mist_stage_plan){.n_layers = pick(random, 1, 4),
                                          .n_nodes = 1,
                                          .n_devices = dp,
                                          .dp = dp,
                                          .tp = 1,
                                          .micro_batch = n_samples / dp,
                                          .shards_optimizer = pick(random, 0, 1)};
        stage->n_checkpointed = pick(random, 0, stage->n_layers);
        n_layers += stage->n_layers;
    }
    plan->model = mist_tiny_model(
        pick(random, 0, 1) ? MIST_FAMILY_LLAMA : MIST_FAMILY_GPT, n_layers);
    plan->job = (struct mist_job){.global_batch = n_samples * plan->n_micro_batches,
                                  .seq_len = pick(random, 1, 40)};
    if (mist_plan_check(plan, &err) != MIST_OK)
        fail_msg("%s", err.message);
}

static struct mist_schedule *build(const struct mist_catalog *catalog,
                                   const struct mist_plan *plan, int32_t rank)
{
    struct mist_schedule *schedule = NULL;
    struct mist_err err = {0};

    if (mist_schedule_build(catalog, plan, rank, 2, &schedule, &err) != MIST_OK)
        fail_msg("rank %d: %s", (int)rank, err.message);
    return schedule;
}

static bool is_last_stage(const struct mist_plan *plan, int32_t i_stage)
{
    return i_stage == plan->n_stages - 1;
}

/* ------------------------------------------------------------------------ the order */

static bool is_before(const struct world *at, int32_t a, int32_t b)
{
    return at->before[b][at->schedule->tasks[a].stream] >= a;
}

/* Dependencies point backwards and cross streams; fills before. */
static void close_order(struct world *at, const struct mist_schedule *schedule)
{
    int32_t newest[MIST_N_STREAMS] = {-1, -1, -1, -1}, n_deps = 0;

    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        assert_int_equal(task->dep_first, n_deps);
        n_deps += task->n_deps;
        memset(at->before[i], -1, sizeof at->before[i]);
        for (int32_t k = -1; k < task->n_deps; k++) {
            int32_t on =
                k < 0 ? newest[task->stream] : schedule->deps[task->dep_first + k];
            if (k >= 0) {
                assert_in_range(on, 0, i - 1);
                assert_int_not_equal(schedule->tasks[on].stream, task->stream);
            }
            for (int s = 0; s < MIST_N_STREAMS && on >= 0; s++)
                if (at->before[on][s] > at->before[i][s])
                    at->before[i][s] = at->before[on][s];
        }
        at->before[i][task->stream] = newest[task->stream] = i;
    }
    assert_int_equal(n_deps, schedule->n_deps);
}

/* The only task of this kind, layer and micro-batch; -1: there is none. */
static int32_t find(const struct mist_schedule *schedule, enum mist_task_kind kind,
                    int32_t layer, int32_t micro_batch)
{
    int32_t found = -1;

    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        if (task->kind != kind || task->layer != layer ||
            task->micro_batch != micro_batch)
            continue;
        assert_int_equal(found, -1);
        found = i;
    }
    return found;
}

/* Every task of the kind, layer and micro-batch is ordered with task: before or after. */
static int32_t check_all(const struct world *at, enum mist_task_kind kind, int32_t layer,
                         int32_t micro_batch, int32_t task, bool is_after)
{
    const struct mist_schedule *schedule = at->schedule;
    int32_t n = 0;

    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *other = &schedule->tasks[i];
        if (other->kind != kind || other->layer != layer ||
            other->micro_batch != micro_batch)
            continue;
        assert_true(is_after ? is_before(at, task, i) : is_before(at, i, task));
        n++;
    }
    return n;
}

static void assert_order(const struct world *at, int32_t first, int32_t second)
{
    assert_true(first >= 0 && second >= 0 && first != second);
    assert_true(is_before(at, first, second));
}

/* ----------------------------------------------------------------- work that must be */

/* The micro-batch's computation on one module, in the order that its data needs. */
static void check_module(const struct world *at, const struct mist_schedule *schedule,
                         int32_t layer, int32_t mb, int32_t first, int32_t last)
{
    const struct mist_plan *plan = &at->plan;
    int32_t n_layers = plan->model.n_layers;
    int32_t forward = find(schedule, MIST_TASK_FORWARD, layer, mb);
    int32_t backward = find(schedule, MIST_TASK_BACKWARD, layer, mb);
    int32_t recompute = find(schedule, MIST_TASK_RECOMPUTE, layer, mb);
    int32_t first_block = mist_plan_first_layer(plan, schedule->i_stage);
    bool is_checkpointed =
        layer >= first_block &&
        layer - first_block < plan->stages[schedule->i_stage].n_checkpointed;
    int32_t load = find(schedule, MIST_TASK_LOAD_BATCH, -1, -1);

    assert_order(at, forward, backward);
    assert_int_equal(recompute >= 0, is_checkpointed);
    if (recompute >= 0) {
        assert_order(at, forward, recompute);
        assert_int_equal(recompute, backward - 1);
    }
    if (layer > first)
        assert_order(at, find(schedule, MIST_TASK_FORWARD, layer - 1, mb), forward);
    if (layer < last)
        assert_order(at, find(schedule, MIST_TASK_BACKWARD, layer + 1, mb), backward);
    if (layer == 0 || layer == n_layers + 1)
        assert_order(at, load, forward);
    int32_t n = check_all(at, MIST_TASK_RECV_ACTIVATION, layer, mb, forward, 0);
    assert_int_equal(n > 0, layer == first && layer > 0);
    n = check_all(at, MIST_TASK_SEND_ACTIVATION, layer + 1, mb, forward, 1);
    assert_int_equal(n > 0, layer == last && layer <= n_layers);
    n = check_all(at, MIST_TASK_RECV_GRADIENT, layer + 1, mb, backward, 0);
    assert_int_equal(n > 0, layer == last && layer <= n_layers);
    n = check_all(at, MIST_TASK_SEND_GRADIENT, layer, mb, backward, 1);
    assert_int_equal(n > 0, layer == first && layer > 0);
}

/* Update, gather and reduction of a module; returns how many tasks these are. */
static int32_t check_gradients(const struct world *at,
                               const struct mist_schedule *schedule, int32_t layer)
{
    const struct mist_stage_plan *stage = &at->plan.stages[schedule->i_stage];
    int32_t n = at->plan.n_micro_batches;
    int32_t optimizer = find(schedule, MIST_TASK_OPTIMIZER, layer, -1);
    int32_t gather = find(schedule, MIST_TASK_GATHER_PARAMETER, layer, -1);
    int32_t reduce = find(schedule, MIST_TASK_REDUCE_GRADIENT, layer, n - 1);
    int32_t forward = find(schedule, MIST_TASK_FORWARD, layer, 0);

    assert_order(at, optimizer, forward);
    assert_true(schedule->tasks[optimizer].is_update);
    assert_int_equal(gather >= 0, stage->shards_optimizer && stage->dp > 1);
    assert_int_equal(reduce >= 0, stage->dp > 1);
    if (gather >= 0) {
        assert_order(at, optimizer, gather);
        assert_order(at, gather, forward);
        assert_true(schedule->tasks[gather].is_update);
    }
    if (reduce >= 0)
        assert_order(at, find(schedule, MIST_TASK_BACKWARD, layer, n - 1), reduce);
    return 1 + (gather >= 0) + (reduce >= 0);
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

/* The tasks looked for are all there are. */
static void check_work(const struct world *at, const struct mist_schedule *schedule)
{
    int32_t first, last, n_expected = 0, n_transfers = 0;

    mist_schedule_stage_layers(&at->plan, schedule->i_stage, &first, &last);
    assert_int_equal(first == 0, schedule->i_stage == 0);
    assert_int_equal(last == at->plan.model.n_layers + 1,
                     is_last_stage(&at->plan, schedule->i_stage));
    for (int32_t layer = first; layer <= last; layer++) {
        n_expected += check_gradients(at, schedule, layer);
        for (int32_t mb = 0; mb < at->plan.n_micro_batches; mb++) {
            check_module(at, schedule, layer, mb, first, last);
            n_expected +=
                2 + mist_schedule_is_checkpointed(&at->plan, schedule->i_stage, layer);
        }
    }
    n_expected += first == 0 || last == at->plan.model.n_layers + 1;
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        n_transfers += is_transfer(&schedule->tasks[i]);
    assert_int_equal(n_expected + n_transfers, schedule->n_tasks);
}

/* ----------------------------------------------------------------------------- roles */

/* One letter per role of a task: r read, w written, u both, - absent; W
 * written and c read where there is one. In the order of
 * enum mist_role: input output saved scratch weights gradients state grad_output
 * grad_input tokens targets constant. */
static const char *access_of(enum mist_task_kind kind, enum mist_layer_kind layer)
{
    static const char *const programs[3][MIST_N_LAYER_KINDS] = {
        /* forward */
        {"-w-Wr----r--", "rwwwr------c", "r-wwru----r-"},
        /* recompute */
        {NULL, "r-wwr------c", NULL},
        /* backward */
        {"---Wru-r-r--", "r-rwru-rw--c", "r-rwru--w-r-"},
    };

    switch (kind) {
    case MIST_TASK_FORWARD:
        return programs[0][layer];
    case MIST_TASK_RECOMPUTE:
        return programs[1][layer];
    case MIST_TASK_BACKWARD:
        return programs[2][layer];
    case MIST_TASK_OPTIMIZER:
        return "----uuu-----";
    case MIST_TASK_GATHER_PARAMETER:
        return "----u-------";
    case MIST_TASK_REDUCE_GRADIENT:
        return "-----u------";
    case MIST_TASK_SEND_ACTIVATION:
    case MIST_TASK_SEND_GRADIENT:
        return "r-----------";
    case MIST_TASK_RECV_ACTIVATION:
    case MIST_TASK_RECV_GRADIENT:
        return "-w----------";
    default: /* load */
        return "---------WW-";
    }
}

static enum mist_stream stream_of(enum mist_task_kind kind)
{
    switch (kind) {
    case MIST_TASK_LOAD_BATCH:
        return MIST_STREAM_HOST_TO_DEVICE;
    case MIST_TASK_FORWARD:
    case MIST_TASK_RECOMPUTE:
    case MIST_TASK_BACKWARD:
    case MIST_TASK_OPTIMIZER:
        return MIST_STREAM_COMPUTE;
    default:
        return MIST_STREAM_GPU_GPU;
    }
}

static bool is_written(const struct world *at, const struct mist_task *task, int role)
{
    enum mist_layer_kind kind =
        task->layer < 0 ? MIST_LAYER_EMBEDDING
                        : mist_schedule_layer_kind(&at->plan.model, task->layer);

    return strchr("wuW", access_of(task->kind, kind)[role]) != NULL;
}

static void check_roles(const struct world *at, const struct mist_schedule *schedule,
                        const struct mist_task *task)
{
    enum mist_layer_kind kind =
        task->layer < 0 ? MIST_LAYER_EMBEDDING
                        : mist_schedule_layer_kind(&at->plan.model, task->layer);
    const char *access = access_of(task->kind, kind);
    bool is_llama = at->plan.model.family == MIST_FAMILY_LLAMA;

    assert_non_null(access);
    assert_int_equal(task->stream, stream_of(task->kind));
    for (int k = 0; k < MIST_N_ROLES; k++) {
        int32_t id = task->buffers[k];
        assert_in_range(id + 1, 0, schedule->n_buffers);
        if (access[k] == 'c')
            assert_int_equal(id >= 0, is_llama);
        else if (access[k] != 'W')
            assert_int_equal(id >= 0, access[k] != '-');
    }
    if (task->kind != MIST_TASK_LOAD_BATCH)
        return;
    assert_int_equal(task->buffers[MIST_ROLE_TOKENS] >= 0, schedule->i_stage == 0);
    assert_int_equal(task->buffers[MIST_ROLE_TARGETS] >= 0,
                     is_last_stage(&at->plan, schedule->i_stage));
}

/* The buffer under a role: as large as needed, and the one of this module and batch. */
static void check_sizes(const struct world *at, const struct mist_schedule *schedule,
                        const struct mist_task *task)
{
    const struct mist_stage_plan *stage = &at->plan.stages[schedule->i_stage];
    const struct mist_layer_layout *layout =
        &schedule->layouts[task->layer < 0
                               ? MIST_LAYER_BLOCK
                               : mist_schedule_layer_kind(&at->plan.model, task->layer)];
    int64_t tokens = (int64_t)stage->micro_batch * at->plan.job.seq_len;
    int64_t u = 4 * tokens * at->plan.model.hidden;
    int64_t n_shards = stage->shards_optimizer ? stage->dp : 1;
    int64_t padded = 4 * mist_schedule_padded_elements(layout->n_parameters, stage->dp);
    int64_t batch = 4 * tokens * at->plan.n_micro_batches;
    bool is_backward = task->kind == MIST_TASK_BACKWARD;
    const int64_t sizes[MIST_N_ROLES] = {u,
                                         u,
                                         layout->saved_bytes,
                                         is_backward ? layout->scratch_backward_bytes
                                                     : layout->scratch_forward_bytes,
                                         padded,
                                         padded,
                                         2 * padded / n_shards,
                                         u,
                                         u,
                                         batch,
                                         batch,
                                         layout->constant_bytes};

    assert_true(padded >= 4 * layout->n_parameters && padded % (64 * stage->dp) == 0);
    assert_true(padded < 4 * layout->n_parameters + 64 * stage->dp);
    for (int k = 0; k < MIST_N_ROLES; k++) {
        if (task->buffers[k] < 0)
            continue;
        const struct mist_buffer *buffer = &schedule->buffers[task->buffers[k]];
        assert_int_equal(buffer->size_bytes, sizes[k]);
        assert_int_equal(buffer->is_persistent,
                         (k >= MIST_ROLE_WEIGHTS && k <= MIST_ROLE_STATE) ||
                             k >= MIST_ROLE_TOKENS);
        if (k >= MIST_ROLE_WEIGHTS && k <= MIST_ROLE_STATE)
            assert_int_equal(buffer->layer, task->layer);
        if (!buffer->is_persistent)
            assert_int_equal(buffer->micro_batch, task->micro_batch);
    }
    if (task->group == MIST_GROUP_DP)
        assert_int_equal(task->bytes, padded);
}

/* Modules hand each other the same buffers. */
static void check_flow(const struct world *at, const struct mist_schedule *schedule,
                       const struct mist_task *task)
{
    int32_t layer = task->layer, mb = task->micro_batch, first, last;
    const struct mist_task *tasks = schedule->tasks;

    mist_schedule_stage_layers(&at->plan, schedule->i_stage, &first, &last);
    if (task->kind == MIST_TASK_FORWARD && layer > first)
        assert_int_equal(
            task->buffers[MIST_ROLE_INPUT],
            tasks[find(schedule, MIST_TASK_FORWARD, layer - 1, mb)].buffers[1]);
    if (task->kind != MIST_TASK_BACKWARD)
        return;
    const struct mist_task *forward =
        &tasks[find(schedule, MIST_TASK_FORWARD, layer, mb)];
    int32_t recompute = find(schedule, MIST_TASK_RECOMPUTE, layer, mb);
    assert_int_equal(task->buffers[MIST_ROLE_INPUT], forward->buffers[MIST_ROLE_INPUT]);
    if (recompute >= 0) {
        assert_int_equal(tasks[recompute].buffers[MIST_ROLE_INPUT],
                         forward->buffers[MIST_ROLE_INPUT]);
        forward = &tasks[recompute];
    }
    assert_int_equal(task->buffers[MIST_ROLE_SAVED], forward->buffers[MIST_ROLE_SAVED]);
    if (layer < last)
        assert_int_equal(task->buffers[MIST_ROLE_GRAD_OUTPUT],
                         tasks[find(schedule, MIST_TASK_BACKWARD, layer + 1, mb)]
                             .buffers[MIST_ROLE_GRAD_INPUT]);
}

/* Two tasks that name a buffer are ordered unless both only read it, or receive into
 * different parts of it (which are on one stream anyway). */
static void check_races(const struct world *at, const struct mist_schedule *schedule)
{
    for (int32_t id = 0; id < schedule->n_buffers; id++) {
        int32_t last_writer = -1, readers[MIST_N_STREAMS] = {-1, -1, -1, -1};
        for (int32_t i = 0; i < schedule->n_tasks; i++) {
            const struct mist_task *task = &schedule->tasks[i];
            for (int k = 0; k < MIST_N_ROLES; k++) {
                if (task->buffers[k] != id)
                    continue;
                assert_true(last_writer < 0 || is_before(at, last_writer, i));
                assert_true(last_writer >= 0 || is_written(at, task, k) ||
                            schedule->buffers[id].is_persistent);
                for (int s = 0; s < MIST_N_STREAMS && is_written(at, task, k); s++)
                    assert_true(readers[s] < 0 || is_before(at, readers[s], i));
                if (is_written(at, task, k))
                    last_writer = i;
                readers[task->stream] = i;
            }
        }
    }
}

/* -------------------------------------------------------------------------- transfers */

static const struct mist_task *next_transfer(const struct mist_schedule *schedule,
                                             int32_t peer, bool sends, int32_t *from)
{
    while (*from < schedule->n_tasks) {
        const struct mist_task *task = &schedule->tasks[(*from)++];
        if (is_transfer(task) && task->peer == peer && is_send(task) == sends)
            return task;
    }
    return NULL;
}

/* First sample of the whole micro-batch that a transfer moves. */
static int64_t global_sample(const struct world *at, const struct mist_schedule *schedule,
                             const struct mist_task *task)
{
    int64_t sample_bytes = (int64_t)4 * at->plan.job.seq_len * at->plan.model.hidden;

    assert_int_equal(task->slice_offset_bytes % sample_bytes, 0);
    return (int64_t)schedule->i_dp * at->plan.stages[schedule->i_stage].micro_batch +
           task->slice_offset_bytes / sample_bytes;
}

/* What one rank sends another and what that one receives, side by side. */
static void check_pair(const struct world *at, int32_t from, int32_t to)
{
    const struct mist_schedule *a = at->ranks[from], *b = at->ranks[to];
    int32_t i = 0, k = 0;

    for (;;) {
        const struct mist_task *send = next_transfer(a, to, true, &i);
        const struct mist_task *receive = next_transfer(b, from, false, &k);
        assert_int_equal(send != NULL, receive != NULL);
        if (!send)
            return;
        assert_int_equal(send->kind + 1, receive->kind);
        assert_int_equal(abs(a->i_stage - b->i_stage), 1);
        assert_int_equal(send->kind == MIST_TASK_SEND_ACTIVATION,
                         a->i_stage < b->i_stage);
        assert_int_equal(send->layer, receive->layer);
        assert_int_equal(send->micro_batch, receive->micro_batch);
        assert_int_equal(send->tag, receive->tag);
        assert_int_equal(send->bytes, receive->bytes);
        assert_int_equal(send->group, MIST_GROUP_PEER);
        assert_int_equal(receive->group, MIST_GROUP_PEER);
        assert_int_equal(global_sample(at, a, send), global_sample(at, b, receive));
    }
}

/*
 * The slices of a micro-batch in one direction cover the buffer once: sums and disjoint.
 */
static void check_cover(const struct mist_schedule *schedule, int32_t first)
{
    const struct mist_task *tasks = schedule->tasks, *task = &tasks[first];
    int32_t id = task->buffers[is_send(task) ? MIST_ROLE_INPUT : MIST_ROLE_OUTPUT];
    int64_t sum = 0;

    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *other = &tasks[i];
        if (other->kind != task->kind || other->micro_batch != task->micro_batch)
            continue;
        assert_int_equal(
            other->buffers[is_send(task) ? MIST_ROLE_INPUT : MIST_ROLE_OUTPUT], id);
        assert_true(i == first ||
                    other->slice_offset_bytes >= task->slice_offset_bytes + task->bytes ||
                    task->slice_offset_bytes >= other->slice_offset_bytes + other->bytes);
        assert_true(other->slice_offset_bytes >= 0 && other->bytes > 0);
        sum += other->bytes;
    }
    assert_int_equal(sum, schedule->buffers[id].size_bytes);
}

/* Ranks of a stage run the same collectives in the same order. */
static void check_collectives(const struct mist_schedule *a,
                              const struct mist_schedule *b)
{
    int32_t i = 0, k = 0, n = 0;

    for (;; i++, k++) {
        while (i < a->n_tasks && a->tasks[i].group != MIST_GROUP_DP)
            i++;
        while (k < b->n_tasks && b->tasks[k].group != MIST_GROUP_DP)
            k++;
        assert_int_equal(i < a->n_tasks, k < b->n_tasks);
        if (i >= a->n_tasks)
            return;
        assert_int_equal(a->tasks[i].kind, b->tasks[k].kind);
        assert_int_equal(a->tasks[i].layer, b->tasks[k].layer);
        assert_int_equal(a->tasks[i].bytes, b->tasks[k].bytes);
        assert_int_equal(a->tasks[i].tag, n);
        assert_int_equal(b->tasks[k].tag, n++);
    }
}

/* ------------------------------------------------------------------------ no deadlock */

struct play {
    struct world *at;
    bool *done[MAX_RANKS];
    int32_t head[MAX_RANKS][MIST_N_STREAMS]; /* next task of each stream; n_tasks: none */
};

static void skip_to_stream(const struct mist_schedule *schedule, int stream, int32_t *i)
{
    while (*i < schedule->n_tasks && (int)schedule->tasks[*i].stream != stream)
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
    int32_t i_stage = at->ranks[rank]->i_stage;

    for (int32_t other = 0; other < at->n_ranks; other++) {
        bool is_member = task->group == MIST_GROUP_PEER
                             ? other == task->peer
                             : at->ranks[other]->i_stage == i_stage;
        if (!is_member || other == rank)
            continue;
        int32_t i = ready(play, other, MIST_STREAM_GPU_GPU);
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
    skip_to_stream(play->at->ranks[rank], stream, &play->head[rank][stream]);
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
                if (k == rank || (task->group == MIST_GROUP_PEER && k == task->peer) ||
                    (task->group == MIST_GROUP_DP &&
                     play->at->ranks[k]->i_stage == mine->i_stage)) {
                    finish(play, k, stream);
                    n++;
                }
        }
    }
    return n;
}

static void check_no_deadlock(struct world *at)
{
    struct play play = {.at = at};
    int32_t n_left = 0, n_done = 1;

    for (int32_t rank = 0; rank < at->n_ranks; rank++) {
        play.done[rank] = calloc((size_t)at->ranks[rank]->n_tasks, sizeof(bool));
        assert_non_null(play.done[rank]);
        for (int stream = 0; stream < MIST_N_STREAMS; stream++)
            skip_to_stream(at->ranks[rank], stream, &play.head[rank][stream]);
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
    if (mist_memory_check(schedule, &err) != MIST_OK)
        fail_msg("%s", err.message);
    mist_memory_live(schedule, MIST_ARENA_DEVICE, live);
    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        int64_t sum = 0;
        for (int32_t k = 0; k < schedule->n_buffers; k++) {
            const struct mist_buffer *buffer = &schedule->buffers[k];
            if (buffer->first_task <= i && i <= buffer->last_task)
                sum += (buffer->size_bytes + 63) / 64 * 64;
        }
        assert_int_equal(live[i], sum);
        most = sum > most ? sum : most;
    }
    free(live);
    assert_true(schedule->arena_bytes[MIST_ARENA_DEVICE] >= most);
    assert_int_equal(schedule->arena_bytes[MIST_ARENA_HOST], 0);
    return (double)schedule->arena_bytes[MIST_ARENA_DEVICE] / (double)most;
}

static void check_same_task(const struct mist_task *a, const struct mist_task *b)
{
    assert_true(a->kind == b->kind && a->stream == b->stream && a->layer == b->layer &&
                a->micro_batch == b->micro_batch && a->cost == b->cost &&
                a->group == b->group && a->peer == b->peer && a->tag == b->tag &&
                a->bytes == b->bytes && a->slice_offset_bytes == b->slice_offset_bytes &&
                a->dep_first == b->dep_first && a->n_deps == b->n_deps &&
                a->is_update == b->is_update);
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
static void check_costs(const struct world *at, const struct mist_schedule *schedule)
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
            if (task->layer >= 0)
                assert_int_equal(mist_schedule_layer_kind(&at->plan.model, task->layer),
                                 mist_schedule_layer_kind(&at->plan.model, first->layer));
        }
        assert_non_null(first);
    }
}

/* ------------------------------------------------------------------------------ tests */

static double check_rank(struct world *at, const struct mist_catalog *catalog,
                         int32_t rank)
{
    struct mist_schedule *schedule = at->ranks[rank];

    at->before = malloc((size_t)schedule->n_tasks * sizeof *at->before);
    assert_non_null(at->before);
    at->schedule = schedule;
    close_order(at, schedule);
    check_work(at, schedule);
    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        check_roles(at, schedule, task);
        check_sizes(at, schedule, task);
        check_flow(at, schedule, task);
        if (is_transfer(task))
            check_cover(schedule, i);
    }
    check_races(at, schedule);
    check_costs(at, schedule);
    free(at->before);
    struct mist_schedule *again = build(catalog, &at->plan, rank);
    check_same(schedule, again);
    mist_schedule_free(again);
    return check_memory(schedule);
}

static int32_t check_plan(struct world *at, double *ratios)
{
    struct mist_catalog *catalog;
    struct mist_err err = {0};

    assert_int_equal(mist_catalog_new(&at->plan.model, &catalog, &err), MIST_OK);
    assert_int_equal(mist_schedule_supports(&at->plan, &err), MIST_OK);
    at->n_ranks = mist_plan_n_ranks(&at->plan);
    assert_in_range(at->n_ranks, 1, MAX_RANKS);
    for (int32_t rank = 0; rank < at->n_ranks; rank++)
        at->ranks[rank] = build(catalog, &at->plan, rank);
    for (int32_t rank = 0; rank < at->n_ranks; rank++) {
        ratios[rank] = check_rank(at, catalog, rank);
        for (int32_t other = 0; other < at->n_ranks; other++) {
            check_pair(at, rank, other);
            if (at->ranks[rank]->i_stage == at->ranks[other]->i_stage)
                check_collectives(at->ranks[rank], at->ranks[other]);
        }
    }
    check_no_deadlock(at);
    for (int32_t rank = 0; rank < at->n_ranks; rank++)
        mist_schedule_free(at->ranks[rank]);
    mist_catalog_free(catalog);
    return at->n_ranks;
}

static int compare_doubles(const void *a_void, const void *b_void)
{
    double a = *(const double *)a_void, b = *(const double *)b_void;

    return (a > b) - (a < b);
}

static void test_random_plans(void **state)
{
    static struct world world;
    static double ratios[MAX_RATIOS];
    struct mist_random random;
    uint64_t seed = get_seed();
    int32_t n = 0;

    (void)state;
    printf("# seed %" PRIu64 "\n", seed);
    mist_random_init(&random, seed);
    for (int i = 0; i < N_PLANS; i++) {
        draw_plan(&random, &world.plan);
        n += check_plan(&world, ratios + n);
    }
    qsort(ratios, (size_t)n, sizeof *ratios, compare_doubles);
    printf("# %d ranks of %d plans: arena / most live: median %.4f, 95 %% %.4f, worst "
           "%.4f\n",
           (int)n, N_PLANS, ratios[n / 2], ratios[n * 19 / 20], ratios[n - 1]);
    assert_true(ratios[n - 1] < 1.05);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_plans),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
