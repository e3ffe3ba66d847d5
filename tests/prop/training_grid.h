/*
 * What the tests of whole training runs share: plans written as short texts, models small
 * enough for hundreds of runs, and jobs that run many plans, one after the other.
 *
 * Starting MPI takes longer than such a run. So a test program collects its runs, then
 * starts mpirun with itself once for each number of ranks; the ranks read the runs from a
 * file, and the first of them writes what came out to another.
 *
 * A plan as a text: what holds for all of it, a colon, and its stages between slashes.
 *
 *     "G4 zb: tp2 sp ck1 / tp2 oa.5"
 *
 * Plan: G micro-batches; bg: bf16 gradients; cuda: on the emulated CUDA backend; each:
 * gradients are summed after each of them; zb: zb_h1; zb2: zb_h2; zba2: zb_2p, zba1: zb_1p, for passes of uneven times; zbv: zb_v; il2: interleaved, 2
 * chunks; serial;
 * eval: the loss is taken after every step, too, eval3: after every third; skip2: the
 * second step's gradients are dropped; delay3: random delays, seed 3; graphs: steady
 * steps are replayed, plain: they are not (neither: as the run sees fit). Stage: l layers
 * (left out: the rest, evenly), dp, cp, tp, sp, z0 .. z3, ck checkpointed and ln lean blocks,
 * and fractions in the host of weights ow, gradients og, optimizer oo, activations oa; uh:
 * its update, too. The micro-batch follows from the global batch.
 *
 * Include after cmocka.h, in one file of a program.
 */
#ifndef MIST_TESTS_PROP_TRAINING_GRID_H
#define MIST_TESTS_PROP_TRAINING_GRID_H

#include "sim/replay/replay.h"
#include "tests/prop/training_run.h"
#include "tests/unit/scratch.h"
#include "tests/unit/tiny_models.h"

#include <math.h>
#include <sys/wait.h>

enum training_model {
    TRAINING_GPT_TIED, /* biases everywhere, one weight at both ends */
    TRAINING_GPT,
    TRAINING_LLAMA,          /* grouped queries */
    TRAINING_FALCON,         /* one key-value head, one norm */
    TRAINING_FALCON_GROUPED, /* two of them, two norms */
    TRAINING_N_MODELS,
    /* of test_training_near.c alone */
    TRAINING_QWEN3 = TRAINING_N_MODELS, /* norms of heads */
    TRAINING_GEMMA,                     /* tied */
    TRAINING_NEOX,                      /* a part of each head is turned */
    TRAINING_NEMOTRON,                  /* likewise; squared ReLU */
    TRAINING_N_ALL_MODELS
};

static const char *const training_model_names[TRAINING_N_ALL_MODELS] = {
    "gpt-tied", "gpt",   "llama", "falcon",  "falcon-grouped",
    "qwen3",    "gemma", "neox",  "nemotron"};

struct training_grid {
    int32_t n, capacity;
    struct training_run *runs;
    struct training_outcome *outcomes; /* [n], after training_grid_execute */
};

/* --------------------------------------------------------------------------- models */

static inline struct mist_model training_model_of(enum training_model which,
                                                  int32_t n_layers)
{
    static const enum mist_family families[TRAINING_N_ALL_MODELS] = {
        [TRAINING_LLAMA] = MIST_FAMILY_LLAMA,
        [TRAINING_FALCON] = MIST_FAMILY_FALCON,
        [TRAINING_FALCON_GROUPED] = MIST_FAMILY_FALCON,
        [TRAINING_QWEN3] = MIST_FAMILY_QWEN3,
        [TRAINING_GEMMA] = MIST_FAMILY_GEMMA,
        [TRAINING_NEOX] = MIST_FAMILY_NEOX,
        [TRAINING_NEMOTRON] = MIST_FAMILY_NEMOTRON,
    };
    bool is_gpt = which <= TRAINING_GPT, is_neox = which == TRAINING_NEOX;
    bool is_gated = mist_family_traits(families[which])->has_gate;
    struct mist_model model = {
        .family = families[which],
        .n_layers = n_layers,
        .hidden = is_gpt ? 48 : 40,
        .n_heads = 4,
        .n_kv_heads = is_gpt || is_neox          ? 4
                      : which == TRAINING_FALCON ? 1
                                                 : 2,
        .head_dim = is_gpt ? 12 : 10,
        .ffn = is_gated ? 108
               : is_gpt ? 192
                        : 160,
        .vocab = 257,
        .max_seq = is_gpt ? 104 : 0,
        .has_bias = is_gpt || is_neox,
        .ties_embeddings = which == TRAINING_GPT_TIED || which == TRAINING_GEMMA,
        .norm_epsilon = 1e-5,
        .rope_theta = is_gpt ? 0 : 10000,
        .rotary_dim = mist_family_traits(families[which])->may_turn_part ? 4 : 0,
        .has_exact_gelu = is_neox,
    };

    snprintf(model.name, sizeof model.name, "%s", training_model_names[which]);
    return model;
}

