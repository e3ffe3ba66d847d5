/*
 * One set of calls, three ways to print. See emit.h.
 *
 * The calls build a tree in an arena (emit_tree.h); the end prints it. Tables are in
 * emit_print.c.
 */
#include "core/emit.h"

#include "core/emit_tree.h"
#include "core/escape.h"
#include "core/json.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- building ---- */

enum mist_status mist_emit_begin(struct mist_emit **out, enum mist_emit_kind kind,
                                 FILE *stream, struct mist_err *err)
{
    struct mist_emit *emit = calloc(1, sizeof *emit);

    if (!emit)
        return mist_err_memory(err, NULL);
    emit->kind = kind;
    emit->stream = stream;
    mist_arena_init(&emit->arena);
    emit->root.kind = NODE_OBJECT;
    emit->open = &emit->root;
    *out = emit;
    return MIST_OK;
}

void *mist_emit_alloc(struct mist_emit *emit, size_t n)
{
    void *memory = mist_arena_alloc(&emit->arena, n);

    if (!memory)
        emit->is_out_of_memory = true;
    return memory;
}

/* Jansson escapes for itself. */
const char *mist_emit_copy(struct mist_emit *emit, const char *text)
{
    bool is_json = emit->kind == MIST_EMIT_JSON;
    size_t n = strlen(text);
    char *copy = mist_emit_alloc(emit, (is_json ? n : MIST_ESCAPED_BYTES(n)) + 1);

    if (!copy)
        return "";
    return is_json ? strcpy(copy, text) : mist_escape(text, copy);
}

/* Appends a node to the open container; NULL when out of memory. */
static struct mist_emit_node *add_node(struct mist_emit *emit,
                                       enum mist_emit_node_kind kind, const char *key,
                                       const char *label)
{
    struct mist_emit_node *node = mist_emit_alloc(emit, sizeof *node);

    assert(emit->open->kind == NODE_OBJECT ? key != NULL : key == NULL);
    if (!node)
        return NULL;
    node->kind = kind;
    node->key = key ? mist_emit_copy(emit, key) : NULL;
    node->label = label ? mist_emit_copy(emit, label) : NULL;
    node->parent = emit->open;
    if (emit->open->last)
        emit->open->last->next = node;
    else
        emit->open->first = node;
    emit->open->last = node;
    return node;
}

static void begin(struct mist_emit *emit, enum mist_emit_node_kind kind, const char *key,
                  const char *title)
{
    if (emit->is_out_of_memory)
        return; /* the tree stays as it is, and is not printed */
    struct mist_emit_node *node = add_node(emit, kind, key, title);
    if (node)
        emit->open = node;
}

static void end(struct mist_emit *emit, enum mist_emit_node_kind kind)
{
    if (emit->is_out_of_memory)
        return;
    assert(emit->open->kind == kind && emit->open->parent);
    (void)kind;
    emit->open = emit->open->parent;
}

void mist_emit_object_begin(struct mist_emit *emit, const char *key, const char *title)
{
    begin(emit, NODE_OBJECT, key, title);
}

void mist_emit_object_end(struct mist_emit *emit)
{
    end(emit, NODE_OBJECT);
}

void mist_emit_list_begin(struct mist_emit *emit, const char *key, const char *title)
{
    begin(emit, NODE_LIST, key, title);
}

void mist_emit_list_end(struct mist_emit *emit)
{
    end(emit, NODE_LIST);
}

static struct mist_emit_node *add_value(struct mist_emit *emit,
                                        enum mist_emit_node_kind kind, const char *key,
                                        const char *label)
{
    return emit->is_out_of_memory ? NULL : add_node(emit, kind, key, label ? label : key);
}

void mist_emit_int64(struct mist_emit *emit, const char *key, const char *label,
                     int64_t value, enum mist_human_format format)
{
    struct mist_emit_node *node = add_value(emit, NODE_INT64, key, label);

    if (!node)
        return;
    node->whole = value;
    node->format = format;
}

void mist_emit_double(struct mist_emit *emit, const char *key, const char *label,
                      double value, enum mist_human_format format)
{
    struct mist_emit_node *node = add_value(emit, NODE_DOUBLE, key, label);

    if (!node)
        return;
    node->real = value;
    node->format = format;
}

