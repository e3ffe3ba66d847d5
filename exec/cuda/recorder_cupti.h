/* From CUPTI's activity buffers to plain records; only for the recorder and its test. */
#ifndef MIST_EXEC_CUDA_RECORDER_CUPTI_H
#define MIST_EXEC_CUDA_RECORDER_CUPTI_H

#include "exec/cuda/recorder.h"

#include <cupti.h>

/* What steps through a buffer: cuptiActivityGetNextRecord, which needs no driver. */
typedef CUptiResult mist_cuda_next_fn(uint8_t *buffer, size_t n_bytes,
                                      CUpti_Activity **record);

/* The external correlation kind of spans. */
#define MIST_CUDA_SPAN_KIND CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0

/* Fills out and returns true; false for a record that is of no interest. */
bool mist_cuda_translate_record(const CUpti_Activity *activity,
                                struct mist_cuda_record *out);

/*
 * Adds the records of buffer[n_bytes] (aligned to 8) to the matcher; *n_broken grows by 1
 * if reading ended at an invalid record. MIST_OK or MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_cuda_read_buffer(uint8_t *buffer, size_t n_bytes,
                                                       mist_cuda_next_fn *next,
                                                       struct mist_cuda_matcher *matcher,
                                                       int64_t *n_broken,
                                                       struct mist_err *err);

#endif
