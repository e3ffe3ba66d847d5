/* The words of trace sets. See sim_list.h; traces/README.md has the same tables. */
#include "sim/sim_list.h"

#include "core/parse.h"
#include "sim/cost/cost_model.h"
#include "sim/model/catalog.h"
#include "sim/what_if.h"
#include "traces/preset.h"
#include "traces/trace_set.h"

#include <stdio.h>
#include <stdlib.h>

/* What times of operators include, in the order of the catalogue. */
static const struct {
    enum mist_op op;
    enum mist_phase phase;
    const char *includes;
} ops[] = {
    {MIST_OP_EMBEDDING, MIST_PHASE_FORWARD,
     "a row of the table for each token, plus one of the positions where a model learns "
     "them"},
    {MIST_OP_EMBEDDING, MIST_PHASE_BACKWARD_WEIGHT,
     "the gradient added to the same rows of the tables' gradients"},
    {MIST_OP_LAYER_NORM, MIST_PHASE_FORWARD,
     "output, and mean and deviation of each row"},
    {MIST_OP_LAYER_NORM, MIST_PHASE_BACKWARD_INPUT,
     "gradient of the input, plus the residual's; scale's and shift's added to theirs"},
    {MIST_OP_RMS_NORM, MIST_PHASE_FORWARD, "output, and the deviation of each row"},
    {MIST_OP_RMS_NORM, MIST_PHASE_BACKWARD_INPUT,
     "gradient of the input, plus the residual's; scale's added to its own"},
    {MIST_OP_RESIDUAL_LAYER_NORM, MIST_PHASE_FORWARD,
     "the sum of two tensors, written, and its layer_norm"},
    {MIST_OP_RESIDUAL_RMS_NORM, MIST_PHASE_FORWARD,
     "the sum of two tensors, written, and its rms_norm"},
    {MIST_OP_LINEAR, MIST_PHASE_FORWARD, "the product [rows, n_in] x [n_in, n_out]"},
    {MIST_OP_LINEAR, MIST_PHASE_BACKWARD_INPUT,
     "the product [rows, n_out] x [n_out, n_in]"},
    {MIST_OP_LINEAR, MIST_PHASE_BACKWARD_WEIGHT,
     "the product [n_in, rows] x [rows, n_out], added to the weight's gradient"},
    {MIST_OP_LINEAR_BIAS, MIST_PHASE_FORWARD, "the product plus the bias"},
    {MIST_OP_LINEAR_BIAS, MIST_PHASE_BACKWARD_INPUT, "the product, as linear"},
    {MIST_OP_LINEAR_BIAS, MIST_PHASE_BACKWARD_WEIGHT,
     "the product and the sums over rows, added to both gradients"},
    {MIST_OP_LINEAR_GELU, MIST_PHASE_FORWARD,
     "the product plus the bias, written, and its GELU"},
    {MIST_OP_LINEAR_GELU, MIST_PHASE_BACKWARD_INPUT,
     "the product, then back through the GELU of the layer before"},
    {MIST_OP_LINEAR_RESIDUAL, MIST_PHASE_FORWARD,
     "the product plus the bias plus a residual"},
    {MIST_OP_LINEAR_RESIDUAL, MIST_PHASE_BACKWARD_INPUT,
     "the product plus the residual's gradient"},
    {MIST_OP_ATTENTION, MIST_PHASE_FORWARD,
     "causal: scores, softmax and values, and the logarithm of each row's sum"},
    {MIST_OP_ATTENTION, MIST_PHASE_BACKWARD_INPUT,
     "causal: scores once more, gradients of queries, keys and values"},
    {MIST_OP_ROPE, MIST_PHASE_FORWARD, "queries and keys turned in place"},
    {MIST_OP_ROPE, MIST_PHASE_BACKWARD_INPUT, "their gradients turned back in place"},
    {MIST_OP_GELU, MIST_PHASE_FORWARD,
     "GELU alone; prices linear_gelu where that has no rows"},
    {MIST_OP_GELU, MIST_PHASE_BACKWARD_INPUT,
     "back through it; prices linear_gelu where that has no rows"},
    {MIST_OP_SWIGLU, MIST_PHASE_FORWARD,
     "silu(gate) times up, of one tensor [rows, 2 width]"},
    {MIST_OP_SWIGLU, MIST_PHASE_BACKWARD_INPUT, "gradients of gate and up"},
    {MIST_OP_RESIDUAL, MIST_PHASE_FORWARD, "the sum of two arrays, also of gradients"},
    {MIST_OP_CROSS_ENTROPY, MIST_PHASE_FORWARD,
     "losses and gradients of logits; prices linear_cross_entropy where that has no "
     "rows"},
    {MIST_OP_LINEAR_CROSS_ENTROPY, MIST_PHASE_FORWARD,
     "logits, losses, the gradient of the input; the weight's added to its own"},
    {MIST_OP_ADAMW, MIST_PHASE_OPTIMIZER,
     "weights and both moments of a shard; in bf16 its masters, too"},
    {MIST_OP_ZERO, MIST_PHASE_OPTIMIZER, "zeros written over gradients"},
    {MIST_OP_CROSS_ENTROPY_STATS, MIST_PHASE_FORWARD,
     "maximum, sum and target's logit of each row of a slice of the vocabulary"},
    {MIST_OP_CROSS_ENTROPY_PARALLEL, MIST_PHASE_FORWARD,
     "losses and gradients of a slice's logits, from the statistics of all tp slices"},
    {MIST_OP_GRADIENT_NORM, MIST_PHASE_OPTIMIZER, "the sum of squares of gradients"},
    {MIST_OP_ADAMW_HOST, MIST_PHASE_OPTIMIZER,
     "adamw by the host's processors, in its memory"},
    {MIST_OP_HEAD_NORM, MIST_PHASE_FORWARD,
     "RMS norms of each head of queries and keys, in place"},
    {MIST_OP_HEAD_NORM, MIST_PHASE_BACKWARD_INPUT,
     "their gradients in place; added to those of both weights"},
};

