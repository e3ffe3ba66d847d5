/*
 * plan.json: every refusal with its line, round trips.
 *
 * Bad files are made from one good text (good_json) by replacing one piece; the expected
 * line is that of a marker in the changed text, counted here.
 */
#include "tests/unit/test.h"

#include "tests/unit/plan_sample.h"
#include "tests/unit/tiny_models.h"

TEST(test_load)
{
    struct mist_plan plan;

    load_good(&plan);
    assert_string_equal(plan.model.name, "tiny");
    assert_int_equal(plan.model.max_seq, 1024);
    assert_true(plan.model.has_bias && !plan.model.ties_embeddings);
    assert_int_equal(plan.job.global_batch, 16);
    assert_int_equal(plan.job.dtype, MIST_DTYPE_FP32);
    assert_int_equal(plan.job.threads, 4);
    assert_int_equal(mist_plan_n_threads(&plan), 4);
    plan.job.threads = 0;
    assert_int_equal(mist_plan_n_threads(&plan), 1);
    plan.job.computes_on_gpu = true;
    assert_int_equal(mist_plan_n_threads(&plan), 0);
    assert_string_equal(plan.trace_set, "traces/sets/cpu");
    assert_int_equal(plan.fingerprint, 0x00ff00ff00ff00ff);
    assert_int_equal(plan.device_memory_bytes, 1 << 30);
    assert_int_equal(plan.pipeline, MIST_PIPELINE_1F1B);
    assert_int_equal(plan.n_chunks, 0);
    assert_int_equal(mist_plan_n_chunks(&plan), 1);
    assert_false(plan.reduces_each_micro_batch);
    assert_false(plan.stages[0].is_sequence_parallel);
    assert_int_equal(plan.n_micro_batches, 4);
    assert_int_equal(plan.n_stages, 2);
    assert_int_equal(plan.stages[0].zero, 2);
    assert_int_equal(plan.stages[1].zero, 0);
    assert_true(plan.stages[0].offload_weights == 0);
    assert_true(plan.stages[0].offload_optimizer == 0.5);
    assert_int_equal(plan.stages[1].n_checkpointed, 7);
    assert_true(plan.stages[1].offload_weights == 0.25);
    assert_true(plan.stages[1].offload_gradients == 0.75);
    assert_true(plan.stages[1].offload_optimizer == 1);
    assert_true(plan.stages[1].offload_activations == 0.125);
    assert_false(plan.stages[0].updates_on_host);
    assert_true(plan.stages[1].updates_on_host);
    assert_true(plan.predicted.iteration_s == 1.5 && plan.predicted.error_s == 0.1);
    assert_true(plan.predicted.probe_s == 0); /* older files don't have it */
    assert_int_equal(plan.predicted.peak_bytes[1], 6);
    assert_true(plan.predicted.stable_s[0] == 0.5 && plan.predicted.extra_s[0] == -1);
}

/* ------------------------------------------------------------------------ bad files */

/* good_json with the first (or last) old replaced; malloc'd. */
static char *replace(const char *old, const char *new, bool takes_last)
{
    const char *at = strstr(good_json, old);
    size_t size = strlen(good_json) + strlen(new) + 1;
    char *text = malloc(size);

    assert_non_null(at);
    assert_non_null(text);
    for (const char *next = at; takes_last && next; next = strstr(at + 1, old))
        at = next;
    snprintf(text, size, "%.*s%s%s", (int)(at - good_json), good_json, new,
             at + strlen(old));
    return text;
}

/* 1-based line of a marker; its last occurrence when takes_last. */
static long line_of(const char *text, const char *marker, bool takes_last)
{
    const char *at = strstr(text, marker);
    long line = 1;

    assert_non_null(at);
    for (const char *next = at; takes_last && next; next = strstr(at + 1, marker))
        at = next;
    for (const char *p = text; p < at; p++)
        line += *p == '\n';
    return line;
}

#define ONE_PASS "\"forward_us\": 1, \"input_gradient_us\": 2, \"weight_gradient_us\": 3"

