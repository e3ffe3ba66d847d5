/* The workspace that attention may have on a GPU, worked out beside the catalogue. */
#ifndef MIST_TESTS_ATTENTION_WORKSPACE_H
#define MIST_TESTS_ATTENTION_WORKSPACE_H

#include "sim/model/catalog.h" /* MIST_CATALOG_ATTENTION_BYTES */

#include <stdbool.h>
#include <stdint.h>

/*
 * Bytes of workspace that a plan may use (mist_cuda_sdpa_plan's limit), which the
 * catalogue plans. Forward: what cuDNN asks for. Backward: the row sums of dO * O [b,
 * heads, s] as well, and the larger of what the two forms want besides: the fp32 dQ [b,
 * heads, s, head_dim], or dS [b, heads, s, s] in bf16; in both with grouped queries dK
 * and dV of every query head, in bf16, before they are summed over their group. Of dS in
 * so many equal chunks that one is at most MIST_CATALOG_ATTENTION_BYTES; one group of
 * heads, the least that a graph covers, may take 4 times that. All s that cuDNN is used
 * for make every part a multiple of 256.
 */
static inline int64_t mist_cuda_attention_workspace_bytes(int64_t b, int64_t s,
                                                          int64_t heads, int64_t kv_heads,
                                                          int64_t head_dim,
                                                          bool is_backward)
{
    int64_t most = MIST_CATALOG_ATTENTION_BYTES, rows = b * heads * s;
    int64_t grouped = heads > kv_heads ? 4 * head_dim : 0, head = s * (2 * s + grouped);
    int64_t fast = rows * (4 * head_dim + grouped), whole = b * heads * head;
    int64_t n_chunks = (whole + most - 1) / most, group = heads / kv_heads * head;
    int64_t bytes = (whole + n_chunks - 1) / n_chunks;

    if (group <= 4 * most && group > bytes)
        bytes = group;
    if (fast > bytes)
        bytes = fast;
    return 256 + is_backward * (4 * rows + bytes);
}

#endif
