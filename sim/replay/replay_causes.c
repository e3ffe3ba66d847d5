/* The slowdown of uneven iterations by its causes. See replay_causes.h. */
#include "sim/replay/replay_causes.h"

#include "core/memory.h" /* mist_grow */
#include "core/order.h"

#include <stdio.h>
#include <stdlib.h>

enum { ALL_CAUSES = (1u << MIST_N_CAUSES) - 1 };

static const char *const sort_names[MIST_N_CAUSES] = {
    [MIST_CAUSE_LENGTHS] = "lengths",
    [MIST_CAUSE_RANKS] = "speed of ranks",
    [MIST_CAUSE_LINKS] = "links of ranks",
    [MIST_CAUSE_JITTER] = "jitter",
};

struct study {
    const struct mist_plan *plan;
    struct mist_replay_options options;
    const struct mist_cost_model *cost_model;
    struct mist_replay_built *ranks;
    struct mist_replay_causes out;
    size_t capacity;
    struct mist_progress *progress; /* NULL: nobody asks */
    int64_t n_done, n_all;          /* replays */
    struct mist_err *err;
};

char *mist_replay_cause_text(const struct mist_replay_part *part, char *text, size_t size)
{
    int cause = 0;

    while (cause < MIST_N_CAUSES - 1 && !(part->causes >> cause & 1))
        cause++;
    if (part->i_stage >= 0)
        snprintf(text, size, "stage %d", (int)part->i_stage);
    else if (part->micro_batch >= 0)
        snprintf(text, size, "micro-batch %d", (int)part->micro_batch);
    else if (part->rank >= 0)
        snprintf(text, size, "%s of rank %d",
                 cause == MIST_CAUSE_LINKS ? "links" : "speed", (int)part->rank);
    else
        snprintf(text, size, "%s", sort_names[cause]);
    return text;
}

/* ----------------------------------------------------------------------------- causes */

static bool add(struct study *at, struct mist_replay_part part)
{
    return MIST_APPEND(at->out.causes, at->capacity, at->out.n,
                       (struct mist_replay_cause){.part = part});
}

/* The ranks that are not as fast as priced. */
static bool add_ranks(struct study *at, enum mist_cause cause, const double *factor)
{
    bool is_added = true;

    for (int32_t r = 0; factor && r < mist_plan_n_ranks(at->plan) && is_added; r++)
        if (factor[r] != 1)
            is_added = add(at, (struct mist_replay_part){1u << cause, -1, r, -1});
    return is_added;
}

static enum mist_status list_causes(struct study *at)
{
    const struct mist_replay_options *options = &at->options;
    const bool is_there[MIST_N_CAUSES] = {
        [MIST_CAUSE_LENGTHS] = options->loads,
        [MIST_CAUSE_RANKS] = options->rank_factor,
        [MIST_CAUSE_LINKS] = options->link_factor,
        [MIST_CAUSE_JITTER] = options->jitter_frac > 0,
    };
    bool is_added = true;

    for (int i = 0; i < MIST_N_CAUSES && is_added; i++)
        if (is_there[i])
            is_added = add(at, (struct mist_replay_part){1u << i, -1, -1, -1});
    if (is_added && at->out.n == 0)
        return mist_err_set(at->err, MIST_ERR_USAGE,
                            "everything is even, so nothing has causes: let lengths, "
                            "jitter or the speed of a rank or its links differ");
    for (int32_t i = 0; i < at->plan->n_stages && at->plan->n_stages > 1 && is_added; i++)
        is_added = add(at, (struct mist_replay_part){ALL_CAUSES, i, -1, -1});
    is_added = is_added && add_ranks(at, MIST_CAUSE_RANKS, options->rank_factor) &&
               add_ranks(at, MIST_CAUSE_LINKS, options->link_factor);
    for (int32_t i = 0; options->loads && i < at->plan->n_micro_batches && is_added; i++)
        is_added =
            add(at, (struct mist_replay_part){1u << MIST_CAUSE_LENGTHS, -1, -1, i});
    return is_added ? MIST_OK : mist_err_memory(at->err, NULL);
}

/* ----------------------------------------------------------------------------- replays */

/* An iteration of which a part (NULL: nothing), or all but the part, is even. */
static enum mist_status replay(struct study *at, const struct mist_replay_part *part,
                               bool evens_others, double *iteration_s)
{
    struct mist_replay_result result;

    at->options.part = part;
    at->options.evens_others = evens_others;
    enum mist_status status =
        mist_replay_run_built(at->ranks, at->cost_model, &at->options, &result, at->err);
    if (status != MIST_OK)
        return status;
    *iteration_s = result.iteration_s;
    if (at->progress)
        mist_progress_update(at->progress, ++at->n_done, at->n_all);
    mist_replay_result_fini(&result);
    return MIST_OK;
}

static int compare_causes(const void *a_, const void *b_)
{
    const struct mist_replay_cause *a = a_, *b = b_;
    int64_t place_a = a->part.i_stage + a->part.rank + a->part.micro_batch;
    int64_t place_b = b->part.i_stage + b->part.rank + b->part.micro_batch;

    return MIST_COMPARE_OR(
        a->without_s, b->without_s,
        MIST_COMPARE_OR(b->part.causes, a->part.causes, MIST_COMPARE(place_a, place_b)));
}

static enum mist_status study(struct study *at)
{
    const struct mist_replay_part all = {ALL_CAUSES, -1, -1, -1};
    enum mist_status status = list_causes(at);

    at->n_all = 2 + 2 * (int64_t)at->out.n;
    if (status == MIST_OK)
        status = replay(at, NULL, false, &at->out.iteration_s);
    if (status == MIST_OK)
        status = replay(at, &all, false, &at->out.even_s);
    for (size_t i = 0; i < at->out.n && status == MIST_OK; i++) {
        struct mist_replay_cause *cause = &at->out.causes[i];
        double alone_s = 0;
        status = replay(at, &cause->part, false, &cause->without_s);
        if (status == MIST_OK)
            status = replay(at, &cause->part, true, &alone_s);
        cause->alone_frac = at->out.even_s > 0 ? alone_s / at->out.even_s : 1;
    }
    if (status == MIST_OK)
        qsort(at->out.causes, at->out.n, sizeof *at->out.causes, compare_causes);
    return status;
}

enum mist_status mist_replay_find_causes(const struct mist_plan *plan,
                                         const struct mist_cost_model *cost_model,
                                         const struct mist_replay_options *options,
                                         struct mist_progress *progress,
                                         struct mist_replay_causes *out,
                                         struct mist_err *err)
{
    struct study at = {.plan = plan,
                       .options = *options,
                       .cost_model = cost_model,
                       .progress = progress,
                       .err = err};

    at.options.skips_timeline = true;
    at.options.part = NULL;
    enum mist_status status = mist_replay_build(plan, &at.options, &at.ranks, err);
    if (status == MIST_OK)
        status = study(&at);
    mist_replay_built_free(at.ranks);
    if (status == MIST_OK)
        *out = at.out;
    else
        mist_replay_causes_fini(&at.out);
    return status;
}

void mist_replay_causes_fini(struct mist_replay_causes *causes)
{
    free(causes->causes);
    *causes = (struct mist_replay_causes){0};
}
