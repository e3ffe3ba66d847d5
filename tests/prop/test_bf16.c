/*
 * The catalogue's programs in bf16 against the same in fp32, on one rank
 * (catalogue_runner.h): loss and gradients of one step, AdamW's master weights, and the
 * losses of a short training.
 *
 * Both runs begin with the same fp32 weights, which bf16 rounds. Its gradients are
 * compared as vectors, by the angle and the length: tensor by tensor, those of queries,
 * keys and values apart. One thread, but where two must give the same bits: threads that
 * wait for each other take many times as long on a busy machine. Skipped where the
 * processor cannot multiply bf16. Kernels by themselves are
 * tests/unit/test_cpu_bf16*.c's.
 */
#include "tests/prop/catalogue_runner.h"

enum { BATCH = 2, SEQ = 96, N_STEPS = 5, N_TRAINING_STEPS = 20 };

#define LOSS_TOLERANCE     2e-3 /* relative, first step */
#define TRAINING_TOLERANCE 2e-2 /* relative, every step of a training */
#define LEAST_COSINE       0.999
#define LENGTH_TOLERANCE   2e-2 /* relative */
/* Against the whole tensor: what counts as no gradient at all, in fp32 and in bf16. */
#define VANISHING_FP32 1e-5
#define VANISHING_BF16 2e-3
/* AdamW in fp32 against the formula in fp64, after N_STEPS, in learning rates. */
#define MASTER_TOLERANCE 1e-3

#define MODEL(name_, family_, hidden_, heads, kv_heads, ffn_, positions, bias, ties,     \
              eps, theta)                                                                \
    {                                                                                    \
        .name = name_, .family = MIST_FAMILY_##family_, .n_layers = 3,                   \
        .hidden = (hidden_), .n_heads = (heads), .n_kv_heads = (kv_heads),               \
        .head_dim = (hidden_) / (heads), .ffn = (ffn_), .vocab = 257,                    \
        .max_seq = (positions), .has_bias = (bias), .ties_embeddings = (ties),           \
        .norm_epsilon = (eps), .rope_theta = (theta)                                     \
    }

static const struct mist_model models[] = {
    MODEL("gpt", GPT, 48, 4, 4, 190, 100, true, false, 1e-5, 0),
    MODEL("gpt tied", GPT, 64, 4, 4, 256, 96, true, true, 1e-5, 0),
    MODEL("gpt plain", GPT, 48, 3, 3, 192, 96, false, true, 1e-5, 0),
    MODEL("llama", LLAMA, 48, 4, 2, 113, 0, false, false, 1e-6, 1e4),
    MODEL("llama wide", LLAMA, 64, 8, 2, 172, 0, false, true, 1e-5, 1e4),
    MODEL("falcon", FALCON, 48, 4, 1, 191, 0, false, false, 1e-5, 1e4),
    MODEL("falcon wide", FALCON, 64, 4, 1, 256, 0, true, true, 1e-5, 1e4),
    MODEL("falcon grouped", FALCON, 48, 6, 2, 130, 0, false, true, 1e-5, 1e4),
};
enum { N_MODELS = sizeof models / sizeof *models };

/* The same model, batch and first weights in both formats. */
struct pair {
    struct reference of;
    struct catalogue_run fp32, bf16;
};

/* Consecutive elements of a parameter's gradient. */
struct slice {
    char name[80];
    const float *fp32, *bf16;
    int64_t n;
};

struct comparison {
    double least_cosine, worst_length; /* length: relative error */
    char least_name[80];
    double vanishing; /* largest in bf16 of those that are nothing in fp32 */
    int n_compared, n_vanishing;
};

static void open_pair(const struct mist_model *model,
                      enum catalogue_variant_index i_variant, struct pair *out)
{
    const struct catalogue_variant *variant = &catalogue_variants[i_variant];

    out->of = (struct reference){.model = *model, .batch = BATCH, .seq = SEQ};
    catalogue_open(&out->of, variant, MIST_DTYPE_FP32, 1, &out->fp32);
    catalogue_open(&out->of, variant, MIST_DTYPE_BF16, 1, &out->bf16);
}

static void close_pair(struct pair *pair)
{
    catalogue_close(&pair->fp32);
    catalogue_close(&pair->bf16);
}

