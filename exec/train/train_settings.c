/* Settings of a run on the command line and in checkpoints. See train_settings.h. */
#include "exec/train/train_settings.h"

#include "core/hash.h"
#include "core/json_fields.h"
#include "core/parse.h"

#include <math.h>
#include <string.h>

/* The "training" object of a checkpoint. */
struct saved {
    struct mist_train_progress done;        /* n_samples -1: it does not say */
    char fingerprint[MIST_HASH_TEXT_BYTES]; /* of the data */
    int64_t global_batch, seq_len;
    char dtype[17]; /* "": it does not say */
    struct mist_train_settings settings;
};

enum {
    FIRST_SETTING = 9
}; /* behind are those that have an option, in the order of options */
#define WHOLE  .type = MIST_FIELD_WHOLE
#define NUMBER .type = MIST_FIELD_DOUBLE, .limits = MIST_FIELD_FROM_0
#define FIELD  MIST_JSON_KEYED
static const struct mist_json_field fields[FIRST_SETTING + MIST_TRAIN_N_SETTINGS + 1] = {
    FIELD(saved, "steps", done.n_steps, WHOLE),
    FIELD(saved, "updates", done.n_updates, WHOLE),
    FIELD(saved, "skipped_steps", done.n_skipped, WHOLE),
    FIELD(saved, "samples", done.n_samples, WHOLE, .limits = MIST_FIELD_FROM_0,
          .is_optional = true),
    FIELD(saved, "data_fingerprint", fingerprint, .type = MIST_FIELD_CHARS),
    FIELD(saved, "global_batch", global_batch, WHOLE),
    FIELD(saved, "seq_len", seq_len, WHOLE, .limits = MIST_FIELD_ABOVE_0),
    FIELD(saved, "dtype", dtype, .type = MIST_FIELD_CHARS, .is_optional = true),
    FIELD(saved, "lr_decays_to_last", settings.lr_decays_to_last, .type = MIST_FIELD_BOOL,
          .is_optional = true),
    FIELD(saved, "seed", settings.seed, WHOLE),
    FIELD(saved, "iterations", settings.n_iterations, WHOLE),
    FIELD(saved, "lr", settings.lr, NUMBER),
    FIELD(saved, "lr_min", settings.lr_min, NUMBER),
    FIELD(saved, "warm_up_steps", settings.warm_up_steps, WHOLE),
    FIELD(saved, "lr_decay_steps", settings.lr_decay_steps, WHOLE),
    FIELD(saved, "beta1", settings.beta1, NUMBER),
    FIELD(saved, "beta2", settings.beta2, NUMBER),
    FIELD(saved, "epsilon", settings.epsilon, NUMBER),
    FIELD(saved, "weight_decay", settings.weight_decay, NUMBER),
    FIELD(saved, "clip_norm", settings.clip_norm, NUMBER),
};
static const char *const options[MIST_TRAIN_N_SETTINGS] = {
    "seed",  "iterations", "lr",      "lr-min",       "warm-up", "lr-decay-steps",
    "beta1", "beta2",      "epsilon", "weight-decay", "clip"};
enum { SETTING_LR_MIN = 3, SETTING_LR_DECAY = 5 };

/* -------------------------------------------------------------------- command line */

void mist_train_settings_find_given(const struct mist_tool *tool,
                                    const struct mist_positionals *positionals,
                                    bool is_given[MIST_TRAIN_N_SETTINGS])
{
    for (size_t k = 0; k < tool->n_options; k++)
        for (int32_t i = 0; i < MIST_TRAIN_N_SETTINGS; i++)
            if (strcmp(tool->options[k].name, options[i]) == 0)
                is_given[i] = positionals->is_given[k];
}

enum mist_status mist_train_settings_resolve(struct mist_train_settings *settings,
                                             const bool is_given[MIST_TRAIN_N_SETTINGS],
                                             struct mist_err *err)
{
    char a[MIST_FORMAT_BYTES], b[MIST_FORMAT_BYTES];

    if (is_given[SETTING_LR_DECAY])
        settings->lr_decays_to_last = false; /* a checkpoint's word, overruled */
    if (is_given[SETTING_LR_MIN] && settings->lr_decay_steps == 0)
        settings->lr_decays_to_last = true;
    if (settings->lr_decays_to_last)
        settings->lr_decay_steps = settings->n_iterations;
    if (settings->lr_min > settings->lr)
        return mist_err_set(err, MIST_ERR_USAGE, "--lr-min %s is above --lr %s",
                            mist_format_double(a, sizeof a, settings->lr_min),
                            mist_format_double(b, sizeof b, settings->lr));
    if (settings->lr_decay_steps > 0 &&
        settings->warm_up_steps >= settings->lr_decay_steps)
        return mist_err_set(
            err, MIST_ERR_USAGE,
            "--warm-up %lld leaves nothing of the %lld steps of --lr-decay-steps",
            (long long)settings->warm_up_steps, (long long)settings->lr_decay_steps);
    return MIST_OK;
}

