/* What the files of options share: the options that every tool has beside those of its table. */
#ifndef MIST_CORE_OPTIONS_INTERNAL_H
#define MIST_CORE_OPTIONS_INTERNAL_H

#include "core/options.h"

#ifndef MIST_VERSION
#define MIST_VERSION "unknown"
#endif
#ifndef MIST_DATE
#define MIST_DATE "" /* of the version */
#endif

/* Rows of mist_options_about[]. */
enum { ABOUT_HELP, ABOUT_VERSION, ABOUT_MAN, ABOUT_COMPLETION, N_ABOUT };
extern const struct mist_option mist_options_about[N_ABOUT];

/* Row i of all that a tool understands: 0 .. n_options + N_ABOUT - 1. */
static inline const struct mist_option *mist_options_row(const struct mist_tool *tool,
                                                         size_t i)
{
    return i < tool->n_options ? &tool->options[i]
                               : &mist_options_about[i - tool->n_options];
}

/* Whether its values add up, where another option keeps the last. */
static inline bool mist_option_repeats(const struct mist_option *option)
{
    return option->kind == MIST_OPTION_LIST || option->kind == MIST_OPTION_FILES;
}

/* Whether row i is the first of its group; groups come in the order of their first row. */
bool mist_options_begins_group(const struct mist_tool *tool, size_t i);

/* " [auto, always, never; default: auto]" into buffer, "" when there is nothing to say. */
void mist_options_describe_values(const struct mist_option *option, char *buffer,
                                  size_t size);

/* "mist-sim [OPTIONS] [PLAN]" into buffer. */
void mist_options_describe_usage(const struct mist_tool *tool, char *buffer, size_t size);

/* What an exit code of a tool means, 0 .. MIST_N_EXIT_CODES - 1; NULL: it has none such. */
const char *mist_options_exit_text(const struct mist_tool *tool, int code);

#endif
