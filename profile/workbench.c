/* The stage that everything is timed on. See workbench.h. */
#include "profile/workbench_internal.h"

#include "core/clock.h"
#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, N_COPIES_LEAST = 4 };

static const int64_t least_region_bytes = 64 << 20; /* beyond the last cache */

static const double deadline_s = 120; /* of waits for other ranks: as comm.h's */
static const double most_hold_s = 60; /* then the device takes no more work */
static const double hold_sleep_s = 20e-6;
static const int most_attempts = 4; /* of a run whose recording is lost */

/* ------------------------------------------------------------------------------ sizes */

/* Hands out aligned pieces of an arena; with base NULL it only counts. */
struct carver {
    char *base;
    int64_t used_bytes;
};

static char *carve(struct carver *carver, int64_t size_bytes)
{
    char *at = carver->base ? carver->base + carver->used_bytes : NULL;

    carver->used_bytes += mist_align_up(size_bytes, ALIGNMENT);
    return at;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What all variants of a kind of module need. */
struct needs {
    int64_t saved, scratch, boundary, constant; /* bytes */
};

static struct needs needs_of(const struct mist_grid *grid, enum mist_layer_kind kind)
{
    struct needs out = {0};

    for (int32_t i = 0; i < grid->n_variants; i++) {
        const struct mist_layer_layout *layout =
            mist_grid_layout(grid, i, grid->config.n_micro_batches - 1, kind);
        out.saved = larger(out.saved, layout->saved_bytes);
        out.scratch = larger(out.scratch, layout->scratch_forward_bytes);
        out.scratch = larger(out.scratch, layout->scratch_backward_bytes);
        out.boundary = larger(out.boundary, layout->input_bytes);
        out.constant = larger(out.constant, layout->constant_bytes);
    }
    return out;
}

static int64_t scratch_bytes(const struct mist_grid *grid)
{
    int64_t largest = 0;

    for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++)
        largest = larger(largest, needs_of(grid, (enum mist_layer_kind)kind).scratch);
    return largest;
}

static int64_t region_bytes(const struct mist_grid *grid, bool is_copy)
{
    int64_t largest = mist_align_up(mist_grid_largest_bytes(grid, is_copy), ALIGNMENT);

    return larger(largest, grid->config.far_bytes > 0 ? grid->config.far_bytes
                                                      : least_region_bytes);
}

static enum mist_layer_kind kind_of(int32_t i_module, int32_t n_copies)
{
    if (i_module == 0)
        return MIST_LAYER_EMBEDDING;
    return i_module <= n_copies ? MIST_LAYER_BLOCK : MIST_LAYER_HEAD;
}

static struct mist_bench_module carve_module(const struct mist_grid *grid,
                                             enum mist_layer_kind kind,
                                             struct carver *carver)
{
    enum mist_dtype dtype = grid->config.dtype;
    int64_t n = mist_grid_parameter_elements(grid, kind);
    struct mist_bench_module module = {.kind = kind, .n_elements = n};

    module.weights = carve(carver, n * mist_dtype_weight_bytes(dtype));
    module.gradients = carve(carver, n * mist_dtype_gradient_bytes(MIST_DTYPE_FP32));
    module.state = carve(carver, n * mist_dtype_state_bytes(dtype));
    module.saved = carve(carver, needs_of(grid, kind).saved);
    return module;
}

/* Bytes of the weights that AdamW writes beside the modules': of the largest shard. */
static int64_t updated_bytes(const struct mist_grid *grid)
{
    int64_t most = 0;

    for (int32_t i = 0; i < grid->n_shards; i++)
        most = larger(most, grid->shards[i].n);
    return grid->config.dtype == MIST_DTYPE_BF16
               ? most * mist_dtype_weight_bytes(MIST_DTYPE_BF16)
               : 0;
}

/* Lays the device arena out; out->modules and out->boundary may be NULL when counting. */
static void lay_out(const struct mist_grid *grid, int32_t n_copies, struct carver *carver,
                    struct mist_workbench *out)
{
    const struct mist_layer_layout *block =
        mist_workbench_largest_layout(grid, MIST_LAYER_BLOCK);
    struct needs needs = needs_of(grid, MIST_LAYER_BLOCK);

