/*
 * Bundle solver and fit of the slowdown factors. See interference.h for the model.
 *
 * The bundle time as a function of one set's factors is continuous and piecewise smooth
 * (which channel finishes first decides the piece), and can have several local minima. So
 * a grid over log-spaced factors, on a thinned sample, picks the starts and
 * Levenberg-Marquardt refines them on all samples, with the bound f >= 1 as an active
 * set: a factor at 1 whose gradient points below stays there for that step.
 */
#include "sim/cost/interference.h"

#include <float.h>  /* DBL_MAX */
#include <math.h>   /* isfinite, fabs, exp, log */
#include <stdlib.h> /* malloc */
#include <string.h> /* memcpy */

#define N_CH        MIST_N_CHANNELS
#define N_SETS      MIST_N_STREAM_SETS
#define N_STARTS    6  /* best grid points that are refined */
#define GRID_SAMPLE 96 /* samples the grid looks at */
#define GRID_TOP                                                                         \
    12.                /* largest factor of the grid (the refinement has no upper limit) \
                        */
#define MAX_ROUNDS 200 /* of the refinement */
#define EVEN_GAIN  0.05 /* see prefer_even */

/* The samples of one set, and the factors being fitted to them. */
struct set_problem {
    const struct mist_interference_sample *samples; /* [n], all of this set */
    int64_t n;
    int64_t stride; /* look at every stride-th sample only */
    unsigned set;
    int n_factors;
    int channel[N_CH];                 /* of factor i */
    struct mist_interference *factors; /* smaller sets are final */
    double evenness; /* weight per sample of (log f - mean log f)^2; 0: data alone */
};

static unsigned busy_set(const struct mist_interference_sample *sample)
{
    unsigned set = 0;

    for (int c = 0; c < N_CH; c++)
        set |= (unsigned)(sample->isolated_s[c] > 0.0) << c;
    return set;
}

void mist_interference_init(struct mist_interference *interference)
{
    interference->shares_processors = false;
    interference->takes_turns = false;
    interference->blocks_transfers = false;
    for (int set = 0; set < N_SETS; set++)
        for (int c = 0; c < N_CH; c++)
            interference->slowdown[set][c] = 1.0;
}

void mist_interference_take_turns(struct mist_interference *interference)
{
    static const enum mist_stream by_priority[N_CH] = {
        MIST_STREAM_GPU_GPU, MIST_STREAM_HOST_TO_DEVICE, MIST_STREAM_DEVICE_TO_HOST,
        MIST_STREAM_COMPUTE};

    mist_interference_init(interference);
    interference->takes_turns = true;
    for (unsigned set = 1; set < N_SETS; set++) {
        bool is_taken = false;
        for (int i = 0; i < N_CH; i++) {
            if (!(set >> by_priority[i] & 1u))
                continue;
            interference->slowdown[set][by_priority[i]] =
                is_taken ? MIST_STANDS_STILL : 1;
            is_taken = true;
        }
    }
}

double mist_interference_residual_frac(const struct mist_interference *interference,
                                       const struct mist_interference_sample *samples,
                                       int64_t n_samples, double *worst_frac)
{
    double sum = 0, worst = 0;
    int64_t n = 0;

    for (int64_t i = 0; i < n_samples; i++) {
        unsigned set = busy_set(&samples[i]);
        if (!(set & (set - 1)))
            continue;
        double off =
            fabs(mist_interference_bundle_s(interference, samples[i].isolated_s) /
                     samples[i].together_s -
                 1);
        sum += off;
        worst = fmax(worst, off);
        n++;
    }
    if (worst_frac)
        *worst_frac = worst;
    return n > 0 ? sum / (double)n : 0;
}

enum mist_status mist_interference_check(const struct mist_interference *interference,
                                         struct mist_err *err)
{
    for (int set = 0; set < N_SETS; set++)
        for (int c = 0; c < N_CH; c++) {
            double f = interference->slowdown[set][c];
            if (!isfinite(f) || f < 1.0)
                return mist_err_set(
                    err, MIST_ERR_INPUT,
                    "slowdown of %s in channel set %d is %g, must be finite "
                    "and at least 1",
                    mist_stream_name((enum mist_stream)c), set, f);
        }
    return MIST_OK;
}

