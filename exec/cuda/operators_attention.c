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

enum mist_status mist_cuda_operators_plan_attention(step_args at, struct mist_err *err)
{
    struct mist_cuda_operators *context = context_of(at);
    struct mist_cpu_attention shape = mist_step_heads(at);
    struct mist_err why;

    if (!context->sdpa && shape.head_dim > MOST_HEAD_DIM)
        return mist_err_set(err, MIST_ERR_RUN,
                            "attention of heads %lld wide: the own kernels' are at most "
                            "%d",
                            (long long)shape.head_dim, (int)MOST_HEAD_DIM);
    if (!context->sdpa)
        return MIST_OK;
    enum mist_status status = mist_cuda_sdpa_plan(
        context->sdpa, &shape,
        is_backward(at) ? MIST_CUDA_SDPA_BACKWARD : MIST_CUDA_SDPA_FORWARD,
        sdpa_form(context), at->step->workspace_bytes, NULL, &why);
    if (status == MIST_OK)
        return MIST_OK;
    return mist_err_set(err, status == MIST_ERR_NO_PLAN ? MIST_ERR_RUN : status,
                        "no attention by cuDNN for %lld samples of %lld tokens, %lld "
                        "heads (%lld of keys) "
                        "of %lld, %s, within %lld bytes of workspace: %.200s; %s%s",
                        (long long)shape.b, (long long)shape.s, (long long)shape.heads,
                        (long long)shape.kv_heads, (long long)shape.head_dim,
                        mist_phase_words[at->step->phase],
                        (long long)at->step->workspace_bytes, why.message,
                        is_backward(at) && !context->device->base.allows_atomics
                            ? "--allow-atomics needs less workspace; "
                            : "",
                        way_out);
}

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
