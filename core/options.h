/*
 * One table per tool drives parsing, ranges, defaults, --help, --version, the man page
 * (--man) and completion of bash, zsh and fish (--completion), so that they can't disagree.
 *
 * Accepts --name=value, --name value, -n value, -nvalue, bundled flags (-qv),
 * --no-<flag>, "--" and "-" as a positional. The last of several wins; lists collect.
 * Left out: abbreviated names.
 *
 *     struct tool_options {
 *         struct mist_common_options common;
 *         const char *model;
 *         int64_t memory_bytes;
 *     };
 *     static const struct mist_option options[] = {
 *         {.name = "model", .kind = MIST_OPTION_STRING, .group = "Model",
 *          .value_name = "NAME", .help = "preset or config.json", .is_required = true,
 *          .offset = offsetof(struct tool_options, model)},
 *         MIST_OPTION_ROW_OUTPUT(struct tool_options, "where the plan goes", NULL),
 *         MIST_OPTION_ROW_QUIET(struct tool_options),
 *     };
 */
#ifndef MIST_CORE_OPTIONS_H
#define MIST_CORE_OPTIONS_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is stored at offset; its value without a default. */
enum mist_option_kind {
    MIST_OPTION_FLAG,   /* bool; false */
    MIST_OPTION_INT64,  /* int64_t; 0 */
    MIST_OPTION_DOUBLE, /* double; 0 */
    MIST_OPTION_BYTES,  /* int64_t, "8GiB"; 0 */
    MIST_OPTION_TIME_S, /* double, "3ms"; 0 */
    MIST_OPTION_FRAC,   /* double, "2%" or "0.02"; 0 */
    MIST_OPTION_STRING, /* const char *, borrowed from argv or the table; NULL */
    MIST_OPTION_CHOICE, /* int, index into choices; 0, which is choices[0] */
    MIST_OPTION_LIST,   /* struct mist_option_list; empty */
    MIST_OPTION_FILES,  /* the same; names of files, which may have commas */
};

#define MIST_OPTION_LIST_MAX 64

/* Texts of a repeatable option, of kind MIST_OPTION_LIST also split at commas.
 * Points into itself: don't copy or move. */
struct mist_option_list {
    int n;
    const char *items[MIST_OPTION_LIST_MAX];
    size_t used_bytes; /* of texts */
    char texts[4096];  /* the items, each ended by '\0' */
};

struct mist_option {
    const char *name; /* long name without dashes */
    char letter;      /* short name or 0 */
    enum mist_option_kind kind;
    const char *group;        /* heading in the help; rows of one group stand together */
    const char *value_name;   /* "N", "FILE", with the unit if any; NULL for a flag */
    const char *help;         /* one line, no period at the end */
    const char *default_text; /* parsed like a value; NULL: none */
    double min, max;          /* allowed range, ends included; both 0: any */
    const char *const *choices; /* NULL-terminated; for MIST_OPTION_CHOICE */
    bool is_required;           /* must be given */
    bool may_be_empty;          /* MIST_OPTION_STRING: also a text of no characters */
    const char *unless;         /* or one of these in its place, "a b"; NULL: none */
    const char *excludes;       /* name of an option that excludes this one, or NULL */
    const char *needs;          /* does nothing without one of these, "a b"; NULL: none */
    size_t offset;              /* in the tool's options struct */
};

enum { MIST_OPTIONS_MAX = 128, MIST_N_EXIT_CODES = 7 };

struct mist_tool {
    const char *name;            /* "mist-tune" */
    const char *purpose;         /* one line, no period */
    const char *const *examples; /* 2 or 3 command lines, NULL-terminated */
    const struct mist_option *options;
    size_t n_options;            /* at most MIST_OPTIONS_MAX */
    const char *positional_name; /* "PLAN"; NULL when there are none */
    const char *positional_help;
    const char *const
        *first_words; /* what the first positional is one of, NULL-terminated;
                                       NULL: a file, like all others */
    int positional_min, positional_max; /* max -1: any number */
    /* What exit codes mean, "no plan fits"; NULL: the same as with all tools. */
    const char *exit_texts[MIST_N_EXIT_CODES];
    const char *signal_text; /* which signals end it with 128+n; NULL: none */
    const char *manual;      /* what the man page says beside the table; NULL: nothing */
};

/*
 * A tool's manual is roff, see man(7): .SH DESCRIPTION; this line, where the page has
 * options, exit codes and example commands; what goes on with the examples; more sections.
 */
#define MIST_MANUAL_OPTIONS ".\\\" OPTIONS\n"

