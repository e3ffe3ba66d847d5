/*
 * Stops and resumes runs of mist-exec and compares with runs that were not stopped:
 *   - what goes on after 3 of 6 steps under the same plan is what would have come, bit
 *     for bit, and saving and validating change no bit;
 *   - a checkpoint goes on under another plan: bit for bit where that only moves or
 *     re-times data, within 1e-6 relative where it adds in another order;
 *   - weights written as Hugging Face files and read back, under another plan, have the
 *     same bits and the same loss.
 */
#include "sim/plan/plan.h"

#include "tests/unit/test.h"

#include "tests/unit/scratch.h"
#include <jansson.h>
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_STEPS = 6, N_BEFORE = 3, GLOBAL_BATCH = 8, SEQ = 16 };
#define TOLERANCE 1e-6

struct layout {
    int n_stages, dp, tp, n_micro_batches;
    int zero; /* 0 .. 3 */
    double offload;
    int n_checkpointed;
    bool is_sequence_parallel;
    enum mist_dtype dtype;
    bool updates_on_host;
    enum mist_pipeline_schedule pipeline;
};

/* No two of one class differ in what is added when: dp, tp and G are the same. */
static const struct layout alone = {
    1, 1, 1, 4, 0, 0, 0, false, MIST_DTYPE_FP32, false, MIST_PIPELINE_1F1B};
static const struct layout two_stages = {
    2, 1, 1, 4, 0, 0, 1, false, MIST_DTYPE_FP32, false, MIST_PIPELINE_1F1B};
static const struct layout two_chunks = {
    2, 1, 1, 4, 0, 0, 0, false, MIST_DTYPE_FP32, false, MIST_PIPELINE_INTERLEAVED};
static const struct layout in_a_v = {
    2, 1, 1, 4, 0, 0, 1, false, MIST_DTYPE_FP32, false, MIST_PIPELINE_ZB_V};
static const struct layout two_dp_in_a_v = {
    2, 2, 1, 2, 2, 0.5, 0, false, MIST_DTYPE_FP32, false, MIST_PIPELINE_ZB_V};
static const struct layout offloads = {
    1, 1, 1, 4, 0, 0.5, 1, false, MIST_DTYPE_FP32, false, MIST_PIPELINE_1F1B};
static const struct layout two_tp = {
    1, 1, 2, 4, 0, 0, 0, false, MIST_DTYPE_FP32, false, MIST_PIPELINE_1F1B};
static const struct layout two_tp_sp = {
    1, 1, 2, 4, 1, 0, 0, true, MIST_DTYPE_FP32, false, MIST_PIPELINE_1F1B};
static const struct layout two_dp = {
    1, 2, 1, 2, 0, 0, 0, false, MIST_DTYPE_FP32, false, MIST_PIPELINE_1F1B};
static const struct layout two_dp_zero1 = {
    1, 2, 1, 2, 1, 0, 0, false, MIST_DTYPE_FP32, false, MIST_PIPELINE_1F1B};
static const struct layout two_dp_zero3 = {
    1, 2, 1, 2, 3, 0.5, 0, false, MIST_DTYPE_FP32, false, MIST_PIPELINE_1F1B};
static const struct layout on_host = {
    1, 1, 1, 4, 0, 0.6, 0, false, MIST_DTYPE_FP32, true, MIST_PIPELINE_1F1B};
static const struct layout two_dp_on_host = {
    1, 2, 1, 2, 1, 0.4, 0, false, MIST_DTYPE_FP32, true, MIST_PIPELINE_1F1B};

static const struct layout half_on_host = {
    1, 2, 1, 2, 1, 0.5, 0, false, MIST_DTYPE_BF16, true, MIST_PIPELINE_1F1B};
static const struct layout half_zero3 = {
    1, 2, 1, 2, 3, 0.5, 0, false, MIST_DTYPE_BF16, false, MIST_PIPELINE_1F1B};
