/* What the stage holds at first: a run's first parameters, tokens as texts have them. See
 * workbench.h. */
#include "profile/workbench_internal.h"

#include "core/random.h"
#include "exec/operators/cpu_kernels.h" /* the rotary table */
#include "exec/runtime/initial.h"

#include <math.h>
#include <stdlib.h>

/* Tokens as texts have them: the k-th most frequent comes with probability about 1/k
 * (Zipf's law), so fewer rows of the embedding are touched than by even draws. */
static int32_t draw_token(struct mist_random *random, int32_t vocab)
{
    int32_t token = (int32_t)exp(mist_random_uniform(random) * log(vocab + 1.0)) - 1;

    return token < vocab ? token : vocab - 1;
}

/* A run's first parameters. */
static void draw_module(const struct mist_workbench *bench, int32_t i_module)
{
    const struct mist_grid_config *config = &bench->grid->config;
    const struct mist_bench_module *module = &bench->modules[i_module];
    const struct mist_layer_layout *layout =
        mist_workbench_largest_layout(bench->grid, module->kind);

    for (int32_t i = 0; i < layout->n_params; i++) {
        struct mist_draw draw =
            mist_initial_draw(&config->model, layout->params[i].init, i_module, i, 1,
                              layout->params[i].n_elements);
        bench->operators->draw(bench->backend, config->dtype,
                               module->weights +
                                   layout->params[i].offset *
                                       mist_dtype_weight_bytes(config->dtype),
                               &draw, config->n_threads);
    }
}

/* One block is drawn, the others copy it. */
static void draw_modules(void *arg)
{
    struct mist_workbench *bench = arg;
    const struct mist_bench_module *first = &bench->modules[1];
    int64_t size_bytes =
        first->n_elements * mist_dtype_weight_bytes(bench->grid->config.dtype);

    draw_module(bench, 0);
    draw_module(bench, 1);
    draw_module(bench, bench->n_copies + 1);
    for (int32_t i = 2; i <= bench->n_copies; i++)
        mist_device_copy(bench->device, bench->modules[i].weights, first->weights,
                         size_bytes);
}

/* The rotary table. */
static enum mist_status fill_constant(const struct mist_workbench *bench,
                                      struct mist_err *err)
{
    const struct mist_model *model = &bench->grid->config.model;
    const struct mist_layer_layout *block =
        mist_workbench_largest_layout(bench->grid, MIST_LAYER_BLOCK);
    float *table;

    if (block->constant_bytes == 0)
        return MIST_OK;
    table = malloc((size_t)block->constant_bytes);
    if (!table)
        return mist_err_memory(err, NULL);
    mist_cpu_rope_fill(table, MIST_WHOLE_CHUNKS(block->shape.seq), model);
    enum mist_status status = mist_device_write(bench->device, bench->constant, table,
                                                block->constant_bytes, err);
    free(table);
    return status;
}

static enum mist_status fill_tokens(const struct mist_workbench *bench,
                                    struct mist_err *err)
{
    const struct mist_layer_layout *block =
        mist_workbench_largest_layout(bench->grid, MIST_LAYER_BLOCK);
    int64_t n = block->shape.micro_batch * (int64_t)block->shape.seq;
    char *places[2] = {bench->tokens, bench->targets};
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    enum mist_status status = MIST_OK;
    struct mist_random random;

    if (!ids)
        return mist_err_memory(err, NULL);
    mist_random_init(&random, 1 + (uint64_t)bench->rank);
    for (int k = 0; k < 2 && status == MIST_OK; k++) {
        for (int64_t i = 0; i < n; i++)
            ids[i] = draw_token(&random, bench->grid->config.model.vocab);
        status = mist_device_write(bench->device, places[k], ids,
                                   n * (int64_t)sizeof *ids, err);
    }
    free(ids);
    return status;
}

enum mist_status mist_workbench_fill(struct mist_workbench *bench, struct mist_err *err)
{
    mist_device_submit(bench->device, MIST_STREAM_COMPUTE, draw_modules, bench);
    enum mist_status status = mist_device_synchronize(bench->device, err);
    if (status == MIST_OK)
        status =
            mist_device_clear(bench->device, bench->message, bench->message_bytes, err);
    if (status == MIST_OK)
        status = fill_constant(bench, err);
    return status == MIST_OK ? fill_tokens(bench, err) : status;
}
