/*
 * The table "kernel sequence of one block" of exec/cuda/README.md, and a test that it is
 * what the catalogue and the backend say now. Renew it: make cuda-sequence
 *
 *   | step | operator | launches | GFLOP | MB | floor us | bound by |
 *   | up | linear_gelu forward | cublasLtMatmul GELU_AUX | 550 | 637 | 556 | FLOP |
 *
 * FLOP and bytes are the catalogue's. What is launched is what the backend's operators
 * launch, on the emulator, which notes it instead of running it; but attention is
 * cuDNN's, whose plans choose kernels on a GPU. The floor of a step is the larger of the
 * times that a H100 SXM needs for its FLOP and its bytes, by the datasheet (November
 * 2024).
 */
#include "tests/unit/test.h"

#if __has_include(<cublasLt.h>)

#include "exec/cuda/context.h"
#include "exec/cuda/operators.h"
#include "sim/model/catalog.h"
#include "tests/emulation/streams.h"

#include <math.h>

static const double PEAK_FLOP_PER_S = 989.4e12; /* bf16, dense */
static const double PEAK_BYTES_PER_S = 3.35e12;

static const char readme[] = "exec/cuda/README.md";
static const char begin_mark[] = "<!-- make cuda-sequence writes from here -->\n";
static const char end_mark[] = "<!-- to here -->\n";

enum { MAX_TEXT = 1 << 16 };

static const struct sequence {
    const char *model, *title;
    int32_t micro_batch, seq;
} sequences[] = {
    {"gpt3-1.3b", "GPT-3 1.3B", 8, 2048},
    {"llama-7b", "Llama 7B", 2, 4096},
};

/* Text that grows. */
struct text {
    char *bytes; /* [MAX_TEXT] */
    size_t n;
};

