/* What a session found out. See summary.h. */
#include "profile/summary.h"

#include "sim/cost/interference.h"
#include "sim/plan/mechanism.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* How much compute and gpu_gpu slow each other down, from all mixtures; where streams take
 * turns, how well their times add up. */
static enum mist_status emit_slowdowns(struct mist_emit *emit,
                                       const struct mist_trace_set *traces,
                                       struct mist_err *err)
{
    struct mist_interference fitted;
    struct mist_interference_fit_report report;
    size_t n = traces->n_interferences;
    struct mist_interference_sample *samples = calloc(n + 1, sizeof *samples);
    unsigned both = 1u << MIST_STREAM_COMPUTE | 1u << MIST_STREAM_GPU_GPU;

    if (!samples)
        return mist_err_memory(err, NULL);
    for (size_t i = 0; i < n; i++) {
        for (int c = 0; c < MIST_N_CHANNELS; c++)
            samples[i].isolated_s[c] = traces->interferences[i].alone_us[c] * 1e-6;
        samples[i].together_s = traces->interferences[i].together_us * 1e-6;
    }
    bool take_turns = traces->cluster.streams_take_turns;
    enum mist_status status = MIST_OK;
    if (take_turns) {
        mist_interference_take_turns(&fitted);
        report.mean_frac = mist_interference_residual_frac(&fitted, samples, (int64_t)n,
                                                           &report.worst_frac);
    } else {
        status = mist_interference_fit(&fitted, &report, samples, (int64_t)n, err);
    }
    free(samples);
    if (status != MIST_OK)
        return status;
    mist_emit_text(emit, "streams", "streams of a rank",
                   take_turns ? "take turns: their times add up" : "run at once");
    if (!take_turns) {
        mist_emit_number(emit, "compute_slowdown", "compute beside gpu_gpu",
                         fitted.slowdown[both][MIST_STREAM_COMPUTE]);
        mist_emit_number(emit, "gpu_gpu_slowdown", "gpu_gpu beside compute",
                         fitted.slowdown[both][MIST_STREAM_GPU_GPU]);
    }
    mist_emit_number(emit, "mixtures_residual_frac", "mixtures: residual, mean",
                     report.mean_frac);
    mist_emit_number(emit, "mixtures_worst_residual_frac", "mixtures: residual, worst",
                     report.worst_frac);
    return MIST_OK;
}

