/* Cuts modules into slabs and kept activations into those that stay and those that are
 * swapped. See module_storage.h. */
#include "sim/schedule/module_storage.h"

#include "core/memory.h" /* mist_align_up */
#include "core/order.h"
#include "sim/schedule/schedule.h"

#include <math.h> /* fabs */
#include <stdlib.h>

enum { ALIGNMENT = 64, SLAB_ALIGNMENT = 32 /* elements: 64 bytes of bf16 */ };

enum { RATIO_WEIGHTS, RATIO_GRADIENTS, RATIO_STATE, RATIO_ACTIVATIONS, N_RATIOS };

/* What the modules so far have of something, and how much of it is offloaded. Blocks are
 * counted apart from the two ends, whose few large matrices would make them uneven. */
struct running {
    double total, offloaded;
};

/* Parts of one module that are offloaded up to some point, in order. */
struct item {
    int32_t id;  /* parameter or tensor; -1: the module's input */
    double size; /* in whatever the ratio is of */
};

int64_t mist_storage_padded_elements(int64_t n_parameters, int32_t dp)
{
    int64_t shard = (n_parameters + dp - 1) / dp;

    return mist_align_up(shard, SLAB_ALIGNMENT) * dp;
}

/* How many leading items go to the host so that the running total keeps to the ratio. */
static int32_t choose_prefix(double ratio, const struct item *items, int32_t n,
                             struct running *running)
{
    int32_t best = 0;
    double sum = 0, best_error, best_sum = 0;

    for (int32_t i = 0; i < n; i++)
        running->total += items[i].size;
    best_error = fabs(running->offloaded - ratio * running->total);
    for (int32_t i = 0; i < n; i++) {
        sum += items[i].size;
        double error = fabs(running->offloaded + sum - ratio * running->total);
        /* a hair of tolerance, so that rounding does not decide */
        if (error < best_error - 1e-9 * running->total) {
            best = i + 1;
            best_error = error;
            best_sum = sum;
        }
    }
    if (ratio == 1)
        best = n;
    running->offloaded += ratio == 1 ? running->total - running->offloaded : best_sum;
    return ratio == 0 ? 0 : best;
}

/* ------------------------------------------------------------------------- parameters */

/* Matrices and their biases as declared, then the vectors of the norms. */
static int32_t order_params(const struct mist_layer_layout *layout, int32_t *n_matrices,
                            struct item *out)
{
    int32_t n = 0;

    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < layout->n_params; i++)
            if (layout->params[i].is_norm == (pass == 1))
                out[n++] = (struct item){i, (double)layout->params[i].n_elements};
        if (pass == 0)
            *n_matrices = n;
    }
    return n;
}

static bool is_same_place(const struct mist_slab *a, const struct mist_slab *b)
{
    return a->offloads_weights == b->offloads_weights &&
           a->offloads_gradients == b->offloads_gradients &&
           a->offloads_state == b->offloads_state && a->is_alias == b->is_alias &&
           a->is_exchanged == b->is_exchanged;
}

/* Places parameters one behind the other in their slabs, which are counted up. */
static void fill_slabs(const struct mist_layer_layout *layout, const struct item *items,
                       int32_t n, int32_t dp, struct mist_module_storage *out)
{
    for (int32_t k = 0; k < n; k++) {
        int32_t i = items[k].id;
        struct mist_slab *slab = &out->slabs[out->param_slab[i]];
        out->param_offset[i] = slab->n_elements;
        slab->n_elements += mist_align_up(layout->params[i].n_elements, SLAB_ALIGNMENT);
    }
    for (int32_t s = 0; s < out->n_slabs; s++)
        out->slabs[s].n_elements =
            mist_storage_padded_elements(out->slabs[s].n_elements, dp);
}

static void cut_params(const struct mist_plan *plan, int32_t i_stage,
                       const struct mist_layer_layout *layout, struct running *running,
                       struct mist_module_storage *out)
{
    const struct mist_stage_plan *stage = &plan->stages[i_stage];
    const double ratios[] = {stage->offload_weights, stage->offload_gradients,
                             stage->offload_optimizer};
    struct item items[MIST_MAX_PARAMS];
    struct mist_slab places[MIST_MAX_PARAMS] = {{0}};
    int32_t n_matrices = 0, prefix[RATIO_ACTIVATIONS];
    int32_t n = order_params(layout, &n_matrices, items);
    bool is_tied[MIST_MAX_PARAMS] = {false};

