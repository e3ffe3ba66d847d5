/*
 * The search space: which plans are looked at for a model, a job and a number of ranks.
 *
 * A case fixes what ties the stages of a plan together: G, the number of stages, the
 * samples of a micro-batch, global_batch / G, which every stage cuts into dp equal parts
 * b, and which device shapes a stage may have. What is left is chosen stage by stage:
 * layers, shape, checkpointed and lean layers, ZeRO, offload ratios; all ranks and all layers are
 * used. Cases are independent of one another.
 *
 * Knobs come in groups that can be switched off:
 *
 *   3d         G, stages, dp, tp and b; always on. Alone: equal stages, every activation
 *              kept, the whole optimizer state on every rank
 *   zero       ZeRO-0 to ZeRO-3, per stage (where dp * cp > 1)
 *   ckpt       the first 0 .. l layers of each stage are recomputed
 *   lean       none or all of a stage's layers that are not recomputed are lean: per byte
 *              that saves more time than recomputing fewer of them
 *   offload    four ratios per stage, 0 .. 1 in steps of 1/8, of what waits in host
 *              memory: weights, gradients, optimizer state, activations
 *   imbalance  stages may differ in layers. Without: S divides the layers
 *   mesh       stages may differ in dp, tp and sequence parallelism. Without: one shape
 *              for all of them. Looked at up to MIST_SPACE_MAX_MESH_RANKS ranks
 *   sequence   sequence parallelism or not, where tp > 1
 *   context    cp, one for all stages of a plan; taken out by init where sequences are
 *              shorter than MIST_SPACE_CONTEXT_TOKENS and bounds don't name it. Without: 1
 *   schedule   the best plans are replayed with the other pipeline schedules, too (see
 *              validate.h; nothing of it is in the cases)
 *
 * On several nodes a stage takes whole nodes or an equal part of one (dp * cp * tp is a
 * multiple or a divisor of the devices of a node); on one node any number of devices. tp
 * is what the model can be cut into; what it costs across nodes is for the prices to say.
 *
 * A single stage has a case for each shape, as cases have one candidate for each split of
 * layers and devices over stages, and here there is one split.
 *
 * A model that ties its embeddings needs one dp and tp for its first and last stage
 * (mist_plan_check): there is a case for each that they can have (ends).
 *
 * Bounds (bounds.h) narrow the knobs further; a group that is off is a bound on its knobs.
 * Uniform plans have one shape and equal layers, so groups mesh and imbalance are off, and
 * the search chooses their knobs once, for all stages together.
 *
 * Left out: ranks that stay idle.
 */
#ifndef MIST_TUNE_SPACE_H
#define MIST_TUNE_SPACE_H

#include "core/memory.h"
#include "core/status.h"
#include "sim/plan/plan.h"
#include "tune/bounds.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mist_space_group {
    MIST_SPACE_3D,
    MIST_SPACE_ZERO,
    MIST_SPACE_CKPT,
    MIST_SPACE_OFFLOAD,
    MIST_SPACE_IMBALANCE,
    MIST_SPACE_MESH,
    MIST_SPACE_SEQUENCE,
    MIST_SPACE_SCHEDULE,
    MIST_SPACE_LEAN,
    MIST_SPACE_CONTEXT,
    MIST_N_SPACE_GROUPS
};

#define MIST_SPACE_ALL ((1u << MIST_N_SPACE_GROUPS) - 1)

/* From here on the number of ways to cut the ranks is not worth its time. */
enum { MIST_SPACE_MAX_MESH_RANKS = 64 };

/* Shorter sequences are not cut unasked: the batch has tokens enough for data-parallel
 * ranks. */
enum { MIST_SPACE_CONTEXT_TOKENS = 16384 };

/* The unit of a ratio of offloading: MIST_RATIO_ONE is all of it. */
enum { MIST_RATIO_ONE = 8 };

extern const char *const mist_offload_names[MIST_N_OFFLOADS]; /* "weights" */

/* How a stage uses its dp * cp * tp devices. */
struct mist_space_shape {
    int32_t dp, tp;
    bool is_sequence_parallel; /* needs tp > 1 */
    int32_t cp;                /* as in struct mist_stage_plan: 0 is 1 */
};

static inline int32_t mist_space_cp(const struct mist_space_shape *shape)
{
    return shape->cp > 1 ? shape->cp : 1;
}

static inline bool mist_space_shapes_are_same(const struct mist_space_shape *a,
                                              const struct mist_space_shape *b)
{
    return a->dp == b->dp && a->tp == b->tp && a->cp == b->cp &&
           a->is_sequence_parallel == b->is_sequence_parallel;
}

