/*
 * Time of an operator from measured rows. See cost_model.h.
 *
 * Rows of one operator, dtype and phase stand sorted by (dims[1 ..], dims[0]), so rows
 * that differ in dims[0] alone (rows, batch, elements: what a micro-batch changes) are
 * neighbours: a line. Three rules, in this order:
 *   hit    the shape was measured;
 *   line   between two rows of its line: time is straight in dims[0]. Leaving out points
 *          of 216 measured GEMM lines (fp16 on A100, H100, A40, sizes apart by 2) this
 *          errs by 7 % in the mean, efficiency interpolated in log-log by 8 %, linear in
 *          log(size) by 14 %: time is a constant and a slope, not a power;
 *   near   otherwise, what is expected of the shape, times by how much the nearest rows
 *          differ from what is expected of theirs: the mean of log(time / expected) of 4
 *          in log(dims), weighted by 1 / distance^2; flagged where a dim is outside of its
 *          measured range.
 * What is expected is a line that is fitted to the rows of an operator, dtype and phase:
 * a constant, for a kernel's start, and a factor times the bound (mist_cost_bound_s: tiles
 * and waves of products, the roofline elsewhere).
 * Of public products on A100 and H100, and norms on H200, that lie outside of what was
 * kept of them, the median error is 4 to 13 %, with the efficiency of the nearest row 7 to
 * 21 %; worst are fewer rows than measured on A100 (tests/unit/test_extrapolation.c).
 */
#include "core/order.h"
#include "sim/cost/cost_internal.h"

#include <float.h>  /* DBL_MAX */
#include <math.h>   /* log, exp, sqrt */
#include <stdlib.h> /* qsort */
#include <string.h> /* strcmp */

/* No kernel takes longer to start: a larger constant means that small shapes are slow. */
#define START_MAX_S 50e-6
/* Rows beyond a factor of 4 away are far. */
#define FAR_DISTANCE2 1.9218120556728056 /* log(4)^2 */
/* Relative deviation of a time outside of the measured range: at least what public tables
 * of products show (tests/unit/test_extrapolation.c), and where too few rows are there to
 * say it. */
#define LEAST_FAR_FRAC   0.1
#define UNKNOWN_FAR_FRAC 0.2

enum {
    N_NEAR = 4,           /* rows that a shape off every line is priced from */
    MAX_LEAVE_OUTS = 512, /* shapes that a residual is taken over, evenly chosen */
};

static int32_t key_of(enum mist_op op, enum mist_trace_dtype dtype, enum mist_phase phase)
{
    return ((int32_t)op * MIST_N_TRACE_DTYPES + (int32_t)dtype) * MIST_N_PHASES +
           (int32_t)phase;
}

enum mist_op mist_cost_key_op(int32_t key)
{
    return (enum mist_op)(key / (MIST_N_TRACE_DTYPES * MIST_N_PHASES));
}

enum mist_trace_dtype mist_cost_key_dtype(int32_t key)
{
    return (enum mist_trace_dtype)(key / MIST_N_PHASES % MIST_N_TRACE_DTYPES);
}

enum mist_phase mist_cost_key_phase(int32_t key)
{
    return (enum mist_phase)(key % MIST_N_PHASES);
}

double mist_cost_roofline_s(const struct mist_cluster *cluster,
                            enum mist_trace_dtype dtype, double flop, double bytes)
{
    double peak = cluster->peak_flop_per_s[dtype];
    double flop_s = peak > 0 ? flop / peak : 0;
    double bytes_s = bytes / cluster->memory_bytes_per_s;

    return flop_s > bytes_s ? flop_s : bytes_s;
}

/* ----------------------------------------------------------------------------- shapes */

static bool is_same_line(const int64_t a[MIST_MAX_DIMS], const int64_t b[MIST_MAX_DIMS])
{
    return memcmp(a + 1, b + 1, (MIST_MAX_DIMS - 1) * sizeof *a) == 0;
}

/* Order inside a group: dims[1 ..], then dims[0]. */
static int compare_dims(const int64_t a[MIST_MAX_DIMS], const int64_t b[MIST_MAX_DIMS])
{
    for (int i = 1; i < MIST_MAX_DIMS; i++)
        if (a[i] != b[i])
            return MIST_COMPARE(a[i], b[i]);
    return MIST_COMPARE(a[0], b[0]);
}