/* What short real plans took beside what was predicted for them. */
static void emit_checks(struct mist_emit *emit, const struct mist_trace_set *traces)
{
    if (traces->n_checks == 0)
        return;
    mist_emit_list_begin(emit, "checks", "plans that were run to check predictions");
    for (size_t i = 0; i < traces->n_checks; i++) {
        const struct mist_check_row *row = &traces->checks[i];
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_text(emit, "mechanism", "mechanism",
                       mist_mechanism_words[row->mechanism]);
        mist_emit_number(emit, "predicted_us", "predicted", row->predicted_us);
        mist_emit_number(emit, "bar_us", "+-", row->bar_us);
        mist_emit_number(emit, "measured_us", "measured", row->measured_us);
        mist_emit_number(emit, "error_frac", "predicted / measured - 1",
                         mist_check_error_frac(row));
        mist_emit_number(emit, "doubt_frac", "adds to bars, +-",
                         2 * mist_mechanism_doubt_frac(traces, 1u << row->mechanism));
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}

/* The mean of predicted / measured - 1 if the checks have it in common, or 0. */
static double common_error_frac(const struct mist_trace_set *traces)
{
    enum { LEAST = 3 };
    const double n = (double)traces->n_checks, least_frac = 0.05, deviations = 3;
    double sum = 0, squares = 0;

    if (n < LEAST)
        return 0;
    for (size_t i = 0; i < traces->n_checks; i++)
        sum += mist_check_error_frac(&traces->checks[i]);
    for (size_t i = 0; i < traces->n_checks; i++) {
        double apart = mist_check_error_frac(&traces->checks[i]) - sum / n;
        squares += apart * apart;
    }
    double chance = sqrt(squares / (n - 1) / n);
    return fabs(sum / n) > fmax(least_frac, deviations * chance) ? sum / n : 0;
}

void mist_profile_find_doubt(const struct mist_trace_set *traces,
                             const struct mist_profile_report *report, char *text,
                             size_t size)
{
    const double most_drift_frac = 0.1;
    const char *again = "other work may run on it; measure again when it is quiet";
    double common = common_error_frac(traces);

    text[0] = '\0';
    if (common != 0)
        snprintf(text, size,
                 "checks took %.0f %% %s than predicted, all alike: the machine was %s "
                 "while operators were timed than later; %s",
                 100 * fabs(1 / (1 + common) - 1), common > 0 ? "less" : "more",
                 common > 0 ? "slower" : "faster", again);
    else if (report->drift_frac > most_drift_frac)
        snprintf(text, size,
                 "the machine was %.0f %% faster or slower from one time or rank to "
                 "another, and so may runs be than predicted; %s",
                 100 * report->drift_frac, again);
}

struct mist_op_peak mist_profile_peak(const struct mist_cluster *cluster)
{
    struct mist_op_peak peak = {.bytes_per_s = cluster->memory_bytes_per_s};

    for (int i = 0; i < MIST_N_TRACE_DTYPES; i++) /* only one was measured */
        peak.flop_per_s = fmax(peak.flop_per_s, cluster->peak_flop_per_s[i]);
    return peak;
}

enum mist_status mist_profile_emit_summary(struct mist_emit *emit,
                                           const struct mist_trace_set *traces,
                                           const struct mist_profile_report *report,
                                           struct mist_err *err)
{
    struct mist_op_peak peak = mist_profile_peak(&traces->cluster);
    enum mist_status status;

    mist_emit_number(emit, "peak_flop_per_s", "best operator", peak.flop_per_s);
    mist_emit_number(emit, "memory_bytes_per_s", "memory, read and write",
                     peak.bytes_per_s);
    mist_emit_number(emit, "launch_us", "launching a task", report->host.launch_us);
    mist_emit_number(emit, "hand_over_us", "handing over to a stream",
                     report->host.hand_over_us);
    mist_emit_integer(emit, "runtime_memory_bytes", "memory beside the arenas",
                      report->host.runtime_memory_bytes);
    status = emit_slowdowns(emit, traces, err);
    mist_emit_integer(emit, "rounds", "rounds of operators", report->ops.n_rounds);
    mist_emit_integer(emit, "mixture_rounds", "rounds of mixtures",
                      report->n_rounds_interference);
    mist_emit_integer(emit, "runs", "runs timed", report->n_runs);
    mist_emit_integer(emit, "outliers", "of these left out", report->n_outliers);
    if (report->n_repeated > 0)
        mist_emit_integer(emit, "repeated_runs", "repeated: recording lost",
                          report->n_repeated);
    mist_emit_integer(emit, "wide_rows", "operators known worse than 1 %",
                      report->n_wide);
    mist_emit_number(emit, "widest_frac", "the worst of all to", report->widest_frac);
    mist_emit_number(emit, "probe_us", "a probe, mean", report->probe_us);
    mist_emit_integer(emit, "probes", "times it was probed", report->n_probes);
    mist_emit_number(emit, "drift_frac", "drift of the machine", report->drift_frac);
    mist_emit_number(emit, "skew_alone_frac", "computing takes longer: alone",
                     report->ops.skew.alone_frac);
    mist_emit_number(emit, "skew_pass_frac", "with ranks that wait for another",
                     report->ops.skew.pass_frac);
    mist_emit_number(emit, "skew_step_frac", "after every few operators",
                     report->ops.skew.step_frac);
    mist_emit_number(emit, "time_s", "time taken", report->time_s);
    emit_checks(emit, traces);
    return status;
}
