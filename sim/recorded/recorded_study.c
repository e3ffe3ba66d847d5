/* Studies of recorded jobs. See recorded_study.h. */
#include "sim/recorded/recorded_study.h"

#include "core/options.h" /* MIST_OPTION_LIST_MAX */
#include "core/order.h"
#include "core/parse.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double SLOWEST_FRAC = 0.03; /* of the workers */

enum { RUN_BYTES = 4 << 20 }; /* of samples in memory; the rest is on the disk */

/* What a study needs while it goes through the steps. */
struct studying {
    struct mist_operations *table;
    struct mist_recorded_study *out; /* sums over steps, until the end */
    const char *const *edits;
    int n_edits;
    int64_t n_edited[MIST_OPTION_LIST_MAX]; /* operations that an edit changed */
    struct mist_sorter samples;
    double usual_s[MIST_OPERATIONS_N_KINDS];
    struct mist_progress *progress;
    struct mist_err *err;
    /* Of one step. */
    struct mist_arena arena;
    struct mist_recorded_job job;
    double *work_s; /* of one replay, as the times */
    struct mist_recorded_times times;
};

/* One step after the other. */
static enum mist_status visit_steps(struct studying *at, const char *label,
                                    enum mist_status (*visit)(struct studying *at))
{
    enum mist_status status = mist_operations_begin(at->table, at->err);
    int64_t n_done = 0;

    mist_progress_begin(at->progress, label);
    for (bool is_there = true; is_there && status == MIST_OK;) {
        struct mist_recorded_job *job = &at->job;
        mist_arena_init(&at->arena);
        status = mist_operations_next(at->table, job, &at->arena, at->err);
        is_there = status == MIST_OK && job->n_ops > 0;
        if (is_there) {
            size_t n_bytes = (size_t)job->n_ops * sizeof *at->work_s;
            at->work_s = mist_arena_alloc(&at->arena, n_bytes);
            status = at->work_s && mist_recorded_times_alloc(job, &at->arena, &at->times)
                         ? visit(at)
                         : mist_err_memory(at->err, at->table->path);
        }
        n_done += job->n_ops;
        if (at->progress)
            mist_progress_update(at->progress, n_done, at->table->n_ops);
        mist_arena_fini(&at->arena);
    }
    return status;
}

/* ------------------------------------------------------------------------- even times */

struct sample {
    int32_t kind;
    double work_s;
};

MIST_COMPARATOR(compare_samples, struct sample, kind, work_s)

/* What an operation of each kind usually takes. */
static enum mist_status find_usual(struct studying *at)
{
    double low_s = 0, sum_s = 0;
    int64_t i = 0; /* of the kind */
    struct sample sample;
    bool is_there;
    enum mist_status status = mist_sorter_begin(&at->samples, at->err);

    while (status == MIST_OK &&
           (status = mist_sorter_next(&at->samples, &sample, &is_there, at->err)) ==
               MIST_OK &&
           is_there) {
        int64_t n = at->table->n_of_kind[sample.kind];
        sum_s = (i == 0 ? 0 : sum_s) + sample.work_s;
        if (i == (n - 1) / 2)
            low_s = sample.work_s;
        if (mist_operations_kinds[sample.kind].sort != MIST_RECORDED_MESSAGE)
            at->usual_s[sample.kind] = sum_s / (double)n;
        else if (i == n / 2)
            at->usual_s[sample.kind] = (low_s + sample.work_s) / 2;
        i = i + 1 < n ? i + 1 : 0;
    }
    return status;
}

/* A step as it was and as it is edited; what its operations took is kept. */
static enum mist_status measure(struct studying *at)
{
    struct mist_recorded_study *out = at->out;
    struct mist_recorded_job *job = &at->job;
    enum mist_status status = MIST_OK;
    double recorded_s = mist_recorded_span_s(job, &job->recorded);

