/*
 * Nothing that a model needs is missing from the CUDA backend or from its tests.
 *
 * Runs tests/unit/test_cuda_operators.c, which is a part of this program, with a recorder
 * in the place of the backend's table of operators. So what is known to be tested is what
 * was run, and no list has to be kept: every step that a program of any preset or family
 * has, whole or cut over tensor-parallel ranks, must have been run there on the CUDA
 * backend with the same operands present, in both number formats; and when it was run
 * first it must have changed something in the memory of the device. The same test source
 * runs on a GPU (tests/gpu), so that holds for GPUs, too. Every function of
 * exec/cuda/kernels.h must be called by a test that also runs there. Models that
 * test_cuda_operators.c has not (Falcon, with and without biases) are run here.
 */
#include "tests/unit/test.h"

#if __has_include(<cublasLt.h>)

#include "exec/cuda/kernels.h"
#include "exec/cuda/operators.h"
#include "exec/operators/operators.h"
#include "tests/emulation/cudart.h"
#include "tests/unit/tiny_models.h"

#include <ctype.h>
#include <dirent.h>

/* Of every family; with what a config.json may turn around turned around. */
static bool is_turned;

static struct mist_model any_tiny_model(enum mist_family family, int32_t n_layers)
{
    struct mist_model model = mist_tiny_model(family, n_layers);

    if (family == MIST_FAMILY_FALCON) {
        model.n_kv_heads = is_turned ? 4 : 1;
        model.max_seq = 0;
        model.has_bias = false;
        model.rope_theta = 10000;
    }
    if (is_turned) {
        model.has_bias = mist_family_traits(family)->may_have_bias && !model.has_bias;
        model.ties_embeddings = !model.ties_embeddings;
    }
    return model;
}

int operators_main(void);
/* The backend's own but for what is noted. */
static struct mist_operators recording_operators;
#define mist_operators_cuda recording_operators
#define mist_tiny_model     any_tiny_model
#define main                operators_main
#define MIST_TEST_RECORDS
#include "tests/unit/test_cuda_operators.c"
#undef main
#undef mist_tiny_model
#undef mist_operators_cuda

/* --------------------------------------------------------------------------- recorder */

/* A step as far as it matters which kernel it takes: operands and parameters as bits. */
struct need {
    enum mist_op op;
    enum mist_phase phase;
    enum mist_dtype dtype;
    unsigned operands, params;
};

enum { MAX_NEEDS = 512, N_CALLS = 7 };

static struct {
    struct need ran[MAX_NEEDS];
    int n_ran;
    int n_without_effect;
    bool is_called[N_CALLS];
    struct mist_device *device; /* the latest that was opened */
} recorded;

static struct need need_of(const struct mist_step *step, enum mist_dtype dtype)
{
    struct need need = {.op = step->op, .phase = step->phase, .dtype = dtype};

    for (int i = 0; i < MIST_MAX_OPERANDS; i++)
        need.operands |= (unsigned)(step->operands[i] >= 0) << i;
    for (int i = 0; i < 2; i++)
        need.params |= (unsigned)(step->params[i] >= 0) << i;
    return need;
}

static bool is_recorded(const struct need *need)
{
    for (int i = 0; i < recorded.n_ran; i++)
        if (memcmp(&recorded.ran[i], need, sizeof *need) == 0)
            return true;
    return false;
}

/* Of all memory of the device. */
static uint64_t digest_device(void)
{
    const void *arena = mist_device_arena(recorded.device, MIST_ARENA_DEVICE);
    int64_t n = mist_device_arena_bytes(recorded.device, MIST_ARENA_DEVICE) / 8;
    uint64_t *words = malloc((size_t)n * 8), digest = 14695981039346656037u;
    struct mist_err err = {0};

    assert_non_null(words);
    must(mist_device_synchronize(recorded.device, &err), &err);
    must(mist_device_read(recorded.device, words, arena, n * 8, &err), &err);
    for (int64_t i = 0; i < n; i++)
        digest = (digest ^ words[i]) * 1099511628211u;
    free(words);
    return digest;
}

