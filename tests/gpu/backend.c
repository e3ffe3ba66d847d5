/*
 * In the place of tests/emulation/backend.c, for tests that run on a GPU: the backend of
 * the plugin, found as the tools find it.
 */
#include "tests/emulation/backend.h"

#include <stdio.h>
#include <stdlib.h>

const struct mist_backend *mist_emulated_backend(void)
{
    static const struct mist_backend *found;
    struct mist_backend_info info;
    struct mist_err err;

    if (!found &&
        mist_backend_find(MIST_BACKEND_CUDA, &found, &info, NULL, 0, &err) != MIST_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return found;
}

int mist_emulated_n_replays(void)
{
    return -1;
}
