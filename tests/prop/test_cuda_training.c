/*
 * The CUDA backend trains as the CPU's does: its real host code and kernels, on the
 * emulator. Losses and gradient norms of plans of every sort are near the CPU's of the
 * same plan (fp32: 1e-5 relative over the steps; bf16: loss 2e-3), and where only data
 * moves or work is re-timed (checkpointing, offloading, ZeRO, serial,
 * streams that run as late as may be, steps that are captured and replayed) they are the
 * same, bit for bit.
 */
#include "tests/unit/test.h"

#include "exec/operators/cpu_bf16.h"
#include "tests/prop/training_grid.h"

enum { N_STEPS = 2, N_REPLAYED_STEPS = 6, N_CHOSEN_STEPS = 13, SEQ = 20 };

/* The first of a list is what the others have the same bits as. */
static const char *const same[] = {
    "G2 cuda: ",
    "G2 cuda: ck1",
    "G2 cuda serial: ",
    "G2 cuda delay3: ck2",
    "G2 cuda: ow.5 og1 oo.5 oa1",
    "G2 cuda: ow1 og.5 oo1 oa.5 ck1",
    "G2 cuda: / ow.5 oa.5",
    "G2 cuda zb: ck1 / oo1",
    "G2 cuda: oo1 uh",
    "G2 cuda delay5: ow.5 og.3 oo.7 uh ck1",
    "G2 cuda: oo.5 uh / ow1 og1 oo1 oa.5 uh",
    NULL,
};
static const char *const same_chunked[] = {
    "G2 cuda: ",
    "G2 cuda zbv: ck1 / oo1",
    "G2 cuda delay7 zbv: ow.5 oa.5 / og.5",
    NULL,
};
static const char *const same_rounded[] = {
    "G2 bg cuda: ",
    "G2 bg cuda: ck1",
    "G2 bg cuda: ow.5 og1 oo.5 oa1",
    "G2 bg cuda zb: ck1 / oo1",
    NULL,
};
static const char *const same_rounded_sharded[] = {
    "G1 bg cuda: dp2",
    "G1 bg cuda: dp2 z1",
    "G1 bg cuda: dp2 z2 og.5",
    "G1 bg cuda: dp2 z3 ow.5",
    NULL,
};
static const char *const same_sharded[] = {
    "G1 cuda: dp2",
    "G1 cuda: dp2 z1",
    "G1 cuda: dp2 z2 og.5",
    "G1 cuda: dp2 z3 ow.5",
    "G1 cuda: dp2 z1 oo1 uh",
    "G1 cuda: dp2 z2 og.5 ow.5 oo1 uh",
    "G1 cuda: dp2 z3 oo.7 uh",
    NULL,
};
static const char *const same_split[] = {
    "G2 cuda: tp2",
    "G2 cuda serial: tp2 ck1",
    "G2 cuda: tp2 oo1 oa.5",
    NULL,
};
static const char *const split_rows[] = {"G2 cuda: tp2 sp", NULL};
/* Of lean blocks SwiGLU's product and norms; where gelu is part of a product, it is made
 * again by another kernel, and only plans that do so alike have the same bits. */
static const char *const same_lean[] = {
    "G2 cuda: ",
    "G2 cuda: ln2",
    "G2 cuda delay9: ck1 ln1 oa.5",
    "G2 cuda zb: ln1 oa1 / ln1",
    NULL,
};
static const char *const lean[] = {
    "G2 cuda: ln2",
    "G2 cuda serial: ln2 oa.5",
    "G2 cuda zb: ln1 / ln1",
    NULL,
};
/* Steps 2, 4 and 6 are replayed: the third has no update, the fifth starts behind one.
 * Each is clipped by another factor. */
static const char *const replayed[] = {
    "G2 skip2 eval4 plain cuda: ",
    "G2 skip2 eval4 graphs cuda: ",
    "G2 skip2 eval4 graphs cuda: ow.5 og1 oo.5 oa1",
    "G2 skip2 eval4 graphs cuda: ow1 og.5 oo1 oa.5 ck1",
    "G2 skip2 eval4 graphs each cuda: ow.5 og.5 oo.5 oa.5",
    NULL,
};
static const char *const replayed_rounded[] = {
    "G2 bg plain cuda: ",
    "G2 bg graphs cuda: ck1",
    "G2 bg graphs cuda: ow.5 og1 oo.5 oa1",
    NULL,
};
/* Long enough for the run to try both ways. */
static const char *const chosen[] = {"G1 plain cuda: ", "G1 cuda: ", NULL};

/* One list, and the same plan on the CPU as its first. */
static void add_list(struct training_grid *grid, enum training_model model,
                     int32_t n_layers, enum mist_dtype dtype, const char *const *texts,
                     int32_t n_steps)
{
    int32_t i_first = grid->n;

    if (i_first > 0 && test_is_left_out())
        return;
    for (int32_t i = -1; i < 0 || texts[i]; i++) {
        if (i > 0 && test_is_left_out())
            continue;
        struct training_run *run = training_grid_add(grid, model, n_layers, SEQ, dtype);
        snprintf(run->text, sizeof run->text, "%s", texts[i < 0 ? 0 : i]);
        run->n_steps = n_steps;
        run->clip_norm = n_steps > N_STEPS ? 0.5 : 0; /* another scale in every step */
        training_read_plan(run);
        if (i < 0)
            run->plan.job.computes_on_gpu = false;
        else
            run->i_near = i_first;
        if (i > 0)
            run->i_like = i_first + 1;
    }
}

