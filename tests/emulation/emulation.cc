/*
 * Runs the blocks of a launch: a fiber for each thread that meets a barrier.
 *
 * A fiber takes threads that have not begun, in the order that was set, and runs them one
 * after another on its stack; only when one stops at a barrier does the next begin on
 * another fiber. So a kernel without barriers costs a call per thread. When all have
 * begun, the scheduler resumes those that may go on, round by round in the same order,
 * until all have returned; a round in which nobody may go on is a barrier that some
 * thread never reaches.
 *
 * A barrier counts its arrivals, block-wide or per warp; the last one frees all. A warp's
 * operations leave values in one of two rows in turn: who leaves the third value has seen
 * that all had read the first.
 *
 * One launch runs at a time, whichever thread calls. Stacks are kept for the next one,
 * with a page below each that may not be touched.
 */
#include "tests/emulation/emulation.h"
#include "tests/emulation/cudart.h"
#include "tests/emulation/order.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define ADDRESS_SANITIZER 1
#else
#define ADDRESS_SANITIZER 0
#endif

#if !defined(__x86_64__) || !defined(__ELF__)
#define USES_UCONTEXT 1
#elif !defined(USES_UCONTEXT)
#define USES_UCONTEXT 0
#endif
#if USES_UCONTEXT
#include <ucontext.h>
#endif

enum {
    MAX_THREADS = 1024,
    LANES = 32,
    MAX_WARPS = MAX_THREADS / LANES,
    PAGE_BYTES = 4096,
    STACK_BYTES = ADDRESS_SANITIZER ? 512 * 1024 : 128 * 1024,
    GUARD_BYTES = 256,            /* behind dynamic shared memory */
    GUARD_BYTE = 0xA5,            /* what is in it */
    SHARED_BYTES = 48 * 1024,     /* of a launch that asked for no more */
    MAX_SHARED_BYTES = 99 * 1024, /* the least from compute capability 8.0 on */
    MAX_KNOWN = 1024,             /* kernels */
};

dim3 threadIdx, blockIdx, blockDim, gridDim;
unsigned char *mist_emulation_shared;

namespace
{

enum state { WAITS_TO_BEGIN, CAN_RUN, AT_BLOCK_BARRIER, AT_WARP_BARRIER, HAS_RETURNED };

struct fiber {
#if USES_UCONTEXT
    ucontext_t context;
#else
    void *stack_pointer;
#endif
    const void *stack; /* its lowest byte */
    size_t stack_bytes;
    void *fake_stack; /* the address sanitizer's */
};

struct thread {
    enum state state;
    struct fiber *fiber; /* once it has begun */
    dim3 index;
};

struct warp {
    int n_lanes, n_arrived;
    unsigned i_row; /* of values, for the operation under way */
    const char *what;
    uint64_t values[2][LANES];
};

struct launch {
    const char *name;
    void (*body)(void *);
    void *context;
    size_t shared_bytes;
    int n_threads;
    int n_begun, n_returned, n_arrived;
    int i_count, counts[2]; /* of predicates, for the barrier under way and the last */
    int order[MAX_THREADS];
    struct thread threads[MAX_THREADS];
    struct warp warps[MAX_WARPS];
    int current; /* the thread that runs */
};

/* A kernel of which something is known. */
struct known {
    const void *kernel;
    size_t shared_bytes; /* that it may have; 0: as all */
    bool is_loaded;
};

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
struct launch now;
struct fiber fibers[MAX_THREADS];
struct fiber *idle[MAX_THREADS];
int n_fibers, n_idle;
struct fiber scheduler;
struct known known[MAX_KNOWN];
int n_known;
int64_t n_lazy_launches;
bool has_order;
enum mist_emulation_order order;
uint64_t order_seed;

[[noreturn]] void give_up()
{
    fprintf(stderr, " (kernel %s, block %u %u %u of %u %u %u, %d threads)\n", now.name,
            blockIdx.x, blockIdx.y, blockIdx.z, gridDim.x, gridDim.y, gridDim.z,
            now.n_threads);
    fflush(stderr);
    abort();
}

#define REQUIRE(condition, ...)                                                          \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "CUDA emulation: " __VA_ARGS__);                             \
            give_up();                                                                   \
        }                                                                                \
    } while (0)

