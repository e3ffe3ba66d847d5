/* Lists of words that stand for the values of an enum. Private to traces/. */
#ifndef MIST_TRACES_WORDS_H
#define MIST_TRACES_WORDS_H

#include <stdbool.h>
#include <string.h>

/* Index of name in a NULL-terminated list, or -1. */
static inline int mist_words_find(const char *const *words, const char *name)
{
    for (int i = 0; words[i]; i++)
        if (strcmp(words[i], name) == 0)
            return i;
    return -1;
}

/* [a-z][a-z0-9_]* with fewer than max characters: names of operators and dimensions. */
static inline bool mist_words_is_name(const char *name, size_t max)
{
    size_t n = 0;

    for (; name[n]; n++) {
        bool is_letter = name[n] >= 'a' && name[n] <= 'z';
        bool is_other = (name[n] >= '0' && name[n] <= '9') || name[n] == '_';
        if (n + 1 >= max || !(is_letter || (n > 0 && is_other)))
            return false;
    }
    return n > 0;
}

#endif
