/* Prints what was measured. See verify_report.h. */
#include "tune/verify_report.h"

#include "core/parse.h"
#include "tune/plan_label.h"

#include <math.h>

enum { CHOICE_BYTES = 384 };

/* Why the chosen plan was chosen. */
static const char *explain_choice(const struct mist_verify_result *verified, char *text)
{
    const struct mist_verify_choice *choice = &verified->choice;
    const struct mist_plan *other = verified->plans[choice->i_other].plan;
    bool is_fastest = choice->i_chosen == choice->i_fastest;
    double lead_s = is_fastest ? choice->ahead_s : -choice->ahead_s;
    char lead[MIST_FORMAT_BYTES], spread[MIST_FORMAT_BYTES], label[MIST_PLAN_LABEL_BYTES];

    if (choice->n_rounds == 0)
        return "the fastest by prediction; not all plans were run";
    if (choice->i_other == choice->i_chosen)
        return "the fastest, as predicted";
    mist_plan_label(other, label);
    mist_format_time_s(lead, sizeof lead, fabs(lead_s));
    mist_format_time_s(spread, sizeof spread, choice->ahead_spread_s);
    if (is_fastest)
        snprintf(text, CHOICE_BYTES,
                 "the fastest as measured, %s +- %s ahead of %s (G %d)", lead, spread,
                 label, (int)other->n_micro_batches);
    else
        snprintf(text, CHOICE_BYTES,
                 "predicted to be faster; that %s (G %d) ran %s%s +- %s ahead is within "
                 "the spread",
                 label, (int)other->n_micro_batches, lead_s < 0 ? "-" : "", lead, spread);
    return text;
}

static void emit_times(struct mist_emit *emit, const struct mist_verified *of)
{
    mist_emit_list_begin(emit, "times_s", NULL);
    for (int i = 0; i < of->n_rounds; i++)
        mist_emit_double(emit, NULL, NULL, of->times_s[i], MIST_HUMAN_TIME_S);
    mist_emit_list_end(emit);
}

/* The plans that were run, in the order of prediction. */
static void emit_plans(struct mist_emit *emit, const struct mist_verify_result *verified,
                       bool as_json)
{
    char label[MIST_PLAN_LABEL_BYTES];

    mist_emit_list_begin(emit, "verified", "Verified: the best plans, run");
    for (size_t i = 0; i < verified->n_plans; i++) {
        const struct mist_verified *of = &verified->plans[i];
        const struct mist_prediction *predicted = &of->plan->predicted;
        bool is_chosen = i == verified->choice.i_chosen;
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_text(emit, "kind", "kind", mist_plan_label(of->plan, label));
        mist_emit_integer(emit, "n_micro_batches", "G", of->plan->n_micro_batches);
        mist_emit_number(emit, "predicted_s", "predicted", predicted->iteration_s);
        mist_emit_number(emit, "error_s", "+-", predicted->error_s);
        mist_emit_number(emit, "measured_s", "measured", of->measured_s);
        mist_emit_number(emit, "spread_s", "spread", of->spread_s);
        mist_emit_number(emit, "prediction_error_frac", "error",
                         predicted->iteration_s / of->measured_s - 1);
        if (as_json) {
            emit_times(emit, of);
            mist_emit_bool(emit, "is_chosen", NULL, is_chosen);
            mist_emit_text(emit, "failure", NULL, of->failure[0] ? of->failure : NULL);
        } else {
            mist_emit_text(emit, "note", "",
                           is_chosen        ? "<- chosen"
                           : of->failure[0] ? "failed"
                                            : "");
        }
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}

static void emit_choice(struct mist_emit *emit, const struct mist_verify_result *verified)
{
    char text[CHOICE_BYTES];

    mist_emit_object_begin(emit, "choice", "Choice");
    mist_emit_integer(emit, "n_rounds", "rounds", verified->choice.n_rounds);
    mist_emit_text(emit, "reason", "why this plan", explain_choice(verified, text));
    mist_emit_object_end(emit);
}

void mist_verify_emit(struct mist_emit *emit, const struct mist_verify_result *verified,
                      bool as_json)
{
    emit_plans(emit, verified, as_json);
    emit_choice(emit, verified);
}
