/* Side constraints from text, and of plans. See constraint.h. */
#include "tune/constraint.h"

#include "core/parse.h"
#include "tune/search.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

static const struct {
    const char *word;
    enum mist_constraint_of of;
} names[] = {
    {"stages", MIST_CONSTRAINT_STAGES},
    {"pp", MIST_CONSTRAINT_STAGES},
    {"micro-batches", MIST_CONSTRAINT_MICRO_BATCHES},
    {"layers", MIST_CONSTRAINT_LAYERS},
    {"devices", MIST_CONSTRAINT_DEVICES},
    {"dp", MIST_CONSTRAINT_DP},
    {"tp", MIST_CONSTRAINT_TP},
    {"cp", MIST_CONSTRAINT_CP},
    {"micro-batch", MIST_CONSTRAINT_MICRO_BATCH},
    {"memory", MIST_CONSTRAINT_MEMORY},
};

/* ------------------------------------------------------------------------- from text */

struct reader {
    const char *at; /* what is left */
    struct mist_constraint *out;
    double constant; /* sum of the numbers, on the left side */
    bool has_bytes;  /* a number had a unit */
    struct mist_err *err;
};

static enum mist_status fail(const struct reader *at, const char *expected)
{
    return mist_err_set(at->err, MIST_ERR_USAGE,
                        "--constraint '%.120s' at '%.40s': expected %s", at->out->text,
                        at->at, expected);
}

static void skip_blanks(struct reader *at)
{
    at->at += strspn(at->at, " \t");
}

static bool take(struct reader *at, const char *word)
{
    size_t n = strlen(word);

    skip_blanks(at);
    if (strncmp(at->at, word, n) != 0)
        return false;
    at->at += n;
    return true;
}

/* A number; with a unit, "16GiB" or "16 GiB", it is a size. */
static enum mist_status read_number(struct reader *at, double *out)
{
    char text[32];
    int64_t bytes;
    size_t n = strspn(at->at, "0123456789."), gap = strspn(at->at + n, " ");
    const char *unit = at->at + n + gap;
    size_t n_unit = 0;

    while (isalpha((unsigned char)unit[n_unit]))
        n_unit++;
    if (gap > 0 && n_unit > 0 && unit[n_unit - 1] != 'B')
        n_unit = 0;
    if (n == 0 || n + n_unit >= sizeof text)
        return fail(at, "a number");
    memcpy(text, at->at, n);
    memcpy(text + n, unit, n_unit);
    text[n + n_unit] = '\0';
    enum mist_status status = n_unit > 0 ? mist_parse_bytes(text, &bytes, NULL)
                                         : mist_parse_double(text, out, NULL);
    if (status != MIST_OK)
        return fail(at, "a number, or a size such as 60GiB");
    if (n_unit > 0)
        *out = (double)bytes;
    at->has_bytes = at->has_bytes || n_unit > 0;
    at->at += n_unit > 0 ? n + gap + n_unit : n;
    return MIST_OK;
}

/* The quantity whose name stands here. */
static enum mist_status read_name(struct reader *at, enum mist_constraint_of *out)
{
    char word[32] = "";
    size_t n = 0;

    skip_blanks(at);
    while (isalpha((unsigned char)at->at[n]) || at->at[n] == '_' ||
           (at->at[n] == '-' && n > 0 && isalpha((unsigned char)at->at[n + 1])))
        n++;
    for (size_t i = 0; i < n && n < sizeof word; i++)
        word[i] = (char)(at->at[i] == '_' ? '-' : at->at[i]);
    for (size_t i = 0; i < sizeof names / sizeof *names && n < sizeof word; i++)
        if (strlen(names[i].word) == n && memcmp(names[i].word, word, n) == 0) {
            *out = names[i].of;
            at->at += n;
            return MIST_OK;
        }
    return fail(
        at, "stages, micro-batches, layers, devices, dp, tp, cp, micro-batch, memory, "
            "sum(..) of one of them or a number (of other knobs see --fix and "
            "--max)");
}

/* "[-1]", if it is there. */
static enum mist_status read_index(struct reader *at, struct mist_constraint_term *term)
{
    char text[16];
    int64_t index;
    size_t n;

    if (!take(at, "["))
        return MIST_OK;
    n = strcspn(at->at, "]");
    if (!at->at[n] || n >= sizeof text)
        return fail(at, "the number of a stage and ]");
    memcpy(text, at->at, n);
    text[n] = '\0';
    if (mist_parse_int64(text, &index, NULL) != MIST_OK || index < -MIST_MAX_STAGES ||
        index >= MIST_MAX_STAGES)
        return fail(at, "the number of a stage, 0 for the first or -1 for the last");
    term->scope = MIST_SCOPE_ONE;
    term->i_stage = (int32_t)index;
    at->at += n + 1;
    return MIST_OK;
}

