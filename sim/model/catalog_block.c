/*
 * Declares the transformer blocks. See catalog.h.
 *
 * In sequence (GPT, Llama): x -> norm -> qkv -> attention -> proj + x -> norm ->
 * feed-forward -> + . In parallel (Falcon, GPT-NeoX): x -> norm -> qkv -> attention ->
 * proj, and the same norm's output (or that of a second norm of x) -> feed-forward; x and
 * both are added up. Its feed-forward up to the activation comes before proj:
 * recomputation, which runs the leading steps that write what is saved, then needs no
 * proj.
 *
 * The product before a residual addition adds it; of tensor-parallel ranks, whose
 * products are summed, the first. Where sequence parallelism cuts the residual, but not
 * the product, it is added behind the sum, by the norm that follows where there is one.
 *
 * What a block keeps for its backward: the norms' outputs and statistics, qkv (where heads
 * have norms also q and k in front of these), attention output and its log-sum-exp, the middle residual, the feed-forward's input and output of
 * the activation. Softmax probabilities are recomputed inside the attention kernel (Dao
 * et al. 2022). Sequence parallelism keeps shards of the norms' outputs and gathers them
 * again for the weights' gradients.
 *
 * Of these a lean block (struct mist_stage_plan) keeps neither the norms' outputs nor the
 * activation's: a pass over memory makes them again from the norms' inputs and the
 * activation's, which the backward reads anyway (Andoorveedu et al., Tempo, NeurIPS
 * 2022). The same kernels on the same inputs give the same bits; but where a GPU's library
 * has a gelu of its own inside of the product before it, the last bit may differ.
 *
 * Context-parallel ranks (chunks.h) keep qkv of their tokens, and gather keys and
 * values again for the backward, beside the products in front of attention's. A program begins
 * with computation where some of it does not wait for what it communicates first.
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
    int8_t qk;             /* queries and keys in front of their norms */
    int8_t q_norm, k_norm; /* parameters; -1: there are none */
    int8_t stats_again;    /* of a norm that is made again: nobody reads them */
    /* keys and values, and their gradients: this rank's, all in the order of ranks and of the
     * sequence; -1 without context parallelism */
    int8_t kv, kv_ranks, kv_all, d_kv, d_kv_ranks, d_kv_all;
    int8_t y, z; /* what proj and down give, where it is no residual yet */
    int8_t d_out, d_x, d_act, d_f1, d_n2, d_r, d_att, d_qkv, d_n1;
    int8_t n1_w, n2_w, y_w, z_w, d_out_w, d_r_w, d_n1_w, d_n2_w;
    struct mist_norm norm1, norm2;
    struct mist_linear to_qkv, proj, up, down;
    int64_t heads, kv_heads, ffn; /* of a tensor-parallel rank */
};

static const struct mist_family_traits *traits_of(const struct mist_declaration *at)
{
    return mist_family_traits(at->model->family);
}

