/*
 * The arguments of other frameworks as plans, and plans as their arguments.
 *
 * Megatron-LM's command line, a DeepSpeed JSON and a torchtitan TOML describe a job whose
 * stages are all alike, so it is a few numbers (enum mist_arg), each open or said. One table
 * for each framework (arg_table.h; megatron.c, deepspeed.c, torchtitan.c) says which
 * argument is which number and how it is spelt; reading, writing and the listing of
 * mist-sim use it. An argument that changes the price is read or refused by name with the
 * reason; what can't change it is in the table, too; any other is refused as unknown.
 *
 * What the tool's own options say (--tp, --model, ...) is set before the file is read, and
 * a file that says something else is refused.
 *
 * Writing reads back what it wrote: a plan is expressed when the arguments give the same
 * plan, knob by knob, and otherwise the first knob that differs is named. So no second set
 * of rules says what a framework can do.
 *
 * Left out: shell variables; versions (README.md says which are meant).
 */
#ifndef MIST_SIM_FRAMEWORK_ARGS_H
#define MIST_SIM_FRAMEWORK_ARGS_H

#include "core/status.h"
#include "sim/plan/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What arguments say. */
enum mist_arg {
    MIST_ARG_TP,
    MIST_ARG_CP,
    MIST_ARG_PP,
    MIST_ARG_DP,
    MIST_ARG_NODES, /* that the job is started on, and devices of each */
    MIST_ARG_NODE_DEVICES,
    MIST_ARG_MICRO_BATCH,
    MIST_ARG_GLOBAL_BATCH,
    MIST_ARG_ACCUMULATION, /* micro-batches of a step */
    MIST_ARG_SEQ_LEN,
    MIST_ARG_PIPELINE, /* enum mist_pipeline_schedule */
    MIST_ARG_CHUNKS,
    MIST_ARG_EMBEDDING_LAYERS, /* blocks that the embedding counts as, in the cut into */
    MIST_ARG_HEAD_LAYERS,      /* stages, and the head */
    MIST_ARG_SEQUENCE_PARALLEL,
    MIST_ARG_ZERO,
    MIST_ARG_RECOMPUTE,        /* enum mist_args_recompute */
    MIST_ARG_RECOMPUTE_LAYERS, /* FULL: first blocks of each stage; open: all */
    MIST_ARG_DTYPE,
    MIST_ARG_GRADIENT_DTYPE,
    MIST_ARG_ATTENTION,  /* enum mist_attention */
    MIST_ARG_NO_DROPOUT, /* as in struct mist_job */
    MIST_ARG_OVERLAPS,
    MIST_ARG_FP8,
    MIST_ARG_FP16_LOSS,
    MIST_ARG_FUSED_LOSS,
    MIST_ARG_CUTS_PRODUCTS,
    MIST_ARG_STEPS_APART,
    MIST_ARG_REDUCE_BUCKET,
    MIST_ARG_SUB_GROUP,
    MIST_ARG_OFFLOAD_WEIGHTS, /* fractions, as in enum mist_offload */
    MIST_ARG_OFFLOAD_GRADIENTS,
    MIST_ARG_OFFLOAD_OPTIMIZER,
    MIST_ARG_OFFLOAD_ACTIVATIONS,
    MIST_ARG_UPDATES_ON_HOST,
    /* The model. */
    MIST_ARG_FAMILY,
    MIST_ARG_LAYERS,
    MIST_ARG_HIDDEN,
    MIST_ARG_HEADS,
    MIST_ARG_KV_HEADS,
    MIST_ARG_HEAD_DIM,
    MIST_ARG_FFN,
    MIST_ARG_VOCAB,
    MIST_ARG_MAX_SEQ,
    MIST_ARG_HAS_BIAS,
    MIST_ARG_TIES,
    MIST_ARG_EPSILON,
    MIST_ARG_ROPE_THETA,
    MIST_ARG_ROTARY, /* elements of a head that RoPE turns; 0: all */
    /* What frameworks say in words of their own; their rules make the above of it. */
    MIST_ARG_OWN,
    MIST_N_ARGS = MIST_ARG_OWN + 25
};

