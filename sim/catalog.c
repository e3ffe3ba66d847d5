/*
 * Declares the modules of GPT and Llama models. See catalog.h.
 *
 * The blocks are pre-norm: x -> norm -> qkv -> attention -> proj -> (+ x, norm) ->
 * feed-forward -> + . What a block keeps for its backward: the norms' outputs and
 * statistics, qkv, attention output and its log-sum-exp, the middle residual, the
 * feed-forward's input and output of the activation. Softmax probabilities are recomputed
 * inside the attention kernel (Dao et al. 2022). The head computes its loss and
 * everything up to the gradient of its norm's output in the forward program, so that
 * logits never live from forward to backward. Left out: Falcon's parallel block, tied
 * embeddings, dropout.
 */
#include "sim/catalog.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What the declarations share: the catalogue, the template being filled,
 * and common expressions. */
struct builder {
    struct mist_expr_pool *pool;
    const struct mist_model *model;
    struct mist_layer_template *layer;
    mist_expr b, s, tp, threads;
    mist_expr rows;     /* b * s */
    mist_expr heads;    /* of a tensor-parallel rank */
    mist_expr kv_heads; /* of a tensor-parallel rank */
    mist_expr ffn;      /* of a tensor-parallel rank */
};

static mist_expr num(struct builder *at, double value)
{
    return mist_expr_const(at->pool, value);
}

static mist_expr mul(struct builder *at, mist_expr a, mist_expr b)
{
    return mist_expr_mul(at->pool, a, b);
}

static mist_expr mul3(struct builder *at, mist_expr a, mist_expr b, mist_expr c)
{
    return mul(at, mul(at, a, b), c);
}

static mist_expr times(struct builder *at, double factor, mist_expr a)
{
    return mul(at, num(at, factor), a);
}

static int8_t tensor(struct builder *at, const char *name, enum mist_tensor_class class,
                     mist_expr elements)
{
    struct mist_layer_template *layer = at->layer;

    layer->tensors[layer->n_tensors] =
        (struct mist_tensor){name, class, times(at, 4, elements)};
    return (int8_t)layer->n_tensors++;
}

static int8_t param(struct builder *at, const char *name, enum mist_init init,
                    bool decays, mist_expr elements)
{
    struct mist_layer_template *layer = at->layer;

    layer->params[layer->n_params] = (struct mist_param){name, init, decays, elements};
    return (int8_t)layer->n_params++;
}

/* Appends a step without operands; the caller fills what is special. */
static struct mist_step *step(struct builder *at, struct mist_program *program,
                              const char *name, enum mist_op op, enum mist_phase phase)
{
    struct mist_step *new = &program->steps[program->n_steps++];

    new->name = name;
    new->op = op;
    new->phase = phase;
    memset(new->operands, -1, sizeof new->operands);
    memset(new->params, -1, sizeof new->params);
    for (int i = 0; i < MIST_MAX_DIMS; i++)
        new->dims[i] = num(at, 0);
    new->workspace_bytes = num(at, 0);
    if (program->n_steps > 1)
        new->segment = new[-1].segment;
    return new;
}

/* The all-reduce that tensor parallelism puts behind a step:
 * later steps are the next segment. */
static void tp_all_reduce(struct builder *at, struct mist_program *program, int8_t of,
                          mist_expr elements)
{
    struct mist_step *new =
        step(at, program, "tp_all_reduce", MIST_OP_TP_ALL_REDUCE, MIST_PHASE_FORWARD);

    new->operands[MIST_ARG_OUT] = of;
    new->dims[0] = elements;
    new->flop = num(at, 0);
    new->bytes = times(at, 4, elements);
    new->segment++;
}

/* -------------------------------------------------------------------------- operators */

static bool is_rms(const struct builder *at)
{
    return at->model->family == MIST_FAMILY_LLAMA;
}

struct norm {
    int8_t out, stats, x; /* tensors */
    int8_t weight, bias;  /* parameters; bias -1 for RMSNorm */
};

static void norm_params(struct builder *at, struct norm *norm, const char *weight,
                        const char *bias)
{
    mist_expr h = num(at, at->model->hidden);

    norm->weight = param(at, weight, MIST_INIT_ONES, false, h);
    norm->bias = -1;
    if (!is_rms(at))
        norm->bias = param(at, bias, MIST_INIT_ZEROS, false, h);
}

