/* Prices shapes, compiles and evaluates the expressions. See stage_model.h. */
#include "sim/closed_form/stage_model.h"

#include "sim/closed_form/stage_model_internal.h"
#include "sim/model/framework.h"

#include <stdio.h>
#include <stdlib.h>

/* Variants of the expressions: bits. Where a batch offloads nothing, has no lean block, or
 * programs do not communicate inside, the terms of that are not there at all. */
enum {
    IS_FIRST = 1,
    IS_LAST = 2,
    OFFLOADS = 4,
    IS_CUT = 8,
    HOSTS = 16, /* updates on the host; with OFFLOADS */
    HAS_LEAN = 32,
    N_VARIANTS = 64,
    ALIGNMENT = 64
};

struct mist_stage_model {
    struct mist_model model;
    const struct mist_cost_model *cost_model; /* borrowed */
    struct mist_job job;
    int32_t threads;
    struct mist_expr_pool pool;
    int32_t symbol_of_column[MIST_STAGE_N_COLUMNS]; /* symbol indices */
    int32_t symbol_of_value[MIST_STAGE_VALUES_USED];
    struct mist_tape *tapes[N_VARIANTS][2]; /* of what is searched by, of the passes */
    size_t scratch_bytes;                   /* of the largest tape */
};

/* ---------------------------------------------------------------------- construction */

static const char *const column_names[MIST_STAGE_N_COLUMNS] = {
    "L", "C", "N", "Z", "OW", "OG", "OO", "OA", "UH", "P", "G"};

#define NAMES_BY_KIND(name) #name "_EMBEDDING", #name "_BLOCK", #name "_HEAD",
#define NAMES_ONCE(name)    #name,

static const char *const value_names[MIST_STAGE_VALUES_NAMED] = {
    MIST_STAGE_BY_KIND(NAMES_BY_KIND) MIST_STAGE_ONCE(NAMES_ONCE)};

static mist_expr make_value(struct mist_expr_pool *pool, int i)
{
    char name[32];

    if (i < MIST_STAGE_VALUES_NAMED)
        return mist_expr_symbol(pool, value_names[i]);
    snprintf(name, sizeof name, "PIECE_%d", i - MIST_STAGE_PIECES);
    return mist_expr_symbol(pool, name);
}

/* Symbols of columns and values. */
static void make_symbols(struct mist_stage_model *model, mist_expr *columns,
                         mist_expr *values, bool *is_uniform)
{
    struct mist_expr_pool *pool = &model->pool;

    for (int i = 0; i < MIST_STAGE_N_COLUMNS; i++) {
        columns[i] = mist_expr_symbol(pool, column_names[i]);
        if (columns[i] != MIST_EXPR_ERROR)
            model->symbol_of_column[i] = mist_expr_symbol_index(pool, columns[i]);
    }
    for (int i = 0; i < MIST_STAGE_VALUES_USED; i++) {
        values[i] = make_value(pool, i);
        if (values[i] == MIST_EXPR_ERROR)
            continue;
        model->symbol_of_value[i] = mist_expr_symbol_index(pool, values[i]);
        is_uniform[model->symbol_of_value[i]] = true;
    }
}

