/*
 * Plans: derived quantities, the check of every relation between knobs, the fingerprint.
 * Reading and writing plan.json is in plan_read.c and plan_write.c.
 *
 * The check fills a place (struct mist_plan_fault) beside the message, in the words of
 * plan.json, so that a loaded file's error gets its line without a second set of rules.
 */
#include "sim/plan/plan.h"

#include "core/hash.h"
#include "sim/model/framework.h"
#include "sim/plan/plan_fields.h"
#include "sim/plan/rank_mesh.h"

#include <math.h> /* isfinite */
#include <stdarg.h>
#include <stdio.h>  /* vsnprintf */
#include <string.h> /* memchr */

/* ---------------------------------------------------------------- derived quantities */

int64_t mist_plan_rank_tokens(const struct mist_plan *plan, int32_t i_stage)
{
    const struct mist_stage_plan *stage = &plan->stages[i_stage];

    return (int64_t)stage->micro_batch * (plan->job.seq_len / mist_stage_cp(stage));
}

int32_t mist_plan_first_rank(const struct mist_plan *plan, int32_t i_stage)
{
    int32_t rank = 0;

    for (int32_t i = 0; i < i_stage; i++)
        rank += (int32_t)mist_stage_n_ranks(&plan->stages[i]);
    return rank;
}

int32_t mist_plan_n_threads(const struct mist_plan *plan)
{
    if (plan->job.computes_on_gpu)
        return 0;
    return plan->job.threads > 0 ? plan->job.threads : 1;
}

int32_t mist_plan_n_ranks(const struct mist_plan *plan)
{
    return mist_plan_first_rank(plan, plan->n_stages);
}

bool mist_plan_overlaps(const struct mist_plan *plan)
{
    const struct mist_framework *framework = mist_framework_get(plan->job.framework);

    if (framework->takes_turns && plan->n_stages > 1)
        return false; /* DeepSpeed's pipelines switch overlap_comm off (engine.py) */
    return plan->job.overlaps && (!framework->overlaps_interleaved ||
                                  plan->pipeline == MIST_PIPELINE_INTERLEAVED);
}

int32_t mist_plan_n_chunks(const struct mist_plan *plan)
{
    int32_t n = plan->n_chunks > 0 ? plan->n_chunks
                                   : mist_pipeline_kinds[plan->pipeline].n_chunks;

    return n > 1 ? n : 1;
}

int32_t mist_plan_stage_of_virtual(const struct mist_plan *plan, int32_t i_virtual)
{
    return mist_pipeline_stage(plan->pipeline, plan->n_stages, i_virtual);
}

int32_t mist_plan_head_stage(const struct mist_plan *plan)
{
    return mist_plan_stage_of_virtual(plan,
                                      mist_plan_n_chunks(plan) * plan->n_stages - 1);
}

void mist_plan_chunk_layers(const struct mist_plan *plan, int32_t i_stage,
                            int32_t i_chunk, int32_t *first, int32_t *n)
{
    int32_t n_chunks = mist_plan_n_chunks(plan), p = plan->n_stages;
    int32_t i_virtual = mist_pipeline_virtual(plan->pipeline, p, i_stage, i_chunk);

    *first = 1 + i_chunk * (plan->model.n_layers / n_chunks);
    for (int32_t k = i_chunk * p; k < i_virtual; k++)
        *first += plan->stages[mist_plan_stage_of_virtual(plan, k)].n_layers / n_chunks;
    *n = plan->stages[i_stage].n_layers / n_chunks;
}

int32_t mist_plan_stage_of(const struct mist_plan *plan, int32_t rank)
{
    int32_t i_stage = 0;

    while (rank >= mist_stage_n_ranks(&plan->stages[i_stage]))
        rank -= (int32_t)mist_stage_n_ranks(&plan->stages[i_stage++]);
    return i_stage;
}

/* What most models have not. */
static void add_variant(struct mist_hash *hash, const struct mist_model *model)
{
    const int64_t numbers[] = {model->rope_scaling, model->rope_original_positions,
                               model->rotary_dim, model->window, model->has_exact_gelu};
    const double factors[] = {model->rope_factor, model->rope_low_frequency_factor,
                              model->rope_high_frequency_factor};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i] != 0) {
            MIST_HASH_INT64(hash, (int64_t)i, numbers[i]);
        }
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++)
        if (factors[i] != 0)
            mist_hash_add_double(hash, factors[i]);
}

