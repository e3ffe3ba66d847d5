/*
 * Step 6 of the search: one case across its stages. See search.h.
 *
 * Under side constraints, options of a stage that can't keep to one that is about that stage
 * alone are dropped. The exact solver comes next, with its splits in the order of their
 * times: often the first that keeps to the constraints is the optimum, and the first of all
 * is a bound in any case. Else GLPK solves the case with the constraints as rows.
 */
#include "tune/constraint.h"
#include "tune/inter_stage_glpk.h"
#include "tune/search_internal.h"

#include <glpk.h> /* glp_free_env */
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The options of one stage over all its shapes. payload: shape in the upper half, index
 * in its choices in the lower. */
static struct mist_stage_option *join_options(const struct mist_space_case *of,
                                              const struct mist_search_work *const *works,
                                              size_t *n)
{
    *n = 0;
    for (int32_t k = 0; k < of->n_shapes; k++)
        *n += works[k] ? works[k]->n_options : 0;
    struct mist_stage_option *options = malloc((*n + 1) * sizeof *options);
    size_t at = 0;
    for (int32_t k = 0; k < of->n_shapes && options; k++)
        for (size_t i = 0; works[k] && i < works[k]->n_options; i++) {
            options[at] = works[k]->options[i];
            options[at++].payload = (int64_t)k << 32 | (int64_t)i;
        }
    return options;
}

/* What an option of a stage is. */
static struct mist_search_choice *
find_choice(const struct mist_inter_stage_problem *problem,
            const struct mist_space_case *of, const struct mist_search_solved *in,
            size_t i_stage, size_t i_option)
{
    int64_t payload = problem->options[i_stage][i_option].payload;
    size_t i_work = i_stage * (size_t)of->n_shapes + (size_t)(payload >> 32);

    return &in->works[i_work]->choices[payload & 0xffffffff];
}

/* Solution number i of out, which has room for it. */
static enum mist_status store_solution(const struct mist_search_config *config,
                                       const struct mist_inter_stage_problem *problem,
                                       const struct mist_space_case *of,
                                       const int32_t *i_option, size_t i,
                                       struct mist_search_solved *out,
                                       struct mist_err *err)
{
    struct mist_search_choice *stages = out->stages + i * (size_t)of->n_stages;
    enum mist_status status = MIST_OK;

    for (size_t s = 0; s < (size_t)problem->n_stages; s++)
        stages[s] = *find_choice(problem, of, out, s, (size_t)i_option[s]);
    if (problem->n_stages < of->n_stages)
        status = mist_search_repeat_choice(config, of, stages[0], stages, err);
    out->candidates[i] = (struct mist_search_candidate){
        .time_s = mist_search_time_s(of->n_micro_batches, of->n_stages, stages),
        .n_micro_batches = of->n_micro_batches,
        .n_stages = of->n_stages,
        .stages = stages,
    };
    return status;
}

static enum mist_status alloc_solutions(const struct mist_space_case *of, size_t n,
                                        struct mist_search_solved *out,
                                        struct mist_err *err)
{
    out->candidates = calloc(n, sizeof *out->candidates);
    out->stages = calloc(n * (size_t)of->n_stages, sizeof *out->stages);
    return out->candidates && out->stages
               ? MIST_OK
               : mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
}

/* MIST_OK, also without a solution. */
static enum mist_status solve_exactly(const struct mist_search_config *config,
                                      const struct mist_inter_stage_problem *problem,
                                      const struct mist_space_case *of, size_t n_best,
                                      double cutoff_s, struct mist_search_solved *out,
                                      struct mist_err *err)
{
    struct mist_inter_stage_config how = {n_best, isinf(cutoff_s) ? 0 : cutoff_s};
    struct mist_inter_stage_result result;
    enum mist_status status = mist_inter_stage_solve(problem, &how, &result, err);

    if (status == MIST_ERR_NO_PLAN)
        return MIST_OK;
    if (status != MIST_OK)
        return status;
    status = alloc_solutions(of, result.n_solutions + 1, out, err); /* one of GLPK's */
    for (size_t i = 0; i < result.n_solutions && status == MIST_OK; i++)
        status = store_solution(config, problem, of, result.solutions[i].i_option, i, out,
                                err);
    out->n_candidates = status == MIST_OK ? result.n_solutions : 0;
    mist_inter_stage_result_fini(&result);
    return status;
}

