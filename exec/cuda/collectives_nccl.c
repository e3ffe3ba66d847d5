/*
 * Collectives between GPUs by NCCL: communicators and operations. See collectives_nccl.h;
 * the watchdog that ends what takes too long is in collectives_watch.c.
 */
#include "exec/cuda/collectives_nccl_internal.h"

#include "exec/comm/comm_internal.h" /* its watchdog */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static_assert(NCCL_UNIQUE_ID_BYTES == MIST_COLLECTIVES_ID_BYTES,
              "ids are exchanged as they are");

static const char nvls_variable[] = "NCCL_NVLS_ENABLE"; /* sums in NVLink switches */

static struct mist_cuda_nccl_group *group_of(struct mist_collective_group *base)
{
    return (struct mist_cuda_nccl_group *)(void *)base;
}

/* ------------------------------------------------------------------------- operations */

static ncclDataType_t type_of(enum mist_dtype dtype)
{
    return dtype == MIST_DTYPE_BF16 ? ncclBfloat16 : ncclFloat32;
}

/* Into the current stream. */
static ncclResult_t launch(const struct mist_cuda_nccl *at,
                           const struct mist_communication *what,
                           const struct mist_cuda_nccl_group *group)
{
    cudaStream_t stream = mist_cuda_current_stream(at->device);
    ncclDataType_t type = type_of(what->dtype);
    size_t n = (size_t)what->n;

    switch (what->kind) {
    case MIST_COMMUNICATION_ALL_REDUCE:
        return ncclAllReduce(what->whole, what->whole, n, type, ncclSum, group->comm,
                             stream);
    case MIST_COMMUNICATION_REDUCE_SCATTER:
        return ncclReduceScatter(what->whole, what->shard, n / (size_t)group->n, type,
                                 ncclSum, group->comm, stream);
    case MIST_COMMUNICATION_ALL_GATHER:
        return ncclAllGather(what->shard, what->whole, n, ncclUint8, group->comm, stream);
    case MIST_COMMUNICATION_SEND:
        return ncclSend(what->whole, n, ncclUint8, what->peer, group->comm, stream);
    case MIST_COMMUNICATION_RECV:
        break;
    }
    return ncclRecv(what->whole, n, ncclUint8, what->peer, group->comm, stream);
}

/* group NULL: none for transfers. */
static enum mist_status check(struct mist_cuda_nccl *at,
                              const struct mist_communication *what,
                              const struct mist_cuda_nccl_group *group,
                              struct mist_err *err)
{
    const char *name = mist_communication_names[what->kind];

    if (!what->group &&
        (what->peer < 0 || what->peer >= at->n_ranks || what->peer == at->rank))
        return mist_err_set(err, MIST_ERR_RANGE, "%s: rank %ld has no peer %ld", name,
                            (long)at->rank, (long)what->peer);
    if (what->kind == MIST_COMMUNICATION_REDUCE_SCATTER && what->n % group->n != 0)
        return mist_err_set(err, MIST_ERR_RANGE, "%s: %lld elements over %ld ranks", name,
                            (long long)what->n, (long)group->n);
    enum mist_status status = mist_cuda_nccl_check(at, err);
    if (status == MIST_OK && !group)
        status =
            mist_err_set(err, MIST_ERR_RANGE, "%s: no transfers were reserved", name);
    return status;
}

/* What is empty stays at home. */
static enum mist_status run(struct mist_collectives *base,
                            const struct mist_communication *what, struct mist_err *err)
{
    struct mist_cuda_nccl *at = mist_cuda_nccl_of(base);
    const struct mist_cuda_nccl_group *group =
        what->group ? group_of(what->group) : at->worlds[what->tag % MIST_CUDA_N_WORLDS];
    enum mist_status status = check(at, what, group, err);

    if (status != MIST_OK || what->n == 0)
        return status;
    status = mist_cuda_nccl_begin(
        at,
        &(struct mist_cuda_operation){
            mist_communication_names[what->kind],
            what->kind == MIST_COMMUNICATION_SEND   ? MIST_CUDA_SENDS
            : what->kind == MIST_COMMUNICATION_RECV ? MIST_CUDA_RECEIVES
                                                    : MIST_CUDA_COLLECTIVES,
            what->group ? -1 : what->peer, mist_communication_bytes(what, group->n)},
        err);
    return status == MIST_OK ? mist_cuda_nccl_end(at, launch(at, what, group), err)
                             : status;
}

