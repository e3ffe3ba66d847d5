/* Fibers: control goes to and fro, and the memory of one that never ended is anybody's. */
#define _DEFAULT_SOURCE /* mmap of anonymous memory */
#include "tests/unit/test.h"

#include "exec/device/fiber.h"

#include <string.h>
#include <sys/mman.h>

struct counter {
    struct mist_fiber *fiber;
    int n;
    volatile char *frame; /* of the function that counts */
};

static void count(void *arg)
{
    struct counter *counter = arg;
    volatile char text[64];

    text[0] = 0;
    counter->frame = text;
    for (;;) {
        counter->n += 1 + text[0];
        mist_fiber_yield(counter->fiber);
    }
}

TEST(control_goes_to_and_fro)
{
    struct counter counter = {0};
    struct mist_err err;

    must(mist_fiber_new(count, &counter, &counter.fiber, &err), &err);
    for (int i = 1; i <= 3; i++) {
        mist_fiber_resume(counter.fiber);
        assert_int_equal(counter.n, i);
    }
    mist_fiber_free(counter.fiber);
}

/* With the address sanitizer a mark that is left in the stack is found here. */
TEST(a_stack_given_back_is_anybodys)
{
    enum { BYTES = 4096 }; /* a page */
    struct counter counter = {0};
    struct mist_err err;

    must(mist_fiber_new(count, &counter, &counter.fiber, &err), &err);
    mist_fiber_resume(counter.fiber);
    char *place = (char *)((uintptr_t)counter.frame / BYTES * BYTES);
    mist_fiber_free(counter.fiber);
    char *map = mmap(place, BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (map == MAP_FAILED)
        skip(); /* somebody else was faster */
    memset(map, 1, BYTES);
    munmap(map, BYTES);
}

TEST_MAIN(NULL, NULL)
