/* The clock of mist_cuda_gemm_tune(): events of CUDA around a few launches. */
#include "exec/cuda/gemm.h"

#include <cuda_runtime_api.h>

enum { N_LAUNCHES = 8 };

double mist_cuda_gemm_clock_events(void *context, mist_cuda_stream stream,
                                   void (*launch)(void *arg), void *arg)
{
    cudaEvent_t start = NULL, end = NULL;
    float time_ms = -1;

    (void)context;
    if (cudaEventCreate(&start) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess) {
        launch(arg);
        if (cudaEventRecord(start, stream) == cudaSuccess) {
            for (int i = 0; i < N_LAUNCHES; i++)
                launch(arg);
            if (cudaEventRecord(end, stream) != cudaSuccess ||
                cudaEventSynchronize(end) != cudaSuccess ||
                cudaEventElapsedTime(&time_ms, start, end) != cudaSuccess)
                time_ms = -1;
        }
    }
    if (start)
        cudaEventDestroy(start);
    if (end)
        cudaEventDestroy(end);
    return time_ms < 0 ? -1 : (double)time_ms * 1e-3 / N_LAUNCHES;
}
