/*
 * Binds a step of a module's program to addresses: tensor ids become pointers into the
 * buffers of the roles that a task names. Runtime and profiler both run steps through
 * this.
 */
#ifndef MIST_EXEC_BIND_H
#define MIST_EXEC_BIND_H

#include "exec/operators/operators.h"
#include "sim/schedule/schedule.h" /* roles */

/* Where the buffers of a task are, and what all its steps share. */
struct mist_binding {
    const struct mist_layer_layout *layout;
    /* where parameters and kept activations lie in their buffers; NULL: all parameters in
     * slab 0 and all kept activations in ROLE_SAVED, as the layout has them */
    const struct mist_module_storage *storage;
    const struct mist_model *model;
    char *base[MIST_N_ROLES]; /* address of each role's buffer; NULL none */
    int32_t micro_batch;      /* which one of tokens and targets */
    int32_t i_tp, i_cp;       /* tensor- and context-parallel rank */
    int32_t n_threads;
    float loss_scale;
    uint8_t overwrites; /* bit i: gradients of slab i are overwritten, not added to */
    enum mist_dtype gradient_dtype; /* of parameters' gradients */
    void *backend;                  /* operators->open() */
};

/* Addresses of step i_step of layout->forward or ->backward. Of MIST_PROGRAM_EVALUATE the
 * losses alone are wanted. */
void mist_binding_resolve(const struct mist_binding *binding,
                          enum mist_program_kind program, int32_t i_step,
                          struct mist_step_args *out);

/* operators->prepare() for every step of layouts[n], on context-parallel rank i_cp, then tune();
 * layouts of kinds that are not there have no steps. */
MIST_MUST_CHECK enum mist_status
mist_binding_prepare(const struct mist_layer_layout *layouts, int32_t n, int32_t i_cp,
                     const struct mist_model *model, enum mist_dtype gradient_dtype,
                     const struct mist_operators *operators, void *backend,
                     struct mist_err *err);

/* The optimizer step on elements first .. first + n - 1 of a slab. */
struct mist_binding_update {
    const struct mist_layer_layout *layout;
    const struct mist_module_storage *storage; /* as in struct mist_binding */
    int32_t i_slab;
    int64_t first, n;
    void *weights; /* fp32 or bf16, as the layout's shape says */
    void *gradients;
    enum mist_dtype gradient_dtype;
    int64_t weights_first, gradients_first; /* the element that each begins with */
    float *state;  /* [2 or, with bf16, 3][n]: first and second moments, master weights */
    void *backend; /* operators->open() */
    int32_t n_threads;
};

/* AdamW, parameter by parameter, since they differ in weight decay (args->weight_decay
 * holds for those that decay). */
void mist_binding_run_adamw(const struct mist_binding_update *update,
                            const struct mist_adamw_args *args,
                            const struct mist_operators *operators);

#endif
