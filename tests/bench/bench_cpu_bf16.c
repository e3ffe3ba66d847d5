/*
 * Times bf16 kernels beside their fp32 twins on one thread, at GPT-2 124M's sizes.
 *
 *   op                         fp32 us    bf16 us  fp32 GF/s  bf16 GF/s    ratio
 *   fc1 forward                10856.9     5969.1      111.3      202.3     1.82
 *
 * Takes the best of a few runs; prints a table, checks nothing.
 */
#include "exec/operators/cpu_bf16.h"
#include "tests/bench/bench.h"

#include <math.h>

enum { SEQ = 512, ROWS = 2 * SEQ, H = 768, FFN = 4 * H, HEADS = 12, VOCAB = 50304 };
enum { LOSS_ROWS = 64, N_WIDE = ROWS * 2 * FFN, N_PARAMS = 8 << 20 };

/* Buffers that are large enough for every operator, in both types. */
struct tensors {
    float *x, *y, *z, *w, *dw, *stats, *lse;
    mist_bf16 *x16, *y16, *z16, *w16;
    int32_t *tokens;
    void *workspace;
    struct mist_cpu_bf16 *context;
    struct mist_cpu_attention attention;
};

static float *floats(int64_t n)
{
    float *x = must_alloc(n * (int64_t)sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(i * 7919 % 2003) / 2003.0f - 0.5f;
    return x;
}

static mist_bf16 *rounded(const float *x, int64_t n)
{
    mist_bf16 *y = must_alloc(n * (int64_t)sizeof *y);
    mist_cpu_bf16_from_float(y, x, n);
    return y;
}

static size_t max_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void tensors_init(struct tensors *t)
{
    t->attention = (struct mist_cpu_attention){2, SEQ, HEADS, HEADS, H / HEADS};
    t->x = floats(N_WIDE);
    t->y = floats(N_PARAMS);
    t->z = floats(N_PARAMS);
    t->w = floats(N_PARAMS);
    t->dw = floats(N_PARAMS);
    for (int64_t i = 0; i < N_PARAMS; i++)
        t->z[i] *= t->z[i];
    t->x16 = rounded(t->x, N_WIDE);
    t->y16 = rounded(t->y, N_PARAMS);
    t->z16 = rounded(t->z, N_PARAMS);
    t->w16 = rounded(t->w, N_PARAMS);
    t->stats = floats(2 * ROWS);
    t->lse = floats(ROWS * HEADS);
    t->tokens = must_alloc(ROWS * (int64_t)sizeof *t->tokens);
    for (int i = 0; i < ROWS; i++)
        t->tokens[i] = i * 31 % VOCAB;
    t->workspace = must_alloc((int64_t)max_of(
        mist_cpu_attention_backward_workspace_bytes(&t->attention, true, 1),
        mist_cpu_bf16_norm_backward_workspace_bytes(ROWS, H, 1)));
}

enum op {
    FORWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    ATTENTION,
    ATTENTION_BACKWARD,
    NORM,
    NORM_BACKWARD,
    GELU,
    LOSS,
    ADAMW
};

struct row {
    const char *name;
    enum op op;
    int64_t n_in, n_out;
};

static const struct row rows[] = {
    {"adamw", ADAMW, 0, 0}, /* first, while z, its second moment, is positive */
    {"qkv forward", FORWARD, H, 3 * H},
    {"proj forward", FORWARD, H, H},
    {"fc1 forward", FORWARD, H, FFN},
    {"fc2 forward", FORWARD, FFN, H},
    {"fc1 backward input", BACKWARD_INPUT, H, FFN},
    {"fc2 backward input", BACKWARD_INPUT, FFN, H},
    {"fc1 backward weight", BACKWARD_WEIGHT, H, FFN},
    {"fc2 backward weight", BACKWARD_WEIGHT, FFN, H},
    {"attention forward", ATTENTION, 0, 0},
    {"attention backward", ATTENTION_BACKWARD, 0, 0},
    {"norm forward", NORM, 0, 0},
    {"norm backward", NORM_BACKWARD, 0, 0},
    {"gelu forward", GELU, 0, 0},
    {"cross entropy", LOSS, 0, 0},
};
enum { N_BENCH_ROWS = sizeof rows / sizeof *rows };

static const struct mist_cpu_adamw adamw = {1e-4f, 0.9f, 0.95f, 1e-8f,
                                            0.1f,  0.1f, 0.05f, 1.0f};

static void run_float(struct tensors *t, const struct row *r)
{
    switch (r->op) {
    case FORWARD:
        mist_cpu_linear_forward(NULL, t->y, t->x, t->w, t->stats, NULL, ROWS, r->n_in,
                                r->n_out, 1);
        break;
    case BACKWARD_INPUT:
        mist_cpu_linear_backward_input(NULL, t->y, t->x, t->w, NULL, ROWS, r->n_in,
                                       r->n_out, 1);
        break;
    case BACKWARD_WEIGHT:
        mist_cpu_linear_backward_weight(NULL, t->dw, NULL, t->x, t->y, ROWS, r->n_in,
                                        r->n_out, 1, 0);
        break;
    case ATTENTION:
        mist_cpu_attention_forward(NULL, t->y, t->lse, t->x, &t->attention, t->workspace,
                                   1);
        break;
    case ATTENTION_BACKWARD:
        mist_cpu_attention_backward(NULL, t->z, t->w, t->x, t->y, t->lse, &t->attention,
                                    t->workspace, 1);
        break;
    case NORM:
        mist_cpu_norm_forward(false, MIST_CPU_NORM_LAYER, t->y, NULL, t->stats, t->x,
                              NULL, t->w, t->w, 1e-5f, ROWS, H, NULL, 1);
        break;
    case NORM_BACKWARD:
        mist_cpu_norm_backward(false, MIST_CPU_NORM_LAYER, t->y, t->dw, t->dw + H, t->z,
                               t->z, t->x, t->stats, t->w, ROWS, H, t->workspace, 1, 0);
        break;
    case GELU:
        mist_cpu_activation_forward(false, MIST_ACTIVATION_GELU, t->y, t->x, ROWS * FFN,
                                    1);
        break;
    case LOSS:
        mist_cpu_cross_entropy(false, t->x, t->stats, t->tokens, LOSS_ROWS, VOCAB, VOCAB,
                               1.0f, 1);
        break;
    case ADAMW:
        mist_cpu_adamw_step(NULL, t->w, t->y, t->z, t->dw, N_PARAMS, &adamw, 1, 0);
        break;
    }
}

static void run_bf16(struct tensors *t, const struct row *r)
{
    switch (r->op) {
    case FORWARD:
        mist_cpu_linear_forward(t->context, t->y16, t->x16, t->w16, t->z16, NULL, ROWS,
                                r->n_in, r->n_out, 1);
        break;
    case BACKWARD_INPUT:
        mist_cpu_linear_backward_input(t->context, t->y16, t->x16, t->w16, NULL, ROWS,
                                       r->n_in, r->n_out, 1);
        break;
    case BACKWARD_WEIGHT:
        mist_cpu_linear_backward_weight(t->context, t->dw, NULL, t->x16, t->y16, ROWS,
                                        r->n_in, r->n_out, 1, 0);
        break;
    case ATTENTION:
        mist_cpu_attention_forward(t->context, t->y16, t->lse, t->x16, &t->attention,
                                   t->workspace, 1);
        break;
    case ATTENTION_BACKWARD:
        mist_cpu_attention_backward(t->context, t->z16, t->w16, t->x16, t->y16, t->lse,
                                    &t->attention, t->workspace, 1);
        break;
    case NORM:
        mist_cpu_norm_forward(true, MIST_CPU_NORM_LAYER, t->y16, NULL, t->stats, t->x16,
                              NULL, t->w16, t->w16, 1e-5f, ROWS, H, t->workspace, 1);
        break;
    case NORM_BACKWARD:
        mist_cpu_norm_backward(true, MIST_CPU_NORM_LAYER, t->y16, t->dw, t->dw + H,
                               t->z16, t->z16, t->x16, t->stats, t->w16, ROWS, H,
                               t->workspace, 1, 0);
        break;
    case GELU:
        mist_cpu_activation_forward(true, MIST_ACTIVATION_GELU, t->y16, t->x16,
                                    ROWS * FFN, 1);
        break;
    case LOSS:
        mist_cpu_cross_entropy(true, t->x16, t->stats, t->tokens, LOSS_ROWS, VOCAB, VOCAB,
                               1.0f, 1);
        break;
    case ADAMW:
        mist_cpu_adamw_step(t->w16, t->w, t->y, t->z, t->dw, N_PARAMS, &adamw, 1, 0);
        break;
    }
}

static double best_s(struct tensors *t, const struct row *r,
                     void run(struct tensors *, const struct row *))
{
    double best = INFINITY, spent_s = 0.0;
    for (int i = 0; i < 20 && (i < 3 || spent_s < 0.2); i++) {
        double s = -mist_clock_now_s();
        run(t, r);
        s += mist_clock_now_s();
        spent_s += s;
        best = s < best ? s : best;
    }
    return best;
}

int main(void)
{
    struct tensors t;
    struct mist_err err;
    char text[128];
    mist_cpu_describe(text, sizeof text, 1);
    if (mist_cpu_bf16_new(&t.context, 1, &err) != MIST_OK) {
        puts(err.message);
        return 1;
    }
    printf("%s%s\n", text, mist_cpu_bf16_is_widened(t.context) ? "; bf16 widened" : "");
    tensors_init(&t);
    printf("%-22s %10s %10s %10s %10s %8s\n", "op", "fp32 us", "bf16 us", "fp32 GF/s",
           "bf16 GF/s", "ratio");
    for (int i = 0; i < N_BENCH_ROWS; i++) {
        double float_s = best_s(&t, &rows[i], run_float);
        double bf16_s = best_s(&t, &rows[i], run_bf16);
        double flop = 2.0 * ROWS * (double)rows[i].n_in * (double)rows[i].n_out;
        printf("%-22s %10.1f %10.1f %10.1f %10.1f %8.2f\n", rows[i].name, 1e6 * float_s,
               1e6 * bf16_s, 1e-9 * flop / float_s, 1e-9 * flop / bf16_s,
               float_s / bf16_s);
    }
    void *all[] = {t.x,   t.y,   t.z,   t.w,   t.dw,     t.stats,    t.lse,
                   t.x16, t.y16, t.z16, t.w16, t.tokens, t.workspace};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    mist_cpu_bf16_free(t.context);
    return 0;
}
