/*
 * Recorded jobs: random 1F1B jobs are simulated here, by formulas that are repeated until
 * nothing changes, and written as a table; what is read must give the same times, and with
 * edits those of the formulas with other durations. The published study of a production
 * job (128 GPUs) is repeated where the reference material is there.
 */
#include "tests/unit/test.h"

#include "tests/unit/reference_path.h"
#include "tests/unit/scratch.h"

#include "core/json.h"
#include "core/random.h"
#include "sim/recorded/operators_file.h"
#include "sim/recorded/recorded_study.h"

#include <math.h>

/* ------------------------------------------------------------------------- a naive job */

enum { MOST_STAGES = 5, MOST_REPLICAS = 3, MOST_MICRO = 7 };
enum {
    F,
    B,
    FS,
    FR,
    BS,
    BR,
    GATHER,
    GC,
    NORM,
    EMBED,
    SEPARATE,
    REDUCE,
    CLIP,
    STEP,
    N_NAIVE
};

static const char *const naive_names[N_NAIVE] = {"forward-compute",
                                                 "backward-compute",
                                                 "forward-send",
                                                 "forward-recv",
                                                 "backward-send",
                                                 "backward-recv",
                                                 "params-all-gather",
                                                 "gc",
                                                 "layernorm-grads-all-reduce",
                                                 "embedding-grads-all-reduce",
                                                 "separate-grads-all-reduce",
                                                 "grads-reduce-scatter",
                                                 "optimizer-clip-main-grad",
                                                 "optimizer"};

/* One operation of each kind and micro-batch of a worker; < 0: it has none. */
struct naive_op {
    double duration_s, start_s, end_s;
};

struct naive {
    int n_stages, n_replicas, n_micro;
    bool reduces_beside; /* the backward; what is summed apart is left for later */
    bool lacks[N_NAIVE]; /* nobody has any */
    struct naive_op ops[MOST_REPLICAS][MOST_STAGES][N_NAIVE][MOST_MICRO];
};

static bool exists(const struct naive *job, int s, int kind, int m)
{
    bool is_end = s == 0 || s == job->n_stages - 1;

    if (kind == FS || kind == BR)
        return m < job->n_micro && s < job->n_stages - 1;
    if (kind == FR || kind == BS)
        return m < job->n_micro && s > 0;
    if (job->lacks[kind] || (kind == EMBED && !is_end))
        return false;
    return m < (kind <= B ? job->n_micro : 1);
}

static void draw(struct naive *job, struct mist_random *random)
{
    memset(job, 0, sizeof *job);
    job->n_stages = 1 + (int)mist_random_below(random, MOST_STAGES);
    job->n_replicas = 1 + (int)mist_random_below(random, MOST_REPLICAS);
    job->n_micro = 1 + (int)mist_random_below(random, MOST_MICRO);
    job->reduces_beside = mist_random_below(random, 2);
    for (int kind = GATHER; kind < N_NAIVE; kind++)
        job->lacks[kind] = mist_random_below(random, 5) == 0;
    job->lacks[SEPARATE] = !job->reduces_beside;
    for (int r = 0; r < job->n_replicas; r++)
        for (int s = 0; s < job->n_stages; s++)
            for (int kind = 0; kind < N_NAIVE; kind++)
                for (int m = 0; m < MOST_MICRO; m++)
                    job->ops[r][s][kind][m].duration_s =
                        (kind <= B ? 0.2 : 0.01) * mist_random_uniform(random);
}

static bool later(double *at_s, double s)
{
    bool is_later = s > *at_s;

    if (is_later)
        *at_s = s;
    return is_later;
}

/* The i-th computation of stage s in 1F1B: forwards to fill the pipeline, then one each. */
static int order_1f1b(const struct naive *job, int s, int i, int *m)
{
    int n_fill = job->n_stages - 1 - s, n = job->n_micro, n_both;

    n_fill = n_fill < n ? n_fill : n;
    n_both = 2 * (n - n_fill);
    if (i < n_fill) {
        *m = i;
        return F;
    }
    if (i < n_fill + n_both) {
        *m = (i - n_fill) % 2 == 0 ? n_fill + (i - n_fill) / 2 : (i - n_fill) / 2;
        return (i - n_fill) % 2 == 0 ? F : B;
    }
    *m = i - n;
    return B;
}

