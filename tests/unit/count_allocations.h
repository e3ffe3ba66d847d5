/*
 * Counts the calls of malloc and its family that come from the program's own code, while
 * is_counting, in n_calls: what oneDNN, OpenMP and MPI allocate inside is not ours.
 * Include in one file of a program.
 */
#ifndef MIST_TESTS_UNIT_COUNT_ALLOCATIONS_H
#define MIST_TESTS_UNIT_COUNT_ALLOCATIONS_H

#include "tests/unit/allocator.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

extern char __executable_start, etext;
static atomic_long n_calls;
static atomic_bool is_counting;

TEST_PLAIN static void count(const void *caller)
{
    if (is_counting && (const char *)caller >= &__executable_start &&
        (const char *)caller < &etext)
        n_calls++;
}

TEST_PLAIN __attribute__((noinline)) void *malloc(size_t size)
{
    count(__builtin_return_address(0));
    return TEST_ALLOCATOR(malloc)(size);
}

TEST_PLAIN __attribute__((noinline)) void *calloc(size_t n, size_t size)
{
    count(__builtin_return_address(0));
    return TEST_ALLOCATOR(calloc)(n, size);
}

TEST_PLAIN __attribute__((noinline)) void *realloc(void *memory, size_t size)
{
    count(__builtin_return_address(0));
    return TEST_ALLOCATOR(realloc)(memory, size);
}

TEST_PLAIN int posix_memalign(void **out, size_t alignment, size_t size)
{
    count(__builtin_return_address(0));
    *out = TEST_ALLOCATOR(memalign)(alignment, size);
    return *out ? 0 : 12;
}

#endif
