/*
 * Models of every family that is computed, as a folder of Hugging Face: read, run and
 * written again.
 *
 * A generator makes small random instances: a config.json and, by the names, shapes and
 * orders of transformers' modules, weights that are hashes of their names. The naive model
 * gets the same tensors by a description of its own of where each row of theirs belongs.
 * Logits, loss and gradients of the catalogue's programs are compared with it, gradients
 * tensor by tensor as they would be exported; weights must come back bit for bit, and the
 * config.json that is written must say the same. What asks for another computation must be
 * refused by its key.
 */
#include "exec/huggingface/hf_names.h"
#include "exec/huggingface/safetensors.h"
#include "sim/plan/plan.h"
#include "tests/prop/catalogue_runner.h"
#include "tests/prop/family_cases.h"
#include "tests/unit/scratch.h"

enum { N_THREADS = 2, MAX_TENSORS = 64 };

/* fp32 with another order of sums, relative to the 2-norm of a parameter or of all logits
 * (logarithms of their softmax). */
#define TOLERANCE 1e-5

/* -------------------------------------------------------------------------- instances */

struct tensor {
    char name[96];
    const struct row *row;
    int layer;
    int64_t n, columns; /* of the naive tensor: 1 of a vector */
    int64_t first_row, rows;
    float *values; /* owned, [n] in their order */
};

struct instance {
    const struct family_case *of;
    struct naive_config naive;
    struct tensor tensors[MAX_TENSORS];
    int n_tensors;
    double *params, *gradient;
    struct scratch folder, again;
    struct mist_model model;
    struct reference reference;
};

static int64_t columns_of(const struct naive_config *c, enum naive_tensor tensor)
{
    switch (tensor) {
    case NAIVE_WTE:
    case NAIVE_WPE:
    case NAIVE_QKV_W:
    case NAIVE_FC1_W:
    case NAIVE_HEAD_W:
        return c->hidden;
    case NAIVE_PROJ_W:
        return naive_q_width(c);
    case NAIVE_FC2_W:
        return c->ffn;
    default:
        return 1;
    }
}

static void find_rows(const struct naive_config *c, struct tensor *t)
{
    int64_t q = naive_q_width(c), kv = (naive_qkv_width(c) - q) / 2, f = c->ffn;
    int64_t all = naive_tensor_size(c, t->row->to) / t->columns;
    const int64_t spans[][2] = {
        [WHOLE] = {0, all},      [Q_ROWS] = {0, q},      [K_ROWS] = {q, kv},
        [V_ROWS] = {q + kv, kv}, [GATE_ROWS] = {0, f},   [UP_ROWS] = {f, f},
        [TRANSPOSED] = {0, all}, [BY_GROUPS] = {0, all},
    };

    t->first_row = spans[t->row->part][0];
    t->rows = spans[t->row->part][1];
    t->n = t->rows * t->columns;
}

/* Element i of theirs in the naive model's flat array. */
static int64_t place(const struct naive_config *c, const struct tensor *t, int64_t i)
{
    int64_t row = t->first_row + i / t->columns, column = i % t->columns;

    if (t->row->part == TRANSPOSED) {
        row = i % t->rows;
        column = i / t->rows;
    }
    if (t->row->part == BY_GROUPS) { /* queries, key, value; and so on */
        int64_t d = naive_head_dim(c), g = c->heads / c->kv_heads;
        int64_t group = row / ((g + 2) * d), in_group = row / d % (g + 2);
        int64_t head = in_group < g ? group * g + in_group
                                    : c->heads + (in_group - g) * c->kv_heads + group;
        row = head * d + row % d;
    }
    return naive_tensor_offset(c, t->row->to, t->layer) + row * t->columns + column;
}

static void add_tensor(struct instance *at, const struct row *row, int layer)
{
    struct tensor *t = &at->tensors[at->n_tensors++];
    bool is_head = row->to == NAIVE_HEAD_W;

    assert_true(at->n_tensors <= MAX_TENSORS);
    *t = (struct tensor){
        .row = row, .layer = layer, .columns = columns_of(&at->naive, row->to)};
    if (naive_is_of_layer(row->to))
        snprintf(t->name, sizeof t->name, "%s%s.%d.%s", at->of->prefix, at->of->layers,
                 layer, row->name);
    else
        snprintf(t->name, sizeof t->name, "%s%s", is_head ? "" : at->of->prefix,
                 row->name);
    find_rows(&at->naive, t);
    double *values = naive_zeros(t->n);
    t->values = calloc((size_t)t->n, sizeof *t->values);
    assert_non_null(t->values);
    reference_weights(t->name, t->n, values);
    for (int64_t i = 0; i < t->n; i++) {
        t->values[i] = (float)values[i];
        at->params[place(&at->naive, t, i)] = values[i];
    }
    free(values);
}

