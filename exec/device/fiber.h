/*
 * A fiber: a function with a stack of its own that a thread runs in turns with its other
 * work. It goes on where it left off, and returns to whoever resumed it when it yields.
 *
 * One thread at a time; what a sanitizer has to know of stacks it is told.
 */
#ifndef MIST_EXEC_FIBER_H
#define MIST_EXEC_FIBER_H

#include "core/status.h"

struct mist_fiber;

/* fn(arg) must not return: it yields for the last time. *out is owned by the caller.
 * MIST_OK or MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status mist_fiber_new(void (*fn)(void *arg), void *arg,
                                                struct mist_fiber **out,
                                                struct mist_err *err);
void mist_fiber_free(struct mist_fiber *fiber); /* one that has yielded; NULL allowed */

/* Runs the fiber until it yields; not from inside of a fiber. */
void mist_fiber_resume(struct mist_fiber *fiber);

/* Inside of the fiber: returns when it is resumed. */
void mist_fiber_yield(struct mist_fiber *fiber);

#endif
