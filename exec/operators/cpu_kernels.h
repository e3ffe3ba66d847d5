/*
 * The CPU backend's operators: single-precision training kernels for GPT and Llama
 * layers.
 *
 * Every tensor is fp32 (void: bf16 if is_bf16 or with a context, see cpu_bf16.h),
 * row-major and dense unless a stride is named; shapes stand in brackets. "rows" is the
 * number of tokens, b * s; token i of a micro-batch sits at position i % s. Every function is pure: it allocates nothing, keeps no state and takes
 * its workspace from the caller (uninitialised, any contents afterwards, size in bytes
 * from the *_workspace_bytes function beside it, alignment of float; of double where it
 * says so). Sizes are >= 0, head counts, s and hidden sizes >= 1; pointers are borrowed
 * and never NULL unless it says so. Tensors must not overlap except where "may alias"
 * allows exactly the same address.
 *
 * "+=" means accumulated; how says otherwise (see below). n_threads >= 1 OpenMP threads;
 * the bits of every result are the same for any n_threads (see cpu_internal.h for how).
 *
 * Left out: dropout.
 */
#ifndef MIST_EXEC_CPU_KERNELS_H
#define MIST_EXEC_CPU_KERNELS_H

#include "sim/model/chunks.h"
#include "sim/model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How gradients of parameters are left, as bits: 0 adds to what is there, in fp32. */
enum {
    MIST_CPU_OVERWRITES = 1,     /* what is there is not read */
    MIST_CPU_BF16_GRADIENTS = 2, /* they are bf16: sums are fp32 and rounded at the end;
                                    with bf16 tensors alone */
};

/* -------------------------------------------------------------------------- embedding */

/*
 * out[rows, h] = wte[token[i]] + wpe[position of i % s], where s tokens of each sequence are
 * there, as chunks says, of a slice of the vocabulary: wte and dwte
 * hold the rows of tokens first_token .. first_token + n_local - 1 alone. wpe
 * [positions, h] or NULL (none). Any other token adds nothing: its row of out is 0 (plus wpe's, if given),
 * and dwte stays as it is. The sum over all slices, of which one has wpe, is the whole.
 * n_local 0: wte, dwte may be NULL. Tokens are those of the vocabulary, which the data
 * reader has checked.
 */
void mist_cpu_embedding_slice_forward(bool is_bf16, void *out, const int32_t *tokens,
                                      const void *wte, const void *wpe, int64_t rows,
                                      const struct mist_chunks *chunks, int64_t h,
                                      int64_t first_token, int64_t n_local,
                                      int n_threads);

/*
 * dwte[token] += the sum of the token's d_out[i], dwpe[p] += that of all i at position p (dwpe
 * may be NULL), which is fp32, in token order, and rounded as gradients are. how: always
 * +=. rows: below 2^31.
 */
void mist_cpu_embedding_slice_backward(bool is_bf16, void *dwte, void *dwpe,
                                       const int32_t *tokens, const void *d_out,
                                       int64_t rows, const struct mist_chunks *chunks,
                                       int64_t h, int64_t first_token, int64_t n_local,
                                       void *workspace, int n_threads, int how);
size_t mist_cpu_embedding_slice_backward_workspace_bytes(int64_t rows);

/* ------------------------------------------------------------------------------- norm */

enum mist_cpu_norm_kind {
    MIST_CPU_NORM_LAYER, /* (x - mean) rstd weight + bias; 1 / rstd^2 = variance + eps */
    MIST_CPU_NORM_RMS,   /* x rstd weight, no bias; 1 / rstd^2 = mean(x^2) + eps */
    MIST_CPU_NORM_OFFSET_RMS,   /* the same with 1 + weight */
    MIST_CPU_NORM_OFFSET_LAYER, /* the first with 1 + weight */
};

/* What is added to every weight, and whether the mean is taken out. */
static inline float mist_cpu_norm_offset(enum mist_cpu_norm_kind kind)
{
    return kind == MIST_CPU_NORM_OFFSET_RMS || kind == MIST_CPU_NORM_OFFSET_LAYER ? 1.0f
                                                                                  : 0.0f;
}
static inline bool mist_cpu_norm_is_centred(enum mist_cpu_norm_kind kind)
{
    return kind == MIST_CPU_NORM_LAYER || kind == MIST_CPU_NORM_OFFSET_LAYER;
}

