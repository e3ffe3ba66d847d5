/* Studies of recorded jobs. See recorded_study.h. */
#include "sim/recorded/recorded_study.h"

#include "core/parse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double SLOWEST_FRAC = 0.03; /* of the workers */

/* ------------------------------------------------------------------------- even times */

struct sample {
    int32_t kind;
    double work_s;
};

static int compare_samples(const void *a_, const void *b_)
{
    const struct sample *a = a_, *b = b_;

    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return (a->work_s > b->work_s) - (a->work_s < b->work_s);
}

/* What an operation of each kind usually takes, into usual_s [n_kinds]. */
static bool find_usual(const struct mist_recorded_job *job, double *usual_s)
{
    struct sample *samples = malloc((size_t)job->n_ops * sizeof *samples);

    if (!samples)
        return false;
    for (int64_t i = 0; i < job->n_ops; i++)
        samples[i] = (struct sample){job->ops[i].kind, job->work_s[i]};
    qsort(samples, (size_t)job->n_ops, sizeof *samples, compare_samples);
    for (int64_t i = 0, n; i < job->n_ops; i += n) {
        int32_t kind = samples[i].kind;
        double sum_s = 0;
        for (n = 0; i + n < job->n_ops && samples[i + n].kind == kind; n++)
            sum_s += samples[i + n].work_s;
        usual_s[kind] =
            job->kinds[kind].sort == MIST_RECORDED_MESSAGE
                ? (samples[i + (n - 1) / 2].work_s + samples[i + n / 2].work_s) / 2
                : sum_s / (double)n;
    }
    free(samples);
    return true;
}

/* ------------------------------------------------------------------------------- parts */

enum sort { STAGE, REPLICA, KIND, SLOWEST };

struct studying {
    const struct mist_recorded_job *job;
    struct mist_recorded_study *out;
    double *usual_s;                  /* [n_kinds] */
    double *work_s;                   /* of one replay */
    struct mist_recorded_times times; /* of one replay */
};

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
        return at->out->is_slowest[worker_of(at->job, op)];
    }
}

/* A step where the part, or all but it, is even; without gaps. */
static double replay_s(struct studying *at, enum sort sort, int32_t i, bool part_is_even)
{
    const struct mist_recorded_job *job = at->job;

    for (int64_t k = 0; k < job->n_ops; k++)
        at->work_s[k] = is_of(at, &job->ops[k], sort, i) == part_is_even
                            ? at->usual_s[job->ops[k].kind]
                            : job->work_s[k];
    mist_recorded_replay(job, NULL, at->work_s, &at->times);
    return mist_recorded_mean_s(job, &at->times, NULL);
}

static struct mist_recorded_part study_part(struct studying *at, enum sort sort,
                                            int32_t i)
{
    double alone_s = replay_s(at, sort, i, false);

    return (struct mist_recorded_part){
        .alone_frac = at->out->even_s > 0 ? alone_s / at->out->even_s : 1,
        .without_s = replay_s(at, sort, i, true)};
}

/* Marks the slowest workers: one after the other, the first where several are equal. */
static void find_slowest(struct studying *at)
{
    const struct mist_recorded_job *job = at->job;
    int64_t n = (int64_t)job->n_replicas * job->n_stages;
    int64_t n_slowest = (int64_t)ceil(SLOWEST_FRAC * (double)n);

    for (int64_t k = 0; k < n_slowest; k++) {
        double most = -INFINITY;
        int64_t i_most = -1;
        for (int64_t i = 0; i < n; i++) {
            double frac = fmin(at->out->replicas[i / job->n_stages].alone_frac,
                               at->out->stages[i % job->n_stages].alone_frac);
            if (!at->out->is_slowest[i] && frac > most) {
                most = frac;
                i_most = i;
            }
        }
        at->out->is_slowest[i_most] = true;
    }
}