/* Their shape. */
static struct mist_safetensors_info info_of(const struct tensor *t)
{
    bool is_transposed = t->row->part == TRANSPOSED;
    struct mist_safetensors_info info = {.name = t->name,
                                         .n_dims = t->columns > 1 ? 2 : 1};

    info.shape[is_transposed] = t->rows;
    if (t->columns > 1)
        info.shape[!is_transposed] = t->columns;
    return info;
}

static void write_folder(struct instance *at)
{
    struct mist_safetensors_info infos[MAX_TENSORS];
    struct mist_safetensors_writer *writer;
    struct mist_err err = {0};
    char text[1024];

    snprintf(text, sizeof text, "{%s}", at->of->config);
    scratch_write(scratch_path(&at->folder, "config.json"), text);
    for (int i = 0; i < at->n_tensors; i++)
        infos[i] = info_of(&at->tensors[i]);
    must(mist_safetensors_writer_open(scratch_path(&at->folder, "model.safetensors"),
                                      false, MIST_DTYPE_FP32, infos, at->n_tensors,
                                      &writer, &err),
         &err);
    for (int i = 0; i < at->n_tensors; i++)
        mist_safetensors_write(writer, at->tensors[i].values, at->tensors[i].n);
    must(mist_safetensors_writer_commit(writer, &err), &err);
}

static void open_instance(const struct family_case *of, struct instance *out)
{
    struct mist_err err = {0};

    *out = (struct instance){.of = of, .naive = of->naive};
    out->params = naive_zeros(naive_n_params(&out->naive));
    out->gradient = naive_zeros(naive_n_params(&out->naive));
    for (const struct row *row = of->rows; row->name; row++)
        for (int l = 0; l < (naive_is_of_layer(row->to) ? LAYERS : 1); l++)
            if (naive_tensor_size(&out->naive, row->to) > 0)
                add_tensor(out, row, l);
    scratch_init(&out->folder);
    scratch_init(&out->again);
    write_folder(out);
    must(mist_model_load(out->folder.folder, &out->model, &err), &err);
    out->reference = (struct reference){.model = out->model, .batch = BATCH, .seq = SEQ};
}

static void close_instance(struct instance *at)
{
    for (int i = 0; i < at->n_tensors; i++)
        free(at->tensors[i].values);
    free(at->params);
    free(at->gradient);
    scratch_fini(&at->folder);
    scratch_fini(&at->again);
}

/* ---------------------------------------------------------------------------- running */

static struct mist_hf *open_weights(const struct instance *at)
{
    struct mist_err err = {0};
    struct mist_hf *hf;
    struct mist_hf_config config;

    must(mist_hf_check_config(at->folder.folder, &at->model, &config, &err), &err);
    assert_true(config.is_there);
    must(mist_hf_load(at->folder.folder, &at->model, &hf, &err), &err);
    return hf;
}

static void import_weights(const struct instance *at, struct catalogue_run *run)
{
    struct mist_hf *hf = open_weights(at);
    struct mist_err err = {0};

    for (int i = 0; i < run->n_modules; i++)
        for (int k = 0; k < run->modules[i].layout->n_params; k++) {
            const struct mist_param *param = &run->modules[i].layout->params[k];
            const struct mist_param_span span = {.length = param->n_elements,
                                                 .n_runs = 1};
            must(mist_hf_read_spans(hf, i, param->name, &span, 1,
                                    (float *)run->modules[i].weights + param->offset,
                                    &err),
                 &err);
        }
    mist_hf_close(hf);
}

/* A parameter's gradient, for the export. */
static enum mist_status gradient_of(void *context, int32_t module, const char *param,
                                    int64_t n, float *out, struct mist_err *err)
{
    const struct catalogue_run *run = context;
    const struct mist_layer_layout *layout = run->modules[module].layout;

    for (int k = 0; k < layout->n_params; k++)
        if (strcmp(layout->params[k].name, param) == 0) {
            assert_int_equal(n, layout->params[k].n_elements);
            memcpy(out, run->modules[module].gradients + layout->params[k].offset,
                   (size_t)n * sizeof *out);
            return MIST_OK;
        }
    return mist_err_set(err, MIST_ERR_RUN, "no parameter %s", param);
}

