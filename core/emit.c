/*
 * One set of calls, three ways to print. See emit.h.
 *
 * The calls build a tree in an arena; printing walks it. Texts of cells are made in the
 * arena too, so that nothing is freed one by one.
 */
#include "core/emit.h"

#include "core/csv.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/parse.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum node_kind { NODE_OBJECT, NODE_LIST, NODE_INT64, NODE_DOUBLE, NODE_BOOL, NODE_TEXT };

struct node {
    enum node_kind kind;
    enum mist_human_format format;
    const char *key;   /* NULL in a list */
    const char *label; /* for people; a container's title, which may be NULL */
    int64_t whole;     /* also a bool */
    double real;
    const char *text; /* NULL: null */
    struct node *parent, *first, *last, *next;
};

struct mist_emit {
    enum mist_emit_kind kind;
    FILE *stream;
    struct mist_arena arena;
    struct node root;
    struct node *open; /* innermost container */
    bool is_out_of_memory;
    bool has_block; /* people: something is printed already */
};

/* ---- building ---- */

enum mist_status mist_emit_begin(struct mist_emit **out, enum mist_emit_kind kind,
                                 FILE *stream, struct mist_err *err)
{
    struct mist_emit *emit = calloc(1, sizeof *emit);

    if (!emit)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    emit->kind = kind;
    emit->stream = stream;
    mist_arena_init(&emit->arena);
    emit->root.kind = NODE_OBJECT;
    emit->open = &emit->root;
    *out = emit;
    return MIST_OK;
}

static void *allocate(struct mist_emit *emit, size_t n)
{
    void *memory = mist_arena_alloc(&emit->arena, n);

    if (!memory)
        emit->is_out_of_memory = true;
    return memory;
}

static const char *copy_text(struct mist_emit *emit, const char *text)
{
    char *copy = allocate(emit, strlen(text) + 1);

    if (!copy)
        return "";
    return strcpy(copy, text);
}

/* Appends a node to the open container; NULL when out of memory. */
static struct node *add_node(struct mist_emit *emit, enum node_kind kind, const char *key,
                             const char *label)
{
    struct node *node = allocate(emit, sizeof *node);

    assert(emit->open->kind == NODE_OBJECT ? key != NULL : key == NULL);
    if (!node)
        return NULL;
    node->kind = kind;
    node->key = key ? copy_text(emit, key) : NULL;
    node->label = label ? copy_text(emit, label) : NULL;
    node->parent = emit->open;
    if (emit->open->last)
        emit->open->last->next = node;
    else
        emit->open->first = node;
    emit->open->last = node;
    return node;
}

static void begin(struct mist_emit *emit, enum node_kind kind, const char *key,
                  const char *title)
{
    if (emit->is_out_of_memory)
        return; /* the tree stays as it is, and is not printed */
    struct node *node = add_node(emit, kind, key, title);
    if (node)
        emit->open = node;
}

static void end(struct mist_emit *emit, enum node_kind kind)
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

static struct node *add_value(struct mist_emit *emit, enum node_kind kind,
                              const char *key, const char *label)
{
    return emit->is_out_of_memory ? NULL : add_node(emit, kind, key, label ? label : key);
}

void mist_emit_int64(struct mist_emit *emit, const char *key, const char *label,
                     int64_t value, enum mist_human_format format)
{
    struct node *node = add_value(emit, NODE_INT64, key, label);

    if (!node)
        return;
    node->whole = value;
    node->format = format;
}

void mist_emit_double(struct mist_emit *emit, const char *key, const char *label,
                      double value, enum mist_human_format format)
{
    struct node *node = add_value(emit, NODE_DOUBLE, key, label);

    if (!node)
        return;
    node->real = value;
    node->format = format;
}

void mist_emit_bool(struct mist_emit *emit, const char *key, const char *label,
                    bool value)
{
    struct node *node = add_value(emit, NODE_BOOL, key, label);

    if (node)
        node->whole = value;
}

