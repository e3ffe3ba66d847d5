/* Questions and what follows from them. See questions.h. */
#include "tune/questions.h"

#include "core/memory.h"
#include "core/order.h"
#include "sim/model/catalog.h" /* mist_model_count */

#include <math.h>
#include <stdlib.h>

/* Bits of what a question may use: groups of knobs, as the space has them, and behind these
 * the four ratios, and ratios in eighths. */
enum { RATIOS = MIST_N_SPACE_GROUPS, EIGHTHS = RATIOS + MIST_N_OFFLOADS, N_USES };

/* Binary digits of the limits of memory that questions are asked with. In chunks steps are
 * longer, as schedules that leave small gaps need more than the search says, which knows 1F1B.
 * As long as no plan holds they are short, as far as arenas may be above the closed form. */
enum { LIMIT_DIGITS = 6, CHUNKS_DIGITS = 4, SHORT_DIGITS = 10 };
#define ABOVE_FRAC 0.125

/* A limit of so many binary digits: the largest below the limit, or the least that is not. */
static int64_t round_limit(int64_t limit_bytes, int n_digits, bool is_below)
{
    int64_t unit = 1;

    if (limit_bytes == INT64_MAX)
        return limit_bytes;
    while (limit_bytes / unit >= (int64_t)1 << n_digits)
        unit *= 2;
    return (limit_bytes + (is_below ? -1 : unit - 1)) / unit * unit;
}

static enum mist_status add(struct mist_questions *to, const struct mist_question *of,
                            struct mist_err *err)
{
    for (size_t i = 0; i < to->n; i++)
        if (to->all[i].uses == of->uses && to->all[i].limit_bytes == of->limit_bytes &&
            to->all[i].sort == of->sort)
            return MIST_OK;
    if (!MIST_RESERVE(to->all, to->capacity, to->n + 1))
        return mist_err_memory(err, NULL);
    to->all[to->n++] = *of;
    return MIST_OK;
}

enum mist_status mist_questions_init(struct mist_questions *questions,
                                     const struct mist_validate_config *config,
                                     struct mist_err *err)
{
    const struct mist_question whole = {
        .uses = config->space->groups | ((1u << (N_USES - RATIOS)) - 1) << RATIOS,
        .limit_bytes = round_limit(config->limit_bytes, LIMIT_DIGITS, false),
        .i_from = SIZE_MAX,
    };

    *questions = (struct mist_questions){0};
    return add(questions, &whole, err);
}

bool mist_question_is_whole(const struct mist_questions *questions,
                            const struct mist_question *of)
{
    return of->uses == questions->all[0].uses;
}

/* The fewest stages of which some share a node. */
static int32_t fewest_that_share(const struct mist_space *space)
{
    return (space->n_ranks + space->devices_per_node - 1) / space->devices_per_node + 1;
}

static bool may_share_nodes(const struct mist_space *space)
{
    for (int32_t i = 0; i < space->n_cases; i++)
        if (space->cases[i].n_stages >= fewest_that_share(space))
            return true;
    return false;
}

enum mist_status mist_question_part(const struct mist_space *space,
                                    const struct mist_question *of,
                                    struct mist_space *out, struct mist_err *err)
{
    struct mist_bounds bounds = space->bounds;

    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        if (!(of->uses >> (RATIOS + k) & 1u))
            bounds.of[MIST_KNOB_OFFLOAD + k].max = bounds.of[MIST_KNOB_OFFLOAD + k].min;
    if (of->sort == MIST_QUESTION_HOST &&
        bounds.of[MIST_KNOB_PP].min < fewest_that_share(space))
        bounds.of[MIST_KNOB_PP].min = fewest_that_share(space);
    enum mist_status status =
        mist_space_part(out, space, of->uses & ((1u << RATIOS) - 1), &bounds, err);
    if (!(of->uses >> EIGHTHS & 1u))
        out->ratio_step = 2;
    for (int k = 0; k < MIST_N_OFFLOADS; k++) { /* no others are allowed */
        struct mist_knob_range range = mist_space_ratios(out, k);
        if (range.min > range.max)
            out->ratio_step = space->ratio_step;
    }
    return status;
}

MIST_COMPARATOR(compare_pairs, struct mist_question_pair, n_micro_batches, n_stages)

/* What the nearest question has found that looked for plans of at most cutoff_s; NULL: none
 * did. */