static const struct layout half_zero1 = {
    1, 2, 1, 2, 1, 0, 1, false, MIST_DTYPE_BF16, false, MIST_PIPELINE_1F1B};

struct outcome {
    int n;
    double losses[N_STEPS];
    double validation_loss;
    char fingerprint[32];
};

static char folder[] = "/tmp/mist_resume_XXXXXX";

static struct mist_model tiny(enum mist_family family)
{
    bool is_llama = family == MIST_FAMILY_LLAMA;
    struct mist_model model = {
        .family = family,
        .n_layers = 4,
        .hidden = 32,
        .n_heads = 4,
        .n_kv_heads = is_llama ? 2 : 4,
        .head_dim = 8,
        .ffn = is_llama ? 88 : 128,
        .vocab = 257, /* no multiple of two */
        .max_seq = is_llama ? 0 : SEQ,
        .has_bias = !is_llama,
        .ties_embeddings = !is_llama,
        .norm_epsilon = 1e-5,
        .rope_theta = is_llama ? 10000 : 0,
    };

    snprintf(model.name, sizeof model.name, "tiny-%s", is_llama ? "llama" : "gpt");
    return model;
}

static void save_plan(enum mist_family family, const struct layout *layout,
                      const char *path)
{
    static struct mist_plan plan;
    struct mist_err err = {0};

    plan = (struct mist_plan){
        .model = tiny(family),
        .job = {.global_batch = GLOBAL_BATCH,
                .seq_len = SEQ,
                .dtype = layout->dtype,
                .threads = 1},
        .pipeline = layout->pipeline,
        .n_chunks = layout->pipeline == MIST_PIPELINE_INTERLEAVED ? 2 : 0,
        .n_micro_batches = layout->n_micro_batches,
        .n_stages = layout->n_stages,
        .reduces_each_micro_batch = layout->dp > 1, /* as ZeRO-2 and 3 do */
    };
    for (int i = 0; i < layout->n_stages; i++)
        plan.stages[i] = (struct mist_stage_plan){
            .n_layers = plan.model.n_layers / layout->n_stages,
            .n_nodes = 1,
            .n_devices = layout->dp * layout->tp,
            .micro_batch = GLOBAL_BATCH / layout->n_micro_batches / layout->dp,
            .dp = layout->dp,
            .tp = layout->tp,
            .zero = layout->zero,
            .is_sequence_parallel = layout->is_sequence_parallel,
            .n_checkpointed = layout->n_checkpointed,
            .offload_weights = layout->offload,
            .offload_gradients = layout->offload,
            .offload_optimizer = layout->offload,
            .offload_activations = layout->offload,
            .updates_on_host = layout->updates_on_host,
        };
    if (mist_plan_check(&plan, &err) != MIST_OK ||
        mist_plan_save(&plan, path, true, &err) != MIST_OK)
        fail_msg("%s", err.message);
}

/* Text has a vocabulary of 256. */
static void save_tokens(const char *path)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    for (unsigned i = 0; i < 65536; i++) {
        unsigned id = (i * i + i / 7) % 257;
        fputc((int)(id & 255), file);
        fputc((int)(id >> 8), file);
    }
    assert_int_equal(fclose(file), 0);
}

/* ---------------------------------------------------------------------------- running */

static void read_outcome(const json_t *json, struct outcome *out)
{
    json_t *losses = json_object_get(json, "losses");
    json_t *validation = json_object_get(json, "validation_loss_last");

    out->n = (int)json_array_size(losses);
    assert_in_range(out->n, 1, N_STEPS);
    for (int i = 0; i < out->n; i++)
        out->losses[i] = json_number_value(json_array_get(losses, (size_t)i));
    out->validation_loss = validation ? json_number_value(validation) : NAN;
    snprintf(out->fingerprint, sizeof out->fingerprint, "%s",
             json_string_value(json_object_get(json, "parameters_fingerprint")));
}