static void norm_common(struct builder *at, struct mist_step *new,
                        const struct norm *norm, double flop_per_element,
                        double bytes_per_element)
{
    mist_expr elements = mul(at, at->rows, num(at, at->model->hidden));

    new->dims[0] = at->rows;
    new->dims[1] = num(at, at->model->hidden);
    new->params[0] = norm->weight;
    new->params[1] = norm->bias;
    new->flop = times(at, flop_per_element, elements);
    new->bytes = times(at, bytes_per_element, elements);
}

static void norm_forward(struct builder *at, struct mist_program *program,
                         const char *name, const struct norm *norm)
{
    struct mist_step *new =
        step(at, program, name, is_rms(at) ? MIST_OP_RMS_NORM : MIST_OP_LAYER_NORM,
             MIST_PHASE_FORWARD);

    norm_common(at, new, norm, 8, 8);
    new->operands[MIST_ARG_OUT] = norm->out;
    new->operands[MIST_ARG_NORM_STATS] = norm->stats;
    new->operands[MIST_ARG_NORM_X] = norm->x;
}

/* norm->x = a + b, norm->out = norm(norm->x) */
static void residual_norm_forward(struct builder *at, struct mist_program *program,
                                  const char *name, const struct norm *norm, int8_t a,
                                  int8_t b)
{
    struct mist_step *new =
        step(at, program, name,
             is_rms(at) ? MIST_OP_RESIDUAL_RMS_NORM : MIST_OP_RESIDUAL_LAYER_NORM,
             MIST_PHASE_FORWARD);

    norm_common(at, new, norm, 9, 16);
    new->operands[MIST_ARG_OUT] = norm->out;
    new->operands[MIST_ARG_RNORM_RESIDUAL] = norm->x;
    new->operands[MIST_ARG_RNORM_STATS] = norm->stats;
    new->operands[MIST_ARG_RNORM_A] = a;
    new->operands[MIST_ARG_RNORM_B] = b;
}

/* dx = d_residual (-1: none) + gradient through the norm of dy */
static void norm_backward(struct builder *at, struct mist_program *program,
                          const char *name, const struct norm *norm, int8_t dx, int8_t dy,
                          int8_t d_residual)
{
    struct mist_step *new =
        step(at, program, name, is_rms(at) ? MIST_OP_RMS_NORM : MIST_OP_LAYER_NORM,
             MIST_PHASE_BACKWARD_INPUT);
    mist_expr n_blocks =
        mist_expr_ceil(at->pool, mist_expr_div(at->pool, at->rows,
                                               num(at, MIST_CATALOG_NORM_BLOCK_ROWS)));

    norm_common(at, new, norm, 14, d_residual >= 0 ? 16 : 12);
    new->operands[MIST_ARG_DX] = dx;
    new->operands[MIST_ARG_DY] = dy;
    new->operands[MIST_ARG_DNORM_RESIDUAL] = d_residual;
    new->operands[MIST_ARG_DNORM_X] = norm->x;
    new->operands[MIST_ARG_DNORM_STATS] = norm->stats;
    new->workspace_bytes = times(at, 2.0 * 4 * at->model->hidden, n_blocks);
}

struct linear {
    const char *name;
    int8_t weight, bias; /* parameters; bias -1 */
    mist_expr n_in, n_out;
};

static struct linear linear_params(struct builder *at, const char *name,
                                   const char *weight, const char *bias,
                                   enum mist_init init, mist_expr n_in, mist_expr n_out)
{
    struct linear linear = {name, -1, -1, n_in, n_out};

    linear.weight = param(at, weight, init, true, mul(at, n_in, n_out));
    if (bias)
        linear.bias = param(at, bias, MIST_INIT_ZEROS, false, n_out);
    return linear;
}

