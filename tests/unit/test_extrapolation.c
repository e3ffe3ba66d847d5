/*
 * Operators outside of the shapes that were measured: trace sets made of a part of public
 * tables of kernels price the rest of them. Beside it what another rule would say, the
 * efficiency of the nearest row, of which the roofline's time is so many times as short.
 * Prints the median errors of both.
 */
#include "tests/unit/test.h"

#include "core/statistics.h"
#include "sim/cost/cost_model.h"
#include "tests/unit/reference_path.h"
#include "traces/preset.h"

#include <math.h>

enum { MAX_ROWS = 4096, MAX_DIMS = 3 };

struct sample {
    int64_t dims[MAX_DIMS]; /* rows, n_in, n_out; or rows, hidden */
    double time_s, flop, bytes;
};

struct table {
    enum mist_op op;
    enum mist_trace_dtype dtype;
    int n;
    struct sample samples[MAX_ROWS];
};

/* Of several times of one shape the first. */
static void add(struct table *table, const struct sample *sample)
{
    for (int i = 0; i < table->n; i++)
        if (memcmp(table->samples[i].dims, sample->dims, sizeof sample->dims) == 0)
            return;
    assert_true(table->n < MAX_ROWS);
    table->samples[table->n++] = *sample;
}

/* Vidur's products on one device. */
static void read_products(const char *gpu, struct table *table)
{
    FILE *file = open_reference("kernels/gemm_a100_h100_a40.csv");
    char line[512], name[16];
    long long m, n, k;
    double ms;

    if (!file)
        skip();
    *table = (struct table){.op = MIST_OP_LINEAR, .dtype = MIST_TRACE_FP16};
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%15[^,],%*[^,],%*[^,],%*[^,],%lld,%lld,%lld,%lf", name, &m, &n,
                   &k, &ms) == 5 &&
            strcmp(name, gpu) == 0)
            add(table, &(struct sample){.dims = {m, k, n},
                                        .time_s = ms * 1e-3,
                                        .flop = 2.0 * (double)(m * n * k),
                                        .bytes = 2.0 * (double)(m * n + m * k + n * k)});
    fclose(file);
    assert_true(table->n > 300);
}

/* cuDNN's RMSNorm on H200. */
static void read_norms(struct table *table)
{
    FILE *file = open_reference("kernels/h200_norms.csv");
    char line[512];
    long long rows, hidden;
    double ms;

    if (!file)
        skip();
    *table = (struct table){.op = MIST_OP_RMS_NORM, .dtype = MIST_TRACE_BF16};
    while (fgets(line, sizeof line, file))
        if (sscanf(line,
                   "%*[^,],%*[^,],rms_norm,cudnn,bfloat16,%lld,%lld,%*[^,],%*[^,],%*[^,],"
                   "%lf",
                   &rows, &hidden, &ms) == 3)
            add(table, &(struct sample){.dims = {rows, hidden, 1},
                                        .time_s = ms * 1e-3,
                                        .flop = 8.0 * (double)(rows * hidden),
                                        .bytes = 4.0 * (double)(rows * hidden)});
    fclose(file);
    assert_true(table->n > 8);
}

typedef bool keep_fn(const struct sample *sample);

static bool has_few_rows(const struct sample *sample)
{
    return sample->dims[0] <= 512;
}

static bool has_many_rows(const struct sample *sample)
{
    return sample->dims[0] >= 1024;
}

static bool is_narrow(const struct sample *sample)
{
    return sample->dims[1] <= 5120 && sample->dims[2] <= 5120;
}

static bool is_wide(const struct sample *sample)
{
    return sample->dims[1] >= 4096 && sample->dims[2] >= 4096;
}

/* A third of the widths, so that most of the others lie between. */
static bool is_third(const struct sample *sample)
{
    return (sample->dims[1] / 128 + sample->dims[2] / 128) % 3 == 0;
}

static bool is_small(const struct sample *sample)
{
    return sample->dims[0] * sample->dims[1] <= 1 << 24;
}

/* Roofline time over measured time. */
static double efficiency(const struct mist_cluster *cluster, const struct table *table,
                         const struct sample *of)
{
    return fmax(of->flop / cluster->peak_flop_per_s[table->dtype],
                of->bytes / cluster->memory_bytes_per_s) /
           of->time_s;
}

static double nearest_s(const struct mist_cluster *cluster, const struct table *table,
                        keep_fn *keep, const struct sample *of)
{
    const struct sample *nearest = table->samples;
    double least = INFINITY;

    for (int i = 0; i < table->n; i++) {
        double distance = 0;
        for (int k = 0; k < MAX_DIMS; k++)
            distance +=
                pow(log((double)table->samples[i].dims[k] / (double)of->dims[k]), 2);
        if (keep(&table->samples[i]) && distance < least) {
            least = distance;
            nearest = &table->samples[i];
        }
    }
    return efficiency(cluster, table, of) * of->time_s /
           efficiency(cluster, table, nearest);
}

