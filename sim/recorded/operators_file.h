/*
 * Reads a table of the operations of a pipeline job, as straggler studies publish them,
 * and rebuilds what they waited for, step by step. The columns of the CSV (plain or gzip):
 *
 *   step,dp_rank,stage,optype,mb_id,seq_id,model_chunk,stream,start_us,dur_us
 *
 * seq_id counts the operations of one optype of a worker within a step, from 0 or from 1;
 * model_chunk the parts of a stage in an interleaved pipeline. Without step all is one;
 * mb_id and the stream's name are not needed. The rules, within a step:
 *   - computations of a worker run one after the other; so do the operations of each
 *     optype that passes messages between stages, and those of data parallelism;
 *   - a send waits for the computation that it sends, a computation for what it receives;
 *     a receive is posted when the computation before the one that needs it has ended, and
 *     those of the first backward when the forward before the last one of the warm-up has;
 *   - parameters of a chunk are gathered before its first forward; behind the last
 *     computation come gc, the sums of gradients (norms, embedding, all), clipping and the
 *     optimizer; but if some gradients are summed separately, those of a chunk are reduced
 *     behind its last backward;
 *   - the transfers of a worker are in the order of its computations; with chunks all but
 *     the first chunk of all get something, from the last stage if they are on the first;
 *     receives behind the last computation and sends before the first has ended are none;
 *   - who meets: a send its receive, collectives of data parallelism the replicas of the
 *     stage, the embedding's the first and last stage of a replica, clipping everybody.
 */
#ifndef MIST_SIM_RECORDED_OPERATORS_FILE_H
#define MIST_SIM_RECORDED_OPERATORS_FILE_H

#include "core/progress.h"
#include "core/sorter.h"
#include "sim/recorded/recorded.h"

enum { MIST_OPERATIONS_N_KINDS = 14 };

extern const struct mist_recorded_kind mist_operations_kinds[MIST_OPERATIONS_N_KINDS];

struct mist_operation_row {
    int64_t step;
    int32_t dp_rank, stage, seq, chunk;
    double start_us, dur_us;
    long line;
    int kind;
};

/* An open table, in the memory of some steps however long it is: its rows, whatever their
 * order, are sorted by core/sorter.h. */
struct mist_operations {
    const char *path; /* borrowed */
    int64_t n_ops, n_of_kind[MIST_OPERATIONS_N_KINDS];
    int32_t n_replicas, n_stages;
    int32_t first_replica, first_stage; /* as the file numbers them; in jobs 0 */
    int32_t n_chunks;                   /* of a stage; more than 1: interleaved */
    int32_t first_seq;                  /* of seq_id: 0, or 1 */
    /* The rest is its own. */
    struct mist_sorter sorter;
    struct mist_operation_row *rows; /* [n_rows] of a step */
    size_t n_rows, rows_capacity;
    struct mist_operation_row next; /* the first row of the step behind it */
    bool has_next;
};

/*
 * Reads all rows; then the first step is the next one. progress may be NULL.
 * MIST_ERR_INPUT (an unknown optype, too few operations: with the line), MIST_ERR_IO,
 * MIST_ERR_MEMORY; then table is closed.
 */
enum mist_status mist_operations_open(struct mist_operations *table, const char *path,
                                      struct mist_progress *progress,
                                      struct mist_err *err) MIST_MUST_CHECK;

/* Makes the first step the next one again. */
enum mist_status mist_operations_begin(struct mist_operations *table,
                                       struct mist_err *err) MIST_MUST_CHECK;

/*
 * The next step as a prepared job (recorded.h), in the order of their numbers; job->n_ops
 * 0: there are no more. job lies in the arena. MIST_ERR_INPUT (an operation twice, a
 * receive that nobody sends: with the line), MIST_ERR_IO, MIST_ERR_MEMORY.
 */
enum mist_status mist_operations_next(struct mist_operations *table,
                                      struct mist_recorded_job *job,
                                      struct mist_arena *arena,
                                      struct mist_err *err) MIST_MUST_CHECK;

/* A zeroed or closed table is left alone. */
void mist_operations_close(struct mist_operations *table);

#endif
