/* Replays of recordings, for people. See sim_recorded.h. */
#include "sim/sim_recorded.h"

#include "core/order.h"
#include "core/parse.h"
#include "sim/recorded/recorded_costs.h"
#include "sim/recorded/recorded_study.h"
#include "sim/recorded/recording.h"
#include "sim/sim_timeline.h"

#include <stdlib.h>

#define MOST_WORKERS 16 /* that people see of the slowest */

/* What is printed; CSV has one list, whose rows say what they are of. */
struct output {
    struct mist_emit *emit;
    enum mist_emit_kind kind;
    int32_t n_most; /* rows of a list; 0: all */
};

static void begin_list(const struct output *to, const char *key, const char *title)
{
    if (to->kind != MIST_EMIT_CSV)
        mist_emit_list_begin(to->emit, key, title);
}

static void end_list(const struct output *to)
{
    if (to->kind != MIST_EMIT_CSV)
        mist_emit_list_end(to->emit);
}

static void begin_row(const struct output *to, const char *of)
{
    mist_emit_object_begin(to->emit, NULL, NULL);
    if (to->kind == MIST_EMIT_CSV)
        mist_emit_text(to->emit, "of", NULL, of);
}

/* An element of a table, and what it is sorted by: most first. */
struct entry {
    double key;
    int32_t i;
};

MIST_COMPARATOR_OF(compare_entries, struct entry,
                   MIST_COMPARE_OR(b->key, a->key, MIST_COMPARE(a->i, b->i)))

/* Sorts n entries; returns how many of them a list has. */
static int32_t sort_entries(const struct output *to, struct entry *entries, int32_t n)
{
    qsort(entries, (size_t)n, sizeof *entries, compare_entries);
    return to->n_most == 0 || n < to->n_most ? n : to->n_most;
}

/* A part of the job, how much it slows the job down. name NULL: it has a number. */
static void add_part(const struct output *to, const char *key, const char *name,
                     int32_t i, const struct mist_recorded_part *part)
{
    struct mist_emit *emit = to->emit;

    begin_row(to, key);
    if (name)
        mist_emit_text(emit, key, NULL, name);
    else
        mist_emit_integer(emit, key, NULL, i);
    mist_emit_number(emit, "alone_slowdown", "alone, slowdown", part->alone_frac);
    mist_emit_number(emit, "without_s", "iteration without it", part->without_s);
    mist_emit_object_end(emit);
}

/* The parts of one sort, numbered from first on, the slowest first. n_of_kind: NULL, or of
 * kinds of operations how many there are; those of which there are none are left out. */
static enum mist_status add_parts(const struct output *to, const char *list,
                                  const char *title, const char *key,
                                  const struct mist_recorded_part *parts, int32_t first,
                                  int32_t n, const int64_t *n_of_kind,
                                  struct mist_err *err)
{
    struct entry *entries = malloc((size_t)n * sizeof *entries);
    int32_t used = 0;

    if (!entries)
        return mist_err_memory(err, NULL);
    for (int32_t i = 0; i < n; i++)
        if (!n_of_kind || n_of_kind[i] > 0)
            entries[used++] = (struct entry){parts[i].alone_frac, i};
    used = sort_entries(to, entries, used);
    begin_list(to, list, title);
    for (int32_t k = 0; k < used; k++) {
        int32_t i = entries[k].i;
        add_part(to, key, n_of_kind ? mist_operations_kinds[i].name : NULL, first + i,
                 &parts[i]);
    }
    end_list(to);
    free(entries);
    return MIST_OK;
}

/* The slowest workers: all of them for programs; for people as many as a line holds, and
 * how many more there are. */
static enum mist_status add_slowest(const struct output *to,
                                    const struct mist_operations *job,
                                    const struct mist_recorded_study *study,
                                    struct mist_err *err)
{
    int n_workers = job->n_replicas * job->n_stages, n = 0, n_slowest = 0;

