/*
 * Computation as another framework does it. See mist_cost_framework_part() in
 * cost_internal.h.
 *
 * A step of the catalogue costs its matrix products, by the rows and the curve that ours
 * cost, and passes over memory for what the framework's other kernels move
 * (sim/model/framework.h). Attention that is no single kernel is batched products; those
 * that write scores do so behind the product, which is too short to hide it, those that
 * read them do so beside it:
 *
 *   time = max(product, bytes read / memory rate) + bytes written / memory rate
 *
 * (A100, 32 heads of 64, 2,048 x 2,048 scores: 289 and 181 us, a trace of Megatron-LM has
 * 295 and 184.)
 *
 * The device starts at the later of itself and its host, taken pass by pass: a program
 * takes at least what the host needs for its launches, and if that is more than its
 * kernels, all its parts are stretched by the same factor. A host that waits for every
 * kernel before it launches the next one takes its time beside theirs. Left out: a lead
 * that the host has from one pass to the next, where one is bound by the host and the other
 * is not.
 */
#include "sim/cost/cost_internal.h"
#include "sim/model/framework.h"

#include <math.h> /* fmax */

/* Of a processor, by a fused softmax: 108 of A100 take 426 us for 32 heads of 2,048 x 2,048
 * (the same trace). */
#define SOFTMAX_SCORES_PER_S 2.95e9

/* Launches of a collective: its kernel, and the events that order streams around it. By how
 * much later than others kernels beside it are launched in eight ranks' traces of
 * Megatron-LM on A100 (medians, 1.24 to 1.35). */
#define COLLECTIVE_LAUNCHES 1.3

struct pricing {
    const struct mist_cost_model *model;
    const struct mist_job *job;
    const struct mist_framework *framework;
    const struct mist_layer_layout *layout; /* whose steps they are */
    struct mist_err *err;
    /* results so far */
    struct mist_cost cost;
    double launches;
    enum mist_status status;
};

static const struct mist_framework *framework_of(const struct mist_cost_model *model,
                                                 const struct mist_job *job)
{
    return model->speeds.framework ? model->speeds.framework
                                   : mist_framework_get(job->framework);
}

static void add(struct pricing *at, const struct mist_cost *cost, enum mist_status status)
{
    at->status = status;
    if (status == MIST_OK)
        mist_cost_add(&at->cost, cost);
}

static bool has_fp8_products(const struct pricing *at)
{
    return at->job->has_fp8_products && at->layout->kind == MIST_LAYER_BLOCK;
}

/* A matrix product, by rows or curve. dims: rows, n_in, n_out. */
static void add_product(struct pricing *at, enum mist_phase phase, const int64_t *dims)
{
    const int64_t all[MIST_MAX_DIMS] = {dims[0], dims[1], dims[2]};
    struct mist_work work = mist_op_work(MIST_OP_LINEAR, phase, all, at->job->dtype);
    struct mist_cost cost = {0};

    if (at->status == MIST_OK && has_fp8_products(at)) /* operands of a byte */
        add(at, &cost,
            mist_cost_datasheet(&at->model->cluster, MIST_OP_LINEAR, phase,
                                MIST_TRACE_FP8, all, (double)work.flop,
                                (double)work.bytes / 2, &cost, at->err));
    else if (at->status == MIST_OK)
        add(at, &cost,
            mist_cost_op_part(at->model, MIST_OP_LINEAR, phase, at->job->dtype, all,
                              (double)work.flop, (double)work.bytes, &cost, at->err));
}

/* By the data sheet alone: a kernel with a product (NULL: none) beside which it moves so
 * many bytes. */
static void add_kernel(struct pricing *at, const int64_t *product, double bytes)
{
    static const int64_t none[MIST_MAX_DIMS] = {1};
    double flop =
        product ? 2.0 * (double)product[0] * (double)product[1] * (double)product[2] : 0;
    struct mist_cost cost = {0};

    if (at->status == MIST_OK)
        add(at, &cost,
            mist_cost_datasheet(&at->model->cluster,
                                product ? MIST_OP_LINEAR : MIST_OP_RESIDUAL,
                                MIST_PHASE_FORWARD, mist_cost_trace_dtype(at->job->dtype),
                                product ? product : none, flop, bytes, &cost, at->err));
}

