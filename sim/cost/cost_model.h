/*
 * The cost model: what an operator, a message and a launch cost on a cluster, from its
 * trace set.
 *
 * Operators: the measured mean for a measured shape; between two rows that differ in the
 * first dimension alone, time straight in it; otherwise what its shape lets one expect,
 * times by how much the nearest rows differ from what theirs does; outside the measured
 * range flagged as extrapolated (cost_kernel.c says how well each does). An
 * operator without rows costs the sum of what it is made of where the trace set has rows
 * of that (mist_op_parts), else what the data sheet says (cost_curve.c). Links: a table
 * per operation, group shape and concurrency, time straight in bytes between two sizes;
 * beyond the ends the line through the two outer points, flagged; where nothing of the
 * kind was measured, by what is declared (cost_declared.c).
 */
#ifndef MIST_SIM_COST_MODEL_H
#define MIST_SIM_COST_MODEL_H

#include "core/status.h"
#include "sim/cost/interference.h"
#include "sim/model/catalog.h"
#include "sim/plan/plan.h"
#include "sim/schedule/schedule.h"
#include "traces/trace_set.h"

/*
 * A predicted duration with what is known of its uncertainty. deviation_s is that of the
 * mean (of a typical iteration), not of single runs: deviation_us / sqrt(repetitions) of
 * the rows and, for interpolated operators, the residual of leaving rows out, as root of
 * squares. It knows nothing of how wrong an extrapolation is: extrapolated_s says how
 * much rests on one. Of prices by a data sheet it is known, doubt_s: the same figures are
 * behind all of them, so it adds up and doesn't average out.
 */
struct mist_cost {
    double time_s;
    double deviation_s;
    double extrapolated_s; /* part of time_s that was not measured, nor lies between what
                              was; the next two are parts of it */
    double borrowed_s;     /* by rows of another operation, or of another group */
    double preset_s;       /* by a data sheet */
    double doubt_s;        /* deviation that all of preset_s shares */
};

/* sum += part; deviations of different measurements are independent. */
void mist_cost_add(struct mist_cost *sum, const struct mist_cost *part);

/* Everything times a factor. */
void mist_cost_scale(struct mist_cost *cost, double factor);

/* The trace set's word for a number format. */
enum mist_trace_dtype mist_cost_trace_dtype(enum mist_dtype dtype);

struct mist_cost_model;

/* Builds look-up structures over the trace set (borrowed for the model's life). */
MIST_MUST_CHECK enum mist_status mist_cost_model_new(const struct mist_trace_set *traces,
                                                     struct mist_cost_model **out,
                                                     struct mist_err *err);
void mist_cost_model_free(struct mist_cost_model *model);

struct mist_framework; /* sim/model/framework.h */

/*
 * How many times as fast as its trace set says a cluster is, for what-if; each > 0. An
 * operator counts as the plan runs it, whatever its price is made of. Times that were
 * measured follow peak and memory_rate as the data sheet's would.
 */
struct mist_cost_speeds {
    double kernel[MIST_N_OPS];
    double peak, memory_rate;               /* of a device */
    const struct mist_framework *framework; /* in place of the job's; borrowed for the
                                               model's life; NULL: as it is */
};

/* All 1. */
void mist_cost_speeds_init(struct mist_cost_speeds *speeds);

/* Of a model that was just made. */
void mist_cost_model_set_speeds(struct mist_cost_model *model,
                                const struct mist_cost_speeds *speeds);

/* The trace set's cluster with these speeds. */
const struct mist_cluster *mist_cost_model_cluster(const struct mist_cost_model *model);

const struct mist_interference *
mist_cost_model_interference(const struct mist_cost_model *model);
/* How well these factors fit: mean residual of the mixtures measured, relative;
 * 0 without any. */
double mist_cost_model_interference_residual_frac(const struct mist_cost_model *model);
const struct mist_trace_set *mist_cost_model_traces(const struct mist_cost_model *model);
double mist_cost_model_launch_s(const struct mist_cost_model *model);

/* Whether an optimizer step on the host has a price: "adamw_host" was measured, a node's
 * processors have a declared rate, or the device computes on them itself, where it costs
 * what "adamw" does. */
bool mist_cost_model_prices_host(const struct mist_cost_model *model,
                                 enum mist_dtype dtype);

/* Whether copies between device and host have a price, so that offloading has one. */
bool mist_cost_model_prices_copies(const struct mist_cost_model *model);

/*
 * Whether the number format has a price, messages of all groups that n_ranks ranks can
 * form, and copies if offloads is set. MIST_OK, or MIST_ERR_INPUT: what is missing, and
 * what to measure or to declare.
 */
MIST_MUST_CHECK enum mist_status
mist_cost_model_check(const struct mist_cost_model *model, enum mist_dtype dtype,
                      int32_t n_ranks, bool offloads, struct mist_err *err);

/* One operator at one shape. flop and bytes are the catalogue's. */
MIST_MUST_CHECK enum mist_status
mist_cost_op(const struct mist_cost_model *model, enum mist_op op, enum mist_phase phase,
             enum mist_dtype dtype, const int64_t dims[MIST_MAX_DIMS], double flop,
             double bytes, struct mist_cost *out, struct mist_err *err);

/* One message of a group; of copies: one rank. */
MIST_MUST_CHECK enum mist_status mist_cost_link(const struct mist_cost_model *model,
                                                enum mist_link_operation operation,
                                                struct mist_group_shape group,
                                                int64_t bytes, struct mist_cost *out,
                                                struct mist_err *err);
