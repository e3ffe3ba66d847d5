/* The operator table: names, phases, dimensions, and what operators are made of. See
 * catalog.h. */
#include "sim/model/catalog.h"

#include "sim/model/catalog_internal.h" /* FLOP per element */

#include <inttypes.h>
#include <stdio.h>

struct op_row {
    const char *name;
    const char *dims[MIST_MAX_DIMS + 1]; /* NULL-terminated */
};

static const struct op_row op_table[MIST_N_OPS] = {
    [MIST_OP_EMBEDDING] = {"embedding", {"rows", "hidden", "vocab"}},
    [MIST_OP_LAYER_NORM] = {"layer_norm", {"rows", "hidden"}},
    [MIST_OP_RMS_NORM] = {"rms_norm", {"rows", "hidden"}},
    [MIST_OP_RESIDUAL_LAYER_NORM] = {"residual_layer_norm", {"rows", "hidden"}},
    [MIST_OP_RESIDUAL_RMS_NORM] = {"residual_rms_norm", {"rows", "hidden"}},
    [MIST_OP_LINEAR] = {"linear", {"rows", "n_in", "n_out"}},
    [MIST_OP_LINEAR_BIAS] = {"linear_bias", {"rows", "n_in", "n_out"}},
    [MIST_OP_LINEAR_GELU] = {"linear_gelu", {"rows", "n_in", "n_out"}},
    [MIST_OP_LINEAR_RESIDUAL] = {"linear_residual", {"rows", "n_in", "n_out"}},
    [MIST_OP_ATTENTION] = {"attention",
                           {"batch", "seq", "heads", "kv_heads", "head_dim"}},
    [MIST_OP_ROPE] = {"rope", {"batch", "seq", "heads", "kv_heads", "head_dim"}},
    [MIST_OP_GELU] = {"gelu", {"elements"}},
    [MIST_OP_SWIGLU] = {"swiglu", {"rows", "width"}},
    [MIST_OP_RESIDUAL] = {"residual", {"elements"}},
    [MIST_OP_CROSS_ENTROPY] = {"cross_entropy", {"rows", "vocab"}},
    [MIST_OP_LINEAR_CROSS_ENTROPY] = {"linear_cross_entropy",
                                      {"rows", "hidden", "vocab"}},
    [MIST_OP_ADAMW] = {"adamw", {"elements"}},
    [MIST_OP_ZERO] = {"zero", {"elements"}},
    [MIST_OP_CROSS_ENTROPY_STATS] = {"cross_entropy_stats", {"rows", "vocab"}},
    [MIST_OP_CROSS_ENTROPY_PARALLEL] = {"cross_entropy_parallel",
                                        {"rows", "vocab", "tp"}},
    [MIST_OP_GRADIENT_NORM] = {"gradient_norm", {"elements"}},
    [MIST_OP_TP_ALL_REDUCE] = {"tp_all_reduce", {"bytes"}},
    [MIST_OP_TP_REDUCE_SCATTER] = {"tp_reduce_scatter", {"bytes"}},
    [MIST_OP_TP_ALL_GATHER] = {"tp_all_gather", {"bytes"}},
    [MIST_OP_ADAMW_HOST] = {"adamw_host", {"elements"}},
};

static const char *const phase_names[MIST_N_PHASES] = {
    [MIST_PHASE_FORWARD] = "forward",
    [MIST_PHASE_BACKWARD_INPUT] = "backward_input",
    [MIST_PHASE_BACKWARD_WEIGHT] = "backward_weight",
    [MIST_PHASE_OPTIMIZER] = "optimizer",
};

const char *mist_op_name(enum mist_op op)
{
    return op_table[op].name;
}

const char *mist_phase_name(enum mist_phase phase)
{
    return phase_names[phase];
}

const char *const *mist_op_dims(enum mist_op op)
{
    return op_table[op].dims;
}

bool mist_op_adds_gradients(enum mist_op op, enum mist_phase phase)
{
    bool is_norm = op == MIST_OP_LAYER_NORM || op == MIST_OP_RMS_NORM;

    return phase == MIST_PHASE_BACKWARD_WEIGHT || op == MIST_OP_LINEAR_CROSS_ENTROPY ||
           (phase == MIST_PHASE_BACKWARD_INPUT && is_norm);
}

