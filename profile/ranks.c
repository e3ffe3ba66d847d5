/* What all ranks must have in common. See ranks.h. */
#include "profile/ranks.h"

enum mist_status mist_ranks_check_nodes(struct mist_comm *comm, int32_t *n_nodes,
                                        struct mist_err *err)
{
    int32_t n_ranks = mist_comm_n_ranks(comm), n_here = mist_comm_n_node_ranks(comm);
    bool is_in_order =
        n_ranks % n_here == 0 && mist_comm_node(comm) == mist_comm_rank(comm) / n_here;
    double misplaced = is_in_order ? 0 : 1;
    enum mist_status status =
        mist_comm_all_reduce_f64(comm, MIST_COMM_MAX, &misplaced, 1, err);

    *n_nodes = n_ranks / n_here;
    if (status == MIST_OK && misplaced > 0)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "nodes must have equally many ranks, numbered node by node; "
                            "start them with mpirun --map-by slot");
    return status;
}

enum mist_status mist_ranks_check_devices(struct mist_comm *comm, bool has_gpu,
                                          struct mist_err *err)
{
    double least = has_gpu, most = has_gpu;
    enum mist_status status =
        mist_comm_all_reduce_f64(comm, MIST_COMM_MIN, &least, 1, err);

    if (status == MIST_OK)
        status = mist_comm_all_reduce_f64(comm, MIST_COMM_MAX, &most, 1, err);
    if (status == MIST_OK && least < most)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "some ranks have a GPU and some have none; --backend cpu or "
                            "cuda says what is meant, and cuda what some lack");
    return status;
}
