/*
 * The plans that the original system published for L4 and A100 (artifact of the EuroSys'25
 * paper), and what the tuner finds in their place, both by our replay: the table of
 * tune/README.md.
 *
 *     $ build/tests/bench/bench_published_plans
 *     | cluster | model | tokens | ranks | limit | published | ours | ratio | our plan |
 *     | l4:4x8 | gpt3-22b | 2048 | 32 | 19.8 GiB | 97.4 s | 91.9 s | 0.944 | ...
 *
 * The limit is what the published plan itself needs of the device, by our memory planner,
 * so ours never has a byte more. Clusters are presets. Gradients are stored in bf16, as
 * theirs in fp16; attention is ours in both plans, also where theirs was tuned without
 * fused attention ("plain"). Exits with 1 when one of theirs is faster.
 *
 * The plans are read from mist/tuned_plans.csv in $MIST_REFERENCE or ../shared/reference,
 * one row a stage; without it there is nothing to do, which is said.
 */
#include "tests/bench/bench.h"

#include "core/csv.h"
#include "core/parse.h" /* mist_format_bytes */
#include "tests/unit/reference_path.h"
#include "traces/preset.h"
#include "tune/plan_label.h"
#include "tune/stage_price.h"
#include "tune/validate.h"

enum column {
    GPU,
    MODEL,
    SEQ_LEN,
    GLOBAL_BATCH,
    N_NODES,
    N_DEVICES,
    IS_FUSED,
    HIDDEN,
    FFN,
    N_LAYERS,
    N_HEADS,
    VOCAB,
    N_MICRO_BATCHES,
    N_STAGES,
    STAGE,
    STAGE_LAYERS,
    MESH_NODES,
    MESH_DEVICES,
    CHECKPOINTED,
    MICRO_BATCH,
    DP,
    TP,
    SHARDS_WEIGHTS,
    SHARDS_GRADIENTS,
    SHARDS_OPTIMIZER,
    OFFLOAD_WEIGHTS,
    OFFLOAD_GRADIENTS,
    OFFLOAD_OPTIMIZER,
    OFFLOAD_ACTIVATIONS,
    N_USED
};

static const struct mist_csv_column columns[] = {
    [GPU] = {"gpu", MIST_CSV_REQUIRED},
    [MODEL] = {"model", MIST_CSV_REQUIRED},
    [SEQ_LEN] = {"seq_len", MIST_CSV_REQUIRED},
    [GLOBAL_BATCH] = {"global_batch", MIST_CSV_REQUIRED},
    [N_NODES] = {"num_nodes", MIST_CSV_REQUIRED},
    [N_DEVICES] = {"gpus_per_node", MIST_CSV_REQUIRED},
    [IS_FUSED] = {"flash_attn", MIST_CSV_REQUIRED},
    [HIDDEN] = {"hidden", MIST_CSV_REQUIRED},
    [FFN] = {"ffn", MIST_CSV_REQUIRED},
    [N_LAYERS] = {"layers", MIST_CSV_REQUIRED},
    [N_HEADS] = {"heads", MIST_CSV_REQUIRED},
    [VOCAB] = {"vocab", MIST_CSV_REQUIRED},
    [N_MICRO_BATCHES] = {"grad_accum_steps", MIST_CSV_REQUIRED},
    [N_STAGES] = {"num_stages", MIST_CSV_REQUIRED},
    [STAGE] = {"stage", MIST_CSV_REQUIRED},
    [STAGE_LAYERS] = {"stage_layers", MIST_CSV_REQUIRED},
    [MESH_NODES] = {"stage_mesh_nodes", MIST_CSV_REQUIRED},
    [MESH_DEVICES] = {"stage_mesh_gpus", MIST_CSV_REQUIRED},
    [CHECKPOINTED] = {"ckpt_layers", MIST_CSV_REQUIRED},
    [MICRO_BATCH] = {"micro_batch", MIST_CSV_REQUIRED},
    [DP] = {"dp", MIST_CSV_REQUIRED},
    [TP] = {"tp", MIST_CSV_REQUIRED},
    [SHARDS_WEIGHTS] = {"shard_weights", MIST_CSV_REQUIRED},
    [SHARDS_GRADIENTS] = {"shard_grads", MIST_CSV_REQUIRED},
    [SHARDS_OPTIMIZER] = {"shard_opt", MIST_CSV_REQUIRED},
    [OFFLOAD_WEIGHTS] = {"off_weights", MIST_CSV_REQUIRED},
    [OFFLOAD_GRADIENTS] = {"off_grads", MIST_CSV_REQUIRED},
    [OFFLOAD_OPTIMIZER] = {"off_opt", MIST_CSV_REQUIRED},
    [OFFLOAD_ACTIVATIONS] = {"off_act", MIST_CSV_REQUIRED},
    /* not looked at */
    [N_USED] = {"family", MIST_CSV_OPTIONAL},
    {"file", MIST_CSV_OPTIONAL},
    {"size", MIST_CSV_OPTIONAL},
    {"memory_capacity_GB", MIST_CSV_OPTIONAL},
    {"zero23_tuning_enabled", MIST_CSV_OPTIONAL},
    {"disable_tp_tuning", MIST_CSV_OPTIONAL},
    {"sample_size", MIST_CSV_OPTIONAL},
    {"pre_post_b", MIST_CSV_OPTIONAL},
    {"pre_post_dp", MIST_CSV_OPTIONAL},
    {"pre_post_tp", MIST_CSV_OPTIONAL},
    {"pre_post_ws", MIST_CSV_OPTIONAL},
    {"pre_post_gs", MIST_CSV_OPTIONAL},
    {"pre_post_os", MIST_CSV_OPTIONAL},
};

