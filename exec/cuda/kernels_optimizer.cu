/*
 * AdamW and what goes into a tally, on the GPU.
 *
 * AdamW is the CPU's arithmetic operation by operation (exec/operators/cpu_optimizer.c), each
 * correctly rounded and none contracted: the same bits. One launch updates all spans;
 * blocks of threads are dealt out to them in tiles. The numbers of the step lie in device
 * memory, so that a launch that was captured can be replayed with others.
 *
 * Sums of squares are whole numbers of a fixed grid, as exec/operators/cpu_sum.c explains, and
 * hence do not depend on the order of adding: atomics may add up blocks. Each thread adds
 * units in 64-bit integers and folds them, before they could overflow, into coarse units
 * that stop at the limit.
 */
#include "exec/cuda/vector.cuh"

#include "exec/operators/cpu_kernels.h" /* the limits of struct mist_cpu_sum */

#include <math.h> /* pow */

enum {
    WARP = 32,
    ADAMW_THREADS = 256,
    ADAMW_TILE = 2048, /* elements of a block */
    SCAN_THREADS = 512,
    SCAN_BLOCKS = 528, /* at most; below 1024, so that coarse units cannot overflow */
    SCAN_AT_ONCE = 4,  /* packs of 4 */
    SCAN_FOLD = 128, /* rounds of SCAN_AT_ONCE packs: 2^11 squares of up to 2^50 units */
    LOSS_THREADS = 1024,
};

/* ------------------------------------------------------------------------------ AdamW */

/* A launch's argument. */
struct adamw_launch {
    struct mist_adamw_span spans[MIST_MAX_PARAMS];
    unsigned first_block[MIST_MAX_PARAMS];
    bool is_aligned[MIST_MAX_PARAMS];
    int32_t n_spans;
    const mist_cuda_adamw_numbers *numbers;
};

static __global__ void store_numbers(mist_cuda_adamw_numbers *to,
                                     mist_cuda_adamw_numbers numbers)
{
    *to = numbers;
}

/* One element; p is the fp32 parameter or the master. */
static __device__ __forceinline__ void update(float *p, float *m, float *v, float g,
                                              const mist_cuda_adamw_numbers &at,
                                              float weight_decay)
{
    float gradient = __fmul_rn(g, at.scale);

    *m = __fadd_rn(__fmul_rn(at.beta1, *m), __fmul_rn(at.fresh1, gradient));
    *v = __fadd_rn(__fmul_rn(at.beta2, *v),
                   __fmul_rn(at.fresh2, __fmul_rn(gradient, gradient)));
    float root = __fsqrt_rn(__fmul_rn(*v, at.inverse2));
    float step = __fdiv_rn(__fmul_rn(*m, at.inverse1), __fadd_rn(root, at.eps));
    *p = __fsub_rn(*p, __fmul_rn(at.lr, __fadd_rn(step, __fmul_rn(weight_decay, *p))));
}

/* T: of the weights, G: of the gradients. */
template <typename T, typename G>
static __global__ void __launch_bounds__(ADAMW_THREADS)
    adamw(const __grid_constant__ adamw_launch at)
{
    int s = 0;
    while (s + 1 < at.n_spans && blockIdx.x >= at.first_block[s + 1])
        s++;
    const struct mist_adamw_span &span = at.spans[s];
    int64_t begin = (int64_t)(blockIdx.x - at.first_block[s]) * ADAMW_TILE;
    int64_t rest = span.n - begin;
    int n = rest < ADAMW_TILE ? (int)rest : (int)ADAMW_TILE;
    int n_vector = at.is_aligned[s] ? n & ~3 : 0;
    T *weights = (T *)span.p + begin;
    float *p = (sizeof(T) == sizeof(float) ? (float *)span.p : span.master) + begin;
    float *m = span.m + begin, *v = span.v + begin;
    const mist_cuda_adamw_numbers numbers = *at.numbers;
    float decay = span.decays ? numbers.weight_decay : 0.0f;
    const G *g = (const G *)span.g + begin;
    constexpr bool has_master = sizeof(T) < sizeof(float); /* weights are its copy */

#pragma unroll 2
    for (int i = 4 * (int)threadIdx.x; i < n_vector; i += 4 * ADAMW_THREADS) {
        mist_unit<G, 4> g4;
        mist_unit<float, 4> m4, v4, p4;
        mist_unit<T, 4> copy;
        g4.load(g + i);
        m4.load(m + i);
        v4.load(v + i);
        p4.load(p + i);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            update(&p4.piece->v[e], &m4.piece->v[e], &v4.piece->v[e], g4.get(e), numbers,
                   decay);
            copy.set(e, p4.get(e));
        }
        m4.store(m + i);
        v4.store(v + i);
        p4.store(p + i);
        if (has_master)
            copy.store(weights + i);
    }
