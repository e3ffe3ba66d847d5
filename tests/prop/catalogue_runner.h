/*
 * The catalogue's programs, run by the executor's kernels over plain buffers on one rank.
 *
 * No schedule and no device: embedding, blocks and head one after the other, each with
 * buffers of its own, which are filled with NaN wherever a program must write before it
 * reads. Weights, tokens and AdamW are those of reference.h; any failure ends the test.
 * Left out: tensor parallelism.
 */
#ifndef MIST_TESTS_PROP_CATALOGUE_RUNNER_H
#define MIST_TESTS_PROP_CATALOGUE_RUNNER_H

#include "exec/operators/bind.h"
#include "exec/operators/cpu_bf16.h" /* rounds the first weights */
#include "exec/operators/operators.h"
#include "sim/model/catalog.h"
#include "tests/unit/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CATALOGUE_MAX_MODULES = 8, CATALOGUE_ALIGNMENT = 64 };

struct catalogue_variant {
    const char *name;
    bool uses_micro_batches; /* one sample each */
    bool recomputes;
    bool splits_backward;
};

enum catalogue_variant_index {
    CATALOGUE_WHOLE,
    CATALOGUE_MICRO_BATCHES,
    CATALOGUE_RECOMPUTED,
    CATALOGUE_SPLIT,
    N_CATALOGUE_VARIANTS
};

static const struct catalogue_variant catalogue_variants[N_CATALOGUE_VARIANTS] = {
    [CATALOGUE_WHOLE] = {"whole", false, false, false},
    [CATALOGUE_MICRO_BATCHES] = {"micro-batches", true, false, false},
    [CATALOGUE_RECOMPUTED] = {"recomputed", false, true, false},
    [CATALOGUE_SPLIT] = {"split backward", true, true, true},
};

struct catalogue_module {
    const struct mist_layer_layout *layout; /* of its kind */
    void *weights;    /* flat, as the layout has them, in the run's number format */
    float *gradients; /* the same in fp32; with bf16 gradients once they are taken */
    float *state;     /* moments [2, n]; with bf16 also the master weights [n] */
    char *saved;
};

struct catalogue_run {
    const struct mist_model *model; /* borrowed */
    const struct catalogue_variant *variant;
    enum mist_dtype dtype, gradient_dtype; /* the latter to be set behind open */
    int32_t batch, seq, n_threads;
    void *backend;
    struct mist_layer_layout layouts[MIST_N_LAYER_KINDS];
    int n_modules, n_micro_batches;
    struct catalogue_module modules[CATALOGUE_MAX_MODULES]; /* embedding, blocks, head */
    char *boundary[CATALOGUE_MAX_MODULES];          /* activation behind each module */
    char *boundary_gradient[CATALOGUE_MAX_MODULES]; /* its gradient */
    char *scratch, *constant;
    int64_t scratch_bytes;
    int32_t *tokens, *targets;
};

/* ----------------------------------------------------------------------------- set-up */

static inline void *catalogue_allocate(int64_t size_bytes)
{
    size_t size = (size_t)(size_bytes + CATALOGUE_ALIGNMENT) / CATALOGUE_ALIGNMENT *
                  CATALOGUE_ALIGNMENT;
    void *at = aligned_alloc(CATALOGUE_ALIGNMENT, size);

    assert_non_null(at);
    memset(at, 0, size);
    return at;
}

/* NaN, whatever is read from it, as fp32 or as bf16 */
static inline void catalogue_poison(void *at, int64_t size_bytes)
{
    memset(at, 0xff, (size_t)size_bytes);
}

/* The reference's name of a parameter of module i_module; the head's tied one
 * is "wte". */
static inline const char *catalogue_name(const struct catalogue_run *run, int i_module,
                                         int i_param, char out[64])
{
    const struct mist_layer_layout *layout = run->modules[i_module].layout;

    if (layout->kind == MIST_LAYER_BLOCK)
        snprintf(out, 64, "layers.%d.%s", i_module - 1, layout->params[i_param].name);
    else if (run->model->ties_embeddings && layout->params[i_param].is_tied)
        snprintf(out, 64, "wte");
    else
        snprintf(out, 64, "%s", layout->params[i_param].name);
    return out;
}

