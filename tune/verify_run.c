/* One run of one plan. See verify_run.h. */
#include "tune/verify_run.h"

#include "core/capture.h"
#include "core/command.h"

#include <string.h>
#include <unistd.h>

/* A run's limit where the user sets none: what starting may take, and how much slower
 * than predicted a plan may be before nobody wants it. */
#define LIMIT_START_S 60
#define LIMIT_FACTOR  20

enum { TAIL_BYTES = 200 };

/* ----------------------------------------------------------------------- the command */

static void add_launcher(const struct mist_verify_config *config, int32_t n_ranks,
                         struct mist_command *command)
{
    if (config->launch)
        mist_command_add_launcher(command, config->launch, n_ranks);
    else if (n_ranks > 1)
        mist_command_add_mpirun(command, n_ranks, (int32_t)sysconf(_SC_NPROCESSORS_ONLN));
}

enum mist_status mist_verify_find_launcher(const struct mist_verify_config *config,
                                           int32_t n_ranks, struct mist_err *err)
{
    struct mist_command command;

    mist_command_init(&command);
    add_launcher(config, n_ranks, &command);
    enum mist_status status = mist_command_end(&command, err);
    if (status == MIST_OK && command.n == 0 && config->launch)
        status = mist_err_set(err, MIST_ERR_USAGE,
                              "--launch is empty; expected a command such as 'srun -n "
                              "{ranks}'");
    else if (status == MIST_OK && command.n > 0 &&
             !mist_command_can_find(command.words[0]))
        status = config->launch
                     ? mist_err_set(err, MIST_ERR_USAGE,
                                    "--launch: there is no program '%s' that may be run",
                                    command.words[0])
                     : mist_err_set(err, MIST_ERR_RUN,
                                    "mpirun is not installed, which --verify needs for "
                                    "several ranks; on Debian: apt install openmpi-bin");
    mist_command_fini(&command);
    return status;
}

static enum mist_status make_command(const struct mist_verify_place *place,
                                     const char *path, const struct mist_plan *plan,
                                     struct mist_command *command, struct mist_err *err)
{
    bool is_cpu = place->config->cluster->backend == MIST_TRACE_CPU;
    char n_iterations[24];
    const char *const words[] = {place->mist_exec,
                                 path,
                                 "-q",
                                 "--json",
                                 "--data",
                                 place->tokens,
                                 "--iterations",
                                 n_iterations,
                                 "--backend",
                                 is_cpu ? "cpu" : "cuda"};

    snprintf(n_iterations, sizeof n_iterations, "%lld",
             (long long)place->config->n_iterations);
    add_launcher(place->config, mist_plan_n_ranks(plan), command);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        mist_command_add(command, words[i]);
    if (is_cpu) /* a GPU has one user, and plans that leave no room for probes */
        mist_command_add(command, "--probe");
    return mist_command_end(command, err);
}

/* ------------------------------------------------------------------------ the result */

static void fail(struct mist_verified *plan, const char *program, const char *how,
                 FILE *errors)
{
    char tail[TAIL_BYTES];
    const char *slash = strrchr(program, '/');

    mist_process_read_tail(errors, tail, sizeof tail);
    program = slash ? slash + 1 : program;
    if (tail[0] == '\0' && strcmp(program, "mpirun") == 0)
        snprintf(tail, sizeof tail, "it said nothing; does 'mpirun -n %d hostname' work?",
                 (int)mist_plan_n_ranks(plan->plan));
    snprintf(plan->failure, sizeof plan->failure, "%.60s %s%s%s", program, how,
             tail[0] ? ": " : "", tail);
}

/* Why a program gave no result, and the last it said. */
static void explain(const struct mist_process_result *result, const char *program,
                    double limit_s, FILE *errors, struct mist_verified *plan)
{
    char how[160];

    mist_capture_describe(result, limit_s, how, sizeof how);
    if (result->end == MIST_PROCESS_OVER_LIMIT)
        strcat(how, " (see --verify-limit)");
    fail(plan, program, how, errors);
}

/* ---------------------------------------------------------------------------- the run */

/* Starts the command and adds its result to the plan's. */
static enum mist_status run(const struct mist_capture *capture, char *const *words,
                            double limit_s, const atomic_int *stop,
                            struct mist_verified *plan, enum mist_verify_outcome *outcome,
                            struct mist_err *err)
{
    const struct mist_process_result result =
        mist_capture_run(capture, words, limit_s, stop);
    struct mist_err wrong = {0};
    double *level = &plan->levels[plan->n_rounds];
    char how[160];

    *outcome = MIST_VERIFY_FAILED;
    if (result.end == MIST_PROCESS_STOPPED) {
        *outcome = MIST_VERIFY_STOPPED;
        return MIST_OK;
    }
    if (result.end != MIST_PROCESS_EXITED || result.number != 0) {
        explain(&result, words[0], limit_s, capture->errors, plan);
        return MIST_OK;
    }
    enum mist_status status = mist_capture_read(capture, NULL, "iteration_s", 1e-9, 1e9,
                                                &plan->times_s[plan->n_rounds], &wrong);
    if (status == MIST_OK) {
        status = mist_capture_read(capture, NULL, "level", 1e-9, 1e9, level, &wrong);
        if (status == MIST_ERR_INPUT) { /* the plan says nothing of probes */
            *level = 0;
            status = MIST_OK;
        }
    }
    if (status == MIST_OK) {
        plan->n_rounds++;
        *outcome = MIST_VERIFY_RAN;
    } else if (status == MIST_ERR_INPUT || status == MIST_ERR_RANGE) {
        snprintf(how, sizeof how, "printed no result of mist-exec (%.100s)",
                 wrong.message);
        fail(plan, words[0], how, capture->errors);
    } else {
        return mist_err_set(err, status, "%s", wrong.message);
    }
    return MIST_OK;
}

enum mist_status mist_verify_run_plan(const struct mist_verify_place *place,
                                      const char *path, struct mist_verified *plan,
                                      enum mist_verify_outcome *outcome,
                                      struct mist_err *err)
{
    const struct mist_verify_config *config = place->config;
    double predicted_s = (double)config->n_iterations * plan->plan->predicted.iteration_s;
    double limit_s = config->limit_s > 0 ? config->limit_s
                                         : LIMIT_START_S + LIMIT_FACTOR * predicted_s;
    struct mist_capture capture;
    struct mist_command command;
    enum mist_status status = mist_capture_open(&capture, err);

    mist_command_init(&command);
    if (status == MIST_OK)
        status = make_command(place, path, plan->plan, &command, err);
    if (status == MIST_OK)
        status = run(&capture, command.words, limit_s, config->stop, plan, outcome, err);
    mist_command_fini(&command);
    mist_capture_close(&capture);
    return status;
}
