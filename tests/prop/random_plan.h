/* Random plans over all knobs, small enough to look at every task of every rank. */
#ifndef MIST_TESTS_RANDOM_PLAN_H
#define MIST_TESTS_RANDOM_PLAN_H

#include "tests/unit/test.h"

#include "core/random.h"
#include "sim/plan/plan.h"
#include "tests/unit/pick.h"

enum { MAX_RANKS = 64 };

static inline void draw_model(struct mist_random *random, struct mist_model *out)
{
    *out = (struct mist_model){
        .name = "tiny",
        .family = (enum mist_family)pick(random, 0, 2),
        .hidden = 24,
        .n_heads = 4,
        .n_kv_heads = 4,
        .head_dim = 6,
        .ffn = 40,
        .vocab = pick(random, 0, 1) ? 257 : 61,
        .norm_epsilon = 1e-5,
        .ties_embeddings = pick(random, 0, 1),
        .has_bias = pick(random, 0, 1),
    };
    if (out->family == MIST_FAMILY_GPT) {
        out->max_seq = 96;
        return;
    }
    out->rope_theta = 10000;
    out->has_bias = false;
    if (pick(random, 0, 1)) /* grouped queries, of Falcon the variant with two norms */
        out->n_kv_heads = 2;
    if (out->family == MIST_FAMILY_FALCON && pick(random, 0, 1))
        out->n_kv_heads = 1;
}

static inline double draw_ratio(struct mist_random *random)
{
    int kind = pick(random, 0, 5);

    return kind < 3 ? 0 : kind == 3 ? 1 : pick(random, 1, 7) / 8.0;
}

static inline void draw_stage(struct mist_random *random, int n_samples, int cp,
                              bool is_tame, const struct mist_model *model,
                              struct mist_stage_plan *out)
{
    static const int tps[] = {1, 1, 2, 2, 4};
    int tp = tps[pick(random, 0, 4)], dp = pick(random, 1, 4);
    int zero = pick(random, 0, 3);

    while (n_samples % dp != 0)
        dp--;
    if (tp == 4 && model->n_kv_heads == 2)
        tp = 2;
    *out = (struct mist_stage_plan){
        .n_nodes = 1,
        .n_devices = dp * (cp > 1 ? cp : 1) * tp,
        .dp = dp,
        .tp = tp,
        .cp = cp,
        .micro_batch = n_samples / dp,
        .is_sequence_parallel = tp > 1 && pick(random, 0, 1),
    };
    out->zero = zero;
    if (is_tame)
        return;
    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        out->offload_frac[k] = draw_ratio(random);
    out->updates_on_host = out->offload_optimizer > 0 && pick(random, 0, 1);
}

/* False: the knobs do not go together (mist_plan_check says why). */
static inline bool draw_plan(struct mist_random *random, struct mist_plan *plan)
{
    static const int samples_of[] = {1, 2, 4, 4, 6, 12}, seqs[] = {1, 4, 8, 96};
    int n_samples = samples_of[pick(random, 0, 5)], n_layers = 0;
    bool same = pick(random, 0, 2) == 0, is_tame = pick(random, 0, 4) == 0;
    struct mist_random own = *random; /* without, the rest is the same */
    int cp = pick(&own, 0, 3) ? 0 : pick(&own, 2, 4);

    *plan = (struct mist_plan){
        .n_stages = pick(random, 1, 4),
        .n_micro_batches = pick(random, 1, 8),
        .pipeline = (enum mist_pipeline_schedule)pick(random, 0, MIST_N_PIPELINES - 1),
        .reduces_each_micro_batch = pick(random, 0, 1)};
    if (plan->pipeline == MIST_PIPELINE_INTERLEAVED) {
        plan->n_stages = pick(random, 2, 3);
        plan->n_chunks = pick(random, 2, 3);
        plan->n_micro_batches = plan->n_stages * pick(random, 1, 8 / plan->n_stages);
    }
    for (int i = 0; i < plan->n_stages; i++)
        if (mist_pipeline_kinds[plan->pipeline].n_kept_per_stage > 0)
            plan->passes[i] = (struct mist_pipeline_pass){
                pick(random, 1, 9), pick(random, 1, 9), pick(random, 1, 9),
                pick(random, 0, 3), pick(random, 0, 4) * 0.25};
    if (plan->pipeline == MIST_PIPELINE_ZB_V)
        plan->n_stages = pick(random, 2, 4);
    int n_chunks = mist_plan_n_chunks(plan);
    draw_model(random, &plan->model);
    for (int i = 0; i < plan->n_stages; i++) {
        struct mist_stage_plan *stage = &plan->stages[i];
        draw_stage(random, n_samples, cp, is_tame, &plan->model, stage);
        if (same && i > 0) {
            struct mist_stage_plan *first = &plan->stages[0];
            stage->dp = first->dp;
            stage->tp = first->tp;
            stage->n_devices = first->n_devices;
            stage->micro_batch = first->micro_batch;
            stage->is_sequence_parallel = first->is_sequence_parallel;
        } else if (plan->model.ties_embeddings && i == plan->n_stages - 1 && i > 0) {
            stage->dp = plan->stages[0].dp;
            stage->tp = plan->stages[0].tp;
            stage->n_devices = plan->stages[0].n_devices;
            stage->micro_batch = plan->stages[0].micro_batch;
            stage->is_sequence_parallel = stage->tp > 1 && pick(random, 0, 1);
        }
        stage->n_layers =
            n_chunks > 1 ? n_chunks * pick(random, 1, 2) : pick(random, 1, 4);
        stage->n_checkpointed = pick(random, 0, 1) ? pick(random, 0, stage->n_layers) : 0;
        stage->n_lean = pick(random, 0, 1)
                            ? pick(random, 0, stage->n_layers - stage->n_checkpointed)
                            : 0;
        n_layers += stage->n_layers;
    }
    plan->model.n_layers = n_layers;
    plan->job = (struct mist_job){.global_batch = n_samples * plan->n_micro_batches,
                                  .seq_len = seqs[pick(random, 0, 3)]};
    return mist_plan_check(plan, NULL) == MIST_OK && mist_plan_n_ranks(plan) <= MAX_RANKS;
}

/* What is needed to find a plan again by eye. */
static inline void print_plan(const struct mist_plan *plan)
{
    printf("# %s tied %d kv %d vocab %d seq %d, %s chunks %d G %d each %d\n",
           mist_family_words[plan->model.family], plan->model.ties_embeddings,
           (int)plan->model.n_kv_heads, (int)plan->model.vocab, (int)plan->job.seq_len,
           mist_pipeline_words[plan->pipeline], (int)plan->n_chunks,
           (int)plan->n_micro_batches, plan->reduces_each_micro_batch);
    for (int32_t i = 0; i < plan->n_stages; i++) {
        const struct mist_stage_plan *s = &plan->stages[i];
        printf("#   L %d C %d N %d b %d dp %d cp %d tp %d sp %d zero %d offload w %g g "
               "%g o %g a "
               "%g update on host %d\n",
               (int)s->n_layers, (int)s->n_checkpointed, (int)s->n_lean,
               (int)s->micro_batch, (int)s->dp, (int)s->cp, (int)s->tp,
               s->is_sequence_parallel, s->zero, s->offload_weights, s->offload_gradients,
               s->offload_optimizer, s->offload_activations, s->updates_on_host);
    }
}

#endif
