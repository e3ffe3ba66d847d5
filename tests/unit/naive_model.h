/*
 * A slow, obvious GPT, Llama and Falcon training step in double precision: what the
 * executor is compared with.
 *
 * Made of the operators of naive_operators.h and sharing nothing with exec/. Pre-norm
 * blocks; GPT: LayerNorm with bias, learned positions, GELU (tanh form), linear biases if
 * has_bias; Llama: RMSNorm, rotary positions ("rotate half"), SwiGLU, grouped queries, no
 * bias anywhere; Falcon: a parallel block, out = x + attention(norm(x)) + mlp(norm(x)),
 * one LayerNorm (with bias) for both branches, or one for each where 1 < kv_heads <
 * heads, rotary positions, GELU (tanh form), linear biases if has_bias. The head has no
 * bias; its weight is the embedding's if ties_embeddings. Variants, of any of them: see
 * struct naive_variant. test_naive_model.c checks it by finite differences and, but for
 * the variants, against PyTorch.
 */
#ifndef MIST_TESTS_UNIT_NAIVE_MODEL_H
#define MIST_TESTS_UNIT_NAIVE_MODEL_H

#include "tests/unit/naive_operators.h"

#include <stdlib.h>
#include <string.h>

enum { NAIVE_MAX_HIDDEN = 256 };

enum naive_family { NAIVE_GPT, NAIVE_LLAMA, NAIVE_FALCON };

/* What a family may have otherwise; 0 and NULL: it has not. */
struct naive_variant {
    int has_exact_gelu;        /* by erf */
    int has_qkv_bias;          /* Llama: of q, k and v alone */
    int has_two_norms;         /* Falcon: whatever its heads */
    int head_dim;              /* not hidden / heads */
    int rotary_dim;            /* only so many elements of a head are turned */
    const double *frequencies; /* [rotary_dim / 2], instead of those of rope_theta */
    int has_qk_norm; /* Llama: RMS norms of each head of q and k in front of RoPE */
    int is_gemma; /* Llama: norms of 1 + weight, GELU (tanh form) in the gate, embeddings
                     times the root of hidden */
    int is_nemotron; /* GPT: rotary positions, norms of 1 + weight, squared ReLU */
};

struct naive_config {
    enum naive_family family;
    int layers, hidden, heads, kv_heads, ffn, vocab, seq_len;
    int has_bias;        /* not Llama: biases of qkv, proj, fc1, fc2 */
    int ties_embeddings; /* the head's weight is wte */
    double norm_eps;
    double rope_theta; /* not GPT */
    struct naive_variant variant;
};

/* ------------------------------------------------------------------- parameter layout */

/* The flat array: wte, wpe, then per layer norm1_w .. fc2_b, then final_w,
 * final_b, head_w. */
enum naive_tensor {
    NAIVE_WTE,      /* [vocab, hidden] */
    NAIVE_WPE,      /* [seq_len, hidden]; GPT */
    NAIVE_NORM1_W,  /* [hidden]; the first tensor of a layer */
    NAIVE_NORM1_B,  /* [hidden]; LayerNorm */
    NAIVE_QKV_W,    /* [(heads + 2 kv_heads) * head_dim, hidden] */
    NAIVE_QKV_B,    /* has_bias, has_qkv_bias */
    NAIVE_Q_NORM_W, /* [head_dim]; has_qk_norm */
    NAIVE_K_NORM_W, /* [head_dim] */
    NAIVE_PROJ_W,   /* [hidden, heads * head_dim] */
    NAIVE_PROJ_B,   /* has_bias */
    NAIVE_NORM2_W,  /* [hidden]; not where Falcon has one norm for both branches */
    NAIVE_NORM2_B,  /* [hidden]; likewise, LayerNorm */
    NAIVE_FC1_W,    /* [ffn, hidden]; Llama: gate then up, [2 ffn, hidden] */
    NAIVE_FC1_B,    /* has_bias */
    NAIVE_FC2_W,    /* [hidden, ffn]; Llama: down */
    NAIVE_FC2_B,    /* has_bias; the last tensor of a layer */
    NAIVE_FINAL_W,  /* [hidden] */
    NAIVE_FINAL_B,  /* [hidden]; LayerNorm */
    NAIVE_HEAD_W,   /* [vocab, hidden]; not if tied */
    NAIVE_N_TENSORS
};

static inline int naive_head_dim(const struct naive_config *c)
{
    return c->variant.head_dim > 0 ? c->variant.head_dim : c->hidden / c->heads;
}