    mist_recorded_replay(job, job->gap_s, job->work_s, &at->times);
    double unchanged_s = mist_recorded_span_s(job, &at->times);
    if (recorded_s > 0)
        out->unchanged_worst_frac =
            fmax(out->unchanged_worst_frac, fabs(unchanged_s / recorded_s - 1));
    mist_recorded_replay(job, NULL, job->work_s, &at->times);
    out->n_steps++;
    out->n_contradictions += job->n_contradictions;
    out->recorded_s += recorded_s;
    out->unchanged_s += unchanged_s;
    out->without_gaps_s += mist_recorded_span_s(job, &at->times);
    for (int64_t i = 0; i < job->n_ops && status == MIST_OK; i++) {
        struct sample sample = {job->ops[i].kind, job->work_s[i]};
        status = mist_sorter_add(&at->samples, &sample, at->err);
    }
    for (int i = 0; i < at->n_edits && status == MIST_OK; i++)
        status = mist_recorded_edit(job, at->edits[i], &at->n_edited[i], at->err);
    mist_recorded_replay(job, job->gap_s, job->work_s, &at->times);
    out->edited_s += mist_recorded_span_s(job, &at->times);
    return status;
}

/* ------------------------------------------------------------------------------- parts */

enum sort { STAGE, REPLICA, KIND, SLOWEST };

static int64_t worker_of(const struct mist_recorded_job *job,
                         const struct mist_recorded_op *op)
{
    return (int64_t)op->replica * job->n_stages + op->stage;
}

static bool is_of(const struct studying *at, const struct mist_recorded_op *op,
                  enum sort sort, int32_t i)
{
    switch (sort) {
    case STAGE:
        return op->stage == i;
    case REPLICA:
        return op->replica == i;
    case KIND:
        return op->kind == i;
    default:
        return at->out->is_slowest[worker_of(&at->job, op)];
    }
}

/* The step where the part, or all but it, is even; without gaps. */
static double replay_s(struct studying *at, enum sort sort, int32_t i, bool part_is_even)
{
    const struct mist_recorded_job *job = &at->job;

    for (int64_t k = 0; k < job->n_ops; k++)
        at->work_s[k] = is_of(at, &job->ops[k], sort, i) == part_is_even
                            ? at->usual_s[job->ops[k].kind]
                            : job->work_s[k];
    mist_recorded_replay(job, NULL, at->work_s, &at->times);
    return mist_recorded_span_s(job, &at->times);
}

static void study_part(struct studying *at, enum sort sort, int32_t i,
                       struct mist_recorded_part *part)
{
    part->alone_frac += replay_s(at, sort, i, false);
    part->without_s += replay_s(at, sort, i, true);
}

/* The step even, and with one part after the other as it was. */
static enum mist_status study_parts(struct studying *at)
{
    const struct mist_recorded_job *job = &at->job;
    struct mist_recorded_study *out = at->out;

    for (int64_t i = 0; i < job->n_ops; i++)
        at->work_s[i] = at->usual_s[job->ops[i].kind];
    mist_recorded_replay(job, NULL, at->work_s, &at->times);
    out->even_s += mist_recorded_span_s(job, &at->times);
    for (int32_t i = 0; i < job->n_stages; i++)
        study_part(at, STAGE, i, &out->stages[i]);
    for (int32_t i = 0; i < job->n_replicas; i++)
        study_part(at, REPLICA, i, &out->replicas[i]);
    for (int32_t i = 0; i < job->n_kinds; i++)
        study_part(at, KIND, i, &out->kinds[i]);
    return MIST_OK;
}

static enum mist_status study_slowest(struct studying *at)
{
    study_part(at, SLOWEST, 0, &at->out->slowest);
    return MIST_OK;
}

/* From sums over steps to means; alone_frac was a time. */
static void end_parts(const struct mist_recorded_study *out,
                      struct mist_recorded_part *parts, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        double alone_s = parts[i].alone_frac / (double)out->n_steps;
        parts[i].alone_frac = out->even_s > 0 ? alone_s / out->even_s : 1;
        parts[i].without_s /= (double)out->n_steps;
    }
}

