/*
 * Where the chunks of a pipeline lie: by hand, and the two ways of asking against each
 * other.
 */
#include "tests/unit/test.h"

#include "sim/plan/pipeline.h"

/* The stages that a sample passes. */
TEST(test_by_hand)
{
    static const struct {
        enum mist_pipeline_schedule schedule;
        int32_t p, n;
        int32_t stages[8];
    } cases[] = {
        {MIST_PIPELINE_1F1B, 3, 3, {0, 1, 2}},
        {MIST_PIPELINE_ZB_H1, 1, 1, {0}},
        {MIST_PIPELINE_ZB_H2, 2, 2, {0, 1}},
        {MIST_PIPELINE_INTERLEAVED, 2, 6, {0, 1, 0, 1, 0, 1}},
        {MIST_PIPELINE_INTERLEAVED, 4, 8, {0, 1, 2, 3, 0, 1, 2, 3}},
        {MIST_PIPELINE_ZB_V, 1, 2, {0, 0}},
        {MIST_PIPELINE_ZB_V, 2, 4, {0, 1, 1, 0}},
        {MIST_PIPELINE_ZB_V, 4, 8, {0, 1, 2, 3, 3, 2, 1, 0}},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int32_t k = 0; k < cases[i].n; k++)
            assert_int_equal(mist_pipeline_stage(cases[i].schedule, cases[i].p, k),
                             cases[i].stages[k]);
}

TEST(test_inverse)
{
    for (int schedule = 0; schedule < MIST_N_PIPELINES; schedule++)
        for (int32_t p = 1; p <= 9; p++)
            for (int32_t k = 0; k < 4 * p; k++) {
                enum mist_pipeline_schedule of = (enum mist_pipeline_schedule)schedule;
                int32_t stage = mist_pipeline_stage(of, p, k);
                assert_in_range(stage, 0, p - 1);
                assert_int_equal(mist_pipeline_virtual(of, p, stage, k / p), k);
            }
}

TEST(test_names)
{
    static const char *const names[] = {"1f1b", "interleaved", "zb_h1", "zb_h2",
                                        "zb_v", "zb_1p",       "zb_2p"};

    for (int i = 0; i < MIST_N_PIPELINES; i++)
        assert_string_equal(mist_pipeline_words[i], names[i]);
    assert_null(mist_pipeline_words[MIST_N_PIPELINES]);
}

TEST_MAIN(NULL, NULL)
