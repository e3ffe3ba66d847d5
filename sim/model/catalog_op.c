/*
 * The operator table: what there is to know of an operator, said once. See catalog.h.
 *
 * Bytes are those that an operator must move at least: every operand and a linear layer's
 * weight once, twice where it is read and written; statistics are left out as small.
 */
#include "sim/model/catalog.h"

#include "core/memory.h" /* mist_size_mul */
#include "core/parse.h"
#include "sim/model/catalog_internal.h" /* struct mist_op_use */

#include <inttypes.h>

/* What an operator does in a phase. */
struct phase_row {
    int8_t n_written;    /* tensors: its first operands */
    int8_t flop, passes; /* of and over each element, or what work makes of the two */
    bool adds_gradients; /* to those of the step's parameters */
};

typedef struct mist_work work_fn(struct mist_op_use *use, const struct phase_row *row);

struct op_row {
    const char *name;
    const char *dims[MIST_MAX_DIMS + 1]; /* NULL-terminated */
    struct phase_row phases[MIST_N_PHASES];
    work_fn *work;                                       /* NULL: none */
    int64_t (*workspace_bytes)(struct mist_op_use *use); /* NULL: none */
    bool is_communication, has_losses;
};

/* FLOP per element of what is no product. */
enum {
    FLOP_GELU = 12,
    FLOP_GELU_BACKWARD = 18,
    FLOP_CROSS_ENTROPY = 20, /* per logit, with its gradient */
};

/* ------------------------------------------------------------------------------- work */

static struct mist_work per_element(struct mist_op_use *use, const struct phase_row *row,
                                    int64_t elements)
{
    return (struct mist_work){
        .flop = product(use, row->flop, elements),
        .bytes = product(use, use->element_bytes, row->passes, elements)};
}

/* dims: elements. */
static struct mist_work work_of_array(struct mist_op_use *use,
                                      const struct phase_row *row)
{
    return per_element(use, row, use->dims[0]);
}

/* dims: rows, columns, and others that don't count. */
static struct mist_work work_of_matrix(struct mist_op_use *use,
                                       const struct phase_row *row)
{
    return per_element(use, row, product(use, use->dims[0], use->dims[1]));
}

/* dims: elements. Passes are bytes per element of fp32 gradients; in bf16 state (moments,
 * master weights) read and written, gradient read and weight written are as many. */
static struct mist_work work_of_gradients(struct mist_op_use *use,
                                          const struct phase_row *row)
{
    return (struct mist_work){.flop = product(use, row->flop, use->dims[0]),
                              .bytes = product(use, row->passes, use->dims[0])};
}

/* dims: bytes. */
static struct mist_work work_of_message(struct mist_op_use *use,
                                        const struct phase_row *row)
{
    (void)row;
    return (struct mist_work){.bytes = use->dims[0]};
}

/* A product, and row's FLOP and passes over its result beside it.
 * dims: rows, n_in, n_out. */
static struct mist_work work_of_linear(struct mist_op_use *use,
                                       const struct phase_row *row)
{
    int64_t rows = use->dims[0], n_in = use->dims[1], n_out = use->dims[2];
    int64_t elements = sum(use, product(use, rows, n_in), product(use, rows, n_out),
                           product(use, n_in, n_out));
    int64_t n_of_row = use->phase == MIST_PHASE_FORWARD ? n_out : n_in;
    struct mist_work beside = per_element(use, row, product(use, rows, n_of_row));

    return (struct mist_work){
        .flop = sum(use, product(use, 2, rows, n_in, n_out), beside.flop),
        .bytes = sum(use, product(use, use->element_bytes, elements), beside.bytes)};
}

/*
 * Logits, losses, and back to the gradients of input and weight. The logits pass through
 * memory as those of single steps would. dims: rows, hidden, vocab.
 */
