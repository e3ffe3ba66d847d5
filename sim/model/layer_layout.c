/*
 * Has a module declared and lays out its tensors. See catalog.h.
 *
 * Saved tensors follow one another. Scratch tensors and kernel workspaces of one program
 * are placed by decreasing size at the lowest offset that is free during their steps. A
 * communication's operands keep their place until a part waits for it, since computation
 * goes on beside it. The two halves of a split backward share one scratch.
 */
#include "sim/model/catalog.h"

#include "core/memory.h" /* mist_align_up */
#include "sim/model/catalog_internal.h"

#include <string.h>

enum { ALIGNMENT = 64, MAX_PIECES = MIST_MAX_TENSORS + MIST_MAX_STEPS };

/* A scratch tensor or workspace while it is being placed. */
struct piece {
    int64_t size_bytes;
    int32_t first_step, last_step;
    int64_t *offset; /* where the result goes */
};

static bool overlaps(const struct piece *a, const struct piece *b)
{
    return a->first_step <= b->last_step && b->first_step <= a->last_step;
}

/*
 * Lowest offset at which piece i meets none of the pieces 0 .. i - 1 that live with it.
 */
static int64_t lowest_offset(const struct piece *pieces, int32_t i)
{
    int64_t offset = 0;

    for (bool moved = true; moved;) {
        moved = false;
        for (int32_t j = 0; j < i; j++) {
            int64_t start = *pieces[j].offset;
            int64_t end = start + mist_align_up(pieces[j].size_bytes, ALIGNMENT);
            if (overlaps(&pieces[i], &pieces[j]) && offset < end &&
                start < offset + pieces[i].size_bytes) {
                offset = end;
                moved = true;
            }
        }
    }
    return offset;
}

/* Stable sort by decreasing size: a few dozen pieces. */
static void sort_pieces(struct piece *pieces, int32_t n)
{
    for (int32_t i = 1; i < n; i++) {
        struct piece piece = pieces[i];
        int32_t j = i;
        for (; j > 0 && pieces[j - 1].size_bytes < piece.size_bytes; j--)
            pieces[j] = pieces[j - 1];
        pieces[j] = piece;
    }
}

/* Lengthens busy_until of the program's communication steps to when they surely ended. */
static void keep_busy(const struct mist_program *program, int32_t n_steps,
                      int32_t *busy_until)
{
    for (int32_t i = 0; i < program->n_parts; i++)
        if (program->parts[i].is_communication)
            busy_until[program->parts[i].first_step] =
                mist_program_communication_end(program, i, n_steps);
}

/* Lists what has to be placed; busy_until: [n_steps] last step that each runs beside. */
static int32_t list_pieces(struct mist_layer_layout *layout, struct mist_step *steps,
                           int32_t n_steps, const int32_t *busy_until, bool is_backward,
                           struct piece pieces[MAX_PIECES])
{
    int32_t n = 0, piece_of[MIST_MAX_TENSORS];

    memset(piece_of, -1, sizeof piece_of);
    for (int32_t i = 0; i < n_steps; i++) {
        for (int k = 0; k < MIST_MAX_OPERANDS; k++) {
            int8_t id = steps[i].operands[k];
            struct mist_tensor *tensor = id < 0 ? NULL : &layout->tensors[id];
            if (!tensor || tensor->tensor_class != MIST_TENSOR_SCRATCH)
                continue;
            if (piece_of[id] < 0) {
                piece_of[id] = n;
                pieces[n++] = (struct piece){tensor->bytes, i, i,
                                             is_backward ? &tensor->offset_backward
                                                         : &tensor->offset_forward};
            }
            struct piece *piece = &pieces[piece_of[id]];
            if (busy_until[i] > piece->last_step)
                piece->last_step = busy_until[i];
        }
        if (steps[i].workspace_bytes > 0)
            pieces[n++] = (struct piece){steps[i].workspace_bytes, i, i,
                                         &steps[i].workspace_offset};
    }
    return n;
}

/* Places the scratch of all steps of an array, which the programs cut; returns the bytes
 * it needs. */