/* --------------------------------------------------------------------------- switches */

#if !USES_UCONTEXT
/* Saves what a call must keep on the stack, and goes on where the other stack was left.
 */
extern "C" void mist_emulation_switch(void **from, void *to);
asm(".text\n"
    ".p2align 4\n"
    ".type mist_emulation_switch, @function\n"
    "mist_emulation_switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size mist_emulation_switch, .-mist_emulation_switch\n");
#endif

/* The address sanitizer has to know which stack is in use. */
void announce_switch(struct fiber *from, const struct fiber *to)
{
#if ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
#else
    (void)from;
    (void)to;
#endif
}

/* Fibers are always entered from the scheduler, whose stack is the caller's. */
void announce_arrival(const struct fiber *at)
{
#if ADDRESS_SANITIZER
    const void *stack = nullptr;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(at->fake_stack, &stack, &bytes);
    if (at != &scheduler) {
        scheduler.stack = stack;
        scheduler.stack_bytes = bytes;
    }
#else
    (void)at;
#endif
}

void switch_fiber(struct fiber *from, struct fiber *to)
{
    announce_switch(from, to);
#if USES_UCONTEXT
    swapcontext(&from->context, &to->context);
#else
    mist_emulation_switch(&from->stack_pointer, to->stack_pointer);
#endif
    announce_arrival(from);
}

/* ----------------------------------------------------------------------------- fibers */

void run_threads(struct fiber *self)
{
    while (now.n_begun < now.n_threads) {
        int i = now.order[now.n_begun++];
        struct thread *thread = &now.threads[i];
        thread->fiber = self;
        thread->state = CAN_RUN;
        now.current = i;
        threadIdx = thread->index;
        now.body(now.context);
        now.threads[now.current].state = HAS_RETURNED;
        now.n_returned++;
    }
}

/* Begins once; from then on a fiber that has no thread waits in the switch. */
void run_fiber()
{
    struct fiber *self = idle[n_idle]; /* take_fiber() left it there */

    announce_arrival(self);
    for (;;) {
        run_threads(self);
        idle[n_idle++] = self;
        switch_fiber(self, &scheduler);
    }
}

void make_fiber(struct fiber *fiber)
{
    void *map = mmap(nullptr, STACK_BYTES + PAGE_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(map != MAP_FAILED && mprotect(map, PAGE_BYTES, PROT_NONE) == 0,
            "no memory for a stack");
    unsigned char *stack = (unsigned char *)map + PAGE_BYTES;

    fiber->stack = stack;
    fiber->stack_bytes = STACK_BYTES;
#if USES_UCONTEXT
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = stack;
    fiber->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&fiber->context, run_fiber, 0);
#else
    /* The switch pops six registers and returns to run_fiber(), for which the stack is
     * as after a call: 8 less than a multiple of 16. */
    void **top = (void **)(stack + STACK_BYTES) - 2;
    top[0] = (void *)run_fiber;
    fiber->stack_pointer = top - 6;
#endif
}

struct fiber *take_fiber()
{
    if (n_idle == 0) {
        make_fiber(&fibers[n_fibers]);
        idle[n_idle++] = &fibers[n_fibers++];
    }
    return idle[--n_idle];
}

/* ------------------------------------------------------------------------- scheduling */

