/* Settings of a run on the command line and in checkpoints. See train_settings.h. */
#include "exec/train/train_settings.h"

#include "core/hash.h"
#include "core/parse.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *option, *key;
    bool is_whole; /* int64_t, else double */
    size_t offset;
} fields[MIST_TRAIN_N_SETTINGS] = {
#define AT(field) offsetof(struct mist_train_settings, field)
    {"seed", "seed", true, AT(seed)},
    {"iterations", "iterations", true, AT(n_iterations)},
    {"lr", "lr", false, AT(lr)},
    {"lr-min", "lr_min", false, AT(lr_min)},
    {"warm-up", "warm_up_steps", true, AT(warm_up_steps)},
    {"lr-decay-steps", "lr_decay_steps", true, AT(lr_decay_steps)},
    {"beta1", "beta1", false, AT(beta1)},
    {"beta2", "beta2", false, AT(beta2)},
    {"epsilon", "epsilon", false, AT(epsilon)},
    {"weight-decay", "weight_decay", false, AT(weight_decay)},
    {"clip", "clip_norm", false, AT(clip_norm)},
#undef AT
};
enum { SETTING_LR_MIN = 3, SETTING_LR_DECAY = 5 };

static int64_t *whole_at(void *settings, int32_t i)
{
    return (int64_t *)(void *)((char *)settings + fields[i].offset);
}

static double *real_at(void *settings, int32_t i)
{
    return (double *)(void *)((char *)settings + fields[i].offset);
}

/* -------------------------------------------------------------------- command line */

void mist_train_settings_find_given(const struct mist_tool *tool,
                                    const struct mist_positionals *positionals,
                                    bool is_given[MIST_TRAIN_N_SETTINGS])
{
    for (size_t k = 0; k < tool->n_options; k++)
        for (int32_t i = 0; i < MIST_TRAIN_N_SETTINGS; i++)
            if (strcmp(tool->options[k].name, fields[i].option) == 0)
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

/* value is taken over; NULL: out of memory. */
static bool set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

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
    struct mist_train_settings copy = *settings;
    char text[MIST_HASH_TEXT_BYTES];
    json_t *out = json_object();
    bool ok = out && set(out, "steps", json_integer(progress->n_steps)) &&
              set(out, "updates", json_integer(progress->n_updates)) &&
              set(out, "skipped_steps", json_integer(progress->n_skipped)) &&
              set(out, "samples", json_integer(progress->n_samples)) &&
              set(out, "data_fingerprint", json_string(fingerprint_of(data, text))) &&
              set(out, "global_batch", json_integer(plan->job.global_batch)) &&
              set(out, "seq_len", json_integer(plan->job.seq_len)) &&
              set(out, "dtype", json_string(mist_dtype_name(plan->job.dtype))) &&
              set(out, "lr_decays_to_last", json_boolean(copy.lr_decays_to_last));

    for (int32_t i = 0; i < MIST_TRAIN_N_SETTINGS && ok; i++)
        ok = set(out, fields[i].key,
                 fields[i].is_whole ? json_integer(*whole_at(&copy, i))
                                    : json_real(*real_at(&copy, i)));
    if (ok)
        return out;
    json_decref(out);
    return NULL;
}

static enum mist_status read_setting(const struct mist_json *training, int32_t i,
                                     struct mist_train_settings *out,
                                     struct mist_err *err)
{
    if (fields[i].is_whole)
        return mist_json_get_int64(training, fields[i].key, MIST_JSON_REQUIRED, INT64_MIN,
                                   INT64_MAX, whole_at(out, i), err);
    return mist_json_get_double(training, fields[i].key, MIST_JSON_REQUIRED, 0, 1e18,
                                real_at(out, i), err);
}

/* Checkpoints did not always say whether the end of the decay was asked for or followed from
 * the number of steps: then it stays where it was. */
static enum mist_status read_settings(const struct mist_json *training,
                                      struct mist_train_settings *out,
                                      struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < MIST_TRAIN_N_SETTINGS && status == MIST_OK; i++)
        status = read_setting(training, i, out, err);
    out->lr_decays_to_last = false;
    if (status == MIST_OK)
        status = mist_json_get_bool(training, "lr_decays_to_last", MIST_JSON_OPTIONAL,
                                    &out->lr_decays_to_last, err);
    return status;
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

static bool is_same(const void *a_settings, const void *b_settings, int32_t i)
{
    return memcmp((const char *)a_settings + fields[i].offset,
                  (const char *)b_settings + fields[i].offset, sizeof(int64_t)) == 0;
}

static void note_difference(const struct mist_train_settings *old,
                            const struct mist_train_settings *new, int32_t i,
                            const struct mist_messages *messages)
{
    struct mist_train_settings from = *old, to = *new;
    char a[MIST_FORMAT_BYTES], b[MIST_FORMAT_BYTES];

    if (fields[i].is_whole)
        mist_message(messages, "--%s %lld instead of the checkpoint's %lld",
                     fields[i].option, (long long)*whole_at(&to, i),
                     (long long)*whole_at(&from, i));
    else
        mist_message(messages, "--%s %s instead of the checkpoint's %s", fields[i].option,
                     mist_format_double(b, sizeof b, *real_at(&to, i)),
                     mist_format_double(a, sizeof a, *real_at(&from, i)));
}

