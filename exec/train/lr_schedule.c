/* The learning rate by step. See lr_schedule.h. */
#include "exec/train/lr_schedule.h"

#include <math.h>

double mist_lr_at(const struct mist_lr_schedule *schedule, int64_t i)
{
    double peak = schedule->peak, minimum = schedule->minimum;

    if (i < schedule->warm_up_steps)
        return peak * (double)(i + 1) / (double)schedule->warm_up_steps;
    if (schedule->decay_steps == 0)
        return peak;
    if (i >= schedule->decay_steps)
        return minimum;
    double part = (double)(i - schedule->warm_up_steps) /
                  (double)(schedule->decay_steps - schedule->warm_up_steps);
    return minimum + 0.5 * (peak - minimum) * (1 + cos(acos(-1.0) * part));
}