static enum mist_status weight_of(void *context, int32_t module, const char *param,
                                  int64_t n, float *out, struct mist_err *err)
{
    const struct mist_param_span span = {.length = n, .n_runs = 1};

    return mist_hf_read_spans(context, module, param, &span, 1, out, err);
}

/* Calls check with every tensor of a folder that was written, and how many there are. */
static void read_back(struct instance *at,
                      void (*check)(const struct instance *at, const struct tensor *t,
                                    const float *values))
{
    struct mist_safetensors *set;
    struct mist_err err = {0};

    must(mist_safetensors_open(at->again.folder, &set, &err), &err);
    assert_int_equal(mist_safetensors_n(set), at->n_tensors);
    for (int i = 0; i < at->n_tensors; i++) {
        const struct tensor *t = &at->tensors[i];
        int32_t found = mist_safetensors_find(set, t->name);
        float *values = calloc((size_t)t->n, sizeof *values);
        if (found < 0)
            fail_msg("%s: no tensor %s", at->of->name, t->name);
        assert_int_equal(mist_safetensors_info(set, found)->n_elements, t->n);
        mist_safetensors_read(set, found, 0, t->n, values);
        check(at, t, values);
        free(values);
    }
    mist_safetensors_close(set);
}

/* Relative to the gradient of the naive tensor, which may be several of theirs: biases of
 * keys have next to none. */
static void check_gradient(const struct instance *at, const struct tensor *t,
                           const float *values)
{
    int64_t first = naive_tensor_offset(&at->naive, t->row->to, t->layer);
    double error2 = 0, norm2 = 0;

    for (int64_t i = 0; i < naive_tensor_size(&at->naive, t->row->to); i++)
        norm2 += at->gradient[first + i] * at->gradient[first + i];
    for (int64_t i = 0; i < t->n; i++)
        error2 += pow((double)values[i] - at->gradient[place(&at->naive, t, i)], 2);
    if (!(norm2 > 0 && sqrt(error2 / norm2) <= TOLERANCE))
        fail_msg("%s: gradient of %s is off by %g", at->of->name, t->name,
                 sqrt(error2 / norm2));
}

static void check_same_bits(const struct instance *at, const struct tensor *t,
                            const float *values)
{
    if (memcmp(values, t->values, (size_t)t->n * sizeof *values) != 0)
        fail_msg("%s: %s came back with other bits", at->of->name, t->name);
}

/* ------------------------------------------------------------------------------ tests */

TEST(test_gradients)
{
    static struct catalogue_run run;
    static struct instance at;
    struct mist_err err = {0};

    for (int i = 0; i < N_FAMILY_CASES; i++) {
        open_instance(&cases[i], &at);
        for (int k = 0; k < N_CATALOGUE_VARIANTS; k++) {
            catalogue_open(&at.reference, &catalogue_variants[k], MIST_DTYPE_FP32,
                           N_THREADS, &run);
            import_weights(&at, &run);
            double loss = catalogue_take_gradient(&run);
            double expected = naive_loss_and_gradient(&at.naive, at.params, at.gradient,
                                                      run.tokens, run.targets, BATCH);
            if (!(fabs(loss / expected - 1) <= TOLERANCE / 10))
                fail_msg("%s, %s: loss %.9g, expected %.9g", at.of->name,
                         run.variant->name, loss, expected);
            must(mist_hf_save(at.again.folder, &at.model, 0, MIST_DTYPE_FP32, true,
                              gradient_of, &run, &err),
                 &err);
            read_back(&at, check_gradient);
            catalogue_close(&run);
        }
        close_instance(&at);
    }
}

/* The losses of the rows of a run that was evaluated. */
static const float *losses_of(const struct catalogue_run *run)
{
    struct mist_binding binding;
    int head = run->n_modules - 1;

    catalogue_bind(run, head, 0, &binding);
    for (int32_t i = 0; i < binding.layout->n_forward; i++) {
        struct mist_step_args args;
        mist_binding_resolve(&binding, MIST_PROGRAM_FORWARD, i, &args);
        if (mist_op_has_losses(args.step->op))
            return args.operands[MIST_ARG_LOSS_LOSSES];
    }
    fail_msg("no losses");
    return NULL;
}

