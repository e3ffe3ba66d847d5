/*
 * The power fails at any moment of a run that saves checkpoints, and of mist-tune writing
 * a plan: what is found on the disk then (tests/faults/disk.h) must be sound.
 *
 *   - A checkpoint that was said to be saved is found, or a later one, whole, and its
 *     tensors have the bits of a run that was left alone.
 *   - Whatever else lies there is refused or has the bits of its step.
 *   - The log has every step that was printed, unless the disk lost it; whatever of it is
 *     left does not stop a run that goes on.
 *   - A plan that is replaced is the old one or the new one, and the new one once
 *     mist-tune has ended.
 *
 * Every record of the log is a moment. At each the disk has lost nothing, all that was
 * not flushed, contents alone, names alone, and random parts: MIST_STATES (2) draws, of
 * MIST_SEED. A state that was looked at before is not looked at again.
 */
#define _XOPEN_SOURCE 700 /* nftw */
#include "core/hash.h"
#include "core/random.h"
#include "exec/checkpoint/checkpoint.h"
#include "tests/faults/disk.h"
#include "tests/unit/whole_tensors.h"

#include <ftw.h>
#include <sys/wait.h>

enum { N_STEPS = 3, MAX_SEEN = 1 << 20, MAX_LOG_CHECKS = 6 };

static char scratch[] = "/tmp/mist_power_XXXXXX";
static char after[64]; /* scratch/after: what is found */

/* ---------------------------------------------------------------------------- running */

static void write_text(const char *name, const char *text)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", scratch, name);
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    fputs(text, stream);
    assert_int_equal(fclose(stream), 0);
}

