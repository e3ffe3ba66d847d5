/* Signals that end a tool. See interrupt.h. */
#include "core/interrupt.h"

#include <signal.h>

static atomic_int first_signal;

static void note(int signal_number)
{
    int none = 0;

    atomic_compare_exchange_strong(&first_signal, &none, signal_number);
}

static void handle(int signal_number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

    sigemptyset(&action.sa_mask);
    sigaction(signal_number, &action, 0);
}

void mist_interrupt_ignore_file_size(void)
{
    handle(SIGXFSZ, SIG_IGN, 0);
}

void mist_interrupt_catch(void)
{
    handle(SIGINT, note, SA_RESTART | (int)SA_RESETHAND);
    handle(SIGTERM, note, SA_RESTART);
    handle(SIGUSR1, note, SA_RESTART);
}

void mist_interrupt_hold(void)
{
    handle(SIGINT, note, SA_RESTART);
}

const atomic_int *mist_interrupt_flag(void)
{
    return &first_signal;
}

const char *mist_interrupt_name(int signal_number)
{
    return signal_number == SIGINT    ? "SIGINT"
           : signal_number == SIGTERM ? "SIGTERM"
                                      : "SIGUSR1";
}
