/*
 * Configurations per second of a stage's cost: t, d and two memory peaks of one pipeline
 * stage over ten varying symbols, priced by the compiled tape, by the recursive
 * evaluation and by a loop per operation over whole columns.
 *
 * The expressions have the shape of the cost model's (four-channel bundles, ZeRO flags,
 * offload ratios, checkpointed layers); their coefficients are round numbers. Takes the
 * best of a few runs on one core; prints a table. The three agree bit for bit, or exit
 * code 6.
 */
#include "tests/bench/bench.h"
#include "tests/unit/expr_eval.h"
#include "tests/unit/tape_look.h"

#include <math.h>

enum { N_CHANNELS = 4, N_OUTPUTS = 4, N_SYMBOLS = 10, N_CONFIGURATIONS = 4096 };

/* ------------------------------------------------------------- the cost of a stage */

struct model {
    struct mist_expr_pool pool;
    /* Micro-batch, dp, tp, level of ZeRO, layers, those that are checkpointed; what is
     * offloaded of weights, gradients, state, activations. */
    mist_expr s[N_SYMBOLS];
    mist_expr outputs[N_OUTPUTS];
};

static struct mist_expr_pool *pool; /* one model in this program; keeps formulas short */

static mist_expr num(double value)
{
    return mist_expr_const(pool, value);
}

static mist_expr add(mist_expr a, mist_expr b)
{
    return mist_expr_add(pool, a, b);
}

static mist_expr mul(mist_expr a, mist_expr b)
{
    return mist_expr_mul(pool, a, b);
}

/*
 * One bundle: what runs alone after what is shared, slowest channel last. 28 operations.
 */
static mist_expr bundle_time(const mist_expr *channels)
{
    mist_expr fast = mist_expr_min(pool, channels[0], channels[1]);
    mist_expr slow = mist_expr_max(pool, channels[0], channels[1]);
    mist_expr low = mist_expr_min(pool, channels[2], channels[3]);
    mist_expr high = mist_expr_max(pool, channels[2], channels[3]);
    mist_expr first = mist_expr_min(pool, fast, low);
    mist_expr last = mist_expr_max(pool, slow, high);
    mist_expr inner_a = mist_expr_max(pool, fast, low);
    mist_expr inner_b = mist_expr_min(pool, slow, high);
    mist_expr second = mist_expr_min(pool, inner_a, inner_b);
    mist_expr third = mist_expr_max(pool, inner_a, inner_b);
    mist_expr time = mul(first, num(1.45));

    time = add(time, mul(mist_expr_sub(pool, second, first), num(1.27)));
    time = add(time, mul(mist_expr_sub(pool, third, second), num(1.11)));
    return add(time, mist_expr_sub(pool, last, third));
}

struct parts {
    mist_expr compute_fwd, compute_bwd, tp_comm, gather, scatter, h2d, d2h;
    mist_expr weight_bytes, grad_bytes, state_bytes, act_bytes, ckpt_bytes;
};

static mist_expr share(mist_expr flag_above, mist_expr zero, mist_expr dp,
                       mist_expr bytes)
{
    mist_expr is_sharded = mist_expr_sub(pool, zero, flag_above);

    return mist_expr_select(pool, is_sharded, mist_expr_div(pool, bytes, dp), bytes);
}

static struct parts build_parts(const mist_expr *s)
{
    mist_expr b = s[0], dp = s[1], tp = s[2], zero = s[3];
    mist_expr kept = mist_expr_sub(pool, num(1), s[6]);
    mist_expr weights = mist_expr_div(pool, num(4.03e8), tp);
    mist_expr act = mist_expr_div(pool, mul(b, num(1.4e8)), tp);
    mist_expr is_tp = mist_expr_sub(pool, tp, num(1));
    mist_expr is_gathered = mist_expr_sub(pool, zero, num(2));
    mist_expr ring = mist_expr_div(pool, mist_expr_sub(pool, dp, num(1)), dp);
    struct parts p;