/* A published plan and all that is needed to ask for another one. */
struct published {
    char cluster[32]; /* a preset */
    struct mist_trace_set traces;
    struct mist_cost_model *cost_model;
    struct mist_space space;
    struct mist_stage_price *price;
    struct mist_validate_config config;
    struct mist_plan plan;
};

static struct mist_err err;

/* ------------------------------------------------------------------------------- table */

static int32_t read_int(const struct mist_csv *csv, size_t i_row, enum column column)
{
    int64_t value;

    must(mist_csv_get_int64(csv, i_row, column, 0, INT32_MAX, &value, &err), &err);
    return (int32_t)value;
}

static double read_frac(const struct mist_csv *csv, size_t i_row, enum column column)
{
    double value;

    must(mist_csv_get_double(csv, i_row, column, 0, 1, &value, &err), &err);
    return value;
}

/* The preset with the dimensions of a row. */
static void read_model(const struct mist_csv *csv, size_t i_row, struct mist_model *out)
{
    bool is_llama = strncmp(mist_csv_text(csv, i_row, MODEL), "llama", 5) == 0;
    enum mist_family family = is_llama ? MIST_FAMILY_LLAMA : MIST_FAMILY_GPT;

    for (int32_t i = 0; mist_model_preset_name(i); i++) {
        must(mist_model_load_preset(mist_model_preset_name(i), out, &err), &err);
        if (out->family == family && out->hidden == read_int(csv, i_row, HIDDEN) &&
            out->ffn == read_int(csv, i_row, FFN) &&
            out->n_layers == read_int(csv, i_row, N_LAYERS) &&
            out->n_heads == read_int(csv, i_row, N_HEADS) &&
            out->vocab == read_int(csv, i_row, VOCAB))
            return;
    }
    fail("no preset has the dimensions of a published model");
}

static struct mist_stage_plan read_stage(const struct mist_csv *csv, size_t i_row)
{
    return (struct mist_stage_plan){
        .n_layers = read_int(csv, i_row, STAGE_LAYERS),
        .n_nodes = read_int(csv, i_row, MESH_NODES),
        .n_devices = read_int(csv, i_row, MESH_DEVICES),
        .micro_batch = read_int(csv, i_row, MICRO_BATCH),
        .dp = read_int(csv, i_row, DP),
        .tp = read_int(csv, i_row, TP),
        .zero = read_int(csv, i_row, SHARDS_OPTIMIZER) +
                read_int(csv, i_row, SHARDS_GRADIENTS) +
                read_int(csv, i_row, SHARDS_WEIGHTS),
        .n_checkpointed = read_int(csv, i_row, CHECKPOINTED),
        .offload_weights = read_frac(csv, i_row, OFFLOAD_WEIGHTS),
        .offload_gradients = read_frac(csv, i_row, OFFLOAD_GRADIENTS),
        .offload_optimizer = read_frac(csv, i_row, OFFLOAD_OPTIMIZER),
        .offload_activations = read_frac(csv, i_row, OFFLOAD_ACTIVATIONS),
    };
}

/* The plan that begins at a row. */
static void read_plan(const struct mist_csv *csv, size_t i_row, struct mist_plan *out)
{
    *out = (struct mist_plan){
        .job = {.global_batch = read_int(csv, i_row, GLOBAL_BATCH),
                .seq_len = read_int(csv, i_row, SEQ_LEN),
                .dtype = MIST_DTYPE_BF16,
                .gradient_dtype = MIST_DTYPE_BF16,
                .computes_on_gpu = true},
        .pipeline = MIST_PIPELINE_1F1B,
        .n_micro_batches = read_int(csv, i_row, N_MICRO_BATCHES),
        .n_stages = read_int(csv, i_row, N_STAGES),
    };
    read_model(csv, i_row, &out->model);
    for (int32_t i = 0; i < out->n_stages && i < MIST_MAX_STAGES; i++) {
        if (i_row + (size_t)i >= mist_csv_n_rows(csv) ||
            read_int(csv, i_row + (size_t)i, STAGE) != i)
            fail("stages of a published plan are missing");
        out->stages[i] = read_stage(csv, i_row + (size_t)i);
    }
    must(mist_plan_check(out, &err), &err);
}

