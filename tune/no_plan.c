/* Messages about searches without a plan. See no_plan.h. */
#include "tune/no_plan.h"

#include "core/parse.h" /* mist_format_bytes */

#include <stdio.h>
#include <string.h>

struct text {
    char at[512];
    size_t n;
};

static void add(struct text *to, const char *separator, const char *word)
{
    size_t room = sizeof to->at - to->n;
    int n = snprintf(to->at + to->n, room, "%s%s", to->n > 0 ? separator : "", word);

    to->n += n > 0 && (size_t)n < room ? (size_t)n : 0;
}

/* What could help against a lack of memory: groups of knobs that save memory and are off,
 * more than host_bytes of a node's (0: would not), and bounds. */
static void add_help(const struct mist_space *space, int64_t host_bytes, struct text *to)
{
    static const enum mist_space_group savers[] = {MIST_SPACE_ZERO, MIST_SPACE_CKPT,
                                                   MIST_SPACE_LEAN, MIST_SPACE_OFFLOAD};
    char text[MIST_BOUND_TEXT], number[MIST_FORMAT_BYTES];
    bool has_bound = false;

    for (size_t i = 0; i < sizeof savers / sizeof *savers; i++)
        if (!mist_space_has(space, savers[i]))
            add(to, ", ", mist_space_group_name(savers[i]));
    if (to->n > 0)
        add(to, " ", "in --space");
    if (host_bytes > 0) {
        add(to, ", ", "more host memory than");
        add(to, " ", mist_format_bytes(number, sizeof number, host_bytes));
        add(to, " ", "of a node");
    }
    for (int i = 0; i < MIST_N_KNOBS; i++)
        if (mist_bounds_has(&space->bounds, (enum mist_knob)i)) {
            if (!has_bound)
                add(to, ", ", "to go without");
            add(to, has_bound ? " and " : " ",
                mist_bounds_text(&space->bounds, (enum mist_knob)i, text));
            has_bound = true;
        }
    add(to, ", ", "more devices, shorter sequences");
}

/* Whether there are cases when one bound (MIST_N_KNOBS: --uniform) is lifted. */
static enum mist_status has_cases_without(const struct mist_space *space, int knob,
                                          bool *has_cases, struct mist_err *err)
{
    struct mist_bounds bounds = space->bounds;
    struct mist_space part;

    if (knob == MIST_N_KNOBS)
        bounds.is_uniform = false;
    else
        bounds.of[knob] = mist_bounds_none().of[knob];
    enum mist_status status = mist_space_part(&part, space, space->groups, &bounds, err);
    *has_cases = status == MIST_OK && part.n_cases > 0;
    mist_space_fini(&part);
    return status;
}

/* All bounds and, unless strict is NULL, those without which alone there would be plans. */
static enum mist_status list_bounds(const struct mist_space *space, struct text *all,
                                    struct text *strict, struct mist_err *err)
{
    char text[MIST_BOUND_TEXT];
    enum mist_status status = MIST_OK;

    for (int i = 0; i <= MIST_N_KNOBS && status == MIST_OK; i++) {
        bool is_uniform = i == MIST_N_KNOBS, has_cases = false;
        if (is_uniform ? !space->bounds.is_uniform
                       : !mist_bounds_has(&space->bounds, (enum mist_knob)i))
            continue;
        const char *name =
            is_uniform ? "--uniform"
                       : mist_bounds_text(&space->bounds, (enum mist_knob)i, text);
        add(all, " ", name);
        if (strict)
            status = has_cases_without(space, i, &has_cases, err);
        if (strict && has_cases)
            add(strict, " or ", name);
    }
    return status;
}

enum mist_status mist_no_plan_check_space(const struct mist_space *space,
                                          struct mist_err *err)
{
    struct text all = {.n = 0}, strict = {.n = 0};

    if (space->n_cases > 0)
        return MIST_OK;
    enum mist_status status = list_bounds(space, &all, &strict, err);
    if (status != MIST_OK)
        return status;
    return mist_err_set(
        err, MIST_ERR_NO_PLAN,
        "%lld samples and %d layers can't be spread over %d ranks, %d on a node, within "
        "the search space%s%s%s%s%s",
        (long long)space->job.global_batch, (int)space->model.n_layers,
        (int)space->n_ranks, (int)space->devices_per_node, all.n > 0 ? " and " : "",
        all.at, strict.n > 0 ? "; they can without " : "", strict.at,
        strict.n > 0
            ? ""
            : "; what could help: ranks and a --global-batch with common factors");
}

/* Of plans that fit the devices: what the closest needs of a node's host memory; where that
 * fits, too, it is what was asked for. */
static enum mist_status explain_host(const struct mist_validate_config *config,
                                     const struct mist_validate_result *result,
                                     struct mist_err *err)
{
    const struct mist_space *space = config->space;
    char needs[MIST_FORMAT_BYTES], limit[MIST_FORMAT_BYTES], more[MIST_FORMAT_BYTES];
    int64_t closest = INT64_MAX;
    struct text all = {.n = 0};

