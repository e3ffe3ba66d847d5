/*
 * One kind of stage while its frontiers are made: blocks of configurations are priced and
 * merged. Internal to search_stage.c, which says what is priced, search_offload.c and
 * search_filling.c.
 */
#ifndef MIST_TUNE_SEARCH_FILLING_H
#define MIST_TUNE_SEARCH_FILLING_H

#include "tune/pareto.h"
#include "tune/search_columns.h"
#include "tune/search_internal.h"

enum { MIST_SEARCH_BLOCK = 4096 }; /* configurations priced at once */

struct mist_search_filling {
    const struct mist_space *space;
    const struct mist_search_config *config;
    struct mist_search_work *work;
    struct mist_knob_range ratios[MIST_N_OFFLOADS]; /* of offloading; may be empty */
    /* everything that is not offloaded further than it has to, by layers, C, Z; from
     * first_lean on once more what is lean beside */
    struct mist_search_columns base;
    size_t first_lean;
    struct mist_search_columns block;       /* what is to be priced next */
    struct mist_pareto_frontier *frontiers; /* [layers_max + 1] */
    struct mist_pareto_point *points;       /* [MIST_SEARCH_BLOCK] scratch */
    struct mist_err *err;
};

/* Fills in the prices of columns from row first on. */
MIST_MUST_CHECK enum mist_status
mist_search_price_columns(struct mist_search_filling *at,
                          struct mist_search_columns *columns, size_t first);

/* Takes priced columns from row first on, those of one number of layers in a row, into the
 * frontiers. */
MIST_MUST_CHECK enum mist_status
mist_search_merge_columns(struct mist_search_filling *at,
                          const struct mist_search_columns *from, size_t first);

/* The limits of the arenas of a rank; where the least of one is looked for, below what was
 * found of so many layers. */
int64_t mist_search_device_limit(const struct mist_search_filling *at, int32_t n_layers);
int64_t mist_search_host_limit(const struct mist_search_filling *at, int32_t n_layers);

/* Whether a priced row can be run, whether the host holds what it takes of it, and whether
 * it fits into both limits. */
bool mist_search_is_priced(const struct mist_search_columns *from, size_t i);
bool mist_search_is_held(const struct mist_search_filling *at,
                         const struct mist_search_columns *from, size_t i);
bool mist_search_fits(const struct mist_search_filling *at,
                      const struct mist_search_columns *from, size_t i);

/* Whether a stage of t and d may be part of a plan within the cutoff, which takes G t + d at
 * least. */
bool mist_search_is_fast(const struct mist_search_work *work, double t_s, double d_s);

/* Whether a row of the base may be worth saving memory: it can be run, is over the limit,
 * and would be on the frontier if it were not. Any that can be run, for the least memory. */
bool mist_search_is_open(const struct mist_search_filling *at, size_t i);

/* Whether more is offloaded than has to be. */
bool mist_search_offloads(const struct mist_search_filling *at,
                          const struct mist_search_knobs *knobs);

/* What the solver is to see of a configuration. */
struct mist_pareto_point mist_search_make_point(const struct mist_search_columns *from,
                                                size_t i);

/* Step 4 (search.h): offloads what does not fit otherwise; the base has been merged. */
MIST_MUST_CHECK enum mist_status mist_search_offload(struct mist_search_filling *at);

#endif