/* Logarithms of the softmax of the naive logits, in place. */
static void naive_log_softmax(double *logits, int64_t n)
{
    double sum = 0;

    for (int64_t v = 0; v < n; v++)
        sum += exp(logits[v]);
    for (int64_t v = 0; v < n; v++)
        logits[v] -= log(sum);
}

/* Of every row and word: what the loss would be were it the target. */
TEST(test_logits)
{
    enum { ROWS = BATCH * SEQ };
    static struct catalogue_run run;
    static struct instance at;
    static double logits[ROWS * VOCAB], x[ROWS * 24], last[ROWS * 24];
    struct naive_saved kept[LAYERS];

    for (int i = 0; i < N_FAMILY_CASES; i++) {
        double error2 = 0, norm2 = 0;
        open_instance(&cases[i], &at);
        catalogue_open(&at.reference, &catalogue_variants[CATALOGUE_WHOLE],
                       MIST_DTYPE_FP32, N_THREADS, &run);
        import_weights(&at, &run);
        naive_logits(&at.naive, at.params, run.tokens, BATCH, x, last, logits, kept);
        for (int l = 0; l < LAYERS; l++)
            naive_free_saved(&kept[l]);
        for (int row = 0; row < ROWS; row++)
            naive_log_softmax(logits + row * VOCAB, VOCAB);
        for (int v = 0; v < VOCAB; v++) {
            for (int row = 0; row < ROWS; row++)
                run.targets[row] = v;
            catalogue_forward(&run, 0, MIST_PROGRAM_EVALUATE);
            const float *losses = losses_of(&run);
            for (int row = 0; row < ROWS; row++) {
                double expected = logits[row * VOCAB + v];
                error2 += pow(-(double)losses[row] - expected, 2);
                norm2 += expected * expected;
            }
        }
        if (!(sqrt(error2 / norm2) <= TOLERANCE))
            fail_msg("%s: logits are off by %g", at.of->name, sqrt(error2 / norm2));
        print_message("# %s: logits off by %.1e\n", at.of->name, sqrt(error2 / norm2));
        catalogue_close(&run);
        close_instance(&at);
    }
}

TEST(test_round_trip)
{
    static struct instance at;
    struct mist_err err = {0};

    for (int i = 0; i < N_FAMILY_CASES; i++) {
        struct mist_model again;
        open_instance(&cases[i], &at);
        struct mist_hf *hf = open_weights(&at);
        must(mist_hf_save(at.again.folder, &at.model, 0, MIST_DTYPE_FP32, false,
                          weight_of, hf, &err),
             &err);
        mist_hf_close(hf);
        read_back(&at, check_same_bits);
        must(mist_model_load(at.again.folder, &again, &err), &err);
        memcpy(again.name, at.model.name, sizeof again.name);
        assert_memory_equal(&again, &at.model, sizeof again);
        close_instance(&at);
    }
}

/* ----------------------------------------------------------------------------- refused */

#define LLAMA_WITH(more) "\"model_type\":\"llama\"," LLAMA_SIZES "," more

