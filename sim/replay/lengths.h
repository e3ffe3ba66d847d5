/*
 * How long the sequences of a training set are, to draw from.
 *
 * Said by a text:
 *   lognormal:median=600,sigma=1.2   the logarithm of a length is normal, sigma its
 *                                    standard deviation
 *   a file                           lengths in tokens, one a line, or length,count; a
 *                                    first line with these words is skipped. Each is drawn
 *                                    as often as it is there
 */
#ifndef MIST_SIM_LENGTHS_H
#define MIST_SIM_LENGTHS_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

struct mist_lengths {
    double median, sigma; /* of a lognormal distribution; median 0: the file's */
    int32_t *lengths;     /* owned; [n] */
    int64_t *counts;      /* owned; [n] of lengths up to this one */
    size_t n;
};

/*
 * Reads what text says. MIST_ERR_USAGE: a distribution that is none; of a file
 * MIST_ERR_IO, MIST_ERR_INPUT with its line, or MIST_ERR_MEMORY. out is to be freed with
 * mist_lengths_fini after MIST_OK.
 */
MIST_MUST_CHECK enum mist_status
mist_lengths_read(const char *text, struct mist_lengths *out, struct mist_err *err);
void mist_lengths_fini(struct mist_lengths *lengths);

/* Sequence number i of a seed, 1 token at least. Every machine draws the same: e^x differs
 * in its last bit at most, and is rounded to whole tokens. */
int32_t mist_lengths_draw(const struct mist_lengths *lengths, uint64_t seed, uint64_t i);

#endif
