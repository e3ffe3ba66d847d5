/*
 * exec/cuda/graph.c on the emulated runtime: what is captured of four streams runs when
 * it is replayed, with the memory's contents of that time and in an order that its events
 * allow; what can't be captured is refused, and does the device no harm.
 */
#include "tests/unit/test.h"

#if __has_include(<cuda_runtime_api.h>)

#include "exec/cuda/context.h"
#include "exec/cuda/operators.h"
#include "tests/emulation/cudart.h"
#include "tests/emulation/streams.h"

#include <math.h>

static const enum mist_emulated_order orders[] = {
    MIST_EMULATED_AT_ONCE, MIST_EMULATED_LAZY, MIST_EMULATED_LAZY_FORWARD};
enum {
    N_ORDERS = sizeof orders / sizeof *orders,
    N = 64,
    BYTES = N * (int)sizeof(float)
};

static struct mist_device *open_device(void)
{
    struct mist_device *device;
    struct mist_err err;
    struct mist_device_config config = {.arena_bytes = {1 << 20, 1 << 16},
                                        .result_bytes = 64,
                                        .threads = 1,
                                        .attention = MIST_ATTENTION_OWN};

    must(mist_cuda_device_open(&config, &device, &err), &err);
    return device;
}

static int setup(void **state)
{
    mist_emulated_cuda_reset();
    return 0;
}

static int teardown(void **state)
{
    mist_emulated_streams_set(MIST_EMULATED_AT_ONCE);
    assert_int_equal(mist_emulated_cuda.used_bytes, 0);
    assert_int_equal(mist_emulated_cuda.locked_bytes, 0);
    assert_int_equal(mist_emulated_streams_count(), 0);
    assert_int_equal(mist_emulated_events_count(), 0);
    assert_int_equal(mist_emulated_graphs_count(), 0);
    return 0;
}

/* ---------------------------------------------------- four streams, one after another */

/* A chain: host to a, a doubled to b, b copied to c, c back to the host. */
struct chain {
    struct mist_device *device;
    void *backend; /* of the operators */
    float *in, *a, *b, *c, *out;
};

static void load(void *arg)
{
    const struct chain *at = arg;

    mist_device_copy(at->device, at->a, at->in, BYTES);
}

static void twice(void *arg)
{
    const struct chain *at = arg;

    mist_operators_cuda.zero(at->backend, MIST_DTYPE_FP32, at->b, N, 0);
    mist_operators_cuda.add(at->backend, MIST_DTYPE_FP32, at->b, at->a, N, 0);
    mist_operators_cuda.add(at->backend, MIST_DTYPE_FP32, at->b, at->a, N, 0);
}

static void pass(void *arg)
{
    const struct chain *at = arg;

    mist_device_copy(at->device, at->c, at->b, BYTES);
}

static void store(void *arg)
{
    const struct chain *at = arg;

    mist_device_copy(at->device, at->out, at->c, BYTES);
}

static struct chain open_chain(void)
{
    struct chain at = {.device = open_device()};
    char *device = mist_device_arena(at.device, MIST_ARENA_DEVICE);
    char *host = mist_device_arena(at.device, MIST_ARENA_HOST);

    assert_int_equal(
        mist_operators_cuda.open(at.device, MIST_DTYPE_FP32, 0, &at.backend, NULL),
        MIST_OK);
    at.a = (float *)(void *)device;
    at.b = at.a + N;
    at.c = at.b + N;
    at.in = (float *)(void *)host;
    at.out = at.in + N;
    return at;
}

static void close_chain(struct chain *at)
{
    mist_operators_cuda.close(at->backend);
    mist_device_close(at->device);
}

/* The waits in between but for one; -1: all. */
static void dispatch_chain(struct chain *at, int i_missing)
{
    static const mist_stream_fn steps[] = {load, twice, pass, store};
    static const enum mist_stream streams[] = {MIST_STREAM_HOST_TO_DEVICE,
                                               MIST_STREAM_COMPUTE, MIST_STREAM_GPU_GPU,
                                               MIST_STREAM_DEVICE_TO_HOST};

    mist_device_reset_events(at->device, 4);
    mist_device_begin_capture(at->device);
    for (int i = 0; i < 4; i++) {
        if (i > 0 && i != i_missing)
            mist_device_wait(at->device, streams[i], i - 1);
        mist_device_submit(at->device, streams[i], steps[i], at);
        mist_device_record(at->device, streams[i], i);
    }
}

static int count_mistakes(const float *out, float want)
{
    int n = 0;

    for (int i = 0; i < N; i++)
        n += out[i] != want + 2 * (float)i;
    return n;
}

static void give_input(struct chain *at, float first)
{
    for (int i = 0; i < N; i++) {
        at->in[i] = first + (float)i;
        at->out[i] = -1;
    }
}