/* ---------------------------------------------------------------------------- plans */

/* One word of a plan; false: no such word. */
static inline bool training_read_plan_word(struct training_run *run, const char *word)
{
    struct mist_plan *plan = &run->plan;
    int number = 0;

    if (sscanf(word, "G%d", &number) == 1)
        plan->n_micro_batches = number;
    else if (strcmp(word, "each") == 0)
        plan->reduces_each_micro_batch = true;
    else if (strcmp(word, "bg") == 0)
        plan->job.gradient_dtype = MIST_DTYPE_BF16;
    else if (strcmp(word, "cuda") == 0)
        plan->job.computes_on_gpu = true;
    else if (strcmp(word, "zb") == 0)
        plan->pipeline = MIST_PIPELINE_ZB_H1;
    else if (strcmp(word, "zb2") == 0)
        plan->pipeline = MIST_PIPELINE_ZB_H2;
    else if (sscanf(word, "zba%d", &number) == 1) {
        plan->pipeline = number == 1 ? MIST_PIPELINE_ZB_1P : MIST_PIPELINE_ZB_2P;
        for (int i = 0; i < MIST_MAX_STAGES; i++)
            plan->passes[i] = (struct mist_pipeline_pass){3 + i % 2, 4, 2 + i, 1, 0.5};
    } else if (strcmp(word, "zbv") == 0)
        plan->pipeline = MIST_PIPELINE_ZB_V;
    else if (sscanf(word, "il%d", &number) == 1) {
        plan->pipeline = MIST_PIPELINE_INTERLEAVED;
        plan->n_chunks = number;
    } else if (strcmp(word, "serial") == 0)
        run->is_serial = true;
    else if (strcmp(word, "graphs") == 0)
        run->graphs = MIST_GRAPHS_ON;
    else if (strcmp(word, "plain") == 0)
        run->graphs = MIST_GRAPHS_OFF;
    else if (strcmp(word, "eval") == 0)
        run->evaluates_every = 1;
    else if (sscanf(word, "eval%d", &number) == 1)
        run->evaluates_every = number;
    else if (sscanf(word, "skip%d", &number) == 1)
        run->skipped_step = number;
    else if (sscanf(word, "delay%d", &number) == 1)
        run->delay_seed = (uint64_t)number;
    else
        return false;
    return true;
}

static inline bool training_read_stage_word(struct mist_stage_plan *stage,
                                            const char *word)
{
    struct {
        const char *name;
        int32_t *out;
    } numbers[] = {{"l", &stage->n_layers},
                   {"dp", &stage->dp},
                   {"tp", &stage->tp},
                   {"cp", &stage->cp},
                   {"ck", &stage->n_checkpointed},
                   {"ln", &stage->n_lean}};
    struct {
        const char *name;
        double *out;
    } fractions[] = {{"ow", &stage->offload_weights},
                     {"og", &stage->offload_gradients},
                     {"oo", &stage->offload_optimizer},
                     {"oa", &stage->offload_activations}};
    char name[8] = "";
    double value = -1;

    if (strcmp(word, "uh") == 0)
        return stage->updates_on_host = true;
    if (strcmp(word, "sp") == 0)
        return stage->is_sequence_parallel = true;
    if (sscanf(word, "%7[a-z]%lf", name, &value) != 2)
        return false;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(name, numbers[i].name) == 0)
            return *numbers[i].out = (int32_t)value, true;
    for (size_t i = 0; i < sizeof fractions / sizeof *fractions; i++)
        if (strcmp(name, fractions[i].name) == 0)
            return *fractions[i].out = value, true;
    stage->zero = (int32_t)value;
    return strcmp(name, "z") == 0;
}

