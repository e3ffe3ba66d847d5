/*
 * Timelines: which task ran on which stream of which rank, from when to when.
 *
 * One row per task, the same columns whether a simulator predicted the row or an executor
 * measured it, so that the two can be compared task by task. As a file it is CSV (see
 * traces/README.md) with these columns, and n_ranks where a row speaks of several ranks:
 *
 *   rank,stream,kind,layer,micro_batch,iteration,task,start_s,end_s,bytes,device_live_bytes
 *
 * This header also owns the words for streams and task kinds; schedules and plots use
 * them too.
 */
#ifndef MIST_TRACES_TIMELINE_H
#define MIST_TRACES_TIMELINE_H

#include "core/progress.h"
#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The streams of a rank, in the order in which files and tables name them: the four
 * channels of its device; transfers between stages of a pipeline, which go through the
 * second of them beside what it does; work of the host's processors; and collectives of
 * data-parallel ranks, where these don't wait for those of tensor-parallel ones. */
enum mist_stream {
    MIST_STREAM_COMPUTE,
    MIST_STREAM_GPU_GPU, /* collectives between devices */
    MIST_STREAM_HOST_TO_DEVICE,
    MIST_STREAM_DEVICE_TO_HOST,
    MIST_STREAM_SEND,
    MIST_STREAM_RECEIVE,
    MIST_STREAM_HOST,
    MIST_STREAM_SHARDS,
    MIST_N_STREAMS
};

/* The channels, which disturb each other (sim/cost/interference.h), are the first streams. */
enum { MIST_N_CHANNELS = MIST_STREAM_SEND };

/* The channel that the work of a stream goes through; MIST_STREAM_HOST: none. */
static inline enum mist_stream mist_stream_channel(enum mist_stream stream)
{
    return stream == MIST_STREAM_SEND || stream == MIST_STREAM_RECEIVE ||
                   stream == MIST_STREAM_SHARDS
               ? MIST_STREAM_GPU_GPU
               : stream;
}

enum mist_task_kind {
    MIST_TASK_FORWARD,
    MIST_TASK_RECOMPUTE,       /* forward again, for a checkpointed layer's backward */
    MIST_TASK_BACKWARD,        /* input and weight gradients in one */
    MIST_TASK_BACKWARD_INPUT,  /* split backward: gradient of the input only */
    MIST_TASK_BACKWARD_WEIGHT, /* split backward: gradient of the weights only */
    MIST_TASK_OPTIMIZER,
    MIST_TASK_SEND_ACTIVATION,
    MIST_TASK_RECV_ACTIVATION,
    MIST_TASK_SEND_GRADIENT,
    MIST_TASK_RECV_GRADIENT,
    MIST_TASK_REDUCE_GRADIENT, /* all-reduce or reduce-scatter over data-parallel ranks */
    MIST_TASK_GATHER_PARAMETER, /* all-gather over data-parallel ranks */
    MIST_TASK_TP_ALL_REDUCE,
    MIST_TASK_SWAP_IN_WEIGHT,
    MIST_TASK_SWAP_OUT_WEIGHT,
    MIST_TASK_SWAP_IN_GRADIENT,
    MIST_TASK_SWAP_OUT_GRADIENT,
    MIST_TASK_SWAP_IN_OPTIMIZER,
    MIST_TASK_SWAP_OUT_OPTIMIZER,
    MIST_TASK_SWAP_IN_ACTIVATION,
    MIST_TASK_SWAP_OUT_ACTIVATION,
    MIST_TASK_LOAD_BATCH,
    MIST_TASK_TP_REDUCE_SCATTER,
    MIST_TASK_TP_ALL_GATHER,
    MIST_TASK_TP_REDUCE_GRADIENT,  /* sums over tensor-parallel ranks what each saw a part
                                      of */
    MIST_TASK_TIE_GRADIENT,        /* adds the head's gradient of a tied embedding */
    MIST_TASK_ACCUMULATE_GRADIENT, /* adds a reduced micro-batch's gradient */
    MIST_TASK_GRADIENT_NORM,
    MIST_TASK_REDUCE_NORM,   /* all ranks exchange loss and norm */
    MIST_TASK_CP_ALL_GATHER, /* keys and values of all context-parallel ranks' tokens */
    MIST_TASK_CP_REDUCE_SCATTER, /* their gradients */
    MIST_N_TASK_KINDS
};