double mist_interference_bundle_s(const struct mist_interference *interference,
                                  const double isolated_s[MIST_N_CHANNELS])
{
    double left_s[N_CH], total_s = 0.0;
    unsigned set = 0;

    for (int c = 0; c < N_CH; c++) {
        left_s[c] = isolated_s[c];
        if (left_s[c] > 0.0)
            set |= 1u << c;
    }
    while (set) {
        const double *f = interference->slowdown[set];
        double step_s = DBL_MAX;
        int first = 0;
        for (int c = 0; c < N_CH; c++)
            if (set >> c & 1u && left_s[c] * f[c] < step_s) {
                step_s = left_s[c] * f[c];
                first = c;
            }
        total_s += step_s;
        left_s[first] =
            0.0; /* exactly, whatever rounding says: every round ends a channel */
        for (int c = 0; c < N_CH; c++) {
            if (!(set >> c & 1u))
                continue;
            if (c != first)
                left_s[c] -= step_s / f[c];
            if (left_s[c] <= 0.0)
                set &= ~(1u << c);
        }
    }
    return total_s;
}

/* -------------------------------------------------------------------------------- fit */

static void set_factors(const struct set_problem *p, const double *f)
{
    for (int i = 0; i < p->n_factors; i++)
        p->factors->slowdown[p->set][p->channel[i]] = f[i];
}

/* Predicted / measured - 1 with the factors in place. */
static double residual(const struct set_problem *p,
                       const struct mist_interference_sample *sample)
{
    return mist_interference_bundle_s(p->factors, sample->isolated_s) /
               sample->together_s -
           1.0;
}

/* How far log f[i] is from the mean over the set's factors. */
static double unevenness(const struct set_problem *p, const double *f, int i)
{
    double mean = 0.0;

    for (int k = 0; k < p->n_factors; k++)
        mean += log(f[k]) / p->n_factors;
    return log(f[i]) - mean;
}

static double sum_of_squares(const struct set_problem *p, const double *f)
{
    double sum = 0.0;

    for (int i = 0; i < p->n_factors && p->evenness > 0; i++)
        sum += p->evenness * (double)p->n * unevenness(p, f, i) * unevenness(p, f, i);

    set_factors(p, f);
    for (int64_t i = 0; i < p->n; i += p->stride) {
        double r = residual(p, &p->samples[i]);
        sum += r * r;
    }
    return sum;
}

/* Normal equations of the linearised problem at f: a = J^T J, b = -J^T r.
 * One pass, no storage. */
static void linearise(const struct set_problem *p, const double *f, double a[N_CH][N_CH],
                      double *b)
{
    double *slot[N_CH], row[N_CH];
    int n = p->n_factors;

    memset(a, 0, sizeof(double[N_CH][N_CH]));
    memset(b, 0, sizeof(double[N_CH]));
    set_factors(p, f);
    for (int i = 0; i < n; i++)
        slot[i] = &p->factors->slowdown[p->set][p->channel[i]];
    for (int64_t k = 0; k < p->n; k += p->stride) {
        double r = residual(p, &p->samples[k]);
        for (int i = 0; i < n; i++) {
            double h = 1e-7 * f[i];
            *slot[i] = f[i] + h; /* upwards: the side on which the bound leaves room */
            row[i] = (residual(p, &p->samples[k]) - r) / h;
            *slot[i] = f[i];
        }
        for (int i = 0; i < n; i++) {
            b[i] -= row[i] * r;
            for (int j = 0; j <= i; j++)
                a[i][j] += row[i] * row[j];
        }
    }
    for (int i = 0; i < n && p->evenness > 0; i++) {
        double w = p->evenness * (double)p->n;
        b[i] -= w * unevenness(p, f, i) / f[i];
        for (int j = 0; j <= i; j++) /* projection onto what differs from the mean */
            a[i][j] += w * ((i == j) - 1.0 / n) / (f[i] * f[j]);
    }
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++)
            a[i][j] = a[j][i];
}

/* Solves (a + damping * (diag(a) + tiny)) x = b over the free unknowns by Cholesky; fixed
 * ones: 0. */
static void solve_damped(int n, double a[N_CH][N_CH], const double *b, const bool *fixed,
                         double damping, double *x)
{
    double l[N_CH][N_CH] = {{0}}, y[N_CH] = {0};

    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            double sum = fixed[i] || fixed[j] ? 0.0 : a[i][j];
            if (i == j)
                sum = fixed[i] ? 1.0 : sum * (1.0 + damping) + 1e-12 * (1.0 + damping);
            for (int k = 0; k < j; k++)
                sum -= l[i][k] * l[j][k];
            l[i][j] = i == j ? sqrt(sum > 1e-30 ? sum : 1e-30) : sum / l[j][j];
        }
    for (int i = 0; i < n; i++) {
        y[i] = fixed[i] ? 0.0 : b[i];
        for (int k = 0; k < i; k++)
            y[i] -= l[i][k] * y[k];
        y[i] /= l[i][i];
    }
    for (int i = n - 1; i >= 0; i--) {
        x[i] = y[i];
        for (int k = i + 1; k < n; k++)
            x[i] -= l[k][i] * x[k];
        x[i] /= l[i][i];
    }
}

