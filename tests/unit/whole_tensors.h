/*
 * Whole tensors of a checkpoint that is open: which there are, and ranges of their
 * elements. Needs no cmocka.
 */
#ifndef MIST_TESTS_UNIT_WHOLE_TENSORS_H
#define MIST_TESTS_UNIT_WHOLE_TENSORS_H

#include "exec/checkpoint/checkpoint_internal.h"

/* In the order of their names (strcmp); 0 <= i < n. */
static inline int32_t whole_n_tensors(const struct mist_checkpoint *checkpoint)
{
    return checkpoint->n_tensors;
}

static inline const char *whole_name(const struct mist_checkpoint *checkpoint, int32_t i)
{
    return checkpoint->tensors[i].name;
}

/* -1: there is none of that name. */
static inline int64_t whole_n_elements(const struct mist_checkpoint *checkpoint,
                                       const char *name)
{
    const struct checkpoint_tensor *found = checkpoint_find(checkpoint, name);

    return found ? found->n_elements : -1;
}

/* Elements first .. first + n - 1, n >= 0, to out[n]. */
static inline enum mist_status whole_read(struct mist_checkpoint *checkpoint,
                                          const char *name, int64_t first, int64_t n,
                                          float *out, struct mist_err *err)
{
    const struct mist_param_span span = {.global_first = first, .length = n, .n_runs = 1};

    return mist_checkpoint_read_spans(checkpoint, name, &span, n > 0, out, err);
}

#endif
