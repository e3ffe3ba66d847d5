/* One line of progress with an ETA. See progress.h. */
#include "core/progress.h"

#include "core/clock.h"
#include "core/parse.h"

#include <stdlib.h>
#include <unistd.h>

#define PERIOD_S (1.0 / 6)

static bool is_terminal(FILE *stream)
{
    int fd = stream ? fileno(stream) : -1;

    return fd >= 0 && isatty(fd);
}

/* True when colour may be used on stream:
 * a terminal, NO_COLOR unset or empty, no_color false. */
static bool wants_color(FILE *stream, bool no_color)
{
    const char *variable = getenv("NO_COLOR");

    return !no_color && !(variable && variable[0]) && is_terminal(stream);
}

void mist_progress_init(struct mist_progress *progress, enum mist_progress_mode mode,
                        bool no_color, FILE *stream, const char *label)
{
    *progress = (struct mist_progress){.stream = stream, .label = label};
    progress->is_enabled =
        stream && (mode == MIST_PROGRESS_ALWAYS ||
                   (mode == MIST_PROGRESS_AUTO && is_terminal(stream)));
    progress->has_color = wants_color(stream, no_color);
    progress->time_start_s = mist_clock_now_s();
    progress->time_shown_s = progress->time_start_s;
}

void mist_progress_begin(struct mist_progress *progress, const char *label)
{
    if (!progress)
        return;
    progress->label = label;
    progress->time_start_s = mist_clock_now_s();
}

static void print_line(struct mist_progress *progress, double elapsed_s, int64_t done,
                       int64_t total)
{
    char text[2][MIST_FORMAT_BYTES];
    const char *bold = progress->has_color ? "\033[1m" : "";
    const char *plain = progress->has_color ? "\033[0m" : "";

    fprintf(progress->stream, "\r%s%s%s ", bold, progress->label, plain);
    if (total > 0) {
        fprintf(progress->stream, "%s of %s, %d %%",
                mist_format_count(text[0], sizeof text[0], (double)done),
                mist_format_count(text[1], sizeof text[1], (double)total),
                (int)(100.0 * (double)done / (double)total));
        if (done > 0 && done < total) {
            double left_s = elapsed_s * (double)(total - done) / (double)done;
            fprintf(progress->stream, ", %s left",
                    mist_format_time_s(text[0], sizeof text[0], left_s));
        }
    } else {
        fprintf(progress->stream, "%s after %s",
                mist_format_count(text[0], sizeof text[0], (double)done),
                mist_format_time_s(text[1], sizeof text[1], elapsed_s));
    }
    fputs("\033[K", progress->stream); /* erases what is left of a longer line */
    fflush(progress->stream);
}

void mist_progress_update_at(struct mist_progress *progress, double now_s, int64_t done,
                             int64_t total)
{
    if (!progress->is_enabled || now_s - progress->time_shown_s < PERIOD_S)
        return;
    progress->time_shown_s = now_s;
    progress->has_line = true;
    print_line(progress, now_s - progress->time_start_s, done, total);
}

void mist_progress_update(struct mist_progress *progress, int64_t done, int64_t total)
{
    if (progress->is_enabled)
        mist_progress_update_at(progress, mist_clock_now_s(), done, total);
}

void mist_progress_fini(struct mist_progress *progress)
{
    if (!progress->has_line)
        return;
    fputs("\r\033[K", progress->stream);
    fflush(progress->stream);
    progress->has_line = false;
}
