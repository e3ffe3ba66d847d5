/*
 * Side constraints: --constraint 'stages <= 8', 'layers[0] + 2 <= layers[-1]'.
 *
 *     CONSTRAINT = SUM ("<=" | ">=" | "=") SUM
 *     SUM        = TERM {("+" | "-") TERM}
 *     TERM       = [NUMBER "*"] QUANTITY | NUMBER
 *     QUANTITY   = "stages" | "pp" | "micro-batches"  of the plan
 *                | NAME                            of every stage: one constraint for each
 *                | NAME "[" INDEX "]"              of one; -1 is the last, of a stage that a
 *                                                  plan lacks it is 0
 *                | "sum(" NAME ")"                 of all stages
 *     NAME       = "layers" | "devices" | "dp" | "tp" | "cp" | "micro-batch"
 *
 * and, alone, "memory <= 60GiB", the arena of every device, which the limit of the memory
 * says as well, or "memory[0] <= 16GiB", that of the devices of a stage. "_" may stand for
 * "-". Sums are linear in what the choice across stages decides (inter_stage.h), and
 * configurations of a stage that differ in none of these names differ in time and memory
 * alone, so that what the search leaves out of a stage is never what a constraint needs.
 * A limit of memory leaves configurations of a stage out before.
 */
#ifndef MIST_TUNE_CONSTRAINT_H
#define MIST_TUNE_CONSTRAINT_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

struct mist_search_choice;

enum mist_constraint_of {
    MIST_CONSTRAINT_STAGES,
    MIST_CONSTRAINT_MICRO_BATCHES,
    MIST_CONSTRAINT_LAYERS, /* from here on of a stage */
    MIST_CONSTRAINT_DEVICES,
    MIST_CONSTRAINT_DP,
    MIST_CONSTRAINT_TP,
    MIST_CONSTRAINT_CP,
    MIST_CONSTRAINT_MICRO_BATCH,
    MIST_CONSTRAINT_MEMORY
};

enum mist_scope { MIST_SCOPE_EACH, MIST_SCOPE_ONE, MIST_SCOPE_SUM };

enum { MIST_CONSTRAINT_MAX_TERMS = 16, MIST_MAX_CONSTRAINTS = 32 };

struct mist_constraint_term {
    double coefficient;
    enum mist_constraint_of of;
    enum mist_scope scope; /* of a quantity of a stage */
    int32_t i_stage;       /* ONE; below 0: from the end */
};

/* lower <= sum of the terms <= upper. */
struct mist_constraint {
    const char *text; /* borrowed */
    int n_terms;
    struct mist_constraint_term terms[MIST_CONSTRAINT_MAX_TERMS];
    double lower, upper; /* one of them may be infinite */
};

struct mist_constraints {
    int n; /* zeroed: none */
    struct mist_constraint of[MIST_MAX_CONSTRAINTS];
    int64_t memory_bytes; /* of any device at the most; 0: nothing is said */
};

/* Adds one; text is borrowed. MIST_ERR_USAGE: what is wrong with it. */
MIST_MUST_CHECK enum mist_status
mist_constraints_add(struct mist_constraints *to, const char *text, struct mist_err *err);

/* What a device of a stage may have by constraints on its memory; INT64_MAX: any. all may
 * be NULL. */
int64_t mist_constraints_memory(const struct mist_constraints *all, int32_t n_stages,
                                int32_t i_stage);

/* Whether a constraint limits the memory of a stage. */
bool mist_constraint_is_of_memory(const struct mist_constraint *of);

/* A constraint holds so many times in a plan of n_stages: once, or once for each. */
int32_t mist_constraint_n_times(const struct mist_constraint *of, int32_t n_stages);

/* What the terms come to, the i_time-th time, but for those of a stage. */
double mist_constraint_of_plan(const struct mist_constraint *of, int32_t n_stages,
                               int32_t n_micro_batches);

/* What a stage adds to that with a choice. */
double mist_constraint_of_stage(const struct mist_constraint *of, int32_t i_time,
                                int32_t n_stages, int32_t i_stage,
                                const struct mist_search_choice *choice);

/* Whether a plan keeps to all of them; of the stages also peak_bytes is looked at. */
bool mist_constraints_hold(const struct mist_constraints *all, int32_t n_micro_batches,
                           int32_t n_stages, const struct mist_search_choice *stages);

#endif
