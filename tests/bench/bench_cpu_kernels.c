/*
 * Times every CPU kernel on one thread, at a small GPT's sizes and at GPT-2 124M's.
 *
 *   op                             us   GFLOP/s     GB/s  % of step
 *   fc1 forward                2464.8     108.9      1.5        8.6
 *
 * GB/s counts each tensor read or written once. A step is 'layers' layers forward and
 * backward, embedding, head with loss, and AdamW over all parameters; the share says
 * where time goes. Takes the best of a few runs; prints a table, checks nothing.
 *
 * Then AdamW on arrays far larger than the caches, beside a copy:
 *
 *   64 M parameters         threads         ms  Gparam/s     GB/s
 *   adamw fp32                    1       40.0      1.68     47.0
 */
#include "exec/operators/cpu_bf16.h"
#include "exec/operators/cpu_kernels.h"
#include "tests/bench/bench.h"

#include <math.h>

struct sizes {
    const char *name;
    int64_t b, s, h, heads, f, vocab, layers;
};

/* One set of buffers, each as large as the largest tensor that goes there. */
struct tensors {
    float *rows_wide_a, *rows_wide_b, *rows_wide_c; /* [rows, max(3 h, 2 f)] */
    float *rows_a, *rows_b, *rows_c;                /* [rows, h] */
    float *logits;                                  /* [rows, vocab] */
    float *weight, *dweight;                        /* [max(vocab, 3 h, 2 f), h] */
    float *bias, *dbias, *stats, *lse, *losses;
    float *p, *m, *v, *g; /* flat parameters of one step's AdamW, n_params */
    struct mist_cpu_sum sum;
    int64_t n_params;
    int32_t *tokens;
    void *workspace;
    struct mist_cpu_attention attention;
    const struct sizes *z;
};

static float *floats(int64_t n)
{
    float *x = must_alloc(n * (int64_t)sizeof *x);
    uint32_t state = 12345;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) * 0x1p-24f - 0.5f;
    }
    return x;
}

static int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void tensors_init(struct tensors *t, const struct sizes *z)
{
    int64_t rows = z->b * z->s, wide = max_of(3 * z->h, 2 * z->f);
    t->z = z;
    t->attention =
        (struct mist_cpu_attention){z->b, z->s, z->heads, z->heads, z->h / z->heads};
    t->rows_wide_a = floats(rows * wide);
    t->rows_wide_b = floats(rows * wide);
    t->rows_wide_c = floats(rows * wide);
    t->rows_a = floats(rows * z->h);
    t->rows_b = floats(rows * z->h);
    t->rows_c = floats(rows * z->h);
    t->logits = floats(rows * z->vocab);
    t->weight = floats(max_of(z->vocab, wide) * z->h);
    t->dweight = floats(max_of(z->vocab, wide) * z->h);
    t->bias = floats(wide);
    t->dbias = floats(wide);
    t->stats = floats(2 * rows);
    t->lse = floats(rows * z->heads);
    t->losses = floats(rows);
    t->n_params = z->layers * (4 * z->h * z->h + 2 * z->h * z->f) + z->vocab * z->h;
    t->p = floats(t->n_params);
    t->m = floats(t->n_params);
    t->v = floats(t->n_params);
    t->g = floats(t->n_params);
    for (int64_t i = 0; i < t->n_params; i++) {
        t->v[i] *= t->v[i];
        t->g[i] *= 1e-3f;
    }
    t->tokens = must_alloc(rows * (int64_t)sizeof *t->tokens);
    for (int64_t i = 0; i < rows; i++)
        t->tokens[i] = (int32_t)(i * 7919 % z->vocab);
    t->workspace = must_alloc(
        (int64_t)(mist_cpu_norm_backward_workspace_bytes(rows, z->h) +
                  mist_cpu_attention_backward_workspace_bytes(&t->attention, false, 1) +
                  mist_cpu_embedding_slice_backward_workspace_bytes(rows)));
}

