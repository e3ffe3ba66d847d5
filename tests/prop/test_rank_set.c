/*
 * Property: ranks that share schedule, layout and prices (rank_set.h) have what they would
 * have on their own. On random plans over all knobs, on nodes of all sizes: every rank's
 * own schedule is the shared one but for peers and offsets, its own prices are the shared
 * ones, and a replay of all ranks' own schedules and prices gives the same result and the
 * same timeline, to the bit, as that of the shared ones; with stragglers, jitter,
 * micro-batches of unequal length and interference.
 *
 * MIST_PLANS: how many plans (default 250); MIST_SEED: which.
 */
#include "tests/prop/random_plan.h"

#include "sim/replay/rank_set.h"
#include "sim/replay/replay_graph.h"
#include "sim/schedule/memory_planner.h"
#include "tests/unit/flat_cluster.h"
#include "tests/unit/replay_schedules.h"

enum { N_PLANS = 250 };

/* One plan: its ranks, shared and on their own. */
struct world {
    struct mist_plan plan;
    struct mist_trace_set traces;
    struct mist_cost_model *model;
    struct mist_rank_set set;
    struct mist_schedule *own[MAX_RANKS];
    struct mist_cost *costs[MAX_RANKS];
    int64_t n_shared;  /* ranks that share a schedule, over all plans */
    int64_t n_priced;  /* and prices */
    int64_t n_several; /* stages with several schedules */
    int64_t n_sharing; /* transfers that share a node's links */
};

static struct mist_err err;

/* Links that differ by where the ranks are. */
static void make_traces(struct mist_trace_set *traces, struct mist_random *random)
{
    flat_cluster_init(traces, pick(random, 1, 9));
    traces->cluster.nodes = MAX_RANKS;
    for (int op = MIST_LINK_ALL_REDUCE; op <= MIST_LINK_SEND_RECV; op++)
        for (int nodes = 1; nodes <= 8; nodes *= 2)
            for (int per_node = 1; per_node <= 8; per_node *= 2)
                for (int groups = 1; groups <= 4; groups *= 4) {
                    struct mist_link_row row = {
                        .operation = (enum mist_link_operation)op,
                        .nodes = nodes,
                        .ranks_per_node = per_node,
                        .concurrent_groups = groups,
                        .bytes = 65536,
                        .time_us = 10 + 7 * nodes + 3 * per_node + 11 * groups,
                        .deviation_us = nodes,
                        .repetitions = 1,
                    };
                    if (nodes * per_node > 1 &&
                        (op != MIST_LINK_SEND_RECV || nodes * per_node == 2))
                        must(mist_trace_set_add_link(traces, &row, &err), &err);
                }
}

static void start(struct world *at, struct mist_random *random)
{
    const struct mist_replay_work work = {.n_iterations = 1,
                                          .why_all = "it is asked for"};

    while (!draw_plan(random, &at->plan))
        ;
    for (int32_t i = 0; i < at->plan.n_stages; i++)
        at->plan.stages[i].updates_on_host = false; /* has no price here */
    make_traces(&at->traces, random);
    must(mist_cost_model_new(&at->traces, &at->model, &err), &err);
    at->set = (struct mist_rank_set){0};
    must(mist_rank_set_build(&at->plan, 2, &work, &at->set, &err), &err);
    must(mist_rank_set_price(&at->set, at->model, &at->plan, false, &err), &err);
    assert_int_equal(at->set.n_ranks, mist_plan_n_ranks(&at->plan));
    for (int32_t r = 0; r < at->set.n_ranks; r++) {
        must(mist_schedule_build(&at->plan, r, 2, &at->own[r], &err), &err);
        at->costs[r] = calloc((size_t)at->own[r]->n_costs + 1, sizeof **at->costs);
        assert_non_null(at->costs[r]);
        must(mist_cost_schedule(at->model, &at->plan, at->own[r], at->costs[r], &err),
             &err);
    }
    at->n_shared += at->set.n_ranks - at->set.n_programs;
    at->n_priced += at->set.n_ranks - at->set.n_costs;
    at->n_several += at->set.n_programs - at->plan.n_stages;
}

static void stop(struct world *at)
{
    for (int32_t r = 0; r < at->set.n_ranks; r++) {
        mist_schedule_free(at->own[r]);
        free(at->costs[r]);
    }
    mist_rank_set_fini(&at->set);
    mist_cost_model_free(at->model);
    mist_trace_set_fini(&at->traces);
}

/* ------------------------------------------------------------------ schedules, prices */