static int64_t pack_scratch(struct mist_layer_layout *layout, bool is_backward)
{
    struct mist_step *steps = is_backward ? layout->backward : layout->forward;
    int32_t n_steps = mist_layer_layout_n_steps(layout, is_backward);
    struct piece pieces[MAX_PIECES];
    int32_t busy_until[MIST_MAX_STEPS];

    for (int32_t i = 0; i < n_steps; i++)
        busy_until[i] = i;
    if (!is_backward)
        keep_busy(&layout->programs[MIST_PROGRAM_FORWARD], layout->n_forward, busy_until);
    for (int i = MIST_PROGRAM_BACKWARD; is_backward && i < MIST_N_PROGRAM_KINDS; i++)
        keep_busy(&layout->programs[i], n_steps, busy_until);
    int32_t n = list_pieces(layout, steps, n_steps, busy_until, is_backward, pieces);
    sort_pieces(pieces, n);
    int64_t total = 0;
    for (int32_t i = 0; i < n; i++) {
        *pieces[i].offset = lowest_offset(pieces, i);
        int64_t end = *pieces[i].offset + mist_align_up(pieces[i].size_bytes, ALIGNMENT);
        total = end > total ? end : total;
    }
    return total;
}

static void lay_out_tensors(struct mist_layer_layout *out)
{
    for (int32_t i = 0; i < out->n_tensors; i++) {
        struct mist_tensor *tensor = &out->tensors[i];
        switch (tensor->tensor_class) {
        case MIST_TENSOR_INPUT:
            out->input_bytes = tensor->bytes;
            break;
        case MIST_TENSOR_OUTPUT:
            out->output_bytes = tensor->bytes;
            break;
        case MIST_TENSOR_CONSTANT:
            out->constant_bytes = tensor->bytes;
            break;
        case MIST_TENSOR_SAVED:
            tensor->offset_forward = tensor->offset_backward = out->saved_bytes;
            out->saved_bytes += mist_align_up(tensor->bytes, ALIGNMENT);
            break;
        default:
            break;
        }
    }
}

/* What the steps that make tensors again write of those that are saved. */
static void mark_remade(struct mist_layer_layout *out)
{
    for (int32_t i = out->n_forward; i < out->n_forward + out->n_remake; i++)
        for (int k = 0; k < mist_op_n_written(out->forward[i].op, MIST_PHASE_FORWARD);
             k++) {
            struct mist_tensor *tensor = &out->tensors[out->forward[i].operands[k]];
            tensor->is_remade = tensor->tensor_class == MIST_TENSOR_SAVED;
        }
}

static void lay_out_params(struct mist_layer_layout *out)
{
    int64_t n_aligned = ALIGNMENT / mist_dtype_weight_bytes(out->shape.dtype);

    for (int32_t i = 0; i < out->n_params; i++) {
        out->params[i].offset = out->n_parameters;
        out->n_parameters += mist_align_up(out->params[i].n_elements, n_aligned);
    }
}

/* Whether all sizes are such that sums of some thousands fit, and doubles hold them. */
static bool has_sizes_in_range(const struct mist_layer_layout *layout)
{
    const int64_t most = (int64_t)1 << 53;
    bool is_in_range = true;

    for (int32_t i = 0; i < layout->n_tensors; i++)
        is_in_range &= layout->tensors[i].bytes <= most;
    for (int32_t i = 0; i < layout->n_params; i++)
        is_in_range &= layout->params[i].n_elements <= most;
    for (int32_t i = 0; i < mist_layer_layout_n_steps(layout, false); i++)
        is_in_range &= layout->forward[i].workspace_bytes <= most;
    for (int32_t i = 0; i < layout->n_backward; i++)
        is_in_range &= layout->backward[i].workspace_bytes <= most;
    return is_in_range;
}

static enum mist_layer_variant variant_of(struct mist_layer_shape shape)
{
    if (shape.tp == 1)
        return MIST_VARIANT_PLAIN;
    return shape.is_sequence_parallel ? MIST_VARIANT_SEQUENCE : MIST_VARIANT_TENSOR;
}

