/* The log of a run. See train_log.h. */
#include "exec/train_log.h"

#include "core/csv.h"
#include "core/escape.h"
#include "core/memory.h"
#include "core/parse.h" /* numbers for people */

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

enum {
    COLUMN_STEP,
    COLUMN_LOSS,
    COLUMN_GRADIENT_NORM,
    COLUMN_LR,
    COLUMN_STEP_S,
    COLUMN_TOKENS_PER_S,
    COLUMN_VALIDATION_LOSS,
    COLUMN_SKIPPED,
    N_COLUMNS
};

static const char *const column_names[N_COLUMNS] = {
    "step",   "loss",         "gradient_norm",   "lr",
    "step_s", "tokens_per_s", "validation_loss", "skipped"};

static enum mist_status out_of_memory(struct mist_err *err)
{
    return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for the log");
}

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

/* ------------------------------------------------------------------------- rows before
 */

/* An empty cell is a number that was not finite. */
static enum mist_status read_cell(const struct mist_csv *csv, size_t i_row,
                                  size_t i_column, double *out, struct mist_err *err)
{
    *out = NAN;
    if (mist_csv_text(csv, i_row, i_column)[0] == '\0')
        return MIST_OK;
    return mist_csv_get_double(csv, i_row, i_column, 0, HUGE_VAL, out, err);
}

static enum mist_status read_row(const struct mist_csv *csv, size_t i,
                                 struct mist_train_step *out, struct mist_err *err)
{
    int64_t skipped = 0;
    enum mist_status status =
        mist_csv_get_int64(csv, i, COLUMN_STEP, 1, INT64_MAX, &out->step, err);

    if (status == MIST_OK)
        status = read_cell(csv, i, COLUMN_LOSS, &out->loss, err);
    if (status == MIST_OK)
        status = read_cell(csv, i, COLUMN_GRADIENT_NORM, &out->gradient_norm, err);
    if (status == MIST_OK)
        status = read_cell(csv, i, COLUMN_LR, &out->lr, err);
    if (status == MIST_OK)
        status = read_cell(csv, i, COLUMN_STEP_S, &out->step_s, err);
    if (status == MIST_OK)
        status = read_cell(csv, i, COLUMN_VALIDATION_LOSS, &out->validation_loss, err);
    if (status == MIST_OK)
        status = mist_csv_get_int64(csv, i, COLUMN_SKIPPED, 0, 1, &skipped, err);
    out->is_skipped = skipped == 1;
    return status;
}

static enum mist_status add_row(struct mist_train_logger *logger,
                                const struct mist_train_step *row, struct mist_err *err)
{
    struct mist_train_step *grown = mist_grow(logger->rows, &logger->capacity,
                                              logger->n_rows + 1, sizeof *logger->rows);

    if (!grown)
        return out_of_memory(err);
    logger->rows = grown;
    logger->rows[logger->n_rows++] = *row;
    return MIST_OK;
}

/* The rows of steps that are done, from the table of the run that is resumed. */
static enum mist_status take_over_rows(struct mist_train_logger *logger,
                                       struct mist_err *err)
{
    struct mist_csv_column columns[N_COLUMNS];
    struct mist_csv *csv = NULL;

    for (int i = 0; i < N_COLUMNS; i++)
        columns[i] = (struct mist_csv_column){column_names[i], MIST_CSV_REQUIRED};
    enum mist_status status =
        mist_csv_load(logger->csv_path, columns, N_COLUMNS, &csv, err);
    for (size_t i = 0; status == MIST_OK && i < mist_csv_n_rows(csv); i++) {
        struct mist_train_step row = {0};
        status = read_row(csv, i, &row, err);
        if (status != MIST_OK || row.step > logger->job->progress.n_steps)
            break;
        if (logger->n_rows > 0 && row.step <= logger->rows[logger->n_rows - 1].step)
            status = mist_csv_fail(csv, i, COLUMN_STEP, err, "steps must ascend");
        else
            status = add_row(logger, &row, err);
    }
    mist_csv_free(csv);
    return status;
}

/* Room for all rows to come: no step allocates. */
static enum mist_status reserve_rows(struct mist_train_logger *logger,
                                     struct mist_err *err)
{
    const struct mist_train_job *job = logger->job;
    size_t n = (size_t)(job->settings.n_iterations - job->progress.n_steps);
    struct mist_train_step *grown = mist_grow(logger->rows, &logger->capacity,
                                              logger->n_rows + n, sizeof *logger->rows);

