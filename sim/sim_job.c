/* Jobs without a plan. See sim_job.h. */
#include "sim/sim_job.h"

#include "sim/framework_args/framework_args.h"
#include "traces/preset.h"

#include <stdlib.h>
#include <string.h>

/* Options that are a number of the arguments as they are, where they are not 0. */
static const struct {
    enum mist_arg arg;
    size_t offset;
} counts[] = {
    {MIST_ARG_TP, offsetof(struct mist_sim_job_options, tp)},
    {MIST_ARG_CP, offsetof(struct mist_sim_job_options, cp)},
    {MIST_ARG_PP, offsetof(struct mist_sim_job_options, pp)},
    {MIST_ARG_DP, offsetof(struct mist_sim_job_options, dp)},
    {MIST_ARG_MICRO_BATCH, offsetof(struct mist_sim_job_options, micro_batch)},
    {MIST_ARG_GLOBAL_BATCH, offsetof(struct mist_sim_job_options, global_batch)},
    {MIST_ARG_SEQ_LEN, offsetof(struct mist_sim_job_options, seq_len)},
    {MIST_ARG_ZERO, offsetof(struct mist_sim_job_options, zero)},
    {MIST_ARG_CHUNKS, offsetof(struct mist_sim_job_options, n_chunks)},
};
enum { N_COUNTS = sizeof counts / sizeof *counts };

static int64_t count_of(const struct mist_sim_job_options *options, int i)
{
    return *(const int64_t *)(const void *)((const char *)options + counts[i].offset);
}

bool mist_sim_job_is_given(const struct mist_sim_job_options *options)
{
    bool is_given = options->model || options->from_args || options->dtype > 0 ||
                    options->gradient_dtype > 0 || options->is_sequence_parallel ||
                    options->has_no_dropout || options->has_fp8_products;

    for (int i = 0; i < N_COUNTS; i++)
        is_given = is_given || count_of(options, i) != 0;
    return is_given;
}

static void set_choice(struct mist_args *args, enum mist_arg arg, int choice)
{
    if (choice > 0)
        mist_args_set(args, arg, choice - 1);
}

static enum mist_status set_options(const struct mist_sim_job_options *options,
                                    struct mist_args *args, struct mist_err *err)
{
    struct mist_model model;

    for (int i = 0; i < N_COUNTS; i++)
        if (count_of(options, i) != 0)
            mist_args_set(args, counts[i].arg, (double)count_of(options, i));
    set_choice(args, MIST_ARG_DTYPE, options->dtype);
    set_choice(args, MIST_ARG_GRADIENT_DTYPE, options->gradient_dtype);
    set_choice(args, MIST_ARG_ATTENTION, options->attention);
    set_choice(args, MIST_ARG_RECOMPUTE, options->recompute);
    if (options->is_sequence_parallel)
        mist_args_set(args, MIST_ARG_SEQUENCE_PARALLEL, 1);
    if (options->has_no_dropout)
        mist_args_set(args, MIST_ARG_NO_DROPOUT, 1);
    if (options->has_fp8_products)
        mist_args_set(args, MIST_ARG_FP8, 1);
    if (!options->model)
        return MIST_OK;
    enum mist_status status = mist_model_load(options->model, &model, err);
    if (status == MIST_OK)
        mist_args_set_model(args, &model);
    return status;
}

static enum mist_status set_cluster(const char *path, struct mist_args *args,
                                    struct mist_plan *out, struct mist_err *err)
{
    struct mist_trace_set traces;
    const struct mist_cluster *cluster = &traces.cluster;
    enum mist_status status = mist_trace_set_open(&traces, path, err);

    if (status == MIST_OK) {
        int64_t n = (int64_t)cluster->nodes * cluster->devices_per_node;
        args->n_devices = n > INT32_MAX ? INT32_MAX : (int32_t)n;
        args->node_devices = cluster->devices_per_node;
        out->job.computes_on_gpu = cluster->backend != MIST_TRACE_CPU;
        out->device_memory_bytes = cluster->device_memory_bytes;
        out->fingerprint = mist_trace_set_fingerprint(&traces);
    }
    mist_trace_set_fini(&traces);
    return status;
}

