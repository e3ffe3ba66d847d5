/*
 * Reads the includes of every source file and fails when a folder uses another that the
 * design does not allow, or when a library's header is used outside the one place it
 * belongs to. Runs in the root.
 */
#include "tests/unit/test.h"

#include <dirent.h>

/* core <- traces <- sim <- tune; sim <- exec <- profile; plots on traces. */
static const struct {
    const char *folder;
    const char *may_use; /* space on both sides of every name */
} arrows[] = {
    {"core", " core "},
    {"traces", " traces core "},
    {"sim", " sim traces core "},
    {"tune", " tune sim traces core "},
    {"exec", " exec sim traces core "},
    {"profile", " profile exec sim traces core "},
    {"plots", " plots traces core "},
    {"exec/cuda", " exec sim traces core "}, /* and nobody uses it: it is a plugin */
};

/* Headers of libraries and the folder whose business they are. */
static const struct {
    const char *header;
    const char *folder;
} owners[] = {
    {"glpk.h", "tune"},
    {"mpi.h", "exec"},
    {"dnnl.h", "exec"},
    {"omp.h", "exec"},
    {"csv.h", "core"},
    {"cuda_runtime_api.h", "exec/cuda"},
    {"nccl.h", "exec/cuda"},
    {"cublasLt.h", "exec/cuda"},
    {"cudnn.h", "exec/cuda"},
    {"cupti.h", "exec/cuda"},
    {"cuda_bf16.h", "exec/cuda"},
};

static int n_bad, n_files, n_includes;

static void check_own(const char *path, size_t i_arrow, const char *target)
{
    char name[64];
    const char *slash = strchr(target, '/');

    if (!slash) {
        printf("# %s includes \"%s\": not from the root\n", path, target);
        n_bad++;
        return;
    }
    snprintf(name, sizeof name, " %.*s ", (int)(slash - target), target);
    if (strncmp(target, "exec/cuda/", 10) == 0 &&
        strcmp(arrows[i_arrow].folder, "exec/cuda") != 0) {
        printf("# %s includes \"%s\": only the plugin may\n", path, target);
        n_bad++;
    }
    if (!strstr(arrows[i_arrow].may_use, name)) {
        printf("# %s includes \"%s\": %s may only use%s\n", path, target,
               arrows[i_arrow].folder, arrows[i_arrow].may_use);
        n_bad++;
    }
}

static void check_library(const char *path, const char *folder, const char *target)
{
    for (size_t i = 0; i < sizeof owners / sizeof *owners; i++)
        if (strcmp(owners[i].header, target) == 0 &&
            strcmp(owners[i].folder, folder) != 0) {
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

static void test_arrows(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_arrows)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
