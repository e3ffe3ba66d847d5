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
#include "core/atomic_file.h"
#include "core/embed.h"
#include "core/interrupt.h"
#include "core/options.h"
#include "core/parse.h" /* mist_check_memory_bytes */
#include "core/path.h"
#include "core/text_distance.h"
#include "plots/plot.h"
#include "traces/chrome_trace.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define MAX_INPUTS 16

struct plot_options {
    struct mist_common_options common;
    struct mist_plot_options picture;
    const char *ranks;
};

#define ROW(...) MIST_OPTION_ROW(struct plot_options, __VA_ARGS__)

static const struct mist_option OPTIONS[] = {
    {.name = "title",
     .kind = MIST_OPTION_STRING,
     .group = "Picture",
     .value_name = "TEXT",
     .help = "heading of the picture",
     .may_be_empty = true,
     .offset = offsetof(struct plot_options, picture.title)},
    ROW("ranks", MIST_OPTION_STRING, ranks, "Picture", "LIST", "all", 0, 0,
        "ranks to draw, such as 0-3,5 (timeline, memory)"),
    ROW("from", MIST_OPTION_TIME_S, picture.from_s, "Picture", "TIME", "0s", 0, 1e12,
        "begin of the time axis, such as 20ms (timeline, memory)"),
    ROW("to", MIST_OPTION_TIME_S, picture.to_s, "Picture", "TIME", "0s", 0, 1e12,
        "end of the time axis; 0s: the end (timeline, memory)"),
    ROW("limit", MIST_OPTION_BYTES, picture.limit_bytes, "Picture", "SIZE", NULL, 0, 0,
        "device memory, drawn as a line, such as 80GiB (memory)"),
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
    .first_words = mist_plot_kind_names,
    .positional_min = 2,
    .manual = mist_plot_manual,
    .positional_max = 1 + MAX_INPUTS,
};

static enum mist_status refuse_kind(const char *name, struct mist_err *err)
{
    char words[256] = "";
    const char *nearest = NULL;
    size_t best = mist_text_too_far(strlen(name));

    for (int i = 0; mist_plot_kind_names[i]; i++) {
        mist_text_add(words, sizeof words, mist_plot_kind_names[i + 1] ? ", " : " or ",
                      "%s", mist_plot_kind_names[i]);
        if (mist_text_is_nearer(name, strlen(name), mist_plot_kind_names[i], &best))
            nearest = mist_plot_kind_names[i];
    }
    if (nearest)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "'%.80s' is no kind of picture; did you mean %s?", name,
                            nearest);
    return mist_err_set(err, MIST_ERR_USAGE, "'%.80s' is no kind of picture, expected %s",
                        name, words);
}

