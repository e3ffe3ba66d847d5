/* A small GPT on a node of A100 presets, with what prices it. */
#ifndef MIST_TESTS_SMALL_JOB_H
#define MIST_TESTS_SMALL_JOB_H

#include "sim/cost/cost_model.h"
#include "tests/unit/test.h"
#include "tests/unit/tiny_models.h"
#include "traces/preset.h"

struct small_job {
    struct mist_trace_set traces;
    struct mist_cost_model *model;
    struct mist_plan plan;
};

/* Stages that are all alike, three micro-batches of each rank. */
static inline void small_job_start(struct small_job *at, int32_t seq_len,
                                   int32_t n_stages, struct mist_stage_plan stage)
{
    struct mist_plan *plan = &at->plan;
    struct mist_err err = {0};

    memset(at, 0, sizeof *at);
    must(mist_preset_parse(&at->traces, "a100-80:1x8", &err), &err);
    must(mist_cost_model_new(&at->traces, &at->model, &err), &err);
    plan->model = mist_small_model(MIST_FAMILY_GPT, n_stages * stage.n_layers, 512);
    plan->model.max_seq = seq_len;
    plan->n_micro_batches = 3;
    plan->job = (struct mist_job){.global_batch = 3 * stage.micro_batch * stage.dp,
                                  .seq_len = seq_len,
                                  .dtype = MIST_DTYPE_BF16,
                                  .computes_on_gpu = true};
    plan->n_stages = n_stages;
    for (int i = 0; i < n_stages; i++)
        plan->stages[i] = stage;
    must(mist_plan_check(plan, &err), &err);
}

static inline void small_job_stop(struct small_job *at)
{
    mist_cost_model_free(at->model);
    mist_trace_set_fini(&at->traces);
}

#endif
