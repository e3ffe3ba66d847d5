/* Prices shapes, compiles and evaluates the expressions. See stage_model.h. */
#include "sim/closed_form/stage_model.h"

#include "sim/closed_form/stage_model_internal.h"

#include <stdio.h>
#include <stdlib.h>

/* Variants of the expressions: bits. Where a batch offloads nothing, or programs do not
 * communicate inside, the terms of that are not there at all. */
enum {
    IS_FIRST = 1,
    IS_LAST = 2,
    OFFLOADS = 4,
    IS_CUT = 8,
    HOSTS = 16, /* updates on the host; with OFFLOADS */
    N_VARIANTS = 32,
    AT_ONCE = 512, /* configurations that are looked up and priced (stage_model_cuts.c) */
    N_INPUTS = MIST_STAGE_N_COLUMNS + MIST_STAGE_N_CUTS + MIST_STAGE_VALUES_USED
};

struct mist_stage_model {
    struct mist_model model;
    const struct mist_cost_model *cost_model; /* borrowed */
    struct mist_job job;
    int32_t threads;
    struct mist_expr_pool pool;
    int32_t symbol_of_column[MIST_STAGE_N_COLUMNS]; /* symbol indices */
    int32_t symbol_of_cut[MIST_STAGE_N_CUTS];
    int32_t symbol_of_value[MIST_STAGE_VALUES_USED];
    struct mist_tape *tapes[N_VARIANTS];
    size_t scratch_bytes; /* of the largest tape */
};

/* ---------------------------------------------------------------------- construction */

static const char *const column_names[MIST_STAGE_N_COLUMNS] = {
    "L", "C", "Z", "OW", "OG", "OO", "OA", "UH", "P", "G"};

#define NAMES_BY_KIND(name) #name "_EMBEDDING", #name "_BLOCK", #name "_HEAD",
#define NAMES_ONCE(name)    #name,

static const char *const value_names[MIST_STAGE_VALUES_NAMED] = {
    MIST_STAGE_BY_KIND(NAMES_BY_KIND) MIST_STAGE_ONCE(NAMES_ONCE)};

static const char *const cut_names[MIST_STAGE_N_CUTS] = {MIST_STAGE_CUTS(NAMES_ONCE)};

static mist_expr make_value(struct mist_expr_pool *pool, int i)
{
    char name[32];

    if (i < MIST_STAGE_VALUES_NAMED)
        return mist_expr_symbol(pool, value_names[i]);
    snprintf(name, sizeof name, "PIECE_%d", i - MIST_STAGE_PIECES);
    return mist_expr_symbol(pool, name);
}

/* The symbols of a model. */
struct symbols {
    mist_expr columns[MIST_STAGE_N_COLUMNS], cuts[MIST_STAGE_N_CUTS];
    mist_expr values[MIST_STAGE_VALUES_USED];
    bool is_uniform[N_INPUTS];
};

static void make_symbols(struct mist_stage_model *model, struct symbols *out)
{
    struct mist_expr_pool *pool = &model->pool;

    *out = (struct symbols){0};
    for (int i = 0; i < MIST_STAGE_N_COLUMNS; i++) {
        out->columns[i] = mist_expr_symbol(pool, column_names[i]);
        if (out->columns[i] != MIST_EXPR_ERROR)
            model->symbol_of_column[i] = mist_expr_symbol_index(pool, out->columns[i]);
    }
    for (int i = 0; i < MIST_STAGE_N_CUTS; i++) {
        out->cuts[i] = mist_expr_symbol(pool, cut_names[i]);
        if (out->cuts[i] != MIST_EXPR_ERROR)
            model->symbol_of_cut[i] = mist_expr_symbol_index(pool, out->cuts[i]);
    }
    for (int i = 0; i < MIST_STAGE_VALUES_USED; i++) {
        out->values[i] = make_value(pool, i);
        if (out->values[i] == MIST_EXPR_ERROR)
            continue;
        model->symbol_of_value[i] = mist_expr_symbol_index(pool, out->values[i]);
        out->is_uniform[model->symbol_of_value[i]] = true;
    }
}

/* What ratios come to, or nothing. */
static void write_cuts(struct mist_stage_writer *at, const struct symbols *symbols)
{
    const mist_expr *cuts = symbols->cuts, *values = symbols->values;
    mist_expr none = num(at, 0);
    mist_expr n_saved = sub(at, at->n_layers, at->n_checkpointed);
    mist_expr inputs = mul(at, at->n_layers, values[MIST_STAGE_BOUNDARY]);

    for (int r = 0; r < 4; r++)
        at->ratio[r] =
            at->offloads ? symbols->columns[MIST_STAGE_OFFLOAD_WEIGHTS + r] : none;
    for (int k = 0; k < 3; k++)
        for (int r = 0; r < 3; r++)
            at->shares[k][r] =
                at->offloads ? cuts[MIST_STAGE_CUT_SHARE_WEIGHTS + 3 * k + r] : none;
    at->of_block = at->shares[0];
    for (int k = 0; k < 3; k++)
        at->swapped[k] = at->offloads ? cuts[MIST_STAGE_CUT_SWAPPED_0 + k] : none;
    at->kept =
        add(at, inputs, mul(at, n_saved, of(at, MIST_STAGE_SAVED, MIST_LAYER_BLOCK)));
    if (at->offloads)
        at->kept = cuts[MIST_STAGE_CUT_KEPT];
}