/* Options are for kinds that can follow them. */
static enum mist_status check_options(const char *kind, enum mist_plot_family family,
                                      const struct mist_plot_options *given,
                                      const struct mist_positionals *files,
                                      struct mist_err *err)
{
    const struct {
        const char *name;
        bool has_it;
    } uses[] = {
        {"title", family != MIST_PLOT_CHROME},   {"ranks", family == MIST_PLOT_TIMELINES},
        {"from", family == MIST_PLOT_TIMELINES}, {"to", family == MIST_PLOT_TIMELINES},
        {"limit", strcmp(kind, "memory") == 0},
    };

    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
        if (!uses[i].has_it && mist_options_is_given(&TOOL, files, uses[i].name))
            return mist_err_set(err, MIST_ERR_USAGE, "--%s: %s has none", uses[i].name,
                                kind);
    if (given->limit_bytes > 0 && mist_check_memory_bytes("--limit", given->limit_bytes,
                                                          MIST_ERR_USAGE, err) != MIST_OK)
        return MIST_ERR_USAGE;
    if (given->to_s > 0 && given->to_s <= given->from_s)
        return mist_err_set(err, MIST_ERR_USAGE, "--to %gs is not after --from %gs",
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

/* inputs: of a kind that draws timelines, else table. */
static enum mist_status draw(const struct mist_plot_kind *kind,
                             const struct mist_plot_input *inputs, int n_inputs,
                             const char *table, const struct plot_options *given,
                             struct mist_err *err)
{
    const struct mist_plot_options *options = &given->picture;
    struct mist_plot_run run = {0};
    enum mist_plot_format format = MIST_PLOT_TEXT;
    enum mist_status status =
        mist_plot_format_from_path(given->common.output, &format, err);

    if (status == MIST_OK)
        status =
            mist_plot_begin(&run, given->common.output, format, given->common.force, err);
    if (status != MIST_OK)
        return status;
    status = inputs
                 ? mist_plot_write_timelines(run.program, kind, inputs, n_inputs, options,
                                             format, err)
                 : mist_plot_write_table(run.program, kind, table, options, format, err);
    if (status == MIST_OK)
        return mist_plot_finish(&run, err);
    mist_plot_abort(&run);
    return status;
}

/* Timelines are loaded, then drawn, printed or converted. */
static enum mist_status draw_timelines(const struct mist_plot_kind *kind,
                                       const struct mist_positionals *files,
                                       const struct plot_options *given,
                                       struct mist_err *err)
{
    struct mist_timeline timelines[MAX_INPUTS] = {0};
    struct mist_plot_input inputs[MAX_INPUTS];
    enum mist_status status = MIST_OK;
    const char *output = given->common.output;
    bool is_stdout = strcmp(output, "-") == 0;
    bool is_chrome = mist_plot_family_of(kind) == MIST_PLOT_CHROME;
    int n = files->n - 1;

    for (int i = 0; i < n && status == MIST_OK; i++) {
        inputs[i] =
            (struct mist_plot_input){&timelines[i], mist_path_name(files->items[i + 1])};
        status = mist_timeline_load(&timelines[i], files->items[i + 1], err);
    }
    if (status != MIST_OK)
        goto out;
    if (is_chrome && is_stdout)
        status = mist_chrome_trace_write(&timelines[0], stdout, err);
    else if (is_chrome)
        status = mist_chrome_trace_save(&timelines[0], output, given->common.force, err);
    else if (strcmp(files->items[0], "timeline") == 0 && is_stdout)
        status = mist_plot_print_gantt(stdout, inputs, n, &given->picture, err);
    else
        status = draw(kind, inputs, n, NULL, given, err);
out:
    for (int i = 0; i < n; i++)
        mist_timeline_fini(&timelines[i]);
    return status;
}

static enum mist_status run(int argc, char **argv, struct mist_err *err)
{
    struct plot_options given = {0};
    struct mist_positionals files;
    bool is_done = false;
    enum mist_status status =
        mist_options_parse(&TOOL, argc, argv, &given, &files, stdout, &is_done, err);

    if (status != MIST_OK || is_done)
        return status;
    const char *name = files.items[0];
    const struct mist_plot_kind *kind = mist_plot_find_kind(name);
    if (!kind)
        return refuse_kind(name, err);
    enum mist_plot_family family = mist_plot_family_of(kind);
    if (family != MIST_PLOT_TIMELINES && files.n != 2)
        return mist_err_set(err, MIST_ERR_USAGE, "%s takes one file, not %d", name,
                            files.n - 1);
    status = check_options(name, family, &given.picture, &files, err);
    if (status == MIST_OK)
        status = mist_plot_parse_ranks(given.ranks, &given.picture.ranks, err);
    if (status != MIST_OK)
        return status;
    bool is_stdout = strcmp(given.common.output, "-") == 0;
    const struct mist_output output = {"output", is_stdout ? NULL : given.common.output};
    for (int i = 1; i < files.n && status == MIST_OK; i++)
        status = mist_outputs_check_apart(
            &output, 1, &(struct mist_files){"FILE", files.items[i], NULL}, 1, err);
    if (status != MIST_OK)
        return status;
    given.picture.has_colors =
        isatty(STDOUT_FILENO) && !given.common.no_color && !getenv("NO_COLOR");
    find_text_size(&given.picture);
    if (family == MIST_PLOT_TABLE)
        return draw(kind, NULL, 0, files.items[1], &given, err);
    return draw_timelines(kind, &files, &given, err);
}

int main(int argc, char **argv)
{
    struct mist_err err = {0};

    mist_interrupt_settle();
    enum mist_status status = run(argc, argv, &err);

    if (status == MIST_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = mist_err_set(&err, MIST_ERR_IO, "standard output can't be written");
    if (status != MIST_OK)
        mist_err_print(&err, "mist-plot", stderr);
    return mist_exit_code(status);
}