/* Layers that the text leaves open, meshes and micro-batches. */
static inline void training_complete_plan(struct mist_plan *plan)
{
    int32_t n_open = 0, n_left = plan->model.n_layers;

    for (int32_t i = 0; i < plan->n_stages; i++) {
        n_open += plan->stages[i].n_layers == 0;
        n_left -= plan->stages[i].n_layers;
    }
    for (int32_t i = 0; i < plan->n_stages; i++) {
        struct mist_stage_plan *stage = &plan->stages[i];
        if (stage->n_layers == 0) {
            stage->n_layers = (n_left + n_open - 1) / n_open;
            n_left -= stage->n_layers;
            n_open--;
        }
        stage->n_nodes = 1;
        stage->n_devices = (int32_t)mist_stage_n_ranks(stage);
        stage->micro_batch =
            (int32_t)plan->job.global_batch / plan->n_micro_batches / stage->dp;
    }
}

/* Fills run->plan, whose model and job are there already, from run->text. */
static inline void training_read_plan(struct training_run *run)
{
    static const struct mist_stage_plan stage = {.dp = 1, .tp = 1};
    struct mist_plan *plan = &run->plan;
    struct mist_err err = {0};
    char copy[sizeof run->text];
    char *rest = NULL;
    bool is_stage = false, is_known = true;

    snprintf(copy, sizeof copy, "%s", run->text);
    for (char *word = strtok_r(copy, " ", &rest); word && is_known;
         word = strtok_r(NULL, " ", &rest)) {
        size_t length = strlen(word);
        bool is_last = word[length - 1] == ':';
        if (is_last)
            word[length - 1] = '\0';
        if (strcmp(word, "/") == 0)
            plan->stages[plan->n_stages++] = stage;
        else if (is_stage)
            is_known = training_read_stage_word(&plan->stages[plan->n_stages - 1], word);
        else
            is_known = training_read_plan_word(run, word);
        if (is_last) {
            is_stage = true;
            plan->stages[plan->n_stages++] = stage;
        }
    }
    if (!is_known || !is_stage)
        fail_msg("not a plan: %s", run->text);
    training_complete_plan(plan);
    if (mist_plan_check(plan, &err) != MIST_OK)
        fail_msg("%s: %s", run->text, err.message);
}

/* ----------------------------------------------------------------------------- grid */

/* Adds an empty run, for a plan that is made elsewhere. */
static inline struct training_run *training_grid_add(struct training_grid *grid,
                                                     enum training_model model,
                                                     int32_t n_layers, int32_t seq_len,
                                                     enum mist_dtype dtype)
{
    if (grid->n == grid->capacity) {
        grid->capacity = 2 * grid->capacity + 16;
        grid->runs = realloc(grid->runs, (size_t)grid->capacity * sizeof *grid->runs);
        assert_non_null(grid->runs);
    }
    struct training_run *run = &grid->runs[grid->n++];
    memset(run, 0, sizeof *run); /* every byte goes to a file */
    run->plan.model = training_model_of(model, n_layers);
    run->plan.job = (struct mist_job){
        .global_batch = TRAINING_BATCH, .seq_len = seq_len, .dtype = dtype};
    run->i_like = run->i_near = -1;
    return run;
}

static inline void training_grid_fini(struct training_grid *grid)
{
    free(grid->runs);
    free(grid->outcomes);
    *grid = (struct training_grid){0};
}

/* What the planner says of every rank, on device and host, is what it allocated. */
static inline void training_check_memory(const struct training_run *run,
                                         const struct training_outcome *outcome)
{
    static int64_t arenas[MIST_MAX_STAGES][MIST_N_ARENAS];
    struct mist_err err = {0};

    if (mist_replay_memory(&run->plan, mist_plan_n_threads(&run->plan), arenas, &err) !=
        MIST_OK)
        fail_msg("%s: %s", run->text, err.message);
    for (int32_t rank = 0; rank < mist_plan_n_ranks(&run->plan); rank++) {
        int32_t i_stage = mist_plan_stage_of(&run->plan, rank);
        for (int arena = 0; arena < MIST_N_ARENAS; arena++) {
            int64_t bytes = arenas[i_stage][arena];
            int64_t allocated = outcome->ranks[rank].arena_bytes[arena];
            if (bytes != allocated || (arena == MIST_ARENA_DEVICE && bytes == 0))
                fail_msg("%s%s, rank %d, arena %d: %lld bytes planned, %lld allocated",
                         run->text, run->plan.job.computes_on_gpu ? "" : " (CPU)",
                         (int)rank, arena, (long long)bytes, (long long)allocated);
        }
    }
}

