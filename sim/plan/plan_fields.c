/* Tables of the fields of plan.json. See plan_fields.h. */
#include "sim/plan/plan_fields.h"

#include "sim/plan/plan.h"

#include <string.h>

#define SIZE_OF(struct_, member_) sizeof(((struct struct_ *)0)->member_)
#define FIELD(type_, struct_, key_, member_)                                             \
    {                                                                                    \
        key_, type_, offsetof(struct struct_, member_), SIZE_OF(struct_, member_)        \
    }

const struct mist_plan_field mist_plan_model_fields[] = {
    FIELD(MIST_FIELD_CHARS, mist_model, "name", name),
    FIELD(MIST_FIELD_FAMILY, mist_model, "family", family),
    FIELD(MIST_FIELD_INT32, mist_model, "n_layers", n_layers),
    FIELD(MIST_FIELD_INT32, mist_model, "hidden", hidden),
    FIELD(MIST_FIELD_INT32, mist_model, "n_heads", n_heads),
    FIELD(MIST_FIELD_INT32, mist_model, "n_kv_heads", n_kv_heads),
    FIELD(MIST_FIELD_INT32, mist_model, "head_dim", head_dim),
    FIELD(MIST_FIELD_INT32, mist_model, "ffn", ffn),
    FIELD(MIST_FIELD_INT32, mist_model, "vocab", vocab),
    FIELD(MIST_FIELD_INT32, mist_model, "max_seq", max_seq),
    FIELD(MIST_FIELD_BOOL, mist_model, "has_bias", has_bias),
    FIELD(MIST_FIELD_BOOL, mist_model, "ties_embeddings", ties_embeddings),
    FIELD(MIST_FIELD_DOUBLE, mist_model, "norm_epsilon", norm_epsilon),
    FIELD(MIST_FIELD_DOUBLE, mist_model, "rope_theta", rope_theta),
    FIELD(MIST_FIELD_ROPE_SCALING, mist_model, "rope_scaling", rope_scaling),
    FIELD(MIST_FIELD_AMOUNT, mist_model, "rope_factor", rope_factor),
    FIELD(MIST_FIELD_AMOUNT, mist_model, "rope_low_frequency_factor",
          rope_low_frequency_factor),
    FIELD(MIST_FIELD_AMOUNT, mist_model, "rope_high_frequency_factor",
          rope_high_frequency_factor),
    FIELD(MIST_FIELD_COUNT, mist_model, "rope_original_positions",
          rope_original_positions),
    FIELD(MIST_FIELD_COUNT, mist_model, "rotary_dim", rotary_dim),
    FIELD(MIST_FIELD_COUNT, mist_model, "window", window),
    FIELD(MIST_FIELD_FLAG, mist_model, "exact_gelu", has_exact_gelu),
    FIELD(MIST_FIELD_NOTE, mist_model, "unsupported", unsupported),
    {NULL, MIST_FIELD_BOOL, 0, 0},
};

const struct mist_plan_field mist_plan_job_fields[] = {
    FIELD(MIST_FIELD_INT64, mist_job, "global_batch", global_batch),
    FIELD(MIST_FIELD_INT32, mist_job, "seq_len", seq_len),
    FIELD(MIST_FIELD_DTYPE, mist_job, "dtype", dtype),
    FIELD(MIST_FIELD_DTYPE_IF_NOT_FP32, mist_job, "gradient_dtype", gradient_dtype),
    FIELD(MIST_FIELD_COUNT, mist_job, "threads", threads),
    FIELD(MIST_FIELD_FLAG, mist_job, "gpu", computes_on_gpu),
    FIELD(MIST_FIELD_FRAMEWORK, mist_job, "framework", framework),
    FIELD(MIST_FIELD_ATTENTION, mist_job, "attention", attention),
    FIELD(MIST_FIELD_FLAG, mist_job, "recompute_attention", recomputes_attention),
    FIELD(MIST_FIELD_FLAG, mist_job, "no_dropout", has_no_dropout),
    FIELD(MIST_FIELD_FLAG, mist_job, "overlap", overlaps),
    FIELD(MIST_FIELD_FLAG, mist_job, "launch_blocking", blocks_launches),
    {NULL, MIST_FIELD_BOOL, 0, 0},
};