/* GLPK against the exact solver's best, INFINITY when it found none. */
static void compare(const struct mist_inter_stage_glpk_result *result, double exact_s,
                    struct mist_search_glpk *glpk)
{
    glpk->n_cases = 1;
    if (result->outcome == MIST_INTER_STAGE_FEASIBLE ||
        result->outcome == MIST_INTER_STAGE_TIMEOUT)
        return;
    glpk->n_optimal = 1;
    if (isinf(result->time_s) || isinf(exact_s)) {
        glpk->n_differ = isinf(result->time_s) != isinf(exact_s);
        return;
    }
    glpk->worst_frac = fabs(result->time_s - exact_s) / exact_s;
    glpk->n_differ = glpk->worst_frac > 1e-6;
}

static enum mist_status solve_by_glpk(const struct mist_search_config *config,
                                      const struct mist_inter_stage_problem *problem,
                                      const struct mist_space_case *of,
                                      struct mist_search_solved *out,
                                      struct mist_err *err)
{
    struct mist_inter_stage_glpk_config how = {.time_limit_s = config->glpk_time_limit_s,
                                               .cutoff_s = INFINITY};
    struct mist_inter_stage_glpk_result result;
    int32_t *i_option = calloc((size_t)of->n_stages, sizeof *i_option);
    enum mist_status status =
        i_option ? mist_inter_stage_solve_glpk(problem, &how, i_option, &result, err)
                 : mist_err_set(err, MIST_ERR_MEMORY, "out of memory");

    if (status == MIST_OK && config->solver == MIST_SOLVER_BOTH) {
        compare(&result, out->n_candidates > 0 ? out->candidates[0].time_s : INFINITY,
                &out->glpk);
    } else if (status == MIST_OK) {
        bool has_solution = result.outcome == MIST_INTER_STAGE_OPTIMAL ||
                            result.outcome == MIST_INTER_STAGE_FEASIBLE;
        out->glpk.n_cases = 1;
        out->glpk.n_optimal = result.outcome == MIST_INTER_STAGE_OPTIMAL ||
                              result.outcome == MIST_INTER_STAGE_INFEASIBLE;
        if (has_solution)
            status = alloc_solutions(of, 1, out, err);
        if (has_solution && status == MIST_OK)
            status = store_solution(config, problem, of, i_option, 0, out, err);
        out->n_candidates = has_solution && status == MIST_OK;
    }
    free(i_option);
    glp_free_env(); /* of this thread, which may end before the process */
    return status;
}

/* ------------------------------------------------------------------ side constraints */

/* Splits that are looked through for one that keeps to the constraints. */
enum { SPLITS = 256 };

#define SLACK 1e-9 /* of sums of decimals such as 0.1 * dp */

/* The constraints of a case as rows over its options. */
struct rows {
    struct mist_inter_stage_row *rows; /* owned; [n] */
    size_t n;
    struct mist_inter_stage_term *terms; /* owned; of all rows */
    bool can_hold;                       /* false: no choice of options keeps to them */
};

static void free_rows(struct rows *rows)
{
    free(rows->rows);
    free(rows->terms);
}

/* What an option of the problem adds to a constraint, the i_time-th time; stages that are
 * alike are one stage of the problem. */
static double find_coefficient(const struct mist_constraint *constraint, int32_t i_time,
                               const struct mist_inter_stage_problem *problem,
                               const struct mist_space_case *of,
                               const struct mist_search_solved *in, int32_t i_stage,
                               size_t i_option)
{
    const struct mist_search_choice *choice =
        find_choice(problem, of, in, (size_t)i_stage, i_option);
    int32_t n_alike = of->n_stages / problem->n_stages;
    double sum = 0;

    for (int32_t k = 0; k < n_alike; k++)
        sum += mist_constraint_of_stage(constraint, i_time, of->n_stages, i_stage + k,
                                        choice);
    return sum;
}

/* Coefficients of the i_time-th row of a constraint. Returns how many. */
static size_t fill_terms(const struct mist_constraint *constraint, int32_t i_time,
                         const struct mist_inter_stage_problem *problem,
                         const struct mist_space_case *of,
                         const struct mist_search_solved *in,
                         struct mist_inter_stage_term *terms)
{
    size_t n = 0;

