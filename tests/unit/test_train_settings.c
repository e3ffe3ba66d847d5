/*
 * exec/train_settings: what a checkpoint says of a run, with keys that older ones had not,
 * and what a run that goes on from it takes over and says.
 */
#include "exec/train/train_settings.h"

#include "tests/unit/test.h"

#include "tests/unit/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct scratch scratch;
static struct mist_data *data;
static char said[2048]; /* by the last take_over() */
static struct mist_train_progress progress;
static const struct mist_train_settings settings = {.seed = 1,
                                                    .n_iterations = 4,
                                                    .lr = 1e-3,
                                                    .lr_min = 1e-4,
                                                    .lr_decay_steps = 4,
                                                    .lr_decays_to_last = true};
static struct mist_plan plan = {
    .job = {.global_batch = 4, .seq_len = 16, .dtype = MIST_DTYPE_FP32}};

static void open_data(void)
{
    char text[1000];
    struct mist_err err;

    scratch_init(&scratch);
    memset(text, 'x', sizeof text);
    FILE *file = fopen(scratch_path(&scratch, "text.txt"), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, sizeof text, file), sizeof text);
    fclose(file);
    const char *path = scratch_path(&scratch, "text.txt");
    must(mist_data_open(&path, 1, &data, &err), &err);
}

static void close_data(void)
{
    mist_data_close(data);
    unlink(scratch_path(&scratch, "text.txt"));
    rmdir(scratch.folder);
}

/* What a run has that goes on to n_iterations from a checkpoint of settings, after two
 * steps and 9 samples, which lacks a key (NULL: none). */
static struct mist_train_settings take_over(const char *lacks, int64_t n_iterations,
                                            const struct mist_plan *by, bool force,
                                            enum mist_status expected)
{
    const struct mist_train_progress done = {
        .n_steps = 2, .n_updates = 2, .n_samples = 9};
    bool is_given[MIST_TRAIN_N_SETTINGS] = {false, true}; /* iterations */
    struct mist_train_settings out = {.n_iterations = n_iterations};
    struct mist_json_doc doc;
    struct mist_err err = {0};
    json_t *json = mist_train_settings_to_json(&settings, &done, &plan, data);

    assert_non_null(json);
    if (lacks)
        assert_int_equal(json_object_del(json, lacks), 0);
    json_t *whole = json_pack("{s:i, s:O}", "format", 1, "training", json);
    char *text = json_dumps(whole, JSON_PRESERVE_ORDER);
    must(mist_json_load_text(&doc, "old", text, strlen(text), MIST_JSON_OWN, &err), &err);
    FILE *stream = tmpfile();
    assert_non_null(stream);
    struct mist_messages messages = {"test", stream};
    struct mist_json root = mist_json_root(&doc), training;
    must(mist_json_get_object(&root, "training", MIST_JSON_REQUIRED, &training, &err),
         &err);
    assert_int_equal(mist_train_settings_take_over(&training, by, data, force, is_given,
                                                   &out, &progress, &messages, &err),
                     expected);
    if (expected == MIST_OK)
        must(mist_train_settings_resolve(&out, is_given, &err), &err);
    rewind(stream);
    said[fread(said, 1, sizeof said - 1, stream)] = '\0';
    fclose(stream);
    mist_json_fini(&doc);
    free(text);
    json_decref(whole);
    json_decref(json);
    return out;
}

TEST(test_decay)
{
    open_data();
    struct mist_train_settings out = take_over(NULL, 8, &plan, false, MIST_OK);
    assert_true(out.lr_decay_steps == 8 && out.lr_decays_to_last && out.lr_min == 1e-4);
    assert_non_null(strstr(said, "decay ends at step 8, with the run, instead of 4"));
    take_over(NULL, 4, &plan, false, MIST_OK);
    assert_string_equal(said, "");
    /* a checkpoint that does not say where the end came from: it stays, which is said */
    out = take_over("lr_decays_to_last", 8, &plan, false, MIST_OK);
    assert_true(out.lr_decay_steps == 4 && !out.lr_decays_to_last);
    assert_non_null(strstr(said, "decay ends at step 4"));
    take_over("lr_decays_to_last", 4, &plan, false, MIST_OK);
    assert_string_equal(said, "");
    close_data();
}

/* Batches of another size go on behind the samples that were taken, also from a checkpoint
 * that says only how many steps were done. */
TEST(test_other_samples)
{
    struct mist_plan other = plan;

    open_data();
    other.job.global_batch = 6;
    take_over(NULL, 4, &other, false, MIST_ERR_INPUT);
    take_over(NULL, 4, &other, true, MIST_OK);
    assert_int_equal(progress.n_samples, 9);
    assert_non_null(strstr(said, "a global batch of 4, the plan has 6; --force goes on "
                                 "with that, behind the 9 samples taken so far"));
    take_over("samples", 4, &other, true, MIST_OK);
    assert_int_equal(progress.n_samples, 8);
    /* all that differs is said, not the first alone */
    other.job.seq_len = 8;
    take_over(NULL, 4, &other, true, MIST_OK);
    assert_non_null(strstr(said, "a global batch of 4"));
    assert_non_null(strstr(said, "sequences of 16 tokens, the plan has 8"));
    close_data();
}

TEST(test_number_format)
{
    struct mist_plan other = plan;

    open_data();
    other.job.dtype = MIST_DTYPE_BF16;
    take_over(NULL, 4, &other, false, MIST_OK);
    assert_string_equal(
        said, "test: the plan trains in bf16 instead of the checkpoint's fp32\n");
    take_over("dtype", 4, &other, false, MIST_OK);
    assert_string_equal(said, "");
    close_data();
}

TEST_MAIN(NULL, NULL)
