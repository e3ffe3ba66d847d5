/* The recorder's join and clock: no CUPTI, no CUDA. See recorder.h. */
#include "exec/cuda/recorder.h"

#include "core/memory.h"

#include <math.h>
#include <stdlib.h>

/* --------------------------------------------------------------------- table of calls */

/* The call's slot, or the free one where it would go; NULL only without slots. */
static struct mist_cuda_call *find_slot(const struct mist_cuda_calls *calls,
                                        uint32_t correlation_id)
{
    size_t mask = calls->n_slots - 1;

    if (calls->n_slots == 0)
        return NULL;
    size_t i = (size_t)((correlation_id * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & mask;
    while (calls->slots[i].is_used && calls->slots[i].correlation_id != correlation_id)
        i = (i + 1) & mask;
    return &calls->slots[i];
}

static struct mist_cuda_call *find_call(const struct mist_cuda_calls *calls,
                                        uint32_t correlation_id)
{
    struct mist_cuda_call *slot = find_slot(calls, correlation_id);

    return slot && slot->is_used ? slot : NULL;
}

static enum mist_status grow_calls(struct mist_cuda_calls *calls, struct mist_err *err)
{
    struct mist_cuda_calls grown = {.n_used = calls->n_used,
                                    .n_slots = calls->n_slots ? 2 * calls->n_slots : 64};

    grown.slots = calloc(grown.n_slots, sizeof *grown.slots);
    if (!grown.slots)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < calls->n_slots; i++)
        if (calls->slots[i].is_used)
            *find_slot(&grown, calls->slots[i].correlation_id) = calls->slots[i];
    free(calls->slots);
    *calls = grown;
    return MIST_OK;
}

/* The call, a new one if there was none. */
static enum mist_status get_call(struct mist_cuda_calls *calls, uint32_t correlation_id,
                                 struct mist_cuda_call **out, struct mist_err *err)
{
    *out = find_call(calls, correlation_id);
    if (*out)
        return MIST_OK;
    if (2 * (calls->n_used + 1) > calls->n_slots) {
        enum mist_status status = grow_calls(calls, err);
        if (status != MIST_OK)
            return status;
    }
    *out = find_slot(calls, correlation_id);
    **out = (struct mist_cuda_call){.correlation_id = correlation_id, .is_used = true};
    calls->n_used++;
    return MIST_OK;
}

/* Keeps the memory for the next period. */
static void empty_calls(struct mist_cuda_calls *calls)
{
    for (size_t i = 0; i < calls->n_slots; i++)
        calls->slots[i].is_used = false;
    calls->n_used = 0;
}

/* -------------------------------------------------------------------------------- add */

void mist_cuda_matcher_init(struct mist_cuda_matcher *matcher)
{
    *matcher = (struct mist_cuda_matcher){0};
}

void mist_cuda_matcher_fini(struct mist_cuda_matcher *matcher)
{
    free(matcher->now.slots);
    free(matcher->before.slots);
    free(matcher->intervals);
    mist_cuda_matcher_init(matcher);
}

/*
 * The call of the period before that this record completes, if there is one: the record
 * is then too late. An id that comes again for a call whose work has not is not.
 */
static struct mist_cuda_call *find_late(const struct mist_cuda_matcher *matcher,
                                        const struct mist_cuda_record *record)
{
    struct mist_cuda_call *call = find_call(&matcher->before, record->correlation_id);

    if (!call)
        return NULL;
    if (record->kind == MIST_CUDA_RECORD_WORK)
        return call->has_id ? call : NULL;
    return call->has_id || call->n_kernels + call->n_untimed > 0 ? call : NULL;
}

static void add_late(struct mist_cuda_matcher *matcher, struct mist_cuda_call *call,
                     const struct mist_cuda_record *record)
{
    if (record->kind == MIST_CUDA_RECORD_WORK)
        matcher->losses.n_late++;
    else if (!call->has_id)
        matcher->losses.n_late += call->n_kernels + call->n_untimed;
    call->has_id = true; /* and work that is still to come is late, too */
}

static void add_work(struct mist_cuda_call *call, const struct mist_cuda_record *record)
{
    if (record->start_ns == 0 || record->end_ns < record->start_ns) {
        call->n_untimed++;
        return;
    }
    if (call->n_kernels == 0 || record->start_ns < call->start_ns)
        call->start_ns = record->start_ns;
    if (call->n_kernels == 0 || record->end_ns > call->end_ns)
        call->end_ns = record->end_ns;
    call->busy_ns += record->end_ns - record->start_ns;
    call->n_kernels++;
}

static enum mist_status add_record(struct mist_cuda_matcher *matcher,
                                   const struct mist_cuda_record *record,
                                   struct mist_err *err)
{
    struct mist_cuda_call *call = NULL;

    if (record->kind == MIST_CUDA_RECORD_API)
        return MIST_OK;
    struct mist_cuda_call *late = find_late(matcher, record);
    if (late) {
        add_late(matcher, late, record);
        return MIST_OK;
    }
    enum mist_status status = get_call(&matcher->now, record->correlation_id, &call, err);
    if (status != MIST_OK)
        return status;
    if (record->kind == MIST_CUDA_RECORD_WORK) {
        add_work(call, record);
    } else if (!call->has_id || record->external_id > call->external_id) {
        call->external_id = record->external_id;
        call->has_id = true;
    }
    return MIST_OK;
}

enum mist_status mist_cuda_matcher_add(struct mist_cuda_matcher *matcher,
                                       const struct mist_cuda_record *records, size_t n,
                                       struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (size_t i = 0; i < n; i++) {
        enum mist_status added = add_record(matcher, &records[i], err);
        if (added != MIST_OK)
            status = added;
    }
    return status;
}

/* ------------------------------------------------------------------------------- take */

/* Work of a call whose id has come for the period before: as late as if it had come
 * after that id. */
static void count_late(struct mist_cuda_matcher *matcher,
                       const struct mist_cuda_call *call)
{
    const struct mist_cuda_call *before =
        find_call(&matcher->before, call->correlation_id);

    if (before && before->has_id)
        matcher->losses.n_late += call->n_kernels + call->n_untimed;
}

static int compare_ids(const void *a, const void *b)
{
    const struct mist_cuda_interval *x = a, *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

/* Joins neighbours of one id in place; returns how many are left. */
static size_t merge_intervals(struct mist_cuda_interval *intervals, size_t n)
{
    size_t n_merged = 0;

    for (size_t i = 0; i < n; i++) {
        struct mist_cuda_interval *last = &intervals[n_merged - (n_merged > 0)];
        if (n_merged == 0 || last->id != intervals[i].id) {
            intervals[n_merged++] = intervals[i];
            continue;
        }
        if (intervals[i].start_ns < last->start_ns)
            last->start_ns = intervals[i].start_ns;
        if (intervals[i].end_ns > last->end_ns)
            last->end_ns = intervals[i].end_ns;
        last->busy_ns += intervals[i].busy_ns;
        last->n_kernels += intervals[i].n_kernels;
    }
    return n_merged;
}

enum mist_status mist_cuda_matcher_take(struct mist_cuda_matcher *matcher,
                                        const struct mist_cuda_interval **intervals,
                                        size_t *n, struct mist_err *err)
{
    const struct mist_cuda_calls *calls = &matcher->now;
    size_t n_found = 0;
    void *grown = mist_grow(matcher->intervals, &matcher->capacity, calls->n_used + 1,
                            sizeof *matcher->intervals);

    if (!grown)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    matcher->intervals = grown;
    for (size_t i = 0; i < calls->n_slots; i++) {
        const struct mist_cuda_call *call = &calls->slots[i];
        if (!call->is_used)
            continue;
        if (!call->has_id) {
            count_late(matcher, call);
            continue;
        }
        matcher->losses.n_untimed += call->n_untimed;
        if (call->n_kernels > 0)
            matcher->intervals[n_found++] =
                (struct mist_cuda_interval){call->external_id, call->start_ns,
                                            call->end_ns, call->busy_ns, call->n_kernels};
    }
    qsort(matcher->intervals, n_found, sizeof *matcher->intervals, compare_ids);
    *n = merge_intervals(matcher->intervals, n_found);
    *intervals = matcher->intervals;

    struct mist_cuda_calls emptied = matcher->before;
    empty_calls(&emptied);
    matcher->before = matcher->now;
    matcher->now = emptied;
    return MIST_OK;
}

/* ------------------------------------------------------------------------------ clock */

/* b - a in seconds; exact to the double of the difference, where a double of the time
 * itself would be good to 256 ns only. */
static double seconds_between(uint64_t a_ns, uint64_t b_ns)
{
    return 1e-9 * (double)(int64_t)(b_ns - a_ns);
}

enum mist_status mist_cuda_clock_through(const struct mist_cuda_clock_pair *a,
                                         const struct mist_cuda_clock_pair *b,
                                         struct mist_cuda_clock *out,
                                         struct mist_err *err)
{
    double cupti_s = seconds_between(a->cupti_ns, b->cupti_ns);
    double clock_s = b->clock_s - a->clock_s;

    if (!(fabs(cupti_s - clock_s) <= 1e-3 + 1e-3 * fabs(clock_s)))
        return mist_err_set(err, MIST_ERR_RUN,
                            "the time of day went %.6f s while the steady clock went "
                            "%.6f s: it was set during the recording, whose times are "
                            "lost; record again",
                            cupti_s, clock_s);
    *out = clock_s < 0.01 ? (struct mist_cuda_clock){*b, 1e-9}
                          : (struct mist_cuda_clock){*a, 1e-9 * clock_s / cupti_s};
    return MIST_OK;
}

double mist_cuda_clock_at(const struct mist_cuda_clock *clock, uint64_t cupti_ns)
{
    return clock->from.clock_s +
           clock->s_per_ns * (double)(int64_t)(cupti_ns - clock->from.cupti_ns);
}

struct mist_cuda_span mist_cuda_clock_span(const struct mist_cuda_clock *clock,
                                           const struct mist_cuda_interval *interval)
{
    return (struct mist_cuda_span){
        .id = interval->id,
        .start_s = mist_cuda_clock_at(clock, interval->start_ns),
        .end_s = mist_cuda_clock_at(clock, interval->end_ns),
        .busy_s = clock->s_per_ns * (double)interval->busy_ns,
        .n_kernels = interval->n_kernels,
    };
}
