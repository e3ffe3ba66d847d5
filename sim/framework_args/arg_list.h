/*
 * Arguments as they stand in a file: names, values and lines, whatever the syntax. Keys of
 * JSON and TOML are joined by dots: "zero_optimization.stage".
 *
 *   words  Megatron-LM: what a shell would make of a command line, without variables:
 *          quotes, comments, a backslash at the end of a line. A value goes up to the next
 *          word that begins with "--". In front of the first flag, and anywhere for words
 *          that end in .py, stands the program
 *   JSON   values that are no objects; elements of an array are joined by commas
 *   TOML   tables, and pairs of a bare or dotted key with a string, number, boolean or an
 *          array of these; other parts of TOML are refused
 */
#ifndef MIST_SIM_ARG_LIST_H
#define MIST_SIM_ARG_LIST_H

#include "core/memory.h"
#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { MIST_ARG_LIST_MAX = 4096 }; /* arguments of a file */

enum mist_arg_sort { MIST_ARG_STRING, MIST_ARG_NUMBER, MIST_ARG_BOOL };

struct mist_arg_item {
    const char *name, *value; /* value NULL: none, as of a flag */
    enum mist_arg_sort sort;  /* of value; to write it */
    bool is_launcher;         /* words: of the program that starts the ranks */
    long line;
};

/* Items and their texts; zero-initialise, free by fini. */
struct mist_arg_list {
    struct mist_arg_item *items; /* [n], in the order of the file */
    size_t n, capacity;
    struct mist_arena texts;
};

void mist_arg_list_init(struct mist_arg_list *list);
void mist_arg_list_fini(struct mist_arg_list *list);

/* Appends a copy. MIST_ERR_MEMORY, MIST_ERR_INPUT: too many. */
MIST_MUST_CHECK enum mist_status mist_arg_list_add(struct mist_arg_list *list,
                                                   const struct mist_arg_item *item,
                                                   const char *path,
                                                   struct mist_err *err);

/* Reads n bytes of text; path names it in messages. */
typedef enum mist_status mist_arg_list_read(struct mist_arg_list *list, const char *path,
                                            const char *text, size_t n,
                                            struct mist_err *err);
mist_arg_list_read mist_arg_list_read_words, mist_arg_list_read_json,
    mist_arg_list_read_toml;

/* Writes all items; false: out of memory. Write errors stay in the stream. */
typedef bool mist_arg_list_write(const struct mist_arg_list *list, FILE *stream);
mist_arg_list_write mist_arg_list_write_words, mist_arg_list_write_json,
    mist_arg_list_write_toml;

#endif
