/*
 * Declares the transformer blocks. See catalog.h.
 *
 * GPT, Llama: x -> norm -> qkv -> attention -> proj + x -> norm -> feed-forward -> + .
 * Falcon, in parallel: x -> norm -> qkv -> attention -> proj, and the same norm's output
 * (or that of a second norm of x) -> feed-forward; x and both are added up. Falcon's
 * feed-forward up to its activation comes before proj: recomputation, which runs the
 * leading steps that write what is saved, then needs no proj.
 *
 * The product before a residual addition adds it; of tensor-parallel ranks, whose
 * products are summed, the first. Where sequence parallelism cuts the residual, but not
 * the product, it is added behind the sum, by the norm that follows where there is one.
 *
 * What a block keeps for its backward: the norms' outputs and statistics, qkv, attention
 * output and its log-sum-exp, the middle residual, the feed-forward's input and output of
 * the activation. Softmax probabilities are recomputed inside the attention kernel (Dao
 * et al. 2022). Sequence parallelism keeps shards of the norms' outputs and gathers them
 * again for the weights' gradients.
 *
 * Order in the backward: a linear layer's input gradient, the communication of it, then
 * the weight gradient, which runs beside. Gathers that only weight gradients need follow
 * the gather before them at once.
 */
#include "sim/model/catalog_internal.h"

/*
 * Tensors and parameters of a block. *_w is the whole of what sequence parallelism cuts.
 */
struct block {
    int8_t x, out, qkv, lse, att, f1, act, rope_table;
    int8_t y, z; /* what proj and down give, where it is no residual yet */
    int8_t d_out, d_x, d_act, d_f1, d_n2, d_r, d_att, d_qkv, d_n1;
    int8_t n1_w, n2_w, y_w, z_w, d_out_w, d_r_w, d_n1_w, d_n2_w;
    struct mist_norm norm1, norm2;
    struct mist_linear to_qkv, proj, up, down;
};

static bool has_rope(const struct mist_declaration *at)
{
    return at->model->family != MIST_FAMILY_GPT;
}

static bool has_swiglu(const struct mist_declaration *at)
{
    return at->model->family == MIST_FAMILY_LLAMA;
}

static bool has_two_norms(const struct mist_declaration *at)
{
    return mist_model_n_block_norms(at->model) == 2;
}

/* Residuals are added behind products that are summed over the ranks, not by them. */
static bool adds_behind(const struct mist_declaration *at)
{
    return at->variant == MIST_VARIANT_SEQUENCE;
}

/* ------------------------------------------------------------------------- parameters */

/* q rows, then those of k and v; a head stays together. */
static struct mist_param_shape qkv_shape(const struct mist_model *model)
{
    int64_t q = (int64_t)model->n_heads * model->head_dim;
    int64_t kv = (int64_t)model->n_kv_heads * model->head_dim;

    return (struct mist_param_shape){
        .rows = q + 2 * kv,
        .columns = model->hidden,
        .split = MIST_SPLIT_ROWS,
        .n_sections = 3,
        .section_rows = {q, kv, kv},
        .section_unit = {model->head_dim, model->head_dim, model->head_dim},
    };
}

static struct mist_param_shape up_shape(const struct mist_declaration *at)
{
    int64_t f = at->model->ffn;

    if (!has_swiglu(at))
        return mist_shape_cut_rows(f, at->model->hidden);
    return (struct mist_param_shape){
        .rows = 2 * f, /* gate, up */
        .columns = at->model->hidden,
        .split = MIST_SPLIT_ROWS,
        .n_sections = 2,
        .section_rows = {f, f},
        .section_unit = {1, 1},
    };
}

/* A single key-value head is on all ranks, each of which sees its own query heads: the
 * gradients of the last rows, k and v, are parts of a sum. */
