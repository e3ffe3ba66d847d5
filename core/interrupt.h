/*
 * Signals: which ones a tool outlives, so that what it has done so far is kept.
 *
 * SIGINT (Ctrl-C), SIGTERM and SIGUSR1 (schedulers send them before the time limit) and
 * SIGHUP (the terminal is gone; not under nohup) set a flag that long work looks at; the
 * tool then saves what it has and ends with 128 + the signal. They can come again without
 * harm, but a second SIGINT ends the process at once, as it ends one that handles no
 * signals: files that were being written stay temporary.
 * Only main() calls what changes how signals are handled; this flag is the one variable
 * of the program that belongs to the process, as signals do.
 *
 * Handlers have a stack of their own. oneDNN's products of fp32 point the stack pointer
 * into their workspace, below which lie other blocks of the heap: a handler on the stack
 * of the thread that it interrupts would write over them. Only the thread of main() has
 * that stack, so threads that compute take no signals.
 */
#ifndef MIST_CORE_INTERRUPT_H
#define MIST_CORE_INTERRUPT_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

/*
 * What main() calls first. SIGXFSZ is ignored from here on, also by programs that this one
 * starts: a write beyond the limit of a file's size fails (EFBIG) like one to a full disk.
 * Standard streams that are closed fail to be written, too (EBADF): the first file that is
 * opened would else get their descriptor, and what is printed.
 */
void mist_interrupt_settle(void);

/* From here on those signals set the flag, by handlers that have a stack of their own
 * on the calling thread. */
void mist_interrupt_catch(void);

/* So does SIGPIPE: who reads what is printed is gone, which is no reason to lose work. */
void mist_interrupt_catch_pipe(void);

/* From here on a second SIGINT waits, too: the last results are being saved. */
void mist_interrupt_hold(void);

/* The signal that came first, 0: none yet. Valid all the time, for any thread. */
const atomic_int *mist_interrupt_flag(void);

/* pthread_create() of a thread that gets none of the process's signals, nor do threads that
 * it starts; only what it does wrong itself (SIGSEGV) reaches it. */
int mist_interrupt_start_thread(pthread_t *thread, void *(*run)(void *), void *context);

/* Signals wait until mist_interrupt_admit(): threads that are started between the two, by
 * whatever library, never get any. */
void mist_interrupt_keep_off(sigset_t *before);
void mist_interrupt_admit(const sigset_t *before);

/* "SIGTERM"; static. NULL: none of those that are caught. */
const char *mist_interrupt_name(int signal_number);

#endif