static void study_times(struct studying *at, double *step_s, double *recorded_step_s)
{
    const struct mist_recorded_job *job = at->job;
    struct mist_recorded_study *out = at->out;

    out->recorded_s = mist_recorded_mean_s(job, &job->recorded, recorded_step_s);
    mist_recorded_replay(job, job->gap_s, job->work_s, &at->times);
    out->unchanged_s = mist_recorded_mean_s(job, &at->times, step_s);
    for (int32_t i = 0; i < job->n_steps; i++)
        if (recorded_step_s[i] > 0)
            out->unchanged_worst_frac =
                fmax(out->unchanged_worst_frac, fabs(step_s[i] / recorded_step_s[i] - 1));
    mist_recorded_replay(job, NULL, job->work_s, &at->times);
    out->without_gaps_s = mist_recorded_mean_s(job, &at->times, NULL);
    for (int64_t i = 0; i < job->n_ops; i++)
        at->work_s[i] = at->usual_s[job->ops[i].kind];
    mist_recorded_replay(job, NULL, at->work_s, &at->times);
    out->even_s = mist_recorded_mean_s(job, &at->times, NULL);
}

static void study_parts(struct studying *at)
{
    struct mist_recorded_study *out = at->out;

    for (int32_t i = 0; i < at->job->n_stages; i++)
        out->stages[i] = study_part(at, STAGE, i);
    for (int32_t i = 0; i < at->job->n_replicas; i++)
        out->replicas[i] = study_part(at, REPLICA, i);
    for (int32_t i = 0; i < at->job->n_kinds; i++)
        out->kinds[i] = study_part(at, KIND, i);
    find_slowest(at);
    out->slowest = study_part(at, SLOWEST, 0);
}

static void *array(struct mist_arena *arena, int64_t n, size_t element_bytes)
{
    return mist_arena_alloc(arena, (size_t)n * element_bytes);
}

enum mist_status mist_recorded_study(const struct mist_recorded_job *job,
                                     struct mist_recorded_study *out,
                                     struct mist_arena *arena, struct mist_err *err)
{
    struct studying at = {.job = job, .out = out};
    double *step_s = array(arena, 2 * (int64_t)job->n_steps, sizeof *step_s);

    *out = (struct mist_recorded_study){
        .stages = array(arena, job->n_stages, sizeof *out->stages),
        .replicas = array(arena, job->n_replicas, sizeof *out->replicas),
        .kinds = array(arena, job->n_kinds, sizeof *out->kinds),
        .is_slowest =
            array(arena, (int64_t)job->n_replicas * job->n_stages, sizeof(bool)),
    };
    at.usual_s = array(arena, job->n_kinds, sizeof *at.usual_s);
    at.work_s = array(arena, job->n_ops, sizeof *at.work_s);
    if (!step_s || !out->stages || !out->replicas || !out->kinds || !out->is_slowest ||
        !at.usual_s || !at.work_s || !mist_recorded_times_alloc(job, arena, &at.times) ||
        !find_usual(job, at.usual_s))
        return mist_err_memory(err, NULL);
    study_times(&at, step_s, step_s + job->n_steps);
    study_parts(&at);
    return MIST_OK;
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

static bool begins(const char *text, const char *with, const char **rest)
{
    size_t n = strlen(with);

    *rest = text + n;
    return strncmp(text, with, n) == 0;
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
                                    struct mist_err *err)
{
    const char *equals = strchr(edit, '='), *name;
    int64_t n = 0;
    double factor;

    if (!equals || !read_factor(equals + 1, begins(edit, "launch=", &name), &factor))
        return mist_err_set(err, MIST_ERR_USAGE,
                            "what-if %.200s: expected NAME=FACTOR such as "
                            "kernel.forward-compute=2x",
                            edit);
    if (factor == 1)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "what-if %.200s changes nothing: 1x is as fast as it was",
                            edit);
    if (begins(edit, "kernel.", &name))
        n = scale_kind(job, name, (size_t)(equals - name), MIST_RECORDED_COMPUTATION,
                       factor);
    else if (begins(edit, "link.", &name))
        n = scale_kind(job, name, (size_t)(equals - name), MIST_RECORDED_MESSAGE, factor);
    else if (begins(edit, "rank.", &name))
        n = scale_worker(job, name, factor);
    else if (begins(edit, "launch=", &name))
        n = scale_launch(job, factor);
    if (n > 0)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_USAGE,
                        "what-if %.200s changes nothing: of a recording there are "
                        "kernel.KIND (computations), link.KIND (messages), launch and "
                        "rank.N, N up to %lld",
                        edit, (long long)job->n_replicas * job->n_stages - 1);
}
