/*
 * The problem of inter_stage.h as a mixed-integer linear programme, solved by GLPK.
 *
 * As an independent check of the exact solver, and for side constraints that tie stages
 * together in more ways than that can take.
 * Binaries z_{i,o} choose; with t_i = sum_o t_{i,o} z_{i,o} and d_i likewise:
 *
 *     minimise (G - 1) T + sum_i t_i + M
 *     sum_o z_{i,o} = 1,  sum n_layers z = L,  sum n_devices z = D (if budgeted)
 *     T >= t_i,  M >= d_i - sum_{j<i} t_j,  M >= 0,  the rows
 *
 * GLPK works in floating point with a tolerance of about 1e-7 of the largest time. The
 * time reported is therefore not GLPK's but mist_inter_stage_time() of the options
 * chosen; "optimal" means optimal within that tolerance. Far slower than the exact
 * solver: seconds to hours beyond a few stages.
 *
 * A failure inside GLPK (out of memory, a broken invariant), which by default aborts the
 * process, comes back as MIST_ERR_RUN. In that case alone GLPK's environment of the
 * calling thread is freed, and with it every GLPK object that the thread had. GLPK prints
 * nothing.
 */
#ifndef MIST_TUNE_INTER_STAGE_GLPK_H
#define MIST_TUNE_INTER_STAGE_GLPK_H

#include "tune/inter_stage.h"

struct mist_inter_stage_glpk_config {
    double time_limit_s; /* > 0; INFINITY: none */
    double cutoff_s;     /* only solutions at or below; INFINITY: none */
};

enum mist_inter_stage_outcome {
    MIST_INTER_STAGE_OPTIMAL,    /* i_option is an optimum */
    MIST_INTER_STAGE_FEASIBLE,   /* time ran out; i_option is the best so far */
    MIST_INTER_STAGE_INFEASIBLE, /* there is no solution (at or below the cutoff) */
    MIST_INTER_STAGE_TIMEOUT,    /* time ran out with no solution found */
};

struct mist_inter_stage_glpk_result {
    enum mist_inter_stage_outcome outcome;
    double time_s;  /* mist_inter_stage_time() of i_option; INFINITY: no solution */
    double bound_s; /* GLPK's lower bound; time_s when optimal; INFINITY: infeasible */
};

/*
 * Solves the problem.
 *
 * problem    as for mist_inter_stage_solve().
 * i_option   [S], the options chosen, filled when the outcome is OPTIMAL or FEASIBLE; the
 *            choice has been checked against layers, devices and rows (to 1e-6 of the
 *            row's magnitude).
 * result     filled on MIST_OK.
 *
 * The cutoff is widened by 1e-6 of itself, so a cutoff that is a solution's own time
 * keeps it. The time limit is observed between simplex iterations.
 *
 * Returns MIST_OK, also when infeasible or out of time (see outcome); MIST_ERR_INPUT
 * (problem or config out of bounds); MIST_ERR_RANGE (over 2^30 options);
 * MIST_ERR_MEMORY; MIST_ERR_RUN.
 */
enum mist_status mist_inter_stage_solve_glpk(
    const struct mist_inter_stage_problem *problem,
    const struct mist_inter_stage_glpk_config *config, int32_t *i_option,
    struct mist_inter_stage_glpk_result *result, struct mist_err *err) MIST_MUST_CHECK;

#endif
