/* Plans whose stages are alike, from numbers and back. See framework_args.h. */
#include "sim/framework_args/arg_table.h"

#include "core/parse.h"
#include "sim/model/framework.h"
#include "sim/plan/plan_fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------ model */

/* Where each number of the model stands in struct mist_model. */
static const struct {
    enum mist_arg arg;
    size_t offset;
    const char *key; /* as in plan.json */
} sizes[] = {
    {MIST_ARG_LAYERS, offsetof(struct mist_model, n_layers), "layers"},
    {MIST_ARG_HIDDEN, offsetof(struct mist_model, hidden), "hidden size"},
    {MIST_ARG_HEADS, offsetof(struct mist_model, n_heads), "heads"},
    {MIST_ARG_KV_HEADS, offsetof(struct mist_model, n_kv_heads), "kv heads"},
    {MIST_ARG_HEAD_DIM, offsetof(struct mist_model, head_dim), "width of a head"},
    {MIST_ARG_FFN, offsetof(struct mist_model, ffn), "feed-forward size"},
    {MIST_ARG_VOCAB, offsetof(struct mist_model, vocab), "vocabulary"},
    {MIST_ARG_MAX_SEQ, offsetof(struct mist_model, max_seq), "positions"},
};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

void mist_args_set_model(struct mist_args *args, const struct mist_model *model)
{
    for (int i = 0; i < N_SIZES; i++)
        args->v[sizes[i].arg] =
            *(const int32_t *)(const void *)((const char *)model + sizes[i].offset);
    args->v[MIST_ARG_FAMILY] = model->family;
    args->v[MIST_ARG_HAS_BIAS] = model->has_bias;
    args->v[MIST_ARG_TIES] = model->ties_embeddings;
    args->v[MIST_ARG_EPSILON] = model->norm_epsilon;
    args->v[MIST_ARG_ROPE_THETA] = model->rope_theta;
    args->v[MIST_ARG_ROTARY] = model->rotary_dim;
    args->has_model = true;
    args->model = *model;
}

static enum mist_status make_model(const struct mist_args *args, struct mist_model *out,
                                   struct mist_err *err)
{
    *out = args->model;
    out->family = (enum mist_family)mist_args_or(args, MIST_ARG_FAMILY, 0);
    out->has_bias = mist_args_or(args, MIST_ARG_HAS_BIAS, 0) != 0;
    out->ties_embeddings = mist_args_or(args, MIST_ARG_TIES, 0) != 0;
    out->norm_epsilon = mist_args_or(args, MIST_ARG_EPSILON, 1e-5);
    out->rope_theta = mist_args_or(args, MIST_ARG_ROPE_THETA, 0);
    out->rotary_dim = (int32_t)mist_args_or(args, MIST_ARG_ROTARY, 0);
    if (!args->has_model)
        snprintf(out->name, sizeof out->name, "%s",
                 mist_framework_words[args->framework]);
    for (int i = 0; i < N_SIZES; i++) {
        double value = args->v[sizes[i].arg];
        const char *name = mist_args_name_of(args->framework, (int)sizes[i].arg);
        if (isnan(value))
            return mist_err_at(err, MIST_ERR_INPUT, args->path, 0, 0,
                               "the model's %s is not said; expected %s%s--model",
                               sizes[i].key, name ? name : "", name ? ", or " : "");
        if (value > INT32_MAX)
            return mist_args_fail(args, (int)sizes[i].arg, err, "the model's %s is %g",
                                  sizes[i].key, value);
        *(int32_t *)(void *)((char *)out + sizes[i].offset) = (int32_t)value;
    }
    enum mist_status status = mist_model_check(out, err);
    mist_err_locate(err, args->path, 0);
    return status;
}

/* ------------------------------------------------------------------- ranks and batches */

/* The numbers that follow from one another. */
struct counts {
    double tp, cp, pp, dp, micro_batch, n_micro_batches, global_batch;
};

