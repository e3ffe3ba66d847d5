/*
 * Orders made for how long passes take: the automatic zero-bubble schedules of Qi et al.
 * 2023, section 3.
 *
 * The pipeline is played through with the times of the plan. Each stage runs forwards
 * until its first input gradient can come, then rounds of one forward and one input
 * gradient. A weight gradient comes where room for an activation must be made, where the
 * stage would wait for longer than it takes, or as long (a gap), and at the end; where the
 * gap is shorter, it comes if else this stage became the one that waits most.
 *
 * Three choices are tried in all eight combinations (enum style), and the best order is
 * kept: of those that end first, or within a ten-thousandth of that, the one whose stages take
 * least from their own first slot to their last, which is what Qi et al. count.
 */
#ifndef MIST_SIM_PIPELINE_AUTO_H
#define MIST_SIM_PIPELINE_AUTO_H

#include "sim/schedule/pipeline_order.h"

/*
 * Fills slots and ends of an order, the clock in microseconds (or longer ticks where those
 * do not fit); it has one chunk for each stage.
 * passes: [n_stages], checked. MIST_OK or MIST_ERR_MEMORY. O(slots of all stages).
 */
MIST_MUST_CHECK enum mist_status
mist_pipeline_auto_fill(struct mist_pipeline_order *order,
                        const struct mist_pipeline_pass *passes, struct mist_err *err);

#endif
