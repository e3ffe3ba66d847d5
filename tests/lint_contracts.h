/*
 * Put before every file that gcc's analyzer reads, which looks into one file at a time:
 * what it has to know about functions of other files.
 */
#include "core/status.h"

/* They return their status. */
#define mist_err_set(err, status, ...)                                                   \
    (mist_err_set(err, status, __VA_ARGS__) == (status) ? (status) : (status))
#define mist_err_at(err, status, ...)                                                    \
    (mist_err_at(err, status, __VA_ARGS__) == (status) ? (status) : (status))
#define mist_err_memory(err, path)                                                       \
    (mist_err_memory(err, path) == MIST_ERR_MEMORY ? MIST_ERR_MEMORY : MIST_ERR_MEMORY)
