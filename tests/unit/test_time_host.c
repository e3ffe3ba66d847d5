/* profile/time_host: what is tried before a session, when there is no memory for it. */
#include "fault.h"
#include "tests/unit/test.h"

#include "exec/operators/operators.h"
#include "exec/runtime/backend.h"
#include "profile/time_host.h"

/* Operators that do nothing; from here on there is no memory. */
static enum mist_status open_nothing(struct mist_device *device, enum mist_dtype dtype,
                                     int32_t n_threads, void **out, struct mist_err *err)
{
    must(mist_device_synchronize(device, err), err); /* all its threads have begun */
    fault_arm(FAULT_MALLOC, 1);
    return MIST_OK;
}

static void close_nothing(void *backend)
{
}

static void run_nothing(const struct mist_step_args *args)
{
}

TEST(a_trial_without_memory_fails)
{
    static const struct mist_operators operators = {
        .open = open_nothing, .close = close_nothing, .run_step = run_nothing};
    const struct mist_backend *cpu;
    double flop_per_s = 1;
    struct mist_err err;

    must(mist_backend_find(MIST_BACKEND_CPU, &cpu, NULL, NULL, 0, &err), &err);
    struct mist_backend backend = *cpu;
    backend.operators = &operators;
    assert_int_equal(
        mist_time_host_flop_per_s(&backend, 0, MIST_DTYPE_FP32, 1, &flop_per_s, &err),
        MIST_ERR_MEMORY);
    assert_true(fault_disarm());
    assert_true(flop_per_s == 0);
}

TEST_MAIN(NULL, NULL)
