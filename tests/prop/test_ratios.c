/*
 * What the search counts on (tune/search.h), by the closed form.
 *
 * What is offloaded costs time: as a ratio rises and all else stays, neither t nor what a
 * stage takes with one micro-batch, t + d, falls, so no plan gets faster (step 4). Random
 * stages of two blocks and more, of all roles, on made-up machines; updates on the host,
 * which relieve the device, are left out.
 *
 * Gradients that leave a later stage are the exception: they are summed over ranks before,
 * beside the last backward, the others in the pause behind it (mist_schedule_sums_behind), where
 * nobody waits for them either; so t + d falls by a little with each eighth. And a bundle of
 * three channels is not quite monotone in each: where links are fast, activations that leave
 * save up to a thousandth.
 *
 * A layer more takes memory: neither the arena on the device nor the one on the host gets
 * smaller, whatever else a stage does.
 *
 * MIST_SEED: which stages; MIST_STAGES: how many of each model, role and machine; MIST_PRINT:
 * those that get faster.
 */
#include "tests/unit/test.h"

#include "core/random.h"
#include "sim/closed_form/stage_model.h"
#include "tests/prop/made_up_machines.h"
#include "tests/unit/pick.h"
#include "tests/unit/tiny_models.h"

#include <math.h>

enum {
    SEED = 20261123,
    N_MODELS = 6,
    N_STAGES = 20,
    N_RATIOS = 4,
    N_STEPS = 8,
    N_ROLES = 4
};

static struct mist_err err;

/* A model whose larger blocks take longer to move than the latency. */
static struct mist_model draw_model(struct mist_random *random)
{
    enum mist_family family = pick(random, 0, 1) ? MIST_FAMILY_GPT : MIST_FAMILY_LLAMA;
    struct mist_model model = mist_tiny_model(family, 8);

    model.hidden = 24 << pick(random, 2, 5);
    model.head_dim = model.hidden / model.n_heads;
    model.ffn = 4 * model.hidden;
    model.ties_embeddings = pick(random, 0, 1);
    return model;
}

static void draw_knobs(struct mist_random *random, double knobs[MIST_STAGE_N_COLUMNS])
{
    int n_layers = pick(random, 2, 8), n_checkpointed = pick(random, 0, n_layers);
    int g = pick(random, 1, 8);

    knobs[MIST_STAGE_LAYERS] = n_layers;
    knobs[MIST_STAGE_CHECKPOINTED] = n_checkpointed;
    knobs[MIST_STAGE_LEAN] = pick(random, 0, n_layers - n_checkpointed);
    knobs[MIST_STAGE_ZERO] = pick(random, 0, 3);
    for (int r = 0; r < N_RATIOS; r++)
        knobs[MIST_STAGE_OFFLOAD_WEIGHTS + r] =
            pick(random, 0, 1) ? pick(random, 0, N_STEPS) / (double)N_STEPS : 0;
    knobs[MIST_STAGE_UPDATE_ON_HOST] = 0;
    knobs[MIST_STAGE_IN_FLIGHT] = pick(random, 1, g < 4 ? g : 4);
    knobs[MIST_STAGE_MICRO_BATCHES] = g;
}

/* How much of t + d (or t) is saved at most by one step of a ratio. */
static double find_saving(struct mist_stage_model *model,
                          const struct mist_stage_values *values,
                          const double knobs[MIST_STAGE_N_COLUMNS], int ratio)
{
    struct mist_tape_input columns[MIST_STAGE_N_COLUMNS];
    double rising[N_STEPS + 1], t[N_STEPS + 1] = {0}, d[N_STEPS + 1] = {0}, most = 0;
    double *const outputs[MIST_STAGE_N_OUTPUTS] = {
        [MIST_STAGE_STABLE] = t, [MIST_STAGE_EXTRA] = d};

    for (int i = 0; i <= N_STEPS; i++)
        rising[i] = i / (double)N_STEPS;
    for (int k = 0; k < MIST_STAGE_N_COLUMNS; k++)
        columns[k] = (struct mist_tape_input){NULL, knobs[k]};
    columns[MIST_STAGE_OFFLOAD_WEIGHTS + ratio].column = rising;
    must(mist_stage_model_eval(model, values, columns, N_STEPS + 1, outputs, &err), &err);
    for (int i = 1; i <= N_STEPS; i++) {
        double whole_s = t[i - 1] + d[i - 1];
        most = fmax(most, (t[i - 1] - t[i]) / t[i - 1]);
        most = fmax(most, (whole_s - t[i] - d[i]) / whole_s);
    }
    return most;
}