static void write_variant(struct mist_stage_model *model, int variant,
                          const mist_expr *columns, const mist_expr *values,
                          mist_expr outputs[MIST_STAGE_N_OUTPUTS])
{
    struct mist_expr_pool *pool = &model->pool;
    struct mist_stage_writer at = {
        .pool = pool,
        .interference = mist_cost_model_interference(model->cost_model),
        .is_first = variant & IS_FIRST,
        .is_last = variant & IS_LAST,
        .pauses = mist_schedule_pauses(variant & IS_FIRST ? 0 : 1),
        .offloads = variant & OFFLOADS,
        .is_cut = variant & IS_CUT,
        .has_lean = variant & HAS_LEAN,
        .copy_frac =
            mist_framework_copy_bytes(model->job.framework, model->job.gradient_dtype) /
            (double)mist_dtype_state_bytes(model->job.dtype),
        .n_layers = columns[MIST_STAGE_LAYERS],
        .n_checkpointed = columns[MIST_STAGE_CHECKPOINTED],
        .zero = mist_expr_mul(pool, columns[MIST_STAGE_ZERO], values[MIST_STAGE_IS_DP]),
        .in_flight = columns[MIST_STAGE_IN_FLIGHT],
        .n_micro_batches = columns[MIST_STAGE_MICRO_BATCHES],
        .value = values,
    };

    at.n_lean = at.has_lean ? columns[MIST_STAGE_LEAN] : mist_expr_const(pool, 0);
    at.on_host =
        variant & HOSTS ? columns[MIST_STAGE_UPDATE_ON_HOST] : mist_expr_const(pool, 0);
    for (int r = 0; r < 4; r++)
        at.ratio[r] = at.offloads ? columns[MIST_STAGE_OFFLOAD_WEIGHTS + r]
                                  : mist_expr_const(pool, 0);
    mist_stage_model_write_time(&at, outputs);
    mist_stage_model_write_memory(&at, outputs);
}

/* Outputs of the two tapes of a variant. */
static const int first_output[] = {0, MIST_STAGE_N_SEARCHED, MIST_STAGE_N_OUTPUTS};

static enum mist_status compile_tape(struct mist_stage_model *model,
                                     const mist_expr *outputs, int n_outputs,
                                     const bool *is_uniform, struct mist_tape **out,
                                     struct mist_err *err)
{
    enum mist_status status =
        mist_tape_compile(&model->pool, outputs, n_outputs, is_uniform, out, err);
    size_t size = status == MIST_OK ? mist_tape_scratch_bytes(*out) : 0;

    model->scratch_bytes = size > model->scratch_bytes ? size : model->scratch_bytes;
    return status;
}

static enum mist_status compile(struct mist_stage_model *model, struct mist_err *err)
{
    mist_expr columns[MIST_STAGE_N_COLUMNS], values[MIST_STAGE_VALUES_USED];
    mist_expr outputs[MIST_STAGE_N_OUTPUTS];
    bool is_uniform[MIST_STAGE_N_COLUMNS + MIST_STAGE_VALUES_USED] = {false};
    enum mist_status status = MIST_OK;

    make_symbols(model, columns, values, is_uniform);
    for (int i = 0; i < N_VARIANTS && status == MIST_OK; i++) {
        if ((i & HOSTS) && !(i & OFFLOADS))
            continue;
        write_variant(model, i, columns, values, outputs);
        status = mist_expr_pool_check(&model->pool, err);
        for (int k = 0; k < 2 && status == MIST_OK; k++)
            status = compile_tape(model, outputs + first_output[k],
                                  first_output[k + 1] - first_output[k], is_uniform,
                                  &model->tapes[i][k], err);
    }
    return status;
}

enum mist_status mist_stage_model_new(const struct mist_model *trained,
                                      const struct mist_cost_model *cost_model,
                                      const struct mist_job *job, int32_t threads,
                                      struct mist_stage_model **out, struct mist_err *err)
{
    struct mist_stage_model *model = calloc(1, sizeof *model);

    if (!model)
        return mist_err_memory(err, NULL);
    model->model = *trained;
    model->cost_model = cost_model;
    model->job = *job;
    model->threads = threads;
    mist_expr_pool_init(&model->pool);
    enum mist_status status = compile(model, err);
    if (status != MIST_OK) {
        mist_stage_model_free(model);
        return status;
    }
    *out = model;
    return MIST_OK;
}

void mist_stage_model_free(struct mist_stage_model *model)
{
    if (!model)
        return;
    for (int i = 0; i < N_VARIANTS; i++)
        for (int k = 0; k < 2; k++)
            mist_tape_free(model->tapes[i][k]);
    mist_expr_pool_fini(&model->pool);
    free(model);
}

