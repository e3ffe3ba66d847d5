/*
 * What PyTorch's operators are in the catalogue: by name, and by the shapes and types of
 * their inputs as torch.profiler records them.
 */
#ifndef MIST_PROFILE_TORCH_WORDS_H
#define MIST_PROFILE_TORCH_WORDS_H

#include "core/json.h"
#include "sim/model/catalog.h"
#include "traces/trace_set.h"

/* One use of an operator. */
struct mist_torch_use {
    bool is_product; /* dims are m, n, k; op and phase are not set */
    enum mist_op op;
    enum mist_phase phase;
    enum mist_trace_dtype dtype;
    int64_t dims[MIST_MAX_DIMS]; /* as mist_op_dims(); 0 beyond them */
};

/* Whether an event's operator, with its args, is one of ours; out is untouched if not. A
 * name that is known with other inputs than expected is none of ours. */
bool mist_torch_read_use(const char *name, const struct mist_json *args,
                         struct mist_torch_use *out);

#endif