void mist_emit_text(struct mist_emit *emit, const char *key, const char *label,
                    const char *text)
{
    struct node *node = add_value(emit, NODE_TEXT, key, label);

    if (node && text)
        node->text = copy_text(emit, text);
}

/* ---- texts of values ---- */

#define TEXT_BYTES 64

static void format_real(enum mist_human_format format, double value, char *text)
{
    char number[MIST_FORMAT_BYTES];

    switch (format) {
    case MIST_HUMAN_NUMBER:
        snprintf(text, TEXT_BYTES, "%.4g", value);
        break;
    case MIST_HUMAN_COUNT:
        mist_format_count(text, TEXT_BYTES, value);
        break;
    case MIST_HUMAN_BYTES:
        mist_format_bytes(text, TEXT_BYTES,
                          fabs(value) < 0x1p63 ? (int64_t)value : INT64_MAX);
        break;
    case MIST_HUMAN_BYTES_PER_S:
    case MIST_HUMAN_FLOP_PER_S:
        mist_format_count(number, sizeof number, value);
        snprintf(text, TEXT_BYTES, "%s%s%s", number, strchr(number, ' ') ? "" : " ",
                 format == MIST_HUMAN_FLOP_PER_S ? "FLOP/s" : "B/s");
        break;
    case MIST_HUMAN_TIME_S:
        mist_format_time_s(text, TEXT_BYTES, value);
        break;
    case MIST_HUMAN_TIME_US:
        mist_format_time_s(text, TEXT_BYTES, 1e-6 * value);
        break;
    case MIST_HUMAN_FRAC:
        snprintf(text, TEXT_BYTES, "%.1f %%", 100 * value);
        break;
    }
}

/* A plain value as text; in text or a text that lives as long as node. */
static const char *plain_text(const struct node *node, bool is_human, char *text)
{
    switch (node->kind) {
    case NODE_BOOL:
        return is_human ? node->whole ? "yes" : "no" : node->whole ? "true" : "false";
    case NODE_TEXT:
        return node->text ? node->text : is_human ? "-" : "";
    case NODE_INT64:
        if (!is_human || node->format == MIST_HUMAN_NUMBER)
            snprintf(text, TEXT_BYTES, "%" PRId64, node->whole);
        else if (node->format == MIST_HUMAN_BYTES)
            mist_format_bytes(text, TEXT_BYTES, node->whole);
        else
            format_real(node->format, (double)node->whole, text);
        return text;
    default:
        break;
    }
    if (!isfinite(node->real))
        return is_human ? "-" : "";
    if (is_human)
        format_real(node->format, node->real, text);
    else
        mist_format_double(text, TEXT_BYTES, node->real);
    return text;
}

static bool is_table(const struct node *node)
{
    return node->kind == NODE_LIST && node->first &&
           (node->first->kind == NODE_OBJECT || node->first->kind == NODE_LIST);
}

/* The text of a value or of a list of values, in the arena. */
static const char *value_text(struct mist_emit *emit, const struct node *node,
                              bool is_human)
{
    char text[TEXT_BYTES];
    size_t n = 1;

    if (node->kind != NODE_LIST)
        return copy_text(emit, plain_text(node, is_human, text));
    for (const struct node *item = node->first; item; item = item->next)
        n += strlen(plain_text(item, is_human, text)) + 1;
    char *joined = allocate(emit, n);
    if (!joined)
        return "";
    for (const struct node *item = node->first; item; item = item->next) {
        strcat(joined, plain_text(item, is_human, text));
        if (item->next)
            strcat(joined, is_human ? " " : ";");
    }
    return joined;
}

/* ---- tables ---- */

struct column {
    const char *key; /* "outer.inner" */
    const char *label;
    bool is_number; /* aligned to the right */
};

struct table {
    struct column *columns;
    size_t n_columns, columns_capacity;
    size_t n_rows;
    const char *
        *cells;  /* [n_rows, n_columns], NULL where a row has no such key; once filled */
    size_t hint; /* the column that comes next, probably */
};

