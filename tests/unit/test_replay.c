/*
 * Replay: hand-checkable plans against sums and the closed form of 1F1B, folding against
 * no folding, and schedules that were damaged on purpose.
 */
#include "tests/unit/test.h"

#include "sim/replay/replay.h"
#include "tests/unit/flat_cluster.h"
#include "tests/unit/replay_schedules.h"
#include "tests/unit/tiny_models.h"

#include <math.h>

enum { MAX_RANKS = 35 };

/* Prices by hand, in seconds, by task kind. */
struct prices {
    double by_kind[MIST_N_TASK_KINDS];
    double embedding_share, head_share; /* of a block's, for computation */
};

struct fixture {
    struct mist_plan plan;
    struct mist_schedule *schedules[MAX_RANKS];
    struct mist_cost *costs[MAX_RANKS];
    int32_t n_ranks;
    struct mist_replay_result result;
    bool has_result;
    struct mist_replay_doubt doubt;
};

/* ----------------------------------------------------------------------------- set-up */

/* dp and n_layers: [n_stages]; every micro-batch has 12 samples over all ranks. */
static void start(struct fixture *at, int32_t n_stages, const int32_t *dp,
                  const int32_t *n_layers, int32_t n_micro_batches)
{
    int32_t total = 0;

    memset(at, 0, sizeof *at);
    for (int32_t i = 0; i < n_stages; i++)
        total += n_layers[i];
    at->plan.model = mist_small_model(MIST_FAMILY_GPT, total, 48);
    at->plan.job = (struct mist_job){.global_batch = 12 * n_micro_batches, .seq_len = 8};
    at->plan.n_micro_batches = n_micro_batches;
    at->plan.n_stages = n_stages;
    for (int32_t i = 0; i < n_stages; i++)
        at->plan.stages[i] = mist_tiny_stage(n_layers[i], 12 / dp[i], dp[i], 1);
    assert_int_equal(mist_plan_check(&at->plan, NULL), MIST_OK);
}

static void build(struct fixture *at, const struct prices *prices, bool is_folded)
{
    at->n_ranks = is_folded ? at->plan.n_stages : mist_plan_n_ranks(&at->plan);
    assert_true(at->n_ranks <= MAX_RANKS);
    for (int32_t r = 0; r < at->n_ranks; r++) {
        int32_t rank = is_folded ? mist_plan_first_rank(&at->plan, r) : r;
        assert_int_equal(mist_schedule_build(&at->plan, rank, 1, &at->schedules[r], NULL),
                         MIST_OK);
        const struct mist_schedule *schedule = at->schedules[r];
        at->costs[r] = calloc((size_t)schedule->n_costs, sizeof **at->costs);
        for (int32_t i = 0; i < schedule->n_tasks; i++) {
            const struct mist_task *task = &schedule->tasks[i];
            double time_s = prices->by_kind[task->kind];
            if (task->stream == MIST_STREAM_COMPUTE && task->layer == 0)
                time_s *= prices->embedding_share;
            if (task->stream == MIST_STREAM_COMPUTE &&
                task->layer == at->plan.model.n_layers + 1)
                time_s *= prices->head_share;
            at->costs[r][task->cost].time_s = time_s;
        }
    }
}

static void unbuild(struct fixture *at)
{
    for (int32_t r = 0; r < at->n_ranks; r++) {
        mist_schedule_free(at->schedules[r]);
        free(at->costs[r]);
    }
    at->n_ranks = 0;
}

static void stop(struct fixture *at)
{
    unbuild(at);
    if (at->has_result)
        mist_replay_result_fini(&at->result);
}

static double run(struct fixture *at, bool is_folded,
                  const struct mist_replay_options *options)
{
    struct mist_err err;

    if (at->has_result)
        mist_replay_result_fini(&at->result);
    enum mist_status status =
        replay_schedules(&at->plan, at->schedules, at->costs, at->n_ranks, is_folded,
                         NULL, &at->doubt, options, &at->result, &err);
    must(status, &err);
    at->has_result = true;
    assert_int_equal(mist_timeline_check(&at->result.timeline, NULL, NULL), MIST_OK);
    return at->result.iteration_s;
}

#define assert_close(value, expected) assert_near(value, expected, 1e-9)

/* Powers of two: sums are exact. */
static const struct prices compute_only = {
    .by_kind =
        {[MIST_TASK_FORWARD] = 1, [MIST_TASK_RECOMPUTE] = 0.75, [MIST_TASK_BACKWARD] = 2},
    .embedding_share = 0,
    .head_share = 0.5,
};

static struct prices all_prices(void)
{
    struct prices prices = {.embedding_share = 0.25, .head_share = 1.5};

    for (int i = 0; i < MIST_N_TASK_KINDS; i++)
        prices.by_kind[i] = 0.125 + 0.0625 * i;
    return prices;
}

/* ------------------------------------------------------------------------------ times */

