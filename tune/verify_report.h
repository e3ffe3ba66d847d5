/* What mist-tune prints of the plans that were run (part of tune_report). */
#ifndef MIST_TUNE_VERIFY_REPORT_H
#define MIST_TUNE_VERIFY_REPORT_H

#include "core/emit.h"
#include "tune/verify.h"

/* A list of the plans, "verified", and an object, "choice". */
void mist_verify_emit(struct mist_emit *emit, const struct mist_verify_result *verified,
                      bool as_json);

#endif