static void tensors_fini(struct tensors *t)
{
    void *all[] = {t->rows_wide_a, t->rows_wide_b, t->rows_wide_c, t->rows_a,
                   t->rows_b,      t->rows_c,      t->logits,      t->weight,
                   t->dweight,     t->bias,        t->dbias,       t->stats,
                   t->lse,         t->losses,      t->p,           t->m,
                   t->v,           t->g,           t->tokens,      t->workspace};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

enum op {
    EMBEDDING_FORWARD,
    EMBEDDING_BACKWARD,
    NORM_FORWARD,
    RESIDUAL_NORM_FORWARD,
    NORM_BACKWARD,
    QKV_FORWARD,
    PROJ_FORWARD,
    FC1_FORWARD,
    FC2_FORWARD,
    QKV_BACKWARD,
    PROJ_BACKWARD,
    FC1_BACKWARD,
    FC2_BACKWARD,
    ATTENTION_FORWARD,
    ATTENTION_BACKWARD,
    ROPE_FORWARD,
    GELU_FORWARD,
    GELU_BACKWARD,
    SWIGLU_FORWARD,
    SWIGLU_BACKWARD,
    ADD_FORWARD,
    HEAD_FORWARD,
    CROSS_ENTROPY,
    HEAD_BACKWARD,
    ADAMW,
    SUM_SQUARES,
    FIND_NONFINITE,
    ZERO,
    N_OPS
};

static const char *op_names[N_OPS] = {"embedding forward",
                                      "embedding backward",
                                      "norm forward",
                                      "residual+norm forward",
                                      "norm backward",
                                      "qkv forward",
                                      "proj forward",
                                      "fc1 forward",
                                      "fc2 forward",
                                      "qkv backward",
                                      "proj backward",
                                      "fc1 backward",
                                      "fc2 backward",
                                      "attention forward",
                                      "attention backward",
                                      "rope forward",
                                      "gelu forward",
                                      "gelu backward",
                                      "swiglu forward",
                                      "swiglu backward",
                                      "add",
                                      "head forward",
                                      "cross entropy",
                                      "head backward",
                                      "adamw",
                                      "sum of squares",
                                      "find non-finite",
                                      "zero"};

/* What one call costs, and how often a GPT step calls it. */
struct cost {
    double flop, bytes;
    int64_t n_calls;
};

static struct cost linear_cost(int64_t rows, int64_t n_in, int64_t n_out, int backward,
                               int64_t n_calls)
{
    double flop = 2.0 * (double)rows * (double)n_in * (double)n_out;
    double bytes = 4.0 * (double)(rows * n_in + rows * n_out + n_in * n_out);
    return (struct cost){flop * (backward ? 2 : 1), bytes * (backward ? 2 : 1), n_calls};
}

static void run_linear(struct tensors *t, int64_t n_in, int64_t n_out, int backward,
                       float *y)
{
    int64_t rows = t->z->b * t->z->s;
    if (!backward) {
        mist_cpu_linear_forward(NULL, y, t->rows_wide_a, t->weight, t->bias, NULL, rows,
                                n_in, n_out, 1);
        return;
    }
    mist_cpu_linear_backward_input(NULL, t->rows_wide_c, y, t->weight, NULL, rows, n_in,
                                   n_out, 1);
    mist_cpu_linear_backward_weight(NULL, t->dweight, t->dbias, y, t->rows_wide_a, rows,
                                    n_in, n_out, 1, 0);
}

/* Runs one call of a linear or attention op. */
static struct cost run_heavy(struct tensors *t, enum op op)
{
    const struct sizes *z = t->z;
    int64_t rows = z->b * z->s, h = z->h, f = z->f, n = z->layers;
    const struct {
        enum op op;
        int64_t n_in, n_out;
        int backward;
    } linear[] = {{QKV_FORWARD, h, 3 * h, 0},  {PROJ_FORWARD, h, h, 0},
                  {FC1_FORWARD, h, f, 0},      {FC2_FORWARD, f, h, 0},
                  {QKV_BACKWARD, h, 3 * h, 1}, {PROJ_BACKWARD, h, h, 1},
                  {FC1_BACKWARD, h, f, 1},     {FC2_BACKWARD, f, h, 1}};
    for (size_t i = 0; i < sizeof linear / sizeof *linear; i++)
        if (linear[i].op == op) {
            run_linear(t, linear[i].n_in, linear[i].n_out, linear[i].backward,
                       t->rows_wide_b);
            return linear_cost(rows, linear[i].n_in, linear[i].n_out, linear[i].backward,
                               n);
        }
    double flop = 2.0 * (double)rows * (double)(z->s + 1) * (double)h,
           r = (double)(rows * h) * 4;
    if (op == ATTENTION_FORWARD) {
        mist_cpu_attention_forward(NULL, t->rows_a, t->lse, t->rows_wide_a, &t->attention,
                                   t->workspace, 1);
        return (struct cost){flop, 4 * r, n};
    }
    if (op == ATTENTION_BACKWARD) {
        mist_cpu_attention_backward(NULL, t->rows_wide_b, t->rows_b, t->rows_wide_a,
                                    t->rows_a, t->lse, &t->attention, t->workspace, 1);
        return (struct cost){2.5 * flop, 8 * r, n};
    }
    if (op == HEAD_FORWARD) {
        mist_cpu_linear_forward(NULL, t->logits, t->rows_a, t->weight, NULL, NULL, rows,
                                h, z->vocab, 1);
        return linear_cost(rows, h, z->vocab, 0, 1);
    }
    mist_cpu_linear_backward_input(NULL, t->rows_b, t->logits, t->weight, NULL, rows, h,
                                   z->vocab, 1);
    mist_cpu_linear_backward_weight(NULL, t->dweight, NULL, t->logits, t->rows_a, rows, h,
                                    z->vocab, 1, 0);
    return linear_cost(rows, h, z->vocab, 1, 1);
}

static struct cost run_light(struct tensors *t, enum op op)
{
    const struct sizes *z = t->z;
    int64_t rows = z->b * z->s, h = z->h, f = z->f, n = z->layers, np = t->n_params;
    double r = 4.0 * (double)(rows * h), w = 4.0 * (double)(rows * f);
    const struct mist_cpu_adamw adamw = {1e-4f, 0.9f, 0.95f, 1e-8f,
                                         0.1f,  0.1f, 0.05f, 1.0f};
    switch (op) {
    case EMBEDDING_FORWARD:
        mist_cpu_embedding_slice_forward(false, t->rows_a, t->tokens, t->weight,
                                         t->rows_b, rows, MIST_WHOLE_CHUNKS(z->s), h, 0,
                                         INT64_MAX, 1);
        return (struct cost){0, 3 * r, 1};
    case EMBEDDING_BACKWARD:
        mist_cpu_embedding_slice_backward(false, t->dweight, t->rows_b, t->tokens,
                                          t->rows_a, rows, MIST_WHOLE_CHUNKS(z->s), h, 0,
                                          INT64_MAX, t->workspace, 1, 0);
        return (struct cost){0, 5 * r, 1};
    case NORM_FORWARD:
        mist_cpu_norm_forward(false, MIST_CPU_NORM_LAYER, t->rows_a, NULL, t->stats,
                              t->rows_b, NULL, t->bias, t->bias, 1e-5f, rows, h, NULL, 1);
        return (struct cost){0, 2 * r, 1};
    case RESIDUAL_NORM_FORWARD:
        mist_cpu_norm_forward(false, MIST_CPU_NORM_LAYER, t->rows_wide_a, t->rows_wide_b,
                              t->stats, t->rows_b, t->rows_c, t->bias, t->bias, 1e-5f,
                              rows, h, NULL, 1);
        return (struct cost){0, 4 * r, 2 * n};
    case NORM_BACKWARD:
        mist_cpu_norm_backward(false, MIST_CPU_NORM_LAYER, t->rows_wide_a, t->dweight,
                               t->dbias, t->rows_a, t->rows_b, t->rows_c, t->stats,
                               t->bias, rows, h, t->workspace, 1, 0);
        return (struct cost){0, 4 * r, 2 * n + 1};
    case ROPE_FORWARD:
        mist_cpu_rope(false, t->rows_wide_a, t->rows_b, &t->attention, false, 1);
        return (struct cost){0, 4 * r, 0};
    case GELU_FORWARD:
        mist_cpu_activation_forward(false, MIST_ACTIVATION_GELU, t->rows_wide_b,
                                    t->rows_wide_a, rows * f, 1);
        return (struct cost){0, 2 * w, n};
    case GELU_BACKWARD:
        mist_cpu_activation_backward(false, MIST_ACTIVATION_GELU, t->rows_wide_c,
                                     t->rows_wide_b, t->rows_wide_a, rows * f, 1);
        return (struct cost){0, 3 * w, n};
    case SWIGLU_FORWARD:
        mist_cpu_swiglu_forward(false, false, t->rows_wide_b, t->rows_wide_a, rows, f, 1);
        return (struct cost){0, 3 * w, 0};
    case SWIGLU_BACKWARD:
        mist_cpu_swiglu_backward(false, false, t->rows_wide_c, t->rows_wide_b,
                                 t->rows_wide_a, rows, f, 1);
        return (struct cost){0, 5 * w, 0};
    case ADD_FORWARD:
        mist_cpu_add_forward(false, t->rows_a, t->rows_b, t->rows_c, rows * h, 1);
        return (struct cost){0, 3 * r, 0};
    case CROSS_ENTROPY:
        mist_cpu_cross_entropy(false, t->logits, t->losses, t->tokens, rows, z->vocab,
                               z->vocab, 1.0f, 1);
        return (struct cost){0, 8.0 * (double)(rows * z->vocab), 1};
    case ADAMW:
        mist_cpu_adamw_step(NULL, t->p, t->m, t->v, t->g, np, &adamw, 1, 0);
        return (struct cost){0, 28.0 * (double)np, 1};
    case SUM_SQUARES:
        mist_cpu_sum_squares_exact(false, t->g, np, &t->sum, 1);
        return (struct cost){0, 4.0 * (double)np, 1};
    case FIND_NONFINITE:
        t->sum.first_nonfinite = mist_cpu_find_nonfinite(false, t->g, np, 1);
        return (struct cost){0, 4.0 * (double)np, 0};
    case ZERO:
        mist_cpu_zero(t->g, np * (int64_t)sizeof *t->g, 1);
        return (struct cost){0, 4.0 * (double)np, 1};
    default:
        return run_heavy(t, op);
    }
}

static void bench(const struct sizes *z)
{
    struct tensors t;
    double best_s[N_OPS], step_s = 0.0;
    struct cost cost[N_OPS];
    tensors_init(&t, z);
    for (int op = 0; op < N_OPS; op++) {
        double spent_s = 0.0;
        best_s[op] = INFINITY;
        for (int i = 0; i < 20 && (i < 2 || spent_s < 0.25); i++) {
            double begin_s = mist_clock_now_s();
            cost[op] = run_light(&t, (enum op)op);
            double s = mist_clock_now_s() - begin_s;
            spent_s += s;
            best_s[op] = s < best_s[op] ? s : best_s[op];
        }
        step_s += best_s[op] * (double)cost[op].n_calls;
    }
    printf(
        "\n%s: b %d, s %d, h %d, heads %d, ffn %d, vocab %d, layers %d; step %.1f ms\n",
        z->name, (int)z->b, (int)z->s, (int)z->h, (int)z->heads, (int)z->f, (int)z->vocab,
        (int)z->layers, 1e3 * step_s);
    printf("%-22s %10s %9s %8s %10s\n", "op", "us", "GFLOP/s", "GB/s", "% of step");
    for (int op = 0; op < N_OPS; op++)
        printf("%-22s %10.1f %9.1f %8.1f %10.1f\n", op_names[op], 1e6 * best_s[op],
               1e-9 * cost[op].flop / best_s[op], 1e-9 * cost[op].bytes / best_s[op],
               100.0 * best_s[op] * (double)cost[op].n_calls / step_s);
    tensors_fini(&t);
}

/* ------------------------------------------------------------------ AdamW at length */

enum large_op { COPY, ADAMW_FLOAT, ADAMW_BF16, N_LARGE_OPS };

static const struct {
    const char *name;
    double bytes; /* per parameter */
} large_ops[N_LARGE_OPS] = {
    {"copy of gradients", 8},
    {"adamw fp32", 28},
    {"adamw bf16 + master", 30},
};

/* x[0] .. x[3]: parameters, moments, gradients; n a multiple of 8. */
static void run_large(enum large_op op, float *const x[4], mist_bf16 *weights, int64_t n,
                      int n_threads)
{
    const struct mist_cpu_adamw config = {1e-4f, 0.9f, 0.95f, 1e-8f,
                                          0.1f,  0.1f, 0.05f, 1.0f};

    switch (op) {
    case COPY: /* any numbers may be first moments */
#pragma omp parallel for num_threads(n_threads) schedule(static)
        for (int i = 0; i < 8; i++)
            memcpy(x[1] + n / 8 * i, x[3] + n / 8 * i, (size_t)(n / 8) * sizeof **x);
        break;
    case ADAMW_FLOAT:
        mist_cpu_adamw_step(NULL, x[0], x[1], x[2], x[3], n, &config, n_threads, 0);
        break;
    default:
        mist_cpu_adamw_step(weights, x[0], x[1], x[2], x[3], n, &config, n_threads, 0);
    }
}

static void bench_large(int n_threads)
{
    const int64_t n = 64 << 20;
    float *x[4];
    mist_bf16 *weights = must_alloc(n * (int64_t)sizeof *weights);
    double best_s[N_LARGE_OPS] = {INFINITY, INFINITY, INFINITY};

    for (int i = 0; i < 4; i++)
        x[i] = floats(n);
    for (int64_t i = 0; i < n; i++)
        x[2][i] *= x[2][i];
    for (int i = 0; i < 6; i++) /* the first one touches the memory */
        for (int op = N_LARGE_OPS - 1; op >= 0; op--) {
            double begin_s = mist_clock_now_s();
            run_large((enum large_op)op, x, weights, n, n_threads);
            best_s[op] = fmin(best_s[op], mist_clock_now_s() - begin_s);
        }
    for (int op = 0; op < N_LARGE_OPS; op++)
        printf("%-22s %8d %10.1f %9.2f %8.1f\n", large_ops[op].name, n_threads,
               1e3 * best_s[op], 1e-9 * (double)n / best_s[op],
               1e-9 * large_ops[op].bytes * (double)n / best_s[op]);
    for (int i = 0; i < 4; i++)
        free(x[i]);
    free(weights);
}

int main(void)
{
    const struct sizes all[] = {{"small", 2, 256, 256, 4, 1024, 256, 4},
                                {"GPT-2 124M", 4, 64, 768, 12, 3072, 50257, 12},
                                {"GPT-2 124M, long", 1, 1024, 768, 12, 3072, 8192, 12}};
    char text[128];
    mist_cpu_describe(text, sizeof text, 1);
    puts(text);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bench(&all[i]);
    printf("\n%-22s %8s %10s %9s %8s\n", "64 M parameters", "threads", "ms", "Gparam/s",
           "GB/s");
    for (int n_threads = 1; n_threads <= 2; n_threads++)
        bench_large(n_threads);
    return 0;
}
