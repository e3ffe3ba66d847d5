/* The slow, obvious evaluation of an expression, which tapes are compared with. */
#ifndef MIST_TESTS_EXPR_EVAL_H
#define MIST_TESTS_EXPR_EVAL_H

#include "sim/symbolic/expr.h"

#include <math.h>
#include <stdlib.h>

/* values: by symbol index. NaN for MIST_EXPR_ERROR. Operands have smaller handles. */
static inline double expr_eval(const struct mist_expr_pool *pool, mist_expr expr,
                               const double *values)
{
    double *v = calloc((size_t)expr + 2, sizeof *v), result = NAN;

    if (!v)
        abort();
    for (mist_expr i = 0; i <= expr; i++) {
        const struct mist_expr_node *node = &pool->nodes[i];
        double x[4] = {0};
        for (int k = 0; node->op > MIST_EXPR_SYMBOL && k < 4; k++)
            x[k] = node->arg[k] < 0 ? 0 : v[node->arg[k]];
        switch ((enum mist_expr_op)node->op) {
        case MIST_EXPR_CONST:
            v[i] = node->value;
            break;
        case MIST_EXPR_SYMBOL:
            v[i] = values[node->arg[0]];
            break;
        case MIST_EXPR_ADD:
            v[i] = x[0] + x[1];
            break;
        case MIST_EXPR_SUB:
            v[i] = x[0] - x[1];
            break;
        case MIST_EXPR_MUL:
            v[i] = x[0] * x[1];
            break;
        case MIST_EXPR_DIV:
            v[i] = x[0] / x[1];
            break;
        case MIST_EXPR_MIN:
            v[i] = x[0] < x[1] ? x[0] : x[1];
            break;
        case MIST_EXPR_MAX:
            v[i] = x[0] > x[1] ? x[0] : x[1];
            break;
        case MIST_EXPR_SELECT_LT:
            v[i] = x[0] < x[1] ? x[2] : x[3];
            break;
        case MIST_EXPR_SELECT_LE:
            v[i] = x[0] <= x[1] ? x[2] : x[3];
            break;
        default:
            abort();
        }
    }
    if (expr >= 0)
        result = v[expr];
    free(v);
    return result;
}

#endif
