/*
 * Branch and bound over tau, the bound on max t, with the dynamic programme of
 * inter_stage_table.h as oracle. See inter_stage.h for the bound and the guarantees.
 *
 * Why the K best of each tau are enough: a solution of the K best overall with max t =
 * tau is one of the K least C_S at tau, or K others there are no worse, since at tau each
 * has max t <= tau.
 */
#include "tune/inter_stage.h"

#include "tune/inter_stage_paths.h"
#include "tune/inter_stage_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Different roundings of (K-th time) - (G - 1) tau are far below this,
 * relative to that time. */
#define ROUNDING 1e-12

/*
 * Values of tau not solved yet: tau_s[first .. last], and g at the next one above last.
 */
struct interval {
    size_t first, last;
    double bound_s; /* no solution with max t in the interval is below */
    double g_s;
};

struct search {
    const struct mist_inter_stage_problem *problem;
    const struct mist_inter_stage_config *config;
    struct mist_stage_table table;
    struct mist_stage_paths paths;
    struct interval *intervals; /* unordered */
    size_t n_intervals, interval_capacity;
    struct mist_inter_stage_solution
        *best; /* [n_best] sorted, then one slot to work in */
    size_t n_best, best_capacity;
    int32_t *i_option; /* [S] the solution looked at */
    size_t n_tau_solved;
};

static enum mist_status check_option(const struct mist_stage_option *option, int32_t i,
                                     size_t o, struct mist_err *err)
{
    if (option->n_layers < 0)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "stage %d option %zu: %d layers, not >= 0", i, o,
                            option->n_layers);
    if (!(option->t_s >= 0) || !isfinite(option->t_s))
        return mist_err_set(err, MIST_ERR_INPUT,
                            "stage %d option %zu: t is %g s, not finite and >= 0", i, o,
                            option->t_s);
    if (!isfinite(option->d_s))
        return mist_err_set(err, MIST_ERR_INPUT,
                            "stage %d option %zu: d is %g s, not finite", i, o,
                            option->d_s);
    return MIST_OK;
}

static enum mist_status check_row(const struct mist_inter_stage_problem *problem,
                                  const struct mist_inter_stage_row *row, size_t i_row,
                                  struct mist_err *err)
{
    const char *name = row->name ? row->name : "";

    if (isnan(row->lower) || isnan(row->upper) || row->lower > row->upper ||
        row->lower == INFINITY || row->upper == -INFINITY)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "row %zu %s: bounds %g .. %g are not an interval", i_row,
                            name, row->lower, row->upper);
    for (size_t n = 0; n < row->n_terms; n++) {
        const struct mist_inter_stage_term *term = &row->terms[n];
        const struct mist_inter_stage_term *last = n > 0 ? term - 1 : NULL;
        if (term->i_stage < 0 || term->i_stage >= problem->n_stages ||
            term->i_option < 0 ||
            (size_t)term->i_option >= problem->n_options[term->i_stage])
            return mist_err_set(err, MIST_ERR_INPUT,
                                "row %zu %s term %zu: there is no stage %d option %d",
                                i_row, name, n, term->i_stage, term->i_option);
        if (!isfinite(term->coefficient) ||
            (last &&
             (last->i_stage > term->i_stage ||
              (last->i_stage == term->i_stage && last->i_option >= term->i_option))))
            return mist_err_set(
                err, MIST_ERR_INPUT, "row %zu %s: stage %d option %d has %s", i_row, name,
                term->i_stage, term->i_option,
                isfinite(term->coefficient) ? "its coefficient behind that of a later one"
                                            : "no finite coefficient");
    }
    return MIST_OK;
}

enum mist_status mist_inter_stage_check(const struct mist_inter_stage_problem *problem,
                                        struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    if (problem->n_stages < 1 || problem->n_layers < 0)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "%d stages, %d layers: need >= 1 and >= 0", problem->n_stages,
                            problem->n_layers);
    if (problem->n_micro_batches < 1)
        return mist_err_set(err, MIST_ERR_INPUT, "%lld micro-batches: need >= 1",
                            (long long)problem->n_micro_batches);
    if (problem->n_devices < 0 && problem->n_devices != MIST_INTER_STAGE_ANY_DEVICES)
        return mist_err_set(err, MIST_ERR_INPUT, "%d devices: need >= 0 or any (%d)",
                            problem->n_devices, MIST_INTER_STAGE_ANY_DEVICES);
    for (int32_t i = 0; i < problem->n_stages; i++) {
        if (problem->n_options[i] > INT32_MAX)
            return mist_err_set(err, MIST_ERR_INPUT,
                                "stage %d: more than 2^31 - 1 options", i);
        for (size_t o = 0; o < problem->n_options[i]; o++) {
            const struct mist_stage_option *option = &problem->options[i][o];
            status = check_option(option, i, o, err);
            if (status != MIST_OK)
                return status;
            if (problem->n_devices >= 0 && option->n_devices < 0)
                return mist_err_set(err, MIST_ERR_INPUT,
                                    "stage %d option %zu: %d devices, not >= 0", i, o,
                                    option->n_devices);
        }
    }
    for (size_t r = 0; r < problem->n_rows && status == MIST_OK; r++)
        status = check_row(problem, &problem->rows[r], r, err);
    return status;
}

