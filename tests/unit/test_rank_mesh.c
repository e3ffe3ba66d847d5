/* Meshes of random sizes on all axes, against ranks that are numbered one by one and
 * looked through: places, members of all groups, and how these lie on nodes. */
#include "tests/unit/test.h"

#include "core/random.h"
#include "sim/plan/rank_mesh.h"

enum { N_MESHES = 400, MAX_SIZE = 4, MAX_RANKS = 256 };

/* A mesh, and the place of each of its ranks on every axis. */
struct naive {
    struct mist_rank_mesh mesh;
    int32_t at[MAX_RANKS][MIST_N_AXES];
};

static void number(struct naive *at, int axis, int32_t place[MIST_N_AXES])
{
    if (axis == MIST_N_AXES) {
        memcpy(at->at[at->mesh.n_ranks++], place, sizeof at->at[0]);
        return;
    }
    for (place[axis] = 0; place[axis] < at->mesh.size[axis]; place[axis]++)
        number(at, axis + 1, place);
}

static void draw(struct mist_random *random, struct naive *out)
{
    int32_t place[MIST_N_AXES];

    *out = (struct naive){.mesh.i_stage = (int32_t)mist_random_below(random, 3)};
    out->mesh.first_rank = (int32_t)mist_random_below(random, 20);
    for (int axis = 0; axis < MIST_N_AXES; axis++)
        out->mesh.size[axis] =
            axis == MIST_AXIS_PP ? 1 : 1 + (int32_t)mist_random_below(random, MAX_SIZE);
    number(out, 0, place);
    for (int axis = MIST_N_AXES - 1, stride = 1; axis >= 0; axis--) {
        out->mesh.stride[axis] = stride;
        stride *= out->mesh.size[axis];
    }
    out->mesh.n_plan_ranks =
        out->mesh.first_rank + out->mesh.n_ranks + (int32_t)mist_random_below(random, 20);
}

/* Whether two ranks of the mesh, counted from its first, are in one group. */
static bool are_together(const struct naive *at, int group, int32_t a, int32_t b)
{
    for (int axis = 0; axis < MIST_N_AXES; axis++)
        if (!(group >> axis & 1) && at->at[a][axis] != at->at[b][axis])
            return false;
    return true;
}

/* Groups that have a rank on a node: ranks there without a fellow before them there. */
static int32_t groups_on(const struct naive *at, int group, int32_t node,
                         int32_t per_node)
{
    int32_t n = 0, first = at->mesh.first_rank;

    for (int32_t a = 0; a < at->mesh.n_ranks; a++) {
        bool is_new = (first + a) / per_node == node;
        for (int32_t b = 0; b < a; b++)
            if ((first + b) / per_node == node && are_together(at, group, a, b))
                is_new = false;
        n += is_new;
    }
    return n;
}

static void check_shape(const struct naive *at, enum mist_group group, int32_t a,
                        int32_t per_node)
{
    int32_t here[2 * MAX_RANKS] = {0}; /* by node */
    struct mist_group_shape expected = {0, 1, 1};
    bool is_all = group == MIST_GROUP_ALL;

    for (int32_t b = 0; b < (is_all ? at->mesh.n_plan_ranks : at->mesh.n_ranks); b++)
        if (is_all || are_together(at, (int)group, a, b))
            here[((is_all ? 0 : at->mesh.first_rank) + b) / per_node]++;
    for (int32_t node = 0; node < 2 * MAX_RANKS; node++) {
        int32_t n = here[node] && !is_all ? groups_on(at, (int)group, node, per_node) : 0;
        expected.nodes += here[node] > 0;
        if (here[node] > expected.ranks_per_node)
            expected.ranks_per_node = here[node];
        if (n > expected.concurrent_groups)
            expected.concurrent_groups = n;
    }
    struct mist_group_shape shape =
        mist_rank_mesh_shape(&at->mesh, group, at->mesh.first_rank + a, per_node);
    if (memcmp(&shape, &expected, sizeof shape) != 0)
        fail_msg("group %d of rank %d, nodes of %d: %d x %d x %d, expected %d x %d x %d",
                 (int)group, (int)a, (int)per_node, (int)shape.nodes,
                 (int)shape.ranks_per_node, (int)shape.concurrent_groups,
                 (int)expected.nodes, (int)expected.ranks_per_node,
                 (int)expected.concurrent_groups);
}

