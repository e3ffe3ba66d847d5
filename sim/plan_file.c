/*
 * plan.json: reading and writing plans. The layout is in plan.h.
 *
 * Each object of the file has one table of fields, and the table drives reading, writing
 * and the refusal of unknown keys, so that what is written is what can be read. Reading
 * only maps text to fields; whether the values make sense is mist_plan_find_fault()'s to
 * say, and its answer is given the line and column of the key it blames.
 */
#include "sim/plan.h"

#include "core/json.h"

#include <inttypes.h>
#include <math.h>   /* INFINITY */
#include <stddef.h> /* offsetof */
#include <stdio.h>  /* snprintf */
#include <stdlib.h> /* calloc, free */
#include <string.h> /* memchr, strlen, strspn */

enum field_type {
    FIELD_INT32,
    FIELD_COUNT, /* int32_t; left out when 0 */
    FIELD_INT64,
    FIELD_DOUBLE,
    FIELD_FRACTION, /* double; 0 when left out */
    FIELD_BOOL,
    FIELD_FAMILY,
    FIELD_DTYPE,
    FIELD_CHARS, /* char[size] */
    FIELD_HEX64, /* uint64_t as 16 hexadecimal digits */
    FIELD_ZERO,  /* the three nested flags of a stage as 0..3 */
};

struct field {
    const char *key; /* NULL ends a table */
    enum field_type type;
    size_t offset; /* in the struct the object stands for */
    size_t size;   /* of FIELD_CHARS */
};

#define SIZE_OF(struct_, member_) sizeof(((struct struct_ *)0)->member_)
#define FIELD(type_, struct_, key_, member_)                                             \
    {                                                                                    \
        key_, type_, offsetof(struct struct_, member_), SIZE_OF(struct_, member_)        \
    }

static const struct field model_fields[] = {
    FIELD(FIELD_CHARS, mist_model, "name", name),
    FIELD(FIELD_FAMILY, mist_model, "family", family),
    FIELD(FIELD_INT32, mist_model, "n_layers", n_layers),
    FIELD(FIELD_INT32, mist_model, "hidden", hidden),
    FIELD(FIELD_INT32, mist_model, "n_heads", n_heads),
    FIELD(FIELD_INT32, mist_model, "n_kv_heads", n_kv_heads),
    FIELD(FIELD_INT32, mist_model, "head_dim", head_dim),
    FIELD(FIELD_INT32, mist_model, "ffn", ffn),
    FIELD(FIELD_INT32, mist_model, "vocab", vocab),
    FIELD(FIELD_INT32, mist_model, "max_seq", max_seq),
    FIELD(FIELD_BOOL, mist_model, "has_bias", has_bias),
    FIELD(FIELD_BOOL, mist_model, "ties_embeddings", ties_embeddings),
    FIELD(FIELD_DOUBLE, mist_model, "norm_epsilon", norm_epsilon),
    FIELD(FIELD_DOUBLE, mist_model, "rope_theta", rope_theta),
    {NULL, FIELD_BOOL, 0, 0},
};

static const struct field job_fields[] = {
    FIELD(FIELD_INT64, mist_job, "global_batch", global_batch),
    FIELD(FIELD_INT32, mist_job, "seq_len", seq_len),
    FIELD(FIELD_DTYPE, mist_job, "dtype", dtype),
    FIELD(FIELD_COUNT, mist_job, "threads", threads),
    {NULL, FIELD_BOOL, 0, 0},
};

static const struct field cluster_fields[] = {
    FIELD(FIELD_CHARS, mist_plan, "trace_set", trace_set),
    FIELD(FIELD_HEX64, mist_plan, "fingerprint", fingerprint),
    FIELD(FIELD_INT64, mist_plan, "device_memory_bytes", device_memory_bytes),
    {NULL, FIELD_BOOL, 0, 0},
};

