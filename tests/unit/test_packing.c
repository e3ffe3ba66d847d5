/*
 * Lengths and packing: draws against the list that a file means, every rule against a naive
 * second implementation, and files that are wrong.
 */
#include "tests/unit/test.h"

#include "core/random.h"
#include "sim/replay/packing.h"

#include <math.h>
#include <unistd.h>

enum { N_CASES = 200, MAX_SLOTS = 240 };

static struct mist_err err;

/* -------------------------------------------------------------------------------- files */

static enum mist_status read_text(const char *text, struct mist_lengths *out)
{
    char path[] = "/tmp/mist_lengths_XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    enum mist_status status = mist_lengths_read(path, out, &err);
    unlink(path);
    return status;
}

/* A uniform draw u takes element floor(u n) of the list, each length as often as it says. */
TEST(files_are_lists_to_draw_from)
{
    const int32_t list[] = {7, 7, 7, 100, 2, 2, 7};
    const char *const texts[] = {"7\n7\n7\n100\n2\n2\n7\n", "7,3\n100,1\n2,2\n7,1",
                                 "length,count\n7,3\n100,1\n9,0\n2,2\n7,1\n",
                                 "length\r\n7\r\n7\r\n7\r\n100\r\n2\r\n2\r\n7\r\n"};
    struct mist_lengths lengths;
    uint64_t seed = test_seed(1);

    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        must(read_text(texts[k], &lengths), &err);
        for (uint64_t i = 0; i < 1000; i++) {
            double u = mist_random_uniform_at(seed, 2, i);
            assert_int_equal(mist_lengths_draw(&lengths, seed, i), list[(int)(u * 7)]);
        }
        mist_lengths_fini(&lengths);
    }
}

TEST(wrong_files_are_refused_by_line)
{
    static const struct {
        const char *text;
        long line;
    } cases[] = {{"", 0},
                 {"length\n", 0},
                 {"5\nlength\n", 2},
                 {"5\n\n6\n", 2},
                 {"0\n", 1},
                 {"5\n-3\n", 2},
                 {"5,\n", 1},
                 {"5,-1\n", 1},
                 {"5,1,2\n", 1},
                 {"5\n6\n1e3\n", 3},
                 {"2147483648\n", 1},
                 {"5,0\n", 0},
                 {"5,1099511627776\n6,1\n", 2}};
    struct mist_lengths lengths;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_text(cases[i].text, &lengths), MIST_ERR_INPUT);
        assert_int_equal(err.line, cases[i].line);
    }
    assert_int_equal(mist_lengths_read("/nowhere/lengths", &lengths, &err), MIST_ERR_IO);
}

TEST(wrong_distributions_are_refused)
{
    static const char *const texts[] = {"lognormal:",
                                        "lognormal:median=5",
                                        "lognormal:median=5,sigma=11",
                                        "lognormal:5,1",
                                        "lognormal:median=0,sigma=1",
                                        "lognormal:median=5,sigma=-1",
                                        "lognormal:sigma=1,x",
                                        "lognormal:median=5,sigma=1,",
                                        "lognormal:median=5,sigma=nan"};
    struct mist_lengths lengths;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(mist_lengths_read(texts[i], &lengths, &err), MIST_ERR_USAGE);
    must(mist_lengths_read("lognormal:sigma=0,median=17", &lengths, &err), &err);
    assert_int_equal(mist_lengths_draw(&lengths, 1, 2), 17);
}

/* Half of the draws are beyond the median, 15.9 % beyond e^sigma times as much. */
TEST(lognormal_is_what_it_says)
{
    enum { N = 40000 };
    struct mist_lengths lengths;
    uint64_t seed = test_seed(1);
    int n_above = 0, n_far = 0;

    must(mist_lengths_read("lognormal:median=1000,sigma=0.8", &lengths, &err), &err);
    for (uint64_t i = 0; i < N; i++) {
        int32_t length = mist_lengths_draw(&lengths, seed, i);
        assert_true(length >= 1);
        n_above += length > 1000;
        n_far += length > 1000 * exp(0.8);
    }
    assert_true(fabs(n_above - 0.5 * N) < 4 * sqrt(0.25 * N));
    assert_true(fabs(n_far - 0.1587 * N) < 4 * sqrt(0.1587 * 0.8413 * N));
}