uint64_t mist_plan_fingerprint(const struct mist_model *model, const struct mist_job *job,
                               uint64_t trace_set_fingerprint)
{
    struct mist_hash hash;

    mist_hash_init(&hash);
    MIST_HASH_INT64(&hash, model->family, model->n_layers, model->hidden, model->n_heads,
                    model->n_kv_heads, model->head_dim, model->ffn, model->vocab,
                    model->max_seq, model->has_bias, model->ties_embeddings,
                    job->global_batch, job->seq_len, job->dtype);
    if (job->gradient_dtype != MIST_DTYPE_FP32)
        mist_hash_add_int64(&hash, job->gradient_dtype);
    MIST_HASH_DOUBLE(&hash, model->norm_epsilon, model->rope_theta);
    add_variant(&hash, model);
    mist_hash_add_int64(&hash, (int64_t)trace_set_fingerprint);
    return hash.value;
}

/* ----------------------------------------------------------------------------- check */

/* A check in progress: what is looked at, and where the first fault goes. */
struct check {
    const struct mist_plan *plan;
    struct mist_plan_fault *fault;
    struct mist_err *err;
};

/* Records a fault; the message of a stage begins with "stage i: ". Returns status. */
static enum mist_status refuse(const struct check *c, enum mist_status status,
                               const char *section, int32_t i_stage, const char *key,
                               const char *format, ...) MIST_PRINTF(6, 7);

static enum mist_status refuse(const struct check *c, enum mist_status status,
                               const char *section, int32_t i_stage, const char *key,
                               const char *format, ...)
{
    char message[sizeof c->err->message];
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    *c->fault = (struct mist_plan_fault){section, i_stage, key};
    if (i_stage >= 0)
        return mist_err_set(c->err, status, "stage %d: %.480s", i_stage, message);
    return mist_err_set(c->err, status, "%s", message);
}

static enum mist_status check_framework(const struct check *c)
{
    const struct mist_job *job = &c->plan->job;
    const struct {
        const char *key;
        bool value;
    } flags[] = {{"recompute_attention", job->recomputes_attention},
                 {"no_dropout", job->has_no_dropout},
                 {"overlap", job->overlaps},
                 {"launch_blocking", job->blocks_launches}};

    if ((unsigned)job->framework >= MIST_N_FRAMEWORKS)
        return refuse(c, MIST_ERR_INPUT, "job", -1, "framework",
                      "framework %d is unknown", (int)job->framework);
    if ((unsigned)job->attention >= MIST_N_ATTENTIONS)
        return refuse(c, MIST_ERR_INPUT, "job", -1, "attention",
                      "attention %d is unknown", (int)job->attention);
    if (job->reduce_bucket < 0 || job->sub_group < 0 ||
        (mist_framework_get(job->framework)->bucket_elements == 0 &&
         (job->reduce_bucket > 0 || job->sub_group > 0)))
        return refuse(c, MIST_ERR_INPUT, "job", -1,
                      job->reduce_bucket != 0 ? "reduce_bucket" : "sub_group",
                      "reduce_bucket %lld and sub_group %lld, expected 0, or numbers of "
                      "elements of a framework that has them (deepspeed)",
                      (long long)job->reduce_bucket, (long long)job->sub_group);
    if (job->has_fp8_products && !mist_framework_get(job->framework)->cast_source)
        return refuse(c, MIST_ERR_INPUT, "job", -1, "fp8",
                      "fp8 is true, expected false, or a framework whose casts are known "
                      "(megatron, torchtitan-compiled, llm-foundry)");
    if (job->has_fp16_loss && (!mist_framework_get(job->framework)->casts_logits ||
                               job->dtype != MIST_DTYPE_FP16))
        return refuse(
            c, MIST_ERR_INPUT, "job", -1, "fp16_loss",
            "fp16_loss is true, expected false, or a job in fp16 of megatron or "
            "deepspeed");
    if (job->has_fused_loss &&
        (!mist_framework_get(job->framework)->can_fuse_loss || job->has_fp16_loss))
        return refuse(c, MIST_ERR_INPUT, "job", -1, "fused_loss",
                      "fused_loss is true, expected false, or a job of megatron without "
                      "fp16_loss");
    if (job->steps_apart && !mist_framework_get(job->framework)->can_step_apart)
        return refuse(c, MIST_ERR_INPUT, "job", -1, "steps_apart",
                      "steps_apart is true, expected false, or a job of megatron");
    if (job->cuts_products && !mist_framework_get(job->framework)->can_cut_products)
        return refuse(c, MIST_ERR_INPUT, "job", -1, "tp_overlap",
                      "tp_overlap is true, expected false, or a framework that cuts "
                      "products up to send parts of them (megatron)");
    if (job->framework != MIST_FRAMEWORK_OURS)
        return MIST_OK;
    if (job->attention != MIST_ATTENTION_FLASH)
        return refuse(c, MIST_ERR_INPUT, "job", -1, "attention",
                      "attention is %s, expected flash, or a framework that is not ours",
                      mist_attention_ways[job->attention]);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flags[i].value)
            return refuse(c, MIST_ERR_INPUT, "job", -1, flags[i].key,
                          "%s is true, expected false, or a framework that is not ours",
                          flags[i].key);
    return MIST_OK;
}