static const struct field stage_fields[] = {
    FIELD(FIELD_INT32, mist_stage_plan, "layers", n_layers),
    FIELD(FIELD_INT32, mist_stage_plan, "mesh_nodes", n_nodes),
    FIELD(FIELD_INT32, mist_stage_plan, "mesh_devices", n_devices),
    FIELD(FIELD_INT32, mist_stage_plan, "micro_batch", micro_batch),
    FIELD(FIELD_INT32, mist_stage_plan, "dp", dp),
    FIELD(FIELD_INT32, mist_stage_plan, "tp", tp),
    {"zero", FIELD_ZERO, 0, 0},
    FIELD(FIELD_INT32, mist_stage_plan, "checkpointed_layers", n_checkpointed),
    FIELD(FIELD_FRACTION, mist_stage_plan, "offload_weights_frac", offload_weights),
    FIELD(FIELD_FRACTION, mist_stage_plan, "offload_gradients_frac", offload_gradients),
    FIELD(FIELD_FRACTION, mist_stage_plan, "offload_optimizer_frac", offload_optimizer),
    FIELD(FIELD_FRACTION, mist_stage_plan, "offload_activations_frac",
          offload_activations),
    {NULL, FIELD_BOOL, 0, 0},
};

static const struct field predicted_fields[] = {
    FIELD(FIELD_DOUBLE, mist_prediction, "iteration_s", iteration_s),
    FIELD(FIELD_DOUBLE, mist_prediction, "error_s", error_s),
    FIELD(FIELD_DOUBLE, mist_prediction, "extrapolated_frac", extrapolated_frac),
    {NULL, FIELD_BOOL, 0, 0},
};

/* One stage of the prediction: element i of three arrays, i * STRIDE bytes further on. */
static const struct field predicted_stage_fields[] = {
    FIELD(FIELD_INT64, mist_prediction, "peak_bytes", peak_bytes),
    FIELD(FIELD_DOUBLE, mist_prediction, "stable_s", stable_s),
    FIELD(FIELD_DOUBLE, mist_prediction, "extra_s", extra_s),
    {NULL, FIELD_BOOL, 0, 0},
};

enum { STRIDE = sizeof(double), MAX_KEYS = 16 };
_Static_assert(sizeof(int64_t) == STRIDE, "elements of a prediction have one size");

static const char *const family_choices[] = {"gpt", "llama", "falcon", NULL};
static const char *const dtype_choices[] = {"fp32", "bf16", NULL};
static const char *const pipeline_choices[] = {"1f1b", NULL};

/* --------------------------------------------------------------------------- reading */

static enum mist_status read_int(const struct mist_json *object, const struct field *f,
                                 int64_t min, int64_t max, int64_t *out,
                                 struct mist_err *err)
{
    return mist_json_get_int64(object, f->key, MIST_JSON_REQUIRED, min, max, out, err);
}

static enum mist_status read_chars(const struct mist_json *object, const struct field *f,
                                   char *out, struct mist_err *err)
{
    const char *text = NULL;
    enum mist_status status =
        mist_json_get_string(object, f->key, MIST_JSON_REQUIRED, &text, err);

    if (status)
        return status;
    if (strlen(text) >= f->size)
        return mist_json_fail_key(object, f->key, MIST_ERR_INPUT, err,
                                  "%s: %zu bytes long, expected at most %zu", f->key,
                                  strlen(text), f->size - 1);
    snprintf(out, f->size, "%s", text);
    return MIST_OK;
}

static enum mist_status read_hex64(const struct mist_json *object, const struct field *f,
                                   uint64_t *out, struct mist_err *err)
{
    const char *text = NULL;
    enum mist_status status =
        mist_json_get_string(object, f->key, MIST_JSON_REQUIRED, &text, err);

    if (status)
        return status;
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return mist_json_fail_key(object, f->key, MIST_ERR_INPUT, err,
                                  "%s: \"%.40s\" is not 16 hexadecimal digits", f->key,
                                  text);
    *out = strtoull(text, NULL, 16);
    return MIST_OK;
}