#pragma unroll 2
    for (int i = n_vector + (int)threadIdx.x; i < n; i += ADAMW_THREADS) {
        float one = p[i];
        update(&one, &m[i], &v[i], mist_to_float(g[i]), numbers, decay);
        p[i] = one;
        if (has_master)
            weights[i] = mist_from_float<T>(one);
    }
}

/* For units of 4 elements. */
static bool is_aligned(const void *x, enum mist_dtype dtype)
{
    return (uintptr_t)x % (dtype == MIST_DTYPE_BF16 ? 8 : 16) == 0;
}

void mist_cuda_adamw_prepare(mist_cuda_stream stream,
                             struct mist_cuda_adamw_numbers *numbers,
                             const struct mist_adamw_args *args)
{
    float correction1 = (float)(1 - pow((double)args->beta1, args->t));
    float correction2 = (float)(1 - pow((double)args->beta2, args->t));
    mist_cuda_adamw_numbers now = {};

    now.lr = args->lr;
    now.beta1 = args->beta1;
    now.beta2 = args->beta2;
    now.eps = args->epsilon;
    now.weight_decay = args->weight_decay;
    now.scale = args->gradient_scale;
    now.fresh1 = 1.0f - args->beta1;
    now.fresh2 = 1.0f - args->beta2;
    now.inverse1 = 1.0f / correction1;
    now.inverse2 = 1.0f / correction2;
    MIST_CUDA_LAUNCH(store_numbers, dim3(1), dim3(1), 0, stream, numbers, now);
}

void mist_cuda_adamw(mist_cuda_stream stream, enum mist_dtype dtype,
                     const struct mist_adamw_span *spans, int32_t n_spans,
                     const struct mist_cuda_adamw_numbers *numbers)
{
    struct adamw_launch at = {};
    enum mist_dtype gradient_dtype =
        n_spans > 0 ? spans[0].gradient_dtype : MIST_DTYPE_FP32;
    int64_t n_blocks = 0;

    at.numbers = numbers;
    for (int32_t i = 0; i < n_spans; i++) {
        const struct mist_adamw_span *span = &spans[i];
        if (span->n <= 0)
            continue;
        int32_t s = at.n_spans++;
        at.spans[s] = *span;
        at.first_block[s] = (unsigned)n_blocks;
        at.is_aligned[s] = is_aligned(span->p, dtype) &&
                           is_aligned(span->g, gradient_dtype) &&
                           mist_are_aligned(span->m, span->v) &&
                           (dtype != MIST_DTYPE_BF16 || mist_are_aligned(span->master));
        n_blocks += (span->n + ADAMW_TILE - 1) / ADAMW_TILE;
    }
    if (n_blocks > 0)
        MIST_CUDA_BY_DTYPE(
            dtype, T,
            MIST_CUDA_BY_DTYPE(gradient_dtype, G,
                               MIST_CUDA_LAUNCH((adamw<T, G>), dim3((unsigned)n_blocks),
                                                dim3(ADAMW_THREADS), 0, stream, at)));
}

/* ---------------------------------------------------- squares, and what is not finite */

#define COARSE_SHIFT      402653184.0 /* 1.5 * 2^52 units of 2^-24 */
#define FINE_SHIFT        0.005859375 /* 1.5 * 2^52 units of 2^-60 */
#define COARSE_SHIFT_BITS 0x41B8000000000000u
#define FINE_SHIFT_BITS   0x3F78000000000000u
#define SMALL_BITS        0x3D000000u /* of 2^-5, whose square is 2^50 fine units */
#define MAX_ABS_BITS      0x46000000u /* of MIST_CPU_SUM_MAX_ABS */
#define MAX_FINITE_BITS   0x7F7FFFFFu /* of FLT_MAX */
#define FINE_PER_COARSE   ((int64_t)1 << 36)

/* What a thread has found. */
struct findings {
    int64_t coarse, fine;
    int64_t n_nonfinite, mark; /* as in struct mist_tally */
};

/* Bits without the sign compare like absolute values; NaN is above all. */
static __device__ __forceinline__ uint32_t abs_bits(float x)
{
    return __float_as_uint(x) & 0x7FFFFFFFu;
}

static __device__ __forceinline__ uint64_t bits_of(double x)
{
    return (uint64_t)__double_as_longlong(x);
}

