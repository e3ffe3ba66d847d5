/* The recorder's join and clock: no CUPTI, no CUDA. See recorder.h. */
#include "exec/cuda/recorder.h"

#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a kernel's times may be off by, as CUPTI brings them from the GPU's clock. */
static const uint64_t slack_ns = 1000000;

void mist_cuda_records_clear(struct mist_cuda_records *records)
{
    for (uint32_t i = 1; i < records->n_names; i++)
        free(records->names[i]);
    free(records->names);
    free(records->marks);
    free(records->works);
    *records = (struct mist_cuda_records){.max_launches = MIST_CUDA_MAX_LAUNCHES};
}

void mist_cuda_records_begin(struct mist_cuda_records *records, uint64_t previous_ns,
                             uint64_t now_ns)
{
    records->n_marks = records->n_works = 0;
    records->n_lost = 0;
    records->has_no_room = false;
    records->previous_ns = previous_ns;
    records->period_ns = now_ns;
}

/* -------------------------------------------------------------------------------- add */

void mist_cuda_records_add_mark(struct mist_cuda_records *records, uint32_t call,
                                int64_t id)
{
    if (records->n_marks >= records->max_launches ||
        !MIST_APPEND(records->marks, records->marks_capacity, records->n_marks,
                     (struct mist_cuda_mark){id, call}))
        records->has_no_room = true;
}

/* A name that is there already, or a copy of a new one. */
static uint16_t intern(struct mist_cuda_records *records, const char *name)
{
    size_t n_slots = sizeof records->slots / sizeof *records->slots;
    size_t length = strnlen(name, MIST_CUDA_MAX_NAME_BYTES - 1);
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */

    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * UINT64_C(1099511628211);
    size_t i = hash % n_slots;
    for (; records->slots[i]; i = (i + 1) % n_slots) {
        const char *other = records->names[records->slots[i]];
        if (strncmp(other, name, length) == 0 && other[length] == '\0')
            return records->slots[i];
    }
    if (!records->names) {
        records->names = calloc(MIST_CUDA_MAX_NAMES + 1, sizeof *records->names);
        if (!records->names)
            return 0;
        records->n_names = 1;
    }
    char *copy = records->n_names <= MIST_CUDA_MAX_NAMES ? strndup(name, length) : NULL;
    if (!copy)
        return 0;
    records->names[records->n_names] = copy;
    return records->slots[i] = (uint16_t)records->n_names++;
}

void mist_cuda_records_add_work(struct mist_cuda_records *records, uint32_t call,
                                const char *name, uint64_t start_ns, uint64_t end_ns)
{
    if (start_ns != 0 && start_ns + slack_ns < records->period_ns) {
        records->n_lost += start_ns + slack_ns < records->previous_ns;
        return;
    }
    if (records->n_works >= records->max_launches ||
        !MIST_APPEND(records->works, records->works_capacity, records->n_works,
                     (struct mist_cuda_work){
                         .id = -1,
                         .start_ns = start_ns,
                         .end_ns = end_ns,
                         .call = call,
                         .name = intern(records, name ? name : "unnamed kernel"),
                     }))
        records->has_no_room = true;
}

/* ------------------------------------------------------------------------------- join */

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* By call, of one call the largest id first. */
static int compare_marks(const void *a, const void *b)
{
    const struct mist_cuda_mark *x = a, *y = b;

    return x->call != y->call ? compare(x->call, y->call)
                              : compare((uint64_t)y->id, (uint64_t)x->id);
}

static int compare_works(const void *a, const void *b)
{
    const struct mist_cuda_work *x = a, *y = b;

    return x->id != y->id ? compare((uint64_t)x->id, (uint64_t)y->id)
                          : compare(x->start_ns, y->start_ns);
}

/* The first mark of a call, which are sorted; -1: it has none. */
static int64_t find_id(const struct mist_cuda_records *records, uint32_t call)
{
    size_t first = 0, end = records->n_marks;

    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (records->marks[middle].call < call)
            first = middle + 1;
        else
            end = middle;
    }
    return first < records->n_marks && records->marks[first].call == call
               ? records->marks[first].id
               : -1;
}

size_t mist_cuda_records_join(struct mist_cuda_records *records)
{
    size_t n = 0;

    if (records->n_marks > 0)
        qsort(records->marks, records->n_marks, sizeof *records->marks, compare_marks);
    for (size_t i = 0; i < records->n_works; i++) {
        struct mist_cuda_work work = records->works[i];
        work.id = find_id(records, work.call);
        if (work.id < 0)
            continue;
        if (work.start_ns == 0 || work.end_ns < work.start_ns)
            records->n_lost++;
        else
            records->works[n++] = work;
    }
    records->n_works = n;
    if (n > 0)
        qsort(records->works, n, sizeof *records->works, compare_works);
    return n;
}

/* ------------------------------------------------------------------------------ clock */

/* b - a in seconds; exact to the double of the difference, where a double of the time
 * itself would be good to 256 ns only. */
static double seconds_between(uint64_t a_ns, uint64_t b_ns)
{
    return 1e-9 * (double)(int64_t)(b_ns - a_ns);
}

bool mist_cuda_clock_through(const struct mist_cuda_clock_pair *a,
                             const struct mist_cuda_clock_pair *b,
                             struct mist_cuda_clock *out)
{
    double cupti_s = seconds_between(a->cupti_ns, b->cupti_ns);
    double clock_s = b->clock_s - a->clock_s;

    *out = clock_s < 0.01 ? (struct mist_cuda_clock){*b, 1e-9}
                          : (struct mist_cuda_clock){*a, 1e-9 * clock_s / cupti_s};
    return fabs(cupti_s - clock_s) <= 1e-3 + 1e-3 * fabs(clock_s);
}

double mist_cuda_clock_at(const struct mist_cuda_clock *clock, uint64_t cupti_ns)
{
    return clock->from.clock_s +
           clock->s_per_ns * (double)(int64_t)(cupti_ns - clock->from.cupti_ns);
}