static void set_zero_level(struct mist_stage_plan *stage, int64_t level)
{
    stage->shards_optimizer = level >= 1;
    stage->shards_gradients = level >= 2;
    stage->shards_weights = level >= 3;
}

static int zero_level(const struct mist_stage_plan *stage)
{
    return stage->shards_optimizer + stage->shards_gradients + stage->shards_weights;
}

/* Reads one field into the struct at base. */
static enum mist_status read_field(const struct mist_json *object, const struct field *f,
                                   void *base, struct mist_err *err)
{
    void *out = (char *)base + f->offset;
    const char *const *choices = f->type == FIELD_FAMILY ? family_choices : dtype_choices;
    enum mist_json_need need = f->type == FIELD_FRACTION || f->type == FIELD_COUNT
                                   ? MIST_JSON_OPTIONAL
                                   : MIST_JSON_REQUIRED;
    enum mist_status status = MIST_OK;
    int64_t whole = 0;

    switch (f->type) {
    case FIELD_INT32:
    case FIELD_COUNT:
        status =
            mist_json_get_int64(object, f->key, need, INT32_MIN, INT32_MAX, &whole, err);
        *(int32_t *)out = (int32_t)whole;
        break;
    case FIELD_INT64:
        status = read_int(object, f, INT64_MIN, INT64_MAX, out, err);
        break;
    case FIELD_DOUBLE:
    case FIELD_FRACTION:
        status =
            mist_json_get_double(object, f->key, need, -INFINITY, INFINITY, out, err);
        break;
    case FIELD_BOOL:
        status = mist_json_get_bool(object, f->key, MIST_JSON_REQUIRED, out, err);
        break;
    case FIELD_FAMILY:
    case FIELD_DTYPE:
        status = mist_json_get_choice(object, f->key, need, choices, out, err);
        break;
    case FIELD_CHARS:
        status = read_chars(object, f, out, err);
        break;
    case FIELD_HEX64:
        status = read_hex64(object, f, out, err);
        break;
    case FIELD_ZERO:
        status = read_int(object, f, 0, 3, &whole, err);
        set_zero_level(base, whole);
        break;
    }
    return status;
}

/* Reads an object by its table. extra_key (or NULL) is one more key it may have. */
static enum mist_status read_object(const struct mist_json *object,
                                    const struct field *fields, const char *extra_key,
                                    void *base, struct mist_err *err)
{
    const char *keys[MAX_KEYS + 2] = {0};
    int n = 0;
    enum mist_status status;

    for (; n < MAX_KEYS && fields[n].key; n++)
        keys[n] = fields[n].key;
    keys[n] = extra_key;
    status = mist_json_check_keys(object, keys, err);
    for (const struct field *f = fields; f->key && !status; f++)
        status = read_field(object, f, base, err);
    return status;
}

static enum mist_status read_section(const struct mist_json *root, const char *key,
                                     const struct field *fields, void *base,
                                     struct mist_err *err)
{
    struct mist_json section;
    enum mist_status status =
        mist_json_get_object(root, key, MIST_JSON_REQUIRED, &section, err);

    return status ? status : read_object(&section, fields, NULL, base, err);
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
    for (int32_t i = 0; i < plan->n_stages && !status; i++) {
        struct mist_json element = mist_json_element(&stages, (size_t)i);
        status = mist_json_as_object(&element, err);
        if (!status)
            status = read_object(&element, stage_fields, NULL, &plan->stages[i], err);
    }
    return status;
}

static enum mist_status read_predicted(const struct mist_json *root,
                                       struct mist_plan *plan, struct mist_err *err)
{
    struct mist_json section, stages;
    char *base = (char *)&plan->predicted;
    enum mist_status status =
        mist_json_get_object(root, "predicted", MIST_JSON_OPTIONAL, &section, err);

