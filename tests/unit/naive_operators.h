/*
 * The operators of naive_model.h: plain nested loops in double precision after the
 * textbook formulas, one function per operator and direction. The norm's backward goes
 * through the gradients of mean and variance, GELU is written with tanh or erf, probabilities
 * are kept whole. Linear weights are [n_out, n_in]. Packed qkv: all q heads, all k heads,
 * all v heads of a token.
 */
#ifndef MIST_TESTS_UNIT_NAIVE_OPERATORS_H
#define MIST_TESTS_UNIT_NAIVE_OPERATORS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* y[rows, n_out] = x W^T + bias (NULL: none) */
static inline void naive_linear(double *y, const double *x, const double *w,
                                const double *bias, int rows, int n_in, int n_out)
{
    for (int i = 0; i < rows; i++)
        for (int o = 0; o < n_out; o++) {
            double sum = bias != NULL ? bias[o] : 0.0;
            for (int j = 0; j < n_in; j++)
                sum += x[i * n_in + j] * w[o * n_in + j];
            y[i * n_out + o] = sum;
        }
}

/* dx +=, dw +=, dbias += (NULL: none) */
static inline void naive_linear_backward(double *dx, double *dw, double *dbias,
                                         const double *dy, const double *x,
                                         const double *w, int rows, int n_in, int n_out)
{
    for (int i = 0; i < rows; i++)
        for (int o = 0; o < n_out; o++) {
            double d = dy[i * n_out + o];
            for (int j = 0; j < n_in; j++) {
                dx[i * n_in + j] += d * w[o * n_in + j];
                dw[o * n_in + j] += d * x[i * n_in + j];
            }
            if (dbias != NULL)
                dbias[o] += d;
        }
}

/* Mean (0 for RMS) and 1 / sqrt(variance + eps) of one row. */
static inline void naive_norm_stats(double *mean, double *rstd, const double *x,
                                    int is_rms, double eps, int h)
{
    double sum = 0.0, squares = 0.0;
    for (int j = 0; j < h; j++)
        sum += x[j];
    *mean = is_rms ? 0.0 : sum / h;
    for (int j = 0; j < h; j++)
        squares += (x[j] - *mean) * (x[j] - *mean);
    *rstd = 1.0 / sqrt(squares / h + eps);
}

static inline void naive_norm(double *y, const double *x, const double *w,
                              const double *bias, int is_rms, double eps, int rows, int h)
{
    for (int i = 0; i < rows; i++) {
        double mean, rstd;
        naive_norm_stats(&mean, &rstd, x + i * h, is_rms, eps, h);
        for (int j = 0; j < h; j++)
            y[i * h + j] =
                (x[i * h + j] - mean) * rstd * w[j] + (bias != NULL ? bias[j] : 0.0);
    }
}

/* dx +=, dw +=, dbias += (NULL: none); by way of the variance and the mean. */
static inline void naive_norm_backward(double *dx, double *dw, double *dbias,
                                       const double *dy, const double *x, const double *w,
                                       int is_rms, double eps, int rows, int h)
{
    for (int i = 0; i < rows; i++) {
        const double *xi = x + i * h, *dyi = dy + i * h;
        double mean, rstd, d_var = 0.0, d_mean = 0.0;
        naive_norm_stats(&mean, &rstd, xi, is_rms, eps, h);
        for (int j = 0; j < h; j++) {
            d_var += dyi[j] * w[j] * (xi[j] - mean) * -0.5 * rstd * rstd * rstd;
            d_mean += is_rms ? 0.0 : dyi[j] * w[j] * -rstd;
        }
        for (int j = 0; j < h; j++) {
            dx[i * h + j] +=
                dyi[j] * w[j] * rstd + d_var * 2.0 * (xi[j] - mean) / h + d_mean / h;
            dw[j] += dyi[j] * (xi[j] - mean) * rstd;
            if (dbias != NULL)
                dbias[j] += dyi[j];
        }
    }
}

/* Turns the first rotary_dim elements of q and k heads of packed qkv in place, pair j by
 * frequencies[j] per position; direction -1 turns back (the backward). */
