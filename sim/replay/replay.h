/*
 * Replay: from a plan to a predicted timeline, memory included.
 *
 * The schedules of the ranks (schedule.h) are priced by the cost model, linked to one
 * graph and run by the event engine for a few iterations in a row; nothing of the next
 * iteration starts on a rank before everything of this one has ended there. The time of
 * an iteration is the distance of the ends of the last two, so that what one iteration
 * hides in the empty places of its neighbour counts as hidden. Iterations are uneven if
 * loads or jitter make them differ; then each but the first counts.
 *
 * Folding: while nothing makes the ranks of a stage differ, rank i_dp = 0, i_tp = 0 of
 * each stage stands for all of them. That needs equal data-parallel and tensor-parallel
 * sizes and the same sequence parallelism in all stages (so that partners of
 * representatives are representatives), and takes the placement of the representatives'
 * groups and transfers on nodes for that of all. Where loads alone make data-parallel ranks
 * differ and no timeline is asked for, rank i_tp = 0 of each tensor-parallel group stands
 * for its group in the same way.
 *
 * The error bar is two deviations, about 95 %, of what five independent causes do to
 * the busiest rank (largest undisturbed compute time) in one iteration:
 *   error_s = 2 sqrt(statistical_s^2 + drift_s^2 + mixing_s^2 + missed_s^2 + preset_s^2)
 * - Prices are means of finitely many runs. The tasks of one cost number rest on the same
 *   measurement, so their deviations add up; different cost numbers are independent, so
 *   their sums add as squares:
 *   statistical_s = sqrt(sum_c (n_c deviation_c)^2) / sum_c n_c time_c * iteration_s
 * - The machine's own speed changes slowly (neighbours, clock rates, one rank's core and
 *   another's), which touches all tasks of an iteration alike and averages out over no
 *   number of runs: drift_s = drift_frac * iteration_s, drift_frac of the cluster: how
 *   its level varied while it was measured. So the bar holds for a run at the level of
 *   that session; of one that is probed (exec/runtime/probe.h) it holds at the level of the
 *   probes, from which the run's own level is as far as two times of a session are.
 * - What runs together is priced by factors that fit the measured mixtures up to a mean
 *   residual: mixing_s = residual * time during which more than one stream of that rank
 *   is busy in the last iteration.
 * - What short plans of the same mechanisms took beyond all this when they were run after
 *   profiling: missed_s = checks_frac * iteration_s (mechanism.h).
 * - What data sheets say of what nobody measured is off by about the residual of their
 *   fit, all of it together: preset_s = sum_c n_c doubt_c / sum_c n_c time_c * iteration_s
 *   (struct mist_cost). Of a cluster that nobody profiled the bar is 0.5 % at least.
 * Of uneven iterations the mean itself is known to 2 deviations / sqrt(their number), which
 * adds as a square. It does not know what none measured: a wrong extrapolation, a change of the machine
 * since it was measured, unless probes take that out. extrapolated_frac is the share of
 * sum_c n_c time_c that rests on extrapolation, prices the same by kind of task.
 *
 * Left out: contention of transfers beyond what the prices contain.
 */
#ifndef MIST_SIM_REPLAY_H
#define MIST_SIM_REPLAY_H

#include "core/status.h"
#include "sim/cost/cost_model.h"
#include "sim/model/catalog.h"
#include "sim/plan/plan.h"
#include "sim/replay/packing.h"
#include "sim/schedule/schedule.h"
#include "traces/timeline.h"

#include <stdbool.h>
#include <stdint.h>

enum mist_replay_folding {
    MIST_REPLAY_FOLD_AUTO, /* fold whenever that is exact */
    MIST_REPLAY_FOLD_NEVER,
    MIST_REPLAY_FOLD_ALWAYS, /* MIST_ERR_INPUT when the ranks of a stage differ */
};

/* Why work of one kind takes longer in one place than in another. */
enum mist_cause {
    MIST_CAUSE_LENGTHS, /* micro-batches have other tokens */
    MIST_CAUSE_RANKS,   /* ranks compute at other speeds */
    MIST_CAUSE_LINKS,   /* ranks send and receive at other speeds */
    MIST_CAUSE_JITTER,
    MIST_N_CAUSES
};

/* Some of the work: that of a stage, rank or micro-batch, each -1: of all. */
struct mist_replay_part {
    unsigned causes; /* bits 1 << enum mist_cause */
    int32_t i_stage, rank, micro_batch;
};

