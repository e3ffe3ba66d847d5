/*
 * Plans that only move or re-time the same sums train to the same bits: losses, gradient
 * norms and final parameters.
 *
 * A class is a list of plans, all equal to its first. What may not change a bit:
 * checkpointing, lean blocks, every offloading, overlap, random delays, evaluations in between, the
 * pipeline and its order, and ZeRO at equal accumulation order. The order is that of
 * data-parallel and tensor-parallel sizes, of the micro-batches, and of whether gradients
 * are summed over ranks after each of them, as ZeRO-2 and ZeRO-3 must but for a tied weight
 * that two stages hold.
 */
#include "tests/unit/test.h"

#include "tests/prop/training_grid.h"

enum { N_STEPS = 4 };

/* Everything that one rank can do, and pipelines without data or tensor parallelism. */
static const char *const plain[] = {
    "G4:",
    "G4: ck1",
    "G4: ck3",
    "G4: ow.25",
    "G4: ow.5",
    "G4: ow1",
    "G4: og.25",
    "G4: og.5",
    "G4: og1",
    "G4: oo.25",
    "G4: oo.5",
    "G4: oo1",
    "G4: oo1 uh",
    "G4: oo.5 uh",
    "G4: ow.5 oo.8 uh",
    "G4: ck1 ow.3 og.7 oo.6 oa.6 uh",
    "G4 delay21: ow1 og1 oo1 oa1 uh",
    "G4 zb delay22: og.3 oo.7 uh",
    "G4 delay23: oo.6 uh / ow.5 oo1 uh",
    "G4 eval: ow.4 oo1 uh",
    "G4: oa.25",
    "G4: oa.5",
    "G4: oa1",
    "G4: ck1 ow.7 og.3 oo.4 oa.6",
    "G4: ck3 ow1 og1 oo1 oa1",
    "G4 serial:",
    "G4 serial: ck1 ow.7 og.3 oo.4 oa.6",
    "G4 delay1:",
    "G4 delay2: ck1 ow.7 og.3 oo.4 oa.6",
    "G4 delay3: ow1 og1 oo1 oa1",
    "G4 zb:",
    "G4 zb serial: oo.5",
    "G4 zb2 delay61: / oa.5 ck1",
    "G4 zb2: oo1 uh / ow.5 / og.5 ln1",
    "G4 zb eval: / ow1 / oo1",
    "G4 zba1: oa1 / og.5 / ck1",
    "G4 zba2 delay63: ow.5 / oa.5 ck1 / og1 oo1 uh",
    "G4 zb: ck1 ow.7 og.3 oo.4 oa.6",
    "G4 zb delay4: ow1 og1 oo1 oa1",
    "G4: /",
    "G4: ow.5 / oa.5",
    "G4 serial: ck1 oo1 / og.5",
    "G4 delay5: ow.3 oa.8 / ck1 oo.5 og1",
    "G4 zb: /",
    "G4 zb: oa.5 / ow1 oo.5",
    "G4 zb delay6: ck1 / og1",
    "G4: / /",
    "G4 delay51: / ow.5 og.5 / ow1 oo1",
    "G4 zb: oa1 / og.5 / ck1",
    "G4: ln1",
    "G4: ck1 ln2",
    "G4 delay35: ln3 ow.7 og.3 oo.4 oa.6",
    "G4 zb serial: ln2 oa1",
    "G4 zb delay36: ck1 ln1 ow.5 oa.4 / ln1",
    "G4 eval: ln3 oo1 uh",
    "G4 eval:",
    "G4 eval: ck1 ow.7 og.3 oo.4 oa.6",
    "G4 eval zb: / og.5",
    NULL,
};