/* One row of a table; T is the tool's options struct. ROW_BUT: i_other excludes it;
 * ROW_WITH: it does nothing without one of i_others. */
#define MIST_OPTION_ROW(T, ...)                                                          \
    {                                                                                    \
        MIST_OPTION_FIELDS_(T, __VA_ARGS__)                                              \
    }
#define MIST_OPTION_ROW_BUT(T, i_other, ...)                                             \
    {                                                                                    \
        MIST_OPTION_FIELDS_(T, __VA_ARGS__), .excludes = i_other                         \
    }
#define MIST_OPTION_ROW_WITH(T, i_others, ...)                                           \
    {                                                                                    \
        MIST_OPTION_FIELDS_(T, __VA_ARGS__), .needs = i_others                           \
    }
#define MIST_OPTION_FIELDS_(T, i_name, i_kind, i_member, i_group, i_value, i_default,    \
                            i_min, i_max, i_help)                                        \
    .name = i_name, .kind = i_kind, .group = i_group, .value_name = i_value,             \
    .help = i_help, .default_text = i_default, .min = i_min, .max = i_max,               \
    .offset = offsetof(T, i_member)

/* Without a default, a range and other options. */
#define MIST_OPTION_ROW_FLAG(T, i_name, i_member, i_group, i_help)                       \
    MIST_OPTION_ROW(T, i_name, MIST_OPTION_FLAG, i_member, i_group, NULL, NULL, 0, 0,    \
                    i_help)
#define MIST_OPTION_ROW_TEXT(T, i_name, i_member, i_group, i_value, i_help)              \
    MIST_OPTION_ROW(T, i_name, MIST_OPTION_STRING, i_member, i_group, i_value, NULL, 0,  \
                    0, i_help)
#define MIST_OPTION_ROW_LIST(T, i_name, i_member, i_group, i_value, i_help)              \
    MIST_OPTION_ROW(T, i_name, MIST_OPTION_LIST, i_member, i_group, i_value, NULL, 0, 0, \
                    i_help)

#define MIST_OPTION_ROW_FILES(T, i_name, i_member, i_group, i_value, i_help)             \
    MIST_OPTION_ROW(T, i_name, MIST_OPTION_FILES, i_member, i_group, i_value, NULL, 0,   \
                    0, i_help)

/* The same of kind MIST_OPTION_CHOICE; i_member is an int. */
#define MIST_OPTION_ROW_CHOICE(T, ...)                                                   \
    {                                                                                    \
        MIST_OPTION_CHOICE_FIELDS_(T, __VA_ARGS__)                                       \
    }
#define MIST_OPTION_ROW_CHOICE_WITH(T, i_others, ...)                                    \
    {                                                                                    \
        MIST_OPTION_CHOICE_FIELDS_(T, __VA_ARGS__), .needs = i_others                    \
    }
#define MIST_OPTION_CHOICE_FIELDS_(T, i_name, i_member, i_group, i_value, i_default,     \
                                   i_choices, i_help)                                    \
    .name = i_name, .kind = MIST_OPTION_CHOICE, .group = i_group, .value_name = i_value, \
    .help = i_help, .default_text = i_default, .choices = i_choices,                     \
    .offset = offsetof(T, i_member)

/* Options that mean the same in every tool: embed as member `common`, pick rows. */
struct mist_common_options {
    const char *output;
    bool is_quiet, is_verbose, is_dry_run, force, as_json, as_csv, no_color;
    int progress;   /* enum mist_progress_mode */
    int64_t n_jobs; /* 0: one per processor */
    int64_t seed;
};

extern const char *const mist_progress_choices[]; /* auto, always, never */
extern const char *const mist_shell_words[];      /* bash, zsh, fish */

#define MIST_OPTION_GROUP_COMMON "Common"
#define MIST_OPTION_ROW_FLAG_(T, i_name, i_letter, i_help, i_member)                     \
    {                                                                                    \
        .name = i_name, .letter = i_letter, .kind = MIST_OPTION_FLAG,                    \
        .group = MIST_OPTION_GROUP_COMMON, .help = i_help,                               \
        .offset = offsetof(T, common.i_member)                                           \
    }
#define MIST_OPTION_ROW_QUIET(T)                                                         \
    MIST_OPTION_ROW_FLAG_(T, "quiet", 'q', "print errors only", is_quiet)
#define MIST_OPTION_ROW_VERBOSE(T)                                                       \
    MIST_OPTION_ROW_FLAG_(T, "verbose", 'v', "print all tables", is_verbose)