bool mist_op_has_losses(enum mist_op op)
{
    return op == MIST_OP_LINEAR_CROSS_ENTROPY || op == MIST_OP_CROSS_ENTROPY_PARALLEL;
}

/* ------------------------------------------------------------------------------ parts */

/* Work as the declarations of catalog_step.c and catalog.c have it. */
static struct mist_op_part linear_part(enum mist_op op, enum mist_phase phase,
                                       const int64_t dims[MIST_MAX_DIMS], int32_t element)
{
    double rows = (double)dims[0], n_in = (double)dims[1], n_out = (double)dims[2];

    return (struct mist_op_part){
        .op = op,
        .phase = phase,
        .dims = {dims[0], dims[1], dims[2]},
        .flop = 2 * rows * n_in * n_out,
        .bytes = element * (rows * n_in + rows * n_out + n_in * n_out),
    };
}

/* Elements that a linear layer's product has. */
static int64_t n_results(enum mist_phase phase, const int64_t dims[MIST_MAX_DIMS])
{
    return dims[0] * dims[phase == MIST_PHASE_FORWARD ? 2 : 1];
}

static struct mist_op_part residual_part(int64_t n, int32_t element)
{
    return (struct mist_op_part){
        .op = MIST_OP_RESIDUAL,
        .phase = MIST_PHASE_FORWARD,
        .dims = {n},
        .flop = (double)n,
        .bytes = element * 3.0 * (double)n,
    };
}

static struct mist_op_part gelu_part(enum mist_phase phase, int64_t n, int32_t element)
{
    bool is_forward = phase == MIST_PHASE_FORWARD;

    return (struct mist_op_part){
        .op = MIST_OP_GELU,
        .phase = phase,
        .dims = {n},
        .flop = (is_forward ? MIST_FLOP_GELU : MIST_FLOP_GELU_BACKWARD) * (double)n,
        .bytes = element * (is_forward ? 2.0 : 3.0) * (double)n,
    };
}

static struct mist_op_part loss_part(const int64_t dims[MIST_MAX_DIMS], int32_t element)
{
    double n_logits = (double)dims[0] * (double)dims[2];

    return (struct mist_op_part){
        .op = MIST_OP_CROSS_ENTROPY,
        .phase = MIST_PHASE_FORWARD,
        .dims = {dims[0], dims[2]},
        .flop = MIST_FLOP_CROSS_ENTROPY * n_logits,
        .bytes = element * 2.0 * n_logits,
    };
}

int32_t mist_op_parts(enum mist_op op, enum mist_phase phase,
                      const int64_t dims[MIST_MAX_DIMS], enum mist_dtype dtype,
                      struct mist_op_part parts[MIST_MAX_OP_PARTS])
{
    int32_t element = mist_dtype_weight_bytes(dtype);

    switch (op) {
    case MIST_OP_LINEAR_BIAS:
        parts[0] = linear_part(MIST_OP_LINEAR, phase, dims, element);
        return 1;
    case MIST_OP_LINEAR_GELU:
        parts[0] = linear_part(MIST_OP_LINEAR_BIAS, phase, dims, element);
        parts[1] = gelu_part(phase, n_results(phase, dims), element);
        return 2;
    case MIST_OP_LINEAR_RESIDUAL:
        parts[0] = linear_part(MIST_OP_LINEAR_BIAS, phase, dims, element);
        parts[1] = residual_part(n_results(phase, dims), element);
        return 2;
    case MIST_OP_LINEAR_CROSS_ENTROPY:
        parts[0] = linear_part(MIST_OP_LINEAR, MIST_PHASE_FORWARD, dims, element);
        parts[1] = loss_part(dims, element);
        parts[2] = linear_part(MIST_OP_LINEAR, MIST_PHASE_BACKWARD_INPUT, dims, element);
        parts[3] = linear_part(MIST_OP_LINEAR, MIST_PHASE_BACKWARD_WEIGHT, dims, element);
        return 4;
    default:
        return 0;
    }
}

char *mist_op_shape_text(enum mist_op op, const int64_t dims[MIST_MAX_DIMS], char *out,
                         size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; op_table[op].dims[i] && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s=%" PRId64, i ? ";" : "",
                                 op_table[op].dims[i], dims[i]);
    return out;
}
