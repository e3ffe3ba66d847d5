/* What the benchmarks share: they end with a message where something fails. */
#ifndef MIST_TESTS_BENCH_BENCH_H
#define MIST_TESTS_BENCH_BENCH_H

#include "core/clock.h"
#include "core/statistics.h"
#include "core/status.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline _Noreturn void fail(const char *what)
{
    fprintf(stderr, "bench: %s\n", what);
    exit(1);
}

static inline void must(enum mist_status status, const struct mist_err *err)
{
    if (status == MIST_OK)
        return;
    mist_err_print(err, "bench", stderr);
    exit(mist_exit_code(status));
}

/* Aligned to 64 bytes, with 64 more at the end, and zeroed, so that no page is first
 * touched while a clock runs. The caller's to free. */
static inline void *must_alloc(int64_t bytes)
{
    void *p = NULL;

    if (posix_memalign(&p, 64, (size_t)bytes + 64) != 0)
        fail("out of memory");
    memset(p, 0, (size_t)bytes + 64);
    return p;
}

/* Sorts x. */
static inline double median(double *x, int32_t n)
{
    mist_sort_doubles(x, (size_t)n);
    return 0.5 * (x[(n - 1) / 2] + x[n / 2]);
}

#endif
