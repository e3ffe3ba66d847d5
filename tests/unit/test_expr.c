/* sim/expr: simplification, hash consing, failures. */
#include "tests/unit/fault.h"

#include "tests/unit/test.h"

#include "sim/symbolic/expr.h"
#include "tests/unit/expr_eval.h"
#include "tests/unit/tape_look.h"

#include <math.h>

struct fixture {
    struct mist_expr_pool pool;
    mist_expr x, y, z, zero, one, two;
};

static int set_up(void **state)
{
    static struct fixture f;

    mist_expr_pool_init(&f.pool);
    f.x = mist_expr_symbol(&f.pool, 0);
    f.y = mist_expr_symbol(&f.pool, 1);
    f.z = mist_expr_symbol(&f.pool, 2);
    f.zero = mist_expr_const(&f.pool, 0);
    f.one = mist_expr_const(&f.pool, 1);
    f.two = mist_expr_const(&f.pool, 2);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    mist_expr_pool_fini(&f->pool);
    return 0;
}

TEST_WITH(test_same_expression_is_same_handle, set_up, tear_down)
{
    struct fixture *f = *state;
    struct mist_expr_pool *p = &f->pool;

    assert_int_equal(mist_expr_add(p, f->x, f->y), mist_expr_add(p, f->y, f->x));
    assert_int_equal(mist_expr_mul(p, f->x, f->y), mist_expr_mul(p, f->y, f->x));
    assert_int_equal(mist_expr_min(p, f->x, f->y), mist_expr_min(p, f->y, f->x));
    assert_int_equal(mist_expr_max(p, f->x, f->y), mist_expr_max(p, f->y, f->x));
    assert_int_not_equal(mist_expr_sub(p, f->x, f->y), mist_expr_sub(p, f->y, f->x));
    assert_int_not_equal(mist_expr_div(p, f->x, f->y), mist_expr_div(p, f->y, f->x));
    assert_int_equal(mist_expr_symbol(p, 0), f->x);
    assert_int_equal(p->nodes[f->z].arg[0], 2);
    assert_int_equal(mist_expr_const(p, 1), f->one);
    /* Thousands of nodes: the hash table grows and still finds all. */
    mist_expr first[3000];
    for (int i = 0; i < 3000; i++)
        first[i] = mist_expr_add(p, f->x, mist_expr_const(p, i + 0.5));
    size_t n_nodes = p->n_nodes;
    for (int i = 0; i < 3000; i++)
        assert_int_equal(mist_expr_add(p, f->x, mist_expr_const(p, i + 0.5)), first[i]);
    assert_int_equal(p->n_nodes, n_nodes);
}

TEST_WITH(test_arithmetic_simplifies, set_up, tear_down)
{
    struct fixture *f = *state;
    struct mist_expr_pool *p = &f->pool;
    double value;

    assert_int_equal(mist_expr_add(p, f->x, f->zero), f->x);
    assert_int_equal(mist_expr_add(p, f->zero, f->x), f->x);
    assert_int_equal(mist_expr_sub(p, f->x, f->zero), f->x);
    assert_int_equal(mist_expr_sub(p, f->x, f->x), f->zero);
    assert_int_equal(mist_expr_mul(p, f->x, f->one), f->x);
    assert_int_equal(mist_expr_mul(p, f->zero, f->x), f->zero);
    assert_int_equal(mist_expr_div(p, f->x, f->one), f->x);
    assert_int_equal(mist_expr_div(p, f->x, f->two),
                     mist_expr_mul(p, f->x, mist_expr_const(p, 0.5)));
    mist_expr third = mist_expr_div(p, f->x, mist_expr_const(p, 3));
    assert_int_equal(p->nodes[third].op, MIST_EXPR_DIV); /* 1/3 is not exact */
    assert_int_equal(mist_expr_add(p, f->one, f->one), f->two);
    assert_true(mist_expr_is_const(p, mist_expr_div(p, f->one, f->two), &value));
    assert_true(value == 0.5);
    assert_false(mist_expr_is_const(p, f->x, &value));
    /* Never reassociated: (x + 1) + 2 stays two additions. */
    mist_expr sum = mist_expr_add(p, mist_expr_add(p, f->x, f->one), f->two);
    assert_int_equal(p->nodes[sum].depth, 2);
}

