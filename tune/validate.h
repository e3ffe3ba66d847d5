/*
 * From candidates of the search to plans that hold: memory planned exactly, time by
 * replay.
 *
 * The closed form prices a stage by itself. Here every candidate becomes a plan; the
 * planner lays out its memory, and plans over the limit are dropped; the rest are
 * replayed by the event engine and sorted by what it says.
 *
 * More freedom is never slower. The closed form errs, so the best plan by replay is not
 * its first, and a larger space or a higher limit alone would lose plans that a smaller
 * question finds. So after the first search the same search is asked with less freedom:
 * without a group of knobs or an offload ratio that a candidate uses which is looked at, and
 * with less memory than the best few need, and so on from there. What these find is
 * replayed as well, and what a smaller question would find is among it. A question whose
 * candidates would be those of a larger one is not asked. For that to hold
 *   - every question contributes equally many candidates, as many as it would alone;
 *   - limits of searches are numbers of six binary digits: the search with the least that
 *     is not below the real one comes first, and plans that do not hold are dropped; where
 *     its best need more than the real one, that is asked with, too, and as long as none
 *     holds limits of ten digits below it;
 *   - what is not asked or replayed is slower than the best plan if the closed form takes
 *     no more than MIST_VALIDATE_SLACK_FRAC too long, or half more than it was seen to. The
 *     first search has no such plan yet: it leaves out what is a tenth slower than its best by
 *     the closed form, which may take that far too short; those behind it do not, and the first
 *     question is asked again where a tenth was too little.
 * It costs little, as part of a space has bounds from the whole (struct
 * mist_search_floors), slower plans are cut off, and of the numbers of micro-batches and
 * stages only those are looked at for which a question that this one follows from had plans,
 * if that was asked for plans as slow (struct mist_question_found). The most promising
 * question comes first; when what all priced is more than some (FREE_CONFIGURATIONS; a search
 * counts as some, too), or what is replayed has more than some passes of layers
 * (FREE_PASSES), plans are only looked for as far as the
 * closed form was seen to err, and no more is asked after MOST_SEARCHES, or when what they
 * priced is TIMES_FIRST that of the first question: in large spaces, or with long replays, a
 * better plan of a smaller question may be missed by what the closed form errs.
 *
 * Passes. The formula over stages lets a stage hide its optimizer step while it waits for its
 * first input, and sums behind its last backward. Stages that take these apart can't, and
 * what they take longer adds up from stage to stage. So the candidates of a search are priced
 * by their passes (mist_stage_price_plan()), which know that, and those near the best by
 * short replays (mist_stage_price_replay()), which also know how far copies run ahead. The
 * best by these and the best by passes are replayed, and a question promises what the best
 * candidate takes of that which it is a part of.
 *
 * Neighbours. What is fastest by replay is near what is fast by the closed form. So in the
 * end plans are left a knob at a time (neighbours.h), the fastest first, and what is faster
 * than the plan that it is beside is left so, too, until nothing new comes or all that was
 * replayed has FREE_PASSES_BESIDE. Whether a plan is left depends on it and on the one beside
 * it alone: a question with more freedom takes every path that one with less takes from a
 * plan that both look at. Large questions have more passes before, and leave none.
 *
 * What the closed form takes too high in memory is looked at as a neighbour, if at all.
 *
 * is_thorough. If asked, questions may price twice as much, and neighbours are replayed as long
 * as all before, or as FREE_PASSES, if these are more.
 *
 * Host memory. A search takes every rank to have an equal share of its node's. Where that is
 * limited, plans whose stages share nodes are also asked for as if a stage could take all of
 * a node's (MIST_QUESTION_HOST), with less freedom and memory from there on; those that take
 * too much together are dropped. As long as no plan holds at all, these cost no more than the
 * first question, either. What fits is never offloaded, so that stages take
 * no more than they have to.
 *
 * As the searches go down in memory, they also reach plans that hold where the closed
 * form was optimistic. Where it holds nothing to be within the limits, the plan that needs
 * the least of a device by it is planned, too, and the one that needs the least of the host:
 * one holds, or its arena is what is lacking.
 *
 * Pipeline schedules. With the group schedule each plan of more than one stage is priced
 * as zb_h1, zb_h2, zb_1p, zb_2p and, where it can be, zb_v and interleaved with 2, 3 and
 * 4 chunks by its passes (mist_stage_price_plan()), and replayed unless that is much slower
 * than the best plan (PASSES_ERROR_FRAC); it takes the schedule that is fastest by replay
 * among those whose planned memory is within the limits. Candidates come from 1F1B's formula,
 * which charges a gap that others fill. So of each search the best by any schedule's passes
 * are looked at, too, and the first question is also asked in chunks (search.h), less
 * freedom and memory from there on as above, but that limits of memory fall by a 32nd at least,
 * to numbers of four binary digits, for plans that are faster so than the best with any schedule
 * so far; an eighth of FREE_CONFIGURATIONS are for that, or as many as the first
 * question priced, if these are more. Then the plans are sorted; of equal ones the simpler comes
 * first (alike.h). Half of those that are wanted are the best, the others the best of their
 * kind: other numbers of micro-batches, other meshes.
 *
 * The limit is that of the device arena and of what a plan's framework needs beside it, which
 * is nothing of ours (sim/explain). mist_validate_limit() derives it: on a cpu cluster they
 * have the device memory; on other clusters the measured constant of the runtime
 * (runtime_memory_bytes) comes off first.
 */
