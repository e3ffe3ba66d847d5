/* One run of one plan. See verify_run.h. */
#include "tune/verify_run.h"

#include "core/command.h"
#include "core/json.h"
#include "core/parse.h"
#include "core/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A run's limit where the user sets none: what starting may take, and how much slower
 * than predicted a plan may be before nobody wants it. */
#define LIMIT_START_S 60
#define LIMIT_FACTOR  20

enum { MAX_RESULT_BYTES = 16 << 20, TAIL_BYTES = 200 };

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
    char how[128], time[MIST_FORMAT_BYTES];

    if (result->end == MIST_PROCESS_NOT_STARTED)
        snprintf(how, sizeof how, "can't be started (%s)", strerror(result->number));
    else if (result->end == MIST_PROCESS_LOST)
        snprintf(how, sizeof how, "was lost (%s)", strerror(result->number));
    else if (result->end == MIST_PROCESS_SIGNALED)
        snprintf(how, sizeof how, "was ended by signal %d", result->number);
    else if (result->end == MIST_PROCESS_OVER_LIMIT)
        snprintf(how, sizeof how, "took longer than %s (see --verify-limit)",
                 mist_format_time_s(time, sizeof time, limit_s));
    else
        snprintf(how, sizeof how, "failed with exit code %d", result->number);
    fail(plan, program, how, errors);
}

/* All of a file; malloc'd. What is longer than any result is cut. */
static enum mist_status read_all(FILE *file, char **text, size_t *n, struct mist_err *err)
{
    long length = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    size_t size = length < MAX_RESULT_BYTES ? (size_t)length : MAX_RESULT_BYTES;

    *text = NULL;
    if (length >= 0) {
        rewind(file);
        *text = malloc(size + 1);
        if (!*text)
            return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
        *n = fread(*text, 1, size, file);
    }
    return length < 0 || ferror(file)
               ? mist_err_set(err, MIST_ERR_IO, "a temporary file can't be read: %s",
                              strerror(errno))
               : MIST_OK;
}

/* iteration_s of what mist-exec printed. */
static enum mist_status read_time(FILE *output, double *time_s, struct mist_err *err)
{
    struct mist_json_doc doc = {0};
    char *text;
    size_t n = 0;
    enum mist_status status = read_all(output, &text, &n, err);

    if (status == MIST_OK)
        status = mist_json_load_text(&doc, "", text, n, MIST_JSON_FOREIGN, err);
    if (status == MIST_OK) {
        const struct mist_json root = mist_json_root(&doc);
        status = mist_json_get_double(&root, "iteration_s", MIST_JSON_REQUIRED, 1e-9, 1e9,
                                      time_s, err);
    }
    mist_json_fini(&doc);
    free(text);
    return status;
}

/* ---------------------------------------------------------------------------- the run */

/* Starts the command and reads its result. */
static enum mist_status run(const struct mist_process *process,
                            struct mist_verified *plan, FILE *output, FILE *errors,
                            double *time_s, enum mist_verify_outcome *outcome,
                            struct mist_err *err)
{
    const char *program = process->words[0];
    const struct mist_process_result result = mist_process_run(process);
    struct mist_err wrong = {0};
    char how[160];

    *outcome = MIST_VERIFY_FAILED;
    if (result.end == MIST_PROCESS_STOPPED) {
        *outcome = MIST_VERIFY_STOPPED;
        return MIST_OK;
    }
    if (result.end != MIST_PROCESS_EXITED || result.number != 0) {
        explain(&result, program, process->limit_s, errors, plan);
        return MIST_OK;
    }
    enum mist_status status = read_time(output, time_s, &wrong);
    if (status == MIST_OK) {
        *outcome = MIST_VERIFY_RAN;
    } else if (status == MIST_ERR_INPUT || status == MIST_ERR_RANGE) {
        snprintf(how, sizeof how, "printed no result of mist-exec (%.100s)",
                 wrong.message);
        fail(plan, program, how, errors);
    } else {
        return mist_err_set(err, status, "%s", wrong.message);
    }
    return MIST_OK;
}

enum mist_status mist_verify_run_plan(const struct mist_verify_place *place,
                                      const char *path, struct mist_verified *plan,
                                      double *time_s, enum mist_verify_outcome *outcome,
                                      struct mist_err *err)
{
    const struct mist_verify_config *config = place->config;
    double predicted_s = (double)config->n_iterations * plan->plan->predicted.iteration_s;
    FILE *output = tmpfile(), *errors = tmpfile();
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct mist_command command;
    enum mist_status status = MIST_OK;

    mist_command_init(&command);
    if (!output || !errors || nothing < 0)
        status = mist_err_set(err, MIST_ERR_IO, "no temporary file: %s", strerror(errno));
    if (status == MIST_OK)
        status = make_command(place, path, plan->plan, &command, err);
    if (status == MIST_OK) {
        const struct mist_process process = {
            .words = command.words,
            .input = nothing,
            .output = fileno(output),
            .errors = fileno(errors),
            .limit_s = config->limit_s > 0 ? config->limit_s
                                           : LIMIT_START_S + LIMIT_FACTOR * predicted_s,
            .stop = config->stop};
        status = run(&process, plan, output, errors, time_s, outcome, err);
    }
    mist_command_fini(&command);
    if (nothing >= 0)
        close(nothing);
    if (output)
        fclose(output);
    if (errors)
        fclose(errors);
    return status;
}
