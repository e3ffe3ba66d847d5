/*
 * Times every operator of a GPT-2 124M training step, as the executor calls it, against
 * what this machine can do.
 *
 *   4 x 64 tokens, 1 thread: step 1935 ms, 100.1 GFLOP/s, 95.0 % of limit
 *   limits: 108.2 GFLOP/s (dnnl_sgemm), 26.1 GB/s (triad)
 *   operator                  calls       us  % of step  GFLOP/s    GB/s  % of limit
 *   block fc1 forward            12  11120.4        6.9    108.6     1.3        96.1
 *
 * The steps of the catalogue's programs run through the table of operators on the buffers
 * of a stage: embedding, 4 blocks (their weights are not in a near cache when they are
 * needed, as in a run) and head, forward and backward in a run's order. Calls are those
 * of one step of the whole model. The limits are measured in between, by the same
 * threads: the highest rate of dnnl_sgemm over some sizes, and the bandwidth of the triad
 * of STREAM, a = b + s c, on arrays beyond the last cache. The limit of an operator is
 * the longer of its FLOP and its bytes at those rates, counted as the catalogue does:
 * each operand once. Above 100 % an operator finds its operands in a cache, or writes
 * where it has read (the triad's write costs a read that is not counted). Medians; prints
 * a table, checks nothing. Arguments: threads (1), sequence lengths (64 512).
 */
#include "core/parse.h"
#include "core/random.h"
#include "tests/bench/bench_steps.h"

#include <dnnl.h>
#include <math.h>
#include <omp.h>

enum { N_LAYERS = 12, N_BLOCKS = 4, N_MODULES = N_BLOCKS + 2, BATCH = 4 };
enum { MAX_ROWS = 128, MAX_SAMPLES = 64 };

static const struct mist_model model = {.name = "gpt2-124m",
                                        .family = MIST_FAMILY_GPT,
                                        .n_layers = N_LAYERS,
                                        .hidden = 768,
                                        .n_heads = 12,
                                        .n_kv_heads = 12,
                                        .head_dim = 64,
                                        .ffn = 3072,
                                        .vocab = 50257,
                                        .max_seq = 1024,
                                        .has_bias = true,
                                        .ties_embeddings = true,
                                        .norm_epsilon = 1e-5};

/* One line of the table: every call of an operator in one place of the model. */
struct row {
    char name[64];
    int32_t n_calls; /* in a step of the whole model */
    double flop, bytes;
    int32_t n_samples;
    double samples_s[MAX_SAMPLES];
};

struct table {
    int32_t n_rows;
    struct row rows[MAX_ROWS];
};

struct limits {
    double flop_per_s, bytes_per_s;
};

struct stage {
    const struct mist_operators *operators; /* borrowed */
    void *backend;                          /* owned */
    int32_t n_threads, seq;
    struct mist_layer_layout layouts[MIST_N_LAYER_KINDS];
    char *weights[N_MODULES], *gradients[N_MODULES], *saved[N_MODULES],
        *state[N_MODULES];            /* owned; state is AdamW's */
    char *boundary[N_MODULES];        /* owned: activations between modules */
    char *boundary_gradients[2];      /* owned: used in turn */
    char *scratch, *tokens, *targets; /* owned */
};

/* ----------------------------------------------------------------------------- limits */

__attribute__((target_clones("avx512f", "avx2", "default"))) static void
triad(float *restrict a, const float *restrict b, const float *restrict c, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        a[i] = b[i] + 3.0f * c[i];
}

/* Raises the limits to what one more try reaches. The arrays are borrowed: three of
 * N_LIMIT elements. */
enum { N_LIMIT = 1 << 25, CHUNK = 1 << 14 }; /* 128 MiB an array */

static void try_limits(struct limits *out, float *const *x, int32_t n_threads)
{
    static const int64_t sizes[] = {768, 1024, 1536};

    for (int t = 0; t < 2; t++) {
        double start_s = mist_clock_now_s();
#pragma omp parallel for num_threads(n_threads) schedule(static)
        for (int64_t i = 0; i < N_LIMIT; i += CHUNK)
            triad(x[0] + i, x[1] + i, x[2] + i, CHUNK);
        out->bytes_per_s =
            fmax(out->bytes_per_s, 12.0 * N_LIMIT / (mist_clock_now_s() - start_s));
    }
    omp_set_num_threads(n_threads);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int64_t n = sizes[k];
        double start_s = mist_clock_now_s();
        if (dnnl_sgemm('N', 'T', n, n, n, 1.0f, x[0], n, x[1], n, 0.0f, x[2], n))
            fail("dnnl_sgemm failed");
        double flop = 2.0 * (double)n * (double)n * (double)n;
        out->flop_per_s = fmax(out->flop_per_s, flop / (mist_clock_now_s() - start_s));
    }
}

