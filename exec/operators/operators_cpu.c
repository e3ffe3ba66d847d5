/*
 * The CPU backend's operators; those of a layer's programs are in operators_cpu_steps.c.
 * See operators.h.
 */
#include "exec/operators/operators.h"

#include "core/parse.h"
#include "exec/device/device.h"
#include "exec/operators/cpu_bf16.h"
#include "exec/operators/cpu_kernels.h"
#include "exec/operators/operators_cpu.h"
#include "exec/operators/paths.h"

#include <math.h>
#include <stdio.h>
#include <string.h> /* strlen */

static void adamw(void *backend, enum mist_dtype dtype,
                  const struct mist_adamw_span *spans, int32_t n_spans,
                  const struct mist_adamw_args *args, int32_t n_threads)
{
    bool is_bf16 = dtype == MIST_DTYPE_BF16;

    (void)backend;
    for (int32_t i = 0; i < n_spans; i++) {
        const struct mist_adamw_span *span = &spans[i];
        mist_device_give_turn();
        struct mist_cpu_adamw config = {
            .lr = args->lr,
            .beta1 = args->beta1,
            .beta2 = args->beta2,
            .eps = args->epsilon,
            .weight_decay = span->decays ? args->weight_decay : 0,
            .correction1 = (float)(1 - pow((double)args->beta1, args->t)),
            .correction2 = (float)(1 - pow((double)args->beta2, args->t)),
            .grad_scale = args->gradient_scale,
        };
        mist_cpu_adamw_step(is_bf16 ? span->p : NULL, is_bf16 ? span->master : span->p,
                            span->m, span->v, span->g, span->n, &config, n_threads,
                            mist_operators_cpu_how(span->gradient_dtype));
    }
}

static void draw(void *backend, enum mist_dtype dtype, void *x,
                 const struct mist_draw *what, int32_t n_threads)
{
    (void)backend;
    mist_cpu_draw(x, dtype == MIST_DTYPE_BF16, what, n_threads);
}

static void add(void *backend, enum mist_dtype dtype, void *sum, const void *x, int64_t n,
                int32_t n_threads)
{
    (void)backend;
    mist_cpu_add_forward(dtype == MIST_DTYPE_BF16, sum, sum, x, n, n_threads);
}

static void zero(void *backend, enum mist_dtype dtype, void *x, int64_t n,
                 int32_t n_threads)
{
    (void)backend;
    mist_cpu_zero(x, n * mist_dtype_gradient_bytes(dtype), n_threads);
}

static void sum_squares(void *backend, enum mist_dtype dtype, const void *x, int64_t n,
                        int64_t index_offset, struct mist_tally *tally, int32_t n_threads)
{
    struct mist_cpu_sum sum;

    (void)backend;
    mist_cpu_sum_squares_exact(dtype == MIST_DTYPE_BF16, x, n, &sum, n_threads);
    tally->coarse += sum.coarse;
    tally->fine += sum.fine;
    tally->n_nonfinite += sum.n_nonfinite;
    if (sum.n_nonfinite > 0)
        mist_tally_note_nonfinite(tally, index_offset + sum.first_nonfinite);
}

static void find_nonfinite(void *backend, enum mist_dtype dtype, const void *x, int64_t n,
                           struct mist_tally *tally, int32_t n_threads)
{
    int64_t first = mist_cpu_find_nonfinite(dtype == MIST_DTYPE_BF16, x, n, n_threads);

    (void)backend;
    if (first >= 0) {
        tally->n_nonfinite++;
        mist_tally_note_nonfinite(tally, first);
    }
}

static void sum_losses(void *backend, const float *losses, int64_t n,
                       struct mist_tally *tally)
{
    double sum = 0;

    (void)backend;
    for (int64_t i = 0; i < n; i++)
        sum += (double)losses[i];
    tally->loss_sum += sum;
}

static enum mist_status open_backend(struct mist_device *device, enum mist_dtype dtype,
                                     int32_t n_threads, void **out, struct mist_err *err)
{
    struct mist_cpu_bf16 *context = NULL;
    enum mist_status status =
        dtype == MIST_DTYPE_BF16 ? mist_cpu_bf16_new(&context, n_threads, err) : MIST_OK;

    (void)device;
    *out = context;
    return status;
}

static void close_backend(void *backend)
{
    mist_cpu_bf16_free(backend);
}

static void describe(const void *backend, int32_t n_threads, struct mist_paths *out)
{
    snprintf(out->attention, sizeof out->attention, "own kernels, on oneDNN's products");
    mist_cpu_describe(out->products, sizeof out->products, n_threads);
    if (backend && mist_cpu_bf16_is_widened(backend))
        mist_text_add(out->products, sizeof out->products, "; ",
                      "of bf16 in fp32, since this processor multiplies no bf16");
}

const struct mist_operators mist_operators_cpu = {
    .name = "cpu",
    .open = open_backend,
    .close = close_backend,
    .describe = describe,
    .run_step = mist_operators_cpu_run_step,
    .adamw = adamw,
    .draw = draw,
    .add = add,
    .zero = zero,
    .sum_squares = sum_squares,
    .find_nonfinite = find_nonfinite,
    .sum_losses = sum_losses,
};
