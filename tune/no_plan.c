/* Messages about searches without a plan. See no_plan.h. */
#include "tune/no_plan.h"

#include "core/parse.h" /* mist_format_bytes */

#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 512 };

static void add(char *to, const char *separator, const char *word)
{
    mist_text_add(to, TEXT_BYTES, separator, "%s", word);
}

static void add_bounds(const struct mist_space *space, char *to)
{
    char text[MIST_BOUND_TEXT];
    bool has_bound = false;

    for (int i = 0; i < MIST_N_KNOBS; i++)
        if (mist_bounds_has(&space->bounds, (enum mist_knob)i)) {
            if (!has_bound)
                add(to, ", ", "to go without");
            add(to, has_bound ? " and " : " ",
                mist_bounds_text(&space->bounds, (enum mist_knob)i, text));
            has_bound = true;
        }
}

/* What could help against a lack of memory: groups of knobs that save memory and are off, and
 * bounds. */
static void add_help(const struct mist_space *space, char *to)
{
    static const enum mist_space_group savers[] = {MIST_SPACE_ZERO, MIST_SPACE_CKPT,
                                                   MIST_SPACE_LEAN, MIST_SPACE_OFFLOAD};
    bool has_savers = false;

    for (size_t i = 0; i < sizeof savers / sizeof *savers; i++)
        if (!mist_space_has(space, savers[i])) {
            add(to, ", ", mist_space_group_name(savers[i]));
            has_savers = true;
        }
    if (has_savers)
        add(to, " ", "in --space");
    add_bounds(space, to);
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
static enum mist_status list_bounds(const struct mist_space *space, char *all,
                                    char *strict, struct mist_err *err)
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
    char all[TEXT_BYTES] = "", strict[TEXT_BYTES] = "";

    if (space->n_cases > 0)
        return MIST_OK;
    enum mist_status status = list_bounds(space, all, strict, err);
    if (status != MIST_OK)
        return status;
    return mist_err_set(
        err, MIST_ERR_NO_PLAN,
        "%lld sample%s and %d layer%s can't be spread over %d ranks, %d on a node, "
        "within "
        "the search space%s%s%s%s%s",
        (long long)space->job.global_batch, space->job.global_batch == 1 ? "" : "s",
        (int)space->model.n_layers, space->model.n_layers == 1 ? "" : "s",
        (int)space->n_ranks, (int)space->devices_per_node, all[0] ? " and " : "", all,
        strict[0] ? "; they can without " : "", strict,
        strict[0] ? ""
                  : "; what could help: ranks and a --global-batch with common factors");
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

/* What is needed of a memory by the plan that needs the least of it and keeps to the limit of
 * the other; INT64_MAX: there is none. By its planned arenas, else by the closed form. */
struct closest {
    int64_t device_bytes, host_bytes; /* of a node */
};

static struct closest find_closest(const struct mist_validate_config *config,
                                   const struct mist_validate_result *result)
{
    struct closest out = {INT64_MAX, INT64_MAX};
    int64_t per_node = config->space->devices_per_node;

    for (size_t i = 0; i < result->n_dropped; i++) {
        const struct mist_validated *of = &result->dropped[i];
        if (of->host_bytes <= config->host_limit_bytes &&
            of->planned_bytes < out.device_bytes)
            out.device_bytes = of->planned_bytes;
        if (of->planned_bytes <= config->limit_bytes && of->host_bytes < out.host_bytes)
            out.host_bytes = of->host_bytes;
    }
    if (out.device_bytes == INT64_MAX && result->closest.bytes > 0)
        out.device_bytes = result->closest.bytes;
    if (out.host_bytes == INT64_MAX && result->closest_host.bytes > 0 &&
        result->closest_host.bytes < INT64_MAX / per_node)
        out.host_bytes = result->closest_host.bytes * per_node;
    return out;
}

/* "the closest needs 3 GiB, limit 2 GiB (1 GiB too much)"; at_least: or "" */
static void add_lack(char *to, const char *at_least, int64_t needed_bytes,
                     int64_t limit_bytes)
{
    char needs[MIST_FORMAT_BYTES], limit[MIST_FORMAT_BYTES], more[MIST_FORMAT_BYTES];
    char text[4 * MIST_FORMAT_BYTES];

    snprintf(text, sizeof text, "the closest needs %s%s, limit %s (%s too much)",
             at_least, mist_format_bytes(needs, sizeof needs, needed_bytes),
             mist_format_bytes(limit, sizeof limit, limit_bytes),
             mist_format_bytes(more, sizeof more, needed_bytes - limit_bytes));
    add(to, " ", text);
}

enum mist_status mist_no_plan_explain(const struct mist_validate_config *config,
                                      const struct mist_validate_result *result,
                                      struct mist_err *err)
{
    const struct mist_space *space = config->space;
    struct closest closest = find_closest(config, result);
    char lack[TEXT_BYTES] = "", help[TEXT_BYTES] = "", all[TEXT_BYTES] = "";
    char number[MIST_FORMAT_BYTES];

    if (space->n_cases == 0)
        return mist_no_plan_check_space(space, err);
    if (result->was_stopped)
        return mist_err_set(err, MIST_ERR_NO_PLAN, "stopped before a plan was found");
    if (closest.device_bytes <= config->limit_bytes) {
        enum mist_status status = list_bounds(space, all, NULL, err);
        return status != MIST_OK
                   ? status
                   : mist_err_set(err, MIST_ERR_NO_PLAN,
                                  "no plan that fits the memory is within %s",
                                  all[0] ? all : "the search space");
    }
    if (closest.device_bytes < INT64_MAX) {
        add(lack, "", "no plan fits the device memory:");
        add_lack(lack, "", closest.device_bytes, config->limit_bytes);
        if (closest.host_bytes < INT64_MAX) {
            add(help, "", mist_format_bytes(number, sizeof number, closest.host_bytes));
            add(help, " ", "of host memory of a node, which has");
            add(help, " ",
                mist_format_bytes(number, sizeof number, config->host_limit_bytes));
        }
    } else if (closest.host_bytes < INT64_MAX) {
        add(lack, "", "no plan fits the host memory of a node:");
        add_lack(lack, "", closest.host_bytes, config->host_limit_bytes);
    } else {
        add(lack, "", "no plan can be priced");
    }
    add_help(space, help);
    return mist_err_set(err, MIST_ERR_NO_PLAN, "%s; what could help: %s", lack, help);
}

/* None can be expressed; why: the reason for one, or "". */
static enum mist_status fail_unexpressed(const struct mist_space *space, const char *name,
                                         const char *why, struct mist_err *err)
{
    char help[TEXT_BYTES] = "";

    add_bounds(space, help);
    return mist_err_set(err, MIST_ERR_NO_PLAN,
                        "%s can express no plan of %lld samples and %d layers on %d "
                        "devices%s%.400s%s%s",
                        name, (long long)space->job.global_batch,
                        (int)space->model.n_layers, (int)space->n_ranks,
                        why[0] ? "; the reason for one: " : "", why,
                        help[0] ? "; what could help: " : "", help);
}

enum mist_status mist_no_plan_explain_target(const struct mist_validate_config *config,
                                             const struct mist_no_plan_target *of,
                                             struct mist_err *err)
{
    const struct mist_space *space = config->space;
    char lack[TEXT_BYTES] = "", help[TEXT_BYTES] = "";

    if (of->closest_bytes == INT64_MAX)
        return fail_unexpressed(space, of->name, of->why, err);
    add_lack(lack, of->is_planned ? "" : "at least ", of->closest_bytes,
             config->limit_bytes);
    if (space->job.dtype == MIST_DTYPE_BF16 &&
        space->job.gradient_dtype == MIST_DTYPE_FP32)
        add(help, ", ", "--gradient-dtype bf16");
    add_bounds(space, help);
    add(help, ", ", "more devices, shorter sequences");
    return mist_err_set(err, MIST_ERR_NO_PLAN,
                        "no plan that %s can express fits the device memory: %s; what "
                        "could help: %s",
                        of->name, lack, help);
}

enum mist_status
mist_no_plan_explain_constraints(const struct mist_validate_config *config,
                                 const struct mist_search_config *search,
                                 struct mist_err *err)
{
    const struct mist_constraints *all = search->constraints;
    struct mist_search_config how = *search;
    char names[TEXT_BYTES] = "", strict[TEXT_BYTES] = "";
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
        add(names, " and ", all->of[i].text);
        if (has_any && all->n > 1)
            add(strict, " or ", all->of[i].text);
    }
    if (status != MIST_OK)
        return status;
    return mist_err_set(err, MIST_ERR_NO_PLAN, "no plan keeps to --constraint %s%s%s",
                        names, strict[0] ? "; there are plans without " : "", strict);
}