/* ------------------------------------------------------------------------------ stage */

static enum mist_layer_kind kind_of(int32_t i_module)
{
    if (i_module == 0)
        return MIST_LAYER_EMBEDDING;
    return i_module <= N_BLOCKS ? MIST_LAYER_BLOCK : MIST_LAYER_HEAD;
}

static const struct mist_layer_layout *layout_of(const struct stage *at, int32_t i_module)
{
    return &at->layouts[kind_of(i_module)];
}

/* Matrices as at the start of training, norms' weights 1. */
static void fill_weights(const struct mist_layer_layout *layout, uint64_t seed,
                         float *out)
{
    struct mist_random random;

    mist_random_init(&random, seed);
    for (int32_t i = 0; i < layout->n_params; i++)
        for (int64_t k = 0; k < layout->params[i].n_elements; k++)
            out[layout->params[i].offset + k] =
                layout->params[i].init == MIST_INIT_ONES ? 1.0f
                : layout->params[i].init == MIST_INIT_ZEROS
                    ? 0.0f
                    : (float)(0.07 * (mist_random_uniform(&random) - 0.5));
}

static void stage_init(struct stage *at, int32_t seq, int32_t n_threads)
{
    struct mist_layer_shape shape = {
        .micro_batch = BATCH, .seq = seq, .tp = 1, .threads = n_threads};
    struct mist_err err = {0};
    int64_t scratch = 0;

    *at = (struct stage){
        .operators = &mist_operators_cpu, .n_threads = n_threads, .seq = seq};
    must(at->operators->open(NULL, MIST_DTYPE_FP32, n_threads, &at->backend, &err), &err);
    for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++)
        must(mist_layer_layout_make(&model, (enum mist_layer_kind)kind, shape,
                                    &at->layouts[kind], &err),
             &err);
    for (int32_t i = 0; i < N_MODULES; i++) {
        const struct mist_layer_layout *layout = layout_of(at, i);
        int64_t n = layout->n_parameters;
        at->weights[i] = must_alloc(4 * n);
        at->gradients[i] = must_alloc(4 * n);
        at->state[i] = must_alloc(8 * n);
        at->saved[i] = must_alloc(layout->saved_bytes);
        at->boundary[i] = must_alloc(layout->output_bytes);
        fill_weights(layout, (uint64_t)i + 1, (float *)(void *)at->weights[i]);
        scratch = scratch > layout->scratch_forward_bytes ? scratch
                                                          : layout->scratch_forward_bytes;
        scratch = scratch > layout->scratch_backward_bytes
                      ? scratch
                      : layout->scratch_backward_bytes;
    }
    at->scratch = must_alloc(scratch);
    for (int i = 0; i < 2; i++)
        at->boundary_gradients[i] = must_alloc(at->layouts[MIST_LAYER_BLOCK].input_bytes);
    at->tokens = must_alloc(4 * (int64_t)BATCH * seq);
    at->targets = must_alloc(4 * (int64_t)BATCH * seq);
    for (int32_t i = 0; i < BATCH * seq; i++) {
        ((int32_t *)(void *)at->tokens)[i] = i * 7919 % model.vocab;
        ((int32_t *)(void *)at->targets)[i] = (i + 1) * 7919 % model.vocab;
    }
}

static void stage_fini(struct stage *at)
{
    for (int32_t i = 0; i < N_MODULES; i++) {
        free(at->weights[i]);
        free(at->gradients[i]);
        free(at->saved[i]);
        free(at->state[i]);
        free(at->boundary[i]);
    }
    free(at->scratch);
    free(at->boundary_gradients[0]);
    free(at->boundary_gradients[1]);
    free(at->tokens);
    free(at->targets);
    at->operators->close(at->backend);
}

static struct mist_binding bind_module(const struct stage *at, int32_t i)
{
    struct mist_binding out = {.layout = layout_of(at, i),
                               .model = &model,
                               .n_threads = at->n_threads,
                               .loss_scale = 1.0f / (float)(BATCH * at->seq),
                               .backend = at->backend};

