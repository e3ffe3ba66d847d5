/*
 * Times every operator of a GPT-3 1.3B and a Llama 7B block, embedding and head on a GPU,
 * in bf16, against the memory bandwidth that the GPU says it has.
 *
 *   operator                                    us     GB/s  % of memory   TFLOP/s
 *   block norm1 forward                        ...      ...          ...         -
 *   block qkv forward                          ...      ...          ...       ...
 *   memory-bound: 21 kernels, median ..., least ... (the name of the slowest)
 *   products: from ... to ... TFLOP/s; attention: forward ..., backward ... TFLOP/s
 *   copies: within the GPU ..., to it ..., from it ...
 *
 * The steps of the catalogue's programs run through the table of operators of the plugin,
 * as in training, products tuned; an operator that is new is in the table by itself. Each
 * is launched until 20 ms are full and the mean counts; operands are larger than the
 * GPU's cache. Bytes are those of the catalogue, each operand once. A kernel counts as
 * memory-bound if its bytes at that bandwidth take longer than its FLOP at 800 TFLOP/s.
 * Numbers are random: zeros are faster to multiply. Prints a table, checks nothing;
 * without a GPU it says so. Arguments: models (gpt3-1.3b llama-7b).
 */
#include "core/memory.h"
#include "core/random.h"
#include "exec/runtime/backend.h"
#include "sim/cost/cost_model.h" /* bytes of the optimizer's operators */
#include "tests/bench/bench_steps.h"

#include <math.h>

enum { SEQ = 2048, MAX_ROWS = 128, MAX_OF_KIND = 64 };
static const int64_t tokens_per_launch = 16384, chunk_bytes = (int64_t)64 << 20;
static const double least_s = 20e-3, flop_per_s = 800e12;

struct bench {
    const struct mist_backend *backend;
    struct mist_backend_info info;
    struct mist_device *device; /* owned */
    void *operators;            /* owned; of the backend */
    char *free, *end;           /* what is left of the device arena */
    struct mist_model model;
    struct mist_layer_layout layouts[MIST_N_LAYER_KINDS];
    char *weights[3], *gradients[3], *saved[3], *boundary[3], *boundary_gradients[2];
    char *scratch, *tokens, *targets, *constant;
};

/* Percentages and rates of the rows of a table. */
struct figures {
    double memory[MAX_OF_KIND], products[MAX_OF_KIND];
    int32_t n_memory, n_products;
    char slowest[64];
    double slowest_percent, attention[2]; /* TFLOP/s, forward and backward */
};

/* ----------------------------------------------------------------------------- timing */

struct launches {
    struct bench *bench;
    void (*one)(struct bench *bench, const void *context);
    const void *context;
    int64_t n;
};

static void launch_all(void *arg)
{
    struct launches *launches = arg;

    for (int64_t i = 0; i < launches->n; i++)
        launches->one(launches->bench, launches->context);
}

static double launch_n(struct bench *bench, struct launches *launches, int64_t n)
{
    struct mist_err err;
    double start_s;

    launches->n = n;
    mist_device_reset_events(bench->device, 0);
    must(mist_device_synchronize(bench->device, &err), &err);
    start_s = mist_clock_now_s();
    mist_device_submit(bench->device, MIST_STREAM_COMPUTE, launch_all, launches);
    must(mist_device_synchronize(bench->device, &err), &err);
    return mist_clock_now_s() - start_s;
}

/* Mean seconds of a launch among as many as fill least_s, less what an empty
 * one takes. */
static double time_launch(struct bench *bench, void (*one)(struct bench *, const void *),
                          const void *context)
{
    struct launches launches = {bench, one, context, 0};
    double warm_s = launch_n(bench, &launches, 2);
    double one_s = launch_n(bench, &launches, 3) / 3;
    int64_t n = (int64_t)ceil(least_s / fmax(one_s, 1e-6));
    double empty_s = launch_n(bench, &launches, 0);

    (void)warm_s;
    return fmax(launch_n(bench, &launches, n) - empty_s, 0) / (double)n;
}

/* ----------------------------------------------------------------------------- memory */

static char *take(struct bench *bench, int64_t bytes)
{
    char *taken = bench->free;

    bench->free += mist_align_up(bytes > 0 ? bytes : 1, 256);
    if (bench->free > bench->end)
        fail("the arena is too small");
    return taken;
}

