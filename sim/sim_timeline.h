/*
 * Timelines of mist-exec (or mist-sim) as recorded jobs. What a task waited for is not in
 * the file but in the plan's schedule: tasks of other streams that it names, those before it
 * on its stream, and of the iteration before, everything on its rank.
 *
 * The members of a transfer or collective begin when the last of them is there (that is
 * what the file says), so each is taken to be there as soon as it has nothing else to do.
 */
#ifndef MIST_SIM_SIM_TIMELINE_H
#define MIST_SIM_SIM_TIMELINE_H

#include "sim/plan/plan.h"
#include "sim/recorded/recorded.h"

/*
 * Reads and prepares (recorded.h) a timeline of all ranks of the plan, or of one of each
 * stage. Replicas are ranks. job lies in the arena. MIST_ERR_INPUT (a timeline of another
 * plan, a rank or a task is missing: with the file), MIST_ERR_IO, MIST_ERR_MEMORY,
 * MIST_ERR_RANGE or MIST_ERR_NO_PLAN (mist_schedule_build()).
 */
enum mist_status mist_sim_timeline_read(const char *path, const struct mist_plan *plan,
                                        struct mist_recorded_job *job,
                                        struct mist_arena *arena,
                                        struct mist_err *err) MIST_MUST_CHECK;

#endif
