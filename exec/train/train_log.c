/* The log of a run. See train_log.h. */
#include "exec/train/train_log.h"

#include "core/escape.h"
#include "core/message.h"
#include "core/parse.h" /* numbers for people */

#include <math.h>

double mist_train_log_tokens_per_s(const struct mist_train_logger *logger, double step_s)
{
    const struct mist_job *job = &logger->job->plan->job;

    return (double)job->global_batch * (double)job->seq_len / step_s;
}

double mist_train_log_mfu(const struct mist_train_logger *logger, double step_s)
{
    double peak = logger->peak.flop_per_s * (double)mist_plan_n_ranks(logger->job->plan);

    return peak > 0 ? logger->flop_per_token *
                          mist_train_log_tokens_per_s(logger, step_s) / peak
                    : 0;
}

/* ------------------------------------------------------------------------------ files */

enum mist_status mist_train_log_init(struct mist_train_logger *logger,
                                     struct mist_err *err)
{
    const struct mist_train_job *job = logger->job;
    const struct mist_log_kept *kept = &logger->kept;
    enum mist_status status = MIST_OK;

    logger->file = (struct mist_log_file){.fd = -1};
    logger->board = (struct mist_tensorboard){.fd = -1};
    logger->kept = (struct mist_log_kept){0};
    if (!logger->path || !logger->goes_on)
        return MIST_OK;
    status = mist_log_file_scan(logger->path, job->progress.n_steps, &logger->kept, err);
    if (status == MIST_OK && !job->checkpoint && job->save_every > 0 &&
        kept->n_dropped > job->save_every && !logger->force)
        return mist_err_at(err, MIST_ERR_USAGE, logger->path, 0, 0,
                           "has %lld steps, after %lld of which there would be a "
                           "checkpoint: it is of another run; --force replaces it",
                           (long long)kept->n_dropped, (long long)job->save_every);
    return status;
}

static enum mist_status open_files(struct mist_train_logger *logger, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    if (logger->path)
        status = mist_log_file_open(&logger->file, logger->path,
                                    logger->goes_on ? &logger->kept : NULL, logger->force,
                                    err);
    if (status == MIST_OK && logger->kept.n_dropped > 0)
        mist_message(logger->job->messages,
                     "%s: goes on behind step %lld, rows of later steps cut: %lld",
                     logger->path, (long long)logger->job->progress.n_steps,
                     (long long)logger->kept.n_dropped);
    if (status == MIST_OK && logger->kept.n_rows > 0 &&
        logger->kept.last_step < logger->job->progress.n_steps)
        mist_message(logger->job->messages,
                     "%s: ends with step %lld, the run goes on behind step %lld: rows "
                     "between them are missing",
                     logger->path, (long long)logger->kept.last_step,
                     (long long)logger->job->progress.n_steps);
    if (status == MIST_OK && logger->board_folder)
        status = mist_tensorboard_open(&logger->board, logger->board_folder,
                                       logger->job->progress.n_steps + 1, err);
    return status;
}

void mist_train_log_fini(struct mist_train_logger *logger)
{
    mist_log_file_close(&logger->file);
    mist_tensorboard_close(&logger->board);
}

static enum mist_status add_scalars(const struct mist_train_logger *logger,
                                    const struct mist_train_step *step,
                                    struct mist_err *err)
{
    const struct mist_scalar scalars[] = {
        {"loss", step->loss},
        {"gradient_norm", step->gradient_norm},
        {"lr", step->lr},
        {"tokens_per_s", mist_train_log_tokens_per_s(logger, step->step_s)},
        {"validation_loss", step->validation_loss},
    };

    return mist_tensorboard_add(&logger->board, step->step, scalars,
                                sizeof scalars / sizeof *scalars, err);
}

/* ------------------------------------------------------------------------------ lines */

static void say_flop(const struct mist_train_logger *logger)
{
    char flop[MIST_FORMAT_BYTES], peak[MIST_FORMAT_BYTES];
    const char *folder = logger->job->plan->trace_set;
    char shown[MIST_ESCAPED_BYTES(sizeof logger->job->plan->trace_set) + 1];

    mist_escape(folder, shown);
    fprintf(logger->stream,
            "model       %sFLOP per token (operators of forward and backward, nothing "
            "recomputed)\n",
            mist_format_count(flop, sizeof flop, logger->flop_per_token));
    if (logger->peak.flop_per_s > 0)
        fprintf(logger->stream,
                "MFU         that x tokens/s / (%d ranks x %sFLOP/s, the %s %s)\n",
                (int)mist_plan_n_ranks(logger->job->plan),
                mist_format_count(peak, sizeof peak, logger->peak.flop_per_s),
                logger->peak.is_measured ? "fastest linear layer measured in"
                                         : "peak stated in",
                shown);
    else
        fprintf(logger->stream, "MFU         not known: no trace set %s%s\n",
                folder[0] ? "in " : "is named in the plan", shown);
}

static void say_when(FILE *stream, const char *what, int64_t every)
{
    if (every == 1)
        fprintf(stream, "%s  after every step", what);
    else if (every > 1)
        fprintf(stream, "%s  after every %lld steps and the last", what,
                (long long)every);
    else
        fprintf(stream, "%s  after the last step", what);
}