static void mark_shared_head(struct mist_declaration *at, int8_t id, mist_expr row)
{
    if (at->variant == MIST_VARIANT_PLAIN || at->model->n_kv_heads > 1 || id < 0)
        return;
    struct mist_param *param = &at->layer->params[id];
    param->partial_elements = mul(at, num(at, 2.0 * at->model->head_dim), row);
    param->partial_first =
        mist_expr_sub(at->pool, param->n_elements, param->partial_elements);
}

static void block_params(struct mist_declaration *at, struct block *block)
{
    const struct mist_model *model = at->model;
    int64_t hidden = model->hidden, q = (int64_t)model->n_heads * model->head_dim;
    mist_expr head_dim = num(at, model->head_dim);
    mist_expr n_q = mul(at, at->heads, head_dim);
    mist_expr n_qkv = mul(at, add(at, at->heads, times(at, 2, at->kv_heads)), head_dim);
    mist_expr n_up = has_swiglu(at) ? times(at, 2, at->ffn) : at->ffn;
    bool has_bias = model->has_bias;

    mist_declare_norm_params(at, &block->norm1, "norm1.weight", "norm1.bias");
    block->to_qkv =
        mist_declare_linear(at, "qkv", "qkv.weight", has_bias ? "qkv.bias" : NULL,
                            MIST_INIT_NORMAL, qkv_shape(model), at->hidden, n_qkv);
    mark_shared_head(at, block->to_qkv.weight, at->hidden);
    mark_shared_head(at, block->to_qkv.bias, num(at, 1));
    block->proj = mist_declare_linear(
        at, "proj", "proj.weight", has_bias ? "proj.bias" : NULL,
        MIST_INIT_NORMAL_RESIDUAL, mist_shape_cut_columns(hidden, q), n_q, at->hidden);
    if (has_two_norms(at))
        mist_declare_norm_params(at, &block->norm2, "norm2.weight", "norm2.bias");
    block->up = mist_declare_linear(at, "up", "up.weight", has_bias ? "up.bias" : NULL,
                                    MIST_INIT_NORMAL, up_shape(at), at->hidden, n_up);
    block->down = mist_declare_linear(
        at, "down", "down.weight", has_bias ? "down.bias" : NULL,
        MIST_INIT_NORMAL_RESIDUAL, mist_shape_cut_columns(hidden, model->ffn), at->ffn,
        at->hidden);
}

/* ----------------------------------------------------------------------- common steps */

static struct mist_step *head_step(struct mist_declaration *at,
                                   struct mist_program *program, const char *name,
                                   enum mist_op op, enum mist_phase phase)
{
    struct mist_step *new = mist_declare_step(at, program, name, op, phase);

    new->dims[0] = at->b;
    new->dims[1] = at->s;
    new->dims[2] = at->heads;
    new->dims[3] = at->kv_heads;
    new->dims[4] = num(at, at->model->head_dim);
    return new;
}

/* Elements of the packed projections of all tokens. */
static mist_expr qkv_elements(struct mist_declaration *at)
{
    mist_expr n_heads = add(at, at->heads, times(at, 2, at->kv_heads));

    return mul3(at, at->rows, n_heads, num(at, at->model->head_dim));
}

static mist_expr attention_elements(struct mist_declaration *at)
{
    return mul3(at, at->rows, at->heads, num(at, at->model->head_dim));
}

/*
 * dS in bf16, with grouped queries dk and dv of every query head as well: in so many
 * equal chunks that one is small enough, but not in less than a group of heads.
 */
static mist_expr gpu_attention_chunk_bytes(struct mist_declaration *at, mist_expr grouped)
{
    double most = MIST_CATALOG_ATTENTION_BYTES;
    mist_expr head = mul(at, at->s, add(at, times(at, 2, at->s), grouped));
    mist_expr whole = mul3(at, at->b, at->heads, head);
    mist_expr n_chunks =
        mist_expr_ceil(at->pool, mist_expr_div(at->pool, whole, num(at, most)));
    mist_expr chunk = mist_expr_ceil(at->pool, mist_expr_div(at->pool, whole, n_chunks));
    mist_expr group = mul(at, head, mist_expr_div(at->pool, at->heads, at->kv_heads));
    mist_expr least =
        mist_expr_select_le(at->pool, group, num(at, 4 * most), group, num(at, 0));

    return mist_expr_max(at->pool, chunk, least);
}

