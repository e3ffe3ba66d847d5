/*
 * Choosing the algorithms of products by time. See mist_cuda_gemm_tune() in gemm.h.
 *
 * The first algorithm of the heuristics is timed as they give it, so nothing is ever
 * slower than that. The others are made again from their settings before they are timed:
 * what is timed is what another process makes from the file. One that cuBLASLt can't make
 * so, or does not launch for any reason, is left out: nothing depends on these results.
 */
#include "exec/cuda/gemm.h"

#include "core/clock.h"
#include "exec/cuda/context.h"
#include "exec/cuda/gemm_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CANDIDATES = 16, MAX_LAUNCHES = 8, N_PATTERN = 1 << 12 };

/* ------------------------------------------------------------------------------ clock */

static const double enough_s = 5e-3; /* of launches, for a mean */

static double now(void *context)
{
    (void)context;
    return mist_clock_now_s();
}

/* Seconds of n launches; negative: it failed. */
static double time_launches(cudaEvent_t start, cudaEvent_t end, mist_cuda_stream stream,
                            void (*launch)(void *arg), void *arg, int n)
{
    float time_ms = -1;

    if (cudaEventRecord(start, stream) != cudaSuccess)
        return -1;
    for (int i = 0; i < n; i++)
        launch(arg);
    if (cudaEventRecord(end, stream) != cudaSuccess ||
        cudaEventSynchronize(end) != cudaSuccess ||
        cudaEventElapsedTime(&time_ms, start, end) != cudaSuccess)
        return -1;
    return (double)time_ms * 1e-3;
}

/* The mean of a few launches after one to warm up. */
static double time_by_events(void *context, mist_cuda_stream stream,
                             void (*launch)(void *arg), void *arg)
{
    cudaEvent_t start = NULL, end = NULL;
    double time_s = -1;

    (void)context;
    if (cudaEventCreate(&start) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess) {
        double first_s = time_launches(start, end, stream, launch, arg, 1);
        int n = first_s * MAX_LAUNCHES <= enough_s ? MAX_LAUNCHES
                                                   : (int)(enough_s / first_s) + 1;

        if (first_s >= 0)
            time_s = time_launches(start, end, stream, launch, arg, n) / n;
    }
    if (start)
        cudaEventDestroy(start);
    if (end)
        cudaEventDestroy(end);
    return time_s;
}

const struct mist_cuda_gemm_clock mist_cuda_gemm_clock_events = {NULL, now,
                                                                 time_by_events};

/* --------------------------------------------------------------------------- operands */

static int64_t region(int64_t n_elements, int64_t element_bytes)
{
    return mist_align_up(n_elements * element_bytes, 256);
}

/* x, y (or their gradients), W (as large as its gradient in fp32), a vector, and what
 * came before a GELU. Returns the bytes. */
static int64_t place_operands(const struct mist_gemm_key *key, char *memory,
                              struct mist_gemm_operands *out)
{
    const struct mist_gemm_kind *kind = &mist_gemm_kinds[key->product];
    int64_t element = mist_dtype_weight_bytes((enum mist_dtype)key->dtype);
    int64_t x = 0, y = x + region(key->rows * key->n_in, element);
    int64_t weight = y + region(key->rows * key->n_out, element);
    int64_t vector = weight + region(key->n_out * key->n_in, sizeof(float));
    int64_t aux = vector + region(key->n_out, sizeof(float));
    bool is_forward = kind->op_a == CUBLAS_OP_T, is_weight = kind->op_b == CUBLAS_OP_T;

    if (memory)
        *out = (struct mist_gemm_operands){.a = memory + (is_weight ? x : weight),
                                           .b = memory + (is_forward ? x : y),
                                           .d = memory + (is_forward  ? y
                                                          : is_weight ? weight
                                                                      : x),
                                           .vector =
                                               kind->has_vector ? memory + vector : NULL,
                                           .aux = kind->has_aux ? memory + aux : NULL};
    if (!kind->has_aux)
        return aux;
    return aux + region(key->rows * (is_forward ? key->n_out : key->n_in), element);
}

