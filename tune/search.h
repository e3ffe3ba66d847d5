/*
 * The hierarchical search: from prices of single stages to the best plans of the space.
 *
 * For each case of the space (G, number of stages, shapes) and each different kind of
 * stage in it (role, micro-batches in flight, b, shape):
 *   1. all (layers, checkpointed and lean layers, ZeRO) without offloading are priced in one
 *      block;
 *   2. what passes a memory limit goes;
 *   3. of the rest the exact Pareto frontier over (t, d) is kept for every number of
 *      layers;
 *   4. offloading: what was over the limit, and would be on the frontier otherwise, is
 *      priced again with the four ratios in steps of 1/8, all of which are looked at by
 *      branch and bound: of a box of ratios nothing is left out that might come onto the
 *      frontier as long as nothing gets faster or larger when a ratio rises further above
 *      its least (search_offload.c). Where the space allows it, each of these that
 *      offloads optimizer state is priced with the update on the device and on the host.
 *      What fits without offloading is never offloaded: that only costs time;
 *   5. frontiers are thinned out above max_points;
 *   6. the exact solver (inter_stage.h) picks layers, shape and a point for every stage:
 *      the n_best splits of the case.
 * The candidates of all cases are then sorted. As every step is exact (max_points 0 or
 * not reached), candidate 0 is the optimum over all plans of the space by the closed form
 *
 *     (G - 1) max_i t_i + sum_i t_i + max(0, max_i (d_i - sum_{j<i} t_j)).
 *
 * Chunks. Where a stage hands on after each of v chunks of its layers, what a micro-batch takes
 * to the last stage and back is that much shorter,
 *
 *     (G - 1 / v) max_i t_i + sum_i t_i / v + max(0, max_i (d_i - sum_{j<i} t_j / v)),
 *
 * which is the formula above, for v G micro-batches and v d_i, over v. Whether layers divide is
 * not asked, as it stands for all schedules with smaller gaps than 1F1B.
 *
 * Bounds. With slack_frac > 0 candidates slower than (1 + slack_frac) times the best are
 * not wanted. Equal layers and one shape for all stages are searched first, then any
 * layers, then the whole space, the most promising G first, so a good plan is known
 * early; from then on a configuration is left out when G t + d is above that, a number of
 * layers when the ranks it leaves can't run the layers it leaves in that time, and a case
 * when its least sum and least maximum of t can't be.
 * These are lower bounds of the formula, so the candidates within the slack are those of
 * the search without bounds; they need prices whose t and d do not depend on in_flight.
 *
 * Where time leaves out little, the limits of memory are looked at first (search_narrow.c):
 * how many layers a kind of stage holds at the most, and from these the cases that have no
 * plan, and the numbers of layers that are too few or too many for one.
 *
 * The limits are those of the device arena of a rank, which the memory planner lays out
 * and the executor allocates, and of its host arena; the closed form estimates both.
 *
 * Prices come through a function, so that the search can be tested without a cost model.
 * The result does not depend on the number of threads. With GLPK, its environment is
 * freed in every thread that took part, the caller's included.
 */
#ifndef MIST_TUNE_SEARCH_H
#define MIST_TUNE_SEARCH_H

#include "core/memory.h"
#include "core/progress.h"
#include "core/status.h"
#include "core/thread_pool.h"
#include "tune/constraint.h"
#include "tune/space.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mist_search_role {
    MIST_SEARCH_ONLY,  /* embedding and head: one stage */
    MIST_SEARCH_FIRST, /* embedding */
    MIST_SEARCH_MIDDLE,
    MIST_SEARCH_LAST, /* head */
    MIST_N_SEARCH_ROLES
};

const char *mist_search_role_name(enum mist_search_role role); /* "first" */

/* The role of a stage and how many micro-batches it has in flight in 1F1B. */
enum mist_search_role mist_search_stage_role(int32_t n_stages, int32_t i_stage);

/* What is common to all configurations of a block. */
struct mist_search_kind {
    enum mist_search_role role;
    int32_t in_flight;       /* P: activations kept at the peak, <= G */
    int32_t n_micro_batches; /* G */
    int32_t micro_batch;     /* b */
    struct mist_space_shape shape;
    int32_t n_alike; /* so many stages, from this first one on, are priced as one; 1 */
};

