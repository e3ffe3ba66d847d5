/*
 * The order of micro-batches in a pipeline, and the logical clock that all ranks share.
 *
 * A stage runs slots: forward or backward of one micro-batch. 1F1B (Narayanan et al.
 * 2021): stage i of S first runs min(S - 1 - i, G) forwards, then one forward and one
 * backward in turn, then the remaining backwards. The clock runs every slot in unit time
 * (forward 1, backward 2) as soon as its neighbours allow; it orders communication the
 * same way on all ranks, nothing else.
 */
#ifndef MIST_SIM_PIPELINE_ORDER_H
#define MIST_SIM_PIPELINE_ORDER_H

#include "core/status.h"
#include "sim/plan.h"

struct mist_slot {
    int32_t micro_batch;
    bool is_backward;
    int32_t start, end; /* on the logical clock */
};

struct mist_pipeline_order {
    int32_t n_stages, n_micro_batches;
    struct mist_slot
        *slots; /* owned; [n_stages][2 * n_micro_batches] in the order of each stage */
    int32_t *end_forward;  /* owned; [n_stages][n_micro_batches] */
    int32_t *end_backward; /* owned; [n_stages][n_micro_batches] */
};

/* out is freed by mist_pipeline_order_fini, also after a failure.
 * MIST_OK or MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status mist_pipeline_order_init(struct mist_pipeline_order *out,
                                                          int32_t n_stages,
                                                          int32_t n_micro_batches,
                                                          struct mist_err *err);
void mist_pipeline_order_fini(struct mist_pipeline_order *order);

/* Forwards that stage i_stage has run before its first backward: activations in flight,
 * at most G. */
int32_t mist_pipeline_in_flight(int32_t n_stages, int32_t i_stage,
                                int32_t n_micro_batches);

#endif
