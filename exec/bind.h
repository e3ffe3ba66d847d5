/*
 * Binds a step of a module's program to addresses: tensor ids become pointers into the
 * buffers of the roles that a task names. Runtime and profiler both run steps through
 * this.
 */
#ifndef MIST_EXEC_BIND_H
#define MIST_EXEC_BIND_H

#include "exec/operators.h"
#include "sim/schedule.h" /* roles */

/* Where the buffers of a task are, and what all its steps share. */
struct mist_binding {
    const struct mist_layer_layout *layout;
    const struct mist_model *model;
    char *base[MIST_N_ROLES]; /* address of each role's buffer; NULL none */
    int32_t micro_batch;      /* which one of tokens and targets */
    int32_t n_threads;
    float loss_scale;
};

enum mist_program_kind {
    MIST_PROGRAM_FORWARD,
    MIST_PROGRAM_RECOMPUTE,
    MIST_PROGRAM_BACKWARD
};

/* Number of steps of a program. */
int32_t mist_binding_n_steps(const struct mist_layer_layout *layout,
                             enum mist_program_kind program);

/* Addresses of step i_step of a program. */
void mist_binding_resolve(const struct mist_binding *binding,
                          enum mist_program_kind program, int32_t i_step,
                          struct mist_step_args *out);

/* Runs a whole program. */
void mist_binding_run(const struct mist_binding *binding, enum mist_program_kind program,
                      const struct mist_operators *operators);

/*
 * AdamW on elements first .. first + n_shard - 1 of a module's flat parameters, parameter
 * by parameter, since they differ in weight decay (args->weight_decay holds for those
 * that decay).
 *
 * weights, gradients   [padded elements] of the module.
 * state                [2, n_shard]: first, then second moments of the shard.
 */
void mist_binding_run_adamw(const struct mist_layer_layout *layout, float *weights,
                            const float *gradients, float *state, int64_t first,
                            int64_t n_shard, const struct mist_adamw_args *args,
                            int32_t n_threads, const struct mist_operators *operators);

#endif
