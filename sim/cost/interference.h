/*
 * Interference: how much the four channels of a device slow each other down while they
 * are busy at the same time, the time of a bundle of overlapped work, and the fit of the
 * factors to measurements.
 *
 * The model (after Mist, EuroSys 2025): while exactly the channels of a set are busy,
 * channel c of the set advances at 1/slowdown[set][c] of the rate it has alone. A set is
 * a bit mask, bit c = channel c. 6 pairs, 4 triples and 1 quadruple make 28 factors; one
 * channel alone has factor 1 by definition. The event engine uses the same factors as
 * rates at every instant (sim/engine/event_engine.h).
 *
 * Left out: factors that depend on sizes or on the kind of work within a channel.
 */
#ifndef MIST_SIM_INTERFERENCE_H
#define MIST_SIM_INTERFERENCE_H

#include "core/status.h"     /* enum mist_status, struct mist_err */
#include "traces/timeline.h" /* enum mist_stream: the channels */

#include <stdbool.h>
#include <stdint.h>

#define MIST_N_STREAM_SETS (1 << MIST_N_CHANNELS)

struct mist_interference {
    double slowdown[MIST_N_STREAM_SETS]
                   [MIST_N_CHANNELS]; /* [busy set][channel], >= 1; 1 outside */
    /* The device computes on the processors of the host: while the compute and the host
     * stream both run, each has them half the time. */
    bool shares_processors;
    /* Streams take turns: while one has its turn those behind it stand still
     * (mist_interference_take_turns()). */
    bool takes_turns;
    /* Computation stands still while anything is sent to or received from another
     * stage. */
    bool blocks_transfers;
};

/* Slowdown of what stands still: a rate of a millionth, so that it keeps its place. */
#define MIST_STANDS_STILL 1e6

/* Factor of a stream of the busy ones (a set of streams). Work of the host disturbs no
 * channel, unless it shares the processors; streams of one channel don't disturb each
 * other, unless they share a processor. */
static inline double mist_interference_of(const struct mist_interference *interference,
                                          unsigned busy, enum mist_stream stream)
{
    const unsigned work = 1u << MIST_STREAM_COMPUTE | 1u << MIST_STREAM_HOST;
    const unsigned others =
        1u << MIST_STREAM_SEND | 1u << MIST_STREAM_RECEIVE | 1u << MIST_STREAM_SHARDS;
    const unsigned messages = 1u << MIST_STREAM_GPU_GPU | others;
    unsigned channels = busy & (MIST_N_STREAM_SETS - 1), sharing = 0;

    if (busy & others)
        channels |= 1u << MIST_STREAM_GPU_GPU;
    if (interference->blocks_transfers && stream == MIST_STREAM_COMPUTE &&
        busy & (1u << MIST_STREAM_SEND | 1u << MIST_STREAM_RECEIVE))
        return MIST_STANDS_STILL;
    if (interference->shares_processors && work >> stream & 1u)
        sharing = busy & work;
    else if (interference->shares_processors && interference->takes_turns &&
             messages >> stream & 1u)
        sharing = busy & messages;
    double factor = stream == MIST_STREAM_HOST
                        ? 1
                        : interference->slowdown[channels][mist_stream_channel(stream)];

    return sharing ? __builtin_popcount(sharing) * factor : factor;
}

/* All factors 1: channels do not disturb each other. */
void mist_interference_init(struct mist_interference *interference);

/* Streams of one thread: communication first, then copies, then computation
 * (exec/device/device_cpu_turns.c). The times of a bundle add up. */
void mist_interference_take_turns(struct mist_interference *interference);

/*
 * Checks that every factor is finite and >= 1.
 * Returns MIST_OK or MIST_ERR_INPUT (the message names set, channel and value).
 */
enum mist_status mist_interference_check(const struct mist_interference *interference,
                                         struct mist_err *err) MIST_MUST_CHECK;

/*
 * Time of a bundle: all channels start at 0 with isolated_s[c] seconds of work (their
 * time alone, finite and >= 0; 0 = not part of the bundle), the busy set runs until one
 * of it finishes, and so on. Returns the time when the last one finishes. With factors >=
 * 1 it is never below the longest isolated time. Pure; interference must have passed
 * mist_interference_check().
 */
double mist_interference_bundle_s(const struct mist_interference *interference,
                                  const double isolated_s[MIST_N_CHANNELS]);

/* One measurement: work that takes isolated_s[c] alone (0 = channel idle),
 * started together. */
struct mist_interference_sample {
    double isolated_s[MIST_N_CHANNELS]; /* each channel alone; finite, >= 0 */
    double together_s; /* measured until the last one finished; finite, > 0 */
};

/* Mean of |bundle time / measured - 1| over samples of two channels or more (0: none) and,
 * unless NULL, the worst of them. */
double mist_interference_residual_frac(const struct mist_interference *interference,
                                       const struct mist_interference_sample *samples,
                                       int64_t n_samples, double *worst_frac);

/* How one set of channels was fitted. Residual = |predicted - measured| / measured. */
struct mist_interference_set_fit {
    int64_t n_samples; /* samples whose busy channels are exactly this set */
    bool measured; /* false: too few samples, the factors of this set are the default */
    double mean_frac;  /* mean residual over the samples of the set; 0 without samples */
    double worst_frac; /* largest residual; 0 without samples */
};

struct mist_interference_fit_report {
    /* [set]; single channels: noise */
    struct mist_interference_set_fit set[MIST_N_STREAM_SETS];
    int n_not_measured; /* sets of 2..4 with defaults */
    double mean_frac;   /* over all samples of sets of 2..4; 0 without any */
    double worst_frac;  /* likewise */
};

/*
 * Fits the 28 factors: for each set the ones that minimise the sum of squared relative
 * errors of the bundle time, pairs first, then triples, then the quadruple, with what was
 * fitted before frozen (a bundle of three becomes a bundle of two once its first channel
 * has finished). Factors are limited to >= 1 and to nothing else. Each set: a coarse grid
 * picks starts, a damped Gauss-Newton iteration refines them; the best wins.
 * Deterministic; the order of samples matters only by rounding.
 *
 * A set needs at least as many samples as it has channels. One without gets a default and
 * is flagged:
 * - a pair: 1 (nothing is known);
 * - a triple or the quadruple: for each channel the product of its factors in the pairs
 *   with each other channel of the set, but at least its largest factor in any smaller
 *   set inside: more company never speeds a channel up. (Against the published A100 and
 *   L4 factors this errs on the low side.)
 *
 * Samples often can't tell the factors of a set apart: when the same channel always
 * finishes first, or when channels share one processor and so take the sum of their times
 * however it divides itself. Of all factors that fit about as well (sum of squares within
 * 5 % of the least) the most even ones are taken.
 *
 * samples   borrowed, [n_samples]; n_samples may be 0.
 * out       filled on MIST_OK, untouched otherwise.
 * report    may be NULL; filled on MIST_OK.
 * Returns MIST_OK, MIST_ERR_INPUT (a sample is invalid; the message names its index) or
 * MIST_ERR_MEMORY. O(n_samples) per iteration; 5,000 samples take a few tenths of a
 * second.
 */
enum mist_status mist_interference_fit(struct mist_interference *out,
                                       struct mist_interference_fit_report *report,
                                       const struct mist_interference_sample *samples,
                                       int64_t n_samples,
                                       struct mist_err *err) MIST_MUST_CHECK;

#endif
