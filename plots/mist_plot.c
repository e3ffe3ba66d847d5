/*
 * mist-plot: pictures of timelines and results.
 *
 *   $ mist-plot timeline predicted.csv measured.csv -o run.png
 *   $ mist-plot timeline run.csv --ranks 0-1 -o -
 *   run.csv: 21.0 ms
 *   rank 0     compute        0fff1fff........0bbbbb1bbbbbooo
 *   rank 1     compute        ....0fff1fff0bbbbb1bbbbb....ooo
 *                             |0ms        |10         |20
 *   f forward  b backward  o optimizer  . idle  (numbers: micro-batches)
 */
#include "core/embed.h"
#include "core/interrupt.h"
#include "core/options.h"
#include "plots/plot.h"
#include "traces/chrome_trace.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define MAX_INPUTS 16

struct plot_options {
    struct mist_common_options common;
    const char *title;
    const char *ranks;
    double from_s, to_s;
    int64_t limit_bytes;
};

static const struct mist_option OPTIONS[] = {
    {.name = "title",
     .kind = MIST_OPTION_STRING,
     .group = "Picture",
     .value_name = "TEXT",
     .help = "heading of the picture",
     .offset = offsetof(struct plot_options, title)},
    {.name = "ranks",
     .kind = MIST_OPTION_STRING,
     .group = "Picture",
     .value_name = "LIST",
     .help = "ranks to draw, such as 0-3,5 (timeline, memory)",
     .default_text = "all",
     .offset = offsetof(struct plot_options, ranks)},
    {.name = "from",
     .kind = MIST_OPTION_DOUBLE,
     .group = "Picture",
     .value_name = "S",
     .help = "begin of the time axis in seconds (timeline, memory)",
     .default_text = "0",
     .min = 0,
     .max = 1e12,
     .offset = offsetof(struct plot_options, from_s)},
    {.name = "to",
     .kind = MIST_OPTION_DOUBLE,
     .group = "Picture",
     .value_name = "S",
     .help = "end of the time axis in seconds; 0: the end (timeline, memory)",
     .default_text = "0",
     .min = 0,
     .max = 1e12,
     .offset = offsetof(struct plot_options, to_s)},
    {.name = "limit",
     .kind = MIST_OPTION_BYTES,
     .group = "Picture",
     .value_name = "SIZE",
     .help = "device memory, drawn as a line, such as 80GiB (memory)",
     .offset = offsetof(struct plot_options, limit_bytes)},
    MIST_OPTION_ROW_OUTPUT(struct plot_options,
                           "picture, .png, .svg or .pdf; - draws in the terminal", "-"),
    MIST_OPTION_ROW_FORCE(struct plot_options),
    MIST_OPTION_ROW_QUIET(struct plot_options),
    MIST_OPTION_ROW_NO_COLOR(struct plot_options),
};

static const char *const EXAMPLES[] = {
    "mist-plot timeline predicted.csv measured.csv -o run.png",
    "mist-plot memory run.csv --limit 80GiB -o memory.svg",
    "mist-plot chrome run.csv -o run.json    # open in ui.perfetto.dev",
    NULL,
};

/* ---- kinds of pictures, in two families ---- */

typedef enum mist_status
timeline_function(FILE *stream, const struct mist_plot_input *inputs, int n_inputs,
                  const struct mist_plot_options *options, enum mist_plot_format format,
                  struct mist_err *err);
typedef enum mist_status table_function(FILE *stream, const char *path,
                                        const struct mist_plot_options *options,
                                        enum mist_plot_format format,
                                        struct mist_err *err);

/* Word, writer of timelines or of a table; neither: Chrome trace. */
#define KINDS_LIST(KIND)                                                                 \
    KIND("timeline", mist_plot_write_timeline, NULL)                                     \
    KIND("memory", mist_plot_write_memory, NULL)                                         \
    KIND("breakdown", NULL, mist_plot_write_breakdown)                                   \
    KIND("compare", NULL, mist_plot_write_compare)                                       \
    KIND("differences", NULL, mist_plot_write_differences)                               \
    KIND("errors", NULL, mist_plot_write_errors)                                         \
    KIND("ablation", NULL, mist_plot_write_ablation)                                     \
    KIND("sweep", NULL, mist_plot_write_sweep)                                           \
    KIND("sensitivity", NULL, mist_plot_write_sensitivity)                               \
    KIND("rent", NULL, mist_plot_write_rent)                                             \
    KIND("pareto", NULL, mist_plot_write_pareto)                                         \
    KIND("links", NULL, mist_plot_write_links)                                           \
    KIND("chrome", NULL, NULL)

