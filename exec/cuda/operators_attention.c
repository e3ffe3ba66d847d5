/*
 * Attention of the CUDA backend: cuDNN's where it is there and has a plan for the shape
 * within the step's workspace, else the own kernels'. See operators.h.
 */
#include "exec/cuda/operators_internal.h"

#if MIST_CUDA_HAS_CUDNN
#include "exec/cuda/attention_cudnn.h"
#endif

#include <string.h>

enum { MOST_HEAD_DIM = 256 }; /* of the own kernels */

#if MIST_CUDA_HAS_CUDNN
static struct mist_cuda_sdpa_shape sdpa_shape(step_args at)
{
    const int64_t *dims = at->step->dims;

    return (struct mist_cuda_sdpa_shape){dims[0], dims[1], dims[2], dims[3], dims[4]};
}

static enum mist_cuda_sdpa_form sdpa_form(const struct mist_cuda_operators *context)
{
    return context->allows_atomics ? MIST_CUDA_SDPA_FAST : MIST_CUDA_SDPA_DETERMINISTIC;
}

/* Whether cuDNN has a plan for the step, which is built at the first question. The own
 * kernels do where it has none or can't build any (no run-time compiler). */
static bool plan_cudnn(step_args at, bool is_backward)
{
    struct mist_cuda_operators *context = context_of(at);
    struct mist_cuda_sdpa_shape shape = sdpa_shape(at);
    struct mist_err err;
    enum mist_status status;

    if (!context->sdpa || context->prefers_own_attention ||
        at->step->workspace_bytes == 0 || at->dtype != MIST_DTYPE_BF16)
        return false;
    status = mist_cuda_sdpa_plan(
        context->sdpa, &shape,
        is_backward ? MIST_CUDA_SDPA_BACKWARD : MIST_CUDA_SDPA_FORWARD,
        sdpa_form(context), at->step->workspace_bytes, NULL, &err);
    if (status == MIST_ERR_MEMORY)
        mist_cuda_operators_fail(at, status, err.message);
    return status == MIST_OK;
}

static void run_cudnn(step_args at, bool is_backward)
{
    struct mist_cuda_operators *context = context_of(at);
    struct mist_cuda_sdpa_shape shape = sdpa_shape(at);
    mist_cuda_stream stream = stream_of(context);
    void *const *x = at->operands;
    struct mist_err err;
    enum mist_status status;

    if (is_backward)
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
#else
static bool plan_cudnn(step_args at, bool is_backward)
{
    (void)at;
    (void)is_backward;
    return false;
}

static void run_cudnn(step_args at, bool is_backward)
{
    (void)is_backward;
    mist_cuda_operators_fail(at, MIST_ERR_RUN, "built without cuDNN");
}
#endif

/* Asks plan_cudnn() once per shape. */
static bool goes_to_cudnn(step_args at, bool is_backward)
{
    struct mist_cuda_operators *context = context_of(at);
    struct mist_cuda_attention_choice *choice = context->choices;
    struct mist_cuda_attention_choice *end = choice + context->n_choices;

    for (; choice < end; choice++)
        if (choice->is_backward == is_backward &&
            choice->workspace_bytes == at->step->workspace_bytes &&
            memcmp(choice->dims, at->step->dims, sizeof choice->dims) == 0)
            return choice->is_cudnn;
    if (context->n_choices == MIST_CUDA_MAX_ATTENTION_CHOICES)
        return false;
    *choice =
        (struct mist_cuda_attention_choice){.workspace_bytes = at->step->workspace_bytes,
                                            .is_backward = is_backward,
                                            .is_cudnn = plan_cudnn(at, is_backward)};
    memcpy(choice->dims, at->step->dims, sizeof choice->dims);
    context->n_choices++;
    return choice->is_cudnn;
}

void mist_cuda_operators_plan_attention(step_args at)
{
    (void)goes_to_cudnn(at, at->step->phase != MIST_PHASE_FORWARD);
}

void mist_cuda_operators_attention(step_args at)
{
    const int64_t *d = at->step->dims; /* b, s, heads, kv_heads, head_dim */
    void *const *x = at->operands;
    mist_cuda_stream stream = stream_of(context_of(at));
    bool is_backward = at->step->phase != MIST_PHASE_FORWARD;

    if (goes_to_cudnn(at, is_backward))
        run_cudnn(at, is_backward);
    else if (d[4] > MOST_HEAD_DIM)
        mist_cuda_operators_fail(at, MIST_ERR_RUN, "heads are at most 256 wide here");
    else if (!is_backward)
        mist_cuda_attention_forward(stream, at->dtype, x[MIST_ARG_OUT],
                                    x[MIST_ARG_ATTENTION_LSE], x[MIST_ARG_ATTENTION_QKV],
                                    d[0], d[1], d[2], d[3], d[4]);
    else if (mist_cuda_operators_has_workspace(at, d[0] * d[2] * d[1] *
                                                       (int64_t)sizeof(float)))
        mist_cuda_attention_backward(
            stream, at->dtype, x[MIST_ARG_DX], x[MIST_ARG_DY], x[MIST_ARG_DATTENTION_QKV],
            x[MIST_ARG_DATTENTION_OUT], x[MIST_ARG_DATTENTION_LSE], d[0], d[1], d[2],
            d[3], d[4], at->workspace);
}