#define MIST_OPTION_ROW_DRY_RUN(T)                                                       \
    MIST_OPTION_ROW_FLAG_(T, "dry-run", 'n',                                             \
                          "check everything and stop before the work", is_dry_run)
#define MIST_OPTION_ROW_FORCE(T)                                                         \
    MIST_OPTION_ROW_FLAG_(T, "force", 'f', "replace files that exist", force)
#define MIST_OPTION_ROW_NO_COLOR(T)                                                      \
    MIST_OPTION_ROW_FLAG_(T, "no-color", 0, "no colours (also by NO_COLOR)", no_color)
#define MIST_OPTION_ROW_JSON(T)                                                          \
    MIST_OPTION_ROW_FLAG_(T, "json", 0, "print results as JSON", as_json)
#define MIST_OPTION_ROW_CSV(T) /* for tools that also have MIST_OPTION_ROW_JSON */       \
    {                                                                                    \
        .name = "csv", .kind = MIST_OPTION_FLAG, .group = MIST_OPTION_GROUP_COMMON,      \
        .help = "print results as CSV", .excludes = "json",                              \
        .offset = offsetof(T, common.as_csv)                                             \
    }
#define MIST_OPTION_ROW_OUTPUT(T, i_help, i_default)                                     \
    {                                                                                    \
        .name = "output", .letter = 'o', .kind = MIST_OPTION_STRING,                     \
        .group = MIST_OPTION_GROUP_COMMON, .value_name = "FILE", .help = i_help,         \
        .default_text = i_default, .offset = offsetof(T, common.output)                  \
    }
#define MIST_OPTION_ROW_JOBS(T)                                                          \
    {                                                                                    \
        .name = "jobs", .letter = 'j', .kind = MIST_OPTION_INT64,                        \
        .group = MIST_OPTION_GROUP_COMMON, .value_name = "N",                            \
        .help = "threads; 0: one per processor", .default_text = "0", .min = 0,          \
        .max = 4096, .offset = offsetof(T, common.n_jobs)                                \
    }
#define MIST_OPTION_ROW_SEED(T)                                                          \
    {                                                                                    \
        .name = "seed", .kind = MIST_OPTION_INT64, .group = MIST_OPTION_GROUP_COMMON,    \
        .value_name = "N", .help = "seed of everything random", .default_text = "1",     \
        .offset = offsetof(T, common.seed)                                               \
    }
#define MIST_OPTION_ROW_PROGRESS(T)                                                      \
    MIST_OPTION_ROW_CHOICE(T, "progress", common.progress, MIST_OPTION_GROUP_COMMON,     \
                           "WHEN", "auto", mist_progress_choices,                        \
                           "show progress; auto: on a terminal")

/* Positional arguments in their order;
 * items points into argv, which is rearranged for it. And which options there were. */
struct mist_positionals {
    int n;
    char **items;
    bool is_given[MIST_OPTIONS_MAX]; /* by row of the table */
};

/*
 * Fills out (the tool's options struct, any content) with defaults and then
 * argv[1..argc-1].
 *
 * --help, --version, --man and --completion=SHELL print to stream (stdout, usually; NULL:
 * nowhere) and set *is_done: the tool has nothing left to do. Returns MIST_OK;
 * MIST_ERR_USAGE with a message that names the option and what was expected; MIST_ERR_IO
 * when stream can't be written.
 */
enum mist_status mist_options_parse(const struct mist_tool *tool, int argc, char **argv,
                                    void *out, struct mist_positionals *positionals,
                                    FILE *stream, bool *is_done,
                                    struct mist_err *err) MIST_MUST_CHECK;

/* Whether an option of the tool was given. */
bool mist_options_is_given(const struct mist_tool *tool,
                           const struct mist_positionals *positionals, const char *name);

/* The first option that was given and is none of names, "json quiet"; NULL: there is none. */
const char *mist_options_find_other(const struct mist_tool *tool,
                                    const struct mist_positionals *positionals,
                                    const char *names);

/* Stores the value of an option of the tool as if it stood behind all others. MIST_ERR_USAGE
 * as above. */
enum mist_status mist_options_set(const struct mist_tool *tool, const char *name,
                                  const char *value, void *out,
                                  struct mist_err *err) MIST_MUST_CHECK;

/* What --help, --man and --completion print; shell: an index into mist_shell_words.
 * Write errors stay in the stream. */
void mist_options_print_help(const struct mist_tool *tool, FILE *stream);
void mist_options_print_man(const struct mist_tool *tool, FILE *stream);
void mist_options_print_completion(const struct mist_tool *tool, int shell, FILE *stream);

#endif