TEST_WITH(test_choices_simplify, set_up, tear_down)
{
    struct fixture *f = *state;
    struct mist_expr_pool *p = &f->pool;
    mist_expr low = mist_expr_min(p, f->x, f->y);
    mist_expr high = mist_expr_max(p, f->x, f->y);

    assert_int_equal(mist_expr_min(p, f->x, f->x), f->x);
    assert_int_equal(mist_expr_min(p, low, f->y), low);
    assert_int_equal(mist_expr_min(p, f->x, low), low);
    assert_int_equal(mist_expr_max(p, high, f->x), high);
    assert_int_not_equal(mist_expr_max(p, low, f->x), low);
    assert_int_equal(mist_expr_select(p, f->one, f->x, f->y), f->x);
    assert_int_equal(mist_expr_select(p, f->zero, f->x, f->y), f->y);
    assert_int_equal(mist_expr_select(p, f->z, f->x, f->x), f->x);
    assert_int_equal(mist_expr_select_le(p, f->one, f->two, f->x, f->y), f->x);
    assert_int_equal(mist_expr_select_le(p, f->z, f->z, f->x, f->y), f->x);
    assert_int_equal(mist_expr_select(p,
                                      mist_expr_select_le(p, f->x, f->y, f->one, f->zero),
                                      f->z, f->one),
                     mist_expr_select_le(p, f->x, f->y, f->z, f->one));
}

TEST_WITH(test_eval, set_up, tear_down)
{
    struct fixture *f = *state;
    struct mist_expr_pool *p = &f->pool;
    mist_expr e = mist_expr_sub(p, mist_expr_mul(p, f->x, f->y),
                                mist_expr_div(p, f->z, mist_expr_const(p, 3)));
    mist_expr s = mist_expr_select(p, mist_expr_sub(p, f->y, f->x), e, f->z);

    for (double x = -2; x <= 2; x += 0.5) {
        double v[3] = {x, 0.75, 10};
        assert_true(expr_eval(p, e, v) == x * 0.75 - 10.0 / 3);
        assert_true(expr_eval(p, s, v) == (x < 0.75 ? x * 0.75 - 10.0 / 3 : 10));
        assert_true(expr_eval(p, mist_expr_select(p, f->x, f->y, f->z), v) ==
                    (x > 0 ? 0.75 : 10));
    }
    assert_true(isnan(expr_eval(p, MIST_EXPR_ERROR, NULL)));
}

TEST_WITH(test_errors_propagate, set_up, tear_down)
{
    struct fixture *f = *state;
    struct mist_expr_pool *p = &f->pool;
    mist_expr e = MIST_EXPR_ERROR;
    struct mist_tape *tape = NULL;

    assert_int_equal(mist_expr_add(p, f->x, e), e);
    assert_int_equal(mist_expr_sub(p, e, f->x), e);
    assert_int_equal(mist_expr_mul(p, e, f->zero), e);
    assert_int_equal(mist_expr_div(p, e, f->one), e);
    assert_int_equal(mist_expr_min(p, e, e), e);
    assert_int_equal(mist_expr_max(p, f->x, e), e);
    assert_int_equal(mist_expr_select(p, e, f->x, f->x), e);
    assert_int_equal(mist_expr_select(p, f->one, f->x, e), e);
    assert_int_equal(mist_expr_select_le(p, f->one, f->two, f->x, e), e);
    assert_int_equal(mist_tape_compile(p, &e, 1, NULL, &tape, NULL), MIST_ERR_RANGE);
    assert_null(tape);
    assert_int_equal(mist_expr_pool_check(p, NULL), MIST_OK);
}

