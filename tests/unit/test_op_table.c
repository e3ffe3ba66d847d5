/*
 * exec/op_table: names of kernels, sums against ones made beside the table, the same
 * numbers in every document, and tables of several ranks as one.
 */
#include "tests/unit/test.h"

#include "core/random.h"
#include "exec/operators/op_table.h"
#include "tests/unit/comm_job.h"

#include <jansson.h>

TEST(test_kernel_names)
{
    static const char *const cases[][2] = {
        {"sm90_xmma_gemm_bf16bf16_f32_tn_n_kernel__5x_cublas",
         "sm90_xmma_gemm_bf16bf16_f32_tn_n_kernel__5x_cublas"},
        {"copy host to device", "copy host to device"},
        {"_Z13gelu_backwardPfS_l", "gelu_backward"},
        {"_ZN12_GLOBAL__N_112forward_heldI14mist_cuda_bf16Li2EEEvNS_12forward_argsIT_EE",
         "forward_held<mist_cuda_bf16>"},
        {"_ZN15_INTERNAL_a1b2c12_GLOBAL__N_13addIf13ignored_laterEEvPT_", "add<float>"},
        {"_Z3addI5firstS_6secondEvPT_", "add<first>"},
        {"_ZL9zero_rowsIfEvPT_l", "zero_rows<float>"},
        {"_ZN7cutlass7Kernel2I24cutlass_80_tensorop_bf16EEvNT_6ParamsE",
         "cutlass::Kernel2<cutlass_80_tensorop_bf16>"},
        {"_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleEEEEEvNT"
         "_6ParamsE",
         "cutlass::device_kernel<GemmUniversal>"},
        {"_Z", "_Z"},
        {"_Z99short", "_Z99short"},
        {"", ""},
    };
    char name[MIST_KERNEL_NAME_BYTES], endless[1000];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mist_op_table_kernel_name(cases[i][0], name);
        assert_string_equal(name, cases[i][1]);
    }
    memset(endless, 'k', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    mist_op_table_kernel_name(endless, name);
    assert_int_equal(strlen(name), MIST_KERNEL_NAME_BYTES - 1);
    memcpy(endless, "_Z900", 5);
    mist_op_table_kernel_name(endless, name);
    assert_int_equal(strlen(name), MIST_KERNEL_NAME_BYTES - 1);
}

/* ------------------------------------------------------------------------------ sums */

enum { N_OPS = 7, N_KERNELS = 5, N_ADDS = 3000 };

/* What was added, beside the table. */
struct sums {
    int64_t calls[N_OPS], launches[N_OPS][N_KERNELS];
    double time_s[N_OPS], kernel_s[N_OPS][N_KERNELS];
};

/* One pointer each, as a recorder hands them out; the last two are the same in short. */
static const char *const kernel_names[N_KERNELS] = {
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroup_kernel", "b",
    "_ZN7cutlass7Kernel2I10cutlass_80EEvNT_6ParamsE", "_Z1cf", "_Z1ci"};

static double flop_of(int op)
{
    return op % 3 == 2 ? 0 : 1e9 * (op + 1);
}

static void fill(struct mist_op_table *table, struct sums *sums, uint64_t seed)
{
    struct mist_random random;
    int32_t rows[N_OPS];

    mist_random_init(&random, seed);
    for (int i = 0; i < N_OPS; i++) {
        int64_t dims[MIST_MAX_DIMS] = {16384, 8192, 28672 + i};
        rows[i] = mist_op_table_op(table, MIST_OP_LINEAR_BIAS, MIST_PHASE_BACKWARD_WEIGHT,
                                   dims, flop_of(i), 1e6);
        assert_int_equal(mist_op_table_op(table, MIST_OP_LINEAR_BIAS,
                                          MIST_PHASE_BACKWARD_WEIGHT, dims, 0, 0),
                         rows[i]);
    }
    for (int i = 0; i < N_ADDS; i++) {
        int op = (int)mist_random_below(&random, N_OPS);
        int kernel = (int)mist_random_below(&random, N_KERNELS);
        double time_s = 1e-6 * (double)mist_random_below(&random, 1000);
        mist_op_table_add_kernel(table, rows[op], kernel_names[kernel], time_s);
        mist_op_table_add_calls(table, rows[op], i % 2, time_s);
        kernel = kernel == 4 ? 3 : kernel;
        sums->calls[op] += i % 2;
        sums->launches[op][kernel]++;
        sums->time_s[op] += time_s;
        sums->kernel_s[op][kernel] += time_s;
    }
    mist_op_table_add_calls(table, -1, 1, 1);
    mist_op_table_add_kernel(table, -1, "none", 1);
}

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static bool has_sums(const struct mist_op_table *table, const struct sums *sums)
{
    bool is_right = table->n_rows == N_OPS && table->n_kernels == N_OPS * 4;

    for (size_t i = 0; i < table->n_rows; i++)
        is_right = is_right && table->rows[i].n_calls == sums->calls[i] &&
                   is_near(table->rows[i].time_s, sums->time_s[i]);
    for (size_t i = 0; i < table->n_kernels; i++) {
        const struct mist_op_kernel *kernel = &table->kernels[i];
        char name[MIST_KERNEL_NAME_BYTES];
        int k = -1;
        do
            mist_op_table_kernel_name(kernel_names[++k], name);
        while (strcmp(name, kernel->name) != 0);
        is_right = is_right && kernel->n_launches == sums->launches[kernel->i_row][k] &&
                   is_near(kernel->time_s, sums->kernel_s[kernel->i_row][k]);
    }
    return is_right;
}