/* Four layers: as many stages, or two of two chunks. */
static const char *const chunked[] = {
    "G4:",
    "G4 il2: /",
    "G4 il2: ck1 oa.5 / ow.5 og.5",
    "G4 il2 serial: ow1 og1 / oo1 oa1 ck2",
    "G4 il2 delay24: oo1 uh / ow.5 oo.5 uh",
    "G4 il2 delay7: ow.5 oa1 / ck1 oo.3 og.6",
    "G4: / / /",
    "G4 zb: ck1 / oa.5 / ow.5 / oo1",
    "G4 zbv: /",
    "G4 zbv: ck1 oa.5 / ow.5 og.5",
    "G4 zbv serial: ow1 og1 / oo1 oa1 ck2",
    "G4 zbv delay29: oo1 uh / ow.5 oo.5 uh",
    "G4 zbv delay30: ow.5 oa1 ck2 / ck1 oo.3 og.6 oa1",
    "G4 zbv eval: oa.5 / og.5",
    "G4 il2: ln2 / ck1 ln1 oa.5",
    "G4 zbv delay37: ck1 ln1 / ln2 oa.5",
    NULL,
};

/* Eight layers: four stages of two chunks, two of four. */
static const char *const deep[] = {
    "G4:",
    "G4 il2: / / /",
    "G4 il4: ck2 / oa.5",
    "G4 il2 delay8: oa.5 / ck1 / ow1 / og.5 oo.5",
    "G4 zbv: / / /",
    "G4 zbv: l2 / l6 oa.5 ck3",
    "G4 zbv delay31: l4 oa.5 / l2 ck1 ow.5 / l2 og.5 oo.5",
    "G4 zb: / / /",
    NULL,
};

/* Gradients summed over ranks after each micro-batch: all ZeRO levels. */
static const char *const sharded_each[] = {
    "G4 each: dp2",
    "G4 each: dp2 z1",
    "G4 each: dp2 z2",
    "G4 each: dp2 z3",
    "G4: dp2 z2",
    "G4: dp2 z3",
    "G4 each: dp2 ck1 ow.7 og.3 oo.4 oa.6",
    "G4 each: dp2 z1 ow1 og1 oo1 oa1",
    "G4 each delay25: dp2 z1 ow.5 og.2 oo.8 uh",
    "G4 each: dp2 oo.8 uh",
    "G4 each: dp2 z1 oo1 uh",
    "G4 eval: dp2 z2 ow1 og1 oo1 uh",
    "G4: dp2 z2 oo.5 uh",
    "G4 delay26: dp2 z3 oo.5 uh",
    "G4: dp2 z3 ow.5 og.3 oo.7 uh",
    "G4: dp2 z2 ck1 ow.7 og.3 oo.4 oa.6",
    "G4: dp2 z2 ow1 og1 oo1 oa1",
    "G4: dp2 z3 ck1 ow.7 og.3 oo.4 oa.6",
    "G4: dp2 z3 ow1 og1 oo1 oa1",
    "G4 serial: dp2 z3 ow.5",
    "G4 delay9: dp2 z2 og.5 oa.5",
    "G4 delay10: dp2 z3 ck1 ow.7 og.3 oo.4 oa.6",
    "G4 zb: dp2 z2",
    "G4 zb delay11: dp2 z3 ow.5",
    "G4: dp2 z3 / dp2 z2",
    "G4 each: dp2 z1 oo.5 / dp2 z3 ow.5",
    "G4 zb: dp2 z2 oa1 / dp2 z3 ck1",
    "G4 zb2 each delay62: dp2 z1 oa1 / dp2 z2 ow.5",
    "G4 zba2: dp2 z3 ck1 / dp2 z2 oa.5",
    "G4 delay12: dp2 z3 oa.5 / dp2 z3 og.5",
    "G4 delay38: dp2 z3 ln3 oa.5",
    "G4 zb: dp2 z3 ck1 ln1 / dp2 z3 ln1",
    NULL,
};

/* Once per step: what ZeRO-2 and ZeRO-3 can't. */
static const char *const sharded_once[] = {
    "G4: dp2",
    "G4: dp2 z1",
    "G4: dp2 ck1 ow.7 og.3 oo.4 oa.6",
    "G4: dp2 z1 ow1 og1 oo1 oa1",
    "G4: dp2 z1 og.5 oo1 uh",
    "G4 eval delay27: dp2 z1 ow.7 oo.9 uh",
    "G4 delay13: dp2 z1 ow.5 oo.5",
    "G4 serial: dp2 z1 og.5",
    "G4 zb: dp2 z1",
    "G4: dp2 / dp2 z1",
    "G4 delay52: dp2 og.5 / dp2 ow1 og.3",
    "G4 delay53: dp2 z1 / dp2 z1 ow.5 og.5 oo.7 uh",
    "G4 zb: dp2 z1 oa.5 / dp2 z1 ow.5",
    NULL,
};

