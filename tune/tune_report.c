/* Prints the results of mist-tune. See tune_report.h. */
#include "tune/tune_report.h"

#include "core/parse.h"
#include "sim/plan/plan_fields.h"
#include "tune/alike.h"
#include "tune/plan_label.h"
#include "tune/verify_report.h"

#include <math.h>
#include <string.h>

enum { TEXT_BYTES = 512 };

/* One knob over all stages, equal neighbours together: "2" when it is the same
 * everywhere, else "1,2*10,1"; what does not fit ends in "...". */
static const char *join_knob(const struct mist_plan *plan, enum mist_knob knob,
                             char *text)
{
    text[0] = '\0';
    for (int32_t i = 0, n; i < plan->n_stages; i += n) {
        int32_t value = mist_knob_of(plan, i, knob);
        for (n = 1; i + n < plan->n_stages && mist_knob_of(plan, i + n, knob) == value;)
            n++;
        if (strlen(text) > 40)
            return mist_text_add(text, TEXT_BYTES, ",", "...");
        mist_text_add(text, TEXT_BYTES, ",", "%d", (int)value);
        if (n > 1 && n < plan->n_stages)
            mist_text_add(text, TEXT_BYTES, "", "*%d", (int)n);
    }
    return text;
}

/* "weights 1/2, optimizer 1": what of a stage is offloaded; "" nothing. */
static const char *list_offloads(const struct mist_stage_plan *stage, char *text)
{
    text[0] = '\0';
    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        if (stage->offload_frac[k] > 0)
            mist_text_add(text, TEXT_BYTES, ", ", "%s %.3g %%", mist_offload_names[k],
                          100 * stage->offload_frac[k]);
    if (stage->updates_on_host)
        mist_text_add(text, TEXT_BYTES, "; ", "updated on the host");
    return text;
}

static void emit_offloads(struct mist_emit *emit, const struct mist_stage_plan *stage,
                          bool as_json)
{
    char text[TEXT_BYTES];

    if (!as_json) {
        mist_emit_text(emit, "offloaded", "offloaded", list_offloads(stage, text));
        return;
    }
    for (const struct mist_json_field *f = mist_plan_stage_fields; f->key; f++)
        if (f->type == MIST_FIELD_FRACTION)
            mist_emit_double(emit, f->key, "", mist_json_field_double(f, stage),
                             MIST_HUMAN_FRAC);
    mist_emit_text(emit, "update_on", "", stage->updates_on_host ? "host" : "device");
}

/* Stages first .. last in one row: the largest of their t, d and arenas. */
static void emit_predicted(struct mist_emit *emit, const struct mist_prediction *of,
                           int32_t first, int32_t last)
{
    double stable_s = of->stable_s[first], extra_s = of->extra_s[first];
    int64_t bytes = of->peak_bytes[first];

    for (int32_t i = first + 1; i <= last; i++) {
        stable_s = fmax(stable_s, of->stable_s[i]);
        extra_s = fmax(extra_s, of->extra_s[i]);
        bytes = of->peak_bytes[i] > bytes ? of->peak_bytes[i] : bytes;
    }
    if (of->stable_s[0] > 0) { /* plans of --target have none */
        mist_emit_number(emit, "stable_s", "t", stable_s);
        mist_emit_number(emit, "extra_s", "d", extra_s);
    }
    mist_emit_integer(emit, "peak_bytes", "arena", bytes);
}

