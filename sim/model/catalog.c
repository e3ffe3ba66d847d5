/*
 * The catalogue of a model: its modules in all variants; declares the embedding and the
 * head. Blocks are in catalog_block.c. See catalog.h.
 *
 * The head computes its loss and everything up to the gradient of its norm's output in
 * the forward program, so that logits never live from forward to backward. On a rank of
 * its own a single step does that, some rows at a time, so that there are never more than
 * the logits of those. Over tensor-parallel ranks embedding and head are cut by the
 * vocabulary: every rank looks up the tokens it has and the results are summed; every
 * rank has the logits of its slice, and the loss needs of the others three numbers per
 * row: maximum, sum of exponentials, target's logit. Left out: dropout.
 */
#include "sim/model/catalog.h"

#include "sim/model/catalog_internal.h"

#include <stdlib.h>

/* -------------------------------------------------------------------------- embedding */

struct embedding {
    int8_t wte, wpe; /* parameters; wpe -1 without positions */
    int8_t tokens, out, d_out, out_w, d_out_w;
};

static void embedding_step(struct mist_declaration *at, const struct embedding *embedding,
                           bool is_backward)
{
    struct mist_step *new = mist_declare_step(
        at, is_backward ? &at->layer->backward : &at->layer->forward, "embedding",
        MIST_OP_EMBEDDING, is_backward ? MIST_PHASE_BACKWARD_WEIGHT : MIST_PHASE_FORWARD);
    mist_expr elements = mul(at, at->rows, at->hidden);
    int n_tables = embedding->wpe >= 0 ? 2 : 1;

    new->dims[0] = at->rows;
    new->dims[1] = at->hidden;
    new->dims[2] = at->vocab;
    new->params[0] = embedding->wte;
    new->params[1] = embedding->wpe;
    /* MIST_ARG_DW_DY, MIST_ARG_OUT; MIST_ARG_DW_X, MIST_ARG_EMBEDDING_TOKENS */
    new->operands[0] = is_backward ? embedding->d_out_w : embedding->out_w;
    new->operands[1] = embedding->tokens;
    new->adds_bias_once =
        !is_backward && embedding->wpe >= 0 && at->variant != MIST_VARIANT_PLAIN;
    new->flop = times(at, is_backward ? 2 : 1, elements);
    /* every table's row is read, or read and written */
    new->bytes = bytes_of(at, 1 + (is_backward ? 2 : 1) * n_tables, elements);
}

void mist_declare_embedding(struct mist_declaration *at)
{
    const struct mist_model *model = at->model;
    mist_expr u = mul(at, at->shard_rows, at->hidden);
    struct embedding embedding = {.wpe = -1};

    embedding.wte = mist_declare_param(at, "wte", MIST_INIT_NORMAL, true,
                                       mist_shape_cut_rows(model->vocab, model->hidden),
                                       mul(at, at->vocab, at->hidden));
    if (model->family == MIST_FAMILY_GPT)
        embedding.wpe =
            mist_declare_param(at, "wpe", MIST_INIT_NORMAL, true,
                               mist_shape_uncut(model->max_seq, model->hidden),
                               mul(at, num(at, model->max_seq), at->hidden));
    embedding.tokens = mist_declare_tensor_4(at, "tokens", MIST_TENSOR_TOKENS, at->rows);
    embedding.out = mist_declare_tensor(at, "out", MIST_TENSOR_OUTPUT, u);
    embedding.d_out = mist_declare_tensor(at, "d_out", MIST_TENSOR_GRAD_OUTPUT, u);
    embedding.out_w = mist_declare_whole(at, "out_whole", embedding.out);
    embedding.d_out_w = mist_declare_whole(at, "d_out_whole", embedding.d_out);

    embedding_step(at, &embedding, false);
    mist_declare_reduce(at, &at->layer->forward, embedding.out, embedding.out_w);
    mist_declare_gather(at, &at->layer->backward, embedding.d_out_w, embedding.d_out);
    embedding_step(at, &embedding, true);
}

/* ------------------------------------------------------------------------------- head */

struct loss {
    int8_t n, d_n, losses, targets; /* n: the norm's output, whole */
    struct mist_linear head;
    mist_expr n_logits;
};

/*
 * Logits from n, losses, and back to the gradients of n and of the weight. Its logits
 * pass through memory as those of single steps would. Those of its rows that are under
 * way are its workspace.
 */
