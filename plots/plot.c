/*
 * Formats, ranks, quoting, and running gnuplot. See plot.h.
 *
 * gnuplot gets its program as a file and not through a pipe, so that a failure's message
 * names a line and a big picture can't block on a full pipe.
 */
#include "plots/plot.h"

#include "core/parse.h"
#include "plots/internal.h"
#include "plots/scripts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- options ---- */

enum mist_status mist_plot_format_from_path(const char *path, enum mist_plot_format *out,
                                            struct mist_err *err)
{
    static const char *const suffixes[] = {".png", ".svg", ".pdf"};
    size_t n = strlen(path);

    if (strcmp(path, "-") == 0) {
        *out = MIST_PLOT_TEXT;
        return MIST_OK;
    }
    for (int i = 0; i < 3; i++)
        if (n > 4 && strcmp(path + n - 4, suffixes[i]) == 0) {
            *out = (enum mist_plot_format)i;
            return MIST_OK;
        }
    return mist_err_set(
        err, MIST_ERR_USAGE,
        "--output %s: expected a name that ends in .png, .svg or .pdf, or - "
        "for the terminal",
        path);
}

/* Reads "3" or "0-3" of n characters. */
static bool parse_range(const char *text, size_t n, int *low, int *high)
{
    char part[32];
    int64_t a, b;

    if (n == 0 || n >= sizeof part)
        return false;
    memcpy(part, text, n);
    part[n] = '\0';
    char *dash = strchr(part, '-');
    if (dash)
        *dash = '\0';
    if (mist_parse_int64(part, &a, NULL) != MIST_OK ||
        mist_parse_int64(dash ? dash + 1 : part, &b, NULL) != MIST_OK)
        return false;
    if (a < 0 || b < a || b > INT_MAX)
        return false;
    *low = (int)a;
    *high = (int)b;
    return true;
}

enum mist_status mist_plot_parse_ranks(const char *text, struct mist_plot_ranks *out,
                                       struct mist_err *err)
{
    struct mist_plot_ranks ranks = {0};

    for (const char *part = text; part && strcmp(text, "all") != 0;) {
        size_t n = strcspn(part, ",");
        if (ranks.n_ranges == MIST_PLOT_MAX_RANGES)
            return mist_err_set(err, MIST_ERR_USAGE, "--ranks: more than %d ranges",
                                MIST_PLOT_MAX_RANGES);
        if (!parse_range(part, n, &ranks.low[ranks.n_ranges],
                         &ranks.high[ranks.n_ranges]))
            return mist_err_set(err, MIST_ERR_USAGE,
                                "--ranks %s: expected numbers and ranges such as 0-3,5",
                                text);
        ranks.n_ranges++;
        part = part[n] ? part + n + 1 : NULL;
    }
    *out = ranks;
    return MIST_OK;
}

bool mist_plot_has_rank(const struct mist_plot_ranks *ranks, int rank)
{
    for (int i = 0; i < ranks->n_ranges; i++)
        if (rank >= ranks->low[i] && rank <= ranks->high[i])
            return true;
    return ranks->n_ranges == 0;
}

/* ---- program text ---- */

void mist_plot_write_quoted(FILE *stream, const char *text)
{
    fputc('\'', stream);
    for (; *text; text++) {
        if (*text == '\'')
            fputc('\'', stream);
        fputc((unsigned char)*text < 0x20 ? ' ' : *text, stream);
    }
    fputc('\'', stream);
}

void mist_plot_write_head(FILE *stream, enum mist_plot_format format, const char *output,
                          const struct mist_plot_options *options, int width, int height)
{
    switch (format) {
    case MIST_PLOT_PNG:
        fprintf(stream, "set terminal pngcairo size %d,%d font 'DejaVu Sans,10'\n", width,
                height);
        break;
    case MIST_PLOT_SVG:
        fprintf(stream,
                "set terminal svg size %d,%d font 'DejaVu Sans,12' background "
                "rgb 'white'\n",
                width, height);
        break;
    case MIST_PLOT_PDF:
        fprintf(stream,
                "set terminal pdfcairo size %.3fin,%.3fin font 'DejaVu Sans,10'\n",
                width / 100.0, height / 100.0);
        break;
    case MIST_PLOT_TEXT:
        fprintf(stream, "set terminal dumb size %d,%d noenhanced\n",
                options->n_text_columns, options->n_text_rows);
        break;
    }
    if (output) {
        fputs("set output ", stream);
        mist_plot_write_quoted(stream, output);
        fputc('\n', stream);
    }
    fputs(mist_script_style, stream);
    if (format == MIST_PLOT_TEXT) /* grid lines would look like data */
        fputs("unset grid\n", stream);
}

/* ---- running gnuplot ---- */

void mist_plot_abort(struct mist_plot_run *run)
{
    if (run->program)
        fclose(run->program);
    if (run->program_path[0])
        unlink(run->program_path);
    if (run->output)
        unlink(run->output);
    free(run->output);
    free(run->path);
    *run = (struct mist_plot_run){0};
}

