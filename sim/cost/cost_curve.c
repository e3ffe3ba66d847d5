/*
 * Operators by the data sheet. See mist_cost_datasheet() in cost_internal.h.
 *
 * A data sheet's peak is nothing that anybody reaches. Of cluster.json's "curve" (struct
 * mist_trace_curve) a device has the shares that large products and passes over memory
 * reach; the shape of the curve is the same for all:
 *
 *   time = START + bound = START + max(products, bytes / (memory_frac * memory rate))
 *
 * Products are cut into tiles, one processor works on one at a time:
 *
 *   waves    = tiles / processors, its last one, which is not full, counted by
 *              WAVE_SHARE of what it leaves idle
 *   products = waves * processors * 2 * rows * columns * (K + K_START) /
 *              (product_frac * tile's share * peak)
 *
 * for the tile of TILES that is the fastest, either way around; K_START is what filling
 * the pipeline of a tile costs. Attention reaches a share of the peak that grows with the
 * sequence. Constants were fitted to Vidur's products of 128 rows and more on A100, H100
 * and A40 (1,728 shapes; root mean square 11 %, 7 % from 2,048 rows on), attention to
 * FlashAttention-2 on A100 and cuDNN on H200; tests/unit/test_preset.c says how well they
 * fit where the tables are at hand.
 *
 * The bound also carries measured rows to shapes outside of their grid (cost_kernel.c). Of
 * a GPU that was measured and has no curve, its processors are those with which what is
 * expected of its products is most nearly in proportion to their times; shares are those of
 * a usual device, as a factor common to all rows does not matter there.
 *
 * A data sheet without a curve, of whoever wrote cluster.json by hand, leaves the
 * roofline, which nothing reaches: its doubt is half of the time.
 */
#include "sim/cost/cost_internal.h"

#include <math.h>
#include <stdio.h>  /* snprintf */
#include <string.h> /* strlen */

#define K_START    40
#define WAVE_SHARE 0.5
/* Of the rate, where what lies in memory one behind the other, a row's inputs or outputs, is
 * no multiple of so many bytes (NVIDIA, "Matrix Multiplication Background", figure 4: a third
 * to two thirds). Copies that run beside the products (cp.async) have 4, 8 or 16 bytes: an
 * odd number of two-byte elements has none. Its share is that of vTrain's heads of width
 * 2048; by what each sample takes more there than with width 1024 it is 0.34. */
#define MISALIGNED_FRAC 0.5
#define ODD_FRAC        0.35
#define ALIGNED_BYTES   16
#define COPIED_BYTES    4

/* Of the peak, by attention over long sequences, forward and backward; over a sequence
 * and with a head size that are as long as these, half of it. Kernels with A100's
 * instructions have no higher peak than so many FLOP/s of each processor (0: that of the
 * device), and none is faster than large products, which have the same limit of power. Heads
 * of other sizes than there are kernels for take the next one, and fill it up. */
struct attention_rate {
    double forward_frac, backward_frac, seq, head_dim, processor_flop_per_s;
    int32_t head_dims[8]; /* that there are kernels for, rising; 0: any */
};
static const struct attention_rate ATTENTION_OURS = {0.72, 0.60, 500, 16, 0, {0}};
/* FlashAttention-2 is 1.67 times as fast on H100 as on A100 (its authors' benchmark, 12
 * cases), which is 520 of 989e12. */
static const struct attention_rate ATTENTION_2 = {
    0.72, 0.60, 500, 16, 3.94e12, {32, 64, 96, 128, 160, 192, 224, 256}};
/* FlashAttention of 2022: its authors' benchmark on A100, forward and backward in one,
 * heads of 64 (0.31 of the peak) and of 128 (0.27); on H100 that of Triton in the runs of
 * MPT-1B, which tests/published.sh calls calibration. */
static const struct attention_rate ATTENTION_2022 = {0.28, 0.28,   350,
                                                     0,    4.6e12, {32, 64, 128}};

#define ROOFLINE_DOUBT_FRAC 0.5

/* Fit of a measured GPU's processors. */
enum {
    LEAST_FITTED = 8, /* products that it takes */
    MOST_FITTED = 256,
    MIN_PROCESSORS = 8,
    MAX_PROCESSORS = 256,
};
#define USUAL_PRODUCT_FRAC 0.75
#define USUAL_MEMORY_FRAC  0.82

static const struct tile {
    int32_t rows, columns;
    double share; /* of what the largest reaches */
} TILES[] = {{256, 128, 1}, {128, 128, 0.97}, {128, 64, 0.8}, {64, 64, 0.7}};

/* out [m, n] = a [m, k] * b [k, n] */
struct product {
    int64_t m, n, k;
    double aligned_frac; /* of the rate */
};

/* By the bytes of a row of inputs and of one of outputs. */
static double aligned_frac(int64_t in_bytes, int64_t out_bytes)
{
    int64_t odd_bits = in_bytes | out_bytes;

    return odd_bits % ALIGNED_BYTES == 0  ? 1
           : odd_bits % COPIED_BYTES == 0 ? MISALIGNED_FRAC
                                          : ODD_FRAC;
}