/* Of all query heads. */
static inline int naive_q_width(const struct naive_config *c)
{
    return c->heads * naive_head_dim(c);
}

static inline int naive_qkv_width(const struct naive_config *c)
{
    return (c->heads + 2 * c->kv_heads) * naive_head_dim(c);
}

static inline int naive_fc1_width(const struct naive_config *c)
{
    return c->family == NAIVE_LLAMA ? 2 * c->ffn : c->ffn;
}

static inline int naive_is_rms(const struct naive_config *c)
{
    return c->family == NAIVE_LLAMA;
}

static inline int naive_has_rope(const struct naive_config *c)
{
    return c->family != NAIVE_GPT || c->variant.is_nemotron;
}

/* Attention and MLP side by side, both from the layer's input. */
static inline int naive_is_parallel(const struct naive_config *c)
{
    return c->family == NAIVE_FALCON;
}

/* False where attention and MLP share norm1. */
static inline int naive_has_norm2(const struct naive_config *c)
{
    return !naive_is_parallel(c) || (c->kv_heads > 1 && c->kv_heads < c->heads) ||
           c->variant.has_two_norms;
}

/* Elements of a tensor (of one layer's); 0 where the model has none. */
static inline int64_t naive_tensor_size(const struct naive_config *c,
                                        enum naive_tensor tensor)
{
    int64_t h = c->hidden;
    int is_rms = naive_is_rms(c), has_bias = !is_rms && c->has_bias;
    switch (tensor) {
    case NAIVE_WTE:
        return c->vocab * h;
    case NAIVE_WPE:
        return naive_has_rope(c) ? 0 : c->seq_len * h;
    case NAIVE_NORM1_W:
    case NAIVE_FINAL_W:
        return h;
    case NAIVE_NORM1_B:
    case NAIVE_FINAL_B:
        return is_rms ? 0 : h;
    case NAIVE_NORM2_W:
        return naive_has_norm2(c) ? h : 0;
    case NAIVE_NORM2_B:
        return naive_has_norm2(c) && !is_rms ? h : 0;
    case NAIVE_HEAD_W:
        return c->ties_embeddings ? 0 : c->vocab * h;
    case NAIVE_QKV_W:
        return naive_qkv_width(c) * h;
    case NAIVE_QKV_B:
        return has_bias || c->variant.has_qkv_bias ? naive_qkv_width(c) : 0;
    case NAIVE_Q_NORM_W:
    case NAIVE_K_NORM_W:
        return c->variant.has_qk_norm ? naive_head_dim(c) : 0;
    case NAIVE_PROJ_W:
        return h * naive_q_width(c);
    case NAIVE_PROJ_B:
    case NAIVE_FC2_B:
        return has_bias ? h : 0;
    case NAIVE_FC1_W:
        return naive_fc1_width(c) * h;
    case NAIVE_FC1_B:
        return has_bias ? naive_fc1_width(c) : 0;
    case NAIVE_FC2_W:
        return h * c->ffn;
    default:
        return 0;
    }
}

static inline int naive_is_of_layer(enum naive_tensor tensor)
{
    return tensor >= NAIVE_NORM1_W && tensor <= NAIVE_FC2_B;
}

/* First element of a tensor; layer counts only for a layer's tensors. */
static inline int64_t naive_tensor_offset(const struct naive_config *c,
                                          enum naive_tensor tensor, int layer)
{
    int64_t offset = 0, per_layer = 0;
    for (int t = 0; t < (int)NAIVE_N_TENSORS; t++)
        if (naive_is_of_layer((enum naive_tensor)t))
            per_layer += naive_tensor_size(c, (enum naive_tensor)t);
    for (int t = 0; t < (int)tensor; t++)
        offset += naive_tensor_size(c, (enum naive_tensor)t);
    if (naive_is_of_layer(tensor))
        return offset + layer * per_layer;
    return tensor > NAIVE_FC2_B ? offset + (c->layers - 1) * per_layer : offset;
}

/* Matrices decay; norms and biases do not. */
static inline int naive_decays(enum naive_tensor tensor)
{
    switch (tensor) {
    case NAIVE_WTE:
    case NAIVE_WPE:
    case NAIVE_QKV_W:
    case NAIVE_PROJ_W:
    case NAIVE_FC1_W:
    case NAIVE_FC2_W:
    case NAIVE_HEAD_W:
        return 1;
    default:
        return 0;
    }
}

