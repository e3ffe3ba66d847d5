/* What the files of plots/ share among themselves. */
#ifndef MIST_PLOTS_INTERNAL_H
#define MIST_PLOTS_INTERNAL_H

#include "plots/plot.h"

#include <stddef.h>

/* Kinds of tasks that share a colour and a letter. */
enum mist_plot_group {
    MIST_GROUP_FORWARD,
    MIST_GROUP_RECOMPUTE,
    MIST_GROUP_BACKWARD,
    MIST_GROUP_BACKWARD_WEIGHT,
    MIST_GROUP_OPTIMIZER,
    MIST_GROUP_PIPELINE,   /* activations and gradients between stages */
    MIST_GROUP_COLLECTIVE, /* gradients, parameters, tensor parallelism */
    MIST_GROUP_SWAP,
    MIST_GROUP_LOAD_BATCH,
    MIST_N_GROUPS
};

struct mist_plot_group_look {
    const char *name;
    char letter;
    unsigned color;      /* 0xRRGGBB */
    unsigned text_color; /* legible on color */
};
extern const struct mist_plot_group_look mist_plot_groups[MIST_N_GROUPS];

enum mist_plot_group mist_plot_group_of(enum mist_task_kind kind);

/* Consecutive tasks of one lane that are drawn as one: same group, micro-batch and
 * iteration. */
struct mist_plot_span {
    int i_input;
    int i_lane; /* into the view's lanes */
    enum mist_plot_group group;
    int micro_batch;
    int iteration;
    double start_s; /* since the start of its timeline, cut to the view */
    double end_s;
};

struct mist_plot_lane {
    int rank;
    enum mist_stream stream;
};

/* What of some timelines is drawn: lanes common to all, a common time axis. */
struct mist_plot_view {
    double from_s, to_s;
    int n_lanes;
    size_t lanes_capacity;
    struct mist_plot_lane
        *lanes; /* owned; by rank, then stream; streams that have tasks */
    size_t n_spans, spans_capacity;
    struct mist_plot_span *spans; /* owned; by input, lane, start */
    double *origin_s;             /* owned; [n_inputs] earliest start of each timeline */
};

/*
 * Chooses what to draw. Neighbours (joins_backward:
 * recomputation and both parts of the backward pass count as one group) merge over gaps
 * of at most gap_frac of the time axis. MIST_ERR_INPUT when no task is in the chosen
 * ranks and times; MIST_ERR_MEMORY. After a failure view is empty.
 */
MIST_MUST_CHECK enum mist_status
mist_plot_view_init(struct mist_plot_view *view, const struct mist_plot_input *inputs,
                    int n_inputs, const struct mist_plot_options *options,
                    double gap_frac, bool joins_backward, struct mist_err *err);
void mist_plot_view_fini(struct mist_plot_view *view);

/* The time axis: seconds times scale are in unit ("s", "ms" or "us"). */
struct mist_plot_axis {
    double scale;
    const char *unit;
};
struct mist_plot_axis mist_plot_time_axis(double span_s);

/* Writes 'text' quoted for gnuplot, escaped (core/escape.h); '' when out of memory. */
void mist_plot_write_quoted(FILE *stream, const char *text);

/*
 * Widths of text. No terminal says how wide a text will be, so letters are taken for as
 * wide as the wide ones of their kind are.
 *
 * text_em     of text as it is written, in units of the size of the font
 * em_pixels   that unit for a font of some points, in the terminal that has it largest
 */
double mist_plot_text_em(const char *text);
double mist_plot_em_pixels(double points);

/* Like mist_plot_write_quoted(); of a text wider than em the middle is left out. */
void mist_plot_write_fitted(FILE *stream, const char *text, double em);

/* Sets title_text to the picture's title or the fallback, fitted into n_pixels. */
void mist_plot_write_title(FILE *stream, enum mist_plot_format format,
                           const struct mist_plot_options *options, const char *fallback,
                           int n_pixels, double points);

/* Writes the terminal, then plots/style.gp. Sizes are in pixels of a png. */
void mist_plot_write_head(FILE *stream, enum mist_plot_format format,
                          const struct mist_plot_options *options, int width, int height);

#endif