static enum mist_status read_quantity(struct reader *at, double coefficient)
{
    struct mist_constraint_term term = {.coefficient = coefficient,
                                        .scope = MIST_SCOPE_EACH};
    bool is_sum = take(at, "sum(");
    const char *name = at->at;
    enum mist_status status = read_name(at, &term.of);

    if (status == MIST_OK && is_sum) {
        term.scope = MIST_SCOPE_SUM;
        if (!take(at, ")"))
            status = fail(at, ")");
    } else if (status == MIST_OK) {
        status = read_index(at, &term);
    }
    if (status != MIST_OK)
        return status;
    if (term.of < MIST_CONSTRAINT_LAYERS && term.scope != MIST_SCOPE_EACH) {
        at->at = name;
        return fail(at, "a quantity of a stage inside of sum() and before [");
    }
    if (at->out->n_terms == MIST_CONSTRAINT_MAX_TERMS)
        return fail(at, "fewer terms");
    at->out->terms[at->out->n_terms++] = term;
    return MIST_OK;
}

/* One side, times 1 or -1. */
static enum mist_status read_sum(struct reader *at, double sign)
{
    enum mist_status status = MIST_OK;
    double number, term_sign = sign;

    if (take(at, "-"))
        term_sign = -sign;
    do {
        skip_blanks(at);
        if (!isdigit((unsigned char)*at->at)) {
            status = read_quantity(at, term_sign);
        } else {
            status = read_number(at, &number);
            if (status == MIST_OK && take(at, "*"))
                status = read_quantity(at, term_sign * number);
            else if (status == MIST_OK)
                at->constant += term_sign * number;
        }
        bool is_more = status == MIST_OK && (take(at, "+") || take(at, "-"));
        if (!is_more)
            return status;
        term_sign = at->at[-1] == '-' ? -sign : sign;
    } while (true);
}

static enum mist_status append(struct mist_constraints *to,
                               const struct mist_constraint *constraint,
                               struct mist_err *err)
{
    if (to->n == MIST_MAX_CONSTRAINTS)
        return mist_err_set(err, MIST_ERR_USAGE, "more than %d --constraint",
                            MIST_MAX_CONSTRAINTS);
    to->of[to->n++] = *constraint;
    return MIST_OK;
}

/* Memory is not chosen across stages, so all that may be said of it is a limit. */
static enum mist_status take_memory(struct reader *at, struct mist_constraints *to)
{
    struct mist_constraint of = *at->out;
    struct mist_constraint_term *term = &of.terms[0];

    if (of.n_terms == 1 && term->coefficient < 0) { /* "16GiB >= memory" */
        double lower = of.lower;
        of.lower = -of.upper;
        of.upper = -lower;
        term->coefficient = -term->coefficient;
    }
    if (of.n_terms != 1 || term->scope == MIST_SCOPE_SUM || term->coefficient != 1 ||
        !isinf(of.lower) || !at->has_bytes || of.upper < 1)
        return mist_err_set(
            at->err, MIST_ERR_USAGE,
            "--constraint '%.120s': memory goes alone, has a unit "
            "and is limited from above, as in 'memory <= 60GiB' or 'memory[0] <= 16GiB'",
            of.text);
    if (term->scope == MIST_SCOPE_ONE)
        return append(to, &of, at->err);
    if (to->memory_bytes == 0 || of.upper < (double)to->memory_bytes)
        to->memory_bytes = (int64_t)of.upper;
    return MIST_OK;
}

enum mist_status mist_constraints_add(struct mist_constraints *to, const char *text,
                                      struct mist_err *err)
{
    struct mist_constraint constraint = {
        .text = text, .lower = -INFINITY, .upper = INFINITY};
    struct reader at = {.at = text, .out = &constraint, .err = err};
    bool has_memory = false;
    enum mist_status status = read_sum(&at, 1);

