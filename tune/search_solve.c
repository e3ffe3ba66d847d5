/*
 * Step 6 of the search: one case across its stages. See search.h.
 *
 * Side constraints are rows of the problem. Where they tie stages together in more ways than
 * the exact solver can take, GLPK solves the case.
 */
#include "core/memory.h"
#include "tune/constraint.h"
#include "tune/inter_stage_glpk.h"
#include "tune/search_internal.h"

#include <glpk.h> /* glp_free_env */
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The options of one stage over all its shapes. payload: shape in the upper half, index
 * in its choices in the lower. */
static struct mist_stage_option *join_options(const struct mist_search_config *config,
                                              const struct mist_space_case *of,
                                              struct mist_search_work *const *works,
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
            options[at].d_s *= config->n_chunks;
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
        .time_s = mist_search_time_s(of->n_micro_batches, config->n_chunks, of->n_stages,
                                     stages),
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
    return MIST_CALLOC(out->candidates, n) &&
                   MIST_CALLOC(out->stages, n * (size_t)of->n_stages)
               ? MIST_OK
               : mist_err_memory(err, NULL);
}

/* MIST_OK, also without a solution. */
static enum mist_status solve_exactly(const struct mist_search_config *config,
                                      const struct mist_inter_stage_problem *problem,
                                      const struct mist_space_case *of, double cutoff_s,
                                      struct mist_search_solved *out,
                                      struct mist_err *err)
{
    struct mist_inter_stage_config how = {
        config->n_best, isinf(cutoff_s) ? 0 : config->n_chunks * cutoff_s};
    struct mist_inter_stage_result result;
    enum mist_status status = mist_inter_stage_solve(problem, &how, &result, err);

    if (status == MIST_ERR_NO_PLAN)
        return MIST_OK;
    if (status != MIST_OK)
        return status;
    status = alloc_solutions(of, result.n_solutions, out, err);
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
                                      const struct mist_space_case *of, double cutoff_s,
                                      struct mist_search_solved *out,
                                      struct mist_err *err)
{
    struct mist_inter_stage_glpk_config how = {.time_limit_s = config->glpk_time_limit_s,
                                               .cutoff_s = cutoff_s};
    struct mist_inter_stage_glpk_result result;
    int32_t *i_option = calloc((size_t)of->n_stages, sizeof *i_option);
    enum mist_status status =
        i_option ? mist_inter_stage_solve_glpk(problem, &how, i_option, &result, err)
                 : mist_err_memory(err, NULL);

    if (status == MIST_OK && config->solver == MIST_SOLVER_BOTH) {
        compare(&result, out->n_candidates > 0 ? out->candidates[0].time_s : INFINITY,
                &out->glpk);
    } else if (status == MIST_OK) {
        bool has_solution = result.outcome == MIST_INTER_STAGE_OPTIMAL ||
                            result.outcome == MIST_INTER_STAGE_FEASIBLE;
        out->glpk.n_cases = 1;
        out->glpk.n_optimal = result.outcome == MIST_INTER_STAGE_OPTIMAL ||
                              result.outcome == MIST_INTER_STAGE_INFEASIBLE;
        out->glpk.bound_s = out->glpk.n_optimal ? (double)INFINITY : result.bound_s;
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

/* The rows of one constraint, behind those of the others; *n_terms: of all so far. */
static void add_rows(const struct mist_constraint *constraint,
                     const struct mist_inter_stage_problem *problem,
                     const struct mist_space_case *of,
                     const struct mist_search_solved *in, struct rows *to,
                     size_t *n_terms)
{
    double rest = mist_constraint_of_plan(constraint, of->n_stages, of->n_micro_batches);
    int32_t n_times = mist_constraint_n_times(constraint, of->n_stages);

    for (int32_t time = 0; time < n_times; time++) {
        struct mist_inter_stage_row *row = &to->rows[to->n];
        *row = (struct mist_inter_stage_row){
            .name = constraint->text,
            .lower = constraint->lower - rest,
            .upper = constraint->upper - rest,
            .terms = to->terms + *n_terms,
        };
        row->n_terms =
            fill_terms(constraint, time, problem, of, in, to->terms + *n_terms);
        *n_terms += row->n_terms;
        if (row->n_terms > 0)
            to->n++;
        else if (row->lower > SLACK || row->upper < -SLACK)
            to->can_hold = false;
    }
}

static enum mist_status make_rows(const struct mist_constraints *constraints,
                                  const struct mist_inter_stage_problem *problem,
                                  const struct mist_space_case *of,
                                  const struct mist_search_solved *in, struct rows *out,
                                  struct mist_err *err)
{
    size_t n_rows = 0, n_options = 0, n_terms = 0;
    int n = constraints ? constraints->n : 0;

    *out = (struct rows){.can_hold = true};
    for (int k = 0; k < n; k++) /* with room for what is no row */
        n_rows += (size_t)mist_constraint_n_times(&constraints->of[k], of->n_stages);
    for (int32_t s = 0; s < problem->n_stages; s++)
        n_options += problem->n_options[s];
    if (n_rows == 0)
        return MIST_OK;
    if (!MIST_MALLOC(out->rows, n_rows) ||
        !MIST_MALLOC(out->terms, n_rows * n_options + 1))
        return mist_err_memory(err, NULL);
    for (int k = 0; k < n; k++)
        if (!mist_constraint_is_of_memory(&constraints->of[k])) /* kept to already */
            add_rows(&constraints->of[k], problem, of, in, out, &n_terms);
    return MIST_OK;
}

/* By the solvers that are asked for. */
static enum mist_status solve(const struct mist_search_config *config,
                              const struct mist_inter_stage_problem *problem,
                              const struct mist_space_case *of, double cutoff_s,
                              struct mist_search_solved *out, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    if (config->solver != MIST_SOLVER_GLPK)
        status = solve_exactly(config, problem, of, cutoff_s, out, err);
    if (status == MIST_ERR_RANGE && problem->n_rows > 0)
        return solve_by_glpk(config, problem, of, cutoff_s, out, err);
    return status == MIST_OK && config->solver != MIST_SOLVER_EXACT
               ? solve_by_glpk(config, problem, of, INFINITY, out, err)
               : status;
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
    struct rows rows = {0};
    enum mist_status status = MIST_OK;

    if (!options || !n_options)
        status = mist_err_memory(err, NULL);
    for (size_t s = 0; s < n_stages && status == MIST_OK; s++) {
        options[s] = join_options(config, of, out->works + s * (size_t)of->n_shapes,
                                  &n_options[s]);
        if (!options[s])
            status = mist_err_memory(err, NULL);
    }
    if (status == MIST_OK) {
        struct mist_inter_stage_problem problem = {
            .n_stages = (int32_t)n_stages,
            .n_layers = is_alike ? of->layers_min : space->model.n_layers,
            .n_devices = of->n_shapes > 1 ? space->n_ranks : MIST_INTER_STAGE_ANY_DEVICES,
            .n_micro_batches = (int64_t)config->n_chunks * of->n_micro_batches,
            .options = (const struct mist_stage_option *const *)options,
            .n_options = n_options,
        };
        status = make_rows(config->constraints, &problem, of, out, &rows, err);
        problem.rows = rows.rows;
        problem.n_rows = rows.n;
        if (status == MIST_OK && rows.can_hold)
            status = solve(config, &problem, of, cutoff_s, out, err);
    }
    free_rows(&rows);
    for (size_t s = 0; options && s < n_stages; s++)
        free(options[s]);
    free(options);
    free(n_options);
    return status;
}