static void check_group(const struct naive *at, enum mist_group group, int32_t a)
{
    const struct mist_rank_mesh *mesh = &at->mesh;
    int32_t n = 0, rank = mesh->first_rank + a;

    for (int32_t b = 0; b < mesh->n_ranks; b++) {
        if (!are_together(at, (int)group, a, b))
            continue;
        if (a == b)
            assert_int_equal(mist_rank_mesh_index(mesh, group, rank), n);
        assert_int_equal(mist_rank_mesh_member(mesh, group, rank, n++),
                         mesh->first_rank + b);
    }
    assert_int_equal(mist_rank_mesh_size(mesh, group), n);
}

TEST(test_random_meshes)
{
    static struct naive at;
    struct mist_random random;

    mist_random_init(&random, test_seed(31));
    for (int i = 0; i < N_MESHES; i++) {
        draw(&random, &at);
        int32_t a = (int32_t)mist_random_below(&random, at.mesh.n_ranks);
        int32_t per_node = 1 + (int32_t)mist_random_below(&random, 12);
        int32_t rank = at.mesh.first_rank + a;
        for (int axis = 0; axis < MIST_N_AXES; axis++)
            assert_int_equal(mist_rank_mesh_at(&at.mesh, (enum mist_axis)axis, rank),
                             axis == MIST_AXIS_PP ? at.mesh.i_stage : at.at[a][axis]);
        for (int group = 0; group < MIST_GROUP_ALL; group++) {
            if (group & MIST_GROUP_PEER)
                continue;
            check_group(&at, (enum mist_group)group, a);
            check_shape(&at, (enum mist_group)group, a, per_node);
        }
        check_shape(&at, MIST_GROUP_ALL, a, per_node);
        assert_int_equal(mist_rank_mesh_size(&at.mesh, MIST_GROUP_ALL),
                         at.mesh.n_plan_ranks);
        assert_int_equal(mist_rank_mesh_member(&at.mesh, MIST_GROUP_ALL, rank, 7), 7);
    }
}

/* The mesh of a plan's stage has the sizes of the plan; all that hold a copy of its parameters
 * are one group, whatever axis they are on. */
TEST(test_of_a_plan)
{
    static struct mist_plan plan;
    struct mist_random random;
    int32_t first = 0;

    mist_random_init(&random, test_seed(31));
    plan.n_stages = 20;
    for (int32_t i = 0; i < plan.n_stages; i++) {
        plan.stages[i].dp = 1 + (int32_t)mist_random_below(&random, 9);
        plan.stages[i].tp = 1 + (int32_t)mist_random_below(&random, 9);
        plan.stages[i].cp = (int32_t)mist_random_below(&random, 4);
    }
    for (int32_t i = 0; i < plan.n_stages; i++) {
        const struct mist_rank_mesh mesh = mist_rank_mesh_make(&plan, i);
        int32_t tp = plan.stages[i].tp,
                cp = plan.stages[i].cp > 1 ? plan.stages[i].cp : 1;
        int32_t n_copies = plan.stages[i].dp * cp, n = n_copies * tp;
        assert_int_equal(mesh.first_rank, first);
        assert_int_equal(mesh.n_ranks, n);
        assert_int_equal(mist_stage_n_ranks(&plan.stages[i]), n);
        assert_int_equal(mist_stage_n_replicas(&plan.stages[i]), n_copies);
        assert_int_equal(mesh.n_plan_ranks, mist_plan_n_ranks(&plan));
        assert_int_equal(mist_rank_mesh_size(&mesh, MIST_GROUP_DP), n_copies);
        assert_int_equal(mist_rank_mesh_size(&mesh, MIST_GROUP_CP), cp);
        assert_int_equal(mist_rank_mesh_size(&mesh, MIST_GROUP_TP), tp);
        assert_int_equal(mist_rank_mesh_size(&mesh, MIST_GROUP_PEER), 2);
        assert_int_equal(
            mist_rank_mesh_member(&mesh, MIST_GROUP_DP, first + tp - 1, n_copies - 1),
            first + n - 1);
        first += n;
    }
}

TEST_MAIN(NULL, NULL)