/* The same where no switch of a node may sum, though it could: those of a data sheet; what
 * was measured is taken to have been measured so. */
MIST_MUST_CHECK enum mist_status
mist_cost_link_in_rings(const struct mist_cost_model *model,
                        enum mist_link_operation operation, struct mist_group_shape group,
                        int64_t bytes, struct mist_cost *out, struct mist_err *err);

/* A size of a message or copy that was measured, and what the other sizes say of it. */
struct mist_link_fit {
    enum mist_link_operation operation;
    struct mist_group_shape group;
    int64_t bytes;
    double measured_s;
    double fitted_s; /* the price if this size had not been measured */
};

/*
 * How well the measured sizes of links say each other: a fit for each size of every
 * operation and group shape that has three or more, in the order of the trace set, by bytes.
 * out [n] is to be freed. MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_cost_link_fits(const struct mist_cost_model *model,
                                                     struct mist_link_fit **out,
                                                     size_t *n, struct mist_err *err);

/*
 * A whole program, or a part of one: the sum over its steps without MIST_OP_TP_* (they
 * are tasks of their own). Deviations of equal steps add up (one measurement is behind
 * them), those of different steps are independent.
 */
MIST_MUST_CHECK enum mist_status mist_cost_program(const struct mist_cost_model *model,
                                                   const struct mist_step *steps,
                                                   int32_t n_steps, enum mist_dtype dtype,
                                                   struct mist_cost *out,
                                                   struct mist_err *err);

/* Every task of a schedule: costs[n_costs] by task->cost, launch included. */
MIST_MUST_CHECK enum mist_status mist_cost_schedule(const struct mist_cost_model *model,
                                                    const struct mist_plan *plan,
                                                    const struct mist_schedule *schedule,
                                                    struct mist_cost *costs,
                                                    struct mist_err *err);

/* The operator of a task that is no part of a program: sums, unless it is the optimizer's
 * or a norm's. */
enum mist_op mist_cost_gradient_op(enum mist_task_kind kind);

/*
 * One task of a rank of a stage; that is how every task of a schedule is priced, and the
 * template quantities of the closed form. layouts: [MIST_N_LAYER_KINDS] of the stage's
 * shape; task: kind, stream, group, bytes, elements, and of parts of programs the module
 * and the part; shape: of the group in which it communicates (mist_schedule_group_shape).
 */
MIST_MUST_CHECK enum mist_status
mist_cost_task(const struct mist_cost_model *model, const struct mist_plan *plan,
               int32_t i_stage, const struct mist_layer_layout *layouts,
               struct mist_group_shape shape, const struct mist_task *task,
               struct mist_cost *out, struct mist_err *err);

/* A task of computation by what it does: parts of its time, in seconds, undisturbed. */
struct mist_cost_split {
    double step_s[MIST_MAX_STEPS]; /* by number in mist_layer_layout_steps() */
    double repeated_s;             /* selective recomputation of a framework's backward */
    double gradients_s; /* passes over gradients: optimizer step, sums, norms, zeroes */
    double waiting_s;   /* launch, a host that is slower than the device, skew */
};

/* Takes the price of a task of the compute stream apart; layouts, task: as above. The parts
 * add up to cost->time_s, up to rounding. */
MIST_MUST_CHECK enum mist_status
mist_cost_split(const struct mist_cost_model *model, const struct mist_plan *plan,
                const struct mist_layer_layout *layouts, const struct mist_task *task,
                const struct mist_cost *cost, struct mist_cost_split *out,
                struct mist_err *err);

enum { MIST_GROWTH_POINTS = 8 };

/* What a task costs when the samples of its micro-batch hold fewer tokens. */
struct mist_cost_growth {
    int n_points;                           /* 0: the same */
    double tokens_frac[MIST_GROWTH_POINTS]; /* of a full sample: 1, then fewer */
    double other_s[MIST_GROWTH_POINTS];     /* all but attention there */
    /* Attention in sequences as long as that: one in each sample, and as many as full samples
     * have tokens for. */
    double single_s[MIST_GROWTH_POINTS], packed_s[MIST_GROWTH_POINTS];
};

/*
 * Of every task of a schedule, growths[n_costs]: forward and backward as priced in samples
 * of 1, 1/2, .. 1/128 of their tokens, messages and copies of activations with as many bytes
 * less; the rest stays. shapes: as below; costs: what the tasks cost.
 */
MIST_MUST_CHECK enum mist_status
mist_cost_find_growth(const struct mist_cost_model *model, const struct mist_plan *plan,
                      const struct mist_schedule *schedule,
                      const struct mist_group_shape *shapes,
                      const struct mist_cost *costs, struct mist_cost_growth *growths,
                      struct mist_err *err);

/* How much longer than with full samples a task takes with parts of their tokens, and of the
 * squares of the lengths of their sequences: usually less than 0; exactly 0 for 1 and 1.
 * Attention is that of sequences of the length that the two mean. */
double mist_cost_grow_s(const struct mist_cost_growth *growth, double tokens_frac,
                        double squares_frac);

/* mist_cost_schedule() for a rank that has the schedule of another one of its stage, with
 * the shapes[n_costs] of its groups; NULL: for the rank of the schedule. */
MIST_MUST_CHECK enum mist_status
mist_cost_schedule_at(const struct mist_cost_model *model, const struct mist_plan *plan,
                      const struct mist_schedule *schedule,
                      const struct mist_group_shape *shapes, struct mist_cost *costs,
                      struct mist_err *err);

#endif
