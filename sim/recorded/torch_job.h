/*
 * Reads traces of torch.profiler, one of each rank (export_chrome_trace(), gzip or not), and
 * rebuilds what was waited for. Operations are what ran on devices, and the host's calls
 * that launched it or waited for it. The rules, within a rank:
 *   - a call waits for the one before it on its thread, and for the last call of any thread
 *     that had ended; what Python and PyTorch do between calls is its gap;
 *   - a kernel, copy or memset waits for the call that launched it (they share an id) and for
 *     what was before it on its stream;
 *   - a stream that a call makes wait for an event waits for the last work that was launched
 *     before on the event's stream and had ended. Where the trace does not name the two
 *     (enable_cuda_sync_events), the stream is that of the next launch, or one whose next
 *     work began late and right behind what it may have waited for; and the event's is any.
 *     Waits inside of NCCL's wrapper (nccl:*) are its own and left out;
 *   - a call that synchronizes, or a copy that is done when its call returns, returns when
 *     what it waited for has ended.
 * Messages between ranks: the i-th of a kind in a group is the i-th of all its ranks. Where
 * the trace does not name groups (before PyTorch 2.3), the k-th stream of a rank that has
 * messages is a group with all ranks' k-th. Those that do not fit (not equally many, not
 * there at once, transfers among more than two) are left alone and counted. Messages end for
 * all at once: so clocks of hosts are brought together that differ by 100 us to 10 ms.
 */
#ifndef MIST_SIM_RECORDED_TORCH_JOB_H
#define MIST_SIM_RECORDED_TORCH_JOB_H

#include "core/progress.h"
#include "sim/recorded/recorded.h"

/*
 * Reads and prepares (recorded.h). Replicas are ranks: all of a job, in any order, or one
 * alone. job lies in the arena; progress may be NULL. MIST_ERR_INPUT (no such trace, a rank
 * is missing or there twice, traces of different runs: with the file), MIST_ERR_IO,
 * MIST_ERR_MEMORY.
 */
enum mist_status mist_recorded_read_torch(const char *const *paths, int n_paths,
                                          struct mist_recorded_job *job,
                                          struct mist_progress *progress,
                                          struct mist_arena *arena,
                                          struct mist_err *err) MIST_MUST_CHECK;

#endif
