/*
 * Runs gnuplot. See plot.h.
 *
 * gnuplot reads its program from standard input and writes the picture to standard
 * output, both files without a name: it learns no name that it could take for a command,
 * and whatever ends this process leaves nothing behind. It ends with success when the
 * disk was full, so the picture is looked at before anybody gets it.
 */
#include "core/atomic_file.h"
#include "core/process.h"
#include "plots/plot.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* ---- life cycle ---- */

void mist_plot_abort(struct mist_plot_run *run)
{
    if (run->program)
        fclose(run->program);
    if (run->picture)
        fclose(run->picture);
    *run = (struct mist_plot_run){0};
}

enum mist_status mist_plot_begin(struct mist_plot_run *run, const char *path,
                                 enum mist_plot_format format, bool force,
                                 struct mist_err *err)
{
    *run = (struct mist_plot_run){.format = format, .path = path, .force = force};
    if (strcmp(path, "-") != 0) {
        /* What can't be written is refused before the work, and left alone during it. */
        enum mist_status status = mist_output_check(path, force, err);
        if (status != MIST_OK)
            return status;
    }
    run->program = tmpfile();
    run->picture = tmpfile();
    if (run->program && run->picture)
        return MIST_OK;
    enum mist_status status =
        mist_err_set(err, MIST_ERR_IO, "no temporary file: %s", strerror(errno));
    mist_plot_abort(run);
    return status;
}

/* ---- gnuplot ---- */

/* Puts how gnuplot ended and what it complained about, on one line, into a message. */
static enum mist_status report_failure(const struct mist_process_result *result,
                                       FILE *complaints, struct mist_err *err)
{
    char text[320];
    const char *reason = strerror(result->number);

    mist_process_read_tail(complaints, text, sizeof text);
    if (result->end == MIST_PROCESS_NOT_STARTED && result->number == ENOENT)
        return mist_err_set(err, MIST_ERR_RUN,
                            "gnuplot is not installed; on Debian: apt-get install "
                            "gnuplot-nox fonts-dejavu-core");
    if (result->end == MIST_PROCESS_NOT_STARTED)
        return mist_err_set(err, MIST_ERR_RUN, "gnuplot can't be started: %s", reason);
    if (result->end == MIST_PROCESS_LOST)
        return mist_err_set(err, MIST_ERR_RUN, "gnuplot was lost: %s", reason);
    if (result->end == MIST_PROCESS_SIGNALED)
        return mist_err_set(err, MIST_ERR_RUN, "gnuplot was ended by signal %d%s%s",
                            result->number, text[0] ? ": " : "", text);
    return mist_err_set(err, MIST_ERR_RUN, "gnuplot failed: %s",
                        text[0] ? text : "it ended without a message");
}

/* -d: a user's .gnuplot changes nothing. */
static enum mist_status run_gnuplot(const struct mist_plot_run *run, FILE *complaints,
                                    struct mist_err *err)
{
    char *words[] = {(char[]){"gnuplot"}, (char[]){"-d"}, (char[]){"/dev/stdin"}, NULL};
    const struct mist_process process = {.words = words,
                                         .input = fileno(run->program),
                                         .output = fileno(run->picture),
                                         .errors = fileno(complaints)};
    const struct mist_process_result result = mist_process_run(&process);

    return result.end == MIST_PROCESS_EXITED && result.number == 0
               ? MIST_OK
               : report_failure(&result, complaints, err);
}

/* ---- the picture ---- */

/* What a whole picture of a format ends with; "": nothing tells. */
static const struct ending {
    const char *bytes;
    size_t n;
} ENDINGS[] = {
    [MIST_PLOT_PNG] = {"IEND\xAE\x42\x60\x82", 8},
    [MIST_PLOT_SVG] = {"</svg>", 6},
    [MIST_PLOT_PDF] = {"%%EOF", 5},
    [MIST_PLOT_TEXT] = {"", 0},
};

/* Whether the picture, but for blank lines, ends as its format has to. */
static bool is_whole(const struct mist_plot_run *run)
{
    const struct ending *ending = &ENDINGS[run->format];
    char tail[64];

    if (fseek(run->picture, 0, SEEK_END) != 0)
        return false;
    long size = ftell(run->picture);
    long n = size < (long)sizeof tail ? size : (long)sizeof tail;
    if (n <= 0 || fseek(run->picture, -n, SEEK_END) != 0 ||
        fread(tail, 1, (size_t)n, run->picture) != (size_t)n)
        return false;
    while (n > 0 && (tail[n - 1] == '\n' || tail[n - 1] == '\r'))
        n--;
    return (size_t)n >= ending->n &&
           memcmp(tail + n - ending->n, ending->bytes, ending->n) == 0;
}

static enum mist_status copy_picture(FILE *from, FILE *to, struct mist_err *err)
{
    char block[16384];
    size_t n;

    rewind(from);
    while ((n = fread(block, 1, sizeof block, from)) > 0)
        if (fwrite(block, 1, n, to) != n)
            break; /* stays in to */
    return ferror(from) ? mist_err_set(err, MIST_ERR_IO, "the picture can't be read back")
                        : MIST_OK;
}

static enum mist_status publish(const struct mist_plot_run *run, struct mist_err *err)
{
    struct mist_atomic_file target;

    if (strcmp(run->path, "-") == 0)
        return copy_picture(run->picture, stdout, err);
    enum mist_status status = mist_atomic_file_open(&target, run->path, run->force, err);
    if (status != MIST_OK)
        return status;
    status = copy_picture(run->picture, target.stream, err);
    if (status == MIST_OK)
        return mist_atomic_file_commit(&target, err);
    mist_atomic_file_abort(&target);
    return status;
}

enum mist_status mist_plot_finish(struct mist_plot_run *run, struct mist_err *err)
{
    FILE *complaints = tmpfile();
    enum mist_status status = MIST_OK;

    if (!complaints || fflush(run->program) != 0 || ferror(run->program) ||
        lseek(fileno(run->program), 0, SEEK_SET) != 0)
        status = mist_err_set(err, MIST_ERR_IO,
                              "the gnuplot program can't be written to a temporary file");
    if (status == MIST_OK)
        status = run_gnuplot(run, complaints, err);
    if (status == MIST_OK && !is_whole(run))
        status = mist_err_set(err, MIST_ERR_IO,
                              "gnuplot's picture is not whole; it was written to a "
                              "temporary file: is that disk full?");
    if (status == MIST_OK)
        status = publish(run, err);
    if (complaints)
        fclose(complaints);
    mist_plot_abort(run);
    return status;
}