/*
 * Levenberg-Marquardt from f (in: start, out: minimum). Returns the sum of squares there.
 */
static double refine(const struct set_problem *p, double *f)
{
    double best = sum_of_squares(p, f), damping = 1e-3;
    int n = p->n_factors;

    for (int round = 0; round < MAX_ROUNDS && damping < 1e12; round++) {
        double a[N_CH][N_CH], b[N_CH], step[N_CH], next[N_CH], change = 0.0, value = 0.0;
        bool fixed[N_CH];
        linearise(p, f, a, b);
        for (int i = 0; i < n; i++)
            fixed[i] = f[i] <= 1.0 && b[i] <= 0.0;
        bool better = false;
        while (!better && damping < 1e12) {
            solve_damped(n, a, b, fixed, damping, step);
            change = 0.0;
            for (int i = 0; i < n; i++) {
                next[i] = f[i] + step[i] > 1.0 ? f[i] + step[i] : 1.0;
                change = fmax(change, fabs(next[i] / f[i] - 1.0));
            }
            value = sum_of_squares(p, next);
            better = value < best;
            damping *= better ? 0.2 : 8.0;
        }
        if (!better)
            break;
        double gain = best - value;
        memcpy(f, next, sizeof(double[N_CH]));
        best = value;
        if (change < 1e-11 || gain <= 1e-14 * best)
            break;
        damping = fmax(damping, 1e-12);
    }
    return best;
}

/* The N_STARTS best points of a grid over all factors, best first. */
static void find_starts(const struct set_problem *problem, double starts[N_STARTS][N_CH])
{
    static const int n_levels[N_CH + 1] = {0, 0, 24, 10, 7};
    struct set_problem p = *problem;
    double value[N_STARTS];
    int levels = n_levels[p.n_factors], n_points = 1;

    p.stride = (p.n + GRID_SAMPLE - 1) / GRID_SAMPLE;
    for (int i = 0; i < p.n_factors; i++)
        n_points *= levels;
    for (int i = 0; i < N_STARTS; i++) {
        value[i] = DBL_MAX;
        for (int c = 0; c < N_CH; c++)
            starts[i][c] = 1.0;
    }
    for (int point = 0; point < n_points; point++) {
        double f[N_CH] = {1.0, 1.0, 1.0, 1.0};
        for (int i = 0, rest = point; i < p.n_factors; i++, rest /= levels)
            f[i] = exp(log(GRID_TOP) * (rest % levels) / (levels - 1));
        double v = sum_of_squares(&p, f);
        int at = N_STARTS;
        while (at > 0 && v < value[at - 1])
            at--;
        if (at == N_STARTS)
            continue;
        for (int i = N_STARTS - 1; i > at; i--) {
            value[i] = value[i - 1];
            memcpy(starts[i], starts[i - 1], sizeof starts[i]);
        }
        value[at] = v;
        memcpy(starts[at], f, sizeof f);
    }
}

/*
 * Of all factors that the samples can't tell apart, the most even ones. Channels that
 * share one processor take the sum of their times together however the processor divides
 * itself, so that only one combination of their factors shows; the others would be noise.
 * The sum of squares may grow by EVEN_GAIN, which is less than what noise makes of it.
 */
static void prefer_even(const struct set_problem *problem, double *best,
                        double best_value)
{
    struct set_problem p = *problem;
    double limit = (1.0 + EVEN_GAIN) * best_value;

    for (double evenness = 1e-7; evenness < 10.0; evenness *= 10.0) {
        double f[N_CH];
        memcpy(f, best, sizeof f);
        p.evenness = evenness;
        refine(&p, f);
        if (sum_of_squares(problem, f) > limit)
            break;
        memcpy(best, f, sizeof f);
    }
}

static void fit_set(const struct set_problem *p)
{
    double starts[N_STARTS][N_CH], best[N_CH], best_value = DBL_MAX;

    find_starts(p, starts);
    memcpy(best, starts[0], sizeof best);
    for (int i = 0; i < N_STARTS; i++) {
        double value = refine(p, starts[i]);
        if (value < best_value) {
            best_value = value;
            memcpy(best, starts[i], sizeof best);
        }
    }
    prefer_even(p, best, best_value);
    set_factors(p, best);
}

/* Product of the pair factors, at least every factor in a
 * smaller set (pairs have none: 1). */
