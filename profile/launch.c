/* Starting again under mpirun. See launch.h. */
#include "profile/launch.h"

#include "core/clock.h"
#include "core/command.h"
#include "core/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_S  0.05 /* between two looks whether mpirun has ended */
#define AGAIN_S 0.5  /* between two signals: mpirun drops those before it has ranks */
#define LEAVE_S 2.0  /* from another SIGINT on, for what is ending anyway */

static const char own_name[] = "MIST_PROFILE_LAUNCHED"; /* in the ranks' environment */

bool mist_launch_is_own(void)
{
    return getenv(own_name) != NULL;
}

/*
 * The child's part: becomes the command, or writes an errno to report. In a group of its
 * own, so a Ctrl-C at the terminal reaches the parent alone; off the terminal's input,
 * which such a group may not read; and with SIGTERM once the parent is gone.
 */
static void become(char *const *words, pid_t parent, int report)
{
    int null = open("/dev/null", O_RDONLY);

    if (null >= 0)
        dup2(null, STDIN_FILENO);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent)
        execvp(words[0], words);
    int code = errno;
    (void)!write(report, &code, sizeof code);
    _exit(127);
}

/* Starts the command; *pid is to be waited for. 0 or an errno. */
static int start(char *const *words, pid_t *pid)
{
    pid_t parent = getpid();
    int report[2], code = 0;

    if (pipe(report) != 0)
        return errno;
    for (int i = 0; i < 2; i++) /* closed when the command has begun */
        fcntl(report[i], F_SETFD, FD_CLOEXEC);
    *pid = fork();
    if (*pid == 0)
        become(words, parent, report[1]);
    int fork_code = errno;
    close(report[1]);
    if (*pid > 0 && read(report[0], &code, sizeof code) == sizeof code)
        waitpid(*pid, NULL, 0);
    close(report[0]);
    return *pid < 0 ? fork_code : code;
}

/* Whether a SIGINT waits to be delivered. */
static bool has_other_interrupt(void)
{
    sigset_t pending;

    return sigpending(&pending) == 0 && sigismember(&pending, SIGINT) == 1;
}

/* When what is next to do is due; INFINITY: never. */
struct stopping {
    double time_again_s; /* for telling the ranks to stop */
    double time_end_s;   /* for telling mpirun to end them */
    bool is_hasty;       /* another SIGINT has come */
};

/*
 * Passes signals on, once one has come. Another SIGINT, which from now on is only looked
 * for, goes to mpirun as what ends the ranks at once. Just once: mpirun takes a second one
 * as leave to go without them, and one while it ends them because they stopped, too.
 */
static void stop(pid_t pid, struct stopping *stopping)
{
    double now_s = mist_clock_now_s();
    sigset_t interrupt;

    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, NULL);
    if (!stopping->is_hasty && has_other_interrupt()) {
        stopping->is_hasty = true;
        stopping->time_end_s = now_s + LEAVE_S;
    }
    if (now_s >= stopping->time_end_s) {
        kill(pid, SIGTERM);
        stopping->time_again_s = stopping->time_end_s = INFINITY;
    } else if (now_s >= stopping->time_again_s) {
        kill(pid, SIGUSR1);
        stopping->time_again_s = now_s + AGAIN_S;
    }
}

/* Waits for the command and passes signals on. */
static struct mist_launch_end await(pid_t pid)
{
    const atomic_int *flag = mist_interrupt_flag();
    struct stopping stopping = {.time_end_s = INFINITY};
    int status = 0;
    pid_t found;

    while ((found = waitpid(pid, &status, WNOHANG)) == 0 ||
           (found < 0 && errno == EINTR)) {
        if (atomic_load(flag) != 0)
            stop(pid, &stopping);
        mist_clock_sleep_s(LOOK_S);
    }
    return (struct mist_launch_end){.code = found < 0             ? 1
                                            : WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                                                  : WEXITSTATUS(status),
                                    .stop_signal = atomic_load(flag)};
}

static enum mist_status run(char *const *words, struct mist_launch_end *end,
                            struct mist_err *err)
{
    pid_t pid = 0;

    if (setenv(own_name, "1", 1) != 0)
        return mist_err_memory(err, NULL);
    mist_interrupt_catch();
    int code = start(words, &pid);
    if (code == ENOENT)
        return mist_err_set(err, MIST_ERR_RUN,
                            "mpirun is not installed, which several ranks need; "
                            "on Debian: apt install openmpi-bin; or use --ranks 1");
    if (code != 0)
        return mist_err_set(err, MIST_ERR_RUN, "mpirun can't be started: %s",
                            strerror(code));
    *end = await(pid);
    return MIST_OK;
}

enum mist_status mist_launch_ranks(int32_t n_ranks, int32_t n_processors, int argc,
                                   char **argv, const char *const *extra, int n_extra,
                                   struct mist_launch_end *end, struct mist_err *err)
{
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    struct mist_command command;

    self[length > 0 ? length : 0] = '\0';
    mist_command_init(&command);
    mist_command_add_mpirun(&command, n_ranks, n_processors);
    mist_command_add(&command, length > 0 ? self : argv[0]);
    for (int i = 1; i < argc; i++)
        mist_command_add(&command, argv[i]);
    for (int i = 0; i < n_extra; i++)
        mist_command_add(&command, extra[i]);
    enum mist_status status = mist_command_end(&command, err);
    if (status == MIST_OK)
        status = run(command.words, end, err);
    mist_command_fini(&command);
    return status;
}
