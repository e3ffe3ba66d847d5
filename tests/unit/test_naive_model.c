/*
 * The naive model against finite differences of its own loss, a closed form at
 * initialisation, AdamW by hand, and loss, gradients and training steps from PyTorch
 * (tests/data/reference).
 */
#include "tests/unit/naive_model.h"
#include "tests/unit/reference.h"

#define NONE                                                                             \
    {                                                                                    \
        0, 0, 0, 0, 0, NULL, 0, 0, 0                                                     \
    }
static const double slowed[] = {1.0, 0.3, 0.01};
static const struct naive_config configs[] = {
    {NAIVE_GPT, 2, 12, 3, 3, 20, 17, 7, 1, 0, 1e-5, 0.0, NONE},
    {NAIVE_GPT, 1, 8, 2, 1, 12, 11, 5, 0, 1, 1e-5, 0.0, NONE}, /* tied */
    {NAIVE_LLAMA, 2, 16, 4, 2, 10, 13, 6, 0, 0, 1e-6, 10000.0, NONE},
    {NAIVE_LLAMA, 1, 8, 2, 2, 7, 11, 5, 0, 1, 1e-6, 10000.0, NONE},    /* tied */
    {NAIVE_FALCON, 2, 12, 3, 1, 14, 13, 6, 0, 0, 1e-5, 10000.0, NONE}, /* multi-query */
    {NAIVE_FALCON, 2, 16, 4, 2, 14, 13, 6, 1, 1, 1e-5, 10000.0,
     NONE}, /* two norms, tied */
    {NAIVE_FALCON, 1, 8, 2, 2, 10, 11, 5, 1, 0, 1e-5, 10000.0,
     NONE}, /* as many kv heads */
    /* Llama's heads of their own width, other frequencies, biases of q, k and v */
    {NAIVE_LLAMA,
     1,
     8,
     2,
     1,
     7,
     11,
     5,
     0,
     1,
     1e-6,
     10000.0,
     {0, 1, 0, 6, 0, slowed, 0, 0, 0}},
    /* Falcon with two norms, erf, a part of each head turned */
    {NAIVE_FALCON,
     1,
     12,
     2,
     2,
     9,
     11,
     5,
     1,
     0,
     1e-5,
     100.0,
     {1, 0, 1, 0, 4, NULL, 0, 0, 0}},
    {NAIVE_GPT, 1, 8, 2, 2, 9, 11, 5, 1, 0, 1e-5, 0.0, {1, 0, 0, 0, 0, NULL, 0, 0, 0}},
    {NAIVE_LLAMA,
     1,
     8,
     2,
     1,
     7,
     11,
     5,
     0,
     1,
     1e-6,
     10000.0,
     {0, 0, 0, 6, 0, NULL, 0, 1, 0}},
    {NAIVE_LLAMA,
     1,
     8,
     2,
     1,
     7,
     11,
     5,
     0,
     1,
     1e-6,
     100.0,
     {0, 0, 0, 6, 0, NULL, 1, 0, 0}},
    /* Nemotron: grouped queries, a part of each head turned */
    {NAIVE_GPT, 1, 8, 2, 1, 9, 11, 5, 0, 0, 1e-5, 100.0, {0, 0, 0, 6, 4, NULL, 0, 0, 1}},
};

enum { BATCH = 2, MAX_PLACES = 48 };

static double next_uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53 - 0.5;
}

static void fill_batch(const struct naive_config *c, int32_t *tokens, int32_t *targets)
{
    for (int i = 0; i < BATCH * c->seq_len; i++) {
        tokens[i] = (int32_t)((i * i * 5 + i * 3 + 1) % c->vocab);
        targets[i] = (int32_t)((i * i * 7 + 2) % c->vocab);
    }
}

/* Central differences with Richardson's extrapolation: error O(step^4). */
static double loss_slope(const struct naive_config *c, double *params, double *scratch,
                         int64_t i, const int32_t *tokens, const int32_t *targets)
{
    double kept = params[i], slope[2];
    for (int k = 0; k < 2; k++) {
        double step = k == 0 ? 2e-3 : 1e-3;
        params[i] = kept + step;
        double above =
            naive_loss_and_gradient(c, params, scratch, tokens, targets, BATCH);
        params[i] = kept - step;
        double below =
            naive_loss_and_gradient(c, params, scratch, tokens, targets, BATCH);
        slope[k] = (above - below) / (2.0 * step);
    }
    params[i] = kept;
    return slope[1] + (slope[1] - slope[0]) / 3.0;
}