/* A stage of a plan, by itself. */
struct mist_search_kind mist_search_stage_kind(int32_t n_micro_batches, int32_t n_stages,
                                               int32_t i_stage, int32_t micro_batch,
                                               struct mist_space_shape shape);

enum { MIST_SEARCH_N_COLUMNS = 9 + MIST_N_OFFLOADS };

/* Configurations in columns and their prices; all [capacity], the first n are used. Whole
 * numbers but the ratios, 0 .. 1. */
struct mist_search_columns {
    union {
        double *all[MIST_SEARCH_N_COLUMNS];
        struct {
            double *n_layers, *n_checkpointed, *n_lean, *zero; /* zero: 0 .. 3 */
            double *offload[MIST_N_OFFLOADS];
            double *on_host;   /* 1: offloaded optimizer state is updated there */
            double *t_s, *d_s; /* not finite: can't be run, dropped */
            double *peak_bytes, *host_bytes; /* arenas of a rank */
        };
    };
    size_t n, capacity;
};

/* Fills in the prices of columns, and leaves the rest alone. Called from many threads at once. t and d do not depend on
 * kind->in_flight, and nothing gets faster when a ratio or n_lean rises. With a layer more,
 * checkpointed or not, neither arena gets smaller. */
typedef enum mist_status mist_search_price(void *context,
                                           const struct mist_search_kind *kind,
                                           const struct mist_search_columns *block,
                                           struct mist_err *err);

/* Knobs of a configuration beside its layers. */
struct mist_search_knobs {
    int32_t n_checkpointed, n_lean, zero; /* layers below 2^20 */
    int8_t offload[MIST_N_OFFLOADS];      /* in units of 1 / MIST_RATIO_ONE */
    bool updates_on_host;                 /* with offloaded optimizer state */
};

/* One configuration of a stage with its prices. */
struct mist_search_choice {
    struct mist_space_shape shape;
    int32_t n_layers, micro_batch;
    struct mist_search_knobs knobs;
    double t_s, d_s;
    int64_t peak_bytes, host_bytes;
};

/* A plan as the search knows it. */
struct mist_search_candidate {
    double time_s; /* closed form */
    int32_t i_case, n_micro_batches;
    int32_t n_stages;
    const struct mist_search_choice *stages; /* [n_stages], in the result's arena */
};

struct mist_search_rows;

enum mist_search_fate {
    MIST_FATE_FRONTIER,
    MIST_FATE_OVER_LIMIT, /* of memory */
    MIST_FATE_DOMINATED,  /* another one has no larger t and d */
    MIST_FATE_TOO_SLOW,   /* for the slack */
    MIST_FATE_THINNED,    /* on the frontier, but that had too many points */
    MIST_FATE_NO_PRICE,   /* not finite */
};

/* One priced configuration; for the search log. Offloaded ones have a row when they are
 * on a frontier. */
struct mist_search_row {
    struct mist_search_kind kind;
    struct mist_search_choice choice; /* prices 0: not finite */
    enum mist_search_fate fate;
    int32_t better_checkpointed, better_zero; /* DOMINATED: by this one of the frontier */
};

/* Who solves step 6. Both: exactly, and again by GLPK to compare. */
enum mist_search_solver {
    MIST_SOLVER_EXACT,
    MIST_SOLVER_GLPK, /* one split per case; those that take too long are left out */
    MIST_SOLVER_BOTH,
};

/* Under side constraints: how much faster than the best candidate a plan may be at the most
 * by what is proven, of its time; 0: it is the optimum. NAN: there is no candidate. */
struct mist_search_result;
double mist_search_gap_frac(const struct mist_search_result *result);

/* GLPK's part; a case is left alone after the time limit. */
struct mist_search_glpk {
    int32_t n_cases;   /* given to GLPK */
    int32_t n_optimal; /* solved to the end, infeasible ones included */
    int32_t n_differ;  /* of these, further than 1e-6 of the time from the exact solver */
    double worst_frac; /* largest relative difference of an optimal one */
    double bound_s;    /* under side constraints: what no plan is faster than of the cases
                          that are not solved to the end; INFINITY: all are */
};

/* What stages take at least, whatever the limits; all zero at first. Kept from search to
 * search of one model, job and price whose spaces are part of the first one's, it is
 * priced once. */
struct mist_search_floors {
    struct mist_search_least *leasts; /* owned; sorted */
    size_t n, capacity;
    struct mist_search_mixed *mixed; /* owned */
    size_t n_mixed, mixed_capacity;
};
void mist_search_floors_fini(struct mist_search_floors *floors);

