/*
 * The closed form of a pipeline stage for the tuner: time and memory as symbolic
 * expressions over the knobs, compiled to a tape and evaluated by the million.
 *
 * For one shape of a stage (its role, micro-batch, data-parallel group and placement) the
 * template quantities are found once: parts of programs, pieces of work on parameters
 * (schedule_piece.h) and transfers of one module of each kind, priced by
 * mist_cost_task(). The expressions say when a piece is due by the conditions of its
 * declaration, and put beside what schedule_build.c puts beside what:
 *
 * t: seconds of a stable micro-batch. The passes of its modules, each beside what the
 * next one needs (parameters gathered under ZeRO-3 or swapped in, kept activations,
 * gradients so far) and what the one before has left (sums over ranks under ZeRO-2,
 * gradients for the host); and its transfers, of which one way of every round trip is
 * waited for (1F1B with the fewest micro-batches in flight: a stage that sends has
 * nothing left to do until the answer has come): what goes and what comes go at once.
 *
 * d: extra seconds of the first micro-batch (optimizer step with its swaps, and gather of
 * parameters) and the last (reduction of gradients, norms).
 *
 * peak: the most device buffers that live at once, of the lifetimes that the rooms of
 * schedule_piece.h declare. Exact while nothing is offloaded and ZeRO is below 2; otherwise
 * never below it, but for the padding of slabs (0.05 %), and exact in the median where all
 * of something is offloaded or nothing. Ratios act through whole tensors: one between 0 and
 * 1 counts with what these may be off, 4 % in the median over the random plans of
 * tests/prop/test_stage_memory.c, whose stages have 2 to 8 blocks, half of it with twice as
 * many. The planner's arena is larger by the holes of its layout, which one stage in
 * fifteen has, with ZeRO-2 and ZeRO-3 one in five: 1 % in most of them, 13 % at worst. So
 * whoever must not pass a limit asks mist_replay_memory() for the few plans that are left.
 *
 * host: the same of pinned host memory.
 *
 * Tensor-parallel communication is in series with the computation of its program, but for
 * weight gradients beside it; what data-parallel ranks exchange meanwhile goes first.
 * Overlap is the bundle of interference.h (stage_model_internal.h says how nearly).
 *
 * Iteration: (G - 1) max_i t_i + sum_i t_i + max(0, max_i (d_i - sum_{j<i} t_j)).
 *
 * Where it errs (medians over random plans on three made-up machines: 1 % with ZeRO-0/1,
 * 1-2 % with ZeRO-3, 1-5 % with offloading; the worst of hundreds are off by 47 %):
 *
 * - with uneven stages and few micro-batches (G - 1) max t + sum t is itself too long, as
 *   a busy first stage runs ahead while later ones work; and transfers meet in the order
 *   of the logical clock, which uneven stages do not keep.
 *
 * - copies that take longer than what is computed meanwhile run ahead or behind by a pass or
 *   two, as far as there is room; here those of gradients do by one pass, into the forwards,
 *   those of weights below the last block (where blocks keep something in the host, only
 *   from the end of a backward to the next forward), and others are waited for pass by pass.
 *
 * - ratios act through whole tensors in the schedule (module_storage.h), here through any
 *   part of a block; embedding and head, which have one or two matrices, are done
 *   exactly. Every slab more than one costs the latency of its copies and collectives,
 *   left out.
 *
 * - what lean blocks do and keep counts in the mean over all that are not checkpointed,
 *   which is exact but for what runs beside it.
 *
 * - updates on the host run in a chain beside everything: the first forward ends when the
 *   last module's weights have come from there and it has been computed, or later.
 *
 * Left out: what differs between stages of one role (transfers go to neighbours of the
 * stage's own shape), loading the batch, sums after each micro-batch where no ZeRO-2 asks
 * for them, other pipelines than 1F1B, imbalance, jitter.
 */
#ifndef MIST_SIM_STAGE_MODEL_H
#define MIST_SIM_STAGE_MODEL_H

#include "core/status.h"
#include "sim/cost/cost_model.h"
#include "sim/model/catalog.h"
#include "sim/plan/plan.h"
#include "sim/symbolic/tape.h" /* struct mist_tape_input */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the knobs and the place in the pipeline are called in a call. */
enum mist_stage_column {
    MIST_STAGE_LAYERS,          /* L: blocks of the stage, >= 1 */
    MIST_STAGE_CHECKPOINTED,    /* C: 0 .. L */
    MIST_STAGE_LEAN,            /* N: 0 .. L - C */
    MIST_STAGE_ZERO,            /* Z: 0 .. 3 */
    MIST_STAGE_OFFLOAD_WEIGHTS, /* ratios, 0 .. 1, as in enum mist_offload */
    MIST_STAGE_OFFLOAD_GRADIENTS,
    MIST_STAGE_OFFLOAD_OPTIMIZER,
    MIST_STAGE_OFFLOAD_ACTIVATIONS,
    MIST_STAGE_UPDATE_ON_HOST, /* 0 or 1, with a price alone (mist_cost_model_prices_host)
                                */
    MIST_STAGE_IN_FLIGHT,      /* P: min(stages from this one on, G) */
    MIST_STAGE_MICRO_BATCHES,  /* G */
    MIST_STAGE_N_COLUMNS
};