TEST(test_gradients)
{
    for (size_t i_config = 0; i_config < sizeof configs / sizeof *configs; i_config++) {
        const struct naive_config *c = &configs[i_config];
        int64_t n = naive_n_params(c);
        double *params = naive_zeros(n), *grad = naive_zeros(n),
               *scratch = naive_zeros(n);
        int32_t tokens[64], targets[64];
        uint64_t seed = 7 + i_config;
        for (int64_t i = 0; i < n; i++)
            params[i] = next_uniform(&seed);
        fill_batch(c, tokens, targets);
        naive_loss_and_gradient(c, params, grad, tokens, targets, BATCH);
        for (int t = 0; t < (int)NAIVE_N_TENSORS; t++)
            for (int l = 0; l < (naive_is_of_layer((enum naive_tensor)t) ? c->layers : 1);
                 l++) {
                if (test_is_left_out())
                    continue;
                int64_t size = naive_tensor_size(c, (enum naive_tensor)t);
                int64_t begin = naive_tensor_offset(c, (enum naive_tensor)t, l);
                double error2 = 0.0, norm2 = 0.0;
                for (int64_t i = begin; i < begin + size; i++) {
                    double fd = loss_slope(c, params, scratch, i, tokens, targets);
                    error2 += (fd - grad[i]) * (fd - grad[i]);
                    norm2 += fd * fd;
                }
                if (size > 0 && !(sqrt(error2) <= 1e-6 * sqrt(norm2)))
                    fail_msg("config %zu tensor %d layer %d: relative error %g", i_config,
                             t, l, sqrt(error2 / norm2));
            }
        free(params);
        free(grad);
        free(scratch);
    }
}

/* The layout has no holes and no overlaps, and ends at n_params. */
TEST(test_layout)
{
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        const struct naive_config *c = &configs[i];
        int64_t next = 0;
        for (int t = 0; t < (int)NAIVE_NORM1_W; t++) {
            assert_int_equal(naive_tensor_offset(c, (enum naive_tensor)t, 0), next);
            next += naive_tensor_size(c, (enum naive_tensor)t);
        }
        for (int l = 0; l < c->layers; l++)
            for (int t = NAIVE_NORM1_W; t <= (int)NAIVE_FC2_B; t++) {
                assert_int_equal(naive_tensor_offset(c, (enum naive_tensor)t, l), next);
                next += naive_tensor_size(c, (enum naive_tensor)t);
            }
        for (int t = NAIVE_FINAL_W; t < (int)NAIVE_N_TENSORS; t++) {
            assert_int_equal(naive_tensor_offset(c, (enum naive_tensor)t, 0), next);
            next += naive_tensor_size(c, (enum naive_tensor)t);
        }
        assert_int_equal(naive_n_params(c), next);
    }
}

/* With a zero head every token is equally likely: the loss is log(vocab). */
TEST(test_loss_of_zero_head)
{
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        const struct naive_config *c = &configs[i];
        int64_t n = naive_n_params(c);
        double *params = naive_zeros(n), *grad = naive_zeros(n);
        int32_t tokens[64], targets[64];
        uint64_t seed = 3;
        int64_t first = c->ties_embeddings ? naive_tensor_size(c, NAIVE_WTE) : 0;
        for (int64_t j = first; j < n - naive_tensor_size(c, NAIVE_HEAD_W); j++)
            params[j] = next_uniform(&seed);
        fill_batch(c, tokens, targets);
        double loss = naive_loss_and_gradient(c, params, grad, tokens, targets, BATCH);
        assert_true(fabs(loss - log(c->vocab)) < 1e-12);
        free(params);
        free(grad);
    }
}

/* First step from zero moments: |update| is lr g / (|g| + eps) + decay, by hand. */
TEST(test_adamw)
{
    double p[2] = {1.0, -2.0}, m[2] = {0}, v[2] = {0}, g[2] = {0.5, -0.25};
    naive_adamw(p, m, v, g, 2, 1, 0.1, 0.9, 0.99, 1e-8, 0.01);
    assert_true(fabs(p[0] - (1.0 - 0.1 * (0.5 / (0.5 + 1e-8) + 0.01))) < 1e-14);
    assert_true(fabs(p[1] - (-2.0 - 0.1 * (-0.25 / (0.25 + 1e-8) - 0.02))) < 1e-14);
    assert_true(fabs(m[0] - 0.05) < 1e-15 && fabs(v[1] - 0.01 * 0.0625) < 1e-15);
    naive_adamw(p, m, v, g, 2, 2, 0.1, 0.9, 0.99, 1e-8,
                0.0); /* constant g: same step again */
    assert_true(fabs(p[0] - (1.0 - 0.1 * 1.01 - 0.1)) < 1e-7);
}

