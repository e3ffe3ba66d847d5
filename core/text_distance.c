/* One row of the usual table at a time. See text_distance.h. */
#include "core/text_distance.h"

#include "core/order.h"

#include <stdlib.h>
#include <string.h>

static size_t at_most(size_t n)
{
    return n < MIST_TEXT_DISTANCE_MAX ? n : MIST_TEXT_DISTANCE_MAX;
}

size_t mist_text_distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t row[MIST_TEXT_DISTANCE_MAX + 1];

    n_a = at_most(n_a);
    n_b = at_most(n_b);
    for (size_t j = 0; j <= n_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[n_b];
}

MIST_COMPARATOR(compare_near, struct mist_text_near, distance, i)

void mist_text_sort_near(struct mist_text_near *names, size_t n)
{
    if (n > 0)
        qsort(names, n, sizeof *names, compare_near);
}

bool mist_text_is_nearer(const char *name, size_t n, const char *candidate, size_t *best)
{
    size_t distance = mist_text_distance(name, n, candidate, strlen(candidate));

    if (n > MIST_TEXT_DISTANCE_MAX || distance >= *best)
        return false;
    *best = distance;
    return true;
}