static void check_loss(const struct pair *pair, int t, double bf16, double fp32,
                       double tolerance)
{
    if (!(fabs(bf16 / fp32 - 1.0) <= tolerance))
        fail_msg("%s: loss after %d steps %.6g, in fp32 %.6g", pair->of.model.name, t,
                 bf16, fp32);
}

static double length(const float *x, int64_t n)
{
    double squares = 0;

    for (int64_t i = 0; i < n; i++)
        squares += (double)x[i] * (double)x[i];
    return sqrt(squares);
}

static double dot(const float *x, const float *y, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

/* A slice of a tensor whose gradient is whole_length long in fp32. */
static void compare_slice(const struct pair *pair, const struct slice *slice,
                          double whole_length, struct comparison *out)
{
    double fp32 = length(slice->fp32, slice->n), bf16 = length(slice->bf16, slice->n);
    double cosine = dot(slice->fp32, slice->bf16, slice->n) / (fp32 * bf16);

    if (fp32 <= VANISHING_FP32 * whole_length) {
        if (!(bf16 <= VANISHING_BF16 * whole_length))
            fail_msg("%s: gradient of %s has length %g, its tensor's %g",
                     pair->of.model.name, slice->name, bf16, whole_length);
        out->vanishing = fmax(out->vanishing, bf16 / whole_length);
        out->n_vanishing++;
        return;
    }
    if (!(cosine >= LEAST_COSINE && fabs(bf16 / fp32 - 1) <= LENGTH_TOLERANCE))
        fail_msg("%s: gradient of %s: cosine %.6f, length %g, in fp32 %g",
                 pair->of.model.name, slice->name, cosine, bf16, fp32);
    out->worst_length = fmax(out->worst_length, fabs(bf16 / fp32 - 1));
    if (out->n_compared++ == 0 || cosine < out->least_cosine) {
        out->least_cosine = cosine;
        memcpy(out->least_name, slice->name, sizeof out->least_name);
    }
}

/* Offsets differ between the formats: parameters begin at whole cache lines. */
static const float *gradient_of(const struct catalogue_run *run, int i_module,
                                int i_param)
{
    const struct catalogue_module *module = &run->modules[i_module];

    return module->gradients + module->layout->params[i_param].offset;
}

/* One parameter; that of queries, keys and values in three. */
static void compare_parameter(const struct pair *pair, int i_module, int i_param,
                              struct comparison *out)
{
    char name[64];
    const struct mist_model *model = &pair->of.model;
    const struct mist_layer_layout *layout = pair->fp32.modules[i_module].layout;
    int64_t n = layout->params[i_param].n_elements;
    const float *fp32 = gradient_of(&pair->fp32, i_module, i_param);
    const float *bf16 = gradient_of(&pair->bf16, i_module, i_param);
    double whole_length = length(fp32, n);
    bool is_qkv = strncmp(layout->params[i_param].name, "qkv.", 4) == 0;
    int64_t n_heads = model->n_heads + 2 * model->n_kv_heads;
    int64_t n_kv = n / n_heads * model->n_kv_heads;
    const int64_t pieces[] = {is_qkv ? n - 2 * n_kv : n, n_kv, n_kv};
    static const char *const piece_names[] = {", queries", ", keys", ", values"};

    catalogue_name(&pair->fp32, i_module, i_param, name);
    for (int i = 0; i < (is_qkv ? 3 : 1); i++) {
        struct slice slice = {.fp32 = fp32, .bf16 = bf16, .n = pieces[i]};
        snprintf(slice.name, sizeof slice.name, "%s%s", name,
                 is_qkv ? piece_names[i] : "");
        compare_slice(pair, &slice, whole_length, out);
        fp32 += pieces[i];
        bf16 += pieces[i];
    }
}

static void compare_gradients(const struct pair *pair, struct comparison *out)
{
    char name[64];

    *out = (struct comparison){0};
    for (int i = 0; i < pair->fp32.n_modules; i++)
        for (int k = 0; k < pair->fp32.modules[i].layout->n_params; k++)
            if (i == 0 || strcmp(catalogue_name(&pair->fp32, i, k, name), "wte") != 0)
                compare_parameter(pair, i, k, out);
}

/* ------------------------------------------------------------------------------ AdamW */

/* One module's weights and moments in fp64, moved by the gradients of the bf16 run. */
struct shadow {
    double *p, *m, *v;
};

static void open_shadow(const struct catalogue_module *module, struct shadow *out)
{
    int64_t n = module->layout->n_parameters;

    out->p = calloc((size_t)(3 * n), sizeof *out->p);
    assert_non_null(out->p);
    out->m = out->p + n;
    out->v = out->m + n;
    for (int64_t i = 0; i < n; i++)
        out->p[i] = (double)module->state[2 * n + i];
}

/* Loshchilov and Hutter 2019, algorithm 2. */
static void move_shadow(const struct catalogue_module *module, int t,
                        struct shadow *shadow)
{
    const struct mist_layer_layout *layout = module->layout;
    double correction1 = 1 - pow(REFERENCE_BETA1, t);
    double correction2 = 1 - pow(REFERENCE_BETA2, t);

    for (int k = 0; k < layout->n_params; k++) {
        double decay = layout->params[k].decays ? REFERENCE_WEIGHT_DECAY : 0;
        int64_t first = layout->params[k].offset;
        for (int64_t i = first; i < first + layout->params[k].n_elements; i++) {
            double g = (double)module->gradients[i];
            double *p = &shadow->p[i], *m = &shadow->m[i], *v = &shadow->v[i];
            *m = REFERENCE_BETA1 * *m + (1 - REFERENCE_BETA1) * g;
            *v = REFERENCE_BETA2 * *v + (1 - REFERENCE_BETA2) * g * g;
            double step = *m / correction1 / (sqrt(*v / correction2) + REFERENCE_EPSILON);
            *p -= REFERENCE_LR * (step + decay * *p);
        }
    }
}

/* Whether weight is the bf16 nearest to x; of two, the even one. */
static bool is_rounded(mist_bf16 weight, float x)
{
    uint32_t bits, bits_below, bits_above;
    float below, above;

    memcpy(&bits, &x, sizeof bits);
    bits_below = bits & 0xffff0000u;
    bits_above = bits_below + 0x10000u;
    memcpy(&below, &bits_below, sizeof below);
    memcpy(&above, &bits_above, sizeof above);
    double to_below = fabs((double)x - (double)below);
    double to_above = fabs((double)above - (double)x);
    bool takes_below =
        to_below < to_above || (!(to_below > to_above) && (bits_below >> 16) % 2 == 0);
    return weight == (takes_below ? bits_below : bits_above) >> 16;
}

static void check_master(const struct catalogue_run *run,
                         const struct catalogue_module *module,
                         const struct shadow *shadow)
{
    int64_t n = module->layout->n_parameters, n_between = 0;
    const float *master = module->state + 2 * n;
    const mist_bf16 *weights = module->weights;

    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        double error = fabs((double)master[i] - shadow->p[i]);
        memcpy(&bits, &master[i], sizeof bits);
        n_between += (bits & 0xffff) != 0;
        if (!(error <= MASTER_TOLERANCE * REFERENCE_LR))
            fail_msg("%s: master weight %d is %.9g, expected %.9g", run->model->name,
                     (int)i, (double)master[i], shadow->p[i]);
        if (!is_rounded(weights[i], master[i]))
            fail_msg("%s: weight %d is %#x, its master %.9g", run->model->name, (int)i,
                     weights[i], (double)master[i]);
    }
    assert_true(n_between > n / 2); /* masters that bf16 cannot hold */
}