static enum mist_status check_job(const struct check *c)
{
    const struct mist_job *job = &c->plan->job;
    int32_t max_seq = c->plan->model.max_seq;

    if (job->global_batch < 1)
        return refuse(c, MIST_ERR_INPUT, "job", -1, "global_batch",
                      "global_batch is %lld, expected at least 1",
                      (long long)job->global_batch);
    if (job->seq_len < 1)
        return refuse(c, MIST_ERR_INPUT, "job", -1, "seq_len",
                      "seq_len is %d, expected at least 1", job->seq_len);
    if (max_seq > 0 && job->seq_len > max_seq)
        return refuse(c, MIST_ERR_INPUT, "job", -1, "seq_len",
                      "seq_len is %d, the model has %d learned positions", job->seq_len,
                      max_seq);
    if ((unsigned)job->dtype >= MIST_N_DTYPES)
        return refuse(c, MIST_ERR_INPUT, "job", -1, "dtype", "dtype %d is unknown",
                      (int)job->dtype);
    if ((unsigned)job->gradient_dtype >= MIST_N_DTYPES)
        return refuse(c, MIST_ERR_INPUT, "job", -1, "gradient_dtype",
                      "gradient_dtype %d is unknown", (int)job->gradient_dtype);
    if (job->gradient_dtype != MIST_DTYPE_FP32 && job->gradient_dtype != job->dtype)
        return refuse(c, MIST_ERR_INPUT, "job", -1, "gradient_dtype",
                      "gradient_dtype is %s with dtype %s, expected dtype %s",
                      mist_dtype_words[job->gradient_dtype], mist_dtype_words[job->dtype],
                      mist_dtype_words[job->gradient_dtype]);
    if (job->threads < 0 || job->threads > 1024)
        return refuse(c, MIST_ERR_INPUT, "job", -1, "threads",
                      "threads is %d, expected 1 to 1024, or 0 (not said)", job->threads);
    return check_framework(c);
}

static enum mist_status check_whole(const struct check *c)
{
    const struct mist_plan *plan = c->plan;
    int32_t n = plan->n_micro_batches;

    if (!memchr(plan->trace_set, 0, sizeof plan->trace_set))
        return refuse(c, MIST_ERR_INPUT, "cluster", -1, "trace_set",
                      "trace_set is longer than %zu bytes", sizeof plan->trace_set - 1);
    if (plan->device_memory_bytes < 0)
        return refuse(c, MIST_ERR_INPUT, "cluster", -1, "device_memory_bytes",
                      "device_memory_bytes is %lld, expected 0 (no limit) or more",
                      (long long)plan->device_memory_bytes);
    if ((unsigned)plan->pipeline >= MIST_N_PIPELINES)
        return refuse(c, MIST_ERR_INPUT, "pipeline", -1, NULL, "pipeline %d is unknown",
                      (int)plan->pipeline);
    if (n < 1)
        return refuse(c, MIST_ERR_INPUT, "n_micro_batches", -1, NULL,
                      "n_micro_batches is %d, expected at least 1", n);
    if (plan->job.global_batch % n != 0)
        return refuse(c, MIST_ERR_INPUT, "n_micro_batches", -1, NULL,
                      "n_micro_batches %d does not divide global_batch %lld", n,
                      (long long)plan->job.global_batch);
    if (plan->n_stages < 1 || plan->n_stages > MIST_MAX_STAGES)
        return refuse(c, MIST_ERR_INPUT, "stages", -1, NULL,
                      "number of stages is %d, expected 1 to %d", plan->n_stages,
                      MIST_MAX_STAGES);
    return MIST_OK;
}

