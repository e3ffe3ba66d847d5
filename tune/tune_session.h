/*
 * One question to mist-tune, ready to be searched: model, job, cluster, space and prices,
 * as its options say.
 */
#ifndef MIST_TUNE_TUNE_SESSION_H
#define MIST_TUNE_TUNE_SESSION_H

#include "core/message.h"
#include "sim/explain/explain.h"
#include "sim/what_if.h"
#include "tune/bill.h"
#include "tune/tune_lengths.h"
#include "tune/tune_options.h"
#include "tune/validate.h"

struct mist_tune_session {
    const struct mist_tune_options *options; /* borrowed */
    struct mist_messages messages;
    struct mist_model model;
    struct mist_job job;
    struct mist_trace_set traces; /* as edited */
    char cluster[256]; /* what they were opened by; "": more than a plan can name */
    struct mist_what_if what_if;
    struct mist_bounds bounds;
    struct mist_constraints constraints;
    struct mist_tune_lengths lengths;
    struct mist_space space;
    struct mist_cost_model *cost_model;
    struct mist_stage_price *price;
    struct mist_thread_pool *pool;
    struct mist_validate_config config;
    double hour_price; /* of a device; NAN: not given */
    bool has_space;
};

/*
 * Reads everything and lists the cases. at is freed by mist_tune_session_close, also after
 * a failure; a zeroed one has nothing to free. MIST_ERR_USAGE: options that the model or the cluster does not allow; errors
 * of model, trace set and space.
 */
MIST_MUST_CHECK enum mist_status
mist_tune_session_open(struct mist_tune_session *at,
                       const struct mist_tune_options *options,
                       const struct mist_messages *messages, struct mist_err *err);
void mist_tune_session_close(struct mist_tune_session *at);

/* Whether the job can be spread at all (MIST_ERR_NO_PLAN), and what of the space is not
 * searched, as messages. */
MIST_MUST_CHECK enum mist_status
mist_tune_session_check(const struct mist_tune_session *at, struct mist_err *err);

/* Makes the prices, which searches need. */
MIST_MUST_CHECK enum mist_status mist_tune_session_price(struct mist_tune_session *at,
                                                         struct mist_err *err);

/* How a session is searched. rows: of the search log, open; NULL: none. */
struct mist_search_config mist_tune_session_config(const struct mist_tune_session *at,
                                                   struct mist_progress *progress,
                                                   struct mist_search_rows *rows);

/*
 * The best plans, by mist_validate_run() or mist_target_run(), the one to take first; for
 * sequences of many lengths chosen among more by mist_tune_lengths_choose().
 * n_alike: of how many predictions can't tell which is the fastest. result is to be freed
 * by mist_validate_result_fini after MIST_OK.
 */
MIST_MUST_CHECK enum mist_status mist_tune_session_search(
    const struct mist_tune_session *at, const struct mist_search_config *search,
    struct mist_validate_result *result, size_t *n_alike, struct mist_err *err);

/* How fast a plan of the session is (predicted), and what training by it costs. */
MIST_MUST_CHECK enum mist_status
mist_tune_session_bill(const struct mist_tune_session *at, const struct mist_plan *plan,
                       struct mist_speed *speed, struct mist_bill *bill,
                       struct mist_err *err);

#endif