/* Kernels that move so many bytes together. */
static void add_passes(struct pricing *at, int launches, double bytes)
{
    at->launches += launches;
    for (int i = 0; i < launches && bytes > 0; i++)
        add_kernel(at, NULL, bytes / launches);
}

/* ---------------------------------------------------------------------------- attention */

/* Of a score, by a fused softmax; where memory is faster than its processors, as many as it
 * would move in the time that these take. */
static double softmax_bytes(const struct pricing *at,
                            const struct mist_framework_attention *of)
{
    const struct mist_cluster *cluster = &at->model->cluster;
    const struct mist_trace_curve *curve = &cluster->curve;

    if (of->softmax_bytes == 0 || curve->processors == 0)
        return of->softmax_bytes;
    return fmax(of->softmax_bytes, curve->memory_frac * cluster->memory_bytes_per_s /
                                       (curve->processors * SOFTMAX_SCORES_PER_S));
}

/* dims: batch, seq, heads, kv_heads, head_dim. */
static void add_attention(struct pricing *at, enum mist_phase phase,
                          enum mist_attention attention, const int64_t *dims)
{
    const struct mist_framework_attention *of =
        mist_framework_attention(attention, phase);
    int64_t n_rows = dims[0] * dims[1] * dims[2], seq = dims[1], head_dim = dims[4];
    const int64_t to_scores[MIST_MAX_DIMS] = {n_rows, head_dim, seq};
    const int64_t from_scores[MIST_MAX_DIMS] = {n_rows, seq, head_dim};
    double element = mist_dtype_weight_bytes(at->job->dtype);
    double scores = (double)n_rows * (double)seq;
    double result = (double)n_rows * (double)head_dim;

    for (int32_t i = 0; i < of->n_products; i++) {
        bool writes = i < of->n_writing_scores;
        double read = writes ? 2 * result : scores + result;
        add_kernel(at, writes ? to_scores : from_scores, element * read);
        add_kernel(at, NULL, element * (writes ? scores : result));
    }
    at->launches += of->n_products;
    add_passes(at, of->launches,
               (softmax_bytes(at, of) + of->score_bytes) * scores +
                   of->result_bytes * result);
}

/* False: it is one kernel. */
static bool try_attention(struct pricing *at, const struct mist_step *step)
{
    enum mist_attention attention = mist_framework_attention_at(
        at->job->attention, step->dims[1], step->dims[0] * step->dims[2]);

    if (!mist_framework_attention(attention, step->phase))
        return false;
    add_attention(at, step->phase, attention, step->dims);
    if (step->phase != MIST_PHASE_FORWARD && at->job->recomputes_attention &&
        at->framework->selective_frac == 0)
        add_attention(at, MIST_PHASE_FORWARD, attention, step->dims);
    return true;
}

/* -------------------------------------------------------------------------------- steps */

/* Elements of an operator's result, in which its other kernels' bytes are. */
static double result_elements(const struct mist_step *step)
{
    double dims[MIST_MAX_DIMS];
    bool ends_with_columns =
        step->op == MIST_OP_LINEAR_CROSS_ENTROPY ||
        (mist_op_is_product(step->op) && step->phase == MIST_PHASE_FORWARD);

    for (int i = 0; i < MIST_MAX_DIMS; i++)
        dims[i] = i < step->n_dims ? (double)step->dims[i] : 1;
    if (step->phase == MIST_PHASE_BACKWARD_WEIGHT) /* of n_in, n_out; hidden, vocab */
        return dims[1] * dims[2];
    if (step->op == MIST_OP_ROPE)
        return dims[0] * dims[1] * (dims[2] + dims[3]) * dims[4];
    return dims[0] * (ends_with_columns ? dims[2] : dims[1]);
}

/* What we do, too. */
static void add_ours(struct pricing *at, const struct mist_step *step)
{
    struct mist_cost cost = {0};
    enum mist_status status =
        mist_cost_op_part(at->model, step->op, step->phase, at->job->dtype, step->dims,
                          (double)step->flop, (double)step->bytes, &cost, at->err);

    if (step->op == MIST_OP_ATTENTION)
        mist_cost_scale(&cost, mist_cost_attention_factor(
                                   &at->model->cluster, at->job->attention, step->phase,
                                   mist_cost_trace_dtype(at->job->dtype), step->dims));
    add(at, &cost, status);
}

