/*
 * GPUs that the CUDA backend refuses, and in which words: too old, or one that the
 * plugin has no kernels for. On the stand-in for CUDA's runtime.
 */
#include "core/status.h"

#include "tests/unit/test.h"

#if __has_include(<cuda_runtime_api.h>)

#include "tests/emulation/backend.h"
#include "tests/emulation/cudart.h"

#include <cuda_runtime_api.h>

static enum mist_status open_and_close(struct mist_err *err)
{
    struct mist_device_config config = {.arena_bytes = {4096, 0}};
    struct mist_device *device;
    enum mist_status status = mist_emulated_backend()->open_device(&config, &device, err);

    mist_device_close(device);
    return status;
}

static void refuse(const char *words, const char *words_too)
{
    struct mist_err err = {0};

    assert_int_equal(open_and_close(&err), MIST_ERR_RUN);
    print_message("# %s\n", err.message);
    if (!strstr(err.message, words) || !strstr(err.message, words_too))
        fail_msg("not \"%s\", \"%s\"", words, words_too);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    assert_int_equal(mist_emulated_cuda.used_bytes, 0);
}

TEST(test_capability)
{
    static const int taken[] = {80, 86, 89, 90, 100, 120};
    struct mist_err err;

    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        mist_emulated_cuda_reset();
        mist_emulated_cuda.capability = taken[i];
        if (open_and_close(&err) != MIST_OK)
            fail_msg("%d: %s", taken[i], err.message);
    }
    mist_emulated_cuda.capability = 75;
    refuse("emulated has compute capability 7.5", "8.0 or newer is needed");
}

static void fail_loading(int code, int in)
{
    mist_emulated_cuda_reset();
    mist_emulated_cuda.fails = "cudaFuncGetAttributes";
    mist_emulated_cuda.fails_in = in;
    mist_emulated_cuda.fails_with = code;
}

TEST(test_no_kernels)
{
    fail_loading(cudaErrorNoKernelImageForDevice, 3);
    refuse("has no kernels for this GPU", "CUDA_ARCHS");
    fail_loading(cudaErrorLaunchFailure, 1);
    refuse("loading kernels", "cudaErrorLaunchFailure");
}

TEST_MAIN(NULL, NULL)

#else

TEST_MAIN_SKIPPED("no CUDA headers here")
#endif
