/*
 * Stage configurations priced per second on one core: t, d and memory of the closed
 * form, all knobs varying, over the trace set of tests/data/cli. The design's
 * goal is 100 million.
 */
#include "core/random.h"
#include "sim/closed_form/stage_model.h"
#include "tests/bench/bench.h"

enum { N = 1 << 16 };

/* Prints the rate of one role, for as many rounds as half a second takes. */
static void run(struct mist_stage_model *model, const char *name,
                const struct mist_stage_shape *shape,
                const struct mist_tape_input *columns)
{
    struct mist_stage_values values;
    struct mist_err err = {0};
    double *t_s = must_alloc(N * (int64_t)sizeof(double)),
           *d_s = must_alloc(N * (int64_t)sizeof(double)),
           *peak = must_alloc(N * (int64_t)sizeof(double));
    double *host = must_alloc(N * (int64_t)sizeof(double));
    double *const outputs[MIST_STAGE_N_OUTPUTS] = {
        [MIST_STAGE_STABLE] = t_s,
        [MIST_STAGE_EXTRA] = d_s,
        [MIST_STAGE_PEAK] = peak,
        [MIST_STAGE_HOST] = host,
    };
    double start_s, now_s;
    long n_rounds = 0;

    must(mist_stage_model_prepare(model, shape, &values, &err), &err);
    start_s = now_s = mist_clock_now_s();
    for (; now_s - start_s < 0.5; now_s = mist_clock_now_s(), n_rounds++)
        must(mist_stage_model_eval(model, &values, columns, N, outputs, &err), &err);
    double per_s = (double)n_rounds * N / (now_s - start_s);
    printf("%-26s %8.1f %12.2f\n", name, per_s / 1e6, 1e9 / per_s);
    free(t_s);
    free(d_s);
    free(peak);
    free(host);
}

/* The roles of a pipeline, with and without tensor parallelism. */
static void run_roles(struct mist_stage_model *model, bool offloads,
                      const struct mist_tape_input *columns)
{
    static const char *const roles[] = {"middle", "first", "last", "only"};

    for (int tp = 1; tp <= 2; tp++)
        for (int role = 0; role < 4; role++) {
            struct mist_stage_shape shape = {
                .is_first = role & 1,
                .is_last = role & 2,
                .micro_batch = 2,
                .dp = 2,
                .tp = tp,
                .n_nodes = 1,
                .n_devices = 2 * tp,
            };
            char name[64];
            snprintf(name, sizeof name, "%s, dp 2, tp %d%s", roles[role], tp,
                     offloads ? ", offloading" : "");
            run(model, name, &shape, columns);
        }
}

int main(void)
{
    struct mist_trace_set traces;
    struct mist_cost_model *costs;
    struct mist_model gpt;
    struct mist_stage_model *model;
    struct mist_err err = {0};
    struct mist_random random;
    struct mist_job job = {.global_batch = 16, .seq_len = 128};
    double *data[MIST_STAGE_N_COLUMNS];
    struct mist_tape_input columns[MIST_STAGE_N_COLUMNS];

    must(mist_trace_set_load(&traces, "tests/data/cli/traces", &err), &err);
    must(mist_cost_model_new(&traces, &costs, &err), &err);
    must(mist_model_load_preset("gpt3-demo", &gpt, &err), &err);
    must(mist_stage_model_new(&gpt, costs, &job, 1, &model, &err), &err);
    mist_random_init(&random, 1);
    for (int i = 0; i < MIST_STAGE_N_COLUMNS; i++) {
        data[i] = must_alloc(N * (int64_t)sizeof(double));
        columns[i] = (struct mist_tape_input){data[i], 0};
    }
    for (int i = MIST_STAGE_OFFLOAD_WEIGHTS; i <= MIST_STAGE_OFFLOAD_ACTIVATIONS; i++)
        for (int k = 0; k < N; k++)
            data[i][k] = (double)mist_random_below(&random, 9) / 8;
    for (int k = 0; k < N; k++) {
        int64_t layers = 1 + mist_random_below(&random, 12);
        data[MIST_STAGE_LAYERS][k] = (double)layers;
        data[MIST_STAGE_CHECKPOINTED][k] = (double)mist_random_below(&random, layers + 1);
        data[MIST_STAGE_ZERO][k] = (double)mist_random_below(&random, 4);
    }
    columns[MIST_STAGE_IN_FLIGHT] = (struct mist_tape_input){NULL, 3};
    columns[MIST_STAGE_MICRO_BATCHES] = (struct mist_tape_input){NULL, 8};
    printf("%-26s %8s %12s\n", "stage", "M/s", "ns each");
    for (int offloads = 0; offloads < 2; offloads++) {
        struct mist_tape_input used[MIST_STAGE_N_COLUMNS];
        for (int i = 0; i < MIST_STAGE_N_COLUMNS; i++)
            used[i] = columns[i];
        for (int i = MIST_STAGE_OFFLOAD_WEIGHTS;
             i <= MIST_STAGE_OFFLOAD_ACTIVATIONS && !offloads; i++)
            used[i] = (struct mist_tape_input){NULL, 0};
        run_roles(model, offloads, used);
    }
    for (int i = 0; i < MIST_STAGE_N_COLUMNS; i++)
        free(data[i]);
    mist_stage_model_free(model);
    mist_cost_model_free(costs);
    mist_trace_set_fini(&traces);
    return 0;
}
