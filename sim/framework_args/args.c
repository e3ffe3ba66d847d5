/* Arguments by the tables: reading, writing, listing. See framework_args.h. */
#include "sim/framework_args/arg_table.h"

#include "core/atomic_file.h"
#include "core/parse.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 1 << 20 };

const struct mist_arg_word mist_arg_bools[] = {{"true", 1}, {"false", 0}, {NULL, 0}};

/* NULL: it has no files that are read. */
static const struct mist_args_framework *find_framework(enum mist_framework_name name)
{
    static const struct mist_args_framework *const frameworks[MIST_N_FRAMEWORKS] = {
        [MIST_FRAMEWORK_MEGATRON] = &mist_args_megatron,
        [MIST_FRAMEWORK_DEEPSPEED] = &mist_args_deepspeed,
        [MIST_FRAMEWORK_TORCHTITAN] = &mist_args_torchtitan,
        [MIST_FRAMEWORK_MEGATRON_2021] = &mist_args_megatron,
        [MIST_FRAMEWORK_DEEPSPEED_2021] = &mist_args_deepspeed,
        [MIST_FRAMEWORK_TORCHTITAN_COMPILED] = &mist_args_torchtitan,
    };

    return frameworks[name];
}

void mist_args_init(struct mist_args *args, enum mist_framework_name framework)
{
    *args = (struct mist_args){.framework = framework};
    for (int i = 0; i < MIST_N_ARGS; i++)
        args->v[i] = NAN;
}

void mist_args_set(struct mist_args *args, enum mist_arg arg, double value)
{
    args->v[arg] = value;
}

enum mist_status mist_args_fail(const struct mist_args *args, int arg,
                                struct mist_err *err, const char *format, ...)
{
    char message[sizeof err->message];
    va_list values;

    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    return mist_err_at(err, MIST_ERR_INPUT, args->path, args->line[arg], 0, "%s",
                       message);
}

/* The numbers in the words of plan.json, where it has one. */
static const char *const arg_words[MIST_ARG_OWN] = {
    [MIST_ARG_TP] = "tp",
    [MIST_ARG_CP] = "cp",
    [MIST_ARG_PP] = "stages",
    [MIST_ARG_DP] = "dp",
    [MIST_ARG_NODES] = "mesh_nodes",
    [MIST_ARG_NODE_DEVICES] = "mesh_devices",
    [MIST_ARG_MICRO_BATCH] = "micro_batch",
    [MIST_ARG_GLOBAL_BATCH] = "global_batch",
    [MIST_ARG_ACCUMULATION] = "n_micro_batches",
    [MIST_ARG_SEQ_LEN] = "seq_len",
    [MIST_ARG_PIPELINE] = "pipeline",
    [MIST_ARG_CHUNKS] = "chunks",
    [MIST_ARG_EMBEDDING_LAYERS] = "layers of the first stage",
    [MIST_ARG_HEAD_LAYERS] = "layers of the last stage",
    [MIST_ARG_SEQUENCE_PARALLEL] = "sequence_parallel",
    [MIST_ARG_ZERO] = "zero",
    [MIST_ARG_RECOMPUTE] = "checkpointed_layers, recompute_attention",
    [MIST_ARG_RECOMPUTE_LAYERS] = "checkpointed_layers",
    [MIST_ARG_DTYPE] = "dtype",
    [MIST_ARG_GRADIENT_DTYPE] = "gradient_dtype",
    [MIST_ARG_ATTENTION] = "attention",
    [MIST_ARG_NO_DROPOUT] = "no_dropout",
    [MIST_ARG_OVERLAPS] = "overlap",
    [MIST_ARG_FP8] = "fp8",
    [MIST_ARG_FP16_LOSS] = "fp16_loss",
    [MIST_ARG_FUSED_LOSS] = "fused_loss",
    [MIST_ARG_CUTS_PRODUCTS] = "tp_overlap",
    [MIST_ARG_STEPS_APART] = "steps_apart",
    [MIST_ARG_REDUCE_BUCKET] = "reduce_bucket",
    [MIST_ARG_SUB_GROUP] = "sub_group",
    [MIST_ARG_OFFLOAD_WEIGHTS] = "offload_weights_frac",
    [MIST_ARG_OFFLOAD_GRADIENTS] = "offload_gradients_frac",
    [MIST_ARG_OFFLOAD_OPTIMIZER] = "offload_optimizer_frac",
    [MIST_ARG_OFFLOAD_ACTIVATIONS] = "offload_activations_frac",
    [MIST_ARG_UPDATES_ON_HOST] = "update_on",
    [MIST_ARG_FAMILY] = "family",
    [MIST_ARG_LAYERS] = "n_layers",
    [MIST_ARG_HIDDEN] = "hidden",
    [MIST_ARG_HEADS] = "n_heads",
    [MIST_ARG_KV_HEADS] = "n_kv_heads",
    [MIST_ARG_HEAD_DIM] = "head_dim",
    [MIST_ARG_FFN] = "ffn",
    [MIST_ARG_VOCAB] = "vocab",
    [MIST_ARG_MAX_SEQ] = "max_seq",
    [MIST_ARG_HAS_BIAS] = "has_bias",
    [MIST_ARG_TIES] = "ties_embeddings",
    [MIST_ARG_EPSILON] = "norm_epsilon",
    [MIST_ARG_ROPE_THETA] = "rope_theta",
    [MIST_ARG_ROTARY] = "rotary_dim",
};

