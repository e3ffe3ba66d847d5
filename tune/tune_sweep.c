/* Searches over points of options. See tune_sweep.h. */
#include "tune/tune_sweep.h"

#include "core/interrupt.h"
#include "core/parse.h"
#include "traces/preset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What can be swept: options by their names or in short. device is the part of --cluster
 * that names it. */
static const struct {
    const char *name, *option;
} names[] = {
    {"nodes", "nodes"},
    {"devices-per-node", "devices-per-node"},
    {"ranks", "ranks"},
    {"memory", "device-memory"},
    {"device-memory", "device-memory"},
    {"batch", "global-batch"},
    {"global-batch", "global-batch"},
    {"seq-len", "seq-len"},
    {"model", "model"},
    {"device", NULL},
};
enum { N_NAMES = sizeof names / sizeof *names, N_POINT_TEXT = 200 };

static const char *const example = "nodes=1:2:4";

static int find_name(const char *name)
{
    int i = 0;

    while (i < N_NAMES && strcmp(names[i].name, name) != 0)
        i++;
    return i;
}

/* --------------------------------------------------------------------------- options */

static enum mist_status check_name(const struct mist_tune_sweep *sweep, int32_t i_axis,
                                   const struct mist_positionals *positionals,
                                   struct mist_err *err)
{
    const char *name = sweep->of.axes[i_axis].name;
    int i = find_name(name);

    if (i == N_NAMES)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--sweep %.60s: unknown name; there are nodes, "
                            "devices-per-node, ranks, memory, batch, seq-len, model and "
                            "device",
                            name);
    if (names[i].option &&
        mist_options_is_given(&mist_tune_tool, positionals, names[i].option))
        return mist_err_set(err, MIST_ERR_USAGE, "--%s contradicts --sweep %s",
                            names[i].option, name);
    for (int32_t k = 0; k < sweep->of.axes[i_axis].n_values && names[i].option; k++) {
        const char *value = sweep->of.axes[i_axis].values[k];
        int64_t n;
        if (mist_parse_bytes(value, &n, NULL) == MIST_OK && n == 0)
            return mist_err_set(err, MIST_ERR_USAGE,
                                "--sweep %s=%.60s: expected a number above 0", name,
                                value);
    }
    for (int32_t k = 0; k < i_axis; k++) {
        int other = find_name(sweep->of.axes[k].name);
        if (names[i].option && names[other].option &&
            strcmp(names[i].option, names[other].option) == 0)
            return mist_err_set(err, MIST_ERR_USAGE, "--sweep: %s and %s are the same",
                                sweep->of.axes[k].name, name);
    }
    if (!names[i].option && mist_trace_set_is_folder(sweep->cluster))
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--sweep device: --cluster %.200s is a trace set; expected a "
                            "preset such as h100-sxm:8x8",
                            sweep->cluster);
    return MIST_OK;
}

enum mist_status mist_tune_sweep_init(struct mist_tune_sweep *sweep,
                                      struct mist_tune_options *options,
                                      const struct mist_positionals *positionals,
                                      struct mist_err *err)
{
    memset(sweep, 0, sizeof *sweep);
    sweep->options = options;
    sweep->cluster = options->cluster;
    sweep->i_best = -1;
    if (options->log || options->pareto || options->plans || options->n_samples > 0 ||
        options->n_verified > 0 || options->ablates || options->explains ||
        options->export)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--sweep has a plan for each of its points; leave --log, "
                            "--pareto, --plans, --sample-plans, --verify, --ablate, "
                            "--explain and --export out");
    enum mist_status status = mist_sweep_parse(&sweep->of, options->sweep.items,
                                               options->sweep.n, example, err);

    for (int32_t i = 0; i < sweep->of.n_axes && status == MIST_OK; i++)
        status = check_name(sweep, i, positionals, err);
    return status;
}

void mist_tune_sweep_fini(struct mist_tune_sweep *sweep)
{
    free(sweep->rows);
    free(sweep->best);
    sweep->rows = NULL;
    sweep->best = NULL;
}

/* "nodes=2 batch=64". */
static void print_point(const struct mist_tune_sweep *sweep, int64_t i_point,
                        char text[N_POINT_TEXT])
{
    text[0] = '\0';
    for (int32_t i = 0; i < sweep->of.n_axes; i++)
        mist_text_add(text, N_POINT_TEXT, " ", "%.40s=%.80s", sweep->of.axes[i].name,
                      mist_sweep_value(&sweep->of, i_point, i));
}