static enum mist_status find_dp(const struct mist_args *args, struct counts *of,
                                struct mist_err *err)
{
    double nodes = mist_args_or(args, MIST_ARG_NODES, 1);
    double n = args->n_devices, per = of->tp * of->cp * of->pp;
    bool has_batches = !isnan(of->global_batch) && !isnan(of->micro_batch) &&
                       !isnan(args->v[MIST_ARG_ACCUMULATION]);

    if (!mist_args_is_open(args, MIST_ARG_NODE_DEVICES))
        n = nodes * args->v[MIST_ARG_NODE_DEVICES];
    if (!isnan(of->dp))
        return MIST_OK;
    if (has_batches) {
        of->dp = of->global_batch / (of->micro_batch * args->v[MIST_ARG_ACCUMULATION]);
        if (of->dp == floor(of->dp) && of->dp >= 1)
            return MIST_OK;
        return mist_args_fail(args, MIST_ARG_GLOBAL_BATCH, err,
                              "a global batch of %g is no whole number of times %g "
                              "micro-batches of %g",
                              of->global_batch, args->v[MIST_ARG_ACCUMULATION],
                              of->micro_batch);
    }
    of->dp = n / per;
    if (of->dp == floor(of->dp) && of->dp >= 1)
        return MIST_OK;
    return mist_args_fail(
        args, MIST_ARG_NODE_DEVICES, err,
        "%g devices are no whole number of times tp %g cp %g pp %g; --dp says "
        "how many are meant",
        n, of->tp, of->cp, of->pp);
}

/* Micro-batch, their number and the global batch, of which two are said, or one. */
static enum mist_status find_batches(const struct mist_args *args, struct counts *of,
                                     struct mist_err *err)
{
    if (isnan(of->global_batch) && !isnan(of->micro_batch))
        of->global_batch =
            of->micro_batch * of->dp * mist_args_or(args, MIST_ARG_ACCUMULATION, 1);
    if (isnan(of->global_batch))
        return mist_err_at(err, MIST_ERR_INPUT, args->path, 0, 0,
                           "no batch is said; expected --micro-batch or --global-batch");
    if (isnan(of->micro_batch) && !isnan(of->n_micro_batches))
        of->micro_batch = of->global_batch / (of->dp * of->n_micro_batches);
    if (isnan(of->micro_batch))
        of->micro_batch = 1;
    double n = of->global_batch / (of->micro_batch * of->dp);
    if (n != floor(n) || n < 1 || of->micro_batch != floor(of->micro_batch) ||
        (!isnan(of->n_micro_batches) && of->n_micro_batches != n))
        return mist_args_fail(
            args,
            isnan(of->n_micro_batches) ? MIST_ARG_GLOBAL_BATCH : MIST_ARG_ACCUMULATION,
            err,
            "a global batch of %g is not cut into whole micro-batches of %g for each of "
            "dp %g%s",
            of->global_batch, of->micro_batch, of->dp,
            isnan(of->n_micro_batches) ? "" : ", as many as said");
    of->n_micro_batches = n;
    return MIST_OK;
}

static enum mist_status find_counts(const struct mist_args *args, struct counts *of,
                                    struct mist_err *err)
{
    *of = (struct counts){
        .tp = mist_args_or(args, MIST_ARG_TP, 1),
        .cp = mist_args_or(args, MIST_ARG_CP, 1),
        .pp = mist_args_or(args, MIST_ARG_PP, 1),
        .dp = args->v[MIST_ARG_DP],
        .micro_batch = args->v[MIST_ARG_MICRO_BATCH],
        .n_micro_batches = args->v[MIST_ARG_ACCUMULATION],
        .global_batch = args->v[MIST_ARG_GLOBAL_BATCH],
    };
    enum mist_status status = find_dp(args, of, err);
    if (status == MIST_OK)
        status = find_batches(args, of, err);
    if (status != MIST_OK)
        return status;
    if (of->pp > MIST_MAX_STAGES)
        return mist_args_fail(args, MIST_ARG_PP, err, "%g stages, at most %d are priced",
                              of->pp, MIST_MAX_STAGES);
    if (of->dp * of->tp * of->cp * of->pp > INT32_MAX || of->global_batch > INT32_MAX)
        return mist_args_fail(args, MIST_ARG_GLOBAL_BATCH, err,
                              "more than %d ranks or samples", INT32_MAX);
    return MIST_OK;
}