    if (status != MIST_OK)
        return status;
    bool is_most = take(&at, "<="), is_least = !is_most && take(&at, ">=");
    if (!is_most && !is_least && !take(&at, "==") && !take(&at, "="))
        return fail(&at, "+, -, <=, >= or =");
    status = read_sum(&at, -1);
    skip_blanks(&at);
    if (status == MIST_OK && *at.at)
        status = fail(&at, "+, - or the end");
    if (status != MIST_OK)
        return status;
    if (!is_least)
        constraint.upper = -at.constant;
    if (!is_most)
        constraint.lower = -at.constant;
    for (int i = 0; i < constraint.n_terms; i++)
        has_memory = has_memory || constraint.terms[i].of == MIST_CONSTRAINT_MEMORY;
    if (has_memory)
        return take_memory(&at, to);
    if (constraint.n_terms == 0 || at.has_bytes)
        return mist_err_set(err, MIST_ERR_USAGE, "--constraint '%.120s' %s", text,
                            at.has_bytes ? "compares a size with what is none"
                                         : "says nothing of a plan");
    return append(to, &constraint, err);
}

/* ------------------------------------------------------------------------- of a plan */

static bool is_of_plan(const struct mist_constraint_term *term)
{
    return term->of < MIST_CONSTRAINT_LAYERS;
}

static int32_t stage_of(const struct mist_constraint_term *term, int32_t n_stages)
{
    return term->i_stage < 0 ? n_stages + term->i_stage : term->i_stage;
}

bool mist_constraint_is_of_memory(const struct mist_constraint *of)
{
    return of->terms[0].of == MIST_CONSTRAINT_MEMORY;
}

int64_t mist_constraints_memory(const struct mist_constraints *all, int32_t n_stages,
                                int32_t i_stage)
{
    int64_t least = INT64_MAX;

    for (int k = 0; all && k < all->n; k++) {
        const struct mist_constraint *of = &all->of[k];
        if (mist_constraint_is_of_memory(of) &&
            stage_of(&of->terms[0], n_stages) == i_stage && of->upper < (double)least)
            least = (int64_t)of->upper;
    }
    return least;
}

int32_t mist_constraint_n_times(const struct mist_constraint *of, int32_t n_stages)
{
    for (int i = 0; i < of->n_terms; i++)
        if (!is_of_plan(&of->terms[i]) && of->terms[i].scope == MIST_SCOPE_EACH)
            return n_stages;
    return 1;
}

double mist_constraint_of_plan(const struct mist_constraint *of, int32_t n_stages,
                               int32_t n_micro_batches)
{
    double sum = 0;

    for (int i = 0; i < of->n_terms; i++)
        if (is_of_plan(&of->terms[i]))
            sum +=
                of->terms[i].coefficient *
                (of->terms[i].of == MIST_CONSTRAINT_STAGES ? n_stages : n_micro_batches);
    return sum;
}

static double value_of(enum mist_constraint_of quantity,
                       const struct mist_search_choice *of)
{
    switch (quantity) {
    case MIST_CONSTRAINT_LAYERS:
        return of->n_layers;
    case MIST_CONSTRAINT_DEVICES:
        return mist_space_n_devices(&of->shape);
    case MIST_CONSTRAINT_DP:
        return of->shape.dp;
    case MIST_CONSTRAINT_TP:
        return of->shape.tp;
    case MIST_CONSTRAINT_CP:
        return mist_space_cp(&of->shape);
    case MIST_CONSTRAINT_MEMORY:
        return (double)of->peak_bytes;
    default:
        return of->micro_batch;
    }
}

double mist_constraint_of_stage(const struct mist_constraint *of, int32_t i_time,
                                int32_t n_stages, int32_t i_stage,
                                const struct mist_search_choice *choice)
{
    double sum = 0;

    for (int i = 0; i < of->n_terms; i++) {
        const struct mist_constraint_term *term = &of->terms[i];
        bool is_meant =
            term->scope == MIST_SCOPE_SUM ||
            i_stage ==
                (term->scope == MIST_SCOPE_ONE ? stage_of(term, n_stages) : i_time);
        if (is_meant && !is_of_plan(term))
            sum += term->coefficient * value_of(term->of, choice);
    }
    return sum;
}

bool mist_constraints_hold(const struct mist_constraints *all, int32_t n_micro_batches,
                           int32_t n_stages, const struct mist_search_choice *stages)
{
    for (int k = 0; k < all->n; k++) {
        const struct mist_constraint *of = &all->of[k];
        for (int32_t time = 0; time < mist_constraint_n_times(of, n_stages); time++) {
            double sum = mist_constraint_of_plan(of, n_stages, n_micro_batches);
            for (int32_t s = 0; s < n_stages; s++)
                sum += mist_constraint_of_stage(of, time, n_stages, s, &stages[s]);
            double slack = 1e-9 * (1 + fabs(sum)); /* of decimals such as 0.1 * dp */
            if (sum < of->lower - slack || sum > of->upper + slack)
                return false;
        }
    }
    return true;
}
