/*
 * Time of whole searches over the space of today's executor, on a made-up A100-like
 * cluster without measured kernels: GPT 22B on 32 devices, 175B on 1,024, with and
 * without different meshes.
 */
#include "core/clock.h"
#include "tune/search.h"
#include "tune/stage_price.h"

#include <stdio.h>
#include <stdlib.h>

struct question {
    const char *model;
    int32_t n_nodes;
    int64_t global_batch;
    unsigned groups;
    const char *name;
};

static struct mist_err err;

static void must(enum mist_status status)
{
    if (status == MIST_OK)
        return;
    mist_err_print(&err, "bench_search", stderr);
    exit(1);
}

static void make_traces(struct mist_trace_set *traces, int32_t n_nodes)
{
    static const enum mist_link_operation operations[] = {
        MIST_LINK_ALL_REDUCE, MIST_LINK_ALL_GATHER,     MIST_LINK_REDUCE_SCATTER,
        MIST_LINK_SEND_RECV,  MIST_LINK_HOST_TO_DEVICE, MIST_LINK_DEVICE_TO_HOST};

    mist_trace_set_init(traces);
    snprintf(traces->cluster.name, sizeof traces->cluster.name, "bench");
    traces->cluster.backend = MIST_TRACE_DATASHEET;
    traces->cluster.nodes = n_nodes;
    traces->cluster.devices_per_node = 8;
    traces->cluster.device_memory_bytes = INT64_C(80) << 30;
    traces->cluster.peak_flop_per_s[MIST_TRACE_FP32] = 1.5e14;
    traces->cluster.memory_bytes_per_s = 2e12;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        for (int nodes = 1; nodes <= n_nodes; nodes *= 2)
            for (int k = 0; k < 2; k++) {
                struct mist_link_row row = {
                    .operation = operations[i],
                    .nodes = nodes,
                    .ranks_per_node = 8,
                    .concurrent_groups = 1,
                    .bytes = k == 0 ? 1 << 16 : 1 << 30,
                    .time_us = (k == 0 ? 20 : 6e3) * nodes,
                    .repetitions = 10,
                };
                must(mist_trace_set_add_link(traces, &row, &err));
            }
}

static void run(const struct question *of, const struct mist_space *space,
                struct mist_stage_price *price)
{
    struct mist_thread_pool *pool;
    struct mist_search_result result;

    must(mist_thread_pool_new(0, &pool, &err));
    struct mist_search_config config = {
        .limit_bytes = INT64_C(80) << 30,
        .n_best = 16,
        .price = mist_stage_price_block,
        .price_context = price,
        .pool = pool,
    };
    double time_s = mist_clock_now_s();
    must(mist_search_run(space, &config, &result, &err));
    time_s = mist_clock_now_s() - time_s;
    printf("%-30s %4d cases, %8.3g plans, %6.3g M configurations priced: %7.1f ms on %d "
           "threads\n",
           of->name, (int)space->n_cases, mist_space_n_plans(space),
           (double)result.n_priced / 1e6, 1e3 * time_s, mist_thread_pool_size(pool));
    mist_search_result_fini(&result);
    mist_thread_pool_free(pool);
}

static void ask(const struct question *of)
{
    struct mist_model model;
    struct mist_job job = {.global_batch = of->global_batch, .seq_len = 2048};
    struct mist_trace_set traces;
    struct mist_catalog *catalog;
    struct mist_cost_model *cost_model;
    struct mist_space space;
    struct mist_stage_price *price;

    make_traces(&traces, of->n_nodes);
    must(mist_model_load_preset(of->model, &model, &err));
    must(mist_catalog_new(&model, &catalog, &err));
    must(mist_cost_model_new(&traces, &cost_model, &err));
    must(mist_space_init(&space, &model, &job, of->n_nodes * 8, 8, of->groups, &err));
    must(mist_stage_price_new(catalog, cost_model, &space, 1, &price, &err));
    run(of, &space, price);
    mist_stage_price_free(price);
    mist_space_fini(&space);
    mist_cost_model_free(cost_model);
    mist_catalog_free(catalog);
    mist_trace_set_fini(&traces);
}

int main(void)
{
    static const unsigned equal_meshes = MIST_SPACE_ALL & ~(1u << MIST_SPACE_MESH);
    static const struct question questions[] = {
        {"gpt3-22b", 4, 512, equal_meshes, "22B on 32, equal meshes"},
        {"gpt3-22b", 4, 512, MIST_SPACE_ALL, "22B on 32"},
        {"gpt3-175b", 128, 1536, MIST_SPACE_ALL, "175B on 1024, equal meshes"},
    };

    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        ask(&questions[i]);
    return 0;
}