/* Random bf16 of size 0.05 all over the arena; read as fp32 they are small, too. */
static void fill(struct bench *bench, char *from, char *to)
{
    uint16_t *values = malloc((size_t)chunk_bytes);
    struct mist_random random;
    struct mist_err err;

    if (!values)
        fail("out of memory");
    mist_random_init(&random, 1);
    for (int64_t i = 0; i < chunk_bytes / 2; i++) {
        float value = (float)(0.1 * (mist_random_uniform(&random) - 0.5));
        uint32_t bits;
        memcpy(&bits, &value, 4);
        values[i] = (uint16_t)(bits >> 16);
    }
    for (char *at = from; at < to; at += chunk_bytes)
        must(mist_device_write(bench->device, at, values,
                               to - at < chunk_bytes ? to - at : chunk_bytes, &err),
             &err);
    free(values);
}

static void fill_ids(struct bench *bench, char *at, int32_t first)
{
    int32_t *ids = malloc((size_t)tokens_per_launch * 4);
    struct mist_err err;

    if (!ids)
        fail("out of memory");
    for (int32_t i = 0; i < tokens_per_launch; i++)
        ids[i] =
            (int32_t)((uint32_t)(i + first) * 2654435761u % (uint32_t)bench->model.vocab);
    must(mist_device_write(bench->device, at, ids, tokens_per_launch * 4, &err), &err);
    free(ids);
}

static int64_t largest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Layouts of the three modules, and everything they need on the device. */
static void open_model(struct bench *bench, const char *name)
{
    struct mist_layer_shape shape = {.micro_batch = (int32_t)(tokens_per_launch / SEQ),
                                     .seq = SEQ,
                                     .tp = 1,
                                     .dtype = MIST_DTYPE_BF16};
    struct mist_device_config config = {
        .result_bytes = 4096, .threads = 1, .arena_bytes = {0, 2 * chunk_bytes}};
    struct mist_err err;
    int64_t bytes = 16 * chunk_bytes, scratch = 0;

    must(mist_model_load_preset(name, &bench->model, &err), &err);
    for (int k = 0; k < MIST_N_LAYER_KINDS; k++) {
        struct mist_layer_layout *layout = &bench->layouts[k];
        must(mist_layer_layout_make(&bench->model, (enum mist_layer_kind)k, shape, layout,
                                    &err),
             &err);
        scratch = largest(scratch, largest(layout->scratch_forward_bytes,
                                           layout->scratch_backward_bytes));
        bytes += 6 * layout->n_parameters + layout->saved_bytes + layout->output_bytes +
                 2 * layout->input_bytes + layout->constant_bytes;
    }
    config.arena_bytes[MIST_ARENA_DEVICE] = bytes + scratch;
    must(bench->backend->open_device(&config, &bench->device, &err), &err);
    must(bench->backend->operators->open(bench->device, MIST_DTYPE_BF16, 0,
                                         &bench->operators, &err),
         &err);
    must(mist_binding_prepare(bench->layouts, MIST_N_LAYER_KINDS, 0, &bench->model,
                              MIST_DTYPE_FP32, bench->backend->operators,
                              bench->operators, &err),
         &err);
    bench->free = mist_device_arena(bench->device, MIST_ARENA_DEVICE);
    bench->end = bench->free + bytes + scratch;
    fill(bench, bench->free, bench->end);
    bench->scratch = take(bench, scratch);
    for (int k = 0; k < MIST_N_LAYER_KINDS; k++) {
        const struct mist_layer_layout *layout = &bench->layouts[k];
        bench->weights[k] = take(bench, 2 * layout->n_parameters);
        bench->gradients[k] = take(bench, 4 * layout->n_parameters);
        bench->saved[k] = take(bench, layout->saved_bytes);
        bench->boundary[k] = take(bench, layout->output_bytes);
    }
    for (int i = 0; i < 2; i++)
        bench->boundary_gradients[i] =
            take(bench, bench->layouts[MIST_LAYER_BLOCK].input_bytes);
    bench->constant = take(bench, bench->layouts[MIST_LAYER_BLOCK].constant_bytes);
    bench->tokens = take(bench, tokens_per_launch * 4);
    bench->targets = take(bench, tokens_per_launch * 4);
    fill_ids(bench, bench->tokens, 0);
    fill_ids(bench, bench->targets, 1);
}

static void close_model(struct bench *bench)
{
    bench->backend->operators->close(bench->operators);
    mist_device_close(bench->device);
}

static struct mist_binding bind_module(const struct bench *bench, int k)
{
    struct mist_binding out = {.layout = &bench->layouts[k],
                               .model = &bench->model,
                               .loss_scale = 1.0f / (float)tokens_per_launch,
                               .backend = bench->operators};

