/*
 * Random plans: every knob at once, and other ones in each stage. Each trains to nearly
 * the numbers of the plain run of its model, and to the same bits when it runs one task
 * at a time, and with random delays.
 */
#include "tests/unit/test.h"

#include "core/random.h"
#include "tests/prop/training_grid.h"
#include "tests/unit/pick.h"

enum { N_PLANS = 40, N_LAYERS = 4, SEQ = 32, N_STEPS = 8 };

/* Tensor-parallel sizes that the heads of a model allow are powers of two up to this. */
static int largest_tp(enum training_model model)
{
    return model == TRAINING_LLAMA || model == TRAINING_FALCON_GROUPED ? 2 : 4;
}

static void append(char *text, size_t size, const char *name, double value)
{
    size_t n = strlen(text);

    snprintf(text + n, size - n, " %s%.3g", name, value);
}

static void draw_stage(struct mist_random *random, int n_layers, int dp, int tp,
                       char *text, size_t size)
{
    static const char *const fractions[] = {"ow", "og", "oo", "oa"};

    append(text, size, "l", n_layers);
    append(text, size, "dp", dp);
    append(text, size, "tp", tp);
    if (tp > 1 && pick(random, 0, 1))
        strcat(text, " sp");
    append(text, size, "z", pick(random, 0, 3));
    int n_checkpointed = pick(random, 0, 1) ? pick(random, 0, n_layers) : 0;
    append(text, size, "ck", n_checkpointed);
    if (pick(random, 0, 1))
        append(text, size, "ln", pick(random, 0, n_layers - n_checkpointed));
    for (int i = 0; i < 4; i++) {
        if (pick(random, 0, 2) != 0)
            continue;
        append(text, size, fractions[i],
               pick(random, 0, 3) ? mist_random_uniform(random) : 1);
        if (i == 2 && pick(random, 0, 1))
            strcat(text, " uh");
    }
}

/* Data-parallel and tensor-parallel sizes of the stages; false: more ranks than fit. */
static bool draw_meshes(struct mist_random *random, enum training_model model,
                        int n_stages, int n_samples, int *dp, int *tp)
{
    int n_ranks = 0;

    for (int i = 0; i < n_stages; i++) {
        dp[i] = 1 << pick(random, 0, 3);
        tp[i] = 1 << pick(random, 0, 2);
        if (model == TRAINING_GPT_TIED && i == n_stages - 1) {
            dp[i] = dp[0];
            tp[i] = tp[0];
        }
        if (dp[i] > n_samples || tp[i] > largest_tp(model))
            return false;
        n_ranks += dp[i] * tp[i];
    }
    return n_ranks <= TRAINING_MAX_RANKS;
}

static void draw_text(struct mist_random *random, enum training_model model, char *text,
                      size_t size)
{
    int dp[N_LAYERS], tp[N_LAYERS], n_stages, n_micro_batches, n_left = N_LAYERS;

    do {
        n_stages = pick(random, 1, 4);
        n_micro_batches = 1 << pick(random, 0, 3);
    } while (
        !draw_meshes(random, model, n_stages, TRAINING_BATCH / n_micro_batches, dp, tp));
    bool has_chunks = n_stages == 2 && pick(random, 0, 2) > 0;
    bool is_v = has_chunks && (n_micro_batches == 1 || pick(random, 0, 1));
    bool is_zb = !has_chunks && pick(random, 0, 2) == 0;
    static const char *const zb[] = {" zb", " zb2", " zba1", " zba2"};
    snprintf(text, size, "G%d%s%s:", n_micro_batches, pick(random, 0, 1) ? " each" : "",
             is_v         ? " zbv"
             : has_chunks ? " il2"
             : is_zb      ? zb[pick(random, 0, 3)]
                          : "");
    for (int i = 0; i < n_stages; i++) {
        int n = has_chunks ? 2 : pick(random, 1, n_left - (n_stages - 1 - i));
        n = i == n_stages - 1 ? n_left : n;
        n_left -= n;
        if (i > 0)
            strcat(text, " /");
        draw_stage(random, n, dp[i], tp[i], text, size);
    }
    assert_true(strlen(text) < size - 32);
}

static int32_t add_run(struct training_grid *grid, enum training_model model,
                       const char *options, const char *text)
{
    struct training_run *run =
        training_grid_add(grid, model, N_LAYERS, SEQ, MIST_DTYPE_FP32);

    snprintf(run->text, sizeof run->text, "%s%s", options, text);
    run->n_steps = N_STEPS;
    run->clip_norm = 1;
    training_read_plan(run);
    return grid->n - 1;
}

static void check_near(const struct training_grid *grid)
{
    double worst_first = 0, worst = 0;
    int n = 0;

    for (int32_t i = 0; i < grid->n; i++) {
        if (grid->runs[i].i_near < 0)
            continue;
        const struct training_outcome *at = &grid->outcomes[i];
        const struct training_outcome *plain = &grid->outcomes[grid->runs[i].i_near];
        double first = training_difference(at->losses, plain->losses, 1);
        double norm = training_difference(at->norms, plain->norms, 1);
        double all = training_difference(at->losses, plain->losses, N_STEPS);
        if (!(first <= 1e-6 && norm <= 1e-6 && all <= 1e-4))
            fail_msg("%s: \"%s\" is %.1e off at first, its norm %.1e, %.1e later",
                     grid->runs[i].plan.model.name, grid->runs[i].text, first, norm, all);
        assert_int_equal(at->n_elements, plain->n_elements);
        worst_first = fmax(worst_first, fmax(first, norm));
        worst = fmax(worst, all);
        n++;
    }
    printf("# %d random plans near the plain runs: worst %.1e at first, %.1e later\n", n,
           worst_first, worst);
}

TEST(test_random_plans)
{
    struct training_grid grid = {0};
    struct mist_random random;
    char text[320], delay[32];
    int32_t plain[TRAINING_N_MODELS];

    mist_random_init(&random, test_seed(20253));
    for (int i = 0; i < TRAINING_N_MODELS; i++)
        plain[i] = add_run(&grid, (enum training_model)i, "", "G1:");
    for (int i = 0; i < N_PLANS; i++) {
        enum training_model model =
            (enum training_model)pick(&random, 0, TRAINING_N_MODELS - 1);
        draw_text(&random, model, text, sizeof text);
        if (test_is_left_out())
            continue;
        snprintf(delay, sizeof delay, "delay%d ", i + 1);
        int32_t first = add_run(&grid, model, "", text);
        grid.runs[first].i_near = plain[model];
        int32_t other = add_run(&grid, model, "serial ", text);
        grid.runs[other].i_like = first;
        if (i % 4 == 0) {
            other = add_run(&grid, model, delay, text);
            grid.runs[other].i_like = first;
        }
    }
    training_grid_execute(&grid);
    check_near(&grid);
    int32_t n_wrong = training_grid_check_same(&grid);
    training_grid_fini(&grid);
    assert_int_equal(n_wrong, 0);
}

TRAINING_MAIN