static void record_step(const struct mist_step_args *args)
{
    struct need need = need_of(args->step, args->dtype);
    bool is_new = !is_recorded(&need);
    uint64_t before = is_new ? digest_device() : 0;

    mist_operators_cuda.run_step(args);
    if (!is_new)
        return;
    assert_true(recorded.n_ran < MAX_NEEDS);
    recorded.ran[recorded.n_ran++] = need;
    if (digest_device() == before) {
        print_error("%s %s does nothing\n", mist_op_name(need.op),
                    mist_phase_words[need.phase]);
        recorded.n_without_effect++;
    }
}

static enum mist_status record_open(struct mist_device *device, enum mist_dtype dtype,
                                    int32_t n_threads, void **out, struct mist_err *err)
{
    recorded.device = device;
    return mist_operators_cuda.open(device, dtype, n_threads, out, err);
}

static void record_adamw(void *backend, enum mist_dtype dtype,
                         const struct mist_adamw_span *spans, int32_t n_spans,
                         const struct mist_adamw_args *args, int32_t n_threads)
{
    recorded.is_called[0] = true;
    mist_operators_cuda.adamw(backend, dtype, spans, n_spans, args, n_threads);
}

static void record_add(void *backend, enum mist_dtype dtype, void *sum, const void *x,
                       int64_t n, int32_t t)
{
    recorded.is_called[1] = true;
    mist_operators_cuda.add(backend, dtype, sum, x, n, t);
}

static void record_zero(void *backend, enum mist_dtype dtype, void *x, int64_t n,
                        int32_t n_threads)
{
    recorded.is_called[2] = true;
    mist_operators_cuda.zero(backend, dtype, x, n, n_threads);
}

static void record_sum_squares(void *backend, enum mist_dtype dtype, const void *x,
                               int64_t n, int64_t offset, struct mist_tally *tally,
                               int32_t n_threads)
{
    recorded.is_called[3] = true;
    mist_operators_cuda.sum_squares(backend, dtype, x, n, offset, tally, n_threads);
}

static void record_find_nonfinite(void *backend, enum mist_dtype dtype, const void *x,
                                  int64_t n, struct mist_tally *tally, int32_t n_threads)
{
    recorded.is_called[4] = true;
    mist_operators_cuda.find_nonfinite(backend, dtype, x, n, tally, n_threads);
}

static void record_sum_losses(void *backend, const float *losses, int64_t n,
                              struct mist_tally *tally)
{
    recorded.is_called[5] = true;
    mist_operators_cuda.sum_losses(backend, losses, n, tally);
}

static void record_draw(void *backend, enum mist_dtype dtype, void *x,
                        const struct mist_draw *draw, int32_t n_threads)
{
    recorded.is_called[6] = true;
    mist_operators_cuda.draw(backend, dtype, x, draw, n_threads);
}

static void start_recording(void)
{
    recording_operators = mist_operators_cuda;
    recording_operators.open = record_open;
    recording_operators.run_step = record_step;
    recording_operators.adamw = record_adamw;
    recording_operators.draw = record_draw;
    recording_operators.add = record_add;
    recording_operators.zero = record_zero;
    recording_operators.sum_squares = record_sum_squares;
    recording_operators.find_nonfinite = record_find_nonfinite;
    recording_operators.sum_losses = record_sum_losses;
}

/* What the CPU's table has, CUDA's has. */
TEST(test_table)
{
    enum { N_ENTRIES = sizeof(struct mist_operators) / sizeof(void *) };
    const void *cpu[N_ENTRIES], *cuda[N_ENTRIES];

    memcpy(cpu, &mist_operators_cpu, sizeof cpu);
    memcpy(cuda, &mist_operators_cuda, sizeof cuda);
    for (int i = 0; i < N_ENTRIES; i++)
        if (cpu[i] && !cuda[i])
            fail_msg("nothing at place %d of the table", i);
}

/* ------------------------------------------------------------------------------ steps */

static int n_missing, n_needed;