struct bad_file {
    const char *old, *new; /* the change; of the last place that has it when takes_last */
    const char *marker;    /* on the expected line; NULL: new */
    const char *message;   /* in the message */
    bool takes_last;
};

static const struct bad_file bad_files[] = {
    /* syntax and keys */
    {"\"format\": 1,\n", "", "{", "format", false},
    {"\"format\": 1", "\"format\": 2", NULL, "2", false},
    {"\"seq_len\": 512", "\"seq_len\": 512,\n\"sequence\": 3", "\"sequence\"",
     "unknown key", false},
    {"\"n_layers\": 12", "\"n_layers\": 12,\n\"depth\": 3", "\"depth\"", "unknown key",
     false},
    {"\"dp\": 4", "\"dp\": 4,\n\"pp\": 4", "\"pp\"", "unknown key", false},
    {"\"iteration_s\"", "\"iteration_ms\"", NULL, "unknown key", false},
    {"\"error_s\": 0.1,\n", "\"error_s\": 0.1,\n\"mfu\": 1,\n", "\"mfu\"", "unknown key",
     false},
    {"\"extra_s\": 2", "\"extra_s\": 2,\n\"d\": 1", "\"d\"", "unknown key", true},
    {"\"pipeline\"", "\"schedule\"", NULL, "unknown key", false},
    {"\"trace_set\"", "\"traces\"", NULL, "unknown key", false},
    {"\"seq_len\": 512", "\"seq_len\": 512,\n\"seq_len\": 512", NULL, "duplicate", false},
    {"\"dp\": 4", "\"dp\": 4,\n\"dp\": 8", "\"dp\": 8", "duplicate", false},
    {"\"layers\": 7,\n", "", "{\n\"mesh_nodes\": 2", "layers", false},
    {"\"seq_len\": 512,\n", "", "\"job\"", "seq_len", false},
    {"\"pipeline\": \"1f1b\",\n", "", "{\"format\"", "pipeline", false},
    /* types and choices */
    {"\"layers\": 7", "\"layers\": 7.0", NULL, "whole number", false},
    {"\"layers\": 7", "\"layers\": 9999999999", NULL, "9999999999", false},
    {"\"fp32\"", "\"fp8\"", NULL, "fp32, bf16", false},
    {"\"threads\": 4", "\"threads\": 1025", NULL, "threads is 1025", false},
    {"\"threads\": 4", "\"threads\": -1", NULL, "threads is -1", false},
    {"\"gpt\"", "\"bert\"", NULL, "gpt, llama, falcon", false},
    {"\"1f1b\"", "\"gpipe\"", NULL, "1f1b, interleaved, zb_h1, zb_h2, zb_v, zb_1p, zb_2p",
     false},
    {"\"1f1b\",", "\"1f1b\",\n\"chunks\": 1.5,", "\"chunks\"", "whole number", false},
    {"\"1f1b\",", "\"1f1b\",\n\"reduces_each_micro_batch\": 1,", "\"reduces_",
     "true or false", false},
    {"\"dp\": 4,\n", "\"dp\": 4,\n\"sequence_parallel\": 0,\n", "\"sequence_",
     "true or false", false},
    {"00ff00ff00ff00ff", "0xff00ff00ff00ff", NULL, "16 hexadecimal", false},
    {"00ff00ff00ff00ff", "ff", "\"ff\"", "16 hexadecimal", false},
    {"\"zero\": 0", "\"zero\": 4", NULL, "zero", false},
    {"\"has_bias\": true", "\"has_bias\": 1", NULL, "true or false", false},
    {"tiny", "0123456789012345678901234567890123456789012345678901234567890123", NULL,
     "64 bytes", false},
    {"{\"layers\": 5", "3, {\"layers\": 5", NULL, "object", false},
    {"{\"peak_bytes\": 5, \"stable_s\": 0.5, \"extra_s\": -1},\n", "",
     "\"stages\": [\n{\"peak", "1 predicted stages", false},
    /* relations: the model and the job */
    {"\"n_heads\": 4", "\"n_heads\": 5", "\"model\"", "head_dim 64 is 320", false},
    {"\"max_seq\": 1024", "\"max_seq\": 0", "\"model\"", "max_seq is 0", false},
    {"\"global_batch\": 16", "\"global_batch\": 0", NULL, "global_batch is 0", false},
    {"\"global_batch\": 16", "\"global_batch\": 18", "\"n_micro_batches\"",
     "4 does not divide global_batch 18", false},
    {"\"seq_len\": 512", "\"seq_len\": 0", NULL, "seq_len is 0", false},
    {"\"seq_len\": 512", "\"seq_len\": 1025", NULL, "1024 learned positions", false},
    {": 1073741824", ": -1", NULL, "device_memory_bytes is -1", false},
    {"\"n_micro_batches\": 4", "\"n_micro_batches\": 0", NULL, "n_micro_batches is 0",
     false},
    /* relations: the pipeline; stage 0 has 5 layers */
    {"\"1f1b\"", "\"zb_2p\"", "{", "passes", false},
    {"\"1f1b\",", "\"1f1b\",\n\"passes\": [],", "[]", "a pipeline of kind 1f1b has none",
     false},
    {"\"1f1b\",", "\"zb_1p\",\n\"passes\": [{" ONE_PASS "}],", "[{", "1 passes", false},
    {"\"1f1b\",",
     "\"zb_1p\",\n\"passes\": [{" ONE_PASS "},\n"
     "{\"forward_us\": 0, \"input_gradient_us\": 2, \"weight_gradient_us\": 3}],",
     "\"forward_us\": 0",
     "stage 1: forward_us is 0, a pipeline of kind zb_1p has 1 to 30000000", false},
    {"\"1f1b\",",
     "\"zb_2p\",\n\"passes\": [{" ONE_PASS "},\n{" ONE_PASS ", \"freed_frac\": 1.5}],",
     "\"freed_frac\"", "stage 1: freed_frac is 1.5", false},
    {"\"1f1b\",", "\"1f1b\",\n\"chunks\": -2,", "\"chunks\"",
     "chunks is -2, expected at least 1", false},
    {"\"1f1b\",", "\"1f1b\",\n\"chunks\": 2,", "\"chunks\"",
     "chunks is 2, a pipeline of kind 1f1b has 1", false},
    {"\"1f1b\",", "\"zb_h1\",\n\"chunks\": 3,", "\"chunks\"",
     "chunks is 3, a pipeline of kind zb_h1 has 1", false},
    {"\"1f1b\",", "\"zb_v\",\n\"chunks\": 3,", "\"chunks\"",
     "chunks is 3, a pipeline of kind zb_v has 2", false},
    {"\"1f1b\",", "\"zb_v\",\n\"chunks\": 1,", "\"chunks\"",
     "chunks is 1, a pipeline of kind zb_v has 2", false},
    {"\"1f1b\",", "\"interleaved\",\n\"chunks\": 1,", "\"chunks\"",
     "chunks is 1, a pipeline of kind interleaved needs at least 2", false},
    {"\"1f1b\"", "\"interleaved\"", NULL,
     "chunks is 1, a pipeline of kind interleaved needs at least 2", false},
    {"\"1f1b\",\n\"n_micro_batches\": 4",
     "\"interleaved\",\n\"chunks\": 2,\n"
     "\"n_micro_batches\": 1",
     "\"n_micro_batches\"",
     "n_micro_batches is 1, a pipeline of kind interleaved of 2 stages needs a multiple "
     "of 2",
     false},
    {"\"1f1b\"", "\"zb_v\"", "{\"layers\": 5",
     "stage 0: layers is 5, not divisible by the pipeline's 2 chunks", false},
    {"\"1f1b\",", "\"interleaved\",\n\"chunks\": 2,", "{\"layers\": 5",
     "stage 0: layers is 5, not divisible by the pipeline's 2 chunks", false},
    {"\"1f1b\",", "\"interleaved\",\n\"chunks\": 5,", "\"layers\": 7",
     "stage 1: layers is 7, not divisible by the pipeline's 5 chunks", false},
    /* relations: stages */
    {"\"micro_batch\": 2, \"dp\": 2",
     "\"sequence_parallel\": true,\n"
     "\"micro_batch\": 2, \"dp\": 2",
     "\"sequence_", "stage 0: sequence_parallel with tp 1, expected at least 2", false},
    {"\"ties_embeddings\": false", "\"ties_embeddings\": true", "\"dp\": 4",
     "stage 1: dp is 4, expected stage 0's 2: the model ties its embeddings", false},
    {"\"layers\": 7", "\"layers\": 8", "\"stages\"", "13 layers, expected the model's 12",
     false},
    {"\"layers\": 7", "\"layers\": 0", NULL, "stage 1: layers is 0", false},
    {"\"mesh_nodes\": 2", "\"mesh_nodes\": 0", NULL, "stage 1: mesh_nodes is 0", false},
    {"\"mesh_devices\": 4", "\"mesh_devices\": -4", NULL, "mesh_devices is -4", false},
    {"\"micro_batch\": 1", "\"micro_batch\": 0", NULL, "micro_batch is 0", false},
    {"\"dp\": 4", "\"dp\": 0", NULL, "dp is 0", false},
    {"\"tp\": 2", "\"tp\": 0", NULL, "tp is 0", false},
    {"\"mesh_devices\": 4", "\"mesh_devices\": 3", NULL,
     "stage 1: mesh of 2 x 3 devices has 6, expected dp 4 times cp 1 times tp 2 = 8",
     false},
    {"\"tp\": 2", "\"tp\": 2,\n\"cp\": -1", "\"cp\": -1", "stage 1: cp is -1", false},
    {"\"tp\": 2", "\"tp\": 2,\n\"cp\": 2", "\"mesh_devices\": 4",
     "mesh of 2 x 4 devices has 8, expected dp 4 times cp 2", false},
    {"\"mesh_devices\": 4,\n\"micro_batch\": 1,\n\"dp\": 4,\n\"tp\": 2",
     "\"mesh_devices\": 8,\n\"micro_batch\": 1,\n\"dp\": 4,\n\"tp\": 2,\n\"cp\": 2",
     "\"cp\": 2",
     "stage 1: cp is 2, expected stage 0's 1: all stages cut sequences alike", false},
    {"\"micro_batch\": 1", "\"micro_batch\": 2", "\"micro_batch\": 2,\n",
     "stage 1: micro_batch 2 times dp 4 is 8, expected global_batch 16 / n_micro_batches "
     "4 "
     "= 4",
     false},
    {"\"mesh_devices\": 4,\n\"micro_batch\": 1,\n\"dp\": 4,\n\"tp\": 2",
     "\"mesh_devices\": 6,\n\"micro_batch\": 1,\n\"dp\": 4,\n\"tp\": 3", "\"tp\": 3",
     "stage 1: tp 3 does not divide n_heads 4", false},
    {"\"checkpointed_layers\": 7", "\"checkpointed_layers\": 8", NULL,
     "stage 1: checkpointed_layers is 8, expected 0 to 7", false},
    {"\"checkpointed_layers\": 7", "\"checkpointed_layers\": -1", NULL, "is -1", false},
    {"\"checkpointed_layers\": 7", "\"checkpointed_layers\": 3, \"lean_layers\": 5",
     "\"lean_layers\"",
     "stage 1: lean_layers is 5, expected 0 to 4, the stage's layers that are not "
     "checkpointed",
     false},
    {"\"checkpointed_layers\": 7", "\"checkpointed_layers\": 3, \"lean_layers\": -1",
     "\"lean_layers\"", "is -1", false},
    {"_weights_frac\": 0.25", "_weights_frac\": 1.5", NULL,
     "stage 1: offload_weights_frac is 1.5, expected 0 to 1", false},
    {"_gradients_frac\": 0.75", "_gradients_frac\": -0.5", NULL, "is -0.5", false},
    {"_optimizer_frac\": 1", "_optimizer_frac\": 1.0001", NULL, "is 1.0001", false},
    {"_optimizer_frac\": 1,", "_optimizer_frac\": 0,", "\"update_on\"",
     "stage 1: update_on host with offload_optimizer_frac 0, expected above 0", false},
    {"\"update_on\": \"host\"", "\"update_on\": \"cpu\"", "\"cpu\"",
     "none of device, host", false},
    {"_activations_frac\": 0.125", "_activations_frac\": 2", NULL, "is 2", false},
    /* predictions */
    {"\"iteration_s\": 1.5", "\"iteration_s\": -1.5", NULL, "iteration_s -1.5", false},
    {"\"extrapolated_frac\": 0.25", "\"extrapolated_frac\": 1.25", NULL, "1.25", false},
    {"\"peak_bytes\": 6", "\"peak_bytes\": -6", NULL, "stage 1: predicted -6 bytes",
     false},
};

