/* What of a trace set a job can't use. See trace_use.h. */
#include "sim/cost/trace_use.h"

#include "sim/cost/cost_internal.h" /* words of number formats */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_SAID = 8 }; /* unknown operators that are said one by one */

/* The rows of one word. */
struct word {
    const struct mist_kernel_row *first; /* NULL: none */
    size_t n_rows;
};

static void count_row(struct word *word, const struct mist_kernel_row *row)
{
    word->first = word->first ? word->first : row;
    word->n_rows++;
}

static const char *rows_text(size_t n, char text[32])
{
    snprintf(text, 32, "%zu row%s", n, n == 1 ? "" : "s");
    return text;
}

/* kernels.csv and the line of row (NULL: of none) with a message. */
MIST_PRINTF(4, 5)
static void say(const struct mist_trace_set *set, const struct mist_kernel_row *row,
                const struct mist_messages *messages, const char *format, ...)
{
    char message[sizeof((struct mist_err *)0)->message];
    char path[sizeof((struct mist_err *)0)->path];
    struct mist_err warning;
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    snprintf(path, sizeof path, "%s%skernels.csv", set->folder ? set->folder : "",
             set->folder ? "/" : "");
    mist_err_at(&warning, MIST_ERR_INPUT, path, row ? row->line : 0, 0, "%s", message);
    mist_message_err(messages, &warning);
}

/* ---- operators ---- */

static const char *list_ops(char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int op = 0; op < MIST_N_OPS && used < size; op++)
        if (!mist_op_is_communication((enum mist_op)op))
            used += (size_t)snprintf(text + used, size - used, "%s%s", op ? ", " : "",
                                     mist_op_name((enum mist_op)op));
    return text;
}

static void say_ops(const struct mist_trace_set *set, const struct word *words, int n,
                    const struct word *others, const struct mist_messages *messages)
{
    char rows[32], ops[512];

    for (int i = 0; i < n; i++)
        say(set, words[i].first, messages,
            "no operator is called %s: %s not used; known are %s", words[i].first->op,
            rows_text(words[i].n_rows, rows), list_ops(ops, sizeof ops));
    if (others->n_rows > 0)
        say(set, others->first, messages,
            "%s of further operators that are not known are not used",
            rows_text(others->n_rows, rows));
}

static void warn_of_ops(const struct mist_trace_set *set,
                        const struct mist_messages *messages)
{
    struct word words[MAX_SAID] = {{0}}, others = {0};
    int n = 0;

    for (size_t i = 0; i < set->n_kernels; i++) {
        const struct mist_kernel_row *row = &set->kernels[i];
        int k = 0;
        if (mist_cost_find_op(row->op) < MIST_N_OPS)
            continue;
        while (k < n && strcmp(words[k].first->op, row->op) != 0)
            k++;
        n += k == n && n < MAX_SAID;
        count_row(k < MAX_SAID ? &words[k] : &others, row);
    }
    say_ops(set, words, n, &others, messages);
}

/* Rows of a phase that their operator is never run in, once for each operator. */
static void warn_of_phases(const struct mist_trace_set *set,
                           const struct mist_messages *messages)
{
    struct word words[MIST_N_OPS] = {{0}};
    char rows[32];

    for (size_t i = 0; i < set->n_kernels; i++) {
        const struct mist_kernel_row *row = &set->kernels[i];
        int op = mist_cost_find_op(row->op);
        if (op < MIST_N_OPS && !mist_op_has_phase((enum mist_op)op, row->phase))
            count_row(&words[op], row);
    }
    for (int op = 0; op < MIST_N_OPS; op++)
        if (words[op].n_rows > 0)
            say(set, words[op].first, messages,
                "%s has no phase %s: %s not used (mist-sim --list)", words[op].first->op,
                mist_phase_words[words[op].first->phase],
                rows_text(words[op].n_rows, rows));
}

/* ---- number formats ---- */

/* In the format of some job, or standing in for mine. */
static bool is_used(const struct mist_cluster *cluster, enum mist_trace_dtype mine,
                    enum mist_trace_dtype dtype)
{
    for (int i = 0; i < MIST_N_DTYPES; i++)
        if (mist_cost_trace_dtype((enum mist_dtype)i) == dtype)
            return true;
    return mist_cost_stand_in(cluster, mine) == dtype;
}

