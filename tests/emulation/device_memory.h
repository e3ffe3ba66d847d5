/*
 * Memory of the device for tests: that of the host under emulation, the GPU's with
 * -DMIST_TEST_ON_GPU.
 *
 * Fresh memory is all 0xFF bytes (NaN in both number formats, -1), and behind its last
 * byte lies a guard, which mist_test_device_guard_is_intact() looks at. Errors abort with
 * a message. With the address sanitizer there is no guard: it sees more than one would.
 */
#ifndef MIST_TESTS_EMULATION_DEVICE_MEMORY_H
#define MIST_TESTS_EMULATION_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef MIST_TEST_ON_GPU
#include <cuda_runtime_api.h>
#endif

#ifdef __SANITIZE_ADDRESS__
enum { MIST_TEST_GUARD_BYTES = 0 };
#else
enum { MIST_TEST_GUARD_BYTES = 256 };
#endif
enum { MIST_TEST_GUARD = 0xA5, MIST_TEST_ALIGNMENT = 256 };

#ifdef MIST_TEST_ON_GPU
static inline void mist_test_device_check(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
        abort();
    }
}
#endif

/* Waits for what was launched; errors of launches and kernels end the test. */
static inline void mist_test_device_synchronize(void)
{
#ifdef MIST_TEST_ON_GPU
    mist_test_device_check(cudaGetLastError(), "launch");
    mist_test_device_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
#endif
}

static inline void mist_test_device_upload(void *device, const void *host, size_t bytes)
{
#ifdef MIST_TEST_ON_GPU
    mist_test_device_synchronize();
    mist_test_device_check(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice),
                           "upload");
#else
    if (bytes > 0)
        memcpy(device, host, bytes);
#endif
}

static inline void mist_test_device_download(void *host, const void *device, size_t bytes)
{
#ifdef MIST_TEST_ON_GPU
    mist_test_device_synchronize();
    mist_test_device_check(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost),
                           "download");
#else
    if (bytes > 0)
        memcpy(host, device, bytes);
#endif
}

static inline void mist_test_device_fill(void *device, int byte, size_t bytes)
{
#ifdef MIST_TEST_ON_GPU
    mist_test_device_synchronize();
    mist_test_device_check(cudaMemset(device, byte, bytes), "fill");
#else
    memset(device, byte, bytes);
#endif
}

/* Aligned to 256 bytes; owned by the caller (mist_test_device_free). */
static inline void *mist_test_device_alloc(size_t bytes)
{
    size_t all_bytes = bytes + MIST_TEST_GUARD_BYTES;
    void *device = NULL;
#ifdef MIST_TEST_ON_GPU
    mist_test_device_check(cudaMalloc(&device, all_bytes), "cudaMalloc");
#else
    if (posix_memalign(&device, MIST_TEST_ALIGNMENT, all_bytes > 0 ? all_bytes : 1) !=
        0) {
        fprintf(stderr, "no memory\n");
        abort();
    }
#endif
    mist_test_device_fill(device, 0xFF, bytes);
    mist_test_device_fill((char *)device + bytes, MIST_TEST_GUARD, MIST_TEST_GUARD_BYTES);
    return device;
}

/* The same with what it begins with. */
static inline void *mist_test_device_copy(const void *host, size_t bytes)
{
    void *device = mist_test_device_alloc(bytes);
    mist_test_device_upload(device, host, bytes);
    return device;
}

static inline void mist_test_device_free(void *device)
{
#ifdef MIST_TEST_ON_GPU
    mist_test_device_synchronize();
    mist_test_device_check(cudaFree(device), "cudaFree");
#else
    free(device);
#endif
}

/* Whether nobody wrote behind the bytes that mist_test_device_alloc() was asked for. */
static inline bool mist_test_device_guard_is_intact(const void *device, size_t bytes)
{
    unsigned char guard[MIST_TEST_GUARD_BYTES + 1];

    mist_test_device_download(guard, (const char *)device + bytes, MIST_TEST_GUARD_BYTES);
    for (int i = 0; i < MIST_TEST_GUARD_BYTES; i++)
        if (guard[i] != MIST_TEST_GUARD)
            return false;
    return true;
}

#endif