static struct mist_step *linear_step(struct builder *at, struct mist_program *program,
                                     const struct linear *linear, enum mist_phase phase)
{
    struct mist_step *new =
        step(at, program, linear->name,
             linear->bias >= 0 ? MIST_OP_LINEAR_BIAS : MIST_OP_LINEAR, phase);
    mist_expr in = mul(at, at->rows, linear->n_in);
    mist_expr out = mul(at, at->rows, linear->n_out);
    mist_expr weight = mul(at, linear->n_in, linear->n_out);

    new->dims[0] = at->rows;
    new->dims[1] = linear->n_in;
    new->dims[2] = linear->n_out;
    new->params[0] = linear->weight;
    new->params[1] = linear->bias;
    new->flop = times(at, 2, mul3(at, at->rows, linear->n_in, linear->n_out));
    new->bytes =
        times(at, 4, mist_expr_add(at->pool, mist_expr_add(at->pool, in, out), weight));
    return new;
}

static void linear_forward(struct builder *at, struct mist_program *program,
                           const struct linear *linear, int8_t y, int8_t x)
{
    struct mist_step *new = linear_step(at, program, linear, MIST_PHASE_FORWARD);

    new->operands[MIST_ARG_OUT] = y;
    new->operands[MIST_ARG_LINEAR_X] = x;
}

/* dx = dy W, then dW += dy^T x */
static void linear_backward(struct builder *at, struct mist_program *program,
                            const struct linear *linear, int8_t dx, int8_t dy, int8_t x)
{
    struct mist_step *input = linear_step(at, program, linear, MIST_PHASE_BACKWARD_INPUT);

    input->operands[MIST_ARG_DX] = dx;
    input->operands[MIST_ARG_DY] = dy;
    struct mist_step *weight =
        linear_step(at, program, linear, MIST_PHASE_BACKWARD_WEIGHT);
    weight->operands[MIST_ARG_DW_DY] = dy;
    weight->operands[MIST_ARG_DW_X] = x;
}

static struct mist_step *head_step(struct builder *at, struct mist_program *program,
                                   const char *name, enum mist_op op,
                                   enum mist_phase phase)
{
    struct mist_step *new = step(at, program, name, op, phase);

    new->dims[0] = at->b;
    new->dims[1] = at->s;
    new->dims[2] = at->heads;
    new->dims[3] = at->kv_heads;
    new->dims[4] = num(at, at->model->head_dim);
    return new;
}

/* Elements of the packed projections of all tokens. */
static mist_expr qkv_elements(struct builder *at)
{
    mist_expr n_heads = mist_expr_add(at->pool, at->heads, times(at, 2, at->kv_heads));

    return mul3(at, at->rows, n_heads, num(at, at->model->head_dim));
}

static mist_expr attention_elements(struct builder *at)
{
    return mul3(at, at->rows, at->heads, num(at, at->model->head_dim));
}

/* n_matmuls products of [s, s] x [s, head_dim] per head, causal: half of each. */
static void attention_cost(struct builder *at, struct mist_step *new, double n_matmuls,
                           double n_passes)
{
    mist_expr block = mist_expr_min(at->pool, at->s, num(at, MIST_CATALOG_QUERY_BLOCK));

    new->flop = times(at, n_matmuls, mul(at, attention_elements(at), at->s));
    new->bytes = times(at, 4 * n_passes,
                       mist_expr_add(at->pool, qkv_elements(at), attention_elements(at)));
    new->workspace_bytes =
        times(at, 4 * n_passes, mul(at, at->threads, mul(at, block, at->s)));
}

static void rope(struct builder *at, struct mist_program *program, enum mist_phase phase,
                 int8_t qkv, int8_t table)
{
    struct mist_step *new = head_step(at, program, "rope", MIST_OP_ROPE, phase);
    mist_expr turned =
        mul3(at, at->rows, mist_expr_add(at->pool, at->heads, at->kv_heads),
             num(at, at->model->head_dim));

    new->operands[MIST_ARG_OUT] = qkv;
    new->operands[MIST_ARG_ROPE_TABLE] = table;
    new->flop = times(at, 3, turned);
    new->bytes = times(at, 8, turned);
}

/* The activation of the feed-forward layer:
 * gelu over elements or swiglu over rows x width. */