static const struct mist_question_found *
find_found(const struct mist_questions *questions, size_t i, double cutoff_s)
{
    while (i < SIZE_MAX && questions->all[i].found.within_s < cutoff_s)
        i = questions->all[i].i_from;
    return i < SIZE_MAX ? &questions->all[i].found : NULL;
}

void mist_questions_narrow(const struct mist_questions *questions, size_t i,
                           double cutoff_s, struct mist_space *part)
{
    const struct mist_question_found *found = find_found(questions, i, cutoff_s);
    int32_t n_left = 0;

    for (int32_t k = 0; k < part->n_cases && found; k++) {
        struct mist_question_pair key = {part->cases[k].n_micro_batches,
                                         part->cases[k].n_stages};
        if (found->n > 0 && bsearch(&key, found->of, found->n, sizeof key, compare_pairs))
            part->cases[n_left++] = part->cases[k];
    }
    part->n_cases = found ? n_left : part->n_cases;
}

enum mist_status mist_question_note_found(struct mist_question *of,
                                          const struct mist_search_result *result,
                                          double within_s, struct mist_arena *arena,
                                          struct mist_err *err)
{
    size_t n = result->n_candidates, n_left = 0;
    struct mist_question_pair *pairs = mist_arena_alloc(arena, (n + 1) * sizeof *pairs);

    if (!pairs)
        return mist_err_memory(err, NULL);
    for (size_t i = 0; i < n; i++)
        pairs[i] = (struct mist_question_pair){result->candidates[i].n_micro_batches,
                                               result->candidates[i].n_stages};
    qsort(pairs, n, sizeof *pairs, compare_pairs);
    for (size_t i = 0; i < n; i++)
        if (n_left == 0 || compare_pairs(&pairs[n_left - 1], &pairs[i]) != 0)
            pairs[n_left++] = pairs[i];
    of->found = (struct mist_question_found){within_s, n_left, pairs};
    return MIST_OK;
}

/* What a candidate can't do without. */
static unsigned find_uses(const struct mist_search_candidate *of)
{
    const struct mist_search_choice *first = &of->stages[0];
    unsigned uses = 0;

    for (int32_t i = 0; i < of->n_stages; i++) {
        const struct mist_search_choice *at = &of->stages[i];
        bool is_sequence = at->shape.is_sequence_parallel;
        bool is_other = !mist_space_shapes_are_same(&at->shape, &first->shape);
        for (int k = 0; k < MIST_N_OFFLOADS; k++)
            if (at->knobs.offload[k] > 0)
                uses |= 1u << MIST_SPACE_OFFLOAD | 1u << (RATIOS + k) |
                        (unsigned)(at->knobs.offload[k] & 1) << EIGHTHS;
        uses |= (unsigned)(at->knobs.zero > 0) << MIST_SPACE_ZERO |
                (unsigned)(at->knobs.n_checkpointed > 0) << MIST_SPACE_CKPT |
                (unsigned)(at->knobs.n_lean > 0) << MIST_SPACE_LEAN |
                (unsigned)(at->shape.cp > 1) << MIST_SPACE_CONTEXT |
                (unsigned)(at->n_layers != first->n_layers) << MIST_SPACE_IMBALANCE |
                (unsigned)is_other << MIST_SPACE_MESH |
                (unsigned)is_sequence << MIST_SPACE_SEQUENCE;
    }
    return uses;
}

void mist_question_note(struct mist_question *of,
                        const struct mist_search_candidate *candidates,
                        const size_t *order, size_t n)
{
    of->needs = 0;
    of->peak_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const struct mist_search_candidate *candidate = &candidates[order[i]];
        of->needs |= find_uses(candidate);
        for (int32_t s = 0; s < candidate->n_stages && i < (n + 1) / 2; s++)
            if (candidate->stages[s].peak_bytes > of->peak_bytes)
                of->peak_bytes = candidate->stages[s].peak_bytes;
    }
}

/* Whether all that was looked at has too large an arena. */
static bool lacks_memory(const struct mist_validate_result *so_far, int64_t limit_bytes)
{
    for (size_t i = 0; i < so_far->n_dropped; i++)
        if (so_far->dropped[i].planned_bytes <= limit_bytes)
            return false;
    return so_far->n_plans == 0;
}