/* How many bytes of words, each behind a space, make a line. */
static int fit_words(const char *words)
{
    enum { LINE_BYTES = 80 };
    size_t n = strlen(words), used = 0;

    if (n <= LINE_BYTES)
        return (int)n;
    for (size_t i = 1; i < n && (i <= LINE_BYTES || used == 0); i++)
        if (words[i] == ' ')
            used = i;
    return (int)(used > 0 ? used : n);
}

/* names_all: not only as many as stand in a line. */
static void say_left(const struct mist_args *args, bool names_all,
                     const struct mist_messages *messages)
{
    const char *left = args->left;
    int n = fit_words(left);
    bool is_long = left[n] != '\0';

    if (args->n_left > 0)
        mist_message(messages, "%s: %zu argument%s change the price:%.*s%s", args->path,
                     args->n_left, args->n_left == 1 ? " doesn't" : "s don't",
                     is_long && names_all ? 0 : n, left,
                     is_long && !names_all ? " ... (-v names all)" : "");
    for (; is_long && names_all && *left; left += n) {
        n = fit_words(left);
        mist_message(messages, " %.*s", n, left);
    }
    if (args->notes[0])
        mist_message(messages, "%s: %s", args->path, args->notes);
}

enum mist_status mist_sim_job_make(const struct mist_sim_job_options *options,
                                   const char *cluster_path, bool names_all,
                                   const struct mist_messages *messages,
                                   struct mist_plan *out, struct mist_err *err)
{
    struct mist_plan *plan = calloc(1, sizeof *plan);
    struct mist_args args;
    enum mist_status status;

    if (!plan)
        return mist_err_memory(err, NULL);
    *out = (struct mist_plan){0};
    mist_args_init(&args, options->framework);
    status = set_options(options, &args, err);
    if (status == MIST_OK)
        status = set_cluster(cluster_path, &args, out, err);
    if (status == MIST_OK && options->from_args)
        status = mist_args_load(&args, options->from_args, err);
    if (status == MIST_OK)
        status = mist_args_make_plan(&args, plan, err);
    if (status == MIST_OK) {
        plan->job.computes_on_gpu = out->job.computes_on_gpu;
        plan->device_memory_bytes = out->device_memory_bytes;
        plan->fingerprint =
            mist_plan_fingerprint(&plan->model, &plan->job, out->fingerprint);
        if (strlen(cluster_path) < sizeof plan->trace_set)
            snprintf(plan->trace_set, sizeof plan->trace_set, "%s", cluster_path);
        *out = *plan;
        say_left(&args, names_all, messages);
    }
    free(plan);
    return status;
}

enum mist_status mist_sim_job_export(const struct mist_plan *plan, int32_t node_devices,
                                     const char *path, bool overwrites,
                                     const struct mist_messages *messages,
                                     struct mist_err *err)
{
    struct mist_args_beside beside;
    char *text = NULL, seq_len[32] = "";
    size_t n = 0;
    enum mist_status status =
        path ? mist_args_save(plan, node_devices, path, overwrites, &beside, err)
             : mist_args_express(plan, node_devices, &text, &n, &beside, err);

    free(text);
    if (status != MIST_OK || !path || (!beside.model && !beside.seq_len))
        return status;
    if (beside.seq_len)
        snprintf(seq_len, sizeof seq_len, " --seq-len %d", (int)plan->job.seq_len);
    bool is_preset = mist_model_load_preset(plan->model.name, &(struct mist_model){0},
                                            NULL) == MIST_OK;
    mist_message(messages, "%s does not say what the program does: --model %s%s%s%s%s%s",
                 path, is_preset ? "" : "the config.json of ", plan->model.name, seq_len,
                 beside.attention ? " --attention " : "",
                 beside.attention ? mist_attention_ways[plan->job.attention] : "",
                 beside.attention && plan->job.has_no_dropout ? " --no-dropout" : "");
    return status;
}

void mist_sim_job_list(struct mist_emit *emit, enum mist_framework_name framework)
{
    struct mist_args_row row;

    mist_emit_list_begin(emit, "arguments", "Arguments");
    for (int i = 0; mist_args_row(framework, i, &row); i++) {
        char note[256];
        snprintf(note, sizeof note, "%s%s%s%s", row.note, row.harmless[0] ? " (but " : "",
                 row.harmless, row.harmless[0] ? ")" : "");
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_text(emit, "argument", NULL, row.name);
        mist_emit_text(emit, "use", NULL, row.use);
        mist_emit_text(emit, "says", NULL, row.says);
        mist_emit_text(emit, "note", NULL, note);
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}
