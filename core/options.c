/* Parsing of command lines by a table. See options.h; what is printed is in
 * options_help.c, options_man.c and options_complete.c. */
#include "core/options.h"

#include "core/options_internal.h"
#include "core/parse.h"
#include "core/text_distance.h" /* of a name that does not exist */

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

const char *const mist_progress_choices[] = {"auto", "always", "never", NULL};

/* The state of one call. */
struct reader {
    const struct mist_tool *tool;
    char *out; /* the tool's struct */
    int argc;
    char **argv;
    int i;          /* argument that is read */
    bool *is_given; /* by row */
    struct mist_err *err;
};

/* ---- storing values ---- */

static enum mist_status refuse(struct mist_err *err, const struct mist_option *option,
                               const char *message)
{
    return mist_err_set(err, MIST_ERR_USAGE, "--%s: %.400s", option->name, message);
}

static bool has_range(const struct mist_option *option)
{
    return option->min != 0 || option->max != 0;
}

static enum mist_status check_range(const struct mist_option *option, const char *text,
                                    double value, struct mist_err *err)
{
    if (!has_range(option) || (value >= option->min && value <= option->max))
        return MIST_OK;
    if (isinf(option->max))
        return mist_err_set(err, MIST_ERR_USAGE, "--%s: %s is less than %.15g",
                            option->name, text, option->min);
    return mist_err_set(err, MIST_ERR_USAGE, "--%s: %s is not within %.15g .. %.15g",
                        option->name, text, option->min, option->max);
}

static enum mist_status store_number(const struct mist_option *option, const char *text,
                                     void *place, struct mist_err *err)
{
    struct mist_err detail;
    int64_t whole = 0;
    double real = 0;
    bool is_whole =
        option->kind == MIST_OPTION_INT64 || option->kind == MIST_OPTION_BYTES;
    enum mist_status status;

    if (option->kind == MIST_OPTION_INT64)
        status = mist_parse_int64(text, &whole, &detail);
    else if (option->kind == MIST_OPTION_BYTES)
        status = mist_parse_bytes(text, &whole, &detail);
    else if (option->kind == MIST_OPTION_TIME_S)
        status = mist_parse_time_s(text, &real, &detail);
    else if (option->kind == MIST_OPTION_FRAC)
        status = mist_parse_frac(text, &real, &detail);
    else
        status = mist_parse_double(text, &real, &detail);
    if (status)
        return refuse(err, option, detail.message);
    status = check_range(option, text, is_whole ? (double)whole : real, err);
    if (status)
        return status;
    if (is_whole)
        memcpy(place, &whole, sizeof whole);
    else
        memcpy(place, &real, sizeof real);
    return MIST_OK;
}

static enum mist_status store_choice(const struct mist_option *option, const char *text,
                                     int *place, struct mist_err *err)
{
    int i = mist_word_find(option->choices, text);
    char list[256];

    if (i < 0)
        return mist_err_set(err, MIST_ERR_USAGE, "--%s: '%.80s' is none of %s",
                            option->name, text,
                            mist_words_list(option->choices, list, sizeof list));
    *place = i;
    return MIST_OK;
}

/* separator: between items. */
static enum mist_status store_list(const struct mist_option *option, const char *text,
                                   const char *separator, struct mist_option_list *list,
                                   struct mist_err *err)
{
    for (;;) {
        size_t n = strcspn(text, separator);
        if (n == 0)
            return refuse(err, option, "an item of the list is empty");
        if (list->n == MIST_OPTION_LIST_MAX || n >= sizeof list->texts - list->used_bytes)
            return refuse(err, option, "more items than fit");
        char *item = list->texts + list->used_bytes;
        memcpy(item, text, n);
        item[n] = '\0';
        list->items[list->n++] = item;
        list->used_bytes += n + 1;
        if (!text[n])
            return MIST_OK;
        text += n + 1;
    }
}

