/*
 * Pipeline schedules: what they are called, what they ask of a plan, and where the chunks
 * of the model lie. In which order a stage runs them is in pipeline_order.h.
 *
 * p stages hold v chunks each. The p v chunks of the model, in the order in which a
 * sample goes through them, are the virtual stages; chunk c of a stage is one of the
 * virtual stages c p .. c p + p - 1. These go down the stages 0 .. p - 1 for every chunk,
 * or for every second one back up (a schedule that folds), so that neighbouring virtual
 * stages at a fold are on one stage and hand the activation on without a transfer.
 */
#ifndef MIST_SIM_PIPELINE_H
#define MIST_SIM_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

enum mist_pipeline_schedule {
    MIST_PIPELINE_1F1B,
    MIST_PIPELINE_INTERLEAVED,
    MIST_PIPELINE_ZB_H1,
    MIST_PIPELINE_ZB_H2,
    MIST_PIPELINE_ZB_V,
    MIST_PIPELINE_ZB_1P,
    MIST_PIPELINE_ZB_2P,
    MIST_N_PIPELINES
};

struct mist_pipeline_kind {
    int32_t n_chunks;          /* of each stage; 0: the plan says, 2 or more */
    bool folds;                /* every second chunk goes back up */
    bool splits_backward;      /* input gradient and weight gradient apart */
    bool groups_micro_batches; /* the stages divide the micro-batches */
    /* Automatic schedules, whose order is made for the times of passes: a stage keeps as
     * many activations for each stage of the pipeline; 0: the order is a rule. */
    int32_t n_kept_per_stage;
};

/* What the order of an automatic schedule is made for, of one stage. The same times give
 * the same order, whatever passes take. */
struct mist_pipeline_pass {
    int32_t forward_us, input_us, weight_us; /* input and weight gradient; at least 1 */
    int32_t transfer_us;                     /* to either neighbour */
    double freed_frac; /* of the memory that a forward keeps, by the input gradient */
};

/* One row for each schedule. More than one chunk needs more than one stage. */
extern const struct mist_pipeline_kind mist_pipeline_kinds[MIST_N_PIPELINES];

/* "1f1b", "interleaved", "zb_h1", "zb_h2", "zb_v", "zb_1p", "zb_2p", then NULL. */
extern const char *const mist_pipeline_words[];

/* Virtual stage of a chunk of a stage, and the stage that holds a virtual stage (where it
 * is chunk i_virtual / n_stages). */
int32_t mist_pipeline_virtual(enum mist_pipeline_schedule pipeline, int32_t n_stages,
                              int32_t i_stage, int32_t i_chunk);
int32_t mist_pipeline_stage(enum mist_pipeline_schedule pipeline, int32_t n_stages,
                            int32_t i_virtual);

#endif
