/* Cases of the search space and how many plans they hold. See space.h. */
#include "tune/space.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const group_names[MIST_N_SPACE_GROUPS] = {
    [MIST_SPACE_3D] = "3d",
    [MIST_SPACE_ZERO] = "zero",
    [MIST_SPACE_CKPT] = "ckpt",
    [MIST_SPACE_OFFLOAD] = "offload",
    [MIST_SPACE_IMBALANCE] = "imbalance",
    [MIST_SPACE_MESH] = "mesh",
    [MIST_SPACE_SEQUENCE] = "sequence",
    [MIST_SPACE_SCHEDULE] = "schedule",
    [MIST_SPACE_LEAN] = "lean",
    [MIST_SPACE_CONTEXT] = "context",
};

const char *mist_space_group_name(enum mist_space_group group)
{
    return group_names[group];
}

enum mist_status mist_space_add_group(const char *name, unsigned *groups,
                                      struct mist_err *err)
{
    for (int i = 0; i < MIST_N_SPACE_GROUPS; i++)
        if (strcmp(name, group_names[i]) == 0) {
            *groups |= 1u << i;
            return MIST_OK;
        }
    return mist_err_set(err, MIST_ERR_USAGE,
                        "the search space has no group '%s'; expected 3d, zero, ckpt, "
                        "offload, imbalance, mesh, sequence, schedule, lean or "
                        "context",
                        name);
}

const char *const mist_offload_names[MIST_N_OFFLOADS] = {
    [MIST_OFFLOAD_WEIGHTS] = "weights",
    [MIST_OFFLOAD_GRADIENTS] = "gradients",
    [MIST_OFFLOAD_OPTIMIZER] = "optimizer",
    [MIST_OFFLOAD_ACTIVATIONS] = "activations",
};

bool mist_space_has(const struct mist_space *space, enum mist_space_group group)
{
    return (space->groups >> group & 1u) != 0;
}

int32_t mist_space_n_devices(const struct mist_space_shape *shape)
{
    return shape->dp * mist_space_cp(shape) * shape->tp;
}

bool mist_space_allows(const struct mist_space_case *of, int32_t i_stage, int32_t i_shape)
{
    const struct mist_space_shape *shape = &of->shapes[i_shape];
    bool is_end = i_stage == 0 || i_stage == of->n_stages - 1;

    return !is_end || of->ends_dp == 0 ||
           (shape->dp == of->ends_dp && shape->tp == of->ends_tp);
}

/* ----------------------------------------------------------------------------- ranges */

/* What knobs are at the most without their group. */
static const struct {
    enum mist_space_group group; /* 3d: none */
    int32_t most;
} without[MIST_N_KNOBS] = {
    [MIST_KNOB_SEQUENCE] = {MIST_SPACE_SEQUENCE, 0},
    [MIST_KNOB_CP] = {MIST_SPACE_CONTEXT, 1},
    [MIST_KNOB_ZERO] = {MIST_SPACE_ZERO, 0},
    [MIST_KNOB_CKPT] = {MIST_SPACE_CKPT, 0},
    [MIST_KNOB_LEAN] = {MIST_SPACE_LEAN, 0},
    [MIST_KNOB_OFFLOAD + MIST_OFFLOAD_WEIGHTS] = {MIST_SPACE_OFFLOAD, 0},
    [MIST_KNOB_OFFLOAD + MIST_OFFLOAD_GRADIENTS] = {MIST_SPACE_OFFLOAD, 0},
    [MIST_KNOB_OFFLOAD + MIST_OFFLOAD_OPTIMIZER] = {MIST_SPACE_OFFLOAD, 0},
    [MIST_KNOB_OFFLOAD + MIST_OFFLOAD_ACTIVATIONS] = {MIST_SPACE_OFFLOAD, 0},
    [MIST_KNOB_UPDATE] = {MIST_SPACE_OFFLOAD, 0},
    [MIST_KNOB_SCHEDULE] = {MIST_SPACE_SCHEDULE, MIST_PIPELINE_1F1B},
    [MIST_KNOB_CHUNKS] = {MIST_SPACE_SCHEDULE, 1},
};

struct mist_knob_range mist_space_range(const struct mist_space *space,
                                        enum mist_knob knob)
{
    struct mist_knob_range range = space->bounds.of[knob];