static enum mist_status store(const struct mist_option *option, const char *text,
                              char *out, struct mist_err *err)
{
    void *place = out + option->offset;

    switch (option->kind) {
    case MIST_OPTION_FLAG:
        *(bool *)place = strcmp(text, "true") == 0;
        return MIST_OK;
    case MIST_OPTION_STRING:
        if (!text[0] && !option->may_be_empty)
            return mist_err_set(err, MIST_ERR_USAGE,
                                "--%s: the value is empty, expected %s", option->name,
                                option->value_name);
        *(const char **)place = text;
        return MIST_OK;
    case MIST_OPTION_CHOICE:
        return store_choice(option, text, place, err);
    case MIST_OPTION_LIST:
        return store_list(option, text, ",", place, err);
    case MIST_OPTION_FILES:
        return store_list(option, text, "", place, err);
    case MIST_OPTION_INT64:
    case MIST_OPTION_DOUBLE:
    case MIST_OPTION_BYTES:
    case MIST_OPTION_TIME_S:
    case MIST_OPTION_FRAC:
        break;
    }
    return store_number(option, text, place, err);
}

static void clear(const struct mist_option *option, char *out)
{
    void *place = out + option->offset;

    switch (option->kind) {
    case MIST_OPTION_FLAG:
        *(bool *)place = false;
        break;
    case MIST_OPTION_STRING:
        *(const char **)place = NULL;
        break;
    case MIST_OPTION_CHOICE:
        *(int *)place = 0;
        break;
    case MIST_OPTION_LIST:
    case MIST_OPTION_FILES:
        *(struct mist_option_list *)place = (struct mist_option_list){0};
        break;
    case MIST_OPTION_INT64:
    case MIST_OPTION_BYTES:
        *(int64_t *)place = 0;
        break;
    case MIST_OPTION_DOUBLE:
    case MIST_OPTION_TIME_S:
    case MIST_OPTION_FRAC:
        *(double *)place = 0;
        break;
    }
}

/* ---- finding options ---- */

static size_t find_name(const struct mist_tool *tool, const char *name, size_t n)
{
    for (size_t i = 0; i < tool->n_options; i++) {
        if (strlen(tool->options[i].name) == n &&
            memcmp(tool->options[i].name, name, n) == 0)
            return i;
    }
    return tool->n_options;
}

static size_t find_letter(const struct mist_tool *tool, char letter)
{
    size_t i = 0;

    while (i < tool->n_options && tool->options[i].letter != letter)
        i++;
    return i;
}

static enum mist_status unknown_option(const struct reader *reader, const char *name,
                                       size_t n)
{
    const struct mist_tool *tool = reader->tool;
    const char *nearest = NULL;
    size_t best = mist_text_too_far(n);

    for (size_t i = 0; i < tool->n_options + N_ABOUT; i++) {
        const char *candidate = mist_options_row(tool, i)->name;
        if (mist_text_is_nearer(name, n, candidate, &best))
            nearest = candidate;
    }
    int n_shown = n < 80 ? (int)n : 80;
    if (nearest)
        return mist_err_set(reader->err, MIST_ERR_USAGE,
                            "unknown option --%.*s; did you mean --%s?", n_shown, name,
                            nearest);
    return mist_err_set(reader->err, MIST_ERR_USAGE,
                        "unknown option --%.*s; --help lists the options", n_shown, name);
}

/* ---- reading arguments ---- */

/* A value from the command line; the first one of a list replaces the default. */
static enum mist_status give(struct reader *reader, size_t i_option, const char *value)
{
    const struct mist_option *option = &reader->tool->options[i_option];

    if (mist_option_repeats(option) && !reader->is_given[i_option])
        clear(option, reader->out);
    reader->is_given[i_option] = true;
    return store(option, value, reader->out, reader->err);
}

