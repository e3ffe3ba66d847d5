/*
 * Causal attention by cuDNN: the fast path in bf16.
 *
 * cuDNN has no call for attention in its C interface; it compiles a kernel for a graph of
 * simple operations (products, reductions, pointwise) that it recognises as attention
 * (attention_graph.h). That takes half a second, so a plan is built once per shape,
 * before training, and executed often. Whether cuDNN can do a shape is only known once it
 * has built the plan.
 *
 * Tensors are those of the own kernels: qkv [b, s, (heads + 2 kv_heads) * head_dim],
 * query heads first, then keys, then values; out [b, s, heads * head_dim]; lse [b, heads,
 * s] in fp32, the natural logarithm of the sum of exp of the scaled scores. Forward and
 * backward may be mixed with the own kernels: both leave the same lse.
 *
 * Of a context-parallel rank's part (struct mist_cpu_attention_part) each of the two
 * chunks is planned and executed by itself: it has as many queries as tokens, and all
 * keys up to its last one. The lse of parts is [2, b, heads, s / (2 n)], chunk after
 * chunk, not in the own kernels' order: before 9.26 the backward of some GPUs reads it
 * as if it were dense, whatever its strides, and gives wrong gradients (pull request 304
 * of NVIDIA/cudnn-frontend).
 *
 * cuDNN is loaded when a context is opened, not linked: the rest of the backend does
 * without. Left out: dropout, masks other than the causal one, windows, fp32.
 */
#ifndef MIST_EXEC_CUDA_ATTENTION_CUDNN_H
#define MIST_EXEC_CUDA_ATTENTION_CUDNN_H

#include "core/status.h"
#include "exec/cuda/kernels.h"          /* mist_cuda_stream */
#include "exec/operators/cpu_kernels.h" /* struct mist_cpu_attention: the shape */

#include <stdbool.h>
#include <stdint.h>

enum mist_cuda_sdpa_direction { MIST_CUDA_SDPA_FORWARD, MIST_CUDA_SDPA_BACKWARD };

/*
 * Of the backward; the forward is the same in both and always gives the same bits.
 *
 * FAST           dQ is summed in an fp32 buffer by atomic additions, whose order, and
 * with it the last bits, may change from run to run. DETERMINISTIC  every sum has one
 * order. cuDNN then keeps dS of the whole graph, 2 bytes a head, query and key.
 *
 * The graph covers only as many heads and samples as fit a limit of workspace and is
 * executed for one such chunk after another. FAST in one, on Hopper; on Ampere cuDNN keeps
 * another dQ, and dK and dV of every query head in fp32.
 */
enum mist_cuda_sdpa_form { MIST_CUDA_SDPA_FAST, MIST_CUDA_SDPA_DETERMINISTIC };

/* What a plan needs and what it is made of. */
struct mist_cuda_sdpa_plan {
    int64_t workspace_bytes; /* all of it: cuDNN's and our own buffers */
    int64_t chunk_b;         /* samples and heads of one execution of the graph; */
    int64_t chunk_heads;     /* the shape's own when there is one chunk */
    int64_t chunk_kv_heads;  /* divides kv_heads */
    int64_t engine;          /* cuDNN's number of the kernel family */
    int64_t engine_bytes;    /* cuDNN's part of workspace_bytes */
};

struct mist_cuda_sdpa; /* cuDNN, its handle, and the plans that were built */

/*
 * Whether cuDNN may be used for a shape, from what is known to have gone wrong:
 *
 * - s is a multiple of 128: up to 9.15 the last, partial tile of keys was not masked
 *   (NVIDIA's own frontend adds a padding mask for it), and NaN in the backward was
 *   reported for s % 128 == 64; s = 1 is not supported at all.
 * - head_dim is 64, 80, 96 or 128, the widths of published models: others have plans
 *   (multiples of 8), but wider backwards are those that others switch off on Hopper.
 * - b is below 128: NaN was reported at a batch of 128.
 * - the packed tensor has less than 2^31 elements: offsets then fit 32 bits wherever a
 *   kernel counts in those.
 * - kv_heads divides heads, as the graph needs.
 */
bool mist_cuda_sdpa_is_trusted(const struct mist_cpu_attention *shape);

/* Keys that a chunk (0 or 1) of a part sees, the first of a sequence; 1 sees more. */
int64_t mist_cuda_sdpa_part_keys(const struct mist_cpu_attention_part *part, int i_chunk);

