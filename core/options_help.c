/* What --help, --man and --completion print. See options.h. */
#include "core/options.h"

#include <math.h>
#include <string.h>

#define COLUMN_HELP 30 /* where help texts begin */

/* ---- help ---- */

/* "-j, --jobs=N" into buffer. */
static void spell(const struct mist_option *option, char *buffer, size_t size)
{
    char letter[8] = "    ";

    if (option->letter)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    snprintf(buffer, size, "%s--%s%s%s", letter, option->name,
             option->value_name ? "=" : "", option->value_name ? option->value_name : "");
}

/* " [auto, always, never; default: auto]", "" when there is nothing to say. */
static void describe_values(const struct mist_option *option, char *buffer, size_t size)
{
    char values[256] = "";
    size_t n = 0;

    if (option->choices) {
        for (int i = 0; option->choices[i] && n < sizeof values; i++)
            n += (size_t)snprintf(values + n, sizeof values - n, "%s%s", i ? ", " : "",
                                  option->choices[i]);
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

static void print_row(const char *left, const char *help, const char *values,
                      FILE *stream)
{
    int n = fprintf(stream, "  %s", left);

    if (n > COLUMN_HELP - 2) {
        fputc('\n', stream);
        n = 0;
    }
    fprintf(stream, "%*s%s%s\n", COLUMN_HELP - n, "", help, values);
}

static void print_option(const struct mist_option *option, FILE *stream)
{
    char left[128];
    char values[512];

    spell(option, left, sizeof left);
    describe_values(option, values, sizeof values);
    print_row(left, option->help, values, stream);
}

/* Whether option i is the first of its group;
 * groups come in the order of their first row. */
static bool begins_group(const struct mist_tool *tool, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (strcmp(tool->options[k].group, tool->options[i].group) == 0)
            return false;
    }
    return true;
}

static void print_usage(const struct mist_tool *tool, FILE *stream)
{
    const char *name = tool->positional_name;

    fprintf(stream, "%s [OPTIONS]", tool->name);
    if (name)
        fprintf(stream, " %s%s%s%s", tool->positional_min > 0 ? "" : "[", name,
                tool->positional_max < 0 || tool->positional_max > 1 ? "..." : "",
                tool->positional_min > 0 ? "" : "]");
    fputc('\n', stream);
}

static const char exit_codes[] = "  0  success\n"
                                 "  1  the run failed\n"
                                 "  2  the command line is wrong\n"
                                 "  3  an input file or a value in it is invalid\n";

static const char exit_codes_io[] = "  5  a file can't be read or written\n";

void mist_options_print_help(const struct mist_tool *tool, FILE *stream)
{
    fprintf(stream, "%s: %s\n\nExamples:\n", tool->name, tool->purpose);
    for (size_t i = 0; tool->examples && tool->examples[i]; i++)
        fprintf(stream, "  %s\n", tool->examples[i]);
    fputs("\nUsage: ", stream);
    print_usage(tool, stream);
    if (tool->positional_name && tool->positional_help)
        print_row(tool->positional_name, tool->positional_help, "", stream);
    for (size_t i = 0; i < tool->n_options; i++) {
        if (!begins_group(tool, i))
            continue;
        fprintf(stream, "\n%s:\n", tool->options[i].group);
        for (size_t k = i; k < tool->n_options; k++) {
            if (strcmp(tool->options[k].group, tool->options[i].group) == 0)
                print_option(&tool->options[k], stream);
        }
    }
    fputs("\nAbout:\n", stream);
    print_row("    --help", "print this text", "", stream);
    print_row("    --version", "print the version", "", stream);
    print_row("    --man", "print the man page", "", stream);
    print_row("    --completion", "print a script for bash completion", "", stream);
    fprintf(stream, "\nExit codes:\n%s%s%s", exit_codes,
            tool->exit_text ? tool->exit_text : "", exit_codes_io);
}

/* ---- man page ---- */

/* Text that roff prints as it is. */
static void print_roff(const char *text, FILE *stream)
{
    bool is_line_start = true;

    for (; *text; text++) {
        if (is_line_start && strchr(".'", *text))
            fputs("\\&", stream);
        if (*text == '\\')
            fputs("\\e", stream);
        else if (*text == '-')
            fputs("\\-", stream);
        else
            fputc(*text, stream);
        is_line_start = *text == '\n';
    }
}

static void print_man_option(const struct mist_option *option, FILE *stream)
{
    char values[512];

    describe_values(option, values, sizeof values);
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

void mist_options_print_man(const struct mist_tool *tool, FILE *stream)
{
    fputs(".TH ", stream);
    print_roff(tool->name, stream);
    fputs(" 1 \"\" \"Mist\"\n.SH NAME\n", stream);
    print_roff(tool->name, stream);
    fputs(" \\- ", stream);
    print_roff(tool->purpose, stream);
    fputs("\n.SH SYNOPSIS\n", stream);
    print_usage(tool, stream);
    fputs(".SH EXAMPLES\n.nf\n", stream);
    for (size_t i = 0; tool->examples && tool->examples[i]; i++) {
        print_roff(tool->examples[i], stream);
        fputc('\n', stream);
    }
    fputs(".fi\n.SH OPTIONS\n", stream);
    for (size_t i = 0; i < tool->n_options; i++) {
        if (!begins_group(tool, i))
            continue;
        fprintf(stream, ".SS %s\n", tool->options[i].group);
        for (size_t k = i; k < tool->n_options; k++) {
            if (strcmp(tool->options[k].group, tool->options[i].group) == 0)
                print_man_option(&tool->options[k], stream);
        }
    }
    fputs(".SS About\n.TP\n\\fB\\-\\-help\\fR, \\fB\\-\\-version\\fR, \\fB\\-\\-man\\fR, "
          "\\fB\\-\\-completion\\fR\nPrint the options, the version, this page, a script "
          "for "
          "bash completion\n.SH EXIT STATUS\n.nf\n",
          stream);
    print_roff(exit_codes, stream);
    print_roff(tool->exit_text ? tool->exit_text : "", stream);
    print_roff(exit_codes_io, stream);
    fputs(".fi\n", stream);
}

/* ---- bash completion ---- */

/* "mist-tune" -> "_mist_tune". */
static void print_function_name(const struct mist_tool *tool, FILE *stream)
{
    fputc('_', stream);
    for (const char *c = tool->name; *c; c++)
        fputc(*c == '-' ? '_' : *c, stream);
}

void mist_options_print_completion(const struct mist_tool *tool, FILE *stream)
{
    print_function_name(tool, stream);
    fputs("()\n{\n    local word=${COMP_WORDS[COMP_CWORD]} "
          "before=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    if [[ $word == \"=\" ]]; then word=; fi\n"
          "    if [[ $before == \"=\" ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
          "    case $before in\n",
          stream);
    for (size_t i = 0; i < tool->n_options; i++) {
        const struct mist_option *option = &tool->options[i];
        if (!option->choices)
            continue;
        fprintf(stream, "    --%s) COMPREPLY=($(compgen -W \"", option->name);
        for (int k = 0; option->choices[k]; k++)
            fprintf(stream, "%s%s", k ? " " : "", option->choices[k]);
        fputs("\" -- \"$word\")); return ;;\n", stream);
    }
    fputs("    esac\n    case $word in\n    -*) COMPREPLY=($(compgen -W \"", stream);
    for (size_t i = 0; i < tool->n_options; i++)
        fprintf(stream, "--%s ", tool->options[i].name);
    fputs("--help --version --man --completion\" -- \"$word\")) ;;\n"
          "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n    esac\n}\ncomplete -o "
          "filenames "
          "-F ",
          stream);
    print_function_name(tool, stream);
    fprintf(stream, " %s\n", tool->name);
}
