/* Arguments in TOML, as far as configurations of torchtitan use it. See arg_list.h. */
#include "sim/framework_args/arg_list.h"

#include <string.h>

enum { NAME_BYTES = 256, VALUE_BYTES = 1024 };

struct toml {
    const char *path, *at, *end;
    long line;
    char section[NAME_BYTES];
    char value[VALUE_BYTES];
    size_t n; /* bytes of value */
    struct mist_arg_list *list;
    struct mist_err *err;
};

static enum mist_status refuse(const struct toml *of, const char *what)
{
    return mist_err_at(of->err, MIST_ERR_INPUT, of->path, of->line, 0, "%s", what);
}

static char next(const struct toml *of)
{
    return of->at < of->end ? *of->at : '\0';
}

/* Blanks and comments, and with lines the ends of lines, too. */
static void skip(struct toml *of, bool lines)
{
    for (; of->at < of->end; of->at++) {
        if (*of->at == '#')
            while (of->at + 1 < of->end && of->at[1] != '\n')
                of->at++;
        else if (*of->at == '\n' && lines)
            of->line++;
        else if (*of->at != ' ' && *of->at != '\t' && *of->at != '\r')
            return;
    }
}

static bool is_bare(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '-' || c == '.';
}

/* A bare or dotted key behind prefix (with a dot, unless it is ""). */
static enum mist_status take_key(struct toml *of, const char *prefix,
                                 char name[NAME_BYTES])
{
    const char *start = of->at;

    while (is_bare(next(of)))
        of->at++;
    int n =
        snprintf(name, NAME_BYTES, "%s%s%.*s", prefix, *prefix ? "." : "",
                 (int)(of->at - start < NAME_BYTES ? of->at - start : NAME_BYTES), start);
    if (of->at == start)
        return refuse(of, "expected a key of letters, digits, '_', '-' and '.'");
    if (n >= NAME_BYTES)
        return refuse(of, "a key is too long");
    return MIST_OK;
}

static enum mist_status add_char(struct toml *of, char c)
{
    if (of->n + 1 >= sizeof of->value)
        return refuse(of, "a value is too long");
    of->value[of->n++] = c;
    of->value[of->n] = '\0';
    return MIST_OK;
}

/* "basic" with escapes of one character, or 'literal'. */
static enum mist_status take_string(struct toml *of)
{
    char quote = *of->at++;
    enum mist_status status = MIST_OK;

    if (next(of) == quote && of->at + 1 < of->end && of->at[1] == quote)
        return refuse(of, "strings of several lines are not read");
    for (; next(of) != quote && status == MIST_OK; of->at++) {
        if (of->at >= of->end || *of->at == '\n')
            return refuse(of, "a string is not closed");
        if (*of->at == '\\' && quote == '"' && of->at + 1 < of->end) {
            of->at++;
            if (!strchr("\"\\/", *of->at))
                return refuse(of, "of escapes, \\\" and \\\\ are read");
        }
        status = *of->at == '\0' ? refuse(of, "a zero byte") : add_char(of, *of->at);
    }
    of->at += status == MIST_OK;
    return status;
}

/* A string, or a word such as 8, 1e-8, 1_000, true. */
static enum mist_status take_scalar(struct toml *of)
{
    enum mist_status status = MIST_OK;
    const char *start = of->at;

    if (next(of) == '"' || next(of) == '\'')
        return take_string(of);
    for (; (is_bare(next(of)) || next(of) == '+') && status == MIST_OK; of->at++)
        if (*of->at != '_')
            status = add_char(of, *of->at);
    if (status == MIST_OK && of->at == start)
        return refuse(of,
                      "expected a string, a number, true, false or an array of these");
    return status;
}

static enum mist_status take_value(struct toml *of)
{
    enum mist_status status = MIST_OK;

    of->n = 0;
    of->value[0] = '\0';
    if (next(of) != '[')
        return take_scalar(of);
    of->at++;
    for (bool is_first = true; status == MIST_OK; is_first = false) {
        skip(of, true);
        if (next(of) == ']')
            break;
        if (!is_first)
            status = add_char(of, ',');
        if (status == MIST_OK)
            status = take_scalar(of);
        skip(of, true);
        if (status == MIST_OK && next(of) == ',')
            of->at++;
        else if (status == MIST_OK && next(of) != ']')
            return refuse(of, "expected ',' or ']' in an array");
    }
    of->at += status == MIST_OK;
    return status;
}

static bool is_known(const struct mist_arg_list *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i].name, name) == 0)
            return true;
    return false;
}

/* [a.b], or key = value. */
static enum mist_status take_line(struct toml *of)
{
    char name[NAME_BYTES];
    enum mist_status status;

    if (next(of) == '[') {
        of->at++;
        skip(of, false);
        status = take_key(of, "", of->section);
        skip(of, false);
        if (status == MIST_OK && next(of) != ']')
            return refuse(of, "expected ']' behind the name of a table");
        of->at += status == MIST_OK;
    } else {
        struct mist_arg_item item = {.name = name, .value = of->value, .line = of->line};
        status = take_key(of, of->section, name);
        skip(of, false);
        if (status == MIST_OK && next(of) != '=')
            return refuse(of, "expected '=' behind a key");
        if (status == MIST_OK && is_known(of->list, name))
            return refuse(of, "the key is there twice");
        of->at += status == MIST_OK;
        skip(of, false);
        if (status == MIST_OK)
            status = take_value(of);
        if (status == MIST_OK)
            status = mist_arg_list_add(of->list, &item, of->path, of->err);
    }
    skip(of, false);
    if (status == MIST_OK && of->at < of->end && *of->at != '\n')
        return refuse(of, "expected the end of the line");
    return status;
}

enum mist_status mist_arg_list_read_toml(struct mist_arg_list *list, const char *path,
                                         const char *text, size_t n, struct mist_err *err)
{
    struct toml of = {
        .path = path, .at = text, .end = text + n, .line = 1, .list = list, .err = err};
    enum mist_status status = MIST_OK;

    for (skip(&of, true); of.at < of.end && status == MIST_OK; skip(&of, true))
        status = take_line(&of);
    return status;
}

bool mist_arg_list_write_toml(const struct mist_arg_list *list, FILE *stream)
{
    const char *section = "";
    size_t n_section = 0;

    for (size_t i = 0; i < list->n; i++) {
        const struct mist_arg_item *item = &list->items[i];
        const char *dot = strrchr(item->name, '.');
        size_t n = dot ? (size_t)(dot - item->name) : 0;
        if (n != n_section || strncmp(item->name, section, n) != 0)
            fprintf(stream, "%s[%.*s]\n", i > 0 ? "\n" : "", (int)n, item->name);
        section = item->name;
        n_section = n;
        const char *quote = item->sort == MIST_ARG_STRING ? "\"" : "";
        fprintf(stream, "%s = %s%s%s\n", dot ? dot + 1 : item->name, quote, item->value,
                quote);
    }
    return true;
}