/* ---------------------------------------------------------------------- communicators */

/* The id that ranks[0] makes, on all of them. All zero: it could not make one. */
static enum mist_status share_id(struct mist_cuda_nccl *at, const int32_t *ranks,
                                 int32_t n, bool is_first, ncclUniqueId *id,
                                 struct mist_err *err)
{
    static const ncclUniqueId none;
    enum mist_status status = MIST_OK, shared = MIST_OK;

    *id = none;
    if (is_first) {
        status = mist_cuda_nccl_enter(at, "communicator", err);
        if (status == MIST_OK)
            status = mist_cuda_nccl_leave(at, ncclGetUniqueId(id), err);
        if (status != MIST_OK)
            *id = none;
    }
    if (n > 1)
        shared = at->exchange(at->context, ranks, n, id, status == MIST_OK ? err : NULL);
    if (status == MIST_OK)
        status = shared;
    if (status == MIST_OK && memcmp(id, &none, sizeof none) == 0)
        status = mist_cuda_nccl_fail(at, "communicator",
                                     "the first rank of its group has no id", err);
    return status;
}

/* An operation of each queue may be on the GPU at once, each until its peers have come; so
 * all must have room (README.md). Computation gives its room back. */
static int max_blocks(const struct mist_cuda_nccl *at)
{
    int share = at->device->n_processors / MIST_CUDA_N_QUEUES;

    return share < 1 ? 1 : share < MIST_CUDA_MAX_BLOCKS ? share : MIST_CUDA_MAX_BLOCKS;
}

static enum mist_status make_comm(struct mist_cuda_nccl *at, const int32_t *ranks,
                                  struct mist_cuda_nccl_group *group,
                                  struct mist_err *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    enum mist_status status = mist_cuda_nccl_check(at, err);

    config.blocking = 1;
    config.maxCTAs = max_blocks(at);
    if (status == MIST_OK)
        status = share_id(at, ranks, group->n, group->index == 0, &id, err);
    if (status == MIST_OK)
        status =
            mist_cuda_status(cudaSetDevice(at->device->i_device), "cudaSetDevice", err);
    if (status == MIST_OK)
        status = mist_cuda_nccl_enter(at, "communicator", err);
    if (status != MIST_OK)
        return status;
    return mist_cuda_nccl_leave(
        at, ncclCommInitRankConfig(&group->comm, group->n, id, group->index, &config),
        err);
}

static enum mist_status make_group(struct mist_collectives *base, const int32_t *ranks,
                                   int32_t n, int32_t tag_space, int64_t max_bytes,
                                   struct mist_collective_group **out,
                                   struct mist_err *err)
{
    struct mist_cuda_nccl *at = mist_cuda_nccl_of(base);
    int32_t index = -1;

    (void)tag_space, (void)max_bytes; /* NCCL has memory of its own */
    for (int32_t i = 0; i < n; i++)
        if (ranks[i] == at->rank)
            index = i;
    if (index < 0)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "rank %ld is not in the group it is to make", (long)at->rank);
    struct mist_cuda_nccl_group *group = malloc(sizeof *group);
    if (!group)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a group");
    *group = (struct mist_cuda_nccl_group){.base = {base}, .n = n, .index = index};
    mist_cuda_nccl_add(at, group); /* first, so that its making can be aborted */
    enum mist_status status = make_comm(at, ranks, group, err);
    if (status == MIST_OK)
        *out = &group->base;
    return status;
}

static enum mist_status reserve(struct mist_collectives *base, int64_t transfer_bytes,
                                struct mist_err *err)
{
    struct mist_cuda_nccl *at = mist_cuda_nccl_of(base);
    struct mist_collective_group *world;
    enum mist_status status = MIST_OK;