    for (int i = 0; i < n_workers; i++)
        n_slowest += study->is_slowest[i];
    int n_shown = to->kind == MIST_EMIT_TABLE && n_slowest > MOST_WORKERS ? MOST_WORKERS
                                                                          : n_slowest;
    /* ", " and a number of 10 digits at most; " and 2147483647 more" */
    size_t size = (size_t)n_shown * 12 + 32;
    char *text = calloc(1, size);
    if (!text)
        return mist_err_memory(err, NULL);
    for (int i = 0; i < n_workers && n < n_shown; i++)
        if (study->is_slowest[i]) {
            mist_text_add(text, size, ", ", "%d", i);
            n++;
        }
    if (n_shown < n_slowest)
        mist_text_add(text, size, "", " and %d more", n_slowest - n_shown);
    mist_emit_text(to->emit, "slowest_workers", "slowest workers", text);
    mist_emit_number(to->emit, "without_slowest_s", "iteration without them",
                     study->slowest.without_s);
    free(text);
    return MIST_OK;
}

static void add_times(struct mist_emit *emit, const struct mist_operations *job,
                      const struct mist_recorded_study *study)
{
    mist_emit_integer(emit, "steps", NULL, study->n_steps);
    mist_emit_integer(emit, "replicas", NULL, job->n_replicas);
    mist_emit_integer(emit, "stages_of_replica", "stages", job->n_stages);
    mist_emit_integer(emit, "operations", NULL, job->n_ops);
    mist_emit_number(emit, "recorded_s", "iteration, recorded", study->recorded_s);
    mist_emit_number(emit, "replayed_s", "replayed unchanged", study->unchanged_s);
    mist_emit_number(emit, "replayed_worst_frac", "worst error of a step",
                     study->unchanged_worst_frac);
    mist_emit_integer(emit, "contradictions", "earlier than what they wait for",
                      study->n_contradictions);
    mist_emit_number(emit, "without_gaps_s", "without gaps", study->without_gaps_s);
    mist_emit_number(emit, "even_s", "if all were even", study->even_s);
    mist_emit_number(emit, "slowdown", "slowdown by unevenness",
                     study->even_s > 0 ? study->without_gaps_s / study->even_s : 1);
}

/* As in sim_study.c: what is saved is negative. */
static void add_edited(struct mist_emit *emit, double edited_s, double unchanged_s)
{
    mist_emit_number(emit, "edited_s", "iteration, as edited", edited_s);
    mist_emit_number(emit, "edited_change_s", "difference", edited_s - unchanged_s);
    mist_emit_number(emit, "edited_change_frac", "of it",
                     unchanged_s > 0 ? edited_s / unchanged_s - 1 : 0);
}

/* Of a table of operations. */
static enum mist_status add_study(const struct output *to, struct mist_operations *table,
                                  const char *const *edits, int n_edits,
                                  struct mist_progress *progress,
                                  struct mist_arena *arena, struct mist_err *err)
{
    struct mist_emit *emit = to->emit;
    struct mist_recorded_study study;
    enum mist_status status =
        mist_recorded_study(table, edits, n_edits, &study, progress, arena, err);

    if (status == MIST_OK) {
        add_times(emit, table, &study);
        status = add_slowest(to, table, &study, err);
    }
    if (status == MIST_OK && n_edits > 0)
        add_edited(emit, study.edited_s, study.unchanged_s);
    const struct output all = {emit, to->kind, 0};
    if (to->kind == MIST_EMIT_CSV)
        mist_emit_list_begin(emit, "parts", NULL);
    if (status == MIST_OK)
        status = add_parts(&all, "stages", "Stages", "stage", study.stages,
                           table->first_stage, table->n_stages, NULL, err);
    if (status == MIST_OK)
        status =
            add_parts(to, "replicas_by_slowdown", "Replicas", "replica", study.replicas,
                      table->first_replica, table->n_replicas, NULL, err);
    if (status == MIST_OK)
        status = add_parts(to, "kinds", "Operations", "operation", study.kinds, 0,
                           MIST_OPERATIONS_N_KINDS, table->n_of_kind, err);
    if (to->kind == MIST_EMIT_CSV)
        mist_emit_list_end(emit);
    return status;
}

