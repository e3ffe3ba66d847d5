/*
 * Sums over groups of ranks, built out of messages.
 *
 * A sum goes in pieces of each shard: while the contributions to one piece are added up,
 * those to the next are on their way, in the other lane and the other half of the
 * workspace. Every owner adds in the order of the group, whoever's message came first,
 * and always in fp32: other types are widened as they are added and rounded once at the
 * end.
 */
#include "exec/comm/comm_internal.h"

#include "core/bf16.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

/* Both sides of a message cut it alike, so this is no knob. */
#define SUM_PIECE_BYTES ((int64_t)1 << 20)

/* ------------------------------------------------------------------------- workspace */

static int64_t sum_piece_bytes(int64_t shard_bytes)
{
    return mist_comm_min(shard_bytes, SUM_PIECE_BYTES);
}

int64_t mist_comm_workspace_bytes(int64_t max_message_bytes, int32_t max_group_size)
{
    if (max_group_size < 2 || max_message_bytes <= 0)
        return 0;
    int64_t shard_bytes = (max_message_bytes - 1) / max_group_size + 1;
    return MIST_N_COMM_SUM_LANES * (max_group_size - 1) * sum_piece_bytes(shard_bytes);
}

enum mist_status mist_comm_reserve(struct mist_comm *comm, int64_t max_message_bytes,
                                   int32_t max_group_size, struct mist_err *err)
{
    int64_t need_bytes = mist_comm_workspace_bytes(max_message_bytes, max_group_size);

    if (need_bytes <= comm->workspace_bytes)
        return MIST_OK;
    void *workspace;
    if (posix_memalign(&workspace, 4096, (size_t)need_bytes) != 0)
        return mist_err_set(err, MIST_ERR_MEMORY,
                            "out of memory for %lld bytes of messages",
                            (long long)need_bytes);
    memset(workspace, 0, (size_t)need_bytes); /* touches the pages now */
    free(comm->workspace);
    comm->workspace = workspace;
    comm->workspace_bytes = need_bytes;
    return MIST_OK;
}

/* -------------------------------------------------------------------------- elements */

/* How the elements of a sum are stored. */
struct element {
    int64_t bytes;
    void (*add_two)(float *restrict sum, const void *x, const void *y, int64_t n);
    void (*add)(float *restrict sum, const void *x, int64_t n); /* sum += x */
    void (*store)(void *restrict x, const float *restrict sum, int64_t n);
};

static void add_two_f32(float *restrict sum, const void *x, const void *y, int64_t n)
{
    const float *first = x, *second = y;

#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        sum[i] = first[i] + second[i];
}

static void add_f32(float *restrict sum, const void *x, int64_t n)
{
    const float *other = x;

#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        sum[i] += other[i];
}

static void store_f32(void *restrict x, const float *restrict sum, int64_t n)
{
    memcpy(x, sum, (size_t)n * sizeof *sum);
}

static void add_two_bf16(float *restrict sum, const void *x, const void *y, int64_t n)
{
    const mist_bf16 *first = x, *second = y;

#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        sum[i] = mist_bf16_value(first[i]) + mist_bf16_value(second[i]);
}

static void add_bf16(float *restrict sum, const void *x, int64_t n)
{
    const mist_bf16 *other = x;

#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        sum[i] += mist_bf16_value(other[i]);
}

static void store_bf16(void *restrict x, const float *restrict sum, int64_t n)
{
    mist_bf16 *to = x;

#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        to[i] = mist_bf16_round(sum[i]);
}

static const struct element *element_of(enum mist_dtype dtype)
{
    static const struct element f32 = {sizeof(float), add_two_f32, add_f32, store_f32};
    static const struct element bf16 = {sizeof(mist_bf16), add_two_bf16, add_bf16,
                                        store_bf16};

    return dtype == MIST_DTYPE_BF16 ? &bf16 : &f32;
}

/* ------------------------------------------------------------------------------ sums */

/* A sum of one run of elements, of which every member brings its own. */
struct sum {
    const char *operation;
    const struct element *element;
    int64_t n;               /* elements that this rank adds up */
    char *send;              /* what this rank gives member 0 */
    int64_t send_step_bytes; /* to what it gives the next */
    char *own;               /* what it brings itself */
    char *to;                /* where the sum goes; may be own */
};

/* to[n] = x_0 + x_1 + ... of two members or more in their order, which lie in
 * group->parts. Blocks stay in the first-level cache. */
static void sum_in_order(const struct mist_comm_group *group,
                         const struct element *element, char *to, int64_t n)
{
    enum { BLOCK = 2048 };
    float sum[BLOCK];

    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t count = mist_comm_min(BLOCK, n - begin),
                begin_bytes = begin * element->bytes;
        element->add_two(sum, group->parts[0] + begin_bytes,
                         group->parts[1] + begin_bytes, count);
        for (int32_t i = 2; i < group->n; i++)
            element->add(sum, group->parts[i] + begin_bytes, count);
        element->store(to + begin_bytes, sum, count);
    }
}

/* Through the window, which holds what this rank gives. */
static enum mist_status sum_shared(const struct mist_comm_group *group,
                                   const struct sum *sum, struct mist_err *err)
{
    struct mist_comm_exchange exchange = {
        .operation = sum->operation,
        .send = sum->send,
        .send_step_bytes = sum->send_step_bytes,
        .bytes = sum->n * sum->element->bytes,
    };
    enum mist_status status = mist_comm_window_give(group, &exchange, err);

    group->parts[group->index] = sum->own;
    for (int32_t i = 0; i < group->n && status == MIST_OK; i++)
        if (i != group->index)
            status = mist_comm_window_look(group, &exchange, i, &group->parts[i], err);
    if (status != MIST_OK)
        return status;
    sum_in_order(group, sum->element, sum->to, sum->n);
    mist_comm_window_end(group);
    return MIST_OK;
}