/* With one micro-batch there is one order. */
static const char *const sharded_single[] = {
    "G1: dp2",
    "G1: dp2 z1",
    "G1: dp2 z2",
    "G1: dp2 z3",
    "G1 each: dp2",
    "G1: dp2 z3 ck1 ow.5 oa1",
    "G1 eval: dp2 z2",
    "G1 eval: dp2 z3 og.5",
    "G1: dp2 z1 / dp2 z3",
    NULL,
};

/* A tied weight on two stages once per step, all others after each micro-batch. */
static const char *const tied_on_two[] = {
    "G4: dp2 z3 / dp2 z2",
    "G4 zb: dp2 z2 oa1 / dp2 z3 ck1",
    "G4 zba2: dp2 z3 ck1 / dp2 z2 oa.5",
    "G4 delay12: dp2 z3 oa.5 / dp2 z3 og.5",
    "G4 il2 delay14: dp2 z3 ck1 / dp2 z3 og1 oo.5",
    NULL,
};

static const char *const sharded_chunked[] = {
    "G4 each: dp2",
    "G4 il2 each: dp2 z1 / dp2",
    "G4 il2: dp2 z3 oa.5 / dp2 z2 ow.5",
    "G4 il2 delay14: dp2 z3 ck1 / dp2 z3 og1 oo.5",
    "G4 zbv each: dp2 z1 / dp2",
    "G4 zbv: dp2 z3 oa.5 / dp2 z2 ow.5",
    "G4 zbv: dp2 z2 / dp2 z3",
    "G4 zbv delay32: dp2 z3 ck1 ow.5 / dp2 z3 og1 oo.5",
    "G4 zbv eval each: dp2 og.5 oo1 uh / dp2 z1",
    NULL,
};

/* Once per step. */
static const char *const sharded_chunked_once[] = {
    "G4: dp2",
    "G4 il2: dp2 z1 oa.5 / dp2 z1 ow.5",
    "G4 zbv: dp2 z1 / dp2",
    "G4 zbv delay33: dp2 og.5 oo.5 / dp2 z1 oa.5",
    NULL,
};

static const char *const tensor_chunked[] = {
    "G4: tp2",
    "G4 il2: tp2 / tp2 oa1",
    "G4 zbv: tp2 / tp2",
    "G4 zbv delay34: tp2 ck1 ow.5 oa.5 / tp2 og.5",
    "G4 delay41: tp2 / tp2",
    "G4 zb delay42: tp2 / tp2 oa1",
    "G4 il2 delay43: tp2 oo.5 / tp2",
    "G4 zbv delay45: tp2 / tp2",
    NULL,
};

static const char *const sequence_chunked[] = {
    "G4 each: tp2 dp2 sp",
    "G4 il2: tp2 dp2 sp z2 / tp2 dp2 sp z3",
    "G4 zbv: tp2 dp2 sp z3 oa.5 / tp2 dp2 sp z2",
    "G4 il2 delay47: tp2 dp2 sp z3 / tp2 dp2 sp z2",
    NULL,
};

static const char *const sharded_four[] = {
    "G2 each: dp4",
    "G2 each: dp4 z1 oo.5",
    "G2: dp4 z2 og.5",
    "G2: dp4 z3 ck1 ow.7 og.3 oo.4 oa.6",
    "G2 delay15: dp4 z3",
    "G2 zb: dp4 z2 / dp4 z3",
    NULL,
};

static const char *const sharded_eight[] = {
    "G1: dp8", "G1: dp8 z1", "G1: dp8 z2 og.5", "G1: dp8 z3 ow.5 oa.5", NULL,
};

