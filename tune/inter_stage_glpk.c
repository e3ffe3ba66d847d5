/*
 * Inter-stage choice as a MILP in GLPK. See inter_stage_glpk.h for the formulation.
 *
 * Columns: T, M, then per stage t_i, then all z in order of stage and option. Times are
 * divided by the largest one, since GLPK's tolerances are absolute. GLPK aborts on its
 * own errors unless a hook leaves by longjmp; everything the hook's landing needs lives
 * in struct job, in memory that the jump can't clobber.
 */
#include "tune/inter_stage_glpk.h"

#include "core/clock.h"
#include "core/memory.h"

#include <glpk.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPTIONS ((size_t)1 << 30)

/* Objective values closer than this (relative) count as equal to GLPK;
 * its default is 1e-7. */
#define GLPK_OBJECTIVE_TOLERANCE 1e-9
#define ROW_TOLERANCE            1e-6
#define CUTOFF_TOLERANCE         1e-6

enum { COLUMN_T = 1, COLUMN_M = 2, FIRST_STAGE_COLUMN = 3 };

struct job {
    const struct mist_inter_stage_problem *problem;
    const struct mist_inter_stage_glpk_config *config;
    int32_t *i_option;
    struct mist_inter_stage_glpk_result result;
    double scale_s;    /* GLPK's unit of time */
    int *stage_column; /* [S + 1] column of the stage's first z */
    int *index;        /* [columns + 1] a row being built */
    double *value;     /* [columns + 1] */
    int n_terms;       /* of it */
    double t_end_s;    /* of the monotonic clock */
    glp_prob *lp;
    jmp_buf on_error;
    char text[256]; /* what GLPK said last */
};

/* ------------------------------------------------------------------------------ hooks */

static int catch_text(void *info, const char *text)
{
    struct job *job = info;
    size_t n = strcspn(text, "\n");
    if (n > 0) { /* the message: the line before a bare newline or the source location */
        n = n < sizeof job->text ? n : sizeof job->text - 1;
        if (strncmp(text, "Error detected", 14) != 0) {
            memcpy(job->text, text, n);
            job->text[n] = '\0';
        }
    }
    return 1; /* print nothing */
}

static void catch_error(void *info)
{
    struct job *job = info;
    longjmp(job->on_error, 1);
}

static void watch_tree(glp_tree *tree, void *info)
{
    struct job *job = info;
    int node = glp_ios_best_node(tree);
    if (node > 0)
        job->result.bound_s = glp_ios_node_bound(tree, node) * job->scale_s;
}

/* ----------------------------------------------------------------------------- checks */

static enum mist_status check_all(const struct mist_inter_stage_problem *problem,
                                  const struct mist_inter_stage_glpk_config *config,
                                  size_t *n_options, struct mist_err *err)
{
    enum mist_status status = mist_inter_stage_check(problem, err);
    *n_options = 0;
    if (status != MIST_OK)
        return status;
    if (!(config->time_limit_s > 0) || isnan(config->cutoff_s))
        return mist_err_set(err, MIST_ERR_INPUT,
                            "time limit %g s, cutoff %g s: need > 0, a number",
                            config->time_limit_s, config->cutoff_s);
    for (int32_t i = 0; i < problem->n_stages; i++)
        *n_options += problem->n_options[i];
    if (*n_options > MAX_OPTIONS || problem->n_rows > MAX_OPTIONS ||
        problem->n_stages > INT32_MAX / 8)
        return mist_err_set(err, MIST_ERR_RANGE, "%zu options, %zu rows: more than 2^30",
                            *n_options, problem->n_rows);
    return MIST_OK;
}

/* ------------------------------------------------------------------------------ model */

static void add_term(struct job *job, int column, double value)
{
    job->n_terms++;
    job->index[job->n_terms] = column;
    job->value[job->n_terms] = value;
}