static inline int64_t naive_n_params(const struct naive_config *c)
{
    return naive_tensor_offset(c, NAIVE_N_TENSORS, 0);
}

/* ------------------------------------------------------------------------------- step */

/* Zeroed memory or the end: this is test code. */
static inline double *naive_zeros(int64_t n)
{
    double *x = calloc((size_t)(n > 0 ? n : 1), sizeof *x);
    if (x == NULL)
        abort();
    return x;
}

/* What a layer keeps for its backward; rows = batch * seq_len. */
struct naive_saved {
    double *x;         /* [rows, hidden], the input */
    double *norm1;     /* [rows, hidden] */
    double *before;    /* packed qkv in front of norms of heads; else not used */
    double *qkv;       /* packed, rotated */
    double *probs;     /* [batch, heads, s, s] */
    double *attended;  /* [rows, heads * head_dim] */
    double *middle;    /* [rows, hidden], x + attention */
    double *norm2;     /* [rows, hidden], the MLP's input */
    double *fc1;       /* [rows, fc1 width] */
    double *activated; /* [rows, ffn] */
};

static inline void naive_free_saved(struct naive_saved *kept)
{
    double *all[] = {kept->before, kept->x,        kept->norm1,  kept->qkv,
                     kept->probs,  kept->attended, kept->middle, kept->norm2,
                     kept->fc1,    kept->activated};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static inline const double *naive_find(const struct naive_config *c, const double *params,
                                       enum naive_tensor tensor, int layer)
{
    return naive_tensor_size(c, tensor) > 0
               ? params + naive_tensor_offset(c, tensor, layer)
               : NULL;
}

static inline double *naive_find_grad(const struct naive_config *c, double *grad,
                                      enum naive_tensor tensor, int layer)
{
    return naive_tensor_size(c, tensor) > 0 ? grad + naive_tensor_offset(c, tensor, layer)
                                            : NULL;
}

#define W(tensor) naive_find(c, params, NAIVE_##tensor, layer)
#define G(tensor) naive_find_grad(c, grad, NAIVE_##tensor, layer)

/* A norm, and its backward, of a model: as naive_norm() but for Gemma's 1 + w. */
static inline void naive_model_norm(const struct naive_config *c, double *y,
                                    const double *x, const double *w, const double *bias,
                                    int rows)
{
    double shifted[NAIVE_MAX_HIDDEN];
    for (int j = 0; j < c->hidden; j++)
        shifted[j] = (c->variant.is_gemma || c->variant.is_nemotron) + w[j];
    naive_norm(y, x, shifted, bias, naive_is_rms(c), c->norm_eps, rows, c->hidden);
}

static inline void naive_model_norm_backward(const struct naive_config *c, double *dx,
                                             double *dw, double *dbias, const double *dy,
                                             const double *x, const double *w, int rows)
{
    double shifted[NAIVE_MAX_HIDDEN];
    for (int j = 0; j < c->hidden; j++)
        shifted[j] = (c->variant.is_gemma || c->variant.is_nemotron) + w[j];
    naive_norm_backward(dx, dw, dbias, dy, x, shifted, naive_is_rms(c), c->norm_eps, rows,
                        c->hidden);
}

/* Norms each head of q and k in place; before: what they were. */
static inline void naive_norm_heads(const struct naive_config *c, double *qkv,
                                    double *before, const double *q_norm,
                                    const double *k_norm, int rows)
{
    int d = naive_head_dim(c), width = naive_qkv_width(c);
    memcpy(before, qkv, sizeof *qkv * (size_t)rows * (size_t)width);
    for (int i = 0; i < rows; i++)
        for (int n = 0; n < c->heads + c->kv_heads; n++)
            naive_norm(qkv + i * width + n * d, before + i * width + n * d,
                       n < c->heads ? q_norm : k_norm, NULL, 1, c->norm_eps, 1, d);
}

/* d_qkv in place; d_q_norm, d_k_norm += */
static inline void naive_norm_heads_backward(const struct naive_config *c, double *d_qkv,
                                             double *d_q_norm, double *d_k_norm,
                                             const double *before, const double *q_norm,
                                             const double *k_norm, int rows)
{
    int d = naive_head_dim(c), width = naive_qkv_width(c);
    for (int i = 0; i < rows; i++)
        for (int n = 0; n < c->heads + c->kv_heads; n++) {
            double dx[NAIVE_MAX_HIDDEN] = {0};
            double *dy = d_qkv + i * width + n * d;
            naive_norm_backward(dx, n < c->heads ? d_q_norm : d_k_norm, NULL, dy,
                                before + i * width + n * d,
                                n < c->heads ? q_norm : k_norm, 1, c->norm_eps, 1, d);
            memcpy(dy, dx, sizeof *dx * (size_t)d);
        }
}

/* Turns q and k of a layer, or back. */
static inline void naive_turn_layer(const struct naive_config *c, double *qkv, int batch,
                                    double direction)
{
    int d = naive_head_dim(c);
    int rotary_dim = c->variant.rotary_dim > 0 ? c->variant.rotary_dim : d;
    double frequencies[NAIVE_MAX_PAIRS];
    naive_frequencies(frequencies, rotary_dim, c->rope_theta);
    naive_turn(qkv, batch, c->seq_len, c->heads, c->kv_heads, d, rotary_dim,
               c->variant.frequencies ? c->variant.frequencies : frequencies, direction);
}

/* x_out = middle + mlp(norm2 of middle; parallel: of x, or norm1 itself) */
static inline void naive_layer_mlp(const struct naive_config *c, const double *params,
                                   int layer, double *x_out, int rows,
                                   struct naive_saved *kept)
{
    int h = c->hidden, f = c->ffn, fc1_width = naive_fc1_width(c);
    if (naive_has_norm2(c))
        naive_model_norm(c, kept->norm2, naive_is_parallel(c) ? kept->x : kept->middle,
                         W(NORM2_W), W(NORM2_B), rows);
    else
        memcpy(kept->norm2, kept->norm1, sizeof(double) * (size_t)rows * (size_t)h);
    naive_linear(kept->fc1, kept->norm2, W(FC1_W), W(FC1_B), rows, h, fc1_width);
    if (c->family == NAIVE_LLAMA)
        naive_gate(c->variant.is_gemma ? &naive_geglu : &naive_swiglu, kept->activated,
                   kept->fc1, rows, f);
    else
        for (int i = 0; i < rows * f; i++)
            kept->activated[i] = c->variant.is_nemotron ? naive_squared_relu(kept->fc1[i])
                                 : c->variant.has_exact_gelu
                                     ? naive_exact_gelu(kept->fc1[i])
                                     : naive_gelu(kept->fc1[i]);
    naive_linear(x_out, kept->activated, W(FC2_W), W(FC2_B), rows, f, h);
    for (int i = 0; i < rows * h; i++)
        x_out[i] += kept->middle[i];
}

/* x_out[rows, hidden] = layer(x_in), may be x_in; fills *kept with memory of its own. */
static inline void naive_layer(const struct naive_config *c, const double *params,
                               int layer, const double *x_in, double *x_out, int batch,
                               struct naive_saved *kept)
{
    int s = c->seq_len, rows = batch * s, h = c->hidden, f = c->ffn;
    int d = naive_head_dim(c), q_width = naive_q_width(c);
    int qkv_width = naive_qkv_width(c), fc1_width = naive_fc1_width(c);
    *kept = (struct naive_saved){naive_zeros((int64_t)rows * h),
                                 naive_zeros((int64_t)rows * h),
                                 naive_zeros((int64_t)rows * qkv_width),
                                 naive_zeros((int64_t)rows * qkv_width),
                                 naive_zeros((int64_t)rows * c->heads * s),
                                 naive_zeros((int64_t)rows * q_width),
                                 naive_zeros((int64_t)rows * h),
                                 naive_zeros((int64_t)rows * h),
                                 naive_zeros((int64_t)rows * fc1_width),
                                 naive_zeros((int64_t)rows * f)};
    memcpy(kept->x, x_in, sizeof *x_in * (size_t)rows * (size_t)h);
    naive_model_norm(c, kept->norm1, x_in, W(NORM1_W), W(NORM1_B), rows);
    naive_linear(kept->qkv, kept->norm1, W(QKV_W), W(QKV_B), rows, h, qkv_width);
    if (c->variant.has_qk_norm)
        naive_norm_heads(c, kept->qkv, kept->before, W(Q_NORM_W), W(K_NORM_W), rows);
    if (naive_has_rope(c))
        naive_turn_layer(c, kept->qkv, batch, 1.0);
    naive_attention(kept->attended, kept->probs, kept->qkv, batch, s, c->heads,
                    c->kv_heads, d);
    naive_linear(kept->middle, kept->attended, W(PROJ_W), W(PROJ_B), rows, q_width, h);
    for (int i = 0; i < rows * h; i++)
        kept->middle[i] += x_in[i];
    naive_layer_mlp(c, params, layer, x_out, rows, kept);
}

/* d_norm2 += gradient of the MLP's input, from dx, the gradient of the layer's output */
static inline void naive_layer_mlp_backward(const struct naive_config *c,
                                            const double *params, double *grad, int layer,
                                            double *d_norm2, const double *dx, int rows,
                                            const struct naive_saved *kept)
{
    int h = c->hidden, f = c->ffn, fc1_width = naive_fc1_width(c);
    double *d_activated = naive_zeros((int64_t)rows * f);
    double *d_fc1 = naive_zeros((int64_t)rows * fc1_width);
    naive_linear_backward(d_activated, G(FC2_W), G(FC2_B), dx, kept->activated, W(FC2_W),
                          rows, f, h);
    if (c->family == NAIVE_LLAMA)
        naive_gate_backward(c->variant.is_gemma ? &naive_geglu : &naive_swiglu, d_fc1,
                            d_activated, kept->fc1, rows, f);
    else
        for (int i = 0; i < rows * f; i++)
            d_fc1[i] = d_activated[i] *
                       (c->variant.is_nemotron ? naive_squared_relu_slope(kept->fc1[i])
                        : c->variant.has_exact_gelu ? naive_exact_gelu_slope(kept->fc1[i])
                                                    : naive_gelu_slope(kept->fc1[i]));
    naive_linear_backward(d_norm2, G(FC1_W), G(FC1_B), d_fc1, kept->norm2, W(FC1_W), rows,
                          h, fc1_width);
    free(d_activated);
    free(d_fc1);
}

/* d_norm1 += gradient of the attention's input, from dx, the gradient of the middle */
static inline void naive_layer_attention_backward(const struct naive_config *c,
                                                  const double *params, double *grad,
                                                  int layer, double *d_norm1,
                                                  const double *dx, int batch,
                                                  const struct naive_saved *kept)
{
    int s = c->seq_len, rows = batch * s, h = c->hidden, d = naive_head_dim(c);
    int qkv_width = naive_qkv_width(c), q_width = naive_q_width(c);
    double *d_attended = naive_zeros((int64_t)rows * q_width);
    double *d_qkv = naive_zeros((int64_t)rows * qkv_width);
    naive_linear_backward(d_attended, G(PROJ_W), G(PROJ_B), dx, kept->attended, W(PROJ_W),
                          rows, q_width, h);
    naive_attention_backward(d_qkv, d_attended, kept->probs, kept->qkv, batch, s,
                             c->heads, c->kv_heads, d);
    if (naive_has_rope(c))
        naive_turn_layer(c, d_qkv, batch, -1.0);
    if (c->variant.has_qk_norm)
        naive_norm_heads_backward(c, d_qkv, G(Q_NORM_W), G(K_NORM_W), kept->before,
                                  W(Q_NORM_W), W(K_NORM_W), rows);
    naive_linear_backward(d_norm1, G(QKV_W), G(QKV_B), d_qkv, kept->norm1, W(QKV_W), rows,
                          h, qkv_width);
    free(d_attended);
    free(d_qkv);
}

/*
 * dx: in the gradient of the layer's output, out that of its input; grad +=; frees *kept.
 */
static inline void naive_layer_backward(const struct naive_config *c,
                                        const double *params, double *grad, int layer,
                                        double *dx, int batch, struct naive_saved *kept)
{
    int rows = batch * c->seq_len, h = c->hidden;
    int is_parallel = naive_is_parallel(c);
    double *d_norm2 = naive_zeros((int64_t)rows * h),
           *d_norm1 = naive_zeros((int64_t)rows * h);
    naive_layer_mlp_backward(c, params, grad, layer, d_norm2, dx, rows, kept);
    if (!is_parallel) /* dx becomes the gradient of the middle residual */
        naive_model_norm_backward(c, dx, G(NORM2_W), G(NORM2_B), d_norm2, kept->middle,
                                  W(NORM2_W), rows);
    naive_layer_attention_backward(c, params, grad, layer, d_norm1, dx, batch, kept);
    if (is_parallel && naive_has_norm2(c))
        naive_model_norm_backward(c, dx, G(NORM2_W), G(NORM2_B), d_norm2, kept->x,
                                  W(NORM2_W), rows);
    if (!naive_has_norm2(c))
        for (int i = 0; i < rows * h; i++)
            d_norm1[i] += d_norm2[i];
    naive_model_norm_backward(c, dx, G(NORM1_W), G(NORM1_B), d_norm1, kept->x, W(NORM1_W),
                              rows);
    free(d_norm2);
    free(d_norm1);
    naive_free_saved(kept);
}

#undef G
#undef W

static inline double naive_embedding_scale(const struct naive_config *c)
{
    return c->variant.is_gemma ? sqrt(c->hidden) : 1.0;
}

/* logits [rows, vocab] of tokens [batch, seq_len]; x and final [rows, hidden], the final
 * norm's input and output; kept [layers] */
static inline void naive_logits(const struct naive_config *c, const double *params,
                                const int32_t *tokens, int batch, double *x,
                                double *final, double *logits, struct naive_saved *kept)
{
    int rows = batch * c->seq_len, h = c->hidden;
    enum naive_tensor head = c->ties_embeddings ? NAIVE_WTE : NAIVE_HEAD_W;
    const double *wte = naive_find(c, params, NAIVE_WTE, 0);
    const double *wpe = naive_find(c, params, NAIVE_WPE, 0);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < h; j++)
            x[i * h + j] = naive_embedding_scale(c) * wte[tokens[i] * h + j] +
                           (wpe ? wpe[i % c->seq_len * h + j] : 0.0);
    for (int l = 0; l < c->layers; l++)
        naive_layer(c, params, l, x, x, batch, &kept[l]);
    naive_model_norm(c, final, x, naive_find(c, params, NAIVE_FINAL_W, 0),
                     naive_find(c, params, NAIVE_FINAL_B, 0), rows);
    naive_linear(logits, final, naive_find(c, params, head, 0), NULL, rows, h, c->vocab);
}