    for (int32_t s = 0; s < problem->n_stages; s++)
        for (size_t o = 0; o < problem->n_options[s]; o++) {
            double coefficient =
                find_coefficient(constraint, i_time, problem, of, in, s, o);
            if (coefficient != 0)
                terms[n++] = (struct mist_inter_stage_term){s, (int32_t)o, coefficient};
        }
    return n;
}

static enum mist_status make_rows(const struct mist_constraints *constraints,
                                  const struct mist_inter_stage_problem *problem,
                                  const struct mist_space_case *of,
                                  const struct mist_search_solved *in, struct rows *out,
                                  struct mist_err *err)
{
    size_t n_rows = 0, n_options = 0, n_terms = 0;

    for (int k = 0; k < constraints->n; k++)
        n_rows += (size_t)mist_constraint_n_times(&constraints->of[k], of->n_stages);
    for (int32_t s = 0; s < problem->n_stages; s++)
        n_options += problem->n_options[s];
    *out = (struct rows){
        .rows = malloc((n_rows + 1) * sizeof *out->rows),
        .terms = malloc((n_rows * n_options + 1) * sizeof *out->terms),
        .can_hold = true,
    };
    if (!out->rows || !out->terms)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    for (int k = 0; k < constraints->n; k++) {
        const struct mist_constraint *constraint = &constraints->of[k];
        int32_t n_times = mist_constraint_n_times(constraint, of->n_stages);
        double rest =
            mist_constraint_of_plan(constraint, of->n_stages, of->n_micro_batches);
        for (int32_t time = 0; time < n_times; time++) {
            struct mist_inter_stage_row *row = &out->rows[out->n];
            *row = (struct mist_inter_stage_row){
                .name = constraint->text,
                .lower = constraint->lower - rest,
                .upper = constraint->upper - rest,
                .terms = out->terms + n_terms,
            };
            row->n_terms =
                fill_terms(constraint, time, problem, of, in, out->terms + n_terms);
            n_terms += row->n_terms;
            if (row->n_terms > 0)
                out->n++;
            else if (row->lower > SLACK || row->upper < -SLACK)
                out->can_hold = false;
        }
    }
    return MIST_OK;
}

/* Whether a row is about the choice of one stage alone. */
static bool is_of_stage(const struct mist_inter_stage_row *row, int32_t i_stage)
{
    for (size_t i = 0; i < row->n_terms; i++)
        if (row->terms[i].i_stage != i_stage)
            return false;
    return true;
}

/* Drops options of a stage that can't keep to a row that is about it alone: the exact
 * solver needs no more. coefficients, is_out: scratch, [n] */
static size_t drop_options(const struct rows *rows, int32_t i_stage,
                           struct mist_stage_option *options, size_t n,
                           double *coefficients, bool *is_out)
{
    size_t n_kept = 0;

    memset(is_out, 0, n * sizeof *is_out);
    for (size_t r = 0; r < rows->n; r++) {
        const struct mist_inter_stage_row *row = &rows->rows[r];
        if (!is_of_stage(row, i_stage))
            continue;
        memset(coefficients, 0, n * sizeof *coefficients);
        for (size_t i = 0; i < row->n_terms; i++)
            coefficients[row->terms[i].i_option] = row->terms[i].coefficient;
        for (size_t o = 0; o < n; o++)
            is_out[o] = is_out[o] || coefficients[o] < row->lower - SLACK ||
                        coefficients[o] > row->upper + SLACK;
    }
    for (size_t o = 0; o < n; o++)
        if (!is_out[o])
            options[n_kept++] = options[o];
    return n_kept;
}

/* The rows of a case, and of its options those that may keep to them. */
static enum mist_status narrow(const struct mist_constraints *constraints,
                               const struct mist_inter_stage_problem *problem,
                               const struct mist_space_case *of,
                               const struct mist_search_solved *in,
                               struct mist_stage_option **options, size_t *n_options,
                               struct rows *rows, struct mist_err *err)
{
    enum mist_status status = make_rows(constraints, problem, of, in, rows, err);
    size_t most = 1;

