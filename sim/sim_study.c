/* Studies of mist-sim. See sim_study.h. */
#include "sim/sim_study.h"

#include "core/memory.h"
#include "core/order.h"
#include "core/parse.h"
#include "core/progress.h"
#include "core/sweep.h"
#include "sim/sim_report.h"
#include "sim/sim_retune.h"
#include "sim/what_if.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A replay of a study: its edits, and what came out. */
struct point {
    const char *change; /* in words of what_if.h */
    struct mist_sim_edits edits;
    bool is_known; /* false: it can't be replayed, and its numbers are NAN */
    double iteration_s, error_s, tokens_per_s, model_frac;
    int64_t device_bytes, device_memory_bytes, host_bytes, host_memory_bytes;
    double prices_s[MIST_N_TASK_KINDS];
    bool has_slow_rank;
};

/* Whether a rank is made slower or faster. */
static bool edits_ranks(struct mist_sim_edits edits)
{
    bool is_found = false;

    for (int i = 0; i < edits.n; i++) {
        const char *value = strchr(edits.items[i], '=');
        is_found = is_found || (mist_what_if_is_of_rank(edits.items[i]) && value &&
                                strtod(value + 1, NULL) != 1);
    }
    return is_found;
}

static enum mist_status take_result(struct mist_sim_run *run,
                                    const struct mist_cluster *cluster,
                                    const struct mist_replay_result *result,
                                    struct point *out, struct mist_err *err)
{
    struct mist_speed speed;
    enum mist_status status =
        mist_sim_find_speed(run, cluster, result->iteration_s, &speed, err);

    if (status != MIST_OK)
        return status;
    out->is_known = true;
    out->iteration_s = result->iteration_s;
    out->error_s = result->error_s;
    out->tokens_per_s = speed.tokens_per_s;
    out->model_frac = speed.model_frac;
    out->device_bytes = mist_sim_report_needed_bytes(&run->plan, cluster, result);
    out->device_memory_bytes = cluster->device_memory_bytes;
    out->host_bytes = mist_sim_report_host_need(&run->plan, cluster, result).bytes;
    out->host_memory_bytes = cluster->host_memory_bytes_per_node;
    out->has_slow_rank = edits_ranks(out->edits);
    for (int i = 0; i < MIST_N_TASK_KINDS; i++)
        out->prices_s[i] = result->prices[i].time_s;
    return MIST_OK;
}

static enum mist_status replay_point(struct mist_sim_run *run, struct point *point,
                                     struct mist_err *err)
{
    struct mist_cluster cluster;
    struct mist_replay_result result;
    enum mist_status status =
        mist_sim_replay(run, point->edits, true, &cluster, &result, NULL, err);

    if (status != MIST_OK)
        return status;
    status = take_result(run, &cluster, &result, point, err);
    mist_replay_result_fini(&result);
    return status;
}

/* What is an error of one may be impossible of another, as on too few nodes. */
static enum mist_status allow_impossible(enum mist_status status, struct point *point)
{
    if (status != MIST_ERR_INPUT)
        return status;
    point->iteration_s = point->error_s = point->tokens_per_s = point->model_frac = NAN;
    return MIST_OK;
}

static enum mist_status try_point(struct mist_sim_run *run, struct point *point,
                                  struct mist_err *err)
{
    return allow_impossible(replay_point(run, point, err), point);
}

/* The same of a value of a sweep, or the check of it: says why it is impossible. */
static enum mist_status try_value(struct mist_sim_run *run, struct point *point,
                                  bool is_check, struct mist_err *err)
{
    struct mist_cluster cluster;
    enum mist_status status =
        is_check ? mist_sim_replay(run, point->edits, true, &cluster, NULL, NULL, err)
                 : replay_point(run, point, err);

    point->is_known = status == MIST_OK;
    if (status == MIST_ERR_INPUT)
        mist_message(&run->messages, "%s: %s", point->change, err->message);
    return allow_impossible(status, point);
}

static bool differ_in_price(const struct point *a, const struct point *b)
{
    for (int i = 0; i < MIST_N_TASK_KINDS; i++)
        if (a->prices_s[i] != b->prices_s[i])
            return true;
    return false;
}

/* Whether anything that the plan meets is another; unknown points are. */
static bool differ(const struct point *a, const struct point *b)
{
    return !a->is_known || !b->is_known || a->iteration_s != b->iteration_s ||
           a->error_s != b->error_s || a->device_bytes != b->device_bytes ||
           a->device_memory_bytes != b->device_memory_bytes ||
           a->host_memory_bytes != b->host_memory_bytes ||
           a->has_slow_rank != b->has_slow_rank || differ_in_price(a, b);
}