    p.compute_fwd = add(mist_expr_div(pool, mul(b, num(3.1e-3)), tp), num(4e-5));
    p.compute_bwd = mul(p.compute_fwd, num(2));
    p.tp_comm =
        mist_expr_select(pool, is_tp, add(mul(b, num(4.2e-4)), num(2e-5)), num(0));
    p.weight_bytes = mul(share(num(2), zero, dp, weights), kept);
    p.grad_bytes =
        mul(share(num(1), zero, dp, weights), mist_expr_sub(pool, num(1), s[7]));
    p.state_bytes = mul(share(num(0), zero, dp, mul(weights, num(6))),
                        mist_expr_sub(pool, num(1), s[8]));
    p.act_bytes = mul(act, mist_expr_sub(pool, num(1), s[9]));
    p.ckpt_bytes = mul(b, num(1.6e7));
    p.gather =
        mist_expr_select(pool, is_gathered, mul(mul(weights, ring), num(7e-12)), num(0));
    p.scatter = add(mul(mul(weights, ring), num(8e-12)), num(3e-5));
    p.h2d = mul(mul(weights, s[6]), num(4.1e-11));
    p.d2h = mul(mul(act, s[9]), num(4.3e-11));
    return p;
}

/* Time of a layer, with the channels' work of this step. */
static mist_expr layer_time(mist_expr compute, mist_expr comm, mist_expr in,
                            mist_expr out)
{
    mist_expr channels[N_CHANNELS] = {compute, comm, in, out};

    return bundle_time(channels);
}

static void build_times(struct model *model, const struct parts *p)
{
    mist_expr layers = model->s[4], n_ckpt = model->s[5];
    mist_expr n_plain = mist_expr_sub(pool, layers, n_ckpt);
    mist_expr update = mul(p->state_bytes, num(9e-13));
    mist_expr state_in = mul(mul(p->weight_bytes, model->s[8]), num(1.3e-10));
    mist_expr fwd =
        layer_time(p->compute_fwd, add(p->gather, p->tp_comm), p->h2d, p->d2h);
    mist_expr bwd = layer_time(p->compute_bwd, add(p->gather, p->tp_comm),
                               add(p->h2d, p->d2h), mul(p->grad_bytes, num(1e-12)));
    mist_expr bwd_ckpt = layer_time(add(p->compute_bwd, p->compute_fwd),
                                    add(p->gather, mul(p->tp_comm, num(1.5))), p->h2d,
                                    mul(p->grad_bytes, num(1e-12)));
    mist_expr first = layer_time(add(p->compute_fwd, update), p->gather,
                                 add(p->h2d, state_in), add(p->d2h, state_in));
    mist_expr final = layer_time(p->compute_bwd, add(p->scatter, p->tp_comm), p->h2d,
                                 mul(p->grad_bytes, num(4e-11)));
    mist_expr t = add(mul(layers, fwd), add(mul(n_plain, bwd), mul(n_ckpt, bwd_ckpt)));
    mist_expr d_first = mist_expr_max(pool, mist_expr_sub(pool, first, fwd), num(0));
    mist_expr d_final = mist_expr_max(pool, mist_expr_sub(pool, final, bwd), num(0));

    model->outputs[0] = t;
    model->outputs[1] = mul(layers, add(d_first, d_final));
}

static void build_peaks(struct model *model, const struct parts *p)
{
    mist_expr layers = model->s[4], n_ckpt = model->s[5];
    mist_expr n_plain = mist_expr_sub(pool, layers, n_ckpt);
    mist_expr resident =
        mul(layers, add(p->weight_bytes, add(p->grad_bytes, p->state_bytes)));
    mist_expr acts = add(mul(n_plain, p->act_bytes), mul(n_ckpt, p->ckpt_bytes));
    mist_expr in_flight = mul(layers, num(0.125));
    mist_expr window = mul(mist_expr_min(pool, layers, num(2)), p->weight_bytes);
    mist_expr is_ckpt = mist_expr_sub(pool, n_ckpt, num(0));
    mist_expr again = mist_expr_select(pool, is_ckpt, p->act_bytes, num(0));
    mist_expr work_fwd = mul(model->s[0], num(5.2e7));
    mist_expr work_bwd = add(mul(model->s[0], num(7.9e7)), p->grad_bytes);
    mist_expr held = add(resident, mul(in_flight, acts));

    model->outputs[2] = add(held, add(window, work_fwd));
    model->outputs[3] = mist_expr_max(pool, add(add(held, window), add(again, work_bwd)),
                                      add(resident, mul(p->state_bytes, num(2))));
}

static void build_model(struct model *model)
{
    mist_expr_pool_init(&model->pool);
    pool = &model->pool;
    for (int i = 0; i < N_SYMBOLS; i++)
        model->s[i] = mist_expr_symbol(pool, i);
    struct parts parts = build_parts(model->s);
    build_times(model, &parts);
    build_peaks(model, &parts);
}