    for (int32_t i = 0; i < n_copies + 2; i++) {
        struct mist_bench_module module =
            carve_module(grid, kind_of(i, n_copies), carver);
        if (out->modules)
            out->modules[i] = module;
    }
    for (int32_t i = 0; i < n_copies + 1; i++) {
        char *at = carve(carver, needs.boundary);
        if (out->boundary)
            out->boundary[i] = at;
    }
    for (int i = 0; i < 2; i++)
        out->boundary_gradient[i] = carve(carver, needs.boundary);
    int64_t n_tokens = block->shape.micro_batch * (int64_t)block->shape.seq;
    out->scratch = carve(carver, scratch_bytes(grid));
    out->tokens = carve(carver, 4 * n_tokens);
    out->targets = carve(carver, 4 * n_tokens);
    out->constant = carve(carver, needs.constant);
    out->updated = carve(carver, updated_bytes(grid));
    out->message_bytes = larger(region_bytes(grid, false), region_bytes(grid, true));
    out->message = carve(carver, out->message_bytes);
    out->host_bytes = region_bytes(grid, true);
}

int64_t mist_workbench_bytes(const struct mist_grid *grid, int32_t n_copies)
{
    struct carver carver = {0};
    struct mist_workbench bench = {0};

    lay_out(grid, n_copies, &carver, &bench);
    return carver.used_bytes + bench.host_bytes;
}

int32_t mist_workbench_n_copies(const struct mist_grid *grid, int64_t limit_bytes)
{
    int32_t n_ranks = grid->config.n_ranks;
    int32_t n = (grid->config.model.n_layers + n_ranks - 1) / n_ranks;

    n = n < N_COPIES_LEAST ? N_COPIES_LEAST : n;
    while (n > 0 && mist_workbench_bytes(grid, n) > limit_bytes)
        n--;
    return n;
}

/* ---------------------------------------------------------------------------- opening */

/* The group of all ranks, and room for transfers. */
static enum mist_status open_collectives(struct mist_workbench *bench,
                                         struct mist_err *err)
{
    int64_t most_bytes = larger(mist_grid_largest_bytes(bench->grid, false),
                                mist_grid_largest_bytes(bench->grid, true));
    int32_t *ranks = malloc((size_t)bench->n_ranks * sizeof *ranks);

    if (!ranks)
        return mist_err_memory(err, NULL);
    for (int32_t i = 0; i < bench->n_ranks; i++)
        ranks[i] = i;
    enum mist_status status = mist_backend_open_collectives(
        bench->place.backend, bench->comm, bench->device, bench->place.is_alone,
        deadline_s, &bench->collectives, err);
    if (status == MIST_OK && bench->n_ranks > 1)
        status = mist_collectives_group(bench->collectives, ranks, bench->n_ranks, 0,
                                        most_bytes, &bench->all, err);
    if (status == MIST_OK && bench->n_ranks > 1)
        status = mist_collectives_reserve(bench->collectives, most_bytes, err);
    free(ranks);
    return status;
}

static enum mist_status open_device(struct mist_workbench *bench, struct mist_err *err)
{
    const struct mist_grid_config *at = &bench->grid->config;
    struct mist_device_config config = {.result_bytes = sizeof(struct mist_tally),
                                        .threads = at->n_threads,
                                        .streams_take_turns = mist_device_takes_turns(
                                            at->n_threads, bench->place.n_processors),
                                        .i_device = bench->place.i_device,
                                        .records = at->n_threads == 0,
                                        .allows_atomics = at->allows_atomics,
                                        .attention = at->attention};

    memcpy(config.arena_bytes, bench->arena_bytes, sizeof config.arena_bytes);
    enum mist_status status =
        bench->place.backend->open_device(&config, &bench->device, err);
    if (status != MIST_OK)
        return status;
    mist_stopwatch_init(&bench->watch, bench->device);
    mist_comm_set_pause(bench->comm, mist_device_pause, bench->device);
    if (mist_device_records(bench->device))
        status = mist_device_start_spans(bench->device, err);
    if (status != MIST_OK)
        return status;
    status = bench->operators->open(bench->device, at->dtype, at->n_threads,
                                    &bench->backend, err);
    if (status != MIST_OK)
        return status;
    /* what a run would have made before its first step */
    int32_t n_layouts =
        bench->grid->n_variants * at->n_micro_batches * MIST_N_LAYER_KINDS;
    return mist_binding_prepare(bench->grid->layouts, n_layouts, 0, &at->model,
                                MIST_DTYPE_FP32, bench->operators, bench->backend, err);
}