/* Of a number: value, or the word that plan.json has for it. */
static const char *say_value(int arg, double value, char text[MIST_FORMAT_BYTES])
{
    const char *const *words = arg == MIST_ARG_DTYPE || arg == MIST_ARG_GRADIENT_DTYPE
                                   ? mist_dtype_words
                               : arg == MIST_ARG_PIPELINE ? mist_pipeline_words
                                                          : NULL;

    return words ? words[(int)value] : mist_format_double(text, MIST_FORMAT_BYTES, value);
}

enum mist_status mist_args_derive(struct mist_args *args, int arg, double value, int from,
                                  struct mist_err *err)
{
    char said[MIST_FORMAT_BYTES], here[MIST_FORMAT_BYTES];

    if (!mist_args_is_open(args, arg) && args->v[arg] != value)
        return mist_args_fail(args, from, err,
                              "%s means %s %s here, but the command line or another "
                              "argument says %s",
                              args->name[from] ? args->name[from] : "what is left out",
                              arg_words[arg], say_value(arg, value, here),
                              say_value(arg, args->v[arg], said));
    args->v[arg] = value;
    if (!args->name[arg]) {
        args->name[arg] = args->name[from];
        args->line[arg] = args->line[from];
    }
    return MIST_OK;
}

/* ---------------------------------------------------------------------------- reading */

static bool matches(const char *pattern, const char *name)
{
    size_t n = strlen(pattern);

    return pattern[n - 1] == '*' ? strncmp(pattern, name, n - 1) == 0
                                 : strcmp(pattern, name) == 0;
}

static const struct mist_arg_row *find_row(const struct mist_arg_row *rows,
                                           const char *name)
{
    for (; rows->name; rows++)
        if (matches(rows->name, name))
            return rows;
    return NULL;
}

