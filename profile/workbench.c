/* The stage that everything is timed on. See workbench.h. */
#include "profile/workbench.h"

#include "core/clock.h"
#include "core/memory.h"
#include "core/random.h"
#include "exec/cpu_kernels.h" /* the rotary table */
#include "exec/runtime.h"     /* mist_runtime_fill_parameter */

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, N_COPIES_LEAST = 4, STATES_PER_PARAMETER = 2 };

static const int64_t least_region_bytes = 64 << 20; /* beyond the last cache */

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

/* At the largest micro-batch, whole. */
static const struct mist_layer_layout *largest_layout(const struct mist_grid *grid,
                                                      enum mist_layer_kind kind)
{
    return mist_grid_layout(grid, 0, grid->config.n_micro_batches - 1, kind);
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

    return larger(largest, least_region_bytes);
}

static enum mist_layer_kind kind_of(int32_t i_module, int32_t n_copies)
{
    if (i_module == 0)
        return MIST_LAYER_EMBEDDING;
    return i_module <= n_copies ? MIST_LAYER_BLOCK : MIST_LAYER_HEAD;
}

/* Lays the device arena out; out->modules and out->boundary may be NULL when counting. */
static void lay_out(const struct mist_grid *grid, int32_t n_copies, struct carver *carver,
                    struct mist_workbench *out)
{
    const struct mist_layer_layout *block = largest_layout(grid, MIST_LAYER_BLOCK);
    struct needs needs = needs_of(grid, MIST_LAYER_BLOCK);

    for (int32_t i = 0; i < n_copies + 2; i++) {
        enum mist_layer_kind kind = kind_of(i, n_copies);
        int64_t size = 4 * mist_grid_parameter_elements(grid, kind);
        struct mist_bench_module module = {.kind = kind};
        module.weights = carve(carver, size);
        module.gradients = carve(carver, size);
        module.state_bytes = STATES_PER_PARAMETER * size;
        module.state = carve(carver, module.state_bytes);
        module.saved = carve(carver, needs_of(grid, kind).saved);
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

/* --------------------------------------------------------------------------- contents */

/* Tokens as texts have them: the k-th most frequent comes with probability about 1/k
 * (Zipf's law), so fewer rows of the embedding are touched than by even draws. */
static int32_t draw_token(struct mist_random *random, int32_t vocab)
{
    int32_t token = (int32_t)exp(mist_random_uniform(random) * log(vocab + 1.0)) - 1;

    return token < vocab ? token : vocab - 1;
}

/* A run's first parameters. */
static void fill_module(const struct mist_workbench *bench, int32_t i_module)
{
    const struct mist_bench_module *module = &bench->modules[i_module];
    const struct mist_layer_layout *layout = largest_layout(bench->grid, module->kind);

    for (int32_t i = 0; i < layout->n_params; i++)
        mist_runtime_fill_parameter(&bench->grid->config.model, layout->param_init[i],
                                    i_module, i, 1, 0, layout->param_elements[i],
                                    (float *)(void *)module->weights +
                                        layout->param_offset[i]);
}

/* Filling is slow for large models: one block is drawn, the others copy it. */
static void fill_stage(struct mist_workbench *bench)
{
    const struct mist_model *model = &bench->grid->config.model;
    const struct mist_layer_layout *block = largest_layout(bench->grid, MIST_LAYER_BLOCK);
    int64_t n_tokens = block->shape.micro_batch * (int64_t)block->shape.seq;
    int32_t *ids[2] = {(int32_t *)(void *)bench->tokens,
                       (int32_t *)(void *)bench->targets};
    struct mist_random random;

    for (int32_t i = 0; i < bench->n_copies + 2; i++) {
        struct mist_bench_module *module = &bench->modules[i];
        if (i > 1 && module->kind == MIST_LAYER_BLOCK)
            memcpy(module->weights, bench->modules[1].weights,
                   (size_t)(4 * block->n_parameters));
        else
            fill_module(bench, i);
    }
    if (block->constant_bytes > 0)
        mist_cpu_rope_fill((float *)(void *)bench->constant, block->shape.seq,
                           model->head_dim, model->rope_theta);
    mist_random_init(&random, 1 + (uint64_t)bench->rank);
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < n_tokens; i++)
            ids[k][i] = draw_token(&random, model->vocab);
}

enum mist_status mist_workbench_open(const struct mist_grid *grid, int32_t n_copies,
                                     struct mist_comm *comm,
                                     const struct mist_operators *operators,
                                     struct mist_workbench *out, struct mist_err *err)
{
    struct carver carver = {0};
    struct mist_device_config config = {.result_bytes = sizeof(struct mist_tally),
                                        .threads = grid->config.n_threads};