enum mist_status mist_workbench_open(const struct mist_grid *grid, int32_t n_copies,
                                     struct mist_comm *comm,
                                     const struct mist_bench_place *place,
                                     struct mist_workbench *out, struct mist_err *err)
{
    struct carver carver = {0};

    *out = (struct mist_workbench){.grid = grid,
                                   .operators = place->backend->operators,
                                   .place = *place,
                                   .comm = comm,
                                   .rank = mist_comm_rank(comm),
                                   .n_ranks = mist_comm_n_ranks(comm),
                                   .node = mist_comm_node(comm),
                                   .n_copies = n_copies};
    lay_out(grid, n_copies, &carver, out);
    if (!MIST_CALLOC(out->modules, (size_t)n_copies + 2) ||
        !MIST_CALLOC(out->boundary, (size_t)n_copies + 1))
        return mist_err_memory(err, NULL);
    out->arena_bytes[MIST_ARENA_DEVICE] = carver.used_bytes;
    out->arena_bytes[MIST_ARENA_HOST] = out->host_bytes;
    enum mist_status status = open_device(out, err);
    if (status != MIST_OK)
        return status;
    carver = (struct carver){.base = mist_device_arena(out->device, MIST_ARENA_DEVICE)};
    lay_out(grid, n_copies, &carver, out);
    out->host = mist_device_arena(out->device, MIST_ARENA_HOST);
    status = mist_workbench_fill(out, err);
    return status == MIST_OK ? open_collectives(out, err) : status;
}

enum mist_stopwatch_work mist_workbench_message_work(const struct mist_workbench *bench)
{
    /* "mpi" and "staged" communicate in memory of the host */
    return strcmp(bench->collectives->ops->name, "nccl") == 0 ? MIST_WORK_OF_DEVICE
                                                              : MIST_WORK_OF_HOST;
}

bool mist_workbench_is_on_host(const struct mist_workbench *bench)
{
    return bench->device->ops->is_host;
}

void mist_workbench_close(struct mist_workbench *bench)
{
    if (bench->comm)
        mist_comm_set_pause(bench->comm, NULL, NULL);
    mist_collectives_close(bench->collectives);
    if (bench->operators)
        bench->operators->close(bench->backend);
    mist_device_close(bench->device);
    mist_stopwatch_fini(&bench->watch);
    free(bench->modules);
    free(bench->boundary);
    *bench = (struct mist_workbench){0};
}

void mist_workbench_bind(const struct mist_workbench *bench, int32_t i_variant,
                         int32_t i_micro_batch, int32_t i_module,
                         struct mist_binding *out)
{
    const struct mist_bench_module *module = &bench->modules[i_module];
    const struct mist_layer_layout *layout =
        mist_grid_layout(bench->grid, i_variant, i_micro_batch, module->kind);

    *out = (struct mist_binding){
        .layout = layout,
        .storage = NULL,
        .model = &bench->grid->config.model,
        .i_tp = bench->rank % layout->shape.tp,
        .n_threads = bench->grid->config.n_threads,
        .loss_scale = 1.0f / (float)(layout->shape.micro_batch * layout->shape.seq),
        .backend = bench->backend,
    };
    out->base[MIST_ROLE_SAVED] = module->saved;
    out->base[MIST_ROLE_SCRATCH] = bench->scratch;
    out->base[MIST_ROLE_WEIGHTS] = module->weights;
    out->base[MIST_ROLE_GRADIENTS] = module->gradients;
    out->base[MIST_ROLE_TOKENS] = bench->tokens;
    out->base[MIST_ROLE_TARGETS] = bench->targets;
    out->base[MIST_ROLE_CONSTANT] = bench->constant;
    if (i_module > 0) {
        out->base[MIST_ROLE_INPUT] = bench->boundary[i_module - 1];
        out->base[MIST_ROLE_GRAD_INPUT] = bench->boundary_gradient[(i_module - 1) % 2];
    }
    if (i_module <= bench->n_copies) {
        out->base[MIST_ROLE_OUTPUT] = bench->boundary[i_module];
        out->base[MIST_ROLE_GRAD_OUTPUT] = bench->boundary_gradient[i_module % 2];
    }
}