TEST(one_rank_is_the_sum_of_its_tasks)
{
    struct fixture at;

    start(&at, 1, (int32_t[]){1}, (int32_t[]){3}, 4);
    at.plan.stages[0].n_checkpointed = 2;
    struct prices prices = all_prices();
    build(&at, &prices, false);
    double sum = 0;
    for (int32_t i = 0; i < at.schedules[0]->n_tasks; i++) {
        const struct mist_task *task = &at.schedules[0]->tasks[i];
        if (task->stream == MIST_STREAM_COMPUTE)
            sum += at.costs[0][task->cost].time_s;
        else
            at.costs[0][task->cost].time_s = 0; /* loading the batch */
    }
    assert_close(run(&at, false, NULL), sum);
    assert_close(at.result.stages[0].compute_s, sum);
    assert_close(at.result.stages[0].bubble_s, 0);
    assert_int_equal(at.result.timeline.n_rows, at.schedules[0]->n_tasks);
    assert_true(at.result.stages[0].peak_bytes <=
                at.result.stages[0].arena_bytes[MIST_ARENA_DEVICE]);
    stop(&at);
}

/* 1F1B by the book: every slot starts when its neighbour and the slot before it allow. */
static double naive_1f1b_s(int32_t n_stages, int32_t g, const double *forward_s,
                           const double *backward_s)
{
    double done[2][4][8] = {{{0}}}, clock[4] = {0};
    int32_t n_forward[4] = {0}, n_backward[4] = {0};

    for (int32_t n_left = 2 * n_stages * g; n_left > 0;)
        for (int32_t i = 0; i < n_stages; i++) {
            bool is_backward =
                n_forward[i] == g || n_forward[i] - n_backward[i] == n_stages - i;
            int32_t k = is_backward ? n_backward[i] : n_forward[i];
            double ready_s = 0;
            if (k == g)
                continue;
            if (is_backward && i < n_stages - 1) {
                if (n_backward[i + 1] <= k)
                    continue;
                ready_s = done[1][i + 1][k];
            } else if (!is_backward && i > 0) {
                if (n_forward[i - 1] <= k)
                    continue;
                ready_s = done[0][i - 1][k];
            }
            clock[i] =
                fmax(clock[i], ready_s) + (is_backward ? backward_s[i] : forward_s[i]);
            done[is_backward][i][k] = clock[i];
            ++*(is_backward ? &n_backward[i] : &n_forward[i]);
            n_left--;
        }
    return clock[0]; /* the first stage ends last */
}

/* Every number of stages and micro-batches up to 4 and 6, equal and unequal stages; where
 * they are equal also (G - 1) max t + sum t. */
TEST(free_transfers_give_the_closed_form)
{
    int32_t dp[4] = {1, 1, 1, 1};
    static const int32_t layers[2][4] = {{2, 2, 2, 2}, {2, 1, 3, 1}};

    for (int32_t n_stages = 1; n_stages <= 4; n_stages++)
        for (int32_t g = 1; g <= 6; g++)
            for (int unequal = 0; unequal <= 1; unequal++) {
                struct fixture at;
                struct prices prices = compute_only;
                double forward_s[4], backward_s[4];
                prices.head_share = unequal ? 0.5 : 0;
                start(&at, n_stages, dp, layers[unequal], g);
                build(&at, &prices, false);
                for (int32_t i = 0; i < n_stages; i++) {
                    forward_s[i] =
                        layers[unequal][i] + (i == n_stages - 1 ? prices.head_share : 0);
                    backward_s[i] = 2 * forward_s[i];
                }
                double naive_s = naive_1f1b_s(n_stages, g, forward_s, backward_s);
                double replayed_s = run(&at, false, NULL);
                if (unequal) { /* transfers meet in the order of the logical clock */
                    if (replayed_s != naive_s)
                        print_message("S %d G %d: %g, without order %g\n", (int)n_stages,
                                      (int)g, replayed_s, naive_s);
                    assert_true(replayed_s >= naive_s - 1e-9);
                    assert_true(replayed_s <= 1.05 * naive_s);
                } else {
                    assert_close(replayed_s, naive_s);
                    assert_close(replayed_s, (g - 1) * 6 + n_stages * 6);
                }
                stop(&at);
            }
}

/* Two layers of 1 + 1 + 1 on every stage: the bubbles of the papers. */
TEST(split_backwards_give_the_closed_form)
{
    const struct prices prices = {.by_kind = {[MIST_TASK_FORWARD] = 1,
                                              [MIST_TASK_BACKWARD_INPUT] = 1,
                                              [MIST_TASK_BACKWARD_WEIGHT] = 1}};
    static const int32_t dp[4] = {1, 1, 1, 1}, layers[4] = {2, 2, 2, 2};

    for (int32_t p = 2; p <= 4; p++)
        for (int32_t g = 2 * p - 1; g <= 9; g++)
            for (int is_v = 0; is_v < 2; is_v++) {
                struct fixture at;
                start(&at, p, dp, layers, g);
                at.plan.pipeline = is_v ? MIST_PIPELINE_ZB_V : MIST_PIPELINE_ZB_H1;
                assert_int_equal(mist_plan_check(&at.plan, NULL), MIST_OK);
                build(&at, &prices, false);
                assert_close(run(&at, false, NULL), 6 * g + (is_v ? 1 : 2) * (p - 1));
                stop(&at);
            }
}

/* A forward of a block takes 1, a backward 2. Of the forward sums over tensor-parallel
 * ranks take sum_s each; in the backward, where weight gradients run beside them, they take
 * no time, but meet all the same. A transfer takes as long as asked, all else nothing. */