/*
 * residual = a + b; out[rows, h] = norm(residual), the rounded one that the backward will
 * see; or norm(a), with residual and b NULL. stats[rows, 2] = mean (0 for RMS) and rstd,
 * for the backward. weight [h]; bias [h] or NULL (no bias). residual and out may alias a
 * or b (not each other). workspace: NULL in fp32.
 */
void mist_cpu_norm_forward(bool is_bf16, enum mist_cpu_norm_kind kind, void *out,
                           void *residual, float *stats, const void *a, const void *b,
                           const void *weight, const void *bias, float eps, int64_t rows,
                           int64_t h, void *workspace, int n_threads);
size_t mist_cpu_bf16_norm_forward_workspace_bytes(int64_t h, int n_threads);

/*
 * dx[rows, h] = d_residual + J^T d_out, where J is the norm's Jacobian at x (its input:
 * for residual_norm the residual). d_residual NULL: zero. dweight[h] +=, dbias[h] +=
 * (NULL: no bias). dx may alias d_residual or d_out.
 */
void mist_cpu_norm_backward(bool is_bf16, enum mist_cpu_norm_kind kind, void *dx,
                            void *dweight, void *dbias, const void *d_out,
                            const void *d_residual, const void *x, const float *stats,
                            const void *weight, int64_t rows, int64_t h, void *workspace,
                            int n_threads, int how);
size_t mist_cpu_norm_backward_workspace_bytes(int64_t rows, int64_t h);
size_t mist_cpu_bf16_norm_backward_workspace_bytes(int64_t rows, int64_t h,
                                                   int n_threads);

/* ----------------------------------------------------------------------------- linear */

/* Of bf16 (cpu_bf16.h). Here and below NULL: tensors are fp32. */
struct mist_cpu_bf16;

/* y[rows, n_out] = x[rows, n_in] W^T + bias + residual. W [n_out, n_in]; bias [n_out] or
 * NULL; residual as y, or NULL, may alias y. */
void mist_cpu_linear_forward(struct mist_cpu_bf16 *context, void *y, const void *x,
                             const void *weight, const void *bias, const void *residual,
                             int64_t rows, int64_t n_in, int64_t n_out, int n_threads);

/* dx[rows, n_in] = dy[rows, n_out] W + residual (NULL: none), which may alias dx. */
void mist_cpu_linear_backward_input(struct mist_cpu_bf16 *context, void *dx,
                                    const void *dy, const void *weight,
                                    const void *residual, int64_t rows, int64_t n_in,
                                    int64_t n_out, int n_threads);

/* dW[n_out, n_in] += dy^T x;  dbias[n_out] += column sums of dy (dbias NULL: none). */
void mist_cpu_linear_backward_weight(struct mist_cpu_bf16 *context, void *dweight,
                                     void *dbias, const void *dy, const void *x,
                                     int64_t rows, int64_t n_in, int64_t n_out,
                                     int n_threads, int how);

/* -------------------------------------------------------------------------- attention */

/*
 * Causal self-attention over packed projections. qkv [b, s, (heads + 2 * kv_heads) *
 * head_dim]: in each token first all q heads, then all k heads, then all v heads. Query
 * head i reads key and value head i / (heads / kv_heads); kv_heads divides heads. Scores
 * are scaled by 1/sqrt(head_dim).
 */
struct mist_cpu_attention {
    int64_t b, s;
    int64_t heads, kv_heads, head_dim;
};

/* out [b, s, heads * head_dim]; lse [b, heads, s]:
 * log of the sum of exp of the scaled scores. */
void mist_cpu_attention_forward(struct mist_cpu_bf16 *context, void *out, float *lse,
                                const void *qkv, const struct mist_cpu_attention *shape,
                                void *workspace, int n_threads);
size_t mist_cpu_attention_forward_workspace_bytes(const struct mist_cpu_attention *shape,
                                                  bool is_bf16, int n_threads);

/* dqkv (packed like qkv, overwritten) from d_out; recomputes the probabilities from qkv
 * and lse. */