/* Whether the module is a block with a gate, of Llama's family. */
static bool has_gate(const struct mist_layer_layout *layout)
{
    bool is_there = false;

    for (int32_t i = 0; i < layout->n_params; i++)
        is_there |= layout->params[i].shape.n_sections == 2;
    return is_there;
}

/* What casts to floats of 8 bits for a product move. */
static void add_casts(struct pricing *at, enum mist_phase phase, const int64_t *dims)
{
    const struct mist_framework_casts *of = &at->framework->casts[phase];
    double rows = (double)dims[0], n_in = (double)dims[1], n_out = (double)dims[2];
    const double bytes[] = {of->input * rows * n_in, of->weight * n_in * n_out,
                            of->gradient * rows * n_out};

    for (size_t i = 0; i < sizeof bytes / sizeof *bytes && has_fp8_products(at); i++)
        if (bytes[i] > 0)
            add_passes(at, 1, bytes[i]);
}

/* The products of a step: one for each section of its weight where the framework has them
 * apart; their inputs' gradients are summed up. */
static void add_products(struct pricing *at, const struct mist_step *step)
{
    const struct mist_param_shape *shape =
        step->params[0] < 0 ? NULL : &at->layout->params[step->params[0]].shape;

    bool are_whole = at->framework->alone_ops && !at->layout->shape.is_alone;

    add_casts(at, step->phase, step->dims);
    if (at->framework->sum_bytes == 0 || are_whole || !shape || shape->n_sections < 2 ||
        !has_gate(at->layout)) {
        add_product(at, step->phase, step->dims);
        return;
    }
    for (int32_t i = 0; i < shape->n_sections; i++) {
        const int64_t dims[] = {step->dims[0], step->dims[1],
                                step->dims[2] * shape->section_rows[i] / shape->rows};
        add_product(at, step->phase, dims);
    }
    int32_t n_more = shape->n_sections - 1;
    at->launches += n_more;
    if (step->phase == MIST_PHASE_BACKWARD_INPUT)
        add_passes(at, n_more,
                   (double)n_more * at->framework->sum_bytes * (double)step->dims[0] *
                       (double)step->dims[1]);
}

/* Per element of a weight, to add a micro-batch's gradient. */
static double accumulate_bytes(const struct pricing *at)
{
    const struct mist_framework *of = at->framework;
    bool copies = of->fp32_sum_factor > 0 && at->job->gradient_dtype == MIST_DTYPE_FP32;

    return of->accumulate_bytes * (copies ? of->fp32_sum_factor : 1);
}

/* Moved per element of a result, products apart. */
static double bytes_of(const struct pricing *at, enum mist_op op,
                       const struct mist_framework_op *of)
{
    bool has_fp16_loss = at->job->has_fp16_loss;

    if (at->job->has_fused_loss)
        return of->bytes;
    switch (op) {
    case MIST_OP_LINEAR_CROSS_ENTROPY: /* there and back */
        return mist_framework_loss_bytes(at->framework->logit_bytes, 2, has_fp16_loss);
    case MIST_OP_CROSS_ENTROPY_STATS:
    case MIST_OP_CROSS_ENTROPY_PARALLEL:
        return mist_framework_loss_bytes(of->bytes, 1, has_fp16_loss);
    default:
        return of->bytes;
    }
}

static bool is_loss(enum mist_op op)
{
    return op == MIST_OP_LINEAR_CROSS_ENTROPY || op == MIST_OP_CROSS_ENTROPY_STATS ||
           op == MIST_OP_CROSS_ENTROPY_PARALLEL;
}