static void price_blocks(struct fixture *at, double sum_s, double transfer_s)
{
    for (int32_t r = 0; r < at->n_ranks; r++) {
        const struct mist_schedule *schedule = at->schedules[r];
        const struct mist_layer_layout *block = &schedule->layouts[MIST_LAYER_BLOCK];
        for (int32_t i = 0; i < schedule->n_tasks; i++) {
            const struct mist_task *task = &schedule->tasks[i];
            double *time_s = &at->costs[r][task->cost].time_s;
            *time_s = task->group == MIST_GROUP_PEER ? transfer_s : 0;
            if (mist_task_kind_sort(task->kind) == MIST_SORT_PROGRAM &&
                mist_schedule_layer_kind(&at->plan.model, task->layer) ==
                    MIST_LAYER_BLOCK) {
                const struct mist_program *program = &block->programs[task->program];
                bool is_forward = task->kind == MIST_TASK_FORWARD;
                int n_sums = 0;
                for (int k = 0; k < program->n_parts; k++)
                    n_sums += program->parts[k].is_communication;
                *time_s =
                    (is_forward ? 1 - sum_s * n_sums : 2) / (program->n_parts - n_sums);
            } else if (task->program == MIST_PROGRAM_FORWARD && task->layer > 0 &&
                       task->layer <= at->plan.model.n_layers &&
                       task->kind == MIST_TASK_TP_ALL_REDUCE) {
                *time_s = sum_s;
            }
        }
    }
}

enum { P = 35, V = 3 };

/* What a pipeline of P stages with V chunks of one block takes beyond its work. */
static double interleaved_bubble(int32_t tp, int32_t g, double sum_s, double transfer_s)
{
    static const struct prices none;
    int32_t one[P], layers[P];
    struct mist_replay_options options = {.skips_timeline = true};
    struct fixture at;

    for (int i = 0; i < P; i++) {
        one[i] = 1;
        layers[i] = V;
    }
    start(&at, P, one, layers, g);
    at.plan.pipeline = MIST_PIPELINE_INTERLEAVED;
    at.plan.n_chunks = V;
    at.plan.model.n_heads = at.plan.model.n_kv_heads = 8;
    at.plan.model.head_dim = 4;
    for (int i = 0; i < P; i++)
        at.plan.stages[i].tp = at.plan.stages[i].n_devices = tp;
    assert_int_equal(mist_plan_check(&at.plan, NULL), MIST_OK);
    build(&at, &none, true);
    price_blocks(&at, sum_s, transfer_s);
    double iteration_s = run(&at, true, &options);
    stop(&at);
    return iteration_s / (3.0 * V * g) - 1;
}

/* (p - 1) / (v G) with free transfers and sums. The last stage, whose backwards wait for no
 * other, may have the sums at the end of its forwards beside them, and all that this can
 * spare the pipeline is its step to that stage. Transfers of a twentieth of a forward add a
 * little, and as much with tensor parallelism as without: sums don't wait in line behind
 * them. */
TEST(sums_wait_for_no_transfers)
{
    enum { G = 140 };
    const double ideal = (P - 1.0) / (V * G), without_last = (P - 2.0) / (V * G);
    double free_1 = interleaved_bubble(1, G, 0, 0),
           free_8 = interleaved_bubble(8, G, 0, 0);
    double beside = interleaved_bubble(8, G, 0.1, 0);
    double one = interleaved_bubble(1, G, 0, 0.05),
           eight = interleaved_bubble(8, G, 0.1, 0.05);

    print_message("bubble: ideal %.4f, free %.4f %.4f, with sums %.4f, tp 1 %.4f, "
                  "tp 8 %.4f\n",
                  ideal, free_1, free_8, beside, one, eight);
    assert_close(free_1, ideal);
    assert_close(free_8, ideal);
    assert_true(beside <= ideal + 1e-9 && beside >= without_last);
    assert_true(one < ideal + 0.035 && eight < one + 0.005);
}

TEST(a_straggler_slows_its_stage)
{
    struct fixture at;
    double factors[2] = {1, 2};
    struct mist_replay_options options = {.rank_factor = factors};

    start(&at, 2, (int32_t[]){1, 1}, (int32_t[]){2, 2}, 4);
    build(&at, &compute_only, false);
    assert_close(run(&at, false, &options),
                 naive_1f1b_s(2, 4, (double[]){2, 5}, (double[]){4, 10}));
    factors[0] = 2;
    factors[1] = 1;
    assert_close(run(&at, false, &options),
                 naive_1f1b_s(2, 4, (double[]){4, 2.5}, (double[]){8, 5}));
    stop(&at);
}

/* Of two data-parallel ranks, which are one stage. */
TEST(a_straggler_slows_itself_alone)
{
    struct fixture at;
    double factors[2] = {1, 2};
    struct mist_replay_options options = {.rank_factor = factors};

    start(&at, 1, (int32_t[]){2}, (int32_t[]){2}, 4);
    build(&at, &compute_only, false);
    for (int slow = 0; slow < 2; slow++) {
        factors[slow] = 2;
        factors[1 - slow] = 1;
        /* 2.5 modules: forward 1 each, backward 2 each */
        assert_close(run(&at, false, &options), 2 * 4 * 2.5 * 3);
        assert_int_equal(at.result.stages[0].rank, slow);
    }
    stop(&at);
}

