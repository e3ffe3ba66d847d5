/*
 * Reads the references of tests/data/reference and repeats their formulas.
 *
 * make_reference.py there computed loss, gradients and AdamW steps of tiny models with
 * PyTorch, and says what the files hold. Weights and tokens are integer hashes of a name
 * and an index, computed here once more. Any failure ends the test.
 */
#ifndef MIST_TESTS_UNIT_REFERENCE_H
#define MIST_TESTS_UNIT_REFERENCE_H

#include "core/json.h"
#include "sim/model/model.h"

#include "tests/unit/test.h"

#include <math.h>

enum { REFERENCE_STEPS = 5, REFERENCE_PROJECTIONS = 16, REFERENCE_MAX_SAMPLES = 96 };

/* AdamW of the reference; weight decay on matrices and embeddings only. */
#define REFERENCE_LR           1e-3
#define REFERENCE_BETA1        0.9
#define REFERENCE_BETA2        0.95
#define REFERENCE_EPSILON      1e-8
#define REFERENCE_WEIGHT_DECAY 0.1

static const char *const reference_names[] = {"gpt", "llama", "falcon", "falcon_grouped"};
enum { N_REFERENCES = sizeof reference_names / sizeof *reference_names };

/* Of one parameter. */
struct reference_gradient {
    const char *name; /* "wte", "layers.2.qkv.weight"; borrowed from the document */
    int64_t n;        /* elements */
    double norm;      /* L2 */
    double projections[REFERENCE_PROJECTIONS];
    size_t n_samples;
    int64_t at[REFERENCE_MAX_SAMPLES];
    double values[REFERENCE_MAX_SAMPLES];
};

struct reference {
    struct mist_json_doc doc; /* owned */
    struct mist_model model;
    int32_t batch, seq;
    double loss;
    double losses[REFERENCE_STEPS + 1]; /* before each step and after the last */
    size_t n_gradients;
    struct reference_gradient *gradients; /* owned */
};

/* --------------------------------------------------------------------------- formulas */

static inline uint32_t reference_seed(const char *name)
{
    uint32_t seed = 2166136261u;
    for (; *name; name++)
        seed = (seed ^ (unsigned char)*name) * 16777619u;
    return seed;
}

