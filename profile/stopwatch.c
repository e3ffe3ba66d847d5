/* From when to when work ran. See stopwatch.h. */
#include "profile/stopwatch.h"

#include "core/clock.h"
#include "core/memory.h"

#include <stdlib.h>

void mist_stopwatch_init(struct mist_stopwatch *watch, struct mist_device *device)
{
    *watch = (struct mist_stopwatch){.device = device};
}

void mist_stopwatch_fini(struct mist_stopwatch *watch)
{
    free(watch->spans);
    free(watch->works);
    *watch = (struct mist_stopwatch){0};
}

enum mist_status mist_stopwatch_reset(struct mist_stopwatch *watch, int64_t n,
                                      struct mist_err *err)
{
    if (n > watch->capacity) {
        free(watch->spans);
        watch->spans = malloc((size_t)n * sizeof *watch->spans);
        watch->capacity = watch->spans ? n : 0;
        watch->n = 0;
        if (!watch->spans)
            return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %lld timings",
                                (long long)n);
    }
    watch->n = n;
    watch->n_works = 0;
    watch->loss = MIST_SPANS_WHOLE;
    for (int64_t i = 0; i < n; i++)
        watch->spans[i] = (struct mist_span){0};
    return MIST_OK;
}

static void look_at_clock(void *arg)
{
    double *time_s = arg;

    *time_s = mist_clock_now_s();
}

static bool is_recorded(const struct mist_stopwatch *watch, const struct mist_span *span)
{
    return span->work == MIST_WORK_OF_DEVICE && mist_device_records(watch->device);
}

void mist_stopwatch_begin(struct mist_stopwatch *watch, int64_t id,
                          enum mist_stopwatch_work work)
{
    struct mist_span *span = &watch->spans[id];

    span->work = work;
    if (is_recorded(watch, span))
        mist_device_begin_span(watch->device, id);
    else
        mist_device_call_host(watch->device, look_at_clock, &span->start_s);
}

void mist_stopwatch_end(struct mist_stopwatch *watch, int64_t id)
{
    struct mist_span *span = &watch->spans[id];

    if (is_recorded(watch, span))
        mist_device_end_span(watch->device);
    else
        mist_device_call_host(watch->device, look_at_clock, &span->end_s);
}

/* From the start of a span's first work to the end of its last. */
static void keep(void *context, const struct mist_span_work *work)
{
    struct mist_stopwatch *watch = context;
    struct mist_span *span = &watch->spans[work->id];

    if (span->end_s <= 0 || work->start_s < span->start_s)
        span->start_s = work->start_s;
    if (work->end_s > span->end_s)
        span->end_s = work->end_s;
    if (!watch->keeps_works)
        return;
    if (!MIST_RESERVE(watch->works, watch->works_capacity, watch->n_works + 1)) {
        watch->loss = MIST_SPANS_TOO_MANY;
        return;
    }
    watch->works[watch->n_works++] = *work;
}

enum mist_status mist_stopwatch_collect(struct mist_stopwatch *watch,
                                        struct mist_err *err)
{
    enum mist_span_loss loss = MIST_SPANS_WHOLE;

    if (!mist_device_records(watch->device))
        return MIST_OK;
    enum mist_status status =
        mist_device_collect_spans(watch->device, keep, watch, &loss, err);
    if (loss != MIST_SPANS_WHOLE)
        watch->loss = loss;
    return status;
}

double mist_stopwatch_time_s(const struct mist_stopwatch *watch, int64_t id)
{
    const struct mist_span *span = &watch->spans[id];

    return span->end_s > 0 ? span->end_s - span->start_s : 0;
}

double mist_stopwatch_time_since_s(const struct mist_stopwatch *watch, int64_t first,
                                   int64_t id)
{
    const struct mist_span *span = &watch->spans[id];
    int64_t before = id - 1;

    while (before >= first && watch->spans[before].end_s <= 0)
        before--;
    if (!mist_device_records(watch->device) || span->end_s <= 0 || before < first)
        return mist_stopwatch_time_s(watch, id);
    return span->end_s - watch->spans[before].end_s;
}
