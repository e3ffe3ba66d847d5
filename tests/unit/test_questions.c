/*
 * The questions that follow from one: their limits of memory, against what is written out
 * here by hand, and what they may use, against the parts of the space that they are about.
 */
#include "tests/unit/test.h"

#include "tests/unit/tiny_models.h"
#include "tune/questions.h"

#include <math.h>

struct bench {
    struct mist_model model;
    struct mist_space space;
    struct mist_validate_config config;
    struct mist_validate_result so_far;
    struct mist_questions questions;
};

static struct mist_err err;

static void init(struct bench *at, unsigned groups, int64_t limit_bytes)
{
    struct mist_job job = {.global_batch = 8, .seq_len = 32};

    *at = (struct bench){.model = mist_tiny_model(MIST_FAMILY_GPT, 4)};
    must(mist_space_init(&at->space, &at->model, &job, 4, 4, groups, NULL, &err), &err);
    at->config = (struct mist_validate_config){
        .space = &at->space, .limit_bytes = limit_bytes, .host_limit_bytes = INT64_MAX};
    must(mist_questions_init(&at->questions, &at->config, &err), &err);
}

static void fini(struct bench *at)
{
    free(at->questions.all);
    mist_space_fini(&at->space);
}

/* One stage with ZeRO-2, seven eighths of whose weights are offloaded. */
static struct mist_search_choice make_stage(int64_t peak_bytes)
{
    return (struct mist_search_choice){
        .shape = {.dp = 4, .tp = 1},
        .n_layers = 4,
        .micro_batch = 1,
        .knobs = {.zero = 2, .offload = {[MIST_OFFLOAD_WEIGHTS] = 7}},
        .peak_bytes = peak_bytes};
}

/* The first question was asked and brought n candidates that need so much. */
static void follow(struct bench *at, const int64_t *peaks_bytes, size_t n)
{
    struct mist_search_choice stages[4];
    struct mist_search_candidate candidates[4];
    size_t order[4];

    for (size_t i = 0; i < n; i++) {
        stages[i] = make_stage(peaks_bytes[i]);
        candidates[i] = (struct mist_search_candidate){
            .n_micro_batches = 2, .n_stages = 1, .stages = &stages[i]};
        order[i] = i;
    }
    at->questions.all[0].is_asked = true;
    at->questions.all[0].answer_s = 7;
    at->questions.all[0].least_s = 6;
    mist_question_note(&at->questions.all[0], candidates, order, n);
    must(mist_questions_follow(&at->questions, 0, &at->config, &at->so_far, &err), &err);
}

/* The lowest limit of the whole questions that follow; *has: whether one has that limit. */
static int64_t find_lower(const struct bench *at, int64_t limit_bytes, bool *has)
{
    int64_t lowest = INT64_MAX;

    *has = false;
    for (size_t i = 1; i < at->questions.n; i++)
        if (at->questions.all[i].sort == MIST_QUESTION_1F1B &&
            mist_question_is_whole(&at->questions, &at->questions.all[i])) {
            *has = *has || at->questions.all[i].limit_bytes == limit_bytes;
            lowest = at->questions.all[i].limit_bytes < lowest
                         ? at->questions.all[i].limit_bytes
                         : lowest;
        }
    return lowest;
}

/* The lowest limit that follows. Where more is needed than there is, the real one does, too. */
static int64_t ask_lower(int64_t limit_bytes, int64_t peak_bytes,
                         const struct mist_validate_result *so_far)
{
    struct bench at;
    bool has_real;

    init(&at, MIST_SPACE_ALL, limit_bytes);
    at.so_far = *so_far;
    follow(&at, &peak_bytes, 1);
    int64_t lower = find_lower(&at, limit_bytes, &has_real);
    assert_true(has_real == (peak_bytes > limit_bytes));
    fini(&at);
    return lower;
}

/* 1000003 is 111101 in binary and 14 digits more: 61 << 14 is below, 62 << 14 is not. */
TEST(test_limits)
{
    struct mist_validated plan = {.holds = true}, over = {.planned_bytes = 1000004},
                          host = {.planned_bytes = 1000003};
    struct mist_validate_result holds = {.plans = &plan, .n_plans = 1},
                                lacks = {.dropped = &over, .n_dropped = 1},
                                lacks_host = {.dropped = &host, .n_dropped = 1};
    struct bench at;

    init(&at, MIST_SPACE_ALL, 1000003);
    assert_int_equal(at.questions.n, 1);
    assert_int_equal(at.questions.all[0].limit_bytes, 62 << 14);
    fini(&at);
    init(&at, MIST_SPACE_ALL, 62 << 14);
    assert_int_equal(at.questions.all[0].limit_bytes, 62 << 14);
    fini(&at);
    assert_int_equal(ask_lower(1000003, 1000004, &holds), 61 << 14);
    assert_int_equal(ask_lower(1000003, 1000003, &holds), 61 << 14);
    assert_int_equal(ask_lower(1000003, 61 << 14, &holds), 60 << 14);
    assert_int_equal(ask_lower(1000003, 500001, &holds), 61 << 13);
    /* as long as none holds ten digits, down to an eighth less: 976 << 10 is 999424 */
    assert_int_equal(ask_lower(1000003, 1000004, &lacks), 61 << 14);
    assert_int_equal(ask_lower(1000003, 1000003, &lacks), 976 << 10);
    assert_int_equal(ask_lower(1000003, 976 << 10, &lacks), 975 << 10);
    assert_int_equal(ask_lower(1000003, 875002, &lacks), 53 << 14);
    assert_int_equal(ask_lower(1000003, 1000003, &lacks_host), 61 << 14);
}

