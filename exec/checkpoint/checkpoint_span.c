/* Names and spans of pieces: what is valid. See checkpoint.h. */
#include "exec/checkpoint/checkpoint_internal.h"

#include <stdio.h>
#include <string.h>

char *mist_checkpoint_name(char out[MIST_CHECKPOINT_NAME_BYTES], int32_t module,
                           const char *param, enum mist_checkpoint_kind kind)
{
    static const char *const kinds[MIST_CHECKPOINT_N_KINDS] = {"weight", "moment1",
                                                               "moment2"};

    snprintf(out, MIST_CHECKPOINT_NAME_BYTES, "%d/%s/%s", module, param, kinds[kind]);
    return out;
}

bool checkpoint_name_is_valid(const char *name, size_t n)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789/._-";

    if (n < 1 || n >= MIST_CHECKPOINT_NAME_BYTES)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!name[i] || !strchr(allowed, name[i]))
            return false;
    return true;
}

bool checkpoint_span_is_valid(const struct mist_param_span *span, int64_t whole)
{
    int64_t end;

    if (span->length < 1 || span->n_runs < 1 || span->global_first < 0)
        return false;
    if (span->n_runs > 1 && span->global_stride < span->length)
        return false;
    return mist_size_mul(span->n_runs - 1, span->n_runs > 1 ? span->global_stride : 0,
                         &end) &&
           mist_size_add(end, span->length, &end) &&
           mist_size_add(end, span->global_first, &end) && end <= whole;
}
