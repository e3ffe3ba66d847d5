/* FLOP per token and the peak of a device. See train_log.h. */
#include "exec/train/train_log.h"

#include "sim/cost/trace_use.h"
#include "traces/preset.h"

#include <unistd.h>

/* FLOP/s of the fastest linear layer of a kind; 0: none was measured. */
static double fastest(const struct mist_trace_set *set, enum mist_op op,
                      enum mist_trace_dtype dtype)
{
    double best = 0;

    for (int phase = 0; phase < MIST_N_PHASES; phase++) {
        const struct mist_kernel_row *row = mist_trace_set_first_kernel(
            set, mist_op_name(op), dtype, (enum mist_phase)phase);
        for (; row; row = mist_trace_set_next_kernel(set, row)) {
            double rate = row->flop / (row->time_us * 1e-6);
            best = rate > best ? rate : best;
        }
    }
    return best;
}

struct mist_train_peak mist_train_find_peak(const struct mist_plan *plan,
                                            const char *plan_path,
                                            const struct mist_messages *messages)
{
    struct mist_trace_set set;
    struct mist_train_peak out = {0};
    enum mist_trace_dtype dtype =
        plan->job.dtype == MIST_DTYPE_BF16 ? MIST_TRACE_BF16 : MIST_TRACE_FP32;

    struct mist_err warning = {0};

    if (!plan->trace_set[0])
        return out;
    if (mist_trace_set_open(&set, plan->trace_set, &warning) != MIST_OK) {
        if (access(plan->trace_set, F_OK) == 0) /* else this machine doesn't have it */
            mist_message_err(messages, &warning);
        return out;
    }
    mist_trace_use_warn(&set, plan->job.dtype, messages);
    mist_trace_use_warn_plan(&set, plan, plan_path, messages);
    double plain = fastest(&set, MIST_OP_LINEAR, dtype);
    double biased = fastest(&set, MIST_OP_LINEAR_BIAS, dtype);
    out.flop_per_s = plain > biased ? plain : biased;
    out.is_measured = out.flop_per_s > 0;
    if (!out.is_measured)
        out.flop_per_s = set.cluster.peak_flop_per_s[dtype];
    out.bytes_per_s = set.cluster.memory_bytes_per_s;
    mist_trace_set_fini(&set);
    return out;
}
