/* Where a plan's trace set lies: in its file, as seen from the file's folder, so that both
 * can be moved together. Internal to sim/plan. */
#ifndef MIST_SIM_PLAN_PLACE_H
#define MIST_SIM_PLAN_PLACE_H

#include "sim/plan/plan.h"

enum { MIST_PLAN_TRACE_SET_BYTES = sizeof((struct mist_plan *)0)->trace_set };

/* What was read from the file at plan_path becomes a path from the current folder, if there
 * is something at it; else it is left: a preset, or written by hand. */
void mist_plan_place_read(const char *plan_path,
                          char trace_set[MIST_PLAN_TRACE_SET_BYTES]);

/* What is to be written to plan_path: a relative path of something that is there, from
 * that file's folder; anything else as it is. */
void mist_plan_place_write(const char *plan_path, const char *trace_set,
                           char out[MIST_PLAN_TRACE_SET_BYTES]);

#endif
