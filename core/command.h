/*
 * Command lines of programs that are started without a shell, word by word, and the words
 * in front of a program that start it as several ranks.
 *
 *     struct mist_command command;
 *     mist_command_init(&command);
 *     mist_command_add_mpirun(&command, n_ranks, n_processors);
 *     mist_command_add(&command, path);
 *     status = mist_command_end(&command, err); ... command.words ...
 *     mist_command_fini(&command);
 */
#ifndef MIST_CORE_COMMAND_H
#define MIST_CORE_COMMAND_H

#include "core/memory.h"
#include "core/status.h"

struct mist_command {
    char **words; /* [n], and a NULL behind them after mist_command_end() */
    size_t n, capacity;
    struct mist_arena texts; /* the words, copied */
    bool is_broken;          /* there was no memory */
};

void mist_command_init(struct mist_command *command);
void mist_command_fini(struct mist_command *command);

/* Appends a copy of a word. Failures are kept and reported by mist_command_end(). */
void mist_command_add(struct mist_command *command, const char *word);

/*
 * Appends what starts n_ranks ranks on this machine by Open MPI's mpirun, with its
 * default binding: --allow-run-as-root for root, --oversubscribe and no binding where
 * there are more ranks than processors. --quiet: the ranks' own messages say what went
 * wrong.
 */
void mist_command_add_mpirun(struct mist_command *command, int32_t n_ranks,
                             int32_t n_processors);

/* Appends the words of a text, which blanks part, with the number for each {ranks}.
 * There is no quoting. */
void mist_command_add_launcher(struct mist_command *command, const char *text,
                               int32_t n_ranks);

/* MIST_OK, or MIST_ERR_MEMORY: words are not to be used. */
MIST_MUST_CHECK enum mist_status mist_command_end(struct mist_command *command,
                                                  struct mist_err *err);

/* Whether starting a program of this name would find one that may be run: a path, or a
 * name that is looked for in PATH. */
bool mist_command_can_find(const char *program);

/*
 * The path of a program in the folder of the running one; *out is malloc'd, also after an
 * error, or NULL. needed: who needs it where, for the message. MIST_ERR_IO: it is not there
 * or may not be run; MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_command_find_beside(const char *name,
                                                          const char *needed, char **out,
                                                          struct mist_err *err);

#endif
