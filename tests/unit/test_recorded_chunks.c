/*
 * Recorded jobs with interleaved stages: random ones are simulated here by formulas that are
 * repeated until nothing changes, and written as a table, with transfers at the ends that
 * nobody makes or without, parameters gathered and gradients reduced chunk by chunk beside
 * the computations; what is read must give the same times, and with edits those of
 * the formulas with other durations.
 */
#include "tests/unit/test.h"

#include "tests/unit/scratch.h"

#include "core/random.h"
#include "sim/recorded/operators_file.h"
#include "sim/recorded/recorded_study.h"

#include <math.h>

enum {
    MOST_STAGES = 4,
    MOST_CHUNKS = 3,
    MOST_COMPUTATIONS = MOST_CHUNKS * 2 * MOST_STAGES
};
enum { F, B, N_WAYS };

static const char *const names[N_WAYS][3] = {
    {"forward-compute", "forward-send", "forward-recv"},
    {"backward-compute", "backward-send", "backward-recv"}};

struct op {
    double duration_s, start_s, end_s;
};

enum { NONE, ALL, ALL_BUT_FIRST }; /* transfers at the ends */

/* [stage][way][number in the order of the stage] */
struct naive {
    int n_stages, n_chunks, n_micro;
    int ends;
    bool has_others; /* transfers that are none of a computation */
    bool passes;     /* parameters and gradients */
    int first;       /* replica and stage */
    int first_seq;
    struct op computations[MOST_STAGES][N_WAYS][MOST_COMPUTATIONS];
    struct op sends[MOST_STAGES][N_WAYS][MOST_COMPUTATIONS];
    struct op receives[MOST_STAGES][N_WAYS][MOST_COMPUTATIONS];
    struct op chunks[MOST_STAGES][N_WAYS][MOST_CHUNKS]; /* gathered, reduced */
    struct op separate[MOST_STAGES];
};

static int n_of(const struct naive *job)
{
    return job->n_chunks * job->n_micro;
}

/* Groups of as many micro-batches as there are stages go through one chunk after the other. */
static int chunk_of(const struct naive *job, int way, int k)
{
    int i = k / job->n_stages % job->n_chunks;

    return way == F ? i : job->n_chunks - 1 - i;
}

/* Whether the first (last) stage's first (last) chunk: nothing comes to it forward
 * (backward), nothing leaves it backward (forward). */
static bool is_end(const struct naive *job, int s, int way, int k, bool is_first)
{
    return s == (is_first ? 0 : job->n_stages - 1) &&
           chunk_of(job, way, k) == (is_first ? 0 : job->n_chunks - 1);
}

static bool has_receive(const struct naive *job, int s, int way, int k)
{
    return !is_end(job, s, way, k, way == F) || job->ends == ALL ||
           (job->ends == ALL_BUT_FIRST && k > 0);
}

/* The receive of what computation k of stage s sends; NULL: it sends nothing. */
static struct op *receive_of(struct naive *job, int s, int way, int k)
{
    int last = way == F ? job->n_stages - 1 : 0, first = job->n_stages - 1 - last;

    if (is_end(job, s, way, k, way == B))
        return NULL;
    return s == last ? &job->receives[first][way][k + job->n_stages]
                     : &job->receives[s + (way == F ? 1 : -1)][way][k];
}

/* The i-th computation of stage s: way and number. */
static int order(const struct naive *job, int s, int i, int *k)
{
    int n = n_of(job),
        n_fill = (job->n_stages - s - 1) * 2 + (job->n_chunks - 1) * job->n_stages;

    n_fill = n_fill < n ? n_fill : n;
    if (i < n_fill) {
        *k = i;
        return F;
    }
    if (i < 2 * n - n_fill) {
        *k = (i - n_fill) / 2 + ((i - n_fill) % 2 == 0 ? n_fill : 0);
        return (i - n_fill) % 2 == 0 ? F : B;
    }
    *k = i - n;
    return B;
}

static bool later(double *at_s, double s)
{
    bool is_later = s > *at_s;

    if (is_later)
        *at_s = s;
    return is_later;
}

/* Transfers wait for the one before (-1: none), sends for what they send, receives for the
 * computation before theirs. */