static inline void naive_turn(double *qkv, int batch, int s, int heads, int kv_heads,
                              int head_dim, int rotary_dim, const double *frequencies,
                              double direction)
{
    int width = (heads + 2 * kv_heads) * head_dim;
    for (int i = 0; i < batch * s; i++)
        for (int n = 0; n < heads + kv_heads; n++)
            for (int j = 0; j < rotary_dim / 2; j++) {
                double *x = qkv + (int64_t)i * width + n * head_dim + j;
                double angle = (i % s) * frequencies[j] * direction;
                double a = x[0], b = x[rotary_dim / 2];
                x[0] = a * cos(angle) - b * sin(angle);
                x[rotary_dim / 2] = a * sin(angle) + b * cos(angle);
            }
}

enum { NAIVE_MAX_PAIRS = 512 };

static inline void naive_frequencies(double *out, int rotary_dim, double theta)
{
    for (int j = 0; j < rotary_dim / 2; j++)
        out[j] = 1 / pow(theta, 2.0 * j / rotary_dim);
}

/* Whole heads, by the frequencies of a base. */
static inline void naive_rope(double *qkv, int batch, int s, int heads, int kv_heads,
                              int head_dim, double theta, double direction)
{
    double frequencies[NAIVE_MAX_PAIRS];
    naive_frequencies(frequencies, head_dim, theta);
    naive_turn(qkv, batch, s, heads, kv_heads, head_dim, head_dim, frequencies,
               direction);
}

/* out [batch, s, heads * d], probabilities [batch, heads, s, s] (0 after the diagonal) */
static inline void naive_attention(double *out, double *probs, const double *qkv,
                                   int batch, int s, int heads, int kv_heads, int d)
{
    int width = (heads + 2 * kv_heads) * d;
    for (int b = 0; b < batch; b++)
        for (int n = 0; n < heads; n++)
            for (int i = 0; i < s; i++) {
                int kv = n / (heads / kv_heads);
                double *p = probs + ((int64_t)(b * heads + n) * s + i) * s,
                       max = -INFINITY, sum = 0.0;
                const double *q = qkv + (int64_t)(b * s + i) * width + n * d;
                for (int j = 0; j <= i; j++) {
                    const double *k =
                        qkv + (int64_t)(b * s + j) * width + (heads + kv) * d;
                    p[j] = 0.0;
                    for (int e = 0; e < d; e++)
                        p[j] += q[e] * k[e] / sqrt(d);
                    max = p[j] > max ? p[j] : max;
                }
                for (int j = 0; j <= i; j++)
                    sum += p[j] = exp(p[j] - max);
                for (int j = 0; j < s; j++)
                    p[j] = j <= i ? p[j] / sum : 0.0;
                for (int e = 0; e < d; e++) {
                    double o = 0.0;
                    for (int j = 0; j <= i; j++)
                        o += p[j] * qkv[(int64_t)(b * s + j) * width +
                                        (heads + kv_heads + kv) * d + e];
                    out[(int64_t)(b * s + i) * heads * d + n * d + e] = o;
                }
            }
}

/* One query's share of the attention backward:
 * adds to dq, and to dk, dv at token stride width. */
static inline void naive_attention_backward_query(double *dq, double *dk, double *dv,
                                                  const double *d_out, const double *q,
                                                  const double *k, const double *v,
                                                  const double *p, int n_keys, int d,
                                                  int width)
{
    double mean = 0.0; /* sum_j p_j dp_j */
    for (int j = 0; j < n_keys; j++)
        for (int e = 0; e < d; e++)
            mean += p[j] * d_out[e] * v[j * width + e];
    for (int j = 0; j < n_keys; j++) {
        double dp = 0.0;
        for (int e = 0; e < d; e++) {
            dp += d_out[e] * v[j * width + e];
            dv[j * width + e] += p[j] * d_out[e];
        }
        double d_score = p[j] * (dp - mean) / sqrt(d);
        for (int e = 0; e < d; e++) {
            dq[e] += d_score * k[j * width + e];
            dk[j * width + e] += d_score * q[e];
        }
    }
}

