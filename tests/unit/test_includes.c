/*
 * Reads the includes of every source file and fails when a folder uses another that the
 * design does not allow, or when a library's header is used outside the one place it
 * belongs to. Runs in the root.
 */
#include "tests/unit/test.h"

#include <dirent.h>

/*
 * core <- traces <- sim <- tune; sim <- exec <- profile; plots on traces. Inside of sim and
 * exec the rooms have arrows of their own; files beside the rooms may use all of them.
 */
static const struct {
    const char *folder;
    const char *may_use; /* beside itself; a space on both sides of every name */
} arrows[] = {
    {"core", " "},
    {"traces", " core "},
    {"sim/symbolic", " core "},
    {"sim/model", " traces core "},
    {"sim/plan", " sim/model traces core "},
    {"sim/framework_args", " sim/plan sim/model traces core "},
    {"sim/schedule", " sim/plan sim/model traces core "},
    {"sim/cost", " sim/schedule sim/plan sim/model traces core "},
    {"sim/engine", " sim/cost traces core "},
    {"sim/replay", " sim/engine sim/cost sim/schedule sim/plan sim/model traces core "},
    {"sim/explain", " sim/replay sim/engine sim/cost sim/schedule sim/plan sim/model "
                    "traces core "},
    {"sim/closed_form",
     " sim/cost sim/schedule sim/plan sim/model sim/symbolic traces core "},
    {"sim/recorded", " traces core "},
    {"sim", " sim/* traces core "},
    {"tune", " sim/* traces core "},
    {"exec/device", " sim/* traces core "},
    {"exec/comm", " exec/device sim/* traces core "},
    {"exec/operators", " exec/comm exec/device sim/* traces core "},
    {"exec/data", " traces core "},
    {"exec/checkpoint", " sim/* traces core "},
    {"exec/huggingface", " sim/* traces core "},
    {"exec/runtime", " exec/operators exec/comm exec/device sim/* traces core "},
    {"exec/train",
     " exec/runtime exec/operators exec/comm exec/device exec/data exec/checkpoint "
     "exec/huggingface sim/* traces core "},
    /* and nobody uses it: it is a plugin */
    {"exec/cuda",
     " exec/runtime exec/operators exec/comm exec/device sim/* traces core "},
    {"exec", " exec/train exec/runtime exec/operators exec/comm exec/device exec/data "
             "exec/checkpoint exec/huggingface sim/* traces core "},
    {"profile",
     " exec/train exec/runtime exec/operators exec/comm exec/device sim/* traces core "},
    {"plots", " traces core "},
};

/* Headers of libraries and the folder whose business they are. */
static const struct {
    const char *header;
    const char *folder;
} owners[] = {
    {"glpk.h", "tune"},
    {"mpi.h", "exec/comm"},
    {"dnnl.h", "exec/operators"},
    {"omp.h", "exec"},
    {"csv.h", "core"},
    {"zlib.h", "core"},
    {"cuda_runtime_api.h", "exec/cuda"},
    {"nccl.h", "exec/cuda"},
    {"cublasLt.h", "exec/cuda"},
    {"cudnn.h", "exec/cuda"},
    {"cupti.h", "exec/cuda"},
    {"cuda_bf16.h", "exec/cuda"},
};

static int n_bad, n_files, n_includes;

static bool lists(const char *names, const char *name, const char *suffix)
{
    char word[128];

    snprintf(word, sizeof word, " %s%s ", name, suffix);
    return strstr(names, word) != NULL;
}

static void check_own(const char *path, size_t i_arrow, const char *target)
{
    char folder[64];
    const char *slash = strrchr(target, '/'), *may_use = arrows[i_arrow].may_use;

    if (!slash) {
        printf("# %s includes \"%s\": not from the root\n", path, target);
        n_bad++;
        return;
    }
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - target), target);
    if (strcmp(folder, arrows[i_arrow].folder) == 0 || lists(may_use, folder, ""))
        return;
    char *room = strchr(folder, '/');
    if (room)
        *room = '\0';
    if (lists(may_use, folder, "/*"))
        return;
    printf("# %s includes \"%s\": %s may only use%s\n", path, target,
           arrows[i_arrow].folder, may_use);
    n_bad++;
}

static void check_library(const char *path, const char *folder, const char *target)
{
    for (size_t i = 0; i < sizeof owners / sizeof *owners; i++)
        if (strcmp(owners[i].header, target) == 0 &&
            strncmp(folder, owners[i].folder, strlen(owners[i].folder)) != 0) {
            printf("# %s includes <%s>: only %s/ may\n", path, target, owners[i].folder);
            n_bad++;
        }
}

static void check_file(const char *path, size_t i_arrow)
{
    char line[1024], target[512];
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    n_files++;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, " # include \"%511[^\"]\"", target) == 1) {
            check_own(path, i_arrow, target);
            n_includes++;
        } else if (sscanf(line, " # include <%511[^>]>", target) == 1) {
            check_library(path, arrows[i_arrow].folder, target);
            n_includes++;
        }
    }
    fclose(file);
}

static bool is_source(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot && (!strcmp(dot, ".c") || !strcmp(dot, ".h") || !strcmp(dot, ".cu") ||
                   !strcmp(dot, ".cuh"));
}

TEST(test_arrows)
{
    for (size_t i = 0; i < sizeof arrows / sizeof *arrows; i++) {
        DIR *folder = opendir(arrows[i].folder);
        if (!folder)
            fail_msg("%s/ is not here; run in the root", arrows[i].folder);
        for (struct dirent *entry; (entry = readdir(folder));) {
            char path[512];
            snprintf(path, sizeof path, "%s/%s", arrows[i].folder, entry->d_name);
            if (is_source(entry->d_name))
                check_file(path, i);
        }
        closedir(folder);
    }
    printf("# %d includes of %d files\n", n_includes, n_files);
    assert_true(n_files > 50);
    assert_true(n_includes > 100);
    assert_int_equal(n_bad, 0);
}

TEST_MAIN(NULL, NULL)
