/* What sim/engine/event_prepare.c builds and sim/engine/event_engine.c runs. Private to these two. */
#ifndef MIST_SIM_EVENT_INTERNAL_H
#define MIST_SIM_EVENT_INTERNAL_H

#include "sim/engine/event_engine.h" /* the graph and the rules */

/* A stream's number: device * MIST_N_STREAMS + channel. A set of channels is bits. */

/* A task of a program, as its stream meets it. */
struct event_step {
    int32_t task;
    int32_t lane;                 /* -1: none */
    int32_t need[MIST_N_STREAMS]; /* steps of each channel that must have ended */
};

struct event_program {
    struct event_step *step; /* [n_tasks] channel by channel, in order */
    int32_t
        first[MIST_N_STREAMS + 1]; /* steps of a channel: first[c] .. first[c + 1] - 1 */
    uint8_t *lane_channel;         /* [n_lanes] of its tasks */
    unsigned channels;             /* that have steps */
};

struct event_device {
    const struct event_program *program;
    const double *work_s;
    const int32_t *group;
    const struct mist_interference *factors;
    int64_t recorded; /* place of its first task in the results; -1: not recorded */
    int32_t n_ended[MIST_N_STREAMS]; /* steps of each channel in this iteration */
    int32_t iteration;
    uint8_t left;    /* channels that have steps left in this iteration */
    uint8_t waiting; /* channels whose next step waits for other channels */
    uint8_t busy;    /* channels that run something */
    bool dirty;      /* is in dirty_device */
};

struct event_stream {
    double start_s;  /* of what runs */
    double slowdown; /* its current factor; 0: new */
    int32_t flow;    /* -1: nothing runs */
};

/* Something that runs: one task, or all members of a group. Its number is the stream
 * of the task or of the group's first member, so there is one record per stream. */
struct event_flow {
    double left_s;   /* work left at since_s */
    double since_s;  /* time of the last change of its rate */
    double slowdown; /* 1 / rate since then; 0: just started */
    double worst;    /* largest slowdown of its members */
    int32_t n_worst; /* members that have it */
    int32_t group;   /* -1: a single task */
    bool running;
    bool dirty;  /* is in dirty_flow */
    bool rescan; /* worst and n_worst must be found anew */
};

/* A projected end. Four children are one cache line. */
struct event_heap_entry {
    double end_s;
    int32_t flow;
};

struct mist_event_engine {
    const struct mist_event_graph *graph; /* borrowed */
    int32_t n_streams;
    struct event_program *program; /* [n_programs] */
    struct event_device *device;   /* [n_devices] */
    struct event_stream *stream;   /* [n_streams] */
    struct event_flow *flow;       /* [n_streams] */
    int32_t *member_begin;         /* [n_groups + 1] */
    int32_t *member;               /* [member_begin[n_groups]] streams, ascending */
    int32_t *n_missing;            /* [n_groups] members that are not ready */
    struct event_heap_entry *heap; /* [n_heap] 4-ary, children of i: 4i + 1 .. 4i + 4 */
    int32_t *heap_at;              /* [n_streams] place of a flow in the heap, -1: none */
    int32_t *ready;                /* [n_streams] stack of streams to be started */
    int32_t *ending;               /* [n_streams] flows that end at this instant */
    int32_t *dirty_flow;           /* [n_streams] */
    int32_t *dirty_device;         /* [n_devices] */
    double *covered_until_s;       /* [n_devices] end of what covered_s counts */
    struct mist_event_use *use;    /* [n_devices] */
    int32_t n_heap, n_ready, n_dirty_flow, n_dirty_device;
    int64_t n_tasks, n_done;
    double now_s;
    struct mist_event_result result;
    struct mist_interference undisturbed; /* for devices without interference */
};

/* The step that a stream is at; it must have one left. */
static inline const struct event_step *event_step_at(const struct event_device *device,
                                                     int channel)
{
    return &device->program
                ->step[device->program->first[channel] + device->n_ended[channel]];
}

/* Everything of the graph that may change between runs: work, interference. */
enum mist_status event_check_values(const struct mist_event_graph *graph,
                                    struct mist_err *err) MIST_MUST_CHECK;

/* Explains why nothing runs any more: a ring of streams that wait for one another.
 * Returns MIST_ERR_INPUT. */
enum mist_status event_explain_deadlock(const struct mist_event_engine *engine,
                                        struct mist_err *err);

#endif