/* The workspace must be large enough. */
static enum mist_status sum_pieces(const struct mist_comm_group *group,
                                   const struct sum *sum, struct mist_err *err)
{
    int64_t bytes = sum->n * sum->element->bytes, piece_bytes = sum_piece_bytes(bytes);
    int64_t n_pieces = bytes > 0 ? (bytes - 1) / piece_bytes + 1 : 0;
    enum mist_status status = MIST_OK;

    /* Step i starts piece i and finishes piece i - 1. */
    for (int64_t i = 0; i <= n_pieces && status == MIST_OK && n_pieces > 0; i++) {
        int lane = (int)(i % MIST_N_COMM_SUM_LANES);
        char *staged[MIST_N_COMM_SUM_LANES];
        for (int k = 0; k < MIST_N_COMM_SUM_LANES; k++)
            staged[k] = group->comm->workspace + k * (group->n - 1) * piece_bytes;
        if (i < n_pieces) {
            int64_t now_bytes = mist_comm_min(piece_bytes, bytes - i * piece_bytes);
            struct mist_comm_exchange exchange = {
                .operation = sum->operation,
                .send = sum->send + i * piece_bytes,
                .send_step_bytes = sum->send_step_bytes,
                .recv = staged[lane],
                .recv_step_bytes = now_bytes,
                .has_no_gap = true,
                .bytes = now_bytes,
            };
            status = mist_comm_start_exchange(group, lane, &exchange, err);
        }
        if (i > 0 && status == MIST_OK) {
            int64_t begin = (i - 1) * piece_bytes;
            int64_t now_bytes = mist_comm_min(piece_bytes, bytes - begin);
            for (int32_t k = 0; k < group->n; k++)
                group->parts[k] =
                    k == group->index
                        ? sum->own + begin
                        : staged[!lane] + (k - (k > group->index)) * now_bytes;
            status = mist_comm_wait_lane(group->comm, !lane, sum->operation, err);
            if (status == MIST_OK)
                sum_in_order(group, sum->element, sum->to + begin,
                             now_bytes / sum->element->bytes);
        }
    }
    return status;
}

/* Whether sums of n elements, a whole buffer, can go over a group. */
static enum mist_status check_sum(const struct mist_comm_group *group, int64_t n,
                                  const struct element *element, const char *operation,
                                  struct mist_err *err)
{
    int64_t bytes;

    if (n < 0 || n % group->n != 0 || !mist_size_mul(n, element->bytes, &bytes))
        return mist_err_set(err, MIST_ERR_RANGE, "%s: %lld elements over %ld ranks",
                            operation, (long long)n, (long)group->n);
    if (mist_comm_workspace_bytes(bytes, group->n) > group->comm->workspace_bytes)
        return mist_err_set(err, MIST_ERR_RANGE,
                            "%s: %lld bytes over %ld ranks are more than was reserved",
                            operation, (long long)bytes, (long)group->n);
    return MIST_OK;
}

static enum mist_status run_sum(const struct mist_comm_group *group,
                                const struct sum *sum, int64_t given_bytes,
                                struct mist_err *err)
{
    if (group->n == 1) {
        if (sum->to != sum->own && sum->n > 0)
            memcpy(sum->to, sum->own, (size_t)(sum->n * sum->element->bytes));
        return MIST_OK;
    }
    return mist_comm_window_holds(group, given_bytes) ? sum_shared(group, sum, err)
                                                      : sum_pieces(group, sum, err);
}

static enum mist_status reduce_scatter(const struct mist_comm_group *group,
                                       enum mist_dtype dtype, char *whole, char *shard,
                                       int64_t n, const char *operation,
                                       struct mist_err *err)
{
    const struct element *element = element_of(dtype);
    enum mist_status status = check_sum(group, n, element, operation, err);
    int64_t shard_bytes = n / group->n * element->bytes;

    return status == MIST_OK
               ? run_sum(group,
                         &(struct sum){.operation = operation,
                                       .element = element,
                                       .n = n / group->n,
                                       .send = whole,
                                       .send_step_bytes = shard_bytes,
                                       .own = whole + group->index * shard_bytes,
                                       .to = shard},
                         (group->n - 1) * shard_bytes, err)
               : status;
}

enum mist_status mist_comm_reduce_scatter(struct mist_comm_group *group,
                                          enum mist_dtype dtype, const void *whole,
                                          void *shard, int64_t n, struct mist_err *err)
{
    return reduce_scatter(group, dtype, (char *)(uintptr_t)whole, shard, n,
                          "reduce_scatter", err);
}

enum mist_status mist_comm_all_reduce(struct mist_comm_group *group,
                                      enum mist_dtype dtype, void *buffer, int64_t n,
                                      struct mist_err *err)
{
    static const char operation[] = "all_reduce";
    const struct element *element = element_of(dtype);
    int64_t shard_bytes = n / group->n * element->bytes;

    enum mist_status status = check_sum(group, n, element, operation, err);

    if (status != MIST_OK)
        return status;
    /* Two that add up everything wait once and read no more than two that share it out. */
    if (group->n == 2 && mist_comm_window_holds(group, n * element->bytes))
        return sum_shared(group,
                          &(struct sum){.operation = operation,
                                        .element = element,
                                        .n = n,
                                        .send = buffer,
                                        .own = buffer,
                                        .to = buffer},
                          err);
    status =
        reduce_scatter(group, dtype, buffer, (char *)buffer + group->index * shard_bytes,
                       n, operation, err);
    return status == MIST_OK
               ? mist_comm_gather_shards(group, buffer, shard_bytes, operation, err)
               : status;
}