static void print_stage(const double knobs[MIST_STAGE_N_COLUMNS],
                        const struct mist_stage_shape *shape, int ratio, double saving)
{
    printf("# %.4f saved by ratio %d: first %d last %d b %d dp %d tp %d:", saving, ratio,
           shape->is_first, shape->is_last, (int)shape->micro_batch, (int)shape->dp,
           (int)shape->tp);
    for (int k = 0; k < MIST_STAGE_N_COLUMNS; k++)
        printf(" %g", knobs[k]);
    printf("\n");
}

static struct mist_stage_shape draw_shape(struct mist_random *random, int role)
{
    struct mist_stage_shape shape = {
        .is_first = role & 1,
        .is_last = role & 2,
        .micro_batch = pick(random, 1, 4),
        .dp = 1 << pick(random, 0, 2),
        .tp = 1,
        .n_nodes = 1,
    };

    shape.n_devices = shape.dp;
    return shape;
}

/* The largest saving of a random stage of a model, by ratio. */
static void check_stage(struct mist_random *random, struct mist_stage_model *model,
                        int role, double most[N_RATIOS])
{
    struct mist_stage_shape shape = draw_shape(random, role);
    double knobs[MIST_STAGE_N_COLUMNS];
    struct mist_stage_values values;

    must(mist_stage_model_prepare(model, &shape, &values, &err), &err);
    draw_knobs(random, knobs);
    for (int r = 0; r < N_RATIOS; r++) {
        double saving = find_saving(model, &values, knobs, r);
        if (saving > 1e-9 && getenv("MIST_PRINT"))
            print_stage(knobs, &shape, r, saving);
        most[r] = fmax(most[r], saving);
    }
}

/* Of n stages of each role of a random model. */
static void check_model(struct mist_random *random, const struct mist_cost_model *costs,
                        int n, double most[N_ROLES][N_RATIOS])
{
    struct mist_model trained = draw_model(random);
    struct mist_job job = {.seq_len = 32 * pick(random, 1, 4)};
    struct mist_stage_model *model;

    must(mist_stage_model_new(&trained, costs, &job, 1, &model, &err), &err);
    for (int role = 0; role < N_ROLES; role++)
        for (int i = 0; i < n; i++)
            check_stage(random, model, role, most[role]);
    mist_stage_model_free(model);
}

TEST(offloading_costs_time)
{
    /* by ratio: weights, gradients, optimizer, activations */
    static const double most_frac[N_RATIOS] = {0.005, 0.03, 1e-9, 0.002};
    static const char *const names[N_ROLES] = {"middle", "first", "last", "only"};
    int n = getenv("MIST_STAGES") ? atoi(getenv("MIST_STAGES")) : N_STAGES;
    uint64_t seed = test_seed(SEED);
    struct mist_random random;

    mist_random_init(&random, seed);
    for (int m = 0; m < N_MACHINES; m++) {
        struct mist_trace_set traces;
        struct mist_cost_model *costs = open_machine(&traces, &machines[m]);
        double most[N_ROLES][N_RATIOS] = {{0}};
        for (int i = 0; i < N_MODELS; i++)
            check_model(&random, costs, n, most);
        for (int role = 0; role < N_ROLES; role++) {
            print_message("%s, %s: saved at most %.4f %.4f %.4f %.4f\n", machines[m].name,
                          names[role], most[role][0], most[role][1], most[role][2],
                          most[role][3]);
            for (int r = 0; r < N_RATIOS; r++)
                assert_true(most[role][r] <= most_frac[r]);
        }
        close_machine(&traces, costs);
    }
}

