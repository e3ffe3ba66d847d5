/* Cases of the search space and how many plans they hold. See space.h. */
#include "tune/space.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const group_names[MIST_N_SPACE_GROUPS] = {
    [MIST_SPACE_3D] = "3d",     [MIST_SPACE_ZERO] = "zero",
    [MIST_SPACE_CKPT] = "ckpt", [MIST_SPACE_IMBALANCE] = "imbalance",
    [MIST_SPACE_MESH] = "mesh",
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
    if (strcmp(name, "offload") == 0 || strcmp(name, "tp") == 0)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "group '%s' of the search space can't be searched yet; 3d, "
                            "zero, ckpt, imbalance and mesh can",
                            name);
    return mist_err_set(err, MIST_ERR_USAGE,
                        "the search space has no group '%s'; expected 3d, zero, ckpt, "
                        "imbalance or mesh",
                        name);
}

bool mist_space_has(const struct mist_space *space, enum mist_space_group group)
{
    return (space->groups >> group & 1u) != 0;
}

int32_t mist_space_n_checkpointed(const struct mist_space *space, int32_t n_layers)
{
    return mist_space_has(space, MIST_SPACE_CKPT) ? n_layers + 1 : 1;
}

int32_t mist_space_n_zero(const struct mist_space *space, int32_t dp)
{
    return mist_space_has(space, MIST_SPACE_ZERO) && dp > 1 ? 2 : 1;
}

/* ------------------------------------------------------------------------------ cases */

static bool is_mesh(const struct mist_space *space, int32_t dp)
{
    int32_t per_node = space->devices_per_node;

    if (space->n_ranks <= per_node)
        return true;
    return dp <= per_node ? per_node % dp == 0 : dp % per_node == 0;
}

static bool may_differ(const struct mist_space *space)
{
    return mist_space_has(space, MIST_SPACE_MESH) &&
           space->n_ranks <= MIST_SPACE_MAX_MESH_RANKS;
}

/*
 * Whether n_stages sizes of the list (rising) can sum up to n_ranks: least number of
 * sizes is not enough, as the number of stages is given, so this counts exactly.
 * reach[s] has one bit per sum, and n_ranks <= 64 where sizes may differ.
 */
static bool can_fill(const int32_t *dps, int32_t n_dps, int32_t n_stages, int32_t n_ranks)
{
    if (n_dps == 1)
        return (int64_t)dps[0] * n_stages == n_ranks;
    uint64_t reach[2] = {1, 0}; /* sums 0 .. 63, and 64 */
    for (int32_t i = 0; i < n_stages; i++) {
        uint64_t next[2] = {0, 0};
        for (int32_t k = 0; k < n_dps; k++) {
            int32_t dp = dps[k];
            if (dp == 64) {
                next[1] |= reach[0] & 1;
                continue;
            }
            next[0] |= reach[0] << dp;
            next[1] |= reach[0] >> (64 - dp) & 1;
        }
        memcpy(reach, next, sizeof reach);
    }
    return n_ranks == 64 ? reach[1] != 0 : (reach[0] >> n_ranks & 1) != 0;
}

/* The sizes a stage may have, into dps (room for n_ranks); returns how many. */
static int32_t list_dps(const struct mist_space *space, int32_t samples, int32_t n_stages,
                        int32_t *dps)
{
    int32_t n = 0;

    if (!may_differ(space)) {
        if (space->n_ranks % n_stages != 0)
            return 0;
        int32_t dp = space->n_ranks / n_stages;
        if (samples % dp == 0 && is_mesh(space, dp))
            dps[n++] = dp;
        return n;
    }
    for (int32_t dp = 1; dp <= space->n_ranks - n_stages + 1 && dp <= samples; dp++)
        if (samples % dp == 0 && is_mesh(space, dp))
            dps[n++] = dp;
    return n;
}

