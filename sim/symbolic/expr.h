/*
 * Symbolic expressions: what a cost is, as a formula over named symbols (b, s, h, tp,
 * ...).
 *
 * A pool holds hash-consed nodes: the same expression is always the same handle, so
 * common subexpressions are shared by construction and "equal" is one integer comparison.
 * Building an expression simplifies it (constants fold; x + 0, x * 1, x * 0, x - x, x /
 * 1; equal operands of min, max and select; ceil and floor of what is whole already).
 * Nothing is reassociated: apart from these rules the operations happen in double
 * precision in the order in which they were written.
 *
 * The rules assume that symbols are finite: x * 0 becomes 0 and x - x becomes 0 also
 * where x could be infinite or NaN, and the sign of a zero is not kept by x + 0.
 *
 * Handles count up in the order of creation and order the operands of + * min max, so
 * build one operand per statement where printed text must not depend on the compiler: C
 * leaves open which argument of add(mul(a, b), mul(c, d)) is built first. Values do not
 * depend on it, but for min and max of zeros of different sign.
 *
 * Errors are sticky and cheap to ignore while building: an operation on MIST_EXPR_ERROR
 * gives MIST_EXPR_ERROR, and the pool remembers the first failure for
 * mist_expr_pool_check(). A pool belongs to one thread at a time. sim/symbolic/tape.h is the fast
 * evaluator of what is built here.
 */
#ifndef MIST_SIM_EXPR_H
#define MIST_SIM_EXPR_H

#include "core/memory.h" /* the arena of names and tables */
#include "core/status.h" /* mist_expr_pool_check */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h> /* mist_expr_print */

typedef int32_t
    mist_expr; /* handle of a node in its pool; operands have smaller handles */

#define MIST_EXPR_ERROR (-1)
#define MIST_EXPR_DEPTH_MAX                                                              \
    10000 /* longest path to a leaf; longer ones give MIST_ERR_RANGE */

enum mist_expr_op {
    MIST_EXPR_CONST,     /* value */
    MIST_EXPR_SYMBOL,    /* arg[0] is the symbol's index */
    MIST_EXPR_ADD,       /* arg[0] + arg[1] */
    MIST_EXPR_SUB,       /* arg[0] - arg[1] */
    MIST_EXPR_MUL,       /* arg[0] * arg[1] */
    MIST_EXPR_DIV,       /* arg[0] / arg[1] */
    MIST_EXPR_MIN,       /* arg[0] < arg[1] ? arg[0] : arg[1] */
    MIST_EXPR_MAX,       /* arg[0] > arg[1] ? arg[0] : arg[1] */
    MIST_EXPR_CEIL,      /* ceil(arg[0]) */
    MIST_EXPR_FLOOR,     /* floor(arg[0]) */
    MIST_EXPR_SELECT_LT, /* arg[0] <  arg[1] ? arg[2] : arg[3] */
    MIST_EXPR_SELECT_LE, /* arg[0] <= arg[1] ? arg[2] : arg[3] */
    MIST_EXPR_SELECT_EQ, /* arg[0] == arg[1] ? arg[2] : arg[3] */
    MIST_EXPR_TABLE,     /* tables[arg[1]] at arg[0] */
    MIST_EXPR_N_OPS
};

struct mist_expr_node {
    double value;   /* of MIST_EXPR_CONST, else 0 */
    int32_t arg[4]; /* operands; -1 where unused */
    int32_t depth;  /* 0 for a leaf */
    int32_t op;     /* enum mist_expr_op */
};

/*
 * A function of one variable. Below the first and above the last knot it keeps the end's
 * value; NaN looks up the first knot. The last knot at or below v is i; the value is y[i]
 * + (v - x[i]) * slope[i].
 */
struct mist_expr_table {
    int32_t n;        /* knots, >= 1 */
    int32_t n_padded; /* power of two >= n: length of x */
    double v_max;     /* arguments are clamped to x[0] .. v_max */
    double *x; /* [n_padded] ascending, +inf behind the last; NULL: v cut to an index */
    double *y; /* [n] */
    double *slope; /* [n], 0 at the last knot; NULL with x NULL */
};

struct mist_expr_pool {
    struct mist_expr_node *nodes; /* [n_nodes] operands before their users */
    size_t n_nodes;
    size_t capacity;
    int32_t *slots;       /* [n_slots] hash table of handles, -1 empty */
    size_t n_slots;       /* power of two, or 0 */
    const char **symbols; /* [n_symbols] names, by index */
    mist_expr *symbol_exprs;
    size_t n_symbols;
    size_t symbols_capacity;
    size_t symbol_exprs_capacity;
    struct mist_expr_table *tables; /* [n_tables] */
    size_t n_tables;
    size_t tables_capacity;
    double *memo;    /* [n_nodes] values of the evaluation that is running */
    uint32_t *marks; /* [n_nodes] the pass that visited a node last */
    size_t memo_capacity;
    size_t marks_capacity;
    uint32_t pass;           /* number of the newest pass over the nodes */
    enum mist_status status; /* first failure, or MIST_OK */
    struct mist_arena arena; /* names and table contents */
};

void mist_expr_pool_init(struct mist_expr_pool *pool);
void mist_expr_pool_fini(struct mist_expr_pool *pool);

