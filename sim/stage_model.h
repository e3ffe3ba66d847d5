/*
 * The closed form of a pipeline stage for the tuner: time and memory as symbolic
 * expressions over the knobs, compiled to a tape and evaluated by the million.
 *
 * For one shape of a stage (its role, micro-batch, data-parallel group and placement) the
 * template quantities are found once: a schedule of a few layers of that shape is built
 * and priced by mist_cost_schedule(), and seconds and bytes by module kind are read off
 * it. The expressions over them mirror what schedule_build.c puts beside what:
 *
 *   t  seconds of a stable micro-batch: its computation, and its transfers, of which one
 *      way of every round trip is waited for (1F1B with the fewest micro-batches in
 *      flight: a stage that sends has nothing left to do until the answer has come) while
 *      the other runs beside computation
 *   d  extra seconds of the first micro-batch (optimizer step and gather of parameters)
 *      and the last (reduction of gradients)
 *   peak  largest sum of live device buffers. This is exact; the planner's arena is
 *      larger by what fragmentation costs (nothing in most plans, 4 % at worst over the
 *      random plans of tests/prop/test_stage_model.c), so whoever must not pass a limit
 *      asks mist_replay_memory() for the few plans that are left
 *
 * Overlap of computation c and communication g (both alone, seconds) with slowdowns sc
 * and sg is the bundle of interference.h with two channels,
 *   bundle = c + g + min(c sc, g sg) (1 - 1/sc - 1/sg).
 *
 * Iteration: (G - 1) max_i t_i + sum_i t_i + max(0, max_i (d_i - sum_{j<i} t_j)).
 *
 * Where later knobs go: a column in enum mist_stage_column (ZeRO-2, ZeRO-3, the four
 * offload ratios), its bytes and seconds per module kind in the list of uniform symbols
 * of stage_model_internal.h, its terms in stage_model_exprs.c: the gather of ZeRO-3 and
 * swaps of weights and activations join the bundles of t, those of gradients and
 * optimizer state the bundles of d; bundles then need the channels of both copy
 * directions.
 *
 * Where it errs: with uneven stages and few micro-batches (G - 1) max t + sum t is itself
 * too long, as a busy first stage runs ahead while later ones work; and transfers meet in
 * the order of the logical clock, which uneven stages do not keep.
 *
 * Left out: what differs between stages of one role (the transfers of a stage priced by
 * mist_stage_model_prepare go to neighbours of its own shape), loading the batch,
 * imbalance, jitter.
 */
#ifndef MIST_SIM_STAGE_MODEL_H
#define MIST_SIM_STAGE_MODEL_H

#include "core/status.h"
#include "sim/catalog.h"
#include "sim/cost_model.h"
#include "sim/plan.h"
#include "sim/tape.h" /* struct mist_tape_input */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the knobs and the place in the pipeline are called in a call. */
enum mist_stage_column {
    MIST_STAGE_LAYERS,          /* L: blocks of the stage, >= 1 */
    MIST_STAGE_CHECKPOINTED,    /* C: 0 .. L */
    MIST_STAGE_ZERO,            /* Z: 0 .. 3; shards the optimizer state, then the
                                   gradients, then the weights */
    MIST_STAGE_OFFLOAD_WEIGHTS, /* ratios, 0 .. 1 */
    MIST_STAGE_OFFLOAD_GRADIENTS,
    MIST_STAGE_OFFLOAD_OPTIMIZER,
    MIST_STAGE_OFFLOAD_ACTIVATIONS,
    MIST_STAGE_IN_FLIGHT,     /* P: min(stages from this one on, G) */
    MIST_STAGE_MICRO_BATCHES, /* G */
    MIST_STAGE_N_COLUMNS
};

/* What is fixed for a batch of configurations. */
struct mist_stage_shape {
    bool is_first, is_last; /* holds the embedding, the head */
    int32_t micro_batch;    /* per data-parallel rank */
    int32_t dp, tp;
    int32_t n_nodes, n_devices; /* mesh of the stage, as in struct mist_stage_plan */
    bool is_sequence_parallel;
};

enum { MIST_STAGE_N_VALUES = 144 };

/* Values of the template quantities of one shape; made by prepare, opaque otherwise. */
struct mist_stage_values {
    struct mist_stage_shape shape;
    double values[MIST_STAGE_N_VALUES];
};

struct mist_stage_model;

/*
 * Builds and compiles the expressions.
 *
 * catalog, cost_model  borrowed for the model's life.
 * job                  sequence length and dtype are used; copied.
 * threads              host threads per device, >= 1.
 * MIST_OK (out owned by the caller: mist_stage_model_free) or MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status
mist_stage_model_new(const struct mist_catalog *catalog,
                     const struct mist_cost_model *cost_model, const struct mist_job *job,
                     int32_t threads, struct mist_stage_model **out,
                     struct mist_err *err);
void mist_stage_model_free(struct mist_stage_model *model); /* NULL allowed */

/*
 * Prices one shape. out is filled on MIST_OK. Fails like mist_schedule_build and
 * mist_cost_schedule. Thread-safe as long as those are.
 */
MIST_MUST_CHECK enum mist_status
mist_stage_model_prepare(const struct mist_stage_model *model,
                         const struct mist_stage_shape *shape,
                         struct mist_stage_values *out, struct mist_err *err);

/* Scratch bytes of one call of eval; one piece per thread, aligned to 64. */
size_t mist_stage_model_scratch_bytes(const struct mist_stage_model *model);

/*
 * Evaluates n configurations of one shape.
 *
 * columns  [MIST_STAGE_N_COLUMNS]; whole numbers, each a column of n or one value for
 * all. t_s, d_s, peak_bytes, host_bytes  [n] each; NULL: not wanted. Cannot fail, does
 * not allocate; threads may share the model, not the scratch.
 */
void mist_stage_model_eval(const struct mist_stage_model *model,
                           const struct mist_stage_values *values,
                           const struct mist_tape_input *columns, size_t n, double *t_s,
                           double *d_s, double *peak_bytes, double *host_bytes,
                           void *scratch);

/* The formula over all stages; t_s, d_s: [n_stages]. */
double mist_stage_model_iteration_s(int32_t n_stages, int32_t n_micro_batches,
                                    const double *t_s, const double *d_s);

/*
 * Predicts a whole plan (checked): stable_s, extra_s and peak_bytes of every stage and
 * iteration_s; transfers are priced between the plan's own stages. error_s and
 * extrapolated_frac are 0: the replay knows them. out is filled on MIST_OK.
 */
MIST_MUST_CHECK enum mist_status
mist_stage_model_plan(const struct mist_stage_model *model, const struct mist_plan *plan,
                      struct mist_prediction *out, struct mist_err *err);

#endif
