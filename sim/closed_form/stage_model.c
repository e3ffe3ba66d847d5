/* Prices shapes, compiles and evaluates the expressions. See stage_model.h. */
#include "sim/closed_form/stage_model.h"

#include "sim/closed_form/stage_model_internal.h"
#include "sim/model/framework.h"
#include "sim/schedule/schedule.h" /* where a stage steps and sums */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Variants of the expressions: bits, and the level of ZeRO among them. What a configuration
 * does not offload, update on the host, make lean or cut over ranks has no terms at all. */
enum {
    OFFLOADS = 1, /* of the configuration */
    HOSTS = 2,    /* updates on the host; with OFFLOADS */
    HAS_LEAN = 4,
    ZERO_1 = 8,
    N_OF_KNOBS = 4 * ZERO_1,
    IS_FIRST = N_OF_KNOBS, /* of the shape */
    IS_LAST = 2 * IS_FIRST,
    IS_CUT = 2 * IS_LAST,
    IS_OF_FIRST = 2 * IS_CUT,
    N_VARIANTS = 2 * IS_OF_FIRST
};

enum {
    N_SYMBOLS = MIST_STAGE_N_COLUMNS + MIST_STAGE_VALUES_USED,
    N_AT_ONCE = 4096 /* configurations that are sorted by their variants */
};

struct mist_stage_model {
    struct mist_model model;
    const struct mist_cost_model *cost_model; /* borrowed */
    struct mist_job job;
    int32_t threads;
    pthread_mutex_t lock; /* of what follows */
    /* Of what is searched by, of the passes; NULL: not asked for yet. */
    struct mist_tape *tapes[N_VARIANTS][2];
};

/* ---------------------------------------------------------------------- construction */

/* Symbols of the columns, and behind them of the values, in this order. */
static void make_symbols(struct mist_expr_pool *pool, mist_expr symbols[N_SYMBOLS],
                         bool is_uniform[N_SYMBOLS])
{
    for (int i = 0; i < N_SYMBOLS; i++) {
        symbols[i] = mist_expr_symbol(pool, i);
        is_uniform[i] = i >= MIST_STAGE_IN_FLIGHT;
    }
}

static void write_variant(const struct mist_stage_model *model,
                          struct mist_expr_pool *pool, int variant,
                          const mist_expr *columns, const mist_expr *values,
                          mist_expr outputs[MIST_STAGE_N_OUTPUTS])
{
    int32_t i_stage = variant & (IS_FIRST | IS_OF_FIRST) ? 0 : 1;
    mist_expr none = mist_expr_const(pool, 0);
    struct mist_stage_writer at = {
        .pool = pool,
        .interference = mist_cost_model_interference(model->cost_model),
        .is_first = variant & IS_FIRST,
        .is_last = variant & IS_LAST,
        .is_of_first = i_stage == 0,
        .is_ahead = mist_schedule_steps_in_front(&model->job, i_stage),
        .puts_off = mist_schedule_sums_behind(&model->job, i_stage),
        .offloads = variant & OFFLOADS,
        .is_cut = variant & IS_CUT,
        .has_lean = variant & HAS_LEAN,
        .on_host = variant & HOSTS,
        .zero = variant % N_OF_KNOBS / ZERO_1,
        .copy_frac =
            mist_framework_copy_bytes(model->job.framework, model->job.gradient_dtype) /
            (double)mist_dtype_state_bytes(model->job.dtype),
        .n_layers = columns[MIST_STAGE_LAYERS],
        .n_checkpointed = columns[MIST_STAGE_CHECKPOINTED],
        .in_flight = columns[MIST_STAGE_IN_FLIGHT],
        .n_micro_batches = columns[MIST_STAGE_MICRO_BATCHES],
        .value = values,
    };

    at.n_lean = at.has_lean ? columns[MIST_STAGE_LEAN] : none;
    for (int r = 0; r < 4; r++)
        at.ratio[r] = at.offloads ? columns[MIST_STAGE_OFFLOAD_WEIGHTS + r] : none;
    mist_stage_model_write_time(&at, outputs);
    mist_stage_model_write_memory(&at, outputs);
}