static void add_row(struct mist_trace_set *set, const struct table *table,
                    const struct sample *sample)
{
    const char *const *names = mist_op_dims(table->op);
    struct mist_kernel_row row = {.dtype = table->dtype,
                                  .phase = MIST_PHASE_FORWARD,
                                  .time_us = sample->time_s * 1e6,
                                  .repetitions = 1,
                                  .flop = sample->flop,
                                  .bytes = sample->bytes};
    struct mist_err err = {0};

    snprintf(row.op, sizeof row.op, "%s", mist_op_name(table->op));
    for (int i = 0; names[i]; i++) {
        snprintf(row.shape.dims[i].name, sizeof row.shape.dims[i].name, "%s", names[i]);
        row.shape.dims[i].value = sample->dims[i];
        row.shape.n_dims = i + 1;
    }
    must(mist_trace_set_add_kernel(set, &row, &err), &err);
}

static double median(double *values, int n)
{
    mist_sort_doubles(values, (size_t)n);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

struct result {
    double error, nearest_error; /* medians, relative */
    double inside_frac;          /* of the prices: within two of their deviations */
    int n;
};

/* Prices what is not kept from what is; has_curve: the preset's, else the rows' own. */
static struct result price_rest(const struct table *table, const char *preset,
                                bool has_curve, keep_fn *keep)
{
    static double errors[MAX_ROWS], nearest_errors[MAX_ROWS];
    struct mist_cost_model *model = NULL;
    struct result result = {0};
    struct mist_trace_set set;
    struct mist_err err = {0};

    must(mist_preset_parse(&set, preset, &err), &err);
    if (!has_curve) {
        set.cluster.curve = (struct mist_trace_curve){0};
        set.cluster.backend = MIST_TRACE_CUDA;
    }
    for (int i = 0; i < table->n; i++)
        if (keep(&table->samples[i]))
            add_row(&set, table, &table->samples[i]);
    must(mist_cost_model_new(&set, &model, &err), &err);
    for (int i = 0; i < table->n; i++) {
        const struct sample *of = &table->samples[i];
        int64_t dims[MIST_MAX_DIMS] = {of->dims[0], of->dims[1], of->dims[2]};
        struct mist_cost cost;
        if (keep(of))
            continue;
        must(mist_cost_op(model, table->op, MIST_PHASE_FORWARD, MIST_DTYPE_BF16, dims,
                          of->flop, of->bytes, &cost, &err),
             &err);
        result.inside_frac +=
            fabs(cost.time_s - of->time_s) < 2 * hypot(cost.deviation_s, cost.doubt_s);
        errors[result.n] = fabs(cost.time_s / of->time_s - 1);
        nearest_errors[result.n++] =
            fabs(nearest_s(&set.cluster, table, keep, of) / of->time_s - 1);
    }
    result.inside_frac /= result.n;
    result.error = median(errors, result.n);
    result.nearest_error = median(nearest_errors, result.n);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
    return result;
}

static const struct {
    const char *what;
    keep_fn *keep;
} parts[] = {
    {"rows to 512, then more", has_few_rows},
    {"rows from 1024, then fewer", has_many_rows},
    {"widths to 5120, then more", is_narrow},
    {"widths from 4096, then fewer", is_wide},
    {"a third of the widths, then others", is_third},
};

/* Far better than the nearest row on the whole; not so for fewer rows on A100. */
TEST(test_products)
{
    static const char *const devices[][2] = {{"a100", "a100-80"}, {"h100", "h100-sxm"}};
    static struct table table;
    double sums[2] = {0}, nearest_sum = 0;

    for (int d = 0; d < 2; d++) {
        read_products(devices[d][0], &table);
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            for (int has_curve = 0; has_curve < 2; has_curve++) {
                struct result result =
                    price_rest(&table, devices[d][1], has_curve, parts[i].keep);
                print_message("%s, %s curve, %s: %d products, median error %.1f %%, by "
                              "the nearest row %.1f %%; %.0f %% within two deviations\n",
                              devices[d][0], has_curve ? "preset's" : "fitted",
                              parts[i].what, result.n, 100 * result.error,
                              100 * result.nearest_error, 100 * result.inside_frac);
                assert_true(result.n > 30);
                assert_true(result.error < 0.14);
                assert_true(result.inside_frac > 0.6);
                sums[has_curve] += result.error;
                nearest_sum += result.nearest_error / 2;
            }
    }
    for (int has_curve = 0; has_curve < 2; has_curve++)
        assert_true(sums[has_curve] < 0.7 * nearest_sum);
}

TEST(test_norms)
{
    static struct table table;

    read_norms(&table);
    for (int has_curve = 0; has_curve < 2; has_curve++) {
        struct result result = price_rest(&table, "h200-sxm", has_curve, is_small);
        print_message("norms, %d, median error %.1f %%, by the nearest row %.1f %%\n",
                      result.n, 100 * result.error, 100 * result.nearest_error);
        assert_true(result.n >= 5);
        assert_true(result.error < result.nearest_error);
    }
}

TEST_MAIN(NULL, NULL)
