/*
 * How far two names are apart: what somebody may have meant by a name that does not exist.
 */
#ifndef MIST_CORE_TEXT_DISTANCE_H
#define MIST_CORE_TEXT_DISTANCE_H

#include <stdbool.h>
#include <stddef.h>

#define MIST_TEXT_DISTANCE_MAX 64 /* bytes of a text that are looked at */

/* Levenshtein distance of two texts of n_a and n_b bytes: characters put in, taken out or
 * changed. Of longer texts the first MIST_TEXT_DISTANCE_MAX bytes count. O(n_a n_b). */
size_t mist_text_distance(const char *a, size_t n_a, const char *b, size_t n_b);

/* The distance from which on another name is no misspelling of one of n bytes. */
static inline size_t mist_text_too_far(size_t n)
{
    return n / 3 + 2;
}

/* One of several names, and how far it is from what was asked for. */
struct mist_text_near {
    int i;
    size_t distance;
};

/* The nearest first; those equally near by i. */
void mist_text_sort_near(struct mist_text_near *names, size_t n);

/* Whether a candidate is nearer to a name of n bytes than *best, which then is its distance;
 * before the first candidate *best is mist_text_too_far(). */
bool mist_text_is_nearer(const char *name, size_t n, const char *candidate, size_t *best);

#endif
