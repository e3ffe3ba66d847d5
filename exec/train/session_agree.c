/*
 * What all ranks of a run must have alike: ranks that train by different plans, learning
 * rates or seeds would go on without a word, and their replicas would drift apart. See
 * session.h.
 *
 * Compared are hashes, so that one exchange does for all. Left out is what may differ
 * from node to node: paths of files (the data is compared by what is in it), numbers of
 * threads, where to compute and how long to wait, and what a rank prints.
 */
#include "exec/train/session.h"

#include "core/hash.h"
#include "sim/plan/plan_fields.h"

#include <assert.h>
#include <string.h>

/* One thing that is compared. */
struct item {
    const char *option; /* its name without dashes, others may follow; NULL: no option */
    const char *what, *demand; /* "the ranks <what>; <demand>", if it is no option */
    struct mist_hash hash;
};

enum { MAX_ITEMS = 32 };

struct items {
    struct item at[MAX_ITEMS];
    int32_t n;
};

/* The hash of a new item, to be filled. */
static struct mist_hash *add(struct items *items, const char *option, const char *what,
                             const char *demand)
{
    assert(items->n < MAX_ITEMS);
    struct item *item = &items->at[items->n++];

    *item = (struct item){option, what, demand, {0}};
    mist_hash_init(&item->hash);
    return &item->hash;
}

/* All ranks: the first item that is not the same everywhere is named. */
static enum mist_status compare(struct mist_comm *comm, const struct items *items,
                                struct mist_err *err)
{
    int64_t least[2 * MAX_ITEMS]; /* of each item and of its negative, of all ranks */
    int32_t n = items->n;

    for (int32_t i = 0; i < n; i++) {
        least[i] = (int64_t)(items->at[i].hash.value >> 1); /* has a negative */
        least[n + i] = -least[i];
    }
    enum mist_status status =
        mist_comm_all_reduce_i64(comm, MIST_COMM_MIN, least, 2 * n, err);
    if (status != MIST_OK)
        return status;
    for (int32_t i = 0; i < n && status == MIST_OK; i++) {
        const struct item *item = &items->at[i];
        if (least[i] == -least[n + i])
            continue;
        status = item->option
                     ? mist_err_set(err, MIST_ERR_INPUT,
                                    "the ranks were given different options; all need "
                                    "the same --%s",
                                    item->option)
                     : mist_err_set(err, MIST_ERR_INPUT, "the ranks %s; %s", item->what,
                                    item->demand);
    }
    return mist_comm_agree(comm, status, err);
}

/* ------------------------------------------------------------------------------- plan */

/* An object of plan.json by its table. */
static void add_object(struct mist_hash *hash, const struct mist_json_field *fields,
                       const void *base)
{
    for (const struct mist_json_field *f = fields; f->key; f++) {
        switch (f->type) {
        case MIST_FIELD_DOUBLE:
        case MIST_FIELD_FRACTION:
            mist_hash_add_double(hash, mist_json_field_double(f, base));
            break;
        case MIST_FIELD_CHARS:
            mist_hash_add_text(hash, (const char *)base + f->offset);
            break;
        default:
            mist_hash_add_int64(hash, mist_json_field_whole(f, base));
        }
    }
}

/* All that decides what is computed. Where the trace set lies and what was predicted from
 * it does not. */
static void add_plan(struct mist_hash *hash, const struct mist_plan *plan)
{
    const int64_t numbers[] = {
        plan->device_memory_bytes,      plan->pipeline,        plan->n_chunks,
        plan->reduces_each_micro_batch, plan->n_micro_batches, plan->n_stages};

    add_object(hash, mist_plan_model_fields, &plan->model);
    add_object(hash, mist_plan_job_fields, &plan->job);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        mist_hash_add_int64(hash, numbers[i]);
    for (int32_t i = 0; i < plan->n_stages; i++) {
        add_object(hash, mist_plan_stage_fields, &plan->stages[i]);
        add_object(hash, mist_plan_pass_fields, &plan->passes[i]);
    }
}

/* ---------------------------------------------------------------------------- options */

