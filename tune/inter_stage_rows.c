/* Classes of options, states of sums. See inter_stage_rows.h. */
#include "tune/inter_stage_rows.h"

#include "core/memory.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SLACK 1e-9 /* of sums of decimals such as 0.1 * dp */

/* A sum that is of no interest any more: its row holds in any case. */
#define SETTLED INFINITY

/* A vector of sums, and where it comes from. */
struct vector {
    const double *sums; /* [n_sums] */
    int32_t n_sums, i_from;
};

static double slack_of(double sum)
{
    return SLACK * (1 + fabs(sum));
}

static int compare_vectors(const void *a_void, const void *b_void)
{
    const struct vector *a = a_void, *b = b_void;

    for (int32_t r = 0; r < a->n_sums; r++)
        if (a->sums[r] != b->sums[r])
            return a->sums[r] < b->sums[r] ? -1 : 1;
    return 0;
}

static enum mist_status fail_memory(struct mist_err *err)
{
    return mist_err_set(err, MIST_ERR_MEMORY, "no memory for side constraints");
}

/* Whether a row is about more stages than one. */
static bool ties_stages(const struct mist_inter_stage_row *row)
{
    return row->n_terms > 0 &&
           row->terms[0].i_stage != row->terms[row->n_terms - 1].i_stage;
}

static bool alloc_rows(struct mist_stage_rows *rows)
{
    struct mist_arena *arena = rows->arena;
    size_t n_stages = (size_t)rows->problem->n_stages;
    size_t n_rows = rows->problem->n_rows + 1; /* and that of the devices */

    return MIST_ARENA_ALLOC(arena, rows->lower, n_rows) &&
           MIST_ARENA_ALLOC(arena, rows->upper, n_rows) &&
           MIST_ARENA_ALLOC(arena, rows->sum_of, n_rows) &&
           MIST_ARENA_ALLOC(arena, rows->next_term, n_rows) &&
           MIST_ARENA_ALLOC(arena, rows->n_classes, n_stages) &&
           MIST_ARENA_ALLOC(arena, rows->classes, n_stages) &&
           MIST_ARENA_ALLOC(arena, rows->n_states, n_stages + 1) &&
           MIST_ARENA_ALLOC(arena, rows->next, n_stages);
}

static int32_t add_sum(struct mist_stage_rows *rows, double lower, double upper)
{
    rows->lower[rows->n_sums] = lower - slack_of(lower);
    rows->upper[rows->n_sums] = upper + slack_of(upper);
    return rows->n_sums++;
}

enum mist_status mist_stage_rows_init(struct mist_stage_rows *rows,
                                      const struct mist_inter_stage_problem *problem,
                                      struct mist_arena *arena, struct mist_err *err)
{
    *rows = (struct mist_stage_rows){.problem = problem, .arena = arena};
    if (!alloc_rows(rows))
        return fail_memory(err);
    if (problem->n_devices >= 0)
        (void)add_sum(rows, problem->n_devices, problem->n_devices);
    for (size_t r = 0; r < problem->n_rows; r++) {
        const struct mist_inter_stage_row *row = &problem->rows[r];
        if (row->n_terms == 0 && (row->lower > SLACK || row->upper < -SLACK))
            return mist_err_set(err, MIST_ERR_NO_PLAN, "no choice of options keeps to %s",
                                row->name ? row->name : "a row");
        rows->sum_of[r] = ties_stages(row) ? add_sum(rows, row->lower, row->upper) : -1;
    }
    return MIST_OK;
}

/* ---------------------------------------------------------------------------- classes */

/* Leaves out what does not keep to a row about this stage alone; terms [n]. */
static void leave_out(const struct mist_inter_stage_row *row,
                      const struct mist_inter_stage_term *terms, size_t n,
                      size_t n_options, int32_t *i_class)
{
    size_t at = 0;

    for (size_t o = 0; o < n_options; o++) {
        bool has_term = at < n && (size_t)terms[at].i_option == o;
        double value = has_term ? terms[at++].coefficient : 0;
        if (value < row->lower - slack_of(row->lower) ||
            value > row->upper + slack_of(row->upper))
            i_class[o] = -1;
    }
}

/* The coefficients of a stage's options, [n_options][n_sums], zeroed before; i_class of
 * what may not be chosen becomes -1. */
