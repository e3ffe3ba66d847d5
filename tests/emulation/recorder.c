/*
 * A stand-in for the recorder of exec/cuda, which needs CUPTI: a span is one kernel, from
 * its begin to its end on the host, which is when the emulator runs its work. See
 * streams.h for when it does not.
 */
#include "tests/emulation/recorder.h"

#include "core/clock.h"
#include "core/memory.h"
#include "exec/cuda/recorder.h"

#include <stdlib.h>

struct mist_cuda_recorder {
    struct mist_span_work *works;
    size_t n, capacity;
    bool is_started, has_failed;
};

static bool is_open;
static enum mist_span_loss next_loss;
static int n_losses;
struct mist_emulated_recorded mist_emulated_recorded;

void mist_emulated_recorder_lose(enum mist_span_loss loss, int n)
{
    next_loss = loss;
    n_losses = n;
}

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
    free(recorder->works);
    free(recorder);
    is_open = false;
}

int64_t mist_cuda_recorder_device_bytes(const struct mist_cuda_recorder *recorder)
{
    (void)recorder;
    return 0;
}

enum mist_status mist_cuda_recorder_start(struct mist_cuda_recorder *recorder,
                                          struct mist_err *err)
{
    (void)err;
    recorder->is_started = true;
    recorder->n = 0;
    return MIST_OK;
}

void mist_cuda_recorder_begin(struct mist_cuda_recorder *recorder, int64_t id)
{
    bool has_room = MIST_RESERVE(recorder->works, recorder->capacity, recorder->n + 1);

    recorder->has_failed |= !has_room || !recorder->is_started;
    if (!has_room)
        return;
    mist_emulated_recorded.n_begins++;
    recorder->works[recorder->n++] = (struct mist_span_work){
        .id = id, .name = "emulated kernel", .start_s = mist_clock_now_s()};
}

void mist_cuda_recorder_end(struct mist_cuda_recorder *recorder)
{
    if (recorder->n > 0)
        recorder->works[recorder->n - 1].end_s = mist_clock_now_s();
}

static int compare_works(const void *a, const void *b)
{
    const struct mist_span_work *x = a, *y = b;

    return x->id != y->id ? (x->id > y->id) - (x->id < y->id)
                          : (x->start_s > y->start_s) - (x->start_s < y->start_s);
}

enum mist_status mist_cuda_recorder_collect(struct mist_cuda_recorder *recorder,
                                            mist_span_fn *fn, void *context,
                                            enum mist_span_loss *loss,
                                            struct mist_err *err)
{
    if (recorder->has_failed)
        return mist_err_set(err, MIST_ERR_RUN,
                            "a span without a start, or out of memory for spans");
    *loss = n_losses > 0 ? next_loss : MIST_SPANS_WHOLE;
    n_losses -= n_losses > 0;
    if (recorder->n > 0)
        qsort(recorder->works, recorder->n, sizeof *recorder->works, compare_works);
    for (size_t i = 0; i < recorder->n && *loss == MIST_SPANS_WHOLE; i++) {
        const struct mist_span_work *work = &recorder->works[i];
        mist_emulated_recorded.n_works++;
        mist_emulated_recorded.busy_s += work->end_s - work->start_s;
        fn(context, work);
    }
    recorder->n = 0;
    return MIST_OK;
}
