/* Pieces of whole parameters in the buffers of a rank. See state.h. */
#include "exec/runtime/state.h"

#include <stdlib.h>
#include <string.h>

/* One array of a slab: elements first .. first + n - 1 of it. */
struct array {
    char *data;
    int32_t element_bytes;
    int64_t first, n;
    bool is_remote; /* not for the host to touch */
    bool is_weight; /* as computed with: no state */
};

struct walk {
    const struct mist_schedule *schedule;
    const struct mist_layer_layout *layout;
    const struct mist_module_storage *storage;
    int32_t layer, tp;
    struct mist_state_choice choice;
    mist_state_read_fn *read; /* one of the two; the other is NULL */
    mist_state_write_fn *write;
    bool is_in_place;
    void *context;
    struct mist_err *err;
};

/* The part of a span that lies in array, run by run: at most a broken run at either end
 * and whole runs between. local is the span's first element in the slab. */
static enum mist_status visit_span(const struct walk *at, int32_t i_param,
                                   const struct mist_param_span *span, int64_t local,
                                   const struct array *array)
{
    int64_t first = array->first > local ? array->first : local;
    int64_t end = local + span->length * span->n_runs;

    end = end < array->first + array->n ? end : array->first + array->n;
    while (first < end) {
        int64_t run = (first - local) / span->length;
        int64_t in_run = (first - local) % span->length;
        int64_t n_runs = (end - first) / span->length;
        int64_t length = span->length - in_run;
        if (in_run > 0 || n_runs == 0)
            n_runs = 1;
        else
            length = span->length;
        if (length > end - first)
            length = end - first;
        bool is_tied = at->layout->params[i_param].is_tied;
        struct mist_state_piece piece = {
            .layer = is_tied ? 0 : at->layer,
            .i_param = is_tied ? 0 : i_param,
            .param_name = is_tied ? "wte" : at->layout->params[i_param].name,
            .shape = &at->layout->params[i_param].shape,
            .init = at->layout->params[i_param].init,
            .kind = at->choice.kind,
            .is_remote = array->is_remote,
            .span = {.global_first =
                         span->global_first + run * span->global_stride + in_run,
                     .length = length,
                     .n_runs = n_runs,
                     .global_stride = span->global_stride,
                     .is_owned = span->is_owned},
        };
        char *data = array->data + (first - array->first) * array->element_bytes;
        enum mist_status status = at->read
                                      ? at->read(at->context, &piece, data, at->err)
                                      : at->write(at->context, &piece, data, at->err);
        if (status != MIST_OK)
            return status;
        first += n_runs * length;
    }
    return MIST_OK;
}

/* Whether a parameter is in a slab and among the chosen ones. */
static bool is_chosen(const struct walk *at, int32_t i_param, int32_t i_slab)
{
    const struct mist_state_choice *choice = &at->choice;

    if (at->storage->param_slab[i_param] != i_slab ||
        (choice->is_owned_only && at->layout->params[i_param].is_tied))
        return false;
    return !choice->param_name ||
           (choice->layer == at->layer &&
            strcmp(choice->param_name, at->layout->params[i_param].name) == 0);
}

static enum mist_status visit_slab(const struct walk *at, int32_t i_slab,
                                   const struct array *array)
{
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < at->layout->n_params; i++) {
        struct mist_param_span spans[MIST_MAX_SECTIONS];
        const struct mist_param_shape *shape = &at->layout->params[i].shape;
        if (!is_chosen(at, i, i_slab))
            continue;
        int32_t n =
            mist_param_spans(shape, at->tp, at->schedule->at[MIST_AXIS_TP], spans);
        for (int32_t k = 0; k < n && status == MIST_OK; k++) {
            if (at->choice.is_owned_only && !spans[k].is_owned)
                continue;
            status =
                visit_span(at, i, &spans[k],
                           at->storage->param_offset[i] + spans[k].local_first, array);
        }
    }
    return status;
}

/* Where a kind of state of a slab lies on this rank; n 0: nowhere. */
static struct array find_array(const struct walk *at, const struct mist_plan *plan,
                               const struct mist_device *device, int32_t i_slab)
{
    const struct mist_slab *slab = &at->storage->slabs[i_slab];
    bool is_bf16 = plan->job.dtype == MIST_DTYPE_BF16;
    bool is_weight = at->choice.kind == MIST_STATE_COMPUTE_WEIGHT ||
                     (at->choice.kind == MIST_STATE_WEIGHT && !is_bf16);
    int32_t id = mist_schedule_find_buffer(
        at->schedule, at->layer,
        is_weight ? (enum mist_role)(MIST_ROLE_WEIGHTS + i_slab) : MIST_ROLE_STATE,
        i_slab);

    if (id < 0 || (at->choice.kind == MIST_STATE_COMPUTE_WEIGHT && !is_bf16))
        return (struct array){0};
    const struct mist_buffer *buffer = &at->schedule->buffers[id];
    char *data = (char *)mist_device_arena(device, buffer->arena) + buffer->offset_bytes;
    int32_t element_bytes =
        is_weight ? mist_dtype_weight_bytes(plan->job.dtype) : (int32_t)sizeof(float);
    int64_t n = buffer->size_bytes /
                (is_weight ? element_bytes : mist_dtype_state_bytes(plan->job.dtype));
    int64_t first = n < slab->n_elements ? n * at->schedule->i_replica : 0;

    if (!is_weight) { /* moments, then the master weights */
        enum mist_state_kind kind = at->choice.kind;
        int i = kind == MIST_STATE_WEIGHT ? 2 : kind == MIST_STATE_MOMENT2;
        data += i * n * element_bytes;
    }
    return (struct array){data,
                          element_bytes,
                          first,
                          n,
                          !mist_device_is_addressable(device, buffer->arena),
                          is_weight};
}

