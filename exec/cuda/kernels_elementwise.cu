/*
 * Activations, sums, rotary embedding and bias gradients on the GPU.
 *
 * All are bound by memory: a thread moves 16 bytes at a time, and its block has read all
 * it needs before it computes. Tensors whose rows or addresses don't allow that go
 * element by element through the same kernels (units of one element). GELU and SwiGLU use
 * the sigmoid as the CPU's do, with the hardware's exp and reciprocal: within 1e-6 where
 * the result is not negligible.
 */
#include "exec/cuda/vector.cuh"

#include "exec/operators/cpu_kernels.h" /* struct mist_cpu_attention */

namespace
{

constexpr int N_THREADS = 256, N_REPEATS = 2;

/* What is multiplied by sigmoid(inside(x)), inside's slope, and where |x| is large. */
struct silu {
    static constexpr float LIMIT = 80.0f;
    static __device__ __forceinline__ float inside(float x)
    {
        return x;
    }
    static __device__ __forceinline__ float slope(float)
    {
        return 1.0f;
    }
};

struct gelu {
    static constexpr float LIMIT = 9.5f;
    static constexpr float SLOPE = 1.5957691216057308f; /* 2 sqrt(2 / pi) */
    static constexpr float CUBIC = 0.044715f;
    static __device__ __forceinline__ float inside(float x)
    {
        return SLOPE * (x + CUBIC * (x * x * x));
    }
    static __device__ __forceinline__ float slope(float x)
    {
        return SLOPE * (1.0f + 3.0f * CUBIC * (x * x));
    }
};

/* *y and its slope, with the ends of activate() in cpu_elementwise.c. */
template <typename kind>
__device__ __forceinline__ void activate(float x, float *y, float *slope)
{
    x = x < -kind::LIMIT ? -kind::LIMIT : x;
    float inside = x > kind::LIMIT ? kind::LIMIT : x;
    float e = __expf(-kind::inside(inside));
    float share = __fdividef(1.0f, 1.0f + e), rest = e * share;
    *y = x * share;
    *slope = share * (1.0f + inside * rest * kind::slope(inside));
}

/* ---------------------------------------------- element by element, one or two inputs */

struct gelu_forward {
    static __device__ __forceinline__ float apply(float x, float)
    {
        float y, slope;
        activate<gelu>(x, &y, &slope);
        return y;
    }
};

struct gelu_backward {
    static __device__ __forceinline__ float apply(float x, float d_out)
    {
        float y, slope;
        activate<gelu>(x, &y, &slope);
        return d_out * slope;
    }
};

/* x Phi(x) with the normal distribution's Phi: the exact form. */
struct exact_gelu {
    static __device__ __forceinline__ float normal(float x)
    {
        return 0.5f * erfcf(-0.70710678f * x);
    }
};

struct exact_gelu_forward : exact_gelu {
    static __device__ __forceinline__ float apply(float x, float)
    {
        return x * normal(x);
    }
};

struct exact_gelu_backward : exact_gelu {
    static __device__ __forceinline__ float apply(float x, float d_out)
    {
        return d_out * (normal(x) + x * (0.39894228f * __expf(-0.5f * x * x)));
    }
};

struct squared_relu_forward {
    static __device__ __forceinline__ float apply(float x, float)
    {
        return x < 0.0f ? 0.0f : x * x; /* NaN stays */
    }
};

struct squared_relu_backward {
    static __device__ __forceinline__ float apply(float x, float d_out)
    {
        return d_out * (x < 0.0f ? 0.0f : 2.0f * x);
    }
};

struct sum {
    static __device__ __forceinline__ float apply(float a, float b)
    {
        return a + b;
    }
};

/* out may be a or b: units are read before they are written, by the same thread. */
template <typename F, typename T, bool has_b, int unit>
__global__ void __launch_bounds__(N_THREADS)
    map(T *out, const T *a, const T *b, int64_t n)
{
    int64_t n_units = n / unit;
    int64_t first = (int64_t)blockIdx.x * (N_THREADS * N_REPEATS) + threadIdx.x;
    mist_unit<T, unit> x[N_REPEATS], y[N_REPEATS];

#pragma unroll
    for (int r = 0; r < N_REPEATS; r++) {
        int64_t i = first + r * N_THREADS;
        if (i < n_units) {
            x[r].load(a + i * unit);
            if (has_b)
                y[r].load(b + i * unit);
        }
    }
#pragma unroll
    for (int r = 0; r < N_REPEATS; r++) {
        int64_t i = first + r * N_THREADS;
        if (i < n_units) {
            mist_unit<T, unit> z;
#pragma unroll
            for (int j = 0; j < unit; j++)
                z.set(j, F::apply(x[r].get(j), has_b ? y[r].get(j) : 0.0f));
            z.store(out + i * unit);
        }
    }
    int64_t i = n_units * unit + threadIdx.x; /* what is left of less than a unit */
    if (blockIdx.x == 0 && i < n)
        out[i] = mist_from_float<T>(
            F::apply(mist_to_float(a[i]), has_b ? mist_to_float(b[i]) : 0.0f));
}

template <typename F, bool has_b>
void launch_map(mist_cuda_stream stream, enum mist_dtype dtype, void *out, const void *a,
                const void *b, int64_t n)
{
    if (n == 0)
        return;
    MIST_CUDA_BY_UNIT(
        dtype, mist_are_aligned(out, a, b), 0, T, unit, /* any n */
        int64_t n_blocks = mist_ceil_div(n < unit ? 1 : n / unit, N_THREADS * N_REPEATS);
        MIST_CUDA_LAUNCH((map<F, T, has_b, unit>), (unsigned)n_blocks, N_THREADS, 0,
                         stream, (T *)out, (const T *)a, (const T *)b, n));
}

/* ------------------------------------------------------------------------------ scale */

template <typename T, int unit>
__global__ void __launch_bounds__(N_THREADS) run_scale(T *x, float factor, int64_t n)
{
    int64_t i = ((int64_t)blockIdx.x * N_THREADS + threadIdx.x) * unit;

    if (i + unit <= n) {
        mist_unit<T, unit> y;
        y.load(x + i);
#pragma unroll
        for (int j = 0; j < unit; j++)
            y.set(j, factor * y.get(j));
        y.store(x + i);
        return;
    }
    for (; i < n; i++) /* what is left of less than a unit */
        x[i] = mist_from_float<T>(factor * mist_to_float(x[i]));
}

/* --------------------------------------------------------------------- swiglu, geglu */

template <typename gate_t, typename T, int unit>
__global__ void __launch_bounds__(N_THREADS)
    run_gate_forward(T *out, const T *gate_up, int64_t rows, int64_t f)
{
    int64_t column = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * unit;
    int64_t i = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;

    if (column >= f)
        return;
#pragma unroll 1
    for (; i < rows; i += (int64_t)gridDim.y * blockDim.y) {
        mist_unit<T, unit> gate, up;
        gate.load(gate_up + i * 2 * f + column);
        up.load(gate_up + i * 2 * f + f + column);
#pragma unroll
        for (int j = 0; j < unit; j++) {
            float y, slope;
            activate<gate_t>(gate.get(j), &y, &slope);
            gate.set(j, y * up.get(j));
        }
        gate.store(out + i * f + column);
    }
}

template <typename gate_t, typename T, int unit>
__global__ void __launch_bounds__(N_THREADS)
    run_gate_backward(T *d_gate_up, const T *d_out, const T *gate_up, int64_t rows,
                      int64_t f)
{
    int64_t column = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * unit;
    int64_t i = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;

    if (column >= f)
        return;
#pragma unroll 1
    for (; i < rows; i += (int64_t)gridDim.y * blockDim.y) {
        mist_unit<T, unit> gate, up, d;
        gate.load(gate_up + i * 2 * f + column);
        up.load(gate_up + i * 2 * f + f + column);
        d.load(d_out + i * f + column);
#pragma unroll
        for (int j = 0; j < unit; j++) {
            float y, slope;
            activate<gate_t>(gate.get(j), &y, &slope);
            gate.set(j, d.get(j) * up.get(j) * slope);
            up.set(j, d.get(j) * y);
        }
        gate.store(d_gate_up + i * 2 * f + column);
        up.store(d_gate_up + i * 2 * f + f + column);
    }
}

template <typename gate_t>
void launch_gate_forward(mist_cuda_stream stream, enum mist_dtype dtype, void *out,
                         const void *gate_up, int64_t rows, int64_t f)
{
    if (rows == 0 || f == 0)
        return;
    MIST_CUDA_BY_UNIT(dtype, mist_are_aligned(out, gate_up), f, T, unit,
                      mist_row_launch at = mist_lay_out_rows(rows, f / unit, N_THREADS);
                      MIST_CUDA_LAUNCH((run_gate_forward<gate_t, T, unit>), at.grid,
                                       at.block, 0, stream, (T *)out, (const T *)gate_up,
                                       rows, f));
}

template <typename gate_t>
void launch_gate_backward(mist_cuda_stream stream, enum mist_dtype dtype, void *d_gate_up,
                          const void *d_out, const void *gate_up, int64_t rows, int64_t f)
{
    if (rows == 0 || f == 0)
        return;
    MIST_CUDA_BY_UNIT(dtype, mist_are_aligned(d_gate_up, d_out, gate_up), f, T, unit,
                      mist_row_launch at = mist_lay_out_rows(rows, f / unit, N_THREADS);
                      MIST_CUDA_LAUNCH((run_gate_backward<gate_t, T, unit>), at.grid,
                                       at.block, 0, stream, (T *)d_gate_up,
                                       (const T *)d_out, (const T *)gate_up, rows, f));
}

/* ------------------------------------------------------------------------------- bias */

template <typename T, int unit>
__global__ void __launch_bounds__(N_THREADS)
    run_add_bias(T *x, const T *bias, int64_t rows, int64_t n_columns)
{
    int64_t column = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * unit;
    int64_t i = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
    mist_unit<T, unit> b, y;

    if (column >= n_columns)
        return;
    b.load(bias + column);
#pragma unroll 1
    for (; i < rows; i += (int64_t)gridDim.y * blockDim.y) {
        y.load(x + i * n_columns + column);
#pragma unroll
        for (int j = 0; j < unit; j++)
            y.set(j, y.get(j) + b.get(j));
        y.store(x + i * n_columns + column);
    }
}

/* ------------------------------------------------------------------------------- rope */

struct rope_shape {
    int64_t b, s, row;      /* elements of a token's row of qkv */
    int64_t n_turned, half; /* q and k heads; half of a head */
    float direction;
};

/* Blocks: head groups, positions, samples. Threads: units of half a head, heads. */
template <typename T, int unit>
__global__ void __launch_bounds__(N_THREADS)
    turn_heads(T *qkv, const float *table, rope_shape shape)
{
    int64_t head = (int64_t)blockIdx.x * blockDim.y + threadIdx.y, half = shape.half;

    if (head >= shape.n_turned)
        return;
    for (int64_t i = blockIdx.z; i < shape.b; i += gridDim.z)
        for (int64_t p = blockIdx.y; p < shape.s; p += gridDim.y)
            for (int64_t j = (int64_t)threadIdx.x * unit; j < half;
                 j += (int64_t)blockDim.x * unit) {
                T *at = qkv + (i * shape.s + p) * shape.row + head * 2 * half + j;
                mist_unit<T, unit> lo, hi;
                mist_unit<float, unit> cosine, sine;
                lo.load(at);
                hi.load(at + half);
                cosine.load(table + p * 2 * half + j);
                sine.load(table + p * 2 * half + half + j);
#pragma unroll
                for (int k = 0; k < unit; k++) {
                    float x = lo.get(k), y = hi.get(k), c = cosine.get(k),
                          d = shape.direction * sine.get(k);
                    lo.set(k, x * c - y * d);
                    hi.set(k, y * c + x * d);
                }
                lo.store(at);
                hi.store(at + half);
            }
}

template <typename T, int unit>
void launch_rope(mist_cuda_stream stream, T *qkv, const float *table,
                 const rope_shape &shape)
{
    int64_t n_units = shape.half / unit;
    unsigned x = (unsigned)(n_units < N_THREADS ? n_units : N_THREADS);
    unsigned y = N_THREADS / x;
    if (y > shape.n_turned)
        y = (unsigned)shape.n_turned;
    dim3 grid((unsigned)mist_ceil_div(shape.n_turned, y), mist_grid_extent(shape.s),
              mist_grid_extent(shape.b));

    MIST_CUDA_LAUNCH((turn_heads<T, unit>), grid, dim3(x, y), 0, stream, qkv, table,
                     shape);
}

/* ------------------------------------------------------------------------ column sums */

constexpr int N_SUM_THREADS = 512, N_SUM_ROWS = 8; /* rows a thread reads at once */

/* sum[unit] += n rows, stride elements apart, in order. The next rows are on their way
 * while these are added. */
template <typename T, int unit>
__device__ __forceinline__ void add_rows(float *sum, const T *x, int64_t n,
                                         int64_t stride)
{
    mist_unit<T, unit> next[N_SUM_ROWS], v;
    int64_t n_batches = n / N_SUM_ROWS, n_rest = n % N_SUM_ROWS;

#pragma unroll
    for (int r = 0; r < N_SUM_ROWS && n_batches > 0; r++, x += stride)
        next[r].load(x);
#pragma unroll 1
    for (int64_t i = 1; i <= n_batches; i++) {
#pragma unroll
        for (int r = 0; r < N_SUM_ROWS; r++) {
            v = next[r];
            if (i < n_batches)
                next[r].load(x + r * stride);
#pragma unroll
            for (int j = 0; j < unit; j++)
                sum[j] += v.get(j);
        }
        if (i < n_batches)
            x += N_SUM_ROWS * stride;
    }
#pragma unroll 1
    for (; n_rest > 0; n_rest--, x += stride) {
        v.load(x);
#pragma unroll
        for (int j = 0; j < unit; j++)
            sum[j] += v.get(j);
    }
}

/*
 * A block sums the columns of n_across units over all rows: n_down threads take every
 * n_down-th row each, in fp32 and in order, and a tree adds up theirs.
 */
template <typename T, typename G, int unit, int n_across>
__global__ void __launch_bounds__(N_SUM_THREADS)
    sum_columns(G *out, const T *x, int64_t rows, int64_t n_columns, bool overwrites)
{
    constexpr int n_down = N_SUM_THREADS / n_across, width = n_across * unit;
    __shared__ float sums[n_down * width];
    int t = (int)threadIdx.x, across = t % n_across, down = t / n_across;
    int64_t first_column = (int64_t)blockIdx.x * width;
    int64_t column = first_column + across * unit;
    float sum[unit] = {0.0f};

    if (column < n_columns)
        add_rows<T, unit>(sum, x + down * n_columns + column,
                          down < rows ? (rows - down - 1) / n_down + 1 : 0,
                          n_down * n_columns);
#pragma unroll
    for (int j = 0; j < unit; j++)
        sums[down * width + across * unit + j] = sum[j];
    for (int n = n_down / 2 * width; n >= width; n /= 2) {
        __syncthreads();
        for (int k = t; k < n; k += N_SUM_THREADS)
            sums[k] += sums[k + n];
    }
    __syncthreads();
    if (t < width && first_column + t < n_columns) {
        G *to = out + first_column + t;
        *to = mist_from_float<G>(overwrites ? sums[t] : mist_to_float(*to) + sums[t]);
    }
}

template <typename T, typename G, int unit, int n_across>
void launch_column_sum_of(mist_cuda_stream stream, G *out, const T *x, int64_t rows,
                          int64_t n_columns, bool overwrites)
{
    MIST_CUDA_LAUNCH((sum_columns<T, G, unit, n_across>),
                     (unsigned)mist_ceil_div(n_columns, unit * n_across), N_SUM_THREADS,
                     0, stream, out, x, rows, n_columns, overwrites);
}

/* As wide as can be (128 bytes at most) while there are blocks for most processors of a
 * large GPU; never less than the 32 bytes that memory moves at once. */
template <typename T, typename G>
void launch_column_sum(mist_cuda_stream stream, G *out, const T *x, int64_t rows,
                       int64_t n_columns, bool overwrites)
{
    constexpr int n = mist_pack<T>::n;
    constexpr int64_t enough_blocks = 128;
    auto launch = launch_column_sum_of<T, G, n, 2>;

    if (!mist_are_aligned(x) || n_columns % n != 0)
        launch = launch_column_sum_of<T, G, 1, 32>;
    else if (n_columns >= enough_blocks * 8 * n)
        launch = launch_column_sum_of<T, G, n, 8>;
    else if (n_columns >= enough_blocks * 4 * n)
        launch = launch_column_sum_of<T, G, n, 4>;
    launch(stream, out, x, rows, n_columns, overwrites);
}

} // namespace