TEST(test_bad_files)
{
    struct mist_plan plan = {.n_stages = 77};
    struct mist_err err;

    for (size_t i = 0; i < sizeof bad_files / sizeof bad_files[0]; i++) {
        const struct bad_file *bad = &bad_files[i];
        char *text = replace(bad->old, bad->new, bad->takes_last);
        const char *marker = bad->marker ? bad->marker : bad->new;
        long line = line_of(text, marker, false);

        if (strstr(bad->message, "duplicate"))
            line = line_of(text, marker, true) + (bad->marker ? 0 : 1);
        enum mist_status status = load_text(text, &plan, &err);
        if (status != MIST_ERR_INPUT || !strstr(err.message, bad->message) ||
            err.line != line || err.column < 1)
            fail_msg("case %zu (%s): status %d, line %ld (not %ld), column %ld: %s", i,
                     bad->new, status, err.line, line, err.column, err.message);
        assert_non_null(strstr(err.path, "plan.json"));
        assert_int_equal(plan.n_stages, 77);
        assert_int_equal(load_text(text, &plan, NULL), MIST_ERR_INPUT);
        free(text);
    }
    /* as many stages as no plan has */
    char *many = malloc(2 * MIST_MAX_STAGES + 64);
    size_t n = (size_t)sprintf(many, "\"stages\": [");
    for (int k = 0; k < MIST_MAX_STAGES; k++)
        n += (size_t)sprintf(many + n, "0,");
    char *text = replace("\"stages\": [", many, false);
    assert_int_equal(load_text(text, &plan, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "514 stages, expected at most 512"));
    free(text);
    free(many);
    assert_int_equal(mist_plan_load("no/such/plan.json", &plan, &err), MIST_ERR_IO);
}