/* Nothing runs while it is captured; every replay takes what is there by then. */
TEST_WITH(test_replays, setup, teardown)
{
    for (int k = 0; k < N_ORDERS; k++) {
        mist_emulated_streams_set(orders[k]);
        struct chain at = open_chain();
        give_input(&at, 5);
        dispatch_chain(&at, -1);
        assert_int_equal(mist_device_end_capture(at.device, NULL), MIST_OK);
        assert_int_equal(mist_device_synchronize(at.device, NULL), MIST_OK);
        assert_true(at.out[0] == -1);
        for (int round = 0; round < 3; round++) {
            give_input(&at, (float)round);
            mist_device_replay(at.device);
            assert_int_equal(mist_device_synchronize(at.device, NULL), MIST_OK);
            assert_int_equal(count_mistakes(at.out, 2 * (float)round), 0);
        }
        assert_int_equal(mist_emulated_cuda.n_launched_graphs, 3 * (k + 1));
        dispatch_chain(&at, -1); /* in place of the one before */
        assert_int_equal(mist_device_end_capture(at.device, NULL), MIST_OK);
        assert_int_equal(mist_emulated_graphs_count(), 1);
        mist_device_drop_capture(at.device);
        assert_int_equal(mist_emulated_graphs_count(), 0);
        close_chain(&at);
    }
}

/* Each wait is needed: some order shows that it is not there. */
TEST_WITH(test_missing_wait_is_seen, setup, teardown)
{
    for (int i = 1; i < 4; i++) {
        int n_seen = 0;
        for (int k = 0; k < N_ORDERS; k++) {
            mist_emulated_streams_set(orders[k]);
            struct chain at = open_chain();
            dispatch_chain(&at, i);
            assert_int_equal(mist_device_end_capture(at.device, NULL), MIST_OK);
            for (int round = 1; round < 3; round++) {
                give_input(&at, 10 * (float)round);
                mist_device_replay(at.device);
                assert_int_equal(mist_device_synchronize(at.device, NULL), MIST_OK);
                n_seen += count_mistakes(at.out, 20 * (float)round) > 0;
            }
            close_chain(&at);
        }
        assert_true(n_seen > 0);
    }
}

/* ------------------------------------------------------------------ AdamW in a graph */

static void run_adamw(void *arg)
{
    const struct chain *at = arg;
    const struct mist_adamw_args none = {.lr = NAN};
    const struct mist_adamw_span span = {
        .p = at->a, .m = at->b, .v = at->c, .g = at->c + N, .n = N, .decays = true};

    mist_operators_cuda.adamw(at->backend, MIST_DTYPE_FP32, &span, 1, &none, 0);
}

/* Three steps with other numbers each, launched or replayed. */
static void run_three_updates(bool replays, float params[N])
{
    struct chain at = open_chain();

    for (int i = 0; i < N; i++)
        at.in[i] = 1 + (float)i / N;
    assert_int_equal(mist_device_write(at.device, at.a, at.in, BYTES, NULL), MIST_OK);
    assert_int_equal(mist_device_clear(at.device, at.b, (int64_t)2 * BYTES, NULL),
                     MIST_OK);
    assert_int_equal(mist_device_write(at.device, at.c + N, at.in, BYTES, NULL), MIST_OK);
    mist_device_reset_events(at.device, 0);
    if (replays) {
        mist_device_begin_capture(at.device);
        mist_device_submit(at.device, MIST_STREAM_COMPUTE, run_adamw, &at);
        assert_int_equal(mist_device_end_capture(at.device, NULL), MIST_OK);
    }
    for (int t = 1; t <= 3; t++) {
        const struct mist_adamw_args args = {.lr = 0.01f * (float)t,
                                             .beta1 = 0.9f,
                                             .beta2 = 0.95f,
                                             .epsilon = 1e-8f,
                                             .weight_decay = 0.1f * (float)t,
                                             .gradient_scale = 1.0f / (float)t,
                                             .t = t};
        mist_operators_prepare_update(&mist_operators_cuda, at.backend, &args);
        if (replays)
            mist_device_replay(at.device);
        else
            mist_device_submit(at.device, MIST_STREAM_COMPUTE, run_adamw, &at);
    }
    assert_int_equal(mist_device_synchronize(at.device, NULL), MIST_OK);
    assert_int_equal(mist_device_read(at.device, params, at.a, BYTES, NULL), MIST_OK);
    close_chain(&at);
}

TEST_WITH(test_updates, setup, teardown)
{
    float launched[N], replayed[N];

    for (int k = 0; k < N_ORDERS; k++) {
        mist_emulated_streams_set(orders[k]);
        run_three_updates(false, launched);
        run_three_updates(true, replayed);
        assert_memory_equal(launched, replayed, sizeof launched);
        assert_true(launched[0] < 1 && isfinite(launched[N - 1]));
    }
}

/* -------------------------------------------------------------------------- refusals */

static void call_nobody(void *arg)
{
    (void)arg;
}

static void call_host(void *arg)
{
    mist_device_call_host(arg, call_nobody, NULL);
}

static void wait_for_stream(void *arg)
{
    struct mist_cuda_device *device = mist_cuda_device_of(arg);

    mist_cuda_check(device, cudaStreamSynchronize(mist_cuda_current_stream(device)),
                    "waiting");
}

static cudaStream_t added;