static enum mist_status add_case(struct mist_space *space, int32_t n_micro_batches,
                                 int32_t n_stages, int32_t *scratch, struct mist_err *err)
{
    int32_t n_layers = space->model.n_layers;
    bool is_even = !mist_space_has(space, MIST_SPACE_IMBALANCE);
    int32_t samples = (int32_t)(space->job.global_batch / n_micro_batches);
    int32_t n_dps = list_dps(space, samples, n_stages, scratch);

    if (n_dps == 0 || !can_fill(scratch, n_dps, n_stages, space->n_ranks) ||
        (is_even && n_layers % n_stages != 0))
        return MIST_OK;
    void *grown = mist_grow(space->cases, &space->capacity, (size_t)space->n_cases + 1,
                            sizeof *space->cases);
    int32_t *dps = mist_arena_alloc(&space->arena, (size_t)n_dps * sizeof *dps);
    if (grown)
        space->cases = grown;
    if (!grown || !dps)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    memcpy(dps, scratch, (size_t)n_dps * sizeof *dps);
    space->cases[space->n_cases++] = (struct mist_space_case){
        .n_micro_batches = n_micro_batches,
        .n_stages = n_stages,
        .samples = samples,
        .n_dps = n_dps,
        .dps = dps,
        .layers_min = is_even ? n_layers / n_stages : 1,
        .layers_max = is_even ? n_layers / n_stages : n_layers - n_stages + 1,
    };
    return MIST_OK;
}

static enum mist_status list_cases(struct mist_space *space, struct mist_err *err)
{
    int32_t *scratch = malloc((size_t)space->n_ranks * sizeof *scratch);
    int64_t global_batch = space->job.global_batch;
    enum mist_status status = MIST_OK;
    int32_t most = space->model.n_layers;

    if (!scratch)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    most = space->n_ranks < most ? space->n_ranks : most;
    most = most > MIST_MAX_STAGES ? MIST_MAX_STAGES : most;
    for (int64_t g = 1; g <= global_batch && g <= INT32_MAX && status == MIST_OK; g++) {
        if (global_batch % g != 0 || global_batch / g > INT32_MAX)
            continue;
        for (int32_t s = 1; s <= most && status == MIST_OK; s++)
            status = add_case(space, (int32_t)g, s, scratch, err);
    }
    free(scratch);
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
static double count_case(const struct mist_space *space, const struct mist_space_case *of,
                         double *ways, double *next)
{
    int32_t n_layers = space->model.n_layers, n_ranks = space->n_ranks;
    size_t row = (size_t)n_layers + 1, n = row * ((size_t)n_ranks + 1);

    memset(ways, 0, n * sizeof *ways);
    ways[0] = 1;
    for (int32_t i = 0; i < of->n_stages; i++) {
        memset(next, 0, n * sizeof *next);
        for (size_t at = 0; at < n; at++) {
            int32_t d = (int32_t)(at / row), l = (int32_t)(at % row);
            for (int32_t k = 0; k < of->n_dps && ways[at] > 0; k++)
                for (int32_t x = of->layers_min; x <= of->layers_max; x++)
                    if (l + x <= n_layers && d + of->dps[k] <= n_ranks)
                        next[(size_t)(d + of->dps[k]) * row + (size_t)(l + x)] +=
                            ways[at] * mist_space_n_checkpointed(space, x) *
                            mist_space_n_zero(space, of->dps[k]);
        }
        double *swapped = ways;
        ways = next;
        next = swapped;
    }
    return ways[n - 1];
}

double mist_space_n_plans(const struct mist_space *space)
{
    size_t n = ((size_t)space->model.n_layers + 1) * ((size_t)space->n_ranks + 1);
    double *ways = calloc(n, sizeof *ways), *next = calloc(n, sizeof *next);
    double sum = 0;

    for (int32_t i = 0; i < space->n_cases && ways && next; i++)
        sum += count_case(space, &space->cases[i], ways, next);
    if (!ways || !next)
        sum = NAN;
    free(ways);
    free(next);
    return sum;
}