/* The next argument as the value of option. */
static enum mist_status take_value(struct reader *reader,
                                   const struct mist_option *option, const char **value)
{
    const char *next = reader->i + 1 < reader->argc ? reader->argv[reader->i + 1] : NULL;

    if (!next)
        return mist_err_set(reader->err, MIST_ERR_USAGE, "--%s: expected a value (%s)",
                            option->name, option->value_name);
    if (strncmp(next, "--", 2) == 0)
        return mist_err_set(
            reader->err, MIST_ERR_USAGE,
            "--%s: expected a value (%s), found '%.80s'; write --%s=%.80s if "
            "that is the value",
            option->name, option->value_name, next, option->name, next);
    reader->i++;
    *value = next;
    return MIST_OK;
}

static enum mist_status read_long(struct reader *reader, const char *argument)
{
    const struct mist_tool *tool = reader->tool;
    const char *name = argument + 2;
    size_t n = strcspn(name, "=");
    const char *value = name[n] ? name + n + 1 : NULL;
    bool is_negated = false;
    size_t i = find_name(tool, name, n);

    if (i == tool->n_options && n > 3 && strncmp(name, "no-", 3) == 0) {
        i = find_name(tool, name + 3, n - 3);
        is_negated = true;
        if (i < tool->n_options && tool->options[i].kind != MIST_OPTION_FLAG)
            i = tool->n_options;
    }
    if (i == tool->n_options)
        return unknown_option(reader, name, n);
    const struct mist_option *option = &tool->options[i];
    if (option->kind == MIST_OPTION_FLAG) {
        if (value)
            return refuse(reader->err, option, "takes no value");
        enum mist_status status = give(reader, i, is_negated ? "false" : "true");
        reader->is_given[i] = !is_negated;
        return status;
    }
    if (!value) {
        enum mist_status status = take_value(reader, option, &value);
        if (status)
            return status;
    }
    return give(reader, i, value);
}

/* -q, -qv, -j 4, -j4. */
static enum mist_status read_short(struct reader *reader, const char *argument)
{
    const struct mist_tool *tool = reader->tool;

    for (const char *letter = argument + 1; *letter; letter++) {
        size_t i = find_letter(tool, *letter);
        if (i == tool->n_options)
            return mist_err_set(reader->err, MIST_ERR_USAGE,
                                "unknown option -%c; --help lists the options", *letter);
        const struct mist_option *option = &tool->options[i];
        const char *value = "true";
        if (option->kind != MIST_OPTION_FLAG) {
            value = letter + 1;
            if (!*value) {
                enum mist_status status = take_value(reader, option, &value);
                if (status)
                    return status;
            }
        }
        enum mist_status status = give(reader, i, value);
        if (status || option->kind != MIST_OPTION_FLAG)
            return status;
    }
    return MIST_OK;
}

/* One of the names, which blanks part; NULL: none. */
static bool is_given(const struct reader *reader, const char *names)
{
    bool is_found = false;

    while (names && *names) {
        size_t n = strcspn(names, " "), i = find_name(reader->tool, names, n);
        is_found = is_found || (i < reader->tool->n_options && reader->is_given[i]);
        names += n + (names[n] == ' ');
    }
    return is_found;
}

/* "--a FILE or --b N" of the names, which blanks part. */
static void describe_names(const struct mist_tool *tool, const char *names, char *text,
                           size_t size)
{
    for (text[0] = '\0'; *names;) {
        size_t n = strcspn(names, " "), i = find_name(tool, names, n);
        const char *value = i < tool->n_options ? tool->options[i].value_name : NULL;
        mist_text_add(text, size, " or ", "--%.*s%s%s", (int)n, names, value ? " " : "",
                      value ? value : "");
        names += n + (names[n] == ' ');
    }
}

static enum mist_status check_option(const struct reader *reader, size_t i)
{
    const struct mist_option *option = &reader->tool->options[i];
    char names[256];