/* Marks the slowest workers: one after the other, the first where several are equal. */
static void find_slowest(struct studying *at)
{
    int32_t n_stages = at->table->n_stages;
    int64_t n = (int64_t)at->table->n_replicas * n_stages;
    int64_t n_slowest = (int64_t)ceil(SLOWEST_FRAC * (double)n);

    for (int64_t k = 0; k < n_slowest; k++) {
        double most = -INFINITY;
        int64_t i_most = -1;
        for (int64_t i = 0; i < n; i++) {
            double frac = fmin(at->out->replicas[i / n_stages].alone_frac,
                               at->out->stages[i % n_stages].alone_frac);
            if (!at->out->is_slowest[i] && frac > most) {
                most = frac;
                i_most = i;
            }
        }
        at->out->is_slowest[i_most] = true;
    }
}

static void *array(struct mist_arena *arena, int64_t n, size_t element_bytes)
{
    return mist_arena_alloc(arena, (size_t)n * element_bytes);
}

/* Times of the job as a whole. */
static enum mist_status study_times(struct studying *at)
{
    struct mist_recorded_study *out = at->out;
    int64_t n_workers = (int64_t)at->table->n_replicas * at->table->n_stages;
    enum mist_status status = visit_steps(at, "replaying", measure);

    for (int i = 0; i < at->n_edits && status == MIST_OK; i++)
        status =
            mist_recorded_check_edit(at->edits[i], at->n_edited[i], n_workers, at->err);
    if (status != MIST_OK)
        return status;
    double *means[] = {&out->recorded_s, &out->unchanged_s, &out->without_gaps_s,
                       &out->edited_s};
    for (size_t i = 0; i < sizeof means / sizeof *means; i++)
        *means[i] /= (double)out->n_steps;
    return find_usual(at);
}

static enum mist_status study_causes(struct studying *at)
{
    struct mist_recorded_study *out = at->out;
    enum mist_status status = visit_steps(at, "finding causes", study_parts);

    if (status != MIST_OK)
        return status;
    out->even_s /= (double)out->n_steps;
    end_parts(out, out->stages, at->table->n_stages);
    end_parts(out, out->replicas, at->table->n_replicas);
    end_parts(out, out->kinds, MIST_OPERATIONS_N_KINDS);
    find_slowest(at);
    status = visit_steps(at, "finding the slowest", study_slowest);
    if (status == MIST_OK)
        end_parts(out, &out->slowest, 1);
    return status;
}

enum mist_status mist_recorded_study(struct mist_operations *table,
                                     const char *const *edits, int n_edits,
                                     struct mist_recorded_study *out,
                                     struct mist_progress *progress,
                                     struct mist_arena *arena, struct mist_err *err)
{
    struct studying at = {.table = table,
                          .out = out,
                          .edits = edits,
                          .n_edits = n_edits,
                          .progress = progress,
                          .err = err};

    assert(n_edits <= MIST_OPTION_LIST_MAX);
    *out = (struct mist_recorded_study){
        .stages = array(arena, table->n_stages, sizeof *out->stages),
        .replicas = array(arena, table->n_replicas, sizeof *out->replicas),
        .kinds = array(arena, MIST_OPERATIONS_N_KINDS, sizeof *out->kinds),
        .is_slowest =
            array(arena, (int64_t)table->n_replicas * table->n_stages, sizeof(bool)),
    };
    if (!out->stages || !out->replicas || !out->kinds || !out->is_slowest)
        return mist_err_memory(err, table->path);
    mist_sorter_init(&at.samples, sizeof(struct sample), RUN_BYTES, compare_samples);
    enum mist_status status = study_times(&at);
    if (status == MIST_OK)
        status = study_causes(&at);
    mist_sorter_fini(&at.samples);
    return status;
}

