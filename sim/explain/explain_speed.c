/* How fast devices are, and how much of it the model needs. See explain.h. */
#include "sim/explain/explain.h"
#include "sim/model/framework.h"

/* Steps of a block's program. */
static double program_flop(const struct mist_layer_layout *layout,
                           enum mist_program_kind program, bool leaves_attention)
{
    const struct mist_program *of = &layout->programs[program];
    const struct mist_step *steps = mist_layer_layout_steps(layout, program);
    double flop = 0;

    for (int32_t p = 0; p < of->n_parts; p++)
        for (int32_t i = 0; i < of->parts[p].n_steps; i++) {
            const struct mist_step *step = &steps[of->parts[p].first_step + i];
            if (!leaves_attention || !mist_op_is_attention(step->op))
                flop += mist_step_product_flop(step);
        }
    return flop;
}

/* What a framework's backward of a block that is not checkpointed computes again. */
static double selective_flop(const struct mist_job *job,
                             const struct mist_layer_layout *layout)
{
    double frac = mist_framework_get(job->framework)->selective_frac;
    double all = program_flop(layout, MIST_PROGRAM_FORWARD, false);
    double products = program_flop(layout, MIST_PROGRAM_FORWARD, true);

    if (!job->recomputes_attention || job->framework == MIST_FRAMEWORK_OURS)
        return 0;
    if (frac > 0)
        return frac * products;
    /* others compute their scores again anyway, in the kernel */
    bool keeps_scores = job->attention == MIST_ATTENTION_FUSED ||
                        job->attention == MIST_ATTENTION_UNFUSED;
    return keeps_scores ? all - products : 0;
}

enum mist_status mist_recomputed_flop(const struct mist_plan *plan, double *out,
                                      struct mist_err *err)
{
    double all = 0;

    for (int32_t i = 0; i < plan->n_stages; i++) {
        const struct mist_stage_plan *stage = &plan->stages[i];
        struct mist_layer_layout layout;
        enum mist_status status = mist_layer_layout_make(
            &plan->model, MIST_LAYER_BLOCK,
            mist_schedule_shape(plan, i, mist_plan_n_threads(plan)), &layout, err);
        if (status != MIST_OK)
            return status;
        double passes = (double)mist_stage_n_ranks(stage) * plan->n_micro_batches;
        all += passes * (stage->n_checkpointed *
                             program_flop(&layout, MIST_PROGRAM_RECOMPUTE, false) +
                         stage->n_layers * selective_flop(&plan->job, &layout));
    }
    *out = all;
    return MIST_OK;
}

/* Parameters of the model, and its FLOP in an iteration. What a token of a long sequence
 * takes beyond one that is alone is attention, which goes with squares of lengths. */
static enum mist_status count_model(const struct mist_plan *plan,
                                    const struct mist_loads *loads, int64_t *n_parameters,
                                    double *out, struct mist_err *err)
{
    const struct mist_job *job = &plan->job;
    struct mist_model_count of, of_one = {0};
    enum mist_status status = mist_model_count(&plan->model, job->seq_len, &of, err);

    if (status == MIST_OK && loads)
        status = mist_model_count(&plan->model, 1, &of_one, err);
    if (status != MIST_OK)
        return status;
    double flop = of.flop_per_token, alone = of_one.flop_per_token;
    *n_parameters = of.n_parameters;
    *out = loads ? (alone * loads->packed.tokens +
                    (flop - alone) * loads->packed.squares / job->seq_len) /
                       loads->n_iterations
                 : flop * ((double)job->global_batch * (double)job->seq_len);
    return MIST_OK;
}

enum mist_status mist_speed_find(const struct mist_plan *plan,
                                 const struct mist_cluster *cluster,
                                 const struct mist_loads *loads, double iteration_s,
                                 struct mist_speed *out, struct mist_err *err)
{
    const struct mist_job *job = &plan->job;
    double tokens = loads ? loads->packed.tokens / loads->n_iterations
                          : (double)job->global_batch * (double)job->seq_len;
    double n = mist_plan_n_ranks(plan), flop, again;
    int64_t n_parameters;
    double peak = cluster->peak_flop_per_s[mist_cost_trace_dtype(job->dtype)];
    enum mist_status status = count_model(plan, loads, &n_parameters, &flop, err);

    if (status == MIST_OK)
        status = mist_recomputed_flop(plan, &again, err);
    if (status != MIST_OK)
        return status;
    if (loads)
        again *= loads->mean.tokens;
    double model_s = flop / n / iteration_s;
    *out = (struct mist_speed){
        .n_parameters = n_parameters,
        .tokens_per_s = tokens / iteration_s,
        .tokens_per_s_per_device = tokens / iteration_s / n,
        .flop_per_s_per_device = model_s,
        .model_frac = peak > 0 ? model_s / peak : 0,
        .hardware_frac = peak > 0 ? (model_s + again / n / iteration_s) / peak : 0,
    };
    return MIST_OK;
}
