/*
 * Bubbles of pipelines as published: Qi et al. 2023 (arXiv 2401.10241) profiled forward,
 * input gradient, weight gradient and transfer of a stage, and computed how much of an
 * iteration every schedule is idle. Ours, replayed pass by pass from the same four times,
 * are the same to the four digits that are printed. Of interleaved pipelines theirs have as
 * many transfers less as there are stages; a micro-batch's way down p stages of v chunks and
 * back has 2 p v - 2 of them, as ours has.
 */
#include "tests/unit/test.h"

#include "core/atomic_file.h"
#include "core/csv.h"
#include "sim/closed_form/pass_replay.h"
#include "tests/unit/reference_path.h"

#include <math.h>

enum { STAGES, MICRO, SCHEDULE, TF, TB, TW, TCOMM, BUBBLE, LAYERS, N_FIRST_COLUMNS };

static const struct mist_csv_column columns[] = {
    [STAGES] = {"stages_gpus", MIST_CSV_REQUIRED},
    [MICRO] = {"num_microbatches", MIST_CSV_REQUIRED},
    [SCHEDULE] = {"schedule", MIST_CSV_REQUIRED},
    [TF] = {"TF_ms", MIST_CSV_REQUIRED},
    [TB] = {"TB_ms", MIST_CSV_REQUIRED},
    [TW] = {"TW_ms", MIST_CSV_REQUIRED},
    [TCOMM] = {"Tcomm_ms", MIST_CSV_REQUIRED},
    [BUBBLE] = {"paper_bubble_rate_theory", MIST_CSV_REQUIRED},
    [LAYERS] = {"layers", MIST_CSV_REQUIRED},
    {"model", MIST_CSV_OPTIONAL},
    {"heads", MIST_CSV_OPTIONAL},
    {"hidden", MIST_CSV_OPTIONAL},
    {"seq", MIST_CSV_OPTIONAL},
    {"micro_batch", MIST_CSV_OPTIONAL},
    {"measured_samples_per_gpu_s", MIST_CSV_OPTIONAL},
    {"derived_iter_s", MIST_CSV_OPTIONAL},
    {"measured_mem_GB", MIST_CSV_OPTIONAL},
};

/* A row of the table. */
struct published {
    int32_t n_stages, n_micro, n_layers;
    double forward_s, input_s, weight_s, transfer_s, bubble_frac;
};

static double number(const struct mist_csv *csv, size_t i_row, size_t i_column)
{
    double value;
    struct mist_err err = {0};

    must(mist_csv_get_double(csv, i_row, i_column, 0, 1e9, &value, &err), &err);
    return value;
}

/* Idle share of an iteration of n_chunks chunks of a stage. */
static double replay_bubble(enum mist_pipeline_schedule schedule, int32_t n_chunks,
                            const struct published *row)
{
    struct mist_pipeline_order order;
    struct mist_interference interference;
    struct mist_err err = {0};
    int32_t n = row->n_stages * n_chunks;
    struct mist_pass_times *times = calloc((size_t)n, sizeof *times);
    double iteration_s, chunk_frac = 1.0 / n_chunks;
    double compute_s = row->forward_s + row->input_s + row->weight_s;

    assert_non_null(times);
    for (int32_t i = 0; i < n; i++)
        times[i] = (struct mist_pass_times){
            .forward_s = row->forward_s * chunk_frac,
            .backward_s = (row->input_s + row->weight_s) * chunk_frac,
            .input_s = row->input_s * chunk_frac,
            .weight_s = row->weight_s * chunk_frac,
            .send_forward_s = i < n - 1 ? row->transfer_s : 0,
            .send_backward_s = i > 0 ? row->transfer_s : 0,
        };
    mist_interference_init(&interference);
    must(mist_pipeline_order_init(&order, schedule, row->n_stages, n_chunks, row->n_micro,
                                  &err),
         &err);
    must(mist_pass_replay(&order, &interference, times, &iteration_s, &err), &err);
    mist_pipeline_order_fini(&order);
    free(times);
    return 1 - row->n_micro * compute_s / iteration_s;
}

static struct published read_row(const struct mist_csv *csv, size_t i)
{
    return (struct published){
        .n_stages = (int32_t)number(csv, i, STAGES),
        .n_micro = (int32_t)number(csv, i, MICRO),
        .n_layers = (int32_t)number(csv, i, LAYERS),
        .forward_s = 1e-3 * number(csv, i, TF),
        .input_s = 1e-3 * number(csv, i, TB),
        .weight_s = 1e-3 * number(csv, i, TW),
        .transfer_s = 1e-3 * number(csv, i, TCOMM),
        .bubble_frac = number(csv, i, BUBBLE),
    };
}

/* How much longer than without any bubble, of an iteration with this bubble. */
static double idle_s(const struct published *row, double bubble_frac)
{
    double compute_s = row->n_micro * (row->forward_s + row->input_s + row->weight_s);

    return compute_s / (1 - bubble_frac) - compute_s;
}

/* false: a schedule that we don't have. */
static bool check_row(const char *name, const struct published *row)
{
    if (strcmp(name, "1F1B-I") == 0) { /* a layer a chunk; the ends have one less */
        int32_t n_chunks = (row->n_layers + 2) / row->n_stages;
        double ours = replay_bubble(MIST_PIPELINE_INTERLEAVED, n_chunks, row);
        double more_s = idle_s(row, ours) - idle_s(row, row->bubble_frac);
        double expected_s = row->n_stages * row->transfer_s;
        if (fabs(more_s - expected_s) > 0.02 * expected_s + idle_s(row, 1.5e-4))
            fail_msg("%s: p %d, m %d: %.4f, published %.4f", name, row->n_stages,
                     row->n_micro, ours, row->bubble_frac);
        return true;
    }
    bool is_split = strcmp(name, "ZB-H1") == 0;
    if (!is_split && strcmp(name, "1F1B") != 0)
        return false;
    double ours =
        replay_bubble(is_split ? MIST_PIPELINE_ZB_H1 : MIST_PIPELINE_1F1B, 1, row);
    if (fabs(ours - row->bubble_frac) > 1e-4)
        fail_msg("%s: p %d, m %d: %.5f, published %.4f", name, row->n_stages,
                 row->n_micro, ours, row->bubble_frac);
    return true;
}

/* The table without the lines that say where it is from; the caller frees. */
static char *read_table(const char *path, size_t *n)
{
    struct mist_err err = {0};
    char *text;

    must(mist_file_read_all(path, 1 << 20, &text, n, &err), &err);
    while (*text == '#') {
        size_t cut = strcspn(text, "\n") + 1;
        *n -= cut;
        memmove(text, text + cut, *n + 1);
    }
    return text;
}

static void test_bubbles(void **state)
{
    struct mist_csv *csv;
    struct mist_err err = {0};
    char path[REFERENCE_PATH_BYTES];
    size_t n;
    int n_checked = 0;

    if (!find_reference("pipeline_timings/zero_bubble_tables.csv", path))
        skip();
    char *text = read_table(path, &n);
    must(mist_csv_load_text(path, text, n, columns, sizeof columns / sizeof *columns,
                            &csv, &err),
         &err);
    for (size_t i = 0; i < mist_csv_n_rows(csv); i++) {
        if (!*mist_csv_text(csv, i, BUBBLE))
            continue;
        struct published row = read_row(csv, i);
        n_checked += check_row(mist_csv_text(csv, i, SCHEDULE), &row);
    }
    print_message("%d rates of three schedules\n", n_checked);
    assert_int_equal(n_checked, 36);
    mist_csv_free(csv);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bubbles)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