    out.base[MIST_ROLE_SAVED] = bench->saved[k];
    out.base[MIST_ROLE_SCRATCH] = bench->scratch;
    out.base[MIST_ROLE_WEIGHTS] = bench->weights[k];
    out.base[MIST_ROLE_GRADIENTS] = bench->gradients[k];
    out.base[MIST_ROLE_TOKENS] = bench->tokens;
    out.base[MIST_ROLE_TARGETS] = bench->targets;
    out.base[MIST_ROLE_CONSTANT] = bench->constant;
    if (k > 0) {
        out.base[MIST_ROLE_INPUT] = bench->boundary[k - 1];
        out.base[MIST_ROLE_GRAD_INPUT] = bench->boundary_gradients[(k - 1) % 2];
    }
    out.base[MIST_ROLE_OUTPUT] = bench->boundary[k];
    out.base[MIST_ROLE_GRAD_OUTPUT] = bench->boundary_gradients[k % 2];
    return out;
}

/* ------------------------------------------------------------------------------ steps */

static void print_row(const struct bench *bench, struct figures *figures,
                      const char *name, double seconds, double flop, double bytes,
                      enum mist_op op, bool is_forward)
{
    double peak = bench->info.memory_bytes_per_s, rate = flop / seconds * 1e-12;
    bool is_memory_bound = peak > 0 && bytes / peak > flop / flop_per_s;
    double percent = peak > 0 ? 100 * bytes / seconds / peak : 0;
    char text[16] = "-";

    if (!is_memory_bound)
        snprintf(text, sizeof text, "%.0f", rate);
    printf("%-36s %9.1f %8.0f %12.1f %9s\n", name, seconds * 1e6, bytes / seconds * 1e-9,
           percent, text);
    if (op == MIST_OP_ATTENTION) {
        figures->attention[is_forward ? 0 : 1] = rate;
    } else if (is_memory_bound && figures->n_memory < MAX_OF_KIND) {
        figures->memory[figures->n_memory++] = percent;
        if (figures->n_memory == 1 || percent < figures->slowest_percent) {
            figures->slowest_percent = percent;
            snprintf(figures->slowest, sizeof figures->slowest, "%s", name);
        }
    } else if (!is_memory_bound && figures->n_products < MAX_OF_KIND) {
        figures->products[figures->n_products++] = rate;
    }
}

static void run_one_step(struct bench *bench, const void *context)
{
    bench->backend->operators->run_step(context);
}

static void time_program(struct bench *bench, int k, enum mist_program_kind program,
                         struct figures *figures)
{
    struct mist_binding binding = bind_module(bench, k);
    const struct mist_program *steps = &binding.layout->programs[program];

    for (int32_t p = 0; p < steps->n_parts; p++)
        for (int32_t i = 0; i < steps->parts[p].n_steps; i++) {
            struct mist_step_args args;
            char name[64];
            mist_binding_resolve(&binding, program, steps->parts[p].first_step + i,
                                 &args);
            name_step(name, sizeof name, binding.layout->kind, args.step);
            print_row(bench, figures, name, time_launch(bench, run_one_step, &args),
                      (double)args.step->flop, (double)args.step->bytes, args.step->op,
                      args.step->phase == MIST_PHASE_FORWARD);
        }
}

/* ------------------------------------------------------------- optimizer, and copies */

struct update {
    int64_t n;
    float *x[6];
    struct mist_tally *tally;
};

static void run_adamw(struct bench *bench, const void *context)
{
    const struct update *u = context;
    struct mist_adamw_span span = {.p = u->x[0],
                                   .m = u->x[1],
                                   .v = u->x[2],
                                   .master = u->x[3],
                                   .g = u->x[4],
                                   .n = u->n,
                                   .decays = true};

    bench->backend->operators->adamw(bench->operators, MIST_DTYPE_BF16, &span, 1,
                                     &usual_adamw, 0);
}

static void run_norm(struct bench *bench, const void *context)
{
    const struct update *u = context;

    bench->backend->operators->sum_squares(bench->operators, MIST_DTYPE_FP32, u->x[4],
                                           u->n, 0, u->tally, 0);
}

static void run_zero(struct bench *bench, const void *context)
{
    const struct update *u = context;

    bench->backend->operators->zero(bench->operators, MIST_DTYPE_FP32, u->x[4], u->n, 0);
}

static void run_add(struct bench *bench, const void *context)
{
    const struct update *u = context;

    bench->backend->operators->add(bench->operators, MIST_DTYPE_FP32, u->x[4], u->x[3],
                                   u->n, 0);
}

/* Over the arena from its start: contents don't matter any more. bf16 weights are written
 * beside their fp32 master: 2 bytes less and 2 x 4 more than in fp32, 30 in all. */