/* ---------------------------------------------------------------------------- launch */

/* by enum mist_activation */
static decltype(&launch_map<gelu_forward, false>)
    const launch_forward[MIST_N_ACTIVATIONS] = {launch_map<gelu_forward, false>,
                                                launch_map<exact_gelu_forward, false>,
                                                launch_map<squared_relu_forward, false>};
static decltype(&launch_map<gelu_backward, true>)
    const launch_backward[MIST_N_ACTIVATIONS] = {launch_map<gelu_backward, true>,
                                                 launch_map<exact_gelu_backward, true>,
                                                 launch_map<squared_relu_backward, true>};

void mist_cuda_activation_forward(mist_cuda_stream stream, enum mist_dtype dtype,
                                  enum mist_activation kind, void *out, const void *x,
                                  int64_t n)
{
    launch_forward[kind](stream, dtype, out, x, nullptr, n);
}

void mist_cuda_activation_backward(mist_cuda_stream stream, enum mist_dtype dtype,
                                   enum mist_activation kind, void *dx, const void *d_out,
                                   const void *x, int64_t n)
{
    launch_backward[kind](stream, dtype, dx, x, d_out, n);
}

void mist_cuda_add(mist_cuda_stream stream, enum mist_dtype dtype, void *out,
                   const void *a, const void *b, int64_t n)
{
    launch_map<sum, true>(stream, dtype, out, a, b, n);
}