/* A slow link slows what its rank sends and receives, whoever is at the other end. */
TEST(a_slow_link_slows_its_rank)
{
    struct fixture at;
    struct prices prices = compute_only;
    double factors[2] = {1, 3};
    struct mist_replay_options options = {.link_factor = factors};

    prices.by_kind[MIST_TASK_SEND_ACTIVATION] = 0.25;
    prices.by_kind[MIST_TASK_RECV_ACTIVATION] = 0.25;
    start(&at, 2, (int32_t[]){1, 1}, (int32_t[]){2, 2}, 1);
    build(&at, &prices, false);
    double plain_s = run(&at, false, NULL);
    assert_close(run(&at, false, &options), plain_s + 2 * 0.25);
    factors[0] = 3;
    factors[1] = 1;
    assert_close(run(&at, false, &options), plain_s + 2 * 0.25);
    stop(&at);
}

/* ------------------------------------------------------------------------------ loads */

enum { SEQ_LEN = 8, N_SAMPLES = 12 }; /* of start() */

/* Loads of samples that each hold one sequence, tokens [n_iterations][micro-batches]
 * [n_ranks] of each sample of a rank. */
static struct mist_loads make_loads(const struct fixture *at, int32_t n_iterations,
                                    int32_t n_ranks, const double *tokens)
{
    int32_t n = n_iterations * at->plan.n_micro_batches;
    struct mist_loads out = {
        .n_iterations = n_iterations,
        .n_micro_batches = at->plan.n_micro_batches,
        .n_samples = N_SAMPLES,
        .seq_len = SEQ_LEN,
        .sums = calloc((size_t)n * (N_SAMPLES + 1), sizeof *out.sums),
    };

    for (int32_t i = 0; i < n * N_SAMPLES; i++) {
        int32_t i_sum = i + i / N_SAMPLES; /* the next one has it */
        double length =
            tokens[i / N_SAMPLES * n_ranks + i % N_SAMPLES / (N_SAMPLES / n_ranks)];
        out.sums[i_sum + 1].tokens = out.sums[i_sum].tokens + length;
        out.sums[i_sum + 1].squares = out.sums[i_sum].squares + length * length;
        out.mean.tokens += length / (n * N_SAMPLES * SEQ_LEN);
    }
    return out;
}

/* One stage: an iteration takes what its micro-batches have tokens for. */
TEST(one_stage_is_the_sum_of_its_loads)
{
    struct fixture at;
    const double tokens[3][4] = {{8, 8, 8, 8}, {8, 6, 4, 2}, {1, 1, 1, 5}};

    start(&at, 1, (int32_t[]){1}, (int32_t[]){2}, 4);
    build(&at, &compute_only, false);
    struct mist_loads loads = make_loads(&at, 3, 1, &tokens[0][0]);
    struct mist_replay_options options = {.loads = &loads, .n_iterations = 3};
    /* 2.5 modules: forward 1 each, backward 2 each; the first iteration does not count */
    assert_close(run(&at, false, &options), 2.5 * 3 * (20 + 8) / 8.0 / 2);
    assert_int_equal(at.result.n_iterations, 2);
    assert_close(at.result.iterations_s[0], 2.5 * 3 * 8 / 8.0);
    assert_close(at.result.iterations_s[1], 2.5 * 3 * 20 / 8.0);
    assert_close(at.result.last_s, 2.5 * 3 * 8 / 8.0);
    assert_close(at.result.stages[0].compute_s, at.result.iteration_s);
    loads.n_micro_batches = 3;
    struct mist_err err;
    assert_int_equal(replay_schedules(&at.plan, at.schedules, at.costs, at.n_ranks, false,
                                      NULL, NULL, &options, &at.result, &err),
                     MIST_ERR_INPUT);
    mist_loads_fini(&loads);
    stop(&at);
}

/* The slowest rank of a group sets the pace of its collective; its samples are its own. */
TEST(loads_reach_their_ranks)
{
    struct fixture at;
    const double tokens[2][2][2] = {{{8, 8}, {8, 8}}, {{2, 4}, {2, 8}}};
    struct prices prices = compute_only;

    prices.by_kind[MIST_TASK_REDUCE_GRADIENT] = 0.25;
    start(&at, 1, (int32_t[]){2}, (int32_t[]){1}, 2);
    build(&at, &prices, false);
    struct mist_loads loads = make_loads(&at, 2, 2, &tokens[0][0][0]);
    struct mist_replay_options options = {.loads = &loads};
    /* rank 1: 1.5 modules * 3 * (4 + 8) / 8; block and (free) embedding reduced behind */
    assert_close(run(&at, false, &options), 1.5 * 3 * 1.5 + 0.5);
    assert_int_equal(at.result.stages[0].rank, 1);

    /* all ranks with the mean, 6.5 of 8 in both iterations together */
    struct mist_replay_part all = {1u << MIST_CAUSE_LENGTHS, -1, -1, -1};
    options.part = &all;
    assert_close(loads.mean.tokens, 48.0 / 64);
    assert_close(run(&at, false, &options), 1.5 * 3 * 2 * 0.75 + 0.5);
    all.rank = 1; /* rank 0 is still as short as it was */
    assert_close(run(&at, false, &options), 1.5 * 3 * 2 * 0.75 + 0.5);
    options.evens_others = true;
    assert_close(run(&at, false, &options), 1.5 * 3 * 1.5 + 0.5);
    all.rank = -1;
    all.micro_batch = 1; /* the first one even: 0.75 + 1 of 8 */
    assert_close(run(&at, false, &options), 1.5 * 3 * 1.75 + 0.5);
    mist_loads_fini(&loads);
    stop(&at);
}