#define KIND_ROW(word, timelines, table)  {word, timelines, table},
#define KIND_WORD(word, timelines, table) word,
static const struct kind {
    const char *name;
    timeline_function *write_timelines;
    table_function *write_table;
} KINDS[] = {KINDS_LIST(KIND_ROW)};
static const char *const KIND_WORDS[] = {KINDS_LIST(KIND_WORD) NULL};

extern const char mist_plot_manual[];
MIST_EMBED(mist_plot_manual, "plots/mist_plot.man");

static const struct mist_tool TOOL = {
    .name = "mist-plot",
    .purpose = "draws timelines, memory, predictions, Pareto frontiers and link fits",
    .examples = EXAMPLES,
    .options = OPTIONS,
    .n_options = sizeof OPTIONS / sizeof *OPTIONS,
    .positional_name = "KIND FILE",
    .positional_help =
        "timeline, memory (timelines, one above the other), breakdown, compare, "
        "differences, errors, ablation, sweep, sensitivity, rent, pareto, links (a "
        "table), chrome (a timeline as Chrome trace)",
    .first_words = KIND_WORDS,
    .positional_min = 2,
    .manual = mist_plot_manual,
    .positional_max = 1 + MAX_INPUTS,
};

static const struct kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (strcmp(KINDS[i].name, name) == 0)
            return &KINDS[i];
    return NULL;
}

static enum mist_status refuse_kind(const char *name, struct mist_err *err)
{
    char words[256] = "";

    for (int i = 0; KIND_WORDS[i]; i++) {
        size_t n = strlen(words);
        snprintf(words + n, sizeof words - n, "%s%s",
                 i == 0              ? ""
                 : KIND_WORDS[i + 1] ? ", "
                                     : " or ",
                 KIND_WORDS[i]);
    }
    return mist_err_set(err, MIST_ERR_USAGE, "'%s' is no kind of picture, expected %s",
                        name, words);
}

/* Options are for kinds that can follow them. */
static enum mist_status check_options(const struct kind *kind,
                                      const struct plot_options *given,
                                      const struct mist_positionals *files,
                                      struct mist_err *err)
{
    const struct {
        const char *name;
        bool has_it;
    } uses[] = {
        {"title", kind->write_timelines || kind->write_table},
        {"ranks", kind->write_timelines},
        {"from", kind->write_timelines},
        {"to", kind->write_timelines},
        {"limit", kind->write_timelines == mist_plot_write_memory},
    };

    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
        if (!uses[i].has_it && mist_options_is_given(&TOOL, files, uses[i].name))
            return mist_err_set(err, MIST_ERR_USAGE, "--%s: %s has none", uses[i].name,
                                kind->name);
    if (given->limit_bytes > 0 && given->limit_bytes < 1 << 20)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--limit is %lld bytes, which can't be meant; a unit stands "
                            "behind the number: %lldGiB",
                            (long long)given->limit_bytes, (long long)given->limit_bytes);
    if (given->to_s > 0 && given->to_s <= given->from_s)
        return mist_err_set(err, MIST_ERR_USAGE, "--to %g is not after --from %g",
                            given->to_s, given->from_s);
    return MIST_OK;
}

/* The size of the terminal, or one that fits in a mail. */
static void find_text_size(struct mist_plot_options *options)
{
    struct winsize size = {0};

    options->n_text_columns = 100;
    options->n_text_rows = 32;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 50 &&
        size.ws_row >= 16) {
        options->n_text_columns = size.ws_col;
        options->n_text_rows = size.ws_row - 1;
    }
}