void mist_cuda_scale(mist_cuda_stream stream, enum mist_dtype dtype, void *x,
                     float factor, int64_t n)
{
    if (n == 0)
        return;
    MIST_CUDA_BY_UNIT(dtype, mist_are_aligned(x), 0, T, unit, /* any n */
                      int64_t n_blocks = mist_ceil_div(n, (int64_t)N_THREADS * unit);
                      MIST_CUDA_LAUNCH((run_scale<T, unit>), (unsigned)n_blocks,
                                       N_THREADS, 0, stream, (T *)x, factor, n));
}

void mist_cuda_swiglu_forward(mist_cuda_stream stream, enum mist_dtype dtype,
                              bool is_geglu, void *out, const void *gate_up, int64_t rows,
                              int64_t f)
{
    (is_geglu ? launch_gate_forward<gelu> : launch_gate_forward<silu>)(stream, dtype, out,
                                                                       gate_up, rows, f);
}

void mist_cuda_swiglu_backward(mist_cuda_stream stream, enum mist_dtype dtype,
                               bool is_geglu, void *d_gate_up, const void *d_out,
                               const void *gate_up, int64_t rows, int64_t f)
{
    (is_geglu
         ? launch_gate_backward<gelu>
         : launch_gate_backward<silu>)(stream, dtype, d_gate_up, d_out, gate_up, rows, f);
}

