/* Why plans lost: explanations made by hand, and what is said of them. */
#include "tests/unit/test.h"

#include "tests/unit/tiny_models.h"
#include "tune/runners_up.h"

enum { N_PLANS = 4 }; /* a fifth in one test */

struct fixture {
    struct mist_plan plans[N_PLANS + 1];
    struct mist_validated validated[N_PLANS + 1], dropped;
    struct mist_validate_result result;
    struct mist_runners_up runners_up;
    struct mist_trace_set traces;
};

/* The best plan takes so many times longer in 1F1B. */
static void set_1f1b(struct fixture *at, double longer)
{
    at->validated[0].pipelines[MIST_PIPELINE_1F1B].time_s =
        longer * at->plans[0].predicted.iteration_s;
}

/* An iteration of so many ms: the rest is matrix products. */
static void set_plan(struct fixture *at, int i, double iteration_ms, double bubble_ms,
                     double copies_ms, double recomputation_ms)
{
    struct mist_plan *plan = &at->plans[i];
    double *mean_s = at->runners_up.of[i].mean_s;

    plan->model = mist_small_model(MIST_FAMILY_GPT, 4, 48);
    plan->n_stages = 1;
    plan->n_micro_batches = i + 1;
    plan->stages[0] = mist_tiny_stage(4, 1, 1, 1);
    plan->predicted.iteration_s = 1e-3 * iteration_ms;
    at->validated[i] = (struct mist_validated){.plan = plan, .closed_s = 1e-3};
    mean_s[MIST_TIME_BUBBLE] = 1e-3 * bubble_ms;
    mean_s[MIST_TIME_COPIES_IN] = 1e-3 * copies_ms;
    mean_s[MIST_TIME_RECOMPUTATION] = 1e-3 * recomputation_ms;
    mean_s[MIST_TIME_PRODUCTS] =
        1e-3 * (iteration_ms - bubble_ms - copies_ms - recomputation_ms);
}

static void start(struct fixture *at)
{
    memset(at, 0, sizeof *at);
    mist_trace_set_init(&at->traces);
    set_plan(at, 0, 100, 10, 5, 0);
    set_plan(at, 1, 108, 16, 9, 0); /* 6 of bubble, 4 of copies, -2 of computation */
    set_plan(at, 2, 120, 2, 5, 30); /* 30 of recomputation, -8 of bubble, -2 */
    set_plan(at, 3, 121, 12, 5, 0); /* 19 of computation, 2 of bubble */
    at->result.plans = at->validated;
    at->result.n_plans = at->runners_up.n = N_PLANS;
}

static void emit_text(const struct fixture *at, char *text, size_t size)
{
    const struct mist_validate_config config = {.limit_bytes = 1000,
                                                .host_limit_bytes = 5000};
    struct mist_emit *emit;
    struct mist_err err;
    FILE *stream = fmemopen(text, size, "w");

    must(mist_emit_begin(&emit, MIST_EMIT_TABLE, stream, &err), &err);
    mist_runners_up_emit(emit, &at->traces, &config, &at->result, &at->runners_up);
    must(mist_emit_end(&emit, &err), &err);
    fclose(stream);
}

/* Texts that come one behind the other. */
static void expect_texts(const struct fixture *at, const char *const *texts, size_t n)
{
    char text[4096] = "";

    emit_text(at, text, sizeof text);
    const char *from = text;
    for (size_t i = 0; i < n; i++) {
        const char *found = strstr(from, texts[i]);
        if (!found)
            fail_msg("no \"%s\" in\n%s", texts[i], from);
        from = found;
    }
}

TEST(test_what_is_longer)
{
    static struct fixture at;
    static const char *const texts[] = {
        "8.0 %",  "more bubble (6.00 ms), more copies (4.00 ms)\n",
        "20.0 %", "more recomputation (30.0 ms)\n",
        "21.0 %", "more computation (19.0 ms)\n"};

    start(&at);
    expect_texts(&at, texts, sizeof texts / sizeof *texts);
}

