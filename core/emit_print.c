/*
 * Tables for people and as CSV from the tree of core/emit. See emit.h and emit_tree.h.
 *
 * A list of objects becomes a table in two visits of its rows: the first finds the
 * columns, the second fills the cells. Texts of cells are in the arena, so that nothing
 * is freed one by one.
 */
#include "core/emit_tree.h"

#include "core/csv.h"
#include "core/parse.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts of values ---- */

#define TEXT_BYTES 64

static void format_real(enum mist_human_format format, double value, char *text)
{
    char number[MIST_FORMAT_BYTES];

    switch (format) {
    case MIST_HUMAN_NUMBER:
        snprintf(text, TEXT_BYTES,
                 fabs(value) < 9999.5 || fabs(value) >= 1e15 ? "%.4g" : "%.0f", value);
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
        mist_format_percent(text, TEXT_BYTES, 100 * value, 1, false);
        break;
    }
}

/* A plain value as text; in text or a text that lives as long as node. */
static const char *plain_text(const struct mist_emit_node *node, bool is_human,
                              char *text)
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

static bool is_table(const struct mist_emit_node *node)
{
    return node->kind == NODE_LIST && node->first &&
           (node->first->kind == NODE_OBJECT || node->first->kind == NODE_LIST);
}

/* The text of a value or of a list of values, in the arena. */
static const char *value_text(struct mist_emit *emit, const struct mist_emit_node *node,
                              bool is_human)
{
    char text[TEXT_BYTES];
    size_t n = 1;

    if (node->kind != NODE_LIST)
        return mist_emit_copy(emit, plain_text(node, is_human, text));
    for (const struct mist_emit_node *item = node->first; item; item = item->next)
        n += strlen(plain_text(item, is_human, text)) + 1;
    char *joined = mist_emit_alloc(emit, n);
    if (!joined)
        return "";
    char *at = joined;
    for (const struct mist_emit_node *item = node->first; item; item = item->next)
        at += snprintf(at, n - (size_t)(at - joined), "%s%s",
                       plain_text(item, is_human, text),
                       !item->next ? ""
                       : is_human  ? " "
                                   : ";");
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
    char *joined = outer[0] ? mist_emit_alloc(emit, n) : NULL;

    if (!joined)
        return inner;
    snprintf(joined, n, "%s.%s", outer, inner);
    return joined;
}

/* The column of key, a new one if need be; n_columns when out of memory. */
static size_t find_column(struct mist_emit *emit, struct table *table, const char *key,
                          const struct mist_emit_node *node)
{
    for (size_t k = 0; k < table->n_columns; k++) {
        size_t i = (table->hint + k) % table->n_columns;
        if (strcmp(table->columns[i].key, key) == 0) {
            table->hint = i + 1;
            return i;
        }
    }
    if (!MIST_RESERVE(table->columns, table->columns_capacity, table->n_columns + 1)) {
        emit->is_out_of_memory = true;
        return table->n_columns;
    }
    table->columns[table->n_columns] = (struct column){
        .key = key,
        .label = node->label ? node->label : key,
        .is_number = node->kind == NODE_INT64 || node->kind == NODE_DOUBLE,
    };
    return table->n_columns++;
}

/* Visits the values of a row: finds their columns,
 * and fills their cells once there are any. */
static void visit_row(struct mist_emit *emit, struct table *table,
                      const struct mist_emit_node *row, const char *outer, size_t i_row,
                      bool is_human)
{
    for (const struct mist_emit_node *node = row->first; node && !emit->is_out_of_memory;
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

/* Finds the columns of the objects first, first->next, ..., or fills their cells. common:
 * values that stand in every row; NULL: none. */
static void visit_rows(struct mist_emit *emit, struct table *table,
                       const struct mist_emit_node *common,
                       const struct mist_emit_node *first, bool is_human)
{
    const struct mist_emit_node *row = first;

    for (size_t i = 0; i < table->n_rows; i++, row = row->next) {
        if (common)
            visit_row(emit, table, common, "", i, is_human);
        visit_row(emit, table, row, "", i, is_human);
    }
}

/* Fills table from these objects; n_rows at most. */
static void fill_table(struct mist_emit *emit, struct table *table,
                       const struct mist_emit_node *common,
                       const struct mist_emit_node *first, size_t n_rows, bool is_human)
{
    table->n_rows = n_rows;
    visit_rows(emit, table, common, first, is_human);
    if (emit->is_out_of_memory || table->n_columns == 0)
        return;
    table->cells = calloc(n_rows * table->n_columns + 1, sizeof *table->cells);
    if (!table->cells) {
        emit->is_out_of_memory = true;
        return;
    }
    visit_rows(emit, table, common, first, is_human);
}

static void free_table(struct table *table)
{
    free(table->cells);
    free(table->columns);
}

/* ---- CSV ---- */

static const struct mist_emit_node *find_table(const struct mist_emit_node *node)
{
    for (const struct mist_emit_node *child = node->first; child; child = child->next) {
        if (is_table(child))
            return child;
        const struct mist_emit_node *inner =
            child->kind == NODE_OBJECT ? find_table(child) : NULL;
        if (inner)
            return inner;
    }
    return NULL;
}

static size_t count_children(const struct mist_emit_node *node)
{
    size_t n = 0;

    for (const struct mist_emit_node *child = node->first; child; child = child->next)
        n++;
    return n;
}

void mist_emit_print_csv(struct mist_emit *emit)
{
    const struct mist_emit_node *list = find_table(&emit->root);
    struct table table = {0};

    if (list)
        fill_table(emit, &table, &emit->root, list->first, count_children(list), false);
    else
        fill_table(emit, &table, NULL, &emit->root, 1, false);
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

static void print_human_table(struct mist_emit *emit, const struct mist_emit_node *list)
{
    struct table table = {0};

    begin_block(emit, list->label);
    fill_table(emit, &table, NULL, list->first, count_children(list), true);
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

static bool is_plain(const struct mist_emit_node *node)
{
    return node->kind != NODE_OBJECT && !is_table(node);
}

/* The plain values of an object as a key list, then its objects and tables. */
static void print_human_object(struct mist_emit *emit,
                               const struct mist_emit_node *object)
{
    int n = 0;

    for (const struct mist_emit_node *node = object->first; node; node = node->next) {
        if (is_plain(node) && width(node->label ? node->label : node->key) > n)
            n = width(node->label ? node->label : node->key);
    }
    if (n > 0)
        begin_block(emit, object->label);
    for (const struct mist_emit_node *node = object->first; node; node = node->next) {
        if (!is_plain(node))
            continue;
        print_cell(emit->stream, node->label ? node->label : node->key, n, false, false);
        fprintf(emit->stream, "%s\n", value_text(emit, node, true));
    }
    for (const struct mist_emit_node *node = object->first; node; node = node->next) {
        if (node->kind == NODE_OBJECT)
            print_human_object(emit, node);
        else if (is_table(node))
            print_human_table(emit, node);
    }
}

void mist_emit_print_human(struct mist_emit *emit)
{
    print_human_object(emit, &emit->root);
}
