/* Step 4 of the search: one case across its stages. See search.h. */
#include "tune/inter_stage_glpk.h"
#include "tune/search_internal.h"

#include <glpk.h> /* glp_free_env */
#include <math.h>
#include <stdlib.h>

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

    for (size_t s = 0; s < (size_t)problem->n_stages; s++) {
        int64_t payload = problem->options[s][i_option[s]].payload;
        size_t i_work = s * (size_t)of->n_shapes + (size_t)(payload >> 32);
        stages[s] = out->works[i_work]->choices[payload & 0xffffffff];
    }
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
                                      const struct mist_space_case *of, double cutoff_s,
                                      struct mist_search_solved *out,
                                      struct mist_err *err)
{
    struct mist_inter_stage_config how = {config->n_best, isinf(cutoff_s) ? 0 : cutoff_s};
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
        if (config->solver != MIST_SOLVER_GLPK)
            status = solve_exactly(config, &problem, of, cutoff_s, out, err);
        if (status == MIST_OK && config->solver != MIST_SOLVER_EXACT)
            status = solve_by_glpk(config, &problem, of, out, err);
    }
    for (size_t s = 0; options && s < n_stages; s++)
        free(options[s]);
    free(options);
    free(n_options);
    return status;
}
