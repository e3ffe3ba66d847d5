/*
 * Programs that are started, waited for and, if need be, ended.
 *
 * A program gets descriptors for what it reads and writes, of files without a name
 * usually, so that nobody has to read while it writes. There is no shell.
 *
 * A program that may be ended (stop, limit_s) leads a process group of its own, so a
 * Ctrl-C at the terminal reaches this process alone, which then ends the group: SIGTERM,
 * once, since a second one makes Open MPI's mpirun leave without its ranks; and SIGKILL
 * for what is still there MIST_PROCESS_GRACE_S later. Nothing of the group is left when
 * mist_process_run() returns from that.
 */
#ifndef MIST_CORE_PROCESS_H
#define MIST_CORE_PROCESS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

#define MIST_PROCESS_GRACE_S 10.0

struct mist_process {
    char *const *words; /* borrowed; the command, NULL-terminated, found as by execvp() */
    int input, output, errors; /* descriptors */
    double limit_s;            /* of its time; 0: none */
    const atomic_int *stop;    /* borrowed; it is ended when this is not 0; NULL: never */
};

enum mist_process_end {
    MIST_PROCESS_EXITED,      /* number: its exit code */
    MIST_PROCESS_SIGNALED,    /* number: the signal that ended it */
    MIST_PROCESS_NOT_STARTED, /* number: an errno */
    MIST_PROCESS_LOST,        /* nobody knows how it ended; number: an errno */
    MIST_PROCESS_OVER_LIMIT,  /* it was ended for its time */
    MIST_PROCESS_STOPPED,     /* it was ended by stop, or not started any more */
};

struct mist_process_result {
    enum mist_process_end end;
    int number;
};

/* Starts a program and waits for its end. */
struct mist_process_result mist_process_run(const struct mist_process *process);

/*
 * The last lines of a file, as many as fit into text[size], on one line: blanks and control
 * characters are one blank. "" for an empty file. Returns text.
 */
char *mist_process_read_tail(FILE *file, char *text, size_t size);

#endif