/* Models that can be planned, not trained. */
static const struct {
    const char *config, *key;
    bool is_of_plan; /* in the model's dimensions: their config.json is the plan's */
} refusals[] = {
    {LLAMA_WITH("\"attention_bias\":true"), "attention_bias", false},
    {LLAMA_WITH("\"mlp_bias\":true"), "mlp_bias", false},
    {LLAMA_WITH("\"partial_rotary_factor\":0.5"), "partial_rotary_factor", false},
    {LLAMA_WITH("\"rope_parameters\":{\"rope_theta\":1e4,\"partial_rotary_factor\":0.5}"),
     "partial_rotary_factor", false},
    {LLAMA_WITH("\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0}"),
     "rope_scaling", false},
    {LLAMA_WITH("\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4.0}"), "rope_scaling",
     false},
    {LLAMA_WITH("\"rope_parameters\":{\"rope_type\":\"longrope\",\"rope_theta\":1e4}"),
     "rope_parameters", false},
    {LLAMA_WITH("\"attn_logit_softcapping\":50.0"), "attn_logit_softcapping", false},
    {LLAMA_WITH("\"final_logit_softcapping\":30.0"), "final_logit_softcapping", false},
    {LLAMA_WITH("\"use_qk_norm\":true"), "use_qk_norm", false},
    {LLAMA_WITH("\"qk_layernorm\":true"), "qk_layernorm", false},
    {LLAMA_WITH("\"embedding_multiplier\":12.0"), "embedding_multiplier", false},
    {LLAMA_WITH("\"residual_multiplier\":0.22"), "residual_multiplier", false},
    {LLAMA_WITH("\"logits_scaling\":8.0"), "logits_scaling", false},
    {LLAMA_WITH("\"logit_scale\":0.0625"), "logit_scale", false},
    {LLAMA_WITH("\"clip_qkv\":8.0"), "clip_qkv", false},
    {LLAMA_WITH("\"quantization_config\":{\"quant_method\":\"fp8\"}"),
     "quantization_config", false},
    {"\"model_type\":\"gpt2\",\"n_positions\":9,\"n_embd\":24,\"n_layer\":2,\"n_head\":4,"
     "\"vocab_size\":37,\"scale_attn_weights\":false",
     "scale_attn_weights", false},
    {"\"model_type\":\"gpt2\",\"n_positions\":9,\"n_embd\":24,\"n_layer\":2,\"n_head\":4,"
     "\"vocab_size\":37,\"scale_attn_by_inverse_layer_idx\":true",
     "scale_attn_by_inverse_layer_idx", false},
    {"\"model_type\":\"gpt2\",\"n_positions\":9,\"n_embd\":24,\"n_layer\":2,\"n_head\":4,"
     "\"vocab_size\":37,\"add_cross_attention\":true",
     "add_cross_attention", false},
    {NEOX_SIZES ",\"use_parallel_residual\":false", "use_parallel_residual", false},
    {NEOX_SIZES ",\"attention_bias\":false", "attention_bias", false},
    {"\"model_type\":\"mistral\"," LLAMA_SIZES ",\"sliding_window\":8", "sliding_window",
     true},
    {"\"model_type\":\"mistral\"," LLAMA_SIZES ",\"sliding_window\":8,"
     "\"attn_logit_softcapping\":50.0",
     "sliding_window, attn_logit_softcapping", true},
    {"\"model_type\":\"qwen2\"," LLAMA_SIZES ",\"sliding_window\":8,"
     "\"use_sliding_window\":true",
     "sliding_window", true},
    {"\"model_type\":\"qwen2\"," LLAMA_SIZES ",\"dual_chunk_attention_config\":"
     "{\"chunk_size\":262144,\"local_size\":8192}",
     "dual_chunk_attention_config", false},
};

TEST(test_refusals)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        static struct mist_plan plan;
        struct scratch scratch;
        struct mist_err err = {0};
        char text[1024];
        struct mist_hf_config config;

        scratch_init(&scratch);
        snprintf(text, sizeof text, "{%s}", refusals[i].config);
        scratch_write(scratch_path(&scratch, "config.json"), text);
        must(mist_model_load(scratch.folder, &plan.model, &err), &err);
        plan.job.seq_len = SEQ;
        assert_int_equal(mist_plan_check_ours(&plan, "plan.json", &err), MIST_ERR_INPUT);
        if (!strstr(err.message, refusals[i].key))
            fail_msg("%s: %s", refusals[i].key, err.message);
        if (!refusals[i].is_of_plan) {
            assert_int_equal(
                mist_hf_check_config(scratch.folder, &plan.model, &config, &err),
                MIST_ERR_INPUT);
            if (!strstr(err.message, refusals[i].key) || err.line != 1)
                fail_msg("%s: %ld: %s", refusals[i].key, err.line, err.message);
        }
        scratch_fini(&scratch);
    }
}

/* What needs other dimensions is no model at all. */
TEST(test_experts)
{
    static const char *const keys[] = {"num_experts", "num_local_experts",
                                       "n_routed_experts"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct scratch scratch;
        struct mist_model model;
        struct mist_err err = {0};
        char text[1024];

        scratch_init(&scratch);
        snprintf(text, sizeof text, "{%s,\"%s\":8}", LLAMA_WITH("\"head_dim\":8"),
                 keys[i]);
        scratch_write(scratch_path(&scratch, "config.json"), text);
        assert_int_equal(mist_model_load(scratch.folder, &model, &err), MIST_ERR_INPUT);
        if (!strstr(err.message, keys[i]))
            fail_msg("%s: %s", keys[i], err.message);
        scratch_fini(&scratch);
    }
}

int main(void)
{
    fill_ramp();
    return run_listed_tests(NULL, NULL);
}