#ifndef MIST_TUNE_VALIDATE_H
#define MIST_TUNE_VALIDATE_H

#include "sim/cost/cost_model.h"
#include "tune/search.h"
#include "tune/stage_price.h"

/* What the closed form may take a plan too long, at most: the slack that searches are to
 * have. */
#define MIST_VALIDATE_SLACK_FRAC 0.25

struct mist_validate_config {
    const struct mist_space *space;
    const struct mist_cost_model *cost_model;
    const char *trace_set;       /* folder, for the plan */
    uint64_t fingerprint;        /* of the trace set, for the plan */
    int64_t device_memory_bytes; /* for the plan; 0: no limit */
    int64_t limit_bytes;      /* of the device arena, with what the plan's framework needs
                                    beside it; INT64_MAX: none */
    int64_t host_limit_bytes; /* of the host arenas of a node; INT64_MAX: none */
    int32_t threads;          /* host threads per device */
    size_t n_best;            /* plans wanted at the most, >= 1 */
    double slower_frac;       /* among them the simplest that is no slower than that; 0 */
    bool is_thorough;         /* more is priced, and more neighbours are tried */
    struct mist_stage_price *price;             /* borrowed */
    const struct mist_constraints *constraints; /* plans hold that keep to them; borrowed;
                                                   NULL: none */
};

/* What one pipeline schedule does for a plan. */
enum mist_tried {
    MIST_TRIED_NOT,        /* the space has no such group, or the plan has one stage */
    MIST_TRIED_IMPOSSIBLE, /* chunks: layers or micro-batches do not divide */
    MIST_TRIED_OVER_LIMIT, /* of memory */
    MIST_TRIED_PRICED,     /* too slow by its passes to be replayed */
    MIST_TRIED_REPLAYED
};
struct mist_validated_pipeline {
    enum mist_tried tried;
    double time_s; /* PRICED, REPLAYED: iteration */
};

/* A plan that was looked at. */
struct mist_validated {
    struct mist_plan *plan; /* owned; predicted is filled when it holds */
    double closed_s;        /* iteration by the closed form, which knows 1F1B alone */
    /* by enum mist_pipeline_schedule; of plans that hold */
    struct mist_validated_pipeline pipelines[MIST_N_PIPELINES];
    bool holds;            /* the planned arenas are within the limits, and it keeps to
                              bounds and constraints */
    int32_t i_stage;       /* stage that needs most of a device */
    int64_t planned_bytes; /* its arena */
    int64_t beside_bytes;  /* what its framework needs beside that; 0 of ours */
    int64_t host_bytes;    /* of the node with the largest host arenas */
    int64_t closed_bytes;  /* and what the closed form said of it */
    size_t i_looked;       /* 0, 1, ...: the order in which plans were looked at */
};

struct mist_validate_result {
    struct mist_validated *plans; /* owned; those that hold, by replayed time */
    size_t n_plans;
    /* owned; in the order they were looked at; plan is NULL of most behind the first n_best,
     * but not of the one with the least closed_s */
    struct mist_validated *dropped;
    size_t n_dropped, i_fastest_dropped;
    size_t plans_capacity, dropped_capacity;
    size_t n_looked; /* plans that were looked at: those that hold were replayed */
    struct mist_search_result search; /* the first */
    int32_t n_searches;
    /* where by the closed form no plan is within the limits: what one needs of a device at
     * the least, and of a rank's share of the host; else all 0 */
    struct mist_search_closest closest, closest_host;
    bool was_stopped; /* by config->is_over */
};

/* The limit for a device memory (0: no limit). MIST_ERR_USAGE: nothing is left for the
 * arena. */
MIST_MUST_CHECK enum mist_status mist_validate_limit(const struct mist_cluster *cluster,
                                                     int64_t device_memory_bytes,
                                                     int64_t *limit_bytes,
                                                     struct mist_err *err);

/*
 * Searches and validates as above. search: limit_bytes, n_best and floors are not looked
 * at, its other fields are as in search.h; is_over stops both (then the first plan that
 * holds is enough).
 *
 * result is to be freed with mist_validate_result_fini after MIST_OK. MIST_ERR_NO_PLAN:
 * nothing holds; the message says what was closest and what it misses, and with so much
 * memory there is a plan. Other errors: of the search and the replay.
 */