    for (int32_t s = 0; s < problem->n_stages; s++)
        most = n_options[s] > most ? n_options[s] : most;
    double *coefficients = malloc(most * sizeof *coefficients);
    bool *is_out = malloc(most * sizeof *is_out);
    if (status == MIST_OK && (!coefficients || !is_out))
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    for (int32_t s = 0; s < problem->n_stages && status == MIST_OK; s++)
        n_options[s] =
            drop_options(rows, s, options[s], n_options[s], coefficients, is_out);
    free(coefficients);
    free(is_out);
    if (status != MIST_OK)
        return status;
    free_rows(rows);
    return make_rows(constraints, problem, of, in, rows, err);
}

/* Of out's candidates n at the most stay, the best of those that keep to the constraints. */
static void drop_others(const struct mist_constraints *constraints, size_t n,
                        struct mist_search_solved *out)
{
    size_t n_all = out->n_candidates;

    out->n_candidates = 0;
    for (size_t i = 0; i < n_all && out->n_candidates < n; i++) {
        struct mist_search_candidate candidate = out->candidates[i];
        size_t n_stages = (size_t)candidate.n_stages;
        if (!mist_constraints_hold(constraints, candidate.n_micro_batches,
                                   candidate.n_stages, candidate.stages))
            continue;
        struct mist_search_choice *stages = out->stages + out->n_candidates * n_stages;
        memmove(stages, candidate.stages, n_stages * sizeof *stages);
        candidate.stages = stages;
        out->candidates[out->n_candidates++] = candidate;
    }
}

/* Makes GLPK's solution the first of out's candidates, which have room for one more. */
static enum mist_status put_first(const struct mist_search_config *config,
                                  const struct mist_inter_stage_problem *problem,
                                  const struct mist_space_case *of,
                                  const int32_t *i_option, struct mist_search_solved *out,
                                  struct mist_err *err)
{
    size_t n_stages = (size_t)of->n_stages;

    memmove(out->stages + n_stages, out->stages,
            out->n_candidates * n_stages * sizeof *out->stages);
    memmove(out->candidates + 1, out->candidates,
            out->n_candidates * sizeof *out->candidates);
    out->n_candidates++;
    for (size_t i = 1; i < out->n_candidates; i++)
        out->candidates[i].stages = out->stages + i * n_stages;
    return store_solution(config, problem, of, i_option, 0, out, err);
}

/* bound_s: no plan of the case is faster. */
static enum mist_status solve_rows(const struct mist_search_config *config,
                                   const struct mist_inter_stage_problem *problem,
                                   const struct mist_space_case *of, double cutoff_s,
                                   double bound_s, const struct rows *rows,
                                   struct mist_search_solved *out, struct mist_err *err)
{
    double best_s = out->n_candidates > 0 ? out->candidates[0].time_s : INFINITY;
    struct mist_inter_stage_glpk_config how = {.time_limit_s = config->glpk_time_limit_s,
                                               .cutoff_s = fmin(cutoff_s, best_s),
                                               .rows = rows->rows,
                                               .n_rows = rows->n};
    struct mist_inter_stage_glpk_result result;
    int32_t *i_option = calloc((size_t)of->n_stages, sizeof *i_option);
    enum mist_status status =
        i_option ? mist_inter_stage_solve_glpk(problem, &how, i_option, &result, err)
                 : mist_err_set(err, MIST_ERR_MEMORY, "out of memory");

    if (status == MIST_OK) {
        out->glpk.n_cases = 1;
        out->glpk.n_optimal = result.outcome == MIST_INTER_STAGE_OPTIMAL ||
                              result.outcome == MIST_INTER_STAGE_INFEASIBLE;
        out->glpk.bound_s =
            out->glpk.n_optimal ? (double)INFINITY : fmax(bound_s, result.bound_s);
        if (result.time_s < best_s)
            status = put_first(config, problem, of, i_option, out, err);
    }
    free(i_option);
    glp_free_env(); /* of this thread, which may end before the process */
    return status;
}

/* Whether a case's layers and devices by stage say all that the constraints ask. */
static bool are_of_splits(const struct mist_constraints *constraints,
                          const struct mist_space_case *of)
{
    for (int k = 0; k < constraints->n; k++)
        for (int i = 0; i < constraints->of[k].n_terms; i++)
            if (constraints->of[k].terms[i].of > MIST_CONSTRAINT_DEVICES)
                return of->n_shapes == 1;
    return true;
}

/*
 * The exact solver's splits in the order of their times. The first that keeps to the
 * constraints is the optimum if these are about splits alone; it is in any case if it is
 * the first of all. out: those that do. *bound_s: no plan that does is faster.
 */
