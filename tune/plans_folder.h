/*
 * A folder of plans: plan_001.json, plan_002.json, ... in their order.
 *
 * Only these names are ever looked at; whatever else is in the folder stays.
 */
#ifndef MIST_TUNE_PLANS_FOLDER_H
#define MIST_TUNE_PLANS_FOLDER_H

#include "core/status.h"
#include "tune/validate.h"

#include <stdbool.h>
#include <stddef.h>

/* Whether a name is that of a plan in such a folder. */
bool mist_plans_folder_has_name(const char *name);

/*
 * Whether plans could be saved into the folder, which need not exist; leaves everything
 * as it is. MIST_ERR_USAGE: it has plans already and force is false; MIST_ERR_IO;
 * MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_plans_folder_check(const char *folder, bool force,
                                                         struct mist_err *err);

/*
 * Makes the folder and saves n >= 1 plans; with force they replace those that are there,
 * and plans with higher numbers are removed. Errors of check and of mist_plan_save().
 */
MIST_MUST_CHECK enum mist_status
mist_plans_folder_save(const char *folder, bool force, const struct mist_validated *plans,
                       size_t n, struct mist_err *err);

#endif
