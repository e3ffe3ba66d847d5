/*
 * Times the exact inter-stage solver at the size it is meant for: 16 stages, 96 layers,
 * up to 30 frontier points per stage and length.
 *
 *   times          length devices     G  options   taus  solved  best-1_ms ...
 *   smooth          1..81      -1    16    38880  38880      24        6.0
 *
 * Times of a layer grow with the length and trade against d along a convex curve with
 * noise, as measured frontiers do ("smooth"), or are drawn at random ("random"). Prints a
 * table, checks nothing. One core.
 */
#include "core/clock.h"
#include "core/random.h"
#include "tune/inter_stage.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_STAGES = 16, N_LAYERS = 96, N_POINTS = 30 };

struct setup {
    const char *name;
    int32_t length_low, length_high;
    int32_t n_devices; /* ..._ANY_DEVICES or the budget, in powers of two a stage */
    bool is_random;
};

struct workload {
    struct mist_stage_option *options[N_STAGES];
    const struct mist_stage_option *borrowed[N_STAGES];
    size_t n_options[N_STAGES];
    struct mist_inter_stage_problem problem;
};

/* Frontier of one stage, length and number of devices, appended to the stage. */
static void add_frontier(struct workload *work, struct mist_random *random, int i,
                         int32_t length, int32_t n_devices, bool is_random)
{
    double work_s = 0.010 * length / n_devices * (i == N_STAGES - 1 ? 1.1 : 1);
    for (int p = 0; p < N_POINTS; p++) {
        double x = (p + mist_random_uniform(random)) / N_POINTS;
        struct mist_stage_option *option = &work->options[i][work->n_options[i]++];
        double spread = is_random ? mist_random_uniform(random) : (1 - x) * (1 - x);
        *option = (struct mist_stage_option){
            .n_layers = length,
            .n_devices = n_devices,
            .t_s = work_s * (1 + 0.5 * (is_random ? mist_random_uniform(random) : x)),
            .d_s = work_s * (0.2 + 3 * spread),
            .payload = (int64_t)work->n_options[i],
        };
    }
}

static void make_workload(struct workload *work, const struct setup *setup, int64_t g)
{
    struct mist_random random;
    int32_t most_devices = setup->n_devices < 0 ? 1 : 8;
    size_t room = (size_t)(setup->length_high - setup->length_low + 1) * N_POINTS * 4;
    mist_random_init(&random, 7);
    *work = (struct workload){0};
    for (int i = 0; i < N_STAGES; i++) {
        work->options[i] = malloc(room * sizeof *work->options[i]);
        if (!work->options[i]) {
            fputs("bench_inter_stage: out of memory\n", stderr);
            exit(1);
        }
        for (int32_t length = setup->length_low; length <= setup->length_high; length++)
            for (int32_t devices = 1; devices <= most_devices; devices *= 2)
                add_frontier(work, &random, i, length, devices, setup->is_random);
        work->borrowed[i] = work->options[i];
    }
    work->problem = (struct mist_inter_stage_problem){
        N_STAGES, N_LAYERS, setup->n_devices, g, work->borrowed, work->n_options,
        NULL,     0};
}

static double time_solve(const struct workload *work, size_t n_best,
                         struct mist_inter_stage_result *result)
{
    struct mist_inter_stage_config config = {.n_best = n_best};
    struct mist_err err = {0};
    double start_s = mist_clock_now_s();
    if (mist_inter_stage_solve(&work->problem, &config, result, &err) != MIST_OK) {
        fprintf(stderr, "bench_inter_stage: %s\n", err.message);
        exit(1);
    }
    return (mist_clock_now_s() - start_s) * 1e3;
}

static void run_setup(const struct setup *setup, int64_t g)
{
    struct workload work;
    struct mist_inter_stage_result result, splits_16;
    make_workload(&work, setup, g);
    double one_ms = time_solve(&work, 1, &result);
    double splits_ms = time_solve(&work, 16, &splits_16);
    size_t n_options = 0;
    for (int i = 0; i < N_STAGES; i++)
        n_options += work.n_options[i];
    printf("%-14s %2d..%-2d %7d %5lld %8zu %6zu %7zu %10.1f %12.1f\n", setup->name,
           setup->length_low, setup->length_high, setup->n_devices, (long long)g,
           n_options, result.n_tau, result.n_tau_solved, one_ms, splits_ms);
    mist_inter_stage_result_fini(&result);
    mist_inter_stage_result_fini(&splits_16);
    for (int i = 0; i < N_STAGES; i++)
        free(work.options[i]);
}

int main(void)
{
    const struct setup setups[] = {
        {"smooth", 1, 81, MIST_INTER_STAGE_ANY_DEVICES, false},
        {"random", 1, 81, MIST_INTER_STAGE_ANY_DEVICES, true},
        {"smooth window", 4, 8, MIST_INTER_STAGE_ANY_DEVICES, false},
        {"smooth devices", 1, 16, 32, false},
    };
    const int64_t g[] = {1, 2, 16, 256};
    printf("%-14s %6s %7s %5s %8s %6s %7s %10s %12s\n", "times", "length", "devices", "G",
           "options", "taus", "solved", "best-1_ms", "splits-16_ms");
    for (size_t s = 0; s < sizeof setups / sizeof *setups; s++)
        for (size_t i = 0; i < sizeof g / sizeof *g; i++)
            run_setup(&setups[s], g[i]);
    return 0;
}
