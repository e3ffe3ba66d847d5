/* The mesh of ranks of a stage. See rank_mesh.h. */
#include "sim/plan/rank_mesh.h"

static int32_t axis_size(const struct mist_stage_plan *stage, enum mist_axis axis)
{
    switch (axis) {
    case MIST_AXIS_DP:
        return stage->dp;
    case MIST_AXIS_CP:
        return mist_stage_cp(stage);
    case MIST_AXIS_TP:
        return stage->tp;
    default:
        return 1;
    }
}

int64_t mist_stage_n_ranks(const struct mist_stage_plan *stage)
{
    int64_t n = 1;

    for (int axis = 0; axis < MIST_N_AXES; axis++)
        n *= axis_size(stage, (enum mist_axis)axis);
    return n;
}

struct mist_rank_mesh mist_rank_mesh_make(const struct mist_plan *plan, int32_t i_stage)
{
    struct mist_rank_mesh mesh = {
        .i_stage = i_stage,
        .first_rank = mist_plan_first_rank(plan, i_stage),
        .n_ranks = 1,
        .n_plan_ranks = mist_plan_n_ranks(plan),
    };

    for (int axis = MIST_N_AXES - 1; axis >= 0; axis--) {
        mesh.size[axis] = axis_size(&plan->stages[i_stage], (enum mist_axis)axis);
        mesh.stride[axis] = mesh.n_ranks;
        mesh.n_ranks *= mesh.size[axis];
    }
    return mesh;
}

/* On any axis, inside of the stage. */
static int32_t place(const struct mist_rank_mesh *mesh, int axis, int32_t rank)
{
    return (rank - mesh->first_rank) / mesh->stride[axis] % mesh->size[axis];
}

int32_t mist_rank_mesh_at(const struct mist_rank_mesh *mesh, enum mist_axis axis,
                          int32_t rank)
{
    return axis == MIST_AXIS_PP ? mesh->i_stage : place(mesh, (int)axis, rank);
}

int32_t mist_rank_mesh_size(const struct mist_rank_mesh *mesh, enum mist_group group)
{
    int32_t n = 1;

    if (group == MIST_GROUP_ALL || group == MIST_GROUP_PEER)
        return group == MIST_GROUP_ALL ? mesh->n_plan_ranks : 2;
    for (int axis = 0; axis < MIST_N_AXES; axis++)
        n *= group >> axis & 1 ? mesh->size[axis] : 1;
    return n;
}

int32_t mist_rank_mesh_index(const struct mist_rank_mesh *mesh, enum mist_group group,
                             int32_t rank)
{
    int32_t index = 0;

    for (int axis = 0; axis < MIST_N_AXES; axis++)
        if (group >> axis & 1)
            index = index * mesh->size[axis] + place(mesh, axis, rank);
    return index;
}

int32_t mist_rank_mesh_member(const struct mist_rank_mesh *mesh, enum mist_group group,
                              int32_t rank, int32_t i)
{
    int32_t member = rank;

    if (group == MIST_GROUP_ALL)
        return i;
    for (int axis = MIST_N_AXES - 1; axis >= 0; axis--)
        if (group >> axis & 1) {
            int32_t step = i % mesh->size[axis] - place(mesh, axis, rank);
            member += step * mesh->stride[axis];
            i /= mesh->size[axis];
        }
    return member;
}

int32_t mist_rank_mesh_on_node(const struct mist_rank_mesh *mesh, int32_t node,
                               int32_t per_node, int32_t *first)
{
    int32_t end = mesh->first_rank + mesh->n_ranks;

    *first = node * per_node > mesh->first_rank ? node * per_node : mesh->first_rank;
    return end - node * per_node > per_node ? (node + 1) * per_node : end;
}

/* Groups of the stage that have part in a node: those whose first member there it is. */
static int32_t groups_on(const struct mist_rank_mesh *mesh, enum mist_group group,
                         int32_t node, int32_t per_node)
{
    int32_t first, end = mist_rank_mesh_on_node(mesh, node, per_node, &first), n = 0;

    for (int32_t rank = first; rank < end; rank++) {
        int32_t i = mist_rank_mesh_index(mesh, group, rank);
        n += i == 0 || mist_rank_mesh_member(mesh, group, rank, i - 1) < first;
    }
    return n;
}

struct mist_group_shape mist_rank_mesh_shape(const struct mist_rank_mesh *mesh,
                                             enum mist_group group, int32_t rank,
                                             int32_t per_node)
{
    struct mist_group_shape out = {0, 1, 1};
    int32_t n = mist_rank_mesh_size(mesh, group), n_here = 0, node = -1;
    int32_t most = mesh->n_ranks / n < per_node ? mesh->n_ranks / n : per_node;

    if (group == MIST_GROUP_ALL) /* one run of ranks, from 0 */
        return (struct mist_group_shape){(n - 1) / per_node + 1,
                                         n < per_node ? n : per_node, 1};
    for (int32_t i = 0; i < n; i++) {
        int32_t next = mist_rank_mesh_member(mesh, group, rank, i) / per_node;
        bool is_new = next != node && out.concurrent_groups < most;
        int32_t n_groups = is_new ? groups_on(mesh, group, next, per_node) : 0;
        n_here = next == node ? n_here + 1 : 1;
        out.nodes += next != node;
        out.ranks_per_node = n_here > out.ranks_per_node ? n_here : out.ranks_per_node;
        out.concurrent_groups =
            n_groups > out.concurrent_groups ? n_groups : out.concurrent_groups;
        node = next;
    }
    return out;
}