/* ----------------------------------------------------------------------------- output */

static void emit_bytes(struct mist_emit *emit, const char *key, const char *label,
                       bool is_known, int64_t bytes)
{
    if (is_known)
        mist_emit_int64(emit, key, label, bytes, MIST_HUMAN_BYTES);
    else
        mist_emit_text(emit, key, label, NULL);
}

static double change_frac(double value, double of)
{
    return of > 0 ? value / of - 1 : NAN;
}

static void emit_point(struct mist_emit *emit, const struct point *at,
                       const struct point *baseline, bool has_host)
{
    bool is_known = at->is_known, has_both = is_known && baseline->is_known;

    mist_emit_object_begin(emit, NULL, NULL);
    mist_emit_text(emit, "change", "what if", at->change);
    mist_emit_number(emit, "iteration_s", "iteration", at->iteration_s);
    mist_emit_number(emit, "error_s", "+-", at->error_s);
    mist_emit_number(emit, "iteration_change_s", "difference",
                     at->iteration_s - baseline->iteration_s);
    mist_emit_number(emit, "iteration_change_frac", "of it",
                     change_frac(at->iteration_s, baseline->iteration_s));
    mist_emit_double(emit, "tokens_per_s", "tokens/s", at->tokens_per_s,
                     MIST_HUMAN_COUNT);
    mist_emit_number(emit, "tokens_per_s_change_frac", "difference",
                     change_frac(at->tokens_per_s, baseline->tokens_per_s));
    mist_emit_number(emit, "model_flop_utilisation_frac", "MFU", at->model_frac);
    emit_bytes(emit, "device_bytes", "memory of a device", is_known, at->device_bytes);
    emit_bytes(emit, "device_bytes_change", "difference", has_both,
               at->device_bytes - baseline->device_bytes);
    emit_bytes(emit, "device_memory_bytes", "it has", is_known, at->device_memory_bytes);
    if (has_host) {
        emit_bytes(emit, "host_bytes", "host memory of a node", is_known, at->host_bytes);
        emit_bytes(emit, "host_memory_bytes", "it has", is_known, at->host_memory_bytes);
    }
    mist_emit_object_end(emit);
}

/* For machines, and with -v. */
static bool prints_all(const struct mist_sim_run *run)
{
    return run->kind != MIST_EMIT_TABLE || run->options.common.is_verbose;
}

/* points[0] is the baseline. has_all: also the host memory that none needs. */
static void emit_points(struct mist_emit *emit, const char *key, const char *title,
                        const struct point *points, size_t n, bool has_all)
{
    bool has_host = has_all;

    for (size_t i = 0; i < n; i++)
        has_host = has_host || points[i].host_bytes > 0;
    mist_emit_list_begin(emit, key, title);
    for (size_t i = 0; i < n; i++)
        emit_point(emit, &points[i], &points[0], has_host);
    mist_emit_list_end(emit);
}

/* ---------------------------------------------------------------------------- what if */

/* "a=2x,b=3x" of edits first .. n - 1; NULL: out of memory. */
static char *join(struct mist_sim_edits edits, int first, struct mist_arena *arena)
{
    size_t size = 1;

    for (int i = first; i < edits.n; i++)
        size += strlen(edits.items[i]) + 1;
    char *text = mist_arena_alloc(arena, size);
    if (!text)
        return NULL;
    text[0] = '\0';
    for (int i = first; i < edits.n; i++)
        mist_text_add(text, size, ",", "%s", edits.items[i]);
    return text;
}

/* Whether an edit that makes no difference alone, as more nodes, does so among all. */
static enum mist_status check_among_all(struct mist_sim_run *run, const struct point *all,
                                        int i_edit, struct mist_err *err)
{
    const char *items[MIST_OPTION_LIST_MAX];
    struct point without = {.edits = {0, items}};

    for (int i = 0; i < all->edits.n; i++)
        if (i != i_edit)
            items[without.edits.n++] = all->edits.items[i];
    enum mist_status status = all->edits.n > 1 ? try_point(run, &without, err) : MIST_OK;
    if (status == MIST_OK && (all->edits.n == 1 || !differ(all, &without)))
        status = mist_what_if_fail_nothing(all->edits.items[i_edit], err);
    return status;
}