/* The document of a table as text, the caller's to free. */
static char *print(const struct mist_op_table *table, enum mist_emit_kind kind)
{
    struct mist_op_peak peak = {1e15, 4e12};
    struct mist_emit *emit;
    char *text = NULL;
    size_t n;
    FILE *stream = open_memstream(&text, &n);

    assert_int_equal(mist_emit_begin(&emit, kind, stream, NULL), MIST_OK);
    assert_int_equal(mist_op_table_emit(table, &peak, "Operators", emit, kind, NULL),
                     MIST_OK);
    assert_int_equal(mist_emit_end(&emit, NULL), MIST_OK);
    fclose(stream);
    return text;
}

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

/* JSON has the sums of the operators, kernels behind their operator, all by time. */
static void check_json(const struct mist_op_table *table, const struct sums *sums)
{
    char *text = print(table, MIST_EMIT_JSON);
    json_t *root = json_loads(text, 0, NULL), *rows = json_object_get(root, "operators");
    double total_us = 0, before_us = INFINITY, shares = 0, kernels_us = 0, op_us = 0;
    int op = -1;

    assert_int_equal(json_array_size(rows), N_OPS * 5);
    for (int i = 0; i < N_OPS; i++)
        total_us += 1e6 * sums->time_s[i];
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        double us = number(row, "total_us");
        if (json_is_null(json_object_get(row, "kernel"))) {
            assert_true(i == 0 || is_near(kernels_us, op_us));
            sscanf(json_string_value(json_object_get(row, "shape")),
                   "rows=16384;n_in=8192;n_out=%d", &op);
            op -= 28672;
            assert_in_range(op, 0, N_OPS - 1);
            double rate = flop_of(op) * (double)sums->calls[op] / sums->time_s[op];
            assert_true(us <= before_us && is_near(us, 1e6 * sums->time_s[op]));
            assert_true(is_near(number(row, "share_frac"), us / total_us));
            assert_true(is_near(number(row, "mean_us"), us / (double)sums->calls[op]));
            assert_true(rate > 0 ? is_near(number(row, "flop_per_s"), rate)
                                 : json_is_null(json_object_get(row, "flop_per_s")));
            before_us = op_us = us;
            kernels_us = 0;
            shares += number(row, "share_frac");
        } else {
            kernels_us += us;
            assert_true(is_near(number(row, "share_frac"), us / op_us));
        }
    }
    assert_true(is_near(shares, 1));
    json_decref(root);
    free(text);
}

TEST(test_documents)
{
    struct mist_op_table table;
    struct sums sums = {.calls = {0}};
    struct scratch scratch;
    char saved[1 << 14];
    size_t n_lines = 0;

    mist_op_table_init(&table);
    fill(&table, &sums, 1);
    assert_true(has_sums(&table, &sums));
    check_json(&table, &sums);
    char *csv = print(&table, MIST_EMIT_CSV), *people = print(&table, MIST_EMIT_TABLE);
    for (char *line = strtok(people, "\n"); line; line = strtok(NULL, "\n"), n_lines++)
        assert_true(strlen(line) <= 108 &&
                    (n_lines < 2 || strncmp(line, "    ", 4) != 0));
    assert_int_equal(n_lines, 2 + N_OPS * 5);
    scratch_init(&scratch);
    struct mist_op_peak peak = {1e15, 4e12};
    const char *path = scratch_path(&scratch, "ops.csv");
    assert_int_equal(mist_op_table_save(&table, &peak, path, false, NULL), MIST_OK);
    scratch_read(path, saved, sizeof saved);
    assert_string_equal(saved, csv);
    assert_int_equal(mist_op_table_save(&table, &peak, path, false, NULL),
                     MIST_ERR_USAGE);
    scratch_fini(&scratch);
    free(csv);
    free(people);
    mist_op_table_fini(&table);
}

TEST(test_empty)
{
    struct mist_op_table table;

    mist_op_table_init(&table);
    char *text = print(&table, MIST_EMIT_JSON);
    assert_non_null(strstr(text, "\"operators\": []"));
    free(text);
    mist_op_table_fini(&table);
}

/* ------------------------------------------------------------------------------ ranks */

static int run_rank(const char *mode)
{
    struct mist_op_table table;
    struct sums sums = {.calls = {0}};

    join_job();
    mist_op_table_init(&table);
    if (rank == 2) /* has an operator of its own, and its rows in another order */
        mist_op_table_op(&table, MIST_OP_ZERO, MIST_PHASE_OPTIMIZER,
                         (int64_t[MIST_MAX_DIMS]){5}, 0, 20);
    else
        fill(&table, &sums, (uint64_t)rank);
    CHECK(mist_op_table_gather(&table, comm, &err) == MIST_OK);
    for (int r = 1; rank == 0 && r < n_ranks; r++) {
        struct mist_op_table other;
        mist_op_table_init(&other);
        if (r != 2)
            fill(&other, &sums, (uint64_t)r);
        mist_op_table_fini(&other);
    }
    if (rank == 0) {
        CHECK(table.n_rows == N_OPS + 1);
        table.n_rows--;
        CHECK(has_sums(&table, &sums));
    }
    mist_op_table_fini(&table);
    mist_comm_close(comm);
    return 0;
}

TEST(test_ranks)
{
    need_mpirun();
    run_good_job(4, "", "ranks");
}

JOB_MAIN
