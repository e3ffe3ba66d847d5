/*
 * The importer of torch.profiler's traces against small ones whose rows are worked out by
 * hand, and broken ones. Where the public traces of a Megatron run are at hand, products
 * against the medians that others took from them.
 */
#include "tests/unit/test.h"

#include "profile/import_torch.h"
#include "tests/unit/reference_path.h"
#include "tests/unit/scratch.h"
#include "traces/preset.h"

#include <math.h>

#define EVENT(cat, name, rest)                                                           \
    "{\"ph\":\"X\",\"cat\":\"" cat "\",\"name\":\"" name "\"," rest "}"
#define OP_WITH(name, tid, ts, dur, dims, types, more)                                   \
    EVENT("cpu_op", name,                                                                \
          "\"pid\":1,\"tid\":" #tid ",\"ts\":" #ts ",\"dur\":" #dur                      \
          ",\"args\":{\"Input Dims\":" dims ",\"Input type\":" types more "}")
#define OP(name, tid, ts, dur, dims, types) OP_WITH(name, tid, ts, dur, dims, types, "")
#define LAUNCH(id, tid, ts)                                                              \
    EVENT("cuda_runtime", "cudaLaunchKernel",                                            \
          "\"tid\":" #tid ",\"ts\":" #ts ",\"dur\":1,\"args\":{\"correlation\":" #id     \
          "}")
