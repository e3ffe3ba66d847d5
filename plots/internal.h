/* What the files of plots/ share among themselves. */
#ifndef MIST_PLOTS_INTERNAL_H
#define MIST_PLOTS_INTERNAL_H

#include "core/csv.h"
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

/* A task in the picture. */
struct mist_plot_span {
    int i_input;
    int i_lane; /* into the view's lanes */
    enum mist_plot_group group;
    int micro_batch;
    int iteration;
    int64_t task, live_bytes;
    double start_s; /* since the start of its timeline, cut to the view */
    double end_s;
};

/* A stream of a rank, which may stand for other ranks. */
struct mist_plot_lane {
    int rank;
    int64_t n_ranks; /* that it stands for, itself included */
    enum mist_stream stream;
    bool is_kept;       /* by mist_plot_view_keep() */
    int64_t peak_bytes; /* set by the picture of memory */
};

/* What of some timelines is drawn: lanes common to all, a common time axis. */
struct mist_plot_view {
    int n_inputs;
    double from_s, to_s;
    int n_lanes;
    /* Owned; by rank, then stream; streams that have tasks. */
    struct mist_plot_lane *lanes;
    size_t n_spans, spans_capacity;
    struct mist_plot_span *spans; /* owned; by input, lane, start */
    size_t *first_span;   /* owned; [n_inputs * n_lanes + 1] of each input and lane */
    double *origin_s;     /* owned; [n_inputs] earliest start of each timeline */
    double *end_s;        /* owned; [n_inputs] latest end since then */
    int n_rows;           /* ranks that differ, before mist_plot_view_fit() */
    int every;            /* of these the first of so many is left */
    bool is_compute_only; /* other streams were left out */
};

/*
 * Chooses what to draw. Ranks that do the same at the same times, in all timelines, are one.
 * by_rank: a rank has one lane, of all its tasks, and equal ranks have equal live bytes, too.
 * MIST_ERR_INPUT when no task is in the chosen ranks and times; MIST_ERR_MEMORY. After a
 * failure view is empty.
 */
MIST_MUST_CHECK enum mist_status
mist_plot_view_init(struct mist_plot_view *view, const struct mist_plot_input *inputs,
                    int n_inputs, const struct mist_plot_options *options, bool by_rank,
                    struct mist_err *err);
void mist_plot_view_fini(struct mist_plot_view *view);

/* Leaves no more lanes than there is room for: compute streams alone where all streams are
 * more than max_lanes, one in 2, 3 .. ranks where ranks are more than max_rows. */
void mist_plot_view_fit(struct mist_plot_view *view, int max_lanes, int max_rows);

/* Leaves the lanes that are marked as kept. */
void mist_plot_view_keep(struct mist_plot_view *view);

/* What mist_plot_view_fit() left out, in words; "": nothing. Fills and returns text. */
const char *mist_plot_view_note(const struct mist_plot_view *view, char *text,
                                size_t size);

/* "rank 0", or "rank 0, of 16" of a lane that stands for several. */
const char *mist_plot_rank_name(const struct mist_plot_lane *lane, char *text,
                                size_t size);

/* Ranks that have lanes; equal ones are one. */
int mist_plot_view_n_ranks(const struct mist_plot_view *view);

/* Behind the last lane of the rank whose first lane is given. */
int mist_plot_view_rank_end(const struct mist_plot_view *view, int i_lane);

/* The tasks of a lane in one timeline. */
static inline const struct mist_plot_span *
mist_plot_lane_spans(const struct mist_plot_view *view, int i_input, int i_lane,
                     size_t *n)
{
    size_t k = (size_t)i_input * (size_t)view->n_lanes + (size_t)i_lane;

    *n = view->first_span[k + 1] - view->first_span[k];
    return view->spans + view->first_span[k];
}

/* The share of the time shown of an input, up to its own end, in which the compute streams
 * shown ran a task. */
double mist_plot_busy_frac(const struct mist_plot_view *view, int i_input);

/* Tasks of one group in one cell. */
struct mist_plot_part {
    double busy_s;    /* of all of them */
    double longest_s; /* of the one that has most of it */
    size_t i_span;    /* that one */
};

