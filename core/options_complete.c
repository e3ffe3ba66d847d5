/* Completion for bash, zsh and fish from a tool's table of options. See options.h. */
#include "core/options.h"
#include "core/options_internal.h"

#include <string.h>

const char *const mist_shell_words[] = {"bash", "zsh", "fish", NULL};
enum { SHELL_BASH, SHELL_ZSH, SHELL_FISH };

/* What may stand behind an option. */
enum value { VALUE_NONE, VALUE_WORD, VALUE_FILE, VALUE_FOLDER, VALUE_OTHER, N_VALUES };

static enum value value_of(const struct mist_option *option)
{
    static const char *const files[] = {"FILE", "PATH", "CLUSTER", "MODEL", "NAME"};

    if (option->kind == MIST_OPTION_FLAG)
        return VALUE_NONE;
    if (option->choices)
        return VALUE_WORD;
    if (strcmp(option->value_name, "DIR") == 0)
        return VALUE_FOLDER;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(option->value_name, files[i]) == 0)
            return VALUE_FILE;
    return VALUE_OTHER;
}

static void print_words(const char *const *words, FILE *stream)
{
    for (int i = 0; words[i]; i++)
        fprintf(stream, "%s%s", i ? " " : "", words[i]);
}

/* The inside of a text in single quotes: what is in `escaped` behind a backslash, a quote
 * as `quote`. */
static void print_quoted(const char *text, const char *escaped, const char *quote,
                         FILE *stream)
{
    for (; *text; text++) {
        if (*text == '\'') {
            fputs(quote, stream);
            continue;
        }
        if (strchr(escaped, *text))
            fputc('\\', stream);
        fputc(*text, stream);
    }
}

/* ---- bash ---- */

/* "    --output|-o|--log) mapfile ...; return ;;" for all options with that kind of value. */
static void print_bash_case(const struct mist_tool *tool, enum value value,
                            const char *compgen, FILE *stream)
{
    const char *before = "    ";

    for (size_t i = 0; i < tool->n_options + N_ABOUT; i++) {
        const struct mist_option *option = mist_options_row(tool, i);
        if (value_of(option) != value)
            continue;
        fprintf(stream, "%s--%s", before, option->name);
        if (option->letter)
            fprintf(stream, "|-%c", option->letter);
        before = "|";
    }
    if (*before == '|')
        fprintf(stream, ") %s; return ;;\n", compgen);
}

/* Files, behind one of the first words if the tool has them. */
static void print_bash_positionals(const struct mist_tool *tool, FILE *stream)
{
    if (tool->first_words) {
        fputs("    local words=\"", stream);
        print_words(tool->first_words, stream);
        fputs("\"\n"
              "    for before in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
              "        if [[ \" $words \" == *\" $before \"* ]]; then words=; fi\n"
              "    done\n"
              "    if [[ $words ]]; then\n"
              "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
              "        return\n"
              "    fi\n",
              stream);
    }
    if (tool->positional_name)
        fputs("    mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n", stream);
}

static void print_bash(const struct mist_tool *tool, const char *function, FILE *stream)
{
    fprintf(
        stream,
        "%s()\n{\n"
        "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
        "    if [[ $word == \"=\" ]]; then word=; fi\n"
        "    if [[ $before == \"=\" ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
        "    COMPREPLY=()\n"
        "    case $before in\n",
        function);
    for (size_t i = 0; i < tool->n_options + N_ABOUT; i++) {
        const struct mist_option *option = mist_options_row(tool, i);
        if (value_of(option) != VALUE_WORD)
            continue;
        fprintf(stream, "    --%s) mapfile -t COMPREPLY < <(compgen -W \"", option->name);
        print_words(option->choices, stream);
        fputs("\" -- \"$word\"); return ;;\n", stream);
    }
    print_bash_case(tool, VALUE_FILE, "mapfile -t COMPREPLY < <(compgen -f -- \"$word\")",
                    stream);
    print_bash_case(tool, VALUE_FOLDER,
                    "mapfile -t COMPREPLY < <(compgen -d -- \"$word\")", stream);
    print_bash_case(tool, VALUE_OTHER, ":", stream);
    fputs("    esac\n"
          "    case $word in\n"
          "    -*) mapfile -t COMPREPLY < <(compgen -W \"",
          stream);
    for (size_t i = 0; i < tool->n_options + N_ABOUT; i++)
        fprintf(stream, "%s--%s", i ? " " : "", mist_options_row(tool, i)->name);
    fputs("\" -- \"$word\"); return ;;\n    esac\n", stream);
    print_bash_positionals(tool, stream);
    fprintf(stream, "}\ncomplete -o filenames -F %s %s\n", function, tool->name);
}

/* ---- zsh ---- */