/* ------------------------------------------------------------------------ round trips */

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 11; /* 53 bits */
}

static double random_fraction(uint64_t *seed)
{
    uint64_t kind = next_random(seed) % 4;

    if (kind < 2)
        return (double)kind;
    return (double)next_random(seed) / 9007199254740992.0 * (kind == 2 ? 1 : 1e-200);
}

static void make_random_stage(struct mist_stage_plan *stage, int32_t n_chunks,
                              int32_t samples, int32_t seq_len, uint64_t *seed)
{
    int32_t tp = 1 << next_random(seed) % 3, zero = (int32_t)(next_random(seed) % 4);

    stage->n_layers = n_chunks * (1 + (int32_t)(next_random(seed) % 3));
    stage->dp = 1 << next_random(seed) % 4;
    stage->tp = tp;
    stage->micro_batch = samples / stage->dp;
    stage->n_nodes = stage->dp;
    stage->n_devices = tp;
    stage->zero = zero;
    stage->is_sequence_parallel =
        tp > 1 && stage->micro_batch * seq_len % tp == 0 && next_random(seed) % 2;
    stage->n_checkpointed =
        (int32_t)(next_random(seed) % (uint64_t)(stage->n_layers + 1));
    stage->n_lean = (int32_t)(next_random(seed) %
                              (uint64_t)(stage->n_layers - stage->n_checkpointed + 1));
    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        stage->offload_frac[k] = random_fraction(seed);
    stage->updates_on_host = stage->offload_optimizer > 0 && next_random(seed) % 2;
}