static inline void catalogue_fill_weights(struct catalogue_run *run, int i_module)
{
    const struct catalogue_module *module = &run->modules[i_module];
    const struct mist_layer_layout *layout = module->layout;
    bool is_bf16 = run->dtype == MIST_DTYPE_BF16;
    float *weights = is_bf16 ? module->state + 2 * layout->n_parameters : module->weights;
    char name[64];

    for (int i = 0; i < layout->n_params; i++) {
        int64_t n = layout->params[i].n_elements;
        double *values = calloc((size_t)n, sizeof *values);
        assert_non_null(values);
        reference_weights(catalogue_name(run, i_module, i, name), n, values);
        for (int64_t k = 0; k < n; k++)
            weights[layout->params[i].offset + k] = (float)values[k];
        free(values);
    }
    if (is_bf16)
        mist_cpu_bf16_from_float(module->weights, weights, layout->n_parameters);
}

static inline void catalogue_open_modules(struct catalogue_run *run)
{
    for (int i = 0; i < run->n_modules; i++) {
        enum mist_layer_kind kind = i == 0                    ? MIST_LAYER_EMBEDDING
                                    : i == run->n_modules - 1 ? MIST_LAYER_HEAD
                                                              : MIST_LAYER_BLOCK;
        const struct mist_layer_layout *layout = &run->layouts[kind];
        int64_t n = layout->n_parameters;
        run->modules[i] = (struct catalogue_module){
            .layout = layout,
            .weights = catalogue_allocate(n * mist_dtype_weight_bytes(run->dtype)),
            .gradients = catalogue_allocate(n * (int64_t)sizeof(float)),
            .state = catalogue_allocate(n * mist_dtype_state_bytes(run->dtype)),
            .saved = catalogue_allocate(layout->saved_bytes),
        };
        run->boundary[i] = catalogue_allocate(layout->output_bytes);
        run->boundary_gradient[i] = catalogue_allocate(layout->output_bytes);
        if (run->scratch_bytes < layout->scratch_forward_bytes)
            run->scratch_bytes = layout->scratch_forward_bytes;
        if (run->scratch_bytes < layout->scratch_backward_bytes)
            run->scratch_bytes = layout->scratch_backward_bytes;
        catalogue_fill_weights(run, i);
    }
    run->scratch = catalogue_allocate(run->scratch_bytes);
}

static inline void catalogue_open_layouts(struct catalogue_run *run)
{
    struct mist_err err = {0};
    struct mist_layer_shape shape = {
        .micro_batch = run->batch / run->n_micro_batches,
        .seq = run->seq,
        .tp = 1,
        .threads = run->n_threads,
        .splits_backward = run->variant->splits_backward,
        .dtype = run->dtype,
    };

    reference_must(mist_model_check(run->model, &err), &err);
    for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++)
        reference_must(mist_layer_layout_make(run->model, (enum mist_layer_kind)kind,
                                              shape, &run->layouts[kind], &err),
                       &err);
}

/* Only model, batch and seq of the reference are read, which must outlive the run. */
static inline void catalogue_open(const struct reference *reference,
                                  const struct catalogue_variant *variant,
                                  enum mist_dtype dtype, int32_t n_threads,
                                  struct catalogue_run *out)
{
    struct mist_err err = {0};
    const struct mist_model *model = &reference->model;
    int32_t batch = reference->batch, seq = reference->seq;

    *out = (struct catalogue_run){
        .model = model,
        .variant = variant,
        .dtype = dtype,
        .batch = batch,
        .seq = seq,
        .n_threads = n_threads,
        .n_modules = model->n_layers + 2,
        .n_micro_batches = variant->uses_micro_batches ? batch : 1,
    };
    assert_true(out->n_modules <= CATALOGUE_MAX_MODULES);
    reference_must(mist_operators_cpu.open(NULL, dtype, n_threads, &out->backend, &err),
                   &err);
    catalogue_open_layouts(out);
    catalogue_open_modules(out);
    out->constant = catalogue_allocate(out->layouts[MIST_LAYER_BLOCK].constant_bytes);
    if (model->rope_theta > 0)
        mist_cpu_rope_fill((float *)(void *)out->constant, MIST_WHOLE_CHUNKS(seq), model);
    out->tokens = catalogue_allocate(4 * (int64_t)batch * seq);
    out->targets = catalogue_allocate(4 * (int64_t)batch * seq);
    reference_batch(reference, out->tokens, out->targets);
}