/* Zero-initialised: the defaults. Factors multiply times: 1.3 is 30 % slower. */
struct mist_replay_options {
    int32_t n_iterations; /* 0: 2 */
    enum mist_replay_folding folding;
    int32_t threads;                /* host threads per device; 0: a GPU computes */
    const double *rank_factor;      /* [ranks of the plan] of computation; NULL: all 1 */
    const double *link_factor;      /* [ranks of the plan] of messages that the rank takes
                                      part in; NULL: all 1 */
    const struct mist_loads *loads; /* of as many iterations; NULL: samples are full */
    /* What is to be even: samples hold the mean of all loads, ranks and links are as fast as
     * priced, nothing jitters. NULL: nothing is. */
    const struct mist_replay_part *part;
    bool evens_others;   /* all but the part is even, not the part */
    double jitter_frac;  /* standard deviation of every task's time, relative; 0: none */
    uint64_t seed;       /* of the jitter */
    bool skips_timeline; /* true: result->timeline stays empty */
    /* Of a rank's device arena; 0: none. A plan is not built any further behind a stage that
     * is over it, and can't be replayed then. */
    int64_t limit_bytes;
    bool only_stages; /* it has one rank of each stage, that with the most computation */
    bool only_times;  /* iteration times, pace_s and n_tasks are filled, nothing else */
};

/* One stage in the iterations counted, their mean: its rank with the largest compute_s. */
struct mist_replay_stage {
    int32_t rank;
    double compute_s; /* compute stream running, slowed down as it was */
    double exposed_s; /* another stream running, compute stream not */
    double bubble_s;  /* rest of iteration_s: nothing runs */
    int64_t arena_bytes[MIST_N_ARENAS]; /* exactly what the executor allocates */
    int64_t peak_bytes;   /* largest sum of live device buffers, <= arena_bytes */
    int64_t n_parameters; /* mist_schedule_n_parameters() */
};

struct mist_replay_result {
    double iteration_s;   /* of uneven iterations the mean; else that of the last */
    double *iterations_s; /* owned; [n_iterations] that count, ascending */
    int32_t n_iterations; /* uneven: all but the first, if there are more; else 1 */
    double pace_s;        /* between the last first forwards of the busiest rank; 0: there
                             is one, or not only_times */
    double error_s;       /* half width of the error bar */
    double extrapolated_frac;
    double alone_frac;                          /* mist_replay_alone_frac() */
    struct mist_cost prices[MIST_N_TASK_KINDS]; /* what an iteration of the busiest rank
                                                   rests on: sums over its tasks */
    bool is_folded;
    int32_t n_stages;
    struct mist_replay_stage *stages; /* owned; [n_stages] */
    struct mist_timeline timeline; /* owned; last iteration, ranks as in the plan (folded:
                                      representatives only), 0 = its earliest start */
    double last_s;                 /* of the iteration that the timeline has */
    double begin_s;  /* in the timeline's time: the end of the iteration before */
    int64_t n_tasks; /* replayed, all iterations */
};

/*
 * Replays a plan (checked).
 *
 * options   borrowed; NULL: defaults.
 * out       filled on MIST_OK, to be freed with mist_replay_result_fini; untouched
 *           otherwise.
 * Same arguments, same bits. MIST_ERR_INPUT (plan not supported, options out of range, a
 * deadlock, no price), MIST_ERR_RANGE, MIST_ERR_MEMORY, or MIST_ERR_NO_PLAN: it would
 * take more memory than this machine has (replay_size.h). O(tasks log tasks).
 */
MIST_MUST_CHECK enum mist_status
mist_replay_run(const struct mist_plan *plan, const struct mist_cost_model *cost_model,
                const struct mist_replay_options *options, struct mist_replay_result *out,
                struct mist_err *err);
void mist_replay_result_fini(struct mist_replay_result *result);

/*
 * Of an iteration's time, what a rank works alone, 0 of one rank: of n ranks, of which some
 * rank works at any moment, busy_s(r) / iteration_s add up to how many do so on average, and
 *   alone_frac = 1 - (sum_r busy_s(r) / iteration_s - 1) / (n - 1), within 0 .. 1.
 * Whatever else wants the processors and the memory of a machine is in the way of those
 * ranks that work at once: a pipeline of which one stage does nearly everything takes hardly
 * any longer on a machine that is at work elsewhere.
 */
double mist_replay_alone_frac(const struct mist_plan *plan,
                              const struct mist_replay_stage *stages, double iteration_s);

