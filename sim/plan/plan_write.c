/* Writing plan.json; the layout is in plan.h, the fields are in plan_fields.h. */
#include "sim/plan/plan.h"

#include "core/json.h"
#include "sim/plan/plan_fields.h"
#include "sim/plan/plan_place.h"

#include <inttypes.h>
#include <stdio.h> /* snprintf */

/* A field as a JSON value; NULL: out of memory. */
static json_t *write_field(const struct mist_plan_field *f, const void *base)
{
    const void *in = (const char *)base + f->offset;
    char digits[17];

    switch (f->type) {
    case MIST_FIELD_WHOLE:
        return json_integer(mist_plan_field_whole(f, base));
    case MIST_FIELD_DOUBLE:
    case MIST_FIELD_FRACTION:
        return json_real(mist_plan_field_double(f, base));
    case MIST_FIELD_BOOL:
        return json_boolean(mist_plan_field_whole(f, base));
    case MIST_FIELD_WORD:
        return json_string(f->words[mist_plan_field_whole(f, base)]);
    case MIST_FIELD_CHARS:
        return json_string(in);
    case MIST_FIELD_HEX64:
        snprintf(digits, sizeof digits, "%016" PRIx64, *(const uint64_t *)in);
        return json_string(digits);
    case MIST_FIELD_ZERO:
        return json_integer(mist_stage_zero_level(base));
    }
    return NULL;
}

/* Whether the field has the value that its absence stands for. */
static bool is_left_out(const struct mist_plan_field *f, const void *base)
{
    if (!f->is_left_out)
        return false;
    if (f->type == MIST_FIELD_DOUBLE)
        return mist_plan_field_double(f, base) == 0;
    if (f->type == MIST_FIELD_CHARS)
        return !((const char *)base)[f->offset];
    return mist_plan_field_whole(f, base) == 0 ||
           mist_plan_field_whole(f, base) == f->none;
}

/* Sets the fields of a table; false: out of memory. */
static bool write_fields(json_t *object, const struct mist_plan_field *fields,
                         const void *base)
{
    for (const struct mist_plan_field *f = fields; f->key; f++)
        if (!is_left_out(f, base) &&
            json_object_set_new(object, f->key, write_field(f, base)))
            return false;
    return true;
}

/* An object by its table; NULL: out of memory. */
static json_t *write_object(const struct mist_plan_field *fields, const void *base)
{
    json_t *object = json_object();

    if (write_fields(object, fields, base))
        return object;
    json_decref(object);
    return NULL;
}

json_t *mist_plan_model_json(const struct mist_model *model)
{
    return write_object(mist_plan_model_fields, model);
}

/* n objects, the structs they stand for stride bytes apart; NULL: out of memory. */
static json_t *write_array(const struct mist_plan_field *fields, const void *base,
                           int32_t n, size_t stride)
{
    json_t *array = json_array();

    for (int32_t i = 0; i < n && array; i++) {
        const char *element = (const char *)base + (size_t)i * stride;
        if (json_array_append_new(array, write_object(fields, element))) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

static bool has_prediction(const struct mist_plan *plan)
{
    const struct mist_prediction *p = &plan->predicted;
    bool has = p->iteration_s != 0 || p->error_s != 0 || p->extrapolated_frac != 0 ||
               p->probe_s != 0;

    for (int32_t i = 0; i < plan->n_stages; i++)
        has = has || p->peak_bytes[i] || p->stable_s[i] != 0 || p->extra_s[i] != 0;
    return has;
}

static bool write_predicted(json_t *root, const struct mist_plan *plan)
{
    const struct mist_prediction *in = &plan->predicted;
    json_t *predicted = write_object(mist_plan_predicted_fields, in);

    return !json_object_set_new(root, "predicted", predicted) &&
           !json_object_set_new(predicted, "stages",
                                write_array(mist_plan_predicted_stage_fields, in,
                                            plan->n_stages, MIST_PLAN_PREDICTED_STRIDE));
}

/* The document; NULL: out of memory. */
static json_t *write_plan(const struct mist_plan *plan)
{
    json_t *root = json_object();
    bool fails =
        !root || json_object_set_new(root, "format", json_integer(1)) ||
        json_object_set_new(root, "model", mist_plan_model_json(&plan->model)) ||
        json_object_set_new(root, "job",
                            write_object(mist_plan_job_fields, &plan->job)) ||
        json_object_set_new(root, "cluster",
                            write_object(mist_plan_cluster_fields, plan)) ||
        !write_fields(root, mist_plan_knob_fields, plan) ||
        json_object_set_new(root, "stages",
                            write_array(mist_plan_stage_fields, plan->stages,
                                        plan->n_stages, sizeof plan->stages[0])) ||
        (mist_pipeline_kinds[plan->pipeline].n_kept_per_stage > 0 &&
         json_object_set_new(root, "passes",
                             write_array(mist_plan_pass_fields, plan->passes,
                                         plan->n_stages, sizeof plan->passes[0]))) ||
        (has_prediction(plan) && !write_predicted(root, plan));

    if (!fails)
        return root;
    json_decref(root);
    return NULL;
}

enum mist_status mist_plan_save(const struct mist_plan *plan, const char *path,
                                bool overwrites, struct mist_err *err)
{
    char trace_set[MIST_PLAN_TRACE_SET_BYTES];
    enum mist_status status;
    json_t *root;

    if ((status = mist_plan_check(plan, err)) ||
        (status = mist_json_check_text("the model's name", plan->model.name, err)) ||
        (status = mist_json_check_text("what the model asks for", plan->model.unsupported,
                                       err)) ||
        (status = mist_json_check_text("the trace set's path", plan->trace_set, err))) {
        mist_err_locate(err, path, 0);
        return status;
    }
    mist_plan_place_write(path, plan->trace_set, trace_set);
    root = write_plan(plan);
    if (!root || json_object_set_new(json_object_get(root, "cluster"), "trace_set",
                                     json_string(trace_set)) != 0) {
        json_decref(root);
        return mist_err_at(err, MIST_ERR_MEMORY, path, 0, 0, "out of memory");
    }
    status = mist_json_write_file(root, path, overwrites, err);
    json_decref(root);
    return status;
}
