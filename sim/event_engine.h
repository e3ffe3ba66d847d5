/*
 * Event engine: replays a flat, priced task graph on devices with five streams each.
 *
 * It knows no models, plans or links' prices: whoever builds the graph has put the
 * isolated duration into every task. The rules:
 *   - a task is ready when its dependencies have ended and the task before it on its
 * stream (same device and channel, next lower index) has ended; a stream runs one task at
 * a time;
 *   - a task without rendezvous starts when it is ready. The members of a rendezvous (a
 * collective, a transfer) start together when the last of them is ready, advance at the
 * rate of the slowest member, and end together; the work of a rendezvous is the largest
 * work_s of its members. A member that waits holds its stream but does not count as busy;
 *   - a running task advances at 1/slowdown[busy channels of its device][its channel]; a
 * rendezvous on a link that k rendezvous use at that moment advances at share_frac[k] of
 * its rate;
 *   - rates change whenever anything starts or ends. Tasks without work take no time and
 * disturb nobody. These rules leave no choice open, so the result does not depend on the
 * order in which things that happen at the same instant are handled.
 *
 * The idea: at most one task runs per stream, so everything that changes while time
 * passes is one small record per stream; a 4-ary heap holds the projected end of what
 * runs, all ends of one instant are handled together, and only then are the rates of the
 * touched devices and links computed anew.
 *
 * Left out: priorities and preemption (the streams are FIFO), costs of launching (price
 * them in).
 */
#ifndef MIST_SIM_EVENT_ENGINE_H
#define MIST_SIM_EVENT_ENGINE_H

#include "core/memory.h"      /* struct mist_arena */
#include "core/status.h"      /* enum mist_status, struct mist_err */
#include "sim/interference.h" /* channels, slowdown factors */

#include <stdint.h>

/* How k rendezvous share a link. */
struct mist_event_link {
    const double *share_frac; /* [n_share + 1]; rate of each of k users, in (0, 1]; [0] is
                                 unused, [1] = 1 */
    int32_t n_share; /* largest k in the table, >= 0; above it the total stays that of
                        n_share users; 0: k users get 1/k each */
};

/* Everything is borrowed. Arrays marked optional may be NULL.
 * Task indices are below n_tasks. */
struct mist_event_graph {
    int32_t n_tasks;
    int32_t n_devices;
    int32_t n_rendezvous;
    int32_t n_links;
    int32_t n_interference;
    const int32_t *device;     /* [n_tasks] 0 .. n_devices - 1 */
    const uint8_t *channel;    /* [n_tasks] enum mist_stream */
    const double *work_s;      /* [n_tasks] alone and undisturbed; finite, >= 0 */
    const int32_t *dep_offset; /* [n_tasks + 1] task i depends on dep[dep_offset[i] ..
                                  dep_offset[i + 1] - 1]; optional: no dependencies */
    const int32_t *dep; /* [dep_offset[n_tasks]] tasks that must end before i starts */
    const int32_t *rendezvous; /* [n_tasks] -1 or 0 .. n_rendezvous - 1; optional: none */
    const int32_t *rendezvous_link;     /* [n_rendezvous] -1 or a link; optional: none */
    const struct mist_event_link *link; /* [n_links] */
    /* [n_interference], one per device class */
    const struct mist_interference *interference;
    const int32_t *device_interference; /* [n_devices] -1 (no interference) or 0 ..
                                           n_interference - 1; optional: all 0, or no
                                           interference when n_interference is 0 */
};

/* Arrays lie in the arena that the engine was prepared with. */
struct mist_event_result {
    double *ready_s;   /* [n_tasks] dependencies and stream predecessor have ended */
    double *start_s;   /* [n_tasks] >= ready_s; common to the members of a rendezvous */
    double *end_s;     /* [n_tasks] */
    double makespan_s; /* largest end; 0 without tasks */
    int64_t n_events;  /* starts and ends of tasks: 2 * n_tasks */
    int64_t n_rate_changes; /* times a running task or rendezvous got another rate */
    int64_t n_instants;     /* distinct times at which something ended */
};

/* A prepared graph, from mist_event_engine_prepare(). Lives as long as its arena. */
struct mist_event_engine;

/*
 * Checks the graph and builds what replaying needs (who waits for whom, who follows on
 * the stream).
 *
 * graph     borrowed until the last run, with all its arrays; between runs work_s,
 * interference and links may be changed (valid values only), the rest may not. arena owns
 * the engine and all results. out filled on MIST_OK.
 *
 * Returns MIST_OK, MIST_ERR_INPUT (an index or value is invalid; the message names it),
 * MIST_ERR_RANGE (too many devices) or MIST_ERR_MEMORY. O(tasks + dependencies +
 * devices).
 */
enum mist_status mist_event_engine_prepare(struct mist_event_engine **out,
                                           const struct mist_event_graph *graph,
                                           struct mist_arena *arena,
                                           struct mist_err *err) MIST_MUST_CHECK;

/* Bytes that mist_event_engine_prepare() takes from its arena, results included; links
 * apart. */
double mist_event_engine_bytes(double n_tasks, double n_deps, double n_rendezvous,
                               double n_devices);

/*
 * Replays the prepared graph once. Allocates nothing; the result's arrays are overwritten
 * by the next run of the same engine. Same graph, same bits.
 *
 * Returns MIST_OK or MIST_ERR_INPUT (deadlock: a cycle of dependencies, stream order and
 * rendezvous; the message tells how many tasks cannot run and names a few of the cycle;
 * result is then invalid). O((tasks + dependencies + rate changes) * log(streams)).
 */
enum mist_status mist_event_engine_run(struct mist_event_engine *engine,
                                       struct mist_event_result *result,
                                       struct mist_err *err) MIST_MUST_CHECK;

#endif
