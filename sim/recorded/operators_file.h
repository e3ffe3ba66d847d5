/*
 * Reads a table of the operations of a pipeline job, as straggler studies publish them,
 * and rebuilds what they waited for. The columns of the CSV (plain or gzip):
 *
 *   step,dp_rank,stage,optype,mb_id,seq_id,model_chunk,stream,start_us,dur_us
 *
 * seq_id counts the operations of one optype of a worker within a step, model_chunk those
 * of a computation's stage in an interleaved pipeline; mb_id and the stream's name are not
 * needed. The rules, within a step:
 *   - computations of a worker run one after the other; so do the operations of each
 *     optype that passes messages between stages, and those of data parallelism;
 *   - a send waits for the computation that it sends, a computation for what it receives;
 *     a receive is posted when the computation before the one that needs it has ended, and
 *     those of the first backward when the forward before the last one of the warm-up has;
 *   - parameters are gathered before the first forward; behind the last computation come
 *     gc, the sums of gradients (norms, embedding, all), clipping and the optimizer;
 *   - the transfers of a worker are in the order of its computations; with chunks all but
 *     the first chunk of all get something, from the last stage if they are on the first;
 *   - who meets: a send its receive, collectives of data parallelism the replicas of the
 *     stage, the embedding's the first and last stage of a replica, clipping everybody.
 */
#ifndef MIST_SIM_RECORDED_OPERATORS_FILE_H
#define MIST_SIM_RECORDED_OPERATORS_FILE_H

#include "sim/recorded/recorded.h"

/*
 * Reads and prepares (recorded.h). job lies in the arena. MIST_ERR_INPUT (an unknown
 * optype, an operation twice, a receive that nobody sends: with the line), MIST_ERR_IO,
 * MIST_ERR_MEMORY.
 */
enum mist_status mist_recorded_read_operators(const char *path,
                                              struct mist_recorded_job *job,
                                              struct mist_arena *arena,
                                              struct mist_err *err) MIST_MUST_CHECK;

#endif