    if (status || !section.value)
        return status;
    if ((status = read_object(&section, predicted_fields, "stages", base, err)) ||
        (status =
             mist_json_get_array(&section, "stages", MIST_JSON_REQUIRED, &stages, err)))
        return status;
    if (mist_json_size(&stages) != (size_t)plan->n_stages)
        return mist_json_fail(&stages, MIST_ERR_INPUT, err,
                              "stages: %zu predicted stages, expected the plan's %d",
                              mist_json_size(&stages), plan->n_stages);
    for (int32_t i = 0; i < plan->n_stages && !status; i++) {
        struct mist_json element = mist_json_element(&stages, (size_t)i);
        status = mist_json_as_object(&element, err);
        if (!status)
            status = read_object(&element, predicted_stage_fields, NULL,
                                 base + i * STRIDE, err);
    }
    return status;
}

static enum mist_status read_plan(const struct mist_json *root, struct mist_plan *plan,
                                  struct mist_err *err)
{
    static const char *const keys[] = {"format",  "model",     "job",
                                       "cluster", "pipeline",  "n_micro_batches",
                                       "stages",  "predicted", NULL};
    static const struct field n_micro_batches =
        FIELD(FIELD_INT32, mist_plan, "n_micro_batches", n_micro_batches);
    int pipeline = 0;
    enum mist_status s;

    if ((s = mist_json_check_keys(root, keys, err)) ||
        (s = read_section(root, "model", model_fields, &plan->model, err)) ||
        (s = read_section(root, "job", job_fields, &plan->job, err)) ||
        (s = read_section(root, "cluster", cluster_fields, plan, err)) ||
        (s = mist_json_get_choice(root, "pipeline", MIST_JSON_REQUIRED, pipeline_choices,
                                  &pipeline, err)) ||
        (s = read_field(root, &n_micro_batches, plan, err)) ||
        (s = read_stages(root, plan, err)))
        return s;
    plan->pipeline = (enum mist_pipeline_schedule)pipeline;
    return read_predicted(root, plan, err);
}

/*
 * Gives the check's message the place of what it blames: a key of the root ("pipeline"),
 * of a section ("job"), or of a stage, which "stages" holds itself and "predicted" in an
 * array. Everything on the way exists, because the file was read.
 */
static enum mist_status locate_fault(const struct mist_json *root,
                                     const struct mist_plan_fault *fault,
                                     enum mist_status status, struct mist_err *err)
{
    struct mist_json section = *root, stages, element;
    const struct mist_json *place = &section;
    bool is_inside = fault->key || fault->i_stage >= 0;
    char message[sizeof err->message];

    if (!err)
        return status;
    snprintf(message, sizeof message, "%s", err->message);
    if (!is_inside)
        return mist_json_fail_key(root, fault->section, status, err, "%s", message);
    if (strcmp(fault->section, "stages") != 0 &&
        mist_json_get_object(root, fault->section, MIST_JSON_REQUIRED, &section, NULL))
        return status;
    if (fault->i_stage >= 0) {
        if (mist_json_get_array(place, "stages", MIST_JSON_REQUIRED, &stages, NULL))
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
    return mist_plan_load_checked(path, NULL, out, err);
}

enum mist_status mist_plan_load_checked(const char *path, mist_plan_checker *check,
                                        struct mist_plan *out, struct mist_err *err)
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
    if (!status && check)
        status = check(plan, &fault, err);
    if (status)
        status = locate_fault(&root, &fault, status, err);
    else
        *out = *plan;
out:
    free(plan);
    mist_json_fini(&doc);
    return status;
}

/* --------------------------------------------------------------------------- writing */

/* A field as a JSON value; NULL: out of memory. */
static json_t *write_field(const struct field *f, const void *base)
{
    const void *in = (const char *)base + f->offset;
    char digits[17];

    switch (f->type) {
    case FIELD_INT32:
    case FIELD_COUNT:
        return json_integer(*(const int32_t *)in);
    case FIELD_INT64:
        return json_integer(*(const int64_t *)in);
    case FIELD_DOUBLE:
    case FIELD_FRACTION:
        return json_real(*(const double *)in);
    case FIELD_BOOL:
        return json_boolean(*(const bool *)in);
    case FIELD_FAMILY:
        return json_string(mist_family_name(*(const enum mist_family *)in));
    case FIELD_DTYPE:
        return json_string(mist_dtype_name(*(const enum mist_dtype *)in));
    case FIELD_CHARS:
        return json_string(in);
    case FIELD_HEX64:
        snprintf(digits, sizeof digits, "%016" PRIx64, *(const uint64_t *)in);
        return json_string(digits);
    case FIELD_ZERO:
        return json_integer(zero_level(base));
    }
    return NULL;
}