/* Steps of programs that are no communication and no attention of several kernels. */
static void add_operator(struct pricing *at, const struct mist_step *step,
                         const struct mist_framework_op *op)
{
    bool is_whole_loss = step->op == MIST_OP_LINEAR_CROSS_ENTROPY;
    int n_products = is_whole_loss ? 3 : mist_op_is_product(step->op) ? 1 : 0;
    bool adds_gradients = is_whole_loss || step->phase == MIST_PHASE_BACKWARD_WEIGHT;
    double bytes = bytes_of(at, step->op, op);
    /* by the product itself */
    bool is_fused = adds_gradients && n_products > 0 && at->framework->fuses_gradients;
    /* to what adds the residual, behind the sum over ranks */
    bool leaves_bias = step->op == MIST_OP_LINEAR_BIAS && step->adds_bias_once;
    double n_weights =
        adds_gradients && !is_fused ? (double)step->dims[1] * (double)step->dims[2] : 0;

    if (step->op == MIST_OP_ATTENTION)
        add_ours(at, step);
    for (int i = 0; i < n_products && is_whole_loss; i++)
        add_product(at, (enum mist_phase)i, step->dims);
    if (n_products == 1)
        add_products(at, step);
    at->launches += n_products;
    add_passes(at, leaves_bias ? 0 : op->launches - n_products - is_fused,
               bytes * result_elements(step) + accumulate_bytes(at) * n_weights);
}

static const struct mist_framework_op (*ops_of(const struct pricing *at))[MIST_N_PHASES]
{
    bool is_alone = at->framework->alone_ops && at->layout->shape.is_alone;

    return is_alone ? at->framework->alone_ops : at->framework->ops;
}

static void add_plain_step(struct pricing *at, const struct mist_step *step);

/* Of a context-parallel rank: as long as its share of the whole, in as many pieces as there
 * are ranks, with their launches. */
static void add_attention_part(struct pricing *at, const struct mist_step *step)
{
    struct mist_cost before = at->cost;
    struct mist_step whole = *step;
    double launches = at->launches;
    int64_t n = step->dims[5];

    whole.op = MIST_OP_ATTENTION;
    whole.n_dims = 5;
    whole.dims[5] = 0;
    whole.flop *= n;
    whole.bytes *= n;
    at->cost = (struct mist_cost){0};
    add_plain_step(at, &whole);
    mist_cost_scale(&at->cost, 1 / (double)n);
    mist_cost_add(&at->cost, &before);
    at->launches = launches + (at->launches - launches) * (double)n;
}

/* A step at the speed of the trace set. */
static void add_plain_step(struct pricing *at, const struct mist_step *step)
{
    const struct mist_framework_op *op = &ops_of(at)[step->op][step->phase];
    const struct mist_framework_op fused = mist_framework_fused_loss(step->op);

    if (at->job->has_fused_loss && is_loss(step->op))
        op = &fused;
    if (mist_op_is_communication(step->op)) {
        at->launches += COLLECTIVE_LAUNCHES;
    } else if (step->op == MIST_OP_ATTENTION_PART) {
        add_attention_part(at, step);
    } else if (step->op == MIST_OP_ATTENTION && try_attention(at, step)) {
        return;
    } else if (op->launches > 0) {
        add_operator(at, step, op);
    } else {
        add_ours(at, step);
        at->launches++;
    }
}

static void add_step(struct pricing *at, const struct mist_step *step)
{
    double speed = at->model->speeds.kernel[step->op];
    struct mist_cost before = at->cost;

    if (at->status == MIST_OK && speed == 1) {
        add_plain_step(at, step);
    } else if (at->status == MIST_OK) {
        at->cost = (struct mist_cost){0};
        add_plain_step(at, step);
        mist_cost_scale(&at->cost, 1 / speed);
        mist_cost_add(&at->cost, &before);
    }
}

/* All steps, or all but attention. */
static void add_steps(struct pricing *at, const struct mist_step *steps, int32_t n,
                      bool leaves_attention)
{
    for (int32_t i = 0; i < n; i++)
        if (!leaves_attention || !mist_op_is_attention(steps[i].op))
            add_step(at, &steps[i]);
}

/* Device time of what selective recomputation repeats, attention apart. */
static double repeated_s(struct pricing *at, const struct mist_layer_layout *layout,
                         enum mist_program_kind program)
{
    struct pricing again = {.model = at->model,
                            .job = at->job,
                            .framework = at->framework,
                            .layout = layout,
                            .err = at->err};