/*
 * What attention's backward needs on a GPU (exec/cuda/attention_cudnn.h): the sums of
 * d_out * out by row in fp32, and in bf16 the larger of what cuDNN's two forms want: dq
 * in fp32, and with grouped queries dk and dv of every query head; or chunks of dS.
 */
static mist_expr gpu_attention_backward_bytes(struct mist_declaration *at)
{
    double d = at->model->head_dim;
    mist_expr n_rows = mul(at, at->rows, at->heads);
    mist_expr is_grouped = mist_expr_min(at->pool, num(at, 1),
                                         add(at, at->heads, times(at, -1, at->kv_heads)));
    mist_expr grouped = times(at, 4 * d, is_grouped);
    mist_expr fast = mul(at, n_rows, add(at, num(at, 4 * d), grouped));
    mist_expr chunk = gpu_attention_chunk_bytes(at, grouped);

    return add(at, times(at, 4, n_rows),
               mist_declare_if_bf16(at, mist_expr_max(at->pool, fast, chunk)));
}

/* And in bf16 what cuDNN's plans want in both directions. */
static mist_expr gpu_attention_bytes(struct mist_declaration *at, bool is_backward)
{
    mist_expr bytes = mist_declare_if_bf16(at, num(at, 256));

    if (is_backward)
        bytes = add(at, bytes, gpu_attention_backward_bytes(at));
    return mist_declare_if_gpu(at, bytes);
}

/* n_matmuls products of [s, s] x [s, head_dim] per head, causal: half of each. */
static void attention_cost(struct mist_declaration *at, struct mist_step *new,
                           double n_matmuls, double n_passes)
{
    mist_expr block = mist_expr_min(at->pool, at->s, num(at, MIST_CATALOG_QUERY_BLOCK));

    new->flop = times(at, n_matmuls, mul(at, attention_elements(at), at->s));
    new->bytes =
        bytes_of(at, n_passes, add(at, qkv_elements(at), attention_elements(at)));
    /* in bf16 each thread has a head's tensors in fp32, too */
    mist_expr head = mul3(at, at->threads, at->s, num(at, at->model->head_dim));
    mist_expr blocks =
        times(at, 4 * n_passes, mul(at, at->threads, mul(at, block, at->s)));
    mist_expr heads_fp32 =
        mist_declare_if_bf16(at, times(at, n_passes == 1 ? 4.0 * 4 : 4.0 * 10, head));
    new->workspace_bytes = add(at, add(at, blocks, heads_fp32),
                               gpu_attention_bytes(at, new->phase != MIST_PHASE_FORWARD));
}

static void rope(struct mist_declaration *at, struct mist_program *program,
                 enum mist_phase phase, int8_t qkv, int8_t table)
{
    if (table < 0)
        return;
    struct mist_step *new = head_step(at, program, "rope", MIST_OP_ROPE, phase);
    mist_expr turned = mul3(at, at->rows, add(at, at->heads, at->kv_heads),
                            num(at, at->model->head_dim));

    new->operands[MIST_ARG_OUT] = qkv;
    new->operands[MIST_ARG_ROPE_TABLE] = table;
    new->flop = times(at, 3, turned);
    new->bytes = bytes_of(at, 2, turned);
}

static void attention_forward(struct mist_declaration *at, const struct block *block)
{
    struct mist_program *program = &at->layer->forward;

    mist_declare_linear_forward(at, program, &block->to_qkv, block->qkv, block->n1_w, -1);
    rope(at, program, MIST_PHASE_FORWARD, block->qkv, block->rope_table);
    struct mist_step *attention =
        head_step(at, program, "attention", MIST_OP_ATTENTION, MIST_PHASE_FORWARD);
    attention->operands[MIST_ARG_OUT] = block->att;
    attention->operands[MIST_ARG_ATTENTION_LSE] = block->lse;
    attention->operands[MIST_ARG_ATTENTION_QKV] = block->qkv;
    attention_cost(at, attention, 2, 1);
}