static void expect_task(const struct mist_task *shared, const struct mist_task *own,
                        int32_t peer)
{
    struct mist_task a = *shared, b = *own;

    assert_int_equal(own->peer, peer);
    assert_memory_equal(a.buffers, b.buffers, sizeof a.buffers);
    assert_true(a.kind == b.kind && a.stream == b.stream && a.layer == b.layer &&
                a.micro_batch == b.micro_batch && a.program == b.program &&
                a.part == b.part && a.slab == b.slab && a.overwrites == b.overwrites &&
                a.zeroes == b.zeroes && a.cost == b.cost && a.group == b.group &&
                a.tag == b.tag && a.bytes == b.bytes && a.n_elements == b.n_elements &&
                a.n_zeroed_elements == b.n_zeroed_elements &&
                a.dep_first == b.dep_first && a.n_deps == b.n_deps);
    if (a.group == MIST_GROUP_PEER)
        assert_true(a.from_offset_bytes == b.from_offset_bytes &&
                    a.to_offset_bytes == b.to_offset_bytes);
}

static void expect_schedule(const struct world *at, int32_t r)
{
    const struct mist_rank *rank = &at->set.ranks[r];
    const struct mist_rank_program *program = &at->set.programs[rank->program];
    const struct mist_schedule *shared = program->schedule, *own = at->own[r];

    assert_true(rank->rank == r && own->i_stage == shared->i_stage);
    assert_memory_equal(&own->mesh, &shared->mesh, sizeof own->mesh);
    assert_true(own->n_tasks == shared->n_tasks && own->n_deps == shared->n_deps &&
                own->n_buffers == shared->n_buffers && own->n_costs == shared->n_costs);
    for (int32_t i = 0; i < own->n_tasks; i++)
        expect_task(&shared->tasks[i], &own->tasks[i],
                    program->lane[i] < 0 ? -1 : rank->peer[program->lane[i]]);
    assert_memory_equal(own->deps, shared->deps, (size_t)own->n_deps * sizeof *own->deps);
    assert_memory_equal(own->arena_bytes, shared->arena_bytes, sizeof own->arena_bytes);
    for (int32_t i = 0; i < own->n_buffers; i++)
        assert_true(own->buffers[i].offset_bytes == shared->buffers[i].offset_bytes &&
                    own->buffers[i].size_bytes == shared->buffers[i].size_bytes &&
                    own->buffers[i].first_task == shared->buffers[i].first_task &&
                    own->buffers[i].last_task == shared->buffers[i].last_task);
    for (int32_t i = 0; i < own->n_costs; i++)
        assert_true(at->costs[r][i].time_s == rank->costs[i].time_s &&
                    at->costs[r][i].deviation_s == rank->costs[i].deviation_s &&
                    at->costs[r][i].extrapolated_s == rank->costs[i].extrapolated_s);
}

/* --------------------------------------------------------------------- sends at once */

/* Ranks given, marked, that are or are not on a node; at most so many at once. */
static int32_t count(const bool *are_marked)
{
    int32_t n = 0;

    for (int32_t r = 0; r < MAX_RANKS; r++)
        n += are_marked[r];
    return n;
}

/* How many ranks of a stage exchange at once with those of another stage on other nodes,
 * by what the schedules of all its ranks on this node do: never more than there are of the
 * others. */
static int32_t n_at_once(const struct world *at, int32_t i_stage, int32_t i_other,
                         enum mist_task_kind kind, int32_t node, int32_t per_node)
{
    bool are_here[MAX_RANKS] = {0}, are_elsewhere[MAX_RANKS] = {0};

    for (int32_t r = 0; r < at->set.n_ranks; r++)
        for (int32_t i = 0; i < at->own[r]->n_tasks; i++) {
            const struct mist_task *task = &at->own[r]->tasks[i];
            if (at->own[r]->i_stage != i_stage || r / per_node != node ||
                task->group != MIST_GROUP_PEER || task->kind != kind ||
                task->peer / per_node == node || at->own[task->peer]->i_stage != i_other)
                continue;
            are_here[r] = are_elsewhere[task->peer] = true;
        }
    return count(are_here) < count(are_elsewhere) ? count(are_here)
                                                  : count(are_elsewhere);
}

static enum mist_task_kind other_end(enum mist_task_kind kind)
{
    return kind == MIST_TASK_SEND_ACTIVATION   ? MIST_TASK_RECV_ACTIVATION
           : kind == MIST_TASK_RECV_ACTIVATION ? MIST_TASK_SEND_ACTIVATION
           : kind == MIST_TASK_SEND_GRADIENT   ? MIST_TASK_RECV_GRADIENT
           : kind == MIST_TASK_RECV_GRADIENT   ? MIST_TASK_SEND_GRADIENT
                                               : kind;
}

