/*
 * Compiled expressions against the recursive evaluation: random expressions of hundreds
 * of nodes with every operation, on every instruction set that this processor has, bit
 * for bit.
 */
#include "tests/unit/expr_eval.h"
#include "tests/unit/tape_look.h"
#include "tests/unit/test.h"

#include <math.h>

enum { N_SYMBOLS = 12, N_OPS = 400, N_OUTPUTS = 7, N_MAX = 1000 };

static uint64_t random_state;

static uint64_t next_random(void)
{
    random_state += 0x9e3779b97f4a7c15u;
    uint64_t z = random_state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int below(int n)
{
    return (int)(next_random() % (uint64_t)n);
}

static double random_value(void)
{
    static const double special[] = {0, 1, -1, 0.5, 2, 3, -0.0};

    if (below(3) == 0)
        return special[below(7)];
    return (double)below(2000001) / 10000.0 - 100.0;
}

struct dag {
    struct mist_expr_pool pool;
    mist_expr nodes[N_SYMBOLS + N_OPS];
    int n_nodes;
    bool is_uniform[N_SYMBOLS];
    mist_expr outputs[N_OUTPUTS];
};

/* Mostly recent nodes, so that the graph is deep; sometimes a constant. */
static mist_expr pick(struct dag *dag)
{
    if (below(8) == 0)
        return mist_expr_const(&dag->pool, random_value());
    if (below(3) == 0)
        return dag->nodes[below(dag->n_nodes)];
    int window = dag->n_nodes < 12 ? dag->n_nodes : 12;
    return dag->nodes[dag->n_nodes - 1 - below(window)];
}

/* Values stay finite for a while: what grows is brought back by min and max. */
static mist_expr random_op(struct dag *dag)
{
    struct mist_expr_pool *pool = &dag->pool;
    mist_expr a = pick(dag), b = pick(dag), c = pick(dag), d = pick(dag);

    switch (below(14)) {
    case 0:
    case 1:
        return mist_expr_add(pool, a, b);
    case 2:
    case 3:
        return mist_expr_sub(pool, a, b);
    case 4:
        return mist_expr_mul(pool, a, b);
    case 5:
        return mist_expr_div(pool, a, b);
    case 6:
    case 7:
        return mist_expr_min(pool, a, b);
    case 8:
    case 9:
        return mist_expr_max(pool, a, b);
    case 10:
        return mist_expr_select(pool, mist_expr_sub(pool, b, a), c, d);
    case 11:
        return mist_expr_select_le(pool, a, b, c, d);
    case 12: /* a comparison as condition */
        return mist_expr_select(pool,
                                mist_expr_select_le(pool, a, b, mist_expr_const(pool, 1),
                                                    mist_expr_const(pool, 0)),
                                c, d);
    default:
        return mist_expr_select(pool, a, b, c);
    }
}

static void build_dag(struct dag *dag, int n_ops)
{
    mist_expr_pool_init(&dag->pool);
    dag->n_nodes = 0;
    for (int i = 0; i < N_SYMBOLS; i++) {
        dag->nodes[dag->n_nodes++] = mist_expr_symbol(&dag->pool, i);
        dag->is_uniform[i] = below(3) == 0;
    }
    for (int i = 0; i < n_ops; i++) {
        mist_expr expr = random_op(dag);
        dag->nodes[dag->n_nodes++] = expr;
    }
    for (int i = 0; i < N_OUTPUTS; i++)
        dag->outputs[i] =
            below(4) == 0 ? pick(dag) : dag->nodes[dag->n_nodes - 1 - 3 * i];
    assert_int_equal(mist_expr_pool_check(&dag->pool, NULL), MIST_OK);
}

struct data {
    double columns[N_SYMBOLS][N_MAX + 1];
    double outputs[N_OUTPUTS][N_MAX + 1];
    struct mist_tape_input inputs[N_SYMBOLS];
};

/* Columns for most varying symbols, one value for the rest; not aligned to vectors. */
static void fill_data(struct data *data, const struct dag *dag, size_t n)
{
    for (int i = 0; i < N_SYMBOLS; i++) {
        bool has_column = !dag->is_uniform[i] && below(5) > 0;
        data->inputs[i].column = has_column ? data->columns[i] + 1 : NULL;
        data->inputs[i].value = random_value();
        for (size_t k = 0; k < n; k++)
            data->columns[i][k + 1] = random_value();
    }
}

static void assert_same(double got, double want)
{
    uint64_t got_bits, want_bits;

    if (isnan(got) && isnan(want))
        return;
    memcpy(&got_bits, &got, sizeof got);
    memcpy(&want_bits, &want, sizeof want);
    if (got_bits != want_bits)
        print_error("got %.17g, want %.17g\n", got, want);
    assert_true(got_bits == want_bits);
}

/* All of n, or those in runs of 0 to 99 that are left out in turns. */
static size_t choose_rows(size_t n, bool *is_wanted, int32_t *rows)
{
    bool takes_all = below(2) == 0, takes = true;
    size_t n_rows = 0;

    for (size_t k = 0, left = 0; k<n; k++, left -= left> 0) {
        if (left == 0) {
            left = (size_t)below(100);
            takes = !takes;
        }
        is_wanted[k] = takes_all || takes;
        if (is_wanted[k])
            rows[n_rows++] = (int32_t)k;
    }
    return n_rows;
}

/* Returns how many of the values compared were finite and not 0,
 * as a check on the test itself. */
static size_t compare(struct dag *dag, const struct mist_tape *tape, struct data *data,
                      size_t n, void *scratch, int skipped)
{
    double *outputs[N_OUTPUTS];
    double values[N_SYMBOLS];
    size_t n_telling = 0;

    int32_t rows[N_MAX];
    bool is_wanted[N_MAX];
    size_t n_rows = choose_rows(n, is_wanted, rows);

    for (int i = 0; i < N_OUTPUTS; i++) {
        outputs[i] = i == skipped ? NULL : data->outputs[i];
        for (size_t k = 0; k <= n; k++)
            data->outputs[i][k] = 12345;
    }
    memset(scratch, 0xff, mist_tape_scratch_bytes(tape));
    mist_tape_eval(tape, data->inputs, n_rows < n ? rows : NULL, n_rows, outputs,
                   scratch);
    for (size_t k = 0; k < n; k++) {
        for (int i = 0; i < N_OUTPUTS && !is_wanted[k]; i++)
            assert_true(data->outputs[i][k] == 12345);
        if (!is_wanted[k])
            continue;
        for (int i = 0; i < N_SYMBOLS; i++)
            values[i] = data->inputs[i].column ? data->inputs[i].column[k]
                                               : data->inputs[i].value;
        for (int i = 0; i < N_OUTPUTS; i++) {
            if (i == skipped)
                continue;
            double want = expr_eval(&dag->pool, dag->outputs[i], values);
            assert_same(data->outputs[i][k], want);
            n_telling += isfinite(want) && want != 0;
        }
    }
    for (int i = 0; i < N_OUTPUTS; i++)
        assert_true(i == skipped || data->outputs[i][n] == 12345);
    return n_telling;
}

static void *new_scratch(const struct mist_tape *tape)
{
    size_t bytes = (mist_tape_scratch_bytes(tape) + 63) / 64 * 64;
    void *scratch = aligned_alloc(64, bytes);

    assert_non_null(scratch);
    return scratch;
}

TEST(test_tape_equals_recursion)
{
    static const size_t lengths[] = {1, 7, 64, 255, 1000, 0};
    static struct dag dag;
    static struct data data;
    size_t n_configurations = 0, n_telling = 0, n_values = 0;

    for (int round = 0; n_configurations < 20000; round++) {
        struct mist_tape *tape = NULL;
        size_t n = lengths[round % 6];
        build_dag(&dag, round % 3 == 0 ? 20 : N_OPS);
        fill_data(&data, &dag, n);
        assert_int_equal(mist_tape_compile(&dag.pool, dag.outputs, N_OUTPUTS,
                                           dag.is_uniform, &tape, NULL),
                         MIST_OK);
        void *scratch = new_scratch(tape);
        for (int isa = 0; isa < MIST_TAPE_N_ISAS; isa++) {
            if (!tape_set_isa(tape, (enum mist_tape_isa)isa))
                continue;
            n_telling += compare(&dag, tape, &data, n, scratch, below(2 * N_OUTPUTS));
            n_values += n * N_OUTPUTS;
            n_configurations += n;
        }
        free(scratch);
        mist_tape_free(tape);
        mist_expr_pool_fini(&dag.pool);
    }
    assert_true(n_telling > n_values / 4);
}

/* The same sums whether a symbol is compiled as uniform or given
 * as a column of equal values. */
TEST(test_uniform_equals_column)
{
    static struct dag dag;
    static struct data data;
    static double uniform_outputs[N_OUTPUTS][N_MAX + 1];
    double *outputs[N_OUTPUTS];
    struct mist_tape *tapes[2];

    build_dag(&dag, N_OPS);
    fill_data(&data, &dag, 100);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mist_tape_compile(&dag.pool, dag.outputs, N_OUTPUTS,
                                           i == 0 ? dag.is_uniform : NULL, &tapes[i],
                                           NULL),
                         MIST_OK);
        void *scratch = new_scratch(tapes[i]);
        for (int k = 0; k < N_OUTPUTS; k++)
            outputs[k] = i == 0 ? uniform_outputs[k] : data.outputs[k];
        mist_tape_eval(tapes[i], data.inputs, NULL, 100, outputs, scratch);
        free(scratch);
    }
    for (int k = 0; k < N_OUTPUTS; k++)
        for (int i = 0; i < 100; i++)
            assert_same(uniform_outputs[k][i], data.outputs[k][i]);
    mist_tape_free(tapes[0]);
    mist_tape_free(tapes[1]);
    mist_expr_pool_fini(&dag.pool);
}

int main(void)
{
    random_state = test_seed(1);
    return run_listed_tests(NULL, NULL);
}