/* The times that an automatic schedule is made for. */
static enum mist_status check_passes(const struct check *c)
{
    const struct mist_plan *plan = c->plan;
    const char *name = mist_pipeline_words[plan->pipeline];
    bool is_auto = mist_pipeline_kinds[plan->pipeline].n_kept_per_stage > 0;

    for (int32_t i = 0; i < plan->n_stages; i++) {
        const struct mist_pipeline_pass *pass = &plan->passes[i];
        const struct {
            const char *key;
            int32_t value, least;
        } times[] = {{"forward_us", pass->forward_us, is_auto},
                     {"input_gradient_us", pass->input_us, is_auto},
                     {"weight_gradient_us", pass->weight_us, is_auto},
                     {"transfer_us", pass->transfer_us, 0}};
        int32_t most = is_auto ? MIST_PLAN_MAX_PASS_US : 0;
        for (size_t k = 0; k < sizeof times / sizeof times[0]; k++)
            if (times[k].value < times[k].least || times[k].value > most)
                return refuse(c, MIST_ERR_INPUT, "passes", i, times[k].key,
                              "%s is %d, a pipeline of kind %s has %d to %d",
                              times[k].key, times[k].value, name, times[k].least, most);
        if (!(pass->freed_frac >= 0 && pass->freed_frac <= is_auto))
            return refuse(c, MIST_ERR_INPUT, "passes", i, "freed_frac",
                          "freed_frac is %g, a pipeline of kind %s has 0 to %d",
                          pass->freed_frac, name, is_auto);
    }
    return MIST_OK;
}

/* How many chunks and micro-batches the pipeline's schedule takes. */
static enum mist_status check_pipeline(const struct check *c)
{
    const struct mist_plan *plan = c->plan;
    const struct mist_pipeline_kind *kind = &mist_pipeline_kinds[plan->pipeline];
    const char *name = mist_pipeline_words[plan->pipeline];
    const char *section = plan->n_chunks != 0 ? "chunks" : "pipeline";
    int32_t n_chunks = mist_plan_n_chunks(plan);

    if (plan->n_chunks < 0)
        return refuse(c, MIST_ERR_INPUT, "chunks", -1, NULL,
                      "chunks is %d, expected at least 1", plan->n_chunks);
    if (kind->n_chunks > 0 && n_chunks != kind->n_chunks)
        return refuse(c, MIST_ERR_INPUT, section, -1, NULL,
                      "chunks is %d, a pipeline of kind %s has %d", n_chunks, name,
                      kind->n_chunks);
    if (kind->n_chunks == 0 && n_chunks < 2)
        return refuse(c, MIST_ERR_INPUT, section, -1, NULL,
                      "chunks is %d, a pipeline of kind %s needs at least 2", n_chunks,
                      name);
    if (n_chunks > 1 && plan->n_stages < 2)
        return refuse(c, MIST_ERR_INPUT, "pipeline", -1, NULL,
                      "a pipeline of kind %s needs at least 2 stages, the plan has %d",
                      name, plan->n_stages);
    if (kind->groups_micro_batches && plan->n_micro_batches % plan->n_stages != 0)
        return refuse(c, MIST_ERR_INPUT, "n_micro_batches", -1, NULL,
                      "n_micro_batches is %d, a pipeline of kind %s of %d stages needs a "
                      "multiple of %d",
                      plan->n_micro_batches, name, plan->n_stages, plan->n_stages);
    return MIST_OK;
}