/* Sets the options to a point. */
static enum mist_status set_point(struct mist_tune_sweep *sweep, int64_t i_point,
                                  struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < sweep->of.n_axes && status == MIST_OK; i++) {
        const char *option = names[find_name(sweep->of.axes[i].name)].option;
        const char *value = mist_sweep_value(&sweep->of, i_point, i);
        if (option) {
            status =
                mist_options_set(&mist_tune_tool, option, value, sweep->options, err);
            continue;
        }
        snprintf(sweep->device_cluster, sizeof sweep->device_cluster, "%.200s%.800s",
                 value, sweep->cluster + strcspn(sweep->cluster, ":,"));
        sweep->options->cluster = sweep->device_cluster;
    }
    return status;
}

/* Errors say at which point. */
static enum mist_status open_point(struct mist_tune_sweep *sweep, int64_t i_point,
                                   const struct mist_messages *messages,
                                   struct mist_tune_session *session,
                                   struct mist_err *err)
{
    char point[N_POINT_TEXT], place[N_POINT_TEXT + 16];
    enum mist_status status = set_point(sweep, i_point, err);

    *session = (struct mist_tune_session){0};
    if (status == MIST_OK)
        status = mist_tune_options_check(sweep->options, err);
    if (status == MIST_OK)
        status = mist_tune_session_open(session, sweep->options, messages, err);
    if (status != MIST_OK && status != MIST_ERR_NO_PLAN) {
        print_point(sweep, i_point, point);
        snprintf(place, sizeof place, "--sweep %s", point);
        mist_err_locate(err, place, 0);
    }
    return status;
}

/* ---------------------------------------------------------------------------- points */

/* Adds the lines of text that *lines, which grows, does not have. */
static enum mist_status add_lines(const char *text, char **lines, struct mist_err *err)
{
    size_t n_had = *lines ? strlen(*lines) : 0;
    char *grown = realloc(*lines, n_had + strlen(text) + 1);

    if (!grown)
        return mist_err_memory(err, NULL);
    *lines = grown;
    grown[n_had] = '\0';
    for (size_t n; *text; text += n) {
        char line[2304]; /* messages are shorter */
        n = strcspn(text, "\n") + 1;
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        if (!strstr(grown, line))
            strcat(grown, line);
    }
    return MIST_OK;
}

/* What a point has to say is added to *lines. */
static enum mist_status check_point(struct mist_tune_sweep *sweep, int64_t i_point,
                                    const struct mist_messages *messages, char **lines,
                                    struct mist_err *err)
{
    struct mist_tune_session session;
    char *text = NULL;
    size_t n = 0;
    struct mist_messages kept = {messages->tool, open_memstream(&text, &n)};

    if (!kept.stream)
        return mist_err_memory(err, NULL);
    enum mist_status status = open_point(sweep, i_point, &kept, &session, err);
    if (status == MIST_OK)
        status = mist_tune_session_check(&session, err);
    mist_tune_session_close(&session);
    if (status == MIST_ERR_NO_PLAN)
        status = MIST_OK; /* a row will say it */
    if (fclose(kept.stream) != 0 && status == MIST_OK)
        status = mist_err_memory(err, NULL);
    if (status == MIST_OK)
        status = add_lines(text, lines, err);
    free(text);
    return status;
}

enum mist_status mist_tune_sweep_check(struct mist_tune_sweep *sweep,
                                       const struct mist_messages *messages,
                                       struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    char *lines = NULL;

    for (int64_t i = 0; i < sweep->of.n_points && status == MIST_OK; i++)
        status = check_point(sweep, i, messages, &lines, err);
    if (status == MIST_OK && messages->stream)
        fputs(lines, messages->stream);
    free(lines);
    return status;
}

/* What becomes of a point where there is a plan. */
static enum mist_status fill_row(const struct mist_tune_session *session,
                                 const struct mist_validated *best,
                                 struct mist_tune_sweep_row *row, struct mist_err *err)
{
    row->has_plan = true;
    row->iteration_s = best->plan->predicted.iteration_s;
    row->error_s = best->plan->predicted.error_s;
    row->peak_bytes = best->planned_bytes;
    mist_plan_label(best->plan, row->label);
    return mist_tune_session_bill(session, best->plan, &row->speed, &row->bill, err);
}