/* From the gradient of attention's output to that of the norm's, to which residual (-1:
 * none) is added. */
static void attention_backward(struct mist_declaration *at, const struct block *block,
                               int8_t residual)
{
    struct mist_program *program = &at->layer->backward;
    struct mist_step *attention =
        head_step(at, program, "attention", MIST_OP_ATTENTION, MIST_PHASE_BACKWARD_INPUT);

    attention->operands[MIST_ARG_DX] = block->d_qkv;
    attention->operands[MIST_ARG_DY] = block->d_att;
    attention->operands[MIST_ARG_DATTENTION_QKV] = block->qkv;
    attention->operands[MIST_ARG_DATTENTION_OUT] = block->att;
    attention->operands[MIST_ARG_DATTENTION_LSE] = block->lse;
    attention_cost(at, attention, 5, 2);
    rope(at, program, MIST_PHASE_BACKWARD_INPUT, block->d_qkv, block->rope_table);
    mist_declare_linear_input(at, program, &block->to_qkv, block->d_n1_w, block->d_qkv,
                              residual);
}

static struct mist_step *swiglu_step(struct mist_declaration *at,
                                     struct mist_program *program, enum mist_phase phase)
{
    bool is_forward = phase == MIST_PHASE_FORWARD;
    mist_expr elements = mul(at, at->rows, at->ffn);
    struct mist_step *new =
        mist_declare_step(at, program, "swiglu", MIST_OP_SWIGLU, phase);

    new->dims[0] = at->rows;
    new->dims[1] = at->ffn;
    new->flop = times(at, is_forward ? 12 : 18, elements);
    new->bytes = bytes_of(at, is_forward ? 3 : 5, elements);
    return new;
}

/* The feed-forward layer up to its activation. */
static void ffn_forward(struct mist_declaration *at, const struct block *block)
{
    struct mist_program *program = &at->layer->forward;

    if (!has_swiglu(at)) {
        mist_declare_linear_gelu_forward(at, program, &block->up, block->act, block->f1,
                                         block->n2_w);
        return;
    }
    mist_declare_linear_forward(at, program, &block->up, block->f1, block->n2_w, -1);
    struct mist_step *swiglu = swiglu_step(at, program, MIST_PHASE_FORWARD);
    swiglu->operands[MIST_ARG_OUT] = block->act;
    swiglu->operands[MIST_ARG_UNARY_X] = block->f1;
}

/* From the gradient of the block's output to that of the feed-forward's input. */
static void ffn_backward(struct mist_declaration *at, const struct block *block)
{
    struct mist_program *program = &at->layer->backward;

    if (has_swiglu(at))
        mist_declare_linear_input(at, program, &block->down, block->d_act, block->d_out_w,
                                  -1);
    else
        mist_declare_linear_gelu_input(at, program, &block->down, block->d_f1,
                                       block->d_out_w, block->f1);
    mist_declare_linear_weight(at, program, &block->down, block->d_out_w, block->act);
    if (has_swiglu(at)) {
        struct mist_step *swiglu = swiglu_step(at, program, MIST_PHASE_BACKWARD_INPUT);
        swiglu->operands[MIST_ARG_DX] = block->d_f1;
        swiglu->operands[MIST_ARG_DY] = block->d_act;
        swiglu->operands[MIST_ARG_DUNARY_X] = block->f1;
    }
    mist_declare_linear_input(at, program, &block->up, block->d_n2_w, block->d_f1, -1);
}

/* ---------------------------------------------------------------------------- tensors */