    if (!mist_space_has(space, without[knob].group) && range.max > without[knob].most)
        range.max = without[knob].most;
    return range;
}

/* A schedule that alone is allowed has a number of chunks that is, too. */
static enum mist_status check_chunks(const struct mist_bounds *bounds,
                                     struct mist_err *err)
{
    struct mist_knob_range schedules = bounds->of[MIST_KNOB_SCHEDULE];
    struct mist_knob_range chunks = bounds->of[MIST_KNOB_CHUNKS];
    char schedule[MIST_BOUND_TEXT], number[MIST_BOUND_TEXT];

    if (schedules.min != schedules.max)
        return MIST_OK;
    int32_t n = mist_pipeline_kinds[schedules.min].n_chunks;
    if (n > 0 ? n >= chunks.min && n <= chunks.max : chunks.max > 1)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_USAGE, "%s contradicts %s: it has %s%d",
                        mist_bounds_text(bounds, MIST_KNOB_CHUNKS, number),
                        mist_bounds_text(bounds, MIST_KNOB_SCHEDULE, schedule),
                        n > 0 ? "" : "at least ", n > 0 ? (int)n : 2);
}

enum mist_status mist_space_check_bounds(const struct mist_space *space,
                                         struct mist_err *err)
{
    char text[MIST_BOUND_TEXT];

    for (int i = 0; i < MIST_N_KNOBS; i++)
        if (!mist_space_has(space, without[i].group) &&
            space->bounds.of[i].min > without[i].most)
            return mist_err_set(err, MIST_ERR_USAGE,
                                "%s needs the group %s, which --space, --target or the "
                                "trace set leaves out",
                                mist_bounds_text(&space->bounds, (enum mist_knob)i, text),
                                mist_space_group_name(without[i].group));
    if (space->bounds.of[MIST_KNOB_UPDATE].min > 0 && !space->allows_host_updates)
        return mist_err_set(err, MIST_ERR_NO_PLAN,
                            "--fix update-on=host: the trace set has no adamw_host (a "
                            "preset: no host-adamw=), or the device is the host");
    return check_chunks(&space->bounds, err);
}

bool mist_space_allows_value(const struct mist_space *space, enum mist_knob knob,
                             int32_t value)
{
    return mist_knob_allows(mist_space_range(space, knob), value, value);
}

static int32_t at_most(int32_t value, int32_t most)
{
    return value < most ? value : most;
}

int32_t mist_space_n_checkpointed(const struct mist_space *space, int32_t n_layers)
{
    return at_most(mist_space_range(space, MIST_KNOB_CKPT).max, n_layers) + 1;
}

int32_t mist_space_n_lean(const struct mist_space *space, int32_t n_open)
{
    return n_open > 0 && mist_space_range(space, MIST_KNOB_LEAN).max >= n_open ? 2 : 1;
}

int32_t mist_space_n_zero(const struct mist_space *space,
                          const struct mist_space_shape *shape)
{
    return shape->dp * mist_space_cp(shape) > 1
               ? at_most(mist_space_range(space, MIST_KNOB_ZERO).max, 3) + 1
               : 1;
}

/* Chunks that every plan has. */
static int32_t n_chunks(const struct mist_space *space)
{
    struct mist_knob_range range = mist_space_range(space, MIST_KNOB_CHUNKS);
    struct mist_knob_range pipelines = mist_space_range(space, MIST_KNOB_SCHEDULE);

    if (range.min == range.max)
        return range.min;
    return pipelines.min == pipelines.max && mist_pipeline_kinds[pipelines.min].n_chunks
               ? mist_pipeline_kinds[pipelines.min].n_chunks
               : 1;
}

static bool allows_layers(const struct mist_space *space, int32_t n_layers)
{
    return mist_space_allows_value(space, MIST_KNOB_LAYERS, n_layers) &&
           n_layers % n_chunks(space) == 0;
}

bool mist_space_allows_blocks(const struct mist_space *space, int32_t n_layers,
                              int32_t n_checkpointed)
{
    return allows_layers(space, n_layers) &&
           mist_knob_allows(mist_space_range(space, MIST_KNOB_CKPT), n_checkpointed,
                            n_layers);
}

bool mist_space_allows_lean(const struct mist_space *space, int32_t n_open,
                            int32_t n_lean)
{
    return mist_knob_allows(mist_space_range(space, MIST_KNOB_LEAN), n_lean, n_open);
}

