/*
 * The workbench: the executor's own device, communicator and operators around the buffers
 * of one stage, so that everything is timed where and how a run executes it.
 *
 * A stage of n_copies blocks with embedding and head lies in the device arena: weights,
 * gradients and optimizer state of every module, saved activations of every module, the
 * activations between them. Going through the modules one after another, as a micro-batch
 * does, brings every operand from where it is in a run: weights of the block at hand from
 * memory or the last cache, activations just written from a near one. The same buffers
 * serve all tensor-parallel variants, which need no more than the whole modules do.
 * Beside them lies a message region in both arenas, for links.
 *
 * Arenas are filled through the device, which may have a memory of its own. What is timed
 * goes into spans of the stopwatch in bodies of tasks and is read once the streams are
 * idle.
 */
#ifndef MIST_PROFILE_WORKBENCH_H
#define MIST_PROFILE_WORKBENCH_H

#include "core/progress.h"
#include "core/statistics.h"
#include "exec/comm/comm.h"
#include "exec/operators/bind.h"
#include "exec/operators/op_table.h"
#include "exec/runtime/backend.h"
#include "profile/grid.h"
#include "profile/journal.h"
#include "profile/stopwatch.h"

struct mist_time_probe;

/* Where a rank computes. */
struct mist_bench_place {
    const struct mist_backend *backend; /* borrowed */
    int32_t i_device;                   /* of the machine */
    bool is_alone;                      /* no other rank uses that device */
    int32_t n_sharing;                  /* ranks that use it, >= 1 */
    int32_t n_processors;               /* of the host, for the rank; 0 counts as 1 */
};

struct mist_bench_module {
    enum mist_layer_kind kind;
    char *weights, *gradients, *state, *saved;
    int64_t n_elements; /* of weights, gradients and each part of the state */
};

struct mist_workbench {
    const struct mist_grid *grid;           /* borrowed */
    const struct mist_operators *operators; /* borrowed */
    struct mist_comm *comm;                 /* borrowed */
    struct mist_bench_place place;
    struct mist_device *device;           /* owned */
    struct mist_collectives *collectives; /* owned */
    struct mist_collective_group *all;    /* of all ranks; NULL: there is one */
    void *backend;                        /* owned; of the operators */
    struct mist_stopwatch watch;
    struct mist_op_table *ops; /* borrowed; gets operators and kernels; NULL: none */
    int32_t n_repeated;        /* runs whose recording was lost, on all ranks */
    atomic_bool is_held;       /* what waits in mist_workbench_hold() does so */
    int32_t rank, n_ranks, node;
    int32_t n_copies;                  /* blocks; modules 1 .. n_copies */
    struct mist_bench_module *modules; /* owned; [n_copies + 2], embedding first */
    char **boundary;                   /* owned; [n_copies + 1] activations between */
    char *boundary_gradient[2];        /* used in turn */
    char *scratch, *tokens, *targets, *constant;
    char *updated; /* bf16: where AdamW's weights go, which come from masters of zero */
    char *message; /* device arena: zeros */
    int64_t message_bytes; /* at least the largest message, and beyond the last cache */
    char *host;            /* host arena: zeros */
    int64_t host_bytes;
    int64_t arena_bytes[MIST_N_ARENAS];
    struct mist_journal *journal;    /* borrowed; NULL: none */
    struct mist_time_probe *probes;  /* borrowed; NULL: none (time_probe.h) */
    struct mist_progress *progress;  /* borrowed; NULL on all ranks but one */
    double time_start_s, expected_s; /* for the progress line */
};

/* Whether bodies compute themselves, in memory of the host. */
bool mist_workbench_is_on_host(const struct mist_workbench *bench);

/* Who does the work of a message between ranks. */
enum mist_stopwatch_work mist_workbench_message_work(const struct mist_workbench *bench);

/* How many blocks the stage gets: what a rank has when all ranks form one pipeline, 4 at
 * least (so that weights are not found in a near cache), fewer if limit_bytes of device
 * memory ask for it. 0: not even one block fits. */
int32_t mist_workbench_n_copies(const struct mist_grid *grid, int64_t limit_bytes);

/* Bytes of both arenas with n_copies blocks. (On a CPU both are memory of the device.) */
int64_t mist_workbench_bytes(const struct mist_grid *grid, int32_t n_copies);

