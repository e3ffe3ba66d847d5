/*
 * From candidates of the search to plans that hold: memory planned exactly, time by
 * replay.
 *
 * The closed form prices a stage by itself. Here every candidate becomes a plan; the
 * planner lays out its memory, and plans over the limit are dropped; the rest are
 * replayed by the event engine and sorted by what it says.
 *
 * The loop. Candidates are looked at in an order that mixes the best overall with the
 * best of each case, until n_best of them hold. When some were dropped, because the
 * closed form was optimistic about memory, their neighbours with a little less memory
 * were never candidates: so the search is run again with its limit lowered by the largest
 * optimism seen (planned minus estimated bytes of a dropped stage), and its candidates
 * are looked at likewise. A plan that is dropped after that was estimated within the
 * lowered limit, so its optimism is larger: the margin rises from round to round, and
 * everything with an optimism below it is certain to hold. The loop ends when a round
 * drops nothing, or after MIST_VALIDATE_MAX_ROUNDS. What holds in any round counts.
 *
 * Pipeline schedules. With the group schedule each of the best plans of more than one
 * stage is also replayed as zb_h1 and, where it can be, interleaved with 2, 3 and 4
 * chunks; it takes the schedule that is fastest by replay among those whose planned
 * memory is within the limits, and then the plans are sorted again.
 *
 * The limit is that of the device arena. mist_validate_limit() derives it: on a cpu
 * cluster the arena is the device memory; on other clusters the measured constant of the
 * runtime (runtime_memory_bytes) comes off first.
 */
#ifndef MIST_TUNE_VALIDATE_H
#define MIST_TUNE_VALIDATE_H

#include "sim/cost/cost_model.h"
#include "tune/search.h"

enum { MIST_VALIDATE_MAX_ROUNDS = 8 };

struct mist_validate_config {
    const struct mist_space *space;
    const struct mist_cost_model *cost_model;
    const char *trace_set;       /* folder, for the plan */
    uint64_t fingerprint;        /* of the trace set, for the plan */
    int64_t device_memory_bytes; /* for the plan; 0: no limit */
    int64_t limit_bytes;         /* of the device arena; INT64_MAX: none */
    int64_t host_limit_bytes;    /* of the host arenas of a node; INT64_MAX: none */
    int32_t threads;             /* host threads per device */
    size_t n_best;               /* plans wanted, >= 1 */
};

/* What one pipeline schedule does for a plan. */
enum mist_tried {
    MIST_TRIED_NOT,        /* the space has no such group, or the plan has one stage */
    MIST_TRIED_IMPOSSIBLE, /* interleaved: layers or micro-batches do not divide */
    MIST_TRIED_OVER_LIMIT, /* of memory */
    MIST_TRIED_REPLAYED
};
struct mist_validated_pipeline {
    enum mist_tried tried;
    int32_t n_chunks; /* the best number of them */
    double time_s;    /* REPLAYED: iteration */
};

/* A plan that was looked at. */
struct mist_validated {
    struct mist_plan *plan; /* owned; predicted is filled when it holds */
    double closed_s;        /* iteration by the closed form, which knows 1F1B alone */
    /* by enum mist_pipeline_schedule; of plans that hold */
    struct mist_validated_pipeline pipelines[MIST_N_PIPELINES];
    bool holds;             /* the planned arenas are within the limit */
    int32_t i_stage;        /* stage with the largest planned arena */
    int64_t planned_bytes;  /* its arena */
    int64_t host_bytes;     /* of the node with the largest host arenas */
    int64_t closed_bytes;   /* and what the closed form said of it */
    size_t i_looked;        /* 0, 1, ...: the order in which plans were looked at */
    int64_t optimism_bytes; /* largest planned minus closed over stages; signed */
};

struct mist_validate_result {
    struct mist_validated *plans; /* owned; those that hold, by replayed time */
    size_t n_plans;
    struct mist_validated *dropped; /* owned; in the order they were looked at */
    size_t n_dropped;
    size_t plans_capacity, dropped_capacity;
    struct mist_search_result search; /* of the first round */
    int32_t n_rounds;
    bool was_stopped; /* by config->is_over */
};

/* Limit of the device arena for a device memory (0: no limit). MIST_ERR_USAGE: nothing is
 * left for the arena. */
MIST_MUST_CHECK enum mist_status mist_validate_limit(const struct mist_cluster *cluster,
                                                     int64_t device_memory_bytes,
                                                     int64_t *limit_bytes,
                                                     struct mist_err *err);

/*
 * Searches, validates, repeats as above. search: limit_bytes is overwritten, its other
 * fields as in search.h; is_over stops both (then the first plan that holds is enough).
 *
 * result is to be freed with mist_validate_result_fini after MIST_OK. MIST_ERR_NO_PLAN:
 * nothing holds; the message says what was closest and what it misses. Other errors: of
 * the search and the replay.
 */
MIST_MUST_CHECK enum mist_status
mist_validate_run(const struct mist_validate_config *config,
                  struct mist_search_config *search, struct mist_validate_result *result,
                  struct mist_err *err);
void mist_validate_result_fini(struct mist_validate_result *result);

/* A candidate as a plan; predicted holds t and d of the stages only. */
void mist_validate_make_plan(const struct mist_validate_config *config,
                             const struct mist_search_candidate *candidate,
                             struct mist_plan *out);

/* Gives a plan another pipeline schedule; n_chunks is 1 but for interleaved. False (the
 * plan is untouched): mist_plan_check() would refuse it. */
bool mist_validate_set_pipeline(struct mist_plan *plan,
                                enum mist_pipeline_schedule pipeline, int32_t n_chunks);

/*
 * Plans the memory of one plan and, if it holds, fills plan->predicted by replay (t and d
 * are left as they are). closed_bytes: [n_stages], or NULL: not known.
 */
MIST_MUST_CHECK enum mist_status
mist_validate_plan(const struct mist_validate_config *config, const int64_t *closed_bytes,
                   struct mist_validated *plan, struct mist_err *err);

/* Gives a plan that holds its best pipeline schedule, as above, and fills pipelines. */
MIST_MUST_CHECK enum mist_status
mist_validate_pipelines(const struct mist_validate_config *config,
                        struct mist_validated *plan, struct mist_err *err);

#endif
