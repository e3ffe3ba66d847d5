/* The tree that the calls of core/emit build, and how it is printed.
 * Private to core/emit. */
#ifndef MIST_CORE_EMIT_TREE_H
#define MIST_CORE_EMIT_TREE_H

#include "core/emit.h"
#include "core/memory.h"

#include <stddef.h>

enum mist_emit_node_kind {
    NODE_OBJECT,
    NODE_LIST,
    NODE_INT64,
    NODE_DOUBLE,
    NODE_BOOL,
    NODE_TEXT
};

struct mist_emit_node {
    enum mist_emit_node_kind kind;
    enum mist_human_format format;
    const char *key;   /* NULL in a list */
    const char *label; /* for people; a container's title, which may be NULL */
    int64_t whole;     /* also a bool */
    double real;
    const char *text; /* NULL: null */
    struct mist_emit_node *parent, *first, *last, *next;
};

struct mist_emit {
    enum mist_emit_kind kind;
    FILE *stream;
    struct mist_arena arena;
    struct mist_emit_node root;
    struct mist_emit_node *open; /* innermost container */
    bool is_out_of_memory;
    bool has_block; /* people: something is printed already */
};

/* From the arena, zeroed. NULL: out of memory, which emit remembers. */
void *mist_emit_alloc(struct mist_emit *emit, size_t n);

/* A copy in the arena; "" when out of memory. */
const char *mist_emit_copy(struct mist_emit *emit, const char *text);

/* Print the tree; write errors stay in the stream. */
void mist_emit_print_csv(struct mist_emit *emit);
void mist_emit_print_human(struct mist_emit *emit);

#endif