    if (!reader->is_given[i])
        return option->is_required && !is_given(reader, option->unless)
                   ? mist_err_set(reader->err, MIST_ERR_USAGE, "--%s %s is required: %s",
                                  option->name, option->value_name, option->help)
                   : MIST_OK;
    if (is_given(reader, option->excludes))
        return mist_err_set(reader->err, MIST_ERR_USAGE,
                            "--%s and --%s can't be given together", option->name,
                            option->excludes);
    if (!option->needs || is_given(reader, option->needs))
        return MIST_OK;
    describe_names(reader->tool, option->needs, names, sizeof names);
    return mist_err_set(reader->err, MIST_ERR_USAGE, "--%s needs %s", option->name,
                        names);
}

/* One too many; often the second value of an option that is to be repeated. */
static enum mist_status refuse_positional(const struct reader *reader, const char *word)
{
    const struct mist_tool *tool = reader->tool;

    for (size_t i = 0; i < tool->n_options; i++)
        if (reader->is_given[i] && mist_option_repeats(&tool->options[i]))
            return mist_err_set(
                reader->err, MIST_ERR_USAGE,
                "unexpected argument '%.80s': expected at most %d; several "
                "values of --%s have it in front of each",
                word, tool->positional_max, tool->options[i].name);
    return mist_err_set(reader->err, MIST_ERR_USAGE,
                        "unexpected argument '%.80s': expected at most %d", word,
                        tool->positional_max);
}

static enum mist_status check_given(const struct reader *reader, int n_positionals)
{
    const struct mist_tool *tool = reader->tool;

    if (tool->positional_max == 0 && n_positionals > 0)
        return mist_err_set(reader->err, MIST_ERR_USAGE,
                            "unexpected argument '%.80s': expected options alone",
                            reader->argv[1]);
    for (size_t i = 0; i < tool->n_options; i++) {
        enum mist_status status = check_option(reader, i);
        if (status != MIST_OK)
            return status;
    }
    const char *name = tool->positional_name ? tool->positional_name : "argument";
    if (n_positionals < tool->positional_min)
        return mist_err_set(reader->err, MIST_ERR_USAGE, "expected %s%s%s", name,
                            tool->positional_help ? ": " : "",
                            tool->positional_help ? tool->positional_help : "");
    if (tool->positional_max >= 0 && n_positionals > tool->positional_max)
        return refuse_positional(reader, reader->argv[1 + tool->positional_max]);
    for (int i = 0; i < n_positionals; i++)
        if (!reader->argv[1 + i][0])
            return mist_err_set(reader->err, MIST_ERR_USAGE,
                                "an argument is empty, expected %s", name);
    return MIST_OK;
}

/* The row of mist_options_about[] that argument is, N_ABOUT: none. */
static int find_about(const struct mist_tool *tool, const char *argument)
{
    int i = 0;

    if (strcmp(argument, "-h") == 0 && find_letter(tool, 'h') == tool->n_options)
        return ABOUT_HELP;
    if (strncmp(argument, "--", 2) != 0)
        return N_ABOUT;
    size_t n = strcspn(argument + 2, "=");
    while (i < N_ABOUT && (strlen(mist_options_about[i].name) != n ||
                           memcmp(mist_options_about[i].name, argument + 2, n) != 0))
        i++;
    return i;
}

/* Prints what row i of mist_options_about[] is about. */
static enum mist_status print_about(struct reader *reader, int i, FILE *stream)
{
    const struct mist_option *option = &mist_options_about[i];
    const struct mist_tool *tool = reader->tool;
    const char *argument = reader->argv[reader->i];
    const char *value = strchr(argument, '=');
    enum mist_status status = MIST_OK;
    int shell = 0;