/* --------------------------------------------------------------------------- pricing */

enum mist_status mist_stage_model_prepare(const struct mist_stage_model *model,
                                          const struct mist_stage_shape *shape,
                                          struct mist_stage_values *out,
                                          struct mist_err *err)
{
    struct mist_plan *plan = calloc(1, sizeof *plan); /* large: not on the stack */

    if (!plan)
        return mist_err_memory(err, NULL);
    plan->model = model->model;
    plan->job = model->job;
    plan->n_stages = 1 + !shape->is_first + !shape->is_last;
    for (int32_t i = 0; i < plan->n_stages; i++)
        plan->stages[i] = (struct mist_stage_plan){
            .n_nodes = shape->n_nodes,
            .n_devices = shape->n_devices,
            .micro_batch = shape->micro_batch,
            .dp = shape->dp,
            .tp = shape->tp,
            .is_sequence_parallel = shape->is_sequence_parallel,
        };
    enum mist_status status = mist_stage_model_price(
        model->cost_model, model->threads, plan, shape->is_first ? 0 : 1, out, err);
    free(plan);
    return status;
}

void mist_stage_model_sends(const struct mist_stage_values *values, double *forward_s,
                            double *backward_s)
{
    *forward_s = values->values[MIST_STAGE_SEND_ACTIVATION];
    *backward_s = values->values[MIST_STAGE_SEND_GRADIENT];
}

/* ------------------------------------------------------------------------ evaluation */

size_t mist_stage_model_scratch_bytes(const struct mist_stage_model *model)
{
    return model->scratch_bytes;
}

/* Whether a column is 0 throughout, as far as that is seen at a glance. */
static bool is_zero(const struct mist_tape_input *column)
{
    return !column->column && column->value == 0;
}

static int choose_variant(const struct mist_stage_shape *shape,
                          const struct mist_tape_input *columns)
{
    int variant = (shape->is_first ? IS_FIRST : 0) | (shape->is_last ? IS_LAST : 0) |
                  (shape->tp > 1 ? IS_CUT : 0);

    for (int i = MIST_STAGE_OFFLOAD_WEIGHTS; i <= MIST_STAGE_OFFLOAD_ACTIVATIONS; i++)
        if (!is_zero(&columns[i]))
            variant |= OFFLOADS;
    if (!is_zero(&columns[MIST_STAGE_LEAN]))
        variant |= HAS_LEAN;
    if ((variant & OFFLOADS) && !is_zero(&columns[MIST_STAGE_UPDATE_ON_HOST]))
        variant |= HOSTS;
    return variant;
}

static bool is_any(double *const *outputs, int n)
{
    for (int i = 0; i < n; i++)
        if (outputs[i])
            return true;
    return false;
}

void mist_stage_model_eval(const struct mist_stage_model *model,
                           const struct mist_stage_values *values,
                           const struct mist_tape_input *columns, size_t n,
                           double *const outputs[MIST_STAGE_N_OUTPUTS], void *scratch)
{
    struct mist_tape_input inputs[MIST_STAGE_N_COLUMNS + MIST_STAGE_VALUES_USED];

    for (int i = 0; i < MIST_STAGE_VALUES_USED; i++)
        inputs[model->symbol_of_value[i]] =
            (struct mist_tape_input){NULL, values->values[i]};
    for (int i = 0; i < MIST_STAGE_N_COLUMNS; i++)
        inputs[model->symbol_of_column[i]] = columns[i];
    struct mist_tape *const *tapes =
        model->tapes[choose_variant(&values->shape, columns)];
    for (int k = 0; k < 2; k++)
        if (is_any(outputs + first_output[k], first_output[k + 1] - first_output[k]))
            mist_tape_eval(tapes[k], inputs, n, outputs + first_output[k], scratch);
}
