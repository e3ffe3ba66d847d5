/* Initial parameters. See initial.h. */
#include "exec/runtime/initial.h"

#include "exec/runtime/state.h"

#include <math.h>

struct mist_draw mist_initial_draw(const struct mist_model *model, enum mist_init init,
                                   int32_t layer, int32_t i_param, uint64_t seed,
                                   int64_t n)
{
    struct mist_draw draw = {
        .seed = seed,
        .stream = (uint64_t)layer * MIST_MAX_PARAMS + (uint64_t)i_param,
        .n_runs = 1,
        .run_length = n,
        .mean = init == MIST_INIT_ONES,
    };

    if (init != MIST_INIT_ONES && init != MIST_INIT_ZEROS)
        draw.deviation = 0.02; /* GPT-2 */
    if (init == MIST_INIT_NORMAL_RESIDUAL)
        draw.deviation /= sqrt(2.0 * (double)model->n_layers);
    return draw;
}

struct fill {
    const struct mist_plan *plan;
    const struct mist_initial_parts *parts;
    uint64_t seed;
};

/* A piece in memory of the device. */
struct remote_piece {
    const struct mist_initial_parts *parts;
    enum mist_dtype dtype;
    void *data;
    struct mist_draw draw;
};

/* A task of the compute stream. */
static void draw_remotely(void *arg)
{
    const struct remote_piece *at = arg;

    at->parts->operators->draw(at->parts->backend, at->dtype, at->data, &at->draw,
                               at->parts->n_threads);
}

static enum mist_status fill_piece(void *context, const struct mist_state_piece *piece,
                                   void *data, struct mist_err *err)
{
    const struct fill *at = context;
    const struct mist_param_span *span = &piece->span;
    struct mist_draw draw = mist_initial_draw(&at->plan->model, piece->init, piece->layer,
                                              piece->i_param, at->seed, span->length);
    bool is_bf16 = piece->kind == MIST_STATE_COMPUTE_WEIGHT;

    draw.first = span->global_first;
    draw.run_stride = span->global_stride;
    draw.n_runs = span->n_runs;
    if (!piece->is_remote) {
        mist_cpu_draw(data, is_bf16, &draw, at->parts->n_threads);
        return MIST_OK;
    }
    struct remote_piece remote = {at->parts, is_bf16 ? MIST_DTYPE_BF16 : MIST_DTYPE_FP32,
                                  data, draw};
    mist_device_submit(at->parts->device, MIST_STREAM_COMPUTE, draw_remotely, &remote);
    return mist_device_synchronize(at->parts->device, err);
}

enum mist_status mist_initial_fill(const struct mist_plan *plan,
                                   const struct mist_schedule *schedule,
                                   const struct mist_initial_parts *parts, uint64_t seed,
                                   struct mist_err *err)
{
    static const enum mist_state_kind kinds[] = {MIST_STATE_WEIGHT,
                                                 MIST_STATE_COMPUTE_WEIGHT};
    struct fill at = {plan, parts, seed};
    enum mist_status status = MIST_OK;

    for (int i = 0; i < 2 && status == MIST_OK; i++)
        status = mist_state_write(plan, schedule, parts->device, kinds[i], true,
                                  fill_piece, &at, err);
    return status;
}