    if (transfer_bytes == 0 || at->n_ranks == 1 || at->worlds[0])
        return mist_cuda_nccl_check(at, err);
    int32_t *ranks = malloc((size_t)at->n_ranks * sizeof *ranks);
    if (!ranks)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %ld ranks",
                            (long)at->n_ranks);
    for (int32_t i = 0; i < at->n_ranks; i++)
        ranks[i] = i;
    for (int i = 0; i < MIST_CUDA_N_WORLDS && status == MIST_OK; i++) {
        status = make_group(base, ranks, at->n_ranks, 0, 0, &world, err);
        at->worlds[i] = status == MIST_OK ? group_of(world) : NULL;
    }
    free(ranks);
    return status;
}

/* ------------------------------------------------------------------- opening, closing */

/* Waits for the other members of every group; all ranks made theirs in an order that
 * fits, so they can end them in this one. */
static enum mist_status finalize_all(struct mist_cuda_nccl *at)
{
    ncclResult_t code = ncclSuccess;
    enum mist_status status = mist_cuda_nccl_enter(at, "end", NULL);

    if (status != MIST_OK)
        return status;
    for (struct mist_cuda_nccl_group *group = at->groups; group && code == ncclSuccess;
         group = group->next)
        code = group->comm ? ncclCommFinalize(group->comm) : ncclSuccess;
    return mist_cuda_nccl_leave(at, code, NULL);
}

/* NCCL waits for the ranks of the node here, too, and a communicator that is being freed
 * can't be aborted: where one never comes, only the end of the process helps. */
static void destroy_all(struct mist_cuda_nccl *at)
{
    struct mist_comm_watchdog *last_resort =
        mist_comm_watch("end of NCCL's communicators", at->deadline_s);

    for (struct mist_cuda_nccl_group *group = at->groups, *next; group; group = next) {
        next = group->next;
        if (group->comm && !group->is_aborted)
            ncclCommDestroy(group->comm);
        free(group);
    }
    mist_comm_unwatch(last_resort);
}

static void close_nccl(struct mist_collectives *base)
{
    struct mist_cuda_nccl *at = mist_cuda_nccl_of(base);

    if (at->has_watchdog)
        (void)finalize_all(at);
    mist_cuda_nccl_unwatch(at);
    destroy_all(at);
    free(at);
}

/* NVLink switches add in whatever order the addends come, so a sum may have other last
 * bits each time. NCCL has no other way to ask for one order but its variables, which it
 * reads when it makes its first communicator; a user's own choice stays. */
static void order_sums(const struct mist_cuda_nccl *at)
{
    if (!at->device->base.allows_atomics)
        (void)setenv(nvls_variable, "0", 0);
}

static void describe(const struct mist_collectives *at, char *text, size_t size_bytes)
{
    const char *nvls = getenv(nvls_variable);
    int version = 0;

    (void)at;
    (void)ncclGetVersion(&version);
    snprintf(text, size_bytes, "NCCL %d.%d.%d%s", version / 10000, version / 100 % 100,
             version % 100, nvls && strcmp(nvls, "0") == 0 ? ", without NVLS" : "");
}

static const struct mist_collectives_ops nccl_ops = {
    .name = "nccl",
    .describe = describe,
    .close = close_nccl,
    .group = make_group,
    .reserve = reserve,
    .run = run,
};

enum mist_status mist_cuda_collectives_open(
    struct mist_device *device, int32_t rank, int32_t n_ranks, double deadline_s,
    enum mist_status (*exchange)(void *context, const int32_t *ranks, int32_t n, void *id,
                                 struct mist_err *err),
    void *context, struct mist_collectives **out, struct mist_err *err)
{
    struct mist_cuda_nccl *at = malloc(sizeof *at);

    *out = NULL;
    if (!at)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for collectives");
    *at = (struct mist_cuda_nccl){.base.ops = &nccl_ops,
                                  .device = mist_cuda_device_of(device),
                                  .rank = rank,
                                  .n_ranks = n_ranks,
                                  .deadline_s = deadline_s,
                                  .exchange = exchange,
                                  .context = context};
    order_sums(at);
    enum mist_status status = mist_cuda_nccl_watch(at, err);
    if (status != MIST_OK) {
        close_nccl(&at->base);
        return status;
    }
    *out = &at->base;
    return MIST_OK;
}