static const char *join_keys(struct mist_emit *emit, const char *outer, const char *inner)
{
    size_t n = strlen(outer) + strlen(inner) + 2;
    char *joined = outer[0] ? allocate(emit, n) : NULL;

    if (!joined)
        return inner;
    snprintf(joined, n, "%s.%s", outer, inner);
    return joined;
}

/* The column of key, a new one if need be; n_columns when out of memory. */
static size_t find_column(struct mist_emit *emit, struct table *table, const char *key,
                          const struct node *node)
{
    for (size_t k = 0; k < table->n_columns; k++) {
        size_t i = (table->hint + k) % table->n_columns;
        if (strcmp(table->columns[i].key, key) == 0) {
            table->hint = i + 1;
            return i;
        }
    }
    struct column *columns = mist_grow(table->columns, &table->columns_capacity,
                                       table->n_columns + 1, sizeof *columns);
    if (!columns) {
        emit->is_out_of_memory = true;
        return table->n_columns;
    }
    table->columns = columns;
    columns[table->n_columns] = (struct column){
        .key = key,
        .label = node->label ? node->label : key,
        .is_number = node->kind == NODE_INT64 || node->kind == NODE_DOUBLE,
    };
    return table->n_columns++;
}

/* Visits the values of a row: finds their columns, and fills their cells once there are
 * any. */
static void visit_row(struct mist_emit *emit, struct table *table, const struct node *row,
                      const char *outer, size_t i_row, bool is_human)
{
    for (const struct node *node = row->first; node && !emit->is_out_of_memory;
         node = node->next) {
        if (is_table(node))
            continue;
        const char *key = join_keys(emit, outer, node->key ? node->key : "value");
        if (node->kind == NODE_OBJECT) {
            visit_row(emit, table, node, key, i_row, is_human);
            continue;
        }
        size_t i = find_column(emit, table, key, node);
        if (table->cells)
            table->cells[i_row * table->n_columns + i] = value_text(emit, node, is_human);
    }
}

/* Fills table from the objects first, first->next, ...; n_rows at most. */
static void fill_table(struct mist_emit *emit, struct table *table,
                       const struct node *first, size_t n_rows, bool is_human)
{
    const struct node *row = first;

    table->n_rows = n_rows;
    for (size_t i = 0; i < n_rows; i++, row = row->next)
        visit_row(emit, table, row, "", i, is_human);
    if (emit->is_out_of_memory || table->n_columns == 0)
        return;
    table->cells = calloc(n_rows * table->n_columns + 1, sizeof *table->cells);
    if (!table->cells) {
        emit->is_out_of_memory = true;
        return;
    }
    row = first;
    for (size_t i = 0; i < n_rows; i++, row = row->next)
        visit_row(emit, table, row, "", i, is_human);
}

static void free_table(struct table *table)
{
    free(table->cells);
    free(table->columns);
}

/* ---- CSV ---- */

static const struct node *find_table(const struct node *node)
{
    for (const struct node *child = node->first; child; child = child->next) {
        if (is_table(child))
            return child;
        const struct node *inner = child->kind == NODE_OBJECT ? find_table(child) : NULL;
        if (inner)
            return inner;
    }
    return NULL;
}

static size_t count_children(const struct node *node)
{
    size_t n = 0;

    for (const struct node *child = node->first; child; child = child->next)
        n++;
    return n;
}

static void print_csv(struct mist_emit *emit)
{
    const struct node *list = find_table(&emit->root);
    struct table table = {0};

    if (list)
        fill_table(emit, &table, list->first, count_children(list), false);
    else
        fill_table(emit, &table, &emit->root, 1, false);
    if (!emit->is_out_of_memory && table.n_columns > 0) {
        for (size_t i = 0; i < table.n_columns; i++) {
            fputs(i ? "," : "", emit->stream);
            mist_csv_write_cell(table.columns[i].key, emit->stream);
        }
        fputc('\n', emit->stream);
        for (size_t i = 0; i < table.n_rows * table.n_columns; i++) {
            fputs(i % table.n_columns ? "," : "", emit->stream);
            mist_csv_write_cell(table.cells[i] ? table.cells[i] : "", emit->stream);
            if ((i + 1) % table.n_columns == 0)
                fputc('\n', emit->stream);
        }
    }
    free_table(&table);
}