/* Numbers of about 0.01, of both signs, in bf16 as in fp32: zeros, or all the same, would
 * run faster than what is trained with. */
static enum mist_status fill(void *memory, int64_t bytes, mist_cuda_stream stream,
                             struct mist_err *err)
{
    uint16_t pattern[N_PATTERN];
    uint32_t random = 1;
    cudaError_t code;

    for (int i = 0; i < N_PATTERN; i++) {
        random = random * 1664525 + 1013904223;
        pattern[i] = (uint16_t)(0x3C00 | (random >> 16 & 0x80FF));
    }
    int64_t done = bytes < (int64_t)sizeof pattern ? bytes : (int64_t)sizeof pattern;
    code = cudaMemcpyAsync(memory, pattern, (size_t)done, cudaMemcpyHostToDevice, stream);
    if (code == cudaSuccess)
        code = cudaStreamSynchronize(stream);
    for (; done < bytes && code == cudaSuccess; done *= 2)
        code = cudaMemcpyAsync((char *)memory + done, memory,
                               (size_t)(done < bytes - done ? done : bytes - done),
                               cudaMemcpyDeviceToDevice, stream);
    return mist_cuda_status(code, "cudaMemcpyAsync", err);
}

/* -------------------------------------------------------------------------- a product */

struct job {
    struct mist_cuda_gemm *gemm;
    struct mist_cuda_linear at;
    struct mist_gemm_operands x;
    const struct mist_cuda_gemm_clock *clock;
    enum mist_cuda_gemm_product product; /* the whole */
    struct mist_gemm_plan *plan;         /* what cuBLASLt does of it */
    cublasStatus_t status;
};

static cublasStatus_t launch_product(const struct job *job,
                                     enum mist_cuda_gemm_product product,
                                     const struct mist_gemm_operands *x)
{
    struct mist_gemm_operands inner = mist_gemm_inner(product, x);
    cublasStatus_t status;

    if ((int64_t)product == job->plan->key.product)
        return mist_gemm_launch(job->gemm, job->plan, &job->at, x);
    status = launch_product(job, mist_gemm_kinds[product].inner, &inner);
    if (status == CUBLAS_STATUS_SUCCESS)
        mist_gemm_finish(product, &job->at, x);
    return status;
}

static void launch(void *arg)
{
    struct job *job = arg;

    if (job->status == CUBLAS_STATUS_SUCCESS)
        job->status = launch_product(job, job->product, &job->x);
}

/* Seconds of the job with the plan's algorithm; negative: unknown. */
static double time_job(struct job *job)
{
    job->status = CUBLAS_STATUS_SUCCESS;
    double time_s = job->clock->time(job->clock->context, job->at.stream, launch, job);

    if (job->status == CUBLAS_STATUS_SUCCESS)
        return time_s;
    (void)cudaGetLastError(); /* so that nobody else reports it */
    return -1;
}

static int64_t nanoseconds(double time_s)
{
    return (int64_t)ceil(time_s * 1e9);
}

static void remember(struct mist_cuda_gemm *gemm, struct mist_gemm_plan *plan,
                     const struct mist_gemm_choice *choice)
{
    struct mist_gemm_choice *to = mist_gemm_choice_add(gemm);

    plan->is_decided = true;
    plan->is_timed = choice->time_ns > 0;
    if (to) {
        *to = *choice;
        to->key = plan->key;
    } else {
        mist_gemm_fail(gemm, &plan->key, "its choice", CUBLAS_STATUS_ALLOC_FAILED);
    }
}

/* Makes an algorithm of its settings the plan's, since the file has no more of it; false:
 * it can't be made so. */