static struct mist_work work_of_loss(struct mist_op_use *use, const struct phase_row *row)
{
    int64_t rows = use->dims[0], hidden = use->dims[1], vocab = use->dims[2];
    struct mist_work logits = per_element(use, row, product(use, rows, vocab));
    int64_t ends = sum(use, product(use, rows, hidden), product(use, hidden, vocab));

    return (struct mist_work){
        .flop = sum(use, product(use, 6, rows, hidden, vocab), logits.flop),
        .bytes = sum(use, product(use, 3, use->element_bytes, ends), logits.bytes)};
}

/* row->flop products of [s, s] x [s, head_dim] per head, causal: half of each.
 * dims: batch, seq, heads, kv_heads, head_dim. */
static struct mist_work work_of_attention(struct mist_op_use *use,
                                          const struct phase_row *row)
{
    int64_t rows = product(use, use->dims[0], use->dims[1]), heads = use->dims[2];
    int64_t n_heads = sum(use, heads, heads, product(use, 2, use->dims[3]));

    return (struct mist_work){
        .flop = product(use, row->flop, rows, heads, use->dims[4], use->dims[1]),
        .bytes =
            product(use, row->passes, use->element_bytes, rows, n_heads, use->dims[4])};
}

/* Queries and keys. dims: as attention. */
static struct mist_work work_of_heads(struct mist_op_use *use,
                                      const struct phase_row *row)
{
    int64_t n_heads = sum(use, use->dims[2], use->dims[3]);

    return per_element(use, row,
                       product(use, use->dims[0], use->dims[1], n_heads, use->dims[4]));
}

/* Of queries a part, of keys and values all. dims: as attention, and the number of parts. */
static struct mist_work work_of_attention_part(struct mist_op_use *use,
                                               const struct phase_row *row)
{
    int64_t s = use->dims[1], s_part = s / use->dims[5], d = use->dims[4];
    int64_t queries = product(use, use->dims[0], s_part, use->dims[2], d);
    int64_t keys = product(use, use->dims[0], s, use->dims[3], d);

    return (struct mist_work){.flop = product(use, row->flop, queries, s),
                              .bytes = product(use, row->passes, use->element_bytes, 2,
                                               sum(use, queries, keys))};
}

/* Keys and values: what a rank has, or all. dims: as attention_part. */
static struct mist_work work_of_kv(struct mist_op_use *use, const struct phase_row *row)
{
    int64_t n = use->op == MIST_OP_KV_PACK ? use->dims[1] / use->dims[5] : use->dims[1];

    return per_element(use, row,
                       product(use, use->dims[0], n, 2, use->dims[3], use->dims[4]));
}

/* -------------------------------------------------------------------------- workspace */

static bool is_bf16(const struct mist_op_use *use)
{
    return use->element_bytes == 2;
}

/* Rows that bf16 kernels hold in fp32: once, and per thread. dims: rows, hidden. */
static int64_t bf16_rows(struct mist_op_use *use, int64_t n_once, int64_t n_per_thread)
{
    int64_t n = sum(use, n_once, product(use, n_per_thread, use->threads));

    return is_bf16(use) ? product(use, 4, use->dims[1], n) : 0;
}

/* On a CPU the backward lists rows by token. */
static int64_t embedding_workspace(struct mist_op_use *use)
{
    bool is_forward = use->phase == MIST_PHASE_FORWARD;

    return is_forward || use->threads == 0 ? 0 : product(use, 2, 4, use->dims[0]);
}

/* The backward sums up gradients of blocks of rows apart. */
static int64_t norm_workspace(struct mist_op_use *use)
{
    int64_t rows = use->dims[0];

    if (use->phase == MIST_PHASE_FORWARD)
        return bf16_rows(use, 2, 2);
    int64_t n_blocks = use->threads > 0
                           ? mist_divide_up(rows, MIST_CATALOG_NORM_BLOCK_ROWS)
                           : mist_catalog_norm_blocks(rows);
    return sum(use, product(use, 2, 4, use->dims[1], n_blocks), bf16_rows(use, 1, 3));
}

