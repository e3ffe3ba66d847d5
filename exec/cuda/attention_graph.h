/*
 * Causal attention as cuDNN recognises it: graphs of simple operations.
 *
 * The operations, their order, the number formats between them and which tensors lie in
 * memory are what cuDNN's attention kernels are found by; another graph with the same
 * result would get no kernel. With S = scale Q K^T, masked after the diagonal, which ends
 * at the last query and the last key:
 *
 * forward   P = exp(S - max), out = P V / sum, lse = max + log(sum)
 * backward  delta = rowsum(dO * out), P = exp(S - lse), dV = P^T dO,
 *           dS = scale P (dO V^T - delta), dK = dS^T Q, dQ = dS K
 *
 * (Dao et al. 2022, "FlashAttention", appendix B). Nothing of queries x keys is stored
 * but dS in the deterministic form.
 */
#ifndef MIST_EXEC_CUDA_ATTENTION_GRAPH_H
#define MIST_EXEC_CUDA_ATTENTION_GRAPH_H

#include "exec/cuda/attention_cudnn.h"
#include "exec/cuda/cudnn_graph.h"

/* Ids of what lies in memory, as the variant pack names it. */
enum {
    MIST_SDPA_Q,
    MIST_SDPA_K,
    MIST_SDPA_V,
    MIST_SDPA_OUT,
    MIST_SDPA_LSE,
    MIST_SDPA_SCALE,     /* by value: 1 / sqrt(head_dim) */
    MIST_SDPA_MASKED,    /* by value: minus infinity */
    MIST_SDPA_N_FORWARD, /* the forward has those above, the backward all */
    MIST_SDPA_D_OUT = MIST_SDPA_N_FORWARD,
    MIST_SDPA_DQ,
    MIST_SDPA_DK,
    MIST_SDPA_DV,
    MIST_SDPA_ONE,    /* by value */
    MIST_SDPA_DELTA,  /* fp32 [b, heads, queries], dense */
    MIST_SDPA_DQ_SUM, /* fp32 [b, heads, queries, head_dim], dense; only if FAST */
    MIST_SDPA_N_KEYS, /* by value, as the next; if there are more keys than queries */
    MIST_SDPA_N_QUERIES,
    MIST_SDPA_N
};

/*
 * Queries of each sample that follow one another, the keys up to the last of them, and
 * how their tensors lie: all of a sequence in one packed tensor, or a chunk of a
 * context-parallel rank's, whose keys and values lie apart.
 */
struct mist_sdpa_shape {
    int64_t b, heads, kv_heads, head_dim;
    int64_t queries, keys;   /* the last query sees all keys; queries <= keys */
    int64_t query_tokens;    /* that a sample takes in what has queries, out and d_out; */
    int64_t key_tokens;      /* in what has keys and values; */
    int64_t gradient_tokens; /* and in what gets their gradients */
    int64_t key_heads;       /* that a token takes where keys and values are */
};

/* The heads and samples of one execution, and those of the tensors they are part of. */
struct mist_sdpa_chunk {
    struct mist_sdpa_shape whole;
    int64_t b, heads, kv_heads; /* heads / kv_heads is that of whole */
};

/* Describes the operations; the graph keeps what fails. */
void mist_sdpa_graph_forward(struct mist_cudnn_graph *graph,
                             const struct mist_sdpa_chunk *chunk);
void mist_sdpa_graph_backward(struct mist_cudnn_graph *graph,
                              const struct mist_sdpa_chunk *chunk,
                              enum mist_cuda_sdpa_form form);

#endif
