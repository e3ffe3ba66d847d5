/* What the benchmarks of operators share: names of steps, an ordinary update. */
#ifndef MIST_TESTS_BENCH_BENCH_STEPS_H
#define MIST_TESTS_BENCH_BENCH_STEPS_H

#include "exec/operators/bind.h"
#include "tests/bench/bench.h"

static const struct mist_adamw_args usual_adamw = {.lr = 1e-4f,
                                                   .beta1 = 0.9f,
                                                   .beta2 = 0.95f,
                                                   .epsilon = 1e-8f,
                                                   .weight_decay = 0.1f,
                                                   .gradient_scale = 1,
                                                   .t = 10};

/* "block qkv forward" */
static inline void name_step(char *name, size_t size, enum mist_layer_kind kind,
                             const struct mist_step *step)
{
    static const char *const modules[] = {"embedding", "block", "head"};
    static const char *const phases[] = {"forward", "backward", "weight gradient", ""};

    snprintf(name, size, "%s %s %s", modules[kind], step->name, phases[step->phase]);
}

#endif