    if (!grown)
        return out_of_memory(err);
    logger->rows = grown;
    return MIST_OK;
}

/* True where path is no file and rewriting is no replacing: a pipe, /dev/null. */
static bool is_special(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && !S_ISREG(info.st_mode);
}

enum mist_status mist_train_log_init(struct mist_train_logger *logger,
                                     struct mist_err *err)
{
    struct stat info;
    bool resumes = logger->job->checkpoint != NULL;
    enum mist_status status = MIST_OK;

    logger->rows = NULL;
    logger->n_rows = logger->capacity = 0;
    logger->is_written = false;
    if (!logger->csv_path)
        return MIST_OK;
    if (resumes && stat(logger->csv_path, &info) == 0 && S_ISREG(info.st_mode)) {
        status = take_over_rows(logger, err);
        logger->is_written = true;
    }
    return status == MIST_OK ? reserve_rows(logger, err) : status;
}

void mist_train_log_fini(struct mist_train_logger *logger)
{
    free(logger->rows);
    logger->rows = NULL;
    logger->n_rows = logger->capacity = 0;
}

/* ------------------------------------------------------------------------------- table
 */

static void add_finite(struct mist_csv_writer *writer, double value)
{
    if (isfinite(value))
        mist_csv_add_double(writer, value);
    else
        mist_csv_add_text(writer, "");
}

static enum mist_status write_table(struct mist_train_logger *logger,
                                    struct mist_err *err)
{
    struct mist_csv_writer writer;
    enum mist_status status = mist_csv_writer_open(&writer, logger->csv_path,
                                                   logger->force || logger->is_written,
                                                   column_names, N_COLUMNS, err);

    if (status != MIST_OK)
        return status;
    for (size_t i = 0; i < logger->n_rows; i++) {
        const struct mist_train_step *row = &logger->rows[i];
        mist_csv_add_int64(&writer, row->step);
        add_finite(&writer, row->loss);
        add_finite(&writer, row->gradient_norm);
        mist_csv_add_double(&writer, row->lr);
        mist_csv_add_double(&writer, row->step_s);
        add_finite(&writer, mist_train_log_tokens_per_s(logger, row->step_s));
        add_finite(&writer, row->validation_loss);
        mist_csv_add_int64(&writer, row->is_skipped);
        mist_csv_end_row(&writer);
    }
    logger->is_written = true;
    return mist_csv_writer_commit(&writer, err);
}

/* -------------------------------------------------------------------------------- lines
 */

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
    if (every > 0)
        fprintf(stream, "%s  after every %lld steps and the last", what,
                (long long)every);
    else
        fprintf(stream, "%s  after the last step", what);
}

static void say_training(const struct mist_train_logger *logger)
{
    const struct mist_train_job *job = logger->job;
    const struct mist_train_settings *settings = &job->settings;
    char norm[MIST_FORMAT_BYTES];

    fprintf(logger->stream, "training    steps %lld to %lld, gradients %s%s\n",
            (long long)job->progress.n_steps + 1, (long long)settings->n_iterations,
            settings->clip_norm > 0 ? "clipped to norm " : "not clipped",
            settings->clip_norm > 0
                ? mist_format_double(norm, sizeof norm, settings->clip_norm)
                : "");
    if (job->n_validation_batches > 0) {
        say_when(logger->stream, "validation", job->validate_every);
        fprintf(logger->stream, ", %lld batch%s of %lld samples\n",
                (long long)job->n_validation_batches,
                job->n_validation_batches == 1 ? "" : "es",
                (long long)job->plan->job.global_batch);
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

    (void)err;
    if (!logger->stream)
        return MIST_OK;
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
    if (!isnan(step->validation_loss))
        fprintf(stream, "  validation %.4f", step->validation_loss);
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

    if (logger->stream && (step->step % logger->log_every == 0 || is_last ||
                           step->is_skipped || !isnan(step->validation_loss)))
        say_step(logger, step);
    if (!logger->csv_path)
        return MIST_OK;
    status = add_row(logger, step, err);
    if (status == MIST_OK && step->is_saved_next &&
        (is_last || !is_special(logger->csv_path)))
        status = write_table(logger, err);
    return status;
}