static void append(struct text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void append(struct text *text, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    text->n +=
        (size_t)vsnprintf(text->bytes + text->n, MAX_TEXT - text->n, format, arguments);
    va_end(arguments);
    assert_true(text->n < MAX_TEXT);
}

/* --------------------------------------------------------------------------- launches */

static struct {
    char names[8][64];
    int n;
} launched;

/* "(norm<T, n>)" as "norm" */
static void note_launch(const char *what)
{
    size_t skip = what[0] == '(', length = strcspn(what + skip, "<)");

    assert_true(launched.n < 8);
    snprintf(launched.names[launched.n++], sizeof launched.names[0], "%.*s", (int)length,
             what + skip);
}

/* What a step launches; addresses of nothing, since nothing runs. */
static void run_step(void *backend, const struct mist_layer_layout *layout,
                     const struct mist_model *model, const struct mist_step *step)
{
    struct mist_step_args args = {.step = step,
                                  .model = model,
                                  .backend = backend,
                                  .dtype = layout->shape.dtype,
                                  .chunks = {layout->shape.seq, {0, 0}},
                                  .cp = 1,
                                  .tp = 1,
                                  .workspace = (void *)4096,
                                  .loss_scale = 1};

    launched.n = 0;
    if (step->op == MIST_OP_ATTENTION) {
        note_launch("cuDNN");
        return;
    }
    for (int i = 0; i < MIST_MAX_OPERANDS; i++)
        if (step->operands[i] >= 0)
            args.operands[i] = (void *)(uintptr_t)(4096 * (i + 2));
    for (int i = 0; i < 2; i++)
        if (step->params[i] >= 0) {
            args.params[i] = (void *)(uintptr_t)(4096 * (i + 10));
            args.param_gradients[i] = (void *)(uintptr_t)(4096 * (i + 12));
        }
    mist_operators_cuda.run_step(&args);
}

/* ------------------------------------------------------------------------------ table */

struct sum {
    double flop, bytes, floor_s;
};

static void add_row(struct text *text, const struct mist_step *step, struct sum *sum)
{
    double flop_s = (double)step->flop / PEAK_FLOP_PER_S;
    double bytes_s = (double)step->bytes / PEAK_BYTES_PER_S;

    append(text, "| %s | %s %s |", step->name, mist_op_name(step->op),
           mist_phase_words[step->phase]);
    for (int i = 0; i < launched.n; i++)
        append(text, "%s %s", i ? "," : "", launched.names[i]);
    append(text, " | %.1f | %.0f | %.0f | %s |\n", (double)step->flop * 1e-9,
           (double)step->bytes * 1e-6, fmax(flop_s, bytes_s) * 1e6,
           flop_s > bytes_s ? "FLOP" : "bytes");
    sum->flop += (double)step->flop;
    sum->bytes += (double)step->bytes;
    sum->floor_s += fmax(flop_s, bytes_s);
}

static void add_steps(struct text *text, void *backend,
                      const struct mist_layer_layout *layout,
                      const struct mist_model *model, bool is_backward, struct sum *all)
{
    const struct mist_step *steps = is_backward ? layout->backward : layout->forward;
    int32_t n = is_backward ? layout->n_backward : layout->n_forward;
    struct sum sum = {0};

    for (int32_t i = 0; i < n; i++) {
        run_step(backend, layout, model, &steps[i]);
        assert_true(launched.n > 0);
        add_row(text, &steps[i], &sum);
    }
    append(text, "| **%s** | | | %.1f | %.0f | %.0f | |\n",
           is_backward ? "backward" : "forward", sum.flop * 1e-9, sum.bytes * 1e-6,
           sum.floor_s * 1e6);
    all->flop += sum.flop;
    all->floor_s += sum.floor_s;
}

static void add_sequence(struct text *text, void *backend, const struct sequence *at)
{
    static struct mist_layer_layout layout;
    struct mist_layer_shape shape = {.micro_batch = at->micro_batch,
                                     .seq = at->seq,
                                     .tp = 1,
                                     .dtype = MIST_DTYPE_BF16};
    struct mist_model model;
    struct mist_err err;
    struct sum sum = {0};

    must(mist_model_load_preset(at->model, &model, &err), &err);
    must(mist_layer_layout_make(&model, MIST_LAYER_BLOCK, shape, &layout, &err), &err);
    append(text,
           "\n%s, %d x %d tokens in bf16:\n\n"
           "| step | operator | launches | GFLOP | MB | floor us | bound by |\n"
           "|---|---|---|--:|--:|--:|---|\n",
           at->title, (int)at->micro_batch, (int)at->seq);
    add_steps(text, backend, &layout, &model, false, &sum);
    add_steps(text, backend, &layout, &model, true, &sum);
    append(text, "\nAll at their floors: %.0f us, %.0f %% of the peak.\n",
           sum.floor_s * 1e6, 100 * sum.flop / sum.floor_s / PEAK_FLOP_PER_S);
}

/* What stands between the marks. */
static void make_tables(struct text *text)
{
    struct mist_device_config config = {.arena_bytes = {4096, 0},
                                        .attention = MIST_ATTENTION_OWN};
    struct mist_device *device;
    struct mist_err err;
    void *backend;

    must(mist_cuda_device_open(&config, &device, &err), &err);
    must(mist_operators_cuda.open(device, MIST_DTYPE_BF16, 0, &backend, &err), &err);
    mist_emulated_watch = note_launch;
    for (size_t i = 0; i < sizeof sequences / sizeof sequences[0]; i++)
        add_sequence(text, backend, &sequences[i]);
    mist_emulated_watch = NULL;
    append(text, "\n");
    mist_operators_cuda.close(backend);
    mist_device_close(device);
}

/* ----------------------------------------------------------------------------- README */

/* The README with other tables between the marks; false: there is no such file. */
static bool replace_tables(const char *tables, struct text *before, struct text *after)
{
    FILE *file = fopen(readme, "r");

    if (!file)
        return false;
    before->n = fread(before->bytes, 1, MAX_TEXT - 1, file);
    before->bytes[before->n] = '\0';
    assert_int_equal(fclose(file), 0);
    const char *begin = strstr(before->bytes, begin_mark);
    const char *end = strstr(before->bytes, end_mark);
    assert_true(begin && end && begin < end);
    append(after, "%.*s%s%s", (int)(begin - before->bytes) + (int)sizeof begin_mark - 1,
           before->bytes, tables, end);
    return true;
}

static bool writes; /* --write: renews the README */

TEST(test_readme)
{
    struct text tables = {calloc(1, MAX_TEXT), 0}, before = {calloc(1, MAX_TEXT), 0};
    struct text after = {calloc(1, MAX_TEXT), 0};

    assert_true(tables.bytes && before.bytes && after.bytes);
    make_tables(&tables);
    if (!replace_tables(tables.bytes, &before, &after)) {
        print_message("# skipped: the sources are not in this folder\n");
        skip();
    }
    if (writes) {
        FILE *file = fopen(readme, "w");
        assert_non_null(file);
        assert_int_equal(fwrite(after.bytes, 1, after.n, file), after.n);
        assert_int_equal(fclose(file), 0);
    } else if (strcmp(before.bytes, after.bytes) != 0) {
        fail_msg("the tables of %s are not these (make cuda-sequence renews them):\n%s",
                 readme, tables.bytes);
    }
    free(tables.bytes);
    free(before.bytes);
    free(after.bytes);
}

int main(int argc, char **argv)
{
    writes = argc == 2 && strcmp(argv[1], "--write") == 0;
    return run_listed_tests(NULL, NULL);
}

#else

TEST_MAIN_SKIPPED("no CUDA headers here")

#endif
