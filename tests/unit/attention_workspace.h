/* The workspace that attention may have on a GPU, worked out beside the catalogue. */
#ifndef MIST_TESTS_ATTENTION_WORKSPACE_H
#define MIST_TESTS_ATTENTION_WORKSPACE_H

#include "sim/model/catalog.h" /* MIST_CATALOG_ATTENTION_BYTES */

#include <stdbool.h>
#include <stdint.h>

/*
 * Of the backward of so many queries and keys of a sequence: the row sums of dO * O [b,
 * heads, queries], and the larger of what the two forms want besides: the fp32 dQ [b,
 * heads, queries, head_dim], or dS [b, heads, queries, keys] in bf16; in both with
 * grouped queries dK and dV of every query head, in bf16, before they are summed over
 * their group. Of dS in so many equal chunks that one is at most
 * MIST_CATALOG_ATTENTION_BYTES; one group of heads, the least that a graph covers, may
 * take 4 times that. All lengths that cuDNN is used for make every part a multiple of
 * 256.
 */
static inline int64_t mist_cuda_attention_backward_bytes(int64_t b, int64_t queries,
                                                         int64_t keys, int64_t heads,
                                                         int64_t kv_heads,
                                                         int64_t head_dim)
{
    int64_t most = MIST_CATALOG_ATTENTION_BYTES, rows = b * heads * queries;
    int64_t grouped = heads > kv_heads ? 4 * head_dim : 0;
    int64_t head = keys * (2 * queries + grouped), whole = b * heads * head;
    int64_t fast = rows * 4 * head_dim + b * heads * keys * grouped;
    int64_t n_chunks = (whole + most - 1) / most, group = heads / kv_heads * head;
    int64_t bytes = (whole + n_chunks - 1) / n_chunks;

    if (group <= 4 * most && group > bytes)
        bytes = group;
    if (fast > bytes)
        bytes = fast;
    return 256 + 4 * rows + bytes;
}

/* Bytes of workspace that a plan may use (mist_cuda_sdpa_plan's limit), which the
 * catalogue plans. Forward: what cuDNN asks for. */
static inline int64_t mist_cuda_attention_workspace_bytes(int64_t b, int64_t s,
                                                          int64_t heads, int64_t kv_heads,
                                                          int64_t head_dim,
                                                          bool is_backward)
{
    return is_backward
               ? mist_cuda_attention_backward_bytes(b, s, s, heads, kv_heads, head_dim)
               : 256;
}

/* The same of a part, one of n, and of its chunk 0 or 1: none sees more keys than all,
 * and 0 not more than half of them, whose gradients it leaves in a room beside its
 * workspace. */
static inline int64_t mist_cuda_attention_room_bytes(int64_t b, int64_t keys,
                                                     int64_t kv_heads, int64_t head_dim)
{
    return b * keys * 2 * kv_heads * head_dim * 2;
}
static inline int64_t mist_cuda_attention_part_bytes(int64_t b, int64_t s, int64_t heads,
                                                     int64_t kv_heads, int64_t head_dim,
                                                     int64_t n, bool is_backward)
{
    int64_t c = s / n / 2;
    int64_t most = mist_cuda_attention_backward_bytes(b, c, s, heads, kv_heads, head_dim);
    int64_t other =
        mist_cuda_attention_backward_bytes(b, c, s / 2, heads, kv_heads, head_dim) +
        mist_cuda_attention_room_bytes(b, s / 2, kv_heads, head_dim);

    return !is_backward ? 256 : most > other ? most : other;
}

#endif