    for (int r = 0; r < RATIO_ACTIVATIONS; r++)
        prefix[r] = choose_prefix(ratios[r], items, n_matrices, &running[r]);
    for (int32_t k = 0; k < n; k++) {
        int32_t i = items[k].id;
        is_tied[k] = plan->model.ties_embeddings && layout->params[i].is_vocabulary;
        places[k] = (struct mist_slab){
            .offloads_weights = k < prefix[RATIO_WEIGHTS],
            /* a tied weight's gradient waits on the device for its other half */
            .offloads_gradients = k < prefix[RATIO_GRADIENTS] && !is_tied[k],
            .offloads_state = k < prefix[RATIO_STATE],
            .is_alias = layout->params[i].is_tied && mist_plan_head_stage(plan) == 0,
            .is_exchanged = is_tied[k] && mist_plan_head_stage(plan) > 0,
            .updates_on_host = k < prefix[RATIO_STATE] && stage->updates_on_host,
        };
        if (places[k].is_alias)
            places[k] = (struct mist_slab){.is_alias = true};
        if (k == 0 || !is_same_place(&places[k], &places[k - 1]) ||
            is_tied[k] != is_tied[k - 1])
            out->slabs[out->n_slabs++] = places[k];
        out->param_slab[i] = (int8_t)(out->n_slabs - 1);
    }
    if (out->n_slabs == 1) /* as declared */
        for (int32_t i = 0; i < n; i++)
            items[i].id = i;
    fill_slabs(layout, items, n, mist_stage_n_replicas(stage), out);
}

/* ------------------------------------------------------------------------ activations */

MIST_COMPARATOR_OF(compare_items, struct item,
                   MIST_COMPARE_OR(b->size, a->size, MIST_COMPARE(a->id, b->id)))

/* What a block keeps for its backward, the largest first. */
static int32_t order_kept(const struct mist_layer_layout *layout, bool is_checkpointed,
                          bool is_lean, struct item *out)
{
    int32_t n = 1;

    out[0] = (struct item){-1, (double)layout->input_bytes};
    for (int32_t i = 0; i < layout->n_tensors && !is_checkpointed; i++)
        if (layout->tensors[i].tensor_class == MIST_TENSOR_SAVED &&
            !(is_lean && layout->tensors[i].is_remade))
            out[n++] = (struct item){i, (double)layout->tensors[i].bytes};
    qsort(out, (size_t)n, sizeof *out, compare_items);
    return n;
}

/* Swaps the largest that the ratio of all so far has room for, then the next: so the total
 * keeps to it but for what the smallest do not fill up. */
static void swap_kept(double ratio, const struct item *items, int32_t n,
                      struct running *running, struct mist_module_storage *out)
{
    for (int32_t i = 0; i < n; i++)
        running->total += items[i].size;
    for (int32_t i = 0; i < n; i++) {
        double room = ratio * running->total - running->offloaded;
        if (items[i].size > room + 1e-9 * running->total)
            continue;
        running->offloaded += items[i].size;
        if (items[i].id < 0)
            out->swaps_input = true;
        else
            out->saved_place[items[i].id] = MIST_SAVED_SWAPPED;
    }
}

static void cut_activations(const struct mist_plan *plan, int32_t i_stage,
                            const struct mist_layer_layout *layout, int32_t module,
                            struct running *running, struct mist_module_storage *out)
{
    struct item items[MIST_MAX_TENSORS + 1];
    bool is_lean = mist_schedule_is_lean(plan, i_stage, module);

    if (layout->kind == MIST_LAYER_BLOCK) {
        bool is_checkpointed = mist_schedule_is_checkpointed(plan, i_stage, module);
        int32_t n = order_kept(layout, is_checkpointed, is_lean, items);
        swap_kept(plan->stages[i_stage].offload_activations, items, n, running, out);
    }
    for (int32_t i = 0; i < layout->n_tensors; i++) {
        if (layout->tensors[i].tensor_class != MIST_TENSOR_SAVED)
            continue;
        if (is_lean && layout->tensors[i].is_remade)
            out->saved_place[i] = MIST_SAVED_REMADE;
        int64_t *used = &out->saved_bytes[out->saved_place[i]];
        out->saved_offset[i] = *used;
        *used += mist_align_up(layout->tensors[i].bytes, ALIGNMENT);
    }
}

int64_t mist_storage_most_off(const struct mist_layer_layout *block)
{
    struct item items[MIST_MAX_TENSORS + 1];
    double most = (double)block->input_bytes;

    for (int is_lean = 0; is_lean < 2; is_lean++) {
        double smaller = 0;
        for (int32_t i = order_kept(block, false, is_lean, items) - 1; i >= 0; i--) {
            most = fmax(most, items[i].size - smaller);
            smaller += items[i].size;
        }
    }
    return (int64_t)most;
}

void mist_storage_make(const struct mist_plan *plan, int32_t i_stage,
                       const struct mist_layer_layout *layouts, const int32_t *modules,
                       int32_t n, struct mist_module_storage *out)
{
    struct running blocks[N_RATIOS] = {{0, 0}}, ends[N_RATIOS] = {{0, 0}};

    for (int32_t i = 0; i < n; i++) {
        enum mist_layer_kind kind = mist_schedule_layer_kind(&plan->model, modules[i]);
        struct running *running = kind == MIST_LAYER_BLOCK ? blocks : ends;
        out[i] = (struct mist_module_storage){0};
        cut_params(plan, i_stage, &layouts[kind], running, &out[i]);
        cut_activations(plan, i_stage, &layouts[kind], modules[i],
                        &running[RATIO_ACTIVATIONS], &out[i]);
    }
}