/*
 * Opens cuDNN for the current device.
 *
 * library      path or name of the shared library; NULL: "libcudnn.so.9".
 * device_json  NULL: for execution. Else the description of a device in cuDNN's own keys
 *              (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION): plans are built for that
 *              device, with none in this machine, and can't be executed. Borrowed.
 *
 * *out is owned by the caller (mist_cuda_sdpa_close). For one thread at a time. MIST_OK,
 * MIST_ERR_MEMORY or MIST_ERR_RUN: no cuDNN, no device, or a version before 9.10.2, whose
 * backward is known to be wrong or which does not take true infinities as a mask.
 */
MIST_MUST_CHECK enum mist_status mist_cuda_sdpa_open(const char *library,
                                                     const char *device_json,
                                                     struct mist_cuda_sdpa **out,
                                                     struct mist_err *err);

/* The device must be idle. NULL allowed. */
void mist_cuda_sdpa_close(struct mist_cuda_sdpa *sdpa);

/* As cuDNN counts: 91900 is 9.19.0. */
int64_t mist_cuda_sdpa_version(const struct mist_cuda_sdpa *sdpa);

/* That of a library, which is loaded, but starts nothing on a GPU; 0: it can't be. */
int64_t mist_cuda_sdpa_library_version(const char *library);

/*
 * Finds or builds the plan of a shape; the only call that allocates memory or compiles.
 *
 * limit_bytes  of workspace, usually what the catalogue plans.
 * out          filled on MIST_OK, untouched otherwise; may be NULL.
 *
 * MIST_OK; MIST_ERR_NO_PLAN: the shape is not trusted, or cuDNN has no plan for it within
 * the limit (err says which); MIST_ERR_MEMORY; MIST_ERR_RUN.
 */
MIST_MUST_CHECK enum mist_status
mist_cuda_sdpa_plan(struct mist_cuda_sdpa *sdpa, const struct mist_cpu_attention *shape,
                    enum mist_cuda_sdpa_direction direction,
                    enum mist_cuda_sdpa_form form, int64_t limit_bytes,
                    struct mist_cuda_sdpa_plan *out, struct mist_err *err);

/* The same for a chunk of a part. part->n: above 1. A chunk is trusted as a whole
 * sequence of its length is. */
MIST_MUST_CHECK enum mist_status mist_cuda_sdpa_plan_part(
    struct mist_cuda_sdpa *sdpa, const struct mist_cpu_attention_part *part, int i_chunk,
    enum mist_cuda_sdpa_direction direction, enum mist_cuda_sdpa_form form,
    int64_t limit_bytes, struct mist_cuda_sdpa_plan *out, struct mist_err *err);

/*
 * Launch into a stream what was planned before with at most workspace_bytes. All tensors
 * are memory of the device, begin at multiples of 16 bytes, workspace at one of 64;
 * nothing needs to be cleared; dqkv is overwritten. A pointer may not alias another.
 * MIST_OK or MIST_ERR_RUN: no plan, or cuDNN's error.
 */
MIST_MUST_CHECK enum mist_status
mist_cuda_sdpa_forward(struct mist_cuda_sdpa *sdpa, mist_cuda_stream stream, void *out,
                       float *lse, const void *qkv,
                       const struct mist_cpu_attention *shape, void *workspace,
                       int64_t workspace_bytes, struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_cuda_sdpa_backward(struct mist_cuda_sdpa *sdpa, mist_cuda_stream stream, void *dqkv,
                        const void *d_out, const void *qkv, const void *out,
                        const float *lse, const struct mist_cpu_attention *shape,
                        enum mist_cuda_sdpa_form form, void *workspace,
                        int64_t workspace_bytes, struct mist_err *err);

/*
 * The same for a chunk of a part. The tensors are those of the part; what belongs to the
 * chunk's queries is read and written, and of kv what they see.
 *
 * dqkv  queries are overwritten, the rest stays.
 * dkv   of chunk 1 [b, s, 2 kv_heads, head_dim], of chunk 0 [b, its keys, 2 kv_heads,
 *       head_dim]: overwritten for the keys that the chunk sees, the rest stays.
 */
MIST_MUST_CHECK enum mist_status mist_cuda_sdpa_forward_part(
    struct mist_cuda_sdpa *sdpa, mist_cuda_stream stream, void *out, float *lse,
    const void *qkv, const void *kv, const struct mist_cpu_attention_part *part,
    int i_chunk, void *workspace, int64_t workspace_bytes, struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_cuda_sdpa_backward_part(struct mist_cuda_sdpa *sdpa, mist_cuda_stream stream,
                             void *dqkv, void *dkv, const void *d_out, const void *qkv,
                             const void *kv, const void *out, const float *lse,
                             const struct mist_cpu_attention_part *part, int i_chunk,
                             enum mist_cuda_sdpa_form form, void *workspace,
                             int64_t workspace_bytes, struct mist_err *err);

#endif
