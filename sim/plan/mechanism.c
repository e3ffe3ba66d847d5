/* What plans do beyond computing. See mechanism.h. */
#include "sim/plan/mechanism.h"

#include <math.h>

static unsigned bit(enum mist_mechanism mechanism)
{
    return 1u << mechanism;
}

static unsigned stage_mechanisms(const struct mist_stage_plan *stage)
{
    unsigned out = 0;

    if (mist_stage_n_replicas(stage) > 1)
        out |=
            bit(stage->zero >= 3 ? MIST_MECHANISM_ZERO3 : MIST_MECHANISM_DATA_PARALLEL);
    if (stage->tp > 1)
        out |= bit(stage->is_sequence_parallel ? MIST_MECHANISM_SEQUENCE_PARALLEL
                                               : MIST_MECHANISM_TENSOR_PARALLEL);
    if (stage->offload_weights > 0 || stage->offload_gradients > 0 ||
        stage->offload_optimizer > 0 || stage->offload_activations > 0)
        out |= bit(MIST_MECHANISM_OFFLOAD);
    return out;
}

unsigned mist_plan_mechanisms(const struct mist_plan *plan)
{
    unsigned out = plan->n_stages > 1 ? bit(MIST_MECHANISM_PIPELINE) : 0;

    for (int32_t i = 0; i < plan->n_stages; i++)
        out |= stage_mechanisms(&plan->stages[i]);
    return out ? out : bit(MIST_MECHANISM_COMPUTE);
}

double mist_check_error_frac(const struct mist_check_row *check)
{
    return check->predicted_us / check->measured_us - 1;
}

/* A check's s of the header. */
static double explained_of(const struct mist_check_row *row)
{
    return row->bar_us / (2 * row->predicted_us);
}

double mist_mechanism_doubt_frac(const struct mist_trace_set *traces, unsigned mechanisms)
{
    double mean_square = 0, mean_explained = 0, most = 0;

    if (traces->n_checks == 0)
        return 0;
    for (size_t i = 0; i < traces->n_checks; i++) {
        const struct mist_check_row *row = &traces->checks[i];
        double error = mist_check_error_frac(row);
        mean_square += error * error / (double)traces->n_checks;
        mean_explained +=
            explained_of(row) * explained_of(row) / (double)traces->n_checks;
    }
    for (int m = 0; m < MIST_N_MECHANISMS; m++) {
        const struct mist_check_row *row =
            mist_trace_set_find_check(traces, (enum mist_mechanism)m);
        double square = mean_square, explained = mean_explained;
        if (!(mechanisms & bit((enum mist_mechanism)m)))
            continue;
        if (row) {
            double error = mist_check_error_frac(row);
            square = (error * error + mean_square) / 2;
            explained = explained_of(row) * explained_of(row);
        }
        most = fmax(most, square - explained);
    }
    return sqrt(most);
}
