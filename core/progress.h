/*
 * One line of progress with an ETA, for a person at a terminal, and silence for everybody
 * else.
 *
 * Rewrites its line at most 6 times a second and erases it at the end, so that nothing of
 * it stays. Not thread-safe. Write errors are ignored: progress is no result.
 */
#ifndef MIST_CORE_PROGRESS_H
#define MIST_CORE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* In the order of the choices of --progress. */
enum mist_progress_mode {
    MIST_PROGRESS_AUTO, /* only when the stream is a terminal */
    MIST_PROGRESS_ALWAYS,
    MIST_PROGRESS_NEVER,
};

struct mist_progress {
    FILE *stream;      /* borrowed; stderr, usually; NULL: nothing is shown */
    const char *label; /* borrowed; "searching"; may change */
    bool is_enabled;
    bool has_color;      /* a terminal, and neither --no-color nor NO_COLOR */
    bool has_line;       /* there is a line to erase */
    double time_start_s; /* of init */
    double time_shown_s; /* of the last line */
};

void mist_progress_init(struct mist_progress *progress, enum mist_progress_mode mode,
                        bool no_color, FILE *stream, const char *label);

/* Another part begins, with an ETA of its own. progress may be NULL. */
void mist_progress_begin(struct mist_progress *progress, const char *label);

/* done of total things are finished; total <= 0: unknown.
 * Cheap when it is too early to show. */
void mist_progress_update(struct mist_progress *progress, int64_t done, int64_t total);

/* The same at a given mist_clock_now_s(). */
void mist_progress_update_at(struct mist_progress *progress, double now_s, int64_t done,
                             int64_t total);

/* Erases the line. May be called twice. */
void mist_progress_fini(struct mist_progress *progress);

#endif