static inline void training_write(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Runs what needs n_ranks, in one job. Returns how many runs that were. */
static inline int32_t training_execute_ranks(struct training_grid *grid, int32_t n_ranks)
{
    struct scratch scratch;
    char self[512] = "", start[128] = "", command[1024];
    int32_t n = 0, n_done = 0;
    int32_t *which = calloc((size_t)grid->n + 1, sizeof *which);
    struct training_run *runs = calloc((size_t)grid->n + 1, sizeof *runs);

    assert_true(which && runs && readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    for (int32_t i = 0; i < grid->n; i++)
        if (mist_plan_n_ranks(&grid->runs[i].plan) == n_ranks) {
            runs[n] = grid->runs[i];
            which[n++] = i;
        }
    scratch_init(&scratch);
    training_write(scratch_path(&scratch, "runs"), runs, (size_t)n * sizeof *runs);
    free(runs);
    if (n_ranks > 1)
        snprintf(start, sizeof start, "mpirun --oversubscribe --bind-to none -n %d",
                 (int)n_ranks);
    snprintf(command, sizeof command, "%s '%s' child %s", start, self, scratch.folder);
    int code = n > 0 ? system(command) : 0;
    FILE *file = fopen(scratch_path(&scratch, "outcomes"), "rb");
    while (file && n_done < n &&
           fread(&grid->outcomes[which[n_done]], sizeof *grid->outcomes, 1, file) == 1)
        n_done++;
    if (file)
        assert_int_equal(fclose(file), 0);
    scratch_fini(&scratch);
    if (code != 0 || n_done < n)
        fail_msg("%s: exit code %d, %s with \"%s\"", command, WEXITSTATUS(code),
                 n_done < n ? "stopped" : "finished",
                 grid->runs[which[n_done < n ? n_done : n - 1]].text);
    free(which);
    return n;
}

/* Runs everything; checks the memory of each run. */
static inline void training_grid_execute(struct training_grid *grid)
{
    int32_t n_of[TRAINING_MAX_RANKS + 1] = {0};

    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    grid->outcomes = calloc((size_t)grid->n, sizeof *grid->outcomes);
    assert_non_null(grid->outcomes);
    for (int32_t n_ranks = 1; n_ranks <= TRAINING_MAX_RANKS; n_ranks++)
        n_of[n_ranks] = training_execute_ranks(grid, n_ranks);
    for (int32_t i = 0; i < grid->n; i++)
        training_check_memory(&grid->runs[i], &grid->outcomes[i]);
    printf("# %d run%s:", (int)grid->n, grid->n == 1 ? "" : "s");
    for (int32_t n_ranks = 1; n_ranks <= TRAINING_MAX_RANKS; n_ranks++)
        if (n_of[n_ranks] > 0)
            printf(" %d of %d rank%s;", (int)n_of[n_ranks], (int)n_ranks,
                   n_ranks == 1 ? "" : "s");
    printf(" planned = allocated bytes on each\n");
    fflush(stdout);
}

/* ---------------------------------------------------------------------- comparisons */

static inline bool training_is_same(const struct training_outcome *a,
                                    const struct training_outcome *b)
{
    return memcmp(a->losses, b->losses, sizeof a->losses) == 0 &&
           memcmp(a->norms, b->norms, sizeof a->norms) == 0 &&
           memcmp(a->fingerprints, b->fingerprints, sizeof a->fingerprints) == 0;
}

/* Largest relative difference of the first n values; not a number stays so. */
static inline double training_difference(const double *a, const double *b, int32_t n)
{
    double worst = 0;

    for (int32_t i = 0; i < n; i++) {
        double difference = fabs(a[i] - b[i]) / fabs(b[i]);
        worst = difference > worst || isnan(difference) ? difference : worst;
    }
    return worst;
}

/* All runs that must equal another one, bit for bit; returns how many don't. */
static inline int32_t training_grid_check_same(const struct training_grid *grid)
{
    int32_t n_wrong = 0;

    for (int32_t i = 0; i < grid->n; i++) {
        const struct training_run *run = &grid->runs[i];
        if (run->i_like < 0)
            continue;
        const struct training_run *like = &grid->runs[run->i_like];
        const struct training_outcome *a = &grid->outcomes[i];
        const struct training_outcome *b = &grid->outcomes[run->i_like];
        if (training_is_same(a, b))
            continue;
        n_wrong++;
        print_error("%s: \"%s\" differs from \"%s\": losses by %.1e, at first by %.1e, "
                    "norms %.1e, weights %s\n",
                    run->plan.model.name, run->text, like->text,
                    training_difference(a->losses, b->losses, run->n_steps),
                    training_difference(a->losses, b->losses, 1),
                    training_difference(a->norms, b->norms, run->n_steps),
                    a->fingerprints[0] == b->fingerprints[0] ? "equal" : "differ");
    }
    return n_wrong;
}

#endif