static void norm_tensors(struct mist_declaration *at, struct mist_norm *norm,
                         const char *out, const char *stats)
{
    norm->out = mist_declare_tensor(at, out, MIST_TENSOR_SAVED,
                                    mul(at, at->shard_rows, at->hidden));
    norm->stats =
        mist_declare_tensor_4(at, stats, MIST_TENSOR_SAVED, times(at, 2, at->shard_rows));
}

static void forward_tensors(struct mist_declaration *at, struct block *block,
                            bool is_parallel)
{
    mist_expr u = mul(at, at->shard_rows, at->hidden);
    mist_expr act = mul(at, at->rows, at->ffn);

    block->x = mist_declare_tensor(at, "x", MIST_TENSOR_INPUT, u);
    block->out = mist_declare_tensor(at, "out", MIST_TENSOR_OUTPUT, u);
    block->norm1.x = block->x;
    norm_tensors(at, &block->norm1, "n1", "stats1");
    block->qkv = mist_declare_tensor(at, "qkv", MIST_TENSOR_SAVED, qkv_elements(at));
    block->lse =
        mist_declare_tensor_4(at, "lse", MIST_TENSOR_SAVED, mul(at, at->rows, at->heads));
    block->att =
        mist_declare_tensor(at, "att", MIST_TENSOR_SAVED, attention_elements(at));
    block->norm2.x =
        is_parallel ? block->x : mist_declare_tensor(at, "r", MIST_TENSOR_SAVED, u);
    if (has_two_norms(at))
        norm_tensors(at, &block->norm2, "n2", "stats2");
    else
        block->norm2.out = block->norm1.out;
    block->f1 = mist_declare_tensor(at, "f1", MIST_TENSOR_SAVED,
                                    has_swiglu(at) ? times(at, 2, act) : act);
    block->act = mist_declare_tensor(at, "act", MIST_TENSOR_SAVED, act);
    if (is_parallel || adds_behind(at)) /* in parallel not reduced by itself: whole */
        block->y = mist_declare_tensor(at, "y", MIST_TENSOR_SCRATCH,
                                       is_parallel ? mul(at, at->rows, at->hidden) : u);
    if (adds_behind(at))
        block->z = mist_declare_tensor(at, "z", MIST_TENSOR_SCRATCH, u);
}

static void backward_tensors(struct mist_declaration *at, struct block *block,
                             bool is_parallel)
{
    mist_expr u = mul(at, at->shard_rows, at->hidden);
    mist_expr act = mul(at, at->rows, at->ffn);
    bool is_summed = is_parallel && !has_two_norms(at); /* d_n2 goes into d_n1 */

    block->d_out = mist_declare_tensor(at, "d_out", MIST_TENSOR_GRAD_OUTPUT, u);
    block->d_x = mist_declare_tensor(at, "d_x", MIST_TENSOR_GRAD_INPUT, u);
    /* gelu's backward is part of the product before it; swiglu's is a step of its own,
     * and twice as wide */
    block->d_act = -1;
    if (has_swiglu(at))
        block->d_act = mist_declare_tensor(at, "d_act", MIST_TENSOR_SCRATCH, act);
    block->d_f1 = mist_declare_tensor(at, "d_f1", MIST_TENSOR_SCRATCH,
                                      has_swiglu(at) ? times(at, 2, act) : act);
    block->d_n2 = mist_declare_tensor(at, "d_n2", MIST_TENSOR_SCRATCH,
                                      is_summed ? mul(at, at->rows, at->hidden) : u);
    if (!is_summed)
        block->d_r = mist_declare_tensor(at, "d_r", MIST_TENSOR_SCRATCH, u);
    block->d_att =
        mist_declare_tensor(at, "d_att", MIST_TENSOR_SCRATCH, attention_elements(at));
    block->d_qkv =
        mist_declare_tensor(at, "d_qkv", MIST_TENSOR_SCRATCH, qkv_elements(at));
    block->d_n1 = mist_declare_tensor(at, "d_n1", MIST_TENSOR_SCRATCH, u);
    block->rope_table = -1;
    if (has_rope(at))
        block->rope_table =
            mist_declare_tensor_4(at, "rope", MIST_TENSOR_CONSTANT,
                                  mul(at, at->s, num(at, at->model->head_dim)));
    block->d_n2_w =
        is_summed ? block->d_n2 : mist_declare_whole(at, "d_n2_whole", block->d_n2);
}