static const char *const tensor[] = {
    "G4: tp2",
    "G4: tp2 ck3",
    "G4: tp2 ck1 ow.7 og.3 oo.4 oa.6",
    "G4: tp2 ow1 og1 oo1 oa1",
    "G4 delay28: tp2 ow.5 oo.7 uh",
    "G4 serial: tp2 oa.5",
    "G4 delay16: tp2 ck1 ow.7 og.3 oo.4 oa.6",
    "G4 zb: tp2",
    "G4: tp2 / tp2 oa1",
    "G4 zb delay17: tp2 ow.5 / tp2 og.5",
    "G4: tp2 ck1 ln2",
    "G4 zb delay39: tp2 ln2 oa.5",
    NULL,
};

static const char *const sequence[] = {
    "G4: tp2 sp",
    "G4: tp2 sp ck3",
    "G4: tp2 sp ck1 ow.7 og.3 oo.4 oa.6",
    "G4: tp2 sp ow1 og1 oo1 oa1",
    "G4 serial: tp2 sp oa.5",
    "G4 delay18: tp2 sp ck1 ow.7 og.3 oo.4 oa.6",
    "G4 zb: tp2 sp",
    "G4: tp2 sp / tp2 sp oa1",
    "G4 zb delay19: tp2 sp ow.5 / tp2 sp og.5",
    "G4: tp2 sp ck1 ln2",
    "G4 zb delay40: tp2 sp ln1 oa.5 / tp2 sp ln1",
    NULL,
};

static const char *const both[] = {
    "G2 each: tp2 dp2",
    "G2 each: tp2 dp2 z1 oo.5",
    "G2: tp2 dp2 z2 ow.5 og.5",
    "G2: tp2 dp2 z3 ck1 oa.5",
    "G2 delay20: tp2 dp2 z3 ow.5",
    "G2: tp2 dp2 z3 / tp2 dp2 z2",
    "G2 zb: tp2 dp2 z2 oa.5 / tp2 dp2 z3 ck1",
    NULL,
};

static const char *const both_sequence[] = {
    "G2 each: tp2 dp2 sp",
    "G2 each: tp2 dp2 sp z1 og1",
    "G2: tp2 dp2 sp z3 ck1 ow.7 og.3 oo.4 oa.6",
    "G2 delay21: tp2 dp2 sp z2 / tp2 dp2 sp z3 ow1",
    NULL,
};

static const char *const wide[] = {
    "G4: tp4",
    "G4: tp4 ck1 ow.7 og.3 oo.4 oa.6",
    "G4 zb delay22: tp4",
    "G4: tp4 / tp4 oa.5",
    NULL,
};

/* Of weights and activations, and of gradients. */
enum formats { FP32, BF16, BF16_GRADIENTS };

struct class
{
    const char *name;
    const char *const *plans;
    int32_t n_layers[TRAINING_N_MODELS]; /* 0: not this model */
    int32_t seq_len;
    enum formats formats;
};

