/*
 * The CUDA backend's device, as its other files see it: operators, collectives and the
 * recorder work on the streams of this struct. Implemented in device.c.
 *
 * A struct mist_device * that this backend opened is a struct mist_cuda_device *. One
 * thread uses it, the dispatcher; mist_device_fail() may come from any thread.
 */
#ifndef MIST_EXEC_CUDA_CONTEXT_H
#define MIST_EXEC_CUDA_CONTEXT_H

#include "exec/device/device.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

/* Of a stream that multiplies matrices: what NVIDIA recommends from sm_90 on. */
#define MIST_CUDA_WORKSPACE_BYTES ((int64_t)32 << 20)

/* How many tasks of a stream the host may be ahead of it. A task is up to some 45
 * launches and a stream takes about 1,024 before launching blocks; so the host never gets
 * there, hears of errors within a few layers, and still has milliseconds of work in
 * store. */
enum { MIST_CUDA_RUN_AHEAD = 2 * MIST_DEVICE_ALWAYS_TAKES };

struct mist_cuda_recorder;   /* exec/cuda/recorder.h */
struct mist_cuda_host_calls; /* exec/cuda/worker.h */
struct mist_cuda_worker;     /* exec/cuda/worker.h */

struct mist_cuda_device {
    struct mist_device base; /* first */
    int32_t i_device;        /* of this machine */
    char name[256];          /* "NVIDIA H200" */
    int32_t n_processors;    /* streaming multiprocessors */
    /* None waits for the default stream. That of the host has only functions that hand
     * work over to the worker. */
    cudaStream_t streams[MIST_N_STREAMS];
    /* Where the body of the running task launches; outside of bodies the
     * compute stream. */
    enum mist_stream current;
    /* [MIST_CUDA_WORKSPACE_BYTES] of device memory for the library calls of a stream,
     * aligned to 256; NULL for all but the compute stream. */
    void *workspaces[MIST_N_STREAMS];
    struct mist_cuda_recorder *recorder; /* NULL: the device does not record */
    bool is_capturing;                   /* what streams get is kept, and does not run */

    /* private to device.c */
    cudaEvent_t *events; /* [event_capacity], of which [n_created] exist */
    /* [event_capacity] 0: not in this iteration; else 1 + the jobs of the host stream,
     * ever, that it stands behind */
    int64_t *recorded;
    int32_t n_events, n_created, event_capacity;
    struct mist_cuda_host_calls *calls;
    cudaEvent_t milestones[MIST_N_STREAMS][2];
    int64_t n_submitted[MIST_N_STREAMS]; /* tasks, ever */
    struct mist_cuda_worker *worker;     /* of the host stream */
    int64_t n_jobs;                      /* handed over to it, ever */

    /* private to graph.c */
    cudaGraphExec_t graph;                      /* what was captured; NULL: nothing */
    cudaEvent_t capture_events[MIST_N_STREAMS]; /* NULL before the first capture */
};

static inline struct mist_cuda_device *mist_cuda_device_of(struct mist_device *device)
{
    return (struct mist_cuda_device *)(void *)device;
}

/* The stream that the running task's work goes into. */
static inline cudaStream_t mist_cuda_current_stream(const struct mist_cuda_device *device)
{
    return device->streams[device->current];
}

/*
 * MIST_OK for cudaSuccess; else err (NULL allowed) says what, such as "cudaMemcpyAsync",
 * and CUDA's own words. MIST_ERR_MEMORY when device memory ran out, else MIST_ERR_RUN.
 */
MIST_MUST_CHECK enum mist_status mist_cuda_status(cudaError_t code, const char *what,
                                                  struct mist_err *err);

/* The same for bodies of tasks: what is not cudaSuccess fails the device. True for
 * cudaSuccess. After kernels: mist_cuda_check(device, cudaGetLastError(), "gelu"). */
bool mist_cuda_check(struct mist_cuda_device *device, cudaError_t code, const char *what);

/* Opens the device: see struct mist_backend. MIST_OK, MIST_ERR_RANGE, MIST_ERR_MEMORY
 * (what is missing, on the device or on the host) or MIST_ERR_RUN. */
MIST_MUST_CHECK enum mist_status
mist_cuda_device_open(const struct mist_device_config *config, struct mist_device **out,
                      struct mist_err *err);

/* The first half of that, in device_start.c: from the device's number and sizes, the
 * recorder if it records, CUDA itself, both arenas, results and workspaces; of these only
 * those of the host are zeroed. What was made before a failure stays in device for the
 * caller to free. */
MIST_MUST_CHECK enum mist_status mist_cuda_device_start(struct mist_cuda_device *device,
                                                        bool records,
                                                        struct mist_err *err);

/* host_memory.c: bytes (> 0) of zeros, aligned to 4096 at least. *out is owned by the
 * caller (mist_cuda_host_free); NULL after a failure. MIST_ERR_MEMORY: there is not that
 * much, or it can't be locked; MIST_ERR_RUN: CUDA failed otherwise. */
MIST_MUST_CHECK enum mist_status mist_cuda_host_alloc(int64_t bytes, void **out,
                                                      struct mist_err *err);
void mist_cuda_host_free(void *memory); /* NULL allowed */

/* graph.c: what the streams get, kept and launched at once (mist_device_begin_capture);
 * close frees what the others left. */
void mist_cuda_graph_begin(struct mist_device *base);
void mist_cuda_graph_end(struct mist_device *base);
void mist_cuda_graph_replay(struct mist_device *base);
void mist_cuda_graph_drop(struct mist_device *base);
void mist_cuda_graph_close(struct mist_device *base);

/*
 * Whether the kernels can run on a GPU, and their loading before the first step: loading.c
 *
 * CUDA loads a kernel when it is launched for the first time. That would be in the first
 * step, where loading waits for the device, and the device may be waiting for another
 * rank that waits for this one. So every kernel that a launch names (mist_cuda_kernels)
 * is asked for its attributes, which loads it. CUDA_MODULE_LOADING=EAGER would load the
 * thousands of cuBLASLt and cuDNN, too: seconds, and hundreds of MiB of device memory.
 *
 * check  compute capability 8.0 is the least: bf16, and 99 KiB of shared memory a block.
 *        MIST_ERR_RUN names the GPU.
 * load   on the current device. MIST_ERR_RUN: the plugin was not built for it, or CUDA's
 *        error; MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status
mist_cuda_check_capability(const char *name, int major, int minor, struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_cuda_load_kernels(struct mist_err *err);

#endif