enum mist_status mist_sim_study_what_if(struct mist_sim_run *run,
                                        const struct mist_cluster *cluster,
                                        const struct mist_replay_result *result,
                                        struct mist_emit *emit, struct mist_err *err)
{
    const struct mist_sim_edits all = {run->options.what_if.n,
                                       run->options.what_if.items};
    struct point points[MIST_OPTION_LIST_MAX + 2] = {{.change = "baseline"}};
    struct mist_arena arena;
    size_t n = 1;
    enum mist_status status = try_point(run, &points[0], err);

    mist_arena_init(&arena);
    for (int i = 0; i < all.n && all.n > 1 && status == MIST_OK; i++) {
        points[n] = (struct point){.change = all.items[i], .edits = {1, &all.items[i]}};
        status = try_point(run, &points[n++], err);
    }
    points[n] = (struct point){.change = join(all, 0, &arena), .edits = all};
    if (status == MIST_OK && !points[n].change)
        status = mist_err_memory(err, NULL);
    if (status == MIST_OK)
        status = take_result(run, cluster, result, &points[n++], err);
    for (int i = 0; i < all.n && status == MIST_OK; i++)
        if (!differ(&points[1 + i], &points[0]))
            status = check_among_all(run, &points[n - 1], i, err);
    if (status == MIST_OK)
        emit_points(emit, "what_if", "What if", points, n, prints_all(run));
    mist_arena_fini(&arena);
    return status;
}

/* ------------------------------------------------------------------------------ sweep */

struct sweep {
    struct mist_sweep of;
    struct point *points; /* [1 + n_points]; 0: the baseline */
    struct mist_arena arena;
};

/* "NAME=VALUE" of an axis at a point; NULL: out of memory. */
static char *edit_of(struct sweep *at, int64_t i_point, int32_t i_axis)
{
    const char *name = at->of.axes[i_axis].name;
    const char *value = mist_sweep_value(&at->of, i_point, i_axis);
    size_t size = strlen(name) + strlen(value) + 2;
    char *edit = mist_arena_alloc(&at->arena, size);

    if (edit)
        snprintf(edit, size, "%s=%s", name, value);
    return edit;
}

/* The edits of a point: those of all, then one value of each axis. */
static enum mist_status make_point(struct sweep *at, struct mist_sim_edits base,
                                   int64_t i_point, struct mist_err *err)
{
    int n = base.n + (int)at->of.n_axes;
    const char **items = mist_arena_alloc(&at->arena, (size_t)n * sizeof *items);
    struct point *point = &at->points[1 + i_point];
    bool is_ok = items;

    for (int i = 0; i < n && is_ok; i++) {
        items[i] = i < base.n ? base.items[i] : edit_of(at, i_point, i - base.n);
        is_ok = items[i];
    }
    point->edits = (struct mist_sim_edits){n, items};
    point->change = is_ok ? join(point->edits, base.n, &at->arena) : NULL;
    return point->change ? MIST_OK : mist_err_memory(err, NULL);
}

static enum mist_status read_sweeps(struct sweep *at,
                                    const struct mist_sim_options *options,
                                    struct mist_err *err)
{
    const struct mist_sim_edits base = {options->what_if.n, options->what_if.items};
    enum mist_status status = mist_sweep_parse(
        &at->of, options->sweep.items, options->sweep.n, "link.all=0.5x:1x:2x", err);

    if (status != MIST_OK)
        return status;
    if (!MIST_CALLOC(at->points, (size_t)at->of.n_points + 1))
        return mist_err_memory(err, NULL);
    at->points[0] = (struct point){.change = "baseline", .edits = base};
    for (int64_t i = 0; i < at->of.n_points && status == MIST_OK; i++)
        status = make_point(at, base, i, err);
    return status;
}

/* Whether some value of an axis differs from its first where all others are the same; the
 * only one, from the baseline. stride: of points, from one value to the next. */
static bool makes_difference(const struct sweep *at, int32_t i_axis, int64_t stride)
{
    const struct point *points = at->points + 1;
    int32_t n = at->of.axes[i_axis].n_values;

    for (int64_t i = 0; i < at->of.n_points && n > 1; i++)
        if (differ(&points[i], &points[i - i / stride % n * stride]))
            return true;
    return n == 1 && differ(&points[0], &at->points[0]);
}

/* Every axis makes a difference somewhere. */
static enum mist_status check_differences(const struct sweep *at, struct mist_err *err)
{
    const struct mist_sim_edits *last = &at->points[at->of.n_points].edits;
    int64_t stride = at->of.n_points;

