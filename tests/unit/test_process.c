/* core/process: programs that end, that don't, that can't be started; what they wrote. */
#include "tests/unit/test.h"

#include "core/clock.h"
#include "core/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

struct world {
    int nothing;
    FILE *output, *errors;
};

static int set_up(void **state)
{
    struct world *at = calloc(1, sizeof *at);

    assert_non_null(at);
    at->nothing = open("/dev/null", O_RDONLY);
    at->output = tmpfile();
    at->errors = tmpfile();
    assert_non_null(at->output);
    assert_non_null(at->errors);
    *state = at;
    return 0;
}

static int tear_down(void **state)
{
    struct world *at = *state;

    close(at->nothing);
    fclose(at->output);
    fclose(at->errors);
    free(at);
    return 0;
}

static struct mist_process_result run(const struct world *at, char *const *words,
                                      double limit_s, const atomic_int *stop)
{
    const struct mist_process process = {.words = words,
                                         .input = at->nothing,
                                         .output = fileno(at->output),
                                         .errors = fileno(at->errors),
                                         .limit_s = limit_s,
                                         .stop = stop};
    return mist_process_run(&process);
}

static struct mist_process_result run_script(const struct world *at, const char *script,
                                             double limit_s, const atomic_int *stop)
{
    char *words[] = {"sh", "-c", (char *)(uintptr_t)script, NULL};

    return run(at, words, limit_s, stop);
}

static void assert_ends(struct mist_process_result result, enum mist_process_end end,
                        int number)
{
    assert_int_equal(result.end, end);
    assert_int_equal(result.number, number);
}

/* The text that a program wrote, a number, which is that of a process. */
static pid_t read_pid(FILE *file)
{
    char text[64];

    return (pid_t)strtol(mist_process_read_tail(file, text, sizeof text), NULL, 10);
}

TEST_WITH(test_ends, set_up, tear_down)
{
    const struct world *at = *state;
    static atomic_int stop;

    assert_ends(run_script(at, "exit 0", 0, NULL), MIST_PROCESS_EXITED, 0);
    assert_ends(run_script(at, "exit 7", 0, NULL), MIST_PROCESS_EXITED, 7);
    assert_ends(run_script(at, "exit 7", 60, &stop), MIST_PROCESS_EXITED, 7);
    assert_ends(run_script(at, "kill -KILL $$", 0, NULL), MIST_PROCESS_SIGNALED, SIGKILL);
    assert_ends(run_script(at, "kill -TERM $$", 60, &stop), MIST_PROCESS_SIGNALED,
                SIGTERM);
}

TEST_WITH(test_is_not_started, set_up, tear_down)
{
    char *missing[] = {"mist-no-such-program", NULL}, *folder[] = {"/tmp", NULL};

    assert_ends(run(*state, missing, 0, NULL), MIST_PROCESS_NOT_STARTED, ENOENT);
    assert_ends(run(*state, folder, 60, NULL), MIST_PROCESS_NOT_STARTED, EACCES);
}

TEST_WITH(test_reads_and_writes, set_up, tear_down)
{
    const struct world *at = *state;
    char text[64];

    assert_ends(run_script(at, "cat; echo result; echo complaint >&2", 0, NULL),
                MIST_PROCESS_EXITED, 0);
    assert_string_equal(mist_process_read_tail(at->output, text, sizeof text), "result");
    assert_string_equal(mist_process_read_tail(at->errors, text, sizeof text),
                        "complaint");
}

/* All that a program has started is gone with it, and did not wait for its own end. */
TEST_WITH(test_limit, set_up, tear_down)
{
    const struct world *at = *state;
    double time_start_s = mist_clock_now_s();

    assert_ends(run_script(at, "sleep 600 & echo $!; wait", 2, NULL),
                MIST_PROCESS_OVER_LIMIT, 0);
    assert_true(mist_clock_now_s() - time_start_s < 300);
    pid_t child = read_pid(at->output);
    assert_true(child > 1);
    assert_int_equal(kill(child, 0), -1);
    assert_int_equal(errno, ESRCH);
}

static atomic_int stop_by_signal;

static void note(int signal_number)
{
    atomic_store(&stop_by_signal, signal_number);
}

/* Runs a script, in which $1 is this process, until it sends SIGUSR1. */
static void run_until_signal(const struct world *at, const char *script)
{
    char self[16];
    char *words[] = {"sh", "-c", (char *)(uintptr_t)script, "sh", self, NULL};

    snprintf(self, sizeof self, "%d", (int)getpid());
    atomic_store(&stop_by_signal, 0);
    signal(SIGUSR1, note);
    assert_ends(run(at, words, 0, &stop_by_signal), MIST_PROCESS_STOPPED, 0);
    signal(SIGUSR1, SIG_DFL);
}

/* A program that cleans up on SIGTERM has the time for that, and gets it once. */
TEST_WITH(test_ends_gently, set_up, tear_down)
{
    const struct world *at = *state;
    char text[64];

    run_until_signal(at, "trap 'echo asked; sleep 0.5; echo cleaned; exit' TERM; "
                         "echo ready; kill -USR1 $1; while :; do sleep 0.05; done");
    assert_string_equal(mist_process_read_tail(at->output, text, sizeof text),
                        "ready asked cleaned");
}

/* One that does not listen is killed. */
TEST_WITH(test_kills, set_up, tear_down)
{
    const struct world *at = *state;

    run_until_signal(at,
                     "trap '' TERM; echo $$; kill -USR1 $1; while :; do sleep 0.1; done");
    assert_int_equal(kill(read_pid(at->output), 0), -1);
}

/* The next program is not begun. */
TEST_WITH(test_is_stopped, set_up, tear_down)
{
    const struct world *at = *state;
    char text[64];

    run_until_signal(at, "echo $$; kill -USR1 $1; exec sleep 600");
    assert_int_equal(kill(read_pid(at->output), 0), -1);
    rewind(at->output);
    assert_int_equal(ftruncate(fileno(at->output), 0), 0);
    assert_ends(run_script(at, "echo begun", 0, &stop_by_signal), MIST_PROCESS_STOPPED,
                0);
    assert_string_equal(mist_process_read_tail(at->output, text, sizeof text), "");
}

/* Only what may be ended is in a group of its own: others get the terminal's signals. */
TEST_WITH(test_group, set_up, tear_down)
{
    const struct world *at = *state;
    char script[128];
    static atomic_int stop;

    snprintf(script, sizeof script, "[ $(ps -o pgid= -p $$) = %d ]", (int)getpgrp());
    assert_ends(run_script(at, script, 0, NULL), MIST_PROCESS_EXITED, 0);
    assert_ends(run_script(at, script, 0, &stop), MIST_PROCESS_EXITED, 1);
}

TEST_WITH(test_tail, set_up, tear_down)
{
    const struct world *at = *state;
    char text[12];

    fputs("the first\n\033[1mne  xt\n\n", at->output);
    assert_string_equal(mist_process_read_tail(at->output, text, sizeof text),
                        "[1mne xt");
    rewind(at->output);
    fputs("all of one line that is too long", at->output);
    assert_string_equal(mist_process_read_tail(at->output, text, sizeof text),
                        "is too long");
}

TEST_MAIN(NULL, NULL)