/* What is to be least. */
static double find_value(const struct mist_tune_options *options,
                         const struct mist_bill *bill)
{
    return options->objective == MIST_OBJECTIVE_COST ? bill->cost : bill->training_s;
}

/* Whether a row is within the budget and better than the best so far. */
static bool is_better(const struct mist_tune_sweep *sweep,
                      const struct mist_tune_sweep_row *row)
{
    const struct mist_tune_options *options = sweep->options;

    return mist_bill_check(&row->bill, options->budget, NULL) == MIST_OK &&
           (sweep->i_best < 0 ||
            find_value(options, &row->bill) <
                find_value(options, &sweep->rows[sweep->i_best].bill));
}

static enum mist_status keep_best(struct mist_tune_sweep *sweep,
                                  const struct mist_plan *plan, struct mist_err *err)
{
    if (!sweep->best)
        sweep->best = malloc(sizeof *sweep->best);
    if (!sweep->best)
        return mist_err_memory(err, NULL);
    *sweep->best = *plan;
    sweep->i_best = sweep->n_rows - 1;
    return MIST_OK;
}

/* Searches an open session for the last row. */
static enum mist_status search_row(struct mist_tune_sweep *sweep,
                                   struct mist_tune_session *session,
                                   struct mist_progress *progress, struct mist_err *err)
{
    struct mist_tune_sweep_row *row = &sweep->rows[sweep->n_rows - 1];
    struct mist_validate_result result;
    size_t n_alike;
    enum mist_status status = mist_tune_session_check(session, err);

    row->n_devices = session->space.n_ranks;
    if (status == MIST_OK)
        status = mist_tune_session_price(session, err);
    if (status != MIST_OK)
        return status;
    const struct mist_search_config search =
        mist_tune_session_config(session, progress, NULL);
    status = mist_tune_session_search(session, &search, &result, &n_alike, err);
    if (status != MIST_OK)
        return status;
    sweep->was_stopped = result.was_stopped;
    status = fill_row(session, &result.plans[0], row, err);
    if (status == MIST_OK && is_better(sweep, row))
        status = keep_best(sweep, result.plans[0].plan, err);
    mist_validate_result_fini(&result);
    return status;
}

static enum mist_status run_point(struct mist_tune_sweep *sweep,
                                  const struct mist_messages *messages,
                                  struct mist_err *err)
{
    const struct mist_messages silent = {messages->tool, NULL}; /* all was said before */
    const struct mist_common_options *common = &sweep->options->common;
    struct mist_tune_sweep_row *row = &sweep->rows[sweep->n_rows++];
    struct mist_tune_session session;
    struct mist_progress progress;
    struct mist_err why = {0};

    mist_progress_init(&progress, (enum mist_progress_mode)common->progress,
                       common->no_color, messages->stream, "searching");
    enum mist_status status =
        open_point(sweep, sweep->n_rows - 1, &silent, &session, &why);
    if (status == MIST_OK)
        status = search_row(sweep, &session, &progress, &why);
    mist_progress_fini(&progress);
    mist_tune_session_close(&session);
    if (status == MIST_ERR_NO_PLAN) {
        snprintf(row->why, sizeof row->why, "%s", why.message);
        return MIST_OK;
    }
    if (status != MIST_OK && err)
        *err = why;
    return status;
}

enum mist_status mist_tune_sweep_run(struct mist_tune_sweep *sweep,
                                     const struct mist_messages *messages,
                                     struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    sweep->rows = calloc((size_t)sweep->of.n_points, sizeof *sweep->rows);
    if (!sweep->rows)
        return mist_err_memory(err, NULL);
    while (sweep->n_rows < sweep->of.n_points && status == MIST_OK &&
           !sweep->was_stopped) {
        if (atomic_load(mist_interrupt_flag()) != 0)
            break;
        status = run_point(sweep, messages, err);
    }
    sweep->was_stopped = atomic_load(mist_interrupt_flag()) != 0;
    return status;
}

/* ----------------------------------------------------------------------------- results */