static inline void catalogue_close(struct catalogue_run *run)
{
    for (int i = 0; i < run->n_modules; i++) {
        free(run->modules[i].weights);
        free(run->modules[i].gradients);
        free(run->modules[i].state);
        free(run->modules[i].saved);
        free(run->boundary[i]);
        free(run->boundary_gradient[i]);
    }
    free(run->scratch);
    free(run->constant);
    free(run->tokens);
    free(run->targets);
    mist_operators_cpu.close(run->backend);
}

/* ---------------------------------------------------------------------------- running */

static inline void catalogue_bind(const struct catalogue_run *run, int i_module,
                                  int i_micro_batch, struct mist_binding *out)
{
    const struct catalogue_module *module = &run->modules[i_module];

    *out = (struct mist_binding){
        .layout = module->layout,
        .model = run->model,
        .micro_batch = i_micro_batch,
        .n_threads = run->n_threads,
        .gradient_dtype = run->gradient_dtype,
        .backend = run->backend,
        .loss_scale = 1.0f / (float)(run->batch * run->seq),
    };
    out->base[MIST_ROLE_SAVED] = module->saved;
    out->base[MIST_ROLE_SCRATCH] = run->scratch;
    out->base[MIST_ROLE_WEIGHTS] = module->weights;
    out->base[MIST_ROLE_GRADIENTS] = (char *)module->gradients;
    out->base[MIST_ROLE_TOKENS] = (char *)run->tokens;
    out->base[MIST_ROLE_TARGETS] = (char *)run->targets;
    out->base[MIST_ROLE_CONSTANT] = run->constant;
    if (i_module > 0) {
        out->base[MIST_ROLE_INPUT] = run->boundary[i_module - 1];
        out->base[MIST_ROLE_GRAD_INPUT] = run->boundary_gradient[i_module - 1];
    }
    out->base[MIST_ROLE_OUTPUT] = run->boundary[i_module];
    out->base[MIST_ROLE_GRAD_OUTPUT] = run->boundary_gradient[i_module];
}

static inline double catalogue_sum_losses(const struct mist_binding *binding)
{
    double sum = NAN;

    for (int32_t i = 0; i < binding->layout->n_forward; i++) {
        struct mist_step_args args;
        if (binding->layout->forward[i].op != MIST_OP_LINEAR_CROSS_ENTROPY)
            continue;
        mist_binding_resolve(binding, MIST_PROGRAM_FORWARD, i, &args);
        const float *losses = args.operands[MIST_ARG_LOSS_LOSSES];
        sum = 0;
        for (int64_t k = 0; k < args.step->dims[0]; k++)
            sum += (double)losses[k];
    }
    return sum;
}

/* All steps of a program; communication is left out. */
static inline void catalogue_run_program(const struct mist_binding *binding,
                                         enum mist_program_kind kind)
{
    const struct mist_program *program = &binding->layout->programs[kind];

    for (int32_t p = 0; p < program->n_parts; p++) {
        const struct mist_part *part = &program->parts[p];
        for (int32_t i = 0; i < part->n_steps && !part->is_communication; i++) {
            struct mist_step_args args;
            mist_binding_resolve(binding, kind, part->first_step + i, &args);
            mist_operators_cpu.run_step(&args);
        }
    }
}

/* Sum of the losses of a micro-batch; program: FORWARD or EVALUATE. */
static inline double catalogue_forward(struct catalogue_run *run, int i_micro_batch,
                                       enum mist_program_kind program)
{
    struct mist_binding binding = {0};

    for (int i = 0; i < run->n_modules; i++) {
        const struct catalogue_module *module = &run->modules[i];
        catalogue_poison(module->saved, module->layout->saved_bytes);
        catalogue_poison(run->boundary[i], module->layout->output_bytes);
        catalogue_poison(run->scratch, run->scratch_bytes);
        catalogue_bind(run, i, i_micro_batch, &binding);
        catalogue_run_program(&binding, program);
    }
    return catalogue_sum_losses(&binding);
}

static inline void catalogue_backward(struct catalogue_run *run, int i_micro_batch)
{
    struct mist_binding binding;

    for (int i = run->n_modules - 1; i >= 0; i--) {
        const struct catalogue_module *module = &run->modules[i];
        catalogue_bind(run, i, i_micro_batch, &binding);
        if (run->variant->recomputes && module->layout->kind == MIST_LAYER_BLOCK) {
            catalogue_poison(module->saved, module->layout->saved_bytes);
            catalogue_poison(run->scratch, run->scratch_bytes);
            catalogue_run_program(&binding, MIST_PROGRAM_RECOMPUTE);
        }
        if (i > 0)
            catalogue_poison(run->boundary_gradient[i - 1], module->layout->input_bytes);
        catalogue_poison(run->scratch, run->scratch_bytes);
        if (run->variant->splits_backward) {
            catalogue_run_program(&binding, MIST_PROGRAM_BACKWARD_INPUT);
            catalogue_run_program(&binding, MIST_PROGRAM_BACKWARD_WEIGHT);
        } else {
            catalogue_run_program(&binding, MIST_PROGRAM_BACKWARD);
        }
    }
}

