/* A good plan.json that tests break piece by piece. Include after cmocka.h. */
#ifndef MIST_TESTS_UNIT_PLAN_SAMPLE_H
#define MIST_TESTS_UNIT_PLAN_SAMPLE_H

#include "sim/plan/plan.h"
#include "tests/unit/scratch.h"

/*
 * Stages keep keys of one name on different lines; stage 1 is the one most cases break.
 */
static const char good_json[] =
    "{\"format\": 1,\n"
    "\"model\": {\"name\": \"tiny\", \"family\": \"gpt\",\n"
    "\"n_layers\": 12,\n"
    "\"hidden\": 256, \"n_heads\": 4, \"n_kv_heads\": 4,\n"
    "\"head_dim\": 64, \"ffn\": 1024, \"vocab\": 256,\n"
    "\"max_seq\": 1024, \"has_bias\": true,\n"
    "\"ties_embeddings\": false,\n"
    "\"norm_epsilon\": 1e-5, \"rope_theta\": 0},\n"
    "\"job\": {\n"
    "\"global_batch\": 16,\n"
    "\"seq_len\": 512,\n"
    "\"dtype\": \"fp32\", \"threads\": 4},\n"
    "\"cluster\": {\n"
    "\"trace_set\": \"traces/sets/cpu\",\n"
    "\"fingerprint\": \"00ff00ff00ff00ff\",\n"
    "\"device_memory_bytes\": 1073741824},\n"
    "\"pipeline\": \"1f1b\",\n"
    "\"n_micro_batches\": 4,\n"
    "\"stages\": [\n"
    "{\"layers\": 5, \"mesh_nodes\": 1, \"mesh_devices\": 2,\n"
    "\"micro_batch\": 2, \"dp\": 2, \"tp\": 1, \"zero\": 2,\n"
    "\"checkpointed_layers\": 0,\n"
    "\"offload_optimizer_frac\": 0.5},\n"
    "{\n"
    "\"layers\": 7,\n"
    "\"mesh_nodes\": 2,\n"
    "\"mesh_devices\": 4,\n"
    "\"micro_batch\": 1,\n"
    "\"dp\": 4,\n"
    "\"tp\": 2, \"zero\": 0,\n"
    "\"checkpointed_layers\": 7,\n"
    "\"offload_weights_frac\": 0.25,\n"
    "\"offload_gradients_frac\": 0.75,\n"
    "\"offload_optimizer_frac\": 1,\n"
    "\"update_on\": \"host\",\n"
    "\"offload_activations_frac\": 0.125}],\n"
    "\"predicted\": {\n"
    "\"iteration_s\": 1.5, \"error_s\": 0.1,\n"
    "\"extrapolated_frac\": 0.25,\n"
    "\"stages\": [\n"
    "{\"peak_bytes\": 5, \"stable_s\": 0.5, \"extra_s\": -1},\n"
    "{\"peak_bytes\": 6, \"stable_s\": 0.75, \"extra_s\": 2}]}\n"
    "}\n";

static inline enum mist_status load_text(const char *text, struct mist_plan *plan,
                                         struct mist_err *err)
{
    struct scratch scratch;
    enum mist_status status;

    scratch_init(&scratch);
    scratch_write(scratch_path(&scratch, "plan.json"), text);
    status = mist_plan_load(scratch.path, plan, err);
    scratch_fini(&scratch);
    return status;
}

static inline void load_good(struct mist_plan *plan)
{
    struct mist_err err = {0};

    if (load_text(good_json, plan, &err))
        fail_msg("line %ld: %s", err.line, err.message);
}

#endif