static bool relax_transfers(struct naive *job, int s, int way)
{
    struct op *computations = job->computations[s][way], *sends = job->sends[s][way],
              *receives = job->receives[s][way];
    int last_send = -1, last_receive = -1;
    bool is_changed = false;

    for (int k = 0; k < n_of(job); k++) {
        struct op *there = receive_of(job, s, way, k);
        if (there || job->ends != NONE) {
            if (last_send >= 0)
                is_changed |= later(&sends[k].start_s, sends[last_send].end_s);
            is_changed |= later(&sends[k].start_s, computations[k].end_s);
            double begin_s =
                there ? fmax(sends[k].start_s, there->start_s) : sends[k].start_s;
            is_changed |= later(&sends[k].end_s, begin_s + sends[k].duration_s);
            if (there)
                is_changed |= later(&there->end_s, begin_s + there->duration_s);
            last_send = k;
        }
        bool is_real = !is_end(job, s, way, k, way == F);
        if (has_receive(job, s, way, k)) {
            if (last_receive >= 0)
                is_changed |= later(&receives[k].start_s, receives[last_receive].end_s);
            if (k > 0)
                is_changed |= later(&receives[k].start_s, computations[k - 1].end_s);
            if (!is_real)
                is_changed |= later(&receives[k].end_s,
                                    receives[k].start_s + receives[k].duration_s);
            is_changed |= later(&computations[k].start_s, receives[k].end_s);
            last_receive = k;
        }
    }
    return is_changed;
}

static bool relax_computations(struct naive *job, int s)
{
    bool is_changed = false, had_backward = false;
    double ends_s[2 * MOST_COMPUTATIONS];
    int k;

    for (int i = 0; i < 2 * n_of(job); i++) {
        int way = order(job, s, i, &k);
        struct op *op = &job->computations[s][way][k];
        if (way == B && !had_backward && i >= 2) /* its first transfers */
            for (int first = 0; first < n_of(job); first++)
                if (has_receive(job, s, B, first)) {
                    is_changed |=
                        later(&job->receives[s][B][first].start_s, ends_s[i - 2]);
                    break;
                }
        had_backward = had_backward || way == B;
        is_changed |= later(&op->start_s, i > 0 ? ends_s[i - 1] : 0);
        is_changed |= later(&op->end_s, op->start_s + op->duration_s);
        ends_s[i] = op->end_s;
    }
    return is_changed;
}

/* A chunk is gathered before its first forward and reduced behind its last backward, one
 * message after the other. */
static bool relax_chunks(struct naive *job, int s)
{
    bool is_changed = false;
    double before_s = 0, last_s = 0;

    for (int way = F; way <= B; way++)
        for (int i = 0; i < job->n_chunks; i++) {
            int chunk = way == F ? i : job->n_chunks - 1 - i;
            struct op *message = &job->chunks[s][way][chunk];
            is_changed |= later(&message->start_s, before_s);
            for (int k = 0; way == B && k < n_of(job); k++)
                if (chunk_of(job, B, k) == chunk)
                    is_changed |=
                        later(&message->start_s, job->computations[s][B][k].end_s);
            is_changed |= later(&message->end_s, message->start_s + message->duration_s);
            before_s = message->end_s;
            for (int k = 0; way == F && k < n_of(job); k++)
                if (chunk_of(job, F, k) == chunk)
                    is_changed |=
                        later(&job->computations[s][F][k].start_s, message->end_s);
        }
    for (int k = 0; k < n_of(job); k++)
        last_s = fmax(last_s, job->computations[s][B][k].end_s);
    is_changed |= later(&job->separate[s].start_s, last_s);
    return later(&job->separate[s].end_s, last_s + job->separate[s].duration_s) ||
           is_changed;
}