static void time_optimizer(struct bench *bench, struct figures *figures)
{
    struct update update = {.n = 40 << 20, .tally = mist_device_results(bench->device)};
    const double n = (double)update.n;

    bench->free = mist_device_arena(bench->device, MIST_ARENA_DEVICE);
    for (int i = 0; i < 5; i++)
        update.x[i] = (float *)(void *)take(bench, 4 * update.n);
    mist_operators_prepare_update(bench->backend->operators, bench->operators,
                                  &usual_adamw);
    print_row(bench, figures, "adamw", time_launch(bench, run_adamw, &update), 12 * n,
              30 * n, MIST_OP_ADAMW, true);
    print_row(bench, figures, "gradient norm", time_launch(bench, run_norm, &update),
              2 * n, 4 * n, MIST_OP_GRADIENT_NORM, true);
    print_row(bench, figures, "zero gradients", time_launch(bench, run_zero, &update), 0,
              4 * n, MIST_OP_ZERO, true);
    print_row(bench, figures, "add gradients", time_launch(bench, run_add, &update), n,
              12 * n, MIST_OP_RESIDUAL, true);
}

struct copy {
    char *to;
    const char *from;
    int64_t bytes;
};

static void run_copy(struct bench *bench, const void *context)
{
    const struct copy *copy = context;

    mist_device_copy(bench->device, copy->to, copy->from, copy->bytes);
}

static void print_copies(struct bench *bench)
{
    char *device = mist_device_arena(bench->device, MIST_ARENA_DEVICE);
    char *host = mist_device_arena(bench->device, MIST_ARENA_HOST);
    struct copy on = {device + 4 * chunk_bytes, device, 4 * chunk_bytes};
    struct copy to = {device, host, chunk_bytes}, from = {host, device, chunk_bytes};
    double rates[3] = {2.0 * (double)on.bytes / time_launch(bench, run_copy, &on),
                       (double)to.bytes / time_launch(bench, run_copy, &to),
                       (double)from.bytes / time_launch(bench, run_copy, &from)};

    printf("copies: within the GPU %.0f GB/s read and written, to it %.1f GB/s, from it "
           "%.1f GB/s\n",
           rates[0] * 1e-9, rates[1] * 1e-9, rates[2] * 1e-9);
}

/* ----------------------------------------------------------------------------- report */

static void print_figures(struct figures *figures)
{
    mist_sort_doubles(figures->memory, (size_t)figures->n_memory);
    mist_sort_doubles(figures->products, (size_t)figures->n_products);
    if (figures->n_memory > 0)
        printf("memory-bound: %d kernels, median %.1f %%, least %.1f %% (%s)\n",
               (int)figures->n_memory, figures->memory[figures->n_memory / 2],
               figures->slowest_percent, figures->slowest);
    if (figures->n_products > 0)
        printf("products: %.0f to %.0f TFLOP/s; attention: forward %.0f, backward %.0f "
               "TFLOP/s\n",
               figures->products[0], figures->products[figures->n_products - 1],
               figures->attention[0], figures->attention[1]);
}

static void bench_model(struct bench *bench, const char *name)
{
    struct figures figures = {0};

    open_model(bench, name);
    printf("\n%s, %d x %d tokens, bf16\n", name, (int)(tokens_per_launch / SEQ), SEQ);
    printf("%-36s %9s %8s %12s %9s\n", "operator", "us", "GB/s", "% of memory",
           "TFLOP/s");
    for (int k = 0; k < MIST_N_LAYER_KINDS; k++)
        time_program(bench, k, MIST_PROGRAM_FORWARD, &figures);
    for (int k = MIST_N_LAYER_KINDS - 1; k >= 0; k--)
        time_program(bench, k, MIST_PROGRAM_BACKWARD, &figures);
    time_optimizer(bench, &figures);
    print_figures(&figures);
    print_copies(bench);
    fflush(stdout);
    close_model(bench);
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"gpt3-1.3b", "llama-7b"};
    static struct bench bench;
    struct mist_err err;

    if (mist_backend_find(MIST_BACKEND_CUDA, &bench.backend, &bench.info, NULL, 0,
                          &err) != MIST_OK) {
        printf("bench_cuda_kernels: no GPU: %s\n", err.message);
        return 0;
    }
    printf("%s, %.0f GB/s of memory by its clocks; %s\n", bench.info.device_name,
           bench.info.memory_bytes_per_s * 1e-9, bench.info.versions);
    for (int i = 0; i < (argc > 1 ? argc - 1 : 2); i++)
        bench_model(&bench, argc > 1 ? argv[i + 1] : usual[i]);
    return 0;
}
