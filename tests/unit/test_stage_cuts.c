/*
 * What the closed form looks up for a configuration against the storage of a stage of just
 * those blocks: every ratio, number of layers and of checkpointed ones.
 */
#include "tests/unit/test.h"

#include "core/memory.h" /* mist_align_up */
#include "sim/closed_form/stage_model_internal.h"
#include "sim/schedule/memory_planner.h" /* MIST_BUFFER_ALIGNMENT */
#include "tests/unit/tiny_models.h"

#include <math.h>

enum { MAX_LAYERS = 19 };

static double in_arena(int64_t size_bytes)
{
    return (double)mist_align_up(size_bytes, MIST_BUFFER_ALIGNMENT);
}

/* A stage of one rank of so many blocks, and their storage. */
static void store(struct mist_plan *plan, const struct mist_layer_layout *layouts,
                  int32_t n_layers, int32_t n_checkpointed, int eighths,
                  struct mist_module_storage *out)
{
    int32_t modules[MAX_LAYERS];
    double ratio = eighths / 8.0;

    plan->model.n_layers = n_layers;
    plan->n_stages = 1;
    plan->stages[0] = (struct mist_stage_plan){
        .n_layers = n_layers,
        .n_nodes = 1,
        .n_devices = 1,
        .micro_batch = 2,
        .dp = 1,
        .tp = 1,
        .n_checkpointed = n_checkpointed,
        .offload_weights = ratio,
        .offload_activations = ratio,
    };
    for (int32_t i = 0; i < n_layers; i++)
        modules[i] = i + 1;
    mist_storage_make(plan, 0, layouts, modules, n_layers, out);
}

/* What is looked up for the same. */
static void look_up(const struct mist_stage_cuts *cuts, int32_t n_layers,
                    int32_t n_checkpointed, int eighths, double out[MIST_STAGE_N_CUTS])
{
    struct mist_tape_input columns[MIST_STAGE_N_COLUMNS] = {
        [MIST_STAGE_LAYERS] = {NULL, n_layers},
        [MIST_STAGE_CHECKPOINTED] = {NULL, n_checkpointed},
        [MIST_STAGE_OFFLOAD_WEIGHTS] = {NULL, eighths / 8.0},
        [MIST_STAGE_OFFLOAD_ACTIVATIONS] = {NULL, eighths / 8.0},
    };
    double *to[MIST_STAGE_N_CUTS];

    for (int i = 0; i < MIST_STAGE_N_CUTS; i++)
        to[i] = &out[i];
    mist_stage_cuts_look_up(cuts, columns, 0, 1, to);
}

/* Elements of a block that are in the host. */
static double away(const struct mist_module_storage *storage)
{
    double sum = 0;

    for (int32_t s = 0; s < storage->n_slabs; s++)
        if (storage->slabs[s].offloads_weights)
            sum += (double)storage->slabs[s].n_elements;
    return sum;
}

static void check_stage(const struct mist_stage_cuts *cuts, struct mist_plan *plan,
                        const struct mist_layer_layout *layouts, int32_t n_layers,
                        int32_t n_checkpointed, int eighths)
{
    struct mist_module_storage storage[MAX_LAYERS], whole;
    double input = in_arena(layouts[MIST_LAYER_BLOCK].input_bytes);
    double found[MIST_STAGE_N_CUTS], sum = 0, kept = 0, before = 0;

    store(plan, layouts, 1, 0, 8, &whole);
    store(plan, layouts, n_layers, n_checkpointed, eighths, storage);
    look_up(cuts, n_layers, n_checkpointed, eighths, found);
    for (int32_t i = 0; i < n_layers; i++) {
        const struct mist_module_storage *of = storage + i;
        double share = away(of) / away(&whole);
        double left = of->swaps_input ? input : 0;
        kept += input - left;
        if (i >= n_checkpointed) {
            kept += in_arena(of->saved_bytes[0]);
            left += in_arena(of->saved_bytes[1]);
        }
        sum += share;
        assert_true(share <= found[MIST_STAGE_CUT_ONE_WEIGHTS] + 1e-12);
        assert_true(before + share <= 2 * found[MIST_STAGE_CUT_TWO_WEIGHTS] + 1e-12);
        before = share;
        if (n_layers - 1 - i > 2)
            continue;
        /* what two buffers take more than one is counted, too */
        double more = found[MIST_STAGE_CUT_SWAPPED_0 + n_layers - 1 - i] - left;
        assert_true(more >= 0 && more <= MIST_BUFFER_ALIGNMENT);
    }
    assert_true(fabs(sum - found[MIST_STAGE_CUT_SHARE_WEIGHTS] * n_layers) < 1e-9);
    assert_true(kept == found[MIST_STAGE_CUT_KEPT]);
}

static void test_all_stages(void **state)
{
    struct mist_plan *plan = calloc(1, sizeof *plan);
    struct mist_layer_layout *layouts = calloc(MIST_N_LAYER_KINDS, sizeof *layouts);
    struct mist_layer_shape shape = {
        .micro_batch = 2, .seq = 48, .tp = 1, .threads = 1, .dtype = MIST_DTYPE_FP32};

    assert_true(plan && layouts);
    for (int family = 0; family < 2; family++) {
        struct mist_err err;
        plan->model =
            mist_tiny_model(family ? MIST_FAMILY_LLAMA : MIST_FAMILY_GPT, MAX_LAYERS);
        for (int k = 0; k < MIST_N_LAYER_KINDS; k++)
            must(mist_layer_layout_make(&plan->model, (enum mist_layer_kind)k, shape,
                                        &layouts[k], &err),
                 &err);
        struct mist_stage_cuts *cuts =
            mist_stage_cuts_new(&layouts[MIST_LAYER_BLOCK], MAX_LAYERS);
        assert_non_null(cuts);
        for (int32_t n = 1; n <= MAX_LAYERS; n++)
            for (int32_t c = 0; c <= n; c++)
                for (int eighths = 0; eighths <= 8; eighths++)
                    check_stage(cuts, plan, layouts, n, c, eighths);
        free(cuts);
    }
    free(plan);
    free(layouts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_stages)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