struct mist_knob_range mist_space_ratios(const struct mist_space *space, int offload)
{
    enum mist_knob knob = (enum mist_knob)(MIST_KNOB_OFFLOAD + offload);
    struct mist_knob_range range = mist_space_range(space, knob);
    int32_t step = space->ratio_step;

    /* what is updated on the host is there */
    if (offload == MIST_OFFLOAD_OPTIMIZER && range.min == 0)
        range.min = mist_space_range(space, MIST_KNOB_UPDATE).min;
    range.min = (range.min + step - 1) / step * step;
    range.max = at_most(range.max, MIST_RATIO_ONE) / step * step;
    return range;
}

bool mist_space_offloads(const struct mist_space *space)
{
    bool has = false;

    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        has = has || mist_space_ratios(space, k).max > 0;
    return has;
}

bool mist_space_allows_update(const struct mist_space *space, int ratio, int on_host)
{
    return (on_host == 0 || (space->allows_host_updates && ratio > 0)) &&
           mist_space_allows_value(space, MIST_KNOB_UPDATE, on_host);
}

/* ----------------------------------------------------------------------------- shapes */

/* The shapes of one number of samples while its cases are listed. */
struct listing {
    struct mist_space *space;
    int32_t samples, n_micro_batches, cp;
    struct mist_space_shape *shapes; /* [n], by rising devices, then tp, then sequence */
    size_t n, capacity;
};

static bool is_mesh(const struct mist_space *space, int32_t n_devices)
{
    int32_t per_node = space->devices_per_node;

    if (space->n_ranks <= per_node)
        return true;
    return n_devices <= per_node ? per_node % n_devices == 0 : n_devices % per_node == 0;
}

/* What mist_plan_check() and the bounds ask of a shape. */
static bool can_run(const struct listing *at, int32_t dp, int32_t tp, bool is_sequence)
{
    const struct mist_model *model = &at->space->model;
    int64_t tokens = (int64_t)(at->samples / dp) * (at->space->job.seq_len / at->cp);

    return at->samples % dp == 0 &&
           mist_space_allows_value(at->space, MIST_KNOB_DP, dp) &&
           mist_space_allows_value(at->space, MIST_KNOB_TP, tp) &&
           mist_space_allows_value(at->space, MIST_KNOB_SEQUENCE, is_sequence) &&
           mist_space_allows_value(at->space, MIST_KNOB_MICRO_BATCH, at->samples / dp) &&
           tokens <= INT32_MAX && model->n_heads % tp == 0 &&
           (model->n_kv_heads == 1 || model->n_kv_heads % tp == 0) &&
           model->ffn % tp == 0 && model->hidden % tp == 0 &&
           (!is_sequence || (tp > 1 && tokens % tp == 0));
}

bool mist_space_may_differ(const struct mist_space *space)
{
    return mist_space_has(space, MIST_SPACE_MESH) && !space->bounds.is_uniform &&
           space->n_ranks <= MIST_SPACE_MAX_MESH_RANKS;
}

bool mist_space_is_even(const struct mist_space *space)
{
    return !mist_space_has(space, MIST_SPACE_IMBALANCE) || space->bounds.is_uniform;
}

static enum mist_status list_shapes(struct listing *at, struct mist_err *err)
{
    const struct mist_space *space = at->space;

    at->n = 0;
    for (int32_t n = at->cp; n <= space->n_ranks; n += at->cp)
        for (int32_t tp = 1;
             tp <= n / at->cp && tp <= space->model.n_heads && is_mesh(space, n); tp++)
            for (int kind = 0; kind < 2 && n / at->cp % tp == 0; kind++) {
                int32_t dp = n / at->cp / tp;
                if (!can_run(at, dp, tp, kind == 1))
                    continue;
                if (!MIST_RESERVE(at->shapes, at->capacity, at->n + 1))
                    return mist_err_memory(err, NULL);
                at->shapes[at->n++] =
                    (struct mist_space_shape){dp, tp, kind == 1, at->cp > 1 ? at->cp : 0};
            }
    return MIST_OK;
}

/* ------------------------------------------------------------------------------ cases */

/*
 * Whether n_stages of the shapes have n_ranks devices together. reach has one bit per
 * sum; n_ranks <= 64 where shapes may differ.
 */
