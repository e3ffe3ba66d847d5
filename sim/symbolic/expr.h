/*
 * Symbolic expressions: what a cost is, as a formula over symbols (b, s, h, tp,
 * ...).
 *
 * A pool holds hash-consed nodes: the same expression is always the same handle, so
 * common subexpressions are shared by construction and "equal" is one integer comparison.
 * Building an expression simplifies it (constants fold; x + 0, x * 1, x * 0, x - x, x /
 * 1; equal operands of min, max and select).
 * Nothing is reassociated: apart from these rules the operations happen in double
 * precision in the order in which they were written.
 *
 * The rules assume that symbols are finite: x * 0 becomes 0 and x - x becomes 0 also
 * where x could be infinite or NaN, and the sign of a zero is not kept by x + 0.
 *
 * Handles count up in the order of creation and order the operands of + * min max, so
 * build one operand per statement where the order must not depend on the compiler: C
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

#include "core/status.h" /* mist_expr_pool_check */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    MIST_EXPR_SELECT_LT, /* arg[0] <  arg[1] ? arg[2] : arg[3] */
    MIST_EXPR_SELECT_LE, /* arg[0] <= arg[1] ? arg[2] : arg[3] */
    MIST_EXPR_N_OPS
};

struct mist_expr_node {
    double value;   /* of MIST_EXPR_CONST, else 0 */
    int32_t arg[4]; /* operands; -1 where unused */
    int32_t depth;  /* 0 for a leaf */
    int32_t op;     /* enum mist_expr_op */
};

struct mist_expr_pool {
    struct mist_expr_node *nodes; /* [n_nodes] operands before their users */
    size_t n_nodes;
    size_t capacity;
    int32_t *slots;          /* [n_slots] hash table of handles, -1 empty */
    size_t n_slots;          /* power of two, or 0 */
    enum mist_status status; /* first failure, or MIST_OK */
};

void mist_expr_pool_init(struct mist_expr_pool *pool);
void mist_expr_pool_fini(struct mist_expr_pool *pool);

/* MIST_OK, or what first went wrong:
 * MIST_ERR_MEMORY, or MIST_ERR_RANGE (too deep). */
enum mist_status mist_expr_pool_check(const struct mist_expr_pool *pool,
                                      struct mist_err *err) MIST_MUST_CHECK;

/* Leaves. index: of the symbol's value where expressions are evaluated, from 0. */
mist_expr mist_expr_const(struct mist_expr_pool *pool, double value);
mist_expr mist_expr_symbol(struct mist_expr_pool *pool, int32_t index);

mist_expr mist_expr_add(struct mist_expr_pool *pool, mist_expr a, mist_expr b);
mist_expr mist_expr_sub(struct mist_expr_pool *pool, mist_expr a, mist_expr b);
mist_expr mist_expr_mul(struct mist_expr_pool *pool, mist_expr a, mist_expr b);
mist_expr mist_expr_div(struct mist_expr_pool *pool, mist_expr a, mist_expr b);
mist_expr mist_expr_min(struct mist_expr_pool *pool, mist_expr a, mist_expr b);
mist_expr mist_expr_max(struct mist_expr_pool *pool, mist_expr a, mist_expr b);

/* condition > 0 ? yes : no, and a <= b ? yes : no. */
mist_expr mist_expr_select(struct mist_expr_pool *pool, mist_expr condition,
                           mist_expr yes, mist_expr no);
mist_expr mist_expr_select_le(struct mist_expr_pool *pool, mist_expr a, mist_expr b,
                              mist_expr yes, mist_expr no);

/*
 * One operation on numbers (not CONST or SYMBOL); args: [4], unused ones ignored.
 */
double mist_expr_apply(enum mist_expr_op op, const double *args);

/* How many of a node's arg[] are expressions. */
int mist_expr_n_args(enum mist_expr_op op);

/* True when expr is a constant; *value is then its value (NULL allowed). */
bool mist_expr_is_const(const struct mist_expr_pool *pool, mist_expr expr, double *value);

#endif
