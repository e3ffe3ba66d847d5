/* Combinations of values. See sweep.h. */
#include "core/sweep.h"

#include <string.h>

static enum mist_status fail_item(const char *item, const char *example,
                                  struct mist_err *err)
{
    return mist_err_set(err, MIST_ERR_USAGE,
                        "--sweep %.100s: expected NAME=V1:V2:.., such as %s", item,
                        example);
}

/* Cuts the values behind the '=' apart. */
static enum mist_status parse_values(struct mist_sweep_axis *axis, char *text,
                                     const char *item, const char *example,
                                     struct mist_err *err)
{
    for (char *value = text, *colon; value; value = colon ? colon + 1 : NULL) {
        colon = strchr(value, ':');
        if (colon)
            *colon = '\0';
        if (!value[0])
            return fail_item(item, example, err);
        if (axis->n_values == MIST_SWEEP_MAX_VALUES)
            return mist_err_set(err, MIST_ERR_USAGE,
                                "--sweep %.60s has more than %d values", axis->name,
                                MIST_SWEEP_MAX_VALUES);
        axis->values[axis->n_values++] = value;
    }
    return MIST_OK;
}

static enum mist_status parse_axis(struct mist_sweep *out, char *text, const char *item,
                                   const char *example, struct mist_err *err)
{
    char *equals = strchr(text, '=');

    if (!equals || equals == text)
        return fail_item(item, example, err);
    if (out->n_axes == MIST_SWEEP_MAX_AXES)
        return mist_err_set(err, MIST_ERR_USAGE, "--sweep: more than %d names",
                            MIST_SWEEP_MAX_AXES);
    *equals = '\0';
    for (int32_t i = 0; i < out->n_axes; i++)
        if (strcmp(out->axes[i].name, text) == 0)
            return mist_err_set(err, MIST_ERR_USAGE, "--sweep: %.60s is swept twice",
                                text);
    struct mist_sweep_axis *axis = &out->axes[out->n_axes++];
    axis->name = text;
    axis->n_values = 0;
    return parse_values(axis, equals + 1, item, example, err);
}

enum mist_status mist_sweep_parse(struct mist_sweep *out, const char *const *items, int n,
                                  const char *example, struct mist_err *err)
{
    size_t used = 0;

    out->n_axes = 0;
    out->n_points = 1;
    for (int i = 0; i < n; i++) {
        size_t size = strlen(items[i]) + 1;
        if (size > sizeof out->texts - used)
            return mist_err_set(err, MIST_ERR_USAGE, "--sweep: more values than fit");
        char *text = memcpy(out->texts + used, items[i], size);
        enum mist_status status = parse_axis(out, text, items[i], example, err);
        if (status != MIST_OK)
            return status;
        used += size;
        out->n_points *= out->axes[out->n_axes - 1].n_values;
        if (out->n_points > MIST_SWEEP_MAX_POINTS)
            return mist_err_set(err, MIST_ERR_USAGE, "--sweep: more than %d combinations",
                                MIST_SWEEP_MAX_POINTS);
    }
    return MIST_OK;
}

const char *mist_sweep_value(const struct mist_sweep *sweep, int64_t i_point,
                             int32_t i_axis)
{
    for (int32_t i = sweep->n_axes - 1; i > i_axis; i--)
        i_point /= sweep->axes[i].n_values;
    const struct mist_sweep_axis *axis = &sweep->axes[i_axis];
    return axis->values[i_point % axis->n_values];
}