/* ---- people ---- */

/* Characters of UTF-8 text, which stand for columns of a terminal. */
static int width(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void print_cell(FILE *stream, const char *text, int n, bool is_right, bool is_last)
{
    int n_blanks = n - width(text);

    if (is_right)
        fprintf(stream, "%*s%s", n_blanks, "", text);
    else
        fprintf(stream, "%s%*s", text, is_last ? 0 : n_blanks, "");
    fputs(is_last ? "\n" : "  ", stream);
}

static void begin_block(struct mist_emit *emit, const char *title)
{
    if (emit->has_block)
        fputc('\n', emit->stream);
    emit->has_block = true;
    if (title)
        fprintf(emit->stream, "%s\n", title);
}

static void print_human_table(struct mist_emit *emit, const struct node *list)
{
    struct table table = {0};

    begin_block(emit, list->label);
    fill_table(emit, &table, list->first, count_children(list), true);
    int *widths = calloc(table.n_columns + 1, sizeof *widths);
    if (!widths)
        emit->is_out_of_memory = true;
    if (emit->is_out_of_memory)
        goto out;
    for (size_t k = 0; k < table.n_columns; k++) {
        widths[k] = width(table.columns[k].label);
        for (size_t i = 0; i < table.n_rows; i++) {
            const char *cell = table.cells[i * table.n_columns + k];
            if (cell && width(cell) > widths[k])
                widths[k] = width(cell);
        }
    }
    for (size_t i = 0; i < table.n_columns; i++)
        print_cell(emit->stream, table.columns[i].label, widths[i],
                   table.columns[i].is_number, i + 1 == table.n_columns);
    for (size_t i = 0; i < table.n_rows * table.n_columns; i++) {
        size_t k = i % table.n_columns;
        print_cell(emit->stream, table.cells[i] ? table.cells[i] : "-", widths[k],
                   table.columns[k].is_number, k + 1 == table.n_columns);
    }
out:
    free(widths);
    free_table(&table);
}

static bool is_plain(const struct node *node)
{
    return node->kind != NODE_OBJECT && !is_table(node);
}

/* The plain values of an object as a key list, then its objects and tables. */
static void print_human_object(struct mist_emit *emit, const struct node *object)
{
    int n = 0;

    for (const struct node *node = object->first; node; node = node->next) {
        if (is_plain(node) && width(node->label ? node->label : node->key) > n)
            n = width(node->label ? node->label : node->key);
    }
    if (n > 0)
        begin_block(emit, object->label);
    for (const struct node *node = object->first; node; node = node->next) {
        if (!is_plain(node))
            continue;
        print_cell(emit->stream, node->label ? node->label : node->key, n, false, false);
        fprintf(emit->stream, "%s\n", value_text(emit, node, true));
    }
    for (const struct node *node = object->first; node; node = node->next) {
        if (node->kind == NODE_OBJECT)
            print_human_object(emit, node);
        else if (is_table(node))
            print_human_table(emit, node);
    }
}

/* ---- JSON ---- */

static json_t *to_json(const struct node *node)
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
        return node->text ? json_string(node->text) : json_null();
    case NODE_OBJECT:
    case NODE_LIST:
        break;
    }
    container = node->kind == NODE_OBJECT ? json_object() : json_array();
    for (const struct node *child = node->first; child && container;
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

    if (!emit->is_out_of_memory) {
        assert(emit->open == &emit->root);
        if (emit->kind == MIST_EMIT_JSON)
            print_json(emit);
        else if (emit->kind == MIST_EMIT_CSV)
            print_csv(emit);
        else
            print_human_object(emit, &emit->root);
    }
    errno = 0;
    if (emit->is_out_of_memory)
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    else if (fflush(emit->stream) != 0 || ferror(emit->stream))
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