static bool remake(const struct mist_cuda_gemm *gemm, struct mist_gemm_plan *plan,
                   const cublasLtMatmulAlgo_t *algo, struct mist_gemm_choice *choice)
{
    choice->pick = MIST_GEMM_OTHER;
    return mist_gemm_settings_get(algo, choice->settings) &&
           mist_gemm_settings_apply(gemm, plan, choice->settings, &plan->algo);
}

/*
 * Gives job->plan its fastest algorithm, of those that are timed before until_s; the
 * first is timed in any case, unless is_late: then it is taken. The seconds, 0 where
 * late, negative where nothing is known. A plan that is decided stays.
 */
static double time_algorithms(struct job *job, double until_s, bool is_late)
{
    cublasLtMatmulHeuristicResult_t candidates[MAX_CANDIDATES] = {0};
    struct mist_gemm_plan *plan = job->plan;
    struct mist_gemm_choice best = {0};
    cublasLtMatmulAlgo_t algo = plan->algo;
    double best_s = is_late ? 0 : -1;
    int n = 0, n_refused = 0;

    if (plan->is_decided)
        return is_late ? 0 : time_job(job);
    if (!is_late)
        n = mist_gemm_plan_candidates(job->gemm, plan, MAX_CANDIDATES, candidates);
    for (int i = 0; i < n && (i == 0 || job->clock->now(job->clock->context) < until_s);
         i++) {
        struct mist_gemm_choice choice = {0};
        double time_s = -1;

        job->status = CUBLAS_STATUS_NOT_SUPPORTED;
        if (i == 0 || remake(job->gemm, plan, &candidates[i].algo, &choice))
            time_s = time_job(job);
        n_refused += job->status != CUBLAS_STATUS_SUCCESS;
        if (time_s < 0 || (best_s >= 0 && best_s <= time_s))
            continue;
        best_s = time_s;
        best = choice;
        algo = plan->algo;
    }
    plan->algo = algo;
    best.time_ns = best_s > 0 ? nanoseconds(best_s) : 0;
    if (best_s < 0 && n > 0 && n_refused == n &&
        mist_gemm_kinds[plan->key.product].epilogue_name) {
        plan->way = MIST_GEMM_REFUSED;
        best.pick = MIST_GEMM_UNLAUNCHED;
    }
    if (best_s >= 0 || plan->way == MIST_GEMM_REFUSED)
        remember(job->gemm, plan, &best);
    return best_s;
}

/* What cuBLASLt does of a product, as far as is known; NULL: gemm->status says why. */
static struct mist_gemm_plan *fused_part(struct mist_cuda_gemm *gemm,
                                         struct mist_gemm_plan *plan)
{
    while (plan && plan->way != MIST_GEMM_FUSED &&
           mist_gemm_kinds[plan->key.product].epilogue_name) {
        struct mist_gemm_key key = plan->key;

        key.product = mist_gemm_kinds[key.product].inner;
        plan = mist_gemm_plan_find(gemm, &key);
    }
    return plan;
}

/* Both ways to a product, until the end of its share of the time. */
static void tune_product(struct job *job, struct mist_gemm_plan *plan, double until_s,
                         bool is_late)
{
    double now_s = job->clock->now(job->clock->context), fused_s = -1, plain_s;
    size_t i_fused = job->gemm->n_choices;
    bool is_plain = !mist_gemm_kinds[plan->key.product].epilogue_name;

    job->product = (enum mist_cuda_gemm_product)plan->key.product;
    job->plan = plan;
    if (plan->way == MIST_GEMM_FUSED)
        fused_s =
            time_algorithms(job, is_plain ? until_s : (now_s + until_s) / 2, is_late);
    if (is_plain || (plan->way == MIST_GEMM_FUSED && fused_s <= 0))
        return;
    if (plan->way == MIST_GEMM_FUSED)
        plan->way = MIST_GEMM_SLOWER; /* the other way, for now */
    job->plan = fused_part(job->gemm, plan);
    if (!job->plan)
        return;
    plain_s = time_algorithms(job, until_s, is_late);
    if (plan->way != MIST_GEMM_SLOWER || fused_s <= 0)
        return;
    if (plain_s >= 0 && plain_s < fused_s && job->gemm->status == MIST_OK)
        job->gemm->choices[i_fused] = (struct mist_gemm_choice){
            .key = plan->key, .pick = MIST_GEMM_UNFUSED, .time_ns = nanoseconds(plain_s)};
    else
        plan->way = MIST_GEMM_FUSED;
}

