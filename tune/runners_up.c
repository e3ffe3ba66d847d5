/* Why plans lost. See runners_up.h. */
#include "tune/runners_up.h"

#include "core/parse.h"
#include "tune/alike.h"
#include "tune/plan_label.h"

#include <string.h>

enum { TEXT_BYTES = 160 };

static bool is_same_kind(const struct mist_plan *a, const struct mist_plan *b)
{
    char kind_a[MIST_PLAN_LABEL_BYTES], kind_b[MIST_PLAN_LABEL_BYTES];

    return strcmp(mist_plan_kind(a, kind_a), mist_plan_kind(b, kind_b)) == 0;
}

/* Whether plan i is none of these n; of_kind: of no kind of theirs and the best one's. */
static bool is_new(const struct mist_validate_result *result, const size_t *i_plan,
                   size_t n, size_t i, bool of_kind)
{
    const struct mist_plan *plan = result->plans[i].plan;
    bool is_known = of_kind && is_same_kind(plan, result->plans[0].plan);

    for (size_t k = 0; k < n; k++)
        is_known = is_known || i_plan[k] == i ||
                   (of_kind && is_same_kind(plan, result->plans[i_plan[k]].plan));
    return !is_known;
}

/* The fastest plans of other kinds than the best one's and each other's; where there are
 * too few kinds, the fastest of the rest, too. i_plan: [MIST_N_RUNNERS_UP], ascending.
 * Returns how many. */
static size_t choose(const struct mist_validate_result *result, size_t *i_plan)
{
    size_t n = 0;

    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 1; i < result->n_plans && n < MIST_N_RUNNERS_UP; i++) {
            if (!is_new(result, i_plan, n, i, pass == 0))
                continue;
            size_t k = n++;
            for (; k > 0 && i_plan[k - 1] > i; k--)
                i_plan[k] = i_plan[k - 1];
            i_plan[k] = i;
        }
    return n;
}

enum mist_status mist_runners_up_explain(const struct mist_validate_config *config,
                                         const struct mist_validate_result *result,
                                         struct mist_runners_up *out,
                                         struct mist_err *err)
{
    size_t i_plan[1 + MIST_N_RUNNERS_UP] = {0}; /* the best one, and those */
    size_t n = 1 + choose(result, i_plan + 1);
    enum mist_status status = MIST_OK;

    for (size_t k = 0; k < n && status == MIST_OK; k++) {
        status = mist_explain_plan(result->plans[i_plan[k]].plan, config->cost_model,
                                   config->threads, &out->of[k], err);
        out->n += status == MIST_OK;
    }
    return status;
}

void mist_runners_up_fini(struct mist_runners_up *runners_up)
{
    for (size_t i = 0; i < runners_up->n; i++)
        mist_explanation_fini(&runners_up->of[i]);
    runners_up->n = 0;
}

/* "more bubble (3.2 ms), more copies (2.1 ms)": what is longer in the other plan, the
 * second if it is half as much as the first. */
static void explain_difference(const struct mist_explanation *best,
                               const struct mist_explanation *other, char *text)
{
    double a[MIST_N_TIME_GROUPS], b[MIST_N_TIME_GROUPS], first_s = 0;
    char time[MIST_FORMAT_BYTES];

    mist_explanation_groups(best, a);
    mist_explanation_groups(other, b);
    text[0] = '\0';
    for (int n = 0; n < 2; n++) {
        int most = 0;
        for (int g = 1; g < MIST_N_TIME_GROUPS; g++)
            most = b[g] - a[g] > b[most] - a[most] ? g : most;
        double more_s = b[most] - a[most];
        if (more_s <= 0 || more_s < first_s / 2)
            return;
        mist_format_time_s(time, sizeof time, more_s);
        mist_text_add(text, TEXT_BYTES, ", ", "more %s (%s)",
                      mist_time_group_label((enum mist_time_group)most), time);
        first_s = more_s;
        b[most] = a[most];
    }
}

/* Plan number k of those explained. It may even be faster than the best where predictions
 * can't tell plans apart, or a simple one was asked for. */
