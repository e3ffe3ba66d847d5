/* Searches with more and more groups of knobs. See ablate.h. */
#include "tune/ablate.h"

#include "core/clock.h"
#include "tune/alike.h"
#include "tune/target.h"

#include <math.h> /* NAN */
#include <stdlib.h>

/* What is asked, and the rows so far. */
struct ablating {
    const struct mist_validate_config *config; /* the whole space */
    const struct mist_search_config *search;
    const struct mist_trace_set *traces;
    enum mist_framework_name framework; /* another; OURS: none */
    struct mist_ablation *out;
    struct mist_plan *foreign; /* the best of another framework */
    int n_foreign;             /* rows of another framework's ways: 0 or 1 */
};

/* Adds a row; plans: [n], the fastest first, afterwards the one that is taken; 0: nothing
 * fits. */
static void add_row(struct ablating *at, const char *added, struct mist_validated *plans,
                    size_t n, double time_start_s)
{
    struct mist_ablation_row *row = &at->out->rows[at->out->n_rows++];
    const struct mist_validated *best = n > 0 ? plans : NULL;

    *row = (struct mist_ablation_row){.added = added, .fits = best != NULL};
    row->search_s = mist_clock_now_s() - time_start_s;
    if (!best)
        return;
    row->iteration_s = best->plan->predicted.iteration_s;
    row->error_s = best->plan->predicted.error_s;
    row->peak_bytes = best->planned_bytes;
    mist_plan_label(best->plan, row->label);
    mist_alike_prefer(at->traces, at->config->slower_frac, plans, n);
    row->taken_s = best->plan->predicted.iteration_s; /* the plan that is first now */
}

/* What was found in a space is in those that it is a part of, too: where the search of the
 * last row missed it, the plan of the row before is its best. */
static void keep_better(struct ablating *at)
{
    struct mist_ablation_row *row = &at->out->rows[at->out->n_rows - 1];
    const struct mist_ablation_row *before = row - 1;
    const struct mist_ablation_row own = *row;

    if (at->out->n_rows < at->n_foreign + 2 || !before->fits ||
        (row->fits && row->iteration_s <= before->iteration_s))
        return;
    *row = *before;
    row->added = own.added;
    row->taken_s = own.fits ? own.taken_s : NAN;
    row->search_s = own.search_s;
}

static bool is_over(const struct ablating *at)
{
    return at->out->was_stopped || atomic_load(at->search->is_over);
}

/* The row of a space: prices are its own, so that the search takes what it takes alone.
 * rules: plans are those that this framework can express; the best one that it runs itself
 * is kept. */
static enum mist_status search_space(struct ablating *at, const struct mist_space *space,
                                     enum mist_framework_name rules, const char *added,
                                     struct mist_err *err)
{
    struct mist_validate_config config = *at->config;
    struct mist_search_config search = *at->search;
    struct mist_validate_result result;
    struct mist_stage_price *price = NULL;
    double time_start_s = mist_clock_now_s();
    enum mist_status status =
        mist_stage_price_new(config.cost_model, space, config.threads, &price, err);

    if (status != MIST_OK)
        return status;
    config.space = space;
    search.price_context = config.price = price;
    status =
        rules != MIST_FRAMEWORK_OURS
            ? mist_target_run(&config, rules, search.pool, search.is_over, &result, err)
            : mist_validate_run(&config, &search, &result, err);
    if (status == MIST_OK && space->job.framework != MIST_FRAMEWORK_OURS)
        *at->foreign = *result.plans[0].plan;
    if (status == MIST_OK)
        add_row(at, added, result.plans, result.n_plans, time_start_s);
    else if (status == MIST_ERR_NO_PLAN)
        add_row(at, added, NULL, 0, time_start_s);
    if (status == MIST_OK) {
        at->out->was_stopped = result.was_stopped;
        mist_validate_result_fini(&result);
    }
    mist_stage_price_free(price);
    return status == MIST_ERR_NO_PLAN ? MIST_OK : status;
}

static enum mist_status search_groups(struct ablating *at, unsigned groups,
                                      enum mist_framework_name rules, const char *added,
                                      struct mist_err *err)
{
    const struct mist_space *whole = at->config->space;
    struct mist_space space;
    enum mist_status status = mist_space_part(&space, whole, groups, &whole->bounds, err);

    if (status == MIST_OK)
        status = search_space(at, &space, rules, added, err);
    if (status == MIST_OK)
        keep_better(at);
    mist_space_fini(&space);
    return status;
}

/* The best plan of another framework, as it runs it. */
static enum mist_status search_foreign(struct ablating *at,
                                       const struct mist_messages *messages,
                                       struct mist_err *err)
{
    const struct mist_space *whole = at->config->space;
    struct mist_space space;
    enum mist_status status =
        mist_space_part(&space, whole, MIST_TARGET_GROUPS, &whole->bounds, err);

