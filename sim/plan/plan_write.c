/* Writing plan.json; the layout is in plan.h, the fields are in plan_fields.h. */
#include "sim/plan/plan.h"

#include "sim/plan/plan_fields.h"
#include "sim/plan/plan_place.h"

json_t *mist_plan_model_json(const struct mist_model *model)
{
    return mist_json_write_fields(mist_plan_model_fields, model, NULL);
}

/* n objects, the structs they stand for stride bytes apart; NULL: out of memory. */
static json_t *write_array(const struct mist_json_field *fields, const void *base,
                           int32_t n, size_t stride)
{
    json_t *array = json_array();

    for (int32_t i = 0; i < n && array; i++) {
        const char *element = (const char *)base + (size_t)i * stride;
        if (json_array_append_new(array, mist_json_write_fields(fields, element, NULL))) {
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
               p->probe_s != 0 || p->alone_frac != 0;

    for (int32_t i = 0; i < plan->n_stages; i++)
        has = has || p->peak_bytes[i] || p->stable_s[i] != 0 || p->extra_s[i] != 0;
    return has;
}

/* Sets "stages", and an object's other fields; NULL: out of memory. */
static json_t *write_with_stages(const struct mist_json_field *fields, const void *base,
                                 json_t *others, json_t *stages)
{
    json_t *object = json_object_set_new(others, "stages", stages) == 0
                         ? mist_json_write_fields(fields, base, others)
                         : NULL;

    json_decref(others);
    return object;
}

/* The document; NULL: out of memory. */
static json_t *write_plan(const struct mist_plan *plan)
{
    const struct mist_prediction *predicted = &plan->predicted;
    json_t *others = json_pack("{s:i}", "format", 1);
    bool has_passes = mist_pipeline_kinds[plan->pipeline].n_kept_per_stage > 0;
    bool fails =
        (has_passes &&
         json_object_set_new(others, "passes",
                             write_array(mist_plan_pass_fields, plan->passes,
                                         plan->n_stages, sizeof plan->passes[0]))) ||
        (has_prediction(plan) &&
         json_object_set_new(
             others, "predicted",
             write_with_stages(mist_plan_predicted_fields, predicted, json_object(),
                               write_array(mist_plan_predicted_stage_fields, predicted,
                                           plan->n_stages, MIST_PLAN_PREDICTED_STRIDE))));

    if (!fails)
        return write_with_stages(mist_plan_fields, plan, others,
                                 write_array(mist_plan_stage_fields, plan->stages,
                                             plan->n_stages, sizeof plan->stages[0]));
    json_decref(others);
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