void mist_cpu_attention_backward(struct mist_cpu_bf16 *context, void *dqkv,
                                 const void *d_out, const void *qkv, const void *out,
                                 const float *lse, const struct mist_cpu_attention *shape,
                                 void *workspace, int n_threads);
size_t mist_cpu_attention_backward_workspace_bytes(const struct mist_cpu_attention *shape,
                                                   bool is_bf16, int n_threads);

/*
 * Attention of a context-parallel rank's queries, those of its two chunks of each sequence
 * (mist_chunks_of(whole.s, n, i)), to the keys before them. qkv and dqkv [b, s / n, ...] are
 * packed as above, of the rank's tokens, of which queries alone are read and written; kv and dkv
 * [b, s, 2 kv_heads, head_dim] have keys and values of all tokens, in the order of the
 * sequence. dkv is written whole: 0 where no query sees. out [b, s / n, heads * head_dim]; lse
 * [b, heads, s / n]. Workspace: that of whole.
 */
struct mist_cpu_attention_part {
    struct mist_cpu_attention whole;
    int64_t n, i;
};

void mist_cpu_attention_part_forward(struct mist_cpu_bf16 *context, void *out, float *lse,
                                     const void *qkv, const void *kv,
                                     const struct mist_cpu_attention_part *part,
                                     void *workspace, int n_threads);
void mist_cpu_attention_part_backward(struct mist_cpu_bf16 *context, void *dqkv,
                                      void *dkv, const void *d_out, const void *qkv,
                                      const void *kv, const void *out, const float *lse,
                                      const struct mist_cpu_attention_part *part,
                                      void *workspace, int n_threads);

/* kv [b, s / n, 2 kv_heads, head_dim], of a rank's tokens, out of qkv; and gradients of them
 * into dqkv. */
void mist_cpu_kv_pack(bool is_bf16, void *kv, const void *qkv,
                      const struct mist_cpu_attention_part *part, int n_threads);
void mist_cpu_kv_unpack(bool is_bf16, void *dqkv, const void *dkv,
                        const struct mist_cpu_attention_part *part, int n_threads);

/* kv [b, s, ...] from ranks' [n, b, s / n, ...], of each its two chunks; and back. */
void mist_cpu_kv_order(bool is_bf16, void *kv, const void *ranks,
                       const struct mist_cpu_attention_part *part, int n_threads);
void mist_cpu_kv_disorder(bool is_bf16, void *ranks, const void *kv,
                          const struct mist_cpu_attention_part *part, int n_threads);

/*
 * Rotary position embedding as in Hugging Face's Llama ("rotate half", Su et al. 2021):
 * elements j and j + head_dim / 2 of a head turn by position *
 * mist_model_rope_frequency(model, j); by 0 exactly, they stay as they are. head_dim is
 * even. rope_fill writes table [s, head_dim], of the s tokens that chunks has of a sequence: per
 * position the head_dim / 2 cosines, then the sines; once per run.
 */
void mist_cpu_rope_fill(float *table, const struct mist_chunks *chunks,
                        const struct mist_model *model);

/* Turns the q and k heads of packed qkv in place, v stays; backward the gradient of the
 * rotated q and k back into that of the unrotated. */
void mist_cpu_rope(bool is_bf16, void *qkv, const float *table,
                   const struct mist_cpu_attention *shape, bool is_backward,
                   int n_threads);

/*
 * RMS norms of each head of q and k, of packed qkv in place; v stays. kept [b, s, heads +
 * kv_heads, head_dim] is what they were. The backward turns d_qkv into the gradient of what
 * was normed, and leaves those of both weights [head_dim] as how says. workspace: what the
 * catalogue plans (head_norm), in the forward only with bf16.
 */
void mist_cpu_head_norm_forward(bool is_bf16, void *qkv, void *kept, const void *q_weight,
                                const void *k_weight, float eps,
                                const struct mist_cpu_attention *shape, void *workspace,
                                int n_threads);
void mist_cpu_head_norm_backward(bool is_bf16, void *d_qkv, void *d_q_weight,
                                 void *d_k_weight, const void *kept, const void *q_weight,
                                 const void *k_weight, float eps,
                                 const struct mist_cpu_attention *shape, void *workspace,
                                 int n_threads, int how);

