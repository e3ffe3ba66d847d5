/* Why there is no plan: what a user could give way in. */
#ifndef MIST_TUNE_NO_PLAN_H
#define MIST_TUNE_NO_PLAN_H

#include "tune/validate.h"

/* Sets and returns MIST_ERR_NO_PLAN: result has no plan. Or MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status
mist_no_plan_explain(const struct mist_validate_config *config,
                     const struct mist_validate_result *result, struct mist_err *err);

/* The same of plans that another framework can express. */
struct mist_no_plan_target {
    const char *name; /* of the framework */
    /* What the plan that needs least of a device needs, with what is beside its arena;
     * INT64_MAX: none can be expressed. */
    int64_t closest_bytes;
    bool is_planned; /* else it needs no less */
    const char *why; /* one can't be expressed; "": not known */
};
MIST_MUST_CHECK enum mist_status
mist_no_plan_explain_target(const struct mist_validate_config *config,
                            const struct mist_no_plan_target *of, struct mist_err *err);

/* Side constraints: if there are plans without them, sets the message to say which of them
 * have to go, and returns MIST_ERR_NO_PLAN; else leaves it alone and returns that, too.
 * Other errors: of the search. */
MIST_MUST_CHECK enum mist_status
mist_no_plan_explain_constraints(const struct mist_validate_config *config,
                                 const struct mist_search_config *search,
                                 struct mist_err *err);

/* MIST_OK, or MIST_ERR_NO_PLAN: there is no way at all to spread the job. */
enum mist_status mist_no_plan_check_space(const struct mist_space *space,
                                          struct mist_err *err) MIST_MUST_CHECK;

#endif
