/* Knobs and counters of the stand-in for the CUDA runtime (cudart.c), for tests. */
#ifndef MIST_TESTS_EMULATION_CUDART_H
#define MIST_TESTS_EMULATION_CUDART_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mist_emulated_cuda {
    int n_devices;             /* 1 */
    int capability;            /* 90: 9.0 */
    int64_t memory_bytes;      /* of a device; 1 GiB */
    int64_t used_bytes;        /* by cudaMalloc() */
    int64_t hidden_bytes;      /* free, says cudaMemGetInfo(), but not to be had */
    int64_t locked_bytes;      /* by cudaHostRegister() */
    int64_t max_locked_bytes;  /* -1: no limit */
    const char *fails;         /* name of the call that is to fail; NULL: none */
    int fails_in;              /* the how-manieth of them from now on, from 1 */
    int fails_with;            /* a cudaError_t */
    bool loses_writes;         /* of cuStreamWriteValue32(): the stream hangs */
    long long n_calls;         /* of all functions; by __atomic built-ins */
    int n_launched_host_calls; /* cudaLaunchHostFunc */
    int n_launched_graphs;     /* cudaGraphLaunch */
};

extern struct mist_emulated_cuda mist_emulated_cuda;

/* As at the start of the program, but for the two that say what is used. */
void mist_emulated_cuda_reset(void);

/* A kernel was loaded before its first launch; and how many launches there were so far of
 * kernels that were not. */
void mist_emulation_load(const void *kernel);
int64_t mist_emulation_n_lazy_launches(void);

#ifdef __cplusplus
}
#endif

#endif
