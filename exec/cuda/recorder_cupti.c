/*
 * The one file that knows the structs of CUPTI's records. Their names change with every
 * release that appends a field; the buffers follow the header that is compiled with. See
 * recorder_cupti.h.
 */
#include "exec/cuda/recorder_cupti.h"

#if CUPTI_API_VERSION >= 130200
typedef CUpti_ActivityKernel11 kernel_record;
typedef CUpti_ActivityMemcpy6 memcpy_record;
#elif CUPTI_API_VERSION >= 130000
typedef CUpti_ActivityKernel10 kernel_record;
typedef CUpti_ActivityMemcpy6 memcpy_record;
#else
typedef CUpti_ActivityKernel9 kernel_record;
typedef CUpti_ActivityMemcpy5 memcpy_record;
#endif
typedef CUpti_ActivityMemset4 memset_record;
typedef CUpti_ActivityMemcpyPtoP4 peer_copy_record;

static struct mist_cuda_record work_of(uint32_t correlation_id, uint64_t start_ns,
                                       uint64_t end_ns)
{
    return (struct mist_cuda_record){.kind = MIST_CUDA_RECORD_WORK,
                                     .correlation_id = correlation_id,
                                     .start_ns = start_ns,
                                     .end_ns = end_ns};
}

static bool translate_external(const CUpti_ActivityExternalCorrelation *external,
                               struct mist_cuda_record *out)
{
    if (external->externalKind != MIST_CUDA_SPAN_KIND)
        return false;
    *out = (struct mist_cuda_record){.kind = MIST_CUDA_RECORD_EXTERNAL,
                                     .correlation_id = external->correlationId,
                                     .external_id = (int64_t)external->externalId};
    return true;
}

/* Records are aligned as CUPTI says, so that the casts hold. */
bool mist_cuda_translate_record(const CUpti_Activity *activity,
                                struct mist_cuda_record *out)
{
    const void *at = activity;
    const kernel_record *kernel = at;
    const memcpy_record *copy = at;
    const memset_record *fill = at;
    const peer_copy_record *peer = at;
    const CUpti_ActivityAPI *api = at;

    switch (activity->kind) {
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        return translate_external(at, out);
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        *out = work_of(kernel->correlationId, kernel->start, kernel->end);
        return true;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        *out = work_of(copy->correlationId, copy->start, copy->end);
        return true;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
        *out = work_of(peer->correlationId, peer->start, peer->end);
        return true;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        *out = work_of(fill->correlationId, fill->start, fill->end);
        return true;
    case CUPTI_ACTIVITY_KIND_DRIVER:
    case CUPTI_ACTIVITY_KIND_RUNTIME:
        *out = (struct mist_cuda_record){.kind = MIST_CUDA_RECORD_API,
                                         .correlation_id = api->correlationId,
                                         .start_ns = api->start,
                                         .end_ns = api->end};
        return true;
    default:
        return false;
    }
}

enum mist_status mist_cuda_read_buffer(uint8_t *buffer, size_t n_bytes,
                                       mist_cuda_next_fn *next,
                                       struct mist_cuda_matcher *matcher,
                                       int64_t *n_broken, struct mist_err *err)
{
    CUpti_Activity *activity = NULL;
    CUptiResult result = CUPTI_SUCCESS;
    enum mist_status status = MIST_OK;

    while ((result = next(buffer, n_bytes, &activity)) == CUPTI_SUCCESS) {
        struct mist_cuda_record record;
        if (!mist_cuda_translate_record(activity, &record))
            continue;
        enum mist_status added = mist_cuda_matcher_add(matcher, &record, 1, err);
        if (added != MIST_OK)
            status = added;
    }
    *n_broken += result != CUPTI_ERROR_MAX_LIMIT_REACHED;
    return status;
}