static bool product_of(enum mist_op op, enum mist_phase phase,
                       enum mist_trace_dtype dtype, const int64_t dims[MIST_MAX_DIMS],
                       struct product *out)
{
    int64_t rows = dims[0], n_in = dims[1], n_out = dims[2];
    int64_t element = dtype == MIST_TRACE_FP32 ? 4 : 2;
    double frac = aligned_frac(element * n_in, element * n_out);

    switch (op) {
    case MIST_OP_LINEAR:
    case MIST_OP_LINEAR_BIAS:
    case MIST_OP_LINEAR_GELU:
    case MIST_OP_LINEAR_RESIDUAL:
        break;
    default:
        return false;
    }
    *out = phase == MIST_PHASE_FORWARD ? (struct product){rows, n_out, n_in, frac}
           : phase == MIST_PHASE_BACKWARD_INPUT
               ? (struct product){rows, n_in, n_out, frac}
               : (struct product){n_in, n_out, rows, frac};
    return true;
}

/* Processor-seconds of peak_flop_per_s that a product takes, on all processors. */
static double tiled_flop(const struct product *of, int32_t rows, int32_t columns,
                         double processors)
{
    double tiles = ceil((double)of->m / rows) * ceil((double)of->n / columns);
    double waves = tiles / processors;

    waves += WAVE_SHARE * (ceil(waves) - waves);
    return waves * processors * 2 * rows * columns * (double)(of->k + K_START);
}

static double product_s(const struct product *of, const struct mist_trace_curve *curve,
                        double peak)
{
    double best = INFINITY;

    for (size_t i = 0; i < sizeof TILES / sizeof *TILES; i++)
        for (int turn = 0; turn < 2; turn++)
            best = fmin(best, tiled_flop(of, turn ? TILES[i].columns : TILES[i].rows,
                                         turn ? TILES[i].rows : TILES[i].columns,
                                         curve->processors) /
                                  TILES[i].share);
    return best / (curve->product_frac * peak * of->aligned_frac);
}

static double kernel_head_dim(const struct attention_rate *rate, int64_t head_dim)
{
    for (size_t i = 0; i < sizeof rate->head_dims / sizeof *rate->head_dims; i++)
        if (rate->head_dims[i] >= head_dim)
            return rate->head_dims[i];
    return (double)head_dim;
}

/* dims: batch, seq, heads, kv_heads, head_dim. */
static double attention_s(const struct attention_rate *rate, enum mist_phase phase,
                          const struct mist_trace_curve *curve,
                          const int64_t dims[MIST_MAX_DIMS], double flop, double peak)
{
    double frac = phase == MIST_PHASE_FORWARD ? rate->forward_frac : rate->backward_frac;
    double seq = (double)dims[1], head_dim = kernel_head_dim(rate, dims[4]);
    double own_peak = curve->processors > 0 && rate->processor_flop_per_s > 0
                          ? fmin(peak, curve->processors * rate->processor_flop_per_s)
                          : peak;
    double most = curve->processors > 0 ? curve->product_frac * peak : INFINITY;

    return flop * head_dim / (double)dims[4] / fmin(own_peak * frac, most) *
           (1 + rate->seq / seq) * (1 + rate->head_dim / head_dim) /
           (1 + rate->head_dim / 128);
}

double mist_cost_attention_factor(const struct mist_cluster *cluster,
                                  enum mist_attention attention, enum mist_phase phase,
                                  enum mist_trace_dtype dtype,
                                  const int64_t dims[MIST_MAX_DIMS])
{
    double peak = cluster->peak_flop_per_s[dtype];
    const struct attention_rate *rate =
        attention == MIST_ATTENTION_FLASH1 ? &ATTENTION_2022 : &ATTENTION_2;

    if (peak <= 0 || attention == MIST_ATTENTION_FLASH_CUDNN)
        return 1;
    return attention_s(rate, phase, &cluster->curve, dims, 1, peak) /
           attention_s(&ATTENTION_OURS, phase, &cluster->curve, dims, 1, peak);
}

double mist_cost_bound_s(const struct mist_cluster *cluster,
                         const struct mist_trace_curve *curve, enum mist_op op,
                         enum mist_phase phase, enum mist_trace_dtype dtype,
                         const int64_t dims[MIST_MAX_DIMS], double flop, double bytes)
{
    double peak = cluster->peak_flop_per_s[dtype];
    struct product product;

    if (curve->processors == 0)
        return mist_cost_roofline_s(cluster, dtype, flop, bytes);
    double flop_s = peak > 0 ? flop / (curve->product_frac * peak) : 0;
    if (peak > 0 && product_of(op, phase, dtype, dims, &product))
        flop_s = product_s(&product, curve, peak);
    else if (peak > 0 && op == MIST_OP_ATTENTION)
        flop_s = attention_s(&ATTENTION_OURS, phase, curve, dims, flop, peak);
    return fmax(flop_s, bytes / (curve->memory_frac * cluster->memory_bytes_per_s));
}