/* ------------------------------------------------------------------------------ tests */

/* Keys' biases alone have no gradient: they move all scores of a query alike. */
static void check_gradients(enum catalogue_variant_index i_variant,
                            enum mist_dtype gradient_dtype)
{
    static struct pair pair;

    for (int i = 0; i < N_MODELS; i++) {
        struct comparison result;
        bool has_key_bias = models[i].has_bias && models[i].family == MIST_FAMILY_GPT;
        open_pair(&models[i], i_variant, &pair);
        pair.bf16.gradient_dtype = gradient_dtype;
        double fp32 = catalogue_take_gradient(&pair.fp32);
        double bf16 = catalogue_take_gradient(&pair.bf16);
        check_loss(&pair, 0, bf16, fp32, LOSS_TOLERANCE);
        compare_gradients(&pair, &result);
        print_message("# %s: loss off by %.1e; least cosine of %d gradients %.6f (%s), "
                      "lengths off by %.1e; %d vanish (%.1e)\n",
                      models[i].name, fabs(bf16 / fp32 - 1), result.n_compared,
                      result.least_cosine, result.least_name, result.worst_length,
                      result.n_vanishing, result.vanishing);
        assert_int_equal(result.n_vanishing, has_key_bias ? models[i].n_layers : 0);
        close_pair(&pair);
    }
}

