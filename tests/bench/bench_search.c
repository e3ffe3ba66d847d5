/*
 * Time of whole searches on a made-up H100-like cluster without measured kernels: GPT 22B
 * on 32 devices over the space of the original (one shape for all stages, ZeRO,
 * checkpointing, offloading) and over all of it, 175B on 1,024, with and without lean
 * layers.
 */
#include "tests/bench/made_up_cluster.h"

#include "tune/search.h"
#include "tune/stage_price.h"

#include <time.h> /* processor time */
#include <unistd.h>

struct question {
    const char *model;
    int32_t n_nodes;
    int64_t global_batch;
    unsigned groups;
    int64_t memory_bytes;
    const char *name;
};

static struct mist_err err;

static void run(const struct question *of, const struct mist_space *space,
                struct mist_stage_price *price)
{
    struct mist_thread_pool *pool;
    struct mist_search_result result;

    must(mist_thread_pool_new(0, &pool, &err), &err);
    struct mist_search_config config = {
        .limit_bytes = of->memory_bytes,
        .host_limit_bytes = INT64_C(1) << 37,
        .slack_frac = 0.25,
        .n_best = 16,
        .max_points = 100,
        .price = mist_stage_price_block,
        .price_context = price,
        .pool = pool,
    };
    double time_s = mist_clock_now_s();
    clock_t processor = clock();
    must(mist_search_run(space, &config, &result, &err), &err);
    time_s = mist_clock_now_s() - time_s;
    double busy_s = (double)(clock() - processor) / CLOCKS_PER_SEC;
    printf("%-34s %5d cases, %6.3g M configurations priced: %8.1f ms on %d threads "
           "(%.1f ms of processor time), best %.4g s\n",
           of->name, (int)space->n_cases, (double)result.n_priced / 1e6, 1e3 * time_s,
           (int)sysconf(_SC_NPROCESSORS_ONLN), 1e3 * busy_s,
           result.n_candidates > 0 ? result.candidates[0].time_s : 0);
    for (int32_t i = 0;
         result.n_candidates > 0 && i < result.candidates[0].n_stages && i < 3; i++) {
        const struct mist_search_choice *at = &result.candidates[0].stages[i];
        printf("    stage %d: %d layers, dp %d, tp %d%s, b %d, ZeRO-%d, %d checkpointed, "
               "offloaded %d %d %d %d / 8, %.1f GiB\n",
               (int)i, (int)at->n_layers, (int)at->shape.dp, (int)at->shape.tp,
               at->shape.is_sequence_parallel ? " with sequences" : "",
               (int)at->micro_batch, (int)at->knobs.zero, (int)at->knobs.n_checkpointed,
               at->knobs.offload[0], at->knobs.offload[1], at->knobs.offload[2],
               at->knobs.offload[3], (double)at->peak_bytes / 0x1p30);
    }
    mist_search_result_fini(&result);
    mist_thread_pool_free(pool);
}

static void ask(const struct question *of)
{
    struct mist_model model;
    struct mist_job job = {
        .global_batch = of->global_batch, .seq_len = 2048, .dtype = MIST_DTYPE_BF16};
    struct mist_trace_set traces;
    struct mist_cost_model *cost_model;
    struct mist_space space;
    struct mist_stage_price *price;

    made_up_cluster_init(&traces, of->n_nodes);
    must(mist_model_load_preset(of->model, &model, &err), &err);
    must(mist_cost_model_new(&traces, &cost_model, &err), &err);
    must(
        mist_space_init(&space, &model, &job, of->n_nodes * 8, 8, of->groups, NULL, &err),
        &err);
    must(mist_stage_price_new(cost_model, &space, 1, &price, &err), &err);
    run(of, &space, price);
    mist_stage_price_free(price);
    mist_space_fini(&space);
    mist_cost_model_free(cost_model);
    mist_trace_set_fini(&traces);
}

int main(void)
{
    static const unsigned original =
        MIST_SPACE_ALL & ~(1u << MIST_SPACE_MESH) & ~(1u << MIST_SPACE_SEQUENCE) &
        ~(1u << MIST_SPACE_LEAN) & ~(1u << MIST_SPACE_SCHEDULE);
    static const unsigned plain = MIST_SPACE_ALL & ~(1u << MIST_SPACE_LEAN);
    static const struct question questions[] = {
        {"gpt3-22b", 4, 512, original, INT64_C(80) << 30,
         "22B on 32, the original's space"},
        {"gpt3-22b", 4, 512, original, INT64_C(24) << 30, "the same with 24 GiB"},
        {"gpt3-22b", 4, 512, MIST_SPACE_ALL, INT64_C(80) << 30, "22B on 32"},
        {"gpt3-22b", 4, 512, MIST_SPACE_ALL, INT64_C(24) << 30, "the same with 24 GiB"},
        {"gpt3-22b", 4, 512, plain, INT64_C(24) << 30, "and without lean layers"},
        {"gpt3-175b", 128, 1536, MIST_SPACE_ALL, INT64_C(80) << 30, "175B on 1024"},
        {"gpt3-175b", 128, 1536, plain, INT64_C(80) << 30, "without lean layers"},
    };

    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        ask(&questions[i]);
    return 0;
}