    for (int32_t i = 0; i < at->of.n_axes; i++) {
        stride /= at->of.axes[i].n_values;
        if (!makes_difference(at, i, stride))
            return mist_what_if_fail_nothing(last->items[last->n - at->of.n_axes + i],
                                             err);
    }
    return MIST_OK;
}

static enum mist_status check_known(const struct sweep *at, struct mist_err *err)
{
    for (int64_t i = 1; i <= at->of.n_points; i++)
        if (at->points[i].is_known)
            return MIST_OK;
    return mist_err_set(err, MIST_ERR_INPUT, "--sweep: the plan runs with no value");
}

/* A replay of every point, or the check of it. */
static enum mist_status visit_points(struct mist_sim_run *run, struct sweep *at,
                                     bool is_check, struct mist_err *err)
{
    struct mist_progress progress;
    enum mist_status status = is_check ? MIST_OK : try_point(run, &at->points[0], err);

    mist_progress_init(&progress, (enum mist_progress_mode)run->options.common.progress,
                       false, run->messages.stream, "replaying");
    for (int64_t i = 1; i <= at->of.n_points && status == MIST_OK; i++) {
        mist_progress_update(&progress, i, at->of.n_points + 1);
        status = try_value(run, &at->points[i], is_check, err);
    }
    mist_progress_fini(&progress);
    return status == MIST_OK ? check_known(at, err) : status;
}

enum mist_status mist_sim_study_sweep(struct mist_sim_run *run, struct mist_emit *emit,
                                      struct mist_err *err)
{
    struct sweep at = {0};

    mist_arena_init(&at.arena);
    enum mist_status status = read_sweeps(&at, &run->options, err);
    if (status == MIST_OK)
        status = visit_points(run, &at, !emit, err);
    if (status == MIST_OK && emit)
        status = check_differences(&at, err);
    if (status == MIST_OK && emit)
        emit_points(emit, "sweep", NULL, at.points, (size_t)at.of.n_points + 1,
                    prints_all(run));
    free(at.points);
    mist_arena_fini(&at.arena);
    return status;
}

/* ------------------------------------------------------------------------ sensitivity */

static const char *const levers[] = {
    "kernel.products",  "kernel.attention",   "kernel.elementwise", "kernel.loss",
    "kernel.optimizer", "link.device",        "link.node",          "link.host",
    "device.peak",      "device.memory_rate", "device.memory",      "node.host_memory",
    "launch",           "framework.dispatch",
};
enum { N_LEVERS = sizeof levers / sizeof *levers };

/* What a lever does, pulled each way. */
struct pull {
    int i_lever;
    bool is_there; /* the cluster has it */
    struct point more, less;
    double retuned_s; /* the best plan's iteration, with more */
};

struct sensitivity {
    struct mist_sim_run *run;
    bool retunes;
    struct mist_progress progress;
    struct point baseline;
    double retuned_s; /* the best plan's iteration as things are */
    struct pull pulls[N_LEVERS];
    int n;
};

/* What is sought first. */
static double time_of(const struct pull *pull)
{
    return isnan(pull->retuned_s) ? pull->more.iteration_s : pull->retuned_s;
}

MIST_COMPARATOR_OF(
    compare_pulls, struct pull,
    MIST_COMPARE_OR(time_of(a), time_of(b),
                    MIST_COMPARE_OR(a->more.iteration_s, b->more.iteration_s,
                                    MIST_COMPARE_OR(b->less.iteration_s,
                                                    a->less.iteration_s,
                                                    a->i_lever - b->i_lever))))

/* The best that can be done where the plan takes kept_s: another plan, or this one. */
static enum mist_status retune(const struct sensitivity *at, struct mist_sim_edits edits,
                               double kept_s, double *out, struct mist_err *err)
{
    double tuned_s = NAN;
    enum mist_status status =
        at->retunes ? mist_sim_retune(at->run, edits, &tuned_s, err) : MIST_OK;

    *out = at->retunes ? fmin(kept_s, tuned_s) : NAN;
    return status;
}

/* One way. */
static enum mist_status pull_way(struct sensitivity *at, struct pull *pull, bool is_more,
                                 struct mist_err *err)
{
    const struct mist_option_list *base = &at->run->options.what_if;
    struct point *out = is_more ? &pull->more : &pull->less;
    const char *items[MIST_OPTION_LIST_MAX + 1], *lever = levers[pull->i_lever];
    char edit[64];