/* ------------------------------------------------------------------------------- edits */

/* What a factor of speed makes of times. */
static bool read_factor(const char *value, bool may_be_none, double *out)
{
    double speed = 0;
    bool is_none = may_be_none && strcmp(value, "none") == 0;
    bool is_speed = mist_parse_factor(value, &speed, NULL) == MIST_OK && speed >= 1e-6 &&
                    speed <= 1e6;

    *out = is_none ? 0 : 1 / speed;
    return is_none || is_speed;
}

/* Work of a kind, or of all of a sort; how many operations. */
static int64_t scale_kind(struct mist_recorded_job *job, const char *name,
                          size_t name_length, enum mist_recorded_sort sort, double factor)
{
    bool is_all = name_length == 3 && memcmp(name, "all", 3) == 0;
    int64_t n = 0;

    for (int64_t i = 0; i < job->n_ops; i++) {
        const struct mist_recorded_kind *kind = &job->kinds[job->ops[i].kind];
        bool is_meant = is_all || (strlen(kind->name) == name_length &&
                                   memcmp(kind->name, name, name_length) == 0);
        if (kind->sort != sort || !is_meant)
            continue;
        job->work_s[i] *= factor;
        n++;
    }
    return n;
}

static int64_t scale_worker(struct mist_recorded_job *job, const char *number,
                            double factor)
{
    char *end;
    long long worker = strtoll(number, &end, 10);
    int64_t n = 0;

    for (int64_t i = 0; i < job->n_ops && end != number && *end == '='; i++) {
        if (worker_of(job, &job->ops[i]) != worker ||
            job->kinds[job->ops[i].kind].sort != MIST_RECORDED_COMPUTATION)
            continue;
        job->work_s[i] *= factor;
        n++;
    }
    return n;
}

static int64_t scale_launch(struct mist_recorded_job *job, double factor)
{
    for (int64_t i = 0; i < job->n_ops; i++) {
        job->gap_s[i] *= factor;
        if (job->kinds[job->ops[i].kind].sort == MIST_RECORDED_CALL)
            job->work_s[i] *= factor;
    }
    return job->n_ops;
}

enum mist_status mist_recorded_edit(struct mist_recorded_job *job, const char *edit,
                                    int64_t *n_changed, struct mist_err *err)
{
    const char *equals = strchr(edit, '='), *name;
    double factor;

    if (!equals ||
        !read_factor(equals + 1, mist_text_begins(edit, "launch=", &name), &factor))
        return mist_err_set(err, MIST_ERR_USAGE,
                            "what-if %.200s: expected NAME=FACTOR such as "
                            "kernel.forward-compute=2x",
                            edit);
    if (factor == 1)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "what-if %.200s changes nothing: 1x is as fast as it was",
                            edit);
    if (mist_text_begins(edit, "kernel.", &name))
        *n_changed += scale_kind(job, name, (size_t)(equals - name),
                                 MIST_RECORDED_COMPUTATION, factor);
    else if (mist_text_begins(edit, "link.", &name))
        *n_changed +=
            scale_kind(job, name, (size_t)(equals - name), MIST_RECORDED_MESSAGE, factor);
    else if (mist_text_begins(edit, "rank.", &name))
        *n_changed += scale_worker(job, name, factor);
    else if (mist_text_begins(edit, "launch=", &name))
        *n_changed += scale_launch(job, factor);
    return MIST_OK;
}

enum mist_status mist_recorded_check_edit(const char *edit, int64_t n_changed,
                                          int64_t n_workers, struct mist_err *err)
{
    if (n_changed > 0)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_USAGE,
                        "what-if %.200s changes nothing: of a recording there are "
                        "kernel.KIND (computations), link.KIND (messages), launch and "
                        "rank.N, N up to %lld",
                        edit, (long long)n_workers - 1);
}