/* What kinds of tasks do. */
enum mist_task_sort {
    MIST_SORT_PROGRAM,    /* a part of a module's forward or backward */
    MIST_SORT_GRADIENTS,  /* a pass over gradients: optimizer, sum, norm */
    MIST_SORT_TRANSFER,   /* between two stages */
    MIST_SORT_COLLECTIVE, /* among ranks (tie_gradient: of two, or of none) */
    MIST_SORT_COPY,       /* between device and host */
    MIST_SORT_LOAD,       /* token ids of the iteration */
};

enum mist_task_sort mist_task_kind_sort(enum mist_task_kind kind);

/* Of MIST_SORT_TRANSFER: whether the rank sends. */
static inline bool mist_task_kind_sends(enum mist_task_kind kind)
{
    return kind == MIST_TASK_SEND_ACTIVATION || kind == MIST_TASK_SEND_GRADIENT;
}

/* The word of a stream or kind ("gpu_gpu", "backward_input"); static text, never NULL. */
const char *mist_stream_name(enum mist_stream stream);
const char *mist_task_kind_name(enum mist_task_kind kind);

/* Latest time of a timeline: whoever adds times up or shows them in other units must not
 * run out of numbers. */
#define MIST_TIMELINE_MAX_S 1e12

struct mist_timeline_row {
    int rank; /* 0 .. */
    enum mist_stream stream;
    enum mist_task_kind kind;
    int layer;                 /* -1: belongs to no layer */
    int micro_batch;           /* -1: belongs to no micro-batch */
    int iteration;             /* 0 .. */
    int64_t task;              /* index in the rank's schedule, 0 .. */
    double start_s;            /* since a common origin of all ranks */
    double end_s;              /* >= start_s */
    int64_t bytes;             /* moved by the task; 0 for computation */
    int64_t device_live_bytes; /* in the device arena while the task runs; 0: unknown */
    int n_ranks; /* that do the same, from rank on, of which a replay wrote this one; 0: 1 */
    int line;    /* of the file that it was read from; 0: none */
};

struct mist_timeline {
    struct mist_timeline_row *rows; /* owned; in the order they were added */
    size_t n_rows;
    size_t capacity; /* of rows */
};

void mist_timeline_init(struct mist_timeline *timeline);
void mist_timeline_fini(struct mist_timeline *timeline);

/*
 * Appends a copy of row, unchecked (see mist_timeline_check). MIST_OK or MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_timeline_add(struct mist_timeline *timeline,
                                                   const struct mist_timeline_row *row,
                                                   struct mist_err *err);

/*
 * Checks every row (0 <= start <= end <= MIST_TIMELINE_MAX_S, numbers not negative, layer
 * and micro-batch -1 or more, enums in range), that no (rank, iteration, task) comes
 * twice, and that tasks of one rank and stream do not overlap (one may start in the
 * instant in which the other ends). path: of the file that they were read from, or NULL.
 * MIST_OK, MIST_ERR_INPUT with path and the row's line (without path its number, from 1)
 * in the message, or MIST_ERR_MEMORY. O(n log n).
 */
MIST_MUST_CHECK enum mist_status mist_timeline_check(const struct mist_timeline *timeline,
                                                     const char *path,
                                                     struct mist_err *err);

/* Gets a row, gone after the call; anything but MIST_OK ends the reading. */
typedef enum mist_status mist_timeline_visitor(const struct mist_timeline_row *row,
                                               void *context, struct mist_err *err);

/*
 * Reads path row by row, plain or gzip, however long it is. Of the checks rows pass those
 * that look at one alone. progress may be NULL. Returns the visitor's status, or as
 * mist_timeline_load(): rows before a mistake have been visited.
 */
MIST_MUST_CHECK enum mist_status
mist_timeline_visit(const char *path, mist_timeline_visitor *visit, void *context,
                    struct mist_progress *progress, struct mist_err *err);

/*
 * Reads and checks path. timeline is initialised by this call whatever the result, and
 * empty unless MIST_OK. MIST_ERR_INPUT (also: no row) with file:line, MIST_ERR_IO or
 * MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_timeline_load(struct mist_timeline *timeline,
                                                    const char *path,
                                                    struct mist_err *err);

/*
 * Writes path atomically, after mist_timeline_check(). Loading it gives the same bits. An
 * existing file is an error unless overwrite.
 */
MIST_MUST_CHECK enum mist_status mist_timeline_save(const struct mist_timeline *timeline,
                                                    const char *path, bool overwrite,
                                                    struct mist_err *err);

/* Earliest start and latest end; both 0 for an empty timeline. */
void mist_timeline_span(const struct mist_timeline *timeline, double *start_s,
                        double *end_s);

#endif
