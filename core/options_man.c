/* What --man prints: what the table says, within what the tool's manual says. See options.h. */
#include "core/embed.h"
#include "core/options.h"
#include "core/options_internal.h"

#include <string.h>

/* The words that output of all tools is made of, and where to read on. */
extern const char mist_manual_words[];
MIST_EMBED(mist_manual_words, "core/manual/words.man");

/* Text that roff prints as it is, and that can be copied from a terminal. */
static void print_roff(const char *text, FILE *stream)
{
    static const struct {
        char plain;
        const char *roff;
    } special[] = {{'\\', "\\e"},  {'-', "\\-"},   {'\'', "\\(aq"},
                   {'`', "\\(ga"}, {'^', "\\(ha"}, {'~', "\\(ti"}};
    bool is_line_start = true;

    for (; *text; text++) {
        const char *roff = NULL;
        if (is_line_start && *text == '.')
            fputs("\\&", stream);
        for (size_t i = 0; i < sizeof special / sizeof *special; i++)
            if (special[i].plain == *text)
                roff = special[i].roff;
        if (roff)
            fputs(roff, stream);
        else
            fputc(*text, stream);
        is_line_start = *text == '\n';
    }
}

static void print_option(const struct mist_option *option, FILE *stream)
{
    char values[512];

    mist_options_describe_values(option, values, sizeof values);
    fputs(".TP\n", stream);
    if (option->letter)
        fprintf(stream, "\\fB\\-%c\\fR, ", option->letter);
    fputs("\\fB\\-\\-", stream);
    print_roff(option->name, stream);
    fputs("\\fR", stream);
    if (option->value_name) {
        fputs("=\\fI", stream);
        print_roff(option->value_name, stream);
        fputs("\\fR", stream);
    }
    fputc('\n', stream);
    print_roff(option->help, stream);
    print_roff(values, stream);
    fputc('\n', stream);
}

static void print_options(const struct mist_tool *tool, FILE *stream)
{
    fputs(".SH OPTIONS\n", stream);
    for (size_t i = 0; i < tool->n_options + N_ABOUT; i++) {
        if (!mist_options_begins_group(tool, i))
            continue;
        const char *group = mist_options_row(tool, i)->group;
        fprintf(stream, ".SS %s\n", group);
        for (size_t k = i; k < tool->n_options + N_ABOUT; k++)
            if (strcmp(mist_options_row(tool, k)->group, group) == 0)
                print_option(mist_options_row(tool, k), stream);
    }
}

static void print_head(const struct mist_tool *tool, FILE *stream)
{
    char usage[256];

    fputs(".TH ", stream);
    for (const char *c = tool->name; *c; c++)
        fputc(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c, stream);
    fputs(" 1 \"" MIST_DATE "\" \"Mist " MIST_VERSION "\" \"Mist\"\n.SH NAME\n", stream);
    print_roff(tool->name, stream);
    fputs(" \\- ", stream);
    print_roff(tool->purpose, stream);
    fputs("\n.SH SYNOPSIS\n", stream);
    mist_options_describe_usage(tool, usage, sizeof usage);
    print_roff(usage, stream);
    fputc('\n', stream);
}

static void print_exit_codes(const struct mist_tool *tool, FILE *stream)
{
    fputs(".SH EXIT STATUS\n", stream);
    for (int i = 0; i < MIST_N_EXIT_CODES; i++) {
        const char *text = mist_options_exit_text(tool, i);
        if (text) {
            fprintf(stream, ".TP 8\n%d\n", i);
            print_roff(text, stream);
            fputc('\n', stream);
        }
    }
    if (tool->signal_text) {
        fputs(".TP 8\n128+n\n", stream);
        print_roff(tool->signal_text, stream);
        fputc('\n', stream);
    }
}

void mist_options_print_man(const struct mist_tool *tool, FILE *stream)
{
    const char *manual = tool->manual ? tool->manual : "";
    const char *behind = strstr(manual, MIST_MANUAL_OPTIONS);
    size_t n_before = behind ? (size_t)(behind - manual) : strlen(manual);

    print_head(tool, stream);
    fwrite(manual, 1, n_before, stream);
    print_options(tool, stream);
    print_exit_codes(tool, stream);
    fputs(".SH EXAMPLES\n.nf\n", stream);
    for (size_t i = 0; tool->examples && tool->examples[i]; i++) {
        print_roff(tool->examples[i], stream);
        fputc('\n', stream);
    }
    fputs(".fi\n", stream);
    if (behind)
        fputs(behind + strlen(MIST_MANUAL_OPTIONS), stream);
    if (*manual)
        fputs(mist_manual_words, stream);
}
