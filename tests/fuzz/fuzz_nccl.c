/* traces/import_nccl: rows that are imported pass what the files of a set must pass. */
#include "tests/fuzz/fuzz.h"
#include "tests/unit/find_link.h"
#include "traces/import_nccl.h"
#include "traces/preset.h"

static void check_rows(const struct mist_trace_set *set)
{
    FUZZ_CHECK(set->n_links > 0, "no row");
    for (size_t i = 0; i < set->n_links; i++) {
        const struct mist_link_row *row = &set->links[i];
        FUZZ_CHECK(row->nodes > 0 && row->ranks_per_node > 0 && row->bytes > 0 &&
                       row->concurrent_groups > 0 && row->repetitions > 0 &&
                       row->time_us > 0 && row->time_us < 1e300,
                   "row %zu", i);
        FUZZ_CHECK(find_link(set, row->operation, row->nodes, row->ranks_per_node,
                             row->concurrent_groups, row->bytes) == row,
                   "row %zu is not found", i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct fuzz_bytes input = {bytes, n};
    unsigned choice = fuzz_take(&input);
    struct mist_import_nccl options = {.has_operation = choice & 1,
                                       .operation = MIST_LINK_ALL_GATHER,
                                       .nodes = choice & 2 ? 2 : 0,
                                       .ranks_per_node = choice & 4 ? 4 : 0,
                                       .in_place = choice & 8};
    struct mist_trace_set set;
    struct mist_err err = {0};
    char path[FUZZ_PATH_BYTES];

    fuzz_write(fuzz_path(path, "log"), input);
    fuzz_must(mist_preset_parse(&set, "h100-sxm:2x8", &err), &err);
    struct mist_import_rows rows = mist_import_rows_begin(&set);
    enum mist_status status = mist_import_nccl_log(&rows, path, &options, &err);
    if (status == MIST_OK)
        check_rows(&set);
    else
        fuzz_check_refusal(status, &err, true);
    mist_trace_set_fini(&set);
    return 0;
}

void fuzz_write_seeds(void)
{
    static const char *const names[] = {"0", "8", "6"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fuzz_buffer buffer = {0};
        fuzz_add_text(&buffer, names[i]);
        fuzz_add_file(&buffer, "tests/data/nccl_all_reduce_2x4.log");
        fuzz_seed(names[i], &buffer);
    }
}