/* Whatever varies on every rank: the slowest is waited for, so more is never faster. Draws
 * are the same, and what takes the longest is convex in them. */
TEST(more_jitter_is_not_faster)
{
    struct fixture at;
    double before_s = 0;
    uint64_t seed = test_seed(15);
    const struct prices prices = all_prices();

    start(&at, 2, (int32_t[]){4, 4}, (int32_t[]){2, 2}, 4);
    build(&at, &prices, false);
    for (int i = 0; i < 5; i++) {
        struct mist_replay_options options = {
            .n_iterations = 101, .jitter_frac = 0.06 * i, .seed = seed};
        double mean_s = run(&at, false, &options);
        if (mean_s <= before_s)
            fail_msg("jitter %g: %.17g s, less: %.17g s", 0.06 * i, mean_s, before_s);
        before_s = mean_s;
        for (int32_t k = 1; k < at.result.n_iterations; k++)
            assert_true(at.result.iterations_s[k - 1] <= at.result.iterations_s[k]);
    }
    stop(&at);
}

/* One block beside embedding and head, dp 2: three reductions, the last one exposed. */
static void start_reductions(struct fixture *at)
{
    struct prices prices = compute_only;

    prices.embedding_share = 1;
    prices.head_share = 1;
    prices.by_kind[MIST_TASK_REDUCE_GRADIENT] = 1.5;
    start(at, 1, (int32_t[]){2}, (int32_t[]){1}, 1);
    build(at, &prices, false);
}

TEST(reductions_hide_beside_the_backward)
{
    struct fixture at;

    start_reductions(&at);
    assert_close(run(&at, false, NULL), 9 + 1.5);
    assert_close(at.result.stages[0].exposed_s, 1.5);
    stop(&at);
}

/* Of two ranks, one of which always computes: alone is all but when both do. */
TEST(time_alone_is_that_of_the_timeline)
{
    for (int32_t n = 1; n <= 4; n++) {
        struct fixture at;
        double both_s = 0;
        start(&at, 2, (int32_t[]){1, 1}, (int32_t[]){n, 5 - n}, 6);
        build(&at, &compute_only, false);
        double iteration_s = run(&at, false, NULL);
        const struct mist_timeline *timeline = &at.result.timeline;
        for (size_t i = 0; i < timeline->n_rows; i++)
            for (size_t k = 0; k < timeline->n_rows; k++) {
                const struct mist_timeline_row *a = &timeline->rows[i],
                                               *b = &timeline->rows[k];
                if (a->rank == 0 && b->rank == 1 && a->stream == MIST_STREAM_COMPUTE &&
                    b->stream == MIST_STREAM_COMPUTE)
                    both_s +=
                        fmax(0, fmin(a->end_s, b->end_s) - fmax(a->start_s, b->start_s));
            }
        assert_true(both_s > 0 && both_s < iteration_s);
        assert_close(at.result.alone_frac, 1 - both_s / iteration_s);
        struct mist_prediction predicted = {0};
        mist_replay_predict(&at.result, &(struct mist_cluster){.backend = MIST_TRACE_CPU},
                            &predicted);
        assert_true(predicted.alone_frac == at.result.alone_frac);
        mist_replay_predict(
            &at.result, &(struct mist_cluster){.backend = MIST_TRACE_CUDA}, &predicted);
        assert_true(predicted.iteration_s == iteration_s && predicted.alone_frac == 0);
        stop(&at);
    }
}

TEST(folding_changes_nothing)
{
    struct prices prices = all_prices();

    for (int32_t dp = 1; dp <= 4; dp *= 2)
        for (int zero = 0; zero <= 1; zero++) {
            struct fixture at;
            start(&at, 3, (int32_t[]){dp, dp, dp}, (int32_t[]){2, 1, 2}, 5);
            at.plan.stages[0].n_checkpointed = 1;
            for (int i = 0; i < 3; i++)
                at.plan.stages[i].zero = zero;
            build(&at, &prices, false);
            double whole = run(&at, false, NULL);
            struct mist_replay_stage stages[3];
            memcpy(stages, at.result.stages, sizeof stages);
            unbuild(&at);
            build(&at, &prices, true);
            assert_true(run(&at, true, NULL) == whole);
            for (int i = 0; i < 3; i++) {
                assert_true(stages[i].compute_s == at.result.stages[i].compute_s);
                assert_true(stages[i].exposed_s == at.result.stages[i].exposed_s);
                assert_int_equal(stages[i].arena_bytes[0],
                                 at.result.stages[i].arena_bytes[0]);
            }
            stop(&at);
        }
}

/* Knobs by number, for plans whose stages are alike. */
static void turn_knobs(struct fixture *at, int knobs)
{
    at->plan.reduces_each_micro_batch = knobs & 1;
    if (knobs & 2)
        at->plan.pipeline = MIST_PIPELINE_ZB_H1;
    if (knobs & 128)
        at->plan.pipeline = MIST_PIPELINE_ZB_V;
    for (int32_t i = 0; i < at->plan.n_stages; i++) {
        struct mist_stage_plan *stage = &at->plan.stages[i];
        stage->zero = knobs & 4 ? (i == 1 ? 1 : 3) : 0;
        if (knobs & 8)
            stage->offload_weights = stage->offload_gradients = stage->offload_optimizer =
                stage->offload_activations = 0.5;
        stage->tp = knobs & 16 ? 2 : 1;
        stage->n_devices = stage->dp * stage->tp;
        stage->is_sequence_parallel = (knobs & 48) == 48;
    }
}

