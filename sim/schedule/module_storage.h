/*
 * Where the parameters and the kept activations of a module live: on the device or, by
 * the plan's ratios, in host memory; of a lean block some activations nowhere, they are
 * made again.
 *
 * A tensor is wholly here or there: nothing has to be glued together before a kernel can
 * read it. The matrices of a module, in a fixed order, are offloaded up to some point, so
 * that the total over the stage's modules so far follows the ratio as closely as whole
 * tensors allow; with ratio 0 nothing is offloaded, with 1 everything but the vectors of
 * the norms (they are too small to matter). Ratios of weights, gradients and optimizer
 * state may differ, so a module's parameters fall into a few slabs: contiguous arrays of
 * parameters that live in the same places. A slab is what is sharded over data-parallel
 * ranks, gathered, reduced, swapped and updated as one. A tied embedding's weight has a
 * slab of its own.
 */
#ifndef MIST_SIM_MODULE_STORAGE_H
#define MIST_SIM_MODULE_STORAGE_H

#include "core/status.h"
#include "sim/model/catalog.h"
#include "sim/plan/plan.h"

#include <stdbool.h>
#include <stdint.h>

enum { MIST_MAX_SLABS = 5 };

struct mist_slab {
    int64_t n_elements; /* padded so that dp shards are equal and 64-byte aligned */
    bool offloads_weights, offloads_gradients, offloads_state;
    bool is_alias; /* the weights are the embedding's, on the same rank: only gradients
                      may have storage here (mist_piece_joins_embedding()) */
    bool is_exchanged;    /* a tied weight that another stage has, too */
    bool updates_on_host; /* where its state is */
};

/* From forward to backward a saved tensor stays on the device, goes to the host, or is
 * there for neither, but written again in front of the backward. */
enum mist_saved_place {
    MIST_SAVED_HERE,
    MIST_SAVED_SWAPPED,
    MIST_SAVED_REMADE,
    MIST_N_SAVED_PLACES
};

struct mist_module_storage {
    int32_t n_slabs;
    struct mist_slab slabs[MIST_MAX_SLABS];
    int8_t param_slab[MIST_MAX_PARAMS];
    int64_t param_offset[MIST_MAX_PARAMS]; /* elements, in the slab */
    int64_t saved_bytes[MIST_N_SAVED_PLACES];
    int8_t saved_place[MIST_MAX_TENSORS];   /* enum mist_saved_place, of saved tensors */
    int64_t saved_offset[MIST_MAX_TENSORS]; /* in their buffer */
    bool swaps_input;                       /* the module's input is swapped, too */
};

/* Elements of parameters, padded so that dp shards are equal and 64-byte aligned. */
int64_t mist_storage_padded_elements(int64_t n_parameters, int32_t dp);

/*
 * Storage of a stage's modules.
 *
 * layouts       [MIST_N_LAYER_KINDS], of the stage's shape.
 * modules       [n] module numbers of the stage, ascending.
 * out           [n].
 */
void mist_storage_make(const struct mist_plan *plan, int32_t i_stage,
                       const struct mist_layer_layout *layouts, const int32_t *modules,
                       int32_t n, struct mist_module_storage *out);

/* Bytes that blocks in a row may have swapped less, in all, than the ratio of what they
 * keep; never more. */
int64_t mist_storage_most_off(const struct mist_layer_layout *block);

#endif
