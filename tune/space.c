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
                        "offload, imbalance, mesh, sequence, schedule or lean",
                        name);
}

const char *const mist_offload_names[MIST_N_OFFLOADS] = {
    [MIST_OFFLOAD_WEIGHTS] = "weights",
    [MIST_OFFLOAD_GRADIENTS] = "gradients",
    [MIST_OFFLOAD_OPTIMIZER] = "optimizer",
    [MIST_OFFLOAD_ACTIVATIONS] = "activations",
};

struct mist_offloads mist_offloads_of(const struct mist_stage_plan *stage)
{
    return (struct mist_offloads){{stage->offload_weights, stage->offload_gradients,
                                   stage->offload_optimizer, stage->offload_activations}};
}

int32_t mist_zero_of(const struct mist_stage_plan *stage)
{
    return stage->shards_optimizer + stage->shards_gradients + stage->shards_weights;
}

bool mist_space_has(const struct mist_space *space, enum mist_space_group group)
{
    return (space->groups >> group & 1u) != 0;
}

int32_t mist_space_n_devices(const struct mist_space_shape *shape)
{
    return shape->dp * shape->tp;
}

bool mist_space_allows(const struct mist_space_case *of, int32_t i_stage, int32_t i_shape)
{
    const struct mist_space_shape *shape = &of->shapes[i_shape];
    bool is_end = i_stage == 0 || i_stage == of->n_stages - 1;

    return !is_end || of->ends_dp == 0 ||
           (shape->dp == of->ends_dp && shape->tp == of->ends_tp);
}

int32_t mist_space_n_checkpointed(const struct mist_space *space, int32_t n_layers)
{
    return mist_space_has(space, MIST_SPACE_CKPT) ? n_layers + 1 : 1;
}

int32_t mist_space_n_lean(const struct mist_space *space, int32_t n_open)
{
    return mist_space_has(space, MIST_SPACE_LEAN) && n_open > 0 ? 2 : 1;
}

int32_t mist_space_n_zero(const struct mist_space *space, int32_t dp)
{
    return mist_space_has(space, MIST_SPACE_ZERO) && dp > 1 ? 4 : 1;
}

int32_t mist_space_n_ratios(const struct mist_space *space)
{
    return mist_space_has(space, MIST_SPACE_OFFLOAD)
               ? MIST_RATIO_ONE / space->ratio_step + 1
               : 1;
}

/* ----------------------------------------------------------------------------- shapes */

/* The shapes of one number of samples while its cases are listed. */
struct listing {
    struct mist_space *space;
    int32_t samples, n_micro_batches;
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

/* What mist_plan_check() asks of a shape. */
static bool can_run(const struct listing *at, int32_t dp, int32_t tp, bool is_sequence)
{
    const struct mist_model *model = &at->space->model;
    int64_t tokens = (int64_t)(at->samples / dp) * at->space->job.seq_len;

    return at->samples % dp == 0 && tokens <= INT32_MAX && model->n_heads % tp == 0 &&
           (model->n_kv_heads == 1 || model->n_kv_heads % tp == 0) &&
           model->ffn % tp == 0 && model->hidden % tp == 0 &&
           (!is_sequence || (tp > 1 && tokens % tp == 0));
}

bool mist_space_may_differ(const struct mist_space *space)
{
    return mist_space_has(space, MIST_SPACE_MESH) &&
           space->n_ranks <= MIST_SPACE_MAX_MESH_RANKS;
}

static enum mist_status list_shapes(struct listing *at, struct mist_err *err)
{
    const struct mist_space *space = at->space;
    int n_kinds = mist_space_has(space, MIST_SPACE_SEQUENCE) ? 2 : 1;