/* An object by its table; NULL: out of memory. */
static json_t *write_object(const struct field *fields, const void *base)
{
    json_t *object = json_object();

    for (const struct field *f = fields; f->key && object; f++) {
        if (f->type == FIELD_COUNT &&
            *(const int32_t *)(const void *)((const char *)base + f->offset) == 0)
            continue;
        if (json_object_set_new(object, f->key, write_field(f, base))) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

/* n objects, the structs they stand for stride bytes apart; NULL: out of memory. */
static json_t *write_array(const struct field *fields, const void *base, int32_t n,
                           size_t stride)
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
    bool has = p->iteration_s != 0 || p->error_s != 0 || p->extrapolated_frac != 0;

    for (int32_t i = 0; i < plan->n_stages; i++)
        has = has || p->peak_bytes[i] || p->stable_s[i] != 0 || p->extra_s[i] != 0;
    return has;
}

/* The document; NULL: out of memory. */
static json_t *write_plan(const struct mist_plan *plan)
{
    const char *pipeline = mist_pipeline_name(plan->pipeline);
    json_t *root = json_object();
    json_t *predicted = NULL;
    bool fails =
        !root || json_object_set_new(root, "format", json_integer(1)) ||
        json_object_set_new(root, "model", write_object(model_fields, &plan->model)) ||
        json_object_set_new(root, "job", write_object(job_fields, &plan->job)) ||
        json_object_set_new(root, "cluster", write_object(cluster_fields, plan)) ||
        json_object_set_new(root, "pipeline", json_string(pipeline)) ||
        json_object_set_new(root, "n_micro_batches",
                            json_integer(plan->n_micro_batches)) ||
        json_object_set_new(root, "stages",
                            write_array(stage_fields, plan->stages, plan->n_stages,
                                        sizeof plan->stages[0]));

    if (!fails && has_prediction(plan)) {
        predicted = write_object(predicted_fields, &plan->predicted);
        fails = json_object_set_new(root, "predicted", predicted) ||
                json_object_set_new(predicted, "stages",
                                    write_array(predicted_stage_fields, &plan->predicted,
                                                plan->n_stages, STRIDE));
    }
    if (!fails)
        return root;
    json_decref(root);
    return NULL;
}

/* Jansson refuses texts that are not UTF-8; the message should say which one it is. */
static enum mist_status check_text(const char *what, const char *text,
                                   struct mist_err *err)
{
    json_t *checked = json_string(text);
    json_t *unchecked = json_string_nocheck(text);
    enum mist_status status = MIST_OK;

    if (!unchecked)
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    else if (!checked)
        status = mist_err_set(err, MIST_ERR_INPUT, "%s is not UTF-8", what);
    json_decref(checked);
    json_decref(unchecked);
    return status;
}

enum mist_status mist_plan_save(const struct mist_plan *plan, const char *path,
                                bool overwrites, struct mist_err *err)
{
    enum mist_status status;
    json_t *root;

    if ((status = mist_plan_check(plan, err)) ||
        (status = check_text("the model's name", plan->model.name, err)) ||
        (status = check_text("the trace set's path", plan->trace_set, err))) {
        mist_err_locate(err, path, 0);
        return status;
    }
    root = write_plan(plan);
    if (!root)
        return mist_err_at(err, MIST_ERR_MEMORY, path, 0, 0, "out of memory");
    status = mist_json_write_file(root, path, overwrites, err);
    json_decref(root);
    return status;
}