/* Names of options as keys: "seq_len". */
static void emit_point(struct mist_emit *emit, const struct mist_tune_sweep *sweep,
                       int64_t i_point)
{
    for (int32_t i = 0; i < sweep->of.n_axes; i++) {
        const char *name = sweep->of.axes[i].name;
        char key[32];
        snprintf(key, sizeof key, "%s", name);
        for (char *c = key; *c; c++)
            *c = (char)(*c == '-' ? '_' : *c);
        mist_emit_text(emit, key, name, mist_sweep_value(&sweep->of, i_point, i));
    }
}

static void emit_row(struct mist_emit *emit, const struct mist_tune_sweep *sweep,
                     int64_t i_point, bool as_table)
{
    const struct mist_tune_sweep_row *row = &sweep->rows[i_point];
    bool has_price = sweep->options->prices.n > 0, has_plan = row->has_plan;
    const struct mist_bill none = {NAN, NAN, NAN, NAN};

    mist_emit_object_begin(emit, NULL, NULL);
    emit_point(emit, sweep, i_point);
    if (as_table)
        mist_emit_text(emit, "is_best", "best", i_point == sweep->i_best ? "*" : "");
    else
        mist_emit_bool(emit, "is_best", NULL, i_point == sweep->i_best);
    mist_emit_integer(emit, "devices", "devices", row->n_devices);
    mist_emit_number(emit, "iteration_s", "iteration", has_plan ? row->iteration_s : NAN);
    mist_emit_number(emit, "error_s", "+-", has_plan ? row->error_s : NAN);
    mist_emit_double(emit, "tokens_per_s", "tokens/s",
                     has_plan ? row->speed.tokens_per_s : NAN, MIST_HUMAN_COUNT);
    mist_emit_double(emit, "tokens_per_s_per_device", "of a device",
                     has_plan ? row->speed.tokens_per_s_per_device : NAN,
                     MIST_HUMAN_COUNT);
    mist_emit_number(emit, "model_flop_utilisation_frac", "MFU",
                     has_plan && row->speed.model_frac > 0 ? row->speed.model_frac : NAN);
    mist_emit_number(emit, "peak_bytes", "arena",
                     has_plan ? (double)row->peak_bytes : NAN);
    mist_bill_emit(emit, has_plan ? &row->bill : &none, has_price);
    mist_emit_text(emit, "kind", "best plan",
                   has_plan   ? row->label
                   : as_table ? row->why
                              : "");
    if (!as_table)
        mist_emit_text(emit, "why", NULL, row->why);
    mist_emit_object_end(emit);
}

enum mist_status mist_tune_sweep_print(const struct mist_tune_sweep *sweep,
                                       enum mist_emit_kind kind, FILE *stream,
                                       struct mist_err *err)
{
    struct mist_emit *emit;
    enum mist_status status = mist_emit_begin(&emit, kind, stream, err);

    if (status != MIST_OK)
        return status;
    if (kind != MIST_EMIT_CSV)
        mist_emit_double(emit, "train_tokens", "tokens of the training",
                         sweep->options->n_tokens, MIST_HUMAN_COUNT);
    mist_emit_list_begin(emit, "sweep", "The best plan of each point");
    for (int64_t i = 0; i < sweep->n_rows; i++)
        emit_row(emit, sweep, i, kind == MIST_EMIT_TABLE);
    mist_emit_list_end(emit);
    return mist_emit_end(&emit, err);
}

enum mist_status mist_tune_sweep_judge(const struct mist_tune_sweep *sweep,
                                       struct mist_err *err)
{
    char point[N_POINT_TEXT];
    int64_t i_least = -1;

    if (sweep->i_best >= 0 || sweep->was_stopped)
        return MIST_OK;
    for (int64_t i = 0; i < sweep->n_rows; i++)
        if (sweep->rows[i].has_plan &&
            (i_least < 0 || sweep->rows[i].bill.cost < sweep->rows[i_least].bill.cost))
            i_least = i;
    if (i_least >= 0) {
        print_point(sweep, i_least, point);
        return mist_err_set(
            err, MIST_ERR_NO_PLAN,
            "no point of the sweep is within --budget %.4g: the cheapest, "
            "%s, costs %.4g",
            sweep->options->budget, point, sweep->rows[i_least].bill.cost);
    }
    return mist_err_set(err, MIST_ERR_NO_PLAN, "no point of the sweep has a plan");
}
