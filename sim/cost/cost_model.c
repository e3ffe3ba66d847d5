/* The cost model's life, and sums over programs. See cost_model.h. */
#include "sim/cost/cost_model.h"

#include "sim/cost/cost_internal.h"

#include <math.h>   /* sqrt, fmax */
#include <stdio.h>  /* snprintf */
#include <stdlib.h> /* calloc */
#include <string.h> /* memcmp */

double mist_cost_standard_error_s(double deviation_us, int64_t repetitions)
{
    return deviation_us * 1e-6 / sqrt((double)repetitions);
}

enum mist_trace_dtype mist_cost_trace_dtype(enum mist_dtype dtype)
{
    static const enum mist_trace_dtype words[MIST_N_DTYPES] = {
        [MIST_DTYPE_FP32] = MIST_TRACE_FP32,
        [MIST_DTYPE_BF16] = MIST_TRACE_BF16,
        [MIST_DTYPE_FP16] = MIST_TRACE_FP16,
    };

    return words[dtype];
}

enum mist_trace_dtype mist_cost_stand_in(const struct mist_cluster *cluster,
                                         enum mist_trace_dtype dtype)
{
    const double *peaks = cluster->peak_flop_per_s;
    enum mist_trace_dtype other = dtype == MIST_TRACE_BF16   ? MIST_TRACE_FP16
                                  : dtype == MIST_TRACE_FP16 ? MIST_TRACE_BF16
                                                             : dtype;

    return peaks[dtype] > 0 && peaks[other] == peaks[dtype] ? other : dtype;
}

/* What is declared of computing and messages beside each other, whatever else goes on. */
static void declare_interference(struct mist_cost_model *model)
{
    const struct mist_trace_declared *declared = &model->traces->cluster.declared;
    const unsigned both = 1u << MIST_STREAM_COMPUTE | 1u << MIST_STREAM_GPU_GPU;

    for (unsigned set = 0; set < MIST_N_STREAM_SETS; set++)
        if ((set & both) == both) {
            double *slowdown = model->interference.slowdown[set];
            slowdown[MIST_STREAM_COMPUTE] = fmax(1, declared->compute_slowdown);
            slowdown[MIST_STREAM_GPU_GPU] = fmax(1, declared->message_slowdown);
        }
}

/* Factors of the channels from interference.csv; without any row what is declared, else 1.
 * Where streams take turns there is nothing to fit: the rows say how true that is. */
static enum mist_status fit_interference(struct mist_cost_model *model,
                                         struct mist_err *err)
{
    const struct mist_trace_set *traces = model->traces;
    struct mist_interference_fit_report report = {0};
    enum mist_status status;

    mist_interference_init(&model->interference);
    if (traces->cluster.streams_take_turns)
        mist_interference_take_turns(&model->interference);
    else if (traces->n_interferences == 0)
        declare_interference(model);
    if (traces->n_interferences == 0)
        return MIST_OK;
    struct mist_interference_sample *samples =
        calloc(traces->n_interferences, sizeof *samples);
    if (!samples)
        return mist_err_memory(err, NULL);
    for (size_t i = 0; i < traces->n_interferences; i++) {
        const struct mist_interference_row *row = &traces->interferences[i];
        for (int c = 0; c < MIST_N_CHANNELS; c++)
            samples[i].isolated_s[c] = row->alone_us[c] * 1e-6;
        samples[i].together_s = row->together_us * 1e-6;
    }
    if (traces->cluster.streams_take_turns) {
        report.mean_frac = mist_interference_residual_frac(
            &model->interference, samples, (int64_t)traces->n_interferences, NULL);
        status = MIST_OK;
    } else {
        status = mist_interference_fit(&model->interference, &report, samples,
                                       (int64_t)traces->n_interferences, err);
    }
    free(samples);
    model->interference_residual_frac = report.mean_frac;
    return status;
}

enum mist_status mist_cost_model_new(const struct mist_trace_set *traces,
                                     struct mist_cost_model **out, struct mist_err *err)
{
    struct mist_cost_model *model = calloc(1, sizeof *model);
    enum mist_status status;

