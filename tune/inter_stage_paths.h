/*
 * The solutions of a filled table in rising order of C_S, one after the other. Internal
 * to inter_stage.c.
 *
 * The recursive enumeration of Jimenez and Marzal (1999), which needs only that the cost
 * of a path rises with the cost of its prefix: the next best path to a cell is the best
 * of, per edge into it, the next unused path to the edge's origin. Paths are worked out
 * only to the cells that are asked for, so K solutions cost about K S cells. The best option
 * of an edge's group follows from the cost of the prefix.
 */
#ifndef MIST_TUNE_INTER_STAGE_PATHS_H
#define MIST_TUNE_INTER_STAGE_PATHS_H

#include "tune/inter_stage_table.h"

#include <stdbool.h>

struct mist_stage_path_node;
struct mist_stage_path_candidate;

struct mist_stage_paths {
    const struct mist_stage_table *table; /* borrowed, filled */
    int32_t n_best;                       /* paths ever asked for */
    double limit_s;                       /* on C_S */
    struct mist_arena arena;              /* nodes, of one tau */
    struct mist_stage_path_node **node;   /* [n_cells], NULL where not visited */
    struct mist_stage_path_node *newest;
    struct mist_stage_path_candidate *scratch;
    size_t scratch_capacity;
    bool out_of_memory;
};

/* table must be initialised and outlive paths.
 * MIST_OK or MIST_ERR_MEMORY (nothing to free). */
enum mist_status mist_stage_paths_init(struct mist_stage_paths *paths,
                                       const struct mist_stage_table *table,
                                       const struct mist_inter_stage_config *config,
                                       struct mist_err *err) MIST_MUST_CHECK;
void mist_stage_paths_fini(struct mist_stage_paths *paths);

/* Forgets all paths; to be called after each fill, with the same limit. */
void mist_stage_paths_restart(struct mist_stage_paths *paths, double limit_s);

/*
 * The solution number rank = 0, 1, .. (in this order, below n_best) of the filled table.
 *
 * i_option   [S], filled when the solution exists.
 * *c_s       its C_S; INFINITY when there is no such solution at or below the limit.
 *
 * Returns MIST_OK or MIST_ERR_MEMORY.
 */
enum mist_status mist_stage_paths_get(struct mist_stage_paths *paths, int32_t rank,
                                      int32_t *i_option, double *c_s,
                                      struct mist_err *err) MIST_MUST_CHECK;

#endif
