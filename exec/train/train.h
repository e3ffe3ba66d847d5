/*
 * A training run: every rank of a plan, from the data to the last step, and what was
 * measured.
 *
 * Each rank builds its schedule, opens its device with exactly the planned arenas and
 * walks the schedule once per step. Steps of a run count from 1; a resumed run goes on
 * counting. Validation and checkpoints first apply the gradients that the next step would
 * have applied anyway, so they change no bit of what follows.
 *
 * A checkpoint has the name of the number of steps done. When one is due, the step's log
 * function runs before it is written: a log on disk is never behind a checkpoint.
 *
 * So does a log that fails, and the run ends with what it returned.
 *
 * Probes run when nothing of the run is open yet, or any more, so they take none of its
 * memory and change no bit of it.
 *
 * A signal that any rank has received until the ranks exchange what they found in a step
 * ends the run after this step, with a checkpoint and without the validation that may be
 * due, or after the batch of a validation; that all know of it costs no message. After a
 * checkpoint they ask once more.
 *
 * With no step left, there is still a validation, and the export.
 */
#ifndef MIST_EXEC_TRAIN_H
#define MIST_EXEC_TRAIN_H

#include "core/message.h"
#include "core/status.h"
#include "exec/comm/comm.h"
#include "exec/data/data.h"
#include "exec/operators/op_table.h"
#include "exec/operators/paths.h"
#include "exec/runtime/backend.h"
#include "exec/runtime/probe.h"
#include "exec/runtime/runtime.h"
#include "exec/train/train_settings.h"
#include "exec/train/train_state.h"
#include "sim/model/catalog.h"
#include "sim/plan/plan.h"
#include "traces/timeline.h"

#include <stdint.h>

struct mist_train_job {
    /* but for seed, n_steps_before and ops, which follow from the rest; at most the steps
     * to do are timed */
    struct mist_train_config config;
    const struct mist_backend *backend;  /* whose devices the ranks compute on */
    int32_t i_device;                    /* of this rank on its machine */
    bool has_own_device;                 /* no other rank computes there */
    const struct mist_plan *plan;        /* checked, supported by the schedule */
    const struct mist_data *data;        /* checked against model and sequence length */
    struct mist_train_settings settings; /* resolved; no more steps than progress has:
                                            only what follows the last is done */
    struct mist_train_progress progress; /* where checkpoint stands; else 0 */
    struct mist_checkpoint *checkpoint;  /* to go on from; NULL: none */
    const struct mist_hf *import;        /* weights to start from; NULL: none */
    int64_t n_validation_samples;        /* the first so many; 0: no validation */
    int64_t validate_every;              /* steps, and after the last; 0: only there */
    int64_t save_every;                  /* the same */
    struct mist_train_saving saving;
    const struct mist_messages *messages; /* warnings of rank 0; NULL: nowhere */
    const char *export_folder;            /* NULL: none */
    enum mist_dtype export_dtype;
    int32_t n_positions;  /* of the export: mist_hf_save() */
    bool force;           /* of the export */
    bool times_operators; /* in timed iterations, for the report */
    double begun_s;       /* when the process began; 0: nobody asks */
    double deadline_s;    /* of a wait for other ranks */
    double probe_frac;    /* time of probes between steps, of the fastest's; 0: none */
    int32_t n_kept; /* last iterations that the report tells one by one; 0: a million */
    bool allows_atomics; /* see struct mist_device_config */
    enum mist_attention_choice attention;
};

/* Memory of a rank. */
struct mist_train_memory {
    int64_t planned_bytes, allocated_bytes; /* device arena of the plan, of the run */
    int64_t resident_bytes;                 /* of the process, at most */
    int64_t used_bytes;                     /* of the device, by anyone; -1: not known */
};

/* What every rank knows after each step. */
struct mist_train_step {
    int64_t step;           /* from 1 */
    double loss;            /* mean over the tokens of the step */
    double gradient_norm;   /* before clipping; NaN: not finite */
    double lr;              /* that its gradients are applied with */
    double step_s;          /* without validation and saving; of rank 0 */
    double validation_loss; /* mean over the tokens of the samples; NaN: none;
                               infinite: not finite */
    bool is_skipped;        /* something was not finite: not applied */
    bool is_saved_next;     /* a checkpoint is about to be written, or the run ends */
};