static enum mist_status check_stage_sizes(const struct check *c, int32_t i)
{
    const struct mist_stage_plan *s = &c->plan->stages[i];
    const struct {
        const char *key;
        int32_t value;
    } sizes[] = {
        {"layers", s->n_layers},
        {"mesh_nodes", s->n_nodes},
        {"mesh_devices", s->n_devices},
        {"micro_batch", s->micro_batch},
        {"dp", s->dp},
        {"tp", s->tp},
    };

    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        if (sizes[k].value < 1)
            return refuse(c, MIST_ERR_INPUT, "stages", i, sizes[k].key,
                          "%s is %d, expected at least 1", sizes[k].key, sizes[k].value);
    }
    if (s->n_checkpointed < 0 || s->n_checkpointed > s->n_layers)
        return refuse(c, MIST_ERR_INPUT, "stages", i, "checkpointed_layers",
                      "checkpointed_layers is %d, expected 0 to %d, the stage's layers",
                      s->n_checkpointed, s->n_layers);
    if (s->n_lean < 0 || s->n_lean > s->n_layers - s->n_checkpointed)
        return refuse(c, MIST_ERR_INPUT, "stages", i, "lean_layers",
                      "lean_layers is %d, expected 0 to %d, the stage's layers that are "
                      "not checkpointed",
                      s->n_lean, s->n_layers - s->n_checkpointed);
    if (s->n_layers % mist_plan_n_chunks(c->plan) != 0)
        return refuse(c, MIST_ERR_INPUT, "stages", i, "layers",
                      "layers is %d, not divisible by the pipeline's %d chunks",
                      s->n_layers, mist_plan_n_chunks(c->plan));
    return MIST_OK;
}

static enum mist_status check_stage_parallel(const struct check *c, int32_t i)
{
    const struct mist_stage_plan *s = &c->plan->stages[i];
    const struct mist_job *job = &c->plan->job;
    int64_t n_devices = (int64_t)s->n_nodes * s->n_devices;
    int64_t n_ranks = mist_stage_n_ranks(s);
    int64_t samples = (int64_t)s->micro_batch * s->dp;
    int64_t tokens = (int64_t)s->micro_batch * job->seq_len;

    if (n_devices != n_ranks)
        return refuse(
            c, MIST_ERR_INPUT, "stages", i, "mesh_devices",
            "mesh of %d x %d devices has %lld, expected dp %d times cp %d times tp %d = "
            "%lld",
            s->n_nodes, s->n_devices, (long long)n_devices, s->dp, mist_stage_cp(s),
            s->tp, (long long)n_ranks);
    if (samples != job->global_batch / c->plan->n_micro_batches)
        return refuse(c, MIST_ERR_INPUT, "stages", i, "micro_batch",
                      "micro_batch %d times dp %d is %lld, expected global_batch %lld / "
                      "n_micro_batches %d = %lld",
                      s->micro_batch, s->dp, (long long)samples,
                      (long long)job->global_batch, c->plan->n_micro_batches,
                      (long long)(job->global_batch / c->plan->n_micro_batches));
    if (tokens > INT32_MAX)
        return refuse(c, MIST_ERR_RANGE, "stages", i, "micro_batch",
                      "micro_batch %d times seq_len %d is %lld tokens, at most %d fit",
                      s->micro_batch, job->seq_len, (long long)tokens, INT32_MAX);
    return MIST_OK;
}

/* Chunks of a sequence: two for each rank. */
static enum mist_status check_stage_cp(const struct check *c, int32_t i)
{
    const struct mist_stage_plan *s = &c->plan->stages[i], *first = &c->plan->stages[0];
    int32_t cp = mist_stage_cp(s), seq_len = c->plan->job.seq_len;

    if (s->cp < 0)
        return refuse(c, MIST_ERR_INPUT, "stages", i, "cp",
                      "cp is %d, expected at least 1", s->cp);
    if (cp != mist_stage_cp(first))
        return refuse(c, MIST_ERR_INPUT, "stages", i, "cp",
                      "cp is %d, expected stage 0's %d: all stages cut sequences alike",
                      cp, mist_stage_cp(first));
    if (cp > 1 && seq_len % (2 * (int64_t)cp) != 0)
        return refuse(
            c, MIST_ERR_INPUT, "stages", i, "cp",
            "cp %d: twice as much does not divide seq_len %d, of which each rank "
            "has two chunks",
            cp, seq_len);
    return MIST_OK;
}