static void check_near(const struct training_grid *grid)
{
    double worst_s[2] = {0};

    for (int32_t i = 0; i < grid->n; i++) {
        const struct training_run *run = &grid->runs[i];
        if (run->i_near < 0)
            continue;
        const struct training_outcome *a = &grid->outcomes[i];
        const struct training_outcome *b = &grid->outcomes[run->i_near];
        bool is_bf16 = run->plan.job.dtype == MIST_DTYPE_BF16;
        double losses = training_difference(a->losses, b->losses, N_STEPS);
        double norms = training_difference(a->norms, b->norms, N_STEPS);
        if (!(losses <= (is_bf16 ? 2e-3 : 1e-5) && norms <= (is_bf16 ? 5e-2 : 1e-4)))
            fail_msg("%s, \"%s\": losses off by %.1e, norms by %.1e",
                     run->plan.model.name, run->text, losses, norms);
        worst_s[is_bf16] = fmax(worst_s[is_bf16], losses);
    }
    printf("# losses off by at most %.1e (fp32), %.1e (bf16) from the CPU's\n",
           worst_s[0], worst_s[1]);
}

/* Steps are replayed where they are to be, and where a run tries both ways. */
static void check_replays(const struct training_grid *grid)
{
    for (int32_t i = 0; i < grid->n && mist_emulated_n_replays() >= 0; i++) {
        const struct training_run *run = &grid->runs[i];
        long long n = grid->outcomes[i].n_replays, n_least = 0;
        if (run->graphs == MIST_GRAPHS_ON && run->plan.job.computes_on_gpu)
            n_least = run->skipped_step > 0 ? 3 : N_REPLAYED_STEPS - 1;
        else if (run->graphs == MIST_GRAPHS_AUTO && run->n_steps == N_CHOSEN_STEPS)
            n_least = 3;
        if (n < n_least || (n_least == 0 && n > 0))
            fail_msg("\"%s\": %lld steps were replayed, not %lld", run->text, n, n_least);
    }
}

TEST(test_training)
{
    struct training_grid grid = {0};

    if (!mist_emulated_backend()) {
        print_message("# skipped: CUDA's headers are not installed\n");
        skip();
    }
    for (int m = 0; m < TRAINING_N_MODELS; m++) {
        add_list(&grid, (enum training_model)m, 2, MIST_DTYPE_FP32,
                 m == TRAINING_GPT_TIED ? same : split_rows, N_STEPS);
    }
    add_list(&grid, TRAINING_GPT_TIED, 4, MIST_DTYPE_FP32, same_chunked, N_STEPS);
    add_list(&grid, TRAINING_LLAMA, 2, MIST_DTYPE_FP32, same_sharded, N_STEPS);
    add_list(&grid, TRAINING_LLAMA, 2, MIST_DTYPE_FP32, same_split, N_STEPS);
    add_list(&grid, TRAINING_LLAMA, 2, MIST_DTYPE_FP32, same_lean, N_STEPS);
    add_list(&grid, TRAINING_GPT, 2, MIST_DTYPE_FP32, lean, N_STEPS);
    add_list(&grid, TRAINING_FALCON_GROUPED, 2, MIST_DTYPE_FP32, lean, N_STEPS);
    add_list(&grid, TRAINING_GPT, 2, MIST_DTYPE_FP32, replayed, N_REPLAYED_STEPS);
    add_list(&grid, TRAINING_GPT_TIED, 2, MIST_DTYPE_FP32, chosen, N_CHOSEN_STEPS);
    add_list(&grid, TRAINING_GPT, 2, MIST_DTYPE_BF16, same, N_STEPS);
    add_list(&grid, TRAINING_GPT_TIED, 2, MIST_DTYPE_BF16, same_rounded, N_STEPS);
    add_list(&grid, TRAINING_LLAMA, 2, MIST_DTYPE_BF16, same_rounded_sharded, N_STEPS);
    add_list(&grid, TRAINING_LLAMA, 2, MIST_DTYPE_BF16, same_lean, N_STEPS);
    add_list(&grid, TRAINING_GPT, 2, MIST_DTYPE_BF16, lean, N_STEPS);
    add_list(&grid, TRAINING_GPT_TIED, 2, MIST_DTYPE_BF16, replayed_rounded,
             N_REPLAYED_STEPS);
    training_grid_execute(&grid);
    check_near(&grid);
    check_replays(&grid);
    assert_int_equal(training_grid_check_same(&grid), 0);
    /* once more with streams that run their work as late as may be */
    struct training_outcome *eager = grid.outcomes;
    setenv("MIST_EMULATION_STREAMS", "lazy", 1);
    training_grid_execute(&grid);
    unsetenv("MIST_EMULATION_STREAMS");
    for (int32_t i = 0; i < grid.n; i++)
        if (!training_is_same(&eager[i], &grid.outcomes[i]))
            fail_msg("%s, \"%s\": late streams give other numbers",
                     grid.runs[i].plan.model.name, grid.runs[i].text);
    free(eager);
    training_grid_fini(&grid);
}

TRAINING_MAIN