/* The head's tied weight: its place in the module and the embedding's; false: none. */
static inline bool catalogue_find_tied(const struct catalogue_run *run, int64_t *in_head,
                                       int64_t *in_embedding, int64_t *n)
{
    const struct mist_layer_layout *head = &run->layouts[MIST_LAYER_HEAD];
    const struct mist_layer_layout *embedding = &run->layouts[MIST_LAYER_EMBEDDING];

    for (int i = 0; run->model->ties_embeddings && i < head->n_params; i++)
        for (int k = 0; head->params[i].is_tied && k < embedding->n_params; k++)
            if (strcmp(embedding->params[k].name, "wte") == 0) {
                *in_head = head->params[i].offset;
                *in_embedding = embedding->params[k].offset;
                *n = head->params[i].n_elements;
                assert_int_equal(*n, embedding->params[k].n_elements);
                return true;
            }
    assert_false(run->model->ties_embeddings);
    return false;
}

/* bf16 gradients in place to fp32, from the last on. */
static inline void catalogue_widen_gradients(const struct catalogue_module *module)
{
    const mist_bf16 *from = (const mist_bf16 *)(const void *)module->gradients;

    for (int64_t i = module->layout->n_parameters - 1; i >= 0; i--) {
        mist_bf16 x = from[i];
        mist_cpu_bf16_to_float(module->gradients + i, &x, 1);
    }
}

/* Loss of the whole batch; gradients are left in the modules, tied ones summed up in the
 * embedding's. */
static inline double catalogue_take_gradient(struct catalogue_run *run)
{
    double sum = 0;
    int64_t in_head, in_embedding, n;
    const struct catalogue_module *embedding = &run->modules[0],
                                  *head = &run->modules[run->n_modules - 1];

    for (int i = 0; i < run->n_modules; i++)
        memset(run->modules[i].gradients, 0,
               4 * (size_t)run->modules[i].layout->n_parameters);
    for (int i = 0; i < run->n_micro_batches; i++) {
        sum += catalogue_forward(run, i, MIST_PROGRAM_FORWARD);
        catalogue_backward(run, i);
    }
    for (int i = 0; i < run->n_modules && run->gradient_dtype == MIST_DTYPE_BF16; i++)
        catalogue_widen_gradients(&run->modules[i]);
    if (catalogue_find_tied(run, &in_head, &in_embedding, &n))
        for (int64_t k = 0; k < n; k++)
            embedding->gradients[in_embedding + k] += head->gradients[in_head + k];
    return sum / (run->batch * run->seq);
}

/* The optimizer's step t, from 1. The head's tied weights are copied: their own state
 * goes unused. */
static inline void catalogue_update(struct catalogue_run *run, int t)
{
    int64_t in_head, in_embedding, n, size_bytes = mist_dtype_weight_bytes(run->dtype);
    const struct mist_adamw_args args = {
        .lr = (float)REFERENCE_LR,
        .beta1 = (float)REFERENCE_BETA1,
        .beta2 = (float)REFERENCE_BETA2,
        .epsilon = (float)REFERENCE_EPSILON,
        .weight_decay = (float)REFERENCE_WEIGHT_DECAY,
        .gradient_scale = 1,
        .t = t,
    };

    for (int i = 0; i < run->n_modules; i++) {
        const struct catalogue_module *module = &run->modules[i];
        const struct mist_binding_update of_module = {
            .layout = module->layout,
            .n = module->layout->n_parameters,
            .weights = module->weights,
            .gradients = module->gradients,
            .state = module->state,
            .n_threads = run->n_threads,
        };
        mist_binding_run_adamw(&of_module, &args, &mist_operators_cpu);
    }
    if (catalogue_find_tied(run, &in_head, &in_embedding, &n))
        memcpy((char *)run->modules[run->n_modules - 1].weights + in_head * size_bytes,
               (char *)run->modules[0].weights + in_embedding * size_bytes,
               (size_t)(n * size_bytes));
}

#endif
