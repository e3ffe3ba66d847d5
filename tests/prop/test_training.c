/*
 * Trains small GPT and Llama models by mist-exec under a grid of plans on 1, 2 and 4
 * ranks, and compares
 *   - the plain single-rank run with the naive double-precision model (1e-4 relative, 20
 * steps);
 *   - every plan's losses with the plain run's (1e-5 relative, 20 steps, fp32);
 *   - losses and final parameters bit for bit among plans that only move or re-time data:
 * checkpointing, ZeRO-1, pipelining, serial execution, at equal dp, G and b;
 *   - allocated with planned bytes of the device arena, on every rank.
 */
#include "exec/data.h"
#include "exec/runtime_internal.h" /* initial parameters */
#include "sim/catalog.h"
#include "sim/plan.h"
#include "tests/unit/naive_model.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

enum { N_STEPS = 20, GLOBAL_BATCH = 8, SEQ = 32, SEED = 7, MAX_CLASSES = 64 };
#define LEARNING_RATE 0.003

struct variant {
    int n_stages, dp, n_micro_batches, n_checkpointed;
    bool is_zero, is_serial;
};

/* Everything that must not change a bit at equal dp and G. */
static const struct variant variants[] = {
    {1, 1, 1, 0, false, false}, {1, 1, 2, 0, false, false}, {1, 1, 4, 0, false, false},
    {1, 1, 8, 0, false, false}, {1, 1, 4, 2, false, false}, {1, 1, 4, 4, false, true},
    {2, 1, 4, 0, false, false}, {2, 1, 4, 1, false, false}, {2, 1, 8, 2, false, true},
    {2, 1, 1, 0, false, false}, {1, 2, 4, 0, false, false}, {1, 2, 4, 0, true, false},
    {1, 2, 4, 4, true, true},   {1, 2, 1, 2, true, false},  {1, 2, 2, 0, false, false},
    {2, 2, 2, 1, true, false},  {2, 2, 2, 0, false, false}, {2, 2, 4, 0, true, false},
    {4, 1, 4, 0, false, false}, {4, 1, 8, 1, false, false}, {1, 4, 2, 0, true, false},
    {1, 4, 2, 0, false, false}, {1, 4, 1, 1, true, false},
};

struct outcome {
    double losses[N_STEPS];
    char fingerprint[32];
};

static char folder[] = "/tmp/mist_training_XXXXXX";

static struct mist_model tiny(enum mist_family family)
{
    struct mist_model model = {
        .family = family,
        .n_layers = 4,
        .hidden = 48,
        .n_heads = 4,
        .n_kv_heads = family == MIST_FAMILY_LLAMA ? 2 : 4,
        .head_dim = 12,
        .ffn = family == MIST_FAMILY_LLAMA ? 112 : 192,
        .vocab = 257,
        .max_seq = family == MIST_FAMILY_LLAMA ? 0 : 40,
        .has_bias = family == MIST_FAMILY_GPT,
        .norm_epsilon = 1e-5,
        .rope_theta = family == MIST_FAMILY_LLAMA ? 10000 : 0,
    };

    snprintf(model.name, sizeof model.name, "tiny-%s",
             family == MIST_FAMILY_LLAMA ? "llama" : "gpt");
    return model;
}

static void make_plan(struct mist_plan *plan, enum mist_family family,
                      const struct variant *variant)
{
    *plan = (struct mist_plan){
        .model = tiny(family),
        .job = {GLOBAL_BATCH, SEQ, MIST_DTYPE_FP32, 0},
        .n_micro_batches = variant->n_micro_batches,
        .n_stages = variant->n_stages,
    };
    for (int i = 0; i < variant->n_stages; i++)
        plan->stages[i] = (struct mist_stage_plan){
            .n_layers = plan->model.n_layers / variant->n_stages,
            .n_nodes = 1,
            .n_devices = variant->dp,
            .micro_batch = GLOBAL_BATCH / variant->n_micro_batches / variant->dp,
            .dp = variant->dp,
            .tp = 1,
            .shards_optimizer = variant->is_zero,
            .n_checkpointed = variant->n_checkpointed,
        };
}

/* ------------------------------------------------------------------------- running */

static void tool_path(char *out, size_t size)
{
    const char *build = getenv("MIST_BUILD");
    char self[1024] = "";

    if (build) {
        snprintf(out, size, "%s/mist-exec", build);
        return;
    }
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    for (int i = 0; i < 3; i++)
        *strrchr(self, '/') = '\0';
    snprintf(out, size, "%.900s/mist-exec", self);
}

static json_t *run_tool(const char *plan_path, int n_ranks, bool is_serial)
{
    char tool[1024], command[4096];
    json_error_t error;

    tool_path(tool, sizeof tool);
    snprintf(command, sizeof command,
             "%s '%s' '%s' --json -q --iterations %d --seed %d --lr %g %s",
             n_ranks > 1 ? (n_ranks == 2 ? "mpirun --oversubscribe --bind-to none -n 2"
                                         : "mpirun --oversubscribe --bind-to none -n 4")
                         : "",
             tool, plan_path, N_STEPS, SEED, LEARNING_RATE, is_serial ? "--serial" : "");
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    json_t *json = json_loadf(pipe, 0, &error);
    int code = pclose(pipe);
    if (!json || code != 0)
        fail_msg("%s: exit %d, %s", command, WEXITSTATUS(code), json ? "" : error.text);
    return json;
}