static void block_tensors(struct mist_declaration *at, struct block *block)
{
    bool is_parallel = at->model->family == MIST_FAMILY_FALCON;

    forward_tensors(at, block, is_parallel);
    backward_tensors(at, block, is_parallel);
    block->n1_w = mist_declare_whole(at, "n1_whole", block->norm1.out);
    block->n2_w = block->n1_w;
    if (has_two_norms(at))
        block->n2_w = mist_declare_whole(at, "n2_whole", block->norm2.out);
    if (adds_behind(at) && !is_parallel)
        block->y_w = mist_declare_whole(at, "y_whole", block->y);
    if (adds_behind(at))
        block->z_w = mist_declare_whole(at, "z_whole", block->z);
    block->d_out_w = mist_declare_whole(at, "d_out_whole", block->d_out);
    if (!is_parallel)
        block->d_r_w = mist_declare_whole(at, "d_r_whole", block->d_r);
    block->d_n1_w = mist_declare_whole(at, "d_n1_whole", block->d_n1);
}

/* out = residual + the products: down's, and in a parallel block proj's, which is
 * in y. */
static void end_forward(struct mist_declaration *at, const struct block *block,
                        bool is_parallel)
{
    struct mist_program *program = &at->layer->forward;

    if (adds_behind(at)) {
        mist_declare_linear_forward(at, program, &block->down, block->z_w, block->act,
                                    is_parallel ? block->y : -1);
        mist_declare_reduce(at, program, block->z, block->z_w);
        mist_declare_residual(at, program, at->shard_rows, block->out, block->norm2.x,
                              block->z);
        return;
    }
    mist_declare_linear_forward(at, program, &block->down, block->out, block->act,
                                is_parallel ? block->y : block->norm2.x);
    mist_declare_reduce(at, program, block->out, block->out);
}

/* ------------------------------------------------------------------------- GPT, Llama */

/* norm2 of the sum of proj and x. */
static void middle_forward(struct mist_declaration *at, const struct block *block)
{
    struct mist_program *program = &at->layer->forward;

    if (adds_behind(at)) {
        mist_declare_linear_forward(at, program, &block->proj, block->y_w, block->att,
                                    -1);
        mist_declare_reduce(at, program, block->y, block->y_w);
        mist_declare_residual_norm_forward(at, program, "norm2", &block->norm2, block->x,
                                           block->y);
        return;
    }
    mist_declare_linear_forward(at, program, &block->proj, block->norm2.x, block->att,
                                block->x);
    mist_declare_reduce(at, program, block->norm2.x, block->norm2.x);
    mist_declare_norm_forward(at, program, "norm2", &block->norm2);
}

static void sequential_forward(struct mist_declaration *at, const struct block *block)
{
    struct mist_program *program = &at->layer->forward;

    mist_declare_norm_forward(at, program, "norm1", &block->norm1);
    mist_declare_gather(at, program, block->n1_w, block->norm1.out);
    attention_forward(at, block);
    middle_forward(at, block);
    mist_declare_gather(at, program, block->n2_w, block->norm2.out);
    ffn_forward(at, block);
    end_forward(at, block, false);
}