    out.base[MIST_ROLE_SAVED] = at->saved[i];
    out.base[MIST_ROLE_SCRATCH] = at->scratch;
    out.base[MIST_ROLE_WEIGHTS] = at->weights[i];
    out.base[MIST_ROLE_GRADIENTS] = at->gradients[i];
    out.base[MIST_ROLE_TOKENS] = at->tokens;
    out.base[MIST_ROLE_TARGETS] = at->targets;
    if (i > 0) {
        out.base[MIST_ROLE_INPUT] = at->boundary[i - 1];
        out.base[MIST_ROLE_GRAD_INPUT] = at->boundary_gradients[(i - 1) % 2];
    }
    out.base[MIST_ROLE_OUTPUT] = at->boundary[i];
    out.base[MIST_ROLE_GRAD_OUTPUT] = at->boundary_gradients[i % 2];
    return out;
}

/* ----------------------------------------------------------------------------- timing */

static void add_sample(struct table *table, const char *name, int32_t n_calls,
                       double flop, double bytes, double seconds)
{
    struct row *row = NULL;

    for (int32_t i = 0; i < table->n_rows && !row; i++)
        if (strcmp(table->rows[i].name, name) == 0)
            row = &table->rows[i];
    if (!row) {
        if (table->n_rows == MAX_ROWS)
            fail("more operators than the table has rows");
        row = &table->rows[table->n_rows++];
        *row = (struct row){.n_calls = n_calls, .flop = flop, .bytes = bytes};
        snprintf(row->name, sizeof row->name, "%s", name);
    }
    if (row->n_samples < MAX_SAMPLES)
        row->samples_s[row->n_samples++] = seconds;
}

static void time_program(const struct stage *at, int32_t i_module,
                         enum mist_program_kind program, struct table *table)
{
    struct mist_binding binding = bind_module(at, i_module);
    const struct mist_layer_layout *layout = binding.layout;
    const struct mist_program *steps = &layout->programs[program];

    for (int32_t p = 0; p < steps->n_parts; p++)
        for (int32_t i = 0; i < steps->parts[p].n_steps; i++) {
            struct mist_step_args args;
            char name[64];
            mist_binding_resolve(&binding, program, steps->parts[p].first_step + i,
                                 &args);
            double start_s = mist_clock_now_s();
            at->operators->run_step(&args);
            double seconds = mist_clock_now_s() - start_s;
            name_step(name, sizeof name, binding.layout->kind, args.step);
            add_sample(table, name, layout->kind == MIST_LAYER_BLOCK ? N_LAYERS : 1,
                       (double)args.step->flop, (double)args.step->bytes, seconds);
        }
}

/* Elements that the optimizer updates: the head's matrix is the embedding's. */
static int64_t n_updated(const struct mist_layer_layout *layout)
{
    int64_t n = layout->n_parameters;

    for (int32_t i = 0; i < layout->n_params; i++)
        if (layout->params[i].is_tied)
            n -= layout->params[i].n_elements;
    return n;
}

/* What is done once per step with the parameters of a module. */
static void time_optimizer(const struct stage *at, int32_t i_module, struct table *table)
{
    const struct mist_layer_layout *layout = layout_of(at, i_module);
    const struct mist_operators *operators = at->operators;
    int64_t n = n_updated(layout);
    struct mist_binding_update update = {.layout = layout,
                                         .n = n,
                                         .weights = at->weights[i_module],
                                         .gradients =
                                             (float *)(void *)at->gradients[i_module],
                                         .state = (float *)(void *)at->state[i_module],
                                         .backend = at->backend,
                                         .n_threads = at->n_threads};
    struct mist_tally sum = {0};
    char name[64];
    const char *module = layout->kind == MIST_LAYER_BLOCK ? "block" : "embedding";
    int32_t n_calls = layout->kind == MIST_LAYER_BLOCK ? N_LAYERS : 1;
    double times_s[4] = {mist_clock_now_s()};

    operators->sum_squares(at->backend, MIST_DTYPE_FP32, update.gradients, n, 0, &sum,
                           at->n_threads);
    times_s[1] = mist_clock_now_s();
    mist_binding_run_adamw(&update, &usual_adamw, operators);
    times_s[2] = mist_clock_now_s();
    operators->zero(at->backend, MIST_DTYPE_FP32, update.gradients, n, at->n_threads);
    times_s[3] = mist_clock_now_s();
    const struct {
        const char *name;
        enum mist_op op;
    } parts[] = {{"gradient norm", MIST_OP_GRADIENT_NORM},
                 {"adamw", MIST_OP_ADAMW},
                 {"zero gradients", MIST_OP_ZERO}};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s %s", module, parts[i].name);
        struct mist_work work = mist_op_gradient_work(parts[i].op, n);
        add_sample(table, name, n_calls, (double)work.flop, (double)work.bytes,
                   times_s[i + 1] - times_s[i]);
    }
}