static void read_stage(struct mist_stage_rows *rows, int32_t i_stage,
                       double *coefficients, int32_t *i_class)
{
    const struct mist_inter_stage_problem *problem = rows->problem;
    size_t n_sums = (size_t)rows->n_sums, n_options = problem->n_options[i_stage];

    for (size_t o = 0; o < n_options && problem->n_devices >= 0; o++)
        coefficients[o * n_sums] = problem->options[i_stage][o].n_devices;
    for (size_t r = 0; r < problem->n_rows; r++) {
        const struct mist_inter_stage_row *row = &problem->rows[r];
        size_t first = rows->next_term[r], end = first;
        while (end < row->n_terms && row->terms[end].i_stage == i_stage)
            end++;
        rows->next_term[r] = end;
        for (size_t k = first; k < end && rows->sum_of[r] >= 0; k++)
            coefficients[(size_t)row->terms[k].i_option * n_sums +
                         (size_t)rows->sum_of[r]] = row->terms[k].coefficient;
        if (rows->sum_of[r] < 0 && first < end)
            leave_out(row, row->terms + first, end - first, n_options, i_class);
    }
}

/* Different vectors of the options that may be chosen, in the order of their options;
 * returns how many. */
static int32_t find_classes(const struct mist_stage_rows *rows,
                            const double *coefficients, size_t n_options,
                            int32_t *i_class, struct vector *found)
{
    int32_t n = 0, last = 0;

    for (size_t o = 0; o < n_options; o++) {
        struct vector own = {coefficients + o * (size_t)rows->n_sums, rows->n_sums, n};
        if (i_class[o] < 0)
            continue;
        if (n == 0 || compare_vectors(&own, &found[last]) != 0)
            for (last = 0; last < n && compare_vectors(&own, &found[last]) != 0;)
                last++;
        if (last == n)
            found[n++] = own;
        i_class[o] = last;
    }
    return n;
}

enum mist_status mist_stage_rows_classify(struct mist_stage_rows *rows, int32_t i_stage,
                                          int32_t *i_class, struct mist_err *err)
{
    size_t n_sums = (size_t)rows->n_sums;
    size_t n_options = rows->problem->n_options[i_stage];
    double *coefficients = calloc(n_options * n_sums + 1, sizeof *coefficients);
    struct vector *found = malloc((n_options + 1) * sizeof *found);
    int32_t *order = malloc((n_options + 1) * sizeof *order), n = 0;

    memset(i_class, 0, n_options * sizeof *i_class);
    if (coefficients && found && order) {
        read_stage(rows, i_stage, coefficients, i_class);
        n = find_classes(rows, coefficients, n_options, i_class, found);
        rows->classes[i_stage] =
            mist_arena_alloc(rows->arena, ((size_t)n * n_sums + 1) * sizeof(double));
    }
    double *classes = rows->classes[i_stage];
    if (classes) {
        qsort(found, (size_t)n, sizeof *found, compare_vectors);
        for (int32_t c = 0; c < n; c++) {
            order[found[c].i_from] = c;
            memcpy(classes + (size_t)c * n_sums, found[c].sums, n_sums * sizeof *classes);
        }
        for (size_t o = 0; o < n_options; o++)
            i_class[o] = i_class[o] < 0 ? -1 : order[i_class[o]];
        rows->n_classes[i_stage] = n;
    }
    free(coefficients);
    free(found);
    free(order);
    return classes ? MIST_OK : fail_memory(err);
}

/* ----------------------------------------------------------------------------- states */

/* What the stages after each can add to the sums: [S + 1][n_sums] least, then most. */
static double *find_rest(const struct mist_stage_rows *rows)
{
    size_t n_sums = (size_t)rows->n_sums, n_stages = (size_t)rows->problem->n_stages;
    size_t n = (n_stages + 1) * n_sums;
    double *rest = calloc(2 * n + 1, sizeof *rest);

    for (size_t i = n_stages; rest && i-- > 0;)
        for (size_t r = 0; r < n_sums; r++) {
            const double *value = rows->classes[i] + r;
            double low = INFINITY, high = -INFINITY;
            for (int32_t c = 0; c < rows->n_classes[i]; c++, value += n_sums) {
                low = fmin(low, *value);
                high = fmax(high, *value);
            }
            rest[i * n_sums + r] = rest[(i + 1) * n_sums + r] + low;
            rest[n + i * n_sums + r] = rest[n + (i + 1) * n_sums + r] + high;
        }
    return rest;
}

/* Settles the rows that hold in any case; false: one can't hold any more. least, most: what
 * the stages left can add. */
static bool settle(const struct mist_stage_rows *rows, const double *least,
                   const double *most, double *sums)
{
    for (int32_t r = 0; r < rows->n_sums; r++) {
        double low = sums[r] + least[r], high = sums[r] + most[r];
        if (sums[r] == SETTLED)
            continue;
        if (low > rows->upper[r] || high < rows->lower[r])
            return false;
        if (low >= rows->lower[r] && high <= rows->upper[r])
            sums[r] = SETTLED;
    }
    return true;
}

