/*
 * Loading a trace set, building its look-up structures and preparing a table for a
 * picture is work that grows with the number of rows, not with its square. Counted, not
 * timed: the Makefile compiles the code under test so that every branch calls the counter
 * below.
 */
#include "tests/unit/test.h"

#include "plots/plot.h"
#include "sim/cost/cost_model.h"
#include "tests/unit/scratch.h"
#include "traces/trace_set.h"

enum { N_SMALL = 4000, N_TIMES = 4 };

static int64_t n_branches;

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    n_branches++;
}

/* Writes row i of n. */
typedef void row_function(FILE *stream, int i, int n);

static void lines(FILE *stream, int i, int n)
{
    (void)n;
    fprintf(stream, "linear,fp32,forward,rows=%d;n_in=%d;n_out=64,%d,0.1,100,%d,%d\n",
            1 + i % 100, 1 + i / 100, 1 + i, i, i);
}

static void one_line(FILE *stream, int i, int n)
{
    fprintf(stream, "gelu,fp32,forward,elements=%d,%d,0.1,100,%d,%d\n", n - i, 1 + i, i,
            i);
}

static void unknown_ops(FILE *stream, int i, int n)
{
    (void)n;
    fprintf(stream, "op%d,fp32,forward,elements=1,%d,0.1,100,%d,%d\n", i, 1 + i, i, i);
}

static void sizes(FILE *stream, int i, int n)
{
    fprintf(stream, "all_reduce,1,2,1,%d,%d,0.1,100\n", n - i, 1 + i);
}

static void groups(FILE *stream, int i, int n)
{
    (void)n;
    fprintf(stream, "all_reduce,%d,%d,1,1024,%d,0.1,100\n", 1 + i / 100, 1 + i % 100,
            1 + i);
}

static void mixtures(FILE *stream, int i, int n)
{
    (void)n;
    fprintf(stream, "compute+gpu_gpu,1,2,%d,5000,0,0,8500,50,20\n", 6000 + i);
}

#define KERNELS "op,dtype,phase,shape,time_us,deviation_us,repetitions,flop,bytes"
#define LINKS                                                                            \
    "operation,nodes,ranks_per_node,concurrent_groups,bytes,time_us,deviation_us,"       \
    "repetitions"
#define INTERFERENCES                                                                    \
    "channels,nodes,ranks_per_node,compute_us,gpu_gpu_us,host_to_device_us,"             \
    "device_to_host_us,together_us,deviation_us,repetitions"

static const struct {
    const char *name, *file, *head;
    row_function *write_row;
} CASES[] = {
    {"shapes on lines", "kernels.csv", KERNELS, lines},
    {"one line", "kernels.csv", KERNELS, one_line},
    {"unknown operators", "kernels.csv", KERNELS, unknown_ops},
    {"sizes of a message", "links.csv", LINKS, sizes},
    {"groups of ranks", "links.csv", LINKS, groups},
    {"mixtures", "interference.csv", INTERFERENCES, mixtures},
};

static void write_set(struct scratch *scratch, size_t i_case, int n)
{
    char path[512];
    FILE *stream = fopen(scratch_path(scratch, "cluster.json"), "w");

    assert_non_null(stream);
    fputs("{\"format\": 1, \"name\": \"n\", \"backend\": \"cpu\", \"nodes\": 1,\n"
          " \"devices_per_node\": 2, \"device_memory_bytes\": 1000000,\n"
          " \"peak_flop_per_s\": {\"fp32\": 1e12}, \"memory_bytes_per_s\": 1e11}\n",
          stream);
    fclose(stream);
    snprintf(path, sizeof path, "%s", scratch_path(scratch, CASES[i_case].file));
    stream = fopen(path, "w");
    assert_non_null(stream);
    fprintf(stream, "%s\n", CASES[i_case].head);
    for (int i = 0; i < n; i++)
        CASES[i_case].write_row(stream, i, n);
    fclose(stream);
}

/* Branches taken from the files to the cost model, fingerprint included. */
static int64_t count_work(size_t i_case, int n)
{
    struct scratch scratch;
    struct mist_trace_set set;
    struct mist_cost_model *model = NULL;
    struct mist_err err = {0};

    scratch_init(&scratch);
    write_set(&scratch, i_case, n);
    n_branches = 0;
    enum mist_status status = mist_trace_set_load(&set, scratch.folder, &err);
    if (status == MIST_OK)
        status = mist_cost_model_new(&set, &model, &err);
    if (status != MIST_OK)
        fail_msg("%s: %s", CASES[i_case].name, err.message);
    assert_int_equal(set.n_kernels + set.n_links + set.n_interferences, n);
    (void)mist_trace_set_fingerprint(&set);
    int64_t work = n_branches;
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
    scratch_fini(&scratch);
    return work;
}

/* Branches taken from a table of n links, each with a name of its own, to a program. */
static int64_t count_picture(int n)
{
    const struct mist_plot_options options = {0};
    struct scratch scratch;
    struct mist_err err = {0};

    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "links.csv");
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    fputs("bytes,measured_us,fitted_us,name\n", stream);
    for (int i = 0; i < n; i++)
        fprintf(stream, "%d,1,1,link %d\n", 1 + i, i);
    fclose(stream);
    stream = fopen("/dev/null", "w");
    assert_non_null(stream);
    n_branches = 0;
    must(mist_plot_write_table(stream, mist_plot_find_kind("links"), path, &options,
                               MIST_PLOT_SVG, &err),
         &err);
    int64_t work = n_branches;
    fclose(stream);
    scratch_fini(&scratch);
    return work;
}

static void assert_linear(const char *name, int64_t less, int64_t more)
{
    print_message("%s: %lld branches for %d rows, %.2f times as many for %d times as "
                  "many\n",
                  name, (long long)less, N_SMALL, (double)more / (double)less, N_TIMES);
    assert_true(less > 10 * N_SMALL); /* it is counted */
    assert_true((double)more < 1.4 * N_TIMES * (double)less);
}

/* Sorting n things takes n log n comparisons: 1.2 times as many of each here. */
TEST(test_work_is_linear)
{
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        assert_linear(CASES[i].name, count_work(i, N_SMALL),
                      count_work(i, N_TIMES * N_SMALL));
    assert_linear("a picture", count_picture(N_SMALL), count_picture(N_TIMES * N_SMALL));
}

TEST_MAIN(NULL, NULL)