/* What stands behind an option's explanation: ":FILE:_files". */
static void print_zsh_value(const struct mist_option *option, FILE *stream)
{
    static const char *const actions[N_VALUES] = {
        [VALUE_FILE] = "_files", [VALUE_FOLDER] = "_files -/", [VALUE_OTHER] = " "};
    enum value value = value_of(option);

    if (value == VALUE_NONE)
        return;
    fputc(':', stream);
    print_quoted(option->value_name, "\\:", "'\\''", stream);
    fputc(':', stream);
    if (value == VALUE_WORD) {
        fputc('(', stream);
        print_words(option->choices, stream);
        fputc(')', stream);
    } else {
        fputs(actions[value], stream);
    }
}

/* A specification of _arguments: '(-o --output)'{-o+,--output=}'[where it goes]:FILE:_files' */
static void print_zsh_option(const struct mist_option *option, FILE *stream)
{
    bool has_value = option->kind != MIST_OPTION_FLAG;
    bool repeats = mist_option_repeats(option);

    fputs(" \\\n    '", stream);
    if (repeats)
        fputc('*', stream);
    else if (option->letter)
        fprintf(stream, "(-%c --%s%s%s)", option->letter, option->name,
                option->excludes ? " --" : "", option->excludes ? option->excludes : "");
    else if (option->excludes)
        fprintf(stream, "(--%s)", option->excludes);
    if (option->letter)
        fprintf(stream, "'{-%c%s,--%s%s}'", option->letter, has_value ? "+" : "",
                option->name, has_value ? "=" : "");
    else
        fprintf(stream, "--%s%s", option->name, has_value ? "=" : "");
    fputc('[', stream);
    print_quoted(option->help, "\\:[]", "'\\''", stream);
    fputc(']', stream);
    print_zsh_value(option, stream);
    fputc('\'', stream);
}

/* Works as a file of $fpath, and by `source <(mist-sim --completion zsh)`. */
static void print_zsh(const struct mist_tool *tool, const char *function, FILE *stream)
{
    fprintf(stream, "#compdef %s\n%s()\n{\n    _arguments -s -S", tool->name, function);
    for (size_t i = 0; i < tool->n_options + N_ABOUT; i++)
        print_zsh_option(mist_options_row(tool, i), stream);
    if (tool->first_words) {
        fputs(" \\\n    '1:KIND:(", stream);
        print_words(tool->first_words, stream);
        fputs(")'", stream);
    }
    if (tool->positional_name) {
        fputs(" \\\n    '*:", stream);
        print_quoted(tool->positional_name, "\\:", "'\\''", stream);
        fputs(":_files'", stream);
    }
    fprintf(stream,
            "\n}\n"
            "if [[ $funcstack[1] = _%s ]]; then\n    %s \"$@\"\n"
            "else\n    compdef %s %s\nfi\n",
            tool->name, function, function, tool->name);
}

/* ---- fish ---- */

static void print_fish_option(const struct mist_tool *tool,
                              const struct mist_option *option, FILE *stream)
{
    static const char *const values[N_VALUES] = {
        [VALUE_NONE] = "",
        [VALUE_WORD] = " -x",
        [VALUE_FILE] = " -r -F",
        [VALUE_FOLDER] = " -x -a '(__fish_complete_directories)'",
        [VALUE_OTHER] = " -x"};
    enum value value = value_of(option);

    fprintf(stream, "complete -c %s -l %s", tool->name, option->name);
    if (option->letter)
        fprintf(stream, " -s %c", option->letter);
    fputs(values[value], stream);
    if (value == VALUE_WORD) {
        fputs(" -a '", stream);
        print_words(option->choices, stream);
        fputc('\'', stream);
    }
    fputs(" -d '", stream);
    print_quoted(option->help, "\\", "\\'", stream);
    fputs("'\n", stream);
}

static void print_fish(const struct mist_tool *tool, FILE *stream)
{
    if (!tool->positional_name)
        fprintf(stream, "complete -c %s -f\n", tool->name);
    if (tool->first_words) {
        fprintf(stream, "complete -c %s -n 'not __fish_seen_subcommand_from ",
                tool->name);
        print_words(tool->first_words, stream);
        fputs("' -f -a '", stream);
        print_words(tool->first_words, stream);
        fputs("'\n", stream);
    }
    for (size_t i = 0; i < tool->n_options + N_ABOUT; i++)
        print_fish_option(tool, mist_options_row(tool, i), stream);
}

void mist_options_print_completion(const struct mist_tool *tool, int shell, FILE *stream)
{
    char function[64]; /* "_mist_tune" */

    snprintf(function, sizeof function, "_%s", tool->name);
    for (char *c = function; *c; c++)
        if (*c == '-')
            *c = '_';
    if (shell == SHELL_BASH)
        print_bash(tool, function, stream);
    else if (shell == SHELL_ZSH)
        print_zsh(tool, function, stream);
    else
        print_fish(tool, stream);
}