/* Work of a stream that nobody joined. */
static void leave_unjoined(void *arg)
{
    struct mist_cuda_device *device = mist_cuda_device_of(arg);
    cudaEvent_t event;

    assert_int_equal(cudaStreamCreateWithPriority(&added, cudaStreamNonBlocking, 0),
                     cudaSuccess);
    assert_int_equal(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                     cudaSuccess);
    assert_int_equal(cudaEventRecord(event, mist_cuda_current_stream(device)),
                     cudaSuccess);
    assert_int_equal(cudaStreamWaitEvent(added, event, 0), cudaSuccess);
    assert_int_equal(cudaEventDestroy(event), cudaSuccess);
}

/* An event that was recorded before the capture. */
static void wait_for_the_past(void *arg)
{
    struct mist_cuda_device *device = mist_cuda_device_of(arg);
    cudaStream_t stream = mist_cuda_current_stream(device);

    mist_cuda_check(device, cudaStreamWaitEvent(stream, device->milestones[0][0], 0),
                    "waiting");
}

static void allocate(void *arg)
{
    void *memory;

    mist_cuda_check(mist_cuda_device_of(arg), cudaMalloc(&memory, 1), "allocating");
}

/* The body, in a capture; then that the device is as before. */
static void refuse(mist_stream_fn body, const char *fails, const char *says)
{
    struct chain at = open_chain();
    struct mist_err err = {.message = ""};

    mist_device_reset_events(at.device, 4);
    mist_device_submit(at.device, MIST_STREAM_COMPUTE, call_nobody, NULL);
    for (int i = 0; i < MIST_CUDA_RUN_AHEAD; i++) /* to the first milestones */
        mist_device_submit(at.device, MIST_STREAM_COMPUTE, call_nobody, NULL);
    mist_emulated_cuda.fails = fails;
    mist_emulated_cuda.fails_in = 1;
    mist_emulated_cuda.fails_with = cudaErrorMemoryAllocation;
    mist_device_begin_capture(at.device);
    mist_device_submit(at.device, MIST_STREAM_COMPUTE, body, at.device);
    assert_true(mist_device_end_capture(at.device, &err) != MIST_OK);
    mist_emulated_cuda.fails = NULL;
    if (!strstr(err.message, says))
        fail_msg("%s", err.message);
    assert_int_equal(mist_emulated_graphs_count(), 0);
    give_input(&at, 3); /* as if nothing had been */
    dispatch_chain(&at, -1);
    if (mist_device_end_capture(at.device, &err) != MIST_OK)
        fail_msg("after \"%s\": %s", says, err.message);
    mist_device_replay(at.device);
    mist_device_submit(at.device, MIST_STREAM_COMPUTE, call_host, at.device);
    assert_int_equal(mist_device_synchronize(at.device, NULL), MIST_OK);
    assert_int_equal(count_mistakes(at.out, 6), 0);
    close_chain(&at);
}

TEST_WITH(test_refusals, setup, teardown)
{
    static const char *const calls[] = {
        "cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate",
        "cudaEventRecord",        "cudaStreamWaitEvent",  "cudaEventCreateWithFlags"};

    refuse(call_host, NULL, "a function of the host in the compute stream cannot be");
    refuse(wait_for_stream, NULL, "not permitted when stream is capturing");
    refuse(wait_for_the_past, NULL, "uncaptured work");
    refuse(allocate, NULL, "not permitted when stream is capturing");
    refuse(leave_unjoined, NULL, "unjoined");
    assert_int_equal(cudaStreamDestroy(added), cudaSuccess);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        refuse(call_nobody, calls[i], "out of memory");
}

/* A launch that fails fails the device as any other does. */
TEST_WITH(test_launch_fails, setup, teardown)
{
    struct chain at = open_chain();
    struct mist_err err;

    dispatch_chain(&at, -1);
    assert_int_equal(mist_device_end_capture(at.device, NULL), MIST_OK);
    mist_emulated_cuda.fails = "cudaGraphLaunch";
    mist_emulated_cuda.fails_in = 1;
    mist_emulated_cuda.fails_with = cudaErrorLaunchFailure;
    mist_device_replay(at.device);
    assert_int_equal(mist_device_synchronize(at.device, &err), MIST_ERR_RUN);
    assert_non_null(strstr(err.message, "cudaGraphLaunch"));
    close_chain(&at);
}

/* What failed on the GPU before comes out again while the device is closed. Whoever a
 * failure wakes is still there: for make sanitize-address. */
TEST_WITH(test_close_fails, setup, teardown)
{
    struct chain at = open_chain();

    dispatch_chain(&at, -1);
    assert_int_equal(mist_device_end_capture(at.device, NULL), MIST_OK);
    mist_emulated_cuda.fails = "cudaGraphExecDestroy";
    mist_emulated_cuda.fails_in = 1;
    mist_emulated_cuda.fails_with = cudaErrorIllegalAddress;
    close_chain(&at);
    assert_null(mist_emulated_cuda.fails);
}

TEST_MAIN(NULL, NULL)

#else

TEST_MAIN_SKIPPED("CUDA's headers are not installed")

#endif
