/*
 * Timing the algorithms of a product once. See mist_cuda_gemm_tune() in gemm.h.
 */
#include "exec/cuda/gemm.h"

#include "core/memory.h"
#include "exec/cuda/gemm_internal.h"

/* A product with what goes with it, as it will be called. */
struct job {
    struct mist_cuda_gemm *gemm;
    const struct mist_cuda_linear *at;
    struct mist_gemm_key key;
    struct mist_gemm_operands x;
    float *dbias; /* column sums go with it; NULL: none */
    cublasLtMatmulAlgo_t algo;
    mist_cuda_gemm_clock *clock;
    void *clock_context;
};

static void launch(void *arg)
{
    struct job *job = arg;
    const struct mist_cuda_linear *at = job->at;
    struct mist_gemm_plan *plan = mist_gemm_plan_find(job->gemm, &job->key);

    if (!plan)
        return;
    plan->algo = job->algo;
    if (!mist_gemm_run(job->gemm, plan, at, &job->x) || !job->dbias)
        return;
    if (job->key.epilogue == MIST_GEMM_SUM)
        mist_cuda_add(at->stream, at->gradient_dtype, job->dbias, job->dbias,
                      job->x.vector, at->n_out);
    else
        mist_cuda_column_sum(at->stream, at->dtype, at->gradient_dtype, job->dbias,
                             job->x.b, at->rows, at->n_out, at->overwrites);
}

/* Tunes job's plan; the seconds of its best algorithm, negative: none could be timed. */
static double time_best(struct job *job)
{
    cublasLtMatmulHeuristicResult_t candidates[MIST_CUDA_GEMM_MAX_CANDIDATES] = {0};
    struct mist_gemm_plan *plan = mist_gemm_plan_find(job->gemm, &job->key);
    int n = 0, i_best = 0;
    double best_s = -1;

    if (plan)
        n = mist_gemm_plan_candidates(job->gemm, plan, MIST_CUDA_GEMM_MAX_CANDIDATES,
                                      candidates);
    for (int i = 0; i < n && job->gemm->status == MIST_OK; i++) {
        double time_s;

        job->algo = candidates[i].algo;
        time_s = job->clock(job->clock_context, job->at->stream, launch, job);
        if (time_s >= 0 && (best_s < 0 || time_s < best_s)) {
            best_s = time_s;
            i_best = i;
        }
    }
    if (n > 0)
        plan->algo = candidates[i_best].algo;
    if (plan)
        plan->is_tuned = n == 0 || best_s >= 0;
    return best_s;
}

static int64_t region_bytes(int64_t n_rows, int64_t n_columns, int64_t element_bytes)
{
    return mist_align_up(n_rows * n_columns * element_bytes, 256);
}

/* x, dy (or y), W (or dW, fp32) and a vector. */
int64_t mist_cuda_gemm_tune_bytes(const struct mist_cuda_linear *at)
{
    int64_t element = mist_dtype_weight_bytes(at->dtype);

    return region_bytes(at->rows, at->n_in, element) +
           region_bytes(at->rows, at->n_out, element) +
           region_bytes(at->n_out, at->n_in, 4) + region_bytes(1, at->n_out, 4);
}

static void place_operands(struct job *job, enum mist_cuda_gemm_kind kind,
                           enum mist_gemm_epilogue epilogue, bool has_bias, char *scratch)
{
    const struct mist_cuda_linear *at = job->at;
    int64_t element = mist_dtype_weight_bytes(at->dtype);
    char *x = scratch;
    char *dy = x + region_bytes(at->rows, at->n_in, element);
    char *weight = dy + region_bytes(at->rows, at->n_out, element);
    char *vector = weight + region_bytes(at->n_out, at->n_in, 4);

    switch (kind) {
    case MIST_CUDA_GEMM_FORWARD:
        job->x =
            (struct mist_gemm_operands){weight, x, dy, has_bias ? vector : NULL, NULL};
        break;
    case MIST_CUDA_GEMM_BACKWARD_INPUT:
        job->x = (struct mist_gemm_operands){weight, dy, x, NULL, NULL};
        break;
    default:
        job->x = (struct mist_gemm_operands){x, dy, weight, NULL, NULL};
        job->dbias = has_bias ? (float *)(void *)vector : NULL;
    }
    job->key = mist_gemm_key_make(at, kind, epilogue, &job->x);
    if (epilogue == MIST_GEMM_SUM) { /* at the workspace's end, as in gemm.c */
        job->x.vector = (char *)at->workspace + job->gemm->workspace_bytes -
                        mist_gemm_vector_bytes(&job->key);
        job->key = mist_gemm_key_make(at, kind, epilogue, &job->x);
    }
}

static bool is_tuned(const struct job *job)
{
    const struct mist_gemm_plan *plan = mist_gemm_plan_find(job->gemm, &job->key);

    return plan && plan->is_tuned;
}

/* Both ways to a bias gradient: fused, or a kernel of its own. */
static double tune_sums(struct job *job, struct job *plain)
{
    double fused_s = time_best(job), plain_s = time_best(plain);
    struct mist_gemm_plan *plan = mist_gemm_plan_find(job->gemm, &job->key);

    if (plan && plan->is_usable && plain_s >= 0 && plain_s < fused_s)
        plan->is_usable = false;
    return fused_s >= 0 ? fused_s : plain_s;
}

enum mist_status mist_cuda_gemm_tune(struct mist_cuda_gemm *gemm,
                                     const struct mist_cuda_linear *at,
                                     enum mist_cuda_gemm_kind kind, bool has_bias,
                                     mist_cuda_gemm_clock *clock, void *clock_context,
                                     void *scratch, struct mist_err *err)
{
    bool sums = has_bias && kind == MIST_CUDA_GEMM_BACKWARD_WEIGHT;
    struct job plain = {
        .gemm = gemm, .at = at, .clock = clock, .clock_context = clock_context};
    struct job job = plain;
    double time_s;

    if (gemm->status != MIST_OK)
        return mist_cuda_gemm_status(gemm, err);
    place_operands(&plain, kind, MIST_GEMM_PLAIN, has_bias, scratch);
    place_operands(&job, kind,
                   sums                                         ? MIST_GEMM_SUM
                   : has_bias && kind == MIST_CUDA_GEMM_FORWARD ? MIST_GEMM_BIAS
                                                                : MIST_GEMM_PLAIN,
                   has_bias, scratch);
    if (is_tuned(&job))
        return mist_cuda_gemm_status(gemm, err);
    time_s = sums ? tune_sums(&job, &plain) : time_best(&job);
    if (gemm->status == MIST_OK && time_s < 0)
        mist_gemm_fail(gemm, &job.key, "no algorithm could be timed",
                       CUBLAS_STATUS_NOT_SUPPORTED);
    return mist_cuda_gemm_status(gemm, err);
}
