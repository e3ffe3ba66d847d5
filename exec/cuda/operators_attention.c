/*
 * Attention of the CUDA backend: cuDNN's in bf16, else the own kernels'. Which of the two
 * is settled when the operators are opened: cuDNN takes a quarter of the time, so nothing
 * falls back on the own kernels unasked. See operators.h.
 */
#include "exec/cuda/attention_cudnn.h"
#include "exec/cuda/operators.h"

#include <stdio.h>

enum { MOST_HEAD_DIM = 256 }; /* of the own kernels */

static const char way_out[] = "--attention own does without cuDNN, but attention then "
                              "takes about four times as long";

static bool is_backward(step_args at)
{
    return at->step->phase != MIST_PHASE_FORWARD;
}

static enum mist_cuda_sdpa_form sdpa_form(const struct mist_cuda_operators *context)
{
    return context->device->base.allows_atomics ? MIST_CUDA_SDPA_FAST
                                                : MIST_CUDA_SDPA_DETERMINISTIC;
}

enum mist_status mist_cuda_operators_open_attention(struct mist_cuda_operators *context,
                                                    enum mist_dtype dtype,
                                                    struct mist_err *err)
{
    enum mist_attention_choice choice = context->device->base.attention;
    struct mist_err why;

    if (choice == MIST_ATTENTION_OWN ||
        (choice == MIST_ATTENTION_AUTO && dtype != MIST_DTYPE_BF16))
        return MIST_OK;
    if (dtype != MIST_DTYPE_BF16)
        return mist_err_set(err, MIST_ERR_RUN,
                            "cuDNN's attention is for bf16, and this is %s: --attention "
                            "auto or own",
                            mist_dtype_words[dtype]);
    enum mist_status status = mist_cuda_sdpa_open(NULL, NULL, &context->sdpa, &why);
    if (status == MIST_OK)
        return MIST_OK;
    return mist_err_set(err, status, "no attention by cuDNN: %.350s; %s", why.message,
                        way_out);
}

void mist_cuda_operators_describe_attention(const struct mist_cuda_operators *context,
                                            char *text, size_t size_bytes)
{
    if (!context->sdpa) {
        snprintf(text, size_bytes, "own kernels, %s",
                 context->device->base.attention == MIST_ATTENTION_OWN
                     ? "as asked for"
                     : "as cuDNN's are for bf16");
        return;
    }
    long long version = (long long)mist_cuda_sdpa_version(context->sdpa);
    snprintf(text, size_bytes, "cuDNN %lld.%lld.%lld, %s backward", version / 10000,
             version / 100 % 100, version % 100,
             context->device->base.allows_atomics ? "fast (atomic)" : "deterministic");
}

/* ----------------------------------------------------------------------------- plans */

/* Keys and values of the tokens that chunk 0 of a part sees, which are fewer: their
 * gradients have room in the workspace until they are added to those of chunk 1. */
static int64_t part_room_bytes(const struct mist_cpu_attention_part *part)
{
    const struct mist_cpu_attention *whole = &part->whole;

    return whole->b * mist_cuda_sdpa_part_keys(part, 0) * 2 * whole->kv_heads *
           whole->head_dim * mist_dtype_weight_bytes(MIST_DTYPE_BF16);
}

/* What the execution of a chunk has. */
static int64_t part_workspace_bytes(step_args at,
                                    const struct mist_cpu_attention_part *part,
                                    int i_chunk)
{
    bool has_room = is_backward(at) && i_chunk == 0;

    return at->step->workspace_bytes - (has_room ? part_room_bytes(part) : 0);
}

/* ", 128 of them from position 384 on": the queries of a part's chunk. */
static void name_queries(step_args at, int i_chunk, char *text, size_t size_bytes)
{
    struct mist_chunks chunks = mist_chunks_of(at->step->dims[1], at->cp, at->i_cp);

    snprintf(text, size_bytes, ", %lld of them from position %lld on",
             (long long)chunks.length, (long long)chunks.first[i_chunk]);
}

/* i_chunk: of a part; else 0. */
static enum mist_status plan(step_args at, int i_chunk, struct mist_err *err)
{
    struct mist_cuda_operators *context = context_of(at);
    bool is_part = at->step->op == MIST_OP_ATTENTION_PART;
    struct mist_cpu_attention_part part = mist_step_attention_part(at);
    const struct mist_cpu_attention *shape = &part.whole;
    enum mist_cuda_sdpa_direction direction =
        is_backward(at) ? MIST_CUDA_SDPA_BACKWARD : MIST_CUDA_SDPA_FORWARD;
    int64_t bytes =
        is_part ? part_workspace_bytes(at, &part, i_chunk) : at->step->workspace_bytes;
    struct mist_err why;
    char queries[64] = "";