static void need_step(const struct mist_step *step, enum mist_dtype dtype,
                      const char *model)
{
    struct need need = need_of(step, dtype);

    n_needed++;
    if (mist_op_is_communication(step->op) || is_recorded(&need)) /* or communication */
        return;
    n_missing++;
    print_error("%s: no test runs %s %s (%s) in %s with operands %#x and params %#x\n",
                model, mist_op_name(step->op), mist_phase_words[step->phase], step->name,
                mist_dtype_words[dtype], need.operands, need.params);
    if (recorded.n_ran < MAX_NEEDS) /* each is told once */
        recorded.ran[recorded.n_ran++] = need;
}

/* Every module of a model, cut by tp or not. */
static void need_model(const struct mist_model *model, int32_t tp, int32_t cp,
                       bool is_sequence)
{
    static struct mist_layer_layout layout;
    struct mist_err err;

    for (int i = 0; i < 2 * MIST_N_RUN_DTYPES * MIST_N_LAYER_KINDS; i++) {
        struct mist_layer_shape shape = {
            .micro_batch = 2,
            .seq = 128,
            .tp = tp,
            .cp = cp,
            .is_sequence_parallel = is_sequence,
            .splits_backward = i % 2,
            .dtype = (enum mist_dtype)(i / 2 % MIST_N_RUN_DTYPES)};
        must(mist_layer_layout_make(model,
                                    (enum mist_layer_kind)(i / 2 / MIST_N_RUN_DTYPES),
                                    shape, &layout, &err),
             &err);
        for (int k = 0; k < layout.n_forward; k++)
            need_step(&layout.forward[k], shape.dtype, model->name);
        for (int k = 0; k < layout.n_backward; k++)
            need_step(&layout.backward[k], shape.dtype, model->name);
    }
}

static void need_all_cuts(const struct mist_model *model)
{
    need_model(model, 1, 0, false);
    need_model(model, 1, 2, false);
    if (model->n_heads % 2 != 0 || (model->n_kv_heads > 1 && model->n_kv_heads % 2 != 0))
        return;
    for (int32_t cp = 0; cp <= 2; cp += 2) {
        need_model(model, 2, cp, false);
        need_model(model, 2, cp, true);
    }
}

/* What test_cuda_operators.c leaves out by itself. */
TEST(test_other_models)
{
    for (int turned = 0; turned < 2; turned++)
        for (int i = 0; i < MIST_N_FAMILIES * MIST_N_VARIANTS * MIST_N_RUN_DTYPES; i++) {
            enum mist_family family = (enum mist_family)(i % MIST_N_FAMILIES);
            enum mist_layer_variant variant =
                (enum mist_layer_variant)(i / MIST_N_FAMILIES % MIST_N_VARIANTS);
            enum mist_dtype dtype =
                (enum mist_dtype)(i / MIST_N_FAMILIES / MIST_N_VARIANTS);
            is_turned = turned;
            check_catalog(family, variant, 0, dtype, dtype);
            check_catalog(family, variant, 2, dtype, dtype);
        }
    is_turned = false;
}

/* Every preset, and what a config.json may say that no preset does: biases or none. */
TEST(test_every_step_is_tested)
{
    int n_ran;

    if (getenv("MIST_BRIEF"))
        skip(); /* most of them were left out */
    n_ran = recorded.n_ran;
    assert_true(n_ran > 0);
    for (int32_t i = 0; mist_model_preset_name(i); i++) {
        struct mist_model model;
        struct mist_err err;
        must(mist_model_load_preset(mist_model_preset_name(i), &model, &err), &err);
        need_all_cuts(&model);
        model.has_bias = !model.has_bias;
        model.ties_embeddings = !model.ties_embeddings;
        if (mist_model_check(&model, &err) == MIST_OK)
            need_all_cuts(&model);
    }
    print_message("# %d sorts of steps are tested, %d steps of all models looked up\n",
                  n_ran, n_needed);
    assert_int_equal(recorded.n_without_effect, 0);
    assert_int_equal(n_missing, 0);
    for (int i = 0; i < N_CALLS; i++)
        assert_true(recorded.is_called[i]);
}

/* ---------------------------------------------------------------------------- kernels */

enum { MAX_TEXT = 1 << 22 };

