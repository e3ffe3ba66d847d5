/*
 * The objects of plan.json as tables of fields: what plan_read.c reads and plan_write.c
 * writes, so that what is written is what can be read. The layout is in plan.h.
 */
#ifndef MIST_SIM_PLAN_FIELDS_H
#define MIST_SIM_PLAN_FIELDS_H

#include "sim/model/model.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mist_plan_field_type {
    MIST_FIELD_WHOLE, /* int32_t or int64_t */
    MIST_FIELD_DOUBLE,
    MIST_FIELD_FRACTION, /* double; 0 when left out */
    MIST_FIELD_BOOL,
    MIST_FIELD_WORD,  /* an enum, or a bool, by its words */
    MIST_FIELD_CHARS, /* char[size] */
    MIST_FIELD_HEX64, /* uint64_t as 16 hexadecimal digits */
    MIST_FIELD_ZERO,  /* the three nested flags of a stage as 0..3 */
};

struct mist_plan_field {
    const char *key; /* NULL ends a table */
    enum mist_plan_field_type type;
    bool is_left_out;         /* when it is 0 or none, false, the first word or empty */
    int none;                 /* a whole number */
    size_t offset, size;      /* in the struct the object stands for */
    const char *const *words; /* of MIST_FIELD_WORD */
};

/* The value of a MIST_FIELD_DOUBLE or MIST_FIELD_FRACTION in the object that its table is
 * of, and of fields that hold whole numbers, booleans or words. */
static inline double mist_plan_field_double(const struct mist_plan_field *field,
                                            const void *object)
{
    return *(const double *)(const void *)((const char *)object + field->offset);
}
int64_t mist_plan_field_whole(const struct mist_plan_field *field, const void *object);

extern const struct mist_plan_field mist_plan_model_fields[]; /* struct mist_model */
/* The model as plan.json has it; NULL: out of memory. */
json_t *mist_plan_model_json(const struct mist_model *model);

extern const struct mist_plan_field mist_plan_job_fields[]; /* struct mist_job */
/* struct mist_plan: "cluster", and the knobs of the whole plan, which are in the document */
extern const struct mist_plan_field mist_plan_cluster_fields[], mist_plan_knob_fields[];
extern const struct mist_plan_field mist_plan_stage_fields[]; /* struct mist_stage_plan */

/* Whether every knob of two stages is the same; of all stages of two plans, and of their
 * pipelines. */
struct mist_stage_plan;
struct mist_plan;
bool mist_plan_stages_are_same(const struct mist_stage_plan *a,
                               const struct mist_stage_plan *b);
bool mist_plan_is_same(const struct mist_plan *a, const struct mist_plan *b);

extern const struct mist_plan_field
    mist_plan_pass_fields[]; /* struct mist_pipeline_pass */

/* struct mist_prediction */
extern const struct mist_plan_field mist_plan_predicted_fields[];

/* One stage of struct mist_prediction: element i of three arrays,
 * i * MIST_PLAN_PREDICTED_STRIDE bytes further on. */
extern const struct mist_plan_field mist_plan_predicted_stage_fields[];

enum { MIST_PLAN_PREDICTED_STRIDE = sizeof(double) };

#endif