static struct mist_step *activation_step(struct builder *at, struct mist_program *program,
                                         enum mist_phase phase)
{
    bool is_swiglu = at->model->family == MIST_FAMILY_LLAMA;
    bool is_forward = phase == MIST_PHASE_FORWARD;
    double bytes = is_swiglu ? (is_forward ? 12 : 20) : (is_forward ? 8 : 12);
    mist_expr elements = mul(at, at->rows, at->ffn);
    struct mist_step *new = step(at, program, is_swiglu ? "swiglu" : "gelu",
                                 is_swiglu ? MIST_OP_SWIGLU : MIST_OP_GELU, phase);

    new->dims[0] = is_swiglu ? at->rows : elements;
    if (is_swiglu)
        new->dims[1] = at->ffn;
    new->flop = times(at, is_forward ? 12 : 18, elements);
    new->bytes = times(at, bytes, elements);
    return new;
}

/* ---------------------------------------------------------------------------- modules */

static void declare_embedding(struct builder *at)
{
    struct mist_layer_template *layer = at->layer;
    mist_expr h = num(at, at->model->hidden);
    mist_expr elements = mul(at, at->rows, h);
    int8_t wte =
        param(at, "wte", MIST_INIT_NORMAL, true, mul(at, num(at, at->model->vocab), h));
    int8_t wpe = -1;

    if (at->model->max_seq > 0 && at->model->family == MIST_FAMILY_GPT)
        wpe = param(at, "wpe", MIST_INIT_NORMAL, true,
                    mul(at, num(at, at->model->max_seq), h));
    int8_t tokens = tensor(at, "tokens", MIST_TENSOR_TOKENS, at->rows);
    int8_t out = tensor(at, "out", MIST_TENSOR_OUTPUT, elements);
    int8_t d_out = tensor(at, "d_out", MIST_TENSOR_GRAD_OUTPUT, elements);

    for (int i = 0; i < 2; i++) {
        struct mist_step *new =
            step(at, i ? &layer->backward : &layer->forward, "embedding",
                 MIST_OP_EMBEDDING, i ? MIST_PHASE_BACKWARD_WEIGHT : MIST_PHASE_FORWARD);
        new->dims[0] = at->rows;
        new->dims[1] = h;
        new->dims[2] = num(at, at->model->vocab);
        new->params[0] = wte;
        new->params[1] = wpe;
        new->operands[0] = i ? d_out : out; /* MIST_ARG_DW_DY, MIST_ARG_OUT */
        new->operands[1] = tokens;          /* MIST_ARG_DW_X, MIST_ARG_EMBEDDING_TOKENS */
        new->flop = times(at, i ? 2 : 1, elements);
        /* every table's row is read, or read and written */
        new->bytes = times(at, 4 + (i ? 8 : 4) * (wpe >= 0 ? 2 : 1), elements);
    }
}

/* Tensors and parameters of a block, by name; the two programs below use them. */
struct block {
    int8_t x, out, qkv, lse, att, y, f1, act, z, rope_table;
    int8_t d_out, d_x, d_act, d_f1, d_n2, d_r, d_att, d_qkv, d_n1;
    struct norm norm1, norm2;
    struct linear to_qkv, proj, up, down;
};

static void block_params(struct builder *at, struct block *block)
{
    const struct mist_model *model = at->model;
    bool is_llama = model->family == MIST_FAMILY_LLAMA;
    mist_expr h = num(at, model->hidden);
    mist_expr head_dim = num(at, model->head_dim);
    mist_expr n_q = mul(at, at->heads, head_dim);
    mist_expr n_qkv =
        mul(at, mist_expr_add(at->pool, at->heads, times(at, 2, at->kv_heads)), head_dim);
    bool has_bias = model->has_bias;

    norm_params(at, &block->norm1, "norm1.weight", "norm1.bias");
    block->to_qkv = linear_params(at, "qkv", "qkv.weight", has_bias ? "qkv.bias" : NULL,
                                  MIST_INIT_NORMAL, h, n_qkv);
    block->proj = linear_params(at, "proj", "proj.weight", has_bias ? "proj.bias" : NULL,
                                MIST_INIT_NORMAL_RESIDUAL, n_q, h);
    norm_params(at, &block->norm2, "norm2.weight", "norm2.bias");
    block->up =
        linear_params(at, "up", "up.weight", has_bias ? "up.bias" : NULL,
                      MIST_INIT_NORMAL, h, is_llama ? times(at, 2, at->ffn) : at->ffn);
    block->down = linear_params(at, "down", "down.weight", has_bias ? "down.bias" : NULL,
                                MIST_INIT_NORMAL_RESIDUAL, at->ffn, h);
}

