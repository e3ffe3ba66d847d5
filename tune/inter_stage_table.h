/*
 * The dynamic programme behind inter_stage.h, for one bound tau on max t. Internal to
 * inter_stage.c and inter_stage_paths.c.
 *
 * Beside layers, devices are used up and rows are to be kept to: their sums so far are the
 * states of inter_stage_rows.h, numbered over all stages, from 0, where nothing is placed, to
 * the only one after the last stage. The options of a stage with equal layers and equal
 * coefficients form a group, an exact Pareto frontier sorted by rising t, falling d; it leads
 * from states before its stage to states after it, by an edge each. From a prefix of cost c the best of the group's
 * points with t <= tau is found without trying them all: of the points with d <= c the
 * first costs least (c + t), of those before it the one with the least t + d, and that is
 * a running minimum.
 */
#ifndef MIST_TUNE_INTER_STAGE_TABLE_H
#define MIST_TUNE_INTER_STAGE_TABLE_H

#include "tune/inter_stage_rows.h"

struct mist_stage_group {
    int32_t n_layers; /* placed by every option of the group */
    int32_t i_class;  /* of its coefficients, among those of the stage */
    size_t first;     /* of its points, in the arrays of the table */
    int32_t n_points; /* >= 1 */
    int32_t n_usable; /* points with t <= tau, a prefix; set by fill */
};

struct mist_stage_edge {
    size_t i_group, from; /* the state it comes from */
};

struct mist_stage_table {
    struct mist_arena arena; /* owns all below */
    int32_t n_stages, n_layers;
    double weight_t; /* G - 1 */
    struct mist_stage_rows rows;

    struct mist_stage_group *groups; /* by stage, then layers, then class */
    size_t *group_first; /* [S + 1]: stage i (0-based) has [i] .. [i + 1] - 1 */
    int32_t **i_group;   /* [S] of every option of a stage that may be chosen */
    size_t n_points;
    double *t_s, *d_s; /* [n_points] */
    double *
        lead_s; /* [n_points] least t + d of the group's points up to and with this one */
    int32_t *i_option; /* [n_points] in the stage's options */
    double *tau_s;     /* [n_tau] the different t, rising */
    size_t n_tau;

    size_t *state_first;           /* [S + 2]: after i stages come [i] .. [i + 1] - 1 */
    struct mist_stage_edge *edges; /* by the state they lead to, then group, then from */
    size_t *edge_first; /* [states + 1]: into state s lead [s] .. [s + 1] - 1 */

    /* Per number of stages placed 0..S: the layers that a full solution can have there. */
    int32_t *layers_low, *layers_high;
    size_t n_cells; /* of all states: states (L + 1) */
    double *cost_s; /* [n_cells] least C_i, INFINITY where none or not worth it */
    double *rest_s; /* [n_cells] least sum of t of the stages left, or INFINITY */
};

/*
 * Groups, filters and sorts the options and fills rest_s. problem must have passed
 * mist_inter_stage_check(). On failure nothing is left to free. Errors as
 * mist_inter_stage_solve().
 */
enum mist_status mist_stage_table_init(struct mist_stage_table *table,
                                       const struct mist_inter_stage_problem *problem,
                                       struct mist_err *err) MIST_MUST_CHECK;
void mist_stage_table_fini(struct mist_stage_table *table);

/*
 * Fills cost_s with all t <= tau_s. Prefixes that can't be completed to a C_S <= limit_s
 * (INFINITY: no limit) may be left out; all others are exact. Returns C_S of the best,
 * INFINITY when none.
 */
double mist_stage_table_fill(struct mist_stage_table *table, double tau_s,
                             double limit_s);

/* Index in cost_s and rest_s. */
static inline size_t mist_stage_table_cell(const struct mist_stage_table *table,
                                           size_t state, int32_t layers)
{
    return state * ((size_t)table->n_layers + 1) + (size_t)layers;
}

/* Least C after the group's stage from a prefix of cost c_s;
 * INFINITY when no point is usable. */
double mist_stage_group_cost(const struct mist_stage_table *table,
                             const struct mist_stage_group *group, double c_s);

#endif