/* The arenas with the knobs, with a layer more and with a checkpointed one more. */
static void check_layers(struct mist_stage_model *model,
                         const struct mist_stage_values *values,
                         const double knobs[MIST_STAGE_N_COLUMNS])
{
    struct mist_tape_input columns[MIST_STAGE_N_COLUMNS];
    double layers[3], checkpointed[3], lean[3], peak[3] = {0}, host[3] = {0};
    double *const outputs[MIST_STAGE_N_OUTPUTS] = {
        [MIST_STAGE_PEAK] = peak, [MIST_STAGE_HOST] = host};
    bool is_lean = knobs[MIST_STAGE_LEAN] > 0;

    for (int i = 0; i < 3; i++) {
        layers[i] = knobs[MIST_STAGE_LAYERS] + (i > 0);
        checkpointed[i] = knobs[MIST_STAGE_CHECKPOINTED] + (i == 2);
        lean[i] = is_lean ? layers[i] - checkpointed[i] : 0;
    }
    for (int k = 0; k < MIST_STAGE_N_COLUMNS; k++)
        columns[k] = (struct mist_tape_input){NULL, knobs[k]};
    columns[MIST_STAGE_LAYERS].column = layers;
    columns[MIST_STAGE_CHECKPOINTED].column = checkpointed;
    columns[MIST_STAGE_LEAN].column = lean;
    must(mist_stage_model_eval(model, values, columns, 3, outputs, &err), &err);
    for (int i = 1; i < 3; i++) {
        assert_true(peak[i] >= (1 - 1e-12) * peak[0]);
        assert_true(host[i] >= (1 - 1e-12) * host[0]);
    }
}

/* Random knobs of a stage, none or all of what is not checkpointed lean, as in a search. */
static void draw_searched(struct mist_random *random, double knobs[MIST_STAGE_N_COLUMNS])
{
    draw_knobs(random, knobs);
    knobs[MIST_STAGE_LAYERS] -= pick(random, 0, 1);
    knobs[MIST_STAGE_CHECKPOINTED] =
        fmin(knobs[MIST_STAGE_LAYERS], knobs[MIST_STAGE_CHECKPOINTED]);
    knobs[MIST_STAGE_LEAN] =
        pick(random, 0, 1) * (knobs[MIST_STAGE_LAYERS] - knobs[MIST_STAGE_CHECKPOINTED]);
    knobs[MIST_STAGE_UPDATE_ON_HOST] =
        pick(random, 0, 1) && knobs[MIST_STAGE_OFFLOAD_OPTIMIZER] > 0;
}

TEST(layers_take_memory)
{
    int n = getenv("MIST_STAGES") ? atoi(getenv("MIST_STAGES")) : 10 * N_STAGES;
    uint64_t seed = test_seed(SEED);
    struct mist_trace_set traces;
    struct mist_cost_model *costs = open_machine(&traces, &machines[0]);
    struct mist_random random;

    mist_random_init(&random, seed);
    for (int i = 0; i < n; i++) {
        struct mist_model trained = draw_model(&random);
        struct mist_job job = {.seq_len = 32 * pick(&random, 1, 4)};
        struct mist_stage_shape shape = draw_shape(&random, i % N_ROLES);
        double knobs[MIST_STAGE_N_COLUMNS];
        struct mist_stage_model *model;
        struct mist_stage_values values;
        must(mist_stage_model_new(&trained, costs, &job, 1, &model, &err), &err);
        must(mist_stage_model_prepare(model, &shape, &values, &err), &err);
        for (int k = 0; k < 200; k++) {
            draw_searched(&random, knobs);
            check_layers(model, &values, knobs);
        }
        mist_stage_model_free(model);
    }
    close_machine(&traces, costs);
}

TEST_MAIN(NULL, NULL)
