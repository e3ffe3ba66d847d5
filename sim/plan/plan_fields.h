/*
 * The objects of plan.json as tables of fields: what plan_read.c reads and plan_write.c
 * writes, so that what is written is what can be read. The layout is in plan.h.
 */
#ifndef MIST_SIM_PLAN_FIELDS_H
#define MIST_SIM_PLAN_FIELDS_H

#include "core/json_fields.h"
#include "sim/model/model.h"

extern const struct mist_json_field
    mist_plan_fields[]; /* struct mist_plan: the document */
extern const struct mist_json_field mist_plan_model_fields[]; /* struct mist_model */
/* The model as plan.json has it; NULL: out of memory. */
json_t *mist_plan_model_json(const struct mist_model *model);

extern const struct mist_json_field mist_plan_job_fields[];   /* struct mist_job */
extern const struct mist_json_field mist_plan_stage_fields[]; /* struct mist_stage_plan */

/* Whether every knob of two stages is the same; of all stages of two plans, and of their
 * pipelines. */
struct mist_stage_plan;
struct mist_plan;
bool mist_plan_stages_are_same(const struct mist_stage_plan *a,
                               const struct mist_stage_plan *b);
bool mist_plan_is_same(const struct mist_plan *a, const struct mist_plan *b);

extern const struct mist_json_field
    mist_plan_pass_fields[]; /* struct mist_pipeline_pass */

/* struct mist_prediction */
extern const struct mist_json_field mist_plan_predicted_fields[];

/* One stage of struct mist_prediction: element i of three arrays,
 * i * MIST_PLAN_PREDICTED_STRIDE bytes further on. */
extern const struct mist_json_field mist_plan_predicted_stage_fields[];

enum { MIST_PLAN_PREDICTED_STRIDE = sizeof(double) };

#endif