/* ----------------------------------------------------------------------- all products */

static double flop(const struct mist_gemm_plan *plan)
{
    return 2.0 * (double)plan->key.rows * (double)plan->key.n_in *
           (double)plan->key.n_out;
}

/* Of its share: what can be fused is timed in two ways. */
static double weight(const struct mist_gemm_plan *plan)
{
    return mist_gemm_kinds[plan->key.product].epilogue_name ? 2 * flop(plan) : flop(plan);
}

static int compare(const void *a, const void *b)
{
    const struct mist_gemm_plan *const *x = a, *const *y = b;
    double d = flop(*y) - flop(*x);

    return d != 0 ? (d > 0) - (d < 0) : memcmp(&(*x)->key, &(*y)->key, sizeof(*x)->key);
}

/* The products without a choice, the largest first; malloc'd, NULL: none, or
 * no memory. */
static struct mist_gemm_plan **list_open(struct mist_cuda_gemm *gemm, size_t *n)
{
    struct mist_gemm_plan **plans = NULL;
    size_t capacity = 0;

    *n = 0;
    for (struct mist_gemm_plan *plan = gemm->plans; plan; plan = plan->next) {
        const struct mist_gemm_plan *part =
            plan->is_asked ? fused_part(gemm, plan) : NULL;

        if (!part || part->is_decided || part->way != MIST_GEMM_FUSED)
            continue;
        if (!MIST_APPEND(plans, capacity, *n, plan)) {
            mist_gemm_fail(gemm, &plan->key, "tuning", CUBLAS_STATUS_ALLOC_FAILED);
            break;
        }
    }
    if (plans)
        qsort(plans, *n, sizeof(struct mist_gemm_plan *), compare);
    return plans;
}

/* Adds to the note which products were left to the heuristics: the largest, and
 * how many. */
static void note_late(struct mist_cuda_gemm *gemm, const struct mist_gemm_key *largest,
                      int n_late, size_t n)
{
    size_t length = strlen(gemm->note);

    snprintf(gemm->note + length, sizeof gemm->note - length,
             "%s%d of %zu products had no time or memory for that, the largest "
             "%s rows=%lld;n_in=%lld;n_out=%lld",
             length > 0 ? "; " : "", n_late, n, mist_gemm_names[largest->product],
             (long long)largest->rows, (long long)largest->n_in,
             (long long)largest->n_out);
}

/* Returns the bytes of memory that were written to. */
static int64_t tune_all(struct job *job, const struct mist_cuda_gemm_tuning *tuning,
                        struct mist_gemm_plan **plans, size_t n, enum mist_status *status,
                        struct mist_err *err)
{
    const struct mist_cuda_gemm_clock *clock = tuning->clock;
    double end_s = clock->now(clock->context) + tuning->budget_s, left = 0;
    const struct mist_gemm_key *late = NULL;
    int64_t used_bytes = 0;
    int n_late = 0;

