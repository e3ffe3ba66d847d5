/* The importer of Nsight Systems' reports against small ones worked out by hand, and
 * broken ones. */
#include "tests/unit/test.h"

#include "tests/unit/scratch.h"
#include "traces/import_nsys.h"
#include "traces/preset.h"

#include <math.h>

#define HEADER                                                                           \
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem "     \
    "(MB),"                                                                              \
    "DymSMem (MB),Bytes (MB),Throughput (MBps),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,"   \
    "Strm,Name\n"
#define COPY(ns, mb, from, to, name)                                                     \
    "100," ns ",7,,,,,,,,,," mb ",21236.151," from "," to ",\"NVIDIA A100 (0)\",1,,7,"   \
    "[CUDA memcpy " name "]\n"
#define KERNEL                                                                           \
    "100,3200,9,64,64,1,256,1,1,64,0.001,0.000,,,,,NVIDIA A100 (0),1,,7,"                \
    "\"gemm(double *, int)\"\n"

static enum mist_status import(const char *text, struct mist_trace_set *set,
                               struct mist_err *err)
{
    struct scratch scratch;

    scratch_init(&scratch);
    must(mist_preset_parse(set, "a100-80", err), err);
    struct mist_import_rows rows = mist_import_rows_begin(set);
    scratch_write(scratch_path(&scratch, "report.csv"), text);
    enum mist_status status = mist_import_nsys(&rows, scratch.path, err);
    scratch_visit(&scratch, 1);
    rmdir(scratch.folder);
    return status;
}

static void expect(const struct mist_trace_set *set, enum mist_link_operation operation,
                   int64_t bytes, double time_us, double deviation_us,
                   int64_t repetitions)
{
    const struct mist_link_row key = {.operation = operation,
                                      .nodes = 1,
                                      .ranks_per_node = 1,
                                      .concurrent_groups = 1,
                                      .bytes = bytes};
    const struct mist_link_row *row = mist_trace_set_find_link(set, &key);

    assert_non_null(row);
    if (fabs(row->time_us - time_us) > 1e-9 * time_us ||
        fabs(row->deviation_us - deviation_us) > 1e-9 * time_us)
        fail_msg("%g +- %g us, expected %g +- %g", row->time_us, row->deviation_us,
                 time_us, deviation_us);
    assert_int_equal(row->repetitions, repetitions);
}

TEST(test_report)
{
    struct mist_trace_set set;
    struct mist_err err = {0};

    must(import("Processing [x.sqlite] with [cuda_gpu_trace.py]...\n\n" HEADER COPY(
                    "400000", "8.389", "Pinned", "Device",
                    "HtoD") COPY("600000", "8.389", "Pinned", "Device", "Host-to-Device")
                    COPY("500000", "16.777", "Device", "Pinned", "DtoH")
                        COPY("9000", "8.389", "Pageable", "Device", "HtoD")
                            COPY("2000", "0.004", "Pinned", "Device", "HtoD")
                                COPY("2000", "8.389", "Device", "Device", "DtoD") KERNEL,
                &set, &err),
         &err);
    expect(&set, MIST_LINK_HOST_TO_DEVICE, 8389000, 500, 100, 2);
    expect(&set, MIST_LINK_DEVICE_TO_HOST, 16777000, 500, 0, 1);
    assert_int_equal(set.n_links, 2);
    assert_int_equal(set.n_kernels, 0);
    mist_trace_set_fini(&set);
}

TEST(test_refusals)
{
    static const struct {
        const char *text, *says;
        long line;
    } cases[] = {
        {"", "cuda_gpu_trace", 0},
        {"Time (%),Total Time (ns),Instances,Name\n", "sums by kernel say nothing", 0},
        {"a\nb\n" HEADER KERNEL, "kernels have no shapes here", 0},
        {"a\nb\n" HEADER COPY("4000", "x", "Pinned", "Device", "HtoD"), "Bytes (MB)", 4},
        {"a\n" HEADER COPY("0", "8.389", "Pinned", "Device", "HtoD"), "Duration (ns)", 3},
        {"a\n" HEADER KERNEL COPY("1", "8.389", "Pinned", "Device", "HtoD"),
         "beyond reason", 4},
        {"a\nStart (ns),Duration (us)\n", "unknown column \"Duration (us)\"", 2},
        {HEADER "1,2\n", "2 cells, expected 21", 2},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_trace_set set;
        struct mist_err err = {0};
        assert_int_equal(import(cases[i].text, &set, &err), MIST_ERR_INPUT);
        if (!strstr(err.message, cases[i].says) || err.line != cases[i].line ||
            !strstr(err.path, "report.csv"))
            fail_msg("%zu: %s:%ld: %s, expected line %ld, %s", i, err.path, err.line,
                     err.message, cases[i].line, cases[i].says);
        mist_trace_set_fini(&set);
    }
}

TEST_MAIN(NULL, NULL)
