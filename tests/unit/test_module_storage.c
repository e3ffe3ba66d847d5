/*
 * Offload ratios act through whole tensors: how far a stage, and a block of it, may be off
 * a ratio, which the closed form counts on. Every ratio, number of blocks, of checkpointed
 * and of lean ones.
 */
#include "tests/unit/test.h"

#include "sim/schedule/module_storage.h"
#include "tests/unit/tiny_models.h"

#include <math.h>

enum { MAX_LAYERS = 11 };

/* What a block has of something, and of that in the host. */
struct part {
    double all, away, largest;
};

static void count(struct part *part, double size, bool is_away)
{
    part->all += size;
    part->away += is_away ? size : 0;
    part->largest = fmax(part->largest, size);
}

static struct part weights_of(const struct mist_layer_layout *layout,
                              const struct mist_module_storage *storage)
{
    struct part out = {0};

    for (int32_t i = 0; i < layout->n_params; i++)
        if (!layout->params[i].is_norm)
            count(&out, (double)layout->params[i].n_elements,
                  storage->slabs[storage->param_slab[i]].offloads_weights);
    return out;
}

static struct part kept_of(const struct mist_layer_layout *layout,
                           const struct mist_module_storage *storage,
                           bool is_checkpointed)
{
    struct part out = {0};

    count(&out, (double)layout->input_bytes, storage->swaps_input);
    for (int32_t i = 0; i < layout->n_tensors && !is_checkpointed; i++)
        if (layout->tensors[i].tensor_class == MIST_TENSOR_SAVED &&
            storage->saved_place[i] != MIST_SAVED_REMADE)
            count(&out, (double)layout->tensors[i].bytes,
                  storage->saved_place[i] == MIST_SAVED_SWAPPED);
    return out;
}

/* The blocks so far are off by half of the largest matrix at most, one and two in a row
 * have no more than all of it above the ratio. */
static void check_weights(const struct part *parts, int32_t n, double ratio)
{
    double all = 0, away = 0, largest = 0;

    for (int32_t i = 0; i < n; i++) {
        double above = parts[i].away - ratio * parts[i].all;
        double before = i > 0 ? parts[i - 1].away - ratio * parts[i - 1].all : 0;
        all += parts[i].all;
        away += parts[i].away;
        largest = fmax(largest, parts[i].largest);
        assert_true(fabs(away - ratio * all) <= largest * (0.5 + 1e-6));
        assert_true(above <= largest * (1 + 1e-6));
        assert_true(before + above <= largest * (1 + 1e-6));
        assert_true(ratio > 0 || parts[i].away == 0);
        assert_true(ratio < 1 || parts[i].away == parts[i].all);
    }
}

/* The blocks so far swap what the ratio asks for, or less by so much; so has one of them no
 * more than that above it. */
static void check_kept(const struct part *parts, int32_t n, double ratio, double most_off)
{
    double all = 0, away = 0;

    for (int32_t i = 0; i < n; i++) {
        all += parts[i].all;
        away += parts[i].away;
        assert_true(away <= ratio * all * (1 + 1e-6));
        assert_true(away >= (ratio * all - most_off) * (1 - 1e-6));
        assert_true(parts[i].away <= ratio * parts[i].all + most_off * (1 + 1e-6));
        assert_true(ratio < 1 || parts[i].away == parts[i].all);
    }
}

static void check_stage(const struct mist_layer_layout *layouts, struct mist_plan *plan,
                        double ratio)
{
    const struct mist_layer_layout *block = &layouts[MIST_LAYER_BLOCK];
    struct mist_stage_plan *stage = &plan->stages[0];
    struct mist_module_storage storage[MAX_LAYERS];
    struct part weights[MAX_LAYERS], kept[MAX_LAYERS];
    int32_t modules[MAX_LAYERS] = {0}, n = stage->n_layers;

    stage->offload_weights = stage->offload_activations = ratio;
    for (int32_t i = 0; i < n; i++)
        modules[i] = i + 1;
    mist_storage_make(plan, 0, layouts, modules, n, storage);
    for (int32_t i = 0; i < n; i++) {
        weights[i] = weights_of(block, &storage[i]);
        kept[i] = kept_of(block, &storage[i], i < stage->n_checkpointed);
    }
    check_weights(weights, n, ratio);
    check_kept(kept, n, ratio, (double)mist_storage_most_off(block));
}

TEST(test_ratios)
{
    struct mist_plan *plan = calloc(1, sizeof *plan);
    struct mist_layer_layout *layouts = calloc(MIST_N_LAYER_KINDS, sizeof *layouts);
    struct mist_layer_shape shape = {
        .micro_batch = 2, .seq = 48, .tp = 1, .threads = 1, .dtype = MIST_DTYPE_FP32};
    struct mist_err err;

    assert_true(plan && layouts);
    for (int i = 0; i < 2 * MAX_LAYERS * (MAX_LAYERS + 1) * 4 * 9; i++) {
        int32_t n = 1 + i / 2 % MAX_LAYERS, rest = i / 2 / MAX_LAYERS;
        int32_t n_again = rest % (MAX_LAYERS + 1), n_lean = rest / (MAX_LAYERS + 1) % 4;
        double ratio = rest / (MAX_LAYERS + 1) / 4 / 8.0;
        if (n_again + n_lean > n)
            continue;
        plan->model = mist_tiny_model(i % 2 ? MIST_FAMILY_LLAMA : MIST_FAMILY_GPT, n);
        plan->n_stages = 1;
        plan->stages[0] = mist_tiny_stage(n, 2, 1, 1);
        plan->stages[0].n_checkpointed = n_again;
        plan->stages[0].n_lean = n_lean;
        must(mist_layer_layout_make(&plan->model, MIST_LAYER_BLOCK, shape,
                                    &layouts[MIST_LAYER_BLOCK], &err),
             &err);
        check_stage(layouts, plan, ratio);
    }
    free(plan);
    free(layouts);
}

TEST_MAIN(NULL, NULL)