double mist_train_settings_lr(const struct mist_train_settings *settings, int64_t i)
{
    int64_t warm_up = settings->warm_up_steps, end = settings->lr_decay_steps;
    double peak = settings->lr, minimum = settings->lr_min;

    if (i < warm_up)
        return peak * (double)(i + 1) / (double)warm_up;
    if (end == 0)
        return peak;
    if (i >= end)
        return minimum;
    double part = (double)(i - warm_up) / (double)(end - warm_up);
    return minimum + 0.5 * (peak - minimum) * (1 + cos(acos(-1.0) * part));
}

struct mist_adamw_args
mist_train_settings_adamw(const struct mist_train_settings *settings)
{
    return (struct mist_adamw_args){.beta1 = (float)settings->beta1,
                                    .beta2 = (float)settings->beta2,
                                    .epsilon = (float)settings->epsilon,
                                    .weight_decay = (float)settings->weight_decay};
}

/* --------------------------------------------------------------------- checkpoints */

static char *fingerprint_of(const struct mist_data *data, char text[MIST_HASH_TEXT_BYTES])
{
    struct mist_hash hash = {mist_data_fingerprint(data)};

    return mist_hash_format(&hash, text);
}

json_t *mist_train_settings_to_json(const struct mist_train_settings *settings,
                                    const struct mist_train_progress *progress,
                                    const struct mist_plan *plan,
                                    const struct mist_data *data)
{
    struct saved saved = {.done = *progress,
                          .global_batch = plan->job.global_batch,
                          .seq_len = plan->job.seq_len,
                          .settings = *settings};

    fingerprint_of(data, saved.fingerprint);
    snprintf(saved.dtype, sizeof saved.dtype, "%s", mist_dtype_words[plan->job.dtype]);
    return mist_json_write_fields(fields, &saved, NULL);
}

static enum mist_status check_range(const struct mist_json *training, const char *key,
                                    int64_t value, int64_t least, int64_t most,
                                    struct mist_err *err)
{
    if (value >= least && value <= most)
        return MIST_OK;
    return mist_json_fail_key(training, key, MIST_ERR_INPUT, err,
                              "%s: %lld is not within %lld .. %lld", key,
                              (long long)value, (long long)least, (long long)most);
}

/* Checkpoints did not always say whether the end of the decay was asked for or followed from
 * the number of steps: then it stays where it was. Nor how many samples were taken: then
 * every step had as many. */
static enum mist_status read_saved(const struct mist_json *training, struct saved *out,
                                   struct mist_err *err)
{
    struct mist_train_progress *done = &out->done;
    enum mist_status s;

    *out = (struct saved){.done = {.n_samples = -1}};
    if ((s = mist_json_read_fields(training, fields, out, err)) ||
        (s = check_range(training, "steps", done->n_steps, 0, INT32_MAX, err)) ||
        (s = check_range(training, "updates", done->n_updates, 0, done->n_steps, err)) ||
        (s = check_range(training, "skipped_steps", done->n_skipped, 0, done->n_steps,
                         err)) ||
        (s = check_range(training, "global_batch", out->global_batch, 1, INT64_MAX >> 32,
                         err))) /* times steps it fits 63 bits */
        return s;
    if (done->n_samples < 0)
        done->n_samples = done->n_steps * out->global_batch;
    return MIST_OK;
}

/* The run is made longer or shorter: whether the decay, which ended with it, does so still.
 * Of an old checkpoint nobody knows whether it was meant to. */
static void note_decay(const struct mist_json *training,
                       const struct mist_train_settings *old,
                       const struct mist_train_settings *new,
                       const struct mist_messages *messages)
{
    bool is_known = json_object_get(training->value, "lr_decays_to_last");

    if (old->lr_decay_steps != old->n_iterations ||
        new->n_iterations == old->n_iterations)
        return;
    if (old->lr_decays_to_last)
        mist_message(messages,
                     "the learning rate's decay ends at step %lld, with the run, instead "
                     "of %lld: --lr-decay-steps moves it",
                     (long long)new->n_iterations, (long long)old->lr_decay_steps);
    else if (!is_known)
        mist_message(messages,
                     "the learning rate's decay ends at step %lld, where the "
                     "checkpoint's run ended: --lr-decay-steps moves it",
                     (long long)old->lr_decay_steps);
}

