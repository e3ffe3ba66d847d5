/*
 * A probe: a short fixed piece of training work whose time is the level of the machine at
 * that moment.
 *
 * A machine is not always as fast as when it was profiled, in all operators alike. So
 * mist-profile times probes all over its session, predictions carry that time, and a run
 * that times probes between its iterations knows what part of its error is the machine's (struct
 * mist_probe_verdict).
 *
 * A probe is one matrix product and one sum of two vectors that are in no cache, both on
 * the compute stream, then, with several ranks, one all-reduce over all of them on the
 * gpu_gpu stream. On a core of a server it takes about 11 ms, nearly all for the product:
 * memory that machines share varies more than training does. All ranks do this at once,
 * so a probe takes what its slowest rank takes. Times of probes compare only between runs
 * of as many ranks, threads and the same number format.
 *
 * It works on a device of its own with the backend's operators, so it disturbs nothing of
 * a run but by the memory that it takes while it is open, and knows of no backend.
 * The clock is the host's, around work of several probes where the device has a processor
 * of its own.
 */
#ifndef MIST_EXEC_PROBE_H
#define MIST_EXEC_PROBE_H

#include "core/statistics.h"
#include "core/status.h"
#include "exec/comm/comm.h"
#include "exec/runtime/backend.h"
#include "sim/plan/plan.h"

#include <stdint.h>

struct mist_probe;

/* What one probe does. */
struct mist_probe_work {
    int64_t rows, width;   /* product: [rows, width] x [width, width] */
    int64_t sum_bytes;     /* of each of the vectors that are added, fp32 */
    int64_t region_bytes;  /* that each of them moves through; a multiple of sum_bytes */
    int64_t message_bytes; /* of the all-reduce, fp32 */
    int32_t n_at_once;     /* probes from one look at the clock to the next */
};

/* The work that all tools do: n_threads as in the next struct. */
struct mist_probe_work mist_probe_usual_work(int32_t n_threads);

struct mist_probe_config {
    const struct mist_backend *backend; /* borrowed */
    int32_t i_device;                   /* of this rank on its machine */
    bool has_own_device;                /* no other rank computes there */
    enum mist_dtype dtype;              /* of the product */
    int32_t n_threads;                  /* of the compute stream; 0: not a CPU */
    double deadline_s;                  /* of a wait for other ranks */
    struct mist_probe_work work;        /* mist_probe_usual_work() */
};

/*
 * Allocates all that probes need: a device with arenas of its own (about 70 MiB on a CPU,
 * 0.4 GiB on a GPU), operators and, with several ranks, collectives with one group of all
 * ranks. All ranks must call it at once, while comm is not in use; comm is borrowed. *out
 * is to be closed whatever the result. MIST_OK or an error of device, operators or
 * collectives.
 */
MIST_MUST_CHECK enum mist_status mist_probe_open(struct mist_comm *comm,
                                                 const struct mist_probe_config *config,
                                                 struct mist_probe **out,
                                                 struct mist_err *err);
void mist_probe_close(struct mist_probe *probe); /* NULL allowed */

/*
 * Repeats probes for about duration_s, at least MIST_PROBE_LEAST timings, which are added to
 * times_us, on all ranks equally many: behind some that warm up, the first time more, by which
 * rank 0 finds how many there is time for, and tells the others. All ranks must call it at
 * once, while comm and its devices are idle. Afterwards comm has no pause
 * (mist_comm_set_pause()). The bytes of probes are their own: nothing else changes. MIST_OK,
 * MIST_ERR_MEMORY or an error of device or collectives.
 */
enum { MIST_PROBE_LEAST = 5 };
MIST_MUST_CHECK enum mist_status mist_probe_run(struct mist_probe *probe,
                                                double duration_s,
                                                struct mist_samples *times_us,
                                                struct mist_err *err);

/* What the probes of a time say, the same on all ranks; all 0 of none. */
struct mist_probe_level {
    double time_s;      /* of a probe: the mean over ranks of the middle mean of each */
    double spread_frac; /* nine in ten / one in ten of them - 1, where that is most */
};

/*
 * The level of the machine while probes took times_us, which are sorted by this call. Their
 * middle mean (statistics.h) counts, of all in one: a run meets some of the tenths of
 * seconds in which a shared machine is slow, and a plain mean is of those that were met. All ranks must call it, with equally many. MIST_OK or an error of comm.
 */
MIST_MUST_CHECK enum mist_status mist_probe_find_level(struct mist_comm *comm,
                                                       struct mist_samples *times_us,
                                                       struct mist_probe_level *out,
                                                       struct mist_err *err);

/* How often probes with a trial of so many seconds are to be timed in duration_s. */
int32_t mist_probe_count(double duration_s, double trial_s);

/* What probes between the iterations of a run say of its prediction; all 0 when no probe was
 * predicted. */
struct mist_probe_verdict {
    double level;                 /* 1.05: 5 % slower than profiled */
    double longer;                /* mist_prediction_longer() at that level */
    double predicted_s;           /* prediction at that level */
    double prediction_error_frac; /* of that: predicted / measured - 1 */
};

/* measured_s: of an iteration; the others of a probe, 0: unknown. */
struct mist_probe_verdict mist_probe_judge(double measured_s, double probe_measured_s,
                                           double probe_predicted_s,
                                           const struct mist_prediction *predicted);

#endif
