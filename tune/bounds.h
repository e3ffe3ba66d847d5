/*
 * What plans are held to: --fix tp=8, --max zero=1, --uniform.
 *
 * Every word of a plan that the search chooses is a knob with a range. A plan
 * is within the bounds if the value of each of its stages is (the number of
 * stages, micro-batches and the schedule are the plan's own). Nothing is read
 * into them: zero=1 excludes a stage whose dp is 1, as its level is 0. Groups
 * of knobs that the space lacks are bounds on the same knobs (space.h).
 */
#ifndef MIST_TUNE_BOUNDS_H
#define MIST_TUNE_BOUNDS_H

#include "core/status.h"
#include "sim/plan/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mist_knob {
    MIST_KNOB_PP,
    MIST_KNOB_MICRO_BATCHES,
    MIST_KNOB_MICRO_BATCH,
    MIST_KNOB_LAYERS,
    MIST_KNOB_DP,
    MIST_KNOB_TP,
    MIST_KNOB_CP,
    MIST_KNOB_SEQUENCE,
    MIST_KNOB_ZERO,
    MIST_KNOB_CKPT,    /* layers; MIST_KNOB_ALL: all of the stage */
    MIST_KNOB_LEAN,    /* layers; MIST_KNOB_ALL: all that are not recomputed */
    MIST_KNOB_OFFLOAD, /* by enum mist_offload; in eighths */
    MIST_KNOB_UPDATE = MIST_KNOB_OFFLOAD + MIST_N_OFFLOADS, /* 1: on the host */
    MIST_KNOB_SCHEDULE, /* enum mist_pipeline_schedule */
    MIST_KNOB_CHUNKS,   /* of a stage; without chunks 1 */
    MIST_N_KNOBS
};

enum { MIST_KNOB_ALL = INT32_MAX, MIST_KNOB_EIGHTHS = 8 };

struct mist_knob_range {
    int32_t min, max; /* both allowed */
};

struct mist_bounds {
    struct mist_knob_range of[MIST_N_KNOBS];
    bool is_uniform; /* all stages are alike, in layers, shape and every other
                      knob */
};

enum { MIST_BOUND_TEXT = 64 };

/* Everything is allowed. */
struct mist_bounds mist_bounds_none(void);

/* "tp=8": that value and no other, or, unless it is fixed, that value at the most.
 * MIST_ERR_USAGE: the word, the value or what it contradicts, and what was expected. */
MIST_MUST_CHECK enum mist_status mist_bounds_add(struct mist_bounds *bounds,
                                                 const char *text, bool is_fixed,
                                                 struct mist_err *err);

/* Whether a knob is bound, and as it was asked for: "--fix tp=8"; text:
 * [MIST_BOUND_TEXT], returned. */
bool mist_bounds_has(const struct mist_bounds *bounds, enum mist_knob knob);
char *mist_bounds_text(const struct mist_bounds *bounds, enum mist_knob knob, char *text);

/* Whether a number of layers is within a range; n_all: what MIST_KNOB_ALL
 * stands for. */
bool mist_knob_allows(struct mist_knob_range range, int32_t value, int32_t n_all);

/* The value of a knob of a stage. */
int32_t mist_knob_of(const struct mist_plan *plan, int32_t i_stage, enum mist_knob knob);

/* Whether a plan (checked) is within the bounds. */
bool mist_bounds_allow(const struct mist_bounds *bounds, const struct mist_plan *plan);

#endif