/* Runs a line of shell in a folder of scratch; B is the build, T the tests' data. */
static int shell(const char *folder, const char *line)
{
    const char *build = getenv("MIST_BUILD");
    char command[4096], here[2048];

    if (!build || build[0] != '/')
        assert_non_null(getcwd(here, sizeof here));
    int n = snprintf(
        command, sizeof command,
        "B='%s%s%s'; T=\"$PWD/tests/data/cli\"; export B T OMPI_ALLOW_RUN_AS_ROOT=1 "
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; mkdir -p %s/%s && cd %s/%s && { %s\n}",
        build && build[0] == '/' ? "" : here, build && build[0] == '/' ? "" : "/",
        build ? build : "build", scratch, folder, scratch, folder, line);
    assert_true(n > 0 && (size_t)n < sizeof command);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void run(const char *folder, const char *line)
{
    if (shell(folder, line) != 0)
        fail_msg("failed: %s", line);
}

/* Runs the tool with a log of all that it does below the folder. */
static struct disk *run_logged(const char *folder, const char *tool, const char *line)
{
    char path[128], command[2048];

    snprintf(path, sizeof path, "%s/%s", scratch, folder);
    struct disk *disk = disk_new(path);
    snprintf(command, sizeof command,
             "MIST_FAULT_PROGRAM=%s MIST_FAULT_FOLDER=\"$PWD\" "
             "MIST_FAULT_LOG=%s/log LD_PRELOAD=$B/tests/faults/inject.so %s "
             "> ../printed 2>&1 || { cat ../printed; false; }",
             tool, scratch, line);
    snprintf(path, sizeof path, "%s/log", scratch);
    unlink(path);
    run(folder, command);
    return disk;
}

/* ---------------------------------------------------------------------- what is found */

static int remove_one(const char *path, const struct stat *info, int type,
                      struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    return remove(path);
}

static void remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

struct found {
    char path[256];
    bool is_folder;
    unsigned char *bytes; /* owned */
    size_t n;
};

struct state {
    struct found items[256];
    int n;
    struct mist_hash hash;
};

static void collect(void *context, const char *path, bool is_folder,
                    const struct disk_text *text)
{
    struct state *state = context;
    struct found *item = &state->items[state->n++];

    assert_true(state->n < 256);
    *item = (struct found){.is_folder = is_folder, .n = is_folder ? 0 : text->n};
    snprintf(item->path, sizeof item->path, "%s", path);
    item->bytes = malloc(item->n + 1);
    assert_non_null(item->bytes);
    if (item->n > 0)
        memcpy(item->bytes, text->bytes, item->n);
    mist_hash_add_text(&state->hash, path);
    mist_hash_add_int64(&state->hash, is_folder ? -1 : (int64_t)item->n);
    mist_hash_add_bytes(&state->hash, item->bytes, item->n);
}

static void write_state(const struct state *state)
{
    char path[512];

    remove_tree(after);
    assert_int_equal(mkdir(after, 0777), 0);
    for (int i = 0; i < state->n; i++) {
        const struct found *item = &state->items[i];
        snprintf(path, sizeof path, "%s/%s", after, item->path);
        if (item->is_folder) {
            assert_int_equal(mkdir(path, 0777), 0);
            continue;
        }
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        assert_true(fd >= 0 && write(fd, item->bytes, item->n) == (ssize_t)item->n);
        close(fd);
    }
}

/* What is judged, and what has been said so far. */
struct judge {
    struct disk *disk;
    const struct disk_tree *initial;
    void (*look)(struct judge *judge, const struct state *state, bool has_ended);
    int64_t n_saved;         /* the step up to which all is said to be saved */
    int64_t n_said;          /* the last step that was printed */
    bool is_whole_run;       /* the log begins with step 1 */
    char line[256];          /* of standard error, so far */
    const uint64_t *digests; /* [step] of a run that was left alone */
    const char *log;         /* of that run */
    const char *resume;      /* command line that goes on */
    int n_log_checks;
    long n_looked, n_states;
    long record;
    enum disk_loss loss;
};

/* A line that begins with a step's number: the steps before are saved. */
static void hear(struct judge *judge, const char *bytes, size_t n)
{
    int64_t step;

    for (size_t i = 0; i < n; i++) {
        size_t used = strlen(judge->line);
        if (bytes[i] != '\n') {
            if (used + 1 < sizeof judge->line)
                judge->line[used] = bytes[i];
            continue;
        }
        double loss;
        if (sscanf(judge->line, "%" SCNd64 " %lf", &step, &loss) == 2) {
            judge->n_said = step;
            judge->n_saved = step - 1 > judge->n_saved ? step - 1 : judge->n_saved;
        }
        memset(judge->line, 0, sizeof judge->line);
    }
}

static void look_at(struct judge *judge, enum disk_loss loss, struct mist_random *rng,
                    uint64_t *seen, size_t n_seen)
{
    static struct disk_tree tree;
    static struct state state;
    struct disk_text text = {0};
    bool has_ended = judge->record == judge->disk->n_records;

    state.n = 0;
    mist_hash_init(&state.hash);
    mist_hash_add_int64(&state.hash, judge->n_saved);
    mist_hash_add_int64(&state.hash, loss == DISK_LOSES_NOTHING ? judge->n_said : 0);
    mist_hash_add_int64(&state.hash, has_ended);
    disk_crash_names(judge->disk, judge->initial, judge->record, loss, rng, &tree);
    disk_visit_folder(judge->disk, &tree, 0, "", judge->record, loss, rng, &text, collect,
                      &state);
    judge->n_states++;
    judge->loss = loss;
    size_t i = state.hash.value % n_seen;
    while (seen[i] && seen[i] != state.hash.value)
        i = (i + 1) % n_seen;
    if (!seen[i]) {
        seen[i] = state.hash.value;
        judge->n_looked++;
        write_state(&state);
        judge->look(judge, &state, has_ended);
    }
    for (int k = 0; k < state.n; k++)
        free(state.items[k].bytes);
    free(text.bytes);
}

/* Looks at every moment of the log. */
static void replay(struct judge *judge)
{
    uint64_t *seen = calloc(MAX_SEEN, sizeof *seen);
    const char *states = getenv("MIST_STATES"), *bytes;
    int n_draws = states ? atoi(states) : 2;
    struct mist_random rng;

    assert_non_null(seen);
    mist_random_init(&rng, test_seed(1));
    for (judge->record = 0; judge->record <= judge->disk->n_records; judge->record++) {
        for (int loss = 0; loss < DISK_N_FIXED_LOSSES + n_draws; loss++)
            look_at(judge,
                    loss < DISK_N_FIXED_LOSSES ? (enum disk_loss)loss : DISK_LOSES_SOME,
                    &rng, seen, MAX_SEEN);
        if (judge->record == judge->disk->n_records)
            break;
        struct record record = disk_record(judge->disk, judge->record, &bytes);
        if (record.kind == RECORD_SAY)
            hear(judge, bytes, record.n_bytes);
    }
    free(seen);
    print_message("# %ld records, %ld states, %ld of them different\n",
                  judge->disk->n_records, judge->n_states, judge->n_looked);
}

/* ------------------------------------------------------------------------ checkpoints */

/* Of all tensors of a checkpoint, as readers get them; false: refused. */
static bool digest(const char *path, int64_t *step, uint64_t *out)
{
    struct mist_checkpoint *checkpoint;
    struct mist_hash hash;
    bool is_read = true;

    if (mist_checkpoint_open(path, &checkpoint, NULL) != MIST_OK)
        return false;
    mist_hash_init(&hash);
    for (int32_t i = 0; i < whole_n_tensors(checkpoint) && is_read; i++) {
        const char *name = whole_name(checkpoint, i);
        int64_t n = whole_n_elements(checkpoint, name);
        float *values = malloc((size_t)n * sizeof *values);
        assert_non_null(values);
        is_read = whole_read(checkpoint, name, 0, n, values, NULL) == MIST_OK;
        mist_hash_add_text(&hash, name);
        mist_hash_add_bytes(&hash, values, (size_t)n * sizeof *values);
        free(values);
    }
    *step = mist_checkpoint_step(checkpoint);
    mist_checkpoint_close(checkpoint);
    *out = hash.value;
    return is_read;
}

static void complain(const struct judge *judge, const char *what)
{
    fail_msg("crash behind record %ld, loss %d, steps up to %" PRId64 " saved: %s "
             "(see %s)",
             judge->record, (int)judge->loss, judge->n_saved, what, after);
}

/* Rows of the log are those of the run that was left alone, from the first on. */
static bool is_clean_log(const struct judge *judge, const struct found *log)
{
    const char *row = (const char *)log->bytes, *other = judge->log;

    for (const char *end;
         (end = memchr(row, '\n', (size_t)((const char *)log->bytes + log->n - row)));
         row = end + 1) {
        const char *other_end = strchr(other, '\n');
        if (!other_end)
            return false;
        size_t n = strcspn(other, ","); /* the step, and the loss behind it */
        n += 1 + strcspn(other + n + 1, ",");
        if (strncmp(row, other, n) != 0)
            return false;
        other = other_end + 1;
    }
    return row == (const char *)log->bytes + log->n;
}

/* A process that dies loses no row of what it has printed; a disk may, but what it has
 * does not stop a run that goes on. */
static void look_at_log(struct judge *judge, const struct state *state)
{
    const struct found *log = NULL;
    int64_t n_lines = 0;

    for (int i = 0; i < state->n; i++)
        if (strcmp(state->items[i].path, "log.csv") == 0)
            log = &state->items[i];
    for (size_t i = 0; log && i < log->n; i++)
        n_lines += log->bytes[i] == '\n';
    if (judge->loss == DISK_LOSES_NOTHING && judge->is_whole_run && judge->n_said > 0 &&
        (n_lines < 1 + judge->n_said || !is_clean_log(judge, log)))
        complain(judge, "a step that was printed is not in the log");
    if (log && !is_clean_log(judge, log) && judge->n_log_checks++ < MAX_LOG_CHECKS &&
        shell("after", judge->resume) != 0)
        complain(judge, "the log stops who goes on");
}

static void look_at_checkpoints(struct judge *judge, const struct state *state,
                                bool has_ended)
{
    char path[512], dir[128];
    char *newest = NULL;
    int64_t step = 0, least = has_ended ? N_STEPS : judge->n_saved;
    uint64_t bits;

    snprintf(dir, sizeof dir, "%s/ck", after);
    if (mist_checkpoint_find(dir, NULL, &newest, NULL, NULL) == MIST_OK) {
        if (!digest(newest, &step, &bits))
            complain(judge, "the newest one is damaged");
        if (step < least || step > N_STEPS || step > judge->n_saved + 1)
            complain(judge, "the newest one is of another step");
    } else if (least > 0) {
        complain(judge, "there is none");
    }
    free(newest);
    for (int i = 0; i < state->n; i++) {
        if (!state->items[i].is_folder || strcmp(state->items[i].path, "ck") == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", after, state->items[i].path);
        if (digest(path, &step, &bits) &&
            (step < 1 || step > N_STEPS || bits != judge->digests[step]))
            complain(judge, state->items[i].path);
    }
    if (step > 0 || judge->loss == DISK_LOSES_NOTHING)
        look_at_log(judge, state);
}

/* A run of n_ranks that is left alone: its checkpoints' digests and its log. */
static void train_alone(const char *folder, const char *launch, const char *plan,
                        uint64_t digests[N_STEPS + 1], char **log)
{
    char line[512], path[128];
    struct mist_err err;
    size_t n;

    snprintf(line, sizeof line,
             "%s $B/mist-exec ../%s.json --data text:../text.txt -q --iterations 3 "
             "--checkpoint ck --save-every 1 --keep 0 --log log.csv > /dev/null",
             launch, plan);
    run(folder, line);
    for (int64_t step = 1; step <= N_STEPS; step++) {
        int64_t found;
        snprintf(path, sizeof path, "%s/%s/ck/step-%08" PRId64, scratch, folder, step);
        assert_true(digest(path, &found, &digests[step]));
        assert_true(found == step);
        for (int64_t before = 1; before < step; before++)
            assert_true(digests[before] != digests[step]);
    }
    snprintf(path, sizeof path, "%s/%s/log.csv", scratch, folder);
    must(mist_file_read_all(path, 1 << 20, log, &n, &err), &err);
}

/* before: what is done in the folder first; n_saved: the step that is saved by then. */
static void lose_training(const char *launch, const char *plan, const char *before,
                          int64_t n_saved, const char *options)
{
    uint64_t digests[N_STEPS + 1];
    char line[1024], resume[512], path[128];
    char *log = NULL;
    struct disk_tree *initial = malloc(sizeof *initial);

    assert_non_null(initial);
    remove_tree(after);
    run(".", "rm -rf alone lost");
    train_alone("alone", launch, plan, digests, &log);
    run("lost", before);
    snprintf(line, sizeof line,
             "%s $B/mist-exec ../%s.json --data text:../text.txt --iterations 3 "
             "--checkpoint ck --save-every 1 --log log.csv %s",
             launch, plan, options);
    snprintf(resume, sizeof resume,
             "%s $B/mist-exec ../%s.json --data text:../text.txt --iterations 9 "
             "--resume ck --log log.csv --dry-run > ../printed 2>&1 || { cat "
             "../printed; false; }",
             launch, plan);
    struct disk *disk = run_logged("lost", "mist-exec", line);
    *initial = disk->now;
    snprintf(path, sizeof path, "%s/log", scratch);
    disk_read_log(disk, path);
    struct judge judge = {.disk = disk,
                          .initial = initial,
                          .look = look_at_checkpoints,
                          .n_saved = n_saved,
                          .is_whole_run = n_saved == 0,
                          .digests = digests,
                          .log = log,
                          .resume = resume};
    replay(&judge);
    assert_true(disk->n_records > 100);
    assert_true(judge.n_saved == N_STEPS - 1); /* the rest is told by the end */
    disk_free(disk);
    free(initial);
    free(log);
}

TEST(test_one_rank)
{
    lose_training("", "plan", "true", 0, "--keep 1");
}

TEST(test_two_ranks)
{
    lose_training("mpirun --oversubscribe -n 2", "plan2", "true", 0, "--keep 2");
}

/* The newest one is damaged; the run goes on from the one before and replaces it. */
TEST(test_replaced)
{
    lose_training("", "plan",
                  "cp -R ../alone/ck . && rm -r ck/step-00000003 && "
                  "printf x >> ck/step-00000002/manifest.json",
                  1, "--resume ck --keep 1");
}

/* ------------------------------------------------------------------------------ plans */

static void look_at_plan(struct judge *judge, const struct state *state, bool has_ended)
{
    const struct found *plan = NULL;
    char path[128];
    char *text;
    size_t n;
    struct mist_err err;

    for (int i = 0; i < state->n; i++)
        if (strcmp(state->items[i].path, "out.json") == 0)
            plan = &state->items[i];
    if (!plan) {
        complain(judge, "there is no plan");
        return;
    }
    bool is_old = plan->n == 4 && memcmp(plan->bytes, "old\n", 4) == 0;
    snprintf(path, sizeof path, "%s/plan/out.json", scratch);
    must(mist_file_read_all(path, 1 << 20, &text, &n, &err), &err);
    bool is_new = plan->n == n && memcmp(plan->bytes, text, n) == 0;
    free(text);
    if (!is_new && (!is_old || has_ended))
        complain(judge, is_old ? "the plan is the old one" : "the plan is torn");
}

TEST(test_plan)
{
    char path[128];
    struct disk_tree *initial = malloc(sizeof *initial);

    assert_non_null(initial);
    run("plan", "echo old > out.json && cp -R $T/traces .");
    struct disk *disk =
        run_logged("plan", "mist-tune",
                   "$B/mist-tune --model gpt3-demo --cluster traces --global-batch 4 "
                   "--seq-len 128 -q -f -o out.json");
    *initial = disk->now;
    snprintf(path, sizeof path, "%s/log", scratch);
    disk_read_log(disk, path);
    struct judge judge = {.disk = disk, .initial = initial, .look = look_at_plan};
    replay(&judge);
    assert_true(disk->n_records > 4);
    disk_free(disk);
    free(initial);
}

/* ------------------------------------------------------------------------------ setup */

static int set_up(void **state)
{
    if (!mkdtemp(scratch))
        return -1;
    snprintf(after, sizeof after, "%s/after", scratch);
    write_text("tiny.sed", "s/layers\": 12/layers\": 1/\ns/layers\": 6/layers\": 1/\n"
                           "s/\"hidden\": 256/\"hidden\": 16/\n"
                           "s/\"head_dim\": 64/\"head_dim\": 4/\n"
                           "s/\"ffn\": 1024/\"ffn\": 64/\n"
                           "s/\"seq_len\": 128/\"seq_len\": 16/\n"
                           "s/\"trace_set\": \"traces\"/\"trace_set\": \"\"/\n");
    write_text("sharded.sed",
               "s/\"mesh_devices\": 1/\"mesh_devices\": 2/\ns/\"dp\": 1/\"dp\": 2/\n"
               "s/\"zero\": 0/\"zero\": 1/\ns/\"micro_batch\": 2/\"micro_batch\": 1/\n");
    run(".", "sed -f tiny.sed $T/plan.json > plan.json && "
             "sed -f sharded.sed plan.json > plan2.json && "
             "for i in 1 2 3 4 5 6 7 8; do cat $T/plan.json; done > text.txt");
    return 0;
}

static int tear_down(void **state)
{
    remove_tree(scratch);
    return 0;
}

int main(void)
{
#if defined(__SANITIZE_THREAD__)
    return test_skip_all("the thread sanitizer wants to be loaded first");
#endif
    /* the address sanitizer comes behind what records */
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
    return run_listed_tests(set_up, tear_down);
}