TEST(test_gradients)
{
    check_gradients(CATALOGUE_WHOLE, MIST_DTYPE_FP32);
}

/* Rounded after every micro-batch. */
TEST(test_rounded_gradients)
{
    check_gradients(CATALOGUE_WHOLE, MIST_DTYPE_BF16);
    check_gradients(CATALOGUE_MICRO_BATCHES, MIST_DTYPE_BF16);
}

static void check_same_bits(const struct mist_model *model,
                            enum catalogue_variant_index i_variant,
                            enum catalogue_variant_index i_other, int32_t n_threads)
{
    static struct catalogue_run a, b;
    struct reference of = {.model = *model, .batch = BATCH, .seq = SEQ};

    catalogue_open(&of, &catalogue_variants[i_variant], MIST_DTYPE_BF16, 1, &a);
    catalogue_open(&of, &catalogue_variants[i_other], MIST_DTYPE_BF16, n_threads, &b);
    double losses[2] = {catalogue_take_gradient(&a), catalogue_take_gradient(&b)};
    assert_memory_equal(&losses[0], &losses[1], sizeof losses[0]);
    for (int i = 0; i < a.n_modules; i++)
        assert_memory_equal(a.modules[i].gradients, b.modules[i].gradients,
                            (size_t)a.modules[i].layout->n_parameters * sizeof(float));
    catalogue_close(&a);
    catalogue_close(&b);
}

/* Recomputed activations and a split backward change no bit; nor does a second thread. */
TEST(test_variants)
{
    for (int i = 0; i < N_MODELS; i++) {
        check_same_bits(&models[i], CATALOGUE_WHOLE, CATALOGUE_RECOMPUTED, 1);
        check_same_bits(&models[i], CATALOGUE_MICRO_BATCHES, CATALOGUE_SPLIT, 1);
    }
    check_same_bits(&models[0], CATALOGUE_WHOLE, CATALOGUE_WHOLE, 2);
    check_same_bits(&models[N_MODELS - 1], CATALOGUE_WHOLE, CATALOGUE_WHOLE, 2);
}

/* fp32 masters follow AdamW, weights are their rounded copies. */
TEST(test_masters)
{
    static struct catalogue_run run;
    struct shadow shadows[CATALOGUE_MAX_MODULES];

    for (int i = 0; i < N_MODELS; i++) {
        struct reference of = {.model = models[i], .batch = BATCH, .seq = SEQ};
        catalogue_open(&of, &catalogue_variants[CATALOGUE_WHOLE], MIST_DTYPE_BF16, 1,
                       &run);
        for (int m = 0; m < run.n_modules; m++)
            open_shadow(&run.modules[m], &shadows[m]);
        for (int t = 1; t <= N_STEPS; t++) {
            catalogue_take_gradient(&run);
            for (int m = 0; m < run.n_modules; m++)
                move_shadow(&run.modules[m], t, &shadows[m]);
            catalogue_update(&run, t);
        }
        for (int m = 0; m < run.n_modules; m++) {
            if (m + 1 < run.n_modules || !models[i].ties_embeddings)
                check_master(&run, &run.modules[m], &shadows[m]);
            free(shadows[m].p);
        }
        catalogue_close(&run);
    }
}

TEST(test_training)
{
    static struct pair pair;

    for (int i = 0; i < N_MODELS; i++) {
        double worst = 0, first = 0, fp32 = 0;
        open_pair(&models[i], CATALOGUE_WHOLE, &pair);
        for (int t = 0; t < N_TRAINING_STEPS; t++) {
            fp32 = catalogue_take_gradient(&pair.fp32);
            double bf16 = catalogue_take_gradient(&pair.bf16);
            first = t == 0 ? fp32 : first;
            check_loss(&pair, t, bf16, fp32, TRAINING_TOLERANCE);
            worst = fmax(worst, fabs(bf16 / fp32 - 1));
            catalogue_update(&pair.fp32, t + 1);
            catalogue_update(&pair.bf16, t + 1);
        }
        print_message("# %s: loss from %.2f to %.2f, off by %.1e at worst\n",
                      models[i].name, first, fp32, worst);
        assert_true(fp32 < 0.75 * first); /* it did learn */
        close_pair(&pair);
    }
}

TEST_MAIN(NULL, NULL)