void mist_workbench_stand_in(const struct mist_workbench *bench,
                             const struct mist_step_args *args)
{
    char *to = args->operands[MIST_ARG_OUT];
    const char *from = args->operands[MIST_ARG_TP_FROM];
    int64_t shard_bytes = args->step->dims[0] / args->tp;

    if (args->step->op == MIST_OP_TP_ALL_GATHER)
        for (int32_t i = 0; i < args->tp; i++)
            mist_device_copy(bench->device, to + i * shard_bytes, from, shard_bytes);
    else if (args->step->op == MIST_OP_TP_REDUCE_SCATTER)
        mist_device_copy(bench->device, to, from + args->i_tp * shard_bytes, shard_bytes);
}

void mist_workbench_compute(struct mist_workbench *bench, int64_t n_steps, int64_t *turn)
{
    while (n_steps > 0) {
        struct mist_binding binding;
        mist_workbench_bind(bench, 0, 0, 1 + (int32_t)(++*turn % bench->n_copies),
                            &binding);
        /* always the same gradient, which so neither grows nor vanishes */
        binding.base[MIST_ROLE_GRAD_OUTPUT] = bench->boundary_gradient[0];
        binding.base[MIST_ROLE_GRAD_INPUT] = bench->boundary_gradient[1];
        for (int k = 0; k < 2; k++) {
            enum mist_program_kind program =
                k ? MIST_PROGRAM_BACKWARD : MIST_PROGRAM_FORWARD;
            int32_t n = binding.layout->programs[program].n_steps;
            for (int32_t i = 0; i < n && n_steps > 0; i++, n_steps--) {
                struct mist_step_args args;
                mist_binding_resolve(&binding, program, i, &args);
                bench->operators->run_step(&args);
            }
        }
    }
}

static void zero(struct mist_workbench *bench, char *at, int64_t size_bytes)
{
    bench->operators->zero(bench->backend, MIST_DTYPE_FP32, at,
                           size_bytes / (int64_t)sizeof(float),
                           bench->grid->config.n_threads);
}

void mist_workbench_clear_state(struct mist_workbench *bench, int32_t i_module)
{
    struct mist_bench_module *module = &bench->modules[i_module];

    zero(bench, module->state,
         module->n_elements * mist_dtype_state_bytes(bench->grid->config.dtype));
}

void mist_workbench_clear(struct mist_workbench *bench)
{
    for (int32_t i = 0; i < bench->n_copies + 2; i++) {
        struct mist_bench_module *module = &bench->modules[i];
        mist_workbench_clear_state(bench, i);
        zero(bench, module->gradients, module->n_elements * (int64_t)sizeof(float));
    }
}

/* ---------------------------------------------------------------------------- running */

char *mist_workbench_turn(char *region, int64_t region_bytes, int64_t bytes, int64_t turn)
{
    int64_t stride = mist_align_up(bytes, ALIGNMENT);
    int64_t n_places = region_bytes / stride;

    return region + (n_places > 0 ? turn % n_places : 0) * stride;
}

/* A run ends: waits for it and makes its times known. Whether a rank has none of them,
 * so that all have to do it again; too often is an error. */
static enum mist_status end_run(struct mist_workbench *bench, int *n_attempts,
                                bool *is_lost, struct mist_err *err)
{
    enum mist_status status = mist_device_synchronize(bench->device, err);

    *is_lost = false;
    if (status == MIST_OK)
        status = mist_stopwatch_collect(&bench->watch, err);
    if (status != MIST_OK || !mist_device_records(bench->device))
        return status;
    double loss = bench->watch.loss;
    if (bench->n_ranks > 1)
        status = mist_workbench_max(bench, &loss, err);
    *is_lost = loss > 0;
    bench->n_repeated += *is_lost;
    if (status != MIST_OK || !*is_lost || ++*n_attempts < most_attempts)
        return status;
    return mist_err_set(err, MIST_ERR_RUN,
                        "nothing could be timed in %d attempts, one after the other: %s "
                        "meanwhile",
                        most_attempts, mist_span_loss_text((enum mist_span_loss)loss));
}

enum mist_status mist_workbench_run(struct mist_workbench *bench, enum mist_stream stream,
                                    mist_stream_fn fn, void *arg, int64_t n_spans,
                                    struct mist_err *err)
{
    bool is_lost = true;
    int n_attempts = 0;
    enum mist_status status = MIST_OK;