static bool can_fill(const struct mist_space_shape *shapes, size_t n, int32_t n_stages,
                     int32_t n_ranks)
{
    uint64_t reach[2] = {1, 0}; /* sums 0 .. 63, and 64 */

    for (int32_t i = 0; i < n_stages; i++) {
        uint64_t next[2] = {0, 0};
        for (size_t k = 0; k < n; k++) {
            int32_t size = mist_space_n_devices(&shapes[k]);
            next[0] |= size < 64 ? reach[0] << size : 0;
            next[1] |= size == 64 ? reach[0] & 1 : reach[0] >> (64 - size) & 1;
        }
        memcpy(reach, next, sizeof reach);
    }
    if (n_ranks < 0 || n_ranks > 64)
        return false;
    return n_ranks == 64 ? reach[1] != 0 : (reach[0] >> n_ranks & 1) != 0;
}

/* A case of the shapes [n]; ends: of the first and the last stage, NULL for any. */
static enum mist_status add_case(const struct listing *at, int32_t n_stages,
                                 const struct mist_space_shape *shapes, size_t n,
                                 const struct mist_space_shape *ends,
                                 struct mist_err *err)
{
    struct mist_space *space = at->space;
    struct mist_knob_range layers = mist_space_range(space, MIST_KNOB_LAYERS);
    int32_t n_layers = space->model.n_layers, even = n_layers / n_stages;
    int32_t least = layers.min > 1 ? layers.min : 1, others = n_stages - 1;
    int32_t most = at_most(n_layers - others * least, layers.max);
    int64_t rest = n_layers - (int64_t)others * most; /* what the others leave */
    bool is_even = mist_space_is_even(space);
    struct mist_space_shape *own = mist_arena_alloc(&space->arena, n * sizeof *own);

    if (!own || !MIST_RESERVE(space->cases, space->capacity, space->n_cases + 1))
        return mist_err_memory(err, NULL);
    memcpy(own, shapes, n * sizeof *own);
    space->cases[space->n_cases++] = (struct mist_space_case){
        .n_micro_batches = at->n_micro_batches,
        .n_stages = n_stages,
        .samples = at->samples,
        .n_shapes = (int32_t)n,
        .shapes = own,
        .ends_dp = ends ? ends->dp : 0,
        .ends_tp = ends ? ends->tp : 0,
        .layers_min = is_even        ? even
                      : rest > least ? (int32_t)rest
                                     : least,
        .layers_max = is_even ? even : most,
    };
    return MIST_OK;
}

/* One shape for all stages: a case each. */
static enum mist_status add_equal(const struct listing *at, int32_t n_stages,
                                  struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (size_t i = 0; i < at->n && status == MIST_OK; i++)
        if ((int64_t)mist_space_n_devices(&at->shapes[i]) * n_stages ==
            at->space->n_ranks)
            status = add_case(at, n_stages, &at->shapes[i], 1, NULL, err);
    return status;
}

/* Any shapes for stages, of which there are two or more; where embeddings are tied, a
 * case for each (dp, tp) of the ends. */
static enum mist_status add_mixed(const struct listing *at, int32_t n_stages,
                                  struct mist_err *err)
{
    const struct mist_space *space = at->space;
    int32_t n_ranks = space->n_ranks, most = n_ranks - n_stages + 1;
    enum mist_status status = MIST_OK;
    size_t n = 0;

    while (n < at->n && mist_space_n_devices(&at->shapes[n]) <= most)
        n++;
    if (n == 0 || !can_fill(at->shapes, n, n_stages, n_ranks))
        return MIST_OK;
    if (!space->model.ties_embeddings)
        return add_case(at, n_stages, at->shapes, n, NULL, err);
    for (size_t i = 0; i < n && status == MIST_OK; i++) {
        const struct mist_space_shape *ends = &at->shapes[i];
        int32_t left = n_ranks - 2 * mist_space_n_devices(ends);
        if (!ends->is_sequence_parallel && can_fill(at->shapes, n, n_stages - 2, left))
            status = add_case(at, n_stages, at->shapes, n, ends, err);
    }
    return status;
}