#define KERNEL(id, dur)                                                                  \
    EVENT("kernel", "gemm",                                                              \
          "\"ts\":9,\"dur\":" #dur ",\"args\":{\"correlation\":" #id "}")
#define NCCL(dur, args)                                                                  \
    EVENT("kernel", "ncclDevKernel", "\"ts\":9,\"dur\":" #dur ",\"args\":{" args "}")
#define COPY(name, dur, bytes)                                                           \
    EVENT("gpu_memcpy", name, "\"ts\":9,\"dur\":" #dur ",\"args\":{\"bytes\":" #bytes "}")
#define TRACE(events) "{\"schemaVersion\":1,\n\"traceEvents\": [\n" events "\n]}\n"

#define BF16_2   "[\"c10::BFloat16\",\"c10::BFloat16\"]"
#define MM_SHAPE "[[4096,1024],[1024,2048]]"

struct outcome {
    enum mist_status status;
    struct mist_trace_set set;
    struct mist_import_torch_report report;
    struct mist_err err;
};

/* The traces, one after the other, on a cluster; for fini. */
static void import(const char *cluster, const char *const *traces, int n,
                   struct outcome *out)
{
    struct scratch scratch;

    *out = (struct outcome){0};
    scratch_init(&scratch);
    scratch_path(&scratch, "trace.json");
    must(mist_preset_parse(&out->set, cluster, &out->err), &out->err);
    struct mist_import_rows rows = mist_import_rows_begin(&out->set);
    for (int i = 0; i < n && out->status == MIST_OK; i++) {
        scratch_write(scratch.path, traces[i]);
        out->status = mist_import_torch(&rows, scratch.path, &out->report, &out->err);
    }
    scratch_visit(&scratch, 1);
    rmdir(scratch.folder);
}

static void import_one(const char *cluster, const char *trace, struct outcome *out)
{
    import(cluster, &trace, 1, out);
    must(out->status, &out->err);
}

static const struct mist_kernel_row *find(const struct outcome *in, const char *op,
                                          enum mist_phase phase, const char *shape)
{
    struct mist_shape parsed;

    assert_int_equal(mist_shape_parse(shape, &parsed, NULL), MIST_OK);
    return mist_trace_set_find_kernel(&in->set, op, MIST_TRACE_BF16, phase, &parsed);
}

static void expect(const struct mist_kernel_row *row, double time_us, double deviation_us,
                   int64_t repetitions)
{
    assert_non_null(row);
    if (fabs(row->time_us - time_us) > 1e-9 * time_us ||
        fabs(row->deviation_us - deviation_us) > 1e-9 * time_us)
        fail_msg("%g +- %g us, expected %g +- %g", row->time_us, row->deviation_us,
                 time_us, deviation_us);
    assert_int_equal(row->repetitions, repetitions);
}

/* Both kernels of a use count, and uses of one shape are one row, also of two ranks. */
TEST(test_products)
{
    /* clang-format off */
    static const char *const traces[] = {
        TRACE(KERNEL(5, 300) "," KERNEL(6, 100) ",\n"
              OP("aten::linear", 7, 100, 100, MM_SHAPE, BF16_2) ",\n"
              OP("aten::mm", 7, 110, 80, MM_SHAPE, BF16_2) ",\n"
              LAUNCH(6, 7, 130) "," LAUNCH(5, 7, 120)),
        TRACE(OP("aten::addmm", 7, 110, 80, "[[2048],[4096,1024],[1024,2048]]",
                 "[\"c10::BFloat16\",\"c10::BFloat16\",\"c10::BFloat16\"]") ",\n"
              LAUNCH(9, 7, 111.5) ",\n"
              KERNEL(9, 500) ",\n"
              KERNEL(10, 1000) "," LAUNCH(11, 8, 120) "," KERNEL(11, 1000))};
    /* clang-format on */
    struct outcome of;

    import("a100-80", traces, 2, &of);
    must(of.status, &of.err);
    assert_int_equal(of.set.n_kernels, 3);
    expect(find(&of, "linear", MIST_PHASE_FORWARD, "rows=4096;n_in=1024;n_out=2048"), 450,
           50, 2);
    expect(
        find(&of, "linear", MIST_PHASE_BACKWARD_INPUT, "rows=4096;n_in=2048;n_out=1024"),
        450, 50, 2);
    expect(
        find(&of, "linear", MIST_PHASE_BACKWARD_WEIGHT, "rows=1024;n_in=4096;n_out=2048"),
        450, 50, 2);
    assert_true(of.set.kernels[0].flop == 2.0 * 4096 * 1024 * 2048);
    /* a launch that was not recorded, and one on another thread, are of nobody */
    assert_true(fabs(of.report.kernels_s - 2900e-6) < 1e-12);
    assert_true(fabs(of.report.used_s - 900e-6) < 1e-12);
    mist_trace_set_fini(&of.set);
}

/* The innermost operator of ours has the launch, and the one around it what is behind. */
TEST(test_nesting)
{
    struct outcome of;

    /* clang-format off */
    import_one(
        "a100-80",
        TRACE(OP("aten::mm", 7, 100, 100, MM_SHAPE, BF16_2) ",\n"
              OP("aten::gelu", 7, 120, 20, "[[8,1000,100]]", "[\"c10::BFloat16\"]") ",\n"
              OP("aten::native_layer_norm", 7, 145, 5,
                 "[[4,100,512],[],[512],[512],[]]", "[\"c10::BFloat16\",\"ScalarList\"]") ",\n"
              LAUNCH(1, 7, 130) "," LAUNCH(2, 7, 142) "," LAUNCH(3, 7, 150) ","
              LAUNCH(4, 7, 199) "," LAUNCH(5, 7, 205) ",\n"
              KERNEL(1, 10) "," KERNEL(2, 200) "," KERNEL(3, 30) ","
              KERNEL(4, 400) "," KERNEL(5, 5000)),
        &of);
    /* clang-format on */
    expect(find(&of, "gelu", MIST_PHASE_FORWARD, "elements=800000"), 10, 0, 1);
    expect(find(&of, "layer_norm", MIST_PHASE_FORWARD, "rows=400;hidden=512"), 30, 0, 1);
    expect(find(&of, "linear", MIST_PHASE_FORWARD, "rows=4096;n_in=1024;n_out=2048"), 600,
           0, 1);
    assert_int_equal(of.set.n_kernels, 5);
    mist_trace_set_fini(&of.set);
}

#define QKV_SHAPE "[[2,8,512,64],[2,4,512,64],[2,4,512,64],[],[],[]]"
#define QKV_TYPES                                                                        \
    "[\"c10::BFloat16\",\"c10::BFloat16\",\"c10::BFloat16\",\"Scalar\",\"Scalar\"]"
#define CAUSAL(word) ",\"Concrete Inputs\":[\"\",\"\",\"\",\"0.\",\"" word "\",\"False\"]"
#define ATTENTION    "aten::_scaled_dot_product_flash_attention"

TEST(test_attention)
{
    static const char shape[] = "batch=2;seq=512;heads=8;kv_heads=4;head_dim=64";
    struct outcome of;

    /* clang-format off */
    import_one("a100-80",
               TRACE(OP_WITH(ATTENTION, 7, 100, 10, QKV_SHAPE, QKV_TYPES, CAUSAL("True")) ",\n"
                     OP_WITH(ATTENTION, 7, 200, 10, QKV_SHAPE, QKV_TYPES, CAUSAL("False")) ",\n"
                     OP(ATTENTION, 7, 300, 10, QKV_SHAPE, QKV_TYPES) ",\n"
                     OP("flash_attn::_flash_attn_backward", 7, 400, 10,
                        "[[2,512,8,64],[2,512,8,64],[2,512,4,64],[2,512,4,64]]",
                        "[\"c10::BFloat16\",\"c10::BFloat16\"]") ",\n"
                     LAUNCH(1, 7, 105) "," LAUNCH(2, 7, 205) "," LAUNCH(3, 7, 305) ","
                     LAUNCH(4, 7, 405) ",\n"
                     KERNEL(1, 100) "," KERNEL(2, 1000) "," KERNEL(3, 200) ","
                     KERNEL(4, 400)),
               &of);
    /* clang-format on */
    expect(find(&of, "attention", MIST_PHASE_FORWARD, shape), 150, 50, 2);
    expect(find(&of, "attention", MIST_PHASE_BACKWARD_INPUT, shape), 400, 0, 1);
    assert_int_equal(of.set.n_kernels, 2);
    assert_true(fabs(of.report.used_s - 700e-6) < 1e-12);
    mist_trace_set_fini(&of.set);
}

#define GROUP(name, in, out, type, size, ranks)                                          \
    "\"Collective name\":\"" name "\",\"In msg nelems\":" #in                            \
    ",\"Out msg nelems\":" #out ",\"dtype\":\"" type "\",\"Group size\":" #size          \
    ",\"Process Group Ranks\":\"" ranks "\""

static void expect_link(const struct outcome *in, enum mist_link_operation operation,
                        int nodes, int ranks, int groups, int64_t bytes, double time_us,
                        int64_t repetitions)
{
    const struct mist_link_row key = {.operation = operation,
                                      .nodes = nodes,
                                      .ranks_per_node = ranks,
                                      .concurrent_groups = groups,
                                      .bytes = bytes};
    const struct mist_link_row *row = mist_trace_set_find_link(&in->set, &key);

    assert_non_null(row);
    if (fabs(row->time_us - time_us) > 1e-9 * time_us)
        fail_msg("%g us, expected %g", row->time_us, time_us);
    assert_int_equal(row->repetitions, repetitions);
}

/* Groups on 4 nodes of 8: the shortest of a message counts, of copies the mean. */
TEST(test_links)
{
    /* clang-format off */
    static const char
        *const traces[] =
            {TRACE(NCCL(700, GROUP("allreduce", 1000, 1000, "Float", 4, "[0, 1, 2, 3]")) ",\n"
                   NCCL(300, GROUP("allreduce", 1000, 1000, "Float", 4, "[4, 5, 6, 7]")) ",\n"
                   NCCL(900, GROUP("_allgather_base", 1000, 4000, "BFloat16", 4,
                                   "[1, 9, 17, ...]")) ",\n"
                   NCCL(50, GROUP("_reduce_scatter_base", 3200, 100, "Half", 32,
                                  "[0, 1, 2, ...]"))),
             TRACE(NCCL(800, GROUP("_allgather_base", 1000, 4000, "BFloat16", 4,
                                   "[0, 8, 16, 24]")) ",\n"
                   NCCL(1, GROUP("allreduce", 8, 8, "Float", 3, "[0, 1, 8]")) "," /* 2 and 1 */
                   NCCL(1, "\"stream\":1") ","
                   NCCL(1, GROUP("broadcast", 8, 8, "Float", 8, "")) ",\n"
                   COPY("Memcpy HtoD (Pinned -> Device)", 10, 65536) ","
                   COPY("Memcpy HtoD (Pinned -> Device)", 20, 65536) ","
                   COPY("Memcpy HtoD (Pageable -> Device)", 90, 65536) ","
                   COPY("Memcpy DtoH (Device -> Pinned)", 0, 4) ","
                   COPY("Memcpy DtoH (Device -> Pinned)", 3, 8) ","
                   COPY("Memcpy DtoD (Device -> Device)", 3, 8))};
    /* clang-format on */
    struct outcome of;

    import("h100-sxm:4x8", traces, 2, &of);
    must(of.status, &of.err);
    expect_link(&of, MIST_LINK_ALL_REDUCE, 1, 4, 2, 4000, 300, 2);
    expect_link(&of, MIST_LINK_ALL_GATHER, 4, 1, 8, 8000, 800, 2);
    expect_link(&of, MIST_LINK_REDUCE_SCATTER, 4, 8, 1, 6400, 50, 1);
    expect_link(&of, MIST_LINK_HOST_TO_DEVICE, 1, 1, 1, 65536, 15, 2);
    expect_link(&of, MIST_LINK_DEVICE_TO_HOST, 1, 1, 1, 8, 3, 1);
    assert_int_equal(of.set.n_links, 5);
    assert_int_equal(of.report.n_messages, 8);
    assert_int_equal(of.report.n_nameless, 1);
    assert_int_equal(of.report.n_other, 2);
    mist_trace_set_fini(&of.set);
}

/* Several tensors in one kernel count with all of their elements. Of a group whose ranks are
 * not all listed, the rest is known only if they stand at one distance. A group of one rank
 * sends nothing. */
TEST(test_more_links)
{
    struct outcome of;

    /* clang-format off */
    import_one(
        "h100-sxm:8x8",
        TRACE(NCCL(300, GROUP("allreduce_coalesced", 500, 500, "Float", 8,
                              "[0, 1, 2, 3, 4, 5, 6, 7]")) ",\n"
              NCCL(400, GROUP("allgather_into_tensor_coalesced", 100, 800, "BFloat16", 8,
                              "[0, 1, 2, 3, 4, 5, 6, 7]")) ",\n"
              NCCL(500, GROUP("reduce_scatter_tensor_coalesced", 1600, 100, "Float", 16,
                              "[0, 1, 2, ...]")) ",\n"
              NCCL(600, GROUP("allreduce", 500, 500, "Float", 32, "[0, 1, 8, ...]")) ",\n"
              NCCL(700, GROUP("allreduce", 500, 500, "Float", 1, "[0]")) ",\n"
              NCCL(800, GROUP("send", 500, 500, "Float", 2, "[0, 8]"))),
        &of);
    /* clang-format on */
    expect_link(&of, MIST_LINK_ALL_REDUCE, 1, 8, 1, 2000, 300, 1);
    expect_link(&of, MIST_LINK_ALL_GATHER, 1, 8, 1, 1600, 400, 1);
    expect_link(&of, MIST_LINK_REDUCE_SCATTER, 2, 8, 1, 6400, 500, 1);
    assert_int_equal(of.set.n_links, 3);
    assert_int_equal(of.report.n_messages, 5);
    assert_int_equal(of.report.n_nameless, 1);
    assert_int_equal(of.report.n_other, 1);
    mist_trace_set_fini(&of.set);
}

#define FLASH_SHAPE "[[2,512,8,64],[2,512,4,64],[2,512,4,64]]"
#define FLASH(ts, window)                                                                \
    OP_WITH("flash_attn::_flash_attn_forward", 7, ts, 10, FLASH_SHAPE, QKV_TYPES,        \
            ",\"Concrete Inputs\":[\"\",\"\",\"\",\"0.\",\"0.1\",\"True\",\"" window     \
            "\",\"0\"]")

/* Attention that looks back over a part of the tokens only is another operator. */
TEST(test_windows)
{
    static const char shape[] = "batch=2;seq=512;heads=8;kv_heads=4;head_dim=64";
    struct outcome of;

    /* clang-format off */
    import_one("h100-sxm",
               TRACE(FLASH(100, "-1") "," FLASH(200, "127") "," FLASH(300, "511") ",\n"
                     LAUNCH(1, 7, 105) "," LAUNCH(2, 7, 205) "," LAUNCH(3, 7, 305) ",\n"
                     KERNEL(1, 400) "," KERNEL(2, 90) "," KERNEL(3, 420)),
               &of);
    /* clang-format on */
    expect(find(&of, "attention", MIST_PHASE_FORWARD, shape), 410, 10, 2);
    assert_int_equal(of.set.n_kernels, 1);
    mist_trace_set_fini(&of.set);
}

#define NO            "\"\","
#define NO_8          NO NO NO NO NO NO NO NO
#define FLASH_3_SHAPE "[[2,512,8,64],[2,512,8,64],[2,512,4,64],[2,512,4,64]]"
#define FLASH_3(name, ts, shape, concrete)                                               \
    OP_WITH("flash_attn_3::" name, 7, ts, 10, shape, QKV_TYPES,                          \
            ",\"Concrete Inputs\":[" concrete ",\"-1\",\"-1\"]")

/* FlashAttention-3, which says after its many optional tensors whether it is causal. */
TEST(test_flash_attention_3)
{
    static const char shape[] = "batch=2;seq=512;heads=8;kv_heads=4;head_dim=64";
    struct outcome of;

    /* clang-format off */
    import_one("h100-sxm",
               TRACE(FLASH_3("fwd", 100, FLASH_SHAPE, NO_8 NO_8 NO_8 "\"True\"") ","
                     FLASH_3("fwd", 200, FLASH_SHAPE, NO_8 NO_8 NO_8 "\"False\"") ","
                     FLASH_3("bwd", 300, FLASH_3_SHAPE, NO_8 NO_8 "\"True\"") ",\n"
                     LAUNCH(1, 7, 105) "," LAUNCH(2, 7, 205) "," LAUNCH(3, 7, 305) ",\n"
                     KERNEL(1, 100) "," KERNEL(2, 150) "," KERNEL(3, 250)),
               &of);
    /* clang-format on */
    expect(find(&of, "attention", MIST_PHASE_FORWARD, shape), 100, 0, 1);
    expect(find(&of, "attention", MIST_PHASE_BACKWARD_INPUT, shape), 250, 0, 1);
    assert_int_equal(of.set.n_kernels, 2);
    mist_trace_set_fini(&of.set);
}

TEST(test_refusals)
{
    static const struct {
        const char *trace, *says;
        long line;
    } cases[] = {
        {"\x1f\x8b\b", "damaged or cut off", 0},
        {"", "has no \"traceEvents\"", 0},
        {"{\"traceEvents\": 3}", "is no list of events", 1},
        {"{\n\"traceEvents\":\n[7]}", "expected an event", 3},
        {TRACE(""), "has nothing to import", 0},
        {TRACE(OP("aten::mm", 7, 1, 1, MM_SHAPE, BF16_2)), "record_shapes=True", 0},
        {"{\"traceEvents\":[\n{\"ph\":\"X\"", "the file ends inside of this event", 2},
        {"{\"traceEvents\":[\n{}\n", "expected ',' or ']' behind an event", 3},
        {"{\"traceEvents\":[{},\n{\"a\":1 2}]}", "'}' expected", 2},
        {"{\"traceEvents\":[{},\n{\"a\":1,\n\"a\":2}]}", "duplicate object key", 3},
        {TRACE("{},\n{\"ph\":\"X\",\"cat\":\"kernel\",\n\"args\":{}}"),
         "missing key \"dur\"", 4},
        {TRACE("{\"ph\":\"X\",\"cat\":\"kernel\",\n\"dur\":-1,\n\"args\":{}}"), "dur", 4},
        {TRACE(NCCL(9, GROUP("allreduce", 9, 9, "Float", 2, "[0, 9]"))), "has rank 9", 3},
        /* 1 us for 17 GFLOP */
        {TRACE("{},\n" OP("aten::mm", 7, 1, 1, MM_SHAPE,
                          BF16_2) "," LAUNCH(1, 7, 1) "," KERNEL(1, 1)),
         "beyond reason", 4},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome of;
        import("a100-80", &cases[i].trace, 1, &of);
        if (of.status != MIST_ERR_INPUT || !strstr(of.err.message, cases[i].says) ||
            of.err.line != cases[i].line || !strstr(of.err.path, "trace.json"))
            fail_msg("%zu: %d, %s:%ld: %s, expected line %ld, %s", i, (int)of.status,
                     of.err.path, of.err.line, of.err.message, cases[i].line,
                     cases[i].says);
        mist_trace_set_fini(&of.set);
    }
}

/* ------------------------------------------------------------------------- a real run */

/* Megatron on 8 A100, TP 8: products in fp16 as others read them from the trace. */
TEST(test_megatron)
{
    struct outcome of = {0};
    char path[REFERENCE_PATH_BYTES], line[1024];
    int n = 0;

    if (!find_reference("kineto_tp8/rank0.json.gz", path))
        skip();
    must(mist_preset_parse(&of.set, "a100-80", &of.err), &of.err);
    struct mist_import_rows rows = mist_import_rows_begin(&of.set);
    must(mist_import_torch(&rows, path, &of.report, &of.err), &of.err);
    print_message(
        "%zu rows, %.0f %% of the kernels' time; %zu of %zu messages nameless\n",
        mist_import_rows_count(&rows), 100 * of.report.used_s / of.report.kernels_s,
        of.report.n_nameless, of.report.n_messages);
    FILE *file = open_reference("kernels/a100_megatron_tp8_gemm_from_trace.csv");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        char op[32], shape[128];
        long long m, n_out, k;
        double median_us;
        struct mist_shape parsed;
        if (sscanf(line, "%*[^,],%31[^,],%*[^,],%lld,%lld,%lld,%*[^,],%*[^,],%*[^,],%lf",
                   op, &m, &n_out, &k, &median_us) != 5 ||
            strcmp(op, "aten::mm") != 0)
            continue;
        snprintf(shape, sizeof shape, "rows=%lld;n_in=%lld;n_out=%lld", m, k, n_out);
        assert_int_equal(mist_shape_parse(shape, &parsed, NULL), MIST_OK);
        const struct mist_kernel_row *row = mist_trace_set_find_kernel(
            &of.set, "linear", MIST_TRACE_FP16, MIST_PHASE_FORWARD, &parsed);
        assert_non_null(row);
        print_message("%s: %.1f us, others read %.1f\n", shape, row->time_us, median_us);
        assert_true(fabs(row->time_us / median_us - 1) < 0.02);
        n++;
    }
    fclose(file);
    assert_true(n >= 4);
    mist_trace_set_fini(&of.set);
}

TEST_MAIN(NULL, NULL)