/* ------------------------------------------------- a loop per operation, unblocked */

struct naive {
    double *columns[512]; /* [nodes][N_CONFIGURATIONS] */
};

static void naive_node(const struct naive *naive, const struct mist_expr_node *node,
                       double *restrict out)
{
    const double *a[4] = {NULL};

    for (int i = 0; i < mist_expr_n_args((enum mist_expr_op)node->op); i++)
        a[i] = naive->columns[node->arg[i]];
#define LOOP(VALUE)                                                                      \
    for (int i = 0; i < N_CONFIGURATIONS; i++)                                           \
        out[i] = VALUE;                                                                  \
    break
    switch ((enum mist_expr_op)node->op) {
    case MIST_EXPR_ADD:
        LOOP(a[0][i] + a[1][i]);
    case MIST_EXPR_SUB:
        LOOP(a[0][i] - a[1][i]);
    case MIST_EXPR_MUL:
        LOOP(a[0][i] * a[1][i]);
    case MIST_EXPR_DIV:
        LOOP(a[0][i] / a[1][i]);
    case MIST_EXPR_MIN:
        LOOP(a[0][i] < a[1][i] ? a[0][i] : a[1][i]);
    case MIST_EXPR_MAX:
        LOOP(a[0][i] > a[1][i] ? a[0][i] : a[1][i]);
    case MIST_EXPR_SELECT_LT:
        LOOP(a[0][i] < a[1][i] ? a[2][i] : a[3][i]);
    case MIST_EXPR_SELECT_LE:
        LOOP(a[0][i] <= a[1][i] ? a[2][i] : a[3][i]);
    default:
        break;
    }
#undef LOOP
}

static void naive_eval(const struct naive *naive)
{
    for (size_t i = 0; i < pool->n_nodes; i++)
        naive_node(naive, &pool->nodes[i], naive->columns[i]);
}

static void naive_set_up(struct naive *naive, double (*columns)[N_CONFIGURATIONS])
{
    for (size_t i = 0; i < pool->n_nodes; i++) {
        const struct mist_expr_node *node = &pool->nodes[i];
        naive->columns[i] = must_alloc(N_CONFIGURATIONS * (int64_t)sizeof(double));
        for (int k = 0; k < N_CONFIGURATIONS; k++)
            naive->columns[i][k] =
                node->op == MIST_EXPR_SYMBOL ? columns[node->arg[0]][k] : node->value;
    }
}

/* ------------------------------------------------------------------------ the runs */

static void fill_columns(double (*columns)[N_CONFIGURATIONS])
{
    for (int k = 0; k < N_CONFIGURATIONS; k++) {
        double values[N_SYMBOLS] = {1 << (k % 4),      1 << (k / 4 % 5),
                                    1 << (k / 9 % 4),  k / 5 % 4,
                                    8 + k % 25,        k % 9,
                                    (k % 9) / 8.0,     (k / 3 % 9) / 8.0,
                                    (k / 7 % 9) / 8.0, (k / 11 % 9) / 8.0};
        for (int i = 0; i < N_SYMBOLS; i++)
            columns[i][k] = values[i];
    }
}

static void print_row(const char *name, double best_s, double n)
{
    printf("%-38s %9.2f %12.1f\n", name, best_s / n * 1e9, n / best_s * 1e-6);
}

/* Seconds of the best of 15 runs of n_calls calls. */
static double time_tape(const struct mist_tape *tape,
                        const struct mist_tape_input *inputs, double *const *outputs,
                        void *scratch, int n_calls)
{
    double best_s = INFINITY;

    for (int run = 0; run < 15; run++) {
        double start_s = mist_clock_now_s();
        for (int i = 0; i < n_calls; i++)
            mist_tape_eval(tape, inputs, NULL, N_CONFIGURATIONS, outputs, scratch);
        best_s = fmin(best_s, mist_clock_now_s() - start_s);
    }
    return best_s;
}

