/*
 * What the tests of exec/comm share: a program that is a cmocka test when it is started
 * without arguments, and then starts mpirun with itself and the hidden arguments "MODE
 * FILE" to be one rank of a job, which exits with 0 only if all of its checks passed.
 * FILE is memory that the ranks share. Include after cmocka.h, in one file of a program.
 */
#ifndef MIST_TESTS_UNIT_COMM_JOB_H
#define MIST_TESTS_UNIT_COMM_JOB_H

#include "tests/unit/scratch.h"

#include "core/clock.h"
#include "core/random.h"
#include "exec/comm/comm.h"

#include <math.h>
#include <sys/wait.h>

/* --------------------------------------------------------------------- rank of a job */

static struct mist_comm *comm;
static int32_t rank, n_ranks;
static struct mist_err err;

static inline _Noreturn void give_up(const char *what, int line)
{
    fprintf(stderr, "rank %d: line %d: not true: %s (%s)\n", rank, line, what,
            err.message);
    fflush(stderr);
    mist_comm_abort(comm, 99);
}

/* Opens the job; ends the rank if it can't. */
static inline void join_job(void)
{
    if (mist_comm_open(&comm, &err) != MIST_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(98);
    }
    rank = mist_comm_rank(comm);
    n_ranks = mist_comm_n_ranks(comm);
}

#define CHECK(what)                                                                      \
    do {                                                                                 \
        if (!(what))                                                                     \
            give_up(#what, __LINE__);                                                    \
    } while (0)

/* What rank r brings to a sum: of very different sizes, so that the order shows. */
static inline float value_of(int32_t r, int64_t i)
{
    uint64_t bits = mist_random_at(1, (uint64_t)r, (uint64_t)i);

    return ldexpf((float)(bits >> 40) - 8388608.0f, (int)(bits % 24) - 36);
}

static inline bool is_same(const float *values, const float *expected, int64_t n)
{
    return memcmp(values, expected, (size_t)n * sizeof *values) == 0;
}

static inline void sleep_a_little(uint64_t i)
{
    if (mist_random_at(2, (uint64_t)rank, i) % 3 == 0)
        mist_clock_sleep_s(1e-3 * mist_random_uniform_at(3, (uint64_t)rank, i));
}

/* ------------------------------------------------------------------------- naive bf16 */

/* By the definition of the format: sign, 8 bits of exponent, 7 of fraction. What would
 * follow the largest number stands for infinity. */
static inline double naive_magnitude(uint32_t bits)
{
    int exponent = (int)(bits >> 7) & 0xff, fraction = (int)(bits & 0x7f);

    return exponent == 0 ? ldexp(fraction, -126 - 7)
                         : ldexp(128 + fraction, exponent - 127 - 7);
}

static inline float naive_widen(uint16_t x)
{
    float sign = x & 0x8000 ? -1.0f : 1.0f;

    if ((x & 0x7fff) > 0x7f80)
        return NAN;
    return sign *
           ((x & 0x7fff) == 0x7f80 ? INFINITY : (float)naive_magnitude(x & 0x7fff));
}

/* The nearer of the two neighbours, the even one of two equally near. */
static inline uint16_t naive_narrow(float x)
{
    uint32_t sign = signbit(x) ? 0x8000 : 0, low = 0, high = 0x7f80;

    if (isnan(x))
        return 0x7fc0;
    if (isinf(x))
        return (uint16_t)(sign | 0x7f80);
    while (high - low > 1) { /* low <= |x| < high */
        uint32_t middle = (low + high) / 2;
        *(naive_magnitude(middle) <= fabs((double)x) ? &low : &high) = middle;
    }
    double below = fabs((double)x) - naive_magnitude(low);
    double above = naive_magnitude(high) - fabs((double)x);
    bool is_up = above < below || (above == below && low % 2 == 1);
    return (uint16_t)(sign | (is_up ? high : low));
}

static inline bool is_same_bf16(const uint16_t *values, const uint16_t *expected,
                                int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        bool is_nan = (values[i] & 0x7fff) > 0x7f80;
        if (is_nan != ((expected[i] & 0x7fff) > 0x7f80) ||
            (!is_nan && values[i] != expected[i]))
            return false;
    }
    return true;
}

/* -------------------------------------------------------------------------- the tests */

static const char *program; /* path of this test; set once by main */

/* Skips the test of somebody who has no mpirun. */
static inline void need_mpirun(void)
{
    if (system("command -v mpirun >/dev/null 2>&1") != 0) {
        print_message("no mpirun: jobs of several ranks are not tested\n");
        skip();
    }
}

/* What a job printed, cut off at the end, and how it ended. */
struct job_end {
    int code; /* exit code of mpirun; -1 killed; 124 after ten minutes */
    char output[4096], errors[8192];
};

/* Starts a job of n ranks, with further options of mpirun. */
static inline void run_job(int n, const char *options, const char *mode,
                           struct job_end *end)
{
    struct scratch scratch;
    char shared[128], printed[128], errors[128], command[2048];

    scratch_init(&scratch);
    snprintf(shared, sizeof shared, "%s", scratch_path(&scratch, "shared"));
    snprintf(printed, sizeof printed, "%s", scratch_path(&scratch, "printed"));
    snprintf(errors, sizeof errors, "%s", scratch_path(&scratch, "errors"));
    scratch_write(shared, "");
    snprintf(
        command, sizeof command,
        "timeout 600 mpirun --allow-run-as-root --oversubscribe -n %d %s '%s' %s '%s' "
        ">'%s' 2>'%s'",
        n, options, program, mode, shared, printed, errors);
    int status = system(command);
    scratch_read(printed, end->output, sizeof end->output);
    scratch_read(errors, end->errors, sizeof end->errors);
    scratch_fini(&scratch);
    end->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A job in which all checks must pass. */
static inline void run_good_job(int n, const char *options, const char *mode)
{
    struct job_end end;

    run_job(n, options, mode, &end);
    if (end.code != 0)
        print_error("%d ranks: %s\n", n, end.errors);
    assert_int_equal(end.code, 0);
}

/* The main function, where int run_rank(mode) is all that a rank does. */
#define JOB_MAIN                                                                         \
    int main(int argc, char **argv)                                                      \
    {                                                                                    \
        if (argc == 3)                                                                   \
            return run_rank(argv[1]);                                                    \
        program = argv[0];                                                               \
        return run_listed_tests(NULL, NULL);                                             \
    }

#endif