/* ----------------------------------------------------------------------------- stages */

/* Blocks of a stage where the ends count as some: as even as may be, the first stages one
 * more; may be below 1. */
static int32_t cut_layers(int32_t n_layers, int32_t n_stages, int32_t i_stage,
                          int32_t embedding, int32_t head)
{
    int32_t n = n_layers + embedding + head;

    return n / n_stages + (i_stage < n % n_stages) - (i_stage == 0 ? embedding : 0) -
           (i_stage == n_stages - 1 ? head : 0);
}

/* A stage of n_layers, alike all others in the rest. */
static struct mist_stage_plan make_stage(const struct mist_args *args,
                                         const struct counts *of, int32_t n_layers)
{
    int32_t n = (int32_t)(of->dp * of->cp * of->tp);
    int32_t per_node = args->node_devices > 0
                           ? args->node_devices
                           : (int32_t)mist_args_or(args, MIST_ARG_NODE_DEVICES, n);
    bool is_full = mist_args_or(args, MIST_ARG_RECOMPUTE, 0) == MIST_RECOMPUTE_FULL;
    double most = mist_args_or(args, MIST_ARG_RECOMPUTE_LAYERS, n_layers);

    struct mist_stage_plan stage = {
        .n_layers = n_layers,
        .micro_batch = (int32_t)of->micro_batch,
        .dp = (int32_t)of->dp,
        .tp = (int32_t)of->tp,
        .cp = of->cp > 1 ? (int32_t)of->cp : 0,
        .is_sequence_parallel = mist_args_or(args, MIST_ARG_SEQUENCE_PARALLEL, 0) != 0,
        .zero = (int32_t)mist_args_or(args, MIST_ARG_ZERO, 0),
        .n_checkpointed = !is_full          ? 0
                          : most < n_layers ? (int32_t)most
                                            : n_layers,
        .updates_on_host = mist_args_or(args, MIST_ARG_UPDATES_ON_HOST, 0) != 0,
    };
    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        stage.offload_frac[k] = mist_args_or(args, MIST_ARG_OFFLOAD_WEIGHTS + k, 0);
    mist_stage_mesh(n, per_node, &stage.n_nodes, &stage.n_devices);
    return stage;
}

static void make_job(const struct mist_args *args, const struct counts *of,
                     enum mist_pipeline_schedule pipeline, struct mist_job *out)
{
    const struct mist_framework *framework = mist_framework_get(args->framework);
    bool is_selective =
        mist_args_or(args, MIST_ARG_RECOMPUTE, 0) == MIST_RECOMPUTE_SELECTIVE;
    bool usually_overlaps =
        mist_framework_overlaps(framework, pipeline == MIST_PIPELINE_INTERLEAVED,
                                mist_args_or(args, MIST_ARG_ZERO, 0) == 3);

    *out = (struct mist_job){
        .global_batch = (int64_t)of->global_batch,
        .seq_len = (int32_t)mist_args_or(args, MIST_ARG_SEQ_LEN, 0),
        .dtype = (enum mist_dtype)mist_args_or(args, MIST_ARG_DTYPE, MIST_DTYPE_BF16),
        .gradient_dtype =
            (enum mist_dtype)mist_args_or(args, MIST_ARG_GRADIENT_DTYPE, MIST_DTYPE_FP32),
        .framework = args->framework,
        .attention = (enum mist_attention)mist_args_or(args, MIST_ARG_ATTENTION,
                                                       framework->attention),
        .recomputes_attention = is_selective,
        .has_no_dropout = mist_args_or(args, MIST_ARG_NO_DROPOUT, 0) != 0,
        .overlaps = mist_args_or(args, MIST_ARG_OVERLAPS, usually_overlaps) != 0,
        .has_fp8_products = mist_args_or(args, MIST_ARG_FP8, 0) != 0,
        .has_fp16_loss = mist_args_or(args, MIST_ARG_FP16_LOSS, 0) != 0,
        .has_fused_loss = mist_args_or(args, MIST_ARG_FUSED_LOSS, 0) != 0,
        .cuts_products = mist_args_or(args, MIST_ARG_CUTS_PRODUCTS, 0) != 0,
        .steps_apart = mist_args_or(args, MIST_ARG_STEPS_APART, 0) != 0,
        .reduce_bucket = (int64_t)mist_args_or(args, MIST_ARG_REDUCE_BUCKET, 0),
        .sub_group = (int64_t)mist_args_or(args, MIST_ARG_SUB_GROUP, 0),
    };
}