static void note_difference(const struct saved *old, const struct saved *new, int32_t i,
                            const struct mist_messages *messages)
{
    const struct mist_json_field *f = &fields[FIRST_SETTING + i];
    char a[MIST_FORMAT_BYTES], b[MIST_FORMAT_BYTES];

    if (f->type == MIST_FIELD_WHOLE)
        mist_message(messages, "--%s %lld instead of the checkpoint's %lld", options[i],
                     (long long)mist_json_field_whole(f, new),
                     (long long)mist_json_field_whole(f, old));
    else
        mist_message(messages, "--%s %s instead of the checkpoint's %s", options[i],
                     mist_format_double(b, sizeof b, mist_json_field_double(f, new)),
                     mist_format_double(a, sizeof a, mist_json_field_double(f, old)));
}

enum { N_SAMPLE_CHECKS = 3 };

/* Check i of the samples to come: that they are the ones that would have come. */
static enum mist_status check_samples(int i, const struct mist_json *training,
                                      const struct saved *old,
                                      const struct mist_plan *plan,
                                      const struct mist_data *data, struct mist_err *err)
{
    char text[MIST_HASH_TEXT_BYTES];

    if (i == 0 && strcmp(old->fingerprint, fingerprint_of(data, text)) != 0)
        return mist_json_fail_key(training, "data_fingerprint", MIST_ERR_INPUT, err,
                                  "the run was trained on other data (%.16s, this is "
                                  "%s); --force goes on with this, behind %lld samples",
                                  old->fingerprint, text, (long long)old->done.n_samples);
    if (i == 1 && old->global_batch != plan->job.global_batch)
        return mist_json_fail_key(training, "global_batch", MIST_ERR_INPUT, err,
                                  "the run had a global batch of %lld, the plan has "
                                  "%lld; --force goes on with that, behind the %lld "
                                  "samples taken so far",
                                  (long long)old->global_batch,
                                  (long long)plan->job.global_batch,
                                  (long long)old->done.n_samples);
    if (i == 2 && old->seq_len != plan->job.seq_len)
        return mist_json_fail_key(training, "seq_len", MIST_ERR_INPUT, err,
                                  "the run had sequences of %lld tokens, the plan has "
                                  "%d; --force goes on with that: the data is cut anew, "
                                  "so tokens of this epoch may come again or be left out",
                                  (long long)old->seq_len, (int)plan->job.seq_len);
    return MIST_OK;
}

enum mist_status mist_train_settings_take_over(
    const struct mist_json *training, const struct mist_plan *plan,
    const struct mist_data *data, bool force, const bool is_given[MIST_TRAIN_N_SETTINGS],
    struct mist_train_settings *settings, struct mist_train_progress *progress,
    const struct mist_messages *messages, struct mist_err *err)
{
    const char *ours = mist_dtype_words[plan->job.dtype];
    struct saved old, now = {.settings = *settings};
    struct mist_err differs;
    enum mist_status status = read_saved(training, &old, err);

    if (status != MIST_OK)
        return status;
    *progress = old.done;
    for (int i = 0; i < N_SAMPLE_CHECKS; i++) {
        status = check_samples(i, training, &old, plan, data, &differs);
        if (status != MIST_OK && !force) {
            if (err)
                *err = differs;
            return status;
        }
        if (status != MIST_OK)
            mist_message(messages, "%s", differs.message);
    }
    /* weights and moments are fp32 in every checkpoint, so another format is no obstacle */
    if (old.dtype[0] && strcmp(ours, old.dtype) != 0)
        mist_message(messages, "the plan trains in %s instead of the checkpoint's %s",
                     ours, old.dtype);
    now.settings.lr_decays_to_last = old.settings.lr_decays_to_last;
    for (int32_t i = 0; i < MIST_TRAIN_N_SETTINGS; i++) {
        const struct mist_json_field *f = &fields[FIRST_SETTING + i];
        char *to = (char *)&now + f->offset, *from = (char *)&old + f->offset;
        if (!is_given[i])
            memcpy(to, from, f->size);
        else if (memcmp(to, from, f->size) != 0)
            note_difference(&old, &now, i, messages);
    }
    *settings = now.settings;
    if (!is_given[SETTING_LR_DECAY])
        note_decay(training, &old.settings, settings, messages);
    return MIST_OK;
}
