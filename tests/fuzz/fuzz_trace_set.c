/*
 * traces/trace_set: a folder. A set that loads is saved and loads with the same
 * fingerprint, and is then saved as the same files; cut, it is refused.
 */
#include "tests/fuzz/fuzz.h"
#include "traces/trace_set.h"

#include <sys/stat.h>
#include <unistd.h>

static const char *const files[] = {"cluster.json", "kernels.csv", "links.csv",
                                    "interference.csv", "checks.csv"};
enum { N_FILES = sizeof files / sizeof *files };

static char *path_in(char *out, const char *name, const char *file)
{
    char both[64];

    snprintf(both, sizeof both, "%s/%s", name, file);
    return fuzz_path(out, both);
}

static void check_lookups(const struct mist_trace_set *set)
{
    for (size_t i = 0; i < set->n_kernels; i++) {
        const struct mist_kernel_row *row = &set->kernels[i];
        FUZZ_CHECK(mist_trace_set_find_kernel(set, row->op, row->dtype, row->phase,
                                              &row->shape) == row,
                   "row %zu is not found", i);
    }
}

static void check_round_trip(const struct mist_trace_set *set)
{
    char folder[2][FUZZ_PATH_BYTES], a[FUZZ_PATH_BYTES], b[FUZZ_PATH_BYTES];
    struct mist_trace_set again;
    struct mist_err err = {0};

    fuzz_path(folder[0], "once");
    fuzz_path(folder[1], "twice");
    fuzz_must(mist_trace_set_save(set, folder[0], true, &err), &err);
    fuzz_must(mist_trace_set_load(&again, folder[0], &err), &err);
    FUZZ_CHECK(mist_trace_set_fingerprint(set) == mist_trace_set_fingerprint(&again),
               "another set");
    FUZZ_CHECK(set->has_kernels == again.has_kernels, "kernels.csv came or went");
    fuzz_must(mist_trace_set_save(&again, folder[1], true, &err), &err);
    for (int i = 0; i < N_FILES; i++)
        FUZZ_CHECK(
            fuzz_same_files(path_in(a, "once", files[i]), path_in(b, "twice", files[i])),
            "%s differs", files[i]);
    mist_trace_set_fini(&again);
}

/* A set that was saved and then lost the end of one of its files is refused. */
static void check_cut(uint64_t random)
{
    const char *file = files[random % N_FILES];
    char folder[FUZZ_PATH_BYTES], path[FUZZ_PATH_BYTES];
    struct mist_trace_set set;
    struct stat info;
    struct mist_err err = {0};

    if (stat(path_in(path, "twice", file), &info) != 0)
        return;
    uint64_t n_kept = random / N_FILES % (uint64_t)info.st_size;
    if (file == files[0] && (off_t)n_kept == info.st_size - 1)
        return; /* JSON without its last newline is whole */
    FUZZ_CHECK(truncate(path, (off_t)n_kept) == 0, "%s", path);
    enum mist_status status = mist_trace_set_load(&set, fuzz_path(folder, "twice"), &err);
    FUZZ_CHECK(status != MIST_OK, "%s lost its end at %llu and is taken for whole", file,
               (unsigned long long)n_kept);
    fuzz_check_refusal(status, &err, true);
    mist_trace_set_fini(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct fuzz_bytes parts[N_FILES];
    struct mist_trace_set set;
    struct mist_err err = {0};
    char folder[FUZZ_PATH_BYTES], path[FUZZ_PATH_BYTES];

    mkdir(fuzz_path(folder, "in"), 0777);
    fuzz_split((struct fuzz_bytes){bytes, n}, parts, N_FILES);
    if (!parts[0].bytes)
        return 0; /* without cluster.json there is no set */
    for (int i = 0; i < N_FILES; i++)
        fuzz_write(path_in(path, "in", files[i]), parts[i]);
    enum mist_status status = mist_trace_set_load(&set, folder, &err);
    if (status == MIST_OK) {
        check_lookups(&set);
        check_round_trip(&set);
        check_cut(mist_trace_set_fingerprint(&set));
    } else {
        fuzz_check_refusal(status, &err, true);
        FUZZ_CHECK(!set.kernels && !set.links && !set.interferences, "rows are left");
    }
    mist_trace_set_fini(&set);
    return 0;
}

static const char cluster[] =
    "{\"format\": 1, \"name\": \"x\", \"backend\": \"cuda\", \"nodes\": 2,\n"
    " \"devices_per_node\": 8, \"device_memory_bytes\": 80000000000,\n"
    " \"peak_flop_per_s\": {\"bf16\": 3.12e14}, \"memory_bytes_per_s\": 2e12}\n";

void fuzz_write_seeds(void)
{
    struct fuzz_buffer buffer = {0};

    for (int i = 0; i < N_FILES - 1; i++) {
        char path[64];
        snprintf(path, sizeof path, "tests/data/cli/traces/%s", files[i]);
        fuzz_add_text(&buffer, i > 0 ? FUZZ_NEXT : "");
        fuzz_add_file(&buffer, path);
    }
    fuzz_add_text(&buffer, FUZZ_NEXT "mechanism,predicted_us,bar_us,measured_us,"
                                     "deviation_us,repetitions\n"
                                     "pipeline,98000,3000,100000,1000,10\n"
                                     "zero3,120000,0,110000,0,4\n");
    fuzz_seed("whole", &buffer);
    fuzz_seed_text("cluster", cluster);
    fuzz_add_text(&buffer, cluster);
    fuzz_add_text(&buffer, FUZZ_NEXT "op,dtype,phase,shape,time_us,deviation_us,"
                                     "repetitions,flop,bytes\n"
                                     "linear,bf16,forward,rows=8;n_in=16,1.5,0,10,1,1\n");
    fuzz_add_text(&buffer,
                  FUZZ_NEXT "-" FUZZ_NEXT "channels,nodes,ranks_per_node,compute_us,"
                            "gpu_gpu_us,host_to_device_us,device_to_host_us,"
                            "together_us,deviation_us,repetitions\n"
                            "compute+gpu_gpu,1,2,6000,5000,0,0,8500,50,20\n");
    fuzz_seed("small", &buffer);
}