/* The nodes that the job is started on are the cluster's: plans have no parts of several. */
static enum mist_status check_nodes(const struct mist_args *args, struct mist_err *err)
{
    double nodes = mist_args_or(args, MIST_ARG_NODES, 1);
    double devices = mist_args_or(args, MIST_ARG_NODE_DEVICES, args->node_devices);
    bool fits_one = nodes == 1 && devices <= args->node_devices;

    if (args->node_devices == 0 || devices == args->node_devices || fits_one)
        return MIST_OK;
    return mist_args_fail(args, MIST_ARG_NODE_DEVICES, err,
                          "%g devices of each node, but the cluster's have %d; expected "
                          "a cluster whose nodes have %g",
                          devices, (int)args->node_devices, devices);
}

enum mist_status mist_args_make_plan(const struct mist_args *args, struct mist_plan *out,
                                     struct mist_err *err)
{
    struct mist_model model;
    struct counts of;
    enum mist_status status = make_model(args, &model, err);
    double ends[] = {mist_args_or(args, MIST_ARG_EMBEDDING_LAYERS, 0),
                     mist_args_or(args, MIST_ARG_HEAD_LAYERS, 0)};

    if (status == MIST_OK)
        status = check_nodes(args, err);
    if (status == MIST_OK)
        status = find_counts(args, &of, err);
    if (status != MIST_OK)
        return status;
    if (mist_args_is_open(args, MIST_ARG_SEQ_LEN))
        return mist_err_at(err, MIST_ERR_INPUT, args->path, 0, 0,
                           "the tokens of a sample are not said; expected --seq-len");
    if (fmax(ends[0], ends[1]) > model.n_layers)
        return mist_args_fail(args, MIST_ARG_EMBEDDING_LAYERS, err,
                              "an end that counts as %g blocks, of %d",
                              fmax(ends[0], ends[1]), (int)model.n_layers);
    double chunks = mist_args_or(args, MIST_ARG_CHUNKS, 1);
    *out = (struct mist_plan){
        .model = model,
        .pipeline = (enum mist_pipeline_schedule)mist_args_or(
            args, MIST_ARG_PIPELINE,
            chunks > 1 ? MIST_PIPELINE_INTERLEAVED : MIST_PIPELINE_1F1B),
        .n_micro_batches = (int32_t)of.n_micro_batches,
        .n_stages = (int32_t)of.pp,
    };
    if (mist_pipeline_kinds[out->pipeline].n_chunks == 0)
        out->n_chunks = (int32_t)chunks;
    make_job(args, &of, out->pipeline, &out->job);
    for (int32_t i = 0; i < out->n_stages; i++)
        out->stages[i] = make_stage(args, &of,
                                    cut_layers(model.n_layers, out->n_stages, i,
                                               (int32_t)ends[0], (int32_t)ends[1]));
    status = mist_plan_check(out, err);
    mist_err_locate(err, args->path, 0);
    return status;
}

/* ------------------------------------------------------------------- numbers of a plan */

static bool cuts_so(const struct mist_plan *plan, int32_t embedding, int32_t head)
{
    for (int32_t i = 0; i < plan->n_stages; i++)
        if (plan->stages[i].n_layers !=
            cut_layers(plan->model.n_layers, plan->n_stages, i, embedding, head))
            return false;
    return true;
}