enum mist_args_recompute {
    MIST_RECOMPUTE_NONE,
    MIST_RECOMPUTE_SELECTIVE,
    MIST_RECOMPUTE_FULL
};

struct mist_args {
    enum mist_framework_name framework;
    double v[MIST_N_ARGS];         /* NAN: open */
    const char *name[MIST_N_ARGS]; /* the argument that said it; NULL: an option of the
                                      tool, or nobody */
    long line[MIST_N_ARGS];        /* and where; 0: not in the file */
    bool has_model;                /* the tool said the model: its numbers are set */
    struct mist_model model;       /* what of it is no number here */
    const char *path;              /* borrowed; of the file, for messages; NULL: none */
    int32_t n_devices;    /* of the cluster; what DP is made of where it is open */
    int32_t node_devices; /* of its nodes */
    size_t n_left;        /* arguments that can't change the price */
    char left[8192];      /* their names, each behind a space, as many as fit */
    char notes[256];      /* of arguments that are read almost as they are meant */
};

/* All open, by a framework (of ours: options of the tool alone). */
void mist_args_init(struct mist_args *args, enum mist_framework_name framework);

/* The tool said it. */
void mist_args_set(struct mist_args *args, enum mist_arg arg, double value);
void mist_args_set_model(struct mist_args *args, const struct mist_model *model);

/*
 * Reads a file of the framework. path is borrowed by args. MIST_ERR_INPUT with file and
 * line: an argument that is unknown, can't be expressed or contradicts another;
 * MIST_ERR_IO; MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_args_load(struct mist_args *args, const char *path,
                                                struct mist_err *err);

/*
 * The job and the plan of all that was said; what is open takes the value that means
 * nothing special (tp 1, ZeRO-0, ...), DP the devices that are left. The plan's cluster,
 * threads and computes_on_gpu are the caller's. out has passed mist_plan_check() on
 * MIST_OK. MIST_ERR_INPUT: something is missing, or does not go together.
 */
MIST_MUST_CHECK enum mist_status mist_args_make_plan(const struct mist_args *args,
                                                     struct mist_plan *out,
                                                     struct mist_err *err);

/* What a file of arguments does not say and its reader has to be told. */
struct mist_args_beside {
    bool model, seq_len;
    bool attention; /* and dropout */
};

/*
 * The plan as arguments of a framework: *text is the file, to be freed. MIST_ERR_INPUT: it
 * can't be expressed; the message names the first knob, its value and what the framework
 * would do instead. The plan must have passed mist_plan_check(). node_devices: of a node of the
 * cluster; 0: unknown.
 */
MIST_MUST_CHECK enum mist_status
mist_args_express(const struct mist_plan *plan, int32_t node_devices, char **text,
                  size_t *n, struct mist_args_beside *beside, struct mist_err *err);

/* The same to a file. MIST_ERR_USAGE: it exists and overwrites is false; MIST_ERR_IO. */
MIST_MUST_CHECK enum mist_status
mist_args_save(const struct mist_plan *plan, int32_t node_devices, const char *path,
               bool overwrites, struct mist_args_beside *beside, struct mist_err *err);

/* One row of a table, for people. */
struct mist_args_row {
    const char *name;
    const char *use;      /* "read", "left" (can't change the price), "refused" */
    const char *says;     /* read: which number, "tp"; "" where it says one with others */
    const char *note;     /* REFUSED: why; of others what is to be known; "" */
    const char *harmless; /* REFUSED: values that are read all the same; "" */
};

/* Row i = 0, 1, ... of a framework; false: there are no more. */
bool mist_args_row(enum mist_framework_name framework, int i, struct mist_args_row *out);

#endif