static void write_variant(struct mist_stage_model *model, int variant,
                          const struct symbols *symbols,
                          mist_expr outputs[MIST_STAGE_N_OUTPUTS])
{
    struct mist_expr_pool *pool = &model->pool;
    const mist_expr *columns = symbols->columns;
    struct mist_stage_writer at = {
        .pool = pool,
        .interference = mist_cost_model_interference(model->cost_model),
        .is_first = variant & IS_FIRST,
        .is_last = variant & IS_LAST,
        .offloads = variant & OFFLOADS,
        .is_cut = variant & IS_CUT,
        .n_layers = columns[MIST_STAGE_LAYERS],
        .n_checkpointed = columns[MIST_STAGE_CHECKPOINTED],
        .zero = mist_expr_mul(pool, columns[MIST_STAGE_ZERO],
                              symbols->values[MIST_STAGE_IS_DP]),
        .in_flight = columns[MIST_STAGE_IN_FLIGHT],
        .n_micro_batches = columns[MIST_STAGE_MICRO_BATCHES],
        .value = symbols->values,
    };

    at.on_host =
        variant & HOSTS ? columns[MIST_STAGE_UPDATE_ON_HOST] : mist_expr_const(pool, 0);
    write_cuts(&at, symbols);
    mist_stage_model_write_time(&at, outputs);
    mist_stage_model_write_memory(&at, outputs);
}

static enum mist_status compile(struct mist_stage_model *model, struct mist_err *err)
{
    struct symbols symbols;
    mist_expr outputs[MIST_STAGE_N_OUTPUTS];
    enum mist_status status = MIST_OK;

    make_symbols(model, &symbols);
    for (int i = 0; i < N_VARIANTS && status == MIST_OK; i++) {
        if ((i & HOSTS) && !(i & OFFLOADS))
            continue;
        write_variant(model, i, &symbols, outputs);
        status = mist_expr_pool_check(&model->pool, err);
        if (status == MIST_OK)
            status = mist_tape_compile(&model->pool, outputs, MIST_STAGE_N_OUTPUTS,
                                       symbols.is_uniform, &model->tapes[i], err);
        if (status != MIST_OK)
            return status;
        size_t size = mist_tape_scratch_bytes(model->tapes[i]);
        model->scratch_bytes = size > model->scratch_bytes ? size : model->scratch_bytes;
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
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
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
        mist_tape_free(model->tapes[i]);
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
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
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

void mist_stage_values_fini(struct mist_stage_values *values)
{
    free(values->cuts);
    values->cuts = NULL;
}

void mist_stage_model_sends(const struct mist_stage_values *values, double *forward_s,
                            double *backward_s)
{
    *forward_s = values->values[MIST_STAGE_SEND_ACTIVATION];
    *backward_s = values->values[MIST_STAGE_SEND_GRADIENT];
}

/* ------------------------------------------------------------------------ evaluation */

/* Of what is looked up; in front of the tape's. */
enum { CUTS_BYTES = MIST_STAGE_N_CUTS * AT_ONCE * sizeof(double) };

size_t mist_stage_model_scratch_bytes(const struct mist_stage_model *model)
{
    return model->scratch_bytes + CUTS_BYTES;
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
    if ((variant & OFFLOADS) && !is_zero(&columns[MIST_STAGE_UPDATE_ON_HOST]))
        variant |= HOSTS;
    return variant;
}

/* The next configurations, with what their ratios come to. */
static void eval_some(const struct mist_stage_model *model, const struct mist_tape *tape,
                      const struct mist_stage_values *values,
                      const struct mist_tape_input *columns, size_t first, size_t n,
                      struct mist_tape_input *inputs,
                      double *const outputs[MIST_STAGE_N_OUTPUTS], double *scratch)
{
    double *cuts[MIST_STAGE_N_CUTS], *to[MIST_STAGE_N_OUTPUTS];

    for (int i = 0; i < MIST_STAGE_N_CUTS; i++) {
        cuts[i] = scratch + i * AT_ONCE;
        inputs[model->symbol_of_cut[i]] = (struct mist_tape_input){cuts[i], 0};
    }
    for (int i = 0; i < MIST_STAGE_N_COLUMNS; i++)
        if (columns[i].column)
            inputs[model->symbol_of_column[i]].column = columns[i].column + first;
    for (int i = 0; i < MIST_STAGE_N_OUTPUTS; i++)
        to[i] = outputs[i] ? outputs[i] + first : NULL;
    mist_stage_cuts_look_up(values->cuts, columns, first, n, cuts);
    mist_tape_eval(tape, inputs, n, to, scratch + MIST_STAGE_N_CUTS * AT_ONCE);
}

void mist_stage_model_eval(const struct mist_stage_model *model,
                           const struct mist_stage_values *values,
                           const struct mist_tape_input *columns, size_t n,
                           double *const outputs[MIST_STAGE_N_OUTPUTS], void *scratch)
{
    struct mist_tape_input inputs[N_INPUTS] = {{NULL, 0}};
    int variant = choose_variant(&values->shape, columns);

    for (int i = 0; i < MIST_STAGE_VALUES_USED; i++)
        inputs[model->symbol_of_value[i]] =
            (struct mist_tape_input){NULL, values->values[i]};
    for (int i = 0; i < MIST_STAGE_N_COLUMNS; i++)
        inputs[model->symbol_of_column[i]] = columns[i];
    if (!(variant & OFFLOADS)) {
        mist_tape_eval(model->tapes[variant], inputs, n, outputs, scratch);
        return;
    }
    for (size_t first = 0; first < n; first += AT_ONCE)
        eval_some(model, model->tapes[variant], values, columns, first,
                  n - first < AT_ONCE ? n - first : AT_ONCE, inputs, outputs, scratch);
}