    if (!model)
        return mist_err_memory(err, NULL);
    model->traces = traces;
    model->launch_s = traces->cluster.launch_us * 1e-6;
    model->cluster = traces->cluster;
    mist_cost_speeds_init(&model->speeds);
    status = mist_cost_kernels_init(model, err);
    if (status == MIST_OK)
        status = mist_cost_link_init(model, err);
    if (status == MIST_OK)
        status = fit_interference(model, err);
    model->interference.shares_processors = traces->cluster.backend == MIST_TRACE_CPU;
    if (status != MIST_OK) {
        mist_cost_model_free(model);
        return status;
    }
    *out = model;
    return MIST_OK;
}

void mist_cost_model_free(struct mist_cost_model *model)
{
    if (!model)
        return;
    free(model->kernels);
    mist_cost_link_fini(model);
    free(model);
}

void mist_cost_speeds_init(struct mist_cost_speeds *speeds)
{
    *speeds = (struct mist_cost_speeds){.peak = 1, .memory_rate = 1};
    for (int op = 0; op < MIST_N_OPS; op++)
        speeds->kernel[op] = 1;
}

void mist_cost_model_set_speeds(struct mist_cost_model *model,
                                const struct mist_cost_speeds *speeds)
{
    model->speeds = *speeds;
    model->cluster = model->traces->cluster;
    model->cluster.memory_bytes_per_s *= speeds->memory_rate;
    for (int i = 0; i < MIST_N_TRACE_DTYPES; i++)
        model->cluster.peak_flop_per_s[i] *= speeds->peak;
}

const struct mist_cluster *mist_cost_model_cluster(const struct mist_cost_model *model)
{
    return &model->cluster;
}

const struct mist_interference *
mist_cost_model_interference(const struct mist_cost_model *model)
{
    return &model->interference;
}

double mist_cost_model_interference_residual_frac(const struct mist_cost_model *model)
{
    return model->interference_residual_frac;
}

const struct mist_trace_set *mist_cost_model_traces(const struct mist_cost_model *model)
{
    return model->traces;
}

double mist_cost_model_launch_s(const struct mist_cost_model *model)
{
    return model->launch_s;
}

void mist_cost_add(struct mist_cost *sum, const struct mist_cost *part)
{
    sum->time_s += part->time_s;
    sum->extrapolated_s += part->extrapolated_s;
    sum->borrowed_s += part->borrowed_s;
    sum->preset_s += part->preset_s;
    sum->doubt_s += part->doubt_s;
    sum->deviation_s = hypot(sum->deviation_s, part->deviation_s);
}

void mist_cost_scale(struct mist_cost *cost, double factor)
{
    cost->time_s *= factor;
    cost->deviation_s *= factor;
    cost->extrapolated_s *= factor;
    cost->borrowed_s *= factor;
    cost->preset_s *= factor;
    cost->doubt_s *= factor;
}

static bool has_same_key(const struct mist_step *a, const struct mist_step *b)
{
    return a->op == b->op && a->phase == b->phase && a->n_dims == b->n_dims &&
           memcmp(a->dims, b->dims, (size_t)a->n_dims * sizeof *a->dims) == 0;
}

/* How many steps have the key of step i; 0 if an earlier one has it already. */
static int32_t count_key(const struct mist_step *steps, int32_t n_steps, int32_t i)
{
    int32_t n = 1;

    for (int32_t k = 0; k < i; k++)
        if (has_same_key(&steps[k], &steps[i]))
            return 0;
    for (int32_t k = i + 1; k < n_steps; k++)
        n += has_same_key(&steps[k], &steps[i]);
    return n;
}

enum mist_status mist_cost_program(const struct mist_cost_model *model,
                                   const struct mist_step *steps, int32_t n_steps,
                                   enum mist_dtype dtype, struct mist_cost *out,
                                   struct mist_err *err)
{
    struct mist_cost sum = {0};

