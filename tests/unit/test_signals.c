/*
 * Signals while products are computed: nothing but the flag changes. oneDNN points the stack
 * pointer into the heap, so a handler must not run on the stack that it finds.
 */
#include "tests/unit/test.h"

#include "core/clock.h"
#include "core/interrupt.h"
#include "exec/device/device.h"
#include "exec/operators/cpu_kernels.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 256, N_IN = 192, N_OUT = 256 };

static float x[ROWS * N_IN], dy[ROWS * N_OUT], weight[N_OUT * N_IN];
static float y[2][ROWS * N_OUT], dx[2][ROWS * N_IN], dweight[2][N_OUT * N_IN];

/* All three products of a linear layer. */
static void compute(int i)
{
    memset(dweight[i], 0, sizeof dweight[i]);
    mist_cpu_linear_forward(NULL, y[i], x, weight, NULL, NULL, ROWS, N_IN, N_OUT, 1);
    mist_cpu_linear_backward_input(NULL, dx[i], dy, weight, NULL, ROWS, N_IN, N_OUT, 1);
    mist_cpu_linear_backward_weight(NULL, dweight[i], NULL, dy, x, ROWS, N_IN, N_OUT, 1,
                                    0);
}

/* Sends signals as fast as they come, until it is ended. */
static pid_t start_sender(pid_t to)
{
    pid_t sender = fork();

    if (sender == 0)
        while (getppid() == to) {
            kill(to, SIGUSR1);
            mist_clock_sleep_s(50e-6);
        }
    if (sender == 0)
        _exit(0);
    return sender;
}

/* 0: as without signals. */
static int compute_under_signals(double time_s)
{
    double end_s = mist_clock_now_s() + time_s;

    compute(0);
    mist_interrupt_catch();
    pid_t sender = start_sender(getpid());
    while (mist_clock_now_s() < end_s ||
           (!atomic_load(mist_interrupt_flag()) && mist_clock_now_s() < end_s + 60)) {
        void *room = malloc(100); /* looks at what lies beside it */
        compute(1);
        free(room);
        if (memcmp(y[0], y[1], sizeof *y) != 0 || memcmp(dx[0], dx[1], sizeof *dx) != 0 ||
            memcmp(dweight[0], dweight[1], sizeof *dweight) != 0)
            return 2;
    }
    kill(sender, SIGKILL);
    waitpid(sender, NULL, 0);
    return atomic_load(mist_interrupt_flag()) == SIGUSR1 ? 0 : 3;
}

/* What a child comes to. */
static void assert_child(int (*run)(void))
{
    pid_t child = fork();
    int status = 0;

    assert_true(child >= 0);
    if (child == 0)
        _exit(run());
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        fail_msg("ended by signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int compute_for_a_while(void)
{
    return compute_under_signals(2);
}

TEST(test_products_are_the_same_under_signals)
{
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)(i % 13) - 6;
    for (size_t i = 0; i < sizeof dy / sizeof *dy; i++)
        dy[i] = (float)(i % 11) - 5;
    for (size_t i = 0; i < sizeof weight / sizeof *weight; i++)
        weight[i] = (float)(i % 7) - 3;
    assert_child(compute_for_a_while);
}

/* Opens a device, and sends this process a signal that its first thread has put off: it
 * stays where it is unless another thread takes it. */
static int send_beside_a_device(bool takes_turns)
{
    struct mist_device_config config = {.arena_bytes = {1 << 20, 1 << 20},
                                        .threads = 2,
                                        .streams_take_turns = takes_turns};
    struct mist_device *device;
    struct mist_err err;
    sigset_t signals, pending;

    mist_interrupt_catch();
    if (mist_device_open_cpu(&config, &device, &err) != MIST_OK)
        return 2;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    kill(getpid(), SIGTERM);
    mist_clock_sleep_s(0.1);
    sigpending(&pending);
    if (!sigismember(&pending, SIGTERM) || atomic_load(mist_interrupt_flag()))
        return 3;
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
    mist_device_close(device);
    return atomic_load(mist_interrupt_flag()) == SIGTERM ? 0 : 4;
}

static int send_beside_streams(void)
{
    return send_beside_a_device(false);
}

static int send_beside_turns(void)
{
    return send_beside_a_device(true);
}

TEST(test_threads_of_a_device_take_no_signals)
{
    assert_child(send_beside_streams);
    assert_child(send_beside_turns);
}

TEST_MAIN(NULL, NULL)
