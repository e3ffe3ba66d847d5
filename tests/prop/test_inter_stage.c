/*
 * Random inter-stage problems, small enough to try every choice: the exact solver's K
 * best, GLPK's optimum and the enumeration must agree. Times are drawn from a grid, so
 * that there are many ties, or from the reals; d is often 0, often hidden, sometimes
 * negative.
 */
#include "tests/unit/test.h"

#include "core/random.h"
#include "tests/unit/pick.h"
#include "tune/inter_stage.h"
#include "tune/inter_stage_glpk.h"

#include <math.h>

enum {
    MAX_STAGES = 5,
    MAX_OPTIONS = 12,
    MAX_CHOICES = 20000,
    MAX_ROWS = 3,
    N_INSTANCES = 1000
};

struct instance {
    struct mist_stage_option options[MAX_STAGES][MAX_OPTIONS];
    const struct mist_stage_option *stage_options[MAX_STAGES];
    size_t n_options[MAX_STAGES];
    struct mist_inter_stage_problem problem;
    struct mist_inter_stage_row rows[MAX_ROWS];
    struct mist_inter_stage_term terms[MAX_ROWS][MAX_STAGES * MAX_OPTIONS];
    double coefficients[MAX_ROWS][MAX_STAGES][MAX_OPTIONS];
    bool is_tying[MAX_ROWS]; /* more than one stage has terms of the row */
    bool is_dominated[MAX_STAGES][MAX_OPTIONS];
};

struct choice {
    double time_s;
    int64_t split; /* names layers, devices and coefficients of all stages */
};

static double draw_time(struct mist_random *random, bool on_grid, double scale)
{
    return on_grid ? scale / 8 * pick(random, 0, 8) : scale * mist_random_uniform(random);
}

/* Whether two options of a stage place, use and add the same. */
static bool is_alike(const struct instance *it, int i, size_t a, size_t b)
{
    const struct mist_stage_option *p = &it->options[i][a], *q = &it->options[i][b];

    for (size_t r = 0; r < it->problem.n_rows; r++)
        if (it->is_tying[r] && it->coefficients[r][i][a] != it->coefficients[r][i][b])
            return false;
    return p->n_layers == q->n_layers &&
           (it->problem.n_devices < 0 || p->n_devices == q->n_devices);
}

/* Whether an option keeps to the rows that are about its stage alone. */
static bool may_be(const struct instance *it, int i, size_t o)
{
    for (size_t r = 0; r < it->problem.n_rows; r++) {
        const struct mist_inter_stage_row *row = &it->rows[r];
        double value = it->coefficients[r][i][o];
        if (!it->is_tying[r] && row->n_terms > 0 && row->terms[0].i_stage == i &&
            (value < row->lower || value > row->upper))
            return false;
    }
    return true;
}

/* The definition in inter_stage.h, option by option. */
static bool naive_is_dominated(const struct instance *it, int i, size_t o)
{
    const struct mist_stage_option *b = &it->options[i][o];
    for (size_t p = 0; p < it->n_options[i]; p++) {
        const struct mist_stage_option *a = &it->options[i][p];
        bool same = is_alike(it, i, p, o) && may_be(it, i, p);
        bool equal = a->t_s == b->t_s && a->d_s == b->d_s;
        if (same && a->t_s <= b->t_s && a->d_s <= b->d_s && (!equal || p < o))
            return true;
    }
    return false;
}

/* Rows of small whole coefficients, some of them about one stage alone. */
static void make_rows(struct mist_random *random, struct instance *it)
{
    int n_stages = it->problem.n_stages,
        n_rows = pick(random, 0, 1) * pick(random, 1, MAX_ROWS);
    for (int r = 0; r < n_rows; r++) {
        struct mist_inter_stage_row *row = &it->rows[r];
        int only = pick(random, 0, 3) ? -1 : pick(random, 0, n_stages - 1),
            kind = pick(random, 0, 4);
        size_t n = 0;
        for (int i = 0; i < n_stages; i++)
            for (size_t o = 0; o < it->n_options[i]; o++) {
                double value = pick(random, -1, 2) * (only < 0 || only == i);
                it->coefficients[r][i][o] = value;
                if (value != 0)
                    it->terms[r][n++] =
                        (struct mist_inter_stage_term){i, (int32_t)o, value};
            }
        row->terms = it->terms[r];
        row->n_terms = n;
        row->lower = kind > 1 ? (double)pick(random, -2, 3) : -INFINITY;
        row->upper = kind == 2 ? row->lower : kind > 3 ? row->lower + 2 : INFINITY;
        if (kind < 2)
            row->upper = pick(random, -1, 3);
        it->is_tying[r] = n > 0 && row->terms[0].i_stage != row->terms[n - 1].i_stage;
    }
    it->problem.rows = it->rows;
    it->problem.n_rows = (size_t)n_rows;
}

