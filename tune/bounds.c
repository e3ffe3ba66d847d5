/* Ranges of knobs: from text, for messages, of plans. See bounds.h. */
#include "tune/bounds.h"

#include "core/parse.h"

#include <stdio.h>
#include <string.h>

static const char *const switch_words[] = {"false", "true", NULL};
static const char *const place_words[] = {"device", "host", NULL};
static const char *const all_word[] = {"all", NULL};

/* What a knob is called and what values it takes. */
static const struct knob {
    const char *name, *key; /* the option's word; plan.json's, which is one, too */
    int32_t least, most;    /* of a number */
    const char *const
        *words;   /* values with names, 0, 1, ... ; for layers: MIST_KNOB_ALL */
    bool is_frac; /* a ratio, in eighths */
} knobs[MIST_N_KNOBS] = {
    [MIST_KNOB_PP] = {"pp", "stages", 1, MIST_MAX_STAGES, NULL, false},
    [MIST_KNOB_MICRO_BATCHES] = {"micro-batches", "n_micro_batches", 1, 1 << 24, NULL,
                                 false},
    [MIST_KNOB_MICRO_BATCH] = {"micro-batch", "micro_batch", 1, 1 << 24, NULL, false},
    [MIST_KNOB_LAYERS] = {"layers", "layers", 1, 1 << 20, NULL, false},
    [MIST_KNOB_DP] = {"dp", "dp", 1, 1 << 20, NULL, false},
    [MIST_KNOB_TP] = {"tp", "tp", 1, 1 << 20, NULL, false},
    [MIST_KNOB_CP] = {"cp", "cp", 1, 1 << 20, NULL, false},
    [MIST_KNOB_SEQUENCE] = {"sequence", "sequence_parallel", 0, 1, switch_words, false},
    [MIST_KNOB_ZERO] = {"zero", "zero", 0, 3, NULL, false},
    [MIST_KNOB_CKPT] = {"ckpt", "checkpointed_layers", 0, 1 << 20, all_word, false},
    [MIST_KNOB_LEAN] = {"lean", "lean_layers", 0, 1 << 20, all_word, false},
    [MIST_KNOB_OFFLOAD] = {"offload-weights", "offload_weights_frac", 0, 1, NULL, true},
    [MIST_KNOB_OFFLOAD + 1] = {"offload-gradients", "offload_gradients_frac", 0, 1, NULL,
                               true},
    [MIST_KNOB_OFFLOAD + 2] = {"offload-optimizer", "offload_optimizer_frac", 0, 1, NULL,
                               true},
    [MIST_KNOB_OFFLOAD + 3] = {"offload-activations", "offload_activations_frac", 0, 1,
                               NULL, true},
    [MIST_KNOB_UPDATE] = {"update-on", "update_on", 0, -1, place_words, false},
    [MIST_KNOB_SCHEDULE] = {"schedule", "pipeline", 0, -1, mist_pipeline_words, false},
    [MIST_KNOB_CHUNKS] = {"chunks", "chunks", 1, 1 << 20, NULL, false},
};

struct mist_bounds mist_bounds_none(void)
{
    struct mist_bounds bounds = {.is_uniform = false};

    for (int i = 0; i < MIST_N_KNOBS; i++)
        bounds.of[i] = (struct mist_knob_range){0, MIST_KNOB_ALL};
    return bounds;
}

/* --------------------------------------------------------------------------- from text */

/* The knob of the first n characters; MIST_N_KNOBS: there is none. */
static enum mist_knob find_knob(const char *text, size_t n)
{
    for (int i = 0; i < MIST_N_KNOBS; i++) {
        const char *const names[] = {knobs[i].name, knobs[i].key};
        for (size_t k = 0; k < 2; k++)
            if (strlen(names[k]) == n && strncmp(names[k], text, n) == 0)
                return (enum mist_knob)i;
    }
    return MIST_N_KNOBS;
}

static enum mist_status fail_knob(const char *option, const char *text,
                                  struct mist_err *err)
{
    char names[256] = "";

    for (int i = 0; i < MIST_N_KNOBS; i++)
        mist_text_add(names, sizeof names, ", ", "%s", knobs[i].name);
    return mist_err_set(err, MIST_ERR_USAGE,
                        "--%s: '%.80s' is no knob=value; knobs are %s", option, text,
                        names);
}

static enum mist_status fail_value(const char *option, const struct knob *knob,
                                   const char *text, struct mist_err *err)
{
    char words[128] = "";

    if (knob->least <= knob->most)
        mist_text_add(words, sizeof words, "", "%s%d to %d",
                      knob->is_frac ? "eighths, " : "", (int)knob->least,
                      (int)knob->most);
    for (int i = 0; knob->words && knob->words[i]; i++)
        mist_text_add(words, sizeof words, " or ", "%s", knob->words[i]);
    return mist_err_set(err, MIST_ERR_USAGE, "--%s %.80s: expected %s", option, text,
                        words);
}

