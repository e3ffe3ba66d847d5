/*
 * Evaluates a module's declaration at concrete dimensions and lays out its tensors. See
 * catalog.h.
 *
 * Saved tensors follow one another. Scratch tensors and kernel workspaces of one program
 * are placed by decreasing size at the lowest offset that is free during their steps. A
 * communication's operands keep their place until a part waits for it, since computation
 * goes on beside it. The two halves of a split backward share one scratch.
 */
#include "sim/model/catalog.h"

#include "core/memory.h" /* mist_align_up */
#include "sim/model/catalog_internal.h"

#include <math.h>
#include <string.h>

enum { ALIGNMENT = 64, MAX_PIECES = MIST_MAX_TENSORS + MIST_MAX_STEPS };

/* A scratch tensor or workspace while it is being placed. */
struct piece {
    int64_t size_bytes;
    int32_t first_step, last_step;
    int64_t *offset; /* where the result goes */
};

/* Values of the symbols, and whether an expression was not a whole number that fits. */
struct evaluation {
    struct mist_expr_pool *pool;
    double values[MIST_N_SYMBOLS];
    bool is_out_of_range;
};

static int64_t whole(struct evaluation *at, mist_expr expr)
{
    double value = mist_expr_eval(at->pool, expr, at->values);

    if (!(value >= 0 && value <= 0x1p53) || value != floor(value)) {
        at->is_out_of_range = true;
        return 0;
    }
    return (int64_t)value;
}

static void concretize(struct evaluation *at, const struct mist_program *program,
                       struct mist_concrete_step *out)
{
    for (int32_t i = 0; i < program->n_steps; i++) {
        const struct mist_step *step = &program->steps[i];
        out[i] = (struct mist_concrete_step){
            .op = step->op,
            .phase = step->phase,
            .name = step->name,
            .adds_bias_once = step->adds_bias_once,
            .adds_residual_once = step->adds_residual_once,
            .flop = mist_expr_eval(at->pool, step->flop, at->values),
            .bytes = mist_expr_eval(at->pool, step->bytes, at->values),
            .workspace_bytes = whole(at, step->workspace_bytes),
        };
        memcpy(out[i].operands, step->operands, sizeof out[i].operands);
        memcpy(out[i].params, step->params, sizeof out[i].params);
        while (mist_op_dims(step->op)[out[i].n_dims]) {
            out[i].dims[out[i].n_dims] = whole(at, step->dims[out[i].n_dims]);
            out[i].n_dims++;
        }
    }
}

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
static void keep_busy(const struct mist_concrete_program *program, int32_t n_steps,
                      int32_t *busy_until)
{
    for (int32_t i = 0; i < program->n_parts; i++)
        if (program->parts[i].is_communication)
            busy_until[program->parts[i].first_step] =
                mist_program_communication_end(program, i, n_steps);
}

/* Lists what has to be placed; busy_until: [n_steps] last step that each runs beside. */
static int32_t list_pieces(const struct mist_layer_layout *layout,
                           struct mist_concrete_step *steps, int32_t n_steps,
                           const int32_t *busy_until, int64_t *offsets,
                           struct piece pieces[MAX_PIECES])
{
    int32_t n = 0, piece_of[MIST_MAX_TENSORS];

