/* How much memory a replay takes. See replay_size.h. */
#include "sim/replay_size.h"

#include "core/host_memory.h"
#include "core/parse.h"
#include "sim/cost_model.h" /* struct mist_cost */
#include "sim/event_engine.h"
#include "sim/replay_graph.h"
#include "traces/timeline.h"

#include <math.h>

/* Of all ranks in one iteration. */
struct total {
    double ranks, tasks, deps, ends, schedules_bytes, costs_bytes;
};

static struct total add_up(const struct mist_plan *plan,
                           const struct mist_schedule *const *first, bool has_all)
{
    struct total sum = {0};

    for (int32_t i = 0; i < plan->n_stages; i++) {
        double n = has_all ? plan->stages[i].dp * plan->stages[i].tp : 1;
        int32_t n_ends = 0;
        for (int32_t k = 0; k < first[i]->n_tasks; k++)
            n_ends += first[i]->tasks[k].group != MIST_GROUP_NONE;
        sum.ranks += n;
        sum.tasks += n * first[i]->n_tasks;
        sum.deps += n * first[i]->n_deps;
        sum.ends += n * n_ends;
        sum.schedules_bytes += n * mist_schedule_bytes(first[i]);
        sum.costs_bytes += n * (double)sizeof(struct mist_cost) * first[i]->n_costs;
    }
    return sum;
}

/* What mist_grow() makes of n elements. */
static double grown(double n)
{
    return n > 8 ? exp2(ceil(log2(n))) : 8;
}

double mist_replay_size_bytes(const struct mist_plan *plan,
                              const struct mist_schedule *const *first,
                              const struct mist_replay_work *work)
{
    struct total sum = add_up(plan, first, work->is_check || work->why_all);
    double n = work->is_check ? 1 : work->n_iterations, tasks = n * sum.tasks;
    double deps = n * (sum.deps + MIST_N_STREAMS * (MIST_N_STREAMS - 1) * sum.ranks);
    double graph = mist_replay_graph_bytes(tasks, deps);
    double matching = mist_replay_graph_matching_bytes(sum.ends);

    if (work->is_check)
        return sum.schedules_bytes + graph +
               fmax(matching, mist_replay_graph_check_bytes(tasks, deps, sum.ends));
    double engine = mist_event_engine_bytes(tasks, deps, n * sum.ends, sum.ranks) +
                    (double)sizeof(double) * tasks; /* work */
    double rows = work->has_timeline ? grown(sum.tasks) : 0;
    return sum.schedules_bytes + sum.costs_bytes + graph +
           fmax(matching, engine + rows * (double)sizeof(struct mist_timeline_row));
}

enum mist_status mist_replay_size_check(double bytes, const struct mist_plan *plan,
                                        const struct mist_replay_work *work,
                                        struct mist_err *err)
{
    int64_t available_bytes = mist_host_memory_available_bytes();
    char needed[MIST_FORMAT_BYTES], there[MIST_FORMAT_BYTES], what[160];

    if (bytes <= (double)available_bytes)
        return MIST_OK;
    if (work->is_check)
        snprintf(what, sizeof what, "checking the schedules of %d ranks",
                 (int)mist_plan_n_ranks(plan));
    else
        snprintf(what, sizeof what, "replaying %d iterations of %d ranks",
                 (int)work->n_iterations,
                 (int)(work->why_all ? mist_plan_n_ranks(plan) : plan->n_stages));
    mist_format_bytes(needed, sizeof needed, bytes < 0x1p62 ? (int64_t)bytes : INT64_MAX);
    mist_format_bytes(there, sizeof there, available_bytes);
    return mist_err_set(err, MIST_ERR_NO_PLAN,
                        "%s takes about %s of memory, %s are available; %s%s", what,
                        needed, there,
                        work->is_check  ? "fewer micro-batches need less"
                        : work->why_all ? "one rank would do for each stage, but "
                                        : "fewer iterations or micro-batches need less",
                        !work->is_check && work->why_all ? work->why_all : "");
}
