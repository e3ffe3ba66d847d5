/* Searches with more and more groups of knobs. See ablate.h. */
#include "tune/ablate.h"

#include "core/clock.h"

#include <math.h> /* NAN */

/* The best plan of a space that has these groups; prices are its own, so that the search
 * takes what it takes alone. */
static enum mist_status find_best(const struct mist_validate_config *whole,
                                  const struct mist_search_config *whole_search,
                                  unsigned groups, struct mist_ablation *out,
                                  struct mist_err *err)
{
    struct mist_ablation_row *row = &out->rows[out->n_rows];
    struct mist_validate_config config = *whole;
    struct mist_search_config search = *whole_search;
    struct mist_validate_result result;
    struct mist_stage_price *price = NULL;
    struct mist_space space;
    double time_start_s = mist_clock_now_s();
    enum mist_status status =
        mist_space_part(&space, whole->space, groups, &whole->space->bounds, err);

    if (status == MIST_OK)
        status =
            mist_stage_price_new(whole->cost_model, &space, whole->threads, &price, err);
    if (status != MIST_OK)
        goto out;
    config.space = &space;
    search.price_context = config.price = price;
    status = mist_validate_run(&config, &search, &result, err);
    row->search_s = mist_clock_now_s() - time_start_s;
    if (status == MIST_OK) {
        const struct mist_validated *best = &result.plans[0];
        row->fits = true;
        row->iteration_s = best->plan->predicted.iteration_s;
        row->error_s = best->plan->predicted.error_s;
        row->peak_bytes = best->planned_bytes;
        mist_plan_label(best->plan, row->label);
        out->was_stopped = result.was_stopped;
        mist_validate_result_fini(&result);
    }
    out->n_rows++;
out:
    mist_stage_price_free(price);
    mist_space_fini(&space);
    return status == MIST_ERR_NO_PLAN ? MIST_OK : status;
}

enum mist_status mist_ablate(const struct mist_validate_config *config,
                             const struct mist_search_config *search,
                             struct mist_ablation *out, struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    unsigned groups = 0;

    *out = (struct mist_ablation){0};
    for (int g = 0; g < MIST_N_SPACE_GROUPS && status == MIST_OK; g++) {
        if (!mist_space_has(config->space, (enum mist_space_group)g))
            continue;
        if (out->was_stopped || (search->is_over && atomic_load(search->is_over)))
            break;
        groups |= 1u << g;
        out->rows[out->n_rows].added = (enum mist_space_group)g;
        status = find_best(config, search, groups, out, err);
    }
    return status;
}

void mist_ablation_emit(struct mist_emit *emit, enum mist_emit_kind kind,
                        const struct mist_ablation *ablation)
{
    double first_s = NAN, before_s = NAN;

    mist_emit_list_begin(emit, "ablation", "The best plan, group by group");
    for (int i = 0; i < ablation->n_rows; i++) {
        const struct mist_ablation_row *row = &ablation->rows[i];
        double time_s = row->fits ? row->iteration_s : NAN;
        first_s = isfinite(first_s) ? first_s : time_s;
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_text(emit, "added", "group added", mist_space_group_name(row->added));
        mist_emit_text(emit, "kind", "best plan",
                       row->fits ? row->label : "none fits the memory");
        mist_emit_double(emit, "iteration_s", "iteration", time_s, MIST_HUMAN_TIME_S);
        mist_emit_double(emit, "error_s", "+-", row->fits ? row->error_s : NAN,
                         MIST_HUMAN_TIME_S);
        mist_emit_double(emit, "gain_frac", "faster by", before_s / time_s - 1,
                         MIST_HUMAN_FRAC);
        mist_emit_double(emit, "speedup", "than the first, x", first_s / time_s,
                         MIST_HUMAN_NUMBER);
        mist_emit_int64(emit, "peak_bytes", "arena", row->peak_bytes, MIST_HUMAN_BYTES);
        if (kind != MIST_EMIT_JSON)
            mist_emit_double(emit, "search_s", "search", row->search_s,
                             MIST_HUMAN_TIME_S);
        mist_emit_object_end(emit);
        before_s = time_s;
    }
    mist_emit_list_end(emit);
}