    if (i == ABOUT_COMPLETION) {
        if (value)
            value++;
        else
            status = take_value(reader, option, &value);
        if (status == MIST_OK)
            status = store_choice(option, value, &shell, reader->err);
        if (status != MIST_OK)
            return status;
    } else if (value) {
        return refuse(reader->err, option, "takes no value");
    }
    if (!stream)
        return MIST_OK;
    errno = 0; /* a long page is written piece by piece, and the first may fail */
    if (i == ABOUT_HELP)
        mist_options_print_help(tool, stream);
    else if (i == ABOUT_VERSION)
        fprintf(stream, "%s %s\n", tool->name, MIST_VERSION);
    else if (i == ABOUT_MAN)
        mist_options_print_man(tool, stream);
    else
        mist_options_print_completion(tool, shell, stream);
    if (fflush(stream) != 0 || ferror(stream))
        return mist_err_set(reader->err, MIST_ERR_IO, "can't write the output: %s",
                            strerror(errno ? errno : EIO));
    return MIST_OK;
}

static enum mist_status read_arguments(struct reader *reader, int *n_positionals,
                                       FILE *stream, bool *is_done)
{
    bool is_behind_dashes = false;

    for (reader->i = 1; reader->i < reader->argc; reader->i++) {
        char *argument = reader->argv[reader->i];
        enum mist_status status = MIST_OK;
        int i_about = find_about(reader->tool, argument);
        if (is_behind_dashes || argument[0] != '-' || !argument[1])
            reader->argv[1 + (*n_positionals)++] =
                argument; /* never ahead of what is read */
        else if (strcmp(argument, "--") == 0)
            is_behind_dashes = true;
        else if (i_about < N_ABOUT) {
            status = print_about(reader, i_about, stream);
            *is_done = status == MIST_OK;
            return status;
        } else if (argument[1] == '-')
            status = read_long(reader, argument);
        else
            status = read_short(reader, argument);
        if (status)
            return status;
    }
    return MIST_OK;
}

enum mist_status mist_options_parse(const struct mist_tool *tool, int argc, char **argv,
                                    void *out, struct mist_positionals *positionals,
                                    FILE *stream, bool *is_done, struct mist_err *err)
{
    struct reader reader = {.tool = tool,
                            .out = out,
                            .argc = argc,
                            .argv = argv,
                            .is_given = positionals->is_given,
                            .err = err};

    assert(tool->n_options <= MIST_OPTIONS_MAX);
    *is_done = false;
    *positionals = (struct mist_positionals){.n = 0, .items = argv + (argc > 0)};
    for (size_t i = 0; i < tool->n_options; i++) {
        const struct mist_option *option = &tool->options[i];
        clear(option, out);
        if (option->default_text) {
            enum mist_status status = store(option, option->default_text, out, err);
            if (status)
                return status;
        }
    }
    enum mist_status status = read_arguments(&reader, &positionals->n, stream, is_done);
    if (status || *is_done)
        return status;
    return check_given(&reader, positionals->n);
}

bool mist_options_is_given(const struct mist_tool *tool,
                           const struct mist_positionals *positionals, const char *name)
{
    size_t i = find_name(tool, name, strlen(name));

    assert(i < tool->n_options);
    return positionals->is_given[i];
}

/* Whether a name is one of those that blanks part. */
static bool is_among(const char *name, const char *names)
{
    size_t n = strlen(name);

    while (*names && (strncmp(names, name, n) != 0 || (names[n] && names[n] != ' '))) {
        names += strcspn(names, " ");
        names += *names == ' ';
    }
    return *names;
}

const char *mist_options_find_other(const struct mist_tool *tool,
                                    const struct mist_positionals *positionals,
                                    const char *names)
{
    for (size_t i = 0; i < tool->n_options; i++)
        if (positionals->is_given[i] && !is_among(tool->options[i].name, names))
            return tool->options[i].name;
    return NULL;
}

enum mist_status mist_options_set(const struct mist_tool *tool, const char *name,
                                  const char *value, void *out, struct mist_err *err)
{
    size_t i = find_name(tool, name, strlen(name));

    assert(i < tool->n_options);
    return store(&tool->options[i], value, out, err);
}
