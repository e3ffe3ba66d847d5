/*
 * Side constraints as states of the dynamic programme of inter_stage_table.h: what the sums
 * of the rows can be after each stage. Internal to inter_stage_table.c.
 *
 * A row bounds a sum of coefficients of the chosen options; the budget of devices is one,
 * too. Beside the layers that are placed, all that the stages left have to know of those so
 * far is the vector of these sums, and it takes few values:
 *   - options of a stage with the same coefficients are one class;
 *   - a row that holds whatever the stages left choose is settled, and its sum is forgotten;
 *   - a vector with a row that no stage left can save is no state.
 * A row about one stage alone is no sum at all: it leaves options of that stage out.
 */
#ifndef MIST_TUNE_INTER_STAGE_ROWS_H
#define MIST_TUNE_INTER_STAGE_ROWS_H

#include "core/memory.h"
#include "tune/inter_stage.h"

struct mist_stage_rows {
    const struct mist_inter_stage_problem *problem; /* borrowed */
    struct mist_arena *arena;                       /* borrowed; has all below */
    int32_t n_sums;                                 /* rows that tie stages together */
    double *lower, *upper;                          /* [n_sums] */
    int32_t *sum_of;      /* [n_rows] the row's; -1: it is about one stage alone */
    size_t *next_term;    /* [n_rows] the first of the stages that have no classes yet */
    int32_t *n_classes;   /* [S] */
    double **classes;     /* [S], each [n_classes][n_sums], rising */
    int32_t *n_states;    /* [S + 1] after so many stages; 1 before the first */
    const int32_t **next; /* [S], each [n_states][n_classes]: a state of the next stage;
                                -1: there is none */
};

/* problem must have passed mist_inter_stage_check(). MIST_ERR_NO_PLAN: a row that no choice
 * can keep to; MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status
mist_stage_rows_init(struct mist_stage_rows *rows,
                     const struct mist_inter_stage_problem *problem,
                     struct mist_arena *arena, struct mist_err *err);

/* The classes of a stage's options, i_class [n_options]; -1: it may not be chosen. Stages
 * come in order, from the first to the last. */
MIST_MUST_CHECK enum mist_status mist_stage_rows_classify(struct mist_stage_rows *rows,
                                                          int32_t i_stage,
                                                          int32_t *i_class,
                                                          struct mist_err *err);

/* Fills n_states and next, when all stages have their classes. MIST_ERR_NO_PLAN: no choice
 * keeps to the rows; MIST_ERR_RANGE: more than n_most states; MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status
mist_stage_rows_link(struct mist_stage_rows *rows, int64_t n_most, struct mist_err *err);

#endif