/* Outputs of the two tapes of a variant. */
static const int first_output[] = {0, MIST_STAGE_N_SEARCHED, MIST_STAGE_N_OUTPUTS};

static enum mist_status compile(struct mist_stage_model *model, int variant,
                                struct mist_err *err)
{
    mist_expr symbols[N_SYMBOLS], outputs[MIST_STAGE_N_OUTPUTS];
    bool is_uniform[N_SYMBOLS];
    struct mist_tape **tapes = model->tapes[variant];
    struct mist_expr_pool pool;

    mist_expr_pool_init(&pool);
    make_symbols(&pool, symbols, is_uniform);
    write_variant(model, &pool, variant, symbols, symbols + MIST_STAGE_N_COLUMNS,
                  outputs);
    enum mist_status status = mist_expr_pool_check(&pool, err);
    for (int k = 0; k < 2 && status == MIST_OK; k++)
        status = mist_tape_compile(&pool, outputs + first_output[k],
                                   first_output[k + 1] - first_output[k], is_uniform,
                                   &tapes[k], err);
    mist_expr_pool_fini(&pool);
    if (status != MIST_OK) {
        mist_tape_free(tapes[0]);
        tapes[0] = NULL;
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
    if (pthread_mutex_init(&model->lock, NULL) != 0) {
        free(model);
        return mist_err_set(err, MIST_ERR_RUN, "a mutex could not be made");
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
    pthread_mutex_destroy(&model->lock);
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
            .cp = shape->cp,
            .is_sequence_parallel = shape->is_sequence_parallel,
        };
    enum mist_status status = mist_stage_model_price(
        model->cost_model, model->threads, plan, shape->is_first ? 0 : 1, out, err);
    if (status == MIST_OK)
        out->shape = *shape;
    free(plan);
    return status;
}

void mist_stage_model_sends(const struct mist_stage_values *values, double *forward_s,
                            double *backward_s)
{
    *forward_s = values->values[MIST_STAGE_SEND_ACTIVATION];
    *backward_s = values->values[MIST_STAGE_SEND_GRADIENT];
}

double mist_stage_model_exchange_s(const struct mist_stage_values *values)
{
    return values->values[MIST_STAGE_EXCHANGE];
}

/* ------------------------------------------------------------------------ evaluation */

/* Configurations of one call, by what their variants have of their knobs. */
struct sorting {
    int32_t rows[N_AT_ONCE]; /* variant by variant */
    uint8_t variant[N_AT_ONCE];
    int32_t end[N_OF_KNOBS]; /* in rows */
};

/* What the variants of all configurations of a shape have of it. */
static int of_shape(const struct mist_stage_shape *shape)
{
    return (shape->is_first ? IS_FIRST : 0) | (shape->is_last ? IS_LAST : 0) |
           (shape->tp > 1 || shape->cp > 1 ? IS_CUT : 0) |
           (shape->is_of_first ? IS_OF_FIRST : 0);
}

/* Sets a bit in the variants of those where a column is above 0. */
static void mark(const struct mist_tape_input *column, int bit, size_t first, size_t n,
                 uint8_t *variants)
{
    const double *values = column->column ? column->column + first : NULL;

    if (!values && column->value <= 0)
        return;
    for (size_t i = 0; i < n; i++)
        variants[i] = (uint8_t)(variants[i] | (!values || values[i] > 0 ? bit : 0));
}

static void find_variants(const struct mist_stage_shape *shape,
                          const struct mist_tape_input *columns, size_t first, size_t n,
                          uint8_t *variants)
{
    bool has_ranks = shape->dp > 1 || shape->cp > 1;
    const double *levels =
        columns[MIST_STAGE_ZERO].column ? columns[MIST_STAGE_ZERO].column + first : NULL;

    for (size_t i = 0; i < n; i++) {
        int level = (int)(levels ? levels[i] : columns[MIST_STAGE_ZERO].value);
        variants[i] = (uint8_t)(has_ranks ? level * ZERO_1 : 0);
    }
    for (int k = MIST_STAGE_OFFLOAD_WEIGHTS; k <= MIST_STAGE_OFFLOAD_ACTIVATIONS; k++)
        mark(&columns[k], OFFLOADS, first, n, variants);
    mark(&columns[MIST_STAGE_LEAN], HAS_LEAN, first, n, variants);
    mark(&columns[MIST_STAGE_UPDATE_ON_HOST], HOSTS, first, n, variants);
}

/* Sorts configurations first .. first + n - 1. */
static void sort(const struct mist_stage_shape *shape,
                 const struct mist_tape_input *columns, size_t first, size_t n,
                 struct sorting *out)
{
    int32_t sum = 0;