/* Whether plans may have so many stages with g micro-batches. */
static bool may_have_stages(const struct mist_space *space, int32_t n_stages, int64_t g)
{
    int64_t n_layers = space->model.n_layers, n = n_layers / n_stages;
    int32_t v = n_chunks(space);
    struct mist_knob_range layers = mist_space_range(space, MIST_KNOB_LAYERS);
    struct mist_knob_range pipelines = mist_space_range(space, MIST_KNOB_SCHEDULE);
    bool has_1f1b =
        mist_space_allows_value(space, MIST_KNOB_SCHEDULE, MIST_PIPELINE_1F1B) &&
        mist_space_allows_value(space, MIST_KNOB_CHUNKS, 1);
    bool is_grouped = pipelines.min == pipelines.max &&
                      mist_pipeline_kinds[pipelines.min].groups_micro_batches;

    if (!mist_space_allows_value(space, MIST_KNOB_PP, n_stages) ||
        (n_stages == 1 && !has_1f1b) || (is_grouped && g % n_stages != 0))
        return false;
    if (mist_space_is_even(space))
        return n_layers % n_stages == 0 && allows_layers(space, (int32_t)n);
    return layers.min <= n && v <= n && n_layers % v == 0 &&
           (int64_t)layers.max * n_stages >= n_layers;
}

/* Whether every knob can be something. */
static bool is_possible(const struct mist_space *space)
{
    bool is_open = true;

    for (int i = 0; i < MIST_N_KNOBS; i++) {
        struct mist_knob_range range = mist_space_range(space, (enum mist_knob)i);
        /* all of none may be none */
        is_open = is_open && (range.min <= range.max || range.min == MIST_KNOB_ALL);
    }
    return is_open;
}

bool mist_space_may_cut(const struct mist_space *space, int32_t cp)
{
    return mist_space_allows_value(space, MIST_KNOB_CP, cp) &&
           (cp == 1 || space->job.seq_len % (2 * (int64_t)cp) == 0);
}

/* The cases of the samples and micro-batches at hand. */
static enum mist_status list_stages(struct listing *at, struct mist_err *err)
{
    struct mist_space *space = at->space;
    int32_t most = at_most(space->n_ranks / at->cp, space->model.n_layers);
    enum mist_status status = list_shapes(at, err);

    most = at_most(most, MIST_MAX_STAGES);
    for (int32_t s = 1; s <= most && status == MIST_OK; s++) {
        if (!may_have_stages(space, s, at->n_micro_batches))
            continue;
        status = mist_space_may_differ(space) && s > 1 ? add_mixed(at, s, err)
                                                       : add_equal(at, s, err);
    }
    return status;
}

static enum mist_status list_cases(struct mist_space *space, struct mist_err *err)
{
    struct listing at = {.space = space};
    int64_t global_batch = space->job.global_batch;
    enum mist_status status = MIST_OK;

    for (int64_t g = 1;
         is_possible(space) && g <= global_batch && g <= INT32_MAX && status == MIST_OK;
         g++) {
        if (global_batch % g != 0 || global_batch / g > INT32_MAX ||
            !mist_space_allows_value(space, MIST_KNOB_MICRO_BATCHES, (int32_t)g))
            continue;
        at.n_micro_batches = (int32_t)g;
        at.samples = (int32_t)(global_batch / g);
        for (at.cp = 1; at.cp <= space->n_ranks && status == MIST_OK; at.cp++)
            if (mist_space_may_cut(space, at.cp))
                status = list_stages(&at, err);
    }
    free(at.shapes);
    return status;
}

enum mist_status mist_space_init(struct mist_space *out, const struct mist_model *model,
                                 const struct mist_job *job, int32_t n_ranks,
                                 int32_t devices_per_node, unsigned groups,
                                 const struct mist_bounds *bounds, struct mist_err *err)
{
    *out = (struct mist_space){
        .model = *model,
        .job = *job,
        .n_ranks = n_ranks,
        .devices_per_node = devices_per_node,
        .groups = groups | 1u << MIST_SPACE_3D,
        .bounds = bounds ? *bounds : mist_bounds_none(),
        .ratio_step = 1,
    };
    mist_arena_init(&out->arena);
    if (job->seq_len < MIST_SPACE_CONTEXT_TOKENS &&
        !mist_bounds_has(&out->bounds, MIST_KNOB_CP))
        out->groups &= ~(1u << MIST_SPACE_CONTEXT);
    if (n_ranks < 1 || devices_per_node < 1)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "%d ranks, %d on a node; expected 1 or more", (int)n_ranks,
                            (int)devices_per_node);
    if (job->global_batch < 1)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "the global batch is %lld; expected 1 or more",
                            (long long)job->global_batch);
    return list_cases(out, err);
}