/* The least that embedding and head have to count as; open: nothing cuts so. */
static void find_ends(struct mist_args *args, const struct mist_plan *plan)
{
    enum { MOST = 8 };

    for (int32_t sum = 0; sum <= 2 * MOST; sum++)
        for (int32_t embedding = 0; embedding <= sum; embedding++)
            if (cuts_so(plan, embedding, sum - embedding)) {
                args->v[MIST_ARG_EMBEDDING_LAYERS] = embedding;
                args->v[MIST_ARG_HEAD_LAYERS] = sum - embedding;
                return;
            }
}

static void set_memory(struct mist_args *args, const struct mist_stage_plan *stage)
{
    args->v[MIST_ARG_ZERO] = stage->zero;
    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        args->v[MIST_ARG_OFFLOAD_WEIGHTS + k] = stage->offload_frac[k];
    args->v[MIST_ARG_UPDATES_ON_HOST] = stage->updates_on_host;
}

static void set_recomputation(struct mist_args *args, const struct mist_plan *plan)
{
    int32_t most = 0;
    bool is_all = true;

    for (int32_t i = 0; i < plan->n_stages; i++) {
        const struct mist_stage_plan *stage = &plan->stages[i];
        most = stage->n_checkpointed > most ? stage->n_checkpointed : most;
        is_all = is_all && stage->n_checkpointed == stage->n_layers;
    }
    args->v[MIST_ARG_RECOMPUTE] = most > 0 ? MIST_RECOMPUTE_FULL
                                  : plan->job.recomputes_attention
                                      ? MIST_RECOMPUTE_SELECTIVE
                                      : MIST_RECOMPUTE_NONE;
    if (most > 0 && !is_all)
        args->v[MIST_ARG_RECOMPUTE_LAYERS] = most;
}

void mist_args_of_plan(struct mist_args *args, const struct mist_plan *plan)
{
    const struct mist_stage_plan *first = &plan->stages[0];
    const struct mist_job *job = &plan->job;

    mist_args_init(args, job->framework);
    mist_args_set_model(args, &plan->model);
    args->n_devices = mist_plan_n_ranks(plan);
    args->v[MIST_ARG_TP] = first->tp;
    args->v[MIST_ARG_CP] = mist_stage_cp(first);
    args->v[MIST_ARG_PP] = plan->n_stages;
    args->v[MIST_ARG_DP] = first->dp;
    args->v[MIST_ARG_MICRO_BATCH] = first->micro_batch;
    args->v[MIST_ARG_ACCUMULATION] = plan->n_micro_batches;
    args->v[MIST_ARG_GLOBAL_BATCH] = (double)job->global_batch;
    args->v[MIST_ARG_SEQ_LEN] = job->seq_len;
    args->v[MIST_ARG_PIPELINE] = plan->pipeline;
    args->v[MIST_ARG_CHUNKS] = mist_plan_n_chunks(plan);
    args->v[MIST_ARG_SEQUENCE_PARALLEL] = first->is_sequence_parallel;
    args->v[MIST_ARG_DTYPE] = job->dtype;
    args->v[MIST_ARG_GRADIENT_DTYPE] = job->gradient_dtype;
    args->v[MIST_ARG_ATTENTION] = job->attention;
    args->v[MIST_ARG_NO_DROPOUT] = job->has_no_dropout;
    args->v[MIST_ARG_OVERLAPS] = job->overlaps;
    args->v[MIST_ARG_FP8] = job->has_fp8_products ? 1 : NAN;
    args->v[MIST_ARG_FP16_LOSS] = job->has_fp16_loss ? 1 : NAN;
    args->v[MIST_ARG_FUSED_LOSS] = job->has_fused_loss ? 1 : NAN;
    args->v[MIST_ARG_CUTS_PRODUCTS] = job->cuts_products ? 1 : NAN;
    args->v[MIST_ARG_STEPS_APART] = job->steps_apart;
    args->v[MIST_ARG_REDUCE_BUCKET] =
        job->reduce_bucket > 0 ? (double)job->reduce_bucket : NAN;
    args->v[MIST_ARG_SUB_GROUP] = job->sub_group > 0 ? (double)job->sub_group : NAN;
    find_ends(args, plan);
    set_memory(args, first);
    set_recomputation(args, plan);
}