static enum mist_status check_stage_tp(const struct check *c, int32_t i)
{
    const struct mist_model *m = &c->plan->model;
    const struct {
        const char *what;
        int32_t value;
    } splits[] = {
        {"n_heads", m->n_heads},
        {"n_kv_heads", m->n_kv_heads == 1 ? 0 : m->n_kv_heads}, /* one: copied */
        {"ffn", m->ffn},
        {"hidden", m->hidden},
    };
    const struct mist_stage_plan *s = &c->plan->stages[i];
    int32_t tp = s->tp, seq_len = c->plan->job.seq_len / mist_stage_cp(s);

    for (size_t k = 0; k < sizeof splits / sizeof splits[0]; k++) {
        if (splits[k].value % tp != 0)
            return refuse(c, MIST_ERR_INPUT, "stages", i, "tp",
                          "tp %d does not divide %s %d of the model", tp, splits[k].what,
                          splits[k].value);
    }
    if (s->is_sequence_parallel && tp == 1)
        return refuse(c, MIST_ERR_INPUT, "stages", i, "sequence_parallel",
                      "sequence_parallel with tp 1, expected at least 2");
    if (s->is_sequence_parallel && s->micro_batch * seq_len % tp != 0)
        return refuse(c, MIST_ERR_INPUT, "stages", i, "sequence_parallel",
                      "sequence_parallel: tp %d does not divide the %d tokens of "
                      "micro_batch %d times seq_len %d%s",
                      tp, s->micro_batch * seq_len, s->micro_batch, seq_len,
                      s->cp > 1 ? " of a context-parallel rank" : "");
    return MIST_OK;
}

static enum mist_status check_stage_memory(const struct check *c, int32_t i)
{
    const struct mist_stage_plan *s = &c->plan->stages[i];

    if (s->zero < 0 || s->zero > MIST_ZERO_MAX)
        return refuse(c, MIST_ERR_INPUT, "stages", i, "zero",
                      "zero is %d, expected 0 to %d", s->zero, MIST_ZERO_MAX);
    for (const struct mist_json_field *f = mist_plan_stage_fields; f->key; f++) {
        double value = f->type == MIST_FIELD_FRACTION ? mist_json_field_double(f, s) : 0;
        if (!(value >= 0 && value <= 1)) /* also refuses NaN */
            return refuse(c, MIST_ERR_INPUT, "stages", i, f->key,
                          "%s is %g, expected 0 to 1", f->key, value);
    }
    if (s->updates_on_host && s->offload_optimizer == 0)
        return refuse(c, MIST_ERR_INPUT, "stages", i, "update_on",
                      "update_on host with offload_optimizer_frac 0, expected above 0");
    return MIST_OK;
}

/* What only all stages together can get wrong. */
static enum mist_status check_sums(const struct check *c)
{
    const struct mist_plan *plan = c->plan;
    int64_t n_layers = 0, n_ranks = 0;

    for (int32_t i = 0; i < plan->n_stages; i++) {
        n_layers += plan->stages[i].n_layers;
        n_ranks += mist_stage_n_ranks(&plan->stages[i]);
    }
    if (n_layers != plan->model.n_layers)
        return refuse(c, MIST_ERR_INPUT, "stages", -1, NULL,
                      "the %d stages have %lld layers, expected the model's %d",
                      plan->n_stages, (long long)n_layers, plan->model.n_layers);
    if (n_ranks > INT32_MAX)
        return refuse(c, MIST_ERR_RANGE, "stages", -1, NULL,
                      "the %d stages have %lld ranks, at most %d fit", plan->n_stages,
                      (long long)n_ranks, INT32_MAX);
    return MIST_OK;
}

/* Where two stages hold one weight, each rank of the one exchanges its gradient with the
 * rank in the same place of the other. */
static enum mist_status check_tied_stages(const struct check *c)
{
    int32_t i_last = mist_plan_head_stage(c->plan);
    const struct mist_stage_plan *first = &c->plan->stages[0];
    const struct mist_stage_plan *last = &c->plan->stages[i_last];
    bool has_same_dp = first->dp == last->dp;