/* -------------------------------------------------------------------------------- fit */

/* Variance of log(time / (START + bound)) of every stride-th product; INFINITY for fewer
 * than LEAST_FITTED. */
static double spread_of_products(const struct mist_cost_model *model,
                                 const struct mist_trace_curve *curve, size_t stride)
{
    double sum = 0, squares = 0;
    size_t n = 0;

    for (size_t i = 0; i < model->n_kernels; i += stride) {
        const struct mist_kernel_point *point = &model->kernels[i];
        enum mist_op op = mist_cost_key_op(point->key);
        struct product product;
        if (!product_of(op, MIST_PHASE_FORWARD, mist_cost_key_dtype(point->key),
                        point->dims, &product))
            continue;
        double bound_s = mist_cost_bound_s(
            &model->traces->cluster, curve, op, mist_cost_key_phase(point->key),
            mist_cost_key_dtype(point->key), point->dims, point->flop, point->bytes);
        if (bound_s <= 0)
            continue;
        double ratio = log(point->time_s / (MIST_COST_START_S + bound_s));
        sum += ratio;
        squares += ratio * ratio;
        n++;
    }
    return n < LEAST_FITTED ? INFINITY : squares / (double)n - pow(sum / (double)n, 2);
}

struct mist_trace_curve mist_cost_fit_curve(const struct mist_cost_model *model)
{
    const struct mist_cluster *cluster = &model->traces->cluster;
    size_t stride = model->n_kernels / MOST_FITTED + 1;
    struct mist_trace_curve best = cluster->curve;

    if (best.processors > 0 || cluster->backend != MIST_TRACE_CUDA)
        return best;
    double least = spread_of_products(model, &best, stride); /* of the roofline */
    for (int n = MIN_PROCESSORS; isfinite(least) && n <= MAX_PROCESSORS; n += 2) {
        struct mist_trace_curve curve = {.processors = n,
                                         .product_frac = USUAL_PRODUCT_FRAC,
                                         .memory_frac = USUAL_MEMORY_FRAC};
        double spread = spread_of_products(model, &curve, stride);
        if (spread < least) {
            least = spread;
            best = curve;
        }
    }
    return best;
}

/* ------------------------------------------------------------------------- data sheet */

/* All devices of a node update at about the same time. The rate is of gradients in fp32;
 * what others save was taken off the elements (mist_cost_add_elements). */
static double host_adamw_s(const struct mist_cluster *cluster, int64_t n_elements)
{
    return (double)n_elements * cluster->devices_per_node /
           cluster->curve.host_adamw_elements_per_s;
}

/* The formats that the device of a preset computes in, or what its trace set lacks. */
static enum mist_status refuse_dtype(const struct mist_cluster *cluster, enum mist_op op,
                                     enum mist_trace_dtype dtype, struct mist_err *err)
{
    const char *name = mist_trace_dtype_words[dtype];
    char others[64] = "";

    if (cluster->backend != MIST_TRACE_DATASHEET)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "cluster %s has neither %s %s in kernels.csv nor a peak "
                            "FLOP rate of %s in cluster.json",
                            cluster->name, name, mist_op_name(op), name);
    for (int i = 0; i < MIST_N_TRACE_DTYPES; i++)
        if (cluster->peak_flop_per_s[i] > 0)
            snprintf(others + strlen(others), sizeof others - strlen(others), "%s%s",
                     others[0] ? ", " : "", mist_trace_dtype_words[i]);
    return mist_err_set(err, MIST_ERR_INPUT,
                        "cluster %s has no rate of %s; expected a format that it "
                        "computes in: %s",
                        cluster->name, name, others);
}

enum mist_status mist_cost_datasheet(const struct mist_cluster *cluster, enum mist_op op,
                                     enum mist_phase phase, enum mist_trace_dtype dtype,
                                     const int64_t dims[MIST_MAX_DIMS], double flop,
                                     double bytes, struct mist_cost *out,
                                     struct mist_err *err)
{
    bool has_curve = cluster->curve.processors > 0;

    if (flop > 0 && cluster->peak_flop_per_s[dtype] <= 0)
        return refuse_dtype(cluster, op, dtype, err);
    double time_s =
        op == MIST_OP_ADAMW_HOST && cluster->curve.host_adamw_elements_per_s > 0
            ? host_adamw_s(cluster, dims[0])
            : (has_curve ? MIST_COST_START_S : 0) +
                  mist_cost_bound_s(cluster, &cluster->curve, op, phase, dtype, dims,
                                    flop, bytes);
    double frac = has_curve ? cluster->curve.residual_frac : ROOFLINE_DOUBT_FRAC;
    *out = (struct mist_cost){.time_s = time_s,
                              .extrapolated_s = time_s,
                              .preset_s = time_s,
                              .doubt_s = frac * time_s};
    return MIST_OK;
}