/* The vectors of sums after a stage; from: before it, [n_states][n_sums]. sums: room for
 * those of every state and class, which i_from counts. Returns how many there are. */
static size_t extend(const struct mist_stage_rows *rows, int32_t i_stage,
                     const double *rest, const double *from, double *sums,
                     struct vector *out)
{
    size_t n_sums = (size_t)rows->n_sums, n_out = 0;
    size_t n_all = ((size_t)rows->problem->n_stages + 1) * n_sums;
    const double *least = rest + ((size_t)i_stage + 1) * n_sums, *most = least + n_all;
    int32_t n_classes = rows->n_classes[i_stage];
    int32_t n = rows->n_states[i_stage] * n_classes;

    for (int32_t k = 0; k < n; k++, sums += n_sums) {
        const double *before = from + (size_t)(k / n_classes) * n_sums;
        const double *added = rows->classes[i_stage] + (size_t)(k % n_classes) * n_sums;
        for (size_t r = 0; r < n_sums; r++)
            sums[r] = before[r] + added[r];
        if (settle(rows, least, most, sums))
            out[n_out++] = (struct vector){sums, rows->n_sums, k};
    }
    return n_out;
}

/* Numbers the different vectors [n], which become the states after the stage: *states,
 * freed by the caller. next: [n_states][n_classes], -1 everywhere. */
static bool number(struct mist_stage_rows *rows, int32_t i_stage, struct vector *vectors,
                   size_t n, int32_t *next, double **states)
{
    size_t n_sums = (size_t)rows->n_sums;
    int32_t n_states = 0;

    if (!MIST_MALLOC(*states, n * n_sums + 1))
        return false;
    qsort(vectors, n, sizeof *vectors, compare_vectors);
    for (size_t k = 0; k < n; k++) {
        if (k == 0 || compare_vectors(&vectors[k - 1], &vectors[k]) != 0)
            memcpy(*states + (size_t)n_states++ * n_sums, vectors[k].sums,
                   n_sums * sizeof **states);
        next[vectors[k].i_from] = n_states - 1;
    }
    rows->n_states[i_stage + 1] = n_states;
    return true;
}

/* The states after a stage take the place of those before it. */
static enum mist_status link_stage(struct mist_stage_rows *rows, int32_t i_stage,
                                   const double *rest, double **states,
                                   struct mist_err *err)
{
    size_t n = (size_t)rows->n_states[i_stage] * (size_t)rows->n_classes[i_stage];
    int32_t *next = mist_arena_alloc(rows->arena, (n + 1) * sizeof *next);
    struct vector *vectors = malloc((n + 1) * sizeof *vectors);
    double *sums = malloc((n * (size_t)rows->n_sums + 1) * sizeof *sums), *after = NULL;
    bool is_done = next && vectors && sums;

    if (is_done) {
        memset(next, -1, n * sizeof *next);
        size_t n_vectors = extend(rows, i_stage, rest, *states, sums, vectors);
        is_done = number(rows, i_stage, vectors, n_vectors, next, &after);
    }
    rows->next[i_stage] = next;
    free(vectors);
    free(sums);
    free(*states);
    *states = after;
    return is_done ? MIST_OK : fail_memory(err);
}

enum mist_status mist_stage_rows_link(struct mist_stage_rows *rows, int64_t n_most,
                                      struct mist_err *err)
{
    double *rest = find_rest(rows);
    double *states = calloc((size_t)rows->n_sums + 1, sizeof *states);
    enum mist_status status = rest && states ? MIST_OK : fail_memory(err);
    int64_t n_all = 1;

    rows->n_states[0] = 1;
    for (int32_t i = 0; i < rows->problem->n_stages && status == MIST_OK; i++) {
        if ((int64_t)rows->n_states[i] * rows->n_classes[i] > n_most)
            status = MIST_ERR_RANGE;
        else
            status = link_stage(rows, i, rest, &states, err);
        if (status != MIST_OK)
            break;
        n_all += rows->n_states[i + 1];
        if (rows->n_states[i + 1] == 0)
            status = mist_err_set(err, MIST_ERR_NO_PLAN,
                                  "no choice of options uses every device and keeps to "
                                  "all side constraints");
        else if (n_all > n_most)
            status = MIST_ERR_RANGE;
    }
    free(rest);
    free(states);
    return status != MIST_ERR_RANGE
               ? status
               : mist_err_set(err, status,
                              "side constraints tie stages together in more than %lld "
                              "ways",
                              (long long)n_most);
}