/* Adds the row built so far, lower <= row <= upper, and starts an empty one. */
static void add_row(struct job *job, double lower, double upper)
{
    int row = glp_add_rows(job->lp, 1);
    bool has_lower = lower > -INFINITY, has_upper = upper < INFINITY;
    int kind = lower == upper ? GLP_FX
               : has_lower    ? (has_upper ? GLP_DB : GLP_LO)
               : has_upper    ? GLP_UP
                              : GLP_FR;
    glp_set_row_bnds(job->lp, row, kind, has_lower ? lower : 0, has_upper ? upper : 0);
    glp_set_mat_row(job->lp, row, job->n_terms, job->index, job->value);
    job->n_terms = 0;
}

static double get_cost(const struct job *job, int column)
{
    if (column == COLUMN_T)
        return (double)(job->problem->n_micro_batches - 1);
    return column < FIRST_STAGE_COLUMN + job->problem->n_stages ? 1 : 0;
}

static void add_columns(struct job *job)
{
    int n_stages = job->problem->n_stages, n_columns = job->stage_column[n_stages] - 1;
    glp_add_cols(job->lp, n_columns);
    for (int column = 1; column <= n_columns; column++) {
        glp_set_obj_coef(job->lp, column, get_cost(job, column));
        if (column < FIRST_STAGE_COLUMN + n_stages)
            glp_set_col_bnds(job->lp, column, GLP_LO, 0, 0);
        else
            glp_set_col_kind(job->lp, column, GLP_BV);
    }
}

/* One option, t_i, T >= t_i, M >= d_i - sum of t before;
 * d < 0 is as good as 0, as M >= 0. */
static void add_stage_rows(struct job *job, int32_t i)
{
    const struct mist_stage_option *options = job->problem->options[i];
    size_t n_options = job->problem->n_options[i];
    int first = job->stage_column[i];
    for (size_t o = 0; o < n_options; o++)
        add_term(job, first + (int)o, 1);
    add_row(job, 1, 1);
    for (size_t o = 0; o < n_options; o++)
        add_term(job, first + (int)o, options[o].t_s / job->scale_s);
    add_term(job, FIRST_STAGE_COLUMN + i, -1);
    add_row(job, 0, 0);
    add_term(job, COLUMN_T, 1);
    add_term(job, FIRST_STAGE_COLUMN + i, -1);
    add_row(job, 0, INFINITY);
    add_term(job, COLUMN_M, 1);
    for (int32_t j = 0; j < i; j++)
        add_term(job, FIRST_STAGE_COLUMN + j, 1);
    for (size_t o = 0; o < n_options; o++)
        add_term(job, first + (int)o, -fmax(options[o].d_s, 0) / job->scale_s);
    add_row(job, 0, INFINITY);
}

/* The sum of layers or, devices true, of devices over all stages. */
static void add_sum_row(struct job *job, bool devices, int32_t total)
{
    for (int32_t i = 0; i < job->problem->n_stages; i++)
        for (size_t o = 0; o < job->problem->n_options[i]; o++) {
            const struct mist_stage_option *option = &job->problem->options[i][o];
            add_term(job, job->stage_column[i] + (int)o,
                     devices ? option->n_devices : option->n_layers);
        }
    add_row(job, total, total);
}

static void build_model(struct job *job)
{
    const struct mist_inter_stage_problem *problem = job->problem;
    job->lp = glp_create_prob();
    glp_set_obj_dir(job->lp, GLP_MIN);
    add_columns(job);
    for (int32_t i = 0; i < problem->n_stages; i++)
        add_stage_rows(job, i);
    add_sum_row(job, false, problem->n_layers);
    if (problem->n_devices >= 0)
        add_sum_row(job, true, problem->n_devices);
    for (size_t r = 0; r < problem->n_rows; r++) {
        const struct mist_inter_stage_row *row = &problem->rows[r];
        for (size_t n = 0; n < row->n_terms; n++)
            add_term(job,
                     job->stage_column[row->terms[n].i_stage] + row->terms[n].i_option,
                     row->terms[n].coefficient);
        add_row(job, row->lower, row->upper);
    }
    if (job->config->cutoff_s < INFINITY) {
        double cutoff_s =
            job->config->cutoff_s + fabs(job->config->cutoff_s) * CUTOFF_TOLERANCE;
        for (int column = 1; column < FIRST_STAGE_COLUMN + problem->n_stages; column++)
            add_term(job, column, get_cost(job, column));
        add_row(job, -INFINITY, cutoff_s / job->scale_s);
    }
}

