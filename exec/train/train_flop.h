/*
 * Model FLOP utilisation (MFU; Chowdhery et al. 2022, appendix B): the rate of the FLOP
 * that the model needs, of what the devices can do.
 *
 *     MFU = FLOP per token * tokens/s / (ranks * peak of a device)
 *
 * FLOP per token are those of mist_model_flop_per_token().
 */
#ifndef MIST_EXEC_TRAIN_FLOP_H
#define MIST_EXEC_TRAIN_FLOP_H

#include "core/message.h"
#include "core/status.h"
#include "sim/model/catalog.h"
#include "sim/plan/plan.h"

#include <stdbool.h>

/* What a device can do at most, in the plan's number format. */
struct mist_train_peak {
    double flop_per_s, bytes_per_s; /* of its memory; 0: not known */
    bool is_measured; /* FLOP/s: the fastest linear layer of the trace set; otherwise what
                         its cluster.json says */
};

/* From the trace set that the plan (read from plan_path) was made for. That one can't be
 * read or is no longer what it was is said; that there is none is not. */
struct mist_train_peak mist_train_find_peak(const struct mist_plan *plan,
                                            const char *plan_path,
                                            const struct mist_messages *messages);

#endif