/* With tensor parallelism, sharding, offloading, tied heads; and the check of all ranks
 * proves every one of these plans. */
TEST(folding_works_with_all_knobs)
{
    struct prices prices = all_prices();

    for (int knobs = 0; knobs < 256; knobs++) {
        struct fixture at;
        struct mist_err err;
        if ((knobs & 48) == 32 || (knobs & 130) == 130)
            continue;
        start(&at, 3, (int32_t[]){2, 2, 2}, (int32_t[]){2, knobs & 128 ? 4 : 1, 2}, 4);
        at.plan.model.ties_embeddings = knobs & 64;
        turn_knobs(&at, knobs);
        assert_int_equal(mist_plan_check(&at.plan, NULL), MIST_OK);
        if (mist_replay_check(&at.plan, 1, &err) != MIST_OK)
            fail_msg("knobs %d: %s", knobs, err.message);
        build(&at, &prices, false);
        double whole = run(&at, false, NULL);
        unbuild(&at);
        build(&at, &prices, true);
        if (run(&at, true, NULL) != whole)
            fail_msg("knobs %d: %.17g folded, %.17g not", knobs, at.result.iteration_s,
                     whole);
        stop(&at);
    }
}

/* Stages that differ in tp or sequence parallelism have no representatives that meet. */
TEST(unlike_stages_are_not_folded)
{
    struct mist_trace_set traces;
    struct mist_cost_model *model;

    flat_cluster_init(&traces, 16);
    assert_int_equal(mist_cost_model_new(&traces, &model, NULL), MIST_OK);
    for (int unlike = 0; unlike <= 2; unlike++) {
        struct fixture at;
        struct mist_err err;
        start(&at, 2, (int32_t[]){2, 2}, (int32_t[]){1, 1}, 2);
        turn_knobs(&at, 16);
        if (unlike == 1)
            at.plan.stages[1].tp = 1;
        at.plan.stages[1].n_devices = 2 * at.plan.stages[1].tp;
        at.plan.stages[1].is_sequence_parallel = unlike == 2;
        assert_int_equal(mist_plan_check(&at.plan, NULL), MIST_OK);
        if (mist_replay_run(&at.plan, model, NULL, &at.result, &err) != MIST_OK)
            fail_msg("%s", err.message);
        at.has_result = true;
        assert_int_equal(at.result.is_folded, unlike == 0);
        stop(&at);
    }
    mist_cost_model_free(model);
    mist_trace_set_fini(&traces);
}

TEST(jitter_is_seeded)
{
    struct fixture at;
    struct mist_replay_options options = {.jitter_frac = 0.1, .seed = 7};
    struct prices prices = all_prices();

    start(&at, 2, (int32_t[]){2, 2}, (int32_t[]){2, 2}, 4);
    build(&at, &prices, false);
    double calm = run(&at, false, NULL), first = run(&at, false, &options);
    assert_true(run(&at, false, &options) == first);
    options.seed = 8;
    double other = run(&at, false, &options);
    assert_true(other != first);
    assert_true(fabs(first / calm - 1) < 0.2);
    stop(&at);
}

/* Two costs, one of them with deviation 0.5 on 4 tasks: 2 * 4 * 0.5 over all. */
TEST(error_bars_follow_their_rule)
{
    struct fixture at;

    start(&at, 1, (int32_t[]){1}, (int32_t[]){1}, 4);
    build(&at, &compute_only, false);
    const struct mist_schedule *schedule = at.schedules[0];
    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        if (task->kind == MIST_TASK_FORWARD && task->layer == 1) {
            at.costs[0][task->cost].deviation_s = 0.5;
            at.costs[0][task->cost].extrapolated_s = 0.25;
        }
    }
    assert_close(run(&at, false, NULL), 18);
    assert_close(at.result.error_s, 2 * 4 * 0.5);
    assert_close(at.result.extrapolated_frac, 1. / 18);
    stop(&at);
}

/* reductions_hide_beside_the_backward() with doubts. Of 10.5 s, the reductions of head
 * and block run beside a backward for 1.5 s each; the tasks add up to 9 + 3 * 1.5. */
TEST(three_doubts_add_as_squares)
{
    struct fixture at;

    start_reductions(&at);
    for (int32_t r = 0; r < 2; r++)
        for (int32_t i = 0; i < at.schedules[r]->n_tasks; i++) {
            const struct mist_task *task = &at.schedules[r]->tasks[i];
            if (task->kind == MIST_TASK_FORWARD && task->layer == 1)
                at.costs[r][task->cost].deviation_s = 0.27;
        }
    at.doubt = (struct mist_replay_doubt){.drift_frac = 0.02};
    assert_close(run(&at, false, NULL), 10.5);
    assert_close(at.result.error_s, 2 * sqrt(0.21 * 0.21 + 0.21 * 0.21));
    at.doubt = (struct mist_replay_doubt){.residual_frac = 0.1};
    run(&at, false, NULL);
    assert_close(at.result.error_s, 2 * sqrt(0.21 * 0.21 + 0.3 * 0.3));
    at.doubt = (struct mist_replay_doubt){.drift_frac = 0.04, .residual_frac = 0.1};
    run(&at, false, NULL);
    assert_close(at.result.error_s, 2 * sqrt(0.21 * 0.21 + 0.42 * 0.42 + 0.3 * 0.3));
    stop(&at);
}

