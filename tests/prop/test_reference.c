/*
 * The catalogue's programs, run by the executor's kernels over plain buffers on one rank,
 * against loss, gradients and AdamW steps from PyTorch (tests/data/reference).
 *
 * No schedule and no device: embedding, blocks and head one after the other, each with
 * buffers of its own, which are filled with NaN wherever a program must write before it
 * reads. Every model is run whole, in micro-batches, with recomputed activations, and
 * with the weight gradients as a program of their own.
 */
#include "exec/bind.h"
#include "exec/operators.h"
#include "sim/catalog.h"
#include "tests/unit/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MODULES = 8, N_THREADS = 2, ALIGNMENT = 64 };

/* float32 with another order of sums; PyTorch's own float32 run is off by 1e-7 and 1e-6.
 */
#define LOSS_TOLERANCE     1e-6
#define GRADIENT_TOLERANCE 1e-5

struct variant {
    const char *name;
    bool uses_micro_batches; /* one sample each */
    bool recomputes;
    bool splits_backward;
};

static const struct variant variants[] = {
    {"whole", false, false, false},
    {"micro-batches", true, false, false},
    {"recomputed", false, true, false},
    {"split backward", true, true, true},
};

struct module {
    const struct mist_layer_layout *layout; /* of its kind */
    float *weights, *gradients, *state;     /* flat, as the layout has them */
    char *saved;
};

struct bench {
    struct reference reference;
    const struct variant *variant;
    struct mist_catalog *catalog;
    struct mist_layer_layout layouts[MIST_N_LAYER_KINDS];
    int n_modules, n_micro_batches;
    struct module modules[MAX_MODULES];   /* embedding, blocks, head */
    char *boundary[MAX_MODULES];          /* activation behind each module */
    char *boundary_gradient[MAX_MODULES]; /* its gradient */
    char *scratch, *constant;
    int64_t scratch_bytes;
    int32_t *tokens, *targets;
};

/* ------------------------------------------------------------------------------ set-up
 */