/* Sums over blocks of tokens for both weights, on a CPU in bf16 also rows in fp32: both
 * weights, and per thread one head, in the backward two. dims: as attention. */
static int64_t head_norm_workspace(struct mist_op_use *use)
{
    bool is_forward = use->phase == MIST_PHASE_FORWARD;
    int64_t tokens = product(use, use->dims[0], use->dims[1]), d = use->dims[4];
    int64_t n_blocks = is_forward ? 0
                       : use->threads > 0
                           ? mist_divide_up(tokens, MIST_CATALOG_NORM_BLOCK_ROWS)
                           : mist_catalog_norm_blocks(tokens);
    int64_t n_rooms = use->threads > 0 && is_bf16(use)
                          ? sum(use, 2, product(use, is_forward ? 1 : 2, use->threads))
                          : 0;

    return product(use, 4, d, sum(use, product(use, 2, n_blocks), n_rooms));
}

/* The logits of the rows that are under way. */
static int64_t loss_workspace(struct mist_op_use *use)
{
    int64_t most =
        use->threads > 0 ? MIST_CATALOG_LOSS_ROWS_CPU : MIST_CATALOG_LOSS_ROWS_GPU;

    return product(use, use->element_bytes, use->dims[0] < most ? use->dims[0] : most,
                   use->dims[2]);
}

/*
 * dS in bf16, with grouped queries dk and dv of every query head as well: in so many
 * equal chunks that one is small enough, but not in less than a group of heads.
 */
static int64_t attention_chunk_bytes(struct mist_op_use *use, int64_t queries,
                                     int64_t keys, int64_t grouped)
{
    int64_t most = MIST_CATALOG_ATTENTION_BYTES;
    int64_t b = use->dims[0], heads = use->dims[2];
    int64_t head = product(use, keys, sum(use, queries, queries, grouped));
    int64_t whole = product(use, b, heads, head);
    int64_t chunk = whole ? mist_divide_up(whole, mist_divide_up(whole, most)) : 0;
    int64_t group = product(use, head, heads / use->dims[3]);

    return group <= 4 * most && group > chunk ? group : chunk;
}

/*
 * What the backward of so many queries and keys of a sequence needs in bf16
 * (exec/cuda/attention_cudnn.h): what cuDNN's plans want, the sums of d_out * out by row
 * in fp32, and the larger of what cuDNN's two forms want: dq in fp32, and with grouped
 * queries dk and dv of every query head; or chunks of dS.
 */
static int64_t cudnn_backward_bytes(struct mist_op_use *use, int64_t queries,
                                    int64_t keys)
{
    int64_t d = use->dims[4], n_heads = product(use, use->dims[0], use->dims[2]);
    int64_t grouped = use->dims[2] > use->dims[3] ? 4 * d : 0;
    int64_t fast = product(
        use, n_heads, sum(use, product(use, queries, 4, d), product(use, keys, grouped)));
    int64_t chunk = attention_chunk_bytes(use, queries, keys, grouped);

    return sum(use, 256, product(use, 4, n_heads, queries), fast > chunk ? fast : chunk);
}

/*
 * Of a context-parallel rank's two chunks each is executed by itself; what the one that
 * sees fewer keys leaves of their gradients has room beside its own workspace. Every rank
 * plans as much: no chunk sees more keys than there are, and the other not more than half
 * of them.
 */
static int64_t cudnn_part_backward_bytes(struct mist_op_use *use)
{
    int64_t s = use->dims[1], queries = s / (2 * use->dims[5]);
    int64_t room = product(use, 2, use->dims[0], s / 2, 2 * use->dims[3], use->dims[4]);
    int64_t most = cudnn_backward_bytes(use, queries, s);
    int64_t other = sum(use, room, cudnn_backward_bytes(use, queries, s / 2));

    return most > other ? most : other;
}

/* What attention needs on a GPU; the own kernels of fp32 in the backward the sums of
 * d_out * out by row. */