/* Adding the shift leaves the number of units, rounded, in the low bits. Products are
 * exact, so it is all the same whether the compiler contracts. */
static __device__ __forceinline__ void add_small_square(findings *found, float x)
{
    double value = (double)x;

    found->fine += (int64_t)(bits_of(value * value + FINE_SHIFT) - FINE_SHIFT_BITS);
}

/* The coarse part is an exact difference, and even in fine units. */
static __device__ __forceinline__ void add_square(findings *found, float x)
{
    double value = (double)x, coarse = value * value + COARSE_SHIFT;
    double rest = value * value - (coarse - COARSE_SHIFT);

    found->coarse += (int64_t)(bits_of(coarse) - COARSE_SHIFT_BITS);
    found->fine += (int64_t)(bits_of(rest + FINE_SHIFT) - FINE_SHIFT_BITS);
}

/* Element index; is_sum: its square, too. */
template <bool is_sum>
static __device__ __forceinline__ void add_element(findings *found, float x,
                                                   int64_t index)
{
    if (abs_bits(x) > (is_sum ? MAX_ABS_BITS : MAX_FINITE_BITS)) {
        int64_t mark = MIST_TALLY_MARK - index;
        found->n_nonfinite++;
        found->mark = mark > found->mark ? mark : found->mark;
    } else if (is_sum) {
        add_square(found, x);
    }
}

template <bool is_sum, typename G>
static __device__ __forceinline__ void
add_unit(findings *found, const mist_unit<G, 4> &unit, int64_t index)
{
    uint32_t above = 0;

#pragma unroll
    for (int e = 0; e < 4; e++)
        above = abs_bits(unit.get(e)) > above ? abs_bits(unit.get(e)) : above;
    if (above <= (is_sum ? SMALL_BITS : MAX_FINITE_BITS)) {
#pragma unroll
        for (int e = 0; is_sum && e < 4; e++)
            add_small_square(found, unit.get(e));
    } else {
#pragma unroll
        for (int e = 0; e < 4; e++)
            add_element<is_sum>(found, unit.get(e), index + e);
    }
}

/* Moves whole coarse units out of fine; what reaches the limit stays there. All parts of
 * a sum are >= 0 afterwards, so one that is at the limit puts the whole there. */
static __device__ __forceinline__ void fold(findings *found)
{
    found->coarse += found->fine >> 36;
    found->fine &= FINE_PER_COARSE - 1;
    if (found->coarse >= MIST_CPU_SUM_MAX_COARSE) {
        found->coarse = MIST_CPU_SUM_MAX_COARSE;
        found->fine = 0;
    }
}

static __device__ __forceinline__ int64_t warp_max(int64_t x)
{
    for (int w = WARP / 2; w > 0; w /= 2) {
        int64_t other = __shfl_xor_sync(0xFFFFFFFFu, x, w);
        x = other > x ? other : x;
    }
    return x;
}

static __device__ __forceinline__ void add_atomically(int64_t *to, int64_t x)
{
    atomicAdd((unsigned long long *)(void *)to, (unsigned long long)x);
}

/* Adds a block's findings to the tally. Whoever brings coarse units to the limit takes
 * them back to it. */
static __device__ __forceinline__ void add_to_tally(struct mist_tally *tally,
                                                    const findings &found)
{
    if (found.coarse > 0) {
        unsigned long long *coarse = (unsigned long long *)(void *)&tally->coarse;
        unsigned long long limit = (unsigned long long)MIST_CPU_SUM_MAX_COARSE;
        if (atomicAdd(coarse, (unsigned long long)found.coarse) +
                (unsigned long long)found.coarse >
            limit)
            atomicMin(coarse, limit);
    }
    if (found.fine > 0)
        add_atomically(&tally->fine, found.fine);
    if (found.n_nonfinite > 0) {
        add_atomically(&tally->n_nonfinite, found.n_nonfinite);
        atomicMax((long long *)(void *)&tally->nonfinite_mark, (long long)found.mark);
    }
}

/* Finds and adds up over the block; found must be folded. */
static __device__ __forceinline__ void add_block(struct mist_tally *tally, findings found)
{
    __shared__ findings warps[SCAN_THREADS / WARP];

    found = {mist_warp_sum(found.coarse), mist_warp_sum(found.fine),
             mist_warp_sum(found.n_nonfinite), warp_max(found.mark)};
    if (threadIdx.x % WARP == 0)
        warps[threadIdx.x / WARP] = found;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    for (int w = 1; w < SCAN_THREADS / WARP; w++) {
        found.coarse += warps[w].coarse;
        found.fine += warps[w].fine;
        found.n_nonfinite += warps[w].n_nonfinite;
        found.mark = warps[w].mark > found.mark ? warps[w].mark : found.mark;
    }
    fold(&found);
    add_to_tally(tally, found);
}