/* ------------------------------------------------------------------------ elementwise */

/* out = kind(x): the tanh approximation of gelu, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715
 * x^3))), computed as the equal x * sigmoid(2 ...); exact: x (1 + erf(x / sqrt(2))) / 2;
 * squared ReLU: max(0, x)^2. out may alias x. */
void mist_cpu_activation_forward(bool is_bf16, enum mist_activation kind, void *out,
                                 const void *x, int64_t n, int n_threads);

/* dx = d_out * kind'(x). dx may alias d_out or x. */
void mist_cpu_activation_backward(bool is_bf16, enum mist_activation kind, void *dx,
                                  const void *d_out, const void *x, int64_t n,
                                  int n_threads);

/* out[rows, f] = silu(gate) * up, gate_up [rows, 2 * f] with the gate first; is_geglu:
 * gelu, its tanh form, instead of silu. */
void mist_cpu_swiglu_forward(bool is_bf16, bool is_geglu, void *out, const void *gate_up,
                             int64_t rows, int64_t f, int n_threads);

/* d_gate_up [rows, 2 * f] from d_out [rows, f]. d_gate_up may alias gate_up. */
void mist_cpu_swiglu_backward(bool is_bf16, bool is_geglu, void *d_gate_up,
                              const void *d_out, const void *gate_up, int64_t rows,
                              int64_t f, int n_threads);

/* x *= factor */
void mist_cpu_scale(bool is_bf16, void *x, float factor, int64_t n, int n_threads);

/* out = a + b. out may alias a or b. */
void mist_cpu_add_forward(bool is_bf16, void *out, const void *a, const void *b,
                          int64_t n, int n_threads);

/* n_bytes of zeros. */
void mist_cpu_zero(void *x, int64_t n_bytes, int n_threads);

/* ------------------------------------------------------------------------------- loss */

/*
 * Cross-entropy of a chunk of logits, in place. logits [rows, vocab] become their
 * gradient, (softmax - onehot(target)) * scale; losses[rows] (unscaled) = -log
 * softmax[target]. Columns from n_valid_vocab (1 .. vocab) on are padding: no part in the
 * softmax, gradient 0. Targets are 0 .. n_valid_vocab - 1, or -1: that row takes no part,
 * its loss and gradient are 0. scale is 1 / (tokens of the step) for a mean loss.
 */
void mist_cpu_cross_entropy(bool is_bf16, void *logits, float *losses,
                            const int32_t *targets, int64_t rows, int64_t vocab,
                            int64_t n_valid_vocab, float scale, int n_threads);

/*
 * The same where tp ranks hold a slice of the vocabulary each: logits [rows, n_local] are
 * those of tokens first_token .. first_token + n_local - 1, of which the last n_local -
 * n_valid_local are padding (all of them where n_valid_local is 0). Targets are tokens of
 * the whole vocabulary, of which one of the slices has each, or -1.
 *
 * First each slice writes stats[rows, 3]: maximum, sum of exp(l - maximum), logit of the
 * target or 0 where another slice has it; -inf, 0, 0 for a slice of padding.
 */
void mist_cpu_cross_entropy_stats(bool is_bf16, float *stats, const void *logits,
                                  const int32_t *targets, int64_t rows, int64_t n_local,
                                  int64_t n_valid_local, int64_t first_token,
                                  int n_threads);

/*
 * Then, with the stats of all slices in all_stats [tp, rows, 3], logits become their
 * gradient in place, and losses[rows] are those of the whole vocabulary, the same bits in
 * every slice. With tp 1 the bits are mist_cpu_cross_entropy's.
 */
void mist_cpu_cross_entropy_parallel(bool is_bf16, void *logits, float *losses,
                                     const int32_t *targets, const float *all_stats,
                                     int64_t rows, int64_t n_local, int64_t n_valid_local,
                                     int64_t first_token, int64_t tp, float scale,
                                     int n_threads);

/* -------------------------------------------------------------------------- optimizer */

/*
 * One AdamW step (Loshchilov and Hutter 2019, algorithm 2 with decoupled decay times lr).
 */
