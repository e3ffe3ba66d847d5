/* The CUDA backend's host code and kernels on the emulator, as a backend for tests. */
#ifndef MIST_TESTS_EMULATION_BACKEND_H
#define MIST_TESTS_EMULATION_BACKEND_H

#include "exec/runtime/backend.h"

/* NULL where CUDA's headers were not there when the tests were built. */
const struct mist_backend *mist_emulated_backend(void);

/* Graphs that were launched so far; -1: a GPU's, which nobody counts. */
int mist_emulated_n_replays(void);

#endif