static inline uint32_t reference_hash(uint32_t seed, int64_t k)
{
    uint32_t x = seed + (uint32_t)k * 0x9e3779b9u;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

/* values[n] = first n weights of a parameter; exact in fp32. */
static inline void reference_weights(const char *name, int64_t n, double *values)
{
    uint32_t seed = reference_seed(name);
    int is_embedding = strcmp(name, "wte") == 0 || strcmp(name, "wpe") == 0;
    int is_norm_weight = strstr(name, "norm") != NULL && strstr(name, ".weight") != NULL;

    for (int64_t k = 0; k < n; k++) {
        double unit = (reference_hash(seed, k) >> 12) * 0x1p-20 - 0.5;
        values[k] = is_embedding ? unit : unit / 4 + is_norm_weight;
    }
}

/* tokens, targets [batch, seq] */
static inline void reference_batch(const struct reference *reference, int32_t *tokens,
                                   int32_t *targets)
{
    uint32_t seed = reference_seed("tokens");

    for (int b = 0; b < reference->batch; b++)
        for (int i = 0; i <= reference->seq; i++) {
            uint32_t h = reference_hash(seed, b * (reference->seq + 1) + i);
            uint64_t product = (uint64_t)(h >> 16) * (h & 0xffffu);
            int32_t id = (int32_t)((product * (uint64_t)reference->model.vocab) >> 32);
            if (i < reference->seq)
                tokens[b * reference->seq + i] = id;
            if (i > 0)
                targets[b * reference->seq + i - 1] = id;
        }
}

/* ---------------------------------------------------------------------------- reading */

static inline void reference_must(enum mist_status status, const struct mist_err *err)
{
    if (status != MIST_OK)
        fail_msg("%s:%ld: %s", err->path, err->line, err->message);
}

static inline int64_t reference_int(const struct mist_json *object, const char *key)
{
    struct mist_err err = {0};
    int64_t value = 0;
    reference_must(
        mist_json_get_int64(object, key, MIST_JSON_REQUIRED, 0, INT32_MAX, &value, &err),
        &err);
    return value;
}

static inline double reference_double(const struct mist_json *object, const char *key)
{
    struct mist_err err = {0};
    double value = 0;
    reference_must(mist_json_get_double(object, key, MIST_JSON_REQUIRED, -INFINITY,
                                        INFINITY, &value, &err),
                   &err);
    return value;
}

static inline bool reference_bool(const struct mist_json *object, const char *key)
{
    struct mist_err err = {0};
    bool value = false;
    reference_must(mist_json_get_bool(object, key, MIST_JSON_REQUIRED, &value, &err),
                   &err);
    return value;
}

static inline const char *reference_string(const struct mist_json *object,
                                           const char *key)
{
    struct mist_err err = {0};
    const char *value = NULL;
    reference_must(mist_json_get_string(object, key, MIST_JSON_REQUIRED, &value, &err),
                   &err);
    return value;
}

/* Elements of an array, at most max; returns how many. */
static inline size_t reference_doubles(const struct mist_json *object, const char *key,
                                       size_t max, double *out)
{
    struct mist_err err = {0};
    struct mist_json array;
    reference_must(mist_json_get_array(object, key, MIST_JSON_REQUIRED, &array, &err),
                   &err);
    size_t n = mist_json_size(&array);
    assert_true(n <= max);
    for (size_t i = 0; i < n; i++) {
        struct mist_json element = mist_json_element(&array, i);
        reference_must(mist_json_as_double(&element, -INFINITY, INFINITY, &out[i], &err),
                       &err);
    }
    return n;
}

static inline void reference_read_model(const struct mist_json *config,
                                        struct reference *out)
{
    struct mist_model *model = &out->model;

    snprintf(model->name, sizeof model->name, "%s", reference_string(config, "name"));
    while (strcmp(reference_string(config, "family"), mist_family_words[model->family]) !=
           0)
        assert_int_not_equal(++model->family, MIST_N_FAMILIES);
    model->n_layers = (int32_t)reference_int(config, "n_layers");
    model->hidden = (int32_t)reference_int(config, "hidden");
    model->n_heads = (int32_t)reference_int(config, "n_heads");
    model->n_kv_heads = (int32_t)reference_int(config, "n_kv_heads");
    model->head_dim = model->hidden / model->n_heads;
    model->ffn = (int32_t)reference_int(config, "ffn");
    model->vocab = (int32_t)reference_int(config, "vocab");
    model->max_seq = (int32_t)reference_int(config, "max_seq");
    model->has_bias = reference_bool(config, "has_bias");
    model->ties_embeddings = reference_bool(config, "ties_embeddings");
    model->norm_epsilon = reference_double(config, "norm_epsilon");
    model->rope_theta = reference_double(config, "rope_theta");
    out->batch = (int32_t)reference_int(config, "batch");
    out->seq = (int32_t)reference_int(config, "seq");
}

static inline void reference_read_gradient(const struct mist_json *object,
                                           struct reference_gradient *out)
{
    double at[REFERENCE_MAX_SAMPLES];

    out->name = reference_string(object, "name");
    out->n = reference_int(object, "n");
    out->norm = reference_double(object, "norm");
    assert_int_equal(
        reference_doubles(object, "projections", REFERENCE_PROJECTIONS, out->projections),
        REFERENCE_PROJECTIONS);
    out->n_samples =
        reference_doubles(object, "values", REFERENCE_MAX_SAMPLES, out->values);
    assert_int_equal(reference_doubles(object, "at", REFERENCE_MAX_SAMPLES, at),
                     out->n_samples);
    assert_true(out->norm > 0 && out->n_samples > 0);
    for (size_t i = 0; i < out->n_samples; i++) {
        out->at[i] = (int64_t)at[i];
        assert_true(out->at[i] >= 0 && out->at[i] < out->n);
    }
}

/* The reference of this name; from the root of the project. */
static inline void reference_load(const char *name, struct reference *out)
{
    char path[128];
    struct mist_err err = {0};
    struct mist_json config, gradients;

    *out = (struct reference){0};
    snprintf(path, sizeof path, "tests/data/reference/%s.json", name);
    reference_must(mist_json_load(&out->doc, path, MIST_JSON_OWN, &err), &err);
    struct mist_json root = mist_json_root(&out->doc);
    reference_must(
        mist_json_get_object(&root, "config", MIST_JSON_REQUIRED, &config, &err), &err);
    reference_read_model(&config, out);
    out->loss = reference_double(&root, "loss");
    assert_int_equal(reference_doubles(&root, "losses", REFERENCE_STEPS + 1, out->losses),
                     REFERENCE_STEPS + 1);
    reference_must(
        mist_json_get_array(&root, "gradients", MIST_JSON_REQUIRED, &gradients, &err),
        &err);
    out->n_gradients = mist_json_size(&gradients);
    out->gradients = calloc(out->n_gradients, sizeof *out->gradients);
    assert_non_null(out->gradients);
    for (size_t i = 0; i < out->n_gradients; i++) {
        struct mist_json element = mist_json_element(&gradients, i);
        reference_read_gradient(&element, &out->gradients[i]);
    }
}

static inline void reference_free(struct reference *reference)
{
    free(reference->gradients);
    mist_json_fini(&reference->doc);
}

/* NULL: the model has no such parameter. */
static inline const struct reference_gradient *
reference_find(const struct reference *reference, const char *name)
{
    for (size_t i = 0; i < reference->n_gradients; i++)
        if (strcmp(reference->gradients[i].name, name) == 0)
            return &reference->gradients[i];
    return NULL;
}

/* -------------------------------------------------------------------------- comparing */

/*
 * How far a gradient [n] is from the reference's, relative to its L2 norm: the largest of
 * the error of the norm, of a sampled element, and of the whole as the projections
 * estimate it. NaN and infinity come out as infinity.
 */
static inline double reference_error(const struct reference_gradient *reference,
                                     const double *gradient)
{
    uint32_t seed = reference_seed("signs");
    double squares = 0, error2 = 0, projections[REFERENCE_PROJECTIONS] = {0};

    for (int64_t k = 0; k < reference->n; k++) {
        uint32_t bits = reference_hash(seed, k);
        squares += gradient[k] * gradient[k];
        for (int j = 0; j < REFERENCE_PROJECTIONS; j++)
            projections[j] += (bits >> (31 - j)) & 1 ? -gradient[k] : gradient[k];
    }
    if (!isfinite(squares))
        return INFINITY;
    double worst = fabs(sqrt(squares) - reference->norm);
    for (int j = 0; j < REFERENCE_PROJECTIONS; j++)
        error2 += pow(projections[j] - reference->projections[j], 2);
    worst = fmax(worst, sqrt(error2 / REFERENCE_PROJECTIONS));
    for (size_t i = 0; i < reference->n_samples; i++)
        worst = fmax(worst, fabs(gradient[reference->at[i]] - reference->values[i]));
    return worst / reference->norm;
}

#endif