static enum mist_status solve_splits(const struct mist_search_config *config,
                                     const struct mist_inter_stage_problem *problem,
                                     const struct mist_space_case *of, double cutoff_s,
                                     struct mist_search_solved *out, double *bound_s,
                                     struct mist_err *err)
{
    bool are_enough = are_of_splits(config->constraints, of);
    size_t n_best = are_enough && config->n_best < SPLITS ? SPLITS : config->n_best;
    enum mist_status status =
        solve_exactly(config, problem, of, n_best, cutoff_s, out, err);
    size_t n = out->n_candidates;

    *bound_s = INFINITY;
    if (status != MIST_OK || n == 0)
        return status;
    double first_s = out->candidates[0].time_s, last_s = out->candidates[n - 1].time_s;
    drop_others(config->constraints, config->n_best, out);
    double best_s = out->n_candidates > 0 ? out->candidates[0].time_s : INFINITY;
    if (!are_enough)
        *bound_s = first_s;
    else if (n == n_best) /* there may be more splits */
        *bound_s = fmin(best_s, last_s);
    else
        *bound_s = best_s;
    return MIST_OK;
}

/* options, n_options: the problem's, to be narrowed. */
static enum mist_status solve_within(const struct mist_search_config *config,
                                     const struct mist_inter_stage_problem *problem,
                                     const struct mist_space_case *of, double cutoff_s,
                                     struct mist_stage_option **options,
                                     size_t *n_options, struct mist_search_solved *out,
                                     struct mist_err *err)
{
    struct rows rows;
    double bound_s = INFINITY;
    enum mist_status status =
        narrow(config->constraints, problem, of, out, options, n_options, &rows, err);

    if (status == MIST_OK && rows.can_hold)
        status = solve_splits(config, problem, of, cutoff_s, out, &bound_s, err);
    double best_s = out->n_candidates > 0 ? out->candidates[0].time_s : INFINITY;
    if (bound_s < best_s)
        out->glpk.bound_s = bound_s;
    /* what can't be faster than the best so far is not worth GLPK's time */
    if (status == MIST_OK && bound_s < best_s &&
        bound_s <= cutoff_s / (1 + config->slack_frac))
        status = solve_rows(config, problem, of, cutoff_s, bound_s, &rows, out, err);
    free_rows(&rows);
    return status;
}

enum mist_status mist_search_solve_case(const struct mist_space *space,
                                        const struct mist_search_config *config,
                                        const struct mist_space_case *of, double cutoff_s,
                                        struct mist_search_solved *out,
                                        struct mist_err *err)
{
    bool is_alike = mist_search_n_alike(space, of) > 1;
    size_t n_stages = is_alike ? 1 : (size_t)of->n_stages;
    struct mist_stage_option **options = calloc(n_stages, sizeof *options);
    size_t *n_options = calloc(n_stages, sizeof *n_options);
    enum mist_status status = MIST_OK;

    if (!options || !n_options)
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    for (size_t s = 0; s < n_stages && status == MIST_OK; s++) {
        options[s] =
            join_options(of, out->works + s * (size_t)of->n_shapes, &n_options[s]);
        if (!options[s])
            status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    }
    if (status == MIST_OK) {
        struct mist_inter_stage_problem problem = {
            .n_stages = (int32_t)n_stages,
            .n_layers = is_alike ? of->layers_min : space->model.n_layers,
            .n_devices = of->n_shapes > 1 ? space->n_ranks : MIST_INTER_STAGE_ANY_DEVICES,
            .n_micro_batches = of->n_micro_batches,
            .options = (const struct mist_stage_option *const *)options,
            .n_options = n_options,
        };
        bool is_held = config->constraints && config->constraints->n > 0;
        if (is_held)
            status = solve_within(config, &problem, of, cutoff_s, options, n_options, out,
                                  err);
        else if (config->solver != MIST_SOLVER_GLPK)
            status =
                solve_exactly(config, &problem, of, config->n_best, cutoff_s, out, err);
        if (status == MIST_OK && !is_held && config->solver != MIST_SOLVER_EXACT)
            status = solve_by_glpk(config, &problem, of, out, err);
    }
    for (size_t s = 0; options && s < n_stages; s++)
        free(options[s]);
    free(options);
    free(n_options);
    return status;
}