/* How people see a number behind key: by the unit that it ends in. */
static enum mist_human_format format_of(const char *key)
{
    static const struct {
        const char *unit;
        enum mist_human_format format;
    } units[] = {
        {"_bytes_per_s", MIST_HUMAN_BYTES_PER_S},
        {"_flop_per_s", MIST_HUMAN_FLOP_PER_S},
        {"_per_s", MIST_HUMAN_NUMBER},
        {"_bytes", MIST_HUMAN_BYTES},
        {"_frac", MIST_HUMAN_FRAC},
        {"_us", MIST_HUMAN_TIME_US},
        {"_s", MIST_HUMAN_TIME_S},
    };
    size_t n = key ? strlen(key) : 0;

    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        const char *unit = units[i].unit;
        size_t n_unit = strlen(unit);
        if ((n >= n_unit && strcmp(key + n - n_unit, unit) == 0) ||
            (n > 0 && strcmp(key, unit + 1) == 0))
            return units[i].format;
    }
    return MIST_HUMAN_NUMBER;
}

void mist_emit_integer(struct mist_emit *emit, const char *key, const char *label,
                       int64_t value)
{
    mist_emit_int64(emit, key, label, value, format_of(key));
}

void mist_emit_number(struct mist_emit *emit, const char *key, const char *label,
                      double value)
{
    mist_emit_double(emit, key, label, value, format_of(key));
}

void mist_emit_bool(struct mist_emit *emit, const char *key, const char *label,
                    bool value)
{
    struct mist_emit_node *node = add_value(emit, NODE_BOOL, key, label);

    if (node)
        node->whole = value;
}

void mist_emit_text(struct mist_emit *emit, const char *key, const char *label,
                    const char *text)
{
    struct mist_emit_node *node = add_value(emit, NODE_TEXT, key, label);

    if (node && text)
        node->text = mist_emit_copy(emit, text);
}

/* ---- JSON ---- */

/* Jansson takes UTF-8 alone; a text that is none is spelt out. */
static json_t *text_to_json(const char *text)
{
    bool is_utf8 = mist_text_is_utf8(text);
    char *escaped = is_utf8 ? NULL : malloc(MIST_ESCAPED_BYTES(strlen(text)) + 1);
    json_t *json = is_utf8   ? json_string(text)
                   : escaped ? json_string(mist_escape(text, escaped))
                             : NULL;

    free(escaped);
    return json;
}

static json_t *to_json(const struct mist_emit_node *node)
{
    json_t *container;

    switch (node->kind) {
    case NODE_INT64:
        return json_integer(node->whole);
    case NODE_DOUBLE:
        return isfinite(node->real) ? json_real(node->real) : json_null();
    case NODE_BOOL:
        return json_boolean(node->whole != 0);
    case NODE_TEXT:
        return node->text ? text_to_json(node->text) : json_null();
    case NODE_OBJECT:
    case NODE_LIST:
        break;
    }
    container = node->kind == NODE_OBJECT ? json_object() : json_array();
    for (const struct mist_emit_node *child = node->first; child && container;
         child = child->next) {
        json_t *value = to_json(child);
        int failed = node->kind == NODE_OBJECT
                         ? json_object_set_new(container, child->key, value)
                         : json_array_append_new(container, value);
        if (failed) { /* out of memory; a NULL value fails too */
            json_decref(container);
            container = NULL;
        }
    }
    return container;
}

static void print_json(struct mist_emit *emit)
{
    json_t *root = to_json(&emit->root);

    if (!root || !mist_json_write(root, emit->stream))
        emit->is_out_of_memory = true;
    json_decref(root);
}

/* ---- the end ---- */

enum mist_status mist_emit_end(struct mist_emit **handle, struct mist_err *err)
{
    struct mist_emit *emit = *handle;
    enum mist_status status = MIST_OK;

    errno = 0; /* what is long is written piece by piece, and the first may fail */
    if (!emit->is_out_of_memory && emit->stream) {
        assert(emit->open == &emit->root);
        if (emit->kind == MIST_EMIT_JSON)
            print_json(emit);
        else if (emit->kind == MIST_EMIT_CSV)
            mist_emit_print_csv(emit);
        else
            mist_emit_print_human(emit);
    }
    if (emit->is_out_of_memory)
        status = mist_err_memory(err, NULL);
    else if (emit->stream && (fflush(emit->stream) != 0 || ferror(emit->stream)))
        status = mist_err_set(err, MIST_ERR_IO, "can't write the output: %s",
                              strerror(errno ? errno : EIO));
    mist_emit_free(emit);
    *handle = NULL;
    return status;
}

void mist_emit_free(struct mist_emit *emit)
{
    if (!emit)
        return;
    mist_arena_fini(&emit->arena);
    free(emit);
}
