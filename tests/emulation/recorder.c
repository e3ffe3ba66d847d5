/*
 * A stand-in for the recorder of exec/cuda, which needs CUPTI: a span is from its begin
 * to its end on the host, which is when the emulator runs its work. See streams.h for
 * when it does not.
 */
#include "exec/cuda/recorder.h"

#include "core/clock.h"
#include "core/memory.h"

#include <stdlib.h>

struct mist_cuda_recorder {
    struct mist_cuda_span *spans;
    size_t n, capacity;
    bool has_no_memory;
};

static bool is_open;

enum mist_status mist_cuda_recorder_open(struct mist_cuda_recorder **out,
                                         struct mist_err *err)
{
    if (is_open)
        return mist_err_set(err, MIST_ERR_RUN, "a recorder is open");
    *out = calloc(1, sizeof **out);
    if (!*out)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    is_open = true;
    return MIST_OK;
}

void mist_cuda_recorder_close(struct mist_cuda_recorder *recorder)
{
    if (!recorder)
        return;
    free(recorder->spans);
    free(recorder);
    is_open = false;
}

int64_t mist_cuda_recorder_device_bytes(const struct mist_cuda_recorder *recorder)
{
    (void)recorder;
    return 0;
}

void mist_cuda_recorder_begin(struct mist_cuda_recorder *recorder, int64_t id)
{
    struct mist_cuda_span *spans =
        mist_grow(recorder->spans, &recorder->capacity, recorder->n + 1, sizeof *spans);

    if (!spans) {
        recorder->has_no_memory = true;
        return;
    }
    recorder->spans = spans;
    spans[recorder->n++] =
        (struct mist_cuda_span){.id = id, .start_s = mist_clock_now_s(), .n_kernels = 1};
}

void mist_cuda_recorder_end(struct mist_cuda_recorder *recorder)
{
    if (recorder->n > 0)
        recorder->spans[recorder->n - 1].end_s = mist_clock_now_s();
}

static int compare_ids(const void *a, const void *b)
{
    int64_t id_a = ((const struct mist_cuda_span *)a)->id;
    int64_t id_b = ((const struct mist_cuda_span *)b)->id;

    return (id_a > id_b) - (id_a < id_b);
}

enum mist_status mist_cuda_recorder_collect(struct mist_cuda_recorder *recorder,
                                            mist_span_fn *fn, void *context,
                                            struct mist_err *err)
{
    if (recorder->has_no_memory)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for spans");
    if (recorder->n > 0)
        qsort(recorder->spans, recorder->n, sizeof *recorder->spans, compare_ids);
    for (size_t i = 0; i < recorder->n; i++)
        fn(context, recorder->spans[i].id, recorder->spans[i].start_s,
           recorder->spans[i].end_s);
    recorder->n = 0;
    return MIST_OK;
}
