/*
 * Makes the Nth call of a libc function fail, and counts live allocations.
 *
 * Include it in one test file, first of all. It defines malloc, calloc, realloc, free,
 * fflush, fsync and rename in the test program; the dynamic linker then uses these for
 * everything, Jansson, libcsv and stdio included. A fault loop looks like this:
 *
 *     for (long n = 1;; n++) {
 *         fault_arm(FAULT_MALLOC, n);
 *         status = ...;
 *         if (!fault_disarm())
 *             break; // the call that was to fail did not happen: status must be MIST_OK
 *         assert_int_equal(status, MIST_ERR_MEMORY);
 *     }
 */
#ifndef MIST_TESTS_UNIT_FAULT_H
#define MIST_TESTS_UNIT_FAULT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* fflush_unlocked, syscall */
#endif
#include "tests/unit/allocator.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum fault { FAULT_MALLOC, FAULT_FFLUSH, FAULT_FSYNC, FAULT_RENAME, N_FAULTS };

static atomic_long
    fault_left[N_FAULTS];      /* calls until the one that fails; 0: none does */
static atomic_long fault_live; /* allocations that were not freed */

static inline void fault_arm(enum fault fault, long n)
{
    fault_left[fault] = n;
}

/* True when the armed call happened, and failed. */
static inline bool fault_disarm(void)
{
    bool has_fired = true;

    for (int i = 0; i < N_FAULTS; i++) {
        has_fired = has_fired && fault_left[i] <= 0;
        fault_left[i] = 0;
    }
    return has_fired;
}

static inline long fault_n_live(void)
{
    return fault_live;
}

TEST_PLAIN static inline bool fault_fires(enum fault fault, int code)
{
    if (fault_left[fault] <= 0 || --fault_left[fault] != 0)
        return false;
    errno = code;
    return true;
}

TEST_PLAIN void *malloc(size_t size)
{
    void *memory =
        fault_fires(FAULT_MALLOC, ENOMEM) ? NULL : TEST_ALLOCATOR(malloc)(size);

    fault_live += memory != NULL;
    return memory;
}

TEST_PLAIN void *calloc(size_t n, size_t size)
{
    void *memory =
        fault_fires(FAULT_MALLOC, ENOMEM) ? NULL : TEST_ALLOCATOR(calloc)(n, size);

    fault_live += memory != NULL;
    return memory;
}

TEST_PLAIN void *realloc(void *memory, size_t size)
{
    if (fault_fires(FAULT_MALLOC, ENOMEM))
        return NULL;
    void *grown = TEST_ALLOCATOR(realloc)(memory, size);
    fault_live += !memory && grown;
    return grown;
}

TEST_PLAIN void free(void *memory)
{
    fault_live -= memory != NULL;
    TEST_ALLOCATOR(free)(memory);
}

#ifdef TEST_IS_SANITIZED /* a sanitizer's own allocate past malloc() */
TEST_PLAIN char *strndup(const char *text, size_t n_most)
{
    size_t n = strnlen(text, n_most);
    char *copy = malloc(n + 1);

    if (copy) {
        memcpy(copy, text, n);
        copy[n] = '\0';
    }
    return copy;
}

TEST_PLAIN char *strdup(const char *text)
{
    return strndup(text, SIZE_MAX);
}
#endif

int fflush(FILE *stream)
{
    return fault_fires(FAULT_FFLUSH, ENOSPC) ? EOF : fflush_unlocked(stream);
}

int fsync(int fd)
{
    return fault_fires(FAULT_FSYNC, EIO) ? -1 : (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    return fault_fires(FAULT_RENAME, EACCES) ? -1 : (int)syscall(SYS_rename, from, to);
}

#endif
