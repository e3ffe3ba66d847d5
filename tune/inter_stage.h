/*
 * The exact optimum across stages: how many layers (and devices) each pipeline stage
 * gets, and which of its configurations it runs.
 *
 * Stages 1..S in order; stage i offers options (layers, devices, t, d). One option per
 * stage is chosen so that the layers add up to L and the devices to D, and the iteration
 * time
 *
 *     (G - 1) max_i t_i + sum_i t_i + max(0, max_i (d_i - sum_{j<i} t_j))
 *
 * is least (the objective of Mist, EuroSys 2025). The last two terms are C_S of the
 * recursion C_i = t_i + max(C_{i-1}, d_i), C_0 = 0: unrolled, C_S = max(sum_j t_j, max_i
 * (d_i + sum_{j>=i} t_j)), and taking sum_j t_j out leaves the formula. C_i rises with
 * C_{i-1}, so for a fixed bound tau on max t the least C_i per (stage, layers placed,
 * devices used) is all a dynamic programme has to keep. g(tau), the least C_S with every
 * t <= tau, falls as tau grows, so between two values of tau that are solved no solution
 * is below (G - 1) (next tau above the lower one) + g(the upper one): branch and bound
 * over tau, by halves, solves a few dozen of the thousands of different t.
 *
 * Every comparison uses the same floating-point operations as mist_inter_stage_time(),
 * and these are monotone, so the optimum is exact to the last bit: no other choice of
 * options has a lower mist_inter_stage_time().
 *
 * Side constraints are rows: bounds of sums of coefficients of the chosen options. The
 * programme keeps their sums beside the layers placed, as far as these may still matter
 * (inter_stage_rows.h). Where they take too many values, inter_stage_glpk.h is left.
 */
#ifndef MIST_TUNE_INTER_STAGE_H
#define MIST_TUNE_INTER_STAGE_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

#define MIST_INTER_STAGE_ANY_DEVICES (-1)

struct mist_stage_option {
    int32_t n_layers;  /* >= 0 */
    int32_t n_devices; /* >= 0; not looked at when devices are not budgeted */
    double t_s;        /* stable micro-batch, seconds, finite, >= 0 */
    double d_s;        /* extra of first and last micro-batch, seconds, finite, signed */
    int64_t payload;   /* the caller's; not looked at */
};

/* One coefficient of a row: of options[i_stage][i_option], if that is chosen. */
struct mist_inter_stage_term {
    int32_t i_stage;
    int32_t i_option;
    double coefficient; /* finite */
};

/* lower <= sum of coefficients of the chosen options <= upper. */
struct mist_inter_stage_row {
    const char *name; /* for messages; may be NULL */
    double lower;     /* -INFINITY: none */
    double upper;     /* INFINITY: none; equal to lower for an equation */
    size_t n_terms;
    /* [n_terms], by stage and option, rising */
    const struct mist_inter_stage_term *terms;
};

/* Everything is borrowed. */
struct mist_inter_stage_problem {
    int32_t n_stages;        /* S >= 1 */
    int32_t n_layers;        /* L >= 0, to be used up exactly */
    int32_t n_devices;       /* D, used up exactly, or ..._ANY_DEVICES */
    int64_t n_micro_batches; /* G >= 1 */
    const struct mist_stage_option *const
        *options;                            /* [S], each [n_options[i]], any order */
    const size_t *n_options;                 /* [S]; 0 is allowed and has no solution */
    const struct mist_inter_stage_row *rows; /* [n_rows] side constraints */
    size_t n_rows;
};

struct mist_inter_stage_config {
    size_t n_best;   /* K >= 1 solutions wanted; two differ where some stage has another
                        number of layers or (budgeted) devices, or another coefficient
                        in a row that ties stages together */
    double cutoff_s; /* slower solutions are not wanted; 0: all are */
};

struct mist_inter_stage_solution {
    double time_s;     /* mist_inter_stage_time() of i_option */
    int32_t *i_option; /* [S] index into options[i] */
};

struct mist_inter_stage_result {
    /* Rising time; ties by i_option, first stage first. */
    struct mist_inter_stage_solution *solutions;
    size_t n_solutions;  /* 1 .. n_best */
    size_t n_tau;        /* different t of the options that no other one dominates */
    size_t n_tau_solved; /* dynamic programmes run */
};

/* MIST_OK, or MIST_ERR_INPUT naming the field, the stage and option or the row that is out
 * of bounds. */
enum mist_status mist_inter_stage_check(const struct mist_inter_stage_problem *problem,
                                        struct mist_err *err) MIST_MUST_CHECK;

/* The recursion above, stage by stage, and the time of the stages so far. */
struct mist_pipeline_sum {
    double c_s, t_most_s; /* C_i, max t; 0 at the beginning */
};

static inline void mist_pipeline_sum_add(struct mist_pipeline_sum *sum, double t_s,
                                         double d_s)
{
    sum->c_s = t_s + (sum->c_s > d_s ? sum->c_s : d_s);
    sum->t_most_s = t_s > sum->t_most_s ? t_s : sum->t_most_s;
}

static inline double mist_pipeline_sum_s(const struct mist_pipeline_sum *sum,
                                         int64_t n_micro_batches)
{
    return (double)(n_micro_batches - 1) * sum->t_most_s + sum->c_s;
}

/*
 * The iteration time in seconds of a choice of options, by the recursion above. i_option:
 * [S]. Does not check the sums of layers and devices, nor rows.
 */
double mist_inter_stage_time(const struct mist_inter_stage_problem *problem,
                             const int32_t *i_option);

/*
 * Finds the K best distinct solutions.
 *
 * result   filled on MIST_OK (free with mist_inter_stage_result_fini), untouched
 * otherwise.
 *
 * What is guaranteed. An option is dominated when another one of its stage with the same
 * layers, devices and coefficients is not worse in t and d (of equal ones, all but the first
 * are); dominated options are never used. The times returned are the K lowest over all splits
 * of layers, devices and coefficients, each represented by a choice of options that is
 * optimal for it (fewer only if fewer splits exist). solutions[0] is an optimum of the whole
 * problem. Where several solutions tie with the K-th time, which of them are in the list
 * is not specified, but is always the same for the same input.
 *
 * Returns MIST_OK; MIST_ERR_INPUT (mist_inter_stage_check, n_best 0); MIST_ERR_NO_PLAN
 * (no choice uses up layers and devices exactly and keeps to the rows, or none within the
 * cutoff); MIST_ERR_RANGE (the table has over 2^31 cells, or 2^22 with rows);
 * MIST_ERR_MEMORY. One dynamic programme is O(S L x states x lengths x classes), whatever
 * the number of points per length; states are devices used, classes device counts where
 * there are no rows.
 */
enum mist_status mist_inter_stage_solve(const struct mist_inter_stage_problem *problem,
                                        const struct mist_inter_stage_config *config,
                                        struct mist_inter_stage_result *result,
                                        struct mist_err *err) MIST_MUST_CHECK;

void mist_inter_stage_result_fini(struct mist_inter_stage_result *result);

#endif
