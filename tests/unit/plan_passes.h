/* The times that an automatic pipeline schedule is made for, in plans of tests. */
#ifndef MIST_TESTS_UNIT_PLAN_PASSES_H
#define MIST_TESTS_UNIT_PLAN_PASSES_H

#include "sim/plan/plan.h"

/* Gives a plan passes that are alike on all stages if its schedule wants any, else none. */
static inline void set_plan_passes(struct mist_plan *plan)
{
    bool is_auto = mist_pipeline_kinds[plan->pipeline].n_kept_per_stage > 0;

    for (int32_t i = 0; i < plan->n_stages; i++)
        plan->passes[i] = is_auto ? (struct mist_pipeline_pass){3, 3, 2, 1, 0}
                                  : (struct mist_pipeline_pass){0};
}

#endif
