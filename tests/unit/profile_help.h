/* Parts of a profiling session from begin to end, in no more time than they must take. */
#ifndef MIST_TESTS_PROFILE_HELP_H
#define MIST_TESTS_PROFILE_HELP_H

#include "profile/time_links.h"
#include "profile/time_ops.h"
#include "tests/unit/test.h"

static inline void time_all_links(struct mist_workbench *bench,
                                  struct mist_estimate *estimates)
{
    struct mist_time_links *links;

    assert_int_equal(mist_time_links_open(bench, 0, &links, NULL), MIST_OK);
    assert_int_equal(mist_time_links_run(links, 1, NULL), MIST_OK);
    assert_int_equal(mist_time_links_find(links, estimates, NULL), MIST_OK);
    mist_time_links_close(links);
}

/* In two times. */
static inline void time_all_ops(struct mist_workbench *bench,
                                struct mist_estimate *estimates)
{
    struct mist_time_ops *ops;
    struct mist_time_ops_report report;

    assert_int_equal(mist_time_ops_open(bench, 0, &ops, NULL), MIST_OK);
    assert_int_equal(mist_time_ops_run(ops, 0.5, estimates, NULL), MIST_OK);
    assert_int_equal(mist_time_ops_run(ops, 1, estimates, NULL), MIST_OK);
    assert_int_equal(mist_time_ops_report(ops, estimates, &report, NULL), MIST_OK);
    assert_int_equal(report.n_rounds, mist_time_ops_least_rounds());
    mist_time_ops_close(ops);
}

#endif