/* Called on rank 0; what is not MIST_OK ends the run: of step behind the next one, with a
 * checkpoint, and it is not called again. Each may be NULL. */
struct mist_train_log {
    /* memory: before the first step, each number of the rank that has most */
    enum mist_status (*begin)(void *context, const struct mist_train_memory *memory,
                              const struct mist_paths *paths, struct mist_err *err);
    enum mist_status (*step)(void *context, const struct mist_train_step *step,
                             struct mist_err *err);
    void *context;
    /* a path that was chosen meanwhile, and its text: see struct mist_paths */
    void (*note)(void *context, const char *name, const char *text);
};

/*
 * Complete on rank 0 only. Of a run longer than MIST_TRAIN_MAX_KEPT (or the job's n_kept)
 * iterations the last ones alone are told one by one, and the mean is theirs: memory does
 * not grow with the run.
 */
enum {
    MIST_TRAIN_MAX_KEPT = 1 << 20,
    MIST_TRAIN_MAX_SKIPPED = 100, /* steps one after the other; then the run has failed */
};

struct mist_train_report {
    int32_t n_iterations, n_kept, n_ranks; /* of this process; of those, the last */
    struct mist_train_step first;          /* of this process */
    struct mist_train_step *steps;         /* owned; [n_kept]: mist_train_report_step() */
    double validation_loss; /* where no step was left, as a step's; else NaN */
    double *iteration_s;    /* owned; [n_kept]: from end to end of the last rank */
    double steady_s; /* mean of iteration_s without the first two (or what there is) and
                        far ones (statistics.h) */
    double start_s;  /* from the process' begin to that of its first step, without probes;
                        0: not asked */
    struct mist_probe_level level; /* of probes between those; 0: none */
    double probe_predicted_s; /* of the plan, if it is for as many threads; 0: unknown */
    int64_t n_skipped;        /* of all steps of the run */
    int64_t stopped_after;    /* the step that the run was stopped after; 0: none.
                                 Then nothing else here is filled but the steps */
    int stop_signal;          /* the signal, the same on all ranks; 0: the log failed */
    bool skips_validation;    /* the one due after that step has not come to its end */
    struct mist_train_memory *memory; /* owned; [n_ranks] */
    uint64_t parameters_fingerprint;  /* of all parameters after the run, in module order
                                      */
    struct mist_paths paths;          /* of all ranks */
    struct mist_timeline timeline;    /* of all ranks; time 0 = start of the first kept
                                        iteration */
    int64_t *losses; /* owned; [n_timed_iterations] enum mist_span_loss: those that are
                        not in the timeline, and why */
    struct mist_op_table ops; /* of all ranks; empty unless asked for */
};

/*
 * Runs the job on all ranks of comm; plan's ranks = comm's ranks. report is initialised
 * whatever the result; mist_train_report_fini frees it. MIST_OK, MIST_ERR_MEMORY,
 * MIST_ERR_RUN (also what is not finite, unless such steps are skipped, and then
 * MIST_TRAIN_MAX_SKIPPED of them one after the other), MIST_ERR_INPUT,
 * MIST_ERR_IO (a checkpoint, an export), what the log returns. After a failure the other
 * ranks may be waiting: the job should end with mist_comm_abort().
 */
MIST_MUST_CHECK enum mist_status mist_train_run(struct mist_comm *comm,
                                                const struct mist_train_job *job,
                                                const struct mist_train_log *log,
                                                struct mist_train_report *report,
                                                struct mist_err *err);
void mist_train_report_fini(struct mist_train_report *report);

/* Of n iterations those at the begin that do not count: the first has no update, caches are
 * cold. */
enum { MIST_TRAIN_MOST_WARM = 2 };
static inline int32_t mist_train_n_warm(int32_t n)
{
    return n > MIST_TRAIN_MOST_WARM ? MIST_TRAIN_MOST_WARM : n > 0 ? n - 1 : 0;
}

/* Step i = 0 .. n_kept - 1 of those kept, in the order of the run. */
static inline const struct mist_train_step *
mist_train_report_step(const struct mist_train_report *report, int32_t i)
{
    int32_t n = report->n_kept;

    return &report->steps[(report->n_iterations % n + i) % n];
}

#endif
