/* Fibers on ucontext. See fiber.h. */
#define _DEFAULT_SOURCE /* mmap of anonymous memory */
#include "exec/device/fiber.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define HAS_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#include <sanitizer/tsan_interface.h>
#define HAS_TSAN 1
#endif

/* MPI and its transports are the deepest that runs here; pages are there once touched. */
enum { STACK_BYTES = 1 << 20, GUARD_BYTES = 1 << 16 };

struct mist_fiber {
    ucontext_t inside, outside;
    void (*fn)(void *arg);
    void *arg;
    char *stack; /* GUARD_BYTES, then STACK_BYTES */
#ifdef HAS_ASAN
    const void *outer_stack; /* of the thread that resumed */
    size_t outer_bytes;
    void *fake_inside, *fake_outside;
#endif
#ifdef HAS_TSAN
    void *tsan_inside, *tsan_outside;
#endif
};

/* swapcontext(), of which the address sanitizer warns whoever uses it. */
static void swap_context(ucontext_t *from, const ucontext_t *to)
{
    volatile bool is_back = false;

    getcontext(from); /* returns again when somebody comes back */
    if (is_back)
        return;
    is_back = true;
    setcontext(to);
}

/* makecontext() hands over ints. */
static void enter(unsigned high, unsigned low)
{
    struct mist_fiber *fiber =
        (struct mist_fiber *)(uintptr_t)((uint64_t)high << 32 | low);

#ifdef HAS_ASAN
    __sanitizer_finish_switch_fiber(NULL, &fiber->outer_stack, &fiber->outer_bytes);
#endif
    fiber->fn(fiber->arg);
    abort();
}

enum mist_status mist_fiber_new(void (*fn)(void *arg), void *arg, struct mist_fiber **out,
                                struct mist_err *err)
{
    struct mist_fiber *fiber = calloc(1, sizeof *fiber);
    void *stack = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);

    if (!fiber || stack == MAP_FAILED || mprotect(stack, GUARD_BYTES, PROT_NONE) != 0) {
        free(fiber);
        if (stack != MAP_FAILED)
            munmap(stack, GUARD_BYTES + STACK_BYTES);
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a stack");
    }
    fiber->fn = fn;
    fiber->arg = arg;
    fiber->stack = stack;
    getcontext(&fiber->inside);
    fiber->inside.uc_stack.ss_sp = fiber->stack + GUARD_BYTES;
    fiber->inside.uc_stack.ss_size = STACK_BYTES;
    makecontext(&fiber->inside, (void (*)(void))enter, 2,
                (unsigned)((uint64_t)(uintptr_t)fiber >> 32), (unsigned)(uintptr_t)fiber);
#ifdef HAS_TSAN
    fiber->tsan_inside = __tsan_create_fiber(0);
#endif
    *out = fiber;
    return MIST_OK;
}

void mist_fiber_free(struct mist_fiber *fiber)
{
    if (!fiber)
        return;
#ifdef HAS_TSAN
    __tsan_destroy_fiber(fiber->tsan_inside);
#endif
#ifdef HAS_ASAN
    /* Frames that never returned are still marked, and whoever is next here is not told. */
    __asan_unpoison_memory_region(fiber->stack + GUARD_BYTES, STACK_BYTES);
#endif
    munmap(fiber->stack, GUARD_BYTES + STACK_BYTES);
    free(fiber);
}

void mist_fiber_resume(struct mist_fiber *fiber)
{
#ifdef HAS_TSAN
    fiber->tsan_outside = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber->tsan_inside, 0);
#endif
#ifdef HAS_ASAN
    __sanitizer_start_switch_fiber(&fiber->fake_outside, fiber->stack + GUARD_BYTES,
                                   STACK_BYTES);
#endif
    swap_context(&fiber->outside, &fiber->inside);
#ifdef HAS_ASAN
    __sanitizer_finish_switch_fiber(fiber->fake_outside, NULL, NULL);
#endif
}

void mist_fiber_yield(struct mist_fiber *fiber)
{
#ifdef HAS_TSAN
    __tsan_switch_to_fiber(fiber->tsan_outside, 0);
#endif
#ifdef HAS_ASAN
    __sanitizer_start_switch_fiber(&fiber->fake_inside, fiber->outer_stack,
                                   fiber->outer_bytes);
#endif
    swap_context(&fiber->inside, &fiber->outside);
#ifdef HAS_ASAN
    __sanitizer_finish_switch_fiber(fiber->fake_inside, &fiber->outer_stack,
                                    &fiber->outer_bytes);
#endif
}