static int64_t gpu_attention_workspace(struct mist_op_use *use)
{
    bool is_part = use->op == MIST_OP_ATTENTION_PART;
    int64_t s = use->dims[1], n_parts = is_part ? use->dims[5] : 1;

    if (use->phase == MIST_PHASE_FORWARD)
        return is_bf16(use) ? 256 : 0;
    if (!is_bf16(use))
        return product(use, 4, use->dims[0], s / n_parts, use->dims[2]);
    return is_part ? cudnn_part_backward_bytes(use) : cudnn_backward_bytes(use, s, s);
}

/* In floats, of a thread of a CPU: the scores of a block of queries, against all keys in
 * tiles; in bf16 a tile of them rounded, and the block's out. */
static int64_t attention_forward_room(struct mist_op_use *use, int64_t rows, int64_t tile)
{
    int64_t scores = product(use, rows, tile, mist_divide_up(use->dims[1], tile));
    int64_t rounded =
        sum(use, mist_divide_up(rows * tile, 2), product(use, rows, use->dims[4]));

    return sum(use, scores, is_bf16(use) ? rounded : 0);
}

/* P and dS of a block and a tile, and delta; in bf16 both rounded, two rows in fp32, dq of
 * the block, dk and dv of a head. */
static int64_t attention_backward_room(struct mist_op_use *use, int64_t rows,
                                       int64_t tile)
{
    int64_t d = use->dims[4];
    int64_t sums = product(use, d, sum(use, 2, rows, product(use, 2, use->dims[1])));

    return sum(use, 2 * rows * tile, rows,
               is_bf16(use) ? sum(use, rows * tile, sums) : 0);
}

static int64_t attention_workspace(struct mist_op_use *use)
{
    int64_t s = use->dims[1];
    int64_t rows = s < MIST_CATALOG_QUERY_BLOCK ? s : MIST_CATALOG_QUERY_BLOCK;
    int64_t tile = s < MIST_CATALOG_KEY_TILE ? s : MIST_CATALOG_KEY_TILE;

    if (use->threads == 0)
        return gpu_attention_workspace(use);
    return product(use, 4, use->threads,
                   use->phase == MIST_PHASE_FORWARD
                       ? attention_forward_room(use, rows, tile)
                       : attention_backward_room(use, rows, tile));
}

/* ------------------------------------------------------------------------------ table */

/* clang-format off */
/* Tensors written, FLOP, passes, whether it adds to gradients. */
#define FORWARD(w, f, p, g)  [MIST_PHASE_FORWARD] = {w, f, p, g}
#define BACKWARD(w, f, p, g) [MIST_PHASE_BACKWARD_INPUT] = {w, f, p, g}
#define WEIGHT(w, f, p, g)   [MIST_PHASE_BACKWARD_WEIGHT] = {w, f, p, g}
#define UPDATE(w, f, p, g)   [MIST_PHASE_OPTIMIZER] = {w, f, p, g}
#define NORM(name)                                                                       \
    {name, {"rows", "hidden"}, {FORWARD(2, 8, 2, false), BACKWARD(1, 14, 3, true)},      \
     .work = work_of_matrix, .workspace_bytes = norm_workspace}
#define RESIDUAL_NORM(name)                                                              \
    {name, {"rows", "hidden"}, {FORWARD(3, 9, 4, false)},                                \
     .work = work_of_matrix, .workspace_bytes = norm_workspace}
#define PRODUCT(name)                                                                    \
    {name, LINEAR,                                                                       \
     {FORWARD(1, 0, 0, false), BACKWARD(1, 0, 0, false), WEIGHT(0, 0, 0, true)},         \
     .work = work_of_linear}
#define OF_GRADIENTS(name, f, p)                                                         \
    {name, {"elements"}, {UPDATE(1, f, p, false)}, .work = work_of_gradients}
#define MESSAGE(name)                                                                    \
    {name, {"bytes"}, {FORWARD(1, 0, 0, false)}, .work = work_of_message,                \
     .is_communication = true}