/* --------------------------------------------------------------------------- solution */

/* Milliseconds left for GLPK, at least 1. */
static int find_time_left_ms(const struct job *job)
{
    double left_ms = (job->t_end_s - mist_clock_now_s()) * 1e3;
    return left_ms >= INT_MAX ? INT_MAX : left_ms < 1 ? 1 : (int)left_ms;
}

static bool check_sums(const struct job *job)
{
    const struct mist_inter_stage_problem *problem = job->problem;
    int64_t layers = 0, devices = 0;
    for (int32_t i = 0; i < problem->n_stages; i++) {
        layers += problem->options[i][job->i_option[i]].n_layers;
        devices += problem->options[i][job->i_option[i]].n_devices;
    }
    if (layers != problem->n_layers ||
        (problem->n_devices >= 0 && devices != problem->n_devices))
        return false;
    for (size_t r = 0; r < problem->n_rows; r++) {
        const struct mist_inter_stage_row *row = &problem->rows[r];
        double sum = 0, size = 1;
        for (size_t n = 0; n < row->n_terms; n++)
            if (job->i_option[row->terms[n].i_stage] == row->terms[n].i_option) {
                sum += row->terms[n].coefficient;
                size += fabs(row->terms[n].coefficient);
            }
        if (sum < row->lower - ROW_TOLERANCE * size ||
            sum > row->upper + ROW_TOLERANCE * size)
            return false;
    }
    return true;
}

static enum mist_status read_solution(struct job *job, struct mist_err *err)
{
    for (int32_t i = 0; i < job->problem->n_stages; i++) {
        double most = -1;
        for (size_t o = 0; o < job->problem->n_options[i]; o++) {
            double z = glp_mip_col_val(job->lp, job->stage_column[i] + (int)o);
            if (z > most) {
                most = z;
                job->i_option[i] = (int32_t)o;
            }
        }
    }
    if (!check_sums(job))
        return mist_err_set(err, MIST_ERR_RUN,
                            "GLPK's solution does not satisfy its constraints");
    job->result.time_s = mist_inter_stage_time(job->problem, job->i_option);
    return MIST_OK;
}

/* Linear relaxation first: intopt starts from its basis,
 * and it has a time limit of its own. */
static enum mist_status solve_model(struct job *job, struct mist_err *err)
{
    glp_smcp simplex;
    glp_iocp tree;
    glp_init_smcp(&simplex);
    simplex.msg_lev = GLP_MSG_OFF;
    simplex.tm_lim = find_time_left_ms(job);
    int code = glp_simplex(job->lp, &simplex);
    if (code != 0 && code != GLP_ETMLIM)
        return mist_err_set(err, MIST_ERR_RUN, "GLPK's simplex failed with code %d",
                            code);
    int lp_status = glp_get_status(job->lp);
    if (code == 0 && lp_status != GLP_OPT) {
        job->result.outcome =
            MIST_INTER_STAGE_INFEASIBLE; /* it can't be unbounded: all costs >= 0 */
        return MIST_OK;
    }
    job->result.outcome = MIST_INTER_STAGE_TIMEOUT;
    job->result.bound_s = 0;
    if (code == GLP_ETMLIM || mist_clock_now_s() >= job->t_end_s)
        return MIST_OK;
    job->result.bound_s = glp_get_obj_val(job->lp) * job->scale_s;
    glp_init_iocp(&tree);
    tree.msg_lev = GLP_MSG_OFF;
    tree.tm_lim = find_time_left_ms(job);
    tree.tol_obj = GLPK_OBJECTIVE_TOLERANCE;
    tree.cb_func = watch_tree;
    tree.cb_info = job;
    code = glp_intopt(job->lp, &tree);
    if (code != 0 && code != GLP_ETMLIM)
        return mist_err_set(err, MIST_ERR_RUN,
                            "GLPK's branch and bound failed with code %d", code);
    int mip_status = glp_mip_status(job->lp);
    if (mip_status == GLP_NOFEAS)
        job->result.outcome = MIST_INTER_STAGE_INFEASIBLE;
    if (mip_status == GLP_OPT || mip_status == GLP_FEAS) {
        job->result.outcome =
            mip_status == GLP_OPT ? MIST_INTER_STAGE_OPTIMAL : MIST_INTER_STAGE_FEASIBLE;
        return read_solution(job, err);
    }
    return MIST_OK;
}