static bool has_swiglu(const struct mist_declaration *at)
{
    return traits_of(at)->has_gate;
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
        return mist_shape_cut(MIST_SPLIT_ROWS, f, at->model->hidden);
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
static void mark_shared_head(struct mist_declaration *at, int8_t id, int64_t row)
{
    if (at->variant == MIST_VARIANT_PLAIN || at->model->n_kv_heads > 1 || id < 0)
        return;
    struct mist_param *param = &at->layout->params[id];
    param->partial_elements = product(at, 2, at->model->head_dim, row);
    param->partial_first = param->n_elements - param->partial_elements;
}

/* One norm's weight for all heads, of which a rank sees its own. */
static int8_t head_norm_param(struct mist_declaration *at, const char *name)
{
    int64_t head_dim = at->model->head_dim;
    struct mist_param weight = {.name = name,
                                .init = MIST_INIT_ONES,
                                .is_norm = true,
                                .shape = mist_shape_cut(MIST_SPLIT_NONE, head_dim, 1),
                                .partial_elements =
                                    at->variant == MIST_VARIANT_PLAIN ? 0 : head_dim};

    return mist_declare_param(at, weight);
}

static void block_params(struct mist_declaration *at, struct block *block)
{
    const struct mist_model *model = at->model;
    int64_t n_heads = sum(at, block->heads, product(at, 2, block->kv_heads));
    bool has_bias = model->has_bias;
    bool has_qkv_bias = has_bias || traits_of(at)->has_qkv_bias;
    struct mist_param to_qkv = {.name = "qkv.weight", .shape = qkv_shape(model)};
    struct mist_param up = {.name = "up.weight", .shape = up_shape(at)};
    struct mist_param proj = {
        .name = "proj.weight",
        .init = MIST_INIT_NORMAL_RESIDUAL,
        .shape = mist_shape_cut(MIST_SPLIT_COLUMNS, model->hidden,
                                (int64_t)model->n_heads * model->head_dim)};
    struct mist_param down = {
        .name = "down.weight",
        .init = MIST_INIT_NORMAL_RESIDUAL,
        .shape = mist_shape_cut(MIST_SPLIT_COLUMNS, model->hidden, model->ffn)};

    mist_declare_norm_params(at, &block->norm1, "norm1.weight", "norm1.bias");
    block->to_qkv =
        mist_declare_linear(at, "qkv", to_qkv, has_qkv_bias ? "qkv.bias" : NULL,
                            at->hidden, product(at, n_heads, model->head_dim));
    block->q_norm = block->k_norm = -1;
    if (traits_of(at)->has_qk_norm) {
        block->q_norm = head_norm_param(at, "q_norm.weight");
        block->k_norm = head_norm_param(at, "k_norm.weight");
    }
    mark_shared_head(at, block->to_qkv.weight, at->hidden);
    mark_shared_head(at, block->to_qkv.bias, 1);
    block->proj =
        mist_declare_linear(at, "proj", proj, has_bias ? "proj.bias" : NULL,
                            product(at, block->heads, model->head_dim), at->hidden);
    if (has_two_norms(at))
        mist_declare_norm_params(at, &block->norm2, "norm2.weight", "norm2.bias");
    block->up = mist_declare_linear(at, "up", up, has_bias ? "up.bias" : NULL, at->hidden,
                                    product(at, has_swiglu(at) ? 2 : 1, block->ffn));
    block->down = mist_declare_linear(at, "down", down, has_bias ? "down.bias" : NULL,
                                      block->ffn, at->hidden);
}

/* ----------------------------------------------------------------------- common steps */

/* Scores in memory, of other frameworks: those of the softmax, in two bytes or (single
 * kernels) fp32, those of its dropout, and a mask. 0: there are none. */
static int64_t scores_bytes(struct mist_declaration *at, const struct block *block)
{
    static const int64_t bytes[MIST_N_ATTENTIONS] = {
        [MIST_ATTENTION_FUSED] = 2 + 2 + 1, [MIST_ATTENTION_UNFUSED] = 4 + 2 + 1};

    return product(at, bytes[at->layout->shape.attention], at->rows, block->heads, at->s);
}

/* They are kept for the backward, or there for each of the two steps alone. */
static bool keeps_scores(struct mist_declaration *at, const struct block *block)
{
    return !at->layout->shape.recomputes_attention && scores_bytes(at, block) > 0;
}

static enum mist_phase phase_of(const struct mist_declaration *at)
{
    return at->is_backward ? MIST_PHASE_BACKWARD_INPUT : MIST_PHASE_FORWARD;
}

/* On the heads of a rank's tokens. */
static struct mist_step *heads_step(struct mist_declaration *at,
                                    const struct block *block, const char *name,
                                    enum mist_op op)
{
    return mist_declare_step(at, name, op, phase_of(at), at->b, at->s / at->cp,
                             block->heads, block->kv_heads, at->model->head_dim);
}

/* With those of context-parallel ranks. */
static struct mist_step *part_step(struct mist_declaration *at, const struct block *block,
                                   const char *name, enum mist_op op,
                                   enum mist_phase phase)
{
    return mist_declare_step(at, name, op, phase, at->b, at->s, block->heads,
                             block->kv_heads, at->model->head_dim, at->cp);
}

static bool is_part(const struct mist_declaration *at)
{
    return at->cp > 1;
}

static struct mist_step *scores_step(struct mist_declaration *at,
                                     const struct block *block)
{
    struct mist_step *new =
        is_part(at)
            ? part_step(at, block, "attention", MIST_OP_ATTENTION_PART, phase_of(at))
            : heads_step(at, block, "attention", MIST_OP_ATTENTION);

    if (scores_bytes(at, block) > 0)
        new->workspace_bytes = keeps_scores(at, block) ? 0 : scores_bytes(at, block);
    return new;
}

static void rope(struct mist_declaration *at, const struct block *block, int8_t qkv)
{
    if (block->rope_table < 0)
        return;
    struct mist_step *new = heads_step(at, block, "rope", MIST_OP_ROPE);

    new->operands[MIST_ARG_OUT] = qkv;
    new->operands[MIST_ARG_ROPE_TABLE] = block->rope_table;
}

static void head_norm(struct mist_declaration *at, const struct block *block, int8_t qkv)
{
    if (block->q_norm < 0)
        return;
    struct mist_step *new = heads_step(at, block, "head_norm", MIST_OP_HEAD_NORM);

    new->operands[MIST_ARG_OUT] = qkv;
    new->operands[MIST_ARG_HEAD_NORM_X] = block->qk;
    new->params[0] = block->q_norm;
    new->params[1] = block->k_norm;
}

/* to = from, of keys and values. */
static void move_kv(struct mist_declaration *at, const struct block *block,
                    const char *name, enum mist_op op, enum mist_phase phase, int8_t to,
                    int8_t from)
{
    struct mist_step *new = part_step(at, block, name, op, phase);

    new->operands[MIST_ARG_OUT] = to;
    new->operands[MIST_ARG_KV_FROM] = from;
}

/* The keys and values of all ranks' tokens, from those in qkv. */
static void pack_kv(struct mist_declaration *at, const struct block *block)
{
    if (is_part(at))
        move_kv(at, block, "kv", MIST_OP_KV_PACK, MIST_PHASE_FORWARD, block->kv,
                block->qkv);
}

static void gather_kv(struct mist_declaration *at, const struct block *block)
{
    if (is_part(at))
        mist_declare_cp_gather(at, block->kv_ranks, block->kv);
}

/* When they are there. */
static void order_kv(struct mist_declaration *at, const struct block *block)
{
    if (is_part(at))
        move_kv(at, block, "kv_all", MIST_OP_KV_ORDER, MIST_PHASE_FORWARD, block->kv_all,
                block->kv_ranks);
}

static void attention_forward(struct mist_declaration *at, const struct block *block)
{
    mist_declare_linear_forward(at, &block->to_qkv, block->qkv, block->n1_w, -1);
    head_norm(at, block, block->qkv);
    rope(at, block, block->qkv);
    pack_kv(at, block);
    gather_kv(at, block);
    order_kv(at, block);
    struct mist_step *new = scores_step(at, block);
    new->operands[MIST_ARG_OUT] = block->att;
    new->operands[MIST_ARG_ATTENTION_LSE] = block->lse;
    new->operands[MIST_ARG_ATTENTION_QKV] = block->qkv;
    if (is_part(at))
        new->operands[MIST_ARG_PART_KV] = block->kv_all;
}

/* From the gradient of attention's output to those of queries, and of all keys and values,
 * which are summed over the ranks. */
static void part_backward(struct mist_declaration *at, const struct block *block)
{
    order_kv(at, block);
    struct mist_step *new = scores_step(at, block);
    new->operands[MIST_ARG_DX] = block->d_qkv;
    new->operands[MIST_ARG_DPART_DKV] = block->d_kv_all;
    new->operands[MIST_ARG_DPART_DY] = block->d_att;
    new->operands[MIST_ARG_DPART_QKV] = block->qkv;
    new->operands[MIST_ARG_DPART_KV] = block->kv_all;
    new->operands[MIST_ARG_DPART_OUT] = block->att;
    new->operands[MIST_ARG_DPART_LSE] = block->lse;
    move_kv(at, block, "d_kv_all", MIST_OP_KV_ORDER, MIST_PHASE_BACKWARD_INPUT,
            block->d_kv_ranks, block->d_kv_all);
    mist_declare_cp_reduce(at, block->d_kv, block->d_kv_ranks);
}

/* From the gradient of proj's output to that of the norm's, to which residual (-1: none) is
 * added; and that of proj's weight, beside what context-parallel ranks exchange. */
static void attention_backward(struct mist_declaration *at, const struct block *block,
                               int8_t d_proj, int8_t residual)
{
    mist_declare_linear_input(at, &block->proj, block->d_att, d_proj, -1);
    if (is_part(at)) {
        part_backward(at, block);
        mist_declare_linear_weight(at, &block->proj, d_proj, block->att);
        move_kv(at, block, "d_kv", MIST_OP_KV_PACK, MIST_PHASE_BACKWARD_INPUT,
                block->d_qkv, block->d_kv);
    } else {
        mist_declare_linear_weight(at, &block->proj, d_proj, block->att);
        struct mist_step *new = scores_step(at, block);
        new->operands[MIST_ARG_DX] = block->d_qkv;
        new->operands[MIST_ARG_DY] = block->d_att;
        new->operands[MIST_ARG_DATTENTION_QKV] = block->qkv;
        new->operands[MIST_ARG_DATTENTION_OUT] = block->att;
        new->operands[MIST_ARG_DATTENTION_LSE] = block->lse;
    }
    rope(at, block, block->d_qkv);
    head_norm(at, block, block->d_qkv);
    mist_declare_linear_input(at, &block->to_qkv, block->d_n1_w, block->d_qkv, residual);
}

static struct mist_step *swiglu_step(struct mist_declaration *at,
                                     const struct block *block)
{
    return mist_declare_step(at, "swiglu", MIST_OP_SWIGLU,
                             at->is_backward ? MIST_PHASE_BACKWARD_INPUT
                                             : MIST_PHASE_FORWARD,
                             at->rows, block->ffn);
}

/* The activation by itself. */
static void activation_forward(struct mist_declaration *at, const struct block *block)
{
    struct mist_step *new =
        has_swiglu(at) ? swiglu_step(at, block)
                       : mist_declare_step(at, "gelu", MIST_OP_GELU, MIST_PHASE_FORWARD,
                                           product(at, at->rows, block->ffn));

    new->operands[MIST_ARG_OUT] = block->act;
    new->operands[MIST_ARG_UNARY_X] = block->f1;
}

/* The feed-forward layer up to its activation. */
static void ffn_forward(struct mist_declaration *at, const struct block *block)
{
    if (!has_swiglu(at)) {
        mist_declare_linear_gelu_forward(at, &block->up, block->act, block->f1,
                                         block->n2_w);
        return;
    }
    mist_declare_linear_forward(at, &block->up, block->f1, block->n2_w, -1);
    activation_forward(at, block);
}

/* What a lean block does not keep. */
static void make_again(struct mist_declaration *at, const struct block *block)
{
    mist_declare_norm_again(at, "norm1", &block->norm1, block->stats_again);
    if (has_two_norms(at))
        mist_declare_norm_again(at, "norm2", &block->norm2, block->stats_again);
    activation_forward(at, block);
}

/* From the gradient of the block's output to that of the feed-forward's input. */
static void ffn_backward(struct mist_declaration *at, const struct block *block)
{
    if (has_swiglu(at))
        mist_declare_linear_input(at, &block->down, block->d_act, block->d_out_w, -1);
    else
        mist_declare_linear_gelu_input(at, &block->down, block->d_f1, block->d_out_w,
                                       block->f1);
    mist_declare_linear_weight(at, &block->down, block->d_out_w, block->act);
    if (has_swiglu(at)) {
        struct mist_step *swiglu = swiglu_step(at, block);
        swiglu->operands[MIST_ARG_DX] = block->d_f1;
        swiglu->operands[MIST_ARG_DY] = block->d_act;
        swiglu->operands[MIST_ARG_DUNARY_X] = block->f1;
    }
    mist_declare_linear_input(at, &block->up, block->d_n2_w, block->d_f1, -1);
}

/* ---------------------------------------------------------------------------- tensors */

/* [rows, width] */
static int8_t tensor(struct mist_declaration *at, const char *name,
                     enum mist_tensor_class tensor_class, int64_t width)
{
    return mist_declare_tensor(at, name, tensor_class, product(at, at->rows, width));
}

/* [shard_rows, hidden] */
static int8_t shard(struct mist_declaration *at, const char *name,
                    enum mist_tensor_class tensor_class)
{
    return mist_declare_tensor(at, name, tensor_class,
                               product(at, at->shard_rows, at->hidden));
}

/* Of what a backward that recomputes all but products and attention makes again: it is
 * there while that runs. */
static enum mist_tensor_class made_again(const struct mist_declaration *at)
{
    return at->layout->shape.keeps_products ? MIST_TENSOR_SCRATCH : MIST_TENSOR_SAVED;
}

/* Of seven products, queries, keys, values, proj, gate, up and down, the results of the
 * first, third, fifth and last stay whole, and what is summed over ranks; of four, qkv and
 * up. */
static void keep_products(struct mist_declaration *at, const struct block *block)
{
    if (!at->layout->shape.keeps_products)
        return;
    if (has_swiglu(at)) {
        int64_t n_heads = sum(at, block->heads, block->kv_heads);
        tensor(at, "q, v", MIST_TENSOR_SAVED, product(at, n_heads, at->model->head_dim));
        tensor(at, "gate", MIST_TENSOR_SAVED, block->ffn);
        tensor(at, "down", MIST_TENSOR_SAVED, at->hidden);
    }
    if (at->tp > 1) {
        shard(at, "proj, summed", MIST_TENSOR_SAVED);
        shard(at, "down, summed", MIST_TENSOR_SAVED);
    }
}

/* What single operators give each other: of a norm its input in fp32, which is kept instead
 * of that in two bytes, and what is multiplied with the weights; of a gate SiLU's result. */
static void keep_between(struct mist_declaration *at, const struct block *block)
{
    int64_t n_rows = at->shard_rows;

    if (!at->layout->shape.is_eager || !has_swiglu(at))
        return;
    mist_declare_tensor_4(at, "norms, fp32", made_again(at),
                          product(at, has_two_norms(at) ? 2 : 1, n_rows, at->hidden));
    tensor(at, "silu", made_again(at), block->ffn);
}

static void norm_tensors(struct mist_declaration *at, struct mist_norm *norm,
                         const char *out, const char *stats)
{
    norm->out = shard(at, out, made_again(at));
    norm->stats =
        mist_declare_tensor_4(at, stats, made_again(at), product(at, 2, at->shard_rows));
}

static void forward_tensors(struct mist_declaration *at, struct block *block,
                            bool is_parallel)
{
    block->x = shard(at, "x", MIST_TENSOR_INPUT);
    block->out = shard(at, "out", MIST_TENSOR_OUTPUT);
    block->norm1.x = block->x;
    norm_tensors(at, &block->norm1, "n1", "stats1");
    enum mist_tensor_class of_product =
        has_swiglu(at) ? made_again(at) : MIST_TENSOR_SAVED;
    block->qkv = tensor(at, "qkv", of_product, block->to_qkv.n_out);
    block->lse = mist_declare_tensor_4(at, "lse", MIST_TENSOR_SAVED,
                                       product(at, at->rows, block->heads));
    block->att = tensor(at, "att", MIST_TENSOR_SAVED, block->proj.n_in);
    if (block->q_norm >= 0)
        block->qk = tensor(
            at, "qk", made_again(at),
            product(at, sum(at, block->heads, block->kv_heads), at->model->head_dim));
    block->norm2.x = is_parallel ? block->x : shard(at, "r", made_again(at));
    if (has_two_norms(at))
        norm_tensors(at, &block->norm2, "n2", "stats2");
    else
        block->norm2.out = block->norm1.out;
    block->f1 = tensor(at, "f1", of_product, block->up.n_out);
    block->act = tensor(at, "act", made_again(at), block->ffn);
    keep_products(at, block);
    keep_between(at, block);
    if (keeps_scores(at, block))
        mist_declare_tensor_4(at, "scores", MIST_TENSOR_SAVED,
                              mist_divide_up(scores_bytes(at, block), 4));
    if (at->layout->shape.has_dropout) /* two masks of a byte */
        mist_declare_tensor_4(
            at, "masks", MIST_TENSOR_SAVED,
            mist_divide_up(product(at, 2, at->shard_rows, at->hidden), 4));
    if (is_parallel) /* not reduced by itself: whole */
        block->y = tensor(at, "y", MIST_TENSOR_SCRATCH, at->hidden);
    else if (adds_behind(at))
        block->y = shard(at, "y", MIST_TENSOR_SCRATCH);
    if (adds_behind(at))
        block->z = shard(at, "z", MIST_TENSOR_SCRATCH);
    block->stats_again = mist_declare_tensor_4(at, "stats_again", MIST_TENSOR_SCRATCH,
                                               product(at, 2, at->shard_rows));
}

static void backward_tensors(struct mist_declaration *at, struct block *block,
                             bool is_parallel)
{
    bool is_summed = is_parallel && !has_two_norms(at); /* d_n2 goes into d_n1 */

    block->d_out = shard(at, "d_out", MIST_TENSOR_GRAD_OUTPUT);
    block->d_x = shard(at, "d_x", MIST_TENSOR_GRAD_INPUT);
    /* gelu's backward is part of the product before it; swiglu's is a step of its own,
     * and twice as wide */
    block->d_act = -1;
    if (has_swiglu(at))
        block->d_act = tensor(at, "d_act", MIST_TENSOR_SCRATCH, block->ffn);
    block->d_f1 = tensor(at, "d_f1", MIST_TENSOR_SCRATCH, block->up.n_out);
    block->d_n2 = is_summed ? tensor(at, "d_n2", MIST_TENSOR_SCRATCH, at->hidden)
                            : shard(at, "d_n2", MIST_TENSOR_SCRATCH);
    if (!is_summed)
        block->d_r = shard(at, "d_r", MIST_TENSOR_SCRATCH);
    block->d_att = tensor(at, "d_att", MIST_TENSOR_SCRATCH, block->proj.n_in);
    block->d_qkv = tensor(at, "d_qkv", MIST_TENSOR_SCRATCH, block->to_qkv.n_out);
    block->d_n1 = shard(at, "d_n1", MIST_TENSOR_SCRATCH);
    block->rope_table = -1;
    if (!traits_of(at)->has_positions)
        block->rope_table =
            mist_declare_tensor_4(at, "rope", MIST_TENSOR_CONSTANT,
                                  product(at, at->s / at->cp, at->model->head_dim));
    block->d_n2_w =
        is_summed ? block->d_n2 : mist_declare_whole(at, "d_n2_whole", block->d_n2);
}

/* Keys and values, and their gradients. */
static void kv_tensors(struct mist_declaration *at, struct block *block)
{
    int64_t width = product(at, 2, block->kv_heads, at->model->head_dim);
    int8_t *const mine[] = {&block->kv, &block->d_kv};
    int8_t *const all[] = {&block->kv_ranks, &block->kv_all, &block->d_kv_ranks,
                           &block->d_kv_all};

    for (size_t i = 0; i < sizeof mine / sizeof *mine && is_part(at); i++)
        *mine[i] = tensor(at, "kv", MIST_TENSOR_SCRATCH, width);
    for (size_t i = 0; i < sizeof all / sizeof *all && is_part(at); i++)
        *all[i] =
            tensor(at, "kv of all", MIST_TENSOR_SCRATCH, product(at, at->cp, width));
}

static void block_tensors(struct mist_declaration *at, struct block *block)
{
    bool is_parallel = traits_of(at)->is_parallel;

    forward_tensors(at, block, is_parallel);
    backward_tensors(at, block, is_parallel);
    kv_tensors(at, block);
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
    if (adds_behind(at)) {
        mist_declare_linear_forward(at, &block->down, block->z_w, block->act,
                                    is_parallel ? block->y : -1);
        mist_declare_reduce(at, block->z, block->z_w);
        mist_declare_residual(at, block->out, block->norm2.x, block->z);
        return;
    }
    mist_declare_linear_forward(at, &block->down, block->out, block->act,
                                is_parallel ? block->y : block->norm2.x);
    mist_declare_reduce(at, block->out, block->out);
}

/* ------------------------------------------------------------------------ in sequence */

/* norm2 of the sum of proj and x. */
static void middle_forward(struct mist_declaration *at, const struct block *block)
{
    if (adds_behind(at)) {
        mist_declare_linear_forward(at, &block->proj, block->y_w, block->att, -1);
        mist_declare_reduce(at, block->y, block->y_w);
        mist_declare_residual_norm_forward(at, "norm2", &block->norm2, block->x,
                                           block->y);
        return;
    }
    mist_declare_linear_forward(at, &block->proj, block->norm2.x, block->att, block->x);
    mist_declare_reduce(at, block->norm2.x, block->norm2.x);
    mist_declare_norm_forward(at, "norm2", &block->norm2);
}

static void sequential_forward(struct mist_declaration *at, const struct block *block)
{
    mist_declare_norm_forward(at, "norm1", &block->norm1);
    mist_declare_gather(at, block->n1_w, block->norm1.out);
    attention_forward(at, block);
    middle_forward(at, block);
    mist_declare_gather(at, block->n2_w, block->norm2.out);
    ffn_forward(at, block);
    end_forward(at, block, false);
}

static void sequential_backward(struct mist_declaration *at, const struct block *block)
{
    pack_kv(at, block);
    mist_declare_gather(at, block->d_out_w, block->d_out);
    mist_declare_gather(at, block->n2_w, block->norm2.out);
    gather_kv(at, block);
    ffn_backward(at, block);
    mist_declare_reduce(at, block->d_n2, block->d_n2_w);
    mist_declare_linear_weight(at, &block->up, block->d_f1, block->n2_w);
    mist_declare_norm_backward(at, "norm2", &block->norm2, block->d_r, block->d_n2,
                               block->d_out);
    mist_declare_gather(at, block->d_r_w, block->d_r);
    mist_declare_gather(at, block->n1_w, block->norm1.out);
    attention_backward(at, block, block->d_r_w, -1);
    mist_declare_reduce(at, block->d_n1, block->d_n1_w);
    mist_declare_linear_weight(at, &block->to_qkv, block->d_qkv, block->n1_w);
    mist_declare_norm_backward(at, "norm1", &block->norm1, block->d_x, block->d_n1,
                               block->d_r);
}

/* ------------------------------------------------------------------------ in parallel */

static void parallel_forward(struct mist_declaration *at, const struct block *block)
{
    mist_declare_norm_forward(at, "norm1", &block->norm1);
    mist_declare_gather(at, block->n1_w, block->norm1.out);
    if (has_two_norms(at)) {
        mist_declare_norm_forward(at, "norm2", &block->norm2);
        mist_declare_gather(at, block->n2_w, block->norm2.out);
    }
    attention_forward(at, block);
    ffn_forward(at, block);
    mist_declare_linear_forward(at, &block->proj, block->y, block->att,
                                adds_behind(at) ? -1 : block->x);
    end_forward(at, block, true);
}

static void parallel_backward(struct mist_declaration *at, const struct block *block)
{
    bool is_double = has_two_norms(at);

    pack_kv(at, block);
    mist_declare_gather(at, block->d_out_w, block->d_out);
    mist_declare_gather(at, block->n2_w, block->norm2.out);
    gather_kv(at, block);
    ffn_backward(at, block);
    if (is_double) {
        mist_declare_reduce(at, block->d_n2, block->d_n2_w);
        mist_declare_gather(at, block->n1_w, block->norm1.out);
    }
    mist_declare_linear_weight(at, &block->up, block->d_f1, block->n2_w);
    attention_backward(at, block, block->d_out_w, is_double ? -1 : block->d_n2_w);
    mist_declare_reduce(at, block->d_n1, block->d_n1_w);
    mist_declare_linear_weight(at, &block->to_qkv, block->d_qkv, block->n1_w);
    if (is_double) /* each norm has its gradient; they meet in d_x through d_r */
        mist_declare_norm_backward(at, "norm2", &block->norm2, block->d_r, block->d_n2,
                                   block->d_out);
    mist_declare_norm_backward(at, "norm1", &block->norm1, block->d_x, block->d_n1,
                               is_double ? block->d_r : block->d_out);
}

/* Whole heads and feed-forward columns; a single key-value head is everyone's. */
void mist_declare_block(struct mist_declaration *at)
{
    const struct mist_model *model = at->model;
    bool is_parallel = traits_of(at)->is_parallel;
    struct block block = {
        .heads = mist_declare_share(at, model->n_heads),
        .kv_heads = model->n_kv_heads > 1 ? mist_declare_share(at, model->n_kv_heads) : 1,
        .ffn = mist_declare_share(at, model->ffn),
    };

    block_params(at, &block);
    block_tensors(at, &block);
    if (is_parallel)
        parallel_forward(at, &block);
    else
        sequential_forward(at, &block);
    at->is_remake = true;
    make_again(at, &block);
    at->is_backward = true;
    if (is_parallel)
        parallel_backward(at, &block);
    else
        sequential_backward(at, &block);
}
