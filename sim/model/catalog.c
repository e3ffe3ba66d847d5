/*
 * The kinds of modules; declares the embedding and the head. Blocks are in
 * catalog_block.c. See catalog.h.
 *
 * The head computes its loss and everything up to the gradient of its norm's output in
 * the forward program, so that logits never live from forward to backward. On a rank of
 * its own a single step does that, some rows at a time, so that there are never more than
 * the logits of those. Over tensor-parallel ranks embedding and head are cut by the
 * vocabulary: every rank looks up the tokens it has and the results are summed; every
 * rank has the logits of its slice, and the loss needs of the others three numbers per
 * row: maximum, sum of exponentials, target's logit. Left out: dropout.
 */
#include "sim/model/catalog_internal.h"

/* -------------------------------------------------------------------------- embedding */

struct embedding {
    int8_t wte, wpe; /* parameters; wpe -1 without positions */
    int8_t tokens, out, d_out, out_w, d_out_w;
};

static void embedding_step(struct mist_declaration *at, const struct embedding *embedding)
{
    bool is_backward = at->is_backward;
    struct mist_step *new =
        mist_declare_step(at, "embedding", MIST_OP_EMBEDDING,
                          is_backward ? MIST_PHASE_BACKWARD_WEIGHT : MIST_PHASE_FORWARD,
                          at->rows, at->hidden, at->vocab);

    new->params[0] = embedding->wte;
    new->params[1] = embedding->wpe;
    /* MIST_ARG_DW_DY, MIST_ARG_OUT; MIST_ARG_DW_X, MIST_ARG_EMBEDDING_TOKENS */
    new->operands[0] = is_backward ? embedding->d_out_w : embedding->out_w;
    new->operands[1] = embedding->tokens;
    if (embedding->wpe < 0)
        return;
    new->adds_bias_once = !is_backward && at->variant != MIST_VARIANT_PLAIN;
    mist_declare_more_bytes(at, new,
                            product(at, is_backward ? 2 : 1, at->rows, at->hidden));
}

static void declare_embedding(struct mist_declaration *at)
{
    const struct mist_model *model = at->model;
    int64_t u = product(at, at->shard_rows, at->hidden);
    struct embedding embedding = {.wpe = -1};
    struct mist_param wte = {
        .name = "wte",
        .init = MIST_INIT_NORMAL,
        .decays = true,
        .is_vocabulary = true,
        .shape = mist_shape_cut(MIST_SPLIT_ROWS, model->vocab, model->hidden)};
    struct mist_param wpe = {
        .name = "wpe",
        .init = MIST_INIT_NORMAL,
        .decays = true,
        .shape = mist_shape_cut(MIST_SPLIT_NONE, model->max_seq, model->hidden)};

    embedding.wte = mist_declare_param(at, wte);
    if (model->family == MIST_FAMILY_GPT)
        embedding.wpe = mist_declare_param(at, wpe);
    embedding.tokens = mist_declare_tensor_4(at, "tokens", MIST_TENSOR_TOKENS, at->rows);
    embedding.out = mist_declare_tensor(at, "out", MIST_TENSOR_OUTPUT, u);
    embedding.d_out = mist_declare_tensor(at, "d_out", MIST_TENSOR_GRAD_OUTPUT, u);
    embedding.out_w = mist_declare_whole(at, "out_whole", embedding.out);
    embedding.d_out_w = mist_declare_whole(at, "d_out_whole", embedding.d_out);
    if (at->layout->shape.has_dropout) /* a mask of a byte */
        mist_declare_tensor_4(at, "mask", MIST_TENSOR_SAVED, mist_divide_up(u, 4));

    embedding_step(at, &embedding);
    mist_declare_reduce(at, embedding.out, embedding.out_w);
    at->is_backward = true;
    mist_declare_gather(at, embedding.d_out_w, embedding.d_out);
    embedding_step(at, &embedding);
}

/* ------------------------------------------------------------------------------- head */

struct loss {
    int8_t n, d_n, losses, targets; /* n: the norm's output, whole */
    struct mist_linear head;
};

/* Logits from n, losses, and back to the gradients of n and of the weight. */
static void whole_loss(struct mist_declaration *at, const struct loss *loss)
{
    struct mist_step *new =
        mist_declare_step(at, "loss", MIST_OP_LINEAR_CROSS_ENTROPY, MIST_PHASE_FORWARD,
                          at->rows, at->hidden, at->vocab);

    if (at->layout->shape.logit_bytes > 0)
        new->workspace_bytes =
            product(at, at->layout->shape.logit_bytes, at->rows, at->vocab);
    new->params[0] = loss->head.weight;
    new->operands[MIST_ARG_OUT] = loss->d_n;
    new->operands[MIST_ARG_LOSS_LOSSES] = loss->losses;
    new->operands[MIST_ARG_LOSS_TARGETS] = loss->targets;
    new->operands[MIST_ARG_LOSS_X] = loss->n;
}

