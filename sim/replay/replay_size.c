/* How much memory a replay takes. See replay_size.h. */
#include "sim/replay/replay_size.h"

#include "core/host_memory.h"
#include "core/memory.h"
#include "core/parse.h"
#include "sim/cost/cost_model.h" /* struct mist_cost */
#include "sim/engine/event_engine.h"
#include "sim/replay/rank_set.h"
#include "sim/replay/replay_graph.h"
#include "traces/timeline.h"

#include <math.h>

/* What takes less is not worth asking the machine: that takes longer than some replays. */
#define SMALL_BYTES 0x1p24

/* Of all programs: tasks, dependencies. Of all ranks: lanes, their tasks (rows), what
 * they meet for. */
struct total {
    double programs_bytes, tasks, deps;
    double building_bytes; /* of the largest, beside that */
    double ranks, lanes, rows, meetings;
    double most_tasks; /* of a program */
};

int64_t mist_replay_work_n_ranks(const struct mist_plan *plan, int32_t i_stage,
                                 const struct mist_replay_work *work)
{
    const struct mist_stage_plan *stage = &plan->stages[i_stage];

    if (work->is_check || (work->why_all && !work->has_one_of_tp))
        return mist_stage_n_ranks(stage);
    return work->why_all ? mist_stage_n_replicas(stage) : 1;
}

/* n: its ranks that are replayed. */
static void add_stage(const struct mist_replay_stage_size *stage, double n,
                      struct total *sum)
{
    const struct mist_schedule *schedule = stage->schedule;
    double n_programs = stage->n_programs, lane_bytes = sizeof(int32_t);
    double cost_bytes = sizeof(struct mist_cost);

    sum->programs_bytes +=
        n_programs * (mist_schedule_bytes(schedule) + lane_bytes * schedule->n_tasks +
                      cost_bytes * schedule->n_costs);
    sum->building_bytes =
        fmax(sum->building_bytes, mist_schedule_building_bytes(schedule));
    sum->tasks += n_programs * schedule->n_tasks;
    sum->deps += n_programs * schedule->n_deps;
    sum->ranks += n;
    sum->lanes += n * stage->n_lanes;
    sum->rows += n * schedule->n_tasks;
    sum->most_tasks = fmax(sum->most_tasks, schedule->n_tasks);
    for (int32_t k = 0; k < schedule->n_tasks; k++)
        if (schedule->tasks[k].group != MIST_GROUP_NONE)
            sum->meetings +=
                n / mist_rank_mesh_size(&schedule->mesh, schedule->tasks[k].group);
}

double mist_replay_size_bytes(const struct mist_plan *plan,
                              const struct mist_replay_stage_size *stages,
                              const struct mist_replay_work *work)
{
    struct total sum = {0};
    double number = sizeof(double); /* of what is counted and what is timed */

    for (int32_t i = 0; i < plan->n_stages; i++)
        add_stage(&stages[i], (double)mist_replay_work_n_ranks(plan, i, work), &sum);
    double ranks = sum.ranks * (double)(sizeof(struct mist_rank) +
                                        sizeof(struct mist_event_device) + 2 * number) +
                   sum.lanes * (double)sizeof(int32_t);
    double graph = mist_replay_graph_bytes(sum.tasks, sum.deps, sum.lanes);
    double matching = mist_replay_graph_matching_bytes(sum.lanes);
    double rows = work->is_check ? 0 : work->has_timeline ? sum.rows : sum.most_tasks;
    double engine = mist_event_engine_bytes(sum.tasks, sum.ranks, sum.lanes, rows);
    if (work->has_timeline && !work->is_check)
        engine += mist_grown(rows) * (double)sizeof(struct mist_timeline_row);
    if (work->has_jitter)
        engine += number * sum.meetings;
    if (!work->is_check)
        engine += number * (sum.tasks + (double)work->n_unlike * sum.most_tasks);
    return sum.programs_bytes +
           fmax(sum.building_bytes, ranks + graph + fmax(matching, engine));
}

enum mist_status mist_replay_size_check(double bytes, const struct mist_plan *plan,
                                        const struct mist_replay_work *work,
                                        struct mist_err *err)
{
    int64_t available_bytes =
        bytes <= SMALL_BYTES ? INT64_MAX : mist_host_memory_available_bytes();
    char needed[MIST_FORMAT_BYTES], there[MIST_FORMAT_BYTES], what[160];
    int64_t n_ranks = 0;

    if (bytes <= (double)available_bytes)
        return MIST_OK;
    for (int32_t i = 0; i < plan->n_stages; i++)
        n_ranks += mist_replay_work_n_ranks(plan, i, work);
    if (work->is_check)
        snprintf(what, sizeof what, "checking the schedules of %lld ranks",
                 (long long)n_ranks);
    else
        snprintf(what, sizeof what, "replaying %d iterations of %lld ranks",
                 (int)work->n_iterations, (long long)n_ranks);
    mist_format_bytes(needed, sizeof needed, bytes < 0x1p62 ? (int64_t)bytes : INT64_MAX);
    mist_format_bytes(there, sizeof there, available_bytes);
    bool has_all = !work->is_check && !work->has_timeline && work->why_all;
    return mist_err_set(err, MIST_ERR_NO_PLAN,
                        "%s takes about %s of memory, %s are available; %s%s", what,
                        needed, there,
                        has_all              ? "one rank would do for each stage, but "
                        : work->has_timeline ? "without a timeline it takes less"
                                             : "fewer micro-batches need less",
                        has_all ? work->why_all : "");
}
