/*
 * Uniform plans: all stages have the same knobs, so these are chosen once. All stages
 * together are priced as one: the search sees one stage with t, the largest of theirs, and
 * d, what the iteration of all takes beyond G t, so that (G - 1) t + t + d is its time.
 */
#include "tune/inter_stage.h" /* mist_pipeline_sum */
#include "tune/search_internal.h"

#include "sim/schedule/pipeline_order.h" /* mist_pipeline_in_flight_1f1b */

#include <math.h>
#include <stdlib.h>
#include <string.h>

int32_t mist_search_n_alike(const struct mist_space *space,
                            const struct mist_space_case *of)
{
    return space->bounds.is_uniform ? of->n_stages : 1;
}

/* Prices of a stage and what the stages so far add up to; columns [n]. */
struct joining {
    const struct mist_search_columns *block;
    struct mist_search_columns stage; /* its knobs, with prices of their own */
    struct mist_pipeline_sum *sums;
    int32_t n_chunks;
};

/* Adds a stage; what can't be run is NAN from then on. */
static void join_stage(const struct joining *at)
{
    const struct mist_search_columns *to = at->block, *of = &at->stage;

    for (size_t i = 0; i < to->n; i++) {
        bool can_run = mist_search_is_price(of->t_s[i], of->d_s[i], of->peak_bytes[i]) &&
                       !isnan(to->peak_bytes[i]);
        mist_pipeline_sum_add(&at->sums[i], of->t_s[i], at->n_chunks * of->d_s[i]);
        to->peak_bytes[i] =
            can_run ? fmax(to->peak_bytes[i], of->peak_bytes[i]) : (double)NAN;
        to->host_bytes[i] = fmax(to->host_bytes[i], of->host_bytes[i]);
    }
}

static enum mist_status join_stages(const struct mist_search_config *config,
                                    const struct mist_search_kind *kind,
                                    const struct joining *at, struct mist_err *err)
{
    const struct mist_search_columns *to = at->block;
    int32_t n = kind->n_alike, g = kind->n_micro_batches;
    enum mist_status status = MIST_OK;

    for (size_t i = 0; i < to->n; i++)
        to->peak_bytes[i] = to->host_bytes[i] = 0;
    for (int32_t s = 0; s < n && status == MIST_OK; s++) {
        struct mist_search_kind stage = *kind;
        stage.n_alike = 1;
        stage.role = mist_search_stage_role(n, s);
        stage.in_flight = mist_pipeline_in_flight_1f1b(n, s, g);
        status = config->price(config->price_context, &stage, &at->stage, err);
        if (status == MIST_OK)
            join_stage(at);
    }
    for (size_t i = 0; i < to->n; i++) {
        to->t_s[i] = at->sums[i].t_most_s;
        double all_s =
            mist_pipeline_sum_s(&at->sums[i], (int64_t)at->n_chunks * g) / at->n_chunks;
        to->d_s[i] = fmax(0, all_s - g * to->t_s[i]);
    }
    return status;
}

enum mist_status mist_search_price_kind(const struct mist_search_config *config,
                                        const struct mist_search_kind *kind,
                                        const struct mist_search_columns *block,
                                        struct mist_err *err)
{
    if (kind->n_alike <= 1)
        return config->price(config->price_context, kind, block, err);
    double *columns = malloc((4 * block->n + 1) * sizeof *columns);
    struct joining at = {
        .block = block,
        .stage = *block,
        .sums = calloc(block->n + 1, sizeof *at.sums),
        .n_chunks = config->n_chunks,
    };
    at.stage.t_s = columns;
    at.stage.d_s = columns + block->n;
    at.stage.peak_bytes = columns + 2 * block->n;
    at.stage.host_bytes = columns + 3 * block->n;
    enum mist_status status = columns && at.sums ? join_stages(config, kind, &at, err)
                                                 : mist_err_memory(err, NULL);
    free(columns);
    free(at.sums);
    return status;
}

enum mist_status mist_search_repeat_choice(const struct mist_search_config *config,
                                           const struct mist_space_case *of,
                                           struct mist_search_choice choice,
                                           struct mist_search_choice *stages,
                                           struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int32_t s = 0; s < of->n_stages && status == MIST_OK; s++) {
        struct mist_search_kind kind = mist_search_stage_kind(
            of->n_micro_batches, of->n_stages, s, choice.micro_batch, choice.shape);
        stages[s] = choice;
        status = mist_search_price_choice(config, &kind, &stages[s], err);
    }
    return status;
}
