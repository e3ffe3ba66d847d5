/*
 * The emulator against kernels whose results are known, and against faults it must see.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>
}

#include "tests/emulation/device_memory.h"
#include "tests/emulation/emulation.h"
#include "tests/emulation/order.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct CUstream_st *const no_stream = nullptr; /* the emulator takes any */

static void set_order(int i)
{
    static const mist_emulation_order orders[] = {
        MIST_EMULATION_FORWARD, MIST_EMULATION_REVERSE, MIST_EMULATION_SHUFFLED};

    mist_emulation_set_order(orders[i], 42);
}

/* ---------------------------------------------------------------------------- results */

__global__ void store_index(unsigned *out)
{
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] = 1000 * block + thread;
}

static void test_indices(void **)
{
    const unsigned n_blocks = 3 * 2 * 4, n_threads = 5 * 3 * 2;

    for (int i = 0; i < 3; i++) {
        unsigned *out = (unsigned *)mist_test_device_alloc(n_blocks * n_threads * 4);
        set_order(i);
        MIST_CUDA_START(store_index, dim3(3, 2, 4), dim3(5, 3, 2), 0, no_stream, out);
        for (unsigned j = 0; j < n_blocks * n_threads; j++)
            assert_int_equal(out[j], 1000 * (j / n_threads) + j % n_threads);
        assert_true(mist_test_device_guard_is_intact(out, n_blocks * n_threads * 4));
        mist_test_device_free(out);
    }
}

/* A tree over the block, then over each warp by all kinds of shuffles. */
template <int n_threads> __global__ void add_up(long long *out, int *ballots)
{
    MIST_CUDA_SHARED(shared);
    __shared__ long long static_sum[n_threads];
    long long *sum = (long long *)shared;
    int t = (int)threadIdx.x, lane = t % 32;

    sum[t] = t;
    for (int w = n_threads / 2; w > 0; w /= 2) {
        __syncthreads();
        if (t < w)
            sum[t] += sum[t + w];
    }
    __syncthreads();
    static_sum[n_threads - 1 - t] = sum[0] + t;
    __syncthreads();
    long long x = static_sum[t] - sum[0]; /* n_threads - 1 - t */
    for (int m = 16; m > 0; m /= 2)
        x += __shfl_xor_sync(0xFFFFFFFFu, x, m);
    long long y = lane;
    for (unsigned d = 16; d > 0; d /= 2)
        y += __shfl_down_sync(0xFFFFFFFFu, y, d);
    int from = __shfl_sync(0xFFFFFFFFu, lane * 10, 7);
    int up = __shfl_up_sync(0xFFFFFFFFu, lane, 1);
    int inside = __shfl_sync(0xFFFFFFFFu, lane, 1, 8);
    __syncwarp();
    ballots[t] = (int)__ballot_sync(0xFFFFFFFFu, lane % 3 == 0);
    out[t] = x * 1000000 + (lane == 0 ? y : 0) * 1000 + from +
             (lane > 0 ? lane - up : 1) + (inside - lane / 8 * 8);
    if (t == 0)
        out[n_threads] = sum[0];
}

static void test_barriers_and_shuffles(void **)
{
    enum { N = 256 };
    int expected_ballot = 0;

    for (int i = 0; i < 32; i += 3)
        expected_ballot |= (int)(1u << i);
    for (int i = 0; i < 3; i++) {
        long long out[N + 1];
        int ballots[N];
        set_order(i);
        MIST_CUDA_START((add_up<N>), 1, N, N * sizeof(long long), no_stream, out,
                        ballots);
        assert_int_equal(out[N], N * (N - 1) / 2);
        for (int t = 0; t < N; t++) {
            long long first = N - 1 - t / 32 * 32, warp = first * 32 - 31 * 16;
            long long lanes = t % 32 == 0 ? 496 : 0;
            assert_int_equal(out[t], warp * 1000000 + lanes * 1000 + 70 + 1 + 1);
            assert_int_equal(ballots[t], expected_ballot);
        }
    }
}

__global__ void vote(int *counts)
{
    int t = (int)threadIdx.x, ok = 1;
    for (int i = 0; i < 50; i++) {
        int n = __syncthreads_count(t < i);
        ok = ok && n == (i < 40 ? i : 40);
        int any = __syncthreads_or(t == i), all = __syncthreads_and(t >= i);
        ok = ok && any == (i < 40) && all == (i == 0);
    }
    counts[t] = ok;
}

static void test_votes(void **)
{
    for (int i = 0; i < 3; i++) {
        int counts[40];
        set_order(i);
        MIST_CUDA_START(vote, 2, 40, 0, no_stream, counts);
        for (int t = 0; t < 40; t++)
            assert_int_equal(counts[t], 1);
    }
}