/* A few full steps on one batch must learn it: the loss falls well below its start. */
TEST(test_training_learns)
{
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        const struct naive_config *c = &configs[i];
        int64_t n = naive_n_params(c);
        double *params = naive_zeros(n), *grad = naive_zeros(n);
        double *m = naive_zeros(n), *v = naive_zeros(n), first = 0.0, last = 0.0;
        int32_t tokens[64], targets[64];
        uint64_t seed = 11;
        for (int64_t j = 0; j < n; j++)
            params[j] = next_uniform(&seed);
        fill_batch(c, tokens, targets);
        for (int t = 1; t <= 30; t++) {
            last = naive_loss_and_gradient(c, params, grad, tokens, targets, BATCH);
            first = t == 1 ? last : first;
            naive_adamw(params, m, v, grad, n, t, 2e-2, 0.9, 0.95, 1e-8, 0.0);
        }
        assert_true(last < 0.5 * first);
        free(params);
        free(grad);
        free(m);
        free(v);
    }
}

/* ---------------------------------------------------------------------------- PyTorch */

static struct naive_config naive_of(const struct reference *reference)
{
    const struct mist_model *model = &reference->model;
    const enum naive_family families[MIST_N_FAMILIES] = {
        [MIST_FAMILY_GPT] = NAIVE_GPT,
        [MIST_FAMILY_LLAMA] = NAIVE_LLAMA,
        [MIST_FAMILY_FALCON] = NAIVE_FALCON,
    };

    return (struct naive_config){
        .family = families[model->family],
        .layers = model->n_layers,
        .hidden = model->hidden,
        .heads = model->n_heads,
        .kv_heads = model->n_kv_heads,
        .ffn = model->ffn,
        .vocab = model->vocab,
        .seq_len = reference->seq,
        .has_bias = model->has_bias,
        .ties_embeddings = model->ties_embeddings,
        .norm_eps = model->norm_epsilon,
        .rope_theta = model->rope_theta,
    };
}

/* A tensor of the model and where it lies. */
struct place {
    enum naive_tensor tensor;
    int64_t offset, size;
    char name[64]; /* the reference's */
};

/* Fills places with all tensors of a model; returns how many. */
static size_t list_tensors(const struct naive_config *config, struct place *places)
{
    static const char *const names[NAIVE_N_TENSORS] = {
        [NAIVE_WTE] = "wte",
        [NAIVE_WPE] = "wpe",
        [NAIVE_NORM1_W] = "norm1.weight",
        [NAIVE_NORM1_B] = "norm1.bias",
        [NAIVE_QKV_W] = "qkv.weight",
        [NAIVE_QKV_B] = "qkv.bias",
        [NAIVE_PROJ_W] = "proj.weight",
        [NAIVE_PROJ_B] = "proj.bias",
        [NAIVE_NORM2_W] = "norm2.weight",
        [NAIVE_NORM2_B] = "norm2.bias",
        [NAIVE_FC1_W] = "up.weight",
        [NAIVE_FC1_B] = "up.bias",
        [NAIVE_FC2_W] = "down.weight",
        [NAIVE_FC2_B] = "down.bias",
        [NAIVE_FINAL_W] = "norm.weight",
        [NAIVE_FINAL_B] = "norm.bias",
        [NAIVE_HEAD_W] = "head.weight",
    };
    size_t n = 0;

    for (int i = 0; i < (int)NAIVE_N_TENSORS; i++) {
        enum naive_tensor tensor = (enum naive_tensor)i;
        int64_t size = naive_tensor_size(config, tensor);
        bool is_of_layer = naive_is_of_layer(tensor);
        for (int l = 0; size > 0 && l < (is_of_layer ? config->layers : 1); l++) {
            struct place *place = &places[n++];
            assert_true(n <= MAX_PLACES);
            place->tensor = tensor;
            place->offset = naive_tensor_offset(config, tensor, l);
            place->size = size;
            if (is_of_layer)
                snprintf(place->name, sizeof place->name, "layers.%d.%s", l, names[i]);
            else
                snprintf(place->name, sizeof place->name, "%s", names[i]);
        }
    }
    return n;
}

