/* Measured tables and traces of real clusters, to compare with: in the folder
 * $MIST_REFERENCE, or ../shared/reference. They are no part of the project: without them
 * both functions say so, and the test is skipped. */
#ifndef MIST_TESTS_UNIT_REFERENCE_PATH_H
#define MIST_TESTS_UNIT_REFERENCE_PATH_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h> /* access */

#define REFERENCE_PATH_BYTES 1024

/* The path of a file or folder; false: it is not there. */
static inline bool find_reference(const char *name, char path[REFERENCE_PATH_BYTES])
{
    const char *root = getenv("MIST_REFERENCE");

    snprintf(path, REFERENCE_PATH_BYTES, "%s/%s", root ? root : "../shared/reference",
             name);
    if (access(path, R_OK) == 0)
        return true;
    printf("# %s is not there (MIST_REFERENCE): skipped\n", path);
    return false;
}

/* The same, open to be read; NULL: it is not there. */
static inline FILE *open_reference(const char *name)
{
    char path[REFERENCE_PATH_BYTES];

    return find_reference(name, path) ? fopen(path, "r") : NULL;
}

#endif
