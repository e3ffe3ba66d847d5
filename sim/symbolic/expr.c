/* Symbolic expressions: hash consing, simplification, evaluation, substitution.
 * See expr.h. */
#include "sim/symbolic/expr.h"

#include "core/memory.h" /* MIST_RESERVE */

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void mist_expr_pool_init(struct mist_expr_pool *pool)
{
    *pool = (struct mist_expr_pool){0};
}

void mist_expr_pool_fini(struct mist_expr_pool *pool)
{
    free(pool->nodes);
    free(pool->slots);
    *pool = (struct mist_expr_pool){0};
}

enum mist_status mist_expr_pool_check(const struct mist_expr_pool *pool,
                                      struct mist_err *err)
{
    if (pool->status == MIST_ERR_MEMORY)
        return mist_err_set(err, MIST_ERR_MEMORY,
                            "out of memory while building expressions");
    if (pool->status == MIST_ERR_RANGE)
        return mist_err_set(err, MIST_ERR_RANGE,
                            "an expression is deeper than %d operations",
                            MIST_EXPR_DEPTH_MAX);
    return MIST_OK;
}

static mist_expr fail(struct mist_expr_pool *pool, enum mist_status status)
{
    if (pool->status == MIST_OK)
        pool->status = status;
    return MIST_EXPR_ERROR;
}

int mist_expr_n_args(enum mist_expr_op op)
{
    static const signed char n_args[MIST_EXPR_N_OPS] = {
        [MIST_EXPR_ADD] = 2,       [MIST_EXPR_SUB] = 2,       [MIST_EXPR_MUL] = 2,
        [MIST_EXPR_DIV] = 2,       [MIST_EXPR_MIN] = 2,       [MIST_EXPR_MAX] = 2,
        [MIST_EXPR_SELECT_LT] = 4, [MIST_EXPR_SELECT_LE] = 4,
    };
    return n_args[op];
}

/* ------------------------------------------------------------------ hash consing */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