/* The time axis of one lane in cells of equal length, each of which shows one thing. */
struct mist_plot_cells {
    int n;
    int min_run; /* cells of a pass in which a kind of tasks is told apart from the others */
    struct mist_plot_part (*parts)[MIST_N_GROUPS]; /* owned; [n] */
    size_t *i_span; /* owned; [n] the task that a cell shows, or MIST_PLOT_IDLE */
};

#define MIST_PLOT_IDLE ((size_t)-1)

MIST_MUST_CHECK enum mist_status mist_plot_cells_init(struct mist_plot_cells *cells,
                                                      int n, int min_run,
                                                      struct mist_err *err);
void mist_plot_cells_fini(struct mist_plot_cells *cells);

/* Shows a lane: in each cell the kind of tasks that covers most of it, or that it is idle. */
void mist_plot_cells_fill(struct mist_plot_cells *cells,
                          const struct mist_plot_view *view, int i_input, int i_lane);

/* Behind the cells that look like i_cell: a colour, a micro-batch. */
int mist_plot_cells_run_end(const struct mist_plot_cells *cells,
                            const struct mist_plot_view *view, int i_cell);

/* Whether two cells' tasks are of one pass of a micro-batch: recomputation is of the backward
 * pass. Takes no MIST_PLOT_IDLE. */
bool mist_plot_same_pass(const struct mist_plot_view *view, size_t a, size_t b);

#define MIST_PLOT_IDLE_COLOR 0xE6E6E6u

/* The time axis: seconds times scale are in unit ("s", "ms" or "us"). */
struct mist_plot_axis {
    double scale;
    const char *unit;
};
struct mist_plot_axis mist_plot_time_axis(double span_s);

/* Writes 'text' quoted for gnuplot, escaped (core/escape.h); '' when out of memory. */
void mist_plot_write_quoted(FILE *stream, const char *text);

/* Writes a gnuplot program; characters that DejaVu Sans may lack are '?' there. */
void mist_plot_write_letters(FILE *stream, const char *program);

/*
 * Widths of text. No terminal says how wide a text will be, so letters are taken for as
 * wide as the wide ones of their kind are.
 *
 * text_em     of text as it is written, in units of the size of the font
 * em_pixels   that unit for a font of some points, in the terminal that has it largest
 */
double mist_plot_text_em(const char *text);
double mist_plot_em_pixels(double points);

/* Sets n_keys, key_names and key_colors: the groups that are used, and the bubble. */
void mist_plot_write_key(FILE *stream, const bool is_used[MIST_N_GROUPS],
                         bool has_bubble);

/* Like mist_plot_write_quoted(); of a text wider than em the middle is left out. */
void mist_plot_write_fitted(FILE *stream, const char *text, double em);

/* Fills out with the text as it would be written, escaped, without quotes; returns it. What
 * size (at least 1) has no room for is left out. */
const char *mist_plot_fit(const char *text, double em, char *out, size_t size);

/* ------------------------------------------------------------------ kinds of pictures */

enum mist_plot_need {
    MIST_PLOT_NEEDED,
    MIST_PLOT_MAY_BE_EMPTY, /* a cell */
    MIST_PLOT_MAY_BE_ABSENT /* the column, or a cell */
};

/* A column of a table: texts of at most max_bytes, or numbers. */
struct mist_plot_column {
    const char *name;
    int max_bytes; /* 0: numbers */
    double min, max;
    enum mist_plot_need need;
    bool is_whole;
};

/* Initialisers: words, numbers, whole numbers. */
#define MIST_PLOT_WORDS(name, max_bytes, need)                                           \
    {                                                                                    \
        name, max_bytes, 0, 0, need, false                                               \
    }
#define MIST_PLOT_NUMBER(name, min, max, need)                                           \
    {                                                                                    \
        name, 0, min, max, need, false                                                   \
    }
#define MIST_PLOT_WHOLE(name, min, max)                                                  \
    {                                                                                    \
        name, 0, min, max, MIST_PLOT_NEEDED, true                                        \
    }

enum { MIST_PLOT_MAX_COLUMNS = 20 };

struct mist_plot_picture;