    *out = (struct mist_workbench){.grid = grid,
                                   .operators = operators,
                                   .comm = comm,
                                   .rank = mist_comm_rank(comm),
                                   .n_ranks = mist_comm_n_ranks(comm),
                                   .node = mist_comm_node(comm),
                                   .n_copies = n_copies};
    lay_out(grid, n_copies, &carver, out);
    out->modules = calloc((size_t)n_copies + 2, sizeof *out->modules);
    out->boundary = calloc((size_t)n_copies + 1, sizeof *out->boundary);
    if (!out->modules || !out->boundary)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    config.arena_bytes[MIST_ARENA_DEVICE] = carver.used_bytes;
    config.arena_bytes[MIST_ARENA_HOST] = out->host_bytes;
    out->arena_bytes = carver.used_bytes + out->host_bytes;
    enum mist_status status = mist_device_open_cpu(&config, &out->device, err);
    if (status != MIST_OK)
        return status;
    mist_comm_set_busy_probe(comm, mist_device_is_computing, out->device);
    status = operators->open(out->device, MIST_DTYPE_FP32, grid->config.n_threads,
                             &out->backend, err);
    carver = (struct carver){.base = mist_device_arena(out->device, MIST_ARENA_DEVICE)};
    lay_out(grid, n_copies, &carver, out);
    out->host = mist_device_arena(out->device, MIST_ARENA_HOST);
    fill_stage(out);
    for (int32_t n = 2; n <= out->n_ranks && status == MIST_OK; n++)
        status = mist_comm_reserve(comm, mist_grid_largest_bytes(grid, false), n, err);
    return status;
}

void mist_workbench_close(struct mist_workbench *bench)
{
    if (bench->comm)
        mist_comm_set_busy_probe(bench->comm, NULL, NULL);
    if (bench->operators)
        bench->operators->close(bench->backend);
    mist_device_close(bench->device);
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

void mist_workbench_clear(struct mist_workbench *bench)
{
    for (int32_t i = 0; i < bench->n_copies + 2; i++) {
        struct mist_bench_module *module = &bench->modules[i];
        memset(module->state, 0, (size_t)module->state_bytes);
        memset(module->gradients, 0,
               (size_t)(module->state_bytes / STATES_PER_PARAMETER));
    }
}

/* ---------------------------------------------------------------------------- running */

char *mist_workbench_turn(char *region, int64_t region_bytes, int64_t bytes, int64_t turn)
{
    int64_t stride = mist_align_up(bytes, ALIGNMENT);
    int64_t n_places = region_bytes / stride;

    return region + (n_places > 0 ? turn % n_places : 0) * stride;
}

enum mist_status mist_workbench_run(struct mist_workbench *bench, enum mist_stream stream,
                                    mist_stream_fn fn, void *arg, struct mist_err *err)
{
    enum mist_status status = mist_comm_barrier(bench->comm, err);

    if (status != MIST_OK)
        return status;
    mist_device_submit(bench->device, stream, fn, arg);
    return mist_device_synchronize(bench->device, err);
}

/* Estimates of all ranks, one behind the other, into one. */
static enum mist_status pool_gathered(struct mist_estimate *estimates, int32_t n,
                                      const struct mist_estimate *all, int32_t n_ranks,
                                      struct mist_err *err)
{
    struct mist_estimate *parts = malloc((size_t)n_ranks * sizeof *parts);

    if (!parts)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
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
    char *all = NULL;
    int64_t *sizes = calloc((size_t)bench->n_ranks, sizeof *sizes);

    if (!sizes)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    enum mist_status status =
        mist_comm_gather_bytes(bench->comm, estimates, size_bytes, &all, sizes, err);
    free(sizes);
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