static void check_memory(const json_t *json)
{
    size_t i;
    json_t *rank;

    assert_true(json_array_size(json_object_get(json, "ranks")) > 0);
    json_array_foreach(json_object_get(json, "ranks"), i, rank)
    {
        json_int_t planned = json_integer_value(json_object_get(rank, "planned_bytes"));
        assert_true(planned > 0);
        assert_int_equal(planned,
                         json_integer_value(json_object_get(rank, "allocated_bytes")));
    }
}

static void train(enum mist_family family, const struct variant *variant,
                  struct outcome *out)
{
    static struct mist_plan plan;
    struct mist_err err = {0};
    char path[256];

    make_plan(&plan, family, variant);
    snprintf(path, sizeof path, "%s/plan.json", folder);
    if (mist_plan_check(&plan, &err) != MIST_OK ||
        mist_plan_save(&plan, path, true, &err) != MIST_OK)
        fail_msg("%s", err.message);
    json_t *json = run_tool(path, variant->n_stages * variant->dp, variant->is_serial);
    json_t *losses = json_object_get(json, "losses");
    assert_int_equal(json_array_size(losses), N_STEPS);
    for (size_t i = 0; i < N_STEPS; i++)
        out->losses[i] = json_number_value(json_array_get(losses, i));
    snprintf(out->fingerprint, sizeof out->fingerprint, "%s",
             json_string_value(json_object_get(json, "parameters_fingerprint")));
    check_memory(json);
    json_decref(json);
}

/* --------------------------------------------------------------------------- naive */

static struct naive_config naive_of(const struct mist_model *model)
{
    return (struct naive_config){
        .family = model->family == MIST_FAMILY_LLAMA ? NAIVE_LLAMA : NAIVE_GPT,
        .layers = model->n_layers,
        .hidden = model->hidden,
        .heads = model->n_heads,
        .kv_heads = model->n_kv_heads,
        .ffn = model->ffn,
        .vocab = model->vocab,
        .seq_len = SEQ,
        .has_bias = model->has_bias,
        .norm_eps = model->norm_epsilon,
        .rope_theta = model->rope_theta,
    };
}

/* The naive tensor of a catalogue parameter; positions beyond SEQ have no counterpart. */
static enum naive_tensor naive_tensor_of(const char *name)
{
    static const struct {
        const char *name;
        enum naive_tensor tensor;
    } names[] = {
        {"wte", NAIVE_WTE},
        {"wpe", NAIVE_WPE},
        {"norm1.weight", NAIVE_NORM1_W},
        {"norm1.bias", NAIVE_NORM1_B},
        {"qkv.weight", NAIVE_QKV_W},
        {"qkv.bias", NAIVE_QKV_B},
        {"proj.weight", NAIVE_PROJ_W},
        {"proj.bias", NAIVE_PROJ_B},
        {"norm2.weight", NAIVE_NORM2_W},
        {"norm2.bias", NAIVE_NORM2_B},
        {"up.weight", NAIVE_FC1_W},
        {"up.bias", NAIVE_FC1_B},
        {"down.weight", NAIVE_FC2_W},
        {"down.bias", NAIVE_FC2_B},
        {"norm.weight", NAIVE_FINAL_W},
        {"norm.bias", NAIVE_FINAL_B},
        {"head.weight", NAIVE_HEAD_W},
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0)
            return names[i].tensor;
    fail_msg("no naive tensor for %s", name);
    return NAIVE_N_TENSORS;
}

/* The executor's initial parameters in the naive layout, and which elements decay. */
static void fill_naive(const struct mist_model *model, const struct naive_config *config,
                       double *params, double *decays)
{
    struct mist_catalog *catalog = NULL;
    struct mist_layer_layout layout;
    struct mist_err err = {0};

    assert_int_equal(mist_catalog_new(model, &catalog, &err), MIST_OK);
    for (int32_t layer = 0; layer <= model->n_layers + 1; layer++) {
        enum mist_layer_kind kind = mist_schedule_layer_kind(model, layer);
        struct mist_layer_shape shape = {1, SEQ, 1, 1};
        assert_int_equal(mist_layer_layout_make(catalog, kind, shape, &layout, &err),
                         MIST_OK);
        float *flat = calloc((size_t)layout.n_parameters, sizeof *flat);
        assert_non_null(flat);
        mist_runtime_fill_parameters(model, &layout, layer, SEED, flat);
        for (int32_t i = 0; i < layout.n_params; i++) {
            enum naive_tensor tensor = naive_tensor_of(layout.param_name[i]);
            int64_t n = naive_tensor_size(config, tensor);
            int64_t at = naive_tensor_offset(
                config, tensor, kind == MIST_LAYER_BLOCK ? (int)layer - 1 : 0);
            assert_true(n <= layout.param_elements[i]);
            for (int64_t k = 0; k < n; k++) {
                params[at + k] = (double)flat[layout.param_offset[i] + k];
                decays[at + k] = layout.param_decays[i];
            }
        }
        free(flat);
    }
    mist_catalog_free(catalog);
}