/* Each transfer between nodes shares their links with those who send at once. */
static void expect_sharing(struct world *at)
{
    int32_t per_node = at->traces.cluster.devices_per_node;

    for (int32_t r = 0; r < at->set.n_ranks; r++) {
        const struct mist_rank_program *program =
            &at->set.programs[at->set.ranks[r].program];
        for (int32_t k = 0; k < program->n_lanes; k++) {
            const struct mist_lane *lane = &program->lanes[k];
            int32_t peer = at->set.ranks[r].peer[k];
            if (lane->group != MIST_GROUP_PEER)
                continue;
            struct mist_group_shape shape = mist_schedule_group_shape(
                &at->plan, &at->own[r]->mesh, r, lane->group, lane->kind, peer, per_node);
            int32_t n = 1;
            if (r / per_node != peer / per_node) {
                int32_t i_mine = at->own[r]->i_stage, i_theirs = at->own[peer]->i_stage;
                int32_t here =
                    n_at_once(at, i_mine, i_theirs, lane->kind, r / per_node, per_node);
                int32_t there = n_at_once(at, i_theirs, i_mine, other_end(lane->kind),
                                          peer / per_node, per_node);
                n = here > there ? here : there;
                at->n_sharing += n > 1;
                assert_true(shape.nodes == 2 && shape.ranks_per_node == 1);
            } else {
                assert_true(shape.nodes == 1 && shape.ranks_per_node == 2);
            }
            if (shape.concurrent_groups != n)
                fail_msg("rank %d with %d, %s, nodes of %d: %d at once, expected %d",
                         (int)r, (int)peer, mist_task_kind_name(lane->kind),
                         (int)per_node, (int)shape.concurrent_groups, (int)n);
        }
    }
}

/* ---------------------------------------------------------------------------- replays */

/* Factors of ranks and their links, and what micro-batches hold. */
struct factors {
    double rank[MAX_RANKS], link[MAX_RANKS];
    struct mist_loads loads;
};

static void draw_options(struct mist_random *random, const struct mist_plan *plan,
                         struct factors *factors, struct mist_replay_options *out)
{
    const struct mist_lengths lengths = {.median = pick(random, 1, 2 * plan->job.seq_len),
                                         .sigma = 1};

    *out = (struct mist_replay_options){.n_iterations = pick(random, 1, 3),
                                        .seed = (uint64_t)pick(random, 0, 99)};
    for (int i = 0; i < MAX_RANKS; i++) {
        factors->rank[i] = pick(random, 0, 5) ? 1 : 1 + 0.25 * pick(random, 0, 4);
        factors->link[i] = pick(random, 0, 5) ? 1 : 1 + 0.25 * pick(random, 0, 4);
    }
    if (pick(random, 0, 1))
        out->rank_factor = factors->rank;
    if (pick(random, 0, 1))
        out->link_factor = factors->link;
    if (pick(random, 0, 3) == 0)
        out->jitter_frac = 0.25;
    if (pick(random, 0, 2) > 0)
        return;
    must(mist_loads_make(plan, &lengths,
                         (enum mist_packing)pick(random, 0, MIST_N_PACKINGS - 1), 1,
                         out->n_iterations, &factors->loads, &err),
         &err);
    out->loads = &factors->loads;
}

static void expect_row(const struct mist_timeline_row *a,
                       const struct mist_timeline_row *b)
{
    assert_true(a->rank == b->rank && a->stream == b->stream && a->kind == b->kind &&
                a->layer == b->layer && a->micro_batch == b->micro_batch &&
                a->iteration == b->iteration && a->task == b->task &&
                a->start_s == b->start_s && a->end_s == b->end_s &&
                a->bytes == b->bytes && a->device_live_bytes == b->device_live_bytes);
}

static void expect_result(const struct mist_replay_result *a,
                          const struct mist_replay_result *b)
{
    assert_true(a->iteration_s == b->iteration_s && a->error_s == b->error_s &&
                a->extrapolated_frac == b->extrapolated_frac &&
                a->n_tasks == b->n_tasks && a->n_stages == b->n_stages);
    for (int32_t i = 0; i < a->n_stages; i++) {
        const struct mist_replay_stage *x = &a->stages[i], *y = &b->stages[i];
        assert_true(x->rank == y->rank && x->compute_s == y->compute_s &&
                    x->exposed_s == y->exposed_s && x->bubble_s == y->bubble_s &&
                    x->peak_bytes == y->peak_bytes);
        assert_memory_equal(x->arena_bytes, y->arena_bytes, sizeof x->arena_bytes);
    }
    assert_int_equal(a->timeline.n_rows, b->timeline.n_rows);
    for (size_t i = 0; i < a->timeline.n_rows; i++)
        expect_row(&a->timeline.rows[i], &b->timeline.rows[i]);
}

