/* What --help prints. See options.h. */
#include "core/options.h"
#include "core/options_internal.h"
#include "core/parse.h" /* words */

#include <math.h>
#include <string.h>
#include <sys/ioctl.h>

enum {
    COLUMN_HELP = 30, /* where help texts begin */
    COLUMN_EXIT = 9,  /* where meanings of exit codes do */
    LEAST_WIDTH = 60, /* of a terminal for which lines are broken */
};

/* Where texts are printed. */
struct page {
    FILE *stream;
    int width; /* columns; 0: a line for each text, which is no terminal's */
    int at;    /* the column where the last text ended */
};

#define ABOUT_ROW(i_name, i_help)                                                        \
    {                                                                                    \
        .name = i_name, .kind = MIST_OPTION_FLAG, .group = "About", .help = i_help       \
    }

const struct mist_option mist_options_about[] = {
    [ABOUT_HELP] = ABOUT_ROW("help", "print this text"),
    [ABOUT_VERSION] = ABOUT_ROW("version", "print the version"),
    [ABOUT_MAN] = ABOUT_ROW("man", "print the man page"),
    [ABOUT_COMPLETION] = {.name = "completion",
                          .kind = MIST_OPTION_CHOICE,
                          .group = "About",
                          .value_name = "SHELL",
                          .help = "print a script by which that shell completes options",
                          .choices = mist_shell_words},
};

/* "-j, --jobs=N" into buffer. */
static void spell(const struct mist_option *option, char *buffer, size_t size)
{
    char letter[8] = "    ";

    if (option->letter)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    snprintf(buffer, size, "%s--%s%s%s", letter, option->name,
             option->value_name ? "=" : "", option->value_name ? option->value_name : "");
}

void mist_options_describe_values(const struct mist_option *option, char *buffer,
                                  size_t size)
{
    char values[256] = "";

    if (option->choices) {
        mist_words_list(option->choices, values, sizeof values);
    } else if (option->max != 0 && isinf(option->max)) {
        snprintf(values, sizeof values, "at least %.15g", option->min);
    } else if (option->min != 0 || option->max != 0) {
        snprintf(values, sizeof values, "%.15g .. %.15g", option->min, option->max);
    }
    const char *text = option->default_text ? option->default_text : "";
    const char *note = option->default_text  ? "default: "
                       : option->is_required ? "required"
                                             : "";
    if (!values[0] && !note[0])
        buffer[0] = '\0';
    else
        snprintf(buffer, size, " [%s%s%s%s]", values, values[0] && note[0] ? "; " : "",
                 note, text);
}

static int terminal_width(FILE *stream)
{
    struct winsize size = {0};
    int fd = fileno(stream);

    return fd >= 0 && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= LEAST_WIDTH
               ? size.ws_col
               : 0;
}

/* Goes on with words, in lines that begin at a column. */
static void print_words(struct page *page, int column, const char *text)
{
    while (*text) {
        int n_blanks = (int)strspn(text, " ");
        int n = n_blanks + (int)strcspn(text + n_blanks, " ");
        if (page->width > 0 && page->at > column && page->at + n > page->width) {
            fprintf(page->stream, "\n%*s", column, "");
            page->at = column;
            text += n_blanks;
            n -= n_blanks;
        }
        page->at += fprintf(page->stream, "%.*s", n, text);
        text += n;
    }
}

static void print_row(struct page *page, int column, const char *left, const char *help,
                      const char *values)
{
    int n = fprintf(page->stream, "  %s", left);

    if (n > column - 2) {
        fputc('\n', page->stream);
        n = 0;
    }
    fprintf(page->stream, "%*s", column - n, "");
    page->at = column;
    print_words(page, column, help);
    print_words(page, column, values);
    fputc('\n', page->stream);
}

static void print_option(struct page *page, const struct mist_option *option)
{
    char left[128];
    char values[512];

    spell(option, left, sizeof left);
    mist_options_describe_values(option, values, sizeof values);
    print_row(page, COLUMN_HELP, left, option->help, values);
}

bool mist_options_begins_group(const struct mist_tool *tool, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (strcmp(mist_options_row(tool, k)->group, mist_options_row(tool, i)->group) ==
            0)
            return false;
    }
    return true;
}

void mist_options_describe_usage(const struct mist_tool *tool, char *buffer, size_t size)
{
    const char *name = tool->positional_name ? tool->positional_name : "";
    bool is_optional = *name && tool->positional_min == 0;
    bool repeats = *name && (tool->positional_max < 0 || tool->positional_max > 1);

    snprintf(buffer, size, "%s [OPTIONS]%s%s%s%s%s", tool->name, *name ? " " : "",
             is_optional ? "[" : "", name, repeats ? "..." : "", is_optional ? "]" : "");
}

const char *mist_options_exit_text(const struct mist_tool *tool, int code)
{
    static const char *const usual[MIST_N_EXIT_CODES] = {
        [0] = "success",
        [1] = "the run failed",
        [2] = "the command line is wrong",
        [3] = "an input file or a value in it is invalid",
        [5] = "a file can't be read or written",
    };

    return tool->exit_texts[code] ? tool->exit_texts[code] : usual[code];
}

static void print_exit_codes(struct page *page, const struct mist_tool *tool)
{
    fputs("\nExit codes:\n", page->stream);
    for (int i = 0; i < MIST_N_EXIT_CODES; i++) {
        const char code[] = {(char)('0' + i), '\0'};
        const char *text = mist_options_exit_text(tool, i);
        if (text)
            print_row(page, COLUMN_EXIT, code, text, "");
    }
    if (tool->signal_text)
        print_row(page, COLUMN_EXIT, "128+n", tool->signal_text, "");
}

void mist_options_print_help(const struct mist_tool *tool, FILE *stream)
{
    struct page page = {stream, terminal_width(stream), 0};
    char usage[256];

    fprintf(stream, "%s: %s\n\nExamples:\n", tool->name, tool->purpose);
    for (size_t i = 0; tool->examples && tool->examples[i]; i++)
        fprintf(stream, "  %s\n", tool->examples[i]);
    mist_options_describe_usage(tool, usage, sizeof usage);
    fprintf(stream, "\nUsage: %s\n", usage);
    if (tool->positional_name && tool->positional_help)
        print_row(&page, COLUMN_HELP, tool->positional_name, tool->positional_help, "");
    for (size_t i = 0; i < tool->n_options + N_ABOUT; i++) {
        if (!mist_options_begins_group(tool, i))
            continue;
        const char *group = mist_options_row(tool, i)->group;
        fprintf(stream, "\n%s:\n", group);
        for (size_t k = i; k < tool->n_options + N_ABOUT; k++)
            if (strcmp(mist_options_row(tool, k)->group, group) == 0)
                print_option(&page, mist_options_row(tool, k));
    }
    print_exit_codes(&page, tool);
}