static void sequential_backward(struct mist_declaration *at, const struct block *block)
{
    struct mist_program *program = &at->layer->backward;

    mist_declare_gather(at, program, block->d_out_w, block->d_out);
    mist_declare_gather(at, program, block->n2_w, block->norm2.out);
    ffn_backward(at, block);
    mist_declare_reduce(at, program, block->d_n2, block->d_n2_w);
    mist_declare_linear_weight(at, program, &block->up, block->d_f1, block->n2_w);
    mist_declare_norm_backward(at, program, "norm2", &block->norm2, block->d_r,
                               block->d_n2, block->d_out);
    mist_declare_gather(at, program, block->d_r_w, block->d_r);
    mist_declare_gather(at, program, block->n1_w, block->norm1.out);
    mist_declare_linear_input(at, program, &block->proj, block->d_att, block->d_r_w, -1);
    mist_declare_linear_weight(at, program, &block->proj, block->d_r_w, block->att);
    attention_backward(at, block, -1);
    mist_declare_reduce(at, program, block->d_n1, block->d_n1_w);
    mist_declare_linear_weight(at, program, &block->to_qkv, block->d_qkv, block->n1_w);
    mist_declare_norm_backward(at, program, "norm1", &block->norm1, block->d_x,
                               block->d_n1, block->d_r);
}

/* ----------------------------------------------------------------------------- Falcon */

static void parallel_forward(struct mist_declaration *at, const struct block *block)
{
    struct mist_program *program = &at->layer->forward;

    mist_declare_norm_forward(at, program, "norm1", &block->norm1);
    mist_declare_gather(at, program, block->n1_w, block->norm1.out);
    if (has_two_norms(at)) {
        mist_declare_norm_forward(at, program, "norm2", &block->norm2);
        mist_declare_gather(at, program, block->n2_w, block->norm2.out);
    }
    attention_forward(at, block);
    ffn_forward(at, block);
    mist_declare_linear_forward(at, program, &block->proj, block->y, block->att,
                                adds_behind(at) ? -1 : block->x);
    end_forward(at, block, true);
}

/* Two norms: each has its gradient; they meet in d_x through d_r. */
static void two_norms_backward(struct mist_declaration *at, const struct block *block)
{
    struct mist_program *program = &at->layer->backward;

    mist_declare_reduce(at, program, block->d_n1, block->d_n1_w);
    mist_declare_linear_weight(at, program, &block->to_qkv, block->d_qkv, block->n1_w);
    mist_declare_norm_backward(at, program, "norm2", &block->norm2, block->d_r,
                               block->d_n2, block->d_out);
    mist_declare_norm_backward(at, program, "norm1", &block->norm1, block->d_x,
                               block->d_n1, block->d_r);
}

static void parallel_backward(struct mist_declaration *at, const struct block *block)
{
    struct mist_program *program = &at->layer->backward;
    bool is_double = has_two_norms(at);

    mist_declare_gather(at, program, block->d_out_w, block->d_out);
    mist_declare_gather(at, program, block->n2_w, block->norm2.out);
    ffn_backward(at, block);
    if (is_double) {
        mist_declare_reduce(at, program, block->d_n2, block->d_n2_w);
        mist_declare_gather(at, program, block->n1_w, block->norm1.out);
    }
    mist_declare_linear_weight(at, program, &block->up, block->d_f1, block->n2_w);
    mist_declare_linear_input(at, program, &block->proj, block->d_att, block->d_out_w,
                              -1);
    mist_declare_linear_weight(at, program, &block->proj, block->d_out_w, block->att);
    attention_backward(at, block, is_double ? -1 : block->d_n2_w);
    if (is_double) {
        two_norms_backward(at, block);
        return;
    }
    mist_declare_reduce(at, program, block->d_n1, block->d_n1_w);
    mist_declare_linear_weight(at, program, &block->to_qkv, block->d_qkv, block->n1_w);
    mist_declare_norm_backward(at, program, "norm1", &block->norm1, block->d_x,
                               block->d_n1, block->d_out);
}

void mist_declare_block(struct mist_declaration *at)
{
    struct block block = {0};

    block_params(at, &block);
    block_tensors(at, &block);
    if (at->model->family == MIST_FAMILY_FALCON) {
        parallel_forward(at, &block);
        parallel_backward(at, &block);
    } else {
        sequential_forward(at, &block);
        sequential_backward(at, &block);
    }
}
