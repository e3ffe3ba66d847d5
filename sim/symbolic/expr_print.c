/*
 * Expressions as infix text, for people. Precedence is that of C; min, max, ceil, floor,
 * select and table are written as calls. An expression shares its subexpressions, so its
 * text can be far longer than itself: beyond MAX_TERMS what occurs more than once gets a
 * name and a line of its own.
 */
#include "sim/symbolic/expr.h"

#include <stdlib.h>

#define MAX_TERMS                                                                        \
    256 /* longest text that is written out in full, in leaves and operations */

struct printer {
    struct mist_expr_pool *pool;
    FILE *stream;
    int32_t *n_terms; /* [nodes] length of the full text, cut at MAX_TERMS + 1 */
    int32_t *n_uses;  /* [nodes] how often the expression refers to the node */
    int32_t *names;   /* [nodes] 0: written out; n: known as "vn" */
};

enum { LEVEL_NONE, LEVEL_SUM, LEVEL_PRODUCT, LEVEL_ATOM };

static int n_args_of(const struct mist_expr_node *node)
{
    return mist_expr_n_args((enum mist_expr_op)node->op);
}

static void print_number(const struct printer *printer, double value)
{
    char text[40];

    /* The shortest of these that reads back as the same number. */
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    fputs(text, printer->stream);
}

static void print_node(const struct printer *printer, mist_expr expr, int level,
                       bool by_name);

static void print_infix(const struct printer *printer, const struct mist_expr_node *node,
                        const char *sign, int own_level, int level)
{
    bool needs_parentheses = own_level < level;

    if (needs_parentheses)
        fputc('(', printer->stream);
    print_node(printer, node->arg[0], own_level, true);
    fputs(sign, printer->stream);
    /* One level up on the right: nothing is associative here. */
    print_node(printer, node->arg[1], own_level + 1, true);
    if (needs_parentheses)
        fputc(')', printer->stream);
}

static void print_call(const struct printer *printer, const struct mist_expr_node *node)
{
    static const char *const names[MIST_EXPR_N_OPS] = {
        [MIST_EXPR_MIN] = "min",          [MIST_EXPR_MAX] = "max",
        [MIST_EXPR_CEIL] = "ceil",        [MIST_EXPR_FLOOR] = "floor",
        [MIST_EXPR_SELECT_LT] = "select", [MIST_EXPR_SELECT_LE] = "select",
        [MIST_EXPR_SELECT_EQ] = "select", [MIST_EXPR_TABLE] = "table",
    };
    static const char *const signs[MIST_EXPR_N_OPS] = {
        [MIST_EXPR_SELECT_LT] = " < ",
        [MIST_EXPR_SELECT_LE] = " <= ",
        [MIST_EXPR_SELECT_EQ] = " == ",
    };

    fputs(names[node->op], printer->stream);
    if (node->op == MIST_EXPR_TABLE)
        fprintf(printer->stream, "%d", (int)node->arg[1]);
    fputc('(', printer->stream);
    for (int i = 0; i < n_args_of(node); i++) {
        if (i > 0)
            fputs(i == 1 && signs[node->op] ? signs[node->op] : ", ", printer->stream);
        print_node(printer, node->arg[i], LEVEL_NONE, true);
    }
    fputc(')', printer->stream);
}

static void print_node(const struct printer *printer, mist_expr expr, int level,
                       bool by_name)
{
    const struct mist_expr_node *node = &printer->pool->nodes[expr];

    if (by_name && printer->names[expr] > 0) {
        fprintf(printer->stream, "v%d", (int)printer->names[expr]);
        return;
    }
    switch ((enum mist_expr_op)node->op) {
    case MIST_EXPR_CONST:
        print_number(printer, node->value);
        return;
    case MIST_EXPR_SYMBOL:
        fputs(printer->pool->symbols[node->arg[0]], printer->stream);
        return;
    case MIST_EXPR_ADD:
        print_infix(printer, node, " + ", LEVEL_SUM, level);
        return;
    case MIST_EXPR_SUB:
        print_infix(printer, node, " - ", LEVEL_SUM, level);
        return;
    case MIST_EXPR_MUL:
        print_infix(printer, node, " * ", LEVEL_PRODUCT, level);
        return;
    case MIST_EXPR_DIV:
        print_infix(printer, node, " / ", LEVEL_PRODUCT, level);
        return;
    default:
        print_call(printer, node);
    }
}

/* Counts lengths and uses. Operands have smaller handles,
 * so one sweep each way is enough. */
static void measure(const struct printer *printer, mist_expr expr)
{
    for (mist_expr i = 0; i <= expr; i++) {
        const struct mist_expr_node *node = &printer->pool->nodes[i];
        printer->n_terms[i] = 1;
        for (int k = 0; k < n_args_of(node); k++)
            printer->n_terms[i] += printer->n_terms[node->arg[k]];
        if (printer->n_terms[i] > MAX_TERMS)
            printer->n_terms[i] = MAX_TERMS + 1;
    }
    printer->n_uses[expr] = 1;
    for (mist_expr i = expr; i >= 0; i--) {
        const struct mist_expr_node *node = &printer->pool->nodes[i];
        for (int k = 0; printer->n_uses[i] > 0 && k < n_args_of(node); k++)
            printer->n_uses[node->arg[k]]++;
    }
}

static void print_lines(const struct printer *printer, mist_expr expr)
{
    int32_t n_names = 0;

    for (mist_expr i = 0; printer->n_terms[expr] > MAX_TERMS && i < expr; i++) {
        if (printer->n_uses[i] < 2 || n_args_of(&printer->pool->nodes[i]) == 0)
            continue;
        printer->names[i] = ++n_names;
        fprintf(printer->stream, "v%d = ", (int)n_names);
        print_node(printer, i, LEVEL_NONE, false);
        fputc('\n', printer->stream);
    }
    print_node(printer, expr, LEVEL_NONE, true);
}

enum mist_status mist_expr_print(struct mist_expr_pool *pool, mist_expr expr,
                                 FILE *stream)
{
    if (expr < 0) {
        fputs("error", stream);
        return ferror(stream) ? MIST_ERR_IO : MIST_OK;
    }
    size_t n = (size_t)expr + 1;
    int32_t *counts = calloc(3 * n, sizeof *counts);
    if (!counts)
        return MIST_ERR_MEMORY;
    struct printer printer = {pool, stream, counts, counts + n, counts + 2 * n};
    measure(&printer, expr);
    print_lines(&printer, expr);
    free(counts);
    return ferror(stream) ? MIST_ERR_IO : MIST_OK;
}
