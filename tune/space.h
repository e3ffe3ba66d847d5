/*
 * The search space: which plans are looked at for a model, a job and a number of ranks.
 *
 * A case fixes what ties the stages of a plan together: G, the number of stages, and the
 * samples of a micro-batch, global_batch / G, which every stage cuts into dp equal parts
 * b. What is left is chosen stage by stage: layers, dp, ZeRO-1, checkpointed layers; all
 * ranks and all layers are used. Cases are independent of one another.
 *
 * Knobs come in groups that can be switched off:
 *
 *   3d         G, stages, dp and b; always on. Alone: equal stages, every activation
 *              kept, the whole optimizer state on every rank
 *   zero       ZeRO-1 or not, per stage (where dp > 1)
 *   ckpt       the first 0 .. l layers of each stage are recomputed
 *   imbalance  stages may differ in layers, and a stage's extra time d of the first and
 *              last micro-batch is told from its stable time t. Without: S divides the
 *              layers, and a stage is judged by t + d / G alone
 *   mesh       stages may differ in dp. Without: dp = ranks / S everywhere. Looked at up
 *              to MIST_SPACE_MAX_MESH_RANKS ranks
 *
 * On several nodes a stage takes whole nodes or an equal part of one (dp is a multiple or
 * a divisor of the devices of a node); on one node any number of devices.
 *
 * Left out: tensor parallelism, ZeRO-2 and ZeRO-3, offloading, ranks that stay idle.
 */
#ifndef MIST_TUNE_SPACE_H
#define MIST_TUNE_SPACE_H

#include "core/memory.h"
#include "core/status.h"
#include "sim/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mist_space_group {
    MIST_SPACE_3D,
    MIST_SPACE_ZERO,
    MIST_SPACE_CKPT,
    MIST_SPACE_IMBALANCE,
    MIST_SPACE_MESH,
    MIST_N_SPACE_GROUPS
};

#define MIST_SPACE_ALL ((1u << MIST_N_SPACE_GROUPS) - 1)

/* From here on the number of ways to cut the ranks is not worth its time. */
enum { MIST_SPACE_MAX_MESH_RANKS = 64 };

struct mist_space_case {
    int32_t n_micro_batches;        /* G */
    int32_t n_stages;               /* S */
    int32_t samples;                /* of a micro-batch of the whole plan: b * dp */
    int32_t n_dps;                  /* >= 1; data-parallel sizes a stage may have */
    const int32_t *dps;             /* rising, each divides samples */
    int32_t layers_min, layers_max; /* of a stage */
};

struct mist_space {
    struct mist_model model;
    struct mist_job job;
    int32_t n_ranks, devices_per_node;
    unsigned groups; /* bit mask over enum mist_space_group */
    int32_t n_cases;
    struct mist_space_case *cases; /* owned; by rising G, then S */
    size_t capacity;
    struct mist_arena arena; /* of the dps */
};

const char *mist_space_group_name(enum mist_space_group group); /* "zero" */

/*
 * Adds the group of that name to *groups. MIST_ERR_USAGE: there is none, or nothing of it
 * can be searched yet ("offload", "tp"); the message says which.
 */
MIST_MUST_CHECK enum mist_status mist_space_add_group(const char *name, unsigned *groups,
                                                      struct mist_err *err);

/*
 * Lists the cases. model and job must have passed their checks; groups always includes
 * 3d. out is freed by mist_space_fini, also after a failure. MIST_OK, also when there is
 * no case; MIST_ERR_MEMORY; MIST_ERR_USAGE (global batch, ranks or devices_per_node below
 * 1).
 */
MIST_MUST_CHECK enum mist_status
mist_space_init(struct mist_space *out, const struct mist_model *model,
                const struct mist_job *job, int32_t n_ranks, int32_t devices_per_node,
                unsigned groups, struct mist_err *err);
void mist_space_fini(struct mist_space *space);

bool mist_space_has(const struct mist_space *space, enum mist_space_group group);

/* Number of values of the knob n_checkpointed (0 .. value - 1) and zero (likewise). */
int32_t mist_space_n_checkpointed(const struct mist_space *space, int32_t n_layers);
int32_t mist_space_n_zero(const struct mist_space *space, int32_t dp);

/* Plans of the space, exactly up to 2^53 and rounded above; NAN when out of memory. */
double mist_space_n_plans(const struct mist_space *space);

#endif