/* -------------------------------------------------------------------- rank by rank */

/* What the trace does not explain. */
static void add_doubts(struct mist_emit *emit, const struct mist_recorded_costs *costs)
{
    mist_emit_integer(emit, "contradictions", "earlier than what they wait for",
                      costs->n_contradictions);
    mist_emit_integer(emit, "unlaunched", "launched by no call that is there",
                      costs->n_unlaunched);
    mist_emit_integer(emit, "unmatched", "messages without their other ends",
                      costs->n_unmatched);
    mist_emit_number(emit, "clock_shift_s", "clocks of ranks moved by up to",
                     costs->clock_shift_s);
    mist_emit_integer(emit, "late", "late on a device, nothing says why", costs->n_late);
    mist_emit_number(emit, "late_s", "these gaps, together", costs->late_s);
}

static void add_rank(const struct output *to, int32_t i,
                     const struct mist_recorded_rank *rank)
{
    struct mist_emit *emit = to->emit;
    bool is_csv = to->kind == MIST_EMIT_CSV; /* where the job's times have these names */

    begin_row(to, "rank");
    mist_emit_integer(emit, "rank", NULL, i);
    mist_emit_number(emit, is_csv ? "rank_recorded_s" : "recorded_s", "recorded",
                     rank->recorded_s);
    mist_emit_number(emit, is_csv ? "rank_replayed_s" : "replayed_s", "replayed",
                     rank->replayed_s);
    mist_emit_number(emit, "computing_s", "computes", rank->computing_s);
    mist_emit_number(emit, "waiting_s", "waits for ranks", rank->waiting_s);
    mist_emit_integer(emit, "last", "comes last", rank->n_last);
    mist_emit_object_end(emit);
}

static void add_kind(const struct output *to, const struct mist_recorded_kind *kind,
                     double without_s)
{
    struct mist_emit *emit = to->emit;
    static const char *const sorts[] = {[MIST_RECORDED_COMPUTATION] = "kernel",
                                        [MIST_RECORDED_MESSAGE] = "link",
                                        [MIST_RECORDED_CALL] = "call"};

    begin_row(to, "operation");
    mist_emit_text(emit, "operation", NULL, kind->name);
    mist_emit_text(emit, "sort", NULL, sorts[kind->sort]);
    mist_emit_integer(emit, "n", "times", kind->n);
    mist_emit_number(emit, "work_s", "takes, together", kind->work_s);
    mist_emit_number(emit, "without_s", "replayed without it", without_s);
    mist_emit_object_end(emit);
}

/* The ranks that others waited for most, and the kinds that cost most. */
static enum mist_status add_entries(const struct output *to,
                                    const struct mist_recorded_costs *costs,
                                    struct mist_err *err)
{
    int32_t n = costs->n_replicas > costs->n_kinds ? costs->n_replicas : costs->n_kinds;
    int32_t used = 0;
    struct entry *entries = malloc((size_t)n * sizeof *entries);

    if (!entries)
        return mist_err_memory(err, NULL);
    for (int32_t i = 0; i < costs->n_replicas; i++)
        if (costs->ranks[i].n_ops > 0)
            entries[used++] = (struct entry){(double)costs->ranks[i].n_last, i};
    used = sort_entries(to, entries, used);
    begin_list(to, "ranks_by_last", "Ranks");
    for (int32_t i = 0; i < used; i++)
        add_rank(to, entries[i].i, &costs->ranks[entries[i].i]);
    end_list(to);
    used = 0;
    for (int32_t i = 0; i < costs->n_kinds; i++)
        if (costs->kinds[i].n > 0)
            entries[used++] = (struct entry){-costs->without_kind_s[i], i};
    used = sort_entries(to, entries, used);
    begin_list(to, "kinds", "Operations");
    for (int32_t i = 0; i < used; i++)
        add_kind(to, &costs->kinds[entries[i].i], costs->without_kind_s[entries[i].i]);
    end_list(to);
    free(entries);
    return MIST_OK;
}