    enum mist_status status =
        is_part ? mist_cuda_sdpa_plan_part(context->sdpa, &part, i_chunk, direction,
                                           sdpa_form(context), bytes, NULL, &why)
                : mist_cuda_sdpa_plan(context->sdpa, shape, direction, sdpa_form(context),
                                      bytes, NULL, &why);
    if (status == MIST_OK)
        return MIST_OK;
    if (is_part)
        name_queries(at, i_chunk, queries, sizeof queries);
    return mist_err_set(err, status == MIST_ERR_NO_PLAN ? MIST_ERR_RUN : status,
                        "no attention by cuDNN for %lld samples of %lld tokens%s, %lld "
                        "heads (%lld of keys) "
                        "of %lld, %s, within %lld bytes of workspace: %.200s; %s%s",
                        (long long)shape->b, (long long)shape->s, queries,
                        (long long)shape->heads, (long long)shape->kv_heads,
                        (long long)shape->head_dim, mist_phase_words[at->step->phase],
                        (long long)bytes, why.message,
                        is_backward(at) && !context->device->base.allows_atomics
                            ? "--allow-atomics needs less workspace; "
                            : "",
                        way_out);
}

enum mist_status mist_cuda_operators_plan_attention(step_args at, struct mist_err *err)
{
    bool is_part = at->step->op == MIST_OP_ATTENTION_PART;
    int64_t head_dim = mist_step_heads(at).head_dim;

    if (!context_of(at)->sdpa && head_dim > MOST_HEAD_DIM)
        return mist_err_set(err, MIST_ERR_RUN,
                            "attention of heads %lld wide: the own kernels' are at most "
                            "%d",
                            (long long)head_dim, (int)MOST_HEAD_DIM);
    if (!context_of(at)->sdpa)
        return MIST_OK;
    enum mist_status status = plan(at, 0, err);
    if (status == MIST_OK && is_part)
        status = plan(at, 1, err);
    return status;
}

/* ------------------------------------------------------------------- whole sequences */

static void run_cudnn(step_args at)
{
    struct mist_cuda_operators *context = context_of(at);
    struct mist_cpu_attention shape = mist_step_heads(at);
    mist_cuda_stream stream = stream_of(context);
    void *const *x = at->operands;
    struct mist_err err;
    enum mist_status status;

    if (is_backward(at))
        status = mist_cuda_sdpa_backward(
            context->sdpa, stream, x[MIST_ARG_DX], x[MIST_ARG_DY],
            x[MIST_ARG_DATTENTION_QKV], x[MIST_ARG_DATTENTION_OUT],
            x[MIST_ARG_DATTENTION_LSE], &shape, sdpa_form(context), at->workspace,
            at->step->workspace_bytes, &err);
    else
        status = mist_cuda_sdpa_forward(context->sdpa, stream, x[MIST_ARG_OUT],
                                        x[MIST_ARG_ATTENTION_LSE],
                                        x[MIST_ARG_ATTENTION_QKV], &shape, at->workspace,
                                        at->step->workspace_bytes, &err);
    if (status != MIST_OK)
        mist_cuda_operators_fail(at, status, err.message);
}

void mist_cuda_operators_attention(step_args at)
{
    struct mist_cpu_attention shape = mist_step_heads(at);
    void *const *x = at->operands;
    mist_cuda_stream stream = stream_of(context_of(at));

    if (context_of(at)->sdpa)
        run_cudnn(at);
    else if (!is_backward(at))
        mist_cuda_attention_forward(stream, at->dtype, x[MIST_ARG_OUT],
                                    x[MIST_ARG_ATTENTION_LSE], x[MIST_ARG_ATTENTION_QKV],
                                    &shape);
    else if (mist_cuda_operators_has_workspace(at, shape.b * shape.heads * shape.s *
                                                       (int64_t)sizeof(float)))
        mist_cuda_attention_backward(stream, at->dtype, x[MIST_ARG_DX], x[MIST_ARG_DY],
                                     x[MIST_ARG_DATTENTION_QKV],
                                     x[MIST_ARG_DATTENTION_OUT],
                                     x[MIST_ARG_DATTENTION_LSE], &shape, at->workspace);
}

/* --------------------------------------------------- parts of context-parallel ranks */