/* The losses and their gradient from logits, in place. */
static void sliced_loss(struct mist_declaration *at, const struct loss *loss,
                        int8_t logits)
{
    int64_t n_stats = product(at, 3, at->rows);
    int8_t mine = mist_declare_tensor_4(at, "loss_stats", MIST_TENSOR_SCRATCH, n_stats);
    int8_t all = mist_declare_tensor_4(at, "all_loss_stats", MIST_TENSOR_SCRATCH,
                                       product(at, at->tp, n_stats));
    struct mist_step *stats =
        mist_declare_step(at, "loss_stats", MIST_OP_CROSS_ENTROPY_STATS,
                          MIST_PHASE_FORWARD, at->rows, at->vocab);

    stats->operands[MIST_ARG_OUT] = mine;
    stats->operands[MIST_ARG_STATS_LOGITS] = logits;
    stats->operands[MIST_ARG_STATS_TARGETS] = loss->targets;
    mist_declare_gather(at, all, mine);
    struct mist_step *new =
        mist_declare_step(at, "loss", MIST_OP_CROSS_ENTROPY_PARALLEL, MIST_PHASE_FORWARD,
                          at->rows, at->vocab, at->tp);
    if (at->layout->shape.logit_bytes > at->element_bytes) /* beside the logits */
        new->workspace_bytes = product(
            at, at->layout->shape.logit_bytes - at->element_bytes, at->rows, at->vocab);
    new->operands[MIST_ARG_OUT] = logits;
    new->operands[MIST_ARG_LOSS_LOSSES] = loss->losses;
    new->operands[MIST_ARG_LOSS_TARGETS] = loss->targets;
    new->operands[MIST_ARG_LOSS_STATS] = all;
}

/* The same over tensor-parallel ranks, each with its slice of the vocabulary. */
static void parallel_loss(struct mist_declaration *at, const struct loss *loss,
                          int8_t shard_d_n)
{
    int8_t logits = mist_declare_tensor(at, "logits", MIST_TENSOR_SCRATCH,
                                        product(at, at->rows, at->vocab));

    mist_declare_linear_forward(at, &loss->head, logits, loss->n, -1);
    sliced_loss(at, loss, logits);
    mist_declare_linear_input(at, &loss->head, loss->d_n, logits, -1);
    mist_declare_reduce(at, shard_d_n, loss->d_n);
    mist_declare_linear_weight(at, &loss->head, logits, loss->n);
}

static void declare_head(struct mist_declaration *at)
{
    int64_t u = product(at, at->shard_rows, at->hidden);
    struct mist_param weight = {
        .name = "head.weight",
        .init = MIST_INIT_NORMAL,
        .is_vocabulary = true,
        .is_tied = at->model->ties_embeddings,
        .shape = mist_shape_cut(MIST_SPLIT_ROWS, at->model->vocab, at->hidden)};
    struct loss loss;
    struct mist_norm norm;

    mist_declare_norm_params(at, &norm, "norm.weight", "norm.bias");
    loss.head = mist_declare_linear(at, "head", weight, NULL, at->hidden, at->vocab);
    norm.x = mist_declare_tensor(at, "x", MIST_TENSOR_INPUT, u);
    norm.out = mist_declare_tensor(at, "n", MIST_TENSOR_SCRATCH, u);
    norm.stats = mist_declare_tensor_4(at, "stats", MIST_TENSOR_SAVED,
                                       product(at, 2, at->shard_rows));
    loss.losses = mist_declare_tensor_4(at, "losses", MIST_TENSOR_SAVED, at->rows);
    loss.targets = mist_declare_tensor_4(at, "targets", MIST_TENSOR_TARGETS, at->rows);
    int8_t d_n = mist_declare_tensor(at, "d_n", MIST_TENSOR_SAVED, u);
    int8_t d_x = mist_declare_tensor(at, "d_x", MIST_TENSOR_GRAD_INPUT, u);
    loss.n = mist_declare_whole(at, "n_whole", norm.out);
    loss.d_n = mist_declare_whole(at, "d_n_whole", d_n);

    mist_declare_norm_forward(at, "norm", &norm);
    mist_declare_gather(at, loss.n, norm.out);
    if (at->variant == MIST_VARIANT_PLAIN)
        whole_loss(at, &loss);
    else
        parallel_loss(at, &loss, d_n);
    at->is_backward = true;
    mist_declare_norm_backward(at, "norm", &norm, d_x, d_n, -1);
}

/* ----------------------------------------------------------------------------- public */

void mist_declare_module(struct mist_declaration *at, enum mist_layer_kind kind)
{
    static void (*const declare[MIST_N_LAYER_KINDS])(struct mist_declaration *) = {
        [MIST_LAYER_EMBEDDING] = declare_embedding,
        [MIST_LAYER_BLOCK] = mist_declare_block,
        [MIST_LAYER_HEAD] = declare_head,
    };

    declare[kind](at);
}