/* AdamW written out once more: the naive model's own takes one decay for all elements. */
static void adamw(double *p, double *m, double *v, const double *g, const double *decays,
                  int64_t n, int t)
{
    const double lr = LEARNING_RATE, beta1 = 0.9, beta2 = 0.95, decay = 0.1;

    for (int64_t i = 0; i < n; i++) {
        m[i] = beta1 * m[i] + (1 - beta1) * g[i];
        v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
        double step =
            m[i] / (1 - pow(beta1, t)) / (sqrt(v[i] / (1 - pow(beta2, t))) + 1e-8);
        p[i] -= lr * (step + decay * decays[i] * p[i]);
    }
}

static struct mist_data *open_default_data(void)
{
    char **paths;
    int32_t n;
    struct mist_data *data = NULL;
    struct mist_err err = {0};

    if (mist_data_default_paths(&paths, &n, &err) != MIST_OK)
        fail_msg("%s", err.message);
    assert_int_equal(mist_data_open((const char *const *)paths, n, &data, &err), MIST_OK);
    mist_data_free_paths(paths, n);
    return data;
}

static void train_naive(enum mist_family family, double losses[N_STEPS])
{
    struct mist_model model = tiny(family);
    struct naive_config config = naive_of(&model);
    struct mist_data *data = open_default_data();
    int64_t n = naive_n_params(&config);
    double *params = naive_zeros(n), *grad = naive_zeros(n), *m = naive_zeros(n),
           *v = naive_zeros(n), *decays = naive_zeros(n);
    int32_t tokens[GLOBAL_BATCH * SEQ], targets[GLOBAL_BATCH * SEQ];

    fill_naive(&model, &config, params, decays);
    for (int i = 0; i < N_STEPS; i++) {
        mist_data_batch(data, SEED, i, GLOBAL_BATCH, SEQ, 0, GLOBAL_BATCH, tokens,
                        targets);
        losses[i] =
            naive_loss_and_gradient(&config, params, grad, tokens, targets, GLOBAL_BATCH);
        adamw(params, m, v, grad, decays, n, i + 1);
    }
    mist_data_close(data);
    free(params);
    free(grad);
    free(m);
    free(v);
    free(decays);
}

/* --------------------------------------------------------------------------- tests */

static double worst_relative(const double *a, const double *b)
{
    double worst = 0;

    for (int i = 0; i < N_STEPS; i++) {
        double difference = fabs(a[i] - b[i]) / fabs(b[i]);
        worst = difference > worst || isnan(difference) ? difference : worst;
    }
    return worst;
}

static void compare_grid(enum mist_family family)
{
    static const struct variant plain = {1, 1, 1, 0, false, false};
    struct outcome reference, outcome, of_class[MAX_CLASSES];
    double naive[N_STEPS], worst = 0;
    int dp_of[MAX_CLASSES], g_of[MAX_CLASSES], n_classes = 0;
    size_t n = sizeof variants / sizeof *variants;

    train(family, &plain, &reference);
    train_naive(family, naive);
    printf("# plain run against naive: %.2e relative; loss %.4f -> %.4f\n",
           worst_relative(reference.losses, naive), reference.losses[0],
           reference.losses[N_STEPS - 1]);
    assert_true(worst_relative(reference.losses, naive) <= 1e-4);
    assert_true(reference.losses[N_STEPS - 1] < 0.8 * reference.losses[0]);
    for (size_t i = 0; i < n; i++) {
        const struct variant *at = &variants[i];
        int class = 0;
        train(family, at, &outcome);
        double difference = worst_relative(outcome.losses, reference.losses);
        worst = difference > worst ? difference : worst;
        if (!(difference <= 1e-5))
            fail_msg("plan %zu (S %d dp %d G %d): losses differ by %.2e", i, at->n_stages,
                     at->dp, at->n_micro_batches, difference);
        while (class < n_classes &&
               (dp_of[class] != at->dp || g_of[class] != at->n_micro_batches))
            class ++;
        if (class == n_classes) {
            dp_of[class] = at->dp;
            g_of[class] = at->n_micro_batches;
            of_class[n_classes++] = outcome;
        }
        assert_memory_equal(outcome.losses, of_class[class].losses,
                            sizeof outcome.losses);
        assert_string_equal(outcome.fingerprint, of_class[class].fingerprint);
    }
    printf(
        "# %zu plans against plain: worst %.2e relative; %d classes equal bit for bit\n",
        n, worst, n_classes);
}

static void test_gpt(void **state)
{
    (void)state;
    compare_grid(MIST_FAMILY_GPT);
}

static void test_llama(void **state)
{
    (void)state;
    compare_grid(MIST_FAMILY_LLAMA);
}

static int set_up(void **state)
{
    (void)state;
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    char path[256];

    (void)state;
    snprintf(path, sizeof path, "%s/plan.json", folder);
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt),
        cmocka_unit_test(test_llama),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