/*
 * Opens the device and fills the stage: weights as a run's first parameters, random
 * tokens (frequent and rare ones, as in a text). All ranks must call it. MIST_OK or an
 * error of the device, the operators or the collectives; out is to be freed by
 * mist_workbench_close whatever the result.
 */
MIST_MUST_CHECK enum mist_status
mist_workbench_open(const struct mist_grid *grid, int32_t n_copies,
                    struct mist_comm *comm, const struct mist_bench_place *place,
                    struct mist_workbench *out, struct mist_err *err);
void mist_workbench_close(struct mist_workbench *bench);

/* The buffers of module i_module (0 embedding, n_copies + 1 head) for a variant and a
 * micro-batch. Of the slices of tensor parallelism this rank has the one that it would
 * have in a run. */
void mist_workbench_bind(const struct mist_workbench *bench, int32_t i_variant,
                         int32_t i_micro_batch, int32_t i_module,
                         struct mist_binding *out);

/*
 * Stands in for a communication step when a program is timed on one rank, untimed: what
 * the other ranks would send is this rank's own, so that what is computed with has
 * ordinary values.
 */
void mist_workbench_stand_in(const struct mist_workbench *bench,
                             const struct mist_step_args *args);

/* In the body of a task: n_steps steps of blocks of the smallest micro-batch, forward and
 * backward, one block behind the other; turn counts the blocks. */
void mist_workbench_compute(struct mist_workbench *bench, int64_t n_steps, int64_t *turn);

/* In the body of a task. Sets the optimizer state of a module to zero: shards of other
 * sizes have moments at other places, and a second moment must not be negative. */
void mist_workbench_clear_state(struct mist_workbench *bench, int32_t i_module);

/* In the body of a task: the same for all modules, and their gradients. */
void mist_workbench_clear(struct mist_workbench *bench);

/* Address of a message of up to bytes in a region; consecutive turns give different
 * places, so that it is not in a near cache. 64-byte aligned. */
char *mist_workbench_turn(char *region, int64_t region_bytes, int64_t bytes,
                          int64_t turn);

/*
 * Meets all ranks, runs fn(arg) on a stream, waits for it and makes the times of spans 0
 * .. n_spans - 1 known, in which fn put what it timed. Where a rank's recording was lost
 * all do it again, a few times at most. All ranks must call it.
 */
MIST_MUST_CHECK enum mist_status
mist_workbench_run(struct mist_workbench *bench, enum mist_stream stream,
                   mist_stream_fn fn, void *arg, int64_t n_spans, struct mist_err *err);

/* In the body of a task: its stream waits here for all other ranks' streams. */
void mist_workbench_meet(struct mist_workbench *bench);

/*
 * The same of what submit(bench, arg) submits, for n_events events. So that a device with
 * streams of its own is not slower for waiting for its work, all of it is there before
 * any of it begins: the first task calls hold, which lasts until submit has returned. On
 * the host nothing is held. MIST_HELD_LAUNCHES launches at most.
 */
enum { MIST_HELD_LAUNCHES = 500 };
typedef void mist_submit_fn(struct mist_workbench *bench, void *arg);
MIST_MUST_CHECK enum mist_status
mist_workbench_run_held(struct mist_workbench *bench, int32_t n_events, int64_t n_spans,
                        mist_submit_fn *submit, void *arg, struct mist_err *err);
void mist_workbench_hold(struct mist_workbench *bench);

/* Replaces estimates[n] by what mist_estimate_pool makes of all ranks', everywhere. */
MIST_MUST_CHECK enum mist_status mist_workbench_pool(struct mist_workbench *bench,
                                                     struct mist_estimate *estimates,
                                                     int32_t n, struct mist_err *err);

/* True on all ranks as soon as it is true on one. */
MIST_MUST_CHECK enum mist_status mist_workbench_any(struct mist_workbench *bench,
                                                    bool *value, struct mist_err *err);

/* Largest value over the ranks, everywhere. */
MIST_MUST_CHECK enum mist_status mist_workbench_max(struct mist_workbench *bench,
                                                    double *value, struct mist_err *err);

void mist_workbench_show_progress(struct mist_workbench *bench);

#endif