MIST_MUST_CHECK enum mist_status
mist_validate_run(const struct mist_validate_config *config,
                  const struct mist_search_config *search,
                  struct mist_validate_result *result, struct mist_err *err);
/* Moves plan i of plans before the others. */
void mist_validate_put_first(struct mist_validated *plans, size_t i);

void mist_validate_result_fini(struct mist_validate_result *result);

/*
 * Which of a search's candidates are looked at: the best by short replays of those that
 * their passes put near the best, and, by their passes, the best until there are half of *n,
 * then the best of every case that is not among them, then the rest; all of these in 1F1B.
 * Behind these, where the space has schedules, come those of the best *n_scheduled by their
 * passes with the best schedule that are not among them; those whose stages alone take longer
 * than best_s, the fastest plan so far, count as in 1F1B. The first n_priced are priced, on
 * the threads of pool. order: room for all; *n and *n_scheduled of them are filled, fewer if
 * there are fewer. short_s: what the best takes in 1F1B; untouched without these.
 */
MIST_MUST_CHECK enum mist_status
mist_validate_choose(const struct mist_validate_config *config,
                     const struct mist_search_result *of, struct mist_thread_pool *pool,
                     double best_s, size_t n_priced, size_t *n, size_t *n_scheduled,
                     size_t *order, double *short_s, struct mist_err *err);

/* Moves the first plan of every kind (number of micro-batches, meshes of the stages) to the
 * front; else the order stays. */
void mist_validate_vary(struct mist_validated *plans, size_t n);

/* Appends a plan that was looked at to its list, which owns its plan then: it becomes NULL.
 * Where a list is long, plans leave it that config->n_best have no need of. MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status
mist_validate_add(const struct mist_validate_config *config,
                  struct mist_validate_result *result, struct mist_validated *plan,
                  struct mist_err *err);

/* Sorts the plans and keeps n at the most: half of them the best, with the simplest that is
 * no slower than slower_frac, then the best of every kind, then the rest; by time again. */
void mist_validate_keep(struct mist_validate_result *result, size_t n,
                        double slower_frac);

/* Differs where the stages of candidates or their numbers of micro-batches do. */
uint64_t mist_validate_hash(const struct mist_search_candidate *candidate);

/* A candidate as a plan; predicted holds t and d of the stages only. */
void mist_validate_make_plan(const struct mist_validate_config *config,
                             const struct mist_search_candidate *candidate,
                             struct mist_plan *out);

/* A stage of a plan as the search knows it, without prices. */
struct mist_search_choice mist_validate_choice(const struct mist_stage_plan *stage);

/* Gives a plan that has its model and job the trace set, limit of memory and fingerprint of
 * config. */
void mist_validate_set_cluster(const struct mist_validate_config *config,
                               struct mist_plan *plan);

/* Gives a plan the next pipeline schedule, or the next number of chunks, that it can have and
 * the bounds allow. False: there is none, and what the plan has then is none of these. */
bool mist_validate_next_pipeline(const struct mist_space *space, struct mist_plan *plan);

/* Gives a plan in 1F1B the first pipeline schedule that the bounds allow, if there is one. */
void mist_validate_set_allowed_pipeline(const struct mist_space *space,
                                        struct mist_plan *plan);

/* Gives a plan another pipeline schedule; n_chunks is for those that leave it open. The
 * passes of an automatic one are all alike until the plan is validated. False (the plan is
 * untouched): mist_plan_check() would refuse it. */
bool mist_validate_set_pipeline(struct mist_plan *plan,
                                enum mist_pipeline_schedule pipeline, int32_t n_chunks);

/*
 * Plans the memory of one plan and, if it holds, fills plan->predicted by replay (t and d
 * are left as they are). closed_bytes: [n_stages], or NULL: not known.
 */
MIST_MUST_CHECK enum mist_status
mist_validate_plan(const struct mist_validate_config *config, const int64_t *closed_bytes,
                   struct mist_validated *plan, struct mist_err *err);

/* Gives a plan that holds its best pipeline schedule, as above, and fills pipelines. best_s:
 * of the fastest plan so far. */
MIST_MUST_CHECK enum mist_status
mist_validate_pipelines(const struct mist_validate_config *config, double best_s,
                        struct mist_validated *plan, struct mist_err *err);

/* Lowers *least_s to what a plan takes by its passes with the best of the schedules that come
 * behind its own; the plan is left with any. */
MIST_MUST_CHECK enum mist_status
mist_validate_price_pipelines(const struct mist_validate_config *config,
                              struct mist_plan *plan, double *least_s,
                              struct mist_err *err);

#endif