    for (size_t i = 0; i < result->n_dropped; i++)
        if (result->dropped[i].planned_bytes <= config->limit_bytes &&
            result->dropped[i].host_bytes < closest)
            closest = result->dropped[i].host_bytes;
    if (result->n_dropped > 0 && closest > config->host_limit_bytes)
        return mist_err_set(
            err, MIST_ERR_NO_PLAN,
            "no plan was found that fits the host memory of a node: of those that fit "
            "the devices the closest that was looked at needs %s, limit %s (%s too much)",
            mist_format_bytes(needs, sizeof needs, closest),
            mist_format_bytes(limit, sizeof limit, config->host_limit_bytes),
            mist_format_bytes(more, sizeof more, closest - config->host_limit_bytes));
    enum mist_status status = list_bounds(space, &all, NULL, err);
    if (status != MIST_OK)
        return status;
    return mist_err_set(err, MIST_ERR_NO_PLAN,
                        "no plan that fits the memory is within %s",
                        all.n > 0 ? all.at : "the search space");
}

/* Whether a search finds anything under the limit of device memory. */
static enum mist_status has_plans(const struct mist_validate_config *config,
                                  struct mist_search_config how, bool *has_any,
                                  struct mist_err *err)
{
    struct mist_search_result result;

    how.limit_bytes = config->limit_bytes;
    how.n_best = 1;
    how.rows = NULL;
    how.progress = NULL;
    enum mist_status status = mist_search_run(config->space, &how, &result, err);
    *has_any = status == MIST_OK && result.n_candidates > 0;
    if (status == MIST_OK)
        mist_search_result_fini(&result);
    return status;
}

/* Whether with any amount of host memory there are plans. */
static enum mist_status lacks_host(const struct mist_validate_config *config,
                                   const struct mist_search_config *search, bool *lacks,
                                   struct mist_err *err)
{
    struct mist_search_config how = *search;

    *lacks = false;
    if (config->host_limit_bytes == INT64_MAX ||
        !mist_space_has(config->space, MIST_SPACE_OFFLOAD))
        return MIST_OK;
    how.host_limit_bytes = INT64_MAX;
    return has_plans(config, how, lacks, err);
}

enum mist_status mist_no_plan_explain(const struct mist_validate_config *config,
                                      const struct mist_search_config *search,
                                      const struct mist_validate_result *result,
                                      struct mist_err *err)
{
    const struct mist_space *space = config->space;
    char needs[MIST_FORMAT_BYTES], limit[MIST_FORMAT_BYTES], more[MIST_FORMAT_BYTES];
    int64_t closest = result->closest.bytes, closest_host = result->closest.host_bytes;
    struct text help = {.n = 0};
    bool is_host;

    if (space->n_cases == 0)
        return mist_no_plan_check_space(space, err);
    if (result->was_stopped)
        return mist_err_set(err, MIST_ERR_NO_PLAN, "stopped before a plan was found");
    for (size_t i = 0; i < result->n_dropped; i++)
        if (i == 0 || result->dropped[i].planned_bytes < closest)
            closest = result->dropped[i].planned_bytes;
    if (closest <= config->limit_bytes)
        return explain_host(config, result, err);
    enum mist_status status = lacks_host(config, search, &is_host, err);
    if (status != MIST_OK)
        return status;
    add_help(space, is_host ? config->host_limit_bytes : 0, &help);
    if (closest == INT64_MAX && closest_host < INT64_MAX)
        return mist_err_set(
            err, MIST_ERR_NO_PLAN,
            "no plan fits the host memory: the closest needs %s for a rank, which has %s "
            "of it; what could help: %s",
            mist_format_bytes(needs, sizeof needs, closest_host),
            mist_format_bytes(limit, sizeof limit,
                              config->host_limit_bytes / space->devices_per_node),
            help.at);
    if (closest == INT64_MAX)
        return mist_err_set(err, MIST_ERR_NO_PLAN,
                            "no plan can be priced; what could help: %s", help.at);
    return mist_err_set(
        err, MIST_ERR_NO_PLAN,
        "no plan fits the device memory: the closest needs %s, limit %s (%s too much); "
        "what could help: %s",
        mist_format_bytes(needs, sizeof needs, closest),
        mist_format_bytes(limit, sizeof limit, config->limit_bytes),
        mist_format_bytes(more, sizeof more, closest - config->limit_bytes), help.at);
}

enum mist_status
mist_no_plan_explain_constraints(const struct mist_validate_config *config,
                                 const struct mist_search_config *search,
                                 struct mist_err *err)
{
    const struct mist_constraints *all = search->constraints;
    struct mist_search_config how = *search;
    struct text names = {.n = 0}, strict = {.n = 0};
    struct mist_constraints part;
    bool has_any = false;
    how.constraints = NULL;
    enum mist_status status = has_plans(config, how, &has_any, err);

    if (status != MIST_OK || !has_any)
        return status == MIST_OK ? MIST_ERR_NO_PLAN : status;
    for (int i = 0; i < all->n && status == MIST_OK; i++) {
        part = *all;
        part.n--;
        memmove(&part.of[i], &part.of[i + 1], (size_t)(part.n - i) * sizeof part.of[0]);
        how.constraints = &part;
        status = has_plans(config, how, &has_any, err);
        add(&names, " and ", all->of[i].text);
        if (has_any && all->n > 1)
            add(&strict, " or ", all->of[i].text);
    }
    if (status != MIST_OK)
        return status;
    return mist_err_set(err, MIST_ERR_NO_PLAN, "no plan keeps to --constraint %s%s%s",
                        names.at, strict.n > 0 ? "; there are plans without " : "",
                        strict.at);
}