    find_variants(shape, columns, first, n, out->variant);
    memset(out->end, 0, sizeof out->end);
    for (size_t i = 0; i < n; i++)
        out->end[out->variant[i]]++;
    for (int v = 0; v < N_OF_KNOBS; v++) {
        int32_t begin = sum;
        sum += out->end[v];
        out->end[v] = begin;
    }
    for (size_t i = 0; i < n; i++)
        out->rows[out->end[out->variant[i]]++] = (int32_t)(first + i);
}

static bool is_any(double *const *outputs, int n)
{
    for (int i = 0; i < n; i++)
        if (outputs[i])
            return true;
    return false;
}

/* The tape of outputs k of a variant. */
static enum mist_status find_tape(struct mist_stage_model *model, int variant, int k,
                                  const struct mist_tape **out, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    pthread_mutex_lock(&model->lock);
    if (!model->tapes[variant][k])
        status = compile(model, variant, err);
    *out = model->tapes[variant][k];
    pthread_mutex_unlock(&model->lock);
    return status;
}

static enum mist_status eval_variant(struct mist_stage_model *model, int variant,
                                     const struct mist_tape_input inputs[N_SYMBOLS],
                                     const int32_t *rows, size_t n,
                                     double *const *outputs, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int k = 0; k < 2 && status == MIST_OK; k++) {
        const struct mist_tape *tape;
        if (!is_any(outputs + first_output[k], first_output[k + 1] - first_output[k]))
            continue;
        status = find_tape(model, variant, k, &tape, err);
        if (status != MIST_OK)
            break;
        void *scratch = aligned_alloc(64, (mist_tape_scratch_bytes(tape) + 63) / 64 * 64);
        if (scratch)
            mist_tape_eval(tape, inputs, rows, n, outputs + first_output[k], scratch);
        else
            status = mist_err_memory(err, NULL);
        free(scratch);
    }
    return status;
}

enum mist_status mist_stage_model_eval(struct mist_stage_model *model,
                                       const struct mist_stage_values *values,
                                       const struct mist_tape_input *columns, size_t n,
                                       double *const outputs[MIST_STAGE_N_OUTPUTS],
                                       struct mist_err *err)
{
    const int shared = of_shape(&values->shape);
    struct mist_tape_input inputs[N_SYMBOLS];
    enum mist_status status = MIST_OK;
    struct sorting sorted;

    memcpy(inputs, columns, MIST_STAGE_N_COLUMNS * sizeof *inputs);
    for (int i = 0; i < MIST_STAGE_VALUES_USED; i++)
        inputs[MIST_STAGE_N_COLUMNS + i] =
            (struct mist_tape_input){NULL, values->values[i]};
    for (size_t first = 0; first < n && status == MIST_OK; first += N_AT_ONCE) {
        int32_t begin = 0;
        sort(&values->shape, columns, first,
             n - first < N_AT_ONCE ? n - first : N_AT_ONCE, &sorted);
        for (int v = 0; v < N_OF_KNOBS && status == MIST_OK; begin = sorted.end[v++])
            if (sorted.end[v] > begin)
                status = eval_variant(model, shared | v, inputs, sorted.rows + begin,
                                      (size_t)(sorted.end[v] - begin), outputs, err);
    }
    return status;
}