/* Knobs of the pipeline that fit the number of stages, which are to be made yet. */
static void make_random_pipeline(struct mist_plan *plan, uint64_t *seed)
{
    plan->pipeline = (enum mist_pipeline_schedule)(next_random(seed) % MIST_N_PIPELINES);
    if (plan->pipeline == MIST_PIPELINE_INTERLEAVED) {
        plan->n_stages += plan->n_stages == 1;
        plan->n_micro_batches *= plan->n_stages;
        plan->n_chunks = 2 + (int32_t)(next_random(seed) % 3);
    }
    if (plan->pipeline == MIST_PIPELINE_ZB_V) {
        plan->n_stages += plan->n_stages == 1;
        plan->n_chunks = next_random(seed) % 2 ? 2 : 0;
    }
    for (int32_t i = 0; i < plan->n_stages; i++)
        if (mist_pipeline_kinds[plan->pipeline].n_kept_per_stage > 0)
            plan->passes[i] =
                (struct mist_pipeline_pass){1 + (int32_t)(next_random(seed) % 1000000), 7,
                                            1, (int32_t)(i % 3), random_fraction(seed)};
    plan->reduces_each_micro_batch = next_random(seed) % 2;
}

/* Gives a plan whose first and last stage are alike tied embeddings. */
static void tie_at_random(struct mist_plan *plan, uint64_t *seed)
{
    const struct mist_stage_plan *first = &plan->stages[0];
    const struct mist_stage_plan *last = &plan->stages[plan->n_stages - 1];

    plan->model.ties_embeddings =
        first->dp == last->dp && first->tp == last->tp && next_random(seed) % 2;
}

