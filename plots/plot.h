/*
 * Pictures by gnuplot: timelines, memory, predicted against measured, Pareto frontiers,
 * link fits.
 *
 * A picture is a gnuplot program: settings and data written here, then plots/style.gp and
 * the picture's own script (plots/NAME.gp). Writing the program is apart from running
 * it, so that it can be looked at. Left out: any picture that a spreadsheet draws as
 * well.
 */
#ifndef MIST_PLOTS_PLOT_H
#define MIST_PLOTS_PLOT_H

#include "core/status.h"
#include "traces/timeline.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum mist_plot_format { MIST_PLOT_PNG, MIST_PLOT_SVG, MIST_PLOT_PDF, MIST_PLOT_TEXT };

#define MIST_PLOT_MAX_RANGES 32

/* Which ranks are drawn. */
struct mist_plot_ranks {
    int n_ranges; /* 0: all ranks */
    int low[MIST_PLOT_MAX_RANGES];
    int high[MIST_PLOT_MAX_RANGES]; /* included */
};

struct mist_plot_options {
    const char *title; /* NULL: one that fits the data; borrowed */
    struct mist_plot_ranks ranks;
    double from_s;       /* since the timeline's start */
    double to_s;         /* 0: the end */
    int64_t limit_bytes; /* line in the memory picture; 0: none */
    int n_text_columns;  /* size of a picture made of text */
    int n_text_rows;
    bool has_colors; /* of a timeline made of text: ANSI colours */
};

/* A timeline and what the picture calls it. Borrowed. */
struct mist_plot_input {
    const struct mist_timeline *timeline; /* must have passed mist_timeline_check() */
    const char *name;
};

/* By the ending: "x.png", "x.svg", "x.pdf", or "-" for text. MIST_ERR_USAGE
 * for others. */
MIST_MUST_CHECK enum mist_status mist_plot_format_from_path(const char *path,
                                                            enum mist_plot_format *out,
                                                            struct mist_err *err);

/* "0-3,5"; NULL or "all" is every rank. MIST_ERR_USAGE. */
MIST_MUST_CHECK enum mist_status mist_plot_parse_ranks(const char *text,
                                                       struct mist_plot_ranks *out,
                                                       struct mist_err *err);

/* A kind of picture; a row of MIST_PLOT_KINDS (plots/internal.h). */
struct mist_plot_kind;

/* NULL: there is none of that name. Names, NULL behind the last. */
const struct mist_plot_kind *mist_plot_find_kind(const char *name);
extern const char *const mist_plot_kind_names[];

/* What a kind takes; of the last it makes no picture. */
enum mist_plot_family { MIST_PLOT_TIMELINES, MIST_PLOT_TABLE, MIST_PLOT_CHROME };
enum mist_plot_family mist_plot_family_of(const struct mist_plot_kind *kind);

/*
 * Each writes the gnuplot program of one picture to stream; its terminal is format, and
 * the picture goes to gnuplot's standard output. Each timeline's time begins at its own
 * earliest start. plots/README.md says what a kind's table has.
 *
 * MIST_OK; MIST_ERR_INPUT (a table's path with line; nothing to draw), MIST_ERR_IO or
 * MIST_ERR_MEMORY. Write errors stay in the stream.
 */
MIST_MUST_CHECK enum mist_status
mist_plot_write_timelines(FILE *stream, const struct mist_plot_kind *kind,
                          const struct mist_plot_input *inputs, int n_inputs,
                          const struct mist_plot_options *options,
                          enum mist_plot_format format, struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_plot_write_table(FILE *stream, const struct mist_plot_kind *kind, const char *path,
                      const struct mist_plot_options *options,
                      enum mist_plot_format format, struct mist_err *err);

/*
 * Prints timelines as text: a line per stream of ranks that differ, a letter per kind of task, the
 * micro-batch's number where a run of its tasks begins, "." where a stream is idle.
 * options->n_text_columns wide.
 */
MIST_MUST_CHECK enum mist_status
mist_plot_print_gantt(FILE *stream, const struct mist_plot_input *inputs, int n_inputs,
                      const struct mist_plot_options *options, struct mist_err *err);

/*
 * Runs a gnuplot program. The picture replaces path only when gnuplot succeeded and the
 * picture is whole.
 *
 *   mist_plot_begin(&run, path, format, force, err);  path "-": standard output
 *   mist_plot_write_...(run.program, ..., err);
 *   mist_plot_finish(&run, err);                      or mist_plot_abort(&run);
 *
 * MIST_ERR_USAGE (path exists and force is false), MIST_ERR_RUN (gnuplot is not installed
 * or failed, with its message), MIST_ERR_IO or MIST_ERR_MEMORY. What can't be written to
 * standard output stays in stdout's error flag.
 */
struct mist_plot_run {
    FILE *program; /* write the program here */
    FILE *picture; /* what gnuplot draws; no name */
    enum mist_plot_format format;
    const char *path; /* borrowed; "-": standard output */
    bool force;
};
MIST_MUST_CHECK enum mist_status mist_plot_begin(struct mist_plot_run *run,
                                                 const char *path,
                                                 enum mist_plot_format format, bool force,
                                                 struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_plot_finish(struct mist_plot_run *run,
                                                  struct mist_err *err);
void mist_plot_abort(struct mist_plot_run *run); /* zeroed or finished: nothing */

#endif