/* Busy streams of a rank at a time, by looking at all of its rows. */
static int n_busy(const struct mist_timeline *timeline, int32_t rank, double time_s)
{
    int n = 0;

    for (size_t i = 0; i < timeline->n_rows; i++) {
        const struct mist_timeline_row *row = &timeline->rows[i];
        n += row->rank == rank && row->start_s < time_s && time_s < row->end_s;
    }
    return n;
}

/* The time in which two streams or more of a rank are busy: between two consecutive
 * starts or ends nothing changes. */
static double naive_shared_s(const struct mist_timeline *timeline, int32_t rank)
{
    double shared_s = 0;

    for (size_t i = 0; i < 2 * timeline->n_rows; i++) {
        const struct mist_timeline_row *row = &timeline->rows[i / 2];
        double from_s = i % 2 ? row->end_s : row->start_s, to_s = INFINITY;
        bool is_first = true;
        for (size_t k = 0; k < 2 * timeline->n_rows; k++) {
            const struct mist_timeline_row *other = &timeline->rows[k / 2];
            double edge_s = k % 2 ? other->end_s : other->start_s;
            to_s = edge_s > from_s ? fmin(to_s, edge_s) : to_s;
            is_first = is_first && !(edge_s == from_s && k < i);
        }
        if (is_first && isfinite(to_s) &&
            n_busy(timeline, rank, from_s + (to_s - from_s) / 2) > 1)
            shared_s += to_s - from_s;
    }
    return shared_s;
}

/* The busiest rank's shared time where three streams run at once: it loads
 * batches, too. */
TEST(shared_time_is_counted_once)
{
    for (int32_t g = 1; g <= 4; g++) {
        struct fixture at;
        struct prices prices = all_prices();
        prices.by_kind[MIST_TASK_LOAD_BATCH] = 2;
        start(&at, 3, (int32_t[]){2, 2, 2}, (int32_t[]){4, 1, 1}, g);
        at.plan.stages[0].n_checkpointed = 2;
        at.plan.stages[0].zero = 1; /* gathers while it loads */
        build(&at, &prices, false);
        at.doubt.residual_frac = 0.5;
        run(&at, false, NULL);
        double shared_s = naive_shared_s(&at.result.timeline, at.result.stages[0].rank);
        assert_true(shared_s > 0);
        assert_true(at.result.stages[0].compute_s > at.result.stages[1].compute_s);
        assert_true(at.result.stages[0].compute_s > at.result.stages[2].compute_s);
        assert_close(at.result.error_s, shared_s);
        stop(&at);
    }
}

/* ----------------------------------------------------------------------------- checks */

static enum mist_status check(struct fixture *at, struct mist_err *err)
{
    return check_schedules(&at->plan, at->schedules, at->n_ranks, err);
}

TEST(unequal_groups_match)
{
    static const int32_t dps[][3] = {{1, 2, 4}, {4, 2, 1}, {2, 3, 2}, {4, 3, 1}};

    for (size_t i = 0; i < sizeof dps / sizeof *dps; i++) {
        struct fixture at;
        struct mist_err err;
        start(&at, 3, dps[i], (int32_t[]){2, 1, 2}, 4);
        for (int k = 0; k < 3; k++)
            at.plan.stages[k].zero = k != 1;
        must(mist_replay_check(&at.plan, 1, &err), &err);
        struct prices prices = all_prices();
        build(&at, &prices, false);
        run(&at, false, NULL); /* the event engine agrees */
        int64_t bytes[3][MIST_N_ARENAS];
        assert_int_equal(mist_replay_memory(&at.plan, 1, bytes, NULL), MIST_OK);
        for (int32_t r = 0; r < at.n_ranks; r++)
            assert_memory_equal(bytes[at.schedules[r]->i_stage],
                                at.schedules[r]->arena_bytes, sizeof bytes[0]);
        stop(&at);
    }
}

/* As many stages are laid out as it takes to see that one is over the limit. */
TEST(a_limit_ends_building)
{
    struct fixture at;
    struct mist_err err;
    int64_t bytes[3][MIST_N_ARENAS];
    struct mist_replay_stage built[3];

    start(&at, 3, (int32_t[]){1, 2, 4}, (int32_t[]){2, 1, 2}, 4);
    must(mist_replay_memory(&at.plan, 1, bytes, &err), &err);
    for (int k = 0; k < 4; k++) { /* over which one; none */
        struct mist_replay_options options = {.threads = 1};
        struct mist_replay_built *ranks;
        int64_t before = 0;
        for (int i = 0; i < (k < 3 ? k : 3); i++)
            before = bytes[i][MIST_ARENA_DEVICE] > before ? bytes[i][MIST_ARENA_DEVICE]
                                                          : before;
        options.limit_bytes = k == 0 ? 1 : before;
        bool is_over = k < 3 && bytes[k][MIST_ARENA_DEVICE] > options.limit_bytes;
        must(mist_replay_build(&at.plan, &options, &ranks, &err), &err);
        mist_replay_built_stages(ranks, built);
        for (int i = 0; i < 3; i++) {
            bool is_there = !is_over || i <= k;
            if (!is_over && k < 3)
                continue; /* a later one may be over */
            assert_true(built[i].arena_bytes[MIST_ARENA_DEVICE] ==
                        (is_there ? bytes[i][MIST_ARENA_DEVICE] : 0));
        }
        mist_replay_built_free(ranks);
    }
    stop(&at);
}