    memset(piece_of, -1, sizeof piece_of);
    for (int32_t i = 0; i < n_steps; i++) {
        for (int k = 0; k < MIST_MAX_OPERANDS; k++) {
            int8_t id = steps[i].operands[k];
            if (id < 0 || layout->tensor_class[id] != MIST_TENSOR_SCRATCH)
                continue;
            if (piece_of[id] < 0) {
                piece_of[id] = n;
                pieces[n++] =
                    (struct piece){layout->tensor_bytes[id], i, i, &offsets[id]};
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
static int64_t pack_scratch(const struct mist_layer_layout *layout,
                            struct mist_concrete_step *steps, int32_t n_steps,
                            const enum mist_program_kind *programs, int32_t n_programs,
                            int64_t *offsets)
{
    struct piece pieces[MAX_PIECES];
    int32_t busy_until[MIST_MAX_STEPS];

    for (int32_t i = 0; i < n_steps; i++)
        busy_until[i] = i;
    for (int32_t i = 0; i < n_programs; i++)
        keep_busy(&layout->programs[programs[i]], n_steps, busy_until);
    int32_t n = list_pieces(layout, steps, n_steps, busy_until, offsets, pieces);
    sort_pieces(pieces, n);
    int64_t total = 0;
    for (int32_t i = 0; i < n; i++) {
        *pieces[i].offset = lowest_offset(pieces, i);
        int64_t end = *pieces[i].offset + mist_align_up(pieces[i].size_bytes, ALIGNMENT);
        total = end > total ? end : total;
    }
    return total;
}

static void lay_out_scratch(struct mist_layer_layout *out)
{
    static const enum mist_program_kind forward[] = {MIST_PROGRAM_FORWARD};
    static const enum mist_program_kind backward[] = {
        MIST_PROGRAM_BACKWARD, MIST_PROGRAM_BACKWARD_INPUT, MIST_PROGRAM_BACKWARD_WEIGHT};

    out->scratch_forward_bytes =
        pack_scratch(out, out->forward, out->n_forward, forward, 1, out->offset_forward);
    out->scratch_backward_bytes = pack_scratch(out, out->backward, out->n_backward,
                                               backward, 3, out->offset_backward);
}

static void lay_out_tensors(struct evaluation *at,
                            const struct mist_layer_template *layer,
                            struct mist_layer_layout *out)
{
    for (int32_t i = 0; i < layer->n_tensors; i++) {
        out->tensor_name[i] = layer->tensors[i].name;
        int64_t size = whole(at, layer->tensors[i].bytes);
        out->tensor_class[i] = layer->tensors[i].tensor_class;
        out->tensor_bytes[i] = size;
        switch (layer->tensors[i].tensor_class) {
        case MIST_TENSOR_INPUT:
            out->input_bytes = size;
            break;
        case MIST_TENSOR_OUTPUT:
            out->output_bytes = size;
            break;
        case MIST_TENSOR_CONSTANT:
            out->constant_bytes = size;
            break;
        case MIST_TENSOR_SAVED:
            out->offset_forward[i] = out->offset_backward[i] = out->saved_bytes;
            out->saved_bytes += mist_align_up(size, ALIGNMENT);
            break;
        default:
            break;
        }
    }
}

static void lay_out_params(struct evaluation *at, const struct mist_layer_template *layer,
                           struct mist_layer_layout *out)
{
    int64_t n_aligned = ALIGNMENT / mist_dtype_weight_bytes(out->shape.dtype);

    for (int32_t i = 0; i < layer->n_params; i++) {
        const struct mist_param *param = &layer->params[i];
        out->param_offset[i] = out->n_parameters;
        out->param_elements[i] = whole(at, param->n_elements);
        out->param_init[i] = param->init;
        out->param_decays[i] = param->decays;
        out->param_name[i] = param->name;
        out->param_shape[i] = param->shape;
        out->param_is_tied[i] = param->is_tied;
        out->param_partial_first[i] = whole(at, param->partial_first);
        out->param_partial_elements[i] = whole(at, param->partial_elements);
        out->n_parameters += mist_align_up(out->param_elements[i], n_aligned);
    }
}

static enum mist_layer_variant variant_of(struct mist_layer_shape shape)
{
    if (shape.tp == 1)
        return MIST_VARIANT_PLAIN;
    return shape.is_sequence_parallel ? MIST_VARIANT_SEQUENCE : MIST_VARIANT_TENSOR;
}

enum mist_status mist_layer_layout_make(const struct mist_catalog *catalog,
                                        enum mist_layer_kind kind,
                                        struct mist_layer_shape shape,
                                        struct mist_layer_layout *out,
                                        struct mist_err *err)
{
    const struct mist_layer_template *layer = &catalog->layers[variant_of(shape)][kind];
    struct evaluation at = {
        .pool = catalog->pool,
        .values = {[MIST_SYMBOL_MICRO_BATCH] = shape.micro_batch,
                   [MIST_SYMBOL_SEQ] = shape.seq,
                   [MIST_SYMBOL_TP] = shape.tp,
                   [MIST_SYMBOL_THREADS] = shape.threads,
                   [MIST_SYMBOL_ELEMENT] = mist_dtype_weight_bytes(shape.dtype)},
    };

    *out = (struct mist_layer_layout){
        .kind = kind,
        .shape = shape,
        .n_tensors = layer->n_tensors,
        .n_params = layer->n_params,
        .n_forward = layer->forward.n_steps,
        .n_backward = layer->backward.n_steps,
    };
    lay_out_tensors(&at, layer, out);
    lay_out_params(&at, layer, out);
    concretize(&at, &layer->forward, out->forward);
    concretize(&at, &layer->backward, out->backward);
    mist_layout_cut_programs(out);
    lay_out_scratch(out);
    if (at.is_out_of_range)
        return mist_err_set(
            err, MIST_ERR_RANGE,
            "model %s at micro-batch %d, sequence %d, tp %d%s: a tensor "
            "has no whole number of bytes below 2^53",
            catalog->model.name, (int)shape.micro_batch, (int)shape.seq, (int)shape.tp,
            shape.is_sequence_parallel ? " with sequence parallelism" : "");
    return MIST_OK;
}