/* The naive model at the reference's weights. */
struct setting {
    struct reference reference;
    struct naive_config config;
    struct place places[MAX_PLACES];
    size_t n_places;
    int64_t n;
    double *params, *grad;
    int32_t *tokens, *targets;
};

static void open_setting(const char *name, struct setting *out)
{
    reference_load(name, &out->reference);
    out->config = naive_of(&out->reference);
    out->n_places = list_tensors(&out->config, out->places);
    out->n = naive_n_params(&out->config);
    out->params = naive_zeros(out->n);
    out->grad = naive_zeros(out->n);
    size_t n_tokens = (size_t)(out->reference.batch * out->reference.seq);
    out->tokens = calloc(n_tokens, sizeof *out->tokens);
    out->targets = calloc(n_tokens, sizeof *out->targets);
    assert_true(out->tokens != NULL && out->targets != NULL);
    reference_batch(&out->reference, out->tokens, out->targets);
    for (size_t i = 0; i < out->n_places; i++)
        reference_weights(out->places[i].name, out->places[i].size,
                          out->params + out->places[i].offset);
}

static void close_setting(struct setting *setting)
{
    reference_free(&setting->reference);
    free(setting->params);
    free(setting->grad);
    free(setting->tokens);
    free(setting->targets);
}

static double take_gradient(struct setting *at)
{
    return naive_loss_and_gradient(&at->config, at->params, at->grad, at->tokens,
                                   at->targets, at->reference.batch);
}

/* Positions beyond the sequence, which only the reference has, get no gradient. */
static double gradient_error(const struct setting *at, const struct place *place)
{
    const struct reference_gradient *expected =
        reference_find(&at->reference, place->name);

    if (expected == NULL)
        fail_msg("no reference for %s", place->name);
    double *whole = naive_zeros(expected->n);
    assert_true(place->tensor == NAIVE_WPE ? place->size <= expected->n
                                           : place->size == expected->n);
    memcpy(whole, at->grad + place->offset, (size_t)place->size * sizeof *whole);
    double error = reference_error(expected, whole);
    free(whole);
    return error;
}

TEST(test_gradients_of_pytorch)
{
    for (int i = 0; i < N_REFERENCES; i++) {
        struct setting at;
        double worst = 0.0;
        open_setting(reference_names[i], &at);
        double loss = take_gradient(&at);
        if (!(fabs(loss / at.reference.loss - 1.0) <= 1e-12))
            fail_msg("%s: loss %.17g, expected %.17g", reference_names[i], loss,
                     at.reference.loss);
        assert_int_equal(at.n_places, at.reference.n_gradients);
        for (size_t k = 0; k < at.n_places; k++) {
            double error = gradient_error(&at, &at.places[k]);
            if (!(error <= 1e-10))
                fail_msg("%s: gradient of %s is off by %g", reference_names[i],
                         at.places[k].name, error);
            worst = fmax(worst, error);
        }
        print_message("# %s: %zu gradients, worst error %.1e\n", reference_names[i],
                      at.n_places, worst);
        close_setting(&at);
    }
}

static void step(struct setting *at, double *m, double *v, int t)
{
    for (size_t i = 0; i < at->n_places; i++) {
        const struct place *place = &at->places[i];
        naive_adamw(at->params + place->offset, m + place->offset, v + place->offset,
                    at->grad + place->offset, place->size, t, REFERENCE_LR,
                    REFERENCE_BETA1, REFERENCE_BETA2, REFERENCE_EPSILON,
                    naive_decays(place->tensor) ? REFERENCE_WEIGHT_DECAY : 0.0);
    }
}

TEST(test_steps_of_pytorch)
{
    for (int i = 0; i < N_REFERENCES; i++) {
        struct setting at;
        open_setting(reference_names[i], &at);
        double *m = naive_zeros(at.n), *v = naive_zeros(at.n);
        for (int t = 0; t <= REFERENCE_STEPS; t++) {
            double loss = take_gradient(&at), expected = at.reference.losses[t];
            if (!(fabs(loss / expected - 1.0) <= 1e-10))
                fail_msg("%s: loss %.17g after %d steps, expected %.17g",
                         reference_names[i], loss, t, expected);
            step(&at, m, v, t + 1);
        }
        free(m);
        free(v);
        close_setting(&at);
    }
}

TEST_MAIN(NULL, NULL)