static void make_instance(struct mist_random *random, struct instance *it)
{
    int n_stages = pick(random, 1, MAX_STAGES), most[] = {0, 12, 12, 12, 8, 6};
    bool on_grid = pick(random, 0, 1), devices = pick(random, 0, 1);
    double d_scale = pick(random, 0, 3); /* 0: no d at all; 3: up to three times t */
    int lengths = pick(random, 1, 4), unit = pick(random, 1, 3), layers = 0, used = 0;
    memset(it, 0, sizeof *it);
    for (int i = 0; i < n_stages; i++) {
        it->n_options[i] =
            (size_t)pick(random, pick(random, 0, 9) ? 1 : 0, most[n_stages]);
        for (size_t o = 0; o < it->n_options[i]; o++) {
            struct mist_stage_option *option = &it->options[i][o];
            option->n_layers = pick(random, 0, lengths);
            option->n_devices = unit << pick(random, 0, 2);
            option->t_s = draw_time(random, on_grid, 1) + 0.25 * option->n_layers;
            option->d_s =
                draw_time(random, on_grid, d_scale) - (pick(random, 0, 3) ? 0 : 0.5);
            option->payload = (int64_t)o;
            if (o == 0) { /* most instances have a solution */
                layers += option->n_layers;
                used += option->n_devices;
            }
        }
        it->stage_options[i] = it->options[i];
    }
    it->problem = (struct mist_inter_stage_problem){
        .n_stages = n_stages,
        .n_layers = pick(random, 0, 19) ? layers : pick(random, 0, 12),
        .n_devices = devices ? used : MIST_INTER_STAGE_ANY_DEVICES,
        .n_micro_batches = pick(random, 0, 3) ? pick(random, 1, 16) : 1,
        .options = it->stage_options,
        .n_options = it->n_options,
    };
    make_rows(random, it);
    for (int i = 0; i < n_stages; i++)
        for (size_t o = 0; o < it->n_options[i]; o++)
            it->is_dominated[i][o] = naive_is_dominated(it, i, o);
}

/* The formula as published. */
static double naive_time(const struct instance *it, const int32_t *i_option)
{
    double t_most = 0, sum = 0, extra = 0;
    for (int i = 0; i < it->problem.n_stages; i++) {
        double t_s = it->options[i][i_option[i]].t_s,
               d_s = it->options[i][i_option[i]].d_s;
        extra = fmax(extra, d_s - sum);
        sum += t_s;
        t_most = fmax(t_most, t_s);
    }
    return (double)(it->problem.n_micro_batches - 1) * t_most + sum + extra;
}

static bool keeps_to_rows(const struct instance *it, const int32_t *i_option)
{
    for (size_t r = 0; r < it->problem.n_rows; r++) {
        double sum = 0;
        for (int i = 0; i < it->problem.n_stages; i++)
            sum += it->coefficients[r][i][i_option[i]];
        if (sum < it->rows[r].lower || sum > it->rows[r].upper)
            return false;
    }
    return true;
}

/*
 * All feasible choices of stages i.., dominated options left out if asked, into choices.
 */
static size_t enumerate(const struct instance *it, int i, int layers, int devices,
                        int64_t split, int32_t *i_option, bool all,
                        struct choice *choices, size_t n)
{
    bool budget = it->problem.n_devices >= 0;
    if (i == it->problem.n_stages) {
        if (layers == it->problem.n_layers &&
            (!budget || devices == it->problem.n_devices) &&
            keeps_to_rows(it, i_option)) {
            assert_true(n < MAX_CHOICES);
            choices[n++] = (struct choice){naive_time(it, i_option), split};
        }
        return n;
    }
    for (size_t o = 0; o < it->n_options[i]; o++) {
        const struct mist_stage_option *option = &it->options[i][o];
        if (!all && it->is_dominated[i][o])
            continue;
        i_option[i] = (int32_t)o;
        int64_t part = 0; /* the first that is like it */
        while (!is_alike(it, i, (size_t)part, o))
            part++;
        n = enumerate(it, i + 1, layers + option->n_layers, devices + option->n_devices,
                      split * MAX_OPTIONS + part, i_option, all, choices, n);
    }
    return n;
}

static int compare_choices(const void *a, const void *b)
{
    const struct choice *p = a, *q = b;
    return (p->time_s > q->time_s) - (p->time_s < q->time_s);
}

/* Of choices sorted by time, keeps the first of each split. */
static size_t keep_splits(struct choice *choices, size_t n)
{
    size_t n_kept = 0;
    for (size_t k = 0; k < n; k++) {
        bool known = false;
        for (size_t j = 0; j < n_kept && !known; j++)
            known = choices[j].split == choices[k].split;
        if (!known)
            choices[n_kept++] = choices[k];
    }
    return n_kept;
}

static void assert_close(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b))))
        fail_msg("%.17g is not %.17g", a, b);
}

static bool is_same(const struct instance *it, const int32_t *a, const int32_t *b)
{
    for (int i = 0; i < it->problem.n_stages; i++)
        if (!is_alike(it, i, (size_t)a[i], (size_t)b[i]))
            return false;
    return true;
}

