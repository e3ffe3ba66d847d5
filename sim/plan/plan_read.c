/*
 * Reading plan.json; the layout is in plan.h, the fields are in plan_fields.h.
 *
 * Reading only maps text to fields; whether the values make sense is
 * mist_plan_find_fault()'s to say, and its answer is given the line and column of the key
 * it blames.
 */
#include "sim/plan/plan.h"

#include "sim/plan/plan_fields.h"
#include "sim/plan/plan_place.h"

#include <stdio.h>  /* snprintf */
#include <stdlib.h> /* calloc, free */
#include <string.h> /* strcmp */

/* An object for each of n stages; the structs they stand for are stride bytes apart. what:
 * the objects, for the message. */
static enum mist_status read_each(const struct mist_json *array, const char *what,
                                  const struct mist_json_field *fields, int32_t n,
                                  void *base, size_t stride, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    if (mist_json_size(array) != (size_t)n)
        return mist_json_fail(array, MIST_ERR_INPUT, err,
                              "%zu %s, expected the plan's %d", mist_json_size(array),
                              what, n);
    for (int32_t i = 0; i < n && !status; i++) {
        struct mist_json element = mist_json_element(array, (size_t)i);
        status = mist_json_as_object(&element, err);
        if (!status)
            status = mist_json_read_fields(&element, fields,
                                           (char *)base + (size_t)i * stride, err);
    }
    return status;
}

static enum mist_status read_stages(const struct mist_json *root, struct mist_plan *plan,
                                    struct mist_err *err)
{
    struct mist_json stages;
    enum mist_status status =
        mist_json_get_array(root, "stages", MIST_JSON_REQUIRED, &stages, err);

    if (status)
        return status;
    if (mist_json_size(&stages) > MIST_MAX_STAGES)
        return mist_json_fail(&stages, MIST_ERR_INPUT, err,
                              "stages: %zu stages, expected at most %d",
                              mist_json_size(&stages), MIST_MAX_STAGES);
    plan->n_stages = (int32_t)mist_json_size(&stages);
    return read_each(&stages, "stages", mist_plan_stage_fields, plan->n_stages,
                     plan->stages, sizeof plan->stages[0], err);
}

/* Where the schedule is automatic. */
static enum mist_status read_passes(const struct mist_json *root, struct mist_plan *plan,
                                    struct mist_err *err)
{
    struct mist_json passes;
    bool is_auto = mist_pipeline_kinds[plan->pipeline].n_kept_per_stage > 0;
    enum mist_status status = mist_json_get_array(
        root, "passes", is_auto ? MIST_JSON_REQUIRED : MIST_JSON_OPTIONAL, &passes, err);

    if (status || !passes.value)
        return status;
    if (!is_auto)
        return mist_json_fail(&passes, MIST_ERR_INPUT, err,
                              "passes: a pipeline of kind %s has none",
                              mist_pipeline_words[plan->pipeline]);
    return read_each(&passes, "passes", mist_plan_pass_fields, plan->n_stages,
                     plan->passes, sizeof plan->passes[0], err);
}

static enum mist_status read_predicted(const struct mist_json *root,
                                       struct mist_plan *plan, struct mist_err *err)
{
    struct mist_json section, stages;
    enum mist_status status =
        mist_json_get_object(root, "predicted", MIST_JSON_OPTIONAL, &section, err);

    if (status || !section.value)
        return status;
    if ((status = mist_json_read_fields(&section, mist_plan_predicted_fields,
                                        &plan->predicted, err)) ||
        (status =
             mist_json_get_array(&section, "stages", MIST_JSON_REQUIRED, &stages, err)))
        return status;
    return read_each(&stages, "predicted stages", mist_plan_predicted_stage_fields,
                     plan->n_stages, &plan->predicted, MIST_PLAN_PREDICTED_STRIDE, err);
}

static enum mist_status read_plan(const struct mist_json *root, struct mist_plan *plan,
                                  struct mist_err *err)
{
    enum mist_status s;

    if ((s = mist_json_read_fields(root, mist_plan_fields, plan, err)) ||
        (s = read_stages(root, plan, err)) || (s = read_passes(root, plan, err)))
        return s;
    return read_predicted(root, plan, err);
}

/*
 * Gives the check's message the place of what it blames: a key of the root ("pipeline"),
 * of a section ("job"), or of a stage, which "stages" and "passes" hold themselves and
 * "predicted" in an array. Everything on the way exists, because the file was read.
 */
static enum mist_status locate_fault(const struct mist_json *root,
                                     const struct mist_plan_fault *fault,
                                     enum mist_status status, struct mist_err *err)
{
    struct mist_json section = *root, stages, element;
    bool is_array =
        strcmp(fault->section, "stages") == 0 || strcmp(fault->section, "passes") == 0;
    const struct mist_json *place = &section;
    bool is_inside = fault->key || fault->i_stage >= 0;
    char message[sizeof err->message];

    if (!err)
        return status;
    snprintf(message, sizeof message, "%s", err->message);
    if (!is_inside)
        return mist_json_fail_key(root, fault->section, status, err, "%s", message);
    if (!is_array &&
        mist_json_get_object(root, fault->section, MIST_JSON_REQUIRED, &section, NULL))
        return status;
    if (fault->i_stage >= 0) {
        if (mist_json_get_array(place, is_array ? fault->section : "stages",
                                MIST_JSON_REQUIRED, &stages, NULL))
            return status;
        element = mist_json_element(&stages, (size_t)fault->i_stage);
        place = &element;
    }
    if (fault->key)
        return mist_json_fail_key(place, fault->key, status, err, "%s", message);
    return mist_json_fail(place, status, err, "%s", message);
}

enum mist_status mist_plan_load(const char *path, struct mist_plan *out,
                                struct mist_err *err)
{
    struct mist_json_doc doc;
    struct mist_plan_fault fault;
    struct mist_plan *plan = NULL;
    enum mist_status status = mist_json_load(&doc, path, MIST_JSON_OWN, err);

    if (status)
        return status;
    struct mist_json root = mist_json_root(&doc);
    plan = calloc(1, sizeof *plan);
    if (!plan) {
        status = mist_err_at(err, MIST_ERR_MEMORY, path, 0, 0, "out of memory");
        goto out;
    }
    status = read_plan(&root, plan, err);
    if (status)
        goto out;
    status = mist_plan_find_fault(plan, &fault, err);
    if (status)
        status = locate_fault(&root, &fault, status, err);
    else
        *out = *plan;
    if (status == MIST_OK)
        mist_plan_place_read(path, out->trace_set);
out:
    free(plan);
    mist_json_fini(&doc);
    return status;
}
