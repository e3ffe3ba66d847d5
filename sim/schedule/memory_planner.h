/*
 * The memory planner: gives every buffer of a schedule an offset in its arena.
 *
 * Buffers live from the first to the last task that names them, in dispatch order.
 * Offsets are found over these lifetimes: persistent buffers first, then size by size at
 * the lowest free offset, in the best of a few orders of the sizes. Where a buffer takes
 * over the space of a dead one whose last users run on other streams, its first task gets
 * a dependency on them: so the layout is right whatever the timing, and simulator and
 * executor see the same waits. Where the arena has other space for all of its life, it takes
 * that which was left the longest ago.
 */
#ifndef MIST_SIM_MEMORY_PLANNER_H
#define MIST_SIM_MEMORY_PLANNER_H

#include "sim/schedule/schedule.h"

/* Of every buffer in its arena, bytes: what CUDA gives an allocation, so that no kernel
 * is slower for where its tensor begins. The same on all backends. */
enum { MIST_BUFFER_ALIGNMENT = 256 };

/* Host memory that mist_memory_plan() takes while it runs. */
double mist_memory_plan_bytes(const struct mist_schedule *schedule);

/*
 * Sets offset_bytes of all buffers and arena_bytes, and, where its tasks wait for room,
 * adds the dependencies that reuse needs. Returns MIST_OK, MIST_ERR_RANGE (an arena passes
 * 63 bits) or MIST_ERR_MEMORY (schedule unusable).
 */
MIST_MUST_CHECK enum mist_status mist_memory_plan(struct mist_schedule *schedule,
                                                  bool waits, struct mist_err *err);

/* live_bytes[i] = bytes live in an arena while task i runs (dispatch order).
 * live_bytes: [n_tasks]. */
void mist_memory_live(const struct mist_schedule *schedule, enum mist_buffer_arena arena,
                      int64_t *live_bytes);

#endif