/* All start with those who meet them: the latest start is everybody's. */
static bool relax_worker(struct naive *job, int r, int s)
{
    struct naive_op(*ops)[MOST_MICRO] = job->ops[r][s];
    double before_s = ops[GATHER][0].end_s, last_s = 0;
    bool is_changed = false;
    int m, before_kind = -1, before_m = -1, before2_kind = -1, before2_m = -1;

    for (int i = 0; i < 2 * job->n_micro; i++) {
        int kind = order_1f1b(job, s, i, &m);
        int send = kind == F ? FS : BS, recv = kind == F ? FR : BR;
        struct naive_op *op = &ops[kind][m];
        if (exists(job, s, recv, m)) {
            struct naive_op *in = &ops[recv][m];
            if (m > 0) {
                is_changed |= later(&in->start_s, ops[recv][m - 1].end_s);
                is_changed |= later(&in->start_s, ops[kind][m - 1].end_s);
            } else if (kind == B && before2_kind >= 0) {
                is_changed |= later(&in->start_s, ops[before2_kind][before2_m].end_s);
            }
            is_changed |= later(&op->start_s, in->end_s);
        }
        is_changed |= later(&op->start_s, before_s);
        is_changed |= later(&op->end_s, op->start_s + op->duration_s);
        if (exists(job, s, send, m)) {
            is_changed |= later(&ops[send][m].start_s, op->end_s);
            if (m > 0)
                is_changed |= later(&ops[send][m].start_s, ops[send][m - 1].end_s);
        }
        before_s = last_s = op->end_s;
        before2_kind = before_kind, before2_m = before_m;
        before_kind = kind, before_m = m;
    }
    for (int kind = GC; kind <= STEP; kind++) {
        if (!exists(job, s, kind, 0))
            continue;
        if (kind == REDUCE && job->reduces_beside) {
            is_changed |= later(&ops[REDUCE][0].start_s, before_s);
            continue;
        }
        if (kind == NORM && job->reduces_beside)
            is_changed |= later(&ops[NORM][0].start_s, ops[REDUCE][0].end_s);
        is_changed |= later(&ops[kind][0].start_s, last_s);
        last_s = ops[kind][0].end_s;
    }
    return is_changed;
}

/* Ends of kind, m on all workers that go with r, s. */
static bool relax_message(struct naive *job, int r, int s, int kind, int m)
{
    struct naive_op *own = &job->ops[r][s][kind][m];
    double latest_s = own->start_s;

    for (int r2 = 0; r2 < job->n_replicas; r2++)
        for (int s2 = 0; s2 < job->n_stages; s2++) {
            int other = kind;
            bool meets = false;
            if (kind == FS || kind == BR) {
                meets = r2 == r && s2 == s + 1;
                other = kind == FS ? FR : BS;
            } else if (kind == FR || kind == BS) {
                meets = r2 == r && s2 == s - 1;
                other = kind == FR ? FS : BR;
            } else if (kind == GATHER || kind == REDUCE || kind == SEPARATE) {
                meets = s2 == s;
            } else if (kind == EMBED) {
                meets = r2 == r && (s2 == 0 || s2 == job->n_stages - 1);
            } else if (kind == CLIP) {
                meets = true;
            }
            if (meets)
                latest_s = fmax(latest_s, job->ops[r2][s2][other][m].start_s);
        }
    return later(&own->end_s, latest_s + own->duration_s);
}

/* Times of all; how long the step takes. */
static double simulate(struct naive *job)
{
    double last_s = 0;
    bool is_changed = true;

    for (int r = 0; r < job->n_replicas; r++)
        for (int s = 0; s < job->n_stages; s++)
            for (int kind = 0; kind < N_NAIVE; kind++)
                for (int m = 0; m < MOST_MICRO; m++)
                    job->ops[r][s][kind][m].start_s = job->ops[r][s][kind][m].end_s = 0;
    while (is_changed) {
        is_changed = false;
        for (int r = 0; r < job->n_replicas; r++)
            for (int s = 0; s < job->n_stages; s++) {
                is_changed |= relax_worker(job, r, s);
                for (int kind = FS; kind < N_NAIVE; kind++)
                    for (int m = 0; m < MOST_MICRO; m++)
                        if (exists(job, s, kind, m))
                            is_changed |= relax_message(job, r, s, kind, m);
            }
    }
    for (int r = 0; r < job->n_replicas; r++)
        for (int s = 0; s < job->n_stages; s++)
            for (int kind = 0; kind < N_NAIVE; kind++)
                for (int m = 0; m < MOST_MICRO; m++)
                    last_s = fmax(last_s, job->ops[r][s][kind][m].end_s);
    return last_s;
}