/* What is fixed for a batch of configurations. */
struct mist_stage_shape {
    bool is_first, is_last;     /* holds the embedding, the head */
    bool is_of_first;           /* a later chunk of the stage that holds the embedding */
    int32_t micro_batch;        /* per data-parallel rank */
    int32_t dp, tp, cp;         /* cp as in struct mist_stage_plan */
    int32_t n_nodes, n_devices; /* mesh of the stage, as in struct mist_stage_plan */
    bool is_sequence_parallel;
};

enum { MIST_STAGE_N_VALUES = 240 };

/* Values of the template quantities of one shape; made by prepare, opaque otherwise. */
struct mist_stage_values {
    struct mist_stage_shape shape;
    double values[MIST_STAGE_N_VALUES];
};

struct mist_stage_model;

/*
 * Makes a model.
 *
 * trained     the transformer; copied.
 * cost_model  borrowed for the model's life.
 * job         sequence length and dtype are used; copied.
 * threads     host threads per device, >= 1.
 * MIST_OK (out owned by the caller: mist_stage_model_free), MIST_ERR_MEMORY or
 * MIST_ERR_RUN.
 */
MIST_MUST_CHECK enum mist_status
mist_stage_model_new(const struct mist_model *trained,
                     const struct mist_cost_model *cost_model, const struct mist_job *job,
                     int32_t threads, struct mist_stage_model **out,
                     struct mist_err *err);
void mist_stage_model_free(struct mist_stage_model *model); /* NULL allowed */

/* Prices one shape. out is filled on MIST_OK. Fails like mist_layer_layout_make() and
 * mist_cost_task(). Thread-safe. */
MIST_MUST_CHECK enum mist_status
mist_stage_model_prepare(const struct mist_stage_model *model,
                         const struct mist_stage_shape *shape,
                         struct mist_stage_values *out, struct mist_err *err);

/* Seconds of a micro-batch's activations to the next stage and of gradients to the one
 * before; 0 where there is none. */
void mist_stage_model_sends(const struct mist_stage_values *values, double *forward_s,
                            double *backward_s);

/* Seconds of the exchange among all ranks that ends an iteration. */
double mist_stage_model_exchange_s(const struct mist_stage_values *values);

/* What an evaluation gives. t is FORWARDS and BACKWARDS and its transfers; d is FIRST, LAST,
 * LEFT, BEHIND and the exchange, without what the first micro-batch takes less: so d never
 * falls by that as more gradients leave, which the search counts on. */
enum mist_stage_output {
    MIST_STAGE_STABLE,     /* t, seconds */
    MIST_STAGE_EXTRA,      /* d */
    MIST_STAGE_PEAK,       /* bytes of the device */
    MIST_STAGE_HOST,       /* of the host */
    MIST_STAGE_N_SEARCHED, /* these four cost less where the others are not wanted */
    MIST_STAGE_FORWARDS =
        MIST_STAGE_N_SEARCHED, /* seconds of all forward, all backward passes of a micro-batch */
    MIST_STAGE_BACKWARDS,
    MIST_STAGE_BACKWARDS_INPUT, /* where it is split: input gradients, weight gradients */
    MIST_STAGE_BACKWARDS_WEIGHT,
    MIST_STAGE_FIRST, /* extra seconds of the first micro-batch, of the last one's backward */
    MIST_STAGE_LAST,
    MIST_STAGE_LAST_WEIGHT,  /* where that is split */
    MIST_STAGE_LEFT,         /* seconds of sums that it leaves */
    MIST_STAGE_BEHIND,       /* behind all that but for the exchange */
    MIST_STAGE_FIRST_UNHELD, /* FIRST where no step on the host holds it up */
    MIST_STAGE_ON_HOST, /* seconds of these steps, where the device does other work */
    MIST_STAGE_BRINGS_FORWARD, /* extra seconds of the last forward where a block's weights come */
    MIST_STAGE_BRINGS_BACKWARD, /* beside it; of the last backward, or second part of one */
    MIST_STAGE_BRINGS_WEIGHT,
    MIST_STAGE_SUMS_FORWARD, /* seconds of FORWARDS beside the sums that a backward has left; extra
                                ones of BACKWARDS and BACKWARDS_INPUT, which have no such */
    MIST_STAGE_SUMS_BACKWARD,
    MIST_STAGE_SUMS_INPUT,
    MIST_STAGE_WAITS_BACKWARD, /* what BACKWARDS and BACKWARDS_INPUT are shorter where all that
                                  blocks keep in the host has come before */
    MIST_STAGE_WAITS_INPUT,
    MIST_STAGE_N_OUTPUTS
};

/*
 * Evaluates n configurations of one shape.
 *
 * columns  [MIST_STAGE_N_COLUMNS]; ratios and whole numbers, each a column of n or one
 * value for all; of what is in flight and of micro-batches one value. Every configuration
 * is evaluated by expressions that have what it does alone: its level of ZeRO, offloading,
 * updates on the host, lean blocks. They are written and compiled when they are first
 * asked for.
 * outputs  [MIST_STAGE_N_OUTPUTS], [n] each; NULL: not wanted.
 *
 * Thread-safe. MIST_OK or MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status
mist_stage_model_eval(struct mist_stage_model *model,
                      const struct mist_stage_values *values,
                      const struct mist_tape_input *columns, size_t n,
                      double *const outputs[MIST_STAGE_N_OUTPUTS], struct mist_err *err);

#endif