struct mist_search_config {
    int64_t limit_bytes;      /* of the device arena; INT64_MAX: none */
    int64_t host_limit_bytes; /* of the host arena of a rank; INT64_MAX: none */
    int64_t node_host_bytes;  /* in its place, of those of a stage on a node; 0: none */
    double slack_frac; /* how much slower than the best a candidate may be; 0: any */
    double cutoff_s;   /* with a slack: slower ones are not wanted, either; 0: any */
    int32_t n_chunks;  /* of a stage, as above; 0: 1 */
    size_t n_best;     /* splits kept per case, >= 1 */
    size_t max_points; /* of a frontier; 0: all */
    struct mist_search_floors *floors; /* borrowed; NULL: of this search alone */
    struct mist_search_rows *rows;     /* borrowed, open (search_rows.h); NULL: none */
    const struct mist_constraints *constraints; /* borrowed; NULL: none */
    enum mist_search_solver solver;
    double glpk_time_limit_s; /* per case; > 0 when GLPK is asked for */
    mist_search_price *price;
    void *price_context;
    struct mist_thread_pool *pool;  /* borrowed */
    struct mist_progress *progress; /* borrowed; NULL: none */
    const atomic_int *is_over;      /* not 0: stop with what there is; NULL: never */
};

struct mist_search_result {
    /* Owned; by time_s, ties by case and order. */
    struct mist_search_candidate *candidates;
    size_t n_candidates;
    int64_t n_priced;     /* configurations */
    int64_t n_fitting;    /* of these within the limit */
    int64_t n_frontier;   /* of these on a frontier */
    int32_t n_cases_done; /* all, unless stopped */
    bool has_more;        /* some case may have more than n_best splits */
    struct mist_search_glpk glpk;
    struct mist_arena arena;
};

/*
 * Searches the whole space. result is filled on MIST_OK (no candidate is MIST_OK, too)
 * and freed by mist_search_result_fini; untouched otherwise. Errors: those of the price
 * function, MIST_ERR_RANGE, MIST_ERR_MEMORY; MIST_ERR_IO of the rows.
 */
MIST_MUST_CHECK enum mist_status mist_search_run(const struct mist_space *space,
                                                 const struct mist_search_config *config,
                                                 struct mist_search_result *result,
                                                 struct mist_err *err);
void mist_search_result_fini(struct mist_search_result *result);

enum mist_search_memory {
    MIST_SEARCH_NO_MEMORY,
    MIST_SEARCH_DEVICE_MEMORY, /* the device arena of a rank */
    MIST_SEARCH_HOST_MEMORY,   /* and its host arena */
};

/* What plans need of one memory at the least. */
struct mist_search_closest {
    int64_t bytes; /* the largest arena of a stage; INT64_MAX: there is no plan */
    int32_t n_stages, n_micro_batches; /* of a plan of so many bytes */
};

/* Where no plan keeps to the limits of config: of plans that keep to the other limit of a
 * rank, side constraints aside. Errors as mist_search_run(). */
MIST_MUST_CHECK enum mist_status
mist_search_find_closest(const struct mist_space *space,
                         const struct mist_search_config *config,
                         enum mist_search_memory memory, struct mist_search_closest *out,
                         struct mist_err *err);

/* Fills in what the price function of config says of a choice. */
MIST_MUST_CHECK enum mist_status
mist_search_price_choice(const struct mist_search_config *config,
                         const struct mist_search_kind *kind,
                         struct mist_search_choice *choice, struct mist_err *err);

/*
 * All that a stage of kind with n_layers can choose from under the limits of config, however
 * slow: its frontier by rising t, at most max_points of it. *out (owned by the caller) and *n
 * are set on MIST_OK. Errors as mist_search_run().
 */
MIST_MUST_CHECK enum mist_status
mist_search_frontier(const struct mist_space *space,
                     const struct mist_search_config *config,
                     const struct mist_search_kind *kind, int32_t n_layers,
                     struct mist_search_choice **out, size_t *n, struct mist_err *err);

/* The closed form above for stages [n_stages] of n_chunks, last digit included. */
double mist_search_time_s(int32_t n_micro_batches, int32_t n_chunks, int32_t n_stages,
                          const struct mist_search_choice *stages);

#endif