double mist_inter_stage_time(const struct mist_inter_stage_problem *problem,
                             const int32_t *i_option)
{
    struct mist_pipeline_sum sum = {0};
    for (int32_t i = 0; i < problem->n_stages; i++)
        mist_pipeline_sum_add(&sum, problem->options[i][i_option[i]].t_s,
                              problem->options[i][i_option[i]].d_s);
    return mist_pipeline_sum_s(&sum, problem->n_micro_batches);
}

/* ------------------------------------------------------------------------- the K best */

/* The time a solution has to beat: the K-th, or the caller's while there are fewer. */
static double find_cutoff(const struct search *search)
{
    double cutoff_s = search->config->cutoff_s > 0 ? search->config->cutoff_s : INFINITY;

    return search->n_best < search->config->n_best
               ? cutoff_s
               : search->best[search->n_best - 1].time_s;
}

static bool is_same(const struct search *search, const int32_t *a, const int32_t *b)
{
    for (int32_t i = 0; i < search->problem->n_stages; i++)
        if (search->table.i_group[i][a[i]] != search->table.i_group[i][b[i]])
            return false;
    return true;
}

/* By time, then by the options, first stage first. */
static bool is_better(const struct search *search, double time_s, const int32_t *i_option,
                      const struct mist_inter_stage_solution *other)
{
    if (time_s != other->time_s)
        return time_s < other->time_s;
    for (int32_t i = 0; i < search->problem->n_stages; i++)
        if (i_option[i] != other->i_option[i])
            return i_option[i] < other->i_option[i];
    return false;
}

/* Makes room for one solution more than there are. */
static bool grow_best(struct search *search)
{
    size_t capacity = search->best_capacity;
    if (search->n_best < capacity)
        return true;
    if (!MIST_RESERVE(search->best, search->best_capacity, search->n_best + 1))
        return false;
    for (size_t k = capacity; k < search->best_capacity; k++)
        search->best[k].i_option = NULL;
    return true;
}

/* Takes search->i_option into the list if it belongs there. */
static enum mist_status add_solution(struct search *search, struct mist_err *err)
{
    double time_s = mist_inter_stage_time(search->problem, search->i_option);
    size_t n = search->n_best, at = 0, same = 0;
    while (same < n && !is_same(search, search->i_option, search->best[same].i_option))
        same++;
    while (at < n && !is_better(search, time_s, search->i_option, &search->best[at]))
        at++;
    if (same < at || at == search->config->n_best)
        return MIST_OK; /* known and no better, or too late */
    size_t bytes = (size_t)search->problem->n_stages * sizeof *search->i_option;
    if (same == n && n < search->config->n_best) {
        if (!grow_best(search) || !(search->best[n].i_option = malloc(bytes)))
            return mist_err_set(err, MIST_ERR_MEMORY, "no memory for %zu solutions",
                                n + 1);
        search->n_best = n + 1;
    } else if (same == n) {
        same = n - 1; /* the last one makes room */
    }
    struct mist_inter_stage_solution slot = {time_s, search->best[same].i_option};
    memcpy(slot.i_option, search->i_option, bytes);
    memmove(search->best + at + 1, search->best + at, (same - at) * sizeof slot);
    search->best[at] = slot;
    return MIST_OK;
}

/* ------------------------------------------------------------------ the search in tau */

/*
 * Solves tau_s[at], where only solutions with max t >= t_least are still of interest;
 * *g_s becomes its least C_S, INFINITY when there is none or none that can enter the
 * list.
 */
static enum mist_status solve_tau(struct search *search, size_t at, double t_least_s,
                                  double *g_s, struct mist_err *err)
{
    struct mist_stage_table *table = &search->table;
    double base_s = table->weight_t * t_least_s;
    double limit_s = find_cutoff(search) * (1 + ROUNDING) - base_s;
    *g_s = mist_stage_table_fill(table, table->tau_s[at], limit_s);
    search->n_tau_solved++;
    if (*g_s == INFINITY)
        return MIST_OK;
    mist_stage_paths_restart(&search->paths, limit_s);
    for (int32_t rank = 0; (size_t)rank < search->config->n_best && rank < INT32_MAX;
         rank++) {
        double c_s;
        enum mist_status status =
            mist_stage_paths_get(&search->paths, rank, search->i_option, &c_s, err);
        if (status == MIST_OK && base_s + c_s > find_cutoff(search))
            break; /* so are all that follow; also where there is none (INFINITY) */
        if (status == MIST_OK && c_s == INFINITY)
            break;
        if (status == MIST_OK)
            status = add_solution(search, err);
        if (status != MIST_OK)
            return status;
    }
    return MIST_OK;
}