/* A table's picture has columns and write_table, that of timelines write_timelines; a Chrome
 * trace is none. */
struct mist_plot_kind {
    const char *title; /* of a table's picture; its file's name follows */
    const char *from;  /* the command that prints the table; NULL: none of ours does */
    const struct mist_plot_column *columns;
    size_t n_columns, max_rows;
    bool takes_others; /* columns that aren't drawn */
    enum mist_status (*write_table)(const struct mist_plot_picture *at,
                                    struct mist_err *err);
    enum mist_status (*write_timelines)(const struct mist_plot_picture *at,
                                        struct mist_err *err);
};

/* The kinds that are drawn: plots/NAME.gp and mist_plot_kind_NAME of each. */
#define MIST_PLOT_KINDS(KIND)                                                            \
    KIND(timeline)                                                                       \
    KIND(memory)                                                                         \
    KIND(breakdown)                                                                      \
    KIND(compare)                                                                        \
    KIND(differences)                                                                    \
    KIND(errors)                                                                         \
    KIND(ablation)                                                                       \
    KIND(sweep)                                                                          \
    KIND(sensitivity)                                                                    \
    KIND(rent)                                                                           \
    KIND(pareto)                                                                         \
    KIND(links)

/* Scripts are carried inside the program, so that a tool works wherever it is put. */
#define MIST_PLOT_DECLARE(name)                                                          \
    extern const char mist_script_##name[];                                              \
    extern const struct mist_plot_kind mist_plot_kind_##name;
MIST_PLOT_KINDS(MIST_PLOT_DECLARE)
extern const char mist_script_style[]; /* goes before the others */

/* A table of the columns of a kind. */
struct mist_plot_table {
    struct mist_csv *csv; /* owned */
    size_t n, n_columns;
    double *numbers; /* owned; [n, n_columns]; NAN: an empty cell, or a text */
    const struct mist_plot_column *columns;
    struct mist_csv_column csv_columns[MIST_PLOT_MAX_COLUMNS + 1];
};

/* MIST_ERR_INPUT: a cell, no rows, or too many. To be freed also after a failure. */
MIST_MUST_CHECK enum mist_status mist_plot_table_load(struct mist_plot_table *table,
                                                      const char *path,
                                                      const struct mist_plot_kind *kind,
                                                      struct mist_err *err);
void mist_plot_table_fini(struct mist_plot_table *table);

static inline double mist_plot_number(const struct mist_plot_table *table, size_t i,
                                      int i_column)
{
    return table->numbers[i * table->n_columns + (size_t)i_column];
}

static inline const char *mist_plot_text(const struct mist_plot_table *table, size_t i,
                                         int i_column)
{
    return mist_csv_text(table->csv, i, (size_t)i_column);
}

/* What a writer is given. */
struct mist_plot_picture {
    FILE *stream;
    const struct mist_plot_options *options;
    enum mist_plot_format format;
    bool is_text;
    const char *title;                   /* unless options have one */
    const struct mist_plot_table *table; /* or: */
    const struct mist_plot_input *inputs;
    int n_inputs;
};

/* Sizes of a page and the margins of its axes: pixels of a PNG; of a page made of text
 * columns and rows, its width being options->n_text_columns. */
struct mist_plot_page {
    int width, height;
    int left, right, top, bottom;
};

/* Writes the terminal, plots/style.gp, the title, and where the edges of the axes are. */
void mist_plot_write_page(const struct mist_plot_picture *at,
                          const struct mist_plot_page *page);

/* Sets n_panels and arrays panel_tops and panel_bottoms: edges from the top of the page. */
void mist_plot_write_panels(const struct mist_plot_picture *at,
                            const struct mist_plot_page *page, int n, const int *tops,
                            const int *bottoms);

/* "'text' 3" with a comma before all but the first; "array[3] = 'text'"; a line of data.
 * i counts from 0. Values that aren't finite are NaN, which draws nothing. */
void mist_plot_write_tic(FILE *stream, size_t i, const char *text);
void mist_plot_write_item(FILE *stream, const char *array, size_t i, const char *text);
void mist_plot_write_numbers(FILE *stream, size_t n, const double *values);

#endif
