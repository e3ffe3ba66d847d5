/* Programs that are started and waited for. See process.h. */
#include "core/process.h"

#include "core/clock.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

/* How long to sleep between two looks: little beside what has passed, so that the end of
 * a short program is noticed at once and a long one is left alone. */
#define LOOK_FRAC  0.01
#define LOOK_MIN_S 1e-3
#define LOOK_MAX_S 0.05

static bool may_be_ended(const struct mist_process *process)
{
    return process->stop || process->limit_s > 0;
}

/* 0 or an errno. */
static int spawn(const struct mist_process *process, pid_t *pid)
{
    const int fds[] = {process->input, process->output, process->errors};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int code = posix_spawn_file_actions_init(&actions);

    if (code != 0)
        return code;
    code = posix_spawnattr_init(&attributes);
    if (code != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return code;
    }
    if (may_be_ended(process)) /* group 0: a new one */
        code = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    for (int i = 0; i < 3 && code == 0; i++)
        code = posix_spawn_file_actions_adddup2(&actions, fds[i], i);
    if (code == 0)
        code = posix_spawnp(pid, process->words[0], &actions, &attributes, process->words,
                            environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

static bool is_stopped(const struct mist_process *process)
{
    return process->stop && atomic_load(process->stop) != 0;
}

static void sleep_after(double passed_s)
{
    double time_s = LOOK_FRAC * passed_s;

    mist_clock_sleep_s(time_s < LOOK_MIN_S   ? LOOK_MIN_S
                       : time_s > LOOK_MAX_S ? LOOK_MAX_S
                                             : time_s);
}

/* Waits for the program, or only looks; false: it still runs. */
static bool has_ended(pid_t pid, bool waits, struct mist_process_result *result)
{
    int status = 0;
    pid_t found;

    do
        found = waitpid(pid, &status, waits ? 0 : WNOHANG);
    while (found < 0 && errno == EINTR);
    if (found == 0)
        return false;
    if (found < 0)
        *result = (struct mist_process_result){MIST_PROCESS_LOST, errno};
    else if (WIFSIGNALED(status))
        *result = (struct mist_process_result){MIST_PROCESS_SIGNALED, WTERMSIG(status)};
    else
        *result = (struct mist_process_result){MIST_PROCESS_EXITED, WEXITSTATUS(status)};
    return true;
}

/* Ends the group of a program and waits until all of it is gone. */
static void end_group(pid_t pid)
{
    double time_start_s = mist_clock_now_s();
    struct mist_process_result result;
    bool is_reaped = false, is_killed = false;

    kill(-pid, SIGTERM);
    for (;;) {
        double passed_s = mist_clock_now_s() - time_start_s;
        is_reaped = is_reaped || has_ended(pid, false, &result);
        if (is_reaped && (is_killed || kill(-pid, 0) != 0))
            return;
        if (!is_killed && passed_s > MIST_PROCESS_GRACE_S) {
            kill(-pid, SIGKILL);
            is_killed = true;
        }
        sleep_after(passed_s);
    }
}

struct mist_process_result mist_process_run(const struct mist_process *process)
{
    struct mist_process_result result = {MIST_PROCESS_STOPPED, 0};
    double time_start_s = mist_clock_now_s(), passed_s = 0;
    pid_t pid;

    if (is_stopped(process))
        return result;
    int code = spawn(process, &pid);
    if (code != 0)
        return (struct mist_process_result){MIST_PROCESS_NOT_STARTED, code};
    while (!has_ended(pid, !may_be_ended(process), &result)) {
        passed_s = mist_clock_now_s() - time_start_s;
        if (is_stopped(process) ||
            (process->limit_s > 0 && passed_s > process->limit_s)) {
            result.end =
                is_stopped(process) ? MIST_PROCESS_STOPPED : MIST_PROCESS_OVER_LIMIT;
            end_group(pid);
            break;
        }
        sleep_after(passed_s);
    }
    return result;
}

char *mist_process_read_tail(FILE *file, char *text, size_t size)
{
    long length = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : 0;
    long n = length < 0 ? 0 : length < (long)size ? length : (long)size - 1;

    text[0] = '\0';
    if (n == 0 || fseek(file, length - n, SEEK_SET) != 0)
        return text;
    text[fread(text, 1, (size_t)n, file)] = '\0';
    char *line = n < length ? strchr(text, '\n') : NULL; /* the first may be cut */
    if (line && line[strspn(line, " \r\n")] != '\0')
        memmove(text, line + 1, strlen(line));
    size_t used = 0;
    for (const char *at = text; *at; at++) {
        bool is_blank = (unsigned char)*at <= ' ' || *at == 0x7F;
        if (!is_blank || (used > 0 && text[used - 1] != ' '))
            text[used++] = is_blank ? ' ' : *at;
    }
    text[used > 0 && text[used - 1] == ' ' ? used - 1 : used] = '\0';
    return text;
}