static void block_tensors(struct builder *at, struct block *block)
{
    bool is_llama = at->model->family == MIST_FAMILY_LLAMA;
    mist_expr u = mul(at, at->rows, num(at, at->model->hidden));
    mist_expr stats = times(at, 2, at->rows);
    mist_expr act = mul(at, at->rows, at->ffn);
    mist_expr f1 = is_llama ? times(at, 2, act) : act;

    block->x = tensor(at, "x", MIST_TENSOR_INPUT, u);
    block->out = tensor(at, "out", MIST_TENSOR_OUTPUT, u);
    block->norm1.x = block->x;
    block->norm1.out = tensor(at, "n1", MIST_TENSOR_SAVED, u);
    block->norm1.stats = tensor(at, "stats1", MIST_TENSOR_SAVED, stats);
    block->qkv = tensor(at, "qkv", MIST_TENSOR_SAVED, qkv_elements(at));
    block->lse = tensor(at, "lse", MIST_TENSOR_SAVED, mul(at, at->rows, at->heads));
    block->att = tensor(at, "att", MIST_TENSOR_SAVED, attention_elements(at));
    block->y = tensor(at, "y", MIST_TENSOR_SCRATCH, u);
    block->norm2.x = tensor(at, "r", MIST_TENSOR_SAVED, u);
    block->norm2.out = tensor(at, "n2", MIST_TENSOR_SAVED, u);
    block->norm2.stats = tensor(at, "stats2", MIST_TENSOR_SAVED, stats);
    block->f1 = tensor(at, "f1", MIST_TENSOR_SAVED, f1);
    block->act = tensor(at, "act", MIST_TENSOR_SAVED, act);
    block->z = tensor(at, "z", MIST_TENSOR_SCRATCH, u);
    block->d_out = tensor(at, "d_out", MIST_TENSOR_GRAD_OUTPUT, u);
    block->d_x = tensor(at, "d_x", MIST_TENSOR_GRAD_INPUT, u);
    block->d_act = tensor(at, "d_act", MIST_TENSOR_SCRATCH, act);
    /* gelu's gradient overwrites that of its output; swiglu's is twice as wide */
    block->d_f1 = is_llama ? tensor(at, "d_f1", MIST_TENSOR_SCRATCH, f1) : block->d_act;
    block->d_n2 = tensor(at, "d_n2", MIST_TENSOR_SCRATCH, u);
    block->d_r = tensor(at, "d_r", MIST_TENSOR_SCRATCH, u);
    block->d_att = tensor(at, "d_att", MIST_TENSOR_SCRATCH, attention_elements(at));
    block->d_qkv = tensor(at, "d_qkv", MIST_TENSOR_SCRATCH, qkv_elements(at));
    block->d_n1 = tensor(at, "d_n1", MIST_TENSOR_SCRATCH, u);
    block->rope_table = -1;
    if (is_llama)
        block->rope_table = tensor(at, "rope", MIST_TENSOR_CONSTANT,
                                   mul(at, at->s, num(at, at->model->head_dim)));
}