/* Of four candidates the two best say how much memory is needed. */
TEST(test_best_half)
{
    const int64_t peaks[] = {900000, 800000, 990000, 100000};
    struct mist_validated plan = {.holds = true};
    struct bench at;
    bool has_real;

    init(&at, MIST_SPACE_ALL, 1000003);
    at.so_far = (struct mist_validate_result){.plans = &plan, .n_plans = 1};
    follow(&at, peaks, 4);
    assert_int_equal(at.questions.all[0].peak_bytes, 900000);
    assert_int_equal(find_lower(&at, 1000003, &has_real), 54 << 14);
    fini(&at);
}

/* Without ZeRO, without offloading at all, weights or eighths: each once, with all else. */
TEST(test_uses)
{
    const int64_t peak = 1000;
    int n_zero = 0, n_offload = 0, n_weights = 0, n_eighths = 0;
    struct bench at;

    init(&at, MIST_SPACE_ALL & ~(1u << MIST_SPACE_SCHEDULE), INT64_MAX);
    follow(&at, &peak, 1);
    follow(&at, &peak, 1); /* nothing new */
    assert_int_equal(at.questions.n, 1 + 1 + 4);
    for (size_t i = 1; i < at.questions.n; i++) {
        const struct mist_question *question = &at.questions.all[i];
        struct mist_space part;
        assert_true(question->hope_s == 7 && question->least_s == 6);
        assert_false(question->is_asked);
        must(mist_question_part(&at.space, question, &part, &err), &err);
        n_zero += !mist_space_has(&part, MIST_SPACE_ZERO);
        n_offload += !mist_space_has(&part, MIST_SPACE_OFFLOAD);
        n_weights += mist_space_has(&part, MIST_SPACE_OFFLOAD) &&
                     mist_space_ratios(&part, MIST_OFFLOAD_WEIGHTS).max == 0;
        n_eighths += part.ratio_step == 2;
        assert_true(mist_space_has(&part, MIST_SPACE_CKPT));
        mist_space_fini(&part);
    }
    assert_int_equal(n_zero, 1);
    assert_int_equal(n_offload, 1);
    assert_int_equal(n_weights, 1);
    assert_int_equal(n_eighths, 1);
    fini(&at);
}

/* Whether a whole question of that sort follows from the first. */
static bool follows(struct bench *at, enum mist_question_sort sort)
{
    const int64_t peak = 1000;
    bool has = false;

    follow(at, &peak, 1);
    for (size_t i = 1; i < at->questions.n; i++)
        if (at->questions.all[i].sort == sort &&
            mist_question_is_whole(&at->questions, &at->questions.all[i])) {
            has = true;
            assert_true(at->questions.all[i].least_s == 0); /* it may be faster */
            assert_true(isfinite(at->questions.all[i].hope_s) ==
                        (sort != MIST_QUESTION_HOST));
        }
    return has;
}

static bool has_sort(unsigned groups, int64_t limit_bytes, enum mist_question_sort sort)
{
    struct bench at;

    init(&at, groups, limit_bytes);
    bool has = follows(&at, sort);
    fini(&at);
    return has;
}

TEST(test_more)
{
    unsigned all = MIST_SPACE_ALL, none = all & ~(1u << MIST_SPACE_SCHEDULE);

    assert_true(has_sort(all, 5000, MIST_QUESTION_CHUNKS));
    assert_false(has_sort(none, 5000, MIST_QUESTION_CHUNKS));
}

/* Where the host's memory is limited, and stages may share a node. */
TEST(test_host)
{
    for (int32_t n_per_node = 1; n_per_node <= 4; n_per_node *= 4)
        for (int is_limited = 0; is_limited < 2; is_limited++) {
            struct bench at;
            init(&at, MIST_SPACE_ALL, INT64_MAX);
            at.space.devices_per_node = n_per_node;
            at.config.host_limit_bytes = is_limited ? 5000 : INT64_MAX;
            assert_int_equal(follows(&at, MIST_QUESTION_HOST),
                             n_per_node > 1 && is_limited);
            fini(&at);
        }
}

TEST_MAIN(NULL, NULL)
