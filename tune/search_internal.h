/* What the files of the search share. Internal to the search_*.c
 * files. */
#ifndef MIST_TUNE_SEARCH_INTERNAL_H
#define MIST_TUNE_SEARCH_INTERNAL_H

#include "tune/inter_stage.h"
#include "tune/search.h"

/* One kind of stage: everything it can be and what came of it. */
struct mist_search_work {
    struct mist_search_kind kind;
    int32_t layers_min, layers_max;
    /* owned, [n_options]: frontier points of all numbers of layers */
    struct mist_search_choice *choices;
    struct mist_stage_option *options; /* payload: not set */
    size_t n_options;
    int64_t *least_bytes; /* owned, [layers_max + 1]; INT64_MAX: can't be */
    int64_t n_priced, n_fitting;
    struct mist_search_row *rows; /* owned, [n_priced] where asked for, else NULL */
};

/* Prices and filters one kind; work has kind, layers_min and layers_max. */
MIST_MUST_CHECK enum mist_status
mist_search_fill_work(const struct mist_space *space,
                      const struct mist_search_config *config,
                      struct mist_search_work *work, struct mist_err *err);
void mist_search_fini_work(struct mist_search_work *work);

/* One case while its batch is worked on. */
struct mist_search_solved {
    const struct mist_search_work **works; /* owned, [n_stages * n_dps], stage by stage */
    struct mist_search_candidate *candidates; /* owned; i_case is not set */
    struct mist_search_choice *stages;        /* owned; [n_candidates * n_stages] */
    size_t n_candidates;
    int64_t closest_bytes;
    bool is_done; /* false: the search was stopped before */
    struct mist_search_glpk glpk;
};

/* Fills candidates, best first (none: no plan), and glpk; works is set. */
MIST_MUST_CHECK enum mist_status
mist_search_solve_case(const struct mist_space *space,
                       const struct mist_search_config *config,
                       const struct mist_space_case *of, struct mist_search_solved *out,
                       struct mist_err *err);

/*
 * Least over all plans of a case of the largest peak of a stage, whatever the limit;
 * INT64_MAX: no plan. works: [n_stages * n_dps], stage by stage. *out set on MIST_OK.
 */
MIST_MUST_CHECK enum mist_status
mist_search_find_closest(const struct mist_space *space, const struct mist_space_case *of,
                         const struct mist_search_work *const *works, int64_t *out,
                         struct mist_err *err);

#endif
