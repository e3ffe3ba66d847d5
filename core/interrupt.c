/* Signals that end a tool. See interrupt.h. */
#define _DEFAULT_SOURCE /* sigaltstack */
#include "core/interrupt.h"

#include <fcntl.h>
#include <stddef.h>
#include <unistd.h>

enum { STACK_BYTES = 1 << 16 }; /* a frame takes 11 KiB where registers are largest */

static atomic_int first_signal;
static _Alignas(16) char stack[STACK_BYTES];

static void note(int signal_number)
{
    int none = 0;

    atomic_compare_exchange_strong(&first_signal, &none, signal_number);
}

static void handle(int signal_number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags | SA_ONSTACK};

    sigemptyset(&action.sa_mask);
    sigaction(signal_number, &action, 0);
}

void mist_interrupt_settle(void)
{
    handle(SIGXFSZ, SIG_IGN, 0);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", O_RDONLY); /* becomes fd, the lowest that is free */
}

/* Unless the thread has one, of a sanitizer. */
static void give_stack(void)
{
    stack_t now, own = {.ss_sp = stack, .ss_size = sizeof stack};

    if (sigaltstack(NULL, &now) == 0 && (now.ss_flags & SS_DISABLE))
        sigaltstack(&own, NULL);
}

void mist_interrupt_catch(void)
{
    struct sigaction hang_up;

    give_stack();
    handle(SIGINT, note, SA_RESTART | (int)SA_RESETHAND);
    handle(SIGTERM, note, SA_RESTART);
    handle(SIGUSR1, note, SA_RESTART);
    if (sigaction(SIGHUP, NULL, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN)
        handle(SIGHUP, note, SA_RESTART);
}

void mist_interrupt_catch_pipe(void)
{
    handle(SIGPIPE, note, SA_RESTART);
}

void mist_interrupt_hold(void)
{
    handle(SIGINT, note, SA_RESTART);
}

void mist_interrupt_keep_off(sigset_t *before)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t all;

    sigfillset(&all);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&all, own[i]);
    pthread_sigmask(SIG_BLOCK, &all, before);
}

void mist_interrupt_admit(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

int mist_interrupt_start_thread(pthread_t *thread, void *(*run)(void *), void *context)
{
    sigset_t before;

    mist_interrupt_keep_off(&before);
    int code = pthread_create(thread, NULL, run, context);
    mist_interrupt_admit(&before);
    return code;
}

const atomic_int *mist_interrupt_flag(void)
{
    return &first_signal;
}

const char *mist_interrupt_name(int signal_number)
{
    static const struct {
        int number;
        const char *name;
    } caught[] = {{SIGINT, "SIGINT"},
                  {SIGTERM, "SIGTERM"},
                  {SIGUSR1, "SIGUSR1"},
                  {SIGHUP, "SIGHUP"},
                  {SIGPIPE, "SIGPIPE"}};

    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        if (caught[i].number == signal_number)
            return caught[i].name;
    return NULL;
}