static void expect_replay(struct world *at, struct mist_random *random)
{
    static struct factors factors;
    struct mist_interference f;
    struct mist_replay_options options;
    struct mist_replay_result shared, own;
    const struct mist_replay_doubt doubt = {
        .drift_frac = 0.01, .residual_frac = 0.02, .checks_frac = 0.03};

    mist_interference_init(&f);
    for (int set = 0; set < MIST_N_STREAM_SETS; set++)
        for (int c = 0; c < MIST_N_CHANNELS; c++)
            if ((set & (set - 1)) && (set >> c & 1))
                f.slowdown[set][c] = 1 + mist_random_uniform(random);
    draw_options(random, &at->plan, &factors, &options);
    for (int skips = 0; skips < 2; skips++) {
        options.skips_timeline = skips;
        must(mist_replay_run_ranks(&at->plan, &at->set, false, &f, &doubt, &options,
                                   &shared, &err),
             &err);
        must(replay_schedules(&at->plan, at->own, at->costs, at->set.n_ranks, false, &f,
                              &doubt, &options, &own, &err),
             &err);
        expect_result(&shared, &own);
        assert_true(skips == (shared.timeline.n_rows == 0));
        mist_replay_result_fini(&shared);
        mist_replay_result_fini(&own);
    }
    if (options.loads)
        mist_loads_fini(&factors.loads);
}

TEST(test_shared_is_own)
{
    static struct world world;
    struct mist_random random;
    uint64_t seed = test_seed(20263);
    const char *text = getenv("MIST_PLANS");
    int64_t n_plans = text ? strtoll(text, NULL, 10) : N_PLANS;

    for (int64_t i = 0; i < n_plans; i++) {
        mist_random_init(&random, seed + (uint64_t)i); /* plan i alone: seed + i */
        start(&world, &random);
        if (text) {
            printf("# plan of seed %" PRIu64 "\n", seed + (uint64_t)i);
            print_plan(&world.plan);
            fflush(stdout);
        }
        for (int32_t r = 0; r < world.set.n_ranks; r++)
            expect_schedule(&world, r);
        expect_sharing(&world);
        expect_replay(&world, &random);
        stop(&world);
    }
    printf("# of %d plans %lld ranks share a schedule, %lld prices; %lld schedules more "
           "than stages; %lld ends of transfers share links\n",
           (int)n_plans, (long long)world.n_shared, (long long)world.n_priced,
           (long long)world.n_several, (long long)world.n_sharing);
    assert_true(world.n_shared > n_plans && world.n_priced > n_plans / 2 &&
                world.n_sharing > n_plans);
}

/* Whether micro-batches alone make ranks of a stage differ, and then in groups. */
static bool has_groups(const struct mist_plan *plan)
{
    const struct mist_stage_plan *first = &plan->stages[0];
    bool are_alike = first->dp > 1 && first->tp > 1;

    for (int32_t i = 1; i < plan->n_stages; i++)
        are_alike = are_alike && plan->stages[i].dp == first->dp &&
                    plan->stages[i].tp == first->tp &&
                    plan->stages[i].is_sequence_parallel == first->is_sequence_parallel;
    return are_alike;
}

/* Of unequal lengths one rank of each tensor-parallel group says what all do. */
TEST(test_one_of_a_group)
{
    struct mist_random random;
    struct mist_plan plan;
    struct mist_trace_set traces;
    struct mist_cost_model *model;
    uint64_t seed = test_seed(20264);

    for (uint64_t i = 0; i < 60; i++) {
        static struct factors factors;
        struct mist_replay_options options = {0};
        struct mist_replay_result one, all;
        mist_random_init(&random, seed + i);
        while (!draw_plan(&random, &plan) || !has_groups(&plan))
            ;
        for (int32_t s = 0; s < plan.n_stages; s++)
            plan.stages[s].updates_on_host = false;
        make_traces(&traces, &random);
        traces.cluster.devices_per_node = MAX_RANKS; /* all groups lie alike */
        must(mist_cost_model_new(&traces, &model, &err), &err);
        while (!options.loads || options.rank_factor || options.link_factor ||
               options.jitter_frac > 0) {
            if (options.loads)
                mist_loads_fini(&factors.loads);
            draw_options(&random, &plan, &factors, &options);
        }
        options.only_stages = true;
        must(mist_replay_run(&plan, model, &options, &one, &err), &err);
        options.folding = MIST_REPLAY_FOLD_NEVER;
        must(mist_replay_run(&plan, model, &options, &all, &err), &err);
        assert_int_equal(one.n_tasks * plan.stages[0].tp, all.n_tasks);
        one.n_tasks = all.n_tasks;
        expect_result(&one, &all);
        mist_replay_result_fini(&one);
        mist_replay_result_fini(&all);
        mist_loads_fini(&factors.loads);
        mist_cost_model_free(model);
        mist_trace_set_fini(&traces);
    }
}

TEST_MAIN(NULL, NULL)
