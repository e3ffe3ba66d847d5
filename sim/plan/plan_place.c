/* Paths from the folder of a plan. See plan_place.h. */
#define _GNU_SOURCE /* realpath */
#include "sim/plan/plan_place.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Characters of the folder of a path, with the slash; 0: the current one. */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* The way from folder to path, both absolute and without links; false: it is too long. */
static bool find_way(const char *folder, const char *path,
                     char out[MIST_PLAN_TRACE_SET_BYTES])
{
    size_t n_same = 0, n = 0;

    for (size_t i = 0;; i++) {
        bool ends_folder = !folder[i] || folder[i] == '/';
        bool ends_path = !path[i] || path[i] == '/';
        if (ends_folder && ends_path)
            n_same = i;
        if (!folder[i] || !path[i] || folder[i] != path[i])
            break;
    }
    out[0] = '\0';
    for (const char *at = folder + n_same; *at; at++)
        if (*at == '/' && at[1]) {
            if (n + 4 > MIST_PLAN_TRACE_SET_BYTES)
                return false;
            memcpy(out + n, "../", 4);
            n += 3;
        }
    const char *rest = path + n_same + (path[n_same] == '/');
    if (n + strlen(rest) + 2 > MIST_PLAN_TRACE_SET_BYTES)
        return false;
    strcpy(out + n, n + strlen(rest) > 0 ? rest : ".");
    return true;
}

void mist_plan_place_read(const char *plan_path,
                          char trace_set[MIST_PLAN_TRACE_SET_BYTES])
{
    size_t n_folder = folder_length(plan_path), n = strlen(trace_set);
    char path[PATH_MAX], current[PATH_MAX], whole[PATH_MAX];

    if (n == 0 || trace_set[0] == '/' || n_folder + n >= MIST_PLAN_TRACE_SET_BYTES)
        return;
    memcpy(path, plan_path, n_folder);
    memcpy(path + n_folder, trace_set, n + 1);
    if (access(path, F_OK) != 0)
        return;
    bool has_way = path[0] == '/' && getcwd(current, sizeof current) &&
                   realpath(path, whole) && find_way(current, whole, trace_set);
    if (!has_way)
        memcpy(trace_set, path, n_folder + n + 1);
}

void mist_plan_place_write(const char *plan_path, const char *trace_set,
                           char out[MIST_PLAN_TRACE_SET_BYTES])
{
    size_t n_folder = folder_length(plan_path);
    char text[PATH_MAX], folder[PATH_MAX], path[PATH_MAX];
    bool has_way =
        n_folder > 0 && n_folder < sizeof text && trace_set[0] && trace_set[0] != '/';

    if (has_way) {
        memcpy(text, plan_path, n_folder);
        text[n_folder] = '\0';
        has_way = realpath(text, folder) && realpath(trace_set, path) &&
                  find_way(folder, path, out);
    }
    if (!has_way)
        memcpy(out, trace_set, strlen(trace_set) + 1);
}