static void block_forward(struct builder *at, const struct block *block)
{
    struct mist_program *program = &at->layer->forward;
    mist_expr u = mul(at, at->rows, num(at, at->model->hidden));

    norm_forward(at, program, "norm1", &block->norm1);
    linear_forward(at, program, &block->to_qkv, block->qkv, block->norm1.out);
    if (block->rope_table >= 0)
        rope(at, program, MIST_PHASE_FORWARD, block->qkv, block->rope_table);
    struct mist_step *attention =
        head_step(at, program, "attention", MIST_OP_ATTENTION, MIST_PHASE_FORWARD);
    attention->operands[MIST_ARG_OUT] = block->att;
    attention->operands[MIST_ARG_ATTENTION_LSE] = block->lse;
    attention->operands[MIST_ARG_ATTENTION_QKV] = block->qkv;
    attention_cost(at, attention, 2, 1);
    linear_forward(at, program, &block->proj, block->y, block->att);
    tp_all_reduce(at, program, block->y, u);
    residual_norm_forward(at, program, "norm2", &block->norm2, block->x, block->y);
    linear_forward(at, program, &block->up, block->f1, block->norm2.out);
    struct mist_step *activation = activation_step(at, program, MIST_PHASE_FORWARD);
    activation->operands[MIST_ARG_OUT] = block->act;
    activation->operands[MIST_ARG_UNARY_X] = block->f1;
    linear_forward(at, program, &block->down, block->z, block->act);
    tp_all_reduce(at, program, block->z, u);
    struct mist_step *residual =
        step(at, program, "residual", MIST_OP_RESIDUAL, MIST_PHASE_FORWARD);
    residual->dims[0] = u;
    residual->operands[MIST_ARG_OUT] = block->out;
    residual->operands[MIST_ARG_RESIDUAL_A] = block->norm2.x;
    residual->operands[MIST_ARG_RESIDUAL_B] = block->z;
    residual->flop = u;
    residual->bytes = times(at, 12, u);
}

static void block_backward(struct builder *at, const struct block *block)
{
    struct mist_program *program = &at->layer->backward;
    mist_expr u = mul(at, at->rows, num(at, at->model->hidden));

    linear_backward(at, program, &block->down, block->d_act, block->d_out, block->act);
    struct mist_step *activation =
        activation_step(at, program, MIST_PHASE_BACKWARD_INPUT);
    activation->operands[MIST_ARG_DX] = block->d_f1;
    activation->operands[MIST_ARG_DY] = block->d_act;
    activation->operands[MIST_ARG_DUNARY_X] = block->f1;
    linear_backward(at, program, &block->up, block->d_n2, block->d_f1, block->norm2.out);
    tp_all_reduce(at, program, block->d_n2, u);
    norm_backward(at, program, "norm2", &block->norm2, block->d_r, block->d_n2,
                  block->d_out);
    linear_backward(at, program, &block->proj, block->d_att, block->d_r, block->att);
    struct mist_step *attention =
        head_step(at, program, "attention", MIST_OP_ATTENTION, MIST_PHASE_BACKWARD_INPUT);
    attention->operands[MIST_ARG_DX] = block->d_qkv;
    attention->operands[MIST_ARG_DY] = block->d_att;
    attention->operands[MIST_ARG_DATTENTION_QKV] = block->qkv;
    attention->operands[MIST_ARG_DATTENTION_OUT] = block->att;
    attention->operands[MIST_ARG_DATTENTION_LSE] = block->lse;
    attention_cost(at, attention, 5, 2);
    if (block->rope_table >= 0)
        rope(at, program, MIST_PHASE_BACKWARD_INPUT, block->d_qkv, block->rope_table);
    linear_backward(at, program, &block->to_qkv, block->d_n1, block->d_qkv,
                    block->norm1.out);
    tp_all_reduce(at, program, block->d_n1, u);
    norm_backward(at, program, "norm1", &block->norm1, block->d_x, block->d_n1,
                  block->d_r);
}

static void declare_block(struct builder *at)
{
    struct block block;

    block_params(at, &block);
    block_tensors(at, &block);
    block_forward(at, &block);
    block_backward(at, &block);
}

