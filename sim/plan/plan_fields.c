/* Tables of the fields of plan.json. See plan_fields.h. */
#include "sim/plan/plan_fields.h"

#include "sim/plan/plan.h"

#include <string.h>

#define FIELD       MIST_JSON_FIELD
#define KEYED       MIST_JSON_KEYED
#define WHOLE       .type = MIST_FIELD_WHOLE
#define DOUBLE      .type = MIST_FIELD_DOUBLE
#define FRACTION    .type = MIST_FIELD_FRACTION
#define BOOL        .type = MIST_FIELD_BOOL
#define CHARS       .type = MIST_FIELD_CHARS
#define HEX64       .type = MIST_FIELD_HEX64
#define WORD(texts) .type = MIST_FIELD_WORD, .words = texts
#define IF_SET      .is_left_out = true
#define OBJECT(of)  .type = MIST_FIELD_OBJECT, .members = of

static const char *const places[] = {"device", "host", NULL};

const struct mist_json_field mist_plan_model_fields[] = {
    FIELD(mist_model, name, CHARS),
    FIELD(mist_model, family, WORD(mist_family_words)),
    FIELD(mist_model, n_layers, WHOLE),
    FIELD(mist_model, hidden, WHOLE),
    FIELD(mist_model, n_heads, WHOLE),
    FIELD(mist_model, n_kv_heads, WHOLE),
    FIELD(mist_model, head_dim, WHOLE),
    FIELD(mist_model, ffn, WHOLE),
    FIELD(mist_model, vocab, WHOLE),
    FIELD(mist_model, max_seq, WHOLE),
    FIELD(mist_model, has_bias, BOOL),
    FIELD(mist_model, ties_embeddings, BOOL),
    FIELD(mist_model, norm_epsilon, DOUBLE),
    FIELD(mist_model, rope_theta, DOUBLE),
    FIELD(mist_model, rope_scaling, WORD(mist_rope_scaling_words), IF_SET),
    FIELD(mist_model, rope_factor, DOUBLE, IF_SET),
    FIELD(mist_model, rope_low_frequency_factor, DOUBLE, IF_SET),
    FIELD(mist_model, rope_high_frequency_factor, DOUBLE, IF_SET),
    FIELD(mist_model, rope_original_positions, WHOLE, IF_SET),
    FIELD(mist_model, rotary_dim, WHOLE, IF_SET),
    FIELD(mist_model, window, WHOLE, IF_SET),
    KEYED(mist_model, "exact_gelu", has_exact_gelu, BOOL, IF_SET),
    FIELD(mist_model, unsupported, CHARS, IF_SET),
    {.key = NULL},
};

const struct mist_json_field mist_plan_job_fields[] = {
    FIELD(mist_job, global_batch, WHOLE),
    FIELD(mist_job, seq_len, WHOLE),
    FIELD(mist_job, dtype, WORD(mist_dtype_words)),
    FIELD(mist_job, gradient_dtype, WORD(mist_dtype_words), IF_SET),
    FIELD(mist_job, threads, WHOLE, IF_SET),
    KEYED(mist_job, "gpu", computes_on_gpu, BOOL, IF_SET),
    FIELD(mist_job, framework, WORD(mist_framework_words), IF_SET),
    FIELD(mist_job, attention, WORD(mist_attention_ways), IF_SET),
    KEYED(mist_job, "recompute_attention", recomputes_attention, BOOL, IF_SET),
    KEYED(mist_job, "no_dropout", has_no_dropout, BOOL, IF_SET),
    KEYED(mist_job, "overlap", overlaps, BOOL, IF_SET),
    KEYED(mist_job, "launch_blocking", blocks_launches, BOOL, IF_SET),
    KEYED(mist_job, "fp8", has_fp8_products, BOOL, IF_SET),
    KEYED(mist_job, "fp16_loss", has_fp16_loss, BOOL, IF_SET),
    KEYED(mist_job, "fused_loss", has_fused_loss, BOOL, IF_SET),
    KEYED(mist_job, "tp_overlap", cuts_products, BOOL, IF_SET),
    FIELD(mist_job, steps_apart, BOOL, IF_SET),
    FIELD(mist_job, reduce_bucket, WHOLE, IF_SET),
    FIELD(mist_job, sub_group, WHOLE, IF_SET),
    {.key = NULL},
};

static const struct mist_json_field cluster_fields[] = {
    FIELD(mist_plan, trace_set, CHARS),
    FIELD(mist_plan, fingerprint, HEX64),
    FIELD(mist_plan, device_memory_bytes, WHOLE),
    {.key = NULL},
};

