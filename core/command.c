/* Command lines. See command.h. */
#include "core/command.h"

#include "core/path.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char placeholder[] = "{ranks}";

void mist_command_init(struct mist_command *command)
{
    *command = (struct mist_command){0};
    mist_arena_init(&command->texts);
}

void mist_command_fini(struct mist_command *command)
{
    free(command->words);
    mist_arena_fini(&command->texts);
    *command = (struct mist_command){0};
}

/* The next word, with room for a NULL behind it; word NULL: only the room. */
static void append(struct mist_command *command, char *word)
{
    if (!MIST_RESERVE(command->words, command->capacity, command->n + 2)) {
        command->is_broken = true;
        return;
    }
    if (word)
        command->words[command->n++] = word;
    command->words[command->n] = NULL;
}

void mist_command_add(struct mist_command *command, const char *word)
{
    char *copy = mist_arena_strdup(&command->texts, word);

    if (copy)
        append(command, copy);
    else
        command->is_broken = true;
}

void mist_command_add_mpirun(struct mist_command *command, int32_t n_ranks,
                             int32_t n_processors)
{
    mist_command_add(command, "mpirun");
    mist_command_add(command, "--quiet");
    if (geteuid() == 0)
        mist_command_add(command, "--allow-run-as-root");
    if (n_ranks > n_processors)
        mist_command_add_launcher(command, "--oversubscribe --bind-to none", n_ranks);
    mist_command_add_launcher(command, "-n {ranks}", n_ranks);
}

/* The first n bytes of text as a word. */
static void add_word(struct mist_command *command, const char *text, size_t n,
                     const char *number)
{
    size_t n_mark = sizeof placeholder - 1, n_number = strlen(number), used = 0;
    char *word = mist_arena_alloc(&command->texts, (n / n_mark + 1) * n_number + n + 1);

    if (!word) {
        command->is_broken = true;
        return;
    }
    for (size_t i = 0; i < n;)
        if (n - i >= n_mark && memcmp(text + i, placeholder, n_mark) == 0) {
            memcpy(word + used, number, n_number);
            used += n_number;
            i += n_mark;
        } else {
            word[used++] = text[i++];
        }
    word[used] = '\0';
    append(command, word);
}

void mist_command_add_launcher(struct mist_command *command, const char *text,
                               int32_t n_ranks)
{
    static const char blanks[] = " \t\n";
    char number[16];

    snprintf(number, sizeof number, "%d", (int)n_ranks);
    for (text += strspn(text, blanks); *text; text += strspn(text, blanks)) {
        size_t n = strcspn(text, blanks);
        add_word(command, text, n, number);
        text += n;
    }
}

enum mist_status mist_command_end(struct mist_command *command, struct mist_err *err)
{
    append(command, NULL);
    return command->is_broken ? mist_err_memory(err, NULL) : MIST_OK;
}

static bool may_run(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

bool mist_command_can_find(const char *program)
{
    const char *folders = getenv("PATH");
    char path[PATH_MAX];

    if (strchr(program, '/') || !folders)
        return may_run(program);
    for (const char *at = folders; *at;) {
        size_t n = strcspn(at, ":"); /* empty: the current folder */
        int length = snprintf(path, sizeof path, "%.*s%s%s", (int)n, at, n > 0 ? "/" : "",
                              program);
        if (length < (int)sizeof path && may_run(path))
            return true;
        at += n + (at[n] == ':');
    }
    return false;
}

/* NULL: out of memory. A mere name, for PATH, where /proc does not say what runs. */
static char *path_beside(const char *name)
{
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);

    self[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (!slash)
        return strdup(name);
    *slash = '\0';
    return mist_path_join(self, name);
}

enum mist_status mist_command_find_beside(const char *name, const char *needed,
                                          char **out, struct mist_err *err)
{
    *out = path_beside(name);
    if (!*out)
        return mist_err_memory(err, NULL);
    return mist_command_can_find(*out)
               ? MIST_OK
               : mist_err_at(err, MIST_ERR_IO, *out, 0, 0,
                             "is not there or may not be run; %s", needed);
}