static void *allocate(int64_t size_bytes)
{
    size_t size = (size_t)(size_bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    void *at = aligned_alloc(ALIGNMENT, size);

    assert_non_null(at);
    memset(at, 0, size);
    return at;
}

/* NaN as fp32, whatever is read from it */
static void poison(void *at, int64_t size_bytes)
{
    memset(at, 0xff, (size_t)size_bytes);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The reference's name of a parameter of module i_module; the head's tied one is "wte".
 */
static const char *reference_name(const struct bench *bench, int i_module, int i_param,
                                  char out[64])
{
    const struct mist_layer_layout *layout = bench->modules[i_module].layout;

    if (layout->kind == MIST_LAYER_BLOCK)
        snprintf(out, 64, "layers.%d.%s", i_module - 1, layout->param_name[i_param]);
    else if (bench->reference.model.ties_embeddings && layout->param_is_tied[i_param])
        snprintf(out, 64, "wte");
    else
        snprintf(out, 64, "%s", layout->param_name[i_param]);
    return out;
}

static void fill_weights(struct bench *bench, int i_module)
{
    struct module *module = &bench->modules[i_module];
    char name[64];

    for (int i = 0; i < module->layout->n_params; i++) {
        int64_t n = module->layout->param_elements[i];
        double *values = calloc((size_t)n, sizeof *values);
        assert_non_null(values);
        reference_weights(reference_name(bench, i_module, i, name), n, values);
        for (int64_t k = 0; k < n; k++)
            module->weights[module->layout->param_offset[i] + k] = (float)values[k];
        free(values);
    }
}

static void open_modules(struct bench *bench)
{
    for (int i = 0; i < bench->n_modules; i++) {
        enum mist_layer_kind kind = i == 0                      ? MIST_LAYER_EMBEDDING
                                    : i == bench->n_modules - 1 ? MIST_LAYER_HEAD
                                                                : MIST_LAYER_BLOCK;
        struct module *module = &bench->modules[i];
        const struct mist_layer_layout *layout = &bench->layouts[kind];
        module->layout = layout;
        module->weights = allocate(4 * layout->n_parameters);
        module->gradients = allocate(4 * layout->n_parameters);
        module->state = allocate(8 * layout->n_parameters);
        module->saved = allocate(layout->saved_bytes);
        bench->boundary[i] = allocate(layout->output_bytes);
        bench->boundary_gradient[i] = allocate(layout->output_bytes);
        bench->scratch_bytes =
            larger(bench->scratch_bytes,
                   larger(layout->scratch_forward_bytes, layout->scratch_backward_bytes));
        fill_weights(bench, i);
    }
    bench->scratch = allocate(bench->scratch_bytes);
}

static void open_bench(const char *name, const struct variant *variant, struct bench *out)
{
    struct mist_err err = {0};
    const struct mist_model *model = &out->reference.model;

    *out = (struct bench){.variant = variant};
    reference_load(name, &out->reference);
    int32_t batch = out->reference.batch, seq = out->reference.seq;
    out->n_micro_batches = variant->uses_micro_batches ? batch : 1;
    out->n_modules = model->n_layers + 2;
    assert_true(out->n_modules <= MAX_MODULES);
    reference_must(mist_model_check(model, &err), &err);
    reference_must(mist_catalog_new(model, &out->catalog, &err), &err);
    struct mist_layer_shape shape = {
        .micro_batch = batch / out->n_micro_batches,
        .seq = seq,
        .tp = 1,
        .threads = N_THREADS,
        .splits_backward = variant->splits_backward,
        .dtype = MIST_DTYPE_FP32,
    };
    for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++)
        reference_must(mist_layer_layout_make(out->catalog, (enum mist_layer_kind)kind,
                                              shape, &out->layouts[kind], &err),
                       &err);
    open_modules(out);
    out->constant = allocate(out->layouts[MIST_LAYER_BLOCK].constant_bytes);
    if (model->rope_theta > 0)
        mist_operators_cpu.fill_rope((float *)(void *)out->constant, seq, model->head_dim,
                                     model->rope_theta);
    out->tokens = allocate(4 * (int64_t)batch * seq);
    out->targets = allocate(4 * (int64_t)batch * seq);
    reference_batch(&out->reference, out->tokens, out->targets);
}

static void close_bench(struct bench *bench)
{
    for (int i = 0; i < bench->n_modules; i++) {
        free(bench->modules[i].weights);
        free(bench->modules[i].gradients);
        free(bench->modules[i].state);
        free(bench->modules[i].saved);
        free(bench->boundary[i]);
        free(bench->boundary_gradient[i]);
    }
    free(bench->scratch);
    free(bench->constant);
    free(bench->tokens);
    free(bench->targets);
    mist_catalog_free(bench->catalog);
    reference_free(&bench->reference);
}

/* ----------------------------------------------------------------------------- running
 */

static void bind(const struct bench *bench, int i_module, int i_micro_batch,
                 struct mist_binding *out)
{
    const struct module *module = &bench->modules[i_module];

    *out = (struct mist_binding){
        .layout = module->layout,
        .model = &bench->reference.model,
        .micro_batch = i_micro_batch,
        .n_threads = N_THREADS,
        .loss_scale = 1.0f / (float)(bench->reference.batch * bench->reference.seq),
    };
    out->base[MIST_ROLE_SAVED] = module->saved;
    out->base[MIST_ROLE_SCRATCH] = bench->scratch;
    out->base[MIST_ROLE_WEIGHTS] = (char *)module->weights;
    out->base[MIST_ROLE_GRADIENTS] = (char *)module->gradients;
    out->base[MIST_ROLE_TOKENS] = (char *)bench->tokens;
    out->base[MIST_ROLE_TARGETS] = (char *)bench->targets;
    out->base[MIST_ROLE_CONSTANT] = bench->constant;
    if (i_module > 0) {
        out->base[MIST_ROLE_INPUT] = bench->boundary[i_module - 1];
        out->base[MIST_ROLE_GRAD_INPUT] = bench->boundary_gradient[i_module - 1];
    }
    out->base[MIST_ROLE_OUTPUT] = bench->boundary[i_module];
    out->base[MIST_ROLE_GRAD_OUTPUT] = bench->boundary_gradient[i_module];
}

static double sum_losses(const struct mist_binding *binding)
{
    double sum = NAN;

    for (int32_t i = 0; i < binding->layout->n_forward; i++) {
        struct mist_step_args args;
        if (binding->layout->forward[i].op != MIST_OP_CROSS_ENTROPY)
            continue;
        mist_binding_resolve(binding, MIST_PROGRAM_FORWARD, i, &args);
        const float *losses = args.operands[MIST_ARG_LOSS_LOSSES];
        sum = 0;
        for (int64_t k = 0; k < args.step->dims[0]; k++)
            sum += (double)losses[k];
    }
    return sum;
}

/* Sum of the losses of a micro-batch; program: FORWARD or EVALUATE. */
static double run_forward(struct bench *bench, int i_micro_batch,
                          enum mist_program_kind program)
{
    struct mist_binding binding = {0};

    for (int i = 0; i < bench->n_modules; i++) {
        const struct module *module = &bench->modules[i];
        poison(module->saved, module->layout->saved_bytes);
        poison(bench->boundary[i], module->layout->output_bytes);
        poison(bench->scratch, bench->scratch_bytes);
        bind(bench, i, i_micro_batch, &binding);
        mist_binding_run(&binding, program, &mist_operators_cpu);
    }
    return sum_losses(&binding);
}

static void run_backward(struct bench *bench, int i_micro_batch)
{
    struct mist_binding binding;

    for (int i = bench->n_modules - 1; i >= 0; i--) {
        const struct module *module = &bench->modules[i];
        bind(bench, i, i_micro_batch, &binding);
        if (bench->variant->recomputes && module->layout->kind == MIST_LAYER_BLOCK) {
            poison(module->saved, module->layout->saved_bytes);
            poison(bench->scratch, bench->scratch_bytes);
            mist_binding_run(&binding, MIST_PROGRAM_RECOMPUTE, &mist_operators_cpu);
        }
        if (i > 0)
            poison(bench->boundary_gradient[i - 1], module->layout->input_bytes);
        poison(bench->scratch, bench->scratch_bytes);
        if (bench->variant->splits_backward) {
            mist_binding_run(&binding, MIST_PROGRAM_BACKWARD_INPUT, &mist_operators_cpu);
            mist_binding_run(&binding, MIST_PROGRAM_BACKWARD_WEIGHT, &mist_operators_cpu);
        } else {
            mist_binding_run(&binding, MIST_PROGRAM_BACKWARD, &mist_operators_cpu);
        }
    }
}

/* The head's tied weight: its place in the module and the embedding's. */
static bool find_tied(const struct bench *bench, int64_t *in_head, int64_t *in_embedding,
                      int64_t *n)
{
    const struct mist_layer_layout *head = &bench->layouts[MIST_LAYER_HEAD];
    const struct mist_layer_layout *embedding = &bench->layouts[MIST_LAYER_EMBEDDING];

    for (int i = 0; bench->reference.model.ties_embeddings && i < head->n_params; i++)
        for (int k = 0; head->param_is_tied[i] && k < embedding->n_params; k++)
            if (strcmp(embedding->param_name[k], "wte") == 0) {
                *in_head = head->param_offset[i];
                *in_embedding = embedding->param_offset[k];
                *n = head->param_elements[i];
                assert_int_equal(*n, embedding->param_elements[k]);
                return true;
            }
    assert_false(bench->reference.model.ties_embeddings);
    return false;
}

/* Loss of the whole batch; gradients are left in the modules, tied ones summed up in the
 * embedding's. */
static double take_gradient(struct bench *bench)
{
    double sum = 0;
    int64_t in_head, in_embedding, n;
    const struct module *embedding = &bench->modules[0],
                        *head = &bench->modules[bench->n_modules - 1];

    for (int i = 0; i < bench->n_modules; i++)
        memset(bench->modules[i].gradients, 0,
               4 * (size_t)bench->modules[i].layout->n_parameters);
    for (int i = 0; i < bench->n_micro_batches; i++) {
        sum += run_forward(bench, i, MIST_PROGRAM_FORWARD);
        run_backward(bench, i);
    }
    if (find_tied(bench, &in_head, &in_embedding, &n))
        for (int64_t k = 0; k < n; k++)
            embedding->gradients[in_embedding + k] += head->gradients[in_head + k];
    return sum / (bench->reference.batch * bench->reference.seq);
}

static void update(struct bench *bench, int t)
{
    int64_t in_head, in_embedding, n;
    const struct mist_adamw_args args = {
        .lr = (float)REFERENCE_LR,
        .beta1 = (float)REFERENCE_BETA1,
        .beta2 = (float)REFERENCE_BETA2,
        .epsilon = (float)REFERENCE_EPSILON,
        .weight_decay = (float)REFERENCE_WEIGHT_DECAY,
        .gradient_scale = 1,
        .t = t,
    };

    for (int i = 0; i < bench->n_modules; i++) {
        const struct module *module = &bench->modules[i];
        const struct mist_binding_update of_module = {
            .layout = module->layout,
            .n = module->layout->n_parameters,
            .weights = module->weights,
            .gradients = module->gradients,
            .state = module->state,
            .n_threads = N_THREADS,
        };
        mist_binding_run_adamw(&of_module, &args, &mist_operators_cpu);
    }
    if (find_tied(bench, &in_head, &in_embedding, &n))
        memcpy(bench->modules[bench->n_modules - 1].weights + in_head,
               bench->modules[0].weights + in_embedding, 4 * (size_t)n);
}

/* ------------------------------------------------------------------------------- tests
 */

static void check_loss(const struct bench *bench, const char *when, double loss,
                       double expected, double tolerance)
{
    if (!(fabs(loss / expected - 1.0) <= tolerance))
        fail_msg("%s, %s, %s: loss %.9g, expected %.9g", bench->reference.model.name,
                 bench->variant->name, when, loss, expected);
}

/* Worst error of the gradients; every parameter of the reference must come once. */
static double check_gradients(const struct bench *bench)
{
    double worst = 0;
    size_t n_compared = 0;
    char name[64];

    for (int i = 0; i < bench->n_modules; i++) {
        const struct module *module = &bench->modules[i];
        for (int k = 0; k < module->layout->n_params; k++) {
            const struct reference_gradient *expected =
                reference_find(&bench->reference, reference_name(bench, i, k, name));
            if (!expected || expected->n != module->layout->param_elements[k])
                fail_msg("%s has no such parameter: %s", bench->reference.model.name,
                         name);
            if (i > 0 && strcmp(name, "wte") == 0)
                continue; /* the tied one, summed up in the embedding */
            double *gradient = calloc((size_t)expected->n, sizeof *gradient);
            assert_non_null(gradient);
            for (int64_t j = 0; j < expected->n; j++)
                gradient[j] =
                    (double)module->gradients[module->layout->param_offset[k] + j];
            double error = reference_error(expected, gradient);
            free(gradient);
            if (!(error <= GRADIENT_TOLERANCE))
                fail_msg("%s, %s: gradient of %s is off by %g",
                         bench->reference.model.name, bench->variant->name, name, error);
            worst = fmax(worst, error);
            n_compared++;
        }
    }
    assert_int_equal(n_compared, bench->reference.n_gradients);
    return worst;
}

static void test_gradients(void **state)
{
    static struct bench bench;

    (void)state;
    for (int i = 0; i < N_REFERENCES; i++)
        for (size_t k = 0; k < sizeof variants / sizeof *variants; k++) {
            open_bench(reference_names[i], &variants[k], &bench);
            double loss = take_gradient(&bench), expected = bench.reference.loss;
            check_loss(&bench, "first", loss, expected, LOSS_TOLERANCE);
            double worst = check_gradients(&bench);
            print_message("# %s, %s: loss off by %.1e, %zu gradients by %.1e at worst\n",
                          reference_names[i], variants[k].name,
                          fabs(loss / expected - 1.0), bench.reference.n_gradients,
                          worst);
            close_bench(&bench);
        }
}

/* The program that only evaluates gives the loss and leaves the gradients alone. */
static void test_evaluation(void **state)
{
    static struct bench bench;

    (void)state;
    for (int i = 0; i < N_REFERENCES; i++) {
        open_bench(reference_names[i], &variants[0], &bench);
        double loss = run_forward(&bench, 0, MIST_PROGRAM_EVALUATE) /
                      (bench.reference.batch * bench.reference.seq);
        check_loss(&bench, "evaluated", loss, bench.reference.loss, LOSS_TOLERANCE);
        for (int k = 0; k < bench.n_modules; k++)
            for (int64_t j = 0; j < bench.modules[k].layout->n_parameters; j++)
                assert_true(bench.modules[k].gradients[j] == 0);
        close_bench(&bench);
    }
}

static void test_steps(void **state)
{
    static struct bench bench;

    (void)state;
    for (int i = 0; i < N_REFERENCES; i++) {
        open_bench(reference_names[i], &variants[0], &bench);
        for (int t = 0; t <= REFERENCE_STEPS; t++) {
            char when[32];
            snprintf(when, sizeof when, "after %d steps", t);
            check_loss(&bench, when, take_gradient(&bench), bench.reference.losses[t],
                       LOSS_TOLERANCE);
            update(&bench, t + 1);
        }
        close_bench(&bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
