/* Names of files. See path.h. */
#include "core/path.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of a joined path. */
static size_t size_of(size_t n_folder, const char *name)
{
    return n_folder + strlen(name) + 2;
}

/* Writes the joined path to path, unless that is NULL; returns it. */
static char *write_path(char *path, const char *folder, size_t n_folder, const char *name)
{
    if (!path)
        return NULL;
    memcpy(path, folder, n_folder);
    path[n_folder] = '/';
    memcpy(path + n_folder + 1, name, strlen(name) + 1);
    return path;
}

char *mist_path_join(const char *folder, const char *name)
{
    size_t n = strlen(folder);

    return write_path(malloc(size_of(n, name)), folder, n, name);
}

char *mist_path_join_in(struct mist_arena *arena, const char *folder, const char *name)
{
    size_t n = strlen(folder);

    return write_path(mist_arena_alloc(arena, size_of(n, name)), folder, n, name);
}

char *mist_path_beside_in(struct mist_arena *arena, const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        return mist_arena_strdup(arena, name);
    size_t n = (size_t)(slash - path);
    return write_path(mist_arena_alloc(arena, size_of(n, name)), path, n, name);
}

const char *mist_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

bool mist_path_ends(const char *path, const char *suffix)
{
    size_t n = strlen(path), n_suffix = strlen(suffix);

    return n > n_suffix && strcmp(path + n - n_suffix, suffix) == 0;
}

const char *mist_path_temporary(void)
{
    const char *variable = getenv("TMPDIR");

    return variable && variable[0] ? variable : "/tmp";
}
