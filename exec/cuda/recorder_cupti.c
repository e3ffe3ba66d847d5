/*
 * The one file that knows the structs of CUPTI's records. Their names change with every
 * release that appends a field; the buffers follow the header that is compiled with. See
 * recorder_cupti.h.
 */
#include "exec/cuda/recorder_cupti.h"

#include <inttypes.h>
#include <stdio.h>

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

static const char *copy_name(uint8_t kind)
{
    switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
        return "copy host to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
        return "copy device to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
        return "copy device to device";
    default:
        return "copy";
    }
}

/* Records are aligned as CUPTI says, so that the casts hold. Calls have none here. */
static void add(const CUpti_Activity *activity, struct mist_cuda_records *records)
{
    const void *at = activity;
    const CUpti_ActivityExternalCorrelation *mark = at;
    const kernel_record *kernel = at;
    const memcpy_record *copy = at;
    const memset_record *fill = at;
    const peer_copy_record *peer = at;

    switch (activity->kind) {
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        if (mark->externalKind == MIST_CUDA_SPAN_KIND)
            mist_cuda_records_add_mark(records, mark->correlationId,
                                       (int64_t)mark->externalId);
        break;
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        mist_cuda_records_add_work(records, kernel->correlationId, kernel->name,
                                   kernel->start, kernel->end);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        mist_cuda_records_add_work(records, copy->correlationId,
                                   copy_name(copy->copyKind), copy->start, copy->end);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
        mist_cuda_records_add_work(records, peer->correlationId, "copy between devices",
                                   peer->start, peer->end);
        break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        mist_cuda_records_add_work(records, fill->correlationId, "fill", fill->start,
                                   fill->end);
        break;
    default:
        break;
    }
}

void mist_cuda_read_buffer(uint8_t *buffer, size_t n_bytes, mist_cuda_next_fn *next,
                           struct mist_cuda_records *records)
{
    CUpti_Activity *activity = NULL;
    CUptiResult result;

    while ((result = next(buffer, n_bytes, &activity)) == CUPTI_SUCCESS)
        add(activity, records);
    records->n_lost += result != CUPTI_ERROR_MAX_LIMIT_REACHED;
}

void mist_cuda_cupti_version(uint32_t version, char *text, size_t text_bytes)
{
    if (version < 130000)
        snprintf(text, text_bytes, "API %" PRIu32, version);
    else
        snprintf(text, text_bytes, "%" PRIu32 ".%" PRIu32, version / 10000,
                 version / 100 % 100);
}
