/*
 * What Linux says of memory: /proc/meminfo, control groups of both versions, RLIMIT_AS.
 * See host_memory.h.
 */
#include "core/host_memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The number behind a word that begins a line of a file ("": the first number); -1. */
static int64_t read_number(const char *path, const char *word)
{
    FILE *stream = fopen(path, "r");
    char line[512];
    long long value = -1;
    size_t n = strlen(word);

    while (stream && value < 0 && fgets(line, sizeof line, stream))
        if (strncmp(line, word, n) == 0 && sscanf(line + n, "%lld", &value) != 1)
            value = -1;
    if (stream)
        fclose(stream);
    return value;
}

static int64_t machine_bytes(void)
{
    int64_t kib = read_number("/proc/meminfo", "MemAvailable:");
    int64_t swap_kib = read_number("/proc/meminfo", "SwapFree:");

    if (kib < 0)
        return INT64_MAX;
    return 1024 * (kib + (swap_kib > 0 ? swap_kib : 0));
}

/* Files of a group under a mount point; version 1 and 2 call them differently. */
struct version {
    const char *mount, *limit, *usage, *cached;
};
static const struct version VERSIONS[] = {
    {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file "},
    {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "},
};

static int64_t group_number(const struct version *version, const char *group,
                            const char *file, const char *word)
{
    char path[4608];
    int n = snprintf(path, sizeof path, "%s%s/%s", version->mount, group, file);

    return n > 0 && (size_t)n < sizeof path ? read_number(path, word) : -1;
}

/* What a group and those around it leave; group is cut. */
static int64_t group_bytes(const struct version *version, char *group)
{
    int64_t bytes = INT64_MAX;

    for (;;) {
        int64_t limit = group_number(version, group, version->limit, "");
        int64_t usage = group_number(version, group, version->usage, "");
        int64_t cached = group_number(version, group, "memory.stat", version->cached);
        if (limit >= 0 && usage >= 0) {
            int64_t used = usage - (cached > 0 ? least(cached, usage) : 0);
            bytes = least(bytes, limit > used ? limit - used : 0);
        }
        char *slash = strrchr(group, '/');
        if (!slash)
            return bytes;
        *slash = '\0'; /* the group around it; at last that of the mount point */
    }
}

static int64_t groups_bytes(void)
{
    FILE *stream = fopen("/proc/self/cgroup", "r");
    char line[4096];
    int64_t bytes = INT64_MAX;

    while (stream && fgets(line, sizeof line, stream)) {
        char *names = strchr(line, ':'), *group = strrchr(line, ':');
        bool is_two = strncmp(line, "0::", 3) == 0;
        if (!names || !group || (!is_two && strncmp(names, ":memory:", 8) != 0))
            continue;
        group++;
        group[strcspn(group, "\n")] = '\0';
        bytes = least(bytes, group_bytes(&VERSIONS[is_two], group));
    }
    if (stream)
        fclose(stream);
    return bytes;
}

static int64_t address_space_bytes(void)
{
    struct rlimit limit;
    int64_t pages = read_number("/proc/self/statm", "");

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur > INT64_MAX || pages < 0)
        return INT64_MAX;
    int64_t used = pages * sysconf(_SC_PAGESIZE), most = (int64_t)limit.rlim_cur;
    return most > used ? most - used : 0;
}

int64_t mist_host_memory_available_bytes(void)
{
    return least(least(machine_bytes(), groups_bytes()), address_space_bytes());
}