    at->n = 0;
    for (int32_t n = 1; n <= space->n_ranks; n++)
        for (int32_t tp = 1; tp <= n && tp <= space->model.n_heads && is_mesh(space, n);
             tp++)
            for (int kind = 0; kind < n_kinds && n % tp == 0; kind++) {
                if (!can_run(at, n / tp, tp, kind == 1))
                    continue;
                struct mist_space_shape *grown =
                    mist_grow(at->shapes, &at->capacity, at->n + 1, sizeof *grown);
                if (!grown)
                    return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
                at->shapes = grown;
                grown[at->n++] = (struct mist_space_shape){n / tp, tp, kind == 1};
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
    int32_t n_layers = space->model.n_layers;
    bool is_even = !mist_space_has(space, MIST_SPACE_IMBALANCE);
    void *grown = mist_grow(space->cases, &space->capacity, (size_t)space->n_cases + 1,
                            sizeof *space->cases);
    struct mist_space_shape *own = mist_arena_alloc(&space->arena, n * sizeof *own);

    if (grown)
        space->cases = grown;
    if (!grown || !own)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    memcpy(own, shapes, n * sizeof *own);
    space->cases[space->n_cases++] = (struct mist_space_case){
        .n_micro_batches = at->n_micro_batches,
        .n_stages = n_stages,
        .samples = at->samples,
        .n_shapes = (int32_t)n,
        .shapes = own,
        .ends_dp = ends ? ends->dp : 0,
        .ends_tp = ends ? ends->tp : 0,
        .layers_min = is_even ? n_layers / n_stages : 1,
        .layers_max = is_even ? n_layers / n_stages : n_layers - n_stages + 1,
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

static enum mist_status list_cases(struct mist_space *space, struct mist_err *err)
{
    struct listing at = {.space = space};
    int64_t global_batch = space->job.global_batch;
    enum mist_status status = MIST_OK;
    int32_t most = space->model.n_layers;
    bool is_even = !mist_space_has(space, MIST_SPACE_IMBALANCE);

    most = space->n_ranks < most ? space->n_ranks : most;
    most = most > MIST_MAX_STAGES ? MIST_MAX_STAGES : most;
    for (int64_t g = 1; g <= global_batch && g <= INT32_MAX && status == MIST_OK; g++) {
        if (global_batch % g != 0 || global_batch / g > INT32_MAX)
            continue;
        at.n_micro_batches = (int32_t)g;
        at.samples = (int32_t)(global_batch / g);
        status = list_shapes(&at, err);
        for (int32_t s = 1; s <= most && status == MIST_OK; s++) {
            if (is_even && space->model.n_layers % s != 0)
                continue;
            status = mist_space_may_differ(space) && s > 1 ? add_mixed(&at, s, err)
                                                           : add_equal(&at, s, err);
        }
    }
    free(at.shapes);
    return status;
}

enum mist_status mist_space_init(struct mist_space *out, const struct mist_model *model,
                                 const struct mist_job *job, int32_t n_ranks,
                                 int32_t devices_per_node, unsigned groups,
                                 struct mist_err *err)
{
    *out = (struct mist_space){
        .model = *model,
        .job = *job,
        .n_ranks = n_ranks,
        .devices_per_node = devices_per_node,
        .groups = groups | 1u << MIST_SPACE_3D,
        .ratio_step = 1,
    };
    mist_arena_init(&out->arena);
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

void mist_space_fini(struct mist_space *space)
{
    free(space->cases);
    mist_arena_fini(&space->arena);
    *space = (struct mist_space){0};
}

/* ------------------------------------------------------------------------------ count */

/* ways[d][l]: choices for the stages so far that use d ranks and l layers. */
static void count_stage(const struct mist_space *space, const struct mist_space_case *of,
                        int32_t i_stage, const double *ways, double *next)
{
    int32_t n_layers = space->model.n_layers, n_ranks = space->n_ranks;
    size_t row = (size_t)n_layers + 1, n = row * ((size_t)n_ranks + 1);
    double n_ratios = mist_space_n_ratios(space);
    double offloads = pow(n_ratios, MIST_N_OFFLOADS);

    if (space->allows_host_updates) /* where optimizer state is offloaded */
        offloads += pow(n_ratios, MIST_N_OFFLOADS - 1) * (n_ratios - 1);

    memset(next, 0, n * sizeof *next);
    for (size_t at = 0; at < n; at++) {
        int32_t d = (int32_t)(at / row), l = (int32_t)(at % row);
        for (int32_t k = 0; k < of->n_shapes && ways[at] > 0; k++) {
            int32_t size = mist_space_n_devices(&of->shapes[k]);
            if (!mist_space_allows(of, i_stage, k) || d + size > n_ranks)
                continue;
            double per = ways[at] * mist_space_n_zero(space, of->shapes[k].dp) * offloads;
            for (int32_t x = of->layers_min; x <= of->layers_max && l + x <= n_layers;
                 x++)
                for (int32_t c = 0; c < mist_space_n_checkpointed(space, x); c++)
                    next[(size_t)(d + size) * row + (size_t)(l + x)] +=
                        per * mist_space_n_lean(space, x - c);
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