static enum mist_status add_interval(struct search *search, size_t first, size_t end,
                                     double g_s, struct mist_err *err)
{
    if (first >= end || g_s == INFINITY)
        return MIST_OK;
    if (!MIST_RESERVE(search->intervals, search->interval_capacity,
                      search->n_intervals + 1))
        return mist_err_set(err, MIST_ERR_MEMORY, "no memory for the search over max t");
    double bound_s = search->table.weight_t * search->table.tau_s[first] + g_s;
    search->intervals[search->n_intervals++] =
        (struct interval){first, end - 1, bound_s, g_s};
    return MIST_OK;
}

/* Removes and returns the interval of the least bound (ties: the least tau). */
static struct interval take_interval(struct search *search)
{
    size_t best = 0;
    const struct interval *all = search->intervals;
    for (size_t i = 1; i < search->n_intervals; i++)
        if (all[i].bound_s < all[best].bound_s ||
            (all[i].bound_s == all[best].bound_s && all[i].first < all[best].first))
            best = i;
    struct interval taken = all[best];
    search->intervals[best] = search->intervals[--search->n_intervals];
    return taken;
}

static enum mist_status run_search(struct search *search, struct mist_err *err)
{
    size_t top = search->table.n_tau - 1;
    double g_s;
    enum mist_status status = solve_tau(search, top, 0, &g_s, err);
    if (status != MIST_OK)
        return status;
    if (g_s == INFINITY)
        return mist_err_set(
            err, MIST_ERR_NO_PLAN,
            "no choice of options places exactly %d layers on the %d stages%s%s",
            search->problem->n_layers, search->problem->n_stages,
            search->problem->n_devices < 0 ? "" : " and uses every device",
            search->problem->n_rows == 0 ? "" : " and keeps to all side constraints");
    if (search->table.weight_t >
        0) /* G = 1: max t costs nothing, the top tau has it all */
        status = add_interval(search, 0, top, g_s, err);
    while (status == MIST_OK && search->n_intervals > 0) {
        struct interval todo = take_interval(search);
        if (todo.bound_s >= find_cutoff(search))
            break; /* and so are all others */
        size_t mid = todo.first + (todo.last - todo.first) / 2;
        status = solve_tau(search, mid, search->table.tau_s[todo.first], &g_s, err);
        if (status == MIST_OK)
            status = add_interval(search, todo.first, mid, g_s, err);
        if (status == MIST_OK)
            status = add_interval(search, mid + 1, todo.last + 1, todo.g_s, err);
    }
    return status;
}

static void free_solutions(struct mist_inter_stage_solution *solutions, size_t n)
{
    for (size_t k = 0; k < n; k++)
        free(solutions[k].i_option);
    free(solutions);
}

enum mist_status mist_inter_stage_solve(const struct mist_inter_stage_problem *problem,
                                        const struct mist_inter_stage_config *config,
                                        struct mist_inter_stage_result *result,
                                        struct mist_err *err)
{
    struct search search = {.problem = problem, .config = config};
    enum mist_status status = mist_inter_stage_check(problem, err);
    if (status == MIST_OK && config->n_best < 1)
        status = mist_err_set(err, MIST_ERR_INPUT, "0 best solutions wanted: need >= 1");
    if (status != MIST_OK)
        return status;
    status = mist_stage_table_init(&search.table, problem, err);
    if (status != MIST_OK)
        return status;
    status = mist_stage_paths_init(&search.paths, &search.table, config, err);
    if (status != MIST_OK)
        goto out_table;
    search.i_option = malloc((size_t)problem->n_stages * sizeof *search.i_option);
    status = search.i_option
                 ? run_search(&search, err)
                 : mist_err_set(err, MIST_ERR_MEMORY, "no memory for one solution");
    if (status == MIST_OK)
        *result = (struct mist_inter_stage_result){
            search.best, search.n_best, search.table.n_tau, search.n_tau_solved};
    else
        free_solutions(search.best, search.n_best);
    free(search.i_option);
    free(search.intervals);
    mist_stage_paths_fini(&search.paths);
out_table:
    mist_stage_table_fini(&search.table);
    return status;
}

void mist_inter_stage_result_fini(struct mist_inter_stage_result *result)
{
    free_solutions(result->solutions, result->n_solutions);
    *result = (struct mist_inter_stage_result){0};
}
