/*
 * The learning rate by step: linear warm-up from 0, then constant, or down a half cosine
 * to a minimum (Loshchilov and Hutter 2017, one cycle), then that minimum.
 */
#ifndef MIST_EXEC_LR_SCHEDULE_H
#define MIST_EXEC_LR_SCHEDULE_H

#include <stdint.h>

struct mist_lr_schedule {
    double peak;           /* > 0 */
    double minimum;        /* reached at decay_steps; 0 .. peak */
    int64_t warm_up_steps; /* 0: none; step i of these has peak (i + 1) / warm_up_steps */
    int64_t decay_steps;   /* end of the cosine, counted from step 0; 0: constant */
};

/* Learning rate of step i = 0, 1, ... */
double mist_lr_at(const struct mist_lr_schedule *schedule, int64_t i);

#endif
