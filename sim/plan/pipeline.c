/* Pipeline schedules. See pipeline.h. */
#include "sim/plan/pipeline.h"

#include <stddef.h>

const char *const mist_pipeline_words[MIST_N_PIPELINES + 1] = {
    [MIST_PIPELINE_1F1B] = "1f1b",   [MIST_PIPELINE_INTERLEAVED] = "interleaved",
    [MIST_PIPELINE_ZB_H1] = "zb_h1", [MIST_PIPELINE_ZB_H2] = "zb_h2",
    [MIST_PIPELINE_ZB_V] = "zb_v",   [MIST_PIPELINE_ZB_1P] = "zb_1p",
    [MIST_PIPELINE_ZB_2P] = "zb_2p", [MIST_N_PIPELINES] = NULL,
};

const struct mist_pipeline_kind mist_pipeline_kinds[MIST_N_PIPELINES] = {
    [MIST_PIPELINE_1F1B] = {.n_chunks = 1},
    [MIST_PIPELINE_INTERLEAVED] = {.n_chunks = 0, .groups_micro_batches = true},
    [MIST_PIPELINE_ZB_H1] = {.n_chunks = 1, .splits_backward = true},
    [MIST_PIPELINE_ZB_H2] = {.n_chunks = 1, .splits_backward = true},
    [MIST_PIPELINE_ZB_V] = {.n_chunks = 2, .splits_backward = true, .folds = true},
    [MIST_PIPELINE_ZB_1P] = {1, .splits_backward = true, .n_kept_per_stage = 1},
    [MIST_PIPELINE_ZB_2P] = {1, .splits_backward = true, .n_kept_per_stage = 2},
};

/* Either way: place in the chunk to stage, stage to place. */
static int32_t turn(enum mist_pipeline_schedule pipeline, int32_t n_stages,
                    int32_t i_chunk, int32_t i)
{
    return mist_pipeline_kinds[pipeline].folds && i_chunk % 2 == 1 ? n_stages - 1 - i : i;
}

int32_t mist_pipeline_virtual(enum mist_pipeline_schedule pipeline, int32_t n_stages,
                              int32_t i_stage, int32_t i_chunk)
{
    return i_chunk * n_stages + turn(pipeline, n_stages, i_chunk, i_stage);
}

int32_t mist_pipeline_stage(enum mist_pipeline_schedule pipeline, int32_t n_stages,
                            int32_t i_virtual)
{
    return turn(pipeline, n_stages, i_virtual / n_stages, i_virtual % n_stages);
}