const struct mist_plan_field mist_plan_cluster_fields[] = {
    FIELD(MIST_FIELD_CHARS, mist_plan, "trace_set", trace_set),
    FIELD(MIST_FIELD_HEX64, mist_plan, "fingerprint", fingerprint),
    FIELD(MIST_FIELD_INT64, mist_plan, "device_memory_bytes", device_memory_bytes),
    {NULL, MIST_FIELD_BOOL, 0, 0},
};

const struct mist_plan_field mist_plan_stage_fields[] = {
    FIELD(MIST_FIELD_INT32, mist_stage_plan, "layers", n_layers),
    FIELD(MIST_FIELD_INT32, mist_stage_plan, "mesh_nodes", n_nodes),
    FIELD(MIST_FIELD_INT32, mist_stage_plan, "mesh_devices", n_devices),
    FIELD(MIST_FIELD_INT32, mist_stage_plan, "micro_batch", micro_batch),
    FIELD(MIST_FIELD_INT32, mist_stage_plan, "dp", dp),
    FIELD(MIST_FIELD_INT32, mist_stage_plan, "tp", tp),
    {"zero", MIST_FIELD_ZERO, 0, 0},
    FIELD(MIST_FIELD_FLAG, mist_stage_plan, "sequence_parallel", is_sequence_parallel),
    FIELD(MIST_FIELD_INT32, mist_stage_plan, "checkpointed_layers", n_checkpointed),
    FIELD(MIST_FIELD_COUNT, mist_stage_plan, "lean_layers", n_lean),
    FIELD(MIST_FIELD_FRACTION, mist_stage_plan, "offload_weights_frac", offload_weights),
    FIELD(MIST_FIELD_FRACTION, mist_stage_plan, "offload_gradients_frac",
          offload_gradients),
    FIELD(MIST_FIELD_FRACTION, mist_stage_plan, "offload_optimizer_frac",
          offload_optimizer),
    FIELD(MIST_FIELD_FRACTION, mist_stage_plan, "offload_activations_frac",
          offload_activations),
    FIELD(MIST_FIELD_PLACE, mist_stage_plan, "update_on", updates_on_host),
    {NULL, MIST_FIELD_BOOL, 0, 0},
};

const struct mist_plan_field mist_plan_pass_fields[] = {
    FIELD(MIST_FIELD_INT32, mist_pipeline_pass, "forward_us", forward_us),
    FIELD(MIST_FIELD_INT32, mist_pipeline_pass, "input_gradient_us", input_us),
    FIELD(MIST_FIELD_INT32, mist_pipeline_pass, "weight_gradient_us", weight_us),
    FIELD(MIST_FIELD_COUNT, mist_pipeline_pass, "transfer_us", transfer_us),
    FIELD(MIST_FIELD_AMOUNT, mist_pipeline_pass, "freed_frac", freed_frac),
    {NULL, MIST_FIELD_BOOL, 0, 0},
};

const struct mist_plan_field mist_plan_predicted_fields[] = {
    FIELD(MIST_FIELD_DOUBLE, mist_prediction, "iteration_s", iteration_s),
    FIELD(MIST_FIELD_DOUBLE, mist_prediction, "error_s", error_s),
    FIELD(MIST_FIELD_DOUBLE, mist_prediction, "extrapolated_frac", extrapolated_frac),
    FIELD(MIST_FIELD_AMOUNT, mist_prediction, "probe_s", probe_s),
    {NULL, MIST_FIELD_BOOL, 0, 0},
};

const struct mist_plan_field mist_plan_predicted_stage_fields[] = {
    FIELD(MIST_FIELD_INT64, mist_prediction, "peak_bytes", peak_bytes),
    FIELD(MIST_FIELD_DOUBLE, mist_prediction, "stable_s", stable_s),
    FIELD(MIST_FIELD_DOUBLE, mist_prediction, "extra_s", extra_s),
    {NULL, MIST_FIELD_BOOL, 0, 0},
};

_Static_assert(sizeof(int64_t) == MIST_PLAN_PREDICTED_STRIDE,
               "elements of a prediction have one size");

bool mist_plan_stages_are_same(const struct mist_stage_plan *a,
                               const struct mist_stage_plan *b)
{
    bool is_same = a->shards_optimizer == b->shards_optimizer &&
                   a->shards_gradients == b->shards_gradients &&
                   a->shards_weights == b->shards_weights;

    for (const struct mist_plan_field *f = mist_plan_stage_fields; f->key; f++)
        is_same = is_same && memcmp((const char *)a + f->offset,
                                    (const char *)b + f->offset, f->size) == 0;
    return is_same;
}