const struct mist_json_field mist_plan_stage_fields[] = {
    KEYED(mist_stage_plan, "layers", n_layers, WHOLE),
    KEYED(mist_stage_plan, "mesh_nodes", n_nodes, WHOLE),
    KEYED(mist_stage_plan, "mesh_devices", n_devices, WHOLE),
    FIELD(mist_stage_plan, micro_batch, WHOLE),
    FIELD(mist_stage_plan, dp, WHOLE),
    FIELD(mist_stage_plan, tp, WHOLE),
    FIELD(mist_stage_plan, cp, WHOLE, IF_SET, .none = 1),
    FIELD(mist_stage_plan, zero, WHOLE, .limits = MIST_FIELD_FROM_0,
          .most = MIST_ZERO_MAX),
    KEYED(mist_stage_plan, "sequence_parallel", is_sequence_parallel, BOOL, IF_SET),
    KEYED(mist_stage_plan, "checkpointed_layers", n_checkpointed, WHOLE),
    KEYED(mist_stage_plan, "lean_layers", n_lean, WHOLE, IF_SET),
    KEYED(mist_stage_plan, "offload_weights_frac", offload_weights, FRACTION),
    KEYED(mist_stage_plan, "offload_gradients_frac", offload_gradients, FRACTION),
    KEYED(mist_stage_plan, "offload_optimizer_frac", offload_optimizer, FRACTION),
    KEYED(mist_stage_plan, "offload_activations_frac", offload_activations, FRACTION),
    KEYED(mist_stage_plan, "update_on", updates_on_host, WORD(places), IF_SET),
    {.key = NULL},
};

const struct mist_json_field mist_plan_pass_fields[] = {
    FIELD(mist_pipeline_pass, forward_us, WHOLE),
    KEYED(mist_pipeline_pass, "input_gradient_us", input_us, WHOLE),
    KEYED(mist_pipeline_pass, "weight_gradient_us", weight_us, WHOLE),
    FIELD(mist_pipeline_pass, transfer_us, WHOLE, IF_SET),
    FIELD(mist_pipeline_pass, freed_frac, DOUBLE, IF_SET),
    {.key = NULL},
};

const struct mist_json_field mist_plan_predicted_fields[] = {
    FIELD(mist_prediction, iteration_s, DOUBLE),
    FIELD(mist_prediction, error_s, DOUBLE),
    FIELD(mist_prediction, extrapolated_frac, DOUBLE),
    FIELD(mist_prediction, probe_s, DOUBLE, IF_SET),
    FIELD(mist_prediction, alone_frac, DOUBLE, IF_SET),
    {.key = "stages", .type = MIST_FIELD_OTHER},
    {.key = NULL},
};

const struct mist_json_field mist_plan_predicted_stage_fields[] = {
    KEYED(mist_prediction, "peak_bytes", peak_bytes[0], WHOLE),
    KEYED(mist_prediction, "stable_s", stable_s[0], DOUBLE),
    KEYED(mist_prediction, "extra_s", extra_s[0], DOUBLE),
    {.key = NULL},
};

const struct mist_json_field mist_plan_fields[] = {
    {.key = "format", .type = MIST_FIELD_OTHER},
    FIELD(mist_plan, model, OBJECT(mist_plan_model_fields)),
    FIELD(mist_plan, job, OBJECT(mist_plan_job_fields)),
    {.key = "cluster", OBJECT(cluster_fields)},
    FIELD(mist_plan, pipeline, WORD(mist_pipeline_words)),
    KEYED(mist_plan, "chunks", n_chunks, WHOLE, IF_SET, .none = 1),
    FIELD(mist_plan, reduces_each_micro_batch, BOOL, IF_SET),
    FIELD(mist_plan, n_micro_batches, WHOLE),
    {.key = "stages", .type = MIST_FIELD_OTHER},
    {.key = "passes", .type = MIST_FIELD_OTHER},
    {.key = "predicted", .type = MIST_FIELD_OTHER},
    {.key = NULL},
};

_Static_assert(sizeof(int64_t) == MIST_PLAN_PREDICTED_STRIDE,
               "elements of a prediction have one size");

bool mist_plan_stages_are_same(const struct mist_stage_plan *a,
                               const struct mist_stage_plan *b)
{
    bool is_same = true;

    for (const struct mist_json_field *f = mist_plan_stage_fields; f->key; f++)
        is_same = is_same && memcmp((const char *)a + f->offset,
                                    (const char *)b + f->offset, f->size) == 0;
    return is_same;
}

bool mist_plan_is_same(const struct mist_plan *a, const struct mist_plan *b)
{
    bool is_same = a->n_micro_batches == b->n_micro_batches &&
                   a->n_stages == b->n_stages && a->pipeline == b->pipeline &&
                   a->n_chunks == b->n_chunks;

    for (int32_t i = 0; i < a->n_stages && is_same; i++)
        is_same = mist_plan_stages_are_same(&a->stages[i], &b->stages[i]);
    return is_same;
}