#define LINEAR    {"rows", "n_in", "n_out"}
#define ATTENTION {"batch", "seq", "heads", "kv_heads", "head_dim"}
#define PART      {"batch", "seq", "heads", "kv_heads", "head_dim", "cp"}
#define COPY(name)                                                                       \
    {name, PART, {FORWARD(1, 0, 2, false), BACKWARD(1, 0, 2, false)}, .work = work_of_kv}

static const struct op_row op_table[MIST_N_OPS] = {
    [MIST_OP_EMBEDDING] = { /* a table's row is read, or read and written */
        "embedding", {"rows", "hidden", "vocab"},
        {FORWARD(1, 1, 2, false), WEIGHT(0, 2, 3, true)},
        .work = work_of_matrix, .workspace_bytes = embedding_workspace},
    [MIST_OP_LAYER_NORM] = NORM("layer_norm"),
    [MIST_OP_RMS_NORM] = NORM("rms_norm"),
    [MIST_OP_RESIDUAL_LAYER_NORM] = RESIDUAL_NORM("residual_layer_norm"),
    [MIST_OP_RESIDUAL_RMS_NORM] = RESIDUAL_NORM("residual_rms_norm"),
    [MIST_OP_LINEAR] = PRODUCT("linear"),
    [MIST_OP_LINEAR_BIAS] = PRODUCT("linear_bias"),
    [MIST_OP_LINEAR_GELU] = { /* what the product gives is written and not read again */
        "linear_gelu", LINEAR,
        {FORWARD(2, FLOP_GELU, 1, false), BACKWARD(1, FLOP_GELU_BACKWARD, 1, false)},
        .work = work_of_linear},
    [MIST_OP_LINEAR_RESIDUAL] = {
        "linear_residual", LINEAR, {FORWARD(1, 1, 1, false), BACKWARD(1, 1, 1, false)},
        .work = work_of_linear},
    [MIST_OP_ATTENTION] = {
        "attention", ATTENTION, {FORWARD(2, 2, 1, false), BACKWARD(1, 5, 2, false)},
        .work = work_of_attention, .workspace_bytes = attention_workspace},
    [MIST_OP_ROPE] = {
        "rope", ATTENTION, {FORWARD(1, 3, 2, false), BACKWARD(1, 3, 2, false)},
        .work = work_of_heads},
    [MIST_OP_GELU] = {
        "gelu", {"elements"},
        {FORWARD(1, FLOP_GELU, 2, false), BACKWARD(1, FLOP_GELU_BACKWARD, 3, false)},
        .work = work_of_array},
    [MIST_OP_SWIGLU] = {
        "swiglu", {"rows", "width"},
        {FORWARD(1, 12, 3, false), BACKWARD(1, 18, 5, false)},
        .work = work_of_matrix},
    [MIST_OP_RESIDUAL] = {
        "residual", {"elements"}, {FORWARD(1, 1, 3, false)},
        .work = work_of_array},
    [MIST_OP_CROSS_ENTROPY] = {
        "cross_entropy", {"rows", "vocab"}, {FORWARD(1, FLOP_CROSS_ENTROPY, 2, false)},
        .work = work_of_matrix},
    [MIST_OP_LINEAR_CROSS_ENTROPY] = {
        "linear_cross_entropy", {"rows", "hidden", "vocab"},
        {FORWARD(2, FLOP_CROSS_ENTROPY, 5, true)},
        .work = work_of_loss, .workspace_bytes = loss_workspace, .has_losses = true},
    [MIST_OP_CROSS_ENTROPY_STATS] = {
        "cross_entropy_stats", {"rows", "vocab"}, {FORWARD(1, 10, 1, false)},
        .work = work_of_matrix},
    [MIST_OP_CROSS_ENTROPY_PARALLEL] = {
        "cross_entropy_parallel", {"rows", "vocab", "tp"}, {FORWARD(2, 10, 2, false)},
        .work = work_of_matrix, .has_losses = true},
    [MIST_OP_ADAMW] = OF_GRADIENTS("adamw", 12, 28),
    [MIST_OP_ADAMW_HOST] = OF_GRADIENTS("adamw_host", 12, 28),
    [MIST_OP_ZERO] = OF_GRADIENTS("zero", 0, 4),
    [MIST_OP_GRADIENT_NORM] = OF_GRADIENTS("gradient_norm", 2, 4),
    [MIST_OP_HEAD_NORM] = {
        "head_norm", ATTENTION, {FORWARD(2, 8, 3, false), BACKWARD(1, 14, 3, true)},
        .work = work_of_heads, .workspace_bytes = head_norm_workspace},
    [MIST_OP_ATTENTION_PART] = {
        "attention_part", PART, {FORWARD(2, 2, 1, false), BACKWARD(2, 5, 2, false)},
        .work = work_of_attention_part, .workspace_bytes = attention_workspace},
    [MIST_OP_KV_PACK] = COPY("kv_pack"),
    [MIST_OP_KV_ORDER] = COPY("kv_order"),
    [MIST_OP_CP_ALL_GATHER] = MESSAGE("cp_all_gather"),
    [MIST_OP_CP_REDUCE_SCATTER] = MESSAGE("cp_reduce_scatter"),
    [MIST_OP_TP_ALL_REDUCE] = MESSAGE("tp_all_reduce"),
    [MIST_OP_TP_REDUCE_SCATTER] = MESSAGE("tp_reduce_scatter"),
    [MIST_OP_TP_ALL_GATHER] = MESSAGE("tp_all_gather"),
};
/* clang-format on */