/* Times of all; how long the step takes. */
static double simulate(struct naive *job)
{
    struct op(*all[])[N_WAYS][MOST_COMPUTATIONS] = {job->computations, job->sends,
                                                    job->receives};
    double last_s = 0;

    for (int i = 0; i < 3; i++)
        for (int s = 0; s < MOST_STAGES; s++)
            for (int way = 0; way < N_WAYS; way++)
                for (int k = 0; k < MOST_COMPUTATIONS; k++)
                    all[i][s][way][k].start_s = all[i][s][way][k].end_s = 0;
    for (int s = 0; s < MOST_STAGES; s++) {
        job->separate[s].start_s = job->separate[s].end_s = 0;
        for (int i = 0; i < N_WAYS * MOST_CHUNKS; i++)
            job->chunks[s][i / MOST_CHUNKS][i % MOST_CHUNKS].start_s =
                job->chunks[s][i / MOST_CHUNKS][i % MOST_CHUNKS].end_s = 0;
    }
    for (bool is_changed = true; is_changed;) {
        is_changed = false;
        for (int s = 0; s < job->n_stages; s++) {
            is_changed |= relax_computations(job, s);
            is_changed |= job->passes && relax_chunks(job, s);
            for (int way = 0; way < N_WAYS; way++)
                is_changed |= relax_transfers(job, s, way);
        }
    }
    for (int i = 0; i < 3; i++)
        for (int s = 0; s < job->n_stages; s++)
            for (int way = 0; way < N_WAYS; way++)
                for (int k = 0; k < n_of(job); k++)
                    last_s = fmax(last_s, all[i][s][way][k].end_s);
    for (int s = 0; s < job->n_stages; s++)
        last_s = fmax(last_s, fmax(job->separate[s].end_s, job->chunks[s][B][0].end_s));
    return last_s;
}

static void write_row(FILE *file, const struct naive *job, int s, const char *name,
                      int seq, int chunk, double start_s, double end_s)
{
    fprintf(file, "5,%d,%d,%s,-1,%d,%d,,%.17g,%.17g\n", job->first, job->first + s, name,
            seq, chunk, 1e6 * start_s, 1e6 * (end_s - start_s));
}

static void write_chunks(FILE *file, const struct naive *job, int s)
{
    for (int way = F; way <= B; way++)
        for (int i = 0; i < job->n_chunks; i++) {
            int chunk = way == F ? i : job->n_chunks - 1 - i;
            const struct op *message = &job->chunks[s][way][chunk];
            write_row(file, job, s,
                      way == F ? "params-all-gather" : "grads-reduce-scatter",
                      job->first_seq + i, chunk, message->start_s, message->end_s);
        }
    write_row(file, job, s, "separate-grads-all-reduce", job->first_seq, 0,
              job->separate[s].start_s, job->separate[s].end_s);
}

static void write_transfers(FILE *file, struct naive *job, int s, int way)
{
    const struct op *computations = job->computations[s][way];
    int n_sends = job->first_seq, n_receives = n_sends, n = n_of(job);

    if (job->has_others)
        write_row(file, job, s, names[way][1], n_sends++, -1, 0, 0);
    for (int k = 0; k < n; k++) {
        const struct op *send = &job->sends[s][way][k],
                        *receive = &job->receives[s][way][k];
        write_row(file, job, s, names[way][0], job->first_seq + k, chunk_of(job, way, k),
                  computations[k].start_s, computations[k].end_s);
        if (job->ends != NONE || receive_of(job, s, way, k))
            write_row(file, job, s, names[way][1], n_sends++, -1, send->start_s,
                      send->end_s);
        if (has_receive(job, s, way, k))
            write_row(file, job, s, names[way][2], n_receives++, -1, receive->start_s,
                      receive->end_s);
    }
    double late_s = computations[n - 1].start_s + 1e-3;
    if (job->has_others && way == F)
        write_row(file, job, s, names[F][2], n_receives, -1, late_s, late_s);
}

static void write_table(struct naive *job, const char *path)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs("step,dp_rank,stage,optype,mb_id,seq_id,model_chunk,stream,start_us,dur_us\n",
          file);
    for (int s = 0; s < job->n_stages; s++) {
        for (int way = 0; way < N_WAYS; way++)
            write_transfers(file, job, s, way);
        if (job->passes)
            write_chunks(file, job, s);
    }
    assert_int_equal(fclose(file), 0);
}

static void draw(struct naive *job, struct mist_random *random)
{
    memset(job, 0, sizeof *job);
    job->n_stages = 2 + (int)mist_random_below(random, MOST_STAGES - 1);
    job->n_chunks = 2 + (int)mist_random_below(random, 2);
    job->n_micro = job->n_stages * (1 + (int)mist_random_below(random, 2));
    job->ends = (int)mist_random_below(random, 3);
    job->has_others = mist_random_below(random, 2);
    job->passes = mist_random_below(random, 2);
    job->first = (int)mist_random_below(random, 2);
    job->first_seq = (int)mist_random_below(random, 2);
    for (int s = 0; s < job->n_stages && job->passes; s++) {
        job->separate[s].duration_s = 0.01 * mist_random_uniform(random);
        for (int i = 0; i < N_WAYS * job->n_chunks; i++)
            job->chunks[s][i % N_WAYS][i / N_WAYS].duration_s =
                0.5 * mist_random_uniform(random);
    }
    for (int s = 0; s < job->n_stages; s++)
        for (int way = 0; way < N_WAYS; way++)
            for (int k = 0; k < n_of(job); k++) {
                struct op *there = receive_of(job, s, way, k);
                job->computations[s][way][k].duration_s =
                    0.1 + 0.1 * mist_random_uniform(random);
                if (there)
                    there->duration_s = job->sends[s][way][k].duration_s =
                        0.01 * mist_random_uniform(random);
            }
}

