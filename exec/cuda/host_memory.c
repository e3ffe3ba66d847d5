/*
 * Locked memory of the host: allocated, touched by several threads at once, and only then
 * registered.
 *
 * cudaHostAlloc() has one thread of the kernel find and clear every page; touching the
 * pages beforehand, in parallel and in huge pages where the system gives them, takes
 * about half the time for arenas of many GiB.
 *
 * Left out: NUMA policies beyond first touch.
 */
#define _DEFAULT_SOURCE /* madvise */
#include "exec/cuda/context.h"

#include "core/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_THREADS = 16 };

static const int64_t huge_page_bytes = (int64_t)2 << 20;
static const int64_t part_bytes = (int64_t)64 << 20; /* at least, of a thread */

struct part {
    char *first;
    int64_t bytes;
};

static void *clear_part(void *arg)
{
    struct part *part = arg;

    memset(part->first, 0, (size_t)part->bytes);
    return NULL;
}

static int count_threads(int64_t bytes)
{
    int64_t n = bytes / part_bytes;
    long n_processors = sysconf(_SC_NPROCESSORS_ONLN);

    n = n > MAX_THREADS ? MAX_THREADS : n;
    n = n > n_processors ? n_processors : n;
    return n > 1 ? (int)n : 1;
}

static void clear_in_parallel(char *memory, int64_t bytes)
{
    int n = count_threads(bytes);
    int64_t step = mist_align_up((bytes + n - 1) / n, huge_page_bytes);
    struct part parts[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    bool has_thread[MAX_THREADS] = {false};

    for (int i = 0; i < n; i++) {
        int64_t left = bytes - i * step;
        left = left < 0 ? 0 : left;
        parts[i] = (struct part){memory + (bytes - left), left < step ? left : step};
        if (i > 0)
            has_thread[i] = pthread_create(&threads[i], NULL, clear_part, &parts[i]) == 0;
    }
    for (int i = 0; i < n; i++)
        if (!has_thread[i])
            clear_part(&parts[i]);
    for (int i = 1; i < n; i++)
        if (has_thread[i])
            pthread_join(threads[i], NULL);
}

enum mist_status mist_cuda_host_alloc(int64_t bytes, void **out, struct mist_err *err)
{
    void *memory;

    *out = NULL;
    if (bytes <= 0 || bytes > INT64_MAX - huge_page_bytes)
        return mist_err_set(err, MIST_ERR_RANGE, "%lld bytes of locked memory",
                            (long long)bytes);
    if (posix_memalign(&memory, (size_t)huge_page_bytes, (size_t)bytes) != 0)
        return mist_err_set(err, MIST_ERR_MEMORY,
                            "out of memory for %.2f GiB of the host's memory",
                            (double)bytes / 0x1p30);
    (void)madvise(memory, (size_t)bytes, MADV_HUGEPAGE); /* a wish */
    clear_in_parallel(memory, bytes);
    cudaError_t code = cudaHostRegister(memory, (size_t)bytes, cudaHostRegisterPortable);
    if (code != cudaSuccess) {
        struct mist_err cause;
        enum mist_status status = mist_cuda_status(code, "cudaHostRegister", &cause);
        (void)cudaGetLastError(); /* the next launch is not to blame */
        free(memory);
        return mist_err_set(err, status,
                            "%.2f GiB of the host's memory can't be locked for the GPU "
                            "(limits: free memory, ulimit -l, the container's): %.300s",
                            (double)bytes / 0x1p30, cause.message);
    }
    *out = memory;
    return MIST_OK;
}

void mist_cuda_host_free(void *memory)
{
    if (!memory)
        return;
    (void)cudaHostUnregister(memory);
    free(memory);
}