/* Of a path only whether there is one, and whether it says auto. */
static void add_value(struct mist_hash *hash, const struct mist_option *option,
                      const struct mist_exec_options *options)
{
    const void *at = (const char *)options + option->offset;
    const char *text;

    switch (option->kind) {
    case MIST_OPTION_FLAG:
        mist_hash_add_int64(hash, *(const bool *)at);
        break;
    case MIST_OPTION_CHOICE:
        mist_hash_add_int64(hash, *(const int *)at);
        break;
    case MIST_OPTION_STRING:
        text = *(const char *const *)at;
        mist_hash_add_int64(hash, !text ? 0 : strcmp(text, "auto") == 0 ? 2 : 1);
        break;
    case MIST_OPTION_LIST:
    case MIST_OPTION_FILES:
        mist_hash_add_int64(hash, ((const struct mist_option_list *)at)->n > 0);
        break;
    case MIST_OPTION_INT64:
    case MIST_OPTION_BYTES:
        mist_hash_add_int64(hash, *(const int64_t *)at);
        break;
    case MIST_OPTION_DOUBLE:
    case MIST_OPTION_TIME_S:
    case MIST_OPTION_FRAC:
        mist_hash_add_double(hash, *(const double *)at);
        break;
    }
}

/* names: of the tool's options, ended by NULL. */
static void add_options(struct items *items, const char *const *names,
                        const struct mist_exec_options *options)
{
    for (size_t k = 0; k < mist_exec_tool.n_options; k++)
        for (const char *const *name = names; *name; name++)
            if (strcmp(mist_exec_tool.options[k].name, *name) == 0)
                add_value(add(items, *name, NULL, NULL), &mist_exec_tool.options[k],
                          options);
}

/* ----------------------------------------------------------------------------- public */

enum mist_status mist_session_agree_on_start(const struct mist_session *at,
                                             struct mist_err *err)
{
    static const char *const names[] = {"checkpoint", "resume", "import", "dry-run",
                                        NULL};
    struct items items = {.n = 0};

    add_plan(
        add(&items, NULL, "read different plans", "all must be given the same plan.json"),
        &at->plan);
    add_options(&items, names, &at->options);
    return compare(at->comm, &items, err);
}

enum mist_status mist_session_agree_on_run(struct mist_session *at, struct mist_err *err)
{
    static const char *const cuts[] = {"validation-frac", NULL}; /* the data */
    static const char *const names[] = {
        /* of settings, as they are now: given or of the checkpoint */
        "iterations", "seed", "lr", "lr-min", "warm-up", "lr-decay-steps", "clip",
        "beta1", "beta2", "epsilon", "weight-decay",
        /* what is done after a step, and after the last */
        "validate-every", "on-nan", "save-every", "keep", "export", "probe", NULL};
    static const char files[] = "all nodes must see the same files";
    struct mist_train_job *job = &at->job;
    struct items items = {.n = 0};

    add_options(&items, cuts, &at->options);
    struct mist_hash *hash = add(&items, NULL, "read different data", files);
    mist_hash_add_int64(hash, (int64_t)mist_data_fingerprint(at->data));
    hash = add(&items, NULL, "go on from different checkpoints", files);
    mist_hash_add_int64(hash, job->progress.n_steps);
    mist_hash_add_int64(hash, job->progress.n_updates);
    mist_hash_add_int64(hash, job->progress.n_samples);
    add_options(&items, names, &at->options);
    hash = add(&items, "validation-batches, and the same --validation-data", NULL, NULL);
    mist_hash_add_int64(hash, job->n_validation_samples);
    mist_hash_add_int64(hash, (int64_t)mist_data_validation_fingerprint(at->data));
    hash = add(&items, "timed-iterations, with --timeline or --kernels", NULL, NULL);
    mist_hash_add_int64(hash, job->config.n_timed_iterations);
    mist_hash_add_int64(hash, job->times_operators);
    enum mist_status status = compare(at->comm, &items, err);
    if (status != MIST_OK)
        return status;
    /* Rank 0 alone has looked whether weights are there already. */
    int64_t exports = job->export_folder != NULL || !mist_session_is_first(at);
    status = mist_comm_all_reduce_i64(at->comm, MIST_COMM_MIN, &exports, 1, err);
    if (status == MIST_OK && exports == 0)
        job->export_folder = NULL;
    return status;
}
