/* The operator table: names, phases and dimensions. See catalog.h. */
#include "sim/catalog.h"

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
    [MIST_OP_ATTENTION] = {"attention",
                           {"batch", "seq", "heads", "kv_heads", "head_dim"}},
    [MIST_OP_ROPE] = {"rope", {"batch", "seq", "heads", "kv_heads", "head_dim"}},
    [MIST_OP_GELU] = {"gelu", {"elements"}},
    [MIST_OP_SWIGLU] = {"swiglu", {"rows", "width"}},
    [MIST_OP_RESIDUAL] = {"residual", {"elements"}},
    [MIST_OP_CROSS_ENTROPY] = {"cross_entropy", {"rows", "vocab"}},
    [MIST_OP_ADAMW] = {"adamw", {"elements"}},
    [MIST_OP_ZERO] = {"zero", {"elements"}},
    [MIST_OP_CROSS_ENTROPY_STATS] = {"cross_entropy_stats", {"rows", "vocab"}},
    [MIST_OP_CROSS_ENTROPY_PARALLEL] = {"cross_entropy_parallel",
                                        {"rows", "vocab", "tp"}},
    [MIST_OP_GRADIENT_NORM] = {"gradient_norm", {"elements"}},
    [MIST_OP_TP_ALL_REDUCE] = {"tp_all_reduce", {"bytes"}},
    [MIST_OP_TP_REDUCE_SCATTER] = {"tp_reduce_scatter", {"bytes"}},
    [MIST_OP_TP_ALL_GATHER] = {"tp_all_gather", {"bytes"}},
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