/* Builds and solves between the hooks; the only function that GLPK's errors land in. */
static enum mist_status run_glpk(struct job *job, struct mist_err *err)
{
    if (glp_init_env() > 1) /* what would be done by the next call, which aborts */
        return mist_err_set(err, MIST_ERR_MEMORY, "no memory for GLPK");
    int term_out = glp_term_out(GLP_ON); /* the hook sees, and swallows, what GLPK says */
    glp_term_hook(catch_text, job);
    glp_error_hook(catch_error, job);
    if (setjmp(job->on_error) != 0) {
        glp_free_env(); /* what GLPK asks for after an error; takes the hooks and lp along
                         */
        return mist_err_set(err, MIST_ERR_RUN, "GLPK failed: %s", job->text);
    }
    build_model(job);
    enum mist_status status = solve_model(job, err);
    glp_delete_prob(job->lp);
    glp_error_hook(NULL, NULL);
    glp_term_hook(NULL, NULL);
    glp_term_out(term_out);
    return status;
}

static enum mist_status init_job(struct job *job, size_t n_options, struct mist_err *err)
{
    const struct mist_inter_stage_problem *problem = job->problem;
    size_t n_columns = FIRST_STAGE_COLUMN + (size_t)problem->n_stages + n_options;
    if (!MIST_MALLOC(job->stage_column, (size_t)problem->n_stages + 1) ||
        !MIST_MALLOC(job->index, n_columns + 1) ||
        !MIST_MALLOC(job->value, n_columns + 1))
        return mist_err_set(err, MIST_ERR_MEMORY, "no memory for %zu columns", n_columns);
    job->t_end_s = mist_clock_now_s() + job->config->time_limit_s;
    job->stage_column[0] = FIRST_STAGE_COLUMN + problem->n_stages;
    for (int32_t i = 0; i < problem->n_stages; i++) {
        job->stage_column[i + 1] = job->stage_column[i] + (int)problem->n_options[i];
        for (size_t o = 0; o < problem->n_options[i]; o++) {
            const struct mist_stage_option *option = &problem->options[i][o];
            job->scale_s = fmax(job->scale_s, fmax(option->t_s, option->d_s));
        }
    }
    if (job->scale_s == 0)
        job->scale_s = 1;
    return MIST_OK;
}

enum mist_status mist_inter_stage_solve_glpk(
    const struct mist_inter_stage_problem *problem,
    const struct mist_inter_stage_glpk_config *config, int32_t *i_option,
    struct mist_inter_stage_glpk_result *result, struct mist_err *err)
{
    size_t n_options;
    enum mist_status status = check_all(problem, config, &n_options, err);
    if (status != MIST_OK)
        return status;
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return mist_err_set(err, MIST_ERR_MEMORY, "no memory for a GLPK run");
    job->problem = problem;
    job->config = config;
    job->i_option = i_option;
    job->result.time_s = job->result.bound_s = INFINITY;
    status = init_job(job, n_options, err);
    if (status == MIST_OK)
        status = run_glpk(job, err);
    if (status == MIST_OK) {
        if (job->result.outcome == MIST_INTER_STAGE_OPTIMAL)
            job->result.bound_s = job->result.time_s;
        if (job->result.outcome == MIST_INTER_STAGE_INFEASIBLE)
            job->result.bound_s = INFINITY;
        *result = job->result;
    }
    free(job->stage_column);
    free(job->index);
    free(job->value);
    free(job);
    return status;
}
