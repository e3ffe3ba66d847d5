/* One run of one plan by mist-exec (internal to verify). */
#ifndef MIST_TUNE_VERIFY_RUN_H
#define MIST_TUNE_VERIFY_RUN_H

#include "tune/verify.h"

/* What all runs share; texts are borrowed. */
struct mist_verify_place {
    const struct mist_verify_config *config;
    const char *mist_exec; /* path of the program */
    const char *tokens;    /* path of the training data */
};

enum mist_verify_outcome {
    MIST_VERIFY_RAN,     /* the plan has one round more */
    MIST_VERIFY_FAILED,  /* plan->failure is set */
    MIST_VERIFY_STOPPED, /* by config->stop */
};

/* Runs the plan that is saved at path for a round. MIST_OK; MIST_ERR_IO (no temporary file) or
 * MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status
mist_verify_run_plan(const struct mist_verify_place *place, const char *path,
                     struct mist_verified *plan, enum mist_verify_outcome *outcome,
                     struct mist_err *err);

/* Looks for the launcher of plans of n_ranks ranks; errors of mist_verify_check(). */
MIST_MUST_CHECK enum mist_status
mist_verify_find_launcher(const struct mist_verify_config *config, int32_t n_ranks,
                          struct mist_err *err);

#endif