static void write_table(struct naive *jobs, int n_jobs, const char *path)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs("dur_us,start_us,step,seq_id,stage,dp_rank,optype\n", file);
    for (int step = 0; step < n_jobs; step++)
        for (int r = 0; r < jobs[step].n_replicas; r++)
            for (int s = 0; s < jobs[step].n_stages; s++)
                for (int kind = 0; kind < N_NAIVE; kind++)
                    for (int m = MOST_MICRO - 1; m >= 0; m--) {
                        const struct naive_op *op = &jobs[step].ops[r][s][kind][m];
                        if (exists(&jobs[step], s, kind, m))
                            fprintf(file, "%.17g,%.17g,%d,%d,%d,%d,%s\n",
                                    1e6 * (op->end_s - op->start_s),
                                    1e6 * (3.0 * step + op->start_s), 10 + step, m, s, r,
                                    naive_names[kind]);
                    }
    assert_int_equal(fclose(file), 0);
}

/* ------------------------------------------------------------------------------- tests */

static void near(double value, double expected, const char *what)
{
    if (fabs(value - expected) > 1e-9 * (1 + fabs(expected)))
        fail_msg("%s: %.12g, expected %.12g", what, value, expected);
}

/* The first step of a table. */
static void read_step(const char *path, struct mist_recorded_job *job,
                      struct mist_arena *arena)
{
    struct mist_operations table;
    struct mist_err err = {0};

    must(mist_operations_open(&table, path, NULL, &err), &err);
    must(mist_operations_next(&table, job, arena, &err), &err);
    mist_operations_close(&table);
}

/* A study of all steps. */
static void study_table(const char *path, struct mist_recorded_study *study,
                        struct mist_arena *arena)
{
    struct mist_operations table;
    struct mist_err err = {0};

    must(mist_operations_open(&table, path, NULL, &err), &err);
    must(mist_recorded_study(&table, NULL, 0, study, NULL, arena, &err), &err);
    mist_operations_close(&table);
}

/* A step of the job as edited, and of the formulas with other durations. */
static void expect_edit(const struct naive *drawn, const char *path, const char *edit,
                        int kind, int worker, double factor)
{
    struct naive job = *drawn;
    struct mist_recorded_job recorded;
    struct mist_recorded_times times;
    struct mist_arena arena;
    struct mist_err err = {0};
    int64_t n_changed = 0;

    for (int r = 0; r < job.n_replicas; r++)
        for (int s = 0; s < job.n_stages; s++)
            for (int k = 0; k < N_NAIVE; k++)
                for (int m = 0; m < MOST_MICRO; m++)
                    if (k == kind || (worker == r * job.n_stages + s &&
                                      (k <= B || k == GC || k == STEP)))
                        job.ops[r][s][k][m].duration_s *= factor;
    mist_arena_init(&arena);
    read_step(path, &recorded, &arena);
    assert_true(mist_recorded_times_alloc(&recorded, &arena, &times));
    must(mist_recorded_edit(&recorded, edit, &n_changed, &err), &err);
    assert_true(n_changed > 0);
    mist_recorded_replay(&recorded, recorded.gap_s, recorded.work_s, &times);
    near(mist_recorded_span_s(&recorded, &times), simulate(&job), edit);
    mist_arena_fini(&arena);
}

