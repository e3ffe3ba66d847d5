/*
 * Lean blocks: what a schedule keeps less, by hand, and when it has what it makes again.
 * That training gives the same bits is in tests/prop/test_training_same.c.
 */
#include "tests/unit/test.h"

#include "sim/schedule/schedule.h"
#include "tests/unit/tiny_models.h"

#include <stdlib.h>

enum { LAYERS = 3, MICRO_BATCHES = 4, ROWS = 4 * 16, HIDDEN = 32, FFN = 64 };

/* Two stages of LAYERS blocks; the first has two micro-batches in flight. */
static struct mist_schedule *build(enum mist_family family,
                                   enum mist_pipeline_schedule pipeline,
                                   int32_t n_checkpointed, int32_t n_lean)
{
    struct mist_plan *plan = calloc(1, sizeof *plan);
    struct mist_schedule *schedule = NULL;
    struct mist_err err;

    assert_non_null(plan);
    plan->model = mist_small_model(family, 2 * LAYERS, 48);
    plan->job = (struct mist_job){.global_batch = 4 * MICRO_BATCHES, .seq_len = 16};
    plan->pipeline = pipeline;
    plan->n_micro_batches = MICRO_BATCHES;
    plan->n_stages = 2;
    for (int i = 0; i < 2; i++) {
        plan->stages[i] = mist_tiny_stage(LAYERS, 4, 1, 1);
        plan->stages[i].n_checkpointed = i == 0 ? n_checkpointed : 0;
        plan->stages[i].n_lean = i == 0 ? n_lean : 0;
    }
    must(mist_plan_check(plan, &err), &err);
    must(mist_schedule_build(plan, 0, 1, &schedule, &err), &err);
    free(plan);
    return schedule;
}

/* Two norms and the activation, fp32. */
enum { REMADE_BYTES = 4 * ROWS * (HIDDEN + HIDDEN + FFN) };

/* The arena is fullest in the last block's backward, when both micro-batches in flight
 * have all they keep, and that block what it makes again. */
TEST(test_bytes)
{
    for (int family = MIST_FAMILY_GPT; family <= MIST_FAMILY_LLAMA; family++) {
        int64_t none_bytes = 0;
        for (int32_t n = 0; n <= LAYERS; n++) {
            struct mist_schedule *schedule =
                build((enum mist_family)family, MIST_PIPELINE_1F1B, 0, n);
            int64_t bytes = schedule->arena_bytes[MIST_ARENA_DEVICE];
            none_bytes = n == 0 ? bytes : none_bytes;
            assert_int_equal(none_bytes - bytes,
                             (int64_t)(2 * n - (n == LAYERS)) * REMADE_BYTES);
            mist_schedule_free(schedule);
        }
    }
}

/* The tasks of a module and micro-batch that name a buffer in this role. */
static int32_t count_users(const struct mist_schedule *schedule, int32_t buffer,
                           enum mist_program_kind programs[4])
{
    int32_t n = 0;

    for (int32_t i = 0; i < schedule->n_tasks; i++)
        if (schedule->tasks[i].buffers[MIST_ROLE_SAVED_REMADE] == buffer) {
            assert_true(n < 4);
            programs[n++] = schedule->tasks[i].program;
        }
    return n;
}

/* It is there for the forward alone, and again from when it is made to its last reader. */
static void check_lives(enum mist_pipeline_schedule pipeline,
                        enum mist_program_kind reader)
{
    struct mist_schedule *schedule = build(MIST_FAMILY_GPT, pipeline, 1, 1);
    int32_t n_forward = 0, n_again = 0;

    for (int32_t i = 0; i < schedule->n_buffers; i++) {
        const struct mist_buffer *buffer = &schedule->buffers[i];
        enum mist_program_kind users[4] = {MIST_N_PROGRAM_KINDS};
        if (buffer->role != MIST_ROLE_SAVED_REMADE)
            continue;
        assert_int_equal(buffer->layer, 2); /* behind the checkpointed one */
        assert_int_equal(buffer->size_bytes, REMADE_BYTES);
        int32_t n = count_users(schedule, i, users);
        if (users[0] == MIST_PROGRAM_FORWARD) {
            assert_int_equal(n, 1);
            n_forward++;
            continue;
        }
        assert_int_equal(n, 2);
        assert_int_equal(users[0], MIST_PROGRAM_REMAKE);
        assert_int_equal(users[1], reader);
        n_again++;
    }
    assert_int_equal(n_forward, MICRO_BATCHES);
    assert_int_equal(n_again, MICRO_BATCHES);
    mist_schedule_free(schedule);
}

TEST(test_lives)
{
    check_lives(MIST_PIPELINE_1F1B, MIST_PROGRAM_BACKWARD);
    check_lives(MIST_PIPELINE_ZB_H1, MIST_PROGRAM_BACKWARD_WEIGHT);
}

TEST_MAIN(NULL, NULL)
