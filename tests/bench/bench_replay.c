/*
 * Replays every rank of a model of 10^12 parameters: 16,384 ranks (64 stages, tensor-
 * parallel groups of 8 with sequence parallelism, 32 replicas with ZeRO-1), 32
 * micro-batches, two iterations, on a made-up H100-like cluster with interference. Prints
 * processor time of the whole replay, schedules and prices included, the memory that the
 * estimate says and the most that the process had; then the same of 4,096 ranks of deeper
 * stages, and with one rank slower and with jitter. An argument divides the replicas.
 */
#include "tests/bench/made_up_cluster.h"

#include "sim/replay/replay.h"

#include <sys/resource.h>
#include <time.h> /* processor time */

enum { N_MICRO_BATCHES = 32, TP = 8 };

static struct mist_err err;

static void make_plan(struct mist_plan *plan, int32_t n_stages, int32_t dp)
{
    static const struct mist_model model = {
        .name = "gpt-1t",
        .family = MIST_FAMILY_GPT,
        .n_layers = 128,
        .hidden = 25600,
        .n_heads = 160,
        .n_kv_heads = 160,
        .head_dim = 160,
        .ffn = 4 * 25600,
        .vocab = 51200,
        .max_seq = 2048,
        .has_bias = true,
        .norm_epsilon = 1e-5,
    };

    *plan = (struct mist_plan){
        .model = model,
        .job = {.global_batch = (int64_t)N_MICRO_BATCHES * dp,
                .seq_len = 2048,
                .dtype = MIST_DTYPE_BF16,
                .computes_on_gpu = true},
        .n_micro_batches = N_MICRO_BATCHES,
        .n_stages = n_stages,
    };
    for (int32_t i = 0; i < n_stages; i++)
        plan->stages[i] = (struct mist_stage_plan){
            .n_layers = model.n_layers / n_stages,
            .n_nodes = dp,
            .n_devices = TP,
            .micro_batch = 1,
            .dp = dp,
            .tp = TP,
            .zero = 1,
            .is_sequence_parallel = true,
        };
    must(mist_plan_check(plan, &err), &err);
}

static void measure(const char *name, const struct mist_plan *plan,
                    const struct mist_cost_model *model,
                    const struct mist_replay_options *options)
{
    struct mist_replay_result result;
    struct rusage usage;
    clock_t start = clock();

    must(mist_replay_run(plan, model, options, &result, &err), &err);
    double busy_s = (double)(clock() - start) / CLOCKS_PER_SEC;
    getrusage(RUSAGE_SELF, &usage);
    printf("%-30s %6d ranks, %9lld tasks: %6.2f s of processor time, %6.2f M tasks/s, "
           "%5.0f MiB (iteration %.4g s)\n",
           name, (int)mist_plan_n_ranks(plan), (long long)result.n_tasks, busy_s,
           1e-6 * (double)result.n_tasks / busy_s, (double)usage.ru_maxrss / 1024,
           result.iteration_s);
    mist_replay_result_fini(&result);
}

static void measure_plan(const char *name, int32_t n_stages, int32_t dp)
{
    static struct mist_plan plan;
    struct mist_trace_set traces;
    struct mist_cost_model *model;
    struct mist_replay_options options = {
        .folding = MIST_REPLAY_FOLD_NEVER, .threads = 0, .skips_timeline = true};

    make_plan(&plan, n_stages, dp);
    made_up_cluster_init(&traces, n_stages * dp);
    must(mist_cost_model_new(&traces, &model, &err), &err);
    printf("%s\n", name);
    measure("  all ranks", &plan, model, &options);
    int32_t n_ranks = mist_plan_n_ranks(&plan);
    double *factors = must_alloc(n_ranks * (int64_t)sizeof *factors);
    for (int32_t r = 0; r < n_ranks; r++)
        factors[r] = r == n_ranks / 3 ? 1.3 : 1;
    options.rank_factor = factors;
    measure("  one of them slower", &plan, model, &options);
    for (int32_t r = 0; r < n_ranks; r++)
        factors[r] = 1 + 1e-5 * r;
    measure("  no two alike", &plan, model, &options);
    options.rank_factor = NULL;
    options.jitter_frac = 0.1;
    measure("  with jitter", &plan, model, &options);
    free(factors);
    mist_cost_model_free(model);
    mist_trace_set_fini(&traces);
}

int main(int argc, char **argv)
{
    int32_t divisor = argc > 1 ? (int32_t)strtol(argv[1], NULL, 10) : 1;

    if (divisor < 1 || divisor > 16)
        fail("the divisor must be 1 to 16");
    measure_plan("64 stages of 2 layers", 64, 32 / divisor);
    measure_plan("16 stages of 8 layers", 16, 32 / divisor);
    return 0;
}
