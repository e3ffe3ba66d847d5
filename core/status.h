/*
 * Status codes and error details: how every fallible function of Mist reports.
 *
 * A fallible function returns enum mist_status; the detail (which file, which line, what
 * is wrong and what was expected) goes to a struct mist_err that the caller owns and may
 * leave out (NULL). Nothing below main() prints or exits. The exit code of a tool is a
 * function of the status alone.
 */
#ifndef MIST_CORE_STATUS_H
#define MIST_CORE_STATUS_H

#include <stdio.h>

#define MIST_MUST_CHECK                __attribute__((warn_unused_result))
#define MIST_PRINTF(i_format, i_first) __attribute__((format(printf, i_format, i_first)))

enum mist_status {
    MIST_OK = 0,
    MIST_ERR_MEMORY,  /* the host is out of memory                       exit 1 */
    MIST_ERR_RUN,     /* the run failed: device, MPI, a rank that died   exit 1 */
    MIST_ERR_USAGE,   /* the command line is wrong                       exit 2 */
    MIST_ERR_INPUT,   /* a file or a value in it is invalid              exit 3 */
    MIST_ERR_RANGE,   /* a size or count does not fit                    exit 3 */
    MIST_ERR_NO_PLAN, /* a valid question without an answer              exit 4 */
    MIST_ERR_IO,      /* disk full, unreadable, read-only                exit 5 */
    MIST_ERR_VERIFY,  /* a check of results failed                       exit 6 */
};

struct mist_err {
    char path[256];    /* file the message is about; "" when it is about none */
    long line;         /* 1-based; 0 when unknown */
    long column;       /* 1-based; 0 when unknown */
    char message[512]; /* what is wrong, what was expected; printed on one line */
};

/* Fills err (NULL allowed) with a message that is about no file, and returns status. */
enum mist_status mist_err_set(struct mist_err *err, enum mist_status status,
                              const char *format, ...) MIST_PRINTF(3, 4);

/* The same with a place. path is copied or NULL; line and column 0 mean unknown. */
enum mist_status mist_err_at(struct mist_err *err, enum mist_status status,
                             const char *path, long line, long column, const char *format,
                             ...) MIST_PRINTF(6, 7);

/* Memory has run out, for what is at path (copied or NULL). Returns MIST_ERR_MEMORY. */
enum mist_status mist_err_memory(struct mist_err *err, const char *path);

/* "can't VERB: what errno code means". Returns MIST_ERR_IO, of ENOMEM MIST_ERR_MEMORY. */
enum mist_status mist_err_io(struct mist_err *err, const char *path, const char *verb,
                             int code);

/* Gives a message without a path the place (path, line); leaves any other alone. path NULL:
 * there is no file. */
void mist_err_locate(struct mist_err *err, const char *path, long line);

/* The process exit code that belongs to a status (0, 1, 2, 3, 4, 5 or 6). */
int mist_exit_code(enum mist_status status);

/* Prints "tool: path:line:column: message" and a newline, leaving out what is unknown;
 * control characters are escaped (escape.h). */
void mist_err_print(const struct mist_err *err, const char *tool, FILE *stream);

#endif
