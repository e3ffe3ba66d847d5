/*
 * Where ranks stand: the mesh of a stage, with named axes, and groups along them.
 *
 * Ranks of a stage are numbered from its first one on, along the axes in the order of
 * enum mist_axis, the last one the fastest, so that those who talk most are neighbours.
 * Stages follow one another, each with sizes of its own. A group is a set of axes: the
 * ranks of a stage that differ in nothing but their places on these.
 *
 * An axis more is an enumerator here, its size in axis_size() (a field of the plan), and
 * the sets of those who use it.
 */
#ifndef MIST_SIM_RANK_MESH_H
#define MIST_SIM_RANK_MESH_H

#include "sim/plan/plan.h"

#include <stdint.h>

enum mist_axis {
    MIST_AXIS_PP, /* stages of the pipeline */
    MIST_AXIS_DP, /* samples */
    MIST_AXIS_EP, /* experts: no plan cuts them, size 1 */
    MIST_AXIS_CP, /* tokens of a sequence */
    MIST_AXIS_TP, /* tensors */
    MIST_N_AXES
};

/* Sets of axes. Stages need not match rank by rank, so only two sets have the pipeline. */
enum mist_group {
    MIST_GROUP_NONE = 0,
    MIST_GROUP_PEER = 1 << MIST_AXIS_PP, /* a rank and one of another stage */
    /* ranks that hold the same parameters: context-parallel ones are data-parallel, too, where
     * gradients are summed and ZeRO cuts */
    MIST_GROUP_DP = 1 << MIST_AXIS_DP | 1 << MIST_AXIS_CP,
    MIST_GROUP_CP = 1 << MIST_AXIS_CP,
    MIST_GROUP_TP = 1 << MIST_AXIS_TP,
    MIST_GROUP_ALL = (1 << MIST_N_AXES) - 1 /* all ranks of the plan */
};

struct mist_rank_mesh {
    int32_t i_stage, first_rank, n_ranks; /* of the stage */
    int32_t n_plan_ranks;
    int32_t size[MIST_N_AXES], stride[MIST_N_AXES]; /* of the pipeline: size 1 */
};

/* How a group lies on nodes, as links.csv has it. */
struct mist_group_shape {
    int32_t nodes, ranks_per_node; /* of the group; of its fullest node */
    int32_t concurrent_groups; /* that do the same at once and share links of a node */
};

/* Ranks of a stage along all axes. */
int64_t mist_stage_n_ranks(const struct mist_stage_plan *stage);

/* plan: checked; not kept. O(n_stages). */
struct mist_rank_mesh mist_rank_mesh_make(const struct mist_plan *plan, int32_t i_stage);

/* A rank's place on an axis of its stage's mesh, from 0; on the pipeline its stage. */
int32_t mist_rank_mesh_at(const struct mist_rank_mesh *mesh, enum mist_axis axis,
                          int32_t rank);

/* Ranks of a group (of MIST_GROUP_PEER: 2); which of its group's a rank is, ascending (in
 * the stage); and which rank is number i of its group (not of MIST_GROUP_PEER). */
int32_t mist_rank_mesh_size(const struct mist_rank_mesh *mesh, enum mist_group group);
int32_t mist_rank_mesh_index(const struct mist_rank_mesh *mesh, enum mist_group group,
                             int32_t rank);
int32_t mist_rank_mesh_member(const struct mist_rank_mesh *mesh, enum mist_group group,
                              int32_t rank, int32_t i);

/* Where ranks fill nodes of per_node devices in order: the stage's on one, from *first to
 * before what is returned. */
int32_t mist_rank_mesh_on_node(const struct mist_rank_mesh *mesh, int32_t node,
                               int32_t per_node, int32_t *first);

/* And a rank's group there, not MIST_GROUP_PEER: the node of its that most groups alike
 * touch counts. O(ranks of the stage); of the group, where all touch its first node. */
struct mist_group_shape mist_rank_mesh_shape(const struct mist_rank_mesh *mesh,
                                             enum mist_group group, int32_t rank,
                                             int32_t per_node);

#endif
