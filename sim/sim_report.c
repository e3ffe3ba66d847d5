/* Prints the results of mist-sim. See sim_report.h. */
#include "sim/sim_report.h"

static void emit_stages(struct mist_emit *emit, const struct mist_plan *plan,
                        const struct mist_replay_result *result)
{
    mist_emit_list_begin(emit, "stages", "Stages");
    for (int32_t i = 0; i < result->n_stages; i++) {
        const struct mist_replay_stage *stage = &result->stages[i];
        const struct mist_stage_plan *of = &plan->stages[i];
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_int64(emit, "stage", "stage", i, MIST_HUMAN_NUMBER);
        mist_emit_int64(emit, "ranks", "ranks", of->dp * of->tp, MIST_HUMAN_NUMBER);
        mist_emit_int64(emit, "layers", "layers", of->n_layers, MIST_HUMAN_NUMBER);
        mist_emit_double(emit, "compute_s", "compute", stage->compute_s,
                         MIST_HUMAN_TIME_S);
        mist_emit_double(emit, "exposed_s", "exposed", stage->exposed_s,
                         MIST_HUMAN_TIME_S);
        mist_emit_double(emit, "bubble_s", "bubble", stage->bubble_s, MIST_HUMAN_TIME_S);
        mist_emit_int64(emit, "peak_bytes", "live peak", stage->peak_bytes,
                        MIST_HUMAN_BYTES);
        mist_emit_int64(emit, "arena_bytes", "arena",
                        stage->arena_bytes[MIST_ARENA_DEVICE], MIST_HUMAN_BYTES);
        mist_emit_int64(emit, "host_arena_bytes", "host arena",
                        stage->arena_bytes[MIST_ARENA_HOST], MIST_HUMAN_BYTES);
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}

void mist_sim_report_add_result(struct mist_emit *emit, const struct mist_plan *plan,
                                const struct mist_cluster *cluster,
                                const struct mist_replay_result *result,
                                double model_flop)
{
    const struct mist_job *job = &plan->job;
    double tokens = (double)job->global_batch * (double)job->seq_len;
    double peak =
        cluster->peak_flop_per_s[job->dtype == MIST_DTYPE_BF16 ? MIST_TRACE_BF16
                                                               : MIST_TRACE_FP32];

    mist_emit_double(emit, "iteration_s", "iteration", result->iteration_s,
                     MIST_HUMAN_TIME_S);
    mist_emit_double(emit, "error_s", "error bar, +-", result->error_s,
                     MIST_HUMAN_TIME_S);
    mist_emit_double(emit, "extrapolated_frac", "rests on extrapolation",
                     result->extrapolated_frac, MIST_HUMAN_FRAC);
    mist_emit_double(emit, "tokens_per_s", "tokens/s", tokens / result->iteration_s,
                     MIST_HUMAN_NUMBER);
    if (peak > 0)
        mist_emit_double(emit, "model_flop_utilisation_frac", "model FLOP utilisation",
                         model_flop / result->iteration_s /
                             (peak * (double)mist_plan_n_ranks(plan)),
                         MIST_HUMAN_FRAC);
    emit_stages(emit, plan, result);
}

/* One value on both sides, with the error where both are there. */
static void emit_pair(struct mist_emit *emit, const char *what, double predicted,
                      double measured, enum mist_human_format format)
{
    mist_emit_object_begin(emit, NULL, NULL);
    mist_emit_text(emit, "what", "", what);
    mist_emit_double(emit, "predicted", "predicted", predicted, format);
    mist_emit_double(emit, "measured", "measured", measured, format);
    mist_emit_double(emit, "error_frac", "error",
                     measured > 0 ? predicted / measured - 1 : 0, MIST_HUMAN_FRAC);
    mist_emit_object_end(emit);
}

static void emit_stage_pairs(struct mist_emit *emit, const struct mist_compare_stage *a,
                             const struct mist_compare_stage *b, int32_t i)
{
    char what[64];

    snprintf(what, sizeof what, "stage %d compute", (int)i);
    emit_pair(emit, what, a->compute_s, b->compute_s, MIST_HUMAN_TIME_S);
    snprintf(what, sizeof what, "stage %d communication", (int)i);
    emit_pair(emit, what, a->communication_s, b->communication_s, MIST_HUMAN_TIME_S);
    snprintf(what, sizeof what, "stage %d peak memory", (int)i);
    emit_pair(emit, what, (double)a->peak_bytes, (double)b->peak_bytes, MIST_HUMAN_BYTES);
}

void mist_sim_report_add_comparison(struct mist_emit *emit, const struct mist_plan *plan,
                                    const struct mist_compare_side *predicted,
                                    const struct mist_compare_side *measured,
                                    double error_s)
{
    mist_emit_list_begin(emit, "compare", "Predicted and measured");
    emit_pair(emit, "iteration", predicted->iteration_s, measured->iteration_s,
              MIST_HUMAN_TIME_S);
    emit_pair(emit, "iteration, low end", predicted->iteration_s - error_s,
              measured->iteration_s, MIST_HUMAN_TIME_S);
    emit_pair(emit, "iteration, high end", predicted->iteration_s + error_s,
              measured->iteration_s, MIST_HUMAN_TIME_S);
    for (int32_t i = 0; i < plan->n_stages; i++)
        emit_stage_pairs(emit, &predicted->stages[i], &measured->stages[i], i);
    mist_emit_list_end(emit);
    mist_emit_list_begin(emit, "kinds", "Mean time of a task");
    for (int i = 0; i < MIST_N_TASK_KINDS; i++)
        if (predicted->kinds[i].n_tasks > 0 || measured->kinds[i].n_tasks > 0)
            emit_pair(emit, mist_task_kind_name((enum mist_task_kind)i),
                      predicted->kinds[i].mean_s, measured->kinds[i].mean_s,
                      MIST_HUMAN_TIME_S);
    mist_emit_list_end(emit);
}