    mist_target_set(at->framework, messages, &space.model, &space.job);
    if (status == MIST_OK)
        status = search_space(at, &space, at->framework,
                              mist_framework_words[at->framework], err);
    mist_space_fini(&space);
    return status;
}

/* The same plan, as we run it. */
static enum mist_status price_as_ours(struct ablating *at, struct mist_err *err)
{
    double time_start_s = mist_clock_now_s();
    struct mist_validated ours = {.plan = at->foreign};
    enum mist_status status = MIST_OK;

    if (at->out->rows[0].fits) {
        at->foreign->model = at->config->space->model;
        at->foreign->job = at->config->space->job;
        status = mist_validate_plan(at->config, NULL, &ours, err);
    }
    if (status == MIST_OK)
        add_row(at, "our executor", &ours, ours.holds, time_start_s);
    return status;
}

/* The rows before those of single groups; *groups: what these rows have. */
static enum mist_status compare_foreign(struct ablating *at,
                                        const struct mist_messages *messages,
                                        unsigned *groups, struct mist_err *err)
{
    enum mist_status status;

    at->n_foreign = 1;
    at->foreign = malloc(sizeof *at->foreign);
    if (!at->foreign)
        return mist_err_memory(err, NULL);
    status = search_foreign(at, messages, err);
    if (status == MIST_OK && !is_over(at))
        status = price_as_ours(at, err);
    free(at->foreign);
    at->foreign = NULL;
    *groups = at->config->space->groups & (1u << MIST_SPACE_3D | MIST_TARGET_GROUPS);
    if (status == MIST_OK && !is_over(at))
        status = search_groups(at, MIST_TARGET_GROUPS, at->framework,
                               "its best plan there", err);
    if (status == MIST_OK && !is_over(at))
        status = search_groups(at, *groups, MIST_FRAMEWORK_OURS, "all its knobs", err);
    return status;
}

enum mist_status mist_ablate(const struct mist_validate_config *config,
                             const struct mist_search_config *search,
                             const struct mist_trace_set *traces,
                             enum mist_framework_name framework,
                             const struct mist_messages *messages,
                             struct mist_ablation *out, struct mist_err *err)
{
    struct ablating at = {.config = config,
                          .search = search,
                          .traces = traces,
                          .framework = framework,
                          .out = out};
    enum mist_status status = MIST_OK;
    unsigned groups = 0;
    bool has_plan = false;

    *out = (struct mist_ablation){0};
    if (framework != MIST_FRAMEWORK_OURS)
        status = compare_foreign(&at, messages, &groups, err);
    for (int g = 0; g < MIST_N_SPACE_GROUPS && status == MIST_OK && !is_over(&at); g++) {
        enum mist_space_group group = (enum mist_space_group)g;
        if (!mist_space_has(config->space, group) || groups >> g & 1u)
            continue;
        groups |= 1u << g;
        status = search_groups(&at, groups, MIST_FRAMEWORK_OURS,
                               mist_space_group_name(group), err);
    }
    for (int i = 0; i < out->n_rows; i++)
        has_plan = has_plan || out->rows[i].fits;
    return status == MIST_OK && !has_plan && !is_over(&at) ? MIST_ERR_NO_PLAN : status;
}

void mist_ablation_emit(struct mist_emit *emit, enum mist_emit_kind kind,
                        const struct mist_ablation *ablation)
{
    double first_s = NAN, before_s = NAN;

    mist_emit_list_begin(emit, "ablation", "The fastest plan, group by group");
    for (int i = 0; i < ablation->n_rows; i++) {
        const struct mist_ablation_row *row = &ablation->rows[i];
        double time_s = row->fits ? row->iteration_s : NAN;
        first_s = isfinite(first_s) ? first_s : time_s;
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_text(emit, "added", "group added", row->added);
        mist_emit_text(emit, "kind", "fastest plan",
                       row->fits ? row->label : "none fits the memory");
        mist_emit_number(emit, "iteration_s", "iteration", time_s);
        mist_emit_number(emit, "error_s", "+-", row->fits ? row->error_s : NAN);
        mist_emit_number(emit, "gain_frac", "faster by", before_s / time_s - 1);
        mist_emit_number(emit, "speedup", "than the first, x", first_s / time_s);
        mist_emit_number(emit, "taken_s", "of the plan taken",
                         row->fits ? row->taken_s : NAN);
        mist_emit_number(emit, "peak_bytes", "arena",
                         row->fits ? (double)row->peak_bytes : NAN);
        if (kind != MIST_EMIT_JSON)
            mist_emit_number(emit, "search_s", "search", row->search_s);
        mist_emit_object_end(emit);
        before_s = time_s;
    }
    mist_emit_list_end(emit);
}