static bool bench_tape(const struct model *model, double (*columns)[N_CONFIGURATIONS],
                       double (*want)[N_CONFIGURATIONS], int n_uniform)
{
    static const char *const isa_names[] = {"plain C", "AVX2", "AVX-512"};
    static double results[N_OUTPUTS][N_CONFIGURATIONS];
    enum { N_CALLS = 50 };
    struct mist_tape_input inputs[N_SYMBOLS];
    double *outputs[N_OUTPUTS];
    bool is_uniform[N_SYMBOLS];
    struct mist_tape *tape;
    char name[64];
    bool is_same = true;

    for (int i = 0; i < N_SYMBOLS; i++) {
        is_uniform[i] = i < n_uniform;
        inputs[i] =
            (struct mist_tape_input){is_uniform[i] ? NULL : columns[i], columns[i][5]};
    }
    for (int i = 0; i < N_OUTPUTS; i++)
        outputs[i] = results[i];
    if (mist_tape_compile(pool, model->outputs, N_OUTPUTS, is_uniform, &tape, NULL)) {
        fputs("bench_tape: out of memory\n", stderr);
        exit(1);
    }
    void *scratch = must_alloc((int64_t)mist_tape_scratch_bytes(tape));
    struct tape_look look = tape_look(tape);
    printf(
        "tape, %d symbols varying: %d operations, %d loads, %d stores, %d registers; %zu "
        "once per call\n",
        tape->n_columns, look.n_arithmetic, look.n_loads, look.n_stores,
        tape->n_registers, tape->n_prologue);
    for (int isa = MIST_TAPE_N_ISAS - 1; isa >= 0; isa--) {
        if (!tape_set_isa(tape, (enum mist_tape_isa)isa))
            continue;
        double best_s = time_tape(tape, inputs, outputs, scratch, N_CALLS);
        snprintf(name, sizeof name, "  %s", isa_names[isa]);
        print_row(name, best_s, (double)N_CALLS * N_CONFIGURATIONS);
        is_same =
            is_same && (n_uniform > 0 || memcmp(results, want, sizeof results) == 0);
    }
    free(scratch);
    mist_tape_free(tape);
    return is_same;
}

static void bench_recursion(struct model *model, double (*columns)[N_CONFIGURATIONS],
                            double (*want)[N_CONFIGURATIONS])
{
    double start_s = mist_clock_now_s();

    for (int k = 0; k < N_CONFIGURATIONS; k++) {
        double values[N_SYMBOLS];
        for (int i = 0; i < N_SYMBOLS; i++)
            values[i] = columns[i][k];
        for (int i = 0; i < N_OUTPUTS; i++)
            want[i][k] = expr_eval(pool, model->outputs[i], values);
    }
    print_row("recursive evaluation", mist_clock_now_s() - start_s, N_CONFIGURATIONS);
}

static bool bench_naive(const struct model *model, double (*columns)[N_CONFIGURATIONS],
                        double (*want)[N_CONFIGURATIONS])
{
    struct naive naive;
    double best_s = INFINITY;
    bool is_same = true;

    naive_set_up(&naive, columns);
    for (int run = 0; run < 50; run++) {
        double start_s = mist_clock_now_s();
        naive_eval(&naive);
        best_s = fmin(best_s, mist_clock_now_s() - start_s);
    }
    print_row("a loop per operation, whole columns", best_s, N_CONFIGURATIONS);
    for (int i = 0; i < N_OUTPUTS; i++)
        is_same = is_same &&
                  memcmp(naive.columns[model->outputs[i]], want[i], sizeof want[i]) == 0;
    for (size_t i = 0; i < pool->n_nodes; i++)
        free(naive.columns[i]);
    return is_same;
}

int main(void)
{
    static double columns[N_SYMBOLS][N_CONFIGURATIONS];
    static double want[N_OUTPUTS][N_CONFIGURATIONS];
    static struct model model;

    build_model(&model);
    if (mist_expr_pool_check(pool, NULL) || pool->n_nodes > 512)
        return 1;
    fill_columns(columns);
    printf("%zu nodes, %d outputs, %d configurations a call, one core\n\n", pool->n_nodes,
           N_OUTPUTS, N_CONFIGURATIONS);
    printf("%-38s %9s %12s\n", "", "ns/config", "Mconfig/s");
    bench_recursion(&model, columns, want);
    bool is_same = bench_naive(&model, columns, want);
    is_same = bench_tape(&model, columns, want, 0) && is_same;
    bench_tape(&model, columns, want,
               5); /* as the tuner walks: an outer and an inner grid */
    if (!is_same)
        fputs("bench_tape: results differ\n", stderr);
    mist_expr_pool_fini(&model.pool);
    return is_same ? 0 : 6;
}