/* The prediction that a replay makes, on that cluster: times, bar and fractions; the rest
 * stays. */
void mist_replay_predict(const struct mist_replay_result *result,
                         const struct mist_cluster *cluster,
                         struct mist_prediction *predicted);

/*
 * Seconds of an iteration from the replay of one with few micro-batches, once: as many as
 * it takes until every stage works in a stable rhythm, whose pace the rest are taken to
 * keep. Exact where a plan has no more than these, or an automatic schedule, whose order is
 * that of all; else 0.1 % off in nine of ten plans (tests/prop/test_stage_model.c), in a
 * quarter of the time of mist_replay_run(). Other arguments and errors as there.
 */
MIST_MUST_CHECK enum mist_status
mist_replay_short(const struct mist_plan *plan, const struct mist_cost_model *cost_model,
                  int32_t threads, double *iteration_s, struct mist_err *err);

/*
 * The same in two steps, for whoever asks for the memory of a plan before its time, or
 * replays it several times: its ranks, with their memory laid out. Plan and what options
 * (NULL: defaults) point to are borrowed until it is freed (NULL allowed).
 */
struct mist_replay_built;
MIST_MUST_CHECK enum mist_status
mist_replay_build(const struct mist_plan *plan, const struct mist_replay_options *options,
                  struct mist_replay_built **out, struct mist_err *err);
void mist_replay_built_free(struct mist_replay_built *built);

/* Of each stage [n_stages] its first rank, arenas and parameters, the rest is 0; of stages
 * behind one that is over the limit all is. */
void mist_replay_built_stages(const struct mist_replay_built *built,
                              struct mist_replay_stage *stages);

/* How the streams of a plan's devices slow each other down: as those of the cluster, but for
 * what its framework does otherwise. */
struct mist_interference
mist_replay_interference(const struct mist_plan *plan,
                         const struct mist_cost_model *cost_model);

/* With the options (NULL: those it was built with), which may differ from these in what is
 * even, the jitter's seed and what is recorded. Prices are made by the first replay: all
 * are to have the same cost model. */
MIST_MUST_CHECK enum mist_status
mist_replay_run_built(struct mist_replay_built *built,
                      const struct mist_cost_model *cost_model,
                      const struct mist_replay_options *options,
                      struct mist_replay_result *out, struct mist_err *err);

/* Whether this machine has the memory for mist_replay_run() with these options (not
 * NULL): MIST_OK, or what mist_replay_run() would say before it allocates much. */
MIST_MUST_CHECK enum mist_status
mist_replay_check_memory(const struct mist_plan *plan,
                         const struct mist_replay_options *options, struct mist_err *err);

/* Whether all that the plan does has a price, as mist_replay_run() with these options (not
 * NULL) would find out: MIST_OK, or its error. Memory is to be checked before. */
MIST_MUST_CHECK enum mist_status
mist_replay_check_prices(const struct mist_plan *plan,
                         const struct mist_cost_model *cost_model,
                         const struct mist_replay_options *options, struct mist_err *err);

/* What the error bar knows beside the deviations of the prices; each finite and >= 0. */
struct mist_replay_doubt {
    double drift_frac;    /* struct mist_cluster */
    double residual_frac; /* mist_cost_model_interference_residual_frac() */
    double checks_frac;   /* mist_mechanism_doubt_frac() */
    double least_frac;    /* no bar is narrower */
};

/*
 * Proves for a plan (checked) that the transfers and collectives of all ranks match (each
 * send has a receive of the same bytes and samples, the members of a collective agree in
 * tag, kind and bytes) and that nothing ever waits for itself. To be called before
 * anything is allocated. MIST_OK, or MIST_ERR_INPUT naming ranks and tasks;
 * MIST_ERR_RANGE, MIST_ERR_MEMORY, or MIST_ERR_NO_PLAN as above. O(tasks log tasks) over
 * all ranks.
 */
MIST_MUST_CHECK enum mist_status mist_replay_check(const struct mist_plan *plan,
                                                   int32_t threads, struct mist_err *err);

/*
 * Exactly planned bytes of each stage, without prices: arena_bytes [n_stages]. Ranks of a
 * stage have the same buffers in the same order and so the same arena. Fails like
 * mist_schedule_build.
 */
MIST_MUST_CHECK enum mist_status mist_replay_memory(const struct mist_plan *plan,
                                                    int32_t threads,
                                                    int64_t (*arena_bytes)[MIST_N_ARENAS],
                                                    struct mist_err *err);

#endif