static void make_random_plan(struct mist_plan *plan, uint64_t *seed)
{
    bool has_prediction = next_random(seed) % 2;

    memset(plan, 0, sizeof *plan);
    int32_t i_preset = (int32_t)(next_random(seed) % 10); /* the gpt presets */
    assert_int_equal(
        mist_model_load_preset(mist_model_preset_name(i_preset), &plan->model, NULL),
        MIST_OK);
    strcpy(plan->trace_set, "a \"b\" \\ \xc3\xa4\n");
    plan->fingerprint = next_random(seed) << 11 | 5;
    plan->device_memory_bytes = (int64_t)next_random(seed) << 9;
    plan->n_micro_batches = 1 + (int32_t)(next_random(seed) % 9);
    plan->job.seq_len = 1 + (int32_t)(next_random(seed) % 1024);
    plan->job.dtype = (enum mist_dtype)(next_random(seed) % MIST_N_DTYPES);
    if (next_random(seed) % 2)
        plan->job.gradient_dtype = plan->job.dtype;
    plan->job.threads = (int32_t)(next_random(seed) % 3);
    plan->job.computes_on_gpu = next_random(seed) % 2 == 0;
    plan->n_stages = 1 + (int32_t)(next_random(seed) % 12);
    make_random_pipeline(plan, seed);
    plan->job.global_batch = 8 * plan->n_micro_batches;
    plan->model.n_layers = 0;
    for (int32_t i = 0; i < plan->n_stages; i++) {
        make_random_stage(&plan->stages[i], mist_plan_n_chunks(plan), 8,
                          plan->job.seq_len, seed);
        plan->model.n_layers += plan->stages[i].n_layers;
        plan->predicted.peak_bytes[i] = has_prediction ? (int64_t)next_random(seed) : 0;
        plan->predicted.stable_s[i] = has_prediction ? random_fraction(seed) : 0;
        plan->predicted.extra_s[i] = has_prediction ? -random_fraction(seed) + 0.0 : 0;
    }
    plan->predicted.iteration_s = has_prediction ? random_fraction(seed) : 0;
    plan->predicted.probe_s =
        has_prediction && next_random(seed) % 2 ? random_fraction(seed) : 0;
    plan->predicted.alone_frac =
        has_prediction && next_random(seed) % 2 ? random_fraction(seed) : 0;
    tie_at_random(plan, seed);
}