void mist_cuda_add_bias(mist_cuda_stream stream, enum mist_dtype dtype, void *x,
                        const void *bias, int64_t rows, int64_t n_columns)
{
    if (rows == 0 || n_columns == 0)
        return;
    MIST_CUDA_BY_UNIT(dtype, mist_are_aligned(x, bias), n_columns, T, unit,
                      mist_row_launch at =
                          mist_lay_out_rows(rows, n_columns / unit, N_THREADS);
                      MIST_CUDA_LAUNCH((run_add_bias<T, unit>), at.grid, at.block, 0,
                                       stream, (T *)x, (const T *)bias, rows, n_columns));
}

void mist_cuda_rope(mist_cuda_stream stream, enum mist_dtype dtype, void *qkv,
                    const float *table, const struct mist_cpu_attention *of,
                    int is_backward)
{
    if (of->b == 0)
        return;
    rope_shape shape = {of->b,
                        of->s,
                        (of->heads + 2 * of->kv_heads) * of->head_dim,
                        of->heads + of->kv_heads,
                        of->head_dim / 2,
                        is_backward ? -1.0f : 1.0f};
    MIST_CUDA_BY_UNIT(dtype, mist_are_aligned(qkv, table), shape.half, T, unit,
                      launch_rope<T, unit>(stream, (T *)qkv, table, shape));
}

void mist_cuda_column_sum(mist_cuda_stream stream, enum mist_dtype dtype,
                          enum mist_dtype out_dtype, void *out, const void *x,
                          int64_t rows, int64_t n_columns, bool overwrites)
{
    if (n_columns == 0)
        return;
    MIST_CUDA_BY_DTYPE(
        dtype, T,
        MIST_CUDA_BY_DTYPE(out_dtype, G,
                           launch_column_sum(stream, (G *)out, (const T *)x, rows,
                                             n_columns, overwrites)));
}
