/*
 * exec/probe on a device that works by itself: the CUDA backend on the emulator, which
 * prepares and tunes its products, in both formats; two that are open at once take turns.
 */
#include "tests/unit/test.h"

#include "exec/runtime/probe.h"
#include "tests/emulation/backend.h"
#include "tests/unit/scratch.h"

#include <stdlib.h>

static struct mist_err err;

static void probe(struct mist_comm *comm, enum mist_dtype dtype)
{
    const struct mist_probe_config config = {.backend = mist_emulated_backend(),
                                             .has_own_device = true,
                                             .dtype = dtype,
                                             .deadline_s = 60,
                                             .work = {.rows = 8,
                                                      .width = 16,
                                                      .sum_bytes = 1024,
                                                      .region_bytes = 2048,
                                                      .message_bytes = 64,
                                                      .n_at_once = 4}};
    struct mist_probe *at[2];
    struct mist_samples times_us = {0};
    struct mist_probe_level level;

    for (int i = 0; i < 2; i++)
        must(mist_probe_open(comm, &config, &at[i], &err), &err);
    for (int k = 0; k < 4; k++) {
        must(mist_probe_run(at[k % 2], 0, &times_us, &err), &err);
        assert_int_equal(times_us.n, (k + 1) * MIST_PROBE_LEAST);
        must(mist_probe_find_level(comm, &times_us, &level, &err), &err);
        assert_true(level.time_s > 0);
    }
    for (int i = 0; i < 2; i++)
        mist_probe_close(at[i]);
    mist_samples_fini(&times_us);
}

TEST(probes_run_on_a_gpu)
{
    struct scratch scratch;
    struct mist_comm *comm;

    scratch_init(&scratch); /* what is tuned is kept nowhere else */
    setenv("MIST_CUDA_ALGORITHMS", scratch_path(&scratch, "cublaslt.csv"), 1);
    must(mist_comm_open(&comm, &err), &err);
    probe(comm, MIST_DTYPE_FP32);
    probe(comm, MIST_DTYPE_BF16);
    mist_comm_close(comm);
    scratch_fini(&scratch);
}

int main(void)
{
    if (!mist_emulated_backend())
        return test_skip_all("CUDA's headers are not installed");
    return run_listed_tests(NULL, NULL);
}