/* Runs mist-exec in the test's folder. */
static void train(enum mist_family family, const struct layout *layout,
                  const char *options, struct outcome *out)
{
    char tool[1024], path[64], launch[96] = "", command[4096];
    int n_ranks = layout->n_stages * layout->dp * layout->tp;
    json_error_t error;

    snprintf(path, sizeof path, "%s/plan.json", folder);
    save_plan(family, layout, path);
    snprintf(path, sizeof path, "%s/tokens.u16", folder);
    save_tokens(path);
    scratch_tool_path(tool, sizeof tool);
    if (n_ranks > 1)
        snprintf(launch, sizeof launch, "mpirun --oversubscribe --bind-to none -n %d",
                 n_ranks);
    snprintf(command, sizeof command,
             "cd %s && %s '%s' plan.json --json -q --lr 0.003 --data tokens.u16 %s",
             folder, launch, tool, options);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    json_t *json = json_loadf(pipe, 0, &error);
    int code = pclose(pipe);
    if (!json || code != 0)
        fail_msg("%s: exit %d, %s", command, WEXITSTATUS(code), json ? "" : error.text);
    read_outcome(json, out);
    json_decref(json);
}

static void clean(void)
{
    char command[256];

    snprintf(command, sizeof command, "rm -rf %s/*", folder);
    assert_int_equal(system(command), 0);
}

/* ------------------------------------------------------------------------------ tests */

static void expect_end_of(const struct outcome *whole, const struct outcome *part,
                          double tolerance, const char *what)
{
    double worst = 0;

    assert_int_equal(part->n, N_STEPS - N_BEFORE);
    for (int i = 0; i < part->n; i++) {
        double expected = whole->losses[N_BEFORE + i];
        double difference = fabs(part->losses[i] - expected) / expected;
        worst = difference <= worst ? worst : difference;
    }
    printf("# %s: worst %.1e relative\n", what, worst);
    if (!(worst <= tolerance))
        fail_msg("%s: losses differ by %.2e", what, worst);
    if (tolerance == 0)
        assert_string_equal(part->fingerprint, whole->fingerprint);
}

static void check_same_plan(enum mist_family family, const struct layout *layout,
                            const char *what)
{
    struct outcome whole, saving, after;

    if (test_is_left_out())
        return;
    train(family, layout, "--iterations 6 --lr-min 0.001 --warm-up 2", &whole);
    train(family, layout,
          "--iterations 6 --lr-min 0.001 --warm-up 2 --checkpoint run --save-every 1 "
          "--keep 0 --validation-data tokens.u16 "
          "--validate-every 2",
          &saving);
    assert_memory_equal(saving.losses, whole.losses, sizeof whole.losses);
    assert_string_equal(saving.fingerprint, whole.fingerprint);
    train(family, layout, "--resume run/step-00000003", &after);
    expect_end_of(&whole, &after, 0, what);
    clean();
}

TEST(test_same_plan)
{
    check_same_plan(MIST_FAMILY_GPT, &alone, "GPT, one rank");
    check_same_plan(MIST_FAMILY_GPT, &two_stages, "GPT, two stages");
    check_same_plan(MIST_FAMILY_GPT, &in_a_v, "GPT, two stages in a V");
    check_same_plan(MIST_FAMILY_LLAMA, &two_tp, "Llama, two tensor-parallel ranks");
    check_same_plan(MIST_FAMILY_LLAMA, &two_dp_zero3, "Llama, ZeRO-3, half offloaded");
    check_same_plan(MIST_FAMILY_GPT, &half_zero3, "GPT, bf16, ZeRO-3, half offloaded");
    check_same_plan(MIST_FAMILY_LLAMA, &on_host, "Llama, updated on the host");
    check_same_plan(MIST_FAMILY_GPT, &half_on_host, "GPT, bf16, updated on the host");
}