static uint64_t bits_of(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint64_t hash_node(const struct mist_expr_node *node)
{
    uint64_t hash = mix((uint64_t)node->op, bits_of(node->value));

    for (int i = 0; i < 4; i++)
        hash = mix(hash, (uint32_t)node->arg[i]);
    return hash;
}

static bool nodes_are_equal(const struct mist_expr_node *a,
                            const struct mist_expr_node *b)
{
    return a->op == b->op && bits_of(a->value) == bits_of(b->value) &&
           memcmp(a->arg, b->arg, sizeof a->arg) == 0;
}

/* The slot that holds an equal node, or the empty one where it belongs. */
static size_t find_slot(const struct mist_expr_pool *pool,
                        const struct mist_expr_node *node)
{
    size_t slot = (size_t)hash_node(node) & (pool->n_slots - 1);

    while (pool->slots[slot] >= 0 &&
           !nodes_are_equal(&pool->nodes[pool->slots[slot]], node))
        slot = (slot + 1) & (pool->n_slots - 1);
    return slot;
}

static bool grow_slots(struct mist_expr_pool *pool)
{
    size_t n_slots = pool->n_slots ? 2 * pool->n_slots : 256;
    int32_t *slots = malloc(n_slots * sizeof *slots);

    if (!slots)
        return false;
    memset(slots, 0xff, n_slots * sizeof *slots);
    free(pool->slots);
    pool->slots = slots;
    pool->n_slots = n_slots;
    for (size_t i = 0; i < pool->n_nodes; i++)
        slots[find_slot(pool, &pool->nodes[i])] = (int32_t)i;
    return true;
}

/* Makes room for one more node everywhere. On failure the pool stays as it was. */
static bool reserve_node(struct mist_expr_pool *pool)
{
    size_t need = pool->n_nodes + 1;

    return need <= INT32_MAX && (2 * need <= pool->n_slots || grow_slots(pool)) &&
           MIST_RESERVE(pool->nodes, pool->capacity, need);
}

/* The handle of a node that is complete but for its depth. */
static mist_expr intern(struct mist_expr_pool *pool, struct mist_expr_node node)
{
    int n_args = mist_expr_n_args((enum mist_expr_op)node.op);

    if (!reserve_node(pool))
        return fail(pool, MIST_ERR_MEMORY);
    for (int i = 0; i < n_args; i++) {
        int32_t depth = pool->nodes[node.arg[i]].depth + 1;
        node.depth = depth > node.depth ? depth : node.depth;
    }
    if (node.depth > MIST_EXPR_DEPTH_MAX)
        return fail(pool, MIST_ERR_RANGE);
    size_t slot = find_slot(pool, &node);
    if (pool->slots[slot] < 0) {
        pool->slots[slot] = (int32_t)pool->n_nodes;
        pool->nodes[pool->n_nodes] = node;
        pool->n_nodes++;
    }
    return pool->slots[slot];
}

static mist_expr intern_op(struct mist_expr_pool *pool, enum mist_expr_op op, mist_expr a,
                           mist_expr b, mist_expr c, mist_expr d)
{
    return intern(pool, (struct mist_expr_node){.op = (int32_t)op, .arg = {a, b, c, d}});
}

/* ------------------------------------------------------------------------ leaves */

mist_expr mist_expr_const(struct mist_expr_pool *pool, double value)
{
    return intern(pool, (struct mist_expr_node){.op = MIST_EXPR_CONST,
                                                .value = value,
                                                .arg = {-1, -1, -1, -1}});
}

bool mist_expr_is_const(const struct mist_expr_pool *pool, mist_expr expr, double *value)
{
    if (expr < 0 || pool->nodes[expr].op != MIST_EXPR_CONST)
        return false;
    if (value)
        *value = pool->nodes[expr].value;
    return true;
}

mist_expr mist_expr_symbol(struct mist_expr_pool *pool, int32_t index)
{
    return intern_op(pool, MIST_EXPR_SYMBOL, index, -1, -1, -1);
}

/* -------------------------------------------------------------------- operations */

double mist_expr_apply(enum mist_expr_op op, const double *args)
{
    switch (op) {
    case MIST_EXPR_ADD:
        return args[0] + args[1];
    case MIST_EXPR_SUB:
        return args[0] - args[1];
    case MIST_EXPR_MUL:
        return args[0] * args[1];
    case MIST_EXPR_DIV:
        return args[0] / args[1];
    case MIST_EXPR_MIN:
        return args[0] < args[1] ? args[0] : args[1];
    case MIST_EXPR_MAX:
        return args[0] > args[1] ? args[0] : args[1];
    case MIST_EXPR_SELECT_LT:
        return args[0] < args[1] ? args[2] : args[3];
    case MIST_EXPR_SELECT_LE:
        return args[0] <= args[1] ? args[2] : args[3];
    default:
        assert(false && "a leaf is no operation");
        return NAN;
    }
}

static bool is_value(const struct mist_expr_pool *pool, mist_expr expr, double value)
{
    return pool->nodes[expr].op == MIST_EXPR_CONST && pool->nodes[expr].value == value;
}

/* a op b of constants, or of what is none; false when one of them is no constant. */
static bool fold(struct mist_expr_pool *pool, enum mist_expr_op op, mist_expr a,
                 mist_expr b, mist_expr *out)
{
    double args[4] = {0};

    *out = MIST_EXPR_ERROR;
    if (a < 0 || b < 0)
        return true;
    if (!mist_expr_is_const(pool, a, &args[0]) || !mist_expr_is_const(pool, b, &args[1]))
        return false;
    *out = mist_expr_const(pool, mist_expr_apply(op, args));
    return true;
}

static mist_expr intern_commutative(struct mist_expr_pool *pool, enum mist_expr_op op,
                                    mist_expr a, mist_expr b)
{
    return a <= b ? intern_op(pool, op, a, b, -1, -1) : intern_op(pool, op, b, a, -1, -1);
}

mist_expr mist_expr_add(struct mist_expr_pool *pool, mist_expr a, mist_expr b)
{
    mist_expr folded;

    if (fold(pool, MIST_EXPR_ADD, a, b, &folded))
        return folded;
    if (is_value(pool, a, 0))
        return b;
    if (is_value(pool, b, 0))
        return a;
    return intern_commutative(pool, MIST_EXPR_ADD, a, b);
}

mist_expr mist_expr_sub(struct mist_expr_pool *pool, mist_expr a, mist_expr b)
{
    mist_expr folded;

    if (fold(pool, MIST_EXPR_SUB, a, b, &folded))
        return folded;
    if (a == b)
        return mist_expr_const(pool, 0);
    if (is_value(pool, b, 0))
        return a;
    return intern_op(pool, MIST_EXPR_SUB, a, b, -1, -1);
}

mist_expr mist_expr_mul(struct mist_expr_pool *pool, mist_expr a, mist_expr b)
{
    mist_expr folded;

    if (fold(pool, MIST_EXPR_MUL, a, b, &folded))
        return folded;
    if (is_value(pool, a, 0) || is_value(pool, b, 0))
        return mist_expr_const(pool, 0);
    if (is_value(pool, a, 1))
        return b;
    if (is_value(pool, b, 1))
        return a;
    return intern_commutative(pool, MIST_EXPR_MUL, a, b);
}

mist_expr mist_expr_div(struct mist_expr_pool *pool, mist_expr a, mist_expr b)
{
    mist_expr folded;
    double divisor;
    int exponent;

    if (fold(pool, MIST_EXPR_DIV, a, b, &folded))
        return folded;
    if (is_value(pool, b, 1))
        return a;
    /* A power of two has an exact reciprocal,
     * and multiplying by it rounds as dividing does. */
    if (mist_expr_is_const(pool, b, &divisor) && isnormal(divisor) &&
        isnormal(1 / divisor) && fabs(frexp(divisor, &exponent)) == 0.5)
        return mist_expr_mul(pool, a, mist_expr_const(pool, 1 / divisor));
    return intern_op(pool, MIST_EXPR_DIV, a, b, -1, -1);
}

/*
 * min(min(x, y), y) is min(x, y): true when b is an operand of a, which is an op itself.
 */
static bool absorbs(const struct mist_expr_pool *pool, enum mist_expr_op op, mist_expr a,
                    mist_expr b)
{
    const struct mist_expr_node *node = &pool->nodes[a];

    return node->op == (int32_t)op && (node->arg[0] == b || node->arg[1] == b);
}

static mist_expr extremum(struct mist_expr_pool *pool, enum mist_expr_op op, mist_expr a,
                          mist_expr b)
{
    mist_expr folded;

    if (fold(pool, op, a, b, &folded))
        return folded;
    if (a == b || absorbs(pool, op, a, b))
        return a;
    if (absorbs(pool, op, b, a))
        return b;
    return intern_commutative(pool, op, a, b);
}

mist_expr mist_expr_min(struct mist_expr_pool *pool, mist_expr a, mist_expr b)
{
    return extremum(pool, MIST_EXPR_MIN, a, b);
}

mist_expr mist_expr_max(struct mist_expr_pool *pool, mist_expr a, mist_expr b)
{
    return extremum(pool, MIST_EXPR_MAX, a, b);
}

static mist_expr choose(struct mist_expr_pool *pool, enum mist_expr_op op, mist_expr a,
                        mist_expr b, mist_expr yes, mist_expr no)
{
    double args[4] = {0, 0, 1, 0};

    if (a < 0 || b < 0 || yes < 0 || no < 0)
        return MIST_EXPR_ERROR;
    if (yes == no)
        return yes;
    if (a == b)
        return op == MIST_EXPR_SELECT_LT ? no : yes;
    if (mist_expr_is_const(pool, a, &args[0]) && mist_expr_is_const(pool, b, &args[1]))
        return mist_expr_apply(op, args) > 0 ? yes : no;
    return intern_op(pool, op, a, b, yes, no);
}

mist_expr mist_expr_select_le(struct mist_expr_pool *pool, mist_expr a, mist_expr b,
                              mist_expr yes, mist_expr no)
{
    return choose(pool, MIST_EXPR_SELECT_LE, a, b, yes, no);
}

mist_expr mist_expr_select(struct mist_expr_pool *pool, mist_expr condition,
                           mist_expr yes, mist_expr no)
{
    if (condition < 0)
        return MIST_EXPR_ERROR;
    struct mist_expr_node node = pool->nodes[condition];
    bool is_select = node.op == MIST_EXPR_SELECT_LT || node.op == MIST_EXPR_SELECT_LE;
    if (is_select && is_value(pool, node.arg[2], 1) && is_value(pool, node.arg[3], 0))
        return choose(pool, (enum mist_expr_op)node.op, node.arg[0], node.arg[1], yes,
                      no);
    return choose(pool, MIST_EXPR_SELECT_LT, mist_expr_const(pool, 0), condition, yes,
                  no);
}