/* global_batch: of the run so far. Checkpoints did not always say how many samples were
 * taken; then every step had as many. */
static enum mist_status read_progress(const struct mist_json *training,
                                      int64_t global_batch,
                                      struct mist_train_progress *out,
                                      struct mist_err *err)
{
    enum mist_status status = mist_json_get_int64(training, "steps", MIST_JSON_REQUIRED,
                                                  0, INT32_MAX, &out->n_steps, err);

    if (status == MIST_OK)
        status = mist_json_get_int64(training, "updates", MIST_JSON_REQUIRED, 0,
                                     out->n_steps, &out->n_updates, err);
    if (status == MIST_OK)
        status = mist_json_get_int64(training, "skipped_steps", MIST_JSON_REQUIRED, 0,
                                     out->n_steps, &out->n_skipped, err);
    if (status != MIST_OK)
        return status;
    out->n_samples = out->n_steps * global_batch;
    return mist_json_get_int64(training, "samples", MIST_JSON_OPTIONAL, 0, INT64_MAX,
                               &out->n_samples, err);
}

/* Weights and moments are fp32 in every checkpoint, so another format is no obstacle. */
static enum mist_status note_dtype(const struct mist_json *training,
                                   const struct mist_plan *plan,
                                   const struct mist_messages *messages,
                                   struct mist_err *err)
{
    const char *ours = mist_dtype_name(plan->job.dtype), *theirs = ours;
    enum mist_status status =
        mist_json_get_string(training, "dtype", MIST_JSON_OPTIONAL, &theirs, err);

    if (status == MIST_OK && strcmp(ours, theirs) != 0)
        mist_message(messages, "the plan trains in %s instead of the checkpoint's %.16s",
                     ours, theirs);
    return status;
}

/* What a checkpoint says of the samples that its run was trained on. */
struct samples {
    const char *fingerprint; /* of the data; borrowed */
    int64_t global_batch, seq_len;
};

enum { N_SAMPLE_CHECKS = 3 };

static enum mist_status read_samples(const struct mist_json *training,
                                     struct samples *out, struct mist_err *err)
{
    enum mist_status status = mist_json_get_string(
        training, "data_fingerprint", MIST_JSON_REQUIRED, &out->fingerprint, err);

    if (status == MIST_OK) /* times steps it fits 63 bits */
        status = mist_json_get_int64(training, "global_batch", MIST_JSON_REQUIRED, 1,
                                     INT64_MAX >> 32, &out->global_batch, err);
    if (status == MIST_OK)
        status = mist_json_get_int64(training, "seq_len", MIST_JSON_REQUIRED, 1,
                                     INT64_MAX, &out->seq_len, err);
    return status;
}

/* Check i of the samples to come: that they are the ones that would have come. */
static enum mist_status check_samples(int i, const struct mist_json *training,
                                      const struct samples *old, int64_t n_taken,
                                      const struct mist_plan *plan,
                                      const struct mist_data *data, struct mist_err *err)
{
    char text[MIST_HASH_TEXT_BYTES];

    if (i == 0 && strcmp(old->fingerprint, fingerprint_of(data, text)) != 0)
        return mist_json_fail_key(training, "data_fingerprint", MIST_ERR_INPUT, err,
                                  "the run was trained on other data (%.16s, this is "
                                  "%s); --force goes on with this, behind %lld samples",
                                  old->fingerprint, text, (long long)n_taken);
    if (i == 1 && old->global_batch != plan->job.global_batch)
        return mist_json_fail_key(training, "global_batch", MIST_ERR_INPUT, err,
                                  "the run had a global batch of %lld, the plan has "
                                  "%lld; --force goes on with that, behind the %lld "
                                  "samples taken so far",
                                  (long long)old->global_batch,
                                  (long long)plan->job.global_batch, (long long)n_taken);
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
    struct mist_train_settings old = *settings;
    struct samples samples;
    struct mist_err differs;
    enum mist_status status = read_samples(training, &samples, err);

    if (status == MIST_OK)
        status = read_progress(training, samples.global_batch, progress, err);
    if (status == MIST_OK)
        status = read_settings(training, &old, err);
    if (status != MIST_OK)
        return status;
    for (int i = 0; i < N_SAMPLE_CHECKS; i++) {
        status = check_samples(i, training, &samples, progress->n_samples, plan, data,
                               &differs);
        if (status != MIST_OK && !force) {
            if (err)
                *err = differs;
            return status;
        }
        if (status != MIST_OK)
            mist_message(messages, "%s", differs.message);
    }
    status = note_dtype(training, plan, messages, err);
    if (status != MIST_OK)
        return status;
    settings->lr_decays_to_last = old.lr_decays_to_last;
    for (int32_t i = 0; i < MIST_TRAIN_N_SETTINGS; i++) {
        if (!is_given[i])
            memcpy((char *)settings + fields[i].offset, (char *)&old + fields[i].offset,
                   sizeof(int64_t));
        else if (!is_same(settings, &old, i))
            note_difference(&old, settings, i, messages);
    }
    if (!is_given[SETTING_LR_DECAY])
        note_decay(training, &old, settings, messages);
    return MIST_OK;
}