static const struct class classes[] = {
    {"one rank and pipelines", plain, {5, 3, 0, 0, 0}, 96, FP32},
    {"the same, other models", plain, {0, 0, 5, 3, 5}, 32, FP32},
    {"the same in bf16", plain, {3, 0, 3, 0, 0}, 32, BF16},
    {"the same, gradients, too", plain, {3, 0, 0, 3, 0}, 32, BF16_GRADIENTS},
    {"two chunks", chunked, {4, 0, 4, 4, 0}, 96, FP32},
    {"eight layers", deep, {8, 0, 8, 0, 0}, 32, FP32},
    {"ZeRO, each", sharded_each, {5, 0, 3, 0, 3}, 32, FP32},
    {"ZeRO, each, bf16", sharded_each, {0, 3, 0, 3, 0}, 32, BF16},
    {"ZeRO, each, bf16 gradients", sharded_each, {3, 0, 3, 0, 0}, 32, BF16_GRADIENTS},
    {"ZeRO, once, bf16 gradients", sharded_once, {3, 0, 0, 0, 0}, 32, BF16_GRADIENTS},
    {"ZeRO, once", sharded_once, {3, 0, 5, 3, 0}, 32, FP32},
    {"ZeRO, one micro-batch", sharded_single, {3, 5, 3, 0, 0}, 96, FP32},
    {"ZeRO, tied on two stages", tied_on_two, {4, 0, 0, 0, 0}, 32, FP32},
    {"ZeRO, chunks", sharded_chunked, {4, 0, 0, 4, 0}, 32, FP32},
    {"ZeRO, chunks, bf16 gradients",
     sharded_chunked,
     {4, 0, 0, 0, 0},
     32,
     BF16_GRADIENTS},
    {"ZeRO, chunks, once", sharded_chunked_once, {4, 0, 4, 0, 0}, 32, FP32},
    {"ZeRO, four ranks", sharded_four, {3, 0, 0, 0, 5}, 32, FP32},
    {"ZeRO, eight ranks", sharded_eight, {3, 0, 3, 0, 0}, 32, FP32},
    {"tensors", tensor, {5, 0, 3, 3, 0}, 32, FP32},
    {"sequences", sequence, {3, 0, 5, 0, 3}, 96, FP32},
    {"tensors and ZeRO", both, {3, 0, 3, 0, 0}, 32, FP32},
    {"sequences and ZeRO", both_sequence, {3, 0, 0, 3, 0}, 32, FP32},
    {"the same, bf16 gradients", both_sequence, {3, 0, 3, 0, 0}, 32, BF16_GRADIENTS},
    {"four tensors", wide, {3, 0, 0, 3, 0}, 32, FP32},
    {"tensors, chunks", tensor_chunked, {4, 0, 4, 0, 0}, 32, FP32},
    {"sequences, ZeRO, chunks", sequence_chunked, {4, 0, 0, 0, 0}, 32, FP32},
};
enum { N_CLASSES = sizeof classes / sizeof *classes };

static int32_t add_class(struct training_grid *grid, const struct class *class)
{
    int32_t before = grid->n;

    for (int model = 0; model < TRAINING_N_MODELS; model++) {
        int32_t first = grid->n;
        for (int32_t i = 0; class->n_layers[model] > 0 && class->plans[i]; i++) {
            if (i > 0 && test_is_left_out())
                continue;
            struct training_run *run = training_grid_add(
                grid, (enum training_model)model, class->n_layers[model], class->seq_len,
                class->formats == FP32 ? MIST_DTYPE_FP32 : MIST_DTYPE_BF16);
            snprintf(run->text, sizeof run->text, "%s", class->plans[i]);
            run->n_steps = N_STEPS;
            run->clip_norm = 1;
            run->i_like = i > 0 ? first : -1;
            if (class->formats == BF16_GRADIENTS)
                run->plan.job.gradient_dtype = MIST_DTYPE_BF16;
            training_read_plan(run);
            /* what is summed after each micro-batch for ZeRO alone */
            if (model == TRAINING_GPT_TIED && run->plan.n_stages > 1 && i > 0)
                run->plan.reduces_each_micro_batch =
                    grid->runs[first].plan.reduces_each_micro_batch;
        }
        if (grid->n == first + 1)
            grid->n = first; /* in brief runs: nothing is left to compare it with */
    }
    return grid->n - before;
}

TEST(test_classes)
{
    struct training_grid grid = {0};
    int32_t n_of[N_CLASSES] = {0};

    for (int i = 0; i < N_CLASSES; i++)
        n_of[i] = add_class(&grid, &classes[i]);
    training_grid_execute(&grid);
    for (int32_t i = 0; i < grid.n; i++)
        assert_true(grid.outcomes[i].losses[N_STEPS - 1] < grid.outcomes[i].losses[0]);
    int32_t n_wrong = training_grid_check_same(&grid);
    for (int i = 0; i < N_CLASSES; i++)
        printf("# %-28s %3d plans, each equal to the first of its model\n",
               classes[i].name, (int)n_of[i]);
    training_grid_fini(&grid);
    assert_int_equal(n_wrong, 0);
}

TRAINING_MAIN