/* Appends a file to text; true if there is one. */
static bool read_file(const char *path, char *text)
{
    FILE *file = fopen(path, "r");
    size_t n = strlen(text);

    if (!file)
        return false;
    n += fread(text + n, 1, MAX_TEXT - 1 - n, file);
    text[n] = '\0';
    return fclose(file) == 0;
}

/* Stays in the emulator: rules of the same list in tests/gpu/gpu.mk. */
static bool runs_on_gpu(const char *name, const char *rules)
{
    char word[64] = " ";
    const char *list = strstr(rules, "GPU_STAND_IN :=");
    size_t length = strlen("test_cuda_");

    if (strncmp(name, "test_cuda_", length) != 0 || !strstr(name, ".c") || !list)
        return false;
    snprintf(word + 1, sizeof word - 1, "%.40s", name + length);
    *strchr(word, '.') = '\0';
    for (const char *at = list; (at = strstr(at, word)) && at < strchr(list, '\n'); at++)
        if (isspace((unsigned char)at[strlen(word)]))
            return false;
    return true;
}

/* A call of name, not of a longer one. */
static bool is_called_in(const char *text, const char *name, size_t length)
{
    for (const char *at = text; (at = strstr(at, name)); at++)
        if (at[length] == '(' && (at == text || !isalnum((unsigned char)at[-1])))
            return true;
    return false;
}

TEST(test_every_kernel_is_tested)
{
    char *header = calloc(1, MAX_TEXT), *rules = calloc(1, MAX_TEXT);
    char *tests = calloc(1, MAX_TEXT);
    int n = 0, n_untested = 0;
    DIR *folder = opendir("tests/unit");

    assert_true(header && rules && tests);
    if (!folder || !read_file("exec/cuda/kernels.h", header) ||
        !read_file("tests/gpu/gpu.mk", rules)) {
        print_message("# skipped: the sources are not in this folder\n");
        skip();
    }
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[300];
        snprintf(path, sizeof path, "tests/unit/%s", entry->d_name);
        if (runs_on_gpu(entry->d_name, rules))
            assert_true(read_file(path, tests));
    }
    closedir(folder);
    for (const char *at = header; (at = strstr(at, "mist_cuda_")); at++) {
        char name[64];
        size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_");
        if (at[length] != '(' || length >= sizeof name)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        n++;
        if (!is_called_in(tests, name, length)) {
            print_error("no test that runs on GPUs calls %s\n", name);
            n_untested++;
        }
    }
    print_message("# %d functions of kernels.h are called by tests\n", n);
    assert_true(n > 15);
    assert_int_equal(n_untested, 0);
    free(header);
    free(rules);
    free(tests);
}

/* All that was launched, after devices were opened, was loaded when they were; and no
 * launch goes past the list of kernels. */
TEST(test_every_kernel_is_loaded)
{
    char *text = calloc(1, MAX_TEXT);
    DIR *folder = opendir("exec/cuda");
    int n_sources = 0;

    assert_non_null(text);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[300];
        snprintf(path, sizeof path, "exec/cuda/%s", entry->d_name);
        if (strcmp(entry->d_name, "launch.cuh") == 0 || !strstr(path, ".cu"))
            continue;
        text[0] = '\0';
        assert_true(read_file(path, text));
        if (strstr(text, "<<<") || strstr(text, "MIST_CUDA_START"))
            fail_msg("%s launches without MIST_CUDA_LAUNCH", path);
        n_sources++;
    }
    if (folder)
        closedir(folder);
    free(text);
#ifndef MIST_TEST_ON_GPU
    int n_kernels = 0;
    for (const struct mist_cuda_kernel *at = mist_cuda_kernels; at; at = at->next)
        n_kernels++;
    print_message("# %d kernels of %d sources, %ld launched unloaded\n", n_kernels,
                  n_sources, (long)mist_emulation_n_lazy_launches());
    assert_true(n_kernels > 50);
    assert_int_equal(mist_emulation_n_lazy_launches(), 0);
#endif
}

int main(void)
{
    start_recording();
    return run_listed_tests(NULL, NULL);
}

#else

TEST_MAIN_SKIPPED("no CUDA headers here")

#endif