/* has_all: a row for each; else neighbours with the same knobs share one. */
static void emit_stages(struct mist_emit *emit, const struct mist_plan *plan,
                        bool as_json, bool has_all)
{
    char text[TEXT_BYTES];

    mist_emit_list_begin(emit, "stages", "Stages");
    for (int32_t i = 0, last; i < plan->n_stages; i = last + 1) {
        const struct mist_stage_plan *stage = &plan->stages[i];
        for (last = i; !has_all && last + 1 < plan->n_stages &&
                       mist_plan_stages_are_same(stage, &plan->stages[last + 1]);)
            last++;
        mist_emit_object_begin(emit, NULL, NULL);
        if (last == i) {
            mist_emit_integer(emit, "stage", "stage", i);
        } else {
            snprintf(text, sizeof text, "%d .. %d", (int)i, (int)last);
            mist_emit_text(emit, "stage", "stage", text);
        }
        mist_emit_integer(emit, "layers", "layers", stage->n_layers);
        mist_emit_integer(emit, "dp", "dp", stage->dp);
        mist_emit_integer(emit, "tp", "tp", stage->tp);
        if (as_json || stage->cp > 1)
            mist_emit_integer(emit, "cp", "cp", mist_stage_cp(stage));
        mist_emit_integer(emit, "sequence_parallel", "sp", stage->is_sequence_parallel);
        mist_emit_integer(emit, "micro_batch", "b", stage->micro_batch);
        mist_emit_integer(emit, "zero", "ZeRO", stage->zero);
        mist_emit_integer(emit, "checkpointed_layers", "checkpointed",
                          stage->n_checkpointed);
        mist_emit_integer(emit, "lean_layers", "lean", stage->n_lean);
        emit_offloads(emit, stage, as_json);
        emit_predicted(emit, &plan->predicted, i, last);
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}

/* Why the best plan has its pipeline schedule: "zb_h1 (1f1b is 2.1 % slower; interleaved
 * does not fit the memory)". */
static const char *explain_pipeline(const struct mist_validated *of, char *text)
{
    enum mist_pipeline_schedule own = of->plan->pipeline;
    double best_s = of->plan->predicted.iteration_s;
    bool is_open = false;

    if (of->plan->n_stages == 1)
        return "none: one stage";
    snprintf(text, TEXT_BYTES, "%s", mist_pipeline_words[own]);
    if (own == MIST_PIPELINE_INTERLEAVED)
        mist_text_add(text, TEXT_BYTES, ", ", "%d chunks", (int)of->plan->n_chunks);
    for (int i = 0; i < MIST_N_PIPELINES; i++) {
        const struct mist_validated_pipeline *other = &of->pipelines[i];
        if (i == (int)own || other->tried == MIST_TRIED_NOT)
            continue;
        mist_text_add(text, TEXT_BYTES, is_open ? "; " : " (", "%s ",
                      mist_pipeline_words[i]);
        is_open = true;
        if (other->tried >= MIST_TRIED_PRICED)
            mist_text_add(text, TEXT_BYTES, "", "is %s%.2g %% slower",
                          other->tried == MIST_TRIED_PRICED ? "about " : "",
                          100 * (other->time_s / best_s - 1));
        else
            mist_text_add(text, TEXT_BYTES, "", "%s",
                          other->tried == MIST_TRIED_OVER_LIMIT
                              ? "does not fit the memory"
                              : "can't cut the layers or micro-batches");
    }
    return mist_text_add(text, TEXT_BYTES, "", "%s", is_open ? ")" : "");
}

/* The fastest plan by replay. */
static const struct mist_plan *find_fastest(const struct mist_validate_result *result)
{
    const struct mist_plan *fastest = result->plans[0].plan;

    for (size_t i = 1; i < result->n_plans; i++)
        if (result->plans[i].plan->predicted.iteration_s < fastest->predicted.iteration_s)
            fastest = result->plans[i].plan;
    return fastest;
}

/* Why simplicity chose the plan; text: [TEXT_BYTES], returned; NULL: it did not. */
static const char *explain_simple(const struct mist_tune_report *report, char *text)
{
    const struct mist_plan *plan = report->result->plans[0].plan;
    const struct mist_plan *fastest = find_fastest(report->result);
    char label[MIST_PLAN_LABEL_BYTES], other[MIST_PLAN_LABEL_BYTES];
    int n = mist_alike_n_techniques(plan), n_other = mist_alike_n_techniques(fastest);
    double gain_frac = 1 - fastest->predicted.iteration_s / plan->predicted.iteration_s;
    double asked_percent = 100 * report->config->slower_frac;

    mist_plan_label(plan, label);
    mist_plan_label(fastest, other);
    if (asked_percent > 0 && fastest == plan)
        snprintf(text, TEXT_BYTES, "the fastest, and none within %.3g %% is simpler",
                 asked_percent);
    else if (asked_percent > 0 && n < n_other)
        snprintf(text, TEXT_BYTES,
                 "fewest techniques (%d: %s) within %.3g %% of the fastest, which has %d "
                 "(%s) and takes %.3g %% less",
                 n, label, asked_percent, n_other, other, 100 * gain_frac);
    else if (mist_alike_n_eighths(plan) < mist_alike_n_eighths(fastest))
        snprintf(text, TEXT_BYTES,
                 "simpler ratios of offloading: those in eighths (%s) gain %.2g %%",
                 other, 100 * gain_frac);
    else
        return NULL;
    return text;
}

/* The replay that the closed form speaks of; 0: there was none. */
static double get_1f1b_s(const struct mist_validated *of)
{
    return of->pipelines[MIST_PIPELINE_1F1B].time_s;
}

/* Whether plans were run; else a signal came before. */
static bool has_verified(const struct mist_tune_report *report)
{
    return report->verified && report->verified->n_plans > 0;
}

/* How it was found, and how sure that is. */
static void emit_doubt(struct mist_emit *emit, const struct mist_tune_report *report)
{
    const struct mist_validated *best = &report->result->plans[0];
    char text[TEXT_BYTES];

    mist_emit_text(emit, "why_pipeline", "why this schedule",
                   explain_pipeline(best, text));
    mist_emit_number(emit, "extrapolated_frac", "of it not measured",
                     best->plan->predicted.extrapolated_frac);
    mist_emit_number(emit, "closed_form_s", "iteration, closed form", best->closed_s);
    mist_emit_number(emit, "closed_form_error_frac", "closed form / replay of 1f1b - 1",
                     best->closed_s / get_1f1b_s(best) - 1);
}

static void emit_memory(struct mist_emit *emit, const struct mist_tune_report *report,
                        bool has_all)
{
    const struct mist_validated *best = &report->result->plans[0];
    const struct mist_validate_config *config = report->config;

    mist_emit_integer(emit, "peak_bytes", "largest arena", best->planned_bytes);
    if (best->beside_bytes > 0)
        mist_emit_integer(emit, "beside_bytes", "its framework's beside it",
                          best->beside_bytes);
    if (config->limit_bytes < INT64_MAX)
        mist_emit_integer(emit, "limit_bytes",
                          best->beside_bytes > 0 ? "limit of both" : "its limit",
                          config->limit_bytes);
    if (!has_all && best->host_bytes == 0)
        return;
    mist_emit_integer(emit, "host_bytes", "host memory of a node", best->host_bytes);
    if (config->host_limit_bytes < INT64_MAX)
        mist_emit_integer(emit, "host_limit_bytes", "its limit",
                          config->host_limit_bytes);
}

static const char *list_edits(const struct mist_option_list *edits, char text[TEXT_BYTES])
{
    text[0] = '\0';
    for (int i = 0; i < edits->n; i++)
        mist_text_add(text, TEXT_BYTES, ",", "%s", edits->items[i]);
    return text;
}

static void emit_best(struct mist_emit *emit, const struct mist_tune_report *report,
                      bool has_all)
{
    const struct mist_plan *plan = report->result->plans[0].plan;
    const struct mist_prediction *predicted = &plan->predicted;
    char text[TEXT_BYTES];

    if (report->what_if->n > 0)
        mist_emit_text(emit, "what_if", "what if", list_edits(report->what_if, text));
    mist_emit_text(emit, "model", "model", plan->model.name);
    mist_emit_text(emit, "dtype", "weights and activations",
                   mist_dtype_words[plan->job.dtype]);
    mist_emit_integer(emit, "ranks", "ranks", mist_plan_n_ranks(plan));
    mist_emit_integer(emit, "n_micro_batches", "micro-batches (G)",
                      plan->n_micro_batches);
    if (has_all || plan->n_stages > 1)
        mist_emit_text(emit, "pipeline", "pipeline schedule",
                       mist_pipeline_words[plan->pipeline]);
    if (has_all || mist_plan_n_chunks(plan) > 1)
        mist_emit_integer(emit, "chunks", "its chunks", mist_plan_n_chunks(plan));
    mist_emit_number(emit, "iteration_s", "iteration, by replay", predicted->iteration_s);
    mist_emit_number(emit, "error_s", "its error bar, +-", predicted->error_s);
    if (report->lengths) {
        mist_emit_text(emit, "lengths", "mean over lengths of", report->lengths);
        mist_emit_number(emit, "full_iteration_s", "iteration of full samples",
                         report->result->plans[0].pipelines[plan->pipeline].time_s);
    }
    if (has_verified(report)) {
        const struct mist_verified *of =
            &report->verified->plans[report->verified->choice.i_chosen];
        mist_emit_number(emit, "measured_s", "iteration, measured", of->measured_s);
    }
    if (report->traces->n_checks > 0)
        mist_emit_integer(emit, "n_alike", "plans not told apart from the fastest",
                          (int64_t)report->n_alike - 1);
    if (report->has_constraints)
        mist_emit_number(emit, "proven_gap_frac",
                         "proven gap under constraints, closed form",
                         mist_search_gap_frac(&report->result->search));
    if (!has_verified(report) && explain_simple(report, text))
        mist_emit_text(emit, "why_simple", "why this plan", text);
    mist_speed_emit(emit, report->speed, has_all);
    if (report->bill) {
        mist_emit_double(emit, "train_tokens", "tokens of the training",
                         report->bill->n_tokens, MIST_HUMAN_COUNT);
        mist_bill_emit(emit, report->bill, true);
    }
    emit_memory(emit, report, has_all);
    if (has_all)
        emit_doubt(emit, report);
}

static void emit_plans(struct mist_emit *emit, const char *title,
                       const struct mist_validated *plans, size_t n)
{
    char text[TEXT_BYTES];
    bool has_cp = false;

    for (size_t i = 0; i < n; i++)
        has_cp = has_cp || plans[i].plan->stages[0].cp > 1;
    mist_emit_list_begin(emit, "plans", title);
    for (size_t i = 0; i < n; i++) {
        const struct mist_validated *of = &plans[i];
        const struct mist_plan *plan = of->plan;
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_integer(emit, "place", "#", (int64_t)i + 1);
        mist_emit_integer(emit, "n_micro_batches", "G", plan->n_micro_batches);
        mist_emit_integer(emit, "n_stages", "S", plan->n_stages);
        mist_emit_text(emit, "layers", "layers", join_knob(plan, MIST_KNOB_LAYERS, text));
        mist_emit_text(emit, "dp", "dp", join_knob(plan, MIST_KNOB_DP, text));
        mist_emit_text(emit, "tp", "tp", join_knob(plan, MIST_KNOB_TP, text));
        if (has_cp)
            mist_emit_text(emit, "cp", "cp", join_knob(plan, MIST_KNOB_CP, text));
        mist_emit_text(emit, "micro_batch", "b",
                       join_knob(plan, MIST_KNOB_MICRO_BATCH, text));
        mist_emit_text(emit, "zero", "ZeRO", join_knob(plan, MIST_KNOB_ZERO, text));
        mist_emit_text(emit, "checkpointed_layers", "checkpointed",
                       join_knob(plan, MIST_KNOB_CKPT, text));
        mist_emit_text(emit, "lean_layers", "lean",
                       join_knob(plan, MIST_KNOB_LEAN, text));
        mist_emit_number(emit, "iteration_s", "replay", plan->predicted.iteration_s);
        mist_emit_number(emit, "error_s", "+-", plan->predicted.error_s);
        if (of->closed_s > 0) /* sampled plans have none */
            mist_emit_number(emit, "closed_form_s", "closed form", of->closed_s);
        mist_emit_integer(emit, "peak_bytes", "arena", of->planned_bytes);
        mist_emit_text(emit, "kind", "kind", mist_plan_label(plan, text));
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}

/* How closed form and replay differ over the plans replayed. */
static void emit_comparison(struct mist_emit *emit, const struct mist_tune_report *report)
{
    const struct mist_validate_result *result = report->result;
    double worst = 0, sum = 0;

    for (size_t i = 0; i < result->n_plans; i++) {
        const struct mist_validated *of = &result->plans[i];
        double one_s = get_1f1b_s(of);
        double error = one_s > 0 ? fabs(of->closed_s / one_s - 1) : 0;
        worst = error > worst ? error : worst;
        sum += error / (double)result->n_plans;
    }
    mist_emit_number(emit, "closed_form_mean_error_frac", "closed form to replay, mean",
                     sum);
    mist_emit_number(emit, "closed_form_worst_error_frac", "closed form to replay, worst",
                     worst);
}

static void emit_search(struct mist_emit *emit, const struct mist_tune_report *report,
                        bool as_json)
{
    const struct mist_validate_result *result = report->result;
    const struct mist_search_result *search = &result->search;

    mist_emit_integer(emit, "n_cases", "cases searched", search->n_cases_done);
    mist_emit_int64(emit, "n_priced", "stage configurations priced", search->n_priced,
                    MIST_HUMAN_COUNT);
    mist_emit_int64(emit, "n_fitting", "within the memory", search->n_fitting,
                    MIST_HUMAN_COUNT);
    mist_emit_int64(emit, "n_frontier", "on a frontier", search->n_frontier,
                    MIST_HUMAN_COUNT);
    mist_emit_integer(emit, "n_replayed", "plans replayed",
                      (int64_t)(result->n_looked - result->n_dropped));
    mist_emit_integer(emit, "n_dropped", "plans dropped, planned memory over the limit",
                      (int64_t)result->n_dropped);
    mist_emit_integer(emit, "n_searches", "searches", result->n_searches);
    if (!as_json) /* the same input is to give the same document */
        mist_emit_number(emit, "search_s", "time of the search", report->search_s);
    if (!report->with_glpk && search->glpk.n_cases == 0)
        return;
    mist_emit_integer(emit, "glpk_cases", "cases given to GLPK", search->glpk.n_cases);
    mist_emit_integer(emit, "glpk_optimal", "solved by it in time",
                      search->glpk.n_optimal);
    mist_emit_integer(emit, "glpk_different", "unlike the exact solver",
                      search->glpk.n_differ);
    mist_emit_number(emit, "glpk_worst_frac", "largest difference",
                     search->glpk.worst_frac);
}

static void emit_dropped(struct mist_emit *emit, const struct mist_tune_report *report)
{
    const struct mist_validate_result *result = report->result;
    size_t n = result->n_dropped < report->n_top ? result->n_dropped : report->n_top;
    char text[TEXT_BYTES], excess[MIST_EXCESS_BYTES];

    if (n == 0)
        return;
    mist_emit_list_begin(emit, "dropped", "Dropped: planned memory over the limit");
    for (size_t i = 0; i < n; i++) {
        const struct mist_validated *of = &result->dropped[i];
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_integer(emit, "n_micro_batches", "G", of->plan->n_micro_batches);
        mist_emit_text(emit, "layers", "layers",
                       join_knob(of->plan, MIST_KNOB_LAYERS, text));
        mist_emit_text(emit, "dp", "dp", join_knob(of->plan, MIST_KNOB_DP, text));
        mist_emit_number(emit, "closed_form_s", "closed form", of->closed_s);
        mist_emit_integer(emit, "stage", "stage", of->i_stage);
        mist_emit_integer(emit, "peak_bytes", "arena", of->planned_bytes);
        mist_emit_integer(emit, "closed_form_bytes", "closed form", of->closed_bytes);
        mist_emit_integer(emit, "host_bytes", "host", of->host_bytes);
        mist_emit_text(emit, "why", "why",
                       mist_runners_up_excess(report->config, of, excess));
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}

/* How the best plan was found. */
static void emit_details(struct mist_emit *emit, const struct mist_tune_report *report)
{
    size_t n_plans = report->result->n_plans;

    emit_plans(emit, "Best plans", report->result->plans,
               n_plans < report->n_top ? n_plans : report->n_top);
    emit_dropped(emit, report);
    mist_emit_object_begin(emit, "comparison", "Comparison");
    emit_comparison(emit, report);
    mist_emit_object_end(emit);
    mist_emit_object_begin(emit, "search", "Search");
    emit_search(emit, report, report->kind != MIST_EMIT_TABLE);
    mist_emit_object_end(emit);
}

/* As a table, the first list is all of CSV. */
static void emit_lists(struct mist_emit *emit, const struct mist_tune_report *report,
                       bool has_all)
{
    bool as_json = report->kind != MIST_EMIT_TABLE;

    if (report->explains && report->runners_up->n > 0)
        mist_explanation_emit(emit, report->kind, &report->runners_up->of[0]);
    if (report->kind == MIST_EMIT_CSV) {
        emit_details(emit, report);
        return;
    }
    emit_stages(emit, report->result->plans[0].plan, as_json, has_all);
    mist_runners_up_emit(emit, report->traces, report->config, report->result,
                         report->runners_up);
    if (has_verified(report))
        mist_verify_emit(emit, report->verified, as_json);
    if (has_all)
        emit_details(emit, report);
}

enum mist_status mist_tune_report_print(const struct mist_tune_report *report,
                                        FILE *stream, struct mist_err *err)
{
    bool has_all = report->has_all || report->kind != MIST_EMIT_TABLE;
    struct mist_emit *emit;
    enum mist_status status = mist_emit_begin(&emit, report->kind, stream, err);

    if (status != MIST_OK)
        return status;
    mist_emit_object_begin(emit, "best", "Best plan");
    emit_best(emit, report, has_all);
    mist_emit_object_end(emit);
    emit_lists(emit, report, has_all);
    return mist_emit_end(&emit, err);
}

enum mist_status mist_tune_report_print_sample(const struct mist_validated *plans,
                                               size_t n, enum mist_emit_kind kind,
                                               FILE *stream, struct mist_err *err)
{
    struct mist_emit *emit;
    enum mist_status status = mist_emit_begin(&emit, kind, stream, err);

    if (status != MIST_OK)
        return status;
    emit_plans(emit, "Plans", plans, n);
    return mist_emit_end(&emit, err);
}

enum mist_status mist_tune_report_print_space(const struct mist_space *space,
                                              int64_t limit_bytes,
                                              enum mist_emit_kind kind, FILE *stream,
                                              struct mist_err *err)
{
    struct mist_emit *emit;
    char groups[TEXT_BYTES] = "";
    enum mist_status status = mist_emit_begin(&emit, kind, stream, err);

    if (status != MIST_OK)
        return status;
    for (int i = 0; i < MIST_N_SPACE_GROUPS; i++)
        if (mist_space_has(space, (enum mist_space_group)i))
            mist_text_add(groups, sizeof groups, ",", "%s",
                          mist_space_group_name((enum mist_space_group)i));
    mist_emit_text(emit, "model", "model", space->model.name);
    mist_emit_integer(emit, "ranks", "ranks", space->n_ranks);
    mist_emit_text(emit, "groups", "groups of knobs", groups);
    mist_emit_integer(emit, "n_cases", "cases (G, stages)", space->n_cases);
    mist_emit_double(emit, "n_plans", "plans", mist_space_n_plans(space),
                     MIST_HUMAN_COUNT);
    if (limit_bytes < INT64_MAX)
        mist_emit_integer(emit, "limit_bytes", "limit of the device arena", limit_bytes);
    return mist_emit_end(&emit, err);
}