/* ------------------------------------------------------------------------------- plans */

static void open_published(const struct mist_csv *csv, size_t i_row,
                           struct published *out)
{
    bool is_l4 = strncmp(mist_csv_text(csv, i_row, GPU), "l4", 2) == 0;
    int32_t n_nodes = read_int(csv, i_row, N_NODES);
    int32_t per_node = read_int(csv, i_row, N_DEVICES);

    memset(out, 0, sizeof *out);
    read_plan(csv, i_row, &out->plan);
    snprintf(out->cluster, sizeof out->cluster, "%s:%dx%d", is_l4 ? "l4" : "a100-40",
             (int)n_nodes, (int)per_node);
    must(mist_preset_parse(&out->traces, out->cluster, &err), &err);
    must(mist_cost_model_new(&out->traces, &out->cost_model, &err), &err);
    must(mist_space_init(&out->space, &out->plan.model, &out->plan.job,
                         n_nodes * per_node, per_node, MIST_SPACE_ALL, NULL, &err),
         &err);
    must(mist_stage_price_new(out->cost_model, &out->space, 0, &out->price, &err), &err);
    out->config = (struct mist_validate_config){
        .space = &out->space,
        .cost_model = out->cost_model,
        .limit_bytes = INT64_MAX,
        .host_limit_bytes = out->traces.cluster.host_memory_bytes_per_node,
        .n_best = 16,
        .price = out->price,
    };
}

static void close_published(struct published *of)
{
    mist_stage_price_free(of->price);
    mist_space_fini(&of->space);
    mist_cost_model_free(of->cost_model);
    mist_trace_set_fini(&of->traces);
}

/* Prices the published plan, and limits memory to what it needs. */
static double price_published(struct published *at)
{
    struct mist_validated validated = {.plan = &at->plan};

    must(mist_validate_plan(&at->config, NULL, &validated, &err), &err);
    if (!validated.holds)
        fail("a published plan needs more memory of the host than there is");
    at->config.limit_bytes = validated.planned_bytes;
    return at->plan.predicted.iteration_s;
}

/* What mist-tune finds with its defaults. */
static double tune(const struct published *at, struct mist_thread_pool *pool,
                   char label[MIST_PLAN_LABEL_BYTES], int32_t *n_micro_batches)
{
    struct mist_search_config search = {
        .host_limit_bytes = at->config.host_limit_bytes / at->space.devices_per_node,
        .slack_frac = MIST_VALIDATE_SLACK_FRAC,
        .n_best = at->config.n_best,
        .price = mist_stage_price_block,
        .price_context = at->price,
        .pool = pool,
    };
    struct mist_validate_result result;

    must(mist_validate_run(&at->config, &search, &result, &err), &err);
    const struct mist_plan *best = result.plans[0].plan;
    double time_s = best->predicted.iteration_s;
    mist_plan_label(best, label);
    *n_micro_batches = best->n_micro_batches;
    mist_validate_result_fini(&result);
    return time_s;
}

/* A row of the table; whether the published plan is faster. */
static bool compare(const struct mist_csv *csv, size_t i_row,
                    struct mist_thread_pool *pool)
{
    static struct published at; /* large */
    char label[MIST_PLAN_LABEL_BYTES], limit[MIST_FORMAT_BYTES];
    bool is_fused = strcmp(mist_csv_text(csv, i_row, IS_FUSED), "True") == 0;
    int32_t n_micro_batches;

    open_published(csv, i_row, &at);
    double published_s = price_published(&at);
    double ours_s = tune(&at, pool, label, &n_micro_batches);
    printf("| %s | %s%s | %d | %s | %.3f s | %.3f s | %.3f | G%d %s |\n", at.cluster,
           at.plan.model.name, is_fused ? "" : ", plain", (int)at.plan.job.seq_len,
           mist_format_bytes(limit, sizeof limit, at.config.limit_bytes), published_s,
           ours_s, ours_s / published_s, (int)n_micro_batches, label);
    fflush(stdout);
    close_published(&at);
    return published_s < ours_s;
}

int main(void)
{
    struct mist_thread_pool *pool;
    struct mist_csv *csv;
    char path[REFERENCE_PATH_BYTES];
    int n_faster = 0;

    if (!find_reference("mist/tuned_plans.csv", path))
        return 0;
    must(mist_csv_load(path, columns, sizeof columns / sizeof *columns, &csv, &err),
         &err);
    must(mist_thread_pool_new(0, &pool, &err), &err);
    printf("| cluster | model | tokens | limit | published | ours | ratio | ours is |\n"
           "|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < mist_csv_n_rows(csv); i += (size_t)read_int(csv, i, N_STAGES))
        n_faster += compare(csv, i, pool);
    printf("\n%d published plans are faster\n", n_faster);
    mist_thread_pool_free(pool);
    mist_csv_free(csv);
    return n_faster > 0;
}