/* dqkv += */
static inline void naive_attention_backward(double *dqkv, const double *d_out,
                                            const double *probs, const double *qkv,
                                            int batch, int s, int heads, int kv_heads,
                                            int d)
{
    int width = (heads + 2 * kv_heads) * d;
    for (int b = 0; b < batch; b++)
        for (int n = 0; n < heads; n++)
            for (int i = 0; i < s; i++) {
                int kv = n / (heads / kv_heads), k_at = (heads + kv) * d,
                    v_at = k_at + kv_heads * d;
                const double *sequence = qkv + (int64_t)b * s * width;
                double *d_sequence = dqkv + (int64_t)b * s * width;
                naive_attention_backward_query(
                    d_sequence + i * width + n * d, d_sequence + k_at, d_sequence + v_at,
                    d_out + (int64_t)(b * s + i) * heads * d + n * d,
                    sequence + i * width + n * d, sequence + k_at, sequence + v_at,
                    probs + ((int64_t)(b * heads + n) * s + i) * s, i + 1, d, width);
            }
}

static inline double naive_gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

static inline double naive_gelu_slope(double x)
{
    double c = sqrt(2.0 / acos(-1.0)), t = tanh(c * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * c * (1.0 + 3.0 * 0.044715 * x * x);
}

static inline double naive_exact_gelu(double x)
{
    return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
}

static inline double naive_exact_gelu_slope(double x)
{
    double density = exp(-0.5 * x * x) / sqrt(2.0 * acos(-1.0));
    return 0.5 * (1.0 + erf(x / sqrt(2.0))) + x * density;
}

static inline double naive_squared_relu(double x)
{
    return x > 0 ? x * x : 0;
}

static inline double naive_squared_relu_slope(double x)
{
    return x > 0 ? 2 * x : 0;
}

static inline double naive_silu(double x)
{
    return x / (1.0 + exp(-x));
}

static inline double naive_silu_slope(double x)
{
    double s = 1.0 / (1.0 + exp(-x));
    return s + x * s * (1.0 - s);
}

/* A gate's function and its derivative: silu (SwiGLU), or gelu in the tanh form (GeGLU). */
struct naive_gate {
    double (*value)(double), (*slope)(double);
};
static const struct naive_gate naive_swiglu = {naive_silu, naive_silu_slope};
static const struct naive_gate naive_geglu = {naive_gelu, naive_gelu_slope};

/* out[rows, f] = gate(gate_up[rows, :f]) * gate_up[rows, f:] */
static inline void naive_gate(const struct naive_gate *of, double *out,
                              const double *gate_up, int rows, int f)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < f; j++)
            out[i * f + j] =
                of->value(gate_up[i * 2 * f + j]) * gate_up[i * 2 * f + f + j];
}

static inline void naive_gate_backward(const struct naive_gate *of, double *d_gate_up,
                                       const double *d_out, const double *gate_up,
                                       int rows, int f)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < f; j++) {
            double gate = gate_up[i * 2 * f + j], up = gate_up[i * 2 * f + f + j];
            d_gate_up[i * 2 * f + j] = d_out[i * f + j] * up * of->slope(gate);
            d_gate_up[i * 2 * f + f + j] = d_out[i * f + j] * of->value(gate);
        }
}

/* -log softmax(logits)[target]; logits become (softmax - onehot) * scale. Both are 0 for a
 * target of -1. */
static inline double naive_cross_entropy(double *logits, int target, int vocab,
                                         double scale)
{
    double max = -INFINITY, sum = 0.0;
    for (int j = 0; j < vocab; j++)
        max = logits[j] > max ? logits[j] : max;
    for (int j = 0; j < vocab; j++)
        sum += exp(logits[j] - max);
    /* cppcheck-suppress invalidFunctionArg ; vocab > 0, so that sum >= 1 */
    double loss = target < 0 ? 0 : log(sum) - (logits[target] - max);
    for (int j = 0; j < vocab; j++)
        logits[j] = target < 0 ? 0 : (exp(logits[j] - max) / sum - (j == target)) * scale;
    return loss;
}

/* AdamW with decoupled decay; t = 1 in the first step. */
static inline void naive_adamw(double *p, double *m, double *v, const double *g,
                               int64_t n, int t, double lr, double beta1, double beta2,
                               double eps, double weight_decay)
{
    for (int64_t i = 0; i < n; i++) {
        m[i] = beta1 * m[i] + (1.0 - beta1) * g[i];
        v[i] = beta2 * v[i] + (1.0 - beta2) * g[i] * g[i];
        double m_hat = m[i] / (1.0 - pow(beta1, t)), v_hat = v[i] / (1.0 - pow(beta2, t));
        p[i] -= lr * (m_hat / (sqrt(v_hat) + eps) + weight_decay * p[i]);
    }
}

#endif
