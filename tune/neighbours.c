/* Plans that differ from one in a knob, or trade one for another. See neighbours.h. */
#include "tune/neighbours.h"

#include <stdlib.h>
#include <string.h>

/* What may change, each of these a step down and a step up: knobs, and a checkpointed layer
 * for a step of a ratio, which goes the other way. Ratios in eighths go two steps, too, so that
 * a search with them looks at all that one without does. */
enum knob {
    CHECKPOINTED,
    LEAN,
    ZERO,
    UPDATE,
    RATIO,
    TRADE = RATIO + MIST_N_OFFLOADS,
    N_KNOBS = TRADE + MIST_N_OFFLOADS
};

static void move_ratio(const struct mist_space *space, int offload, int step,
                       struct mist_search_choice *stage)
{
    stage->knobs.offload[offload] =
        (int8_t)(stage->knobs.offload[offload] + step * space->ratio_step);
}

static bool can_be(const struct mist_space *space, const struct mist_search_choice *stage)
{
    int32_t n_open = stage->n_layers - stage->knobs.n_checkpointed;
    bool can =
        stage->knobs.n_checkpointed >= 0 && n_open >= 0 && stage->knobs.zero >= 0 &&
        stage->knobs.zero < mist_space_n_zero(space, &stage->shape) &&
        mist_space_allows_value(space, MIST_KNOB_ZERO, stage->knobs.zero) &&
        mist_space_allows_blocks(space, stage->n_layers, stage->knobs.n_checkpointed) &&
        mist_space_allows_lean(space, n_open, stage->knobs.n_lean) &&
        mist_space_allows_update(space, stage->knobs.offload[MIST_OFFLOAD_OPTIMIZER],
                                 stage->knobs.updates_on_host);

    for (int k = 0; k < MIST_N_OFFLOADS; k++) {
        struct mist_knob_range ratio = mist_space_ratios(space, k);
        can = can && stage->knobs.offload[k] >= ratio.min &&
              stage->knobs.offload[k] <= ratio.max;
    }
    return can;
}

/* Moves a stage by a step of -1 or 1, ratios of -2 or 2 as well; false: it can't, and is left
 * as it is. */
static bool move_stage(const struct mist_space *space, enum knob knob, int step,
                       struct mist_search_choice *stage)
{
    struct mist_search_choice moved = *stage;
    bool is_lean = stage->knobs.n_lean > 0;

    switch (knob) {
    case CHECKPOINTED:
        moved.knobs.n_checkpointed += step;
        break;
    case LEAN:
        is_lean = step > 0;
        break;
    case ZERO:
        moved.knobs.zero += step;
        break;
    case UPDATE:
        moved.knobs.updates_on_host = step > 0;
        break;
    default:
        if (knob < TRADE) {
            move_ratio(space, (int)knob - RATIO, step, &moved);
            break;
        }
        moved.knobs.n_checkpointed += step > 0 ? 1 : -1;
        move_ratio(space, (int)knob - TRADE, -step, &moved);
    }
    moved.knobs.n_lean = is_lean ? moved.n_layers - moved.knobs.n_checkpointed : 0;
    if (moved.knobs.offload[MIST_OFFLOAD_OPTIMIZER] == 0)
        moved.knobs.updates_on_host = false;
    if (!can_be(space, &moved))
        return false;
    *stage = moved;
    return true;
}

/* One stage, or all that can be moved (i_stage -1). */
static bool move(const struct mist_space *space, enum knob knob, int step,
                 int32_t i_stage, int32_t n_stages, struct mist_search_choice *stages)
{
    bool has_moved = false;

    for (int32_t i = 0; i < n_stages; i++)
        if (i_stage < 0 || i == i_stage)
            has_moved |= move_stage(space, knob, step, &stages[i]);
    return has_moved;
}

enum mist_status mist_neighbours_list(const struct mist_space *space,
                                      const struct mist_search_candidate *of,
                                      mist_neighbours_take *take, void *context,
                                      struct mist_err *err)
{
    int32_t n_apart = of->n_stages > 1 && !space->bounds.is_uniform ? of->n_stages : 0;
    size_t bytes = (size_t)of->n_stages * sizeof *of->stages;
    struct mist_search_choice *stages = malloc(bytes);
    struct mist_search_candidate neighbour = *of;
    enum mist_status status = stages ? MIST_OK : mist_err_memory(err, NULL);

    neighbour.stages = stages;
    for (int32_t i = -1; i < n_apart; i++)
        for (int knob = 0; knob < N_KNOBS; knob++) {
            int longest = knob >= RATIO && space->ratio_step == 1 ? 2 : 1;
            for (int step = -longest; step <= longest && status == MIST_OK; step++) {
                memcpy(stages, of->stages, bytes);
                if (step != 0 &&
                    move(space, (enum knob)knob, step, i, of->n_stages, stages))
                    status = take(context, &neighbour, err);
            }
        }
    free(stages);
    return status;
}