enum mist_status mist_layer_layout_make(const struct mist_model *model,
                                        enum mist_layer_kind kind,
                                        struct mist_layer_shape shape,
                                        struct mist_layer_layout *out,
                                        struct mist_err *err)
{
    struct mist_declaration at = {
        .model = model,
        .variant = variant_of(shape),
        .layout = out,
        .b = shape.micro_batch,
        .s = shape.seq,
        .tp = shape.tp,
        .cp = mist_layer_shape_cp(&shape),
        .element_bytes = mist_dtype_weight_bytes(shape.dtype),
        .rows = (int64_t)shape.micro_batch * mist_layer_shape_tokens(&shape),
        .hidden = model->hidden,
        .vocab = mist_divide_up(model->vocab, shape.tp),
    };

    *out = (struct mist_layer_layout){.kind = kind, .shape = shape};
    at.is_out_of_range = at.cp > 1 && shape.seq % (2 * at.cp) != 0;
    at.shard_rows =
        shape.is_sequence_parallel ? mist_declare_share(&at, at.rows) : at.rows;
    mist_declare_module(&at, kind);
    if (at.is_out_of_range || !has_sizes_in_range(out))
        return mist_err_set(
            err, MIST_ERR_RANGE,
            "model %s at micro-batch %d, sequence %d, tp %d, cp %d%s: a tensor "
            "has no whole number of bytes below 2^53",
            model->name, (int)shape.micro_batch, (int)shape.seq, (int)shape.tp,
            (int)at.cp, shape.is_sequence_parallel ? " with sequence parallelism" : "");
    lay_out_tensors(out);
    mark_remade(out);
    lay_out_params(out);
    mist_layout_cut_programs(out);
    out->scratch_forward_bytes = pack_scratch(out, false);
    out->scratch_backward_bytes = pack_scratch(out, true);
    return MIST_OK;
}

double mist_layer_layout_flop(const struct mist_layer_layout *layout)
{
    double all = 0;

    for (int32_t i = 0; i < layout->n_forward; i++)
        all += (double)layout->forward[i].flop;
    for (int32_t i = 0; i < layout->n_backward; i++)
        all += (double)layout->backward[i].flop;
    return all;
}

double mist_step_product_flop(const struct mist_step *step)
{
    double d[MIST_MAX_DIMS];

    for (int i = 0; i < MIST_MAX_DIMS; i++)
        d[i] = (double)step->dims[i];
    switch (step->op) {
    case MIST_OP_LINEAR:
    case MIST_OP_LINEAR_BIAS:
    case MIST_OP_LINEAR_GELU:
    case MIST_OP_LINEAR_RESIDUAL:
    case MIST_OP_LINEAR_CROSS_ENTROPY:
        return 2 * d[0] * d[1] * d[2];
    case MIST_OP_ATTENTION: /* batch, seq, heads, kv_heads, head_dim */
        return 4 * d[0] * d[1] * d[1] * d[2] * d[4];
    case MIST_OP_ATTENTION_PART: /* of seq / cp queries */
        return 4 * d[0] * d[1] * d[1] * d[2] * d[4] / d[5];
    default:
        return 0;
    }
}

enum mist_status mist_model_count(const struct mist_model *model, int32_t seq,
                                  struct mist_model_count *out, struct mist_err *err)
{
    const struct mist_layer_shape shape = {.micro_batch = 1, .seq = seq, .tp = 1};
    struct mist_layer_layout layout;
    struct mist_model_count all = {0};

    for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++) {
        int32_t n_modules = kind == MIST_LAYER_BLOCK ? model->n_layers : 1;
        enum mist_status status = mist_layer_layout_make(
            model, (enum mist_layer_kind)kind, shape, &layout, err);
        if (status != MIST_OK)
            return status;
        for (int32_t i = 0; i < layout.n_params; i++)
            if (!layout.params[i].is_tied)
                all.n_parameters += n_modules * layout.params[i].n_elements;
        for (int32_t i = 0; i < layout.n_forward; i++) /* backward: twice as much */
            all.flop_per_token +=
                3.0 * n_modules * mist_step_product_flop(&layout.forward[i]);
    }
    all.flop_per_token /= seq;
    *out = all;
    return MIST_OK;
}