/* ----------------------------------------------------------------------------- compare */

/* A field of either plan as a text; "" for those that have no price. */
static const char *field_text(const struct mist_json_field *f, const void *base,
                              char text[MIST_FORMAT_BYTES])
{
    text[0] = '\0';
    switch (f->type) {
    case MIST_FIELD_DOUBLE:
    case MIST_FIELD_FRACTION:
        mist_format_double(text, MIST_FORMAT_BYTES, mist_json_field_double(f, base));
        break;
    case MIST_FIELD_WORD:
        return f->words[mist_json_field_whole(f, base)];
    case MIST_FIELD_CHARS: /* names are always there */
        return f->is_left_out ? (const char *)base + f->offset : text;
    default:
        snprintf(text, MIST_FORMAT_BYTES, "%lld",
                 (long long)mist_json_field_whole(f, base));
    }
    return text;
}

/* where: "stage 3: ", or "". */
static enum mist_status compare_fields(const struct mist_json_field *fields,
                                       const void *base, const void *again,
                                       const char *where, struct mist_err *err)
{
    char texts[2][MIST_FORMAT_BYTES];

    for (const struct mist_json_field *f = fields; f->key; f++) {
        const char *a = field_text(f, base, texts[0]);
        const char *b = field_text(f, again, texts[1]);
        if (strcmp(a, b) != 0)
            return mist_err_set(err, MIST_ERR_INPUT, "%s%s is %s, it would be %s", where,
                                f->key, a, b);
    }
    return MIST_OK;
}

enum mist_status mist_args_compare(const struct mist_plan *plan,
                                   const struct mist_plan *again, struct mist_err *err)
{
    struct mist_job job = plan->job, other = again->job;
    const struct {
        const char *key;
        int32_t a, b;
    } knobs[] = {
        {"chunks", mist_plan_n_chunks(plan), mist_plan_n_chunks(again)},
        {"n_micro_batches", plan->n_micro_batches, again->n_micro_batches},
        {"the number of stages", plan->n_stages, again->n_stages},
        {"cp", mist_stage_cp(&plan->stages[0]), mist_stage_cp(&again->stages[0])},
        {"reduces_each_micro_batch", plan->reduces_each_micro_batch,
         again->reduces_each_micro_batch},
    };
    enum mist_status status =
        compare_fields(mist_plan_model_fields, &plan->model, &again->model, "", err);

    job.overlaps = mist_plan_overlaps(plan);
    other.overlaps = mist_plan_overlaps(again);
    job.threads = other.threads = 0;
    job.computes_on_gpu = other.computes_on_gpu = false;
    if (status == MIST_OK)
        status = compare_fields(mist_plan_job_fields, &job, &other, "", err);
    if (status == MIST_OK && plan->pipeline != again->pipeline)
        return mist_err_set(err, MIST_ERR_INPUT, "pipeline is %s, it would be %s",
                            mist_pipeline_words[plan->pipeline],
                            mist_pipeline_words[again->pipeline]);
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs && status == MIST_OK; i++)
        if (knobs[i].a != knobs[i].b)
            status = mist_err_set(err, MIST_ERR_INPUT, "%s is %d, it would be %d",
                                  knobs[i].key, (int)knobs[i].a, (int)knobs[i].b);
    for (int32_t i = 0; i < plan->n_stages && status == MIST_OK; i++) {
        char where[32];
        snprintf(where, sizeof where, "stage %d: ", (int)i);
        status = compare_fields(mist_plan_stage_fields, &plan->stages[i],
                                &again->stages[i], where, err);
    }
    return status;
}
