/*
 * profile/import_torch: traces of one rank, or of two. What is accepted passes what the
 * files of a set must pass, and no more of the kernels' time is in rows than there is.
 */
#include "profile/import_torch.h"
#include "tests/fuzz/fuzz.h"
#include "traces/preset.h"

static void check_rows(const struct mist_trace_set *set,
                       const struct mist_import_torch_report *report)
{
    FUZZ_CHECK(report->used_s <= report->kernels_s * (1 + 1e-9), "%g of %g s",
               report->used_s, report->kernels_s);
    FUZZ_CHECK(report->n_nameless + report->n_other <= report->n_messages,
               "%zu and %zu of %zu", report->n_nameless, report->n_other,
               report->n_messages);
    for (size_t i = 0; i < set->n_kernels; i++) {
        const struct mist_kernel_row *row = &set->kernels[i];
        FUZZ_CHECK(row->time_us > 0 && row->repetitions > 0 && row->flop >= 0, "row %zu",
                   i);
        FUZZ_CHECK(mist_trace_set_find_kernel(set, row->op, row->dtype, row->phase,
                                              &row->shape) == row,
                   "row %zu is not found", i);
    }
    for (size_t i = 0; i < set->n_links; i++) {
        const struct mist_link_row *row = &set->links[i];
        FUZZ_CHECK(row->bytes > 0 && row->nodes <= set->cluster.nodes &&
                       row->ranks_per_node * row->concurrent_groups <=
                           set->cluster.devices_per_node,
                   "link %zu", i);
        FUZZ_CHECK(mist_trace_set_find_link(set, row) == row, "link %zu is not found", i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct fuzz_bytes parts[2];
    struct mist_import_torch_report report = {0};
    struct mist_trace_set set;
    struct mist_err err = {0};
    char path[FUZZ_PATH_BYTES];

    fuzz_split((struct fuzz_bytes){bytes, n}, parts, 2);
    fuzz_must(mist_preset_parse(&set, "h100-sxm:4x8", &err), &err);
    struct mist_import_rows rows = mist_import_rows_begin(&set);
    enum mist_status status = MIST_OK;
    for (int i = 0; i < 2 && status == MIST_OK; i++) {
        fuzz_write(fuzz_path(path, "trace.json"), parts[i]);
        if (parts[i].bytes)
            status = mist_import_torch(&rows, path, &report, &err);
    }
    if (status == MIST_OK)
        check_rows(&set, &report);
    else
        fuzz_check_refusal(status, &err, true);
    mist_trace_set_fini(&set);
    return 0;
}

#define OP(name, ts, dur, dims, more)                                                    \
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"" name "\",\"tid\":7,\"ts\":" ts        \
    ",\"dur\":" dur ",\"args\":{\"Input Dims\":" dims                                    \
    ",\"Input type\":[\"c10::BFloat16\",\"c10::BFloat16\"]" more "}},\n"
#define LAUNCH(id, ts)                                                                   \
    "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"l\",\"tid\":7,\"ts\":" ts         \
    ",\"args\":{\"correlation\":" id "}},\n"
#define KERNEL(id, dur)                                                                  \
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"dur\":" dur                       \
    ",\"args\":{\"correlation\":" id "}},\n"
#define BEGIN "{\"schemaVersion\":1,\"traceEvents\":[\n"
#define END   "{}]}\n"

void fuzz_write_seeds(void)
{
    fuzz_seed_text("operators",
                   BEGIN OP("aten::mm", "10", "80", "[[4096,1024],[1024,2048]]", "")
                       OP("aten::gelu", "20", "5", "[[64,128]]", "") LAUNCH("1", "22")
                           LAUNCH("2", "40") KERNEL("1", "30") KERNEL("2", "400") END);
    fuzz_seed_text("attention",
                   BEGIN OP("aten::_scaled_dot_product_flash_attention", "10", "80",
                            "[[2,8,512,64],[2,4,512,64],[2,4,512,64]]",
                            ",\"Concrete Inputs\":[\"\",\"\",\"\",\"0.\",\"True\"]")
                       LAUNCH("3", "11.5") KERNEL("3", "200") END);
    fuzz_seed_text("messages", BEGIN "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":"
                                     "\"ncclDevKernel\",\"dur\":300,\"args\":{"
                                     "\"Collective name\":\"allreduce\",\"In msg "
                                     "nelems\":1000,\"Out msg nelems\":1000,"
                                     "\"dtype\":\"Float\",\"Group size\":4,\"Process "
                                     "Group Ranks\":\"[0, 8, ...]\"}},\n"
                                     "{\"ph\":\"X\",\"cat\":\"gpu_memcpy\",\"name\":"
                                     "\"Memcpy HtoD (Pinned -> Device)\","
                                     "\"dur\":5,\"args\":{\"bytes\":4096}},\n" END);
}