/* This rank's share of an array that others hold, too. */
static struct array own_share(const struct walk *at, const struct mist_plan *plan,
                              int32_t i_slab, struct array array)
{
    int64_t share = at->storage->slabs[i_slab].n_elements /
                    mist_stage_n_replicas(&plan->stages[at->schedule->i_stage]);
    int64_t first = share * at->schedule->i_replica;

    if (array.n <= share)
        return array;
    array.data += (first - array.first) * array.element_bytes;
    array.first = first;
    array.n = share;
    return array;
}

/* A slab in memory of the device: through a copy. */
static enum mist_status visit_remote(const struct walk *at, int32_t i_slab,
                                     struct array array, struct mist_device *device)
{
    int64_t bytes = array.n * array.element_bytes;
    char *remote = array.data;
    struct mist_err *err = at->err;

    array.is_remote = false;
    array.data = calloc(1, (size_t)bytes); /* padding is zero */
    if (!array.data)
        return mist_err_memory(err, NULL);
    enum mist_status status =
        at->read ? mist_device_read(device, array.data, remote, bytes, err) : MIST_OK;
    if (status == MIST_OK)
        status = visit_slab(at, i_slab, &array);
    if (status == MIST_OK && at->write)
        status = mist_device_write(device, remote, array.data, bytes, err);
    free(array.data);
    return status;
}

/* Updates on the host read weights of their own there, which keep up with their home. */
static enum mist_status renew_host_copy(const struct walk *at, const struct array *home,
                                        struct mist_device *device, int32_t i_slab)
{
    int32_t id = mist_schedule_find_host_copy(
        at->schedule, at->layer, (enum mist_role)(MIST_ROLE_WEIGHTS + i_slab), i_slab);

    if (id < 0 || !home->is_weight)
        return MIST_OK;
    const struct mist_buffer *buffer = &at->schedule->buffers[id];
    int64_t n = buffer->size_bytes / home->element_bytes;
    int64_t first =
        n < at->storage->slabs[i_slab].n_elements ? n * at->schedule->i_replica : 0;
    return mist_device_read(
        device, (char *)mist_device_arena(device, buffer->arena) + buffer->offset_bytes,
        home->data + (first - home->first) * home->element_bytes, buffer->size_bytes,
        at->err);
}

/* The slabs of a module that have something chosen. */
static enum mist_status visit_module(const struct walk *at, const struct mist_plan *plan,
                                     struct mist_device *device)
{
    enum mist_status status = MIST_OK;

    for (int32_t s = 0; s < at->storage->n_slabs && status == MIST_OK; s++) {
        struct array array = find_array(at, plan, device, s);
        const struct array home = array;
        int32_t i = 0;
        while (i < at->layout->n_params && !is_chosen(at, i, s))
            i++;
        if (array.n == 0 || i == at->layout->n_params)
            continue;
        if (at->choice.is_owned_only)
            array = own_share(at, plan, s, array);
        if (array.is_remote && !at->is_in_place)
            status = visit_remote(at, s, array, device);
        else
            status = visit_slab(at, s, &array);
        if (status == MIST_OK && at->write)
            status = renew_host_copy(at, &home, device, s);
    }
    return status;
}

/* The rest of at, module by module. */
static enum mist_status walk(struct walk *at, const struct mist_plan *plan,
                             const struct mist_schedule *schedule,
                             struct mist_device *device)
{
    enum mist_status status = MIST_OK;

    at->schedule = schedule;
    at->tp = plan->stages[schedule->i_stage].tp;
    for (int32_t m = 0; m < schedule->n_modules && status == MIST_OK; m++) {
        at->layer = schedule->modules[m];
        at->layout =
            &schedule->layouts[mist_schedule_layer_kind(&plan->model, at->layer)];
        at->storage = &schedule->storage[m];
        status = visit_module(at, plan, device);
    }
    return status;
}

enum mist_status
mist_state_read(const struct mist_plan *plan, const struct mist_schedule *schedule,
                struct mist_device *device, const struct mist_state_choice *choice,
                mist_state_read_fn *fn, void *context, struct mist_err *err)
{
    struct walk at = {.choice = *choice, .read = fn, .context = context, .err = err};

    return walk(&at, plan, schedule, device);
}

enum mist_status mist_state_write(const struct mist_plan *plan,
                                  const struct mist_schedule *schedule,
                                  struct mist_device *device, enum mist_state_kind kind,
                                  bool is_in_place, mist_state_write_fn *fn,
                                  void *context, struct mist_err *err)
{
    struct walk at = {.choice = {.kind = kind},
                      .write = fn,
                      .is_in_place = is_in_place,
                      .context = context,
                      .err = err};

    return walk(&at, plan, schedule, device);
}