const char *mist_op_name(enum mist_op op)
{
    return op_table[op].name;
}

const char *const *mist_op_dims(enum mist_op op)
{
    return op_table[op].dims;
}

bool mist_op_adds_gradients(enum mist_op op, enum mist_phase phase)
{
    return op_table[op].phases[phase].adds_gradients;
}

bool mist_op_has_phase(enum mist_op op, enum mist_phase phase)
{
    const struct phase_row *row = &op_table[op].phases[phase];

    return row->n_written > 0 || row->adds_gradients;
}

bool mist_op_has_losses(enum mist_op op)
{
    return op_table[op].has_losses;
}

bool mist_op_is_product(enum mist_op op)
{
    return op == MIST_OP_LINEAR || op == MIST_OP_LINEAR_BIAS ||
           op == MIST_OP_LINEAR_GELU || op == MIST_OP_LINEAR_RESIDUAL;
}

bool mist_op_is_attention(enum mist_op op)
{
    return op == MIST_OP_ATTENTION || op == MIST_OP_ATTENTION_PART;
}

bool mist_op_is_communication(enum mist_op op)
{
    return op_table[op].is_communication;
}

int mist_op_n_written(enum mist_op op, enum mist_phase phase)
{
    return op_table[op].phases[phase].n_written;
}

struct mist_work mist_op_use_work(struct mist_op_use *use)
{
    const struct op_row *row = &op_table[use->op];

    return row->work(use, &row->phases[use->phase]);
}

int64_t mist_op_use_workspace(struct mist_op_use *use)
{
    const struct op_row *row = &op_table[use->op];

    return row->workspace_bytes ? row->workspace_bytes(use) : 0;
}

struct mist_work mist_op_work(enum mist_op op, enum mist_phase phase,
                              const int64_t dims[MIST_MAX_DIMS], enum mist_dtype dtype)
{
    struct mist_op_use use = {.op = op,
                              .phase = phase,
                              .dims = dims,
                              .element_bytes = mist_dtype_weight_bytes(dtype)};
    struct mist_work work = mist_op_use_work(&use);

    return use.is_out_of_range ? (struct mist_work){INT64_MAX, INT64_MAX} : work;
}

