/* Random plans for the closed form: pipelines in 1F1B of uneven stages, kind by kind. Include
 * behind cmocka.h. */
#ifndef MIST_TESTS_PROP_STAGE_PLANS_H
#define MIST_TESTS_PROP_STAGE_PLANS_H

#include "tests/unit/test.h"

#include "core/random.h"
#include "sim/plan/plan.h"
#include "tests/unit/pick.h"
#include "tests/unit/tiny_models.h"

#include <math.h>

enum { MAX_STAGES = 4 };

/* ------------------------------------------------------------------------------ plans */

static inline void random_model(struct mist_random *random, bool is_plain,
                                struct mist_model *out)
{
    bool is_llama = pick(random, 0, 1);
    int32_t heads = 2 * pick(random, is_plain ? 1 : 3, 6);

    *out = (struct mist_model){
        .name = "random",
        .family = is_llama ? MIST_FAMILY_LLAMA : MIST_FAMILY_GPT,
        .hidden = 32 * heads,
        .n_heads = heads,
        .n_kv_heads = is_llama ? heads / 2 : heads,
        .head_dim = 32,
        .ffn = 32 * heads * (is_llama ? 3 : 4),
        .vocab = pick(random, 200, 4000),
        .max_seq = is_llama ? 0 : 256,
        .has_bias = !is_llama,
        .norm_epsilon = 1e-5,
        .rope_theta = is_llama ? 10000 : 0,
    };
}

/* What a plan may use. */
struct kind {
    const char *name;
    bool cuts, shards, offloads;
    bool is_whole; /* all of something is offloaded, or nothing */
};

static inline double random_ratio(struct mist_random *random, bool is_whole)
{
    static const double ratios[] = {0, 0, 0.25, 0.5, 0.875, 1};
    double ratio = ratios[pick(random, 0, 5)];

    return is_whole ? round(ratio) : ratio;
}

static inline void random_knobs(struct mist_random *random, const struct kind *kind,
                                struct mist_stage_plan *out)
{
    int zero = pick(random, 0, kind->shards ? 3 : 1);

    out->zero = zero;
    if (!kind->offloads)
        return;
    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        out->offload_frac[k] = random_ratio(random, kind->is_whole);
    out->updates_on_host = out->offload_optimizer > 0 && pick(random, 0, 1);
}

/* Layers within two of even, as far as a stage keeps one. Where tensors move they are not
 * the smallest, so that more than the latency of moving them counts, and stages have
 * blocks enough for the ratios to mean something. */
static inline void random_plan(struct mist_random *random, const struct kind *kind,
                               struct mist_plan *out)
{
    int32_t dp = 1 << pick(random, kind->shards && !kind->cuts, 2);
    bool is_plain = !kind->shards && !kind->offloads;
    int32_t layers = pick(random, is_plain ? 1 : 3, is_plain ? 5 : 7);
    int32_t samples = 4 << pick(random, 0, 2);

    *out = (struct mist_plan){0};
    random_model(random, is_plain, &out->model);
    int32_t tp = kind->cuts && out->model.n_kv_heads % 2 == 0 ? 2 : 1;
    bool is_sequence = tp > 1 && pick(random, 0, 1);
    struct mist_random apart = *random; /* with and without, the rest is the same */
    int32_t cp = kind->cuts && pick(&apart, 0, 2) == 0 ? 2 : 0;
    out->model.max_seq *= cp > 1 ? cp : 1;
    out->n_micro_batches = pick(random, 1, 16);
    out->n_stages = pick(random, 1, MAX_STAGES);
    out->job = (struct mist_job){
        .global_batch = (int64_t)out->n_micro_batches * samples,
        .seq_len = 64 * (cp > 1 ? cp : 1) * pick(random, 1, 4), /* ids fill whole lines */
        .dtype = pick(random, 0, 2) == 0 ? MIST_DTYPE_BF16 : MIST_DTYPE_FP32,
    };
    for (int32_t i = 0; i < out->n_stages; i++) {
        int32_t n = layers + pick(random, -1, 1);
        n = n < 1 ? 1 : n;
        out->stages[i] = (struct mist_stage_plan){
            .n_layers = n,
            .n_nodes = 1,
            .n_devices = dp * tp * (cp > 1 ? cp : 1),
            .micro_batch = samples / dp,
            .dp = dp,
            .tp = tp,
            .cp = cp,
            .is_sequence_parallel = is_sequence,
            .n_checkpointed = pick(random, 0, 2) == 0 ? 0 : pick(random, 0, n),
        };
        struct mist_random own = *random; /* with and without, the rest is the same */
        if (pick(&own, 0, 1))
            out->stages[i].n_lean = pick(&own, 0, n - out->stages[i].n_checkpointed);
        random_knobs(random, kind, &out->stages[i]);
        out->model.n_layers += n;
    }
    if (out->n_micro_batches % 2 == 0)
        out->job.gradient_dtype = out->job.dtype;
    out->model.ties_embeddings = out->n_stages == 1 && out->model.vocab % 2 == 0;
    assert_int_equal(mist_plan_check(out, NULL), MIST_OK);
}

#endif
