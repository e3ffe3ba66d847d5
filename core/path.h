/*
 * Names of files. Left out: anything that looks at a disk.
 */
#ifndef MIST_CORE_PATH_H
#define MIST_CORE_PATH_H

#include "core/memory.h"

#include <stdbool.h>

/* "folder/name", malloc'd and owned by the caller, or owned by the arena; NULL: out of
 * memory. */
char *mist_path_join(const char *folder, const char *name);
char *mist_path_join_in(struct mist_arena *arena, const char *folder, const char *name);

/* The path of name in the folder where the file path is; owned by the arena. NULL: out of
 * memory. */
char *mist_path_beside_in(struct mist_arena *arena, const char *path, const char *name);

/* What stands behind the last slash of a path; of one that ends with it the whole path. */
const char *mist_path_name(const char *path);

/* Whether a path ends with a suffix, such as ".json", that is not all of it. */
bool mist_path_ends(const char *path, const char *suffix);

/* The folder of temporary files: $TMPDIR, or /tmp. */
const char *mist_path_temporary(void);

#endif