/* A limit below what the best candidates of a question need; in a short step where they are
 * near the real limit and nothing holds. */
static int64_t lower_limit(const struct mist_question *of, int64_t real_bytes,
                           const struct mist_validate_result *so_far)
{
    int64_t peak = of->peak_bytes;

    if (of->sort == MIST_QUESTION_CHUNKS)
        return round_limit(peak - peak / 32, CHUNKS_DIGITS, true);
    bool is_near =
        peak <= real_bytes && (double)peak > (1 - ABOVE_FRAC) * (double)real_bytes;
    return round_limit(
        peak, is_near && lacks_memory(so_far, real_bytes) ? SHORT_DIGITS : LIMIT_DIGITS,
        true);
}

/* Those with less freedom. */
static enum mist_status follow_less(struct mist_questions *to, size_t i,
                                    int64_t real_bytes,
                                    const struct mist_validate_result *so_far,
                                    struct mist_err *err)
{
    const struct mist_question of = to->all[i];
    enum mist_status status = MIST_OK;
    struct mist_question less = of;

    less.i_from = i;
    less.found = (struct mist_question_found){0};
    less.is_asked = false;
    less.hope_s = of.answer_s;
    less.limit_bytes = real_bytes;
    if (of.peak_bytes > real_bytes && of.sort != MIST_QUESTION_CHUNKS)
        status = add(to, &less, err);
    less.limit_bytes = lower_limit(&of, real_bytes, so_far);
    if (of.peak_bytes > 0 && status == MIST_OK)
        status = add(to, &less, err);
    less.limit_bytes = of.limit_bytes;
    for (int u = N_USES; u-- > 0 && status == MIST_OK;) {
        less.uses = of.uses & ~(1u << u);
        if (of.needs >> u & 1u)
            status = add(to, &less, err);
    }
    return status;
}

/* Whether all devices and hosts together have room for weights and optimizer state, of which
 * every element lies somewhere. */
static enum mist_status find_room(const struct mist_validate_config *config,
                                  bool *has_room, struct mist_err *err)
{
    const struct mist_space *space = config->space;
    struct mist_model_count count = {0};
    enum mist_status status =
        mist_model_count(&space->model, space->job.seq_len, &count, err);
    double n_nodes = ceil((double)space->n_ranks / space->devices_per_node);

    *has_room = (double)count.n_parameters * (mist_dtype_weight_bytes(space->job.dtype) +
                                              mist_dtype_state_bytes(space->job.dtype)) <=
                space->n_ranks * (double)config->limit_bytes +
                    n_nodes * (double)config->host_limit_bytes;
    return status;
}

/* Those with more: under the real limit. */
static enum mist_status follow_more(struct mist_questions *to,
                                    const struct mist_question of,
                                    const struct mist_validate_config *config,
                                    struct mist_err *err)
{
    struct mist_question more = of;
    bool has_room = false;
    enum mist_status status = find_room(config, &has_room, err);

    if (of.limit_bytes != to->all[0].limit_bytes)
        return status;
    more.i_from = SIZE_MAX; /* others have other times or limits */
    more.found = (struct mist_question_found){0};
    more.is_asked = false;
    more.hope_s = of.answer_s;
    more.least_s = 0;
    more.sort = MIST_QUESTION_CHUNKS;
    if (status == MIST_OK && mist_question_is_whole(to, &of) &&
        of.uses >> MIST_SPACE_SCHEDULE & 1u)
        status = add(to, &more, err);
    /* last: what it drops says nothing of the others' memory */
    more.sort = MIST_QUESTION_HOST;
    more.hope_s = INFINITY;
    if (status == MIST_OK && mist_question_is_whole(to, &of) &&
        config->host_limit_bytes < INT64_MAX && has_room &&
        may_share_nodes(config->space))
        status = add(to, &more, err);
    return status;
}

enum mist_status mist_questions_follow(struct mist_questions *questions, size_t i,
                                       const struct mist_validate_config *config,
                                       const struct mist_validate_result *so_far,
                                       struct mist_err *err)
{
    const struct mist_question of = questions->all[i];
    enum mist_status status = MIST_OK;

    if (of.sort == MIST_QUESTION_1F1B)
        status = follow_more(questions, of, config, err);
    if (status == MIST_OK)
        status = follow_less(questions, i, config->limit_bytes, so_far, err);
    return status;
}
