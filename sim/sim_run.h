/*
 * What mist-sim is asked, and one replay of it.
 */
#ifndef MIST_SIM_SIM_RUN_H
#define MIST_SIM_SIM_RUN_H

#include "core/emit.h"
#include "core/message.h"
#include "sim/explain/explain.h"
#include "sim/plan/plan.h"
#include "sim/replay/replay.h"
#include "sim/replay/replay_causes.h"
#include "sim/sim_options.h"

struct mist_sim_run {
    struct mist_sim_options options;
    struct mist_positionals given;
    struct mist_messages messages;
    enum mist_emit_kind kind;
    struct mist_plan plan;
    struct mist_loads *loads;         /* owned; NULL: without --lengths */
    struct mist_replay_causes causes; /* owned; of --causes */
    const char *plan_path;
    const char *cluster_path;
    bool has_warned;          /* of what of the trace set is of no use */
    bool has_warned_of_links; /* as edited */
    bool has_warned_of_peak;
};

/* Edits of one replay (what_if.h), one after the other, but device= first. Borrowed. */
struct mist_sim_edits {
    int n;
    const char *const *items;
};

/* Says how many iterations there are where the options don't, and draws what --lengths
 * fills them with. MIST_ERR_USAGE; errors of mist_lengths_read() and mist_loads_make(). */
MIST_MUST_CHECK enum mist_status mist_sim_run_draw(struct mist_sim_run *run,
                                                   struct mist_err *err);

/* Frees loads and causes, if there are any. */
void mist_sim_run_fini(struct mist_sim_run *run);

/*
 * Loads the trace set, edits it, and replays the plan on it.
 *
 * cluster      filled on MIST_OK, as edited.
 * out          filled on MIST_OK, to be freed with mist_replay_result_fini; NULL: all but
 *              the replay is done. Where is_study is false with the timeline, and in
 *              run the causes, that the options ask for.
 * explanation  filled, if not NULL, to be freed with mist_explanation_fini.
 * MIST_ERR_USAGE: an edit; else as mist_trace_set_open(), mist_replay_run(), and
 * MIST_ERR_INPUT: the cluster has too few devices.
 */
MIST_MUST_CHECK enum mist_status
mist_sim_replay(struct mist_sim_run *run, struct mist_sim_edits edits, bool is_study,
                struct mist_cluster *cluster, struct mist_replay_result *out,
                struct mist_explanation *explanation, struct mist_err *err);

/* mist_speed_find() of an iteration of the run's plan. Says once where the model's FLOP
 * are more than the devices can do, which only an edited price can make of them. */
MIST_MUST_CHECK enum mist_status
mist_sim_find_speed(struct mist_sim_run *run, const struct mist_cluster *cluster,
                    double iteration_s, struct mist_speed *out, struct mist_err *err);

#endif