/* -------------------------------------------------------------------------------- rules */

struct naive {
    int64_t tokens[MAX_SLOTS], squares[MAX_SLOTS]; /* of one iteration */
    int32_t waiting[100 * MAX_SLOTS];              /* what found no room */
    int n_waiting;
    uint64_t n_drawn;
    int64_t n_sequences, n_cut;
};

static int32_t shorter(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Each slot its own sequence; of pad, a rank's micro-batch (all dp are equal here) has the
 * length of its longest. */
static void fill_naively(struct naive *at, const struct mist_plan *plan,
                         const struct mist_lengths *lengths, uint64_t seed, bool pads)
{
    int n_slots = (int)plan->job.global_batch, b = plan->stages[0].micro_batch;

    for (int i = 0; i < n_slots; i++) {
        int32_t drawn = mist_lengths_draw(lengths, seed, at->n_drawn++);
        at->tokens[i] = shorter(drawn, plan->job.seq_len);
        at->n_cut += drawn > plan->job.seq_len;
        at->n_sequences++;
    }
    for (int i = 0; i < n_slots; i++)
        for (int k = i / b * b; pads && k < (i / b + 1) * b; k++)
            if (at->tokens[k] > at->tokens[i])
                at->tokens[i] = at->tokens[k];
    for (int i = 0; i < n_slots; i++)
        at->squares[i] = at->tokens[i] * at->tokens[i];
}

/* First fit, slot after slot; sorted by insertion. */
static void pack_naively(struct naive *at, const struct mist_plan *plan,
                         const struct mist_lengths *lengths, uint64_t seed, bool sorts)
{
    static int32_t pool[100 * MAX_SLOTS];
    int n_slots = (int)plan->job.global_batch, n = 0;
    int32_t full = plan->job.seq_len;
    int64_t sum = 0;

    memset(at->tokens, 0, sizeof at->tokens);
    memset(at->squares, 0, sizeof at->squares);
    for (; n < at->n_waiting; n++)
        sum += shorter(pool[n] = at->waiting[n], full);
    for (;; n++) {
        pool[n] = mist_lengths_draw(lengths, seed, at->n_drawn);
        sum += shorter(pool[n], full);
        if (sum > (int64_t)n_slots * full)
            break;
        at->n_drawn++;
    }
    for (int i = 1; i < n && sorts; i++)
        for (int k = i; k > 0 && pool[k] > pool[k - 1]; k--) {
            int32_t longer = pool[k];
            pool[k] = pool[k - 1];
            pool[k - 1] = longer;
        }
    at->n_waiting = 0;
    for (int i = 0; i < n; i++) {
        int slot = 0;
        int64_t length = shorter(pool[i], full);
        while (slot < n_slots && at->tokens[slot] + length > full)
            slot++;
        if (slot == n_slots) {
            at->waiting[at->n_waiting++] = pool[i];
            continue;
        }
        at->tokens[slot] += length;
        at->squares[slot] += length * length;
        at->n_cut += pool[i] > full;
        at->n_sequences++;
    }
}

/* The loads of an iteration; returns its tokens. */
static int64_t expect_iteration(const struct mist_loads *loads, int32_t iteration,
                                const struct naive *naive)
{
    int n = loads->n_samples;
    double full = loads->seq_len;
    int64_t all = 0;

    for (int m = 0; m < loads->n_micro_batches; m++) {
        double tokens = 0, squares = 0;
        for (int i = 0; i < n; i++) {
            struct mist_load one = mist_loads_of(loads, iteration, m, i, 1);
            assert_true(one.tokens == (double)naive->tokens[m * n + i] / full);
            assert_true(one.squares == (double)naive->squares[m * n + i] / (full * full));
            tokens += (double)naive->tokens[m * n + i];
            squares += (double)naive->squares[m * n + i];
            all += naive->tokens[m * n + i];
        }
        struct mist_load load = mist_loads_of(loads, iteration, m, 0, n);
        assert_true(load.tokens == tokens / (n * full));
        assert_true(load.squares == squares / (n * full * full));
    }
    return all;
}

static void draw_plan(struct mist_random *random, struct mist_plan *out)
{
    *out = (struct mist_plan){
        .n_micro_batches = (int32_t)(1 + mist_random_below(random, 5)),
        .n_stages = 1,
        .job = {.seq_len = (int32_t)(1 + mist_random_below(random, 60))}};
    out->stages[0].micro_batch = (int32_t)(1 + mist_random_below(random, 6));
    out->stages[0].dp = (int32_t)(1 + mist_random_below(random, 8));
    out->job.global_batch =
        (int64_t)out->n_micro_batches * out->stages[0].micro_batch * out->stages[0].dp;
}

TEST(rules_are_those_of_a_naive_packing)
{
    static struct mist_plan plan;
    static struct naive naive;
    uint64_t seed = test_seed(1);
    struct mist_random random;
    struct mist_loads loads;

    for (int i = 0; i < N_CASES; i++) {
        mist_random_init(&random, seed + (uint64_t)i);
        draw_plan(&random, &plan);
        const struct mist_lengths lengths = {
            .median = 1 + (double)mist_random_below(&random, 100),
            .sigma = 2 * mist_random_uniform(&random)};
        enum mist_packing packing = (enum mist_packing)(i % MIST_N_PACKINGS);
        int32_t n_iterations = (int32_t)(1 + mist_random_below(&random, 3));
        int64_t tokens = 0;
        must(mist_loads_make(&plan, &lengths, packing, seed, n_iterations, &loads, &err),
             &err);
        naive = (struct naive){0};
        for (int32_t k = 0; k < n_iterations; k++) {
            if (packing <= MIST_PACKING_PAD)
                fill_naively(&naive, &plan, &lengths, seed, packing == MIST_PACKING_PAD);
            else
                pack_naively(&naive, &plan, &lengths, seed,
                             packing == MIST_PACKING_SORTED);
            tokens += expect_iteration(&loads, k, &naive);
        }
        double room = (double)plan.job.global_batch * plan.job.seq_len * n_iterations;
        assert_int_equal(loads.n_sequences, naive.n_sequences);
        assert_int_equal(loads.n_cut, naive.n_cut);
        assert_true(fabs(loads.mean.tokens - (double)tokens / room) < 1e-12);
        assert_true(packing == MIST_PACKING_PAD ? loads.packed.tokens <= (double)tokens
                                                : loads.packed.tokens == (double)tokens);
        mist_loads_fini(&loads);
    }
}

/* Where stages differ in dp, what they share has one length: 12 samples, of dp 4 and 6 the
 * ranks of 6 samples. */
TEST(padding_is_alike_in_all_stages)
{
    static struct mist_plan plan;
    const struct mist_lengths lengths = {.median = 20, .sigma = 1};
    struct mist_loads loads;

    plan = (struct mist_plan){
        .n_micro_batches = 2, .n_stages = 2, .job = {.global_batch = 24, .seq_len = 50}};
    plan.stages[0] = (struct mist_stage_plan){.micro_batch = 3, .dp = 4};
    plan.stages[1] = (struct mist_stage_plan){.micro_batch = 2, .dp = 6};
    must(mist_loads_make(&plan, &lengths, MIST_PACKING_PAD, 3, 1, &loads, &err), &err);
    for (int m = 0; m < 2; m++)
        for (int half = 0; half < 2; half++) {
            int32_t longest = 0;
            for (int i = 0; i < 6; i++) {
                int32_t length =
                    mist_lengths_draw(&lengths, 3, (uint64_t)(m * 12 + half * 6 + i));
                longest = shorter(length, 50) > longest ? shorter(length, 50) : longest;
            }
            for (int i = 0; i < 6; i++)
                assert_true(mist_loads_of(&loads, 0, m, half * 6 + i, 1).tokens ==
                            longest / 50.0);
        }
    mist_loads_fini(&loads);
}

TEST_MAIN(NULL, NULL)