    snprintf(edit, sizeof edit, "%s=%s", lever, is_more ? "1.1x" : "0.9x");
    memcpy(items, base->items, (size_t)base->n * sizeof *items);
    items[base->n] = edit;
    *out = (struct point){.change = lever, .edits = {base->n + 1, items}};
    enum mist_status status = replay_point(at->run, out, err);
    pull->is_there = status == MIST_OK;
    if (status == MIST_OK && is_more)
        status = retune(at, out->edits, out->iteration_s, &pull->retuned_s, err);
    out->edits = (struct mist_sim_edits){0};
    return pull->is_there || status != MIST_ERR_USAGE ? status : MIST_OK;
}

/* Both ways; a lever without effect is not kept. */
static enum mist_status pull_lever(struct sensitivity *at, int i_lever,
                                   struct mist_err *err)
{
    struct pull *pull = &at->pulls[at->n];

    *pull = (struct pull){.i_lever = i_lever};
    enum mist_status status = pull_way(at, pull, true, err);
    if (status == MIST_OK && pull->is_there)
        status = pull_way(at, pull, false, err);
    if (status == MIST_OK && pull->is_there)
        at->n += differ(&pull->more, &at->baseline) ||
                 differ(&pull->less, &at->baseline) ||
                 (at->retunes && pull->retuned_s != at->retuned_s);
    return status;
}

static enum mist_status pull_levers(struct sensitivity *at, struct mist_err *err)
{
    enum mist_status status = replay_point(at->run, &at->baseline, err);

    if (status == MIST_OK)
        status =
            retune(at, at->baseline.edits, at->baseline.iteration_s, &at->retuned_s, err);
    for (int i = 0; i < N_LEVERS && status == MIST_OK; i++) {
        mist_progress_update(&at->progress, 1 + i, 1 + N_LEVERS);
        status = pull_lever(at, i, err);
    }
    if (status == MIST_OK)
        qsort(at->pulls, (size_t)at->n, sizeof *at->pulls, compare_pulls);
    return status;
}

/* An iteration, and how far it is from what it was. */
static void emit_time(struct mist_emit *emit, const char *of, const char *label,
                      double iteration_s, double base_s)
{
    const struct {
        const char *key, *label;
        double value;
        enum mist_human_format human;
    } columns[] = {
        {"iteration_s", label, iteration_s, MIST_HUMAN_TIME_S},
        {"change_s", "difference", iteration_s - base_s, MIST_HUMAN_TIME_S},
        {"change_frac", "of it", change_frac(iteration_s, base_s), MIST_HUMAN_FRAC},
    };
    char key[64];

    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        snprintf(key, sizeof key, "%s_%s", of, columns[i].key);
        mist_emit_double(emit, key, columns[i].label, columns[i].value, columns[i].human);
    }
}

static void emit_sensitivity(struct mist_emit *emit, const struct sensitivity *at)
{
    const struct point *baseline = &at->baseline;
    double base_s = baseline->iteration_s;

    mist_emit_number(emit, "iteration_s", "iteration", base_s);
    mist_emit_number(emit, "error_s", "error bar, +-", baseline->error_s);
    mist_emit_double(emit, "tokens_per_s", "tokens/s", baseline->tokens_per_s,
                     MIST_HUMAN_COUNT);
    if (at->retunes)
        mist_emit_number(emit, "best_iteration_s", "iteration of the best plan",
                         at->retuned_s);
    mist_emit_list_begin(emit, "sensitivity", "What would help most");
    for (int i = 0; i < at->n; i++) {
        const struct pull *pull = &at->pulls[i];
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_text(emit, "change", "10 % faster, or more", pull->more.change);
        emit_time(emit, "more", "iteration", pull->more.iteration_s, base_s);
        if (at->retunes)
            emit_time(emit, "retuned", "best plan", pull->retuned_s, at->retuned_s);
        emit_time(emit, "less", "10 % slower, or less", pull->less.iteration_s, base_s);
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}

enum mist_status mist_sim_study_sensitivity(struct mist_sim_run *run,
                                            struct mist_emit *emit, struct mist_err *err)
{
    const struct mist_sim_options *options = &run->options;
    struct sensitivity at = {
        .run = run,
        .retunes = options->retunes,
        .baseline = {.change = "baseline",
                     .edits = {options->what_if.n, options->what_if.items}}};

    mist_progress_init(&at.progress, (enum mist_progress_mode)options->common.progress,
                       false, run->messages.stream,
                       options->retunes ? "tuning" : "replaying");
    enum mist_status status = pull_levers(&at, err);
    mist_progress_fini(&at.progress);
    if (status == MIST_OK)
        emit_sensitivity(emit, &at);
    return status;
}