TEST(test_random_jobs)
{
    struct mist_random random;
    static struct naive jobs[2];
    struct scratch scratch;
    double expected_s[2];

    mist_random_init(&random, test_seed(1511));
    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "ops.csv");
    for (int i = 0; i < 200; i++) {
        struct mist_recorded_job recorded;
        struct mist_recorded_study study;
        struct mist_arena arena;
        char edit[64];

        draw(&jobs[0], &random);
        expected_s[0] = simulate(&jobs[0]);
        write_table(jobs, 1, path);
        expect_edit(&jobs[0], path, "kernel.backward-compute=2x", B, -1, 0.5);
        if (!jobs[0].lacks[REDUCE])
            expect_edit(&jobs[0], path, "link.grads-reduce-scatter=0.25x", REDUCE, -1, 4);
        int worker =
            (int)mist_random_below(&random, jobs[0].n_replicas * jobs[0].n_stages);
        snprintf(edit, sizeof edit, "rank.%d=0.25x", worker);
        expect_edit(&jobs[0], path, edit, -1, worker, 4);

        jobs[1] = jobs[0]; /* another step, slower */
        for (int m = 0; m < MOST_MICRO; m++)
            jobs[1].ops[0][0][F][m].duration_s *= 2;
        expected_s[1] = simulate(&jobs[1]);
        write_table(jobs, 2, path);
        mist_arena_init(&arena);
        read_step(path, &recorded, &arena);
        assert_int_equal(recorded.step, 10);
        assert_int_equal(recorded.n_contradictions, 0);
        near(mist_recorded_span_s(&recorded, &recorded.recorded), expected_s[0],
             "recorded");
        study_table(path, &study, &arena);
        assert_int_equal(study.n_steps, 2);
        near(study.recorded_s, (expected_s[0] + expected_s[1]) / 2, "mean");
        near(study.unchanged_s, study.recorded_s, "unchanged");
        near(study.without_gaps_s, study.recorded_s, "no gaps in it");
        mist_arena_fini(&arena);
    }
    scratch_visit(&scratch, 1);
    rmdir(scratch.folder);
}

/* Where all but one replica are alike, that one is the cause. */
TEST(test_cause)
{
    static struct naive job;
    struct mist_random random;
    struct scratch scratch;
    struct mist_recorded_study study;
    struct mist_arena arena;

    mist_random_init(&random, 3);
    draw(&job, &random);
    job.n_stages = 2, job.n_replicas = 3, job.n_micro = 4;
    for (int r = 0; r < 3; r++)
        for (int s = 0; s < 2; s++)
            for (int kind = 0; kind < N_NAIVE; kind++)
                for (int m = 0; m < 4; m++)
                    job.ops[r][s][kind][m].duration_s = r == 1 && kind <= B ? 0.4 : 0.1;
    double slow_s = simulate(&job);
    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "ops.csv");
    write_table(&job, 1, path);
    mist_arena_init(&arena);
    study_table(path, &study, &arena);
    near(study.unchanged_s, slow_s, "unchanged");
    for (int r = 0; r < 3; r++)
        for (int s = 0; s < 2; s++)
            for (int m = 0; m < 4; m++)
                job.ops[r][s][F][m].duration_s = job.ops[r][s][B][m].duration_s = 0.2;
    near(study.even_s, simulate(&job), "even: the mean of 0.1, 0.1 and 0.4");
    for (int s = 0; s < 2; s++)
        for (int m = 0; m < 4; m++)
            job.ops[1][s][F][m].duration_s = job.ops[1][s][B][m].duration_s = 0.4;
    near(study.replicas[1].alone_frac, simulate(&job) / study.even_s, "alone");
    assert_true(study.replicas[1].without_s < study.without_gaps_s);
    near(study.replicas[0].without_s, study.without_gaps_s, "a fast one");
    assert_int_equal(study.is_slowest[2] + study.is_slowest[3], 1); /* of replica 1 */
    assert_false(study.is_slowest[0] || study.is_slowest[1] || study.is_slowest[4]);
    mist_arena_fini(&arena);
    scratch_visit(&scratch, 1);
    rmdir(scratch.folder);
}