    if (!c->plan->model.ties_embeddings || (has_same_dp && first->tp == last->tp))
        return MIST_OK;
    return refuse(c, MIST_ERR_INPUT, "stages", i_last, has_same_dp ? "tp" : "dp",
                  "%s is %d, expected stage 0's %d: the model ties its embeddings, and "
                  "the first and the last stage exchange the gradient of the shared "
                  "weight rank by rank",
                  has_same_dp ? "tp" : "dp", has_same_dp ? last->tp : last->dp,
                  has_same_dp ? first->tp : first->dp);
}

static bool is_amount(double value)
{
    return isfinite(value) && value >= 0;
}

static enum mist_status check_predicted(const struct check *c)
{
    const struct mist_prediction *p = &c->plan->predicted;

    if (!is_amount(p->iteration_s) || !is_amount(p->error_s))
        return refuse(c, MIST_ERR_INPUT, "predicted", -1, "iteration_s",
                      "iteration_s %g +- %g, expected finite times of 0 or more",
                      p->iteration_s, p->error_s);
    if (!is_amount(p->probe_s))
        return refuse(c, MIST_ERR_INPUT, "predicted", -1, "probe_s",
                      "probe_s is %g, expected a finite time of 0 or more", p->probe_s);
    if (!(p->extrapolated_frac >= 0 && p->extrapolated_frac <= 1))
        return refuse(c, MIST_ERR_INPUT, "predicted", -1, "extrapolated_frac",
                      "extrapolated_frac is %g, expected 0 to 1", p->extrapolated_frac);
    if (!(p->alone_frac >= 0 && p->alone_frac <= 1))
        return refuse(c, MIST_ERR_INPUT, "predicted", -1, "alone_frac",
                      "alone_frac is %g, expected 0 to 1", p->alone_frac);
    for (int32_t i = 0; i < c->plan->n_stages; i++) {
        if (p->peak_bytes[i] < 0 || !is_amount(p->stable_s[i]) ||
            !isfinite(p->extra_s[i]))
            return refuse(
                c, MIST_ERR_INPUT, "predicted", i, NULL,
                "predicted %lld bytes, stable %g s, extra %g s; expected finite "
                "numbers, the first two 0 or more",
                (long long)p->peak_bytes[i], p->stable_s[i], p->extra_s[i]);
    }
    return MIST_OK;
}

enum mist_status mist_plan_find_fault(const struct mist_plan *plan,
                                      struct mist_plan_fault *fault, struct mist_err *err)
{
    const struct check c = {plan, fault, err};
    enum mist_status status = mist_model_check(&plan->model, err);

    if (status) {
        *fault = (struct mist_plan_fault){"model", -1, NULL};
        return status;
    }
    if ((status = check_job(&c)) || (status = check_whole(&c)) ||
        (status = check_pipeline(&c)) || (status = check_passes(&c)))
        return status;
    for (int32_t i = 0; i < plan->n_stages; i++) {
        if ((status = check_stage_sizes(&c, i)) ||
            (status = check_stage_parallel(&c, i)) || (status = check_stage_cp(&c, i)) ||
            (status = check_stage_tp(&c, i)) || (status = check_stage_memory(&c, i)))
            return status;
    }
    if ((status = check_sums(&c)) || (status = check_tied_stages(&c)))
        return status;
    return check_predicted(&c);
}

enum mist_status mist_plan_check(const struct mist_plan *plan, struct mist_err *err)
{
    struct mist_plan_fault fault;

    return mist_plan_find_fault(plan, &fault, err);
}

enum mist_status mist_plan_check_ours(const struct mist_plan *plan, const char *path,
                                      struct mist_err *err)
{
    char obstacles[MIST_MODEL_OBSTACLES_BYTES];

    if ((int)plan->job.dtype >= MIST_N_RUN_DTYPES)
        return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                           "the plan computes in %s, which mist-sim predicts; expected "
                           "fp32 or bf16 to run",
                           mist_dtype_words[plan->job.dtype]);
    if (plan->job.framework != MIST_FRAMEWORK_OURS)
        return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                           "the plan is for %s, which mist-sim predicts; expected a plan "
                           "of ours to run",
                           mist_framework_words[plan->job.framework]);
    mist_model_obstacles(&plan->model, plan->job.seq_len, obstacles);
    if (obstacles[0])
        return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                           "the model %s has what mist-exec does not compute: %s",
                           plan->model.name, obstacles);
    return MIST_OK;
}