/* Names the temporary file beside path that gnuplot writes. */
static enum mist_status reserve_output(struct mist_plot_run *run, const char *path,
                                       bool force, struct mist_err *err)
{
    size_t n = strlen(path) + sizeof ".XXXXXX";

    if (!force && access(path, F_OK) == 0)
        return mist_err_at(err, MIST_ERR_USAGE, path, 0, 0,
                           "the file exists; --force replaces it");
    run->path = strdup(path);
    run->output = malloc(n);
    if (!run->path || !run->output)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    snprintf(run->output, n, "%s.XXXXXX", path);
    int fd = mkstemp(run->output);
    if (fd < 0) {
        enum mist_status status = mist_err_at(err, MIST_ERR_IO, path, 0, 0,
                                              "can't be written: %s", strerror(errno));
        free(run->output);
        run->output = NULL;
        return status;
    }
    close(fd);
    return MIST_OK;
}

enum mist_status mist_plot_begin(struct mist_plot_run *run, const char *path, bool force,
                                 struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    *run = (struct mist_plot_run){0};
    if (strcmp(path, "-") != 0)
        status = reserve_output(run, path, force, err);
    if (status == MIST_OK) {
        const char *folder = getenv("TMPDIR");
        int n = snprintf(run->program_path, sizeof run->program_path,
                         "%s/mist-plot-XXXXXX", folder ? folder : "/tmp");
        int fd = n < (int)sizeof run->program_path ? mkstemp(run->program_path) : -1;
        run->program = fd >= 0 ? fdopen(fd, "w") : NULL;
        if (!run->program) {
            status = mist_err_set(err, MIST_ERR_IO, "no temporary file in %s: %s",
                                  folder ? folder : "/tmp", strerror(errno));
            if (fd < 0)
                run->program_path[0] = '\0';
            else
                close(fd);
        }
    }
    if (status != MIST_OK)
        mist_plot_abort(run);
    return status;
}

/* Puts what gnuplot complained about, on one line, into a message. */
static enum mist_status report_failure(FILE *complaints, struct mist_err *err)
{
    char text[320];

    rewind(complaints);
    size_t n = fread(text, 1, sizeof text - 1, complaints);
    text[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < 0x20)
            text[i] = ' ';
    return mist_err_set(err, MIST_ERR_RUN, "gnuplot failed: %s",
                        n ? text : "it ended without a message");
}

/* Runs gnuplot on the program; its complaints go to a file. */
static enum mist_status run_gnuplot(const char *program_path, FILE *complaints,
                                    struct mist_err *err)
{
    /* -d: a user's .gnuplot changes nothing. */
    char *arguments[] = {(char[]){"gnuplot"}, (char[]){"-d"}, (char *)program_path, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int wait_status = 0;

    if (posix_spawn_file_actions_init(&actions) != 0)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    int error =
        posix_spawn_file_actions_adddup2(&actions, fileno(complaints), STDERR_FILENO);
    if (error == 0)
        error = posix_spawnp(&pid, "gnuplot", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error == ENOENT)
        return mist_err_set(err, MIST_ERR_RUN,
                            "gnuplot is not installed; on Debian: apt-get install "
                            "gnuplot-nox fonts-dejavu-core");
    if (error != 0)
        return mist_err_set(err, MIST_ERR_RUN, "gnuplot can't be started: %s",
                            strerror(error));
    while (waitpid(pid, &wait_status, 0) < 0)
        if (errno != EINTR)
            return mist_err_set(err, MIST_ERR_RUN, "gnuplot was lost: %s",
                                strerror(errno));
    if (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0)
        return report_failure(complaints, err);
    return MIST_OK;
}

enum mist_status mist_plot_finish(struct mist_plot_run *run, struct mist_err *err)
{
    FILE *complaints = tmpfile();
    enum mist_status status = MIST_OK;
    bool is_written = !ferror(run->program);

    is_written = fclose(run->program) == 0 && is_written;
    run->program = NULL;
    fflush(stdout);
    if (!is_written || !complaints)
        status = mist_err_set(err, MIST_ERR_IO, "the gnuplot program can't be written");
    if (status == MIST_OK)
        status = run_gnuplot(run->program_path, complaints, err);
    if (status == MIST_OK && run->output) {
        /* mkstemp made it private; a picture is as readable as any new file. */
        mode_t mask = umask(0);
        umask(mask);
        if (chmod(run->output, 0666 & ~mask) != 0 || rename(run->output, run->path) != 0)
            status = mist_err_at(err, MIST_ERR_IO, run->path, 0, 0,
                                 "can't be written: %s", strerror(errno));
        else
            run->output[0] = '\0'; /* nothing to remove */
    }
    if (complaints)
        fclose(complaints);
    mist_plot_abort(run);
    return status;
}