TEST_WITH(test_too_deep_is_refused, set_up, tear_down)
{
    struct fixture *f = *state;
    mist_expr sum = f->x;
    struct mist_tape *tape = NULL;
    double v[3] = {1, 0, 0};
    mist_expr last = sum;

    for (int i = 0; sum >= 0; i++) {
        last = sum;
        sum = mist_expr_add(&f->pool, sum, f->x);
        assert_true(i <= MIST_EXPR_DEPTH_MAX);
    }
    assert_true(expr_eval(&f->pool, last, v) == MIST_EXPR_DEPTH_MAX + 1);
    assert_int_equal(mist_expr_pool_check(&f->pool, NULL), MIST_ERR_RANGE);
    assert_int_equal(mist_tape_compile(&f->pool, &last, 1, NULL, &tape, NULL), MIST_OK);
    mist_tape_free(tape);
    assert_int_equal(mist_tape_compile(&f->pool, &sum, 1, NULL, &tape, NULL),
                     MIST_ERR_RANGE);
}

/* Operations on uniform symbols alone leave the blocks and go to the prologue. */
TEST_WITH(test_uniform_work_is_hoisted, set_up, tear_down)
{
    struct fixture *f = *state;
    struct mist_expr_pool *p = &f->pool;
    mist_expr fixed = mist_expr_mul(p, mist_expr_add(p, f->y, f->z), f->y);
    mist_expr e = mist_expr_add(p, f->x, mist_expr_sub(p, fixed, f->two));
    bool is_uniform[3] = {false, true, true};
    struct mist_tape *tape = NULL;

    assert_int_equal(mist_tape_compile(p, &e, 1, is_uniform, &tape, NULL), MIST_OK);
    assert_int_equal(tape->n_prologue, 3);
    assert_int_equal(tape_look(tape).n_arithmetic, 1);
    assert_int_equal(tape->n_columns, 1);
    mist_tape_free(tape);
    assert_int_equal(mist_tape_compile(p, &e, 1, NULL, &tape, NULL), MIST_OK);
    assert_int_equal(tape->n_prologue, 0);
    assert_int_equal(tape_look(tape).n_arithmetic, 4);
    mist_tape_free(tape);
}

/* Builds something with everything in it, and compiles it; any malloc may fail. */
static enum mist_status build_all(struct mist_expr_pool *p)
{
    struct mist_tape *tape = NULL;
    bool is_uniform[40] = {true, false, true};
    mist_expr terms[40], sum = mist_expr_const(p, 0);

    for (int i = 0; i < 40; i++) {
        terms[i] = mist_expr_symbol(p, i);
        terms[i] = mist_expr_mul(p, terms[i], terms[i / 2]);
        terms[i] = mist_expr_select_le(p, terms[i], mist_expr_const(p, i), terms[i / 3],
                                       mist_expr_const(p, 0.5));
        sum = mist_expr_add(p, sum, terms[i]);
    }
    mist_expr outputs[2] = {sum, terms[7]};
    enum mist_status status = mist_tape_compile(p, outputs, 2, is_uniform, &tape, NULL);
    mist_tape_free(tape);
    return status;
}

TEST(test_out_of_memory)
{
    long n_before = fault_n_live();

    for (long n = 1;; n++) {
        struct mist_expr_pool pool;
        mist_expr_pool_init(&pool);
        fault_arm(FAULT_MALLOC, n);
        enum mist_status status = build_all(&pool);
        bool has_failed = fault_disarm();
        mist_expr_pool_fini(&pool);
        assert_int_equal(fault_n_live(), n_before);
        assert_int_equal(status, has_failed ? MIST_ERR_MEMORY : MIST_OK);
        if (!has_failed) {
            assert_true(n > 20);
            break;
        }
    }
}

TEST_MAIN(NULL, NULL)