TEST(test_round_trips)
{
    uint64_t seed = test_seed(1);
    struct mist_plan plan, again;
    struct mist_err err = {0};
    struct scratch scratch;

    scratch_init(&scratch);
    scratch_path(&scratch, "plan.json");
    for (int i = 0; i < 200; i++) {
        make_random_plan(&plan, &seed);
        memset(&again, 0xff, sizeof again);
        if (mist_plan_save(&plan, scratch.path, true, &err) ||
            mist_plan_load(scratch.path, &again, &err))
            fail_msg("plan %d: line %ld: %s", i, err.line, err.message);
        assert_int_equal(memcmp(&plan, &again, sizeof plan), 0);
    }
    for (int i = 0; i < 6; i++) { /* one number alone is a prediction */
        memset(&plan.predicted, 0, sizeof plan.predicted);
        *(i == 0   ? &plan.predicted.error_s
          : i == 1 ? &plan.predicted.extrapolated_frac
          : i == 2 ? &plan.predicted.stable_s[0]
          : i == 3 ? &plan.predicted.probe_s
          : i == 4 ? &plan.predicted.alone_frac
                   : &plan.predicted.extra_s[0]) = 0.5;
        assert_int_equal(mist_plan_save(&plan, scratch.path, true, &err), MIST_OK);
        assert_int_equal(mist_plan_load(scratch.path, &again, &err), MIST_OK);
        assert_int_equal(memcmp(&plan, &again, sizeof plan), 0);
    }
    assert_int_equal(mist_plan_save(&plan, scratch.path, false, &err), MIST_ERR_USAGE);
    assert_int_equal(scratch_count(&scratch), 1); /* no temporary file is left */
    scratch_fini(&scratch);
}

/* A knob that says nothing is not in the file; what it stands for comes back. */
TEST(test_defaults_are_left_out)
{
    static const char *const keys[] = {"chunks", "reduces_each_micro_batch",
                                       "sequence_parallel", "threads", "gpu"};
    struct mist_plan plan, again;
    struct scratch scratch;
    char text[8192];

    load_good(&plan);
    plan.job.threads = 0;
    plan.n_chunks = 1;
    scratch_init(&scratch);
    scratch_path(&scratch, "plan.json");
    for (int is_said = 0; is_said < 2; is_said++) {
        assert_int_equal(mist_plan_save(&plan, scratch.path, true, NULL), MIST_OK);
        FILE *file = fopen(scratch.path, "r");
        assert_non_null(file);
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
            assert_int_equal(strstr(text, keys[i]) != NULL, is_said);
        assert_int_equal(mist_plan_load(scratch.path, &again, NULL), MIST_OK);
        assert_int_equal(again.n_chunks, is_said ? 7 : 0);
        plan.job.threads = 1;
        plan.job.computes_on_gpu = true;
        plan.pipeline = MIST_PIPELINE_INTERLEAVED;
        plan.n_chunks = plan.stages[0].n_layers = plan.stages[1].n_layers = 7;
        plan.model.n_layers = 14;
        plan.reduces_each_micro_batch = plan.stages[1].is_sequence_parallel = true;
    }
    scratch_fini(&scratch);
}

TEST(test_save_refuses)
{
    struct mist_plan plan;
    struct mist_err err;
    struct scratch scratch;

    load_good(&plan);
    scratch_init(&scratch);
    scratch_path(&scratch, "plan.json");
    strcpy(plan.trace_set, "\xff");
    assert_int_equal(mist_plan_save(&plan, scratch.path, false, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "UTF-8"));
    plan.trace_set[0] = 0;
    plan.n_micro_batches = 3;
    assert_int_equal(mist_plan_save(&plan, scratch.path, false, &err), MIST_ERR_INPUT);
    assert_string_equal(err.path, scratch.path);
    assert_int_equal(scratch_count(&scratch), 0);
    plan.n_micro_batches = 4;
    assert_int_equal(mist_plan_save(&plan, "no/such/folder/plan.json", false, &err),
                     MIST_ERR_IO);
    scratch_fini(&scratch);
}

TEST_MAIN(NULL, NULL)
