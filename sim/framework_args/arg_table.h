/*
 * The tables of arguments: what a framework calls the numbers of struct mist_args. A
 * framework is a struct mist_args_framework with three parts: its syntax, its rows, and the
 * relations between numbers that no single row can say, once in each direction.
 *
 * To teach Mist an argument, add a row. Rows are looked up from the first on, so an exact
 * name stands before a pattern that covers it ("fp16.enabled", "fp16.*").
 */
#ifndef MIST_SIM_ARG_TABLE_H
#define MIST_SIM_ARG_TABLE_H

#include "sim/framework_args/arg_list.h"
#include "sim/framework_args/framework_args.h"

enum mist_arg_kind {
    MIST_ARG_FLAG,  /* is there or not; there it means value */
    MIST_ARG_COUNT, /* a whole number from min on */
    MIST_ARG_REAL,  /* a number from 0 on */
    MIST_ARG_WORD,  /* one of words */
    MIST_ARG_LEFT,  /* can't change the price */
    MIST_ARG_REFUSED,
};

struct mist_arg_word {
    const char *word; /* NULL ends them; the first of a value is what is written */
    double value;
};

struct mist_arg_row {
    const char *name; /* NULL ends a table; an end ".*" or "*" covers all that begin so */
    enum mist_arg_kind kind;
    int arg;       /* enum mist_arg, or MIST_ARG_OWN + a number of the framework's */
    double min;    /* COUNT */
    double value;  /* FLAG */
    double absent; /* what it means that the argument is not there; NAN: nothing */
    const struct mist_arg_word *words;
    const char *note;     /* REFUSED: why; else what is to be known, or NULL */
    const char *harmless; /* REFUSED: values that ask for nothing, a '|' between; NULL */
    bool is_alias;        /* read, not written: another row says it */
    bool is_launcher;     /* words: of the program that starts the ranks */
    bool yields_to_model; /* WORD: others are left open where the tool has the model */
};

/* Rows. i_absent of NAN leaves the number open. */
#define MIST_ROW_FLAG(i_name, i_arg, i_value, i_absent)                                  \
    MIST_ROW_OF_(i_name, MIST_ARG_FLAG, i_absent, .arg = i_arg, .value = i_value)
#define MIST_ROW_COUNT(i_name, i_arg, i_min, i_absent)                                   \
    MIST_ROW_OF_(i_name, MIST_ARG_COUNT, i_absent, .arg = i_arg, .min = i_min)
#define MIST_ROW_REAL(i_name, i_arg, i_absent)                                           \
    MIST_ROW_OF_(i_name, MIST_ARG_REAL, i_absent, .arg = i_arg)
#define MIST_ROW_WORD(i_name, i_arg, i_words, i_absent)                                  \
    MIST_ROW_OF_(i_name, MIST_ARG_WORD, i_absent, .arg = i_arg, .words = i_words)
#define MIST_ROW_MODEL(i_name, i_arg, i_words)                                           \
    MIST_ROW_OF_(i_name, MIST_ARG_WORD, NAN, .arg = i_arg, .words = i_words,             \
                 .yields_to_model = true)
#define MIST_ROW_ALIAS(i_name, i_kind, i_arg, i_value, i_words)                          \
    MIST_ROW_OF_(i_name, i_kind, NAN, .arg = i_arg, .min = i_value, .value = i_value,    \
                 .words = i_words, .is_alias = true)
#define MIST_ROW_LEFT(i_name) MIST_ROW_LEFT_AS(i_name, NULL)
#define MIST_ROW_LEFT_AS(i_name, i_note)                                                 \
    MIST_ROW_OF_(i_name, MIST_ARG_LEFT, NAN, .note = i_note)
#define MIST_ROW_REFUSED(i_name, i_harmless, i_why)                                      \
    MIST_ROW_OF_(i_name, MIST_ARG_REFUSED, NAN, .harmless = i_harmless, .note = i_why)
#define MIST_ROW_OF_(i_name, i_kind, i_absent, ...)                                      \
    {                                                                                    \
        .name = i_name, .kind = i_kind, .absent = i_absent, __VA_ARGS__                  \
    }

extern const struct mist_arg_word mist_arg_bools[]; /* "true", "false" */

typedef enum mist_status mist_args_rule(struct mist_args *args, struct mist_err *err);

struct mist_args_framework {
    const struct mist_arg_row *rows;
    mist_arg_list_read *read;
    mist_arg_list_write *write;
    /* From the framework's own numbers to those of enum mist_arg, one rule after the other
     * behind all rows; and back before all rows are written. beside: what the file leaves to
     * the reader. */
    mist_args_rule *rules[12]; /* NULL ends them */
    void (*begin)(struct mist_args *args, const struct mist_plan *plan,
                  struct mist_args_beside *beside);
};

extern const struct mist_args_framework mist_args_megatron, mist_args_deepspeed,
    mist_args_torchtitan;

/* ------------------------------------------------------------- for the rules of tables */

static inline bool mist_args_is_open(const struct mist_args *args, int arg)
{
    return args->v[arg] != args->v[arg];
}

/* A number, or another where it is open. */
static inline double mist_args_or(const struct mist_args *args, int arg, double other)
{
    return mist_args_is_open(args, arg) ? other : args->v[arg];
}

/* What a framework calls a number, the first of its names; NULL: it has none. */
const char *mist_args_name_of(enum mist_framework_name framework, int arg);

/* Sets a number that is made of others; one that is said already has to be the same.
 * from: what it is made of, for the place in messages. */
MIST_MUST_CHECK enum mist_status mist_args_derive(struct mist_args *args, int arg,
                                                  double value, int from,
                                                  struct mist_err *err);

/* The numbers of a plan, by its first stage; of its layers what cuts them so. */
void mist_args_of_plan(struct mist_args *args, const struct mist_plan *plan);

/* MIST_ERR_INPUT: the plans differ (but for where they run and what was predicted); the
 * message names the knob and both values. */
MIST_MUST_CHECK enum mist_status mist_args_compare(const struct mist_plan *plan,
                                                   const struct mist_plan *again,
                                                   struct mist_err *err);

/* MIST_ERR_INPUT at the argument that said a number. */
enum mist_status mist_args_fail(const struct mist_args *args, int arg,
                                struct mist_err *err, const char *format, ...)
    MIST_PRINTF(4, 5);

#endif