static void whole_loss(struct mist_declaration *at, const struct loss *loss)
{
    struct mist_step *new =
        mist_declare_step(at, &at->layer->forward, "loss", MIST_OP_LINEAR_CROSS_ENTROPY,
                          MIST_PHASE_FORWARD);
    mist_expr more = num(at, MIST_CATALOG_LOSS_ROWS_GPU - MIST_CATALOG_LOSS_ROWS_CPU);
    mist_expr n_rows = mist_expr_min(
        at->pool, at->rows,
        add(at, num(at, MIST_CATALOG_LOSS_ROWS_CPU), mist_declare_if_gpu(at, more)));
    mist_expr in = mul(at, at->rows, at->hidden);
    mist_expr weight = mul(at, at->hidden, at->vocab);

    new->dims[0] = at->rows;
    new->dims[1] = at->hidden;
    new->dims[2] = at->vocab;
    new->params[0] = loss->head.weight;
    new->operands[MIST_ARG_OUT] = loss->d_n;
    new->operands[MIST_ARG_LOSS_LOSSES] = loss->losses;
    new->operands[MIST_ARG_LOSS_TARGETS] = loss->targets;
    new->operands[MIST_ARG_LOSS_X] = loss->n;
    new->flop = add(at, times(at, 6, mul3(at, at->rows, at->hidden, at->vocab)),
                    times(at, MIST_FLOP_CROSS_ENTROPY, loss->n_logits));
    new->bytes =
        add(at, bytes_of(at, 3, add(at, in, weight)), bytes_of(at, 5, loss->n_logits));
    new->workspace_bytes = bytes_of(at, 1, mul(at, n_rows, at->vocab));
}

/* The losses and their gradient from logits, in place. */
static void sliced_loss(struct mist_declaration *at, const struct loss *loss,
                        int8_t logits)
{
    struct mist_program *program = &at->layer->forward;
    mist_expr n_stats = times(at, 3, at->rows);
    int8_t mine = mist_declare_tensor_4(at, "loss_stats", MIST_TENSOR_SCRATCH, n_stats);
    int8_t all = mist_declare_tensor_4(at, "all_loss_stats", MIST_TENSOR_SCRATCH,
                                       mul(at, at->tp, n_stats));
    struct mist_step *stats = mist_declare_step(
        at, program, "loss_stats", MIST_OP_CROSS_ENTROPY_STATS, MIST_PHASE_FORWARD);

    stats->dims[0] = at->rows;
    stats->dims[1] = at->vocab;
    stats->operands[MIST_ARG_OUT] = mine;
    stats->operands[MIST_ARG_STATS_LOGITS] = logits;
    stats->operands[MIST_ARG_STATS_TARGETS] = loss->targets;
    stats->flop = times(at, 10, loss->n_logits);
    stats->bytes = bytes_of(at, 1, loss->n_logits);
    mist_declare_gather(at, program, all, mine);
    struct mist_step *new = mist_declare_step(
        at, program, "loss", MIST_OP_CROSS_ENTROPY_PARALLEL, MIST_PHASE_FORWARD);
    new->dims[0] = at->rows;
    new->dims[1] = at->vocab;
    new->dims[2] = at->tp;
    new->operands[MIST_ARG_OUT] = logits;
    new->operands[MIST_ARG_LOSS_LOSSES] = loss->losses;
    new->operands[MIST_ARG_LOSS_TARGETS] = loss->targets;
    new->operands[MIST_ARG_LOSS_STATS] = all;
    new->flop = times(at, 10, loss->n_logits);
    new->bytes = bytes_of(at, 2, loss->n_logits);
}

/* The same over tensor-parallel ranks, each with its slice of the vocabulary. */
static void parallel_loss(struct mist_declaration *at, const struct loss *loss,
                          int8_t shard_d_n)
{
    struct mist_program *program = &at->layer->forward;
    int8_t logits =
        mist_declare_tensor(at, "logits", MIST_TENSOR_SCRATCH, loss->n_logits);

    mist_declare_linear_forward(at, program, &loss->head, logits, loss->n, -1);
    sliced_loss(at, loss, logits);
    mist_declare_linear_input(at, program, &loss->head, loss->d_n, logits, -1);
    mist_declare_reduce(at, program, shard_d_n, loss->d_n);
    mist_declare_linear_weight(at, program, &loss->head, logits, loss->n);
}