TEST(test_refusals)
{
#define HEAD    "step,dp_rank,stage,optype,mb_id,seq_id,model_chunk,stream,start_us,dur_us\n"
#define FORWARD "1,0,0,forward-compute,0,0,0,compute,0,5\n"
    static const struct {
        const char *text, *says;
        long line;
    } cases[] = {
        {HEAD, "expected operations", 1},
        {HEAD "1,0,0,forward,0,0,0,compute,0,5\n", "forward", 2},
        {HEAD FORWARD FORWARD, "seq_id: expected 1", 3},
        {HEAD "1,0,0,forward-compute,0,2,0,compute,0,5\n", "seq_id: expected 1", 2},
        {HEAD FORWARD "1,0,1,forward-recv,0,0,0,pp-comm,5,1\n",
         "has no forward-send on the stage next to it", 3},
        {HEAD "1,0,0,forward-compute,0,0,0,compute,0,-20000\n", "dur_us", 2},
        {HEAD "1,0,-1,forward-compute,0,0,0,compute,0,5\n", "stage", 2},
        {HEAD FORWARD "1,9,0,forward-compute,0,0,0,compute,0,5\n",
         "for 10 dp_ranks and 1 st", 0},
        {"step,dp_rank\n1,0\n", "stage", 1},
        {"\x1f\x8b\b", "damaged or cut off", 0},
    };
    static const char *const edits[] = {
        "launch=2",  "launch",   "kernel.forward-send=2x", "link.forward-send=0x",
        "rank.1=2x", "rank.=2x", "kernel.all=-1x"};
    struct scratch scratch;
    struct mist_recorded_job job;
    struct mist_arena arena;

    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "ops.csv");
    mist_arena_init(&arena);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_err err = {0};
        scratch_write(path, cases[i].text);
        struct mist_operations table;
        enum mist_status status = mist_operations_open(&table, path, NULL, &err);
        if (status == MIST_OK)
            status = mist_operations_next(&table, &job, &arena, &err);
        mist_operations_close(&table);
        if (status != MIST_ERR_INPUT || !strstr(err.message, cases[i].says) ||
            err.line != cases[i].line || strcmp(err.path, path) != 0)
            fail_msg("%zu: %d, %s:%ld: %s", i, (int)status, err.path, err.line,
                     err.message);
    }
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        struct mist_err err = {0};
        scratch_write(path, HEAD FORWARD);
        const char *edit = edits[i];
        struct mist_operations table;
        struct mist_recorded_study study;
        must(mist_operations_open(&table, path, NULL, &err), &err);
        if (mist_recorded_study(&table, &edit, 1, &study, NULL, &arena, &err) !=
            MIST_ERR_USAGE)
            fail_msg("%s is no edit", edit);
        mist_operations_close(&table);
    }
    mist_arena_fini(&arena);
    scratch_visit(&scratch, 1);
    rmdir(scratch.folder);
}

/* ------------------------------------------------------------------- a published study */

static void within(double value, double expected, double frac, const char *what)
{
    print_message("%s: %.4f, published %.4f, %+.2f %%\n", what, value, expected,
                  100 * (value / expected - 1));
    assert_true(fabs(value / expected - 1) <= frac);
}

/* A number of one of the published files. */
static double published(const char *name, const char *key)
{
    struct mist_json_doc doc;
    struct mist_err err = {0};
    char path[REFERENCE_PATH_BYTES];

    assert_true(find_reference(name, path));
    must(mist_json_load(&doc, path, MIST_JSON_FOREIGN, &err), &err);
    double value = json_number_value(json_object_get(doc.root, key));
    mist_json_fini(&doc);
    return value;
}

TEST(test_published)
{
    struct mist_recorded_study study;
    struct mist_arena arena;
    char path[REFERENCE_PATH_BYTES];

    if (!find_reference("straggler/SE_trace.csv.gz", path))
        skip();
    mist_arena_init(&arena);
    study_table(path, &study, &arena);
    assert_true(study.unchanged_worst_frac <= 0.005);
    within(study.without_gaps_s, published("straggler/ms-SE.json", "tori"), 0.01,
           "without gaps");
    within(study.even_s, published("straggler/ms-SE.json", "tideal"), 0.01, "even");
    within(study.stages[1].without_s, published("straggler/ms-SE.json", "trem"), 0.01,
           "without imbalance of the last stage");
    within(study.stages[0].without_s, published("straggler/ms-SE.json", "tadd"), 0.01,
           "the last stage alone");
    within(study.slowest.without_s, published("straggler/mw-SE.json", "trem"), 0.01,
           "without the slowest workers");
    within(study.slowest.alone_frac * study.even_s,
           published("straggler/mw-SE.json", "tadd"), 0.01, "the slowest workers alone");
    mist_arena_fini(&arena);
}

TEST_MAIN(NULL, NULL)
