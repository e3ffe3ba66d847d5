/*
 * What mist-tune prints: the best plan, its stages, the runners-up and why they lost,
 * what was measured of them, and the size of a space; and what led there, if all is asked
 * for. For people, as CSV (the plans) or as JSON (core/emit.h).
 */
#ifndef MIST_TUNE_TUNE_REPORT_H
#define MIST_TUNE_TUNE_REPORT_H

#include "core/emit.h"
#include "core/options.h"
#include "tune/bill.h"
#include "tune/runners_up.h"
#include "tune/validate.h"
#include "tune/verify.h"

#include <stdio.h>

struct mist_tune_report {
    const struct mist_trace_set *traces;
    const struct mist_option_list *what_if;    /* the edits */
    const struct mist_validate_result *result; /* its first plan is the best */
    const struct mist_verify_result *verified; /* the plans that were run; NULL: none were
                                                  to be */
    const struct mist_runners_up *runners_up;
    const struct mist_validate_config *config; /* of its search */
    size_t n_top;                              /* plans in the table */
    size_t n_alike; /* plans that predictions can't tell from the fastest, with it */
    const struct mist_speed *speed; /* of the best */
    const char *lengths;            /* of --lengths; NULL: samples are full */
    const struct mist_bill *bill;   /* of the best; NULL: there is no price */
    double search_s;                /* time of search and replays; for people alone */
    bool with_glpk, has_constraints;
    enum mist_emit_kind kind;
    bool has_all;  /* for people: not only what one decides by */
    bool explains; /* the best plan */
};

/* MIST_OK, MIST_ERR_IO or MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status
mist_tune_report_print(const struct mist_tune_report *report, FILE *stream,
                       struct mist_err *err);

/* A table of plans, without a best one, for --sample-plans. */
MIST_MUST_CHECK enum mist_status
mist_tune_report_print_sample(const struct mist_validated *plans, size_t n,
                              enum mist_emit_kind kind, FILE *stream,
                              struct mist_err *err);

/* The space alone, for --dry-run. */
MIST_MUST_CHECK enum mist_status
mist_tune_report_print_space(const struct mist_space *space, int64_t limit_bytes,
                             enum mist_emit_kind kind, FILE *stream,
                             struct mist_err *err);

#endif