TEST(test_what_bars_do_not_tell)
{
    static struct fixture at;
    static const char *const texts[] = {
        "more bubble (6.00 ms), more copies (4.00 ms); within the error bars\n",
        "faster within the error bars, but less simple\n",
        "faster, but less simple\n",
    };
    static const char *const equal =
        "as fast; the first is simpler, or faster by the closed form\n";

    start(&at);
    at.plans[1].predicted.error_s = 0.02;
    at.plans[2].predicted.iteration_s = 0.099;
    at.plans[2].predicted.error_s = 0.02;
    at.plans[3].predicted.iteration_s = 0.098; /* --prefer-simple */
    expect_texts(&at, texts, sizeof texts / sizeof *texts);
    at.plans[3].predicted.iteration_s = 0.1;
    expect_texts(&at, &equal, 1);
}

TEST(test_what_does_not_fit)
{
    static struct fixture at;
    static const char *const texts[] = {
        "60.0 ms  -40.0 %",
        "1.00 KiB over the memory; time by the closed form, beside the best plan's\n"};
    static const char *const in_host[] = {"-40.0 %",
                                          "2.00 KiB over the host memory of a node; time "
                                          "by the closed form, beside the best plan's\n"};
    static const char *const constrained[] = {
        "-40.0 %", "it is over the memory that a constraint allows; time by the closed "
                   "form, beside the best plan's\n"};
    static const char *const by_schedule = "75.0 ms  -25.0 %";

    start(&at);
    at.dropped = at.validated[1];
    at.dropped.closed_s = 0.6e-3;
    at.dropped.planned_bytes = 2024;
    at.result.dropped = &at.dropped;
    at.result.n_dropped = 1;
    expect_texts(&at, texts, sizeof texts / sizeof *texts);
    at.dropped.planned_bytes = 900;
    at.dropped.host_bytes = 5000 + 2048;
    expect_texts(&at, in_host, sizeof in_host / sizeof *in_host);
    at.dropped.host_bytes = 5000;
    expect_texts(&at, constrained, sizeof constrained / sizeof *constrained);
    set_1f1b(&at, 1.25);
    expect_texts(&at, &by_schedule, 1);
}

/* Plans 2 and 3 are of one kind, 4 of another one: it comes before the second of a kind. */
TEST(test_kinds_come_first)
{
    static struct fixture at;
    static const char *const texts[] = {"\n2", "\n3", "\n4"};
    static const char *const fewer[] = {"\n2", "\n4"};

    start(&at);
    at.plans[3].stages[0].n_checkpointed = 4;
    at.plans[1].stages[0].n_lean = at.plans[2].stages[0].n_lean = 4;
    at.plans[1].stages[0].offload_activations = 0.5; /* how much makes no other kind */
    at.plans[2].stages[0].offload_activations = 0.625;
    expect_texts(&at, texts, 3);
    at.plans[4] = at.plans[3];
    at.plans[4].stages[0].n_checkpointed = 0;
    at.plans[4].stages[0].offload_activations = 1;
    at.validated[4] = (struct mist_validated){.plan = &at.plans[4], .closed_s = 1e-3};
    at.result.n_plans = 5; /* 2, 4 and 5 are the kinds */
    expect_texts(&at, fewer, 2);
    char text[4096];
    emit_text(&at, text, sizeof text);
    assert_null(strstr(text, "\n3 "));
    assert_non_null(strstr(text, "\n5 "));
}

TEST(test_nothing_explained)
{
    static struct fixture at;
    static const char *const texts[] = {" slower\n", " slower\n", " slower\n"};

    start(&at);
    at.runners_up.n = 0;
    expect_texts(&at, texts, sizeof texts / sizeof *texts);
}

TEST_MAIN(NULL, NULL)
