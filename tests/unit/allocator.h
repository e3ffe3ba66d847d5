/*
 * For tests that define malloc() and its like: TEST_ALLOCATOR(malloc) is what would be
 * called without them, of a sanitizer where there is one, so that its checks go on. They
 * are called before a sanitizer has begun, so they are TEST_PLAIN: not instrumented.
 */
#ifndef MIST_TESTS_UNIT_ALLOCATOR_H
#define MIST_TESTS_UNIT_ALLOCATOR_H

#include <stddef.h>

#if defined(__clang__)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_IS_SANITIZED 1
#define TEST_PLAIN        __attribute__((disable_sanitizer_instrumentation))
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_IS_SANITIZED 1
#define TEST_PLAIN                                                                       \
    __attribute__((no_sanitize("address"), no_sanitize("thread"),                        \
                   no_sanitize("undefined")))
#endif
#ifdef TEST_IS_SANITIZED
#define TEST_ALLOCATOR(name) __interceptor_##name
#else
#define TEST_ALLOCATOR(name) __libc_##name
#define TEST_PLAIN
#endif

void *TEST_ALLOCATOR(malloc)(size_t size);
void *TEST_ALLOCATOR(calloc)(size_t n, size_t size);
void *TEST_ALLOCATOR(realloc)(void *memory, size_t size);
void *TEST_ALLOCATOR(memalign)(size_t alignment, size_t size);
void TEST_ALLOCATOR(free)(void *memory);

#endif