uint64_t next_random()
{
    uint64_t z = (order_seed += 0x9E3779B97F4A7C15u); /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

void read_order()
{
    const char *text = getenv("MIST_EMULATION_ORDER");

    has_order = true;
    if (text == nullptr || strcmp(text, "forward") == 0) {
        order = MIST_EMULATION_FORWARD;
    } else if (strcmp(text, "reverse") == 0) {
        order = MIST_EMULATION_REVERSE;
    } else {
        order = MIST_EMULATION_SHUFFLED;
        order_seed = strtoull(text, nullptr, 10);
    }
}

template <typename T> void fill_order(T *out, T n)
{
    for (T i = 0; i < n; i++)
        out[i] = order == MIST_EMULATION_REVERSE ? n - 1 - i : i;
    for (T i = n; order == MIST_EMULATION_SHUFFLED && i > 1; i--) {
        T j = (T)(next_random() % (uint64_t)i), swapped = out[i - 1];
        out[i - 1] = out[j];
        out[j] = swapped;
    }
}

void report_barrier()
{
    int n_block = 0, n_warp = 0;

    for (int i = 0; i < now.n_threads; i++) {
        n_block += now.threads[i].state == AT_BLOCK_BARRIER;
        n_warp += now.threads[i].state == AT_WARP_BARRIER;
    }
    REQUIRE(false,
            "a barrier that not all threads reach: %d returned, %d at __syncthreads, "
            "%d at an operation of their warp",
            now.n_returned, n_block, n_warp);
}

bool resume_round()
{
    bool has_run = false;

    for (int i = 0; i < now.n_threads; i++) {
        struct thread *thread = &now.threads[now.order[i]];
        if (thread->state == CAN_RUN) {
            has_run = true;
            now.current = now.order[i];
            threadIdx = thread->index;
            switch_fiber(&scheduler, thread->fiber);
        }
    }
    return has_run;
}

void check_shared()
{
    for (int i = 0; i < GUARD_BYTES; i++)
        REQUIRE(mist_emulation_shared[now.shared_bytes + (size_t)i] == GUARD_BYTE,
                "byte %d behind dynamic shared memory was written", i);
}

void begin_block()
{
    memset(mist_emulation_shared, 0xFF, now.shared_bytes);
    memset(mist_emulation_shared + now.shared_bytes, GUARD_BYTE, GUARD_BYTES);
    fill_order(now.order, now.n_threads);
    now.n_begun = now.n_returned = now.n_arrived = 0;
    now.counts[now.i_count] = 0;
    for (int i = 0; i < now.n_threads; i++)
        now.threads[i].state = WAITS_TO_BEGIN;
    for (int i = 0; i * LANES < now.n_threads; i++) {
        now.warps[i].n_lanes = now.n_threads - i * LANES;
        now.warps[i].n_arrived = 0;
    }
}

void run_block()
{
    begin_block();
    while (now.n_begun < now.n_threads)
        switch_fiber(&scheduler, take_fiber());
    while (now.n_returned < now.n_threads)
        if (!resume_round())
            report_barrier();
    check_shared();
}

/* The thread that runs gives way; its state says what it waits for. */
void give_way()
{
    struct fiber *self = now.threads[now.current].fiber;

    switch_fiber(self, &scheduler);
}

void free_threads(int begin, int end, enum state from)
{
    for (int i = begin; i < end; i++)
        if (now.threads[i].state == from)
            now.threads[i].state = CAN_RUN;
}

/* --------------------------------------------------------------------------- launches */

struct known *find_known(const void *kernel)
{
    int i = 0;
    while (i < n_known && known[i].kernel != kernel)
        i++;
    REQUIRE(i < MAX_KNOWN, "too many kernels");
    n_known = i == n_known ? i + 1 : n_known;
    known[i].kernel = kernel;
    return &known[i];
}

size_t allowed_bytes(const void *kernel)
{
    size_t bytes = find_known(kernel)->shared_bytes;
    return bytes > 0 ? bytes : (size_t)SHARED_BYTES;
}

void set_launch(const char *name, const void *kernel, dim3 grid, dim3 block,
                size_t shared_bytes)
{
    now.name = name;
    gridDim = grid;
    blockDim = block;
    blockIdx = dim3(0, 0, 0);
    now.n_threads = 0;
    uint64_t n_threads = (uint64_t)block.x * block.y * block.z;
    REQUIRE(n_threads >= 1 && n_threads <= MAX_THREADS && block.z <= 64,
            "a block of %u x %u x %u threads", block.x, block.y, block.z);
    now.n_threads = (int)n_threads;
    REQUIRE(grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= INT32_MAX &&
                grid.y <= UINT16_MAX && grid.z <= UINT16_MAX,
            "a launch of this grid");
    REQUIRE(shared_bytes <= allowed_bytes(kernel),
            "%zu bytes of dynamic shared memory, %zu are allowed", shared_bytes,
            allowed_bytes(kernel));
    now.shared_bytes = shared_bytes;
    for (int i = 0; i < now.n_threads; i++) {
        unsigned u = (unsigned)i;
        now.threads[i].index =
            dim3(u % block.x, u / block.x % block.y, u / block.x / block.y);
    }
}

void run_blocks()
{
    uint64_t n = (uint64_t)gridDim.x * gridDim.y * gridDim.z;
    uint64_t *blocks = (uint64_t *)malloc(n * sizeof *blocks);

    REQUIRE(blocks != nullptr, "no memory for %llu blocks", (unsigned long long)n);
    fill_order(blocks, n);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t b = blocks[i];
        blockIdx = dim3((unsigned)(b % gridDim.x), (unsigned)(b / gridDim.x % gridDim.y),
                        (unsigned)(b / gridDim.x / gridDim.y));
        run_block();
    }
    free(blocks);
}

} // namespace