struct mist_cpu_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    float correction1; /* 1 - beta1^t with t = 1 in the first step */
    float correction2; /* 1 - beta2^t */
    float grad_scale;  /* multiplies g first: clipping; 1 leaves g's bits alone */
};

/*
 * g' = grad_scale g;  m = beta1 m + (1 - beta1) g';  v = beta2 v + (1 - beta2) g'^2;
 * p -= lr ((m / correction1) / (sqrt(v / correction2) + eps) + weight_decay p).
 * All [n]; each element on its own, so shards of any size give the same bits. weights NULL,
 * or bf16: becomes the rounded copy of p, which is then the master weights; how: g may be
 * bf16.
 */
void mist_cpu_adamw_step(void *weights, float *p, float *m, float *v, const void *g,
                         int64_t n, const struct mist_cpu_adamw *config, int n_threads,
                         int how);

/* ----------------------------------------------------------------- initial parameters */

/* Which draws fill an array: element i of run r is mean + deviation times draw
 * first + r * run_stride + i of mist_random_normal_at(seed, stream, ). */
struct mist_draw {
    uint64_t seed, stream;
    int64_t first, run_stride;
    int64_t n_runs, run_length; /* of the array, one run behind the other */
    double mean, deviation;
};

/* x: n_runs * run_length of fp32, or of bf16, which is rounded from the fp32. */
void mist_cpu_draw(void *x, bool is_bf16, const struct mist_draw *draw, int n_threads);

/* ------------------------------------------------------------------ sums and searches */

/*
 * A sum of squares in whole numbers of grid units: its value is coarse * 2^-24 + fine *
 * 2^-60. The same elements give the same four numbers in any order, by any number of
 * threads and however they are cut into shards.
 */
struct mist_cpu_sum {
    int64_t coarse;      /* 0 .. MIST_CPU_SUM_MAX_COARSE; there it stays (too large) */
    int64_t fine;        /* 0 .. 2^36 - 1 */
    int64_t n_nonfinite; /* elements NaN, infinite, or beyond MIST_CPU_SUM_MAX_ABS */
    int64_t first_nonfinite; /* the index of the first of them; -1: none */
};
#define MIST_CPU_SUM_MAX_ABS 8192.0f
/* 2^53 units of 2^-24: sums below 2^29, norms below 23170. The coarse and fine fields of
 * up to 1023 sums can be added as plain 64-bit integers before mist_cpu_sum_value(). */
#define MIST_CPU_SUM_MAX_COARSE ((int64_t)1 << 53)

/*
 * out = sum of x[i]^2. Each square is rounded to a multiple of 2^-60, nothing else ever
 * is: the error is at most n * 2^-61. So the relative error is at most 2^-61 / (mean
 * square): 4.4e-15 for a root mean square of 1e-2, 4.4e-7 for 1e-6, 4.4e-5 for 1e-7, half
 * of that for the norm, and far less where errors average out. Elements below 6.5e-10
 * count as 0, elements out of range too (n_nonfinite tells). At the speed of memory.
 */
void mist_cpu_sum_squares_exact(bool is_bf16, const void *x, int64_t n,
                                struct mist_cpu_sum *out, int n_threads);

/* The sum of nothing. */
void mist_cpu_sum_clear(struct mist_cpu_sum *sum);

/* sum += other, whose element 0 is element offset of sum's. In any order the same. */
void mist_cpu_sum_add(struct mist_cpu_sum *sum, const struct mist_cpu_sum *other,
                      int64_t offset);

/*
 * The value of coarse and fine as a double (within 2^-52 of it, relatively). Sums of
 * several structs' fields may be given: fine may exceed its range. INFINITY from
 * MIST_CPU_SUM_MAX_COARSE on.
 */
double mist_cpu_sum_value(int64_t coarse, int64_t fine);

/* The index of the first element that is NaN or infinite; -1: none. At memory's speed. */
int64_t mist_cpu_find_nonfinite(bool is_bf16, const void *x, int64_t n, int n_threads);

/* ----------------------------------------------------------------------------- report */

/* Writes "oneDNN 2.6.3, AVX-512, 2 of 8 OpenMP threads" (n_threads of what OpenMP would
 * use) into text, cut to size_bytes with its terminator. */
void mist_cpu_describe(char *text, size_t size_bytes, int n_threads);

#endif
