/*
 * Named ranges for a profiler that looks on, such as Nsight Systems, by NVTX: headers
 * alone, nothing to link. Without a profiler a range is a call through a pointer that is
 * NULL; without the headers it is nothing.
 */
#ifndef MIST_EXEC_CUDA_RANGES_H
#define MIST_EXEC_CUDA_RANGES_H

#include <stdint.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

/* name: static text; value is shown beside it. Ranges of a thread nest. */
static inline void mist_cuda_range_begin(const char *name, int64_t value)
{
    nvtxEventAttributes_t event = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .payloadType = NVTX_PAYLOAD_TYPE_INT64,
                                   .messageType = NVTX_MESSAGE_TYPE_ASCII};

    event.payload.llValue = value;
    event.message.ascii = name;
    (void)nvtxRangePushEx(&event);
}

static inline void mist_cuda_range_end(void)
{
    (void)nvtxRangePop();
}
#else
static inline void mist_cuda_range_begin(const char *name, int64_t value)
{
    (void)name;
    (void)value;
}

static inline void mist_cuda_range_end(void)
{
}
#endif

#endif
