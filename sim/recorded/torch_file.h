/*
 * What a trace of torch.profiler, of one rank, says of its device and of the calls to it.
 * Of millions of events a few dozen bytes each are kept.
 */
#ifndef MIST_SIM_RECORDED_TORCH_FILE_H
#define MIST_SIM_RECORDED_TORCH_FILE_H

#include "core/progress.h"
#include "sim/recorded/torch_words.h"
#include "traces/torch_events.h"

/* A call of CUDA's runtime on the host. */
struct mist_torch_call {
    double start_us, end_us;
    int64_t thread, correlation;
    enum mist_torch_call_kind kind;
};

/* A kernel, a copy or a memset on the device. */
struct mist_torch_work {
    double start_us, end_us;
    int64_t stream, correlation;
    int32_t kind;  /* enum mist_torch_kind */
    int32_t group; /* of ranks that pass a message, as texts has it; -1: not said */
};

/* What enable_cuda_sync_events adds to a call that waits; -1: not said, or none. */
struct mist_torch_sync {
    int64_t correlation;        /* of the call */
    int64_t stream;             /* that waits, or is waited for by the host */
    int64_t source;             /* stream whose event is waited for */
    int64_t record_correlation; /* of the call that recorded the event */
};

/* From when to when NCCL's calls were PyTorch's wrapper's: waits in there are its own. */
struct mist_torch_span {
    int64_t thread;
    double start_us, end_us;
};

struct mist_torch_texts { /* different ones; zero to begin with */
    char **items;         /* owned */
    size_t n, capacity;
};

/* Arrays are owned and in no order. */
struct mist_torch_trace {
    struct mist_torch_header header;
    struct mist_torch_call *calls;
    struct mist_torch_work *works;
    struct mist_torch_sync *syncs;
    struct mist_torch_span *spans;
    size_t n_calls, n_works, n_syncs, n_spans;
    size_t calls_capacity, works_capacity, syncs_capacity, spans_capacity;
};

/*
 * Reads the file. Groups are entered into texts, which traces share. progress may be NULL.
 * MIST_ERR_INPUT with file:line (no such trace, cut, nothing that ran on a device),
 * MIST_ERR_IO, MIST_ERR_MEMORY; free both also after a failure.
 */
enum mist_status mist_torch_trace_load(const char *path, struct mist_torch_trace *trace,
                                       struct mist_torch_texts *texts,
                                       struct mist_progress *progress,
                                       struct mist_err *err) MIST_MUST_CHECK;

void mist_torch_trace_free(struct mist_torch_trace *trace); /* a zeroed one is fine */
void mist_torch_texts_free(struct mist_torch_texts *texts);

#endif
