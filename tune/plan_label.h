/* What is special about a plan, in a few words: "S2 tp2 sp z3 ow.5 ck zb_h1". */
#ifndef MIST_TUNE_PLAN_LABEL_H
#define MIST_TUNE_PLAN_LABEL_H

#include "sim/plan/plan.h"

enum { MIST_PLAN_LABEL_BYTES = 96 };

/*
 * The label of a plan (checked); of what differs between stages the most:
 *
 *   S2     stages                     dp2  tp2  data- and tensor-parallel size
 *   sp     sequence parallelism       z1 z2 z3  ZeRO
 *   ow.5 og1 oo.25 oa1  offloaded: weights, gradients, optimizer state, activations
 *   uh  offloaded optimizer state is updated on the host
 *   ck     some layers are checkpointed  ln     some are lean
 *   zb_h1, zb_h2, zb_v, zb_1p, zb_2p, interleaved   pipeline schedule
 *
 * What is 0, 1 or 1f1b is left out; "S1" for a plan without anything. Returns text.
 */
char *mist_plan_label(const struct mist_plan *plan, char text[MIST_PLAN_LABEL_BYTES]);

/* The same without the sizes of ratios: "dp4 z1 oo oa". */
char *mist_plan_kind(const struct mist_plan *plan, char text[MIST_PLAN_LABEL_BYTES]);

#endif
