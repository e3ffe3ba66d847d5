/* A whole plan by the closed form: stage by stage as the tuner asks for it. */
#ifndef MIST_TESTS_CLOSED_PLAN_H
#define MIST_TESTS_CLOSED_PLAN_H

#include "tests/unit/test.h"

#include "sim/closed_form/stage_model.h"
#include "sim/schedule/pipeline_order.h"

#include <math.h>

/* One stage. */
static inline void closed_stage(struct mist_stage_model *model,
                                const struct mist_plan *plan, int32_t i,
                                double out[MIST_STAGE_N_OUTPUTS])
{
    const struct mist_stage_plan *stage = &plan->stages[i];
    struct mist_stage_shape shape = {
        .is_first = i == 0,
        .is_last = i == plan->n_stages - 1,
        .micro_batch = stage->micro_batch,
        .dp = stage->dp,
        .tp = stage->tp,
        .cp = stage->cp,
        .n_nodes = stage->n_nodes,
        .n_devices = stage->n_devices,
        .is_sequence_parallel = stage->is_sequence_parallel,
    };
    const double knobs[MIST_STAGE_N_COLUMNS] = {
        [MIST_STAGE_LAYERS] = stage->n_layers,
        [MIST_STAGE_CHECKPOINTED] = stage->n_checkpointed,
        [MIST_STAGE_LEAN] = stage->n_lean,
        [MIST_STAGE_ZERO] = stage->zero,
        [MIST_STAGE_OFFLOAD_WEIGHTS] = stage->offload_weights,
        [MIST_STAGE_OFFLOAD_GRADIENTS] = stage->offload_gradients,
        [MIST_STAGE_OFFLOAD_OPTIMIZER] = stage->offload_optimizer,
        [MIST_STAGE_OFFLOAD_ACTIVATIONS] = stage->offload_activations,
        [MIST_STAGE_UPDATE_ON_HOST] = stage->updates_on_host,
        [MIST_STAGE_IN_FLIGHT] =
            mist_pipeline_in_flight_1f1b(plan->n_stages, i, plan->n_micro_batches),
        [MIST_STAGE_MICRO_BATCHES] = plan->n_micro_batches,
    };
    struct mist_tape_input columns[MIST_STAGE_N_COLUMNS];
    struct mist_stage_values values;
    struct mist_err err;
    double *outputs[MIST_STAGE_N_OUTPUTS];

    for (int k = 0; k < MIST_STAGE_N_COLUMNS; k++)
        columns[k] = (struct mist_tape_input){NULL, knobs[k]};
    must(mist_stage_model_prepare(model, &shape, &values, &err), &err);
    for (int k = 0; k < MIST_STAGE_N_OUTPUTS; k++)
        outputs[k] = &out[k];
    must(mist_stage_model_eval(model, &values, columns, 1, outputs, &err), &err);
}

/* stable_s, extra_s, peak_bytes and iteration_s: (G - 1) max t + sum t + max(0,
 * max_i (d_i - sum_{j < i} t_j)). */
static inline void closed_plan(struct mist_stage_model *model,
                               const struct mist_plan *plan, struct mist_prediction *out)
{
    double most_s = 0, sum_s = 0, extra_s = 0;

    *out = (struct mist_prediction){0};
    for (int32_t i = 0; i < plan->n_stages; i++) {
        double of[MIST_STAGE_N_OUTPUTS];
        closed_stage(model, plan, i, of);
        out->stable_s[i] = of[MIST_STAGE_STABLE];
        out->extra_s[i] = of[MIST_STAGE_EXTRA];
        out->peak_bytes[i] = (int64_t)ceil(of[MIST_STAGE_PEAK]);
        extra_s = fmax(extra_s, of[MIST_STAGE_EXTRA] - sum_s);
        sum_s += of[MIST_STAGE_STABLE];
        most_s = fmax(most_s, of[MIST_STAGE_STABLE]);
    }
    out->iteration_s = (plan->n_micro_batches - 1) * most_s + sum_s + extra_s;
}

#endif