static void warn_of_dtypes(const struct mist_trace_set *set, enum mist_dtype dtype,
                           const struct mist_messages *messages)
{
    enum mist_trace_dtype mine = mist_cost_trace_dtype(dtype),
                          other = mist_cost_stand_in(&set->cluster, mine);
    struct word words[MIST_N_TRACE_DTYPES] = {{0}};
    char rows[32], there[160] = "";
    size_t used = 0;

    for (size_t i = 0; i < set->n_kernels; i++)
        count_row(&words[set->kernels[i].dtype], &set->kernels[i]);
    for (int i = 0; i < MIST_N_TRACE_DTYPES; i++) {
        const char *name = mist_trace_dtype_words[i];
        if (words[i].n_rows == 0)
            continue;
        used +=
            (size_t)snprintf(there + used, sizeof there - used, "%s%s of %s",
                             used ? ", " : "", rows_text(words[i].n_rows, rows), name);
        if (!is_used(&set->cluster, mine, (enum mist_trace_dtype)i))
            say(set, words[i].first, messages,
                "no job computes in %s: %s not used; known are fp32, bf16, fp16", name,
                rows_text(words[i].n_rows, rows));
    }
    if (other != mine && words[other].n_rows > 0)
        say(set, words[other].first, messages,
            "%s of %s, which has the peak rate of %s, stand in where operators have none "
            "of %s",
            rows_text(words[other].n_rows, rows), mist_trace_dtype_words[other],
            mist_trace_dtype_words[mine], mist_trace_dtype_words[mine]);
    else if (set->n_kernels > 0 && words[mine].n_rows == 0)
        say(set, NULL, messages,
            "no row of %s, which the job computes in; there are %s: operators are priced "
            "by the rates of cluster.json",
            mist_trace_dtype_words[mine], there);
}

/* From this on a user who trains in fp32 may just not have asked for anything else. */
static const double much_faster = 4.0;

static void warn_of_slow_format(const struct mist_trace_set *set, enum mist_dtype dtype,
                                const struct mist_messages *messages)
{
    const double *peaks = set->cluster.peak_flop_per_s;
    double mine = peaks[mist_cost_trace_dtype(dtype)], bf16 = peaks[MIST_TRACE_BF16];

    if (dtype == MIST_DTYPE_FP32 && mine > 0 && bf16 >= much_faster * mine)
        mist_message(messages,
                     "the job computes in fp32; this device computes %.3g times as fast "
                     "in bf16 (--dtype bf16)",
                     bf16 / mine);
}

void mist_trace_use_warn(const struct mist_trace_set *set, enum mist_dtype dtype,
                         const struct mist_messages *messages)
{
    warn_of_ops(set, messages);
    warn_of_phases(set, messages);
    warn_of_dtypes(set, dtype, messages);
    warn_of_slow_format(set, dtype, messages);
}

/* ---- links ---- */

void mist_trace_use_warn_links(const struct mist_trace_set *set, int32_t n_ranks,
                               const struct mist_messages *messages)
{
    const struct mist_cluster *cluster = &set->cluster;
    bool has_collectives = false;

    if (n_ranks <= cluster->devices_per_node || cluster->declared.node.bytes_per_s > 0)
        return;
    for (size_t i = 0; i < set->n_links; i++) {
        if (set->links[i].nodes > 1)
            return;
        has_collectives = has_collectives || set->links[i].ranks_per_node > 1;
    }
    if (has_collectives)
        mist_message(messages,
                     "%s%slinks.csv: no group has ranks on several nodes: messages "
                     "between nodes are taken to be as fast as inside of one; measure "
                     "them (mist-profile on nodes), or declare \"node\" in cluster.json",
                     set->folder ? set->folder : "", set->folder ? "/" : "");
}

/* ---- plans ---- */

void mist_trace_use_warn_plan(const struct mist_trace_set *set,
                              const struct mist_plan *plan, const char *plan_path,
                              const struct mist_messages *messages)
{
    uint64_t fingerprint = mist_trace_set_fingerprint(set);

    if (plan->fingerprint != 0 &&
        plan->fingerprint != mist_plan_fingerprint(&plan->model, &plan->job, fingerprint))
        mist_message(messages,
                     "%s was tuned for another model, job or trace set: its fingerprint "
                     "does not match what %s is now",
                     plan_path, set->folder ? set->folder : "the trace set");
}
