/* See backend.h. */
#include "tests/emulation/backend.h"

#if __has_include(<cuda_runtime_api.h>)
#include "exec/cuda/context.h"
#include "tests/emulation/cudart.h"

#include <stdlib.h>

extern const struct mist_operators mist_operators_cuda;

static enum mist_status probe(struct mist_backend_info *out, struct mist_err *err)
{
    (void)err;
    *out = (struct mist_backend_info){.n_devices = 1,
                                      .device_name = "emulated",
                                      .memory_bytes = (int64_t)1 << 30,
                                      .n_processors = 1};
    return MIST_OK;
}

static const struct mist_backend backend = {
    .version = MIST_BACKEND_VERSION,
    .name = "cuda",
    .operators = &mist_operators_cuda,
    .probe = probe,
    .open_device = mist_cuda_device_open,
};

/* What times of an emulator say is nothing to remember, unless a test says where. */
const struct mist_backend *mist_emulated_backend(void)
{
    setenv("MIST_CUDA_ALGORITHMS", "", 0);
    return &backend;
}

int mist_emulated_n_replays(void)
{
    return mist_emulated_cuda.n_launched_graphs;
}
#else
const struct mist_backend *mist_emulated_backend(void)
{
    return NULL;
}

int mist_emulated_n_replays(void)
{
    return 0;
}
#endif