/*
 * Mean cross-entropy of tokens [batch, seq_len] against targets [batch, seq_len]; grad
 * [n_params] (overwritten) is its gradient.
 */
static inline double naive_loss_and_gradient(const struct naive_config *c,
                                             const double *params, double *grad,
                                             const int32_t *tokens,
                                             const int32_t *targets, int batch)
{
    int rows = batch * c->seq_len, h = c->hidden;
    enum naive_tensor head = c->ties_embeddings ? NAIVE_WTE : NAIVE_HEAD_W;
    const double *wpe = naive_find(c, params, NAIVE_WPE, 0);
    const double *final_w = naive_find(c, params, NAIVE_FINAL_W, 0);
    const double *head_w = naive_find(c, params, head, 0);
    double *x = naive_zeros((int64_t)rows * h), *final = naive_zeros((int64_t)rows * h);
    double *dx = naive_zeros((int64_t)rows * h),
           *d_final = naive_zeros((int64_t)rows * h);
    double *logits = naive_zeros((int64_t)rows * c->vocab), loss = 0.0;
    struct naive_saved *kept = calloc((size_t)c->layers, sizeof *kept);
    if (kept == NULL)
        abort();
    memset(grad, 0, sizeof *grad * (size_t)naive_n_params(c));
    naive_logits(c, params, tokens, batch, x, final, logits, kept);
    for (int i = 0; i < rows; i++)
        loss +=
            naive_cross_entropy(logits + i * c->vocab, targets[i], c->vocab, 1.0 / rows) /
            rows;

    naive_linear_backward(d_final, naive_find_grad(c, grad, head, 0), NULL, logits, final,
                          head_w, rows, h, c->vocab);
    naive_model_norm_backward(c, dx, naive_find_grad(c, grad, NAIVE_FINAL_W, 0),
                              naive_find_grad(c, grad, NAIVE_FINAL_B, 0), d_final, x,
                              final_w, rows);
    for (int l = c->layers - 1; l >= 0; l--)
        naive_layer_backward(c, params, grad, l, dx, batch, &kept[l]);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < h; j++) {
            naive_find_grad(c, grad, NAIVE_WTE, 0)[tokens[i] * h + j] +=
                naive_embedding_scale(c) * dx[i * h + j];
            if (wpe)
                naive_find_grad(c, grad, NAIVE_WPE, 0)[i % c->seq_len * h + j] +=
                    dx[i * h + j];
        }
    free(x);
    free(final);
    free(dx);
    free(d_final);
    free(logits);
    free(kept);
    return loss;
}

#endif