/* The n-th task of a kind. */
static struct mist_task *find(struct fixture *at, int32_t rank, enum mist_task_kind kind,
                              int32_t n)
{
    struct mist_schedule *schedule = at->schedules[rank];

    for (int32_t i = 0; i < schedule->n_tasks; i++)
        if (schedule->tasks[i].kind == kind && n-- == 0)
            return &schedule->tasks[i];
    fail_msg("no task %s on rank %d", mist_task_kind_name(kind), (int)rank);
    return NULL;
}

static void expect_fault(struct fixture *at, const char *words)
{
    struct mist_err err;

    assert_int_equal(check(at, &err), MIST_ERR_INPUT);
    if (!strstr(err.message, words))
        fail_msg("\"%s\" does not say \"%s\"", err.message, words);
}

/* Damages one field at a time and mends it again. */
TEST(mismatches_are_named)
{
    struct fixture at;
    struct prices prices = all_prices();
    struct mist_err err;

    start(&at, 2, (int32_t[]){2, 4}, (int32_t[]){1, 1}, 3);
    build(&at, &prices, false);
    assert_int_equal(check(&at, &err), MIST_OK);

    struct mist_task *recv = find(&at, 2, MIST_TASK_RECV_ACTIVATION, 1), kept = *recv;
    recv->bytes += 4;
    expect_fault(&at, "differ in bytes");
    *recv = kept;
    recv->tag += 100;
    expect_fault(&at, "no task for the other end");
    *recv = kept;
    recv->to_offset_bytes += 64;
    expect_fault(&at, "different samples");
    *recv = kept;
    recv->kind = MIST_TASK_RECV_GRADIENT;
    expect_fault(&at, "different transfers");
    *recv = kept;
    recv->tag -= 2;
    expect_fault(&at, "not the only ones");
    *recv = kept;

    struct mist_task *reduce = find(&at, 3, MIST_TASK_REDUCE_GRADIENT, 0);
    kept = *reduce;
    reduce->bytes *= 2;
    expect_fault(&at, "differ");
    *reduce = kept;
    reduce->tag += 1000;
    expect_fault(&at, "3 of the 4 ranks");
    *reduce = kept;
    assert_int_equal(check(&at, &err), MIST_OK);
    stop(&at);
}

/* The same of groups over tensor-parallel ranks, of a tied weight and of all ranks. */
TEST(mismatches_of_groups_are_named)
{
    struct fixture at;
    struct prices prices = all_prices();
    struct mist_err err;

    start(&at, 2, (int32_t[]){2, 2}, (int32_t[]){1, 1}, 3);
    at.plan.model.ties_embeddings = true;
    turn_knobs(&at, 16 + 32);
    build(&at, &prices, false);
    assert_int_equal(check(&at, &err), MIST_OK);

    struct mist_task *task = find(&at, 3, MIST_TASK_TP_ALL_GATHER, 1), kept = *task;
    task->bytes += 4;
    expect_fault(&at, "differ");
    *task = kept;
    task->micro_batch++;
    expect_fault(&at, "differ");
    *task = kept;
    task->group = MIST_GROUP_DP;
    task->tag = 1000;
    expect_fault(&at, "1 of the 2 ranks");
    *task = kept;

    task = find(&at, 1, MIST_TASK_TIE_GRADIENT, 0);
    kept = *task;
    task->peer = 4;
    expect_fault(&at, "no task for the other end");
    *task = kept;
    task->bytes += 4;
    expect_fault(&at, "differ in bytes");
    *task = kept;

    task = find(&at, 6, MIST_TASK_REDUCE_NORM, 0);
    kept = *task;
    task->tag++;
    expect_fault(&at, "7 of the 8 ranks");
    *task = kept;

    task = find(&at, 5, MIST_TASK_RECV_ACTIVATION, 0);
    kept = *task;
    task->to_offset_bytes += 32; /* within its own rows, but not the ones that are sent */
    expect_fault(&at, "different samples");
    *task = kept;
    assert_int_equal(check(&at, &err), MIST_OK);
    stop(&at);
}

/* One rank receives a gradient before the activation that the gradient needs. */
TEST(deadlocks_are_named)
{
    struct fixture at;
    struct prices prices = all_prices();
    struct mist_err err;

    start(&at, 3, (int32_t[]){1, 1, 1}, (int32_t[]){1, 1, 1}, 1);
    build(&at, &prices, false);
    struct mist_task *first = find(&at, 1, MIST_TASK_RECV_ACTIVATION, 0);
    struct mist_task *second = find(&at, 1, MIST_TASK_RECV_GRADIENT, 0);
    struct mist_task kept = *first;
    *first = *second;
    *second = kept;
    expect_fault(&at, "deadlock");
    expect_fault(&at, "rank 1 task");
    expect_fault(&at, "rank 2 task");
    expect_fault(&at, "waits for");
    assert_int_equal(replay_schedules(&at.plan, at.schedules, at.costs, at.n_ranks, false,
                                      NULL, NULL, NULL, &at.result, &err),
                     MIST_ERR_INPUT);
    stop(&at);
}

TEST_MAIN(NULL, NULL)