static const char *explain_loss(const struct mist_trace_set *traces,
                                const struct mist_plan *best,
                                const struct mist_plan *other,
                                const struct mist_runners_up *runners_up, size_t k,
                                char *text)
{
    double more_s = other->predicted.iteration_s - best->predicted.iteration_s;

    if (more_s < 0 && mist_alike_n_eighths(other) > mist_alike_n_eighths(best) &&
        -more_s <= MIST_ALIKE_EIGHTHS_FRAC * other->predicted.iteration_s)
        return "ratios in eighths gain too little";
    if (more_s < 0)
        return -more_s < mist_alike_bar_s(traces, best, other)
                   ? "faster within the error bars, but less simple"
                   : "faster, but less simple";
    if (more_s == 0)
        return "as fast; the first is simpler, or faster by the closed form";
    text[0] = '\0';
    if (k < runners_up->n)
        explain_difference(&runners_up->of[0], &runners_up->of[k], text);
    if (more_s < mist_alike_bar_s(traces, best, other))
        mist_text_add(text, TEXT_BYTES, "; ", "within the error bars");
    return text[0] ? text : "slower";
}

static void emit_row(struct mist_emit *emit, int64_t place,
                     const struct mist_validated *of, double time_s, double best_s,
                     const char *why)
{
    char label[MIST_PLAN_LABEL_BYTES];

    mist_emit_object_begin(emit, NULL, NULL);
    if (place > 0)
        mist_emit_integer(emit, "place", "#", place);
    mist_emit_text(emit, "kind", "kind", mist_plan_label(of->plan, label));
    mist_emit_integer(emit, "n_micro_batches", "G", of->plan->n_micro_batches);
    mist_emit_number(emit, "iteration_s", "iteration", time_s);
    mist_emit_number(emit, "slower_frac", "slower", time_s / best_s - 1);
    mist_emit_integer(emit, "peak_bytes", "arena", of->planned_bytes);
    mist_emit_text(emit, "why", "why it lost", why);
    mist_emit_object_end(emit);
}

const char *mist_runners_up_excess(const struct mist_validate_config *config,
                                   const struct mist_validated *dropped,
                                   char text[MIST_EXCESS_BYTES])
{
    int64_t device_bytes =
        dropped->planned_bytes + dropped->beside_bytes - config->limit_bytes;
    int64_t host_bytes = dropped->host_bytes - config->host_limit_bytes;
    bool is_device = device_bytes > 0;
    char bytes[MIST_FORMAT_BYTES];

    if (!is_device && host_bytes <= 0)
        return "it is over the memory that a constraint allows";
    mist_format_bytes(bytes, sizeof bytes, is_device ? device_bytes : host_bytes);
    snprintf(text, MIST_EXCESS_BYTES, "%s over the %s", bytes,
             is_device ? "memory" : "host memory of a node");
    return text;
}

/* What the closed form, which knows 1F1B alone, says of a plan that has its schedule. */
static double find_closed_s(const struct mist_validated *of)
{
    double in_1f1b_s = of->pipelines[MIST_PIPELINE_1F1B].time_s; /* 0: not replayed */

    return in_1f1b_s > 0 ? of->closed_s * of->plan->predicted.iteration_s / in_1f1b_s
                         : of->closed_s;
}

void mist_runners_up_emit(struct mist_emit *emit, const struct mist_trace_set *traces,
                          const struct mist_validate_config *config,
                          const struct mist_validate_result *result,
                          const struct mist_runners_up *runners_up)
{
    const struct mist_plan *best = result->plans[0].plan;
    double best_s = best->predicted.iteration_s;
    double best_closed_s = find_closed_s(&result->plans[0]);
    const struct mist_validated *dropped = NULL;
    size_t i_plan[MIST_N_RUNNERS_UP], n = choose(result, i_plan);
    char text[TEXT_BYTES], excess[MIST_EXCESS_BYTES];

    for (size_t i = 0; i < result->n_dropped; i++)
        if (result->dropped[i].closed_s < (dropped ? dropped->closed_s : best_closed_s))
            dropped = &result->dropped[i];
    if (n == 0 && !dropped)
        return;
    mist_emit_list_begin(emit, "runners_up", "Runners-up");
    for (size_t k = 0; k < n; k++) {
        const struct mist_validated *of = &result->plans[i_plan[k]];
        emit_row(emit, (int64_t)i_plan[k] + 1, of, of->plan->predicted.iteration_s,
                 best_s, explain_loss(traces, best, of->plan, runners_up, k + 1, text));
    }
    if (dropped) {
        snprintf(text, sizeof text, "%s; time by the closed form, beside the best plan's",
                 mist_runners_up_excess(config, dropped, excess));
        emit_row(emit, 0, dropped, dropped->closed_s / best_closed_s * best_s, best_s,
                 text);
    }
    mist_emit_list_end(emit);
}