/* An open timeline, iteration by iteration; or else a job. */
static enum mist_status find_costs(struct mist_sim_timeline *timeline,
                                   struct mist_recorded_job *job,
                                   struct mist_recorded_costs *costs,
                                   struct mist_progress *progress, struct mist_err *err)
{
    struct mist_arena arena;
    enum mist_status status = MIST_OK;

    if (!timeline->path)
        return mist_recorded_costs_add(costs, job, err);
    mist_progress_begin(progress, "replaying");
    do {
        mist_arena_init(&arena);
        status = mist_sim_timeline_next(timeline, job, &arena, err);
        if (status == MIST_OK && job->n_ops > 0)
            status = mist_recorded_costs_add(costs, job, err);
        if (progress)
            mist_progress_update(progress, costs->n_ops, timeline->n_ops);
        mist_arena_fini(&arena);
    } while (status == MIST_OK && job->n_ops > 0);
    return status;
}

/* Of jobs recorded rank by rank. */
static enum mist_status add_costs(const struct output *to,
                                  const struct mist_recorded_costs *costs,
                                  struct mist_err *err)
{
    struct mist_emit *emit = to->emit;

    mist_emit_integer(emit, "ranks", NULL, costs->n_replicas);
    mist_emit_integer(emit, "operations", NULL, costs->n_ops);
    mist_emit_integer(emit, "messages", "messages between ranks", costs->n_meetings);
    mist_emit_number(emit, "recorded_s", "recorded", costs->recorded_s);
    mist_emit_number(emit, "replayed_s", "replayed unchanged", costs->replayed_s);
    mist_emit_number(emit, "replayed_worst_frac", "worst error of a rank",
                     costs->worst_frac);
    add_doubts(emit, costs);
    mist_emit_number(emit, "without_launch_s", "without launches and gaps",
                     costs->without_launch_s);
    if (costs->n_edits > 0)
        add_edited(emit, costs->edited_s, costs->replayed_s);
    if (to->kind == MIST_EMIT_CSV)
        mist_emit_list_begin(emit, "parts", NULL);
    enum mist_status status = add_entries(to, costs, err);
    if (to->kind == MIST_EMIT_CSV)
        mist_emit_list_end(emit);
    return status;
}

enum mist_status mist_sim_recorded_add(struct mist_emit *emit, enum mist_emit_kind kind,
                                       const char *const *names, int n_names,
                                       const struct mist_plan *plan,
                                       const char *const *edits, int n_edits,
                                       struct mist_progress *progress,
                                       struct mist_err *err)
{
    const struct output to = {emit, kind, kind == MIST_EMIT_TABLE ? 8 : 0};
    struct mist_operations table = {0};
    struct mist_sim_timeline timeline = {0};
    struct mist_recorded_costs costs;
    struct mist_recorded_job job = {0};
    struct mist_arena arena;

    mist_arena_init(&arena);
    enum mist_status status =
        plan ? mist_sim_timeline_open(&timeline, names[0], plan, &job, progress, err)
             : mist_recorded_read(names, n_names, &table, &job, progress, &arena, err);
    if (status == MIST_OK && table.path) {
        status = add_study(&to, &table, edits, n_edits, progress, &arena, err);
    } else if (status == MIST_OK) {
        status = mist_recorded_costs_begin(&costs, &job, edits, n_edits, &arena, err);
        if (status == MIST_OK)
            status = find_costs(&timeline, &job, &costs, progress, err);
        if (status == MIST_OK)
            status = mist_recorded_costs_end(&costs, err);
        if (status == MIST_OK)
            status = add_costs(&to, &costs, err);
    }
    mist_operations_close(&table);
    mist_sim_timeline_close(&timeline);
    mist_arena_fini(&arena);
    return status;
}