struct mist_space_case {
    int32_t n_micro_batches; /* G */
    int32_t n_stages;        /* S */
    int32_t samples;         /* of a micro-batch of the whole plan: b * dp */
    int32_t n_shapes;        /* >= 1; shapes a stage may have */
    /* by rising devices, then tp, then sequence; all with one cp */
    const struct mist_space_shape *shapes;
    int32_t ends_dp, ends_tp;       /* of the first and the last stage; 0: any */
    int32_t layers_min, layers_max; /* of a stage */
};

struct mist_space {
    struct mist_model model;
    struct mist_job job;
    int32_t n_ranks, devices_per_node;
    unsigned groups; /* bit mask over enum mist_space_group */
    struct mist_bounds bounds;
    int32_t ratio_step; /* of offload ratios: 1, 2, 4 or 8 eighths; init sets 1 */
    /* Offloaded optimizer state may be updated on the host; init sets false. */
    bool allows_host_updates;
    int32_t n_cases;
    struct mist_space_case *cases; /* owned; by rising G, then cp, then S */
    size_t capacity;
    struct mist_arena arena; /* of the shapes */
};

const char *mist_space_group_name(enum mist_space_group group); /* "zero" */

/* Adds the group of that name to *groups. MIST_ERR_USAGE: there is none; the message
 * lists them. */
MIST_MUST_CHECK enum mist_status mist_space_add_group(const char *name, unsigned *groups,
                                                      struct mist_err *err);

/*
 * Lists the cases. model and job must have passed their checks; groups always includes
 * 3d; bounds: NULL for none. out is freed by mist_space_fini, also after a failure.
 * MIST_OK, also when there is no case; MIST_ERR_MEMORY; MIST_ERR_USAGE (global batch,
 * ranks or devices_per_node below 1).
 */
MIST_MUST_CHECK enum mist_status
mist_space_init(struct mist_space *out, const struct mist_model *model,
                const struct mist_job *job, int32_t n_ranks, int32_t devices_per_node,
                unsigned groups, const struct mist_bounds *bounds, struct mist_err *err);
void mist_space_fini(struct mist_space *space);

/* The same with other groups or other bounds. */
MIST_MUST_CHECK enum mist_status
mist_space_part(struct mist_space *out, const struct mist_space *of, unsigned groups,
                const struct mist_bounds *bounds, struct mist_err *err);

bool mist_space_has(const struct mist_space *space, enum mist_space_group group);

/* MIST_ERR_USAGE: a bound needs a group that is off; MIST_ERR_NO_PLAN: or updates on the
 * host, which have no price. */
MIST_MUST_CHECK enum mist_status mist_space_check_bounds(const struct mist_space *space,
                                                         struct mist_err *err);

/* What a knob may be by bounds and groups. */
struct mist_knob_range mist_space_range(const struct mist_space *space,
                                        enum mist_knob knob);
bool mist_space_allows_value(const struct mist_space *space, enum mist_knob knob,
                             int32_t value);

/* Whether stages may have different shapes: group mesh, and not too many ranks; and
 * whether they may have different layers. */
bool mist_space_may_differ(const struct mist_space *space);
bool mist_space_is_even(const struct mist_space *space);

/* Whether plans may cut sequences over cp ranks (1: not at all). */
bool mist_space_may_cut(const struct mist_space *space, int32_t cp);

/* Devices of a shape. */
int32_t mist_space_n_devices(const struct mist_space_shape *shape);

/* Whether a stage of the case may have the shape of that number. */
bool mist_space_allows(const struct mist_space_case *of, int32_t i_stage,
                       int32_t i_shape);

/* Number of values of the knobs n_checkpointed and zero (0 .. value - 1) and of n_lean,
 * where n_open layers are not checkpointed (0, and n_open if there are two). Which of them
 * a stage may have is for the next two to say. */
int32_t mist_space_n_checkpointed(const struct mist_space *space, int32_t n_layers);
int32_t mist_space_n_lean(const struct mist_space *space, int32_t n_open);
int32_t mist_space_n_zero(const struct mist_space *space,
                          const struct mist_space_shape *shape);
bool mist_space_allows_blocks(const struct mist_space *space, int32_t n_layers,
                              int32_t n_checkpointed);
bool mist_space_allows_lean(const struct mist_space *space, int32_t n_open,
                            int32_t n_lean);

/* The least and the largest value of an offload ratio in eighths, between which it has
 * steps of ratio_step; whether any may be above 0, and whether the optimizer may be
 * updated on the device (0) or the host (1) where its ratio is that. */
struct mist_knob_range mist_space_ratios(const struct mist_space *space, int offload);
bool mist_space_offloads(const struct mist_space *space);
bool mist_space_allows_update(const struct mist_space *space, int ratio, int on_host);

/* Plans of the space (each with one pipeline schedule), exactly up to 2^53 and rounded
 * above; NAN when out of memory. */
double mist_space_n_plans(const struct mist_space *space);

#endif