enum mist_phase mist_op_gradient_phase(enum mist_op op)
{
    return op == MIST_OP_RESIDUAL ? MIST_PHASE_FORWARD : MIST_PHASE_OPTIMIZER;
}

struct mist_work mist_op_gradient_work(enum mist_op op, int64_t elements)
{
    const int64_t dims[MIST_MAX_DIMS] = {elements};

    return mist_op_work(op, mist_op_gradient_phase(op), dims, MIST_DTYPE_FP32);
}

static struct mist_op_part part_of(enum mist_op op, enum mist_phase phase, int64_t a,
                                   int64_t b, int64_t c)
{
    return (struct mist_op_part){.op = op, .phase = phase, .dims = {a, b, c}};
}

int32_t mist_op_parts(enum mist_op op, enum mist_phase phase,
                      const int64_t dims[MIST_MAX_DIMS],
                      struct mist_op_part parts[MIST_MAX_OP_PARTS])
{
    int64_t rows = dims[0], n_in = dims[1], n_out = dims[2], n_results = 0;
    struct mist_op_part linear = part_of(MIST_OP_LINEAR_BIAS, phase, rows, n_in, n_out);

    if (!mist_size_mul(rows, phase == MIST_PHASE_FORWARD ? n_out : n_in, &n_results))
        n_results = INT64_MAX;
    switch (op) {
    case MIST_OP_LINEAR_BIAS:
        linear.op = MIST_OP_LINEAR;
        parts[0] = linear;
        return 1;
    case MIST_OP_LINEAR_GELU:
        parts[0] = linear;
        parts[1] = part_of(MIST_OP_GELU, phase, n_results, 0, 0);
        return 2;
    case MIST_OP_LINEAR_RESIDUAL:
        parts[0] = linear;
        parts[1] = part_of(MIST_OP_RESIDUAL, MIST_PHASE_FORWARD, n_results, 0, 0);
        return 2;
    case MIST_OP_LINEAR_CROSS_ENTROPY:
        linear.op = MIST_OP_LINEAR;
        parts[0] = parts[2] = parts[3] = linear;
        parts[1] = part_of(MIST_OP_CROSS_ENTROPY, phase, rows, n_out, 0);
        parts[2].phase = MIST_PHASE_BACKWARD_INPUT;
        parts[3].phase = MIST_PHASE_BACKWARD_WEIGHT;
        return 4;
    case MIST_OP_HEAD_NORM: /* dims: as attention */
        if (!mist_size_mul(dims[2] + dims[3], dims[1], &n_results) ||
            !mist_size_mul(n_results, rows, &n_results))
            n_results = INT64_MAX;
        parts[0] = part_of(MIST_OP_RMS_NORM, phase, n_results, dims[4], 0);
        return 1;
    case MIST_OP_ATTENTION_PART:
        parts[0] = (struct mist_op_part){MIST_OP_ATTENTION,
                                         phase,
                                         {dims[0], dims[1], dims[2], dims[3], dims[4]},
                                         1 / (double)dims[5]};
        return 1;
    case MIST_OP_KV_PACK:
    case MIST_OP_KV_ORDER: {
        struct mist_op_use use = {.op = op, .dims = dims};
        n_results =
            product(&use, 2, rows, dims[1] / (op == MIST_OP_KV_PACK ? dims[5] : 1),
                    dims[3], dims[4]);
        parts[0] = (struct mist_op_part){MIST_OP_RESIDUAL,
                                         MIST_PHASE_FORWARD,
                                         {use.is_out_of_range ? INT64_MAX : n_results},
                                         2.0 / 3};
        return 1;
    }
    default:
        return 0;
    }
}

char *mist_op_shape_text(enum mist_op op, const int64_t dims[MIST_MAX_DIMS], char *out,
                         size_t size)
{
    out[0] = '\0';
    for (int i = 0; op_table[op].dims[i]; i++)
        mist_text_add(out, size, ";", "%s=%" PRId64, op_table[op].dims[i], dims[i]);
    return out;
}
