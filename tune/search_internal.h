/* What the files of the search share. Internal to the search_*.c files. */
#ifndef MIST_TUNE_SEARCH_INTERNAL_H
#define MIST_TUNE_SEARCH_INTERNAL_H

#include "tune/inter_stage.h"
#include "tune/search.h"

/* One kind of stage: everything it can be and what came of it. */
struct mist_search_work {
    struct mist_search_kind kind;
    int64_t limit_bytes; /* of the device arena: config's, or a constraint's */
    int32_t layers_min, layers_max;
    int32_t first, last; /* of these those that the memory leaves */
    int32_t held;        /* so many are known to be within the limits */
    double most_t_s; /* one with a larger t + d / G is not wanted; INFINITY: all are */
    const bool *is_wanted; /* borrowed; by layers; NULL: all of these are */
    /* owned, [n_options]: frontier points of all numbers of layers */
    struct mist_search_choice *choices;
    struct mist_stage_option *options; /* payload: not set */
    size_t n_options;
    /* In place of these the least of one memory that the limit of the other leaves: owned,
     * [layers_max + 1], exactly if it is above enough_bytes and within its own limit;
     * INT64_MAX: none. */
    enum mist_search_memory finds_least;
    int64_t enough_bytes;
    int64_t *least_bytes;
    bool has_prices; /* then: any can be priced */
    int64_t n_priced, n_fitting;
    struct mist_search_row *rows; /* owned, [n_rows] where asked for, else NULL */
    size_t n_rows;
};

/* Uniform plans: how many stages of a case have one choice of knobs; 1 for other plans. */
int32_t mist_search_n_alike(const struct mist_space *space,
                            const struct mist_space_case *of);

/* As the price function of config; n_alike stages as one whose (G - 1) t + t + d is the
 * time of an iteration of all, and whose memory is that of the largest. */
MIST_MUST_CHECK enum mist_status
mist_search_price_kind(const struct mist_search_config *config,
                       const struct mist_search_kind *kind,
                       const struct mist_search_columns *block, struct mist_err *err);

/* One configuration for each of the stages of a case that are alike [n_stages]. */
MIST_MUST_CHECK enum mist_status
mist_search_repeat_choice(const struct mist_search_config *config,
                          const struct mist_space_case *of,
                          struct mist_search_choice choice,
                          struct mist_search_choice *stages, struct mist_err *err);

/* Prices and filters one kind; work has the fields above choices. */
MIST_MUST_CHECK enum mist_status
mist_search_fill_work(const struct mist_space *space,
                      const struct mist_search_config *config,
                      struct mist_search_work *work, struct mist_err *err);
void mist_search_fini_work(struct mist_search_work *work);

/* Raises work->held or lowers work->last by a try whether the memory holds the share of the
 * layers that falls to the ranks of a stage; or until they are alike. Errors of the price
 * function, and MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status
mist_search_try_share(const struct mist_space *space,
                      const struct mist_search_config *config,
                      struct mist_search_work *work, struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_search_find_most(const struct mist_space *space,
                      const struct mist_search_config *config,
                      struct mist_search_work *work, struct mist_err *err);

/* Whether the stages of a case, works [n_stages * n_shapes], stage by stage, can hold all
 * layers, each its last at the most; if so, first of each is lowered to the fewest that the
 * others leave to it. */
MIST_MUST_CHECK enum mist_status
mist_search_narrow_case(const struct mist_space *space, const struct mist_space_case *of,
                        struct mist_search_work *const *works, bool *can_be,
                        struct mist_err *err);

/* Whether a configuration can be run. */
bool mist_search_is_price(double t_s, double d_s, double peak_bytes);

/* What a role and shape takes at least, by number of layers, whatever the memory. */
struct mist_search_least {
    int32_t n_micro_batches;
    enum mist_search_role role;
    struct mist_space_shape shape;
    int32_t layers_min, layers_max;
    double *t_s;     /* the floors'; [n_layers of the model + 1]; INFINITY: can't be */
    double rank_s;   /* least t times ranks per layer */
    bool *is_wanted; /* owned, likewise; set by mist_search_bounds_set() */
    bool is_new;     /* the floors had none: t_s was made now, of n_priced, maybe none */
    int64_t n_priced;
};

/* Where stages may differ in shape: no plan of so many stages is faster. */
struct mist_search_mixed {
    int32_t n_micro_batches, n_chunks;
    double *by_stages_s; /* owned, [MIST_MAX_STAGES + 1] */
};

/* Lower bounds of cases of one G. */
struct mist_search_bounds {
    const struct mist_space *space; /* set these four before init; borrowed */
    const struct mist_search_config *config;
    const struct mist_space_case *cases; /* [n_cases] */
    int32_t n_cases;
    struct mist_search_least *leasts; /* owned, sorted */
    size_t n_leasts;
    double *case_s; /* owned, [n_cases]: no plan of the case is faster */
    double least_s; /* of these */
};

/* bounds is freed by fini also after a failure. Errors of the price function, and
 * MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status
mist_search_bounds_init(struct mist_search_bounds *bounds, struct mist_err *err);
void mist_search_bounds_fini(struct mist_search_bounds *bounds);

/* Marks the numbers of layers that a plan of at most cutoff_s may have. */
void mist_search_bounds_set(struct mist_search_bounds *bounds, double cutoff_s);

/*
 * One stage more. least: what it takes, from, to: the least of what the stages so far
 * take, added up (is_sum) or the most of it; each [n_ranks + 1][n_layers + 1], by ranks
 * and layers that are used. INFINITY: impossible. O(size^2).
 */
void mist_search_add_stage(const struct mist_space *space, const double *least,
                           const double *from, double *to, bool is_sum);

/* NULL: no case has it. */
const struct mist_search_least *
mist_search_find_least(const struct mist_search_bounds *bounds,
                       enum mist_search_role role, const struct mist_space_shape *shape);

/* One case while its batch is worked on. */
struct mist_search_solved {
    /* owned, [n_stages * n_shapes], stage by stage; NULL: not allowed there */
    struct mist_search_work **works;
    bool can_be;                              /* by its memory */
    struct mist_search_candidate *candidates; /* owned; i_case is not set */
    struct mist_search_choice *stages;        /* owned; [n_candidates * n_stages] */
    size_t n_candidates;
    int64_t closest_bytes; /* of works that find the least memory */
    bool is_done;          /* false: the search was stopped before */
    struct mist_search_glpk glpk;
};

/* Fills candidates, best first (none: no plan of at most cutoff_s), and glpk; works is
 * set. */
MIST_MUST_CHECK enum mist_status
mist_search_solve_case(const struct mist_space *space,
                       const struct mist_search_config *config,
                       const struct mist_space_case *of, double cutoff_s,
                       struct mist_search_solved *out, struct mist_err *err);

/* Least over all plans of a case of the largest of what its stages need at the least;
 * INT64_MAX: no plan. works: [n_stages * n_shapes], stage by stage. *out set on MIST_OK. */
MIST_MUST_CHECK enum mist_status
mist_search_closest_of(const struct mist_space *space, const struct mist_space_case *of,
                       struct mist_search_work *const *works, int64_t *out,
                       struct mist_err *err);

#endif