void mist_declare_head(struct mist_declaration *at)
{
    struct mist_layer_template *layer = at->layer;
    mist_expr u = mul(at, at->shard_rows, at->hidden);
    struct loss loss = {.n_logits = mul(at, at->rows, at->vocab)};
    struct mist_norm norm;

    mist_declare_norm_params(at, &norm, "norm.weight", "norm.bias");
    loss.head = mist_declare_linear(
        at, "head", "head.weight", NULL, MIST_INIT_NORMAL,
        mist_shape_cut_rows(at->model->vocab, at->model->hidden), at->hidden, at->vocab);
    layer->params[loss.head.weight].is_tied = at->model->ties_embeddings;
    norm.x = mist_declare_tensor(at, "x", MIST_TENSOR_INPUT, u);
    norm.out = mist_declare_tensor(at, "n", MIST_TENSOR_SCRATCH, u);
    norm.stats = mist_declare_tensor_4(at, "stats", MIST_TENSOR_SAVED,
                                       times(at, 2, at->shard_rows));
    loss.losses = mist_declare_tensor_4(at, "losses", MIST_TENSOR_SAVED, at->rows);
    loss.targets = mist_declare_tensor_4(at, "targets", MIST_TENSOR_TARGETS, at->rows);
    int8_t d_n = mist_declare_tensor(at, "d_n", MIST_TENSOR_SAVED, u);
    int8_t d_x = mist_declare_tensor(at, "d_x", MIST_TENSOR_GRAD_INPUT, u);
    loss.n = mist_declare_whole(at, "n_whole", norm.out);
    loss.d_n = mist_declare_whole(at, "d_n_whole", d_n);

    mist_declare_norm_forward(at, &layer->forward, "norm", &norm);
    mist_declare_gather(at, &layer->forward, loss.n, norm.out);
    if (at->variant == MIST_VARIANT_PLAIN)
        whole_loss(at, &loss);
    else
        parallel_loss(at, &loss, d_n);
    mist_declare_norm_backward(at, &layer->backward, "norm", &norm, d_x, d_n, -1);
}

/* ----------------------------------------------------------------------------- public */

/* Whole heads, feed-forward columns and so on: where tp does not divide, the layout
 * finds a fraction. The vocabulary is padded; a single key-value head is everyone's. */
static void set_widths(struct mist_declaration *at)
{
    const struct mist_model *model = at->model;

    at->rows = mul(at, at->b, at->s);
    at->hidden = num(at, model->hidden);
    at->shard_rows = at->rows;
    if (at->variant == MIST_VARIANT_SEQUENCE)
        at->shard_rows = mist_expr_div(at->pool, at->rows, at->tp);
    at->heads = mist_expr_div(at->pool, num(at, model->n_heads), at->tp);
    at->kv_heads = num(at, 1);
    if (model->n_kv_heads > 1)
        at->kv_heads = mist_expr_div(at->pool, num(at, model->n_kv_heads), at->tp);
    at->ffn = mist_expr_div(at->pool, num(at, model->ffn), at->tp);
    at->vocab =
        mist_expr_ceil(at->pool, mist_expr_div(at->pool, num(at, model->vocab), at->tp));
}

static void declare_all(struct mist_catalog *catalog)
{
    static void (*const declare[MIST_N_LAYER_KINDS])(struct mist_declaration *) = {
        mist_declare_embedding, mist_declare_block, mist_declare_head};
    static const char *const names[MIST_N_SYMBOLS] = {"b", "s", "tp", "threads",
                                                      "element"};
    struct mist_declaration at = {.pool = catalog->pool, .model = &catalog->model};
    mist_expr *symbols = catalog->symbols;

    for (int i = 0; i < MIST_N_SYMBOLS; i++)
        symbols[i] = mist_expr_symbol(at.pool, names[i]);
    at.b = symbols[MIST_SYMBOL_MICRO_BATCH];
    at.s = symbols[MIST_SYMBOL_SEQ];
    at.tp = symbols[MIST_SYMBOL_TP];
    at.threads = symbols[MIST_SYMBOL_THREADS];
    at.element = symbols[MIST_SYMBOL_ELEMENT];
    for (int variant = 0; variant < MIST_N_VARIANTS; variant++) {
        at.variant = (enum mist_layer_variant)variant;
        set_widths(&at);
        for (int i = 0; i < MIST_N_LAYER_KINDS; i++) {
            at.layer = &catalog->layers[variant][i];
            at.layer->kind = (enum mist_layer_kind)i;
            declare[i](&at);
        }
    }
}

enum mist_status mist_catalog_new(const struct mist_model *model,
                                  struct mist_catalog **out, struct mist_err *err)
{
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
    enum mist_status status = mist_expr_pool_check(pool, err);
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