/* x begins at any element: up to three before and after the packs go one by one. */
template <bool is_sum, typename G>
static __global__ void __launch_bounds__(SCAN_THREADS)
    scan(const G *x, int64_t n, int64_t index_offset, struct mist_tally *tally)
{
    constexpr uintptr_t pack_bytes = 4 * sizeof(G);
    int64_t head =
        (int64_t)((pack_bytes - (uintptr_t)x % pack_bytes) % pack_bytes / sizeof *x);
    head = head < n ? head : n;
    int64_t n_packs = (n - head) / 4, tail = head + 4 * n_packs;
    int64_t stride = (int64_t)gridDim.x * SCAN_THREADS;
    int64_t i = (int64_t)blockIdx.x * SCAN_THREADS + threadIdx.x;
    findings found = {0, 0, 0, 0};
    int rounds = 0;

    if (i < head)
        add_element<is_sum>(&found, mist_to_float(x[i]), index_offset + i);
    if (i < n - tail)
        add_element<is_sum>(&found, mist_to_float(x[tail + i]), index_offset + tail + i);
    for (; i < n_packs; i += SCAN_AT_ONCE * stride) {
        mist_unit<G, 4> held[SCAN_AT_ONCE];
#pragma unroll
        for (int k = 0; k < SCAN_AT_ONCE; k++) {
            held[k] = mist_unit<G, 4>{}; /* nothing is added for zeros */
            if (i + k * stride < n_packs)
                held[k].load(x + head + 4 * (i + k * stride));
        }
#pragma unroll
        for (int k = 0; k < SCAN_AT_ONCE; k++)
            add_unit<is_sum>(&found, held[k], index_offset + head + 4 * (i + k * stride));
        if (++rounds == SCAN_FOLD) {
            fold(&found);
            rounds = 0;
        }
    }
    fold(&found);
    add_block(tally, found);
}

static unsigned scan_blocks(int64_t n)
{
    int64_t per_block = (int64_t)SCAN_THREADS * 4 * SCAN_AT_ONCE;
    int64_t n_blocks = (n + per_block - 1) / per_block;

    return (unsigned)(n_blocks < SCAN_BLOCKS ? n_blocks : (int64_t)SCAN_BLOCKS);
}

void mist_cuda_sum_squares(mist_cuda_stream stream, enum mist_dtype dtype, const void *x,
                           int64_t n, int64_t index_offset, struct mist_tally *tally)
{
    if (n > 0)
        MIST_CUDA_BY_DTYPE(dtype, G,
                           MIST_CUDA_LAUNCH((scan<true, G>), dim3(scan_blocks(n)),
                                            dim3(SCAN_THREADS), 0, stream, (const G *)x,
                                            n, index_offset, tally));
}

void mist_cuda_find_nonfinite(mist_cuda_stream stream, enum mist_dtype dtype,
                              const void *x, int64_t n, struct mist_tally *tally)
{
    if (n > 0)
        MIST_CUDA_BY_DTYPE(dtype, G,
                           MIST_CUDA_LAUNCH((scan<false, G>), dim3(scan_blocks(n)),
                                            dim3(SCAN_THREADS), 0, stream, (const G *)x,
                                            n, (int64_t)0, tally));
}

/* ----------------------------------------------------------------------------- losses */

/* One block: thread t adds every LOSS_THREADS-th from t on, then a tree adds threads. */
static __global__ void __launch_bounds__(LOSS_THREADS)
    add_losses(const float *losses, int64_t n, struct mist_tally *tally)
{
    __shared__ double sums[LOSS_THREADS];
    double sum = 0.0;

#pragma unroll 8
    for (int64_t i = threadIdx.x; i < n; i += LOSS_THREADS)
        sum += (double)losses[i];
    sums[threadIdx.x] = sum;
    for (int w = LOSS_THREADS / 2; w > 0; w /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < w)
            sums[threadIdx.x] += sums[threadIdx.x + w];
    }
    if (threadIdx.x == 0)
        tally->loss_sum += sums[0];
}

void mist_cuda_sum_losses(mist_cuda_stream stream, const float *losses, int64_t n,
                          struct mist_tally *tally)
{
    if (n > 0)
        MIST_CUDA_LAUNCH((add_losses), dim3(1), dim3(LOSS_THREADS), 0, stream, losses, n,
                         tally);
}
