/*
 * The order of micro-batches in a pipeline, and the logical clock that all ranks share.
 *
 * A stage runs slots: forward or backward of one micro-batch through one chunk of the
 * model. p stages, v chunks of each, G micro-batches, stage i = 0 .. p - 1; which virtual
 * stage a chunk of a stage is: pipeline.h.
 *
 * 1f1b (Narayanan et al. 2021, section 2.2): stage i runs min(p - 1 - i, G) forwards,
 * then one forward and one backward in turn, then the remaining backwards.
 *
 * interleaved (the same, section 2.2, and Megatron-LM): the same with
 * min(2 (p - 1 - i) + (v - 1) p, G v) forwards in front. Forwards go in groups of p
 * micro-batches, chunk by chunk; backwards likewise, the last chunk first.
 *
 * zb_h1 (Qi et al. 2023, section 2): 1f1b with the backward in two, input gradient and
 * weight gradient. Only input gradients are waited for. Stage i runs the weight gradient
 * of micro-batch k right after the input gradient of micro-batch k + i, those that remain
 * at the end; so weight gradients fill the pipeline's ends and no stage keeps more
 * activations than the first one of 1f1b.
 *
 * zb_h2 (the same): twice as many forwards in front, and weight gradients twice as late:
 * every stage keeps 2 p - 1 activations. Input gradients then go up the stages without
 * waiting for weight gradients.
 *
 * zb_v (ZB-V of the same, section 6): two chunks of each stage, the first on the way down
 * the stages and the second on the way back up. Stage i runs 2 (p - i) - 1 forwards of
 * the first chunk, one of the second and one of the first in turn i times, then p - i of
 * the second, then the first's and the second's in turn. From the 2 p-th forward on, one
 * forward and one backward alternate: p - i backwards of the second chunk, then the
 * first's and the second's in turn. Weight gradients follow their input gradients at
 * once; behind the stage's last forward they are 2 i late. So stage i keeps 2 p - 1 - i
 * activations of its first chunk and i + 1 of its second at most: p of whole stages, as
 * the first stage of 1f1b, on all of them.
 *
 * zb_1p, zb_2p (the same, section 3): automatic schedules (pipeline_auto.h), which keep p
 * and 2 p activations at most. What input gradients free counts as free at once.
 *
 * With equal stages all rules but these are idle for p - 1 times: forward and backward (1f1b),
 * the same of one chunk (interleaved), forward + input gradient - weight gradient (zb_h1,
 * from G = p on), the forward of one chunk (zb_v, from G = 2 p - 1 on) or of the stage
 * (zb_h2, from there on, too): these two where forward, input and weight gradient take as
 * long. That is the way to the last stage, and no stage has a gap. Every iteration pays
 * it, as parameters wait for the norm of all gradients; Qi et al. count zb_h2 without.
 *
 * The clock of automatic schedules is the one that they are made by. That of rules runs
 * every slot in unit time (forward 1, whole backward 2, either half 1) as
 * soon as its order and its neighbours allow: a forward waits for that of the virtual
 * stage before, a backward for that of the virtual stage behind, a weight gradient for
 * nothing. The clock orders communication the same way on all ranks, nothing else.
 */
#ifndef MIST_SIM_PIPELINE_ORDER_H
#define MIST_SIM_PIPELINE_ORDER_H

#include "core/status.h"
#include "sim/plan/plan.h"

#include <stdbool.h>
#include <stdint.h>

enum mist_slot_kind {
    MIST_SLOT_FORWARD,
    MIST_SLOT_BACKWARD,        /* whole: both gradients */
    MIST_SLOT_BACKWARD_INPUT,  /* of schedules that split the backward */
    MIST_SLOT_BACKWARD_WEIGHT, /* the same */
    MIST_N_SLOT_KINDS
};

struct mist_slot {
    int32_t micro_batch;
    int32_t chunk; /* of the stage */
    enum mist_slot_kind kind;
    int32_t start, end; /* on the logical clock */
};

struct mist_pipeline_order {
    enum mist_pipeline_schedule schedule;
    int32_t n_stages, n_chunks, n_micro_batches;
    int32_t n_slots;         /* of a stage */
    struct mist_slot *slots; /* owned; [n_stages][n_slots] in the order of each stage */
    /* When an output, or an input's gradient, is there:
     * owned; [n_chunks * n_stages (virtual stage)][n_micro_batches]. */
    int32_t *end_forward;
    int32_t *end_backward;
};

/* What goes from one stage to the next, or back. */
struct mist_pipeline_transfer {
    int32_t time;     /* end of the slot that makes it */
    int32_t boundary; /* between virtual stages boundary and boundary + 1 */
    int32_t micro_batch;
    bool is_gradient; /* from boundary + 1 to boundary */
};

/* Below, at or above 0: the one order of transfers that all ranks share, by time, then
 * boundary, then direction. */
int mist_pipeline_compare_transfers(const struct mist_pipeline_transfer *a,
                                    const struct mist_pipeline_transfer *b);

/*
 * n_stages, n_chunks, n_micro_batches >= 1 and passes, as mist_plan_check() has them.
 * passes: [n_stages] of an automatic schedule; else it may be NULL.
 * out is filled whatever comes back, and freed by mist_pipeline_order_fini().
 *
 * MIST_OK; MIST_ERR_INPUT: the numbers do not go together, or the order waits for itself
 * (none does); MIST_ERR_RANGE: the clock does not fit 31 bits; MIST_ERR_MEMORY.
 * O(slots of all stages).
 */
MIST_MUST_CHECK enum mist_status
mist_pipeline_order_init(struct mist_pipeline_order *out,
                         enum mist_pipeline_schedule schedule, int32_t n_stages,
                         int32_t n_chunks, int32_t n_micro_batches,
                         const struct mist_pipeline_pass *passes, struct mist_err *err);
void mist_pipeline_order_fini(struct mist_pipeline_order *order);

/*
 * Activations in flight: the most pairs of micro-batch and chunk whose forward has
 * started and whose backward (if split: weight gradient) has not ended, anywhere in the
 * order of the stage. At most G v. O(slots of the stage).
 */
int32_t mist_pipeline_in_flight(const struct mist_pipeline_order *order, int32_t i_stage);

/* The same of 1f1b, without an order. */
int32_t mist_pipeline_in_flight_1f1b(int32_t n_stages, int32_t i_stage,
                                     int32_t n_micro_batches);

#endif