/* The gradient of the tied matrix: the head's is added to the embedding's. */
static void time_tie(const struct stage *at, struct table *table)
{
    int64_t n = model.vocab * (int64_t)model.hidden;
    double start_s = mist_clock_now_s();

    at->operators->add(at->backend, MIST_DTYPE_FP32, (float *)(void *)at->gradients[0],
                       (const float *)(const void *)at->gradients[N_MODULES - 1], n,
                       at->n_threads);
    add_sample(table, "embedding tie gradient", 1, (double)n, 12.0 * (double)n,
               mist_clock_now_s() - start_s);
}

static void run_stage(const struct stage *at, struct table *table)
{
    for (int32_t i = 0; i < N_MODULES; i++)
        time_program(at, i, MIST_PROGRAM_FORWARD, table);
    for (int32_t i = N_MODULES - 1; i >= 0; i--)
        time_program(at, i, MIST_PROGRAM_BACKWARD, table);
    time_tie(at, table);
    for (int32_t i = 0; i <= N_BLOCKS; i++)
        time_optimizer(at, i, table);
}

/* ----------------------------------------------------------------------------- report */

static void print_table(struct table *table, const struct limits *limits, int32_t seq,
                        int32_t n_threads)
{
    double medians_s[MAX_ROWS], step_s = 0, flop = 0, least_s = 0;

    for (int32_t i = 0; i < table->n_rows; i++) {
        struct row *row = &table->rows[i];
        medians_s[i] = median(row->samples_s, row->n_samples);
        step_s += medians_s[i] * row->n_calls;
        flop += row->flop * row->n_calls;
        least_s += row->n_calls *
                   fmax(row->flop / limits->flop_per_s, row->bytes / limits->bytes_per_s);
    }
    printf(
        "\n%d x %d tokens, %d thread%s: step %.0f ms, %.1f GFLOP/s, %.1f %% of limit\n",
        BATCH, (int)seq, (int)n_threads, n_threads == 1 ? "" : "s", step_s * 1e3,
        flop / step_s * 1e-9, 100 * least_s / step_s);
    printf("limits: %.1f GFLOP/s (dnnl_sgemm), %.1f GB/s (triad)\n",
           limits->flop_per_s * 1e-9, limits->bytes_per_s * 1e-9);
    printf("%-34s %5s %10s %9s %8s %7s %10s\n", "operator", "calls", "us", "% of step",
           "GFLOP/s", "GB/s", "% of limit");
    for (int32_t i = 0; i < table->n_rows; i++) {
        const struct row *row = &table->rows[i];
        double limit_s =
            fmax(row->flop / limits->flop_per_s, row->bytes / limits->bytes_per_s);
        printf("%-34s %5d %10.1f %9.1f %8.1f %7.1f %10.1f\n", row->name,
               (int)row->n_calls, medians_s[i] * 1e6,
               100 * medians_s[i] * row->n_calls / step_s,
               row->flop / medians_s[i] * 1e-9, row->bytes / medians_s[i] * 1e-9,
               100 * limit_s / medians_s[i]);
    }
}

static void bench(int32_t seq, int32_t n_threads, struct limits *limits, float *const *x)
{
    static struct stage stage;
    static struct table table;
    double start_s;

    stage_init(&stage, seq, n_threads);
    run_stage(&stage, &table); /* warms up */
    table = (struct table){0};
    start_s = mist_clock_now_s();
    for (int i = 0; i < 3 || (i < 10 && mist_clock_now_s() - start_s < 8); i++) {
        try_limits(limits, x, n_threads);
        run_stage(&stage, &table);
    }
    print_table(&table, limits, seq, n_threads);
    stage_fini(&stage);
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"64", "512"};
    struct mist_err err = {0};
    int64_t n_threads = 1, seq;
    struct limits limits = {0};
    float *x[3];

    if (argc > 1 && (mist_parse_int64(argv[1], &n_threads, &err) || n_threads < 1))
        fail("arguments: THREADS SEQ...");
    for (int i = 0; i < 3; i++)
        x[i] = (float *)(void *)must_alloc(4 * (int64_t)N_LIMIT);
    for (int i = 0; i < (argc > 2 ? argc - 2 : 2); i++) {
        if (mist_parse_int64(argc > 2 ? argv[i + 2] : usual[i], &seq, &err) || seq < 1 ||
            seq > model.max_seq)
            fail("arguments: THREADS SEQ...");
        bench((int32_t)seq, (int32_t)n_threads, &limits, x);
    }
    for (int i = 0; i < 3; i++)
        free(x[i]);
    return 0;
}