static void say_training(const struct mist_train_logger *logger)
{
    const struct mist_train_job *job = logger->job;
    const struct mist_train_settings *settings = &job->settings;
    const struct mist_job *of = &job->plan->job;
    int64_t n_steps = settings->n_iterations - job->progress.n_steps;
    double n_epochs = (double)n_steps * (double)of->global_batch /
                      (double)mist_data_n_samples(job->data, of->seq_len);
    char norm[MIST_FORMAT_BYTES], tokens[MIST_FORMAT_BYTES];

    fprintf(
        logger->stream,
        "training    steps %lld to %lld, %.3g epochs of %s tokens, gradients %s%s\n",
        (long long)job->progress.n_steps + 1, (long long)settings->n_iterations, n_epochs,
        mist_format_count(tokens, sizeof tokens, (double)mist_data_n_tokens(job->data)),
        settings->clip_norm > 0 ? "clipped to norm " : "not clipped",
        settings->clip_norm > 0
            ? mist_format_double(norm, sizeof norm, settings->clip_norm)
            : "");
    if (job->n_validation_samples > 0) {
        say_when(logger->stream, "validation", job->validate_every);
        fprintf(logger->stream, ", %lld of %lld samples\n",
                (long long)job->n_validation_samples,
                (long long)mist_data_n_validation_samples(job->data, of->seq_len));
    }
    if (job->saving.dir) {
        say_when(logger->stream, "checkpoint", job->save_every);
        fputs(", in ", logger->stream);
        mist_escape_print(job->saving.dir, logger->stream);
        fputc('\n', logger->stream);
    }
}

enum mist_status mist_train_log_begin(void *context,
                                      const struct mist_train_memory *memory,
                                      const struct mist_paths *paths,
                                      struct mist_err *err)
{
    struct mist_train_logger *logger = context;
    char planned[MIST_FORMAT_BYTES], allocated[MIST_FORMAT_BYTES],
        resident[MIST_FORMAT_BYTES], used[MIST_FORMAT_BYTES];

    enum mist_status status = open_files(logger, err);

    if (status != MIST_OK || !logger->stream)
        return status;
    say_flop(logger);
    fprintf(logger->stream,
            "memory      largest rank: device arena %s planned, %s allocated, process "
            "%s",
            mist_format_bytes(planned, sizeof planned, memory->planned_bytes),
            mist_format_bytes(allocated, sizeof allocated, memory->allocated_bytes),
            mist_format_bytes(resident, sizeof resident, memory->resident_bytes));
    if (memory->used_bytes >= 0)
        fprintf(logger->stream, ", %s in use on the device",
                mist_format_bytes(used, sizeof used, memory->used_bytes));
    fputc('\n', logger->stream);
    mist_paths_print(paths, logger->stream);
    if (logger->job->progress.n_steps >= logger->job->settings.n_iterations)
        return MIST_OK; /* no step is left */
    say_training(logger);
    fprintf(logger->stream,
            "    step       loss  grad norm         lr   tokens/s    ms/step%s\n",
            logger->peak.flop_per_s > 0 ? "     MFU" : "");
    return MIST_OK;
}

void mist_train_log_note(void *context, const char *name, const char *text)
{
    struct mist_train_logger *logger = context;

    if (logger->stream)
        mist_paths_print_one(name, text, logger->stream);
}

/* A number in a column of ten; "-": not finite. */
static void say_number(FILE *stream, double value, int n_digits, bool is_fixed)
{
    if (!isfinite(value))
        fprintf(stream, " %10s", "-");
    else if (is_fixed)
        fprintf(stream, " %10.*f", n_digits, value);
    else
        fprintf(stream, " %10.*g", n_digits, value);
}

static void say_step(const struct mist_train_logger *logger,
                     const struct mist_train_step *step)
{
    FILE *stream = logger->stream;

    fprintf(stream, "%8lld", (long long)step->step);
    say_number(stream, step->loss, 4, true);
    say_number(stream, step->gradient_norm, 4, false);
    say_number(stream, step->lr, 3, false);
    say_number(stream, mist_train_log_tokens_per_s(logger, step->step_s), 0, true);
    say_number(stream, step->step_s * 1e3, 1, true);
    if (logger->peak.flop_per_s > 0)
        fprintf(stream, " %5.1f %%", 100 * mist_train_log_mfu(logger, step->step_s));
    if (isfinite(step->validation_loss))
        fprintf(stream, "  validation %.4f", step->validation_loss);
    else if (!isnan(step->validation_loss))
        fprintf(stream, "  validation: not finite");
    if (step->is_skipped)
        fprintf(stream, "  skipped: not finite");
    fputc('\n', stream);
}

enum mist_status mist_train_log_step(void *context, const struct mist_train_step *step,
                                     struct mist_err *err)
{
    struct mist_train_logger *logger = context;
    bool is_last = step->step == logger->job->settings.n_iterations;
    enum mist_status status = MIST_OK;

    if (logger->path)
        status = mist_log_file_add(
            &logger->file, step, mist_train_log_tokens_per_s(logger, step->step_s), err);
    if (status == MIST_OK && logger->path && step->is_saved_next)
        status = mist_log_file_sync(&logger->file, err);
    if (status == MIST_OK && logger->board_folder)
        status = add_scalars(logger, step, err);
    if (status == MIST_OK && logger->stream &&
        (step->step % logger->log_every == 0 || is_last || step->is_skipped ||
         !isnan(step->validation_loss)))
        say_step(logger, step);
    return status;
}
