/* From CUPTI's activity buffers to plain records, for the recorder and its test; and what
 * CUPTI's version is called. */
#ifndef MIST_EXEC_CUDA_RECORDER_CUPTI_H
#define MIST_EXEC_CUDA_RECORDER_CUPTI_H

#include "exec/cuda/recorder.h"

#include <cupti.h>

/* What steps through a buffer: cuptiActivityGetNextRecord, which needs no driver. */
typedef CUptiResult mist_cuda_next_fn(uint8_t *buffer, size_t n_bytes,
                                      CUpti_Activity **record);

/* The external correlation kind of spans. */
#define MIST_CUDA_SPAN_KIND CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0

/* Adds what is of interest in buffer[n_bytes] (aligned to 8); an invalid record, at which
 * reading ends, counts as lost. */
void mist_cuda_read_buffer(uint8_t *buffer, size_t n_bytes, mist_cuda_next_fn *next,
                           struct mist_cuda_records *records);

/* What cuptiGetVersion() says in words: "13.0", or of a CUDA 12 "API 26", which counts. */
void mist_cuda_cupti_version(uint32_t version, char *text, size_t text_bytes);

#endif