    while (is_lost && status == MIST_OK) {
        status = mist_stopwatch_reset(&bench->watch, n_spans, err);
        if (status == MIST_OK)
            status = mist_comm_barrier(bench->comm, err);
        if (status != MIST_OK)
            return status;
        mist_device_reset_events(bench->device, 0);
        mist_device_submit(bench->device, stream, fn, arg);
        status = end_run(bench, &n_attempts, &is_lost, err);
    }
    return status;
}

static void meet_on_host(void *arg)
{
    struct mist_workbench *bench = arg;
    struct mist_err err = {0};
    enum mist_status status = mist_comm_barrier(bench->comm, &err);

    if (status != MIST_OK)
        mist_device_fail(bench->device, status, &err);
}

void mist_workbench_meet(struct mist_workbench *bench)
{
    mist_device_call_host(bench->device, meet_on_host, bench);
}

static void hold_on_host(void *arg)
{
    struct mist_workbench *bench = arg;
    struct mist_err err;
    double end_s = mist_clock_now_s() + most_hold_s;

    while (atomic_load(&bench->is_held) && mist_clock_now_s() < end_s)
        mist_clock_sleep_s(hold_sleep_s);
    if (atomic_load(&bench->is_held))
        mist_device_fail(bench->device,
                         mist_err_set(&err, MIST_ERR_RUN,
                                      "the device takes no more work while a stream "
                                      "waits"),
                         &err);
}

void mist_workbench_hold(struct mist_workbench *bench)
{
    if (!mist_workbench_is_on_host(bench))
        mist_device_call_host(bench->device, hold_on_host, bench);
}

enum mist_status mist_workbench_run_held(struct mist_workbench *bench, int32_t n_events,
                                         int64_t n_spans, mist_submit_fn *submit,
                                         void *arg, struct mist_err *err)
{
    bool is_lost = true;
    int n_attempts = 0;
    enum mist_status status = MIST_OK;

    while (is_lost && status == MIST_OK) {
        status = mist_stopwatch_reset(&bench->watch, n_spans, err);
        if (status != MIST_OK)
            return status;
        mist_device_reset_events(bench->device, n_events);
        atomic_store(&bench->is_held, true);
        submit(bench, arg);
        atomic_store(&bench->is_held, false);
        status = end_run(bench, &n_attempts, &is_lost, err);
    }
    return status;
}

/* Estimates of all ranks, one behind the other, into one. */
static enum mist_status pool_gathered(struct mist_estimate *estimates, int32_t n,
                                      const struct mist_estimate *all, int32_t n_ranks,
                                      struct mist_err *err)
{
    struct mist_estimate *parts = malloc((size_t)n_ranks * sizeof *parts);

    if (!parts)
        return mist_err_memory(err, NULL);
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < n_ranks; k++)
            memcpy(&parts[k], &all[k * n + i], sizeof *parts);
        estimates[i] = mist_estimate_pool(parts, (size_t)n_ranks);
    }
    free(parts);
    return MIST_OK;
}

enum mist_status mist_workbench_pool(struct mist_workbench *bench,
                                     struct mist_estimate *estimates, int32_t n,
                                     struct mist_err *err)
{
    int64_t size_bytes = n * (int64_t)sizeof *estimates;
    char *all;
    enum mist_status status =
        mist_comm_gather_bytes(bench->comm, estimates, size_bytes, &all, NULL, err);

    if (status == MIST_OK && all)
        status = pool_gathered(estimates, n, (const struct mist_estimate *)(void *)all,
                               bench->n_ranks, err);
    free(all);
    if (status == MIST_OK)
        status = mist_comm_broadcast_bytes(bench->comm, 0, estimates, size_bytes, err);
    return status;
}

enum mist_status mist_workbench_max(struct mist_workbench *bench, double *value,
                                    struct mist_err *err)
{
    return mist_comm_all_reduce_f64(bench->comm, MIST_COMM_MAX, value, 1, err);
}

enum mist_status mist_workbench_any(struct mist_workbench *bench, bool *value,
                                    struct mist_err *err)
{
    double number = *value ? 1 : 0;
    enum mist_status status = mist_workbench_max(bench, &number, err);

    *value = number > 0;
    return status;
}

void mist_workbench_show_progress(struct mist_workbench *bench)
{
    double spent_s = mist_clock_now_s() - bench->time_start_s;

    if (bench->progress)
        mist_progress_update(bench->progress, (int64_t)spent_s,
                             (int64_t)ceil(fmax(bench->expected_s, spent_s)));
}