/* Durations of computations and of transfers times factors. */
static double simulate_scaled(const struct naive *drawn, double backward, double messages)
{
    static struct naive job;

    job = *drawn;
    for (int s = 0; s < job.n_stages; s++) {
        for (int i = 0; i < N_WAYS * MOST_CHUNKS; i++)
            job.chunks[s][i % N_WAYS][i / N_WAYS].duration_s *= messages;
        job.separate[s].duration_s *= messages;
        for (int k = 0; k < n_of(&job); k++) {
            job.computations[s][B][k].duration_s *= backward;
            for (int way = 0; way < N_WAYS; way++) {
                job.sends[s][way][k].duration_s *= messages;
                job.receives[s][way][k].duration_s *= messages;
            }
        }
    }
    return simulate(&job);
}

static void expect_edit(const char *path, const char *edit, double expected_s)
{
    struct mist_operations table;
    int64_t n_changed = 0;
    struct mist_recorded_job job;
    struct mist_recorded_times times;
    struct mist_arena arena;
    struct mist_err err = {0};

    mist_arena_init(&arena);
    must(mist_operations_open(&table, path, NULL, &err), &err);
    must(mist_operations_next(&table, &job, &arena, &err), &err);
    mist_operations_close(&table);
    assert_int_equal(job.n_contradictions, 0);
    assert_true(mist_recorded_times_alloc(&job, &arena, &times));
    if (edit)
        must(mist_recorded_edit(&job, edit, &n_changed, &err), &err);
    mist_recorded_replay(&job, job.gap_s, job.work_s, &times);
    double replayed_s = mist_recorded_span_s(&job, &times);
    if (fabs(replayed_s - expected_s) > 1e-9)
        fail_msg("%s: %.12g, expected %.12g", edit ? edit : "unchanged", replayed_s,
                 expected_s);
    mist_arena_fini(&arena);
}

TEST(random_jobs_come_back)
{
    static struct naive job;
    struct mist_random random;
    struct scratch scratch;

    mist_random_init(&random, test_seed(1512));
    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "ops.csv");
    for (int i = 0; i < 300; i++) {
        draw(&job, &random);
        double recorded_s = simulate(&job);
        write_table(&job, path);
        expect_edit(path, NULL, recorded_s);
        expect_edit(path, "kernel.backward-compute=2x", simulate_scaled(&job, 0.5, 1));
        expect_edit(path, "link.all=0.25x", simulate_scaled(&job, 1, 4));
    }
    scratch_visit(&scratch, 1);
    rmdir(scratch.folder);
}

/* Even and without transfers it takes (chunks * micro-batches + stages - 1)(f + b). */
TEST(even_jobs_take_what_they_should)
{
    static struct naive job;
    struct scratch scratch;
    struct mist_operations table;
    struct mist_recorded_study study;
    struct mist_arena arena;
    struct mist_err err = {0};

    job = (struct naive){.n_stages = 4, .n_chunks = 3, .n_micro = 8};
    for (int s = 0; s < 4; s++)
        for (int k = 0; k < n_of(&job); k++) {
            job.computations[s][F][k].duration_s = k % 2 ? 0.5 : 1.5; /* 1 in the mean */
            job.computations[s][B][k].duration_s = 2;
        }
    simulate(&job);
    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "ops.csv");
    write_table(&job, path);
    mist_arena_init(&arena);
    must(mist_operations_open(&table, path, NULL, &err), &err);
    must(mist_recorded_study(&table, NULL, 0, &study, NULL, &arena, &err), &err);
    mist_operations_close(&table);
    assert_true(fabs(study.even_s - (3 * 8 + 3) * 3.0) < 1e-9);
    mist_arena_fini(&arena);
    scratch_visit(&scratch, 1);
    rmdir(scratch.folder);
}

TEST_MAIN(NULL, NULL)
