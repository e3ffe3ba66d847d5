/* What kernels, copies and calls of CUDA's runtime are, by the names in profilers' traces. */
#ifndef MIST_SIM_RECORDED_TORCH_WORDS_H
#define MIST_SIM_RECORDED_TORCH_WORDS_H

#include "sim/recorded/recorded.h"

enum mist_torch_kind {
    MIST_TORCH_MATMUL,
    MIST_TORCH_ATTENTION,
    MIST_TORCH_SOFTMAX,
    MIST_TORCH_NORM,
    MIST_TORCH_OPTIMIZER,
    MIST_TORCH_EMBEDDING,
    MIST_TORCH_TRITON,
    MIST_TORCH_REDUCTION,
    MIST_TORCH_ELEMENTWISE,
    MIST_TORCH_COPY,
    MIST_TORCH_MEMSET,
    MIST_TORCH_OTHER,
    MIST_TORCH_HOST_TO_DEVICE,
    MIST_TORCH_DEVICE_TO_HOST,
    MIST_TORCH_ALL_REDUCE, /* from here on between ranks */
    MIST_TORCH_ALL_GATHER,
    MIST_TORCH_REDUCE_SCATTER,
    MIST_TORCH_BROADCAST,
    MIST_TORCH_REDUCE,
    MIST_TORCH_SEND_RECV,
    MIST_TORCH_LAUNCH, /* from here on the host's */
    MIST_TORCH_SYNCHRONIZE,
    MIST_TORCH_N_KINDS
};

/* As a job has them. */
extern const struct mist_recorded_kind mist_torch_kinds[MIST_TORCH_N_KINDS];

/* Of what ran on a device: a kernel, a copy or a memset. */
enum mist_torch_kind mist_torch_kind_of(const char *name);

static inline bool mist_torch_kind_is_between_ranks(int32_t kind)
{
    return kind >= MIST_TORCH_ALL_REDUCE && kind < MIST_TORCH_LAUNCH;
}

enum mist_torch_call_kind {
    MIST_TORCH_CALL_NONE,   /* none of those below */
    MIST_TORCH_CALL_LAUNCH, /* of kernels or graphs, a memset */
    MIST_TORCH_CALL_COPY,   /* may wait until it is done */
    MIST_TORCH_CALL_RECORD, /* of an event */
    MIST_TORCH_CALL_WAIT,   /* of a stream for an event */
    MIST_TORCH_CALL_SYNC    /* of the host for an event, a stream or the device */
};

enum mist_torch_call_kind mist_torch_call_kind_of(const char *name);

#endif