    for (size_t i = 0; i < n; i++)
        left += weight(plans[i]);
    for (size_t i = 0; i < n && *status == MIST_OK && job->gemm->status == MIST_OK; i++) {
        const struct mist_gemm_key *key = &plans[i]->key;
        double now_s = clock->now(clock->context);
        double until_s = now_s + (end_s - now_s) * weight(plans[i]) / left;
        int64_t bytes = place_operands(key, tuning->memory, &job->x);
        bool is_late = now_s >= end_s || bytes > tuning->memory_bytes;

        left -= weight(plans[i]);
        job->at.dtype = (enum mist_dtype)key->dtype;
        job->at.gradient_dtype = (enum mist_dtype)key->gradient_dtype;
        job->at.rows = key->rows;
        job->at.n_in = key->n_in;
        job->at.n_out = key->n_out;
        n_late += is_late;
        if (is_late && !late)
            late = key;
        if (!is_late) {
            *status = fill(tuning->memory, bytes, job->at.stream, err);
            used_bytes = bytes > used_bytes ? bytes : used_bytes;
        }
        if (*status == MIST_OK)
            tune_product(job, plans[i], until_s, is_late);
    }
    if (late)
        note_late(job->gemm, late, n_late, n);
    return used_bytes;
}

static void decide_all(struct mist_cuda_gemm *gemm)
{
    for (struct mist_gemm_plan *plan = gemm->plans; plan; plan = plan->next)
        mist_gemm_plan_decide(gemm, plan);
}

/*
 * Adds to the file what was chosen here, choices[n_known ..]. Ranks that start together time
 * the same products at once: what another one has added meanwhile counts, so that all run
 * with what the next to start will find.
 */
static void share_choices(struct mist_cuda_gemm *gemm,
                          const struct mist_cuda_gemm_tuning *tuning, size_t n_known)
{
    size_t n = gemm->n_choices - n_known;
    struct mist_gemm_choice *own = malloc(n * sizeof *own);
    struct mist_gemm_file *file = NULL;

    if (own) {
        memcpy(own, gemm->choices + n_known, n * sizeof *own);
        file = mist_gemm_file_open(gemm, tuning->path, tuning->device_name);
    }
    if (!file) {
        if (!gemm->note[0])
            snprintf(gemm->note, sizeof gemm->note, "out of memory for choices");
        free(own);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (!mist_gemm_choice_find(gemm, &own[i].key, n_known)) {
            struct mist_gemm_choice *to = mist_gemm_choice_add(gemm);
            if (to)
                *to = own[i];
        }
    free(own);
    decide_all(gemm);
    mist_gemm_file_close(file, gemm);
}

enum mist_status mist_cuda_gemm_tune(struct mist_cuda_gemm *gemm, mist_cuda_stream stream,
                                     void *workspace,
                                     const struct mist_cuda_gemm_tuning *tuning,
                                     struct mist_err *err)
{
    struct job job = {.gemm = gemm,
                      .at = {.stream = stream, .workspace = workspace},
                      .clock = tuning->clock};
    struct mist_gemm_plan **plans = NULL;
    struct mist_gemm_file *file = NULL;
    enum mist_status status = MIST_OK;
    int64_t used_bytes = 0;
    size_t n = 0, n_known;

    gemm->note[0] = '\0';
    if (gemm->status == MIST_OK && gemm->plans && tuning->path)
        file = mist_gemm_file_open(gemm, tuning->path, tuning->device_name);
    if (!file)
        return mist_cuda_gemm_status(gemm, err);
    decide_all(gemm);
    n_known = gemm->n_choices;
    if (mist_gemm_file_is_writable(file))
        plans = list_open(gemm, &n);
    mist_gemm_file_close(file, gemm);
    if (n > 0)
        used_bytes = tune_all(&job, tuning, plans, n, &status, err);
    if (used_bytes > 0 && status == MIST_OK)
        status = mist_cuda_status(
            cudaMemsetAsync(tuning->memory, 0, (size_t)used_bytes, stream),
            "cudaMemsetAsync", err);
    if (used_bytes > 0 && status == MIST_OK)
        status =
            mist_cuda_status(cudaStreamSynchronize(stream), "cudaStreamSynchronize", err);
    if (status == MIST_OK)
        status = mist_cuda_gemm_status(gemm, err);
    if (status != MIST_OK) /* nothing launches on a device that has failed */
        gemm->n_choices = n_known;
    if (gemm->n_choices > n_known)
        share_choices(gemm, tuning, n_known);
    free(plans);
    return status;
}