/* MIST_OK, or what first went wrong:
 * MIST_ERR_MEMORY, or MIST_ERR_RANGE (too deep, bad table). */
enum mist_status mist_expr_pool_check(const struct mist_expr_pool *pool,
                                      struct mist_err *err) MIST_MUST_CHECK;

/*
 * Leaves. mist_expr_symbol() copies the name and gives the same handle for the same name;
 * indices count up from 0 in order of first use. mist_expr_find_symbol() gives
 * MIST_EXPR_ERROR for a name that is not there, without remembering an error.
 */
mist_expr mist_expr_const(struct mist_expr_pool *pool, double value);
mist_expr mist_expr_symbol(struct mist_expr_pool *pool, const char *name);
mist_expr mist_expr_find_symbol(const struct mist_expr_pool *pool, const char *name);
int32_t mist_expr_symbol_index(const struct mist_expr_pool *pool, mist_expr symbol);

mist_expr mist_expr_add(struct mist_expr_pool *pool, mist_expr a, mist_expr b);
mist_expr mist_expr_sub(struct mist_expr_pool *pool, mist_expr a, mist_expr b);
mist_expr mist_expr_mul(struct mist_expr_pool *pool, mist_expr a, mist_expr b);
mist_expr mist_expr_div(struct mist_expr_pool *pool, mist_expr a, mist_expr b);
mist_expr mist_expr_min(struct mist_expr_pool *pool, mist_expr a, mist_expr b);
mist_expr mist_expr_max(struct mist_expr_pool *pool, mist_expr a, mist_expr b);
mist_expr mist_expr_ceil(struct mist_expr_pool *pool, mist_expr a);
mist_expr mist_expr_floor(struct mist_expr_pool *pool, mist_expr a);

/* 1 where the comparison holds, else 0 (NaN compares false). As a condition of select
 * they cost nothing. */
mist_expr mist_expr_lt(struct mist_expr_pool *pool, mist_expr a, mist_expr b);
mist_expr mist_expr_le(struct mist_expr_pool *pool, mist_expr a, mist_expr b);
mist_expr mist_expr_eq(struct mist_expr_pool *pool, mist_expr a, mist_expr b);

/* condition > 0 ? yes : no, and a <= b ? yes : no. */
mist_expr mist_expr_select(struct mist_expr_pool *pool, mist_expr condition,
                           mist_expr yes, mist_expr no);
mist_expr mist_expr_select_le(struct mist_expr_pool *pool, mist_expr a, mist_expr b,
                              mist_expr yes, mist_expr no);

/* Sums and products of n terms from left to right; 0 and 1 for n == 0. */
mist_expr mist_expr_sum(struct mist_expr_pool *pool, const mist_expr *terms, size_t n);
mist_expr mist_expr_product(struct mist_expr_pool *pool, const mist_expr *factors,
                            size_t n);

/*
 * Registers a table and returns its number, or -1 (see the pool's status). x and y are
 * copied. linear: piecewise linear through (x[i], y[i]), x finite and strictly ascending,
 * y finite. index:  y[trunc(v)], v clamped to 0 .. n - 1.
 */
int32_t mist_expr_table_linear(struct mist_expr_pool *pool, const double *x,
                               const double *y, size_t n);
int32_t mist_expr_table_index(struct mist_expr_pool *pool, const double *y, size_t n);
mist_expr mist_expr_lookup(struct mist_expr_pool *pool, int32_t table, mist_expr at);

/* The value of a table at v. */
double mist_expr_table_value(const struct mist_expr_table *table, double v);

/*
 * One operation on numbers (not CONST, SYMBOL or TABLE); args: [4], unused ones ignored.
 */
double mist_expr_apply(enum mist_expr_op op, const double *args);

/* How many of a node's arg[] are expressions. */
int mist_expr_n_args(enum mist_expr_op op);

/*
 * The slow, obvious evaluation: walks the expression, each node once. values: [n_symbols]
 * by symbol index. NaN for MIST_EXPR_ERROR. Uses the pool's own scratch space, hence not
 * const.
 */
double mist_expr_eval(struct mist_expr_pool *pool, mist_expr expr, const double *values);

/*
 * Partial evaluation: replaces symbols by expressions (constants, usually) all at once
 * and simplifies. bindings: [n_symbols] by symbol index, MIST_EXPR_ERROR leaves a symbol
 * as it is; symbols at or past n_bindings stay too. MIST_EXPR_ERROR when out of memory.
 */
mist_expr mist_expr_substitute(struct mist_expr_pool *pool, mist_expr expr,
                               const mist_expr *bindings, size_t n_bindings);

/* Sets is_free[i] for each symbol i that occurs in expr and
 * leaves the others as they are. */
void mist_expr_free_symbols(struct mist_expr_pool *pool, mist_expr expr, bool *is_free);

/* True when expr is a constant; *value is then its value (NULL allowed). */
bool mist_expr_is_const(const struct mist_expr_pool *pool, mist_expr expr, double *value);

/*
 * Prints expr as infix text without a newline at the end. Text that would repeat itself
 * beyond 256 terms names what it repeats: "v1 = ...", one line each, then the expression.
 * MIST_ERR_MEMORY, or MIST_ERR_IO when the stream fails.
 */
enum mist_status mist_expr_print(struct mist_expr_pool *pool, mist_expr expr,
                                 FILE *stream) MIST_MUST_CHECK;

#endif