static void part_forward(step_args at, const struct mist_cpu_attention_part *part)
{
    struct mist_cuda_operators *context = context_of(at);
    void *const *x = at->operands;
    enum mist_status status = MIST_OK;
    struct mist_err err;

    for (int i = 0; i < 2 && status == MIST_OK; i++)
        status = mist_cuda_sdpa_forward_part(
            context->sdpa, stream_of(context), x[MIST_ARG_OUT], x[MIST_ARG_ATTENTION_LSE],
            x[MIST_ARG_ATTENTION_QKV], x[MIST_ARG_PART_KV], part, i, at->workspace,
            part_workspace_bytes(at, part, i), &err);
    if (status != MIST_OK)
        mist_cuda_operators_fail(at, status, err.message);
}

static enum mist_status part_backward_chunk(step_args at,
                                            const struct mist_cpu_attention_part *part,
                                            int i_chunk, void *dkv, void *workspace,
                                            struct mist_err *err)
{
    struct mist_cuda_operators *context = context_of(at);
    void *const *x = at->operands;

    return mist_cuda_sdpa_backward_part(
        context->sdpa, stream_of(context), x[MIST_ARG_DX], dkv, x[MIST_ARG_DPART_DY],
        x[MIST_ARG_DPART_QKV], x[MIST_ARG_DPART_KV], x[MIST_ARG_DPART_OUT],
        x[MIST_ARG_DPART_LSE], part, i_chunk, sdpa_form(context), workspace,
        part_workspace_bytes(at, part, i_chunk), err);
}

/* What chunk 0 leaves in its room is added to what chunk 1 left in dkv, which sees
 * those keys and more; those that none sees have 0. */
static void add_parts(step_args at, const struct mist_cpu_attention_part *part,
                      const char *room)
{
    struct mist_cuda_operators *context = context_of(at);
    const struct mist_cpu_attention *whole = &part->whole;
    int64_t token = 2 * whole->kv_heads * whole->head_dim;
    int64_t width = mist_dtype_weight_bytes(MIST_DTYPE_BF16);
    int64_t n_both = mist_cuda_sdpa_part_keys(part, 0) * token;
    int64_t n_seen = mist_cuda_sdpa_part_keys(part, 1) * token, n = whole->s * token;
    mist_cuda_stream stream = stream_of(context);

    for (int64_t i = 0; i < whole->b; i++) {
        char *dkv = (char *)at->operands[MIST_ARG_DPART_DKV] + i * n * width;
        mist_cuda_add(stream, MIST_DTYPE_BF16, dkv, dkv, room + i * n_both * width,
                      n_both);
        if (n_seen < n)
            (void)mist_cuda_check(context->device,
                                  cudaMemsetAsync(dkv + n_seen * width, 0,
                                                  (size_t)((n - n_seen) * width), stream),
                                  "cudaMemsetAsync");
    }
}

static void part_backward(step_args at, const struct mist_cpu_attention_part *part)
{
    char *room = at->workspace;
    struct mist_err err;

    enum mist_status status = part_backward_chunk(
        at, part, 1, at->operands[MIST_ARG_DPART_DKV], at->workspace, &err);
    if (status == MIST_OK)
        status =
            part_backward_chunk(at, part, 0, room, room + part_room_bytes(part), &err);
    if (status == MIST_OK)
        add_parts(at, part, room);
    else
        mist_cuda_operators_fail(at, status, err.message);
}

void mist_cuda_operators_attention_part(step_args at)
{
    struct mist_cpu_attention_part part = mist_step_attention_part(at);
    void *const *x = at->operands;
    mist_cuda_stream stream = stream_of(context_of(at));
    const struct mist_cpu_attention *whole = &part.whole;

    if (context_of(at)->sdpa)
        (is_backward(at) ? part_backward : part_forward)(at, &part);
    else if (!is_backward(at))
        mist_cuda_attention_part_forward(
            stream, at->dtype, x[MIST_ARG_OUT], x[MIST_ARG_ATTENTION_LSE],
            x[MIST_ARG_ATTENTION_QKV], x[MIST_ARG_PART_KV], &part);
    else if (mist_cuda_operators_has_workspace(at, whole->b * whole->heads *
                                                       (whole->s / part.n) *
                                                       (int64_t)sizeof(float)))
        mist_cuda_attention_part_backward(
            stream, at->dtype, x[MIST_ARG_DX], x[MIST_ARG_DPART_DKV],
            x[MIST_ARG_DPART_DY], x[MIST_ARG_DPART_QKV], x[MIST_ARG_DPART_KV],
            x[MIST_ARG_DPART_OUT], x[MIST_ARG_DPART_LSE], &part, at->workspace);
}