void mist_emulation_run(const char *name, const void *kernel, dim3 grid, dim3 block,
                        size_t shared_bytes, void (*body)(void *), void *context)
{
    pthread_mutex_lock(&mutex);
    if (!has_order)
        read_order();
    set_launch(name, kernel, grid, block, shared_bytes);
    n_lazy_launches += !find_known(kernel)->is_loaded;
    now.body = body;
    now.context = context;
    if (mist_emulation_shared == nullptr)
        mist_emulation_shared =
            (unsigned char *)aligned_alloc(GUARD_BYTES, MAX_SHARED_BYTES + GUARD_BYTES);
    REQUIRE(mist_emulation_shared != nullptr, "no memory");
    run_blocks();
    pthread_mutex_unlock(&mutex);
}

void mist_emulation_allow_shared(const void *kernel, size_t bytes)
{
    pthread_mutex_lock(&mutex);
    now.name = "?";
    REQUIRE(bytes <= MAX_SHARED_BYTES, "%zu bytes of shared memory are too many", bytes);
    find_known(kernel)->shared_bytes = bytes;
    pthread_mutex_unlock(&mutex);
}

void mist_emulation_load(const void *kernel)
{
    pthread_mutex_lock(&mutex);
    find_known(kernel)->is_loaded = true;
    pthread_mutex_unlock(&mutex);
}

int64_t mist_emulation_n_lazy_launches(void)
{
    return n_lazy_launches;
}

void mist_emulation_set_order(enum mist_emulation_order new_order, uint64_t seed)
{
    pthread_mutex_lock(&mutex);
    has_order = true;
    order = new_order;
    order_seed = seed;
    pthread_mutex_unlock(&mutex);
}

/* --------------------------------------------------------------------------- barriers */

int mist_emulation_sync_block(int predicate)
{
    const int *count = &now.counts[now.i_count];

    now.counts[now.i_count] += predicate != 0;
    now.threads[now.current].state = AT_BLOCK_BARRIER;
    if (++now.n_arrived == now.n_threads) {
        now.n_arrived = 0;
        now.i_count ^= 1;
        now.counts[now.i_count] = 0;
        free_threads(0, now.n_threads, AT_BLOCK_BARRIER);
    }
    give_way();
    return *count;
}

unsigned mist_emulation_lane()
{
    return (unsigned)now.current % LANES;
}

const uint64_t *mist_emulation_sync_warp(const char *what, unsigned mask, uint64_t value)
{
    int i_warp = now.current / LANES;
    struct warp *warp = &now.warps[i_warp];

    REQUIRE(mask == 0xFFFFFFFFu, "%s with the mask 0x%08x", what, mask);
    REQUIRE(warp->n_lanes >= LANES, "%s in a warp of %d lanes", what, warp->n_lanes);
    REQUIRE(warp->n_arrived == 0 || warp->what == what || strcmp(warp->what, what) == 0,
            "%s and %s at once in a warp", what, warp->what);
    warp->what = what;
    uint64_t *values = warp->values[warp->i_row];
    values[now.current % LANES] = value;
    now.threads[now.current].state = AT_WARP_BARRIER;
    if (++warp->n_arrived == LANES) {
        warp->n_arrived = 0;
        warp->i_row ^= 1;
        free_threads(i_warp * LANES, (i_warp + 1) * LANES, AT_WARP_BARRIER);
    }
    give_way();
    return values;
}