/* Saved under one plan, gone on with under others. */
static void check_other_plans(enum mist_family family, const struct layout *from,
                              const struct layout *const *to, const double *tolerances,
                              int n, const char *what)
{
    struct outcome whole, after;
    char name[128];

    train(family, from, "--iterations 6 --checkpoint run --save-every 3", &whole);
    for (int i = 0; i < n; i++) {
        if (test_is_left_out())
            continue;
        snprintf(name, sizeof name, "%s to %s S %d dp %d tp %d ZeRO %d offload %g", what,
                 mist_pipeline_words[to[i]->pipeline], to[i]->n_stages, to[i]->dp,
                 to[i]->tp, to[i]->zero, to[i]->offload);
        train(family, to[i], "--resume run/step-00000003", &after);
        expect_end_of(&whole, &after, tolerances[i], name);
    }
    clean();
}

TEST(test_from_one_rank)
{
    const struct layout *to[] = {&two_stages, &offloads,  &on_host,     &two_chunks,
                                 &in_a_v,     &two_tp_sp, &two_dp_zero3};
    const double tolerances[] = {0, 0, 0, 0, 0, TOLERANCE, TOLERANCE};

    check_other_plans(MIST_FAMILY_GPT, &alone, to, tolerances, 7, "GPT, one rank");
    check_other_plans(MIST_FAMILY_LLAMA, &alone, to, tolerances, 7, "Llama, one rank");
}

TEST(test_from_a_v)
{
    const struct layout *to[] = {&alone, &two_stages, &two_chunks};
    const double tolerances[] = {0, 0, 0};

    check_other_plans(MIST_FAMILY_GPT, &in_a_v, to, tolerances, 3, "GPT, in a V");
}

TEST(test_from_two_dp)
{
    const struct layout *to[] = {&two_dp_zero3,  &two_dp_zero1, &two_dp_on_host,
                                 &two_dp_in_a_v, &two_stages,   &two_tp};
    const double tolerances[] = {0, 0, 0, 0, TOLERANCE, TOLERANCE};

    check_other_plans(MIST_FAMILY_GPT, &two_dp, to, tolerances, 6, "GPT, dp 2");
}

TEST(test_bf16)
{
    const struct layout *to[] = {&half_zero1};
    const double tolerances[] = {0};

    check_other_plans(MIST_FAMILY_LLAMA, &half_zero3, to, tolerances, 1, "Llama, bf16");
}

TEST(test_from_two_tp)
{
    const struct layout *to[] = {&two_tp_sp, &alone, &two_dp_zero1};
    const double tolerances[] = {TOLERANCE, TOLERANCE, TOLERANCE};

    check_other_plans(MIST_FAMILY_GPT, &two_tp, to, tolerances, 3, "GPT, tp 2");
}

/* The weights of a run, out and in again: same bits, same loss on held-out text. */
static void check_weights(enum mist_family family, const struct layout *from,
                          const struct layout *to, double tolerance)
{
    struct outcome out, in;

    train(family, from, "--iterations 3 --export hf --validation-frac 0.1", &out);
    train(family, to, "--iterations 1 --lr 0 --import hf --validation-frac 0.1", &in);
    assert_string_equal(in.fingerprint, out.fingerprint);
    double difference =
        fabs(in.validation_loss - out.validation_loss) / out.validation_loss;
    printf("# exported and imported: losses differ by %.1e\n", difference);
    assert_true(difference <= tolerance);
    clean();
}

TEST(test_weights)
{
    check_weights(MIST_FAMILY_GPT, &two_stages, &alone, 0);
    check_weights(MIST_FAMILY_GPT, &in_a_v, &alone, 0);
    check_weights(MIST_FAMILY_LLAMA, &alone, &in_a_v, 0);
    check_weights(MIST_FAMILY_LLAMA, &two_dp_zero3, &two_tp, TOLERANCE);
    check_weights(MIST_FAMILY_LLAMA, &two_tp_sp, &two_stages, TOLERANCE);
}

static int set_up(void **state)
{
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    clean();
    return rmdir(folder);
}

TEST_MAIN(set_up, tear_down)