enum mist_status mist_space_part(struct mist_space *out, const struct mist_space *of,
                                 unsigned groups, const struct mist_bounds *bounds,
                                 struct mist_err *err)
{
    enum mist_status status = mist_space_init(out, &of->model, &of->job, of->n_ranks,
                                              of->devices_per_node, groups, bounds, err);

    out->ratio_step = of->ratio_step;
    out->allows_host_updates = of->allows_host_updates;
    return status;
}

void mist_space_fini(struct mist_space *space)
{
    free(space->cases);
    mist_arena_fini(&space->arena);
    *space = (struct mist_space){0};
}

/* ------------------------------------------------------------------------------ count */

/* Choices of offload ratios and of where the optimizer is updated. */
static double count_offloads(const struct mist_space *space)
{
    double n = 1;

    for (int k = 0; k < MIST_N_OFFLOADS; k++) {
        struct mist_knob_range range = mist_space_ratios(space, k);
        double n_values = 0;
        for (int32_t r = range.min; r <= range.max; r += space->ratio_step)
            n_values += k != MIST_OFFLOAD_OPTIMIZER
                            ? 1
                            : mist_space_allows_update(space, r, 0) +
                                  mist_space_allows_update(space, r, 1);
        n *= n_values;
    }
    return n;
}

/* Choices of checkpointed and lean layers and ZeRO of a stage of n_layers. */
static double count_blocks(const struct mist_space *space, int32_t n_layers,
                           const struct mist_space_shape *shape)
{
    double n = 0, n_zero = 0;

    for (int32_t z = 0; z < mist_space_n_zero(space, shape); z++)
        n_zero += mist_space_allows_value(space, MIST_KNOB_ZERO, z);
    for (int32_t c = 0; c < mist_space_n_checkpointed(space, n_layers); c++)
        for (int32_t i = 0; i < mist_space_n_lean(space, n_layers - c); i++)
            n += mist_space_allows_blocks(space, n_layers, c) &&
                 mist_space_allows_lean(space, n_layers - c, i * (n_layers - c));
    return n * n_zero;
}

/* ways[d][l]: choices for the stages so far that use d ranks and l layers. */
static void count_stage(const struct mist_space *space, const struct mist_space_case *of,
                        int32_t i_stage, const double *ways, double *next)
{
    int32_t n_layers = space->model.n_layers, n_ranks = space->n_ranks;
    size_t row = (size_t)n_layers + 1, n = row * ((size_t)n_ranks + 1);
    double offloads = count_offloads(space);

    memset(next, 0, n * sizeof *next);
    for (int32_t k = 0; k < of->n_shapes; k++) {
        int32_t size = mist_space_n_devices(&of->shapes[k]);
        for (int32_t x = of->layers_min;
             x <= of->layers_max && mist_space_allows(of, i_stage, k); x++) {
            double per = count_blocks(space, x, &of->shapes[k]) * offloads;
            for (size_t at = 0; at < n; at++) {
                int32_t d = (int32_t)(at / row), l = (int32_t)(at % row);
                if (ways[at] > 0 && d + size <= n_ranks && l + x <= n_layers)
                    next[(size_t)(d + size) * row + (size_t)(l + x)] += ways[at] * per;
            }
        }
    }
}

double mist_space_n_plans(const struct mist_space *space)
{
    size_t n = ((size_t)space->model.n_layers + 1) * ((size_t)space->n_ranks + 1);
    double *ways = calloc(n, sizeof *ways), *next = calloc(n, sizeof *next);
    double sum = 0;

    for (int32_t i = 0; i < space->n_cases && ways && next; i++) {
        const struct mist_space_case *of = &space->cases[i];
        if (space->bounds.is_uniform) {
            sum +=
                count_blocks(space, of->layers_min, of->shapes) * count_offloads(space);
            continue;
        }
        memset(ways, 0, n * sizeof *ways);
        ways[0] = 1;
        for (int32_t s = 0; s < of->n_stages; s++) {
            count_stage(space, of, s, ways, next);
            double *swapped = ways;
            ways = next;
            next = swapped;
        }
        /* cppcheck-suppress nullPointerRedundantCheck ; the loop has asked */
        sum += ways[n - 1];
    }
    if (!ways || !next)
        sum = NAN;
    free(ways);
    free(next);
    return sum;
}