static void default_set(struct mist_interference *factors, unsigned set)
{
    for (int c = 0; c < N_CH; c++) {
        double worst = 1.0, product = 1.0;
        if (!(set >> c & 1u))
            continue;
        for (unsigned inner = 1; inner < set; inner++)
            if ((inner & set) == inner && inner >> c & 1u) {
                worst = fmax(worst, factors->slowdown[inner][c]);
                if (__builtin_popcount(inner) == 2)
                    product *= factors->slowdown[inner][c];
            }
        factors->slowdown[set][c] = fmax(worst, product);
    }
}

static void report_set(const struct set_problem *p, struct mist_interference_set_fit *fit)
{
    fit->n_samples = p->n;
    for (int64_t i = 0; i < p->n; i++) {
        double r = fabs(residual(p, &p->samples[i]));
        fit->mean_frac += r / (double)p->n;
        fit->worst_frac = fmax(fit->worst_frac, r);
    }
}

static enum mist_status check_sample(const struct mist_interference_sample *sample,
                                     int64_t i, struct mist_err *err)
{
    for (int c = 0; c < N_CH; c++)
        if (!isfinite(sample->isolated_s[c]) || sample->isolated_s[c] < 0.0)
            return mist_err_set(
                err, MIST_ERR_INPUT,
                "interference sample %lld: %s alone takes %g s, must be finite "
                "and at least 0",
                (long long)i, mist_stream_name((enum mist_stream)c),
                sample->isolated_s[c]);
    if (!isfinite(sample->together_s) || sample->together_s <= 0.0)
        return mist_err_set(
            err, MIST_ERR_INPUT,
            "interference sample %lld: together it takes %g s, must be finite "
            "and above 0",
            (long long)i, sample->together_s);
    if (!busy_set(sample))
        return mist_err_set(err, MIST_ERR_INPUT,
                            "interference sample %lld: no channel is busy", (long long)i);
    return MIST_OK;
}

/* Fits, or defaults, one set from its samples and fills its part of the report. */
static void handle_set(struct mist_interference *factors,
                       struct mist_interference_fit_report *report,
                       const struct mist_interference_sample *samples, int64_t n,
                       unsigned set)
{
    struct set_problem p = {
        .samples = samples, .n = n, .stride = 1, .set = set, .factors = factors};

    for (int c = 0; c < N_CH; c++)
        if (set >> c & 1u)
            p.channel[p.n_factors++] = c;
    report->set[set].measured = n >= p.n_factors;
    if (p.n_factors > 1 && report->set[set].measured)
        fit_set(&p);
    else if (p.n_factors > 1)
        default_set(factors, set);
    report_set(&p, &report->set[set]);
}

static void summarise(struct mist_interference_fit_report *report)
{
    int64_t n = 0;

    for (unsigned set = 1; set < N_SETS; set++) {
        const struct mist_interference_set_fit *fit = &report->set[set];
        if (!(set & (set - 1)))
            continue;
        report->n_not_measured += !fit->measured;
        report->mean_frac += fit->mean_frac * (double)fit->n_samples;
        report->worst_frac = fmax(report->worst_frac, fit->worst_frac);
        n += fit->n_samples;
    }
    if (n)
        report->mean_frac /= (double)n;
}

enum mist_status mist_interference_fit(struct mist_interference *out,
                                       struct mist_interference_fit_report *report,
                                       const struct mist_interference_sample *samples,
                                       int64_t n_samples, struct mist_err *err)
{
    struct mist_interference factors;
    struct mist_interference_fit_report result = {0};
    int64_t begin[N_SETS + 1] = {0}, fill[N_SETS];

    for (int64_t i = 0; i < n_samples; i++) {
        enum mist_status status = check_sample(&samples[i], i, err);
        if (status != MIST_OK)
            return status;
        begin[busy_set(&samples[i]) + 1]++;
    }
    struct mist_interference_sample *sorted =
        malloc((size_t)(n_samples + 1) * sizeof *sorted);
    if (!sorted)
        return mist_err_set(err, MIST_ERR_MEMORY,
                            "out of memory for %lld interference samples",
                            (long long)n_samples);
    for (int set = 0; set < N_SETS; set++)
        begin[set + 1] += begin[set];
    memcpy(fill, begin, sizeof fill);
    for (int64_t i = 0; i < n_samples; i++)
        sorted[fill[busy_set(&samples[i])]++] = samples[i];

    mist_interference_init(&factors);
    for (int size = 1; size <= N_CH; size++)
        for (unsigned set = 1; set < N_SETS; set++)
            if (__builtin_popcount(set) == size)
                handle_set(&factors, &result, sorted + begin[set],
                           begin[set + 1] - begin[set], set);
    free(sorted);
    summarise(&result);
    *out = factors;
    if (report)
        *report = result;
    return MIST_OK;
}
