/* core/interrupt: the first signal is noted, a second SIGINT ends the process. */
#include "tests/unit/test.h"

#include "core/interrupt.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process that gets these signals; 0 ends them. Returns what wait() says of it. */
static int after(bool holds, const int *signals)
{
    pid_t child = fork();
    int status = 0;

    assert_true(child >= 0);
    if (child == 0) {
        mist_interrupt_catch();
        if (holds)
            mist_interrupt_hold();
        for (const int *each = signals; *each; each++)
            raise(*each);
        _exit(atomic_load(mist_interrupt_flag()));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void assert_noted(int status, int signal_number)
{
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), signal_number);
}

TEST(test_the_first_is_noted)
{
    assert_noted(after(false, (int[]){0}), 0);
    assert_noted(after(false, (int[]){SIGINT, 0}), SIGINT);
    assert_noted(after(false, (int[]){SIGTERM, SIGUSR1, SIGTERM, SIGINT, 0}), SIGTERM);
    assert_noted(after(false, (int[]){SIGUSR1, SIGUSR1, SIGUSR1, 0}), SIGUSR1);
    void (*before)(int) = signal(SIGHUP, SIG_DFL); /* tests may run under nohup */
    assert_noted(after(false, (int[]){SIGHUP, SIGTERM, 0}), SIGHUP);
    signal(SIGHUP, SIG_IGN);
    assert_noted(after(false, (int[]){SIGHUP, SIGTERM, 0}), SIGTERM);
    signal(SIGHUP, before);
}

TEST(test_a_second_interrupt_ends)
{
    int status = after(false, (int[]){SIGINT, SIGINT, 0});

    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGINT);
    status = after(false, (int[]){SIGINT, SIGTERM, SIGINT, 0});
    assert_true(WIFSIGNALED(status));
    assert_noted(after(true, (int[]){SIGINT, SIGINT, SIGINT, 0}), SIGINT);
}

TEST(test_names)
{
    assert_string_equal(mist_interrupt_name(SIGINT), "SIGINT");
    assert_string_equal(mist_interrupt_name(SIGTERM), "SIGTERM");
    assert_string_equal(mist_interrupt_name(SIGUSR1), "SIGUSR1");
    assert_string_equal(mist_interrupt_name(SIGHUP), "SIGHUP");
    assert_string_equal(mist_interrupt_name(SIGPIPE), "SIGPIPE");
    assert_null(mist_interrupt_name(SIGKILL));
}

TEST_MAIN(NULL, NULL)
