/*
 * Pipelines by their passes, by hand: what the host's optimizer steps hold up, and weights that
 * come again. Whole pipelines are compared with published ones (test_published_pipelines.c) and with the replay of every
 * task (tests/prop/test_stage_model.c).
 */
#include "tests/unit/test.h"

#include "sim/closed_form/pass_replay.h"

enum { N_STAGES = 2, N_CHUNKS = 2, N_VIRTUAL = N_STAGES * N_CHUNKS, N_MICRO = 2 };

static struct mist_err err;

static double replay_by_s(enum mist_pipeline_schedule schedule, int32_t n_chunks,
                          struct mist_pass_times *times)
{
    struct mist_pipeline_order order;
    struct mist_interference interference;
    double iteration_s = 0;

    mist_interference_init(&interference);
    for (int32_t i = 0; i < N_STAGES * n_chunks; i++)
        times[i].n_layers = times[i].n_layers > 0 ? times[i].n_layers : 1;
    must(mist_pipeline_order_init(&order, schedule, N_STAGES, n_chunks, N_MICRO, NULL,
                                  &err),
         &err);
    must(mist_pass_replay(&order, &interference, times, &iteration_s, &err), &err);
    mist_pipeline_order_fini(&order);
    return iteration_s;
}

/* Virtual stages 0 and 2 are chunks of stage 0, 1 and 3 of stage 1. */
static double replay_s(struct mist_pass_times *times)
{
    return replay_by_s(MIST_PIPELINE_INTERLEAVED, N_CHUNKS, times);
}

/* Passes of no time: what is left are the steps on the host. */
TEST(test_steps_are_one_chain)
{
    struct mist_pass_times times[N_VIRTUAL] = {0};

    for (int i = 0; i < N_VIRTUAL; i++) {
        times[i].host_s = 10;
        times[i].held_s = 11;
    }
    assert_true(replay_s(times) == 21); /* both chunks of a stage, and one way to it */
    times[1].host_s =
        30; /* another host's: chunk 1 of stage 1 waits for chunk 0's steps */
    assert_true(replay_s(times) == 41);
    for (int i = 0; i < N_VIRTUAL; i++)
        times[i].is_ahead = true;
    assert_true(replay_s(times) == 41);
}

/* Both run at once: the first forwards take what is longer. */
TEST(test_steps_are_beside_forwards)
{
    struct mist_pass_times times[N_VIRTUAL] = {0};

    for (int i = 0; i < N_VIRTUAL; i++)
        times[i].forward_s = 4;
    double alone_s = replay_s(times);
    for (int i = 0; i < N_VIRTUAL; i++)
        times[i] = (struct mist_pass_times){.forward_s = 4, .host_s = 1, .held_s = 4};
    assert_true(replay_s(times) == alone_s);
    times[3].held_s =
        100; /* the last one's: behind it are its other forward and nothing */
    assert_true(replay_s(times) == 1 + 100 + 4);
}

/* Weights that come again beside the slot before: not those of the embedding, of what a chunk
 * turns round with, or that come with a step. Both stages run their forwards and then their
 * backwards, but for the last chunk, of which each backward follows its forward. */
TEST(test_weights_come_again)
{
    struct mist_pass_times times[N_VIRTUAL] = {0};

    for (int i = 0; i < N_VIRTUAL; i++)
        times[i].brings_s[MIST_SLOT_FORWARD] = 1;
    assert_true(replay_s(times) == 1);
    for (int i = 0; i < N_VIRTUAL; i++)
        times[i].brings_s[MIST_SLOT_BACKWARD] = 10;
    assert_true(replay_s(times) == 31);
    for (int i = 0; i < N_VIRTUAL; i++)
        times[i].is_ahead = true;
    assert_true(replay_s(times) == 32);
}

/* What the last backward of a chunk leaves is beside what its stage does next, which is all but
 * the first chunk of the first stage and of the second: these count, and then the exchange. */
TEST(test_sums_are_left_behind)
{
    struct mist_pass_times times[N_VIRTUAL] = {0};

    times[2].left_s = times[3].left_s = 100; /* second chunks */
    assert_true(replay_s(times) == 0);
    times[0].left_s = 10;
    times[1].left_s = 20;
    assert_true(replay_s(times) == 20);
    for (int i = 0; i < N_VIRTUAL; i++)
        times[i].exchange_s = 1;
    assert_true(replay_s(times) == 21);
    for (int i = 0; i < N_VIRTUAL; i++)
        times[i].behind_s = 5;
    assert_true(replay_s(times) == 31);
}

/* Sums that a later stage puts off begin behind its last transfer, when the second part of a
 * block is done, and are beside what is left; the last of them follows the last part. Whole
 * backwards leave nothing, and the first stage has all behind. */
TEST(test_sums_are_beside_second_parts)
{
    struct mist_pass_times times[N_STAGES] = {0};

    for (int i = 0; i < N_STAGES; i++)
        times[i] = (struct mist_pass_times){.weight_s = 100, .is_ahead = true};
    double alone_s = replay_by_s(MIST_PIPELINE_ZB_H1, 1, times);
    assert_true(alone_s == 200);
    times[1].behind_s = 30;
    assert_true(replay_by_s(MIST_PIPELINE_ZB_H1, 1, times) == 230);
    times[1].n_layers = 10; /* of which one follows */
    assert_true(replay_by_s(MIST_PIPELINE_ZB_H1, 1, times) == 203);
    times[1].behind_s = 95; /* as long as what is left, and the last of them */
    assert_true(replay_by_s(MIST_PIPELINE_ZB_H1, 1, times) == 209.5);
    times[1].behind_s = 30;
    assert_true(replay_by_s(MIST_PIPELINE_1F1B, 1, times) == 30);
    times[0].behind_s = 50;
    assert_true(replay_by_s(MIST_PIPELINE_ZB_H1, 1, times) == 250);
}

/* What a backward takes from the host comes while its stage waits for the gradient, as far as
 * that is long enough; the last stage's backwards follow its forwards. */
TEST(test_copies_come_meanwhile)
{
    struct mist_pass_times times[N_STAGES] = {{.forward_s = 1, .backward_s = 4},
                                              {.forward_s = 1, .backward_s = 4}};

    assert_true(replay_by_s(MIST_PIPELINE_1F1B, 1, times) == 15);
    times[0].waits_s[MIST_SLOT_BACKWARD] = 3; /* it waits for 4 */
    times[1].waits_s[MIST_SLOT_BACKWARD] = 3;
    assert_true(replay_by_s(MIST_PIPELINE_1F1B, 1, times) == 12);
    times[1].backward_s = 1; /* for 1 before its first backward, and then for nothing */
    assert_true(replay_by_s(MIST_PIPELINE_1F1B, 1, times) == 10);
}

TEST_MAIN(NULL, NULL)