/* false: it is none of the knob's. */
static bool parse_value(const struct knob *knob, const char *text, int32_t *out)
{
    bool is_all = knob->words == all_word;
    double unit = knob->is_frac ? MIST_KNOB_EIGHTHS : 1, value;

    int i = knob->words ? mist_word_find(knob->words, text) : -1;

    if (i >= 0) {
        *out = is_all ? MIST_KNOB_ALL : i;
        return true;
    }
    if (mist_parse_double(text, &value, NULL) != MIST_OK || value < knob->least ||
        value > knob->most || value * unit != (int32_t)(value * unit))
        return false;
    *out = (int32_t)(value * unit);
    return true;
}

enum mist_status mist_bounds_add(struct mist_bounds *bounds, const char *text,
                                 bool is_fixed, struct mist_err *err)
{
    const char *equals = strchr(text, '=');
    enum mist_knob knob = find_knob(text, equals ? (size_t)(equals - text) : 0);
    const char *option = is_fixed ? "fix" : "max";
    char before[MIST_BOUND_TEXT];
    int32_t value = 0;

    if (knob == MIST_N_KNOBS)
        return fail_knob(option, text, err);
    if (!is_fixed && knobs[knob].words && knobs[knob].words != all_word)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--max %s: values of %s have no order; expected --fix %s",
                            text, knobs[knob].name, text);
    if (!parse_value(&knobs[knob], equals + 1, &value))
        return fail_value(option, &knobs[knob], text, err);
    struct mist_knob_range *range = &bounds->of[knob];
    if (is_fixed ? value < range->min || value > range->max : value < range->min)
        return mist_err_set(err, MIST_ERR_USAGE, "--%s %s contradicts %s", option, text,
                            mist_bounds_text(bounds, knob, before));
    range->max = value < range->max ? value : range->max;
    range->min = is_fixed ? value : range->min;
    return MIST_OK;
}

/* --------------------------------------------------------------------------- to and of */

bool mist_bounds_has(const struct mist_bounds *bounds, enum mist_knob knob)
{
    return bounds->of[knob].min > 0 || bounds->of[knob].max < MIST_KNOB_ALL;
}

char *mist_bounds_text(const struct mist_bounds *bounds, enum mist_knob knob, char *text)
{
    const struct knob *of = &knobs[knob];
    struct mist_knob_range range = bounds->of[knob];
    const char *option = range.min == range.max ? "fix" : "max";

    if (of->words && (of->words != all_word || range.max == MIST_KNOB_ALL))
        snprintf(text, MIST_BOUND_TEXT, "--%s %s=%s", option, of->name,
                 of->words[of->words == all_word ? 0 : range.max]);
    else
        snprintf(text, MIST_BOUND_TEXT, "--%s %s=%g", option, of->name,
                 of->is_frac ? range.max / (double)MIST_KNOB_EIGHTHS : (double)range.max);
    return text;
}

bool mist_knob_allows(struct mist_knob_range range, int32_t value, int32_t n_all)
{
    return value >= (range.min == MIST_KNOB_ALL ? n_all : range.min) &&
           value <= range.max;
}

int32_t mist_knob_of(const struct mist_plan *plan, int32_t i_stage, enum mist_knob knob)
{
    const struct mist_stage_plan *stage = &plan->stages[i_stage];

    switch ((int)knob) {
    case MIST_KNOB_PP:
        return plan->n_stages;
    case MIST_KNOB_MICRO_BATCHES:
        return plan->n_micro_batches;
    case MIST_KNOB_MICRO_BATCH:
        return stage->micro_batch;
    case MIST_KNOB_LAYERS:
        return stage->n_layers;
    case MIST_KNOB_DP:
        return stage->dp;
    case MIST_KNOB_TP:
        return stage->tp;
    case MIST_KNOB_CP:
        return mist_stage_cp(stage);
    case MIST_KNOB_SEQUENCE:
        return stage->is_sequence_parallel;
    case MIST_KNOB_ZERO:
        return stage->zero;
    case MIST_KNOB_CKPT:
        return stage->n_checkpointed;
    case MIST_KNOB_LEAN:
        return stage->n_lean;
    case MIST_KNOB_UPDATE:
        return stage->updates_on_host;
    case MIST_KNOB_SCHEDULE:
        return (int32_t)plan->pipeline;
    case MIST_KNOB_CHUNKS:
        return mist_plan_n_chunks(plan);
    default:
        return (int32_t)(stage->offload_frac[knob - MIST_KNOB_OFFLOAD] *
                         MIST_KNOB_EIGHTHS);
    }
}

bool mist_bounds_allow(const struct mist_bounds *bounds, const struct mist_plan *plan)
{
    for (int32_t i = 0; i < plan->n_stages; i++) {
        const struct mist_stage_plan *stage = &plan->stages[i];
        for (int k = 0; k < MIST_N_KNOBS; k++) {
            int32_t value = mist_knob_of(plan, i, (enum mist_knob)k);
            int32_t n_all =
                stage->n_layers - (k == MIST_KNOB_LEAN ? stage->n_checkpointed : 0);
            if (!mist_knob_allows(bounds->of[k], value, n_all) ||
                (bounds->is_uniform && value != mist_knob_of(plan, 0, (enum mist_knob)k)))
                return false;
        }
    }
    return true;
}
