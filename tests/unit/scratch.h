/* A scratch folder for tests that write files. Include after cmocka.h. */
#ifndef MIST_TESTS_UNIT_SCRATCH_H
#define MIST_TESTS_UNIT_SCRATCH_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct scratch {
    char folder[64];
    char path[128]; /* folder/name of the last scratch_path */
};

static inline void scratch_init(struct scratch *scratch)
{
    snprintf(scratch->folder, sizeof scratch->folder, "/tmp/mist_test_XXXXXX");
    assert_non_null(mkdtemp(scratch->folder));
}

static inline const char *scratch_path(struct scratch *scratch, const char *name)
{
    snprintf(scratch->path, sizeof scratch->path, "%s/%s", scratch->folder, name);
    return scratch->path;
}

/* Files in the folder; with do_remove they go, too. */
static inline int scratch_visit(const struct scratch *scratch, int do_remove)
{
    char path[512];
    int n = 0;
    DIR *folder = opendir(scratch->folder);

    assert_non_null(folder);
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        n++;
        snprintf(path, sizeof path, "%s/%s", scratch->folder, entry->d_name);
        if (do_remove)
            assert_int_equal(remove(path), 0);
    }
    closedir(folder);
    return n;
}

static inline int scratch_count(const struct scratch *scratch)
{
    return scratch_visit(scratch, 0);
}

static inline void scratch_write(const char *path, const char *text)
{
    FILE *stream = fopen(path, "w");

    assert_non_null(stream);
    fputs(text, stream);
    assert_int_equal(fclose(stream), 0);
}

/* Up to size - 1 bytes of a file. */
static inline void scratch_read(const char *path, char *text, size_t size)
{
    FILE *stream = fopen(path, "r");

    assert_non_null(stream);
    text[fread(text, 1, size - 1, stream)] = '\0';
    fclose(stream);
}

/* mist-exec, beside which the test was built, or in MIST_BUILD. */
static inline void scratch_tool_path(char *out, size_t size)
{
    const char *build = getenv("MIST_BUILD");
    char self[1024] = "";

    assert_true(build || readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    for (int i = 0; i < 3 && !build; i++)
        *strrchr(self, '/') = '\0';
    snprintf(out, size, "%.900s/mist-exec", build ? build : self);
}

static inline void scratch_fini(struct scratch *scratch)
{
    scratch_visit(scratch, 1);
    assert_int_equal(rmdir(scratch->folder), 0);
}

#endif
