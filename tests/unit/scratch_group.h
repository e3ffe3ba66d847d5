/* One scratch folder for all tests of a program: TEST_MAIN(set_up, tear_down). Include in
 * one file. */
#ifndef MIST_TESTS_UNIT_SCRATCH_GROUP_H
#define MIST_TESTS_UNIT_SCRATCH_GROUP_H

#include "tests/unit/scratch.h"

static struct scratch scratch;

static int set_up(void **state)
{
    scratch_init(&scratch);
    return 0;
}

static int tear_down(void **state)
{
    scratch_fini(&scratch);
    return 0;
}

#endif
