/*
 * Causes of a slowdown: each against a replay of the job that has been made even by hand.
 */
#include "tests/unit/test.h"

#include "sim/replay/replay_causes.h"
#include "tests/unit/small_job.h"

#include <math.h>

enum { N_RANKS = 4, SEQ_LEN = 256 };

static struct mist_err err;

/* Two stages of two data-parallel ranks. */
static void start(struct small_job *at)
{
    small_job_start(at, SEQ_LEN, 2, mist_tiny_stage(2, 4, 2, 1));
}

static double replay_s(const struct small_job *at, struct mist_replay_options options)
{
    struct mist_replay_result result;

    options.skips_timeline = true;
    must(mist_replay_run(&at->plan, at->model, &options, &result, &err), &err);
    double time_s = result.iteration_s;
    mist_replay_result_fini(&result);
    return time_s;
}

static const struct mist_replay_cause *find(const struct mist_replay_causes *causes,
                                            const char *name)
{
    char text[64];

    for (size_t i = 0; i < causes->n; i++)
        if (strcmp(mist_replay_cause_text(&causes->causes[i].part, text, sizeof text),
                   name) == 0)
            return &causes->causes[i];
    fail_msg("no cause %s", name);
    return NULL;
}

static void expect(const struct mist_replay_causes *causes, const char *name,
                   double alone_s, double without_s)
{
    const struct mist_replay_cause *cause = find(causes, name);

    if (!(fabs(cause->alone_frac - alone_s / causes->even_s) < 1e-9) ||
        !(fabs(cause->without_s - without_s) < 1e-9 * without_s))
        fail_msg("%s: alone %.12g, without it %.12g s, expected %.12g and %.12g s", name,
                 cause->alone_frac, cause->without_s, alone_s / causes->even_s,
                 without_s);
}

TEST(ranks_and_links_are_taken_out_one_by_one)
{
    struct small_job at;
    const double ranks[N_RANKS] = {1, 1, 1.5, 1.25}, links[N_RANKS] = {1, 4, 1, 1};
    const double third[N_RANKS] = {1, 1, 1.5, 1}, fourth[N_RANKS] = {1, 1, 1, 1.25};
    struct mist_replay_causes causes;
    char shown[80] = "";
    struct mist_progress progress = {.stream = fmemopen(shown, sizeof shown - 1, "w"),
                                     .label = "replaying",
                                     .is_enabled = true,
                                     .time_shown_s = -1e9};

    start(&at);
    const struct mist_replay_options options = {.rank_factor = ranks,
                                                .link_factor = links};
    assert_non_null(progress.stream);
    must(mist_replay_find_causes(&at.plan, at.model, &options, &progress, &causes, &err),
         &err);
    assert_int_equal(fclose(progress.stream), 0);
    assert_non_null(
        strstr(shown, "replaying 1 of 16")); /* itself, even, 7 causes twice */
    double plain_s = replay_s(&at, (struct mist_replay_options){0});
    double ranks_s = replay_s(&at, (struct mist_replay_options){.rank_factor = ranks});
    double links_s = replay_s(&at, (struct mist_replay_options){.link_factor = links});
    assert_true(fabs(causes.even_s - plain_s) < 1e-9 * plain_s);
    assert_true(causes.iteration_s == replay_s(&at, options));
    assert_true(causes.iteration_s > ranks_s && ranks_s > plain_s && links_s > plain_s);
    expect(&causes, "speed of ranks", ranks_s, links_s);
    expect(&causes, "links of ranks", links_s, ranks_s);
    expect(&causes, "links of rank 1", links_s, ranks_s);
    expect(&causes, "speed of rank 2",
           replay_s(&at, (struct mist_replay_options){.rank_factor = third}),
           replay_s(&at, (struct mist_replay_options){.rank_factor = fourth,
                                                      .link_factor = links}));
    expect(&causes, "stage 1", ranks_s, links_s);
    for (size_t i = 1; i < causes.n; i++)
        assert_true(causes.causes[i - 1].without_s <= causes.causes[i].without_s);
    assert_int_equal(causes.n, 2 + 2 + 3); /* sorts, stages, ranks */
    mist_replay_causes_fini(&causes);
    small_job_stop(&at);
}

/* Micro-batches whose number is among the bits hold the mean. */
static struct mist_loads make_even(const struct mist_loads *from, unsigned even)
{
    struct mist_loads out = *from;
    int32_t n_sums = from->n_samples + 1, n = from->n_iterations * from->n_micro_batches;
    double length = from->seq_len;

    out.sums = malloc((size_t)n * (size_t)n_sums * sizeof *out.sums);
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < n_sums; k++)
            out.sums[i * n_sums + k] =
                even >> i % from->n_micro_batches & 1
                    ? (struct mist_load){k * length * from->mean.tokens,
                                         k * length * length * from->mean.squares}
                    : from->sums[i * n_sums + k];
    return out;
}

TEST(loads_are_taken_out_one_by_one)
{
    struct small_job at;
    const struct mist_lengths lengths = {.median = 100, .sigma = 0.7};
    struct mist_loads loads, even;
    struct mist_replay_causes causes;

    start(&at);
    must(mist_loads_make(&at.plan, &lengths, MIST_PACKING_NONE, test_seed(1), 9, &loads,
                         &err),
         &err);
    struct mist_replay_options options = {.n_iterations = 9, .loads = &loads};
    must(mist_replay_find_causes(&at.plan, at.model, &options, NULL, &causes, &err),
         &err);
    assert_true(causes.iteration_s == replay_s(&at, options));
    for (int m = -1; m < 3; m++) {
        unsigned bits = m < 0 ? 7 : 1u << m;
        char name[32] = "lengths";
        if (m >= 0)
            snprintf(name, sizeof name, "micro-batch %d", m);
        even = make_even(&loads, bits);
        options.loads = &even;
        double without_s = replay_s(&at, options);
        mist_loads_fini(&even);
        even = make_even(&loads, 7 & ~bits);
        expect(&causes, name, replay_s(&at, options), without_s);
        mist_loads_fini(&even);
    }
    mist_replay_causes_fini(&causes);
    mist_loads_fini(&loads);
    small_job_stop(&at);
}

TEST(what_is_even_has_no_causes)
{
    struct small_job at;
    const struct mist_replay_options options = {0};
    struct mist_replay_causes causes;

    start(&at);
    assert_int_equal(
        mist_replay_find_causes(&at.plan, at.model, &options, NULL, &causes, &err),
        MIST_ERR_USAGE);
    small_job_stop(&at);
}

TEST_MAIN(NULL, NULL)
