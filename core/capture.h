/*
 * A program that is run for what it prints: it reads nothing, and what it writes goes into
 * files without a name, so that nobody has to read while it writes.
 *
 *     struct mist_capture capture;
 *     status = mist_capture_open(&capture, err);
 *     result = mist_capture_run(&capture, command.words, 0, NULL);
 *     status = mist_capture_read(&capture, NULL, "iteration_s", 0, 1e9, &time_s, err);
 *     mist_capture_close(&capture);
 */
#ifndef MIST_CORE_CAPTURE_H
#define MIST_CORE_CAPTURE_H

#include "core/json.h"
#include "core/process.h"
#include "core/status.h"

struct mist_capture {
    FILE *output, *errors;
    int nothing; /* what it reads */
};

/* MIST_ERR_IO: there is no temporary file. To be closed also then. */
MIST_MUST_CHECK enum mist_status mist_capture_open(struct mist_capture *out,
                                                   struct mist_err *err);
void mist_capture_close(struct mist_capture *capture);

/* Runs a program once; words, limit_s and stop as in struct mist_process. */
struct mist_process_result mist_capture_run(const struct mist_capture *capture,
                                            char *const *words, double limit_s,
                                            const atomic_int *stop);

/* A number from min to max of the JSON that it printed: of its root, or of an object there
 * (NULL: none). MIST_ERR_INPUT, MIST_ERR_IO or MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status mist_capture_read(const struct mist_capture *capture,
                                                   const char *object, const char *key,
                                                   double min, double max, double *out,
                                                   struct mist_err *err);

/* How a program ended: "failed with exit code 3". Returns text. */
char *mist_capture_describe(const struct mist_process_result *result, double limit_s,
                            char *text, size_t size);

#endif
