/* Names and spans of pieces: what is valid, and spans cut to a shard.
 * See checkpoint.h. */
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

/* Runs first_run .. of a span, from offset on in the first one, length elements
 * of each. */
static struct mist_param_span sub_span(const struct mist_param_span *span,
                                       int64_t first_run, int64_t offset, int64_t length,
                                       int64_t n_runs)
{
    return (struct mist_param_span){
        .local_first = span->local_first + first_run * span->length + offset,
        .global_first = span->global_first + first_run * span->global_stride + offset,
        .length = length,
        .n_runs = n_runs,
        .global_stride = span->global_stride};
}

/* Elements begin .. end - 1 of a span, begin < end: the rest of a run, whole runs, the
 * start of a run. */
static int32_t cut_span(const struct mist_param_span *span, int64_t begin, int64_t end,
                        struct mist_param_span *out)
{
    int64_t length = span->length;
    int64_t run = begin / length, offset = begin % length;
    int64_t last_run = end / length, rest = end % length;
    int32_t n = 0;

    if (run == last_run) {
        out[0] = sub_span(span, run, offset, end - begin, 1);
        return 1;
    }
    if (offset > 0) {
        out[n++] = sub_span(span, run, offset, length - offset, 1);
        run++;
    }
    if (last_run > run)
        out[n++] = sub_span(span, run, 0, length, last_run - run);
    if (rest > 0)
        out[n++] = sub_span(span, last_run, 0, rest, 1);
    return n;
}

int32_t mist_checkpoint_cut_spans(const struct mist_param_span *spans, int32_t n_spans,
                                  int64_t first, int64_t n, struct mist_param_span *out)
{
    int32_t n_out = 0;

    for (int32_t i = 0; i < n_spans; i++) {
        int64_t start = spans[i].local_first;
        int64_t begin = first > start ? first - start : 0;
        int64_t end = first + n - start;
        int64_t size = spans[i].length * spans[i].n_runs;
        if (end > size)
            end = size;
        if (begin >= end)
            continue;
        int32_t n_new = cut_span(&spans[i], begin, end, out + n_out);
        for (int32_t k = 0; k < n_new; k++)
            out[n_out + k].local_first -= first;
        n_out += n_new;
    }
    return n_out;
}