/* Feasible, rising, no two the same, times as computed from the options. */
static void check_list(const struct instance *it,
                       const struct mist_inter_stage_result *result)
{
    for (size_t k = 0; k < result->n_solutions; k++) {
        const int32_t *i_option = result->solutions[k].i_option;
        int layers = 0, devices = 0;
        for (int i = 0; i < it->problem.n_stages; i++) {
            assert_in_range(i_option[i], 0, it->n_options[i] - 1);
            assert_false(it->is_dominated[i][i_option[i]]);
            layers += it->options[i][i_option[i]].n_layers;
            devices += it->options[i][i_option[i]].n_devices;
        }
        assert_int_equal(layers, it->problem.n_layers);
        assert_true(it->problem.n_devices < 0 || devices == it->problem.n_devices);
        assert_true(keeps_to_rows(it, i_option));
        assert_close(result->solutions[k].time_s, naive_time(it, i_option));
        for (size_t j = 0; j < k; j++)
            assert_false(is_same(it, i_option, result->solutions[j].i_option));
    }
}

/* With a cutoff the solutions below it stay what they are. */
static void check_cutoff(const struct instance *it,
                         const struct mist_inter_stage_config *config,
                         const struct mist_inter_stage_result *all)
{
    struct mist_inter_stage_result result;
    struct mist_inter_stage_config how = *config;
    size_t n = 0;

    how.cutoff_s = 1.1 * all->solutions[0].time_s + 1e-9;
    while (n < all->n_solutions && all->solutions[n].time_s < how.cutoff_s)
        n++;
    assert_int_equal(mist_inter_stage_solve(&it->problem, &how, &result, NULL), MIST_OK);
    assert_true(result.n_solutions >= n);
    for (size_t k = 0; k < n; k++)
        assert_true(result.solutions[k].time_s == all->solutions[k].time_s);
    mist_inter_stage_result_fini(&result);
}

static void check_exact(const struct instance *it, const struct choice *choices, size_t n,
                        size_t n_best)
{
    struct mist_inter_stage_result result, again;
    struct mist_inter_stage_config config = {.n_best = n_best};
    enum mist_status status =
        mist_inter_stage_solve(&it->problem, &config, &result, NULL);
    assert_int_equal(status, n > 0 ? MIST_OK : MIST_ERR_NO_PLAN);
    if (n == 0)
        return;
    assert_int_equal(result.n_solutions, n < n_best ? n : n_best);
    check_cutoff(it, &config, &result);
    for (size_t k = 0; k < result.n_solutions; k++)
        assert_close(result.solutions[k].time_s, choices[k].time_s);
    check_list(it, &result);
    assert_int_equal(mist_inter_stage_solve(&it->problem, &config, &again, NULL),
                     MIST_OK);
    for (size_t k = 0; k < result.n_solutions; k++)
        assert_memory_equal(result.solutions[k].i_option, again.solutions[k].i_option,
                            (size_t)it->problem.n_stages * sizeof(int32_t));
    mist_inter_stage_result_fini(&again);
    mist_inter_stage_result_fini(&result);
}

static void check_glpk(const struct instance *it, const struct choice *choices, size_t n)
{
    struct mist_inter_stage_glpk_config config = {60, INFINITY};
    struct mist_inter_stage_glpk_result result;
    struct mist_err err = {0};
    int32_t i_option[MAX_STAGES];
    enum mist_status status =
        mist_inter_stage_solve_glpk(&it->problem, &config, i_option, &result, &err);
    must(status, &err);
    assert_int_equal(result.outcome,
                     n > 0 ? MIST_INTER_STAGE_OPTIMAL : MIST_INTER_STAGE_INFEASIBLE);
    if (n == 0)
        return;
    assert_close(result.time_s, choices[0].time_s);
    assert_close(result.time_s, naive_time(it, i_option));
}

TEST(test_three_ways_agree)
{
    static struct choice choices[MAX_CHOICES];
    static struct instance it;
    struct mist_random random;
    int32_t i_option[MAX_STAGES];
    uint64_t seed = test_seed(20251);
    int n_solved = 0;
    mist_random_init(&random, seed);
    for (int round = 0; round < N_INSTANCES; round++) {
        make_instance(&random, &it);
        size_t n_all = enumerate(&it, 0, 0, 0, 0, i_option, true, choices, 0);
        qsort(choices, n_all, sizeof *choices, compare_choices);
        double best_s = n_all > 0 ? choices[0].time_s : 0;
        check_glpk(&it, choices, n_all);
        check_exact(&it, choices, n_all > 0, 1);
        size_t n = enumerate(&it, 0, 0, 0, 0, i_option, false, choices, 0);
        qsort(choices, n, sizeof *choices, compare_choices);
        assert_int_equal(n > 0, n_all > 0);
        if (n > 0)
            assert_close(best_s,
                         choices[0].time_s); /* dominated options are never needed */
        n_solved += n > 0;
        size_t n_best = (size_t)pick(&random, 1, 40);
        n = keep_splits(choices, n);
        check_exact(&it, choices, n, n_best);
    }
    print_message("seed %" PRIu64 ": %d instances, %d with a solution\n", seed,
                  N_INSTANCES, n_solved);
    assert_true(n_solved > N_INSTANCES / 2);
}

TEST_MAIN(NULL, NULL)