__global__ void count(unsigned long long *sum, int *largest)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(sum, (unsigned long long)i);
    atomicMax(largest, (int)(i * 7919 % 1009));
}

static void test_atomics(void **)
{
    unsigned long long sum = 5;
    int largest = -1;

    MIST_CUDA_START(count, 100, 77, 0, no_stream, &sum, &largest);
    assert_true(sum == 5 + 7700ull * 7699 / 2);
    assert_int_equal(largest, 1008);
}

/* ----------------------------------------------------------------------------- faults */

/* Each thread reads its neighbour's element with no barrier between. */
__global__ void race_threads(int *out, int has_barrier)
{
    __shared__ int x[64];
    unsigned t = threadIdx.x;
    x[t] = 0;
    __syncthreads();
    x[t] = (int)t + 1;
    if (has_barrier)
        __syncthreads();
    out[t] = x[(t + 1) % 64];
}

__global__ void race_blocks(int *out)
{
    *out = (int)blockIdx.x;
}

static void test_orders_show_races(void **)
{
    int out[3][64], last[3];

    for (int i = 0; i < 3; i++) {
        set_order(i);
        MIST_CUDA_START(race_threads, 1, 64, 0, no_stream, out[i], 0);
        MIST_CUDA_START(race_blocks, 64, 1, 0, no_stream, &last[i]);
    }
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(out[i], out[j], sizeof out[i]);
    assert_int_equal(last[0], 63);
    assert_int_equal(last[1], 0);
    for (int i = 0; i < 3; i++) {
        set_order(i);
        MIST_CUDA_START(race_threads, 1, 64, 0, no_stream, out[i], 1);
        assert_memory_equal(out[i], out[0], sizeof out[0]);
    }
}

enum fault {
    NO_FAULT,
    MISSING_BARRIER,
    MISSING_LANE,
    PARTIAL_MASK,
    PARTIAL_WARP,
    OPERATIONS_DIFFER,
    SHARED_OVERRUN,
    NO_BLOCKS,
    TOO_MANY_THREADS,
    TOO_MUCH_SHARED,
    N_FAULTS,
};

__global__ void commit_fault(fault fault, int *out)
{
    MIST_CUDA_SHARED(shared);
    unsigned t = threadIdx.x;

    if (fault == MISSING_BARRIER && t == 40)
        return;
    __syncthreads();
    if (fault == MISSING_LANE && t == 40)
        return;
    if (fault == OPERATIONS_DIFFER && t == 40)
        __ballot_sync(0xFFFFFFFFu, 1);
    else if (fault != MISSING_BARRIER)
        out[t] =
            __shfl_xor_sync(fault == PARTIAL_MASK ? 0xFFFFu : 0xFFFFFFFFu, (int)t, 1);
    if (fault == SHARED_OVERRUN && t == 0)
        shared[64] = 0;
}

static int run_fault(fault fault)
{
    int out[96];

    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == nullptr)
            _exit(2);
        MIST_CUDA_START(commit_fault, fault == NO_BLOCKS ? 0 : 2,
                        fault == TOO_MANY_THREADS ? 1056
                        : fault == PARTIAL_WARP   ? 72
                                                  : 96,
                        fault == TOO_MUCH_SHARED ? 48 * 1024 + 1 : 64, no_stream, fault,
                        out);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void test_faults_abort(void **)
{
    assert_int_equal(run_fault(NO_FAULT), 0);
    for (int i = NO_FAULT + 1; i < N_FAULTS; i++)
        assert_int_equal(run_fault((fault)i), -SIGABRT);
}

__global__ void read_shared(int *n_poisoned, int n)
{
    MIST_CUDA_SHARED(shared);
    for (int i = 0; i < n; i++)
        *n_poisoned += shared[i] == 0xFF;
    memset(shared, 0, (size_t)n);
}

static void test_shared_memory(void **)
{
    int n_poisoned = 0;

    MIST_CUDA_ALLOW_SHARED(read_shared, 99 * 1024);
    MIST_CUDA_START(read_shared, 3, 1, 99 * 1024, no_stream, &n_poisoned, 99 * 1024);
    assert_int_equal(n_poisoned, 3 * 99 * 1024);
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_indices),
        cmocka_unit_test(test_barriers_and_shuffles),
        cmocka_unit_test(test_votes),
        cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_orders_show_races),
        cmocka_unit_test(test_faults_abort),
        cmocka_unit_test(test_shared_memory),
    };

    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