    for (int32_t i = 0; i < n_steps; i++) {
        const struct mist_step *step = &steps[i];
        struct mist_cost cost;
        int32_t times = count_key(steps, n_steps, i);
        if (mist_op_is_communication(step->op) || times == 0)
            continue;
        enum mist_status status =
            mist_cost_op(model, step->op, step->phase, dtype, step->dims,
                         (double)step->flop, (double)step->bytes, &cost, err);
        if (status != MIST_OK)
            return status;
        /* one measurement behind all of them: what it is off by adds up */
        mist_cost_scale(&cost, times);
        mist_cost_add(&sum, &cost);
    }
    *out = sum;
    return MIST_OK;
}

enum mist_status mist_cost_add_elements(const struct mist_cost_model *model,
                                        enum mist_op op, enum mist_dtype dtype,
                                        enum mist_dtype gradient_dtype, int64_t elements,
                                        struct mist_cost *sum, struct mist_err *err)
{
    double n_gradients = op == MIST_OP_RESIDUAL ? 3 : 1; /* read or written */
    double saved_bytes = n_gradients * (mist_dtype_gradient_bytes(MIST_DTYPE_FP32) -
                                        mist_dtype_gradient_bytes(gradient_dtype));
    double all_bytes = (double)mist_op_gradient_work(op, 1).bytes;
    struct mist_cost cost;

    if (elements == 0)
        return MIST_OK;
    elements = (int64_t)ceil((double)elements * (1 - saved_bytes / all_bytes));
    int64_t dims[MIST_MAX_DIMS] = {elements};
    struct mist_work work = mist_op_gradient_work(op, elements);
    enum mist_status status =
        mist_cost_op(model, op, mist_op_gradient_phase(op), dtype, dims,
                     (double)work.flop, (double)work.bytes, &cost, err);
    if (status == MIST_OK)
        mist_cost_add(sum, &cost);
    return status;
}

static enum mist_status check_dtype(const struct mist_cost_model *model,
                                    enum mist_dtype dtype, struct mist_err *err)
{
    const struct mist_trace_set *traces = model->traces;
    enum mist_trace_dtype word = mist_cost_trace_dtype(dtype);
    char others[80] = "";
    size_t used = 0;

    for (size_t i = 0; i < traces->n_kernels; i++)
        if (traces->kernels[i].dtype == word)
            return MIST_OK;
    if (traces->cluster.peak_flop_per_s[word] > 0)
        return MIST_OK;
    for (int i = 0; i < MIST_N_TRACE_DTYPES; i++)
        if (traces->cluster.peak_flop_per_s[i] > 0)
            used += (size_t)snprintf(others + used, sizeof others - used, "%s%s",
                                     used ? ", " : "", mist_trace_dtype_words[i]);
    return mist_err_set(err, MIST_ERR_INPUT,
                        "cluster %s does not compute in %s: there are neither rows of it "
                        "nor a peak_flop_per_s, which there is for %s",
                        traces->cluster.name, mist_trace_dtype_words[word], others);
}

enum mist_status mist_cost_model_check(const struct mist_cost_model *model,
                                       enum mist_dtype dtype, int32_t n_ranks,
                                       bool offloads, struct mist_err *err)
{
    int32_t per_node = model->traces->cluster.devices_per_node;
    bool is_inside = n_ranks > 1 && per_node > 1, is_between = n_ranks > per_node;
    enum mist_status status = check_dtype(model, dtype, err);
    const struct mist_group_shape alone = {1, 1, 1}, inside = {1, 2, 1},
                                  between = {2, 1, 1};
    struct mist_cost cost;

    for (int i = 0; i <= MIST_LINK_SEND_RECV && status == MIST_OK; i++) {
        enum mist_link_operation operation = (enum mist_link_operation)i;
        if (is_inside)
            status = mist_cost_link(model, operation, inside, 1, &cost, err);
        if (is_between && status == MIST_OK)
            status = mist_cost_link(model, operation, between, 1, &cost, err);
    }
    if (status == MIST_OK && offloads)
        status = mist_cost_link(model, MIST_LINK_HOST_TO_DEVICE, alone, 1, &cost, err);
    return status;
}