/* The last part of a path: what a panel is called. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

static enum mist_status draw(const struct kind *kind,
                             const struct mist_plot_input *inputs, int n_inputs,
                             const char *table, const struct mist_plot_options *options,
                             const struct plot_options *given, struct mist_err *err)
{
    struct mist_plot_run run = {0};
    enum mist_plot_format format = MIST_PLOT_TEXT;
    enum mist_status status =
        mist_plot_format_from_path(given->common.output, &format, err);

    if (status == MIST_OK)
        status =
            mist_plot_begin(&run, given->common.output, format, given->common.force, err);
    if (status != MIST_OK)
        return status;
    if (kind->write_timelines)
        status =
            kind->write_timelines(run.program, inputs, n_inputs, options, format, err);
    else
        status = kind->write_table(run.program, table, options, format, err);
    if (status == MIST_OK)
        return mist_plot_finish(&run, err);
    mist_plot_abort(&run);
    return status;
}

/* Timelines are loaded, then drawn, printed or converted. */
static enum mist_status draw_timelines(const struct kind *kind, char **paths, int n_paths,
                                       const struct mist_plot_options *options,
                                       const struct plot_options *given,
                                       struct mist_err *err)
{
    struct mist_timeline timelines[MAX_INPUTS] = {0};
    struct mist_plot_input inputs[MAX_INPUTS];
    enum mist_status status = MIST_OK;
    const char *output = given->common.output;

    for (int i = 0; i < n_paths && status == MIST_OK; i++) {
        inputs[i] = (struct mist_plot_input){&timelines[i], base_name(paths[i])};
        status = mist_timeline_load(&timelines[i], paths[i], err);
    }
    if (status != MIST_OK)
        goto out;
    bool is_stdout = strcmp(output, "-") == 0;
    if (!kind->write_timelines && is_stdout)
        status = mist_chrome_trace_write(&timelines[0], stdout, err);
    else if (!kind->write_timelines)
        status = mist_chrome_trace_save(&timelines[0], output, given->common.force, err);
    else if (strcmp(kind->name, "timeline") == 0 && is_stdout)
        status = mist_plot_print_gantt(stdout, inputs, n_paths, options, err);
    else
        status = draw(kind, inputs, n_paths, NULL, options, given, err);
out:
    for (int i = 0; i < n_paths; i++)
        mist_timeline_fini(&timelines[i]);
    return status;
}

static enum mist_status run(int argc, char **argv, struct mist_err *err)
{
    struct plot_options given;
    struct mist_plot_options options = {0};
    struct mist_positionals files;
    bool is_done = false;
    enum mist_status status =
        mist_options_parse(&TOOL, argc, argv, &given, &files, stdout, &is_done, err);

    if (status != MIST_OK || is_done)
        return status;
    const struct kind *kind = find_kind(files.items[0]);
    int n_files = files.n - 1;
    if (!kind)
        return refuse_kind(files.items[0], err);
    if (!kind->write_timelines && n_files != 1)
        return mist_err_set(err, MIST_ERR_USAGE, "%s takes one file, not %d", kind->name,
                            n_files);
    status = check_options(kind, &given, &files, err);
    if (status == MIST_OK)
        status = mist_plot_parse_ranks(given.ranks, &options.ranks, err);
    if (status != MIST_OK)
        return status;
    options.title = given.title;
    options.from_s = given.from_s;
    options.to_s = given.to_s;
    options.limit_bytes = given.limit_bytes;
    options.has_colors =
        isatty(STDOUT_FILENO) && !given.common.no_color && !getenv("NO_COLOR");
    find_text_size(&options);
    if (kind->write_table)
        return draw(kind, NULL, 0, files.items[1], &options, &given, err);
    return draw_timelines(kind, files.items + 1, n_files, &options, &given, err);
}

int main(int argc, char **argv)
{
    struct mist_err err = {0};

    mist_interrupt_ignore_file_size();
    enum mist_status status = run(argc, argv, &err);

    if (status == MIST_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = mist_err_set(&err, MIST_ERR_IO, "standard output can't be written");
    if (status != MIST_OK)
        mist_err_print(&err, "mist-plot", stderr);
    return mist_exit_code(status);
}