/* Whether a value is one of "a|b|c". */
static bool is_one_of(const char *list, const char *value)
{
    size_t n = strlen(value);

    for (const char *at = list; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (strncmp(at, value, n) == 0 && (at[n] == '|' || at[n] == '\0'))
            return true;
    return false;
}

/* The words of a row, for a message. */
static const char *list_words(const struct mist_arg_row *row, char *text, size_t size)
{
    text[0] = '\0';
    for (const struct mist_arg_word *w = row->words; w->word; w++)
        mist_text_add(text, size, ", ", "%s", w->word);
    return text;
}

static enum mist_status refuse_value(const struct mist_args *args,
                                     const struct mist_arg_item *item,
                                     const char *expected, struct mist_err *err)
{
    return mist_err_at(err, MIST_ERR_INPUT, args->path, item->line, 0,
                       "%s: '%.80s' can't be expressed, expected %s", item->name,
                       item->value ? item->value : "", expected);
}

/* The number that an item says; NAN: what it leaves to the program. */
static enum mist_status read_value(const struct mist_args *args,
                                   const struct mist_arg_row *row,
                                   const struct mist_arg_item *item, double *out,
                                   struct mist_err *err)
{
    char words[320];
    const char *value = item->value;

    *out = NAN;
    if (row->kind == MIST_ARG_FLAG) {
        *out = row->value;
        return value ? refuse_value(args, item, "no value", err) : MIST_OK;
    }
    if (!value)
        return mist_err_at(err, MIST_ERR_INPUT, args->path, item->line, 0,
                           "%s: expected a value", item->name);
    if (strcmp(value, "auto") == 0 &&
        find_framework(args->framework) == &mist_args_deepspeed && isnan(row->absent))
        return MIST_OK;
    if (row->kind == MIST_ARG_WORD) {
        for (const struct mist_arg_word *w = row->words; w->word; w++)
            if (strcmp(w->word, value) == 0) {
                *out = w->value;
                return MIST_OK;
            }
        if (row->yields_to_model && args->has_model)
            return MIST_OK;
        return refuse_value(args, item, list_words(row, words, sizeof words), err);
    }
    if (mist_parse_double(value, out, NULL) != MIST_OK)
        return refuse_value(args, item, "a number", err);
    if (row->kind == MIST_ARG_COUNT &&
        !(*out == floor(*out) && *out >= row->min && *out <= INT32_MAX)) {
        snprintf(words, sizeof words, "a whole number from %g on", row->min);
        return refuse_value(args, item, words, err);
    }
    return *out >= 0 || row->kind == MIST_ARG_COUNT
               ? MIST_OK
               : refuse_value(args, item, "0 or more", err);
}

static void note_left(struct mist_args *args, const char *name)
{
    size_t used = strlen(args->left);

    args->n_left++;
    if (used + strlen(name) + 5 < sizeof args->left)
        snprintf(args->left + used, sizeof args->left - used, " %s", name);
    else if (used > 0 && args->left[used - 1] != '.')
        snprintf(args->left + used, sizeof args->left - used, " ...");
}

/* Takes one item of the file. */
/* An argument that was there before, or an option, and says something else. */
static enum mist_status contradict(const struct mist_args *args,
                                   const struct mist_arg_row *row,
                                   const struct mist_arg_item *item, struct mist_err *err)
{
    const char *name = args->name[row->arg], *value = item->value ? item->value : "";
    bool is_number = row->kind == MIST_ARG_COUNT || row->kind == MIST_ARG_REAL;
    char before[96] = "the command line";

    if (name && is_number)
        snprintf(before, sizeof before, "%.60s %g of line %ld", name, args->v[row->arg],
                 args->line[row->arg]);
    else if (name)
        snprintf(before, sizeof before, "%.60s of line %ld", name, args->line[row->arg]);
    return mist_err_at(err, MIST_ERR_INPUT, args->path, item->line, 0,
                       "%s%s%.60s contradicts %s; expected one of them", item->name,
                       *value ? " " : "", value, before);
}

static enum mist_status take_item(struct mist_args *args,
                                  const struct mist_args_framework *of,
                                  const struct mist_arg_item *item, struct mist_err *err)
{
    const struct mist_arg_row *row = find_row(of->rows, item->name);
    const char *value = item->value ? item->value : "";
    double number;

    if (!row)
        return mist_err_at(err, MIST_ERR_INPUT, args->path, item->line, 0,
                           "%.120s is not known; expected an argument of %s "
                           "(mist-sim --list --framework %s lists those that are)",
                           item->name, mist_framework_words[args->framework],
                           mist_framework_words[args->framework]);
    if (row->kind == MIST_ARG_REFUSED &&
        !(item->value && row->harmless && is_one_of(row->harmless, value)))
        return mist_err_at(err, MIST_ERR_INPUT, args->path, item->line, 0,
                           "%.100s%s%.60s can't be expressed: %s", item->name,
                           *value ? " " : "", value, row->note);
    if (row->kind == MIST_ARG_LEFT || row->kind == MIST_ARG_REFUSED) {
        note_left(args, item->name);
        return MIST_OK;
    }
    enum mist_status status = read_value(args, row, item, &number, err);
    if (status != MIST_OK || isnan(number)) {
        if (status == MIST_OK && mist_args_is_open(args, row->arg)) {
            args->name[row->arg] = row->name;
            args->line[row->arg] = item->line;
        }
        return status;
    }
    if (!mist_args_is_open(args, row->arg) && args->v[row->arg] != number)
        return contradict(args, row, item, err);
    if (row->note && number != row->absent)
        snprintf(args->notes, sizeof args->notes, "%s: %s", row->name, row->note);
    args->v[row->arg] = number;
    args->name[row->arg] = row->name;
    args->line[row->arg] = item->line;
    return MIST_OK;
}

/* The same from a text. */
static enum mist_status read_text(struct mist_args *args, const char *text, size_t n,
                                  struct mist_err *err)
{
    const struct mist_args_framework *of = find_framework(args->framework);
    struct mist_arg_list list;

    mist_arg_list_init(&list);
    enum mist_status status = of->read(&list, args->path, text, n, err);
    for (size_t i = 0; i < list.n && status == MIST_OK; i++)
        status = take_item(args, of, &list.items[i], err);
    mist_arg_list_fini(&list);
    for (const struct mist_arg_row *row = of->rows; row->name && status == MIST_OK; row++)
        if (!isnan(row->absent) && mist_args_is_open(args, row->arg))
            args->v[row->arg] = row->absent;
    for (int i = 0; of->rules[i] && status == MIST_OK; i++)
        status = of->rules[i](args, err);
    return status;
}

enum mist_status mist_args_load(struct mist_args *args, const char *path,
                                struct mist_err *err)
{
    char *text = NULL;
    size_t n = 0;

    args->path = path;
    if (!find_framework(args->framework))
        return mist_err_set(err, MIST_ERR_USAGE,
                            "arguments are read of megatron, deepspeed or torchtitan");
    enum mist_status status = mist_file_read_all(path, MAX_FILE_BYTES, &text, &n, err);
    if (status == MIST_OK)
        status = read_text(args, text, n, err);
    free(text);
    return status;
}

/* ---------------------------------------------------------------------------- writing */

static enum mist_status add_row(const struct mist_args *args,
                                const struct mist_arg_row *row,
                                struct mist_arg_list *list, struct mist_err *err)
{
    char number[MIST_FORMAT_BYTES];
    double value = args->v[row->arg];
    struct mist_arg_item item = {.name = row->name, .is_launcher = row->is_launcher};

    if (isnan(value) || value == row->absent ||
        (row->kind == MIST_ARG_FLAG && value != row->value))
        return MIST_OK;
    if (row->kind == MIST_ARG_COUNT || row->kind == MIST_ARG_REAL) {
        item.value = mist_format_double(number, sizeof number, value);
        item.sort = MIST_ARG_NUMBER;
    } else if (row->kind == MIST_ARG_WORD) {
        item.sort = row->words == mist_arg_bools ? MIST_ARG_BOOL : MIST_ARG_STRING;
        for (const struct mist_arg_word *w = row->words; w->word && !item.value; w++)
            item.value = w->value == value ? w->word : NULL;
        if (!item.value) /* what the framework has no word for */
            return MIST_OK;
    }
    return mist_arg_list_add(list, &item, NULL, err);
}

static enum mist_status write_text(const struct mist_args *args, char **text, size_t *n,
                                   struct mist_err *err)
{
    const struct mist_args_framework *of = find_framework(args->framework);
    struct mist_arg_list list;
    enum mist_status status = MIST_OK;

    mist_arg_list_init(&list);
    for (const struct mist_arg_row *row = of->rows; row->name && status == MIST_OK; row++)
        if (row->kind < MIST_ARG_LEFT && !row->is_alias)
            status = add_row(args, row, &list, err);
    FILE *stream = status == MIST_OK ? open_memstream(text, n) : NULL;
    if (status == MIST_OK && (!stream || !of->write(&list, stream)))
        status = mist_err_memory(err, NULL);
    if (stream && fclose(stream) != 0)
        status = mist_err_memory(err, NULL);
    mist_arg_list_fini(&list);
    return status;
}

/* ---------------------------------------------------------------------------- express */

/* The plan that the text is read as by somebody who is told what stands beside it. */
static enum mist_status read_back(const struct mist_plan *plan, int32_t node_devices,
                                  const char *text, size_t n,
                                  const struct mist_args_beside *beside,
                                  struct mist_plan *out, struct mist_err *err)
{
    struct mist_args args;

    mist_args_init(&args, plan->job.framework);
    args.n_devices = mist_plan_n_ranks(plan);
    args.node_devices = node_devices;
    if (beside->model)
        mist_args_set_model(&args, &plan->model);
    if (beside->seq_len)
        mist_args_set(&args, MIST_ARG_SEQ_LEN, plan->job.seq_len);
    if (beside->attention) {
        mist_args_set(&args, MIST_ARG_ATTENTION, plan->job.attention);
        mist_args_set(&args, MIST_ARG_NO_DROPOUT, plan->job.has_no_dropout);
    }
    enum mist_status status = read_text(&args, text, n, err);
    enum mist_family family = (enum mist_family)mist_args_or(&args, MIST_ARG_FAMILY, 0);
    if (status == MIST_OK && family != plan->model.family) /* whose sizes may not do */
        return mist_err_set(err, MIST_ERR_INPUT, "family is %s, it would be %s",
                            mist_family_words[plan->model.family],
                            mist_family_words[family]);
    return status == MIST_OK ? mist_args_make_plan(&args, out, err) : status;
}

enum mist_status mist_args_express(const struct mist_plan *plan, int32_t node_devices,
                                   char **text, size_t *n,
                                   struct mist_args_beside *beside, struct mist_err *err)
{
    enum mist_framework_name framework = plan->job.framework;
    const struct mist_args_framework *of = find_framework(framework);
    struct mist_plan *again = malloc(sizeof *again);
    struct mist_args args;
    struct mist_err why = {0};
    enum mist_status status = MIST_OK;

    *text = NULL;
    *beside = (struct mist_args_beside){0};
    if (plan->stages[0].n_nodes > 1)
        node_devices = plan->stages[0].n_devices;
    if (!of)
        status = mist_err_set(err, MIST_ERR_INPUT,
                              "the plan is ours, whose arguments are the plan; expected "
                              "one of megatron, deepspeed or torchtitan");
    else if (!again)
        status = mist_err_memory(err, NULL);
    if (status == MIST_OK) {
        mist_args_of_plan(&args, plan);
        args.node_devices = node_devices;
        of->begin(&args, plan, beside);
        status = write_text(&args, text, n, err);
    }
    if (status == MIST_OK) {
        status = read_back(plan, node_devices, *text, *n, beside, again, &why);
        if (status == MIST_OK)
            status = mist_args_compare(plan, again, &why);
        if (status == MIST_ERR_INPUT || status == MIST_ERR_RANGE)
            mist_err_set(err, MIST_ERR_INPUT, "%s can't express the plan: %.400s",
                         mist_framework_words[framework], why.message);
        else if (status != MIST_OK && err)
            *err = why;
    }
    free(again);
    if (status != MIST_OK) {
        free(*text);
        *text = NULL;
    }
    return status;
}

enum mist_status mist_args_save(const struct mist_plan *plan, int32_t node_devices,
                                const char *path, bool overwrites,
                                struct mist_args_beside *beside, struct mist_err *err)
{
    struct mist_atomic_file file;
    char *text = NULL;
    size_t n = 0;
    enum mist_status status =
        mist_args_express(plan, node_devices, &text, &n, beside, err);

    if (status == MIST_OK)
        status = mist_atomic_file_open(&file, path, overwrites, err);
    if (status == MIST_OK) {
        fwrite(text, 1, n, file.stream);
        status = mist_atomic_file_commit(&file, err);
    }
    free(text);
    return status;
}

/* ---------------------------------------------------------------------------- listing */

const char *mist_args_name_of(enum mist_framework_name framework, int arg)
{
    const struct mist_args_framework *of = find_framework(framework);

    for (const struct mist_arg_row *row = of ? of->rows : NULL; row && row->name; row++)
        if (row->kind < MIST_ARG_LEFT && row->arg == arg)
            return row->name;
    return NULL;
}

bool mist_args_row(enum mist_framework_name framework, int i, struct mist_args_row *out)
{
    static const char *const uses[] = {
        [MIST_ARG_FLAG] = "read", [MIST_ARG_COUNT] = "read",
        [MIST_ARG_REAL] = "read", [MIST_ARG_WORD] = "read",
        [MIST_ARG_LEFT] = "left", [MIST_ARG_REFUSED] = "refused",
    };
    const struct mist_args_framework *of = find_framework(framework);

    if (!of || !of->rows[i].name)
        return false;
    *out = (struct mist_args_row){
        .name = of->rows[i].name,
        .use = uses[of->rows[i].kind],
        .says = of->rows[i].kind < MIST_ARG_LEFT && of->rows[i].arg < MIST_ARG_OWN
                    ? arg_words[of->rows[i].arg]
                    : "",
        .note = of->rows[i].note ? of->rows[i].note : "",
        .harmless = of->rows[i].harmless ? of->rows[i].harmless : "",
    };
    return true;
}
