/* Lists of arguments, and command lines. See arg_list.h. */
#include "sim/framework_args/arg_list.h"

#include "core/path.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

void mist_arg_list_init(struct mist_arg_list *list)
{
    *list = (struct mist_arg_list){0};
    mist_arena_init(&list->texts);
}

void mist_arg_list_fini(struct mist_arg_list *list)
{
    free(list->items);
    mist_arena_fini(&list->texts);
    *list = (struct mist_arg_list){0};
}

enum mist_status mist_arg_list_add(struct mist_arg_list *list,
                                   const struct mist_arg_item *item, const char *path,
                                   struct mist_err *err)
{
    if (list->n == MIST_ARG_LIST_MAX)
        return mist_err_at(err, MIST_ERR_INPUT, path, item->line, 0,
                           "more than %d arguments", MIST_ARG_LIST_MAX);
    if (!MIST_RESERVE(list->items, list->capacity, list->n + 1))
        return mist_err_memory(err, path);
    list->items[list->n] = *item;
    list->items[list->n].name = mist_arena_strdup(&list->texts, item->name);
    list->items[list->n].value =
        item->value ? mist_arena_strdup(&list->texts, item->value) : NULL;
    if (!list->items[list->n].name || (item->value && !list->items[list->n].value))
        return mist_err_memory(err, path);
    list->n++;
    return MIST_OK;
}

/* ------------------------------------------------------------------------------ words */

/* A command line that is read word by word. */
struct words {
    const char *path, *at, *end;
    long line;
    char *word; /* [as long as the text] */
    struct mist_arg_list *list;
    struct mist_err *err;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Characters of a backslash at the end of a line, of which the next one is a part; 0: it is
 * something else. */
static ptrdiff_t length_of_joint(const struct words *of)
{
    const char *at = of->at;

    if (at == of->end || *at++ != '\\')
        return 0;
    at += at < of->end && *at == '\r';
    return at < of->end && *at == '\n' ? at + 1 - of->at : 0;
}

/* To the next word; false: there is none. */
static bool skip_blanks(struct words *of)
{
    while (of->at < of->end) {
        ptrdiff_t n = length_of_joint(of);
        if (*of->at == '#')
            while (of->at + 1 < of->end && of->at[1] != '\n')
                of->at++;
        else if (!is_blank(*of->at) && n == 0)
            return true;
        of->at += n > 0 ? n : 1;
        of->line += of->at[-1] == '\n';
    }
    return false;
}

/* Copies the word at of->at, without its quotes. */
static enum mist_status take_word(struct words *of)
{
    long line = of->line;
    char quote = 0;
    size_t n = 0;

    for (; of->at < of->end && (quote || !is_blank(*of->at)); of->at++) {
        char c = *of->at;
        ptrdiff_t n_joint = quote != '\'' ? length_of_joint(of) : 0;
        of->line += c == '\n' || n_joint > 0;
        if (n_joint > 0)
            of->at += n_joint - 1;
        else if (c == '\\' && quote != '\'' && of->at + 1 < of->end)
            of->word[n++] = *++of->at;
        else if (quote ? c == quote : c == '\'' || c == '"')
            quote = quote ? 0 : c;
        else if (c != '\0')
            of->word[n++] = c;
    }
    of->word[n] = '\0';
    if (quote)
        return mist_err_at(of->err, MIST_ERR_INPUT, of->path, line, 0,
                           "a quote (%c) is not closed", quote);
    return MIST_OK;
}

/* Words that start the program; a variable of its environment is set by NAME=value. */
static bool is_program(const char *word)
{
    static const char *const words[] = {
        "torchrun",
        "python",
        "python3",
        "srun",
        "deepspeed",
        "-m",
        "-u",
        "-l",
        "torch.distributed.run",
        "torch.distributed.launch",
    };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return word[strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] == '=';
}

/* One word more of a flag's value. */
static enum mist_status extend_value(struct words *of)
{
    struct mist_arg_item *last = &of->list->items[of->list->n - 1];
    size_t n_old = last->value ? strlen(last->value) : 0, n = strlen(of->word);
    char *value = mist_arena_alloc(&of->list->texts, n_old + n + 2);

    if (!value)
        return mist_err_memory(of->err, of->path);
    if (n_old > 0) {
        memcpy(value, last->value, n_old);
        value[n_old++] = ' ';
    }
    memcpy(value + n_old, of->word, n + 1);
    last->value = value;
    return MIST_OK;
}

static enum mist_status add_word(struct words *of, long line)
{
    char *equals = strchr(of->word, '=');
    bool is_script = mist_path_ends(of->word, ".py");
    struct mist_arg_item item = {.name = of->word, .line = line};

    if (strncmp(of->word, "--", 2) == 0 && of->word[2]) {
        if (equals) {
            *equals = '\0';
            item.value = equals + 1;
        }
        return mist_arg_list_add(of->list, &item, of->path, of->err);
    }
    if (is_script && !strstr(of->word, "pretrain_gpt"))
        return mist_err_at(of->err, MIST_ERR_INPUT, of->path, line, 0,
                           "%.80s can't be expressed: expected pretrain_gpt.py",
                           of->word);
    if (is_script || (of->list->n == 0 && is_program(of->word)))
        return MIST_OK;
    if (of->list->n > 0)
        return extend_value(of);
    return mist_err_at(
        of->err, MIST_ERR_INPUT, of->path, line, 0,
        "'%.60s' is no argument, expected --NAME; of a script, the command "
        "line that it runs is wanted (echo prints it)",
        of->word);
}

enum mist_status mist_arg_list_read_words(struct mist_arg_list *list, const char *path,
                                          const char *text, size_t n,
                                          struct mist_err *err)
{
    struct words of = {.path = path,
                       .at = text,
                       .end = text + n,
                       .line = 1,
                       .word = malloc(n + 1),
                       .list = list,
                       .err = err};
    enum mist_status status = MIST_OK;

    if (!of.word)
        return mist_err_memory(err, path);
    while (status == MIST_OK && skip_blanks(&of)) {
        long line = of.line;
        status = take_word(&of);
        if (status == MIST_OK)
            status = add_word(&of, line);
    }
    free(of.word);
    return status;
}

static void write_word(const struct mist_arg_item *item, FILE *stream)
{
    fprintf(stream, " \\\n    %s", item->name);
    if (item->value)
        fprintf(stream, " %s", item->value);
}

bool mist_arg_list_write_words(const struct mist_arg_list *list, FILE *stream)
{
    fputs("torchrun", stream);
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i].is_launcher)
            write_word(&list->items[i], stream);
    fputs(" \\\n    pretrain_gpt.py", stream);
    for (size_t i = 0; i < list->n; i++)
        if (!list->items[i].is_launcher)
            write_word(&list->items[i], stream);
    fputc('\n', stream);
    return true;
}
