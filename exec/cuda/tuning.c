/* The file of choices, and what is chosen. See operators.h. */
#include "exec/cuda/operators.h"

#include "core/atomic_file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Enough for about ten algorithms of every product of a model of a few billion parameters
 * at four batch sizes, and once only. */
static const double budget_s = 4;

bool mist_cuda_tuning_path(char *path, size_t path_bytes)
{
    const char *chosen = getenv("MIST_CUDA_ALGORITHMS");
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = 0;

    if (chosen)
        length = snprintf(path, path_bytes, "%s", chosen);
    else if (cache && *cache == '/')
        length = snprintf(path, path_bytes, "%s/mist/cublaslt.csv", cache);
    else if (home && *home == '/')
        length = snprintf(path, path_bytes, "%s/.cache/mist/cublaslt.csv", home);
    return length > 0 && (size_t)length < path_bytes;
}

/* The three products of a chunk of rows. */
static void expect_loss(struct mist_cuda_gemm *gemm, const struct mist_cuda_linear *at,
                        int64_t rows)
{
    struct mist_cuda_linear chunk = *at;

    chunk.rows = rows;
    if (rows == 0)
        return;
    mist_cuda_gemm_expect(gemm, &chunk, MIST_CUDA_FORWARD);
    mist_cuda_gemm_expect(gemm, &chunk, MIST_CUDA_BACKWARD_INPUT);
    mist_cuda_gemm_expect(gemm, &chunk, MIST_CUDA_BACKWARD_WEIGHT);
}

void mist_cuda_tuning_expect(struct mist_cuda_gemm *gemm,
                             const struct mist_step_args *args,
                             const struct mist_cuda_linear *at)
{
    const struct mist_step *step = args->step;
    bool is_gelu = step->op == MIST_OP_LINEAR_GELU, has_bias = step->params[1] >= 0;
    bool has_gelu = /* in its epilogue */
        is_gelu && mist_model_activation(args->model) == MIST_ACTIVATION_GELU;
    enum mist_cuda_gemm_product product = MIST_CUDA_FORWARD;

    if (step->op == MIST_OP_LINEAR_CROSS_ENTROPY) {
        int64_t whole = mist_step_loss_rows(args, 0);

        expect_loss(gemm, at, whole);
        expect_loss(gemm, at, at->rows % whole);
        return;
    }
    if (!is_gelu && step->op != MIST_OP_LINEAR && step->op != MIST_OP_LINEAR_BIAS &&
        step->op != MIST_OP_LINEAR_RESIDUAL)
        return;
    if (step->phase == MIST_PHASE_BACKWARD_INPUT)
        product = has_gelu ? MIST_CUDA_BACKWARD_INPUT_GELU : MIST_CUDA_BACKWARD_INPUT;
    else if (step->phase == MIST_PHASE_BACKWARD_WEIGHT)
        product = has_bias ? MIST_CUDA_BACKWARD_WEIGHT_BIAS : MIST_CUDA_BACKWARD_WEIGHT;
    else if (has_gelu)
        product = has_bias ? MIST_CUDA_FORWARD_BIAS_GELU : MIST_CUDA_FORWARD_GELU;
    else if (has_bias)
        product = MIST_CUDA_FORWARD_BIAS;
    mist_cuda_gemm_expect(gemm, at, product);
    if (product == MIST_CUDA_FORWARD_BIAS && step->adds_bias_once && args->tp > 1)
        mist_cuda_gemm_expect(gemm, at, MIST_CUDA_FORWARD); /* of ranks but the first */
}

enum mist_status mist_cuda_tuning_run(struct mist_cuda_gemm *gemm,
                                      struct mist_cuda_device *device,
                                      struct mist_err *err)
{
    char path[PATH_MAX], folder[PATH_MAX];
    struct mist_cuda_gemm_tuning tuning = {
        .device_name = device->name,
        .memory = mist_device_arena(&device->base, MIST_ARENA_DEVICE),
        .memory_bytes = mist_device_arena_bytes(&device->base, MIST_ARENA_DEVICE),
        .budget_s = budget_s,
        .clock = &mist_cuda_gemm_clock_events};

    if (mist_cuda_tuning_path(path, sizeof path)) {
        memcpy(folder, path, sizeof folder);
        char *slash = strrchr(folder, '/');
        if (slash && slash > folder) {
            *slash = '\0';
            (void)!mist_make_directory(folder, NULL); /* the file's error says it */
        }
        tuning.path = path;
    }
    return mist_cuda_gemm_tune(gemm, device->streams[MIST_STREAM_COMPUTE],
                               device->workspaces[MIST_STREAM_COMPUTE], &tuning, err);
}