static const struct {
    const char *bytes, *includes;
} links[MIST_N_LINK_OPERATIONS] = {
    [MIST_LINK_ALL_REDUCE] = {"the message",
                              "from the last rank's start until all have the sum"},
    [MIST_LINK_ALL_GATHER] = {"the gathered output",
                              "from the last rank's start until all have it"},
    [MIST_LINK_REDUCE_SCATTER] =
        {"the full input", "from the last rank's start until all have their parts"},
    [MIST_LINK_SEND_RECV] = {"the message",
                             "from both ranks' start until it is there, one way"},
    [MIST_LINK_HOST_TO_DEVICE] = {"the copy",
                                  "pinned memory, all devices of the node at once"},
    [MIST_LINK_DEVICE_TO_HOST] = {"the copy",
                                  "pinned memory, all devices of the node at once"},
};

/* "rows;n_in;n_out" */
static const char *dims_text(enum mist_op op, char *text, size_t size)
{
    const char *const *names = mist_op_dims(op);

    text[0] = '\0';
    for (int i = 0; names[i]; i++)
        mist_text_add(text, size, ";", "%s", names[i]);
    return text;
}

static void emit_op(struct mist_emit *emit, enum mist_op op, enum mist_phase phase,
                    const char *includes)
{
    char dims[128];

    mist_emit_object_begin(emit, NULL, NULL);
    mist_emit_text(emit, "op", NULL, mist_op_name(op));
    mist_emit_text(emit, "phase", NULL, mist_phase_words[phase]);
    mist_emit_text(emit, "shape", NULL, dims_text(op, dims, sizeof dims));
    mist_emit_text(emit, "includes", "time includes", includes);
    mist_emit_object_end(emit);
}

void mist_sim_list_add(struct mist_emit *emit)
{
    const char *name, *takes, *meaning;

    mist_emit_list_begin(emit, "operators", "Operators, of kernels.csv");
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        emit_op(emit, ops[i].op, ops[i].phase, ops[i].includes);
    mist_emit_list_end(emit);
    mist_emit_list_begin(emit, "links", "Messages and copies, of links.csv");
    for (int i = 0; i < MIST_N_LINK_OPERATIONS; i++) {
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_text(emit, "operation", NULL, mist_link_operation_words[i]);
        mist_emit_text(emit, "group", NULL, "nodes;ranks_per_node;concurrent_groups");
        mist_emit_text(emit, "bytes", NULL, links[i].bytes);
        mist_emit_text(emit, "includes", "time includes", links[i].includes);
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
    mist_emit_list_begin(emit, "what_if",
                         "Names of --what-if, of which 2x is twice as fast, or as much");
    for (int i = 0; mist_what_if_name(i, &name, &takes, &meaning); i++) {
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_text(emit, "name", NULL, name);
        mist_emit_text(emit, "takes", NULL, takes);
        mist_emit_text(emit, "meaning", NULL, meaning);
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}

/* "all_reduce of 2 x 8, 4 at once" */
static const char *name_link(const struct mist_link_fit *fit, char *text, size_t size)
{
    char groups[32] = "";

    if (fit->group.concurrent_groups > 1)
        snprintf(groups, sizeof groups, ", %d at once", fit->group.concurrent_groups);
    snprintf(text, size, "%s of %d x %d%s", mist_link_operation_words[fit->operation],
             fit->group.nodes, fit->group.ranks_per_node, groups);
    return text;
}

enum mist_status mist_sim_list_add_links(struct mist_emit *emit, const char *cluster,
                                         struct mist_err *err)
{
    struct mist_trace_set traces;
    struct mist_cost_model *model = NULL;
    struct mist_link_fit *fits = NULL;
    size_t n = 0;
    enum mist_status status = mist_trace_set_open(&traces, cluster, err);

    if (status == MIST_OK)
        status = mist_cost_model_new(&traces, &model, err);
    if (status == MIST_OK)
        status = mist_cost_link_fits(model, &fits, &n, err);
    if (status == MIST_OK && n == 0)
        status = mist_err_at(err, MIST_ERR_INPUT, cluster, 0, 0,
                             "has no link with three measured sizes");
    if (status == MIST_OK)
        mist_emit_list_begin(emit, "links", "Links, and what their other sizes say");
    for (size_t i = 0; i < n && status == MIST_OK; i++) {
        char name[96];
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_text(emit, "name", "link", name_link(&fits[i], name, sizeof name));
        mist_emit_integer(emit, "bytes", NULL, fits[i].bytes);
        mist_emit_number(emit, "measured_us", "measured", 1e6 * fits[i].measured_s);
        mist_emit_number(emit, "fitted_us", "by the others", 1e6 * fits[i].fitted_s);
        mist_emit_number(emit, "residual_frac", "off by",
                         fits[i].fitted_s / fits[i].measured_s - 1);
        mist_emit_object_end(emit);
    }
    if (status == MIST_OK)
        mist_emit_list_end(emit);
    free(fits);
    mist_cost_model_free(model);
    mist_trace_set_fini(&traces);
    return status;
}