static void declare_head(struct builder *at)
{
    struct mist_layer_template *layer = at->layer;
    mist_expr h = num(at, at->model->hidden);
    mist_expr vocab = num(at, at->model->vocab);
    mist_expr u = mul(at, at->rows, h);
    mist_expr n_logits = mul(at, at->rows, vocab);
    struct norm norm;

    norm_params(at, &norm, "norm.weight", "norm.bias");
    struct linear head =
        linear_params(at, "head", "head.weight", NULL, MIST_INIT_NORMAL, h, vocab);
    norm.x = tensor(at, "x", MIST_TENSOR_INPUT, u);
    norm.out = tensor(at, "n", MIST_TENSOR_SCRATCH, u);
    norm.stats = tensor(at, "stats", MIST_TENSOR_SAVED, times(at, 2, at->rows));
    int8_t logits = tensor(at, "logits", MIST_TENSOR_SCRATCH, n_logits);
    int8_t losses = tensor(at, "losses", MIST_TENSOR_SAVED, at->rows);
    int8_t targets = tensor(at, "targets", MIST_TENSOR_TARGETS, at->rows);
    int8_t d_n = tensor(at, "d_n", MIST_TENSOR_SAVED, u);
    int8_t d_x = tensor(at, "d_x", MIST_TENSOR_GRAD_INPUT, u);

    norm_forward(at, &layer->forward, "norm", &norm);
    linear_forward(at, &layer->forward, &head, logits, norm.out);
    struct mist_step *loss =
        step(at, &layer->forward, "loss", MIST_OP_CROSS_ENTROPY, MIST_PHASE_FORWARD);
    loss->dims[0] = at->rows;
    loss->dims[1] = vocab;
    loss->operands[MIST_ARG_OUT] = logits;
    loss->operands[MIST_ARG_LOSS_LOSSES] = losses;
    loss->operands[MIST_ARG_LOSS_TARGETS] = targets;
    loss->flop = times(at, 20, n_logits);
    loss->bytes = times(at, 8, n_logits);
    linear_backward(at, &layer->forward, &head, d_n, logits, norm.out);
    norm_backward(at, &layer->backward, "norm", &norm, d_x, d_n, -1);
}

/* ----------------------------------------------------------------------------- public */

static enum mist_status check_supported(const struct mist_model *model,
                                        struct mist_err *err)
{
    if (model->family == MIST_FAMILY_FALCON)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model %s: Falcon's parallel block is not in the operator "
                            "catalogue yet; GPT and Llama are",
                            model->name);
    if (model->ties_embeddings)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model %s ties its embedding to its head, which is not in "
                            "the operator catalogue yet; set tie_word_embeddings to "
                            "false to train it untied",
                            model->name);
    return MIST_OK;
}

static void declare_all(struct mist_catalog *catalog)
{
    static void (*const declare[MIST_N_LAYER_KINDS])(struct builder *) = {
        declare_embedding, declare_block, declare_head};
    static const char *const names[MIST_N_SYMBOLS] = {"b", "s", "tp", "threads"};
    struct builder at = {.pool = catalog->pool, .model = &catalog->model};
    mist_expr *symbols = catalog->symbols;

    for (int i = 0; i < MIST_N_SYMBOLS; i++)
        symbols[i] = mist_expr_symbol(at.pool, names[i]);
    at.b = symbols[MIST_SYMBOL_MICRO_BATCH];
    at.s = symbols[MIST_SYMBOL_SEQ];
    at.tp = symbols[MIST_SYMBOL_TP];
    at.threads = symbols[MIST_SYMBOL_THREADS];
    at.rows = mul(&at, at.b, at.s);
    at.heads = mist_expr_div(at.pool, num(&at, at.model->n_heads), at.tp);
    at.kv_heads = mist_expr_div(at.pool, num(&at, at.model->n_kv_heads), at.tp);
    at.ffn = mist_expr_div(at.pool, num(&at, at.model->ffn), at.tp);
    for (int i = 0; i < MIST_N_LAYER_KINDS; i++) {
        at.layer = &catalog->layers[i];
        at.layer->kind = (enum mist_layer_kind)i;
        declare[i](&at);
    }
}

enum mist_status mist_catalog_new(const struct mist_model *model,
                                  struct mist_catalog **out, struct mist_err *err)
{
    enum mist_status status = check_supported(model, err);

    if (status != MIST_OK)
        return status;
    struct mist_catalog *catalog = calloc(1, sizeof *catalog);
    struct mist_expr_pool *pool = calloc(1, sizeof *pool);
    if (!catalog || !pool) {
        free(catalog);
        free(pool);
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    }
    catalog->model = *model;
    catalog->pool = pool;
    mist_expr_pool_init(pool);
    declare_all(catalog);
    status = mist_expr_pool_check(pool, err);
    if (status != MIST_OK) {
        mist_catalog_free(catalog);
        return status;
    }
    *out = catalog;
    return MIST_OK;
}

void mist_catalog_free(struct mist_catalog *catalog)
{
    if (!catalog)
        return;
    mist_expr_pool_fini(catalog->pool);
    free(catalog->pool);
    free(catalog);
}
