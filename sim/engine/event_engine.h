/*
 * Event engine: replays priced programs of tasks on devices with seven streams each.
 *
 * It knows no models, plans or links' prices: whoever builds the graph has put the
 * isolated duration into every task. What devices have in common is given once: a program
 * is the tasks of a device, what each waits for on its own device, and in which lane it
 * meets other devices; a device is a program, the work of its tasks and the group that
 * each lane leads to. The rules:
 *   - a task is ready when its dependencies have ended and the task before it on its
 * stream (same channel, next lower index) has ended; a stream runs one task at a time;
 *   - a task without lane starts when it is ready. The members of a group meet again and
 * again: the n-th task of the lane of one with the n-th of all others. They start
 * together when the last of them is ready, advance at the rate of the slowest member, and
 * end together; their work is the largest of all members. A member that waits holds its
 * stream but does not count as busy;
 *   - a running task advances at 1/slowdown[busy channels of its device][its channel];
 *   - a program runs a number of iterations; nothing of the next starts on a device before
 * everything of this one has ended there;
 *   - rates change whenever anything starts or ends. Tasks without work take no time and
 * disturb nobody. These rules leave no choice open, so the result does not depend on the
 * order in which things that happen at the same instant are handled.
 *
 * The idea: streams run their tasks in order, so how far each stream of a device has come
 * says everything about it; whatever else changes while time passes is one small record
 * per stream. So memory grows with programs and devices, not with the tasks of all
 * devices, unless their times are asked for. A 4-ary heap holds the projected end of what
 * runs, all ends of one instant are handled together, and only then are the rates of the
 * touched devices computed anew.
 *
 * Left out: priorities and preemption (the streams are FIFO), costs of launching (price
 * them in).
 */
#ifndef MIST_SIM_EVENT_ENGINE_H
#define MIST_SIM_EVENT_ENGINE_H

#include "core/memory.h"           /* struct mist_arena */
#include "core/status.h"           /* enum mist_status, struct mist_err */
#include "sim/cost/interference.h" /* channels, slowdown factors */

#include <stdbool.h>
#include <stdint.h>

/* What devices have in common. Everything is borrowed. */
struct mist_event_program {
    int32_t n_tasks;
    int32_t n_lanes;
    const uint8_t *channel;    /* [n_tasks] enum mist_stream */
    const int32_t *dep_offset; /* [n_tasks + 1] task i depends on dep[dep_offset[i] ..
                                  dep_offset[i + 1] - 1]; optional: no dependencies */
    const int32_t *dep;  /* [dep_offset[n_tasks]] tasks that must end before i starts */
    const int32_t *lane; /* [n_tasks] -1 or 0 .. n_lanes - 1: meets others; the tasks of a
                            lane have one channel. Optional: none */
};

struct mist_event_device {
    int32_t program;
    const double *work_s; /* [n_tasks] alone and undisturbed; finite, >= 0. NULL: all 0 */
    const int32_t *group; /* [n_lanes] 0 .. n_groups - 1 */
    const struct mist_interference *interference; /* NULL: none */
    bool is_recorded;                             /* the times of its tasks are wanted */
};

/* Everything is borrowed. */
struct mist_event_graph {
    int32_t n_programs, n_devices, n_groups;
    int32_t n_iterations; /* >= 1 */
    int32_t n_counted;    /* the last ones, in which use of devices is counted; 0: 1 */
    const struct mist_event_program *program; /* [n_programs] */
    const struct mist_event_device *device;   /* [n_devices] */
    /* Optional. Multiplies the work of a task in one iteration; finite, >= 0. */
    double (*factor)(const void *context, int32_t device, int32_t task,
                     int32_t iteration);
    /* Optional. Names a task in text[size], for messages. */
    void (*name_task)(const void *context, int32_t device, int32_t task, char *text,
                      size_t size);
    const void *context;
};

/* A device in the iterations counted, together. */
struct mist_event_use {
    double busy_s[MIST_N_STREAMS]; /* the stream runs a task */
    double covered_s;              /* any does */
};

/* Arrays lie in the arena that the engine was prepared with. */
struct mist_event_result {
    double *iteration_end_s; /* [n_iterations] the last task of any device ends */
    double makespan_s;       /* the last of them */
    const struct mist_event_use *use; /* [n_devices] */
    /* Of recorded devices, one behind the other in their order, each [n_tasks] of its
     * program: start and end in the last iteration. start_s is common to those who meet. */
    double *start_s, *end_s;
    int64_t n_tasks;        /* of all devices, all iterations */
    int64_t n_rate_changes; /* times something that ran got another rate */
};

/* A prepared graph, from mist_event_engine_prepare(). Lives as long as its arena. */
struct mist_event_engine;

/*
 * Checks the graph and builds what replaying needs (the order on every stream, what its
 * tasks wait for, the members of every group).
 *
 * graph     borrowed until the last run, with all its arrays; between runs the work and
 *           the interference may be changed (valid values only), the rest may not.
 * arena     owns the engine and all results.
 * out       filled on MIST_OK.
 *
 * Returns MIST_OK, MIST_ERR_INPUT (an index or value is invalid; the message names it),
 * MIST_ERR_RANGE (too many devices) or MIST_ERR_MEMORY. O(tasks + dependencies of the
 * programs + lanes of the devices).
 */
enum mist_status mist_event_engine_prepare(struct mist_event_engine **out,
                                           const struct mist_event_graph *graph,
                                           struct mist_arena *arena,
                                           struct mist_err *err) MIST_MUST_CHECK;

/* Bytes that mist_event_engine_prepare() takes from its arena. n_tasks: of all programs;
 * n_lanes: of all devices; n_recorded: tasks of recorded devices. */
double mist_event_engine_bytes(double n_tasks, double n_devices, double n_lanes,
                               double n_recorded);

/*
 * Replays the prepared graph once. Allocates nothing; the result's arrays are overwritten
 * by the next run of the same engine. Same graph, same bits.
 *
 * Returns MIST_OK, MIST_ERR_RANGE (times too long to add up) or MIST_ERR_INPUT (work that
 * is no time, or a deadlock: streams that wait for one another in a ring; the message
 * tells how many tasks cannot run and walks along the ring; result is then invalid).
 * Because streams run in order and groups meet in order, whether there is a deadlock does
 * not depend on how long anything takes. O((tasks + rate changes) * log(streams)).
 */
enum mist_status mist_event_engine_run(struct mist_event_engine *engine,
                                       struct mist_event_result *result,
                                       struct mist_err *err) MIST_MUST_CHECK;

#endif