static int compare_points(const void *a_void, const void *b_void)
{
    const struct mist_kernel_point *a = a_void, *b = b_void;

    return a->key != b->key ? MIST_COMPARE(a->key, b->key)
                            : compare_dims(a->dims, b->dims);
}

static double distance2(const double a[MIST_MAX_DIMS], const double b[MIST_MAX_DIMS])
{
    double sum = 0;

    for (int i = 0; i < MIST_MAX_DIMS; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
}

/* First of n points that is not before dims; n if all are. */
static size_t lower_bound(const struct mist_kernel_point *points, size_t n,
                          const int64_t dims[MIST_MAX_DIMS])
{
    MIST_BISECT(low, 0, n, i, compare_dims(points[i].dims, dims) < 0);
    return low;
}

/* ---------------------------------------------------------------------- interpolation */

/* Share of the way from a to b along dims[0]. */
static double line_frac(const struct mist_kernel_point *a,
                        const struct mist_kernel_point *b, int64_t size)
{
    return (double)(size - a->dims[0]) / (double)(b->dims[0] - a->dims[0]);
}

/* The nearest rows of known ratio, nearest first. */
struct near {
    int n;
    const struct mist_kernel_point *points[N_NEAR];
    double distance2[N_NEAR];
};

/* Rows on the line of without (NULL: none) are passed over, and those that are nearer than
 * least2. Ties go to the first row. */
static void find_near(const struct mist_kernel_point *points, size_t n,
                      const double log_dims[MIST_MAX_DIMS],
                      const struct mist_kernel_point *without, double least2,
                      struct near *out)
{
    out->n = 0;
    for (size_t i = 0; i < n; i++) {
        const struct mist_kernel_point *point = &points[i];
        if (point->ratio <= 0 || (without && is_same_line(point->dims, without->dims)))
            continue;
        double d = distance2(point->log_dims, log_dims);
        int at = out->n;
        if (d < least2)
            continue;
        while (at > 0 && d < out->distance2[at - 1])
            at--;
        if (at == N_NEAR)
            continue;
        int last = out->n < N_NEAR ? out->n : N_NEAR - 1;
        for (int k = last; k > at; k--) {
            out->points[k] = out->points[k - 1];
            out->distance2[k] = out->distance2[k - 1];
        }
        out->points[at] = point;
        out->distance2[at] = d;
        if (out->n < N_NEAR)
            out->n++;
    }
}

/* Geometric mean of the ratios, weighted by 1 / distance^2; 0 without rows. */
static double near_ratio(const struct near *near)
{
    double sum = 0, weights = 0;

    if (near->n == 0)
        return 0;
    if (near->distance2[0] <= 0)
        return near->points[0]->ratio;
    for (int i = 0; i < near->n; i++) {
        sum += log(near->points[i]->ratio) / near->distance2[i];
        weights += 1 / near->distance2[i];
    }
    return exp(sum / weights);
}

/* -------------------------------------------------------------------------- residuals */

/* Root mean square of n relative errors with this sum of squares; -1 without any. */
static double residual(double sum, int64_t n)
{
    return n > 0 ? sqrt(sum / (double)n) : -1;
}

/* Every row between two others of its line, predicted from them. */
static double line_residual(const struct mist_kernel_point *points, size_t n)
{
    double sum = 0;
    int64_t count = 0;

    for (size_t i = 1; i + 1 < n; i++) {
        const struct mist_kernel_point *a = &points[i - 1], *b = &points[i + 1];
        if (!is_same_line(a->dims, b->dims))
            continue;
        double w = line_frac(a, b, points[i].dims[0]);
        double error = (a->time_s + w * (b->time_s - a->time_s)) / points[i].time_s - 1;
        sum += error * error;
        count++;
    }
    return residual(sum, count);
}

/* Rows predicted from the other lines, where these are least2 away or more. */
static double near_residual(const struct mist_kernel_point *points, size_t n,
                            double least2)
{
    size_t stride = (n + MAX_LEAVE_OUTS - 1) / MAX_LEAVE_OUTS;
    double sum = 0;
    int64_t count = 0;

    for (size_t i = 0; i < n; i += stride) {
        struct near near;
        if (points[i].ratio <= 0)
            continue;
        find_near(points, n, points[i].log_dims, &points[i], least2, &near);
        if (near.n == 0)
            continue;
        double error = near_ratio(&near) / points[i].ratio - 1;
        sum += error * error;
        count++;
    }
    return residual(sum, count);
}

/*
 * Relative deviation of an interpolated time: the group's residual where it has one.
 * Otherwise the truth is taken to lie anywhere between the two rates (uniform on a
 * logarithmic scale).
 */
static double interpolation_frac(double residual_frac, double rate_a, double rate_b)
{
    if (residual_frac >= 0)
        return residual_frac;
    return rate_a > 0 && rate_b > 0 ? fabs(log(rate_a / rate_b)) / sqrt(12) : 0;
}

/* ---------------------------------------------------------------------------- pricing */

static struct mist_cost price_line(const struct mist_kernel_group *group,
                                   const struct mist_kernel_point *a,
                                   const struct mist_kernel_point *b, int64_t size)
{
    double w = line_frac(a, b, size);
    double time_s = a->time_s + w * (b->time_s - a->time_s);
    double frac = interpolation_frac(group->line_frac, (double)a->dims[0] / a->time_s,
                                     (double)b->dims[0] / b->time_s);

    return (struct mist_cost){
        .time_s = time_s,
        .deviation_s =
            hypot(hypot((1 - w) * a->deviation_s, w * b->deviation_s), frac * time_s),
    };
}

static bool is_inside(const struct mist_kernel_group *group,
                      const int64_t dims[MIST_MAX_DIMS])
{
    for (int i = 0; i < MIST_MAX_DIMS; i++)
        if (dims[i] < group->min[i] || dims[i] > group->max[i])
            return false;
    return true;
}

static double expected_s(const struct mist_kernel_group *group, double bound_s)
{
    return group->start_s + group->slope * bound_s;
}

/* False when no row of the group knows what it was to be expected to take. */
static bool price_near(const struct mist_cost_model *model,
                       const struct mist_kernel_group *group,
                       const int64_t dims[MIST_MAX_DIMS], double bound_s,
                       struct mist_cost *out)
{
    bool inside = is_inside(group, dims);
    double log_dims[MIST_MAX_DIMS], low = DBL_MAX, high = 0, spread = 0;
    struct near near;

    for (int i = 0; i < MIST_MAX_DIMS; i++)
        log_dims[i] = log((double)dims[i]);
    find_near(model->kernels + group->first, group->n, log_dims, NULL, 0, &near);
    if (near.n == 0)
        return false;
    double time_s = expected_s(group, bound_s) * near_ratio(&near);
    for (int i = 0; i < near.n; i++) {
        const struct mist_kernel_point *point = near.points[i];
        low = fmin(low, point->ratio);
        high = fmax(high, point->ratio);
        spread = fmax(spread, point->deviation_s / point->time_s);
    }
    double frac = inside                 ? interpolation_frac(group->near_frac, low, high)
                  : group->far_frac >= 0 ? fmax(group->far_frac, LEAST_FAR_FRAC)
                                         : UNKNOWN_FAR_FRAC;
    *out = (struct mist_cost){
        .time_s = time_s,
        .deviation_s = time_s * hypot(spread, frac),
        .extrapolated_s = inside ? 0 : time_s,
    };
    return true;
}

/* *stands_in (may be NULL): the rows are of another format (mist_cost_stand_in). */
static const struct mist_kernel_group *group_of(const struct mist_cost_model *model,
                                                enum mist_op op, enum mist_phase phase,
                                                enum mist_dtype dtype, bool *stands_in)
{
    enum mist_trace_dtype word = mist_cost_trace_dtype(dtype);
    const struct mist_kernel_group *own = &model->groups[key_of(op, word, phase)];
    enum mist_trace_dtype other = mist_cost_stand_in(&model->traces->cluster, word);
    bool is_other = own->n == 0 && other != word;

    if (stands_in)
        *stands_in = is_other;
    return is_other ? &model->groups[key_of(op, other, phase)] : own;
}

bool mist_cost_model_prices_host(const struct mist_cost_model *model,
                                 enum mist_dtype dtype)
{
    return model->interference.shares_processors ||
           model->cluster.curve.host_adamw_elements_per_s > 0 ||
           group_of(model, MIST_OP_ADAMW_HOST, MIST_PHASE_OPTIMIZER, dtype, NULL)->n > 0;
}

/* Whether something of the operator was measured: it, or what it is made of. */
static bool is_measured(const struct mist_cost_model *model, enum mist_op op,
                        enum mist_phase phase, enum mist_dtype dtype,
                        const int64_t dims[MIST_MAX_DIMS])
{
    struct mist_op_part parts[MIST_MAX_OP_PARTS];

    if (group_of(model, op, phase, dtype, NULL)->n > 0)
        return true;
    for (int32_t i = mist_op_parts(op, phase, dims, parts) - 1; i >= 0; i--)
        if (is_measured(model, parts[i].op, parts[i].phase, dtype, parts[i].dims))
            return true;
    return false;
}

/* The sum of what an operator is made of. */
static enum mist_status price_parts(const struct mist_cost_model *model, enum mist_op op,
                                    enum mist_phase phase, enum mist_dtype dtype,
                                    const int64_t dims[MIST_MAX_DIMS],
                                    struct mist_cost *out, struct mist_err *err)
{
    struct mist_op_part parts[MIST_MAX_OP_PARTS];
    int32_t n = mist_op_parts(op, phase, dims, parts);
    struct mist_cost sum = {0}, cost;

    for (int32_t i = 0; i < n; i++) {
        struct mist_work work =
            mist_op_work(parts[i].op, parts[i].phase, parts[i].dims, dtype);
        enum mist_status status =
            mist_cost_op_part(model, parts[i].op, parts[i].phase, dtype, parts[i].dims,
                              (double)work.flop, (double)work.bytes, &cost, err);
        if (status != MIST_OK)
            return status;
        if (parts[i].time_frac > 0)
            mist_cost_scale(&cost, parts[i].time_frac);
        mist_cost_add(&sum, &cost);
    }
    *out = sum;
    return MIST_OK;
}

/* dims with 1 beyond those of the operator, so that all of them can be compared. */
static enum mist_status take_dims(enum mist_op op, const int64_t dims[MIST_MAX_DIMS],
                                  int64_t out[MIST_MAX_DIMS], struct mist_err *err)
{
    const char *const *names = mist_op_dims(op);
    int n = 0;

    for (; n < MIST_MAX_DIMS && names[n]; n++) {
        if (dims[n] < 1)
            return mist_err_set(err, MIST_ERR_INPUT, "%s: %s is %lld, must be above 0",
                                mist_op_name(op), names[n], (long long)dims[n]);
        out[n] = dims[n];
    }
    for (; n < MIST_MAX_DIMS; n++)
        out[n] = 1;
    return MIST_OK;
}

/* A row of exactly these dims, or between two of their line. */
static bool price_row(const struct mist_cost_model *model,
                      const struct mist_kernel_group *group,
                      const int64_t dims[MIST_MAX_DIMS], struct mist_cost *out)
{
    const struct mist_kernel_point *points = model->kernels + group->first;
    size_t i = lower_bound(points, group->n, dims);

    if (i == group->n || !is_same_line(points[i].dims, dims))
        return false;
    if (points[i].dims[0] == dims[0])
        *out = (struct mist_cost){.time_s = points[i].time_s,
                                  .deviation_s = points[i].deviation_s};
    else if (i > 0 && is_same_line(points[i - 1].dims, dims))
        *out = price_line(group, &points[i - 1], &points[i], dims[0]);
    else
        return false;
    return true;
}

/* What another peak and rate of memory make of a measured time: as much as of its bound. */
static double device_factor(const struct mist_cost_model *model, enum mist_op op,
                            enum mist_phase phase, enum mist_dtype dtype,
                            const int64_t dims[MIST_MAX_DIMS], double flop, double bytes)
{
    enum mist_trace_dtype word = mist_cost_trace_dtype(dtype);
    bool is_as_measured = model->speeds.peak == 1 && model->speeds.memory_rate == 1;

    if (is_as_measured || op == MIST_OP_ADAMW_HOST)
        return 1;
    double measured_s = mist_cost_bound_s(&model->traces->cluster, &model->curve, op,
                                          phase, word, dims, flop, bytes);
    double edited_s = mist_cost_bound_s(&model->cluster, &model->curve, op, phase, word,
                                        dims, flop, bytes);
    return measured_s > 0 ? edited_s / measured_s : 1;
}

/* By the operator's own rows, if there are any. */
static bool price_measured(const struct mist_cost_model *model, enum mist_op op,
                           enum mist_phase phase, enum mist_dtype dtype,
                           const int64_t dims[MIST_MAX_DIMS], double flop, double bytes,
                           struct mist_cost *out)
{
    bool stands_in;
    const struct mist_kernel_group *group = group_of(model, op, phase, dtype, &stands_in);

    if (group->n == 0)
        return false;
    if (!price_row(model, group, dims, out)) {
        double bound_s = mist_cost_bound_s(&model->traces->cluster, &model->curve, op,
                                           phase, mist_cost_trace_dtype(dtype), dims,
                                           flop, group->knows_bytes ? bytes : 0);
        if (bound_s <= 0 || !price_near(model, group, dims, bound_s, out))
            return false;
    }
    if (stands_in)
        out->extrapolated_s = out->borrowed_s = out->time_s;
    mist_cost_scale(out, device_factor(model, op, phase, dtype, dims, flop, bytes));
    return true;
}

enum mist_status mist_cost_op_part(const struct mist_cost_model *model, enum mist_op op,
                                   enum mist_phase phase, enum mist_dtype dtype,
                                   const int64_t dims[MIST_MAX_DIMS], double flop,
                                   double bytes, struct mist_cost *out,
                                   struct mist_err *err)
{
    int64_t at[MIST_MAX_DIMS];
    enum mist_status status = take_dims(op, dims, at, err);

    if (status != MIST_OK)
        return status;
    bool has_rows = group_of(model, op, phase, dtype, NULL)->n > 0;
    if (!has_rows && is_measured(model, op, phase, dtype, dims))
        return price_parts(model, op, phase, dtype, dims, out, err);
    if (price_measured(model, op, phase, dtype, at, flop, bytes, out))
        return MIST_OK;
    /* no one product; a curve of whole sequences */
    if (op == MIST_OP_LINEAR_CROSS_ENTROPY || op == MIST_OP_ATTENTION_PART)
        return price_parts(model, op, phase, dtype, dims, out, err);
    return mist_cost_datasheet(&model->cluster, op, phase, mist_cost_trace_dtype(dtype),
                               at, flop, bytes, out, err);
}

enum mist_status mist_cost_op(const struct mist_cost_model *model, enum mist_op op,
                              enum mist_phase phase, enum mist_dtype dtype,
                              const int64_t dims[MIST_MAX_DIMS], double flop,
                              double bytes, struct mist_cost *out, struct mist_err *err)
{
    enum mist_status status =
        mist_cost_op_part(model, op, phase, dtype, dims, flop, bytes, out, err);

    if (status == MIST_OK)
        mist_cost_scale(out, 1 / model->speeds.kernel[op]);
    return status;
}

/* ----------------------------------------------------------------------- construction */

int mist_cost_find_op(const char *name)
{
    int op = 0;

    while (op < MIST_N_OPS && (mist_op_is_communication((enum mist_op)op) ||
                               strcmp(mist_op_name((enum mist_op)op), name) != 0))
        op++;
    return op;
}

/* folder: of the trace set; NULL: none. */
static enum mist_status take_row(const struct mist_kernel_row *row, const char *folder,
                                 enum mist_op op, struct mist_kernel_point *out,
                                 struct mist_err *err)
{
    const char *const *names = mist_op_dims(op);
    int n = 0;

    while (n < MIST_MAX_DIMS && names[n]) {
        out->dims[n] = mist_shape_get(&row->shape, names[n]);
        if (out->dims[n] < 1)
            break;
        n++;
    }
    if (n != row->shape.n_dims || (n < MIST_MAX_DIMS && names[n])) {
        char text[MIST_SHAPE_TEXT_MAX], wanted[MIST_SHAPE_TEXT_MAX];
        char path[sizeof err->path];
        int64_t ones[MIST_MAX_DIMS] = {1, 1, 1, 1, 1, 1};
        mist_shape_format(&row->shape, text);
        snprintf(path, sizeof path, "%s%skernels.csv", folder ? folder : "",
                 folder ? "/" : "");
        return mist_err_at(err, MIST_ERR_INPUT, path, row->line, 0,
                           "%s has the shape %.150s, expected one like %s", row->op, text,
                           mist_op_shape_text(op, ones, wanted, sizeof wanted));
    }
    for (; n < MIST_MAX_DIMS; n++)
        out->dims[n] = 1;
    for (n = 0; n < MIST_MAX_DIMS; n++)
        out->log_dims[n] = log((double)out->dims[n]);
    out->key = key_of(op, row->dtype, row->phase);
    out->time_s = row->time_us * 1e-6;
    out->deviation_s = mist_cost_standard_error_s(row->deviation_us, row->repetitions);
    out->flop = row->flop;
    out->bytes = row->bytes;
    return MIST_OK;
}

/* Whether all of n points say their bytes, and the range of each dim. */
static void survey(const struct mist_kernel_point *points, size_t n,
                   struct mist_kernel_group *group)
{
    group->knows_bytes = true;
    memcpy(group->min, points->dims, sizeof group->min);
    memcpy(group->max, points->dims, sizeof group->max);
    for (size_t i = 0; i < n; i++) {
        if (points[i].bytes <= 0)
            group->knows_bytes = false;
        for (int k = 0; k < MIST_MAX_DIMS; k++) {
            if (points[i].dims[k] < group->min[k])
                group->min[k] = points[i].dims[k];
            if (points[i].dims[k] > group->max[k])
                group->max[k] = points[i].dims[k];
        }
    }
}

/*
 * The line start_s + slope * bound_s with the least squares of relative errors. Where the
 * rows say nothing of the constant, it is default_s, and in all cases no more than most of
 * the shortest row. trusts_bound: a row is added that takes its bound, which is long, so
 * that short rows, which say next to nothing of the slope, don't make one up.
 */
static void fit_line(const struct mist_kernel_point *points, size_t n, double default_s,
                     bool trusts_bound, struct mist_kernel_group *group)
{
    double s11 = 0, s12 = 0, s22 = trusts_bound, s1 = 0, s2 = trusts_bound,
           shortest_s = DBL_MAX;
    size_t n_known = 0;

    for (size_t i = 0; i < n; i++) {
        double start = 1 / points[i].time_s, bound = points[i].bound_s * start;
        if (points[i].bound_s <= 0)
            continue;
        s11 += start * start;
        s12 += start * bound;
        s22 += bound * bound;
        s1 += start;
        s2 += bound;
        shortest_s = fmin(shortest_s, points[i].time_s);
        n_known++;
    }
    double determinant = s11 * s22 - s12 * s12;
    group->start_s = n_known >= 3 && determinant > 1e-9 * s11 * s22
                         ? (s1 * s22 - s2 * s12) / determinant
                         : default_s;
    group->start_s = fmax(0, fmin(group->start_s, fmin(START_MAX_S, 0.99 * shortest_s)));
    group->slope = n_known > 0 ? (s2 - group->start_s * s12) / s22 : 0;
}

/* Points first .. first + n - 1 are one group: its range, what its rows are expected to
 * take, and residuals. */
static void init_group(struct mist_cost_model *model, size_t first, size_t n)
{
    struct mist_kernel_point *points = model->kernels + first;
    struct mist_kernel_group *group = &model->groups[points->key];
    int32_t key = points->key;

    group->first = first;
    group->n = n;
    survey(points, n, group);
    for (size_t i = 0; i < n; i++)
        points[i].bound_s = mist_cost_bound_s(
            &model->traces->cluster, &model->curve, mist_cost_key_op(key),
            mist_cost_key_phase(key), mist_cost_key_dtype(key), points[i].dims,
            points[i].flop, group->knows_bytes ? points[i].bytes : 0);
    fit_line(points, n, model->curve.processors > 0 ? MIST_COST_START_S : 0,
             model->traces->cluster.curve.processors > 0, group);
    for (size_t i = 0; i < n; i++)
        points[i].ratio = points[i].bound_s > 0
                              ? points[i].time_s / expected_s(group, points[i].bound_s)
                              : 0;
    group->line_frac = line_residual(points, n);
    group->near_frac = near_residual(points, n, 0);
    group->far_frac = near_residual(points, n, FAR_DISTANCE2);
}

enum mist_status mist_cost_kernels_init(struct mist_cost_model *model,
                                        struct mist_err *err)
{
    const struct mist_trace_set *traces = model->traces;
    size_t n = 0;

    model->kernels = calloc(traces->n_kernels + 1, sizeof *model->kernels);
    if (!model->kernels)
        return mist_err_memory(err, NULL);
    for (size_t i = 0; i < traces->n_kernels; i++) {
        int op = mist_cost_find_op(traces->kernels[i].op);
        if (op ==
            MIST_N_OPS) /* measured for somebody else; mist_trace_use_warn says it */
            continue;
        enum mist_status status = take_row(&traces->kernels[i], traces->folder,
                                           (enum mist_op)op, &model->kernels[n++], err);
        if (status != MIST_OK)
            return status;
    }
    qsort(model->kernels, n, sizeof *model->kernels, compare_points);
    model->n_kernels = n;
    model->curve = mist_cost_fit_curve(model);
    for (size_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n; end++)
            if (model->kernels[end].key != model->kernels[first].key)
                break;
        init_group(model, first, end - first);
    }
    return MIST_OK;
}