    if (!at->job->recomputes_attention || layout->kind != MIST_LAYER_BLOCK ||
        (program != MIST_PROGRAM_BACKWARD && program != MIST_PROGRAM_BACKWARD_INPUT))
        return 0;
    add_steps(&again, layout->forward, layout->n_forward, true);
    at->launches += at->framework->selective_frac * again.launches;
    at->status = at->status == MIST_OK ? again.status : at->status;
    return at->framework->selective_frac * again.cost.time_s;
}

enum mist_status mist_cost_framework_part(const struct mist_cost_model *model,
                                          const struct mist_job *job,
                                          const struct mist_layer_layout *layout,
                                          enum mist_program_kind program, int32_t i_part,
                                          struct mist_cost *out, struct mist_err *err)
{
    const struct mist_program *parts = &layout->programs[program];
    const struct mist_step *steps = mist_layer_layout_steps(layout, program);
    struct pricing at = {.model = model,
                         .job = job,
                         .framework = framework_of(model, job),
                         .layout = layout,
                         .err = err};
    struct mist_cost part = {0};
    double device_s = 0;

    for (int32_t i = 0; i < parts->n_parts; i++) {
        at.cost = (struct mist_cost){0};
        add_steps(&at, steps + parts->parts[i].first_step, parts->parts[i].n_steps,
                  false);
        device_s += at.cost.time_s;
        if (i == i_part)
            part = at.cost;
    }
    double whole_s = device_s + repeated_s(&at, layout, program);
    double host_s = at.launches * at.framework->dispatch_us * 1e-6;
    double time_s = job->blocks_launches ? host_s + whole_s : fmax(host_s, whole_s);
    if (at.status == MIST_OK && device_s > 0)
        mist_cost_scale(&part, time_s / device_s);
    part.doubt_s = fmax(part.doubt_s, at.framework->residual_frac * part.time_s);
    if (at.status == MIST_OK)
        *out = part;
    return at.status;
}

/* Device time of a step. */
static double step_s(struct pricing *at, const struct mist_step *step)
{
    at->cost = (struct mist_cost){0};
    add_step(at, step);
    return at->cost.time_s;
}

enum mist_status mist_cost_framework_split(const struct mist_cost_model *model,
                                           const struct mist_job *job,
                                           const struct mist_layer_layout *layout,
                                           enum mist_program_kind program, int32_t i_part,
                                           struct mist_cost_split *out,
                                           struct mist_err *err)
{
    const struct mist_program *parts = &layout->programs[program];
    const struct mist_step *steps = mist_layer_layout_steps(layout, program);
    const struct mist_framework *framework = framework_of(model, job);
    struct mist_job once = *job;
    struct pricing at = {.model = model,
                         .job = &once,
                         .framework = framework,
                         .layout = layout,
                         .err = err};
    struct pricing twice = at;
    double device_s = 0, part_s = 0;

    once.recomputes_attention = false;
    twice.job = job;
    for (int32_t p = 0; p < parts->n_parts; p++)
        for (int32_t k = 0; k < parts->parts[p].n_steps; k++) {
            int32_t i = parts->parts[p].first_step + k;
            double again_s = step_s(&twice, &steps[i]);
            device_s += again_s;
            if (p != i_part)
                continue;
            part_s += again_s;
            out->step_s[i] = step_s(&at, &steps[i]);
            out->repeated_s += again_s - out->step_s[i];
        }
    if (device_s > 0)
        out->repeated_s += repeated_s(&twice, layout, program) * part_s / device_s;
    return at.status == MIST_OK ? twice.status : at.status;
}

int64_t mist_cost_framework_update_elements(const struct mist_cost_model *model,
                                            const struct mist_job *job,
                                            int64_t n_elements)
{
    const struct mist_framework *framework = framework_of(model, job);
    double ours_bytes = (double)mist_op_gradient_work(MIST_OP_ADAMW, 1).bytes;

    return framework->ops ? (int64_t)((double)n_elements *
                                      mist_framework_optimizer_bytes(
                                          framework, job->dtype, job->gradient_dtype) /
                                      ours_bytes)
                          : n_elements;
}
